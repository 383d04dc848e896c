"""Run-time estimates of pods, and the expected ends and starts that backfill relies on."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import TYPE_CHECKING

from holdfast.api.errors import DurationError
from holdfast.api.names import RUN_ESTIMATE
from holdfast.api.pod import Pod
from holdfast.api.times import parse_duration
from holdfast.scheduler.cluster.pods import PodRecord
from holdfast.scheduler.reservations.reservation_info import ReservationInfo

if TYPE_CHECKING:
    from holdfast.scheduler.cluster.cluster import Cluster


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


def expected_end(cluster: Cluster, pod: PodRecord) -> float | None:
    """When a pod on a node is expected to end; None without an estimate, or if that time is past."""
    estimate = cluster.jobs.estimate(pod)
    if estimate is None:
        return None
    end = (cluster.now if pod.started is None else pod.started) + estimate
    return end if end > cluster.now else None


def overruns(cluster: Cluster, pod: PodRecord) -> bool:
    """Whether the pod has exceeded its run-time estimate."""
    estimate = cluster.jobs.estimate(pod)
    return estimate is not None and pod.started is not None and pod.started + estimate < cluster.now


def expected_start(cluster: Cluster, reservation: ReservationInfo) -> float | None:
    """When the capacity of a hold is expected to be free; None if that is not known."""
    hold = cluster.ledger.holds.get(reservation.uid)
    if hold is None:
        return None
    if not reservation.waiting:
        return cluster.now
    short = cluster.reservations.waiting.shortage(reservation)
    if not short:
        return cluster.now
    return _freed_at(cluster, hold.row, short)


def expected_fit(cluster: Cluster, row: int, asked: Iterable[tuple[int, int]]) -> float | None:
    """When these amounts, which are not free on a row now, are expected to be; None if unknown."""
    free = cluster.ledger.free(row)
    return _freed_at(cluster, row, {slot: amount - int(free[slot]) for slot, amount in asked})


def _freed_at(cluster: Cluster, row: int, short: dict[int, int]) -> float | None:
    """When enough pods of the row are expected to have ended to free the amounts in `short`."""
    ends = []
    for pod in cluster.ledger.pods.get(row, {}).values():
        end = expected_end(cluster, pod)
        if end is not None and cluster.ledger.holds.get(pod.reservation_uid) is None:
            ends.append((end, pod.uid, pod))
    for end, _, pod in sorted(ends, key=lambda each: each[:2]):
        for slot, amount in pod.cls.usage:
            if slot in short:
                short[slot] -= amount
        if all(lack <= 0 for lack in short.values()):
            return end
    return None


def next_end(cluster: Cluster, row: int) -> float:
    """Until when the expectations for a row stay the same if nothing changes there: the first expected
    end of a pod. A pod that has not started is expected to end later with every moment."""
    ends = []
    for pod in cluster.ledger.pods.get(row, {}).values():
        end = expected_end(cluster, pod)
        if end is not None:
            ends.append(cluster.now if pod.started is None else end)
    return min(ends, default=math.inf)
