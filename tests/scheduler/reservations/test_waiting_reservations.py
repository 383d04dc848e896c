"""Reservations that wait for room keep nobody from what is promised already, and get what comes."""

from typing import Any

import pytest

from harness.objects import Raw, node, pod, reservation
from harness.world import World


def _template(name: str, cpu: str) -> Raw:
    template: Raw = reservation(name, app=name, cpu=cpu)["spec"]["template"]
    return template


def _waiting(name: str, cpu: str, **more: Any) -> Raw:
    return reservation(name, app=name, cpu=cpu, preAllocation=True, **more)


@pytest.fixture
def world() -> World:
    """n has 8 cpus: 3 are used by `stays`, 3 by `goes`."""
    world = World(node("n", cpu="8"))
    return world.put(pod("stays", cpu="3"), pod("goes", cpu="3"))


@pytest.mark.parametrize("others", [0, 4], ids=["row by row", "many rows at once"])
def test_who_waits_keeps_no_owner_from_what_is_available(world: World, others: int) -> None:
    world.put(reservation("mine", app="mine", cpu="2", allocateOnce=False)).put(_waiting("later", "3"))
    assert (world.phase("mine"), world.phase("later")) == ("Available", "Waiting")
    for i in range(others):
        world.put(node(f"other-{i}", cpu="1"))
    world.put(pod("owner", app="mine", cpu="2"))
    assert (world.node_of("owner"), world.reservation_of("owner")) == ("n", "mine")
    world.delete("Pod", "goes")
    assert world.phase("later") == "Available"


def test_beyond_what_is_available_an_owner_gets_nothing_others_wait_for(world: World) -> None:
    world.put(reservation("mine", app="mine", cpu="2", allocateOnce=False)).put(_waiting("later", "3"))
    world.put(pod("owner", app="mine", cpu="3"))
    assert world.node_of("owner") == ""
    world.delete("Pod", "goes")
    assert world.phase("later") == "Available"
    assert world.node_of("owner") == ""


def test_nor_from_the_limits_that_go_with_it() -> None:
    ceiling = {"node.koordinator.sh/limit-to-allocatable": '{"cpu": "100%"}'}
    limited = node("n", cpu="8")
    limited["metadata"]["annotations"] = ceiling
    world = World(limited).put(pod("stays", cpu="3"), pod("goes", cpu="3"))
    world.put(reservation("mine", app="mine", cpu="2", allocateOnce=False)).put(_waiting("later", "3"))
    assert (world.phase("mine"), world.phase("later")) == ("Available", "Waiting")
    world.put(pod("owner", app="mine", cpu="2"))
    assert (world.node_of("owner"), world.reservation_of("owner")) == ("n", "mine")


def test_the_second_in_line_does_not_keep_the_firsts_owner_out(world: World) -> None:
    world.put(_waiting("first", "4"), _waiting("second", "4"))
    world.delete("Pod", "goes")
    assert (world.phase("first"), world.phase("second")) == ("Available", "Waiting")
    world.put(pod("owner", app="first", cpu="4"))
    assert (world.reservation_of("owner"), world.phase("first")) == ("first", "Succeeded")
    world.delete("Pod", "stays")
    assert world.phase("second") == "Available"


def test_one_that_is_made_small_enough_waits_no_more(world: World) -> None:
    world.put(_waiting("r", "4"))
    world.edit("Reservation", "r", spec__template=_template("r", "2"))
    assert (world.phase("r"), world.status("r")["allocatable"]) == ("Available", {"cpu": "2"})


def test_one_that_waits_does_not_grow_beyond_what_the_node_will_ever_have(world: World) -> None:
    world.put(_waiting("r", "4"), _waiting("s", "3"))
    world.edit("Reservation", "r", spec__template=_template("r", "6"))
    said = world.condition("r", "Resized")
    assert (said["status"], said["reason"], said["message"]) == (
        "False",
        "Unschedulable",
        "Insufficient cpu",
    )
    assert world.status("r")["allocatable"] == {"cpu": "4"}
    world.edit("Reservation", "r", spec__template=_template("r", "5"))
    assert (world.condition("r", "Resized")["status"], world.status("r")["allocatable"]) == (
        "True",
        {"cpu": "5"},
    )
    world.delete("Pod", "stays").delete("Pod", "goes")
    assert (world.phase("r"), world.phase("s")) == ("Available", "Available")


def test_what_one_gave_up_while_nobody_looked_falls_to_those_that_wait() -> None:
    world = World(node("n", cpu="8"))
    world.put(reservation("z", app="z", cpu="4"), pod("stays", cpu="2")).put(_waiting("later", "4"))
    assert world.phase("later") == "Waiting"
    known = world.objects.pop(("Reservation", "z"))
    known["spec"]["template"] = _template("z", "1")
    world.objects["Reservation", "z"] = known  # seen after the one that waits
    world.restart()
    world.settle()
    assert world.phase("later") == "Available"


def test_a_preemptor_does_not_wait_for_the_victims_of_another() -> None:
    world = World(node("n", cpu="8"))
    world.graceful = True
    world.put(pod("low-1", cpu="4")).put(pod("low-2", cpu="4"))
    world.put(pod("high-1", cpu="4", priority=10)).put(pod("high-2", cpu="4", priority=10))
    rooms = [name for kind, name in world.objects if kind == "Reservation"]
    assert [world.phase(room) for room in rooms] == ["Waiting", "Waiting"]
    world.delete("Pod", "low-2").wait(11.0)
    assert [world.node_of("high-1"), world.node_of("high-2")] == ["n", ""]
    world.delete("Pod", "low-1").wait(11.0)
    assert world.node_of("high-2") == "n"
