"""Limits of reservations: held like a pod's, taken over by owners, never counted twice."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.choices import Chooser, choosing, seeded
from harness.objects import Raw, node, pod, reservation
from harness.strategies import examples
from harness.world import World

ANNOTATION = "node.koordinator.sh/limit-to-allocatable"
LACKING = "0/1 nodes are available: 1 Insufficient cpu limit."


def limited(name: str = "n0", ratio: str = '{"cpu": "100%"}', cpu: str = "8") -> Raw:
    made = node(name, cpu=cpu)
    made["metadata"]["annotations"] = {ANNOTATION: ratio}
    return made


def wanting(made: Raw, cpu: str, limit: str) -> Raw:
    """A pod, or a reservation, with this limit."""
    spec = made["spec"]
    containers = spec["template"]["spec"]["containers"] if "template" in spec else spec["containers"]
    containers[0]["resources"] = {"requests": {"cpu": cpu}, "limits": {"cpu": limit}}
    return made


def held(limit: str = "6", cpu: str = "2", **spec: Any) -> Raw:
    return wanting(reservation("r", allocateOnce=False, **spec), cpu, limit)


def sum_of_limits(world: World, name: str = "n0") -> int:
    cluster = world.scheduler.cluster
    row = cluster.nodes.row(name)
    assert row is not None
    return int(cluster.limits.of("cpu")[row])


@pytest.mark.parametrize(
    ("owners", "others", "total"),
    [
        ([], [], 6000),
        (["1"], [], 6000),
        (["6"], [], 6000),
        (["3", "3"], [], 6000),
        (["7"], [], 7000),  # one more from the node
        (["4", "4"], [], 8000),
        (["6"], ["2"], 8000),
        ([], ["2"], 8000),
    ],
)
def test_owners_take_limits_over(owners: list[str], others: list[str], total: int) -> None:
    world = World(limited(), held())
    for i, limit in enumerate(owners):
        world.put(wanting(pod(f"o{i}", app="a"), "500m", limit))
        assert world.reservation_of(f"o{i}") == "r"
    for i, limit in enumerate(others):
        world.put(wanting(pod(f"x{i}"), "500m", limit))
        assert world.node_of(f"x{i}") == "n0"
    assert sum_of_limits(world) == total


@pytest.mark.parametrize("app", ["a", "x"])
def test_beyond_the_ceiling_nobody_gets_in(app: str) -> None:
    world = World(limited(), held())
    world.put(wanting(pod("o", app="a"), "500m", "6"), wanting(pod("x", app="b"), "500m", "2"))
    world.put(wanting(pod("p", app=app), "500m", "1"))
    assert world.node_of("p") == ""
    assert world.message("p").startswith(LACKING)


def test_limits_come_back_with_owners_that_go_and_are_free_with_the_reservation() -> None:
    world = World(limited(), held())
    world.put(wanting(pod("o", app="a"), "500m", "6")).delete("Pod", "o")
    assert sum_of_limits(world) == 6000
    world.put(wanting(pod("x"), "500m", "3"))
    assert world.node_of("x") == ""
    world.delete("Reservation", "r")
    assert (world.node_of("x"), sum_of_limits(world)) == ("n0", 3000)


def test_reservation_itself_needs_the_limits() -> None:
    world = World(limited(), wanting(pod("x"), "1", "4")).put(held())
    assert world.phase("r") == "Pending"
    assert world.condition("r", "Scheduled")["message"].startswith(LACKING)
    world.delete("Pod", "x")
    assert world.phase("r") == "Available"


def test_used_up_reservation_leaves_the_limits_of_its_owner() -> None:
    world = World(limited(), wanting(reservation("r"), "2", "6"))
    world.put(wanting(pod("o", app="a"), "1", "3"))
    assert (world.phase("r"), sum_of_limits(world)) == ("Succeeded", 3000)


def test_made_ahead_of_time_it_waits_for_limits_too() -> None:
    world = World(limited(), wanting(pod("x"), "1", "4"))
    world.put(held(preAllocation=True))
    assert world.phase("r") == "Waiting"
    world.put(wanting(pod("late"), "1", "2"))
    assert world.node_of("late") == ""
    world.delete("Pod", "x")
    assert (world.phase("r"), world.node_of("late")) == ("Available", "n0")


def test_annotation_that_comes_later_counts_what_reservations_hold() -> None:
    world = World(node("n0", cpu="8"), held())
    world.put(wanting(pod("o", app="a"), "500m", "1"))
    world.put(limited())
    assert sum_of_limits(world) == 6000
    world.put(wanting(pod("x"), "500m", "3"))
    assert world.node_of("x") == ""
    world.put(wanting(pod("o2", app="a"), "500m", "5"))
    assert (world.reservation_of("o2"), sum_of_limits(world)) == ("r", 6000)


def test_resize_needs_the_limits() -> None:
    world = World(limited(), held(limit="2")).put(wanting(pod("x"), "1", "4"))
    bigger = wanting(reservation("r"), "3", "5")["spec"]["template"]
    world.edit("Reservation", "r", spec__template=bigger)
    assert world.condition("r", "Resized")["message"] == "Insufficient cpu limit"
    world.delete("Pod", "x")
    assert world.condition("r", "Resized")["status"] == "True"
    assert sum_of_limits(world) == 5000


class Life:
    """Pods and reservations with limits come and go; after every step the sums are worked out anew by
    `LittleWorld`, and nowhere do they exceed what is allowed."""

    def __init__(self, choose: Chooser) -> None:
        self.choose = choose
        self.made = 0
        self.world = World(node("n0", cpu="8"), limited("n1", '{"cpu": 150}', "6"))

    def live(self, steps: int) -> None:
        for _ in range(steps):
            self.choose((self.come, self.come, self.reserve, self.go, self.restart, self.limit))()
            self.check()

    def _name(self, prefix: str) -> str:
        self.made += 1
        return f"{prefix}{self.made}"

    def come(self) -> None:
        name = self._name("p")
        limit = self.choose(("1", "2", "4", "7"))
        self.world.put(wanting(pod(name, app=self.choose(("a", "b"))), "1", limit))

    def reserve(self) -> None:
        once = self.choose((True, False))
        made = reservation(self._name("r"), allocateOnce=once, allocatePolicy="Aligned")
        self.world.put(wanting(made, self.choose(("1", "2")), self.choose(("2", "5"))))

    def go(self) -> None:
        there = [key for key in self.world.objects if key[0] in ("Pod", "Reservation")]
        if there:
            self.world.delete(*self.choose(sorted(there)))

    def restart(self) -> None:
        self.world.restart()
        self.world.settle()

    def limit(self) -> None:
        """Limits more of what is there only where that is allowed already."""
        if sum_of_limits(self.world) <= 8000:
            self.world.put(limited())

    def check(self) -> None:
        annotated = ANNOTATION in self.world.objects["Node", "n0"]["metadata"].get("annotations", {})
        assert sum_of_limits(self.world, "n1") <= 9000
        assert not annotated or sum_of_limits(self.world) <= 8000


@examples(30)
@given(st.data())
def test_limits_never_add_up_to_more_than_is_allowed(data: st.DataObject) -> None:
    Life(choosing(data.draw)).live(20)


def test_limits_never_add_up_to_more_than_is_allowed_in_many_lives() -> None:
    for seed in range(examples(40).max_examples):
        Life(seeded(seed)).live(30)
