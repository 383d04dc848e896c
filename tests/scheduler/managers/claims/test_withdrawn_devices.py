"""Devices that are withdrawn, tainted or published again between the decision and the write: for
reservations that wait for them, for pods that wait in Permit, and for the claims that hold them."""

from __future__ import annotations

from typing import Any

import pytest

from harness.claim_objects import (
    claim_template,
    claiming_pod,
    device,
    device_class,
    devices_of,
    generated,
    gpus,
    request,
    resource_claim,
    resource_slice,
)
from harness.objects import Raw, node, reservation
from harness.permit_gate import Gate
from harness.world import World
from scheduler.managers.claims.test_held_devices import end, holders, put, reserved
from scheduler.managers.claims.test_holder_claims import holder, name_of, problem

TAINT = {"key": "sick", "effect": "NoSchedule"}


def waiting(count: int = 1, users: int = 3, **world: Any) -> World:
    """A reservation of some of three devices, all or some of which pods use; it waits for them."""
    objects = reserved(count=count, preAllocation=True, allocateOnce=False)
    made = World(*objects[:-1], **world)
    for i in range(users):
        assert put(made, f"u{i}", app="x") == [f"n1/gpu-{i}"]
    made.put(objects[-1])
    assert made.phase("r") == "Waiting"
    return made


def publish(world: World, *devices: Raw, generation: int = 1, slices: int = 1) -> None:
    made = resource_slice("n1", devices)
    made["spec"]["pool"] |= {"generation": generation, "resourceSliceCount": slices}
    world.put(made)


def held(world: World) -> list[str]:
    """The devices in the claims of reservations."""
    return [each for claim in holders(world) for each in devices_of(claim)]


# Reservations that wait


@pytest.mark.parametrize("restarts", [False, True])
def test_a_withdrawn_device_is_not_held_when_it_is_released(restarts: bool) -> None:
    world = waiting(count=3)
    publish(world, *gpus(2))
    if restarts:
        world.restart()
        world.settle()
    assert "cannot allocate all claims" in problem(world)
    for i in range(3):
        end(world, f"u{i}")
    assert world.phase("r") == "Waiting"
    assert "n1/gpu-2" not in held(world)
    publish(world, *gpus(3), generation=2)
    assert world.phase("r") == "Available"
    assert sorted(held(world)) == ["n1/gpu-0", "n1/gpu-1", "n1/gpu-2"]
    assert problem(world) == ""


def test_a_reservation_waits_for_another_device_than_a_withdrawn_one() -> None:
    world = waiting()
    publish(world, device("gpu-1"), device("gpu-2"))
    assert problem(world) == ""
    end(world, "u0")
    assert world.phase("r") == "Waiting"
    end(world, "u1")
    assert world.phase("r") == "Available"
    assert held(world) == ["n1/gpu-1"]


@pytest.mark.parametrize("user", ["u0", "u1", "u2"])
def test_a_reservation_takes_whichever_device_is_released_first(user: str) -> None:
    world = waiting()
    end(world, user)
    assert world.phase("r") == "Available"
    assert held(world) == [f"n1/gpu-{user[1:]}"]
    assert put(world, "p") == [f"n1/gpu-{user[1:]}"]


def test_a_reservation_does_not_take_the_device_another_one_waits_for() -> None:
    world = waiting(users=3)
    entries = [{"name": "gpu", "resourceClaimTemplateName": "gpus"}]
    young = reservation("young", cpu="1", pod={"resourceClaims": entries}, preAllocation=True)
    world.put(young)
    end(world, "u0")
    assert [world.phase(each) for each in ("r", "young")] == ["Available", "Waiting"]
    end(world, "u2")
    assert world.phase("young") == "Available"
    assert sorted(held(world)) == ["n1/gpu-0", "n1/gpu-2"]


def test_a_reservation_does_not_become_available_with_a_tainted_device() -> None:
    world = waiting(count=3)
    publish(world, device("gpu-0"), device("gpu-1"), device("gpu-2", taints=[TAINT]))
    for i in range(3):
        end(world, f"u{i}")
    assert world.phase("r") == "Waiting"
    publish(world, *gpus(3))
    assert world.phase("r") == "Available"


def test_a_reservation_waits_for_its_class() -> None:
    world = waiting(count=3)
    world.delete("DeviceClass", "gpu")
    assert "device class gpu does not exist" in problem(world)
    for i in range(3):
        end(world, f"u{i}")
    assert world.phase("r") == "Waiting"
    world.put(device_class())
    assert world.phase("r") == "Available"


