"""Run-time estimates of pods, and the expected ends and starts that backfill relies on."""

import math
from collections.abc import Iterable

from holdfast.api.errors import DurationError
from holdfast.api.jobs import VolcanoJob
from holdfast.api.names import RUN_ESTIMATE, VOLCANO_JOB_NAME
from holdfast.api.pod import Pod
from holdfast.api.times import parse_duration
from holdfast.scheduler.cluster.base import ClusterBase
from holdfast.scheduler.cluster.records import PodRecord, ReservationInfo
from holdfast.scheduler.reservations.reservation_cache import ReservationCache


def estimate_in(pod: Pod) -> float | None:
    """The pod's own run-time estimate: the shorter of its annotation and activeDeadlineSeconds."""
    text = pod.metadata.annotations.get(RUN_ESTIMATE)
    if text is None and pod.spec.active_deadline_seconds is None:
        return None
    found = []
    if pod.spec.active_deadline_seconds is not None:
        found.append(float(pod.spec.active_deadline_seconds))
    if text is not None and (seconds := duration_or_none(text)) is not None:
        found.append(seconds)
    return min(found, default=None)


def duration_or_none(text: str | None) -> float | None:
    """The duration in seconds; None if the text is not a valid duration."""
    try:
        return max(0.0, parse_duration(text or ""))
    except DurationError:
        return None


class RunEstimates:
    """The run-time estimates of pods, by their own metadata or their Volcano job, and what follows from
    them."""

    def __init__(self, cluster: ClusterBase, reservations: ReservationCache) -> None:
        self._cluster = cluster
        self._reservations = reservations
        self._of_job: dict[tuple[str, str], float] = {}
        """The estimates of Volcano jobs, by (namespace, name)."""
        self.any_given = False
        """Whether any pod or job ever had a run-time estimate."""

    def read(self, pod: Pod) -> float | None:
        """The pod's own run-time estimate."""
        estimate = estimate_in(pod)
        if estimate is not None:
            self.any_given = True
        return estimate

    def put_volcano_job(self, job: VolcanoJob) -> None:
        meta, estimate = job.metadata, duration_or_none(job.spec.running_estimate)
        if estimate is not None:
            self._of_job[meta.namespace, meta.name] = estimate
            self._cluster.epoch.run_estimates += 1
            self.any_given = True
        else:
            self.drop_volcano_job(job)

    def drop_volcano_job(self, job: VolcanoJob) -> None:
        self._cluster.epoch.run_estimates += 1
        self._of_job.pop((job.metadata.namespace, job.metadata.name), None)

    def of(self, pod: PodRecord) -> float | None:
        """The run-time estimate of a pod in seconds: its own, otherwise that of its Volcano job."""
        if pod.estimate is not None or not self._of_job:
            return pod.estimate
        cls = pod.cls
        name = cls.annotations.get(VOLCANO_JOB_NAME) or cls.labels.get(VOLCANO_JOB_NAME, "")
        return self._of_job.get((pod.namespace, name))

    def expected_end(self, pod: PodRecord) -> float | None:
        """When a pod on a node is expected to end; None without an estimate, or if that is past."""
        estimate = self.of(pod)
        if estimate is None:
            return None
        end = (self._cluster.now if pod.started is None else pod.started) + estimate
        return end if end > self._cluster.now else None

    def overruns(self, pod: PodRecord) -> bool:
        """Whether the pod has exceeded its run-time estimate."""
        estimate = self.of(pod)
        if estimate is None or pod.started is None:
            return False
        return pod.started + estimate < self._cluster.now

    def expected_start(self, reservation: ReservationInfo) -> float | None:
        """When the capacity of a hold is expected to be free; None if that is not known."""
        entry = self._cluster.ledger.reservations.get(reservation.uid)
        if entry is None:
            return None
        if not reservation.waiting:
            return self._cluster.now
        short = self._reservations.waiting.shortage(reservation)
        if not short:
            return self._cluster.now
        return self._freed_at(entry.row, short)

    def expected_fit(self, row: int, asked: Iterable[tuple[int, int]]) -> float | None:
        """When these amounts, which are not free on a row now, are expected to be; None if unknown."""
        free = self._cluster.ledger.free(row)
        return self._freed_at(row, {slot: amount - int(free[slot]) for slot, amount in asked})

    def _freed_at(self, row: int, short: dict[int, int]) -> float | None:
        """When enough pods of the row are expected to have ended to free the amounts in `short`."""
        ends = []
        for pod in self._cluster.ledger.pods.get(row, {}).values():
            end = self.expected_end(pod)
            if end is not None and self._cluster.ledger.reservations.get(pod.reservation_uid) is None:
                ends.append((end, pod.uid, pod))
        for end, _, pod in sorted(ends, key=lambda each: each[:2]):
            for slot, amount in pod.cls.usage:
                if slot in short:
                    short[slot] -= amount
            if all(lack <= 0 for lack in short.values()):
                return end
        return None

    def next_end(self, row: int) -> float:
        """Until when the expectations for a row stay the same if nothing changes there: the first
        expected end of a pod. A pod that has not started is expected to end later with every
        moment."""
        ends = []
        for pod in self._cluster.ledger.pods.get(row, {}).values():
            end = self.expected_end(pod)
            if end is not None:
                ends.append(self._cluster.now if pod.started is None else end)
        return min(ends, default=math.inf)
