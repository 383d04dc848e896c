"""Capacity on nodes for one pod: what is short, who holds it, and when it is expected to be free.

Capacity that is reserved for the pod itself never counts against it.
"""

import math
from collections import Counter
from collections.abc import Iterable, Iterator
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from holdfast.api.calendar import AtEnd
from holdfast.api.errors import TimeError
from holdfast.api.kinds import KINDS
from holdfast.api.names import HOLD_LABEL, HOLDFAST_API
from holdfast.api.reservation import ReservationOwner
from holdfast.api.similar_names import did_you_mean
from holdfast.api.times import format_time, parse_time
from holdfast.explanation.report import Holder, few
from holdfast.kube.object_client import Raw
from holdfast.scheduler.cluster.records import PodRecord, ReservationEntry, ReservationInfo
from holdfast.scheduler.cluster.slots import PODS, Amounts
from holdfast.scheduler.managers.devices.requests import TYPE_OF
from holdfast.scheduler.reservations.calendar import PlannedReservation
from holdfast.scheduler.reservations.starvation_holds import pod_of
from holdfast.snapshot.cluster_changes import ObjectChange, delete, patch
from holdfast.snapshot.cluster_snapshot import POD, RESERVATION, RESOURCE_CLAIM, ClusterSnapshot, shown

SCHEDULE = KINDS[HOLDFAST_API, "ReservationSchedule"]
_FEW = 3
_ABSENT = 1e6
"""Is added to the shortage of a node that has nothing of a requested resource at all: smaller requests
or pods that end cannot help there, so it comes after all nodes that have some."""


def requested(pod: PodRecord) -> Amounts:
    """What the pod requests of a node, a pod slot included."""
    return {slot: amount for slot, amount in (*pod.cls.requests, (PODS, 1)) if amount}


def amounts_text(snapshot: ClusterSnapshot, amounts: Amounts) -> str:
    """`3 cpu, 2Gi memory`"""
    slots = snapshot.cluster.nodes.slots
    named = [(slots.name(slot), amount) for slot, amount in amounts.items()]
    return ", ".join(
        "1 pod slot" if name == "pods" and amount == 1 else f"{shown(name, amount)} {name}"
        for name, amount in named
        if name
    )


def row_of(snapshot: ClusterSnapshot, node: str) -> int:
    row = snapshot.cluster.nodes.row(node)
    assert row is not None, node
    return row


# Shortage


def served_by_classes(snapshot: ClusterSnapshot, pod: PodRecord) -> set[int]:
    """The slots of requested resources that device classes serve, on nodes that have none of them."""
    return {slot for slot, _ in snapshot.cluster.claims.delegated(pod.cls)}


def free_on(snapshot: ClusterSnapshot, pod: PodRecord, row: int) -> Amounts:
    """What is free on a row for the pod, without reservations of its own."""
    table = snapshot.cluster.nodes
    asked, planned = requested(pod), planned_on(snapshot, pod, row)
    if pod.cls.pre_allocation:  # it may wait for pods that end, but not for other reservations
        return {
            slot: table.allocatable.item(slot, row)
            - table.held.item(slot, row)
            - table.daemon_requested.item(slot, row)
            - planned.get(slot, 0)
            for slot in asked
        }
    kept = nominated_on(snapshot, pod, row)
    return {
        slot: table.allocatable.item(slot, row)
        - table.claimed.item(slot, row)
        - planned.get(slot, 0)
        - kept[slot]
        for slot in asked
    }


def nominated_on(snapshot: ClusterSnapshot, pod: PodRecord, row: int) -> Counter[int]:
    """What the pod must leave free on a row for pods that it is nominated for, by slot. Those with a
    reservation there have their capacity already."""
    cluster = snapshot.cluster
    found: Counter[int] = Counter()
    for each in cluster.nominated_pods_for(pod, row):
        if not cluster.reservations.reservation_for_nominated(each, row):
            found.update(dict(each.cls.usage))
    return found


