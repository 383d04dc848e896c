"""Output of nodes as the scheduler counts them: requested by pods, held by reservations, free."""

from holdfast.cli.client import NODE, ObjectLister, Raw
from holdfast.cli.kinds.kind import Found, OutputColumn, OutputRow, Query
from holdfast.cli.kinds.snapshot_kind import SnapshotKind, matching, not_found
from holdfast.cli.printing import Description, age, events, taint_text
from holdfast.cli.snapshot import warned_snapshot
from holdfast.scheduler.cluster.records import ReservationEntry
from holdfast.scheduler.state.cluster import Cluster
from holdfast.snapshot.cluster_snapshot import (
    CAPACITY,
    ClusterSnapshot,
    NodeAmounts,
    allowed_limit,
    claimed_devices,
    limited_resources,
    node_amounts,
    reserved_by_name,
    shown,
    unknown_bounds,
    used_reservation,
)

_ALWAYS = ("cpu", "memory")
_PODS = "pods"
_SELDOM = (_PODS, "ephemeral-storage")
"""Shown only where they are requested; pods have a column of their own."""


class NodeKind(SnapshotKind):
    infos = (NODE,)
    reads = CAPACITY
    status = "STATUS"

    def rows(self, snapshot: ClusterSnapshot, query: Query) -> Found:
        objects, missing = _queried(snapshot, query)
        devices = claimed_devices(snapshot.cluster)
        amounts = {
            name: node_amounts(snapshot.cluster, name) | devices.get(name, {})
            for name in map(_name, objects)
        }
        resources = _resources(list(amounts.values()))
        limits = snapshot.cluster.limits.ratios(resources)
        columns = [OutputColumn("NAME"), OutputColumn("STATUS"), OutputColumn("PODS")]
        others = _extended(resources)
        # The same for every node
        limited = limited_resources(snapshot.cluster, next(iter(amounts), "")) & set(resources)
        for resource in resources:
            columns += _columns(resource, limited)
        if others:
            title = _short_title(others)
            columns += [OutputColumn(f"{title}-{each}", narrow=True) for each in ("HELD", "FREE")]
        columns += [OutputColumn("RESERVATIONS"), OutputColumn("AGE")]
        rows = []
        for raw in objects:
            name = _name(raw)
            ratios = limits.get(name, {})
            cells = _cells(snapshot, raw, amounts[name], ratios, resources, limited)
            rows.append(OutputRow(raw, cells))
        note = unknown_bounds(snapshot) if limited else ""
        return Found(rows, columns, missing, wide_notes=(note,) if note else ())

    async def describe(self, server: ObjectLister, raw: Raw) -> str:
        snapshot = await warned_snapshot(server, only=CAPACITY)
        cluster, name, now = snapshot.cluster, _name(raw), server.now()
        amounts = node_amounts(cluster, name) | claimed_devices(cluster).get(name, {})
        text = Description()
        text.field("Name", name)
        text.field("Status", status(raw))
        labels = raw["metadata"].get("labels") or {}
        text.listed("Labels", [f"{key}={value}" for key, value in sorted(labels.items())])
        taints = (raw.get("spec") or {}).get("taints") or ()
        text.listed("Taints", [taint_text(taint) for taint in taints])
        headers = ("Resource", "Allocatable", "Requested", "Held", "Free", "Limits")
        ratios = cluster.limits.ratios(amounts).get(name, {})
        limited = limited_resources(cluster, name)
        limits = {
            each: _limit_text(ratio, allowed_limit(cluster, name, each))
            for each, ratio in ratios.items()
            if each in limited
        }
        lines = [[*_line(each, of), limits.get(each, "")] for each, of in sorted(amounts.items())]
        text.table("Capacity", headers, lines)
        if limits and (note := unknown_bounds(snapshot)):
            text.field("Note", note)
        holds = [
            [
                entry.pod.name,
                _amounts(cluster, entry, entry.amounts),
                _amounts(cluster, entry, entry.remaining),
            ]
            for entry in _holds(cluster, name)
        ]
        text.table("Reservations", ("Name", "Reserved", "Left"), holds)
        row = cluster.nodes.row(name)
        pods = cluster.ledger.pods.get(row, {}).values() if row is not None else ()
        lines = []
        for pod in sorted(pods, key=lambda each: (each.namespace, each.name)):
            asked = cluster.reservations.by_name(pod.cls.requests)
            reservation = used_reservation(cluster, pod)
            lines.append(
                [
                    pod.namespace,
                    pod.name,
                    *(shown(each, asked.get(each, 0)) for each in _ALWAYS),
                    reservation.name if reservation is not None else "",
                ]
            )
        text.table("Pods", ("Namespace", "Name", "CPU", "Memory", "Reservation"), lines)
        events(text, await server.events(raw), now)
        return text.text()


def _queried(snapshot: ClusterSnapshot, query: Query) -> tuple[list[Raw], tuple[str, ...]]:
    """The nodes, by name or as they were named, and messages for those that are not there."""
    nodes = {_name(raw): raw for raw in snapshot.all(NODE)}
    matches = matching(query)
    missing = tuple(not_found(NODE, n, nodes.values()) for n in query.names if n not in nodes)
    wanted = [n for n in query.names if n in nodes] if query.names else sorted(nodes)
    return [nodes[name] for name in wanted if matches(nodes[name])], missing


