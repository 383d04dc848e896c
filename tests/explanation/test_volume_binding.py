"""Claims that wait for a pod and find no volume on its nodes, and volumes that a node cannot attach."""

from __future__ import annotations

from typing import Any

import pytest

from explanation.test_admitted_pods import cluster_with, pods_of, report_on_pending
from explanation.test_followed_workload_advice import followed
from harness.followed_advice import Situation
from harness.objects import Raw, node, pod

ZONE = "topology.kubernetes.io/zone"
CSI = "csi.example.com"


def storage_class(name: str, provisioner: str = CSI, zones: list[str] | None = None) -> Raw:
    made: Raw = {
        "apiVersion": "storage.k8s.io/v1",
        "kind": "StorageClass",
        "metadata": {"name": name},
        "provisioner": provisioner,
        "volumeBindingMode": "WaitForFirstConsumer",
    }
    if zones is not None:
        made["allowedTopologies"] = [{"matchLabelExpressions": [{"key": ZONE, "values": zones}]}]
    return made


def claim(name: str, storage: str) -> Raw:
    resources = {"requests": {"storage": "1Gi"}}
    spec = {"accessModes": ["ReadWriteOnce"], "storageClassName": storage, "resources": resources}
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {"name": name, "namespace": "default"},
        "spec": spec,
    }


def volume_on(name: str, host: str) -> Raw:
    expression = {"key": "kubernetes.io/hostname", "operator": "In", "values": [host]}
    terms = [{"matchExpressions": [expression]}]
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolume",
        "metadata": {"name": name},
        "spec": {
            "capacity": {"storage": "5Gi"},
            "accessModes": ["ReadWriteOnce"],
            "storageClassName": "local",
            "local": {"path": "/data"},
            "nodeAffinity": {"required": {"nodeSelectorTerms": terms}},
        },
    }


def using(*claims: str, **more: Any) -> Raw:
    volumes = [{"name": each, "persistentVolumeClaim": {"claimName": each}} for each in claims]
    return pod("p", "1", volumes=volumes, metadata={"namespace": "default"}, **more)


@pytest.mark.parametrize(
    ("zones", "fact"),
    [
        (["zonea"], f"{ZONE} in (zonea) (no node is there; did you mean zone-a?)"),
        (["zonea", "zone-a"], ""),
        (["b"], f"{ZONE} in (b) (no node is there)"),
    ],
)
def test_topologies_that_no_node_has(zones: list[str], fact: str) -> None:
    place = node("n1", labels={ZONE: "zone-a"})
    objects = cluster_with(place, storage_class("fast", zones=zones), claim("d", "fast"), using("d"))
    if not fact:
        assert all(raw["spec"].get("nodeName") for raw in objects if raw["kind"] == "Pod")
        return
    report = report_on_pending(objects)
    assert f"claim d is not bound: storage class fast makes volumes only where {fact}" in report.details
    texts = [each.text for each in report.advice]
    corrected = "allow zone-a instead of zonea in allowedTopologies of StorageClass fast"
    assert any(each.startswith(corrected) for each in texts) == (zones == ["zonea"])
    for advice in report.advice:
        (after,) = pods_of(followed(objects, advice.change))
        assert after["spec"].get("nodeName") == "n1", advice.text


def test_one_volume_is_enough_where_one_of_two_claims_has_one() -> None:
    local = storage_class("local", "kubernetes.io/no-provisioner")
    claims = [claim(name, "local") for name in ("d", "e")]
    objects = cluster_with(node("n1"), local, volume_on("v", "n1"), *claims, using("d", "e"))
    (advice,) = report_on_pending(objects).advice
    assert advice.text == "create a volume for claim d; then it fits n1"
    (after,) = pods_of(followed(objects, advice.change))
    assert after["spec"].get("nodeName") == "n1"


def test_a_volume_for_each_of_two_claims() -> None:
    local = storage_class("local", "kubernetes.io/no-provisioner")
    claims = [claim(name, "local") for name in ("d", "e")]
    objects = cluster_with(node("n1"), local, *claims, using("d", "e"))
    (advice,) = report_on_pending(objects).advice
    assert advice.text == "create volumes for claims d, e; then it fits n1"


