"""PodDisruptionBudgets: the eviction API's check, and the controller that keeps their status."""

from collections.abc import Iterable
from typing import NamedTuple

from holdfast.api.decode import convert
from holdfast.api.meta import LabelSelector
from holdfast.api.selectors import compile_selector
from holdfast.api.workloads import PodDisruptionBudgetSpec, scaled_value
from holdfast.local.component import ENDED, ObjectWriter, Steps
from holdfast.local.store.objects import POD, Key, Raw

VIOLATES = "Cannot evict pod as it would violate the pod's disruption budget."
SEVERAL = (
    "This pod has more than one PodDisruptionBudget, which the eviction subresource does not support."
)
_ALLOWED = "DisruptionAllowed"
_RETRY_LATER = 10
_MAX_DISRUPTED = 2000


class EvictionRefusal(NamedTuple):
    """`budget` names the budget that refuses, if one does."""

    message: str
    why: str = ""
    retry_after: int = 0
    budget: str = ""


def disruption(pod: Raw, budgets: Iterable[Raw], now: str) -> Raw | EvictionRefusal | None:
    """The budget after evicting the pod; an EvictionRefusal; or None if no budget covers the pod.
    Takes only budgets of the pod's namespace.
    """
    status = pod.get("status") or {}
    if status.get("phase") in (*ENDED, "Pending") or pod["metadata"].get("deletionTimestamp"):
        return None
    of_pod = [budget for budget in budgets if _is_about(budget, pod)]
    if len(of_pod) > 1:
        return EvictionRefusal(SEVERAL)
    if not of_pod or _unhealthy_may_go(pod, of_pod[0]):
        return None
    return _taken(of_pod[0], pod["metadata"]["name"], now)


def marked(pod: Raw, now: str) -> Raw:
    """The pod with the DisruptionTarget condition, so that its owner can distinguish eviction from
    failure.
    """
    status = pod.get("status") or {}
    conditions = status.get("conditions") or []
    if status.get("phase") in ENDED or any(
        each.get("type") == "DisruptionTarget" for each in conditions
    ):
        return pod
    condition = {
        "type": "DisruptionTarget",
        "status": "True",
        "lastProbeTime": None,
        "lastTransitionTime": now,
        "reason": "EvictionByEvictionAPI",
        "message": "Eviction API: evicting",
    }
    return {**pod, "status": {**status, "conditions": [*conditions, condition]}}


def _is_about(budget: Raw, pod: Raw) -> bool:
    selector = (budget.get("spec") or {}).get("selector")
    labels = pod["metadata"].get("labels") or {}
    return selector is not None and compile_selector(convert(selector, LabelSelector)).matches(labels)


def _unhealthy_may_go(pod: Raw, budget: Raw) -> bool:
    """Whether a pod that is not ready may be evicted: not while too few others are healthy."""
    conditions = (pod.get("status") or {}).get("conditions") or []
    if any(each.get("type") == "Ready" and each.get("status") == "True" for each in conditions):
        return False
    spec, status = budget.get("spec") or {}, budget.get("status") or {}
    if spec.get("unhealthyPodEvictionPolicy") == "AlwaysAllow":
        return True
    desired = status.get("desiredHealthy", 0)
    return bool(desired > 0 and status.get("currentHealthy", 0) >= desired)


def _taken(budget: Raw, pod: str, now: str) -> Raw | EvictionRefusal:
    """The budget after one disruption."""
    metadata, status = budget["metadata"], dict(budget.get("status") or {})
    name = metadata["name"]
    if status.get("observedGeneration", 0) < metadata.get("generation", 0):
        why = f"The disruption budget {name} is still being processed by the server."
        return EvictionRefusal(VIOLATES, why, _RETRY_LATER)
    allowed = status.get("disruptionsAllowed", 0)
    if allowed < 0:
        return EvictionRefusal(VIOLATES, "pdb disruptions allowed is negative", budget=name)
    disrupted = dict(status.get("disruptedPods") or {})
    if len(disrupted) > _MAX_DISRUPTED:
        why = "DisruptedPods map too big - too many evictions not confirmed by PDB controller"
        return EvictionRefusal(VIOLATES, why, budget=name)
    if allowed == 0:
        needed, has = status.get("desiredHealthy", 0), status.get("currentHealthy", 0)
        why = f"The disruption budget {name} needs {needed} healthy pods and has {has} currently"
        return EvictionRefusal(VIOLATES, why)
    disrupted[pod] = now
    status.update(disruptionsAllowed=allowed - 1, disruptedPods=disrupted)
    if allowed == 1:
        others = [each for each in status.get("conditions") or [] if each["type"] != _ALLOWED]
        status["conditions"] = [*others, _no_more(metadata, now)]
    return {**budget, "status": status}


def _no_more(metadata: Raw, now: str) -> Raw:
    return {
        "type": _ALLOWED,
        "status": "False",
        "observedGeneration": metadata.get("generation", 0),
        "lastTransitionTime": now,
        "reason": "InsufficientPods",
        "message": "",
    }


_BUDGET = ("policy", "PodDisruptionBudget")
_SCALED = ("ReplicaSet", "StatefulSet", "ReplicationController", "Deployment")
"""Workloads that say how many pods there should be."""


class DisruptionController:
    """Keeps the status of budgets up to date: all of them, or only those created without a status
    (`all_of_them=False`, in simulations).
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
            elif before is None and (self._all or not after.get("status")):
                self._kept.add(key)
            if key in self._kept:
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
        """How many there should be: as many as their workloads say, whether they are there or not."""
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


def _healthy(pod: Raw) -> bool:
    return not pod["metadata"].get("deletionTimestamp") and any(
        condition.get("type") == "Ready" and condition.get("status") == "True"
        for condition in pod["status"].get("conditions") or []
    )
