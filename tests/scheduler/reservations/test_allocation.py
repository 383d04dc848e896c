"""How much of what an owner asks for comes from its reservation, and what becomes of the rest."""

import pytest

from harness.objects import node, pod, reservation
from harness.world import World

RESERVED = {"cpu": "4", "memory": "4Gi"}
GI = 1024**3


def free(world: World, name: str = "n1") -> dict[str, int]:
    """What anyone can still have of a node."""
    cluster = world.scheduler.cluster
    row = cluster.nodes.row(name)
    assert row is not None
    left = cluster.ledger.free(row)
    return {resource: int(left[slot]) for slot, resource in cluster.nodes.slots.resources()}


@pytest.mark.parametrize(
    ("reserved", "asked", "cpu_left", "memory_left"),
    [
        pytest.param(RESERVED, RESERVED, 12000, 32 * 10**9 - 4 * GI, id="the same"),
        pytest.param(RESERVED, {"cpu": "4"}, 12000, 32 * 10**9, id="only the cpu of it"),
        pytest.param(RESERVED, {"cpu": "4", "memory": "1Gi"}, 12000, 32 * 10**9 - GI, id="less memory"),
        pytest.param(
            {"cpu": "4"}, {"cpu": "4", "memory": "1Gi"}, 12000, 32 * 10**9 - GI, id="memory too"
        ),
        pytest.param({"cpu": "4"}, {"cpu": "6"}, 10000, 32 * 10**9, id="more than is reserved"),
    ],
)
def test_an_owner_takes_what_is_reserved_and_the_rest_from_the_node(
    reserved: dict[str, str], asked: dict[str, str], cpu_left: int, memory_left: int
) -> None:
    world = World(node("n1"), reservation("r", requests=reserved))
    assert world.phase("r") == "Available"
    world.put(pod("owner", app="a", requests=asked))
    assert (world.node_of("owner"), world.reservation_of("owner")) == ("n1", "r")
    assert world.phase("r") == "Succeeded"
    assert world.owners("r") == ["owner"]
    assert (free(world)["cpu"], free(world)["memory"]) == (cpu_left, memory_left)


def test_two_owners_share_a_reusable_reservation() -> None:
    world = World(node("n1"), reservation("r", cpu="8", allocateOnce=False))
    world.put(pod("p1", app="a", cpu="4"), pod("p2", app="a", cpu="4"))
    assert [world.reservation_of(name) for name in ("p1", "p2")] == ["r", "r"]
    assert world.status("r")["allocated"] == {"cpu": "8"}
    assert world.owners("r") == ["p1", "p2"]
    assert free(world)["cpu"] == 8000


def test_what_two_owners_ask_beyond_the_reservation_comes_from_the_node() -> None:
    world = World(node("n1"), reservation("r", cpu="6", allocateOnce=False))
    world.put(pod("p1", app="a", cpu="4"), pod("p2", app="a", cpu="4"))
    assert [world.reservation_of(name) for name in ("p1", "p2")] == ["r", "r"]
    assert world.status("r")["allocated"] == {"cpu": "8"}
    assert free(world)["cpu"] == 8000


def test_non_owner_cannot_take_reserved_capacity() -> None:
    world = World(node("n1"), reservation("r", cpu="4"), pod("stranger", cpu="13"))
    assert world.node_of("stranger") == ""
    assert world.message("stranger").startswith("0/1 nodes are available: 1 Insufficient cpu.")
    world.put(pod("modest", cpu="4"))
    assert (world.node_of("modest"), world.reservation_of("modest")) == ("n1", "")
    assert free(world)["cpu"] == 8000


def test_what_an_owner_leaves_of_a_reservation_used_once_is_for_everyone() -> None:
    world = World(node("n1"), reservation("r", cpu="4"), pod("big", cpu="11"))
    world.put(pod("owner", app="a", cpu="2"))
    assert (world.reservation_of("owner"), world.phase("r")) == ("r", "Succeeded")
    world.put(pod("stranger", cpu="2"))
    assert world.node_of("stranger") == "n1"
    assert free(world)["cpu"] == 1000


def test_reservation_used_once_stays_used_when_its_owner_goes() -> None:
    world = World(node("n1"), reservation("r", cpu="4"), pod("owner", app="a", cpu="4"))
    world.delete("Pod", "owner")
    assert (world.phase("r"), world.owners("r")) == ("Succeeded", ["owner"])
    assert free(world)["cpu"] == 16000
    world.put(pod("owner", app="a", uid="another", cpu="4"))
    assert (world.node_of("owner"), world.reservation_of("owner")) == ("n1", "")


def test_reusable_reservation_gets_back_what_an_owner_leaves() -> None:
    world = World(node("n1"), reservation("r", cpu="8", allocateOnce=False))
    world.put(pod("p1", app="a", cpu="4"))
    assert world.status("r")["allocated"] == {"cpu": "4"}
    world.delete("Pod", "p1")
    assert (world.phase("r"), world.owners("r")) == ("Available", [])
    assert world.status("r").get("allocated", {}) == {}
    assert free(world)["cpu"] == 8000


@pytest.mark.parametrize("policy", ["", "Aligned"])
def test_owner_that_finds_nothing_left_is_an_ordinary_pod(policy: str) -> None:
    world = World(node("n1"), reservation("r", cpu="4", allocateOnce=False, allocatePolicy=policy))
    world.put(pod("p1", app="a", cpu="4"), pod("p2", app="a", cpu="4"))
    assert [world.reservation_of("p1"), world.reservation_of("p2")] == ["r", ""]
    assert world.node_of("p2") == "n1"


def test_only_one_of_two_owners_gets_a_reservation_used_once() -> None:
    world = World(node("n1", cpu="4"), reservation("r", cpu="4"))
    world.put(pod("p1", app="a", cpu="4"), pod("p2", app="a", cpu="4"))
    assert sorted(filter(None, (world.reservation_of("p1"), world.reservation_of("p2")))) == ["r"]


@pytest.mark.parametrize("others", [0, 1], ids=["alone on the node", "beside another"])
def test_a_second_owner_of_the_same_round_gets_nothing_of_a_reservation_used_once(others: int) -> None:
    more = [reservation(f"o{i}", app="nobody", cpu="1") for i in range(others)]
    world = World(node("n1", cpu="6"), reservation("r", cpu="4"), *more)
    world.put(pod("p1", app="a", cpu="1"), pod("p2", app="a", cpu="1"))
    assert sorted((world.reservation_of("p1"), world.reservation_of("p2"))) == ["", "r"]
    assert (world.node_of("p1"), world.node_of("p2")) == ("n1", "n1")


def test_a_refused_bind_gives_the_reservation_back() -> None:
    world = World(node("n1", cpu="4"), reservation("r", cpu="4"))
    world.refuse.add("pod-p1")
    world.put(pod("p1", app="a", cpu="4"))
    assert (world.phase("r"), world.node_of("p1")) == ("Available", "")
    world.wait(11)
    assert (world.phase("r"), world.reservation_of("p1")) == ("Succeeded", "r")


def test_allocated_lists_what_owners_ask_for() -> None:
    world = World(node("n1"), reservation("r", requests=RESERVED, allocateOnce=False))
    world.put(pod("p", app="a", cpu="1"))
    assert world.status("r")["allocated"] == {"cpu": "1"}
    world.put(pod("q", app="a", requests={"memory": "1Gi", "example.com/fpga": "0"}))
    assert world.status("r")["allocated"] == {"cpu": "1", "memory": "1Gi"}
