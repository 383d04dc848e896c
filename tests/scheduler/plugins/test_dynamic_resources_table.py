"""DynamicResources as a table: one pod with claims in a cluster, and what becomes of it and of them.

The facts are those of kube-scheduler 1.37 with its default features, and claims of PodGroups.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

import pytest

from harness.claim_objects import (
    DRIVER,
    allocation,
    claiming_pod,
    consumers_of,
    device,
    device_class,
    devices_of,
    first_available,
    request,
    resource_claim,
    resource_slice,
)
from harness.objects import Raw, core_group, node, pod
from harness.world import World

GATED = "gated"
NONE_FREE = "0/1 nodes are available: 1 cannot allocate all claims."
ELSEWHERE = "1 resourceclaim not available on the node"
DEALLOCATED = "deallocation of ResourceClaim completed"
HINT = (
    ". consider using CEL optional chaining (.? followed by orValue()) or guarding the check with "
    "has() for optional fields"
)
BROKEN = f'device.attributes["{DRIVER}"].healthy'
TAINT = {"key": "broken", "effect": "NoSchedule"}
FINALIZER = "resource.kubernetes.io/delete-protection"
EXTENDED = "example.com/gpu"
IMPLICIT = "deviceclass.resource.kubernetes.io/gpu"
GPU, N1, SLICE = device_class(), node("n1"), resource_slice("n1", 2)
SERVED = device_class(extendedResourceName=EXTENDED)


class Row(NamedTuple):
    objects: tuple[Raw, ...]
    pod: Raw
    node: str = ""
    """Where the pod is bound; GATED if it is not in the queue."""
    message: str = ""
    """A part of its condition's message."""
    devices: Mapping[str, list[str]] = MappingProxyType({})
    """By claim."""
    consumers: Mapping[str, list[str]] = MappingProxyType({})
    events: str = ""
    """A part of the first event about a failure."""


def user(*claims: str, **more: Any) -> Raw:
    return claiming_pod("p", *(claims or ("c",)), **more)


def generated(**more: Any) -> Raw:
    return claiming_pod("p", templates={"gpu": "p-gpu"}, **more)


def member(**more: Any) -> Raw:
    return user(schedulingGroup={"podGroupName": "g"}, **more)


def group(*, name: str = "c0", claim: str = "c") -> Raw:
    made = core_group("g", 1, resourceClaims=[{"name": name, "resourceClaimName": claim}])
    made["metadata"]["namespace"] = "default"
    return made


def of_group(claim: Raw) -> Raw:
    """The claim, reserved for the PodGroup."""
    consumer = {
        "apiGroup": "scheduling.k8s.io",
        "resource": "podgroups",
        "name": "g",
        "uid": "podgroup-g",
    }
    claim["status"]["reservedFor"] = [consumer]
    return claim


def allocated(name: str = "c", on: str = "n1", *devices: str, **more: Any) -> Raw:
    return resource_claim(name, allocation=allocation(on, *(devices or ("gpu-0",))), **more)


def with_finalizers(claim: Raw, *finalizers: str) -> Raw:
    claim["metadata"]["finalizers"] = [*finalizers]
    return claim


def bound(*devices: str, by: str = "p", claim: str = "c") -> dict[str, Any]:
    return {"node": "n1", "devices": {claim: [*devices]}, "consumers": {claim: [by]}}


def either(*alternatives: Raw) -> Raw:
    return first_available("r", *alternatives)


