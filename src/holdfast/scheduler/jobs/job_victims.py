"""Victims that are members of jobs: which of them are preempted together.

A job that would have too few members left is preempted as a whole, and not at all if one of its members
may not be a victim. So a change of one member, or of minMember, decides about members on other nodes:
preemptors that wait for these are woken up.
"""

from collections import Counter
from collections.abc import Callable, Collection, Hashable, Mapping

from holdfast.scheduler.cluster.base import ClusterBase
from holdfast.scheduler.cluster.records import JobName, Phase, PodRecord
from holdfast.scheduler.jobs.job import Job, task_of


class JobVictims:
    """The members of jobs as victims."""

    def __init__(
        self, cluster: ClusterBase, known: Mapping[JobName, Job], left_by: Callable[[], int]
    ) -> None:
        """`left_by` returns the kinds of change that a victim, whichever pod it is, makes when it is
        gone: they wake up the pods that it may be preempted for."""
        self._cluster = cluster
        self._known = known
        self.left_by = left_by
        self._changed: dict[JobName, None] = {}
        self._limits: dict[JobName, tuple[Hashable, frozenset[int]]] = {}
        """What limits the choice of victims, of each job in which something does (`_limits_in`), and
        the rows of its members."""
        self._may_help = False
        """Whether limits changed or ended since the last `note_changes`."""

    def job_changed(self, name: JobName) -> None:
        """Notes that members or settings of the job changed."""
        self._cluster.epoch.jobs += 1
        self._changed[name] = None

    def pod_moved(self, pod: PodRecord, row: int, sign: int) -> None:
        """Follows the ledger, also in what is rolled back."""
        if pod.job is not None:
            self._changed[pod.job] = None

    def update(self) -> None:
        """Brings the limits up to date, and logs in `Epoch.victims` the rows for which they changed."""
        changed, self._changed = self._changed, {}
        for name in changed:
            job = self._known.get(name)
            limits = _limits_in(job) if job is not None else None
            before, rows_before = self._limits.pop(name, (None, frozenset()))
            if limits is None and before is None:
                continue
            rows = frozenset(m.row for m in job.placed()) if job is not None else frozenset()
            if limits is not None:
                self._limits[name] = limits, rows
            if limits != before:
                self._may_help = self._may_help or before is not None
                for row in sorted(rows | rows_before):
                    self._cluster.epoch.victims.add(row)

    def note_changes(self) -> None:
        """Notes the changes that may help preemptors: since the last call the limits on the victims in
        a job changed or ended."""
        self.update()
        if self._may_help:
            self._may_help = False
            self._cluster.changed(self.left_by())

    def companions(self, victims: Collection[PodRecord]) -> list[PodRecord]:
        """The pods that are preempted along with these victims: the other placed members of every job
        that is preempted whole; see `Job.is_preempted_with`."""
        lost: dict[JobName, list[PodRecord]] = {}
        for pod in victims:
            if pod.job is not None:
                lost.setdefault(pod.job, []).append(pod)
        found = []
        for name, gone in lost.items():
            job, uids = self._known[name], {pod.uid for pod in gone}
            if job.is_preempted_with(uids):
                found += [
                    pod for pod in job.placed() if pod.uid not in uids and pod.reservation is None
                ]
        return found

    def preemptible_together(self, pods: list[PodRecord], below: float) -> list[PodRecord]:
        """The pods that may all be victims. Of a job that is preempted whole all members are
        preempted along; so its pods are left out if any member is non-preemptible or has a priority of
        `below` or more."""
        of_job: dict[JobName, list[PodRecord]] = {}
        for pod in pods:
            if pod.job is not None:
                of_job.setdefault(pod.job, []).append(pod)
        kept = set()
        for name, members in of_job.items():
            job, uids = self._known[name], {pod.uid for pod in members}
            if all(m.cls.priority < below and not m.cls.non_preemptible for m in job.placed()):
                continue
            if job.is_preempted_with(uids):
                kept |= uids
        return [pod for pod in pods if pod.uid not in kept] if kept else pods


def _limits_in(job: Job) -> Hashable:
    """What decides which members may be victims without others; None if they may be preempted together,
    because their priorities are equal and all are preemptible."""
    placed = job.placed()
    kinds = Counter((each.cls.priority, each.cls.non_preemptible) for each in placed)
    if len(kinds) <= 1 and not any(non_preemptible for _, non_preemptible in kinds):
        return None
    there = frozenset(kinds.items())
    if job.core is not None:
        return there, job.core.spec.is_disrupted_whole
    states = Counter(
        (task_of(each), each.is_being_bound, each.phase is Phase.ASSIGNED) for each in placed
    )
    return (
        there,
        job.is_ready or job.interrupted,
        frozenset(states.items()),
        frozenset(Counter(job.done.values()).items()),
        job.still_needs,
        frozenset(job.min_tasks.items()),
    )
