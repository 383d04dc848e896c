"""Reservation: schedules and binds reservations, and has owners wait for theirs.

How owners are filtered on nodes with matched reservations concerns every plugin, so it is in
`framework.feasibility.reservation_column`.
"""

import math

import numpy as np
from numpy.typing import NDArray

from holdfast.api.names import PREEMPTS
from holdfast.scheduler.cluster.decisions import Decision, SetReservationStatus
from holdfast.scheduler.cluster.events import Change
from holdfast.scheduler.cluster.pod_classes import PodClass
from holdfast.scheduler.cluster.records import Phase, PodRecord
from holdfast.scheduler.cluster.view import Cells, View
from holdfast.scheduler.framework.binding_cycle import NOT_ACTIVE
from holdfast.scheduler.framework.config.plugin_sets import RESERVATION
from holdfast.scheduler.framework.interface import (
    FINE,
    ClusterPlugin,
    Filter,
    Nomination,
    Outcome,
    Reason,
    Rejected,
    Scope,
    Score,
    Settled,
    Trial,
)
from holdfast.scheduler.reservations.reservation_status import status_of
from holdfast.scheduler.reservations.reservation_victims import written

REASON_SAME_REUSABLE = "node(s) only one same reusable reservation can be scheduled on a same node"

_NOW = 2**42
"""The score of a node with enough free capacity now; each millisecond until then costs one point."""
_SPARING = 2**40
"""By how much a node scores more where a late reservation displaces no starvation hold; one with
enough free capacity now by twice as much."""
_PATIENCE = 600.0
"""How long an owner waits for its reservation to be written, in seconds."""


class ReservationPlugin(ClusterPlugin):
    name = RESERVATION
    wakes_on = Change.ANY_NODE | Change.ANY_POD

    def filter(self, cls: PodClass) -> Filter | Rejected | None:
        reservations = self.cluster.reservations
        if cls.owner_spec_id >= 0:
            return self._apart(cls) if cls.exclusive else None
        affinity = reservations.affinity(cls)
        if affinity.error:
            return Rejected(affinity.error, error=True)
        return Filter.nothing(Settled(lambda: reservations.matching(cls)))

    def score(self, cls: PodClass) -> Score | None:
        """A pre-allocation prefers the node where its capacity is free first: now, or at the expected
        end of the pods there. Nodes without run-time estimates come last, ordered by how little is
        missing. A late reservation prefers nodes where it displaces no starvation hold."""
        if cls.is_planned:
            return self._sparing(cls)
        if not cls.pre_allocation:
            return None
        asked = [(slot, amount) for slot, amount in cls.requests if amount]

        def score(view: View) -> Cells:
            missing, lacks = view.full(False) * 0, view.full(False)
            for slot, amount in asked:
                lack = view.maximum(amount - view.free(slot), 0)
                lacks = lacks | (lack > 0)
                missing = missing + view.minimum(lack * 100 // amount, 10000)
            known = 100 - view.minimum(missing // max(1, len(asked)), 100)
            if isinstance(view.rows, int):
                return self._when(view.rows, asked, known) if lacks else _NOW
            scores = np.where(lacks, known, _NOW)
            if self.cluster.jobs.estimates.any_given:
                for i in np.flatnonzero(lacks).tolist():
                    scores[i] = self._when(int(view.rows[i]), asked, int(scores[i]))
            return scores

        return Score(score, Scope.USAGE)

    def _sparing(self, cls: PodClass) -> Score:
        """Of the nodes on which a late reservation has its capacity now, and of those on which it
        waits, those come first that have enough beside the starvation holds that are Waiting. A hold
        is displaced, and its job pushed back, only where no other node is as good."""
        nodes, limits = self.cluster.nodes, self.cluster.limits
        holds, late = (
            self.cluster.reservations.starvation_holds,
            self.cluster.reservations.calendar.late,
        )
        version = Settled(lambda: bool(holds) and cls.id in late)
        if not holds or cls.id not in late:
            return Score.same(0, version)

        def score(view: View) -> Cells:
            now, beside = view.full(True), view.full(True)
            for slot, amount in cls.usage:
                if limits.is_bounded(slot):
                    most = view.take(limits.capacity(slot)) - amount
                    kept = view.take(nodes.held_once_pods_end[slot]) + view.take(
                        nodes.daemon_requested[slot]
                    )
                    now = now & (view.claimed(slot) - holds.outranked(cls, view, slot) <= most)
                    beside = beside & (kept <= most)
            return view.where(now, 2 * _SPARING, 0) + view.where(beside, _SPARING, 0)

        return Score(score, Scope.USAGE, version=version)

    def _when(self, row: int, asked: list[tuple[int, int]], unknown: int) -> int:
        """The score by the time when the capacity is free; `unknown` if that is not known."""
        jobs = self.cluster.jobs
        when = jobs.planner.expected_fit(row, asked) if jobs.estimates.any_given else None
        return unknown if when is None else _NOW - math.ceil(when * 1000)

    def can_preempt_for(self, cls: PodClass) -> bool:
        return False

    def post_filter(self, pod: PodRecord, trial: Trial) -> Nomination:
        """Adds to an owner's message why its matched reservations are infeasible; nominates nothing."""
        return Nomination(message="" if pod.reservation is not None else trial.reservations())

    def permit(self, pod: PodRecord, row: int) -> Outcome:
        """Has an owner wait until its reservation is bound."""
        if not pod.reservation_uid:
            return FINE
        reservation = self.cluster.reservations.known.get(pod.reservation_uid)
        if (
            reservation is None
            or reservation.pod is None
            or (reservation.pod.row != row and not reservation.taken_early)
        ):
            return Outcome(NOT_ACTIVE)
        waits = reservation.virtual or pod.uid in self.cluster.virtuals.waits
        if reservation.pod.phase is not Phase.ASSUMED or waits:
            return FINE  # or DynamicReservation has it wait
        return Outcome(wait=_PATIENCE)

    def bind(self, pod: PodRecord, row: int) -> list[Decision]:
        """Binds a reserve pod by writing the status of its reservation."""
        reservation = pod.reservation
        if reservation is None:
            return []
        node = self.cluster.nodes.name(row)
        status = status_of(self.cluster.reservations, reservation, node, self.cluster.now)
        annotations = dict(self.cluster.managers.annotations_for(pod, row))
        if reservation.victims:
            annotations[PREEMPTS] = written(reservation.victims)
        reservation.last_status = status
        return [SetReservationStatus(reservation.ref, status, binds=True, annotations=annotations)]

    def _apart(self, cls: PodClass) -> Filter:
        """Filters nodes that have a reusable reservation with the same owners already."""
        reservations, nodes = self.cluster.reservations, self.cluster.nodes

        def untaken() -> NDArray[np.bool_]:
            rows = np.ones(nodes.capacity, dtype=np.bool_)
            for reservation in reservations.members.get(cls.owner_spec_id, {}).values():
                if (
                    reservation.pod is not None
                    and reservation.pod.row >= 0
                    and reservation.pod.cls.exclusive
                ):
                    rows[reservation.pod.row] = False
            return rows

        def passes(view: View) -> Cells:
            return view.take(untaken())

        def reasons(view: View) -> list[Reason]:
            return [Reason(REASON_SAME_REUSABLE, view.take(~untaken()))]

        return Filter(passes, reasons, Scope.USAGE)
