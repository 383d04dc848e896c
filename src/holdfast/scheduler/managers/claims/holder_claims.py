"""What is written about claims, and the claims with which reservations hold devices.

A part of the claim manager (`claim_manager`). A reservation on a node has one claim for each entry of
its template's `resourceClaims`. The claims are brought in line whenever they differ from that:

    missing, or edited so that it holds nothing    created again, with the same devices where possible
    not just the devices that are free or its own  its allocation is written again
    reservation gone, finished or without a node   deleted

A write that the API server refuses is decided again after a back-off.
"""

from collections.abc import Iterable

from holdfast.api.resource_claims import AllocationResult
from holdfast.api.resource_slices import DeviceID
from holdfast.scheduler.cluster.decisions import (
    CreateClaim,
    CreateHolder,
    DeallocateClaim,
    Decision,
    DeleteClaim,
    HoldDevices,
    ReserveClaim,
)
from holdfast.scheduler.cluster.records import PodRecord
from holdfast.scheduler.managers.claims.allocation import (
    ClaimName,
    ClaimsAllocation,
    ClaimsRefusal,
)
from holdfast.scheduler.managers.claims.claim_reservations import (
    ClaimReservations,
    HeldEntry,
    claim_ref,
    entries_of,
    has_shares,
)
from holdfast.scheduler.managers.claims.claim_state import RefusedWrite
from holdfast.scheduler.managers.claims.claims_in_use import is_going
from holdfast.scheduler.managers.claims.device_table import nano
from holdfast.scheduler.managers.claims.device_use import UseSnapshot
from holdfast.scheduler.managers.claims.extended_resources import new_extended_claim
from holdfast.scheduler.managers.claims.held_devices import HolderClaim, new_holder_claim
from holdfast.scheduler.managers.claims.pod_claims import ResourceClaimKey

NOT_WRITTEN = "claim {} is not written: {}"
NOT_HELD = "devices of the entry {} are not held: {}"
WITHDRAWN = "devices of the entry {} are no longer published: {}"
IN_USE = "claim {} is reserved for {}/{}: its devices are not for owners"
NO_CLASS = "device class {1} does not exist"
_FIRST_BACK_OFF = 1.0
_MAX_BACK_OFF = 60.0


