"""Reservations whose deletion would free what a pod lacks: those on a node, and those planned there.

Holds are not considered: the scheduler would make them again.
"""

from collections import Counter
from collections.abc import Iterator

from holdfast.api.plurals import plural
from holdfast.explanation.advice.advisor import Advisor
from holdfast.explanation.facts.capacity import missing_on, plans_on
from holdfast.explanation.facts.expected_ends import SCHEDULE, schedule_of
from holdfast.explanation.facts.holders import device_slots, kind_of_holder
from holdfast.explanation.facts.own_reservations import own_entries, waiting_for
from holdfast.explanation.repairs.host_ports import conflicting_ports
from holdfast.explanation.repairs.repair import DELETE_RESERVATION, Repair, repair
from holdfast.scheduler.cluster.records import PodRecord, ReservationEntry
from holdfast.scheduler.cluster.slots import PODS, Amounts
from holdfast.scheduler.reservations.calendar import PlannedReservation
from holdfast.snapshot.cluster_changes import delete, patch
from holdfast.snapshot.cluster_snapshot import RESERVATION, RESOURCE_CLAIM, ClusterSnapshot

_TRIED = 3


def consider_deletions(advisor: Advisor, pod: PodRecord, row: int) -> None:
    """The fewest reservations on a row, or planned there, without which the pod would be scheduled."""
    snapshot = advisor.snapshot
    for each in reservation_deletions(snapshot, pod, row):
        if advisor.propose_once(("Delete",), each):
            break
    missing = missing_on(snapshot, pod, row)
    if missing:
        consider_plan_deletions(advisor, _plans_of_others(snapshot, pod, row), row, missing)


def consider_own_deletions(advisor: Advisor, pod: PodRecord) -> None:
    """The pod's own reservation that waits, without which it may use what is free: the capacity that is
    free on the node goes to the reservation until that has all of its own."""
    snapshot = advisor.snapshot
    for reservation in waiting_for(snapshot, pod):
        if kind_of_holder(snapshot, reservation) == "Reservation" and reservation.entry is not None:
            entry = reservation.entry
            advisor.propose_once(("Delete",), _without_reservations(snapshot, [entry], entry.row))


def consider_plan_deletions(
    advisor: Advisor, plans: list[PlannedReservation], row: int, missing: Amounts
) -> None:
    for each in plan_deletions(advisor.snapshot, plans, row, missing):
        if advisor.propose_once(("DeletePlans",), each):
            return


def deletion_steps(snapshot: ClusterSnapshot, pod: PodRecord, row: int) -> Iterator[Repair]:
    yield from reservation_deletions(snapshot, pod, row)
    missing = missing_on(snapshot, pod, row)
    if missing:
        yield from plan_deletions(snapshot, _plans_of_others(snapshot, pod, row), row, missing)


def reservation_deletions(snapshot: ClusterSnapshot, pod: PodRecord, row: int) -> Iterator[Repair]:
    """The reservations of others on a row that keep what is missing there: each that has enough, then
    all of them."""
    missing = missing_on(snapshot, pod, row)
    entries = [
        entry
        for entry in _of_others(snapshot, pod, row)
        if (
            any(entry.left(slot) for slot in missing)
            or conflicting_ports(pod, entry.pod)
            or (pod.cls.claims and snapshot.cluster.claims.held.of(entry.pod.uid))
            or any(entry.left(slot) for slot in device_slots(snapshot, pod, entry))
        )
    ]
    enough = [
        entry
        for entry in entries
        if all(entry.left(slot) >= lack for slot, lack in missing.items() if slot != PODS)
        and (not pod.cls.ports or conflicting_ports(pod, entry.pod))
    ]
    enough.sort(key=lambda entry: entry.reservation.name)
    # Whether the devices of one are enough is known only once it is tried.
    devices = pod.cls.claims or any(device_slots(snapshot, pod, entry) for entry in entries)
    sets = [[entry] for entry in (enough if devices else enough[:1])[:_TRIED]]
    if devices or not sets:
        sets.append(entries)
    for chosen in sets:
        if chosen:
            yield _without_reservations(snapshot, chosen, row)


