"""The claims with which reservations hold devices: whatever happens to one, the devices stay held, or
the reservation says why not."""

from __future__ import annotations

from typing import Any

import pytest

from harness.claim_objects import (
    claim_template,
    claiming_pod,
    device_class,
    devices_of,
    request,
    resource_claim,
    resource_slice,
)
from harness.objects import Raw, node, reservation
from harness.world import World
from holdfast.api.quantity import whole
from scheduler.managers.claims.test_held_devices import end, holders, put, reserved

HELD = "holdfast.io/held-devices"


def problem(world: World, name: str = "r") -> str:
    """Of the condition DevicesHeld, if it is False."""
    found = world.condition(name, "DevicesHeld")
    return str(found["message"]) if found.get("status") == "False" else ""


def warned(world: World) -> list[str]:
    return [each.reason for each in world.events if each.about.kind == "Reservation"]


def holder(world: World) -> Raw:
    (found,) = holders(world)
    return found


def name_of(world: World) -> str:
    return str(holder(world)["metadata"]["name"])


def test_a_deleted_claim_is_created_again_with_the_same_devices() -> None:
    world = World(*reserved(allocateOnce=False))
    assert put(world, "p") == ["n1/gpu-0"]
    name = name_of(world)
    world.delete("ResourceClaim", name)
    assert name_of(world) == name
    assert devices_of(holder(world)) == ["n1/gpu-1"]
    assert put(world, "other", app="x", count=2) == []
    end(world, "p")
    assert devices_of(holder(world)) == ["n1/gpu-0", "n1/gpu-1"]
    assert problem(world) == ""


@pytest.mark.parametrize("text", ["", "{", None])
def test_a_claim_that_was_edited_is_brought_in_line(text: str | None) -> None:
    world = World(*reserved(allocateOnce=False))
    annotations = {} if text is None else {HELD: text}
    world.edit("ResourceClaim", name_of(world), metadata__annotations=annotations)
    assert devices_of(holder(world)) == ["n1/gpu-0", "n1/gpu-1"]
    assert HELD in holder(world)["metadata"]["annotations"]
    assert put(world, "p", count=2) == ["n1/gpu-0", "n1/gpu-1"]


def test_a_claim_that_was_deallocated_is_allocated_again() -> None:
    world = World(*reserved(allocateOnce=False))
    world.edit("ResourceClaim", name_of(world), status={})
    assert devices_of(holder(world)) == ["n1/gpu-0", "n1/gpu-1"]


def test_a_claim_without_its_reservation_is_found_after_a_restart() -> None:
    world = World(*reserved(allocateOnce=False))
    del world.objects["ResourceClaim", name_of(world)]
    world.restart()
    world.settle()
    assert devices_of(holder(world)) == ["n1/gpu-0", "n1/gpu-1"]


def test_devices_that_another_scheduler_took_are_reported() -> None:
    world = World(*reserved(allocateOnce=False))
    name = name_of(world)
    taken = resource_claim("foreign", request("r", 2), allocation=_allocation("gpu-0", "gpu-1"))
    raw = world.objects.pop(("ResourceClaim", name))
    world.objects["ResourceClaim", "foreign"] = taken
    taken["metadata"]["uid"] = "foreign"
    assert raw
    world.restart()
    world.settle()
    assert holders(world) == []
    assert problem(world) == "devices of the entry gpu are not held: cannot allocate all claims"
    assert "DevicesNotHeld" in warned(world)
    world.delete("ResourceClaim", "foreign")
    assert devices_of(holder(world)) == ["n1/gpu-0", "n1/gpu-1"]
    assert problem(world) == ""
    assert world.condition("r", "DevicesHeld")["status"] == "True"
    assert "DevicesHeld" in warned(world)


def _allocation(*devices: str) -> Raw:
    results = [
        {"request": "r", "driver": "gpu.example.com", "pool": "n1", "device": each} for each in devices
    ]
    return {"devices": {"results": results}}


def test_a_reservation_is_not_available_before_its_claim_is_written() -> None:
    *objects, wanted = reserved()
    world = World(*objects)
    world.claim_refusal = "exceeded quota"
    world.put(wanted)
    assert world.phase("r") in ("", "Pending")
    assert holders(world) == []
    assert world.condition("r", "Scheduled")["status"] == "False"
    assert put(world, "other", app="x") == ["n1/gpu-0"]
    world.claim_refusal = ""
    world.wait(30)
    assert world.phase("r") == "Available"
    assert devices_of(holder(world)) == ["n1/gpu-1", "n1/gpu-2"]


