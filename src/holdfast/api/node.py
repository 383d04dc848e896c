"""Nodes, and what is reported about their devices and their NUMA topology."""

from __future__ import annotations

from msgspec import field

from holdfast.api.affinity import Taint
from holdfast.api.meta import Condition, Object, ResourceList, Struct
from holdfast.api.quantity import Quantity


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
    declared_features: list[str] = field(default_factory=list)


class Node(Object):
    spec: NodeSpec = field(default_factory=NodeSpec)
    status: NodeStatus = field(default_factory=NodeStatus)


# Device and NodeResourceTopology objects of nodes.


class DeviceTopology(Struct):
    socket_id: int = field(default=-1, name="socketID")
    node_id: int = field(default=-1, name="nodeID")
    pcie_id: str = field(default="", name="pcieID")
    bus_id: str = field(default="", name="busID")


class VirtualFunction(Struct):
    minor: int = 0
    bus_id: str = field(default="", name="busID")


class VirtualFunctionGroup(Struct):
    labels: dict[str, str] = field(default_factory=dict)
    vfs: list[VirtualFunction] = field(default_factory=list)


class DeviceInfo(Struct):
    type: str = ""
    id: str = ""
    minor: int = 0
    module_id: int | None = field(default=None, name="moduleID")
    health: bool = False
    labels: dict[str, str] = field(default_factory=dict)
    resources: ResourceList = field(default_factory=dict)
    topology: DeviceTopology | None = None
    vf_groups: list[VirtualFunctionGroup] = field(default_factory=list)
    conditions: list[Condition] = field(default_factory=list)


class DeviceSpec(Struct):
    devices: list[DeviceInfo] = field(default_factory=list)


class Device(Object):
    """All devices of the node with the same name."""

    spec: DeviceSpec = field(default_factory=DeviceSpec)


class NamedValue(Struct):
    name: str = ""
    value: str = ""


class ZoneCost(Struct):
    name: str = ""
    value: int = 0


class ZoneResource(Struct):
    name: str = ""
    capacity: Quantity = 0
    allocatable: Quantity = 0
    available: Quantity = 0


class Zone(Struct):
    name: str = ""
    type: str = ""
    parent: str = ""
    costs: list[ZoneCost] = field(default_factory=list)
    attributes: list[NamedValue] = field(default_factory=list)
    resources: list[ZoneResource] = field(default_factory=list)


class NodeResourceTopology(Object):
    """The NUMA zones of the node with the same name; its fields stand at the top level."""

    topology_policies: list[str] = field(default_factory=list)
    zones: list[Zone] = field(default_factory=list)
    attributes: list[NamedValue] = field(default_factory=list)
