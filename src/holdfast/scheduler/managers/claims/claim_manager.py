"""The claim manager: ResourceClaims, the devices they use, and allocations that are in flight.

Devices are in use by the allocations of all claims in all namespaces, whoever wrote them, and by
allocations that this scheduler has decided and that are not on the objects yet:

    tentative   a pod was placed in a transaction: a nominated pod, or one that is tried; undone with it
    in flight   a pod was reserved (`reserve`); ends when the claim has its allocation and names the pod
                as a consumer, or when the pod is unreserved
    allocated   the claim's object has the allocation

A claim that several pods share is allocated once: the first pod that is reserved brings the allocation,
and the others follow it while it is in flight. It stays as long as one of them does.

In a dry run pods are removed from the ledger and put back. The devices of a claim are free while every
one of its consumers is removed, as they will be once the last consumer is gone and the claim controller
has deallocated the claim. A pod that is really gone frees nothing by itself: the claim's object does.
"""

from collections.abc import Callable, Hashable, Iterable, Iterator, KeysView, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from msgspec.structs import replace
from numpy.typing import NDArray

from holdfast.api.meta import Object, ObjectMeta, controller_of
from holdfast.api.pod import ContainerExtendedResourceRequest, Pod
from holdfast.api.resource_claims import (
    AllocationResult,
    DeviceClass,
    ResourceClaim,
    ResourceClaimSpec,
    ResourceClaimTemplate,
)
from holdfast.api.resource_slices import DeviceID, DeviceTaintRule, ResourceSlice
from holdfast.scheduler.cluster.base import ClusterBase
from holdfast.scheduler.cluster.decisions import (
    CreateClaim,
    DeallocateClaim,
    Decision,
    DeleteClaim,
    HoldDevices,
    ObjectRef,
    ReserveClaim,
)
from holdfast.scheduler.cluster.events import Change
from holdfast.scheduler.cluster.node_table import NO_PODS
from holdfast.scheduler.cluster.pod_classes import ClaimTrait, PodClass
from holdfast.scheduler.cluster.records import Phase, PodRecord, ReservationEntry
from holdfast.scheduler.cluster.view import Cells, View
from holdfast.scheduler.managers.claims.allocation import (
    ClaimName,
    ClaimsAllocation,
    ClaimsRefusal,
)
from holdfast.scheduler.managers.claims.allocator import ClaimsAllocator
from holdfast.scheduler.managers.claims.catalogue import DeviceCatalogue, Rows
from holdfast.scheduler.managers.claims.claims_request import ClaimsRequest
from holdfast.scheduler.managers.claims.class_claims import ClaimNeed, ClassClaims, DevicesSeen
from holdfast.scheduler.managers.claims.device_use import DeviceUse, UseSnapshot
from holdfast.scheduler.managers.claims.extended_resources import (
    ExtendedClaim,
    classes_by_resource,
    extended_claim,
    is_extended_claim,
    new_extended_claim,
)
from holdfast.scheduler.managers.claims.held_devices import (
    HeldDevices,
    HolderClaim,
    holder_of,
    new_holder_claim,
)
from holdfast.scheduler.managers.claims.pod_claims import (
    NO_TEMPLATE,
    NOT_FOUND,
    PodClaimIndex,
    ResourceClaimKey,
    decoded,
    encoded,
)

DEVICE_KINDS: tuple[type[Object], ...] = (
    ResourceClaim,
    ResourceClaimTemplate,
    DeviceClass,
    ResourceSlice,
    DeviceTaintRule,
)
EXTENDED_RESOURCES = "<extended-resources>"
HELD_FOR = "<held-for>"
"""Stand for the names of claims that are yet to be created; no object can have them."""

_NOBODY: frozenset[str] = frozenset()
_NO_ROWS: Rows = np.array([], dtype=np.intp)


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
    entry: str = ""
    """Of a claim with which a reservation holds devices: the entry of its template."""
    mappings: tuple[ContainerExtendedResourceRequest, ...] = ()


