"""A Waiting reservation, or one whose resize failed: how much its node is short of, which pods have it,
when they should end, and what would help. The scheduler is asked for its capacity after each change."""

from collections.abc import Iterable

from holdfast.api.plurals import number_of
from holdfast.api.times import format_time
from holdfast.explanation.advice.smaller_requests import resize
from holdfast.explanation.facts.expected_ends import (
    ended_pod,
    expected_end,
    expected_ends,
    overrun_text,
)
from holdfast.explanation.phrases import amounts_text, in_time, named_amounts, named_pods
from holdfast.explanation.repairs.repair import EVICT, WAIT, Repair, edits_migration, repair
from holdfast.explanation.report import END_PODS, Advice, Report, few
from holdfast.explanation.verdicts import Subject
from holdfast.scheduler.cluster.records import PodRecord, ReservationInfo
from holdfast.scheduler.cluster.slots import Amounts
from holdfast.scheduler.reservations.waiting_reservations import BY_CLAIM
from holdfast.snapshot.cluster_changes import ClusterChange, ObjectChange, applied, awaited
from holdfast.snapshot.cluster_snapshot import RESERVATION, ClusterSnapshot, reserved_by_name

_PODS = 8
_NAMES = 3


def explain_waiting(snapshot: ClusterSnapshot, reservation: ReservationInfo, report: Report) -> None:
    cluster, entry = snapshot.cluster, reservation.entry
    assert entry is not None
    lacking = cluster.reservations.lacking(reservation)
    needed = named_amounts(reserved_by_name(cluster, entry.amounts))
    if not lacking:
        report.summary = (
            f"It waits on {report.node}, and {needed} are free there: it is Available next."
        )
        return
    short = {
        slot: lack
        for slot, lack in cluster.reservations.waiting.shortage(reservation).items()
        if cluster.nodes.slots.name(slot)
    }
    figures = f", which is short of {amounts_text(snapshot, short)}" if short else ""
    report.summary = f"It waits until {needed} are free on {report.node}{figures}."
    others = [each for each in lacking if cluster.nodes.slots.find(each) not in short]
    if others:
        report.details.append(f"short of: {', '.join(others)}")
    pods = _in_the_way(snapshot, reservation, short, BY_CLAIM in lacking)
    report.details += _pod_lines(snapshot, pods, short)
    start = cluster.jobs.planner.expected_start(reservation)
    if start is not None and start > snapshot.now:
        report.details.append(
            f"its capacity is expected to be free at {format_time(start)} "
            f"({in_time(start, snapshot.now)})"
        )
    elif pods and any(expected_end(snapshot, pod) is None for pod in pods):
        overdue = any(overrun_text(snapshot, pod) for pod in pods)
        why = "pods have run longer than estimated" if overdue else "pods lack run-time estimates"
        report.details.append(f"when its capacity becomes free is unknown: {why}")
    report.advice = _advice(snapshot, reservation, pods, "it is Available")


def note_failed_resize(snapshot: ClusterSnapshot, reservation: ReservationInfo, report: Report) -> None:
    """Says so if the template of a reservation on a node requests more than the node has."""
    cluster, wanted = snapshot.cluster, reservation.wanted
    if reservation.waiting or wanted == reservation.amounts:
        return
    lacking = cluster.reservations.lacking(reservation, wanted)
    changed = {slot: n for slot, n in wanted.items() if n != reservation.amounts.get(slot, 0)}
    has = {slot: reservation.amounts.get(slot, 0) for slot in changed}
    texts = f"{amounts_text(snapshot, changed)} instead of {amounts_text(snapshot, has)}"
    if not lacking:
        report.summary += f" Its template requests {texts}; it is resized next."
        return
    short = {
        slot: lack
        for slot, lack in cluster.reservations.waiting.shortage(reservation, wanted).items()
        if cluster.nodes.slots.name(slot)
    }
    figures = amounts_text(snapshot, short) or ", ".join(lacking)
    report.summary += (
        f" Its resize failed: its template requests {texts}, and {report.node} is short of {figures}."
    )
    pods = _in_the_way(snapshot, reservation, short, by_claim=False)
    report.details += _pod_lines(snapshot, pods, short)
    report.advice = _advice(snapshot, reservation, pods, "it is resized")


def _in_the_way(
    snapshot: ClusterSnapshot, reservation: ReservationInfo, short: Amounts, by_claim: bool
) -> list[PodRecord]:
    """The pods on its node that have some of what is short, the first that should end first."""
    cluster, entry = snapshot.cluster, reservation.entry
    assert entry is not None
    found = [
        pod
        for pod in cluster.ledger.pods.get(entry.row, {}).values()
        if pod.reservation is None
        and pod.reservation_uid != reservation.uid
        and (
            (by_claim and pod.cls.claims)
            or any(slot in short for slot, _ in pod.cls.usage)
            or not short
        )
    ]
    ends = {pod.uid: expected_end(snapshot, pod) or float("inf") for pod in found}
    return sorted(found, key=lambda pod: (ends[pod.uid], pod.cls.priority, pod.name))


