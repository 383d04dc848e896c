"""Reclaim: queues that have less than they deserve get it back from those that have more.

A job reclaims no more than its queue deserves, and only from queues that are above theirs and let
themselves be reclaimed from. The least important goes first; of a job that would then run with fewer
than it needs, all of it. Nobody is asked to go unless the whole job becomes ready.

It is judged by what will be once those who were asked to go are gone, and those they make room for are
there: what is under way is not reclaimed once more.
"""

import math
from collections.abc import Mapping
from typing import Any

from holdfast.actions.giving import Giving
from holdfast.actions.round import Action, Round
from holdfast.core.decisions import Decision, Emit, Evict, Nominate
from holdfast.core.jobs.queues import QueueRecord
from holdfast.core.pods import PodRecord
from holdfast.core.slots import PODS
from holdfast.framework.trial import PodTrial

RECLAIMED = "Reclaimed"
_ENOUGH = 16
"""Of so many nodes where it could be done the best is taken; on a large cluster not all are tried."""


class Reclaim(Action):
    name = "reclaim"

    def __init__(self, arguments: Mapping[str, Any]) -> None:
        super().__init__(arguments)
        self._seen: tuple[int, int, int] | None = None

    def run(self, round_: Round) -> None:
        queues, ledger = round_.cluster.jobs.queues, round_.cluster.ledger
        if not queues or round_.cluster.has_changes() or round_.pods_left <= 0:
            return
        state = (round_.queue.refusals, ledger.changed.end, queues.generation)
        if state == self._seen:
            return
        waiting = [pod for pod in round_.queue.in_no_order() if queues.of(pod) in queues.known]
        if waiting and any(record.allocated for record in queues):
            queues.share_out(round_.queue.waiting(with_jobs=True))
            giving = Giving(round_.cluster)
            if giving:
                with ledger.transaction():
                    giving.look_ahead()
                    self._reclaim(round_, waiting, giving)
        self._seen = (round_.queue.refusals, ledger.changed.end, queues.generation)

    def _reclaim(self, round_: Round, waiting: list[PodRecord], giving: Giving) -> None:
        queues, in_vain = round_.cluster.jobs.queues, set()
        standing = {name: queues.standing(name) for name in {queues.of(pod) for pod in waiting}}
        waiting.sort(key=lambda pod: (standing[queues.of(pod)], round_.queue.sort_key(pod)))
        for pod in waiting:
            kind = round_.queue.kind(pod)
            if pod.promise is not None or pod.nominated or kind in in_vain:
                continue
            if not _Reclaimer(round_, pod, giving).reclaim() and pod.pin is None:
                in_vain.add(kind)  # nor for others like it


