"""What queues that have more than they deserve could be asked to give back, and where.

Inside a transaction of the ledger those on their way out are gone: room that comes free by itself need
not be made. Where the room of those that may go, and what is free, is too little for a pod, nobody
needs to try.
"""

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from holdfast.scheduler.actions.queue_victims import QueueVictimSelector, is_critical
from holdfast.scheduler.actions.round import Action, Round
from holdfast.scheduler.cluster.cluster import Cluster
from holdfast.scheduler.cluster.decisions import Decision, Emit, Evict, Nominate
from holdfast.scheduler.cluster.pods import PodRecord
from holdfast.scheduler.cluster.slots import PODS
from holdfast.scheduler.framework.dry_run import DryRun
from holdfast.scheduler.framework.feasibility.column import ClassColumn
from holdfast.scheduler.jobs.queues import ExpectedUsage, QueueRecord

_NOBODY = np.iinfo(np.int64).max

Rows = NDArray[np.intp]


class ReclaimableCapacity:
    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._queues = cluster.jobs.queues
        self._givers = {record.name for record in self._queues if _could_give(record)}
        nodes = cluster.nodes
        self._room = np.zeros((len(nodes.slots), nodes.size), dtype=np.int64)
        self._lowest = np.full(nodes.size, _NOBODY)
        """The importance of the least important on every row that may go."""
        self.emptying: set[int] = set()
        """The rows some are on their way out of."""

    def __bool__(self) -> bool:
        return bool(self._givers)

    def look_ahead(self, expected: ExpectedUsage) -> None:
        """Inside a transaction, and while that is looked at."""
        for pod in self._queues.placed():
            if pod.row < 0:
                continue
            if is_going(pod):
                expected.coming(pod)  # it was taken off once
                self._leaves(pod)
            elif self.may_go(pod):
                for slot, amount in pod.cls.amounts.items():
                    self._room[slot, pod.row] += amount
                self._lowest[pod.row] = min(self._lowest[pod.row], pod.cls.priority)

    def may_go(self, pod: PodRecord) -> bool:
        """Whether the pod may be asked to, by a queue that is owed something."""
        return (
            self._queues.of(pod) in self._givers
            and not pod.cls.non_preemptible
            and not pod.cls.is_daemon
            and not is_critical(pod)
            and not is_going(pod)
            and pod.uid not in self._cluster.not_evicted_before
        )

    def rows(self, among: NDArray[np.bool_], pod: PodRecord, column: ClassColumn) -> Rows:
        """Those of the rows where there could be room for the pod, where the least important are that
        could go first."""
        nodes = self._cluster.nodes
        among = among & (self._lowest < _NOBODY)
        if not column.owned and pod.uid not in self._cluster.reservations.preemption_holds:
            for slot, asked in pod.cls.requests:
                free = nodes.allocatable[slot, : nodes.size] - nodes.claimed[slot, : nodes.size]
                among &= free + self._room[slot] >= asked
        rows: Rows = np.flatnonzero(among)
        return rows[np.argsort(self._lowest[rows], kind="stable")]

    def takes(self, victim: PodRecord) -> None:
        """The victim is going to go."""
        row = victim.row
        if row < 0:
            return
        for slot, amount in victim.cls.amounts.items():
            self._room[slot, row] -= amount
        self._leaves(victim)
        there = self._cluster.ledger.pods.get(row, {}).values()
        self._lowest[row] = min((p.cls.priority for p in there if self.may_go(p)), default=_NOBODY)

    def expects(self, pod: PodRecord, row: int) -> None:
        """The pod will have a place on the row."""
        for slot, amount in pod.cls.amounts.items():
            self._room[slot, row] -= amount

    def _leaves(self, pod: PodRecord) -> None:
        self.emptying.add(pod.row)
        self._cluster.ledger.remove(pod)


def is_going(pod: PodRecord) -> bool:
    """Whether it was asked to go, or is on its way out."""
    return pod.being_preempted or pod.cls.terminating


def _could_give(record: QueueRecord) -> bool:
    return record.reclaimable and any(
        slot < len(record.share) and has > record.share[slot]
        for slot, has in record.allocated.items()
        if slot != PODS
    )


