"""ResourceSlices and DeviceTaintRules."""

from __future__ import annotations

import re
from typing import Any

from holdfast.api.name_rules import dns_subdomain
from holdfast.api.quantity import NANO, parse
from holdfast.machinery.schema.field_errors import (
    FORBIDDEN,
    INVALID,
    REQUIRED,
    field_problem,
    too_long,
)
from holdfast.machinery.validation.device_fields import (
    Found,
    Part,
    check_binding_conditions,
    check_device_taint,
    check_driver,
    check_label,
    check_list,
    check_pool_name,
    check_qualified_name,
    name_of,
)
from holdfast.machinery.validation.placement import check_node_selector

_MAX_DEVICES, _MAX_SPECIAL_DEVICES = 128, 64
_MAX_ATTRIBUTES = 32
_MAX_VALUE = 64
_MAX_TAINTS = 16
_MAX_COUNTER_SETS = 8
_MAX_COUNTERS = 32
_MAX_CONSUMPTIONS = 2
_MAX_VALID_VALUES = 10
_LONGEST_KEY = 63 + 1 + 32
_IMMUTABLE = "field is immutable"
_SELECTIONS = ("nodeName", "nodeSelector", "allNodes")
_ONE_SELECTION = (
    "exactly one of `nodeName`, `nodeSelector`, `allNodes`, `perDeviceNodeSelection` is required"
)
_ONE_OF_DEVICE = (
    "exactly one of `nodeName`, `nodeSelector`, or `allNodes` is required when "
    "`perDeviceNodeSelection` is set to true in the ResourceSlice spec"
)
_NOT_PER_DEVICE = (
    "`nodeName`, `nodeSelector` and `allNodes` can only be set if `perDeviceNodeSelection` is set to "
    "true in the ResourceSlice spec"
)
_TRUE_OR_UNSET = "must be either unset or set to true"
_NUMBER = r"(0|[1-9]\d*)"
_PRERELEASE = r"(0|[1-9]\d*|\d*[a-zA-Z-][0-9a-zA-Z-]*)"
_is_version = re.compile(
    rf"{_NUMBER}\.{_NUMBER}\.{_NUMBER}(-{_PRERELEASE}(\.{_PRERELEASE})*)?"
    r"(\+[0-9a-zA-Z-]+(\.[0-9a-zA-Z-]+)*)?",
    re.ASCII,
).fullmatch


def check_slice(found: Found, raw: Part) -> None:
    spec = raw.get("spec") or {}
    check_driver(found, spec.get("driver", ""), "spec.driver")
    _check_pool(found, spec.get("pool") or {}, "spec.pool")
    _check_node_selection(found, spec, "spec")
    devices, counters = spec.get("devices"), spec.get("sharedCounters")
    if devices and counters:
        why = "only one of `sharedCounters` or `devices` is allowed"
        found.append(field_problem(INVALID, "spec", "", why))
    special = any(each.get("taints") or each.get("consumesCounters") for each in devices or ())
    most = _MAX_SPECIAL_DEVICES if special else _MAX_DEVICES
    per_device = bool(spec.get("perDeviceNodeSelection"))

    def check(found: Found, device: Part, path: str) -> None:
        _check_device(found, device, path, per_device)

    check_list(found, devices, "spec.devices", most, check, name_of)
    check_list(found, counters, "spec.sharedCounters", _MAX_COUNTER_SETS, _check_counter_set, name_of)


def check_slice_change(found: Found, before: Part, after: Part) -> None:
    old, new = before.get("spec") or {}, after.get("spec") or {}
    was, now = (old.get("pool") or {}).get("name"), (new.get("pool") or {}).get("name")
    if was != now:
        found.append(field_problem(INVALID, "spec.pool.name", now, _IMMUTABLE))
    for field in ("driver", "nodeName"):
        if old.get(field) != new.get(field):
            found.append(field_problem(INVALID, f"spec.{field}", new.get(field), _IMMUTABLE))


def check_taint_rule(found: Found, raw: Part) -> None:
    spec = raw.get("spec") or {}
    selector, path = spec.get("deviceSelector") or {}, "spec.deviceSelector"
    for field, check in (("driver", check_driver), ("pool", check_pool_name), ("device", check_label)):
        if selector.get(field) is not None:
            check(found, selector[field], f"{path}.{field}")
    check_device_taint(found, spec.get("taint") or {}, "spec.taint")


def _check_pool(found: Found, pool: Part, path: str) -> None:
    check_pool_name(found, pool.get("name", ""), f"{path}.name")
    count, generation = pool.get("resourceSliceCount", 0), pool.get("generation", 0)
    if count <= 0:
        why = "must be greater than zero"
        found.append(field_problem(INVALID, f"{path}.resourceSliceCount", count, why))
    if generation < 0:
        why = "must be greater than or equal to zero"
        found.append(field_problem(INVALID, f"{path}.generation", generation, why))


