"""Smaller requests that are advised are the largest that are enough for all pods that need them."""

from __future__ import annotations

import copy

import pytest

from explanation.test_followed_workload_advice import FACTORY, NOW, followed
from explanation.test_situations import AFFINITY, LIMIT, QUEUE, limited, snapshot_with
from harness.objects import GROUP, Raw, node, pod, pod_group, queue
from holdfast.explanation.explainer import explain
from holdfast.explanation.report import Advice
from holdfast.sim.scenario_actions import Apply
from holdfast.sim.what_if.hypothetical_cluster import HypotheticalCluster


def in_default(raw: Raw) -> Raw:
    raw["metadata"]["namespace"] = "default"
    return raw


def at_rest(*objects: Raw) -> list[Raw]:
    cluster = HypotheticalCluster(FACTORY, NOW)
    for raw in objects:
        cluster.take(Apply(copy.deepcopy(raw)))
    cluster.rest()
    return [*cluster.objects.all()]


def resizes(objects: list[Raw], kind: str, name: str) -> list[Advice]:
    (raw,) = (each for each in objects if (each["kind"], each["metadata"]["name"]) == (kind, name))
    report = explain(snapshot_with(objects, NOW), copy.deepcopy(raw))
    return [each for each in report.advice if "Resize" in each.change["actions"]]


def in_queue(kind: str, replicas: int, **requests: str) -> Raw:
    template = {
        "metadata": {"labels": {"app": "w"}, "annotations": {QUEUE: "q"}},
        "spec": {**pod("x", requests=requests)["spec"], "restartPolicy": "Never"},
    }
    spec: Raw = {"parallelism": replicas, "completions": replicas, "template": template}
    if kind != "Job":
        del template["spec"]["restartPolicy"]
        selector = {"matchLabels": {"app": "w"}}
        spec = {"replicas": replicas, "selector": selector, "template": template}
    api = "batch/v1" if kind == "Job" else "apps/v1"
    metadata = {"name": "w", "namespace": "default"}
    return {"apiVersion": api, "kind": kind, "metadata": metadata, "spec": spec}


@pytest.mark.parametrize(
    ("kind", "replicas", "capability", "asked", "most"),
    [
        ("Job", 2, {"cpu": "4"}, {"cpu": "3"}, "2 cpu instead of 3"),
        ("Job", 3, {"cpu": "4"}, {"cpu": "3"}, "1333m cpu instead of 3"),
        ("Job", 3, {"memory": "4Gi"}, {"memory": "3Gi"}, "1365Mi memory instead of 3Gi"),
        ("Job", 2, {"cpu": "2"}, {"cpu": "3"}, "1 cpu instead of 3"),
        ("Deployment", 2, {"cpu": "4"}, {"cpu": "3"}, "2 cpu instead of 3"),
        ("Deployment", 3, {"cpu": "10"}, {"cpu": "4"}, "3333m cpu instead of 4"),
    ],
)
def test_all_pods_of_a_workload_share_what_its_queue_may_use(
    kind: str, replicas: int, capability: Raw, asked: dict[str, str], most: str
) -> None:
    objects = at_rest(queue("q", capability=capability), node("n1"), in_queue(kind, replicas, **asked))
    (advice,) = resizes(objects, kind, "w")
    assert advice.text.startswith(f"request at most {most}, in the template of {kind} w"), advice.text
    assert f"; then {'both' if replicas == 2 else f'all {replicas}'} pods fit: n1" in advice.text


def test_a_pod_that_neither_its_queue_nor_a_node_has_enough_for() -> None:
    """The queue has more left than the node."""
    own = in_default(pod("p", "8", annotations={QUEUE: "q"}))
    objects = at_rest(queue("q", capability={"cpu": "7"}), node("n1", cpu="6"), own)
    (advice,) = resizes(objects, "Pod", "p")
    assert advice.text == "request at most 6 cpu instead of 8; then it fits n1"


# Limits


def limiting(name: str, cpu: str, percent: int = 100) -> Raw:
    return node(name, cpu=cpu, annotations={LIMIT: f'{{"cpu": {percent}}}'})


def with_limit(raw: Raw, cpu: str) -> Raw:
    """The workload with a limit."""
    raw["spec"]["template"]["spec"]["containers"][0]["resources"]["limits"] = {"cpu": cpu}
    return raw


def test_the_highest_limit_that_a_node_allows() -> None:
    """n1, the first by its name, allows 2."""
    pods = [in_default(limited(name, "1", "6")) for name in ("a", "p")]
    pods[0]["spec"]["nodeName"] = "n1"
    objects = at_rest(limiting("n1", "8"), limiting("n2", "4"), node("n3", cpu="500m"), *pods)
    (raw,) = (each for each in objects if each["metadata"]["name"] == "p")
    texts = [each.text for each in explain(snapshot_with(objects, NOW), copy.deepcopy(raw)).advice]
    assert texts == [
        "lower its limit to 4 cpu instead of 6; then it fits n2",
        "allow limits of 150% of cpu on n1 (kubectl annotate node n1 "
        """node.koordinator.sh/limit-to-allocatable='{"cpu": "150%"}' --overwrite); then it fits n1""",
    ]


@pytest.mark.parametrize("kind", ["Job", "Deployment"])
def test_all_pods_of_a_workload_share_the_limits_of_a_node(kind: str) -> None:
    objects = at_rest(limiting("n1", "8"), queue("q"), with_limit(in_queue(kind, 3, cpu="1"), "6"))
    (advice,) = resizes(objects, kind, "w")
    assert advice.text.startswith("lower its limit to 2666m cpu instead of 6, in the template of ")
    assert "; then all 3 pods fit: n1" in advice.text


