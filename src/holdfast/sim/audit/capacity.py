"""The capacity rules: how far each is violated on a node.

A rule has a key for each thing it covers (a resource, a port, a CPU), so that two states of a node can
be compared: a write that makes things worse has a higher amount under some key.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from itertools import combinations
from typing import Any, NamedTuple

from holdfast.sim.audit.cluster import ClusterState, NodeState, expression, owns
from holdfast.sim.audit.facts import (
    CORE_GROUPS,
    Amounts,
    PodFacts,
    Port,
    Raw,
    ReservationFacts,
    Usage,
    add,
    amounts,
    core_gang,
    cpu_text,
    gang_of,
    is_device_resource,
)

REQUESTED = "pod requests exceed allocatable"
CLAIMED = "pods and reservations exceed allocatable"
CLAIMED_BUT_HOLDS = "pods and reservations other than starvation holds exceed allocatable"
OVER_WAITING = "a pod takes capacity owed to a Waiting reservation"
OVER_WAITING_BUT_HOLDS = (
    "a pod takes capacity owed to a Waiting reservation other than a starvation hold"
)
SLOTS = "more pods than the node allows"
SLOTS_BUT_HOLDS = "more pods than the node allows without starvation holds"
PORTS = "a host port is in use twice"
RESERVED_PORTS = "a reserved host port is not its owner's"
DEVICES = "a device is allocated beyond its capacity"
RESERVED_DEVICES = "a reserved device is not its owner's"
FUNCTIONS = "a virtual function is allocated twice"
CPUS = "an exclusive CPU is allocated twice"
RESERVED_CPUS = "a reserved CPU is not its owner's"
UNKNOWN_CPUS = "a CPU that the node does not have is allocated"
NUMA = "a NUMA node is allocated beyond its capacity"
LIMITS = "limits exceed the node's ratio"
VOLUMES = "more volumes than the node's driver allows"
RESERVED_VOLUMES = "volumes of pods and reservations exceed what the node's driver allows"
RESTRICTED = "owners of a Restricted reservation exceed it"

PLUGIN_OF = {
    REQUESTED: "NodeResourcesFit",
    CLAIMED: "NodeResourcesFit",
    CLAIMED_BUT_HOLDS: "NodeResourcesFit",
    OVER_WAITING: "NodeResourcesFit",
    OVER_WAITING_BUT_HOLDS: "NodeResourcesFit",
    SLOTS: "NodeResourcesFit",
    SLOTS_BUT_HOLDS: "NodeResourcesFit",
    PORTS: "NodePorts",
    RESERVED_PORTS: "NodePorts",
    DEVICES: "DeviceShare",
    RESERVED_DEVICES: "DeviceShare",
    FUNCTIONS: "DeviceShare",
    CPUS: "NodeNUMAResource",
    RESERVED_CPUS: "NodeNUMAResource",
    UNKNOWN_CPUS: "NodeNUMAResource",
    NUMA: "NodeNUMAResource",
    LIMITS: "LimitAware",
    VOLUMES: "NodeVolumeLimits",
    RESERVED_VOLUMES: "NodeVolumeLimits",
    RESTRICTED: "Reservation",
}
"""A rule binds only pods and reservations whose profile has its plugin."""


class Excess(NamedTuple):
    amount: int
    """The amount by which the limit is exceeded."""
    figures: str


Key = tuple[str, str]
"""The rule, and what of the node it is about."""


def excesses(cluster: ClusterState, node: NodeState) -> dict[Key, Excess]:
    """All violations on the node; none if the node does not exist."""
    found: dict[Key, Excess] = {}
    if node.raw is None:
        return found
    _resources(cluster, node, found)
    _limits(cluster, node, found)
    reservations = [each for each in node.reservations.values() if each.phase == "Available"]
    if node.special or any(each.usage.is_special for each in reservations):
        _ports(cluster, node, reservations, found)
        _devices(cluster, node, reservations, found)
        _cpus(cluster, node, reservations, found)
        _numa(cluster, node, reservations, found)
        if node.volume_limits:
            _volumes(cluster, node, reservations, found)
    return found


def remaining(
    cluster: ClusterState,
    reservation: ReservationFacts,
    of: Callable[[Usage], Amounts],
    is_gone: Callable[[PodFacts], bool] = lambda pod: False,
) -> Amounts:
    """What a reservation holds beyond its owners' use, by resource; never negative."""
    left = dict(of(reservation.usage))
    for pod in cluster.owners_of(reservation):
        for name, amount in of(pod.usage).items():
            if name in left and not is_gone(pod):
                left[name] -= amount
    return {name: max(0, amount) for name, amount in left.items() if name != "pods"}


