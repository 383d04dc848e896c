"""The simulation loop: applies everything due at a moment, then runs rounds until the scheduler is
idle.

    scenario ─► store ─► scheduler ─► decisions ─► store ─► …
                  └────► kubelets, volume and PDB controllers

Everything of one moment is applied before a round: ends and deletions first, then creations and Steps
in the order of documents. Time then jumps to the next action of the scenario, or to the scheduler's
next timer if that is earlier; without `until`, timers alone do not keep the simulation running.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import msgspec

from holdfast.api.documents import Document
from holdfast.api.errors import InvalidObject
from holdfast.api.names import DEFAULT_SCHEDULER
from holdfast.local.executor import DecisionExecutor
from holdfast.local.setup import SchedulerFactory
from holdfast.local.store.objects import Raw
from holdfast.local.timeline import TimelineEntry
from holdfast.scheduler.cluster.decisions import Decision
from holdfast.scheduler.cluster.plugin_errors import PluginReport
from holdfast.sim.action_runner import ActionRunner, Step
from holdfast.sim.expect import Expectation, failures
from holdfast.sim.node_usage import NodeUsage
from holdfast.sim.run_history import RunHistory
from holdfast.sim.scenario_actions import Apply, Create, ExpectationCheck, Scenario, ScenarioAction
from holdfast.sim.simulated_cluster import SimulatedCluster, broken
from holdfast.sim.summary import summary
from holdfast.snapshot.manifests import InvalidInput

_ROUNDS_AT_ONCE = 1_000
"""With more rounds than this, plus some per object, at one moment the cluster counts as not settling.
The scheduler's own guard usually reacts earlier."""
_ROUNDS_PER_OBJECT = 10
_OBJECTS_PER_CHECK = 50
"""The state is checked after every step while there are no more objects than this; in larger
scenarios once in so many steps that checking does not become all there is."""

Progress = Callable[[float, int, int], None]
"""Called with the time, the number of steps, and the number of pending pods."""


@dataclass(frozen=True, slots=True)
class Result:
    seed: int
    end: float
    timeline: list[TimelineEntry]
    objects: list[Raw]
    summary: dict[str, Any]
    unmet: list[str]
    """Expectations of the scenario that did not come true."""
    node_usage: NodeUsage
    history: RunHistory | None = None
    """For a report."""
    waits: list[float] = field(default_factory=list)
    """How long each pod that was bound was pending, in order of binding."""
    created_before: dict[str, float] = field(default_factory=dict)
    """When pods that were pending at the start already were created: less than 0."""
    plugin_errors: list[PluginReport] = field(default_factory=list)
    """What plugins raised, each different error once."""
    other_schedulers: frozenset[str] = frozenset()
    """The scheduler names of pods that no profile is for."""
    endless_job_pods: int = 0
    """Pods of Jobs that run at the end, and would for ever."""


