"""Reservations that hold devices: as claims that every scheduler sees, and for owners first."""

from __future__ import annotations

from typing import Any

import pytest

from harness.claim_objects import (
    claim_template,
    claiming_pod,
    consumers_of,
    device_class,
    devices_of,
    generated,
    request,
    resource_claim,
    resource_slice,
)
from harness.objects import Raw, node, reservation
from harness.world import World
from holdfast.scheduler.cluster.decisions import Bind, Decision, HoldDevices, ReserveClaim


def reserved(count: int = 2, **more: Any) -> list[Raw]:
    """A node with three devices, of which a reservation for pods of app `a` holds some."""
    entries = [{"name": "gpu", "resourceClaimTemplateName": "gpus"}]
    return [
        device_class(),
        node("n1"),
        resource_slice("n1", 3),
        claim_template("gpus", request("r", count)),
        reservation("r", cpu="1", pod={"resourceClaims": entries}, **more),
    ]


def holders(world: World) -> list[Raw]:
    return [
        raw
        for (kind, _), raw in world.objects.items()
        if kind == "ResourceClaim"
        and raw["metadata"].get("ownerReferences", [{}])[0].get("kind") == "Reservation"
    ]


def put(world: World, name: str, count: int = 1, app: str = "a", **more: Any) -> list[str]:
    """Puts a pod with a claim; the devices it gets."""
    pod, its_claim = generated(name, request("r", count), app=app, **more)
    world.put(its_claim, pod)
    return devices_of(world.objects["ResourceClaim", f"{name}-gpu"])


def end(world: World, name: str) -> None:
    """The pod is gone, and the claim controller deletes its claim."""
    world.delete("Pod", name).delete("ResourceClaim", f"{name}-gpu")


def test_a_reservation_holds_devices_with_a_claim_of_its_own() -> None:
    world = World(*reserved())
    assert world.phase("r") == "Available"
    (holder,) = holders(world)
    assert holder["metadata"]["name"].startswith("r-gpu-")
    assert devices_of(holder) == ["n1/gpu-0", "n1/gpu-1"]
    assert consumers_of(holder) == []
    assert put(world, "other", app="x") == ["n1/gpu-2"]
    assert put(world, "another", app="x") == []
    assert "1 cannot allocate all claims" in world.message("another")


def test_owners_get_the_devices_that_are_held() -> None:
    world = World(*reserved(allocateOnce=False))
    assert put(world, "p") == ["n1/gpu-0"]
    assert world.reservation_of("p") == "r"
    assert devices_of(holders(world)[0]) == ["n1/gpu-1"]
    assert put(world, "q") == ["n1/gpu-1"]
    assert devices_of(holders(world)[0]) == []
    end(world, "p")
    assert devices_of(holders(world)[0]) == ["n1/gpu-0"]
    assert put(world, "other", app="x", count=2) == []


