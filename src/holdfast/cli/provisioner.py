"""`holdfast provisioner`"""

from typing import Annotated

import typer

from holdfast.cli.failing import Failure

_DEFAULT_HEALTH = "0.0.0.0:10261"


def provisioner(
    kubeconfig: Annotated[
        str | None,
        typer.Option(
            "--kubeconfig",
            metavar="F",
            help="Else KUBECONFIG, the pod's service account, ~/.kube/config.",
            show_default=False,
        ),
    ] = None,
    leader_elect: Annotated[
        bool,
        typer.Option("--leader-elect/--no-leader-elect", help="Work only while holding the lease."),
    ] = True,
    lease_namespace: Annotated[
        str, typer.Option("--lease-namespace", metavar="NS", help="Where the lease is.")
    ] = "kube-system",
    health_address: Annotated[
        str,
        typer.Option(
            "--health-address",
            metavar="HOST:PORT",
            help="Where /healthz, /readyz, /metrics and the rest are served; empty for nowhere.",
        ),
    ] = _DEFAULT_HEALTH,
) -> None:
    """Create the reservations pods ask for by a template.

    For where the scheduler does not do that itself: dynamicReservation.provisioner is external.
    """
    from holdfast.backends.kubernetes.access import find_access
    from holdfast.backends.kubernetes.errors import KubernetesError
    from holdfast.cli.run import address, logger, run_loop
    from holdfast.server.provisioning import ProvisionerSettings
    from holdfast.server.provisioning import run as serve

    health = address(health_address)
    log = logger()
    try:
        access = find_access(kubeconfig)
        settings = ProvisionerSettings(access, leader_elect, lease_namespace, health, log)
        log("starting", server=access.server, access=access.origin)
        run_loop(lambda: serve(settings))
    except KubernetesError as error:
        raise Failure(1, str(error).splitlines()) from None
    except OSError as error:
        raise Failure(1, [f"{health_address}: {error.strerror or error}"]) from None
