"""The reservation cache: all reservations, kept in line with objects, nodes and pods.

Event handlers call `put` and `drop` with objects. The capacity that a reservation holds on a row is in
the ledger. Pods are linked to the reservation they are allocated from by its uid, so that either can be
seen first. The lifecycle controller reconciles the reservations in `dirty`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from holdfast.api import names
from holdfast.api.meta import ObjectMeta
from holdfast.api.reservation import Reservation, ReservationPhase
from holdfast.scheduler.cluster.decisions import Decision, DeleteReservation
from holdfast.scheduler.cluster.events import Change
from holdfast.scheduler.cluster.pod_classes import PodClass, Traits
from holdfast.scheduler.cluster.pods import Phase, PodRecord
from holdfast.scheduler.cluster.reservation_table import Amounts, ReservationRow
from holdfast.scheduler.jobs.starvation_holds import is_starvation_hold
from holdfast.scheduler.reservations.matched_reservations import MatchedReservations
from holdfast.scheduler.reservations.owners import OwnerSpecs
from holdfast.scheduler.reservations.preemption_holds import PreemptionHolds
from holdfast.scheduler.reservations.reservation_affinity import RequiredReservation
from holdfast.scheduler.reservations.reservation_handlers import ReservationHandlers
from holdfast.scheduler.reservations.reservation_info import ReservationInfo
from holdfast.scheduler.reservations.reservation_victims import PreemptedReservations, is_soft_evicted
from holdfast.scheduler.reservations.reserve_pod import namespace_of
from holdfast.scheduler.reservations.waiting_reservations import WaitingReservations

if TYPE_CHECKING:
    from holdfast.scheduler.cluster.cluster import Cluster


class ReservationCache:
    """All reservations, by uid."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._ledger = cluster.ledger
        self._nodes = cluster.nodes
        self.known: dict[str, ReservationInfo] = {}
        """By uid."""
        self.specs = OwnerSpecs(cluster.epoch)
        self.members: dict[int, dict[str, ReservationInfo]] = {}
        """The reservations of each owner spec, by its id and their uid."""
        self.dirty: dict[str, None] = {}
        """The uids of reservations whose status, phase or amounts may have to change."""
        self._allocated: dict[str, dict[str, PodRecord]] = {}
        self.waiting = WaitingReservations(self, cluster)
        self.preemption_holds = PreemptionHolds()
        """Reservations that keep what victims leave for their preemptor."""
        self.preempted = PreemptedReservations()
        """Reservations that are preempted by others."""
        self.short_of_devices: dict[str, None] = {}
        """The uids of reservations that lost devices and whose node has no others free."""
        self.softly_evicted: dict[str, None] = {}
        """The uids of reservations with the soft-eviction annotation."""
        self.are_kept = True
        """Whether the API server has the kind Reservation."""
        self._handlers = ReservationHandlers(self, cluster)
        self._affinities: dict[int, RequiredReservation] = {}
        self._matched: dict[int, MatchedReservations] = {}
        self._ledger.listeners.append(self._pod_moved)
        self._ledger.on_allocated = self.pod_allocated
        cluster.classes.on_dropped.append(self._class_dropped)

    def slots(self) -> set[int]:
        """The slots of all resources that reservations name."""
        used: set[int] = set()
        for reservation in self.known.values():
            used.update(
                reservation.amounts,
                reservation.wanted,
                reservation.withheld,
                reservation.restricted or (),
            )
            used.update(slot for slot, _ in reservation.listed)
            if reservation.hold is not None:
                used.update(reservation.hold.amounts, reservation.hold.taken)
        return used

    # Queries

    def get(self, name: str) -> ReservationInfo | None:
        return self.known.get(self._handlers.uid(name))

    def hold(self, reservation: ReservationInfo) -> ReservationRow | None:
        return reservation.hold

    def allocated_pods(self, reservation: ReservationInfo) -> list[PodRecord]:
        """The pods on its node that are allocated from it; they may not be bound yet."""
        allocated_pods = self._allocated.get(reservation.uid)
        if not allocated_pods:
            return []
        row: int | None = reservation.pod.row if reservation.pod is not None else -1
        if row == -1 and reservation.preemptor:
            # The preemptor can be assumed before its preemption hold is scheduled.
            row = self._nodes.row(reservation.wants_node)
        return [pod for pod in allocated_pods.values() if pod.row == row]

    def is_usable(self, reservation: ReservationInfo) -> bool:
        """Whether owners can be allocated from it now. They are bound only after its own status is
        written."""
        return (
            reservation.hold is not None
            and not reservation.waiting
            and not reservation.ending
            and not (
                reservation.once
                and reservation.uid in self._allocated
                and self.allocated_pods(reservation)
            )
        )

    def is_being_bound(self, reservation: ReservationInfo) -> bool:
        """Whether the binding of a pod that is allocated from it is in progress."""
        return reservation.uid in self._allocated and any(
            pod.phase is Phase.ASSUMED and pod.bind_decided for pod in self.allocated_pods(reservation)
        )

    def can_be_bound(self, pod: PodRecord) -> bool:
        """Whether a pod that waits in Permit can still be bound: the reservation it is allocated from,
        if any, has neither finished nor is about to."""
        if not pod.reservation_uid:
            return True
        reservation = self.known.get(pod.reservation_uid)
        return reservation is not None and not reservation.finished and not reservation.ending

    def matching(self, cls: PodClass) -> frozenset[int]:
        """The ids of the owner specs that pods of the class match."""
        return self.specs.matching(cls)

    def matched(self, cls: PodClass) -> MatchedReservations | None:
        """The reservations that pods of the class match, up to date; None if there are none."""
        if not self.specs.matching(cls):
            return None
        found = self._matched.get(cls.id)
        if found is None:
            found = self._matched[cls.id] = MatchedReservations(self, self._cluster.epoch, cls)
        if not found.is_current:
            found.refresh()
        return found

    def reserving_for(self, cls: PodClass) -> list[PodClass]:
        """The classes of the reserve pods of reservations that pods of this class match."""
        matching = self.specs.matching(cls)
        if not matching:
            return []
        found = {
            reservation.pod.cls.id: reservation.pod.cls
            for spec in matching
            for reservation in self.members.get(spec, {}).values()
            if reservation.pod is not None
        }
        return list(found.values())

    def affinity(self, cls: PodClass) -> RequiredReservation:
        """The reservation affinity of pods of the class."""
        affinity = self._affinities.get(cls.id)
        if affinity is None:
            affinity = self._affinities[cls.id] = RequiredReservation(cls, self.by_name(cls.requests))
        return affinity

    def concerns(self, cls: PodClass) -> bool:
        """Whether pods of the class match reservations or have a reservation affinity."""
        return not cls.at_reservation_size and (
            bool(self.specs.matching(cls))
            or (names.RESERVATION_AFFINITY in cls.annotations and cls.owner_spec_id < 0)
        )

    def traits(self, metadata: ObjectMeta) -> Traits:
        """The traits of a pod's class that depend on reservations: whether one names the pod."""
        return self._handlers.traits(metadata)

    def node_labels(self, row: int) -> Mapping[str, str]:
        info = self._nodes.info.get(row)
        return info.labels if info is not None else {}

    def by_name(self, amounts: Iterable[tuple[int, int]]) -> dict[str, int]:
        """Amounts by resource name, without derived sums."""
        slots = self._nodes.slots
        return {slots.name(slot): amount for slot, amount in amounts if slots.name(slot)}

    # Objects

    def put(self, reservation: Reservation) -> None:
        self._handlers.put(reservation)

    def put_virtual(self, reservation: ReservationInfo, row: int) -> None:
        """Adds a reservation without an object, which holds its amounts on the row. Raises if it is
        invalid."""
        self._handlers.put_virtual(reservation)
        self.assume(reservation, row)
        assert reservation.pod is not None
        self._cluster.managers.settle(reservation.pod)
        self.note(reservation, "set aside", self._nodes.name(row))
        self.opened(reservation)

    def drop(self, uid: str, why: str = "deleted") -> None:
        """Removes a reservation whose object was deleted."""
        self._handlers.drop(uid, why)

    def delete(self, reservation: ReservationInfo, why: str) -> list[Decision]:
        """Closes the reservation to owners and deletes it: now, or once bindings of its owners that are
        in progress are done, when the lifecycle controller calls this again. All deletions go through
        here."""
        is_new = not reservation.deleting
        if reservation.terminating or not (is_new or reservation.deletion_reason):
            return []
        if is_new:
            reservation.deleting = True
            self.moved(reservation)
        if self.is_being_bound(reservation):
            reservation.deletion_reason = why
            return []
        reservation.deletion_reason = ""
        return [DeleteReservation(reservation.ref, why)]

    def expire(self, reservation: ReservationInfo, is_over: bool) -> bool:
        """Whether it expires now. If its time is over but bindings of its owners are in progress, it is
        closed to owners and expires when they are done."""
        expiring = is_over and self.is_being_bound(reservation)
        if expiring != reservation.expiring:
            reservation.expiring = expiring
            if is_over:
                self.moved(reservation)
            else:
                self.opened(reservation)
        return is_over and not expiring

    def finish(self, reservation: ReservationInfo, reason: str) -> None:
        """Marks the reservation finished and releases its capacity."""
        if not reservation.finished:
            self.note(reservation, reason.lower())
        reservation.finished = reason
        self._cluster.jobs.holds.drop(reservation)
        if reason == ReservationPhase.SUCCEEDED:
            meta, namespace = reservation.object.metadata, namespace_of(reservation.object)
            self._cluster.jobs.ended(meta, True, namespace)
        self._handlers.let_go(reservation)
        self.dirty[reservation.uid] = None

    # The capacity it holds

    def assume(self, reservation: ReservationInfo, row: int) -> None:
        """Holds its amounts on this row, before its status is written."""
        pod = reservation.pod
        assert pod is not None
        self._ledger.hold(pod, row, reservation.amounts)
        reservation.node_gone = False
        if reservation.victims or (reservation.pre_allocation and not self.has_capacity(reservation)):
            self.waiting.join(reservation)
        if reservation.victims:
            self.set_victims(reservation, reservation.victims)
        pod.phase = Phase.ASSUMED
        self.moved(reservation)

    def unassume(self, reservation: ReservationInfo) -> None:
        """Releases what it holds: its status was not written."""
        pod = reservation.pod
        assert pod is not None
        reservation.last_status = None
        self.waiting.leave(reservation)
        self.set_victims(reservation, frozenset())
        self._ledger.release(pod)
        pod.phase = Phase.PENDING
        self.moved(reservation)

    def confirm(self, reservation: ReservationInfo) -> None:
        """Marks it assigned: its status with the node was written."""
        pod = reservation.pod
        assert pod is not None
        pod.phase = Phase.ASSIGNED
        reservation.message = self.victims_message(reservation)
        if self._cluster.watcher is not None:
            self._cluster.watcher.bind_confirmed(pod)
        self.note(
            reservation, "waiting" if reservation.waiting else "available", self._nodes.name(pod.row)
        )
        self.opened(reservation)

    def available(self, reservation: ReservationInfo) -> None:
        """Makes a Waiting reservation Available: all it reserves is free."""
        assert reservation.pod is not None
        self._cluster.managers.accept(reservation.pod)
        self.waiting.leave(reservation)
        self.set_victims(reservation, frozenset())
        reservation.message = ""
        self.note(reservation, "available")
        self.opened(reservation)

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
                self.moved(reservation)
            else:
                self.opened(reservation)

    def awaits(self, reservation: ReservationInfo) -> list[ReservationInfo]:
        """The reservations that it preempts and that are not gone yet."""
        found = (self.known.get(uid) for uid in sorted(reservation.victims))
        return [each for each in found if each is not None and each.pod is not None]

    def victims_message(self, reservation: ReservationInfo) -> str:
        """The message for the victims it waits for; empty if they are gone."""
        names = ", ".join(sorted(each.name for each in self.awaits(reservation)))
        return f"waiting for preempted reservations to be gone: {names}" if names else ""

    def postponed(self, reservation: ReservationInfo) -> None:
        """Makes it Waiting: a backfilled pod that ends in time gets its capacity."""
        self.waiting.join(reservation)
        self.note(reservation, "waiting")
        self.moved(reservation)

    def has_capacity(self, reservation: ReservationInfo, amounts: Amounts | None = None) -> bool:
        """Whether its row has enough for what it reserves, or for these amounts instead."""
        return not self.waiting.lacking(reservation, amounts)

    def lacking(self, reservation: ReservationInfo, amounts: Amounts | None = None) -> list[str]:
        """The resources of which its row has too little for that."""
        return self.waiting.lacking(reservation, amounts)

    def count_limits(self) -> None:
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
        self._cluster.managers.renew(pod)
        self._handlers.set_amounts(reservation, amounts)
        reservation.resized = True
        self.note(reservation, "resized")
        self.opened(reservation)
        self.capacity_freed(pod.row)

    def refused(self, reservation: ReservationInfo, message: str) -> None:
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
                self._cluster.jobs.holds.dropped.discard(uid)
                self.moved(reservation)
            reservation.marked = False
            self.dirty[uid] = None

    # Following nodes and pods

    def node_deleted(self, row: int) -> None:
        """Marks reservations of the row as lost, even if a node of the same name is created before the
        lifecycle controller runs."""
        for hold in self._ledger.holds.on(row):
            if hold.pod.reservation is not None:
                hold.pod.reservation.node_gone = True

    def node_changed(self, row: int) -> None:
        for hold in self._ledger.holds.on(row):
            if hold.pod.reservation is not None:
                self.moved(hold.pod.reservation)

    def pod_confirmed(self, pod: PodRecord) -> None:
        """Marks the reservation of a pod that is bound now as dirty."""
        if pod.reservation_uid in self.known:
            self.dirty[pod.reservation_uid] = None

    def nominated(self, pod: PodRecord) -> None:
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
        watcher = self._cluster.watcher
        for hold in self.preemption_holds.get(pod.uid, {}).values():
            if watcher is not None and hold.pod is not None and hold.pod.phase is Phase.PENDING:
                watcher.pod_pending(hold.pod)

    def inside(self, pod: PodRecord, row: int) -> str:
        """The uid of the reservation that a nominated pod would be allocated from on the row: the one
        it preempted for; else the first that could be large enough."""
        matched = self.matched(pod.cls)
        if matched is None:
            return ""
        asked = {slot for slot, _ in pod.cls.requests}
        there = [
            hold.reservation
            for hold in matched.on(row)
            if not asked.isdisjoint(hold.amounts) and _could_serve(hold, pod)
        ]
        if any(reservation.uid == pod.nominated_reservation for reservation in there):
            return pod.nominated_reservation
        first = min(there, key=lambda p: (not p.order, p.order, p.created, p.name), default=None)
        return first.uid if first is not None else ""

    def _pod_moved(self, pod: PodRecord, row: int, sign: int) -> None:
        if pod.reservation_uid:
            self.pod_allocated(pod, sign)
        if self.waiting.on_row or self.waiting.growing:
            self.capacity_freed(row)
        if self.short_of_devices:
            self._devices_came(row)

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
        hold = self._ledger.holds.get(pod.reservation_uid)
        if hold is not None:
            ours[hold.pod.uid] = hold.pod
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
        replaced = self._cluster.managers.replace(reservation.pod)
        if replaced is False:
            self.short_of_devices[reservation.uid] = None
        elif self.short_of_devices:
            self.short_of_devices.pop(reservation.uid, None)
        if replaced:
            self.note(reservation, "devices replaced")
            self.opened(reservation)
        return bool(replaced)

    def pod_allocated(self, pod: PodRecord, sign: int) -> None:
        """Follows the ledger: a pod is allocated from a reservation (sign 1) or no longer (-1). The
        status changes with bound pods only, unless the reservation is about to end."""
        if pod.cls.volumes:
            self._cluster.volumes.pod_allocated(pod)
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

    def _class_dropped(self, cls: PodClass) -> None:
        self.specs.forget_class(cls)
        self._matched.pop(cls.id, None)
        self._affinities.pop(cls.id, None)

    # Notifications

    def opened(self, reservation: ReservationInfo) -> None:
        """Requeues pods: owners may fit now that did not before."""
        self.moved(reservation)
        if reservation.preemptor and reservation.waiting:
            return  # its preemptor waits for it already
        self._cluster.changed(Change.POD_LEFT)
        if reservation.preemptor:
            owner, watcher = self._cluster.pods.get(reservation.preemptor), self._cluster.watcher
            if (
                owner is not None
                and owner.phase is Phase.PENDING
                and not owner.deletion_pending
                and watcher
            ):
                watcher.pod_pending(owner)

    def moved(self, reservation: ReservationInfo) -> None:
        """Marks it as changed, for the lifecycle controller and for caches."""
        self._cluster.jobs.holds.moved(reservation)
        self.dirty[reservation.uid] = None
        self._cluster.epoch.reservations.add(reservation.uid)
        if reservation.pod is not None and reservation.pod.row >= 0:
            self._cluster.epoch.usage.add(reservation.pod.row)

    def note(self, reservation: ReservationInfo, what: str, detail: str = "") -> None:
        """Adds an entry to its story."""
        if not is_starvation_hold(reservation):
            self._cluster.epoch.inputs += 1
        self._cluster.chronicle.note(self._cluster.now, reservation.ref, what, detail)


def _could_serve(hold: ReservationRow, pod: PodRecord) -> bool:
    """Whether a reservation is large enough for a pod if nothing is allocated from it."""
    only = hold.reservation.restricted or frozenset()
    return all(hold.amounts.get(slot, 0) >= asked for slot, asked in pod.cls.requests if slot in only)
