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

_KEPT = 16384


class ReservationCache:
    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._ledger = cluster.ledger
        self._nodes = cluster.nodes
        self.known: dict[str, ReservationInfo] = {}
        """By uid."""
        self.specs = OwnerSpecs()
        self.members: dict[int, dict[str, ReservationInfo]] = {}
        """The reservations of each owner spec, by its id and their uid."""
        self.dirty: dict[str, None] = {}
        """The uids of reservations whose status, phase or room may have to change."""
        self.log: list[str] = []
        """The uids of reservations that moved, or changed in a way that may matter to owners."""
        self.log_start = 0
        """The position of the log's first entry; what came before is forgotten."""
        self._drawing: dict[str, dict[str, PodRecord]] = {}
        self.waiting = WaitingReservations(self, cluster)
        self.rooms = PreemptionHolds()
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
        self._intake = ReservationHandlers(self, cluster)
        self._wishes: dict[int, RequiredReservation] = {}
        self._drawable: dict[int, MatchedReservations] = {}
        self._ledger.listeners.append(self._pod_moved)
        self._ledger.on_drawn = self.drew
        cluster.classes.on_dropped.append(self._class_dropped)

    def slots(self) -> set[int]:
        """The slots reservations have anything to do with."""
        used: set[int] = set()
        for promise in self.known.values():
            used.update(promise.amounts, promise.wanted, promise.withheld, promise.restricted or ())
            used.update(slot for slot, _ in promise.listed)
            if promise.hold is not None:
                used.update(promise.hold.amounts, promise.hold.taken)
        return used

    # What is asked

    def get(self, name: str) -> ReservationInfo | None:
        return self.known.get(self._intake.uid(name))

    def hold(self, promise: ReservationInfo) -> ReservationRow | None:
        return promise.hold

    def drawing(self, promise: ReservationInfo) -> list[PodRecord]:
        """The pods on its node that draw on it; they may not be bound yet."""
        drawing = self._drawing.get(promise.uid)
        if not drawing:
            return []
        row: int | None = promise.pod.row if promise.pod is not None else -1
        if row == -1 and promise.preemptor:
            row = self._nodes.row(promise.wants_node)  # its pod may have taken the room before it did
        return [pod for pod in drawing.values() if pod.row == row]

    def is_usable(self, promise: ReservationInfo) -> bool:
        """Whether owners can draw on it now. They are bound no sooner than it is."""
        return (
            promise.hold is not None
            and not promise.waiting
            and not promise.leaving
            and not promise.deleting
            and not (promise.once and promise.uid in self._drawing and self.drawing(promise))
        )

    def matching(self, cls: PodClass) -> frozenset[int]:
        """The owner specs pods of the class match."""
        return self.specs.matching(cls)

    def drawable(self, cls: PodClass) -> MatchedReservations | None:
        """The reservations pods of the class may draw on, up to date; None if there are none."""
        if not self.specs.matching(cls):
            return None
        found = self._drawable.get(cls.id)
        if found is None:
            found = self._drawable[cls.id] = MatchedReservations(self, cls)
        if not found.is_current:
            found.refresh()
        return found

    def reserving_for(self, cls: PodClass) -> list[PodClass]:
        """The classes of reserve pods whose room is for pods of this class."""
        matching = self.specs.matching(cls)
        if not matching:
            return []
        found = {
            promise.pod.cls.id: promise.pod.cls
            for spec in matching
            for promise in self.members.get(spec, {}).values()
            if promise.pod is not None
        }
        return list(found.values())

    def wish(self, cls: PodClass) -> RequiredReservation:
        """What pods of the class say about reservations."""
        wish = self._wishes.get(cls.id)
        if wish is None:
            wish = self._wishes[cls.id] = RequiredReservation(cls, self.by_name(cls.requests))
        return wish

    def concerns(self, cls: PodClass) -> bool:
        """Whether reservations matter to pods of the class."""
        return not cls.sized and (
            bool(self.specs.matching(cls))
            or (names.RESERVATION_AFFINITY in cls.annotations and cls.promised_to < 0)
        )

    def traits(self, metadata: ObjectMeta) -> Traits:
        """What sets the class of a pod apart because of reservations."""
        return self._intake.traits(metadata)

    def node_labels(self, row: int) -> Mapping[str, str]:
        info = self._nodes.info.get(row)
        return info.labels if info is not None else {}

    def by_name(self, amounts: Iterable[tuple[int, int]]) -> dict[str, int]:
        """Amounts by the resource's name, derived sums left out."""
        slots = self._nodes.slots
        return {slots.name(slot): amount for slot, amount in amounts if slots.name(slot)}

    # Objects

    def put(self, reservation: Reservation) -> None:
        self._intake.put(reservation)

    def put_virtual(self, promise: ReservationInfo, row: int) -> None:
        """A reservation without an object holds its room on the row; raises what is wrong with it."""
        self._intake.put_virtual(promise)
        self.assume(promise, row)
        self.note(promise, "set aside", self._nodes.name(row))
        self.opened(promise)

    def drop(self, uid: str, why: str = "deleted") -> None:
        """The object is gone."""
        self._intake.drop(uid, why)

    def finish(self, promise: ReservationInfo, reason: str) -> None:
        """It holds nothing any more, for good."""
        if not promise.finished:
            self.note(promise, reason.lower())
        promise.finished = reason
        self._cluster.jobs.holds.drop(promise)
        if reason == ReservationPhase.SUCCEEDED:
            meta, namespace = promise.object.metadata, namespace_of(promise.object)
            self._cluster.jobs.ended(meta, True, namespace)
        self._intake.let_go(promise)
        self.dirty[promise.uid] = None

    # Where it holds room

    def assume(self, promise: ReservationInfo, row: int) -> None:
        """It is to hold its room on this row."""
        pod = promise.pod
        assert pod is not None
        self._ledger.hold(pod, row, promise.amounts)
        promise.node_gone = False
        if promise.clears or (promise.pre_allocation and not self.has_room(promise)):
            self.waiting.join(promise)
        if promise.clears:
            self.clear(promise, promise.clears)
        pod.phase = Phase.ASSUMED
        self.moved(promise)

    def unassume(self, promise: ReservationInfo) -> None:
        pod = promise.pod
        assert pod is not None
        promise.told = None
        self.waiting.leave(promise)
        self.clear(promise, frozenset())
        self._ledger.release(pod)
        pod.phase = Phase.PENDING
        self.moved(promise)

    def confirm(self, promise: ReservationInfo) -> None:
        """It holds its room, and that was written on it."""
        pod = promise.pod
        assert pod is not None
        pod.phase = Phase.ASSIGNED
        promise.message = self.awaited(promise)
        if self._cluster.watcher is not None:
            self._cluster.watcher.bind_confirmed(pod)
        self.note(promise, "waiting" if promise.waiting else "available", self._nodes.name(pod.row))
        self.opened(promise)

    def available(self, promise: ReservationInfo) -> None:
        """The room it waited for is there."""
        assert promise.pod is not None
        self._cluster.belongings.accept(promise.pod)
        self.waiting.leave(promise)
        self.clear(promise, frozenset())
        promise.message = ""
        self.note(promise, "available")
        self.opened(promise)

    def clear(self, promise: ReservationInfo, victims: frozenset[str]) -> None:
        """These have to go for it, and no others any more."""
        before = promise.clears
        if not before and not victims:
            return
        self.departures.end(promise)
        promise.clears = victims
        self.departures.begin(promise)
        promise.message = self.awaited(promise) or promise.message
        for uid in sorted(before | victims):
            victim = self.known.get(uid)
            if victim is not None:
                self.see_leaving(victim)

    def see_leaving(self, promise: ReservationInfo) -> None:
        """Takes note of whether it has to go, by what is known or by what it says itself."""
        soft = is_soft_evicted(promise.object)
        if soft:
            self.softly_evicted[promise.uid] = None
        else:
            self.softly_evicted.pop(promise.uid, None)
        leaving = soft or promise.uid in self.departures
        if leaving != promise.leaving:
            promise.leaving = leaving
            promise.marked = False
            if leaving:
                self.moved(promise)
            else:
                self.opened(promise)

    def awaits(self, promise: ReservationInfo) -> list[ReservationInfo]:
        """Those that have to go for it and are still there."""
        found = (self.known.get(uid) for uid in sorted(promise.clears))
        return [each for each in found if each is not None and each.pod is not None]

    def awaited(self, promise: ReservationInfo) -> str:
        """Whom it waits for, in words; empty if they are gone."""
        names = ", ".join(sorted(each.name for each in self.awaits(promise)))
        return f"waiting for what is preempted to go: {names}" if names else ""

    def postponed(self, promise: ReservationInfo) -> None:
        """The room is lent for a while to one who will be gone in time."""
        self.waiting.join(promise)
        self.note(promise, "waiting")
        self.moved(promise)

    def has_room(self, promise: ReservationInfo, amounts: Amounts | None = None) -> bool:
        """Whether there is room for what it promises, or for other amounts instead, where it is."""
        return not self.waiting.lacking(promise, amounts)

    def lacking(self, promise: ReservationInfo, amounts: Amounts | None = None) -> list[str]:
        """The resources there is not enough of for that."""
        return self.waiting.lacking(promise, amounts)

    def count_limits(self) -> None:
        """What reservations hold includes limits that were not counted before."""
        for promise in self.known.values():
            pod = promise.pod
            if pod is None:
                continue
            promise.wanted, promise.amounts = dict(promise.wanted), dict(promise.amounts)
            pod.cls.limits.hold(promise.wanted)
            pod.cls.limits.hold(promise.amounts)
            if pod.row >= 0:
                self._ledger.resize(pod, promise.amounts)

    def resize(self, promise: ReservationInfo, amounts: Amounts) -> None:
        pod = promise.pod
        assert pod is not None
        self._ledger.resize(pod, amounts)
        self._cluster.belongings.renew(pod)
        self._intake.set_amounts(promise, amounts)
        promise.resized = True
        self.note(promise, "resized")
        self.opened(promise)
        self.room_came(pod.row)

    def refused(self, promise: ReservationInfo, message: str) -> None:
        """No node was found, or where it was to go it cannot."""
        promise.message = message
        self.dirty[promise.uid] = None

    def not_written(self, uid: str) -> None:
        """A status that was to be written was not."""
        promise = self.known.get(uid)
        if promise is not None:
            promise.told = None
            if promise.deleting:
                promise.deleting = False
                self._cluster.jobs.holds.dropped.discard(uid)
                self.moved(promise)
            promise.marked = False
            self.dirty[uid] = None

    # Following nodes and pods

    def node_deleted(self, row: int) -> None:
        """The node of this row is gone, and with it what is reserved there, even if another node of its
        name comes before anybody looks."""
        for hold in self._ledger.holds.on(row):
            if hold.pod.promise is not None:
                hold.pod.promise.node_gone = True

    def node_changed(self, row: int) -> None:
        for hold in self._ledger.holds.on(row):
            if hold.pod.promise is not None:
                self.moved(hold.pod.promise)

    def pod_confirmed(self, pod: PodRecord) -> None:
        """A pod that draws on a reservation is bound."""
        if pod.draws_on in self.known:
            self.dirty[pod.draws_on] = None

    def nominated(self, pod: PodRecord) -> None:
        """Another node is being cleared for the pod, or none any more."""
        for room in self.rooms.get(pod.uid, {}).values():
            room.released = room.released or room.wants_node != pod.nominated
            self.dirty[room.uid] = None

    def preemptor_changed(self, pod: PodRecord) -> None:
        """It may need what is held for it no more."""
        for room in self.rooms.get(pod.uid, {}).values():
            self.dirty[room.uid] = None

    def preemptor_back(self, pod: PodRecord) -> None:
        """It is not to be bound after all: room it took before that was held is to be held now."""
        watcher = self._cluster.watcher
        for room in self.rooms.get(pod.uid, {}).values():
            if watcher is not None and room.pod is not None and room.pod.phase is Phase.PENDING:
                watcher.pod_pending(room.pod)

    def inside(self, pod: PodRecord, row: int) -> str:
        """The uid of the reservation that a pod, were it on the row, would draw on."""
        drawable = self.drawable(pod.cls)
        if drawable is None:
            return ""
        asked = {slot for slot, _ in pod.cls.requests}
        there = [hold.promise for hold in drawable.on(row) if not asked.isdisjoint(hold.amounts)]
        first = min(there, key=lambda p: (not p.order, p.order, p.created, p.name), default=None)
        return first.uid if first is not None else ""

    def _pod_moved(self, pod: PodRecord, row: int, sign: int) -> None:
        if pod.draws_on:
            self.drew(pod, sign)
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
            uid: promise.pod
            for spec in self.specs.matching(cls)
            for uid, promise in self.members.get(spec, {}).items()
            if promise.pod is not None and promise.pod.row >= 0
        }
        hold = self._ledger.holds.get(pod.draws_on)
        if hold is not None:
            ours[hold.pod.uid] = hold.pod
        return self.waiting.claimed_by_others(cls, pod.row, [pod, *ours.values()])

    def room_came(self, row: int) -> None:
        """There may be room on the row for those that wait for some."""
        self.dirty.update(dict.fromkeys(self.waiting.hoping(row)))

    def _devices_came(self, row: int) -> None:
        """There may be devices on the row for reservations that lost some of theirs."""
        for uid in list(self.short_of_devices):
            promise = self.known.get(uid)
            if promise is None or promise.pod is None:
                del self.short_of_devices[uid]
            elif promise.pod.row == row:
                self.dirty[uid] = None

    def replace_devices(self, promise: ReservationInfo) -> bool:
        """Reserves other devices of the node for those it does not offer any more; whether it did."""
        assert promise.pod is not None
        replaced = self._cluster.belongings.replace(promise.pod)
        if replaced is False:
            self.short_of_devices[promise.uid] = None
        elif self.short_of_devices:
            self.short_of_devices.pop(promise.uid, None)
        if replaced:
            self.note(promise, "given other devices")
            self.opened(promise)
        return bool(replaced)

    def drew(self, pod: PodRecord, sign: int) -> None:
        """A pod on a node draws on a reservation, or does so no more. Only of bound ones there is
        something to tell."""
        if pod.cls.volumes:
            self._cluster.volumes.drew(pod)
        drawing = self._drawing.get(pod.draws_on)
        if sign > 0:
            if drawing is None:
                drawing = self._drawing[pod.draws_on] = {}
            drawing[pod.uid] = pod
        elif drawing is not None:
            drawing.pop(pod.uid, None)
            if not drawing:
                del self._drawing[pod.draws_on]
        if pod.phase is Phase.ASSIGNED and pod.draws_on in self.known:
            self.dirty[pod.draws_on] = None

    def _class_dropped(self, cls: PodClass) -> None:
        self.specs.forget_class(cls)
        self._drawable.pop(cls.id, None)
        self._wishes.pop(cls.id, None)

    # Telling

    def opened(self, promise: ReservationInfo) -> None:
        """Owners may find room that was not there before."""
        self.moved(promise)
        if promise.preemptor and promise.waiting:
            return  # its owner knows, and has nothing to find yet
        self._cluster.changed(Change.POD_LEFT)
        if promise.preemptor:
            owner, watcher = self._cluster.pods.get(promise.preemptor), self._cluster.watcher
            if owner is not None and owner.phase is Phase.PENDING and not owner.leaving and watcher:
                watcher.pod_pending(owner)

    def moved(self, promise: ReservationInfo) -> None:
        self._cluster.jobs.holds.moved(promise)
        self.dirty[promise.uid] = None
        self.log.append(promise.uid)
        if len(self.log) > 2 * _KEPT:
            self.log_start += _KEPT
            del self.log[:_KEPT]
        if promise.pod is not None and promise.pod.row >= 0:
            self._ledger.changed.add(promise.pod.row)

    def note(self, promise: ReservationInfo, what: str, detail: str = "") -> None:
        if not is_starvation_hold(promise):
            self._cluster.revision += 1
        self._cluster.chronicle.note(self._cluster.now, promise.ref, what, detail)
