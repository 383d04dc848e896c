"""Pods whose ResourceClaims are made from templates: a changed template is of use to a pod only once it
is deleted, since its claim stays as it was made. Each advice is followed in a hypothetical cluster."""

from __future__ import annotations

import copy
from typing import Any, NamedTuple

import pytest

from explanation.test_followed_workload_advice import FACTORY, NOW, followed
from explanation.test_situations import DB, snapshot_with
from harness.claim_objects import (
    claim_template,
    device_class,
    request,
    resource_claim,
    resource_slice,
)
from harness.followed_advice import Situation
from harness.objects import Raw, node, pod
from holdfast.explanation.explainer import explain
from holdfast.explanation.report import Report
from holdfast.local.component import key_of
from holdfast.local.store.objects import Key
from holdfast.sim.scenario_actions import Apply
from holdfast.sim.what_if.hypothetical_cluster import HypotheticalCluster

N1 = node("n1", cpu="8")
CLAIMS = [{"name": "gpu", "resourceClaimTemplateName": "t"}]
SHARED = {"name": "gpu", "resourceClaimName": "shared"}
TEMPLATE = Key("resource.k8s.io", "ResourceClaimTemplate", "default", "t")
OLD = "was made from the old template"
CHANGED = "was made from ResourceClaimTemplate t as it was"


def template(count: int = 1, of: str = "gpu") -> Raw:
    return claim_template("t", request("r", count, of=of))


def workload(kind: str, replicas: int) -> Raw:
    labels = {"app": "web"}
    inner = pod("x", "1")["spec"] | {"resourceClaims": CLAIMS}
    spec: Raw = {"replicas": replicas, "selector": {"matchLabels": labels}}
    spec["template"] = {"metadata": {"labels": labels}, "spec": inner}
    metadata = {"name": "web", "namespace": "default"}
    return {"apiVersion": "apps/v1", "kind": kind, "metadata": metadata, "spec": spec}


def alone() -> Raw:
    raw = pod("web", "1", "web", resourceClaims=CLAIMS)
    raw["metadata"]["namespace"] = "default"
    return raw


class Case(NamedTuple):
    top: Raw
    first: Raw
    """The template from which the claims are made."""
    then: Raw | None
    """The template afterwards; None if it is deleted."""
    says: str
    """How the first advice begins, up to the names of pods."""
    ends: str
    pods: int
    """How many pods are deleted."""


CASES: dict[str, Case] = {
    "misspelt class": Case(
        alone(),
        template(of="gpuu"),
        template(of="gpuu"),
        "request the DeviceClass gpu in ResourceClaimTemplate t (delete and create it again), then "
        "delete the pod and create it again: its claim was",
        f"{OLD}; then it fits n1, n2",
        1,
    ),
    "misspelt class, corrected in the template": Case(
        alone(),
        template(of="gpuu"),
        template(),
        "delete the pod and create it again: its claim was",
        f"{CHANGED}; then it fits n1, n2",
        1,
    ),
    "misspelt class of a Deployment": Case(
        workload("Deployment", 3),
        template(of="gpuu"),
        template(of="gpuu"),
        "request the DeviceClass gpu in ResourceClaimTemplate t (delete and create it again), then "
        "delete the pods (kubectl delete pod web-",
        "all 3 pods fit: n1, n2",
        3,
    ),
    "misspelt class of a StatefulSet": Case(
        workload("StatefulSet", 3),
        template(of="gpuu"),
        template(of="gpuu"),
        "request the DeviceClass gpu in ResourceClaimTemplate t (delete and create it again), then "
        "delete the pod (kubectl delete pod web-0)",
        "all 3 pods fit: n1, n2",
        1,
    ),
    "too many devices": Case(
        alone(),
        template(5),
        template(5),
        "request at most 4 devices instead of 5 for request r in ResourceClaimTemplate t (delete and "
        "create it again), then delete the pod and create it again",
        f"{OLD}; then it fits n1, n2",
        1,
    ),
    "too many devices, of a template that is gone": Case(
        alone(),
        template(5),
        None,
        "request at most 4 devices instead of 5 for request r in ResourceClaimTemplate t (create it "
        "again), then delete the pod and create it again",
        f"{OLD}; then it fits n1, n2",
        1,
    ),
    "too many devices, corrected in the template": Case(
        workload("Deployment", 2),
        template(5),
        template(4),
        "delete the pods (kubectl delete pod web-",
        "as it was; then both pods fit: n1, n2",
        2,
    ),
    "too many devices for all replicas": Case(
        workload("Deployment", 3),
        template(4),
        template(4),
        "request at most 2 devices instead of 4 for request r in ResourceClaimTemplate t (delete and "
        "create it again), then delete the pods (kubectl delete pod web-",
        "their claims were made from the old template; then all 3 pods fit: n1, n2",
        3,
    ),
    "too many for all replicas of a StatefulSet": Case(
        workload("StatefulSet", 3),
        template(5),
        template(5),
        "request at most 2 devices instead of 5 for request r in ResourceClaimTemplate t (delete and "
        "create it again), then delete the pod (kubectl delete pod web-0)",
        f"{OLD}; then all 3 pods fit: n1, n2",
        1,
    ),
    "too many for all replicas, corrected in the template": Case(
        workload("Deployment", 3),
        template(4),
        template(2),
        "delete the pods (kubectl delete pod web-",
        "as it was; then all 3 pods fit: n1, n2",
        3,
    ),
}


