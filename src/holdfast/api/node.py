"""Nodes."""

from __future__ import annotations

from msgspec import field

from holdfast.api.affinity import Taint
from holdfast.api.meta import Condition, Object, ResourceList, Struct


class NodeSpec(Struct):
    unschedulable: bool = False
    taints: list[Taint] = field(default_factory=list)
    provider_id: str = field(default="", name="providerID")
    pod_cidr: str = field(default="", name="podCIDR")


class ContainerImage(Struct):
    names: list[str] = field(default_factory=list)
    size_bytes: int = 0


class AttachedVolume(Struct):
    name: str = ""
    device_path: str = ""


class NodeStatus(Struct):
    allocatable: ResourceList = field(default_factory=dict)
    capacity: ResourceList = field(default_factory=dict)
    images: list[ContainerImage] = field(default_factory=list)
    conditions: list[Condition] = field(default_factory=list)
    volumes_attached: list[AttachedVolume] = field(default_factory=list)
    volumes_in_use: list[str] = field(default_factory=list)


class Node(Object):
    spec: NodeSpec = field(default_factory=NodeSpec)
    status: NodeStatus = field(default_factory=NodeStatus)
