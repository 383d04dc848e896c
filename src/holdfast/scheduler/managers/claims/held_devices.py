"""Devices that reservations hold: as ResourceClaims that are allocated and reserved for no pod.

A reservation whose template has `resourceClaims` gets its devices together with its node. They are
written to claims that the reservation owns, one for each entry of the template, so that every other
scheduler sees them as in use:

    annotation held-devices    all devices that the reservation holds, or waits for
    status.allocation          those of them that no other claim has; none if all are in use

An owner's claim gets devices of the reservation first. The allocation of a claim cannot be changed, so
the holder's is cleared and written again without them, before the owner's is written. Devices come back
to the holder when the owner's claim is deallocated. In the same way a Waiting reservation gets the
devices of its victims, one by one. Everything is on the objects, so that a restart changes nothing.

The name of a holder is the same for the same reservation and entry, so that there are never two.
"""

from collections import Counter
from collections.abc import Iterable, Iterator
from typing import NamedTuple
from zlib import crc32

import msgspec

from holdfast.api.decode import decode_json
from holdfast.api.errors import InvalidObject
from holdfast.api.meta import ObjectMeta, OwnerReference, controller_of
from holdfast.api.names import HELD_DEVICES, RESERVATION_API, RESOURCE_API
from holdfast.api.resource_claims import AllocationResult, ResourceClaim, ResourceClaimSpec
from holdfast.api.resource_slices import DeviceID
from holdfast.scheduler.cluster.decisions import ObjectRef
from holdfast.scheduler.managers.claims.pod_claims import ResourceClaimKey

_LONGEST = 170
"""The length to which a reservation's name is cut in the names of its claims, with at most 253
characters."""


class HolderClaim(NamedTuple):
    """A claim with which a reservation holds devices."""

    reservation: str
    """The uid of the reservation."""
    name: str
    held: AllocationResult
    """All devices that it holds, those included that owners use or that it waits for."""


class HeldDevices:
    """The claims of all reservations that hold devices."""

    def __init__(self) -> None:
        self._holders: dict[ResourceClaimKey, HolderClaim] = {}
        self._of: dict[str, dict[ResourceClaimKey, None]] = {}
        """By the uid of the reservation."""
        self._by_device: dict[DeviceID, dict[ResourceClaimKey, None]] = {}
        """Several where a reservation waits for devices of another."""
        self._by_pool: dict[tuple[str, str], Counter[ResourceClaimKey]] = {}
        """The claims that hold devices of a pool, with the number of these."""

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
                keys = self._by_device.get(result.device_id)
                if keys is not None:
                    keys.pop(key, None)
                    if not keys:
                        del self._by_device[result.device_id]
                pool = result.driver, result.pool
                self._by_pool[pool] -= Counter((key,))
                if not self._by_pool[pool]:
                    del self._by_pool[pool]
        if holder is not None:
            self._holders[key] = holder
            self._of.setdefault(holder.reservation, {})[key] = None
            for result in holder.held.devices.results:
                self._by_device.setdefault(result.device_id, {})[key] = None
                self._by_pool.setdefault((result.driver, result.pool), Counter())[key] += 1

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
                    yield from list(self._by_device.get(result.device_id, ()))

    def of_pool(self, driver: str, pool: str) -> list[ResourceClaimKey]:
        """The claims that hold devices of a pool."""
        return list(self._by_pool.get((driver, pool), ()))

    def by_device(self) -> Iterator[tuple[DeviceID, list[ResourceClaimKey]]]:
        """The devices that are held, with the claims that hold them."""
        for device, keys in self._by_device.items():
            yield device, list(keys)


def holder_of(claim: ResourceClaim) -> HolderClaim | None:
    """The reservation that holds devices with a claim, and which; None if none does."""
    text = claim.metadata.annotations.get(HELD_DEVICES)
    owner = controller_of(claim.metadata)
    if text is None or owner is None or owner.kind != "Reservation":
        return None
    try:
        return HolderClaim(owner.uid, owner.name, decode_json(text, AllocationResult))
    except InvalidObject:
        return None


def broken_holder_of(claim: ResourceClaim) -> str:
    """The uid of the reservation whose claim this is by name and owner, if its annotation is missing or
    invalid; empty if it is no such claim."""
    owner, meta = controller_of(claim.metadata), claim.metadata
    if owner is None or (owner.api_version, owner.kind) != (RESERVATION_API, "Reservation"):
        return ""
    prefix = _shown(owner.name) + "-"
    entry = meta.name.removeprefix(prefix)[: -len("-12345678")]
    derived = holder_key(ObjectRef("Reservation", "", owner.name, owner.uid), meta.namespace, entry)
    return owner.uid if derived.name == meta.name and holder_of(claim) is None else ""


def holder_key(reservation: ObjectRef, namespace: str, entry: str) -> ResourceClaimKey:
    """The claim for an entry of a reservation's `resourceClaims`."""
    mark = crc32(f"{reservation.uid}/{entry}".encode())
    return ResourceClaimKey(namespace, f"{_shown(reservation.name)}-{entry}-{mark:08x}")


def _shown(reservation: str) -> str:
    """The name of a reservation as the names of its claims begin."""
    return reservation[:_LONGEST].rstrip("-.")


def new_holder_claim(
    reservation: ObjectRef, key: ResourceClaimKey, spec: ResourceClaimSpec, held: AllocationResult
) -> ResourceClaim:
    """The claim to create for an entry of a reservation's `resourceClaims`; `key` is its
    `holder_key`."""
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
            name=key.name,
            namespace=key.namespace,
            annotations={HELD_DEVICES: msgspec.json.encode(held).decode()},
            owner_references=[owner],
        ),
        spec=spec,
    )
