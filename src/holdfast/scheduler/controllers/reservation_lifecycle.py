"""The lifecycle controller: expiry, success, Waiting to Available, resize, garbage collection, status.

It reconciles the reservations in `ReservationCache.dirty` and those whose timer is due. Its decisions
take effect in the cache at once; the status is written afterwards, again until the watch delivers it.

When a reservation expires (`spec.expires`, or its creation plus `spec.ttl`) is in
`ReservationInfo.expires` (`scheduler.cluster.records`, computed by `_expires`).
"""

from collections.abc import Mapping

import msgspec

from holdfast.api.calendar import AtEnd
from holdfast.api.errors import TimeError
from holdfast.api.meta import Condition, condition
from holdfast.api.names import AT_END
from holdfast.api.reservation import HAD_NO_OWNER, HAS_EXPIRED, NODE_GONE, ReservationStatus
from holdfast.api.times import format_duration, parse_time
from holdfast.scheduler.cluster.decisions import (
    Decision,
    Emit,
    Evict,
    Nominate,
    SetReservationStatus,
)
from holdfast.scheduler.cluster.records import FINISHED, Phase, ReservationInfo
from holdfast.scheduler.cluster.timer_queue import TimerQueue
from holdfast.scheduler.reservations.reservation_status import (
    DEVICES_HELD,
    EXPIRED,
    READY,
    RESIZED,
    SCHEDULED,
    SUCCEEDED,
    USED,
    bound_owners,
    status_of,
)
from holdfast.scheduler.state.cluster import Cluster

DEFAULT_GC = 24 * 3600.0
CLAIMS_CHANGED = (
    "template.spec.resourceClaims cannot be changed once the reservation has a node; it keeps the"
    " devices that it has"
)
_EVICT_AGAIN = 5.0
"""Seconds until owners that were not evicted are evicted again."""


