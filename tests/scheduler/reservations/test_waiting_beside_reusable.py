"""A pre-allocation counts what reusable reservations have again when their owners have ended."""

from typing import Any

import pytest

from harness.device_objects import with_gpus
from harness.numa_objects import lsr, reserved
from harness.numa_objects import world as with_cpus
from harness.objects import Raw, node, pod, reservation
from harness.world import World

GPU = "koordinator.sh/gpu"


def _ahead(cpu: str = "6", **more: Any) -> Raw:
    return reservation("p", app="p", cpu=cpu, preAllocation=True, **more)


def _reusable(cpu: str = "6", **more: Any) -> Raw:
    return reservation("r", app="r", cpu=cpu, allocateOnce=False, **more)


def _template(name: str, cpu: str) -> Raw:
    template: Raw = reservation(name, app=name, cpu=cpu)["spec"]["template"]
    return template


def _daemon(name: str, app: str, cpu: str) -> Raw:
    owner = {"apiVersion": "apps/v1", "kind": "DaemonSet", "name": "d", "uid": "d", "controller": True}
    return pod(name, cpu=cpu, metadata={"labels": {"app": app}, "ownerReferences": [owner]})


def _limited(cpu: str) -> Raw:
    return {"containers": [{"name": "main", "image": "app", "resources": {"limits": {"cpu": cpu}}}]}


@pytest.fixture
def world() -> World:
    """n1 has 8 cpus, 6 of them reserved for r, whose owner uses them."""
    world = World(node("n1", cpu="8")).put(_reusable()).put(pod("owner", app="r", cpu="6"))
    assert world.reservation_of("owner") == "r"
    return world


def _goes_to_another_node(world: World) -> bool:
    """Whether p has no node, and takes one that comes."""
    before = world.status("p").get("nodeName", "")
    world.put(node("n2", cpu="8"))
    return not before and (world.phase("p"), world.status("p")["nodeName"]) == ("Available", "n2")


@pytest.mark.parametrize("others", [0, 4], ids=["row by row", "many rows at once"])
def test_it_does_not_wait_for_what_a_reusable_one_has_again(world: World, others: int) -> None:
    for i in range(others):
        world.put(node(f"other-{i}", cpu="1"))
    world.put(_ahead())
    assert world.condition("p", "Scheduled")["reason"] == "Unschedulable"
    world.delete("Pod", "owner")
    assert world.phase("r") == "Available"
    assert _goes_to_another_node(world)


def test_nor_after_a_restart(world: World) -> None:
    world.restart()
    world.settle().put(_ahead())
    world.restart()
    assert _goes_to_another_node(world.settle())


def test_two_owners_give_it_all_back() -> None:
    world = World(node("n1", cpu="8")).put(_reusable())
    world.put(pod("one", app="r", cpu="3"), pod("two", app="r", cpu="2")).put(_ahead("3"))
    assert _goes_to_another_node(world)


def test_an_owner_gives_no_more_back_than_it_took_from_the_reservation() -> None:
    world = World(node("n1", cpu="8")).put(_reusable("4")).put(pod("large", app="r", cpu="7"))
    assert world.reservation_of("large") == "r"
    world.put(_ahead("4"))
    assert world.phase("p") == "Waiting"
    world.delete("Pod", "large")
    assert (world.phase("p"), world.phase("r")) == ("Available", "Available")


def test_what_an_owner_that_never_ends_uses_is_counted_once() -> None:
    world = World(node("n1", cpu="8")).put(_reusable("4"))
    world.put(_daemon("agent", "r", "3"), pod("owner", app="r", cpu="1"), pod("other", cpu="4"))
    assert [world.reservation_of(name) for name in ("agent", "owner", "other")] == ["r", "r", ""]
    world.put(reservation("q", app="q", cpu="5", preAllocation=True), _ahead("4"))
    assert (world.phase("q"), world.phase("p")) == ("Pending", "Waiting")
    world.delete("Pod", "other").delete("Pod", "owner")
    assert world.phase("p") == "Available"


def test_it_waits_behind_the_owner_of_one_that_is_used_once() -> None:
    world = World(node("n1", cpu="8")).put(reservation("r", app="r", cpu="6"))
    world.put(pod("owner", app="r", cpu="6"), _ahead())
    assert (world.phase("r"), world.phase("p")) == ("Succeeded", "Waiting")
    world.delete("Pod", "owner")
    assert world.phase("p") == "Available"


