"""CustomResourceDefinitions: schemas must be structural, columns and scale must be valid."""

from __future__ import annotations

from typing import Any

import pytest

from harness.widgets import widget_crd
from holdfast.machinery.schema import apply_defaults, read_object
from holdfast.machinery.schema.catalogue import Catalogue
from holdfast.machinery.validation.kinds import check_values

CATALOGUE = Catalogue()
ROOT = "spec.validation.openAPIV3Schema"
SPEC = f"{ROOT}.properties[spec]"


def complaints(raw: dict[str, Any]) -> list[str]:
    type = CATALOGUE.resource("apiextensions.k8s.io", "v1", "customresourcedefinitions")
    assert type is not None
    read, problems = read_object(type, raw)
    assert not problems
    return [problem.text for problem in check_values(type, apply_defaults(type, read))]


def crd(root: Any = None, spec: Any = None, **version: Any) -> dict[str, Any]:
    schema = root if root is not None else {"type": "object", "properties": {"spec": spec}}
    first = {
        "name": "v1",
        "served": True,
        "storage": True,
        "schema": {"openAPIV3Schema": schema},
        **version,
    }
    return widget_crd(versions=[first])


def fields(**parts: Any) -> dict[str, Any]:
    return {"type": "object", "properties": parts}


def test_a_good_one() -> None:
    assert complaints(widget_crd()) == []


@pytest.mark.parametrize(
    ("root", "expected"),
    [
        ({}, [f"{ROOT}.type: Required value: must not be empty at the root"]),
        (
            {"type": "string"},
            [f'{ROOT}.type: Invalid value: "string": must be object at the root'],
        ),
        (
            {"type": "object", "nullable": True},
            [f"{ROOT}.nullable: Forbidden: nullable cannot be true at the root"],
        ),
        (
            {"type": "object", "additionalProperties": {"type": "string"}},
            [f"{ROOT}.additionalProperties: Forbidden: must not be used at the root"],
        ),
        (fields(metadata={"type": "object"}), []),
        (fields(metadata=fields(name={"type": "string", "maxLength": 5})), []),
        (
            fields(metadata=fields(labels={"type": "object"})),
            [
                f"{ROOT}.properties[metadata]: Forbidden: must not specify anything other than "
                "name and generateName, but metadata is implicitly specified"
            ],
        ),
    ],
)
def test_the_root(root: Any, expected: list[str]) -> None:
    assert complaints(crd(root)) == expected


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        ({}, [f"{SPEC}.type: Required value: must not be empty for specified object fields"]),
        (
            {"type": "array"},
            [f"{SPEC}.items: Required value: must be specified"],
        ),
        (
            {"type": "array", "items": {}},
            [f"{SPEC}.items.type: Required value: must not be empty for specified array items"],
        ),
        (
            {"type": "string", "default": 5},
            [
                f'{SPEC}.default: Invalid value: "integer":  in body must be of type string: "integer"',
            ],
        ),
        (
            {"type": "object", "default": {"x": 1}, "properties": {"y": {"type": "string"}}},
            [f'{SPEC}.default: Invalid value: {{"x":1}}: must not have unknown fields'],
        ),
        (
            {
                "type": "object",
                "properties": {"a": {"type": "string"}},
                "additionalProperties": {"type": "string"},
            },
            [
                f"{SPEC}.additionalProperties: Forbidden: "
                "additionalProperties and properties are mutual exclusive"
            ],
        ),
        (
            {"x-kubernetes-int-or-string": True, "anyOf": [{"type": "integer"}, {"type": "string"}]},
            [],
        ),
        (
            {"type": "object", "oneOf": [{"type": "object"}]},
            [f"{SPEC}.oneOf[0].type: Forbidden: must be empty to be structural"],
        ),
        (
            {"type": "array", "x-kubernetes-list-type": "map", "items": fields(k={"type": "string"})},
            [
                f"{SPEC}.x-kubernetes-list-map-keys: Required value: "
                "must not be empty if x-kubernetes-list-type is map"
            ],
        ),
        (
            {
                "type": "array",
                "x-kubernetes-list-type": "map",
                "x-kubernetes-list-map-keys": ["k"],
                "items": fields(k={"type": "string"}),
            },
            [
                f"{SPEC}.items.properties[k].default: Required value: this property is in "
                "x-kubernetes-list-map-keys, so it must have a default or be a required property"
            ],
        ),
        (
            {"type": "string", "x-kubernetes-list-type": "set"},
            [
                f'{SPEC}.type: Invalid value: "string": '
                "must be array if x-kubernetes-list-type is specified"
            ],
        ),
        (
            {"type": "object", "x-kubernetes-embedded-resource": True},
            [
                f"{SPEC}.properties: Required value: must not be empty if "
                "x-kubernetes-embedded-resource is true without x-kubernetes-preserve-unknown-fields"
            ],
        ),
        ({"type": "string", "pattern": "[[:alpha:]]+\\z"}, []),
        ({"type": "string", "pattern": "\\pL"}, []),
    ],
)
def test_parts(spec: Any, expected: list[str]) -> None:
    assert complaints(crd(spec=spec)) == expected


def test_a_pattern_that_is_none() -> None:
    (text,) = complaints(crd(spec={"type": "string", "pattern": "("}))
    assert text.startswith(f'{SPEC}.pattern: Invalid value: "(": must be a valid regular expression')


def test_columns() -> None:
    columns = [{"name": "", "type": "foo", "jsonPath": "x"}]
    assert complaints(crd(spec={"type": "object"}, additionalPrinterColumns=columns)) == [
        "spec.additionalPrinterColumns[0].name: Required value",
        'spec.additionalPrinterColumns[0].type: Invalid value: "foo": '
        "must be one of boolean,date,integer,number,string",
        'spec.additionalPrinterColumns[0].JSONPath: Invalid value: "x": '
        "must be a simple json path starting with .",
    ]


def test_scale() -> None:
    scale = {"specReplicasPath": ".status.x", "statusReplicasPath": ""}
    assert complaints(crd(spec={"type": "object"}, subresources={"scale": scale})) == [
        'spec.subresources.scale.specReplicasPath: Invalid value: ".status.x": '
        "should be a json path under .spec",
        "spec.subresources.scale.statusReplicasPath: Required value",
    ]


def test_versions_that_differ_are_named() -> None:
    raw = crd(spec={})
    first = raw["spec"]["versions"][0]
    good = {"openAPIV3Schema": {"type": "object"}}
    raw["spec"]["versions"] = [{**first, "name": "v2", "storage": False, "schema": good}, first]
    assert complaints(raw) == [
        "spec.versions[1].schema.openAPIV3Schema.properties[spec].type: Required value: "
        "must not be empty for specified object fields"
    ]