def _pod_lines(snapshot: ClusterSnapshot, pods: list[PodRecord], short: Amounts) -> list[str]:
    found = []
    for pod in pods[:_PODS]:
        has = {slot: amount for slot, amount in pod.cls.usage if slot in short}
        end = expected_end(snapshot, pod)
        when = overrun_text(snapshot, pod).replace("has", "it has", 1) or "end unknown"
        if end is not None:
            being = "it is being deleted, and " if pod.cls.terminating else ""
            when = f"{being}expected to end {in_time(end, snapshot.now)}"
        amounts = f" has {amounts_text(snapshot, has)}" if has else ""
        found.append(f"pod {pod.namespace}/{pod.name}{amounts}: {when}")
    if len(pods) > _PODS:
        found.append(f"and {number_of(len(pods) - _PODS, 'more pod')}")
    return found


# Advice


def _advice(
    snapshot: ClusterSnapshot, reservation: ReservationInfo, pods: list[PodRecord], then: str
) -> list[Advice]:
    assert reservation.entry is not None
    node = snapshot.cluster.nodes.name(reservation.entry.row)
    wait, end = _wait(snapshot, reservation), _end_pods(snapshot, reservation, pods)
    smaller = _smaller(snapshot, reservation)  # the last one: its record is another one afterwards
    return [
        Advice(f"{each.text}; then {then}", each.change.data(), [node])
        for each in (wait, smaller, end)
        if each is not None
    ]


def _has_capacity(
    snapshot: ClusterSnapshot, reservation: ReservationInfo, changes: Iterable[ObjectChange]
) -> bool:
    with applied(snapshot, changes):
        after = snapshot.cluster.reservations.get(reservation.name)
        if after is None or after.entry is None:
            return False
        if not after.waiting:
            return not snapshot.cluster.reservations.lacking(after, after.wanted)
        return snapshot.cluster.reservations.has_capacity(after)


def _smaller(snapshot: ClusterSnapshot, reservation: ReservationInfo) -> Repair | None:
    """The largest size that a reservation can be resized to, if that is more than it has."""
    if reservation.waiting:
        return None
    slots, wanted = snapshot.cluster.nodes.slots, reservation.wanted
    short = snapshot.cluster.reservations.waiting.shortage(reservation, wanted)
    sizes = {
        slots.name(slot): (wanted[slot], wanted[slot] - lack)
        for slot, lack in short.items()
        if slots.name(slot) and wanted[slot] - lack > reservation.amounts.get(slot, 0)
    }
    if len(sizes) < len(short):
        return None
    smaller = resize(snapshot, Subject(RESERVATION, reservation.name), sizes)
    if smaller is None or any(edits_migration(snapshot, each) for each in smaller.change.objects):
        return None
    if not _has_capacity(snapshot, reservation, smaller.change.objects):
        return None
    return smaller


def _wait(snapshot: ClusterSnapshot, reservation: ReservationInfo) -> Repair | None:
    """The first time at which enough has ended, of what is known to end."""
    entry = reservation.entry
    assert entry is not None
    own = f"reservation {reservation.name}"
    ends = [each for each in expected_ends(snapshot, entry.pod, entry.row) if each.name != own]
    expires = float("inf") if reservation.expires is None else reservation.expires
    for count in range(1, sum(each.time < expires for each in ends) + 1):
        changes = tuple(change for each in ends[:count] for change in each.changes)
        if _has_capacity(snapshot, reservation, changes):
            until, names = ends[count - 1].time, few([each.name for each in ends[:count]], _NAMES)
            how_long = in_time(until, snapshot.now).removeprefix("in ")
            text = f"wait {how_long}, until {format_time(until)}: {names} should end"
            return Repair(text, ClusterChange(("Wait",), tuple(awaited(changes)), until), WAIT)
    return None


def _end_pods(
    snapshot: ClusterSnapshot, reservation: ReservationInfo, pods: list[PodRecord]
) -> Repair | None:
    """The fewest pods of low priority whose end is enough: one, or as many as are needed."""
    ranked = sorted(pods, key=lambda pod: (pod.cls.is_daemon, pod.cls.priority, pod.name))
    ranked = [pod for pod in ranked if not pod.cls.is_daemon]
    sets = [[pod] for pod in ranked] + [ranked[:count] for count in range(2, len(ranked) + 1)]
    for chosen in sets:
        changes = [change for pod in chosen for change in ended_pod(snapshot, pod)]
        if _has_capacity(snapshot, reservation, changes):
            return repair(f"end {named_pods(chosen)}", END_PODS, changes, EVICT)
    return None