def status(raw: Raw) -> str:
    conditions = (raw.get("status") or {}).get("conditions") or ()
    ready = [each for each in conditions if each.get("type") == "Ready"]
    text = "Ready" if ready and ready[0].get("status") == "True" else "NotReady"
    text = text if ready else "Unknown"
    return f"{text},SchedulingDisabled" if (raw.get("spec") or {}).get("unschedulable") else text


def _cells(
    snapshot: ClusterSnapshot,
    raw: Raw,
    amounts: dict[str, NodeAmounts],
    limits: dict[str, float],
    resources: list[str],
    limited: set[str],
) -> list[str]:
    none = NodeAmounts(0, 0, 0)
    pods = amounts.get("pods", none)
    cells = [_name(raw), status(raw), f"{pods.requested}/{pods.allocatable}"]
    for resource in resources:
        amount = amounts.get(resource, none)
        figures = [amount.allocatable, amount.requested, amount.held, amount.free]
        cells += [shown(resource, each) for each in (figures[2:] if resource == _PODS else figures)]
        if resource in limited - {_PODS}:
            allowed = allowed_limit(snapshot.cluster, _name(raw), resource)
            cells.append(_limit_text(limits.get(resource), allowed))
    extended = _extended(resources)
    others = {name: amounts[name] for name in extended if name in amounts}
    if len(extended) == 1:
        of = amounts.get(extended[0], none)
        cells += [shown(extended[0], of.held), shown(extended[0], of.free)]
    elif extended:
        cells.append(_joined({name: of.held for name, of in others.items() if of.held}))
        cells.append(_joined({name: of.free for name, of in others.items() if of.allocatable}))
    return [*cells, str(len(_holds(snapshot.cluster, _name(raw)))), age(raw, snapshot.now)]


def _columns(resource: str, limited: set[str]) -> list[OutputColumn]:
    """The columns of a resource; that of limits only if there are any."""
    title, is_wide = resource.upper(), resource not in _ALWAYS
    held, free = (OutputColumn(f"{title}-{each}", wide=is_wide) for each in ("HELD", "FREE"))
    if resource == _PODS:
        return [held, free]  # how many there are, and may be, is in the column PODS
    found = [
        OutputColumn(title, wide=True),
        OutputColumn(f"{title}-REQUESTED", wide=True),
        held,
        free,
    ]
    return [*found, OutputColumn(f"{title}-LIMITS", wide=True)] if resource in limited else found


def _extended(resources: list[str]) -> list[str]:
    """Extended resources, such as `nvidia.com/gpu`."""
    return [each for each in resources if "/" in each]


def _short_title(extended: list[str]) -> str:
    """`GPU` if `nvidia.com/gpu` is the only one. The full names are in the wide table."""
    return extended[0].rpartition("/")[2].upper() if len(extended) == 1 else "OTHER"


def _joined(amounts: dict[str, int]) -> str:
    """`nvidia.com/gpu=8`: of several kinds of GPUs a node seldom has more than one, so they share
    columns unless the table is to be wide."""
    return ",".join(f"{name}={shown(name, amount)}" for name, amount in sorted(amounts.items()))


def _resources(amounts: list[dict[str, NodeAmounts]]) -> list[str]:
    """The resources that get a column."""
    found = {name for each in amounts for name, of in each.items() if _is_of_interest(name, of)}
    return [*_ALWAYS, *sorted(found - set(_ALWAYS))]


def _is_of_interest(name: str, amount: NodeAmounts) -> bool:
    if name == _PODS:
        return amount.held > 1
    asked = bool(amount.requested or amount.held)
    return asked or not (name in _SELDOM or name.startswith("hugepages-"))


def _holds(cluster: Cluster, node: str) -> list[ReservationEntry]:
    row = cluster.nodes.row(node)
    entries = cluster.ledger.reservations.on(row) if row is not None else []
    return sorted(entries, key=lambda entry: entry.pod.name)


def _amounts(cluster: Cluster, entry: ReservationEntry, amounts: dict[int, int]) -> str:
    named = reserved_by_name(cluster, entry.amounts, amounts)
    return ",".join(f"{name}={shown(name, value)}" for name, value in sorted(named.items()))


def _line(resource: str, of: NodeAmounts) -> list[str]:
    amounts = (of.allocatable, of.requested, of.held, of.free)
    return [resource, *(shown(resource, amount) for amount in amounts)]


def _limit_text(ratio: float | None, allowed: float | None) -> str:
    """The sum of limits as a percentage of allocatable, and the percentage that is allowed, if there
    is a bound: `50%`, `50%/125%`."""
    if ratio is None:
        return ""
    return f"{100 * ratio:.0f}%" + (f"/{100 * allowed:.0f}%" if allowed is not None else "")


def _name(raw: Raw) -> str:
    return str(raw["metadata"]["name"])
