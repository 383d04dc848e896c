"""Amounts of resources: names, signs, wholes, and requests against limits."""

from __future__ import annotations

from typing import Any

from holdfast.api.quantity import NANO, parse
from holdfast.api.resources import is_extended, is_hugepages, is_native, is_pod_level
from holdfast.server.schema.problems import (
    FORBIDDEN,
    INVALID,
    REQUIRED,
    Problem,
    field_problem,
    not_supported,
)
from holdfast.server.schema.semantics.names import label_key

Found = list[Problem]

_CONTAINER = frozenset({"cpu", "memory", "ephemeral-storage"})
_STANDARD = _CONTAINER | {
    "storage",
    "pods",
    "services",
    "replicationcontrollers",
    "resourcequotas",
    "secrets",
    "configmaps",
    "persistentvolumeclaims",
}
_NEGATIVE = "must be greater than or equal to 0"
_NOT_WHOLE = "must be an integer"


def check_requirements(
    found: Found, resources: dict[str, Any], path: str, whole_pod: bool = False
) -> None:
    limits = resources.get("limits") or {}
    requests = resources.get("requests") or {}
    for name, quantity in limits.items():
        _check_amount(found, name, quantity, f"{path}.limits[{name}]", whole_pod)
    for name, quantity in requests.items():
        _check_amount(found, name, quantity, f"{path}.requests[{name}]", whole_pod)
        _check_against_limit(found, name, quantity, limits, path)
    huge = any(is_hugepages(name) for name in (*limits, *requests))
    if huge and not {"cpu", "memory"} & (limits.keys() | requests.keys()):
        found.append(field_problem(FORBIDDEN, path, detail="HugePages require cpu or memory"))


def _check_against_limit(
    found: Found, name: str, quantity: str, limits: dict[str, str], path: str
) -> None:
    limit = limits.get(name)
    firm = is_hugepages(name) or not is_native(name)
    if limit is None:
        if firm:
            why = "Limit must be set for non overcommitable resources"
            found.append(field_problem(REQUIRED, f"{path}.limits", detail=why))
    elif quantity != limit:
        asked, allowed = parse(quantity), parse(limit)
        if firm and asked != allowed:
            why = f"must be equal to {name} limit of {limit}"
            found.append(field_problem(INVALID, f"{path}.requests", quantity, why))
        elif asked > allowed:
            why = f"must be less than or equal to {name} limit of {limit}"
            found.append(field_problem(INVALID, f"{path}.requests", quantity, why))


def _check_amount(found: Found, name: str, quantity: str, where: str, whole_pod: bool) -> None:
    before = len(found)
    found.extend(field_problem(INVALID, where, name, said) for said in label_key(name))
    if whole_pod:
        if not is_pod_level(name):
            found.append(not_supported(where, name, ("cpu", "hugepages-", "memory")))
    elif "/" not in name:
        if len(found) == before and name not in _STANDARD and not is_hugepages(name):
            why = "must be a standard resource type or fully qualified"
            found.append(field_problem(INVALID, where, name, why))
        if name not in _CONTAINER and not is_hugepages(name):
            why = "must be a standard resource for containers"
            found.append(field_problem(INVALID, where, name, why))
    elif not is_native(name) and not is_extended(name):
        why = "doesn't follow extended resource name standard"
        found.append(field_problem(INVALID, where, name, why))
    check_quantity(found, name, quantity, where)


def check_quantity(found: Found, name: str, quantity: str, where: str) -> None:
    nano = parse(quantity)
    if nano < 0:
        found.append(field_problem(INVALID, where, quantity, _NEGATIVE))
    if is_extended(name) and nano % NANO:
        found.append(field_problem(INVALID, where, quantity, _NOT_WHOLE))
