"""What `explain` says of PersistentVolumeClaims and ResourceClaims."""

from __future__ import annotations

from typing import Any

import pytest

from explanation.test_claim_situations import BROKEN, GPU, used
from explanation.test_device_taint_rules import rule
from explanation.test_situations import (
    DB,
    N1,
    claim,
    full,
    snapshot_with,
    storage_class,
    using,
    volume,
)
from harness.claim_objects import (
    allocation,
    claiming_pod,
    gpus,
    request,
    resource_claim,
    resource_slice,
)
from harness.objects import Raw, node, pod
from harness.world import START
from holdfast.explanation.explainer import explain
from holdfast.explanation.report import Report

IMMEDIATE = {**storage_class("fast"), "volumeBindingMode": "Immediate"}
UNBOUND = "No suitable node: pod has unbound immediate PersistentVolumeClaims."


def explained(raw: Raw, *objects: Raw) -> Report:
    known = [raw, *objects]
    for each in known:
        each["metadata"].setdefault("uid", each["metadata"]["name"])
        if each["kind"] in ("Pod", "ResourceClaim"):
            each["metadata"].setdefault("namespace", "default")
            each["spec"].setdefault("schedulerName", "default-scheduler") if each[
                "kind"
            ] == "Pod" else None
    snapshot = snapshot_with(known, START)
    found = explain(snapshot, raw)
    assert found.data() == explain(snapshot, raw).data(), "asking changed the snapshot"
    return found


def waiting(name: str = "p", **spec: Any) -> Raw:
    return pod(name, "1", volumes=using("c"), **spec)


