"""Event handlers of ResourceClaims: claims that are added, changed or deleted.

A part of the claim manager (`claim_manager`).
"""

from holdfast.api.meta import Object, controller_of
from holdfast.api.resource_claims import (
    ResourceClaim,
)
from holdfast.scheduler.cluster.decisions import (
    DeleteClaim,
)
from holdfast.scheduler.cluster.events import Change
from holdfast.scheduler.cluster.records import Phase
from holdfast.scheduler.managers.claims.claim_feasibility import EXTENDED_RESOURCES
from holdfast.scheduler.managers.claims.claim_reservations import (
    claim_ref,
)
from holdfast.scheduler.managers.claims.extended_resources import (
    is_extended_claim,
)
from holdfast.scheduler.managers.claims.held_devices import (
    HolderClaim,
    broken_holder_of,
    holder_of,
)
from holdfast.scheduler.managers.claims.holder_claims import HolderClaims, has_devices
from holdfast.scheduler.managers.claims.pod_claims import (
    ResourceClaimKey,
)


class ClaimHandlers(HolderClaims):
    """Brings the state of claims in line with their objects."""

    def put_claim(self, before: ResourceClaim | None, after: ResourceClaim | None) -> None:
        """Follows a ResourceClaim that was added, changed or deleted."""
        some = after if after is not None else before
        assert some is not None
        key = _key(some)
        if after is None:
            self._claims.pop(key, None)
        else:
            self._claims[key] = after
        self._left(before, after)
        self._landed(key, after)
        self._note_allocation(key, before, after)
        if after is not None and _is_ending(after):
            self._ending[key] = None
        else:
            self._ending.pop(key, None)
        holder = holder_of(after) if after is not None else None
        self._note_broken_holder(key, after if holder is None else None)
        if holder is not None or self.held.get(key) is not None:
            self._holder_changed(key, holder, after)
        self._recount_use(key)
        if holder is not None and after is not None and _is_in_use(before) != _is_in_use(after):
            self._log(self._rows_of(holder.held))  # owners can get its devices, or cannot any more
            self._cluster.changed(Change.DEVICES)
        if key in self._named_by_reservations:
            self._named_changed(key, before, after)
        if is_extended_claim(some):
            self._extended_claim_changed(some, after)
        self._stamp(key, after)
        if _lost_allocation(before, after) or (
            self._cluster.nominator and _lost_consumer(before, after)
        ):
            self._cluster.changed(Change.DEVICES)
        if _concerns_its_pods(before, after):
            self.pods_changed(self.pods.pods(key))

    def _left(self, before: ResourceClaim | None, after: ResourceClaim | None) -> None:
        """Forgets the removal of consumers that the object does not have any more."""
        if before is None or not self._leaving:
            return
        same = after is not None and after.metadata.uid == before.metadata.uid
        still = (
            {each.uid for each in after.status.reserved_for} if same and after is not None else set()
        )
        for each in before.status.reserved_for:
            if each.uid not in still:
                self._leaving.discard((before.metadata.uid, each.uid))

    def _landed(self, key: ResourceClaimKey, claim: ResourceClaim | None) -> None:
        """Ends what is in flight for a claim as far as its object has it."""
        flight = self._in_flight.get(key)
        if flight is None or flight.holder is not None:
            return
        if claim is None or claim.metadata.uid != flight.uid:
            landed = flight.pods  # the claim is gone: so is everything decided about it
            if flight.allocation is not None:
                self._cluster.changed(Change.DEVICES)
        elif claim.status.allocation is None:
            return
        else:
            flight.allocation = None
            claim_uid = claim.metadata.uid
            landed = {uid for uid in flight.landed(claim) if (claim_uid, uid) not in self._leaving}
        for uid in sorted(landed):
            self._drop_flight(key, uid)

    def _note_broken_holder(self, key: ResourceClaimKey, claim: ResourceClaim | None) -> None:
        """Keeps which claims of reservations have no valid annotation."""
        reservation = broken_holder_of(claim) if claim is not None else ""
        before = self._broken_holders.pop(key, "")
        if reservation:
            self._broken_holders[key] = reservation
        elif before:
            self._settle_refusal(before, key)

    def _holder_changed(
        self, key: ResourceClaimKey, holder: HolderClaim | None, after: ResourceClaim | None
    ) -> None:
        """Follows a claim with which a reservation holds devices, or held some."""
        flight, before = self._in_flight.get(key), self.held.get(key)
        if flight is not None and flight.holder is not None:
            # The annotation is written first; then the allocation is cleared, and written again.
            is_written = after is not None and (
                has_devices(after.status.allocation, flight.written)
                or bool(after.status.reserved_for)
                or after.metadata.deletion_timestamp is not None
            )
            if holder is None or holder.held != flight.holder.held or not is_written:
                return  # the write is on its way
            self._drop_flight(key, holder.reservation)
            self.counts.created["Reservation", "success"] += 1
        self.held.put(key, holder)
        self._holds_decided.pop(key, None)
        self._holder_outdated(key)
        if before is not None and holder is None:
            # Claims with these devices are no longer preempted; reservations may wait for the pods that
            # have them now.
            self._log(self._rows_of(before.held))
            self._cluster.changed(Change.DEVICES)
        rest = self._rest_of(key, holder, written=True) if holder is not None else None
        is_settled = after is None or has_devices(after.status.allocation, rest)
        for each in (before, holder):
            if each is not None:
                self.holder_changed(each.reservation)
                if is_settled:
                    self._settle_refusal(each.reservation, key)

    def bind_refused(self, uid: str) -> None:
        """As `bind_settled`, for a bind that was refused: claims that were to be created for it and are
        still in flight were not."""
        for key in self._flights_of.get(uid, ()):
            flight = self._in_flight[key]
            if flight.spec is not None:
                kind = "Pod" if flight.holder is None else "Reservation"
                self.counts.created[kind, "failure"] += 1
        self.bind_settled(uid)

    def bind_settled(self, uid: str) -> None:
        super().bind_settled(uid)
        for key in self._flights_of.get(uid, ()):
            claim = self._claims.get(key)
            if self._in_flight[key].holder is not None and claim is not None:
                # It may have been as it should be before it was written.
                self._holder_changed(key, holder_of(claim), claim)
                self._recount_use(key)

    def _named_changed(
        self, key: ResourceClaimKey, before: ResourceClaim | None, after: ResourceClaim | None
    ) -> None:
        """Follows a claim that templates of reservations name."""
        for reservation in self._named_by_reservations[key]:
            self.holder_changed(reservation)
        if (
            before is None
            or after is None
            or before.metadata.deletion_timestamp != after.metadata.deletion_timestamp
        ):
            self.templates_changed()

    def reservation_dropped(self, uid: str) -> None:
        """Forgets a reservation that was deleted; its claims are deleted next."""
        self.short.pop(uid, None)
        self._set_unplanned(uid, False)
        for key, named in list(self._named_by_reservations.items()):
            named.pop(uid, None)
            if not named:
                del self._named_by_reservations[key]

    def _extended_claim_changed(self, some: ResourceClaim, after: ResourceClaim | None) -> None:
        """Follows a claim that a scheduler created for extended resources of a pod. One that is left
        from an earlier attempt is deleted: the next attempt may need another, and its devices."""
        owner = controller_of(some.metadata)
        if owner is None:
            return
        if after is not None:
            self._created_for.setdefault(owner.uid, set()).add(_key(after))
        elif (created_for := self._created_for.get(owner.uid)) is not None:
            created_for.discard(_key(some))
            if not created_for:
                del self._created_for[owner.uid]
        pod = self._cluster.pods.get(owner.uid)
        if pod is None or after is None or after.metadata.deletion_timestamp is not None:
            return
        created = ResourceClaimKey(pod.namespace, f"{EXTENDED_RESOURCES}/{pod.uid}")
        if after.status.allocation is not None and created in self._in_flight:
            self._drop_flight(created, pod.uid)
            self.counts.created["Pod", "success"] += 1
            self._recount_use(created)
        elif pod.phase is Phase.PENDING and pod.scheduler in self._cluster.settings.scheduler_names:
            self.decisions.append(DeleteClaim(claim_ref(after)))