@pytest.mark.parametrize("generation", [1, 2])
def test_a_slice_that_is_deleted_and_back_at_once_changes_nothing(generation: int) -> None:
    world = waiting(count=2, users=2)
    assert held(world) == ["n1/gpu-2"]
    world.delete("ResourceSlice", "n1-slice")
    assert held(world) == ["n1/gpu-2"]
    publish(world, *gpus(3), generation=generation)
    end(world, "u1")
    assert world.phase("r") == "Available"
    assert sorted(held(world)) == ["n1/gpu-1", "n1/gpu-2"]


def test_devices_that_the_node_cannot_use_any_more_are_not_waited_for() -> None:
    in_zone = {"key": "zone", "operator": "In", "values": ["a"]}
    far = resource_slice(
        "",
        [device("net-0")],
        driver="net.example.com",
        nodeSelector={"nodeSelectorTerms": [{"matchExpressions": [in_zone]}]},
    )
    entries = [{"name": "net", "resourceClaimTemplateName": "nets"}]
    made = World(
        device_class("net"),
        node("n1", labels={"zone": "a"}),
        far,
        claim_template("nets", request(of="net")),
        resource_claim("c", request(of="net")),
        claiming_pod("u", "c", app="x"),
    )
    made.put(reservation("r", cpu="1", pod={"resourceClaims": entries}, preAllocation=True))
    assert made.phase("r") == "Waiting"
    made.edit("Node", "n1", metadata__labels={"zone": "b"})
    assert "cannot allocate all claims" in problem(made)
    made.delete("Pod", "u").delete("ResourceClaim", "c")
    assert made.phase("r") == "Waiting"
    assert held(made) == []
    made.edit("Node", "n1", metadata__labels={"zone": "a"})
    assert held(made) == ["everywhere/net-0"]
    assert made.phase("r") == "Available"


def test_a_deleted_claim_of_a_waiting_reservation_is_created_again() -> None:
    world = waiting(count=2, users=2)
    world.delete("ResourceClaim", name_of(world))
    assert world.phase("r") == "Waiting"
    assert held(world) == ["n1/gpu-2"]
    end(world, "u0")
    assert world.phase("r") == "Available"


def test_a_plan_that_stays_the_same_is_not_written() -> None:
    world = waiting(count=2, users=2)
    cluster = world.scheduler.cluster
    pod = cluster.reservations.known["rsv-r"].pod
    assert pod is not None
    (key,) = cluster.claims.held.of("rsv-r")
    planned = cluster.claims.held.get(key)
    assert planned is not None
    cluster.claims._create_again(pod, cluster.claims.entries_to_hold(pod), [planned.held])
    world.check()
    assert cluster.claims.decisions == []
    assert not cluster.claims.is_in_flight(pod)


@pytest.mark.parametrize("writes", range(1, 7))
def test_a_restart_at_any_write_while_other_devices_are_planned(writes: int) -> None:
    world = waiting(count=2, users=2)
    world.restart_after = world.writes + writes
    publish(world, device("gpu-1"), device("gpu-2"))
    end(world, "u0")
    assert world.phase("r") == "Waiting"
    end(world, "u1")
    world.settle()
    assert world.phase("r") == "Available"
    assert sorted(held(world)) == ["n1/gpu-1", "n1/gpu-2"]


@pytest.mark.parametrize("count", [1, 2, 3])
def test_a_claim_that_is_deleted_with_a_finalizer_is_created_again(count: int) -> None:
    world = World(*reserved(count=count, allocateOnce=False))
    name = name_of(world)
    world.edit("ResourceClaim", name, metadata__deletionTimestamp="2026-01-01T00:00:00Z")
    world.edit("ResourceClaim", name, status={})
    assert put(world, "other", count=4 - count, app="x") == []
    world.delete("ResourceClaim", name)
    assert held(world) == [f"n1/gpu-{i}" for i in range(count)]


@pytest.mark.parametrize("restarts", [False, True])
def test_a_claim_without_its_annotation_is_deleted_with_its_reservation(restarts: bool) -> None:
    world = World(*reserved(allocateOnce=False))
    world.claim_refusal = "no"
    world.edit("ResourceClaim", name_of(world), metadata__annotations={})
    world.delete("Reservation", "r")
    if restarts:
        world.restart()
    world.wait(10)
    world.claim_refusal = ""
    world.wait(100)
    assert holders(world) == []
    assert put(world, "other", count=3, app="x") != []


