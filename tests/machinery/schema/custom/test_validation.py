"""Custom objects against their schema, with the words a real API server has for each mistake."""

from __future__ import annotations

from typing import Any

import pytest

from harness.widgets import widget_crd
from holdfast.machinery.schema import MALFORMED, ResourceType, apply_defaults, read_object, strict_error
from holdfast.machinery.schema.catalogue import Catalogue
from holdfast.machinery.validation.kinds import check_values


@pytest.fixture(scope="module")
def widget() -> ResourceType:
    catalogue = Catalogue()
    catalogue.add_crd(widget_crd())
    type = catalogue.resource("example.com", "v1", "widgets")
    assert type is not None
    return type


def made(spec: Any, **more: Any) -> dict[str, Any]:
    raw = {"apiVersion": "example.com/v1", "kind": "Widget", "metadata": {"name": "w"}}
    return {**raw, "spec": spec, **more}


@pytest.mark.parametrize(
    ("spec", "complaints"),
    [
        ({"size": 1}, []),
        ({}, ["spec.size: Required value"]),
        ({"size": None}, ["spec.size: Required value"]),
        (
            {"size": "x"},
            ['spec.size: Invalid value: "string": spec.size in body must be of type integer: "string"'],
        ),
        (
            {"size": 1.5},
            ['spec.size: Invalid value: "number": spec.size in body must be of type integer: "number"'],
        ),
        (
            {"size": True},
            [
                'spec.size: Invalid value: "boolean": '
                'spec.size in body must be of type integer: "boolean"'
            ],
        ),
        (
            {"size": 0},
            ["spec.size: Invalid value: 0: spec.size in body should be greater than or equal to 1"],
        ),
        (
            {"size": 11},
            ["spec.size: Invalid value: 11: spec.size in body should be less than or equal to 10"],
        ),
        (
            {"size": 1, "mode": "mid"},
            ['spec.mode: Unsupported value: "mid": supported values: "fast", "slow"'],
        ),
        (
            {"size": 1, "label": "AB"},
            ["spec.label: Invalid value: \"AB\": spec.label in body should match '^[a-z]+$'"],
        ),
        ({"size": 1, "label": "aaaaaaa"}, ["spec.label: Too long: may not be more than 5 bytes"]),
        (
            {"size": 1, "label": "a"},
            ['spec.label: Invalid value: "a": spec.label in body should be at least 2 chars long'],
        ),
        ({"size": 1, "port": "http"}, []),
        ({"size": 1, "port": 80}, []),
        (
            {"size": 1, "port": 1.5},
            [
                'spec.port: Invalid value: "number": '
                'spec.port in body must be of type integer,string: "number"'
            ],
        ),
        (
            {"size": 1, "ratio": 0.7},
            ["spec.ratio: Invalid value: 0.7: spec.ratio in body should be a multiple of 0.5"],
        ),
        (
            {"size": 1, "ratio": -1},
            ["spec.ratio: Invalid value: -1: spec.ratio in body should be greater than 0"],
        ),
        (
            {"size": 1, "free": 5},
            [
                'spec.free: Invalid value: "integer": '
                'spec.free in body must be of type object: "integer"'
            ],
        ),
        ({"size": 1, "tags": ["a", "b", "a", "a"]}, ['spec.tags[2]: Duplicate value: "a"']),
        (
            {"size": 1, "parts": [{"name": "a"}, {"name": "a"}]},
            ['spec.parts[1]: Duplicate value: {"name":"a"}'],
        ),
        ({"size": 1, "parts": [{"weight": 2}]}, ["spec.parts[0].name: Required value"]),
        (
            {"size": 1, "parts": [{"name": name} for name in "abcd"]},
            ["spec.parts: Too many: 4: must have at most 3 items"],
        ),
        (
            {"size": 1, "extra": {"a": 1, "b": 2, "c": 3}},
            ["spec.extra: Too many: 3: must have at most 2 items"],
        ),
        (
            {"size": 1, "when": "yesterday"},
            [
                'spec.when: Invalid value: "yesterday": '
                'spec.when in body must be of type date-time: "yesterday"'
            ],
        ),
        (
            {"size": 1, "template": {}},
            ["spec.template.apiVersion: Required value", "spec.template.kind: Required value"],
        ),
        (
            {"size": 1, "one": {}},
            [
                '<nil>: Invalid value: "": '
                '"spec.one" must validate one and only one schema (oneOf). Found none valid',
                "spec.one.a: Required value",
            ],
        ),
        (
            {"size": 1, "one": {"a": "x", "b": "y"}},
            [
                '<nil>: Invalid value: "": '
                '"spec.one" must validate one and only one schema (oneOf). Found 2 valid alternatives'
            ],
        ),
        (
            5,
            ['spec: Invalid value: "integer": spec in body must be of type object: "integer"'],
        ),
    ],
)
def test_what_the_schema_has_against_it(widget: ResourceType, spec: Any, complaints: list[str]) -> None:
    read, problems = read_object(widget, made(spec))
    assert not problems
    found = check_values(widget, apply_defaults(widget, read))
    assert [problem.text for problem in found] == complaints


