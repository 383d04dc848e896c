"""Strategies of ResourceClaims, ResourceClaimTemplates, DeviceClasses, ResourceSlices and
DeviceTaintRules.

The specs of claims and templates are immutable, and so is an allocation: it can be set and removed.
Fields of features that are off by default in Kubernetes 1.37 are dropped, as its API server does.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from holdfast.api.names import ADMIN_ACCESS_LABEL
from holdfast.api.raw_objects import Key, Raw
from holdfast.machinery.object_request import WriteRequest
from holdfast.machinery.schema import FieldError
from holdfast.machinery.schema import field_errors as fields
from holdfast.machinery.strategies.strategy import (
    Strategy,
    keep_all_but_status,
    keep_status,
    spec_of,
    without_status,
)
from holdfast.machinery.validation.device_fields import check_conditions
from holdfast.machinery.validation.resource_claims import check_claim_status
from holdfast.machinery.validation.resource_slices import check_slice_change

_MAX_RULE_CONDITIONS = 8
_IMMUTABLE = "field is immutable"
_NEEDS_LABEL = (
    f"admin access to devices requires the `{ADMIN_ACCESS_LABEL}: true` label on the containing "
    "namespace"
)

_OFF_IN_REQUESTS = ("derivedAttributes",)
_OFF_IN_SLICES = ("partitionTypeAttribute", "skipNodeOperations")
_OFF_IN_DEVICES = ("nodeAllocatableResources",)
_OFF_IN_ATTRIBUTES = ("ints", "bools", "strings", "versions")
_OFF_IN_COUNTERS = ("compatibilityGroups",)


def _without(part: Raw, names: tuple[str, ...]) -> Raw:
    if not any(name in part for name in names):
        return part
    return {name: value for name, value in part.items() if name not in names}


def _each(part: Raw, field: str, change: Callable[[Any], Any]) -> Raw:
    """The part with each item of a list, or each value of a map, changed."""
    items = part.get(field)
    if not items:
        return part
    if isinstance(items, dict):
        new: Any = {name: change(item) for name, item in items.items()}
    else:
        new = [change(item) for item in items]
    return part if new == items else {**part, field: new}


def _request(request: Raw) -> Raw:
    exactly = request.get("exactly")
    if exactly is not None:
        new = _without(exactly, _OFF_IN_REQUESTS)
        request = request if new is exactly else {**request, "exactly": new}
    return _each(request, "firstAvailable", lambda each: _without(each, _OFF_IN_REQUESTS))


def _claim_spec(spec: Raw) -> Raw:
    devices = spec.get("devices") or {}
    new = _each(devices, "requests", _request)
    return spec if new is devices else {**spec, "devices": new}


def _device(device: Raw) -> Raw:
    device = _without(device, _OFF_IN_DEVICES)
    device = _each(device, "attributes", lambda each: _without(each, _OFF_IN_ATTRIBUTES))
    return _each(device, "consumesCounters", lambda each: _without(each, _OFF_IN_COUNTERS))


def _admin_problem(request: WriteRequest, requests: list[Raw] | None, path: str) -> list[FieldError]:
    """`requests` are requests, or results of an allocation."""
    for i, each in enumerate(requests or ()):
        if (each.get("exactly") or each).get("adminAccess"):
            namespace = request.store.get(Key("", "Namespace", "", request.namespace))
            labels = (namespace or {}).get("metadata", {}).get("labels") or {}
            if namespace is not None and labels.get(ADMIN_ACCESS_LABEL) != "true":
                return [fields.forbidden(f"{path}[{i}].adminAccess", _NEEDS_LABEL)]
            return []
    return []


def _new_claim(request: WriteRequest, raw: Raw) -> Raw:
    return {**without_status(request, raw), "spec": _claim_spec(raw.get("spec") or {})}


def _changed_claim(request: WriteRequest, before: Raw, after: Raw) -> Raw:
    return keep_status(request, before, {**after, "spec": _claim_spec(after.get("spec") or {})})


def _check_new_claim(request: WriteRequest, raw: Raw) -> list[FieldError]:
    devices = (raw.get("spec") or {}).get("devices") or {}
    found = _admin_problem(request, devices.get("requests"), "spec.devices.requests")
    if raw.get("status"):
        # Of a restored object: a status is otherwise empty.
        check_claim_status(found, {}, raw)
    return found


def _check_claim(request: WriteRequest, before: Raw, after: Raw) -> list[FieldError]:
    if request.subresource == "status":
        results = [
            ((((each.get("status") or {}).get("allocation") or {}).get("devices")) or {}).get("results")
            for each in (before, after)
        ]
        found: list[FieldError] = []
        if not any(each.get("adminAccess") for each in results[0] or ()):
            path = "status.allocation.devices.results"
            found = _admin_problem(request, results[1], path)
        check_claim_status(found, before, after)
        return found
    return _check_spec_kept(request, before, after)


def _check_spec_kept(request: WriteRequest, before: Raw, after: Raw) -> list[FieldError]:
    if before.get("spec") == after.get("spec"):
        return []
    return [fields.invalid("spec", after.get("spec"), _IMMUTABLE)]


def _status_of_claim_changed(request: WriteRequest, before: Raw, after: Raw) -> Raw:
    """Reports about devices that are no longer allocated are removed with the allocation."""
    after = keep_all_but_status(request, before, after)
    status = after.get("status") or {}
    devices = status.get("devices")
    if not devices:
        return after
    gone = _allocated(before.get("status") or {}) - _allocated(status)
    kept = [each for each in devices if _device_key(each) not in gone]
    if len(kept) == len(devices):
        return after
    status = {**status, "devices": kept} if kept else _without(status, ("devices",))
    return {**after, "status": status}


def _allocated(status: Raw) -> set[tuple[Any, ...]]:
    devices = (status.get("allocation") or {}).get("devices") or {}
    return {_device_key(result) for result in devices.get("results") or ()}


def _device_key(device: Raw) -> tuple[Any, ...]:
    return tuple(device.get(field) for field in ("driver", "pool", "device", "shareID"))


def _new_template(request: WriteRequest, raw: Raw) -> Raw:
    spec = raw.get("spec") or {}
    return {**raw, "spec": {**spec, "spec": _claim_spec(spec.get("spec") or {})}}


def _changed_template(request: WriteRequest, before: Raw, after: Raw) -> Raw:
    return _new_template(request, after)


def _check_new_template(request: WriteRequest, raw: Raw) -> list[FieldError]:
    spec = (raw.get("spec") or {}).get("spec") or {}
    requests = (spec.get("devices") or {}).get("requests")
    return _admin_problem(request, requests, "spec.devices.requests")


def _new_slice(request: WriteRequest, raw: Raw) -> Raw:
    spec = _without(raw.get("spec") or {}, _OFF_IN_SLICES)

    def change(device: Raw) -> Raw:
        return _each(_device(device), "taints", lambda taint: _timed(request, taint))

    driver = spec.get("driver", "")
    if driver != driver.lower():
        request.warn(
            f'spec.driver: driver names should be lowercase; "{driver}" contains uppercase characters'
        )
    return {**raw, "spec": _each(spec, "devices", change)}


def _changed_slice(request: WriteRequest, before: Raw, after: Raw) -> Raw:
    return _new_slice(request, after)


def _check_slice(request: WriteRequest, before: Raw, after: Raw) -> list[FieldError]:
    found: list[FieldError] = []
    check_slice_change(found, before, after)
    return found


def _timed(request: WriteRequest, taint: Raw) -> Raw:
    return taint if taint.get("timeAdded") else {**taint, "timeAdded": request.stamp()}


def _new_rule(request: WriteRequest, raw: Raw) -> Raw:
    return _timed_rule(request, without_status(request, raw))


def _timed_rule(request: WriteRequest, raw: Raw) -> Raw:
    spec = raw.get("spec") or {}
    return {**raw, "spec": {**spec, "taint": _timed(request, spec.get("taint") or {})}}


def _changed_rule(request: WriteRequest, before: Raw, after: Raw) -> Raw:
    """The time is that of the effect: it is set again when the effect changes."""
    after = _timed_rule(request, keep_status(request, before, after))
    old, new = (before.get("spec") or {}).get("taint") or {}, after["spec"]["taint"]
    if old.get("effect") != new.get("effect") and old.get("timeAdded") == new.get("timeAdded"):
        taint = {**new, "timeAdded": request.stamp()}
        return {**after, "spec": {**after["spec"], "taint": taint}}
    return after


def _check_rule(request: WriteRequest, before: Raw, after: Raw) -> list[FieldError]:
    found: list[FieldError] = []
    if request.subresource == "status":
        conditions = (after.get("status") or {}).get("conditions")
        check_conditions(found, conditions, "status.conditions", _MAX_RULE_CONDITIONS)
    return found


RESOURCE_CLAIM = Strategy(
    returns_deleted=True,
    new=_new_claim,
    changed=_changed_claim,
    status_changed=_status_of_claim_changed,
    check_new=_check_new_claim,
    check_changed=_check_claim,
)
RESOURCE_CLAIM_TEMPLATE = Strategy(
    returns_deleted=True,
    new=_new_template,
    changed=_changed_template,
    check_new=_check_new_template,
    check_changed=_check_spec_kept,
)
DEVICE_CLASS = Strategy(generation_of=spec_of, returns_deleted=True)
RESOURCE_SLICE = Strategy(
    generation_of=spec_of,
    returns_deleted=True,
    new=_new_slice,
    changed=_changed_slice,
    check_changed=_check_slice,
)
DEVICE_TAINT_RULE = Strategy(
    generation_of=spec_of,
    unconditional_update=False,
    new=_new_rule,
    changed=_changed_rule,
    status_changed=keep_all_but_status,
    check_changed=_check_rule,
)