class ClaimManager:
    """All ResourceClaims with their consumers, and the devices in use."""

    def __init__(self, cluster: ClusterBase) -> None:
        self._cluster = cluster
        self._ledger = cluster.ledger
        self.catalogue = DeviceCatalogue(cluster.nodes)
        self.use = DeviceUse(self.catalogue.table)
        self.allocator = ClaimsAllocator(self.catalogue, cluster.nodes)
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
        self.is_live: Callable[[str], bool] = lambda uid: True
        """Whether the reservation with a uid has a node and is not finished."""
        self._claims: dict[ResourceClaimKey, ResourceClaim] = {}
        self._templates: dict[ResourceClaimKey, ResourceClaimTemplate] = {}
        self.held = HeldDevices()
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
        self._used: dict[ResourceClaimKey, AllocationResult] = {}
        """The allocations that count as using devices."""
        self._tentative: set[str] = set()
        """The uids of pods that were reserved in a transaction, to be undone with it."""
        self._departed: set[str] = set()
        """The uids of consumers that a transaction removed from their row."""
        self._orphans: set[str] = set()
        """The uids of unreserved pods of which the outcome of a decided bind is unknown."""
        self.waiting: dict[str, float] = {}
        """By the uid of a pod, since when it waits in Permit for its devices."""
        self.refused: dict[str, str] = {}
        """By the uid of a pod, why a claim of it was not written."""
        self._stamps: dict[ResourceClaimKey, int] = {}
        self._stamped = 0
        self._of_class: dict[int, tuple[Hashable, ClassClaims]] = {}
        self._delegated: dict[int, list[tuple[int, str]]] = {}
        cluster.classes.on_dropped.append(self._class_dropped)

    # Pods

    def see_pod(self, pod: Pod) -> bool:
        """Reads which claims a pod names; whether that changed."""
        self._wake()
        return self.pods.see(pod)

    def traits(self, metadata: ObjectMeta) -> tuple[ClaimTrait, ...]:
        """The claims of a pod that is to be scheduled, as part of its class."""
        return self.pods.traits(metadata)

    # Classes of pods

    def of_class(self, cls: PodClass) -> ClassClaims:
        """The claims of a class, as of now."""
        version = self.version(cls)
        known = self._of_class.get(cls.id)
        if known is None or known[0] != version:
            known = self._of_class[cls.id] = version, self._resolve(cls)
        return known[1]

    def version(self, cls: PodClass) -> Hashable:
        """Changes with device classes, and with the claims of the class that count by name."""
        stamps, namespace = self._stamps, cls.namespace
        named = [each.name for each in cls.claims if each.name]
        return self.catalogue.class_version, *[
            stamps.get(ResourceClaimKey(namespace, name), 0) for name in named
        ]

    def concerns(self, cls: PodClass) -> bool:
        """Whether pods of the class have claims, or request resources that device classes serve."""
        return bool(cls.claims) or (bool(self.extended) and bool(self.delegated(cls)))

    def delegated(self, cls: PodClass) -> list[tuple[int, str]]:
        """The slots and names of the resources of a class that device classes serve, on nodes that have
        none of them."""
        if not self.extended or not self.serves_extended or cls.is_reserve_pod:
            return []  # a reservation holds devices by `resourceClaims` only
        found = self._delegated.get(cls.id)
        if found is None:
            name = self._cluster.nodes.slots.name
            named = [(slot, name(slot)) for slot, _ in cls.requests]
            found = self._delegated[cls.id] = [each for each in named if each[1] in self.extended]
        return found

    def _resolve(self, cls: PodClass) -> ClassClaims:
        problem, needs = "", []
        for trait in cls.claims:
            if trait.problem:
                problem = trait.problem
            elif trait.spec:
                needs.append(ClaimNeed(None, decoded(trait.spec), None, None))
            else:
                key = ResourceClaimKey(cls.namespace, trait.name)
                claim = self._claims.get(key)
                if claim is None:
                    problem = NOT_FOUND.format(key)
                else:
                    needs.append(ClaimNeed(key, claim.spec, claim, self.allocation(key)))
            if problem:
                break

        def extended(resources: list[str]) -> ExtendedClaim:
            return extended_claim(cls.pod, resources, self.extended)

        delegated = self.delegated(cls)
        nodes = self._cluster.nodes
        return ClassClaims(problem, needs, delegated, extended, self.allocator, nodes)

    def why_invalid(self, cls: PodClass, request: ClaimsRequest) -> str:
        """Why the claims of a class are at fault, so that no node is looked for; empty if they are
        not."""
        nodes = self._cluster.nodes
        alive = np.flatnonzero(nodes.alive[: nodes.size])
        fatal = alive[self.allocator.feasible(request, alive, self.use).fatal]
        if not len(fatal):
            return ""
        keys = self.pods.keys(cls.pod.metadata.uid)
        names = [ClaimName(*key) for key in keys if self.allocation(key) is None]
        names += [ClaimName(cls.namespace, EXTENDED_RESOURCES)] * (len(request.claims) - len(names))
        found = self.allocator.allocate(request, int(fatal[0]), self.use, names)
        return found.message if isinstance(found, ClaimsRefusal) else ""

    def _class_dropped(self, cls: PodClass) -> None:
        self._of_class.pop(cls.id, None)
        self._delegated.pop(cls.id, None)

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

    def put_claim(self, before: ResourceClaim | None, after: ResourceClaim | None) -> None:
        """Follows a ResourceClaim that was added, changed or deleted."""
        self._wake()
        some = after if after is not None else before
        assert some is not None
        key = _key(some)
        if after is None:
            self._claims.pop(key, None)
        else:
            self._claims[key] = after
        self._landed(key, after)
        holder = holder_of(after) if after is not None else None
        if holder is not None or self.held.get(key) is not None:
            self._holder_changed(key, holder)
        self._recount_use(key)
        if is_extended_claim(some):
            self._extended_claim_changed(some, after)
        self._stamp(key, after)
        if _lost_allocation(before, after):
            self._cluster.changed(Change.DEVICES)
        if _concerns_its_pods(before, after):
            self.pods_changed(self.pods.pods(key))

    def _landed(self, key: ResourceClaimKey, claim: ResourceClaim | None) -> None:
        """Ends what is in flight for a claim as far as its object has it."""
        flight = self._in_flight.get(key)
        if flight is None:
            return
        if claim is None or claim.metadata.uid != flight.uid:
            landed = flight.pods  # the claim is gone: so is everything decided about it
        elif claim.status.allocation is None:
            return
        else:
            flight.allocation = None
            landed = flight.pods & {consumer.uid for consumer in claim.status.reserved_for}
        for uid in sorted(landed):
            self._drop_flight(key, uid)

    def _holder_changed(self, key: ResourceClaimKey, holder: HolderClaim | None) -> None:
        """Follows a claim with which a reservation holds devices, or held some."""
        if holder is not None and self.held.get(key) is None:
            for flight in self._flights_of.get(holder.reservation, ()):
                if self._in_flight[flight].allocation == holder.held:
                    self._drop_flight(flight, holder.reservation)
                    self._recount_use(flight)
                    break
        self.held.put(key, holder)
        self._outdated_holders[key] = None
        self._holds_decided.pop(key, None)

    def _extended_claim_changed(self, some: ResourceClaim, after: ResourceClaim | None) -> None:
        """Follows a claim that a scheduler created for extended resources of a pod. One that is left
        from an earlier attempt is deleted: the next attempt may need another, and its devices."""
        owner = controller_of(some.metadata)
        pod = self._cluster.pods.get(owner.uid) if owner is not None else None
        if pod is None or after is None or after.metadata.deletion_timestamp is not None:
            return
        created = ResourceClaimKey(pod.namespace, f"{EXTENDED_RESOURCES}/{pod.uid}")
        if after.status.allocation is not None and created in self._in_flight:
            self._drop_flight(created, pod.uid)
            self._recount_use(created)
        elif pod.phase is Phase.PENDING and pod.scheduler in self._cluster.settings.scheduler_names:
            self.decisions.append(DeleteClaim(claim_ref(after)))

    def _drop_flight(self, key: ResourceClaimKey, uid: str) -> None:
        """Ends what is in flight for a claim and one of its pods."""
        flight = self._in_flight[key]
        flight.pods.discard(uid)
        if not flight.pods:
            del self._in_flight[key]
        rest = tuple(each for each in self._flights_of[uid] if each != key)
        if rest:
            self._flights_of[uid] = rest
        else:
            del self._flights_of[uid]

    def _stamp(self, key: ResourceClaimKey, there: object = True) -> None:
        if there:
            self._stamped += 1
            self._stamps[key] = self._stamped
        else:
            self._stamps.pop(key, None)

    # Reserving claims for pods

    def reserve(self, pod: PodRecord, row: int) -> str:
        """Reserves the claims of a pod that is assumed on the row, with devices for those that are not
        allocated; the reason if it cannot."""
        return self._reserve_with(pod, row, self.use)

    def _reserve_with(self, pod: PodRecord, row: int, use: UseSnapshot) -> str:
        claims = self.of_class(pod.cls)
        if claims.problem:
            return claims.problem
        need = claims.on(row)
        if need.request is None:
            self._fly(pod, (), None)
            return ""
        names = self._names_to_allocate(pod)
        if need.extended is not None:
            names.append(ClaimName(pod.namespace, EXTENDED_RESOURCES, pod.uid))
        holding = self._ledger.reservations.get(pod.reservation_uid) if pod.reservation_uid else None
        if holding is not None and holding.row == row and self.held.of(holding.pod.uid):
            found = self._allocate_from(holding, need.request, names)
        else:
            found = self.allocator.allocate(need.request, row, use, names)
        if isinstance(found, ClaimsRefusal):
            return found.message
        results = found.results
        if use is not self.use:
            results = tuple(self._part_that_is_free(each) for each in results)
        self._fly(pod, results, need.extended)
        return ""

    def _names_to_allocate(self, pod: PodRecord) -> list[ClaimName]:
        """The claims of a pod that are not allocated; those of a reserve pod are yet to be created."""
        if pod.reservation is not None:
            return [ClaimName(pod.namespace, entry, pod.uid) for entry in _entries(pod)]
        keys = [key for key in self.pods.keys(pod.uid) if self.allocation(key) is None]
        return [ClaimName(*key, self._claims[key].metadata.uid) for key in keys]

    def _part_that_is_free(self, allocation: AllocationResult) -> AllocationResult:
        """The devices of an allocation that nobody uses now."""
        devices = allocation.devices
        free = [r for r in devices.results if not self._is_used(r.device_id)]
        return replace(allocation, devices=replace(devices, results=tuple(free)))

    def _is_used(self, device: DeviceID) -> bool:
        identity = self.catalogue.table.identities.find(device)
        return identity is not None and self.use.is_allocated(identity)

    def _fly(
        self,
        pod: PodRecord,
        allocations: Sequence[AllocationResult],
        extended: ExtendedClaim | None,
    ) -> None:
        """Reserves the claims of a pod, with one of these allocations for each that has none."""
        given, flights = iter(allocations), []
        for at, entry in enumerate(_entries(pod) if pod.reservation is not None else ()):
            key = ResourceClaimKey(pod.namespace, f"{HELD_FOR}/{pod.uid}/{at}")
            spec = decoded(pod.cls.claims[at].spec)
            self._in_flight[key] = InFlight("", next(given), {pod.uid}, spec, entry)
            flights.append(key)
        for key in self.pods.keys(pod.uid):
            claim = self._claims[key]
            allocation = None if self.allocation(key) is not None else next(given)
            if allocation is None and any(c.uid == pod.uid for c in claim.status.reserved_for):
                continue
            flight = self._in_flight.get(key)
            if flight is None:
                flight = self._in_flight[key] = InFlight(claim.metadata.uid, allocation)
            elif allocation is not None:
                flight.allocation = allocation
            flight.pods.add(pod.uid)
            flights.append(key)
        if extended is not None:
            key = ResourceClaimKey(pod.namespace, f"{EXTENDED_RESOURCES}/{pod.uid}")
            pods = {pod.uid}
            self._in_flight[key] = InFlight(
                "", next(given), pods, extended.spec, mappings=extended.mappings
            )
            flights.append(key)
        if flights:
            self._flights_of[pod.uid] = tuple(flights)
            for key in flights:
                self._recount_use(key)
                self._stamp(key)

    def unreserve(self, pod: PodRecord) -> bool:
        """Undoes `reserve`; whether an allocation ended. If the bind of the pod is decided, and its
        outcome unknown, its claims may be written: then that is done by `bind_settled`."""
        self.waiting.pop(pod.uid, None)
        self.refused.pop(pod.uid, None)
        if pod.bind_decided and pod.uid in self._flights_of:
            self._orphans.add(pod.uid)
            return False
        return self._release(pod.uid)

    def to_write(self, pod: PodRecord, waits: bool = False) -> list[Decision]:
        """What is to be written about the claims of a pod before it is bound."""
        decisions: list[Decision] = []
        if pod.reservation_uid:
            decisions += self._to_hold(self.held.of(pod.reservation_uid), before_bind=not waits)
        if pod.reservation is not None:
            self._release_holders_of(pod.uid)
        for key in self._flights_of.get(pod.uid, ()):
            flight = self._in_flight[key]
            if flight.entry and flight.spec is not None and flight.allocation is not None:
                made = new_holder_claim(
                    pod.ref, pod.namespace, flight.entry, flight.spec, flight.allocation
                )
                decisions.append(CreateClaim(made, flight.allocation))
            elif flight.spec is None:
                claim = claim_ref(self._claims[key])
                decisions.append(ReserveClaim(claim, pod.ref, flight.allocation, waits))
            elif flight.allocation is not None and not waits:
                created = new_extended_claim(pod.ref, flight.spec)
                decisions.append(CreateClaim(created, flight.allocation, pod.ref, flight.mappings))
        return decisions

    def is_in_flight(self, pod: PodRecord) -> bool:
        """Whether something about the claims of a pod is decided and not on the objects yet."""
        return pod.uid in self._flights_of

    def reserved_for(self, pod: PodRecord) -> list[ResourceClaim]:
        """The claims whose objects name the pod as a consumer."""
        found = (self._claims.get(key) for key in sorted(self._consumed.get(pod.uid, ())))
        return [
            claim
            for claim in found
            if claim is not None and any(c.uid == pod.uid for c in claim.status.reserved_for)
        ]

    def allocations(self, pod: PodRecord) -> list[AllocationResult]:
        """The allocations of the claims that a pod consumes."""
        found = (self.allocation(key) for key in sorted(self._consumed.get(pod.uid, ())))
        return [allocation for allocation in found if allocation is not None]

    def write_refused(self, decision: ReserveClaim | CreateClaim | DeallocateClaim, why: str) -> None:
        """A claim was not written."""
        if isinstance(decision, ReserveClaim) and decision.pod.uid in self.waiting:
            self.refused[decision.pod.uid] = why

    def bind_settled(self, uid: str) -> None:
        """The outcome of a decided bind is known."""
        if uid in self._orphans:
            self._orphans.discard(uid)
            if self._release(uid):
                self._cluster.changed(Change.DEVICES)

    def _release(self, uid: str) -> bool:
        ended = False
        for key in self._flights_of.get(uid, ()):
            was_allocated = self._in_flight[key].allocation is not None
            self._drop_flight(key, uid)
            ended |= was_allocated and key not in self._in_flight
            self._recount_use(key)
            self._stamp(key, key in self._claims)
        return ended

    # Devices in use

    def _recount_use(self, key: ResourceClaimKey) -> None:
        """Brings the consumers of a claim, and the devices it uses, up to date."""
        claim, flight = self._claims.get(key), self._in_flight.get(key)
        uids = {consumer.uid for consumer in claim.status.reserved_for} if claim is not None else set()
        if flight is not None:
            uids |= flight.pods
        before, consumers = self._consumers.get(key, _NOBODY), frozenset(uids)
        if consumers != before:
            for uid in before - consumers:
                _index(self._consumed, uid, key, False)
            for uid in consumers - before:
                _index(self._consumed, uid, key, True)
            if consumers:
                self._consumers[key] = consumers
            else:
                del self._consumers[key]
        is_free = bool(consumers) and consumers <= self._departed
        self._use(key, None if is_free else self.allocation(key))

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
        for holder in self.held.holding((before, allocation)):
            if holder != key:
                self._recount_use(holder)
                self._outdated_holders[holder] = None

    def _rows_of(self, allocation: AllocationResult) -> Rows | None:
        """The rows whose devices, or what is left of counters, depend on an allocation."""
        return self.catalogue.rows_of([result.device_id for result in allocation.devices.results])

    def _log(self, rows: Rows | None) -> None:
        """Marks rows as changed for all caches; None for devices that are not of a single node."""
        if rows is None:
            self.shared_changes += 1
            return
        for row in rows.tolist():
            self._cluster.epoch.usage.add(row)

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
            if key not in self._used:
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

    # The ledger

    def _wake(self) -> None:
        """Follows the ledger from now on."""
        if not self.active:
            self.active = True
            self._ledger.listeners.append(self._moved)

    def _moved(self, pod: PodRecord, row: int, sign: int) -> None:
        """Follows the ledger: a pod or reserve pod was added to a row (sign 1) or removed (-1)."""
        uid = pod.uid
        if uid not in self._consumed and not (sign > 0 and self.concerns(pod.cls)):
            return
        if sign < 0:
            if uid in self._tentative:
                self._tentative.discard(uid)
                self._release(uid)
            elif self._ledger.in_transaction or self._ledger.undoing:
                self._departed.add(uid)
                self._recount_uses_of(uid)
        elif uid in self._departed:
            self._departed.discard(uid)
            self._recount_uses_of(uid)
        elif self._ledger.in_transaction and pod.phase is Phase.PENDING:
            self._reserve_tentatively(pod, row)

    def _recount_uses_of(self, uid: str) -> None:
        for key in sorted(self._consumed.get(uid, ())):
            self._recount_use(key)

    def _reserve_tentatively(self, pod: PodRecord, row: int) -> None:
        """Reserves the claims of a pod that was placed in a transaction. A nominated pod also gets what
        its victims leave, and so keeps the devices from others that are free already."""
        if pod.uid in self._flights_of:
            return
        if self.reserve(pod, row):
            if pod.nominated != self._cluster.nodes.name(row):
                return
            going = [*self._released_on(row, _is_going)]
            if not going or self._reserve_with(pod, row, self.use.without(going)):
                return
        self._tentative.add(pod.uid)

    def take_decisions(self) -> list[Decision]:
        """The writes that were decided since the last call."""
        if self.held:
            self._release_holders()
        decisions, self.decisions = self.decisions, []
        return decisions

    # Devices that reservations hold

    def take_holds(self) -> list[Decision]:
        """The writes that bring the claims of reservations in line. They follow those of binds, which
        may have changed the same claims."""
        outdated, self._outdated_holders = self._outdated_holders, {}
        return self._to_hold(outdated)

    def template_traits(self, pod: Pod) -> tuple[ClaimTrait, ...]:
        """The claims of a reserve pod, as part of its class: those that its template's entries would
        be created with."""
        if pod.spec.resource_claims:
            self._wake()
        found = []
        for entry in pod.spec.resource_claims:
            name = entry.resource_claim_template_name
            if not name:
                continue
            key = ResourceClaimKey(pod.metadata.namespace, name)
            template = self._templates.get(key)
            if template is None:
                found.append(ClaimTrait(name, problem=NO_TEMPLATE.format(key)))
            else:
                found.append(ClaimTrait(spec=encoded(template.spec.spec)))
        return tuple(found)

    def codes(self, claims: ClassClaims, view: View) -> Cells:
        """For each row of a view whether devices can be allocated there: FEASIBLE, or why not. An owner
        of a reservation there may get those that it holds."""
        if view.entries is None or not self.held:
            return claims.codes(view, self.use)
        rows = [view.rows] if view.single else view.rows.tolist()
        entries = [view.entries] if view.single else view.entries.tolist()
        seen = [self._seen_by_owner(row, at) for row, at in zip(rows, entries, strict=True)]
        return claims.codes_with(view, seen)

    def _seen_by_owner(self, row: int, index: int) -> DevicesSeen:
        """The devices in use, for a pod that is allocated from the reservation with this entry
        index."""
        for entry in self._ledger.reservations.on(row):
            if entry.index == index and (holders := self.held.of(entry.pod.uid)):
                is_strict = entry.reservation.restricted is not None
                only = self._held_by(holders) if is_strict else None
                return DevicesSeen(self.use.without(holders), only)
        return DevicesSeen(self.use)

    def serves(self, cls: PodClass, entry: ReservationEntry) -> bool:
        """Whether a pod of the class would get a device that the reservation holds."""
        holders = self.held.of(entry.pod.uid)
        claims = self.of_class(cls) if holders else None
        if claims is None or claims.problem:
            return False
        request = claims.on(entry.row).request
        if request is None:
            return False
        held = self._held_by(holders)
        names = [ClaimName(cls.namespace, "")] * len(request.claims)
        found = self._allocate_from(entry, request, names)
        return not isinstance(found, ClaimsRefusal) and not held.isdisjoint(found.devices)

    def _held_by(self, holders: Iterable[ResourceClaimKey]) -> KeysView[DeviceID]:
        """The devices that these claims hold and that nobody uses, in order."""
        found = (self._used.get(key) for key in holders)
        return dict.fromkeys(
            result.device_id
            for allocation in found
            if allocation is not None
            for result in allocation.devices.results
        ).keys()

    def _allocate_from(
        self, entry: ReservationEntry, request: ClaimsRequest, names: list[ClaimName]
    ) -> ClaimsAllocation | ClaimsRefusal:
        """Allocates devices for a pod that is allocated from a reservation: those that it holds first,
        and no others if its policy is Restricted."""
        holders = self.held.of(entry.pod.uid)
        held, use = self._held_by(holders), self.use.without(holders)
        only = held if entry.reservation.restricted is not None else None
        return self.allocator.allocate(request, entry.row, use, names, prefer=held, only=only)

    def _rest_of(self, key: ResourceClaimKey, holder: HolderClaim) -> AllocationResult | None:
        """What a reservation holds with a claim and nobody uses."""
        devices = holder.held.devices
        left = [r for r in devices.results if not self._is_used_beside(r.device_id, key)]
        if len(left) == len(devices.results):
            return holder.held
        if not left:
            return None
        return replace(holder.held, devices=replace(devices, results=tuple(left)))

    def _is_used_beside(self, device: DeviceID, key: ResourceClaimKey) -> bool:
        """Whether another claim uses a device."""
        identity = self.catalogue.table.identities.find(device)
        return identity is not None and any(each != key for each in self.use.holders(identity))

    def _to_hold(self, keys: Iterable[ResourceClaimKey], before_bind: bool = False) -> list[Decision]:
        """Brings the objects of these claims in line with what reservations hold with them."""
        decisions: list[Decision] = []
        for key in keys:
            claim, holder = self._claims.get(key), self.held.get(key)
            if claim is None or holder is None or claim.metadata.uid in self._released:
                continue
            rest = self._rest_of(key, holder)
            written = self._holds_decided.get(key, claim.status.allocation)
            if not _has_devices(written, rest):
                self._holds_decided[key] = rest
                decisions.append(HoldDevices(claim_ref(claim), rest, before_bind))
        return decisions

    def _release_holders(self) -> None:
        """Has the claims of reservations deleted that are gone or finished, or lost their node."""
        for reservation in self.held.reservations():
            if not self.is_live(reservation):
                self._release_holders_of(reservation)

    def _release_holders_of(self, reservation: str) -> None:
        """A reservation that is about to get its node has claims only if an earlier attempt ended
        between their creation and the write of its status."""
        for key in self.held.of(reservation):
            claim = self._claims.get(key)
            if claim is not None and claim.metadata.uid not in self._released:
                self._released.add(claim.metadata.uid)
                self.decisions.append(DeleteClaim(claim_ref(claim)))

    # Objects, and the self-check

    def put(self, before: Object | None, after: Object | None) -> None:
        """Follows an object of one of `DEVICE_KINDS` that was added, changed or deleted."""
        some = after if after is not None else before
        if isinstance(some, ResourceClaim):
            assert before is None or isinstance(before, ResourceClaim)
            assert after is None or isinstance(after, ResourceClaim)
            if before is not None and after is not None and before.metadata.uid != after.metadata.uid:
                self.put_claim(before, None)
                before = None
            self.put_claim(before, after)
            return
        self._wake()
        if isinstance(some, ResourceClaimTemplate):
            assert after is None or isinstance(after, ResourceClaimTemplate)
            self._put_template(some.metadata, after)
            return
        self._log(self._publish(some, after is not None))
        is_class = isinstance(some, DeviceClass)
        self._cluster.changed(Change.DEVICE_CLASSES if is_class else Change.DEVICES)

    def _publish(self, changed: Object | None, there: bool) -> Rows | None:
        """Applies an object about devices; returns the rows it may matter to, None for all."""
        catalogue = self.catalogue
        match changed:
            case ResourceSlice():
                self.use.forget_pools()
                name = changed.metadata.name
                return catalogue.put_slice(changed) if there else catalogue.remove_slice(name)
            case DeviceTaintRule():
                name = changed.metadata.name
                return catalogue.put_rule(changed) if there else catalogue.remove_rule(name)
            case DeviceClass():
                if there:
                    catalogue.put_class(changed)
                else:
                    catalogue.remove_class(changed.metadata.name)
                self.extended = classes_by_resource(catalogue.classes.values())
                self._delegated.clear()
        return _NO_ROWS

    def _put_template(self, meta: ObjectMeta, after: ResourceClaimTemplate | None) -> None:
        key = ResourceClaimKey(meta.namespace, meta.name)
        if after is None:
            self._templates.pop(key, None)
        else:
            self._templates[key] = after
        self.templates_changed()

    def node_changed(self, row: int) -> None:
        """To be called when a node object is added, changed or removed."""
        self.catalogue.node_changed(row)

    def problems(self, pods: Mapping[str, PodRecord]) -> list[str]:
        """The differences between what is kept here and a computation from scratch, as messages."""
        found = []
        if self._departed or self._tentative:
            found.append(f"dry runs left {sorted(self._departed)} and {sorted(self._tentative)}")
        consumers: dict[ResourceClaimKey, set[str]] = {}
        for key, claim in self._claims.items():
            consumers.setdefault(key, set()).update(c.uid for c in claim.status.reserved_for)
        for key, flight in self._in_flight.items():
            consumers.setdefault(key, set()).update(flight.pods)
            there = self._claims.get(key)
            if flight.uid and (there is None or there.metadata.uid != flight.uid):
                found.append(f"ResourceClaim {key} is in flight, but gone")
            for uid in sorted(flight.pods):
                if key not in self._flights_of.get(uid, ()):
                    found.append(f"ResourceClaim {key} is in flight for pod {uid}, which does not know")
                pod = pods.get(uid)
                if not flight.entry and uid not in self._orphans and (pod is None or pod.row < 0):
                    found.append(f"ResourceClaim {key} is in flight for pod {uid}, which has no node")
        right = {key: frozenset(uids) for key, uids in consumers.items() if uids}
        if self._consumers != right:
            found.append(f"consumers of claims are {self._consumers}, should be {right}")
        consumed: dict[str, set[ResourceClaimKey]] = {}
        for key, uids in right.items():
            for uid in uids:
                consumed.setdefault(uid, set()).add(key)
        if self._consumed != consumed:
            found.append(f"claims of consumers are {self._consumed}, should be {consumed}")
        known = {*self._claims, *self._in_flight}
        used = {key: allocation for key in known if (allocation := self.allocation(key))}
        if self._used != used:
            found.append(f"allocations in use are {self._used}, should be {used}")
        return found + self.use.check()