def planned_on(snapshot: ClusterSnapshot, pod: PodRecord, row: int) -> Amounts:
    """What the pod must leave free on a row for reservations that start later, by slot."""
    cluster = snapshot.cluster
    planner, estimate = cluster.jobs.planner, cluster.jobs.estimates.of(pod)
    if pod.cls.is_planned or not pod.cls.requests:
        return {}
    if pod.cls.pre_allocation:
        return planner.planned(row)
    until = cluster.now + estimate if estimate is not None and pod.reservation is None else math.inf
    return planner.blocked(row, until)


def missing_on(snapshot: ClusterSnapshot, pod: PodRecord, row: int) -> Amounts:
    """The pod's shortage on a row, using the reservation of its own that leaves the smallest one."""
    table, served = snapshot.cluster.nodes, served_by_classes(snapshot, pod)
    free = free_on(snapshot, pod, row)
    asked = {
        slot: amount
        for slot, amount in requested(pod).items()
        if slot not in served or table.allocatable.item(slot, row)
    }
    found = _lacking(asked, free)
    for entry in own_entries(snapshot, pod, row):
        beside = _lacking(asked, {slot: free[slot] + entry.left(slot) for slot in asked})
        if _share(beside, asked) < _share(found, asked):
            found = beside
    return found


def _lacking(asked: Amounts, free: Amounts) -> Amounts:
    return {slot: amount - free[slot] for slot, amount in asked.items() if amount > free[slot]}


def _share(lacking: Amounts, asked: Amounts) -> float:
    return sum(lack / asked[slot] for slot, lack in lacking.items())


def shortages(snapshot: ClusterSnapshot, pod: PodRecord) -> NDArray[np.float64]:
    """The shortage of every row as a share of the request, summed over resources; 0 where nothing is
    missing, and at least `_ABSENT` where a resource is absent. Computed for all rows at once."""
    table = snapshot.cluster.nodes
    size = table.size
    total = np.zeros(size, dtype=np.float64)
    asked, served = requested(pod), served_by_classes(snapshot, pod)
    for slot, amount in asked.items():
        free = (table.allocatable[slot] - table.claimed[slot])[:size]
        short = np.maximum(amount - free, 0) / amount
        total += short * (table.allocatable[slot, :size] > 0) if slot in served else short
    own = (reservation.entry for reservation in _own_reservations(snapshot, pod))
    special = {entry.row for entry in own if entry is not None}
    special.update(snapshot.cluster.reservations.calendar.rows())
    rows = map(table.row, snapshot.cluster.nominator)
    special.update(row for row in rows if row is not None and table.alive[row])
    for row in special:
        total[row] = _share(missing_on(snapshot, pod, row), asked)
    for slot in asked.keys() - served:
        total[table.allocatable[slot, :size] <= 0] += _ABSENT
    return total


def absent_on(snapshot: ClusterSnapshot, pod: PodRecord, row: int) -> list[str]:
    """The requested resources of which a node has nothing."""
    table = snapshot.cluster.nodes
    asked = requested(pod).keys() - served_by_classes(snapshot, pod)
    return [table.slots.name(slot) for slot in asked if table.allocatable.item(slot, row) <= 0]


def largest(snapshot: ClusterSnapshot, slot: int) -> int:
    """The most that a node has of a resource."""
    table = snapshot.cluster.nodes
    alive = table.alive[: table.size]
    amounts = table.allocatable[slot, : table.size][alive]
    return int(amounts.max()) if len(amounts) else 0


# Reservations of its own, and of others


def _own_reservations(snapshot: ClusterSnapshot, pod: PodRecord) -> Iterator[ReservationInfo]:
    """Reservations and holds for the pod itself, usable now or once they are Available."""
    reservations = snapshot.cluster.reservations
    yield from reservations.preemption_holds.get(pod.uid, {}).values()
    for spec in reservations.matching(pod.cls):
        for reservation in reservations.members.get(spec, {}).values():
            if reservation.waiting or reservations.is_usable(reservation):
                yield reservation


def own_entries(snapshot: ClusterSnapshot, pod: PodRecord, row: int) -> Iterator[ReservationEntry]:
    """The entries on a row of reservations and holds for the pod itself."""
    reservations = snapshot.cluster.reservations
    matching = reservations.matching(pod.cls)
    for entry in snapshot.cluster.ledger.reservations.on(row):
        reservation = entry.reservation
        is_owner = reservation.owner_spec_id in matching or reservation.preemptor == pod.uid
        if is_owner and (reservation.waiting or reservations.is_usable(reservation)):
            yield entry


