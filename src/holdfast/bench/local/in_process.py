"""Measures pods created in the cluster's own process: store, scheduler and kubelets without HTTP."""

import asyncio
import gc
import time
from pathlib import Path
from typing import Any

import msgspec

from holdfast.local.cluster_loop import EmbeddedCluster
from holdfast.local.setup import SchedulerFactory
from holdfast.local.store import Store, StoreChange, open_store, pod_key
from holdfast.local.store.objects import POD
from holdfast.scheduler.assembly import GARBAGE_AFTER

_AT_ONCE = 100
"""Pods created before the cluster has its turn."""


class Measured(msgspec.Struct, frozen=True):
    how: str
    nodes: int
    pods: int
    seconds: float
    cpu_seconds: float

    @property
    def rate(self) -> float:
        return self.pods / self.seconds


def new_pod(number: int) -> dict[str, Any]:
    requests = {"cpu": "100m", "memory": "200Mi"}
    container = {"name": "main", "image": "app:1", "resources": {"requests": requests}}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": f"pod-{number:06d}", "labels": {"app": "bench"}},
        "spec": {
            "containers": [container],
            "schedulerName": "default-scheduler",
            "priority": 0,
            "restartPolicy": "Always",
            "terminationGracePeriodSeconds": 30,
        },
    }


def measure(nodes: int, pods: int, folder: Path | None) -> Measured:
    """With SQLite in the folder, or in memory."""
    return asyncio.run(_measure(nodes, pods, folder))


async def _measure(nodes: int, pods: int, folder: Path | None) -> Measured:
    gc.set_threshold(*GARBAGE_AFTER)
    store = open_store(folder) if folder is not None else Store()
    cluster = EmbeddedCluster(SchedulerFactory.of(), store)
    cluster.add_nodes(nodes)
    await cluster.quiet()
    await store.settled(store.revision)
    running = asyncio.create_task(cluster.run())
    all_bound = _when_bound(store, pods)
    start, cpu = time.perf_counter(), time.process_time()
    for number in range(pods):
        raw = {**new_pod(number), "status": {"phase": "Pending", "qosClass": "Burstable"}}
        key = pod_key("default", raw["metadata"]["name"])
        store.create(key, cluster.identity.new(key, raw))
        if number % _AT_ONCE == _AT_ONCE - 1:
            await asyncio.sleep(0)
    await all_bound
    seconds, cpu = time.perf_counter() - start, time.process_time() - cpu
    cluster.stop()
    await running
    store.close()
    how = "in process, SQLite" if folder is not None else "in process, memory"
    return Measured(how, nodes, pods, seconds, cpu)


def _when_bound(store: Store, pods: int) -> "asyncio.Future[None]":
    """Returns when that many pods have a node, durably."""
    done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    bound: set[str] = set()

    def look(change: StoreChange) -> None:
        if change.key[:2] == POD and change.after is not None and change.after["spec"].get("nodeName"):
            bound.add(change.key.name)
            if len(bound) == pods and not done.done():
                done.set_result(None)

    store.subscribe(look)
    return done
