"""The `holdfast` command and its subcommands.

A subcommand's module is imported when it is called, or when help lists it, so `holdfast --version`
does not import the simulation. A new command is a file and a line in `_COMMANDS`.

Exit status: 0 success, 1 invalid input (usage included), 2 an internal error.
"""

import sys
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import typer
from typer.core import TyperGroup

from holdfast import __version__
from holdfast.cli.options import Failure

_COMMANDS = {
    "up": ("holdfast.cli.up", "up"),
    "run": ("holdfast.cli.run", "run"),
    "provisioner": ("holdfast.cli.provisioner", "provisioner"),
    "simulate": ("holdfast.cli.simulate", "simulate"),
    "get": ("holdfast.cli.get", "get"),
    "describe": ("holdfast.cli.get", "describe"),
    "explain": ("holdfast.cli.explain", "explain"),
    "reserve": ("holdfast.cli.reserve", "reserve"),
    "bench": ("holdfast.cli.bench", "bench"),
    "config": ("holdfast.cli.config", "app"),
    "crds": ("holdfast.cli.config", "crds"),
    "version": ("holdfast.cli.config", "version"),
}
_USAGE_ERROR = 2
"""What the library exits with when it does not understand a command line."""


class _LazyGroup(TyperGroup):
    def list_commands(self, ctx: Any) -> list[str]:
        return [name for name, (module, _) in _COMMANDS.items() if find_spec(module) is not None]

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        if cmd_name not in self.list_commands(ctx):
            return None
        module, attribute = _COMMANDS[cmd_name]
        found = getattr(import_module(module), attribute)
        if not isinstance(found, typer.Typer):
            only = typer.Typer(rich_markup_mode=None, add_completion=False)
            only.command(cmd_name)(found)
            found = only
        command = typer.main.get_command(found)
        command.name = cmd_name
        return command


app = typer.Typer(
    cls=_LazyGroup,
    no_args_is_help=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"holdfast {__version__}")
        raise typer.Exit


@app.callback()
def holdfast(
    version: bool = typer.Option(
        False, "--version", callback=_print_version, is_eager=True, help="Print the version."
    ),
) -> None:
    """A Kubernetes scheduler that reserves capacity."""


def run() -> None:
    try:
        app(prog_name=_program())
    except Failure as failure:
        if failure.as_it_is:
            sys.stderr.writelines(f"{line}\n" for line in failure.lines)
        else:
            _say(failure.lines)
        sys.exit(failure.status)
    except BrokenPipeError:
        sys.stderr.close()  # whoever reads us has gone; there is nobody to tell
        sys.exit(1)
    except SystemExit as exit_:
        sys.exit(1 if exit_.code == _USAGE_ERROR else exit_.code)
    except Exception as error:
        from holdfast.api.errors import HoldfastError

        if not isinstance(error, HoldfastError):
            raise
        _say(str(error).splitlines())
        sys.exit(1)


def _program() -> str:
    """The name this was called by; kubectl runs `kubectl-holdfast` as `kubectl holdfast`."""
    return "kubectl holdfast" if Path(sys.argv[0]).stem == "kubectl-holdfast" else "holdfast"


def _say(lines: list[str]) -> None:
    for line in lines:
        sys.stderr.write(f"error: {line}\n" if not line.startswith(" ") else f"{line}\n")
