"""Reservations and holds that keep capacity on a node from a pod, and whom they are for."""

import math
from collections import Counter
from collections.abc import Iterable, Iterator

from holdfast.api.names import HOLD_LABEL
from holdfast.api.plurals import plural
from holdfast.api.reservation import ReservationOwner
from holdfast.api.times import format_time, parse_time
from holdfast.explanation.facts.capacity import planned_on, plans_on, requested
from holdfast.explanation.facts.own_reservations import own_entries
from holdfast.explanation.phrases import in_time
from holdfast.explanation.report import Holder
from holdfast.scheduler.cluster.records import PodRecord, ReservationEntry, ReservationInfo
from holdfast.scheduler.cluster.slots import PODS, Amounts
from holdfast.scheduler.managers.devices.requests import TYPE_OF
from holdfast.scheduler.reservations.starvation_holds import pod_of
from holdfast.scheduler.reservations.waiting_reservations import comes_before
from holdfast.snapshot.cluster_snapshot import ClusterSnapshot, shown

_HOLDS = ("StarvationHold", "PreemptionHold")
"""What the scheduler makes for a job or pod by itself, and deletes when it has started."""


def holders_on(snapshot: ClusterSnapshot, pod: PodRecord, rows: Iterable[int]) -> list[Holder]:
    """The reservations of others that keep some of what the pod requests."""
    cluster = snapshot.cluster
    asked = requested(pod)
    matching = cluster.reservations.matching(pod.cls)
    found = []
    for row in rows:
        own = {entry.pod.uid for entry in own_entries(snapshot, pod, row)}
        for entry in cluster.ledger.reservations.on(row):
            same = dict.fromkeys((*asked, *device_slots(snapshot, pod, entry)))
            idle = {slot: _kept(snapshot, entry, slot) for slot in same if slot != PODS}
            kept = {slot: amount for slot, amount in idle.items() if amount > 0}
            if pod.job is not None and entry.pod.job == pod.job:
                continue  # another reservation of the gang, which is tried with it
            if pod.job is not None and entry.reservation.owner_spec_id in matching:
                continue  # its own, which another member takes
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


def device_slots(snapshot: ClusterSnapshot, pod: PodRecord, entry: ReservationEntry) -> list[int]:
    """The slots of a reservation whose devices the pod requests too, perhaps by another name."""
    name = snapshot.cluster.nodes.slots.name
    kinds = {TYPE_OF[name(slot)] for slot in requested(pod) if name(slot) in TYPE_OF}
    return [slot for slot in entry.amounts if TYPE_OF.get(name(slot)) in kinds]


def is_of_its_job(snapshot: ClusterSnapshot, pod: PodRecord, reservation: ReservationInfo) -> bool:
    """Whether a hold is for another pod of the pod's job."""
    if kind_of_holder(snapshot, reservation) not in _HOLDS:
        return False
    other = snapshot.cluster.pods.get(reservation.preemptor or pod_of(reservation))
    return other is not None and bool(pod.job_name) and other.job_name == pod.job_name


def _has_same_owners(pod: PodRecord, entry: ReservationEntry) -> bool:
    """Whether the pod is the reserve pod of a reservation for the same owners."""
    own, other = pod.reservation, entry.reservation
    if own is None or other.preemptor:
        return False
    return own.owner_spec_id >= 0 and own.owner_spec_id == other.owner_spec_id


def _kept(snapshot: ClusterSnapshot, entry: ReservationEntry, slot: int) -> int:
    """What a reservation keeps from others on its node. One that waits claims more than is there: it
    keeps what pods, Available reservations and those that have waited longer leave."""
    left = entry.left(slot)
    if not entry.reservation.waiting:
        return left
    table, others = snapshot.cluster.nodes, snapshot.cluster.ledger.reservations.on(entry.row)
    used = table.claimed.item(slot, entry.row) - table.held.item(slot, entry.row)
    for other in others:
        is_first = not other.reservation.waiting or comes_before(other.reservation, entry.reservation)
        if other is not entry and is_first:
            used += other.left(slot)
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


def holds_text(holders: list[Holder]) -> str:
    """`the starvation holds of PodGroup/default/big end when it starts, …`; empty if none is a hold."""
    counts = Counter((each.kind, each.held_for) for each in holders if each.kind in _HOLDS)
    if not counts:
        return ""
    of = ", ".join(
        f"the {plural(count, kind_text(kind))} of {whom} {plural(count, 'ends', 'end')} when it starts"
        for (kind, whom), count in counts.items()
    )
    again = plural(counts.total(), "it", "them")
    return f"{of}, and deleting {again} is not advised: the scheduler makes {again} again"


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
            f"{each.key} {each.operator}" + (f" ({', '.join(each.values)})" if each.values else "")
            for each in owner.label_selector.match_expressions
        ]
        parts.append(f"pods with {','.join(labels)}" if labels else "all pods")
    return f"{' and '.join(parts) or 'all pods'}{inside}"


def holder_text(holder: Holder, now: float) -> str:
    """`reservation peak keeps 6 cpu on node-1 for pods with app=web (Available, expires in 23h)`; about
    another reservation for them: `… on node-1 for the same owners, pods with app=web (…)`; about a
    hold: `… on node-1 for PodGroup/default/big until it starts (…)`"""
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
    until = " until it starts" if holder.kind in _HOLDS else ""
    if not amounts:
        keeps = f"keeps other pods off {holder.node}, for {holder.held_for}{until}"
        return f"{kind} {holder.name} {keeps} ({', '.join(notes)})"
    whom = f"the same owners, {holder.held_for}" if holder.same_owners else f"{holder.held_for}{until}"
    return (
        f"{kind} {holder.name} keeps {amounts}{idle} on {holder.node} for {whom} ({', '.join(notes)})"
    )
