"""The reservation cache: all reservations, kept in line with objects, nodes and pods.

The event handlers (`ReservationHandlers`) read the objects. The capacity that a reservation holds on a
row is in the ledger. Pods are linked to the reservation they are allocated from by its uid, so that
either can be seen first. The lifecycle controller reconciles the reservations in `dirty`.
"""

from collections.abc import Callable
from typing import NamedTuple, Protocol

from holdfast.api.calendar import AtEnd, CalendarTerms
from holdfast.api.meta import ObjectMeta
from holdfast.api.reservation import ReservationPhase
from holdfast.scheduler.cluster.base import ClusterBase
from holdfast.scheduler.cluster.decisions import Decision, DeleteReservation
from holdfast.scheduler.cluster.events import Change
from holdfast.scheduler.cluster.records import Phase, PodRecord, ReservationEntry, ReservationInfo
from holdfast.scheduler.cluster.slots import PODS, Amounts
from holdfast.scheduler.managers.resource_managers import ResourceManagers
from holdfast.scheduler.managers.volumes import VolumeManager
from holdfast.scheduler.reservations.calendar import Calendar
from holdfast.scheduler.reservations.owners import OwnerSpec
from holdfast.scheduler.reservations.reservation_index import ReservationIndex
from holdfast.scheduler.reservations.reservation_victims import (
    INCOMPLETE_GANG,
    INVALID_CAN_PREEMPT,
    INVALID_PRIORITY,
    PreemptedReservations,
    is_soft_evicted,
)
from holdfast.scheduler.reservations.reserve_pod import namespace_of
from holdfast.scheduler.reservations.starvation_holds import StarvationHolds, is_starvation_hold
from holdfast.scheduler.reservations.waiting_reservations import WaitingReservations


class ReservationListener(Protocol):
    """Receives the changes of reservations that concern jobs and pod classes."""

    def reserve_pod_read(self, pod: PodRecord, metadata: ObjectMeta) -> None:
        """The object of a reservation was read; it may name another job than before."""

    def reserve_pod_gone(self, pod: PodRecord) -> None:
        """A reservation has no reserve pod any more."""

    def reservation_succeeded(self, metadata: ObjectMeta, namespace: str) -> None:
        """A reservation ended as it should; its owners are in the namespace."""

    def reservation_deleted(self, uid: str) -> None:
        """The object of a reservation was deleted."""

    def pods_named(self, name: str, uid: str) -> None:
        """Owners of reservations began or ceased to name pods with this name, or this uid."""

    def groups_named(self) -> None:
        """Owners of reservations began or ceased to name PodGroups."""


class _StatusAmounts(NamedTuple):
    """Amounts, which are never changed, as the status lists them."""

    amounts: Amounts
    pods_too: bool
    by_name: dict[str, int]
    listed: tuple[tuple[int, str], ...]


