"""What queues may have at most, and what must stay free for them.

What is held for starving jobs of a queue counts as theirs: small jobs of the same queue cannot use up
its capability for ever. So does what nominated pods wait for: what their victims leave of a capability
is not taken by pods that are made in the victims' place.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from holdfast.scheduler.cluster.pods import PodRecord

if TYPE_CHECKING:
    from holdfast.scheduler.cluster.cluster import Cluster
    from holdfast.scheduler.jobs.queues import Amounts, QueueRecord, Queues
import math
from collections.abc import Mapping
from typing import NamedTuple

Pods = tuple[PodRecord, ...]


class QueueLimits:
    def __init__(self, queues: Queues, cluster: Cluster) -> None:
        self._queues = queues
        self._cluster = cluster

    def admission_error(self, pods: Pods) -> str:
        """Why the pods, all of one queue, may not be placed, whatever room there is; empty if they
        may."""
        name = self._queues.of(pods[0])
        if over := self._over_limit(name, pods):
            return over
        reservation = pods[0].reservation
        if reservation is not None and self._cluster.jobs.holds.knows(reservation):
            return ""  # it was asked of the pod it is for
        return self._takes_guaranteed(name, pods)

    def never_admissible(self, pods: Pods) -> str:
        """Why room on nodes would be no use to the pods, all of one queue; empty if it would. What is
        guaranteed to others may be free besides one day."""
        name = self._queues.of(pods[0])
        if over := self._over_limit(name, pods):
            return over
        nodes = self._cluster.nodes
        for slot, asked in _sum(pods).items():
            kept = self._guaranteed_to_others(name, slot, in_the_end=True)
            if (
                kept
                and asked > self._total(nodes.allocatable[slot] - nodes.daemon_requested[slot]) - kept
            ):
                return f"too much of {nodes.slots.name(slot)} is guaranteed to other queues"
        return ""

    def _over_limit(self, name: str, pods: Pods) -> str:
        """What the queue itself, or one above it, has against the pods."""
        if why := self._queues.why_closed(name):
            return why
        path = self._queues.path(name)
        if not any(record.capability for record in path):
            return ""
        self._queues.refresh()
        amounts = _sum(pods)
        for record in path:
            if record.capability is None:
                continue
            left = {
                slot: limit - record.allocated.get(slot, 0)
                for slot, limit in record.capability.items()
                if slot in amounts
            }
            over = _first_over(amounts, left)
            if over is None and left:
                held = self._held_in(record, pods)
                over = _first_over(amounts, {slot: left[slot] - held.get(slot, 0) for slot in left})
            if over is not None:
                resource = self._cluster.nodes.slots.name(over)
                return f"queue {record.name} would have more {resource} than its capability"
        return ""

    def _held_in(self, record: QueueRecord, less: Pods) -> Amounts:
        """What is held for starving jobs of the queue, and what nominated pods of it wait for that are
        as important as these or more, or in another queue below it: it is as good as theirs. Of the
        jobs of the pods themselves nothing counts, nor do nominated pods wait for each other: all had
        room made for them."""
        jobs, foresight = self._cluster.jobs, self._queues.foresight
        kept = {pod.uid: pod for pod in jobs.holds.pods()}
        if not all(pod.nominated for pod in less):
            lowest = min(less, key=lambda pod: pod.cls.priority)
            for there in self._cluster.nominator.values():
                for pod in there.values():
                    if self._queues.defers_to(lowest, pod):
                        kept.setdefault(pod.uid, pod)
        total: Counter[int] = Counter()
        for pod in kept.values():
            if foresight is not None and pod in foresight:
                continue  # it is among those who have something
            own = any(pod is each or (pod.job is not None and pod.job is each.job) for each in less)
            if not own and pod.row < 0 and record in self._queues.path(self._queues.of(pod)):
                total.update(pod.cls.amounts)
        return total

    def _takes_guaranteed(self, name: str, pods: Pods) -> str:
        """Whether it would get in the way of what is guaranteed to others. Room that is held for the
        pods is not taken from anyone any more, but what is guaranteed must be free besides."""
        if not self._queues.has_guarantees:
            return ""
        self._queues.refresh()
        nodes, holds = self._cluster.nodes, self._cluster.jobs.holds
        own = [hold for pod in pods if (hold := holds.of(pod)) is not None] if holds else []
        for slot, asked in _sum(pods).items():
            kept = self._guaranteed_to_others(name, slot, in_the_end=False)
            if not kept:
                continue
            needed = max(0, asked - sum(holds.left(hold, slot) for hold in own))
            if self._total(nodes.allocatable[slot] - nodes.claimed[slot]) - kept >= needed:
                continue
            if not (len(pods) == 1 and self._is_reserved(pods[0])):
                return f"what is free of {nodes.slots.name(slot)} is guaranteed to other queues"
        return ""

    def _guaranteed_to_others(self, name: str, slot: int, in_the_end: bool) -> int:
        """What is guaranteed to queues that are not above the named one, and not in use; in the end,
        all of it. What a queue is guaranteed is there for those below it too."""
        if not self._queues.has_guarantees:
            return 0
        below, path = self._queues.below(), {record.name for record in self._queues.path(name)}

        def owed(record: QueueRecord) -> int:
            has = 0 if in_the_end else record.allocated.get(slot, 0)
            return max(
                record.guarantee.get(slot, 0) - has, sum(map(owed, below.get(record.name, ()))), 0
            )

        roots = [r for top in ("", *path) for r in below.get(top, ()) if r.name not in path]
        return sum(map(owed, roots))

    def _is_reserved(self, pod: PodRecord) -> bool:
        """Whether a reservation has what the pod asks for, made for other reasons than starvation."""
        reservations, ledger = self._cluster.reservations, self._cluster.ledger
        holds = self._cluster.jobs.holds
        for spec in reservations.matching(pod.cls):
            for reservation in reservations.members.get(spec, {}).values():
                hold = ledger.holds.get(reservation.uid)
                if hold is None or reservation.waiting or holds.knows(reservation):
                    continue
                if all(hold.left(slot) >= asked for slot, asked in pod.cls.requests):
                    return True
        return False

    def _total(self, column: NDArray[np.int64]) -> int:
        """Over all nodes; where more is claimed than there is, nothing is left, not less."""
        nodes = self._cluster.nodes
        return int(np.maximum(column[: nodes.size][nodes.alive[: nodes.size]], 0).sum())


def _first_over(amounts: Amounts, left: Amounts) -> int | None:
    """The first slot of which more is asked for than is left, of those that are limited."""
    return next((slot for slot, asked in amounts.items() if asked > left.get(slot, asked)), None)


def _sum(pods: Pods) -> Amounts:
    if len(pods) == 1:
        return pods[0].cls.amounts
    total: Counter[int] = Counter()
    for pod in pods:
        total.update(pod.cls.amounts)
    return dict(total)


# Sharing room by weight.
#
# Each resource is poured over the queues like water: everyone first gets what he is entitled to, the
# rest flows to all in proportion to their weights, and who is full (wants no more, or may have no more)
# leaves what would be his to the others. What nobody wants is left over.


Vector = NDArray[np.float64]
"""An amount for each slot."""


class QueueClaim(NamedTuple):
    """What one queue brings to the sharing."""

    weight: float
    entitled: Vector
    """What it gets before anything is shared, as far as it wants it."""
    most: Vector
    """What it wants, or may have at most."""


def shares(total: Vector, claims: list[QueueClaim]) -> list[Vector]:
    """What each gets; together never more than there is, unless more than that is entitled."""
    if not claims:
        return []
    most = np.array([np.maximum(claim.most, 0.0) for claim in claims])
    given = np.minimum(np.array([np.maximum(claim.entitled, 0.0) for claim in claims]), most)
    weight = np.array([[max(0.0, claim.weight)] for claim in claims])
    left = np.maximum(total - given.sum(axis=0), 0.0)
    for _ in claims:
        room = most - given
        thirsty = (room > 1e-9) & (weight > 0)
        weights = np.where(thirsty, weight, 0.0)
        together = weights.sum(axis=0)
        open_ = (together > 0) & (left > 1e-9)
        if not open_.any():
            break
        part = np.where(open_, left * weights / np.where(together > 0, together, 1.0), 0.0)
        more = np.minimum(part, room)
        given += more
        left = np.maximum(left - more.sum(axis=0), 0.0)
    return list(given)


def dominant(allocated: Mapping[int, int], deserved: Vector) -> float:
    """How much of what it deserves a queue has, of the resource it has most of."""
    most = 0.0
    for slot, has in allocated.items():
        share = deserved.item(slot) if slot < len(deserved) else 0.0
        if has > 0 and share <= 0:
            return math.inf
        if has > 0:
            most = max(most, has / share)
    return most
