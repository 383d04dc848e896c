"""What the audit says about devices."""

from __future__ import annotations

import json
from typing import Any

import pytest

from harness.claim_objects import (
    allocation,
    claiming_pod,
    device,
    device_class,
    request,
    resource_claim,
    resource_slice,
)
from holdfast.api.names import HELD_DEVICES
from holdfast.local.setup import SchedulerFactory
from holdfast.sim.audit.claims import ClaimAudit
from holdfast.sim.audit.lifecycle import places_plain_pods

Raw = dict[str, Any]


def claim(name: str, *devices: str, **more: Any) -> Raw:
    made = resource_claim(name, allocation=allocation("n1", *devices), **more)
    made["metadata"]["uid"] = name
    return made


def audit(
    *claims: Raw, devices: list[Raw] | None = None, pods: list[Raw] | None = None
) -> tuple[ClaimAudit, list[str]]:
    """The audit after these claims were written, and what it says of them."""
    existing = {each["metadata"]["uid"]: each for each in pods or []}
    found, made = (
        ClaimAudit(existing),
        resource_slice("n1", devices or [device("gpu-0"), device("gpu-1")]),
    )
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


def pod_on(node: str, **metadata: Any) -> Raw:
    named = {"uid": "pod-p", "namespace": "default", **metadata}
    return claiming_pod("p", "c", nodeName=node, metadata=named)


@pytest.mark.parametrize("after", [None, resource_claim("c"), claim("c", "gpu-0")])
def test_a_claim_is_not_taken_from_a_pod_that_runs(after: Raw | None) -> None:
    if after is not None:
        after["metadata"]["uid"] = "c"
    before = claim("c", "gpu-0", reserved_for=["p"])
    found, _ = audit(before, pods=[pod_on("n1")])
    problems = list(found.changed("ResourceClaim", ("default", "c"), before, after))
    assert problems == ["claim taken from a pod: ResourceClaim/default/c: Pod/default/p"]


def owned_by(kind: str, uid: str, made: Raw) -> Raw:
    made["metadata"]["ownerReferences"] = [{"kind": kind, "name": uid, "uid": uid, "controller": True}]
    return made


def held(*devices: str, allocated: tuple[str, ...]) -> Raw:
    text = json.dumps(allocation("n1", *devices))
    made = claim("held", *allocated, metadata={"annotations": {HELD_DEVICES: text}})
    if not allocated:
        made["status"] = {}
    return owned_by("Reservation", "r", made)


def reservation(phase: str) -> Raw:
    entries = [{"name": "gpu", "resourceClaimTemplateName": "t"}]
    return {
        "metadata": {"name": "r", "uid": "r"},
        "spec": {"template": {"spec": {"resourceClaims": entries}}},
        "status": {"phase": phase, "nodeName": "n1"},
    }


