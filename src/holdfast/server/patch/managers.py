"""Who owns which fields: `metadata.managedFields`, decoded.

A manager is named by what its entry says apart from the fields and the time: name, operation,
subresource, and for updates the version it wrote in.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from holdfast.api.errors import HoldfastError, TimeError
from holdfast.api.timestamps import parse_time
from holdfast.server.patch import fields as f
from holdfast.server.patch.fields import Fields

APPLY = "Apply"
UPDATE = "Update"
_MAX_UPDATERS = 10


class Manager(NamedTuple):
    """The identity of an entry. An applier is the same whatever version it applies in."""

    name: str
    operation: str
    api_version: str = ""
    subresource: str = ""


class Owned(NamedTuple):
    """What a manager owns, in which version it said so, and when."""

    fields: Fields
    api_version: str
    time: str | None
    entry: dict[str, Any] | None = None
    """What was decoded, as long as nothing of it has changed."""


Managed = dict[Manager, Owned]


class BadManagedFields(HoldfastError, ValueError):
    """An entry that cannot be read."""


def decode(entries: Any) -> Managed:
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


def encode(managed: Managed) -> list[dict[str, Any]]:
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


def capped(managed: Managed) -> Managed:
    """At most ten updaters are told apart: the oldest are put together as `ancient-changes`."""
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
