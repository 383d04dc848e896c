"""The rules of PodGroups and Workloads of `scheduling.k8s.io`: values, and what an update may change.

Only `minCount` of a gang may change. Templates of a Workload follow the rules of the PodGroups that are
made of them. Composite groups are not served: what belongs to them is dropped when it is written.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any

from holdfast.api.name_rules import dns_label, dns_subdomain, label_key, path_segment
from holdfast.api.plurals import number_of
from holdfast.machinery.schema.field_errors import (
    DUPLICATE,
    INVALID,
    TOO_MANY,
    FieldError,
    field_problem,
    forbidden,
    invalid,
    quoted,
    required,
)
from holdfast.machinery.validation.device_fields import check_conditions

Found = list[FieldError]
Part = dict[str, Any]
Rule = Callable[[str], tuple[str, ...]]

_HIGHEST = 1_000_000_000
"""The highest priority of a class that users define."""
_MOST_TEMPLATES = 8
_MOST_CLAIMS = 4
_POLICIES = ("basic", "gang")
_MODES = ("single", "all")
_CLAIMS = ("resourceClaimName", "resourceClaimTemplateName")
_TEMPLATES = ("podGroupTemplates", "compositePodGroupTemplates")
_ORDER = ("name", "schedulingPolicy", "schedulingConstraints")
_FIXED = ("schedulingConstraints", "resourceClaims", "disruptionMode", "priorityClassName", "priority")


def check_group(found: Found, raw: Part) -> None:
    spec = raw.get("spec") or {}
    reference = spec.get("workloadRef")
    if reference is not None:
        _check_name(found, reference, "workloadName", "spec.workloadRef", _long_name)
        _check_name(found, reference, "templateName", "spec.workloadRef", _short_name)
    _check_rules(found, spec, "spec")


def check_status(found: Found, raw: Part) -> None:
    """The status of a PodGroup."""
    spec, status = raw.get("spec") or {}, raw.get("status") or {}
    check_conditions(found, status.get("conditions"), "status.conditions", math.inf)
    claims = [claim.get("name") for claim in spec.get("resourceClaims") or ()]
    path, statuses = "status.resourceClaimStatuses", status.get("resourceClaimStatuses") or []
    for i, each in enumerate(statuses):
        if each.get("name") not in claims:
            why = "must match the name of an entry in `spec.resourceClaims`"
            found.append(invalid(f"{path}[{i}].name", each.get("name", ""), why))
    if not _check_list(found, statuses, path, _MOST_CLAIMS):
        return
    for i, each in enumerate(statuses):
        name = each.get("resourceClaimName")
        if name is not None:
            where = f"{path}[{i}].resourceClaimName"
            found.extend(invalid(where, name, why) for why in _long_name(name))


def check_workload(found: Found, raw: Part) -> None:
    spec = raw.get("spec") or {}
    _check_one_of(found, {k: spec.get(k) or None for k in _TEMPLATES}, "spec", _TEMPLATES)
    controller = spec.get("controllerRef")
    if controller is not None:
        where = "spec.controllerRef"
        group = controller.get("apiGroup")
        if group:
            found.extend(invalid(f"{where}.apiGroup", group, why) for why in dns_subdomain(group))
        _check_name(found, controller, "kind", where, path_segment)
        _check_name(found, controller, "name", where, path_segment)
    path, templates = "spec.podGroupTemplates", spec.get("podGroupTemplates") or []
    is_short = _check_list(found, templates, path, _MOST_TEMPLATES)
    for i, template in enumerate(templates if is_short else ()):
        _check_name(found, template, "name", f"{path}[{i}]", _short_name)
        _check_rules(found, template, f"{path}[{i}]")
    if len({(each.get("priorityClassName", ""), each.get("priority")) for each in templates}) > 1:
        found.append(invalid("spec", None, "detected multiple priority configurations"))


def _check_rules(found: Found, spec: Part, path: str) -> None:
    """The fields that a group and a template share."""
    policy = spec.get("schedulingPolicy") or {}
    _check_one_of(found, policy, f"{path}.schedulingPolicy", _POLICIES)
    gang = policy.get("gang")
    if gang is not None:
        where, count = f"{path}.schedulingPolicy.gang.minCount", gang.get("minCount") or 0
        if not count:
            found.append(required(where))
        elif count < 1:
            found.append(invalid(where, count, "must be greater than or equal to 1"))
    topology = (spec.get("schedulingConstraints") or {}).get("topology") or []
    where = f"{path}.schedulingConstraints.topology"
    if len(topology) > 1:
        found.append(_too_many(where, len(topology), 1))
    for i, constraint in enumerate(topology):
        _check_name(found, constraint, "key", f"{where}[{i}]", label_key)
    claims = spec.get("resourceClaims") or []
    where = f"{path}.resourceClaims"
    is_short = _check_list(found, claims, where, _MOST_CLAIMS)
    for i, claim in enumerate(claims if is_short else ()):
        _check_one_of(found, claim, f"{where}[{i}]", _CLAIMS)
        _check_name(found, claim, "name", f"{where}[{i}]", _short_name)
        for name in _CLAIMS:
            if claim.get(name) is not None:
                found.extend(
                    invalid(f"{where}[{i}].{name}", claim[name], why) for why in _long_name(claim[name])
                )
    if spec.get("disruptionMode") is not None:
        _check_one_of(found, spec["disruptionMode"], f"{path}.disruptionMode", _MODES)
    class_name, priority = spec.get("priorityClassName"), spec.get("priority")
    if class_name:
        where = f"{path}.priorityClassName"
        found.extend(invalid(where, class_name, why) for why in _long_name(class_name))
    if priority is not None and priority > _HIGHEST:
        why = f"must be less than or equal to {_HIGHEST}"
        found.append(invalid(f"{path}.priority", priority, why))


def _short_name(name: str) -> tuple[str, ...]:
    if "." in name and not dns_subdomain(name):
        return ("must not contain dots",)
    return _in_bytes(dns_label(name))


def _long_name(name: str) -> tuple[str, ...]:
    return _in_bytes(dns_subdomain(name))


def _in_bytes(problems: tuple[str, ...]) -> tuple[str, ...]:
    """These kinds count the length of names in bytes."""
    return tuple(
        why.removesuffix("characters") + "bytes" if why.startswith("must be no more than") else why
        for why in problems
    )


def _check_one_of(found: Found, part: Part, path: str, members: tuple[str, ...]) -> None:
    given = [name for name in members if part.get(name) is not None]
    listed = ", ".join(f"`{name}`" for name in members)
    if not given:
        found.append(invalid(path, "", f"must specify one of: {listed}"))
    elif len(given) > 1:
        found.append(invalid(path, f"{{{', '.join(given)}}}", f"must specify exactly one of: {listed}"))


def _check_name(found: Found, part: Part, field: str, path: str, rule: Rule) -> None:
    name, where = part.get(field) or "", f"{path}.{field}"
    if not name:
        found.append(required(where))
    else:
        found.extend(invalid(where, name, why) for why in rule(name))


def _check_list(found: Found, items: list[Part], path: str, most: int) -> bool:
    """Whether it is short enough for its items to be checked."""
    if len(items) > most:
        found.append(_too_many(path, len(items), most))
        return False
    seen: set[str] = set()
    for i, item in enumerate(items):
        name = item.get("name") or ""
        if name in seen:
            found.append(FieldError(DUPLICATE, f"{path}[{i}]", f"Duplicate value: {_shown(item)}"))
        seen.add(name)
    return True


def _shown(item: Part) -> str:
    """An item with its fields in the order in which Kubernetes prints them."""
    known = {name: item[name] for name in _ORDER if name in item}
    fields = {**known, **dict(sorted(item.items()))}
    return "{" + ",".join(f"{quoted(name)}:{quoted(fields[name])}" for name in fields) + "}"


def _too_many(path: str, count: int, most: int) -> FieldError:
    text = f"Too many: {count}: must have at most {number_of(most, 'item')}"
    return FieldError(TOO_MANY, path, text)


# Updates


def group_changes(before: Part, after: Part) -> Found:
    """The errors of an update of a PodGroup's spec."""
    was, now = before.get("spec") or {}, after.get("spec") or {}
    found = _fixed(was, now, ("parentCompositePodGroupName", "workloadRef"), "spec")
    return [*found, *_template_changes(was, now, "spec")]


