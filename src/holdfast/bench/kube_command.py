"""Runs `holdfast bench --mode kube`."""

import asyncio

from rich.console import Console

from holdfast.bench import kube_measure as report
from holdfast.bench.errors import BenchError
from holdfast.bench.kube_cluster import SchedulerCandidate, holdfast, kube_scheduler
from holdfast.bench.kube_measure import KubeResult, measure
from holdfast.bench.measure import this_machine
from holdfast.bench.plan import BenchPlan

DEFAULT_ROWS = (
    "SchedulingBasic",
    "TopologySpreading",
    "SchedulingPodAntiAffinity",
    "SchedulingPodAffinity",
)
DEFAULT_NODES = 1000


def run(
    plans: list[BenchPlan],
    kubeconfig: str,
    kube_scheduler_binary: str | None,
    repeat: int,
    as_json: bool,
) -> None:
    """Raises BenchError, and KubernetesError if the server is unreachable."""
    candidates = [holdfast(kubeconfig)]
    if kube_scheduler_binary:
        candidates.append(kube_scheduler(kube_scheduler_binary, kubeconfig))
    errors = Console(stderr=True, highlight=False)
    results: list[KubeResult] = []
    for plan in plans:
        with errors.status(plan.name):
            best = report.best_of(asyncio.run(_measured(plan, candidates, repeat)))
        for result in best:
            errors.print(report.progress_line(result), soft_wrap=True)
        results += best
    if as_json:
        print(report.as_json(this_machine(), results))
    else:
        report.print_results(Console(highlight=False), this_machine(), results)


async def _measured(
    plan: BenchPlan, candidates: list[SchedulerCandidate], repeat: int
) -> list[list[KubeResult]]:
    if not plan.nodes:
        raise BenchError(f"{plan.name} has no nodes")
    return await measure(plan, candidates, repeat)