class _Reclaimer:
    """One job, or a pod that is one."""

    def __init__(self, round_: Round, leader: PodRecord, giving: Giving) -> None:
        self._round = round_
        self._cluster = round_.cluster
        self._queues = round_.cluster.jobs.queues
        self._giving = giving
        self._leader = leader
        self._queue = self._queues.of(leader)
        self._path = self._queues.path(self._queue)
        self._victims: dict[str, PodRecord] = {}
        self._places: list[tuple[PodRecord, int]] = []

    def reclaim(self) -> bool:
        """Whether it has, or will have, a place."""
        ledger, job = self._cluster.ledger, self._leader.job
        jobs = [] if job is None else self._cluster.jobs.partners(job)
        members = [self._leader] if job is None else self._round.gangs.waiting(self._leader)
        if any(pod.promise is not None or pod.nominated for pod in members):
            return True
        if jobs and any(each.is_ready for each in jobs):
            return True
        if jobs and self._round.gangs.hindrance(jobs, members) is not None:
            return False
        with ledger.transaction() as transaction:
            for pod in members:
                self._place(pod)
            ready = all(each.is_ready for each in jobs) if jobs else bool(self._places)
            if ready and not self._victims:
                transaction.commit()  # there will be room
                return True
        if ready:
            self._decide()
        return ready

    def _place(self, pod: PodRecord) -> None:
        cluster, cycle = self._cluster, self._round.cycle
        if not self._is_deserved(pod) or self._queues.refusal(pod):
            return
        profile = self._round.profiles[pod.scheduler]
        row = cycle.find_row(profile, pod, cycle.column(profile, pod.cls))
        if row < 0:
            row = self._clear(pod)
        if row >= 0:
            cluster.ledger.place(pod, row)
            self._places.append((pod, row))

    def _is_deserved(self, pod: PodRecord) -> bool:
        """Whether the queue, and those above it, still deserve what the pod asks for."""
        return all(
            record.allocated.get(slot, 0) + self._giving.coming(record, slot) + asked
            <= record.share[slot]
            for record in self._path
            for slot, asked in pod.cls.amounts.items()
            if slot != PODS and slot < len(record.share)
        )

    def _clear(self, pod: PodRecord) -> int:
        """Takes away those who must go for the pod to fit somewhere; where that is, or -1."""
        cluster, cycle = self._cluster, self._round.cycle
        column = cycle.column(self._round.profiles[pod.scheduler], pod.cls)
        trial = PodTrial(cluster, column, pod, pod.pin is not None)
        best: tuple[tuple[float, ...], int, list[PodRecord]] | None = None
        found = 0
        for row in self._giving.rows(trial.resolvable(), pod, column).tolist():
            victims = self._victims_on(pod, row, trial)
            if not victims:
                continue
            cost = (max(victim.cls.priority for victim in victims), len(victims), row)
            if best is None or cost < best[0]:
                best = cost, row, victims
            found += 1
            if found == _ENOUGH:
                break
        if best is None:
            return -1
        for victim in best[2]:
            self._victims[victim.uid] = victim
            if victim.row >= 0:
                cluster.ledger.remove(victim)
        return best[1]

    def _victims_on(self, pod: PodRecord, row: int, trial: PodTrial) -> list[PodRecord]:
        """Those of a row who would have to go, the least important first; none if that is no use."""
        cluster = self._cluster
        there = [p for p in cluster.ledger.pods.get(row, {}).values() if self._may_go(p)]
        there = cluster.jobs.losable(there, math.inf)
        there.sort(key=lambda p: (p.cls.priority, -(p.started or 0.0), p.namespace, p.name))
        victims: list[PodRecord] = []
        with cluster.ledger.transaction():
            for victim in there:
                if victim.row < 0 or not self._is_above(victim, pod):
                    continue
                group = [victim, *cluster.jobs.companions([*victims, victim])]
                group = [p for p in group if p.row >= 0 and p not in victims]
                for each in group:
                    cluster.ledger.remove(each)
                victims += group
                if trial.fits(row):
                    return victims
        return []

    def _may_go(self, victim: PodRecord) -> bool:
        return self._giving.may_go(victim) and self._queues.of(victim) != self._queue

    def _is_above(self, victim: PodRecord, pod: PodRecord) -> bool:
        """Whether the victim's queue has more than it deserves of what the pod asks for, as far as it
        is not above the reclaimer's too."""
        path = [r for r in self._queues.path(self._queues.of(victim)) if r not in self._path]
        asked = [slot for slot in pod.cls.amounts if slot != PODS]
        return bool(path) and all(_has_more(record, asked) for record in path)

    def _decide(self) -> None:
        nodes, leader = self._cluster.nodes, self._leader
        about = leader.ref if leader.job is None else leader.job.ref
        decisions: list[Decision] = self._round.cycle.decisions
        for victim in self._victims.values():
            victim.disrupted = True
            self._giving.takes(victim)
            text = f"queue {self._queue} reclaims what it deserves for {about}"
            decisions.append(Evict(victim.ref, text))
            decisions.append(Emit(victim.ref, "Normal", RECLAIMED, text, "Reclaiming"))
        for pod, row in self._places:
            self._giving.expect(pod, row)
            if pod.nominated != nodes.name(row):
                self._cluster.nominate(pod, nodes.name(row))
                decisions.append(Nominate(pod.ref, nodes.name(row)))


def _has_more(record: QueueRecord, slots: list[int]) -> bool:
    return any(
        slot < len(record.share) and record.allocated.get(slot, 0) > record.share[slot]
        for slot in slots
    )
