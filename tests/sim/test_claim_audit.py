"""What the audit says about devices."""

from __future__ import annotations

from typing import Any

import pytest

from harness.claim_objects import (
    allocation,
    claiming_pod,
    device,
    resource_claim,
    resource_slice,
)
from holdfast.api.names import HELD_DEVICES
from holdfast.sim.audit.claims import ClaimAudit

Raw = dict[str, Any]


def claim(name: str, *devices: str, **more: Any) -> Raw:
    made = resource_claim(name, allocation=allocation("n1", *devices), **more)
    made["metadata"]["uid"] = name
    return made


def audit(*claims: Raw, devices: list[Raw] | None = None) -> tuple[ClaimAudit, list[str]]:
    """The audit after these claims were written, and what it says of them."""
    found, made = ClaimAudit(), resource_slice("n1", devices or [device("gpu-0"), device("gpu-1")])
    problems = list(found.changed("ResourceSlice", ("", "n1"), None, made))
    for each in claims:
        key = ("default", each["metadata"]["name"])
        problems += found.changed("ResourceClaim", key, None, each)
    return found, problems


def shared(name: str, amount: str) -> Raw:
    made = claim(name, "gpu-0")
    result = made["status"]["allocation"]["devices"]["results"][0]
    result |= {"shareID": name, "consumedCapacity": {"memory": amount}}
    return made


def test_a_device_belongs_to_one_claim() -> None:
    assert audit(claim("a", "gpu-0"), claim("b", "gpu-1"))[1] == []
    _, problems = audit(claim("a", "gpu-0"), claim("b", "gpu-0"))
    assert problems == ["device allocated twice: gpu.example.com/n1/gpu-0: default/a, default/b"]


def test_a_device_with_admin_access_is_shared() -> None:
    admin = claim("admin", "gpu-0")
    admin["status"]["allocation"]["devices"]["results"][0]["adminAccess"] = True
    assert audit(claim("a", "gpu-0"), admin)[1] == []


@pytest.mark.parametrize(("amounts", "fits"), [(("4Gi", "4Gi"), True), (("4Gi", "5Gi"), False)])
def test_shares_fit_into_the_capacity(amounts: tuple[str, str], fits: bool) -> None:
    devices = [device("gpu-0", memory="8Gi", allowMultipleAllocations=True)]
    _, problems = audit(shared("a", amounts[0]), shared("b", amounts[1]), devices=devices)
    assert (problems == []) == fits


def test_an_allocation_does_not_change() -> None:
    before, after = claim("a", "gpu-0"), claim("a", "gpu-1")
    found, _ = audit(before)
    problems = list(found.changed("ResourceClaim", ("default", "a"), before, after))
    assert problems == ["allocation of a claim changed: ResourceClaim/default/a"]


def test_a_device_must_be_published() -> None:
    assert audit(claim("a", "gpu-7"))[1] == [
        "device that is not published: ResourceClaim/default/a: gpu.example.com/n1/gpu-7"
    ]


@pytest.mark.parametrize(("of_a_reservation", "right"), [(True, True), (False, False)])
def test_a_reservation_takes_back_devices_that_were_withdrawn(
    of_a_reservation: bool, right: bool
) -> None:
    metadata = {"annotations": {HELD_DEVICES: "{}"}} if of_a_reservation else {}
    whole = claim("a", "gpu-0", "gpu-1", metadata=metadata)
    rest = claim("a", "gpu-0", metadata=metadata)
    cleared = claim("a")
    cleared["status"] = {}
    found, problems = audit(whole)
    key = ("default", "a")
    smaller = resource_slice("n1", [device("gpu-0")])
    problems += found.changed("ResourceClaim", key, whole, cleared)
    problems += found.changed("ResourceClaim", key, cleared, rest)
    problems += found.changed("ResourceSlice", ("", "n1"), None, smaller)
    problems += found.changed("ResourceClaim", key, rest, cleared)
    problems += found.changed("ResourceClaim", key, cleared, whole)
    assert (problems == []) == right


def test_counters_are_not_exceeded() -> None:
    counters = {"memory": {"value": "10Gi"}}
    consumes = [{"counterSet": "gpu", "counters": {"memory": {"value": "6Gi"}}}]
    parts = [device(f"part-{i}", consumesCounters=consumes) for i in range(2)]
    found, _ = audit(devices=parts)
    made = resource_slice("n1", [], name="counters")
    made["spec"]["sharedCounters"] = [{"name": "gpu", "counters": counters}]
    list(found.changed("ResourceSlice", ("", "counters"), None, made))
    assert not list(found.changed("ResourceClaim", ("default", "a"), None, claim("a", "part-0")))
    problems = list(found.changed("ResourceClaim", ("default", "b"), None, claim("b", "part-1")))
    assert problems == ["counter exceeded: gpu.example.com/n1: gpu/memory (by ResourceClaim/default/b)"]


@pytest.mark.parametrize(
    ("status", "node", "expected"),
    [
        ({"reserved_for": ["p"]}, "n1", ""),
        ({}, "n1", "pod bound with a claim that is not reserved for it"),
        ({"reserved_for": ["p"]}, "n2", "pod bound where its claim is not available"),
        (None, "n1", "pod bound with a claim that is not allocated"),
    ],
)
def test_a_pod_is_bound_with_its_claims(status: Raw | None, node: str, expected: str) -> None:
    made = resource_claim("c") if status is None else claim("c", "gpu-0", **status)
    found, _ = audit(made)
    pod = claiming_pod("p", "c", nodeName=node, metadata={"uid": "pod-p", "namespace": "default"})
    said = list(found.bound(pod, {}))
    assert [each.partition(":")[0] for each in said] == ([expected] if expected else [])
