"""A cluster at rest, dumped and simulated for an hour, keeps its pods where they are."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from harness.objects import node, pod
from holdfast.api.documents import Document
from holdfast.api.names import DEVICE_ALLOCATED, SIM_API, SIM_PREFIX
from holdfast.local.setup import SchedulerFactory
from holdfast.sim.scenario import read_scenario
from holdfast.sim.scenario_actions import Scenario
from holdfast.sim.simulation import Result, Simulation
from holdfast.snapshot.stripping import Stripper
from mixtures.life import make_life
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
    return Simulation(_scenario(objects), SchedulerFactory.of()).run(3600)


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


@pytest.mark.parametrize("seed", [0, 1, 3, 5])
def test_mixtures_of_all_features_stay_as_they_are(seed: int) -> None:
    """Gangs, queues, reservations and holds in any phase, GPUs, NUMA nodes, volumes, allocated claims;
    two hours after the last change."""
    life = make_life(seed, claims=bool(seed % 2))
    setup = SchedulerFactory.of(life.config)
    objects = [raw for raw in life.documents if raw["apiVersion"] != SIM_API]
    lived = Simulation(_scenario(objects), setup).run(life.until + 7200)
    dump: list[Raw] = json.loads(msgspec.json.encode(lived.objects))
    for raw in dump:
        annotations = raw["metadata"].get("annotations") or {}
        for key in [key for key in annotations if key.startswith(SIM_PREFIX)]:
            del annotations[key]
    again = Simulation(_scenario(dump), setup).run(3600)
    assert _places(again.objects) == _places(dump)
    assert _allocations(again.objects) == _allocations(dump)


def _scenario(objects: list[Raw]) -> Scenario:
    return read_scenario([Document("dump", 1, 1, raw, i) for i, raw in enumerate(objects)])


def _allocations(objects: list[Raw]) -> dict[str, Any]:
    """The devices of claims and of pods."""
    return {
        raw["metadata"]["uid"]: (
            (raw.get("status") or {}).get("allocation"),
            (raw["metadata"].get("annotations") or {}).get(DEVICE_ALLOCATED),
        )
        for raw in objects
        if raw["kind"] in ("Pod", "ResourceClaim")
        and (raw.get("status") or {}).get("phase") not in ("Succeeded", "Failed")
    }


def _pod(name: str, phase: str = "Running", **metadata: Any) -> Raw:
    named = {"name": name, "uid": f"u-{name}", "resourceVersion": "2", **metadata}
    spec = {"nodeName": "n1", "containers": [{"name": "c", "image": "i"}]}
    status = {"phase": phase, "startTime": "2026-03-01T00:00:10Z"}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": named, "spec": spec, "status": status}


def _by(api_version: str, kind: str) -> list[Raw]:
    return [{"apiVersion": api_version, "kind": kind, "name": "o", "uid": "o-1", "controller": True}]


def test_pods_without_a_known_owner_stay_and_terminating_ones_end() -> None:
    ends: Raw = {"deletionTimestamp": "2026-03-02T00:00:20Z", "deletionGracePeriodSeconds": 30}
    mirrored = {"kubernetes.io/config.mirror": "x"}
    amounts = {"cpu": "4", "memory": "8Gi", "pods": "20"}
    objects: list[Raw] = [
        {
            "apiVersion": "v1",
            "kind": "Node",
            "metadata": {"name": "n1", "uid": "n-1"},
            "status": {"allocatable": amounts},
        },
        _pod("mirror", annotations=mirrored, ownerReferences=_by("v1", "Node")),
        _pod("of-a-workflow", ownerReferences=_by("argoproj.io/v1alpha1", "Workflow")),
        _pod("of-a-job-set", ownerReferences=_by("jobset.x-k8s.io/v1alpha2", "JobSet")),
        _pod("of-a-lost-set", ownerReferences=_by("apps/v1", "ReplicaSet")),
        _pod("alone"),
        _pod("done", "Succeeded"),
        _pod("failed", "Failed"),
        _pod("terminating", **ends),
        _pod("terminating-with-finalizer", finalizers=["example.com/x"], **ends),
        {"apiVersion": "argoproj.io/v1alpha1", "kind": "Workflow", "metadata": {"name": "o"}},
    ]
    result = _hour(objects)
    assert {
        raw["metadata"]["name"]: raw["status"]["phase"]
        for raw in result.objects
        if raw["kind"] == "Pod"
    } == {
        "mirror": "Running",
        "of-a-workflow": "Running",
        "of-a-job-set": "Running",
        "of-a-lost-set": "Running",
        "alone": "Running",
        "done": "Succeeded",
        "failed": "Failed",
        "terminating-with-finalizer": "Failed",
    }


@pytest.mark.parametrize("first", ["Node", "Pod"])
def test_ties_do_not_depend_on_the_order_of_kinds_in_a_dump(first: str) -> None:
    """`kubectl get pods,nodes` lists the pods first, and here the second node in the first of them."""
    nodes = [node("n1"), node("n2")]
    pods = [pod("a", nodeName="n2"), pod("b", nodeName="n1"), pod("new")]
    result = _hour([*nodes, *pods] if first == "Node" else [*pods, *nodes])
    (bound,) = (raw for raw in result.objects if raw["metadata"]["name"] == "new")
    assert bound["spec"]["nodeName"] == "n1"
