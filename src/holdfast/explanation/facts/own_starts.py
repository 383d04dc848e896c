"""How a pod, a reservation or a gang would start now: on nodes that are eligible, or by itself after it
has preempted pods or reservations, or reclaimed capacity of its queue's share.

Pods that are tried before it are placed first, as in a round.
"""

from typing import NamedTuple

from holdfast.explanation.facts.other_pods import taker_names, takers_text
from holdfast.explanation.facts.reclaimed_capacity import plan_text, reclaim_plan
from holdfast.explanation.facts.rehearsed_rounds import (
    first_pod,
    preempted,
    started_after_evictions,
    started_before,
    started_in_round,
)
from holdfast.explanation.phrases import pods_text
from holdfast.explanation.report import few
from holdfast.explanation.verdicts import (
    GangGoal,
    Goal,
    Subject,
    attempt,
    planned_of,
    profile_for,
    starts_on,
)
from holdfast.scheduler.actions.reclaim import ReclaimPlan
from holdfast.scheduler.cluster.decisions import Preempt
from holdfast.scheduler.cluster.records import PodRecord
from holdfast.scheduler.framework.interface import Nomination
from holdfast.scheduler.jobs import Job
from holdfast.snapshot.cluster_snapshot import ClusterSnapshot

_NODES = 3
_EVICTIONS = 3


class Start(NamedTuple):
    """How it would start."""

    nodes: list[str]
    """Empty if it would not."""
    text: str = ""
    """`it fits n1`, or `it preempts default/x on n1`; or who takes what it needs, if it does not
    start."""
    evicts: bool = False
    """Whether it preempts or reclaims."""
    is_beside_others: bool = False
    """Whether those that are tried before it were placed already."""


NO_START = Start([])


def start_of(snapshot: ClusterSnapshot, goal: Goal) -> Start:
    """On eligible nodes, unless others take them first; otherwise by preempting or reclaiming."""
    found = fitting_start(snapshot, goal)
    if found.nodes:
        return found
    evicting = _beside_others(snapshot, goal) if found.text else evicting_start(snapshot, goal)
    return evicting if evicting.nodes else found


def fitting_start(snapshot: ClusterSnapshot, goal: Goal) -> Start:
    """On eligible nodes, unless others take them first."""
    nodes = starts_on(snapshot, goal)
    takers = takers_text(snapshot, goal) if nodes else ""
    return Start([], takers) if takers or not nodes else Start(nodes, f"it fits {few(nodes, _NODES)}")


def taken_text(snapshot: ClusterSnapshot, goal: Goal) -> str:
    """`default/old is tried before it and takes n1`, if the pod or gang would start now but for those,
    and how it starts beside them; empty if they leave it enough."""
    takers = takers_text(snapshot, goal)
    start = _beside_others(snapshot, goal) if takers else NO_START
    then = f"then {start.text}" if start.nodes else following_text(snapshot, goal) if takers else ""
    return f"{takers}; {then}" if then else takers


def following_text(snapshot: ClusterSnapshot, goal: Goal) -> str:
    """`once default/x has preempted default/y, it fits n1`, if the pod or gang starts with what others
    leave of the capacity that they preempt or reclaim."""
    with started_after_evictions(snapshot, goal) as evictions:
        nodes = starts_on(snapshot, goal) if evictions else []
        if not nodes:
            return ""
        made = [
            f"{taker_names(snapshot, [each.pod])[0]} has {each.verb} {pods_text(each.victims)}"
            for each in evictions[:_EVICTIONS]
        ]
        return f"once {' and '.join(made)}, it fits {few(nodes, _NODES)}"


def evicting_start(snapshot: ClusterSnapshot, goal: Goal) -> Start:
    """How it would start now by preempting or reclaiming, also beside those that are tried before it
    and fit."""
    alone = _evicting(snapshot, goal)
    return _beside_others(snapshot, goal) if alone.nodes and not alone.is_beside_others else alone


def _beside_others(snapshot: ClusterSnapshot, goal: Goal) -> Start:
    """Pods preempt when they are tried; for gangs, and for pods that their queue does not admit, the
    preempt action does after all have been."""
    pod, jobs = first_pod(snapshot, goal), snapshot.cluster.jobs
    is_tried = pod is not None and jobs.of(pod) is None and not jobs.queue_limits.admission_error(pod)
    with (started_before if is_tried else started_in_round)(snapshot, goal):
        return _evicting(snapshot, goal)


def _evicting(snapshot: ClusterSnapshot, goal: Goal) -> Start:
    jobs = snapshot.cluster.jobs
    if isinstance(goal, GangGoal):
        job = jobs.known.get(goal.job)
        return _gang_start(snapshot, job) if job is not None else NO_START
    pod = goal.record(snapshot)
    if pod is None or pod.gates or pod.deletion_pending or planned_of(snapshot, pod) is not None:
        return NO_START
    if snapshot.scheduler.profile_of(pod.scheduler) is None:
        return NO_START
    job = jobs.of(pod)
    return _gang_start(snapshot, job, pod) if job is not None else _pod_start(snapshot, pod)


