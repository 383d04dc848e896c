"""Default values, as an API server sets them before validation.

A default belongs to a type wherever it occurs: a container in a Deployment's template gets the same
defaults as one in a pod. Outer parts come first, and `default_values` has what is set in each. Types
are compiled once into nested functions. Custom kinds have the defaults of their schema.
"""

from __future__ import annotations

from collections.abc import Callable
from threading import Lock
from typing import Any

from holdfast.api.memo import Memo
from holdfast.machinery.schema.custom.pruning import defaulted
from holdfast.machinery.schema.default_values import COMPUTED, PLAIN
from holdfast.machinery.schema.shapes import FieldShape
from holdfast.machinery.schema.types import ResourceType


def apply_defaults(type: ResourceType, raw: dict[str, Any]) -> dict[str, Any]:
    """The object with the defaults of its type; the same object if there is nothing to add."""
    if not type.definition:
        return defaulted(type, raw)
    fill = defaulter(type.shape)
    if fill is None:
        return raw
    if type.definition == _POD:
        return _defaulted_pod(raw, fill)
    filled: dict[str, Any] = fill(raw)
    return filled


_POD = "io.k8s.api.core.v1.Pod"
_known_specs: Memo[int, tuple[Any, Any]] = Memo(1024)
"""Pod specs with and without defaults, by the identity of the latter, which the entry keeps alive."""


def _defaulted_pod(raw: dict[str, Any], fill: Fill) -> dict[str, Any]:
    """Pods of one template share their spec: it is filled once, and they share the result."""
    spec = raw.get("spec")
    known = _known_specs.get(id(spec))
    if known is None:
        filled: dict[str, Any] = fill(raw)
        if spec is not None:
            _known_specs[id(spec)] = (spec, filled["spec"])
        return filled
    # The defaults of a pod are all in its spec.
    return {**raw, "spec": known[1]}


Fill = Callable[[Any], Any]
"""Returns a part of an object with defaults; the part itself if there is nothing to add."""

_known: dict[int, Fill | None] = {}
"""Compiled functions by the identity of their shape."""
_unfinished: dict[int, Fill | None] = {}
_compiling = Lock()


def defaulter(shape: FieldShape) -> Fill | None:
    """The compiled function for a shape; None if neither it nor a part of it has defaults."""
    key = id(shape)
    if key not in _known:
        with _compiling:
            _defaulter(shape)
            _known.update(_unfinished)
    return _known[key]


def _defaulter(shape: FieldShape) -> Fill | None:
    key = id(shape)
    if key not in _unfinished:
        _unfinished[key] = None
        _unfinished[key] = _compile(shape)
    return _unfinished[key]


def _compile(shape: FieldShape) -> Fill | None:
    if shape.kind == "list" and shape.items is not None:
        item = _defaulter(shape.items)
        return None if item is None else _each(item)
    if shape.kind != "struct":
        return None
    name = shape.name.removeprefix("io.k8s.api.")
    inner = [(field, fill) for field, part in shape.fields.items() if (fill := _defaulter(part))]
    return _struct(PLAIN.get(name), COMPUTED.get(name), inner)


def _each(fill: Fill) -> Fill:
    def fill_each(items: list[Any]) -> list[Any]:
        if items is None:
            return items
        filled = [fill(item) for item in items]
        return items if all(map(_is, filled, items)) else filled

    return fill_each


def _is(a: Any, b: Any) -> bool:
    return a is b


def _struct(
    plain: dict[str, Any] | None, computed: Fill | None, inner: list[tuple[str, Fill]]
) -> Fill | None:
    if plain is None and computed is None and not inner:
        return None

    def fill_struct(part: Any) -> Any:
        if part.__class__ is not dict:
            return part
        filled = part
        if computed is not None:
            filled = computed(filled)
        if plain is not None:
            missing = {
                name: value for name, value in plain.items() if filled.get(name, "") in ("", None)
            }
            if missing and any(filled.get(name) != value for name, value in missing.items()):
                filled = {**filled, **missing}
        for name, fill in inner:
            old = filled.get(name)
            if old is not None:
                new = fill(old)
                if new is not old:
                    if filled is part:
                        filled = dict(part)
                    filled[name] = new
        return filled

    return fill_struct
