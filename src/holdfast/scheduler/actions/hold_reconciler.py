"""Looks after what is held for starving jobs, whether or not any more is going to be.

A hold is dropped when it is pointless: its pod is gone or has another place, its job is ready without
it or cannot be any more, or its node will never do. Of those that stand, it is worked out when they
will be served; each says so.

Holds may be many and rounds are: what depends on the row alone is looked at again when something
happened there, and what depends on the job once for all of its holds.
"""

import math
from typing import NamedTuple

from holdfast.api.names import HOLD_EXPECTED_START, HOLD_JOB
from holdfast.api.times import format_time
from holdfast.scheduler.cluster.cluster import Cluster
from holdfast.scheduler.cluster.decisions import AnnotateReservation, Decision, Emit, ObjectRef
from holdfast.scheduler.cluster.pods import PodRecord
from holdfast.scheduler.framework.hold_planner import HoldPlanner
from holdfast.scheduler.jobs import Job, JobName
from holdfast.scheduler.jobs.estimates import expected_start, next_end
from holdfast.scheduler.jobs.starvation_holds import pod_of
from holdfast.scheduler.reservations import ReservationInfo

RELEASED = "Released"


class _Outlook(NamedTuple):
    """When a hold will be served, as far as its row tells."""

    start: float | None
    """Minus infinity if it could be now."""
    until: float
    """This is so until then, unless something happens on the row."""
    waiting: bool


