"""Server-side apply."""

from __future__ import annotations

from typing import Any

from holdfast.server.patch import fields as f
from holdfast.server.patch import managers, ownership
from holdfast.server.patch.compare import same
from holdfast.server.patch.configuration import mistakes_in
from holdfast.server.patch.errors import PatchError
from holdfast.server.patch.last_applied import not_ours_already, with_last_applied
from holdfast.server.patch.managers import APPLY, Managed, Manager, Owned
from holdfast.server.patch.tracking import (
    NEVER_OWNED,
    empty_object,
    ignored_fields,
    reconciled,
    track_update,
    with_managed_fields,
    without_managed_fields,
)
from holdfast.server.patch.typed import NotComparable
from holdfast.server.schema.types import ResourceType

Raw = dict[str, Any]


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
    managed = reconciled(type, managed)
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
            conflicts = not_ours_already(type, bare, manager, conflict.conflicts)
            if conflicts:
                raise ownership.conflict_error(conflicts) from None
            new, after = attempt(True)
    except NotComparable as error:
        text = f"failed to create typed live object ({_described(type, config)}): {error.message}"
        raise PatchError(text, code=500) from None
    if not isinstance(new, dict):
        new = {}
    own = f.difference(after[identity].fields, NEVER_OWNED) if identity in after else {}
    after.pop(identity, None)
    if own:
        entry = managed.get(identity)
        changed = created or not same(new, bare)
        when = time if changed else (entry.time if entry is not None else None)
        after[identity] = Owned(own, type.api_version, when)
    if manager == "kubectl":
        new = with_last_applied(new, config)
    return with_managed_fields(new, after)


def _new_object(type: ResourceType, config: Raw) -> Raw:
    given = config.get("metadata") or {}
    metadata = {name: given[name] for name in ("name", "namespace") if name in given}
    return {**empty_object(type), "metadata": metadata}


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
