"""What reservations held, computed by hand, and counted a second time from the objects."""

from pathlib import Path
from typing import Any

import pytest

from harness.objects import node, pod, requesting, reservation
from harness.scenarios import Played, actions, play, step
from holdfast.local.setup import SchedulerFactory
from holdfast.sim.audit.facts import amounts, pod_facts
from holdfast.sim.scenario import read_scenario
from holdfast.sim.simulation import Result, Simulation
from holdfast.snapshot.manifests import load_files

EXAMPLES = Path(__file__).parents[3] / "examples"
HOUR = 3600


def held(result: Result | Played, resource: str = "cpu") -> dict[str, float]:
    """In core-seconds, which are easier to count than hours."""
    run = result.result if isinstance(result, Played) else result
    figures = run.summary["reservations"]["held"][resource]
    return {name: round(figures[name] * HOUR, 1) for name in ("reserved", "used", "unused")}


def owner(name: str, cpu: str, **more: Any) -> Any:
    return pod(name, cpu, labels={"app": "a"}, **more)


def test_a_reservation_that_its_owner_takes_whole() -> None:
    played = play(node("n1", 8), reservation("r", 4), owner("o", "4", at="30s"), until=60)
    figures = played.result.summary["reservations"]
    assert held(played) == {"reserved": 120, "used": 0, "unused": 120}
    assert (figures["created"], figures["used"], figures["missed"]) == (1, 1, 0)
    assert (figures["hitRate"], figures["podsBound"]) == (1.0, 1)
    assert figures["held"]["cpu"]["unusedShare"] == 1.0
    assert figures["held"]["cpu"]["capacityShare"] == round(120 / (8 * 60), 6)
    assert list(figures["kinds"]) == ["user"]


def test_a_reservation_that_is_used_in_part_and_again() -> None:
    played = play(
        node("n1", 8),
        reservation("r", 4, allocateOnce=False),
        owner("one", "1", at="10s", runs_for="20s"),
        owner("two", "3", at="40s"),
        until=60,
    )
    assert held(played) == {"reserved": 240, "used": 20 + 60, "unused": 160}
    assert played.result.summary["reservations"]["podsBound"] == 2
    assert played.result.node_usage.state("n1").held == {"cpu": 1000}


def test_a_reservation_that_expires_unused_is_a_miss() -> None:
    played = play(node("n1", 8), reservation("r", 4, ttl="30s"), reservation("s", 4), until=60)
    figures = played.result.summary["reservations"]
    assert held(played) == {"reserved": 120 + 240, "used": 0, "unused": 360}
    assert (figures["used"], figures["missed"], figures["hitRate"]) == (0, 1, 0.0)
    assert [life.end for life in played.result.node_usage.reservations.lives] == ["Expired", ""]


def test_a_reservation_without_an_outcome_has_no_hit_rate() -> None:
    figures = play(node("n1", 8), reservation("r", 4), until=60).result.summary["reservations"]
    assert figures["hitRate"] is None


def test_a_waiting_reservation_holds_what_is_idle() -> None:
    """One of four cores is idle for 15 s, then all four are held."""
    played = play(
        node("n1", 4),
        pod("before", "3", runs_for="20s"),
        reservation("r", 4, preAllocation=True, at="5s"),
        until=60,
    )
    assert held(played) == {"reserved": 220, "used": 0, "unused": 15 + 160}


def test_available_reservations_come_before_waiting_ones() -> None:
    played = play(
        node("n1", 4),
        pod("before", "2"),
        reservation("later", 2, preAllocation=True, at="10s"),
        reservation("now", 1),
        until=30,
    )
    lives = {life.name: life for life in played.result.node_usage.reservations.lives}
    assert lives["now"].unused == {"cpu": 1000}
    assert lives["later"].unused == {"cpu": 1000}  # the last idle core, of the two that it claims


def test_the_same_name_again_is_another_reservation() -> None:
    again = reservation("r", 2)
    played = play(
        node("n1", 8),
        reservation("r", 4),
        step("10s", delete={"kind": "Reservation", "name": "r"}),
        step("20s", apply=again),
        until=30,
    )
    assert held(played) == {"reserved": 40 + 20, "used": 0, "unused": 60}
    assert [life.end for life in played.result.node_usage.reservations.lives] == ["Deleted", ""]


def test_a_deleted_node_ends_its_reservations() -> None:
    gone = step("10s", delete={"kind": "Node", "name": "n1"})
    played = play(node("n1", 8), reservation("r", 4), gone, until=60)
    assert held(played) == {"reserved": 40, "used": 0, "unused": 40}


def test_a_reservation_without_a_node_reserves_nothing() -> None:
    figures = play(node("n1", 2), reservation("r", 4, ttl="30s"), until=60).result.summary
    assert figures["reservations"]["held"] == {}
    assert (figures["reservations"]["scheduled"], figures["reservations"]["missed"]) == (0, 1)


