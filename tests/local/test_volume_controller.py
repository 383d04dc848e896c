"""Events that say why a claim is not bound, in the words of kube-controller-manager."""

from __future__ import annotations

from typing import Any

import pytest

from harness.embedded_cluster import SteppedCluster
from holdfast.local.store import Key, Raw

CLAIM = Key("", "PersistentVolumeClaim", "default", "c")
NO_CLASS = "no persistent volumes available for this claim and no storage class is set"
FIRST_CONSUMER = "waiting for first consumer to be created before binding"


def _claim(**spec: Any) -> Raw:
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {"name": "c", "namespace": "default"},
        "spec": {
            "accessModes": ["ReadWriteOnce"],
            "resources": {"requests": {"storage": "5Gi"}},
            **spec,
        },
        "status": {"phase": "Pending"},
    }


def _volume(size: str = "5Gi", **spec: Any) -> Raw:
    parts = {"accessModes": ["ReadWriteOnce"], "capacity": {"storage": size}, **spec}
    return {"apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": "v"}, "spec": parts}


def _class(name: str, provisioner: str, mode: str = "Immediate") -> Raw:
    return {
        "apiVersion": "storage.k8s.io/v1",
        "kind": "StorageClass",
        "metadata": {"name": name},
        "provisioner": provisioner,
        "volumeBindingMode": mode,
    }


def _events(it: SteppedCluster) -> list[tuple[str, str, str]]:
    """Type, reason and message of those about the claim, oldest first."""
    found = [e for e in it.store.scan("", "Event") if e["involvedObject"]["name"] == "c"]
    assert {(e["involvedObject"]["kind"], e["count"]) for e in found} <= {("PersistentVolumeClaim", 1)}
    return [(each["type"], each["reason"], each["message"]) for each in found]


_OTHERS = {"namespace": "default", "name": "other", "uid": "o"}
_LOCAL = "kubernetes.io/no-provisioner"


@pytest.mark.parametrize(
    ("others", "spec", "event"),
    [
        ([], {}, ("Normal", "FailedBinding", NO_CLASS)),
        ([_volume("1Gi")], {}, ("Normal", "FailedBinding", NO_CLASS)),
        (
            [],
            {"storageClassName": "nope"},
            ("Warning", "ProvisioningFailed", 'storageclass.storage.k8s.io "nope" not found'),
        ),
        (
            [_class("local", _LOCAL)],
            {"storageClassName": "local"},
            ("Warning", "ProvisioningFailed", f"no volume plugin matched name: {_LOCAL}"),
        ),
        (
            [_class("late", "csi.example.com", "WaitForFirstConsumer")],
            {"storageClassName": "late"},
            ("Normal", "WaitForFirstConsumer", FIRST_CONSUMER),
        ),
        (
            [_volume("1Gi")],
            {"volumeName": "v"},
            (
                "Warning",
                "VolumeMismatch",
                'Cannot bind to requested volume "v": requested PV is too small',
            ),
        ),
        (
            [_volume(storageClassName="fast")],
            {"volumeName": "v"},
            (
                "Warning",
                "VolumeMismatch",
                'Cannot bind to requested volume "v": storageClassName does not match',
            ),
        ),
        (
            [_volume(claimRef=_OTHERS)],
            {"volumeName": "v"},
            ("Warning", "FailedBinding", 'volume "v" already bound to a different claim.'),
        ),
        ([], {"volumeName": "v"}, None),
    ],
)
def test_why_a_claim_is_not_bound_is_said_once(
    others: list[Raw], spec: Raw, event: tuple[str, str, str] | None
) -> None:
    it = SteppedCluster()
    for each in others:
        it.create(each)
    it.create(_claim(**spec))
    it.create({**_volume("1Mi"), "metadata": {"name": "unrelated"}})  # all claims are looked at again
    it.after(60)
    assert _events(it) == ([event] if event is not None else [])


