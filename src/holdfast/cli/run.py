"""`holdfast run` and `holdfast provisioner`: the processes on a Kubernetes cluster."""

from typing import Annotated, Any

import typer

from holdfast.cli.completers import files
from holdfast.cli.options import (
    DEFAULT_OPEN_PATHS,
    Kubeconfig,
    OpenPaths,
    default_health_address,
    failures,
    health_address_option,
    logger,
    optional,
    read_address,
    read_open_paths,
    run_loop,
)

_PORT = 10259
_PROVISIONER_PORT = 10261


def run(
    config: Annotated[
        str | None,
        optional(
            "--config",
            metavar="FILE",
            help="Scheduler configuration file (KubeSchedulerConfiguration).",
            complete=files,
        ),
    ] = None,
    kubeconfig: Annotated[
        str | None,
        optional(
            "--kubeconfig",
            metavar="FILE",
            complete=files,
            help="Kubeconfig of the cluster (default: the configuration's, KUBECONFIG, the pod's "
            "service account, ~/.kube/config).",
        ),
    ] = None,
    install_crds: Annotated[
        bool, typer.Option("--install-crds", help="Install the CustomResourceDefinitions first.")
    ] = False,
    leader_elect: Annotated[
        bool | None,
        typer.Option(
            "--leader-elect/--no-leader-elect",
            help="Schedule only while holding the leader election lease (default: the "
            "configuration's).",
            show_default=False,
        ),
    ] = None,
    health_address: Annotated[str | None, health_address_option(_PORT)] = None,
    open_paths: OpenPaths = DEFAULT_OPEN_PATHS,
    no_dashboard: Annotated[
        bool,
        typer.Option("--no-dashboard", help="Serve no dashboard at /dashboard/ of the health address."),
    ] = False,
) -> None:
    """Run the scheduler on a Kubernetes cluster.

    Schedules the pods whose spec.schedulerName is that of a profile; by default holdfast-scheduler.

    Examples:
      # Outside the cluster, with its kubeconfig
      holdfast run --kubeconfig ~/.kube/config --install-crds

      # With a configuration, as one of several replicas
      holdfast run --config config.yaml --leader-elect
    """
    from holdfast.cli.dashboards import RunnerDashboard
    from holdfast.cli.options import load_setup
    from holdfast.kube.kubeconfig import find_access
    from holdfast.kube.run import RunSettings
    from holdfast.kube.run import run as serve

    setup = load_setup(config)
    configuration = setup.configuration
    if health_address is None:
        health_address = default_health_address(_PORT)
    health = read_address(health_address)
    log = logger()
    for warning in setup.registry.warnings:
        log("plugins", level="warning", warning=warning)
    for warning in configuration.cautions:
        log("configuration", warning=warning)
    with failures(health_address):
        kubeconfig = kubeconfig or configuration.client_connection.kubeconfig or None
        access = find_access(kubeconfig)
        dashboard = None
        if health is not None and not no_dashboard:
            dashboard = RunnerDashboard(access.server, kubeconfig, config)
        settings = RunSettings(
            access=access,
            configuration=configuration,
            registry=setup.registry,
            elect=configuration.leader_election.leader_elect if leader_elect is None else leader_elect,
            install_crds=install_crds,
            health=health,
            open_paths=read_open_paths(open_paths),
            pages=dashboard.pages() if dashboard is not None else {},
            runner_changed=dashboard.runner_changed if dashboard is not None else lambda _: None,
            log=log,
        )
        log("starting", server=access.server, access=access.origin, profiles=_names(configuration))
        run_loop(lambda: serve(settings))


def _names(configuration: Any) -> list[str]:
    return [profile.scheduler_name for profile in configuration.profiles]


# The provisioner


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
    health_address: Annotated[str | None, health_address_option(_PROVISIONER_PORT)] = None,
    open_paths: OpenPaths = DEFAULT_OPEN_PATHS,
) -> None:
    """Create the reservations that pods request by template.

    Needed only if dynamicReservation.provisioner of the scheduler's configuration is external;
    otherwise the scheduler creates them itself.

    Examples:
      # Outside the cluster, with its kubeconfig
      holdfast provisioner --kubeconfig ~/.kube/config
    """
    from holdfast.kube.kubeconfig import find_access
    from holdfast.kube.provisioner import ProvisionerSettings
    from holdfast.kube.provisioner import run as serve

    if health_address is None:
        health_address = default_health_address(_PROVISIONER_PORT)
    health = read_address(health_address)
    log = logger()
    with failures(health_address):
        access = find_access(kubeconfig)
        settings = ProvisionerSettings(
            access, leader_elect, lease_namespace, health, log, read_open_paths(open_paths)
        )
        log("starting", server=access.server, access=access.origin)
        run_loop(lambda: serve(settings))
