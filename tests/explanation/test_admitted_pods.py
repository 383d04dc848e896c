"""Sizes for workloads whose pods have more than their template: what admission adds is counted, and a
change of the template leaves it as it is."""

from __future__ import annotations

import copy
from collections.abc import Callable

import pytest

from explanation.test_followed_workload_advice import FACTORY, NOW, followed
from explanation.test_situations import snapshot_with
from harness.objects import Raw, container, node, pod
from holdfast.explanation.explainer import explain
from holdfast.explanation.report import Report
from holdfast.sim.scenario_actions import Apply
from holdfast.sim.what_if.hypothetical_cluster import HypotheticalCluster

KATA: Raw = {
    "apiVersion": "node.k8s.io/v1",
    "kind": "RuntimeClass",
    "metadata": {"name": "kata"},
    "handler": "kata",
    "overhead": {"podFixed": {"cpu": "2"}},
}


def workload(kind: str, replicas: int, spec: Raw) -> Raw:
    labels = {"app": "web"}
    template = {"metadata": {"labels": labels}, "spec": spec}
    inner: Raw = {"replicas": replicas, "selector": {"matchLabels": labels}, "template": template}
    metadata = {"name": "web", "namespace": "default"}
    return {"apiVersion": "apps/v1", "kind": kind, "metadata": metadata, "spec": inner}


def pods_of(cluster: HypotheticalCluster) -> list[Raw]:
    return [raw for raw in cluster.objects.all() if raw["kind"] == "Pod"]


def cluster_with(*objects: Raw) -> list[Raw]:
    cluster = HypotheticalCluster(FACTORY, NOW)
    for raw in objects:
        cluster.take(Apply(copy.deepcopy(raw)))
    cluster.rest()
    return [*cluster.objects.all()]


def report_on_pending(objects: list[Raw]) -> Report:
    found = [raw for raw in objects if raw["kind"] == "Pod" and not raw["spec"].get("nodeName")]
    return explain(snapshot_with(objects, NOW), found[0])


@pytest.mark.parametrize("kind", ["Deployment", "StatefulSet"])
@pytest.mark.parametrize(
    ("spec", "size"),
    [
        (pod("x", "7", runtimeClassName="kata")["spec"], "request at most 6 cpu instead of 7"),
        (
            pod("x", "1", runtimeClassName="kata", resources={"requests": {"cpu": "7"}})["spec"],
            "request at most 6 cpu instead of 7 (its overhead of 2 is added) (spec.resources 6",
        ),
    ],
)
def test_overhead_that_the_template_does_not_have(kind: str, spec: Raw, size: str) -> None:
    objects = cluster_with(KATA, node("n1", cpu="8"), workload(kind, 1, spec))
    (advice,) = report_on_pending(objects).advice
    assert advice.text.startswith(size)
    (after,) = pods_of(followed(objects, advice.change))
    assert after["spec"].get("nodeName") == "n1"


def test_overhead_counts_for_each_pod() -> None:
    spec = pod("x", "7", runtimeClassName="kata")["spec"]
    objects = cluster_with(KATA, node("n1", cpu="8"), workload("StatefulSet", 2, spec))
    (advice,) = report_on_pending(objects).advice
    assert advice.text.startswith("request at most 2 cpu instead of 7 (its overhead of 2 is added)")
    after = pods_of(followed(objects, advice.change))
    assert [raw["spec"].get("nodeName") for raw in after] == ["n1", "n1"]


def proxy(cpu: str) -> Callable[[Raw], None]:
    def inject(spec: Raw) -> None:
        spec["containers"].append({**container({"cpu": cpu}), "name": "proxy"})

    return inject


def sidecar(cpu: str) -> Callable[[Raw], None]:
    def inject(spec: Raw) -> None:
        made = {**container({"cpu": cpu}), "name": "proxy", "restartPolicy": "Always"}
        spec["initContainers"] = [*spec.get("initContainers", ()), made]

    return inject


def defaults(spec: Raw) -> None:
    spec["containers"][0]["resources"] = {"requests": {"cpu": "10"}, "limits": {"cpu": "10"}}


@pytest.mark.parametrize(
    ("cpu", "admit", "text", "size"),
    [
        ("7", proxy("2"), "request at most 8 cpu instead of 9 (container main 6", "6"),
        ("4", proxy("5"), "request at most 8 cpu instead of 9 (container main 3", "3"),
        ("4", sidecar("5"), "request at most 8 cpu instead of 9 (container main 3", "3"),
        ("0", defaults, "request at most 8 cpu instead of 10, and limit it to that", "8"),
    ],
)
def test_the_template_is_changed_beside_what_admission_adds(
    cpu: str, admit: Callable[[Raw], None], text: str, size: str
) -> None:
    inner = pod("x", requests={} if cpu == "0" else {"cpu": cpu})["spec"]
    objects = copy.deepcopy(cluster_with(node("n1", cpu="8"), workload("Deployment", 1, inner)))
    (own,) = [raw for raw in objects if raw["kind"] == "Pod"]
    admit(own["spec"])
    own["spec"].pop("nodeName", None)
    own["status"] = {"phase": "Pending"}
    (advice,) = report_on_pending(objects).advice
    assert advice.text.startswith(text)
    (change,) = advice.change["objects"]
    (main,) = change["patch"]["spec"]["template"]["spec"]["containers"]
    assert main["resources"]["requests"] == {"cpu": size}


def test_an_injected_container_that_is_too_large_is_not_resized() -> None:
    inner = pod("x", "7")["spec"]
    objects = copy.deepcopy(cluster_with(node("n1", cpu="8"), workload("Deployment", 1, inner)))
    (own,) = [raw for raw in objects if raw["kind"] == "Pod"]
    proxy("9")(own["spec"])
    own["spec"].pop("nodeName", None)
    own["status"] = {"phase": "Pending"}
    assert not report_on_pending(objects).advice
