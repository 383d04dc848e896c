"""Devices, NUMA nodes, exclusive CPUs and volume attachments of a node, for one pod: what is free, and
which requests would fit. What the pod's own reservations keep there counts as free.
"""

from collections.abc import Iterator

from holdfast.api import names
from holdfast.api.kinds import KINDS
from holdfast.explanation.capacity import own_entries, row_of
from holdfast.explanation.report import few
from holdfast.scheduler.cluster.records import PodRecord
from holdfast.scheduler.managers.devices.device_table import TypeTable
from holdfast.scheduler.managers.devices.requests import DEVICE_RESOURCES, WHOLE, Share
from holdfast.scheduler.managers.numa.allocation import NumaCapacity
from holdfast.scheduler.managers.numa.node_topology import FULL_CORES, POLICIES
from holdfast.snapshot.cluster_snapshot import ClusterSnapshot, shown

_NODES = 3
_DEVICES = 8
_CSI_NODE = KINDS["storage.k8s.io/v1", "CSINode"]

Lowered = dict[str, tuple[int, int]]
"""By resource, the amount requested and the amount that would fit."""


# Devices


def device_details(
    snapshot: ClusterSnapshot, pod: PodRecord, nodes: list[str], only_health: bool = False
) -> Iterator[str]:
    """What is free on each device, devices that are not healthy, and whether some are excluded. What is
    free says nothing where no node has the resource: `only_health`."""
    devices = snapshot.cluster.managers.devices
    search = devices.valid_search(pod.cls)
    if search is None:
        return
    for share in search.shares:
        table = devices.tables.get(share.type)
        for name in nodes[:_NODES] if table is not None else ():
            assert table is not None
            row = row_of(snapshot, name)
            infos = table.infos.get(row) or {}
            sick = sum(not info.health for info in infos.values())
            if sick:
                yield f"{name}: {sick} of {len(infos)} {share.type} devices are not healthy"
            if len(infos) > sick and not only_health:
                yield _free_text(snapshot, pod, name, table, share)
    if names.DEVICE_ALLOCATE_HINT in pod.cls.annotations:
        yield f"its annotation {names.DEVICE_ALLOCATE_HINT} restricts which devices it may use"


def _free_text(
    snapshot: ClusterSnapshot, pod: PodRecord, node: str, table: TypeTable, share: Share
) -> str:
    line = next((i for i, amount in enumerate(share.each) if amount), 0)
    resource = DEVICE_RESOURCES[share.type][line]
    free = sorted(each[line] for each in _free(snapshot, pod, table, row_of(snapshot, node)))
    amounts = few([shown(resource, max(0, each)) for each in reversed(free)], _DEVICES)
    number = "one" if share.number == 1 else f"each of {share.number}"
    return (
        f"{node}: {resource} free on its {share.type} devices: {amounts}; it requests "
        f"{shown(resource, share.each[line])} on {number}"
    )


def _free(
    snapshot: ClusterSnapshot, pod: PodRecord, table: TypeTable, row: int
) -> list[tuple[int, ...]]:
    """What is free on each device of a row, by resource."""
    entries = [entry.index for entry in own_entries(snapshot, pod, row)]
    places = range(len(table.minors.get(row) or ()))
    lines = range(len(DEVICE_RESOURCES[table.kind]))

    def left(line: int, place: int) -> int:
        known = [each for each in entries if each < table.left.shape[1]]
        return max((int(table.left[line, each, place]) for each in known), default=0)

    return [
        tuple(int(table.free[line, row, place]) + left(line, place) for line in lines)
        for place in places
    ]


def device_requests(snapshot: ClusterSnapshot, pod: PodRecord, row: int) -> Lowered:
    """Smaller requests for devices that fit what is free on the row; empty if there are none."""
    devices = snapshot.cluster.managers.devices
    search = devices.valid_search(pod.cls)
    slots = snapshot.cluster.nodes.slots
    found: Lowered = {}
    for share in search.shares if search is not None else ():
        table = devices.tables.get(share.type)
        free = _free(snapshot, pod, table, row) if table is not None else []
        asked = {slots.name(slot): amount for slot, amount in pod.cls.requests}
        wanted = [i for i, amount in enumerate(share.each) if amount]
        if not free or not wanted:
            continue
        best = max(free, key=lambda each: min(each[i] / share.each[i] for i in wanted))
        unused = sum(all(each[i] >= share.each[i] for i in wanted) for each in free)
        resources = DEVICE_RESOURCES[share.type]
        for name, amount in asked.items():
            if name in WHOLE:
                then = unused
            elif name in resources and share.number == 1:
                then = best[resources.index(name)]
            elif name == names.GPU_PERCENT and share.number == 1:
                then = min(best[i] for i in wanted)
            else:
                continue
            if 0 <= then < amount:
                found[name] = (amount, then)
    return found


