"""What the changes in advice look like: a user can apply them, and the templates of workloads are
changed instead of their pods."""

from __future__ import annotations

from typing import Any

import pytest

from explanation.test_situations import (
    DB,
    ESTIMATE,
    N1,
    Row,
    annotated,
    claim,
    explained,
    full,
    planned,
    snapshot_of,
    storage_class,
    using,
    world_of,
)
from harness.claim_objects import (
    allocation,
    claiming_pod,
    device,
    device_class,
    request,
    resource_claim,
    resource_slice,
)
from harness.objects import Raw, node, pod, queue
from holdfast.explanation.explainer import explain

TAINTED = node("n1", taints=[DB])
SERVER_SIDE = {"uid", "resourceVersion", "managedFields", "creationTimestamp", "generation"}
MOUNT = {"name": "kube-api-access-abcde", "mountPath": "/var/run/secrets"}


def reference(kind: str, name: str) -> list[Raw]:
    api_version = "batch/v1" if kind == "Job" else "apps/v1"
    return [{"apiVersion": api_version, "kind": kind, "name": name, "uid": name, "controller": True}]


def workload(kind: str, name: str, of: str = "", cpu: str = "1") -> Raw:
    metadata: Raw = {"name": name, "namespace": "default", "uid": name}
    if of:
        metadata["ownerReferences"] = reference("Deployment", of)
    return {
        "apiVersion": "batch/v1" if kind == "Job" else "apps/v1",
        "kind": kind,
        "metadata": metadata,
        "spec": {
            "selector": {"matchLabels": {"app": name}},
            "template": {"spec": pod("x", cpu)["spec"]},
        },
    }


def owned(name: str, kind: str, by: str, cpu: str = "1") -> Raw:
    raw = pod(name, cpu, metadata={"ownerReferences": reference(kind, by)})
    raw["spec"]["containers"][0]["volumeMounts"] = [MOUNT]
    return raw


def advised(objects: list[Raw], name: str = "p", raw: Raw | None = None) -> list[Any]:
    world = world_of(objects)
    if raw is not None:
        return explain(snapshot_of(world), raw).advice
    return explained(world, Row([], [], [], name=name)).advice


@pytest.mark.parametrize("asked", ["pod", "workload"])
@pytest.mark.parametrize(
    ("kind", "note"),
    [
        ("Deployment", ""),
        ("ReplicaSet", ""),
        ("StatefulSet", ""),
        ("DaemonSet", ""),
        ("Job", " (delete the Job and create it again)"),
    ],
)
def test_the_template_of_a_workload_is_changed(kind: str, note: str, asked: str) -> None:
    above = workload(kind, "web")
    below = [workload("ReplicaSet", "web-1", of="web")] if kind == "Deployment" else []
    by = ("ReplicaSet", "web-1") if below else (kind, "web")
    known = below or ([above] if kind in ("ReplicaSet", "StatefulSet") else [])
    objects = [TAINTED, *known, owned("p", *by)]
    (advice,) = advised(objects, raw=above if asked == "workload" else None)
    kept = ""
    if kind in ("ReplicaSet", "StatefulSet"):
        kept = ", then delete the pending pod (kubectl delete pod p): "
        kept += f"the {kind} does not replace it by itself"
    assert advice.text == (
        f"tolerate dedicated=db:NoSchedule, in the template of {kind} web{note}{kept}; then it fits n1"
    )
    change, *deleted = advice.change["objects"]
    assert [(each["operation"], each["name"]) for each in deleted] == (
        [("delete", "p")] if kept else []
    )
    assert (change["operation"], change["kind"], change["name"]) == ("patch", kind, "web")
    (toleration,) = change["patch"]["spec"]["template"]["spec"]["tolerations"]
    assert toleration["key"] == "dedicated"
    assert [each["kind"] for each in advice.change["then"]] == ["Pod"]


def test_containers_are_taken_from_the_template() -> None:
    objects = [N1, full("a", "6", "n1"), workload("StatefulSet", "web", cpu="4")]
    (advice,) = advised([*objects, owned("p", "StatefulSet", "web", "4")])
    change = advice.change["objects"][0]
    (container,) = change["patch"]["spec"]["template"]["spec"]["containers"]
    assert container["resources"]["requests"]["cpu"] == "2"
    assert "volumeMounts" not in container


def test_mounts_that_the_server_adds_are_left_out_where_the_template_is_not_known() -> None:
    (advice,) = advised([N1, full("a", "6", "n1"), owned("p", "Job", "report", "4")])
    (change,) = advice.change["objects"]
    assert change["patch"]["spec"]["template"]["spec"]["containers"][0]["volumeMounts"] == []


def test_annotations_are_changed_in_the_template_and_on_the_pod() -> None:
    objects = [N1, workload("StatefulSet", "web")]
    raw = owned("p", "StatefulSet", "web")
    raw["metadata"]["annotations"] = {"scheduling.koordinator.sh/reservation-affinity": '{"nam": "x"}'}
    (advice,) = advised([*objects, raw])
    kinds = [each["kind"] for each in advice.change["objects"]]
    assert kinds == ["StatefulSet", "Pod"]


