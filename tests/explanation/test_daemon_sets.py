"""DaemonSets that have no pod on some nodes or all, and that the advice is true."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from explanation.test_situations import (
    DB,
    NOT_READY,
    changed,
    full,
    in_default,
    on_nodes,
    snapshot_with,
)
from harness.objects import Raw, node, pod
from harness.world import START
from holdfast.explanation.explainer import explain
from holdfast.explanation.report import Report
from holdfast.local.workloads import daemon_set
from holdfast.local.workloads.lister import CreateDependent, Lister, Ref

GPU: dict[str, Any] = {"nodeSelector": {"pool": "gpu"}}
CORDONED = {"key": "node.kubernetes.io/unschedulable", "effect": "NoSchedule"}
SPOT = {"key": "spot", "effect": "NoSchedule"}


def daemons(desired: int = 0, cpu: str = "1", **spec: Any) -> Raw:
    return {
        "apiVersion": "apps/v1",
        "kind": "DaemonSet",
        "metadata": {"name": "agent", "namespace": "default", "uid": "agent"},
        "spec": {
            "selector": {"matchLabels": {"app": "agent"}},
            "template": {
                "metadata": {"labels": {"app": "agent"}},
                "spec": {**pod("x", cpu)["spec"], **spec},
            },
        },
        "status": {"desiredNumberScheduled": desired},
    }


def explained(raw: Raw, *objects: Raw) -> Report:
    snapshot = snapshot_with(list(objects), START)
    found = explain(snapshot, raw)
    assert found.data() == explain(snapshot, raw).data(), "asking changed the snapshot"
    return found


def labelled(name: str, pool: str, **more: Any) -> Raw:
    return node(name, cpu="8", labels={"pool": pool}, **more)


CASES: dict[str, tuple[Raw, list[Raw], list[str], list[str]]] = {
    # The DaemonSet, nodes and pods, texts of the details, actions of the advice.
    "no node has the label": (
        daemons(**GPU),
        [labelled("n1", "web"), labelled("n2", "web")],
        [
            "node affinity or selector not met: n1, n2",
            "nodeSelector pool=gpu is not met by any node (values of pool: web on 2)",
        ],
        ["RemoveSelector"],
    ),
    "a label that is misspelt": (
        daemons(nodeSelector={"poool": "gpu"}),
        [labelled("n1", "gpu"), labelled("n2", "web")],
        ["did you mean pool?"],
        ["CorrectSelector"],
    ),
    "node affinity": (
        daemons(affinity=on_nodes({"key": "pool", "operator": "In", "values": ["gpu"]})),
        [node("n1")],
        ["node affinity pool In (gpu)"],
        ["LabelNode"],
    ),
    "all nodes are tainted": (
        daemons(),
        [node("n1", taints=[DB]), node("n2", taints=[SPOT])],
        ["taint dedicated=db:NoSchedule is not tolerated: n1", "taint spot:NoSchedule"],
        ["Tolerate", "Tolerate"],
    ),
    "the label's node is tainted": (
        daemons(**GPU),
        [labelled("n1", "gpu", taints=[DB]), labelled("n2", "web")],
        ["untolerated taint: n1", "node affinity or selector not met: n2"],
        ["Tolerate"],
    ),
    "a cordoned node takes daemons": (
        daemons(1),
        [node("n1", unschedulable=True, taints=[CORDONED])],
        ["eligible, and without a pod of its controller: n1"],
        [],
    ),
    "a node that is not ready": (
        daemons(),
        [node("n1", taints=[NOT_READY])],
        ["not usable now (node.kubernetes.io/not-ready:NoSchedule): n1"],
        [],
    ),
    "no nodes": (daemons(), [], [], []),
}


@pytest.mark.parametrize("name", CASES)
def test_situation(name: str) -> None:
    raw, objects, details, actions = CASES[name]
    report = explained(raw, *objects)
    for text in details:
        assert any(text in each for each in report.details), report.details
    told = [(each.change["actions"][0], each.text) for each in report.advice]
    assert [action for action, _ in told] == actions, told
    for advice in report.advice:
        assert created(changed([raw, *objects], advice.change)), advice.text


class Stored:
    """The objects for the controller of DaemonSets."""

    def __init__(self, objects: list[Raw]) -> None:
        self.objects = objects

    def get(self, key: Any) -> Raw | None:
        return next((r for r in self.objects if r["metadata"]["name"] == key.name), None)

    def scan(self, group: str, kind: str) -> list[Raw]:
        return [r for r in self.objects if r["kind"] == kind]


def created(objects: list[Raw]) -> list[Raw]:
    """The pods that the controller of DaemonSets then creates."""
    (raw,) = [each for each in copy.deepcopy(objects) if each["kind"] == "DaemonSet"]
    lister = Lister(Stored(objects))
    outcome = daemon_set.reconcile(lister, Ref("apps", "DaemonSet", "default", "agent"), raw, START)
    return [each.raw for each in outcome.actions if isinstance(each, CreateDependent)]


def test_the_template_is_changed() -> None:
    raw, objects, *_ = CASES["all nodes are tainted"]
    texts = [each.text for each in explained(raw, *objects).advice]
    assert texts == [
        "tolerate dedicated=db:NoSchedule, in the template of DaemonSet agent; then it fits n1",
        "tolerate spot:NoSchedule, in the template of DaemonSet agent; then it fits n2",
    ]


def member(on: str, cpu: str = "1", bound: bool = True) -> Raw:
    """A pod of the DaemonSet for a node."""
    fields = [{"key": "metadata.name", "operator": "In", "values": [on]}]
    terms = {"nodeSelectorTerms": [{"matchFields": fields}]}
    only = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": terms}}
    name = f"agent-{on}"
    raw = full(name, cpu, on, affinity=only) if bound else pod(name, cpu, affinity=only)
    by = {"apiVersion": "apps/v1", "kind": "DaemonSet", "name": "agent", "uid": "agent"}
    raw["metadata"] |= {
        "namespace": "default",
        "uid": name,
        "ownerReferences": [{**by, "controller": True}],
    }
    return raw


def test_nodes_without_a_pod_beside_those_with_one() -> None:
    nodes = [labelled("n1", "gpu"), labelled("n2", "gpu", taints=[DB]), labelled("n3", "web")]
    report = explained(daemons(1, **GPU), *nodes, member("n1"))
    assert report.summary == "1 of 1 pod has a node."
    assert report.details == [
        "no pod is created for n3: node affinity or selector not met",
        "no pod is created for n2: untolerated taint",
    ]
    assert report.advice == []


def test_a_pod_that_does_not_fit_its_own_node() -> None:
    """Room on other nodes does not help it."""
    nodes = [node("n1", cpu="4"), node("n2", cpu="4")]
    pods = [full("a", "3", "n1"), member("n1", "2", bound=False), member("n2", "2")]
    report = explained(daemons(2, cpu="2"), *nodes, *pods)
    assert report.summary == (
        "1 of 2 pods have a node. 1 pending: It can only run on n1: too little cpu."
    )
    assert "closest: n1, short of 1 cpu" in report.details
    assert all("n1" in each.nodes for each in report.advice)
    assert [each.change["actions"][0] for each in report.advice] == ["Resize"]


def test_of_pods_pending_for_one_reason_that_is_explained_which_needs_least() -> None:
    """Ending a pod would help the first one, and a smaller request the second one."""
    nodes = [node("n1", cpu="2"), node("n2", cpu="2")]
    pods = [member(name, "1500m", bound=False) for name in ("n1", "n2")]
    others = [in_default(full("a", "2", "n1")), in_default(full("b", "1", "n2"))]
    report = explained(daemons(2, cpu="1500m"), *nodes, *others, *pods)
    assert "what follows is about agent-n2" in report.details
    assert [each.text for each in report.advice] == [
        "request at most 1 cpu instead of 1500m, in the template of DaemonSet agent; then 1 of 2 pods "
        "fits: n2"
    ]


def test_pods_pending_for_different_reasons() -> None:
    """Each gets advice, and a pod of others ends only where nothing else helps."""
    nodes = [node("n1", cpu="2", allocatable={"pods": "1"}), node("n2", cpu="2")]
    pods = [member(name, "1500m", bound=False) for name in ("n1", "n2")]
    others = [in_default(full("a", "500m", "n1")), in_default(full("b", "1", "n2"))]
    report = explained(daemons(2, cpu="1500m"), *nodes, *others, *pods)
    assert report.summary == (
        "0 of 2 pods have a node. 2 pending, for different reasons; 1 of them: It can only run on n2: "
        "too little cpu."
    )
    assert [each.text for each in report.advice] == [
        "request at most 1 cpu instead of 1500m, in the template of DaemonSet agent; then 1 of 2 pods "
        "fits: n2",
        "end pod default/a (priority 0) on n1; then 1 of 2 pods fits: n1",
    ]
