"""Rules about single objects: reservation phases and statuses, binds, gangs; and pods that wait
needlessly.
"""

from collections.abc import Callable, Iterable, Iterator
from typing import Protocol

from holdfast.sim.audit.capacity import remaining
from holdfast.sim.audit.cluster import ClusterState, Gang, NodeState, owns
from holdfast.sim.audit.facts import (
    CORE_GROUPS,
    ENDED,
    Amounts,
    PodFacts,
    Raw,
    ReservationFacts,
    add,
    amounts,
    gang_of,
    is_device_resource,
    pod_requests,
)

_NEXT = {
    "Pending": ("Available", "Waiting", "Failed"),
    "Waiting": ("Available", "Failed"),
    "Available": ("Succeeded", "Failed"),
    "Succeeded": (),
    "Failed": (),
}
_READY = {
    "Available": ("True", "Available"),
    "Waiting": ("False", "Waiting"),
    "Succeeded": ("False", "Succeeded"),
    "Failed": ("False", "Expired"),
}
_IGNORED = "scheduling.koordinator.sh/reservation-ignored"
_AFFINITY = "scheduling.koordinator.sh/reservation-affinity"
_GOING = ("scheduling.koordinator.sh/soft-eviction", "holdfast.io/preempted-by")
_GRACE = 1.0
"""Timestamps of objects are in whole seconds."""


def phase_change(before: ReservationFacts, after: ReservationFacts) -> Iterator[str]:
    """Reports a phase that cannot follow the previous one."""
    if before.phase == after.phase:
        if before.node != after.node and before.node and before.phase != "Pending":
            yield f"reservation moved: {after}: from node {before.node} to {after.node or 'none'}"
        return
    allowed = _NEXT.get(before.phase, ())
    if after.is_preemption_hold and before.phase == "Pending":
        allowed = (*allowed, "Succeeded")
    if after.is_starvation_hold and before.phase == "Available":
        allowed = (*allowed, "Waiting")  # lent, until the rest of its gang has its capacity too
    if after.phase not in allowed:
        yield f"phase transition: {after}: from {before.phase} to {after.phase}"


def bind(cluster: ClusterState, pod: PodFacts) -> Iterator[str]:
    """Reports what is wrong with a new bind."""
    if pod.deleting:
        yield f"bound while being deleted: {pod} on Node/{pod.node}"
    if cluster.node(pod.node).raw is None:
        yield f"bound to a node that does not exist: {pod} on Node/{pod.node}"
    if not pod.reservation:
        if pod.annotations.get(_AFFINITY):
            yield f"bound without the reservation it must use: {pod} on Node/{pod.node}"
        return
    reservation = cluster.reservations.get(pod.reservation)
    if reservation is None:
        yield f"bound through a reservation that does not exist: {pod}: {pod.reservation_name}"
        return
    # Holds are the scheduler's own, for this very pod; what a pod ignores is what users reserve.
    own = reservation.is_preemption_hold or reservation.is_starvation_hold
    if pod.labels.get(_IGNORED) == "true" and not own:
        yield f"bound through a reservation it ignores: {pod}: {reservation}"
    if reservation.phase != "Available" and not (
        reservation.phase == "Pending" and reservation.is_preemption_hold
    ):
        is_now = f"{reservation} is {reservation.phase}"
        yield f"bound through a reservation that is not Available: {pod}: {is_now}"
    elif reservation.node and reservation.node != pod.node:
        where = f"{pod} on Node/{pod.node}: {reservation} on Node/{reservation.node}"
        yield f"bound through a reservation of another node: {where}"
    if not owns(cluster, pod, reservation):
        yield f"bound through a reservation it does not own: {pod}: {reservation}"
    others = [each for each in cluster.owners_of(reservation) if each.uid != pod.uid]
    if reservation.once and others:
        yield f"allocateOnce used twice: {reservation}: {others[0]} and {pod}"


