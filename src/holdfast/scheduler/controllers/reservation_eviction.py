"""Eviction of preempted reservations: first of their pods, then of the reservations themselves.

With the policy `Delete` this controller deletes the pods, gracefully, and once they are gone the
reservation. With `Soft` it only sets the soft-eviction label and annotation on the reservation, for a
descheduler. The optional soft evictor here does that part: it uses the eviction API, which respects
PodDisruptionBudgets, and retries until it succeeds.
"""

from holdfast.api import names
from holdfast.scheduler.cluster.decisions import (
    Decision,
    Emit,
    Evict,
    ObjectRef,
    Preempt,
    PreemptReservation,
)
from holdfast.scheduler.cluster.records import Phase, ReservationInfo
from holdfast.scheduler.reservations.reservation_victims import is_soft_evicted, soft_eviction
from holdfast.scheduler.state.cluster import Cluster

_AGAIN = 5.0
"""Seconds until a refused eviction is tried again."""


class ReservationEvictions:
    """Evicts reservations that are preempted or softly evicted."""

    def __init__(self, cluster: Cluster, soft: bool = False, soft_evictor: bool = False) -> None:
        self._cluster = cluster
        self._reservations = cluster.reservations
        self._soft = soft
        self._soft_evictor = soft_evictor
        self._asked: dict[str, float] = {}
        """When the eviction of a pod was last tried, by its uid."""

    def run(self, now: float) -> list[Decision]:
        decisions: list[Decision] = []
        for uid in self._reservations.preempted:
            victim, preemptor = self._reservations.known.get(uid), self._reservations.preempted.of(uid)
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
        """Writes to the victim that it is preempted, and by which reservation."""
        assert victim.pod is not None
        if victim.marked or self._is_marked(victim, preemptor):
            victim.marked = True
            return []
        victim.marked = True
        node = self._cluster.nodes.name(victim.pod.row)
        why = f"Preempted by reservation {preemptor.name} on node {node}"
        labels: dict[str, str] = {}
        annotations = {names.PREEMPTED_BY: str(preemptor.ref)}
        if self._soft:
            labels = {names.SOFT_EVICTION: "true"}
            annotations = {names.SOFT_EVICTION: soft_eviction(str(preemptor.ref), why, now)}
        return [
            PreemptReservation(victim.ref, preemptor.ref, node, labels, annotations),
            Emit(victim.ref, "Normal", "Preempted", why, "Preempting"),
        ]

    def _is_marked(self, victim: ReservationInfo, preemptor: ReservationInfo) -> bool:
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
            pod.being_preempted = True  # until the watch delivers its deletion, or the write is refused
            node = self._cluster.nodes.name(pod.row)
            text = f"Preempted by reservation {preemptor.name} on node {node}"
            why = f"{pod.scheduler}: its reservation is preempted by a reservation of higher priority"
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
                decisions += self._reservations.delete(victim, "soft eviction")
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
    return Evict(pod, f"soft eviction of {victim.ref}")
