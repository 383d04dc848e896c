"""When pods and reservations on a node are expected to end, and what then becomes free."""

import math
from collections.abc import Iterable
from typing import NamedTuple

from holdfast.api.calendar import AtEnd
from holdfast.api.errors import TimeError
from holdfast.api.kinds import KINDS
from holdfast.api.names import HOLDFAST_API
from holdfast.api.times import parse_time
from holdfast.explanation.facts.capacity import missing_on, plans_on
from holdfast.explanation.facts.holders import kind_of_holder
from holdfast.explanation.facts.own_reservations import own_entries
from holdfast.explanation.phrases import duration_text
from holdfast.kube.object_client import Raw
from holdfast.scheduler.cluster.records import PodRecord, ReservationInfo
from holdfast.scheduler.cluster.slots import Amounts
from holdfast.scheduler.jobs.estimates import ENDLESS_OWNERS
from holdfast.scheduler.reservations.calendar import PlannedReservation
from holdfast.snapshot.cluster_changes import ObjectChange, delete, patch
from holdfast.snapshot.cluster_snapshot import POD, RESERVATION, RESOURCE_CLAIM, ClusterSnapshot

SCHEDULE = KINDS[HOLDFAST_API, "ReservationSchedule"]


class ExpectedEnd(NamedTuple):
    """When a pod or a reservation is expected to free its capacity."""

    time: float
    name: str
    changes: tuple[ObjectChange, ...]
    amounts: Amounts


def expected_ends(snapshot: ClusterSnapshot, pod: PodRecord, row: int) -> list[ExpectedEnd]:
    """What is expected to end on a row, soonest first: pods by their run-time estimates and deletion
    deadlines, and reservations of others by their expiry.
    """
    cluster = snapshot.cluster
    found = []
    for each in cluster.ledger.pods.get(row, {}).values():
        if each.reservation is None and (end := expected_end(snapshot, each)) is not None:
            changes = tuple(ended_pod(snapshot, each))
            name = f"pod {each.namespace}/{each.name}"
            found.append(ExpectedEnd(end, name, changes, dict(each.cls.usage)))
    own = {entry.pod.uid for entry in own_entries(snapshot, pod, row)}
    for entry in cluster.ledger.reservations.on(row):
        reservation = entry.reservation
        is_hold = kind_of_holder(snapshot, reservation) != "Reservation"
        if entry.pod.uid in own or is_hold:
            continue
        if (end := reservation_end(snapshot, reservation)) is not None:
            changes = (delete(RESERVATION, reservation.name),)
            name = f"reservation {reservation.name}"
            found.append(ExpectedEnd(end, name, changes, dict(entry.remaining)))
    for planned in plans_on(snapshot, pod, row):
        # Without Evict, pods that use it may stay; and a schedule plans the next one meanwhile.
        evicts = planned.reservation.calendar.at_end == AtEnd.EVICT
        if evicts and planned.end < math.inf and not schedule_of(snapshot, planned):
            changes = (delete(RESERVATION, planned.reservation.name),)
            name = f"reservation {planned.reservation.name}"
            found.append(ExpectedEnd(planned.end, name, changes, dict(planned.amounts)))
    return sorted(found, key=lambda each: (each.time, each.name))


def reservation_end(snapshot: ClusterSnapshot, reservation: ReservationInfo) -> float | None:
    """When a reservation on a node expires; or, of one that is preempted by another, when the last pod
    that uses it ends. None if neither is known."""
    reservations, expires = snapshot.cluster.reservations, reservation.expires
    found = [expires] if expires is not None and expires > snapshot.now else []
    if reservation.uid in reservations.preempted:
        ends = [expected_end(snapshot, each) for each in reservations.allocated_pods(reservation)]
        known = [end for end in ends if end is not None]
        if len(known) == len(ends):
            found.append(max(known, default=snapshot.now))
    return min(found, default=None)