class Simulation:
    def __init__(
        self,
        scenario: Scenario,
        setup: SchedulerFactory,
        seed: int = 0,
        start: float | None = None,
        *,
        audit: bool = True,
        history: bool = False,
        jobs_run_for: float | None = None,
    ) -> None:
        """With `audit` every write of the scheduler is checked by the capacity audit. With `history`
        the result has what a report shows over time. Pods of Jobs succeed after `jobs_run_for` seconds
        if it is given."""
        self._scenario = scenario
        self._planned = scenario.actions
        self._seed = seed
        begin = scenario.start if start is None else start
        self.world = SimulatedCluster(
            setup, seed, begin, audit=audit, history=history, kinds=scenario.kinds
        )
        self.world.objects.identity.exclude(
            planned.action.raw
            for planned in scenario.actions
            if isinstance(planned.action, Create | Apply)
        )
        self.world.kubelets.jobs_run_for = jobs_run_for
        self._steps = ActionRunner(self.world)
        self._executor = DecisionExecutor(self.world)
        self._moments = 0
        self._unchecked = 0
        self._to_look_at: list[tuple[Document, Expectation]] = []
        self._unmet: list[str] = []
        self.plugin_errors: dict[str, PluginReport] = {}
        """What plugins raised, by message."""

    def run(self, until: float | None = None, progress: Progress | None = None) -> Result:
        """Raises InvalidInput for an impossible scenario, InvariantBroken for an error of Holdfast."""
        world = self.world
        self.begin()
        self.play(until, progress)
        self._to_look_at.extend(self._scenario.at_the_end)
        self._look()
        end = world.clock.t
        return Result(
            seed=self._seed,
            end=end,
            timeline=world.timeline.entries,
            objects=list(world.objects.all()),
            summary=summary(
                world.objects,
                world.node_usage,
                world.figures,
                world.timeline.entries,
                end,
                world.scheduler.detects_starvation,
            ),
            unmet=self._unmet,
            node_usage=world.node_usage,
            history=world.history,
            waits=world.figures.waits,
            created_before=world.figures.created_before,
            plugin_errors=list(self.plugin_errors.values()),
            other_schedulers=self._other_schedulers(),
            endless_job_pods=world.kubelets.endless_job_pods(),
        )

    def begin(self) -> None:
        """Sets the timers of the scenario's actions, once."""
        actions, self._planned = self._planned, ()
        for planned in actions:
            self.world.timers.add(planned.t, self._when_due(planned), planned.order)

    def play(
        self,
        until: float | None = None,
        progress: Progress | None = None,
        stop: Callable[[], bool] = lambda: False,
    ) -> None:
        """Advances from timer to timer, until nothing is due, the clock is at `until`, or `stop` says
        so after a moment."""
        world = self.world
        while self._next_moment(until):
            self.settle()
            if world.history is not None:
                world.history.sample(world.clock.t)
            self._moments += 1
            self._look()
            self._check_state()
            if progress is not None:
                progress(world.clock.t, self._moments, len(world.scheduler.queue))
            if stop():
                return
        if until is not None:
            world.clock.advance(until)
        self.check_state()

    def take(self, step: Step) -> None:
        """Does at once what is in no scenario. Raises InvalidObject for what an API server refuses."""
        self._steps.take(step, 0)
        self.world.settle()

    def _when_due(self, planned: ScenarioAction) -> Callable[[], None]:
        def come() -> None:
            action = planned.action
            if isinstance(action, ExpectationCheck):
                self._to_look_at.append((planned.origin, action.expectation))
                return
            try:
                self._steps.take(action, planned.order[1])
            except InvalidObject as error:
                self.refused(planned, error)

        return come

    def refused(self, planned: ScenarioAction, error: InvalidObject) -> None:
        """The scenario has a write that an API server refuses: it is not one that can be run."""
        at = f"at {self.world.clock.t:g}s"
        raise InvalidInput([f"{planned.origin}: {error} ({at})"]) from None

    def _next_moment(self, until: float | None) -> bool:
        """Moves the clock to when something is due next; False when nothing is."""
        clock = self.world.clock
        stated = self.world.timers.next_time()
        timer = self._next_timer()
        if stated is None and (until is None or timer is None):
            return False
        due = clock.since_start(timer) if timer is not None else None
        if timer is not None and due is not None and (stated is None or due < stated):
            if until is not None and due > until:
                return False
            if timer <= clock.epoch():
                raise self.world.broken([f"the scheduler's timer at {due:g}s never fires"])
            clock.advance_to_timer(timer)
            return True
        assert stated is not None
        if until is not None and stated > until:
            return False
        clock.advance(stated)
        return True

    def _next_timer(self) -> float | None:
        """The earlier of the timers of the scheduler and of the workload controllers."""
        world = self.world
        timers = [self._scheduler_timer()]
        due = world.workloads.next_due()
        if due is not None and due > world.clock.epoch():
            timers.append(due)
        return min((each for each in timers if each is not None), default=None)

    def _scheduler_timer(self) -> float | None:
        return self.world.scheduler.next_timer()

    def settle(self) -> None:
        """Runs rounds until nothing changes."""
        world = self.world
        rounds = 0
        while True:
            world.settle()
            world.fed = False
            decisions = world.scheduler.round(world.clock.epoch())
            for failed in world.scheduler.cluster.plugin_errors.take_reports():
                self.plugin_errors.setdefault(failed.message, failed)
            if found := world.scheduler.guard.take_reports():
                raise world.broken([f"livelock: {each.about}: {each.message}" for each in found])
            for decision in decisions:
                self._carry_out(decision)
            stated = world.timers.next_time()
            due = stated is not None and stated <= world.clock.t
            if not (decisions or world.fed or due):
                return
            rounds += 1
            if rounds > _ROUNDS_AT_ONCE + _ROUNDS_PER_OBJECT * len(world.views):
                last = ", ".join(dict.fromkeys(type(each).__name__ for each in decisions))
                raise world.broken([f"the scheduler does not settle at {world.clock.t:g}s: {last}"])

    def _carry_out(self, decision: Decision) -> None:
        audit = self.world.audit
        if audit is None:
            self._executor.carry_out(decision)
            return
        audit.begin()
        self._executor.carry_out(decision)
        if problems := audit.end():
            raise self.world.broken(problems)

    def _other_schedulers(self) -> frozenset[str]:
        pods = self.world.objects.scan("", "Pod")
        found = {pod["spec"].get("schedulerName") or DEFAULT_SCHEDULER for pod in pods}
        return frozenset(name for name in found if not self.world.setup.serves(name))

    def _look(self) -> None:
        """Compares what is with what the scenario expects."""
        world = self.world
        for origin, expectation in self._to_look_at:
            found = failures(expectation, world.objects, world.timeline.entries)
            at = f"at {world.clock.t:g}s"
            self._unmet.extend(f"{origin}: Expect: {each} ({at})" for each in found)
        self._to_look_at.clear()

    def _check_state(self) -> None:
        """Checks the state, in large scenarios not at every moment."""
        self._unchecked += 1
        self.check_state(fully=self._unchecked * _OBJECTS_PER_CHECK >= len(self.world.views))

    def check_state(self, *, fully: bool = True) -> None:
        """Raises InvariantBroken."""
        world = self.world
        if world.audit is not None and (problems := world.audit.at_rest(world.clock.epoch())):
            raise world.broken(problems)
        if fully:
            self._unchecked = 0
            problems = broken(world.scheduler, world.store, world.setup.serves)
            if problems:
                raise world.broken(problems)


# JSON output: identical bytes for the same scenario, configuration and seed


def as_mapping(result: Result) -> dict[str, Any]:
    return {
        "seed": result.seed,
        "end": result.end,
        "timeline": result.timeline,
        "objects": result.objects,
        "summary": result.summary,
    }


def to_json(results: list[tuple[str | None, Result]]) -> str:
    """One run as it is; several runs with the name of each configuration."""
    if len(results) == 1:
        content = as_mapping(results[0][1])
    else:
        content = {"runs": [{"config": name, **as_mapping(result)} for name, result in results]}
    return msgspec.json.format(msgspec.json.encode(content), indent=2).decode()
