"""Reconciles starvation holds with their jobs, whether or not the reserve action is configured.

A hold is deleted when it has no use: its pod is gone or is placed elsewhere, its job is ready without
it or can no longer become ready, or its node will never be feasible. For the other holds the expected
start of their jobs is estimated and written to an annotation.

There may be many holds, and this runs in every round. So what depends on a row alone is computed again
only when the row changed, and what depends on a job once for all of its holds.
"""

import math
from collections.abc import Iterable
from typing import NamedTuple

from holdfast.api.names import HOLD_EXPECTED_START, HOLD_JOB
from holdfast.api.times import format_time
from holdfast.scheduler.cluster.decisions import AnnotateReservation, Decision, Emit, ObjectRef
from holdfast.scheduler.cluster.records import PodRecord
from holdfast.scheduler.framework.hold_planner import HoldPlanner
from holdfast.scheduler.jobs import Job, JobName
from holdfast.scheduler.reservations import ReservationInfo
from holdfast.scheduler.reservations.starvation_holds import pod_of
from holdfast.scheduler.state.cluster import Cluster

RELEASED = "Released"


class _FreeEstimate(NamedTuple):
    """When the capacity of a hold is expected to be free."""

    start: float | None
    """Minus infinity if it is free now; None if that is not known."""
    until: float
    """The estimate is valid until then, unless the row changes."""
    waiting: bool


