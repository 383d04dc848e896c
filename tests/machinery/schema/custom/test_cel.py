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
    spec = {"type": "string", "x-kubernetes-validations": [{"rule": "authorizer.allowed()"}]}
    assert check_values(served(spec), {"spec": "x"}) == []
    assert crd_warnings(with_schema(spec)) == [
        "spec.versions[0].schema.openAPIV3Schema.properties[spec].x-kubernetes-validations[0]: "
        "this rule is not evaluated here: authorizer.allowed()"
    ]
    assert crd_warnings(with_schema(SPEC)) == []


def of_rule(rule: str, **more: Any) -> dict[str, Any]:
    return {"x-kubernetes-validations": [{"rule": rule, "message": "no", **more}]}


@pytest.mark.parametrize(
    ("schema", "value", "expected"),
    [
        ({"type": "string", **of_rule("isIP(self) && ip(self).family() == 4")}, "10.0.0.1", []),
        (
            {"type": "string", **of_rule("isIP(self) && ip(self).family() == 4")},
            "::1",
            ['spec: Invalid value: "::1": no'],
        ),
        ({"type": "string", **of_rule("cidr('10.0.0.0/8').containsIP(self)")}, "10.1.2.3", []),
        (
            {"type": "string", **of_rule("ip(self).isLoopback()")},
            "x",
            [
                'spec: Invalid value: "string": IP Address "x" parse error during conversion from '
                'string: ParseAddr("x"): unable to parse IP evaluating rule: no'
            ],
        ),
        (
            {
                "type": "string",
                "format": "date-time",
                **of_rule("self < timestamp('2030-01-01T00:00:00Z')"),
            },
            "2026-01-01T00:00:00Z",
            [],
        ),
        (
            {"type": "string", "format": "duration", **of_rule("self <= duration('1h')")},
            "90m",
            ['spec: Invalid value: "90m": no'],
        ),
        ({"type": "number", **of_rule("self / 2.0 == 1.5")}, 3, []),
        (
            {
                "type": "object",
                "x-kubernetes-preserve-unknown-fields": True,
                **of_rule("self.?a.b.orValue(1) == 1"),
            },
            {},
            [],
        ),
        (
            {"x-kubernetes-int-or-string": True, **of_rule("self > 1")},
            "x",
            [
                "spec: Invalid value: \"string\": 'no such overload': call arguments did not match a "
                "supported operator, function or macro signature for rule: no"
            ],
        ),
        ({"type": "string", **of_rule("quantity(self).isLessThan(quantity('1Gi'))")}, "500Mi", []),
        (
            {
                "type": "array",
                "items": {"type": "string"},
                **of_rule("self.all(i, v, v == 'x' + string(i))"),
            },
            ["x0", "x1"],
            [],
        ),
        (
            {"type": "string", **of_rule("false", messageExpression="'%s is no name'.format([self])")},
            "x",
            ['spec: Invalid value: "x": x is no name'],
        ),
    ],
)
def test_rules_have_the_functions_of_kubernetes(schema: Any, value: Any, expected: list[str]) -> None:
    found = check_values(served(schema), {"spec": value})
    assert [problem.text for problem in found] == expected


def test_a_rule_may_ask_for_an_old_value_that_need_not_exist() -> None:
    rule = "!oldSelf.hasValue() || oldSelf.value() <= self"
    kind = served({"type": "integer", **of_rule(rule, optionalOldSelf=True)})
    assert check_values(kind, {"spec": 1}) == []
    assert check_values(kind, {"spec": 2}, {"spec": 1}) == []
    assert len(check_values(kind, {"spec": 1}, {"spec": 2})) == 1
