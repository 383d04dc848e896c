"""Labels that describe nodes: requirements that exclude nodes which would do, topology keys that nodes
do not have, spread figures; and a nominated node that is gone."""

import copy

import pytest

from explanation.test_situations import (
    DB,
    Row,
    as_they_are,
    check,
    claim,
    full,
    on_nodes,
    spread,
    using,
    volume,
)
from harness.followed_advice import Situation
from harness.objects import Raw, node, pod

ZONE = "topology.kubernetes.io/zone"
PRODUCT = "nvidia.com/gpu.product"
IN_A = on_nodes({"key": ZONE, "operator": "In", "values": ["a"]})
SSD = {"key": "disk", "operator": "In", "values": ["ssd"]}
DATA = [claim("data", volume="pv1"), volume("pv1", "data", zone="b")]


def pair(key: str, one: str, other: str) -> list[Raw]:
    return [
        node(f"n{i}", cpu="4", labels={key: value, "disk": "ssd"})
        for i, value in enumerate((one, other), start=1)
    ]


ROWS: dict[str, Row] = {
    "zone that is full": Row(
        [*pair(ZONE, "a", "b"), full("a", "4", "n1"), pod("p", "4", nodeSelector={ZONE: "a"})],
        ["closest: n1, short of 4 cpu"],
        ["RemoveSelector"],
    ),
    "kind of GPU that is full": Row(
        [
            *pair(PRODUCT, "A100", "H100"),
            full("a", "4", "n1"),
            pod("p", "4", nodeSelector={PRODUCT: "A100"}),
        ],
        ["closest: n1, short of 4 cpu"],
        ["RemoveSelector"],
    ),
    "zone of no node": Row(
        [*pair(ZONE, "a", "b"), pod("p", "4", nodeSelector={ZONE: "far-away"})],
        ["nodeSelector topology.kubernetes.io/zone=far-away is not met by any node"],
        ["RemoveSelector", "AddNode"],
    ),
    "zone in an affinity term": Row(
        [*pair(ZONE, "a", "b"), full("a", "4", "n1"), pod("p", "4", affinity=IN_A)],
        ["closest: n1, short of 4 cpu"],
        ["RemoveAffinity"],
    ),
    "zone beside another expression": Row(
        [
            *pair(ZONE, "a", "b"),
            full("a", "4", "n1"),
            pod("p", "4", affinity=on_nodes({"key": ZONE, "operator": "In", "values": ["a"]}, SSD)),
        ],
        ["closest: n1, short of 4 cpu"],
        ["RemoveAffinity"],
    ),
    "selector of one zone, volume in another": Row(
        [*pair(ZONE, "a", "b"), *DATA, pod("p", nodeSelector={ZONE: "a"}, volumes=using("data"))],
        ["claim data is bound to pv1"],
        ["RemoveSelector"],
    ),
    "label that no node has, and a smaller node could have it": Row(
        [
            node("n1", cpu="8", labels={"pool": "x"}),
            node("n2", cpu="2"),
            pod("p", "3", nodeSelector={"pool": "y"}),
        ],
        ["nodeSelector pool=y is not met by any node"],
        ["RemoveSelector", "AddNode"],
    ),
    "label that no node has, and a tainted node could have it": Row(
        [
            node("n1", labels={"pool": "x"}),
            node("n2", taints=[DB]),
            pod("p", affinity=on_nodes({"key": "pool", "operator": "In", "values": ["y", "z"]})),
        ],
        ["node affinity pool In (y, z) is not met by any node"],
        ["RemoveAffinity", "AddNode"],
    ),
    "label of a tainted pool": Row(
        [
            node("n1", labels={"pool": "x"}),
            node("n2", labels={"pool": "y"}, unschedulable=True, taints=[DB]),
            pod("p", nodeSelector={"pool": "y"}),
        ],
        ["nodeSelector pool=y is not met by 1 of 2 nodes"],
        ["Uncordon"],
    ),
    "architecture is not removed": Row(
        [
            *pair("kubernetes.io/arch", "amd64", "arm64"),
            full("a", "4", "n1"),
            pod("p", "4", nodeSelector={"kubernetes.io/arch": "amd64"}),
        ],
        ["closest: n1, short of 4 cpu"],
        ["EndPods"],
    ),
    "spread over zones where nodes have none": Row(
        [
            *pair("kubernetes.io/os", "linux", "linux"),
            pod("p", app="s", topologySpreadConstraints=spread(ZONE)),
        ],
        [f"the label {ZONE} is missing on n1, n2"],
        ["CorrectSpread", "RelaxSpread"],
    ),
}


@pytest.mark.parametrize("name", ROWS)
def test_other_places(name: str) -> None:
    report = check(ROWS[name])
    assert "did you mean" not in "\n".join(report.details)


