"""What explain says about devices."""

from __future__ import annotations

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
from harness.objects import Raw, node
from harness.world import World
from holdfast.explanation.claim_details import claim_details

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
        "n1: of 5 devices for request r: 2 not matched by the selectors, "
        "1 in use by default/theirs, 1 tainted broken:NoSchedule"
    ]


def test_a_node_without_devices() -> None:
    assert details("p") == ["n1: no devices are published for it"]


def test_a_claim_that_is_not_there() -> None:
    made, _ = generated("p")
    world = World(node("n1")).put(made)
    snapshot = snapshot_of(world)
    found = list(claim_details(snapshot, snapshot.cluster.pods["pod-p"], ["n1"]))
    assert found == ['could not find ResourceClaim "default/p-gpu"']
