"""A synthetic day: pods of jobs that arrive more by day than by night, in several shapes; services;
gangs; nodes that are drained, removed and added.

    python -m sim.replay.day /tmp/day --nodes 500 --pods 20000 [--own-owners]
"""

from __future__ import annotations

import argparse
import math
import random
import time
from pathlib import Path
from typing import Any

from sim.replay.recorded_simulation import record_simulation

Raw = dict[str, Any]

DAY = 86400.0


def day_objects(
    nodes: int, pods: int, seed: int = 1, load: float = 0.9, *, own_owners: bool = False
) -> list[Raw]:
    """About `load` of the capacity is asked for on average; by day it is more than all of it. Jobs have
    one of 40 owners, or each an owner of its own, as with one Job per pod."""
    rng = random.Random(seed)
    found: list[Raw] = [_node(i) for i in range(nodes)]
    found += [
        _pod(f"agent-{i}", 0.0, None, cpu=1, owner=("DaemonSet", "agent"), node=f"n{i}")
        for i in range(nodes)
    ]
    services = pods // 10
    found += [
        _pod(f"web-{i}", rng.uniform(0, 60), None, cpu=2, owner=("ReplicaSet", f"web-{i % 20}"))
        for i in range(services)
    ]
    jobs = pods - services - nodes
    shapes = [rng.choice([1, 2, 4, 8, 16]) for _ in range(40)]
    mean_cpu = sum(shapes) / len(shapes)
    free = nodes * 31 - services * 2
    mean = load * free * DAY / (jobs * mean_cpu)
    for i in range(jobs):
        kind = rng.randrange(40)
        runs_for = rng.lognormvariate(math.log(mean) - 0.5, 1.0)
        priority = 100 if kind % 10 == 0 else 0
        found.append(
            _pod(
                f"job-{i}",
                _arrival(rng),
                max(10.0, runs_for),
                cpu=shapes[kind],
                owner=("Job", f"job-{i if own_owners else kind}"),
                priority=priority,
            )
        )
    return found


def _arrival(rng: random.Random) -> float:
    """Twice as many at noon as at midnight."""
    while True:
        t = rng.uniform(0, DAY)
        if rng.random() < (1.5 - 0.5 * math.cos(2 * math.pi * t / DAY)) / 2:
            return t


def _node(i: int) -> Raw:
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": f"n{i}", "labels": {"topology.kubernetes.io/zone": f"z{i % 3}"}},
        "status": {"allocatable": {"cpu": "32", "memory": "128Gi", "pods": "110"}},
    }


def _pod(
    name: str,
    at: float,
    runs_for: float | None,
    *,
    cpu: int,
    owner: tuple[str, str],
    node: str = "",
    priority: int = 0,
) -> Raw:
    kind, owner_name = owner
    annotations = {"sim.holdfast.io/at": f"{at:.0f}s"}
    if runs_for is not None:
        annotations["sim.holdfast.io/runs-for"] = f"{runs_for:.0f}s"
    api = "batch/v1" if kind == "Job" else "apps/v1"
    reference = {"apiVersion": api, "kind": kind, "name": owner_name, "uid": owner_name}
    requests = {"cpu": str(cpu), "memory": f"{cpu * 3}Gi"}
    spec: Raw = {"containers": [{"name": "c", "image": "app", "resources": {"requests": requests}}]}
    if priority:
        spec["priority"] = priority
    if node:
        term = {"matchFields": [{"key": "metadata.name", "operator": "In", "values": [node]}]}
        required = {"nodeSelectorTerms": [term]}
        spec["affinity"] = {
            "nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": required}
        }
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": name,
            "namespace": "default",
            "labels": {"app": owner_name},
            "annotations": annotations,
            "ownerReferences": [{**reference, "controller": True}],
        },
        "spec": spec,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--nodes", type=int, default=500)
    parser.add_argument("--pods", type=int, default=20_000)
    parser.add_argument("--load", type=float, default=0.9)
    parser.add_argument("--own-owners", action="store_true", help="each job is of its own owner")
    given = parser.parse_args()
    begin = time.process_time()
    objects = day_objects(given.nodes, given.pods, load=given.load, own_owners=given.own_owners)
    result = record_simulation(objects, given.folder, DAY)
    size = sum(each.stat().st_size for each in given.folder.iterdir())
    spent, wait = time.process_time() - begin, result.summary["wait"]
    print(f"{spent:.1f} s of CPU time, {size / 1e6:.1f} MB, {wait}")


if __name__ == "__main__":
    main()
