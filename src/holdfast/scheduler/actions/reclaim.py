"""The reclaim action: evicts pods of over-allocated queues for jobs of queues below their deserved
share.

A job reclaims no more than its queue deserves, and only from queues that are over-allocated and
reclaimable. The least important pods are evicted first; of a gang that would then have too few members,
all. Nothing is evicted unless the whole job becomes ready, and PodDisruptionBudgets allow now that all
the victims are evicted: else some would be, for a job that does not start.

Queues are compared as they will be once pods that are being evicted are gone and nominated pods are
placed, so that capacity which is coming free is not reclaimed twice. A pod whose eviction was refused
all the same is not evicted again before a back-off; other pods may be meanwhile.
"""

from collections.abc import Callable, Hashable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from holdfast.scheduler.actions.queue_victims import QueueVictimSelector, is_critical
from holdfast.scheduler.actions.round import Action, Round
from holdfast.scheduler.cluster.decisions import Decision, Emit, Evict, Nominate
from holdfast.scheduler.cluster.disruption_budgets import DisruptionBudgets
from holdfast.scheduler.cluster.records import PodRecord
from holdfast.scheduler.cluster.slots import PODS
from holdfast.scheduler.framework.dry_run import DryRun
from holdfast.scheduler.framework.feasibility.column import ClassColumn
from holdfast.scheduler.jobs.queues import ExpectedUsage, QueueRecord
from holdfast.scheduler.state.cluster import Cluster

_NO_VICTIM = np.iinfo(np.int64).max

Rows = NDArray[np.intp]


