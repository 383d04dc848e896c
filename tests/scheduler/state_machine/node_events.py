"""What can happen to nodes."""

from __future__ import annotations

import copy

from harness import choices
from harness.builders import make_node
from harness.choices import Chooser
from harness.strategies import ZONES
from holdfast.api.errors import InvalidObject
from holdfast.scheduler.cluster.events import Deleted, Malformed
from scheduler.state_machine.expected_state import Books


class NodeLife(Books):
    def put_node(self, choose: Chooser) -> None:
        """A new node, or one changed in any way, or one of the same name in its place."""
        builder = choices.node_builder(choose, choose(self.names))
        node = builder.uid(choose(("one", "two"))).obj()
        self.driver.update(node)
        self.world.put_node(node)

    def put_plain_node(self, choose: Chooser) -> None:
        """One with room for a few pods, and nothing else to it."""
        node = make_node(choose(self.names)).uid("one").allocatable(cpu="4", memory="8Gi").obj()
        self.driver.update(node)
        self.world.put_node(node)

    def tweak_node(self, choose: Chooser) -> None:
        """One thing about a node changes."""
        if not self.world.nodes:
            return
        node = copy.deepcopy(self.world.nodes[choose(sorted(self.world.nodes))])
        match choose(self.tweaks):
            case "cordon":
                node.spec.unschedulable = not node.spec.unschedulable
            case "zone":
                node.metadata.labels["topology.kubernetes.io/zone"] = choose(ZONES)
            case "shrink":
                node.status.allocatable["cpu"] = choose(("0", "100m"))
            case "grow":
                node.status.allocatable |= {"cpu": "4", "memory": "8Gi", "pods": 110}
            case "taints":
                tainted = make_node("x").taint("dedicated", effect="NoSchedule").obj().spec.taints
                node.spec.taints = tainted if choose((True, False)) else []
            case "label":
                node.metadata.labels["app"] = choose(("a", "b"))
        self.driver.update(node)
        self.world.put_node(node)

    def delete_node(self, choose: Chooser) -> None:
        name = choose(self.names)
        self.driver.feed(Deleted(make_node(name).obj()))
        self.world.delete_node(name)

    def spoil_node(self, choose: Chooser) -> None:
        name = choose(self.names)
        if choose((True, False)):
            self.driver.update(make_node(name).allocatable(cpu="1K").obj())
        else:
            error = InvalidObject(f"Node/{name}", "spec.taints", "expected a list")
            self.driver.feed(Malformed("Node", "", name, "one", error))
        self.world.delete_node(name)