# NUMA nodes and exclusive CPUs


def numa_details(snapshot: ClusterSnapshot, pod: PodRecord, nodes: list[str]) -> Iterator[str]:
    cpus = snapshot.cluster.managers.cpus
    want = cpus.valid_want(pod.cls)
    if want is None:
        return
    for name in nodes[:_NODES]:
        row = row_of(snapshot, name)
        free = _numa_free(snapshot, pod, row)
        each = int(cpus.per_core[row])
        if want.bound and want.cpus % each and FULL_CORES in (want.required, want.policy):
            yield f"{name}: it requests {want.cpus} exclusive CPUs, and cores there have {each} CPUs"
        elif want.bound:
            yield (f"{name}: {len(free.cpus)} CPUs are free for exclusive use, it requests {want.cpus}")
        policy = want.numa or _node_policy(snapshot, row)
        if policy and free.zones:
            yield f"{name}: NUMA policy {policy}; free by NUMA node: {_zones_text(free)}"


def _node_policy(snapshot: ClusterSnapshot, row: int) -> str:
    cluster = snapshot.cluster
    label = cluster.nodes.info[row].labels.get(names.NODE_NUMA_TOPOLOGY_POLICY, "")
    return label or POLICIES[int(cluster.managers.cpus.kubelet_policy[row])]


def _zones_text(free: NumaCapacity) -> str:
    texts = []
    for zone, amounts in sorted(free.zones.items()):
        parts = [f"{shown(name, max(0, amount))} {name}" for name, amount in sorted(amounts.items())]
        texts.append(f"{zone}: {', '.join(parts)}")
    return few([f"({each})" for each in texts], _DEVICES)


def _numa_free(snapshot: ClusterSnapshot, pod: PodRecord, row: int) -> NumaCapacity:
    cpus = snapshot.cluster.managers.cpus
    for entry in own_entries(snapshot, pod, row):
        return cpus.free_for_owners(entry.index, row)
    return cpus.free(row)


def numa_requests(snapshot: ClusterSnapshot, pod: PodRecord, row: int) -> Lowered:
    """Smaller requests that fit one NUMA node of the row, and its free exclusive CPUs."""
    cpus, slots = snapshot.cluster.managers.cpus, snapshot.cluster.nodes.slots
    want = cpus.valid_want(pod.cls)
    if want is None:
        return {}
    free = _numa_free(snapshot, pod, row)
    asked = {slots.name(slot): amount for slot, amount in pod.cls.requests}
    then = dict(asked)
    if (want.numa or _node_policy(snapshot, row)) and free.zones:

        def fits(zone: int) -> float:
            amounts = free.zones[zone]
            return min((amounts[each] / asked[each] for each in asked if each in amounts), default=0)

        best = free.zones[max(sorted(free.zones), key=fits)]
        then = {name: min(amount, best.get(name, amount)) for name, amount in asked.items()}
    if want.bound:
        each = int(cpus.per_core[row])
        whole = min(then[names.CPU] // 1000, len(free.cpus)) // each * each
        then[names.CPU] = whole * 1000
    return {name: (amount, then[name]) for name, amount in asked.items() if then[name] < amount}


# Volumes


def attach_details(snapshot: ClusterSnapshot, pod: PodRecord, nodes: list[str]) -> Iterator[str]:
    """The limits of CSI drivers that the pod's volumes use."""
    volumes = snapshot.cluster.volumes
    uses = [volumes.identity(claim.key) for claim in volumes.wanted(pod.cls).claims]
    wanted = {use.driver for use in uses if use is not None}
    for name in nodes[:_NODES]:
        spec = (snapshot.find(_CSI_NODE, name) or {}).get("spec") or {}
        for driver in spec.get("drivers") or ():
            limit = (driver.get("allocatable") or {}).get("count")
            if driver.get("name") in wanted and limit is not None:
                most = "1 volume" if limit == 1 else f"{limit} volumes"
                yield f"{name} can attach {most} of CSI driver {driver['name']}, and all are in use"
