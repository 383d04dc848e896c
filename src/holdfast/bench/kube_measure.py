"""Measures one workload with one scheduler on a real API server.

The benchmark binds existing pods itself, identically for every scheduler. All measured pods are created
before the scheduler starts: the figure is how fast a scheduler works off a backlog, not how fast pods
can be created beside it.

CPU time is that of the scheduler's process from its start until it is idle (so Events written later
count), less the CPU time of a start on the same cluster without the measured pods.
"""

import asyncio
import time

import msgspec
from rich.console import Console

from holdfast.bench.kube_cluster import (
    BenchCluster,
    Binds,
    RunningScheduler,
    SchedulerCandidate,
    holdfast,
    kube_scheduler,
)
from holdfast.bench.kube_content import Content, content_of
from holdfast.bench.measure import Machine, this_machine
from holdfast.bench.plan import BenchPlan
from holdfast.bench.report import new_table
from holdfast.bench.workload import BenchError
from holdfast.kube.client import Client
from holdfast.kube.kubeconfig import find_access

DEFAULT_ROWS = (
    "SchedulingBasic",
    "TopologySpreading",
    "SchedulingPodAntiAffinity",
    "SchedulingPodAffinity",
)
DEFAULT_NODES = 1000
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


def run(
    plans: list[BenchPlan],
    kubeconfig: str,
    kube_scheduler_binary: str | None,
    repeat: int,
    as_json: bool,
) -> None:
    """`holdfast bench --mode kube`. Raises BenchError, and KubernetesError if the server is
    unreachable."""
    candidates = [holdfast(kubeconfig)]
    if kube_scheduler_binary:
        candidates.append(kube_scheduler(kube_scheduler_binary, kubeconfig))
    errors = Console(stderr=True, highlight=False)
    results: list[KubeResult] = []
    for plan in plans:
        with errors.status(plan.name):
            best = best_of(asyncio.run(_measured(plan, candidates, repeat)))
        for result in best:
            errors.print(progress_line(result), soft_wrap=True)
        results += best
    if as_json:
        print(results_as_json(this_machine(), results))
    else:
        print_results(Console(highlight=False), this_machine(), results)


async def _measured(
    plan: BenchPlan, candidates: list[SchedulerCandidate], repeat: int
) -> list[list[KubeResult]]:
    if not plan.nodes:
        raise BenchError(f"{plan.name} has no nodes")
    return await measure(plan, candidates, repeat)


async def measure(
    plan: BenchPlan, candidates: list[SchedulerCandidate], repeat: int
) -> list[list[KubeResult]]:
    """One result per candidate for each run. The server is always cleaned up."""
    content = content_of(plan)
    access = find_access(candidates[0].kubeconfig)
    async with Client(access) as client:
        cluster = BenchCluster(client)
        await cluster.delete_all(content)
        try:
            await cluster.create_namespaces(content.namespaces)
            await cluster.create("/api/v1/nodes", content.nodes)
            await cluster.create_devices(content.devices)
            return [
                [await _one(plan, content, client, cluster, candidate) for candidate in candidates]
                for _ in range(repeat)
            ]
        finally:
            await cluster.delete_all(content)


async def _one(
    plan: BenchPlan,
    content: Content,
    client: Client,
    cluster: BenchCluster,
    candidate: SchedulerCandidate,
) -> KubeResult:
    try:
        await cluster.create_pods(content.before, content, candidate.scheduler_name)
        with candidate.running() as running:
            idle_cpu = await _settled(running, _START)
        await cluster.create_pods(content.measured, content, candidate.scheduler_name)
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
        await cluster.delete_pods(content)


async def _until_bound(watching: "asyncio.Task[None]", running: RunningScheduler) -> None:
    """Waits until all pods are bound, with a timeout, and fails if the scheduler has exited."""
    try:
        async with asyncio.timeout(_PATIENCE):
            while not watching.done():
                running.check()
                await asyncio.wait([watching], timeout=_LOOK_EVERY)
            watching.result()
    except TimeoutError:
        raise BenchError(f"not every pod was bound after {_PATIENCE:.0f} s") from None
    finally:
        watching.cancel()
        await asyncio.gather(watching, return_exceptions=True)


async def _settled(running: RunningScheduler, at_least: float = 0.0) -> float:
    """The CPU time used so far, once the process is almost idle, and not before a minimum time: a
    starting scheduler may idle while it waits for the server.
    """
    loop = asyncio.get_running_loop()
    start, quiet, before = loop.time(), 0, -1.0
    while True:
        await asyncio.sleep(_LOOK_EVERY)
        now = running.cpu_seconds()
        quiet = quiet + 1 if before >= 0 and now - before <= _IDLE * _LOOK_EVERY else 0
        if quiet >= _LOOKS and loop.time() - start >= at_least:
            return now
        before = now


# Output


def results_as_json(machine: Machine, results: list[KubeResult]) -> str:
    document = {"mode": "kube", "machine": machine, "rows": results}
    return msgspec.json.format(msgspec.json.encode(document), indent=2).decode()


def best_of(runs: list[list[KubeResult]]) -> list[KubeResult]:
    """Each scheduler's run with the highest throughput."""
    return [max(each, key=lambda result: result.pods_per_second) for each in zip(*runs, strict=True)]


def progress_line(result: KubeResult) -> str:
    return (
        f"{result.workload} by {result.scheduler}: {result.pods_per_second:,.0f} pods/s, "
        f"{result.cpu_seconds_per_1000_pods:.2f} CPU seconds per 1,000 pods"
    )


def print_results(console: Console, machine: Machine, results: list[KubeResult]) -> None:
    table = new_table(
        "workload", "scheduler", "nodes", "pods", "pods/s", "CPU s", "MB", "x pods/s", "x CPU"
    )
    others = {r.workload: r for r in results if r.scheduler != "holdfast"}
    for result in results:
        other = others.get(result.workload) if result.scheduler == "holdfast" else None
        table.add_row(
            result.workload,
            result.scheduler,
            str(result.nodes),
            str(result.measured_pods),
            f"{result.pods_per_second:.0f}",
            f"{result.cpu_seconds_per_1000_pods:.3f}",
            f"{result.peak_memory_mb:.0f}",
            _times(result.pods_per_second, other.pods_per_second) if other else "",
            _times(result.cpu_seconds_per_1000_pods, other.cpu_seconds_per_1000_pods) if other else "",
        )
    console.print(table)
    console.print(
        "pods/s: from the first bind to the last, the best run. CPU s: of the scheduler's process, per "
        "1,000 pods. MB: its peak. x: Holdfast's figure divided by kube-scheduler's.",
        highlight=False,
    )
    console.print(str(machine), highlight=False)


def _times(figure: float, other: float) -> str:
    """A ratio; a run of very few pods may be too short to measure."""
    return f"{figure / other:.2f}" if other else ""
