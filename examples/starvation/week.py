"""One week of mixed load, many small jobs and a few large ones: waiting times and utilisation.

    python examples/starvation/week.py scenario > week.json
    cd examples/starvation/configs
    holdfast simulate ../../../week.json -o json --until 240h --config allocate.yaml \\
        --config node.yaml --config amount.yaml --config conservative.yaml \\
        --config easy.yaml > ../../../result.json
    cd -
    python examples/starvation/week.py compare result.json week.svg

`scenario NODES HOURS GANG LOAD SEED` generates another size or load; `compare` then takes the hours as
its last argument: `scenario 40 48 6 0.97 2`, `compare result.json week.svg 48`.

Small jobs request a quarter or half of a node for two to eight hours and arrive at random, enough to
keep the cluster busy. A large job is a gang whose pods request most of a node each. Without holds it
starts only when enough nodes happen to be empty at the same time.
"""

import json
import random
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

NODES = 200
HOURS = 168
GANG = 30
GANG_EVERY = 12
GANG_RUNS = 6
LOAD = 0.82
"""How much of the cluster small jobs would fill."""

Raw = dict[str, Any]


def scenario(
    nodes: int = NODES, hours: int = HOURS, gang: int = GANG, seed: int = 1, load: float = LOAD
) -> list[Raw]:
    rng = random.Random(seed)
    made: list[Raw] = [_node(i) for i in range(nodes)]
    per_hour = load * 16 * nodes / (6 * 5)  # six cores for five hours, on average
    t, number = 0.0, 0
    while (t := t + rng.expovariate(per_hour)) < hours:
        length = rng.uniform(2, 8)
        made.append(_pod(f"small-{number}", rng.choice(("4", "8")), t, length))
        number += 1
    for i, at in enumerate(range(GANG_EVERY // 2, hours, GANG_EVERY)):
        made.append(
            {
                "apiVersion": "scheduling.volcano.sh/v1beta1",
                "kind": "PodGroup",
                "metadata": {"name": f"big-{i}", "annotations": {"sim.holdfast.io/at": f"{at}h"}},
                "spec": {"minMember": gang},
            }
        )
        made += [_pod(f"big-{i}-{k}", "12", at, GANG_RUNS, f"big-{i}") for k in range(gang)]
    return made


def _node(number: int) -> Raw:
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": f"node-{number:03}"},
        "status": {"allocatable": {"cpu": "16", "memory": "64Gi", "pods": "110"}},
    }


def _pod(name: str, cpu: str, at: float, hours: float, group: str = "") -> Raw:
    runs = f"{round(hours * 3600)}s"
    annotations = {
        "sim.holdfast.io/at": f"{round(at * 3600)}s",
        "sim.holdfast.io/runs-for": runs,
        "holdfast.io/run-estimate": runs,
    }
    if group:
        annotations["scheduling.k8s.io/group-name"] = group
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "annotations": annotations},
        "spec": {"containers": [{"name": "main", "resources": {"requests": {"cpu": cpu}}}]},
    }


def figures(run: Raw, hours: float = HOURS) -> Raw:
    """What one run comes to."""
    created: dict[str, float] = {}
    waits: dict[str, list[float]] = {"small": [], "big": []}
    steps: list[tuple[float, float]] = []
    last = 0.0
    cpu = {
        f"Pod/default/{raw['metadata']['name']}": float(
            raw["spec"]["containers"][0]["resources"]["requests"]["cpu"]
        )
        for raw in run["objects"]
        if raw["kind"] == "Pod"
    }
    for entry in run["timeline"]:
        name, event, t = entry["object"], entry["event"], entry["t"] / 3600
        if event == "Created":
            created[name] = t
        elif event == "Bound":
            steps.append((t, cpu[name]))
            if "/small-" in name:
                waits["small"].append(t - created[name])
        elif event == "Ready" and name.startswith("PodGroup/"):
            waits["big"].append(t - created[name])
        elif event == "Succeeded" and name.startswith("Pod/"):
            steps.append((t, -cpu[name]))
            last = max(last, t)
    never = sum(name.startswith("PodGroup/") for name in created) - len(waits["big"])
    nodes = sum(raw["kind"] == "Node" for raw in run["objects"])
    usage = _usage(steps, 16.0 * nodes, hours)
    return {
        "config": str(run.get("config", "")).rpartition("/")[2].removesuffix(".yaml"),
        "big mean": _mean(waits["big"]),
        "big worst": max(waits["big"], default=0.0),
        "big never": never,
        "small mean": _mean(waits["small"]),
        "small worst": max(waits["small"], default=0.0),
        "used": 100 * _mean([share for _, share in usage]),
        "makespan": last,
        "usage": usage,
        "waits": sorted(waits["big"]),
    }


