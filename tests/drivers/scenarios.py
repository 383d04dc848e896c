"""The scenarios every driver plays: all there are in `examples/`."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import pytest

from drivers.naming import as_written, made
from drivers.player import Player, Stage
from holdfast.local.setup import SchedulerFactory
from holdfast.local.timeline import TimelineEntry
from holdfast.sim.scenario import read_scenario
from holdfast.sim.scenario_actions import Scenario
from holdfast.sim.simulation import Simulation
from holdfast.snapshot.manifests import load_files

_EXAMPLES = Path(__file__).parents[2] / "examples"
_NOT_PLAYED = (_EXAMPLES / "plugins",)
"""Scenarios that need a package to be installed; the package's own tests play them."""
_FILES = sorted(
    file
    for file in _EXAMPLES.rglob("*.yaml")
    if file.parent.name != "configs" and not any(file.is_relative_to(each) for each in _NOT_PLAYED)
)
every_example = pytest.mark.parametrize(
    "file", _FILES, ids=lambda file: str(file.relative_to(_EXAMPLES))
)

Placed = set[tuple[float, str, str, str]]


class Simulated(NamedTuple):
    """How a scenario comes out in a simulation, for others to come out the same."""

    scenario: Scenario
    end: float
    timeline: list[TimelineEntry]

    @classmethod
    def of(cls, file: Path) -> Simulated:
        scenario = read_scenario(load_files([str(file)]))
        result = Simulation(scenario, SchedulerFactory.of()).run()
        assert result.unmet == []
        return cls(scenario, result.end, result.timeline)

    @property
    def placed(self) -> Placed:
        return placements(self.timeline)

    async def play(self, stage: Stage) -> list[str]:
        """What did not come out as the scenario expects."""
        return await Player(self.scenario, self.end, stage).play()

    def arranged(self, timeline: list[TimelineEntry]) -> list[TimelineEntry]:
        """What happened at one moment, in the order in which it does in the simulation; for where
        things go on side by side."""
        place: dict[tuple[float, str, str], int] = {}
        for i, entry in enumerate(self.timeline):
            place.setdefault(_what(entry), i)
        return sorted(timeline, key=lambda entry: (entry.t, place.get(_what(entry), 0)))


def placements(timeline: list[TimelineEntry]) -> Placed:
    """Which pod was bound when, where and through what."""
    bound = [entry for entry in timeline if entry.event == "Bound"]
    return {(e.t, as_written(e.object), e.node, made(e.reservation)) for e in bound}


def _what(entry: TimelineEntry) -> tuple[float, str, str]:
    return entry.t, as_written(entry.object), entry.event
