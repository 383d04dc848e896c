"""The strategy of pods: admission of new ones, permitted updates, grace periods."""

from __future__ import annotations

import difflib
from typing import Any

import msgspec

from holdfast.api.decode import convert
from holdfast.api.pod import Pod
from holdfast.api.raw_objects import Key, Raw
from holdfast.api.resources import amounts, pod_requests
from holdfast.machinery.object_request import WriteRequest
from holdfast.machinery.schema import FieldError
from holdfast.machinery.schema import field_errors as fields
from holdfast.machinery.status import Resource, forbidden
from holdfast.machinery.strategies.admission import (
    add_default_tolerations,
    apply_priority,
    apply_runtime_class,
    apply_service_account,
    qos_of,
)
from holdfast.machinery.strategies.strategy import Strategy, keep_spec, keep_status
from holdfast.machinery.validation.resource_claims import check_pod_claim_status

_PODS = Resource("", "pods")
DEFAULT_GRACE = 30
GATED_REASON = "SchedulingGated"
GATED_MESSAGE = "Scheduling is blocked due to non-empty scheduling gates"
_ENDED = ("Succeeded", "Failed")
_MAY_CHANGE = (
    "pod updates may not change fields other than `spec.containers[*].image`,"
    "`spec.initContainers[*].image`,`spec.activeDeadlineSeconds`,`spec.tolerations` (only additions to "
    "existing tolerations),`spec.terminationGracePeriodSeconds` (allow it to be set to 1 if it was "
    "previously negative)"
)
_RESIZABLE = ("cpu", "memory")
_CONTAINERS = ("containers", "initContainers")
_CLAIM_STATUSES = ("resourceClaimStatuses", "extendedResourceClaimStatus")


def _new(request: WriteRequest, raw: Raw) -> Raw:
    spec = dict(raw.get("spec") or {})
    apply_runtime_class(request, spec)
    apply_priority(request, spec)
    apply_service_account(request, spec)
    add_default_tolerations(spec)
    status: Raw = {"phase": "Pending"}
    if spec.get("schedulingGates"):
        status["conditions"] = [
            {
                "type": "PodScheduled",
                "status": "False",
                "lastProbeTime": None,
                "lastTransitionTime": request.stamp(),
                "reason": GATED_REASON,
                "message": GATED_MESSAGE,
            }
        ]
    built = {**raw, "spec": spec, "status": status}
    status["qosClass"] = qos_of(built)
    return built


def _changed(request: WriteRequest, before: Raw, after: Raw) -> Raw:
    if request.subresource == "resize":
        return keep_status(
            request, before, {**before, "spec": after.get("spec"), "metadata": after["metadata"]}
        )
    spec = dict(after.get("spec") or {})
    add_default_tolerations(spec)
    return keep_status(request, before, {**after, "spec": spec})


def _status_changed(request: WriteRequest, before: Raw, after: Raw) -> Raw:
    after = keep_spec(request, before, after)
    owners = before["metadata"].get("ownerReferences")
    metadata = dict(after["metadata"])
    metadata.pop("ownerReferences", None)
    if owners:
        metadata["ownerReferences"] = owners
    return {**after, "metadata": metadata, "status": _with_address(after.get("status") or {})}


def _with_address(status: Raw) -> Raw:
    """podIP is the first of podIPs; the list wins."""
    addresses = status.get("podIPs")
    if addresses:
        return {**status, "podIP": addresses[0].get("ip", "")}
    if status.get("podIP"):
        return {**status, "podIPs": [{"ip": status["podIP"]}]}
    return status


def _check_changed(request: WriteRequest, before: Raw, after: Raw) -> list[FieldError]:
    old, new = before.get("spec") or {}, after.get("spec") or {}
    if request.subresource == "status":
        return _check_status(before, after)
    if old == new:
        return []
    if request.subresource == "resize":
        return _check_resize(before, after) or _check_node_allocatable(request, after)
    if request.subresource == "ephemeralcontainers":
        return _check_ephemeral(old, new)
    found: list[FieldError] = []
    for part in _CONTAINERS:
        if len(new.get(part) or []) != len(old.get(part) or []):
            why = "pod updates may not add or remove containers"
            return [fields.forbidden(f"spec.{part}", why)]
    found += _check_deadline(old, new)
    found += _check_tolerations(old, new)
    found += _check_gates(old, new)
    if found:
        return found
    allowed = _with_allowed(old, new)
    if allowed != new:
        return [fields.forbidden("spec", f"{_MAY_CHANGE}\n{_difference(allowed, new)}")]
    return []