def cluster_of(case: Case) -> HypotheticalCluster:
    cluster = HypotheticalCluster(FACTORY, NOW)
    for name in ("n1", "n2"):
        cluster.take(Apply(node(name, cpu="8")))
        cluster.take(Apply(resource_slice(name, 4)))
    for raw in (device_class("gpu"), case.first, case.top):
        cluster.take(Apply(copy.deepcopy(raw)))
    cluster.rest()
    if case.then != case.first:
        cluster.objects.end(TEMPLATE)
        if case.then is not None:
            cluster.take(Apply(copy.deepcopy(case.then)))
        cluster.rest()
    return cluster


def explained(case: Case) -> tuple[Report, list[Raw]]:
    objects = [*cluster_of(case).objects.all()]
    (top,) = (raw for raw in objects if raw["metadata"]["name"] == "web" and raw["kind"] != "Service")
    return explain(snapshot_with(objects, NOW), copy.deepcopy(top)), objects


@pytest.mark.parametrize("name", CASES)
def test_pods_are_deleted_so_that_their_claims_are_made_anew(name: str) -> None:
    case = CASES[name]
    report, objects = explained(case)
    advice = report.advice[0]
    assert advice.text.startswith(case.says)
    assert advice.text.endswith(case.ends)
    deleted = [
        each
        for each in advice.change["objects"]
        if (each["operation"], each["kind"]) == ("delete", "Pod")
    ]
    assert len(deleted) == case.pods
    after = followed(objects, advice.change)
    pods = after.objects.scan("", "Pod")
    assert len(pods) == case.top["spec"].get("replicas", 1)
    assert all(raw["spec"].get("nodeName") for raw in pods), advice.text
    for other in report.advice:
        assert " in  (" not in other.text
        assert other.change["objects"], other.text


def test_a_pod_can_do_with_less_beside_those_that_run() -> None:
    """Or with more if those are created again too."""
    case = Case(workload("Deployment", 3), template(3), template(3), "", "", 0)
    report, objects = explained(case)
    first, second = report.advice
    assert first.text.startswith("request at most 1 device instead of 3 ")
    assert second.text.startswith("request at most 2 devices instead of 3 ")
    for each in (first, second):
        pods = followed(objects, each.change).objects.scan("", "Pod")
        assert all(raw["spec"].get("nodeName") for raw in pods), each.text


@pytest.mark.parametrize("asked", ["Deployment", "Pod"])
def test_pods_that_run_keep_the_devices_of_the_old_template(asked: str) -> None:
    """The pending pod was deleted after the template was changed, so its own claim is a new one."""
    cluster = cluster_of(Case(workload("Deployment", 3), template(4), template(2), "", "", 0))
    (pending,) = (raw for raw in cluster.objects.scan("", "Pod") if not raw["spec"].get("nodeName"))
    cluster.kubelets.delete(key_of(pending))
    cluster.rest()
    objects = [*cluster.objects.all()]
    pods = cluster.objects.scan("", "Pod")
    running = [raw["metadata"]["name"] for raw in pods if raw["spec"].get("nodeName")]
    assert (len(pods), len(running)) == (3, 2)
    about = next(
        raw for raw in objects if raw["kind"] == asked and raw["metadata"]["name"] not in running
    )
    (advice,) = explain(snapshot_with(objects, NOW), copy.deepcopy(about)).advice
    names = advice.text.partition("kubectl delete pod ")[2].partition(")")[0].split()
    assert sorted(names) == sorted(running)
    assert advice.text.endswith(
        "): their claims were made from ResourceClaimTemplate t as it was; then all 3 pods fit: n1, n2"
    )
    after = followed(objects, advice.change).objects.scan("", "Pod")
    assert [bool(raw["spec"].get("nodeName")) for raw in after] == [True] * 3


