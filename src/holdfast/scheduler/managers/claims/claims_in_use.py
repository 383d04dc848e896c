"""ResourceClaims, what is in flight for them, and the devices they use.

The state of the claim manager (`claim_manager`), and how it is counted.
"""

from collections import Counter, deque
from collections.abc import Callable, Hashable, Iterable, Iterator, KeysView
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
from msgspec.structs import replace
from numpy.typing import NDArray

from holdfast.api.pod import ContainerExtendedResourceRequest
from holdfast.api.pod_groups import CorePodGroup
from holdfast.api.resource_claims import (
    AllocationResult,
    DeviceRequestAllocationResult,
    ResourceClaim,
    ResourceClaimSpec,
    ResourceClaimTemplate,
)
from holdfast.api.resource_slices import DeviceID
from holdfast.machinery.schema.scalars import canonical
from holdfast.scheduler.cluster.base import ClusterBase
from holdfast.scheduler.cluster.decisions import Decision, ObjectRef
from holdfast.scheduler.cluster.node_table import NO_PODS
from holdfast.scheduler.cluster.object_index import set_indexed
from holdfast.scheduler.cluster.records import Phase, PodRecord
from holdfast.scheduler.managers.claims.allocator import ClaimsAllocator
from holdfast.scheduler.managers.claims.catalogue import DeviceCatalogue, Rows
from holdfast.scheduler.managers.claims.class_claims import ClassClaims
from holdfast.scheduler.managers.claims.device_table import nano
from holdfast.scheduler.managers.claims.device_use import DeviceUse
from holdfast.scheduler.managers.claims.held_devices import (
    HeldDevices,
    HolderClaim,
)
from holdfast.scheduler.managers.claims.pod_claims import (
    PodClaimIndex,
    ResourceClaimKey,
    entries_of_group,
)
from holdfast.scheduler.managers.claims.pools import Counters, DevicePool, PoolID

_NOBODY: frozenset[str] = frozenset()
_MOST_WAITS = 10_000
"""The waits that are kept until metrics are read."""


@dataclass(slots=True)
class InFlight:
    """What was decided about a claim and is not on its object yet."""

    uid: str
    """The uid of the claim; empty if it is yet to be created."""
    allocation: AllocationResult | None
    """None if the claim is allocated, and only gets new consumers."""
    pods: set[str] = field(default_factory=set)
    """The uids of the pods that it was decided for."""
    spec: ResourceClaimSpec | None = None
    """Of a claim that is yet to be created."""
    holder: HolderClaim | None = None
    """Of a claim with which a reservation is to hold devices: what it holds with it."""
    written: AllocationResult | None = None
    """Of such a claim: the devices that nobody else uses, with which it is written."""
    is_refused: bool = False
    """Of such a claim: whether the write was refused, and is to be decided again."""
    mappings: tuple[ContainerExtendedResourceRequest, ...] = ()
    groups: dict[str, ObjectRef] = field(default_factory=dict)
    """By pod, the PodGroup that the claim is reserved for in its place."""
    is_decided: bool = False
    """Whether the write of the allocation is decided."""
    judged: int = 0
    """The version of the catalogue for which the allocation is known to be possible."""

    def landed(self, claim: ResourceClaim) -> set[str]:
        """The pods that the claim's object is reserved for, themselves or by their PodGroup."""
        uids = {consumer.uid for consumer in claim.status.reserved_for}
        named = ((uid, self.groups.get(uid)) for uid in self.pods)
        return {uid for uid, group in named if (group.uid if group is not None else uid) in uids}


@dataclass(slots=True)
class RefusedWrite:
    """A write about a claim of a reservation that was refused."""

    message: str
    due: float
    """When it is decided again."""
    times: int
    claims: set[ResourceClaimKey]
    """The claims that were not written."""


class DeviceWait(NamedTuple):
    """A pod's wait for devices with binding conditions, when it is over."""

    profile: str
    status: str
    """As in kube-scheduler's metrics: success, failure, timeout or error."""
    seconds: float
    results: Counter[str]
    """The number of allocated devices, by driver."""
    conditional: Counter[str]
    """The number of those with binding conditions, by driver."""


@dataclass(slots=True)
class ClaimCounts:
    """What metrics report of claims."""

    created: Counter[tuple[str, str]] = field(default_factory=Counter)
    """Claims that the scheduler created, by the kind of their owner, and success or failure."""
    waits: deque[DeviceWait] = field(default_factory=lambda: deque(maxlen=_MOST_WAITS))
    refused: int = 0
    """Refused writes of claims with which reservations hold devices."""


class DeviceHeld(NamedTuple):
    """A device that a reservation holds."""

    reservation: str
    driver: str
    is_free: bool
    """Whether nobody else uses it."""


