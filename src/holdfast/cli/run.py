"""`holdfast run`"""

import asyncio
import os
from collections.abc import Callable
from typing import Annotated, Any

import typer

from holdfast.cli.failing import Failure
from holdfast.cli.logs import log_to_stderr

_DEFAULT_HEALTH = "0.0.0.0:10259"


def run(
    config: Annotated[
        str | None,
        typer.Option("--config", metavar="F", help="A KubeSchedulerConfiguration.", show_default=False),
    ] = None,
    kubeconfig: Annotated[
        str | None,
        typer.Option(
            "--kubeconfig",
            metavar="F",
            help="Else the configuration's, KUBECONFIG, the pod's service account, ~/.kube/config.",
            show_default=False,
        ),
    ] = None,
    install_crds: Annotated[
        bool, typer.Option("--install-crds", help="Put the CustomResourceDefinitions there first.")
    ] = False,
    leader_elect: Annotated[
        bool | None,
        typer.Option(
            "--leader-elect/--no-leader-elect",
            help="Schedule only while holding the lease; else as the configuration says.",
            show_default=False,
        ),
    ] = None,
    health_address: Annotated[
        str,
        typer.Option(
            "--health-address",
            metavar="HOST:PORT",
            help="Where /healthz, /readyz, /metrics and the rest are served; empty for nowhere.",
        ),
    ] = _DEFAULT_HEALTH,
) -> None:
    """Schedule the pods of a Kubernetes cluster that ask for it.

    Those whose spec.schedulerName is that of a profile; by default holdfast-scheduler.
    """
    from holdfast.backends.kubernetes.access import find_access
    from holdfast.backends.kubernetes.errors import KubernetesError
    from holdfast.cli.setups import load_setup
    from holdfast.server.running import RunSettings
    from holdfast.server.running import run as serve

    setup = load_setup(config)
    configuration = setup.configuration
    health = address(health_address)
    log = logger()
    for warning in configuration.warnings:
        log("configuration", warning=warning)
    try:
        access = find_access(kubeconfig or configuration.client_connection.kubeconfig or None)
        settings = RunSettings(
            access=access,
            configuration=configuration,
            registry=setup.registry,
            elect=configuration.leader_election.leader_elect if leader_elect is None else leader_elect,
            install_crds=install_crds,
            health=health,
            log=log,
        )
        log("starting", server=access.server, access=access.origin, profiles=_names(configuration))
        run_loop(lambda: serve(settings))
    except KubernetesError as error:
        raise Failure(1, str(error).splitlines()) from None
    except OSError as error:
        why = os.strerror(error.errno).lower() if error.errno else str(error)
        raise Failure(1, [f"--health-address {health_address}: {why}"]) from None


def run_loop(main: Callable[[], Any]) -> None:
    """On uvloop where it is installed: it makes a quarter more of the same processor."""
    from importlib import import_module
    from importlib.util import find_spec

    fast = import_module("uvloop").new_event_loop if find_spec("uvloop") is not None else None
    with asyncio.Runner(loop_factory=fast) as runner:
        runner.run(main())


def address(text: str) -> tuple[str, int] | None:
    if not text:
        return None
    host, separator, port = text.rpartition(":")
    if not separator or not port.isdigit() or int(port) > 65535:
        raise Failure(1, [f"--health-address: expected host:port, got {text!r}"])
    return host.strip("[]") or "0.0.0.0", int(port)


def _names(configuration: Any) -> list[str]:
    return [profile.scheduler_name for profile in configuration.profiles]


def logger() -> Callable[..., None]:
    logger = log_to_stderr()

    def log(event: str, level: str = "info", **particulars: object) -> None:
        getattr(logger, level)(event, **particulars)

    return log
