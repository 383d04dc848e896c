"""CustomResourceDefinitions: which names they get, and what a well-formed one has."""

from __future__ import annotations

import re
from typing import Any

from holdfast.api.raw_objects import Raw
from holdfast.machinery.object_request import WriteRequest
from holdfast.machinery.schema import FieldError
from holdfast.machinery.schema import field_errors as fields
from holdfast.machinery.schema.catalogue import crd_warnings
from holdfast.machinery.strategies.strategy import Strategy, keep_status, spec_of

GROUP = "apiextensions.k8s.io"
KIND = "CustomResourceDefinition"
CLEANUP = "customresourcecleanup.apiextensions.k8s.io"
_MOST_SELECTABLE = 8
_TOKENS = re.compile(r"[.\[\]]|[^.\[\]]+")
_TYPES = ("string", "boolean", "integer")


def _named(raw: Raw) -> Raw:
    """With the names that follow from the others."""
    spec = dict(raw.get("spec") or {})
    names = dict(spec.get("names") or {})
    kind = names.get("kind")
    if kind:
        if not names.get("listKind"):
            names["listKind"] = f"{kind}List"
        if not names.get("singular"):
            names["singular"] = kind.lower()
    spec["names"] = names
    if not spec.get("conversion"):
        spec["conversion"] = {"strategy": "None"}
    return {**raw, "spec": spec}


def _new(request: WriteRequest, raw: Raw) -> Raw:
    raw = _named(raw)
    _warn(request, raw)
    return {**raw, "status": _status(request, raw, {})}


def _changed(request: WriteRequest, before: Raw, after: Raw) -> Raw:
    after = keep_status(request, before, _named(after))
    _warn(request, after)
    return {**after, "status": _status(request, after, before.get("status") or {})}


def _warn(request: WriteRequest, raw: Raw) -> None:
    """Rules that are not evaluated are no secret."""
    for text in crd_warnings(raw):
        request.warn(text)


def _status(request: WriteRequest, raw: Raw, before: Raw) -> Raw:
    """Names are accepted at once unless another definition of the group has them."""
    spec = raw.get("spec") or {}
    versions = [each for each in spec.get("versions") or [] if isinstance(each, dict)]
    storage = [each.get("name", "") for each in versions if each.get("storage")]
    kept = [each for each in before.get("storedVersions") or [] if each not in storage]
    conflict = _conflict(request, raw)
    return {
        "conditions": _conditions(request.stamp(), conflict, before.get("conditions") or []),
        "acceptedNames": spec.get("names") if not conflict else {"plural": "", "kind": ""},
        "storedVersions": [*kept, *storage],
    }


def _conflict(request: WriteRequest, raw: Raw) -> tuple[str, str] | None:
    """The reason and message, if another definition of the group has one of the names."""
    spec = raw.get("spec") or {}
    ours = spec.get("names") or {}
    for other in request.store.scan(GROUP, KIND):
        theirs = (other.get("status") or {}).get("acceptedNames") or {}
        if other["metadata"]["name"] == raw["metadata"].get("name"):
            continue
        if (other.get("spec") or {}).get("group") != spec.get("group"):
            continue
        taken = {theirs.get("plural"), theirs.get("singular"), *(theirs.get("shortNames") or ())}
        kinds = {theirs.get("kind"), theirs.get("listKind")}
        for field, reason, used in (
            ("kind", "KindConflict", kinds),
            ("listKind", "ListKindConflict", kinds),
            ("plural", "PluralConflict", taken),
            ("singular", "SingularConflict", taken),
        ):
            if ours.get(field) and ours[field] in used:
                return reason, f'"{ours[field]}" is already in use'
        for short in ours.get("shortNames") or ():
            if short in taken:
                return "ShortNamesConflict", f'"{short}" is already in use'
    return None


def _conditions(now: str, conflict: tuple[str, str] | None, before: list[Raw]) -> list[Raw]:
    if conflict is None:
        accepted = ("True", "NoConflicts", "no conflicts found")
        established = ("True", "InitialNamesAccepted", "the initial names have been accepted")
    else:
        accepted = ("False", *conflict)
        established = ("False", "NotAccepted", "not all names are accepted")
        if any(each["type"] == "Established" and each["status"] == "True" for each in before):
            established = ("True", "InitialNamesAccepted", "the initial names have been accepted")
    wanted = {"NamesAccepted": accepted, "Established": established}
    return [_condition(type, state, now, before) for type, state in wanted.items()]


def _condition(type: str, state: tuple[str, str, str], now: str, before: list[Raw]) -> Raw:
    status, reason, message = state
    same = next((each for each in before if (each["type"], each["status"]) == (type, status)), None)
    return {
        "type": type,
        "status": status,
        "lastTransitionTime": same["lastTransitionTime"] if same is not None else now,
        "reason": reason,
        "message": message,
    }


def is_established(raw: Raw) -> bool:
    conditions = (raw.get("status") or {}).get("conditions") or []
    return any(each["type"] == "Established" and each["status"] == "True" for each in conditions)


