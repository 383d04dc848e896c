"""Rules about single objects: phases of reservations, their statuses, binds, gangs."""

from collections.abc import Iterator

from holdfast.sim.audit.cluster import ClusterState, Gang
from holdfast.sim.audit.facts import (
    PodFacts,
    Raw,
    ReservationFacts,
    gang_of,
    is_device_resource,
)
from holdfast.sim.audit.owners import owns
from holdfast.sim.audit.quantity import Amounts, add, amounts

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
_TEMPLATE = "scheduling.koordinator.sh/reservation-template"
_GOING = ("scheduling.koordinator.sh/soft-eviction", "holdfast.io/preempted-by")
_GRACE = 1.0
"""Timestamps of objects are in whole seconds."""


def phase_change(before: ReservationFacts, after: ReservationFacts) -> Iterator[str]:
    """A phase that does not follow from the one before."""
    if before.phase == after.phase:
        if before.node != after.node and before.node:
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
    """What is wrong with how a pod was just bound."""
    if pod.deleting:
        yield f"bound while being deleted: {pod} on Node/{pod.node}"
    if cluster.node(pod.node).raw is None:
        yield f"bound to a node that does not exist: {pod} on Node/{pod.node}"
    if not pod.reservation:
        # With onFailure: Bind a pod whose own reservation did not come is bound without it.
        if pod.annotations.get(_AFFINITY) and _TEMPLATE not in pod.annotations:
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
    if not owns(pod, reservation):
        yield f"bound through a reservation it does not own: {pod}: {reservation}"
    others = [each for each in cluster.owners_of(reservation) if each.uid != pod.uid]
    if reservation.once and others:
        yield f"allocateOnce used twice: {reservation}: {others[0]} and {pod}"


def status_at_rest(cluster: ClusterState, reservation: ReservationFacts, now: float) -> Iterator[str]:
    """What a reservation's status says that is not so, once nothing more follows."""
    phase = reservation.phase
    conditions = {each.get("type"): each for each in reservation.status.get("conditions") or ()}
    if reservation.is_live != bool(reservation.node) and phase in ("Pending", "Available", "Waiting"):
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
        yield f"reservation outlives its time: {reservation}: {phase}"
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
    said = amounts(status.get("allocated"))
    for name in reservation.usage.requests:
        if name == "pods" or is_device_resource(name):
            continue
        if said.get(name, 0) != taken.get(name, 0):
            yield (
                f"reservation status: {reservation}: allocated {name} {said.get(name, 0)}, "
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
    """How many members of a gang are placed or done, and how many it needs; None where nobody says."""
    members = cluster.gangs.get(gang, {})
    group = cluster.groups.get(gang)
    needs: int | None = None
    if group is not None:
        needs = int((group.get("spec") or {}).get("minMember") or 0)
    else:
        for raw in members.values():
            found = gang_of(raw["metadata"])
            if found is not None and found[2] is not None:
                needs = found[2]
                break
    if needs is None:
        return None
    placed = sum(
        1
        for raw in members.values()
        if raw["spec"].get("nodeName") and (raw.get("status") or {}).get("phase") != "Failed"
    )
    return placed, needs
