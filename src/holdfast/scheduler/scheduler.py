"""The scheduler: takes events, and returns the decisions of a round.

    scheduler.feed(event, now)       for every event
    scheduler.round(now)             after events were fed, and when `next_timer()` is due

It never blocks, reads no clock and does no I/O; its drivers (`kube`, `local`, `sim`) do.
"""

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from functools import partial
from typing import Protocol

from holdfast.scheduler.actions.allocate import Allocate
from holdfast.scheduler.actions.backfill import Backfill
from holdfast.scheduler.actions.convergence import ConvergenceGuard
from holdfast.scheduler.actions.hold_reconciler import HoldReconciler
from holdfast.scheduler.actions.preempt import GangPreemption, PreemptAction
from holdfast.scheduler.actions.reclaim import Reclaim, ReclaimPlan
from holdfast.scheduler.actions.reserve import Reserve
from holdfast.scheduler.actions.round import Action, Round
from holdfast.scheduler.cluster.base import ClusterSettings
from holdfast.scheduler.cluster.decisions import Decision, Emit, Nominate
from holdfast.scheduler.cluster.events import Change, Event
from holdfast.scheduler.cluster.plugin_errors import RAISED
from holdfast.scheduler.cluster.records import Phase, PodRecord
from holdfast.scheduler.framework.bind_retries import BindRetries
from holdfast.scheduler.framework.binding_cycle import BindingCycle
from holdfast.scheduler.framework.calendar_planner import CalendarPlanner
from holdfast.scheduler.framework.checked_answers import checked_gate
from holdfast.scheduler.framework.config import Configuration, CoschedulingArgs
from holdfast.scheduler.framework.config.plugin_sets import COSCHEDULING
from holdfast.scheduler.framework.failure_handler import FailureHandler
from holdfast.scheduler.framework.feasibility.node_search import ColumnStore, NodeSearch
from holdfast.scheduler.framework.gang_attempts import GangAttempt, MemberOrder
from holdfast.scheduler.framework.gang_failures import GangFailureHandler, member_order
from holdfast.scheduler.framework.gang_permit import GangPermit
from holdfast.scheduler.framework.gangs import Gangs
from holdfast.scheduler.framework.hold_planner import HoldPlanner
from holdfast.scheduler.framework.preemption import Preemption
from holdfast.scheduler.framework.profile import Profile
from holdfast.scheduler.framework.queueing_hints import QueueingHints
from holdfast.scheduler.framework.registry import Registry
from holdfast.scheduler.framework.scheduling_cycle import SchedulingCycle
from holdfast.scheduler.framework.scheduling_queue import SchedulingQueue
from holdfast.scheduler.jobs import Job
from holdfast.scheduler.state.cluster import Cluster

_ROUND_SECONDS = 1.0
"""For this many seconds the parts of an unfinished round count as one round."""

ACTIONS: Mapping[str, type[Action]] = {
    "allocate": Allocate,
    "backfill": Backfill,
    "reserve": Reserve,
    "preempt": PreemptAction,
    "reclaim": Reclaim,
}
"""The actions by the names that the configuration uses."""


class Controller(Protocol):
    """Reconciles the status of objects of one kind, in every round."""

    def run(self, now: float) -> list[Decision]:
        """The decisions that are due now."""

    def next_timer(self) -> float | None:
        """When it must run next even without events."""


