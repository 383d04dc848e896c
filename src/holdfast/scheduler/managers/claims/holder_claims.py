"""What is written about claims, and the claims with which reservations hold devices.

A part of the claim manager (`claim_manager`). A reservation on a node has one claim for each entry of
its template's `resourceClaims`. The claims are brought in line whenever they differ from that:

    missing, or edited so that it holds nothing    created again, with the same devices where possible
    other devices than nobody else uses            its allocation is written again
    reservation gone, finished or without a node   deleted

A write that the API server refuses is decided again after a back-off.
"""

from collections.abc import Iterable

from holdfast.api.resource_claims import AllocationResult
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
from holdfast.scheduler.managers.claims.allocation import ClaimName, ClaimsRefusal
from holdfast.scheduler.managers.claims.claim_reservations import (
    ClaimReservations,
    HeldEntry,
    claim_ref,
    entries_of,
    has_shares,
    is_going,
)
from holdfast.scheduler.managers.claims.claims_in_use import RefusedWrite
from holdfast.scheduler.managers.claims.device_table import nano
from holdfast.scheduler.managers.claims.extended_resources import new_extended_claim
from holdfast.scheduler.managers.claims.held_devices import HolderClaim, new_holder_claim
from holdfast.scheduler.managers.claims.pod_claims import ResourceClaimKey

NOT_WRITTEN = "claim {} is not written: {}"
NOT_HELD = "devices of the entry {} are not held: {}"
_FIRST_BACK_OFF = 1.0
_MAX_BACK_OFF = 60.0


