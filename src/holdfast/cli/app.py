"""The `holdfast` command and its subcommands.

A subcommand's module is imported when it is called, so that help and completion are quick. A new
command is a file and a line in `COMMANDS`, with the first sentence of its help, and its name in
`SECTIONS`.

Exit status: 0 success, 1 invalid input (usage included) or an error of the server, 2 an internal
error; 130 interrupted; 141 the reader of the output has closed it, as of a process that SIGPIPE ends.
"""

import gc
import os
import sys
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any

import typer

from holdfast import __version__
from holdfast.api.similar_names import did_you_mean
from holdfast.cli.command import HelpfulCommand, HelpfulGroup, choices_of
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
    "down": (
        "holdfast.cli.down:down",
        "Stop a cluster of `holdfast up`, and wait until it has ended.",
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
    "get": ("holdfast.cli.get:get", "Show reservations, holds, pods, nodes and queues."),
    "describe": (
        "holdfast.cli.describe:describe",
        "Show the details of reservations, holds, pods, nodes and queues.",
    ),
    "explain": (
        "holdfast.cli.explain:explain",
        "Explain why a pod, reservation, pod group or workload is pending or placed.",
    ),
    "snapshot": (
        "holdfast.cli.snapshot:snapshot",
        "Write the state that scheduling depends on to a file: nodes, pods, reservations and more.",
    ),
    "record": (
        "holdfast.cli.record:record",
        "Record what scheduling reads of a cluster, as it changes, to be replayed.",
    ),
    "when": (
        "holdfast.cli.when:when",
        "Forecast when a pending pod, workload or reservation starts, and what it waits for.",
    ),
    "advise": (
        "holdfast.cli.advise:advise",
        "Find windows in which capacity can be reserved: with the fewest evictions, earliest first.",
    ),
    "what-if": (
        "holdfast.cli.what_if:what_if",
        "Show what would happen on a cluster: what is placed where, displaced, preempted, pending.",
    ),
    "check": (
        "holdfast.cli.check:check",
        "Check whether manifests would fit on a cluster: for CI, before they are applied.",
    ),
    "mcp": (
        "holdfast.cli.mcp_server:mcp",
        "Answer questions of agents over the Model Context Protocol, on stdin and stdout.",
    ),
    "reserve": ("holdfast.cli.reserve:reserve", "Reserve capacity for pods that do not exist yet."),
    "bench": ("holdfast.bench.command:bench", "Run scheduling benchmarks."),
    "config": ("holdfast.cli.config:app", "Print and validate scheduler configurations."),
    "crds": (
        "holdfast.cli.config:crds",
        "Print the CustomResourceDefinitions as YAML.",
    ),
    "completion": (
        "holdfast.cli.completion:completion",
        "Print a script for completion in a shell.",
    ),
    "version": ("holdfast.cli.version:version", "Print the versions of client and server."),
}
"""The function of each subcommand, and its help."""

SECTIONS = {
    "Reservations": ("get", "describe", "explain", "when", "advise", "reserve"),
    "Questions": ("what-if", "check", "mcp"),
    "Clusters": ("up", "down", "run", "provisioner"),
    "Experiments": ("demo", "simulate", "snapshot", "record", "bench"),
    "Settings": ("config", "crds", "completion", "version"),
}
COMPLETE = "__complete"
"""The hidden command that completion scripts call."""

_CLOSED_OUTPUT = 141
_USAGE_STATUS = {"check": 2}
"""Of commands whose status 1 means something else than invalid input."""
_OF_A_CLUSTER = ("-n", "--namespace", "--context", "--kubeconfig", "--snapshot")
_EVERYWHERE = ("-A", "--all-namespaces")


class _LazyCommand(HelpfulCommand):
    """A subcommand that is imported when its arguments are parsed."""

    def make_context(self, info_name: str | None, args: list[str], *rest: Any, **options: Any) -> Any:
        return load_command(self.name or "").make_context(info_name, args, *rest, **options)


class _LazyGroup(HelpfulGroup):
    sections = SECTIONS
    epilogue = (
        "Run 'holdfast COMMAND --help' for the options and examples of a command.\n\n"
        "Exit status: 0 success; 1 invalid input, or an error of the server; 2 an internal error; "
        "130 interrupted."
    )

    def list_commands(self, ctx: Any) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        found = COMMANDS.get(cmd_name)
        return _LazyCommand(cmd_name, help=found[1]) if found is not None else None


def load_command(name: str) -> Any:
    module, _, attribute = COMMANDS[name][0].partition(":")
    found = getattr(import_module(module), attribute)
    if not isinstance(found, typer.Typer):
        return single_command(name, found)
    command = typer.main.get_command(found)
    command.name = name
    return command


def single_command(name: str, function: Callable[..., None]) -> Any:
    """The command whose options and arguments are the parameters of a function."""
    only = typer.Typer(rich_markup_mode=None, add_completion=False)
    only.command(name, cls=HelpfulCommand)(function)
    return typer.main.get_command(only)


app = typer.Typer(
    cls=_LazyGroup,
    no_args_is_help=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    add_completion=False,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"holdfast {__version__}")
        raise typer.Exit


@app.callback()
def holdfast(
    version: bool = typer.Option(
        False,
        "--version",
        callback=_print_version,
        is_eager=True,
        help="Print the version.",
    ),
) -> None:
    """A Kubernetes scheduler that reserves capacity."""


