from __future__ import annotations

import pytest

from harness.builders import NodeBuilder, PodBuilder, make_node, make_pod
from harness.driver import cluster_of, only, why_not

RESTARTS, HOST_USERS = "RestartAllContainersOnContainerExits", "UserNamespacesHostNetworkSupport"
LACKING = "0/1 nodes are available: 1 node(s) didn't match Pod's required features."
SETUP = only("NodeDeclaredFeatures")


def node(*features: str) -> NodeBuilder:
    return make_node("n").declares(*features)


def restarting(action: str, where: str = "containers") -> PodBuilder:
    made = make_pod("p").init_container()
    rules = [{"action": "Restart"}, {"action": action}]
    made.raw_spec[where][0]["restartPolicyRules"] = rules
    return made


def isolated(**spec: bool) -> PodBuilder:
    return make_pod("p").spec(**spec)


@pytest.mark.parametrize(
    ("pod", "node", "message"),
    [
        (make_pod("p"), node(), ""),
        (restarting("Restart"), node(), ""),
        (restarting("RestartAllContainers"), node(), LACKING),
        (restarting("RestartAllContainers", "initContainers"), node(HOST_USERS, "Another"), LACKING),
        (restarting("RestartAllContainers"), node("Another", RESTARTS), ""),
        (isolated(hostNetwork=True), node(), ""),
        (isolated(hostUsers=False), node(), ""),
        (isolated(hostNetwork=True, hostUsers=True), node(), ""),
        (isolated(hostNetwork=True, hostUsers=False), node(RESTARTS), LACKING),
        (isolated(hostNetwork=True, hostUsers=False), node(HOST_USERS), ""),
        (restarting("RestartAllContainers").spec(hostNetwork=True, hostUsers=False), node(), LACKING),
        (
            restarting("RestartAllContainers").spec(hostNetwork=True, hostUsers=False),
            node(HOST_USERS, RESTARTS),
            "",
        ),
    ],
)
def test_nodes_without_a_required_feature_are_infeasible(
    pod: PodBuilder, node: NodeBuilder, message: str
) -> None:
    assert why_not(pod.obj(), node.obj(), setup=SETUP) == message


def test_a_pod_is_placed_once_its_node_declares_the_feature() -> None:
    driver = cluster_of(node().obj(), setup=SETUP).add(restarting("RestartAllContainers").obj())
    assert driver.binds() == {}
    assert driver.update(node(RESTARTS).obj()).binds() == {"p": "n"}