def is_of_its_job(snapshot: ClusterSnapshot, pod: PodRecord, reservation: ReservationInfo) -> bool:
    """Whether a hold is for another pod of the pod's job."""
    if kind_of_holder(snapshot, reservation) not in ("StarvationHold", "PreemptionHold"):
        return False
    other = snapshot.cluster.pods.get(reservation.preemptor or pod_of(reservation))
    return other is not None and bool(pod.job_name) and other.job_name == pod.job_name


def waiting_for(snapshot: ClusterSnapshot, pod: PodRecord) -> list[ReservationInfo]:
    """Its own reservations that wait for capacity on their nodes."""
    return [each for each in _own_reservations(snapshot, pod) if each.waiting and each.entry]


def device_slots(snapshot: ClusterSnapshot, pod: PodRecord, entry: ReservationEntry) -> list[int]:
    """The slots of a reservation whose devices the pod requests too, perhaps by another name."""
    name = snapshot.cluster.nodes.slots.name
    kinds = {TYPE_OF[name(slot)] for slot in requested(pod) if name(slot) in TYPE_OF}
    return [slot for slot in entry.amounts if TYPE_OF.get(name(slot)) in kinds]


def holders_on(snapshot: ClusterSnapshot, pod: PodRecord, rows: Iterable[int]) -> list[Holder]:
    """The reservations of others that keep some of what the pod requests."""
    cluster = snapshot.cluster
    asked = requested(pod)
    found = []
    for row in rows:
        own = {entry.pod.uid for entry in own_entries(snapshot, pod, row)}
        for entry in cluster.ledger.reservations.on(row):
            same = dict.fromkeys((*asked, *device_slots(snapshot, pod, entry)))
            idle = {slot: _kept(snapshot, entry, slot) for slot in same if slot != PODS}
            kept = {slot: amount for slot, amount in idle.items() if amount > 0}
            if entry.pod.uid in own or is_of_its_job(snapshot, pod, entry.reservation):
                continue
            is_starvation_hold = kind_of_holder(snapshot, entry.reservation) == "StarvationHold"
            if kept or (is_starvation_hold and cluster.settings.holds_nodes):
                found.append(_holder(snapshot, entry, kept, _has_same_owners(pod, entry)))
        found += _planned_holders(snapshot, pod, row)
    return found


def _planned_holders(snapshot: ClusterSnapshot, pod: PodRecord, row: int) -> Iterator[Holder]:
    """The reservations planned on a row that will take some of what the pod requests, the first one
    first."""
    slots, asked = snapshot.cluster.nodes.slots, requested(pod)
    needed = planned_on(snapshot, pod, row)
    plans = plans_on(snapshot, pod, row)
    for planned in sorted(plans, key=lambda each: (each.start, each.reservation.name)):
        taken = {slot: amount for slot, amount in planned.amounts.items() if slot in asked and amount}
        if taken.keys() & needed.keys():
            taken.pop(PODS, None)
            yield Holder(
                node=snapshot.cluster.nodes.name(row),
                kind="Reservation",
                name=planned.reservation.name,
                phase="Planned",
                held_for=held_for(snapshot, planned.reservation),
                amounts={slots.name(s): shown(slots.name(s), taken[s]) for s in taken},
                expires=format_time(planned.end) if planned.end < math.inf else "",
                expected_start=format_time(planned.start),
            )


def plans_on(snapshot: ClusterSnapshot, pod: PodRecord, row: int) -> list[PlannedReservation]:
    """The reservations planned on a row that restrict what may start there now."""
    plans = snapshot.cluster.reservations.calendar.on(row)
    if pod.cls.is_planned:
        return []
    return plans if pod.cls.pre_allocation else [each for each in plans if each.binds]


def _has_same_owners(pod: PodRecord, entry: ReservationEntry) -> bool:
    """Whether the pod is the reserve pod of a reservation for the same owners."""
    own, other = pod.reservation, entry.reservation
    if own is None or other.preemptor:
        return False
    return own.owner_spec_id >= 0 and own.owner_spec_id == other.owner_spec_id