@pytest.mark.parametrize(
    ("limit", "fact"),
    [
        (0, f"n1 can attach no volumes of CSI driver {CSI}"),
        (1, f"n1 can attach 1 volume of CSI driver {CSI}; the pod has 2"),
    ],
)
def test_more_volumes_than_a_node_can_attach(limit: int, fact: str) -> None:
    driver = {"name": CSI, "nodeID": "n1", "allocatable": {"count": limit}}
    csi_node: Raw = {
        "apiVersion": "storage.k8s.io/v1",
        "kind": "CSINode",
        "metadata": {"name": "n1"},
        "spec": {"drivers": [driver]},
    }
    claims = [claim(name, "fast") for name in ("d", "e")]
    objects = cluster_with(node("n1"), csi_node, storage_class("fast"), *claims, using("d", "e"))
    assert fact in report_on_pending(objects).details


# Claims that do not exist


@pytest.mark.parametrize(
    ("names", "text"),
    [
        (["daat", "lgos"], "set claimName: data instead of daat and claimName: logs instead of lgos"),
        (
            ["daat", "other"],
            "set claimName: data instead of daat and create PersistentVolumeClaim default/other and "
            "have it bound",
        ),
        (
            ["one", "other"],
            "create PersistentVolumeClaim default/one and have it bound and create "
            "PersistentVolumeClaim default/other and have it bound",
        ),
        (
            ["old", "other"],
            "create PersistentVolumeClaim default/other and have it bound and use the storage class "
            "fast instead of fsat in claim old (delete and create it again)",
        ),
        (
            ["odl", "other"],
            "set claimName: old instead of odl and create PersistentVolumeClaim default/other and have "
            "it bound and use the storage class fast instead of fsat in claim old (delete and create "
            "it again)",
        ),
        (
            ["old", "older"],
            "use the storage class fast instead of fsat in claim old (delete and create it again) and "
            "use the storage class fast instead of fasst in claim older (delete and create it again)",
        ),
    ],
)
def test_several_claims_that_are_missing_or_have_no_class(names: list[str], text: str) -> None:
    claims = [claim(*each) for each in (("data", "fast"), ("logs", "fast"), ("old", "fsat"))]
    if "older" in names:
        claims.append(claim("older", "fasst"))
    objects = cluster_with(node("n1"), storage_class("fast"), *claims, using(*names))
    advised = [each.text for each in report_on_pending(objects).advice]
    assert f"{text}; then it fits n1" in advised


def test_each_missing_claim_is_named() -> None:
    objects = cluster_with(node("n1"), using("one", "other"))
    missing = "PersistentVolumeClaim default/{} does not exist"
    assert report_on_pending(objects).details == [missing.format("one"), missing.format("other")]


@pytest.mark.parametrize("volumes", [1, 2])
def test_a_smaller_claim_is_bound_without_regard_to_a_pod(volumes: int) -> None:
    """Of several volumes, the controller may choose one that is on another node."""
    own = [volume_on(f"pv{at}", f"n{at}") for at in range(1, volumes + 1)]
    wanted = claim("d", "local")
    wanted["spec"]["resources"]["requests"]["storage"] = "8Gi"
    kind = storage_class("local", provisioner="kubernetes.io/no-provisioner")
    kind["volumeBindingMode"] = "Immediate"
    situation = Situation(node("n1"), node("n2"), kind, *own, wanted, using("d"))
    report = situation.report("Pod", "p")
    assert "less than the 8Gi requested" in "".join(report.details)
    found = [each for each in report.advice if each.change["actions"] == ["ReplaceClaim"]]
    assert [each.text for each in found] == [
        "request 5Gi instead of 8Gi in claim d (delete and create it again); then it fits n1"
    ] * (volumes == 1)
    for each in found:
        assert situation.followed(each)["p"] == "n1"
