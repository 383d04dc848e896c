"""The pod slots of reservations: who uses them, and when nothing else is used."""

from __future__ import annotations

import pytest

from harness.objects import (
    Raw,
    gang,
    migration,
    node,
    pod,
    pod_group,
    replica,
    reservation,
    running,
)
from harness.scenarios import actions, play
from harness.world import World

AFTER = {"starvingJobTimeThreshold": 10}
ORDER = "scheduling.koordinator.sh/reservation-order"
MUST = {"scheduling.koordinator.sh/reservation-affinity": "{}"}


def full_of_pods(name: str = "n", pods: int = 1) -> Raw:
    return node(name, allocatable={"pods": str(pods)})


def idle(name: str, app: str = "a", **more: object) -> Raw:
    """A pod that requests nothing."""
    return pod(name, "", app, **more)


@pytest.mark.parametrize("once", [True, False])
def test_owners_use_the_slot_of_a_reservation_without_requests(once: bool) -> None:
    world = World(full_of_pods(), reservation("r", "", allocateOnce=once))
    world.put(idle("other", "b"), idle("owner"))
    assert (world.node_of("other"), world.reservation_of("owner")) == ("", "r")
    world.put(idle("second")).restart()
    world.wait(30)
    assert (world.node_of("other"), world.node_of("second")) == ("", "")
    assert world.phase("r") == ("Succeeded" if once else "Available")
    world.delete("Pod", "owner").wait(30)
    started = [name for name in ("other", "second") if world.node_of(name)]
    assert started == (["other"] if once else ["second"])


def test_reserved_pods_are_for_owners_that_request_resources_too() -> None:
    world = World(full_of_pods(pods=2), reservation("r", requests={"pods": "2"}, allocateOnce=False))
    world.put(pod("other", app="b"), pod("p", app="a"), idle("q"), idle("third"))
    assert world.node_of("other") == ""
    assert [world.reservation_of(name) for name in ("p", "q", "third")] == ["r", "r", ""]


def test_a_pod_without_requests_does_not_use_up_a_reservation_of_resources() -> None:
    world = World(node("n"), reservation("r", "4")).put(idle("p"))
    assert (world.node_of("p"), world.reservation_of("p"), world.phase("r")) == ("n", "", "Available")
    world.put(pod("q", "4", "a"))
    assert world.reservation_of("q") == "r"


@pytest.mark.parametrize("cpu", ["", "1"])
def test_its_slot_is_used_where_the_node_has_no_other(cpu: str) -> None:
    world = World(full_of_pods(), reservation("r", requests={"memory": "1Gi"}, allocateOnce=False))
    world.put(pod("other", cpu, "b"), pod("p", cpu, "a"), pod("q", cpu, "a"))
    assert [world.reservation_of(name) for name in ("other", "p", "q")] == ["", "r", ""]
    assert (world.node_of("other"), world.node_of("q")) == ("", "")
    world.delete("Pod", "p").wait(30)
    assert world.reservation_of("q") == "r"


@pytest.mark.parametrize("order", ["", "1"])
@pytest.mark.parametrize("idles", [1, 2, 6])
def test_slots_of_reservations_of_resources_are_used_last(idles: int, order: str) -> None:
    """However many there are, and whatever their order."""
    labels = {ORDER: order} if order else {}
    full = [full_of_pods(f"a{i}") for i in range(8)]
    for_cpu = [reservation(f"r{i}", "2", labels=labels, pod={"nodeName": f"a{i}"}) for i in range(8)]
    world = World(*full, *for_cpu, node("b", cpu="1", allocatable={"pods": "5"}))
    world.put(*(idle(f"p{i}") for i in range(idles)), pod("q", "2", "a"))
    assert [world.node_of(f"p{i}") for i in range(idles)].count("b") == min(idles, 5)
    assert [world.reservation_of(f"p{i}") for i in range(min(idles, 5))] == [""] * min(idles, 5)
    assert world.reservation_of("q")
    if idles > 5:
        assert world.reservation_of("p5") == "r0"


def test_of_last_slots_the_first_in_order_is_used() -> None:
    full = [full_of_pods(f"n{i}") for i in range(3)]
    held = [
        reservation(f"r{i}", "2", labels={ORDER: order}, pod={"nodeName": f"n{i}"})
        for i, order in enumerate("312")
    ]
    world = World(*full, *held).put(idle("p"), idle("q"), idle("r"))
    assert [world.reservation_of(name) for name in ("p", "q", "r")] == ["r1", "r2", "r0"]


@pytest.mark.parametrize("labels", [{}, {ORDER: "1"}])
def test_a_reservation_for_slots_is_used_before_the_last_slot(labels: dict[str, str]) -> None:
    world = World(
        full_of_pods("a", pods=2),
        reservation("r", "2", labels=labels, pod={"nodeName": "a"}),
        reservation("slots", "", pod={"nodeName": "a"}),
    )
    world.put(idle("p"))
    assert world.reservation_of("p") == "slots"
    world.put(idle("q"))
    assert world.reservation_of("q") == "r"


