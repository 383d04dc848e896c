"""Subresources and reviews: pods/binding, pods/eviction, scale, access reviews.

The rules of binding and eviction are in `machinery.pod_subresources`. The token allows everything, so
access reviews have constant answers.
"""

from __future__ import annotations

from typing import Any

from holdfast.local.apiserver.api_state import ApiRequest
from holdfast.local.apiserver.request_bodies import Body, media_of, read_json
from holdfast.local.apiserver.request_info import DeleteOptions, delete_options
from holdfast.local.apiserver.tables.columns import selector_text
from holdfast.local.apiserver.verbs.get import found
from holdfast.local.apiserver.verbs.patch import JSON_PATCH, MERGE_PATCH, STRATEGIC
from holdfast.local.apiserver.verbs.writes import change, check_namespace, delete, read, read_known
from holdfast.local.store import Key, Raw
from holdfast.machinery.patch import PatchError, json_patch, merge_patch
from holdfast.machinery.pod_subresources import (
    SEVERAL,
    EvictionRefusal,
    bound_pod,
    decrement_budget,
    with_disruption_target,
)
from holdfast.machinery.schema import ResourceType
from holdfast.machinery.schema import field_errors as fields
from holdfast.machinery.status import (
    MODIFIED,
    Resource,
    StatusError,
    bad_request,
    conflict,
    forbidden,
    invalid,
    not_found,
    too_many_requests,
)

_PODS = Resource("", "pods")


def bind(call: ApiRequest, body: Body, binding_type: ResourceType) -> Raw:
    """Binds a pod to a node. Raises StatusError 409 if it already has one."""
    raw = check_namespace(call, read(call, body, binding_type))
    metadata = raw["metadata"]
    name = call.name or metadata.get("name") or ""
    if name != metadata.get("name"):
        raise bad_request("name in URL does not match name in Binding object")
    target = raw.get("target") or {}
    _check_target(target)
    pod = call.store.get(Key("", "Pod", call.namespace, name))
    if pod is None:
        raise not_found(_PODS, name)
    pod = bound_pod(pod, metadata, target["name"], call.stamp())
    if not call.options.dry_run:
        call.cluster.store.update(Key("", "Pod", call.namespace, name), pod)
    return {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "code": 201}


def _check_target(target: Raw) -> None:
    kind = target.get("kind") or ""
    found = []
    if kind not in ("", "Node"):
        found.append(f'target.kind: Unsupported value: "{kind}": supported values: "Node", "<empty>"')
    if not target.get("name"):
        found.append("target.name: Required value")
    if found:
        raise StatusError(500, "", found[0] if len(found) == 1 else f"[{', '.join(found)}]")


_EVICTION = "io.k8s.api.policy.v1.Eviction"
_BUDGETS = Resource("policy", "poddisruptionbudgets")


def evict(call: ApiRequest, body: Body) -> Raw:
    """Deletes a pod if its disruption budget permits it. Raises StatusError 429 if not."""
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


def _options(call: ApiRequest, raw: Raw) -> DeleteOptions:
    options = delete_options({}, raw.get("deleteOptions") or None)
    return options._replace(dry_run=options.dry_run or call.options.dry_run)


def _ask_budgets(call: ApiRequest, pod: Raw, dry_run: bool) -> None:
    store = call.cluster.store
    budgets = store.list("policy", "PodDisruptionBudget", call.namespace)
    taken = decrement_budget(pod, budgets, call.cluster.stamp())
    if isinstance(taken, EvictionRefusal):
        raise _refused(taken)
    if taken is not None and not dry_run:
        metadata = taken["metadata"]
        key = Key("policy", "PodDisruptionBudget", metadata["namespace"], metadata["name"])
        store.update(key, taken)


def _refused(refusal: EvictionRefusal) -> StatusError:
    if refusal.message == SEVERAL:
        text = f"Internal error occurred: {SEVERAL}"
        return StatusError(500, "InternalError", text, {"causes": [{"message": SEVERAL}]})
    if refusal.budget:
        return forbidden(_BUDGETS, refusal.budget, refusal.why)
    causes = [{"reason": "DisruptionBudget", "message": refusal.why}]
    return too_many_requests(refusal.message, refusal.retry_after, causes)


def _mark(call: ApiRequest, pod: Raw) -> None:
    after = with_disruption_target(pod, call.cluster.stamp())
    if after is not pod:
        call.cluster.store.update(call.key, after)


_SCALE = "io.k8s.api.autoscaling.v1.Scale"


def get_scale(call: ApiRequest) -> Raw:
    return scale_of(call, found(call))