class ReservationCache(ReservationIndex):
    """All reservations, and the changes that they go through."""

    def __init__(
        self,
        cluster: ClusterBase,
        managers: ResourceManagers,
        volumes: VolumeManager,
        listener: ReservationListener,
    ) -> None:
        super().__init__(cluster)
        self._cluster = cluster
        self._managers = managers
        self._volumes = volumes
        self._listener = listener
        self._ledger = cluster.ledger
        self.dirty: dict[str, None] = {}
        """The uids of reservations whose status, phase or amounts may have to change."""
        self.waiting = WaitingReservations(cluster, managers, volumes, self.known, self.allocated_pods)
        self.not_created: dict[str, str] = {}
        """The occurrences of schedules whose creation was refused, by name, and why."""
        self.starvation_holds = StarvationHolds(
            cluster, self.specs, self.members, self.preemption_holds
        )
        """Reservations that hold capacity for pods of starving jobs."""
        self.calendar = Calendar(cluster, self.capacity_freed)
        """Reservations that start later, and the nodes planned for them."""
        self.preempted = PreemptedReservations()
        """Reservations that are preempted by others."""
        self.short_of_devices: dict[str, None] = {}
        """The uids of reservations that lost devices and whose node has no others free."""
        self.softly_evicted: dict[str, None] = {}
        """The uids of reservations with the soft-eviction annotation."""
        self.evicting: dict[str, None] = {}
        """The uids of reservations whose owners are evicted when they expire."""
        self.on_dropped: list[Callable[[ReservationInfo], None]] = []
        """Called with a reservation whose object was deleted, as it was before."""
        self.are_kept = True
        """Whether the API server has the kind Reservation."""
        self._last_amounts = _StatusAmounts({}, False, {}, ())
        self._ledger.listeners.append(self._pod_moved)
        self._ledger.allocation_listeners.append(self.pod_allocated)
        cluster.limits.on_counted.append(self._count_limits)

    # Objects

    def add(self, reservation: ReservationInfo) -> None:
        """Adds a reservation that is not known."""
        self._add(reservation)
        self._cluster.epoch.reservations.add(reservation.uid)
        if not reservation.virtual:
            self.note(reservation, "added")

    def drop(self, uid: str, why: str = "deleted") -> None:
        """Removes a reservation whose object was deleted; `why` is the entry in its story."""
        reservation = self.known.get(uid)
        if reservation is None:
            return
        for notify in self.on_dropped:
            notify(reservation)
        self._remove(uid)
        self.softly_evicted.pop(uid, None)
        self.evicting.pop(uid, None)
        for reason in (INVALID_PRIORITY, INVALID_CAN_PREEMPT, INCOMPLETE_GANG):
            self._cluster.warn_once(reservation.ref, reason, "")
        self.let_go(reservation)
        self.starvation_holds.drop(reservation)
        self._listener.reservation_deleted(reservation.object.metadata.uid)
        self.dirty.pop(uid, None)
        self.note(reservation, why)

    def set_owners(self, reservation: ReservationInfo, spec: OwnerSpec, preemptor: str) -> None:
        """Sets its owner spec, instead of the one it had, which is released; of a preemption hold also
        the uid of the preemptor."""
        self._leave_spec(reservation)
        reservation.preemptor = preemptor
        before = self.names_groups
        for named in self._join_owners(reservation, spec):
            self._listener.pods_named(named.name, named.uid)
        if self.names_groups != before:
            self._listener.groups_named()

    def _leave_spec(self, reservation: ReservationInfo) -> None:
        if reservation.owner_spec_id >= 0:
            before = self.names_groups
            for named in self._leave_owners(reservation):
                self._listener.pods_named(named.name, named.uid)
            if self.names_groups != before:
                self._listener.groups_named()

    def take_dirty(self) -> dict[str, None]:
        """The reservations in `dirty`, which is empty then."""
        dirty, self.dirty = self.dirty, {}
        return dirty

    def take_not_created(self) -> dict[str, str]:
        """The reservations in `not_created`, which is empty then."""
        refused, self.not_created = self.not_created, {}
        return refused

    # Ends

    def delete(self, reservation: ReservationInfo, why: str) -> list[Decision]:
        """Closes the reservation to owners and deletes it: now, or once bindings of its owners that are
        in progress are done, when the lifecycle controller calls this again. All deletions go through
        here."""
        is_new = not reservation.deleting
        if reservation.terminating or not (is_new or reservation.deletion_reason):
            return []
        if is_new:
            reservation.deleting = True
            self.mark_changed(reservation)
        if self.is_being_bound(reservation):
            reservation.deletion_reason = why
            return []
        reservation.deletion_reason = ""
        return [DeleteReservation(reservation.ref, why)]

    def close_if_expired(self, reservation: ReservationInfo, is_over: bool) -> bool:
        """Closes a reservation to owners while its time is over but bindings of its owners are still in
        progress. Returns whether it expires now: its time is over, and no binding is in progress."""
        expiring = is_over and self.is_being_bound(reservation)
        if expiring != reservation.expiring:
            reservation.expiring = expiring
            if is_over:
                self.mark_changed(reservation)
            else:
                self.wake_owners(reservation)
        return is_over and not expiring

    def finish(self, reservation: ReservationInfo, reason: str) -> None:
        """Marks the reservation finished and releases its capacity."""
        if not reservation.finished:
            self.note(reservation, reason.lower())
        reservation.finished = reason
        self.starvation_holds.drop(reservation)
        if reason == ReservationPhase.SUCCEEDED:
            meta, namespace = reservation.object.metadata, namespace_of(reservation.object)
            self._listener.reservation_succeeded(meta, namespace)
        self.let_go(reservation)
        self.dirty[reservation.uid] = None

    def let_go(self, reservation: ReservationInfo) -> None:
        """Releases its capacity, its reserve pod, its owner spec and its place in the calendar: it is
        gone or finished, or became invalid before it had a node."""
        self.calendar.drop(reservation.uid)
        pod = reservation.pod
        if pod is None or pod.row < 0:
            self._cluster.epoch.reservations.add(reservation.uid)
        if pod is not None:
            if self._cluster.listener is not None:
                self._cluster.listener.pod_settled(pod)
            if pod.row >= 0:
                self.waiting.leave(reservation)
                self.set_victims(reservation, frozenset())
                self.mark_changed(reservation)
                self._ledger.release(pod)
                self._cluster.changed(Change.POD_LEFT)
            pod.phase = Phase.PENDING
            pod.gone = True
            self._listener.reserve_pod_gone(pod)
            self._managers.forget(pod.uid)
            self._cluster.classes.release(pod.cls)
            reservation.pod = None
        self._leave_spec(reservation)

    # The capacity it holds

    def set_amounts(self, reservation: ReservationInfo, amounts: Amounts) -> None:
        """Sets what it holds, or is to hold, and what its status lists of that."""
        reservation.amounts = amounts
        # The status does not list the one pod slot that every reservation has.
        pods_too = reservation.counts_pods or amounts.get(PODS, 0) > 1
        if self._last_amounts.amounts is not amounts or self._last_amounts.pods_too != pods_too:
            self._last_amounts = self._status_amounts(amounts, pods_too)
        reservation.amounts_by_name, reservation.listed = (
            self._last_amounts.by_name,
            self._last_amounts.listed,
        )

    def _status_amounts(self, amounts: Amounts, pods_too: bool) -> _StatusAmounts:
        slots = self._nodes.slots
        named = sorted((slots.name(slot), slot) for slot in amounts if slots.name(slot))
        listed = tuple([(slot, name) for name, slot in named if slot != PODS or pods_too])
        return _StatusAmounts(amounts, pods_too, self.by_name(amounts.items()), listed)

    def assume(self, reservation: ReservationInfo, row: int) -> None:
        """Holds its amounts on this row, before its status is written."""
        pod = reservation.pod
        assert pod is not None
        self._ledger.reserve(pod, row, reservation.amounts)
        reservation.node_gone = False
        reservation.message = ""
        may_wait = reservation.pre_allocation and not reservation.replaces_virtual
        if reservation.victims or (may_wait and not self.has_capacity(reservation)):
            self.waiting.join(reservation)
            if not reservation.victims and self.has_capacity(reservation):
                # The CPUs or devices that are free were planned for others that come after it.
                self.waiting.leave(reservation)
        if reservation.victims:
            self.set_victims(reservation, reservation.victims)
        pod.phase = Phase.ASSUMED
        self.mark_changed(reservation)

    def unassume(self, reservation: ReservationInfo) -> None:
        """Releases what it holds: its status was not written, or it was only tried."""
        pod = reservation.pod
        assert pod is not None
        reservation.last_status = None
        reservation.message = pod.condition_message  # the object may not have the condition yet
        self.waiting.leave(reservation)
        self.set_victims(reservation, frozenset())
        self._ledger.release(pod)
        pod.phase = Phase.PENDING
        self.mark_changed(reservation)

    def confirm(self, reservation: ReservationInfo) -> None:
        """Marks it assigned: its status with the node was written."""
        pod = reservation.pod
        assert pod is not None
        pod.phase = Phase.ASSIGNED
        reservation.message = self.victims_message(reservation)
        if self._cluster.listener is not None:
            self._cluster.listener.bind_confirmed(pod)
        self.note(
            reservation, "waiting" if reservation.waiting else "available", self._nodes.name(pod.row)
        )
        self.wake_owners(reservation)

    def make_available(self, reservation: ReservationInfo) -> None:
        """Makes a Waiting reservation Available: all it reserves is free."""
        assert reservation.pod is not None
        self._managers.accept(reservation.pod)
        self.waiting.leave(reservation)
        self.set_victims(reservation, frozenset())
        reservation.message = ""
        self.note(reservation, "available")
        self.wake_owners(reservation)

    def set_calendar(self, reservation: ReservationInfo, terms: CalendarTerms) -> None:
        """Sets its calendar annotations."""
        reservation.set_calendar(terms)
        uid, was = reservation.uid, reservation.uid in self.evicting
        if terms.at_end == AtEnd.EVICT:
            self.evicting[uid] = None
        else:
            self.evicting.pop(uid, None)
        if was or uid in self.evicting:
            self._cluster.epoch.reservations.add(uid)

    def set_victims(self, reservation: ReservationInfo, victims: frozenset[str]) -> None:
        """Sets the reservations that it preempts, instead of those it did before."""
        before = reservation.victims
        if not before and not victims:
            return
        self.preempted.end(reservation)
        reservation.victims = victims
        self.preempted.begin(reservation)
        reservation.message = self.victims_message(reservation) or reservation.message
        for uid in sorted(before | victims):
            victim = self.known.get(uid)
            if victim is not None:
                self.update_eviction(victim)

    def update_eviction(self, reservation: ReservationInfo) -> None:
        """Updates `being_evicted`: whether it is preempted, or has the soft-eviction annotation."""
        soft = is_soft_evicted(reservation.object)
        if soft:
            self.softly_evicted[reservation.uid] = None
        else:
            self.softly_evicted.pop(reservation.uid, None)
        leaving = soft or reservation.uid in self.preempted
        if leaving != reservation.being_evicted:
            reservation.being_evicted = leaving
            reservation.marked = False
            if leaving:
                self.mark_changed(reservation)
            else:
                self.wake_owners(reservation)

    def awaits(self, reservation: ReservationInfo) -> list[ReservationInfo]:
        """The reservations that it preempts and that are not gone yet."""
        found = (self.known.get(uid) for uid in sorted(reservation.victims))
        return [each for each in found if each is not None and each.pod is not None]

    def victims_message(self, reservation: ReservationInfo) -> str:
        """The message for the victims it waits for; empty if they are gone."""
        names = ", ".join(sorted(each.name for each in self.awaits(reservation)))
        return f"waiting for preempted reservations to be gone: {names}" if names else ""

    def waiting_pre_allocations(self) -> list[ReservationEntry]:
        """The Waiting reservations, but for starvation holds."""
        return [
            entry
            for there in self.waiting.on_row.values()
            for uid in there
            if (entry := self.known[uid].entry) is not None
            if not self.starvation_holds.knows(self.known[uid])
        ]

    def make_waiting(self, reservation: ReservationInfo) -> None:
        """Makes it Waiting: a backfilled pod that ends in time gets its capacity."""
        self.waiting.join(reservation)
        self.note(reservation, "waiting")
        self.mark_changed(reservation)

    def has_capacity(self, reservation: ReservationInfo, amounts: Amounts | None = None) -> bool:
        """Whether its row has enough for what it reserves, or for these amounts instead."""
        return not self.waiting.lacking(reservation, amounts)

    def lacking(self, reservation: ReservationInfo, amounts: Amounts | None = None) -> list[str]:
        """The resources of which its row has too little for that."""
        return self.waiting.lacking(reservation, amounts)

    def _count_limits(self) -> None:
        """Adds limits to what reservations hold, after limits began to be counted."""
        for reservation in self.known.values():
            pod = reservation.pod
            if pod is None:
                continue
            reservation.wanted, reservation.amounts = (
                dict(reservation.wanted),
                dict(reservation.amounts),
            )
            pod.cls.limits.hold(reservation.wanted)
            pod.cls.limits.hold(reservation.amounts)
            if pod.row >= 0:
                self._ledger.resize(pod, reservation.amounts)

    def resize(self, reservation: ReservationInfo, amounts: Amounts) -> None:
        """Makes these amounts what it holds."""
        pod = reservation.pod
        assert pod is not None
        self._ledger.resize(pod, amounts)
        self._managers.renew(pod)
        self.set_amounts(reservation, amounts)
        reservation.resized = True
        self.note(reservation, "resized")
        self.wake_owners(reservation)
        self.capacity_freed(pod.row)

    def record_unschedulable(self, reservation: ReservationInfo, message: str) -> None:
        """Records why it was not scheduled."""
        reservation.message = message
        self.dirty[reservation.uid] = None

    def not_written(self, uid: str) -> None:
        """Has its status written again after a write failed."""
        reservation = self.known.get(uid)
        if reservation is not None:
            reservation.last_status = None
            if reservation.deleting:
                reservation.deleting, reservation.deletion_reason = False, ""
                self.starvation_holds.dropped.discard(uid)
                self.mark_changed(reservation)
            reservation.marked = False
            self.dirty[uid] = None

    # Following nodes and pods

    def node_deleted(self, row: int) -> None:
        """Marks reservations of the row as lost, even if a node of the same name is created before the
        lifecycle controller runs."""
        for entry in self._ledger.reservations.on(row):
            if entry.pod.reservation is not None:
                entry.pod.reservation.node_gone = True

    def node_changed(self, row: int) -> None:
        for entry in self._ledger.reservations.on(row):
            if entry.pod.reservation is not None:
                self.mark_changed(entry.pod.reservation)

    def pod_confirmed(self, pod: PodRecord) -> None:
        """Marks the reservation of a pod that is bound now as dirty."""
        if pod.reservation_uid in self.known:
            self.dirty[pod.reservation_uid] = None

    def pod_nominated(self, pod: PodRecord) -> None:
        """Releases the preemption holds of a pod on nodes that it is no longer nominated to."""
        for hold in self.preemption_holds.get(pod.uid, {}).values():
            hold.released = hold.released or hold.wants_node != pod.nominated
            self.dirty[hold.uid] = None

    def preemptor_changed(self, pod: PodRecord) -> None:
        """Has the preemption holds of a pod checked again: it may not need them any more."""
        for hold in self.preemption_holds.get(pod.uid, {}).values():
            self.dirty[hold.uid] = None

    def preemptor_pending(self, pod: PodRecord) -> None:
        """Schedules the preemption holds of a pod that is pending again: it had the capacity itself."""
        listener = self._cluster.listener
        for hold in self.preemption_holds.get(pod.uid, {}).values():
            if listener is not None and hold.pod is not None and hold.pod.phase is Phase.PENDING:
                listener.pod_pending(hold.pod)

    def _pod_moved(self, pod: PodRecord, row: int, sign: int) -> None:
        if pod.reservation_uid:
            self.pod_allocated(pod, sign)
        if pod.reservation is not None and self._ledger.undoing:
            # It is back on its row. Caches may have followed it in the transaction, when it was not.
            self._cluster.epoch.reservations.add(pod.uid)
        if self.waiting.on_row or self.waiting.growing:
            self.capacity_freed(row)
        if self.short_of_devices:
            self._devices_came(row)

    def choose_units_again(self) -> None:
        """Chooses the CPUs and devices of pods that somebody else has bound again, on rows that
        changed, and plans those of Waiting reservations there. Called once a round."""
        if not self._managers.awake:
            return
        for row, differs in self._managers.choose_again().items():
            self.waiting.plan(row)
            self.capacity_freed(row)
            self._cluster.epoch.usage.add(row)
            if differs:
                self._cluster.changed(Change.POD_LEFT)

    def taken_from(self, pod: PodRecord) -> list[str]:
        """Whether other pods have ports or volumes of a pod on its row, by name. Reservations that the
        pod matches, on any row, do not count as others."""
        cls = pod.cls
        if not cls.ports and not cls.volumes:
            return []
        ours = {
            uid: reservation.pod
            for spec in self.specs.matching(cls)
            for uid, reservation in self.members.get(spec, {}).items()
            if reservation.pod is not None and reservation.pod.row >= 0
        }
        entry = self._ledger.reservations.get(pod.reservation_uid)
        if entry is not None:
            ours[entry.pod.uid] = entry.pod
        return self.waiting.claimed_by_others(cls, pod.row, [pod, *ours.values()])

    def capacity_freed(self, row: int) -> None:
        """Marks reservations dirty that wait for capacity on the row."""
        self.dirty.update(dict.fromkeys(self.waiting.candidates(row)))

    def _devices_came(self, row: int) -> None:
        """Marks reservations on the row dirty that lost devices."""
        for uid in list(self.short_of_devices):
            reservation = self.known.get(uid)
            if reservation is None or reservation.pod is None:
                del self.short_of_devices[uid]
            elif reservation.pod.row == row:
                self.dirty[uid] = None

    def replace_devices(self, reservation: ReservationInfo) -> bool:
        """Reserves other devices for those the node no longer has. Returns whether it did."""
        assert reservation.pod is not None
        replaced = self._managers.replace(reservation.pod)
        if replaced is False:
            self.short_of_devices[reservation.uid] = None
        elif self.short_of_devices:
            self.short_of_devices.pop(reservation.uid, None)
        if replaced:
            self.note(reservation, "devices replaced")
            self.wake_owners(reservation)
        return bool(replaced)

    def pod_allocated(self, pod: PodRecord, sign: int) -> None:
        """Follows the ledger: a pod is allocated from a reservation (sign 1) or no longer (-1). The
        status changes with bound pods only, unless the reservation is about to end."""
        if pod.cls.volumes:
            self._volumes.pod_allocated(pod)
        allocated_pods = self._allocated.get(pod.reservation_uid)
        if sign > 0:
            if allocated_pods is None:
                allocated_pods = self._allocated[pod.reservation_uid] = {}
            allocated_pods[pod.uid] = pod
        elif allocated_pods is not None:
            allocated_pods.pop(pod.uid, None)
            if not allocated_pods:
                del self._allocated[pod.reservation_uid]
        reservation = self.known.get(pod.reservation_uid)
        if reservation is not None and (pod.phase is Phase.ASSIGNED or reservation.ending):
            self.dirty[pod.reservation_uid] = None

    # Notifications

    def wake_owners(self, reservation: ReservationInfo) -> None:
        """Requeues pods: owners may fit now that did not before."""
        self.mark_changed(reservation)
        if reservation.preemptor and reservation.waiting:
            return  # its preemptor waits for it already
        holds_devices = reservation.pod is not None and bool(reservation.pod.cls.claims)
        self._cluster.changed(Change.POD_LEFT | (Change.DEVICES if holds_devices else Change.NONE))
        if reservation.preemptor:
            owner, listener = self._cluster.pods.get(reservation.preemptor), self._cluster.listener
            if (
                owner is not None
                and owner.phase is Phase.PENDING
                and not owner.deletion_pending
                and listener
            ):
                listener.pod_pending(owner)

    def mark_changed(self, reservation: ReservationInfo) -> None:
        """Marks it as changed, for the lifecycle controller and for caches."""
        self.starvation_holds.reservation_changed(reservation)
        self.dirty[reservation.uid] = None
        self._cluster.epoch.reservations.add(reservation.uid)
        if reservation.pod is not None and reservation.pod.row >= 0:
            self._cluster.epoch.usage.add(reservation.pod.row)

    def note(self, reservation: ReservationInfo, what: str, detail: str = "") -> None:
        """Adds an entry to its story."""
        if not is_starvation_hold(reservation):
            self._cluster.epoch.inputs += 1
        self._cluster.chronicle.note(self._cluster.now, reservation.ref, what, detail)
