"""Whether a job of several pods may be scheduled, before its members are tried on nodes: its group and
partners exist, it has enough members, its queue admits them, and enough is free.
"""

from collections.abc import Collection, Mapping

import numpy as np
from numpy.typing import NDArray

from holdfast.api.quantity import QuantityError, amount
from holdfast.scheduler.cluster.events import Change
from holdfast.scheduler.cluster.records import PodRecord
from holdfast.scheduler.cluster.slots import PODS
from holdfast.scheduler.framework import core_groups
from holdfast.scheduler.framework.diagnosis import NO_NODES
from holdfast.scheduler.framework.feasibility.node_search import ColumnStore
from holdfast.scheduler.framework.gang_failures import (
    GATED,
    MORE_CAPACITY,
    NOT_ENOUGH_RESOURCES,
    QUEUE,
    SCHEDULER_ERROR,
    GangRefusal,
    gang_refusal,
    member_order,
    pending_members,
)
from holdfast.scheduler.framework.placements import PlacementGenerator
from holdfast.scheduler.framework.profile import Profile
from holdfast.scheduler.framework.scheduling_queue import SchedulingQueue
from holdfast.scheduler.jobs import Job, JobProblem
from holdfast.scheduler.jobs.job import CORE, NO_GROUP, NOT_ENOUGH_OF_TASK, NOT_ENOUGH_TASKS
from holdfast.scheduler.state.cluster import Cluster

_FEW = 3
"""From this many members on it pays to estimate first whether enough of them can fit."""


