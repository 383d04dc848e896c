"""Lives that did not end, or broke an invariant, come to an end."""

from pathlib import Path

import pytest

from holdfast.cli.options import load_setup
from holdfast.sim.scenario import read_scenario
from holdfast.sim.simulation import Simulation
from holdfast.snapshot.manifests import load_files

FOLDER = Path(__file__).parent / "scenarios"
FILES = sorted(f for f in FOLDER.glob("*.yaml") if not f.name.endswith(".config.yaml"))


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_the_run_ends(file: Path) -> None:
    """Every step is checked against the invariants by the simulation itself."""
    config = file.with_suffix(".config.yaml")
    setup = load_setup(str(config) if config.exists() else None)
    result = Simulation(read_scenario(load_files([str(file)])), setup).run(4000.0)
    assert (result.end, result.unmet) == (4000.0, [])
