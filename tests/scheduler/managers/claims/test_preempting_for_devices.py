"""Preemption for devices: by pods, whose devices a hold keeps, and by reservations."""

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
from scheduler.managers.claims.test_held_devices import holders
from scheduler.reservations.preempting_reservations import SOFT_EVICTOR, SOFT_MODE, high, low, member


def cluster(*names: str, devices: int = 2) -> list[Raw]:
    found = [device_class(), claim_template("one", request()), claim_template("two", request("r", 2))]
    for name in names:
        found += [node(name, cpu="16"), resource_slice(name, devices)]
    return found


def collect(world: World) -> World:
    """As the claim controller: claims of pods that are gone are deallocated or deleted."""
    pods = {raw["metadata"]["uid"] for (kind, _), raw in world.objects.items() if kind == "Pod"}
    for (kind, name), raw in list(world.objects.items()):
        if kind != "ResourceClaim" or (kind, name) not in world.objects:
            continue
        owner = raw["metadata"].get("ownerReferences", [{}])[0]
        if owner.get("kind") == "Pod" and owner["uid"] not in pods:
            world.delete(kind, name)
        elif before := (raw.get("status") or {}).get("reservedFor"):
            left = [each for each in before if each["uid"] in pods]
            if len(left) < len(before):
                world.edit(kind, name, status={**raw["status"], "reservedFor": left} if left else {})
    return world


def put(world: World, name: str, count: int = 1, **more: Any) -> list[str]:
    pod, its_claim = generated(name, request("r", count), **more)
    world.put(its_claim, pod)
    return devices_of(world.objects["ResourceClaim", f"{name}-gpu"])


def holds(world: World) -> list[str]:
    return [name for name in world.reservation_names() if name.startswith("preempted-for-")]


def check(world: World) -> None:
    """No device is allocated twice."""
    claims = [raw for (kind, _), raw in world.objects.items() if kind == "ResourceClaim"]
    used = [device for raw in claims for device in devices_of(raw)]
    assert len(used) == len(set(used)), sorted(used)


# Pods


def preempting(**more: Any) -> World:
    """Two pods have the devices of a node; a third one that needs both preempts them."""
    world = World(*cluster("n1"))
    world.after_each = lambda: check(world)
    put(world, "low-1", priority=1)
    put(world, "low-2", priority=1)
    world.graceful = True
    put(world, "high", 2, priority=10, **more)
    assert world.objects["Pod", "high"]["status"]["nominatedNodeName"] == "n1"
    return world


def test_a_hold_keeps_the_devices_of_victims_one_by_one() -> None:
    world = preempting()
    (hold,) = holds(world)
    assert world.phase(hold) == "Waiting"
    (holder,) = holders(world)
    assert devices_of(holder) == []
    collect(world.delete("Pod", "low-1"))
    assert devices_of(holders(world)[0]) == ["n1/gpu-0"]
    assert put(world, "rival", priority=10) == []
    collect(world.delete("Pod", "low-2")).wait(30)
    assert world.node_of("high") == "n1"
    assert world.reservation_of("high") == hold
    assert sorted(devices_of(world.objects["ResourceClaim", "high-gpu"])) == ["n1/gpu-0", "n1/gpu-1"]
    assert holders(world) == []
    assert world.node_of("rival") == ""


@pytest.mark.parametrize("writes", range(1, 24))
def test_nothing_is_lost_by_a_restart_at_any_write(writes: int) -> None:
    world = World(*cluster("n1"))
    world.after_each = lambda: check(world)
    put(world, "low-1", priority=1)
    put(world, "low-2", priority=1)
    world.graceful = True
    world.restart_after = world.writes + writes
    put(world, "high", 2, priority=10)
    collect(world.delete("Pod", "low-1"))
    assert put(world, "rival", priority=9) == []
    assert put(world, "equal", priority=10) == []
    collect(world.delete("Pod", "low-2"))
    world.wait(60)
    assert world.node_of("high") == "n1"
    assert (world.node_of("rival"), world.node_of("equal")) == ("", "")
    collect(world.delete("Pod", "high")).wait(60)
    assert {world.node_of("rival"), world.node_of("equal")} == {"n1"}
    assert holders(world) == []