class ReservationLifecycle:
    """Reconciles reservations."""

    def __init__(self, cluster: Cluster, gc_after: float | None = DEFAULT_GC) -> None:
        """Finished reservations are garbage collected `gc_after` seconds later; never if that is
        None."""
        self._cluster = cluster
        self._reservations = cluster.reservations
        self._gc_after = gc_after
        self._timers: TimerQueue[str] = TimerQueue()
        self._invalid: dict[str, str] = {}
        """The error last reported of a reservation, by uid."""
        self._renewed: set[str] = set()
        """The uids of reservations that may have other devices or CPUs, after a resize or a
        replacement."""
        self._idle_since: dict[str, float | None] = {}
        """Since when a reservation that is to be released if unused is Available and has no owner, by
        uid; None while it is not."""
        self._decisions: list[Decision] = []

    def run(self, now: float) -> list[Decision]:
        """Reconciles every reservation that is dirty or due."""
        while (due := self._timers.pop(now)) is not None:
            self._reservations.dirty[due] = None
        dirty = self._reservations.take_dirty()
        for uid in dirty:
            reservation = self._reservations.known.get(uid)
            if reservation is None:
                self._timers.set(uid, None)
                self._invalid.pop(uid, None)
                self._idle_since.pop(uid, None)
            else:
                self._reconcile(reservation, now)
        decisions, self._decisions = self._decisions, []
        return decisions

    def next_timer(self) -> float | None:
        return self._timers.next_time()

    def _reconcile(self, reservation: ReservationInfo, now: float) -> None:
        """Reconciles one reservation: deletion, garbage collection, expiry and success in this order;
        then resize, lost devices and Waiting to Available; then the status is written."""
        if reservation.virtual:
            if reservation.placed:
                self._reservations.replace_devices(reservation)
            return
        if reservation.deletion_reason:
            self._delete(reservation, reservation.deletion_reason)
            return
        if reservation.finished:
            if reservation.object.status.phase not in FINISHED:
                self._write(reservation, now)
            self._collect(reservation, now)
            if reservation.finished == EXPIRED:
                self._evict_owners(reservation, now)
            return
        if reservation.preemptor and self._is_needless(reservation):
            self._delete(reservation, "its preemptor no longer needs it")
            return
        expires, unused = reservation.expires, self._unused_until(reservation, now)
        if unused is not None and unused <= now:
            after = format_duration(reservation.calendar.release_after or 0.0)
            self._finish(reservation, EXPIRED, f"{HAD_NO_OWNER}{after}", now)
            return
        is_over = expires is not None and expires <= now
        if self._reservations.close_if_expired(reservation, is_over):
            if reservation.once and self._is_used(reservation):
                self._finish(reservation, SUCCEEDED, "", now)
            else:
                self._finish(reservation, EXPIRED, HAS_EXPIRED, now)
            return
        pod = reservation.pod
        if pod is not None and pod.row >= 0:
            node = self._cluster.nodes.name(pod.row)
            if reservation.node_gone or not self._cluster.nodes.alive[pod.row]:
                self._finish(reservation, EXPIRED, NODE_GONE.format(node), now)
                return
            if pod.phase is Phase.ASSUMED:
                return  # its status is being written
            if reservation.once and self._is_used(reservation):
                if reservation.waiting:
                    self._reservations.make_available(reservation)
                    self._write(reservation, now)
                self._finish(reservation, SUCCEEDED, "", now)
                return
            self._resize(reservation)
            if self._reservations.replace_devices(reservation):
                self._renewed.add(reservation.uid)
                self._emit(
                    reservation,
                    "DevicesReplaced",
                    f"{reservation.name} was allocated other devices of {node}",
                )
            if pod.cls.claims:
                self._hold_devices(reservation)
            if reservation.victims:
                reservation.message = self._reservations.victims_message(reservation)
            if reservation.waiting and self._reservations.has_capacity(reservation):
                if self._cluster.jobs.has_start_to_finish() and not self._finishes_start(reservation):
                    self._reservations.dirty[reservation.uid] = None  # once those were tried
                    return
                self._reservations.make_available(reservation)
                self._emit_normal(
                    reservation, "Available", f"{reservation.name} is available on {node}"
                )
        elif reservation.preemptor and not reservation.error:
            if bound_owners(self._reservations, reservation):
                self._finish(reservation, SUCCEEDED, "", now)  # its preemptor was bound before it
            return  # or it is about to be scheduled
        if reservation.error:
            self._emit_invalid(reservation)
        elif self._invalid:
            self._invalid.pop(reservation.uid, None)
        if reservation.once and reservation.calendar.at_end == AtEnd.EVICT:
            self._warn_of_at_end(reservation)
        self._write(reservation, now)
        times = [time for time in (None if is_over else expires, unused) if time is not None]
        self._timers.set(reservation.uid, min(times, default=None))

    def _finishes_start(self, reservation: ReservationInfo) -> bool:
        """Whether it is the preemption hold of a pod that has to be bound for its gang to be complete:
        the pod can use it only when it is Available."""
        preemptor = self._cluster.pods.get(reservation.preemptor)
        return preemptor is not None and self._cluster.jobs.is_finishing_start(preemptor)

    def _is_used(self, reservation: ReservationInfo) -> bool:
        """Whether a bound pod is allocated from it, and it is not being evicted."""
        return not reservation.being_evicted and bool(bound_owners(self._reservations, reservation))

    def _unused_until(self, reservation: ReservationInfo, now: float) -> float | None:
        """When the reservation is released if no owner uses it until then; None if it is not to be."""
        after = reservation.calendar.release_after
        is_available = reservation.placed and not reservation.waiting
        if after is None:
            self._idle_since.pop(reservation.uid, None)
            return None
        if not is_available or self._reservations.allocated_pods(reservation):
            self._idle_since[reservation.uid] = None
            return None
        if reservation.uid not in self._idle_since:
            self._idle_since[reservation.uid] = _idle_since(reservation)
        since = self._idle_since[reservation.uid]
        if since is None:
            since = self._idle_since[reservation.uid] = now
        return since + after

    def _evict_owners(self, reservation: ReservationInfo, now: float) -> None:
        """Evicts the owners that are left of a reservation that expired, if it says so; again until
        they are gone."""
        meta = reservation.object.metadata
        if meta.annotations.get(AT_END) != AtEnd.EVICT:
            return
        final = reservation.final or reservation.object.status
        found = (self._cluster.pods.get(owner.uid) for owner in final.current_owners)
        left = [pod for pod in found if pod is not None and pod.phase is Phase.ASSIGNED]
        for pod in left:
            if not (pod.cls.terminating or pod.being_preempted):
                pod.being_preempted = True
                text = f"{reservation.ref} has ended"
                emit = Emit(pod.ref, "Normal", "Evicted", text, "Evicting")
                self._decisions.append(Evict(pod.ref, text, event=emit))
        if left:
            self._timers.set(reservation.uid, now + _EVICT_AGAIN)

    def _warn_of_at_end(self, reservation: ReservationInfo) -> None:
        """Emits an event, once: before the first status is written."""
        if reservation.object.status.phase or reservation.last_status is not None:
            return
        text = (
            f"{AT_END}: Evict has no effect with allocateOnce: the reservation ends with its first"
            " owner, which keeps running; set spec.allocateOnce to false"
        )
        self._emit(reservation, "AtEndIgnored", text, "Warning")

    def _is_needless(self, reservation: ReservationInfo) -> bool:
        """Whether a preemption hold is not needed: its preemptor is gone, bound elsewhere, or nominated
        to another node."""
        owner = self._cluster.pods.get(reservation.preemptor)
        if owner is None or owner.phase is Phase.ASSIGNED:
            return owner is None or owner.reservation_uid != reservation.uid
        if owner.phase is Phase.ASSUMED:
            return False  # it may be pending again
        row = self._cluster.nodes.row(reservation.wants_node)
        if row is None or not self._cluster.nodes.alive[row] or reservation.node_gone:
            return True
        if owner.deletion_pending or reservation.released:
            return True
        if not owner.nominated:
            self._cluster.nominate(owner, reservation.wants_node)
            self._decisions.append(Nominate(owner.ref, reservation.wants_node))
        return owner.nominated != reservation.wants_node

    def _delete(self, reservation: ReservationInfo, why: str) -> None:
        self._decisions += self._reservations.delete(reservation, why)

    def _finish(self, reservation: ReservationInfo, how: str, message: str, now: float) -> None:
        """Ends a reservation. Its final status keeps the owners it has now."""
        pod = reservation.pod
        if pod is not None and pod.row >= 0:
            node = self._cluster.nodes.name(pod.row)
        else:
            node = reservation.wants_node if how == SUCCEEDED else ""
        reservation.final = status_of(self._reservations, reservation, node, now)
        reservation.message = message
        self._reservations.finish(reservation, how)
        self._reservations.dirty.pop(reservation.uid, None)
        self._emit_normal(reservation, how, message or f"{reservation.name} was allocated to its owner")
        self._write(reservation, now)

    def _emit_invalid(self, reservation: ReservationInfo) -> None:
        """Emits an event, once for each error; a restarted scheduler finds the last one in the
        condition."""
        found = condition(reservation.object.status.conditions, SCHEDULED)
        known = self._invalid.get(reservation.uid, found.message if found is not None else "")
        self._invalid[reservation.uid] = reservation.error
        if known != reservation.error:
            self._emit(reservation, "InvalidReservation", reservation.error, "Warning")

    def _resize(self, reservation: ReservationInfo) -> None:
        """Resizes it to what its template requests, if that fits its node."""
        wanted = reservation.wanted
        if wanted == reservation.amounts:
            reservation.resize_problem = ""
            return
        lacking = self._reservations.lacking(reservation, wanted)
        if not lacking:
            self._reservations.resize(reservation, wanted)
            self._renewed.add(reservation.uid)
            self._reservations.dirty.pop(reservation.uid, None)
            reservation.resize_problem = ""
            self._emit(reservation, "Resized", f"{reservation.name} has the size its template requests")
            return
        problem = ", ".join(f"Insufficient {name}" for name in lacking)
        known = condition(reservation.object.status.conditions, RESIZED)
        if problem != reservation.resize_problem and (known is None or known.message != problem):
            self._emit(reservation, "ResizeFailed", problem, "Warning")
        reservation.resize_problem = problem
        self._reservations.waiting.retry_resize(reservation)

    def _hold_devices(self, reservation: ReservationInfo) -> None:
        """Has the claims created again with which it should hold devices, and reports what it does not
        hold, once for each reason; a restarted scheduler finds the last one in the condition."""
        assert reservation.pod is not None
        problem = self._cluster.claims.hold(reservation.pod)
        if reservation.claims_changed:
            problem = "; ".join(filter(None, (problem, CLAIMS_CHANGED)))
        known, reservation.devices_problem = reservation.devices_problem, problem
        found = condition(reservation.object.status.conditions, DEVICES_HELD)
        if found is not None and found.status == "False":
            known = known or found.message
        if problem and problem != known:
            self._emit(reservation, "DevicesNotHeld", problem, "Warning")
        elif known and not problem:
            self._emit(reservation, "DevicesHeld", f"{reservation.name} holds its devices again")

    def _collect(self, reservation: ReservationInfo, now: float) -> None:
        """Deletes a finished reservation once its time to be kept is over."""
        if self._gc_after is None:
            return
        if reservation.object.status.phase not in FINISHED:
            return
        due = self._finished_at(reservation, now) + self._gc_after
        if due > now:
            self._timers.set(reservation.uid, due)
            return
        self._delete(reservation, f"finished: {reservation.finished}")

    def _finished_at(self, reservation: ReservationInfo, now: float) -> float:
        ready = condition(reservation.object.status.conditions, READY)
        since = _transition(ready)
        return now if since is None else since

    def _write(self, reservation: ReservationInfo, now: float) -> None:
        """Writes the status if it differs from the object, or from the one that was decided last and is
        not seen in the object yet: that one would be written otherwise. Not once its deletion is
        decided, unless finalizers keep the object."""
        if reservation.deleting and not reservation.terminating:
            return
        pod = reservation.pod
        node = self._cluster.nodes.name(pod.row) if pod is not None and pod.row >= 0 else ""
        planned = self._reservations.calendar.get(reservation.uid)
        status = status_of(self._reservations, reservation, node, now, planned)
        renewed = reservation.uid in self._renewed and bool(node)
        unseen = reservation.last_status
        is_same = unseen is None or _without_times(unseen) == _without_times(status)
        if status == reservation.object.status and is_same and not renewed:
            reservation.last_status = None
        elif status != unseen or renewed:
            reservation.last_status = status
            self._renewed.discard(reservation.uid)
            has = self._has(reservation)
            self._decisions.append(SetReservationStatus(reservation.ref, status, annotations=has))

    def _has(self, reservation: ReservationInfo) -> Mapping[str, str]:
        """The annotations with its CPUs and devices, as far as they differ from those of its object;
        empty values remove them from a reservation that is Waiting again."""
        pod, managers = reservation.pod, self._cluster.managers
        if pod is None or pod.row < 0 or not managers.awake:
            return {}
        has, given = managers.annotations_for(pod, pod.row), reservation.object.metadata.annotations
        if reservation.waiting:
            has |= {key: "" for key in managers.annotations if key in given}
        return {key: value for key, value in has.items() if given.get(key) != value}

    def _emit_normal(self, reservation: ReservationInfo, reason: str, message: str) -> None:
        """Emits an event, except for preemption holds: their preemptor has events of its own."""
        if not reservation.preemptor:
            self._emit(reservation, reason, message)

    def _emit(
        self, reservation: ReservationInfo, reason: str, message: str, type: str = "Normal"
    ) -> None:
        self._decisions.append(Emit(reservation.ref, type, reason, message, "Reserving"))


def _without_times(status: ReservationStatus) -> ReservationStatus:
    """The status without the times of its conditions, which depend on when it was computed."""
    conditions = [
        msgspec.structs.replace(each, last_probe_time=None, last_transition_time=None)
        for each in status.conditions
    ]
    return msgspec.structs.replace(status, conditions=conditions)


def _idle_since(reservation: ReservationInfo) -> float | None:
    """Since when an Available reservation has no owner, by its status, which a restarted scheduler
    finds; None if that does not say so."""
    conditions = reservation.object.status.conditions
    used, ready = condition(conditions, USED), condition(conditions, READY)
    if used is not None:
        return _transition(used) if used.status == "False" else None
    return _transition(ready) if ready is not None and ready.status == "True" else None


def _transition(found: Condition | None) -> float | None:
    try:
        return parse_time((found.last_transition_time if found else None) or "")
    except TimeError:
        return None
