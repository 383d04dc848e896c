"""What becomes of claims and volumes in a simulated cluster."""

from __future__ import annotations

import pytest

from harness.scenarios import NODE, condition, find, joined, pod_text, simulate, step_text

USES = "volumes: [{name: v, persistentVolumeClaim: {claimName: data}}]"


def storage_class(mode: str, provisioner: str = "driver", **metadata: str) -> str:
    default = metadata.get("default", "false")
    return (
        "{apiVersion: storage.k8s.io/v1, kind: StorageClass, metadata: {name: fast, annotations: "
        f"{{storageclass.kubernetes.io/is-default-class: '{default}'}}}}, "
        f"provisioner: {provisioner}, volumeBindingMode: {mode}}}"
    )


def claim(spec: str = "storageClassName: fast", name: str = "data") -> str:
    return (
        f"{{apiVersion: v1, kind: PersistentVolumeClaim, metadata: {{name: {name}}}, "
        f"spec: {{accessModes: [ReadWriteOnce], resources: {{requests: {{storage: 1Gi}}}}, {spec}}}}}"
    )


def volume(spec: str = "storageClassName: fast", name: str = "v1") -> str:
    return (
        f"{{apiVersion: v1, kind: PersistentVolume, metadata: {{name: {name}}}, "
        f"spec: {{accessModes: [ReadWriteOnce], capacity: {{storage: 1Gi}}, {spec}}}}}"
    )


NO_PROVISIONER = "kubernetes.io/no-provisioner"
WAIT = "WaitForFirstConsumer"


@pytest.mark.parametrize(
    ("documents", "bound_to"),
    [
        ([storage_class("Immediate"), claim()], "pvc-"),
        ([storage_class("Immediate", NO_PROVISIONER), claim(), volume()], "v1"),
        ([storage_class("Immediate", NO_PROVISIONER), claim()], ""),
        ([claim("storageClassName: ''"), volume("storageClassName: ''")], "v1"),
        ([claim(), volume()], "v1"),  # the class itself need not exist
        ([storage_class(WAIT), claim()], ""),
        ([storage_class(WAIT), claim(), volume()], ""),
        ([storage_class(WAIT), claim("storageClassName: fast, volumeName: v1"), volume()], "v1"),
        ([storage_class(WAIT), claim("storageClassName: fast, volumeName: v2"), volume()], ""),
        (
            [
                storage_class(WAIT),
                claim(),
                volume("storageClassName: fast, claimRef: {namespace: default, name: data}"),
            ],
            "v1",
        ),
        ([storage_class("Immediate", default="true"), claim("volumeMode: Filesystem")], "pvc-"),
        ([storage_class("Immediate"), claim("volumeMode: Filesystem")], ""),
    ],
)
def test_what_claims_get_before_any_pod_uses_them(documents: list[str], bound_to: str) -> None:
    found = find(simulate(joined(*documents)), "PersistentVolumeClaim", "data")
    assert found["spec"].get("volumeName", "").startswith(bound_to)
    assert found["status"]["phase"] == ("Bound" if bound_to else "Pending")


def test_a_pod_waits_for_an_immediate_claim_to_be_bound() -> None:
    late = step_text("5s", f"apply: {volume()}")
    result = simulate(joined(NODE, claim(), late, pod_text("p", spec=USES)))
    assert [(e.t, e.event) for e in result.timeline if e.object == "Pod/default/p"] == [
        (0, "Created"),
        (0, "Unschedulable"),
        (5, "Bound"),
        (5, "Running"),
    ]


def test_a_claim_whose_volume_is_deleted_is_lost_until_it_is_back() -> None:
    gone = step_text("5s", "delete: {kind: PersistentVolume, name: v1}")
    late = pod_text("late", spec=USES, at="6s")
    result = simulate(joined(NODE, claim(), volume(), gone, late))
    assert find(result, "PersistentVolumeClaim", "data")["status"]["phase"] == "Lost"
    message = condition(find(result, "Pod", "late"), "PodScheduled")["message"]
    assert 'persistentvolumeclaim "data" bound to non-existent persistentvolume "v1"' in message
    back = step_text("7s", f"apply: {volume()}")
    result = simulate(joined(NODE, claim(), volume(), gone, late, back))
    assert find(result, "PersistentVolumeClaim", "data")["status"]["phase"] == "Bound"
    assert find(result, "Pod", "late")["spec"]["nodeName"] == "n1"


@pytest.mark.parametrize(("policy", "phase"), [("Retain", "Released"), ("Delete", "")])
def test_a_volume_whose_claim_is_deleted(policy: str, phase: str) -> None:
    spec = f"storageClassName: fast, persistentVolumeReclaimPolicy: {policy}"
    gone = step_text("5s", "delete: {kind: PersistentVolumeClaim, name: data}")
    result = simulate(joined(claim(), volume(spec), gone))
    volumes = [raw for raw in result.objects if raw["kind"] == "PersistentVolume"]
    assert [raw["status"]["phase"] for raw in volumes] == ([phase] if phase else [])


TEMPLATE = (
    "{spec: {storageClassName: fast, accessModes: [ReadWriteOnce], "
    "resources: {requests: {storage: 1Gi}}}}"
)
SCRATCH = f"volumes: [{{name: scratch, ephemeral: {{volumeClaimTemplate: {TEMPLATE}}}}}]"


def test_an_ephemeral_volume_lives_as_long_as_its_pod() -> None:
    documents = [NODE, storage_class(WAIT), pod_text("p", spec=SCRATCH)]
    result = simulate(joined(*documents))
    found = find(result, "PersistentVolumeClaim", "p-scratch")
    assert found["status"]["phase"] == "Bound"
    assert find(result, "Pod", "p")["spec"]["nodeName"] == "n1"
    gone = step_text("5s", "delete: {kind: Pod, name: p}")
    kinds = {raw["kind"] for raw in simulate(joined(*documents, gone)).objects}
    assert not kinds & {"PersistentVolumeClaim", "PersistentVolume", "Pod"}


def test_a_deleted_claim_of_an_ephemeral_volume_is_created_again() -> None:
    """Whether or not its pod has a node. No scheduler selects a node for a claim of a pod that has one,
    so a waiting claim stays Pending."""
    gone = step_text("5s", "delete: {kind: PersistentVolumeClaim, name: p-scratch}")
    for documents, phase in (
        ([NODE, storage_class("Immediate")], "Bound"),
        ([NODE, storage_class(WAIT)], "Pending"),
        ([storage_class(WAIT)], "Pending"),
    ):
        documents = [*documents, pod_text("p", spec=SCRATCH)]
        before = find(simulate(joined(*documents)), "PersistentVolumeClaim", "p-scratch")
        after = find(simulate(joined(*documents, gone)), "PersistentVolumeClaim", "p-scratch")
        assert after["metadata"]["uid"] != before["metadata"]["uid"]
        assert after["status"]["phase"] == phase
        assert after["metadata"]["ownerReferences"] == before["metadata"]["ownerReferences"]
