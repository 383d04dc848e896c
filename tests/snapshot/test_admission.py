"""Objects written by hand get what the API server would set, from the classes beside them."""

import asyncio
from typing import Any

import pytest

from harness.objects import Raw, pod
from holdfast.api.kinds import KINDS
from holdfast.snapshot.cluster_objects import SnapshotLister

POD, CLAIM = KINDS["v1", "Pod"], KINDS["v1", "PersistentVolumeClaim"]


def priority_class(name: str, value: int, **more: Any) -> Raw:
    kind = {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass"}
    return {**kind, "metadata": {"name": name}, "value": value, **more}


def storage_class(name: str, default: bool) -> Raw:
    marks = {"storageclass.kubernetes.io/is-default-class": "true"} if default else {}
    kind = {"apiVersion": "storage.k8s.io/v1", "kind": "StorageClass", "provisioner": "x"}
    return {**kind, "metadata": {"name": name, "annotations": marks}}


def claim(**spec: Any) -> Raw:
    kind = {"apiVersion": "v1", "kind": "PersistentVolumeClaim"}
    return {**kind, "metadata": {"name": "c"}, "spec": spec}


HIGH = priority_class("high", 1000, preemptionPolicy="Never")
USUAL = [priority_class("usual", 10, globalDefault=True), priority_class("b", 20, globalDefault=True)]
FAST = [storage_class("slow", default=False), storage_class("fast", default=True)]


def spec_of(name: str, *objects: Raw) -> Raw:
    info = POD if name == "p" else CLAIM
    found: Raw = asyncio.run(SnapshotLister(objects, 0).get(info, name, "default"))
    return dict(found["spec"])


@pytest.mark.parametrize(
    ("given", "priority", "policy"),
    [
        ({"priorityClassName": "high"}, 1000, "Never"),
        ({"priorityClassName": "high", "priority": 7}, 7, None),
        ({"priorityClassName": "system-node-critical"}, 2_000_001_000, None),
        ({"priorityClassName": "unknown"}, None, None),
        ({}, 10, None),
    ],
)
def test_priority_of_a_pod(given: Raw, priority: int | None, policy: str | None) -> None:
    spec = spec_of("p", pod("p", **given), HIGH, *USUAL)
    assert (spec.get("priority"), spec.get("preemptionPolicy")) == (priority, policy)


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({}, "fast"),
        ({"storageClassName": "slow"}, "slow"),
        ({"storageClassName": ""}, ""),
        ({"volumeName": "v"}, None),
    ],
)
def test_storage_class_of_a_claim(given: Raw, expected: str | None) -> None:
    assert spec_of("c", claim(**given), *FAST).get("storageClassName") == expected


def test_without_a_default_class_nothing_is_set() -> None:
    assert "storageClassName" not in spec_of("c", claim(), storage_class("slow", default=False))