class GangAdmission:
    """Checks jobs and their pending members before they are tried on nodes."""

    def __init__(
        self,
        cluster: Cluster,
        queue: SchedulingQueue,
        profiles: Mapping[str, Profile],
        columns: ColumnStore,
        placements: PlacementGenerator,
    ) -> None:
        self._cluster = cluster
        self._jobs = cluster.jobs
        self._queue = queue
        self._profiles = profiles
        self._columns = columns
        self._placements = placements

    def pending_members(self, leader: PodRecord) -> list[PodRecord]:
        """The pending members of the job and its partners, in the order in which they are tried."""
        return pending_members(leader, self._jobs, self._queue, self._profiles)

    def tried_members(self, jobs: list[Job]) -> list[PodRecord]:
        """The pending members of partner jobs that are not gated, and this scheduler's, in the order in
        which they are tried."""
        found = [
            pod
            for job in jobs
            for pod in job.waiting()
            if self._queue.place(pod.uid) != "gated" and pod.scheduler in self._profiles
        ]
        return sorted(found, key=member_order)

    def early_refusal(
        self, jobs: list[Job], members: list[PodRecord], may_preempt: bool = False
    ) -> GangRefusal | None:
        """Why the jobs cannot be scheduled, whatever the nodes are like; None if they may be. With
        `may_preempt` reasons that preemption can remove do not count."""
        for job in jobs:
            if job.name.family == CORE:
                found = self._core_refusal(job, members)
                if found is not None:
                    return found
            if not job.is_known:
                self._jobs.wait_for(jobs[0], [job.name.gang])
                return gang_refusal(NO_GROUP, f"{job.name} does not exist", Change.NONE)
            own = [pod for pod in members if pod.job == job.name]
            missing = job.lacks(own)
            if missing:
                # The message has no count, so that it stays the same while pods are created.
                text = f"{job.name} has fewer pods than it needs"
                of_task = job.lacks_of_tasks(own)
                reason = NOT_ENOUGH_OF_TASK if of_task else NOT_ENOUGH_TASKS
                problem = JobProblem(reason, f"{job.name} has {of_task or missing}")
                self._jobs.wait_for(jobs[0], [job.name.gang])
                return GangRefusal(problem, {}, Change.NONE, {}, text)
            names = self._jobs.missing_partners(job)
            if names:
                self._jobs.wait_for(jobs[0], names)
                text = f"{job.name} waits for {', '.join(map(str, names))}"
                return gang_refusal(NOT_ENOUGH_TASKS, text, Change.NONE)
            queues, limits = self._jobs.queues, self._jobs.queue_limits
            refuses = queues.closed if may_preempt else limits.admission_error
            refusal = limits.all_refused(refuses, own)
            if refusal:
                return gang_refusal(QUEUE, refusal, MORE_CAPACITY | Change.OTHER)
            if may_preempt:
                continue
            lacking = self._lacking_resources(job)
            if lacking and not job.is_ready:
                text = f"{job.name} requests more than is free of {', '.join(lacking)}"
                return gang_refusal(NOT_ENOUGH_RESOURCES, text, MORE_CAPACITY)
        if not self._cluster.nodes.count:
            return gang_refusal(NOT_ENOUGH_RESOURCES, NO_NODES, Change.ANY)
        return None

    def _core_refusal(self, job: Job, members: list[PodRecord]) -> GangRefusal | None:
        """The same for the rules of PodGroups of `scheduling.k8s.io`."""
        if job.core is None:
            text = core_groups.missing_group(job.name.name)
            return gang_refusal(NO_GROUP, text, Change.NONE)
        if len(job.members) < job.min_member:
            return gang_refusal(NOT_ENOUGH_TASKS, core_groups.TOO_FEW_PODS, Change.NONE)
        error, wakes_on = core_groups.member_error(job, members), Change.NONE
        if not error and (found := self._placements.domain_error(job)):
            error, wakes_on = core_groups.NO_DOMAIN.format(found), MORE_CAPACITY | Change.NODE_LABELS
        if error:
            conditions = {pod.uid: SCHEDULER_ERROR for pod in members}
            return GangRefusal(JobProblem(SCHEDULER_ERROR, error), {}, wakes_on, conditions)
        if job.lacks(members):  # some are gated, or another scheduler's
            return gang_refusal(GATED, core_groups.unmet(job, members, ())[0], Change.NONE)
        return None

    def may_fit(self, leader: PodRecord) -> bool:
        """Whether a node is feasible for any of the pending members now."""
        for pods in self._by_class(self.pending_members(leader)).values():
            profile = self._profiles[pods[0].scheduler]
            if self._columns.column(profile, pods[0].cls).best() >= 0:
                return True
        return False

    def cannot_be_ready(self, jobs: list[Job], members: list[PodRecord]) -> bool:
        """Whether too few members can fit, by an estimate; only if all of them have a condition
        message from an earlier attempt to find nodes, and never for the rest of an interrupted start,
        which may use what Waiting reservations claim."""
        job, can = jobs[0], jobs[0].ready_members
        if len(members) < _FEW or len(jobs) > 1 or not job.lacked_nodes or job.interrupted:
            return False
        if not all(pod.condition_message for pod in members):
            return False
        for pods in self._by_class(members).values():
            pod = pods[0]
            if (
                pod.pinned_node is not None
                or pod.nominated
                or pod.cls.volumes
                or pod.reservation is not None
            ):
                return False
            column = self._columns.column(self._profiles[pod.scheduler], pod.cls)
            if not column.is_local or (column.owned and len(pods) > 1):
                return False
            if column.owned:
                can += column.best() >= 0
                continue
            can += min(len(pods), self._capacity(pod, column.fits))
        return can < job.still_needs

    def may_wake(self, members: list[PodRecord]) -> int:
        """The changes that could help any member. The reasons may differ from those in its condition
        message."""
        wakes_on = MORE_CAPACITY
        for pods in self._by_class(members).values():
            profile = self._profiles[pods[0].scheduler]
            column = self._columns.column(profile, pods[0].cls)
            wakes_on |= column.wakes_on() | pods[0].wakes_on
        return wakes_on

    def _capacity(self, pod: PodRecord, rows: NDArray[np.bool_]) -> int:
        """An upper bound of how many pods of this class fit these rows."""
        nodes = self._cluster.nodes
        at = np.flatnonzero(rows)
        each = nodes.allocatable[PODS, at] - nodes.claimed[PODS, at]
        for slot, asked in pod.cls.requests:
            each = np.minimum(each, (nodes.allocatable[slot, at] - nodes.claimed[slot, at]) // asked)
        return int(np.maximum(each, 0).sum())

    def _by_class(self, members: list[PodRecord]) -> dict[tuple[str, int], list[PodRecord]]:
        found: dict[tuple[str, int], list[PodRecord]] = {}
        for pod in members:
            found.setdefault((pod.scheduler, pod.cls.id), []).append(pod)
        return found

    def could_start(self, jobs: list[Job]) -> bool:
        """Whether the jobs are ready now and their `minResources` are free."""
        ready = all(job.is_ready for job in jobs)
        return ready and not any(self._lacking_resources(job) for job in jobs)

    def would_lack(self, jobs: list[Job], held: Collection[PodRecord]) -> list[str]:
        """The resources of which too little for `minResources` is free, also once capacity is held for
        these members."""
        return [name for job in jobs for name in self._lacking_resources(job, held)]

    def _lacking_resources(self, job: Job, held: Collection[PodRecord] = ()) -> list[str]:
        """The resources of which less is free than the job's `minResources` require."""
        if job.group is None or not job.group.spec.min_resources:
            return []
        nodes = self._cluster.nodes
        lacking = []
        for name, quantity in sorted(job.group.spec.min_resources.items()):
            try:
                needed = amount(name, quantity)
            except QuantityError:
                continue
            slot = nodes.slots.find(name)
            if slot is None:
                if needed > 0:
                    lacking.append(name)
                continue
            alive = nodes.alive[: nodes.size]
            free = (nodes.allocatable[slot] - nodes.claimed[slot])[: nodes.size]
            own = sum(pod.cls.request(slot) for pod in job.placed())
            own += sum(pod.cls.request(slot) for pod in held if pod.job == job.name)
            own += self._cluster.jobs.held_for(job, slot)
            if own + int(np.maximum(free[alive], 0).sum()) < needed:
                lacking.append(name)
        return lacking
