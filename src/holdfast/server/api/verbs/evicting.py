"""pods/eviction: a deletion that asks the disruption budgets first."""

from __future__ import annotations

from holdfast.api.decode import convert
from holdfast.api.label_selectors import compile_selector
from holdfast.api.meta import LabelSelector
from holdfast.server.api.bodies import Body
from holdfast.server.api.cluster import Call
from holdfast.server.api.options import DeleteOptions, delete_options
from holdfast.server.api.status import ApiError, Resource, bad_request, forbidden, too_many_requests
from holdfast.server.api.verbs.deleting import delete
from holdfast.server.api.verbs.reading import found
from holdfast.store import Key, Raw

_BUDGETS = Resource("policy", "poddisruptionbudgets")
_ALLOWED = "DisruptionAllowed"
_ENDED = ("Succeeded", "Failed")
_RETRY_LATER = 10
_MAX_DISRUPTED = 2000
_VIOLATES = "Cannot evict pod as it would violate the pod's disruption budget."
_SEVERAL = (
    "This pod has more than one PodDisruptionBudget, which the eviction subresource does not support."
)


def evict(call: Call, body: Body) -> Raw:
    """Raises ApiError 429 when a budget does not allow it now."""
    raw = body.value
    name = (raw.get("metadata") or {}).get("name")
    if name != call.name:
        raise bad_request("name in URL does not match name in Eviction object")
    options = _options(call, raw)
    pod = found(call)
    status = pod.get("status") or {}
    if status.get("phase") not in (*_ENDED, "Pending") and not pod["metadata"].get("deletionTimestamp"):
        _ask_budgets(call, pod, options.dry_run)
    if not options.dry_run:
        _mark(call, pod)
    delete(call, options)
    return {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "code": 201}


def _options(call: Call, raw: Raw) -> DeleteOptions:
    options = delete_options({}, raw.get("deleteOptions") or None)
    return options._replace(dry_run=options.dry_run or call.options.dry_run)


def _ask_budgets(call: Call, pod: Raw, dry_run: bool) -> None:
    budgets = _budgets_of(call, pod)
    if len(budgets) > 1:
        raise ApiError(
            500,
            "InternalError",
            f"Internal error occurred: {_SEVERAL}",
            {"causes": [{"message": _SEVERAL}]},
        )
    if not budgets:
        return
    budget = budgets[0]
    if _unhealthy_may_go(pod, budget):
        return
    taken = _taken(budget, pod["metadata"]["name"], call.cluster.stamp())
    if not dry_run:
        metadata = budget["metadata"]
        key = Key("policy", "PodDisruptionBudget", metadata["namespace"], metadata["name"])
        call.cluster.store.update(key, taken)


def _budgets_of(call: Call, pod: Raw) -> list[Raw]:
    labels = pod["metadata"].get("labels") or {}
    found = []
    for budget in call.cluster.store.list("policy", "PodDisruptionBudget", call.namespace):
        selector = (budget.get("spec") or {}).get("selector")
        if selector is not None and compile_selector(convert(selector, LabelSelector)).matches(labels):
            found.append(budget)
    return found


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


def _taken(budget: Raw, pod: str, now: str) -> Raw:
    """The budget with one disruption spent."""
    metadata, status = budget["metadata"], dict(budget.get("status") or {})
    name = metadata["name"]
    if status.get("observedGeneration", 0) < metadata.get("generation", 0):
        raise _violated(
            f"The disruption budget {name} is still being processed by the server.", _RETRY_LATER
        )
    allowed = status.get("disruptionsAllowed", 0)
    if allowed < 0:
        raise forbidden(_BUDGETS, name, "pdb disruptions allowed is negative")
    disrupted = dict(status.get("disruptedPods") or {})
    if len(disrupted) > _MAX_DISRUPTED:
        why = "DisruptedPods map too big - too many evictions not confirmed by PDB controller"
        raise forbidden(_BUDGETS, name, why)
    if allowed == 0:
        needed, has = status.get("desiredHealthy", 0), status.get("currentHealthy", 0)
        raise _violated(
            f"The disruption budget {name} needs {needed} healthy pods and has {has} currently", 0
        )
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


def _violated(why: str, retry_after: int) -> ApiError:
    return too_many_requests(_VIOLATES, retry_after, [{"reason": "DisruptionBudget", "message": why}])


def _mark(call: Call, pod: Raw) -> None:
    """So that whoever owns the pod can tell an eviction from a failure."""
    status = pod.get("status") or {}
    conditions = status.get("conditions") or []
    if status.get("phase") in _ENDED or any(
        each.get("type") == "DisruptionTarget" for each in conditions
    ):
        return
    condition = {
        "type": "DisruptionTarget",
        "status": "True",
        "lastProbeTime": None,
        "lastTransitionTime": call.cluster.stamp(),
        "reason": "EvictionByEvictionAPI",
        "message": "Eviction API: evicting",
    }
    call.cluster.store.update(
        call.key, {**pod, "status": {**status, "conditions": [*conditions, condition]}}
    )
