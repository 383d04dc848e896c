"""A reserved device that is no longer offered is replaced by another of the node, if one is free."""

from collections.abc import Iterable
from typing import Any

import pytest

from harness.device_objects import device, gpu, minors, with_gpus
from harness.objects import Raw, pod, reservation
from harness.world import World

GPU = "koordinator.sh/gpu"


def wants(name: str, percent: int, app: str = "", **more: Any) -> Raw:
    return pod(name, app=app, requests={GPU: str(percent)}, **more)


def sick(world: World, count: int, which: Iterable[int]) -> World:
    """The node's GPUs, of which these are not healthy."""
    world.shrinking = True
    gpus = [gpu(minor, health=minor not in which, numa=minor * 2 // count) for minor in range(count)]
    return world.put(device("n1", *gpus))


def gone(world: World, count: int, which: Iterable[int]) -> World:
    world.shrinking = True
    gpus = [gpu(minor, numa=minor * 2 // count) for minor in range(count) if minor not in which]
    return world.put(device("n1", *gpus))


@pytest.mark.parametrize("loses", [sick, gone])
@pytest.mark.parametrize("restarts", [False, True])
def test_the_owner_gets_another_gpu_through_its_reservation(loses: Any, restarts: bool) -> None:
    world = with_gpus(2).put(reservation("r", app="own", requests={GPU: "100"}))
    (held,) = minors(world, "r", "Reservation")
    loses(world, 2, [held])
    if restarts:
        world.restart()
        world.settle()
    assert minors(world, "r", "Reservation") == [1 - held]
    world.put(wants("stranger", 100), wants("o", 100, "own"))
    assert (world.node_of("stranger"), world.reservation_of("o")) == ("", "r")
    assert minors(world, "o") == [1 - held]


def test_others_get_the_rest() -> None:
    world = with_gpus(3).put(reservation("r", app="own", requests={GPU: "100"}))
    (held,) = minors(world, "r", "Reservation")
    sick(world, 3, [held]).put(wants("a", 100), wants("b", 100), wants("o", 100, "own"))
    assert sorted([*minors(world, "a"), *minors(world, "o")]) == sorted({0, 1, 2} - {held})
    assert world.node_of("b") == ""


def test_without_another_it_waits_for_one_to_become_free() -> None:
    world = with_gpus(2).put(reservation("r", app="own", requests={GPU: "100"}), wants("a", 100))
    (held,) = minors(world, "r", "Reservation")
    sick(world, 2, [held]).put(wants("o", 100, "own"))
    assert (minors(world, "r", "Reservation"), world.node_of("o")) == ([held], "")
    world.delete("Pod", "a").wait(30)
    assert world.reservation_of("o") == "r"
    assert minors(world, "o") == [1 - held]


def test_one_that_is_healthy_again_serves_the_owner() -> None:
    world = with_gpus(1).put(reservation("r", app="own", requests={GPU: "100"}))
    sick(world, 1, [0]).put(wants("o", 100, "own"))
    assert world.node_of("o") == ""
    sick(world, 1, []).wait(30)
    assert (world.reservation_of("o"), minors(world, "o")) == ("r", [0])


def test_what_an_owner_uses_stays_its_own() -> None:
    world = with_gpus(4).put(reservation("r", app="own", requests={GPU: "200"}, allocateOnce=False))
    held = minors(world, "r", "Reservation")
    world.put(wants("o", 100, "own"))
    (used,) = minors(world, "o")
    (unused,) = set(held) - {used}
    sick(world, 4, [unused])
    kept, replacement = minors(world, "r", "Reservation")
    assert used in (kept, replacement) and unused not in (kept, replacement)
    world.put(*[wants(f"s{i}", 100) for i in range(3)], wants("o2", 100, "own"))
    assert world.reservation_of("o2") == "r" and minors(world, "o2") == [
        *({kept, replacement} - {used})
    ]
    assert [bool(world.node_of(f"s{i}")) for i in range(3)] == [True, False, False]


def test_a_used_gpu_that_becomes_unhealthy_is_not_replaced() -> None:
    world = with_gpus(2).put(reservation("r", app="own", requests={GPU: "100"}, allocateOnce=False))
    world.put(wants("o", 60, "own"))
    (used,) = minors(world, "o")
    sick(world, 2, [used])
    assert minors(world, "r", "Reservation") == [used] and minors(world, "o") == [used]


@pytest.mark.parametrize("ill", [0, 1])
def test_a_waiting_reservation_waits_for_a_healthy_one(ill: int) -> None:
    world = with_gpus(2).put(wants("a", 100), wants("b", 100))
    world.put(reservation("r", app="own", requests={GPU: "100"}, preAllocation=True))
    on_it, other = sorted("ab", key=lambda name: minors(world, name) != [ill])
    sick(world, 2, [ill]).delete("Pod", on_it)
    assert (world.phase("r"), minors(world, "r", "Reservation")) == ("Waiting", [])
    world.delete("Pod", other)
    assert (world.phase("r"), minors(world, "r", "Reservation")) == ("Available", [1 - ill])
