"""Every example runs, meets its expectations, and has the same outcome twice."""

from pathlib import Path

import pytest

from holdfast.local.setup import SchedulerFactory
from holdfast.sim.scenario import read_scenario
from holdfast.sim.scenario_actions import ExpectationCheck
from holdfast.sim.simulation import Simulation, to_json
from holdfast.snapshot.manifests import load_files

EXAMPLES = Path(__file__).parents[2] / "examples"
FILES = sorted(
    file
    for file in EXAMPLES.rglob("*.yaml")
    if file.parent.name != "configs" and EXAMPLES / "plugins" not in file.parents
)
"""Those in `plugins` need what is not installed here; see tests/plugin/test_installed_package.py."""


@pytest.mark.parametrize("file", FILES, ids=lambda file: str(file.relative_to(EXAMPLES)))
def test_example(file: Path) -> None:
    scenario = read_scenario(load_files([str(file)]))
    expects = scenario.at_the_end or any(
        isinstance(h.action, ExpectationCheck) for h in scenario.actions
    )
    assert expects, "an example has expectations"
    first, second = (Simulation(scenario, SchedulerFactory.of()).run() for _ in range(2))
    assert first.unmet == []
    assert to_json([(None, first)]) == to_json([(None, second)])


@pytest.mark.parametrize("file", FILES, ids=lambda file: str(file.relative_to(EXAMPLES)))
def test_example_is_described(file: Path) -> None:
    assert file.read_text().startswith("# "), "an example starts by saying what it shows"
    assert f"({file.relative_to(EXAMPLES)})" in (EXAMPLES / "README.md").read_text()
