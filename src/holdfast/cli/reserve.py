"""`holdfast reserve`"""

import enum
import time
from typing import TYPE_CHECKING, Annotated

import typer

from holdfast.api.calendar import AtEnd, BeforeStart
from holdfast.cli import completers
from holdfast.cli.options import (
    CLUSTER,
    Context,
    Failure,
    Kubeconfig,
    OwnersNamespace,
    Where,
    optional,
)

if TYPE_CHECKING:
    from holdfast.api.kinds import KindInfo
    from holdfast.cli.calendar_options import CalendarOptions
    from holdfast.cli.client import Raw, Server
    from holdfast.cli.reservation_builder import ReserveOptions, Source

_AMOUNTS = "Amounts"
_OWNERS = "Owners and lifetime"
_PLACEMENT = "Placement"
_CALENDAR = "Calendar"
_TIMEOUT = "30s"


class Policy(enum.StrEnum):
    DEFAULT = "Default"
    ALIGNED = "Aligned"
    RESTRICTED = "Restricted"


class Made(enum.StrEnum):
    NAME = "name"
    YAML = "yaml"
    JSON = "json"


class DryRunMode(enum.StrEnum):
    NONE = "none"
    CLIENT = "client"
    SERVER = "server"


def reserve(
    source: Annotated[
        str | None,
        typer.Argument(
            metavar="SOURCE",
            help="Workload to reserve for: deployment/NAME, job/NAME, statefulset/NAME or "
            "replicaset/NAME.",
            autocompletion=completers.workloads,
            show_default=False,
        ),
    ] = None,
    file: Annotated[
        str | None,
        optional(
            "-f",
            "--filename",
            metavar="FILE",
            help="File with the workload to reserve for; - is stdin.",
            complete=completers.files,
        ),
    ] = None,
    name: Annotated[
        str | None,
        optional(
            "--name",
            metavar="NAME",
            help="Name of the reservation, with -1, -2 ... appended if there are several (default: the "
            "workload's name, or the value of the first owner label).",
        ),
    ] = None,
    replicas: Annotated[
        int | None,
        optional(
            "--replicas",
            metavar="N",
            help="Number of reservations, at most 1000 (default: the workload's replicas, or 1).",
        ),
    ] = None,
    label: Annotated[
        list[str] | None,
        optional("--label", metavar="KEY=VALUE", help="Label of the reservation. May be repeated."),
    ] = None,
    dry_run: Annotated[
        DryRunMode,
        typer.Option(
            "--dry-run",
            metavar="[client|server]",
            help="Create nothing. client (the value if none is given) prints the reservations; server "
            "has them validated by the API server.",
            show_default=False,
        ),
    ] = DryRunMode.NONE,
    wait: Annotated[
        bool,
        typer.Option(
            "--wait",
            help="Wait until the reservations have a node, and print what came of them; with --start, "
            "until they are planned.",
        ),
    ] = False,
    timeout: Annotated[
        str,
        typer.Option("--timeout", metavar="DURATION", help="How long --wait waits."),
    ] = _TIMEOUT,
    output: Annotated[
        Made | None,
        typer.Option(
            "-o", "--output", help="Print the created objects in this format.", show_default=False
        ),
    ] = None,
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
    device_class: Annotated[
        str | None,
        optional(
            "--device-class",
            metavar="CLASS",
            help="Hold devices of this DeviceClass, by a ResourceClaimTemplate that is created too.",
            section=_AMOUNTS,
        ),
    ] = None,
    count: Annotated[
        int | None,
        optional(
            "--count",
            metavar="N",
            help="Devices of each reservation, with --device-class (default: 1).",
            section=_AMOUNTS,
        ),
    ] = None,
    owner: Annotated[
        list[str] | None,
        optional(
            "--owner",
            metavar="LABELS",
            help="Labels of the pods that may use the reservation, such as app=web or 'tier in (a,b)'. "
            "Repeat it for alternatives.",
            section=_OWNERS,
        ),
    ] = None,
    ttl: Annotated[
        str | None,
        typer.Option(
            "--ttl",
            metavar="DURATION",
            help="Lifetime, such as 2h; 0 never expires.",
            show_default="24h",
            rich_help_panel=_OWNERS,
        ),
    ] = None,
    expires: Annotated[
        str | None,
        optional(
            "--expires",
            metavar="TIME",
            help="Time of expiry, such as 2027-01-01T00:00:00Z.",
            section=_OWNERS,
        ),
    ] = None,
    allocate_once: Annotated[
        bool | None,
        typer.Option(
            "--allocate-once/--no-allocate-once",
            help="Whether the reservation ends with the first pod that uses it.",
            show_default="--allocate-once",
            rich_help_panel=_OWNERS,
        ),
    ] = None,
    start: Annotated[
        str | None,
        optional(
            "--start",
            metavar="TIME",
            help="Reserve from this time on, such as 2027-01-01T00:00:00Z, or +2h from now.",
            section=_CALENDAR,
        ),
    ] = None,
    duration: Annotated[
        str | None,
        optional(
            "--for",
            metavar="DURATION",
            help="How long it lasts from its start, with --start (default: 24h) or --repeat.",
            section=_CALENDAR,
        ),
    ] = None,
    repeat: Annotated[
        str | None,
        optional(
            "--repeat",
            metavar="CRON",
            help="Reserve repeatedly, such as '0 18 * * 1-5', by a ReservationSchedule for each "
            "replica.",
            section=_CALENDAR,
        ),
    ] = None,
    time_zone: Annotated[
        str | None,
        optional(
            "--time-zone",
            metavar="ZONE",
            help="Time zone of --repeat, such as Europe/Zurich (default: UTC).",
            section=_CALENDAR,
        ),
    ] = None,
    lead: Annotated[
        str | None,
        optional(
            "--lead",
            metavar="DURATION",
            help="How long before the start the planned node is drained (default: 0).",
            section=_CALENDAR,
        ),
    ] = None,
    before_start: Annotated[
        BeforeStart | None,
        typer.Option(
            "--before-start",
            help="What may start on the planned node before: Backfill: only pods that end in time; "
            "Drain: any pod until the lead; Preempt: also evicts pods of lower priority from the lead "
            "on (see --priority).",
            show_default="Backfill",
            rich_help_panel=_CALENDAR,
        ),
    ] = None,
    at_end: Annotated[
        AtEnd | None,
        typer.Option(
            "--at-end",
            help="Whether pods that use the reservation keep running when it expires; Evict implies "
            "--no-allocate-once.",
            show_default="Keep",
            rich_help_panel=_CALENDAR,
        ),
    ] = None,
    release_if_unused_after: Annotated[
        str | None,
        optional(
            "--release-if-unused-after",
            metavar="DURATION",
            help="End the reservation if no pod uses it for so long.",
            section=_CALENDAR,
        ),
    ] = None,
    policy: Annotated[
        Policy,
        typer.Option(
            "--policy",
            help="Whether owners may use more of the node than is reserved: Restricted forbids it.",
            rich_help_panel=_OWNERS,
        ),
    ] = Policy.DEFAULT,
    node: Annotated[
        str | None,
        optional(
            "--node",
            metavar="NAME",
            help="Reserve on this node.",
            section=_PLACEMENT,
            complete=completers.nodes,
        ),
    ] = None,
    node_selector: Annotated[
        list[str] | None,
        optional(
            "--node-selector",
            metavar="KEY=VALUE",
            help="Reserve on nodes with this label. May be repeated.",
            section=_PLACEMENT,
        ),
    ] = None,
    pre_allocation: Annotated[
        bool,
        typer.Option(
            "--pre-allocation",
            help="Reserve also where running pods must end first.",
            rich_help_panel=_PLACEMENT,
        ),
    ] = False,
    priority: Annotated[
        int | None,
        optional(
            "--priority",
            metavar="N",
            help="Priority among reservations, from 0 to 2147483647; reservations of higher priority "
            "may preempt this one, and --before-start Preempt evicts pods of lower priority (default: "
            "it is never preempted, and evicts all pods but those critical for the cluster).",
            section=_PLACEMENT,
        ),
    ] = None,
    can_preempt: Annotated[
        bool,
        typer.Option(
            "--can-preempt",
            help="Preempt reservations of lower priority if no node has enough capacity.",
            rich_help_panel=_PLACEMENT,
        ),
    ] = False,
    kubeconfig: Kubeconfig = None,
    context: Context = None,
    namespace: OwnersNamespace = None,
    all_namespaces: Annotated[
        bool,
        typer.Option(
            "-A",
            "--all-namespaces",
            help="With --owner: pods of any namespace may use the reservation.",
            rich_help_panel=CLUSTER,
        ),
    ] = False,
) -> None:
    """Reserve capacity for pods that do not exist yet.

    The reservations are for the pods of a workload (SOURCE or --filename), or for the pods that --owner
    selects in one namespace. Amounts come from the pod template of the workload unless they are given.
    Options take precedence over the workload.

    Examples:
      # For three more pods of a Deployment
      holdfast reserve deployment/web --replicas 3 --name more

      # By amount, for pods with the label app=web, for two hours
      holdfast reserve --cpu 4 --memory 8Gi --replicas 3 --owner app=web --ttl 2h

      # Four devices of a DeviceClass, for pods with the label app=train
      holdfast reserve --device-class gpu.example.com --count 4 --cpu 8 --owner app=train

      # From a time on; print the planned node
      holdfast reserve --cpu 8 --owner app=closing --start 2027-01-01T18:00:00Z --for 4h --wait

      # Every working day from 18:00 to 22:00
      holdfast reserve --cpu 8 --owner app=report --repeat '0 18 * * 1-5' --for 4h

      # For a workload that does not exist yet; wait until there is a node
      holdfast reserve -f web.yaml --wait

      # Print the YAML only
      holdfast reserve job/train --dry-run
    """
    from holdfast.cli.calendar_options import CalendarOptions
    from holdfast.cli.client import Server, ask
    from holdfast.cli.get import warn_of_namespace
    from holdfast.cli.reservation_builder import (
        ReserveOptions,
        check_devices,
        check_lifetime,
        check_priority,
        find_workload,
        make_claim_template,
        make_reservations,
        read_duration,
        read_owners,
        read_pairs,
        read_resources,
        source_of,
    )
    from holdfast.cli.reservation_creator import (
        create_objects,
        create_template,
        own_template,
        print_objects,
        warn_of_device_class,
        warn_of_node,
    )

    if source is not None and file is not None:
        raise Failure(1, ["--filename: cannot be given together with a SOURCE; keep one of them"])
    if wait and dry_run is not DryRunMode.NONE:
        raise Failure(1, ["--wait: cannot be given together with --dry-run"])
    if all_namespaces and namespace:
        raise Failure(1, ["--all-namespaces: cannot be given together with --namespace"])
    if all_namespaces and not owner:
        raise Failure(1, ["--all-namespaces: needs --owner, the labels of the pods"])
    now = time.time()
    check_lifetime(ttl, expires, now)
    calendar = CalendarOptions(
        start=start,
        duration=duration,
        lead=lead,
        before_start=None if before_start is None else str(before_start),
        at_end=None if at_end is None else str(at_end),
        release_after=release_if_unused_after,
        repeat=repeat,
        time_zone=time_zone,
    )
    calendar.check(ttl, expires, wait, allocate_once)
    calendar.check_due(now)
    check_priority(priority)
    check_devices(device_class, count)
    seconds = read_duration("--timeout", timeout)
    where = Where(kubeconfig, context, namespace)
    from_file = _read_file(file, namespace or _namespace_of(where)) if file is not None else None
    of_owners = "" if all_namespaces else namespace or _namespace_of(where, from_file)
    options = ReserveOptions(
        name=name or "",
        replicas=replicas,
        resources=read_resources(cpu, memory, gpu, resource or ()),
        owners=read_owners(owner or (), of_owners),
        node=node or "",
        node_selector=read_pairs("--node-selector", node_selector or ()),
        labels=_labels(read_pairs("--label", label or ()), priority, can_preempt),
        ttl=duration if start is not None and duration is not None else ttl,
        expires=expires,
        once=calendar.allocate_once(allocate_once),
        policy="" if policy is Policy.DEFAULT else str(policy),
        pre_allocation=pre_allocation,
        namespace=of_owners,
        device_class=device_class or "",
        devices=count or 1,
        annotations=calendar.annotations(now),
        recurrence=calendar.recurrence(),
    )
    workload = find_workload(source) if source is not None else None

    async def read_and_make(server: Server) -> "list[Raw]":
        origin = from_file
        if workload is not None:
            info, named = workload
            origin = source_of(await _workload(server, info, named), server.namespace)
        made = _made(options, calendar, origin)
        template = make_claim_template(options, made[0])
        if dry_run is DryRunMode.CLIENT:
            return made if template is None else [template, *made]
        is_dry = dry_run is DryRunMode.SERVER
        if node:
            await warn_of_node(server, node)
        if device_class:
            await warn_of_device_class(server, device_class)
        if namespace:
            await warn_of_namespace(server, namespace)
        if template is not None:
            is_new = await create_template(server, template, is_dry)
            if is_new and output is None and not is_dry:
                name = template["metadata"]["name"]
                typer.echo(f"resourceclaimtemplate.resource.k8s.io/{name} created", err=True)
        created = await create_objects(server, made, output, bool(options.name), is_dry)
        if template is not None and not is_dry:
            await own_template(server, template, created)
        print_objects(created, output, " created (server dry run)" if is_dry else " created")
        if owner and output is None and not is_dry:
            among = f"in namespace {of_owners}" if of_owners else "in any namespace"
            typer.echo(f"owners: pods with {' or '.join(owner)} {among}", err=True)
        if wait:
            from holdfast.cli.reservation_outcome import wait_for

            await wait_for(server, created, seconds, timeout, pre_allocation or start is not None)
        return created

    if dry_run is DryRunMode.CLIENT:
        # Nothing is asked of a server unless the source is there.
        if workload is not None:
            made = ask(where, read_and_make)
        else:
            made = _made(options, calendar, from_file)
            template = make_claim_template(options, made[0])
            made = made if template is None else [template, *made]
        print_objects(made, output or Made.YAML)
        return
    if workload is None:
        make_reservations(options, from_file)  # reports errors before anything is requested
    ask(where, read_and_make)


