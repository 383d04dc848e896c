"""Forecasts against what then happens, in random scenarios.

A cluster gets pods, gangs and reservations at random times. At a random moment a snapshot is taken of
its objects, all pending pods are forecast from it, the simulation goes on, and the starts are compared.

    python -m sim.forecast.experiment --scenarios 300
"""

from __future__ import annotations

import argparse
import random
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from holdfast.api.documents import Document
from holdfast.api.names import SIM_RUNS_FOR
from holdfast.local.kubelet import Lifetimes
from holdfast.local.setup import SchedulerFactory
from holdfast.local.timeline import BOUND
from holdfast.sim.clock import START
from holdfast.sim.forecast.answers import StartStatus
from holdfast.sim.forecast.forecast import Forecaster, ForecastOptions
from holdfast.sim.forecast.run_times import DurationHistory, controller_in
from holdfast.sim.forecast.targets import find_targets
from holdfast.sim.scenario import read_scenario
from holdfast.sim.simulation import Simulation

Raw = dict[str, Any]

_ARRIVALS = 3600.0
_END = 20 * 86400.0
_NOT_READ = ("Event", "Lease")


@dataclass
class Comparison:
    """The forecasts of one scenario and what happened."""

    seed: int
    asked: int = 0
    within: int = 0
    off: list[str] = field(default_factory=list)
    unknown: int = 0
    widths: list[float] = field(default_factory=list)
    """Of the ranges, in relation to the wait."""
    errors: list[float] = field(default_factory=list)
    """Seconds between the expected start and the actual one."""


class RandomLifetimes(Lifetimes):
    """Log-normal run times, with a median and a spread for every owner."""

    def __init__(self, seed: int, owners: dict[str, tuple[float, float]]) -> None:
        self._seed = seed
        self._owners = owners

    def run_time(self, pod: Raw, ran: float) -> float | None:
        controller = controller_in(pod)
        assert controller is not None
        mean, deviation = self._owners[controller["name"]]
        rng = random.Random(f"{self._seed}/{pod['metadata']['name']}")
        return round(rng.lognormvariate(mean, deviation)) + 1.0

    def stop_time(self, pod: Raw, grace: float, passed: float) -> float:
        return 0.0


def scenario_objects(rng: random.Random, *, exact: bool, owners: list[str]) -> Iterator[Raw]:
    nodes = rng.randint(1, 6)
    for i in range(nodes):
        allocatable = {"cpu": str(rng.choice([4, 8, 16])), "memory": "64Gi", "pods": "20"}
        yield {
            "apiVersion": "v1",
            "kind": "Node",
            "metadata": {"name": f"n{i}"},
            "status": {"allocatable": allocatable},
        }
    for i in range(rng.randint(8, 60)):
        annotations = {"sim.holdfast.io/at": f"{rng.randint(0, int(_ARRIVALS))}s"}
        if exact:
            annotations[SIM_RUNS_FOR] = f"{rng.randint(60, 7200)}s"
        owner = rng.choice(owners)
        metadata: Raw = {"name": f"p{i}", "namespace": "default", "annotations": annotations}
        if not exact:
            reference = {"apiVersion": "batch/v1", "kind": "Job", "name": owner, "uid": owner}
            metadata["ownerReferences"] = [{**reference, "controller": True}]
        spec: Raw = {
            "containers": [
                {"name": "c", "resources": {"requests": {"cpu": str(rng.choice([1, 2, 3, 4]))}}}
            ]
        }
        if rng.random() < 0.3:
            spec["priority"] = rng.choice([0, 5, 10])
            spec["preemptionPolicy"] = "Never"
        yield {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}
    yield from _gangs(rng, exact=exact, owners=owners)
    if rng.random() < 0.4:
        yield _reservation(rng)


def _gangs(rng: random.Random, *, exact: bool, owners: list[str]) -> Iterator[Raw]:
    for g in range(rng.choice([0, 0, 1, 2])):
        at, size = rng.randint(0, int(_ARRIVALS)), rng.randint(2, 4)
        yield {
            "apiVersion": "scheduling.sigs.k8s.io/v1alpha1",
            "kind": "PodGroup",
            "metadata": {
                "name": f"g{g}",
                "namespace": "default",
                "annotations": {"sim.holdfast.io/at": f"{at}s"},
            },
            "spec": {"minMember": size},
        }
        runs, owner = rng.randint(60, 7200), rng.choice(owners)
        for i in range(size):
            annotations = {"sim.holdfast.io/at": f"{at}s"}
            if exact:
                annotations[SIM_RUNS_FOR] = f"{runs}s"
            metadata: Raw = {
                "name": f"g{g}-{i}",
                "namespace": "default",
                "labels": {"pod-group.scheduling.sigs.k8s.io": f"g{g}"},
                "annotations": annotations,
            }
            if not exact:
                reference = {"apiVersion": "batch/v1", "kind": "Job", "name": owner, "uid": owner}
                metadata["ownerReferences"] = [{**reference, "controller": True}]
            requests = {"cpu": str(rng.choice([1, 2]))}
            spec = {"containers": [{"name": "c", "resources": {"requests": requests}}]}
            yield {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}


