"""Random lives with reservations that start later: after every moment the plans are checked by a plain
count over time that shares nothing with the planner."""

import random
from typing import Any

import pytest

from holdfast.api.documents import Document
from holdfast.api.times import format_time, parse_time
from holdfast.local.setup import SchedulerFactory
from holdfast.sim.scenario import read_scenario
from holdfast.sim.simulation import Simulation

Raw = dict[str, Any]
BEGIN = parse_time("2026-01-01T00:00:00Z")
CPU = 8
HOUR = 3600


def life(seed: int) -> list[Raw]:
    draw = random.Random(seed)
    nodes = draw.randint(1, 4)
    made: list[Raw] = [
        {
            "apiVersion": "v1",
            "kind": "Node",
            "metadata": {"name": f"n{i}"},
            "status": {"allocatable": {"cpu": str(CPU), "pods": "30"}},
        }
        for i in range(nodes)
    ]
    for i in range(draw.randint(1, 6)):
        start = draw.randrange(1, 12) * HOUR // 2
        made.append(_reservation(draw, i, start))
    made += [_pod(draw, i) for i in range(draw.randint(5, 30))]
    for at in sorted(draw.sample(range(600, 6 * HOUR, 7), draw.randint(0, 3))):
        step = {"at": f"{at}s", "restart": "scheduler"}
        made.append({"apiVersion": "sim.holdfast.io/v1alpha1", "kind": "Step", **step})
    return made


def _reservation(draw: random.Random, number: int, start: int) -> Raw:
    at = draw.choice((0, draw.randrange(0, start)))
    requests = {"cpu": str(draw.randint(1, CPU))}
    return {
        "apiVersion": "scheduling.koordinator.sh/v1alpha1",
        "kind": "Reservation",
        "metadata": {
            "name": f"r{number}",
            "labels": {"koordinator.sh/priority": str(draw.randint(1, 3))},
            "annotations": {
                "sim.holdfast.io/at": f"{at}s",
                "holdfast.io/starts-at": format_time(BEGIN + start),
                "holdfast.io/lead": draw.choice(("0s", "10m", "1h")),
            },
        },
        "spec": {
            "ttl": f"{draw.randint(1, 6) * 30}m",
            "allocateOnce": draw.random() < 0.5,
            "owners": [{"labelSelector": {"matchLabels": {"app": f"owner-{draw.randint(0, 2)}"}}}],
            "template": {"spec": {"containers": [{"name": "c", "resources": {"requests": requests}}]}},
        },
    }


def _pod(draw: random.Random, number: int) -> Raw:
    annotations = {"sim.holdfast.io/at": f"{draw.randrange(0, 6 * HOUR)}s"}
    if draw.random() < 0.8:
        runs = draw.randrange(60, 3 * HOUR)
        annotations["sim.holdfast.io/runs-for"] = f"{runs}s"
        if draw.random() < 0.8:
            annotations["holdfast.io/run-estimate"] = f"{runs}s"
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": f"p{number}",
            "labels": {"app": draw.choice(("none", "owner-0", "owner-1"))},
            "annotations": annotations,
        },
        "spec": {
            "containers": [{"name": "c", "resources": {"requests": {"cpu": str(draw.randint(1, CPU))}}}]
        },
    }


