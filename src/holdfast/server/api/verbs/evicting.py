"""pods/eviction: a deletion that asks the disruption budgets first."""

from __future__ import annotations

from holdfast.backends.embedded.disruption import SEVERAL, Refusal, disruption, marked
from holdfast.server.api.bodies import Body
from holdfast.server.api.cluster import Call
from holdfast.server.api.options import DeleteOptions, delete_options
from holdfast.server.api.status import ApiError, Resource, bad_request, forbidden, too_many_requests
from holdfast.server.api.verbs.bodies import read_known
from holdfast.server.api.verbs.deleting import delete
from holdfast.server.api.verbs.reading import found
from holdfast.store import Key, Raw

_EVICTION = "io.k8s.api.policy.v1.Eviction"
_BUDGETS = Resource("policy", "poddisruptionbudgets")


def evict(call: Call, body: Body) -> Raw:
    """Raises ApiError 429 when a budget does not allow it now."""
    raw = read_known(_EVICTION, body.value)
    name = (raw.get("metadata") or {}).get("name")
    if name != call.name:
        raise bad_request("name in URL does not match name in Eviction object")
    options = _options(call, raw)
    pod = found(call)
    _ask_budgets(call, pod, options.dry_run)
    if not options.dry_run:
        _mark(call, pod)
    delete(call, options)
    return {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "code": 201}


def _options(call: Call, raw: Raw) -> DeleteOptions:
    options = delete_options({}, raw.get("deleteOptions") or None)
    return options._replace(dry_run=options.dry_run or call.options.dry_run)


def _ask_budgets(call: Call, pod: Raw, dry_run: bool) -> None:
    store = call.cluster.store
    budgets = store.list("policy", "PodDisruptionBudget", call.namespace)
    taken = disruption(pod, budgets, call.cluster.stamp())
    if isinstance(taken, Refusal):
        raise _refused(taken)
    if taken is not None and not dry_run:
        metadata = taken["metadata"]
        key = Key("policy", "PodDisruptionBudget", metadata["namespace"], metadata["name"])
        store.update(key, taken)


def _refused(refusal: Refusal) -> ApiError:
    if refusal.message == SEVERAL:
        text = f"Internal error occurred: {SEVERAL}"
        return ApiError(500, "InternalError", text, {"causes": [{"message": SEVERAL}]})
    if refusal.budget:
        return forbidden(_BUDGETS, refusal.budget, refusal.why)
    causes = [{"reason": "DisruptionBudget", "message": refusal.why}]
    return too_many_requests(refusal.message, refusal.retry_after, causes)


def _mark(call: Call, pod: Raw) -> None:
    after = marked(pod, call.cluster.stamp())
    if after is not pod:
        call.cluster.store.update(call.key, after)
