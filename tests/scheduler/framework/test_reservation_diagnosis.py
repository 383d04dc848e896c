"""What a pod that must use a reservation is told of those there are."""

import json
from typing import Any

import pytest

from harness.objects import Raw, node, pod, reservation
from harness.world import World
from holdfast.scheduler.framework import diagnosis
from holdfast.scheduler.framework.reservation_diagnosis import about_reservations

AFFINITY = "scheduling.koordinator.sh/reservation-affinity"
TAINT = {"key": "pool", "value": "test", "effect": "NoSchedule"}


def needy(name: str = "p", affinity: Raw | None = None, **spec: Any) -> Raw:
    annotations = {AFFINITY: json.dumps(affinity or {})}
    return pod(name, app="a", metadata={"annotations": annotations}, **spec)


def counted(world: World, name: str = "p") -> str:
    """What stands between the reasons of nodes and what preemption says."""
    return world.message(name).partition(". ")[2].partition(", preemption: ")[0]


@pytest.mark.parametrize(
    ("reservations", "affinity", "expected"),
    [
        pytest.param([], {}, "0 Reservation(s) matched owner total", id="none"),
        pytest.param(
            [reservation("r", app="other")], {}, "0 Reservation(s) matched owner total", id="of others"
        ),
        pytest.param(
            [reservation("r", labels={"tier": "tin"}), reservation("s", unschedulable=True)],
            {"reservationSelector": {"tier": "gold"}},
            "1 Reservation(s) didn't match affinity rules, 1 Reservation(s) is unschedulable, "
            "2 Reservation(s) matched owner total",
            id="rules, and closed",
        ),
        pytest.param(
            [reservation("r", taints=[TAINT]), reservation("s", taints=[TAINT])],
            {},
            "2 Reservation(s) had untolerated taint {pool: test}, 2 Reservation(s) matched owner total",
            id="tainted",
        ),
        pytest.param(
            [reservation("r"), reservation("s")],
            {"name": "t"},
            "2 Reservation(s) didn't match the requested reservation name, "
            "2 Reservation(s) matched owner total",
            id="of another name",
        ),
        pytest.param(
            [reservation("r", cpu="1", allocatePolicy="Restricted"), reservation("s")],
            {"name": "r"},
            "1 Reservation(s) exactly matches the requested reservation name, "
            "1 Reservation(s) didn't match the requested reservation name, "
            "2 Reservation(s) matched owner total",
            id="of that name, but too small",
        ),
        pytest.param(
            [reservation("r", cpu="60", allocateOnce=False)],
            {},
            "0 Reservation(s) matched owner total",
            id="without a node",
        ),
    ],
)
def test_reservations_are_counted_by_what_stands_against_them(
    reservations: list[Raw], affinity: Raw, expected: str
) -> None:
    world = World(node("n1"))
    world.put(*reservations)
    world.put(needy(affinity=affinity, cpu="2"))
    assert counted(world) == expected


def test_nodes_are_to_blame_where_reservations_are_not() -> None:
    world = World(node("n1"), reservation("r", cpu="15"))
    world.put(needy(cpu="17"))
    assert counted(world) == (
        "1 Reservation(s) for node reason that Insufficient cpu by node, "
        "1 Reservation(s) matched owner total"
    )


def test_a_taint_of_the_node_is_a_reason_of_the_node() -> None:
    world = World(node("n1"), reservation("r", cpu="4"))
    world.edit("Node", "n1", spec__taints=[TAINT]).put(needy(cpu="2"))
    assert "1 Reservation(s) for node reason that node(s) had untolerated taint" in counted(world)


def test_reservations_on_nodes_the_pod_does_not_mean_are_not_counted() -> None:
    world = World(node("n1"), node("n2", labels={"disk": "ssd"}))
    world.put(reservation("r", pod={"nodeName": "n1"}))
    world.put(needy(nodeSelector={"disk": "ssd"}))
    assert counted(world) == "0 Reservation(s) matched owner total"


def test_used_up_reservations_are_not_counted() -> None:
    world = World(node("n1"), reservation("r", cpu="4"), pod("first", app="a"))
    assert world.reservation_of("first") == "r"
    world.put(needy())
    assert counted(world) == "0 Reservation(s) matched owner total"


def test_the_event_of_its_own_is_about_reservations_alone() -> None:
    small: Raw = {"cpu": "1", "allocatePolicy": "Restricted"}
    world = World(node("n1"), reservation("r", **small), reservation("s", unschedulable=True))
    world.put(needy(cpu="2"))
    told = [(e.reason, e.message) for e in world.events if e.about.name == "p"]
    assert told[1] == (
        "FailedScheduling-Reservation",
        "0/2 reservations are available: 1 Reservation(s) Insufficient cpu, "
        "1 Reservation(s) is unschedulable.",
    )
    assert [reason for reason, _ in told] == ["FailedScheduling", "FailedScheduling-Reservation"]
    world.wait(600)
    assert len([e for e in world.events if e.about.name == "p"]) == 2, "nothing is said twice"