class HolderClaims(ClaimReservations):
    """Decides what is written about claims."""

    def to_write(self, pod: PodRecord, waits: bool = False) -> list[Decision]:
        """What is to be written about the claims of a pod before it is bound."""
        decisions: list[Decision] = []
        if pod.reservation_uid:
            decisions += self._to_hold(self.held.of(pod.reservation_uid), before_bind=not waits)
        for key in self._flights_of.get(pod.uid, ()):
            flight = self._in_flight[key]
            if flight.holder is not None:
                decisions.append(self._creation(pod, key, before_bind=True))
            elif flight.spec is None:
                claim = claim_ref(self._claims[key])
                group = flight.groups.get(pod.uid)
                decisions.append(ReserveClaim(claim, pod.ref, flight.allocation, waits, group))
            elif flight.allocation is not None and not waits:
                created = new_extended_claim(pod.ref, flight.spec)
                decisions.append(CreateClaim(created, flight.allocation, pod.ref, flight.mappings))
        return decisions

    def _creation(self, pod: PodRecord, key: ResourceClaimKey, before_bind: bool) -> CreateHolder:
        """The creation of a claim with which a reservation holds devices, which is in flight."""
        flight = self._in_flight[key]
        assert flight.holder is not None and flight.spec is not None
        made = new_holder_claim(pod.ref, key, flight.spec, flight.holder.held)
        rest = self._rest_of(key, flight.holder)
        flight.is_empty = rest is None
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
            rest = self._rest_of(key, holder)
            written = self._holds_decided.get(key, claim.status.allocation)
            if not has_devices(written, rest):
                self._holds_decided[key] = rest
                decisions.append(HoldDevices(claim_ref(claim), rest, before_bind))
        return decisions

    # Claims of reservations

    def is_writing_holders(self, reservation: str) -> bool:
        """Whether claims of a reservation are in flight."""
        return any(
            self._in_flight[key].holder is not None for key in self._flights_of.get(reservation, ())
        )

    def lacking(self, pod: PodRecord) -> bool:
        """Whether a reservation waits for devices: it holds some that others use, its owners excepted,
        or that its claim does not have yet."""
        for key in self.held.of(pod.uid):
            holder = self.held.get(key)
            assert holder is not None
            rest = self._rest_of(key, holder)
            if not has_devices(rest, holder.held) and not self._is_used_by_owners(key, holder):
                return True
            claim = self._claims.get(key)
            if key not in self._in_flight and (
                claim is None or not has_devices(claim.status.allocation, rest)
            ):
                return True
        return False

    def is_getting_devices(self, pod: PodRecord) -> bool:
        """Whether nobody else uses the devices that a reservation waits for, and they are yet to be
        written to its claims."""
        keys = self.held.of(pod.uid)
        holders = [(key, self.held.get(key)) for key in keys]
        return bool(keys) and all(
            holder is not None and has_devices(self._rest_of(key, holder), holder.held)
            for key, holder in holders
        )

    def _is_used_by_owners(self, key: ResourceClaimKey, holder: HolderClaim) -> bool:
        """Whether the devices that others use of those that a reservation holds are its owners'."""
        identities = self.catalogue.table.identities
        for result in holder.held.devices.results:
            identity = identities.find(result.device_id)
            for user in self.use.holders(identity) if identity is not None else ():
                if user != key and not self._is_of_owners(user, holder.reservation):
                    return False
        return True

    def hold(self, pod: PodRecord) -> str:
        """Creates the claims again that a reservation on a node should have and has not; why devices
        are not held or not written, if so."""
        refused = self._refused_writes.get(pod.uid)
        self._release_others(pod)
        missing = [each for each in self.entries_to_hold(pod) if self.held.get(each.key) is None]
        if not missing and pod.reservation is not None and pod.reservation.preemptor:
            self._plan_again(pod)
        problems = [NOT_HELD.format(*each) for each in self._unreadable_entries(pod)]
        if not self._is_backing_off(pod.uid):
            self._write_again(pod)
        if missing and not self._is_backing_off(pod.uid):
            problems += self._hold_again(pod, missing)
        else:
            self.short.pop(pod.uid, None)
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
            why = "device class {1} does not exist".format(*request.missing_class)
        else:
            use = self._without(gone, except_for=frozenset((pod.uid,)))
            found = self.allocator.allocate(request, pod.row, use, names, prefer=had)
            if not isinstance(found, ClaimsRefusal):
                self.short.pop(pod.uid, None)
                self._create_again(pod, missing, found.results)
                return []
            why = found.message
        self.short[pod.uid] = None
        return [NOT_HELD.format(each.name, why) for each in missing]

    def _plan_again(self, pod: PodRecord) -> None:
        """Plans other devices for a preemption hold, if somebody else got one that it waited for."""
        ours = set(self.held.of(pod.uid))
        going = {*self._released_on(pod.row, is_going)} | ours
        identities = self.catalogue.table.identities
        lost = any(
            user not in going
            for key in ours
            if (holder := self.held.get(key)) is not None
            for result in holder.held.devices.results
            if (identity := identities.find(result.device_id)) is not None
            for user in self.use.holders(identity)
        )
        wanted = [each for each in self.entries_to_hold(pod) if each.key in ours]
        if not lost or not wanted or self._is_backing_off(pod.uid) or pod.uid in self._flights_of:
            return
        use = self._without(going, except_for=frozenset((pod.uid,)))
        request = self.allocator.request([each.spec for each in wanted])
        names = [ClaimName(pod.namespace, each.name, pod.uid) for each in wanted]
        found = self.allocator.allocate(request, pod.row, use, names, prefer=self._free_on(pod.row))
        if isinstance(found, ClaimsRefusal) or has_shares(found):
            return
        planned = [holder.held for each in wanted if (holder := self.held.get(each.key)) is not None]
        if planned != list(found.results):
            self._create_again(pod, wanted, found.results)

    def _create_again(
        self, pod: PodRecord, missing: list[HeldEntry], found: Iterable[AllocationResult]
    ) -> None:
        flights = self._flights_of.get(pod.uid, ())
        for entry, allocation in zip(missing, found, strict=True):
            self._fly_holder(pod, entry, allocation)
            flights += (entry.key,)
        self._flights_of[pod.uid] = flights
        for entry in missing:
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

    def _delete_holders(self, keys: Iterable[ResourceClaimKey]) -> None:
        for key in keys:
            claim, holder = self._claims.get(key), self.held.get(key)
            if claim is None or holder is None or claim.metadata.uid in self._released:
                continue
            self._released.add(claim.metadata.uid)
            self.decisions.append(DeleteClaim(claim_ref(claim), holder.reservation))

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
            holder = self.held.get(key)
            if holder is not None:
                self._outdated_holders[key] = None
                self._back_off(holder.reservation, key, why)

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
