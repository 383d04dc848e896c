"""Reservations that have to go for others: their pods first, then they themselves.

With `Delete` that is done here: the pods that draw on them are deleted, gracefully, and once they are
gone the reservation is. With `Soft` it is only said on the reservation that it has to go; who evicts
softly does the rest. A small evictor that does so is here too: it asks the eviction API, which minds
disruption budgets, and asks again until it is heard.
"""

from holdfast.api import names
from holdfast.scheduler.cluster.cluster import Cluster
from holdfast.scheduler.cluster.decisions import (
    Decision,
    Emit,
    Evict,
    ObjectRef,
    Preempt,
    PreemptReservation,
)
from holdfast.scheduler.cluster.pods import Phase
from holdfast.scheduler.reservations.reservation_info import ReservationInfo
from holdfast.scheduler.reservations.reservation_victims import is_soft_evicted, soft_eviction

_AGAIN = 5.0
"""After so many seconds a pod that was not let go is asked for once more."""


class ReservationEvictions:
    def __init__(self, cluster: Cluster, soft: bool = False, soft_evictor: bool = False) -> None:
        self._cluster = cluster
        self._reservations = cluster.reservations
        self._soft = soft
        self._soft_evictor = soft_evictor
        self._asked: dict[str, float] = {}
        """When a pod was last asked for, by its uid."""

    def run(self, now: float) -> list[Decision]:
        decisions: list[Decision] = []
        for uid in self._reservations.departures:
            victim, preemptor = self._reservations.known.get(uid), self._reservations.departures.of(uid)
            if victim is None or victim.pod is None or preemptor is None:
                continue
            decisions += self._mark(victim, preemptor, now)
            if not self._soft:
                decisions += self._delete(victim, preemptor)
        if self._soft_evictor:
            decisions += self._evict_softly(now)
        return decisions

    def next_timer(self) -> float | None:
        return min((asked + _AGAIN for asked in self._asked.values()), default=None)

    def _mark(self, victim: ReservationInfo, preemptor: ReservationInfo, now: float) -> list[Decision]:
        """Says on the victim that it has to go, and for whom."""
        assert victim.pod is not None
        if victim.marked or self._says_so(victim, preemptor):
            victim.marked = True
            return []
        victim.marked = True
        node = self._cluster.nodes.name(victim.pod.row)
        why = f"Preempted by reservation {preemptor.uid} on node {node}"
        labels: dict[str, str] = {}
        annotations = {names.PREEMPTED_BY: str(preemptor.ref)}
        if self._soft:
            labels = {names.SOFT_EVICTION: "true"}
            annotations = {names.SOFT_EVICTION: soft_eviction(str(preemptor.ref), why, now)}
        return [
            PreemptReservation(victim.ref, preemptor.ref, node, labels, annotations),
            Emit(victim.ref, "Normal", "Preempted", why, "Preempting"),
        ]

    def _says_so(self, victim: ReservationInfo, preemptor: ReservationInfo) -> bool:
        if self._soft:
            return is_soft_evicted(victim.object)
        return victim.object.metadata.annotations.get(names.PREEMPTED_BY) == str(preemptor.ref)

    def _delete(self, victim: ReservationInfo, preemptor: ReservationInfo) -> list[Decision]:
        allocated_pods = self._reservations.allocated_pods(victim)
        if not allocated_pods:
            return self._reservations.delete(victim, f"preempted by {preemptor.ref}")
        decisions: list[Decision] = []
        for pod in allocated_pods:
            if pod.phase is not Phase.ASSIGNED or pod.being_preempted or pod.cls.terminating:
                continue
            pod.being_preempted = True  # until it is seen to go, or not to
            node = self._cluster.nodes.name(pod.row)
            text = f"Preempted by reservation {preemptor.uid} on node {node}"
            why = f"{pod.scheduler}: its reservation makes room for one of higher priority"
            decisions.append(
                Preempt(pod.ref, preemptor.ref, node, why, pod.job_name, pod.reservation_uid)
            )
            decisions.append(Emit(pod.ref, "Normal", "Preempted", text, "Preempting"))
        return decisions

    def _evict_softly(self, now: float) -> list[Decision]:
        decisions: list[Decision] = []
        still: dict[str, float] = {}
        for uid in list(self._reservations.softly_evicted):
            victim = self._reservations.known.get(uid)
            if victim is None or victim.pod is None or victim.pod.row < 0:
                continue
            allocated_pods = self._reservations.allocated_pods(victim)
            if not allocated_pods:
                decisions += self._reservations.delete(victim, "evicted softly")
            for pod in allocated_pods:
                if pod.phase is not Phase.ASSIGNED or pod.cls.terminating:
                    continue
                asked = self._asked.get(pod.uid)
                if asked is None or asked + _AGAIN <= now:
                    asked = now
                    decisions.append(_evict(pod.ref, victim))
                still[pod.uid] = asked
        self._asked = still
        return decisions


def _evict(pod: ObjectRef, victim: ReservationInfo) -> Evict:
    return Evict(pod, f"{victim.ref} is evicted softly")
