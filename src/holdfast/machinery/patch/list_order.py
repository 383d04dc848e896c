"""The order of merged lists: what the patch says first, then where things stood before."""

from __future__ import annotations

from typing import Any

from holdfast.machinery.patch.fields import PatchError

_GONE: Any = object()


def positions(items: list[Any], merge_key: str) -> dict[Any, int]:
    """Where in a list the item with each key is, by its `hashable`; the first, if there are more."""
    found: dict[Any, int] = {}
    for i, item in enumerate(items):
        found.setdefault(hashable(_name(item, merge_key)), i)
    return found


def hashable(value: Any) -> Any:
    """What stands for a key in a set: itself, unless it is a list or map, which no key should be."""
    return repr(value) if value.__class__ in (dict, list) else value


def _name(item: Any, merge_key: str) -> Any:
    if not merge_key:
        return item
    return item.get(merge_key, _GONE) if isinstance(item, dict) else _GONE


def in_order(merged: list[Any], wanted: list[Any], before: list[Any], merge_key: str) -> list[Any]:
    """Items the patch names in its order, the others put among them where they were before."""
    places: dict[Any, int] = {}
    for i, item in enumerate(wanted):
        places.setdefault(_hashable(_name(item, merge_key)), i)
    old_places: dict[Any, int] = {}
    for i, item in enumerate(before):
        old_places.setdefault(_hashable(_name(item, merge_key)), i)
    named: list[Any] = []
    others: list[Any] = []
    for item in merged:
        if merge_key and merge_key not in item:
            raise PatchError(no_merge_key(item, merge_key), code=500)
        in_patch = _hashable(_name(item, merge_key)) in places
        (named if in_patch else others).append(item)
    named.sort(key=lambda item: places[_hashable(_name(item, merge_key))])
    others.sort(key=lambda item: old_places.get(_hashable(_name(item, merge_key)), len(before)))
    result: list[Any] = []
    i = 0
    for item in named:
        here = old_places.get(_hashable(_name(item, merge_key)))
        while i < len(others):
            there = old_places.get(_hashable(_name(others[i], merge_key)))
            if here is None or there is None or there > here:
                break
            result.append(others[i])
            i += 1
        result.append(item)
    return result + others[i:]


def _hashable(value: Any) -> Any:
    return (value.__class__, value) if isinstance(value, str | int | float) else repr(value)


def check(patch: list[Any], order: list[Any], merge_key: str) -> None:
    """What the patch has must be in the order it gives, and in that order."""
    if not patch or not order:
        return
    here = [item for item in patch if _directive(item) != "delete"]
    i = j = 0
    while i < len(here) and j < len(order):
        if _directive(here[i]) is not _GONE:
            i += 1
            continue
        for one in (here[i], order[j]):
            if merge_key and not (isinstance(one, dict) and merge_key in one):
                raise PatchError(no_merge_key(one, merge_key), code=500)
        if _name(here[i], merge_key) == _name(order[j], merge_key):
            i += 1
        j += 1
    if i < len(here):
        text = (
            f"The order in patch list:\n{go_text(patch)}\n doesn't match $setElementOrder list:\n"
            f"{go_text(order)}\n"
        )
        raise PatchError(text, code=500)


def _directive(item: Any) -> Any:
    return item.get("$patch", _GONE) if isinstance(item, dict) else _GONE


def holds_maps(*lists: list[Any]) -> bool:
    """Whether the items are maps; all of them must be of one kind."""
    kinds = {_kind(item) for items in lists for item in items}
    if "list" in kinds:
        raise PatchError("lists of lists are not supported", code=422)
    if len(kinds) > 1:
        text = f"list element types are not identical: {go_text([list(items) for items in lists])}"
        raise PatchError(text, code=500)
    return kinds == {"map"}


def _kind(item: Any) -> str:
    if isinstance(item, dict):
        return "map"
    if isinstance(item, list):
        return "list"
    return type(item).__name__


def no_merge_key(item: Any, merge_key: str) -> str:
    return f"map: {go_text(item)} does not contain declared merge key: {merge_key}"


def go_text(value: Any) -> str:
    """A value as Go prints it: `map[a:1 b:[x y]]`."""
    if value is None:
        return "<nil>"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, dict):
        return "map[" + " ".join(f"{key}:{go_text(value[key])}" for key in sorted(value)) + "]"
    if isinstance(value, list):
        return "[" + " ".join(map(go_text, value)) + "]"
    return str(value)


def go_type(value: Any) -> str:
    if isinstance(value, dict):
        return "map[string]interface {}"
    if isinstance(value, list):
        return "[]interface {}"
    names = {bool: "bool", int: "int64", float: "float64", str: "string"}
    return names.get(type(value), "%!s(<nil>)")
