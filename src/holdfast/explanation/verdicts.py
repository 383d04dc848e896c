"""What the scheduler of a snapshot says of one pod or reservation: feasible nodes, scores, reasons, and
whether it would start.
"""

import math
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple

import numpy as np

from holdfast.api.kinds import KindInfo
from holdfast.explanation.report import ExplainedReason, Ranked
from holdfast.kube.object_client import Raw
from holdfast.scheduler.cluster.records import JobName, Phase, PodRecord
from holdfast.scheduler.framework.diagnosis import FITS, NO_NODES, NodeRejection
from holdfast.scheduler.framework.dry_run import DryRun
from holdfast.scheduler.framework.feasibility.column import ClassColumn
from holdfast.scheduler.framework.feasibility.rows import INFEASIBLE
from holdfast.scheduler.framework.gang_attempts import GangAttempt, MemberOrder
from holdfast.scheduler.framework.profile import Profile
from holdfast.scheduler.jobs import Job
from holdfast.scheduler.reservations.calendar import PlannedReservation
from holdfast.scheduler.scheduler import Scheduler
from holdfast.snapshot.cluster_snapshot import POD, RESERVATION, ClusterSnapshot

_BEST = 5
_FEW_NODES = 100
"""Up to this many nodes are asked about one by one."""


class Subject(NamedTuple):
    """The pod or reservation that is explained; its record changes when its object does."""

    info: KindInfo
    name: str
    namespace: str = ""

    @classmethod
    def of(cls, pod: PodRecord) -> "Subject":
        if pod.reservation is not None:
            return cls(RESERVATION, pod.name)
        return cls(POD, pod.name, pod.namespace)

    def record(self, snapshot: ClusterSnapshot) -> PodRecord | None:
        if self.info is RESERVATION:
            reservation = snapshot.cluster.reservations.get(self.name)
            return reservation.pod if reservation is not None else None
        return snapshot.cluster.pod(self.namespace, self.name)

    def raw(self, snapshot: ClusterSnapshot) -> Raw:
        found = snapshot.find(self.info, self.name, self.namespace)
        assert found is not None, self
        return found


class GangGoal(NamedTuple):
    """A job that should start, with whichever of its members."""

    job: JobName
    name: str = ""
    namespace: str = ""


Goal = Subject | GangGoal
"""What a change should make start."""


class NodeVerdicts(NamedTuple):
    """The verdicts for one pod, or reserve pod, at the moment."""

    profile: Profile
    column: ClassColumn
    message: str
    """The message of the condition; empty if a node is feasible, also for a while only."""
    rejections: dict[str, NodeRejection]
    """By node name."""
    backfilled_on: str = ""
    """The node on which the backfill action would place it, if no node is feasible for longer."""

    @property
    def reasons(self) -> list[ExplainedReason]:
        found: dict[tuple[str, str], ExplainedReason] = {}
        for node, rejection in sorted(self.rejections.items()):
            for text in dict.fromkeys(rejection.texts):
                reason = found.setdefault(
                    (text, rejection.plugin),
                    ExplainedReason(text, rejection.plugin, [], rejection.resolvable),
                )
                reason.nodes.append(node)
        return sorted(found.values(), key=lambda each: (-len(each.nodes), each.reason))


def place(scheduler: Scheduler, pod: PodRecord) -> NodeVerdicts:
    """Filters the nodes for the pod. A bound pod must have been removed from its node before."""
    cluster = scheduler.cluster
    profile = profile_for(scheduler, pod)
    column = scheduler.columns.column(profile, pod.cls)
    rejections = node_rejections(scheduler, profile, pod, column)
    if not cluster.nodes.count:
        return NodeVerdicts(profile, column, NO_NODES, rejections)
    if scheduler.search.find_row(profile, pod, column) >= 0:
        return NodeVerdicts(profile, column, "", rejections)
    is_pending = pod.phase is Phase.PENDING
    if is_pending and (backfilled := [*map(cluster.nodes.name, scheduler.backfill_rows(pod))]):
        rejections |= dict.fromkeys(backfilled, FITS)
        return NodeVerdicts(profile, column, "", rejections, backfilled[0])
    why = scheduler.failures.verdict(profile, pod, column)
    # For gangs the preempt action looks for victims, for all members at once.
    is_member = pod.reservation is None and cluster.jobs.of(pod) is not None
    has_more = not (why.error or is_member)
    more = scheduler.preemption.post_filter(profile, pod, column).message if has_more else ""
    return NodeVerdicts(profile, column, why.message(cluster.nodes.count, more), rejections)


