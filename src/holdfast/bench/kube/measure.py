"""One workload with one scheduler.

Pods that are there before are put on their nodes by us, the same for every scheduler. The measured ones
are all created before the scheduler starts: what is measured is how fast a scheduler works off a
backlog, and not how fast pods can be created beside it.

Processor time is that of the scheduler's process from its start until it has nothing more to do (so
Events it writes afterwards count), less what a start on the same cluster without the measured pods
takes.
"""

import asyncio
import time

import msgspec

from holdfast.backends.kubernetes.access import find_access
from holdfast.backends.kubernetes.http.client import Client
from holdfast.bench.errors import BenchError
from holdfast.bench.kube.cluster import BenchCluster, Binds
from holdfast.bench.kube.objects import Content, content_of
from holdfast.bench.kube.schedulers import Candidate, Running
from holdfast.bench.plan import Plan

_IDLE = 0.02
"""A scheduler that takes less of a processor than this has nothing to do."""
_LOOKS = 3
_START = 10.0
_LOOK_EVERY = 1.0
_PATIENCE = 1800.0


class KubeResult(msgspec.Struct):
    workload: str
    scheduler: str
    nodes: int
    pods_before: int
    measured_pods: int
    pods_per_second: float
    seconds: float
    """From the first bind to the last."""
    seconds_to_first_bind: float
    """From the start of the process."""
    cpu_seconds_per_1000_pods: float
    start_cpu_seconds: float
    peak_memory_mb: float


async def measure(plan: Plan, candidates: list[Candidate], repeat: int) -> list[list[KubeResult]]:
    """For each run, one result per candidate. Whatever happens, the server is cleaned up after."""
    content = content_of(plan)
    access = find_access(candidates[0].kubeconfig)
    async with Client(access) as client:
        cluster = BenchCluster(client)
        await cluster.delete_all(content.namespaces)
        try:
            await cluster.create_namespaces(content.namespaces)
            await cluster.create("/api/v1/nodes", content.nodes)
            return [
                [await _one(plan, content, client, cluster, candidate) for candidate in candidates]
                for _ in range(repeat)
            ]
        finally:
            await cluster.delete_all(content.namespaces)


async def _one(
    plan: Plan, content: Content, client: Client, cluster: BenchCluster, candidate: Candidate
) -> KubeResult:
    try:
        await cluster.create_pods(content.before, candidate.scheduler_name)
        with candidate.running() as running:
            idle_cpu = await _settled(running, _START)
        await cluster.create_pods(content.measured, candidate.scheduler_name)
        names = {pod["metadata"]["name"] for pod in content.measured}
        binds = Binds(client, names)
        watching = asyncio.create_task(binds.watch(await binds.look()))
        start = time.monotonic()
        with candidate.running() as running:
            await _until_bound(watching, running)
            cpu = await _settled(running)
            memory = running.peak_memory_mb()
        first, last = min(binds.at.values()), max(binds.at.values())
        count = len(names)
        return KubeResult(
            workload=plan.name,
            scheduler=candidate.name,
            nodes=len(content.nodes),
            pods_before=len(content.before),
            measured_pods=count,
            pods_per_second=(count - 1) / (last - first) if last > first else 0.0,
            seconds=last - first,
            seconds_to_first_bind=first - start,
            cpu_seconds_per_1000_pods=max(0.0, cpu - idle_cpu) * 1000 / count,
            start_cpu_seconds=idle_cpu,
            peak_memory_mb=memory,
        )
    finally:
        await cluster.delete_pods(content.namespaces)


async def _until_bound(watching: "asyncio.Task[None]", running: Running) -> None:
    """Not longer than is reasonable, and not if the scheduler has ended."""
    try:
        async with asyncio.timeout(_PATIENCE):
            while not watching.done():
                running.check()
                await asyncio.wait([watching], timeout=_LOOK_EVERY)
            watching.result()
    except TimeoutError:
        raise BenchError(f"not every pod had its node after {_PATIENCE:.0f} s") from None
    finally:
        watching.cancel()
        await asyncio.gather(watching, return_exceptions=True)


async def _settled(running: Running, at_least: float = 0.0) -> float:
    """The processor time used so far, once hardly any is used any more, and not before so many seconds:
    at its start a scheduler may wait for the server with nothing to do."""
    loop = asyncio.get_running_loop()
    start, quiet, before = loop.time(), 0, -1.0
    while True:
        await asyncio.sleep(_LOOK_EVERY)
        now = running.cpu_seconds()
        quiet = quiet + 1 if before >= 0 and now - before <= _IDLE * _LOOK_EVERY else 0
        if quiet >= _LOOKS and loop.time() - start >= at_least:
            return now
        before = now