DELETING = {"deletionTimestamp": "2026-01-01T00:00:00Z"}
FAILURE = f"selector #0 on device {DRIVER}/n1/gpu-0: CEL runtime error: no such key: healthy{HINT}"
IN_FILTER = 'running "DynamicResources" filter plugin: '
ROWS: dict[str, Row] = {
    # Pods without claims
    "no claims": Row((N1,), pod("p"), "n1"),
    "no claims, and no node": Row((), pod("p"), message="no nodes available to schedule pods"),
    "no claims where a class serves resources": Row((N1, SERVED, SLICE), pod("p"), "n1"),
    # Claims that exist or do not
    "an allocated claim by name": Row((N1, GPU, SLICE, allocated()), user(), **bound("n1/gpu-0")),
    "an allocated generated claim": Row(
        (N1, GPU, SLICE, allocated("p-gpu", owner="p")),
        generated(),
        **bound("n1/gpu-0", claim="p-gpu"),
    ),
    "a claim that does not exist": Row((N1, GPU, SLICE), user(), GATED),
    "a claim that is not generated": Row(
        (N1, GPU, SLICE), claiming_pod("p", templates={"gpu": None}), GATED
    ),
    "a claim that is being deleted": Row(
        (N1, GPU, SLICE, resource_claim("c", metadata=DELETING)), user(), GATED
    ),
    "a claim of another pod": Row(
        (N1, GPU, SLICE, resource_claim("p-gpu", owner="q")), generated(), GATED
    ),
    "a claim reserved for the pod": Row(
        (N1, GPU, SLICE, allocated(reserved_for=["p"])), user(), **bound("n1/gpu-0")
    ),
    "a claim reserved for another pod too": Row(
        (N1, GPU, SLICE, allocated(reserved_for=["q"])),
        user(),
        "n1",
        devices={"c": ["n1/gpu-0"]},
        consumers={"c": ["q", "p"]},
    ),
    # Claims of PodGroups
    "an allocated claim of the group": Row(
        (N1, GPU, SLICE, group(), allocated()), member(), **bound("n1/gpu-0", by="g")
    ),
    "a claim of the group": Row(
        (N1, GPU, SLICE, group(), resource_claim("c")), member(), **bound("n1/gpu-0", by="g")
    ),
    "a claim that the group has by another name": Row(
        (N1, GPU, SLICE, group(name="other"), resource_claim("c")), member(), **bound("n1/gpu-0")
    ),
    "a claim reserved for the group": Row(
        (N1, GPU, SLICE, group(), of_group(allocated())), member(), **bound("n1/gpu-0", by="g")
    ),
    # Allocation
    "no devices": Row((N1, GPU, resource_claim("c")), user(), message=NONE_FREE),
    "devices": Row((N1, GPU, SLICE, resource_claim("c")), user(), **bound("n1/gpu-0")),
    "two claims": Row(
        (N1, GPU, SLICE, resource_claim("c"), resource_claim("d")),
        user("c", "d"),
        "n1",
        devices={"c": ["n1/gpu-0"], "d": ["n1/gpu-1"]},
    ),
    "two claims and one device": Row(
        (N1, GPU, resource_slice("n1", 1), resource_claim("c"), resource_claim("d")),
        user("c", "d"),
        message=NONE_FREE,
        devices={"c": [], "d": []},
    ),
    "an allocated claim and another": Row(
        (N1, GPU, SLICE, allocated(), resource_claim("d")),
        user("c", "d"),
        "n1",
        devices={"c": ["n1/gpu-0"], "d": ["n1/gpu-1"]},
    ),
    "devices in use": Row(
        (N1, GPU, SLICE, allocated("other", "n1", "gpu-0", "gpu-1"), resource_claim("c")),
        user(),
        message=NONE_FREE,
    ),
    "a finalizer of another": Row(
        (N1, GPU, SLICE, with_finalizers(resource_claim("c"), "example.com/mine")),
        user(),
        **bound("n1/gpu-0"),
    ),
    "a finalizer from an earlier allocation": Row(
        (N1, GPU, SLICE, with_finalizers(resource_claim("c"), FINALIZER)), user(), **bound("n1/gpu-0")
    ),
    "a tainted device": Row(
        (N1, GPU, resource_slice("n1", [device("gpu-0", taints=[TAINT])]), resource_claim("c")),
        user(),
        message=NONE_FREE,
    ),
    "a tainted device that is tolerated": Row(
        (
            N1,
            GPU,
            resource_slice("n1", [device("gpu-0", taints=[TAINT])]),
            resource_claim("c", request(tolerations=[{"key": "broken", "operator": "Exists"}])),
        ),
        user(),
        **bound("n1/gpu-0"),
    ),
    "a tainted device beside another": Row(
        (
            N1,
            GPU,
            resource_slice("n1", [device("gpu-0", taints=[TAINT]), device("gpu-1")]),
            resource_claim("c"),
        ),
        user(),
        **bound("n1/gpu-1"),
    ),
    "admin access to a device in use": Row(
        (
            N1,
            GPU,
            resource_slice("n1", 1),
            allocated("other"),
            resource_claim("c", request(adminAccess=True)),
        ),
        user(),
        **bound("n1/gpu-0"),
    ),
    "a device to which another has admin access": Row(
        (
            N1,
            GPU,
            resource_slice("n1", 1),
            resource_claim(
                "other",
                request(adminAccess=True),
                allocation={
                    "devices": {
                        "results": [
                            {
                                "request": "r",
                                "driver": DRIVER,
                                "pool": "n1",
                                "device": "gpu-0",
                                "adminAccess": True,
                            }
                        ]
                    }
                },
            ),
            resource_claim("c"),
        ),
        user(),
        **bound("n1/gpu-0"),
    ),
    # Errors
    "a selector of the claim fails": Row(
        (N1, GPU, SLICE, resource_claim("c", request("r", 1, BROKEN))),
        user(),
        message=f"{IN_FILTER}claim default/c: {FAILURE}",
    ),
    "a selector of the class fails": Row(
        (N1, device_class("gpu", BROKEN), SLICE, resource_claim("c")),
        user(),
        message=f"{IN_FILTER}class gpu: {FAILURE}",
    ),
    "a class that does not exist": Row(
        (N1, SLICE, resource_claim("c")), user(), message="request r: device class gpu does not exist"
    ),
    "a class of an alternative does not exist": Row(
        (N1, GPU, SLICE, resource_claim("c", either(request("a", of="tpu"), request("b")))),
        user(),
        message="request r/a: device class tpu does not exist",
    ),
    # Allocated claims that cannot be used
    "a claim allocated on another node": Row(
        (N1, GPU, SLICE, allocated(on="n2")),
        user(),
        "n1",
        devices={"c": ["n1/gpu-0"]},
        events=f"{ELSEWHERE}. {DEALLOCATED}",
    ),
    "a claim of others on another node": Row(
        (N1, GPU, SLICE, allocated(on="n2", reserved_for=["q"])),
        user(),
        message=ELSEWHERE,
        devices={"c": ["n2/gpu-0"]},
        consumers={"c": ["q"]},
    ),
    "a claim of the group on another node": Row(
        (N1, GPU, SLICE, group(), of_group(allocated(on="n2"))),
        member(),
        **bound("n1/gpu-0", by="g"),
        events=ELSEWHERE,
    ),
    # Prioritized lists
    "the first alternative": Row(
        (N1, GPU, SLICE, resource_claim("c", either(request("two", 2), request("one")))),
        user(),
        **bound("n1/gpu-0", "n1/gpu-1"),
    ),
    "the second alternative": Row(
        (N1, GPU, SLICE, resource_claim("c", either(request("three", 3), request("one")))),
        user(),
        **bound("n1/gpu-0"),
    ),
    "no alternative": Row(
        (N1, GPU, SLICE, resource_claim("c", either(request("three", 3), request("four", 4)))),
        user(),
        message=NONE_FREE,
    ),
    # Extended resources
    "a node that has the resource": Row(
        (node("n1", allocatable={EXTENDED: "2"}), SERVED, SLICE),
        pod("p", requests={EXTENDED: 1}),
        "n1",
    ),
    "a node with the resource at zero": Row(
        (node("n1", allocatable={EXTENDED: "0"}), SERVED, SLICE),
        pod("p", requests={EXTENDED: 1}),
        "n1",
        devices={"p-extended-resources-": ["n1/gpu-0"]},
    ),
    "one resource of the node and one of a class": Row(
        (node("n1", allocatable={"example.com/fpga": "1"}), SERVED, SLICE),
        pod("p", requests={EXTENDED: 1, "example.com/fpga": 1}),
        "n1",
        devices={"p-extended-resources-": ["n1/gpu-0"]},
    ),
    "a resource that no class serves, at zero": Row(
        (node("n1", allocatable={"example.com/fpga": "0"}), SERVED, SLICE),
        pod("p", requests={"example.com/fpga": 1}),
        message="1 Insufficient example.com/fpga",
    ),
    "a resource without devices": Row(
        (N1, SERVED), pod("p", requests={EXTENDED: 1}), message="1 cannot allocate all claims"
    ),
    "the implicit resource of a class": Row(
        (N1, GPU, SLICE),
        pod("p", requests={IMPLICIT: 2}),
        "n1",
        devices={"p-extended-resources-": ["n1/gpu-0", "n1/gpu-1"]},
    ),
    "a resource and a claim": Row(
        (N1, SERVED, SLICE, resource_claim("c")),
        claiming_pod("p", "c", requests={EXTENDED: 1}),
        "n1",
        devices={"c": ["n1/gpu-0"], "p-extended-resources-": ["n1/gpu-1"]},
    ),
}


