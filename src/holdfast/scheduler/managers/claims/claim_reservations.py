"""Reserving ResourceClaims for pods: which devices a class of pods can get on each node, and which a
pod gets on its node.

A part of the claim manager (`claim_manager`).
"""

from collections.abc import Hashable, Iterable, Sequence

from msgspec.structs import replace

from holdfast.api.resource_claims import (
    AllocationResult,
    ResourceClaim,
)
from holdfast.scheduler.cluster.decisions import (
    CreateClaim,
    DeallocateClaim,
    Decision,
    DeleteClaim,
    HoldDevices,
    ObjectRef,
    ReserveClaim,
    UnreserveClaim,
)
from holdfast.scheduler.cluster.events import Change
from holdfast.scheduler.cluster.pod_classes import PodClass
from holdfast.scheduler.cluster.records import PodRecord, ReservationEntry
from holdfast.scheduler.cluster.view import Cells, View
from holdfast.scheduler.managers.claims.allocation import (
    CANNOT_ALLOCATE,
    ClaimName,
    ClaimsAllocation,
    ClaimsRefusal,
)
from holdfast.scheduler.managers.claims.claims_in_use import ClaimsInUse, InFlight
from holdfast.scheduler.managers.claims.claims_request import ClaimsRequest
from holdfast.scheduler.managers.claims.class_claims import ClaimNeed, ClassClaims, DevicesSeen
from holdfast.scheduler.managers.claims.device_use import UseSnapshot
from holdfast.scheduler.managers.claims.extended_resources import (
    ExtendedClaim,
    extended_claim,
    new_extended_claim,
)
from holdfast.scheduler.managers.claims.held_devices import (
    new_holder_claim,
)
from holdfast.scheduler.managers.claims.pod_claims import (
    NOT_FOUND,
    ResourceClaimKey,
    decoded,
)

IN_PROCESS = "resource claim {} is in the process of being allocated"
EXTENDED_RESOURCES = "<extended-resources>"
HELD_FOR = "<held-for>"
"""Stand for the names of claims that are yet to be created; no object can have them."""


class ClaimReservations(ClaimsInUse):
    """Finds devices for classes of pods, and reserves claims for pods."""

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

    def why_invalid(self, cls: PodClass, needs: ClassClaims, row: int) -> str:
        """Why allocation for a class is given up with an error on the node of a row."""
        request = needs.on(row).request
        assert request is not None
        keys = self.pods.keys(cls.pod.metadata.uid)
        names = [ClaimName(*key) for key in keys if self.allocation(key) is None]
        names += [ClaimName(cls.namespace, EXTENDED_RESOURCES)] * (len(request.claims) - len(names))
        found = self.allocator.allocate(request, row, self.use, names)
        return found.message if isinstance(found, ClaimsRefusal) else CANNOT_ALLOCATE

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

    # Reserving claims for pods

    def reserve(self, pod: PodRecord, row: int) -> str:
        """Reserves the claims of a pod that is assumed on the row, with devices for those that are not
        allocated; the reason if it cannot."""
        return self._reserve_with(pod, row, self.use)

    def _reserve_with(self, pod: PodRecord, row: int, use: UseSnapshot) -> str:
        claims = self.of_class(pod.cls)
        if claims.problem:
            return claims.problem
        if pod.uid in self._orphans:
            return IN_PROCESS.format(self._flights_of[pod.uid][0])
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

    def _allocate_from(
        self, entry: ReservationEntry, request: ClaimsRequest, names: list[ClaimName]
    ) -> ClaimsAllocation | ClaimsRefusal:
        """Allocates devices for a pod that is allocated from a reservation: those that it holds first,
        and no others if its policy is Restricted."""
        holders = self.held.of(entry.pod.uid)
        held, use = self._held_by(holders), self.use.without(holders)
        only = held if entry.reservation.restricted is not None else None
        return self.allocator.allocate(request, entry.row, use, names, prefer=held, only=only)

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
            group = self.group_of(pod.uid, key)
            consumer = pod.uid if group is None else group.uid
            if allocation is None and any(c.uid == consumer for c in claim.status.reserved_for):
                continue
            flight = self._in_flight.get(key)
            if flight is None:
                flight = self._in_flight[key] = InFlight(claim.metadata.uid, allocation)
            elif allocation is not None:
                flight.allocation = allocation
            flight.pods.add(pod.uid)
            if group is not None:
                flight.groups[pod.uid] = group
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
        outcome unknown, its claims may be written: then that is done by `bind_settled`. Writes for a
        pod that waits in Permit are followed by ones that undo them."""
        waited = self.waiting.pop(pod.uid, None) is not None
        is_refused = self.refused.pop(pod.uid, "") != ""
        if pod.bind_decided and pod.uid in self._flights_of:
            self._orphans.add(pod.uid)
            return False
        if waited and not is_refused and not self._withdraw(pod.uid):
            self._undo_writes(pod)
            return False
        return self._release(pod.uid)

    def _withdraw(self, uid: str) -> bool:
        """Takes back what was decided about the claims of a pod in this round. False if there was
        nothing: it is being written."""
        kept = [
            each
            for each in self.decisions
            if not (isinstance(each, ReserveClaim) and each.pod.uid == uid)
        ]
        withdrawn, self.decisions = len(self.decisions) - len(kept), kept
        return withdrawn > 0

    def _undo_writes(self, pod: PodRecord) -> None:
        """Has the reservations for a pod removed that are being written. The devices stay in use until
        the outcome is known: a claim that got its allocation keeps it."""
        for key in self._flights_of.get(pod.uid, ()):
            self._orphans.add(pod.uid)
            if (claim := self._claims.get(key)) is not None:
                self.decisions.append(UnreserveClaim(claim_ref(claim), pod.ref))

    def deallocate(self, pods: Iterable[PodRecord]) -> None:
        """Has the claims deallocated of pods that waited in Permit and were preempted: their devices
        are for the preemptor."""
        for pod in pods:
            for key in self.pods.keys(pod.uid):
                claim, flight = self._claims.get(key), self._in_flight.get(key)
                if claim is not None and (claim.status.allocation is not None or flight is not None):
                    self.decisions.append(DeallocateClaim(claim_ref(claim), pod.ref))

    def is_in_flight(self, pod: PodRecord) -> bool:
        """Whether something about the claims of a pod is decided and not on the objects yet."""
        return pod.uid in self._flights_of

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

    # What is written

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
                group = flight.groups.get(pod.uid)
                decisions.append(ReserveClaim(claim, pod.ref, flight.allocation, waits, group))
            elif flight.allocation is not None and not waits:
                created = new_extended_claim(pod.ref, flight.spec)
                decisions.append(CreateClaim(created, flight.allocation, pod.ref, flight.mappings))
        return decisions

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

    def _release_holders_of(self, reservation: str) -> None:
        """A reservation that is about to get its node has claims only if an earlier attempt ended
        between their creation and the write of its status."""
        for key in self.held.of(reservation):
            claim = self._claims.get(key)
            if claim is not None and claim.metadata.uid not in self._released:
                self._released.add(claim.metadata.uid)
                self.decisions.append(DeleteClaim(claim_ref(claim)))

    def write_refused(self, decision: ReserveClaim | CreateClaim | DeallocateClaim, why: str) -> None:
        """A claim was not written."""
        if not isinstance(decision, ReserveClaim):
            return
        if decision.pod.uid in self.waiting:
            self.refused[decision.pod.uid] = why
        elif decision.waits:
            self.bind_settled(decision.pod.uid)


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
