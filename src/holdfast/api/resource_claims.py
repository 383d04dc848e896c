"""Claims on devices (DRA): ResourceClaim, ResourceClaimTemplate and DeviceClass.

Defaults of the API server are filled in when requests are decoded, so that an object from a file reads
like one from a server. Parameters for drivers are opaque: kept as decoded and never looked into.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from msgspec import field
from msgspec.structs import force_setattr

from holdfast.api.affinity import NodeSelector
from holdfast.api.meta import Condition, FrozenStruct, Object, ObjectMeta, controller_of
from holdfast.api.pod import Pod, PodResourceClaim
from holdfast.api.quantity import Quantity
from holdfast.api.resource_slices import DeviceID, DeviceToleration

EXACT_COUNT, ALL_DEVICES = "ExactCount", "All"
"""Allocation modes."""
FROM_CLASS, FROM_CLAIM = "FromClass", "FromClaim"
"""Sources of the configuration of an allocation."""


class CELDeviceSelector(FrozenStruct, frozen=True):
    expression: str = ""


class DeviceSelector(FrozenStruct, frozen=True):
    cel: CELDeviceSelector | None = None


class CapacityRequirements(FrozenStruct, frozen=True):
    requests: dict[str, Quantity] = field(default_factory=dict)


class DeviceDemand(FrozenStruct, frozen=True):
    """What requests and subrequests have in common."""

    device_class_name: str = ""
    selectors: tuple[DeviceSelector, ...] = ()
    allocation_mode: str = ""
    count: int = 0
    tolerations: tuple[DeviceToleration, ...] = ()
    capacity: CapacityRequirements | None = None

    def __post_init__(self) -> None:
        if not self.allocation_mode:
            force_setattr(self, "allocation_mode", EXACT_COUNT)
        if self.allocation_mode == EXACT_COUNT and self.count == 0:
            force_setattr(self, "count", 1)


class ExactDeviceRequest(DeviceDemand, frozen=True):
    admin_access: bool = False


class DeviceSubRequest(DeviceDemand, frozen=True):
    """One of the alternatives of a request; results name it `request/subrequest`."""

    name: str = ""


class DeviceRequest(FrozenStruct, frozen=True):
    """Either `exactly` or `first_available` is set."""

    name: str = ""
    exactly: ExactDeviceRequest | None = None
    first_available: tuple[DeviceSubRequest, ...] = ()


class DeviceConstraint(FrozenStruct, frozen=True):
    """Applies to the named requests, or to all where none is named."""

    requests: tuple[str, ...] = ()
    match_attribute: str | None = None
    distinct_attribute: str | None = None


class OpaqueDeviceConfiguration(FrozenStruct, frozen=True):
    driver: str = ""
    parameters: Any = None


class DeviceClassConfiguration(FrozenStruct, frozen=True):
    opaque: OpaqueDeviceConfiguration | None = None


class DeviceClaimConfiguration(DeviceClassConfiguration, frozen=True):
    """Applies to the named requests, or to all where none is named."""

    requests: tuple[str, ...] = ()


class DeviceClaim(FrozenStruct, frozen=True):
    requests: tuple[DeviceRequest, ...] = ()
    constraints: tuple[DeviceConstraint, ...] = ()
    config: tuple[DeviceClaimConfiguration, ...] = ()


class ResourceClaimSpec(FrozenStruct, frozen=True):
    devices: DeviceClaim = field(default_factory=DeviceClaim)


class DeviceRequestAllocationResult(FrozenStruct, frozen=True):
    """One allocated device. `request` names a request, or `request/subrequest`; `share_id` is set where
    a part of the device is allocated."""

    request: str = ""
    driver: str = ""
    pool: str = ""
    device: str = ""
    admin_access: bool = False
    tolerations: tuple[DeviceToleration, ...] = ()
    binding_conditions: tuple[str, ...] = ()
    binding_failure_conditions: tuple[str, ...] = ()
    share_id: str | None = field(default=None, name="shareID")
    consumed_capacity: dict[str, Quantity] = field(default_factory=dict)

    @property
    def device_id(self) -> DeviceID:
        return DeviceID(self.driver, self.pool, self.device)


class DeviceAllocationConfiguration(DeviceClaimConfiguration, frozen=True):
    source: str = ""


class DeviceAllocationResult(FrozenStruct, frozen=True):
    results: tuple[DeviceRequestAllocationResult, ...] = ()
    config: tuple[DeviceAllocationConfiguration, ...] = ()


class AllocationResult(FrozenStruct, frozen=True):
    """Without a node selector the devices can be used on every node."""

    devices: DeviceAllocationResult = field(default_factory=DeviceAllocationResult)
    node_selector: NodeSelector | None = None
    allocation_timestamp: str | None = None


class ResourceClaimConsumer(FrozenStruct, frozen=True):
    """Who may use an allocated claim: mostly a pod."""

    api_group: str = ""
    resource: str = ""
    name: str = ""
    uid: str = ""


class NetworkDeviceData(FrozenStruct, frozen=True):
    interface_name: str = ""
    ips: tuple[str, ...] = ()
    hardware_address: str = ""


class AllocatedDeviceStatus(FrozenStruct, frozen=True):
    """What the driver reports about an allocated device."""

    driver: str = ""
    pool: str = ""
    device: str = ""
    share_id: str | None = field(default=None, name="shareID")
    conditions: tuple[Condition, ...] = ()
    data: Any = None
    network_data: NetworkDeviceData | None = None

    @property
    def device_id(self) -> DeviceID:
        return DeviceID(self.driver, self.pool, self.device)


class ResourceClaimStatus(FrozenStruct, frozen=True):
    """`reserved_for` is empty without an allocation."""

    allocation: AllocationResult | None = None
    reserved_for: tuple[ResourceClaimConsumer, ...] = ()
    devices: tuple[AllocatedDeviceStatus, ...] = ()


class ResourceClaim(Object):
    spec: ResourceClaimSpec = field(default_factory=ResourceClaimSpec)
    status: ResourceClaimStatus = field(default_factory=ResourceClaimStatus)

    def is_reserved_for(self, pod: Pod) -> bool:
        return any(consumer.uid == pod.metadata.uid for consumer in self.status.reserved_for)

    def is_generated_for(self, pod: Pod) -> bool:
        """Whether it was made for this pod and not for an earlier one of the same name."""
        owner = controller_of(self.metadata)
        return (
            owner is not None
            and owner.uid == pod.metadata.uid
            and self.metadata.namespace == pod.metadata.namespace
        )


class ResourceClaimTemplateSpec(FrozenStruct, frozen=True):
    metadata: ObjectMeta = field(default_factory=ObjectMeta)
    spec: ResourceClaimSpec = field(default_factory=ResourceClaimSpec)


class ResourceClaimTemplate(Object):
    spec: ResourceClaimTemplateSpec = field(default_factory=ResourceClaimTemplateSpec)


class DeviceClassSpec(FrozenStruct, frozen=True):
    """`extended_resource_name`: pods that request this resource get a device of the class."""

    selectors: tuple[DeviceSelector, ...] = ()
    config: tuple[DeviceClassConfiguration, ...] = ()
    extended_resource_name: str | None = None


class DeviceClass(Object):
    spec: DeviceClassSpec = field(default_factory=DeviceClassSpec)


class PodClaimName(NamedTuple):
    """The claim behind an entry of a pod's `resourceClaims`."""

    created: bool
    """Whether the claim of a template has been created; always true for a claim by name."""
    name: str | None
    """None if it is not created yet, and if the pod needs no claim for this entry."""
    generated: bool
    """Whether it comes from a template, and so must belong to the pod."""


def pod_claim_name(pod: Pod, entry: PodResourceClaim) -> PodClaimName:
    if entry.resource_claim_name is not None:
        return PodClaimName(True, entry.resource_claim_name, False)
    for status in pod.status.resource_claim_statuses:
        if status.name == entry.name:
            return PodClaimName(True, status.resource_claim_name, True)
    return PodClaimName(False, None, True)