class Scheduler:
    """Cluster state, scheduling queue, cycle, actions and controllers. `aliases` maps further scheduler
    names to those of profiles."""

    def __init__(
        self,
        configuration: Configuration,
        registry: Registry,
        aliases: Mapping[str, str] | None = None,
        controllers: Sequence[Callable[[Cluster], Controller]] = (),
    ) -> None:
        self.configuration, self.registry = configuration, registry
        self.cluster = Cluster(_settings(configuration, aliases or {}), listener=self)
        preempts = any(action.name == "preempt" for action in configuration.actions)
        profiles = [
            Profile(index, resolved, registry, self.cluster, preempts)
            for index, resolved in enumerate(configuration.profiles)
        ]
        self._profiles = {profile.scheduler_name: profile for profile in profiles}
        self._profiles.setdefault("", profiles[0])  # reservations that name no scheduler
        for alias, name in (aliases or {}).items():
            self._profiles.setdefault(alias, self._profiles[name])
        self.cluster.reservations.without_virtual = frozenset(
            name for name, profile in self._profiles.items() if not profile.provisions
        )
        self.queue = SchedulingQueue(
            profiles[0].sort_key,
            configuration.pod_initial_backoff,
            configuration.pod_max_backoff,
            self.cluster.jobs.waiting_members,
            self.cluster.jobs.is_interrupted,
        )
        self.decisions: list[Decision] = []
        """What the current round decided so far, except by controllers."""
        self.decision_listeners: list[Callable[[list[Decision], float], None]] = []
        """Called with the decisions of each round and its time; they must not be changed."""
        self.failures = FailureHandler(self.cluster, self.queue, self.decisions)
        self.columns = ColumnStore(self.cluster)
        self.search = NodeSearch(self.cluster, self.columns, self.failures)
        self.binding = BindingCycle(
            self.cluster, self.queue, self._profiles, self.columns, self.failures, self.decisions
        )
        self.bind_retries = BindRetries(
            self.cluster,
            self._profiles,
            self.binding,
            self.failures,
            self.decisions,
            self._job_lost_place,
        )
        self.gang_failures = GangFailureHandler(
            self.cluster, self.queue, self._profiles, self.columns, self.failures
        )
        self.gang_permit = GangPermit(
            self.cluster, self._profiles, self.binding, self.gang_failures, self.decisions
        )
        self.preemption = Preemption(
            self.cluster,
            self.queue,
            self._profiles,
            self.columns,
            self.search,
            self.failures,
            self.binding,
            self.gang_permit,
            self.decisions,
        )
        self.cycle = SchedulingCycle(
            self.cluster,
            self.queue,
            self._profiles,
            self.columns,
            self.search,
            self.failures,
            self.binding,
            self.gang_permit,
            self.preemption,
            self.decisions,
        )
        self.gangs = Gangs(
            self.cluster,
            self.queue,
            self._profiles,
            self.columns,
            self.cycle,
            self.preemption,
            self.gang_failures,
        )
        self._hints = QueueingHints(
            self.cluster,
            self.queue,
            profiles,
            self.columns,
            self.search,
            self.failures,
            self.preemption,
            self.gangs,
        )
        self.hold_planner = HoldPlanner(self.cluster, self.cycle, self._profiles)
        self.hold_reconciler = HoldReconciler(self.cluster, self.hold_planner)
        self.calendar_planner = CalendarPlanner(
            self.cluster,
            self.queue,
            self.cycle,
            self.gangs,
            self.preemption,
            self._profiles,
            self.pod_pending,
        )
        self.guard = ConvergenceGuard(
            self.cluster, configuration.pod_initial_backoff, configuration.pod_max_backoff
        )
        self._controllers = [make(self.cluster) for make in controllers]
        self.unfinished = False
        """Whether the last round ended early, so that another part of it should follow at once."""
        self._begun = 0.0
        """When the unfinished round began."""
        self._not_admitted: list[PodRecord] = []
        """`Round.not_admitted` of the previous parts of an unfinished round."""
        self._new_holds: dict[str, PodRecord] = {}
        """Reserve pods of preemption holds that were queued since the last pass, by uid."""
        self._failed_gates: dict[str, tuple[float, PodRecord]] = {}
        """Pods that are gated because a PreEnqueue plugin failed, and when it is called again."""
        self.profiles = profiles
        self._actions = [
            ACTIONS[action.name](action.arguments)
            for action in configuration.actions
            if action.name in ACTIONS
        ]

    @property
    def detects_starvation(self) -> bool:
        """Whether it has the `reserve` action, which finds starving jobs."""
        return any(isinstance(action, Reserve) for action in self._actions)

    def feed(self, event: Event, now: float) -> None:
        """Applies an event to the cluster state."""
        self.cluster.feed(event, now)

    def keep_conditions(self) -> None:
        """From now on, conditions of pods that stay unschedulable are not updated when something
        changes. Decisions are the same."""
        self._hints.few_groups = -1

    def round(
        self, now: float, limit: int | None = None, enough: Callable[[], bool] | None = None
    ) -> list[Decision]:
        """Runs controllers and actions until nothing changes any more, and returns their decisions.
        Ends early, with `unfinished` set, after scheduling attempts for `limit` pods, or when `enough`,
        which is called after each attempt, returns True."""
        round_ = self._begin(now, limit, enough)
        self.cluster.claims.retry()
        self.binding.recheck_waiting(now)
        self.gang_permit.recheck_waiting(now)
        self.bind_retries.run(now)
        decisions = self._run_actions(round_)
        self.failures.report_failed_dry_runs(now)
        self._not_admitted = round_.not_admitted if self.unfinished else []
        if not self.unfinished:
            self.gang_failures.refused.clear()
        for controller in self._controllers:
            decisions += controller.run(now)
        self.failures.settle_reports(partial(self._may_still_place, round_))
        reports = self.cluster.take_reports()
        claims = self.cluster.claims
        if claims.has_decisions:
            reports += self.cluster.claims.take_decisions()
        decisions = reports + decisions + self.decisions
        if self.cluster.claims.held:
            decisions += self.cluster.claims.take_holds()
        self.decisions.clear()
        for pod, times in self.queue.set_aside:
            self.guard.tried_too_often(pod, times, now)
        self.queue.set_aside.clear()
        decisions = self.guard.admit(decisions, now)
        for decision in decisions:
            if type(decision) is Nominate:
                self.cluster.nomination_decided(decision)
        for notify in self.decision_listeners:
            notify(decisions, now)
        return decisions

    def _begin(self, now: float, limit: int | None, enough: Callable[[], bool] | None) -> Round:
        """Begins a round, or the next part of an unfinished one."""
        self.cluster.now = now
        self.cluster.release_slots()
        self.cluster.reservations.choose_units_again()
        self._retry_failed_gates(now)
        self.gangs.new_round()
        if not self.unfinished or now - self._begun > _ROUND_SECONDS:
            self._begun = now
            self.queue.new_round()
            self.failures.new_round()
        self.guard.begin(now)
        self.preemption.rejected_victims.clear()
        round_ = self._round(now, enough)
        if limit is not None:
            round_.pods_left = limit
        return round_

    def _round(self, now: float, enough: Callable[[], bool] | None = None) -> Round:
        return Round(
            self.cluster,
            self.queue,
            self.columns,
            self.search,
            self.failures,
            self.cycle,
            self.preemption,
            self.gangs,
            self.gang_failures,
            self.hold_planner,
            self.hold_reconciler,
            self._profiles,
            self.decisions,
            now,
            enough=enough,
            not_admitted=self._not_admitted,
        )

    def _run_actions(self, round_: Round) -> list[Decision]:
        """Runs controllers and actions in passes, until a pass changes nothing, the round has to end
        early, or the convergence guard ends it. Returns the decisions of controllers; those of actions
        are in `Scheduler.decisions`."""
        now = round_.now
        decisions: list[Decision] = []
        passes, unsuccessful, before = 0, 0, (-1, -1)
        while True:
            for controller in self._controllers:
                decisions += controller.run(now)
            if not self._wake(now, round_.enough):
                self.unfinished = True
                break
            if self._new_holds:
                self._place_holds(now)
            if self.cluster.reservations.starvation_holds:
                decisions += self.hold_reconciler.run(now)
            if self.calendar_planner.is_needed:
                decisions += self.calendar_planner.run(now)
            for action in self._actions:
                action.run(round_)
            self.unfinished = round_.pods_left <= 0
            if not self.unfinished and not self.cluster.has_changes():
                self.preemption.end_nominations()
            if self.unfinished or not self.cluster.has_changes():
                break
            passes += 1
            progress = self.cluster.epoch.inputs, len(decisions) + len(self.decisions)
            unsuccessful = unsuccessful + 1 if progress == before else 0
            before = progress
            if self.guard.ends(passes, unsuccessful, self._tried(), now):
                break
        return decisions

    def _place_holds(self, now: float) -> None:
        """Schedules new preemption holds before anything else but the rest of jobs whose start was
        interrupted: the victims may be gone already, and what they had is for their preemptor."""
        holds, self._new_holds = self._new_holds, {}
        if self.cluster.jobs.interrupted:
            return
        for pod in sorted(holds.values(), key=self.queue.sort_key):
            if self.queue.place(pod.uid) == "active":
                self.queue.take(pod)
                self.cycle.schedule(self._profiles[pod.scheduler], pod, now)

    def _may_still_place(self, round_: Round, pod: PodRecord) -> bool:
        """Whether the round goes on and an action may place a pod then that is unschedulable now."""
        backfill = self._backfill() if self.unfinished else None
        return backfill is not None and backfill.may_place(round_, pod)

    def _tried(self) -> list[PodRecord]:
        """The pods of the last scheduling attempts, which failed."""
        found = (self.cluster.pods.get(uid) for uid in self.queue.tried())
        return [pod for pod in found if pod is not None]

    def profile_of(self, scheduler_name: str) -> Profile | None:
        """The profile for this scheduler name, if there is one."""
        return self._profiles.get(scheduler_name)

    def backfill_rows(self, pod: PodRecord) -> list[int]:
        """The rows on which the backfill action could place a pending pod now, as it ends in time, the
        best first. Changes nothing."""
        backfill = self._backfill()
        return backfill.find_rows(self._round(self.cluster.now), pod) if backfill is not None else []

    def backfill_row(self, pod: PodRecord) -> int:
        """The best of these rows, or -1."""
        return next(iter(self.backfill_rows(pod)), -1)

    def attempt(
        self, job: Job, order: MemberOrder = member_order
    ) -> AbstractContextManager[GangAttempt]:
        """What would come of scheduling the job now, also by the backfill action; undone at the end of
        the block."""
        backfill = self._backfill()
        if backfill is None or not backfill.is_possible(self._round(self.cluster.now)):
            return self.gangs.attempts.attempt(job, order=order)
        return self.gangs.attempts.attempt(job, self.backfill_row, order)

    def preemption_for(self, job: Job) -> GangPreemption:
        """What the preempt action would preempt now for a job."""
        action = self._preempt()
        if action is None:
            return GangPreemption([], [])
        return action.preemption_for(self._round(self.cluster.now), job)

    def victims_in_queue(self, pod: PodRecord) -> list[PodRecord]:
        """The pods that the preempt action would preempt now for a pod, not of a gang, that its queue
        does not admit."""
        action = self._preempt()
        return action.victims_in_queue(self._round(self.cluster.now), pod) if action is not None else []

    def _preempt(self) -> PreemptAction | None:
        return next((action for action in self._actions if isinstance(action, PreemptAction)), None)

    @property
    def allocates(self) -> bool:
        """Whether it has the `allocate` action."""
        return any(isinstance(action, Allocate) for action in self._actions)

    @property
    def backfills(self) -> bool:
        """Whether it has the `backfill` action."""
        return self._backfill() is not None

    @property
    def preempts(self) -> bool:
        """Whether it has the `preempt` action."""
        return self._preempt() is not None

    @property
    def reclaims(self) -> bool:
        """Whether it has the `reclaim` action."""
        return any(isinstance(action, Reclaim) for action in self._actions)

    def reclaim_plans(self) -> list[ReclaimPlan]:
        """What the reclaim action, configured or not, would reclaim now for the pods that are queued,
        if none of them has a feasible node."""
        actions = [action for action in self._actions if isinstance(action, Reclaim)]
        return (actions or [Reclaim({})])[0].plans(self._round(self.cluster.now))

    def _backfill(self) -> Backfill | None:
        return next((action for action in self._actions if isinstance(action, Backfill)), None)

    @property
    def backfilled(self) -> int:
        """How many pods were backfilled."""
        return sum(action.placed for action in self._actions if isinstance(action, Backfill))

    def next_timer(self, retries: bool = True) -> float | None:
        """When a round is due even without events; without `retries`, not for pods in back-off and
        evictions that were refused."""
        times = [self.queue.next_due()] if retries else []
        times += [self.binding.next_deadline(), self.guard.next_timer()]
        times += [self.bind_retries.next_due(), self.calendar_planner.next_timer(retries)]
        times.append(self.cluster.claims.next_timer())
        times.append(self.cluster.reservations.starvation_holds.next_timer())
        times += [action.next_timer() for action in self._actions if retries or not action.retries]
        times += [due for due, _ in self._failed_gates.values()]
        times += [controller.next_timer() for controller in self._controllers]
        return min((time for time in times if time is not None), default=None)

    def _wake(self, now: float, enough: Callable[[], bool] | None) -> bool:
        """Wakes up the groups that changes may help. False if that ended early; the next part of the
        round continues with it before anything else, because the group woken up last may be first in
        the queue. Changes made meanwhile are left for the next call, or pods might never be tried."""
        if not self._hints.to_wake:
            self.cluster.jobs.victims.note_changes()
            changes, touched = self.cluster.take_changes(), self.cluster.volumes.take_touched()
            if changes & Change.OBJECTS:
                self._retry_gates()
            self._hints.collect(changes, touched, count_pods=self.unfinished)
        return self._hints.wake(now, enough)

    def _retry_gates(self) -> None:
        """Calls PreEnqueue plugins again for gated pods, if a plugin reads objects, which changed."""
        for pod in self.queue.gated():
            profile = self._profiles[pod.scheduler]
            reads = any(plugin.reads_objects for plugin in profile.pre_enqueue)
            if reads and not self._is_gated(profile, pod):
                self.pod_pending(pod)

    # PodListener

    def pod_pending(self, pod: PodRecord) -> None:
        """Queues a pod, or gates it; not the reserve pod of a reservation that starts later."""
        profile = self._profiles.get(pod.scheduler)
        if profile is None or (pod.reservation is not None and pod.reservation.is_planned):
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
            if pod.reservation is not None and pod.reservation.preemptor:
                self._new_holds[pod.uid] = pod

    def pod_settled(self, pod: PodRecord) -> None:
        """Removes a pod from the queue and from Permit."""
        # No plugin reserved anything for the reserve pod of a reservation that is yet to be created.
        is_virtual = pod.reservation is not None and pod.reservation.virtual
        if pod.phase is Phase.ASSUMED and not is_virtual:
            self.binding.run_unreserve(pod, pod.row, self._profiles[pod.scheduler].reserve)
        self.queue.forget(pod)
        self._failed_gates.pop(pod.uid, None)
        if pod.job is not None:
            self.gangs.settled(pod)
        self.binding.waiting.pop(pod.uid, None)
        self.bind_retries.forget(pod)

    def bind_confirmed(self, pod: PodRecord) -> None:
        """Emits the event Scheduled."""
        self.queue.forget(pod)
        self.bind_retries.forget(pod)
        pod.condition_message = ""
        if pod.reservation is not None and pod.reservation.preemptor:
            return  # a preemption hold: the event is emitted for its preemptor
        node = self.cluster.nodes.name(pod.row)
        what = pod.name if pod.reservation is not None else f"{pod.namespace}/{pod.name}"
        message = f"Successfully assigned {what} to {node}"
        self.decisions.append(Emit(pod.ref, "Normal", "Scheduled", message, "Binding"))

    def bind_failed(self, pod: PodRecord, message: str) -> bool:
        """Has the pod keep its place if its job needs it."""
        return self.bind_retries.keep(pod, message, self.cluster.now)

    def _job_lost_place(self, job: Job) -> None:
        """Checks the job of a pod that was not bound for an interrupted start."""
        self.cluster.jobs.touch(job)
        self.cluster.jobs.look_for_interruption(job)

    def bind_refused(self, pod: PodRecord, row: int, message: str) -> None:
        """Requeues a pod whose bind was refused, with back-off."""
        self.binding.run_unreserve(pod, row, self._profiles[pod.scheduler].reserve)
        node, now = self.cluster.nodes.name(row), self.cluster.now
        message = self.bind_retries.released(pod, node, message, now)
        if pod.deletion_pending:
            self.queue.forget(pod)
            return
        self.queue.retry_later(pod, self.cluster.now)
        self.failures.set_condition(pod, message, self.cluster.now, "SchedulerError")
        job = self.cluster.jobs.of(pod)
        if job is not None:
            self._job_lost_place(job)

    def _is_gated(self, profile: Profile, pod: PodRecord) -> bool:
        """Whether a PreEnqueue plugin keeps the pod out of the queue. A plugin that fails does, and is
        called again after a back-off."""
        for plugin in profile.pre_enqueue:
            try:
                reason = plugin.pre_enqueue(pod)
                is_foreign = plugin.name in profile.foreign
                if is_foreign:
                    reason = checked_gate(plugin, reason)
                if reason and (is_foreign or pod.reservation is not None):
                    self.failures.set_condition(pod, reason, self.cluster.now, "SchedulingGated")
                if reason:
                    return True
            except RAISED as error:
                message = self.cluster.plugin_errors.note(plugin.name, "PreEnqueue", error)
                pod.errors += 1
                self._failed_gates[pod.uid] = (self.cluster.now + self.queue.back_off(pod.errors), pod)
                self.failures.set_condition(pod, message, self.cluster.now, "SchedulerError")
                return True
        return False

    def gate_reason(self, pod: PodRecord) -> str:
        """Why a PreEnqueue plugin of kube-scheduler keeps the pod out of the queue, which its condition
        does not say; empty if none does. What other plugins say is in the condition."""
        profile = self.profile_of(pod.scheduler)
        if profile is None:
            return ""
        plugins = (plugin for plugin in profile.pre_enqueue if plugin.name not in profile.foreign)
        return next(filter(None, (plugin.pre_enqueue(pod) for plugin in plugins)), "")

    def _retry_failed_gates(self, now: float) -> None:
        for due, pod in list(self._failed_gates.values()):
            if due <= now:
                self.pod_pending(pod)


def _settings(configuration: Configuration, aliases: Mapping[str, str]) -> ClusterSettings:
    """The settings of the cluster state in a configuration."""
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
    backfill = next((a.arguments for a in configuration.actions if a.name == "backfill"), None)
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
        backfills_easily=reserve is not None and reserve["backfill"] == "easy",
        learns_run_times=backfill is not None and bool(backfill["learnRunTimes"]),
    )
