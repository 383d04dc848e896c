"""NUMA nodes and exclusive CPUs of a node, for one pod: its policies, what is free, and which requests
and policies would fit. What the pod's own reservations keep there counts as free.
"""

from collections.abc import Iterator

from holdfast.api import names
from holdfast.api.plurals import number_of
from holdfast.explanation.facts.capacity import amplified_on, missing_on, row_of
from holdfast.explanation.facts.hardware import Lowered
from holdfast.explanation.facts.ignored_annotations import NUMA_POLICIES, known_values
from holdfast.explanation.facts.own_reservations import own_entries
from holdfast.explanation.report import few
from holdfast.scheduler.cluster.records import PodRecord
from holdfast.scheduler.cluster.slots import CPU
from holdfast.scheduler.managers.numa.allocation import NumaCapacity
from holdfast.scheduler.managers.numa.node_topology import FULL_CORES, POLICIES, SINGLE
from holdfast.snapshot.cluster_snapshot import ClusterSnapshot, shown

_NODES = 2
_ZONES = 8


# Policies


def node_policy(snapshot: ClusterSnapshot, row: int) -> str:
    """The NUMA policy of a node: that of its label, else its kubelet's."""
    cluster = snapshot.cluster
    label = cluster.nodes.info[row].labels.get(names.NODE_NUMA_TOPOLOGY_POLICY, "")
    return (
        label
        if label in POLICIES and label
        else POLICIES[int(cluster.managers.cpus.kubelet_policy[row])]
    )


def own_policy(snapshot: ClusterSnapshot, pod: PodRecord) -> str:
    """The NUMA policy of the pod's annotation."""
    want = snapshot.cluster.managers.cpus.valid_want(pod.cls)
    return want.numa if want is not None else ""


def wider_policies(snapshot: ClusterSnapshot, pod: PodRecord, row: int) -> tuple[str, ...]:
    """Policies that the pod could have on the node and that demand less than its own."""
    own, given = own_policy(snapshot, pod), node_policy(snapshot, row)
    if given and own and given != own:
        return (given,)
    if not own or given:
        return ()
    return tuple(reversed(NUMA_POLICIES[: NUMA_POLICIES.index(own)]))


# Details


def has_no_numa_nodes(snapshot: ClusterSnapshot, pod: PodRecord, row: int) -> bool:
    """Whether the pod has a NUMA policy and nothing tells the NUMA nodes of the row."""
    return bool(own_policy(snapshot, pod)) and row not in snapshot.cluster.managers.cpus.topologies


def numa_details(snapshot: ClusterSnapshot, pod: PodRecord, nodes: list[str]) -> Iterator[str]:
    cpus = snapshot.cluster.managers.cpus
    for name in nodes[:_NODES]:
        row = row_of(snapshot, name)
        if more := amplified_on(snapshot, row):
            short = missing_on(snapshot, pod, row).get(CPU, 0)
            lacks = f"; it is short of {shown(names.CPU, short)} cpu" if short else ""
            ratio = f"{float(cpus.ratio[row]):g}"
            yield (
                f"{name}: cpu is amplified by {ratio}, and exclusive CPUs there count {ratio} times, "
                f"{shown(names.CPU, more)} cpu more than they are{lacks}"
            )
    want = cpus.valid_want(pod.cls)
    if want is None:
        return
    unknown = [name for name in nodes if row_of(snapshot, name) not in cpus.topologies]
    if unknown and (want.numa or want.bound):
        asked = f"its NUMA policy {want.numa}" if want.numa else "its request for exclusive CPUs"
        yield (
            f"{asked} needs to know the NUMA nodes: no NodeResourceTopology describes those of "
            f"{few(unknown, _ZONES)}"
        )
        nodes = [name for name in nodes if name not in unknown]
    yield from _too_large(snapshot, pod, nodes)
    for name in nodes[:_NODES]:
        row = row_of(snapshot, name)
        free = _free(snapshot, pod, row)
        each = int(cpus.per_core[row])
        if want.bound and want.cpus % each and FULL_CORES in (want.required, want.policy):
            asked = number_of(want.cpus, "exclusive CPU")
            yield f"{name}: it requests {asked}, and cores there have {each} CPUs"
        elif want.bound:
            are_free = number_of(len(free.cpus), "CPU is", "CPUs are")
            yield f"{name}: {are_free} free for exclusive use, it requests {want.cpus}"
            whole = _free_cores(snapshot, row, free) * each
            if FULL_CORES in (want.required, want.policy) and whole < want.cpus <= len(free.cpus):
                yield (
                    f"{name}: its CPU bind policy is {FULL_CORES}, and {whole or 'none'} of these CPUs "
                    "are on cores that are free as a whole"
                )
        label = snapshot.cluster.nodes.info[row].labels.get(names.NODE_NUMA_TOPOLOGY_POLICY, "")
        if label and label not in POLICIES:
            near = known_values(label, NUMA_POLICIES)
            yield f"{name}: its label {names.NODE_NUMA_TOPOLOGY_POLICY}={label} is ignored{near}"
        given = node_policy(snapshot, row)
        policy = want.numa or given
        if given and want.numa and given != want.numa:
            yield f"{name} has the NUMA policy {given}, and the pod {want.numa}; they must be equal"
        elif policy and free.zones:
            yield f"{name}: NUMA policy {policy}; free by NUMA node: {_zones_text(free)}"
            if want.exclusive and policy == SINGLE and _fits_a_zone(snapshot, pod, free):
                yield (
                    "by its singleNUMANodeExclusive, Required unless it is given, it shares no NUMA "
                    "node with pods that use several"
                )


