"""Waiting for pods and reservations whose end is known, and for reservations that start."""

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack

from holdfast.api.names import STARTS_AT
from holdfast.api.times import format_time
from holdfast.explanation.advice.advisor import Advisor
from holdfast.explanation.facts.capacity import row_of
from holdfast.explanation.facts.expected_ends import ExpectedEnd, expected_ends, rows_freed_first
from holdfast.explanation.facts.own_reservations import waiting_for
from holdfast.explanation.phrases import in_time
from holdfast.explanation.repairs.repair import RESIZE, WAIT, Repair
from holdfast.explanation.report import few
from holdfast.explanation.verdicts import Subject, at_time, fits_on, rejection_on, starts_on
from holdfast.scheduler.cluster.records import PodRecord
from holdfast.scheduler.cluster.slots import Amounts
from holdfast.scheduler.reservations.calendar import PlannedReservation
from holdfast.snapshot.cluster_changes import ClusterChange, ObjectChange, applied, patch
from holdfast.snapshot.cluster_snapshot import RESERVATION, ClusterSnapshot

_NODES = 3
_ENDS = 40
_GANG_ENDS = 400
_LONG = 3600.0
"""Waiting for longer than this many seconds is not the cheapest change."""


def consider_wait(advisor: Advisor, pod: PodRecord, rows: list[int]) -> None:
    """Waiting for what is expected to end on one of the rows, or on the nodes of the pod's own waiting
    reservations; for the whole job of the pod, on any node."""
    if advisor.snapshot.cluster.jobs.of(pod) is not None:
        _consider_gang(advisor, pod)
        return
    reserved = waiting_for(advisor.snapshot, pod)
    own = {each.entry.row for each in reserved if each.entry is not None}
    rows = [*own, *(row for row in rows if row not in own)]
    for row in rows_freed_first(advisor.snapshot, pod, rows, _NODES):
        if _consider_on(advisor, pod, row):
            return


def consider_wait_on(advisor: Advisor, node: str) -> None:
    """Waiting for what is expected to end on the node."""
    pod = advisor.subject.record(advisor.snapshot)
    if pod is not None:
        _consider_on(advisor, pod, row_of(advisor.snapshot, node))


def consider_gang_wait(advisor: Advisor, pod: PodRecord) -> None:
    """Waiting until the whole job of the pod would start, if nothing else helps."""
    if not advisor.advice:
        _consider_gang(advisor, pod)


def consider_start(advisor: Advisor, planned: PlannedReservation, row: int) -> None:
    """Waiting until a planned reservation, which the pod may use, starts on its row."""
    snapshot = advisor.snapshot
    pod = advisor.subject.record(snapshot)
    raw = snapshot.find(RESERVATION, planned.reservation.name)
    if pod is None or raw is None:
        return
    ends = [each for each in expected_ends(snapshot, pod, row) if each.time <= planned.start]
    started = {"metadata": {"annotations": {STARTS_AT: None}}, "status": {"phase": "Available"}}
    objects = [change for each in ends for change in each.changes]
    objects.append(patch(RESERVATION, raw, started))
    advisor.propose(
        _wait(snapshot, planned.start, f"reservation {planned.reservation.name} starts", objects)
    )


def wait_steps(
    snapshot: ClusterSnapshot, subject: Subject, pod: PodRecord, row: int
) -> Iterator[Repair]:
    """Waiting until the node is rejected for another reason, or not at all."""
    before = _reason(snapshot, pod, row)
    wait = _until(snapshot, subject, pod, row, lambda then: _reason(snapshot, then, row) != before)
    if wait is not None:
        yield wait


def freed_by_waiting(snapshot: ClusterSnapshot, pod: PodRecord, row: int) -> Amounts:
    """What all that is expected to end on a row has, by slot."""
    freed: Counter[int] = Counter()
    for end in expected_ends(snapshot, pod, row)[:_ENDS]:
        freed.update(end.amounts)
    return freed


