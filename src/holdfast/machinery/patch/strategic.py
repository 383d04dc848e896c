"""Strategic merge patch: a merge patch that knows which lists are merged, and by which key.

A patch may say more than its values do:

    $patch: delete | replace          in a map or an item of a list
    $retainKeys: [a, b]               a map loses every other key
    $setElementOrder/list: […]        the order a merged list ends up in
    $deleteFromPrimitiveList/list     values to take out of a merged list of plain values

Custom kinds have no strategies and refuse it (415), as Kubernetes does.
"""

from __future__ import annotations

from typing import Any

from holdfast.machinery.patch import list_order as ordering
from holdfast.machinery.patch.fields import PatchError
from holdfast.machinery.patch.list_order import go_text, no_merge_key
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
    names = {ordering.hashable(key) for key in kept}
    for key, value in patch.items():
        if value is not None and not key.startswith((_DELETE, _ORDER)) and key not in names:
            raise bad
    return {key: value for key, value in raw.items() if key in names}, patch


def _put_in_order(shape: FieldShape, raw: Raw, patch: Raw, key: str) -> None:
    """Merge one list as the patch says, in the order it says; taken out of `patch` when done."""
    order = patch.pop(key)
    name = _name_in(key, _ORDER)
    if not isinstance(order, list):
        raise _internal(f"expected a []interface {{}}, but received a {ordering.go_type(order)}")
    part = shape.field(name) or UNTYPED
    old, new = raw.get(name), patch.get(name)
    for items in [found[name] for found in (raw, patch) if name in found]:
        if not isinstance(items, list):
            raise _internal(f"expected a []interface {{}}, but received a {ordering.go_type(items)}")
    merge_key = part.merge_key or ""
    ordering.check(new or [], order, merge_key)
    if old is None and new is None:
        patch.pop(name, None)
        return
    if new is None:
        merged = old or []
    elif old is None:
        merged = _plain(new)
    else:
        merged = _merged_list(part, old, new, False)
    raw[name] = ordering.in_order(merged, order, old or [], merge_key)
    patch.pop(name, None)


def _merged_list(shape: FieldShape, old: list[Any], new: list[Any], deleting: bool) -> list[Any]:
    if not deleting and "merge" not in shape.strategies:
        return new
    if not old and not new:
        return old
    if not ordering.holds_maps(old, new):
        if deleting:
            unwanted = set(new)
            return [item for item in old if item not in unwanted]
        return ordering.in_order([*dict.fromkeys([*old, *new])], new, old, "")
    merge_key = shape.merge_key
    if not merge_key:
        raise _internal(f"cannot merge lists without merge key for {ordering.go_type(old[:1])}")
    old, new = _special_items(old, new, merge_key)
    merged = list(old)
    positions = ordering.positions(merged, merge_key)
    for item in new:
        if merge_key not in item:
            raise _internal(no_merge_key(item, merge_key))
        name = ordering.hashable(item[merge_key])
        i = positions.get(name)
        if i is None:
            positions[name] = len(merged)
            merged.append(item)
        else:
            merged[i] = _merged(shape.items or UNTYPED, merged[i], item)
    return ordering.in_order(merged, new, old, merge_key)


def _special_items(old: list[Any], new: list[Any], merge_key: str) -> tuple[list[Any], list[Any]]:
    """Items that say `$patch` are carried out; the others are left to be merged."""
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
            unwanted.add(ordering.hashable(item[merge_key]))
        elif directive == "replace":
            replace = True
        elif directive == "merge":
            raise _internal("merging lists cannot yet be specified in the patch")
        else:
            raise _internal(f"unknown patch type: {directive} in map: {go_text(item)}")
    if replace:
        return rest, []
    if unwanted:
        old = [one for one in old if ordering.hashable(one.get(merge_key, _GONE)) not in unwanted]
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
