"""Whatever happens to thousands of objects at once happens in small steps, between which requests are
answered."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from itertools import pairwise

import pytest

from harness.embedded_cluster import SteppedCluster
from holdfast.local.namespace_controller import GRACE
from holdfast.local.node_objects import new_node
from holdfast.local.setup import SchedulerFactory
from holdfast.local.store import Key, node_key
from holdfast.scheduler.actions.reserve import _AT_A_TIME
from holdfast.scheduler.cluster.decisions import CreateReservation
from holdfast.scheduler.framework.config import API_VERSION, KIND

MANY = 300
A_STEP = 5
"""Writes that one step may take: a pod is marked and deleted, and an event is recorded."""


def pods(it: SteppedCluster, **more: object) -> None:
    for number in range(MANY):
        it.cluster.world.objects.create(
            {
                "apiVersion": "v1",
                "kind": "Pod",
                "metadata": {"name": f"p{number}", "namespace": "default", **more},
                "spec": {"nodeName": "n", "containers": [{"name": "c", "image": "i"}]},
                "status": {"phase": "Pending"},
            }
        )
    it.settle()


def a_namespace_goes(it: SteppedCluster) -> None:
    pods(it)
    it.store.create(
        Key("", "Namespace", "", "default"),
        {
            "apiVersion": "v1",
            "kind": "Namespace",
            "metadata": {
                "name": "default",
                "uid": "u",
                "deletionTimestamp": "2026-01-01T00:00:00Z",
            },
        },
    )
    it.clock.t += GRACE


def a_node_goes(it: SteppedCluster) -> None:
    pods(it)
    it.store.delete(node_key("n"))


def a_node_is_tainted(it: SteppedCluster) -> None:
    pods(it)
    node = it.store.get(node_key("n"))
    assert node is not None
    taint = {"key": "k", "effect": "NoExecute"}
    it.store.update(node_key("n"), {**node, "spec": {**node["spec"], "taints": [taint]}})


def pods_end(it: SteppedCluster) -> None:
    pods(it, annotations={"sim.holdfast.io/runs-for": "60s"})
    it.clock.t += 61


def events_expire(it: SteppedCluster) -> None:
    for number in range(MANY):
        it.cluster.world.objects.create(
            {
                "apiVersion": "v1",
                "kind": "Event",
                "metadata": {"name": f"e{number}", "namespace": "default"},
                "lastTimestamp": "2025-01-01T00:00:00Z",
            }
        )
    it.clock.t += 61


def claims_are_bound(it: SteppedCluster) -> None:
    objects = it.cluster.world.objects
    objects.create(
        {
            "apiVersion": "storage.k8s.io/v1",
            "kind": "StorageClass",
            "metadata": {"name": "fast"},
            "provisioner": "example.io/csi",
        }
    )
    for number in range(MANY):
        objects.create(
            {
                "apiVersion": "v1",
                "kind": "PersistentVolumeClaim",
                "metadata": {"name": f"c{number}", "namespace": "default"},
                "spec": {
                    "storageClassName": "fast",
                    "accessModes": ["ReadWriteOnce"],
                    "resources": {"requests": {"storage": "1Gi"}},
                },
            }
        )


@pytest.mark.parametrize(
    "happens",
    [a_namespace_goes, a_node_goes, a_node_is_tainted, pods_end, events_expire, claims_are_bound],
)
def test_what_happens_to_many_happens_in_small_steps(happens: Callable[[SteppedCluster], None]) -> None:
    it = SteppedCluster()
    it.create_node("n")
    happens(it)
    writes = []
    before = first = it.store.revision
    for work in it.cluster.world.steps():
        assert work is None
        writes.append(it.store.revision - before)
        before = it.store.revision
    assert before - first >= MANY, "nothing happened"
    assert max(writes) <= A_STEP


def test_kubelets_renew_their_leases_one_after_the_other() -> None:
    it = SteppedCluster()
    for number in range(MANY):
        it.cluster.world.objects.create(new_node(number))
    it.settle()
    it.clock.t += 10
    writes = []
    before = first = it.store.revision
    for _ in it.cluster.world.steps():
        writes.append(it.store.revision - before)
        before = it.store.revision
    assert before > first, "no kubelet has reported"
    assert max(writes) <= A_STEP


def test_an_object_deleted_between_two_steps_is_ignored() -> None:
    """A client deletes all pods of a node that has gone, while they are being deleted."""
    it = SteppedCluster()
    it.create_node("n")
    pods(it)
    it.store.delete(node_key("n"))
    steps = it.cluster.world.steps()
    next(steps)
    for key in list(it.store.keys_in("default")):
        if key.kind == "Pod":
            it.store.delete(key)
    for _ in steps:
        pass
    it.settle()
    assert it.store.count("", "Pod") == 0


def test_a_long_step_does_not_starve_other_tasks(monkeypatch: pytest.MonkeyPatch) -> None:
    """A step takes a millisecond here, and a turn lasts five."""
    it = SteppedCluster()
    it.create_node("n")
    pods(it)
    it.store.delete(node_key("n"))
    now = 0.0

    def tick() -> float:
        nonlocal now
        now += 0.001
        return now

    monkeypatch.setattr("holdfast.local.cluster_loop.time.perf_counter", tick)
    seen = [it.store.revision]

    async def story() -> None:
        async def look() -> None:
            while True:
                seen.append(it.store.revision)
                await asyncio.sleep(0)

        looking = asyncio.create_task(look())
        await it.cluster.quiet()
        looking.cancel()

    asyncio.run(story())
    assert seen[-1] - seen[0] >= MANY
    assert max(b - a for a, b in pairwise(seen)) <= 10 * A_STEP


REPLICA_SETS = ("apps", "ReplicaSet", "default")


def a_replica_set(it: SteppedCluster, replicas: int) -> Key:
    key = Key(*REPLICA_SETS, "many")
    it.store.create(
        key,
        {
            "apiVersion": "apps/v1",
            "kind": "ReplicaSet",
            "metadata": {"name": "many", "namespace": "default", "uid": "u"},
            "spec": {
                "replicas": replicas,
                "selector": {"matchLabels": {"a": "b"}},
                "template": {
                    "metadata": {"labels": {"a": "b"}},
                    "spec": {"containers": [{"name": "c", "image": "i"}]},
                },
            },
        },
    )
    return key


def test_a_workload_of_many_pods_is_reconciled_in_a_thread() -> None:
    it = SteppedCluster()
    key = a_replica_set(it, 800)
    beside = {work for work in it.cluster.world.steps() if work is not None}
    assert not beside, "there are no pods yet"
    it.settle()
    assert it.store.count("", "Pod") == 800
    found = it.store.get(key)
    assert found is not None
    it.store.update(key, {**found, "spec": {**found["spec"], "replicas": 801}})
    threads = []
    for work in it.cluster.world.steps():
        if work is not None:
            thread = threading.Thread(target=work)
            thread.start()
            thread.join()
            threads.append(thread)
    assert threads
    it.settle()
    assert it.store.count("", "Pod") == 801


def test_a_daemon_set_looks_at_many_nodes_beside_the_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("holdfast.local.workloads.component._MANY_NODES", 2)
    it = SteppedCluster()
    for number in range(3):
        it.create_node(f"n{number}")
    labels = {"a": "b"}
    it.store.create(
        Key("apps", "DaemonSet", "default", "d"),
        {
            "apiVersion": "apps/v1",
            "kind": "DaemonSet",
            "metadata": {"name": "d", "namespace": "default", "uid": "u"},
            "spec": {
                "selector": {"matchLabels": labels},
                "template": {
                    "metadata": {"labels": labels},
                    "spec": {"containers": [{"name": "c", "image": "i"}]},
                },
            },
        },
    )
    beside = 0
    for work in it.cluster.world.steps():
        if work is not None:
            work()
            beside += 1
    assert beside
    assert it.store.count("", "Pod") == 3


def test_a_workload_with_a_large_template_is_reconciled_in_a_thread() -> None:
    it = SteppedCluster()
    labels = {"a": "b"}
    env = [{"name": "A", "value": "x" * 70_000}]
    key = Key("apps", "Deployment", "default", "large")
    it.store.create(
        key,
        {
            "apiVersion": "apps/v1",
            "kind": "Deployment",
            "metadata": {"name": "large", "namespace": "default", "uid": "u"},
            "spec": {
                "replicas": 1,
                "selector": {"matchLabels": labels},
                "template": {
                    "metadata": {"labels": labels},
                    "spec": {"containers": [{"name": "c", "image": "i", "env": env}]},
                },
            },
        },
    )
    beside = 0
    for work in it.cluster.world.steps():
        if work is not None:
            work()
            beside += 1
    assert beside
    it.settle()
    assert it.store.count("", "Pod") == 1


def test_what_a_client_writes_while_a_controller_acts_is_kept() -> None:
    """Its pods are made one after the other, and its status is written when all are."""
    it = SteppedCluster()
    key = a_replica_set(it, 50)
    steps = it.cluster.world.steps()
    while it.store.count("", "Pod") < 10:
        next(steps)
    found = it.store.get(key)
    assert found is not None
    metadata = {**found["metadata"], "labels": {"mine": "yes"}}
    spec = {**found["spec"], "replicas": 20}
    it.store.update(key, {**found, "metadata": metadata, "spec": spec})
    for _ in steps:
        pass
    it.settle()
    after = it.store.get(key)
    assert after is not None
    assert after["metadata"]["labels"] == {"mine": "yes"}
    assert (after["spec"]["replicas"], after["status"]["replicas"]) == (20, 20)
    assert it.store.count("", "Pod") == 20


def test_a_pod_that_ended_is_counted_though_a_client_writes_to_its_job() -> None:
    """It is counted when its finalizer is taken off, and that is written before the job's status."""
    it = SteppedCluster()
    it.create_node("n")
    key = Key("batch", "Job", "default", "j")
    it.store.create(
        key,
        {
            "apiVersion": "batch/v1",
            "kind": "Job",
            "metadata": {"name": "j", "namespace": "default", "uid": "u"},
            "spec": {
                "completions": 3,
                "parallelism": 3,
                "template": {
                    "metadata": {"annotations": {"sim.holdfast.io/runs-for": "10s"}},
                    "spec": {
                        "restartPolicy": "Never",
                        "containers": [{"name": "c", "image": "i"}],
                    },
                },
            },
        },
    )
    it.settle()
    it.clock.t += 11
    label = 0
    for _ in it.cluster.world.steps():
        found = it.store.get(key)
        assert found is not None
        label += 1
        metadata = {**found["metadata"], "labels": {"step": str(label)}}
        it.store.update(key, {**found, "metadata": metadata})
        if label > 1_000:
            break
    it.settle()
    after = it.store.get(key)
    assert after is not None
    assert after["status"]["succeeded"] == 3
    assert after["metadata"]["labels"] == {"step": str(label)}


