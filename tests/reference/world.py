"""Nodes in the order they came, and the pods on them."""

from __future__ import annotations

from holdfast.api.node import Node
from holdfast.api.pod import Pod
from reference.quantities import counted, exact
from reference.requests import claimed_for_scores, requests


class World:
    def __init__(self) -> None:
        self.nodes: dict[str, Node] = {}
        self.pods: dict[str, Pod] = {}
        """All pods that hold room on a node, by uid; `spec.nodeName` says where."""
        self._images: dict[str, tuple[int, set[str]]] = {}

    def put_node(self, node: Node) -> None:
        self._drop_images(node.metadata.name)
        self.nodes[node.metadata.name] = node
        for image in node.status.images:
            for name in image.names:
                _, holders = self._images.setdefault(name, (image.size_bytes, set()))
                holders.add(node.metadata.name)

    def delete_node(self, name: str) -> None:
        if self.nodes.pop(name, None) is not None:
            self._drop_images(name)

    def put_pod(self, pod: Pod) -> None:
        self.pods[pod.metadata.uid] = pod

    def delete_pod(self, uid: str) -> None:
        self.pods.pop(uid, None)

    def on(self, node: str) -> list[Pod]:
        return [pod for pod in self.pods.values() if pod.spec.node_name == node]

    def offered(self, node: Node, resource: str) -> int:
        quantity = node.status.allocatable.get(resource, 0)
        return counted(resource, exact(quantity))

    def used(self, node: Node, resource: str) -> int:
        return sum(requests(pod).get(resource, 0) for pod in self.on(node.metadata.name))

    def used_for_scores(self, node: Node, resource: str) -> int:
        return sum(claimed_for_scores(pod).get(resource, 0) for pod in self.on(node.metadata.name))

    def image_size_and_spread(self, name: str) -> tuple[int, int]:
        """The size of an image as first seen, and how many nodes have it."""
        size, holders = self._images.get(name, (0, set()))
        return size, len(holders)

    def _drop_images(self, node: str) -> None:
        for name, (_, holders) in list(self._images.items()):
            holders.discard(node)
            if not holders:
                del self._images[name]