def test_a_preemptor_that_is_gone_leaves_nothing() -> None:
    world = preempting()
    world.delete("Pod", "high").delete("ResourceClaim", "high-gpu")
    assert (holds(world), holders(world)) == ([], [])
    collect(world.delete("Pod", "low-1"))
    assert put(world, "rival", priority=1) == ["n1/gpu-0"]


@pytest.mark.parametrize("restarts", [False, True])
def test_no_pod_of_lower_priority_joins_a_shared_claim_that_is_preempted(restarts: bool) -> None:
    """As a replica of the victim would, again and again."""
    world = World(*cluster("n1", devices=1), resource_claim("shared"))
    world.put(claiming_pod("low", "shared", priority=1))
    world.graceful = True
    put(world, "high", priority=10)
    if restarts:
        world.restart()
        world.settle()
    world.put(claiming_pod("late", "shared", priority=2))
    assert world.node_of("late") == ""
    assert 'resourceclaim "shared" has devices that a pod with higher priority' in world.message("late")
    world.graceful = False
    collect(world.delete("Pod", "low")).wait(60)
    assert world.node_of("high") == "n1"
    assert world.node_of("late") == ""
    collect(world.delete("Pod", "high")).wait(60)
    assert world.node_of("late") == "n1"


def test_a_pod_joins_a_shared_claim_again_when_the_preemptor_is_gone() -> None:
    world = World(*cluster("n1", devices=1), resource_claim("shared"))
    world.put(claiming_pod("low", "shared", priority=1))
    world.graceful = True
    put(world, "high", priority=10)
    world.put(claiming_pod("late", "shared", priority=2))
    world.delete("Pod", "high").delete("ResourceClaim", "high-gpu")
    world.wait(60)
    assert world.node_of("late") == "n1"


def test_a_pod_of_equal_priority_may_join_a_shared_claim_that_is_preempted() -> None:
    world = World(*cluster("n1", devices=1), resource_claim("shared"))
    world.put(claiming_pod("low", "shared", priority=1))
    world.graceful = True
    put(world, "high", priority=10)
    world.put(claiming_pod("late", "shared", priority=10))
    assert world.node_of("late") == "n1"


def test_a_pod_with_an_extended_resource_preempts() -> None:
    world = World(*cluster("n1", devices=1))
    world.put(device_class(extendedResourceName="example.com/gpu"))
    put(world, "low", priority=1)
    from harness.objects import pod

    world.put(pod("high", requests={"cpu": "1", "example.com/gpu": 1}, priority=10))
    collect(world).wait(60)
    assert world.node_of("high") == "n1"
    collect(world)
    assert [name for kind, name in world.objects if kind == "Reservation"] == []


# Gangs


def gang(world: World, *names: str, claim: str = "", **more: Any) -> None:
    group = {
        "apiVersion": "scheduling.volcano.sh/v1beta1",
        "kind": "PodGroup",
        "metadata": {"name": "g", "namespace": "default", "uid": "group-g"},
        "spec": {"minMember": len(names)},
    }
    objects: list[Raw] = [group]
    for name in names:
        annotations = {"scheduling.k8s.io/group-name": "g"}
        if claim:
            objects.append(claiming_pod(name, claim, metadata={"annotations": annotations}, **more))
        else:
            pod, its = generated(name, metadata={"annotations": annotations}, **more)
            objects += [its, pod]
    world.put(*objects)


@pytest.mark.parametrize("shared", [False, True])
def test_a_gang_preempts_for_devices(shared: bool) -> None:
    world = World(*cluster("n1"), resource_claim("team", request("r", 2)))
    put(world, "low-1", priority=1)
    put(world, "low-2", priority=1)
    gang(world, "g-1", "g-2", claim="team" if shared else "", priority=10)
    collect(world).wait(60)
    assert [world.node_of(each) for each in ("g-1", "g-2")] == ["n1", "n1"]