@pytest.mark.parametrize(
    ("reservations", "expected"),
    [
        pytest.param([], "", id="none"),
        pytest.param([reservation("r", app="other")], "", id="of others"),
        pytest.param(
            [reservation("r", cpu="4"), reservation("s", cpu="4")],
            "2 Reservation(s) for node reason that Insufficient cpu, "
            "2 Reservation(s) matched owner total",
            id="too small, the node too",
        ),
        pytest.param(
            [reservation("r", cpu="4", unschedulable=True), reservation("s", cpu="2")],
            "1 Reservation(s) is unschedulable, "
            "1 Reservation(s) for node reason that Insufficient cpu, "
            "2 Reservation(s) matched owner total",
            id="closed",
        ),
    ],
)
def test_a_pod_that_may_go_without_is_told_of_those_meant_for_it(
    reservations: list[Raw], expected: str
) -> None:
    world = World(node("n1"))
    world.put(*reservations)
    world.put(pod("p", app="a", cpu="17"))
    told = world.message("p").partition(". ")[2].partition("preemption: ")[0]
    assert told.removesuffix(", ") == expected
    assert all(event.reason != "FailedScheduling-Reservation" for event in world.events)


@pytest.mark.parametrize("count", [1, 3])
def test_reasons_of_nodes_are_those_that_remain_with_the_reservation(count: int) -> None:
    """Each node is full but for a reservation that is large enough; the constraint rejects the pod."""
    spread = {
        "maxSkew": 1,
        "topologyKey": "kubernetes.io/hostname",
        "whenUnsatisfiable": "DoNotSchedule",
        "labelSelector": {"matchLabels": {"app": "a"}},
    }
    names = [f"n{i}" for i in range(count)]
    world = World(node("empty", cpu="4", unschedulable=True), *(node(name, cpu="4") for name in names))
    for name in names:
        world.put(pod(f"old-{name}", app="a", cpu="2", nodeName=name))
        world.put(reservation(f"r-{name}", cpu="2", pod={"nodeName": name}))
    world.put(pod("p", app="a", cpu="2", topologySpreadConstraints=[spread]))
    assert counted(world) == (
        f"{count} Reservation(s) for node reason that node(s) didn't match pod topology spread "
        f"constraints, {count} Reservation(s) matched owner total"
    )


STRICT: Raw = {"allocatePolicy": "Restricted", "allocateOnce": False}
LOOSE: Raw = {"allocatePolicy": "Aligned", "allocateOnce": False}


@pytest.mark.parametrize(
    ("reservations", "asked", "expected"),
    [
        pytest.param([("r", "8", LOOSE)], "9", "1 Insufficient cpu", id="less than it needs"),
        pytest.param(
            [("r", "4", LOOSE), ("s", "4", LOOSE)],
            "6",
            "1 Insufficient cpu by node",
            id="enough, but not in one",
        ),
        pytest.param(
            [("r", "4", LOOSE), ("s", "4", LOOSE)], "9", "1 Insufficient cpu", id="not even in both"
        ),
        pytest.param(
            [("r", "4", STRICT), ("s", "4", STRICT)],
            "6",
            "2 Reservation(s) Insufficient cpu",
            id="of each of them too little",
        ),
        pytest.param(
            [("r", "3", STRICT), ("s", "3", LOOSE)],
            "6",
            "1 Insufficient cpu by node, 1 Reservation(s) Insufficient cpu",
            id="one of each kind",
        ),
    ],
)
@pytest.mark.parametrize("others", [0, 1, 40], ids=["alone", "with another", "with many"])
def test_a_pod_is_allocated_from_one_reservation_at_a_time(
    reservations: list[tuple[str, str, Raw]], asked: str, expected: str, others: int
) -> None:
    """Nodes apart, on which the pod has nothing reserved, change nothing."""
    world = World(node("n1", cpu="8"), *(node(f"m{i:02}", cpu="1") for i in range(others)))
    world.put(*(reservation(name, cpu=cpu, **how) for name, cpu, how in reservations))
    world.put(pod("p", app="a", cpu=asked))
    told = world.message("p").partition(": ")[2].partition(". ")[0]
    more = f"{others} Insufficient cpu" if others else ""
    if expected == "1 Insufficient cpu":
        assert told == f"{others + 1} Insufficient cpu"
    else:
        assert sorted(told.split(", ")) == sorted(filter(None, [*expected.split(", "), more]))


