"""Reservations that start later: how they restrict pods until then, and what would make their own plans
feasible.

A pod without a run-time estimate counts as never ending, so it may not use capacity that a reservation
needs later. What helps is an estimate, a smaller request, or the end of the plan. A plan that is not
feasible is explained by the pods in its way.
"""

import math
from collections.abc import Iterator

from holdfast.api.calendar import BeforeStart
from holdfast.api.names import BEFORE_START, RUN_ESTIMATE, STARTS_AT
from holdfast.api.plurals import plural
from holdfast.api.times import format_time
from holdfast.explanation.advice.advisor import Advisor
from holdfast.explanation.advice.deletions import consider_plan_deletions
from holdfast.explanation.advice.evictions import end_of
from holdfast.explanation.advice.smaller_requests import resize
from holdfast.explanation.advice.waits import consider_start
from holdfast.explanation.facts.capacity import plans_on, row_of
from holdfast.explanation.phrases import amounts_text, duration_text, pods_text
from holdfast.explanation.repairs.repair import (
    DELETE_RESERVATION,
    RESIZE,
    Repair,
    metadata_changes,
    repair,
)
from holdfast.explanation.verdicts import NodeVerdicts, Subject
from holdfast.scheduler.cluster.records import PodRecord
from holdfast.scheduler.cluster.slots import PODS, Amounts
from holdfast.scheduler.framework.config.plugin_sets import CALENDAR_FILTER, NODE_RESOURCES_FIT
from holdfast.scheduler.framework.diagnosis import NodeRejection
from holdfast.scheduler.framework.feasibility.compiled_class import RESERVED
from holdfast.scheduler.reservations.calendar import PlannedReservation
from holdfast.snapshot.cluster_changes import patch
from holdfast.snapshot.cluster_snapshot import POD, RESERVATION, ClusterSnapshot

_NODES = 3
_TRIED = 5
_STARTS = 10
_LASTING = ("ReplicaSet", "StatefulSet", "DaemonSet", "ReplicationController")
"""Controllers whose pods have no end of their own."""
_MARGIN, _MOST_MARGIN = 0.1, 600
"""The part of the time that is left for annotating and starting the pod, at most so many seconds."""
_STEPS = ((4 * 3600, 1800), (1800, 300), (300, 60), (60, 10), (0, 1))
"""From how many seconds on an advised run time is a multiple of how many."""


def consider_estimate(
    snapshot: ClusterSnapshot, subject: Subject, pod: PodRecord, placing: NodeVerdicts, advisor: Advisor
) -> None:
    """A run-time estimate short enough for a node that a reservation, or a starving job, needs
    later."""
    if not _has_an_end(pod):
        return
    found: set[float] = set()
    for name, rejection in placing.rejections.items():
        found |= _latest_ends(snapshot, pod, row_of(snapshot, name), rejection)
    latest = sorted(found)
    # A pod that ends earlier fits wherever one that ends later does.
    enough = [at for at in latest[:1] if advisor.is_enough(_estimate(snapshot, subject, pod, at))]
    low, high = 0, len(latest) if enough else 0
    while high - low > 1:
        middle = (low + high) // 2
        is_enough = advisor.is_enough(_estimate(snapshot, subject, pod, latest[middle]))
        low, high = (middle, high) if is_enough else (low, middle)
    for at in [latest[low]] if enough else latest[: -_TRIED - 1 : -1]:
        if advisor.propose(_estimate(snapshot, subject, pod, at)):
            return


def estimate_steps(
    snapshot: ClusterSnapshot, subject: Subject, pod: PodRecord, row: int, rejection: NodeRejection
) -> Iterator[Repair]:
    """Run-time estimates with which one node may be used until its capacity is needed, also by a pod
    that does not fit yet."""
    if not _has_an_end(pod):
        return
    latest = _latest_ends(snapshot, pod, row, rejection)
    if rejection.plugin == NODE_RESOURCES_FIT:
        latest = {each.start for each in plans_on(snapshot, pod, row)}
    for at in sorted(latest, reverse=True)[:_TRIED]:
        yield _estimate(snapshot, subject, pod, at)