def test_a_gang_preempts_again_if_another_scheduler_lets_a_pod_join_the_claim_of_a_victim() -> None:
    world = World(*cluster("n1", devices=1), resource_claim("shared"), resource_claim("team"))
    world.put(claiming_pod("low", "shared", priority=1))
    world.graceful = True
    gang(world, "g-1", "g-2", claim="team", priority=10)
    world.put(claiming_pod("late", "shared", priority=2, schedulerName="another", nodeName="n1"))
    status = world.objects["ResourceClaim", "shared"]["status"]
    joined = {"resource": "pods", "name": "late", "uid": "pod-late"}
    consumers = [*status["reservedFor"], joined]
    world.edit("ResourceClaim", "shared", status={**status, "reservedFor": consumers})
    world.graceful = False
    collect(world.delete("Pod", "low")).wait(60)
    collect(world).wait(60)
    assert ("Pod", "late") not in world.objects
    assert [world.node_of(each) for each in ("g-1", "g-2")] == ["n1", "n1"]


def test_no_pod_of_lower_priority_joins_a_claim_that_is_preempted_for_a_gang() -> None:
    world = World(*cluster("n1", devices=1), resource_claim("shared"), resource_claim("team"))
    world.put(claiming_pod("low", "shared", priority=1))
    world.graceful = True
    gang(world, "g-1", "g-2", claim="team", priority=10)
    world.put(claiming_pod("late", "shared", priority=2))
    assert world.node_of("late") == ""
    assert 'resourceclaim "shared" has devices that a pod with higher priority' in world.message("late")
    world.graceful = False
    collect(world.delete("Pod", "low")).wait(60)
    assert [world.node_of(each) for each in ("g-1", "g-2")] == ["n1", "n1"]
    assert world.node_of("late") == ""


# Pods that share a claim: a nomination keeps the devices for them


def nominated() -> World:
    """A pod that shares a claim with others preempts one that shares another claim."""
    world = World(*cluster("n1", devices=1), resource_claim("shared"), resource_claim("team"))
    world.after_each = lambda: check(world)
    world.put(claiming_pod("low", "shared", priority=1))
    world.graceful = True
    world.put(claiming_pod("high", "team", priority=10))
    assert world.objects["Pod", "high"]["status"]["nominatedNodeName"] == "n1"
    assert holds(world) == []
    return world


def test_no_pod_joins_a_claim_whose_devices_a_nominated_pod_waits_for() -> None:
    world = nominated()
    world.put(claiming_pod("late", "shared", priority=2))
    assert world.node_of("late") == ""
    world.delete("Pod", "low")
    world.put(claiming_pod("later", "shared", priority=2))
    collect(world).wait(60)
    assert [world.node_of(each) for each in ("high", "late", "later")] == ["n1", "", ""]
    collect(world.delete("Pod", "high")).wait(60)
    assert [world.node_of(each) for each in ("late", "later")] == ["n1", "n1"]


def test_pods_join_a_claim_again_when_the_nominated_pod_is_gone() -> None:
    world = nominated()
    world.put(claiming_pod("late", "shared", priority=2))
    world.delete("Pod", "high").wait(60)
    assert world.node_of("late") == "n1"


def test_a_nominated_pod_whose_claim_is_deleted_leaves_its_node_to_others() -> None:
    world = nominated()
    world.delete("ResourceClaim", "team").wait(60)
    assert not world.objects["Pod", "high"]["status"].get("nominatedNodeName")
    collect(world.delete("Pod", "low"))
    assert put(world, "other") == ["n1/gpu-0"]
    world.put(resource_claim("team"))
    world.wait(60)
    assert world.objects["Pod", "high"]["status"]["nominatedNodeName"] == "n1"


@pytest.mark.parametrize("is_gang", [False, True])
def test_a_nominated_pod_is_tried_again_when_the_devices_of_its_victims_are_free(is_gang: bool) -> None:
    """A reservation, which goes first, took the CPUs meanwhile: the nomination ends."""
    world = World(*cluster("n1", devices=1), resource_claim("team"))
    put(world, "low", priority=1, requests={"cpu": "10"})
    world.graceful = True
    if is_gang:
        gang(world, "g-1", claim="team", priority=10, requests={"cpu": "10"})
    else:
        world.put(claiming_pod("g-1", "team", priority=10, requests={"cpu": "10"}))
    assert world.objects["Pod", "g-1"]["status"]["nominatedNodeName"] == "n1"
    world.put(reservation("r", cpu="8"))
    world.delete("Pod", "low").wait(60)
    assert world.phase("r") == "Available"
    assert put(world, "other", requests={"cpu": "1"}) == []
    collect(world).wait(60)
    assert not world.objects["Pod", "g-1"]["status"].get("nominatedNodeName")
    assert world.node_of("other") == "n1"