def deleted(made: Raw) -> Raw:
    made["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    return made


@pytest.mark.parametrize(
    ("claims", "pods", "expected"),
    [
        ([claim("c", "gpu-0", reserved_for=["p"])], [pod_on("n1")], ""),
        (
            [claim("c", "gpu-0", reserved_for=["p"])],
            [pod_on("")],
            "claim reserved for a pod without a node",
        ),
        ([claim("c", "gpu-0", reserved_for=["p"])], [], "claim reserved for a pod that is gone"),
        ([deleted(claim("c", "gpu-0"))], [], "unused claim is not deleted"),
        ([claim("c", "gpu-0")], [], ""),
        ([owned_by("Pod", "pod-p", claim("c", "gpu-0"))], [], "claim of a pod that is gone"),
        ([owned_by("Pod", "pod-p", claim("c", "gpu-0"))], [pod_on("")], ""),
    ],
)
def test_nothing_is_left_at_rest(claims: list[Raw], pods: list[Raw], expected: str) -> None:
    found, _ = audit(*claims, pods=pods)
    assert [each.partition(":")[0] for each in found.at_rest()] == ([expected] if expected else [])


@pytest.mark.parametrize(
    ("phase", "claims", "expected"),
    [
        ("Available", [held("gpu-0", "gpu-1", allocated=("gpu-0", "gpu-1"))], ""),
        ("Available", [held("gpu-0", allocated=()), claim("c", "gpu-0")], ""),
        ("Available", [held("gpu-0", allocated=())], "devices of a reservation"),
        (
            "Available",
            [held("gpu-0", "gpu-1", allocated=("gpu-0", "gpu-1")), claim("c", "gpu-0")],
            "devices of a reservation",
        ),
        ("Available", [held("gpu-0", "gpu-7", allocated=("gpu-0",))], ""),
        ("Waiting", [held("gpu-0", allocated=())], ""),
        (
            "Waiting",
            [held("gpu-0", allocated=("gpu-0",)), claim("c", "gpu-0")],
            "devices of a reservation",
        ),
        ("Available", [], "claims of a reservation"),
        ("Pending", [], ""),
        (
            "Failed",
            [held("gpu-0", allocated=("gpu-0",))],
            "claim of a reservation that is gone or finished",
        ),
    ],
)
def test_a_reservation_holds_its_devices(phase: str, claims: list[Raw], expected: str) -> None:
    found, _ = audit(*claims)
    list(found.changed("Reservation", ("", "r"), None, reservation(phase)))
    assert [each.partition(":")[0] for each in found.at_rest()] == ([expected] if expected else [])


def test_a_reservation_keeps_a_withdrawn_device_but_does_not_get_one() -> None:
    made = held("gpu-0", "gpu-1", allocated=("gpu-0", "gpu-1"))
    found, problems = audit(made)
    assert problems == []
    list(found.changed("ResourceSlice", ("", "n1"), None, resource_slice("n1", [device("gpu-1")])))

    def write(before: Raw, *devices: str) -> tuple[Raw, list[str]]:
        after = held("gpu-0", "gpu-1", allocated=devices)
        return after, list(found.changed("ResourceClaim", ("default", "held"), before, after))

    cleared, problems = write(made)
    kept, more = write(cleared, "gpu-0")
    assert problems + more == []
    cleared, problems = write(kept)
    without, more = write(cleared, "gpu-1")
    assert problems + more == []
    cleared, _ = write(without)
    _, problems = write(cleared, "gpu-0")
    assert [each.partition(":")[0] for each in problems] == ["device that is not published"]


@pytest.mark.parametrize(
    ("others", "gets"),
    [([], True), ([claim("x", "gpu-1")], True), ([claim("x", "gpu-0"), claim("y", "gpu-1")], False)],
)
def test_a_reservation_waits_for_nothing_if_its_devices_are_free(others: list[Raw], gets: bool) -> None:
    mine = held("gpu-0", allocated=())
    mine["spec"] = {"devices": {"requests": [request()]}}
    found, _ = audit(mine, *others)
    made = device_class("gpu", 'device.driver == "gpu.example.com"')
    list(found.changed("DeviceClass", ("", "gpu"), None, made))
    waiting = reservation("Waiting")
    list(found.changed("Reservation", ("", "r"), None, waiting))
    assert found.certainly_gets(waiting["metadata"]["uid"], "n1") == gets


def test_the_default_plugins_leave_the_liveness_check_on() -> None:
    config = {"apiVersion": "kubescheduler.config.k8s.io/v1", "kind": "KubeSchedulerConfiguration"}
    obstacles = SchedulerFactory.of(config).obstacles("default-scheduler")
    assert places_plain_pods(obstacles)


@pytest.mark.parametrize(("count", "used", "fits"), [(1, 0, True), (2, 0, True), (2, 1, False)])
def test_a_pod_waits_for_nothing_if_its_devices_are_free(count: int, used: int, fits: bool) -> None:
    found, _ = audit(resource_claim("c", request("r", count)), *[claim("x", "gpu-0")][:used])
    made = device_class("gpu", 'device.driver == "gpu.example.com"')
    list(found.changed("DeviceClass", ("", "gpu"), None, made))
    assert found.certainly_fits(pod_on(""), "n1") == fits