def _entries(pod: PodRecord) -> list[str]:
    """The entries of a reserve pod's `resourceClaims` that name templates."""
    entries = pod.cls.pod.spec.resource_claims
    return [entry.name for entry in entries if entry.resource_claim_template_name]


def _has_devices(allocation: AllocationResult | None, wanted: AllocationResult | None) -> bool:
    if allocation is None or wanted is None:
        return allocation is wanted
    ours, theirs = allocation.devices.results, wanted.devices.results
    return [each.device_id for each in ours] == [each.device_id for each in theirs]


def claim_ref(claim: ResourceClaim) -> ObjectRef:
    meta = claim.metadata
    return ObjectRef("ResourceClaim", meta.namespace, meta.name, meta.uid)


def is_outdated(known: Object | None, seen: ResourceClaim) -> bool:
    """Whether a claim is older than the known version: a watch may deliver versions after a write has
    answered with a later one. Resource versions are numbers on every known server."""
    if known is None or known.metadata.uid != seen.metadata.uid:
        return False
    then, now = known.metadata.resource_version, seen.metadata.resource_version
    return then.isdigit() and now.isdigit() and int(now) < int(then)


def _key(claim: ResourceClaim) -> ResourceClaimKey:
    return ResourceClaimKey(claim.metadata.namespace, claim.metadata.name)


def _is_going(pod: PodRecord) -> bool:
    return pod.being_preempted or pod.cls.terminating


def _lost_allocation(before: ResourceClaim | None, after: ResourceClaim | None) -> bool:
    return (
        before is not None
        and before.status.allocation is not None
        and (after is None or after.status.allocation is None)
    )


def _concerns_its_pods(before: ResourceClaim | None, after: ResourceClaim | None) -> bool:
    """Whether a change can matter to pods that name the claim: not that of a label or finalizer."""
    if before is None or after is None:
        return True
    was, now = before.metadata, after.metadata
    return (
        before.status != after.status
        or was.deletion_timestamp != now.deletion_timestamp
        or was.owner_references != now.owner_references
    )


def _index(table: dict[Any, set[Any]], key: Any, value: Any, there: bool) -> None:
    if there:
        table.setdefault(key, set()).add(value)
        return
    values = table[key]
    values.discard(value)
    if not values:
        del table[key]