def _check_status(before: Raw, after: Raw) -> list[FieldError]:
    found: list[FieldError] = []
    old, new = before.get("status") or {}, after.get("status") or {}
    if any(old.get(field) != new.get(field) for field in _CLAIM_STATUSES):
        check_pod_claim_status(found, after.get("spec") or {}, new)
    return found


def _with_allowed(old: Raw, new: Raw) -> Raw:
    """The old spec with the permitted changes."""
    spec = dict(old)
    for part in _CONTAINERS:
        if part in old:
            spec[part] = [
                {**was, "image": now["image"]} if "image" in now else was
                for was, now in zip(old[part], new.get(part) or [], strict=True)
            ]
    names_free = ["activeDeadlineSeconds", "tolerations", "schedulingGates"]
    if (old.get("terminationGracePeriodSeconds") or 0) < 0 and new.get(
        "terminationGracePeriodSeconds"
    ) == 1:
        names_free.append("terminationGracePeriodSeconds")
    if old.get("schedulingGates"):
        names_free += (
            ["nodeSelector"] if _only_more(old.get("nodeSelector"), new.get("nodeSelector")) else []
        )
        names_free += ["affinity"] if _narrower(old.get("affinity"), new.get("affinity")) else []
    for name in names_free:
        if name in new:
            spec[name] = new[name]
        else:
            spec.pop(name, None)
    return spec


def _only_more(old: Raw | None, new: Raw | None) -> bool:
    return all((new or {}).get(key) == value for key, value in (old or {}).items())


def _narrower(old: Raw | None, new: Raw | None) -> bool:
    """Whether the required node affinity of a gated pod is only narrowed: set where there was none, or
    with more requirements in each of its terms. Preferred terms may change freely."""
    old_node, new_node = (old or {}).get("nodeAffinity") or {}, (new or {}).get("nodeAffinity") or {}
    if _without(old or {}, "nodeAffinity") != _without(new or {}, "nodeAffinity"):
        return False
    required = "requiredDuringSchedulingIgnoredDuringExecution"
    if not old_node.get(required):
        return True
    old_terms = old_node[required].get("nodeSelectorTerms") or []
    new_terms = (new_node.get(required) or {}).get("nodeSelectorTerms") or []
    if len(old_terms) != len(new_terms):
        return False
    return all(
        all(each in (now.get(part) or []) for each in was.get(part) or [])
        for was, now in zip(old_terms, new_terms, strict=True)
        for part in ("matchExpressions", "matchFields")
    )


def _without(raw: Raw, name: str) -> Raw:
    return {key: value for key, value in raw.items() if key != name}


def _check_deadline(old: Raw, new: Raw) -> list[FieldError]:
    was, now = old.get("activeDeadlineSeconds"), new.get("activeDeadlineSeconds")
    path = "spec.activeDeadlineSeconds"
    if was is None or was == now:
        return []
    if now is None:
        return [fields.invalid(path, None, "must not update from a positive integer to nil value")]
    if now > was:
        return [fields.invalid(path, now, "must be less than or equal to previous value")]
    return []


def _check_tolerations(old: Raw, new: Raw) -> list[FieldError]:
    def essence(each: Raw) -> tuple[Any, ...]:
        return tuple(each.get(field) for field in ("key", "operator", "value", "effect"))

    now = [essence(each) for each in new.get("tolerations") or []]
    if all(essence(each) in now for each in old.get("tolerations") or []):
        return []
    why = "existing toleration can not be modified except its tolerationSeconds"
    return [fields.forbidden("spec.tolerations", why)]


