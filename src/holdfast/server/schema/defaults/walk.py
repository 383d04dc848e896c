"""Going through an object to every part whose type has defaults, outer parts first."""

from __future__ import annotations

from collections.abc import Callable
from threading import Lock
from typing import Any

from holdfast.server.schema.defaults.computed import COMPUTED
from holdfast.server.schema.defaults.tables import PLAIN
from holdfast.server.schema.shapes import Shape

Fill = Callable[[Any], Any]
"""A part of an object to the same part with defaults: itself if there was nothing to add."""

_known: dict[int, Fill | None] = {}
"""Finished ones, by the identity of their shape."""
_unfinished: dict[int, Fill | None] = {}
_compiling = Lock()


def defaulter(shape: Shape) -> Fill | None:
    """What fills in parts of this shape; None when neither it nor anything in it has defaults."""
    key = id(shape)
    if key not in _known:
        with _compiling:
            _defaulter(shape)
            _known.update(_unfinished)
    return _known[key]


def _defaulter(shape: Shape) -> Fill | None:
    key = id(shape)
    if key not in _unfinished:
        _unfinished[key] = None
        _unfinished[key] = _compile(shape)
    return _unfinished[key]


def _compile(shape: Shape) -> Fill | None:
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
