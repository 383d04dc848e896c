"""Fields of the CustomResourceDefinitions."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from holdfast.api.crds import definitions
from reference_pages.markdown import code, page, table

Raw = dict[str, Any]

_INTRODUCTION = """\
`holdfast crds` prints the definitions, `deploy/crds` has them as files, and
[Deploying](../deploying.md#customresourcedefinitions) says how they relate to those of Koordinator and Volcano.
`kubectl explain reservation.spec` shows the same fields on a cluster. `[]` is an item of a list, `*` any key.
"""
_WHOLE = {
    "spec.template": "A PodTemplateSpec of Kubernetes: `metadata` and `spec` of the pod that the capacity is for. "
    "Containers need a name only; everything that scheduling reads counts.",
    "spec.reservationOptions.template": "`metadata` and `spec` of the reservation, where they should differ from "
    "the pod's.",
}
"""Fields whose own fields are not listed, with what they are."""


def text() -> str:
    return page(
        "Custom resources", _INTRODUCTION, *(part for each in definitions() for part in _kind(each))
    )


def _kind(definition: Raw) -> Iterator[str]:
    spec = definition["spec"]
    names, [version] = spec["names"], spec["versions"]
    yield f"## {names['kind']} ({spec['group']})\n"
    short = ", ".join(map(code, names.get("shortNames", ()))) or "none"
    yield (
        f"`apiVersion: {spec['group']}/{version['name']}`, {spec['scope'].lower()}-scoped, plural "
        f"`{names['plural']}`, short names: {short}.\n"
    )
    schema = version["schema"]["openAPIV3Schema"]
    rows = [
        row for row in _fields(schema, "") if row[0] not in ("`apiVersion`", "`kind`", "`metadata`")
    ]
    yield table(("field", "type", "meaning"), rows)
    rules = [each["message"] for each in _rules(schema) if "message" in each]
    if rules:
        yield "The API server also rejects objects for these reasons:\n"
        yield "".join(f"* {rule}\n" for rule in dict.fromkeys(rules))


def _fields(schema: Raw, path: str) -> Iterator[tuple[str, str, str]]:
    required = schema.get("required", ())
    for name, field in schema.get("properties", {}).items():
        here = f"{path}.{name}" if path else name
        about = _WHOLE.get(here) or field.get("description", "")
        notes = [about, "Required." if name in required else "", *_notes(field)]
        yield code(here), _type(field), " ".join(note for note in notes if note)
        if here not in _WHOLE and name != "metadata":
            yield from _inside(field, here)


def _inside(field: Raw, path: str) -> Iterator[tuple[str, str, str]]:
    if "items" in field:
        yield from _inside(field["items"], f"{path}[]")
    elif isinstance(field.get("additionalProperties"), dict):
        yield from _inside(field["additionalProperties"], f"{path}.*")
    else:
        yield from _fields(field, path)


def _notes(field: Raw) -> Iterator[str]:
    if "enum" in field:
        yield f"One of {', '.join(code(each) if each else 'empty' for each in field['enum'])}."
    if "default" in field:
        yield f"Default {code(_value(field['default']))}."


def _value(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _type(field: Raw) -> str:
    if field.get("x-kubernetes-int-or-string"):
        return "integer or string"
    kind = str(field.get("type", "any"))
    if kind == "array":
        return f"list of {_type(field['items'])}"
    if isinstance(field.get("additionalProperties"), dict):
        return f"map of {_type(field['additionalProperties'])}"
    return str(field["format"]) if field.get("format") in ("date-time",) else kind


def _rules(schema: object) -> Iterator[Raw]:
    if isinstance(schema, dict):
        yield from schema.get("x-kubernetes-validations", ())
        for name, part in schema.items():
            if name != "x-kubernetes-validations":
                yield from _rules(part)
    elif isinstance(schema, list):
        for part in schema:
            yield from _rules(part)
