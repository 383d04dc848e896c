"""Reclaim: queues that have less than they deserve get it back from those that have more.

A job reclaims no more than its queue deserves, and only from queues that are above theirs and let
themselves be reclaimed from. The least important goes first; of a job that would then run with fewer
than it needs, all of it. Nobody is asked to go unless the whole job becomes ready.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np

from holdfast.actions.round import Action, Round
from holdfast.core.decisions import Decision, Emit, Evict, Nominate
from holdfast.core.jobs.queues import QueueRecord
from holdfast.core.pods import PodRecord
from holdfast.core.slots import PODS
from holdfast.framework.trial import PodTrial

RECLAIMED = "Reclaimed"


class Reclaim(Action):
    name = "reclaim"

    def __init__(self, arguments: Mapping[str, Any]) -> None:
        super().__init__(arguments)
        self._in_vain: dict[str, tuple[int, int]] = {}
        self._seen: tuple[int, int, int] | None = None

    def run(self, round_: Round) -> None:
        queues = round_.cluster.jobs.queues
        if not queues or round_.cluster.has_changes() or round_.pods_left <= 0:
            return
        state = (round_.queue.refusals, round_.cluster.ledger.changed.end, queues.generation)
        if state == self._seen:
            return
        waiting = [pod for pod in round_.queue.unschedulable() if queues.of(pod) in queues.known]
        if not waiting:
            self._in_vain.clear()
            return
        queues.share_out(round_.queue.waiting(with_jobs=True))
        waiting.sort(key=lambda pod: (queues.standing(queues.of(pod)), round_.queue.sort_key(pod)))
        self._in_vain = {p.uid: self._in_vain[p.uid] for p in waiting if p.uid in self._in_vain}
        for pod in waiting:
            tried = (round_.cluster.ledger.changed.end, queues.generation)
            if self._in_vain.get(pod.uid) == tried or pod.promise is not None:
                continue
            _Reclaimer(round_, pod).reclaim()
            self._in_vain[pod.uid] = (round_.cluster.ledger.changed.end, queues.generation)
        end = round_.cluster.ledger.changed.end
        self._seen = (round_.queue.refusals, end, queues.generation)


class _Reclaimer:
    """One job, or a pod that is one."""

    def __init__(self, round_: Round, leader: PodRecord) -> None:
        self._round = round_
        self._cluster = round_.cluster
        self._queues = round_.cluster.jobs.queues
        self._leader = leader
        self._queue = self._queues.of(leader)
        self._victims: dict[str, PodRecord] = {}
        self._places: list[tuple[PodRecord, int]] = []

    def reclaim(self) -> None:
        cluster, job = self._cluster, self._leader.job
        jobs = [] if job is None else cluster.jobs.partners(job)
        members = [self._leader] if job is None else self._round.gangs.waiting(self._leader)
        if any(pod.promise is not None or self._is_under_way(pod) for pod in members):
            return
        if jobs and (
            any(each.is_ready for each in jobs)
            or self._round.gangs.hindrance(jobs, members) is not None
        ):
            return
        with cluster.ledger.transaction():
            for pod in members:
                self._place(pod)
            ready = all(each.is_ready for each in jobs) if jobs else bool(self._places)
        if ready and self._victims:
            self._decide()

    def _is_under_way(self, pod: PodRecord) -> bool:
        row = self._cluster.nodes.row(pod.nominated) if pod.nominated else None
        there = self._cluster.ledger.pods.get(row, {}) if row is not None else {}
        return any(other.disrupted for other in there.values())

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
            record.allocated.get(slot, 0) + asked <= record.share[slot]
            for record in self._queues.path(self._queue)
            for slot, asked in pod.cls.amounts.items()
            if slot != PODS and slot < len(record.share)
        )

    def _clear(self, pod: PodRecord) -> int:
        """Takes away those who must go for the pod to fit somewhere; where that is, or -1."""
        cluster, cycle = self._cluster, self._round.cycle
        column = cycle.column(self._round.profiles[pod.scheduler], pod.cls)
        trial = PodTrial(cluster, column, pod, pod.pin is not None)
        best: tuple[tuple[float, ...], int, list[PodRecord]] | None = None
        for row in np.flatnonzero(trial.resolvable()).tolist():
            victims = self._victims_on(pod, row, trial)
            if victims:
                highest = max(victim.cls.priority for victim in victims)
                cost = (highest, len(victims), row)
                if best is None or cost < best[0]:
                    best = cost, row, victims
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
        there.sort(key=lambda p: (p.cls.priority, -(p.started or 0.0), p.namespace, p.name))
        victims: list[PodRecord] = []
        with cluster.ledger.transaction():
            for victim in there:
                if not self._is_above(victim, pod):
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
        record = self._queues.known.get(self._queues.of(victim))
        return (
            record is not None
            and record.reclaimable
            and record.name != self._queue
            and not victim.cls.spared
            and not victim.cls.permanent
            and not victim.disrupted
            and not victim.cls.terminating
        )

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
        decisions: list[Decision] = self._round.cycle.decisions
        for victim in self._victims.values():
            victim.disrupted = True
            text = f"queue {self._queue} reclaims what it deserves for {about}"
            decisions.append(Evict(victim.ref, text))
            decisions.append(Emit(victim.ref, "Normal", RECLAIMED, text, "Reclaiming"))
        for pod, row in self._places:
            if pod.nominated != nodes.name(row):
                self._cluster.nominate(pod, nodes.name(row))
                decisions.append(Nominate(pod.ref, nodes.name(row)))
