"""All reservations, kept in step with objects, nodes and pods.

Objects come in by `put` and `drop`; where a reservation holds room is written to the ledger. Pods that
draw on one are told apart by its uid, whichever of the two is seen first. Whoever looks after the life
of reservations (the lifecycle controller) takes those that may need something from `dirty`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from holdfast.api import names
from holdfast.api.errors import HoldfastError, InvalidObject, SelectorError, TimeError
from holdfast.api.label_selectors import as_integer
from holdfast.api.meta import ObjectMeta, ResourceList
from holdfast.api.quantity import QuantityError, amount
from holdfast.api.reservation import AllocatePolicy, Reservation, ReservationPhase
from holdfast.api.timestamps import parse_time
from holdfast.core.changes import Change
from holdfast.core.classes import ORDINARY, PodClass, Traits, capped
from holdfast.core.holds import Amounts, Hold
from holdfast.core.pods import Phase, PodRecord
from holdfast.core.promises.drawable import Drawable
from holdfast.core.promises.owners import OwnerSpecs
from holdfast.core.promises.promise import FINISHED, LIVE, Promise
from holdfast.core.promises.reserve_pod import (
    annotated_amounts,
    namespace_of,
    reserve_pod,
    restricted_names,
)
from holdfast.core.promises.wishes import Wish
from holdfast.core.slots import CPU, MEMORY, NONZERO_CPU, NONZERO_MEMORY, PODS

if TYPE_CHECKING:
    from holdfast.core.cluster import Cluster

_PRIVATE = Traits(private=True)


class Promises:
    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._ledger = cluster.ledger
        self._nodes = cluster.nodes
        self.known: dict[str, Promise] = {}
        """By uid."""
        self.specs = OwnerSpecs()
        self.members: dict[int, dict[str, Promise]] = {}
        """The reservations of each owner spec, by its id and their uid."""
        self.dirty: dict[str, None] = {}
        """The uids of reservations whose status, phase or room may have to change."""
        self.log: list[str] = []
        """The uids of reservations that moved, or changed in a way that may matter to owners."""
        self.log_start = 0
        """The position of the log's first entry; what came before is forgotten."""
        self._uid: dict[str, str] = {}
        self._drawing: dict[str, dict[str, PodRecord]] = {}
        self._waiting: dict[int, set[str]] = {}
        """The uids of reservations that wait for room, by the row they wait on."""
        self._named: Counter[tuple[str, str]] = Counter()
        self._wishes: dict[int, Wish] = {}
        self._drawable: dict[int, Drawable] = {}
        self._ledger.listeners.append(self._pod_moved)
        self._ledger.on_drawn = self.drew
        cluster.classes.on_dropped.append(self._class_dropped)

    # What is asked

    def get(self, name: str) -> Promise | None:
        return self.known.get(self._uid.get(name, ""))

    def hold(self, promise: Promise) -> Hold | None:
        return self._ledger.holds.get(promise.uid)

    def drawing(self, promise: Promise) -> list[PodRecord]:
        """The pods on its node that draw on it; they may not be bound yet."""
        drawing = self._drawing.get(promise.uid)
        row = promise.pod.row if promise.pod is not None else -1
        return [pod for pod in drawing.values() if pod.row == row] if drawing else []

    def is_usable(self, promise: Promise) -> bool:
        """Whether owners can draw on it now. They are bound no sooner than it is."""
        pod = promise.pod
        return (
            pod is not None
            and pod.row >= 0
            and not promise.waiting
            and not (promise.once and promise.uid in self._drawing and self.drawing(promise))
        )

    def matching(self, cls: PodClass) -> frozenset[int]:
        """The owner specs pods of the class match."""
        return self.specs.matching(cls)

    def drawable(self, cls: PodClass) -> Drawable | None:
        """The reservations pods of the class may draw on, up to date; None if there are none."""
        if not self.specs.matching(cls):
            return None
        found = self._drawable.get(cls.id)
        if found is None:
            found = self._drawable[cls.id] = Drawable(self, cls)
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

    def wish(self, cls: PodClass) -> Wish:
        """What pods of the class say about reservations."""
        wish = self._wishes.get(cls.id)
        if wish is None:
            wish = self._wishes[cls.id] = Wish(cls, self.by_name(cls.requests))
        return wish

    def concerns(self, cls: PodClass) -> bool:
        """Whether reservations matter to pods of the class."""
        return bool(self.specs.matching(cls)) or (
            names.RESERVATION_AFFINITY in cls.annotations and cls.promised_to < 0
        )

    def traits(self, metadata: ObjectMeta) -> Traits:
        """What sets the class of a pod apart because of reservations."""
        if not self._named:
            return ORDINARY
        if ("", metadata.uid) in self._named or ("name", metadata.name) in self._named:
            return _PRIVATE
        return ORDINARY

    def node_labels(self, row: int) -> Mapping[str, str]:
        info = self._nodes.info.get(row)
        return info.labels if info is not None else {}

    def by_name(self, amounts: Iterable[tuple[int, int]]) -> dict[str, int]:
        """Amounts by the resource's name, derived sums left out."""
        slots = self._nodes.slots
        return {slots.name(slot): amount for slot, amount in amounts if slots.name(slot)}

    # Objects

    def put(self, reservation: Reservation) -> None:
        meta = reservation.metadata
        promise = self.known.get(meta.uid)
        if promise is None:
            namesake = self.get(meta.name)
            if namesake is not None:
                self.drop(namesake.uid, "replaced")
            promise = Promise(reservation, self._created(meta))
            self.known[meta.uid] = promise
            self._uid[meta.name] = meta.uid
            self._note(promise, "added")
        before, promise.object = promise.object, reservation
        self._cluster.jobs.holds.put(promise)
        self.dirty[promise.uid] = None
        if promise.finished or reservation.status.phase in FINISHED:
            self.finish(promise, promise.finished or reservation.status.phase)
            return
        try:
            changed = self._read(promise)
        except (InvalidObject, SelectorError, QuantityError) as error:
            self._unreadable(promise, error)
            return
        changed = changed or bool(promise.error)
        promise.error = ""
        self._settle(promise, changed)
        if before.spec != reservation.spec or before.metadata.labels != meta.labels:
            self._opened(promise)

    def drop(self, uid: str, why: str = "deleted") -> None:
        """The object is gone."""
        promise = self.known.pop(uid, None)
        if promise is None:
            return
        if self._uid.get(promise.name) == uid:
            del self._uid[promise.name]
        self._let_go(promise)
        self._cluster.jobs.holds.drop(promise)
        self._cluster.jobs.gone(promise.object.metadata, namespace_of(promise.object))
        self.dirty.pop(uid, None)
        self._note(promise, why)

    def finish(self, promise: Promise, reason: str) -> None:
        """It holds nothing any more, for good."""
        if not promise.finished:
            self._note(promise, reason.lower())
        promise.finished = reason
        self._cluster.jobs.holds.drop(promise)
        if reason == ReservationPhase.SUCCEEDED:
            meta, namespace = promise.object.metadata, namespace_of(promise.object)
            self._cluster.jobs.ended(meta, True, namespace)
        self._let_go(promise)
        self.dirty[promise.uid] = None

    # Where it holds room

    def assume(self, promise: Promise, row: int) -> None:
        """It is to hold its room on this row."""
        pod = promise.pod
        assert pod is not None
        self._ledger.hold(pod, row, promise.amounts)
        self._set_waiting(promise, promise.pre_allocation and not self.has_room(promise))
        pod.phase = Phase.ASSUMED
        self._moved(promise)

    def unassume(self, promise: Promise) -> None:
        pod = promise.pod
        assert pod is not None
        self._set_waiting(promise, False)
        self._ledger.release(pod)
        pod.phase = Phase.PENDING
        self._moved(promise)

    def confirm(self, promise: Promise) -> None:
        """It holds its room, and that was written on it."""
        pod = promise.pod
        assert pod is not None
        pod.phase = Phase.ASSIGNED
        promise.message = ""
        if self._cluster.watcher is not None:
            self._cluster.watcher.bind_confirmed(pod)
        self._note(promise, "waiting" if promise.waiting else "available", self._nodes.name(pod.row))
        self._opened(promise)

    def available(self, promise: Promise) -> None:
        """The room it waited for is there."""
        self._set_waiting(promise, False)
        self._note(promise, "available")
        self._opened(promise)

    def postponed(self, promise: Promise) -> None:
        """The room is lent for a while to one who will be gone in time."""
        self._set_waiting(promise, True)
        self._note(promise, "waiting")
        self._moved(promise)

    def has_room(self, promise: Promise, amounts: Amounts | None = None) -> bool:
        """Whether there is room for what it promises, or for other amounts instead, where it is."""
        return not self.lacking(promise, amounts)

    def lacking(self, promise: Promise, amounts: Amounts | None = None) -> list[str]:
        """The resources there is not enough of for that."""
        slots = self._nodes.slots
        return [slots.name(slot) for slot in self.shortage(promise, amounts)]

    def shortage(self, promise: Promise, amounts: Amounts | None = None) -> Amounts:
        """By slot, how much is missing for that. Younger reservations that wait there do not count: it
        comes before them."""
        hold = self.hold(promise)
        assert hold is not None
        row, nodes = hold.row, self._nodes
        waiting = self._waiting.get(row, ())
        behind = [
            each
            for uid in waiting
            if uid != promise.uid and promise.is_before(self.known[uid])
            if (each := self._ledger.holds.get(uid)) is not None
        ]
        short: Amounts = {}
        for slot, promised in (hold.amounts if amounts is None else amounts).items():
            claimed = nodes.claimed.item(slot, row) - hold.left(slot)
            claimed -= sum(each.left(slot) for each in behind)
            needed = max(0, promised - hold.taken.get(slot, 0))
            missing = claimed + needed - nodes.allocatable.item(slot, row)
            if missing > 0 and nodes.slots.name(slot):
                short[slot] = missing
        return short

    def resize(self, promise: Promise, amounts: Amounts) -> None:
        pod = promise.pod
        assert pod is not None
        self._ledger.resize(pod, amounts)
        self._set_amounts(promise, amounts)
        promise.resized = True
        self._note(promise, "resized")
        self._opened(promise)

    def refused(self, promise: Promise, message: str) -> None:
        """No node was found, or where it was to go it cannot."""
        promise.message = message
        self.dirty[promise.uid] = None

    def not_written(self, uid: str) -> None:
        """A status that was to be written was not."""
        promise = self.known.get(uid)
        if promise is not None:
            promise.told = None
            self.dirty[uid] = None

    # Following nodes and pods

    def node_changed(self, row: int) -> None:
        for hold in self._ledger.holds.on(row):
            if hold.pod.promise is not None:
                self._moved(hold.pod.promise)

    def pod_confirmed(self, pod: PodRecord) -> None:
        """A pod that draws on a reservation is bound."""
        if pod.draws_on in self.known:
            self.dirty[pod.draws_on] = None

    def _pod_moved(self, pod: PodRecord, row: int, sign: int) -> None:
        if pod.draws_on:
            self.drew(pod, sign)
        if row in self._waiting:
            self.dirty.update(dict.fromkeys(self._waiting[row]))

    def drew(self, pod: PodRecord, sign: int) -> None:
        """A pod on a node draws on a reservation, or does so no more."""
        drawing = self._drawing.setdefault(pod.draws_on, {})
        if sign > 0:
            drawing[pod.uid] = pod
        else:
            drawing.pop(pod.uid, None)
            if not drawing:
                del self._drawing[pod.draws_on]
        if pod.draws_on in self.known:
            self.dirty[pod.draws_on] = None

    def _class_dropped(self, cls: PodClass) -> None:
        self.specs.forget_class(cls)
        self._drawable.pop(cls.id, None)
        self._wishes.pop(cls.id, None)

    # Reading an object

    def _read(self, promise: Promise) -> bool:
        """Takes owners and template from the object; raises what is wrong with them. Whether anything
        changed that scheduling can see."""
        reservation = promise.object
        pod, node = reserve_pod(reservation)
        spec = self.specs.acquire(reservation.spec.owners)
        try:
            cls = self._cluster.classes.acquire(pod, _traits(reservation, spec.id, node))
        except HoldfastError:
            self.specs.release(spec)
            raise
        before = promise.spec
        if before is not None:
            self._leave(promise)
        promise.spec = spec
        self.members.setdefault(spec.id, {})[promise.uid] = promise
        for named in spec.names():
            self._name(named.name, named.uid, 1)
        record = promise.pod
        changed = record is None or record.cls is not cls
        if record is None:
            record = promise.pod = PodRecord(
                promise.ref, cls, pod.spec.scheduler_name, self._cluster.now
            )
            record.namespace = cls.namespace
            record.created = reservation.metadata.creation_timestamp
            record.promise = promise
        else:
            self._reclass(record, cls)
        self._cluster.jobs.join(record, reservation.metadata, cls.namespace)
        slots, labels = self._nodes.slots, reservation.metadata.labels
        promise.wanted = self._asked(reservation, cls)
        promise.once = reservation.spec.once
        promise.order = as_integer(labels.get(names.RESERVATION_ORDER, "")) or 0
        listed = restricted_names(reservation)
        promise.restricted = None
        if reservation.spec.allocate_policy == AllocatePolicy.RESTRICTED:
            promise.restricted = frozenset(
                slot
                for slot in promise.wanted
                if slots.name(slot) and (listed is None or slots.name(slot) in listed)
            )
        withheld = annotated_amounts(reservation, names.RESERVATION_INNER)
        promise.withheld = {self._nodes.slot(name): value for name, value in withheld.items()}
        return changed

    def _reclass(self, record: PodRecord, cls: PodClass) -> None:
        before = record.cls
        if cls is not before and record.row >= 0:
            hold = self._ledger.holds.get(record.uid)
            assert hold is not None
            row, amounts = hold.row, hold.amounts
            with self._ledger.transaction() as transaction:
                self._ledger.release(record)
                record.cls = cls
                self._ledger.hold(record, row, amounts)
                transaction.commit()
        record.cls = cls
        self._cluster.classes.release(before)

    def _asked(self, reservation: Reservation, cls: PodClass) -> Amounts:
        """By slot, with the pods it makes room for and the sums that scores are made of."""
        asked: Amounts = dict(cls.requests)
        resized = annotated_amounts(reservation, names.RESERVATION_RESIZE_ALLOCATABLE)
        asked.update((self._nodes.slot(name), capped(value)) for name, value in resized.items())
        return _complete(asked, cls)

    def _held(self, allocatable: ResourceList, cls: PodClass) -> Amounts:
        """What a live reservation says it holds."""
        held = {self._nodes.slot(n): capped(amount(n, q)) for n, q in allocatable.items()}
        return _complete(held, cls)

    def _set_amounts(self, promise: Promise, amounts: Amounts) -> None:
        promise.amounts = amounts
        promise.amounts_by_name = self.by_name(amounts.items())

    def _created(self, meta: ObjectMeta) -> float:
        try:
            return parse_time(meta.creation_timestamp or "")
        except TimeError:
            return self._cluster.now

    # Coming to what the object says

    def _settle(self, promise: Promise, changed: bool) -> None:
        pod, status = promise.pod, promise.object.status
        assert pod is not None
        if status.node_name and status.phase in LIVE:
            self._found_on(promise, status.node_name)
            return
        if pod.phase is not Phase.PENDING:
            return
        self._set_amounts(promise, promise.wanted)
        watcher = self._cluster.watcher
        if watcher is None:
            return
        if promise.terminating:
            watcher.pod_settled(pod)
        elif changed:
            watcher.pod_pending(pod)

    def _found_on(self, promise: Promise, node: str) -> None:
        """The object says where it holds its room, by our doing or by another's."""
        pod, status = promise.pod, promise.object.status
        assert pod is not None
        row = self._cluster.open_row(node)
        if pod.row == row:
            if pod.phase is Phase.ASSUMED:
                self.confirm(promise)
            return
        watcher = self._cluster.watcher
        if watcher is not None:
            watcher.pod_settled(pod)
        if pod.row >= 0:
            self._set_waiting(promise, False)
            self._ledger.release(pod)
            self._cluster.changed(Change.POD_LEFT)
        held = status.allocatable
        self._set_amounts(promise, self._held(held, pod.cls) if held else promise.wanted)
        self._ledger.hold(pod, row, promise.amounts)
        self._set_waiting(promise, status.phase == ReservationPhase.WAITING)
        pod.phase = Phase.ASSIGNED
        self._note(promise, status.phase.lower(), node)
        self._opened(promise)

    def _unreadable(self, promise: Promise, error: Exception) -> None:
        text = str(error)
        if isinstance(error, InvalidObject):
            text = f"{error.field}: {error.message}" if error.field else error.message
        if promise.error != text:
            promise.error = text
            self._note(promise, "invalid", text)
        pod = promise.pod
        if pod is not None and pod.phase is Phase.PENDING and self._cluster.watcher is not None:
            self._cluster.watcher.pod_settled(pod)

    def _let_go(self, promise: Promise) -> None:
        """Gives up its room and its owners."""
        pod = promise.pod
        if pod is not None:
            if self._cluster.watcher is not None:
                self._cluster.watcher.pod_settled(pod)
            if pod.row >= 0:
                self._set_waiting(promise, False)
                self._moved(promise)
                self._ledger.release(pod)
                self._cluster.changed(Change.POD_LEFT)
            pod.phase = Phase.PENDING
            pod.gone = True
            self._cluster.jobs.leave(pod)
            self._cluster.classes.release(pod.cls)
            promise.pod = None
        if promise.spec is not None:
            self._leave(promise)
            promise.spec = None

    def _leave(self, promise: Promise) -> None:
        spec = promise.spec
        assert spec is not None
        there = self.members[spec.id]
        there.pop(promise.uid, None)
        if not there:
            del self.members[spec.id]
        for named in spec.names():
            self._name(named.name, named.uid, -1)
        self.specs.release(spec)

    def _name(self, name: str, uid: str, count: int) -> None:
        """Some reservation means a pod of this name or uid, or does so no more."""
        key = ("", uid) if uid else ("name", name)
        before = self._named[key]
        self._named[key] = before + count
        if not self._named[key]:
            del self._named[key]
        if (before == 0) != (before + count == 0):
            self._cluster.reclassify(name, uid)

    def _set_waiting(self, promise: Promise, waiting: bool) -> None:
        if promise.waiting == waiting:
            return
        promise.waiting = waiting
        assert promise.pod is not None
        row = promise.pod.row
        if waiting:
            self._waiting.setdefault(row, set()).add(promise.uid)
        else:
            self._waiting[row].discard(promise.uid)
            if not self._waiting[row]:
                del self._waiting[row]

    def _opened(self, promise: Promise) -> None:
        """Owners may find room that was not there before."""
        self._moved(promise)
        self._cluster.changed(Change.POD_LEFT)

    def _moved(self, promise: Promise) -> None:
        self._cluster.jobs.holds.moved(promise)
        self.dirty[promise.uid] = None
        self.log.append(promise.uid)
        if len(self.log) > 2 * _KEPT:
            self.log_start += _KEPT
            del self.log[:_KEPT]
        if promise.pod is not None and promise.pod.row >= 0:
            self._ledger.changed.add(promise.pod.row)

    def _note(self, promise: Promise, what: str, detail: str = "") -> None:
        self._cluster.chronicle.note(self._cluster.now, promise.ref, what, detail)


_KEPT = 16384


def _traits(reservation: Reservation, spec: int, node: str) -> Traits:
    wishes = reservation.spec
    shared = not wishes.once and wishes.allocate_policy == AllocatePolicy.DEFAULT
    return Traits(promised_to=spec, wants_node=node, alone=shared, ahead=wishes.pre_allocation)


def _complete(amounts: Amounts, cls: PodClass) -> Amounts:
    amounts[PODS] = max(amounts.get(PODS, 0), cls.pod_slots)
    for slot, derived in ((CPU, NONZERO_CPU), (MEMORY, NONZERO_MEMORY)):
        if amounts.get(slot):
            amounts[derived] = amounts[slot]
    return {slot: amount for slot, amount in amounts.items() if amount > 0}