@pytest.mark.parametrize(
    "objects",
    [
        [N1, queue("batch"), pod("p", annotations={"scheduling.volcano.sh/queue-name": "bacth"})],
        [
            N1,
            queue("batch", state="Closed"),
            pod("p", metadata=annotated(**{"scheduling.volcano.sh/queue-name": "batch"})),
        ],
        [N1, pod("p", volumes=using("nope"))],
        [N1, storage_class("local"), claim("c", kind="local"), pod("p", volumes=using("c"))],
        [N1, full("a", "6", "n1", annotations={ESTIMATE: "10m"}), pod("p", "8")],
        [
            N1,
            device_class("gpu.example.com"),
            resource_slice("n1", 2),
            resource_claim("c", request(of="gpu.exmple.com")),
            claiming_pod("p", "c"),
        ],
        [
            N1,
            device_class(),
            resource_slice("n1", 1),
            resource_claim(
                "theirs", request(), allocation=allocation("n1", "gpu-0"), reserved_for=["a"]
            ),
            claiming_pod("a", "theirs", nodeName="n1"),
            resource_claim("c", request()),
            claiming_pod("p", "c"),
        ],
    ],
    ids=["queue", "closed queue", "claim", "volume", "end", "device class", "devices"],
)
def test_changes_hold_what_a_user_applies(objects: list[Raw]) -> None:
    given = [raw | {"metadata": {"resourceVersion": "7", **raw["metadata"]}} for raw in objects]
    found = advised(given)
    assert found
    for advice in found:
        for each in advice.change["objects"]:
            body = each.get("object") or each.get("patch") or {}
            assert ("status" in body) == (each.get("subresource") == "status"), advice.text
            assert not SERVER_SIDE & (body.get("metadata") or {}).keys(), advice.text


SOON = full("a", "7", "n1", metadata=annotated(**{ESTIMATE: "20m"}))
TAINTED_DEVICE = device("g", taints=[{"key": "bad", "effect": "NoSchedule"}])


def terminating(name: str, cpu: str) -> Raw:
    until = {"deletionTimestamp": "2026-01-01T00:00:20Z", "deletionGracePeriodSeconds": 30}
    return full(name, cpu, "n1", metadata={**until, "name": name})


@pytest.mark.parametrize(
    ("objects", "made"),
    [
        (
            [
                N1,
                SOON,
                device_class(),
                resource_slice("n1", [TAINTED_DEVICE]),
                resource_claim("c", request()),
                claiming_pod("p", "c", cpu="8"),
            ],
            ["end Pod a", "delete ResourceClaim c", "create ResourceClaim c"],
        ),
        (
            [TAINTED, SOON, workload("StatefulSet", "s"), owned("p", "StatefulSet", "s", "16")],
            ["patch StatefulSet s", "end Pod a", "delete Pod p"],
        ),
        (
            [N1, terminating("a", "1"), full("b", "7", "n1"), pod("p", "8")],
            ["end Pod a", "delete Pod b"],
        ),
    ],
    ids=["claim", "pending pod", "terminating pod"],
)
def test_what_is_waited_for_ends_and_the_rest_is_deleted(objects: list[Raw], made: list[str]) -> None:
    advice = advised(objects)[0]
    changes = advice.change["objects"]
    assert [f"{each['operation']} {each['kind']} {each['name']}" for each in changes] == made


def test_a_reservation_that_is_waited_for_starts_by_itself() -> None:
    found = advised([N1, planned("nightly", "6"), pod("p", "4", app="night")])
    (wait,) = [each for each in found if each.change["actions"] == ["Wait"]]
    assert wait.change["objects"] == []
    assert {each["name"] for each in wait.change["then"]} == {"nightly"}


def test_a_queue_is_opened_in_its_status() -> None:
    annotation = {"scheduling.volcano.sh/queue-name": "batch"}
    (advice,) = advised(
        [N1, queue("batch", state="Closed"), pod("p", metadata=annotated(**annotation))]
    )
    (change,) = advice.change["objects"]
    assert (change["subresource"], change["patch"]) == ("status", {"status": {"state": "Open"}})
    assert "(kubectl patch queue batch --subresource=status --type=merge -p " in advice.text


def test_a_created_volume_names_its_claim_without_an_invented_uid() -> None:
    (advice,) = advised([N1, pod("p", volumes=using("nope"))])
    created = {each["kind"]: each["object"] for each in advice.change["objects"]}
    reference = created["PersistentVolume"]["spec"]["claimRef"]
    assert reference == {"kind": "PersistentVolumeClaim", "name": "nope", "namespace": "default"}
    assert [each["kind"] for each in advice.change["then"]] == [
        "PersistentVolume",
        "PersistentVolumeClaim",
    ]


def test_an_added_node_is_part_of_the_change() -> None:
    there = node("n1", cpu="8", labels={"kubernetes.io/arch": "amd64"}, podCIDR="10.0.0.0/24")
    there["status"]["addresses"] = [{"type": "InternalIP", "address": "10.1.0.1"}]
    (advice,) = advised([there, pod("p", nodeSelector={"kubernetes.io/arch": "arm64"})])
    (change,) = advice.change["objects"]
    assert (change["operation"], change["kind"], change["name"]) == ("create", "Node", "new-node")
    made = change["object"]
    assert made["metadata"]["labels"]["kubernetes.io/arch"] == "arm64"
    assert made["status"] == {"allocatable": there["status"]["allocatable"]}
    assert "podCIDR" not in made["spec"]
    assert not SERVER_SIDE & made["metadata"].keys()