def _kept(snapshot: ClusterSnapshot, entry: ReservationEntry, slot: int) -> int:
    """What a reservation keeps from others on its node. One that waits claims more than is there."""
    left = entry.left(slot)
    if not entry.reservation.waiting:
        return left
    table = snapshot.cluster.nodes
    used = table.claimed.item(slot, entry.row) - table.held.item(slot, entry.row)
    return min(left, table.allocatable.item(slot, entry.row) - used)


def _holder(
    snapshot: ClusterSnapshot, entry: ReservationEntry, kept: Amounts, same_owners: bool
) -> Holder:
    cluster, reservation = snapshot.cluster, entry.reservation
    slots = cluster.nodes.slots
    start = cluster.jobs.planner.expected_start(reservation) if reservation.waiting else None
    return Holder(
        node=cluster.nodes.name(entry.row),
        kind=kind_of_holder(snapshot, reservation),
        name=reservation.name,
        phase="Waiting" if reservation.waiting else "Available",
        held_for=held_for(snapshot, reservation),
        amounts={slots.name(slot): shown(slots.name(slot), amount) for slot, amount in kept.items()},
        expires=format_time(reservation.expires) if reservation.expires is not None else "",
        expected_start=format_time(start) if start is not None else "",
        since=_hold_since(reservation),
        same_owners=same_owners,
    )


def _hold_since(reservation: ReservationInfo) -> str:
    created = reservation.object.metadata.creation_timestamp
    is_hold = HOLD_LABEL in reservation.object.metadata.labels or reservation.preemptor
    return str(created) if is_hold and created else ""


def kind_of_holder(snapshot: ClusterSnapshot, reservation: ReservationInfo) -> str:
    if snapshot.cluster.reservations.starvation_holds.knows(reservation):
        return "StarvationHold"
    if reservation.preemptor:
        return "PreemptionHold"
    return "VirtualReservation" if reservation.virtual else "Reservation"


def kind_text(kind: str) -> str:
    return {
        "StarvationHold": "starvation hold",
        "PreemptionHold": "preemption hold",
        "VirtualReservation": "virtual reservation",
    }.get(kind, "reservation")


def missing_node(snapshot: ClusterSnapshot, name: str) -> str | None:
    """None if the node exists; otherwise `; did you mean node-1?`, or empty if no name is similar."""
    table = snapshot.cluster.nodes
    row = table.row(name)
    if row is not None and table.alive[row]:
        return None
    return did_you_mean(name, (known for known, row in table.names() if table.alive[row]))


def held_for(snapshot: ClusterSnapshot, reservation: ReservationInfo) -> str:
    """The job or pod that a hold is for; the owners of any other reservation."""
    cluster = snapshot.cluster
    uid = reservation.preemptor
    if cluster.reservations.starvation_holds.knows(reservation):
        uid = pod_of(reservation)
    pod = cluster.pods.get(uid) if uid else None
    if pod is not None:
        return pod.job_name or str(pod.ref)
    if uid:
        return f"a pod with uid {uid}"
    return " or ".join(_owner_text(owner) for owner in reservation.object.spec.owners)


def _owner_text(owner: ReservationOwner) -> str:
    """`pods with app=web in namespace default`, `Pod default/web-0`"""
    parts, inside = [], ""
    if owner.object is not None:
        kind, name = owner.object.kind or "Pod", owner.object.name or owner.object.uid
        where = f"{owner.object.namespace}/" if owner.object.namespace else ""
        if name:
            parts.append(f"{kind} {where}{name}")
        elif owner.object.namespace:
            inside = f" in namespace {owner.object.namespace}"
    if owner.controller is not None:
        where = f"{owner.controller.namespace}/" if owner.controller.namespace else ""
        parts.append(
            f"pods of {owner.controller.kind} {where}{owner.controller.name}".replace("  ", " ")
        )
    if owner.label_selector is not None:
        labels = [f"{key}={value}" for key, value in owner.label_selector.match_labels.items()]
        labels += [
            f"{each.key} {each.operator} ({', '.join(each.values)})"
            for each in owner.label_selector.match_expressions
        ]
        parts.append(f"pods with {','.join(labels)}" if labels else "all pods")
    return f"{' and '.join(parts) or 'all pods'}{inside}"


