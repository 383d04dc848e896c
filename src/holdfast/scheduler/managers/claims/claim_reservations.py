"""Reserving ResourceClaims for pods: which devices a pod gets on its node.

A part of the claim manager (`claim_manager`).
"""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from msgspec.structs import replace

from holdfast.api.resource_claims import AllocationResult, ResourceClaim, ResourceClaimSpec
from holdfast.api.resource_slices import DeviceID
from holdfast.scheduler.cluster.decisions import (
    DeallocateClaim,
    ObjectRef,
    ReserveClaim,
    UnreserveClaim,
)
from holdfast.scheduler.cluster.events import Change
from holdfast.scheduler.cluster.pod_classes import ClaimTrait
from holdfast.scheduler.cluster.records import PodRecord
from holdfast.scheduler.managers.claims.allocation import (
    ClaimName,
    ClaimsAllocation,
    ClaimsRefusal,
)
from holdfast.scheduler.managers.claims.claim_feasibility import EXTENDED_RESOURCES, ClaimFeasibility
from holdfast.scheduler.managers.claims.claim_state import InFlight
from holdfast.scheduler.managers.claims.claims_in_use import is_going
from holdfast.scheduler.managers.claims.device_use import UseSnapshot
from holdfast.scheduler.managers.claims.extended_resources import ExtendedClaim, is_extended_claim
from holdfast.scheduler.managers.claims.held_devices import HolderClaim, holder_key, holder_of
from holdfast.scheduler.managers.claims.pod_claims import (
    BEING_DELETED,
    NOT_FOUND,
    ResourceClaimKey,
    decoded,
)

IN_PROCESS = "resource claim {} is in the process of being allocated"
LOST_DEVICES = "devices reserved for the pod can no longer be allocated: {}"
LOST_CLASS = "request {}: device class {} was deleted before devices were allocated"
_NOBODY: frozenset[str] = frozenset()


class HeldEntry(NamedTuple):
    """An entry of a reserve pod's `resourceClaims` for which the reservation holds devices."""

    name: str
    key: ResourceClaimKey
    """The claim that it holds them with."""
    spec: ResourceClaimSpec


