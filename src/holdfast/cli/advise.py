"""`holdfast advise`"""

import shlex
from typing import TYPE_CHECKING, Annotated

import typer

from holdfast.cli.options import (
    Config,
    Context,
    Failure,
    Kubeconfig,
    OutputReport,
    OwnersNamespace,
    Snapshot,
    Where,
    optional,
)

if TYPE_CHECKING:
    from holdfast.sim.windows.window_answers import ReservationWindow, WindowReport

_AMOUNTS = "Amounts"
_PLACEMENT = "Placement and evictions"
_UNKNOWN_STATUS, _NO_WINDOW_STATUS = 3, 4
_OWNER = "app=my-app"
_LEAD = "5m"


def advise(
    duration: Annotated[
        str, typer.Option("--for", metavar="DURATION", help="How long each reservation lasts.")
    ],
    within: Annotated[
        str,
        typer.Option(
            "--within",
            metavar="D",
            help="A window starts within this time: a duration, or days as in 3d.",
        ),
    ] = "3d",
    cpu: Annotated[
        str | None,
        optional("--cpu", metavar="QUANTITY", help="CPU of each reservation.", section=_AMOUNTS),
    ] = None,
    memory: Annotated[
        str | None,
        optional("--memory", metavar="QUANTITY", help="Memory of each reservation.", section=_AMOUNTS),
    ] = None,
    gpu: Annotated[
        str | None,
        optional(
            "--gpu",
            metavar="N",
            help="GPUs of each reservation, as resource nvidia.com/gpu.",
            section=_AMOUNTS,
        ),
    ] = None,
    resource: Annotated[
        list[str] | None,
        optional(
            "--resource",
            metavar="NAME=QUANTITY",
            help="Amount of any other resource. May be repeated.",
            section=_AMOUNTS,
        ),
    ] = None,
    count: Annotated[
        int,
        typer.Option(
            "--count",
            "--replicas",
            metavar="N",
            min=1,
            max=1000,
            help="Number of reservations that start together.",
            rich_help_panel=_AMOUNTS,
        ),
    ] = 1,
    owner: Annotated[
        list[str] | None,
        optional(
            "--owner",
            metavar="LABELS",
            help="Labels of the pods that may use the reservations, for the printed command.",
        ),
    ] = None,
    node_selector: Annotated[
        list[str] | None,
        optional(
            "--node-selector",
            metavar="KEY=VALUE",
            help="Only on nodes with this label. May be repeated.",
            section=_PLACEMENT,
        ),
    ] = None,
    priority: Annotated[
        int | None,
        optional(
            "--priority",
            metavar="N",
            help="Priority of the reservations: only pods and plans of lower priority make way "
            "(default: all but pods critical for the cluster).",
            section=_PLACEMENT,
        ),
    ] = None,
    max_evictions: Annotated[
        int | None,
        optional(
            "--max-evictions",
            metavar="N",
            help="List no windows that need more evictions; 0 for none (default: any number).",
            section=_PLACEMENT,
        ),
    ] = None,
    lead: Annotated[
        str,
        typer.Option(
            "--lead",
            metavar="DURATION",
            help="How long before the start pods are evicted, if any must be.",
            rich_help_panel=_PLACEMENT,
        ),
    ] = _LEAD,
    limit: Annotated[
        int, typer.Option("--limit", metavar="N", min=1, max=100, help="How many windows to list.")
    ] = 5,
    output: Annotated[
        OutputReport, typer.Option("-o", "--output", help="Output format.")
    ] = OutputReport.TEXT,
    config: Config = None,
    kubeconfig: Kubeconfig = None,
    context: Context = None,
    namespace: OwnersNamespace = None,
    snapshot: Snapshot = None,
) -> None:
    """Find windows in which capacity can be reserved: with the fewest evictions, earliest first.

    Asks the scheduler's planner when the amounts will be free for so long, beside pods, reservations
    and other plans. The ends of pods are known from their run-time estimates; a pod without one counts
    as never ending, and windows that depend on its end are listed as Unknown. Prints the command that
    reserves each window. Writes nothing.

    Exit status: 0 the capacity of a window is known to be free; 3 there are only windows that are
    Unknown; 4 there is none within --within; 1 invalid input, or an error of the server.

    Examples:
      # When can 8 GPUs be had for four hours, in the next three days?
      holdfast advise --gpu 8 --cpu 32 --for 4h --within 3d

      # Sixteen reservations at the same time, without evicting a pod
      holdfast advise --cpu 8 --memory 16Gi --count 16 --for 2h --max-evictions 0

      # In a snapshot, as data
      holdfast advise --cpu 8 --for 4h --snapshot cluster.json.gz -o json
    """
    from holdfast.api.names import RESERVATION_PRIORITY
    from holdfast.cli.client import cluster_objects, namespace_of
    from holdfast.cli.options import load_setup, read_horizon, warn_of_plugins
    from holdfast.cli.printing import as_json, as_yaml
    from holdfast.cli.reservation_builder import (
        ReserveOptions,
        check_priority,
        make_reservations,
        read_duration,
        read_owners,
        read_pairs,
        read_resources,
    )
    from holdfast.sim.garbage import seldom_collected
    from holdfast.sim.what_if.question import WhatIfQuestion, as_running
    from holdfast.sim.windows.window_answers import as_data
    from holdfast.sim.windows.window_search import WindowQuestion, WindowSearch
    from holdfast.snapshot.manifests import InvalidInput
    from holdfast.snapshot.played_cluster import NotSettled

    check_priority(priority)
    if max_evictions is not None and max_evictions < 0:
        raise Failure(1, [f"--max-evictions: must not be negative, got {max_evictions}"])
    seconds, ahead = read_duration("--for", duration), read_horizon(within)
    resources = read_resources(cpu, memory, gpu, resource or ())
    if not resources:
        raise Failure(1, ["nothing to reserve: give --cpu, --memory, --gpu or --resource"])
    where = Where(kubeconfig, context, namespace, tuple(snapshot or ()))
    owners = owner or [_OWNER]
    options = ReserveOptions(
        replicas=count,
        resources=resources,
        owners=read_owners(owners, namespace_of(where)),
        node_selector=read_pairs("--node-selector", node_selector or ()),
        labels={} if priority is None else {RESERVATION_PRIORITY: str(priority)},
        ttl=duration,
        namespace=namespace_of(where),
    )
    question = WindowQuestion(
        make_reservations(options, None),
        seconds,
        ahead,
        read_duration("--lead", lead),
        max_evictions,
        limit,
    )
    setup = load_setup(config)
    warn_of_plugins([setup])
    try:
        objects = cluster_objects(where)
        with seldom_collected():
            if config is None:
                setup = as_running(setup, objects)
            at_rest = WhatIfQuestion.about(setup, objects)
            cluster = at_rest.cluster
            search = WindowSearch(cluster.scheduler, cluster.clock.epoch(), question)
            search.notes += at_rest.notes
            report = search.report()
    except InvalidInput as error:
        raise Failure(1, error.problems) from None
    except NotSettled as error:
        raise Failure(2, [str(error)]) from None
    words = [word for name, value in resources.items() for word in _amount(name, value)]
    words += ["--replicas", str(count)] if count > 1 else []
    given = (("--owner", owners), ("--node-selector", node_selector or []))
    words += [word for flag, values in given for value in values for word in (flag, value)]
    for flag, value in (
        ("--priority", None if priority is None else str(priority)),
        ("-n", namespace),
        ("--kubeconfig", kubeconfig),
        ("--context", context),
    ):
        words += [flag, value] if value is not None else []
    for window in report.windows:
        window.command = _command(words, window, duration, lead)
    if owner is None and report.windows:
        report.notes.append(f"change --owner {_OWNER} to the labels of the pods that use the capacity")
    match output:
        case OutputReport.JSON:
            typer.echo(as_json(as_data(report)), nl=False)
        case OutputReport.YAML:
            typer.echo(as_yaml(as_data(report)), nl=False)
        case OutputReport.TEXT:
            from holdfast.cli.window_tables import print_windows

            print_windows(report)
    if status := _status(report):
        raise typer.Exit(status)


def _status(report: "WindowReport") -> int:
    from holdfast.sim.windows.window_answers import Confidence

    if not report.windows:
        return _NO_WINDOW_STATUS
    known = any(each.confidence is Confidence.KNOWN for each in report.windows)
    return 0 if known else _UNKNOWN_STATUS


def _amount(name: str, value: str) -> list[str]:
    from holdfast.api.names import CPU, MEMORY, NVIDIA_GPU

    flag = {CPU: "--cpu", MEMORY: "--memory", NVIDIA_GPU: "--gpu"}.get(name)
    return [flag, value] if flag is not None else ["--resource", f"{name}={value}"]


def _command(words: list[str], window: "ReservationWindow", duration: str, lead: str) -> str:
    found = ["holdfast", "reserve", *words, "--start", window.start, "--for", duration]
    if window.evicts:
        found += ["--before-start", "Preempt", "--lead", lead]
    return shlex.join(found)
