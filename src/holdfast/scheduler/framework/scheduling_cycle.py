"""The scheduling cycle: takes one pod from the queue to a node, and on to its binding cycle.

    schedule ──► a feasible node ──► assume, reserve ──► binding cycle
                   └─► none: preemption, failure handler

The pod is assumed on the best node at once, so that the next pod sees its capacity claimed. Actions and
gangs use the same steps for several pods at a time, in a `Statement`.
"""

from collections.abc import Mapping

import numpy as np

from holdfast.scheduler.cluster.decisions import Decision
from holdfast.scheduler.cluster.plugin_errors import RAISED
from holdfast.scheduler.cluster.records import Phase, PodRecord
from holdfast.scheduler.framework.binding_cycle import BindingCycle
from holdfast.scheduler.framework.checked_answers import checked_outcome
from holdfast.scheduler.framework.diagnosis import NO_NODES
from holdfast.scheduler.framework.dry_run import DryRun
from holdfast.scheduler.framework.dynamic_provisioning import DynamicProvisioning
from holdfast.scheduler.framework.failure_handler import FailureHandler, Refusal
from holdfast.scheduler.framework.feasibility.column import ClassColumn
from holdfast.scheduler.framework.feasibility.node_search import ColumnStore, NodeSearch
from holdfast.scheduler.framework.gang_failures import Unpermitted
from holdfast.scheduler.framework.gang_permit import GangPermit
from holdfast.scheduler.framework.interface import FINE, Nomination
from holdfast.scheduler.framework.preemption import Preemption
from holdfast.scheduler.framework.profile import Profile
from holdfast.scheduler.framework.scheduling_queue import SchedulingQueue
from holdfast.scheduler.jobs import Job
from holdfast.scheduler.reservations import ReservationInfo
from holdfast.scheduler.state.cluster import Cluster