class ReclaimableCapacity:
    """How much capacity of each row is reclaimable. It excludes rows where reclaimable and free
    capacity together are too little for a pod, before any victims are tried."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._queues = cluster.jobs.queues
        self._over_allocated = {record.name for record in self._queues if _is_over_allocated(record)}
        nodes = cluster.nodes
        self._reclaimable_amounts = np.zeros((len(nodes.slots), nodes.size), dtype=np.int64)
        self._lowest = np.full(nodes.size, _NO_VICTIM)
        """The lowest priority of a possible victim on each row."""
        self.emptying: set[int] = set()
        """The rows with terminating pods."""
        self._budgets = DisruptionBudgets(cluster)
        self._victims: list[PodRecord] = []

    def __bool__(self) -> bool:
        return bool(self._over_allocated)

    def collect(self, expected: ExpectedUsage) -> None:
        """Removes terminating pods and adds up what the other pods of over-allocated queues claim;
        inside a transaction."""
        for pod in self._queues.placed():
            if pod.row < 0:
                continue
            if is_terminating(pod):
                expected.coming(pod)  # its queue's amounts already exclude it
                self._remove(pod)
            elif self.may_evict(pod):
                for slot, amount in pod.cls.amounts.items():
                    self._reclaimable_amounts[slot, pod.row] += amount
                self._lowest[pod.row] = min(self._lowest[pod.row], pod.cls.priority)

    def may_evict(self, pod: PodRecord) -> bool:
        """Whether the pod may be a victim of reclaim."""
        return (
            self._queues.of(pod) in self._over_allocated
            and not pod.cls.non_preemptible
            and not pod.cls.is_daemon
            and not is_critical(pod)
            and not is_terminating(pod)
            and pod.uid not in self._cluster.not_evicted_before
        )

    def may_evict_all(self, pods: list[PodRecord]) -> bool:
        """Whether PodDisruptionBudgets allow now that these pods are evicted besides all victims."""
        return self._budgets.may_all_be_evicted(self._victims + pods)

    def rows(self, among: NDArray[np.bool_], pod: PodRecord, column: ClassColumn) -> Rows:
        """The rows where the pod may fit without victims, in the order of their lowest priority."""
        nodes = self._cluster.nodes
        among = among & (self._lowest < _NO_VICTIM)
        if not column.owned and pod.uid not in self._cluster.reservations.preemption_holds:
            for slot, asked in pod.cls.requests:
                free = nodes.allocatable[slot, : nodes.size] - nodes.claimed[slot, : nodes.size]
                among &= free + self._reclaimable_amounts[slot] >= asked
        rows: Rows = np.flatnonzero(among)
        return rows[np.argsort(self._lowest[rows], kind="stable")]

    def evicted(self, victim: PodRecord) -> None:
        """The pod was selected as a victim: its capacity is no longer reclaimable."""
        self._victims.append(victim)
        row = victim.row
        if row < 0:
            return
        for slot, amount in victim.cls.amounts.items():
            self._reclaimable_amounts[slot, row] -= amount
        self._remove(victim)
        there = self._cluster.ledger.pods.get(row, {}).values()
        self._lowest[row] = min(
            (p.cls.priority for p in there if self.may_evict(p)), default=_NO_VICTIM
        )

    def nominated(self, pod: PodRecord, row: int) -> None:
        """The pod was nominated to the row: it uses reclaimed capacity."""
        for slot, amount in pod.cls.amounts.items():
            self._reclaimable_amounts[slot, row] -= amount

    def _remove(self, pod: PodRecord) -> None:
        self.emptying.add(pod.row)
        self._cluster.ledger.remove(pod)


def is_terminating(pod: PodRecord) -> bool:
    """Whether the pod is terminating or being preempted."""
    return pod.being_preempted or pod.cls.terminating


def _is_over_allocated(record: QueueRecord) -> bool:
    return record.reclaimable and any(
        slot < len(record.share) and has > record.share[slot]
        for slot, has in record.allocated.items()
        if slot != PODS
    )


RECLAIMED = "Reclaimed"
_FOR = " reclaims its deserved share for "


def reclaimer_in(message: str) -> str:
    """The pod or PodGroup for which a pod was evicted with this message; empty if it was for none."""
    return message.partition(_FOR)[2]


class ReclaimPlan(NamedTuple):
    """What is reclaimed for a job, or for a pod that is not in a gang."""

    leader: PodRecord
    queue: str
    places: list[tuple[PodRecord, int]]
    """The members that are nominated, and to which rows."""
    victims: list[PodRecord]


class Reclaim(Action):
    """Reclaims capacity for queues below their deserved share."""

    name = "reclaim"
    retries = True

    def __init__(self, arguments: Mapping[str, Any]) -> None:
        super().__init__(arguments)
        self._seen: Hashable = None
        """What reclaim depends on, when nothing more was found to be reclaimed."""
        self._retry_at: float | None = None

    def next_timer(self) -> float | None:
        return self._retry_at

    def run(self, round_: Round) -> None:
        cluster = round_.cluster
        queues = cluster.jobs.queues
        refused = cluster.not_evicted_before
        for uid in [uid for uid, before in refused.items() if before <= round_.now]:
            del refused[uid]
            self._seen = None
        self._retry_at = min(refused.values(), default=None)
        if not queues or cluster.has_changes() or round_.pods_left <= 0:
            return
        if _state(round_) == self._seen:
            return
        waiting = [pod for pod in round_.queue.in_no_order() if queues.of(pod) in queues.known]
        if waiting and any(record.allocated for record in queues):
            queues.share_out(round_.queue.waiting(with_jobs=True))
            decisions = [d for plan in _plans(round_, waiting) for d in _decisions(cluster, plan)]
            round_.preemption.apply(decisions)
        self._seen = _state(round_)

    def plans(self, round_: Round) -> list[ReclaimPlan]:
        """What would be reclaimed now, if none of the pods that are queued has a feasible node. Changes
        nothing."""
        queues, queued = round_.cluster.jobs.queues, round_.queue.waiting(with_jobs=True)
        waiting = [
            pod
            for pod in round_.queue.waiting()
            if pod.row < 0 and not pod.deletion_pending and queues.of(pod) in queues.known
        ]
        if not waiting or not any(record.allocated for record in queues):
            return []
        with queues.shared_out(pod for pod in queued if pod.row < 0):
            return _plans(round_, waiting)


def _state(round_: Round) -> Hashable:
    """A version of everything reclaim depends on. The number of refusals alone is not enough: when a
    full node becomes eligible, the queued pods are not tried again, but pods on it may be reclaimed."""
    cluster = round_.cluster
    epoch, refused = cluster.epoch, frozenset(cluster.not_evicted_before)
    budgets = epoch.kinds["PodDisruptionBudget"]
    return round_.queue.refusals, epoch.of_feasibility(), epoch.queues, epoch.jobs, refused, budgets


def _plans(round_: Round, waiting: list[PodRecord]) -> list[ReclaimPlan]:
    """What is reclaimed for these pods, each with what is reclaimed for those before it. Shares are
    those that were set last."""
    cluster, queues, unsuccessful = round_.cluster, round_.cluster.jobs.queues, set[Hashable]()
    plans: list[ReclaimPlan] = []
    with queues.expected_usage() as expected:
        reclaimable = ReclaimableCapacity(cluster)
        if not reclaimable:
            return []
        with cluster.ledger.transaction(), _temporary_nominations(cluster) as nominate:
            reclaimable.collect(expected)
            kinds = {(queues.of(pod), pod.cls.id): pod for pod in waiting}
            order_key = {kind: queues.order_key(kind[0], pod) for kind, pod in kinds.items()}
            waiting.sort(
                key=lambda pod: (order_key[queues.of(pod), pod.cls.id], round_.queue.sort_key(pod))
            )
            for pod in waiting:
                group = round_.queue.group_key(pod) or (queues.of(pod), pod.cls.id, pod.job)
                if pod.reservation is not None or group in unsuccessful:
                    continue
                reclaimer = _Reclaimer(round_, pod, reclaimable, expected, nominate)
                if not reclaimer.reclaim():
                    if pod.pinned_node is None and not pod.nominated:
                        unsuccessful.add(group)  # pods of the same group get the same result
                elif reclaimer.plan is not None:
                    plans.append(reclaimer.plan)
    return plans


@contextmanager
def _temporary_nominations(cluster: Cluster) -> Iterator[Callable[[PodRecord, int], None]]:
    """A function that nominates a pod to a row until the end of the block."""
    before: list[tuple[PodRecord, str]] = []

    def nominate(pod: PodRecord, row: int) -> None:
        before.append((pod, pod.nominated))
        cluster.nominator.set(pod, cluster.nodes.name(row))

    try:
        yield nominate
    finally:
        for pod, node in reversed(before):
            cluster.nominator.set(pod, node)


def _decisions(cluster: Cluster, plan: ReclaimPlan) -> Iterator[Decision]:
    """Evicts the victims and nominates the members."""
    job = cluster.jobs.of(plan.leader)
    about = plan.leader.ref if job is None else job.ref
    for victim in plan.victims:
        text = f"queue {plan.queue}{_FOR}{about}"
        emit = Emit(victim.ref, "Normal", RECLAIMED, text, "Reclaiming")
        yield Evict(victim.ref, text, event=emit)
    for pod, row in plan.places:
        node = cluster.nodes.name(row)
        if pod.nominated != node:
            yield Nominate(pod.ref, node)


class _Reclaimer:
    """Reclaims capacity for one job, or for a pod that is not in a gang."""

    def __init__(
        self,
        round_: Round,
        leader: PodRecord,
        reclaimable: ReclaimableCapacity,
        expected: ExpectedUsage,
        nominate: Callable[[PodRecord, int], None],
    ) -> None:
        self._round = round_
        self._nominate = nominate
        self.plan: ReclaimPlan | None = None
        """Set by `reclaim` if there are victims."""
        self._cluster = round_.cluster
        self._queues = round_.cluster.jobs.queues
        self._leader = leader
        self._reclaimable = reclaimable
        self._expected = expected
        self._queue = self._queues.of(leader)
        self._victims: dict[str, PodRecord] = {}
        self._places: list[tuple[PodRecord, int]] = []

    def reclaim(self) -> bool:
        """Whether capacity is reclaimed for the job, by this call or an earlier one."""
        cluster, job = self._cluster, self._cluster.jobs.of(self._leader)
        jobs = [] if job is None else cluster.jobs.partners(job)
        members = (
            [self._leader] if job is None else self._round.gangs.admission.pending_members(self._leader)
        )
        if any(pod.reservation is not None or self._is_under_way(pod) for pod in members):
            return True
        if jobs and any(each.is_ready for each in jobs):
            return True
        if (
            jobs
            and self._round.gangs.admission.early_refusal(jobs, members, may_preempt=True) is not None
        ):
            return False
        for pod in members:
            if pod.nominated:
                self._expected.going(pod)  # its nomination is decided again
        with cluster.ledger.transaction():
            ready = False
            for pod in members:
                self._place(pod)
                # Nothing is reclaimed for members beyond those the job needs.
                ready = pod.row >= 0 and self._round.gangs.admission.could_start(jobs)
                if ready:
                    break
        if ready and self._victims:
            self._keep_plan()
        for pod in members:
            if pod.nominated:
                self._expected.coming(pod)
        return ready

    def _is_under_way(self, pod: PodRecord) -> bool:
        """Whether pods on the pod's nominated node are still terminating."""
        row = self._cluster.nodes.row(pod.nominated) if pod.nominated else None
        return row is not None and row in self._reclaimable.emptying

    def _place(self, pod: PodRecord) -> None:
        path = self._queues.path(self._queue)
        if self._queues.closed(pod) or not self._is_deserved(pod, path[:1]):
            return

        admission_error = self._cluster.jobs.queue_limits.admission_error

        def admitted() -> bool:
            # Victims may count in parent queues too, so the whole path is checked each time.
            return self._is_deserved(pod, path) and not admission_error(pod)

        profile, row = self._round.profiles[pod.scheduler], -1
        if admitted():
            column = self._round.columns.column(profile, pod.cls)
            row = self._round.search.find_row(profile, pod, column)
        if row < 0 and pod.cls.pod.spec.preemption_policy != "Never":
            row = self._select_victims(pod, admitted)
        if row >= 0:
            self._cluster.ledger.place(pod, row)
            self._places.append((pod, row))

    def _is_deserved(self, pod: PodRecord, path: list[QueueRecord]) -> bool:
        """Whether these queues stay within their deserved share with the pod."""
        return all(
            record.allocated.get(slot, 0) + asked <= record.share[slot]
            for record in path
            for slot, asked in pod.cls.amounts.items()
            if slot != PODS and slot < len(record.share)
        )

    def _select_victims(self, pod: PodRecord, admitted: Callable[[], bool]) -> int:
        """Selects and removes victims for the pod; returns the row where it then fits, or -1."""
        column = self._round.columns.column(self._round.profiles[pod.scheduler], pod.cls)
        among = (
            DryRun(self._cluster, column, pod, pod.pinned_node is not None).resolvable() | column.fits
        )
        rows = self._reclaimable.rows(among, pod, column)
        selector = QueueVictimSelector(
            self._round,
            pod,
            lambda p: self._may_evict(p) and self._is_above(p, pod),
            admitted,
            may_all_evict=lambda pods: self._reclaimable.may_evict_all(
                [*self._victims.values(), *pods]
            ),
        )
        plan = selector.on_one_node(rows.tolist())
        if plan is None:
            return -1
        for victim in plan.victims:
            self._victims[victim.uid] = victim
            self._cluster.ledger.remove(victim)
        return plan.row

    def _may_evict(self, victim: PodRecord) -> bool:
        return self._reclaimable.may_evict(victim) and self._queues.of(victim) != self._queue

    def _is_above(self, victim: PodRecord, pod: PodRecord) -> bool:
        """Whether the victim's queue and its parents are over-allocated in a resource the pod requests;
        parents that the two queues share do not count."""
        own = {record.name for record in self._queues.path(self._queue)}
        path = [r for r in self._queues.path(self._queues.of(victim)) if r.name not in own]
        asked = [slot for slot in pod.cls.amounts if slot != PODS]
        return bool(path) and all(self._has_more(record, asked) for record in path)

    def _has_more(self, record: QueueRecord, slots: list[int]) -> bool:
        return any(
            slot < len(record.share) and record.allocated.get(slot, 0) > record.share[slot]
            for slot in slots
        )

    def _keep_plan(self) -> None:
        """Counts what is reclaimed, for the jobs after this one."""
        victims = list(self._victims.values())
        for victim in victims:
            self._reclaimable.evicted(victim)
        for pod, row in self._places:
            self._reclaimable.nominated(pod, row)
            self._nominate(pod, row)
        self.plan = ReclaimPlan(self._leader, self._queue, self._places, victims)
