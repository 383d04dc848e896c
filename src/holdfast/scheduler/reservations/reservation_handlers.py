"""Event handlers of Reservations: objects that are added, changed, found on a node, or deleted."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from holdfast.api import names
from holdfast.api.calendar import CalendarTerms, calendar_terms
from holdfast.api.errors import HoldfastError, InvalidObject, SelectorError, TimeError
from holdfast.api.memo import Memo
from holdfast.api.meta import ObjectMeta, condition
from holdfast.api.pod import Pod
from holdfast.api.quantity import QuantityError
from holdfast.api.reservation import Reservation, ReservationPhase
from holdfast.api.times import parse_time
from holdfast.scheduler.cluster.base import ClusterBase
from holdfast.scheduler.cluster.events import Change
from holdfast.scheduler.cluster.pod_classes import ClaimTrait, PodClass
from holdfast.scheduler.cluster.records import (
    FINISHED,
    LIVE,
    Phase,
    PodRecord,
    ReservationInfo,
    queued_since,
)
from holdfast.scheduler.cluster.slots import Amounts, Pairs
from holdfast.scheduler.managers.resource_managers import ResourceManagers
from holdfast.scheduler.reservations.preemption_holds import preemptor_of
from holdfast.scheduler.reservations.reservation_cache import ReservationCache, ReservationListener
from holdfast.scheduler.reservations.reservation_status import RESIZED, SCHEDULED, was_late
from holdfast.scheduler.reservations.reservation_victims import problems, victims_in
from holdfast.scheduler.reservations.reserve_pod import (
    Terms,
    counts_pods,
    held,
    node_and_scheduler,
    reserve_pod,
    terms_of,
    traits_of,
)

_AMOUNTS_KEPT = 4096
_HOLD_ANNOTATIONS = {names.HELD_FOR, names.HELD_BECAUSE}
"""The annotations of a preemption hold."""


class ReservationHandlers:
    """Brings the reservation cache in line with Reservation objects."""

    def __init__(
        self,
        cluster: ClusterBase,
        managers: ResourceManagers,
        reservations: ReservationCache,
        listener: ReservationListener,
    ) -> None:
        self._cluster = cluster
        self._managers = managers
        self._reservations = reservations
        self._listener = listener
        self._ledger = cluster.ledger
        self._nodes = cluster.nodes
        self.claim_traits: Callable[[Pod], tuple[ClaimTrait, ...]] = lambda pod: ()
        """The ResourceClaims of a reserve pod, as part of its class."""
        self._last_hold: tuple[Any, PodClass] | None = None
        self._last_terms: tuple[Any, Terms] | None = None
        self._amounts: Memo[Pairs, Amounts] = Memo(_AMOUNTS_KEPT)

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
                reservations.drop(namesake.uid, "replaced")
            info = ReservationInfo(reservation, self._created(meta))
            reservations.add(info)
        reservations.starvation_holds.put(info)
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
            reservations.wake_owners(info)

    def put_virtual(self, reservation: ReservationInfo, row: int) -> None:
        """Adds a reservation without an object, which holds its amounts on the row. Raises if it is
        invalid."""
        reservations = self._reservations
        self._read(reservation)
        reservations.add(reservation)
        reservations.set_amounts(reservation, reservation.wanted)
        reservations.assume(reservation, row)
        assert reservation.pod is not None
        self._managers.settle(reservation.pod)
        reservations.note(reservation, "set aside", self._nodes.name(row))
        reservations.wake_owners(reservation)

    def _is_settled(self, reservation: ReservationInfo) -> bool:
        """Whether the status of an object is the one last written, and its reserve pod is on that
        node."""
        status, pod = reservation.object.status, reservation.pod
        if pod is None or reservation.last_status is None or status != reservation.last_status:
            return False
        reservation.last_status = None
        return pod.phase is Phase.ASSIGNED and self._nodes.name(pod.row) == status.node_name

    def _interned(self, amounts: Amounts) -> Amounts:
        """One object for equal amounts, which is never changed: thousands of reservations hold the
        same."""
        key = tuple(amounts.items())
        known = self._amounts.get(key)
        if known is None:
            known = self._amounts[key] = amounts
        return known

    # Reading an object

    def _calendar_terms(self, info: ReservationInfo) -> CalendarTerms:
        """The calendar annotations. A reservation that holds its capacity has started: a later start
        that it gets then counts as the time since when it has been on its node."""
        terms, held_since = calendar_terms(info.object.metadata.annotations), self._held_since(info)
        if terms.start is None or held_since is None or terms.start < held_since + 1:
            return terms  # the times of conditions are in whole seconds
        return terms._replace(start=held_since)

    def _held_since(self, info: ReservationInfo) -> float | None:
        """Since when it has been on its node; None if it is on none."""
        status, pod = info.object.status, info.pod
        if not status.node_name or status.phase not in LIVE:
            is_assumed = pod is not None and pod.row >= 0
            return info.since if is_assumed else None
        scheduled = condition(status.conditions, SCHEDULED)
        try:
            return parse_time((scheduled.last_transition_time if scheduled else None) or "")
        except TimeError:
            return info.created

    def _read(self, info: ReservationInfo) -> bool:
        """Reads owners and template of the object. Raises if they are invalid. Returns whether the
        class of its reserve pod changed."""
        reservations, reservation = self._reservations, info.object
        reservations.set_calendar(info, self._calendar_terms(info))
        node, scheduler = node_and_scheduler(reservation)
        preemptor = preemptor_of(reservation) if node else ""
        spec = reservations.specs.acquire([] if preemptor else reservation.spec.owners)
        try:
            if preemptor:
                cls = self._class_of_hold(info, spec.id)
            else:
                pod = reserve_pod(reservation)
                traits = traits_of(reservation, spec.id, node)
                if pod.spec.resource_claims or info.claim_entries:
                    traits = traits._replace(claims=self._claims_of(info, pod))
                cls = self._cluster.classes.acquire(pod, traits)
        except HoldfastError:
            reservations.specs.release(spec)
            raise
        reservations.set_owners(info, spec, preemptor)
        info.wants_node = node
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
        self._listener.reserve_pod_read(record, reservation.metadata)
        terms = self._terms(info, cls)
        info.wanted = self._interned(terms.wanted)
        if info.once != terms.once and info.entry is not None:
            self._nodes.held_outdated[info.entry.row] = None
        info.once = terms.once
        info.order = terms.order
        info.restricted = terms.restricted
        info.withheld = terms.withheld
        info.counts_pods = counts_pods(reservation, cls)
        info.holds_more = bool(cls.ports or cls.volumes or cls.claims)
        return changed

    def _claims_of(self, info: ReservationInfo, pod: Pod) -> tuple[ClaimTrait, ...]:
        """The claims of its reserve pod; on a node they stay as they are."""
        record, entries = info.pod, tuple(entry.name for entry in pod.spec.resource_claims)
        if record is not None and record.row >= 0:
            info.claims_changed = info.claim_entries != entries
            return record.cls.claims
        info.claim_entries, info.claims_changed = entries, False
        return self.claim_traits(pod)

    def templates_changed(self) -> None:
        """Reads pending reservations again whose ResourceClaimTemplates may have changed."""
        for info in self._reservations.known.values():
            pod = info.pod
            if pod is None or pod.row >= 0 or info.finished or not pod.cls.pod.spec.resource_claims:
                continue
            if self._read(info):
                self._settle(info, True)

    def _class_of_hold(self, info: ReservationInfo, spec: int) -> PodClass:
        """The class of a preemption hold; memoizes the last one, since preemptors often have the same
        template."""
        reservation = info.object
        template = reservation.spec.template or {}
        if template["spec"].get("resourceClaims"):
            pod = reserve_pod(reservation)
            claims = self._claims_of(info, pod)
            return self._cluster.classes.acquire(
                pod, traits_of(reservation, spec, "")._replace(claims=claims)
            )
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
            entry = self._ledger.reservations.get(record.uid)
            assert entry is not None
            row, amounts = entry.row, entry.amounts
            with self._ledger.transaction() as transaction:
                self._ledger.release(record)
                record.cls = cls
                self._ledger.reserve(record, row, amounts)
                transaction.commit()
        record.cls = cls
        self._cluster.classes.release(before)

    def _unreadable(self, reservation: ReservationInfo, error: Exception) -> None:
        """Marks a reservation as invalid; it is neither planned nor scheduled until it is fixed."""
        text = str(error)
        if isinstance(error, InvalidObject):
            text = f"{error.field}: {error.message}" if error.field else error.message
        if reservation.error != text:
            reservation.error = text
            self._reservations.note(reservation, "invalid", text)
        pod = reservation.pod
        if pod is not None and pod.phase is Phase.PENDING:
            self._reservations.let_go(reservation)

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
        self._reservations.set_amounts(reservation, reservation.wanted)
        listener = self._cluster.listener
        if listener is None:
            return
        calendar, start = self._reservations.calendar, reservation.calendar.start
        if not reservation.started and was_late(status) and start is not None:
            reservation.started = start <= self._cluster.now
            if reservation.started:
                calendar.note_late(reservation)
        if reservation.terminating:
            calendar.drop(reservation.uid)
            listener.pod_settled(pod)
        elif start is not None and (start > self._cluster.now or not reservation.started):
            if calendar.get(reservation.uid) is None:
                listener.pod_settled(pod)
                changed = True
            if changed:
                reservation.started = False
                calendar.put(reservation, start)
        elif changed:
            calendar.drop(reservation.uid)
            if start is not None:
                calendar.note_late(reservation)  # its class may be another one than before
            listener.pod_pending(pod)

    def _found_on(self, reservation: ReservationInfo, node: str) -> None:
        """Holds its capacity on the node of its status, which this or another scheduler has written."""
        reservations, pod, status = self._reservations, reservation.pod, reservation.object.status
        assert pod is not None
        reservation.started = True  # if it has a start, another scheduler has reached it
        reservations.calendar.drop(reservation.uid)
        if status.phase == ReservationPhase.AVAILABLE and not reservation.waiting:
            self._managers.seen(pod, reservation.object.metadata)
        row = self._cluster.open_row(node)
        if pod.row == row:
            if pod.phase is Phase.ASSUMED:
                reservations.confirm(reservation)
            return
        listener = self._cluster.listener
        if listener is not None:
            listener.pod_settled(pod)
        if pod.row >= 0:
            reservations.waiting.leave(reservation)
            reservations.set_victims(reservation, frozenset())
            self._ledger.release(pod)
            self._cluster.changed(Change.POD_LEFT)
        self._reservations.set_amounts(reservation, self._held(reservation, pod.cls))
        self._ledger.reserve(pod, row, reservation.amounts)
        reservation.node_gone = False
        if status.phase == ReservationPhase.WAITING:
            reservations.waiting.join(reservation)
            reservations.set_victims(reservation, victims_in(reservation.object))
        pod.phase = Phase.ASSIGNED
        reservations.note(reservation, status.phase.lower(), node)
        reservations.wake_owners(reservation)

    def _held(self, reservation: ReservationInfo, cls: PodClass) -> Amounts:
        """What its status says it holds; what it requests if that is invalid, or if the status says
        nothing. After a resize that was refused, an empty status means that it holds no resources."""
        status = reservation.object.status
        allocatable, resized = status.allocatable, condition(status.conditions, RESIZED)
        if not allocatable and not (resized is not None and resized.status == "False"):
            return reservation.wanted
        try:
            return self._interned(held(allocatable, cls, self._nodes))
        except QuantityError:
            return reservation.wanted