def run() -> None:
    """The process: runs the command of `sys.argv` and exits with its status."""
    words = sys.argv[1:]
    if Path(sys.argv[0]).stem == "kubectl_complete-holdfast":
        words = [COMPLETE, *words]
    status = call(words)
    gc.freeze()  # what is there ends with the process: no need to look for garbage in it
    sys.exit(status)


def call(words: list[str]) -> int:
    """Runs a command, with errors on stderr, and returns its status."""
    status = 1
    try:
        if words[:1] == [COMPLETE]:
            from holdfast.cli.completion import complete

            complete(words[1:])
        else:
            _invoke(words)
        sys.stdout.flush()
        status = 0
    except BrokenPipeError:
        # The reader of our output, such as `head`, has closed it.
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        status = _CLOSED_OUTPUT
    except KeyboardInterrupt:
        status = 130
    except typer.Exit as exit_:
        status = exit_.exit_code
    except typer.Abort:
        sys.stderr.write("Aborted!\n")
    except Failure as failure:
        if failure.as_it_is:
            sys.stderr.writelines(f"{line}\n" for line in failure.lines)
        else:
            _print_errors(failure.lines)
        status = failure.status
    except Exception as error:
        from holdfast.api.errors import HoldfastError

        if hasattr(error, "format_message"):
            _print_usage_error(error)
            status = _USAGE_STATUS.get(_command_first(words)[0] if words else "", 1)
        elif isinstance(error, HoldfastError):
            _print_errors(str(error).splitlines())
        else:
            raise
    return status


def _invoke(words: list[str]) -> None:
    command: Any = typer.main.get_command(app)
    with command.make_context(_program(), _command_first(words)) as context:
        command.invoke(context)


def _program() -> str:
    """The name this was called by; kubectl runs `kubectl-holdfast` as `kubectl holdfast`. A launcher
    of the plugin sets HOLDFAST_PROGRAM.
    """
    plugin = "kubectl holdfast"
    is_plugin = Path(sys.argv[0]).stem == "kubectl-holdfast"
    return plugin if is_plugin or os.environ.get("HOLDFAST_PROGRAM") == plugin else "holdfast"


def _command_first(words: list[str]) -> list[str]:
    """`-n shop get pods` as `get -n shop pods`: kubectl takes options of the cluster anywhere."""
    flags, rest = cluster_flags(words)
    return [rest[0], *flags, *rest[1:]] if rest else words


def cluster_flags(words: list[str]) -> tuple[list[str], list[str]]:
    """The options of the cluster that the words begin with, and the rest."""
    at = 0
    while at < len(words) and words[at].partition("=")[0] in (*_OF_A_CLUSTER, *_EVERYWHERE):
        at += 2 if words[at] in _OF_A_CLUSTER else 1
    return words[:at], words[at:]


# Errors

_PLAIN_TYPES = {
    "Input should be a valid integer, unable to parse string as an integer": "it is not an integer",
    "Input should be a valid number, unable to parse string as a number": "it is not a number",
    "Input should be a valid integer": "it is not an integer",
    "Input should be greater than or equal to": "it must be at least",
    "Input should be less than or equal to": "it must be at most",
}
"""What the library that reads options says of their values, in plain words."""


def _print_errors(lines: list[str]) -> None:
    for line in lines:
        sys.stderr.write(f"error: {line}\n" if not line.startswith(" ") else f"{line}\n")


def _print_usage_error(error: Any) -> None:
    context = getattr(error, "ctx", None)
    if context is not None and type(error).__name__ == "NoArgsIsHelpError":
        sys.stderr.write(context.get_help().rstrip("\n") + "\n")
        return
    _print_errors([_usage_problem(error, context)])
    if context is not None:
        sys.stderr.write(f"Run '{context.command_path} --help' for usage.\n")


def _usage_problem(error: Any, context: Any) -> str:
    parameter = getattr(error, "param", None)
    match type(error).__name__:
        case "NoSuchOption":
            known = [
                name
                for each in context.command.get_params(context)
                for name in (*each.opts, *each.secondary_opts)
                if name.startswith("--")
            ]
            otherwise = ""
            if context.parent is None:
                known += [name for name in (*_OF_A_CLUSTER, *_EVERYWHERE) if name.startswith("--")]
                otherwise = "the options of a command follow its name, as in 'holdfast get -o wide'"
            hint = did_you_mean(error.option_name, known, otherwise)
            return f"unknown option {error.option_name}{hint}"
        case "MissingParameter" if parameter is not None and parameter.param_type_name == "argument":
            name = (parameter.metavar or parameter.name.upper()).strip("[].")
            return f"{name} is required: {parameter.help or ''}".rstrip(": ")
        case "BadParameter" if parameter is not None and (choices := choices_of(parameter)):
            given = error.message.partition("'")[2].partition("'")[0]
            name = max(parameter.opts, key=len) if parameter.opts else parameter.name
            hint = did_you_mean(given, choices)
            return f"{name}: {given!r} is not one of {', '.join(choices)}{hint}"
    message = str(error.format_message()).replace("Value error, ", "")
    for theirs, ours in _PLAIN_TYPES.items():
        message = message.replace(theirs, ours)
    return message