def test_a_removal_that_helps_all_replicas_hides_no_others() -> None:
    """A label for the other node would be enough for one of them."""
    nodes = [node("n1", cpu="8", labels={"pool": "x"}), node("n2", cpu="3")]
    template = {"metadata": {"labels": {"app": "web"}}, "spec": pod("x", "3")["spec"]}
    template["spec"]["nodeSelector"] = {"pool": "y"}
    web: Raw = {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "web"},
        "spec": {"replicas": 2, "selector": {"matchLabels": {"app": "web"}}, "template": template},
    }
    situation = Situation(*nodes, web)
    removed = situation.report("Deployment", "web").advice[0]
    assert removed.text == (
        "remove nodeSelector pool=y, in the template of Deployment web; then both pods fit: n1"
    )
    assert all(situation.followed(removed).values())


def test_only_the_zone_is_removed_from_an_affinity_term() -> None:
    report = check(ROWS["zone beside another expression"])
    (change,) = report.advice[0].change["objects"]
    affinity = change["patch"]["spec"]["affinity"]["nodeAffinity"]
    (terms,) = affinity["requiredDuringSchedulingIgnoredDuringExecution"].values()
    assert terms == [{"matchExpressions": [SSD]}]


def test_spread_by_node_where_there_are_no_zones() -> None:
    report = check(ROWS["spread over zones where nodes have none"])
    assert f"use the topologyKey kubernetes.io/hostname instead of {ZONE}" in report.advice[0].text


def test_a_role_of_an_older_version_is_recognized() -> None:
    new = node("n1", labels={"node-role.kubernetes.io/control-plane": ""})
    old = pod("p", nodeSelector={"node-role.kubernetes.io/master": ""})
    report = check(Row([new, old], ['node-role.kubernetes.io/master=""'], ["CorrectSelector"]))
    role = "node-role.kubernetes.io/control-plane"
    assert f'{role}: "" instead of node-role.kubernetes.io/master: ""' in report.advice[0].text


def test_another_role_is_no_misspelling_of_a_label_of_kubelets() -> None:
    only = node("n1", labels={"beta.kubernetes.io/os": "linux"})
    report = as_they_are(
        "Pod", "p", only, pod("p", nodeSelector={"node-role.kubernetes.io/worker": ""})
    )
    assert "did you mean" not in "\n".join(report.details)


def test_spread_counts_only_pods_with_the_same_match_label_keys() -> None:
    constraint = [{**each, "matchLabelKeys": ["version"]} for each in spread(ZONE)]
    old, new = ({"labels": {"app": "s", "version": each}} for each in ("1", "2"))
    report = as_they_are(
        "Pod",
        "p",
        *pair(ZONE, "a", "b"),
        full("a", "1", "n1", metadata=old),
        full("b", "1", "n1", metadata=old),
        full("c", "1", "n1", metadata=new),
        full("d", "4", "n2"),
        pod("p", metadata=new, topologySpreadConstraints=constraint),
    )
    assert any("are a: 1, b: 0" in each for each in report.details), report.details


def test_a_nominated_node_that_is_gone_does_not_hide_the_reason() -> None:
    waiting = pod("p", "5")
    waiting["status"] = {"phase": "Pending", "nominatedNodeName": "n7"}
    report = as_they_are("Pod", "p", node("n1", cpu="4"), waiting)
    assert report.summary == "No suitable node among 1 node: too little cpu (1)."
    assert report.details[0] == "n7 was nominated for it, but no longer exists"
    assert [each.change["actions"] for each in report.advice] == [["Resize"]]


@pytest.mark.parametrize(
    "wants",
    [
        {"nodeSelector": {"kubernetes.io/arch": "amd64"}},
        {"requests": {"cpu": "3", "example.com/fpga": "1"}},
    ],
    ids=["label", "resource"],
)
@pytest.mark.parametrize("others", [0, 1, 2])
def test_nodes_are_added_also_for_those_that_take_them_first(wants: Raw, others: int) -> None:
    machine = node("n1", 4, labels={"kubernetes.io/arch": "arm64"})
    before = [pod(f"q{at}", 3, at=f"{at}s", **copy.deepcopy(wants)) for at in range(others)]
    situation = Situation(machine, *before, pod("p", 3, at="10s", **copy.deepcopy(wants)))
    report = situation.report("Pod", "p")
    (only,) = report.advice
    count = "a node" if not others else f"{others + 1} nodes"
    since = {0: "", 1: ", since default/q0 is", 2: ", since default/q0, default/q1 are"}[others]
    assert only.text.startswith(f"add {count} with ")
    assert f"without its pods){since}" in only.text
    assert situation.followed(only)["p"].startswith("new-node")
    assert not any("takes new-node" in each for each in report.details)
