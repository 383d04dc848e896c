from __future__ import annotations

from holdfast.api.node import Node
from holdfast.api.pod import Pod
from reference.plugin import ReferencePlugin, Unfit
from reference.state import ReferenceState

HostPort = tuple[str, str, int]


class NodePorts(ReferencePlugin):
    name = "NodePorts"

    def filter(self, pod: Pod, node: Node, world: ReferenceState) -> Unfit | None:
        for other in world.on(node.metadata.name):
            for theirs in host_ports(other):
                for ours in host_ports(pod):
                    if _clash(ours, theirs):
                        return Unfit(
                            ("node(s) didn't have free ports for the requested pod ports",), True
                        )
        return None


def host_ports(pod: Pod) -> list[HostPort]:
    sidecars = [c for c in pod.spec.init_containers if c.restart_policy == "Always"]
    found = []
    for container in [*pod.spec.containers, *sidecars]:
        for port in container.ports:
            number = port.host_port
            if not number and pod.spec.host_network:
                number = port.container_port
            if number:
                found.append((port.host_ip or "0.0.0.0", port.protocol or "TCP", number))
    return found


def _clash(one: HostPort, other: HostPort) -> bool:
    return one[1:] == other[1:] and (one[0] == other[0] or "0.0.0.0" in (one[0], other[0]))
