"""A month of mixed load with a nightly window: missed starts, evictions and utilisation.

    python examples/calendar/month.py scenario Backfill > month.json
    holdfast simulate month.json -o json --until 744h > result.json
    python examples/calendar/month.py figures result.json

`scenario POLICY ERROR NODES DAYS SEED`: POLICY is None (no reservation, the nightly pods come all the
same), Backfill, Drain or Preempt. ERROR is the standard deviation of the logarithm of run time over
estimate: 0 for exact estimates, 0.7 for estimates that are wrong by a factor of two. On average jobs
run as long as they say.

Jobs request a quarter or half of a node for half an hour to eight hours and arrive at random, enough to
keep 95 % of the cluster busy together with the nightly pods: one for each of a quarter of the nodes,
from 22:00 on, for four hours.
"""

import json
import math
import random
import sys
from pathlib import Path
from typing import Any

LOAD = 0.95
WINDOW_SHARE, WINDOW_HOUR, WINDOW_HOURS = 0.25, 22, 4
NODE_CPU = 16
Raw = dict[str, Any]


def scenario(
    policy: str = "Backfill", error: float = 0.0, nodes: int = 20, days: int = 30, seed: int = 1
) -> list[Raw]:
    draw = random.Random(seed)
    window = round(nodes * WINDOW_SHARE)
    made: list[Raw] = [_node(i) for i in range(nodes)]
    if policy != "None":
        made += [_schedule(i, policy) for i in range(window)]
    nightly = window * NODE_CPU * WINDOW_HOURS / 24
    per_hour = (LOAD * NODE_CPU * nodes - nightly) / (6 * 4.25)  # six cores for 4.25 hours, on average
    t, number = 0.0, 0
    while (t := t + draw.expovariate(per_hour)) < days * 24:
        estimate = draw.uniform(0.5, 8)
        runs = estimate * math.exp(draw.gauss(-error * error / 2, error)) if error else estimate
        cpu = draw.choice((NODE_CPU // 4, NODE_CPU // 2))
        made.append(_pod(f"job-{number}", cpu, t, runs, estimate))
        number += 1
    for day in range(days):
        start = day * 24 + WINDOW_HOUR
        if start + WINDOW_HOURS <= days * 24:
            made += [
                _pod(
                    f"nightly-{day}-{i}",
                    NODE_CPU,
                    start + 1 / 60,
                    WINDOW_HOURS - 0.1,
                    None,
                    f"nightly-{i}",
                )
                for i in range(window)
            ]
    return made


def _node(number: int) -> Raw:
    allocatable = {"cpu": str(NODE_CPU), "memory": "64Gi", "pods": "110"}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": f"node-{number:03}"},
        "status": {"allocatable": allocatable},
    }


def _schedule(number: int, policy: str) -> Raw:
    resources = {"requests": {"cpu": str(NODE_CPU)}}
    template = {"spec": {"priority": 1000, "containers": [{"name": "main", "resources": resources}]}}
    owner = {"labelSelector": {"matchLabels": {"app": f"nightly-{number}"}}}
    return {
        "apiVersion": "scheduling.holdfast.io/v1alpha1",
        "kind": "ReservationSchedule",
        "metadata": {"name": f"nightly-{number}"},
        "spec": {
            "schedule": f"0 {WINDOW_HOUR} * * *",
            "duration": f"{WINDOW_HOURS}h",
            "lead": "1h",
            "beforeStart": policy,
            "historyLimit": 1000,
            "template": {"spec": {"allocateOnce": False, "owners": [owner], "template": template}},
        },
    }


def _pod(
    name: str, cpu: int, at: float, runs: float, estimate: float | None, app: str = "batch"
) -> Raw:
    annotations = {"sim.holdfast.io/at": _duration(at), "sim.holdfast.io/runs-for": _duration(runs)}
    if estimate is not None:
        annotations["holdfast.io/run-estimate"] = _duration(estimate)
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "labels": {"app": app}, "annotations": annotations},
        "spec": {"containers": [{"name": "main", "resources": {"requests": {"cpu": str(cpu)}}}]},
    }


def _duration(hours: float) -> str:
    return f"{round(hours * 3600)}s"


def figures(result: Raw) -> Raw:
    """Missed starts, evictions, and the share of the cluster that running pods use."""
    cpu = {}
    nodes = 0
    for raw in result["objects"]:
        if raw["kind"] == "Pod":
            containers = raw["spec"]["containers"]
            cpu[raw["metadata"]["name"]] = int(containers[0]["resources"]["requests"]["cpu"])
        nodes += raw["kind"] == "Node"
    begun: dict[str, float] = {}
    used, evicted, windows, late, missed = 0.0, 0, 0, 0.0, 0
    waits: list[float] = []
    created: dict[str, float] = {}
    for entry in result["timeline"]:
        kind, _, name = entry["object"].partition("/")
        name = name.rpartition("/")[2]
        t, event = entry["t"], entry["event"]
        if kind == "Pod":
            if event == "Created":
                created[name] = t
            elif event == "Bound":
                begun[name] = t
                waits.append(t - created.get(name, t))
            elif event in ("Succeeded", "Failed", "Evicted", "Deleted", "Preempted") and name in begun:
                used += (t - begun.pop(name)) * cpu.get(name, 0)
                evicted += event == "Evicted"
        elif kind == "Reservation" and event == "Available" and name.startswith("nightly"):
            windows += 1
            start = int(name.rpartition("-")[2]) * 60 - 1767225600
            missed += t > start + 60
            late = max(late, t - start)
    end = result["end"]
    used += sum((end - t) * cpu.get(name, 0) for name, t in begun.items())
    return {
        "windows": windows,
        "missed starts": missed,
        "latest start (s)": round(late),
        "evictions": evicted,
        "utilisation (%)": round(100 * used / (end * nodes * NODE_CPU), 2),
        "mean wait (h)": round(sum(waits) / len(waits) / 3600, 2) if waits else 0,
    }


def main() -> None:
    command, *rest = sys.argv[1:]
    if command == "scenario":
        kinds = (str, float, int, int, int)
        made = scenario(*(kind(text) for kind, text in zip(kinds, rest, strict=False)))
        print(json.dumps({"apiVersion": "v1", "kind": "List", "items": made}))
    else:
        print(json.dumps(figures(json.loads(Path(rest[0]).read_text())), indent=2))


if __name__ == "__main__":
    main()
