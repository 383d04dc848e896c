"""Queueing hints: after changes, wakes up the groups of unschedulable pods that the changes may help.

A group is moved to the active queue only if a node may be feasible for it now, which the column of its
class says. Otherwise its pods stay where they are, and their conditions are updated.
"""

from collections import deque
from collections.abc import Callable, Collection, Hashable, Sequence

from holdfast.scheduler.cluster.events import Change
from holdfast.scheduler.cluster.plugin_errors import RAISED
from holdfast.scheduler.cluster.records import PodRecord
from holdfast.scheduler.framework.failure_handler import FailureHandler
from holdfast.scheduler.framework.feasibility.column import ClassColumn
from holdfast.scheduler.framework.feasibility.node_search import ColumnStore, NodeSearch
from holdfast.scheduler.framework.gangs import Gangs
from holdfast.scheduler.framework.interface import Plugin
from holdfast.scheduler.framework.preemption import Preemption
from holdfast.scheduler.framework.profile import Profile
from holdfast.scheduler.framework.scheduling_queue import Group, Key, SchedulingQueue
from holdfast.scheduler.state.cluster import Cluster

_FEW_GROUPS = 100
"""If changes may help more groups than this, conditions of pods that stay unschedulable are not
updated."""


class QueueingHints:
    """Wakes up groups of unschedulable pods."""

    def __init__(
        self,
        cluster: Cluster,
        queue: SchedulingQueue,
        profiles: Sequence[Profile],
        columns: ColumnStore,
        search: NodeSearch,
        failures: FailureHandler,
        preemption: Preemption,
        gangs: Gangs,
    ) -> None:
        self._cluster = cluster
        self._queue = queue
        self._profiles = profiles
        self._columns = columns
        self._search = search
        self._failures = failures
        self._preemption = preemption
        self._gangs = gangs
        self.few_groups = _FEW_GROUPS
        self.to_wake: deque[Group] = deque()
        """The groups that changes may help and that are not woken up yet."""
        self._nominated: dict[Key, dict[str, PodRecord]] = {}
        """Nominated pods, or the leaders of their jobs, by the key of their group in the queue."""

    def collect(self, changes: int, touched: set[Hashable], count_pods: bool) -> None:
        """Finds the groups that changes of these kinds, and of these storage objects, may help. With
        `count_pods` the number of pods, and not of groups, decides whether conditions are updated."""
        self.to_wake.extend(g for g in self._queue.groups() if self._may_help(g, changes, touched))
        count = sum(len(g.pods) for g in self.to_wake) if count_pods else len(self.to_wake)
        self._failures.terse = count > self.few_groups

    def wake(self, now: float, enough: Callable[[], bool] | None) -> bool:
        """Wakes up the groups that were found. False if `enough` ended that early."""
        if self.to_wake:
            self._index_nominated()
        while self.to_wake:
            group = self.to_wake.popleft()
            if self._queue.has(group):
                if group.key[1] < 0:
                    self._divide(group)
                    if not self._queue.has(group):
                        continue
                self._wake_group(group, now)
                if enough is not None and self.to_wake and enough():
                    return False
        return True

    def _may_help(self, group: Group, changes: int, touched: set[Hashable]) -> bool:
        """Whether changes of these kinds, and of these storage objects, may make the group's pods
        schedulable (kube-scheduler: queueing hints)."""
        kinds = group.wakes_on & changes
        if not kinds or kinds & ~Change.ABOUT_STORAGE or group.key[1] < 0:
            return bool(kinds)
        if group.watched is None:
            group.watched = self._watched(group)
        if group.watched is not None and group.watched.isdisjoint(touched):
            return False
        group.watched = None  # the claims may depend on other objects now
        return True

    def _watched(self, group: Group) -> frozenset[Hashable] | None:
        """The storage objects watched by the plugins that may have rejected the group, by its
        `wakes_on`; None if one of them does not implement `watches`, or fails."""
        cls = next(iter(group.pods.values())).cls
        profile = self._profiles[group.key[0]]
        rejected_by = [p for p in profile.volume_filters if not p.wakes_on & ~group.wakes_on]
        watched: set[Hashable] = set()
        for plugin in rejected_by:
            if type(plugin).watches is Plugin.watches:
                return None
            try:
                watched.update(plugin.watches(cls))
            except RAISED as error:
                self._cluster.plugin_errors.note(plugin.name, "QueueingHint", error)
                return None
        return frozenset(watched)

    def _divide(self, group: Group) -> None:
        """Moves pods that are no longer of the group's shape to groups of their own, which are woken up
        next."""
        shapes = self._failures.shapes
        version = shapes.version()
        first = next(iter(group.pods.values()))
        if group.shapes_version == version or first.job is not None or first.queue:
            return
        profile = self._profiles[group.key[0]]
        others: dict[Key, Group] = {}
        keys: dict[int, Key] = {}
        for pod in list(group.pods.values()):
            key = keys.get(pod.cls.id)
            if key is None:
                column = self._columns.column(profile, pod.cls)
                key = keys[pod.cls.id] = self._failures.group_key(profile, pod, column)
            if key != group.key:
                others[key] = self._queue.regroup(pod, key)
        group.shapes_version = version
        for other in others.values():
            other.shapes_version = version
        self.to_wake.extendleft(others.values())

    def _wake_group(self, group: Group, now: float) -> None:
        """Moves a group to the active queue if a node may be feasible now; otherwise updates the
        conditions of its pods."""
        reports = not self._failures.terse
        profile = self._profiles[group.key[0]]
        first = next(iter(group.pods.values()))
        if first.job is not None:
            self._wake_preemptors(group, now)
            if group.pods and (reports or self._may_start(profile, first)):
                self._queue.wake(group, now)
            return
        cls = first.cls
        if not self._cluster.nodes.count or self._preemption.can_preempt_for(profile, cls):
            self._queue.wake(group, now)
            return
        column = self._columns.column(profile, cls)
        if not reports:
            # Other plugins may reject the pods now, and no diagnosis is made to find out which.
            group.wakes_on |= column.wakes_on()
            group.watched = None
        if cls.pinned:
            for pod in list(group.pods.values()):
                if self._search.find_row(profile, pod, column) >= 0:
                    self._queue.wake_pod(pod, now)
                elif reports:
                    self._report_again(group, [pod], profile, column, now)
        elif column.best() >= 0:
            self._queue.wake(group, now)
        elif self._wake_preemptors(group, now) and not group.pods:
            return
        elif reports:
            pods = group.pods.values()
            group.condition_message = self._report_again(group, pods, profile, column, now)

    def _may_start(self, profile: Profile, leader: PodRecord) -> bool:
        """Whether some member of the job may be placed now, or may preempt."""
        admission = self._gangs.admission
        if admission.may_fit(leader):
            return True
        classes = {pod.cls.id: pod.cls for pod in admission.pending_members(leader)}
        return any(self._preemption.can_preempt_for(profile, cls) for cls in classes.values())

    def _wake_preemptors(self, group: Group, now: float) -> bool:
        """Wakes up the group's nominated pods, or the leaders of their jobs, which may be schedulable
        when others of their class or shape are not. Whether there are any."""
        nominated = self._nominated.get(group.key, {})
        for pod in nominated.values():
            if pod.uid in group.pods:
                self._queue.wake_pod(pod, now)
        return bool(nominated)

    def _index_nominated(self) -> None:
        """Writes `_nominated`."""
        self._nominated = {}
        for there in self._cluster.nominator.values():
            for pod in there.values():
                job = self._cluster.jobs.of(pod)
                queued = pod if job is None else job.leader
                key = self._queue.group_key(queued) if queued is not None else None
                if queued is not None and key is not None:
                    self._nominated.setdefault(key, {})[queued.uid] = queued

    def _report_again(
        self,
        group: Group,
        pods: Collection[PodRecord],
        profile: Profile,
        column: ClassColumn,
        now: float,
    ) -> str:
        """Updates the condition of pods that are still unschedulable, perhaps for other reasons than
        before; returns the message."""
        first = next(iter(pods))
        refusal = self._cluster.jobs.queue_limits.admission_error(first)
        if refusal:
            for pod in pods:
                self._failures.set_condition(pod, refusal, now, "Unschedulable")
            return refusal
        why = self._failures.verdict(profile, first, column)
        if why.has_failed:
            for pod in list(pods):
                self._failures.handle_error(pod, why.reasons, why.plugins, now)
            return why.reasons
        group.wakes_on |= column.wakes_on_rejection(why.plugins)
        group.watched = None
        nomination = None if why.error else self._preemption.post_filter(profile, first, column)
        post_filter = nomination.message if nomination is not None else ""
        message = why.message(self._cluster.nodes.count, post_filter)
        if message != group.condition_message:
            for pod in pods:
                self._failures.set_condition(pod, message, now, why.condition)
        return message