def claim(world: World, name: str) -> Raw:
    """By its name, or the beginning of a generated one."""
    found = [
        raw
        for (kind, each), raw in world.objects.items()
        if kind == "ResourceClaim" and each.startswith(name)
    ]
    assert len(found) == 1, name
    return found[0]


@pytest.mark.parametrize("title", ROWS)
def test_a_pod_with_claims(title: str) -> None:
    row = ROWS[title]
    world = World(*row.objects).put(row.pod)
    if row.node == GATED:
        assert world.scheduler.queue.place("pod-p") == "gated"
        return
    failures = [event.message for event in world.events if event.reason == "FailedScheduling"]
    world.wait(30)
    assert world.node_of("p") == row.node, world.message("p")
    assert row.message in world.message("p")
    assert (row.events in failures[0]) if row.events else (bool(failures) == (not row.node))
    for name, devices in row.devices.items():
        assert devices_of(claim(world, name)) == devices
    for name, consumers in row.consumers.items():
        assert consumers_of(claim(world, name)) == consumers
    for (kind, _), raw in world.objects.items():
        if kind == "ResourceClaim" and row.node and raw["status"].get("reservedFor"):
            held = raw["metadata"].get("finalizers", [])
            assert held.count(FINALIZER) == (
                1 if _was_allocated_now(row, raw) else held.count(FINALIZER)
            )