def expected_message(snapshot: ClusterSnapshot, pod: PodRecord, placing: NodeVerdicts) -> str:
    """The message of the condition that the scheduler would write now; empty if it would write none. A
    pod that a PreEnqueue plugin keeps out of the queue gets none, a reservation does. No node is looked
    for if its queue, or what is guaranteed to others, does not admit it."""
    if not pod.gates and (gated := snapshot.scheduler.gate_reason(pod)):
        return gated if pod.reservation is not None else ""
    return snapshot.cluster.jobs.queue_limits.admission_error(pod) or placing.message


def preempts(scheduler: Scheduler, pod: PodRecord, placing: NodeVerdicts) -> bool:
    """Whether a pod without a feasible node preempts pods or reservations when it is tried."""
    if placing.column.rejected is not None:
        return False
    found = scheduler.preemption.post_filter(placing.profile, pod, placing.column)
    return bool(found.node or found.reserve_pods)


def profile_for(scheduler: Scheduler, pod: PodRecord) -> Profile:
    return scheduler.profile_of(pod.scheduler) or scheduler.profiles[0]


def node_rejections(
    scheduler: Scheduler, profile: Profile, pod: PodRecord, column: ClassColumn
) -> dict[str, NodeRejection]:
    """The rejection of each node by name. On large clusters the column's results are read, and only
    nodes where the pod differs from others of its class are asked about one by one.
    """
    cluster = scheduler.cluster
    table = cluster.nodes
    dry_run = DryRun(cluster, column, pod, profile.pins(pod))
    held = [
        hold.pod.row
        for hold in cluster.reservations.preemption_holds.get(pod.uid, {}).values()
        if hold.pod is not None and hold.pod.row >= 0 and table.alive[hold.pod.row]
    ]
    if table.count <= _FEW_NODES or column.rejected is not None or profile.pins(pod):
        found = scheduler.search.rejections(profile, pod, column)
        if column.rejected is None:
            found |= {table.name(row): FITS for row in held if dry_run.fits(row)}
        return found
    corrections = dict(dry_run.corrections())
    for row in held:
        corrections[row] = FITS if dry_run.fits(row) else dry_run.rejection(row)
    column.refresh()
    fits, known = column.fits, column.diagnosis.known_rejection
    alive = table.alive
    return {
        name: corrections.get(row) or (FITS if fits[row] else known(row))
        for name, row in table.names()
        if alive[row]
    }


def rejection_on(snapshot: ClusterSnapshot, pod: PodRecord, row: int) -> NodeRejection:
    """The rejection of one node; FITS if it is feasible."""
    scheduler = snapshot.scheduler
    profile = profile_for(scheduler, pod)
    column = scheduler.columns.column(profile, pod.cls)
    if column.rejected is not None:
        rejected = column.rejected
        return NodeRejection(column.rejected_by, (rejected.message,), rejected.resolvable)
    dry_run = DryRun(snapshot.cluster, column, pod, profile.pins(pod))
    rejection = dry_run.rejection(row)
    holds = snapshot.cluster.reservations.preemption_holds
    if rejection != FITS and holds.of(pod, row) is not None and dry_run.fits(row):
        return FITS  # with what its own preemption hold keeps there
    return rejection


def rank(scheduler: Scheduler, placing: NodeVerdicts) -> list[Ranked]:
    """The best feasible nodes."""
    cluster, column = scheduler.cluster, placing.column
    if column.rejected is not None or not cluster.nodes.count:
        return []
    totals = column.totals()
    known = cluster.reservations.known
    found: list[Ranked] = []
    for row in np.argsort(-totals, kind="stable").tolist():
        name = cluster.nodes.name(row)
        if totals.item(row) <= INFEASIBLE // 2 or len(found) == _BEST:
            break
        if placing.rejections.get(name) is None or placing.rejections[name].texts:
            continue
        reservation = known.get(column.reservation_uid(row))
        score = totals.item(row) + column.constant
        part = column.reservation_score(row)
        name_of = reservation.name if reservation is not None else ""
        found.append(Ranked(name, score, name_of, score - part, part))
    return found


# Whether it would start