def freed_by_deletion(snapshot: ClusterSnapshot, pod: PodRecord, row: int) -> Amounts:
    """What the reservations of others on a row keep, by slot."""
    freed: Counter[int] = Counter()
    for entry in _of_others(snapshot, pod, row):
        freed.update({slot: entry.left(slot) for slot in entry.amounts})
    return freed


def _of_others(snapshot: ClusterSnapshot, pod: PodRecord, row: int) -> list[ReservationEntry]:
    own = {entry.pod.uid for entry in own_entries(snapshot, pod, row)}
    return [
        entry
        for entry in snapshot.cluster.ledger.reservations.on(row)
        if entry.pod.uid not in own and kind_of_holder(snapshot, entry.reservation) == "Reservation"
    ]


def _plans_of_others(snapshot: ClusterSnapshot, pod: PodRecord, row: int) -> list[PlannedReservation]:
    """Those on a row that the pod may not use once they have started."""
    own = snapshot.cluster.reservations.matching(pod.cls)
    return [each for each in plans_on(snapshot, pod, row) if each.reservation.owner_spec_id not in own]


def _without_reservations(
    snapshot: ClusterSnapshot, entries: list[ReservationEntry], row: int
) -> Repair:
    """Deletes these reservations, with the claims with which they hold devices."""
    claims = snapshot.cluster.claims
    names = sorted(entry.reservation.name for entry in entries)
    objects = [delete(RESERVATION, name) for name in names]
    held = [key for entry in entries for key in claims.held.of(entry.pod.uid)]
    objects += [delete(RESOURCE_CLAIM, key.name, key.namespace) for key in held]
    noun = plural(len(names), "reservation")
    node = snapshot.cluster.nodes.name(row)
    text = f"delete the {noun} {', '.join(names)} on {node}"
    return repair(text, "DeleteReservation", objects, DELETE_RESERVATION)


def plan_deletions(
    snapshot: ClusterSnapshot, plans: list[PlannedReservation], row: int, missing: Amounts
) -> Iterator[Repair]:
    """The planned reservations that will take what is missing: each of the first, then all. One that a
    schedule made goes with the schedule, which is suspended."""
    taking = [each for each in plans if each.amounts.keys() & missing.keys()]
    taking.sort(key=lambda each: (each.start, each.reservation.name))
    sets = [[each] for each in taking[:_TRIED]]
    if len(taking) > 1:
        sets.append(taking)
    for chosen in sets:
        yield _without_plans(snapshot, chosen, row)


def _without_plans(snapshot: ClusterSnapshot, plans: list[PlannedReservation], row: int) -> Repair:
    schedules = {
        raw["metadata"]["name"]: raw
        for each in plans
        if (raw := schedule_of(snapshot, each)) is not None
    }
    alone = [each.reservation.name for each in plans if schedule_of(snapshot, each) is None]
    objects = [delete(RESERVATION, each.reservation.name) for each in plans]
    objects += [patch(SCHEDULE, raw, {"spec": {"suspend": True}}) for raw in schedules.values()]
    texts = []
    if alone:
        noun = plural(len(alone), "reservation")
        node = snapshot.cluster.nodes.name(row)
        texts.append(f"delete the planned {noun} {', '.join(alone)} on {node}")
    if schedules:
        command = f"kubectl patch rsvs {' '.join(sorted(schedules))} --type merge -p"
        body = '{"spec":{"suspend":true}}'
        noun = plural(len(schedules), "ReservationSchedule")
        names = ", ".join(sorted(schedules))
        texts.append(f"suspend the {noun} {names} ({command} '{body}')")
    action = "DeleteReservation" if alone else "SuspendSchedule"
    return repair(" and ".join(texts), action, objects, DELETE_RESERVATION)