class SchedulingCycle:
    """Schedules single pods."""

    def __init__(
        self,
        cluster: Cluster,
        queue: SchedulingQueue,
        profiles: Mapping[str, Profile],
        columns: ColumnStore,
        search: NodeSearch,
        failures: FailureHandler,
        binding: BindingCycle,
        gang_permit: GangPermit,
        preemption: Preemption,
        decisions: list[Decision],
    ) -> None:
        self.cluster = cluster
        self._table = cluster.nodes
        self._queue = queue
        self._profiles = profiles
        self.columns = columns
        self.search = search
        self.failures = failures
        self.binding = binding
        self.gang_permit = gang_permit
        self._preemption = preemption
        self._decisions = decisions
        self._provisioning = DynamicProvisioning(
            cluster, queue, profiles, columns, search, failures, binding, self
        )

    def schedule(self, profile: Profile, pod: PodRecord, now: float) -> bool:
        """Tries to schedule a pod that was popped; whether it has a node."""
        if not self._table.count:
            self._preemption.nominate(pod, "")
            self.failures.handle_unschedulable(profile, pod, NO_NODES, (), now)
            return False
        if pod.reservation is not None and pod.reservation.preemptor:
            return self._schedule_preemption_hold(profile, pod, pod.reservation, now)
        if profile.provisions and self._provisioning.concerns(pod):
            return self._provisioning.schedule(profile, pod, now)
        return self.schedule_pod(profile, pod, now)

    def schedule_pod(self, profile: Profile, pod: PodRecord, now: float) -> bool:
        """As `schedule`, on existing nodes and reservations."""
        column = self.columns.column(profile, pod.cls)
        row = self.search.find_row(profile, pod, column)
        if row < 0:
            self._handle_no_node(profile, pod, column, now)
            return False
        self.search.nominate_reservation(profile, pod, column, row)
        return self.assume_and_bind(profile, pod, row, now)

    def assume_and_bind(self, profile: Profile, pod: PodRecord, row: int, now: float) -> bool:
        """Assumes the pod on the row and starts its binding cycle; whether it has its node."""
        before = self.cluster.changes
        refusal = self.reserve(profile, pod, row)
        if refusal is None:
            if self.binding.bind(profile, pod, now):
                return True
        else:
            self.failures.handle_refusal(profile, pod, refusal, now)
        # Undoing an assumed pod frees nothing, so it must wake no pod, least of all this one.
        self.cluster.undo_changes(before)
        return False

    def reserve(self, profile: Profile, pod: PodRecord, row: int) -> Refusal | None:
        """Assumes the pod on the row and runs Reserve plugins; the refusal if one refuses. Undone by
        `BindingCycle.unreserve`."""
        before, refusals = self.cluster.changes, self.failures.refusals
        if refusals:
            refusals.pop(pod.uid, None)
        self.cluster.assume(pod, row)
        for plugin in profile.reserving:
            try:
                outcome = plugin.reserve(pod, row)
                if outcome is FINE:
                    continue
                message, has_failed = checked_outcome(plugin, outcome).message, False
            except RAISED as error:
                message = self.cluster.plugin_errors.note(plugin.name, "Reserve", error)
                has_failed = True
            if message:
                reserved = profile.reserve[: profile.reserve.index(plugin) + 1]
                self.binding.run_unreserve(pod, row, reserved)
                self.cluster.unassume(pod)
                self.cluster.undo_changes(before)
                refusal = refusals[pod.uid] = Refusal(plugin.name, message, has_failed)
                return refusal
        return None

    # Preemption holds

    def _schedule_preemption_hold(
        self, profile: Profile, pod: PodRecord, hold: ReservationInfo, now: float
    ) -> bool:
        """Assumes a preemption hold on its node, whatever still runs there."""
        row = self._table.row(hold.wants_node)
        owner = self.cluster.pods.get(hold.preemptor)
        placed = owner is not None and owner.phase is not Phase.PENDING
        if placed or hold.released or hold.deleting or row is None or not self._table.alive[row]:
            self._queue.forget(pod)
            return False
        if owner is not None and self._schedule_preemptor(owner, hold, row, now):
            return True
        self._queue.take(pod)  # a failed attempt at the owner may have queued the hold again
        return self.assume_and_bind(profile, pod, row, now)

    def _schedule_preemptor(
        self, owner: PodRecord, hold: ReservationInfo, row: int, now: float
    ) -> bool:
        """Schedules the preemptor instead of its hold, if the victims were gone before the hold could
        be. Tried once per hold, since the preemptor may have to wait in Permit."""
        if hold.taken_early or owner.nominated != hold.wants_node:
            return False
        profile = self._profiles.get(owner.scheduler)
        if profile is None or owner.job is not None or owner.queue or self.cluster.jobs.queues:
            return False  # it waits for more than a node
        if profile.provisions and self._provisioning.concerns(owner):
            return False
        column = self.columns.column(profile, owner.cls)
        dry_run = DryRun(self.cluster, column, owner, profile.pins(owner))
        if column.rejected is not None or not dry_run.fits(row) or not self._queue.pop_pod(owner):
            return False
        hold.taken_early = True
        self.search.nominate_reservation(profile, owner, column, row)
        owner.reservation_uid = owner.reservation_uid or hold.uid
        return self.assume_and_bind(profile, owner, row, now)

    # No node is feasible

    def _handle_no_node(
        self, profile: Profile, pod: PodRecord, column: ClassColumn, now: float
    ) -> None:
        failures, preemption = self.failures, self._preemption
        if failures.terse and self._queue.is_scout(pod) and self._needs_free_node(profile, pod):
            failures.keep_condition(profile, pod, column, now)
            return
        why = failures.verdict(profile, pod, column)
        if why.has_failed:
            preemption.nominate(pod, "")
            failures.handle_error(pod, why.reasons, why.plugins, now)
            return
        # Other pods of the class get the same result, unless this pod has a node of its own.
        next_scout = bool(pod.nominated) or pod.pinned_node is not None
        nomination = Nomination("") if why.error else preemption.post_filter(profile, pod, column)
        if column.is_rejected_by_failure():  # in the dry run
            why = column.verdict()
            preemption.nominate(pod, "")
            failures.handle_error(pod, why.reasons, why.plugins, now)
            return
        self._warn(nomination)
        if nomination.reserve_pods:
            self._bind_reserve_pods(profile, nomination, now)
            return
        preemption.apply(nomination.decisions)
        if nomination.node is not None:
            preemption.nominate(pod, nomination.node)
        preemption.note_nominated_reservation(pod)
        message = why.message(self._table.count, nomination.message)
        if nomination.has_failed and not nomination.node:
            failures.handle_error(pod, message, why.plugins, now)
            return
        next_scout = next_scout or bool(nomination.node)
        failures.handle_unschedulable(
            profile, pod, message, why.plugins, now, why.condition, next_scout, column
        )

    def _needs_free_node(self, profile: Profile, pod: PodRecord) -> bool:
        """Whether the pod has a condition already and preemption cannot help it."""
        if (
            pod.deletion_pending
            or pod.nominated
            or pod.pinned_node is not None
            or not pod.condition_message
        ):
            return False
        return not self._preemption.can_preempt_for(profile, pod.cls)

    def _warn(self, nomination: Nomination) -> None:
        for warning in nomination.warnings:
            self.cluster.warn_once(*warning)

    # Reservations that preempt reservations

    def preempt_for_reservations(
        self, profile: Profile, pod: PodRecord, jobs: list[Job], now: float
    ) -> bool:
        """Preempts for a reserve pod of these jobs, and for the others; whether victims were found."""
        column = self.columns.column(profile, pod.cls)
        nomination = self._preemption.post_filter(profile, pod, column)
        self._warn(nomination)
        if not nomination.reserve_pods:
            return False
        self._bind_reserve_pods(profile, nomination, now)
        for job in jobs:
            if job.is_ready:
                self.gang_permit.became_ready(job, now)
        return True

    def _bind_reserve_pods(self, profile: Profile, nomination: Nomination, now: float) -> None:
        """Assumes and binds the reserve pods of a nomination, all of them or none."""
        assumed: list[PodRecord] = []
        before = self.cluster.changes
        for pod, row, clears in nomination.reserve_pods:
            assert pod.reservation is not None
            self._queue.forget(pod)
            pod.reservation.victims = clears
            refusal = self.reserve(profile, pod, row)
            if refusal is None:
                assumed.append(pod)
                continue
            for other in assumed:
                self.binding.unreserve(profile, other)
            for each in nomination.reserve_pods:
                self.failures.handle_refusal(profile, each.pod, refusal, now)
            self.cluster.undo_changes(before)
            return
        decided = len(self._decisions)
        lost = self.gang_permit.bind([(profile, pod) for pod in assumed], now, whole=True)
        if lost is not None:
            stop = lost.stops[0][1]
            refusal = Refusal(stop.plugin.name, stop.text(), stop.outcome.retry)
            for pod in lost.members:
                self.failures.handle_refusal(profile, pod, refusal, now)
            self.cluster.undo_changes(before)
            return
        # Victims are evicted before the reservations are bound.
        binds = self._decisions[decided:]
        del self._decisions[decided:]
        self._preemption.apply(nomination.decisions)
        self._decisions.extend(binds)