def test_kinds_are_told_apart() -> None:
    high = {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": "high"}}
    played = play(
        node("n1", 4),
        node("n2", 4),
        {**high, "value": 10},
        requesting(
            "dynamic", "2", recommendedSize={"cpu": "3"}, nodeSelector={"kubernetes.io/hostname": "n2"}
        ),
        pod("victim", "4", stops_in="10s", nodeSelector={"kubernetes.io/hostname": "n1"}),
        pod("preemptor", "4", at="5s", priorityClassName="high"),
        until=60,
    )
    kinds = played.result.summary["reservations"]["kinds"]
    assert sorted(kinds) == ["dynamic", "preemption"]
    assert kinds["dynamic"]["held"]["cpu"]["unused"] == round(60 / HOUR, 6)
    assert kinds["preemption"]["podsBound"] == 1


def test_starvation_counts_from_the_event_to_the_start() -> None:
    played = play(
        node("n1", 4),
        pod("small", "2", runs_for="100s"),
        pod("big", "4", at="10s", runs_for="10s"),
        config=actions("allocate", starvingJobTimeThreshold="30s", reservedNodePercent=100),
        until=200,
    )
    result = played.result
    assert result.summary["starvation"] == {
        "detected": True,
        "jobs": 1,
        "reserved": 1,
        "started": 1,
        "starving": 0,
        "mean": 60.0,
        "longest": 60.0,
    }
    assert result.summary["wait"]["max"] == 90.0
    assert held(played) == {"reserved": 4 * 60, "used": 0, "unused": 2 * 60}


def test_a_job_that_never_starts_starves_until_the_end() -> None:
    played = play(
        node("n1", 4),
        pod("small", "2"),
        pod("big", "4", at="1s"),
        config=actions("allocate", starvingJobTimeThreshold="30s"),
        until=90,
    )
    figures = played.result.summary["starvation"]
    assert (figures["started"], figures["starving"], figures["longest"]) == (0, 1, 59.0)


# Counted a second time


class Counted(Simulation):
    """Adds up, moment by moment, what the objects say that reservations hold unused."""

    def __init__(self, *args: Any, **more: Any) -> None:
        super().__init__(*args, **more)
        self.total: dict[str, float] = {}
        self._now: dict[str, int] = {}
        self._since = 0.0
        self._order: dict[str, int] = {}

    def settle(self) -> None:
        self.account(self.world.clock.t)
        super().settle()
        self._now = self._count()

    def account(self, t: float) -> None:
        for name, amount in self._now.items():
            self.total[name] = self.total.get(name, 0) + amount * (t - self._since)
        self._since = t

    def _count(self) -> dict[str, int]:
        store = self.world.store
        idle = {
            raw["metadata"]["name"]: amounts(raw["status"]["allocatable"])
            for raw in store.scan("", "Node")
        }
        for raw in store.scan("", "Pod"):
            there = idle.get(raw["spec"].get("nodeName", ""))
            if there is not None and raw["status"].get("phase") not in ("Succeeded", "Failed"):
                for name, amount in pod_facts(raw).usage.requests.items():
                    there[name] = there.get(name, 0) - amount
        found: dict[str, int] = {}
        live = []
        for raw in store.scan("scheduling.koordinator.sh", "Reservation"):
            number = self._order.setdefault(raw["metadata"]["uid"], len(self._order))
            status = raw.get("status") or {}
            if status.get("phase") in ("Available", "Waiting") and status.get("nodeName"):
                live.append((status["phase"] == "Waiting", number, status))
        for _, _, status in sorted(live, key=lambda each: each[:2]):
            there, allocated = idle.get(status["nodeName"], {}), amounts(status.get("allocated"))
            for name, amount in amounts(status.get("allocatable")).items():
                if name in ("cpu", "memory"):
                    part = max(0, min(amount - allocated.get(name, 0), there.get(name, 0)))
                    there[name] = there.get(name, 0) - part
                    found[name] = found.get(name, 0) + part
        return found


@pytest.mark.parametrize(
    "name",
    [
        "dynamic-reservations/fluctuating",
        "dynamic-reservations/scale-out",
        "reservation-preemption/rules",
        "reservations/lifecycle",
        "reservations/migration",
        "reservations/pre-allocation",
        "reservations/preemption",
        "reservations/resources",
        "reservations/scale-up",
        "scheduling/node-lifecycle",
        "starvation/with-reserve",
    ],
)
def test_held_unused_is_what_the_objects_say(name: str) -> None:
    scenario = read_scenario(load_files([str(EXAMPLES / f"{name}.yaml")]))
    simulation = Counted(scenario, SchedulerFactory.of(), history=True)
    result = simulation.run()
    simulation.account(result.end)
    unit = {"cpu": 1000 * HOUR, "memory": HOUR}
    for resource in ("cpu", "memory"):
        figures = result.summary["reservations"]["held"].get(resource, {"unused": 0.0})
        expected = simulation.total.get(resource, 0.0) / unit[resource]
        assert figures["unused"] == pytest.approx(expected, abs=1e-6), resource
        assert _integral(result, resource) == pytest.approx(expected, abs=1e-6), resource


def _integral(result: Result, resource: str) -> float:
    """Of the curves that a report plots."""
    from holdfast.sim.reservation_lives import KINDS, hours
    from holdfast.sim.run_history import COLUMNS

    assert result.history is not None
    series = result.history.series
    ends = [*series.times[1:], result.end]
    columns = [COLUMNS.index(f"{resource} held {kind}") for kind in KINDS]
    total = sum(
        (end - t) * sum(values[i] for i in columns)
        for t, end, values in zip(series.times, ends, series.values, strict=True)
    )
    return hours(resource, total)