def _requests(usage: Usage) -> Amounts:
    return usage.requests


def _resources(cluster: ClusterState, node: NodeState, found: dict[Key, Excess]) -> None:
    available: Amounts = {}
    waiting: Amounts = {}
    held: Amounts = {}
    """The part of `available` in starvation holds."""
    held_waiting: Amounts = {}
    slots, held_slots = len(node.pods), 0
    for each in node.reservations.values():
        left = remaining(cluster, each, _requests)
        if each.phase == "Available":
            add(available, left)
            unused = max(0, each.slots - len(cluster.owners_of(each)))
            slots += unused
            held_slots += unused if each.is_starvation_hold else 0
            if each.policy == "Restricted":
                _restricted(cluster, each, found)
        else:
            add(waiting, left)
        if each.is_starvation_hold:
            add(held if each.phase == "Available" else held_waiting, left)
    for name in sorted({*node.used, *available, *waiting}):
        if name == "pods" or (name not in node.allocatable and _by_device(node, name)):
            continue
        has, used = node.allocatable.get(name, 0), node.used.get(name, 0)
        kept, owed = available.get(name, 0), waiting.get(name, 0)
        holds = held.get(name, 0)
        figures = f"{name}: pods {used}, reservations {kept}, waiting ones {owed}, allocatable {has}"
        _note(found, REQUESTED, name, used - has, figures)
        claimed = used + kept - has
        _note(found, CLAIMED, name, claimed, figures)
        _note(found, CLAIMED_BUT_HOLDS, name, claimed - holds, figures)
        _note(found, OVER_WAITING, name, claimed + owed, figures)
        holds += held_waiting.get(name, 0)
        _note(found, OVER_WAITING_BUT_HOLDS, name, claimed + owed - holds, figures)
    if "pods" in node.allocatable:
        has = node.allocatable["pods"]
        figures = f"pods: {slots}, allocatable {has}"
        _note(found, SLOTS, "pods", slots - has, figures)
        _note(found, SLOTS_BUT_HOLDS, "pods", slots - held_slots - has, figures)


def _restricted(cluster: ClusterState, reservation: ReservationFacts, found: dict[Key, Excess]) -> None:
    if "scheduling.koordinator.sh/reservation-restricted-options" in reservation.annotations:
        return
    taken: Amounts = {}
    for pod in cluster.owners_of(reservation):
        add(taken, pod.usage.requests)
    for name, amount in reservation.usage.requests.items():
        if name != "pods" and not is_device_resource(name):
            used = taken.get(name, 0)
            figures = f"{reservation}: {name}: owners {used}, reserved {amount}"
            _note(found, RESTRICTED, f"{reservation.name} {name}", used - amount, figures)


def _by_device(node: NodeState, name: str) -> bool:
    return node.devices is not None and is_device_resource(name)


def _limits(cluster: ClusterState, node: NodeState, found: dict[Key, Excess]) -> None:
    if not node.limits:
        return
    total = dict(node.used_limits)
    for each in node.reservations.values():
        if each.phase == "Available":
            add(total, remaining(cluster, each, lambda usage: usage.limits))
    for name, most in node.limits.items():
        amount = total.get(name, 0)
        _note(found, LIMITS, name, amount - most, f"{name}: limits {amount}, at most {most}")


def _ports(
    cluster: ClusterState,
    node: NodeState,
    reservations: list[ReservationFacts],
    found: dict[Key, Excess],
) -> None:
    used = [(port, pod) for pod in node.special.values() for port in pod.usage.ports]
    for (port, pod), (other, another) in combinations(used, 2):
        if pod is not another and port.conflicts(other):
            _count(found, PORTS, _port_key(port, other), f"{pod} and {another}: {port}")
    for reservation in reservations:
        for reserved in reservation.usage.ports:
            for port, pod in used:
                if reserved.conflicts(port) and not owns(cluster, pod, reservation):
                    figures = f"{pod}: {port} is reserved by {reservation}"
                    _count(found, RESERVED_PORTS, f"{reservation.name} {port}", figures)


def _port_key(*ports: Port) -> str:
    return " ".join(sorted(map(str, ports)))


