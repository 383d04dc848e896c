"""Waiting for pods and reservations whose end is known, and for reservations that start.

Where others are tried before the pod and take what becomes free, they are started as soon as they fit,
and their own ends are waited for: the time is that of `holdfast when`, as far as ends are known.
"""

from bisect import insort
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack

from holdfast.api.names import STARTS_AT
from holdfast.api.times import format_time
from holdfast.explanation.advice.advisor import Advisor
from holdfast.explanation.advice.forecast_waits import forecast_of
from holdfast.explanation.facts.capacity import row_of
from holdfast.explanation.facts.expected_ends import (
    ExpectedEnd,
    ended_pod,
    expected_end,
    expected_ends,
    rows_freed_first,
)
from holdfast.explanation.facts.other_pods import taker_names
from holdfast.explanation.facts.own_reservations import waiting_for
from holdfast.explanation.facts.rehearsed_rounds import ended_holds, started_before
from holdfast.explanation.phrases import in_time
from holdfast.explanation.repairs.repair import RESIZE, WAIT, Repair
from holdfast.explanation.report import few
from holdfast.explanation.verdicts import Subject, at_time, fits_on, rejection_on, starts_on
from holdfast.scheduler.cluster.records import PodRecord
from holdfast.scheduler.cluster.slots import Amounts
from holdfast.scheduler.reservations.calendar import PlannedReservation
from holdfast.snapshot.cluster_changes import (
    ClusterChange,
    ObjectChange,
    applied,
    awaited,
    delete,
    patch,
)
from holdfast.snapshot.cluster_snapshot import POD, RESERVATION, ClusterSnapshot

_NODES = 3
_ENDS = 40
_GANG_ENDS = 400
_PLAYED = 60
"""How many times are played at which something ends."""
_LONG = 3600.0
"""Waiting for longer than this many seconds is not the cheapest change."""


def consider_wait(advisor: Advisor, pod: PodRecord, rows: list[int]) -> None:
    """Waiting for what is expected to end on one of the rows, or on the nodes of the pod's own waiting
    reservations; for the whole job of the pod, on any node."""
    if advisor.snapshot.cluster.jobs.of(pod) is not None:
        _consider_gang(advisor, pod)
        return
    if advisor.has_siblings and _consider_for_all(advisor, pod):
        return
    reserved = waiting_for(advisor.snapshot, pod)
    own = {each.entry.row for each in reserved if each.entry is not None}
    rows = [*own, *(row for row in rows if row not in own)]
    taken = len(advisor.takers)
    found = (
        wait
        for row in rows_freed_first(advisor.snapshot, pod, rows, _NODES)
        if (wait := _wait_on(advisor, pod, row)) is not None
    )
    for wait in found:
        behind = _wait_behind(advisor, pod) if len(advisor.takers) > taken else None
        if (behind is not None and advisor.propose(behind)) or advisor.propose(wait):
            return
    behind = _wait_behind(advisor, pod) if len(advisor.takers) > taken else None
    if behind is None or not advisor.propose(behind):
        _consider_forecast(advisor)


def _consider_for_all(advisor: Advisor, pod: PodRecord) -> bool:
    """Waiting until all pods of the workload would start, by bisection over all expected ends."""
    snapshot = advisor.snapshot
    ends = _all_ends(snapshot, pod)[:_GANG_ENDS]

    def wait(count: int) -> Repair:
        return _wait_for(snapshot, ends[:count], [], "")

    if not ends or not advisor.is_enough(wait(len(ends))):
        return False
    low, high = 0, len(ends)
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if advisor.is_enough(wait(middle)) else (middle, high)
    advisor.waits_for_all = True
    try:
        return advisor.propose(wait(high))
    finally:
        advisor.waits_for_all = False


def _all_ends(snapshot: ClusterSnapshot, pod: PodRecord) -> list[ExpectedEnd]:
    """What is expected to end on any node, the first first."""
    nodes = snapshot.cluster.nodes
    alive = [row for _, row in nodes.names() if nodes.alive[row]]
    return sorted(end for row in alive for end in expected_ends(snapshot, pod, row))


def _consider_forecast(advisor: Advisor) -> None:
    """Waiting for what ends otherwise: on another node, or a reservation that keeps the pod off in
    another way than by its capacity."""
    snapshot = advisor.snapshot
    if advisor.before or not isinstance(advisor.goal, Subject) or not _anything_ends(snapshot):
        return
    found = forecast_of(snapshot, advisor.goal)
    if found is not None and found.time is not None and found.time >= snapshot.now + 1:
        advisor.propose_forecast(found)


def _anything_ends(snapshot: ClusterSnapshot) -> bool:
    cluster = snapshot.cluster
    if any(not each.finished and each.expires for each in cluster.reservations.known.values()):
        return True
    return any(each.row >= 0 and expected_end(snapshot, each) for each in cluster.pods.values())


def consider_wait_on(advisor: Advisor, node: str) -> None:
    """Waiting for what is expected to end on the node."""
    pod = advisor.subject.record(advisor.snapshot)
    if pod is None:
        return
    wait = _wait_on(advisor, pod, row_of(advisor.snapshot, node))
    if wait is not None:
        advisor.propose(wait)


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


