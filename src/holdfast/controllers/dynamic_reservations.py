"""The scheduler's side of reservations made on demand: pods are told what is asked for on their behalf,
and room that was set aside in vain is given back."""

from holdfast.api import names
from holdfast.api.dynamic_reservations import write_requirement
from holdfast.core.cluster import Cluster
from holdfast.core.decisions import AnnotatePod, Decision
from holdfast.core.pods import Phase
from holdfast.core.promises.promise import Promise
from holdfast.core.promises.virtual import Settings, Virtual


class DynamicReservations:
    def __init__(self, cluster: Cluster, settings: Settings) -> None:
        self._cluster = cluster
        self._virtuals = cluster.virtuals
        self._virtuals.settings = settings

    def run(self, now: float) -> list[Decision]:
        virtuals = self._virtuals
        decisions: list[Decision] = []
        virtuals.ask_again()
        for id in list(virtuals.untold):
            decisions += self._told(virtuals.by_id[id])
        virtuals.untold.clear()
        for virtual in list(virtuals.by_id.values()):
            self._look_after(virtual, now)
        for uid in list(virtuals.adopting):
            self._follow(uid, now)
        for uid in list(virtuals.refused):
            self._reconsider(uid)
        decisions += virtuals.reports
        virtuals.reports = []
        return decisions

    def next_timer(self) -> float | None:
        """Pods that wait have deadlines of their own."""
        kept = (v.keep_until for v in self._virtuals.by_id.values() if not v.waiting)
        return min((time for time in kept if time is not None), default=None)

    def _told(self, virtual: Virtual) -> list[Decision]:
        ask = self._virtuals.requirements.asks.get(virtual.requester.uid)
        if ask is None:
            return []
        annotations: dict[str, str | None] = {}
        if not (ask.id == virtual.id and self._virtuals.has_told(ask)):
            labels = ask.requirement.labels if ask.requirement is not None else {}
            annotations[names.NEW_RESERVATION_REQUIREMENT] = write_requirement(
                {**labels, names.RESERVATION_ID: virtual.id}, virtual.resources
            )
        if ask.error and ask.error == ask.heeded:
            annotations[names.RESERVATION_PROVISION_ERROR] = None
        return [AnnotatePod(ask.pod, annotations)] if annotations else []

    def _look_after(self, virtual: Virtual, now: float) -> None:
        if virtual.waiting or self._cluster.promises.drawing(virtual.promise):
            return
        if self._virtuals.taken_over(virtual):
            return
        gone = virtual.requester.uid not in self._virtuals.requirements.asks
        over = virtual.keep_until is None or virtual.keep_until <= now
        lost = virtual.promise.node_gone or not self._cluster.nodes.alive[virtual.row]
        if gone or over or lost:
            self._virtuals.drop(virtual)

    def _follow(self, uid: str, now: float) -> None:
        """How long a reservation took to become available."""
        virtuals, promise = self._virtuals, self._cluster.promises.known.get(uid)
        if promise is not None and promise.pod is not None and promise.pod.phase is Phase.ASSUMED:
            return
        seen = virtuals.adopting.pop(uid)
        if promise is not None and promise.placed:
            virtuals.figures.pendings.append(max(0.0, now - seen))

    def _reconsider(self, uid: str) -> None:
        """One that would not do may do by now, though nothing changed that would wake it."""
        promise: Promise | None = self._cluster.promises.known.get(uid)
        if promise is None or promise.pod is None or promise.placed:
            del self._virtuals.refused[uid]
            return
        virtual = self._virtuals.of(promise)
        if virtual is None or not self._virtuals.refusal(promise, virtual):
            del self._virtuals.refused[uid]
            if self._cluster.watcher is not None:
                self._cluster.watcher.pod_pending(promise.pod)
