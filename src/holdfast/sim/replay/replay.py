"""The simulation of a recording under one configuration.

A pod with a controller that is preempted or evicted here comes again, as its controller would have
created it, and runs from the start.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import Any

from holdfast.api import names
from holdfast.api.errors import InvalidObject
from holdfast.api.times import format_duration
from holdfast.local.setup import SchedulerFactory
from holdfast.local.timeline import EVICTED, PREEMPTED
from holdfast.recording.lives import PodLife, RecordedLives
from holdfast.scheduler.jobs.estimates import duration_or_none
from holdfast.sim.forecast.run_times import controller_in
from holdfast.sim.replay.arrivals import ReplayScenario, ran_before
from holdfast.sim.scenario_actions import Create, ScenarioAction
from holdfast.sim.simulation import Progress, Result, Simulation

Raw = dict[str, Any]


class Replay(Simulation):
    def __init__(
        self,
        lives: RecordedLives,
        setup: SchedulerFactory,
        source: str,
        seed: int = 0,
        *,
        audit: bool = False,
        history: bool = False,
    ) -> None:
        built = ReplayScenario(lives, setup, source)
        scenario = built.scenario(setup.object_kinds())
        super().__init__(scenario, setup, seed, lives.begin, audit=audit, history=history)
        self.world.scheduler.keep_conditions()
        self.world.stores_events = False
        self.notes = list(scenario.notes)
        self._lives = lives
        self._pods = built.pods
        self._read = 0
        self._again: Counter[str] = Counter()
        self._refused: Counter[str] = Counter()
        self.replaced = 0
        """How many pods came again."""
        self._given: dict[str, Raw] = {}
        for planned in scenario.actions:
            if isinstance(planned.action, Create) and planned.action.raw["kind"] == "Pod":
                raw = planned.action.raw
                self._given[_name(raw)] = raw

    def run(self, until: float | None = None, progress: Progress | None = None) -> Result:
        """Up to the end of the recording if nothing else is said."""
        result = super().run(self._lives.end if until is None else until, progress)
        self.notes += [f"{count} changes refused: {why}" for why, count in self._refused.most_common(5)]
        return result

    def check_state(self, *, fully: bool = True) -> None:
        """Only with the audit: it is long, and nothing is new here but the input."""
        if self.world.audit is not None:
            super().check_state(fully=fully)

    def refused(self, planned: ScenarioAction, error: InvalidObject) -> None:
        """What was recorded may not fit what happens here: an object is gone already."""
        field = f"{error.field}: " if error.field else ""
        self._refused[f"{error.object.partition('/')[0]}: {field}{error.message}"] += 1

    def settle(self) -> None:
        super().settle()
        entries = self.world.timeline.entries
        for entry in entries[self._read :]:
            if entry.event in (PREEMPTED, EVICTED) and entry.object in self._pods:
                self._come_again(entry.object, self._pods[entry.object])
        self._read = len(entries)

    def _come_again(self, name: str, life: PodLife) -> None:
        raw = self._given[name]
        if controller_in(raw) is None:
            return
        origin = f"{raw['metadata']['name']}"
        self._again[origin] += 1
        metadata = {k: v for k, v in raw["metadata"].items() if k not in ("uid", "creationTimestamp")}
        annotations = dict(metadata.get("annotations") or {})
        ran = max(0.0, -(life.bound or 0.0))
        if ran and names.SIM_RUNS_FOR in annotations:  # which counts from its start
            ran -= ran_before(raw, self._lives.begin)
            seconds = duration_or_none(annotations[names.SIM_RUNS_FOR]) or 0.0
            annotations[names.SIM_RUNS_FOR] = format_duration(round(max(0.0, seconds + ran), 3))
        number = self._again[origin]
        again: Raw = {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {**metadata, "name": f"{origin}-again-{number}", "annotations": annotations},
            "spec": {k: v for k, v in raw["spec"].items() if k != "nodeName"},
        }
        self._given[_name(again)] = again
        self._pods[_name(again)] = replace(life, bound=None)
        self.replaced += 1
        world = self.world
        world.timers.add(world.clock.t, lambda: self._create(again))

    def _create(self, raw: Raw) -> None:
        try:
            self._steps.take(Create(raw), 0)
        except InvalidObject as error:
            self._refused[f"{error.object.partition('/')[0]}: {error.message}"] += 1


def _name(raw: Raw) -> str:
    metadata = raw["metadata"]
    return f"Pod/{metadata.get('namespace') or names.DEFAULT_NAMESPACE}/{metadata['name']}"