def _mean(values: list[float]) -> float:
    return sum(values) / len(values) if values else 0.0


def _usage(steps: list[tuple[float, float]], total: float, hours: float) -> list[tuple[float, float]]:
    """The share of all cores in use, hour by hour."""
    found, used, at = [], 0.0, 0
    steps.sort()
    i = 0
    while at < hours:
        area, t = 0.0, float(at)
        while i < len(steps) and steps[i][0] < at + 1:
            area += used * (steps[i][0] - t)
            t, used = steps[i][0], used + steps[i][1]
            i += 1
        area += used * (at + 1 - t)
        found.append((float(at), area / total))
        at += 1
    return found


COLUMNS = ("big mean", "big worst", "big never", "small mean", "small worst", "used", "makespan")


def table(rows: list[Raw]) -> str:
    head = ["config", *COLUMNS]
    lines = [head, *([row["config"], *(f"{row[c]:.2f}" for c in COLUMNS)] for row in rows)]
    widths = [max(len(line[i]) for line in lines) for i in range(len(head))]
    return "\n".join(
        "  ".join(cell.rjust(width) for cell, width in zip(line, widths, strict=True)) for line in lines
    )


LEFT, WIDTH, HEIGHT = 60, 820, 190


def plot(rows: list[Raw]) -> str:
    """How full the cluster was, and how long each large job waited."""
    colours = ("#888", "#c33", "#36c", "#2a2", "#a3a")
    hours = max((len(row["usage"]) for row in rows), default=0) or 1
    longest = max((wait for row in rows for wait in row["waits"]), default=0.0) or 1.0
    parts = [
        '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 900 540" font-family="sans-serif"'
        ' font-size="12"><rect width="900" height="540" fill="white"/>',
        *_grid(240, "cores in use", 100, "%", f"hours, to {hours}"),
        *_grid(490, "waits of large jobs", longest, "h", "large jobs, by how long they waited"),
    ]
    for i, row in enumerate(rows):
        colour, waits = colours[i % len(colours)], row["waits"]
        usage = [(t / hours, share) for t, share in row["usage"]]
        sorted_waits = [((k + 0.5) / len(waits), wait / longest) for k, wait in enumerate(waits)]
        parts.append(_line(usage, 240, colour))
        parts.append(_line(sorted_waits, 490, colour))
        parts.append(f'<text x="{520 + 95 * i}" y="18" fill="{colour}">{row["config"]}</text>')
    return "\n".join([*parts, "</svg>"])


def _grid(bottom: int, what: str, most: float, unit: str, along: str) -> Iterator[str]:
    yield f'<text x="{LEFT}" y="{bottom - HEIGHT - 12}" font-weight="bold">{what}</text>'
    yield f'<text x="{LEFT + WIDTH}" y="{bottom + 18}" text-anchor="end">{along}</text>'
    for quarter in range(5):
        y, amount = bottom - HEIGHT * quarter / 4, most * quarter / 4
        yield f'<path d="M{LEFT} {y}h{WIDTH}" stroke="#ddd"/>'
        yield f'<text x="{LEFT - 6}" y="{y + 4}" text-anchor="end">{amount:.0f} {unit}</text>'


def _line(points: list[tuple[float, float]], bottom: int, colour: str) -> str:
    """Through points of which both numbers are shares of the whole."""
    line = " ".join(f"{LEFT + WIDTH * x:.1f},{bottom - HEIGHT * y:.1f}" for x, y in points)
    return f'<polyline points="{line}" fill="none" stroke="{colour}" stroke-width="1.5"/>'


def main(words: list[str]) -> None:
    if words[:1] == ["scenario"]:
        sizes = [float(word) for word in words[1:]] or [NODES, HOURS, GANG, LOAD, 1]
        nodes, hours, gang, load, seed = sizes
        items = scenario(int(nodes), int(hours), int(gang), int(seed), load)
        json.dump({"kind": "List", "apiVersion": "v1", "items": items}, sys.stdout)
        return
    result = json.loads(Path(words[1]).read_text(encoding="utf-8"))
    hours = float(words[3]) if len(words) > 3 else HOURS
    rows = [figures(run, hours) for run in result.get("runs", [result])]
    print(table(rows))
    if len(words) > 2:
        Path(words[2]).write_text(plot(rows), encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])
