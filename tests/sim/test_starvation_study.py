"""The study of a mixed week, in small: large jobs' waits are bounded, and it costs next to nothing."""

import importlib.util
from pathlib import Path
from typing import Any

import yaml

from holdfast.api.documents import Document
from holdfast.local.setup import SchedulerFactory
from holdfast.sim.scenario import read_scenario
from holdfast.sim.simulation import Simulation

STUDY = Path(__file__).parents[2] / "examples" / "starvation"
NODES, HOURS, GANG = 10, 60, 2


def _study() -> Any:
    spec = importlib.util.spec_from_file_location("week", STUDY / "week.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_large_jobs_do_not_starve_and_little_is_wasted() -> None:
    week = _study()
    documents = [
        Document("week", i + 1, 1, raw) for i, raw in enumerate(week.scenario(NODES, HOURS, GANG))
    ]
    scenario = read_scenario(documents)
    rows = {}
    for name in ("allocate", "node", "conservative", "easy"):
        config = yaml.safe_load((STUDY / "configs" / f"{name}.yaml").read_text())
        result = Simulation(scenario, SchedulerFactory.of(config)).run((HOURS + 48) * 3600)
        timeline = [{"object": e.object, "event": e.event, "t": e.t} for e in result.timeline]
        run = {"config": name, "timeline": timeline, "objects": result.objects}
        rows[name] = week.figures(run, HOURS)
    assert rows["node"]["big worst"] < 12
    assert rows["conservative"]["big worst"] < 12
    assert rows["conservative"]["used"] > rows["allocate"]["used"] - 2
    assert all(row["big never"] == 0 for row in rows.values())
    assert len(week.table(list(rows.values())).splitlines()) == 5
    assert week.plot(list(rows.values())).startswith("<svg")