@pytest.mark.parametrize("most", [31, 1], ids=["few reasons", "more than fit a number"])
def test_nodes_with_different_numbers_of_reservations_are_told_apart(
    most: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(diagnosis, "_MOST_BITS", most)
    world = World(*(node(f"n{i}") for i in range(1, 5)))
    for i in range(1, 5):
        held = (
            reservation(f"r{i}-{j}", pod={"nodeName": f"n{i}"}, cpu="1", **STRICT) for j in range(i)
        )
        world.put(*held)
    world.put(pod("p", app="a", cpu="2"))
    assert ": 10 Reservation(s) Insufficient cpu. 10 Reservation(s) matched" in world.message("p")


def test_who_names_a_reservation_is_told_of_those_on_its_node() -> None:
    small: Raw = {"cpu": "1", "allocatePolicy": "Restricted"}
    world = World(node("n1"), node("n2"))
    world.put(
        reservation("r", pod={"nodeName": "n1"}, **small), reservation("s", pod={"nodeName": "n2"})
    )
    world.put(needy(affinity={"name": "r"}, cpu="2"))
    assert counted(world) == (
        "1 Reservation(s) exactly matches the requested reservation name, "
        "1 Reservation(s) matched owner total"
    )


def test_members_of_a_gang_are_told_too() -> None:
    gang = "gang.scheduling.koordinator.sh/"
    world = World(node("n1"), reservation("r", cpu="4", **STRICT))
    members = [needy(name, cpu="3") for name in ("p", "q")]
    for each in members:
        each["metadata"]["annotations"] |= {f"{gang}name": "both", f"{gang}min-available": "2"}
    world.put(*members)
    told = (
        "0/1 nodes are available: 1 Reservation(s) Insufficient cpu. "
        "1 Reservation(s) matched owner total."
    )
    assert world.message("q") == told
    assert world.message("p").endswith(told)
    events = [e.message for e in world.events if e.reason == "FailedScheduling-Reservation"]
    assert events == ["0/1 reservations are available: 1 Reservation(s) Insufficient cpu."]


def test_what_a_named_reservation_lacks_is_told_in_figures() -> None:
    withheld = {"node.koordinator.sh/reservation": '{"resources": {"cpu": "1"}}'}
    strict: Raw = {"allocatePolicy": "Restricted", "allocateOnce": False, "annotations": withheld}
    world = World(node("n1"), reservation("r", requests={"cpu": "7", "pods": "2"}, **strict))
    world.put(pod("first", app="a", cpu="1"), needy("more", {"name": "r"}, cpu="6"))
    assert "1 Reservation(s) Insufficient cpu, requested: 6000, used: 1000, capacity: 6000." in (
        world.message("more")
    )
    world.put(pod("second", app="a", cpu="1"))
    world.put(needy("third", {"name": "r"}, cpu="1"), needy("fourth", cpu="1"))
    figures = "requested: 1, used: 2, capacity: 2"
    assert f"1 Reservation(s) Too many pods, {figures}. " in world.message("third")
    assert "1 Reservation(s) Too many pods. " in world.message("fourth")


@pytest.mark.parametrize(
    ("message", "expected"),
    [
        (
            "0/21 nodes are available: 1 Insufficient nvidia.com/gpu by node, 4 Reservation(s) "
            "Insufficient nvidia.com/gpu. 1 Reservation(s) is unschedulable, 5 Reservation(s) matched "
            "owner total",
            "0/5 reservations are available: 4 Reservation(s) Insufficient nvidia.com/gpu, "
            "1 Reservation(s) is unschedulable.",
        ),
        (
            "0/5 nodes are available: 2 node(s) didn't match pod affinity rules. "
            "1 Reservation(s) exactly matches the requested reservation name, "
            "2 Reservation(s) for node reason that node(s) didn't match pod affinity rules, "
            "3 Reservation(s) matched owner total, "
            "preemption: 0/5 nodes are available: 5 Preemption is not helpful for scheduling.",
            "0/3 reservations are available: 1 Reservation(s) exactly matches the requested reservation"
            " name, 2 Reservation(s) for node reason that node(s) didn't match pod affinity rules.",
        ),
        (
            "0/1 nodes are available: 1 node(s) no reservations match reservation affinity. "
            "0 Reservation(s) matched owner total",
            "0/0 reservations are available.",
        ),
        ("0/5 nodes are available: 3 Insufficient cpu, 2 Insufficient memory.", ""),
        ("no nodes available to schedule pods", ""),
    ],
)
def test_what_is_about_reservations_is_taken_from_the_whole(message: str, expected: str) -> None:
    assert about_reservations(message) == expected