def _free_cores(snapshot: ClusterSnapshot, row: int, free: NumaCapacity) -> int:
    """How many cores of the row have all their CPUs free."""
    topology = snapshot.cluster.managers.cpus.topologies.get(row)
    cores = topology.cores.values() if topology is not None else ()
    return sum(free.cpus.issuperset(each) for each in cores)


def _too_large(snapshot: ClusterSnapshot, pod: PodRecord, nodes: list[str]) -> Iterator[str]:
    """Requests that no NUMA node can serve even when it is empty, where all must come from one."""
    cpus, slots = snapshot.cluster.managers.cpus, snapshot.cluster.nodes.slots
    most: dict[str, int] = {}
    for name in nodes:
        row = row_of(snapshot, name)
        topology = cpus.topologies.get(row)
        if topology is None or (own_policy(snapshot, pod) or node_policy(snapshot, row)) != SINGLE:
            return
        for offered in topology.amplified.values():
            for resource, value in offered.items():
                most[resource] = max(most.get(resource, 0), value)
    for slot, asked in pod.cls.requests:
        resource = slots.name(slot)
        if resource in most and most[resource] < asked:
            yield (
                f"no NUMA node is large enough: it requests {shown(resource, asked)} {resource} of one "
                f"NUMA node ({SINGLE}), the most one has is {shown(resource, most[resource])}"
            )


def _fits_a_zone(snapshot: ClusterSnapshot, pod: PodRecord, free: NumaCapacity) -> bool:
    name = snapshot.cluster.nodes.slots.name
    return any(
        all(amounts.get(name(slot), asked) >= asked for slot, asked in pod.cls.requests)
        for amounts in free.zones.values()
    )


def _zones_text(free: NumaCapacity) -> str:
    texts = []
    for zone, amounts in sorted(free.zones.items()):
        parts = [f"{shown(name, max(0, amount))} {name}" for name, amount in sorted(amounts.items())]
        texts.append(f"{zone}: {', '.join(parts)}")
    return few([f"({each})" for each in texts], _ZONES)


def _free(snapshot: ClusterSnapshot, pod: PodRecord, row: int) -> NumaCapacity:
    cpus = snapshot.cluster.managers.cpus
    for entry in own_entries(snapshot, pod, row):
        return cpus.free_for_owners(entry.index, row)
    return cpus.free(row)


# Requests


def whole_cores(snapshot: ClusterSnapshot, pod: PodRecord, row: int) -> Lowered:
    """The next larger request for exclusive CPUs that is for whole cores, where these are demanded."""
    cpus = snapshot.cluster.managers.cpus
    want, each = cpus.valid_want(pod.cls), int(cpus.per_core[row])
    if want is None or not want.bound or not want.cpus % each:
        return {}
    if FULL_CORES not in (want.required, want.policy):
        return {}
    return {names.CPU: (want.milli, -(-want.cpus // each) * each * 1000)}


def numa_requests(snapshot: ClusterSnapshot, pod: PodRecord, row: int) -> Lowered:
    """Smaller requests that fit one NUMA node of the row, and its free exclusive CPUs."""
    cpus, slots = snapshot.cluster.managers.cpus, snapshot.cluster.nodes.slots
    want = cpus.valid_want(pod.cls)
    if want is None:
        return {}
    free = _free(snapshot, pod, row)
    asked = {slots.name(slot): amount for slot, amount in pod.cls.requests}
    then = dict(asked)
    if (want.numa or node_policy(snapshot, row)) and free.zones:

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
