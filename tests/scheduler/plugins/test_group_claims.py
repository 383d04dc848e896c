"""Claims that the members of a PodGroup of `scheduling.k8s.io` share: allocated once, reserved for the
group, and deallocated only while no member has a node."""

from __future__ import annotations

from typing import Any

import pytest

from harness.claim_objects import (
    allocation,
    claiming_pod,
    consumers_of,
    device,
    device_class,
    devices_of,
    resource_claim,
    resource_slice,
)
from harness.objects import Raw, core_group, gang, node, pod_group
from harness.world import World

BY_TEMPLATE = {"name": "gpu", "resourceClaimTemplateName": "gpu"}
BY_NAME = {"name": "c0", "resourceClaimName": "shared"}


def group(entry: Raw = BY_TEMPLATE, name: str = "g", least: int | None = 2, **more: Any) -> Raw:
    made = core_group(name, least, resourceClaims=[entry], **more)
    made["metadata"]["namespace"] = "default"
    return made


def of_group(name: str = "g") -> Raw:
    """A consumer of a claim."""
    return {
        "apiGroup": "scheduling.k8s.io",
        "resource": "podgroups",
        "name": name,
        "uid": f"podgroup-{name}",
    }


def its_claim(name: str = "g", **more: Any) -> Raw:
    """The claim that was made for the group."""
    owner = {
        "apiVersion": "scheduling.k8s.io/v1beta1",
        "kind": "PodGroup",
        "name": name,
        "uid": f"podgroup-{name}",
        "controller": True,
    }
    return resource_claim(f"{name}-gpu", metadata={"ownerReferences": [owner]}, **more)


def members(count: int = 2, name: str = "g", **more: Any) -> list[Raw]:
    return [
        claiming_pod(
            f"{name}-{i}",
            templates={"gpu": f"{name}-gpu"},
            schedulingGroup={"podGroupName": name},
            **more,
        )
        for i in range(count)
    ]


def cluster(*nodes: str, devices: int = 1) -> list[Raw]:
    found = [device_class()]
    for name in nodes:
        found += [node(name), resource_slice(name, devices)]
    return found


def claim(world: World, name: str = "g-gpu") -> Raw:
    return world.objects["ResourceClaim", name]


def test_members_share_a_claim_that_is_reserved_for_the_group() -> None:
    world = World(*cluster("n1", "n2"), group(least=3), its_claim()).put(*members(3))
    assert len({world.node_of(f"g-{i}") for i in range(3)}) == 1
    assert claim(world)["status"]["reservedFor"] == [of_group()]
    assert len(devices_of(claim(world))) == 1


def test_a_claim_by_name_is_reserved_for_the_group_that_names_it_alike() -> None:
    world = World(*cluster("n1"), group(BY_NAME), resource_claim("shared"))
    world.put(
        *(claiming_pod(f"g-{i}", "shared", schedulingGroup={"podGroupName": "g"}) for i in (0, 1))
    )
    world.put(claiming_pod("alone", "shared"))
    assert [world.node_of(name) for name in ("g-0", "g-1", "alone")] == ["n1"] * 3
    assert consumers_of(claim(world, "shared")) == ["g", "alone"]


@pytest.mark.parametrize(
    "entry",
    [
        {"name": "another", "resourceClaimName": "shared"},
        {"name": "c0", "resourceClaimName": "another"},
        {"name": "c0", "resourceClaimTemplateName": "shared"},
    ],
)
def test_a_claim_whose_entry_differs_is_reserved_for_the_pod(entry: Raw) -> None:
    world = World(*cluster("n1"), group(entry, least=1), resource_claim("shared"))
    world.put(claiming_pod("p", "shared", schedulingGroup={"podGroupName": "g"}))
    assert consumers_of(claim(world, "shared")) == ["p"]


def test_the_claim_is_neither_unreserved_nor_freed_by_a_member_that_leaves() -> None:
    world = World(*cluster("n1"), group(), its_claim()).put(*members())
    world.delete("Pod", "g-0").delete("Pod", "g-1")
    assert consumers_of(claim(world)) == ["g"]
    other = claiming_pod("other", "own", priority=100)
    world.put(resource_claim("own"), other)
    assert "1 cannot allocate all claims" in world.message("other")
    assert world.preempted == []


