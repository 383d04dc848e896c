"""Changes of several members, or of several nodes, that together let a gang start.

The members are placed as the scheduler would, a change is made after which one more of them has a node,
and so on until enough of them have one.
"""

from collections.abc import Iterable
from typing import NamedTuple

from holdfast.explanation.advice.advisor import Advisor
from holdfast.explanation.advice.deletions import deletion_steps
from holdfast.explanation.advice.evictions import eviction_steps
from holdfast.explanation.advice.largest_requests import raised
from holdfast.explanation.advice.smaller_requests import merged_sizes, resize
from holdfast.explanation.facts.capacity import missing_on, requested, shortages
from holdfast.explanation.phrases import pod_text
from holdfast.explanation.repairs.node_repairs import node_repairs
from holdfast.explanation.repairs.repair import RESIZE, Repair, repair
from holdfast.explanation.report import few
from holdfast.explanation.verdicts import Subject, attempt, rejection_on
from holdfast.scheduler.cluster.records import PodRecord
from holdfast.scheduler.cluster.slots import PODS
from holdfast.scheduler.framework.diagnosis import FITS
from holdfast.scheduler.jobs import Job, JobName
from holdfast.snapshot.cluster_changes import PATCH, ClusterChange, ObjectChange, applied
from holdfast.snapshot.cluster_snapshot import ClusterSnapshot

_STEPS = 4
_CLASSES = 4
_ROWS = 4
_REPAIRS_OF_ROW = 3
_SHARES = (3 / 4, 1 / 2, 3 / 8, 1 / 4)
"""The parts of its requests that a member is tried with."""
_LEAST_PERCENT = 25
"""How little of their requests all members together are tried with."""


class _Progress(NamedTuple):
    """How far the gang comes."""

    reaches_goal: bool
    is_ready: bool
    placed: int


def first_of_each_class(members: Iterable[PodRecord]) -> list[PodRecord]:
    found: dict[int, PodRecord] = {}
    for pod in members:
        found.setdefault(pod.cls.id, pod)
    return list(found.values())


def consider_steps(snapshot: ClusterSnapshot, job: Job, advisor: Advisor, before: list[Repair]) -> None:
    """Proposes changes of one member after the other, until the gang starts."""
    for last_first in (False, True):
        made = _steps(snapshot, job.name, advisor, before, last_first)
        if made == before:
            continue
        for at, each in enumerate(made):
            if each.sizes:
                made[at] = raised(advisor, each, [*made[:at], *made[at + 1 :]])
        if advisor.propose(*made):
            return


def _steps(
    snapshot: ClusterSnapshot, name: JobName, advisor: Advisor, before: list[Repair], last_first: bool
) -> list[Repair]:
    """Changes that let the gang start, found for the first or the last members first; only `before`
    if no changes were found."""
    made = list(before)
    reached, left = _progress(snapshot, name, advisor, made)
    for _ in range(_STEPS):
        if reached.reaches_goal:
            return made
        members = left[::-1] if last_first else left
        longer = _step(snapshot, name, advisor, made, reached, members)
        if longer is None:
            return before
        made = longer
        reached, left = _progress(snapshot, name, advisor, made)
    return made if reached.reaches_goal else before


def _continued(
    snapshot: ClusterSnapshot, made: list[Repair], step: list[Repair]
) -> list[Repair] | None:
    """The changes with some more. Smaller requests after smaller requests of the same pods are one
    change; None if too little would be left."""
    found = list(made)
    for each in step:
        same = [
            at
            for at, other in enumerate(found)
            if other.sizes and each.sizes and _edited(other) == _edited(each)
        ]
        if not same:
            found.append(each)
            continue
        first = each.change.objects[-1]
        sizes = merged_sizes(found[same[0]].sizes, each.sizes)
        with applied(snapshot, _objects(found[: same[0]])):
            both = resize(snapshot, Subject(first.info, first.name, first.namespace), sizes)
        if both is None:
            return None
        found[same[0]] = both
    return found


def _edited(smaller: Repair) -> list[str]:
    """The objects that are edited. Only the first one of several changes ends the holds of pods."""
    return [each.name for each in smaller.change.objects if each.operation == PATCH]


def consider_all_smaller(
    snapshot: ClusterSnapshot, job: Job, advisor: Advisor, before: list[Repair]
) -> None:
    """Proposes smaller requests of all members that are tried, by the same share."""
    with applied(snapshot, _objects(before)):
        partners = snapshot.cluster.jobs.partners(snapshot.cluster.jobs.known[job.name])
        members = snapshot.scheduler.gangs.admission.tried_members(partners)
        alike = first_of_each_class(pod for pod in members if pod.reservation is None)
        alike += [pod for pod in members if pod.reservation is not None]  # each is one object
        subjects = [Subject.of(pod) for pod in alike]
    if len(subjects) < 2:
        return
    names = few([pod_text(pod) for pod in members])

    def with_percent(percent: int) -> Repair | None:
        with applied(snapshot, _objects(before)):
            found = [_resized(snapshot, one, percent / 100) for one in subjects]
        changes = [each for each in found if each is not None]
        text = f"request at most {percent}% of their resources in {names}"
        made = repair(text, "Resize", _objects(changes), RESIZE)
        return made if len(changes) == len(subjects) else None

    def is_enough(percent: int) -> bool:
        made = with_percent(percent)
        return made is not None and advisor.is_enough(_together([*before, made]))

    low, high = _LEAST_PERCENT, 100
    while high - low > 1 and is_enough(low):
        middle = (low + high) // 2
        low, high = (middle, high) if is_enough(middle) else (low, middle)
    best = with_percent(low)
    if best is not None:
        advisor.propose(*before, best)