def test_capacity_is_held_for_some_of_the_starving_pods_at_a_time() -> None:
    """All starve at the same moment; others have their turn before something is held for the last."""
    configuration = {
        "apiVersion": API_VERSION,
        "kind": KIND,
        "actions": [
            {"name": "allocate"},
            {
                "name": "reserve",
                "arguments": {"starvingJobTimeThreshold": "30s", "reservedNodePercent": 100},
            },
        ],
    }
    it = SteppedCluster(setup=SchedulerFactory.of(configuration))
    starving = 3 * _AT_A_TIME
    it.cluster.add_nodes(starving)
    for name, cpu in (("first", "8"), ("starving", "6")):
        for number in range(starving):
            it.cluster.world.objects.create(
                {
                    "apiVersion": "v1",
                    "kind": "Pod",
                    "metadata": {"name": f"{name}-{number}", "namespace": "default"},
                    "spec": {
                        "schedulerName": "holdfast-scheduler",
                        "containers": [
                            {"name": "c", "image": "i", "resources": {"requests": {"cpu": cpu}}}
                        ],
                    },
                    "status": {"phase": "Pending"},
                }
            )
        it.settle()
    it.clock.t += 31
    scheduler, held = it.cluster.world.scheduler, []
    for _ in range(100 * starving):
        decisions = scheduler.round(it.clock.t, enough=lambda: True)
        held.append(sum(isinstance(each, CreateReservation) for each in decisions))
        for each in decisions:
            it.cluster._executor.carry_out(each)
        if not scheduler.unfinished and not decisions:
            break
    assert max(held) == _AT_A_TIME
    assert sum(held) == starving
