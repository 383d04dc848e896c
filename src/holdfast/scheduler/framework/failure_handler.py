"""The failure handler: why a pod is unschedulable, its condition and event, and its place in the queue.

Where no node is feasible, or a plugin refuses the pod, the pod is unschedulable until a change that can
help against the plugins concerned. Where a plugin raises or asks for a retry, it is in back-off.

A pod that one action finds no node for may get one from another action of the same round, such as
backfill. So the conditions and events of unschedulable pods are decided when the round ends, and those
of pods that are bound by then are dropped (`settle_reports`).
"""

from collections import Counter
from collections.abc import Callable, Collection, Iterable
from typing import NamedTuple

from holdfast.api import names
from holdfast.scheduler.cluster.decisions import Decision, Emit, SetPodScheduled
from holdfast.scheduler.cluster.events import Change
from holdfast.scheduler.cluster.records import Phase, PodRecord
from holdfast.scheduler.framework.diagnosis import NOT_PINNED, NodeRejection, Verdict, verdict
from holdfast.scheduler.framework.dry_run import DryRun
from holdfast.scheduler.framework.feasibility.column import ClassColumn
from holdfast.scheduler.framework.interface import Outcome, Plugin
from holdfast.scheduler.framework.pod_shapes import PodShapes
from holdfast.scheduler.framework.profile import Profile
from holdfast.scheduler.framework.reservation_diagnosis import about_reservations
from holdfast.scheduler.framework.scheduling_queue import Key, SchedulingQueue
from holdfast.scheduler.state.cluster import Cluster

PREEMPTED = "0/1 nodes are available: 1 preempted."
"""The condition message of a victim that waited in Permit."""
_UNSCHEDULABLE = "Unschedulable"
_EVENT_LIMIT = 1024
"""The longest message of an Event; the condition has it in full."""


class Refusal(NamedTuple):
    """Why a plugin refused a pod on its node."""

    plugin: str
    message: str
    has_failed: bool = False
    """Whether the plugin raised, rather than refused."""

    def verdict(self) -> Verdict:
        text = self.message if self.has_failed else with_name(self.plugin, self.message)
        failed = self.has_failed
        return Verdict(text, frozenset((self.plugin,)), error=failed, has_failed=failed)


class _UnschedulableReport(NamedTuple):
    """The condition and the events of an unschedulable pod, of the current round."""

    pod: PodRecord
    message_before: str
    """The message of its condition before the round."""
    decisions: list[Decision]


def with_name(plugin: str, message: str) -> str:
    """The message, with the name of the plugin if it does not have it."""
    return message if plugin in message else f"plugin {plugin} refuses: {message}"


