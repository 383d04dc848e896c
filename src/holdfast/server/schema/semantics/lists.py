"""Lists in schemas: which say that they are sets or maps, and have what that takes."""

from __future__ import annotations

from typing import Any

from holdfast.server.schema.problems import (
    FORBIDDEN,
    INVALID,
    REQUIRED,
    Problem,
    field_problem,
    not_supported,
)

Found = list[Problem]
Schema = dict[str, Any]

_NEEDS_DEFAULT = (
    "this property is in x-kubernetes-list-map-keys, so it must have a default or be a required "
    "property"
)
_KINDS = ("atomic", "set", "map")


def check_list_type(found: Found, schema: Schema, path: str) -> None:
    kind, keys = schema.get("x-kubernetes-list-type"), schema.get("x-kubernetes-list-map-keys") or []
    items = schema.get("items")
    where = f"{path}.x-kubernetes-list-type"
    if kind is not None:
        said = schema.get("type", "")
        if said != "array":
            why = "must be array if x-kubernetes-list-type is specified"
            found.append(field_problem(INVALID if said else REQUIRED, f"{path}.type", said, why))
        elif kind == "set" and isinstance(items, dict):
            _check_set_items(found, items, f"{path}.items")
        if kind not in _KINDS:
            found.append(not_supported(where, kind, _KINDS))
    if keys and kind != "map":
        why = "must be map if x-kubernetes-list-map-keys is non-empty"
        found.append(field_problem(REQUIRED if kind is None else INVALID, where, kind, why))
    if kind == "map":
        _check_keys(found, schema, keys, path)
    if kind in ("set", "map") and isinstance(items, dict) and items.get("nullable"):
        why = f"cannot be nullable when x-kubernetes-list-type is {kind}"
        found.append(field_problem(FORBIDDEN, f"{path}.items.nullable", detail=why))


def _check_set_items(found: Found, items: Schema, path: str) -> None:
    why = "must be atomic as item of a list with x-kubernetes-list-type=set"
    inner = items.get("x-kubernetes-list-type")
    if items.get("type") == "array" and inner not in (None, "atomic"):
        found.append(field_problem(INVALID, f"{path}.x-kubernetes-list-type", inner, why))
    if items.get("type") == "object" and items.get("x-kubernetes-map-type") != "atomic":
        found.append(field_problem(INVALID, f"{path}.x-kubernetes-map-type", inner, why))


def _check_keys(found: Found, schema: Schema, keys: list[str], path: str) -> None:
    where = f"{path}.x-kubernetes-list-map-keys"
    if not keys:
        why = "must not be empty if x-kubernetes-list-type is map"
        found.append(field_problem(REQUIRED, where, detail=why))
    items = schema.get("items")
    if not isinstance(items, dict):
        why = "must have a schema if x-kubernetes-list-type is map"
        found.append(field_problem(REQUIRED, f"{path}.items", detail=why))
        return
    if items.get("type") != "object":
        why = "must be object if parent array's x-kubernetes-list-type is map"
        found.append(field_problem(INVALID, f"{path}.items.type", items.get("type", ""), why))
        return
    fields = items.get("properties") or {}
    for i, key in enumerate(keys):
        place = f"{path}.items.properties[{key}]"
        if key in keys[:i]:
            found.append(field_problem(INVALID, where, keys, "must not contain duplicate entries"))
        if key not in fields:
            why = "entries must all be names of item properties"
            found.append(field_problem(INVALID, where, keys, why))
            continue
        if fields[key].get("type") in ("array", "object"):
            why = "must be a scalar type if parent array's x-kubernetes-list-type is map"
            found.append(field_problem(INVALID, f"{place}.type", items["type"], why))
        if key not in (items.get("required") or ()) and "default" not in fields[key]:
            found.append(field_problem(REQUIRED, f"{place}.default", detail=_NEEDS_DEFAULT))
        if fields[key].get("nullable"):
            why = "this property is in x-kubernetes-list-map-keys, so it cannot be nullable"
            found.append(field_problem(FORBIDDEN, f"{place}.nullable", detail=why))
