"""One way things may go on: the simulation from a snapshot, with pods that end at their estimates.

A future stops when all that was asked about has started. It assumes that nothing arrives but what the
controllers of the snapshot's workloads create.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from typing import Any

from holdfast.api import names
from holdfast.api.cron import CronError, parse_cron
from holdfast.api.reservation import HAS_EXPIRED, unused_for
from holdfast.local.kubelet import DEADLINE_REASON, Lifetimes
from holdfast.local.setup import SchedulerFactory
from holdfast.local.store.objects import Key, pod_key
from holdfast.local.timeline import (
    AVAILABLE,
    BOUND,
    CREATED,
    DELETED,
    EVICTED,
    FAILED,
    PREEMPTED,
    SUCCEEDED,
    TimelineEntry,
)
from holdfast.scheduler.cluster.records import Phase
from holdfast.scheduler.jobs.estimates import duration_or_none
from holdfast.sim.forecast.run_times import (
    DEADLINE,
    MEDIAN,
    Fit,
    LearnedTimes,
    RunTimeEstimate,
    RunTimeEstimator,
    controller_in,
    is_endless,
    time_or_none,
)
from holdfast.sim.forecast.targets import ForecastTarget, members_of
from holdfast.sim.forecast.workloads import few_nodes
from holdfast.sim.scenario_actions import Scenario
from holdfast.sim.simulation import Progress, Simulation

Raw = dict[str, Any]

LOW_FUTURE, MEDIAN_FUTURE, SAMPLED, RELEASED = "low", "median", "sample", "released"
NEW, TIRED, RESTED, RANDOM = "new", "tired", "rested", "random"
_MANY_ATTEMPTS = 8
"""With this many the back-off is the longest."""
_RELEASES = (SUCCEEDED, FAILED, DELETED)
_MOST_RELEASES = 50
"""Ends of pods that are remembered per node."""
_FRUITLESS, _LONGEST_PAUSE = 60, 3600.0
"""After so many moments without any event, pods in back-off are tried again less and less often."""
_AT_ONCE = 1.0
"""How long pods without a known end run in the future in which they end; and how long before the next
run of a CronJob those of the last one do."""


@dataclass(frozen=True, slots=True)
class FuturePlan:
    """`median` and `low` let every pod run for that quantile of its estimate, in `low` not at all where
    only its latest end is known; a `sample` draws each run time at random. In `released`, pods without
    a known end end at once.

    `attempts` says how often the pending pods were tried before, which is in no object, and how long
    ago: `new` not at all, `tired` so often that all of them are in the longest back-off, `rested` as
    often, but none is in back-off any more; `random` differs from pod to pod."""

    kind: str
    seed: int = 0
    attempts: str = NEW
    kept: frozenset[str] = frozenset()
    """In `released`, the names of pods that do not end."""
    assumes_ends: bool = True
    """Whether pods that CronJobs create later end before the next run where nothing is known of it."""


class FutureLifetimes(Lifetimes):
    """How long pods run in one future."""

    def __init__(
        self,
        plan: FuturePlan,
        estimator: RunTimeEstimator,
        job_deadline: Callable[[Raw], float | None],
        next_run: Callable[[Raw], tuple[str, float] | None],
    ) -> None:
        """`job_deadline` gives the seconds from the start of a pod to the deadline of its Job;
        `next_run` the CronJob of a pod that was created in this future, and the seconds until it starts
        another Job."""
        self._plan = plan
        self._estimator = estimator
        self._job_deadline = job_deadline
        self._next_run = next_run
        self._fits: dict[str, Fit] = {}
        self._times: dict[str, float | None] = {}
        self.estimates: dict[str, RunTimeEstimate] = {}
        """By name, of the pods that have run."""
        self.unknown: dict[str, Raw] = {}
        """Pods that would end, nobody knows when, by name."""
        self.assumed: set[str] = set()
        """CronJobs whose later pods are assumed to end before the next run."""
        self.is_uncertain = False
        """Whether any pod ran or stopped for a time that is not known exactly."""

    def run_time(self, pod: Raw, ran: float) -> float | None:
        uid = pod["metadata"]["uid"]
        if uid not in self._times:
            self._times[uid] = self._decide(pod, uid, ran)
        return self._times[uid]

    def _decide(self, pod: Raw, uid: str, ran: float) -> float | None:
        estimate = self._estimator.of(pod, ran, self._job_deadline(pod))
        if estimate is None:
            if is_endless(pod) or pod["metadata"].get("deletionTimestamp"):
                return None
            if self._plan.assumes_ends and (run := self._next_run(pod)) is not None:
                # If none of them ended, they would soon fill the cluster.
                self.assumed.add(run[0])
                return ran + max(_AT_ONCE, run[1] - _AT_ONCE)
            self.unknown[_name(pod)] = pod
            is_released = self._plan.kind == RELEASED and _name(pod) not in self._plan.kept
            return ran + _AT_ONCE if is_released else None
        self.estimates[_name(pod)] = estimate
        self.is_uncertain |= not estimate.is_exact
        seconds = self._of_plan(estimate, uid, ran)
        deadline = pod["spec"].get("activeDeadlineSeconds")
        if seconds is not None and deadline is not None:
            seconds = min(seconds, float(deadline))
        return seconds

    def _of_plan(self, estimate: RunTimeEstimate, uid: str, ran: float) -> float | None:
        spread, plan = estimate.spread, self._plan
        match plan.kind:
            case _ if estimate.is_exact:
                return spread.quantile(MEDIAN, ran)
            case "low":
                return spread.earliest(ran)
            case _ if estimate.is_of_job:
                return None  # at its deadline, the Job deletes the pod
            case "sample":
                fit = self._fit(estimate) if isinstance(spread, LearnedTimes) else None
                q = random.Random(f"{plan.seed}/{uid}").random()
                return spread.quantile(q, ran, fit)
        return spread.quantile(MEDIAN, ran)

    def _fit(self, estimate: RunTimeEstimate) -> Fit:
        """The same for all pods of an owner: a future in which they run long is one for all of them."""
        known = self._fits.get(estimate.of)
        if known is None:
            assert isinstance(estimate.spread, LearnedTimes)
            known = estimate.spread.fit(random.Random(f"{self._plan.seed}/{estimate.of}"))
            self._fits[estimate.of] = known
        return known

    def stop_time(self, pod: Raw, grace: float, passed: float) -> float:
        """A simulated pod says how long it takes to stop. Another may take up to its grace period."""
        annotations = pod["metadata"].get("annotations") or {}
        if names.SIM_STOPS_IN in annotations or names.SIM_RUNS_FOR in annotations:
            stops_in = min(duration_or_none(annotations.get(names.SIM_STOPS_IN)) or 0.0, grace)
            return max(0.0, stops_in - passed)
        left = grace - passed
        self.is_uncertain |= left > 0
        match self._plan.kind:
            case "median":
                return left / 2
            case "sample":
                return left * random.Random(f"{self._plan.seed}/{pod['metadata']['uid']}/stop").random()
        return 0.0


@dataclass(frozen=True, slots=True)
class Release:
    """Capacity that became free on a node."""

    object: str
    event: str
    t: float


@dataclass(frozen=True, slots=True)
class Loss:
    """The end of an object that has not started."""

    t: float
    how: str
    """What happens to it, as in `expires`."""


@dataclass(frozen=True, slots=True)
class ExpectedStart:
    t: float
    node: str = ""
    reservation: str = ""
    waited_for: tuple[Release, ...] = ()
    """What became free on the node until then, the latest first."""
    pods_before: int = 0
    """How many other pods that are pending now start before."""


@dataclass(slots=True)
class FutureOutcome:
    """What happens in one future."""

    plan: FuturePlan
    starts: dict[str, ExpectedStart] = field(default_factory=dict)
    """By the name of the object; what does not start within the horizon is missing."""
    members: dict[str, list[ExpectedStart]] = field(default_factory=dict)
    """The starts of the pods of a pod group or job, in order, by its name."""
    ends: dict[str, float] = field(default_factory=dict)
    """When pods ended, by name."""
    messages: dict[str, str] = field(default_factory=dict)
    """Why a pod or reservation is pending at the end."""
    gone: dict[str, Loss] = field(default_factory=dict)
    """Objects that were deleted or failed before they had started."""
    estimates: dict[str, RunTimeEstimate] = field(default_factory=dict)
    """By the name of the pod."""
    unknown: dict[str, Raw] = field(default_factory=dict)
    """Pods that ran and whose ends are not known, by name."""
    assumed: set[str] = field(default_factory=set)
    """CronJobs whose later pods are assumed to end before the next run."""
    goes_on: bool = False
    """Whether pods still come to their ends after the horizon."""
    is_uncertain: bool = False
    """Whether run times may be different in another future."""
    retried: int = 0
    """How many pods are unschedulable after the first moment."""
    occurrences: int = 0
    """How many reservations ReservationSchedules created, and pods the Jobs of CronJobs."""
    cut_at: float | None = None
    """When it was ended early, because there were as many as may be; None if it was not."""
    too_large: set[str] = field(default_factory=set)
    """Of a future that was ended early: pending pods that fit no node even if all pods end."""

    def start_of(self, target: ForecastTarget) -> ExpectedStart | None:
        """Of a pod group or job, that of the last pod it needs, with the nodes of all of them."""
        if target.is_single:
            return self.starts.get(target.name)
        members = self.members.get(target.name, [])[: target.needed]
        if len(members) < target.needed:
            return None
        last = members[-1]
        together = [each for each in members if each.t == last.t]
        waited_for = {each.object: each for start in together for each in start.waited_for}
        return replace(
            last,
            node=few_nodes(each.node for each in members),
            waited_for=tuple(sorted(waited_for.values(), key=lambda each: -each.t)),
            pods_before=last.pods_before - (target.needed - 1),
        )


class Future(Simulation):
    """Plays one plan. `pending` are the names of the objects that may start."""

    def __init__(
        self,
        scenario: Scenario,
        setup: SchedulerFactory,
        start: float,
        plan: FuturePlan,
        estimator: RunTimeEstimator,
    ) -> None:
        super().__init__(scenario, setup, start=start, audit=False)
        self._estimator = estimator
        self.lifetimes = FutureLifetimes(plan, estimator, self._job_deadline, self._next_run)
        self.world.kubelets.lifetimes = self.lifetimes
        self.world.stores_events = False
        if plan.kind in (LOW_FUTURE, SAMPLED):
            self.world.scheduler.keep_conditions()
        self.outcome = FutureOutcome(plan)
        self._has_begun = False
        self._fruitless, self._seen = 0, 0
        self._read = 0
        self._releases: dict[str, list[Release]] = {}
        self._evicted: dict[str, str] = {}
        """The pods that were preempted or evicted, and which of the two."""
        self._started = 0

    def settle(self) -> None:
        super().settle()
        if not self._has_begun:
            self._has_begun = True
            self._set_attempts()

    def _scheduler_timer(self) -> float | None:
        """Pods may be rejected until the horizon at each retry, for example because a budget refuses an
        eviction."""
        scheduler, clock = self.world.scheduler, self.world.clock
        events = len(self.world.timeline.entries)
        self._fruitless = self._fruitless + 1 if events == self._seen else 0
        self._seen = events
        timer, more = scheduler.next_timer(), self._fruitless - _FRUITLESS
        if timer is None or more <= 0:
            return timer
        pause = min(2.0 ** min(more, 16), _LONGEST_PAUSE)
        others = scheduler.next_timer(retries=False)
        return min(max(timer, clock.epoch() + pause), math.inf if others is None else others)

    def _set_attempts(self) -> None:
        """After the first moment, in which all pending pods were tried once."""
        queue, now = self.world.scheduler.queue, self.world.clock.epoch()
        tried = queue.unschedulable()
        self.outcome.retried = len(tried)
        plan, longest = self.outcome.plan, queue.back_off(_MANY_ATTEMPTS)
        for pod in tried if plan.attempts != NEW else ():
            attempts, left = _MANY_ATTEMPTS, longest
            if plan.attempts == RESTED:
                left = 0.0
            elif plan.attempts == RANDOM:
                rng = random.Random(f"{plan.seed}/{pod.uid}/attempts")
                attempts = rng.randint(1, _MANY_ATTEMPTS)
                left = max(0.0, rng.uniform(-1.0, 1.0)) * queue.back_off(attempts)
            queue.set_attempts(pod, attempts, now + left)

    def foresee(
        self,
        horizon: float,
        is_done: Callable[[FutureOutcome], bool],
        progress: Progress | None = None,
        occurrences: float = math.inf,
    ) -> FutureOutcome:
        """Ends early once there are more than `occurrences` reservations of ReservationSchedules and
        pods of CronJobs."""
        outcome, world = self.outcome, self.world

        def stop() -> bool:
            self._take_note()
            if is_done(outcome):
                return True
            if outcome.occurrences > occurrences:
                outcome.cut_at = world.clock.t
            return outcome.cut_at is not None

        self.begin()
        self.play(horizon, progress, stop)
        self._take_note()
        outcome.estimates = self.lifetimes.estimates
        outcome.is_uncertain = self.lifetimes.is_uncertain
        outcome.unknown = self.lifetimes.unknown
        outcome.assumed = self.lifetimes.assumed
        if outcome.cut_at is not None:
            planner, cluster = world.scheduler.hold_planner, world.scheduler.cluster
            outcome.too_large = {
                str(pod.ref)
                for pod in cluster.pods.values()
                if pod.phase is Phase.PENDING
                and pod.scheduler in cluster.settings.scheduler_names
                and planner.never_fits([pod]) is not None
            }
        outcome.goes_on = world.timers.next_time() is not None
        outcome.messages = dict(_messages(world.objects.scan("", "Pod"), "PodScheduled"))
        group = "scheduling.koordinator.sh"
        outcome.messages |= _messages(world.objects.scan(group, "Reservation"), "Scheduled")
        outcome.gone |= _failed_jobs(world.objects.scan("batch", "Job"), world.clock.since_start)
        return outcome

    def _job_deadline(self, pod: Raw) -> float | None:
        controller = controller_in(pod)
        if controller is None or controller.get("kind") != "Job":
            return None
        namespace, name = pod["metadata"].get("namespace") or "", str(controller.get("name"))
        job = self.world.objects.get(Key("batch", "Job", namespace, name))
        job = job or self._estimator.jobs.get((namespace, name)) or {}
        deadline = (job.get("spec") or {}).get("activeDeadlineSeconds")
        if deadline is None:
            return None
        now = self.world.clock.epoch()
        began = time_or_none((job.get("status") or {}).get("startTime"))
        started = time_or_none(pod["status"].get("startTime"))
        began, started = (now if each is None else each for each in (began, started))
        return max(0.0, began + float(deadline) - started)

    def _next_run(self, pod: Raw) -> tuple[str, float] | None:
        if self._is_there_now(pod):
            return None
        cron_job = self._owner_of(self._owner_of(pod, "Job"), "CronJob")
        spec = (cron_job or {}).get("spec") or {}
        now = self.world.clock.epoch()
        try:
            due = parse_cron(str(spec.get("schedule")), spec.get("timeZone")).next_after(now)
        except CronError:
            return None
        return (_name(cron_job), due - now) if cron_job is not None and due is not None else None

    def _owner_of(self, raw: Raw | None, kind: str) -> Raw | None:
        owner = controller_in(raw) if raw is not None else None
        if raw is None or owner is None or owner.get("kind") != kind:
            return None
        namespace = raw["metadata"].get("namespace") or ""
        return self.world.objects.get(Key("batch", kind, namespace, str(owner.get("name"))))

    def _take_note(self) -> None:
        """Reads the new entries of the timeline."""
        entries = self.world.timeline.entries
        for entry in entries[self._read :]:
            self._note(entry)
        self._read = len(entries)

    def _note(self, entry: TimelineEntry) -> None:
        event, name = entry.event, entry.object
        is_pod = name.startswith("Pod/")
        if event in (BOUND, AVAILABLE):
            self._start(entry)
        elif event == CREATED:
            self.outcome.occurrences += self._occurrences(name)
        elif event in (PREEMPTED, EVICTED):
            self._evicted[name] = event
        elif event in _RELEASES and not (event == SUCCEEDED and not is_pod):
            if name not in self.outcome.starts and not (is_pod and entry.node):
                self.outcome.gone.setdefault(name, Loss(entry.t, _loss(entry)))
            if is_pod:
                self.outcome.ends[name] = entry.t
            # A reservation that expires is gone from the node on which it became Available.
            start = self.outcome.starts.get(name)
            if node := entry.node or (start.node if start is not None and not is_pod else ""):
                known = self._releases.setdefault(node, [])
                known.append(Release(name, self._evicted.pop(name, event), entry.t))
                del known[:-_MOST_RELEASES]

    def _occurrences(self, name: str) -> int:
        """1 if a ReservationSchedule created the reservation, or a CronJob the Job of the pod or a
        suspended Job."""
        kind, *rest = name.split("/")
        match kind, rest:
            case "Reservation", [name]:
                raw = self.world.objects.get(Key("scheduling.koordinator.sh", kind, "", name))
                return int(_is_owned_by(raw, "ReservationSchedule"))
            case "Pod", [namespace, name]:
                job = self._owner_of(self.world.objects.get(pod_key(namespace, name)), "Job")
                return int(_is_owned_by(job, "CronJob"))
            case "Job", [namespace, name]:
                raw = self.world.objects.get(Key("batch", kind, namespace, name))
                is_suspended = bool(((raw or {}).get("spec") or {}).get("suspend"))
                return int(is_suspended and _is_owned_by(raw, "CronJob"))
        return 0

    def _start(self, entry: TimelineEntry) -> None:
        if entry.object in self.outcome.starts:
            return
        waited_for = tuple(reversed(self._releases.get(entry.node, ()))) if entry.t > 0 else ()
        start = ExpectedStart(entry.t, entry.node, entry.reservation, waited_for, self._started)
        self.outcome.starts[entry.object] = start
        if entry.event == BOUND:
            _, namespace, name = entry.object.split("/")
            pod = self.world.objects.get(pod_key(namespace, name))
            self._started += pod is not None and self._is_there_now(pod)
            for group in members_of(pod) if pod is not None else ():
                self.outcome.members.setdefault(group, []).append(start)

    def _is_there_now(self, pod: Raw) -> bool:
        """Whether the pod was not created in this future."""
        created = time_or_none(pod["metadata"].get("creationTimestamp"))
        return created is None or self.world.clock.since_start(created) <= 0


def _is_owned_by(raw: Raw | None, kind: str) -> bool:
    owners = ((raw or {}).get("metadata") or {}).get("ownerReferences") or ()
    return any(each.get("kind") == kind for each in owners)


def _messages(objects: Iterable[Raw], type_: str) -> Iterable[tuple[str, str]]:
    for raw in objects:
        for condition in (raw.get("status") or {}).get("conditions") or ():
            if condition.get("type") == type_ and condition.get("status") == "False":
                yield _name(raw), str(condition.get("message") or condition.get("reason") or "")


def _loss(entry: TimelineEntry) -> str:
    if entry.event == DELETED:
        return "is deleted"
    if unused_for(entry.message):
        return "is released"
    return "expires" if entry.message == HAS_EXPIRED else "fails"


def _failed_jobs(jobs: Iterable[Raw], since_start: Callable[[float], float]) -> dict[str, Loss]:
    found = {}
    for job in jobs:
        for condition in (job.get("status") or {}).get("conditions") or ():
            if condition.get("type") == "Failed" and condition.get("status") == "True":
                how = "fails"
                if condition.get("reason") == DEADLINE_REASON:
                    how = f"reaches its {DEADLINE} of {job['spec'][DEADLINE]}"
                at = time_or_none(condition.get("lastTransitionTime"))
                found[_name(job)] = Loss(since_start(at) if at is not None else 0.0, how)
    return found


def _name(raw: Raw) -> str:
    metadata = raw["metadata"]
    return str(Key("", raw["kind"], metadata.get("namespace") or "", metadata["name"]))
