"""Lists that are sets or maps hold nothing twice."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from holdfast.server.schema.problems import DUPLICATE, Problem, field_problem

Check = Callable[[Any, str, list[Problem]], None]


def list_checks(schema: dict[str, Any]) -> list[Check]:
    kind = schema.get("x-kubernetes-list-type")
    if kind == "set":
        return [_unique(lambda item: item)]
    if kind == "map":
        keys = tuple(schema.get("x-kubernetes-list-map-keys") or ())
        return [_unique(lambda item: _keys_of(item, keys))]
    return []


def _keys_of(item: Any, keys: tuple[str, ...]) -> Any:
    if not isinstance(item, dict):
        return item
    return {key: item[key] for key in keys if key in item}


def _unique(name: Callable[[Any], Any]) -> Check:
    def check_unique(value: Any, path: str, problems: list[Problem]) -> None:
        if value.__class__ is not list:
            return
        seen: set[str] = set()
        told: set[str] = set()
        for i, item in enumerate(value):
            named = name(item)
            text = json.dumps(named, sort_keys=True)
            if text in seen and text not in told:
                problems.append(field_problem(DUPLICATE, f"{path}[{i}]", named))
                told.add(text)
            seen.add(text)

    return check_unique
