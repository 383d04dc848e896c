"""When held room is expected to be free, going by how long the pods there say they run."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from holdfast.core.pods import PodRecord
from holdfast.core.promises.promise import Promise

if TYPE_CHECKING:
    from holdfast.core.cluster import Cluster


def expected_end(cluster: Cluster, pod: PodRecord) -> float | None:
    """When a pod on a node will be gone; None if it does not say, or should be by now."""
    estimate = cluster.jobs.estimate(pod)
    if estimate is None:
        return None
    end = (cluster.now if pod.started is None else pod.started) + estimate
    return end if end > cluster.now else None


def overruns(cluster: Cluster, pod: PodRecord) -> bool:
    """Whether the pod runs longer than it said."""
    estimate = cluster.jobs.estimate(pod)
    return estimate is not None and pod.started is not None and pod.started + estimate < cluster.now


def expected_start(cluster: Cluster, promise: Promise) -> float | None:
    """When there will be room for the hold; None if that is not known."""
    hold = cluster.ledger.holds.get(promise.uid)
    if hold is None:
        return None
    if not promise.waiting:
        return cluster.now
    short = cluster.promises.waiting.shortage(promise)
    if not short:
        return cluster.now
    return _served(cluster, hold.row, short)


def room_at(cluster: Cluster, row: int, asked: Iterable[tuple[int, int]]) -> float | None:
    """When there will be room for these amounts on a row that has it not now; None if nobody knows."""
    free = cluster.ledger.free(row)
    return _served(cluster, row, {slot: amount - int(free[slot]) for slot, amount in asked})


def _served(cluster: Cluster, row: int, short: dict[int, int]) -> float | None:
    """When pods there will have left what is short."""
    ends = []
    for pod in cluster.ledger.pods.get(row, {}).values():
        end = expected_end(cluster, pod)
        if end is not None and cluster.ledger.holds.get(pod.draws_on) is None:
            ends.append((end, pod.uid, pod))
    for end, _, pod in sorted(ends, key=lambda each: each[:2]):
        for slot, amount in pod.cls.usage:
            if slot in short:
                short[slot] -= amount
        if all(lack <= 0 for lack in short.values()):
            return end
    return None


def earliest_start(
    cluster: Cluster, asked: Mapping[int, int], rows: NDArray[np.bool_], served: list[float]
) -> float:
    """When a job could start at the earliest for which room is held that will be there at these times:
    by chance some of it may find room on other rows before, if nobody else takes what comes free. Each
    of its members asks for that much at least."""
    nodes, last = cluster.nodes, max(served)
    slots = [slot for slot, amount in asked.items() if amount > 0]
    if not slots:
        return cluster.now
    amounts = np.array([asked[slot] for slot in slots])
    free = (nodes.allocatable[slots] - nodes.claimed[slots])[:, : nodes.size]
    fit = np.where(rows, np.maximum((free // amounts[:, None]).min(axis=0), 0), 0)
    moments: dict[float, list[PodRecord]] = {time: [] for time in (cluster.now, *served)}
    for row in np.flatnonzero(rows).tolist():
        for pod in cluster.ledger.pods.get(row, {}).values():
            end = expected_end(cluster, pod)
            if end is not None and end < last and cluster.ledger.holds.get(pod.draws_on) is None:
                moments.setdefault(end, []).append(pod)
    for moment in sorted(moments):
        for pod in moments[moment]:
            used = dict(pod.cls.usage)
            free[:, pod.row] += [used.get(slot, 0) for slot in slots]
            fit[pod.row] = max(0, int((free[:, pod.row] // amounts).min()))
        if sum(time > moment for time in served) <= fit.sum():
            return moment
    return last


def next_end(cluster: Cluster, row: int) -> float:
    """Until when nothing else can be expected of a row if nothing happens there: then some pod should
    end. Of one that has not started that moves on as time does."""
    ends = []
    for pod in cluster.ledger.pods.get(row, {}).values():
        end = expected_end(cluster, pod)
        if end is not None:
            ends.append(cluster.now if pod.started is None else end)
    return min(ends, default=math.inf)
