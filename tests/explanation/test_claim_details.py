"""What explain says about devices."""

from __future__ import annotations

import pytest

from explanation.test_situations import snapshot_of
from harness.claim_objects import (
    DRIVER,
    allocation,
    device,
    device_class,
    generated,
    request,
    resource_claim,
    resource_slice,
)
from harness.objects import Raw, node, reservation
from harness.world import World
from holdfast.explanation.explainer import explain
from holdfast.explanation.facts.claim_details import claim_details
from holdfast.explanation.report import Report
from scheduler.managers.claims.test_held_devices import put, reserved

MODEL = f"device.attributes['{DRIVER}'].model == 'h100'"


def details(pod: str, *objects: Raw) -> list[str]:
    made, its_claim = generated(pod, request("r", 2, MODEL))
    world = World(device_class(), node("n1"), *objects)
    world.put(its_claim, made)
    assert world.node_of(pod) == ""
    snapshot = snapshot_of(world)
    return list(claim_details(snapshot, snapshot.cluster.pods[f"pod-{pod}"], ["n1"]))


def test_devices_are_counted_by_the_reason_why_they_are_not_used() -> None:
    taint = {"key": "broken", "effect": "NoSchedule"}
    devices = [
        device("gpu-0", model="a100"),
        device("gpu-1", model="a100"),
        device("gpu-2", model="h100"),
        device("gpu-3", model="h100", taints=[taint]),
        device("gpu-4", model="h100"),
    ]
    used = resource_claim("theirs", allocation=allocation("n1", "gpu-2"))
    assert details("p", resource_slice("n1", devices), used) == [
        "n1: of 5 devices for request r: 2 not matched by the selectors "
        "(model is a100), 1 in use by default/theirs (no pod uses it), 1 tainted broken:NoSchedule"
    ]


def test_a_node_without_devices() -> None:
    assert details("p") == ["no devices are published for n1"]


def test_a_claim_that_is_not_there() -> None:
    made, _ = generated("p")
    world = World(node("n1")).put(made)
    snapshot = snapshot_of(world)
    found = list(claim_details(snapshot, snapshot.cluster.pods["pod-p"], ["n1"]))
    assert found == ['could not find ResourceClaim "default/p-gpu"']


# Devices that reservations hold


def explained(world: World, kind: str, name: str) -> Report:
    return explain(snapshot_of(world), world.objects[kind, name])


@pytest.mark.parametrize("kind", ["Pod", "Reservation"])
def test_the_reservation_that_holds_devices_is_named_and_deleting_it_helps(kind: str) -> None:
    world = World(*reserved(allocateOnce=False))
    if kind == "Pod":
        made, its_claim = generated("late", request("r", 2), app="x")
        world.put(its_claim, made)
    else:
        entries = [{"name": "gpu", "resourceClaimTemplateName": "gpus"}]
        world.put(reservation("late", app="x", cpu="1", pod={"resourceClaims": entries}))
    report = explained(world, kind, "late")
    assert "n1: of 3 devices for request r: 2 held by reservation r" in report.details
    (advice,) = [each for each in report.advice if each.text.startswith("delete")]
    assert advice.text.startswith("delete the reservation r on n1")
    world.delete("Reservation", "r").wait(30)
    placed = world.node_of("late") if kind == "Pod" else world.status("late")["nodeName"]
    assert placed == "n1"


def test_deleting_a_reservation_is_not_advised_if_its_devices_are_too_few() -> None:
    world = World(*reserved(allocateOnce=False))
    made, its_claim = generated("late", request("r", 4), app="x")
    world.put(its_claim, made)
    assert not [
        each for each in explained(world, "Pod", "late").advice if each.text.startswith("delete")
    ]


def test_a_reservation_lists_the_devices_it_holds_and_those_in_use() -> None:
    world = World(*reserved(allocateOnce=False))
    put(world, "p")
    (detail,) = [each for each in explained(world, "Reservation", "r").details if "holds" in each]
    assert detail.endswith(f"holds {DRIVER}/n1/gpu-0, {DRIVER}/n1/gpu-1; in use: {DRIVER}/n1/gpu-0")


def test_a_waiting_reservation_says_that_it_waits_for_devices() -> None:
    objects = reserved(count=3, preAllocation=True, allocateOnce=False)
    world = World(*objects[:-1])
    put(world, "old", app="x")
    world.put(objects[-1])
    report = explained(world, "Reservation", "r")
    assert "short of: devices by claim" in report.details


def test_devices_of_the_pods_own_reservation_are_not_held_by_others() -> None:
    world = World(*reserved(allocateOnce=False))
    made, its_claim = generated("big", request("r", 4), app="a")
    world.put(its_claim, made)
    assert (
        "n1: 4 devices are requested, and 3 are published for it"
        in explained(world, "Pod", "big").details
    )