def scale_of(call: ApiRequest, raw: Raw) -> Raw:
    paths = call.type.scale
    assert paths is not None
    metadata = raw["metadata"]
    shown = ("name", "namespace", "uid", "resourceVersion", "creationTimestamp")
    status: Raw = {"replicas": _at(raw, paths.status_replicas) or 0}
    selector = _at(raw, paths.selector) if paths.selector else None
    if selector is not None:
        status["selector"] = _selector(selector)
    replicas = _at(raw, paths.replicas)
    return {
        "kind": "Scale",
        "apiVersion": "autoscaling/v1",
        "metadata": {name: metadata[name] for name in shown if name in metadata},
        "spec": {"replicas": replicas} if replicas else {},
        "status": status,
    }


def put_scale(call: ApiRequest, body: Body) -> Raw:
    """The object, scaled."""
    return _scaled(call, body.value)


def patch_scale(call: ApiRequest, data: bytes, content_type: str) -> Raw:
    """The object, scaled."""
    media = media_of(content_type)
    value = read_json(data)
    now = get_scale(call)
    try:
        if media == JSON_PATCH:
            patched = json_patch(now, value)
        elif media in (MERGE_PATCH, STRATEGIC):
            patched = merge_patch(now, value)
        else:
            raise StatusError(415, "UnsupportedMediaType", "415: Unsupported Media Type", {})
    except PatchError as error:
        raise StatusError(error.code, error.reason, error.message) from None
    return _scaled(call, patched)


def _scaled(call: ApiRequest, sent: Any) -> Raw:
    scale = read_known(_SCALE, sent)
    if scale.get("kind", "Scale") != "Scale":
        raise bad_request("the object provided is unrecognized (must be of type Scale)")
    metadata = scale.get("metadata") or {}
    if metadata.get("name", call.name) != call.name:
        raise bad_request(
            f"the name of the object ({metadata['name']}) does not match the name on the URL "
            f"({call.name})"
        )
    replicas = (scale.get("spec") or {}).get("replicas", 0)
    if replicas < 0:
        complaint = fields.invalid("spec.replicas", replicas, "must be greater than or equal to 0")
        raise invalid("autoscaling", "Scale", call.name, [complaint])
    before = found(call)
    version = metadata.get("resourceVersion")
    if version and version != before["metadata"]["resourceVersion"]:
        raise conflict(call.resource, call.name, MODIFIED)
    paths = call.type.scale
    assert paths is not None
    after = _with(before, paths.replicas.split("."), replicas)
    return change(call, before, after)


def _at(raw: Any, path: str) -> Any:
    for step in path.split("."):
        if not isinstance(raw, dict):
            return None
        raw = raw.get(step)
    return raw


def _with(raw: Raw, steps: list[str], value: Any) -> Raw:
    name, *rest = steps
    return {**raw, name: _with(raw.get(name) or {}, rest, value) if rest else value}


def _selector(selector: Any) -> str:
    if isinstance(selector, str):
        return selector
    if "matchLabels" in selector or "matchExpressions" in selector:
        return selector_text(selector)
    return ",".join(f"{key}={value}" for key, value in sorted(selector.items()))


USER = "holdfast-admin"
GROUPS = ["system:masters", "system:authenticated"]
_WHY = "the token allows everything; there is no finer authorization"


def review(call: ApiRequest, body: Body) -> Raw:
    """The review with its answer."""
    raw = read(call, body)
    raw = {**raw, "metadata": dict(raw["metadata"])}
    spec = raw.get("spec") or {}
    match call.type.kind:
        case "SelfSubjectReview":
            raw["metadata"]["creationTimestamp"] = call.cluster.stamp()
            return {**raw, "status": {"userInfo": {"username": USER, "groups": GROUPS}}}
        case "SelfSubjectRulesReview":
            return {**raw, "spec": spec, "status": _RULES}
        case "TokenReview":
            why = "tokens cannot be reviewed here"
            return {**raw, "spec": spec, "status": {"user": {}, "error": why}}
        case "SelfSubjectAccessReview":
            return {**raw, "spec": spec, "status": {"allowed": True, "reason": _WHY}}
        case _:
            groups = spec.get("groups") or []
            allowed = spec.get("user") == USER or GROUPS[0] in groups
            status = {"allowed": True, "reason": _WHY} if allowed else {"allowed": False}
            return {**raw, "spec": spec, "status": status}


_RULES: Raw = {
    "resourceRules": [{"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"]}],
    "nonResourceRules": [{"verbs": ["*"], "nonResourceURLs": ["*"]}],
    "incomplete": False,
}
