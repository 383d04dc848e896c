"""A scheduler that knows 5,000 nodes and 50,000 pods, and its dashboard in a thread."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from holdfast.api.decode import decode
from holdfast.local.setup import SchedulerFactory
from holdfast.scheduler.cluster.events import Added, Deleted, Updated
from holdfast.scheduler.scheduler import Scheduler
from holdfast.web.dashboard import serve_dashboard
from holdfast.web.live_view import WatchedScheduler
from web.viewed_cluster import reservation

NODES, PODS_PER_NODE, RESERVATIONS, PENDING = 5000, 10, 500, 2000
NOW = 1_800_000_000.0


def large_scheduler(
    nodes: int = NODES, pods: int = PODS_PER_NODE, reservations: int = RESERVATIONS, pending: int = 0
) -> Scheduler:
    scheduler = SchedulerFactory.of().scheduler()
    for number in range(nodes):
        scheduler.feed(Added(decode(node(number))), NOW)
    for number in range(reservations):
        raw = reservation(f"r-{number}", "2", allocateOnce=False)
        raw["metadata"] |= {"uid": f"r{number}", "creationTimestamp": "2027-01-15T07:00:00Z"}
        raw["spec"]["ttl"] = f"{1 + number % 48}h"
        raw["status"] = {
            "phase": "Available",
            "nodeName": f"node-{number * 7 % nodes}",
            "allocatable": {"cpu": "2", "memory": "1Gi"},
            "conditions": [
                {"type": kind, "status": "True", "lastTransitionTime": "2027-01-15T07:30:00Z"}
                for kind in ("Scheduled", "Ready")
            ],
        }
        scheduler.feed(Added(decode(raw)), NOW)
    for number in range(nodes * pods):
        scheduler.feed(Added(decode(pod(number, f"node-{number % nodes}"))), NOW)
    for number in range(pending):
        scheduler.feed(Added(decode(pod(10**6 + number, "", cpu=f"{1000 + number % 7}"))), NOW)
    scheduler.round(NOW)
    return scheduler


def node(number: int, cpu: str = "32") -> dict[str, Any]:
    amounts = {"cpu": cpu, "memory": "128Gi", "pods": "110"}
    if number % 4 == 0:
        amounts["nvidia.com/gpu"] = "8"
    labels = {
        "kubernetes.io/hostname": f"node-{number}",
        "kubernetes.io/arch": "amd64",
        "topology.kubernetes.io/zone": f"zone-{number % 3}",
        "node.kubernetes.io/instance-type": "h100" if number % 4 == 0 else "m7",
    }
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": f"node-{number}", "uid": f"n{number}", "labels": labels},
        "spec": {"unschedulable": number % 97 == 0},
        "status": {"allocatable": amounts},
    }


def pod(number: int, where: str, cpu: str = "") -> dict[str, Any]:
    requests = {"cpu": cpu or f"{500 + 250 * (number % 7)}m", "memory": f"{1 + number % 5}Gi"}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": f"pod-{number}",
            "namespace": f"team-{number % 20}",
            "uid": f"p{number}",
            "creationTimestamp": "2027-01-15T07:00:00Z",
        },
        "spec": {
            "nodeName": where,
            "schedulerName": "default-scheduler",
            "containers": [{"name": "c", "resources": {"requests": requests}}],
        },
        "status": {"phase": "Running" if where else "Pending"},
    }


class LargeDashboard:
    """Serves in a thread with its own event loop; `do` runs something there."""

    def __init__(self, scheduler: Scheduler) -> None:
        self.scheduler = scheduler
        self.longest = 0.0
        """The longest time for which the event loop computed without a pause, in seconds of CPU time:
        other processes of a busy machine do not count."""
        self.address = ""
        self._loop = asyncio.new_event_loop()
        self._stop = asyncio.Event()
        self._ready = threading.Event()
        self._thread = threading.Thread(target=self._loop.run_until_complete, args=[self._serve()])

    def do(self, what: Callable[[], None]) -> None:
        self._loop.call_soon_threadsafe(what)

    def later(self, seconds: float, what: Callable[[], None]) -> None:
        self._loop.call_soon_threadsafe(self._loop.call_later, seconds, what)

    def change_pods(self, numbers: range) -> None:
        """Pods end, and others come to other nodes."""
        for number in numbers:
            self.scheduler.feed(Deleted(decode(pod(number, f"node-{number % NODES}"))), NOW)
            after = pod(10**7 + number, f"node-{(number * 3) % NODES}")
            self.scheduler.feed(Added(decode(after)), NOW)

    def resize_node(self, number: int, cpu: str = "64") -> None:
        self.scheduler.feed(Updated(decode(node(number, cpu=cpu))), NOW)

    def start(self) -> None:
        self._thread.start()
        assert self._ready.wait(60)

    def stop(self) -> None:
        self.do(self._stop.set)
        self._thread.join(30)
        self._loop.close()

    async def _serve(self) -> None:
        watched = WatchedScheduler("5,000 nodes", lambda: NOW)
        watched.attach(self.scheduler)
        served = await serve_dashboard(watched, None, 0)
        self.address = served.address
        watch = asyncio.create_task(self._watch())
        self._ready.set()
        await self._stop.wait()
        watch.cancel()
        await asyncio.gather(watch, return_exceptions=True)
        await served.close()

    async def _watch(self) -> None:
        while True:
            before = time.thread_time()
            await asyncio.sleep(0.001)
            self.longest = max(self.longest, time.thread_time() - before)


@contextmanager
def large_dashboard(scheduler: Scheduler) -> Iterator[LargeDashboard]:
    served = LargeDashboard(scheduler)
    served.start()
    try:
        yield served
    finally:
        served.stop()
