"""Event handlers of Reservations: objects that are added, changed, found on a node, or deleted."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any, NamedTuple

from holdfast.api import names
from holdfast.api.errors import HoldfastError, InvalidObject, SelectorError, TimeError
from holdfast.api.meta import ObjectMeta
from holdfast.api.quantity import QuantityError
from holdfast.api.reservation import Reservation, ReservationPhase
from holdfast.api.times import parse_time
from holdfast.scheduler.cluster.events import Change
from holdfast.scheduler.cluster.pod_classes import ORDINARY, PodClass, Traits
from holdfast.scheduler.cluster.pods import Phase, PodRecord, queued_since
from holdfast.scheduler.cluster.reservation_table import Amounts
from holdfast.scheduler.cluster.slots import PODS
from holdfast.scheduler.reservations.owners import OwnerSpec
from holdfast.scheduler.reservations.preemption_holds import preemptor_of
from holdfast.scheduler.reservations.reservation_info import FINISHED, LIVE, ReservationInfo
from holdfast.scheduler.reservations.reservation_victims import (
    INCOMPLETE_GANG,
    INVALID_CAN_PREEMPT,
    INVALID_PRIORITY,
    problems,
    victims_in,
)
from holdfast.scheduler.reservations.reserve_pod import (
    Terms,
    counts_pods,
    held,
    node_and_scheduler,
    reserve_pod,
    terms_of,
    traits_of,
)

if TYPE_CHECKING:
    from holdfast.scheduler.cluster.cluster import Cluster
    from holdfast.scheduler.reservations.reservation_cache import ReservationCache

_PRIVATE = Traits(private=True)
_AMOUNTS_KEPT = 4096
_HOLD_ANNOTATIONS = {names.HELD_FOR, names.HELD_BECAUSE}
"""The annotations of a preemption hold."""


class _StatusAmounts(NamedTuple):
    """Amounts, which are never changed, as the status lists them."""

    amounts: Amounts
    pods_too: bool
    by_name: dict[str, int]
    listed: tuple[tuple[int, str], ...]


class ReservationHandlers:
    """Brings the reservation cache in line with Reservation objects."""

    def __init__(self, reservations: ReservationCache, cluster: Cluster) -> None:
        self._reservations = reservations
        self._cluster = cluster
        self._ledger = cluster.ledger
        self._nodes = cluster.nodes
        self._uid: dict[str, str] = {}
        self._named: Counter[tuple[str, str]] = Counter()
        self._no_owners: OwnerSpec | None = None
        self._last_hold: tuple[Any, PodClass] | None = None
        self._last_terms: tuple[Any, Terms] | None = None
        self._last_amounts = _StatusAmounts({}, False, {}, ())
        self._amounts: dict[tuple[tuple[int, int], ...], Amounts] = {}

    def uid(self, name: str) -> str:
        return self._uid.get(name, "")

    def traits(self, metadata: ObjectMeta) -> Traits:
        """The traits of a pod's class that depend on reservations: whether one names the pod."""
        if not self._named:
            return ORDINARY
        if ("", metadata.uid) in self._named or ("name", metadata.name) in self._named:
            return _PRIVATE
        return ORDINARY

    def put(self, reservation: Reservation) -> None:
        """Follows an object that was added or changed."""
        reservations, meta = self._reservations, reservation.metadata
        info, renewed = reservations.known.get(meta.uid), False
        if info is not None:
            renewed = info.see(reservation)
            if not renewed and self._is_settled(info):
                return
            if not renewed and info.finished and reservation.status == info.last_status:
                info.last_status = None
                reservations.dirty[meta.uid] = None  # its collection comes next
                return
        else:
            namesake = reservations.get(meta.name)
            if namesake is not None:
                self.drop(namesake.uid, "replaced")
            info = ReservationInfo(reservation, self._created(meta))
            reservations.known[meta.uid] = info
            self._uid[meta.name] = meta.uid
            reservations.note(info, "added")
        self._cluster.jobs.holds.put(info)
        reservations.dirty[info.uid] = None
        if info.finished or reservation.status.phase in FINISHED:
            reservations.finish(info, info.finished or reservation.status.phase)
            return
        known = not renewed and info.pod is not None and not info.error
        try:
            changed = not known and self._read(info)
        except (InvalidObject, SelectorError, QuantityError) as error:
            self._unreadable(info, error)
            return
        changed = changed or bool(info.error)
        info.error = ""
        self._settle(info, changed)
        reservations.update_eviction(info)
        for reason, message in problems(reservation).items():
            self._cluster.warn_once(info.ref, reason, message)
        if renewed:
            reservations.opened(info)

    def put_virtual(self, reservation: ReservationInfo) -> None:
        """Adds a reservation without an object. Raises if its spec is invalid."""
        self._read(reservation)
        self._reservations.known[reservation.uid] = reservation
        self._uid[reservation.name] = reservation.uid
        self.set_amounts(reservation, reservation.wanted)

    def _is_settled(self, reservation: ReservationInfo) -> bool:
        """Whether the status of an object is the one last written, and its reserve pod is on that
        node."""
        status, pod = reservation.object.status, reservation.pod
        if pod is None or reservation.last_status is None or status != reservation.last_status:
            return False
        reservation.last_status = None
        return pod.phase is Phase.ASSIGNED and self._nodes.name(pod.row) == status.node_name

    def drop(self, uid: str, why: str = "deleted") -> None:
        """Removes a reservation; `why` is the entry in its story."""
        reservation = self._reservations.known.pop(uid, None)
        if reservation is None:
            return
        if self._uid.get(reservation.name) == uid:
            del self._uid[reservation.name]
        self._reservations.softly_evicted.pop(uid, None)
        for reason in (INVALID_PRIORITY, INVALID_CAN_PREEMPT, INCOMPLETE_GANG):
            self._cluster.warn_once(reservation.ref, reason, "")
        self.let_go(reservation)
        self._cluster.jobs.holds.drop(reservation)
        self._cluster.jobs.gone(reservation.object.metadata.uid)
        self._reservations.dirty.pop(uid, None)
        self._reservations.note(reservation, why)

    def let_go(self, reservation: ReservationInfo) -> None:
        """Releases its capacity, its reserve pod and its owner spec."""
        pod = reservation.pod
        if pod is not None:
            if self._cluster.watcher is not None:
                self._cluster.watcher.pod_settled(pod)
            if pod.row >= 0:
                self._reservations.waiting.leave(reservation)
                self._reservations.set_victims(reservation, frozenset())
                self._reservations.moved(reservation)
                self._ledger.release(pod)
                self._cluster.changed(Change.POD_LEFT)
            pod.phase = Phase.PENDING
            pod.gone = True
            self._cluster.jobs.leave(pod)
            self._cluster.managers.forget(pod.uid)
            self._cluster.classes.release(pod.cls)
            reservation.pod = None
        if reservation.spec is not None:
            self._leave(reservation)
            reservation.spec = None

    def _interned(self, amounts: Amounts) -> Amounts:
        """One object for equal amounts, which is never changed: thousands of reservations hold the
        same."""
        key = tuple(amounts.items())
        if len(self._amounts) >= _AMOUNTS_KEPT:
            self._amounts.clear()
        return self._amounts.setdefault(key, amounts)

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
        return _StatusAmounts(amounts, pods_too, self._reservations.by_name(amounts.items()), listed)

    # Reading an object

    def _read(self, info: ReservationInfo) -> bool:
        """Reads owners and template of the object. Raises if they are invalid. Returns whether the
        class of its reserve pod changed."""
        reservations, reservation = self._reservations, info.object
        node, scheduler = node_and_scheduler(reservation)
        preemptor = preemptor_of(reservation) if node else ""
        spec = reservations.specs.acquire([] if preemptor else reservation.spec.owners)
        try:
            if preemptor:
                cls = self._class_of_hold(reservation, spec.id)
            else:
                pod = reserve_pod(reservation)
                cls = self._cluster.classes.acquire(pod, traits_of(reservation, spec.id, node))
        except HoldfastError:
            reservations.specs.release(spec)
            raise
        if info.spec is not None:
            self._leave(info)
        info.spec = spec
        info.preemptor, info.wants_node = preemptor, node
        if preemptor:
            self._add_hold(info)
        reservations.members.setdefault(spec.id, {})[info.uid] = info
        for named in spec.names():
            self._name(named.name, named.uid, 1)
        record = info.pod
        changed = record is None or record.cls is not cls
        if record is None:
            record = info.pod = PodRecord(info.ref, cls, scheduler, self._cluster.now)
            record.namespace = cls.namespace
            record.started = info.created
            record.created = reservation.metadata.creation_timestamp
            record.queued_since = queued_since(record.created, self._cluster.now)
            record.reservation = info
        else:
            self._reclass(record, cls)
        self._cluster.jobs.join(record, reservation.metadata, cls.namespace)
        terms = self._terms(info, cls)
        info.wanted = self._interned(terms.wanted)
        if info.once != terms.once and info.hold is not None:
            self._nodes.held_outdated[info.hold.row] = None
        info.once = terms.once
        info.order = terms.order
        info.restricted = terms.restricted
        info.withheld = terms.withheld
        info.counts_pods = counts_pods(reservation, cls)
        return changed

    def _class_of_hold(self, reservation: Reservation, spec: int) -> PodClass:
        """The class of a preemption hold; memoizes the last one, since preemptors often have the same
        template."""
        template = reservation.spec.template or {}
        wanted = {key: value for key, value in template["spec"].items() if key != "nodeName"}
        asked = (template.get("metadata"), wanted)
        classes = self._cluster.classes
        if self._last_hold is not None and self._last_hold[0] == asked:
            cls = self._last_hold[1]
            if classes.acquire_again(cls):
                return cls
        cls = classes.acquire(reserve_pod(reservation), traits_of(reservation, spec, ""))
        self._last_hold = asked, cls
        return cls

    def _terms(self, reservation: ReservationInfo, cls: PodClass) -> Terms:
        """The terms of a reservation; memoizes the last ones of preemption holds, which depend on the
        class only."""
        meta = reservation.object.metadata
        if (
            not reservation.preemptor
            or meta.annotations.keys() != _HOLD_ANNOTATIONS
            or len(meta.labels) > 1
        ):
            return terms_of(reservation.object, cls, self._nodes)
        which = cls.id, len(self._cluster.classes.counted)
        if self._last_terms is None or self._last_terms[0] != which:
            self._last_terms = which, terms_of(reservation.object, cls, self._nodes)
        return self._last_terms[1]

    def _reclass(self, record: PodRecord, cls: PodClass) -> None:
        """Changes the class of a reserve pod, also in the ledger."""
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

    def _unreadable(self, reservation: ReservationInfo, error: Exception) -> None:
        """Marks a reservation as invalid; it is not scheduled until it is fixed."""
        text = str(error)
        if isinstance(error, InvalidObject):
            text = f"{error.field}: {error.message}" if error.field else error.message
        if reservation.error != text:
            reservation.error = text
            self._reservations.note(reservation, "invalid", text)
        pod = reservation.pod
        if pod is not None and pod.phase is Phase.PENDING and self._cluster.watcher is not None:
            self._cluster.watcher.pod_settled(pod)

    def _created(self, meta: ObjectMeta) -> float:
        try:
            return parse_time(meta.creation_timestamp or "")
        except TimeError:
            return self._cluster.now

    # Following the status

    def _settle(self, reservation: ReservationInfo, changed: bool) -> None:
        """Follows the object's status if it has a node; else queues the reserve pod if it changed."""
        pod, status = reservation.pod, reservation.object.status
        assert pod is not None
        if status.node_name and status.phase in LIVE:
            self._found_on(reservation, status.node_name)
            return
        if pod.phase is not Phase.PENDING:
            return
        self.set_amounts(reservation, reservation.wanted)
        watcher = self._cluster.watcher
        if watcher is None:
            return
        if reservation.terminating:
            watcher.pod_settled(pod)
        elif changed:
            watcher.pod_pending(pod)

    def _found_on(self, reservation: ReservationInfo, node: str) -> None:
        """Holds its capacity on the node of its status, which this or another scheduler has written."""
        reservations, pod, status = self._reservations, reservation.pod, reservation.object.status
        assert pod is not None
        if status.phase == ReservationPhase.AVAILABLE and not reservation.waiting:
            self._cluster.managers.seen(pod, reservation.object.metadata)
        row = self._cluster.open_row(node)
        if pod.row == row:
            if pod.phase is Phase.ASSUMED:
                reservations.confirm(reservation)
            return
        watcher = self._cluster.watcher
        if watcher is not None:
            watcher.pod_settled(pod)
        if pod.row >= 0:
            reservations.waiting.leave(reservation)
            reservations.set_victims(reservation, frozenset())
            self._ledger.release(pod)
            self._cluster.changed(Change.POD_LEFT)
        self.set_amounts(reservation, self._held(reservation, pod.cls))
        self._ledger.hold(pod, row, reservation.amounts)
        reservation.node_gone = False
        if status.phase == ReservationPhase.WAITING:
            reservations.waiting.join(reservation)
            reservations.set_victims(reservation, victims_in(reservation.object))
        pod.phase = Phase.ASSIGNED
        reservations.note(reservation, status.phase.lower(), node)
        reservations.opened(reservation)

    def _held(self, reservation: ReservationInfo, cls: PodClass) -> Amounts:
        """What its status says it holds; what it requests if that is invalid."""
        allocatable = reservation.object.status.allocatable
        if not allocatable:
            return reservation.wanted
        try:
            return self._interned(held(allocatable, cls, self._nodes))
        except QuantityError:
            return reservation.wanted

    # Owners

    def _leave(self, reservation: ReservationInfo) -> None:
        spec = reservation.spec
        assert spec is not None
        there = self._reservations.members[spec.id]
        there.pop(reservation.uid, None)
        if not there:
            del self._reservations.members[spec.id]
        for named in spec.names():
            self._name(named.name, named.uid, -1)
        self._reservations.specs.release(spec)
        self._reservations.preemption_holds.remove(reservation)

    def _add_hold(self, reservation: ReservationInfo) -> None:
        """Adds a preemption hold. All of them have the empty owner spec: as the preemptor is matched by
        uid, they make no difference to pod classes."""
        self._reservations.preemption_holds.add(reservation)
        if self._no_owners is None:
            # Never released, since preemption holds come and go all the time.
            self._no_owners = self._reservations.specs.acquire([])

    def _name(self, name: str, uid: str, count: int) -> None:
        """Counts the reservations that name a pod by name or uid. The first and the last one change the
        class of the pod."""
        key = ("", uid) if uid else ("name", name)
        before = self._named[key]
        self._named[key] = before + count
        if not self._named[key]:
            del self._named[key]
        if (before == 0) != (before + count == 0):
            self._cluster.pod_handlers.reclassify(name, uid)