def _devices(
    cluster: ClusterState,
    node: NodeState,
    reservations: list[ReservationFacts],
    found: dict[Key, Excess],
) -> None:
    """Shares by device, and what reservations still hold of it."""
    used: dict[tuple[str, int], Amounts] = {}
    functions: Counter[tuple[str, int, str]] = Counter()
    for pod in node.special.values():
        for share in pod.usage.devices:
            add(used.setdefault((share.type, share.minor), {}), share.resources)
            functions.update((share.type, *each) for each in share.functions)
    for function, times in functions.items():
        if times > 1:
            key = " ".join(map(str, function))
            _note(found, FUNCTIONS, key, times - 1, f"{key}: {times} times")
    kept = _kept_devices(cluster, reservations)
    for device in sorted({*used, *kept}):
        totals = node.devices.totals.get(device) if node.devices is not None else None
        if totals is None:
            continue  # a pod keeps a device that no longer exists
        for name in sorted({*used.get(device, {}), *kept.get(device, {})}):
            has = totals.get(name, 0)
            taken, left = used.get(device, {}).get(name, 0), kept.get(device, {}).get(name, 0)
            key = f"{device[0]} {device[1]} {name}"
            figures = f"{key}: pods {taken}, reservations {left}, of {has}"
            _note(found, DEVICES, key, taken - has, figures)
            _note(found, RESERVED_DEVICES, key, taken + left - has, figures)


def _kept_devices(
    cluster: ClusterState, reservations: Iterable[ReservationFacts]
) -> dict[tuple[str, int], Amounts]:
    kept: dict[tuple[str, int], Amounts] = {}
    for reservation in reservations:
        if not reservation.usage.devices:
            continue
        left: dict[tuple[str, int], Amounts] = {}
        for share in reservation.usage.devices:
            add(left.setdefault((share.type, share.minor), {}), share.resources)
        for pod in cluster.owners_of(reservation):
            for share in pod.usage.devices:
                if (share.type, share.minor) in left:
                    add(left[share.type, share.minor], share.resources, -1)
        for device, resources in left.items():
            rest = {name: max(0, amount) for name, amount in resources.items()}
            add(kept.setdefault(device, {}), rest)
    return kept


def _cpus(
    cluster: ClusterState,
    node: NodeState,
    reservations: list[ReservationFacts],
    found: dict[Key, Excess],
) -> None:
    having: dict[int, list[PodFacts]] = {}
    for pod in node.special.values():
        for cpu in pod.usage.cpus:
            having.setdefault(cpu, []).append(pod)
    for cpu, pods in sorted(having.items()):
        if len(pods) > 1:
            figures = f"cpu {cpu}: {' and '.join(map(str, pods))}"
            _note(found, CPUS, str(cpu), len(pods) - 1, figures)
    if node.topology is not None and node.topology.cpus:
        for cpu in sorted(having.keys() - node.topology.cpus):
            _note(found, UNKNOWN_CPUS, str(cpu), 1, f"cpu {cpu}: {having[cpu][0]}")
    for reservation in reservations:
        for cpu in sorted(reservation.usage.cpus):
            strangers = [pod for pod in having.get(cpu, ()) if pod.reservation != reservation.uid]
            if strangers:
                text = cpu_text(reservation.usage.cpus)
                figures = f"cpu {cpu}: {strangers[0]} has it, {reservation} holds {text}"
                _note(found, RESERVED_CPUS, f"{reservation.name} {cpu}", len(strangers), figures)
    for one, other in combinations(reservations, 2):
        for cpu in sorted(one.usage.cpus & other.usage.cpus):
            figures = f"cpu {cpu}: {one} and {other} hold it"
            _note(found, RESERVED_CPUS, f"{one.name} {other.name} {cpu}", 1, figures)


def _numa(
    cluster: ClusterState,
    node: NodeState,
    reservations: list[ReservationFacts],
    found: dict[Key, Excess],
) -> None:
    if node.topology is None or not node.topology.numa:
        return
    total: dict[int, Amounts] = {}
    for pod in node.special.values():
        for share in pod.usage.numa:
            add(total.setdefault(share.node, {}), share.resources)
    for reservation in reservations:
        left: dict[int, Amounts] = {}
        for share in reservation.usage.numa:
            add(left.setdefault(share.node, {}), share.resources)
        for pod in cluster.owners_of(reservation):
            for share in pod.usage.numa:
                if share.node in left:
                    add(left[share.node], share.resources, -1)
        for zone, resources in left.items():
            rest = {name: max(0, amount) for name, amount in resources.items()}
            add(total.setdefault(zone, {}), rest)
    for zone, resources in total.items():
        has = node.topology.numa.get(zone, {})
        for name, amount in resources.items():
            if name in has:
                figures = f"NUMA node {zone}: {name}: {amount} of {has[name]}"
                _note(found, NUMA, f"{zone} {name}", amount - has[name], figures)