def test_a_refused_write_is_tried_again_and_reported() -> None:
    world = World(*reserved(allocateOnce=False))
    name = name_of(world)
    world.claim_refusal = "admission webhook denied the request"
    world.delete("ResourceClaim", name)
    assert holders(world) == []
    assert problem(world) == f"claim default/{name} is not written: {world.claim_refusal}"
    assert "DevicesNotHeld" in warned(world)
    world.wait(20)
    world.claim_refusal = ""
    world.wait(70)
    assert devices_of(holder(world)) == ["n1/gpu-0", "n1/gpu-1"]
    assert problem(world) == ""


def test_devices_of_an_owner_come_back_although_a_write_is_refused() -> None:
    world = World(*reserved(allocateOnce=False))
    assert put(world, "p") == ["n1/gpu-0"]
    world.claim_refusal = "forbidden"
    end(world, "p")
    assert devices_of(holder(world)) == ["n1/gpu-1"]
    assert put(world, "other", app="x", count=2) == []
    assert "forbidden" in problem(world)
    world.claim_refusal = ""
    world.wait(70)
    assert devices_of(holder(world)) == ["n1/gpu-0", "n1/gpu-1"]
    assert problem(world) == ""


def test_a_refused_deletion_is_tried_again() -> None:
    world = World(*reserved(allocateOnce=False))
    world.claim_refusal = "forbidden"
    world.delete("Reservation", "r")
    assert len(holders(world)) == 1
    world.claim_refusal = ""
    world.wait(70)
    assert holders(world) == []
    assert put(world, "other", app="x", count=3) != []


@pytest.mark.parametrize("writes", range(1, 8))
def test_a_restart_at_any_write_while_a_claim_is_replaced(writes: int) -> None:
    world = World(*reserved(allocateOnce=False))
    assert put(world, "p") == ["n1/gpu-0"]
    world.restart_after = world.writes + writes
    world.delete("ResourceClaim", name_of(world))
    world.settle()
    assert devices_of(holder(world)) == ["n1/gpu-1"]
    end(world, "p")
    world.settle()
    assert devices_of(holder(world)) == ["n1/gpu-0", "n1/gpu-1"]


# Entries that name a claim


def named(*more: Raw, **spec: Any) -> list[Raw]:
    entries = [{"name": "gpu", "resourceClaimName": "shared"}]
    return [
        device_class(),
        node("n1"),
        resource_slice("n1", 3),
        *more,
        reservation("r", cpu="1", pod={"resourceClaims": entries}, **spec),
    ]


def test_an_entry_that_names_a_claim_holds_what_the_claim_requests() -> None:
    world = World(*named(resource_claim("shared", request("r", 2)), allocateOnce=False))
    assert devices_of(holder(world)) == ["n1/gpu-0", "n1/gpu-1"]
    assert put(world, "other", app="x", count=2) == []
    world.put(claiming_pod("p", "shared", app="a"))
    assert devices_of(world.objects["ResourceClaim", "shared"]) == ["n1/gpu-0", "n1/gpu-1"]
    assert world.reservation_of("p") == "r"
    assert devices_of(holder(world)) == []


def test_a_reservation_waits_for_the_claim_it_names() -> None:
    world = World(*named())
    assert (
        'could not find ResourceClaim "default/shared"' in world.condition("r", "Scheduled")["message"]
    )
    world.put(resource_claim("shared"))
    assert world.wait(30).phase("r") == "Available"
    assert devices_of(holder(world)) == ["n1/gpu-0"]


def test_a_named_claim_that_is_allocated_needs_no_devices_until_it_is_released() -> None:
    used = resource_claim("shared", allocation=_allocation("gpu-2"), reserved_for=["user"])
    user = claiming_pod("user", "shared", app="x")
    user["spec"]["nodeName"] = "n1"
    user["status"] = {"phase": "Running"}
    world = World(*named(used, user, allocateOnce=False))
    assert world.phase("r") == "Available"
    assert holders(world) == []
    world.delete("Pod", "user")
    world.edit("ResourceClaim", "shared", status={})
    assert len(devices_of(holder(world))) == 1


# Pre-allocation


def test_a_pre_allocation_waits_for_devices_of_running_pods() -> None:
    objects = reserved(count=3, preAllocation=True, allocateOnce=False)
    world = World(*objects[:-1])
    assert put(world, "old", app="x") == ["n1/gpu-0"]
    world.put(objects[-1])
    assert world.phase("r") == "Waiting"
    assert devices_of(holder(world)) == ["n1/gpu-1", "n1/gpu-2"]
    assert put(world, "other", app="x") == []
    world.restart()
    world.settle()
    assert devices_of(holder(world)) == ["n1/gpu-1", "n1/gpu-2"]
    end(world, "old")
    assert sorted(devices_of(holder(world))) == ["n1/gpu-0", "n1/gpu-1", "n1/gpu-2"]
    assert world.phase("r") == "Available"
    assert "other" in world.message("other") or world.node_of("other") == ""
    assert put(world, "p", count=3) != []