def _namespace_of(where: Where, source: "Source | None" = None) -> str:
    """The namespace of the workload or the context; `default` without a kubeconfig, which is reported
    when it is needed.
    """
    from holdfast.kube.errors import KubernetesError
    from holdfast.kube.kubeconfig import find_access

    if source is not None:
        return str(source.template["metadata"]["namespace"])
    try:
        return find_access(where.kubeconfig, where.context or "").namespace or "default"
    except KubernetesError:
        return "default"


def _labels(given: dict[str, str], priority: int | None, can_preempt: bool) -> dict[str, str]:
    from holdfast.api.names import CAN_PREEMPT, RESERVATION_PRIORITY

    labels = dict(given)
    if priority is not None:
        labels[RESERVATION_PRIORITY] = str(priority)
    if can_preempt:
        labels[CAN_PREEMPT] = "true"
        if RESERVATION_PRIORITY not in labels:
            typer.echo(
                "warning: --can-preempt: without --priority the reservation has the highest priority",
                err=True,
            )
    return labels


async def _workload(server: "Server", info: "KindInfo", name: str) -> "Raw":
    """Raises Failure, with the nearest name."""
    from holdfast.cli.client import refusal
    from holdfast.cli.kinds.kind import similar_name
    from holdfast.kube.errors import ApiError, KubernetesError

    try:
        return await server.get(info, name, server.namespace)
    except ApiError as error:
        if error.status != 404:
            raise
        try:
            others = await server.some(info)
        except KubernetesError:
            others = []
        hint = similar_name(others, name, server.namespace)
        raise Failure(1, [f"{refusal(error)}{hint}"], as_it_is=True) from None