class Watcher:
    """Looks at the objects after every moment."""

    def __init__(self, simulation: Simulation, restarts: frozenset[float]) -> None:
        self._simulation = simulation
        self._promised: dict[str, float] = {}
        self._planned: dict[str, str] = {}
        self._restarts = restarts
        self.kept = 0

    def __call__(self, t: float, moments: int, queued: int) -> None:
        now = BEGIN + t
        objects = list(self._simulation.world.objects.all())
        reservations = [raw for raw in objects if raw["kind"] == "Reservation"]
        for raw in reservations:
            self._follow(raw, now)
        planned = {raw["metadata"]["name"]: _planned_on(raw) for raw in reservations}
        if t in self._restarts:  # at which nothing else happens
            assert planned == self._planned, "a restart changed plans"
        self._planned = planned
        for node in {name for raw in reservations if (name := _planned_on(raw))}:
            self._count(node, objects, now)

    def _follow(self, raw: Raw, now: float) -> None:
        name, status = raw["metadata"]["name"], raw.get("status") or {}
        start = _start(raw)
        if status.get("phase") == "Pending" and start > now:
            if _condition(raw, "Feasible").get("status") == "True":
                self._promised[name] = start
            else:
                self._promised.pop(name, None)
        elif name in self._promised and start <= now:
            assert self._promised.pop(name) == start
            kept = status.get("phase") in ("Available", "Succeeded")
            assert kept, f"{name} was planned for certain: {status}"
            self.kept += 1

    def _count(self, node: str, objects: list[Raw], now: float) -> None:
        plans = [raw for raw in objects if _planned_on(raw) == node and _is_certain(raw)]
        for at in sorted(_start(raw) for raw in plans):
            taken = sum(_cpu(raw) for raw in plans if _start(raw) <= at < _end(raw))
            taken += sum(_left_at(raw, node, at) for raw in objects if raw["kind"] == "Reservation")
            taken += sum(_used_at(raw, node, at, now) for raw in objects if raw["kind"] == "Pod")
            assert taken <= CPU, f"{taken} cpu of {CPU} are promised on {node} at {format_time(at)}"


def _condition(raw: Raw, kind: str) -> Raw:
    conditions: list[Raw] = (raw.get("status") or {}).get("conditions") or []
    return next((each for each in conditions if each["type"] == kind), {})


def _planned_on(raw: Raw) -> str:
    if raw["kind"] != "Reservation" or _condition(raw, "Planned").get("status") != "True":
        return ""
    return str(raw["status"].get("nodeName") or "")


def _is_certain(raw: Raw) -> bool:
    return _condition(raw, "Feasible").get("status") == "True"


def _start(raw: Raw) -> float:
    return parse_time(raw["metadata"]["annotations"]["holdfast.io/starts-at"])


def _end(raw: Raw) -> float:
    return _start(raw) + int(raw["spec"]["ttl"].rstrip("m")) * 60


def _cpu(raw: Raw) -> int:
    spec = raw["spec"]["template"]["spec"] if raw["kind"] == "Reservation" else raw["spec"]
    return int(spec["containers"][0]["resources"]["requests"]["cpu"])


def _left_at(raw: Raw, node: str, at: float) -> int:
    status = raw.get("status") or {}
    if status.get("phase") not in ("Available", "Waiting") or status.get("nodeName") != node:
        return 0
    allocated = int((status.get("allocated") or {}).get("cpu", "0"))
    return max(0, _cpu(raw) - allocated) if at < _end(raw) else 0


def _used_at(raw: Raw, node: str, at: float, now: float) -> int:
    status = raw.get("status") or {}
    if raw["spec"].get("nodeName") != node or status.get("phase") in ("Succeeded", "Failed"):
        return 0
    estimate = raw["metadata"]["annotations"].get("holdfast.io/run-estimate")
    started = status.get("startTime")
    if estimate and started:
        end = parse_time(started) + int(estimate.rstrip("s"))
        if now < end <= at:
            return 0
    return _cpu(raw)


@pytest.mark.parametrize("seed", range(60))
def test_nothing_is_promised_twice_and_certain_plans_are_kept(seed: int) -> None:
    made = life(seed)
    times = [raw["metadata"]["annotations"]["sim.holdfast.io/at"] for raw in made if _is_timed(raw)]
    restarts = {raw["at"] for raw in made if raw["kind"] == "Step"} - set(times)
    documents = [Document("life", i, i, raw) for i, raw in enumerate(made)]
    simulation = Simulation(read_scenario(documents), SchedulerFactory.of())
    alone = frozenset(float(at.rstrip("s")) for at in restarts)
    simulation.run(12.0 * HOUR, Watcher(simulation, alone))


def _is_timed(raw: Raw) -> bool:
    return "sim.holdfast.io/at" in ((raw.get("metadata") or {}).get("annotations") or {})