Case = tuple[Raw, list[Raw], str, list[str], list[str]]
CASES: dict[str, Case] = {
    # The claim, other objects, the summary, texts of the details, texts of the advice.
    "a class that does not exist": (
        claim("c", kind="fsat"),
        [N1, waiting()],
        f"It is not bound to a volume. Pod default/p waits: {UNBOUND}",
        ["storage class fsat, which does not exist"],
        ["create StorageClass fsat", "create a volume of storage class fsat"],
    ),
    "a class that does not exist, and no pod": (
        claim("c", kind="fsat"),
        [node("n1", taints=[DB])],
        f"It is not bound to a volume. No pod uses it, and one that did would be pending: {UNBOUND}",
        ["storage class fsat, which does not exist"],
        ["create StorageClass fsat", "create a volume of storage class fsat"],
    ),
    "two pods wait for it": (
        claim("c", kind="fast"),
        [N1, IMMEDIATE, waiting("p"), waiting("q")],
        f"It is not bound to a volume. Pod default/p (and 1 more) waits: {UNBOUND}",
        ["claim c is not bound yet"],
        ["create a volume"],
    ),
    "it is bound by its first pod": (
        claim("c", kind="slow"),
        [N1, {**storage_class("slow"), "provisioner": "example.com/disk"}],
        "It is not bound to a volume. No pod uses it: its StorageClass slow binds claims when a pod "
        "that uses it is scheduled.",
        [],
        [],
    ),
    "it names a volume that does not exist": (
        {**claim("c", volume="gone"), "status": {"phase": "Pending"}},
        [N1, waiting()],
        "It names volume gone, and is not bound to it. Pod default/p waits: ",
        [],
        ["delete claim c, create it again without volumeName, and create a volume without a storage"],
    ),
    "its volume is gone": (
        {**claim("c", volume="gone"), "status": {"phase": "Lost"}},
        [N1],
        "Its volume gone no longer exists, so no pod can use it.",
        ["its data is lost, unless the volume is created again"],
        ["delete claim c, create it again without volumeName, and create a volume without a storage"],
    ),
    "its volume is gone, and a pod waits for it": (
        {**claim("c", volume="gone", kind="slow"), "status": {"phase": "Lost"}},
        [N1, waiting(), {**storage_class("slow"), "provisioner": "example.com/disk"}],
        "Its volume gone no longer exists, so no pod can use it.",
        [],
        ["delete claim c and create it again without volumeName, to be bound to another volume"],
    ),
    "its volume is gone, and its pod is on a node": (
        {**claim("c", volume="gone"), "status": {"phase": "Lost"}},
        [N1, full("a", "1", "n1", volumes=using("c"))],
        "Its volume gone no longer exists, so no pod can use it.",
        ["pods on nodes that use it: default/a"],
        [],
    ),
    "bound": (
        claim("c", volume="v"),
        [N1, volume("v", "c"), full("a", "1", "n1", volumes=using("c"))],
        "It is bound to volume v (1Gi).",
        ["pods on nodes that use it: default/a"],
        [],
    ),
    "its pod waits for something else": (
        claim("c", kind="slow"),
        [
            node("n1", cpu="2"),
            {**storage_class("slow"), "provisioner": "example.com/disk"},
            pod("p", "4", volumes=using("c")),
        ],
        "It is not bound to a volume. Pod default/p waits: No suitable node among 1 node: too little",
        ["it requests 4 cpu, the most a node has is 2"],
        ["request at most 2"],
    ),
    # Devices
    "no devices": (
        resource_claim("c", request("r", 2)),
        [N1, GPU, resource_slice("n1", 1), claiming_pod("p", "c")],
        "It is not allocated. Pod default/p waits: No suitable node among 1 node: cannot allocate all "
        "claims (1).",
        ["n1: 2 devices are requested, and 1 is published for it"],
        ["request at most 1 device"],
    ),
    "no devices, and no pod": (
        resource_claim("c", request("r", 1)),
        [N1, GPU, resource_slice("n1", 1), rule("repair", BROKEN)],
        "It is not allocated. No pod uses it, and one that did would be pending: No suitable node "
        "among 1 node: cannot allocate all claims (1).",
        ["comes from DeviceTaintRule repair"],
        ["tolerate broken=yes:NoSchedule", "delete DeviceTaintRule repair"],
    ),
    "no pod": (
        resource_claim("c", request("r", 1)),
        [N1, GPU, resource_slice("n1", gpus(1))],
        "It is not allocated. No pod uses it: it is allocated when a pod that does is scheduled.",
        [],
        [],
    ),
    "allocated": (
        used("c", "n1", "gpu-0", by="a")[0],
        [N1, GPU, resource_slice("n1", 1), used("c", "n1", "gpu-0", by="a")[1]],
        "It is allocated: gpu.example.com/n1/gpu-0.",
        ["pods on nodes that use it: default/a"],
        [],
    ),
    "allocated for nobody": (
        resource_claim("c", request(), allocation=allocation("n1", "gpu-0")),
        [N1, GPU, resource_slice("n1", 1)],
        "It is allocated: gpu.example.com/n1/gpu-0. No pod uses it, but its devices count as in use.",
        [],
        [],
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_situation(name: str) -> None:
    raw, objects, summary, details, advice = CASES[name]
    report = explained(raw, *objects)
    assert report.summary.startswith(summary)
    for text in details:
        assert any(text in each for each in report.details), report.details
    told = [each.text for each in report.advice]
    assert len(told) == len(advice), told
    for text, said in zip(advice, told, strict=True):
        assert said.startswith(text)


def test_a_claim_that_is_being_deleted() -> None:
    raw = claim("c", volume="v")
    raw["metadata"] |= {
        "deletionTimestamp": "2026-01-01T00:00:00Z",
        "finalizers": ["kubernetes.io/pvc-protection"],
    }
    report = explained(raw, N1, volume("v", "c"), full("a", "1", "n1", volumes=using("c")))
    assert report.phase == "Terminating"
    assert report.summary == (
        "It is bound to volume v (1Gi). It is being deleted; finalizers keep it: "
        "kubernetes.io/pvc-protection."
    )
    assert report.details == ["pods on nodes that use it: default/a"]


def test_what_is_advised_for_a_claim_without_pods() -> None:
    raw, objects, *_ = CASES["no devices, and no pod"]
    assert explained(raw, *objects).advice[-1].text == (
        "delete DeviceTaintRule repair, once the devices that it taints may be used again; "
        "then a pod that uses it fits n1"
    )