def status_at_rest(cluster: ClusterState, reservation: ReservationFacts, now: float) -> Iterator[str]:
    """Reports incorrect fields of a reservation's status once nothing more follows at a moment."""
    phase = reservation.phase
    conditions = {each.get("type"): each for each in reservation.status.get("conditions") or ()}
    planned = (conditions.get("Planned") or {}).get("status") == "True"
    if planned and phase != "Pending":
        yield f"reservation status: {reservation}: {phase}, but Planned is True"
    has_node = bool(reservation.node) and not planned
    if reservation.is_live != has_node and phase in ("Pending", "Available", "Waiting"):
        yield f"reservation status: {reservation}: {phase} with nodeName {reservation.node!r}"
    ready = conditions.get("Ready")
    if phase in _READY and (
        ready is None or (ready.get("status"), ready.get("reason")) != _READY[phase]
    ):
        yield f"reservation status: {reservation}: {phase}, but Ready is {_shown(ready)}"
    scheduled = conditions.get("Scheduled")
    if reservation.is_live and (scheduled is None or scheduled.get("status") != "True"):
        yield f"reservation status: {reservation}: {phase}, but Scheduled is {_shown(scheduled)}"
    if phase in ("Succeeded", "Failed"):
        return
    if reservation.expires is not None and reservation.expires + _GRACE <= now:
        yield f"reservation is past its expiry: {reservation}: {phase}"
    if not reservation.is_live:
        return
    if cluster.node(reservation.node).raw is None:
        yield f"reservation on a node that does not exist: {reservation}: Node/{reservation.node}"
        return
    yield from _owners_at_rest(cluster, reservation)


def _owners_at_rest(cluster: ClusterState, reservation: ReservationFacts) -> Iterator[str]:
    owners = cluster.owners_of(reservation)
    status = reservation.status
    listed = sorted(each.get("uid", "") for each in status.get("currentOwners") or ())
    if listed != sorted(pod.uid for pod in owners):
        shown = ", ".join(each.get("name", "") for each in status.get("currentOwners") or ())
        are = ", ".join(map(str, owners))
        differs = f"currentOwners [{shown}], bound through it are [{are}]"
        yield f"reservation status: {reservation}: {differs}"
        return
    taken: Amounts = {}
    for pod in owners:
        add(taken, pod.usage.requests)
    reported = amounts(status.get("allocated"))
    for name in reservation.usage.requests:
        if name == "pods" or is_device_resource(name):
            continue
        if reported.get(name, 0) != taken.get(name, 0):
            yield (
                f"reservation status: {reservation}: allocated {name} {reported.get(name, 0)}, "
                f"its owners request {taken.get(name, 0)}"
            )
    going = any(each in reservation.annotations or each in reservation.labels for each in _GOING)
    if reservation.once and owners and not going:
        used = f"allocateOnce and used by {owners[0]}"
        yield f"reservation status: {reservation}: {used}, but {reservation.phase}"


def _shown(condition: Raw | None) -> str:
    if condition is None:
        return "missing"
    return f"{condition.get('status')}/{condition.get('reason')}"


def gang_at_rest(cluster: ClusterState, gang: Gang) -> tuple[int, int] | None:
    """How many members of a gang are placed or finished, and how many it needs; None if that is
    unknown.
    """
    members = cluster.gangs.get(gang, {})
    group = cluster.groups.get(gang)
    needs: int | None = None
    is_core = gang[1].startswith(f"{CORE_GROUPS}/")
    if group is not None and is_core:
        policy = group["spec"].get("schedulingPolicy") or {}
        needs = int((policy.get("gang") or {"minCount": 1})["minCount"])
    elif group is not None:
        needs = int((group.get("spec") or {}).get("minMember") or 0)
    else:
        needs = _declared_size(members.values())
    if needs is None:
        return None
    placed = sum(
        1
        for raw in members.values()
        if raw["spec"].get("nodeName")
        and (raw.get("status") or {}).get("phase") not in (ENDED if is_core else ("Failed",))
    )
    return placed, needs