@pytest.mark.parametrize("kind", ["Deployment", "StatefulSet"])
@pytest.mark.parametrize(
    ("near", "pods", "ends"),
    [("", 8, "all 8 pods fit: n1, n2"), ("tt", 3, "all 3 pods fit: n1, n2")],
)
def test_a_template_that_is_missing_is_of_use_to_all_replicas(
    kind: str, near: str, pods: int, ends: str
) -> None:
    cluster = HypotheticalCluster(FACTORY, NOW)
    others = [claim_template(near, request("r", 1, of="gpu"))] if near else []
    nodes = [each for n in ("n1", "n2") for each in (node(n, cpu="8"), resource_slice(n, 4))]
    for raw in (*nodes, device_class("gpu"), *others, workload(kind, pods)):
        cluster.take(Apply(copy.deepcopy(raw)))
    cluster.rest()
    objects = [*cluster.objects.all()]
    (top,) = (raw for raw in objects if raw["kind"] == kind)
    found = explain(snapshot_with(objects, NOW), copy.deepcopy(top)).advice
    assert [each.change["actions"][0] for each in found] == [*["UseClaim"] * bool(near), "CreateClaim"]
    for advice in found:
        assert advice.text.endswith(f"; then {ends}")
        after = followed(objects, advice.change).objects.scan("", "Pod")
        assert [bool(raw["spec"].get("nodeName")) for raw in after] == [True] * pods


def test_a_template_that_is_missing_is_of_use_to_as_many_as_there_are_devices() -> None:
    cluster = HypotheticalCluster(FACTORY, NOW)
    for raw in (N1, resource_slice("n1", 2), device_class("gpu"), workload("Deployment", 3)):
        cluster.take(Apply(copy.deepcopy(raw)))
    cluster.rest()
    objects = [*cluster.objects.all()]
    (top,) = (raw for raw in objects if raw["kind"] == "Deployment")
    (advice,) = explain(snapshot_with(objects, NOW), copy.deepcopy(top)).advice
    assert advice.text.endswith("(tried with 1 device of DeviceClass gpu); then 2 of 3 pods fit: n1")


@pytest.mark.parametrize("kind", ["Deployment", "StatefulSet"])
def test_a_toleration_is_of_use_to_pods_that_take_the_place_of_those_that_run(kind: str) -> None:
    """The new pods have claims of their own, and those of the old ones go with these."""
    cluster = HypotheticalCluster(FACTORY, NOW)
    nodes = [node("n1", cpu="8"), node("n2", cpu="8", taints=[DB])]
    slices = [resource_slice(name, 2) for name in ("n1", "n2")]
    for raw in (*nodes, *slices, device_class("gpu"), template(), workload(kind, 4)):
        cluster.take(Apply(copy.deepcopy(raw)))
    cluster.rest()
    objects = [*cluster.objects.all()]
    pods = cluster.objects.scan("", "Pod")
    assert sum("nodeName" in raw["spec"] for raw in pods) == 2
    (top,) = (raw for raw in objects if raw["kind"] == kind)
    (advice,) = explain(snapshot_with(objects, NOW), copy.deepcopy(top)).advice
    assert advice.text.startswith("tolerate dedicated=db:NoSchedule, ")
    after = followed(objects, advice.change).objects.scan("", "Pod")
    assert [bool(raw["spec"].get("nodeName")) for raw in after] == [True] * 4


def job(cpu: str = "3", requests: Raw | None = None, **of_pods: Any) -> Raw:
    """Three pods, of which two fit n1, and the others need the toleration."""
    inner = pod("x", requests={"cpu": cpu, **(requests or {})}, restartPolicy="Never", **of_pods)
    metadata = {"name": "j", "annotations": {"sim.holdfast.io/at": "5s"}}
    spec = {"parallelism": 3, "completions": 3, "template": {"spec": inner["spec"]}}
    return {"apiVersion": "batch/v1", "kind": "Job", "metadata": metadata, "spec": spec}


def indexed(raw: Raw) -> Raw:
    raw["spec"]["completionMode"] = "Indexed"
    return raw


@pytest.mark.parametrize(
    ("top", "claims", "on"),
    [
        (job("1", resourceClaims=CLAIMS), [template()], "n1, n2"),
        (indexed(job("1", resourceClaims=CLAIMS)), [template()], "n1, n2"),
        (job(resourceClaims=[SHARED]), [resource_claim("shared", request("r"))], "n2"),
        (job("1", {"example.com/gpu": "1"}), [], "n1, n2"),
    ],
    ids=["template", "indexed", "shared claim", "extended resource"],
)
def test_the_running_pods_of_a_job_get_new_claims_too(top: Raw, claims: list[Raw], on: str) -> None:
    """Their claims end with them when the Job is deleted; one that they share is then free."""
    nodes = [node("n1", cpu="8"), node("n2", cpu="16", taints=[DB])]
    slices = [resource_slice(name, 2) for name in ("n1", "n2")]
    classes = [device_class("gpu", extendedResourceName="example.com/gpu")]
    situation = Situation(*nodes, *slices, *classes, *claims, top)
    advice = situation.report("Job", "j").advice[0]
    assert advice.text == (
        "tolerate dedicated=db:NoSchedule, in the template of Job j (delete the Job and create it "
        f"again); then all 3 pods fit: {on}"
    )
    after = situation.followed(advice)
    assert sorted({*after.values()}) == on.split(", ")
