"""Topology spread constraints that count domains in which a pod cannot be."""

from __future__ import annotations

from typing import Any

import pytest

from explanation.test_situations import DB, Row, check, full
from harness.objects import Raw, node, pod

WEB = {"labels": {"app": "web"}}
IGNORE = {"nodeAffinityPolicy": "Ignore"}


def zoned(name: str, zone: str, **more: Any) -> Raw:
    return node(name, cpu="8", labels={"zone": zone, **more.pop("labels", {})}, **more)


def spreading(*, policies: Raw | None = None, **more: Any) -> Raw:
    constraint = {
        "maxSkew": 1,
        "topologyKey": "zone",
        "whenUnsatisfiable": "DoNotSchedule",
        "labelSelector": {"matchLabels": {"app": "web"}},
        **(policies or {}),
    }
    return pod("p", "1", app="web", topologySpreadConstraints=[constraint], **more)


A, RUNNING = zoned("a", "a", labels={"pool": "x"}), full("w", "1", "a", metadata=WEB)

SITUATIONS: dict[str, Row] = {
    "a tainted domain": Row(
        [A, RUNNING, zoned("b", "b", taints=[DB]), spreading()],
        [
            "pods by zone are a: 1, b: 0",
            "zone=b counts, though nodes there have taints that the pod does not tolerate "
            "(nodeTaintsPolicy: Ignore)",
        ],
        ["HonorPolicy", "Tolerate"],
    ),
    "a domain of other nodes than it may use": Row(
        [A, RUNNING, zoned("b", "b"), spreading(policies=IGNORE, nodeSelector={"pool": "x"})],
        ["zone=b counts, though nodes there do not meet the pod's node affinity or selector"],
        ["HonorPolicy", "LabelNode"],
    ),
    "nodes of one domain are closed for different reasons": Row(
        [
            A,
            RUNNING,
            zoned("b1", "b"),
            zoned("b2", "b", taints=[DB], labels={"pool": "x"}),
            spreading(policies=IGNORE, nodeSelector={"pool": "x"}),
        ],
        [],
        ["HonorPolicy", "Tolerate", "LabelNode"],
    ),
    "nodes that do not count": Row(
        [
            A,
            RUNNING,
            zoned("a2", "a2", labels={"pool": "x"}),
            full("other", "8", "a2"),
            zoned("b", "b"),
            spreading(nodeSelector={"pool": "x"}),
        ],
        ["pods by zone are a: 1, a2: 0"],
        ["RelaxSpread", "LabelNode"],
    ),
}


@pytest.mark.parametrize("name", SITUATIONS)
def test_situation(name: str) -> None:
    report = check(SITUATIONS[name])
    assert not any("b: 0" in each for each in report.details if name == "nodes that do not count")


def test_which_policy_is_set() -> None:
    report = check(SITUATIONS["a tainted domain"])
    assert report.advice[0].text == (
        "set nodeTaintsPolicy: Honor in its topology spread constraints, so that zone=b does not "
        "count; then it fits a"
    )
    (constraint,) = report.advice[0].change["objects"][0]["patch"]["spec"]["topologySpreadConstraints"]
    assert constraint["nodeTaintsPolicy"] == "Honor"
