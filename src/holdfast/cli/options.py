"""What commands share: the Failure error, configuration loading, logging, and common options."""

import asyncio
import enum
import logging
import os
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer

from holdfast.api.errors import HoldfastError
from holdfast.cli.completers import contexts, files, namespaces

if TYPE_CHECKING:
    from holdfast.local.setup import SchedulerFactory


class Failure(HoldfastError):
    """Ends a command with a status and error lines. `as_it_is` prints the lines without a prefix."""

    def __init__(self, status: int, lines: list[str], as_it_is: bool = False) -> None:
        super().__init__("\n".join(lines))
        self.status = status
        self.lines = lines
        self.as_it_is = as_it_is


# Configuration files


def load_setup(path: str | None) -> "SchedulerFactory":
    """Raises Failure."""
    from holdfast.local.setup import SchedulerFactory
    from holdfast.scheduler.framework.config import ConfigError
    from holdfast.scheduler.framework.registry import PluginError
    from holdfast.snapshot.manifests import InvalidInput, load_one

    try:
        setup = SchedulerFactory.of(load_one(path) if path is not None else None)
    except InvalidInput as error:
        raise Failure(1, error.problems) from None
    except ConfigError as error:
        raise Failure(1, [f"{path}: {line}" for line in str(error).splitlines()]) from None
    except PluginError as error:
        raise Failure(1, [str(error)]) from None
    if path is not None:
        setup.name_file(path)
    return setup


def warn_of_plugins(setups: "Iterable[SchedulerFactory]") -> None:
    """Prints a warning for each installed plugin that cannot be used."""
    for warning in dict.fromkeys(each for setup in setups for each in setup.registry.warnings):
        typer.echo(f"warning: {warning}", err=True)


def days_or_duration(text: str) -> float:
    """Seconds of a duration, or of a number of days as in `7d` and `1d12h`. Raises DurationError."""
    from holdfast.api.times import parse_duration

    days, d, rest = text.partition("d")
    if d and days.replace(".", "", 1).isdecimal():
        return float(days) * 86400 + (parse_duration(rest) if rest else 0.0)
    return parse_duration(text)


def read_horizon(text: str) -> float:
    """The seconds of `--within`. Raises Failure."""
    from holdfast.api.errors import DurationError

    try:
        seconds = days_or_duration(text)
    except DurationError as error:
        raise Failure(1, [f"--within: {error}"]) from None
    if seconds <= 0:
        raise Failure(1, [f"--within: must be more than 0: {text}"])
    return seconds


UNLIMITED = "unlimited"


def read_jobs_run_for(text: str) -> float | None:
    """The seconds of `--jobs-run-for`; None if unlimited. Raises Failure."""
    from holdfast.api.errors import DurationError
    from holdfast.api.times import parse_duration

    if text == UNLIMITED:
        return None
    try:
        seconds = parse_duration(text)
    except DurationError as error:
        raise Failure(1, [f"--jobs-run-for: {error}, or {UNLIMITED}"]) from None
    if seconds < 0:
        raise Failure(1, [f"--jobs-run-for: {text!r} is less than 0"])
    return seconds


# Logging of long-running commands: JSON lines on stderr, readable text on a terminal; the level is
# `HOLDFAST_LOG_LEVEL`.


def log_to_stderr() -> Any:
    """The logger of the process. Raises Failure."""
    import structlog  # costs more than most commands

    at_terminal = sys.stderr.isatty()
    structlog.configure(
        processors=[
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            *([] if at_terminal else [structlog.processors.format_exc_info]),
            structlog.dev.ConsoleRenderer(exception_formatter=structlog.dev.plain_traceback)
            if at_terminal
            else structlog.processors.JSONRenderer(),
        ],
        logger_factory=structlog.PrintLoggerFactory(sys.stderr),
        wrapper_class=structlog.make_filtering_bound_logger(_level()),
    )
    return structlog.get_logger()


def _level() -> int:
    text = os.environ.get("HOLDFAST_LOG_LEVEL", "info")
    level = logging.getLevelNamesMapping().get(text.upper())
    if level is None:
        raise Failure(1, [f"HOLDFAST_LOG_LEVEL: expected debug, info, warning or error, got {text!r}"])
    return level


# Options of commands that query a cluster


CLUSTER = "Cluster options"
"""The section of help that lists them."""


def optional(
    *flags: str, metavar: str, help: str, section: str | None = None, complete: Any = None
) -> Any:
    """An option whose help describes the default."""
    return typer.Option(
        *flags,
        metavar=metavar,
        help=help,
        show_default=False,
        rich_help_panel=section,
        autocompletion=complete,
    )


