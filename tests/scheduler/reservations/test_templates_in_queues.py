"""Templates where pods wait in queues, and in gangs."""

from typing import Any

import pytest

from harness.objects import ID, Raw, node, pod, requesting, required, reservation
from harness.world import World

QUEUE = "scheduling.volcano.sh/queue-name"


def queue(name: str, **spec: Any) -> Raw:
    return {
        "apiVersion": "scheduling.volcano.sh/v1beta1",
        "kind": "Queue",
        "metadata": {"name": name, "uid": f"queue-{name}"},
        "spec": {"weight": 1, **spec},
    }


def guaranteed(cpu: str) -> Raw:
    return queue("g", guarantee={"resource": {"cpu": cpu}})


def queued(raw: Raw, name: str) -> Raw:
    raw["metadata"].setdefault("annotations", {})[QUEUE] = name
    return raw


def test_pods_in_queues_get_their_reservations() -> None:
    world = World(node("n1"), queue("q1"), queue("q2"))
    pods = [queued(requesting(f"p{i}", app=f"a{i % 2}", cpu="2"), f"q{i % 2 + 1}") for i in range(4)]
    world.put(*pods, queued(pod("plain", cpu="1"), "q1"))
    assert all(world.reservation_of(f"p{i}") for i in range(4))
    assert len(world.reservations()) == 4
    assert world.node_of("plain") == "n1"


def test_the_reservation_of_a_pod_in_a_queue_is_taken_up_after_a_restart() -> None:
    made = reservation("r", cpu="4", labels={ID: "abc"}, allocateOnce=False, allocatePolicy="Aligned")
    asked = queued(requesting("p", requirement=required("abc", cpu="4")), "q1")
    world = World(node("n1", cpu="4"), queue("q1"))
    world.put(made, asked)
    assert world.reservation_of("p") == "r"
    assert world.phase("r") == "Available"


def test_members_of_a_gang_are_placed_with_what_there_is() -> None:
    gang = {
        "gang.scheduling.koordinator.sh/name": "g",
        "gang.scheduling.koordinator.sh/min-available": "2",
    }
    members = [requesting(f"m{i}") for i in range(2)]
    for raw in members:
        raw["metadata"]["annotations"].update(gang)
    world = World(node("n1"), *members)
    assert [world.node_of(f"m{i}") for i in range(2)] == ["n1", "n1"]
    assert world.reservations() == []


# What is guaranteed to other queues


@pytest.mark.parametrize("name", ["", "q1", "g"])
@pytest.mark.parametrize("provisioner", ["builtin", "apart"])
def test_a_reservation_takes_no_more_than_the_virtual_one_it_replaces(
    name: str, provisioner: str
) -> None:
    asks = requesting("p", recommendedSize={"cpu": "8"})
    world = World(node("n1", cpu="12"), queue("q1"), guaranteed("2"), provisioner=provisioner)
    world.put(queued(asks, name) if name else asks)
    assert world.reservation_of("p")
    assert world.reserved("n1") == 7000


def test_a_larger_reservation_than_was_requested_takes_nothing_that_is_guaranteed() -> None:
    world = World(node("n1", cpu="4"), guaranteed("1"), provisioner="external")
    world.put(requesting("p", cpu="2"))
    (id,) = world.scheduler.cluster.virtuals.by_id
    world.put(reservation("large", cpu="4", labels={ID: id}))
    assert not world.node_of("p")
    world.delete("Reservation", "large").put(reservation("fits", cpu="3", labels={ID: id}))
    assert world.reservation_of("p") == "fits"


def test_a_pod_uses_the_reservation_it_requested_before_a_restart() -> None:
    """It need not match the owners."""
    made = reservation("r", cpu="3", labels={ID: "abc"})
    asked = requesting("p", cpu="3", labels={}, requirement=required("abc", cpu="3"))
    world = World(node("n1", cpu="4"), guaranteed("1"), made)
    assert world.phase("r") == "Available"
    assert world.put(asked).reservation_of("p") == "r"


@pytest.mark.parametrize(("size", "reserved"), [("10", 9000), ("11", 0)])
def test_no_size_is_reserved_that_is_guaranteed_to_others(size: str, reserved: int) -> None:
    world = World(node("n1", cpu="12"), guaranteed("2"))
    world.put(requesting("p", recommendedSize={"cpu": size}))
    assert world.node_of("p") == "n1"
    assert world.reserved("n1") == reserved
