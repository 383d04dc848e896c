"""Holding room for a starving job: which node for which task, and whether that makes it ready.

A task goes where it would be placed but for what runs there now. If it fits already it is allocated,
else the node is to hold room for it. When enough tasks have one or the other, the job is ready, or
ready on condition that the room comes free; only then does any of it stand.
"""

import math
from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from holdfast.core.cluster import Cluster
from holdfast.core.jobs import Job
from holdfast.core.pods import PodRecord
from holdfast.core.view import All, One
from holdfast.framework.column import Column
from holdfast.framework.cycle import Cycle
from holdfast.framework.interface import Offer
from holdfast.framework.points import BARRIER, ROOM
from holdfast.framework.profile import Profile
from holdfast.framework.resource_order import node_score
from holdfast.framework.statement import Statement

Bools = NDArray[np.bool_]


class Plan(NamedTuple):
    """What would make a job ready, now or later."""

    statement: Statement
    """Tasks that fit already, with the places they have taken."""
    held: list[tuple[PodRecord, int]]
    """Tasks that do not, and the rows to hold room on."""
    ready: bool
    """Whether it is ready without any room being held."""


class Reserving:
    def __init__(self, cluster: Cluster, cycle: Cycle, profiles: Mapping[str, Profile]) -> None:
        self._cluster = cluster
        self._nodes = cluster.nodes
        self._holds = cluster.jobs.holds
        self._cycle = cycle
        self._profiles = profiles

    # Nodes

    def suitable(self, column: Column, pod: PodRecord) -> Bools:
        """The rows that would do for the pod if there were room."""
        nodes = self._nodes
        if column.rejected is not None:
            return np.zeros(nodes.size, dtype=np.bool_)
        view = All(nodes)
        rows = nodes.alive[: nodes.size].copy()
        for name, test in column.filters:
            if test.only is not None:
                rows &= np.array([nodes.name(row) in test.only for row in range(nodes.size)])
            if name not in (ROOM, BARRIER):
                rows &= np.asarray(test.passes(view) & view.full(True))
        if pod.pin is not None:
            rows &= np.array([nodes.name(row) == pod.pin for row in range(nodes.size)])
        return rows

    def suits(self, pod: PodRecord, row: int) -> bool:
        """Whether one row would do for the pod if there were room."""
        column = self._cycle.column(self._profiles[pod.scheduler], pod.cls)
        if column.rejected is not None or not self._nodes.alive[row]:
            return False
        name, view = self._nodes.name(row), One(self._nodes, row)
        return (pod.pin is None or pod.pin == name) and all(
            (test.only is None or name in test.only) and (kind in (ROOM, BARRIER) or test.passes(view))
            for kind, test in column.filters
        )

    def idle(self, slot: int) -> NDArray[np.int64]:
        """What pods and other reservations leave of every row."""
        nodes = self._nodes
        free: NDArray[np.int64] = (nodes.allocatable[slot] - nodes.claimed[slot])[: nodes.size]
        for promise in self._holds:
            if promise.pod is not None and 0 <= promise.pod.row < nodes.size:
                free[promise.pod.row] += self._holds.left(promise, slot)
        return free

    def most_nodes(self, percent: float) -> int:
        return math.ceil(self._nodes.count * percent / 100)

    def ordered(
        self, profile: Profile, pod: PodRecord, among: Bools, held: set[str], most: int
    ) -> list[int]:
        """The rows to try for the pod, the best first."""
        rows = np.flatnonzero(among)
        if not len(rows):
            return []
        names = [self._nodes.name(row) for row in rows.tolist()]
        offer = Offer(
            rows,
            names,
            lambda slot: self.idle(slot)[rows],
            np.array([name in held for name in names]),
            max(0, most - len(held)),
        )
        ranks = node_score(pod.cls, offer.idle, len(rows))
        if profile.node_orders:
            points = sum(
                plugin.node_order_on_resource(pod.cls, offer) for plugin in profile.node_orders
            )
            points = np.asarray(points)
        else:
            points = np.ones(len(rows))
        chosen = [i for i in range(len(rows)) if points[i] > 0]
        chosen.sort(key=lambda i: (-points[i], -ranks[i], names[i]))
        return [int(rows[i]) for i in chosen]

    # Jobs

    def plan(self, jobs: list[Job], tasks: list[PodRecord], percent: float) -> Plan | None:
        """How to make the jobs ready, together; with none of them, the one pod that is one. What fits
        takes its place: the plan must be discarded or committed."""
        statement = Statement(self._cycle)
        held: list[tuple[PodRecord, int]] = []
        nodes, most = self._holds.nodes(), self.most_nodes(percent)
        for pod in tasks:
            if self._holds.is_held(pod):
                continue
            profile = self._profiles[pod.scheduler]
            column = self._cycle.column(profile, pod.cls)
            among = self.suitable(column, pod) & self._can_ever(pod, held)
            for name in self._holds.unfit(pod):
                unfit = self._nodes.row(name)
                if unfit is not None:
                    among[unfit] = False
            for row in self.ordered(profile, pod, among, nodes, most):
                name = self._nodes.name(row)
                if name not in nodes and len(nodes) >= most:
                    continue
                free = name not in self._holds.nodes() and all(row != other for _, other in held)
                if not (free and self._take(statement, profile, pod, row)):
                    held.append((pod, row))
                nodes.add(name)
                break
        placed = [pod for _, pod in statement.placed]
        waiting = [pod for pod, _ in held]
        if not jobs:
            ready, on_condition = bool(placed), bool(waiting)
        else:
            waiting += [pod for pod in tasks if self._holds.is_held(pod)]
            ready = bool(placed) and all(job.is_ready for job in jobs)
            on_condition = bool(placed or held) and all(
                job.would_be_ready(pod for pod in waiting if pod.job is job) for job in jobs
            )
        if not (ready or on_condition):
            statement.discard()
            return None
        return Plan(statement, held, ready)

    def _take(self, statement: Statement, profile: Profile, pod: PodRecord, row: int) -> bool:
        """Takes a place there for the pod, if it fits as things are."""
        column = self._cycle.column(profile, pod.cls)
        if not column.fits_row(row):
            return False
        self._cycle.draw(profile, pod, column, row)
        return statement.put(profile, pod, row)

    def _can_ever(self, pod: PodRecord, planned: list[tuple[PodRecord, int]]) -> Bools:
        """The rows that have room for the task besides what is held there, what its job has there
        itself, and what never ends."""
        nodes = self._nodes
        besides = [(other.cls, row) for other, row in planned]
        for wanted in self._holds.wanted.values():
            other, at = self._cluster.pods.get(wanted.pod), nodes.row(wanted.node)
            if other is not None and at is not None:
                besides.append((other.cls, at))
        if pod.job is not None:
            besides += [(p.cls, p.row) for p in pod.job.placed() if not p.cls.permanent]
        rows = np.ones(nodes.size, dtype=np.bool_)
        for slot, amount in pod.cls.amounts.items():
            kept = (nodes.held[slot] + nodes.permanent[slot])[: nodes.size]
            for cls, row in besides:
                kept[row] += cls.amounts.get(slot, 0)
            rows &= kept + amount <= nodes.allocatable[slot, : nodes.size]
        return rows

    def never_fits(self, tasks: list[PodRecord]) -> PodRecord | None:
        """A task for which no node that would do is large enough, whatever ends."""
        nodes = self._nodes
        for pod in tasks:
            column = self._cycle.column(self._profiles[pod.scheduler], pod.cls)
            room = self.suitable(column, pod)
            for slot, amount in pod.cls.amounts.items():
                left = (nodes.allocatable[slot] - nodes.permanent[slot])[: nodes.size]
                room &= left >= amount
            if not room.any():
                return pod
        return None