class HoldReconciler:
    def __init__(self, cluster: Cluster, planner: HoldPlanner) -> None:
        self._cluster = cluster
        self._holds = cluster.jobs.holds
        self._planner = planner
        self.starts: dict[str, float | None] = {}
        """When each is expected to be served, by its uid."""
        self._annotated: dict[str, tuple[float | None, str]] = {}
        self._suited: dict[str, int] = {}
        """What had changed of nodes when they were last found to do, by the hold's uid."""
        self._run_estimates: dict[str, _Outlook] = {}
        self._read = 0
        self._lengths = -1

    def run(self, now: float) -> list[Decision]:
        decisions: list[Decision] = []
        self._forget_changed_rows()
        jobs: dict[JobName, str] = {}
        for reservation in self._holds:
            if reservation.uid in self._holds.dropped:
                continue
            pod = self._cluster.pods.get(pod_of(reservation))
            why = self._pointless(reservation, pod, jobs)
            if why:
                decisions += self._drop(reservation, pod, why)
        self._look_ahead()
        if self.starts or self._annotated:
            decisions += self._annotations()
        return decisions

    def _forget_changed_rows(self) -> None:
        log, lengths = self._cluster.epoch.usage, self._cluster.epoch.run_estimates
        rows = log.since(self._read) if lengths == self._lengths else None
        self._read, self._lengths = log.end, lengths
        if rows is None:
            self._run_estimates.clear()
            self._suited.clear()
        elif len(rows):
            for row in set(rows.tolist()):
                for reservation in self._holds.on(row):
                    self._run_estimates.pop(reservation.uid, None)
                    self._suited.pop(reservation.uid, None)

    def _drop(self, reservation: ReservationInfo, pod: PodRecord | None, why: str) -> list[Decision]:
        self._holds.dropped.add(reservation.uid)
        deleted = self._cluster.reservations.delete(reservation, why)
        if pod is not None and reservation.wants_node:
            self._holds.released(pod, reservation.wants_node)
        job = reservation.object.metadata.annotations.get(HOLD_JOB, "")
        text = f"what {reservation.name} holds for {job} is released: {why}"
        about = self._about(reservation, pod, job)
        return [*deleted, Emit(about, "Normal", RELEASED, text, "Reserving")]

    def _about(self, reservation: ReservationInfo, pod: PodRecord | None, job: str) -> ObjectRef:
        """Whom it concerns: the job, as long as there is one, even if its pod is gone."""
        if pod is not None:
            return pod.ref if pod.job is None else pod.job.ref
        kind, _, name = job.partition("/")
        namespace, _, name = name.partition("/")
        known = self._cluster.jobs.get(namespace, name) if kind == "PodGroup" else None
        return known.ref if known is not None else reservation.ref

    def _pointless(
        self, reservation: ReservationInfo, pod: PodRecord | None, jobs: dict[JobName, str]
    ) -> str:
        """Why the hold is no use any more; empty if it is."""
        if pod is None or pod.deletion_pending:
            return "its pod is gone"
        if pod.row >= 0:
            return "" if pod.reservation_uid == reservation.uid else "its pod has another place"
        if self._holds.of(pod) is not reservation:
            return "another one is there for its pod"
        if pod.job is not None:
            if pod.job.name not in jobs:
                jobs[pod.job.name] = _no_use(pod.job)
            if jobs[pod.job.name]:
                return jobs[pod.job.name]
        if error := self._cluster.jobs.queues.never_admissible(pod):
            return error
        reserve = reservation.pod
        if reserve is None:
            return reservation.error or "it makes no sense"
        if reserve.row < 0:
            if not reservation.message:
                return ""
            self._holds.refused(pod, reservation.wants_node)
            return f"it finds no room: {reservation.message}"
        return self._never_there(reservation, pod, reserve.row)

    def _never_there(self, reservation: ReservationInfo, pod: PodRecord, row: int) -> str:
        changes = self._cluster.epoch.nodes.end
        if self._suited.get(reservation.uid) == changes:
            return ""
        if obstacle := self._planner.feasibility.infeasible_reason(reservation, pod, row):
            return obstacle
        self._suited[reservation.uid] = changes
        return ""

    # When they will be served

    def _look_ahead(self) -> None:
        of_job: dict[object, list[str]] = {}
        latest: dict[object, float | None] = {}
        for reservation in self._holds:
            pod = self._cluster.pods.get(pod_of(reservation))
            if pod is None or reservation.pod is None or reservation.pod.row < 0:
                continue
            key = pod.uid if pod.job is None else pod.job.name
            of_job.setdefault(key, []).append(reservation.uid)
            start, so_far = (
                self._run_estimate(reservation, reservation.pod.row).start,
                latest.get(key, -math.inf),
            )
            latest[key] = None if start is None or so_far is None else max(start, so_far)
        self.starts = {}
        for name, uids in of_job.items():
            last = latest[name]
            start = None if last is None else max(last, self._cluster.now)
            self.starts |= dict.fromkeys(uids, start)

    def _run_estimate(self, reservation: ReservationInfo, row: int) -> _Outlook:
        known, now = self._run_estimates.get(reservation.uid), self._cluster.now
        if known is not None and known.waiting == reservation.waiting and now < known.until:
            return known
        start = expected_start(self._cluster, reservation)
        if start is not None and start <= now:
            start = -math.inf
        found = _Outlook(start, next_end(self._cluster, row), reservation.waiting)
        self._run_estimates[reservation.uid] = found
        return found

    def _annotations(self) -> list[Decision]:
        decisions: list[Decision] = []
        said = {}
        for reservation in self._holds:
            start = self.starts.get(reservation.uid) if reservation.waiting else None
            known = self._annotated.get(reservation.uid)
            if known is not None and known[0] == start:
                said[reservation.uid] = known
                continue
            text = format_time(start) if start is not None else ""
            seen = reservation.object.metadata.annotations.get(HOLD_EXPECTED_START, "")
            if text != (seen if known is None else known[1]):
                decisions.append(AnnotateReservation(reservation.ref, {HOLD_EXPECTED_START: text}))
            said[reservation.uid] = start, text
        self._annotated = said
        for kept in (self._suited, self._run_estimates):
            for uid in [uid for uid in kept if uid not in said]:
                del kept[uid]
        return decisions


def _no_use(job: Job) -> str:
    """Why nothing need be held for the job; empty if something should."""
    if not job.is_known or job.lacks(job.waiting()):
        return "its job cannot be ready"
    return "its job is ready" if job.is_ready else ""
