"""pods/binding and pods/eviction: the pod and the disruption budget afterwards, and refusals."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from holdfast.api.decode import convert
from holdfast.api.meta import LabelSelector
from holdfast.api.raw_objects import Raw
from holdfast.api.selectors import compile_selector
from holdfast.machinery.status import Resource, conflict, other_uid

_PODS = Resource("", "pods")
_BINDING = Resource("", "pods/binding")


def bound_pod(pod: Raw, binding: Raw, node: str, now: str) -> Raw:
    """The pod on its node, once. `binding` is the metadata of the Binding: preconditions, labels and
    annotations. Raises StatusError 409."""
    metadata, spec = pod["metadata"], pod.get("spec") or {}
    name, uid, version = metadata["name"], binding.get("uid"), binding.get("resourceVersion")
    if uid and uid != metadata["uid"]:
        raise other_uid(_PODS, name, uid, metadata["uid"])
    if version and version != metadata["resourceVersion"]:
        why = (
            f"Precondition failed: ResourceVersion in precondition: {version}, ResourceVersion in "
            f"object meta: {metadata['resourceVersion']}"
        )
        raise conflict(_PODS, name, why)
    if metadata.get("deletionTimestamp"):
        raise conflict(_BINDING, name, f"pod {name} is being deleted, cannot be assigned to a host")
    if spec.get("nodeName"):
        why = f'pod {name} is already assigned to node "{spec["nodeName"]}"'
        raise conflict(_BINDING, name, why)
    if spec.get("schedulingGates"):
        raise conflict(_BINDING, name, f"pod {name} has non-empty .spec.schedulingGates")
    changed = dict(metadata)
    for part in ("labels", "annotations"):
        if binding.get(part):
            changed[part] = {**(changed.get(part) or {}), **binding[part]}
    return {
        **pod,
        "metadata": changed,
        "spec": {**spec, "nodeName": node},
        "status": _scheduled(pod.get("status") or {}, now),
    }


def _scheduled(status: Raw, now: str) -> Raw:
    condition = {
        "type": "PodScheduled",
        "status": "True",
        "lastProbeTime": None,
        "lastTransitionTime": now,
    }
    others = [each for each in status.get("conditions") or [] if each.get("type") != "PodScheduled"]
    bound = {**status, "conditions": [*others, condition]}
    bound.pop("nominatedNodeName", None)
    return bound


VIOLATES = "Cannot evict pod as it would violate the pod's disruption budget."
SEVERAL = (
    "This pod has more than one PodDisruptionBudget, which the eviction subresource does not support."
)
_ENDED = ("Succeeded", "Failed")
_ALLOWED = "DisruptionAllowed"
_RETRY_LATER = 10
_MAX_DISRUPTED = 2000


class EvictionRefusal(NamedTuple):
    """`budget` names the budget that refuses, if one does."""

    message: str
    why: str = ""
    retry_after: int = 0
    budget: str = ""


def decrement_budget(pod: Raw, budgets: Iterable[Raw], now: str) -> Raw | EvictionRefusal | None:
    """The budget after evicting the pod; an EvictionRefusal; or None if no budget covers the pod.
    Takes only budgets of the pod's namespace.
    """
    status = pod.get("status") or {}
    if status.get("phase") in (*_ENDED, "Pending") or pod["metadata"].get("deletionTimestamp"):
        return None
    of_pod = [budget for budget in budgets if _is_about(budget, pod)]
    if len(of_pod) > 1:
        return EvictionRefusal(SEVERAL)
    if not of_pod or _unhealthy_may_go(pod, of_pod[0]):
        return None
    return _check_and_decrement(of_pod[0], pod["metadata"]["name"], now)


def with_disruption_target(pod: Raw, now: str) -> Raw:
    """The pod with the DisruptionTarget condition, so that its owner can distinguish eviction from
    failure.
    """
    status = pod.get("status") or {}
    conditions = status.get("conditions") or []
    if status.get("phase") in _ENDED or any(
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


def _check_and_decrement(budget: Raw, pod: str, now: str) -> Raw | EvictionRefusal:
    """The budget with one disruption less allowed and the pod in `disruptedPods`, or a refusal."""
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
