"""A scheduler that is killed at any step: the next leader finishes what it did, or undoes it."""

from __future__ import annotations

import gc
import json
import weakref
from collections.abc import Callable

import pytest

from faults.audit import GROUP_NAME
from faults.life import Life, Trouble, group, migration, node_of, pod_of, reservation_of
from faults.model import GROUPS, MIGRATIONS, NODES, PODS, RESERVATIONS, Raw
from faults.simulation import Process, Simulation
from holdfast.scheduler.scheduler import Scheduler

STEPS = 64
"""After so many steps the scenario is over, as far as the scheduler goes."""
_REPLICA = {"replica": "yes"}


def cluster(*acts: tuple[float, str, Raw], nodes: int = 2) -> Life:
    life = Life(seed=0)
    life.first += [(NODES, node_of(f"n{i}", 2000)) for i in range(nodes)]
    life.acts += [(at, "create", (path, raw)) for at, path, raw in acts]
    return life


def member(name: str, cpu: int, priority: int) -> Raw:
    return pod_of(name, cpu, priority, annotations={GROUP_NAME: "gang", **_REPLICA})


def gang_and(*acts: tuple[float, str, Raw]) -> Life:
    """A cluster with a PodGroup of two."""
    life = cluster(*acts)
    life.first.append((GROUPS, group("gang", 2)))
    return life


def a_gang_is_preempted() -> Life:
    return gang_and(
        (0.5, PODS, member("g0", 1500, 0)),
        (0.5, PODS, member("g1", 1500, 0)),
        (5.0, PODS, pod_of("high", 1500, 100)),
    )


def a_gang_preempts() -> Life:
    return gang_and(
        (0.5, PODS, pod_of("low0", 1500, 0, annotations=_REPLICA)),
        (0.5, PODS, pod_of("low1", 1500, 0, annotations=_REPLICA)),
        (5.0, PODS, member("g0", 1000, 100)),
        (5.0, PODS, member("g1", 1000, 100)),
    )


def a_gang_starts_while_others_want_its_place() -> Life:
    return gang_and(
        (5.0, PODS, member("g0", 1500, 0)),
        (5.0, PODS, member("g1", 1500, 0)),
        (5.0, PODS, pod_of("other", 700, 0)),
    )


def something_more_important_comes_while_a_gang_starts() -> Life:
    return gang_and(
        (5.0, PODS, member("g0", 1500, 0)),
        (5.0, PODS, member("g1", 1500, 0)),
        (6.0, PODS, pod_of("high", 1500, 100)),
    )


def owners_take_a_reservation() -> Life:
    return cluster(
        (0.5, RESERVATIONS, reservation_of("r", 1500, False, "r")),
        (5.0, PODS, pod_of("o0", 500, 0, labels={"app": "r"})),
        (5.0, PODS, pod_of("o1", 500, 0, labels={"app": "r"})),
        (5.0, RESERVATIONS, reservation_of("once", 1000, True, "once")),
        (5.01, PODS, pod_of("o2", 500, 0, labels={"app": "once"})),
    )


def a_reservation_is_asked_for() -> Life:
    template = {
        "owners": [{"labelSelector": {"matchLabels": {"job": "drp"}}}],
        "recommendedSize": {"cpu": "1"},
    }
    asks = {"scheduling.koordinator.sh/reservation-template": json.dumps(template)}
    return cluster(
        (5.0, PODS, pod_of("drp-0", 500, 0, labels={"job": "drp"}, annotations=asks)),
        (5.0, PODS, pod_of("drp-1", 500, 0, labels={"job": "drp"})),
    )


def a_pod_moves() -> Life:
    return cluster(
        (0.5, PODS, pod_of("moved", 500, 0, annotations=_REPLICA)),
        (5.0, MIGRATIONS, migration("move", "moved")),
    )


@pytest.mark.parametrize("replicas", [1, 2])
@pytest.mark.parametrize(
    "scenario",
    [
        a_gang_is_preempted,
        a_gang_preempts,
        a_gang_starts_while_others_want_its_place,
        something_more_important_comes_while_a_gang_starts,
        owners_take_a_reservation,
        a_reservation_is_asked_for,
        a_pod_moves,
    ],
)
def test_killed_at_any_step(scenario: Callable[[], Life], replicas: int) -> None:
    for steps in range(replicas, STEPS, 2):
        life = scenario()
        life.seed, life.replicas = steps, replicas
        life.troubles.append(Trouble("kill", 5.0005, 2.0, "a", steps=steps))
        outcome = Simulation(life).run()
        assert not outcome.problems, "\n".join([*outcome.problems, *outcome.log])


def test_killed_while_a_gang_frees_capacity_before_all_of_it_is_bound() -> None:
    """The conditions of its members are not written yet, or some of them; the others' binds fail."""
    for steps in range(1, STEPS, 3):
        life = something_more_important_comes_while_a_gang_starts()
        life.seed = steps
        life.troubles.append(Trouble("storm", 5.0, 8.0, "a", how="error", chance=0.6, amount=5.0))
        life.troubles.append(Trouble("kill", 6.0005, 2.0, "a", steps=steps))
        outcome = Simulation(life).run()
        assert not outcome.problems, "\n".join([*outcome.problems, *outcome.log])


def test_a_runner_that_lost_its_lease_is_gone_before_there_is_another() -> None:
    """It is as large as the cluster, and full of cycles, which are else collected much later."""
    life = owners_take_a_reservation()
    life.troubles.append(Trouble("pause", 6.0, 16.0, "a"))
    simulation = Simulation(life)
    left: list[object] = []

    def collect() -> None:
        gc.collect()
        left.append([each() for each in known if each() is not None])

    simulation.collect = collect
    known: list[weakref.ref[Scheduler]] = []
    simulation.timeline.call_at(
        5.5, lambda: known.append(weakref.ref(_scheduler(simulation.processes["a"])))
    )
    outcome = simulation.run()
    assert not outcome.problems, "\n".join([*outcome.problems, *outcome.log])
    assert left == [[]]


def _scheduler(process: Process) -> Scheduler:
    assert process.running is not None and process.running.runner is not None
    return process.running.runner.scheduler