@pytest.mark.parametrize(
    ("spec", "kept"),
    [
        ({"size": 2.0}, {"size": 2, "mode": "slow"}),
        ({"size": 1, "mode": None, "label": None}, {"size": 1, "mode": "slow"}),
        ({"size": 1, "mode": "fast", "note": None}, {"size": 1, "mode": "fast", "note": None}),
        (
            {"size": 1, "mode": "fast", "parts": [{"name": "a"}]},
            {"size": 1, "mode": "fast", "parts": [{"name": "a", "weight": 1}]},
        ),
        (
            {"size": 1, "mode": "fast", "free": {"any": {"thing": None}}},
            {"size": 1, "mode": "fast", "free": {"any": {"thing": None}}},
        ),
    ],
)
def test_defaults_and_nulls(widget: ResourceType, spec: Any, kept: Any) -> None:
    read, problems = read_object(widget, made(spec))
    assert not problems
    assert apply_defaults(widget, read)["spec"] == kept


def test_unknown_fields_are_pruned_and_named(widget: ResourceType) -> None:
    template = {"apiVersion": "v1", "kind": "Pod", "metadata": {"foo": 1}, "spec": {"kept": 1}}
    spec = {"size": 1, "unknown": 1, "parts": [{"name": "a", "u": 1}], "template": template}
    raw = made(spec, bar=2, status={"x": 1}, metadata={"name": "w", "foo": 1})
    read, problems = read_object(widget, raw)
    assert strict_error(problems) == "strict decoding error: " + ", ".join(
        f'unknown field "{path}"'
        for path in (
            "metadata.foo",
            "bar",
            "spec.parts[0].u",
            "spec.template.metadata.foo",
            "spec.unknown",
            "status.x",
        )
    )
    assert read["spec"] == {
        "size": 1,
        "parts": [{"name": "a"}],
        "template": {"apiVersion": "v1", "kind": "Pod", "metadata": {}, "spec": {"kept": 1}},
    }
    assert read["metadata"] == {"name": "w"}
    assert read["status"] == {}


@pytest.mark.parametrize(
    ("raw", "message"),
    [
        (
            made({"size": 1}, metadata={"labels": {"a": 5}}),
            "json: cannot unmarshal number into Go struct field ObjectMeta.labels of type string",
        ),
        (
            made({"size": 1, "template": {"metadata": {"name": "x", "labels": {"a": 5}}}}),
            'spec.template.metadata: Invalid value: {"labels":{"a":5},"name":"x"}: '
            "json: cannot unmarshal number into Go struct field ObjectMeta.labels of type string",
        ),
    ],
)
def test_malformed_metadata(widget: ResourceType, raw: Any, message: str) -> None:
    _, problems = read_object(widget, raw)
    assert [(problem.reason, problem.text) for problem in problems] == [(MALFORMED, message)]


def test_a_changed_definition_replaces_the_old_types() -> None:
    catalogue = Catalogue()
    catalogue.add_crd(widget_crd())
    changed = widget_crd()
    changed["spec"]["versions"][0]["name"] = "v2"
    catalogue.add_crd(changed)
    assert catalogue.resource("example.com", "v1", "widgets") is None
    type = catalogue.resource("example.com", "v2", "widgets")
    assert type is not None
    assert catalogue.kind("example.com", "v2", "Widget") is type
    assert [type.version for type in catalogue.versions("example.com", "widgets")] == ["v2"]


def test_versions_are_listed_by_preference() -> None:
    catalogue = Catalogue()
    crd = widget_crd()
    first = crd["spec"]["versions"][0]
    names = ["v1alpha1", "v1", "v2beta1", "v10", "foo", "v1beta2"]
    crd["spec"]["versions"] = [{**first, "name": name, "storage": name == "v1"} for name in names]
    catalogue.add_crd(crd)
    found = [type.version for type in catalogue.versions("example.com", "widgets")]
    assert found == ["v10", "v1", "v2beta1", "v1beta2", "v1alpha1", "foo"]


def test_a_schema_may_narrow_the_name() -> None:
    crd = widget_crd()
    schema = crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    name = {"type": "object", "properties": {"name": {"type": "string", "maxLength": 3}}}
    schema["properties"] = {**schema["properties"], "metadata": name}
    (type,) = Catalogue().add_crd(crd)
    raw = made({"size": 1}, metadata={"name": "long"})
    assert [problem.text for problem in check_values(type, raw)] == [
        "metadata.name: Too long: may not be more than 3 bytes"
    ]