def test_two_pre_allocations_do_not_wait_for_the_same_device() -> None:
    entries = [{"name": "gpu", "resourceClaimTemplateName": "gpus"}]
    objects = [device_class(), node("n1"), resource_slice("n1", 3), claim_template("gpus", request())]
    world = World(*objects)
    for each in ("x", "y", "z"):
        assert put(world, each, app="x") != []
    for each in ("one", "two"):
        world.put(
            reservation(each, cpu="1", app=each, pod={"resourceClaims": entries}, preAllocation=True)
        )
    assert [world.phase(each) for each in ("one", "two")] == ["Waiting", "Waiting"]
    end(world, "x")
    end(world, "y")
    assert [world.phase(each) for each in ("one", "two")] == ["Available", "Available"]


def test_other_entries_are_ignored_on_a_node() -> None:
    world = World(*reserved(allocateOnce=False))
    more = [{"name": each, "resourceClaimTemplateName": "gpus"} for each in ("gpu", "more")]
    world.edit("Reservation", "r", spec__template__spec__resourceClaims=more)
    assert devices_of(holder(world)) == ["n1/gpu-0", "n1/gpu-1"]
    assert "resourceClaims cannot be changed" in problem(world)
    world.edit("Reservation", "r", spec__template__spec__resourceClaims=more[:1])
    assert problem(world) == ""


def test_reservations_with_equal_claims_under_other_names_keep_them_after_a_restart() -> None:
    """They share a class of pods, but not the names of their entries."""
    objects = [device_class(), node("n1"), resource_slice("n1", 2), claim_template("gpus", request())]
    for name, entry in (("one", "a"), ("two", "b")):
        entries = [{"name": entry, "resourceClaimTemplateName": "gpus"}]
        objects.append(reservation(name, cpu="1", pod={"resourceClaims": entries}))
    world = World(*objects)
    before = sorted(each["metadata"]["name"] for each in holders(world))
    assert len(before) == 2 and before[1].startswith("two-b-")
    world.objects = dict(reversed(world.objects.items()))
    world.restart()
    world.settle()
    assert sorted(each["metadata"]["name"] for each in holders(world)) == before


# Parts of devices


def test_a_reservation_holds_a_part_of_a_shared_device() -> None:
    capacity = {"memory": {"value": "40Gi"}}
    shared = [{"name": "gpu-0", "allowMultipleAllocations": True, "capacity": capacity}]
    entries = [{"name": "gpu", "resourceClaimTemplateName": "part"}]
    world = World(
        device_class(),
        node("n1"),
        resource_slice("n1", shared),
        claim_template("part", _part("30Gi")),
        reservation("r", cpu="1", pod={"resourceClaims": entries}, allocateOnce=False),
    )
    assert _consumed(holder(world)) == "30Gi"
    assert _put_part(world, "other", "10Gi", "x")
    assert _consumed(holder(world)) == "30Gi"
    assert not _put_part(world, "another", "10Gi", "x")
    assert _put_part(world, "p", "20Gi", "a")
    assert _consumed(holder(world)) == "10Gi"
    world.restart()
    world.settle()
    assert _consumed(holder(world)) == "10Gi"
    world.delete("Pod", "p")
    assert _consumed(holder(world)) == "10Gi"
    world.delete("ResourceClaim", "p-gpu")
    assert _consumed(holder(world)) == "30Gi"


def _part(memory: str) -> Raw:
    return request("r", capacity={"requests": {"memory": memory}})


def _put_part(world: World, name: str, memory: str, app: str) -> bool:
    world.put(
        resource_claim(f"{name}-gpu", _part(memory), owner=name),
        claiming_pod(name, templates={"gpu": f"{name}-gpu"}, app=app),
    )
    return bool(devices_of(world.objects["ResourceClaim", f"{name}-gpu"]))


def _consumed(claim: Raw) -> str:
    results = ((claim.get("status") or {}).get("allocation") or {"devices": {"results": []}})["devices"]
    found = [each["consumedCapacity"]["memory"] for each in results["results"]]
    return ", ".join(f"{whole(each) >> 30}Gi" for each in found)


def test_a_pre_allocation_does_not_wait_for_a_part_of_a_device() -> None:
    capacity = {"memory": {"value": "40Gi"}}
    shared = [{"name": "gpu-0", "allowMultipleAllocations": True, "capacity": capacity}]
    entries = [{"name": "gpu", "resourceClaimTemplateName": "part"}]
    world = World(
        device_class(),
        node("n1"),
        resource_slice("n1", shared),
        claim_template("part", _part("30Gi")),
    )
    assert _put_part(world, "old", "30Gi", "x")
    world.put(reservation("r", cpu="1", pod={"resourceClaims": entries}, preAllocation=True))
    assert holders(world) == []
    assert world.phase("r") not in ("Available", "Waiting")
    end(world, "old")
    assert world.wait(30).phase("r") == "Available"
    assert _consumed(holder(world)) == "30Gi"
