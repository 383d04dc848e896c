"""Keeping `managedFields` while objects are created and updated."""

from __future__ import annotations

from typing import Any

from holdfast.server.patch import fields as f
from holdfast.server.patch import managers, ownership
from holdfast.server.patch.creation import created_fields
from holdfast.server.patch.fields import LEAF, Fields
from holdfast.server.patch.managers import UPDATE, Managed, Manager, Owned
from holdfast.server.patch.typed import NotComparable
from holdfast.server.schema.decoding import read
from holdfast.server.schema.types import ResourceType

Raw = dict[str, Any]

_empty: dict[str, Raw] = {}
_SYSTEM_METADATA = """name namespace creationTimestamp selfLink uid clusterName generation
    managedFields resourceVersion"""
NEVER_OWNED: Fields = {
    "f:apiVersion": LEAF,
    "f:kind": LEAF,
    "f:metadata": {f.MEMBER: {}, **{f"f:{name}": LEAF for name in _SYSTEM_METADATA.split()}},
}
"""What every object has belongs to nobody."""

_SKIPPED: Raw = {
    "apiVersion": None,
    "kind": None,
    "metadata": dict.fromkeys(_SYSTEM_METADATA.split()),
}
_SKIPPED_WITH_STATUS: Raw = {**_SKIPPED, "status": None}

_STATUS: Fields = {"f:status": LEAF}
_SPEC: Fields = {"f:spec": LEAF}
_STATUS_IGNORES: dict[str, Fields] = {
    "Pod": {"f:metadata": {"f:deletionTimestamp": LEAF, "f:ownerReferences": LEAF}},
    "Deployment": {"f:metadata": {"f:labels": LEAF}},
    "VolumeAttachment": {"f:metadata": LEAF},
    "CustomResourceDefinition": {"f:metadata": LEAF},
}


def track_update(
    type: ResourceType,
    before: Raw | None,
    after: Raw,
    manager: str,
    subresource: str,
    time: str,
) -> Raw:
    """`after` with `managedFields` that say who owns what once it has replaced `before`.

    Call it for create (`before` None), update and the patches that are not apply, with the object as
    it was read and defaulted, before admission adds to it. `time` is RFC 3339 in whole seconds.
    """
    metadata = after.get("metadata") or {}
    if before is None and not metadata.get("managedFields"):
        return _created(type, after, manager, subresource, time)
    managed = _managed_before(before, metadata, subresource)
    bare = without_managed_fields(after)
    if before is not None and not managed:
        return bare
    live = empty_object(type) if before is None else without_managed_fields(before)
    try:
        managed, gained = ownership.updated(
            type.shape, live, bare, reconciled(type, managed), ignored_fields(type, subresource)
        )
    except NotComparable:
        return bare
    gained = f.difference(gained, NEVER_OWNED)
    if gained:
        identity = Manager(manager or "unknown", UPDATE, type.api_version, subresource)
        previous = managed.get(identity)
        if previous is not None:
            gained = f.union(gained, previous.fields)
        managed = {**managed, identity: Owned(gained, type.api_version, time)}
    managed = managers.capped(managed)
    return with_managed_fields(bare, managed)


def _created(type: ResourceType, raw: Raw, manager: str, subresource: str, time: str) -> Raw:
    """A new object belongs to its creator."""
    skipped = _SKIPPED_WITH_STATUS if type.subresource("status") is not None else _SKIPPED
    raw = without_managed_fields(raw)
    try:
        owned = created_fields(type.shape, empty_object(type), raw, skipped)
    except NotComparable:
        return raw
    if not owned:
        return raw
    entry: Raw = {
        "manager": manager or "unknown",
        "operation": UPDATE,
        "apiVersion": type.api_version,
        "time": time,
        "fieldsType": "FieldsV1",
        "fieldsV1": owned,
    }
    if subresource:
        entry["subresource"] = subresource
    return {**raw, "metadata": {**(raw.get("metadata") or {}), "managedFields": [entry]}}


def _managed_before(before: Raw | None, metadata: Raw, subresource: str) -> Managed:
    """Who owned what: as the request says, if it says anything that makes sense; else as it was."""
    said = metadata.get("managedFields")
    if said is not None and not subresource:
        if said in ([], [{}]):
            return {}
        try:
            managed = managers.decode(said)
            if managed:
                return managed
        except (managers.BadManagedFields, AttributeError):
            pass
    try:
        return managers.decode(((before or {}).get("metadata") or {}).get("managedFields"))
    except managers.BadManagedFields:
        return {}


def reconciled(type: ResourceType, managed: Managed) -> Managed:
    """A custom kind's schema may have changed since the fields were written."""
    if type.builtin:
        return managed
    result: Managed = {}
    for manager, owned in managed.items():
        fields = f.reconciled(owned.fields, type.shape)
        unchanged = fields is owned.fields
        result[manager] = owned if unchanged else owned._replace(fields=fields, entry=None)
    return result


def ignored_fields(type: ResourceType, subresource: str) -> Fields:
    """What a request to this resource cannot change, and so cannot own."""
    if type.subresource("status") is None:
        return f.EMPTY
    if subresource != "status":
        return _STATUS
    more = _STATUS_IGNORES.get(type.kind) if type.builtin else None
    return f.union(_SPEC, more) if more else _SPEC


def empty_object(type: ResourceType) -> Raw:
    """What an object of this type is before anything was said of it."""
    if type.definition:
        empty = _empty.get(type.definition)
        if empty is None:
            empty = _empty[type.definition] = read(type.definition, {})[0]
        return empty
    return {"apiVersion": type.api_version, "kind": type.kind}


def keep_times(before: Raw, after: Raw) -> Raw:
    """`after`, with the old times in `managedFields` when those are all that would change.

    So a request that says what is so already is no change. Compared are objects as they are kept.
    """
    old = (before.get("metadata") or {}).get("managedFields") or []
    new = (after.get("metadata") or {}).get("managedFields") or []
    if not new or len(old) != len(new) or old == new:
        return after
    timed = [_timed(entry, was.get("time")) for entry, was in zip(new, old, strict=True)]
    if timed != old:
        return after
    kept = {**after, "metadata": {**after["metadata"], "managedFields": old}}
    return before if kept == before else after


def _timed(entry: Raw, time: str | None) -> Raw:
    rest = {name: value for name, value in entry.items() if name != "time"}
    return rest if time is None else {**rest, "time": time}


def without_managed_fields(raw: Raw) -> Raw:
    """The object as clients that do not ask for `managedFields` see it."""
    metadata = raw.get("metadata")
    if not metadata or "managedFields" not in metadata:
        return raw
    rest = {name: value for name, value in metadata.items() if name != "managedFields"}
    return {**raw, "metadata": rest}


def with_managed_fields(raw: Raw, managed: Managed) -> Raw:
    if not managed:
        return raw
    metadata = {**(raw.get("metadata") or {}), "managedFields": managers.encode(managed)}
    return {**raw, "metadata": metadata}