def _wait_on(advisor: Advisor, pod: PodRecord, row: int) -> Repair | None:
    """Waiting for what is expected to end on a row, until the pod fits there and no other takes it."""
    snapshot = advisor.snapshot

    def is_enough(then: PodRecord) -> bool:
        return fits_on(snapshot, then, row) and not advisor.is_taken()

    return _until(snapshot, advisor.subject, pod, row, is_enough)


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
            then = available_reservations(snapshot)
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
    snapshot = advisor.snapshot
    ends = _all_ends(snapshot, pod)[:_GANG_ENDS]

    def helps(count: int, is_first: bool = True) -> list[ObjectChange] | None:
        """What follows once so many have ended, if it then starts: also where others take that, unless
        it is the first that counts."""
        with applied(snapshot, [change for each in ends[:count] for change in each.changes]):
            then = available_reservations(snapshot)
            with applied(snapshot, then), at_time(snapshot, ends[count - 1].time):
                starts = starts_on(snapshot, advisor.goal) and not (is_first and advisor.is_taken())
                return then if starts else None

    def least(is_first: bool) -> int:
        low, high = 0, len(ends)
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (low, middle) if helps(middle, is_first) is not None else (middle, high)
        return high

    if not ends or helps(len(ends), is_first=False) is None:
        return
    soonest = least(is_first=False)
    if (then := helps(soonest)) is not None:
        advisor.propose(_wait_for(snapshot, ends[:soonest], then, ""))
        return
    behind = _wait_behind(advisor, pod)
    if behind is not None and advisor.propose(behind):
        return
    if helps(len(ends)) is not None:
        enough = least(is_first=True)
        advisor.propose(_wait_for(snapshot, ends[:enough], helps(enough) or [], ""))


def _wait_behind(advisor: Advisor, pod: PodRecord) -> Repair | None:
    """Waiting until those that are tried before it have started, and as many have ended as is enough;
    None if that is not known."""
    snapshot, goal = advisor.snapshot, advisor.goal
    coming, ended = _all_ends(snapshot, pod), list[ExpectedEnd]()
    first_started: dict[str, None] = {}
    made: list[ObjectChange] = []
    time = snapshot.now
    with ExitStack() as stack:
        for _ in range(_PLAYED):
            with at_time(snapshot, time):
                with started_before(snapshot, goal) as others:
                    starts = [_start_on_node(snapshot, each) for each in others]
                    first_started |= dict.fromkeys(taker_names(snapshot, others))
                    released = ended_holds(snapshot, others)
                for change, end in starts:
                    stack.enter_context(applied(snapshot, [change]))
                    made.append(change)
                    if end is not None:
                        insort(coming, end)
                stack.enter_context(applied(snapshot, released))
                made += released
                then = available_reservations(snapshot)
                with applied(snapshot, then):
                    is_enough = bool(ended and starts_on(snapshot, goal))
            if is_enough:
                break
            if not coming:
                return None
            time = max(time, coming[0].time)
            while coming and coming[0].time <= time:
                ended.append(coming.pop(0))
                stack.enter_context(applied(snapshot, ended[-1].changes))
        else:
            return None
    gone = {(each.info, each.namespace, each.name) for end in ended for each in end.changes}
    made = [each for each in made if (each.info, each.namespace, each.name) not in gone]
    behind = f"; {few(list(first_started), _NODES)} should start before" if first_started else ""
    return _wait_for(snapshot, ended, [*made, *then], behind)


def _start_on_node(
    snapshot: ClusterSnapshot, pod: PodRecord
) -> tuple[ObjectChange, ExpectedEnd | None]:
    """The change by which a pod or reservation that would start has its node, and when it ends then."""
    node, subject = snapshot.cluster.nodes.name(pod.row), Subject.of(pod)
    raw, usage = subject.raw(snapshot), dict(pod.cls.usage)
    if pod.reservation is not None:
        body = {"status": {"phase": "Available", "nodeName": node}}
        change, end = patch(RESERVATION, raw, body, follows=True), pod.reservation.expires
        ended = ExpectedEnd(
            end or 0.0, f"reservation {pod.name}", (delete(RESERVATION, pod.name),), usage
        )
        return change, ended if end is not None else None
    change = patch(POD, raw, {"spec": {"nodeName": node}}, follows=True)
    estimate = snapshot.cluster.jobs.estimates.of(pod)
    if estimate is None:
        return change, None
    name, gone = f"pod {pod.namespace}/{pod.name}", tuple(ended_pod(snapshot, pod))
    return change, ExpectedEnd(snapshot.cluster.now + estimate, name, gone, usage)


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
    return Repair(text, ClusterChange(("Wait",), tuple(awaited(objects)), until), cost)


def available_reservations(snapshot: ClusterSnapshot) -> list[ObjectChange]:
    """Reservations and holds that wait and have their capacity now become Available: its own, and those
    of others, which then start without what is free besides."""
    reservations = snapshot.cluster.reservations
    return [
        patch(RESERVATION, raw, {"status": {"phase": "Available"}}, follows=True)
        for each in sorted(reservations.known.values(), key=lambda each: each.name)
        if each.waiting
        and each.entry is not None
        and reservations.has_capacity(each)
        and (raw := snapshot.find(RESERVATION, each.name)) is not None
    ]
