"""PodDisruptionBudgets in preemption: which victims would violate one.

A budget forbids no victim. As in kube-scheduler, `default_preemption` reprieves the pods that would
violate one before the others, and of all nodes the one with the fewest violations is preferred
(`preemption_candidates`). `reservation_preemption` does the same with the pods of reservations.
"""

from collections.abc import Mapping
from typing import Any

from holdfast.api.errors import SelectorError
from holdfast.api.selectors import Selector, compile_selector
from holdfast.scheduler.cluster.records import PodRecord
from holdfast.scheduler.state.cluster import Cluster


class DisruptionBudgets:
    """Splits pods by whether removing them would violate a PodDisruptionBudget."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._version = -1
        self._known: list[tuple[str, Selector, int, frozenset[str]]] = []

    def version(self) -> int:
        return self._cluster.epoch.kinds["PodDisruptionBudget"]

    def split(self, pods: list[PodRecord]) -> tuple[list[PodRecord], list[PodRecord]]:
        """The pods that would violate a budget, and the others; earlier pods use up budgets first."""
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