def _check_node_selection(found: Found, spec: Part, path: str) -> None:
    chosen = _check_selections(found, spec, path, "must be either unset or set to a non-empty string")
    selector = spec.get("nodeSelector")
    if selector is not None and len(selector.get("nodeSelectorTerms") or ()) != 1:
        where, terms = f"{path}.nodeSelector.nodeSelectorTerms", selector.get("nodeSelectorTerms")
        why = "must have exactly one node selector term"
        found.append(field_problem(INVALID, where, terms, why))
    per_device = spec.get("perDeviceNodeSelection")
    if per_device:
        chosen.append("`perDeviceNodeSelection`")
    elif per_device is not None:
        where = f"{path}.perDeviceNodeSelection"
        found.append(field_problem(INVALID, where, per_device, _TRUE_OR_UNSET))
    if not chosen:
        found.append(field_problem(REQUIRED, path, detail=_ONE_SELECTION))
    elif len(chosen) > 1:
        why = f"{_ONE_SELECTION}, but multiple fields are set"
        found.append(field_problem(INVALID, path, f"{{{', '.join(chosen)}}}", why))


def _check_selections(found: Found, part: Part, path: str, empty_name: str) -> list[str]:
    """The node selections that are set, quoted for messages."""
    chosen: list[str] = []
    name, selector, all_nodes = (part.get(field) for field in _SELECTIONS)
    if name:
        chosen.append("`nodeName`")
        where = f"{path}.nodeName"
        found.extend(field_problem(INVALID, where, name, message) for message in dns_subdomain(name))
    elif name is not None:
        found.append(field_problem(INVALID, f"{path}.nodeName", name, empty_name))
    if selector is not None:
        chosen.append("`nodeSelector`")
        check_node_selector(found, selector, f"{path}.nodeSelector")
    if all_nodes:
        chosen.append("`allNodes`")
    elif all_nodes is not None:
        found.append(field_problem(INVALID, f"{path}.allNodes", all_nodes, _TRUE_OR_UNSET))
    return chosen


def _check_device(found: Found, device: Part, path: str, per_device: bool) -> None:
    check_label(found, name_of(device), f"{path}.name")
    attributes, capacity = device.get("attributes") or {}, device.get("capacity") or {}
    count = len(attributes) + len(capacity)
    if count > _MAX_ATTRIBUTES:
        why = f"the total number of attributes and capacities must not exceed {_MAX_ATTRIBUTES}"
        found.append(field_problem(INVALID, path, count, why))
    for name, attribute in sorted(attributes.items()):
        check_qualified_name(found, name, f"{path}.attributes")
        _check_attribute(found, attribute, f"{path}.attributes[{_shortened(name)}]")
    for name, amount in sorted(capacity.items()):
        check_qualified_name(found, name, f"{path}.capacity")
        where = f"{path}.capacity[{_shortened(name)}]"
        _check_capacity(found, amount, where, bool(device.get("allowMultipleAllocations")))
    check_list(found, device.get("taints"), f"{path}.taints", _MAX_TAINTS, check_device_taint)
    check_list(
        found,
        device.get("consumesCounters"),
        f"{path}.consumesCounters",
        _MAX_CONSUMPTIONS,
        _check_consumption,
        lambda each: each.get("counterSet", ""),
    )
    if per_device:
        chosen = _check_selections(found, device, path, "must not be empty")
        if not chosen:
            found.append(field_problem(REQUIRED, path, detail=_ONE_OF_DEVICE))
        elif len(chosen) > 1:
            text = f"{{{', '.join(chosen)}}}"
            found.append(field_problem(INVALID, path, text, _ONE_OF_DEVICE))
    elif any(device.get(field) is not None for field in _SELECTIONS):
        found.append(field_problem(INVALID, path, None, _NOT_PER_DEVICE))
    check_binding_conditions(found, device, path)


def _shortened(key: str) -> str:
    """A key as paths of errors have it: a long one without its middle."""
    if len(key) <= _LONGEST_KEY:
        return key
    left = _LONGEST_KEY - 3
    return f"{key[: (left + 1) // 2]}...{key[len(key) - left // 2 :]}"