# Reclaim: queues that have less than they deserve get it back from those that have more.
#
# A job reclaims no more than its queue deserves, and only from queues that are above theirs and let
# themselves be reclaimed from. The least important goes first; of a job that would then run with fewer
# than it needs, all of it. Nobody is asked to go unless the whole job becomes ready.
#
# Who is not let go by a disruption budget is not asked again before a back-off; others may be
# meanwhile.
#
# It is judged by what queues will have once those who were asked to go are gone, and those they make
# room for are there: what is under way is not reclaimed once more.


RECLAIMED = "Reclaimed"


class Reclaim(Action):
    name = "reclaim"

    def __init__(self, arguments: Mapping[str, Any]) -> None:
        super().__init__(arguments)
        self._seen: tuple[int, int, int] | None = None
        self._retry_at: float | None = None

    def next_timer(self) -> float | None:
        return self._retry_at

    def run(self, round_: Round) -> None:
        cluster = round_.cluster
        queues, epoch = cluster.jobs.queues, cluster.epoch
        refused = cluster.not_evicted_before
        for uid in [uid for uid, before in refused.items() if before <= round_.now]:
            del refused[uid]
            self._seen = None
        self._retry_at = min(refused.values(), default=None)
        if not queues or cluster.has_changes() or round_.pods_left <= 0:
            return
        state = (round_.queue.refusals, epoch.usage.end, epoch.queues)
        if state == self._seen:
            return
        waiting = [pod for pod in round_.queue.in_no_order() if queues.of(pod) in queues.known]
        decisions: list[Decision] = []
        if waiting and any(record.allocated for record in queues):
            queues.share_out(round_.queue.waiting(with_jobs=True))
            with queues.expected_usage() as expected:
                reclaimable = ReclaimableCapacity(cluster)
                if reclaimable:
                    with cluster.ledger.transaction():
                        reclaimable.look_ahead(expected)
                        decisions = self._reclaim(round_, waiting, reclaimable, expected)
        round_.cycle.apply(decisions)  # now that everybody is back in place
        self._seen = (round_.queue.refusals, epoch.usage.end, epoch.queues)

    def _reclaim(
        self,
        round_: Round,
        waiting: list[PodRecord],
        reclaimable: ReclaimableCapacity,
        expected: ExpectedUsage,
    ) -> list[Decision]:
        queues, in_vain = round_.cluster.jobs.queues, set()
        decisions: list[Decision] = []
        kinds = {(queues.of(pod), pod.cls.id): pod for pod in waiting}
        order_key = {kind: queues.order_key(kind[0], pod) for kind, pod in kinds.items()}
        waiting.sort(
            key=lambda pod: (order_key[queues.of(pod), pod.cls.id], round_.queue.sort_key(pod))
        )
        for pod in waiting:
            kind = round_.queue.kind(pod)
            if pod.reservation is not None or kind in in_vain:
                continue
            done = _Reclaimer(round_, pod, reclaimable, expected, decisions).reclaim()
            if not done and pod.pinned_node is None and not pod.nominated:
                in_vain.add(kind)  # nor for others like it
        return decisions


