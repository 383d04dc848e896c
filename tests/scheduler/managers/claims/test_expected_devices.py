"""The devices that pods with starvation holds would get one after the other."""

from __future__ import annotations

from typing import Any

import pytest

from harness.claim_objects import claim_template, device_class, generated, resource_slice
from harness.objects import Raw, node, pod
from harness.scenarios import actions, play
from harness.world import World
from holdfast.scheduler.managers.claims.allocator import ClaimsAllocator


def starving(count: int) -> list[Raw]:
    """Pods with a claim each, on nodes that have two free devices and no cpu left for each of them."""
    given = [device_class(), claim_template("gpu")]
    for i in range(count):
        full = pod(f"full-{i}", 7, nodeName=f"n{i}")
        given += [node(f"n{i}", 8), resource_slice(f"n{i}", 2), full]
    spec: Raw = {"resourceClaims": [{"name": "c", "resourceClaimTemplateName": "gpu"}]}
    return [*given, *(pod(f"p-{i:02}", 4, at="1s", **spec) for i in range(count))]


def test_devices_for_the_pods_of_holds_are_found_once_a_round(monkeypatch: pytest.MonkeyPatch) -> None:
    """Not again for each of these pods with those of all earlier holds."""
    calls = []
    allocate = ClaimsAllocator.allocate

    def counted(self: ClaimsAllocator, *args: Any, **more: Any) -> Any:
        calls.append(args)
        return allocate(self, *args, **more)

    monkeypatch.setattr(ClaimsAllocator, "allocate", counted)
    config = actions("allocate", "backfill", starvingJobTimeThreshold=5, reservedNodePercent=100)
    played = play(starving(24), config=config, until=30)
    assert len(played.all("Reservation")) == 24
    assert len(calls) < 24 * 20


def test_what_earlier_pods_would_get_is_found_again_after_a_change() -> None:
    made = World(node("n", cpu="8"), device_class(), resource_slice("n", 4))
    names = ["a", "b", "c"]
    for name in names:
        made.put(*generated(name, nodeSelector={"no": "node"}))
    cluster = made.scheduler.cluster
    claims = cluster.claims
    pods = [(cluster.pods[f"pod-{name}"], 0) for name in names]

    def devices(*order: int) -> list[str]:
        return [str(each.device) for each in claims.taken_by([pods[i] for i in order])]

    assert devices(0, 1, 2) == ["gpu-0", "gpu-1", "gpu-2"]
    assert devices(0, 1) == ["gpu-0", "gpu-1"]
    assert devices(2, 0) == ["gpu-0", "gpu-1"]
    made.put(*generated("user"))
    assert devices(2, 0) == ["gpu-1", "gpu-2"]
    made.delete("ResourceClaim", "c-gpu")
    assert devices(2, 0) == ["gpu-1"]
    made.put(resource_slice("n", 2))
    assert devices(0, 1) == ["gpu-1"]
