"""Field managers (`metadata.managedFields`): decoding, owners after a write, apply conflicts.

A manager is identified by its entry without the fields and the time: name, operation, subresource, and
for updates the version it wrote in. A change to a field that another manager owns is a conflict
(`_transfer_ownership`): an update, or an apply by force, takes the field from its owner; another apply
is refused. A removed field has no owner. An applier that no longer has a field it owned removes it,
unless another manager owns it too.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from holdfast.api.errors import HoldfastError, TimeError
from holdfast.api.times import parse_time
from holdfast.machinery.patch import fields as f
from holdfast.machinery.patch.compare import (
    NotComparable,
    compare,
    created_fields,
    field_set,
    merged,
    removed,
)
from holdfast.machinery.patch.fields import LEAF, ApplyConflict, Cause, Fields
from holdfast.machinery.schema.decoding import read
from holdfast.machinery.schema.shapes import FieldShape
from holdfast.machinery.schema.types import ResourceType

Raw = dict[str, Any]

APPLY = "Apply"
UPDATE = "Update"
_MAX_UPDATERS = 10

_empty: dict[str, Raw] = {}
_SYSTEM_METADATA = """name namespace creationTimestamp selfLink uid clusterName generation
    managedFields resourceVersion"""
NEVER_OWNED: Fields = {
    "f:apiVersion": LEAF,
    "f:kind": LEAF,
    "f:metadata": {f.MEMBER: {}, **{f"f:{name}": LEAF for name in _SYSTEM_METADATA.split()}},
}
"""Fields that every object has have no owner."""

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


class Manager(NamedTuple):
    """The identity of an entry. An applier is the same whatever version it applies in."""

    name: str
    operation: str
    api_version: str = ""
    subresource: str = ""


class Owned(NamedTuple):
    """The fields that a manager owns, with API version and time."""

    fields: Fields
    api_version: str
    time: str | None
    entry: dict[str, Any] | None = None
    """The entry it was decoded from, while it is unchanged."""


Managed = dict[Manager, Owned]


class BadManagedFields(HoldfastError, ValueError):
    """An entry that cannot be read."""


def decode_managed_fields(entries: Any) -> Managed:
    """Raises `BadManagedFields`."""
    managed: Managed = {}
    for i, entry in enumerate(entries or ()):
        operation = entry.get("operation")
        if operation not in (APPLY, UPDATE):
            raise BadManagedFields("operation must be `Apply` or `Update`")
        version = entry.get("apiVersion") or ""
        if not version:
            raise BadManagedFields("apiVersion must not be empty")
        kind = entry.get("fieldsType") or ""
        if not kind:
            raise BadManagedFields(f"missing fieldsType in managed fields entry {i}")
        if kind != "FieldsV1":
            raise BadManagedFields(f'invalid fieldsType "{kind}" in managed fields entry {i}')
        manager = Manager(
            entry.get("manager") or "",
            operation,
            version if operation == UPDATE else "",
            entry.get("subresource") or "",
        )
        owned = f.decode(entry.get("fieldsV1") or {})
        managed[manager] = Owned(owned, version, entry.get("time"), entry)
    return managed


def encode_managed_fields(managed: Managed) -> list[dict[str, Any]]:
    entries = [owned.entry or _entry(manager, owned) for manager, owned in managed.items()]
    entries.sort(key=_order)
    return entries


def _entry(manager: Manager, owned: Owned) -> dict[str, Any]:
    entry: dict[str, Any] = {}
    if manager.name:
        entry["manager"] = manager.name
    entry["operation"] = manager.operation
    entry["apiVersion"] = owned.api_version
    if owned.time is not None:
        entry["time"] = owned.time
    entry["fieldsType"] = "FieldsV1"
    entry["fieldsV1"] = f.encode(owned.fields)
    if manager.subresource:
        entry["subresource"] = manager.subresource
    return entry


def _order(entry: dict[str, Any]) -> tuple[Any, ...]:
    return (
        entry["operation"],
        _seconds(entry.get("time")),
        entry.get("manager", ""),
        entry["apiVersion"],
        entry.get("subresource", ""),
    )


def _seconds(time: str | None) -> int:
    if time is None:
        return 0
    try:
        return int(parse_time(time))
    except TimeError:
        return 0


def cap_updaters(managed: Managed) -> Managed:
    """Keeps at most ten updaters: the oldest are merged into `ancient-changes`."""
    updaters = [manager for manager in managed if manager.operation == UPDATE]
    excess = len(updaters) - _MAX_UPDATERS
    if excess <= 0:
        return managed
    managed = dict(managed)
    updaters.sort(key=lambda manager: (_seconds(managed[manager].time), manager))
    first: dict[str, Manager] = {}
    for manager in updaters:
        if excess <= 0:
            break
        owned = managed[manager]
        version = owned.api_version
        if version not in first:
            first[version] = manager
            continue
        bucket = Manager("ancient-changes", UPDATE, version)
        if bucket not in managed:
            managed[bucket] = managed.pop(first[version])
        both = f.union(owned.fields, managed[bucket].fields)
        managed[bucket] = Owned(both, version, owned.time)
        if manager != bucket:
            del managed[manager]
        excess -= 1
    return managed


Conflicts = dict[Manager, Fields]
"""The fields of each manager that an apply would change."""


class Conflicting(HoldfastError):
    """An apply changes fields of other managers; `conflict_error` is the API server's error."""

    def __init__(self, conflicts: Conflicts) -> None:
        super().__init__("conflicts")
        self.conflicts = conflicts


def owners_after_update(
    shape: FieldShape, live: Any, new: Any, managed: Managed, ignored: Fields
) -> tuple[Managed, Fields]:
    """The field owners after an update, and the fields that the updater gained."""
    return _transfer_ownership(shape, live, new, managed, None, ignored, force=True)


