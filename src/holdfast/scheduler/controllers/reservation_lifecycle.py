"""The life of reservations: expiry, use, waiting for room, resizing, collection; and their status.

Looks only at reservations something happened to, and at those whose time has come. What it decides
takes effect in the core at once; the status follows, and is written again until it is seen.
"""

from collections.abc import Mapping

from holdfast.api.errors import TimeError
from holdfast.api.meta import condition
from holdfast.api.times import parse_time
from holdfast.scheduler.cluster.cluster import Cluster
from holdfast.scheduler.cluster.decisions import (
    Decision,
    DeleteReservation,
    Emit,
    Nominate,
    SetReservationStatus,
)
from holdfast.scheduler.cluster.pods import Phase
from holdfast.scheduler.cluster.timer_queue import TimerQueue
from holdfast.scheduler.reservations.reservation_info import FINISHED, ReservationInfo
from holdfast.scheduler.reservations.reservation_status import (
    EXPIRED,
    READY,
    RESIZED,
    SCHEDULED,
    SUCCEEDED,
    bound_owners,
    status_of,
)

DEFAULT_GC = 24 * 3600.0


class ReservationLifecycle:
    def __init__(self, cluster: Cluster, gc_after: float | None = DEFAULT_GC) -> None:
        """Finished reservations are collected `gc_after` seconds later; never if that is None."""
        self._cluster = cluster
        self._promises = cluster.promises
        self._gc_after = gc_after
        self._timers: TimerQueue[str] = TimerQueue()
        self._invalid: dict[str, str] = {}
        """What was last said to be wrong with a reservation, by its uid."""
        self._renewed: set[str] = set()
        """Those that were given another size, and with it perhaps other devices or CPUs."""
        self._decisions: list[Decision] = []

    def run(self, now: float) -> list[Decision]:
        """Looks after every reservation that may need it."""
        while (due := self._timers.pop(now)) is not None:
            self._promises.dirty[due] = None
        dirty, self._promises.dirty = self._promises.dirty, {}
        for uid in dirty:
            promise = self._promises.known.get(uid)
            if promise is None:
                self._timers.set(uid, None)
                self._invalid.pop(uid, None)
            else:
                self._look_after(promise, now)
        decisions, self._decisions = self._decisions, []
        return decisions

    def next_timer(self) -> float | None:
        return self._timers.next_time()

    def _look_after(self, promise: ReservationInfo, now: float) -> None:
        if promise.virtual:
            return
        if promise.finished:
            if promise.object.status.phase not in FINISHED:
                self._write(promise, now)
            self._collect(promise, now)
            return
        if promise.preemptor and self._is_needless(promise):
            self._delete(promise, "nobody needs the room any more")
            return
        expires = promise.expires
        if expires is not None and expires <= now:
            self._finish(promise, EXPIRED, "reservation has expired", now)
            return
        pod = promise.pod
        if pod is not None and pod.row >= 0:
            node = self._cluster.nodes.name(pod.row)
            if promise.node_gone or not self._cluster.nodes.alive[pod.row]:
                self._finish(promise, EXPIRED, f"node {node} is gone", now)
                return
            if pod.phase is Phase.ASSUMED:
                return  # its status is being written
            if promise.once and not promise.leaving and bound_owners(self._promises, promise):
                if promise.waiting:
                    self._promises.available(promise)
                    self._write(promise, now)
                self._finish(promise, SUCCEEDED, "", now)
                return
            self._resize(promise)
            if self._promises.replace_devices(promise):
                self._renewed.add(promise.uid)
                self._emit(promise, "DevicesReplaced", f"{promise.name} has other devices of {node}")
            if promise.clears:
                promise.message = self._promises.awaited(promise)
            if promise.waiting and self._may_have_it(promise):
                self._promises.available(promise)
                self._tell(promise, "Available", f"There is room for {promise.name} on {node}")
        elif promise.preemptor and not promise.error:
            if bound_owners(self._promises, promise):
                self._finish(promise, SUCCEEDED, "", now)  # its pod was there before it
            return  # or it is about to be placed
        if promise.error:
            self._tell_invalid(promise)
        elif self._invalid:
            self._invalid.pop(promise.uid, None)
        self._write(promise, now)
        self._timers.set(promise.uid, expires)

    def _may_have_it(self, promise: ReservationInfo) -> bool:
        """Whether there is what it waits for: the room, and nobody any more who has to go for it."""
        return not self._promises.awaits(promise) and self._promises.has_room(promise)

    def _is_needless(self, promise: ReservationInfo) -> bool:
        """Whether preempted room is held for a pod that is gone, or has or looks for another place."""
        owner = self._cluster.pods.get(promise.preemptor)
        if owner is None or owner.phase is Phase.ASSIGNED:
            return owner is None or owner.draws_on != promise.uid
        if owner.phase is Phase.ASSUMED:
            return False  # it may come back
        row = self._cluster.nodes.row(promise.wants_node)
        if row is None or not self._cluster.nodes.alive[row] or promise.node_gone:
            return True
        if owner.leaving or promise.released:
            return True
        if not owner.nominated:
            self._cluster.nominate(owner, promise.wants_node)
            self._decisions.append(Nominate(owner.ref, promise.wants_node))
        return owner.nominated != promise.wants_node

    def _delete(self, promise: ReservationInfo, why: str) -> None:
        if not promise.deleting and not promise.terminating:
            promise.deleting = True
            self._decisions.append(DeleteReservation(promise.ref, why))

    def _finish(self, promise: ReservationInfo, how: str, message: str, now: float) -> None:
        """The owners it has at this moment stay written on it."""
        pod = promise.pod
        if pod is not None and pod.row >= 0:
            node = self._cluster.nodes.name(pod.row)
        else:
            node = promise.wants_node if how == SUCCEEDED else ""
        promise.final = status_of(self._promises, promise, node, now)
        promise.message = message
        self._promises.finish(promise, how)
        self._promises.dirty.pop(promise.uid, None)
        self._tell(promise, how, message or f"{promise.name} was allocated to its owner")
        self._write(promise, now)

    def _tell_invalid(self, promise: ReservationInfo) -> None:
        """Once for each thing that is wrong with it; a scheduler that restarts finds it said there."""
        said = condition(promise.object.status.conditions, SCHEDULED)
        known = self._invalid.get(promise.uid, said.message if said is not None else "")
        self._invalid[promise.uid] = promise.error
        if known != promise.error:
            self._emit(promise, "InvalidReservation", promise.error, "Warning")

    def _resize(self, promise: ReservationInfo) -> None:
        wanted = promise.wanted
        if wanted == promise.amounts:
            promise.resize_problem = ""
            return
        lacking = self._promises.lacking(promise, wanted)
        if not lacking:
            self._promises.resize(promise, wanted)
            self._renewed.add(promise.uid)
            self._promises.dirty.pop(promise.uid, None)
            promise.resize_problem = ""
            self._emit(promise, "Resized", f"{promise.name} has the size its template asks for")
            return
        problem = ", ".join(f"Insufficient {name}" for name in lacking)
        known = condition(promise.object.status.conditions, RESIZED)
        if problem != promise.resize_problem and (known is None or known.message != problem):
            self._emit(promise, "ResizeFailed", problem, "Warning")
        promise.resize_problem = problem
        self._promises.waiting.wants_more(promise)

    def _collect(self, promise: ReservationInfo, now: float) -> None:
        if self._gc_after is None:
            return
        if promise.object.status.phase not in FINISHED:
            return
        due = self._finished_at(promise, now) + self._gc_after
        if due > now:
            self._timers.set(promise.uid, due)
            return
        self._delete(promise, f"finished: {promise.finished}")

    def _finished_at(self, promise: ReservationInfo, now: float) -> float:
        ready = condition(promise.object.status.conditions, READY)
        try:
            return parse_time((ready.last_transition_time if ready else None) or "")
        except TimeError:
            return now

    def _write(self, promise: ReservationInfo, now: float) -> None:
        pod = promise.pod
        node = self._cluster.nodes.name(pod.row) if pod is not None and pod.row >= 0 else ""
        status = status_of(self._promises, promise, node, now)
        renewed = promise.uid in self._renewed and bool(node)
        if status == promise.object.status and not renewed:
            promise.told = None
        elif status != promise.told or renewed:
            promise.told = status
            self._renewed.discard(promise.uid)
            has = self._has(promise)
            self._decisions.append(SetReservationStatus(promise.ref, status, annotations=has))

    def _has(self, promise: ReservationInfo) -> Mapping[str, str]:
        """The annotations that say which CPUs and devices it has, as far as its object does not say so
        yet; empty where it has none any more, since it waits again."""
        pod, belongings = promise.pod, self._cluster.belongings
        if pod is None or pod.row < 0 or not belongings.awake:
            return {}
        has, said = belongings.told(pod, pod.row), promise.object.metadata.annotations
        if promise.waiting:
            has |= {key: "" for key in belongings.annotations if key in said}
        return {key: value for key, value in has.items() if said.get(key) != value}

    def _tell(self, promise: ReservationInfo, reason: str, message: str) -> None:
        """Of room held for a preemptor its pod is told, which is enough."""
        if not promise.preemptor:
            self._emit(promise, reason, message)

    def _emit(self, promise: ReservationInfo, reason: str, message: str, type: str = "Normal") -> None:
        self._decisions.append(Emit(promise.ref, type, reason, message, "Reserving"))
