"""Nodes in the order they came, and the pods on them."""

from __future__ import annotations

from typing import Any

from holdfast.api.meta import Object, ObjectReference
from holdfast.api.node import Node
from holdfast.api.pod import Pod
from holdfast.api.storage import PersistentVolume, PersistentVolumeClaim
from reference.quantities import counted, exact
from reference.requests import claimed_for_scores, requests


class ReferenceState:
    def __init__(self) -> None:
        self.nodes: dict[str, Node] = {}
        self.pods: dict[str, Pod] = {}
        """All pods that have capacity on a node, by uid; the node is `spec.nodeName`."""
        self.objects: dict[tuple[str, str, str], Object] = {}
        """Services, controllers, namespaces and budgets, by kind, namespace and name."""
        self.nominated: dict[str, Pod] = {}
        """Nominated pods, by uid; the node is `status.nominatedNodeName`."""
        self.assumed: dict[str, ObjectReference] = {}
        """Claims that volumes are assumed to be bound to, by the volume's name."""
        self.selecting: dict[tuple[str, str], str] = {}
        """Nodes that volumes are to be made for, by their claims' namespace and name."""
        self._assumed_for: dict[str | tuple[str, str], set[str]] = {}
        """The pods for which these were assumed."""
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

    def put(self, obj: Object) -> None:
        self.objects[(obj.kind, obj.metadata.namespace, obj.metadata.name)] = obj
        if isinstance(obj, PersistentVolume) and obj.spec.claim_ref is not None:
            self._kept(obj)
        elif isinstance(obj, PersistentVolumeClaim):
            selected = "volume.kubernetes.io/selected-node" in obj.metadata.annotations
            if selected or obj.spec.volume_name:
                self._kept(obj)

    def delete(self, obj: Object) -> None:
        self.objects.pop((obj.kind, obj.metadata.namespace, obj.metadata.name), None)
        self._kept(obj)

    def _kept(self, obj: Object) -> None:
        """What was assumed is on the object now, or no longer possible."""
        meta = obj.metadata
        if isinstance(obj, PersistentVolume):
            self.assumed.pop(meta.name, None)
            self._assumed_for.pop(meta.name, None)
        elif isinstance(obj, PersistentVolumeClaim):
            self.selecting.pop((meta.namespace, meta.name), None)
            self._assumed_for.pop((meta.namespace, meta.name), None)

    def assume_volume(self, volume: PersistentVolume, claim: PersistentVolumeClaim, pod: str) -> None:
        meta, name = claim.metadata, volume.metadata.name
        ref = ObjectReference(namespace=meta.namespace, name=meta.name, uid=meta.uid)
        self.assumed.setdefault(name, ref)
        self._assumed_for.setdefault(name, set()).add(pod)

    def assume_node(self, claim: PersistentVolumeClaim, node: str, pod: str) -> None:
        key = (claim.metadata.namespace, claim.metadata.name)
        self.selecting.setdefault(key, node)
        self._assumed_for.setdefault(key, set()).add(pod)

    def release(self, pod: str) -> None:
        """Drops what was assumed for this pod only."""
        for what, pods in list(self._assumed_for.items()):
            pods.discard(pod)
            if not pods:
                del self._assumed_for[what]
                if isinstance(what, str):
                    self.assumed.pop(what, None)
                else:
                    self.selecting.pop(what, None)

    def of_kind(self, kind: str) -> list[Any]:
        return [obj for key, obj in self.objects.items() if key[0] == kind]

    def find(self, kind: str, namespace: str, name: str) -> Any:
        return self.objects.get((kind, namespace, name))

    def namespace_labels(self, namespace: str) -> dict[str, str]:
        """A namespace not seen has its name for a label, as the API server would give it."""
        found = self.find("Namespace", "", namespace)
        return {
            "kubernetes.io/metadata.name": namespace,
            **(found.metadata.labels if found is not None else {}),
        }

    def on(self, node: str) -> list[Pod]:
        return [pod for pod in self.pods.values() if pod.spec.node_name == node]

    def nominated_pods(self, pod: Pod, node: str) -> list[Pod]:
        """Pods the node is being cleared for that the pod must not get in the way of."""
        return [
            other
            for other in self.nominated.values()
            if other.status.nominated_node_name == node
            and other.metadata.uid != pod.metadata.uid
            and (other.spec.priority or 0) >= (pod.spec.priority or 0)
        ]

    def claim_ref(self, volume: PersistentVolume) -> ObjectReference | None:
        """The claim that a volume is bound to, or assumed to be."""
        return self.assumed.get(volume.metadata.name, volume.spec.claim_ref)

    def selected_node(self, claim: PersistentVolumeClaim) -> str | None:
        """The node the volume of a claim is to be made for."""
        key = (claim.metadata.namespace, claim.metadata.name)
        written = claim.metadata.annotations.get("volume.kubernetes.io/selected-node")
        return self.selecting.get(key, written)

    def allocatable(self, node: Node, resource: str) -> int:
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
