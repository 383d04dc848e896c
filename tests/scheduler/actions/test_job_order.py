"""Turns: what a job needs comes before what another could use besides."""

import pytest

from harness.objects import SIM, gang, node, pod, pod_group, queue
from harness.scenarios import Played, actions, play
from holdfast.local.setup import SchedulerFactory
from holdfast.scheduler.cluster.decisions import Bind
from holdfast.sim.simulated_cluster import SimulatedCluster


def counts(played: Played) -> dict[str, int]:
    """How many pods of each job have a place."""
    names = [name.partition("-")[0] for name in played.bound()]
    return {name: names.count(name) for name in names}


def test_several_jobs_get_what_they_need_before_one_gets_more() -> None:
    jobs = [pod_group(name, 2) for name in "abc"]
    pods = [member for name in "abc" for member in gang(name, 6)]
    played = play(node("n1", 7), jobs, pods, pod("alone", 0))
    placed = counts(played)
    assert placed == {"a": 3, "b": 2, "c": 2, "alone": 1}


def test_a_more_important_job_gets_all_it_can_use() -> None:
    jobs = [pod_group("low", 2), pod_group("high", 2)]
    pods = [*gang("low", 4), *gang("high", 5, priority=10)]
    placed = counts(play(node("n1", 6), jobs, pods))
    assert placed == {"high": 5}


@pytest.mark.parametrize(
    ("weights", "placed"), [((1, 1), {"a": 5, "b": 5}), ((1, 4), {"a": 2, "b": 8})]
)
def test_what_jobs_have_beyond_what_they_need_is_shared_by_queue(
    weights: tuple[int, int], placed: dict[str, int]
) -> None:
    queues = [queue(name, weight) for name, weight in zip("ab", weights, strict=True)]
    jobs = [pod_group("a", 0, queue="a"), pod_group("b", 1, queue="b")]
    pods = [*gang("a", 20), *gang("b", 20)]
    played = play(node("n1", 10), queues, jobs, pods)
    assert counts(played) == placed


def test_of_a_job_that_got_what_it_needs_the_rest_says_why_it_waits() -> None:
    played = play(node("n1", 3), pod_group("a", 2), gang("a", 4))
    waits = [name for name in ("a-0", "a-1", "a-2", "a-3") if name not in played.bound()]
    assert [played.message(name) for name in waits] == ["0/1 nodes are available: 1 Insufficient cpu."]
    more = play(
        node("n1", 3),
        node("late", 1, metadata={"annotations": {f"{SIM}at": "10s"}}),
        pod_group("a", 2),
        gang("a", 4),
    )
    assert more.times(*waits) == [10]


def test_a_queue_that_has_all_of_one_resource_is_not_held_up_for_another() -> None:
    """Below `c` there are jobs that want cpu, and others that want memory."""
    queues = [queue(name) for name in "abcd"]
    queues += [queue("c1", parent="c"), queue("c2", parent="c")]
    jobs, pods = [], []
    for name, requests in (
        ("a", "cpu"),
        ("b", "cpu"),
        ("c1", "cpu"),
        ("c2", "memory"),
        ("d", "memory"),
    ):
        jobs.append(pod_group(name, 0, queue=name))
        pods += gang(name, 30, requests={requests: "1" if requests == "cpu" else "1G"})
    room = node("n1", 30, allocatable={"memory": "30G", "pods": "500"})
    placed = counts(play(room, queues, jobs, pods))
    assert placed == {"a": 10, "b": 10, "c1": 10, "c2": 15, "d": 15}


def test_dominant_shares_are_even_at_every_level() -> None:
    queues = [queue("sci"), queue("eng"), queue("dev", parent="eng"), queue("prod", parent="eng")]
    jobs = [pod_group(name, 0, queue=name) for name in ("sci", "dev", "prod")]
    pods = [
        *gang("sci", 10, requests={"cpu": "1", "memory": "1G"}),
        *gang("dev", 10, requests={"cpu": "1"}),
        *gang("prod", 10, requests={"memory": "1G"}),
    ]
    played = play(node("n1", 10, allocatable={"memory": "10G"}), queues, jobs, pods)
    assert counts(played) == {"sci": 5, "dev": 5, "prod": 5}


def test_one_round_is_enough_for_all_of_it() -> None:
    world = SimulatedCluster(SchedulerFactory.of(actions()), 0)
    given = [node("n1", 8), queue("a"), pod_group("g", 1, queue="a"), *gang("g", 4)]
    for raw in given:
        raw["metadata"]["namespace"] = "default" if raw["kind"] in ("Pod", "PodGroup") else ""
        if raw["kind"] == "Pod":
            raw["spec"]["schedulerName"] = "default-scheduler"
            raw["status"] = {"phase": "Pending"}
        world.objects.create(raw)
    world.settle()
    decisions = world.scheduler.round(world.clock.epoch())
    assert sum(isinstance(decision, Bind) for decision in decisions) == 4
