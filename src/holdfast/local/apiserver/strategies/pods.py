"""Pods: what admission gives them, and what may be changed of one that exists."""

from __future__ import annotations

import difflib
from typing import Any

import msgspec

from holdfast.api import names
from holdfast.api.decode import convert
from holdfast.api.errors import InvalidObject, MalformedText
from holdfast.api.pod import Pod
from holdfast.api.resources import qos_class
from holdfast.local.admission import apply_runtime_class
from holdfast.local.apiserver import field_errors as fields
from holdfast.local.apiserver.api_state import Call
from holdfast.local.apiserver.status import Resource, forbidden
from holdfast.local.apiserver.strategies.priorities import give_priority
from holdfast.local.apiserver.strategies.strategy import Strategy, keep_spec, keep_status
from holdfast.local.store import Key, Raw
from holdfast.machinery.schema import FieldError

DEFAULT_GRACE = 30
_PODS = Resource("", "pods")
_SHAPES_KEPT = 10_000
_ENDED = ("Succeeded", "Failed")
_TOLERATED_SECONDS = 300
_MAY_CHANGE = (
    "pod updates may not change fields other than `spec.containers[*].image`,"
    "`spec.initContainers[*].image`,`spec.activeDeadlineSeconds`,`spec.tolerations` (only additions to "
    "existing tolerations),`spec.terminationGracePeriodSeconds` (allow it to be set to 1 if it was "
    "previously negative)"
)
_RESIZABLE = ("cpu", "memory")
_CONTAINERS = ("containers", "initContainers")

_known_qos: dict[bytes, str] = {}


def _new(call: Call, raw: Raw) -> Raw:
    spec = dict(raw.get("spec") or {})
    _run_as_its_class_says(call, spec)
    give_priority(call, spec)
    _tolerate_trouble(spec)
    status: Raw = {"phase": "Pending"}
    if spec.get("schedulingGates"):
        status["conditions"] = [
            {
                "type": "PodScheduled",
                "status": "False",
                "lastProbeTime": None,
                "lastTransitionTime": call.cluster.stamp(),
                "reason": "SchedulingGated",
                "message": "Scheduling is blocked due to non-empty scheduling gates",
            }
        ]
    built = {**raw, "spec": spec, "status": status}
    status["qosClass"] = _qos(built)
    return built


def _run_as_its_class_says(call: Call, spec: Raw) -> None:
    """Raises ApiError 403, as Kubernetes' admission words it."""
    name = spec.get("runtimeClassName")
    if not name:
        return
    chosen = call.cluster.store.get(Key("node.k8s.io", "RuntimeClass", "", name))
    if chosen is None:
        raise forbidden(_PODS, call.name, f'pod rejected: RuntimeClass "{name}" not found')
    try:
        apply_runtime_class(spec, chosen)
    except MalformedText:
        return  # what cannot be read is refused by validation, in its own words
    except InvalidObject as error:
        raise forbidden(_PODS, call.name, error.message) from None


def _tolerate_trouble(spec: Raw) -> None:
    """Every pod bears a node that is not ready or unreachable for five minutes, unless it says more."""
    tolerations = list(spec.get("tolerations") or [])
    for key in (names.TAINT_NOT_READY, names.TAINT_UNREACHABLE):
        if not any(_covers(each, key) for each in tolerations):
            tolerations.append(
                {
                    "key": key,
                    "operator": "Exists",
                    "effect": names.NO_EXECUTE,
                    "tolerationSeconds": _TOLERATED_SECONDS,
                }
            )
    spec["tolerations"] = tolerations


def _covers(toleration: Raw, key: str) -> bool:
    effect = toleration.get("effect") or names.NO_EXECUTE
    return effect == names.NO_EXECUTE and (toleration.get("key") or key) == key


def _qos(raw: Raw) -> str:
    """Worked out once for all pods that ask for the same: many do."""
    spec = raw["spec"]
    asked = [[each.get("resources") for each in spec.get(part) or []] for part in _CONTAINERS]
    shape = msgspec.json.encode((spec.get("resources"), asked))
    known = _known_qos.get(shape)
    if known is None:
        if len(_known_qos) >= _SHAPES_KEPT:
            _known_qos.clear()
        try:
            known = qos_class(convert(raw, Pod))
        except Exception:  # what cannot be read is refused by validation, in its own words
            return "BestEffort"
        _known_qos[shape] = known
    return known


def _changed(call: Call, before: Raw, after: Raw) -> Raw:
    if call.subresource == "resize":
        return keep_status(
            call, before, {**before, "spec": after.get("spec"), "metadata": after["metadata"]}
        )
    spec = dict(after.get("spec") or {})
    _tolerate_trouble(spec)
    return keep_status(call, before, {**after, "spec": spec})


def _status_changed(call: Call, before: Raw, after: Raw) -> Raw:
    after = keep_spec(call, before, after)
    owners = before["metadata"].get("ownerReferences")
    metadata = dict(after["metadata"])
    metadata.pop("ownerReferences", None)
    if owners:
        metadata["ownerReferences"] = owners
    return {**after, "metadata": metadata, "status": _with_address(after.get("status") or {})}


def _with_address(status: Raw) -> Raw:
    """The first address stands in two places; the list is believed."""
    addresses = status.get("podIPs")
    if addresses:
        return {**status, "podIP": addresses[0].get("ip", "")}
    if status.get("podIP"):
        return {**status, "podIPs": [{"ip": status["podIP"]}]}
    return status


def _check_changed(call: Call, before: Raw, after: Raw) -> list[FieldError]:
    old, new = before.get("spec") or {}, after.get("spec") or {}
    if old == new:
        return []
    if call.subresource == "resize":
        return _check_resize(old, new)
    if call.subresource == "ephemeralcontainers":
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


def _with_allowed(old: Raw, new: Raw) -> Raw:
    """The old spec with the changes that may be made."""
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
    """A gated pod's required node affinity may be narrowed: set where there was none, or each of its
    terms given more to ask for. What is only preferred is free."""
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


def _check_resize(old: Raw, new: Raw) -> list[FieldError]:
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

    if fixed_parts(old) == fixed_parts(new):
        return []
    return [fields.forbidden("spec", "only cpu and memory resources are mutable")]


def _check_ephemeral(old: Raw, new: Raw) -> list[FieldError]:
    if _without(old, "ephemeralContainers") != _without(new, "ephemeralContainers"):
        return [fields.forbidden("spec", _MAY_CHANGE)]
    was, now = old.get("ephemeralContainers") or [], new.get("ephemeralContainers") or []
    if now[: len(was)] != was:
        why = "existing ephemeral containers may not be changed or removed"
        return [fields.forbidden("spec.ephemeralContainers", why)]
    return []


def _difference(old: Raw, new: Raw) -> str:
    """The lines that differ, with a few around them."""
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


def _wish(raw: Raw) -> Any:
    """A pod's own generation: its spec, but for the node that binding writes into it."""
    spec = raw.get("spec")
    return {**spec, "nodeName": None} if isinstance(spec, dict) else spec


POD = Strategy(
    wish=_wish,
    returns_deleted=True,
    new=_new,
    changed=_changed,
    status_changed=_status_changed,
    check_changed=_check_changed,
    grace=_grace,
)
