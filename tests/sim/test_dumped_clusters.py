"""A cluster at rest, dumped and simulated for an hour, keeps its pods where they are."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from holdfast.api.documents import Document
from holdfast.local.setup import SchedulerFactory
from holdfast.sim.scenario import read_scenario
from holdfast.sim.simulation import Result, Simulation
from holdfast.snapshot.stripping import Stripper
from sim.dumped_clusters import RandomCluster

Raw = dict[str, Any]
OWNERS = ("Deployment", "ReplicaSet", "StatefulSet", "DaemonSet", "Job", "CronJob")


def _is_made_set(raw: Raw) -> bool:
    """Whether it is a ReplicaSet of a Deployment."""
    return raw["kind"] == "ReplicaSet" and bool(raw["metadata"].get("ownerReferences"))


def _stripped(dump: list[Raw]) -> list[Raw]:
    stripper = Stripper()
    return [stripper.strip(raw) for raw in dump if raw["kind"] not in ("Event", "Lease")]


DUMPS: dict[str, Callable[[list[Raw]], list[Raw]]] = {
    "everything": lambda dump: dump,
    "a snapshot": _stripped,
    "without ReplicaSets of Deployments": lambda d: [raw for raw in d if not _is_made_set(raw)],
    "without Deployments": lambda d: [raw for raw in d if raw["kind"] != "Deployment"],
    "without owners": lambda d: [raw for raw in d if raw["kind"] not in OWNERS],
}


def _places(objects: list[Raw]) -> dict[str, tuple[str, str]]:
    """The nodes of pods that have not ended, and the UIDs by which they are the same pods."""
    return {
        raw["metadata"]["name"]: (raw["spec"].get("nodeName") or "", raw["metadata"]["uid"])
        for raw in objects
        if raw["kind"] == "Pod" and raw["status"].get("phase") not in ("Succeeded", "Failed")
    }


def _hour(objects: list[Raw]) -> Result:
    documents = [Document("dump", 1, 1, raw, i) for i, raw in enumerate(objects)]
    return Simulation(read_scenario(documents), SchedulerFactory.of()).run(3600)


@pytest.mark.parametrize("seed", range(12))
def test_pods_of_a_dumped_cluster_stay_where_they_are(seed: int) -> None:
    dump = RandomCluster(seed).dump()
    before = _places(dump)
    for name, change in DUMPS.items():
        assert _places(_hour(change(dump)).objects) == before, name


def test_random_clusters_have_what_dumps_are_about() -> None:
    """Otherwise the test above tests little."""
    dumps = [RandomCluster(seed).dump() for seed in range(12)]
    kinds = {raw["kind"] for dump in dumps for raw in dump}
    assert {*OWNERS, "Reservation", "ControllerRevision", "Event", "Lease"} <= kinds
    pods = [raw for dump in dumps for raw in dump if raw["kind"] == "Pod"]
    phases = {raw["status"].get("phase") for raw in pods}
    assert {"Running", "Pending", "Succeeded"} <= phases
    assert any(
        len([raw for raw in dump if _is_made_set(raw)])
        > len([raw for raw in dump if raw["kind"] == "Deployment"])
        for dump in dumps
    ), "no Deployment was updated"
