"""Rules in the Common Expression Language on custom objects."""

from __future__ import annotations

from typing import Any

import pytest

from harness.widgets import widget_crd
from holdfast.machinery.schema import ResourceType
from holdfast.machinery.schema.catalogue import Catalogue, crd_warnings
from holdfast.machinery.validation.kinds import check_values

SPEC = {
    "type": "object",
    "x-kubernetes-validations": [
        {"rule": "self.min <= self.max", "message": "min must not exceed max"},
        {"rule": "!has(self.odd) || self.odd % 2 == 1"},
        {"rule": "self.min < 100", "messageExpression": "'min is ' + string(self.min)"},
        {
            "rule": "self.min > 0",
            "reason": "FieldValueForbidden",
            "fieldPath": ".min",
            "message": "must be positive",
        },
    ],
    "properties": {
        "min": {"type": "integer"},
        "max": {"type": "integer"},
        "odd": {"type": "integer"},
        "fixed": {
            "type": "string",
            "x-kubernetes-validations": [{"rule": "self == oldSelf", "message": "is immutable"}],
        },
        "names": {
            "type": "array",
            "items": {
                "type": "string",
                "x-kubernetes-validations": [{"rule": "self.lowerAscii() == self"}],
            },
        },
        "max-size": {"type": "integer", "x-kubernetes-validations": [{"rule": "self > 0"}]},
    },
}


@pytest.fixture
def kind() -> ResourceType:
    return served(SPEC)


def served(spec: Any) -> ResourceType:
    crd = with_schema(spec)
    (type,) = Catalogue().add_crd(crd)
    return type


def with_schema(spec: Any) -> dict[str, Any]:
    crd = widget_crd()
    schema = {"type": "object", "properties": {"spec": spec}}
    crd["spec"]["versions"][0]["schema"] = {"openAPIV3Schema": schema}
    return crd


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        ({"min": 1, "max": 2}, []),
        ({"min": 3, "max": 2}, ["spec: Invalid value: min must not exceed max"]),
        (
            {"min": 1, "max": 2, "odd": 4},
            ["spec: Invalid value: failed rule: !has(self.odd) || self.odd % 2 == 1"],
        ),
        ({"min": 100, "max": 200}, ["spec: Invalid value: min is 100"]),
        ({"min": 0, "max": 1}, ["spec.min: Forbidden: must be positive"]),
        (
            {"max": 1},
            [
                f'spec: Invalid value: "object": no such key: min evaluating rule: {rule}'
                for rule in ("min must not exceed max", "self.min < 100", "must be positive")
            ],
        ),
        (
            {"min": 1, "max": 2, "names": ["a", "B"]},
            ['spec.names[1]: Invalid value: "B": failed rule: self.lowerAscii() == self'],
        ),
        (
            {"min": 1, "max": 2, "max-size": 0},
            ["spec.max-size: Invalid value: 0: failed rule: self > 0"],
        ),
        (
            {"min": "x", "max": 1},
            [
                'spec.min: Invalid value: "string": spec.min in body must be of type integer: "string"',
                "<nil>: Invalid value: null: some validation rules were not checked because the "
                "object was invalid; correct the existing errors to complete validation",
            ],
        ),
    ],
)
def test_rules(kind: ResourceType, spec: Any, expected: list[str]) -> None:
    assert [problem.text for problem in check_values(kind, {"spec": spec})] == expected


def test_a_rule_about_change_is_for_updates(kind: ResourceType) -> None:
    old = {"spec": {"min": 1, "max": 2, "fixed": "a"}}
    new = {"spec": {"min": 1, "max": 2, "fixed": "b"}}
    assert check_values(kind, new) == []
    assert check_values(kind, old, old) == []
    assert [problem.text for problem in check_values(kind, new, old)] == [
        'spec.fixed: Invalid value: "b": is immutable'
    ]


def test_names_that_are_none_in_the_language() -> None:
    rule = "self.max__dash__size > self.__namespace__"
    spec = {
        "type": "object",
        "x-kubernetes-validations": [{"rule": rule}],
        "properties": {"max-size": {"type": "integer"}, "namespace": {"type": "integer"}},
    }
    kind = served(spec)
    assert check_values(kind, {"spec": {"max-size": 2, "namespace": 1}}) == []
    assert len(check_values(kind, {"spec": {"max-size": 1, "namespace": 1}})) == 1


def test_what_cannot_be_evaluated_is_let_pass_with_a_warning() -> None:
    spec = {"type": "string", "x-kubernetes-validations": [{"rule": "self.?a.hasValue()"}]}
    assert check_values(served(spec), {"spec": "x"}) == []
    assert crd_warnings(with_schema(spec)) == [
        "spec.versions[0].schema.openAPIV3Schema.properties[spec].x-kubernetes-validations[0]: "
        "this rule is not evaluated here: self.?a.hasValue()"
    ]
    assert crd_warnings(with_schema(SPEC)) == []