def _made(
    options: "ReserveOptions", calendar: "CalendarOptions", source: "Source | None"
) -> "list[Raw]":
    from holdfast.cli.reservation_builder import has_priority, holds_nothing, make_reservations

    made = make_reservations(options, source)
    for warning in calendar.warnings(has_priority(options, made[0])):
        typer.echo(f"warning: {warning}", err=True)
    for owner in options.owners:
        for label, value in owner["labelSelector"].get("matchLabels", {}).items():
            if not value:
                typer.echo(
                    f"warning: --owner: {label}= selects pods whose label {label} is empty", err=True
                )
    if holds_nothing(made[0]):
        typer.echo(
            "warning: its pods request no resources; each reservation reserves one pod slot only",
            err=True,
        )
    return made


def _read_file(file: str, namespace: str) -> "Source":
    from holdfast.cli.reservation_builder import misspelt_fields, source_of
    from holdfast.snapshot.manifests import InvalidInput, load_one

    try:
        raw = load_one(file)
    except InvalidInput as error:
        raise Failure(1, error.problems) from None
    if not isinstance(raw, dict):
        raise Failure(1, [f"--filename: {file}: expected an object"])
    if problems := misspelt_fields(raw):
        raise Failure(1, [f"--filename: {file}: {problem}" for problem in problems])
    return source_of(raw, namespace)
