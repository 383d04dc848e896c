"""Recordings of simulated clusters, as `holdfast record` writes them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from holdfast.api.documents import Document
from holdfast.local.setup import SchedulerFactory
from holdfast.local.store.objects import StoreChange
from holdfast.recording.recorder import RecordedState
from holdfast.recording.segments import SegmentWriter
from holdfast.sim.scenario import read_scenario
from holdfast.sim.simulation import Result, Simulation
from holdfast.snapshot.stripping import Stripper

Raw = dict[str, Any]

_NOT_RECORDED = ("Event", "Lease")


def record_simulation(
    objects: list[Raw],
    folder: Path,
    until: float,
    *,
    begin: float = 0.0,
    config: Raw | None = None,
    max_size: int = 1 << 30,
) -> Result:
    """Plays the objects and records all changes from `begin` on; returns the whole run."""
    documents = [Document("day", 1, 1, raw, i) for i, raw in enumerate(objects)]
    simulation = Simulation(read_scenario(documents), SchedulerFactory.of(config), audit=False)
    world = simulation.world
    writer = SegmentWriter(folder, max_size)
    state = RecordedState(writer, Stripper())
    is_on = False

    def changed(change: StoreChange) -> None:
        _, key, before, after = change
        if key.kind in _NOT_RECORDED or not is_on:
            return
        now = world.clock.epoch()
        if after is not None:
            state.put(now, after)
        elif before is not None:
            state.drop(now, before)

    world.store.observe(changed)
    if begin:
        simulation.begin()
        simulation.play(begin)
        for raw in world.objects.all():
            if raw["kind"] not in _NOT_RECORDED:
                state.note(raw, exists=True)
    state.begin(world.clock.epoch())
    is_on = True
    result = simulation.run(until)
    state.end(world.clock.epoch())
    state.sync()
    writer.close()
    return result
