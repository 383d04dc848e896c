"""The `holdfast` command and its subcommands.

A subcommand's module is imported when it is called, so that help and completion are quick. A new
command is a file and a line in `COMMANDS`, with the first sentence of its help.

Exit status: 0 success, 1 invalid input (usage included), 2 an internal error.
"""

import sys
from importlib import import_module
from pathlib import Path
from typing import Any

import typer
from typer.core import TyperCommand, TyperGroup

from holdfast import __version__
from holdfast.cli.options import Failure

COMMANDS = {
    "demo": (
        "holdfast.cli.demo.command:demo",
        "Show what Holdfast does, on a local cluster or on yours, in a minute.",
    ),
    "up": (
        "holdfast.cli.up:up",
        "Run a local cluster: API server, scheduler, simulated nodes.",
    ),
    "run": ("holdfast.cli.run:run", "Run the scheduler on a Kubernetes cluster."),
    "provisioner": (
        "holdfast.cli.run:provisioner",
        "Create the reservations that pods request by template.",
    ),
    "simulate": (
        "holdfast.cli.simulate:simulate",
        "Run a scenario on a simulated cluster, in virtual time.",
    ),
    "get": ("holdfast.cli.get:get", "Show reservations, holds, nodes, and pending pods."),
    "describe": (
        "holdfast.cli.get:describe",
        "Show the details of a reservation, hold, node, or pending pod.",
    ),
    "explain": (
        "holdfast.cli.explain:explain",
        "Explain why a pod, reservation or pod group is pending or placed.",
    ),
    "reserve": ("holdfast.cli.reserve:reserve", "Reserve capacity for pods that do not exist yet."),
    "bench": ("holdfast.bench.command:bench", "Run scheduling benchmarks."),
    "config": ("holdfast.cli.config:app", "Print and validate scheduler configurations."),
    "crds": (
        "holdfast.cli.config:crds",
        "Print the CustomResourceDefinitions as YAML.",
    ),
    "version": ("holdfast.cli.config:version", "Print the version."),
}
"""The function of each subcommand, and its help."""
_USAGE_ERROR = 2
"""Exit status of the library for an invalid command line."""


class _LazyCommand(TyperCommand):
    """A subcommand that is imported when its arguments are parsed."""

    def make_context(self, info_name: str | None, args: list[str], *rest: Any, **options: Any) -> Any:
        return load_command(self.name or "").make_context(info_name, args, *rest, **options)


class _LazyGroup(TyperGroup):
    def list_commands(self, ctx: Any) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        found = COMMANDS.get(cmd_name)
        return _LazyCommand(cmd_name, help=found[1]) if found is not None else None


def load_command(name: str) -> Any:
    module, _, attribute = COMMANDS[name][0].partition(":")
    found = getattr(import_module(module), attribute)
    if not isinstance(found, typer.Typer):
        only = typer.Typer(rich_markup_mode=None, add_completion=False)
        only.command(name)(found)
        found = only
    command = typer.main.get_command(found)
    command.name = name
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
            _print_errors(failure.lines)
        sys.exit(failure.status)
    except BrokenPipeError:
        sys.stderr.close()  # the reader of our output has closed it
        sys.exit(1)
    except SystemExit as exit_:
        sys.exit(1 if exit_.code == _USAGE_ERROR else exit_.code)
    except Exception as error:
        from holdfast.api.errors import HoldfastError

        if not isinstance(error, HoldfastError):
            raise
        _print_errors(str(error).splitlines())
        sys.exit(1)


def _program() -> str:
    """The name this was called by; kubectl runs `kubectl-holdfast` as `kubectl holdfast`."""
    return "kubectl holdfast" if Path(sys.argv[0]).stem == "kubectl-holdfast" else "holdfast"


def _print_errors(lines: list[str]) -> None:
    for line in lines:
        sys.stderr.write(f"error: {line}\n" if not line.startswith(" ") else f"{line}\n")
