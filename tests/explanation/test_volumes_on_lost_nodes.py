"""Claims without a volume that can be used: it is on a node that is gone, or nothing has made one."""

import copy

import pytest

from explanation.test_followed_workload_advice import FACTORY, NOW
from explanation.test_situations import (
    N1,
    Row,
    check,
    claim,
    snapshot_with,
    storage_class,
    using,
    volume,
)
from harness.objects import Raw, node, pod
from holdfast.explanation.explainer import explain
from holdfast.sim.scenario_actions import Apply
from holdfast.sim.what_if.hypothetical_cluster import HypotheticalCluster

P = pod("p", volumes=using("data"))


def local(name: str, *nodes: str) -> Raw:
    """A volume on these nodes."""
    made = volume(name, "data")
    required = {"key": "kubernetes.io/hostname", "operator": "In", "values": list(nodes)}
    terms = {"nodeSelectorTerms": [{"matchExpressions": [required]}]}
    made["spec"] |= {"nodeAffinity": {"required": terms}, "storageClassName": "lp"}
    return made


def without_class(raw: Raw) -> Raw:
    del raw["spec"]["storageClassName"]
    return raw


def made_at_once(name: str, provisioner: str) -> Raw:
    return storage_class(name) | {"volumeBindingMode": "Immediate", "provisioner": provisioner}


def test_a_local_volume_of_a_node_that_is_gone() -> None:
    objects = [N1, claim("data", volume="l1", kind="lp"), local("l1", "n9"), P]
    says = "claim data is bound to l1, which needs kubernetes.io/hostname In (n9); n9 does not exist"
    report = check(Row(objects, [says], ["ReplaceClaim"]))
    assert "what l1 stored is lost" in report.advice[0].text


def test_a_local_volume_of_a_node_that_is_full() -> None:
    data = [claim("data", volume="l1", kind="lp"), local("l1", "n2", "n9")]
    full = node("n2", cpu="1")
    report = check(Row([N1, full, *data, pod("p", "2", volumes=using("data"))], ["l1"], ["Resize"]))
    assert not any("does not exist" in each for each in report.details)


@pytest.mark.parametrize(
    ("objects", "advice"),
    [
        (
            [claim("data", kind="std"), made_at_once("std", "csi.example.com")],
            "wait until csi.example.com has made a volume for claim data",
        ),
        (
            [claim("data", kind="std"), made_at_once("std", "kubernetes.io/no-provisioner")],
            "create a volume of storage class std for claim data",
        ),
        ([claim("data")], "create a volume without a storage class for claim data"),
    ],
)
def test_how_a_claim_gets_a_volume(objects: list[Raw], advice: str) -> None:
    report = check(Row([N1, *objects, P], ["claim data is not bound yet"], ["BindClaims"]))
    assert report.advice[0].text.startswith(advice), report.advice[0].text


SERVING = storage_class("std") | {"provisioner": "csi.example.com"}


@pytest.mark.parametrize(
    ("objects", "by_class", "by_hand"),
    [
        (
            [claim("data", kind="fast")],
            "create StorageClass fast, with a provisioner;",
            "create a volume of storage class fast for claim data;",
        ),
        (
            [without_class(claim("data"))],
            "create a default StorageClass, with a provisioner;",
            "name a storage class in claim data, or create a volume for it;",
        ),
        (
            [without_class(claim("data")), SERVING],
            "make StorageClass std the default one (storageclass.kubernetes.io/is-default-class=true);",
            "name a storage class in claim data, or create a volume for it;",
        ),
    ],
)
def test_a_claim_gets_a_volume_by_a_storage_class_or_by_hand(
    objects: list[Raw], by_class: str, by_hand: str
) -> None:
    actions = ["CreateStorageClass", "BindClaims"]
    report = check(Row([N1, *objects, P], ["claim data is not bound yet"], actions))
    texts = [each.text for each in report.advice]
    assert [texts[0].startswith(by_class), texts[1].startswith(by_hand)] == [True, True], texts


@pytest.mark.parametrize("policy", ["OrderedReady", "Parallel"])
@pytest.mark.parametrize(
    ("kind", "objects", "expected"),
    [
        (
            "fast",
            [],
            [
                "create StorageClass fast, with a provisioner; then both pods fit: n1",
                "create a volume of storage class fast for claim data-db-0; then 1 of 2 pods fits: n1",
            ],
        ),
        (
            None,
            [SERVING],
            [
                "make StorageClass std the default one "
                "(storageclass.kubernetes.io/is-default-class=true); then both pods fit: n1",
                "name a storage class in claim data-db-0, or create a volume for it; then 1 of 2 pods "
                "fits: n1",
            ],
        ),
        (
            "now",
            [made_at_once("now", "csi.example.com")],
            [
                "wait until csi.example.com has made a volume for claim data-db-0 "
                "(kubectl describe pvc data-db-0); then both pods fit: n1"
            ],
        ),
    ],
    ids=["no such class", "no class", "made at once"],
)
def test_each_way_to_a_volume_says_how_many_pods_start(
    policy: str, kind: str | None, objects: list[Raw], expected: list[str]
) -> None:
    template = claim("data", kind=kind or "")
    named = template if kind else without_class(template)
    spec: Raw = {
        "replicas": 2,
        "serviceName": "db",
        "podManagementPolicy": policy,
        "selector": {"matchLabels": {"app": "db"}},
        "template": {"metadata": {"labels": {"app": "db"}}, "spec": pod("x")["spec"]},
        "volumeClaimTemplates": [{"metadata": {"name": "data"}, "spec": named["spec"]}],
    }
    metadata = {"name": "db", "namespace": "default"}
    db: Raw = {"apiVersion": "apps/v1", "kind": "StatefulSet", "metadata": metadata, "spec": spec}
    cluster = HypotheticalCluster(FACTORY, NOW)
    for raw in (N1, db):
        cluster.take(Apply(copy.deepcopy(raw)))
    cluster.rest()
    found = [*cluster.objects.all(), *objects]  # a provisioner has not made volumes yet
    for asked, name in (("StatefulSet", "db"), ("Pod", "db-0")):
        (raw,) = (each for each in found if (each["kind"], each["metadata"]["name"]) == (asked, name))
        report = explain(snapshot_with(found, NOW), copy.deepcopy(raw))
        assert [each.text for each in report.advice] == expected
