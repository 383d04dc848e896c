"""What reservations hold with claims and no other claim uses.

A part of the claim manager (`claim_manager`).
"""

from collections.abc import Hashable, Iterable, Iterator, KeysView

from msgspec.structs import replace

from holdfast.api.resource_claims import (
    AllocationResult,
    DeviceRequestAllocationResult,
)
from holdfast.api.resource_slices import DeviceID
from holdfast.machinery.schema.scalars import canonical
from holdfast.scheduler.managers.claims.claim_state import ClaimState, DeviceHeld
from holdfast.scheduler.managers.claims.device_table import nano
from holdfast.scheduler.managers.claims.held_devices import (
    HolderClaim,
)
from holdfast.scheduler.managers.claims.pod_claims import (
    ResourceClaimKey,
)
from holdfast.scheduler.managers.claims.pools import Counters, DevicePool


class HeldRest(ClaimState):
    """The devices that reservations hold, less those that others use."""

    def _rest_of(
        self, key: ResourceClaimKey, holder: HolderClaim, written: bool = False
    ) -> AllocationResult | None:
        """What a reservation holds with a claim and no other claim uses. With `written`, also what its
        object has and is to be written to a claim of an owner, but is not decided yet: it would be free
        in between."""
        devices = holder.held.devices
        left: list[DeviceRequestAllocationResult] = []
        for result in devices.results:
            if not self._can_hold(key, holder, result.device_id):
                continue
            if result.share_id is not None:
                share = self._rest_of_share(key, holder, result, written)
                left += [share] if share is not None else []
            elif not self._is_used_beside(result, key, written):
                left.append(result)
        left = self._within_counters(key, holder, left)
        if len(left) == len(devices.results) and all(
            one is other for one, other in zip(left, devices.results, strict=True)
        ):
            return holder.held
        if not left:
            return None
        return replace(holder.held, devices=replace(devices, results=tuple(left)))

    def _with_devices_left(
        self, key: ResourceClaimKey, rest: AllocationResult | None
    ) -> AllocationResult | None:
        """What a reservation holds with a claim, and the devices that the claim's object still has from
        an earlier plan: no other claim may get these before they are removed from it."""
        claim, holder = self._claims.get(key), self.held.get(key)
        written = claim.status.allocation if claim is not None else None
        if holder is None or written is None or written is rest:
            return rest
        planned = {result.device_id for result in holder.held.devices.results}
        left = tuple(each for each in written.devices.results if each.device_id not in planned)
        if not left or rest is None:
            return replace(written, devices=replace(written.devices, results=left)) if left else rest
        return replace(rest, devices=replace(rest.devices, results=(*rest.devices.results, *left)))

    def _within_counters(
        self, key: ResourceClaimKey, holder: HolderClaim, results: list[DeviceRequestAllocationResult]
    ) -> list[DeviceRequestAllocationResult]:
        """Those of these devices for which enough is left of the counters of their pools. What the
        claim has, or is being written to it, stays."""
        entry = self._ledger.reservations.get(holder.reservation)
        counted = self.catalogue.visible(entry.row).counted if entry is not None else ()
        if not counted or not results:
            return results
        reduced, consumptions = self.use.without((key,)), self.catalogue.table.consumptions
        consumers = {each.id: (pool, each) for pool in counted for each in pool.consumers}
        has = {
            result.device_id
            for result in results
            if self._is_written(key, result.device_id) or self._is_being_written(key, result.device_id)
        }
        available: dict[DevicePool, Counters] = {}
        refused = set()
        for result in sorted(results, key=lambda each: each.device_id not in has):
            device = result.device_id
            if device not in consumers or result.admin_access:
                continue
            pool, consumer = consumers[device]
            if reduced.is_allocated(consumer.identity):
                continue  # what it consumes is counted
            left = available.setdefault(pool, dict(reduced.available(pool)))
            consumed = consumptions.value(consumer.counters)
            if device not in has and any(left[each[:2]] < each[2] for each in consumed):
                refused.add(device)
                continue
            for counters, name, amount in consumed:
                left[counters, name] -= amount
        return [result for result in results if result.device_id not in refused] if refused else results

    def _can_hold(self, key: ResourceClaimKey, holder: HolderClaim, device: DeviceID) -> bool:
        """Whether a claim of a reservation has a device, or may get it: it is published, and nothing
        else keeps the reservation from what it waits for. What is being written counts as written."""
        if self._is_written(key, device) or self._is_being_written(key, device):
            return True
        if holder.reservation in self.unplanned:
            return False
        entry = self._ledger.reservations.get(holder.reservation)
        return entry is None or device in self.catalogue.visible(entry.row)

    def _is_being_written(self, key: ResourceClaimKey, device: DeviceID) -> bool:
        """Whether a write is decided, and not seen yet, that gives a device to a claim of a
        reservation."""
        flight = self._in_flight.get(key)
        decided = self._holds_decided.get(key), flight.written if flight is not None else None
        return any(
            result.device_id == device
            for allocation in decided
            if allocation is not None
            for result in allocation.devices.results
        )

    def _is_used_beside(
        self, result: DeviceRequestAllocationResult, key: ResourceClaimKey, written: bool
    ) -> bool:
        """Whether another claim uses a device that is held. Of two holders the one counts whose object
        has the device: the other waits for it. For `written` see `_rest_of`."""
        if result.admin_access:
            return False
        identity = self.catalogue.table.identities.find(result.device_id)
        users = self.use.holders(identity) if identity is not None else ()
        others = [each for each in users if each != key and isinstance(each, ResourceClaimKey)]
        if not others or not self._is_written(key, result.device_id):
            return bool(others)
        if written:
            others = [each for each in others if not self._is_undecided(each)]
        return any(
            self.held.get(each) is None or self._is_written(each, result.device_id) for each in others
        )

    def _is_undecided(self, key: ResourceClaimKey) -> bool:
        """Whether a claim gets its allocation by a write that is not decided yet."""
        flight = self._in_flight.get(key)
        return (
            flight is not None
            and flight.holder is None
            and flight.allocation is not None
            and not flight.is_decided
        )

    def _is_written(self, key: ResourceClaimKey, device: DeviceID) -> bool:
        """Whether the object of a claim has a device."""
        claim = self._claims.get(key)
        allocation = claim.status.allocation if claim is not None else None
        return allocation is not None and any(
            each.device_id == device for each in allocation.devices.results
        )

    def _rest_of_share(
        self,
        key: ResourceClaimKey,
        holder: HolderClaim,
        result: DeviceRequestAllocationResult,
        written: bool,
    ) -> DeviceRequestAllocationResult | None:
        """What is left of a held share of a device beside the shares of owners; None if nothing is. For
        `written` see `_rest_of`."""
        written = written and self._is_written(key, result.device_id)
        identity = self.catalogue.table.identities.find(result.device_id)
        users = self.use.holders(identity) if identity is not None else ()
        taken: dict[str, int] = {}
        for each in dict.fromkeys(users):
            if each == key or not self._is_of_owners(each, holder.reservation):
                continue
            if written and isinstance(each, ResourceClaimKey) and self._is_undecided(each):
                continue
            for other in self.use.results(each):
                if other.device_id == result.device_id:
                    for name, quantity in other.consumed_capacity.items():
                        taken[name] = taken.get(name, 0) + nano(quantity)
        if not taken:
            return result
        left = {
            name: max(0, nano(quantity) - taken.get(name, 0))
            for name, quantity in result.consumed_capacity.items()
        }
        if not any(left.values()):
            return None
        kept = {name: canonical(f"{amount}n") for name, amount in left.items()}
        return replace(result, consumed_capacity=kept)

    def _is_of_owners(self, key: Hashable, reservation: str) -> bool:
        """Whether pods that are allocated from a reservation use a claim."""
        return isinstance(key, ResourceClaimKey) and self._drawn.get(key) == reservation

    def devices_held(self) -> Iterator[DeviceHeld]:
        """The devices that reservations hold."""
        for reservation in self.held.reservations():
            for key in self.held.of(reservation):
                holder, used = self.held.get(key), self._used.get(key)
                if holder is None:
                    continue
                free = {each.device_id for each in used.devices.results} if used is not None else set()
                for result in holder.held.devices.results:
                    yield DeviceHeld(holder.name, result.driver, result.device_id in free)

    def unreserved_holders(self, reservation: str) -> list[ResourceClaimKey]:
        """The claims with which a reservation holds devices for owners: not those that somebody else
        has reserved, who uses their devices."""
        found = ((key, self._claims.get(key)) for key in self.held.of(reservation))
        return [key for key, claim in found if claim is None or not claim.status.reserved_for]

    def _held_by(self, holders: Iterable[ResourceClaimKey]) -> KeysView[DeviceID]:
        """The devices that these claims hold and that no other claim uses, in order."""
        found: dict[DeviceID, None] = {}
        for key in holders:
            holder, used = self.held.get(key), self._used.get(key)
            if holder is not None and used is not None:
                planned = {result.device_id for result in holder.held.devices.results}
                devices = (result.device_id for result in used.devices.results)
                found |= dict.fromkeys(device for device in devices if device in planned)
        return found.keys()