def test_a_pod_with_requests_uses_the_slot_of_another_resource_last() -> None:
    half = reservation("r", requests={"memory": "1Gi"}, allocateOnce=False, pod={"nodeName": "a"})
    world = World(full_of_pods("a", 2), half, pod("x", nodeName="a"), full_of_pods("b"))
    world.put(*(pod(name, app="a", requests={"cpu": "1"}) for name in ("p", "q")))
    assert (world.node_of("p"), world.reservation_of("p")) == ("b", "")
    assert world.reservation_of("q") == "r"


def test_slots_are_used_last_where_reservations_do_not_score() -> None:
    unscored = {"plugins": {"score": {"disabled": [{"name": "Reservation"}]}}}
    played = play(
        [full_of_pods("a"), full_of_pods("b")],
        reservation("r", "2", pod={"nodeName": "a"}),
        [idle("p", at="2s"), idle("q", at="3s")],
        config={**actions(), "profiles": [unscored]},
    )
    assert played.bound() == {"p": (2, "b"), "q": (3, "a")}


def test_a_node_with_the_slot_is_preferred() -> None:
    world = World(node("a"), node("b"), node("c"), reservation("r", "", pod={"nodeName": "b"}))
    world.put(idle("p"))
    assert (world.node_of("p"), world.reservation_of("p")) == ("b", "r")


def test_one_of_many_reservations_has_a_slot() -> None:
    nodes = [full_of_pods(f"n{i}") for i in range(8)]
    held = [reservation(f"r{i}", "", app="a" if i == 5 else "b") for i in range(8)]
    world = World(*nodes, *held).put(idle("p"), idle("q"))
    assert (world.reservation_of("p"), world.node_of("q")) == ("r5", "")


def test_a_slot_that_is_restricted_is_not_shared() -> None:
    strict: Raw = {"allocateOnce": False, "allocatePolicy": "Restricted"}
    world = World(node("n"), reservation("r", requests={"cpu": "4", "pods": "1"}, **strict))
    world.put(idle("p"), idle("q"))
    assert (world.reservation_of("p"), world.node_of("q")) == ("r", "")


def test_a_pod_without_requests_needs_nothing_of_a_restricted_reservation() -> None:
    strict: Raw = {"allocateOnce": False, "allocatePolicy": "Restricted"}
    world = World(node("n"), reservation("r", "4", **strict), pod("user", "4", "a"))
    assert world.reservation_of("user") == "r"
    world.put(idle("p"))
    assert (world.node_of("p"), world.reservation_of("p")) == ("n", "")


def test_with_a_reservation_affinity_the_slot_of_any_will_do() -> None:
    world = World(full_of_pods(), reservation("r", "4", allocateOnce=False))
    world.put(idle("p", annotations=MUST))
    assert world.reservation_of("p") == "r"


@pytest.mark.parametrize("hold", ["node", "amount"])
@pytest.mark.parametrize("restarts", [False, True])
def test_a_starving_pod_without_requests_gets_the_slot_held_for_it(hold: str, restarts: bool) -> None:
    steps = [
        {"apiVersion": "sim.holdfast.io/v1alpha1", "kind": "Step", "at": "30s", "restart": "scheduler"}
    ]
    played = play(
        full_of_pods(),
        [pod("first", 1, nodeName="n", runs_for="60s"), idle("p", runs_for="60s")],
        idle("late", at="20s"),
        steps if restarts else [],
        config=actions(**AFTER, hold=hold),
    )
    assert (played.times("p"), played.times("late")) == ([60], [120])


def test_a_starving_gang_without_requests_gets_its_slots() -> None:
    played = play(
        [full_of_pods("n"), full_of_pods("m")],
        [pod("x", 1, nodeName="n", runs_for="60s"), pod("y", 1, nodeName="m", runs_for="90s")],
        [pod_group("g", 2), *gang("g", 2, "")],
        idle("late", at="20s"),
        config=actions(**AFTER, reservedNodePercent=100),
    )
    assert (played.times("g-0"), played.times("g-1"), played.times("late")) == ([90], [90], [None])


def test_a_preemptor_without_requests_gets_the_slot_of_its_victim() -> None:
    world = World(full_of_pods(), pod("victim"))
    world.graceful = True
    world.put(idle("p", priority=10), idle("q", priority=5))
    world.restart()
    world.settle().delete("Pod", "victim").wait(30)
    assert (world.node_of("p"), world.node_of("q")) == ("n", "")


@pytest.mark.parametrize("pods", [1, 110])
def test_a_migration_of_a_pod_without_requests_moves_it(pods: int) -> None:
    web = running(replica("web", ""), "n1")
    world = World(full_of_pods("n1", pods), full_of_pods("n2", pods), web)
    world.put(migration()).put(replica("new", "")).wait(60)
    assert world.evicted == ["web"]
    assert (world.node_of("new"), world.outcome()[0]) == ("n2", "Succeeded")