def starts_on(snapshot: ClusterSnapshot, goal: Goal) -> list[str]:
    """The eligible nodes, if it would be scheduled now together with the rest of its job; empty if it
    would not. For a job, the nodes of its members.
    """
    if isinstance(goal, GangGoal):
        job = snapshot.cluster.jobs.known.get(goal.job)
        return _job_starts_on(snapshot, job) if job is not None else []
    pod, scheduler = goal.record(snapshot), snapshot.scheduler
    if pod is None or pod.gates or pod.deletion_pending:
        return []
    if pod.scheduler and scheduler.profile_of(pod.scheduler) is None:
        return []
    if (planned := planned_of(snapshot, pod)) is not None:
        node = scheduler.calendar_planner.questions.certain_node(planned)
        return [node] if node else []
    jobs = snapshot.cluster.jobs
    job = jobs.of(pod)
    if job is not None:
        node = started_member(snapshot, job, pod)
        return [node] if node else []
    if jobs.queue_limits.admission_error(pod):
        return []
    profile = profile_for(scheduler, pod)
    column = scheduler.columns.column(profile, pod.cls)
    if scheduler.search.find_row(profile, pod, column) < 0:
        row = scheduler.backfill_row(pod)
        return [snapshot.cluster.nodes.name(row)] if row >= 0 else []
    found = node_rejections(scheduler, profile, pod, column)
    return sorted(name for name, rejection in found.items() if not rejection.texts)


@contextmanager
def attempt(snapshot: ClusterSnapshot, job: Job) -> Iterator[GangAttempt]:
    """What would come of scheduling the job now. Pods of the same second are tried in the order in
    which the scheduler saw them, or of their names if it was restarted since; of the two orders, this
    is one in which the job does not start, if there is one."""
    order = _order_seen(snapshot, job)
    with snapshot.scheduler.attempt(job) as found:
        if order is None or not found.is_ready:
            yield found
            return
    with snapshot.scheduler.attempt(job, order) as found:
        yield found


def _order_seen(snapshot: ClusterSnapshot, job: Job) -> MemberOrder | None:
    """The order of members by priority, time of creation and version; None if that makes no difference,
    or versions are not known."""
    partners = snapshot.cluster.jobs.partners(job)
    members = snapshot.scheduler.gangs.admission.tried_members(partners)
    versions = {pod.uid: _version(snapshot, pod) for pod in members}
    if all(math.isinf(each) for each in versions.values()):
        return None

    def order(pod: PodRecord) -> tuple[int, float, float, str]:
        return (-pod.cls.priority, pod.queued_since, versions.get(pod.uid, math.inf), pod.name)

    seen = sorted(members, key=order)
    differs = [each.cls.id for each in seen] != [each.cls.id for each in members]
    return order if differs else None


def _version(snapshot: ClusterSnapshot, pod: PodRecord) -> float:
    """The resourceVersion of its object; infinite if it has none."""
    subject = Subject.of(pod)
    raw = snapshot.find(subject.info, subject.name, subject.namespace) or {"metadata": {}}
    text = str(raw["metadata"].get("resourceVersion") or "")
    return int(text) if text.isdecimal() else math.inf


def started_member(snapshot: ClusterSnapshot, job: Job, pod: PodRecord) -> str:
    """The node on which the member would be started now, as one that its job needs or beyond those;
    empty if it would not."""
    with attempt(snapshot, job) as found:
        is_placed = found.is_ready and any(each is pod for each in found.placed)
        return snapshot.cluster.nodes.name(pod.row) if is_placed else ""


def _job_starts_on(snapshot: ClusterSnapshot, job: Job) -> list[str]:
    if job.is_ready:
        return _nodes_of(snapshot, job)
    with attempt(snapshot, job) as found:
        return _nodes_of(snapshot, job) if found.is_ready else []


def _nodes_of(snapshot: ClusterSnapshot, job: Job) -> list[str]:
    return sorted({snapshot.cluster.nodes.name(pod.row) for pod in job.placed()})


@contextmanager
def at_time(snapshot: ClusterSnapshot, time: float | None) -> Iterator[None]:
    """Has the scheduler take another time for now; None leaves it as it is."""
    cluster = snapshot.cluster
    before = cluster.now
    try:
        cluster.now = before if time is None else max(before, time)
        yield
    finally:
        cluster.now = before


def fits_on(snapshot: ClusterSnapshot, pod: PodRecord, row: int) -> bool:
    """Whether a row is feasible, also for a while only if the pod ends in time."""
    if rejection_on(snapshot, pod, row) == FITS:
        return True
    return snapshot.scheduler.backfill_row(pod) == row


def planned_of(snapshot: ClusterSnapshot, pod: PodRecord) -> PlannedReservation | None:
    """The plan of a reservation that starts later; None for pods and other reservations."""
    if pod.reservation is None:
        return None
    return snapshot.cluster.reservations.calendar.get(pod.reservation.uid)
