"""Volumes and claims."""

from __future__ import annotations

from holdfast.api import names
from holdfast.server.api import fields
from holdfast.server.api.cluster import Call
from holdfast.server.api.strategies.strategy import Strategy, keep_status, without_status
from holdfast.server.schema import Problem
from holdfast.store import Raw

_CLAIM_FIXED = (
    "spec is immutable after creation except resources.requests and volumeAttributesClassName for "
    "bound "
    "claims"
)


def _new_volume(call: Call, raw: Raw) -> Raw:
    return {**raw, "status": {"phase": "Pending", "lastPhaseTransitionTime": call.cluster.stamp()}}


def _new_claim(call: Call, raw: Raw) -> Raw:
    spec = dict(raw.get("spec") or {})
    annotations = raw["metadata"].get("annotations") or {}
    if spec.get("storageClassName") is None and names.STORAGE_CLASS_ANNOTATION not in annotations:
        default = _default_class(call)
        if default:
            spec["storageClassName"] = default
    return {**raw, "spec": spec, "status": {"phase": "Pending"}}


def _default_class(call: Call) -> str:
    """Of several the newest, then the first by name."""
    classes = [
        each["metadata"]
        for each in call.cluster.store.list("storage.k8s.io", "StorageClass")
        if (each["metadata"].get("annotations") or {}).get(names.DEFAULT_STORAGE_CLASS_ANNOTATION)
        == "true"
    ]
    newest = max((each["creationTimestamp"] for each in classes), default="")
    return next((each["name"] for each in classes if each["creationTimestamp"] == newest), "")


def _check_claim(call: Call, before: Raw, after: Raw) -> list[Problem]:
    was, now = before.get("spec") or {}, after.get("spec") or {}
    allowed = {**was}
    if not was.get("volumeName"):
        allowed["volumeName"] = now.get("volumeName")
    if was.get("volumeName") or (before.get("status") or {}).get("phase") == "Bound":
        for name in ("resources", "volumeAttributesClassName"):
            allowed[name] = now.get(name)
    if was.get("storageClassName") is None:
        allowed["storageClassName"] = now.get("storageClassName")
    if _filled(allowed) != _filled(now):
        return [fields.forbidden("spec", _CLAIM_FIXED)]
    return []


def _filled(spec: Raw) -> Raw:
    return {name: value for name, value in spec.items() if value is not None}


_RECLAIM = ("Delete", "Retain")
_BINDING = ("Immediate", "WaitForFirstConsumer")


def _check_new_class(call: Call, raw: Raw) -> list[Problem]:
    found = [] if raw.get("provisioner") else [fields.required("provisioner")]
    for name, known in (("reclaimPolicy", _RECLAIM), ("volumeBindingMode", _BINDING)):
        if raw.get(name) not in known:
            found.append(fields.unsupported(name, raw.get(name), known))
    return found


def _check_class(call: Call, before: Raw, after: Raw) -> list[Problem]:
    def differs(name: str) -> bool:
        return bool(before.get(name) != after.get(name))

    forbidden = filter(differs, ("parameters", "provisioner"))
    immutable = filter(differs, ("reclaimPolicy", "volumeBindingMode"))
    return [
        *(fields.forbidden(name, f"updates to {name} are forbidden.") for name in forbidden),
        *(fields.invalid(name, after.get(name), "field is immutable") for name in immutable),
    ]


VOLUME = Strategy(returns_deleted=True, new=_new_volume, changed=keep_status)
CLAIM = Strategy(returns_deleted=True, new=_new_claim, changed=keep_status, check_changed=_check_claim)
STORAGE_CLASS = Strategy(returns_deleted=True, check_new=_check_new_class, check_changed=_check_class)
ATTACHMENT = Strategy(
    unconditional_update=False, returns_deleted=True, new=without_status, changed=keep_status
)
CSI_NODE = Strategy(unconditional_update=False, returns_deleted=True)
CSI_DRIVER = Strategy(unconditional_update=False, returns_deleted=True)
CSI_CAPACITY = Strategy(unconditional_update=False)
