"""How ownership moves when an object changes.

Taking a field by force or by an update takes it from whoever had it; a field that is gone is owned by
no one. An applier that no longer mentions a field it owned removes it, unless somebody else owns it
too.
"""

from __future__ import annotations

from typing import Any

from holdfast.api.errors import HoldfastError
from holdfast.server.patch import fields as f
from holdfast.server.patch.compare import compare
from holdfast.server.patch.errors import ApplyConflict, Cause
from holdfast.server.patch.fields import Fields
from holdfast.server.patch.managers import UPDATE, Managed, Manager, Owned
from holdfast.server.patch.merging import merged, removed
from holdfast.server.patch.typed import ABSENT, field_set
from holdfast.server.schema.shapes import Shape

Conflicts = dict[Manager, Fields]


class Conflicting(HoldfastError):
    def __init__(self, conflicts: Conflicts) -> None:
        super().__init__("conflicts")
        self.conflicts = conflicts


def updated(
    shape: Shape, live: Any, new: Any, managed: Managed, ignored: Fields
) -> tuple[Managed, Fields]:
    """Who owns what after an update, and the fields the updater has gained by it."""
    managed, changed, gained = _taken(shape, live, new, managed, None, ignored, force=True)
    return managed, f.without(f.union(changed, gained), ignored)


def applied(
    shape: Shape,
    live: Any,
    config: Any,
    managed: Managed,
    manager: Manager,
    api_version: str,
    ignored: Fields,
    force: bool,
) -> tuple[Any, Managed]:
    """The object after an apply, and who owns what; raises `Conflicting`."""
    new = merged(shape, live, config)
    last = managed.get(manager)
    owned = f.without(field_set(shape, config), ignored)
    managed = dict(managed)
    managed[manager] = Owned(owned, api_version, last.time if last is not None else None)
    if last is not None and last.fields:
        new = _pruned(shape, new, managed, last.fields)
    managed, _, _ = _taken(shape, live, new, managed, manager, ignored, force)
    return new, managed


def _taken(
    shape: Shape,
    live: Any,
    new: Any,
    managed: Managed,
    by: Manager | None,
    ignored: Fields,
    force: bool,
) -> tuple[Managed, Fields, Fields]:
    comparison = compare(shape, live, new)
    lost = f.without(comparison.removed, ignored)
    changed = f.without(comparison.modified, ignored)
    gained = f.without(comparison.added, ignored)
    if not (lost or changed or gained):
        kept = {manager: owned for manager, owned in managed.items() if owned.fields}
        return kept, changed, gained
    touched = f.union(changed, gained)
    conflicts: Conflicts = {}
    after: Managed = {}
    for manager, owned in managed.items():
        left = owned.fields
        if manager != by:
            taken = f.intersection(left, touched)
            if taken:
                conflicts[manager] = taken
                left = f.difference(left, taken)
            if f.intersection(left, lost):
                left = f.difference(left, lost)
        if left:
            unchanged = left is owned.fields
            after[manager] = owned if unchanged else owned._replace(fields=left, entry=None)
    if conflicts and not force:
        raise Conflicting(conflicts)
    return after, changed, gained


def _pruned(shape: Shape, new: Any, managed: Managed, last: Fields) -> Any:
    """Without what the applier owned, does not mention any more, and nobody else owns."""
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
    """In Kubernetes' words: each field, and whom it would be taken from."""
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


__all__ = ["ABSENT", "Conflicting", "applied", "conflict_error", "updated"]
