"""The JSON values that annotations carry, typed."""

from __future__ import annotations

from typing import Any

import msgspec
from msgspec import field

from holdfast.api import names
from holdfast.api.affinity import NodeSelectorTerm, Toleration
from holdfast.api.decode import decode_json
from holdfast.api.errors import InvalidObject
from holdfast.api.meta import ResourceList, Struct
from holdfast.api.workloads import percentage


class ReservationAllocated(Struct):
    """`reservation-allocated` on a pod: the reservation it was bound through."""

    name: str = ""
    uid: str = ""


class ReservationAffinitySelector(Struct):
    reservation_selector_terms: list[NodeSelectorTerm] = field(default_factory=list)


class ReservationAffinity(Struct):
    """`reservation-affinity` on a pod: it must use a reservation, one like this."""

    name: str = ""
    required_during_scheduling_ignored_during_execution: ReservationAffinitySelector | None = None
    reservation_selector: dict[str, str] = field(default_factory=dict)
    tolerations: list[Toleration] = field(default_factory=list)


class ExactMatchReservation(Struct):
    """`exact-match-reservation` on a pod: these amounts must equal the reservation's."""

    resource_names: list[str] = field(default_factory=list)


class SoftEviction(Struct):
    """`soft-eviction` on a reservation: that it is preempted, and by which preemptor."""

    timestamp: str = ""
    initiator: str = ""
    reason: str = ""


class Preempts(Struct):
    """`preempts` on a reservation: the uids of those that have to go for it."""

    reservations: list[str] = field(default_factory=list)


class AllocatedFunction(Struct):
    minor: int = 0
    bus_id: str = field(default="", name="busID")


class DeviceAllocationExtension(Struct):
    vfs: list[AllocatedFunction] = field(default_factory=list)


class DeviceAllocation(Struct):
    """One device in `device-allocated`, which maps a device type to a list of these."""

    minor: int = 0
    id: str = ""
    resources: ResourceList = field(default_factory=dict)
    extension: DeviceAllocationExtension | None = None


class NUMANodeResource(Struct):
    node: int = 0
    resources: ResourceList = field(default_factory=dict)


class ResourceStatus(Struct):
    """`resource-status` on a pod or reservation: the CPUs and NUMA nodes it got."""

    cpuset: str = ""
    numa_node_resources: list[NUMANodeResource] = field(default_factory=list)


class ResourceSpec(Struct):
    """`resource-spec` on a pod: how it wants its CPUs."""

    required_cpu_bind_policy: str = field(default="", name="requiredCPUBindPolicy")
    preferred_cpu_bind_policy: str = field(default="", name="preferredCPUBindPolicy")
    preferred_cpu_exclusive_policy: str = field(default="", name="preferredCPUExclusivePolicy")


class NUMATopologySpec(Struct):
    """`numa-topology-spec` on a pod."""

    numa_topology_policy: str = ""
    single_numa_node_exclusive: str = field(default="", name="singleNUMANodeExclusive")


class CPUDetail(Struct):
    id: int = 0
    core: int = 0
    socket: int = 0
    node: int = 0


class CPUTopology(Struct):
    """`cpu-topology` on a NodeResourceTopology."""

    detail: list[CPUDetail] = field(default_factory=list)


def limit_to_allocatable(text: str) -> dict[str, int]:
    """`limit-to-allocatable` on a node: by resource, to how many percent of what the node has the
    limits of its pods may add up. Raises InvalidObject."""
    at = f"metadata.annotations[{names.LIMIT_TO_ALLOCATABLE}]"
    ratios = {}
    for resource, value in decode_json(text, dict[str, Any], field=at).items():
        percent = percentage(value)
        if percent is None:
            given = msgspec.json.encode(value).decode()
            problem = f'{resource}: expected a percentage such as "125%" or 125, got {given}'
            raise InvalidObject("", at, problem)
        ratios[resource] = percent
    return ratios