Kubeconfig = Annotated[
    str | None,
    optional(
        "--kubeconfig",
        metavar="FILE",
        help="Kubeconfig of the cluster (default: KUBECONFIG, the pod's service account, "
        "~/.kube/config).",
        section=CLUSTER,
        complete=files,
    ),
]
Context = Annotated[
    str | None,
    optional(
        "--context",
        metavar="NAME",
        help="Context of the kubeconfig (default: its current context).",
        section=CLUSTER,
        complete=contexts,
    ),
]
Namespace = Annotated[
    str | None,
    optional(
        "-n",
        "--namespace",
        metavar="NAMESPACE",
        help="Namespace (default: that of the context).",
        section=CLUSTER,
        complete=namespaces,
    ),
]
AllNamespaces = Annotated[
    bool,
    typer.Option(
        "-A",
        "--all-namespaces",
        help="Show objects of all namespaces.",
        rich_help_panel=CLUSTER,
    ),
]
OwnersNamespace = Annotated[
    str | None,
    optional(
        "-n",
        "--namespace",
        metavar="NAMESPACE",
        help="Namespace of the workload and of the pods that may use the reservation (default: that "
        "of the context).",
        section=CLUSTER,
        complete=namespaces,
    ),
]
Config = Annotated[
    str | None,
    optional(
        "--config",
        metavar="FILE",
        help="Configuration that the cluster's scheduler runs with.",
        complete=files,
    ),
]


Snapshot = Annotated[
    list[str] | None,
    optional(
        "--snapshot",
        metavar="FILE",
        help="Read the objects of this file instead of a cluster: of `holdfast snapshot`, or of "
        "`kubectl get -o yaml`; - for stdin; may be repeated.",
        section=CLUSTER,
        complete=files,
    ),
]


class OutputReport(enum.StrEnum):
    """`-o` of commands that report on one object."""

    TEXT = "text"
    JSON = "json"
    YAML = "yaml"


class Where(NamedTuple):
    """The cluster and namespace to query."""

    kubeconfig: str | None = None
    context: str | None = None
    namespace: str | None = None
    """The namespace that was given; None if none was, empty for all."""
    snapshot: tuple[str, ...] = ()
    """Files to read instead of a cluster."""


# Options of `holdfast run` and `holdfast provisioner`


def health_address_option(port: int) -> Any:
    return optional(
        "--health-address",
        metavar="HOST:PORT",
        help="Address that serves /healthz, /livez, /readyz, /metrics and /configz in plain HTTP "
        f"(default: 0.0.0.0:{port} in a pod, 127.0.0.1:{port} elsewhere); empty to serve none.",
    )


OpenPaths = Annotated[
    str,
    typer.Option(
        "--authorization-always-allow-paths",
        metavar="PATHS",
        help="Comma-separated paths that need no authorization; a path may end in `*`. Other "
        "paths, such as /metrics and /configz, need credentials or, without any, a client on this "
        "machine.",
    ),
]
DEFAULT_OPEN_PATHS = "/healthz,/livez,/readyz,/version"


def read_open_paths(text: str) -> tuple[str, ...]:
    """Raises Failure."""
    from holdfast.serving.health import closed_paths

    paths = tuple(path.strip() for path in text.split(",") if path.strip())
    for path in closed_paths(paths):
        raise Failure(
            1, [f"--authorization-always-allow-paths: {path!r} cannot be served without authorization"]
        )
    return paths


def default_health_address(port: int) -> str:
    """Probes and Prometheus reach a pod at its own address; elsewhere only the machine itself does."""
    from holdfast.kube.kubeconfig import is_in_pod

    return f"{'0.0.0.0' if is_in_pod() else '127.0.0.1'}:{port}"


def read_address(text: str) -> tuple[str, int] | None:
    """Raises Failure."""
    if not text:
        return None
    host, separator, port = text.rpartition(":")
    if not separator or not port.isdigit() or int(port) > 65535:
        raise Failure(1, [f"--health-address: expected host:port, got {text!r}"])
    return host.strip("[]") or "0.0.0.0", int(port)


def logger() -> Callable[..., None]:
    logger = log_to_stderr()

    def log(event: str, level: str = "info", **particulars: object) -> None:
        getattr(logger, level)(event, **particulars)

    return log


def run_loop(main: Callable[[], Any]) -> None:
    """Runs on uvloop if it is installed, which takes a quarter less CPU time."""
    from importlib import import_module
    from importlib.util import find_spec

    fast = import_module("uvloop").new_event_loop if find_spec("uvloop") is not None else None
    with asyncio.Runner(loop_factory=fast) as runner:
        runner.run(main())


@contextmanager
def failures(health_address: str) -> Iterator[None]:
    """Turns errors of the server or of the health port into a Failure."""
    from holdfast.kube.errors import KubernetesError

    try:
        yield
    except KubernetesError as error:
        raise Failure(1, str(error).splitlines()) from None
    except OSError as error:
        why = os.strerror(error.errno).lower() if error.errno else str(error)
        raise Failure(1, [f"--health-address {health_address}: {why}"]) from None