def _was_allocated_now(row: Row, claim: Raw) -> bool:
    return all(
        each["metadata"]["name"] != claim["metadata"]["name"] or not each["status"].get("allocation")
        for each in row.objects
        if each["kind"] == "ResourceClaim"
    )


# What has a pod tried again


def _wakes(change: str, world: World) -> None:
    match change:
        case "its claim is deallocated by others":
            world.edit("ResourceClaim", "other", status={})
        case "another claim is deleted with its allocation":
            world.delete("ResourceClaim", "other")
        case "another claim without an allocation is deleted":
            world.delete("ResourceClaim", "idle")
        case "a claim of nobody is created":
            world.put(resource_claim("new"))
        case "its claim gets a finalizer":
            world.edit("ResourceClaim", "c", metadata__finalizers=["example.com/mine"])
        case "its claim gets a label":
            world.edit("ResourceClaim", "c", metadata__labels={"a": "b"})
        case "its claim is allocated elsewhere":
            consumer = {"resource": "pods", "name": "x", "uid": "x"}
            given = {"allocation": allocation("n9", "gpu-0"), "reservedFor": [consumer]}
            world.edit("ResourceClaim", "c", status=given)
        case "a slice is published":
            world.put(resource_slice("n1", 1, name="more", pool="more"))
        case "a class is changed":
            world.put(device_class("gpu", "true"))
        case "a node gets a label":
            world.edit("Node", "n1", metadata__labels={"kubernetes.io/hostname": "n1", "a": "b"})


