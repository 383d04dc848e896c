"""Changes that together let more pods of a workload start than each of them by itself."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from explanation.test_followed_workload_advice import (
    FACTORY,
    NOW,
    followed,
    pods_of,
    top_of,
    with_ports,
)
from explanation.test_situations import LIMIT, snapshot_with
from harness.objects import Raw, node, pod
from holdfast.explanation.explainer import explain
from holdfast.sim.scenario_actions import Apply
from holdfast.sim.what_if.hypothetical_cluster import HypotheticalCluster


def tainted(name: str, value: str) -> Raw:
    return node(name, cpu="8", taints=[{"key": "t", "value": value, "effect": "NoSchedule"}])


def web(kind: str, replicas: int, cpu: str = "4", limit: str = "", **spec: Any) -> Raw:
    raw = with_ports(kind, replicas)
    raw["spec"]["template"]["spec"] = pod("x", cpu, **spec)["spec"]
    if limit:
        (container,) = raw["spec"]["template"]["spec"]["containers"]
        container["resources"]["limits"] = {"cpu": limit}
    return raw


LIMITED = {LIMIT: '{"cpu": "100%"}'}
TOLERATE = "tolerate t=1:NoSchedule and tolerate t=2:NoSchedule, in the template of"
NODES = ", ".join(f"n{i}" for i in range(8))
CASES: dict[str, tuple[list[Raw], list[str], int]] = {
    # Nodes and a workload, how the advice begins, and how many pods run with the first one.
    "two taints": (
        [tainted("n1", "1"), tainted("n2", "2"), web("Deployment", 4)],
        [f"{TOLERATE} Deployment web; then all 4 pods fit: n1, n2"],
        4,
    ),
    "two taints, of a StatefulSet": (
        [tainted("n1", "1"), tainted("n2", "2"), web("StatefulSet", 4)],
        [f"{TOLERATE} StatefulSet web, then delete the pending pod"],
        4,
    ),
    "two taints, and more pods than fit": (
        [tainted("n1", "1"), tainted("n2", "2"), web("Deployment", 20)],
        [f"{TOLERATE} Deployment web; then 4 of 20 pods fit: n1, n2"],
        4,
    ),
    "one taint is enough": (
        [tainted("n1", "1"), tainted("n2", "2"), web("Deployment", 2)],
        ["tolerate t=1:NoSchedule, in", "tolerate t=2:NoSchedule, in"],
        2,
    ),
    "a taint and a cordon": (
        [tainted("n1", "1"), node("n2", cpu="8", unschedulable=True), web("Deployment", 4)],
        ["uncordon n2 (kubectl uncordon n2) and tolerate t=1:NoSchedule, in the template"],
        4,
    ),
    "a cordon, and smaller requests": (
        [node("n1", cpu="8", unschedulable=True), web("Deployment", 3)],
        [
            "uncordon n1 (kubectl uncordon n1) and request at most 2666m cpu instead of 4, in",
            "uncordon n1 (kubectl uncordon n1); then 2 of 3 pods fit: n1",
        ],
        3,
    ),
    "more cordons than are named together": (
        [*(node(f"n{i}", cpu="4", unschedulable=True) for i in range(10)), web("Deployment", 30, "3")],
        [
            f"uncordon {NODES} (kubectl uncordon {NODES.replace(',', '')}) and request at most 1 cpu",
            f"uncordon {NODES} (kubectl uncordon {NODES.replace(',', '')}); then 8 of 30 pods fit: ",
        ],
        30,
    ),
    "two labels": (
        [
            node("n1", cpu="8"),
            node("n2", cpu="8"),
            web("Deployment", 4, nodeSelector={"pool": "a"}),
        ],
        ["label n1 (kubectl label node n1 pool=a) and label n2 (kubectl label node n2 pool=a)"],
        4,
    ),
    "limits of several pods": (
        [node("n1", cpu="4", annotations=LIMITED), web("Deployment", 4, "1", "2")],
        ["lower its limit to 1 cpu", "allow limits of 200% of cpu on n1 "],
        4,
    ),
    "limits of more pods than a node has capacity for": (
        [node("n1", cpu="3", annotations=LIMITED), web("Deployment", 9, "1", "3")],
        ["allow limits of 300% of cpu on n1 "],
        3,
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_as_many_pods_start_as_can(name: str) -> None:
    objects, begins, running = CASES[name]
    kind = objects[-1]["kind"]
    cluster = HypotheticalCluster(FACTORY, NOW)
    for each in objects:
        cluster.take(Apply(copy.deepcopy(each)))
    cluster.rest()
    objects = [*cluster.objects.all()]
    advice = explain(snapshot_with(objects, NOW), top_of(objects, kind)).advice
    texts = [each.text for each in advice]
    assert len(texts) == len(begins), texts
    assert [each[: len(text)] for each, text in zip(texts, begins, strict=True)] == begins
    ran = [len(pods_of(followed(objects, each.change)).running) for each in advice]
    assert ran[0] == running
    assert all(ran)