def workload_changes(before: Part, after: Part) -> Found:
    """The errors of an update of a Workload's spec. Templates can be neither added nor removed."""
    was, now = before.get("spec") or {}, after.get("spec") or {}
    found = list(_fixed(was, now, ("controllerRef",), "spec"))
    path = "spec.podGroupTemplates"
    old = {each.get("name"): each for each in was.get("podGroupTemplates") or ()}
    new = {each.get("name"): i for i, each in enumerate(now.get("podGroupTemplates") or ())}
    found += [
        forbidden(f"{path}[{i}]", "item may not be added") for n, i in new.items() if n not in old
    ]
    found += [forbidden(path, "item may not be removed") for name in old if name not in new]
    for name, i in new.items():
        if name in old:
            found += _template_changes(old[name], now["podGroupTemplates"][i], f"{path}[{i}]")
    return found


def _template_changes(was: Part, now: Part, path: str) -> Iterator[FieldError]:
    old, new = was.get("schedulingPolicy") or {}, now.get("schedulingPolicy") or {}
    yield from _fixed(old, new, ("basic",), f"{path}.schedulingPolicy")
    where = f"{path}.schedulingPolicy.gang"
    if old.get("gang") is None and new.get("gang") is not None:
        yield invalid(where, None, "field cannot be set once created")
    if old.get("gang") is not None and new.get("gang") is None:
        yield invalid(where, None, "field cannot be cleared once set")
    yield from _fixed(was, now, _FIXED, path)


def _fixed(was: Part, now: Part, fields: tuple[str, ...], path: str) -> Iterator[FieldError]:
    for name in fields:
        if was.get(name) != now.get(name):
            yield field_problem(INVALID, f"{path}.{name}", None, "field is immutable")
