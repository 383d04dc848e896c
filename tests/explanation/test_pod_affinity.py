"""Pods that must be near pods like themselves: the first may be on any node with the topology key."""

from __future__ import annotations

import pytest

from explanation.test_misspellings import near_by
from explanation.test_situations import Row, check, full, near
from harness.objects import Raw, node, pod

N1 = node("n1", cpu="8")
RACKED = node("n2", cpu="2", labels={"rack": "b"})
ZONE = "topology.kubernetes.io/zone"

REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"


def all_of(*affinities: Raw) -> Raw:
    terms = [term for each in affinities for term in each["podAffinity"][REQUIRED]]
    return {"podAffinity": {REQUIRED: terms}}


SITUATIONS: dict[str, Row] = {
    "no node has the topology key": Row(
        [N1, pod("p", app="a", affinity=near_by("a", "rack"))],
        ["affinity to app=a by rack: it may be the first such pod, but no node has the label rack"],
        ["LabelNode"],
    ),
    "others like it are pending too": Row(
        [
            N1,
            pod("p", app="a", affinity=near_by("a", "rack")),
            pod("q", app="a", affinity=near_by("a", "rack")),
        ],
        ["it may be the first such pod, but no node has the label rack"],
        ["LabelNode"],
    ),
    "the only node with the key is full": Row(
        [N1, RACKED, full("a", "2", "n2"), pod("p", "2", app="a", affinity=near_by("a", "rack"))],
        ["it may be the first such pod, but the label rack is missing on n1"],
        ["LabelNode"],
    ),
    "two keys, and a node lacks one": Row(
        [
            node("n1", labels={"row": "a"}),
            pod("p", app="a", affinity=all_of(near_by("a", "rack"), near_by("a", "row"))),
        ],
        ["affinity to app=a by rack: it may be the first such pod, but no node has the label rack"],
        ["LabelNode"],
    ),
    "the key says where a node is": Row(
        [N1, pod("p", app="a", affinity=near_by("a", ZONE))],
        [f"it may be the first such pod, but no node has the label {ZONE}"],
        ["RemoveAffinity"],
    ),
    "the key is misspelt": Row(
        [RACKED, pod("p", app="a", affinity=near_by("a", "racks"))],
        ["no node has the label racks; did you mean rack?"],
        ["CorrectAffinity"],
    ),
    "the node of the pods to be near lacks the key": Row(
        [N1, RACKED, full("a", "2", "n1", app="db"), pod("p", affinity=near_by("db", "rack"))],
        ["app=db by rack: such a pod is default/a on n1, but the label rack is missing on n1"],
        ["LabelNode"],
    ),
    "a term selects the pod, another one does not": Row(
        [
            N1,
            pod("p", app="a", affinity=all_of(near("a"), near("db"))),
        ],
        [
            "affinity to app=a by kubernetes.io/hostname: no other such pod is on a node",
            "affinity to app=db by kubernetes.io/hostname: no such pod is on a node, and no pod",
        ],
        ["RemoveAffinity"],
    ),
}


@pytest.mark.parametrize("name", SITUATIONS)
def test_situation(name: str) -> None:
    check(SITUATIONS[name])
