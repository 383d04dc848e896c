"""Room for a pod where not nodes alone stand in its way: who would have to go, and from where.

Those on one node are looked at first, the least important of them first. As many as possible are then
spared again, the most important first. The node is the one where they are missed least. A queue may
also be full of pods that are spread over many nodes; then the least important of them go, wherever.
"""

import math
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import NamedTuple

from holdfast.scheduler.actions.round import Round
from holdfast.scheduler.cluster.pods import PodRecord
from holdfast.scheduler.framework.dry_run import DryRun

_ENOUGH = 16
"""Of so many rows where it could be done the best is taken; on a large cluster not all are tried."""
_SYSTEM = "kube-system"
_CRITICAL = 2_000_000_000
"""The priority of system-cluster-critical, the lowest of those Kubernetes has for itself."""


class VictimPlan(NamedTuple):
    row: int
    victims: list[PodRecord]


class QueueVictimSelector:
    """For one pod. `may_go` is asked of each who might go, with those before him gone; `admitted`
    whether the pod may be placed at all, with all of them gone. Nobody goes along with his job who is
    as important as `below`."""

    def __init__(
        self,
        round_: Round,
        pod: PodRecord,
        may_go: Callable[[PodRecord], bool],
        admitted: Callable[[], bool],
        below: float = math.inf,
    ) -> None:
        self._round, self._cluster, self._pod = round_, round_.cluster, pod
        self._may_go, self._admitted, self._below = may_go, admitted, below
        self._profile = round_.profiles[pod.scheduler]
        self._column = round_.cycle.column(self._profile, pod.cls)
        self._dry_run = DryRun(self._cluster, self._column, pod, pod.pinned_node is not None)

    def on_one_of(self, rows: Iterable[int]) -> VictimPlan | None:
        """The best of these rows, if any would do."""
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

    def wherever(self, pods: Iterable[PodRecord]) -> VictimPlan | None:
        """Some row, if any of these pods go, wherever they are."""
        victims = self._victims(list(pods), lambda: self._find_row() >= 0)
        if not victims:
            return None
        with self._cluster.ledger.transaction():
            for victim in victims:
                self._cluster.ledger.remove(victim)
            return VictimPlan(self._find_row(), victims)

    def _order(self, pod: PodRecord) -> tuple[int, int, float, str, str]:
        """The most important first; of equals, who has run longest."""
        queue, priority = self._importance(pod)
        started = math.inf if pod.started is None else pod.started
        return (-queue, -priority, started, pod.namespace, pod.name)

    def _importance(self, pod: PodRecord) -> tuple[int, int]:
        queue = self._cluster.jobs.queues.known.get(self._cluster.jobs.queues.of(pod))
        return (queue.priority if queue is not None else 0, pod.cls.priority)

    def _find_row(self) -> int:
        column = self._round.cycle.column(self._profile, self._pod.cls)
        return self._round.cycle.find_row(self._profile, self._pod, column)

    def _victims(self, pods: list[PodRecord], fits: Callable[[], bool]) -> list[PodRecord]:
        """Those of the pods who would have to go; none if that is no use."""
        ledger = self._cluster.ledger
        groups: list[list[tuple[PodRecord, int]]] = []

        def would_do() -> bool:
            return self._admitted() and fits()

        with ledger.transaction():
            for group in self._groups(pods):
                for each, _ in group:
                    ledger.remove(each)
                groups.append(group)
                if would_do():
                    break
            else:
                return []
            kept = []
            for group in reversed(groups):
                for each, row in group:
                    ledger.place(each, row)
                # A job that lost others is not to run with what would be spared of it.
                whole = all(each.job is None or each.job.is_ready for each, _ in group)
                if whole and would_do():
                    continue
                for each, _ in group:
                    ledger.remove(each)
                kept.append(group)
        return [each for group in reversed(kept) for each, _ in group]

    def _groups(self, pods: list[PodRecord]) -> Iterator[list[tuple[PodRecord, int]]]:
        """One after the other, the least important first; of a job that could not do without, all, and
        so nobody if one of them must stay."""
        pods.sort(key=self._order, reverse=True)
        gone: list[PodRecord] = []
        for pod in pods:
            if pod.row < 0 or not self._may_go(pod):
                continue
            companions = self._cluster.jobs.companions([*gone, pod])
            if any(p.cls.non_preemptible or p.cls.priority >= self._below for p in companions):
                continue
            group = [pod, *(each for each in companions if each.row >= 0)]
            gone += group
            yield [(each, each.row) for each in group]


def is_critical(pod: PodRecord) -> bool:
    """Whether the cluster itself needs the pod, whatever queue it is in."""
    return pod.namespace == _SYSTEM or pod.cls.priority >= _CRITICAL
