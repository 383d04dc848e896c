"""Every example comes out on a served cluster as it does in a simulation."""

import asyncio
from pathlib import Path

import pytest

from drivers.http_driver import HttpDriver
from holdfast.backends.embedded.setup import Setup
from holdfast.sim.loading import load_files
from holdfast.sim.scenario import read_scenario
from holdfast.sim.simulation import Simulation

EXAMPLES = Path(__file__).parents[2] / "examples"
FILES = sorted(file for file in EXAMPLES.rglob("*.yaml") if file.parent.name != "configs")


@pytest.mark.parametrize("file", FILES, ids=lambda file: str(file.relative_to(EXAMPLES)))
def test_example(file: Path) -> None:
    scenario = read_scenario(load_files([str(file)]))
    simulated = Simulation(scenario, Setup.of()).run()
    served = HttpDriver(scenario, simulated.end)
    assert asyncio.run(served.play()) == []
    assert served.placed == {
        (entry.t, entry.object, entry.node, entry.reservation)
        for entry in simulated.timeline
        if entry.event == "Bound"
    }