def test_owners_do_not_get_devices_of_a_claim_that_somebody_reserved() -> None:
    world = World(*reserved(allocateOnce=False))
    name, status = name_of(world), dict(holder(world)["status"])
    status["reservedFor"] = [{"resource": "pods", "name": "mine", "uid": "mine"}]
    world.edit("ResourceClaim", name, status=status)
    assert problem(world) == f"claim {name} is reserved for pods/mine: its devices are not for owners"
    assert put(world, "p") == ["n1/gpu-2"]
    assert put(world, "q") == []
    world.restart()
    world.wait(30)
    assert world.node_of("q") == ""
    world.edit("ResourceClaim", name, status={**status, "reservedFor": []})
    assert devices_of(world.objects["ResourceClaim", "q-gpu"]) == ["n1/gpu-0"]
    assert held(world) == ["n1/gpu-1"]
    assert problem(world) == ""


@pytest.mark.parametrize("app", ["a", "x"])
def test_a_pod_cannot_name_the_claim_of_a_reservation(app: str) -> None:
    world = World(*reserved(allocateOnce=False))
    world.put(claiming_pod("thief", name_of(world), app=app))
    text = f'resourceclaim "{name_of(world)}" holds devices of reservation "r" and is not for pods'
    world.wait(60)
    assert world.scheduler.cluster.pods["pod-thief"].cls.claims[0].problem == text
    assert world.node_of("thief") == ""


def test_a_reservation_cannot_name_the_claim_of_another() -> None:
    world = World(*reserved(allocateOnce=False))
    entries = [{"name": "gpu", "resourceClaimName": name_of(world)}]
    world.put(reservation("thief", cpu="1", pod={"resourceClaims": entries}))
    assert world.phase("thief") in ("", "Pending")
    assert "is not for pods" in world.condition("thief", "Scheduled")["message"]


# Reservations that are Available


GONE = "devices of the entry gpu are no longer published: gpu.example.com/n1/gpu-0"


def test_a_withdrawn_device_of_an_owner_is_replaced_once_the_owner_has_ended() -> None:
    world = World(*reserved(allocateOnce=False))
    assert put(world, "p") == ["n1/gpu-0"]
    publish(world, device("gpu-1"), device("gpu-2"))
    assert held(world) == ["n1/gpu-1"]
    assert problem(world) == GONE
    end(world, "p")
    assert sorted(held(world)) == ["n1/gpu-1", "n1/gpu-2"]
    assert problem(world) == ""
    assert put(world, "other", app="x") == []


def test_a_withdrawn_device_that_is_held_is_replaced() -> None:
    world = World(*reserved(allocateOnce=False))
    publish(world, device("gpu-1"), device("gpu-2"))
    assert sorted(held(world)) == ["n1/gpu-1", "n1/gpu-2"]
    assert problem(world) == ""
    assert put(world, "p", count=2) == ["n1/gpu-1", "n1/gpu-2"]


@pytest.mark.parametrize("writes", range(1, 5))
def test_a_restart_at_any_write_while_a_withdrawn_device_is_replaced(writes: int) -> None:
    world = World(*reserved(allocateOnce=False))
    world.restart_after = world.writes + writes
    publish(world, device("gpu-1"), device("gpu-2"))
    world.settle()
    assert sorted(held(world)) == ["n1/gpu-1", "n1/gpu-2"]
    assert (world.phase("r"), problem(world)) == ("Available", "")


def test_a_withdrawn_device_without_another_is_reported_until_it_is_published() -> None:
    world = World(*reserved(allocateOnce=False))
    assert put(world, "other", app="x") == ["n1/gpu-2"]
    publish(world, device("gpu-1"), device("gpu-2"))
    assert held(world) == ["n1/gpu-0", "n1/gpu-1"]
    assert (world.phase("r"), problem(world)) == ("Available", GONE)
    publish(world, *gpus(3), generation=2)
    assert held(world) == ["n1/gpu-0", "n1/gpu-1"]
    assert problem(world) == ""


def test_a_withdrawn_device_is_replaced_by_one_that_is_released() -> None:
    world = World(*reserved(allocateOnce=False))
    assert put(world, "other", app="x") == ["n1/gpu-2"]
    publish(world, device("gpu-1"), device("gpu-2"))
    end(world, "other")
    assert sorted(held(world)) == ["n1/gpu-1", "n1/gpu-2"]
    assert problem(world) == ""


def test_devices_of_an_incomplete_pool_come_back_once_it_is_complete() -> None:
    world = World(*reserved(allocateOnce=False))
    assert put(world, "p") == ["n1/gpu-0"]
    publish(world, *gpus(3), slices=2)
    end(world, "p")
    assert held(world) == ["n1/gpu-1"]
    publish(world, *gpus(3))
    assert sorted(held(world)) == ["n1/gpu-0", "n1/gpu-1"]


# Pods that wait in Permit


def gate(world: World) -> Gate:
    found = world.scheduler.profiles[0].plugins["Gate"]
    assert isinstance(found, Gate)
    return found


