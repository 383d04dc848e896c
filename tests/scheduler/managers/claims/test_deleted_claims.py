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
from harness.objects import node
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