def _check_new(request: WriteRequest, raw: Raw) -> list[FieldError]:
    spec = raw.get("spec") or {}
    names, group = spec.get("names") or {}, spec.get("group") or ""
    found: list[FieldError] = []
    wanted = f"{names.get('plural', '')}.{group}"
    if raw["metadata"].get("name") != wanted:
        why = 'must be spec.names.plural+"."+spec.group'
        found.append(fields.invalid("metadata.name", raw["metadata"].get("name") or "", why))
    for path, value in (
        ("spec.group", group),
        ("spec.scope", spec.get("scope")),
        ("spec.names.plural", names.get("plural")),
        ("spec.names.kind", names.get("kind")),
    ):
        if not value:
            found.append(fields.required(path))
    if spec.get("scope") and spec["scope"] not in ("Cluster", "Namespaced"):
        found.append(fields.not_supported("spec.scope", spec["scope"], ("Cluster", "Namespaced")))
    return found + _check_versions(spec)


def _check_versions(spec: Raw) -> list[FieldError]:
    versions = [each for each in spec.get("versions") or [] if isinstance(each, dict)]
    found: list[FieldError] = []
    seen: set[str] = set()
    for i, version in enumerate(versions):
        name = version.get("name") or ""
        if name in seen:
            found.append(fields.invalid("spec.versions", name, "must contain unique version names"))
        seen.add(name)
        if not (version.get("schema") or {}).get("openAPIV3Schema"):
            path = f"spec.versions[{i}].schema.openAPIV3Schema"
            found.append(fields.required(path, "schemas are required"))
        found += _check_selectable_fields(version, f"spec.versions[{i}]")
    if sum(bool(each.get("storage")) for each in versions) != 1:
        why = "must have exactly one version marked as storage version"
        found.append(fields.invalid("spec.versions", versions, why))
    if (spec.get("conversion") or {}).get("strategy") not in (None, "None"):
        value = spec["conversion"].get("strategy")
        found.append(fields.not_supported("spec.conversion.strategy", value, ("None",)))
    return found


def _check_selectable_fields(version: Raw, path: str) -> list[FieldError]:
    """Checks the selectable fields of one version; `path` is its path in the definition."""
    schema = (version.get("schema") or {}).get("openAPIV3Schema") or {}
    listed = version.get("selectableFields") or ()
    known: set[str] = set()
    found: list[FieldError] = []
    for i, each in enumerate(listed):
        field, json_path = f"{path}.selectableFields[{i}].jsonPath", each.get("jsonPath")
        if not json_path:
            found.append(fields.required(field))
            continue
        target, why = _field_at(schema, json_path)
        if target is None:
            found.append(fields.invalid(field, json_path, f"is an invalid path: {why}"))
            continue
        if json_path.startswith(".metadata."):
            found.append(fields.invalid(field, json_path, "must not point to fields in metadata"))
        if target.get("type") not in _TYPES:
            why = (
                "must point to a field of type string, boolean or integer. Enum string fields and "
                "strings with formats are allowed."
            )
            found.append(fields.invalid(field, json_path, why))
        if json_path in known:
            found.append(fields.duplicate(field, json_path))
        known.add(json_path)
    if len(known) > _MOST_SELECTABLE:
        text = f"Too many: {len(known)}: must have at most {_MOST_SELECTABLE} items"
        found.append(FieldError(fields.TOO_MANY, f"{path}.selectableFields", text))
    return found


def _field_at(schema: Raw, json_path: str) -> tuple[Raw | None, str]:
    """The schema of the field a path leads to; or why it leads nowhere."""
    here: Any = schema
    tokens = _TOKENS.findall(json_path)
    while tokens:
        token = tokens.pop(0)
        if token == "[":
            return None, "array notation is not allowed"
        if token != ".":
            return None, f"expected [ or . but got: {token}"
        if not tokens:
            return None, "unexpected end of JSON path"
        name = tokens.pop(0)
        if here.get("properties") is not None:
            here = here["properties"].get(name)
        else:
            here = here.get("additionalProperties")
        if not isinstance(here, dict):
            return None, "does not refer to a valid field"
    return here, ""


def _check_changed(request: WriteRequest, before: Raw, after: Raw) -> list[FieldError]:
    was, now = before.get("spec") or {}, after.get("spec") or {}
    found = [
        fields.invalid(f"spec.{name}", now.get(name), "field is immutable")
        for name in ("group", "scope")
        if was.get(name) != now.get(name)
    ]
    old_names, new_names = was.get("names") or {}, now.get("names") or {}
    for name in ("kind", "plural") if is_established(before) else ("plural",):
        if old_names.get(name) != new_names.get(name):
            value = new_names.get(name)
            found.append(fields.invalid(f"spec.names.{name}", value, "field is immutable"))
    return found or _check_new(request, after)


DEFINITION = Strategy(
    generation_of=spec_of,
    deletion_finalizers=(CLEANUP,),
    unconditional_update=False,
    new=_new,
    changed=_changed,
    check_new=_check_new,
    check_changed=_check_changed,
)