def _together(repairs: list[Repair]) -> Repair:
    change = sum((each.change for each in repairs), ClusterChange())
    return repairs[-1]._replace(change=change)


def _objects(repairs: Iterable[Repair]) -> list[ObjectChange]:
    return [each for repair in repairs for each in repair.change.objects]


def _progress(
    snapshot: ClusterSnapshot, name: JobName, advisor: Advisor, made: list[Repair]
) -> tuple[_Progress, list[PodRecord]]:
    """How far the gang comes after these changes, and the members that then have no node."""
    with applied(snapshot, _objects(made)):
        job = snapshot.cluster.jobs.known.get(name)
        if job is None:
            return _Progress(False, False, 0), []
        with attempt(snapshot, job) as tried:
            goal = advisor.goal
            reached = tried.is_ready and (
                not isinstance(goal, Subject) or any(Subject.of(pod) == goal for pod in tried.placed)
            )
            left = [pod for pod in tried.left if Subject.of(pod) == goal] if tried.is_ready else []
            return _Progress(reached, tried.is_ready, len(tried.placed)), left or tried.left


def _step(
    snapshot: ClusterSnapshot,
    name: JobName,
    advisor: Advisor,
    made: list[Repair],
    reached: _Progress,
    left: list[PodRecord],
) -> list[Repair] | None:
    """The changes with the first ones found after which more members have a node than before."""
    for subject in map(Subject.of, first_of_each_class(left)[:_CLASSES]):
        for option in _options(snapshot, name, subject, made):
            longer = _continued(snapshot, made, option)
            if longer is not None and _progress(snapshot, name, advisor, longer)[0] > reached:
                return longer
    return None


def _options(
    snapshot: ClusterSnapshot, name: JobName, subject: Subject, made: list[Repair]
) -> Iterable[list[Repair]]:
    """Changes that may give the member a node beside those that have one."""
    with applied(snapshot, _objects(made)):
        pod, job = subject.record(snapshot), snapshot.cluster.jobs.known.get(name)
        if pod is None or job is None:
            return
        with attempt(snapshot, job):
            short = shortages(snapshot, pod)
            table = snapshot.cluster.nodes
            rows = [row for _, row in table.names() if table.alive[row]]
            rows.sort(key=lambda row: (float(short[row]), table.name(row)))
            rows = rows[:_ROWS]
            missing = {row: missing_on(snapshot, pod, row) for row in rows}
            gone = [each for row in rows for each in deletion_steps(snapshot, pod, row)]
            gone += [each for row in rows for each in eviction_steps(snapshot, pod, row)]
    for row in rows:
        chain = _open_row(snapshot, subject, row, made)
        if chain:
            yield chain
        with applied(snapshot, _objects([*made, *chain])):
            pod = subject.record(snapshot)
            assert pod is not None
            slots, asked = snapshot.cluster.nodes.slots, requested(pod)
            lowered = {
                slots.name(slot): (asked[slot], asked[slot] - lack)
                for slot, lack in missing[row].items()
                if slot != PODS and slot in asked
            }
            smaller = resize(snapshot, subject, lowered)
        if smaller is not None:
            yield [*chain, smaller]
    yield from _smaller(snapshot, subject, made)
    for each in gone:
        yield [each]


def _open_row(
    snapshot: ClusterSnapshot, subject: Subject, row: int, made: list[Repair]
) -> list[Repair]:
    """The changes of configuration that make the row eligible but for its capacity."""
    chain: list[Repair] = []
    for _ in range(_REPAIRS_OF_ROW):
        with applied(snapshot, _objects([*made, *chain])):
            pod = subject.record(snapshot)
            if pod is None:
                return []
            rejection = rejection_on(snapshot, pod, row)
            options = node_repairs(snapshot, subject, pod, row, rejection)
            if rejection == FITS or not options:
                return chain
        chain.append(options[0])
    return chain


def _smaller(snapshot: ClusterSnapshot, subject: Subject, made: list[Repair]) -> Iterable[list[Repair]]:
    """The member, and those like it, with smaller requests."""
    for share in _SHARES:
        with applied(snapshot, _objects(made)):
            smaller = _resized(snapshot, subject, share)
        if smaller is not None:
            yield [smaller]


def _resized(snapshot: ClusterSnapshot, subject: Subject, share: float) -> Repair | None:
    pod = subject.record(snapshot)
    if pod is None:
        return None
    slots = snapshot.cluster.nodes.slots
    asked = {slots.name(slot): n for slot, n in requested(pod).items() if slot != PODS}
    sizes = {name: (n, int(n * share)) for name, n in asked.items() if n > 1}
    return resize(snapshot, subject, sizes)
