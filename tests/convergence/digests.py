"""Runs all examples, the scenarios of this folder and some random lives, and prints a digest of each
run: in another process, under another hash seed, it must print the same."""

import hashlib
import sys
from collections.abc import Iterator
from pathlib import Path

from convergence.random_scenarios import lived
from holdfast.cli.options import load_setup
from holdfast.local.setup import SchedulerFactory
from holdfast.sim.scenario import read_scenario
from holdfast.sim.simulation import Result, Simulation, to_json
from holdfast.snapshot.manifests import load_files

HERE = Path(__file__).parent
EXAMPLES = HERE.parents[1] / "examples"


def runs(lives: int) -> Iterator[tuple[str, Result | None]]:
    examples = sorted(
        file
        for file in EXAMPLES.rglob("*.yaml")
        if file.parent.name != "configs" and file.name != "config.yaml"
    )
    for file in examples:
        yield file.name, Simulation(read_scenario(load_files([str(file)])), SchedulerFactory.of()).run()
    for file in sorted(HERE.glob("scenarios/*.yaml")):
        if file.name.endswith(".config.yaml"):
            continue
        config = file.with_suffix(".config.yaml")
        setup = load_setup(str(config) if config.exists() else None)
        yield file.name, Simulation(read_scenario(load_files([str(file)])), setup).run(4000.0)
    for seed in range(lives):
        yield f"life {seed}", lived(seed)


if __name__ == "__main__":
    for name, result in runs(int(sys.argv[1])):
        text = to_json([(None, result)]) if result is not None else ""
        print(name, hashlib.sha256(text.encode()).hexdigest())