def test_devices_are_given_up_before_any_pod_that_shares_the_claim_of_an_owner_gets_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Binds are written at the same time: each may be the first that allocates the claim."""
    world = World(*reserved(allocateOnce=False))
    sharing = [claiming_pod(name, "shared", app=app) for name, app in (("p", "a"), ("q", "x"))]
    world.put(resource_claim("shared", request("r", 2)))
    decided: list[Decision] = []
    decide = world.scheduler.round

    def noted(*args: Any, **more: Any) -> list[Decision]:
        decisions = decide(*args, **more)
        decided.extend(decisions)
        return decisions

    monkeypatch.setattr(world.scheduler, "round", noted)
    world.put(*sharing)
    before_binds: list[list[type]] = [[]]
    for decision in decided:
        if isinstance(decision, Bind):
            before_binds.append([])
        else:
            before_binds[-1].append(type(decision))
    assert [world.node_of(name) for name in ("p", "q")] == ["n1", "n1"]
    assert len(before_binds) == 3
    for writes in before_binds[:-1]:
        assert writes.index(HoldDevices) < writes.index(ReserveClaim)


def test_an_owner_gets_the_rest_from_the_node() -> None:
    world = World(*reserved(allocateOnce=False))
    assert put(world, "p", count=3) == ["n1/gpu-0", "n1/gpu-1", "n1/gpu-2"]


def test_a_restricted_reservation_gives_nothing_but_what_it_holds() -> None:
    world = World(*reserved(allocateOnce=False, allocatePolicy="Restricted"))
    assert put(world, "p", count=3) == []
    assert put(world, "q", count=2) == ["n1/gpu-0", "n1/gpu-1"]


def test_what_is_left_is_free_once_a_reservation_is_used_up() -> None:
    world = World(*reserved())
    assert put(world, "p") == ["n1/gpu-0"]
    assert world.phase("r") == "Succeeded"
    assert holders(world) == []
    assert put(world, "other", app="x", count=2) == ["n1/gpu-1", "n1/gpu-2"]


@pytest.mark.parametrize("how", ["expiry", "deletion", "node"])
def test_devices_are_free_when_the_reservation_ends(how: str) -> None:
    world = World(*reserved(ttl="60s"))
    if how == "expiry":
        world.wait(61)
    elif how == "deletion":
        world.delete("Reservation", "r")
    else:
        world.delete("Node", "n1")
    assert holders(world) == []


def test_a_restart_changes_nothing() -> None:
    world = World(*reserved(allocateOnce=False))
    assert put(world, "p") == ["n1/gpu-0"]
    world.restart()
    world.settle()
    assert devices_of(holders(world)[0]) == ["n1/gpu-1"]
    assert put(world, "other", app="x", count=2) == []
    assert put(world, "q") == ["n1/gpu-1"]
    end(world, "p")
    end(world, "q")
    assert devices_of(holders(world)[0]) == ["n1/gpu-0", "n1/gpu-1"]


@pytest.mark.parametrize("writes", range(1, 4))
def test_a_restart_in_the_middle_leaves_no_claim(writes: int) -> None:
    """Claims of which the reservation did not get its node are not kept beside those it gets then."""
    *objects, wanted = reserved(count=1)
    world = World(*objects)
    world.restart_after = world.writes + writes
    world.put(wanted)
    world.settle()
    assert world.phase("r") == "Available"
    assert len(holders(world)) == 1
    assert put(world, "other", app="x", count=2) != []


def test_a_refused_bind_gives_the_devices_back() -> None:
    world = World(*reserved(allocateOnce=False))
    world.refuse.add("pod-p")
    assert put(world, "p") == ["n1/gpu-0"]
    assert world.node_of("p") == ""
    assert world.wait(30).node_of("p") == "n1"
    assert devices_of(holders(world)[0]) == ["n1/gpu-1"]


def test_a_reservation_waits_for_its_template() -> None:
    objects = [each for each in reserved() if each["kind"] != "ResourceClaimTemplate"]
    world = World(*objects)
    assert world.phase("r") != "Available"
    world.put(claim_template("gpus", request("r", 2)))
    assert world.wait(30).phase("r") == "Available"
    assert devices_of(holders(world)[0]) == ["n1/gpu-0", "n1/gpu-1"]


def test_a_reservation_that_finds_no_devices_is_pending() -> None:
    world = World(*reserved(count=4))
    assert holders(world) == []
    assert "cannot allocate all claims" in world.condition("r", "Scheduled")["message"]


def test_owners_keep_their_devices_when_the_reservation_expires() -> None:
    world = World(*reserved(allocateOnce=False, ttl="60s"))
    assert put(world, "p") == ["n1/gpu-0"]
    world.wait(61)
    assert world.phase("r") == "Failed"
    assert holders(world) == []
    assert devices_of(world.objects["ResourceClaim", "p-gpu"]) == ["n1/gpu-0"]
    assert put(world, "other", app="x", count=2) == ["n1/gpu-1", "n1/gpu-2"]


def test_a_resize_of_amounts_keeps_the_devices() -> None:
    world = World(*reserved(allocateOnce=False))
    assert put(world, "p") == ["n1/gpu-0"]
    before = holders(world)
    containers = [{"name": "main", "resources": {"requests": {"cpu": "2"}}}]
    world.edit("Reservation", "r", spec__template__spec__containers=containers)
    assert world.condition("r", "Resized")["status"] == "True"
    assert world.status("r")["allocatable"]["cpu"] == "2"
    assert holders(world) == before


def test_a_restricted_reservation_used_in_part_serves_the_next_owner() -> None:
    world = World(*reserved(allocateOnce=False, allocatePolicy="Restricted"))
    assert put(world, "p", cpu="100m") == ["n1/gpu-0"]
    assert put(world, "q", count=2, cpu="100m") == []
    assert put(world, "s", cpu="100m") == ["n1/gpu-1"]
    end(world, "p")
    end(world, "s")
    assert world.wait(30).node_of("q") == "n1"
    assert devices_of(world.objects["ResourceClaim", "q-gpu"]) == ["n1/gpu-0", "n1/gpu-1"]


def test_a_pod_keeps_its_claims_when_a_reservation_names_it_like_one_on_a_node() -> None:
    """The class of a pod can be that of one on a node, of which claims do not matter any more."""
    world = World(device_class(), node("n1", cpu="1"), node("n2", cpu="1"), resource_slice("n1", 1))
    world.put(resource_claim("shared"))

    def named(name: str) -> Raw:
        owners = [{"object": {"kind": "Pod", "namespace": "default", "name": name}}]
        return reservation(f"for-{name}", cpu="4", owners=owners)

    world.put(named("a"))
    world.put(claiming_pod("a", "shared"))
    assert world.node_of("a") == "n1"
    world.delete("Reservation", "for-a")
    world.edit("Pod", "a", status={"phase": "Running"})
    world.put(claiming_pod("b", "shared"))
    assert world.node_of("b") == ""
    world.put(named("b"))
    world.wait(60)
    assert world.node_of("b") == ""
