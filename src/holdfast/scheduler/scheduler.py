"""The whole decision-maker: events in, and on request a round, whose decisions come out.

    scheduler.feed(event, now)       as often as something happens
    scheduler.round(now)             whenever something was fed, or `next_timer()` has come

It never waits, reads no clock and does no I/O: a backend or a simulation does.
"""

from collections import deque
from collections.abc import Callable, Collection, Hashable, Mapping, Sequence
from typing import Protocol

from holdfast.scheduler.actions.allocate import Allocate
from holdfast.scheduler.actions.backfill import Backfill
from holdfast.scheduler.actions.convergence import ConvergenceGuard
from holdfast.scheduler.actions.hold_reconciler import HoldReconciler
from holdfast.scheduler.actions.preempt import PreemptAction
from holdfast.scheduler.actions.reclaim import Reclaim
from holdfast.scheduler.actions.reserve import Reserve
from holdfast.scheduler.actions.round import Action, Round
from holdfast.scheduler.cluster.cluster import Cluster
from holdfast.scheduler.cluster.decisions import Decision, Emit
from holdfast.scheduler.cluster.events import Change, Event
from holdfast.scheduler.cluster.plugin_errors import RAISED
from holdfast.scheduler.cluster.pods import Phase, PodRecord
from holdfast.scheduler.cluster.settings import ClusterSettings
from holdfast.scheduler.framework.checked_answers import checked_gate
from holdfast.scheduler.framework.config import Configuration, CoschedulingArgs
from holdfast.scheduler.framework.feasibility.column import ClassColumn
from holdfast.scheduler.framework.gangs import Gangs
from holdfast.scheduler.framework.hold_planner import HoldPlanner
from holdfast.scheduler.framework.interface import Plugin
from holdfast.scheduler.framework.plugin_names import COSCHEDULING
from holdfast.scheduler.framework.profile import Profile
from holdfast.scheduler.framework.registry import Registry
from holdfast.scheduler.framework.scheduling_cycle import Cycle
from holdfast.scheduler.framework.scheduling_queue import Group, Key, SchedulingQueue
from holdfast.scheduler.jobs import Job

_FEW_GROUPS = 100
_BINDS_AGAIN = 3
"""So often in a row a bind that was refused is decided again at the same place, where it may be."""
_PARTS = 1.0
"""Seconds in which the parts of a round count as one, where it matters how often something is tried."""

ACTIONS: Mapping[str, type[Action]] = {
    "allocate": Allocate,
    "backfill": Backfill,
    "reserve": Reserve,
    "preempt": PreemptAction,
    "reclaim": Reclaim,
}
"""What a configured action's name stands for."""


class Controller(Protocol):
    """Looks after objects of some kind, in the same cluster and by the same rules."""

    def run(self, now: float) -> list[Decision]:
        """Decides all that can be decided now."""

    def next_timer(self) -> float | None:
        """When it is to run even if nothing happens."""


