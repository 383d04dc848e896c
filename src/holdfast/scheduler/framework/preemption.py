"""Preemption: PostFilter plugins propose victims and a node, and proposals are applied here.

A proposal takes effect only with `apply`, so that it can be asked for without consequences. A node that
is being cleared for a pod is its nominated node until the pod is placed or the nomination ends.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence

import msgspec

from holdfast.scheduler.cluster.decisions import Decision, Evict, Nominate, Preempt
from holdfast.scheduler.cluster.events import Change
from holdfast.scheduler.cluster.plugin_errors import RAISED
from holdfast.scheduler.cluster.pod_classes import PodClass
from holdfast.scheduler.cluster.records import Phase, PodRecord
from holdfast.scheduler.framework.binding_cycle import BindingCycle
from holdfast.scheduler.framework.checked_answers import check_nomination
from holdfast.scheduler.framework.diagnosis import Verdict
from holdfast.scheduler.framework.failure_handler import FailureHandler
from holdfast.scheduler.framework.feasibility.column import ClassColumn
from holdfast.scheduler.framework.feasibility.node_search import ColumnStore, NodeSearch
from holdfast.scheduler.framework.gang_permit import GangPermit
from holdfast.scheduler.framework.interface import Nomination, ObjectWarning
from holdfast.scheduler.framework.profile import Profile
from holdfast.scheduler.framework.scheduling_queue import SchedulingQueue
from holdfast.scheduler.state.cluster import Cluster


class Preemption:
    """Runs PostFilter plugins, applies what they propose, and keeps nominations."""

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
        decisions: list[Decision],
    ) -> None:
        self._cluster = cluster
        self._queue = queue
        self._profiles = profiles
        self._columns = columns
        self._search = search
        self._failures = failures
        self._binding = binding
        self._gang_permit = gang_permit
        self._decisions = decisions
        self._errors = cluster.plugin_errors
        self.rejected_victims: list[Preempt] = []
        """Preemptions of the last round that were not carried out, because the victims waited in
        Permit and were rejected there."""

    # Proposals

    def can_preempt_for(self, profile: Profile, cls: PodClass) -> bool:
        """Whether `post_filter` of some plugin could nominate a node for pods of the class."""
        for plugin in profile.post_filters:
            try:
                if plugin.can_preempt_for(cls):
                    return True
            except RAISED as error:
                self._errors.note(plugin.name, "PostFilter", error)
                return True
        return False

    def propose(self, profile: Profile, pod: PodRecord, column: ClassColumn) -> Nomination:
        """As `post_filter`, for actions, which do not write conditions: failures are noted."""
        found = self.post_filter(profile, pod, column)
        if found.has_failed and not column.is_rejected_by_failure():
            failed = frozenset(plugin.name for plugin in profile.post_filters)
            why = Verdict(found.message, failed, error=True, has_failed=True)
            self._failures.note_failed_dry_run(pod, why)
        return found

    def post_filter(self, profile: Profile, pod: PodRecord, column: ClassColumn) -> Nomination:
        """What PostFilter plugins propose for a pod without a feasible node. Nothing is decided here;
        see `apply`."""
        dry_run = self._search.dry_run(profile, pod, column)
        messages = []
        decisions: tuple[Decision, ...] = ()
        warnings: tuple[ObjectWarning, ...] = ()
        has_failed = False
        node = None if profile.post_filters else ""
        for plugin in profile.post_filters:
            try:
                nomination = plugin.post_filter(pod, dry_run)
                if plugin.name in profile.foreign:
                    check_nomination(plugin, nomination)
                    nomination = self._with_jobs_and_reservations(nomination)
            except RAISED as error:
                nomination = Nomination(message=self._errors.note(plugin.name, "PostFilter", error))
                has_failed = True
            column.refresh()
            warnings += nomination.warnings
            if column.is_rejected_by_failure():
                self._failures.note_failed_dry_run(pod, column.verdict())
                return Nomination("", warnings=warnings, has_failed=True)
            decisions += nomination.decisions
            if nomination.node or nomination.reserve_pods:
                return nomination._replace(decisions=decisions, warnings=warnings)
            node = nomination.node if node is None else node
            if nomination.message:
                messages.append(nomination.message)
        return Nomination(node, ", ".join(messages), decisions, (), warnings, has_failed)

    def _with_jobs_and_reservations(self, nomination: Nomination) -> Nomination:
        """Adds the jobs and reservations of victims, which order their deletion, to the decisions of a
        third-party plugin."""

        def known(decision: Decision) -> Decision:
            victim = self._cluster.pods.get(decision.pod.uid) if isinstance(decision, Preempt) else None
            if victim is None or not isinstance(decision, Preempt):
                return decision
            job, reservation = victim.job_name, victim.reservation_uid
            return msgspec.structs.replace(decision, job=job, reservation=reservation)

        return nomination._replace(decisions=tuple(map(known, nomination.decisions)))

    # What was proposed takes effect

    def apply(self, decisions: Sequence[Decision]) -> None:
        """Adopts decisions that were proposed: victims count as being preempted from now on, so that no
        further decision is made about them, and nominations are set or cleared. Victims that wait in
        Permit are neither deleted nor evicted; see `_reject_waiting`. The caller passes all victims of
        one preemptor or reclaimer together, since a job of which members wait is rejected as a
        whole."""
        pods = self._cluster.pods
        if self._binding.waiting:
            victims = [each.pod.uid for each in decisions if isinstance(each, Preempt | Evict)]
            rejected = self._reject_waiting(victims)
            kept: list[Decision] = []
            for each in decisions:
                if not (isinstance(each, Preempt | Evict) and each.pod.uid in rejected):
                    kept.append(each)
                elif isinstance(each, Preempt):
                    self.rejected_victims.append(each)
            decisions = kept
        self._decisions.extend(decisions)
        nominated: list[PodRecord] = []
        for decision in decisions:
            if isinstance(decision, Preempt | Evict):
                if (pod := pods.get(decision.pod.uid)) is not None:
                    pod.being_preempted = True
                    job = self._cluster.jobs.of(pod)
                    if job is not None and job.core is not None:
                        self._cluster.jobs.touch(job)  # its condition DisruptionTarget
                    elif job is not None:
                        self._cluster.jobs.victims.job_changed(job.name)
            elif isinstance(decision, Nominate) and (pod := pods.get(decision.pod.uid)) is not None:
                self._cluster.nominate(pod, decision.node)
                nominated.append(pod)
        for pod in nominated:
            self.note_nominated_reservation(pod)

    def _reject_waiting(self, victims: Iterable[str]) -> Collection[str]:
        """Rejects the victims that wait in Permit, with waiting members of their jobs that are then too
        few. Their objects stay, and they are tried again after a back-off. Returns the uids of these
        victims."""
        binding = self._binding
        found = {
            uid: waiting.pod
            for uid in victims
            if (waiting := binding.waiting.get(uid)) is not None and waiting.pod.phase is Phase.ASSUMED
        }
        if not found:
            return ()
        now = self._cluster.now
        for pod in found.values():
            if pod.job is None:
                binding.preempt_waiting(pod, now)
        self._gang_permit.preempt([pod for pod in found.values() if pod.job is not None], now)
        self._cluster.claims.deallocate(found.values())
        self._cluster.changed(Change.POD_LEFT)
        return found.keys()

    # Nominations

    def nominate(self, pod: PodRecord, node: str) -> None:
        """Sets the pod's nominated node, or clears it."""
        if node != pod.nominated:
            self._cluster.nominate(pod, node)
            self._decisions.append(Nominate(pod.ref, node))

    def note_nominated_reservation(self, pod: PodRecord) -> None:
        """Records the reservation that the pod will be allocated from on its nominated node once
        terminating pods are gone: until then that capacity counts as the pod's."""
        row = self._cluster.nodes.row(pod.nominated) if pod.nominated else None
        if row is None:
            return
        profile = self._profiles[pod.scheduler]
        column = self._columns.column(profile, pod.cls)
        if not column.owned:
            return
        there = list(self._cluster.ledger.pods.get(row, {}).values())
        terminating = [each for each in there if each.being_preempted or each.cls.terminating]
        dry_run = self._search.dry_run(profile, pod, column)
        found = dry_run.reservation_uid(row, terminating) or ""
        if found != pod.nominated_reservation:
            pod.nominated_reservation = found
            self._cluster.epoch.usage.add(row)

    def end_nominations(self) -> None:
        """Clears the nominated nodes of pods that a plugin keeps out of the queue, other than by gates,
        and those of refused pods when no victim is terminating there any more: otherwise they would
        keep other pods off capacity that they cannot use."""
        nominated = (pod for there in self._cluster.nominator.values() for pod in there.values())
        gated = [pod for pod in nominated if not pod.gates and self._queue.place(pod.uid) == "gated"]
        if gated:
            self.apply([Nominate(pod.ref, "") for pod in gated])
        refused = list(self._failures.refused_nominated.values())
        self._failures.refused_nominated.clear()
        for pod in refused:
            job = self._cluster.jobs.of(pod)
            members = [pod] if job is None else job.waiting()
            waiting = [each for each in members if each.nominated and each.phase is Phase.PENDING]
            if not any(self._is_being_cleared(each.nominated) for each in waiting):
                self.apply([Nominate(each.ref, "") for each in waiting])

    def _is_being_cleared(self, node: str) -> bool:
        """Whether pods on the node are terminating or being preempted, or devices of pods that are gone
        are not free yet."""
        row = self._cluster.nodes.row(node)
        if row is not None and self._cluster.claims.active and self._cluster.claims.is_releasing(row):
            return True
        there = self._cluster.ledger.pods.get(row, {}) if row is not None else {}
        return any(pod.being_preempted or pod.cls.terminating for pod in there.values())