class ConflictingClaim(NamedTuple):
    """A claim with a device that a claim of a pod has as well."""

    claim: ResourceClaimKey
    """The claim of the pod."""
    other: ResourceClaimKey
    device: DeviceID
    was_first: bool
    """Whether the other claim certainly got the device before."""

    def __str__(self) -> str:
        device = "/".join(self.device)
        return f"device {device} of claim {self.claim} is also allocated to claim {self.other}"


class ClaimsInUse:
    """All ResourceClaims with their consumers, and the devices in use."""

    def __init__(self, cluster: ClusterBase) -> None:
        self._cluster = cluster
        self._ledger = cluster.ledger
        self.catalogue = DeviceCatalogue(cluster.nodes)
        self.use = DeviceUse(self.catalogue.table)
        self.allocator = ClaimsAllocator(self.catalogue, cluster.nodes)
        self.counts = ClaimCounts()
        self.shared_changes = 0
        """Changes with devices that are not of a single node: when some are published or withdrawn,
        come into use or out of use."""
        self.active = False
        """Whether there is anything to keep: an object of `DEVICE_KINDS`, or a pod with claims."""
        self.pods_changed: Callable[[Iterable[str]], None] = lambda uids: None
        """Called with the uids of pods whose claims changed."""
        self.decisions: list[Decision] = []
        """Writes about claims that do not belong to a bind, until they are taken."""
        self.serves_extended = False
        """Whether the plugin DynamicResources is enabled, which serves extended resources by claims."""
        self.extended: dict[str, str] = {}
        """The device classes that serve extended resources, by resource."""
        self.templates_changed: Callable[[], None] = lambda: None
        """Called when ResourceClaimTemplates changed, which reservations may name."""
        self.pod_group: Callable[[str, str], CorePodGroup | None] = lambda namespace, name: None
        """The PodGroup of `scheduling.k8s.io` of a namespace and name."""
        self.is_live: Callable[[str], bool] = lambda uid: True
        """Whether the reservation with a uid has a node and is not finished."""
        self.allocated_pods: Callable[[str], list[PodRecord]] = lambda uid: []
        """The pods that are allocated from the reservation with a uid."""
        self.holder_changed: Callable[[str], None] = lambda uid: None
        """Called with the uid of a reservation when what it holds with a claim may have changed."""
        self.short: dict[str, None] = {}
        """The uids of reservations that lost a claim and for which there are not enough devices."""
        self.unplanned: dict[str, None] = {}
        """The uids of Waiting reservations that wait for devices which cannot be allocated any more."""
        self._claims: dict[ResourceClaimKey, ResourceClaim] = {}
        self._templates: dict[ResourceClaimKey, ResourceClaimTemplate] = {}
        self.held = HeldDevices()
        self._broken_holders: dict[ResourceClaimKey, str] = {}
        """Claims of reservations whose annotation somebody removed or made invalid, with the uids of
        the reservations."""
        self._outdated_holders: dict[ResourceClaimKey, None] = {}
        """Claims of reservations whose objects may have other devices than they should."""
        self._holds_decided: dict[ResourceClaimKey, AllocationResult | None] = {}
        """The allocations of claims of reservations that were decided last and not seen yet."""
        self._released: set[str] = set()
        """The uids of claims of reservations whose deletion is decided."""
        self.pods = PodClaimIndex(self._claims)
        self._in_flight: dict[ResourceClaimKey, InFlight] = {}
        self._flights_of: dict[str, tuple[ResourceClaimKey, ...]] = {}
        """The claims that are in flight for a pod, by its uid."""
        self._consumers: dict[ResourceClaimKey, frozenset[str]] = {}
        """The uids of the consumers of a claim, in flight or on the object."""
        self._consumed: dict[str, set[ResourceClaimKey]] = {}
        """The claims that a pod consumes, by its uid."""
        self._created_for: dict[str, set[ResourceClaimKey]] = {}
        """The claims that a scheduler created for extended resources of a pod, by its uid."""
        self._used: dict[ResourceClaimKey, AllocationResult] = {}
        """The allocations that count as using devices."""
        self._drawn: dict[ResourceClaimKey, str] = {}
        """The uid of the reservation that the pods of an allocated claim are allocated from."""
        self._refused_writes: dict[str, RefusedWrite] = {}
        """By the uid of a reservation, writes about its claims that were refused."""
        self._named_by_reservations: dict[ResourceClaimKey, dict[str, None]] = {}
        """Claims that templates of reservations name, with the uids of these reservations."""
        self._tentative: set[str] = set()
        """The uids of pods that were reserved in a transaction, to be undone with it."""
        self._departed: set[str] = set()
        """The uids of consumers that a transaction removed from their row."""
        self._orphans: set[str] = set()
        """The uids of unreserved pods with writes in flight: the outcome of a decided bind is unknown,
        or that of writes for a pod that waited in Permit."""
        self.outdated_pods: dict[str, None] = {}
        """The uids of pods whose class has claims as they were before."""
        self.changed_meanwhile: set[str] = set()
        """The uids of assumed pods whose claims changed: they keep their class until they are pending
        again."""
        self._ending: dict[ResourceClaimKey, None] = {}
        """Claims that are being deleted and are reserved for somebody."""
        self._leaving: set[tuple[str, str]] = set()
        """The uids of claims and of consumers whose removal is decided and not on the objects yet."""
        self.waiting: dict[str, float] = {}
        """By the uid of a pod, since when it waits in Permit for its devices."""
        self.refused: dict[str, str] = {}
        """By the uid of a pod, why a claim of it was not written."""
        self._allocated_at: dict[ResourceClaimKey, int] = {}
        """The version of each allocated claim in which its allocation was first seen."""
        self._stamps: dict[ResourceClaimKey, tuple[int, object]] = {}
        """By claim, a number that changes with what classes read of it, and what they read."""
        self._stamped = 0
        self._of_class: dict[int, tuple[Hashable, ClassClaims]] = {}
        self._delegated: dict[int, list[tuple[int, str]]] = {}

    # Claims

    def claim(self, key: ResourceClaimKey) -> ResourceClaim | None:
        return self._claims.get(key)

    def allocation(self, key: ResourceClaimKey) -> AllocationResult | None:
        """The allocation of a claim, on its object or in flight."""
        claim, flight = self._claims.get(key), self._in_flight.get(key)
        if self.held and (holder := self.held.get(key)) is not None:
            return self._rest_of(key, holder)
        if claim is not None and claim.status.allocation is not None:
            return claim.status.allocation
        return flight.allocation if flight is not None else None

    def _drop_flight(self, key: ResourceClaimKey, uid: str) -> None:
        """Ends what is in flight for a claim and one of its pods."""
        flight = self._in_flight[key]
        flight.pods.discard(uid)
        flight.groups.pop(uid, None)
        if not flight.pods:
            del self._in_flight[key]
        rest = tuple(each for each in self._flights_of[uid] if each != key)
        if rest:
            self._flights_of[uid] = rest
        else:
            del self._flights_of[uid]
            self._orphans.discard(uid)

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

    def is_releasing(self, row: int) -> bool:
        """Whether a claim has devices for the row and all its consumers are gone: the claim controller
        is about to deallocate it."""
        return any(True for _ in self._released_on(row, lambda pod: False))

    def _released_on(
        self, row: int, is_going: Callable[[PodRecord], bool]
    ) -> Iterator[ResourceClaimKey]:
        """The claims with devices for the row of which all consumers are gone, or are going."""
        pods = self._cluster.pods
        for key, consumers in self._consumers.items():
            if key not in self._used or self.held.get(key) is not None:
                continue
            left = (pods.get(uid) for uid in consumers)
            if any(pod is not None and not is_going(pod) for pod in left):
                continue
            claim = self._claims.get(key)
            if claim is None or any(c.resource != "pods" for c in claim.status.reserved_for):
                continue
            rows = self._rows_of(self._used[key])
            if rows is None or row in rows:
                yield key

    def lowest_consumers(self) -> NDArray[np.int64]:
        """By row, the lowest priority of the pods there that consume claims."""
        pods, nodes = self._cluster.pods, self._cluster.nodes
        lowest: NDArray[np.int64] = np.full(nodes.capacity, NO_PODS, dtype=np.int64)
        for uid in self._consumed:
            pod = pods.get(uid)
            if pod is not None and pod.row >= 0:
                lowest[pod.row] = min(lowest.item(pod.row), pod.cls.priority)
        return lowest

    # Devices that reservations hold

    def _rest_of(
        self, key: ResourceClaimKey, holder: HolderClaim, written: bool = False
    ) -> AllocationResult | None:
        """What a reservation holds with a claim and nobody else uses. With `written`, also what its
        object has and is to be written to a claim of an owner, but is not decided yet: it would be
        nobody's in between."""
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
        """The devices that these claims hold and that nobody uses, in order."""
        found = (self._used.get(key) for key in holders)
        return dict.fromkeys(
            result.device_id
            for allocation in found
            if allocation is not None
            for result in allocation.devices.results
        ).keys()


def _is_reserved_for(claim: ResourceClaim, uid: str) -> bool:
    return any(consumer.uid == uid for consumer in claim.status.reserved_for)


def _name(claim: ResourceClaim) -> tuple[str, str]:
    return claim.metadata.namespace, claim.metadata.name
