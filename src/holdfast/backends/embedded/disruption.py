"""What the eviction API asks disruption budgets, in its words."""

from collections.abc import Iterable
from typing import NamedTuple

from holdfast.api.decode import convert
from holdfast.api.label_selectors import compile_selector
from holdfast.api.meta import LabelSelector
from holdfast.backends.embedded.objects import ENDED
from holdfast.store.objects import Raw

VIOLATES = "Cannot evict pod as it would violate the pod's disruption budget."
SEVERAL = (
    "This pod has more than one PodDisruptionBudget, which the eviction subresource does not support."
)
_ALLOWED = "DisruptionAllowed"
_RETRY_LATER = 10
_MAX_DISRUPTED = 2000


class Refusal(NamedTuple):
    """`budget` is the name of the one that is to blame itself, if one is."""

    message: str
    why: str = ""
    retry_after: int = 0
    budget: str = ""


def disruption(pod: Raw, budgets: Iterable[Raw], now: str) -> Raw | Refusal | None:
    """The budget as it is once the pod is evicted; why the pod may not be; or None if no budget is
    touched. Only budgets of the pod's namespace may be given."""
    status = pod.get("status") or {}
    if status.get("phase") in (*ENDED, "Pending") or pod["metadata"].get("deletionTimestamp"):
        return None
    of_pod = [budget for budget in budgets if _is_about(budget, pod)]
    if len(of_pod) > 1:
        return Refusal(SEVERAL)
    if not of_pod or _unhealthy_may_go(pod, of_pod[0]):
        return None
    return _taken(of_pod[0], pod["metadata"]["name"], now)


def marked(pod: Raw, now: str) -> Raw:
    """So that whoever owns the pod can tell an eviction from a failure."""
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
    """A pod that is not ready disturbs no one as long as enough others are."""
    conditions = (pod.get("status") or {}).get("conditions") or []
    if any(each.get("type") == "Ready" and each.get("status") == "True" for each in conditions):
        return False
    spec, status = budget.get("spec") or {}, budget.get("status") or {}
    if spec.get("unhealthyPodEvictionPolicy") == "AlwaysAllow":
        return True
    desired = status.get("desiredHealthy", 0)
    return bool(desired > 0 and status.get("currentHealthy", 0) >= desired)


def _taken(budget: Raw, pod: str, now: str) -> Raw | Refusal:
    """The budget with one disruption spent."""
    metadata, status = budget["metadata"], dict(budget.get("status") or {})
    name = metadata["name"]
    if status.get("observedGeneration", 0) < metadata.get("generation", 0):
        why = f"The disruption budget {name} is still being processed by the server."
        return Refusal(VIOLATES, why, _RETRY_LATER)
    allowed = status.get("disruptionsAllowed", 0)
    if allowed < 0:
        return Refusal(VIOLATES, "pdb disruptions allowed is negative", budget=name)
    disrupted = dict(status.get("disruptedPods") or {})
    if len(disrupted) > _MAX_DISRUPTED:
        why = "DisruptedPods map too big - too many evictions not confirmed by PDB controller"
        return Refusal(VIOLATES, why, budget=name)
    if allowed == 0:
        needed, has = status.get("desiredHealthy", 0), status.get("currentHealthy", 0)
        why = f"The disruption budget {name} needs {needed} healthy pods and has {has} currently"
        return Refusal(VIOLATES, why)
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
