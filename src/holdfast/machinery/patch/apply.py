"""Server-side apply of a configuration to an object, and the annotation of client-side apply.

`apply` checks the configuration against its type and merges it. Conflicts with other managers are
decided in `managed_fields.merge_configuration`; those of kubectl with its own client-side apply are set
aside here, and the rest is refused with `ApplyConflict`. The errors of a configuration are those of the
library that merges in Kubernetes: paths are those of managed fields, and all are reported at once.
"""

from __future__ import annotations

from typing import Any

import msgspec

from holdfast.machinery.patch import fields as f
from holdfast.machinery.patch.compare import (
    NotComparable,
    compare,
    element_of,
    expected_kind,
    field_set,
    same,
)
from holdfast.machinery.patch.fields import PatchError, go_text, go_type, path_step
from holdfast.machinery.patch.managed_fields import (
    APPLY,
    NEVER_OWNED,
    BadManagedFields,
    Conflicting,
    Conflicts,
    Managed,
    Manager,
    Owned,
    conflict_error,
    decode_managed_fields,
    empty_object,
    ignored_fields,
    merge_configuration,
    reconciled,
    track_update,
    with_managed_fields,
    without_managed_fields,
)
from holdfast.machinery.schema.shapes import UNTYPED, FieldShape
from holdfast.machinery.schema.types import ResourceType

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
        managed = decode_managed_fields((live.get("metadata") or {}).get("managedFields"))
    except BadManagedFields as error:
        raise PatchError(f"failed to decode managed fields: {error}", code=500) from None
    bare = without_managed_fields(live)
    if not managed and not created:
        managed = _before_first_apply(type, bare, time)
    managed = reconciled(type, managed)
    identity = Manager(manager or "unknown", APPLY, "", subresource)
    ignored = ignored_fields(type, subresource)

    def attempt(force: bool) -> tuple[Any, Managed]:
        return merge_configuration(
            type.shape, bare, config, managed, identity, type.api_version, ignored, force
        )

    try:
        try:
            new, after = attempt(force)
        except Conflicting as conflict:
            conflicts = without_client_side_conflicts(type, bare, manager, conflict.conflicts)
            if conflicts:
                raise conflict_error(conflicts) from None
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
    """The owner of all fields of an object that has no managed fields yet."""
    tracked = track_update(type, None, live, "before-first-apply", "", time)
    return decode_managed_fields(tracked["metadata"].get("managedFields"))


def _check_config(type: ResourceType, config: Raw) -> None:
    version, kind = config.get("apiVersion"), config.get("kind")
    if kind != type.kind or version != type.api_version:
        group, _, number = str(version or "").rpartition("/")
        raise PatchError(f"invalid object type: {group}/{number}, Kind={kind or ''}")
    if (config.get("metadata") or {}).get("managedFields") is not None:
        raise PatchError("metadata.managedFields must be nil")
    errors = configuration_errors(type.shape, config)
    if errors:
        text = f"failed to create typed patch object ({_described(type, config)}): {errors}"
        raise PatchError(text, code=500)


def _described(type: ResourceType, config: Raw) -> str:
    metadata = config.get("metadata") or {}
    version = f"{type.group}/{type.version}"
    return f"{metadata.get('namespace', '')}/{metadata.get('name', '')}; {version}, Kind={type.kind}"


FieldErrors = list[tuple[str, str]]


def configuration_errors(shape: FieldShape, config: Any) -> str:
    """The errors of a configuration, as one text; "" if it is valid."""
    found: FieldErrors = []
    _check(found, shape, config, "")
    if not found:
        return ""
    lines = [f"{path}: {text}" if path else text for path, text in sorted(found)]
    return lines[0] if len(lines) == 1 else "\n  ".join(["errors:", *lines])


def _check(found: FieldErrors, shape: FieldShape, value: Any, path: str) -> None:
    if value is None:
        return
    kind = expected_kind(shape, value)
    if kind == "map":
        _check_map(found, shape, value, path)
    elif kind == "list":
        _check_list(found, shape, value, path)
    elif shape.kind != "any":
        _check_scalar(found, shape.kind, value, path)


def _check_map(found: FieldErrors, shape: FieldShape, value: Any, path: str) -> None:
    if not isinstance(value, dict):
        found.append((path, f"expected map, got &{{{go_text(value)}}}"))
        return
    for name in sorted(value):
        part = shape.fields.get(name) or shape.values
        if part is None:
            found.append((f"{path}.{name}", "field not declared in schema"))
            return
        _check(found, part, value[name], f"{path}.{name}")


def _check_list(found: FieldErrors, shape: FieldShape, value: Any, path: str) -> None:
    if not isinstance(value, list):
        found.append((path, f"expected list, got &{{{go_text(value)}}}"))
        return
    items = shape.items or UNTYPED
    seen: set[str] = set()
    for i, item in enumerate(value):
        step = f"[{i}]"
        if shape.list_type != "atomic" and shape.kind != "any":
            try:
                element = element_of(shape, item)
            except NotComparable as error:
                found.append((path, f"element {i}: {error.message}"))
                return
            step = path_step(element)
            if element in seen:
                found.append((path, f"duplicate entries for key {step}"))
            seen.add(element)
        _check(found, items, item, path + step)


def _check_scalar(found: FieldErrors, kind: str, value: Any, path: str) -> None:
    if kind == "string" and not isinstance(value, str):
        got = f"&value.valueUnstructured{{Value:{_go_syntax(value)}}}"
        found.append((path, f"expected string, got {got}"))
    elif kind in ("integer", "number") and (
        isinstance(value, bool) or not isinstance(value, int | float)
    ):
        found.append((path, f"expected numeric (int or float), got {go_type(value)}"))
    elif kind == "boolean" and not isinstance(value, bool):
        found.append((path, f"expected boolean, got &{{{go_text(value)}}}"))
    elif kind == "untyped" and isinstance(value, dict | list):
        found.append((path, f"expected any scalar, got &{{{go_text(value)}}}"))


def _go_syntax(value: Any) -> str:
    if isinstance(value, dict):
        inner = ", ".join(f'"{name}":{_go_syntax(value[name])}' for name in sorted(value))
        return f"map[string]interface {{}}{{{inner}}}"
    if isinstance(value, list):
        return f"[]interface {{}}{{{', '.join(map(_go_syntax, value))}}}"
    return f'"{value}"' if isinstance(value, str) else go_text(value)


LAST_APPLIED = "kubectl.kubernetes.io/last-applied-configuration"
_MAX_ANNOTATIONS = 256 * 1024


def without_client_side_conflicts(
    type: ResourceType, live: Raw, manager: str, conflicts: Conflicts
) -> Conflicts:
    """The conflicts, without those that kubectl has with its own client-side apply: fields of the
    last-applied annotation that the object still has.
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
    except (msgspec.DecodeError, NotComparable, RecursionError):
        return conflicts
    for changed in comparison:
        ours = f.difference(ours, changed)
    left = {manager: f.difference(taken, ours) for manager, taken in conflicts.items()}
    return {manager: taken for manager, taken in left.items() if taken}


def with_last_applied(new: Raw, config: Raw) -> Raw:
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