def _has_an_end(pod: PodRecord) -> bool:
    return pod.reservation is None and not any(owner.kind in _LASTING for owner in pod.cls.owners)


def _latest_ends(
    snapshot: ClusterSnapshot, pod: PodRecord, row: int, rejection: NodeRejection
) -> set[float]:
    """When reservations, or starving jobs, need the capacity of a row that the pod could use until
    then."""
    starts = {each.start for each in plans_on(snapshot, pod, row)}
    if rejection.plugin == CALENDAR_FILTER:
        planner = snapshot.cluster.jobs.planner
        return {at for at in starts if planner.fits_until(row, pod.cls, at)}
    return {*_starts_of_holds(snapshot, row), *starts} if RESERVED in rejection.texts else set()


def _starts_of_holds(snapshot: ClusterSnapshot, row: int) -> Iterator[float]:
    """When the jobs that a row is held for are expected to start."""
    cluster = snapshot.cluster
    for entry in cluster.ledger.reservations.on(row):
        if cluster.reservations.starvation_holds.knows(entry.reservation):
            start = cluster.jobs.planner.expected_start(entry.reservation)
            if start is not None and start > snapshot.now:
                yield start


def _estimate(snapshot: ClusterSnapshot, subject: Subject, pod: PodRecord, at: float) -> Repair:
    """The pod, and those of its job that are like it, with an estimate that ends well before a time."""
    ahead = at - snapshot.now
    text = duration_text(round_down(ahead - min(ahead * _MARGIN, _MOST_MARGIN)))
    objects = metadata_changes(snapshot, subject, {"annotations": {RUN_ESTIMATE: text}})
    given = (subject.raw(snapshot)["metadata"].get("annotations") or {}).get(RUN_ESTIMATE)
    where = "" if pod.namespace == "default" else f" -n {pod.namespace}"
    over = " --overwrite" if given else ""
    command = f"kubectl annotate pod {pod.name}{where} {RUN_ESTIMATE}={text}{over}"
    if len(objects) > 1:
        command = f"{command}, and so for the other pods of its job"
    for owner in pod.cls.owners:
        if owner.controller:
            command = f"{command}, or the annotation in the template of {owner.kind} {owner.name}"
    text = f"give it a run-time estimate if it ends within {text} ({command})"
    return repair(text, "EstimateRunTime", objects)


