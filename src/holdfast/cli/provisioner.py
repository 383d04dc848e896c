"""`holdfast provisioner`"""

from typing import Annotated

import typer

from holdfast.cli.options import (
    DEFAULT_OPEN_PATHS,
    HealthAddress,
    Kubeconfig,
    OpenPaths,
    failures,
    logger,
    read_address,
    read_open_paths,
    run_loop,
)

_DEFAULT_HEALTH = "0.0.0.0:10261"


def provisioner(
    kubeconfig: Kubeconfig = None,
    leader_elect: Annotated[
        bool,
        typer.Option(
            "--leader-elect/--no-leader-elect",
            help="Create reservations only while holding the leader election lease.",
        ),
    ] = True,
    lease_namespace: Annotated[
        str, typer.Option("--lease-namespace", metavar="NS", help="Namespace of the lease.")
    ] = "kube-system",
    health_address: HealthAddress = _DEFAULT_HEALTH,
    open_paths: OpenPaths = DEFAULT_OPEN_PATHS,
) -> None:
    """Create the reservations that pods request by template.

    Needed only if dynamicReservation.provisioner of the scheduler's configuration is external;
    otherwise the scheduler creates them itself.
    """
    from holdfast.kube.kubeconfig import find_access
    from holdfast.kube.provisioner import ProvisionerSettings
    from holdfast.kube.provisioner import run as serve

    health = read_address(health_address)
    log = logger()
    with failures(health_address):
        access = find_access(kubeconfig)
        settings = ProvisionerSettings(
            access, leader_elect, lease_namespace, health, log, read_open_paths(open_paths)
        )
        log("starting", server=access.server, access=access.origin)
        run_loop(lambda: serve(settings))
