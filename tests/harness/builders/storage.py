"""Builders of claims, volumes and objects of CSI drivers, in the manner of `builders`.

make_claim("c").size("1Gi").storage_class("fast").bound_to("v").obj()
make_volume("v").size("1Gi").storage_class("fast").on_nodes("zone", "a").obj()
"""

from __future__ import annotations

from typing import Any, Self

from harness.builders import Builder
from holdfast.api import names
from holdfast.api.quantity import Quantity
from holdfast.api.storage import (
    CSIDriver,
    CSINode,
    CSIStorageCapacity,
    PersistentVolume,
    PersistentVolumeClaim,
    StorageClass,
    VolumeAttachment,
)

_STORAGE = "storage.k8s.io/v1"


class ClaimBuilder(Builder[PersistentVolumeClaim]):
    api_version = "v1"
    kind = "PersistentVolumeClaim"

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.namespace("default").modes("ReadWriteOnce").status(phase="Pending")

    def size(self, quantity: Quantity) -> Self:
        return self._set("resources", {"requests": {"storage": quantity}})

    def modes(self, *modes: str) -> Self:
        return self._set("accessModes", list(modes))

    def storage_class(self, name: str) -> Self:
        return self._set("storageClassName", name)

    def bound_to(self, volume: str) -> Self:
        self._set("volumeName", volume).status(phase="Bound")
        return self.annotation(names.BIND_COMPLETED_ANNOTATION, "yes")

    def lost(self) -> Self:
        return self.status(phase="Lost")

    def selected_node(self, name: str) -> Self:
        return self.annotation(names.SELECTED_NODE_ANNOTATION, name)


class VolumeBuilder(Builder[PersistentVolume]):
    api_version = "v1"
    kind = "PersistentVolume"

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.modes("ReadWriteOnce").status(phase="Available")

    def size(self, quantity: Quantity) -> Self:
        return self._set("capacity", {"storage": quantity})

    def modes(self, *modes: str) -> Self:
        return self._set("accessModes", list(modes))

    def storage_class(self, name: str) -> Self:
        return self._set("storageClassName", name)

    def csi(self, driver: str, handle: str) -> Self:
        return self._set("csi", {"driver": driver, "volumeHandle": handle})

    def on_nodes(self, key: str, *values: str) -> Self:
        return self.affinity([{"key": key, "operator": "In", "values": list(values)}])

    def affinity(self, *terms: list[dict[str, Any]]) -> Self:
        selector = {"nodeSelectorTerms": [{"matchExpressions": term} for term in terms]}
        return self._set("nodeAffinity", {"required": selector})

    def claimed_by(self, claim: str, *, uid: str = "", phase: str = "Bound") -> Self:
        ref = {"kind": "PersistentVolumeClaim", "namespace": "default", "name": claim}
        return self._set("claimRef", ref | ({"uid": uid} if uid else {})).status(phase=phase)


class ClassBuilder(Builder[StorageClass]):
    api_version = _STORAGE
    kind = "StorageClass"

    def __init__(self, name: str, provisioner: str = names.NO_PROVISIONER) -> None:
        super().__init__(name)
        self._raw["provisioner"] = provisioner
        self._raw["volumeBindingMode"] = "WaitForFirstConsumer"

    def immediate(self) -> Self:
        self._raw["volumeBindingMode"] = "Immediate"
        return self

    def allowed(self, key: str, *values: str) -> Self:
        term = {"matchLabelExpressions": [{"key": key, "values": list(values)}]}
        self._raw.setdefault("allowedTopologies", []).append(term)
        return self


class CSINodeBuilder(Builder[CSINode]):
    api_version = _STORAGE
    kind = "CSINode"

    def driver(self, name: str, limit: int | None = None) -> Self:
        driver: dict[str, Any] = {"name": name, "nodeID": self._metadata["name"]}
        if limit is not None:
            driver["allocatable"] = {"count": limit}
        return self._append("drivers", driver)

    def migrated(self, *plugins: str) -> Self:
        return self.annotation(names.MIGRATED_PLUGINS_ANNOTATION, ",".join(plugins))


class CSIDriverBuilder(Builder[CSIDriver]):
    api_version = _STORAGE
    kind = "CSIDriver"

    def tracks_capacity(self, value: bool = True) -> Self:
        return self._set("storageCapacity", value)

    def demanded(self, value: bool = True) -> Self:
        """Pods with volumes of the driver need it on their node."""
        return self._set("preventPodSchedulingIfMissing", value)


class CapacityBuilder(Builder[CSIStorageCapacity]):
    api_version = _STORAGE
    kind = "CSIStorageCapacity"

    def __init__(self, name: str, storage_class: str) -> None:
        super().__init__(name)
        self.namespace("default")._raw["storageClassName"] = storage_class

    def capacity(self, quantity: Quantity) -> Self:
        self._raw["capacity"] = quantity
        return self

    def largest(self, quantity: Quantity) -> Self:
        self._raw["maximumVolumeSize"] = quantity
        return self

    def topology(self, **selector: Any) -> Self:
        self._raw["nodeTopology"] = selector
        return self


class AttachmentBuilder(Builder[VolumeAttachment]):
    api_version = _STORAGE
    kind = "VolumeAttachment"

    def of(self, driver: str, volume: str, node: str) -> Self:
        return self.spec(attacher=driver, nodeName=node, source={"persistentVolumeName": volume})


def make_claim(name: str) -> ClaimBuilder:
    return ClaimBuilder(name)


def make_volume(name: str) -> VolumeBuilder:
    return VolumeBuilder(name)


def make_class(name: str, provisioner: str = names.NO_PROVISIONER) -> ClassBuilder:
    return ClassBuilder(name, provisioner)


def make_csi_node(name: str) -> CSINodeBuilder:
    return CSINodeBuilder(name)


def make_csi_driver(name: str) -> CSIDriverBuilder:
    return CSIDriverBuilder(name)


def make_capacity(name: str, storage_class: str) -> CapacityBuilder:
    return CapacityBuilder(name, storage_class)


def make_attachment(name: str) -> AttachmentBuilder:
    return AttachmentBuilder(name)