def gated(*objects: Raw) -> World:
    listed = [device_class(), node("n1"), resource_slice("n1", 2), *objects]
    return World(*listed, plugins=(Gate,))


@pytest.mark.parametrize(
    "change",
    [
        resource_slice("n1", [device("gpu-1")]),
        resource_slice("n1", [device("gpu-0", taints=[TAINT]), device("gpu-1")]),
    ],
    ids=["withdrawn", "tainted"],
)
def test_a_pod_that_waits_gets_other_devices(change: Raw) -> None:
    world = gated()
    assert put(world, "p") == []
    world.put(change)
    gate(world).is_open = True
    world.wait(60)
    assert devices_of(world.objects["ResourceClaim", "p-gpu"]) == ["n1/gpu-1"]
    assert world.node_of("p") == "n1"


def test_a_pod_that_waits_is_rejected_when_its_devices_are_withdrawn() -> None:
    world = gated()
    pod, claim = generated("p", request("r", 2))
    world.put(claim, pod)
    assert gate(world).held == {"p"}
    world.put(resource_slice("n1", [device("gpu-1")]))
    assert gate(world).held == set()
    gate(world).is_open = True
    world.wait(60)
    assert world.node_of("p") == ""
    assert devices_of(world.objects["ResourceClaim", "p-gpu"]) == []


def test_a_pod_that_waits_is_rejected_when_the_class_is_deleted() -> None:
    world = gated()
    assert put(world, "p") == []
    world.delete("DeviceClass", "gpu")
    gate(world).is_open = True
    world.wait(60)
    assert world.node_of("p") == ""
    assert devices_of(world.objects["ResourceClaim", "p-gpu"]) == []


def test_a_pod_that_waits_keeps_its_devices_when_others_change() -> None:
    world = gated()
    assert put(world, "p") == []
    world.put(resource_slice("n1", [device("gpu-0"), device("gpu-7")]))
    assert gate(world).held == {"p"}
    gate(world).is_open = True
    world.wait(1)
    assert devices_of(world.objects["ResourceClaim", "p-gpu"]) == ["n1/gpu-0"]


def test_a_reservation_keeps_the_device_of_an_owner_that_waits() -> None:
    entries = [{"name": "gpu", "resourceClaimTemplateName": "gpus"}]
    world = gated(claim_template("gpus", request()))
    world.put(reservation("free-r", cpu="1", pod={"resourceClaims": entries}, allocateOnce=False))
    assert held(world) == ["n1/gpu-0"]
    assert put(world, "p") == []
    assert gate(world).held >= {"p"}
    world.wait(5)
    assert held(world) == ["n1/gpu-0"], "no claim would have the device"
    gate(world).is_open = True
    world.wait(1)
    assert devices_of(world.objects["ResourceClaim", "p-gpu"]) == ["n1/gpu-0"]
    assert devices_of(holder(world)) == []


def test_a_pod_whose_claim_is_deleted_while_it_waits_is_not_placed_with_it_again() -> None:
    slow = device("gpu-0", bindingConditions=["attached"], bindingFailureConditions=["broken"])
    world = World(device_class(), node("n1"), resource_slice("n1", [slow]))
    world.put(resource_claim("c", request()), claiming_pod("p", "c"))
    assert devices_of(world.objects["ResourceClaim", "c"]) == ["n1/gpu-0"]
    being_deleted = "2026-01-01T00:00:00Z"
    world.edit("ResourceClaim", "c", metadata__deletionTimestamp=being_deleted)
    world.wait(30)
    assert world.message("p") == 'resourceclaim "c" is being deleted'
    assert "reservedFor" not in world.objects["ResourceClaim", "c"]["status"]
    pod = world.scheduler.cluster.pods["pod-p"]
    assert pod.cls.claims[0].problem == 'resourceclaim "c" is being deleted'


def test_pods_that_share_a_claim_do_not_get_a_held_device_before_it_is_released() -> None:
    entries = [{"name": "gpu", "resourceClaimTemplateName": "gpus"}]
    world = World(
        node("n1"),
        resource_slice("n1", 2),
        claim_template("gpus", request()),
        reservation("r", cpu="1", pod={"resourceClaims": entries}),
        resource_claim("shared", request()),
        claiming_pod("p", "shared", app="a"),
        claiming_pod("q", "shared", app="a"),
    )

    def check() -> None:
        claims = [raw for (kind, _), raw in world.objects.items() if kind == "ResourceClaim"]
        devices = [each for raw in claims for each in devices_of(raw)]
        assert len(devices) == len(set(devices)), devices

    world.after_each = check
    world.put(device_class())
    world.wait(30)
    assert [world.node_of(each) for each in ("p", "q")] == ["n1", "n1"]