class _Reclaimer:
    """One job, or a pod that is one."""

    def __init__(
        self,
        round_: Round,
        leader: PodRecord,
        reclaimable: ReclaimableCapacity,
        expected: ExpectedUsage,
        decisions: list[Decision],
    ) -> None:
        self._round = round_
        self._decisions = decisions
        self._cluster = round_.cluster
        self._queues = round_.cluster.jobs.queues
        self._leader = leader
        self._reclaimable = reclaimable
        self._expected = expected
        self._queue = self._queues.of(leader)
        self._victims: dict[str, PodRecord] = {}
        self._places: list[tuple[PodRecord, int]] = []

    def reclaim(self) -> bool:
        """Whether room is made for it, now or by now."""
        cluster, job = self._cluster, self._leader.job
        jobs = [] if job is None else cluster.jobs.partners(job)
        members = [self._leader] if job is None else self._round.gangs.waiting(self._leader)
        if any(pod.reservation is not None or self._is_under_way(pod) for pod in members):
            return True
        if jobs and any(each.is_ready for each in jobs):
            return True
        if jobs and self._round.gangs.early_refusal(jobs, members, may_preempt=True) is not None:
            return False
        for pod in members:
            if pod.nominated:
                self._expected.going(pod)  # it is looked at anew
        with cluster.ledger.transaction():
            ready = False
            for pod in members:
                self._place(pod)
                # Nobody has to go for those a job could do without.
                ready = pod.row >= 0 and self._round.gangs.could_start(jobs)
                if ready:
                    break
        if ready and self._victims:
            self._decide()
        for pod in members:
            if pod.nominated:
                self._expected.coming(pod)
        return ready

    def _is_under_way(self, pod: PodRecord) -> bool:
        """Whether some are still on their way out to make room for it."""
        row = self._cluster.nodes.row(pod.nominated) if pod.nominated else None
        return row is not None and row in self._reclaimable.emptying

    def _place(self, pod: PodRecord) -> None:
        cluster, cycle = self._cluster, self._round.cycle
        path = self._queues.path(self._queue)
        if self._queues.closed(pod) or not self._is_deserved(pod, path[:1]):
            return

        def admitted() -> bool:
            # What goes may have been counted in the queues above, so they are looked at each time.
            return self._is_deserved(pod, path) and not self._queues.admission_error(pod)

        profile, row = self._round.profiles[pod.scheduler], -1
        if admitted():
            row = cycle.find_row(profile, pod, cycle.column(profile, pod.cls))
        if row < 0 and pod.cls.pod.spec.preemption_policy != "Never":
            row = self._clear(pod, admitted)
        if row >= 0:
            cluster.ledger.place(pod, row)
            self._places.append((pod, row))

    def _is_deserved(self, pod: PodRecord, path: list[QueueRecord]) -> bool:
        """Whether these queues still deserve what the pod asks for."""
        return all(
            record.allocated.get(slot, 0) + asked <= record.share[slot]
            for record in path
            for slot, asked in pod.cls.amounts.items()
            if slot != PODS and slot < len(record.share)
        )

    def _clear(self, pod: PodRecord, admitted: Callable[[], bool]) -> int:
        """Takes away those who must go for the pod to fit somewhere; where that is, or -1."""
        column = self._round.cycle.column(self._round.profiles[pod.scheduler], pod.cls)
        among = (
            DryRun(self._cluster, column, pod, pod.pinned_node is not None).resolvable() | column.fits
        )
        rows = self._reclaimable.rows(among, pod, column)
        making = QueueVictimSelector(
            self._round, pod, lambda p: self._may_go(p) and self._is_above(p, pod), admitted
        )
        room = making.on_one_of(rows.tolist())
        if room is None:
            return -1
        for victim in room.victims:
            self._victims[victim.uid] = victim
            self._cluster.ledger.remove(victim)
        return room.row

    def _may_go(self, victim: PodRecord) -> bool:
        return self._reclaimable.may_go(victim) and self._queues.of(victim) != self._queue

    def _is_above(self, victim: PodRecord, pod: PodRecord) -> bool:
        """Whether the victim's queue has more than it deserves of what the pod asks for, as far as it
        is not above the reclaimer's too."""
        own = {record.name for record in self._queues.path(self._queue)}
        path = [r for r in self._queues.path(self._queues.of(victim)) if r.name not in own]
        asked = [slot for slot in pod.cls.amounts if slot != PODS]
        return bool(path) and all(self._has_more(record, asked) for record in path)

    def _has_more(self, record: QueueRecord, slots: list[int]) -> bool:
        return any(
            slot < len(record.share) and record.allocated.get(slot, 0) > record.share[slot]
            for slot in slots
        )

    def _decide(self) -> None:
        nodes, leader = self._cluster.nodes, self._leader
        about = leader.ref if leader.job is None else leader.job.ref
        decisions = self._decisions
        for victim in self._victims.values():
            self._reclaimable.takes(victim)
            text = f"queue {self._queue} reclaims what it deserves for {about}"
            decisions.append(Evict(victim.ref, text))
            decisions.append(Emit(victim.ref, "Normal", RECLAIMED, text, "Reclaiming"))
        for pod, row in self._places:
            self._reclaimable.expects(pod, row)
            if pod.nominated != nodes.name(row):
                self._cluster.nominate(pod, nodes.name(row))
                decisions.append(Nominate(pod.ref, nodes.name(row)))