# Reservations


def entries(template: str) -> Raw:
    return {"resourceClaims": [{"name": "gpu", "resourceClaimTemplateName": template}]}


def held(world: World, reservation: str) -> list[str]:
    uid = world.objects["Reservation", reservation]["metadata"]["uid"]
    return [
        device
        for each in holders(world)
        if each["metadata"]["ownerReferences"][0]["uid"] == uid
        for device in devices_of(each)
    ]


@pytest.mark.parametrize("eviction", [None, SOFT_EVICTOR])
def test_a_reservation_preempts_one_that_holds_devices(eviction: Raw | None) -> None:
    world = World(*cluster("n1"), preemption=eviction)
    world.after_each = lambda: check(world)
    world.put(low(cpu="1", pod=entries("two")))
    assert held(world, "low") == ["n1/gpu-0", "n1/gpu-1"]
    world.put(high(cpu="1", pod=entries("one")))
    world.wait(30)
    assert ("Reservation", "low") not in world.objects
    assert world.phase("high") == "Available"
    assert len(held(world, "high")) == 1


def test_a_reservation_waits_for_owners_of_the_one_it_preempts() -> None:
    world = World(*cluster("n1"))
    world.after_each = lambda: check(world)
    world.put(low(cpu="1", pod=entries("two")))
    assert put(world, "owner", app="low") == ["n1/gpu-0"]
    world.graceful = True
    world.put(high(cpu="1", pod=entries("two")))
    assert world.phase("high") == "Waiting"
    assert held(world, "high") == []
    world.restart()
    world.settle()
    assert put(world, "other", app="x", priority=100) == []
    world.delete("Pod", "owner")
    assert ("Reservation", "low") not in world.objects
    assert world.phase("high") == "Waiting"
    collect(world)
    assert world.phase("high") == "Available"
    assert sorted(held(world, "high")) == ["n1/gpu-0", "n1/gpu-1"]
    assert put(world, "mine", 2, app="high") != []


def test_a_softly_evicted_reservation_keeps_its_devices_until_it_is_gone() -> None:
    world = World(*cluster("n1"), preemption=SOFT_MODE)
    world.after_each = lambda: check(world)
    world.put(low(cpu="1", pod=entries("two"))).put(high(cpu="1", pod=entries("two")))
    assert world.phase("high") == "Waiting"
    assert (len(held(world, "low")), held(world, "high")) == (2, [])
    world.restart()
    world.settle()
    assert (len(held(world, "low")), held(world, "high")) == (2, [])
    world.delete("Reservation", "low")
    assert world.phase("high") == "Available"
    assert len(held(world, "high")) == 2


@pytest.mark.parametrize("writes", range(1, 16))
def test_a_restart_at_any_write_of_a_reservation_that_preempts(writes: int) -> None:
    world = World(*cluster("n1"))
    world.after_each = lambda: check(world)
    world.put(low(cpu="1", pod=entries("two")))
    assert put(world, "owner", app="low") == ["n1/gpu-0"]
    world.restart_after = world.writes + writes
    world.put(high(cpu="1", pod=entries("two")))
    collect(world).wait(60)
    assert world.phase("high") == "Available"
    assert len(held(world, "high")) == 2
    assert [name for kind, name in world.objects if kind == "Reservation"] == ["high"]


def test_a_gang_of_reservations_preempts_for_devices_or_not_at_all() -> None:
    pair = {"name": "pair", "min-available": 2, "total-number": 2}
    world = World(*cluster("n1", "n2"))
    world.after_each = lambda: check(world)
    world.put(low("low-1", cpu="1", pod=entries("two")), low("low-2", cpu="1", pod=entries("two")))
    world.put(member("one", pair, cpu="1", pod=entries("two")))
    assert ("Reservation", "low-1") in world.objects
    world.put(member("two", pair, cpu="1", pod=entries("two")))
    world.wait(30)
    assert [world.phase(each) for each in ("one", "two")] == ["Available", "Available"]
    assert ("Reservation", "low-1") not in world.objects
    assert (len(held(world, "one")), len(held(world, "two"))) == (2, 2)
    assert consumers_of(holders(world)[0]) == []