def _reservation(rng: random.Random) -> Raw:
    requests = {"cpu": str(rng.choice([1, 2]))}
    return {
        "apiVersion": "scheduling.koordinator.sh/v1alpha1",
        "kind": "Reservation",
        "metadata": {
            "name": "r",
            "annotations": {"sim.holdfast.io/at": f"{rng.randint(0, int(_ARRIVALS))}s"},
        },
        "spec": {
            "template": {"spec": {"containers": [{"name": "c", "resources": {"requests": requests}}]}},
            "owners": [{"labelSelector": {"matchLabels": {"nobody": "yes"}}}],
            "ttl": f"{rng.randint(600, 7200)}s",
        },
    }


def compared(seed: int, *, exact: bool, samples: int = 30, runs: int = 12) -> Comparison:
    """Plays one scenario. `runs` is how many earlier runs of each owner are known."""
    rng = random.Random(seed)
    owners = ["train", "etl", "report"]
    spreads = {each: (rng.uniform(5.5, 8.0), rng.uniform(0.1, 1.0)) for each in owners}
    documents = [
        Document("x", 1, 1, raw, i)
        for i, raw in enumerate(scenario_objects(rng, exact=exact, owners=owners))
    ]
    setup = SchedulerFactory.of()
    simulation = Simulation(read_scenario(documents), setup, audit=False)
    if not exact:
        simulation.world.kubelets.lifetimes = RandomLifetimes(seed, spreads)
    simulation.begin()
    moment = float(rng.randint(int(_ARRIVALS), int(1.5 * _ARRIVALS)))
    simulation.play(moment)
    objects = [
        _as_dumped(raw) for raw in simulation.world.objects.all() if raw["kind"] not in _NOT_READ
    ]
    history = DurationHistory()
    if not exact:
        for owner, (mean, deviation) in spreads.items():
            for i in range(runs):
                history.add(_earlier(owner, i), rng.lognormvariate(mean, deviation))
    snapshot = [Document("snapshot", 1, 1, raw, i) for i, raw in enumerate(objects)]
    forecaster = Forecaster(
        snapshot, START + moment, setup, history, ForecastOptions(samples=samples, seed=seed)
    )
    report = forecaster.ask(find_targets(objects, "pod", None, "", START + moment))
    simulation.play(_END)
    bound = {
        each.object: each.t - moment
        for each in simulation.world.timeline.entries
        if each.event == BOUND
    }
    found = Comparison(seed)
    for answer in report.starts:
        actual = bound.get(answer.object)
        if answer.status is not StartStatus.EXPECTED or answer.wait is None:
            found.unknown += 1
            if actual is not None:
                found.off.append(f"{answer.object}: {answer.status}, started after {actual:g}s")
            continue
        assert isinstance(answer.wait.earliest, float)
        assert isinstance(answer.wait.expected, float)
        found.asked += 1
        latest = answer.wait.latest if isinstance(answer.wait.latest, float) else _END
        slack = 1.0 if not exact else 0.0
        if actual is not None and answer.wait.earliest - slack <= actual <= latest + slack:
            found.within += 1
        else:
            found.off.append(
                f"{answer.object}: forecast {answer.wait.earliest:g} to {latest:g}, was {actual}"
            )
        if actual:
            found.errors.append(abs(answer.wait.expected - actual))
            found.widths.append((latest - answer.wait.earliest) / max(actual, 1.0))
    return found


def _as_dumped(raw: Raw) -> Raw:
    """As `kubectl get -o json` prints it: without the annotation that says when it was created."""
    metadata = raw["metadata"]
    annotations = {
        key: value
        for key, value in (metadata.get("annotations") or {}).items()
        if key != "sim.holdfast.io/at"
    }
    return {**raw, "metadata": {**metadata, "annotations": annotations}}


def _earlier(owner: str, i: int) -> Raw:
    reference = {"apiVersion": "batch/v1", "kind": "Job", "name": owner, "controller": True}
    return {
        "metadata": {
            "name": f"{owner}-earlier-{i}",
            "namespace": "default",
            "uid": f"{owner}-{i}",
            "ownerReferences": [reference],
        }
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--scenarios", type=int, default=100)
    parser.add_argument("--from", type=int, default=0, dest="first")
    parser.add_argument("--samples", type=int, default=30)
    parser.add_argument("--runs", type=int, default=12)
    parser.add_argument("--only", choices=("exact", "random"))
    given = parser.parse_args()
    for exact in (True, False):
        if given.only and exact != (given.only == "exact"):
            continue
        begin = time.process_time()
        results = [
            compared(seed, exact=exact, samples=given.samples, runs=given.runs)
            for seed in range(given.first, given.first + given.scenarios)
        ]
        asked, within = sum(r.asked for r in results), sum(r.within for r in results)
        widths = sorted(w for r in results for w in r.widths)
        off = [f"{r.seed}: {each}" for r in results for each in r.off]
        print(
            f"{'exact' if exact else 'log-normal'}: {len(results)} scenarios, {asked} forecasts, "
            f"{within} within the range ({within / max(asked, 1):.1%}), "
            f"{sum(r.unknown for r in results)} without a time, median width "
            f"{widths[len(widths) // 2] if widths else 0:.2f} of the wait, "
            f"{time.process_time() - begin:.0f} s of CPU time"
        )
        for line in off[:20]:
            print("  ", line)


if __name__ == "__main__":
    main()
