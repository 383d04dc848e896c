"""DefaultPreemption: makes room for a pod by deleting less important ones.

A node is a candidate if the pod fits once all less important pods there are gone. As many of them as
possible are then spared, the most important first, and those whose disruption budget would be broken
before the others. The node chosen is the one whose victims are missed least.
"""

from collections import Counter
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from holdfast.api.errors import SelectorError
from holdfast.api.label_selectors import Selector, compile_selector
from holdfast.core.changes import Change
from holdfast.core.classes import PodClass
from holdfast.core.cluster import Cluster
from holdfast.core.decisions import Decision, Emit, Nominate, Preempt
from holdfast.core.pods import PodRecord
from holdfast.framework.config import DefaultPreemptionArgs
from holdfast.framework.diagnosis import Blame, verdict
from holdfast.framework.interface import Nomination, Plugin, Trial

NEVER = "not eligible due to preemptionPolicy=Never."
TERMINATING = "not eligible due to a terminating pod on the nominated node."
NO_VICTIMS = "No preemption victims found for incoming pod"
NOT_HELPFUL = "Preemption is not helpful for scheduling"
_NOT_STARTED = float("inf")
_PRIORITY_OFFSET = 2**31
"""Makes all priorities count in a sum, negative ones too."""


class Candidate(NamedTuple):
    cost: tuple[Any, ...]
    """Smaller is better, in kube-scheduler's order of preference; the earlier node at last."""
    row: int
    victims: tuple[PodRecord, ...]
    """The most important first."""


def candidate(row: int, victims: list[PodRecord], violations: int) -> Candidate:
    highest = victims[0].cls.priority if victims else 0
    oldest = min((started(v) for v in victims if v.cls.priority == highest), default=_NOT_STARTED)
    total = sum(v.cls.priority + _PRIORITY_OFFSET for v in victims)
    cost = (violations, highest, total, len(victims), -oldest, row)
    return Candidate(cost, row, tuple(victims))


Found = Candidate | tuple[str, ...]
"""A candidate, or the reasons why the row is none."""


class Tried:
    """What came of the rows tried for a class, as long as it holds."""

    __slots__ = ("budgets", "found", "nodes", "usage")

    def __init__(self) -> None:
        self.usage = self.nodes = self.budgets = -1
        self.found: dict[int, Found] = {}