class HoldReconciler:
    """Deletes starvation holds without use, and writes the expected start of the others."""

    def __init__(self, cluster: Cluster, planner: HoldPlanner) -> None:
        self._cluster = cluster
        self._holds = cluster.reservations.starvation_holds
        self._planner = planner
        self.starts: dict[str, float | None] = {}
        """The expected start of each hold's job, by the hold's uid; None if it is not known."""
        self._annotated: dict[str, tuple[float | None, str]] = {}
        self._feasible_at: dict[str, tuple[object, ...]] = {}
        """The version (see `HoldFeasibility.version`) for which a hold was last found feasible, by its
        uid; dropped when its row changed."""
        self._estimates: dict[str, _FreeEstimate] = {}
        self._usage_seen = 0
        self._estimates_seen = -1

    def run(self, now: float) -> list[Decision]:
        self._forget_changed_rows()
        decisions = self.release(self._holds)
        self._estimate_starts()
        if self.starts or self._annotated:
            decisions += self._annotations()
        return decisions

    def release(self, holds: Iterable[ReservationInfo]) -> list[Decision]:
        """Deletes those of these holds that have no use."""
        decisions: list[Decision] = []
        jobs: dict[JobName, str] = {}
        for reservation in holds:
            if reservation.uid in self._holds.dropped:
                continue
            pod = self._cluster.pods.get(pod_of(reservation))
            why = self._no_use_reason(reservation, pod, jobs)
            if why:
                decisions += self._drop(reservation, pod, why)
        return decisions

    def refresh_starts(self) -> None:
        """Brings the expected starts up to date outside a round."""
        self._forget_changed_rows()
        self._estimate_starts()

    def _forget_changed_rows(self) -> None:
        log, estimates = self._cluster.epoch.usage, self._cluster.epoch.run_estimates
        rows = log.since(self._usage_seen) if estimates == self._estimates_seen else None
        self._usage_seen, self._estimates_seen = log.end, estimates
        if rows is None:
            self._estimates.clear()
            self._feasible_at.clear()
        elif len(rows):
            for row in set(rows.tolist()):
                for reservation in self._holds.on(row):
                    self._estimates.pop(reservation.uid, None)
                    self._feasible_at.pop(reservation.uid, None)

    def _drop(self, reservation: ReservationInfo, pod: PodRecord | None, why: str) -> list[Decision]:
        self._holds.dropped.add(reservation.uid)
        deleted = self._cluster.reservations.delete(reservation, why)
        if pod is not None and reservation.wants_node:
            self._holds.released(pod, reservation.wants_node)
        job = reservation.object.metadata.annotations.get(HOLD_JOB, "")
        text = f"hold {reservation.name} for {job} is released: {why}"
        about = self._about(reservation, pod, job)
        return [*deleted, Emit(about, "Normal", RELEASED, text, "Reserving")]

    def _about(self, reservation: ReservationInfo, pod: PodRecord | None, job: str) -> ObjectRef:
        """The object of the event: the job, as long as it exists, even if its pod is gone."""
        if pod is not None:
            own = self._cluster.jobs.of(pod)
            return pod.ref if own is None else own.ref
        kind, _, name = job.partition("/")
        namespace, _, name = name.partition("/")
        known = self._cluster.jobs.get(namespace, name) if kind == "PodGroup" else None
        return known.ref if known is not None else reservation.ref

    def _no_use_reason(
        self, reservation: ReservationInfo, pod: PodRecord | None, jobs: dict[JobName, str]
    ) -> str:
        """Why the hold has no use any more; empty if it has."""
        if pod is None or pod.deletion_pending:
            return "its pod is gone"
        if pod.row >= 0:
            return "" if pod.reservation_uid == reservation.uid else "its pod is placed without it"
        if self._holds.of(pod) is not reservation:
            return "its pod has another hold"
        job = self._cluster.jobs.of(pod)
        if job is not None:
            if job.name not in jobs:
                jobs[job.name] = _job_needs_none(job)
            if jobs[job.name]:
                return jobs[job.name]
        if error := self._cluster.jobs.queue_limits.never_admissible(pod):
            return error
        reserve = reservation.pod
        if reserve is None:
            return reservation.error or "the hold is invalid"
        if reserve.row < 0:
            if not reservation.message:
                return ""
            self._holds.refused(pod, reservation.wants_node)
            return f"the hold is unschedulable: {reservation.message}"
        return self._infeasible_reason(reservation, pod, reserve.row)

    def _infeasible_reason(self, reservation: ReservationInfo, pod: PodRecord, row: int) -> str:
        inputs = self._planner.feasibility.version(pod)
        if self._feasible_at.get(reservation.uid) == inputs:
            return ""
        if obstacle := self._planner.feasibility.infeasible_reason(reservation, pod, row):
            return obstacle
        self._feasible_at[reservation.uid] = inputs
        return ""

    # Expected starts

    def _estimate_starts(self) -> None:
        """A job is expected to start when the last of its holds is free."""
        of_job: dict[object, list[str]] = {}
        latest: dict[object, float | None] = {}
        for reservation in self._holds:
            pod = self._cluster.pods.get(pod_of(reservation))
            if pod is None or reservation.pod is None or reservation.pod.row < 0:
                continue
            key = pod.uid if pod.job is None else pod.job
            of_job.setdefault(key, []).append(reservation.uid)
            start, so_far = (
                self._estimate(reservation, reservation.pod.row).start,
                latest.get(key, -math.inf),
            )
            latest[key] = None if start is None or so_far is None else max(start, so_far)
        self.starts = {}
        for name, uids in of_job.items():
            last = latest[name]
            start = None if last is None else max(last, self._cluster.now)
            self.starts |= dict.fromkeys(uids, start)

    def _estimate(self, reservation: ReservationInfo, row: int) -> _FreeEstimate:
        known, now = self._estimates.get(reservation.uid), self._cluster.now
        if known is not None and known.waiting == reservation.waiting and now < known.until:
            return known
        start = self._cluster.jobs.planner.expected_start(reservation)
        if start is not None and start <= now:
            start = -math.inf
        found = _FreeEstimate(start, self._cluster.jobs.planner.next_end(row), reservation.waiting)
        self._estimates[reservation.uid] = found
        return found

    def _annotations(self) -> list[Decision]:
        decisions: list[Decision] = []
        annotated = {}
        for reservation in self._holds:
            start = self.starts.get(reservation.uid) if reservation.waiting else None
            known = self._annotated.get(reservation.uid)
            if known is not None and known[0] == start:
                annotated[reservation.uid] = known
                continue
            text = format_time(start) if start is not None else ""
            seen = reservation.object.metadata.annotations.get(HOLD_EXPECTED_START, "")
            if text != (seen if known is None else known[1]):
                decisions.append(AnnotateReservation(reservation.ref, {HOLD_EXPECTED_START: text}))
            annotated[reservation.uid] = start, text
        self._annotated = annotated
        for kept in (self._feasible_at, self._estimates):
            for uid in [uid for uid in kept if uid not in annotated]:
                del kept[uid]
        return decisions


def _job_needs_none(job: Job) -> str:
    """Why the job needs no holds; empty if it needs some."""
    if not job.is_known or job.lacks(job.waiting()):
        return "its job cannot become ready"
    return "its job is ready" if job.is_ready else ""