class ClaimReservations(ClaimFeasibility):
    """Reserves claims for pods."""

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
        if gone := self.gone(pod):
            self.outdated_pods[pod.uid] = None
            return gone
        if need.request is None:
            self._fly(pod, (), None)
            return ""
        names = self.names_to_allocate(pod)
        if need.extended is not None:
            names.append(ClaimName(pod.namespace, EXTENDED_RESOURCES, pod.uid))
        if len(names) != len(need.request.claims):
            # Claims were written for it in this round: its class is not up to date.
            self.outdated_pods[pod.uid] = None
            return IN_PROCESS.format(self.pods.keys(pod.uid)[0])
        holding = self._ledger.reservations.get(pod.reservation_uid) if pod.reservation_uid else None
        later = self._use_later(pod, row)
        if holding is not None and holding.row == row and self.unreserved_holders(holding.pod.uid):
            found = self._allocate_from(holding, need.request, names)
        elif later is not None:
            free = self._free_on(row)
            found = self.allocator.allocate(need.request, row, later, names, prefer=free)
            if not isinstance(found, ClaimsRefusal) and has_shares(found):
                # Parts of devices are not waited for: others may take what is released of them.
                now = self.use.without(self.unreserved_holders(pod.uid))
                found = self.allocator.allocate(need.request, row, now, names)
        else:
            found = self.allocator.allocate(need.request, row, use, names)
        if isinstance(found, ClaimsRefusal):
            return found.message
        results = found.results
        if use is not self.use:
            results = tuple(self._part_that_is_free(each) for each in results)
        self._fly(pod, results, need.extended)
        return ""

    def _use_later(self, pod: PodRecord, row: int) -> UseSnapshot | None:
        """The devices in use once those are released that a reservation waits for; None if it waits for
        none. Devices that other reservations wait for count as used."""
        reservation = pod.reservation
        if reservation is None:
            return None
        going = self._own_holders(pod)  # of an earlier attempt
        if reservation.preemptor:
            going.update(self._released_on(row, is_going))
        elif reservation.pre_allocation:
            going |= self._releasable()
        for uid in reservation.victims:
            going.update(self.unreserved_holders(uid))
            for user in self.allocated_pods(uid):
                going.update(self._consumed.get(user.uid, ()))
        if not going:
            return None
        return self._without(going, except_for=frozenset((pod.uid, *reservation.victims)))

    def _own_holders(self, pod: PodRecord) -> set[ResourceClaimKey]:
        """The claims of a reservation whose devices it can plan with, those included that somebody made
        invalid."""
        broken = (key for key, uid in self._broken_holders.items() if uid == pod.uid)
        found = ((key, self._claims.get(key)) for key in broken)
        unused = (key for key, claim in found if claim is None or not claim.status.reserved_for)
        return {*self.unreserved_holders(pod.uid), *unused}

    def _free_on(self, row: int) -> list[DeviceID]:
        """The devices of a node that no claim uses now."""
        visible = self.catalogue.visible(row)
        self.use.cover()
        busy = self.use.busy(visible)
        return [entry.id for at, entry in enumerate(visible.entries) if not busy[at]]

    def names_to_allocate(self, pod: PodRecord) -> list[ClaimName]:
        """The claims of a pod that are not allocated; those of a reserve pod are yet to be created."""
        if pod.reservation is not None:
            wanted = self.entries_to_hold(pod)
            return [ClaimName(pod.namespace, entry.name, pod.uid) for entry in wanted]
        keys = [key for key in self.pods.keys(pod.uid) if self.allocation(key) is None]
        return [ClaimName(*key, self._claims[key].metadata.uid) for key in keys]

    def key_of(self, pod: PodRecord, entry: str) -> ResourceClaimKey:
        """The claim with which a reservation holds devices for an entry of its template."""
        return holder_key(pod.ref, pod.namespace, entry)

    def entries_to_hold(self, pod: PodRecord) -> list[HeldEntry]:
        """The entries of a reserve pod's `resourceClaims` for which the reservation holds devices: not
        those that name a claim which is allocated already."""
        found = []
        for entry, trait in entries_of(pod):
            if trait.problem:
                continue
            key = self.key_of(pod, entry)
            if trait.spec:
                found.append(HeldEntry(entry, key, decoded(trait.spec)))
                continue
            named = ResourceClaimKey(pod.namespace, trait.name)
            claim = self._claims.get(named)
            if claim is not None and self.allocation(named) is None:
                found.append(HeldEntry(entry, key, claim.spec))
        return found

    def _part_that_is_free(self, allocation: AllocationResult) -> AllocationResult:
        """The devices of an allocation that no claim uses now."""
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
        for entry in self.entries_to_hold(pod) if pod.reservation is not None else ():
            self._fly_holder(pod, entry, next(given))
            flights.append(entry.key)
        for key in self.pods.keys(pod.uid):
            claim = self._claims[key]
            allocation = None if self.allocation(key) is not None else next(given)
            group = self.group_of(pod.uid, key)
            consumer = pod.uid if group is None else group.uid
            is_named = any(each.uid == consumer for each in claim.status.reserved_for)
            if allocation is None and is_named and self._stays_reserved(claim, pod):
                continue
            flight = self._in_flight.get(key)
            if flight is None:
                flight = self._in_flight[key] = InFlight(claim.metadata.uid, allocation)
            elif allocation is not None:
                flight.allocation = allocation
            if allocation is not None:
                flight.judged = self.catalogue.version
            flight.pods.add(pod.uid)
            if claim.status.allocation is not None:
                flight.joined[pod.uid] = claim.status.allocation
            if group is not None:
                flight.groups[pod.uid] = group
            flights.append(key)
        if extended is not None:
            key = ResourceClaimKey(pod.namespace, f"{EXTENDED_RESOURCES}/{pod.uid}")
            pods = {pod.uid}
            self._in_flight[key] = InFlight(
                "",
                next(given),
                pods,
                extended.spec,
                mappings=extended.mappings,
                judged=self.catalogue.version,
            )
            flights.append(key)
        if flights:
            self._flights_of[pod.uid] = tuple(flights)
            for key in flights:
                self._recount_use(key)
                self._stamp(key)

    def _fly_holder(self, pod: PodRecord, entry: HeldEntry, held: AllocationResult) -> None:
        """Has a reservation hold these devices, with a claim that is yet to be written."""
        holder = HolderClaim(pod.uid, pod.name, held)
        self._in_flight[entry.key] = InFlight("", None, {pod.uid}, entry.spec, holder)
        self.held.put(entry.key, holder)

    def gone(self, pod: PodRecord) -> str:
        """The message if a claim that the pod needs was deleted meanwhile, or is being deleted; empty
        if all are there."""
        for key in self.pods.keys(pod.uid) if pod.cls.claims else ():
            claim = self._claims.get(key)
            if claim is None:
                return NOT_FOUND.format(key.name)
            if claim.metadata.deletion_timestamp is not None:
                return BEING_DELETED.format(key.name)
        return ""

    def lost_devices(self, pod: PodRecord, row: int) -> str:
        """The message if devices that were reserved for a pod, and are not written to its claims yet,
        cannot be allocated any more: they were withdrawn or tainted, or their class changed. Empty if
        they can."""
        version, flights = self.catalogue.version, []
        for key in self._flights_of.get(pod.uid, ()):
            flight = self._in_flight[key]
            if flight.allocation is not None and flight.holder is None:
                flights.append((key, flight))
        if all(flight.judged == version for _, flight in flights):
            return ""
        specs = [flight.spec or self._claims[key].spec for key, flight in flights]
        allocations = [flight.allocation for _, flight in flights if flight.allocation is not None]
        names = [ClaimName(*key, flight.uid or pod.uid) for key, flight in flights]
        request = self.allocator.request(specs)
        if request.missing_class is not None:
            return LOST_CLASS.format(*request.missing_class)
        had = [result.device_id for each in allocations for result in each.devices.results]
        use = self.use.without([key for key, _ in flights])
        found = self.allocator.allocate(request, row, use, names, only=had)
        if isinstance(found, ClaimsRefusal):
            return LOST_DEVICES.format(", ".join(map("/".join, had)))
        for (key, flight), allocation in zip(flights, found.results, strict=True):
            flight.judged = version
            if not flight.is_decided and flight.allocation != allocation:
                flight.allocation = allocation
                self._recount_use(key)
                self._stamp(key)
        return ""

    def pending_again(self, pod: PodRecord) -> None:
        """To be called when an assumed pod is pending again."""
        if pod.uid in self.changed_meanwhile:
            self.changed_meanwhile.discard(pod.uid)
            self.outdated_pods[pod.uid] = None

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
                self.drop_consumer(claim, pod)

    def drop_consumer(self, claim: ResourceClaim, pod: PodRecord) -> None:
        """Has the reservation of a claim for a pod removed."""
        decision = UnreserveClaim(claim_ref(claim), pod.ref)
        if decision not in self.decisions:
            self.decisions.append(decision)
        self._leaving.add((claim.metadata.uid, pod.uid))

    def drop_left_consumer(self, pod: PodRecord) -> None:
        """Has the reservations of claims removed that an earlier scheduler process left for a pod which
        was rejected."""
        if not self.is_in_flight(pod):
            for claim in self.reserved_for(pod):
                if not is_extended_claim(claim):
                    self.drop_consumer(claim, pod)

    def _stays_reserved(self, claim: ResourceClaim, pod: PodRecord) -> bool:
        """Whether a claim whose object names the pod needs no further write: a removal that was decided
        in this round is taken back. One that is being written is followed by a new reservation."""
        if (claim.metadata.uid, pod.uid) not in self._leaving:
            return True
        removal = UnreserveClaim(claim_ref(claim), pod.ref)
        if removal not in self.decisions:
            return False
        if not self._is_dry_run:
            self.decisions.remove(removal)
            self._leaving.discard((claim.metadata.uid, pod.uid))
        return True

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
            flight = self._in_flight[key]
            was_allocated = flight.allocation is not None or flight.holder is not None
            self._drop_flight(key, uid)
            ended |= was_allocated and key not in self._in_flight
            if flight.holder is not None:
                claim = self._claims.get(key)
                self.held.put(key, holder_of(claim) if claim is not None else None)
            self._recount_use(key)
            self._stamp(key, key in self._claims)
        return ended


def entries_of(pod: PodRecord) -> list[tuple[str, ClaimTrait]]:
    """The entries of a reserve pod's `resourceClaims`, and the claims they stand for."""
    entries = pod.reservation.claim_entries if pod.reservation is not None else ()
    return list(zip(entries, pod.cls.claims, strict=True))


def has_shares(found: ClaimsAllocation) -> bool:
    """Whether parts of devices are among those allocated."""
    return any(each.share_id is not None for one in found.results for each in one.devices.results)


def claim_ref(claim: ResourceClaim) -> ObjectRef:
    meta = claim.metadata
    return ObjectRef("ResourceClaim", meta.namespace, meta.name, meta.uid)