class DefaultPreemption(Plugin):
    name = "DefaultPreemption"
    wakes_on = Change.NONE

    def __init__(self, cluster: Cluster, args: Mapping[str, Any] | Any) -> None:
        super().__init__(cluster, args)
        self._args = args if isinstance(args, DefaultPreemptionArgs) else DefaultPreemptionArgs()
        self._budgets = Budgets(cluster)
        self._known: dict[int, Tried] = {}
        cluster.classes.on_dropped.append(self._forget)

    def _forget(self, cls: PodClass) -> None:
        self._known.pop(cls.id, None)

    def may_help(self, cls: PodClass) -> bool:
        if cls.promised_to >= 0:
            return False
        return cls.pod.spec.preemption_policy != "Never" and bool(self._less_important(cls).any())

    def post_filter(self, pod: PodRecord, trial: Trial) -> Nomination:
        if pod.promise is not None:
            return Nomination()  # reservations take no room from pods
        if pod.cls.pod.spec.preemption_policy == "Never":
            return Nomination(message=f"preemption: {NEVER}")
        resolvable = trial.resolvable()
        if self._is_under_way(pod, resolvable):
            return Nomination(message=f"preemption: {TERMINATING}")
        promising = np.flatnonzero(resolvable & self._less_important(pod.cls)).tolist()
        tried = self._tried(pod, trial)
        candidates: list[Candidate] = []
        failed: Counter[Blame] = Counter()
        enough = self._candidates_wanted(int(resolvable.sum()))
        for row in promising:
            found = tried.get(row)
            if found is None:
                found = tried[row] = self._try(pod, row, trial)
            if isinstance(found, Candidate):
                candidates.append(found)
                if len(candidates) >= enough:
                    break
            else:
                failed[Blame(self.name, found, False)] += 1
        if not candidates:
            return Nomination("", self._why_not(resolvable, len(promising), failed))
        best = min(candidates)
        return Nomination(self.cluster.nodes.name(best.row), "", tuple(self._decisions(pod, best)))

    def _tried(self, pod: PodRecord, trial: Trial) -> dict[int, Found]:
        """What is known from pods of the same class. What could have changed since is left out."""
        if not trial.is_local or pod.nominated:
            return {}
        tried = self._known.get(pod.cls.id)
        if tried is None:
            tried = self._known[pod.cls.id] = Tried()
        usage, nodes = self.cluster.ledger.changed, self.cluster.nodes_changed
        changed = usage.since(tried.usage) if tried.usage >= 0 else None
        stale = nodes.end != tried.nodes or self._budgets.version() != tried.budgets
        if changed is None or stale:
            tried.found.clear()
        else:
            for row in set(changed.tolist()):
                tried.found.pop(row, None)
        tried.usage, tried.nodes, tried.budgets = usage.end, nodes.end, self._budgets.version()
        return tried.found

    def _less_important(self, cls: PodClass) -> Any:
        """The rows that have a pod less important than the class."""
        nodes = self.cluster.nodes
        return nodes.alive[: nodes.size] & (nodes.lowest[: nodes.size] < cls.priority)

    def _candidates_wanted(self, nodes: int) -> int:
        share = nodes * self._args.min_candidate_nodes_percentage // 100
        return max(share, self._args.min_candidate_nodes_absolute, 1)

    def _is_under_way(self, pod: PodRecord, resolvable: Any) -> bool:
        """Whether pods on the node being cleared for this one are still on their way out."""
        row = self.cluster.nodes.row(pod.nominated) if pod.nominated else None
        if row is None or not resolvable[row]:
            return False
        there = self.cluster.ledger.pods.get(row, {}).values()
        return any(p.disrupted and p.cls.priority < pod.cls.priority for p in there)

    def _try(self, pod: PodRecord, row: int, trial: Trial) -> Found:
        there = self.cluster.ledger.pods.get(row, {}).values()
        lesser = sorted((p for p in there if p.cls.priority < pod.cls.priority), key=importance)
        violating, others = self._budgets.split(lesser)
        victims = trial.victims(row, violating + others)
        if isinstance(victims, tuple):
            return victims
        violations = sum(victim in violating for victim in victims)
        return candidate(row, sorted(victims, key=importance), violations)

    def _why_not(self, resolvable: Any, tried: int, failed: Counter[Blame]) -> str:
        nodes = self.cluster.nodes.count
        blames = dict(failed)
        without_victims = int(resolvable.sum()) - tried
        for text, count in (
            (NO_VICTIMS, without_victims),
            (NOT_HELPFUL, nodes - int(resolvable.sum())),
        ):
            if count:
                blames[Blame(self.name, (text,), False)] = count
        return f"preemption: {verdict(blames).message(nodes)}"

    def _decisions(self, pod: PodRecord, chosen: Candidate) -> list[Decision]:
        node = self.cluster.nodes.name(chosen.row)
        decisions: list[Decision] = []
        for rival in list(self.cluster.nominations.get(node, {}).values()):
            if rival is not pod and rival.cls.priority < pod.cls.priority:
                self.cluster.nominate(rival, "")
                decisions.append(Nominate(rival.ref, ""))
        condition = f"{pod.scheduler}: preempting to accommodate a higher priority pod"
        for victim in chosen.victims:
            if victim.cls.terminating:
                continue
            victim.disrupted = True  # so that the pod waits, should it be tried before that is seen
            decisions.append(Preempt(victim.ref, pod.ref, node, condition))
            text = f"Preempted by pod {pod.uid} on node {node}"
            decisions.append(Emit(victim.ref, "Normal", "Preempted", text, "Preempting"))
        return decisions


def started(pod: PodRecord) -> float:
    """A pod that has not started yet is younger than all that have."""
    return _NOT_STARTED if pod.started is None else pod.started


def importance(pod: PodRecord) -> tuple[Any, ...]:
    """Sorts the most important first."""
    return (-pod.cls.priority, started(pod), pod.namespace, pod.name)


class Budgets:
    """PodDisruptionBudgets, and which pods of a list would break one."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._version = -1
        self._known: list[tuple[str, Selector, int, frozenset[str]]] = []

    def version(self) -> int:
        return self._cluster.versions.get("PodDisruptionBudget", 0)

    def split(self, pods: list[PodRecord]) -> tuple[list[PodRecord], list[PodRecord]]:
        """Those that would break a budget, and the others; earlier pods use budgets up first."""
        budgets = self._budgets()
        if not budgets:
            return [], pods
        left = [allowed for _, _, allowed, _ in budgets]
        violating: list[PodRecord] = []
        others: list[PodRecord] = []
        for pod in pods:
            broken = False
            for i, (namespace, selector, _, disrupted) in enumerate(budgets):
                if (
                    pod.cls.labels
                    and namespace == pod.namespace
                    and selector.matches(pod.cls.labels)
                    and pod.name not in disrupted
                ):
                    left[i] -= 1
                    broken |= left[i] < 0
            (violating if broken else others).append(pod)
        return violating, others

    def _budgets(self) -> list[tuple[str, Selector, int, frozenset[str]]]:
        version = self.version()
        if version != self._version:
            self._version = version
            self._known = []
            budgets: Mapping[Any, Any] = self._cluster.objects.get("PodDisruptionBudget", {})
            for (namespace, _), budget in budgets.items():
                try:
                    selector = compile_selector(budget.spec.selector)
                except SelectorError:
                    continue
                if selector.everything or selector.nothing:
                    continue
                status = budget.status
                allowed = status.disruptions_allowed if status is not None else 0
                disrupted = frozenset(status.disrupted_pods if status is not None else ())
                self._known.append((namespace, selector, allowed, disrupted))
        return self._known