def holder_text(holder: Holder, now: float) -> str:
    """`reservation peak keeps 6 cpu on node-1 for pods with app=web (Available, expires in 23h)`; about
    another reservation for them: `… on node-1 for the same owners, pods with app=web (…)`"""
    amounts = ", ".join(f"{amount} {name}" for name, amount in holder.amounts.items())
    if holder.phase == "Planned":
        start = in_time(parse_time(holder.expected_start), now)
        until = f" until {holder.expires}" if holder.expires else ""
        return (
            f"reservation {holder.name} takes {amounts} on {holder.node} from {holder.expected_start} "
            f"({start}){until}, for {holder.held_for}"
        )
    notes = [f"{holder.phase} since {holder.since}" if holder.since else holder.phase]
    if holder.phase == "Waiting":
        start = holder.expected_start
        notes.append(
            f"expected to start {in_time(parse_time(start), now)}" if start else "start unknown"
        )
    if holder.expires:
        notes.append(f"expires {in_time(parse_time(holder.expires), now)}")
    kind = kind_text(holder.kind)
    idle = " idle" if holder.phase == "Waiting" else ""
    if not amounts:
        keeps = f"keeps other pods off {holder.node}, for {holder.held_for}"
        return f"{kind} {holder.name} {keeps} ({', '.join(notes)})"
    whom = f"the same owners, {holder.held_for}" if holder.same_owners else holder.held_for
    return (
        f"{kind} {holder.name} keeps {amounts}{idle} on {holder.node} for {whom} ({', '.join(notes)})"
    )


def in_time(time: float, now: float) -> str:
    """`in 12m`, or `at` a time far away."""
    seconds = max(0, round(time - now))
    for unit, size in (("d", 86400), ("h", 3600), ("m", 60)):
        if seconds >= 2 * size:
            return f"in {seconds // size}{unit}"
    return f"in {seconds}s"


def pods_text(pods: Iterable[PodRecord]) -> str:
    """`default/a, default/b, and 3 more`"""
    return few([f"{pod.namespace}/{pod.name}" for pod in pods], _FEW)


# Ends


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
        if entry.pod.uid in own or reservation.expires is None or is_hold:
            continue
        if reservation.expires > snapshot.now:
            changes = (delete(RESERVATION, reservation.name),)
            name = f"reservation {reservation.name}"
            found.append(ExpectedEnd(reservation.expires, name, changes, dict(entry.remaining)))
    for planned in plans_on(snapshot, pod, row):
        # Without Evict, pods that use it may stay; and a schedule plans the next one meanwhile.
        evicts = planned.reservation.calendar.at_end == AtEnd.EVICT
        if evicts and planned.end < math.inf and not schedule_of(snapshot, planned):
            changes = (delete(RESERVATION, planned.reservation.name),)
            name = f"reservation {planned.reservation.name}"
            found.append(ExpectedEnd(planned.end, name, changes, dict(planned.amounts)))
    return sorted(found, key=lambda each: (each.time, each.name))


def schedule_of(snapshot: ClusterSnapshot, planned: PlannedReservation) -> Raw | None:
    """The ReservationSchedule that made a planned reservation and would make it again."""
    for owner in planned.reservation.object.metadata.owner_references:
        if owner.kind == SCHEDULE.kind and owner.controller:
            raw = snapshot.find(SCHEDULE, owner.name)
            if raw is not None and not (raw.get("spec") or {}).get("suspend"):
                return raw
    return None


def expected_end(snapshot: ClusterSnapshot, pod: PodRecord) -> float | None:
    """When the pod should end, by its run-time estimate or its deletion; None if that is unknown."""
    end = snapshot.cluster.jobs.estimates.expected_end(pod)
    if pod.cls.terminating:
        deadline = deletion_deadline(snapshot.find(POD, pod.name, pod.namespace))
        if deadline is not None and deadline > snapshot.now:
            return deadline if end is None else min(end, deadline)
    return end


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