class Statement:
    """A transaction over several pods, as in Volcano: assumes them one by one; `commit` binds all,
    `discard` undoes all."""

    def __init__(self, cycle: SchedulingCycle) -> None:
        self._cycle = cycle
        self._changes = cycle.cluster.changes
        self.assumed: list[tuple[Profile, PodRecord]] = []
        self.was_refused = False
        """Whether `reserve` of a plugin refused the last pod."""

    def assume(self, profile: Profile, pod: PodRecord) -> bool:
        """Assumes the pod on its best node, if there is a feasible one."""
        cycle = self._cycle
        column = cycle.columns.column(profile, pod.cls)
        self.was_refused = False
        row = cycle.search.find_row(profile, pod, column)
        if row < 0:
            cycle.failures.note_failure(pod, column)
            return False
        cycle.search.nominate_reservation(profile, pod, column, row)
        if pod.reservation_uid in cycle.cluster.virtuals.by_id:
            row = self._apart_from_virtuals(profile, pod, column)
            if row < 0:
                return False
        return self.assume_on(profile, pod, row)

    def _apart_from_virtuals(self, profile: Profile, pod: PodRecord, column: ClassColumn) -> int:
        """The best row where the pod is not allocated from a reservation that is yet to be created:
        members that wait for one would be bound after the others, or never. -1 if there is none."""
        cluster = self._cycle.cluster
        pod.reservation_uid = ""
        if cluster.nominator or pod.pinned_node is not None:
            return -1
        among = self._cycle.search.placement
        apart = np.ones(cluster.nodes.size, dtype=np.bool_) if among is None else among.copy()
        for virtual in cluster.virtuals.by_id.values():
            if column.reservation_uid(virtual.row) == virtual.id:
                apart[virtual.row] = False
        row = column.best_of(apart)
        if row >= 0:
            self._cycle.search.nominate_reservation(profile, pod, column, row)
        return row

    def assume_on(self, profile: Profile, pod: PodRecord, row: int) -> bool:
        """Assumes the pod on this row, where it fits."""
        self.was_refused = self._cycle.reserve(profile, pod, row) is not None
        if self.was_refused:
            return False
        self.assumed.append((profile, pod))
        return True

    def discard(self) -> None:
        """Undoes all assumed pods."""
        for profile, pod in reversed(self.assumed):
            self._cycle.binding.unreserve(profile, pod)
        self.assumed.clear()
        self._cycle.cluster.undo_changes(self._changes)

    def commit(self, now: float, reports_ready: bool = False) -> Unpermitted | None:
        """Binds all pods. If plugins permit fewer pods of a job than it needs, none is bound and all
        are unreserved."""
        assumed, self.assumed = self.assumed, []
        if assumed and assumed[0][1].job is None:
            for profile, pod in assumed:
                self._cycle.binding.bind(profile, pod, now)
            return None
        lost = self._cycle.gang_permit.bind(assumed, now, reports_ready)
        if lost is not None and len(lost.members) == len(assumed):
            self._cycle.cluster.undo_changes(self._changes)
        return lost