def _check_gates(old: Raw, new: Raw) -> list[FieldError]:
    was = {each.get("name") for each in old.get("schedulingGates") or []}
    return [
        fields.forbidden(
            f"spec.schedulingGates[{i}].name",
            f"only deletion is allowed, but found new scheduling gate '{each.get('name')}'",
        )
        for i, each in enumerate(new.get("schedulingGates") or [])
        if each.get("name") not in was
    ]


def _check_resize(before: Raw, after: Raw) -> list[FieldError]:
    old, new = before["spec"], after["spec"]

    def fixed(container: Raw) -> Raw:
        resources = container.get("resources") or {}
        amounts = {
            part: {
                name: each
                for name, each in (resources.get(part) or {}).items()
                if name not in _RESIZABLE
            }
            for part in ("requests", "limits")
        }
        return {**container, "resources": {**resources, **amounts}}

    def fixed_parts(spec: Raw) -> Raw:
        lists = {part: [*map(fixed, spec[part])] for part in _CONTAINERS if part in spec}
        return {**spec, **lists}

    if fixed_parts(old) != fixed_parts(new):
        return [fields.forbidden("spec", "only cpu and memory resources are mutable")]
    if qos_of(before) != qos_of(after):
        was = (before.get("status") or {}).get("qosClass") or qos_of(before)
        why = "Pod QOS Class may not change as a result of resizing"
        return [fields.invalid("spec", was, why)]
    return []


def _check_node_allocatable(request: WriteRequest, pod: Raw) -> list[FieldError]:
    """The admission plugin PodResize: no pod is resized beyond its node. Raises StatusError 403."""
    node_name = pod["spec"].get("nodeName")
    if not node_name:
        return []
    node = request.store.get(Key("", "Node", "", node_name))
    if node is None:
        raise forbidden(_PODS, request.name, f'node "{node_name}" not found')
    allocatable = amounts((node.get("status") or {}).get("allocatable") or {})
    requests = pod_requests(convert(pod, Pod), use_status=False)
    too_much = [
        f"{name}, requested: {requests[name]}, allocatable: {allocatable.get(name, 0)}"
        for name in _RESIZABLE
        if requests.get(name, 0) > allocatable.get(name, 0)
    ]
    if too_much:
        why = f"node didn't have enough allocatable resources: {'; '.join(too_much)}"
        raise forbidden(_PODS, request.name, why, [{"reason": "NodeCapacity"}])
    return []


def _check_ephemeral(old: Raw, new: Raw) -> list[FieldError]:
    if _without(old, "ephemeralContainers") != _without(new, "ephemeralContainers"):
        return [fields.forbidden("spec", _MAY_CHANGE)]
    was, now = old.get("ephemeralContainers") or [], new.get("ephemeralContainers") or []
    if now[: len(was)] != was:
        why = "existing ephemeral containers may not be changed or removed"
        return [fields.forbidden("spec.ephemeralContainers", why)]
    return []


def _difference(old: Raw, new: Raw) -> str:
    """A unified diff of the two specs."""
    texts = [
        msgspec.json.format(msgspec.json.encode(each, order="sorted"), indent=2)
        .decode()
        .splitlines(True)
        for each in (old, new)
    ]
    return "".join([*difflib.unified_diff(texts[0], texts[1], n=3)][2:])


def _grace(raw: Raw, asked: int | None) -> int:
    spec, status = raw.get("spec") or {}, raw.get("status") or {}
    if not spec.get("nodeName") or status.get("phase") in _ENDED:
        return 0
    grace = spec.get("terminationGracePeriodSeconds", DEFAULT_GRACE) if asked is None else asked
    return 1 if grace < 0 else int(grace)


def _generation_of(raw: Raw) -> Any:
    """The spec without nodeName: binding does not change the generation."""
    spec = raw.get("spec")
    return {**spec, "nodeName": None} if isinstance(spec, dict) else spec


POD = Strategy(
    generation_of=_generation_of,
    returns_deleted=True,
    new=_new,
    changed=_changed,
    status_changed=_status_changed,
    check_changed=_check_changed,
    grace=_grace,
)
