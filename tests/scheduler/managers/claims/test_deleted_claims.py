"""Claims that are being deleted while they are reserved for pods."""

from __future__ import annotations

from typing import Any

import pytest

from harness.claim_objects import (
    allocation,
    claiming_pod,
    consumers_of,
    device_class,
    request,
    resource_claim,
    resource_slice,
)
from harness.objects import in_queue, node, pod, queue
from harness.world import World

DELETED = {"deletionTimestamp": "2026-01-01T00:00:00Z", "finalizers": ["example.com/keep"]}


@pytest.mark.parametrize(
    ("metadata", "scheduler", "consumers", "node_of_waits"),
    [
        (DELETED, "", ["runs"], ""),
        (DELETED, "another-scheduler", ["runs", "waits"], ""),
        ({}, "", ["runs", "waits"], "n1"),
    ],
)
def test_a_pending_pod_of_ours_gives_up_a_claim_that_is_being_deleted(
    metadata: dict[str, object], scheduler: str, consumers: list[str], node_of_waits: str
) -> None:
    """An earlier leader reserved the claim for both and stopped before it bound the second."""
    more: Any = {"schedulerName": scheduler} if scheduler else {}
    claim = resource_claim(
        "shared",
        request(),
        metadata=metadata,
        allocation=allocation("n1", "gpu-0"),
        reserved_for=["runs", "waits"],
    )
    world = World(node("n1"), device_class(), resource_slice("n1"), claim)
    world.put(claiming_pod("runs", "shared", nodeName="n1"), claiming_pod("waits", "shared", **more))
    world.settle()
    assert consumers_of(world.objects["ResourceClaim", "shared"]) == consumers
    assert world.node_of("waits") == node_of_waits


def test_a_gang_that_is_not_placed_gives_up_a_claim_though_it_is_tried_in_dry_runs() -> None:
    """An earlier leader reserved the claim for a member and stopped before it bound it."""
    claim = resource_claim(
        "shared", request(), allocation=allocation("n1", "gpu-0"), reserved_for=["runs", "g-1"]
    )
    world = World(node("n1", cpu="2"), device_class(), resource_slice("n1"), claim)
    group = {
        "apiVersion": "scheduling.volcano.sh/v1beta1",
        "kind": "PodGroup",
        "metadata": {"name": "g", "namespace": "default", "uid": "group-g"},
        "spec": {"minMember": 2},
    }
    member: Any = {"metadata": {"annotations": {"scheduling.k8s.io/group-name": "g"}}, "priority": 5}
    world.put(claiming_pod("runs", "shared", nodeName="n1"), group)
    world.put(claiming_pod("g-1", "shared", **member), pod("g-2", cpu="4", **member))
    world.settle()
    assert (world.node_of("g-1"), world.node_of("g-2")) == ("", "")
    assert consumers_of(world.objects["ResourceClaim", "shared"]) == ["runs"]


def test_a_pod_that_its_queue_does_not_admit_gives_up_a_claim() -> None:
    """An earlier leader reserved the claim for it and stopped before it bound it."""
    claim = resource_claim(
        "shared", request(), allocation=allocation("n1", "gpu-0"), reserved_for=["runs", "waits"]
    )
    world = World(node("n1"), device_class(), resource_slice("n1"), claim)
    world.put(queue("full", capability={"cpu": "0"}))
    waits = claiming_pod("waits", "shared", metadata={"annotations": in_queue("full")})
    world.put(claiming_pod("runs", "shared", nodeName="n1"), waits)
    assert world.message("waits") == "queue full would have more cpu than its capability"
    assert consumers_of(world.objects["ResourceClaim", "shared"]) == ["runs"]