def test_members_of_a_claim_are_not_preempted_for_its_device() -> None:
    """It would not be released while the group exists."""
    world = World(*cluster("n1"), group(), its_claim()).put(*members())
    world.put(resource_claim("own"), claiming_pod("urgent", "own", priority=100)).wait(30)
    assert world.node_of("urgent") == ""
    assert [world.node_of(f"g-{i}") for i in (0, 1)] == ["n1", "n1"]


def test_a_later_member_follows_after_a_restart() -> None:
    world = World(*cluster("n1", "n2"), group(least=1), its_claim()).put(*members(1))
    world.restart()
    world.put(members(2)[1])
    assert world.node_of("g-1") == world.node_of("g-0")
    assert claim(world)["status"]["reservedFor"] == [of_group()]


@pytest.mark.parametrize("consumers", [(), (of_group(),)])
def test_an_unused_claim_that_keeps_a_group_from_nodes_is_deallocated(
    consumers: tuple[Raw, ...],
) -> None:
    old = its_claim(allocation=allocation("gone", "gpu-0"))
    old["status"]["reservedFor"] = [*consumers]
    world = World(*cluster("n1"), group(), old).put(*members()).wait(60)
    assert devices_of(claim(world)) == ["n1/gpu-0"]
    assert [world.node_of(f"g-{i}") for i in (0, 1)] == ["n1", "n1"]


def test_a_claim_that_a_member_uses_is_not_deallocated_for_another() -> None:
    world = World(*cluster("n1", "n2"), group(least=1), its_claim()).put(*members(1))
    where = world.node_of("g-0")
    other = "n2" if where == "n1" else "n1"
    late = members(2, nodeSelector={"kubernetes.io/hostname": other})[1]
    world.put(late).wait(60)
    assert world.node_of("g-1") == ""
    assert devices_of(claim(world)) == [f"{where}/gpu-0"]


def test_a_claim_that_another_group_uses_too_is_not_deallocated() -> None:
    both = resource_claim("shared", allocation=allocation("gone", "gpu-0"))
    both["status"]["reservedFor"] = [of_group(), of_group("other")]
    world = World(*cluster("n1"), group(BY_NAME, least=1), both)
    world.put(claiming_pod("p", "shared", schedulingGroup={"podGroupName": "g"})).wait(60)
    assert world.node_of("p") == ""
    assert devices_of(claim(world, "shared")) == ["gone/gpu-0"]


def test_an_unused_claim_of_a_gang_of_other_kinds_is_deallocated_too() -> None:
    shared = resource_claim("shared", allocation=allocation("gone", "gpu-0"))
    its, pods = pod_group("g", 2), gang("g", 2)
    its["metadata"]["namespace"] = "default"
    for each in pods:
        each["spec"]["resourceClaims"] = [BY_NAME]
    world = World(*cluster("n1"), its, shared).put(*pods).wait(60)
    assert devices_of(claim(world, "shared")) == ["n1/gpu-0"]


def test_a_claim_of_another_group_is_not_used() -> None:
    pods = members(1)
    pods[0]["status"]["resourceClaimStatuses"] = [{"name": "gpu", "resourceClaimName": "other-gpu"}]
    world = World(*cluster("n1"), group(least=1), its_claim("other")).put(*pods)
    assert world.node_of("g-0") == ""
    cls = world.scheduler.cluster.pods["pod-g-0"].cls
    assert [each.problem for each in cls.claims] == [
        "ResourceClaim default/other-gpu was not created for Pod default/g-0 "
        "(neither Pod nor PodGroup g is the owner)"
    ]


def test_members_wait_until_a_shared_device_is_ready() -> None:
    conditions: Raw = {"bindingConditions": ["Attached"], "bindingFailureConditions": ["Failed"]}
    slices = resource_slice("n1", [device("gpu-0", **conditions)])
    world = World(device_class(), node("n1"), slices, group(), its_claim()).put(*members())
    assert [world.node_of(f"g-{i}") for i in (0, 1)] == ["", ""]
    assert consumers_of(claim(world)) == ["g"]
    attached = {"type": "Attached", "status": "True", "lastTransitionTime": "2026-01-01T00:00:00Z"}
    reported = [
        {"driver": "gpu.example.com", "pool": "n1", "device": "gpu-0", "conditions": [attached]}
    ]
    world.edit("ResourceClaim", "g-gpu", status__devices=reported).wait(10)
    assert [world.node_of(f"g-{i}") for i in (0, 1)] == ["n1", "n1"]
