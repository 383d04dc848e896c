"""The disruption controller, which keeps the status of PodDisruptionBudgets."""

from holdfast.api.decode import convert
from holdfast.api.selectors import compile_selector
from holdfast.api.workloads import PodDisruptionBudgetSpec, scaled_value
from holdfast.local.component import ENDED, ObjectWriter, Steps
from holdfast.local.store.objects import POD, Key, Raw

_BUDGET = ("policy", "PodDisruptionBudget")
_SCALED = ("ReplicaSet", "StatefulSet", "ReplicationController", "Deployment")
"""Workloads with a number of expected pods."""


class DisruptionController:
    """Keeps the status of budgets up to date: all of them, or only those created without a current
    status (`all_of_them=False`, in simulations).
    """

    def __init__(self, objects: ObjectWriter, all_of_them: bool) -> None:
        self._objects = objects
        self._all = all_of_them
        self._kept: set[Key] = set()
        self._stale: set[Key] = set()

    def changed(self, key: Key, before: Raw | None, after: Raw | None) -> None:
        if key[:2] == POD:
            self._stale.update(kept for kept in self._kept if kept.namespace == key.namespace)
        elif key[:2] == _BUDGET:
            if after is None:
                self._kept.discard(key)
            elif before is None and (self._all or not _is_current(after)):
                self._kept.add(key)
            if key in self._kept:
                self._stale.add(key)

    def keep(self, key: Key) -> None:
        """Keeps the status of this budget up to date from now on, too."""
        self._kept.add(key)
        self._stale.add(key)

    def settle(self) -> Steps:
        stale, self._stale = self._stale, set()
        for key in sorted(stale):
            budget = self._objects.get(key)
            if budget is not None:
                status = self._status(budget, key.namespace)
                if budget.get("status") != status:
                    self._objects.update(key, {**budget, "status": status})
                    self._stale.discard(key)  # that is no news
                yield None

    def _status(self, budget: Raw, namespace: str) -> Raw:
        spec = convert(budget.get("spec") or {}, PodDisruptionBudgetSpec)
        selector = compile_selector(spec.selector)
        pods = [
            pod
            for pod in self._objects.scan("", "Pod")
            if pod["metadata"]["namespace"] == namespace
            and pod["status"].get("phase") not in ENDED
            and selector.matches(pod["metadata"].get("labels") or {})
        ]
        healthy = sum(map(_healthy, pods))
        expected = len(pods)
        if spec.max_unavailable is not None:
            expected = self._expected(pods)
            may_miss = scaled_value(spec.max_unavailable, expected, round_up=True)
            desired = max(0, expected - may_miss)
        else:
            least = 1 if spec.min_available is None else spec.min_available
            if isinstance(least, str):
                expected = self._expected(pods)
            desired = scaled_value(least, expected, round_up=True)
        return {
            "currentHealthy": healthy,
            "desiredHealthy": desired,
            "disruptionsAllowed": max(0, healthy - desired) if pods else 0,
            "expectedPods": expected,
            "observedGeneration": budget["metadata"].get("generation", 1),
        }

    def _expected(self, pods: list[Raw]) -> int:
        """How many there should be: the replicas of their workloads, whether they exist or not."""
        alone, workloads = 0, dict[Key, int]()
        for pod in pods:
            metadata = pod["metadata"]
            owners = metadata.get("ownerReferences") or ()
            owner = next((each for each in owners if each.get("controller")), None)
            found = None
            if owner is not None:
                group = owner["apiVersion"].rpartition("/")[0]
                key = Key(group, owner["kind"], metadata["namespace"], owner["name"])
                found = self._objects.get(key)
            if found is None or owner is None or owner["kind"] not in _SCALED:
                alone += 1
            else:
                workloads[key] = (found.get("spec") or {}).get("replicas", 1)
        return alone + sum(workloads.values())


def _is_current(budget: Raw) -> bool:
    return bool((budget.get("status") or {}).get("observedGeneration"))


def _healthy(pod: Raw) -> bool:
    return not pod["metadata"].get("deletionTimestamp") and any(
        condition.get("type") == "Ready" and condition.get("status") == "True"
        for condition in pod["status"].get("conditions") or []
    )
