"""Which tolerations `explain` advises: none of taints that say a node cannot be used now, and those
most like the pod's own first."""

import pytest

from explanation.test_situations import CONTROL_PLANE, DB, MASTER, NOT_READY, Row, as_they_are, check
from harness.objects import Raw, node, pod
from holdfast.explanation.report import Report

WEB = {"key": "dedicated", "value": "web", "effect": "NoSchedule"}
TEAM = {"key": "team", "value": "ml", "effect": "NoSchedule"}


def tolerating(**toleration: str) -> Raw:
    return pod("p", tolerations=[{"operator": "Equal", "effect": "NoSchedule", **toleration}])


def texts(report: Report) -> list[str]:
    return [each.text.partition(";")[0] for each in report.advice]


@pytest.mark.parametrize(
    "key",
    [
        "node.cloudprovider.kubernetes.io/uninitialized",
        "node.cluster.x-k8s.io/uninitialized",
        "node.cilium.io/agent-not-ready",
        "ebs.csi.aws.com/agent-not-ready",
        "ToBeDeletedByClusterAutoscaler",
        "DeletionCandidateOfClusterAutoscaler",
        "karpenter.sh/disrupted",
        "karpenter.sh/unregistered",
        "startup-taint.cluster-autoscaler.kubernetes.io/driver",
    ],
)
def test_no_toleration_of_a_node_that_starts_or_stops(key: str) -> None:
    taint = {"key": key, "value": "1", "effect": "NoSchedule"}
    nodes = [node("n1", taints=[taint]), node("n2", taints=[taint, DB])]
    check(Row([*nodes, pod("p")], [f"not usable now ({key}=1:NoSchedule): n1, n2"], []))
    about = as_they_are("Node", "n1", *nodes, pod("p"))
    assert "it is not usable now" in about.summary
    assert not about.advice, about.advice


def test_unusable_nodes_do_not_hide_a_toleration() -> None:
    unready = [node(f"a{i}", taints=[NOT_READY]) for i in range(6)]
    row = Row([*unready, node("n1", taints=[DB]), pod("p")], ["not usable now"], ["Tolerate"])
    assert texts(check(row)) == ["tolerate dedicated=db:NoSchedule"]


@pytest.mark.parametrize(
    ("own", "says"),
    [
        ({"key": "dedicated", "value": "bd"}, "n2; it tolerates dedicated=bd:NoSchedule"),
        ({"key": "dedicate", "value": "db"}, "n2; it tolerates dedicate=db:NoSchedule"),
    ],
)
def test_the_toleration_most_like_its_own_comes_first(own: dict[str, str], says: str) -> None:
    nodes = [MASTER, node("n0", taints=[TEAM]), node("n1", taints=[TEAM]), node("n2", taints=[DB])]
    row = Row([*nodes, tolerating(**own)], [says], ["Tolerate", "Tolerate"])
    assert texts(check(row)) == ["tolerate dedicated=db:NoSchedule", "tolerate team=ml:NoSchedule"]


def test_of_values_the_most_similar_one() -> None:
    nodes = [node("n1", taints=[DB]), node("n2", taints=[WEB])]
    own = tolerating(key="dedicated", value="wep")
    report = check(Row([*nodes, own], [], ["Tolerate", "Tolerate"]))
    assert texts(report)[0] == "tolerate dedicated=web:NoSchedule"


def test_a_control_plane_comes_last() -> None:
    nodes = [node("cp", taints=[CONTROL_PLANE]), node("n1", taints=[DB]), node("n2", taints=[DB])]
    report = check(Row([*nodes, pod("p")], [], ["Tolerate", "Tolerate"]))
    assert texts(report) == [
        "tolerate dedicated=db:NoSchedule",
        "tolerate node-role.kubernetes.io/control-plane:NoSchedule",
    ]


def test_all_reasons_of_a_node_that_several_filters_reject() -> None:
    """The scheduler names the first filter only."""
    objects = [
        node("n1", cpu="2", taints=[DB]),
        node("n2", cpu="2", taints=[DB]),
        node("n3", cpu="8", taints=[DB], labels={"disk": "ssd"}),
        pod("p", "4", nodeSelector={"disk": "ssd"}),
    ]
    report = check(Row(objects, ["untolerated taint (3)"], ["Tolerate"]))
    assert (
        "n1, n2 are rejected for several reasons: untolerated taint, node affinity or selector not "
        "met, too little cpu"
    ) in report.details


def test_of_many_nodes_it_is_said_how_many_were_looked_at_for_all_reasons() -> None:
    def reasons(count: int) -> list[str]:
        nodes = [node(f"n{i:02}", cpu="2", taints=[DB]) for i in range(count)]
        report = as_they_are("Pod", "p", *nodes, pod("p", "4"))
        return [each for each in report.details if "for several reasons" in each]

    rejected = "are rejected for several reasons: untolerated taint, too little cpu"
    most = 50
    assert reasons(most) == [f"n00, n01, n02, and {most - 3} more {rejected}"]
    (found,) = reasons(most + 1)
    assert found == f"of the first {most} nodes by name, n00, n01, n02, and {most - 3} more {rejected}"
