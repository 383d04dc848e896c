"""All reservations, kept in step with objects, nodes and pods.

Objects come in by `put` and `drop`; where a reservation holds room is written to the ledger. Pods that
draw on one are told apart by its uid, whichever of the two is seen first. Whoever looks after the life
of reservations (the lifecycle controller) takes those that may need something from `dirty`.
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
from holdfast.scheduler.reservations.reservation_victims import Departures, is_soft_evicted
from holdfast.scheduler.reservations.reserve_pod import namespace_of
from holdfast.scheduler.reservations.waiting_reservations import WaitingReservations

if TYPE_CHECKING:
    from holdfast.scheduler.cluster.cluster import Cluster


class ReservationCache:
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
        """The uids of reservations whose status, phase or room may have to change."""
        self._allocated: dict[str, dict[str, PodRecord]] = {}
        self.waiting = WaitingReservations(self, cluster)
        self.preemption_holds = PreemptionHolds()
        """Preempted room, held for preemptors."""
        self.departures = Departures()
        """Reservations that have to go for others."""
        self.short_of_devices: dict[str, None] = {}
        """The uids of reservations with devices their node does not offer any more, and has no other
        free for."""
        self.softly_evicted: dict[str, None] = {}
        """The uids of reservations that say they are."""
        self.are_kept = True
        """Whether there is a place for reservations: whether the API server knows the kind."""
        self._handlers = ReservationHandlers(self, cluster)
        self._affinities: dict[int, RequiredReservation] = {}
        self._matched: dict[int, MatchedReservations] = {}
        self._ledger.listeners.append(self._pod_moved)
        self._ledger.on_allocated = self.pod_allocated
        cluster.classes.on_dropped.append(self._class_dropped)

    def slots(self) -> set[int]:
        """The slots reservations have anything to do with."""
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

    # What is asked

    def get(self, name: str) -> ReservationInfo | None:
        return self.known.get(self._handlers.uid(name))

    def hold(self, reservation: ReservationInfo) -> ReservationRow | None:
        return reservation.hold

    def allocated_pods(self, reservation: ReservationInfo) -> list[PodRecord]:
        """The pods on its node that draw on it; they may not be bound yet."""
        allocated_pods = self._allocated.get(reservation.uid)
        if not allocated_pods:
            return []
        row: int | None = reservation.pod.row if reservation.pod is not None else -1
        if row == -1 and reservation.preemptor:
            row = self._nodes.row(
                reservation.wants_node
            )  # its pod may have taken the room before it did
        return [pod for pod in allocated_pods.values() if pod.row == row]

    def is_usable(self, reservation: ReservationInfo) -> bool:
        """Whether owners can draw on it now. They are bound no sooner than it is."""
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
        """Whether a bind through it is under way."""
        return reservation.uid in self._allocated and any(
            pod.phase is Phase.ASSUMED and pod.bind_decided for pod in self.allocated_pods(reservation)
        )

    def can_be_bound(self, pod: PodRecord) -> bool:
        """Whether a pod that waits in Permit can still be bound through the reservation it is allocated
        from, if there is one."""
        if not pod.reservation_uid:
            return True
        reservation = self.known.get(pod.reservation_uid)
        return reservation is not None and not reservation.finished and not reservation.ending

    def matching(self, cls: PodClass) -> frozenset[int]:
        """The owner specs pods of the class match."""
        return self.specs.matching(cls)

    def matched(self, cls: PodClass) -> MatchedReservations | None:
        """The reservations pods of the class may draw on, up to date; None if there are none."""
        if not self.specs.matching(cls):
            return None
        found = self._matched.get(cls.id)
        if found is None:
            found = self._matched[cls.id] = MatchedReservations(self, self._cluster.epoch, cls)
        if not found.is_current:
            found.refresh()
        return found

    def reserving_for(self, cls: PodClass) -> list[PodClass]:
        """The classes of reserve pods whose room is for pods of this class."""
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
        """What pods of the class say about reservations."""
        affinity = self._affinities.get(cls.id)
        if affinity is None:
            affinity = self._affinities[cls.id] = RequiredReservation(cls, self.by_name(cls.requests))
        return affinity

    def concerns(self, cls: PodClass) -> bool:
        """Whether reservations matter to pods of the class."""
        return not cls.at_reservation_size and (
            bool(self.specs.matching(cls))
            or (names.RESERVATION_AFFINITY in cls.annotations and cls.owner_spec_id < 0)
        )

    def traits(self, metadata: ObjectMeta) -> Traits:
        """What sets the class of a pod apart because of reservations."""
        return self._handlers.traits(metadata)

    def node_labels(self, row: int) -> Mapping[str, str]:
        info = self._nodes.info.get(row)
        return info.labels if info is not None else {}

    def by_name(self, amounts: Iterable[tuple[int, int]]) -> dict[str, int]:
        """Amounts by the resource's name, derived sums left out."""
        slots = self._nodes.slots
        return {slots.name(slot): amount for slot, amount in amounts if slots.name(slot)}

    # Objects

    def put(self, reservation: Reservation) -> None:
        self._handlers.put(reservation)

    def put_virtual(self, reservation: ReservationInfo, row: int) -> None:
        """A reservation without an object holds its room on the row; raises what is wrong with it."""
        self._handlers.put_virtual(reservation)
        self.assume(reservation, row)
        assert reservation.pod is not None
        self._cluster.managers.settle(reservation.pod)
        self.note(reservation, "set aside", self._nodes.name(row))
        self.opened(reservation)

    def drop(self, uid: str, why: str = "deleted") -> None:
        """The object is gone."""
        self._handlers.drop(uid, why)

    def delete(self, reservation: ReservationInfo, why: str) -> list[Decision]:
        """It takes no more owners and is deleted: now, or once the binds through it that are under way
        are done; then the lifecycle controller asks again. All who delete a reservation do it here."""
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
        """Whether it ends now. If its time is over but binds through it are under way, it takes no more
        owners and ends when they are done."""
        expiring = is_over and self.is_being_bound(reservation)
        if expiring != reservation.expiring:
            reservation.expiring = expiring
            if is_over:
                self.moved(reservation)
            else:
                self.opened(reservation)
        return is_over and not expiring

    def finish(self, reservation: ReservationInfo, reason: str) -> None:
        """It holds nothing any more, for good."""
        if not reservation.finished:
            self.note(reservation, reason.lower())
        reservation.finished = reason
        self._cluster.jobs.holds.drop(reservation)
        if reason == ReservationPhase.SUCCEEDED:
            meta, namespace = reservation.object.metadata, namespace_of(reservation.object)
            self._cluster.jobs.ended(meta, True, namespace)
        self._handlers.let_go(reservation)
        self.dirty[reservation.uid] = None

    # Where it holds room

    def assume(self, reservation: ReservationInfo, row: int) -> None:
        """It is to hold its room on this row."""
        pod = reservation.pod
        assert pod is not None
        self._ledger.hold(pod, row, reservation.amounts)
        reservation.node_gone = False
        if reservation.clears or (reservation.pre_allocation and not self.has_room(reservation)):
            self.waiting.join(reservation)
        if reservation.clears:
            self.clear(reservation, reservation.clears)
        pod.phase = Phase.ASSUMED
        self.moved(reservation)

    def unassume(self, reservation: ReservationInfo) -> None:
        pod = reservation.pod
        assert pod is not None
        reservation.last_status = None
        self.waiting.leave(reservation)
        self.clear(reservation, frozenset())
        self._ledger.release(pod)
        pod.phase = Phase.PENDING
        self.moved(reservation)

    def confirm(self, reservation: ReservationInfo) -> None:
        """It holds its room, and that was written on it."""
        pod = reservation.pod
        assert pod is not None
        pod.phase = Phase.ASSIGNED
        reservation.message = self.awaited(reservation)
        if self._cluster.watcher is not None:
            self._cluster.watcher.bind_confirmed(pod)
        self.note(
            reservation, "waiting" if reservation.waiting else "available", self._nodes.name(pod.row)
        )
        self.opened(reservation)

    def available(self, reservation: ReservationInfo) -> None:
        """The room it waited for is there."""
        assert reservation.pod is not None
        self._cluster.managers.accept(reservation.pod)
        self.waiting.leave(reservation)
        self.clear(reservation, frozenset())
        reservation.message = ""
        self.note(reservation, "available")
        self.opened(reservation)

    def clear(self, reservation: ReservationInfo, victims: frozenset[str]) -> None:
        """These have to go for it, and no others any more."""
        before = reservation.clears
        if not before and not victims:
            return
        self.departures.end(reservation)
        reservation.clears = victims
        self.departures.begin(reservation)
        reservation.message = self.awaited(reservation) or reservation.message
        for uid in sorted(before | victims):
            victim = self.known.get(uid)
            if victim is not None:
                self.see_leaving(victim)

    def see_leaving(self, reservation: ReservationInfo) -> None:
        """Takes note of whether it has to go, by what is known or by what it says itself."""
        soft = is_soft_evicted(reservation.object)
        if soft:
            self.softly_evicted[reservation.uid] = None
        else:
            self.softly_evicted.pop(reservation.uid, None)
        leaving = soft or reservation.uid in self.departures
        if leaving != reservation.being_evicted:
            reservation.being_evicted = leaving
            reservation.marked = False
            if leaving:
                self.moved(reservation)
            else:
                self.opened(reservation)

    def awaits(self, reservation: ReservationInfo) -> list[ReservationInfo]:
        """Those that have to go for it and are still there."""
        found = (self.known.get(uid) for uid in sorted(reservation.clears))
        return [each for each in found if each is not None and each.pod is not None]

    def awaited(self, reservation: ReservationInfo) -> str:
        """Whom it waits for, in words; empty if they are gone."""
        names = ", ".join(sorted(each.name for each in self.awaits(reservation)))
        return f"waiting for what is preempted to go: {names}" if names else ""

    def postponed(self, reservation: ReservationInfo) -> None:
        """The room is lent for a while to one who will be gone in time."""
        self.waiting.join(reservation)
        self.note(reservation, "waiting")
        self.moved(reservation)

    def has_room(self, reservation: ReservationInfo, amounts: Amounts | None = None) -> bool:
        """Whether there is room for what it promises, or for other amounts instead, where it is."""
        return not self.waiting.lacking(reservation, amounts)

    def lacking(self, reservation: ReservationInfo, amounts: Amounts | None = None) -> list[str]:
        """The resources there is not enough of for that."""
        return self.waiting.lacking(reservation, amounts)

    def count_limits(self) -> None:
        """What reservations hold includes limits that were not counted before."""
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
        pod = reservation.pod
        assert pod is not None
        self._ledger.resize(pod, amounts)
        self._cluster.managers.renew(pod)
        self._handlers.set_amounts(reservation, amounts)
        reservation.resized = True
        self.note(reservation, "resized")
        self.opened(reservation)
        self.room_came(pod.row)

    def refused(self, reservation: ReservationInfo, message: str) -> None:
        """No node was found, or where it was to go it cannot."""
        reservation.message = message
        self.dirty[reservation.uid] = None

    def not_written(self, uid: str) -> None:
        """A status that was to be written was not."""
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
        """The node of this row is gone, and with it what is reserved there, even if another node of its
        name comes before anybody looks."""
        for hold in self._ledger.holds.on(row):
            if hold.pod.reservation is not None:
                hold.pod.reservation.node_gone = True

    def node_changed(self, row: int) -> None:
        for hold in self._ledger.holds.on(row):
            if hold.pod.reservation is not None:
                self.moved(hold.pod.reservation)

    def pod_confirmed(self, pod: PodRecord) -> None:
        """A pod that draws on a reservation is bound."""
        if pod.reservation_uid in self.known:
            self.dirty[pod.reservation_uid] = None

    def nominated(self, pod: PodRecord) -> None:
        """Another node is being cleared for the pod, or none any more."""
        for room in self.preemption_holds.get(pod.uid, {}).values():
            room.released = room.released or room.wants_node != pod.nominated
            self.dirty[room.uid] = None

    def preemptor_changed(self, pod: PodRecord) -> None:
        """It may need what is held for it no more."""
        for room in self.preemption_holds.get(pod.uid, {}).values():
            self.dirty[room.uid] = None

    def preemptor_back(self, pod: PodRecord) -> None:
        """It is not to be bound after all: room it took before that was held is to be held now."""
        watcher = self._cluster.watcher
        for room in self.preemption_holds.get(pod.uid, {}).values():
            if watcher is not None and room.pod is not None and room.pod.phase is Phase.PENDING:
                watcher.pod_pending(room.pod)

    def inside(self, pod: PodRecord, row: int) -> str:
        """The uid of the reservation that a nominated pod, were it on the row, would be allocated from:
        the one it preempted for; else the first that could be large enough."""
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
            self.room_came(row)
        if self.short_of_devices:
            self._devices_came(row)

    def taken_from(self, pod: PodRecord) -> list[str]:
        """What of the ports and volumes of a pod on its row others have as well. What is reserved for
        the pod, wherever that is, is not others'."""
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

    def room_came(self, row: int) -> None:
        """There may be room on the row for those that wait for some."""
        self.dirty.update(dict.fromkeys(self.waiting.hoping(row)))

    def _devices_came(self, row: int) -> None:
        """There may be devices on the row for reservations that lost some of theirs."""
        for uid in list(self.short_of_devices):
            reservation = self.known.get(uid)
            if reservation is None or reservation.pod is None:
                del self.short_of_devices[uid]
            elif reservation.pod.row == row:
                self.dirty[uid] = None

    def replace_devices(self, reservation: ReservationInfo) -> bool:
        """Reserves other devices of the node for those it does not offer any more; whether it did."""
        assert reservation.pod is not None
        replaced = self._cluster.managers.replace(reservation.pod)
        if replaced is False:
            self.short_of_devices[reservation.uid] = None
        elif self.short_of_devices:
            self.short_of_devices.pop(reservation.uid, None)
        if replaced:
            self.note(reservation, "given other devices")
            self.opened(reservation)
        return bool(replaced)

    def pod_allocated(self, pod: PodRecord, sign: int) -> None:
        """A pod on a node draws on a reservation, or does so no more. Only of bound ones there is
        something to tell, unless the reservation waits for the last of its pods to end."""
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

    # Telling

    def opened(self, reservation: ReservationInfo) -> None:
        """Owners may find room that was not there before."""
        self.moved(reservation)
        if reservation.preemptor and reservation.waiting:
            return  # its owner knows, and has nothing to find yet
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
        self._cluster.jobs.holds.moved(reservation)
        self.dirty[reservation.uid] = None
        self._cluster.epoch.reservations.add(reservation.uid)
        if reservation.pod is not None and reservation.pod.row >= 0:
            self._cluster.epoch.usage.add(reservation.pod.row)

    def note(self, reservation: ReservationInfo, what: str, detail: str = "") -> None:
        if not is_starvation_hold(reservation):
            self._cluster.epoch.inputs += 1
        self._cluster.chronicle.note(self._cluster.now, reservation.ref, what, detail)


def _could_serve(hold: ReservationRow, pod: PodRecord) -> bool:
    """Whether a reservation is large enough for a pod, were no others allocated from it."""
    only = hold.reservation.restricted or frozenset()
    return all(hold.amounts.get(slot, 0) >= asked for slot, asked in pod.cls.requests if slot in only)
