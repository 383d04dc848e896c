from __future__ import annotations

from holdfast.api.node import Node
from holdfast.api.pod import Pod
from reference.plugin import ReferencePlugin, Unfit
from reference.state import ReferenceState


class NodeDeclaredFeatures(ReferencePlugin):
    name = "NodeDeclaredFeatures"

    def filter(self, pod: Pod, node: Node, world: ReferenceState) -> Unfit | None:
        if all(feature in node.status.declared_features for feature in _required(pod)):
            return None
        return Unfit(("node(s) didn't match Pod's required features",), False)


def _required(pod: Pod) -> list[str]:
    required = []
    containers = pod.spec.containers + pod.spec.init_containers
    actions = [rule.action for each in containers for rule in each.restart_policy_rules]
    if "RestartAllContainers" in actions:
        required.append("RestartAllContainersOnContainerExits")
    if pod.spec.host_network and pod.spec.host_users is False:
        required.append("UserNamespacesHostNetworkSupport")
    return required
