"""Server-side apply, and keeping `managedFields` while others update."""

from __future__ import annotations

from typing import Any

import msgspec

from holdfast.server.patch import fields as f
from holdfast.server.patch import managers, ownership
from holdfast.server.patch.compare import compare, same
from holdfast.server.patch.configuration import mistakes_in
from holdfast.server.patch.creation import created_fields
from holdfast.server.patch.errors import PatchError
from holdfast.server.patch.fields import LEAF, Fields
from holdfast.server.patch.managers import APPLY, UPDATE, Managed, Manager, Owned
from holdfast.server.patch.typed import NotComparable, field_set
from holdfast.server.schema.decoding import read
from holdfast.server.schema.types import ResourceType

Raw = dict[str, Any]
_empty: dict[str, Raw] = {}
LAST_APPLIED = "kubectl.kubernetes.io/last-applied-configuration"
_MAX_ANNOTATIONS = 256 * 1024

_SYSTEM_METADATA = """name namespace creationTimestamp selfLink uid clusterName generation
    managedFields resourceVersion"""
_NEVER_OWNED: Fields = {
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
            type.shape, live, bare, _reconciled(type, managed), ignored_fields(type, subresource)
        )
    except NotComparable:
        return bare
    gained = f.difference(gained, _NEVER_OWNED)
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


def apply(
    type: ResourceType,
    live: Raw | None,
    config: Raw,
    manager: str,
    force: bool,
    time: str,
    subresource: str = "",
) -> Raw:
    """The live object with an applied configuration; raises `ApplyConflict` or `PatchError`.

    `live` None creates. The answer has still to be read, defaulted and validated.
    """
    _check_config(type, config)
    created = live is None
    if live is None:
        live = _new_object(type, config)
    try:
        managed = managers.decode((live.get("metadata") or {}).get("managedFields"))
    except managers.BadManagedFields as error:
        raise PatchError(f"failed to decode managed fields: {error}", code=500) from None
    bare = without_managed_fields(live)
    if not managed and not created:
        managed = _before_first_apply(type, bare, time)
    managed = _reconciled(type, managed)
    identity = Manager(manager or "unknown", APPLY, "", subresource)
    ignored = ignored_fields(type, subresource)

    def attempt(force: bool) -> tuple[Any, Managed]:
        return ownership.applied(
            type.shape, bare, config, managed, identity, type.api_version, ignored, force
        )

    try:
        try:
            new, after = attempt(force)
        except ownership.Conflicting as conflict:
            conflicts = _not_ours_already(type, bare, manager, conflict.conflicts)
            if conflicts:
                raise ownership.conflict_error(conflicts) from None
            new, after = attempt(True)
    except NotComparable as error:
        text = f"failed to create typed live object ({_described(type, config)}): {error.message}"
        raise PatchError(text, code=500) from None
    if not isinstance(new, dict):
        new = {}
    own = f.difference(after[identity].fields, _NEVER_OWNED) if identity in after else {}
    after.pop(identity, None)
    if own:
        entry = managed.get(identity)
        changed = created or not same(new, bare)
        when = time if changed else (entry.time if entry is not None else None)
        after[identity] = Owned(own, type.api_version, when)
    if manager == "kubectl":
        new = _with_last_applied(new, config)
    return with_managed_fields(new, after)


def _reconciled(type: ResourceType, managed: Managed) -> Managed:
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


_STATUS_IGNORES: dict[str, Fields] = {
    "Pod": {"f:metadata": {"f:deletionTimestamp": LEAF, "f:ownerReferences": LEAF}},
    "Deployment": {"f:metadata": {"f:labels": LEAF}},
    "VolumeAttachment": {"f:metadata": LEAF},
    "CustomResourceDefinition": {"f:metadata": LEAF},
}


def empty_object(type: ResourceType) -> Raw:
    """What an object of this type is before anything was said of it."""
    if type.definition:
        empty = _empty.get(type.definition)
        if empty is None:
            empty = _empty[type.definition] = read(type.definition, {})[0]
        return empty
    return {"apiVersion": type.api_version, "kind": type.kind}


def _new_object(type: ResourceType, config: Raw) -> Raw:
    given = config.get("metadata") or {}
    metadata = {name: given[name] for name in ("name", "namespace") if name in given}
    return {**empty_object(type), "metadata": metadata}


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


def _before_first_apply(type: ResourceType, live: Raw, time: str) -> Managed:
    """An object nobody has tracked so far: what it has belongs to those before."""
    tracked = track_update(type, None, live, "before-first-apply", "", time)
    return managers.decode(tracked["metadata"].get("managedFields"))


def _check_config(type: ResourceType, config: Raw) -> None:
    version, kind = config.get("apiVersion"), config.get("kind")
    if kind != type.kind or version != type.api_version:
        group, _, number = str(version or "").rpartition("/")
        raise PatchError(f"invalid object type: {group}/{number}, Kind={kind or ''}")
    if (config.get("metadata") or {}).get("managedFields") is not None:
        raise PatchError("metadata.managedFields must be nil")
    mistakes = mistakes_in(type.shape, config)
    if mistakes:
        text = f"failed to create typed patch object ({_described(type, config)}): {mistakes}"
        raise PatchError(text, code=500)


def _described(type: ResourceType, config: Raw) -> str:
    metadata = config.get("metadata") or {}
    version = f"{type.group}/{type.version}"
    return f"{metadata.get('namespace', '')}/{metadata.get('name', '')}; {version}, Kind={type.kind}"


def _not_ours_already(
    type: ResourceType, live: Raw, manager: str, conflicts: ownership.Conflicts
) -> ownership.Conflicts:
    """Without the conflicts kubectl has with its own client-side past.

    What the last-applied annotation says and the object still has was applied by kubectl before it
    learned to apply on the server.
    """
    annotations = (live.get("metadata") or {}).get("annotations") or {}
    text = annotations.get(LAST_APPLIED)
    if manager != "kubectl" or not text:
        return conflicts
    try:
        last = msgspec.json.decode(text)
        if not isinstance(last, dict) or last.get("apiVersion") != type.api_version:
            return conflicts
        comparison = compare(type.shape, last, live)
        ours = field_set(type.shape, last)
    except (msgspec.DecodeError, NotComparable):
        return conflicts
    for changed in comparison:
        ours = f.difference(ours, changed)
    left = {manager: f.difference(taken, ours) for manager, taken in conflicts.items()}
    return {manager: taken for manager, taken in left.items() if taken}


def _with_last_applied(new: Raw, config: Raw) -> Raw:
    """Keep the annotation of client-side apply up to date, so that either way can be used next."""
    metadata = new.get("metadata") or {}
    annotations = metadata.get("annotations") or {}
    if not annotations.get(LAST_APPLIED):
        return new
    given = config.get("metadata") or {}
    mentioned = given.get("annotations")
    if isinstance(mentioned, dict) and LAST_APPLIED in mentioned:
        rest = {name: value for name, value in mentioned.items() if name != LAST_APPLIED}
        config = {**config, "metadata": {**given, "annotations": rest}}
    text = msgspec.json.encode(config, order="sorted").decode() + "\n"
    annotations = {**annotations, LAST_APPLIED: text}
    if sum(len(name) + len(value) for name, value in annotations.items()) > _MAX_ANNOTATIONS:
        del annotations[LAST_APPLIED]
    return {**new, "metadata": {**metadata, "annotations": annotations}}