def round_down(seconds: float) -> float:
    """A duration that reads well, and is not longer."""
    step = next((step for least, step in _STEPS if seconds >= least), 1)
    return max(1.0, seconds // step * step)


def consider_own_start(snapshot: ClusterSnapshot, pod: PodRecord, advisor: Advisor) -> Iterator[str]:
    """Waiting for a planned reservation that the pod may use; yields facts about it."""
    matching = snapshot.cluster.reservations.matching(pod.cls)
    plans = [
        each
        for each in snapshot.cluster.reservations.calendar
        if each.reservation.owner_spec_id in matching
    ]
    for planned in sorted(plans, key=lambda each: (each.start, each.reservation.name))[:_NODES]:
        name, start = planned.reservation.name, format_time(planned.start)
        where = f" on {planned.node}" if planned.node else "; no node is planned for it"
        yield f"it may use the reservation {name}, which starts at {start}{where}"
        row = snapshot.cluster.nodes.row(planned.node) if planned.node else None
        if row is not None and not any("Wait" in each.change["actions"] for each in advisor.advice):
            consider_start(advisor, planned, row)


# A plan that is not feasible


def consider_plan(
    snapshot: ClusterSnapshot, planned: PlannedReservation, advisor: Advisor
) -> list[str]:
    """Changes with which the plan of a reservation, or of its gang, is certain; returns facts."""
    planner, name = snapshot.scheduler.calendar_planner.questions, planned.reservation.name
    blocked, done = planner.first_blocked(planned)
    nearest = planner.nearest_rows(blocked, done, _NODES)
    subject = Subject(RESERVATION, blocked.reservation.name)
    whose = "" if blocked is planned else f"reservation {subject.name}: "
    facts = _gang_facts(snapshot, planned, blocked, nearest)
    alike = _alike(snapshot, planned)
    facts += [
        f"reservation {each.reservation.name}, planned on {each.node} then, has the same owners, and "
        "both are reusable (allocateOnce: false without an allocatePolicy): a node has one at a time"
        for each in alike
    ]
    # All changes are made before one is tried: trying one adds the reservation anew.
    changes = [list(_plan_repairs(snapshot, subject, blocked, *each)) for each in nearest]
    later = _later_starts(snapshot, subject, blocked, [row for row, _ in nearest])
    for other in alike:
        consider_plan_deletions(advisor, [other], row_of(snapshot, other.node), other.amounts)
    for (row, short), repairs in zip(nearest, changes, strict=True):
        for each in repairs:
            advisor.propose_once(each.change.actions, each._replace(text=f"{whose}{each.text}"))
        there = snapshot.cluster.reservations.calendar.on(row)
        others = [other for other in there if other.reservation.name != name]
        consider_plan_deletions(advisor, others, row, short)
    any(advisor.propose(each) for each in later)
    for row, short in nearest:
        victims = _fewest(snapshot, blocked.start, row, short)
        if victims and not advisor.advice:
            where = f" on {snapshot.cluster.nodes.name(row)}"
            advisor.propose(end_of(snapshot, victims, where))
    return facts


def closest_at_start(snapshot: ClusterSnapshot, planned: PlannedReservation) -> str:
    """`; closest: node-1, short of 2 cpu`; empty if it is not resources that are short."""
    questions = snapshot.scheduler.calendar_planner.questions
    blocked, beside = questions.first_blocked(planned)
    return _closest(snapshot, questions.nearest_rows(blocked, beside, 1))


def _closest(snapshot: ClusterSnapshot, nearest: list[tuple[int, Amounts]]) -> str:
    for row, short in nearest[:1]:
        if short:
            node = snapshot.cluster.nodes.name(row)
            return f"; closest: {node}, short of {amounts_text(snapshot, short)}"
    return ""


def _gang_facts(
    snapshot: ClusterSnapshot,
    planned: PlannedReservation,
    blocked: PlannedReservation,
    nearest: list[tuple[int, Amounts]],
) -> list[str]:
    """The member of a gang of reservations that has no node beside the others."""
    pod = planned.reservation.pod
    if pod is None or pod.job is None:
        return []
    who = "it" if blocked is planned else f"reservation {blocked.reservation.name}"
    return [
        f"it is planned only together with the rest of {pod.job_name}, and {who} has no certain node "
        f"beside the others{_closest(snapshot, nearest)}"
    ]


def _alike(snapshot: ClusterSnapshot, planned: PlannedReservation) -> list[PlannedReservation]:
    """Plans with the same owners that cannot share a node with this one at the same time."""
    pod = planned.reservation.pod
    if pod is None or not pod.cls.exclusive:
        return []
    return [
        each
        for each in snapshot.cluster.reservations.calendar
        if each is not planned
        and each.reservation.owner_spec_id == planned.reservation.owner_spec_id
        and each.node
        and each.overlaps(planned.start, planned.end)
    ][:_NODES]


def _plan_repairs(
    snapshot: ClusterSnapshot, subject: Subject, planned: PlannedReservation, row: int, short: Amounts
) -> Iterator[Repair]:
    slots, name = snapshot.cluster.nodes.slots, planned.reservation.name
    unknown = _without_end(snapshot, row, short)
    if unknown:
        objects = [
            patch(POD, raw, {"metadata": {"annotations": {RUN_ESTIMATE: text}}})
            for pod in unknown
            if (text := _until(snapshot, pod, planned.start))
            and (raw := snapshot.find(POD, pod.name, pod.namespace)) is not None
        ]
        who, start = pods_text(unknown), format_time(planned.start)
        end = f" if {plural(len(unknown), 'it ends', 'they end')} by {start}"
        text = f"annotate {who} with {RUN_ESTIMATE}{end}"
        yield repair(text, "EstimateRunTime", objects)
    lowered = {
        slots.name(slot): (planned.amounts[slot], planned.amounts[slot] - lack)
        for slot, lack in short.items()
        if slot != PODS
    }
    smaller = resize(snapshot, subject, lowered)
    if smaller is not None:
        yield smaller
    raw = subject.raw(snapshot)
    if planned.reservation.calendar.before != BeforeStart.PREEMPT:
        command = f"kubectl annotate reservation {name} {BEFORE_START}=Preempt --overwrite"
        body = {"metadata": {"annotations": {BEFORE_START: str(BeforeStart.PREEMPT)}}}
        text = f"let it evict pods of lower priority ({command})"
        yield repair(text, "Preempt", [patch(RESERVATION, raw, body)], DELETE_RESERVATION)


def _later_starts(
    snapshot: ClusterSnapshot, subject: Subject, planned: PlannedReservation, rows: list[int]
) -> list[Repair]:
    """Starts at times when something ends on one of the rows, the first one first: a pod, a
    reservation, or a planned one."""
    pod = planned.reservation.pod
    if pod is None or pod.job is not None:
        return []  # a gang starts together
    cluster = snapshot.cluster
    ends = {release.time for row in rows for release in cluster.jobs.planner.releases(row)}
    ends |= {each.end for row in rows for each in cluster.reservations.calendar.on(row)}
    found, raw = [], subject.raw(snapshot)
    for end in sorted(end for end in ends if planned.start < end < math.inf)[:_STARTS]:
        later = format_time(math.ceil(end))
        command = f"kubectl annotate reservation {subject.name} {STARTS_AT}={later} --overwrite"
        change = patch(RESERVATION, raw, {"metadata": {"annotations": {STARTS_AT: later}}})
        found.append(repair(f"start it at {later} ({command})", "StartLater", [change], RESIZE))
    return found


def _without_end(snapshot: ClusterSnapshot, row: int, short: Amounts) -> list[PodRecord]:
    """The pods on a row that have some of what is short, and no known end."""
    estimates = snapshot.cluster.jobs.estimates
    pods = [
        pod
        for pod in _in_the_way(snapshot, row, short)
        if estimates.expected_end(pod) is None
        and not any(owner.kind in _LASTING for owner in pod.cls.owners)
    ]
    return _covering(pods, short)


def _in_the_way(snapshot: ClusterSnapshot, row: int, short: Amounts) -> list[PodRecord]:
    pods = snapshot.cluster.ledger.pods.get(row, {}).values()
    return [
        pod for pod in pods if pod.reservation is None and not pod.cls.is_daemon and _has(pod, short)
    ]


def _has(pod: PodRecord, short: Amounts) -> int:
    return sum(amount for slot, amount in pod.cls.usage if slot in short)


def _covering(pods: list[PodRecord], short: Amounts) -> list[PodRecord]:
    """The fewest of these that have as much as is short, the largest first; empty if all have less."""
    left, found = dict(short), []
    for pod in sorted(pods, key=lambda each: (-_has(each, short), each.name)):
        found.append(pod)
        for slot, amount in pod.cls.usage:
            if slot in left:
                left[slot] -= amount
        if all(lack <= 0 for lack in left.values()):
            return found
    return []


def _fewest(snapshot: ClusterSnapshot, start: float, row: int, short: Amounts) -> list[PodRecord]:
    """The pods whose end would free what is short at the start."""
    ends = snapshot.cluster.jobs.estimates.expected_end
    pods = _in_the_way(snapshot, row, short)
    return _covering([pod for pod in pods if (ends(pod) or math.inf) > start], short)


def _until(snapshot: ClusterSnapshot, pod: PodRecord, time: float) -> str:
    """The run-time estimate of a running pod that ends by a time."""
    return duration_text(math.floor(time - snapshot.cluster.jobs.estimates.start(pod)))
