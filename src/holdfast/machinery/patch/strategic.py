"""Strategic merge patch: a merge patch that knows which lists are merged, and by which key.

Directives in a patch:

    $patch: delete | replace          in a map or an item of a list
    $retainKeys: [a, b]               a map loses every other key
    $setElementOrder/list: […]        the order a merged list ends up in
    $deleteFromPrimitiveList/list     values to take out of a merged list of plain values

Custom kinds have no strategies and refuse it (415), as Kubernetes does.
"""

from __future__ import annotations

from typing import Any

from holdfast.machinery.patch.fields import PatchError, go_text, go_type
from holdfast.machinery.schema.shapes import UNTYPED, FieldShape
from holdfast.machinery.schema.types import ResourceType

_PATCH = "$patch"
_RETAIN = "$retainKeys"
_ORDER = "$setElementOrder"
_DELETE = "$deleteFromPrimitiveList"

Raw = dict[str, Any]
_GONE: Any = object()


def strategic_merge(type: ResourceType, raw: Raw, patch: Any) -> Raw:
    """The patched object; what the patch does not mention is shared with the old one."""
    if not type.builtin:
        text = (
            "the body of the request was in an unknown format - accepted media types include: "
            "application/json-patch+json, application/merge-patch+json, application/apply-patch+yaml"
        )
        raise PatchError(text, code=415, reason="UnsupportedMediaType")
    if not isinstance(patch, dict):
        raise PatchError("json: cannot unmarshal into Go value of type map[string]interface {}")
    return _merged(type.shape, raw, patch)


def _merged(shape: FieldShape, raw: Raw, patch: Raw) -> Raw:
    if _PATCH in patch:
        return _as_directed(patch)
    raw, patch = _retaining(dict(raw), dict(patch))
    for key in [key for key in patch if key.startswith(_ORDER)]:
        _put_in_order(shape, raw, patch, key)
    for key, value in patch.items():
        name = key
        deleting = key.startswith(_DELETE)
        if deleting:
            name = _name_in(key, _DELETE)
        if value is None:
            raw.pop(name, None)
            continue
        old = raw.get(name, _GONE)
        if old is _GONE or old.__class__ is not value.__class__:
            if not deleting:
                _put(raw, name, _plain(_without_nulls(value)))
        elif isinstance(value, dict):
            part = shape.field(name) or UNTYPED
            raw[name] = value if "replace" in part.strategies else _merged(part, old, value)
        elif isinstance(value, list):
            raw[name] = _merged_list(shape.field(name) or UNTYPED, old, value, deleting)
        else:
            raw[name] = value
    return raw


def _as_directed(patch: Raw) -> Raw:
    directive = patch[_PATCH]
    if directive == "replace":
        return {key: value for key, value in patch.items() if key != _PATCH}
    if directive == "delete":
        return {}
    raise _internal(f"unknown patch type: {directive} in map: {go_text(patch)}")


def _retaining(raw: Raw, patch: Raw) -> tuple[Raw, Raw]:
    if _RETAIN not in patch:
        return raw, patch
    kept = patch.pop(_RETAIN)
    bad = PatchError("invalid patch format of retainKeys")
    if not isinstance(kept, list):
        raise bad
    names = {hashable(key) for key in kept}
    for key, value in patch.items():
        if value is not None and not key.startswith((_DELETE, _ORDER)) and key not in names:
            raise bad
    return {key: value for key, value in raw.items() if key in names}, patch


def _put_in_order(shape: FieldShape, raw: Raw, patch: Raw, key: str) -> None:
    """Merges one list in the order of its `$setElementOrder`, and removes it from `patch`."""
    order = patch.pop(key)
    name = _name_in(key, _ORDER)
    if not isinstance(order, list):
        raise _internal(f"expected a []interface {{}}, but received a {go_type(order)}")
    part = shape.field(name) or UNTYPED
    old, new = raw.get(name), patch.get(name)
    for items in [found[name] for found in (raw, patch) if name in found]:
        if not isinstance(items, list):
            raise _internal(f"expected a []interface {{}}, but received a {go_type(items)}")
    merge_key = part.merge_key or ""
    check_order(new or [], order, merge_key)
    if old is None and new is None:
        patch.pop(name, None)
        return
    if new is None:
        merged = old or []
    elif old is None:
        merged = _plain(new)
    else:
        merged = _merged_list(part, old, new, False)
    raw[name] = in_order(merged, order, old or [], merge_key)
    patch.pop(name, None)