class FailureHandler:
    """Handles failed attempts to schedule a pod."""

    def __init__(self, cluster: Cluster, queue: SchedulingQueue, decisions: list[Decision]) -> None:
        self._cluster = cluster
        self._queue = queue
        self._decisions = decisions
        self.shapes = PodShapes(cluster)
        self.refusals: dict[str, Refusal] = {}
        """Refusals that are not yet in the pod's condition, by uid."""
        self._failed_dry_runs: dict[str, tuple[PodRecord, Verdict]] = {}
        """Pods for which a plugin raised in a dry run of this round, by uid."""
        self.refused_nominated: dict[str, PodRecord] = {}
        """Pods with a nominated node that their queue did not admit or that were refused with their
        job, by uid; see `Preemption.end_nominations`."""
        self._reports: dict[str, _UnschedulableReport] = {}
        """By uid."""
        self._held_back: list[Decision] = []
        """Decisions of these reports, from earlier parts of the round."""
        self.terse = False
        """Whether so many pods were woken up that conditions of those that stay unschedulable are not
        updated."""

    def new_round(self) -> None:
        """Allows plugins that failed to be asked again. What was held back in the round before is
        reported."""
        self._cluster.plugin_errors.round += 1
        self.refusals.clear()
        self.settle_reports(lambda pod: False)

    # Why a pod is unschedulable

    def verdict(self, profile: Profile, pod: PodRecord, column: ClassColumn) -> Verdict:
        """Why no node is feasible for the pod, or why a plugin refused it on its node."""
        refusal = self.refusals.pop(pod.uid, None) if self.refusals else None
        if refusal is not None:
            return refusal.verdict()
        found = self._verdict(profile, pod, column)
        if column.has_failed():
            column.decide_rejection()  # a formula for reasons may have raised just now
            return column.verdict() if column.rejected is not None else found
        return found

    def _verdict(self, profile: Profile, pod: PodRecord, column: ClassColumn) -> Verdict:
        if column.rejected is not None:
            return column.verdict()
        dry_run = DryRun(self._cluster, column, pod, profile.pins(pod))
        if profile.pins(pod):
            # Only the named node is filtered; the others share one reason.
            nodes = self._cluster.nodes
            rejections: dict[NodeRejection, int] = {}
            others = nodes.count
            row = nodes.row(pod.pinned_node or "")
            if row is not None and nodes.alive[row]:
                others -= 1
                rejections[dry_run.rejection(row)] = 1
            if others:
                rejections[NOT_PINNED] = others
            return verdict(rejections)
        corrections = dry_run.corrections() if self._cluster.nominator else {}
        if not corrections:
            return column.verdict()
        counts = Counter(column.diagnosis.histogram())
        counts.subtract(Counter(column.diagnosis.known_rejection(row) for row in corrections))
        counts.update(corrections.values())
        return verdict(counts)

    def note_failure(self, pod: PodRecord, column: ClassColumn) -> None:
        """Notes that a plugin raised for the pod's class, as the reason for its condition, even if the
        plugin's answer is dropped before the condition is set."""
        if column.has_failed() and (why := column.verdict()).has_failed:
            self.refusals[pod.uid] = Refusal(min(why.plugins), why.reasons, True)

    def note_failed_dry_run(self, pod: PodRecord, why: Verdict) -> None:
        """Notes that a plugin raised in a dry run, for `report_failed_dry_runs`: actions that try pods
        do not write conditions."""
        self._failed_dry_runs[pod.uid] = pod, why

    def report_failed_dry_runs(self, now: float) -> None:
        """Sets the conditions of pods for which plugins raised in dry runs of this round, and puts the
        pods in back-off."""
        failed, self._failed_dry_runs = self._failed_dry_runs, {}
        for uid, (pod, why) in failed.items():
            if (
                self._cluster.pods.get(uid) is not pod
                or pod.phase is not Phase.PENDING
                or pod.deletion_pending
            ):
                continue
            job = self._cluster.jobs.of(pod)
            queued = pod if job is None else job.leader
            if queued is not None and self._queue.place(queued.uid) == "unschedulable":
                self._queue.take(queued)
                self._queue.retry_later(queued, now)
            pod.rejected_by = why.plugins
            self.set_condition(pod, why.reasons, now, "SchedulerError")

    def settle_reports(self, may_be_placed: Callable[[PodRecord], bool]) -> None:
        """Drops the conditions and events of pods that are bound now, or are gone; holds back those
        of pods that a later part of the round may place."""
        decisions = self._decisions
        decisions[:0], self._held_back = self._held_back, []
        reports, self._reports = self._reports, {}
        dropped: set[int] = set()
        held_back: set[int] = set()
        for uid, report in reports.items():
            if not self._is_unschedulable(report.pod):
                dropped.update(map(id, report.decisions))
                if report.pod.phase is Phase.ASSUMED:
                    report.pod.condition_message = report.message_before
            elif may_be_placed(report.pod):
                held_back.update(map(id, report.decisions))
                self._reports[uid] = report
        if held_back:
            self._held_back = [each for each in decisions if id(each) in held_back]
        if left_out := dropped | held_back:
            decisions[:] = [each for each in decisions if id(each) not in left_out]

    def _is_unschedulable(self, pod: PodRecord) -> bool:
        """Whether the pod exists and is not bound. One that waits in Permit may have lost another node
        in the same round, so its report stays."""
        exists = pod.reservation is not None or self._cluster.pods.get(pod.uid) is pod
        is_bound = pod.phase is Phase.ASSIGNED or (pod.phase is Phase.ASSUMED and pod.bind_decided)
        return exists and not is_bound

    # What becomes of it

    def handle_unschedulable(
        self,
        profile: Profile,
        pod: PodRecord,
        message: str,
        plugins: Collection[str],
        now: float,
        condition: str = _UNSCHEDULABLE,
        next_scout: bool = False,
        column: ClassColumn | None = None,
    ) -> None:
        """The pod was rejected by these plugins: it is unschedulable until a change wakes it up. With
        `column` it was rejected because no node is feasible, which holds for all pods of its shape."""
        if pod.deletion_pending:
            self._queue.forget(pod)
            return
        pod.rejected_by = plugins
        key = self.group_key(profile, pod, column)
        wakes_on = profile.wakes_on(plugins) if column is None else column.wakes_on_rejection(plugins)
        wakes_on |= self.awaited_devices((pod,))
        waiting = self._queue.reject(pod, key, wakes_on, now, next_scout)
        for rejected in (pod, *waiting):
            if rejected.cls.claims:
                self._cluster.claims.drop_left_consumer(rejected)
            self.set_condition(rejected, message, now, condition)

    def handle_error(self, pod: PodRecord, message: str, plugins: Collection[str], now: float) -> None:
        """These plugins raised: the pod is tried again after a back-off."""
        if pod.deletion_pending:
            self._queue.forget(pod)
            return
        pod.rejected_by = plugins
        self._queue.retry_later(pod, now)
        self.set_condition(pod, message, now, "SchedulerError")

    def handle_refusal(self, profile: Profile, pod: PodRecord, refusal: Refusal, now: float) -> None:
        """A plugin refused the pod on its node. Other nodes may be feasible for others of its class."""
        self.refusals.pop(pod.uid, None)
        if refusal.has_failed:
            self.handle_error(pod, refusal.message, {refusal.plugin}, now)
        else:
            self.handle_unschedulable(
                profile, pod, refusal.message, {refusal.plugin}, now, next_scout=True
            )

    def handle_outcome(
        self,
        profile: Profile,
        pod: PodRecord,
        plugin: Plugin,
        outcome: Outcome,
        now: float,
        next_scout: bool = False,
    ) -> None:
        """A plugin refused an assumed pod in its binding cycle, and the pod was unreserved."""
        if not outcome.retry or pod.deletion_pending:
            self.handle_unschedulable(
                profile, pod, outcome.message, {plugin.name}, now, next_scout=next_scout
            )
            return
        self._queue.retry_later(pod, now)
        self.set_condition(pod, outcome.message, now, "SchedulerError")

    def handle_preempted(self, pod: PodRecord, now: float) -> None:
        """The pod was preempted before it was bound: it is tried again after a back-off."""
        if pod.deletion_pending:
            self._queue.forget(pod)
            return
        self._queue.retry_later(pod, now, is_error=False)
        self.set_condition(pod, PREEMPTED, now, _UNSCHEDULABLE)

    def handle_not_admitted(self, profile: Profile, pod: PodRecord, message: str, now: float) -> None:
        """The pod's queue does not admit it."""
        self.handle_unschedulable(profile, pod, message, (), now, next_scout=bool(pod.nominated))
        self.note_nominated(pod)

    def note_nominated(self, pod: PodRecord) -> None:
        """Notes a refused pod in `refused_nominated`, if it has a nominated node."""
        if pod.nominated:
            self.refused_nominated[pod.uid] = pod

    def awaited_devices(self, pods: Iterable[PodRecord]) -> int:
        """The change that pods wait for whose victims are gone and devices not free yet, whatever
        rejects the pods meanwhile."""
        concerns = self._cluster.claims.concerns
        waits = any(pod.nominated and concerns(pod.cls) for pod in pods)
        return Change.DEVICES if waits else Change.NONE

    def keep_condition(self, profile: Profile, pod: PodRecord, column: ClassColumn, now: float) -> None:
        """The pod stays unschedulable, perhaps for other reasons than its condition says."""
        wakes_on = pod.wakes_on | column.wakes_on()
        self._queue.reject(pod, self.group_key(profile, pod, column), wakes_on, now)

    def group_key(self, profile: Profile, pod: PodRecord, column: ClassColumn | None = None) -> Key:
        """The key of the pod's group in the queue: its shape if the column, which is up to date, says
        that its class shares it; else its class and, if it has one, its queue."""
        if pod.job is not None:
            return (profile.index, pod.cls.id)
        if pod.queue:
            return (profile.index, self._queue.number((pod.cls.id, pod.queue)))
        shape = self.shapes.of(profile, pod.cls, column) if column is not None else None
        if shape is None:
            return (profile.index, pod.cls.id)
        return (profile.index, self._queue.number(shape))

    def set_condition(self, pod: PodRecord, message: str, now: float, reason: str) -> None:
        """Sets the condition PodScheduled to False and emits an event, unless the message is the same
        as before."""
        if pod.condition_message == message:
            return
        before, first = pod.condition_message, len(self._decisions)
        pod.condition_message = message
        self._cluster.chronicle.note(now, pod.ref, reason, message)
        if pod.reservation is not None:
            self._cluster.reservations.record_unschedulable(pod.reservation, message)
        else:
            self._decisions.append(SetPodScheduled(pod.ref, reason, message))
        self._emit(pod, "FailedScheduling", message)
        if names.RESERVATION_AFFINITY in pod.cls.annotations:
            counted = about_reservations(message)
            if counted:
                self._emit(pod, "FailedScheduling-Reservation", counted)
        if reason == _UNSCHEDULABLE:
            report = self._reports.setdefault(pod.uid, _UnschedulableReport(pod, before, []))
            report.decisions.extend(self._decisions[first:])
        elif self._reports:
            self._reports.pop(pod.uid, None)  # it comes before this, and is no longer held back

    def _emit(self, pod: PodRecord, reason: str, message: str) -> None:
        text = message if len(message) <= _EVENT_LIMIT else message[: _EVENT_LIMIT - 4] + " ..."
        self._decisions.append(Emit(pod.ref, "Warning", reason, text, "Scheduling"))
