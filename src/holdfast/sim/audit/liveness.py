"""What waits though nothing keeps it waiting.

Judged only after nothing has changed for a while, and only of pods, reservations and nodes that are
plain: whatever else could keep a pod from a node, and is not counted here, leaves it out. So nobody is
blamed wrongly, and a pod that was forgotten, or a wake-up that was missed, is found all the same.
"""

from collections.abc import Callable, Iterator

from holdfast.sim.audit.capacity import remaining
from holdfast.sim.audit.cluster import ClusterState, NodeState
from holdfast.sim.audit.facts import (
    ENDED,
    Raw,
    ReservationFacts,
    gang_of,
    is_device_resource,
    pod_requests,
)
from holdfast.sim.audit.quantity import Amounts, add

QUIET = 30.0
"""Seconds without a change after which nothing waits any more that need not: three times the longest
back-off of a queue."""

Schedules = Callable[[str], bool]
"""Whether pods of a scheduler name are placed wherever there is enough of what they request."""

_ONLY_AMOUNTS = frozenset(
    "containers initContainers overhead resources restartPolicy schedulerName priority "
    "priorityClassName preemptionPolicy terminationGracePeriodSeconds tolerations dnsPolicy "
    "securityContext "
    "enableServiceLinks serviceAccountName serviceAccount automountServiceAccountToken "
    "activeDeadlineSeconds".split()
)
"""Fields of a pod that leave every node open to it."""
_SIMULATION = "sim.holdfast.io/"
_GANG = "gang.scheduling.koordinator.sh/name"
WAITS = "waits though it fits"

_PLUGINS = frozenset(
    "SchedulingGates DefaultBinder NodeUnschedulable NodeName TaintToleration NodeAffinity "
    "NodePorts NodeResourcesFit "
    "PodTopologySpread InterPodAffinity VolumeRestrictions NodeVolumeLimits VolumeBinding VolumeZone "
    "Reservation LimitAware DynamicReservation Coscheduling NodeNUMAResource DeviceShare "
    "ReservationPreemption".split()
)
"""Those that keep no plain pod from a plain node with enough capacity."""


def places_plain_pods(plugins: frozenset[str]) -> bool:
    """Whether a profile with these plugins places pods wherever there is enough capacity."""
    return "NodeResourcesFit" in plugins and plugins <= _PLUGINS


def waiting_for_nothing(cluster: ClusterState, schedules: Schedules) -> Iterator[str]:
    """Pods and reservations that fit and are not placed, or not Available."""
    cleared = {(raw.get("status") or {}).get("nominatedNodeName") for raw in cluster.existing.values()}
    nodes = [n for n in cluster.nodes.values() if n.name not in cleared and _is_plain_node(n)]
    if not nodes or cluster.asking or cluster.queues:
        return  # capacity may be set aside, or closed to a queue, of which no object tells
    if any(_repels(raw) for raw in cluster.existing.values()):
        return
    free = {node.name: _free(cluster, node) for node in nodes}
    for raw in cluster.existing.values():
        spec = raw["spec"]
        if not _is_pending(raw) or not _is_plain(raw) or not schedules(spec.get("schedulerName") or ""):
            continue
        wants = {**pod_requests(raw), "pods": 1}
        where = next((name for name, left in free.items() if _fits(wants, left)), None)
        if where is not None:
            metadata = raw["metadata"]
            named = f"Pod/{metadata.get('namespace', '')}/{metadata['name']}"
            yield f"{WAITS}: {named}: Node/{where} has {_shown(wants, free[where])}"
    for node in nodes:
        if all(amount >= 0 for amount in free[node.name].values()):
            for each in node.reservations.values():
                if each.phase == "Waiting" and _waits_for_amounts(each):
                    has = _shown(each.usage.requests, free[node.name])
                    yield f"{WAITS}: {each}: Node/{node.name} has {has} besides"


def _is_plain_node(node: NodeState) -> bool:
    """Whether nothing but amounts keeps pods from it."""
    if node.raw is None or node.limits or node.topology is not None:
        return False
    spec, metadata = node.raw.get("spec") or {}, node.raw["metadata"]
    told = {**(metadata.get("annotations") or {}), **(metadata.get("labels") or {})}
    if spec.get("unschedulable") or spec.get("taints") or any("koordinator.sh/" in key for key in told):
        return False
    for each in node.reservations.values():
        # Owners have no way past a Restricted reservation that is of no use to them.
        if each.is_starvation_hold or each.is_preemption_hold or each.policy == "Restricted":
            return False
    return True


def _is_pending(raw: Raw) -> bool:
    return (
        not raw["spec"].get("nodeName")
        and (raw.get("status") or {}).get("phase") not in ENDED
        and "deletionTimestamp" not in raw["metadata"]
    )


def _is_plain(raw: Raw) -> bool:
    """Whether it may go wherever there is enough of what it requests."""
    metadata, spec = raw["metadata"], raw["spec"]
    told = [*(metadata.get("annotations") or {}), *(metadata.get("labels") or {})]
    if any("/" in key and not key.startswith(_SIMULATION) for key in told) or gang_of(metadata):
        return False
    if any(value for key, value in spec.items() if key not in _ONLY_AMOUNTS):
        return False
    containers = [*(spec.get("containers") or ()), *(spec.get("initContainers") or ())]
    if any(each.get("ports") for each in containers):
        return False
    return not any(map(is_device_resource, pod_requests(raw)))


def _repels(raw: Raw) -> bool:
    """Whether the pod keeps others from its node, or its zone."""
    affinity = raw["spec"].get("affinity") or {}
    return bool(
        (affinity.get("podAntiAffinity") or {}).get("requiredDuringSchedulingIgnoredDuringExecution")
    )


def _waits_for_amounts(reservation: ReservationFacts) -> bool:
    usage = reservation.usage
    if _GANG in reservation.annotations or not reservation.is_as_asked:
        return False
    return not usage.is_special and not any(map(is_device_resource, usage.requests))


def _free(cluster: ClusterState, node: NodeState) -> Amounts:
    """What pods and all reservations there leave, those that wait too."""
    free = dict(node.allocatable)
    add(free, {name: amount for name, amount in node.used.items() if name != "pods"}, -1)
    slots = len(node.pods)
    for each in node.reservations.values():
        add(free, remaining(cluster, each, lambda usage: usage.requests), -1)
        slots += max(0, each.slots - len(cluster.owners_of(each)))
    if "pods" in free:
        free["pods"] -= slots
    return free


def _fits(wants: Amounts, free: Amounts) -> bool:
    return all(free.get(name, 0) >= amount for name, amount in wants.items() if amount)


def _shown(wants: Amounts, free: Amounts) -> str:
    return ", ".join(f"{name} {free.get(name, 0)}" for name in sorted(wants))