def ended_pod(snapshot: ClusterSnapshot, pod: PodRecord) -> list[ObjectChange]:
    """The pod is gone, and its claims are released: deleted if they are its own, deallocated if no
    other pod uses them, as the controllers of Kubernetes do."""
    found = [delete(POD, pod.name, pod.namespace)]
    for claim in snapshot.cluster.claims.reserved_for(pod):
        raw = snapshot.find(RESOURCE_CLAIM, claim.metadata.name, pod.namespace)
        if raw is None:
            continue
        users = (raw.get("status") or {}).get("reservedFor") or []
        others = [each for each in users if each.get("uid") != pod.uid]
        metadata = raw["metadata"]
        if len(others) == len(users):
            continue
        if any(each.get("uid") == pod.uid for each in metadata.get("ownerReferences") or ()):
            released = delete(RESOURCE_CLAIM, metadata["name"], pod.namespace)
            found.append(released._replace(follows=True))
        else:
            status = {"reservedFor": others} if others else {"reservedFor": None, "allocation": None}
            found.append(patch(RESOURCE_CLAIM, raw, {"status": status}, follows=True))
    return found


def schedule_of(snapshot: ClusterSnapshot, planned: PlannedReservation) -> Raw | None:
    """The ReservationSchedule that made a planned reservation and would make it again."""
    for owner in planned.reservation.object.metadata.owner_references:
        if owner.kind == SCHEDULE.kind and owner.controller:
            raw = snapshot.find(SCHEDULE, owner.name)
            if raw is not None and not (raw.get("spec") or {}).get("suspend"):
                return raw
    return None


def expected_end(snapshot: ClusterSnapshot, pod: PodRecord) -> float | None:
    """When the pod should end, by its run-time estimate or its deletion; None if that is unknown, or if
    it does not end by itself: its controller would create it again."""
    is_endless = any(each.controller and each.kind in ENDLESS_OWNERS for each in pod.cls.owners)
    end = None if is_endless else snapshot.cluster.jobs.estimates.expected_end(pod)
    if pod.cls.terminating:
        deadline = deletion_deadline(snapshot.find(POD, pod.name, pod.namespace))
        if deadline is not None and deadline > snapshot.now:
            return deadline if end is None else min(end, deadline)
    return end


def overrun_text(snapshot: ClusterSnapshot, pod: PodRecord) -> str:
    """`has run longer than its run-time estimate of 1h`; empty if it has not."""
    estimates = snapshot.cluster.jobs.estimates
    estimate = estimates.of(pod)
    if estimate is None or not estimates.overruns(pod):
        return ""
    return f"has run longer than its run-time estimate of {duration_text(estimate)}"


def ignored_estimate(snapshot: ClusterSnapshot, pod: PodRecord) -> str:
    """`run-time estimate is ignored: …`, with the reason; empty if none is ignored."""
    _, problem = snapshot.cluster.jobs.estimates.ignored.get(pod.uid, (pod.ref, ""))
    return f"run-time estimate is ignored: {problem}" if problem else ""


def deletion_deadline(raw: Raw | None) -> float | None:
    """The deletionTimestamp of a terminating pod: when its grace period ends."""
    try:
        return parse_time(str((raw or {}).get("metadata", {}).get("deletionTimestamp") or ""))
    except TimeError:
        return None


def rows_freed_first(
    snapshot: ClusterSnapshot, pod: PodRecord, rows: Iterable[int], most: int
) -> list[int]:
    """Of these rows, those where the pod's shortage is expected to end first, by amounts only."""
    found = []
    for row in rows:
        short = missing_on(snapshot, pod, row)
        for end in expected_ends(snapshot, pod, row):
            for slot in short:
                short[slot] -= end.amounts.get(slot, 0)
            if all(lack <= 0 for lack in short.values()):
                found.append((end.time, row))
                break
    return [row for _, row in sorted(found)[:most]]
