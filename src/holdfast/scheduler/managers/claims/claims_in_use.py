"""The devices that ResourceClaims use, and the pods that consume them.

A part of the claim manager (`claim_manager`).
"""

from collections.abc import Callable, Iterable, Iterator

import numpy as np
from numpy.typing import NDArray

from holdfast.api.resource_claims import (
    AllocationResult,
    ResourceClaim,
)
from holdfast.api.resource_slices import DeviceID
from holdfast.scheduler.cluster.decisions import ObjectRef
from holdfast.scheduler.cluster.node_table import NO_PODS
from holdfast.scheduler.cluster.object_index import set_indexed
from holdfast.scheduler.cluster.records import Phase, PodRecord
from holdfast.scheduler.managers.claims.catalogue import Rows
from holdfast.scheduler.managers.claims.claim_state import ConflictingClaim
from holdfast.scheduler.managers.claims.held_rest import HeldRest
from holdfast.scheduler.managers.claims.pod_claims import (
    ResourceClaimKey,
    entries_of_group,
)
from holdfast.scheduler.managers.claims.pools import PoolID

_NOBODY: frozenset[str] = frozenset()


class ClaimsInUse(HeldRest):
    """The devices in use, and the consumers of claims."""

    def allocation(self, key: ResourceClaimKey) -> AllocationResult | None:
        """The allocation of a claim, on its object or in flight."""
        claim, flight = self._claims.get(key), self._in_flight.get(key)
        if self.held and (holder := self.held.get(key)) is not None:
            return self._rest_of(key, holder)
        if claim is not None and claim.status.allocation is not None:
            return claim.status.allocation
        return flight.allocation if flight is not None else None

    def decided_for(self, key: ResourceClaimKey) -> list[PodRecord]:
        """The pods for which a claim is to get an allocation that is not on its object."""
        claim, flight = self._claims.get(key), self._in_flight.get(key)
        if flight is None or (claim is not None and claim.status.allocation is not None):
            return []
        found = (self._cluster.pods.get(uid) for uid in sorted(flight.pods))
        return [pod for pod in found if pod is not None]

    # Devices that other claims have, too
    #
    # The API server does not keep two schedulers from allocating one device to two claims. The later of
    # the two writes is the one that is undone.

    def _note_allocation(
        self, key: ResourceClaimKey, before: ResourceClaim | None, after: ResourceClaim | None
    ) -> None:
        """Records in which version of its object a claim got its allocation."""
        if after is None or after.status.allocation is None:
            self._allocated_at.pop(key, None)
        elif key not in self._allocated_at or before is None or before.status.allocation is None:
            version = after.metadata.resource_version
            self._allocated_at[key] = int(version) if version.isdigit() else 0

    def claims_of(self, pod: PodRecord) -> list[ResourceClaim]:
        """The claims that a pod names, and those that were created for it."""
        keys = {*self.pods.keys(pod.uid), *self._consumed.get(pod.uid, ())}
        found = (self._claims.get(key) for key in sorted(keys))
        return [claim for claim in found if claim is not None]

    def conflicting(self, pod: PodRecord) -> list[ConflictingClaim]:
        """The claims that have a device of a claim of this pod as well, by their objects. Whether one
        was first is unknown where its object was first seen with a later change."""
        found = []
        for claim in self.claims_of(pod):
            key = ResourceClaimKey(claim.metadata.namespace, claim.metadata.name)
            for result in claim.status.allocation.devices.results if claim.status.allocation else ():
                identity = self.catalogue.table.identities.find(result.device_id)
                if identity is None or result.admin_access:
                    continue
                others = (k for k in self.use.holders(identity) if isinstance(k, ResourceClaimKey))
                for other in others:
                    if other != key and self._has_whole(other, key, result.device_id, pod):
                        first = self._allocated_at.get(other, 0) < self._allocated_at.get(key, 0)
                        found.append(ConflictingClaim(key, other, result.device_id, first))
        return found

    def _has_whole(
        self, other: ResourceClaimKey, key: ResourceClaimKey, device: DeviceID, pod: PodRecord
    ) -> bool:
        """Whether the objects of two claims have a device, and one of them for itself. What the pod's
        own reservation holds is for the pod."""
        holder = self.held.get(other)
        if holder is not None and holder.reservation == pod.reservation_uid:
            return False
        shares = []
        for each in (other, key):
            claim = self._claims.get(each)
            allocation = claim.status.allocation if claim is not None else None
            results = allocation.devices.results if allocation is not None else ()
            having = [r for r in results if r.device_id == device and not r.admin_access]
            if not having:
                return False
            shares.append(all(result.share_id is not None for result in having))
        return not all(shares)

    def _stamp(self, key: ResourceClaimKey, there: object = True) -> None:
        """Outdates the answers for classes that name a claim, if what they read of it has changed. Its
        consumers are not among that: pods that share a claim are filtered alike."""
        if not there:
            self._stamps.pop(key, None)
            return
        state, known = self._read_by_classes(key), self._stamps.get(key)
        if known is None or known[1] != state:
            self._stamped += 1
            self._stamps[key] = self._stamped, state

    def _read_by_classes(self, key: ResourceClaimKey) -> object:
        claim, allocation = self._claims.get(key), self.allocation(key)
        uid = claim.metadata.uid if claim is not None else ""
        if allocation is None:
            return uid
        results = allocation.devices.results
        if claim is None or not any(each.binding_conditions for each in results):
            return uid, allocation.node_selector, results
        return uid, allocation, claim.status.allocation, claim.status.devices

    # Devices in use

    def _recount_use(self, key: ResourceClaimKey) -> None:
        """Brings the consumers of a claim, and the devices it uses, up to date."""
        claim, flight = self._claims.get(key), self._in_flight.get(key)
        uids = {consumer.uid for consumer in claim.status.reserved_for} if claim is not None else set()
        if flight is not None:
            uids |= flight.pods
        if self.held and (holder := self.held.get(key)) is not None:
            uids.add(holder.reservation)
        before, consumers = self._consumers.get(key, _NOBODY), frozenset(uids)
        if consumers != before:
            for uid in before - consumers:
                set_indexed(self._consumed, uid, key, False)
            for uid in consumers - before:
                set_indexed(self._consumed, uid, key, True)
            if consumers:
                self._consumers[key] = consumers
            else:
                del self._consumers[key]
        is_free = bool(consumers) and consumers <= self._departed
        allocation = None if is_free else self.allocation(key)
        if self.held and not is_free:
            allocation = self._with_devices_left(key, allocation)
        if self.held:
            self._note_owners(key, consumers, allocation)
        self._use(key, allocation)

    def _note_owners(
        self, key: ResourceClaimKey, consumers: frozenset[str], allocation: AllocationResult | None
    ) -> None:
        """Keeps which reservation the pods of a claim are allocated from, also when they are gone."""
        if allocation is None:
            self._drawn.pop(key, None)
            return
        for uid in (*consumers, *self.pods.pods(key)):
            pod = self._cluster.pods.get(uid)
            if pod is not None and pod.reservation_uid:
                self._drawn[key] = pod.reservation_uid

    def _use(self, key: ResourceClaimKey, allocation: AllocationResult | None) -> None:
        """Has a claim use the devices of an allocation, and no others."""
        before = self._used.get(key)
        if before is allocation or before == allocation:
            return
        if before is not None:
            del self._used[key]
            self.use.remove(key)
            self._log(self._rows_of(before))
        if allocation is not None:
            self._used[key] = allocation
            self.use.add(key, allocation.devices.results)
            self._log(self._rows_of(allocation))
        for holder in self._holders_beside(before, allocation):
            self._holder_outdated(holder)
            if holder != key:
                self._recount_use(holder)

    def _holders_beside(self, *allocations: AllocationResult | None) -> Iterable[ResourceClaimKey]:
        """The claims that hold a device of these allocations, or one that shares counters with it."""
        if not self.held:
            return ()
        found = dict.fromkeys(self.held.holding(allocations))
        for allocation in allocations:
            for result in allocation.devices.results if allocation is not None else ():
                if self.catalogue.has_counters(PoolID(result.driver, result.pool)):
                    found |= dict.fromkeys(self.held.of_pool(result.driver, result.pool))
        return found

    def _holder_outdated(self, key: ResourceClaimKey) -> None:
        """What a reservation holds with a claim may have changed: its object may have to."""
        self._outdated_holders[key] = None
        holder = self.held.get(key)
        if holder is not None and not (self._ledger.in_transaction or self._ledger.undoing):
            self.holder_changed(holder.reservation)

    def _recount_uses_of(self, uid: str) -> None:
        for key in sorted(self._consumed.get(uid, ())):
            self._recount_use(key)

    def _rows_of(self, allocation: AllocationResult) -> Rows | None:
        """The rows whose devices, or what is left of counters, depend on an allocation."""
        return self.catalogue.rows_of([result.device_id for result in allocation.devices.results])

    def _log(self, rows: Rows | None) -> None:
        """Marks rows as changed for all caches; None for devices that are not of a single node."""
        for reservation in self.short:
            self.holder_changed(reservation)
        waiting = self._ledger.reservations.waiting
        if self.held and waiting and not (self._ledger.in_transaction or self._ledger.undoing):
            for row in waiting if rows is None else rows.tolist():
                for reservation in waiting.get(row, ()):
                    self.holder_changed(reservation)
        if rows is None:
            self.shared_changes += 1
            return
        for row in rows.tolist():
            self._cluster.epoch.usage.add(row)

    def _is_used(self, device: DeviceID) -> bool:
        identity = self.catalogue.table.identities.find(device)
        return identity is not None and self.use.is_allocated(identity)

    # Pods and their devices

    def group_of(self, uid: str, key: ResourceClaimKey) -> ObjectRef | None:
        """The PodGroup that a pod's claim is reserved for; None if it is reserved for the pod. A group
        shares the claims that its members name by the same entry as the group does."""
        name = self.pods.group(uid)
        group = self.pod_group(key.namespace, name) if name else None
        if group is None or not group.spec.resource_claims:
            return None
        if self.pods.entry(uid, key) not in entries_of_group(group):
            return None
        return ObjectRef("PodGroup", key.namespace, name, group.metadata.uid, group.api_version)

    def is_needed(self, key: ResourceClaimKey) -> bool:
        """Whether a pod that names the claim has a node, or is about to be bound."""
        found = (self._cluster.pods.get(uid) for uid in self.pods.pods(key))
        return any(pod is not None and pod.phase is not Phase.PENDING for pod in found)

    def consumed_by(self, pod: PodRecord) -> list[ResourceClaim]:
        """The claims whose objects name the pod, or for a claim that its PodGroup shares the group, as
        a consumer."""
        found = self.reserved_for(pod)
        for key in self.pods.keys(pod.uid) if self.pods.group(pod.uid) else ():
            claim, group = self._claims.get(key), self.group_of(pod.uid, key)
            if claim is not None and group is not None and _is_reserved_for(claim, group.uid):
                found.append(claim)
        return found

    def reserved_for(self, pod: PodRecord) -> list[ResourceClaim]:
        """The claims whose objects name the pod as a consumer."""
        found = (self._claims.get(key) for key in sorted(self._consumed.get(pod.uid, ())))
        return [claim for claim in found if claim is not None and _is_reserved_for(claim, pod.uid)]

    def created_for(self, pod: PodRecord) -> list[ResourceClaim]:
        """The claims that a scheduler created for extended resources of the pod; one whose allocation
        could not be written is not reserved for it."""
        return [self._claims[key] for key in sorted(self._created_for.get(pod.uid, ()))]

    def allocations(self, pod: PodRecord) -> list[AllocationResult]:
        """The allocations of the claims that a pod consumes."""
        keys = self._consumed.get(pod.uid, set())
        if self.pods.group(pod.uid):
            shared = (ResourceClaimKey(*_name(claim)) for claim in self.consumed_by(pod))
            keys = keys.union(shared)
        found = (self.allocation(key) for key in sorted(keys))
        return [allocation for allocation in found if allocation is not None]

    def allocated_for(self, pod: PodRecord) -> list[tuple[ResourceClaim, AllocationResult]]:
        """The claims that a pod consumes, or will once it is bound, with their allocations."""
        found = []
        for key in sorted(self._consumed.get(pod.uid, ())):
            claim, allocation = self._claims.get(key), self.allocation(key)
            if claim is not None and allocation is not None:
                found.append((claim, allocation))
        return found

    def is_releasing(self, row: int) -> bool:
        """Whether a claim has devices for the row and all its consumers are gone: the claim controller
        is about to deallocate it."""
        return any(True for _ in self._released_on(row, lambda pod: False))

    def _released_on(
        self, row: int, is_going: Callable[[PodRecord], bool]
    ) -> Iterator[ResourceClaimKey]:
        """The claims with devices for the row of which all consumers are gone, or are going."""
        for key in self._consumers:
            if self._is_released(key, is_going):
                rows = self._rows_of(self._used[key])
                if rows is None or row in rows:
                    yield key

    def _is_released(self, key: ResourceClaimKey, is_going: Callable[[PodRecord], bool]) -> bool:
        """Whether a claim has devices and all its consumers are gone, or are going."""
        if key not in self._used or self.held.get(key) is not None:
            return False
        left = (self._cluster.pods.get(uid) for uid in self._consumers[key])
        if any(pod is not None and not is_going(pod) for pod in left):
            return False
        claim = self._claims.get(key)
        return claim is not None and all(c.resource == "pods" for c in claim.status.reserved_for)

    def lowest_consumers(self) -> NDArray[np.int64]:
        """By row, the lowest priority of the pods there that consume claims."""
        pods, nodes = self._cluster.pods, self._cluster.nodes
        lowest: NDArray[np.int64] = np.full(nodes.capacity, NO_PODS, dtype=np.int64)
        for uid in self._consumed:
            pod = pods.get(uid)
            if pod is not None and pod.row >= 0:
                lowest[pod.row] = min(lowest.item(pod.row), pod.cls.priority)
        return lowest


def is_going(pod: PodRecord) -> bool:
    return pod.being_preempted or pod.cls.terminating


def _is_reserved_for(claim: ResourceClaim, uid: str) -> bool:
    return any(consumer.uid == uid for consumer in claim.status.reserved_for)


def _name(claim: ResourceClaim) -> tuple[str, str]:
    return claim.metadata.namespace, claim.metadata.name