def _volumes(
    cluster: ClusterState,
    node: NodeState,
    reservations: list[ReservationFacts],
    found: dict[Key, Excess],
) -> None:
    """A volume is attached once, even if several pods or reservations use it. What a reservation with
    owners reserves for further ones is left out.
    """
    used = _by_driver(cluster, (pod.usage for pod in node.special.values()))
    untouched = [each.usage for each in reservations if not cluster.owners_of(each)]
    reserved = _by_driver(cluster, untouched)
    for driver, most in node.volume_limits.items():
        count = len(used.get(driver, set()))
        _note(found, VOLUMES, driver, count - most, f"{driver}: {count} volumes, at most {most}")
        if driver in reserved:
            both = len(used.get(driver, set()) | reserved[driver])
            figures = f"{driver}: {both} volumes, {count} of them of pods, at most {most}"
            _note(found, RESERVED_VOLUMES, driver, both - most, figures)


def _by_driver(cluster: ClusterState, users: Iterable[Usage]) -> dict[str, set[str]]:
    """The handles of the volumes that claims are bound to, by CSI driver."""
    found: dict[str, set[str]] = {}
    for usage in users:
        for claim in usage.claims:
            volume = cluster.volumes.get(_volume_name(cluster.claims.get(claim)))
            csi = ((volume or {}).get("spec") or {}).get("csi")
            if csi:
                handle = str(csi.get("volumeHandle") or "")
                found.setdefault(csi.get("driver", ""), set()).add(handle)
    return found


def unreachable_volumes(cluster: ClusterState, node: NodeState, pod: PodFacts) -> list[str]:
    """Volumes of the pod that are not accessible from the node."""
    found = []
    for claim in pod.usage.claims:
        volume = cluster.volumes.get(_volume_name(cluster.claims.get(claim)))
        if volume is None:
            continue
        required = ((volume.get("spec") or {}).get("nodeAffinity") or {}).get("required") or {}
        terms = required.get("nodeSelectorTerms") or ()
        if terms and not any(_term(term, node) for term in terms):
            found.append(str(volume["metadata"]["name"]))
    return found


def _term(term: Raw, node: NodeState) -> bool:
    fields = {"metadata.name": node.name}
    expressions, on_fields = term.get("matchExpressions") or (), term.get("matchFields") or ()
    return all(expression(each, node.labels) for each in expressions) and all(
        expression(each, fields) for each in on_fields
    )


def _volume_name(claim: Raw | None) -> str:
    return str(((claim or {}).get("spec") or {}).get("volumeName") or "")


def _note(found: dict[Key, Excess], rule: str, about: str, amount: int, figures: Any) -> None:
    if amount > 0:
        found[rule, about] = Excess(amount, figures)


def _count(found: dict[Key, Excess], rule: str, about: str, figures: str) -> None:
    before = found.get((rule, about))
    found[rule, about] = Excess(before.amount + 1 if before else 1, figures)


# Queues


_QUEUE_NAME = "scheduling.volcano.sh/queue-name"


def queue_of(cluster: ClusterState, pod: PodFacts) -> str | None:
    """The queue that the pod, or the PodGroup of its gang, names."""
    core = next((name for family, name in pod.groups if family == CORE_GROUPS), "")
    if core:
        group = cluster.groups.get(core_gang(pod.namespace, core)) or {"metadata": {}}
        named = (group["metadata"].get("annotations") or {}).get(_QUEUE_NAME)
        return named or pod.annotations.get(_QUEUE_NAME)
    metadata = {"namespace": pod.namespace, "labels": pod.labels, "annotations": pod.annotations}
    gang = gang_of({"metadata": metadata})
    if gang is None:
        return pod.annotations.get(_QUEUE_NAME)
    return ((cluster.groups.get(gang[:2]) or {}).get("spec") or {}).get("queue")


def queue_path(cluster: ClusterState, pod: PodFacts) -> list[str]:
    """The pod's queue and its ancestors, as far as they exist."""
    path: list[str] = []
    name = queue_of(cluster, pod)
    while name in cluster.queues and name not in path:
        path.append(name)
        name = (cluster.queues[name].get("spec") or {}).get("parent")
    return path


def over_capability(cluster: ClusterState, name: str, pod: PodFacts) -> Iterator[str]:
    limits = amounts((cluster.queues[name].get("spec") or {}).get("capability"))
    if not any(pod.usage.requests.get(resource) for resource in limits):
        return
    used: Amounts = {}
    for each in cluster.pods.values():
        if name in queue_path(cluster, each):
            add(used, each.usage.requests)
    for resource, limit in limits.items():
        if used.get(resource, 0) > limit and pod.usage.requests.get(resource):
            figures = f"{resource}: {used[resource]} of {limit}"
            yield f"queue has more than its capability: Queue/{name}: {figures} (by {pod})"
