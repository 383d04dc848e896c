"""Reservations, pending pods and queues for the dashboard: rows by uid, and what changed in them.

A row is a tuple of values in the order of the table's `fields`. Rows of reservations are made again
only if the reservation, its usage or its phase changed; pending pods are at most `MAX_PENDING` rows,
however many pods are pending.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from itertools import islice
from typing import Any

from holdfast.api import names
from holdfast.api.errors import TimeError
from holdfast.api.meta import LabelSelector, ObjectReference, ResourceList
from holdfast.api.quantity import QuantityError, amount
from holdfast.api.reservation import (
    ReservationControllerReference,
    ReservationOwner,
    ReservationPhase,
    ReservationStatus,
)
from holdfast.api.times import parse_time
from holdfast.scheduler.cluster.records import PodRecord, ReservationInfo
from holdfast.scheduler.cluster.slots import PODS, Amounts
from holdfast.scheduler.framework.diagnosis import reasons_in
from holdfast.scheduler.jobs.queue_shares import dominant_share
from holdfast.scheduler.jobs.queues import QueueRecord, QueueShare
from holdfast.scheduler.reservations.calendar import (
    DRAINING,
    NOT_PLANNED,
    PLANNED,
    PlannedReservation,
)
from holdfast.scheduler.reservations.reservation_status import READY, SCHEDULED, SUCCEEDED
from holdfast.scheduler.scheduler import Scheduler
from holdfast.scheduler.state.cluster import Cluster

MAX_PENDING = 1000
"""Pending pods that are listed; the others are counted."""
MAX_PAST = 300
"""Deleted reservations that are remembered."""
PREEMPTION_HOLD, STARVATION_HOLD = "preemption hold", "starvation hold"
"""Kinds of reservations."""
_MAX_OWNERS = 20
"""Pods that are listed as owners of a reservation; the others are counted."""
_SLICE = 500
"""Reservations that are read before others may run."""

Row = tuple[Any, ...]
Json = dict[str, Any]


class RowTable:
    """Rows as they were sent last."""

    def __init__(self, fields: tuple[str, ...]) -> None:
        self.fields = fields
        self.rows: dict[str, Row] = {}

    def snapshot(self) -> Json:
        return {"fields": self.fields, "put": self.rows, "gone": []}

    def replace(self, rows: Mapping[str, Row]) -> Json | None:
        """Sets all rows; returns what changed."""
        put = {uid: row for uid, row in rows.items() if self.rows.get(uid) != row}
        gone = [uid for uid in self.rows if uid not in rows]
        self.rows = dict(rows)
        return {"put": put, "gone": gone} if put or gone else None


# Reservations


class ReservationRows(RowTable):
    """All reservations the scheduler knows, and the latest that were deleted."""

    FIELDS = (
        "name", "kind", "phase", "node", "owners", "pods", "podCount", "amounts", "created",
        "scheduled", "available", "ended", "expires", "expected", "deleted", "message",
        "policy", "once", "heldFor", "priority", "starts", "state",
    )  # fmt: skip

    def __init__(self, cluster: Cluster, past: PastReservations) -> None:
        super().__init__(self.FIELDS)
        self._cluster = cluster
        self._past = past
        self._seen: dict[str, tuple[Any, ...]] = {}
        """By uid, what a row was made of."""
        self._log_read = 0
        self._past_read = -1

    def refresh(self) -> Iterator[Json | None]:
        """Yields None between slices of work, and in the end the changes, if there are any."""
        known, log = self._cluster.reservations.known, self._cluster.epoch.reservations
        touched = log.since(self._log_read)
        self._log_read = log.end
        if touched is None:
            self._seen.clear()
        else:
            for uid in touched:
                self._seen.pop(uid, None)
        put: dict[str, Row] = {}
        for number, reservation in enumerate(list(known.values()), 1):
            uid = reservation.uid
            made_of = _made_of(self._cluster, reservation)
            if not _is_same(self._seen.get(uid), made_of) and uid in known:
                self._seen[uid] = made_of
                row = reservation_row(self._cluster, reservation)
                if self.rows.get(uid) != row:
                    put[uid] = self.rows[uid] = row
            if number % _SLICE == 0:
                yield None
        if self._past.count != self._past_read:
            self._past_read = self._past.count
            for uid, row in self._past.rows():
                if uid not in known and self.rows.get(uid) != row:
                    put[uid] = self.rows[uid] = row
        gone = [uid for uid in self.rows if uid not in known and uid not in self._past]
        for uid in gone:
            del self.rows[uid]
            self._seen.pop(uid, None)
        if put or gone:
            yield {"put": put, "gone": gone}


class PastReservations:
    """The latest reservations that were deleted, as they were then."""

    def __init__(self) -> None:
        self._rows: deque[tuple[str, Row]] = deque(maxlen=MAX_PAST)
        self._uids: set[str] = set()
        self.count = 0
        """How many there were so far."""

    def __contains__(self, uid: str) -> bool:
        return uid in self._uids

    def rows(self) -> Iterable[tuple[str, Row]]:
        return list(self._rows)

    def add(self, cluster: Cluster, reservation: ReservationInfo) -> None:
        if reservation.virtual:
            return
        row = reservation_row(cluster, reservation, deleted=cluster.now)
        if len(self._rows) == MAX_PAST:
            self._uids.discard(self._rows[0][0])
        self._rows.append((reservation.uid, row))
        self._uids.add(reservation.uid)
        self.count += 1


def _made_of(cluster: Cluster, reservation: ReservationInfo) -> tuple[Any, ...]:
    entry, pod = reservation.entry, reservation.pod
    planned = cluster.reservations.calendar.get(reservation.uid)
    plan = planned and (planned.node, planned.draining, planned.feasible, planned.message)
    return (
        reservation.object,
        entry.usage if entry is not None else None,
        pod.row if pod is not None else -1,
        reservation.waiting,
        reservation.finished,
        reservation.message,
        reservation.ending,
        plan,
    )


def _is_same(one: tuple[Any, ...] | None, other: tuple[Any, ...]) -> bool:
    """Compares objects and usages by identity: they are never changed in place."""
    return one is not None and one[0] is other[0] and one[1] is other[1] and one[2:] == other[2:]


def reservation_row(
    cluster: Cluster, reservation: ReservationInfo, deleted: float | None = None
) -> Row:
    """Times are seconds since 1970, amounts are (reserved, allocated) by resource."""
    obj = reservation.object
    annotations = obj.metadata.annotations
    pods = cluster.reservations.allocated_pods(reservation)
    # The condition Ready has the time of the end only; when it became Available is in the status
    # before the end.
    scheduled, available, not_ready = _since(obj.status)
    if available is None and reservation.final is not None:
        available = _since(reservation.final)[1]
    pod = reservation.pod
    row = pod.row if pod is not None else -1
    node = cluster.nodes.name(row) if row >= 0 else obj.status.node_name
    message = reservation.error or reservation.message
    planned = cluster.reservations.calendar.get(reservation.uid)
    if planned is not None:
        node, message = planned.node, reservation.error or planned.message
    return (
        reservation.name,
        kind_of(reservation),
        phase_of(reservation),
        node,
        [owner_text(owner) for owner in obj.spec.owners],
        [f"{each.namespace}/{each.name}" for each in islice(pods, _MAX_OWNERS)]
        or [f"{o.namespace}/{o.name}" for o in obj.status.current_owners[:_MAX_OWNERS]],
        len(pods) or len(obj.status.current_owners),
        _reserved(cluster, reservation),
        reservation.created,
        scheduled,
        available,
        not_ready if reservation.finished else None,
        reservation.expires,
        _time(annotations.get(names.HOLD_EXPECTED_START)),
        deleted,
        message,
        reservation.policy,
        reservation.once,
        annotations.get(names.HELD_FOR) or annotations.get(names.HOLD_JOB) or "",
        pod.cls.priority if pod is not None else 0,
        reservation.calendar.start,
        _state(planned),
    )


def _state(planned: PlannedReservation | None) -> str:
    """The state of the plan; empty if it has started, or has no start."""
    if planned is None:
        return ""
    if not planned.node:
        return NOT_PLANNED
    return DRAINING if planned.draining else PLANNED


def phase_of(reservation: ReservationInfo) -> str:
    """Its phase as the scheduler knows it; its status follows."""
    if reservation.finished:
        done = reservation.finished == SUCCEEDED
        return ReservationPhase.SUCCEEDED if done else ReservationPhase.FAILED
    if not reservation.placed:
        return ReservationPhase.PENDING
    return ReservationPhase.WAITING if reservation.waiting else ReservationPhase.AVAILABLE


def is_hold(reservation: ReservationInfo) -> bool:
    """Whether the scheduler made it, for a preemptor or for a starving job."""
    return kind_of(reservation) in (PREEMPTION_HOLD, STARVATION_HOLD)


def kind_of(reservation: ReservationInfo) -> str:
    meta = reservation.object.metadata
    if reservation.virtual:
        return "requested"
    if names.HOLD_LABEL in meta.labels:
        return STARVATION_HOLD
    if reservation.preemptor or names.HELD_FOR in meta.annotations:
        return PREEMPTION_HOLD
    if names.RESERVATION_ID in meta.labels:
        return "dynamic"
    return "migration" if names.MIGRATION_JOB in (*meta.labels, *meta.annotations) else "reservation"


def _reserved(cluster: Cluster, reservation: ReservationInfo) -> dict[str, tuple[int, int]]:
    name_of = cluster.nodes.slots.name
    entry = reservation.entry
    amounts: Amounts = entry.amounts if entry is not None else reservation.amounts
    found = {name: each for slot, each in amounts.items() if slot != PODS and (name := name_of(slot))}
    if entry is not None:
        taken = {name_of(slot): each for slot, each in entry.taken.items()}
    else:
        # One that has ended holds nothing; its status has what pods used of it.
        taken = _quantities(reservation.object.status.allocated)
        if reservation.finished and not any(found.values()):
            found = reservation.amounts_by_name or _quantities(reservation.object.status.allocatable)
    return {
        name: (reserved, taken.get(name, 0))
        for name, reserved in found.items()
        if reserved and name != "pods"
    }


def _quantities(listed: ResourceList) -> dict[str, int]:
    found = {}
    for name, quantity in listed.items():
        with suppress(QuantityError):
            found[name] = amount(name, quantity)
    return found


def owner_text(owner: ReservationOwner) -> str:
    """An owner of a reservation in short form: `app=web (namespace shop)`, `Job/shop/train`."""
    parts = []
    given = owner.object
    is_namespace_only = given is not None and not (given.name or given.uid)
    references: tuple[tuple[str, ObjectReference | ReservationControllerReference | None], ...] = (
        ("Pod", None if is_namespace_only else given),
        ("controller", owner.controller),
    )
    for default, reference in references:
        if reference is not None:
            name = reference.name or reference.uid or "*"
            kind = reference.kind or default
            where = f"{reference.namespace}/" if reference.namespace else ""
            parts.append(f"{kind}/{where}{name}")
    if owner.label_selector is not None:
        parts.append(_selector_text(owner.label_selector))
    text = " & ".join(parts) or "all pods"
    return f"{text} (namespace {given.namespace})" if is_namespace_only and given else text


def _selector_text(selector: LabelSelector) -> str:
    parts = [f"{key}={value}" for key, value in sorted(selector.match_labels.items())]
    for each in selector.match_expressions:
        values = f" ({','.join(each.values)})" if each.values else ""
        parts.append(f"{each.key} {each.operator}{values}")
    return ",".join(parts) or "all pods"


# Pending pods and reservations


class PendingRows(RowTable):
    """What waits for a node, in the order of the queue as far as it is listed."""

    FIELDS = (
        "kind", "namespace", "name", "priority", "since", "place", "message", "reasons",
        "queue", "job", "nominated", "requests", "attempts", "scheduler", "like",
    )  # fmt: skip

    def __init__(self, scheduler: Scheduler) -> None:
        super().__init__(self.FIELDS)
        self._scheduler = scheduler
        self._version: tuple[int, ...] = ()
        self.total = 0

    def refresh(self) -> Json | None:
        queue = self._scheduler.queue
        version = (
            sum(queue.entered.values()),
            queue.refusals,
            len(queue),
            self._scheduler.cluster.epoch.queues,
        )
        if version == self._version:
            return None
        self._version = version
        total, self.total = self.total, len(queue)
        changes = self.replace(dict(self._rows(self._listed())))
        if changes is None and total == self.total:
            return None
        return {**(changes or {"put": {}, "gone": []}), "total": self.total}

    def _listed(self) -> list[tuple[PodRecord, int]]:
        """Pods, each with the number of pods like it that are pending."""
        queue = self._scheduler.queue
        if len(queue) <= MAX_PENDING:
            pods = [*queue.waiting(with_jobs=True), *queue.gated()]
            return [(pod, 1) for pod in sorted(pods, key=queue.sort_key)[:MAX_PENDING]]
        # Sorting tens of thousands of pods would take too long: some of each group, and of the rest.
        groups = list(queue.groups())
        share = max(1, MAX_PENDING // (len(groups) + 2))
        listed = []
        for group in islice(groups, MAX_PENDING):
            listed += [(pod, len(group.pods)) for pod in islice(group.pods.values(), share)]
        listed += [(pod, 1) for pod in queue.some_untried(share)]
        listed += [(pod, 1) for pod in islice(queue.gated(), share)]
        return listed[:MAX_PENDING]

    def _rows(self, listed: list[tuple[PodRecord, int]]) -> Iterator[tuple[str, Row]]:
        queue, cluster = self._scheduler.queue, self._scheduler.cluster
        queues, slots = cluster.jobs.queues, cluster.nodes.slots
        parsed: dict[str, list[str]] = {}
        for pod, like in listed:
            if pod.gone or pod.row >= 0:
                continue
            reservation = pod.reservation
            message = pod.condition_message
            if reservation is not None:
                message = reservation.error or reservation.message
            elif not message:
                message = gate_message(self._scheduler, pod)
            if (reasons := parsed.get(message)) is None:
                reasons = parsed[message] = reasons_in(message)
            yield (
                pod.uid,
                (
                    pod.ref.kind,
                    pod.namespace,
                    pod.name,
                    pod.cls.priority,
                    pod.since,
                    queue.place(pod.uid) or "",
                    message,
                    reasons,
                    queues.of(pod) if queues else pod.queue,
                    pod.job.name if pod.job is not None else "",
                    pod.nominated,
                    {
                        name: requested
                        for slot, requested in pod.cls.requests
                        if (name := slots.name(slot)) and slot != PODS
                    },
                    pod.attempts,
                    pod.scheduler,
                    like,
                ),
            )


def gate_message(scheduler: Scheduler, pod: PodRecord) -> str:
    """Why a gated pod is not queued, if its condition does not say it; empty if it is queued."""
    return scheduler.gate_reason(pod) if scheduler.queue.place(pod.uid) == "gated" else ""


# Queues


class QueueRows(RowTable):
    """The queues of the cluster with what they have and deserve, by resource."""

    FIELDS = (
        "name", "parent", "weight", "priority", "state", "reclaimable", "share", "allocated",
        "deserved", "capability", "guarantee", "requested",
    )  # fmt: skip

    def __init__(self, scheduler: Scheduler) -> None:
        super().__init__(self.FIELDS)
        self._scheduler = scheduler
        self._cluster = scheduler.cluster

    def refresh(self) -> Json | None:
        queues = self._cluster.jobs.queues
        if not queues and not self.rows:
            return None
        queues.refresh()
        shares = self._shares()
        return self.replace(
            {
                record.name: self._row(
                    record, shares.get(record.name) or QueueShare(record.share, record.wants)
                )
                for record in queues
            }
        )

    def _shares(self) -> dict[str, QueueShare]:
        """What the queues deserve now. The scheduler computes it only when pods of several queues
        compete; so it does where counting all pending pods would take long."""
        queue = self._scheduler.queue
        if len(queue) > MAX_PENDING:
            return {}
        return self._cluster.jobs.queues.shares(queue.waiting(with_jobs=True))

    def _row(self, record: QueueRecord, now: QueueShare) -> Row:
        share = dominant_share(record.allocated, now.deserved) if len(now.deserved) else None
        return (
            record.name,
            record.parent,
            record.weight,
            record.priority,
            record.object.status.state or "Open",
            record.reclaimable,
            share if share is None or math.isfinite(share) else -1,
            self._named(record.allocated),
            self._named({slot: int(value) for slot, value in enumerate(now.deserved) if value}),
            None if record.capability is None else self._named(record.capability),
            self._named(record.guarantee),
            self._named({slot: int(value) for slot, value in enumerate(now.wants) if value}),
        )

    def _named(self, amounts: Amounts) -> dict[str, int]:
        slots = self._cluster.nodes.slots
        return {name: value for slot, value in amounts.items() if (name := slots.name(slot))}


def _since(status: ReservationStatus) -> tuple[float | None, float | None, float | None]:
    """Since when a reservation is scheduled, is ready, and is not ready."""
    since = {(each.type, each.status): _time(each.last_transition_time) for each in status.conditions}
    return since.get((SCHEDULED, "True")), since.get((READY, "True")), since.get((READY, "False"))


def _time(text: str | None) -> float | None:
    try:
        return parse_time(text) if text else None
    except TimeError:
        return None