def _pod_start(snapshot: ClusterSnapshot, pod: PodRecord) -> Start:
    scheduler = snapshot.scheduler
    if snapshot.cluster.jobs.queue_limits.admission_error(pod):
        victims = scheduler.victims_in_queue(pod)
        if victims:
            return _preempting(snapshot, victims)
        return _reclaiming(snapshot, reclaim_plan(snapshot, pod))
    profile = profile_for(scheduler, pod)
    column = scheduler.columns.column(profile, pod.cls)
    if column.rejected is not None or scheduler.search.find_row(profile, pod, column) >= 0:
        return NO_START
    nomination = scheduler.preemption.post_filter(profile, pod, column)
    if nomination.reserve_pods:
        return _preempting_reservations(snapshot, nomination)
    if not nomination.node:
        return _reclaiming(snapshot, reclaim_plan(snapshot, pod))
    uids = [each.pod.uid for each in nomination.decisions if isinstance(each, Preempt)]
    known = snapshot.cluster.pods
    return _preempting(snapshot, [known[uid] for uid in uids if uid in known], nomination.node)


def _gang_start(snapshot: ClusterSnapshot, job: Job, pod: PodRecord | None = None) -> Start:
    """How the gang would start, and the pod with it; or the pod as a further member of one that
    runs."""
    if job.is_ready:
        victims = member_victims(snapshot, job, pod) if pod is not None else []
        return _preempting(snapshot, victims) if victims else NO_START
    with attempt(snapshot, job) as tried:
        if tried.is_ready:
            return NO_START  # nothing is evicted for further members
        is_placed = pod is None or any(each is pod for each in tried.placed)
    if snapshot.scheduler.preemption_for(job).victims:
        victims = _victims(snapshot, job, pod)
        return _preempting(snapshot, victims) if victims else NO_START
    if not (waiting := job.waiting()) or (plan := reclaim_plan(snapshot, waiting[0])) is None:
        return NO_START
    if is_placed or any(each is pod for each, _ in plan.places):
        return _reclaiming(snapshot, plan)
    return NO_START


def gang_victims(snapshot: ClusterSnapshot, job: Job) -> list[PodRecord]:
    """The pods that a gang preempts to start, beside the others that start before it preempts."""
    with started_in_round(snapshot, GangGoal(job.name)):
        return _victims(snapshot, job)


def queue_victims(snapshot: ClusterSnapshot, pod: PodRecord) -> list[PodRecord]:
    """The pods of its queue that are preempted for a pod that the queue does not admit, beside the
    others that start before."""
    with started_in_round(snapshot, Subject.of(pod)):
        return snapshot.scheduler.victims_in_queue(pod)


def member_victims(snapshot: ClusterSnapshot, job: Job, pod: PodRecord) -> list[PodRecord]:
    """The pods that are preempted for a member beyond those that its gang needs. Only PodGroups of
    `scheduling.k8s.io` preempt for these, one after the other."""
    return _victims(snapshot, job, pod)


def _victims(snapshot: ClusterSnapshot, job: Job, pod: PodRecord | None = None) -> list[PodRecord]:
    """The pods that are preempted for the gang, if it then starts, and the member with it."""
    partners = snapshot.cluster.jobs.partners(job)
    with preempted(snapshot, job) as victims:
        is_ready = all(each.is_ready for each in partners)
        if not victims or (is_ready and (pod is None or pod.row >= 0)):
            return victims
        with attempt(snapshot, job) as tried:
            return victims if tried.is_ready and (pod is None or pod.row >= 0) else []


def _preempting(snapshot: ClusterSnapshot, victims: list[PodRecord], node: str = "") -> Start:
    rows = {victim.row for victim in victims if victim.row >= 0}
    nodes = [node] if node else sorted(map(snapshot.cluster.nodes.name, rows))
    whom = pods_text(victims) if victims else "pods of lower priority"
    return Start(nodes, f"it preempts {whom} on {few(nodes, _NODES)}", True)


def _preempting_reservations(snapshot: ClusterSnapshot, nomination: Nomination) -> Start:
    known = snapshot.cluster.reservations.known
    name = snapshot.cluster.nodes.name
    nodes = sorted({name(row) for _, row, _ in nomination.reserve_pods})
    uids = {uid for _, _, victims in nomination.reserve_pods for uid in victims}
    names = sorted(known[uid].name for uid in uids if uid in known)
    whom = f"reservation {few(names, _NODES)}" if names else "reservations of lower priority"
    return Start(nodes, f"it preempts {whom} on {few(nodes, _NODES)}", True)


def _reclaiming(snapshot: ClusterSnapshot, plan: ReclaimPlan | None) -> Start:
    if plan is None:
        return NO_START
    nodes = sorted({snapshot.cluster.nodes.name(row) for _, row in plan.places})
    return Start(nodes, f"it reclaims {plan_text(snapshot, plan)}", True, True)