def _check_attribute(found: Found, attribute: Part, path: str) -> None:
    text, version = attribute.get("string"), attribute.get("version")
    if text is not None and len(text.encode()) > _MAX_VALUE:
        found.append(too_long(f"{path}.string", _MAX_VALUE))
    if version is not None:
        if _is_version(version) is None:
            why = "must be a string compatible with semver.org spec 2.0.0"
            found.append(field_problem(INVALID, f"{path}.version", version, why))
        if len(version.encode()) > _MAX_VALUE:
            found.append(too_long(f"{path}.version", _MAX_VALUE))
    if len(attribute) != 1:
        value: Any = attribute or ""
        found.append(field_problem(INVALID, path, value, "exactly one value must be specified"))


def _check_capacity(found: Found, capacity: Part, path: str, shared: bool) -> None:
    policy, where = capacity.get("requestPolicy"), f"{path}.requestPolicy"
    if policy is None:
        return
    if not shared:
        why = "allowMultipleAllocations must be true"
        found.append(field_problem(FORBIDDEN, where, detail=why))
        return
    values, span, default = policy.get("validValues"), policy.get("validRange"), policy.get("default")
    if values and span is not None:
        why = (
            'exactly one policy can be specified, cannot specify "validValues" and "validRange" at the '
            "same time"
        )
        found.append(field_problem(FORBIDDEN, where, detail=why))
    elif values:
        if default is None:
            why = "required when validValues is defined"
            found.append(field_problem(REQUIRED, f"{where}.default", detail=why))
        else:
            _check_valid_values(found, capacity["value"], default, values, f"{where}.validValues")
    elif span is not None:
        if default is None:
            why = "required when validRange is defined"
            found.append(field_problem(REQUIRED, f"{where}.default", detail=why))
        else:
            _check_range(found, capacity["value"], default, span, f"{where}.validRange")


def _check_valid_values(found: Found, most: Any, default: Any, values: list[Any], path: str) -> None:
    amounts = [parse(value) for value in values]
    for i in range(1, len(values)):
        if amounts[i - 1] > amounts[i]:
            why = "values must be sorted in ascending order"
            found.append(field_problem(INVALID, f"{path}[{i}]", values[i], why))

    def check(found: Found, value: Any, path: str) -> None:
        if parse(value) > parse(most):
            why = f"option is larger than capacity value: {most}"
            found.append(field_problem(INVALID, path, value, why))

    def whole_units(value: Any) -> str:
        return str(-(-parse(value) // NANO))

    check_list(found, values, path, _MAX_VALID_VALUES, check, whole_units)
    if parse(default) not in amounts:
        why = "default value is not valid according to the requestPolicy"
        found.append(field_problem(INVALID, path, default, why))


def _check_range(found: Found, most: Any, default: Any, span: Part, path: str) -> None:
    least, top, step = span.get("min"), span.get("max"), span.get("step")
    if least is None:
        why = "required when validRange is defined"
        found.append(field_problem(REQUIRED, f"{path}.min", detail=why))
        return

    def wrong(field: str, value: Any, why: str) -> None:
        found.append(field_problem(INVALID, f"{path}.{field}", value, why))

    if parse(least) > parse(most):
        wrong("min", least, f"min is larger than capacity value: {most}")
    if parse(default) < parse(least):
        wrong("default", default, f"default is less than min: {least}")
    if top is not None:
        if parse(least) > parse(top):
            wrong("max", least, f"min is larger than max: {top}")
        if parse(top) > parse(most):
            wrong("max", top, f"max is larger than capacity value: {most}")
        if parse(default) > parse(top):
            wrong("default", default, f"default is more than max: {top}")
    if step is None:
        return
    if parse(step) <= 0:
        wrong("step", step, "must be greater than zero")
        return
    if parse(least) + parse(step) > parse(most):
        wrong("step", step, f"one step {least}+{step} is larger than capacity value: {most}")
    for value in (default, top):
        if value is not None and (parse(value) - parse(least)) % parse(step):
            wrong("step", value, f"value is not a multiple of a given step ({step}) from ({least})")


def _check_counter_set(found: Found, counter_set: Part, path: str) -> None:
    _check_counters(found, counter_set, path, "name")


def _check_consumption(found: Found, consumption: Part, path: str) -> None:
    _check_counters(found, consumption, path, "counterSet")


def _check_counters(found: Found, part: Part, path: str, field: str) -> None:
    name, counters = part.get(field, ""), part.get("counters") or {}
    if name:
        check_label(found, name, f"{path}.{field}")
    else:
        found.append(field_problem(REQUIRED, f"{path}.{field}"))
    if not counters:
        found.append(field_problem(REQUIRED, f"{path}.counters"))
        return
    if len(counters) > _MAX_COUNTERS:
        check_list(found, [*counters], f"{path}.counters", _MAX_COUNTERS, check_label)
        return
    for name in sorted(counters):
        check_label(found, name, f"{path}.counters")
