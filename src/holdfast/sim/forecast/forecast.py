"""Plays futures and says what they have in common: when each target starts, and what it waits for.

Where all run times are exact, what remains unknown is how often pending pods were tried before, and so
which of them are in back-off and are tried after the others. A few futures with different numbers are
played: where they agree the start is exact, else it is a range. One suffices if at most one pod waits.

Where run times are not exact, there is one future in which all pods run for the median of their
estimates, and a number in which the run times are drawn at random; the range is from the earliest to
the latest start in these. With 30 draws, the next draw from the same distribution is
inside the range with a probability of 29/31. If there are pods of which only the latest end is known,
one more future lets these end at once, and sets the earliest start. A target that starts in no future
is played again with the pods whose ends are unknown ending at once, and once more without those that it
requires by affinity: if it starts then, these are what it waits for. If not, and CronJobs go on, it is
played without their later runs: what does not start then never does.

Pods that a CronJob creates later and whose run time is not known are assumed to end before its next
run: pods that never end would soon fill the cluster.

Each reservation of a ReservationSchedule and each pod of a CronJob is played, about 10 or 20 ms of CPU
time, and there can be one a minute. The number of these is limited for all futures together: a forecast
that would need more ends early and says so, and fewer random futures are played.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import median
from typing import Any

from holdfast.api.documents import Document
from holdfast.api.plurals import number_of, plural
from holdfast.api.times import format_duration, format_time
from holdfast.explanation.report import few
from holdfast.local.setup import SchedulerFactory
from holdfast.sim.assumed_volumes import assumed_volumes
from holdfast.sim.forecast.answers import (
    EstimateAnswer,
    ForecastReport,
    PodWithoutEnd,
    StartAnswer,
    StartStatus,
    TimeRange,
    WaitedFor,
)
from holdfast.sim.forecast.future import (
    LOW_FUTURE,
    MEDIAN_FUTURE,
    RANDOM,
    RELEASED,
    RESTED,
    SAMPLED,
    TIRED,
    ExpectedStart,
    Future,
    FutureOutcome,
    FuturePlan,
)
from holdfast.sim.forecast.member_order import in_order_seen
from holdfast.sim.forecast.run_times import (
    DEADLINE,
    HIGH,
    LOW,
    MEDIAN,
    DurationHistory,
    RunTimeEstimate,
    RunTimeEstimator,
)
from holdfast.sim.forecast.targets import ForecastTarget, members_of, required_affinity
from holdfast.sim.forecast.workloads import grouped
from holdfast.sim.scenario import read_scenario
from holdfast.sim.scenario_actions import Create, Scenario

Raw = dict[str, Any]

DEFAULT_SAMPLES = 30
DEFAULT_HORIZON = 7 * 86400.0
DEFAULT_OCCURRENCES = 400
"""How many reservations of ReservationSchedules and pods of CronJobs are played."""
_FEWEST = 100
"""How many of them a future that is played again may have in any case."""
_ATTEMPTS = (
    FuturePlan(MEDIAN_FUTURE, attempts=TIRED),
    FuturePlan(MEDIAN_FUTURE, attempts=RESTED),
    *(FuturePlan(MEDIAN_FUTURE, seed, RANDOM) for seed in range(4)),
)
"""Futures that differ in how often pending pods were tried."""
_MOST_PLAYED_FOR_ENDS = 12
"""How many futures are played, for all that is asked about, to find which ends are enough."""
_LATER = 60.0
"""By how many seconds a start may be later in these: rejected pods are in back-off."""
_SHOWN = 5
"""Ends and unknown pods that are named per target."""

ForecastProgress = Callable[[int, int, float], None]
"""Called with the number of the future, of how many, and its time."""


@dataclass(frozen=True, slots=True)
class ForecastOptions:
    horizon: float = DEFAULT_HORIZON
    samples: int = DEFAULT_SAMPLES
    seed: int = 0
    occurrences: float = DEFAULT_OCCURRENCES
    """How many reservations of ReservationSchedules and pods of CronJobs are played, in all futures
    together."""


class Forecaster:
    def __init__(
        self,
        documents: Sequence[Document],
        now: float,
        setup: SchedulerFactory,
        history: DurationHistory | None = None,
        options: ForecastOptions | None = None,
        progress: ForecastProgress | None = None,
    ) -> None:
        """Raises InvalidInput if the documents are no scenario."""
        self.now = now
        self._setup = setup
        self.options = options or ForecastOptions()
        self._progress = progress
        # Of nodes with equal scores the first is taken, and a dump may have pods before nodes.
        ordered = sorted(in_order_seen(documents), key=lambda each: not _is_node(each.data))
        self.scenario: Scenario = read_scenario(ordered, setup.object_kinds())
        objects = [each.data for each in documents if isinstance(each.data, dict)]
        self._assumed = assumed_volumes(objects)
        history = history or DurationHistory()
        history.add_ended(raw for raw in objects if raw.get("kind") == "Pod")
        self._pods = {ForecastTarget(raw).name for raw in objects if raw.get("kind") == "Pod"}
        self._pending = [
            raw
            for raw in objects
            if raw.get("kind") == "Pod" and not (raw.get("spec") or {}).get("nodeName")
        ]
        jobs = (raw for raw in objects if raw.get("kind") == "Job")
        self.estimator = RunTimeEstimator(history, jobs)
        self._played_for_ends = 0

    def ask(self, targets: Sequence[ForecastTarget]) -> ForecastReport:
        """Raises InvariantBroken for an error of Holdfast."""
        self._played_for_ends = 0
        open_targets = [each for each in targets if _is_open(each)]
        outcomes = self._outcomes(open_targets) if open_targets else []
        report = ForecastReport(
            time=format_time(self.now),
            within=self.options.horizon,
            futures=len(outcomes),
            seed=self.options.seed,
        )
        stuck = [each for each in open_targets if all(o.start_of(each) is None for o in outcomes)]
        released = self._released(stuck, outcomes[0]) if stuck else {}
        never = self._never(stuck, outcomes[0], released) if stuck else set()
        for target in targets:
            if not _is_open(target):
                answer = self._settled(target)
            elif target in stuck:
                is_never = target.name in never
                answer = self._stuck(target, outcomes[0], released[target.name], is_never=is_never)
            else:
                answer = self._expected(target, outcomes)
            report.starts.append(answer)
        counted = {each.workload.object: each.workload for each in targets if each.workload}
        report.workloads = list(counted.values())
        report.starts = grouped(targets, report.starts)
        may_be_earlier = any(map(_may_be_earlier, report.starts))
        if may_be_earlier and (count := self._count_without_end(outcomes[0], targets)):
            pods = number_of(count, "pod has", "pods have")
            when = plural(count, "it ends", "they end")
            report.notes.append(f"{pods} no known end: when {when}, pods may start earlier")
        if outcomes and (assumed := sorted(outcomes[0].assumed)):
            report.notes.append(
                f"how long pods of {few(assumed)} run is not known: it is assumed that later ones end "
                "before the next run"
            )
        if outcomes and not outcomes[0].is_uncertain and any(map(_is_range, report.starts)):
            report.notes.append(
                "how often pending pods were tried is not known; where the order in which they are "
                "tried again depends on it, the start is a range"
            )
        if outcomes:
            report.notes += self._assumed
            report.notes.append("pods that somebody creates later are not taken into account")
        return report

    def expected_start(
        self, target: ForecastTarget, *, assumes_ends: bool = True
    ) -> tuple[ExpectedStart | None, FutureOutcome]:
        """When it starts in the median future, which is the only one that is played."""
        plan = FuturePlan(MEDIAN_FUTURE, assumes_ends=assumes_ends)
        outcome = self._play(plan, [target], 0, 1, self.options.occurrences)
        return outcome.start_of(target), outcome

    def _count_without_end(self, outcome: FutureOutcome, targets: Sequence[ForecastTarget]) -> int:
        """How many pods that are there now have no known end, without those that are asked about."""
        asked = {each.name for each in targets}
        return sum(
            name in self._pods and name not in asked and asked.isdisjoint(members_of(pod))
            for name, pod in outcome.unknown.items()
        )

    # Futures

    def _outcomes(self, targets: Sequence[ForecastTarget]) -> list[FutureOutcome]:
        """The median first."""
        samples, seed = self.options.samples, self.options.seed
        left = self.options.occurrences
        first = self._play(FuturePlan(MEDIAN_FUTURE), targets, 0, samples + 1, left)
        if not first.is_uncertain:
            plans = [*_ATTEMPTS] if first.retried > 1 else []
        else:
            plans = [FuturePlan(SAMPLED, seed * 10_000 + i, RANDOM) for i in range(samples)]
            if any(each.source == DEADLINE for each in first.estimates.values()):
                plans.append(FuturePlan(LOW_FUTURE))
        count = len(plans) + 1
        found = [first]
        for i, plan in enumerate(plans, 1):
            left -= found[-1].occurrences
            outcome = self._play(plan, targets, i, count, left) if left > 0 else None
            if outcome is None or outcome.cut_at is not None:
                break
            found.append(outcome)
        return found

    def _released(
        self, targets: Sequence[ForecastTarget], outcome: FutureOutcome
    ) -> dict[str, FutureOutcome]:
        """By target, the future in which the pods without a known end end at once. If it does not start
        then, that in which those stay that it requires by affinity."""
        first = self._play(FuturePlan(RELEASED), targets, 0, 1, self._fewest())
        found = {each.name: first for each in targets}
        stuck = [each for each in targets if first.start_of(each) is None]
        kept = self._required_by(stuck, outcome)
        if kept:
            second = self._play(FuturePlan(RELEASED, kept=kept), stuck, 0, 1, self._fewest())
            found |= {each.name: second for each in stuck if second.start_of(each) is not None}
        return found

    def _never(
        self,
        targets: Sequence[ForecastTarget],
        outcome: FutureOutcome,
        released: Mapping[str, FutureOutcome],
    ) -> set[str]:
        """The targets that do not start even if CronJobs start no more Jobs, whether pods without a
        known end stay or end at once. With CronJobs, no future comes to rest by itself."""
        left = [each for each in targets if released[each.name].start_of(each) is None]
        scenario = _suspended(self.scenario)
        if not left or scenario is None or not outcome.goes_on:
            return set()
        released_at_once = dict.fromkeys((frozenset[str](), self._required_by(left, outcome)))
        plans = [FuturePlan(RELEASED, kept=kept) for kept in released_at_once]
        for plan in (FuturePlan(MEDIAN_FUTURE), *plans):
            found = self._play(plan, left, 0, 1, self._fewest(), scenario)
            left = [each for each in left if found.start_of(each) is None and not found.goes_on]
        return {each.name for each in left}

    def _required_by(self, targets: Sequence[ForecastTarget], outcome: FutureOutcome) -> frozenset[str]:
        """Of the pods without a known end, those that the targets or their pods have a required pod
        affinity to."""
        asked = {each.name for each in targets}
        pods = [
            raw
            for raw in self._pending
            if ForecastTarget(raw).name in asked or not asked.isdisjoint(members_of(raw))
        ]
        terms = [term for raw in pods for term in required_affinity(raw)]
        return frozenset(
            name for name, raw in outcome.unknown.items() if any(term(raw) for term in terms)
        )

    def _needed_ends(
        self,
        target: ForecastTarget,
        start: ExpectedStart,
        unknown: Mapping[str, Raw],
        kept: frozenset[str],
    ) -> list[str]:
        """Of the pods without a known end, those whose ends are enough for the start, as far as a few
        futures tell: of those that ended on its nodes, it may not need all."""
        ended = {each.object for each in start.waited_for}
        needed = [each for each in unknown if each in ended] or list(unknown)
        stay = {*kept, *unknown} - set(needed)

        def starts_beside(group: Iterable[str]) -> bool:
            if self._played_for_ends >= _MOST_PLAYED_FOR_ENDS:
                return False
            self._played_for_ends += 1
            plan = FuturePlan(RELEASED, kept=frozenset(stay.union(group)))
            found = self._play(plan, [target], 0, 1, self._fewest(), within=start.t + _LATER)
            return found.start_of(target) is not None

        def keep(group: list[str]) -> None:
            """Has as many of them stay as it starts beside, by halves."""
            if group and starts_beside(group):
                stay.update(group)
            elif len(group) > 1:
                middle = len(group) // 2
                keep(group[:middle])
                keep(group[middle:])

        if len(needed) > 1 and starts_beside(()):
            without = [each for each in needed if not _requests_any(unknown[each])]
            keep(without)
            keep([each for each in needed if each not in without])
        return [each for each in needed if each not in stay]

    def _fewest(self) -> float:
        return _FEWEST if self.options.occurrences < math.inf else math.inf

    def _play(
        self,
        plan: FuturePlan,
        targets: Sequence[ForecastTarget],
        number: int,
        of: int,
        occurrences: float,
        scenario: Scenario | None = None,
        within: float = math.inf,
    ) -> FutureOutcome:
        future = Future(scenario or self.scenario, self._setup, self.now, plan, self.estimator)
        waiting = list(targets)

        def is_done(outcome: FutureOutcome) -> bool:
            waiting[:] = [
                each
                for each in waiting
                if outcome.start_of(each) is None and each.name not in outcome.gone
            ]
            return not waiting

        def progress(t: float, steps: int, pending: int) -> None:
            if self._progress is not None:
                self._progress(number + 1, of, t)

        return future.foresee(min(within, self.options.horizon), is_done, progress, occurrences)

    # Answers

    def _settled(self, target: ForecastTarget) -> StartAnswer:
        """Of what needs no future."""
        if target.over:
            return StartAnswer(target.name, StartStatus.OVER, message=f"is {target.over}")
        if target.started is not None:
            at = format_time(target.started) if target.started else None
            range_ = TimeRange(at, at, at) if at else None
            node = _node_of(target.raw)
            return StartAnswer(target.name, StartStatus.STARTED, start=range_, node=node)
        if target.missing_node:
            why = f"it names the node {target.missing_node}, which does not exist"
            until = "it is deleted, and created without nodeName"
            return StartAnswer(target.name, StartStatus.NEVER, message=why, until=until)
        if target.never_due:
            until = "its schedule is changed"
            return StartAnswer(target.name, StartStatus.NEVER, message=target.never_due, until=until)
        if target.without_pods:
            why, until = target.without_pods, "it has pods"
            return StartAnswer(target.name, StartStatus.NEVER, message=why, until=until)
        gates = ", ".join(target.gates)
        what = "it is suspended" if gates == "spec.suspend" else f"it has scheduling gates: {gates}"
        until = "spec.suspend is false" if gates == "spec.suspend" else f"{gates} is removed"
        return StartAnswer(target.name, StartStatus.NEVER, message=what, until=until)

    def _expected(self, target: ForecastTarget, outcomes: Sequence[FutureOutcome]) -> StartAnswer:
        is_exact = not outcomes[0].is_uncertain
        counted = outcomes if is_exact else outcomes[1:] or outcomes
        starts = [each.start_of(target) for each in outcomes]
        ranged = [each.start_of(target) for each in counted]
        known = sorted(each.t for each in ranged if each is not None)
        if not known:
            known = [each.t for each in starts if each is not None]
        samples = [
            start.t if start is not None else self.options.horizon
            for start, outcome in zip(ranged, counted, strict=True)
            if outcome.plan.kind == SAMPLED
        ]
        first = starts[0]
        middle = first.t if is_exact and first is not None else median(samples or known)
        reference, outcome = self._closest(starts, outcomes, middle)
        latest = known[-1] if all(each is not None for each in ranged) else None
        return StartAnswer(
            target.name,
            StartStatus.EXPECTED,
            start=TimeRange(self._stamp(known[0]), self._stamp(middle), self._stamp(latest)),
            wait=TimeRange(known[0], middle, latest),
            node=reference.node,
            reservation=reference.reservation,
            pods_before=reference.pods_before,
            starts_in=sum(each is not None for each in starts),
            waits_for=[
                self._waited_for(each.object, each.event, each.t, outcome, outcomes)
                for each in reference.waited_for[:_SHOWN]
            ],
            waits_for_more=max(0, len(reference.waited_for) - _SHOWN),
        )

    def _closest(
        self,
        starts: Sequence[ExpectedStart | None],
        outcomes: Sequence[FutureOutcome],
        middle: float,
    ) -> tuple[ExpectedStart, FutureOutcome]:
        """The start that is closest to the middle of all."""
        found = [
            (abs(start.t - middle), i, start) for i, start in enumerate(starts) if start is not None
        ]
        _, i, start = min(found)
        return start, outcomes[i]

    def _waited_for(
        self, name: str, event: str, t: float, outcome: FutureOutcome, outcomes: Sequence[FutureOutcome]
    ) -> WaitedFor:
        ends = [each.ends[name] for each in outcomes if name in each.ends] or [t]
        estimate = outcome.estimates.get(name)
        return WaitedFor(
            name,
            event,
            TimeRange(self._stamp(min(ends)), self._stamp(t), self._stamp(max(ends))),
            _answered(estimate) if estimate is not None and _ends_so(estimate, event) else None,
        )

    def _stuck(
        self,
        target: ForecastTarget,
        outcome: FutureOutcome,
        released: FutureOutcome,
        *,
        is_never: bool,
    ) -> StartAnswer:
        """Of what starts in no future."""
        name = target.name
        message = outcome.messages.get(name, "")
        if not message and not target.is_single:
            message = self._message_of_members(target, outcome)
        start = released.start_of(target)
        if target.scheduler and not self._setup.serves(target.scheduler):
            message = f"no profile of the configuration is for its scheduler {target.scheduler}"
            until = f"--config has a profile with schedulerName {target.scheduler}"
            return StartAnswer(name, StartStatus.UNKNOWN, message=message, until=until)
        if name in outcome.gone:
            loss = outcome.gone[name]
            at = self._stamp(loss.t)
            starts = "it starts" if target.is_single else "a pod of it starts"
            if target.raw["kind"] == "Reservation":
                starts = "its capacity is free" if _node_of(target.raw) else "it gets a node"
            why = f": {message}" if message and target.is_single else ""
            if start is None:
                what = f"it {loss.how} at {at}, before {starts}{why}"
                return StartAnswer(name, StartStatus.NEVER, message=what)
            message = f"it {loss.how} at {at}, unless capacity is free before{why}"
        if start is not None:
            known = outcome.unknown | released.unknown
            needed = self._needed_ends(target, start, known, released.plan.kept)
            return StartAnswer(
                name,
                StartStatus.UNKNOWN,
                message=message,
                until="the ends of these pods are known" if needed else "",
                needs=[
                    PodWithoutEnd(each, self.estimator.remedy(known[each])) for each in needed[:_SHOWN]
                ],
                needs_more=max(0, len(needed) - _SHOWN),
            )
        is_never = is_never or name in outcome.too_large
        if outcome.cut_at is not None and not is_never:
            at = self._stamp(outcome.cut_at)
            until = (
                f"--within is given: without it the forecast ends after {self.options.occurrences:g} "
                f"reservations of ReservationSchedules and pods of CronJobs, here at {at}"
            )
            return StartAnswer(name, StartStatus.UNKNOWN, message=message, until=until)
        if " not found" in message:
            return StartAnswer(
                name, StartStatus.UNKNOWN, message=message, until="the object exists that is not found"
            )
        if outcome.goes_on and not is_never:
            return StartAnswer(name, StartStatus.LATER, message=message, until="--within is longer")
        return StartAnswer(name, StartStatus.NEVER, message=message, until="the cluster or it changes")

    def _message_of_members(self, target: ForecastTarget, outcome: FutureOutcome) -> str:
        pods = [raw for raw in self._pending if target.name in members_of(raw)]
        messages = [outcome.messages.get(ForecastTarget(raw).name, "") for raw in pods]
        why = next((f": {each}" for each in messages if each), "")
        if target.raw["kind"] == "Job":
            return f"none of its pods starts{why}"
        started = len(outcome.members.get(target.name, ()))
        return f"{started} of the {target.needed} pods that it still needs start{why}"

    def _stamp(self, t: float | None) -> str | None:
        """In seconds, as far as a sum of times can be exact."""
        return format_time(round(self.now + t, 3)) if t is not None else None


def _suspended(scenario: Scenario) -> Scenario | None:
    """The scenario with its CronJobs suspended; None if it has none that are not."""
    changed = 0
    actions = []
    for each in scenario.actions:
        if isinstance(each.action, Create) and each.action.raw["kind"] == "CronJob":
            raw = each.action.raw
            spec = raw.get("spec") or {}
            changed += not spec.get("suspend")
            each = replace(each, action=Create({**raw, "spec": {**spec, "suspend": True}}))
        actions.append(each)
    return replace(scenario, actions=tuple(actions)) if changed else None


def _requests_any(pod: Raw) -> bool:
    spec = pod.get("spec") or {}
    containers = [*(spec.get("containers") or ()), *(spec.get("initContainers") or ())]
    return any(each.get("resources") for each in (spec, *containers))


def _is_node(raw: Any) -> bool:
    return isinstance(raw, dict) and raw.get("kind") == "Node"


def _node_of(raw: Raw) -> str:
    """The node of a pod, or of a reservation."""
    node = (raw.get("spec") or {}).get("nodeName") or (raw.get("status") or {}).get("nodeName")
    return str(node or "")


def _is_range(answer: StartAnswer) -> bool:
    return answer.wait is not None and answer.wait.earliest != answer.wait.latest


def _may_be_earlier(answer: StartAnswer) -> bool:
    """Whether the start can depend on pods without a known end: what never starts was played with these
    ending at once."""
    if answer.status is StartStatus.EXPECTED:
        return answer.wait is not None and answer.wait.latest != 0.0
    return answer.status is StartStatus.LATER or bool(answer.needs)


def _ends_so(estimate: RunTimeEstimate, event: str) -> bool:
    """Whether the pod is gone because of what is estimated."""
    return event in ("Succeeded", "Failed") or (event == "Deleted" and estimate.is_of_job)


def _is_open(target: ForecastTarget) -> bool:
    settled = target.over or target.gates or target.without_pods or target.missing_node
    return target.started is None and not settled and not target.never_due


def _answered(estimate: RunTimeEstimate) -> EstimateAnswer:
    spread = estimate.spread
    low, high = spread.earliest(0.0), spread.quantile(HIGH, 0.0)
    return EstimateAnswer(
        source=estimate.source,
        of=estimate.of,
        samples=estimate.samples,
        quantiles={
            "p10": low if estimate.samples == 0 else spread.quantile(LOW, 0.0),
            "p50": spread.quantile(MEDIAN, 0.0),
            "p90": high,
        },
        text=f"{estimate.describe()}: {_span(low, high)}",
    )


def _span(low: float | None, high: float | None) -> str:
    if low is None or high is None or low == high:
        return format_duration(round(high or low or 0.0))
    return f"{format_duration(round(low))} to {format_duration(round(high))}"
