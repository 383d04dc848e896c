"""Selects victims for a pod that the limits of its queue keep out, and not only the capacity of nodes.

The pods of one node are tried first: they are removed, the least important first, until the pod is
admitted and fits; then as many as possible are reprieved, the most important first. The node with the
least important victims is chosen. If no node is enough, because a queue is full of pods on many nodes,
the least important pods of the queue are victims wherever they are.
"""

import math
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import NamedTuple

from holdfast.scheduler.actions.round import Round
from holdfast.scheduler.cluster.records import PodRecord
from holdfast.scheduler.framework.dry_run import DryRun

_ENOUGH = 16
"""The search ends after this many rows with victims, and the best of them is chosen."""
_SYSTEM = "kube-system"
_CRITICAL = 2_000_000_000
"""The priority of system-cluster-critical, the lowest of those Kubernetes has for itself."""


class VictimPlan(NamedTuple):
    """The row a pod fits on without the victims."""

    row: int
    victims: list[PodRecord]


class QueueVictimSelector:
    """Selects victims for one pod. `may_evict` tells whether a pod may be a victim, with the victims
    before it removed; `admitted` whether the pod's queue admits it, with all victims removed;
    `may_all_evict` whether all these pods may be victims. A gang is not evicted if a member has a
    priority of `below` or higher."""

    def __init__(
        self,
        round_: Round,
        pod: PodRecord,
        may_evict: Callable[[PodRecord], bool],
        admitted: Callable[[], bool],
        below: float = math.inf,
        may_all_evict: Callable[[list[PodRecord]], bool] = lambda pods: True,
    ) -> None:
        self._round, self._cluster, self._pod = round_, round_.cluster, pod
        self._may_evict, self._admitted, self._below = may_evict, admitted, below
        self._may_all_evict = may_all_evict
        self._profile = round_.profiles[pod.scheduler]
        self._column = round_.columns.column(self._profile, pod.cls)
        self._dry_run = DryRun(self._cluster, self._column, pod, pod.pinned_node is not None)

    def on_one_node(self, rows: Iterable[int]) -> VictimPlan | None:
        """The best of these rows with its victims; None if there is none."""
        best: tuple[tuple[tuple[int, int], int, int], VictimPlan] | None = None
        found = 0
        for row in rows:
            there = list(self._cluster.ledger.pods.get(row, {}).values())
            victims = self._victims(there, partial(self._dry_run.fits, row))
            if victims:
                cost = (max(map(self._importance, victims)), len(victims), row)
                if best is None or cost < best[0]:
                    best = cost, VictimPlan(row, victims)
                found += 1
                if found == _ENOUGH:
                    break
        return best[1] if best is not None else None

    def on_any_nodes(self, pods: Iterable[PodRecord]) -> VictimPlan | None:
        """A row with victims among these pods, whatever nodes they are on; None if there is none."""
        victims = self._victims(list(pods), lambda: self._find_row() >= 0)
        if not victims:
            return None
        with self._cluster.ledger.transaction():
            for victim in victims:
                self._cluster.ledger.remove(victim)
            return VictimPlan(self._find_row(), victims)

    def _order(self, pod: PodRecord) -> tuple[int, int, float, str, str]:
        """The most important pod first; of equals the one that started first."""
        queue, priority = self._importance(pod)
        started = math.inf if pod.started is None else pod.started
        return (-queue, -priority, started, pod.namespace, pod.name)

    def _importance(self, pod: PodRecord) -> tuple[int, int]:
        queue = self._cluster.jobs.queues.known.get(self._cluster.jobs.queues.of(pod))
        return (queue.priority if queue is not None else 0, pod.cls.priority)

    def _find_row(self) -> int:
        column = self._round.columns.column(self._profile, self._pod.cls)
        return self._round.search.find_row(self._profile, self._pod, column)

    def _victims(self, pods: list[PodRecord], fits: Callable[[], bool]) -> list[PodRecord]:
        """The victims among the pods; empty if the pod does not fit even without all of them."""
        ledger, jobs = self._cluster.ledger, self._cluster.jobs
        groups: list[list[tuple[PodRecord, int]]] = []

        def feasible() -> bool:
            return self._admitted() and fits()

        with ledger.transaction():
            for group in self._groups(pods):
                for each, _ in group:
                    ledger.remove(each)
                groups.append(group)
                if feasible():
                    break
            else:
                return []
            kept = []
            for group in reversed(groups):
                for each, row in group:
                    ledger.place(each, row)
                # Members of a job that is no longer ready are not reprieved.
                whole = all(job is None or job.is_ready for job in (jobs.of(each) for each, _ in group))
                if whole and feasible():
                    continue
                for each, _ in group:
                    ledger.remove(each)
                kept.append(group)
        return [each for group in reversed(kept) for each, _ in group]

    def _groups(self, pods: list[PodRecord]) -> Iterator[list[tuple[PodRecord, int]]]:
        """Pods that are evicted together, with their rows, the least important first: one pod, or all
        members of a job that would not be ready without it. A job of which a member must stay is left
        out."""
        pods.sort(key=self._order, reverse=True)
        gone: list[PodRecord] = []
        for pod in pods:
            if pod.row < 0 or not self._may_evict(pod):
                continue
            companions = self._cluster.jobs.victims.companions([*gone, pod])
            if any(p.cls.non_preemptible or p.cls.priority >= self._below for p in companions):
                continue
            group = [pod, *(each for each in companions if each.row >= 0)]
            if not self._may_all_evict(gone + group):
                continue
            gone += group
            yield [(each, each.row) for each in group]


def is_critical(pod: PodRecord) -> bool:
    """Whether the pod is critical for the cluster, and so never a victim of a queue."""
    return pod.namespace == _SYSTEM or pod.cls.priority >= _CRITICAL
