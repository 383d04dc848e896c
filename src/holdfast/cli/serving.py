"""What `holdfast run` and `holdfast provisioner` share: where they tell how they are, how they end."""

import asyncio
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Annotated, Any

import typer

from holdfast.cli.failing import Failure
from holdfast.cli.logs import log_to_stderr

HealthAddress = Annotated[
    str,
    typer.Option(
        "--health-address",
        metavar="HOST:PORT",
        help="Where /healthz, /readyz, /metrics and the rest are served; empty for nowhere.",
    ),
]


OpenPaths = Annotated[
    str,
    typer.Option(
        "--authorization-always-allow-paths",
        metavar="PATHS",
        help="Paths served to everyone, separated by commas; a `*` may stand at the end. Others, such"
        " as /metrics and /configz, are for those with credentials or, without any, on this machine.",
    ),
]
DEFAULT_OPEN_PATHS = "/healthz,/livez,/readyz,/version"


def read_open_paths(text: str) -> tuple[str, ...]:
    """Raises Failure."""
    from holdfast.server.health import closed_paths

    paths = tuple(path.strip() for path in text.split(",") if path.strip())
    for path in closed_paths(paths):
        raise Failure(1, [f"--authorization-always-allow-paths: {path!r} cannot be open to everyone"])
    return paths


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
    """On uvloop where it is installed: it makes a quarter more of the same processor."""
    from importlib import import_module
    from importlib.util import find_spec

    fast = import_module("uvloop").new_event_loop if find_spec("uvloop") is not None else None
    with asyncio.Runner(loop_factory=fast) as runner:
        runner.run(main())


@contextmanager
def failures(health_address: str) -> Iterator[None]:
    """What the server, or the port, has against it is told as a Failure."""
    from holdfast.backends.kubernetes.errors import KubernetesError

    try:
        yield
    except KubernetesError as error:
        raise Failure(1, str(error).splitlines()) from None
    except OSError as error:
        why = os.strerror(error.errno).lower() if error.errno else str(error)
        raise Failure(1, [f"--health-address {health_address}: {why}"]) from None