def _declared_size(members: Iterable[Raw]) -> int | None:
    """What a gang without a PodGroup needs: the youngest of its members that state it prevails."""
    youngest: tuple[str, str, int] | None = None
    for raw in members:
        metadata = raw["metadata"]
        found = gang_of(raw)
        if found is None or found[2] is None or (raw.get("status") or {}).get("phase") in ENDED:
            continue
        this = metadata.get("creationTimestamp") or "", metadata["name"], found[2]
        youngest = this if youngest is None else max(youngest, this)
    return None if youngest is None else youngest[2]


def domains_of(cluster: ClusterState, gang: Gang) -> list[str]:
    """The topology domains in which members of a PodGroup with a topology constraint are, as far as
    the labels of their nodes did not change."""
    group = cluster.groups.get(gang)
    if group is None or not gang[1].startswith(f"{CORE_GROUPS}/"):
        return []
    topology = (group["spec"].get("schedulingConstraints") or {}).get("topology") or ()
    found: set[str] = set()
    for raw in cluster.gangs.get(gang, {}).values():
        name = raw["spec"].get("nodeName")
        node = cluster.node(name).raw if name else None
        if node is None or name in cluster.relabelled or "deletionTimestamp" in raw["metadata"]:
            continue
        if (raw.get("status") or {}).get("phase") not in ENDED:
            labels = node["metadata"].get("labels") or {}
            found.update(labels.get(each["key"], "(none)") for each in topology[:1])
    return sorted(found)


# Liveness: pods and reservations that wait although they fit.
#
# Checked only after nothing has changed for a while, and only for pods, reservations and nodes without
# features that this check does not model. So there are no false alarms, and a forgotten pod or a missed
# wake-up is still found.


QUIET = 30.0
"""Seconds without a change after which no pod that fits may be pending: three times the longest
back-off of a queue."""

Schedules = Callable[[str], bool]
"""Whether pods of a scheduler name are placed wherever there is enough of what they request."""


class ClaimFacts(Protocol):
    """What liveness needs to know of devices by claim."""

    def certainly_fits(self, pod: Raw, node: str) -> bool:
        """Whether devices for the claims of a pod are certainly free on a node."""

    def certainly_gets(self, reservation: str, node: str) -> bool:
        """Whether those for the claims of a Waiting reservation, by its uid, are free on its node."""

    def waiting_pods(self) -> list[Raw]:
        """The pods that wait on a node until their devices are ready, before they are bound."""


_ONLY_AMOUNTS = frozenset(
    "containers initContainers overhead resources restartPolicy schedulerName priority "
    "priorityClassName preemptionPolicy terminationGracePeriodSeconds tolerations dnsPolicy "
    "securityContext "
    "enableServiceLinks serviceAccountName serviceAccount automountServiceAccountToken "
    "activeDeadlineSeconds resourceClaims".split()
)
"""Fields of a pod that leave every node open to it, besides its claims, which are checked apart."""
_LOCAL_VOLUMES = frozenset(
    "name emptyDir configMap secret projected downwardAPI hostPath image".split()
)
"""Fields of a volume that every node can mount, for any number of pods."""
_SIMULATION = "sim.holdfast.io/"
_GANG = "gang.scheduling.koordinator.sh/name"
WAITS = "pending though it fits"

_PLUGINS = frozenset(
    "SchedulingGates DefaultBinder NodeUnschedulable NodeName TaintToleration NodeAffinity "
    "NodePorts NodeResourcesFit "
    "PodTopologySpread InterPodAffinity VolumeRestrictions NodeVolumeLimits VolumeBinding VolumeZone "
    "Reservation LimitAware DynamicReservation Coscheduling NodeNUMAResource DeviceShare "
    "ReservationPreemption NodeDeclaredFeatures DynamicResources".split()
)
"""Plugins that never reject a plain pod on a plain node with enough capacity."""


def places_plain_pods(plugins: frozenset[str]) -> bool:
    """Whether a profile with these plugins places pods wherever there is enough capacity."""
    return "NodeResourcesFit" in plugins and plugins <= _PLUGINS


