"""What a pod without a node is told, to the letter, and how often."""

from __future__ import annotations

import pytest

from harness.builders import NodeBuilder, PodBuilder, make_node, make_pod
from harness.driver import Driver, why_not
from holdfast.scheduler.cluster.decisions import Emit, SetPodScheduled
from holdfast.scheduler.framework.diagnosis import reasons_in


def small(name: str) -> NodeBuilder:
    return make_node(name).allocatable(cpu="1", memory="1Gi")


def tainted(name: str) -> NodeBuilder:
    return make_node(name).allocatable(cpu="8").taint("k")


BIG = make_pod("p").cpu("2")


@pytest.mark.parametrize(
    ("pod", "nodes", "message"),
    [
        (BIG, [], "no nodes available to schedule pods"),
        (
            BIG,
            [small("a"), small("b"), tainted("c"), tainted("d"), tainted("e")],
            "0/5 nodes are available: 2 Insufficient cpu, 3 node(s) had untolerated taint(s).",
        ),
        # A node is blamed on the first plugin that turned it down, and on all that plugin says.
        (
            make_pod("p").cpu("2").memory("2Gi"),
            [small("a").taint("k"), small("b"), small("c").allocatable(memory="4Gi")],
            "0/3 nodes are available: 1 Insufficient memory, 1 node(s) had untolerated taint(s), "
            "2 Insufficient cpu.",
        ),
        # Reasons are sorted as text, counts included.
        (
            BIG,
            [*(small(f"s{i}") for i in range(10)), tainted("t"), small("u").unschedulable()],
            "0/12 nodes are available: 1 node(s) had untolerated taint(s), "
            "1 node(s) were unschedulable, 10 Insufficient cpu.",
        ),
        (
            BIG,
            [*(small(f"s{i}") for i in range(2)), *(tainted(f"t{i}") for i in range(10))],
            "0/12 nodes are available: 10 node(s) had untolerated taint(s), 2 Insufficient cpu.",
        ),
        (
            make_pod("p").cpu("2").requests({"nvidia.com/gpu": 1, "example.com/a": 1}),
            [small("a").allocatable(pods=0)],
            "0/1 nodes are available: 1 Insufficient cpu, 1 Insufficient example.com/a, "
            "1 Insufficient nvidia.com/gpu, 1 Too many pods.",
        ),
    ],
)
def test_the_message_counts_reasons_over_nodes(
    pod: PodBuilder, nodes: list[NodeBuilder], message: str
) -> None:
    assert why_not(pod.obj(), *(node.obj() for node in nodes)) == message


def test_the_message_is_a_condition_and_an_event() -> None:
    driver = Driver().add(small("a").obj(), BIG.obj())
    condition, event = driver.round(0.0)
    assert isinstance(condition, SetPodScheduled) and isinstance(event, Emit)
    assert (condition.reason, event.type, event.reason) == (
        "Unschedulable",
        "Warning",
        "FailedScheduling",
    )
    assert condition.message == event.message == "0/1 nodes are available: 1 Insufficient cpu."


def test_an_event_is_cut_at_what_events_can_carry_and_a_condition_is_not() -> None:
    asked = {f"example.com/{'r' * 50}{i}": 1 for i in range(20)}
    driver = Driver().add(small("a").obj(), make_pod("p").requests(dict(asked)).obj())
    condition, event = driver.round(0.0)
    assert isinstance(condition, SetPodScheduled) and isinstance(event, Emit)
    assert len(condition.message) > 1024
    assert event.message == condition.message[:1020] + " ..."


def test_any_number_of_reasons_is_told() -> None:
    asked = {f"example.com/r{i:02}": 1 for i in range(40)}
    pod = make_pod("p").requests(dict(asked)).obj()
    listed = ", ".join(f"2 Insufficient {name}" for name in asked)
    assert why_not(pod, small("a").obj(), small("b").obj()) == f"0/2 nodes are available: {listed}."


def test_the_same_is_not_said_twice() -> None:
    driver = Driver().add(small("a").obj(), BIG.obj())
    assert driver.messages(0.0) != {}
    driver.update(small("a").allocatable(cpu="1500m").obj())
    assert driver.round(5.0) == []


def test_a_change_that_helps_nobody_is_still_told() -> None:
    driver = Driver().add(small("a").obj(), BIG.obj())
    driver.round(0.0)
    assert driver.add(tainted("b").obj()).messages(0.1) == {
        "p": "0/2 nodes are available: 1 Insufficient cpu, 1 node(s) had untolerated taint(s)."
    }


def test_siblings_are_all_told_what_is_true_now() -> None:
    """One of them was told something else in between."""
    driver = Driver().add(small("a").obj(), make_pod("old").cpu("2").obj())
    first = driver.messages(0.0)["old"]
    # A taint that cannot help a pod short of cpu: nobody is asked again.
    driver.update(small("a").taint("k").obj())
    driver.round(1.0)
    young = driver.add(make_pod("young").cpu("2").obj()).messages(1.0)["young"]
    assert young == "0/1 nodes are available: 1 node(s) had untolerated taint(s)."
    # The old state again: the young one has to hear of it, the old one may know already.
    told = driver.update(small("a").obj()).messages(2.0)
    assert told["young"] == first


@pytest.mark.parametrize(
    ("message", "reasons"),
    [
        ("0/1 nodes are available: 1 Insufficient cpu.", ["Insufficient cpu"]),
        (
            "0/3 nodes are available: 1 Too many pods, 2 node(s) had untolerated taint(s). "
            "preemption: 0/3 nodes are available: 3 Preemption is not helpful for scheduling.",
            ["Too many pods", "node(s) had untolerated taint(s)"],
        ),
        pytest.param(
            "0/3 nodes are available: 3 Insufficient cpu. 4 Reservation(s) matched owner total, "
            "preemption: 0/3 nodes are available: 3 No preemption victims found for incoming pod.",
            ["Insufficient cpu"],
            id="preemption after a count of reservations",
        ),
        pytest.param(
            "0/3 nodes are available: 2 Insufficient cpu, 1 Reservation(s) Insufficient cpu, "
            "requested: 6000, used: 1000, capacity: 6000. 1 Reservation(s) exactly matches the "
            "requested reservation name, 2 Reservation(s) is unschedulable, "
            "3 Reservation(s) matched owner total.",
            [
                "Insufficient cpu",
                "Reservation(s) Insufficient cpu, requested: 6000, used: 1000, capacity: 6000",
                "Reservation(s) is unschedulable",
            ],
            id="reservations",
        ),
        pytest.param(
            "0/3 nodes are available: preemption: 0/3 nodes are available: 3 No preemption victims "
            "found for incoming pod.",
            [],
            id="preemption alone",
        ),
        ("", []),
        ("no nodes available to schedule pods", ["no nodes available to schedule pods"]),
    ],
)
def test_reasons_are_read_off_the_message(message: str, reasons: list[str]) -> None:
    assert reasons_in(message) == reasons
