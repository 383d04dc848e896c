"""The backfill action: places pods that end in time on capacity that is held or planned for others.

Capacity held for a starving job is idle until all of it is free. A pod with a run-time estimate may use
it if it ends by the time the starving job is expected to start. If no start is expected, nothing is
backfilled on that node. With conservative backfill this protects every starving job; with EASY backfill
only the first in the order of the queue, and capacity held for the others may be used for any time.

In the same way, capacity planned for a reservation that starts later may be used by a pod that ends by
then. A pod that exceeds its estimate there is reported and annotated, and its job is not backfilled
again, also after a restart. The rest of a job whose start was interrupted may use held capacity without
an estimate.

An owner of reservations that none of them has capacity for is backfilled like any pod, on rows that are
open to it without a reservation, and allocates from none.
"""

import math
from collections.abc import Collection, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from holdfast.api.names import OVERRAN
from holdfast.api.times import format_time
from holdfast.scheduler.actions.round import Action, Round
from holdfast.scheduler.cluster.decisions import AnnotatePod, Decision, Emit
from holdfast.scheduler.cluster.records import Phase, PodRecord
from holdfast.scheduler.framework.hold_planner import node_score
from holdfast.scheduler.framework.scheduling_cycle import Statement
from holdfast.scheduler.framework.scheduling_queue import Key
from holdfast.scheduler.jobs import Job
from holdfast.scheduler.jobs.finished_runs import LENIENCE
from holdfast.scheduler.reservations.starvation_holds import pod_of

_OVERRUN = "Overrun"

Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]