# Rollouts and templates


def test_no_smaller_requests_beside_a_rollout_that_needs_none() -> None:
    """With 2 cpu, a new pod fits beside the old ones; with more, it is enough that one of them ends."""
    web = in_queue("Deployment", 2, cpu="3")
    web["spec"]["strategy"] = {"rollingUpdate": {"maxSurge": 1, "maxUnavailable": 0}}
    cluster = HypotheticalCluster(FACTORY, NOW, at_rest(node("n1", cpu="8"), queue("q"), web))
    larger = in_queue("Deployment", 2, cpu="4")
    larger["spec"]["strategy"] = web["spec"]["strategy"]
    cluster.take(Apply(larger))
    cluster.rest()
    objects = [*cluster.objects.all()]
    (top,) = (each for each in objects if each["kind"] == "Deployment")
    report = explain(snapshot_with(objects, NOW), copy.deepcopy(top))
    first, second = (each.text for each in report.advice)
    assert first.startswith("set maxUnavailable of its rolling update to 1, ")
    assert second == (
        "request at most 2 cpu instead of 4, in the template of Deployment w; then both pods fit: n1"
    )


@pytest.mark.parametrize(
    ("kind", "changed"),
    [("Deployment", ["Deployment"]), ("Job", ["Pod"]), ("StatefulSet", ["StatefulSet", "Pod"])],
)
def test_pods_that_their_controller_replaces_are_not_patched(kind: str, changed: list[str]) -> None:
    raw = in_queue(kind, 1, cpu="1")
    annotations = raw["spec"]["template"]["metadata"]["annotations"]
    annotations[AFFINITY] = '{"name": "peak"}'
    objects = at_rest(node("n1"), queue("q"), raw)
    (top,) = (each for each in objects if each["kind"] == kind)
    report = explain(snapshot_with(objects, NOW), copy.deepcopy(top))
    (advice,) = (each for each in report.advice if "remove the annotation" in each.text)
    assert [each["kind"] for each in advice.change["objects"]] == changed
    assert running(objects, advice) == 1


# Members of gangs


def gang(*cpus: str) -> list[Raw]:
    pods = (pod(f"g-{at}", cpu, group="g") for at, cpu in enumerate(cpus))
    return list(map(in_default, [pod_group("g", len(cpus)), *pods]))


def running(objects: list[Raw], advice: Advice) -> int:
    cluster = followed(objects, advice.change)
    return sum(bool(raw["spec"].get("nodeName")) for raw in cluster.objects.scan("", "Pod"))


def test_one_member_shrinks_where_that_is_enough() -> None:
    busy = in_default(pod("a", "2", nodeName="n2"))
    objects = at_rest(node("n1", cpu="8"), node("n2", cpu="8"), busy, *gang("7", "7"))
    for kind, name in (("PodGroup", "g"), ("Pod", "g-0"), ("Pod", "g-1")):
        (advice,) = resizes(objects, kind, name)
        whose = "" if name == "g-1" else "default/g-1: "
        assert advice.text.startswith(f"{whose}request at most 6 cpu instead of 7; then it fits n")
        assert [each["name"] for each in advice.change["objects"]] == ["g-1"]
        assert running(objects, advice) == 3


def test_two_of_three_members_shrink_where_that_is_enough() -> None:
    busy = [in_default(pod(f"a-{at}", "2", nodeName=f"n{at}")) for at in (2, 3)]
    nodes = [node(f"n{at}", cpu="8") for at in (1, 2, 3)]
    objects = at_rest(*nodes, *busy, *gang("7", "7", "7"))
    (advice,) = resizes(objects, "PodGroup", "g")
    assert advice.text.startswith("request at most 6 cpu instead of 7, in each of 2 pods (")
    assert running(objects, advice) == 5


def test_members_that_must_all_shrink() -> None:
    objects = at_rest(node("n1", cpu="8"), *gang("5", "5", "5"))
    (advice,) = resizes(objects, "PodGroup", "g")
    assert advice.text == (
        "request at most 2666m cpu instead of 5, in each of 3 pods (g-0, g-1, g-2); then it fits n1"
    )
    assert running(objects, advice) == 3


def test_members_with_limits_that_a_node_does_not_allow() -> None:
    pods = [in_default(limited(f"g-{at}", "1", "6")) for at in range(2)]
    for raw in pods:
        raw["metadata"]["annotations"] = {GROUP: "g"}
    objects = at_rest(limiting("n1", "9"), in_default(pod_group("g", 2)), *pods)
    (advice,) = resizes(objects, "PodGroup", "g")
    lower = "lower its limit to 4500m cpu instead of 6, in each of 2 pods (g-0, g-1)"
    assert advice.text == f"{lower}; then it fits n1"
    assert running(objects, advice) == 2


def test_smaller_members_beside_pods_that_end() -> None:
    """One running pod is in the way: without it, three members share the node."""
    busy = in_default(pod("a", "7", nodeName="n1"))
    objects = at_rest(node("n1", cpu="8"), busy, *gang("6", "6", "6"))
    (advice,) = resizes(objects, "PodGroup", "g")
    assert "request at most 2666m cpu instead of 6, in each of 3 pods " in advice.text, advice.text
    assert running(objects, advice) == 3