def merge_configuration(
    shape: FieldShape,
    live: Any,
    config: Any,
    managed: Managed,
    manager: Manager,
    api_version: str,
    ignored: Fields,
    force: bool,
) -> tuple[Any, Managed]:
    """The object after an apply, and the owners of its fields; raises `Conflicting`."""
    new = merged(shape, live, config)
    last = managed.get(manager)
    owned = f.without(field_set(shape, config), ignored)
    managed = dict(managed)
    managed[manager] = Owned(owned, api_version, last.time if last is not None else None)
    if last is not None and last.fields:
        new = _pruned(shape, new, managed, last.fields)
    managed, _ = _transfer_ownership(shape, live, new, managed, manager, ignored, force)
    return new, managed


def _transfer_ownership(
    shape: FieldShape,
    live: Any,
    new: Any,
    managed: Managed,
    writer: Manager | None,
    ignored: Fields,
    force: bool,
) -> tuple[Managed, Fields]:
    """Takes the fields that differ between `live` and `new` from every manager but `writer`.

    Answers with the owners afterwards and the fields that were added or modified. Without `force` each
    such field of another manager is a conflict, and `Conflicting` is raised. Removed fields never
    conflict: they just lose their owners.
    """
    comparison = compare(shape, live, new)
    removed_fields = f.without(comparison.removed, ignored)
    touched = f.without(f.union(comparison.modified, comparison.added), ignored)
    if not (removed_fields or touched):
        return {manager: owned for manager, owned in managed.items() if owned.fields}, touched
    conflicts: Conflicts = {}
    after: Managed = {}
    for manager, owned in managed.items():
        kept = owned.fields
        if manager != writer:
            taken = f.intersection(kept, touched)
            if taken:
                conflicts[manager] = taken
                kept = f.difference(kept, taken)
            if f.intersection(kept, removed_fields):
                kept = f.difference(kept, removed_fields)
        if kept:
            unchanged = kept is owned.fields
            after[manager] = owned if unchanged else owned._replace(fields=kept, entry=None)
    if conflicts and not force:
        raise Conflicting(conflicts)
    return after, touched


def _pruned(shape: FieldShape, new: Any, managed: Managed, last: Fields) -> Any:
    """Removes what the applier owned, no longer mentions, and no other manager owns."""
    last = f.with_named_fields(last, shape)
    pruned = removed(shape, new, last)
    owned: Fields = {}
    for entry in managed.values():
        owned = f.union(owned, entry.fields)
    everything = f.with_named_fields(field_set(shape, new), shape)
    kept = f.with_named_fields(field_set(shape, pruned if pruned is not None else {}), shape)
    claimed = f.with_named_fields(owned, shape)
    pruned = removed(shape, new, f.difference(everything, f.union(kept, claimed)))
    kept = f.with_named_fields(field_set(shape, pruned if pruned is not None else {}), shape)
    return removed(shape, new, f.intersection(f.difference(everything, kept), last))


def conflict_error(conflicts: Conflicts) -> ApplyConflict:
    """The API server's error for conflicts: each field, with its owner."""
    paths = {manager: list(f.members(taken)) for manager, taken in conflicts.items()}
    causes = [
        Cause(path, f"conflict with {_shown(manager)}") for manager in paths for path in paths[manager]
    ]
    if len(causes) == 1:
        text = f"Apply failed with 1 conflict: {causes[0].message}: {causes[0].field}"
        return ApplyConflict(text, causes)
    lines: list[str] = []
    for manager in sorted(paths):
        lines.append(f"conflicts with {_shown(manager)}:")
        lines.extend(f"- {path}" for path in paths[manager])
    text = f"Apply failed with {len(causes)} conflicts: " + "\n".join(lines)
    return ApplyConflict(text, causes)


def _shown(manager: Manager) -> str:
    text = f'"{manager.name}"'
    if manager.subresource:
        text += f' with subresource "{manager.subresource}"'
    if manager.operation == UPDATE:
        text += f" using {manager.api_version}"
    return text


def track_update(
    type: ResourceType,
    before: Raw | None,
    after: Raw,
    manager: str,
    subresource: str,
    time: str,
) -> Raw:
    """`after` with the `managedFields` that it has once it has replaced `before`.

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
        managed, gained = owners_after_update(
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
    managed = cap_updaters(managed)
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
    """The managed fields of the request if they are valid, else those of the object before."""
    entries = metadata.get("managedFields")
    if entries is not None and not subresource:
        if entries in ([], [{}]):
            return {}
        try:
            managed = decode_managed_fields(entries)
            if managed:
                return managed
        except (BadManagedFields, AttributeError):
            pass
    try:
        return decode_managed_fields(((before or {}).get("metadata") or {}).get("managedFields"))
    except BadManagedFields:
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
    """Fields that a request to this resource cannot change, and so cannot own."""
    if type.subresource("status") is None:
        return f.EMPTY
    if subresource != "status":
        return _STATUS
    more = _STATUS_IGNORES.get(type.kind) if type.builtin else None
    return f.union(_SPEC, more) if more else _SPEC


def empty_object(type: ResourceType) -> Raw:
    """The empty object of this type."""
    if type.definition:
        empty = _empty.get(type.definition)
        if empty is None:
            empty = _empty[type.definition] = read(type.definition, {})[0]
        return empty
    return {"apiVersion": type.api_version, "kind": type.kind}


def keep_times(before: Raw, after: Raw) -> Raw:
    """`after`, with the old times in `managedFields` when those are all that would change.

    So a request that repeats the current state is no change. Compared are objects as they are kept.
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
    metadata = {**(raw.get("metadata") or {}), "managedFields": encode_managed_fields(managed)}
    return {**raw, "metadata": metadata}