def is_outdated(known: Object | None, seen: ResourceClaim) -> bool:
    """Whether a claim is older than the known version: a watch may deliver versions after a write has
    answered with a later one. Resource versions are numbers on every known server."""
    if known is None or known.metadata.uid != seen.metadata.uid:
        return False
    then, now = known.metadata.resource_version, seen.metadata.resource_version
    return then.isdigit() and now.isdigit() and int(now) < int(then)


def _key(claim: ResourceClaim) -> ResourceClaimKey:
    return ResourceClaimKey(claim.metadata.namespace, claim.metadata.name)


def _lost_allocation(before: ResourceClaim | None, after: ResourceClaim | None) -> bool:
    return (
        before is not None
        and before.status.allocation is not None
        and (after is None or after.status.allocation is None)
    )


def _is_ending(claim: ResourceClaim) -> bool:
    """Whether a claim is being deleted and reserved for somebody."""
    return claim.metadata.deletion_timestamp is not None and bool(claim.status.reserved_for)


def _is_in_use(claim: ResourceClaim | None) -> bool:
    return claim is not None and bool(claim.status.reserved_for)


def _lost_consumer(before: ResourceClaim | None, after: ResourceClaim | None) -> bool:
    """Whether a claim has fewer consumers: a victim may be gone, while others that use the claim keep
    its devices from the preemptor."""
    if before is None or after is None:
        return False
    return len(after.status.reserved_for) < len(before.status.reserved_for)


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
