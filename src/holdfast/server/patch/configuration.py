"""Whether an applied configuration fits its type, before anything is done with it.

What an update would be told by the decoder, apply is told here, in the words of the library that
merges in Kubernetes: the path is that of managed fields, and all mistakes are told at once.
"""

from __future__ import annotations

from typing import Any

from holdfast.server.patch.fields import path_step
from holdfast.server.patch.ordering import go_text, go_type
from holdfast.server.patch.typed import NotComparable, element_of, expected_kind
from holdfast.server.schema.shapes import UNTYPED, Shape

Mistakes = list[tuple[str, str]]


def mistakes_in(shape: Shape, config: Any) -> str:
    """What is wrong with a configuration, as one text; "" when nothing is."""
    found: Mistakes = []
    _check(found, shape, config, "")
    if not found:
        return ""
    lines = [f"{path}: {text}" if path else text for path, text in sorted(found)]
    return lines[0] if len(lines) == 1 else "\n  ".join(["errors:", *lines])


def _check(found: Mistakes, shape: Shape, value: Any, path: str) -> None:
    if value is None:
        return
    kind = expected_kind(shape, value)
    if kind == "map":
        _check_map(found, shape, value, path)
    elif kind == "list":
        _check_list(found, shape, value, path)
    elif shape.kind != "any":
        _check_scalar(found, shape.kind, value, path)


def _check_map(found: Mistakes, shape: Shape, value: Any, path: str) -> None:
    if not isinstance(value, dict):
        found.append((path, f"expected map, got &{{{go_text(value)}}}"))
        return
    for name in sorted(value):
        part = shape.fields.get(name) or shape.values
        if part is None:
            found.append((f"{path}.{name}", "field not declared in schema"))
            return
        _check(found, part, value[name], f"{path}.{name}")


def _check_list(found: Mistakes, shape: Shape, value: Any, path: str) -> None:
    if not isinstance(value, list):
        found.append((path, f"expected list, got &{{{go_text(value)}}}"))
        return
    items = shape.items or UNTYPED
    seen: set[str] = set()
    for i, item in enumerate(value):
        step = f"[{i}]"
        if shape.list_type != "atomic" and shape.kind != "any":
            try:
                element = element_of(shape, item)
            except NotComparable as error:
                found.append((path, f"element {i}: {error.message}"))
                return
            step = path_step(element)
            if element in seen:
                found.append((path, f"duplicate entries for key {step}"))
            seen.add(element)
        _check(found, items, item, path + step)


def _check_scalar(found: Mistakes, kind: str, value: Any, path: str) -> None:
    if kind == "string" and not isinstance(value, str):
        got = f"&value.valueUnstructured{{Value:{_go_syntax(value)}}}"
        found.append((path, f"expected string, got {got}"))
    elif kind in ("integer", "number") and (
        isinstance(value, bool) or not isinstance(value, int | float)
    ):
        found.append((path, f"expected numeric (int or float), got {go_type(value)}"))
    elif kind == "boolean" and not isinstance(value, bool):
        found.append((path, f"expected boolean, got &{{{go_text(value)}}}"))
    elif kind == "untyped" and isinstance(value, dict | list):
        found.append((path, f"expected any scalar, got &{{{go_text(value)}}}"))


def _go_syntax(value: Any) -> str:
    if isinstance(value, dict):
        inner = ", ".join(f'"{name}":{_go_syntax(value[name])}' for name in sorted(value))
        return f"map[string]interface {{}}{{{inner}}}"
    if isinstance(value, list):
        return f"[]interface {{}}{{{', '.join(map(_go_syntax, value))}}}"
    return f'"{value}"' if isinstance(value, str) else go_text(value)