def _reason(snapshot: ClusterSnapshot, pod: PodRecord, row: int) -> tuple[str, ...]:
    if fits_on(snapshot, pod, row):
        return ()
    rejection = rejection_on(snapshot, pod, row)
    return (rejection.plugin, *rejection.texts)


def _consider_on(advisor: Advisor, pod: PodRecord, row: int) -> bool:
    snapshot = advisor.snapshot

    def is_enough(then: PodRecord) -> bool:
        return fits_on(snapshot, then, row) and not advisor.is_taken()

    wait = _until(snapshot, advisor.subject, pod, row, is_enough)
    return wait is not None and advisor.propose(wait)


def _until(
    snapshot: ClusterSnapshot,
    subject: Subject,
    pod: PodRecord,
    row: int,
    is_enough: Callable[[PodRecord], bool],
) -> Repair | None:
    """Waiting for the first pods and reservations on a row that are expected to end, as many as are
    enough."""
    ends = expected_ends(snapshot, pod, row)[:_ENDS]
    with ExitStack() as stack:
        for at, end in enumerate(ends):
            stack.enter_context(applied(snapshot, end.changes))
            then = available_reservations(snapshot, subject)
            with applied(snapshot, then), at_time(snapshot, end.time):
                record = subject.record(snapshot)
                if record is None or not is_enough(record):
                    continue
            stack.close()
            where = f" on {snapshot.cluster.nodes.name(row)}"
            return _wait_for(snapshot, ends[: at + 1], then, where)
    return None


def _consider_gang(advisor: Advisor, pod: PodRecord) -> None:
    """The first time at which the whole job would start, by bisection over all expected ends."""
    snapshot, subject = advisor.snapshot, advisor.subject
    nodes = snapshot.cluster.nodes
    alive = [row for _, row in nodes.names() if nodes.alive[row]]
    ends = sorted(end for row in alive for end in expected_ends(snapshot, pod, row))[:_GANG_ENDS]

    def helps(count: int) -> list[ObjectChange] | None:
        with applied(snapshot, [change for each in ends[:count] for change in each.changes]):
            then = available_reservations(snapshot, subject)
            with applied(snapshot, then), at_time(snapshot, ends[count - 1].time):
                starts = starts_on(snapshot, advisor.goal) and not advisor.is_taken()
                return then if starts else None

    if not ends or helps(len(ends)) is None:
        return
    low, high = 0, len(ends)
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if helps(middle) is not None else (middle, high)
    advisor.propose(_wait_for(snapshot, ends[:high], helps(high) or [], ""))


def _wait_for(
    snapshot: ClusterSnapshot, ends: list[ExpectedEnd], then: list[ObjectChange], where: str
) -> Repair:
    names = few([each.name for each in ends], _NODES)
    objects = [*(change for each in ends for change in each.changes), *then]
    return _wait(snapshot, ends[-1].time, f"{names} should end{where}", objects)


def _wait(snapshot: ClusterSnapshot, until: float, what: str, objects: list[ObjectChange]) -> Repair:
    how_long = in_time(until, snapshot.now).removeprefix("in ")
    text = f"wait {how_long}, until {format_time(until)}: {what}"
    cost = WAIT if until - snapshot.now <= _LONG else RESIZE
    return Repair(text, ClusterChange(("Wait",), tuple(objects), until), cost)


def available_reservations(snapshot: ClusterSnapshot, subject: Subject) -> list[ObjectChange]:
    """Its own reservations, and those of its job, that have their capacity now become Available."""
    pod = subject.record(snapshot)
    if pod is None:
        return []
    job = snapshot.cluster.jobs.of(pod)
    members = job.waiting() if job is not None else [pod]
    found = {each.name: each for member in members for each in waiting_for(snapshot, member)}
    return [
        patch(RESERVATION, raw, {"status": {"phase": "Available"}})
        for name, each in sorted(found.items())
        if snapshot.cluster.reservations.has_capacity(each)
        and (raw := snapshot.find(RESERVATION, name)) is not None
    ]