def _merged_list(shape: FieldShape, old: list[Any], new: list[Any], deleting: bool) -> list[Any]:
    if not deleting and "merge" not in shape.strategies:
        return new
    if not old and not new:
        return old
    if not holds_maps(old, new):
        if deleting:
            unwanted = set(new)
            return [item for item in old if item not in unwanted]
        return in_order([*dict.fromkeys([*old, *new])], new, old, "")
    merge_key = shape.merge_key
    if not merge_key:
        raise _internal(f"cannot merge lists without merge key for {go_type(old[:1])}")
    old, new = _special_items(old, new, merge_key)
    merged = list(old)
    places = positions(merged, merge_key)
    for item in new:
        if merge_key not in item:
            raise _internal(no_merge_key(item, merge_key))
        name = hashable(item[merge_key])
        i = places.get(name)
        if i is None:
            places[name] = len(merged)
            merged.append(item)
        else:
            merged[i] = _merged(shape.items or UNTYPED, merged[i], item)
    return in_order(merged, new, old, merge_key)


def _special_items(old: list[Any], new: list[Any], merge_key: str) -> tuple[list[Any], list[Any]]:
    """Applies the items with a `$patch` directive; the other items remain to be merged."""
    rest: list[Any] = []
    unwanted: set[Any] = set()
    replace = False
    for item in new:
        directive = item.get(_PATCH, _GONE)
        if directive is _GONE:
            rest.append(item)
        elif directive == "delete":
            if merge_key not in item:
                raise _internal(no_merge_key(item, merge_key))
            unwanted.add(hashable(item[merge_key]))
        elif directive == "replace":
            replace = True
        elif directive == "merge":
            raise _internal("merging lists cannot yet be specified in the patch")
        else:
            raise _internal(f"unknown patch type: {directive} in map: {go_text(item)}")
    if replace:
        return rest, []
    if unwanted:
        old = [one for one in old if hashable(one.get(merge_key, _GONE)) not in unwanted]
    return old, rest


def _put(raw: Raw, name: str, value: Any) -> None:
    if value is _GONE:
        raw.pop(name, None)
    else:
        raw[name] = value


def _plain(value: Any) -> Any:
    """A new part without the directives in it; one that is itself a directive is gone."""
    if isinstance(value, dict):
        if _PATCH in value:
            return _GONE
        plain = {key: _plain(inner) for key, inner in value.items()}
        return {key: inner for key, inner in plain.items() if inner is not _GONE}
    if isinstance(value, list):
        return [inner for inner in map(_plain, value) if inner is not _GONE]
    return value


def _without_nulls(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _without_nulls(inner) for key, inner in value.items() if inner is not None}
    if isinstance(value, list):
        return [_without_nulls(inner) for inner in value]
    return value


def _name_in(key: str, prefix: str) -> str:
    before, slash, name = key.partition("/")
    if before != prefix or not slash:
        what = "primitive list" if prefix == _DELETE else "setElementOrder list"
        raise PatchError(f"invalid patch format of {what}")
    return name


def _internal(text: str) -> PatchError:
    return PatchError(text, code=500)


def positions(items: list[Any], merge_key: str) -> dict[Any, int]:
    """The index of the first item with each merge key (made `hashable`)."""
    found: dict[Any, int] = {}
    for i, item in enumerate(items):
        found.setdefault(hashable(_name(item, merge_key)), i)
    return found


def hashable(value: Any) -> Any:
    """A merge key as a key of a dict; lists and maps, which are not valid keys, as text."""
    return repr(value) if value.__class__ in (dict, list) else value


def _name(item: Any, merge_key: str) -> Any:
    if not merge_key:
        return item
    return item.get(merge_key, _GONE) if isinstance(item, dict) else _GONE


def in_order(merged: list[Any], wanted: list[Any], before: list[Any], merge_key: str) -> list[Any]:
    """The merged list: items of the patch in its order, the others among them where they were
    before."""
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


def check_order(patch: list[Any], order: list[Any], merge_key: str) -> None:
    """Items of the patch must be in `$setElementOrder`, in that order. Raises PatchError."""
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
    """Whether the items are maps. Raises PatchError unless all are of one kind."""
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