def test_a_claim_waits_for_its_pod_and_then_gets_a_volume() -> None:
    it = SteppedCluster()
    it.create(_class("late", "csi.example.com", "WaitForFirstConsumer"))
    it.create(_claim(storageClassName="late"))
    volumes = [{"name": "data", "persistentVolumeClaim": {"claimName": "c"}}]
    it.create_pod("p", volumes=volumes)  # there is no node
    waiting = [
        ("Normal", "WaitForFirstConsumer", FIRST_CONSUMER),
        ("Normal", "WaitForPodScheduled", "waiting for pod p to be scheduled"),
    ]
    assert _events(it) == waiting
    it.create_pod("q", volumes=volumes)
    waiting.append(("Normal", "WaitForPodScheduled", "waiting for pods p,q to be scheduled"))
    assert _events(it) == waiting
    it.create_node("n")
    it.after(15)
    claim = it.get(CLAIM)
    assert claim["status"]["phase"] == "Bound"
    success = f"Successfully provisioned volume pvc-{claim['metadata']['uid']}"
    assert _events(it) == [*waiting, ("Normal", "ProvisioningSucceeded", success)]


def test_a_claim_that_comes_after_its_pod_waits_for_that() -> None:
    it = SteppedCluster()
    it.create(_class("late", "csi.example.com", "WaitForFirstConsumer"))
    it.create_pod("p", volumes=[{"name": "data", "persistentVolumeClaim": {"claimName": "c"}}])
    it.create(_claim(storageClassName="late"))
    waiting = ("Normal", "WaitForPodScheduled", "waiting for pod p to be scheduled")
    assert _events(it) == [waiting]
    it.delete(Key("", "Pod", "default", "p"))
    assert _events(it) == [waiting, ("Normal", "WaitForFirstConsumer", FIRST_CONSUMER)]


def test_a_claim_loses_its_volume() -> None:
    it = SteppedCluster()
    it.create(_volume())
    it.create(_claim())
    it.delete(Key("", "PersistentVolume", "", "v"))
    it.after(60)
    lost = "Bound claim has lost its PersistentVolume. Data on the volume is lost!"
    assert _events(it) == [("Warning", "ClaimLost", lost)]


def test_a_claim_that_is_created_again_is_another() -> None:
    it = SteppedCluster()
    it.create(_claim())
    it.delete(CLAIM)
    it.create(_claim())
    assert [reason for _, reason, _ in _events(it)] == ["FailedBinding"] * 2


def _bound(allows: bool, provisioner: str = "csi.example.com") -> SteppedCluster:
    it = SteppedCluster()
    it.create({**_class("fast", provisioner), "allowVolumeExpansion": allows})
    if provisioner == _LOCAL:
        it.create(_volume(storageClassName="fast"))
    it.create(_claim(storageClassName="fast"))
    assert it.get(CLAIM)["status"]["phase"] == "Bound"
    return it


@pytest.mark.parametrize(
    ("allows", "provisioner", "size"),
    [(True, "csi.example.com", "8Gi"), (False, "csi.example.com", "5Gi"), (True, _LOCAL, "5Gi")],
)
def test_a_claim_grows_if_its_class_allows_it(allows: bool, provisioner: str, size: str) -> None:
    it = _bound(allows, provisioner)
    it.update(CLAIM, spec={"resources": {"requests": {"storage": "8Gi"}}})
    name = it.get(CLAIM)["spec"]["volumeName"]
    assert it.get(CLAIM)["status"]["capacity"] == {"storage": size}
    assert it.get(Key("", "PersistentVolume", "", name))["spec"]["capacity"] == {"storage": size}
    expected = [
        ("Normal", "Resizing", f"External resizer is resizing volume {name}"),
        ("Normal", "VolumeResizeSuccessful", "Resize volume succeeded"),
    ]
    assert [each for each in _events(it) if "esiz" in each[1]] == (expected if size == "8Gi" else [])
