"""Objects of users' own kinds, selected by fields their definition names."""

from __future__ import annotations

from typing import Any

import pytest

from harness.apiserver import LiveServer

DEFINITIONS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
LAMPS = "/apis/example.org/v1/namespaces/default/lamps"
SPEC = {
    "type": "object",
    "properties": {
        "colour": {"type": "string"},
        "watts": {"type": "integer"},
        "on": {"type": "boolean"},
        "ratio": {"type": "number"},
        "tags": {"type": "object", "additionalProperties": {"type": "string"}},
        "parts": {"type": "array", "items": {"type": "string"}},
    },
}


def definition(paths: list[str], plural: str = "lamps") -> dict[str, Any]:
    version = {
        "name": "v1",
        "served": True,
        "storage": True,
        "schema": {"openAPIV3Schema": {"type": "object", "properties": {"spec": SPEC}}},
        "selectableFields": [{"jsonPath": path} if path else {"jsonPath": ""} for path in paths],
    }
    return {
        "metadata": {"name": f"{plural}.example.org"},
        "spec": {
            "group": "example.org",
            "scope": "Namespaced",
            "names": {"plural": plural, "kind": plural.capitalize()},
            "versions": [version],
        },
    }


@pytest.fixture(scope="module")
def lamps(server: LiveServer) -> LiveServer:
    fields = [".spec.colour", ".spec.watts", ".spec.on", ".spec.tags.room"]
    assert server.post(DEFINITIONS, definition(fields)).code == 201
    for name, spec in {
        "a": {"colour": "red", "watts": 40, "on": True},
        "b": {"colour": "red", "watts": 60, "tags": {"room": "hall"}},
        "c": {"watts": 40, "on": False},
    }.items():
        lamp = {"apiVersion": "example.org/v1", "kind": "Lamps", "metadata": {"name": name}}
        assert server.post(LAMPS, {**lamp, "spec": spec}).code == 201
    return server


@pytest.mark.parametrize(
    ("selector", "names"),
    [
        ("spec.colour%3Dred", ["a", "b"]),
        ("spec.colour%3D", ["c"]),
        ("spec.colour!%3Dred", ["c"]),
        ("spec.watts%3D40", ["a", "c"]),
        ("spec.on%3Dtrue", ["a"]),
        ("spec.tags.room%3Dhall", ["b"]),
        ("spec.colour%3Dred,spec.watts%3D60,metadata.name!%3Da", ["b"]),
    ],
)
def test_lists_are_narrowed(lamps: LiveServer, selector: str, names: list[str]) -> None:
    assert lamps.get(f"{LAMPS}?fieldSelector={selector}").names == names


def test_other_fields_are_refused(lamps: LiveServer) -> None:
    answer = lamps.get(f"{LAMPS}?fieldSelector=spec.ratio%3D1")
    assert (answer.code, answer.body["message"]) == (400, "field label not supported: spec.ratio")


def test_openapi_lists_selectable_fields(lamps: LiveServer) -> None:
    schemas = lamps.get("/openapi/v3/apis/example.org/v1").body["components"]["schemas"]
    shown = schemas["org.example.v1.Lamps"]["x-kubernetes-selectable-fields"]
    assert [each["fieldPath"] for each in shown][:2] == ["spec.colour", "spec.watts"]


_PATH = "spec.versions[0].selectableFields[0].jsonPath"
_TYPES = (
    "must point to a field of type string, boolean or integer. Enum string fields and strings with "
    "formats are allowed."
)


@pytest.mark.parametrize(
    ("paths", "problem"),
    [
        ([""], f"{_PATH}: Required value"),
        ([".spec.none"], f'{_PATH}: Invalid value: ".spec.none": is an invalid path: '),
        (["spec.colour"], "is an invalid path: expected [ or . but got: spec"),
        ([".spec.parts[0]"], "is an invalid path: array notation is not allowed"),
        ([".spec."], "is an invalid path: unexpected end of JSON path"),
        ([".spec.ratio"], f'{_PATH}: Invalid value: ".spec.ratio": {_TYPES}'),
        ([".spec.tags"], _TYPES),
        ([".spec.colour"] * 2, 'selectableFields[1].jsonPath: Duplicate value: ".spec.colour"'),
        (
            [f".spec.tags.t{i}" for i in range(9)],
            "spec.versions[0].selectableFields: Too many: 9: must have at most 8 items",
        ),
    ],
)
def test_what_cannot_be_selected_by_is_refused(
    server: LiveServer, paths: list[str], problem: str
) -> None:
    answer = server.post(DEFINITIONS, definition(paths, "wrongs"))
    assert answer.code == 422, answer.text
    assert problem in answer.body["message"]