class HolderClaims(ClaimReservations):
    """Decides what is written about claims."""

    def to_write(self, pod: PodRecord, waits: bool = False) -> list[Decision]:
        """What is to be written about the claims of a pod before it is bound."""
        decisions: list[Decision] = []
        for key in self._flights_of.get(pod.uid, ()):
            self._in_flight[key].is_decided = True
        for reservation in self._reservations_for(pod):
            decisions += self._to_hold(self.held.of(reservation), before_bind=not waits)
        for key in self._flights_of.get(pod.uid, ()):
            flight = self._in_flight[key]
            if flight.holder is not None:
                decisions.append(self._creation(pod, key, before_bind=True))
            elif flight.spec is None:
                claim = claim_ref(self._claims[key])
                group, joined = flight.groups.get(pod.uid), flight.joined.get(pod.uid)
                allocation = flight.allocation if joined is None else None
                decisions.append(ReserveClaim(claim, pod.ref, allocation, waits, group, joined))
            elif flight.allocation is not None and not waits:
                created = new_extended_claim(pod.ref, flight.spec)
                decisions.append(CreateClaim(created, flight.allocation, pod.ref, flight.mappings))
        return decisions

    def _creation(self, pod: PodRecord, key: ResourceClaimKey, before_bind: bool) -> CreateHolder:
        """The creation of a claim with which a reservation holds devices, which is in flight."""
        flight = self._in_flight[key]
        assert flight.holder is not None and flight.spec is not None
        made = new_holder_claim(pod.ref, key, flight.spec, flight.holder.held)
        rest = self._rest_of(key, flight.holder, written=True)
        flight.written = rest
        return CreateHolder(made, rest, pod.ref, before_bind)

    def _to_hold(self, keys: Iterable[ResourceClaimKey], before_bind: bool = False) -> list[Decision]:
        """Brings the objects of these claims in line with what reservations hold with them."""
        decisions: list[Decision] = []
        for key in keys:
            claim, holder = self._claims.get(key), self.held.get(key)
            if claim is None or holder is None or claim.metadata.uid in self._released:
                continue
            if key in self._in_flight and self._in_flight[key].holder is not None:
                continue
            if not before_bind and self._is_backing_off(holder.reservation):
                self._outdated_holders[key] = None
                continue
            rest = self._rest_of(key, holder, written=True)
            seen = claim.status.allocation
            decided = self._holds_decided.get(key, seen)
            # Of pods that share a claim, each may be the first to be bound: what was decided for
            # another one is perhaps not written yet.
            if not has_devices(decided, rest) or (before_bind and not has_devices(seen, rest)):
                self._holds_decided[key] = rest
                decisions.append(HoldDevices(claim_ref(claim), rest, before_bind))
        return decisions

    # Claims of reservations

    def is_writing_holders(self, pod: PodRecord) -> bool:
        """Whether claims are in flight of reservations that devices of the pod come from."""
        return any(
            self._in_flight[key].holder is not None
            for reservation in self._reservations_for(pod)
            for key in self._flights_of.get(reservation, ())
        )

    def _reservations_for(self, pod: PodRecord) -> dict[str, None]:
        """The uids of the reservations that a pod's devices may come from: its own, and those of pods
        that share a claim with it which is about to be written."""
        found = {pod.reservation_uid: None} if pod.reservation_uid else {}
        for key in self._flights_of.get(pod.uid, ()) if self.held else ():
            for uid in sorted(self._in_flight[key].pods):
                sharing = self._cluster.pods.get(uid)
                if sharing is not None and sharing.reservation_uid:
                    found[sharing.reservation_uid] = None
        return found

    def lacking(self, pod: PodRecord) -> bool:
        """Whether a reservation waits for devices: it holds some that others use, its owners excepted,
        or that its claim does not have yet; or a claim is missing."""
        if any(self.held.get(each.key) is None for each in self.entries_to_hold(pod)):
            return True
        for key in self.held.of(pod.uid):
            holder = self.held.get(key)
            assert holder is not None
            rest = self._rest_of(key, holder)
            if not has_devices(rest, holder.held) and not self._is_used_by_owners(key, holder, rest):
                return True
            claim = self._claims.get(key)
            rest = self._rest_of(key, holder, written=True)
            if key not in self._in_flight and (
                claim is None or not has_devices(claim.status.allocation, rest)
            ):
                return True
        return False

    def is_getting_devices(self, pod: PodRecord) -> bool:
        """Whether no other claim uses the devices that a reservation waits for, and they are yet to be
        written to its claims."""
        keys = self.held.of(pod.uid)
        holders = [(key, self.held.get(key)) for key in keys]
        return bool(keys) and all(
            holder is not None and has_devices(self._rest_of(key, holder), holder.held)
            for key, holder in holders
        )

    def _is_used_by_owners(
        self, key: ResourceClaimKey, holder: HolderClaim, rest: AllocationResult | None
    ) -> bool:
        """Whether a reservation can hold its devices, and those that others use are its owners'. `rest`
        are those that it holds now."""
        identities = self.catalogue.table.identities
        holds = {each.device_id for each in rest.devices.results} if rest is not None else set()
        for result in holder.held.devices.results:
            if not self._can_hold(key, holder, result.device_id):
                return False
            identity = identities.find(result.device_id)
            users = self.use.holders(identity) if identity is not None else ()
            others = [user for user in users if user != key]
            if not others and result.device_id not in holds:
                return False  # others use the counters that it needs
            if not all(self._is_of_owners(user, holder.reservation) for user in others):
                return False
        return True

    def hold(self, pod: PodRecord) -> str:
        """Creates the claims again that a reservation on a node should have and has not; why devices
        are not held or not written, if so."""
        refused = self._refused_writes.get(pod.uid)
        self._release_others(pod)
        missing = [each for each in self.entries_to_hold(pod) if self.held.get(each.key) is None]
        problems = [NOT_HELD.format(*each) for each in self._unreadable_entries(pod)]
        self.short.pop(pod.uid, None)
        if not self._is_backing_off(pod.uid):
            self._write_again(pod)
        if pod.reservation is not None and pod.reservation.waiting:
            problems += self._plan_again(pod)
        else:
            self._set_unplanned(pod.uid, False)
            if missing and not self._is_backing_off(pod.uid):
                problems += self._hold_again(pod, missing)
            problems += self._replace_withdrawn(pod)
        for key in self.held.of(pod.uid):
            claim = self._claims.get(key)
            for consumer in claim.status.reserved_for[:1] if claim is not None else ():
                problems.append(IN_USE.format(key.name, consumer.resource, consumer.name))
        if refused is not None:
            problems.append(refused.message)
        return "; ".join(problems)

    def missing(self, pod: PodRecord) -> str:
        """Which entries of a reservation on a node hold nothing although they should; empty if none."""
        lost = [each.name for each in self.entries_to_hold(pod) if self.held.get(each.key) is None]
        lost += [name for name, _ in self._unreadable_entries(pod)]
        return f"no devices are held for: {', '.join(lost)}" if lost else ""

    def _release_others(self, pod: PodRecord) -> None:
        """Has claims of a reservation deleted that are of no entry of its template."""
        ours = {self.key_of(pod, entry) for entry, _ in entries_of(pod)}
        if not self._is_backing_off(pod.uid):
            self._delete_holders(each for each in self.held.of(pod.uid) if each not in ours)
            to_hold = {each.key for each in self.entries_to_hold(pod)}
            self._delete_holders(
                key
                for key, reservation in self._broken_holders.items()
                if reservation == pod.uid and key not in to_hold
            )

    def _write_again(self, pod: PodRecord) -> None:
        """Decides the creation of claims again that was refused."""
        for key in self._flights_of.get(pod.uid, ()):
            flight = self._in_flight[key]
            if flight.is_refused:
                flight.is_refused = False
                self.decisions.append(self._creation(pod, key, before_bind=False))

    def _unreadable_entries(self, pod: PodRecord) -> list[tuple[str, str]]:
        """The entries without a claim that cannot be created again: their template or claim is gone."""
        lost = [(entry, trait.problem) for entry, trait in entries_of(pod) if trait.problem]
        return [each for each in lost if self.held.get(self.key_of(pod, each[0])) is None]

    def _hold_again(self, pod: PodRecord, missing: list[HeldEntry]) -> list[str]:
        """Creates claims again; with the devices that they have, that owners of the reservation use, or
        others."""
        gone = {each.key for each in missing}
        for user in self.allocated_pods(pod.uid):
            for key in self._consumed.get(user.uid, ()):
                if not any(True for _ in self.held.holding((self.allocation(key),))):
                    gone.add(key)
        had = [
            result.device_id
            for key in sorted(gone)
            if (allocation := self.allocation(key)) is not None
            for result in allocation.devices.results
        ]
        request = self.allocator.request([each.spec for each in missing])
        names = [ClaimName(pod.namespace, each.name, pod.uid) for each in missing]
        if request.missing_class is not None:
            why = NO_CLASS.format(*request.missing_class)
        else:
            use = self._without(gone, except_for=frozenset((pod.uid,)))
            found = self.allocator.allocate(request, pod.row, use, names, prefer=had)
            if not isinstance(found, ClaimsRefusal):
                self._create_again(pod, missing, found.results)
                return []
            why = found.message
        self.short[pod.uid] = None
        return [NOT_HELD.format(each.name, why) for each in missing]

    def _replace_withdrawn(self, pod: PodRecord) -> list[str]:
        """Holds other devices where one that an Available reservation holds is no longer published,
        unless an owner uses some of the entry. What is not held, if there are none."""
        problems = []
        for entry in self.entries_to_hold(pod):
            holder = self.held.get(entry.key)
            if holder is None or entry.key in self._in_flight:
                continue
            devices = [result.device_id for result in holder.held.devices.results]
            gone = [each for each in devices if self.catalogue.is_withdrawn(each, pod.row)]
            if not gone:
                continue
            found = self._others_for(pod, entry, holder, [each for each in devices if each not in gone])
            if found is not None:
                self._create_again(pod, [entry], found.results)
                continue
            self.short[pod.uid] = None
            problems.append(WITHDRAWN.format(entry.name, ", ".join(map("/".join, gone))))
        return problems

    def _others_for(
        self, pod: PodRecord, entry: HeldEntry, holder: HolderClaim, prefer: list[DeviceID]
    ) -> ClaimsAllocation | None:
        """Devices that can be held for an entry in place of those that are."""
        found = (self.catalogue.table.identities.find(r.device_id) for r in holder.held.devices.results)
        users = (self.use.holders(identity) for identity in found if identity is not None)
        is_used = any(user != entry.key for keys in users for user in keys)
        if is_used or entry.key not in self.unreserved_holders(pod.uid):
            return None
        request = self.allocator.request([entry.spec])
        if self._is_backing_off(pod.uid) or request.missing_class is not None:
            return None
        use = self._without({entry.key}, except_for=frozenset((pod.uid,)))
        names = [ClaimName(pod.namespace, entry.name, pod.uid)]
        others = self.allocator.allocate(request, pod.row, use, names, prefer=prefer)
        return None if isinstance(others, ClaimsRefusal) or has_shares(others) else others

    def _plan_again(self, pod: PodRecord) -> list[str]:
        """Plans other devices for a Waiting reservation, if enough are free now or if it cannot get
        those that it waits for. Why there are none, if so."""
        uid, row, wanted = pod.uid, pod.row, self.entries_to_hold(pod)
        if not wanted or not self.lacking(pod):
            self._set_unplanned(uid, False)
            return []
        if self._is_backing_off(uid) or uid in self._flights_of:
            return []
        request = self.allocator.request([each.spec for each in wanted])
        names = [ClaimName(pod.namespace, each.name, uid) for each in wanted]
        if request.missing_class is not None:
            self._set_unplanned(uid, True)
            why = NO_CLASS.format(*request.missing_class)
            return [NOT_HELD.format(each.name, why) for each in wanted]
        ours = self._own_holders(pod)
        now = self._without(ours, except_for=frozenset((uid,)))
        planned = [self.held.get(each.key) for each in wanted]
        devices = [r.device_id for each in planned if each for r in each.held.devices.results]
        use = self._without_users_of(devices)
        is_possible = all(planned) and not isinstance(
            self.allocator.allocate(request, row, use, names, only=devices), ClaimsRefusal
        )
        if is_possible and self._are_free(devices, now):
            self._set_unplanned(uid, False)
            return []  # they are yet to be written
        found = self.allocator.allocate(request, row, now, names, prefer=self._held_by(sorted(ours)))
        if isinstance(found, ClaimsRefusal) and (not is_possible or self._is_lost(pod, devices)):
            later, free = self._use_later(pod, row) or now, self._free_on(row)
            found = self.allocator.allocate(request, row, later, names, prefer=free)
            if isinstance(found, ClaimsRefusal) and not is_possible:
                self._set_unplanned(uid, True)
                return [NOT_HELD.format(each.name, found.message) for each in wanted]
        self._set_unplanned(uid, False)
        if not isinstance(found, ClaimsRefusal) and not has_shares(found):
            self._create_again(pod, wanted, found.results)
        return []

    def _are_free(self, devices: Iterable[DeviceID], use: UseSnapshot) -> bool:
        found = (self.catalogue.table.identities.find(each) for each in devices)
        return not any(identity is not None and use.is_allocated(identity) for identity in found)

    def _without_users_of(self, devices: Iterable[DeviceID]) -> UseSnapshot:
        """The use without the claims that have one of these devices."""
        found = (self.catalogue.table.identities.find(each) for each in devices)
        users = [self.use.holders(identity) for identity in found if identity is not None]
        return self.use.without(dict.fromkeys(key for keys in users for key in keys))

    def _is_lost(self, pod: PodRecord, devices: Iterable[DeviceID]) -> bool:
        """Whether somebody else got a device that a preemption hold waits for."""
        if pod.reservation is None or not pod.reservation.preemptor:
            return False
        going = {*self._released_on(pod.row, is_going), *self.held.of(pod.uid)}
        found = (self.catalogue.table.identities.find(each) for each in devices)
        users = (self.use.holders(identity) for identity in found if identity is not None)
        return any(user not in going for keys in users for user in keys)

    def _set_unplanned(self, reservation: str, unplanned: bool) -> None:
        """Records whether a reservation waits for devices that it cannot get."""
        if unplanned == (reservation in self.unplanned):
            return
        if unplanned:
            self.unplanned[reservation] = None
        else:
            del self.unplanned[reservation]
        for key in self.held.of(reservation):
            self._recount_use(key)

    def _create_again(
        self, pod: PodRecord, entries: list[HeldEntry], found: Iterable[AllocationResult]
    ) -> None:
        """Has claims written with these devices, as far as they do not hold them."""
        flights = self._flights_of.get(pod.uid, ())
        changed = []
        for entry, allocation in zip(entries, found, strict=True):
            holder = self.held.get(entry.key)
            if holder is None or not _is_same_plan(holder.held, allocation):
                self._fly_holder(pod, entry, allocation)
                flights += (entry.key,)
                changed.append(entry)
        if changed:
            self._flights_of[pod.uid] = flights
        for entry in changed:
            self._recount_use(entry.key)
            self._stamp(entry.key)
            self.decisions.append(self._creation(pod, entry.key, before_bind=False))

    def _release_holders(self) -> None:
        """Has the claims of reservations deleted that are gone or finished, or lost their node."""
        for reservation in self.held.reservations():
            if self.is_live(reservation):
                continue
            if reservation in self._flights_of and reservation not in self._orphans:
                self._release(reservation)
            if not self._is_backing_off(reservation):
                self._delete_holders(self.held.of(reservation))
        for key, reservation in self._broken_holders.items():
            if not self.is_live(reservation) and not self._is_backing_off(reservation):
                self._delete_holders((key,))

    def _delete_holders(self, keys: Iterable[ResourceClaimKey]) -> None:
        for key in keys:
            claim, reservation = self._claims.get(key), self._reservation_of(key)
            if claim is None or not reservation or claim.metadata.uid in self._released:
                continue
            self._released.add(claim.metadata.uid)
            self.decisions.append(DeleteClaim(claim_ref(claim), reservation))

    def _reservation_of(self, key: ResourceClaimKey) -> str:
        """The uid of the reservation that a claim holds devices for, or should; empty if none."""
        holder = self.held.get(key)
        return holder.reservation if holder is not None else self._broken_holders.get(key, "")

    # Refusals

    def write_refused(
        self,
        decision: ReserveClaim | DeallocateClaim | CreateHolder | HoldDevices | DeleteClaim,
        why: str,
    ) -> None:
        """A claim was not written."""
        if isinstance(decision, ReserveClaim):
            if decision.pod.uid in self.waiting:
                self.refused[decision.pod.uid] = why
            elif decision.waits:
                self.bind_settled(decision.pod.uid)
        elif isinstance(decision, CreateHolder):
            meta = decision.claim.metadata
            key = ResourceClaimKey(meta.namespace, meta.name)
            flight = self._in_flight.get(key)
            self.counts.created["Reservation", "failure"] += 1
            if flight is not None and flight.holder is not None:
                flight.is_refused = True  # its devices stay held here, and owners wait for it
            self._back_off(decision.reservation.uid, key, why)
        elif isinstance(decision, HoldDevices | DeleteClaim):
            key = ResourceClaimKey(decision.claim.namespace, decision.claim.name)
            self._holds_decided.pop(key, None)
            self._released.discard(decision.claim.uid)
            if reservation := self._reservation_of(key):
                self._recount_use(key)
                self._outdated_holders[key] = None
                self._back_off(reservation, key, why)

    def _back_off(self, reservation: str, key: ResourceClaimKey, why: str) -> None:
        self.counts.refused += 1
        before = self._refused_writes.get(reservation)
        times = before.times + 1 if before is not None else 1
        delay = min(_FIRST_BACK_OFF * 2.0 ** min(times - 1, 30), _MAX_BACK_OFF)
        claims = before.claims | {key} if before is not None else {key}
        due = self._cluster.now + delay
        message = NOT_WRITTEN.format(key, why)
        self._refused_writes[reservation] = RefusedWrite(message, due, times, claims)
        self.holder_changed(reservation)

    def _is_backing_off(self, reservation: str) -> bool:
        refused = self._refused_writes.get(reservation)
        return refused is not None and refused.due > self._cluster.now

    def _settle_refusal(self, reservation: str, key: ResourceClaimKey) -> None:
        """A claim of a reservation is as it should be, or gone."""
        refused = self._refused_writes.get(reservation)
        if refused is not None:
            refused.claims.discard(key)
            if not refused.claims:
                del self._refused_writes[reservation]
                self.holder_changed(reservation)

    def retry(self) -> None:
        """Has the writes decided again that were refused and whose back-off is over."""
        for reservation, refused in self._refused_writes.items():
            if refused.due <= self._cluster.now and self.is_live(reservation):
                self.holder_changed(reservation)

    def next_timer(self) -> float | None:
        """When the first back-off of a refused write is over."""
        now = self._cluster.now
        times = (refused.due for refused in self._refused_writes.values())
        return min((due for due in times if due > now), default=None)


def _is_same_plan(one: AllocationResult, other: AllocationResult) -> bool:
    """Whether both are the same devices for the same requests, in any order."""
    listed = [[(each.request, each.device_id) for each in of.devices.results] for of in (one, other)]
    return sorted(listed[0]) == sorted(listed[1])


def has_devices(allocation: AllocationResult | None, wanted: AllocationResult | None) -> bool:
    """Whether both are the same devices, and the same parts of them."""
    if allocation is None or wanted is None:
        return allocation is wanted
    return _amounts(allocation) == _amounts(wanted)


def _amounts(allocation: AllocationResult) -> list[object]:
    """The devices of an allocation, with what is consumed of shared ones."""
    return [
        (each.device_id, {name: nano(value) for name, value in each.consumed_capacity.items()})
        for each in allocation.devices.results
    ]