@pytest.mark.parametrize("how", ["deleted", "expired", "made smaller"])
def test_it_waits_once_the_reusable_one_is(world: World, how: str) -> None:
    world.put(_ahead())
    assert world.phase("p") == "Pending"
    if how == "deleted":
        world.delete("Reservation", "r")
    elif how == "expired":
        world.wait(25 * 3600)
        world.edit("Reservation", "p", spec__ttl="0s")
    else:
        world.edit("Reservation", "r", spec__template=_template("r", "2"))
    if how == "expired":
        world.put(reservation("late", app="late", cpu="6", preAllocation=True))
        assert (world.phase("r"), world.phase("late")) == ("Failed", "Waiting")
    else:
        assert world.wait(60).phase("p") == "Waiting"
        world.delete("Pod", "owner")
        assert world.phase("p") == "Available"


def test_one_that_waits_does_not_grow_into_a_reusable_one() -> None:
    world = World(node("n1", cpu="8")).put(_reusable("4"))
    world.put(pod("owner", app="r", cpu="4"), pod("other", cpu="4")).put(_ahead("2"))
    assert world.phase("p") == "Waiting"
    world.edit("Reservation", "p", spec__template=_template("p", "5"))
    assert world.condition("p", "Resized")["message"] == "Insufficient cpu"
    world.edit("Reservation", "p", spec__template=_template("p", "4"))
    assert world.status("p")["allocatable"] == {"cpu": "4"}
    world.delete("Pod", "other")
    assert world.phase("p") == "Available"


def test_a_reusable_one_does_not_grow_into_one_that_waits() -> None:
    world = World(node("n1", cpu="8")).put(_reusable("4"))
    world.put(pod("owner", app="r", cpu="4"), pod("other", cpu="4")).put(_ahead("4"))
    world.edit("Reservation", "r", spec__template=_template("r", "5"))
    world.delete("Pod", "owner").delete("Pod", "other")
    assert (world.phase("p"), world.status("r")["allocatable"]) == ("Available", {"cpu": "4"})


def test_limits_come_back_with_it() -> None:
    limited = node("n1", cpu="16")
    half = {"node.koordinator.sh/limit-to-allocatable": '{"cpu": "50%"}'}
    limited["metadata"]["annotations"] = half
    world = World(limited)
    world.put(_reusable(template={"metadata": {"labels": {"app": "r"}}, "spec": _limited("6")}))
    owner = pod("owner", app="r")
    owner["spec"].update(_limited("6"))
    world.put(owner)
    assert world.reservation_of("owner") == "r"
    world.put(_ahead(template={"metadata": {"labels": {"app": "p"}}, "spec": _limited("6")}))
    assert _goes_to_another_node(world)


def test_a_victim_inside_a_reusable_one_frees_nothing_to_wait_for(world: World) -> None:
    world.graceful = True
    world.put(pod("urgent", app="r", cpu="6", priority=10)).put(_ahead())
    assert world.phase("p") == "Pending"
    world.delete("Pod", "owner")
    assert world.wait(11.0).reservation_of("urgent") == "r"
    assert _goes_to_another_node(world)


def test_gpus_come_back_with_it() -> None:
    world = with_gpus(2).put(_reusable(requests={GPU: "100"}))
    world.put(pod("owner", app="r", requests={GPU: "100"}), pod("other", requests={GPU: "100"}))
    assert [world.reservation_of("owner"), world.reservation_of("other")] == ["r", ""]
    world.put(_ahead(requests={GPU: "200"}))
    assert world.phase("p") == "Pending"
    world.put(reservation("q", app="q", requests={GPU: "100"}, preAllocation=True))
    assert world.phase("q") == "Waiting"
    world.delete("Pod", "owner")
    assert world.phase("q") == "Waiting"
    world.delete("Pod", "other")
    assert world.phase("q") == "Available"


def test_exclusive_cpus_come_back_with_it() -> None:
    world = with_cpus(cpus=8).put(reserved("r", "6", "web", allocateOnce=False))
    world.put(lsr("owner", "6", "web"), lsr("other", "2"))
    assert [world.reservation_of("owner"), world.reservation_of("other")] == ["r", ""]
    world.put(reserved("p", "4", "big", preAllocation=True))
    assert world.phase("p") == "Pending"
    world.put(reserved("q", "2", "small", preAllocation=True))
    assert world.phase("q") == "Waiting"
    world.delete("Pod", "owner")
    assert world.phase("q") == "Waiting"
    world.delete("Pod", "other")
    assert world.phase("q") == "Available"