def waiting_for_nothing(
    cluster: ClusterState,
    schedules: Schedules,
    devices: ClaimFacts,
) -> Iterator[str]:
    """Pods and reservations that fit but are not placed, or not Available."""
    cleared = {(raw.get("status") or {}).get("nominatedNodeName") for raw in cluster.existing.values()}
    # On these, reservations that start later take capacity that is free now.
    cleared |= {each.node for each in cluster.reservations.values() if each.phase == "Pending"}
    nodes = [n for n in cluster.nodes.values() if n.name not in cleared and _is_plain_node(n)]
    if not nodes or cluster.asking or cluster.queues:
        return  # capacity may be set aside, or closed to a queue, which no object shows
    templates = (each.pod_spec for each in cluster.reservations.values() if each.is_live)
    if any(map(_repels, (*(raw["spec"] for raw in cluster.existing.values()), *templates))):
        return
    free = {node.name: _free(cluster, node) for node in nodes}
    for raw in devices.waiting_pods():
        if gang_of(raw):
            return  # other members may wait for it, which no object shows
        for left in free.values():
            add(left, {**pod_requests(raw), "pods": 1}, -1)
    for raw in cluster.existing.values():
        spec = raw["spec"]
        if not _is_pending(raw) or not _is_plain(raw) or not schedules(spec.get("schedulerName") or ""):
            continue
        wants = {**pod_requests(raw), "pods": 1}
        fitting = (name for name, left in free.items() if _fits(wants, left))
        where = next((name for name in fitting if devices.certainly_fits(raw, name)), None)
        if where is not None:
            metadata = raw["metadata"]
            named = f"Pod/{metadata.get('namespace', '')}/{metadata['name']}"
            yield f"{WAITS}: {named}: Node/{where} has {_free_amounts(wants, free[where])}"
    for node in nodes:
        if all(amount >= 0 for amount in free[node.name].values()):
            for each in node.reservations.values():
                if each.phase != "Waiting" or not _waits_for_amounts(each):
                    continue
                if devices.certainly_gets(each.uid, node.name):
                    has = _free_amounts(each.usage.requests, free[node.name])
                    yield f"{WAITS}: {each}: Node/{node.name} has {has} besides"


def _is_plain_node(node: NodeState) -> bool:
    """Whether only resource amounts keep pods from the node."""
    if node.raw is None or node.limits or node.topology is not None:
        return False
    spec, metadata = node.raw.get("spec") or {}, node.raw["metadata"]
    keys = {**(metadata.get("annotations") or {}), **(metadata.get("labels") or {})}
    if spec.get("unschedulable") or spec.get("taints") or any("koordinator.sh/" in key for key in keys):
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
    """Whether the pod can run wherever its requests fit."""
    metadata, spec = raw["metadata"], raw["spec"]
    keys = [*(metadata.get("annotations") or {}), *(metadata.get("labels") or {})]
    if any("/" in key and not key.startswith(_SIMULATION) for key in keys) or gang_of(raw):
        return False
    if any(value for key, value in spec.items() if key not in _ONLY_AMOUNTS):
        return False
    containers = [*(spec.get("containers") or ()), *(spec.get("initContainers") or ())]
    if any(each.get("ports") for each in containers):
        return False
    return not any(map(is_device_resource, pod_requests(raw)))


def _repels(spec: Raw) -> bool:
    """Whether a pod or reserve pod keeps others from its node or zone (anti-affinity)."""
    affinity = spec.get("affinity") or {}
    return bool(
        (affinity.get("podAntiAffinity") or {}).get("requiredDuringSchedulingIgnoredDuringExecution")
    )


def _waits_for_amounts(reservation: ReservationFacts) -> bool:
    usage = reservation.usage
    if _GANG in reservation.annotations or not reservation.is_as_asked:
        return False
    volumes = reservation.pod_spec.get("volumes") or ()
    if any(set(volume) - _LOCAL_VOLUMES for volume in volumes):
        return False  # others may use its disks, or attach as many volumes as the node can have
    return not usage.is_special and not any(map(is_device_resource, usage.requests))


def _free(cluster: ClusterState, node: NodeState) -> Amounts:
    """Allocatable less pods and all reservations, Waiting ones included."""
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


def _free_amounts(wants: Amounts, free: Amounts) -> str:
    return ", ".join(f"{name} {free.get(name, 0)}" for name in sorted(wants))