class Backfill(Action):
    """Places short pods on held capacity."""

    name = "backfill"

    def __init__(self, arguments: Mapping[str, Any]) -> None:
        super().__init__(arguments)
        self._watched: dict[str, float] | None = None
        """The expected end of each backfilled pod, by uid; None until the first round, when the pods on
        planned nodes are taken for it."""
        self.placed = 0
        """The number of pods backfilled so far."""

    def next_timer(self) -> float | None:
        """The first expected end of a backfilled pod."""
        return min((self._watched or {}).values(), default=None)

    def run(self, round_: Round) -> None:
        holds = round_.cluster.reservations.starvation_holds
        self._report_overruns(round_)
        calendar = round_.cluster.reservations.calendar
        if not (holds or calendar) or round_.cluster.has_changes() or round_.pods_left <= 0:
            return
        if holds:
            self._finish_starts(round_)
        if not (round_.cluster.settings.backfills or calendar) or round_.cluster.has_changes():
            return
        until = self._windows(round_)
        latest = math.inf if calendar else float(until.max())
        if latest <= round_.now:
            return
        unsuccessful: dict[Key | None, float] = {}
        for pod in round_.queue.unschedulable():
            estimate = round_.cluster.jobs.estimates.of(pod)
            if estimate is None or round_.now + estimate > latest:
                continue
            if not round_.cluster.jobs.estimates.is_trusted(pod):
                continue
            # If a pod of the group did not fit, one with the same or a longer estimate does not either.
            group = round_.queue.group_key(pod)
            if pod.reservation is not None:
                continue
            if estimate >= unsuccessful.get(group, math.inf) and holds.of(pod) is None:
                continue
            if pod.job is not None:
                placed = self._backfill_job(round_, pod, until)
            else:
                placed = self._backfill_pod(round_, pod, until)
            if not placed and pod.pinned_node is None and holds.of(pod) is None:
                unsuccessful[group] = estimate

    # Which rows, and until when

    def is_possible(self, round_: Round) -> bool:
        """Whether there is capacity that is held or planned for later."""
        reservations = round_.cluster.reservations
        holds = reservations.starvation_holds if round_.cluster.settings.backfills else None
        return bool(reservations.calendar or holds)

    def may_place(self, round_: Round, pod: PodRecord) -> bool:
        """Whether it places the pod if there is a row for it."""
        if pod.reservation is not None or not self.is_possible(round_):
            return False
        is_trusted = round_.cluster.jobs.estimates.is_trusted(pod)
        return is_trusted and self._run_time(round_, pod) is not None

    def find_rows(self, round_: Round, pod: PodRecord) -> list[int]:
        """The rows on which a pod with a run-time estimate could be placed now, the best first. Changes
        nothing."""
        if not self.may_place(round_, pod):
            return []
        if round_.cluster.settings.backfills and round_.cluster.reservations.starvation_holds:
            round_.hold_reconciler.refresh_starts()
        return self._rows_for(round_, pod, self._windows(round_))

    def _windows(self, round_: Round) -> Floats:
        """The time until which the held capacity of each row may be used; 0 where it may not."""
        nodes, holds, starts = (
            round_.cluster.nodes,
            round_.cluster.reservations.starvation_holds,
            round_.hold_reconciler.starts,
        )
        until = np.zeros(nodes.size)
        until[round_.cluster.reservations.calendar.rows()] = math.inf  # see `_rows_for`
        closed = np.zeros(nodes.size, dtype=np.bool_)
        protected = self._first_holds(round_) if round_.cluster.settings.backfills_easily else None
        for reservation in holds:
            if reservation.pod is None or reservation.pod.row < 0:
                continue
            row, start = reservation.pod.row, starts.get(reservation.uid)
            if protected is not None and reservation.uid not in protected:
                start = math.inf
            if start is None or not round_.cluster.settings.backfills:
                closed[row] = True
            elif until[row] == 0 or start < until[row]:
                until[row] = start
        until[closed] = 0
        return until

    def _first_holds(self, round_: Round) -> set[str]:
        """The uids of the holds of the job that is first in the order of the queue."""
        pods = {
            hold.uid: pod
            for hold in round_.cluster.reservations.starvation_holds
            if (pod := round_.cluster.pods.get(pod_of(hold))) is not None
        }
        if not pods:
            return set()
        first = min(pods.values(), key=round_.queue.sort_key)
        return {
            uid
            for uid, pod in pods.items()
            if pod is first or (pod.job is not None and pod.job == first.job)
        }

    def _row_for(self, round_: Round, pod: PodRecord, until: Floats) -> int:
        """The best row for the pod, or -1."""
        return next(iter(self._rows_for(round_, pod, until)), -1)

    def _rows_for(self, round_: Round, pod: PodRecord, until: Floats) -> list[int]:
        """The rows for the pod, the best first: that of its own hold if reservations are planned there,
        then those with the least capacity left over."""
        estimate = self._run_time(round_, pod)
        if estimate is None:
            return []
        nodes, planner = round_.cluster.nodes, round_.hold_planner
        in_time = until >= round_.now + estimate
        if round_.cluster.jobs.planner.needs_claim_of(pod.cls):  # then no row is open to it
            held = round_.cluster.reservations.starvation_holds.rows()
            in_time |= ~held[: len(in_time)]
        own = self._own_row(round_, pod)
        if own >= 0:
            in_time[own] = True
        if not in_time.any():
            return []
        for slot, amount in pod.cls.amounts.items():
            in_time &= planner.idle(slot) >= amount
        if not in_time.any():
            return []
        column = round_.columns.column(round_.profiles[pod.scheduler], pod.cls)
        if round_.search.placement is not None:
            in_time &= round_.search.placement
        in_time &= planner.suitable(column, pod)
        if not round_.cluster.jobs.is_interrupted(pod):
            self._leave_planned(round_, pod, round_.now + estimate, in_time)
        rows = np.flatnonzero(in_time)
        if not len(rows):
            return []
        ranks = node_score(pod.cls, lambda slot: planner.idle(slot)[rows], len(rows))
        order = sorted(
            zip(rows.tolist(), ranks.tolist(), strict=True),
            key=lambda each: (each[0] != own, each[1], nodes.name(each[0])),
        )
        return [row for row, _ in order]

    def _run_time(self, round_: Round, pod: PodRecord) -> float | None:
        """The run-time estimate that counts here, if it has one."""
        jobs = round_.cluster.jobs
        return 0.0 if jobs.is_interrupted(pod) else jobs.estimates.of(pod)

    def _own_row(self, round_: Round, pod: PodRecord) -> int:
        """The row of the pod's own hold, if reservations are planned there and it has no other hold:
        the pod may run there before they start. Otherwise -1."""
        reservations = round_.cluster.reservations
        hold = reservations.starvation_holds.of(pod)
        row = hold.pod.row if hold is not None and hold.pod is not None else -1
        if row < 0 or not reservations.calendar.has(row):
            return -1
        return row if list(reservations.starvation_holds.on(row)) == [hold] else -1

    def _leave_planned(self, round_: Round, pod: PodRecord, end: float, rows: Bools) -> None:
        """Takes rows away where the pod would still use capacity that a reservation takes by then: all
        of them if it uses a claim that only one pod can use."""
        planner = round_.cluster.jobs.planner
        if planner.needs_claim_of(pod.cls, end):
            rows[:] = False
        for row in round_.cluster.reservations.calendar.rows():
            if rows[row] and not planner.fits_until(row, pod.cls, end):
                rows[row] = False

    # Placing

    def _finish_starts(self, round_: Round) -> None:
        """Places the rest of jobs whose start was interrupted on held capacity, without a time limit.
        Their members had places before; and a hold that waits for the bound members to end would wait
        for ever, since those wait for the others to start."""
        leaders = [pod for pod in round_.gang_failures.refused.values() if pod.phase is Phase.PENDING]
        of = round_.cluster.jobs.of
        leaders = [pod for pod in leaders if (job := of(pod)) is not None and job.interrupted]
        until = np.full(round_.cluster.nodes.size, math.inf)
        for leader in sorted(leaders, key=round_.queue.sort_key):
            self._backfill_job(round_, leader, until)

    def _backfill_pod(self, round_: Round, pod: PodRecord, until: Floats) -> bool:
        if round_.cluster.jobs.queue_limits.admission_error(pod):
            return False
        row = self._row_for(round_, pod, until)
        if row < 0:
            return False
        statement = Statement(round_.cycle)
        if not statement.assume_on(round_.profiles[pod.scheduler], pod, row):
            return False
        return self._commit(round_, statement, [(pod, row)])

    def _backfill_job(self, round_: Round, leader: PodRecord, until: Floats) -> bool:
        """Places a whole job, some of its members on held capacity, or nothing of it."""
        job = round_.cluster.jobs.of(leader)
        assert job is not None
        jobs, members = (
            round_.cluster.jobs.partners(job),
            round_.gangs.admission.pending_members(leader),
        )
        if round_.gangs.admission.early_refusal(jobs, members) is not None:
            return False
        for rows in round_.gangs.attempts.placements_of(jobs):
            with round_.search.within(rows):
                if self._backfill_members(round_, jobs, members, until):
                    return True
        return False

    def _backfill_members(
        self, round_: Round, jobs: list[Job], members: list[PodRecord], until: Floats
    ) -> bool:
        statement = Statement(round_.cycle)
        row_for = lambda pod: self._row_for(round_, pod, until)  # noqa: E731
        backfilled = round_.gangs.attempts.assume_each(statement, members, row_for)
        if statement.assumed and all(job.is_ready for job in jobs):
            return self._commit(round_, statement, backfilled)
        statement.discard()
        return False

    def _commit(
        self, round_: Round, statement: Statement, backfilled: list[tuple[PodRecord, int]]
    ) -> bool:
        """Binds the placements; returns whether plugins permitted them."""
        before = len(round_.decisions)
        if not round_.gangs.commit(statement, round_.now):
            return False
        for pod, _ in backfilled:
            self.placed += 1
            self._watch(round_, pod)
        round_.decisions[before:before] = self._give_up(round_, {row for _, row in backfilled})
        return True

    def _give_up(self, round_: Round, rows: Collection[int]) -> list[Decision]:
        """Has Available holds on these rows wait whose capacity was used. Those that have no use any
        more, such as that of another member of the job, are deleted before the pods are bound."""
        reservations = round_.cluster.reservations
        used = [
            hold
            for row in sorted(rows)
            for hold in reservations.starvation_holds.on(row)
            if not hold.waiting and not reservations.has_capacity(hold)
        ]
        for hold in used:
            reservations.make_waiting(hold)
        return round_.hold_reconciler.release(used)

    # Pods that exceed their estimates

    def _report_overruns(self, round_: Round) -> None:
        """Reports pods on held or planned capacity that exceeded their run-time estimate."""
        cluster, estimates = round_.cluster, round_.cluster.jobs.estimates
        if self._watched is None:
            self._watched = {}
            for row in cluster.reservations.calendar.rows():
                for pod in cluster.ledger.pods.get(row, {}).values():
                    self._watch(round_, pod)
        for uid, due in list(self._watched.items()):
            watched = cluster.pods.get(uid)
            if watched is None or uid in estimates.history.reported:
                del self._watched[uid]
            elif due <= round_.now:
                if estimates.overruns(watched):
                    self._report(round_, watched)
                else:
                    self._watch(round_, watched)
        if not (cluster.reservations.starvation_holds and cluster.settings.backfills):
            return
        for row in np.flatnonzero(cluster.reservations.starvation_holds.rows()).tolist():
            for pod in cluster.ledger.pods.get(row, {}).values():
                if pod.uid not in estimates.history.reported and estimates.overruns(pod):
                    self._report(round_, pod)

    def _watch(self, round_: Round, pod: PodRecord) -> None:
        estimate = round_.cluster.jobs.estimates.of(pod)
        if self._watched is None:
            return
        if estimate is None:  # it may have had one before
            self._watched.pop(pod.uid, None)
        else:
            start = round_.now if pod.started is None else pod.started
            self._watched[pod.uid] = start + estimate + LENIENCE

    def _report(self, round_: Round, pod: PodRecord) -> None:
        round_.cluster.jobs.estimates.history.note_overran(pod)
        if self._watched is not None:
            self._watched.pop(pod.uid, None)
        is_held = bool(round_.cluster.reservations.starvation_holds.on(pod.row))
        where = "a starvation hold" if is_held else "a planned reservation"
        text = (
            f"exceeded its run-time estimate on a node with {where}; "
            "its job will not be backfilled again"
        )
        round_.decisions.append(Emit(pod.ref, "Warning", _OVERRUN, text, "Scheduling"))
        round_.decisions.append(AnnotatePod(pod.ref, {OVERRAN: format_time(round_.now)}))