@pytest.mark.parametrize(
    ("change", "is_tried"),
    [
        ("its claim is deallocated by others", True),
        ("another claim is deleted with its allocation", True),
        ("another claim without an allocation is deleted", False),
        ("a claim of nobody is created", False),
        ("its claim gets a finalizer", False),
        ("its claim gets a label", False),
        ("its claim is allocated elsewhere", True),
        ("a slice is published", True),
        ("a class is changed", True),
        ("a node gets a label", True),
    ],
)
def test_what_has_a_pod_tried_again(change: str, is_tried: bool) -> None:
    other = allocated("other", "n1", "gpu-0", "gpu-1")
    # More devices are needed than there are, so that the pod stays pending.
    objects = (N1, GPU, SLICE, other, resource_claim("idle"), resource_claim("c", request("r", 4)))
    world = World(*objects).put(user()).wait(60)
    record = world.scheduler.cluster.pods["pod-p"]
    tried = record.attempts
    _wakes(change, world)
    world.wait(30)
    assert world.node_of("p") == ""
    assert (record.attempts > tried) is is_tried


# Devices that must be ready before the pod is bound


def attached(name: str) -> Raw:
    return device(
        name,
        bindsToNode=True,
        bindingConditions=["Attached", "Ready"],
        bindingFailureConditions=["Failed"],
    )


def report(world: World, claim_name: str, *conditions: str) -> None:
    """The driver reports conditions of a claim's device; `-Ready` is one that is false."""
    result = claim(world, claim_name)["status"]["allocation"]["devices"]["results"][0]
    said = [
        {
            "type": each.removeprefix("-"),
            "status": "False" if each.startswith("-") else "True",
            "reason": "Driver",
            "message": "",
        }
        for each in conditions
    ]
    status = {key: result[key] for key in ("driver", "pool", "device")} | {"conditions": said}
    world.edit("ResourceClaim", claim_name, status__devices=[status])


@pytest.mark.parametrize(
    ("of_c", "of_d", "outcome"),
    [
        ((), (), "waits"),
        (("Attached",), ("Attached",), "waits"),
        (("Attached", "Ready"), (), "waits"),
        (("Attached", "-Ready"), ("Attached", "Ready"), "waits"),
        (("Attached", "Ready", "-Failed"), ("Attached", "Ready"), "bound"),
        (("Attached", "Ready"), ("Attached", "Ready"), "bound"),
        (("Attached", "Ready"), ("Failed",), "tried again"),
        (("Attached", "Ready", "Failed"), ("Attached", "Ready"), "tried again"),
    ],
)
def test_a_pod_waits_for_all_conditions_of_all_its_devices(
    of_c: tuple[str, ...], of_d: tuple[str, ...], outcome: str
) -> None:
    devices = resource_slice("n1", [attached("gpu-0"), attached("gpu-1")])
    world = World(N1, GPU, devices, resource_claim("c"), resource_claim("d")).put(user("c", "d"))
    assert consumers_of(claim(world, "c")) == consumers_of(claim(world, "d")) == ["p"]
    for name, conditions in (("c", of_c), ("d", of_d)):
        if conditions and world.node_of("p") == "" and devices_of(claim(world, name)):
            report(world, name, *conditions)
    failures = [each.message for each in world.events if each.reason == "FailedScheduling"]
    assert world.node_of("p") == ("n1" if outcome == "bound" else "")
    assert bool(failures) == (outcome == "tried again")
    if failures:
        assert failures[0].startswith("device binding failed: claim=")