class Scheduler:
    """`aliases` maps further scheduler names to those of profiles, for a backend that serves both."""

    def __init__(
        self,
        configuration: Configuration,
        registry: Registry,
        aliases: Mapping[str, str] | None = None,
        controllers: Sequence[Callable[[Cluster], Controller]] = (),
    ) -> None:
        self.cluster = Cluster(_settings(configuration, aliases or {}), watcher=self)
        preempts = any(action.name == "preempt" for action in configuration.actions)
        profiles = [
            Profile(index, resolved, registry, self.cluster, preempts)
            for index, resolved in enumerate(configuration.profiles)
        ]
        self._profiles = {profile.scheduler_name: profile for profile in profiles}
        self._profiles.setdefault("", profiles[0])  # reservations that name no scheduler
        for alias, name in (aliases or {}).items():
            self._profiles.setdefault(alias, self._profiles[name])
        self.queue = SchedulingQueue(
            profiles[0].sort_key, configuration.pod_initial_backoff, configuration.pod_max_backoff
        )
        self.cycle = Cycle(self.cluster, self.queue, self._profiles)
        self.gangs = Gangs(self.cluster, self.queue, self.cycle, self._profiles)
        self.hold_planner = HoldPlanner(self.cluster, self.cycle, self._profiles)
        self.hold_reconciler = HoldReconciler(self.cluster, self.hold_planner)
        self.guard = ConvergenceGuard(
            self.cluster, configuration.pod_initial_backoff, configuration.pod_max_backoff
        )
        self._controllers = [make(self.cluster) for make in controllers]
        self.unfinished = False
        """Whether the last round was but a part."""
        self._begun = 0.0
        """When the round began that is unfinished."""
        self._to_wake: deque[Group] = deque()
        """Of the groups that changes could help, those not woken yet."""
        self._turned_away: list[PodRecord] = []
        """See `Round`, of the parts there were."""
        self._failed_gates: dict[str, tuple[float, PodRecord]] = {}
        """Pods kept out of the queue by a plugin that failed, and when it is asked again."""
        self._nominated: dict[Key, dict[str, PodRecord]] = {}
        """Those a node is being cleared for, or who stand for them, by the group they wait in."""
        self.profiles = profiles
        self._actions = [
            ACTIONS[action.name](action.arguments)
            for action in configuration.actions
            if action.name in ACTIONS
        ]

    def feed(self, event: Event, now: float) -> None:
        """Takes note of something that happened."""
        self.cluster.feed(event, now)

    def round(
        self, now: float, limit: int | None = None, enough: Callable[[], bool] | None = None
    ) -> list[Decision]:
        """Decides all that can be decided now, or a part of that: as much as takes that many pods to be
        tried, or until it is `enough`, which is asked after each. Then `unfinished` says whether
        another part should follow at once."""
        self.cluster.now = now
        self.cluster.release_slots()
        self._ask_failed_gates_again(now)
        self.gangs.new_round()
        if not self.unfinished or now - self._begun > _PARTS:
            self._begun = now
            self.queue.new_round()
            self.cycle.new_round()
        self.guard.begin(now)
        self.cycle.rejected_victims.clear()
        round_ = Round(
            self.cluster,
            self.queue,
            self.cycle,
            self.gangs,
            self.hold_planner,
            self.hold_reconciler,
            self._profiles,
            now,
            enough=enough,
            turned_away=self._turned_away,
        )
        if limit is not None:
            round_.pods_left = limit
        self.cycle.recheck_waiting(self._profiles, now)
        self.gangs.recheck_waiting(now)
        decisions: list[Decision] = []
        passes, in_vain, before = 0, 0, (-1, -1)
        while True:
            for controller in self._controllers:
                decisions += controller.run(now)
            if not self._wake(now, enough):
                self.unfinished = True
                break
            if self.cluster.jobs.holds:
                decisions += self.hold_reconciler.run(now)
            for action in self._actions:
                action.run(round_)
            self.unfinished = round_.pods_left <= 0
            if not self.unfinished and not self.cluster.has_changes():
                self.gangs.end_nominations()
            if self.unfinished or not self.cluster.has_changes():
                break
            passes += 1
            progress = self.cluster.epoch.inputs, len(decisions) + len(self.cycle.decisions)
            in_vain = in_vain + 1 if progress == before else 0
            before = progress
            if self.guard.ends(passes, in_vain, self._tried(), now):
                break
        self.cycle.report_failed_dry_runs(now)
        self._turned_away = round_.turned_away if self.unfinished else []
        if not self.unfinished:
            self.gangs.refused.clear()
        for controller in self._controllers:
            decisions += controller.run(now)
        decisions = self.cluster.take_reports() + decisions + self.cycle.decisions
        self.cycle.decisions = []
        for pod, times in self.queue.set_aside:
            self.guard.tried_too_often(pod, times, now)
        self.queue.set_aside.clear()
        return self.guard.admit(decisions, now)

    def _tried(self) -> list[PodRecord]:
        """The pods tried last, in vain."""
        found = (self.cluster.pods.get(uid) for uid in self.queue.tried())
        return [pod for pod in found if pod is not None]

    def profile_of(self, scheduler_name: str) -> Profile | None:
        """The profile pods of that scheduler name fall under, if they are ours."""
        return self._profiles.get(scheduler_name)

    @property
    def backfilled(self) -> int:
        """How many pods were let into held room."""
        return sum(action.placed for action in self._actions if isinstance(action, Backfill))

    def next_timer(self) -> float | None:
        """When a round is due even if nothing happens."""
        times = [self.queue.next_due(), self.cycle.next_deadline(), self.guard.next_timer()]
        times += [action.next_timer() for action in self._actions]
        times += [due for due, _ in self._failed_gates.values()]
        times += [controller.next_timer() for controller in self._controllers]
        return min((time for time in times if time is not None), default=None)

    def _wake(self, now: float, enough: Callable[[], bool] | None) -> bool:
        """Wakes the groups that changes could help; False if that was cut short, to be gone on with
        before anything else: who is woken last may come first in the queue. What changes meanwhile is
        left for later, or those who wait might never be tried."""
        if not self._to_wake:
            changes, touched = self.cluster.take_changes(), self.cluster.volumes.take_touched()
            if changes & Change.OBJECTS:
                self._ask_gates_again()
            self._to_wake.extend(g for g in self.queue.groups() if self._concerns(g, changes, touched))
            told = sum(len(g.pods) for g in self._to_wake) if self.unfinished else len(self._to_wake)
            self.cycle.terse = told > _FEW_GROUPS
        if self._to_wake:
            self._take_note_of_nominated()
        while self._to_wake:
            group = self._to_wake.popleft()
            if self.queue.has(group):
                self._wake_group(group, now)
                if enough is not None and self._to_wake and enough():
                    return False
        return True

    def _ask_gates_again(self) -> None:
        """A plugin may have kept pods out of the queue for what it read of objects."""
        for pod in self.queue.gated():
            profile = self._profiles[pod.scheduler]
            reads = any(plugin.reads_objects for plugin in profile.pre_enqueue)
            if reads and not self._is_gated(profile, pod):
                self.pod_pending(pod)

    def _concerns(self, group: Group, changes: int, touched: set[Hashable]) -> bool:
        """Whether changes of these kinds, and these of storage, could help the group's pods."""
        kinds = group.wakes_on & changes
        if not kinds or kinds & ~Change.ABOUT_STORAGE or group.key[1] < 0:
            return bool(kinds)
        if group.watched is None:
            group.watched = self._watched(group)
        if group.watched is not None and group.watched.isdisjoint(touched):
            return False
        group.watched = None  # what a claim depends on may be something else now
        return True

    def _watched(self, group: Group) -> frozenset[Hashable] | None:
        """What of storage those plugins watch that can be to blame, going by what wakes the group; None
        where one does not say, or fails to."""
        cls = next(iter(group.pods.values())).cls
        profile = self.profiles[group.key[0]]
        rejected_by = [p for p in profile.volume_filters if not p.wakes_on & ~group.wakes_on]
        watched: set[Hashable] = set()
        for plugin in rejected_by:
            if type(plugin).watches is Plugin.watches:
                return None
            try:
                watched.update(plugin.watches(cls))
            except RAISED as error:
                self.cluster.plugin_errors.note(plugin.name, "QueueingHint", error)
                return None
        return frozenset(watched)

    def _wake_group(self, group: Group, now: float) -> None:
        """Tries the group again if that could come out differently; else only says why not."""
        tell = not self.cycle.terse
        profile = self.profiles[group.key[0]]
        first = next(iter(group.pods.values()))
        if first.job is not None:
            self._wake_preemptors(group, now)
            if group.pods and (tell or self.gangs.may_fit(first)):
                self.queue.wake(group, now)
            return
        cls = first.cls
        if not self.cluster.nodes.count or self.cycle.can_preempt_for(profile, cls):
            self.queue.wake(group, now)
            return
        column = self.cycle.column(profile, cls)
        if not tell:
            # Something else may be to blame than before, though nobody looks into that.
            group.wakes_on |= self.cycle.may_wake(profile, column)
            group.watched = None
        if cls.pinned:
            for pod in list(group.pods.values()):
                if self.cycle.find_row(profile, pod, column) >= 0:
                    self.queue.wake_pod(pod, now)
                elif tell:
                    self._tell_again(group, [pod], profile, column, now)
        elif column.best() >= 0:
            self.queue.wake(group, now)
        elif self._wake_preemptors(group, now) and not group.pods:
            return
        elif tell:
            group.condition_message = self._tell_again(group, group.pods.values(), profile, column, now)

    def _wake_preemptors(self, group: Group, now: float) -> bool:
        """Pods a node is being cleared for may fare better than their class, and jobs better than
        others of their shape; whether there are any."""
        nominated = self._nominated.get(group.key, {})
        for pod in nominated.values():
            if pod.uid in group.pods:
                self.queue.wake_pod(pod, now)
        return bool(nominated)

    def _take_note_of_nominated(self) -> None:
        self._nominated = {}
        for there in self.cluster.nominator.values():
            for pod in there.values():
                stands = pod if pod.job is None else pod.job.leader
                key = self.queue.kind(stands) if stands is not None else None
                if stands is not None and key is not None:
                    self._nominated.setdefault(key, {})[stands.uid] = stands

    def _tell_again(
        self,
        group: Group,
        pods: Collection[PodRecord],
        profile: Profile,
        column: ClassColumn,
        now: float,
    ) -> str:
        """There is still no node for these pods, perhaps for other reasons than before."""
        first = next(iter(pods))
        refusal = self.cluster.jobs.queues.admission_error(first)
        if refusal:
            for pod in pods:
                self.cycle.set_unschedulable(pod, refusal, now, "Unschedulable")
            return refusal
        why = self.cycle.verdict(profile, first, column)
        if why.has_failed:
            for pod in list(pods):
                self.cycle.fail_for_now(pod, why.reasons, why.plugins, now)
            return why.reasons
        group.wakes_on |= profile.wakes_on(why.plugins)
        group.watched = None
        preemption_message = "" if why.error else self.cycle.post_filter(profile, first, column).message
        message = why.message(self.cluster.nodes.count, preemption_message)
        if message != group.condition_message:
            for pod in pods:
                self.cycle.set_unschedulable(pod, message, now, why.condition)
        return message

    # What the cluster says of pods

    def pod_pending(self, pod: PodRecord) -> None:
        profile = self._profiles.get(pod.scheduler)
        if profile is None:
            return
        if self._failed_gates:
            self._failed_gates.pop(pod.uid, None)
        if self._is_gated(profile, pod):
            self.queue.gate(pod)
            return
        if pod.job is not None:
            self.gangs.pending(pod, self.cluster.now)
        else:
            self.queue.changed(pod, self.cluster.now)

    def pod_settled(self, pod: PodRecord) -> None:
        # What is set aside for a reservation that is still to be created was reserved by no plugin.
        is_virtual = pod.reservation is not None and pod.reservation.virtual
        if pod.phase is Phase.ASSUMED and not is_virtual:
            self.cycle.unreserve(pod, pod.row, self._profiles[pod.scheduler].reserve)
        self.queue.forget(pod)
        self._failed_gates.pop(pod.uid, None)
        if pod.job is not None:
            self.gangs.settled(pod)
        self.cycle.waiting.pop(pod.uid, None)

    def bind_confirmed(self, pod: PodRecord) -> None:
        self.queue.forget(pod)
        pod.condition_message = ""
        if pod.reservation is not None and pod.reservation.preemptor:
            return  # what became of the pod it is for will be told
        node = self.cluster.nodes.name(pod.row)
        what = pod.name if pod.reservation is not None else f"{pod.namespace}/{pod.name}"
        message = f"Successfully assigned {what} to {node}"
        self.cycle.decisions.append(Emit(pod.ref, "Normal", "Scheduled", message, "Binding"))

    def bind_again(self, pod: PodRecord) -> bool:
        """A member that its job cannot do without: others of it are bound, or may be by now, so its
        place is not given to anybody else at the first refusal."""
        job, nodes = pod.job, self.cluster.nodes
        if (
            job is None
            or pod.reservation is not None
            or pod.deletion_pending
            or pod.errors >= _BINDS_AGAIN
        ):
            return False
        if len(job.members) == 1 or not nodes.alive[pod.row]:
            return False
        if not job.is_ready or job.can_do_without((pod.uid,)):
            return False
        pod.errors += 1
        if not self.cycle.bind(self._profiles[pod.scheduler], pod, self.cluster.now):
            self._job_lost_place(job)  # a plugin has something against it by now
        return True

    def _job_lost_place(self, job: Job) -> None:
        self.cluster.jobs.touch(job)
        self.cluster.jobs.look_for_interruption(job)

    def bind_refused(self, pod: PodRecord, row: int, message: str) -> None:
        self.cycle.unreserve(pod, row, self._profiles[pod.scheduler].reserve)
        if pod.deletion_pending:
            self.queue.forget(pod)
            return
        self.queue.retry_later(pod, self.cluster.now)
        self.cycle.set_unschedulable(pod, message, self.cluster.now, "SchedulerError")
        if pod.job is not None:
            self._job_lost_place(pod.job)

    def _is_gated(self, profile: Profile, pod: PodRecord) -> bool:
        """Whether a plugin keeps the pod out of the queue. One that fails does, and is asked again."""
        for plugin in profile.pre_enqueue:
            try:
                reason = plugin.pre_enqueue(pod)
                if plugin.name in profile.foreign and (reason := checked_gate(plugin, reason)):
                    self.cycle.set_unschedulable(pod, reason, self.cluster.now, "SchedulingGated")
                if reason:
                    return True
            except RAISED as error:
                message = self.cluster.plugin_errors.note(plugin.name, "PreEnqueue", error)
                pod.errors += 1
                self._failed_gates[pod.uid] = (self.cluster.now + self.queue.back_off(pod.errors), pod)
                self.cycle.set_unschedulable(pod, message, self.cluster.now, "SchedulerError")
                return True
        return False

    def _ask_failed_gates_again(self, now: float) -> None:
        for due, pod in list(self._failed_gates.values()):
            if due <= now:
                self.pod_pending(pod)


def _settings(configuration: Configuration, aliases: Mapping[str, str]) -> ClusterSettings:
    resolved = {each.scheduler_name: each for each in configuration.profiles}
    resolved.setdefault("", configuration.profiles[0])
    for alias, name in aliases.items():
        resolved.setdefault(alias, resolved[name])
    permits = {
        name: {ref.name for ref in each.points.get("permit", ())} for name, each in resolved.items()
    }
    gangs = {
        name: each.args.get(COSCHEDULING)
        for name, each in resolved.items()
        if COSCHEDULING in permits[name]
    }
    reserve = next((a.arguments for a in configuration.actions if a.name == "reserve"), None)
    return ClusterSettings(
        scheduler_names=frozenset(resolved),
        without_gangs=frozenset(resolved) - frozenset(gangs),
        gang_timeouts={
            name: args.timeout
            for name, args in gangs.items()
            if isinstance(args, CoschedulingArgs) and args.timeout
        },
        holds_nodes=reserve is not None and reserve["hold"] == "node",
        backfills=reserve is not None and bool(reserve["backfill"]),
    )
