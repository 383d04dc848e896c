"""Devices that reservations hold: as ResourceClaims that are allocated and reserved for nobody.

A reservation whose template has `resourceClaims` gets its devices together with its node. They are
written to claims that the reservation owns, one for each entry of the template, so that every other
scheduler sees them as in use:

    annotation held-devices    all devices that the reservation holds; never changes
    status.allocation          those of them that no other claim has; none if all are in use

An owner's claim gets devices of the reservation first. The allocation of a claim cannot be changed, so
the holder's is cleared and written again without them, before the owner's is written. Devices come back
to the holder when the owner's claim is deallocated. Everything is on the objects, so that a restart
changes nothing.
"""

from collections.abc import Iterable, Iterator
from typing import NamedTuple

import msgspec

from holdfast.api.decode import decode_json
from holdfast.api.errors import InvalidObject
from holdfast.api.meta import ObjectMeta, OwnerReference, controller_of
from holdfast.api.names import HELD_DEVICES, RESERVATION_API, RESOURCE_API
from holdfast.api.resource_claims import AllocationResult, ResourceClaim, ResourceClaimSpec
from holdfast.api.resource_slices import DeviceID
from holdfast.scheduler.cluster.decisions import ObjectRef
from holdfast.scheduler.managers.claims.pod_claims import ResourceClaimKey


class HolderClaim(NamedTuple):
    """A claim with which a reservation holds devices."""

    reservation: str
    """The uid of the reservation."""
    held: AllocationResult
    """All devices that it holds, those included that owners use."""


class HeldDevices:
    """The claims of all reservations that hold devices."""

    def __init__(self) -> None:
        self._holders: dict[ResourceClaimKey, HolderClaim] = {}
        self._of: dict[str, dict[ResourceClaimKey, None]] = {}
        """By the uid of the reservation."""
        self._by_device: dict[DeviceID, ResourceClaimKey] = {}

    def __bool__(self) -> bool:
        return bool(self._holders)

    def get(self, key: ResourceClaimKey) -> HolderClaim | None:
        return self._holders.get(key)

    def put(self, key: ResourceClaimKey, holder: HolderClaim | None) -> None:
        """Sets the devices that a claim holds; None if it holds none."""
        before = self._holders.pop(key, None)
        if before is not None:
            claims = self._of[before.reservation]
            del claims[key]
            if not claims:
                del self._of[before.reservation]
            for result in before.held.devices.results:
                if self._by_device.get(result.device_id) == key:
                    del self._by_device[result.device_id]
        if holder is not None:
            self._holders[key] = holder
            self._of.setdefault(holder.reservation, {})[key] = None
            for result in holder.held.devices.results:
                self._by_device.setdefault(result.device_id, key)

    def of(self, reservation: str) -> list[ResourceClaimKey]:
        """The claims with which a reservation holds devices."""
        return list(self._of.get(reservation, ()))

    def reservations(self) -> list[str]:
        """The uids of the reservations that hold devices."""
        return list(self._of)

    def holding(self, allocations: Iterable[AllocationResult | None]) -> Iterator[ResourceClaimKey]:
        """The claims that hold a device of these allocations."""
        if self._by_device:
            for allocation in allocations:
                for result in allocation.devices.results if allocation is not None else ():
                    key = self._by_device.get(result.device_id)
                    if key is not None:
                        yield key


def holder_of(claim: ResourceClaim) -> HolderClaim | None:
    """The reservation that holds devices with a claim, and which; None if none does."""
    text = claim.metadata.annotations.get(HELD_DEVICES)
    owner = controller_of(claim.metadata)
    if text is None or owner is None or owner.kind != "Reservation":
        return None
    try:
        return HolderClaim(owner.uid, decode_json(text, AllocationResult))
    except InvalidObject:
        return None


def new_holder_claim(
    reservation: ObjectRef,
    namespace: str,
    entry: str,
    spec: ResourceClaimSpec,
    held: AllocationResult,
) -> ResourceClaim:
    """The claim to create for an entry of a reservation's `resourceClaims`."""
    owner = OwnerReference(
        api_version=RESERVATION_API,
        kind="Reservation",
        name=reservation.name,
        uid=reservation.uid,
        controller=True,
    )
    return ResourceClaim(
        api_version=RESOURCE_API,
        kind="ResourceClaim",
        metadata=ObjectMeta(
            generate_name=f"{reservation.name}-{entry}-"[-57:].lstrip("-."),
            namespace=namespace,
            annotations={HELD_DEVICES: msgspec.json.encode(held).decode()},
            owner_references=[owner],
        ),
        spec=spec,
    )
