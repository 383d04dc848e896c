from __future__ import annotations

import pytest

from harness.builders import NodeBuilder, PodBuilder, make_node, make_pod
from harness.driver import only, why_not

CORDON = "node.kubernetes.io/unschedulable"


@pytest.mark.parametrize(
    ("pod", "node", "message"),
    [
        (make_pod("p"), make_node("n"), ""),
        (
            make_pod("p"),
            make_node("n").unschedulable(),
            "0/1 nodes are available: 1 node(s) were unschedulable.",
        ),
        (make_pod("p").toleration(CORDON, effect="NoSchedule", operator="Exists"), None, ""),
        (make_pod("p").toleration(CORDON, operator="Exists"), None, ""),
        (make_pod("p").toleration(CORDON), None, ""),
        (make_pod("p").tolerates_everything(), None, ""),
        (
            make_pod("p").toleration(CORDON, effect="NoExecute", operator="Exists"),
            None,
            "0/1 nodes are available: 1 node(s) were unschedulable.",
        ),
        (
            make_pod("p").toleration("other", operator="Exists"),
            None,
            "0/1 nodes are available: 1 node(s) were unschedulable.",
        ),
    ],
)
def test_cordoned_nodes_take_only_pods_that_tolerate_it(
    pod: PodBuilder, node: NodeBuilder | None, message: str
) -> None:
    cordoned = (node or make_node("n").unschedulable()).obj()
    assert why_not(pod.obj(), cordoned, setup=only("NodeUnschedulable")) == message
