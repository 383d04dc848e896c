"""PodDisruptionBudgets: which of the pods to evict would violate one.

In preemption a budget forbids no victim. As in kube-scheduler, `default_preemption` reprieves the pods
that would violate one before the others, and of all nodes the one with the fewest violations is
preferred (`preemption_candidates`). `reservation_preemption` does the same with the pods of
reservations. A plan does not count on an eviction that the API server would refuse
(`jobs.capacity_planner`).
"""

from collections.abc import Collection, Iterable, Mapping
from itertools import chain
from typing import Any, NamedTuple

from holdfast.api.errors import SelectorError
from holdfast.api.plurals import number_of
from holdfast.api.selectors import Selector, compile_selector
from holdfast.scheduler.cluster.base import ClusterBase
from holdfast.scheduler.cluster.records import PodRecord


class DisruptionBudget(NamedTuple):
    """A PodDisruptionBudget that selects some pods of its namespace."""

    namespace: str
    name: str
    selector: Selector
    allowed: int
    """How many more pods may be evicted."""
    disrupted: frozenset[str]
    """The pods whose eviction is counted already."""

    @property
    def text(self) -> str:
        more = number_of(max(0, self.allowed), "more eviction")
        return f"PodDisruptionBudget {self.namespace}/{self.name} allows {more}"

    def protects(self, pod: PodRecord) -> bool:
        """Whether evicting the pod counts against it."""
        return bool(
            pod.cls.labels
            and self.namespace == pod.namespace
            and self.selector.matches(pod.cls.labels)
            and pod.name not in self.disrupted
        )


class DisruptionBudgets:
    """Splits pods by whether removing them would violate a PodDisruptionBudget."""

    def __init__(self, cluster: ClusterBase) -> None:
        self._cluster = cluster
        self._version = -1
        self._known: list[DisruptionBudget] = []
        self._of_all: list[DisruptionBudget] = []
        """Those that select every pod of their namespace, which the scheduler's preemption ignores."""

    def __bool__(self) -> bool:
        """Whether there are budgets that protect pods."""
        return bool(self._budgets() or self._of_all)

    def version(self) -> int:
        return self._cluster.epoch.kinds["PodDisruptionBudget"]

    def split(self, pods: list[PodRecord]) -> tuple[list[PodRecord], list[PodRecord]]:
        """The pods that would violate a budget, and the others; earlier pods use up budgets first."""
        budgets = self._budgets()
        if not budgets:
            return [], pods
        left = [budget.allowed for budget in budgets]
        violating: list[PodRecord] = []
        others: list[PodRecord] = []
        for pod in pods:
            broken = False
            for i, budget in enumerate(budgets):
                if budget.protects(pod):
                    left[i] -= 1
                    broken |= left[i] < 0
            (violating if broken else others).append(pod)
        return violating, others

    def may_all_be_evicted(self, pods: Collection[PodRecord]) -> bool:
        """Whether the API server would evict all of these pods, one after the other."""
        return not self or len(self.evictable([pods])) == len(pods)

    def evictable(self, groups: Iterable[Collection[PodRecord]]) -> frozenset[str]:
        """The uids of the pods that the API server would evict if one group was evicted after the
        other, in whichever order the pods of a group are: it refuses an eviction that would violate a
        budget, and that of a pod with several budgets."""
        found: set[str] = set()
        budgets = [*self._budgets(), *self._of_all]
        left = [budget.allowed for budget in budgets]
        for pods in groups:
            own = {
                pod.uid: [i for i, budget in enumerate(budgets) if budget.protects(pod)] for pod in pods
            }
            for i in chain.from_iterable(own.values()):
                left[i] -= 1
            found.update(
                uid
                for uid, protecting in own.items()
                if len(protecting) <= 1 and all(left[i] >= 0 for i in protecting)
            )
        return frozenset(found)

    def violated_by(self, pods: list[PodRecord]) -> list[DisruptionBudget]:
        """The budgets that evicting all of the pods would violate; see `split`."""
        return [
            budget
            for budget in self._budgets()
            if sum(budget.protects(pod) for pod in pods) > max(0, budget.allowed)
        ]

    def forbidding(self, pods: list[PodRecord]) -> list[DisruptionBudget]:
        """The budgets for which the API server would not evict all of these pods; see `evictable`."""
        budgets = [*self._budgets(), *self._of_all]
        protecting = {pod.uid: [each for each in budgets if each.protects(pod)] for pod in pods}
        return [
            budget
            for budget in budgets
            if sum(budget in own for own in protecting.values()) > max(0, budget.allowed)
            or any(budget in own and len(own) > 1 for own in protecting.values())
        ]

    def _budgets(self) -> list[DisruptionBudget]:
        version = self.version()
        if version != self._version:
            self._version = version
            self._known, self._of_all = [], []
            budgets: Mapping[Any, Any] = self._cluster.objects.get("PodDisruptionBudget", {})
            for (namespace, name), budget in budgets.items():
                try:
                    selector = compile_selector(budget.spec.selector)
                except SelectorError:
                    continue
                if selector.nothing:
                    continue
                status = budget.status
                allowed = status.disruptions_allowed if status is not None else 0
                disrupted = frozenset(status.disrupted_pods if status is not None else ())
                found = self._of_all if selector.everything else self._known
                found.append(DisruptionBudget(namespace, name, selector, allowed, disrupted))
        return self._known
