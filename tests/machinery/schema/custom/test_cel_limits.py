"""Rules too long, too deep or too costly for the library that evaluates them."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import pytest

from harness.widgets import widget_crd
from holdfast.machinery.schema import ResourceType
from holdfast.machinery.schema.catalogue import Catalogue
from holdfast.machinery.schema.custom.cel import MAX_RULES, depth_problem
from holdfast.machinery.validation.kinds import check_values

LINKS = 20_000
CHAINS = {
    "and": "&&".join(["true"] * LINKS),
    "or": "||".join(["true"] * LINKS),
    "sum": "+".join(["1"] * LINKS) + " > 0",
    "product": "*".join(["1"] * LINKS) + " > 0",
    "member": "self" + ".a" * LINKS,
    "index": "self" + "[0]" * LINKS,
    "call": "self" + ".f()" * LINKS,
    "parenthesis": "(" * LINKS + "true" + ")" * LINKS,
    "list": "[" * LINKS + "]" * LINKS + " == []",
    "not": "!" * LINKS + "true",
    "minus": "-" * LINKS + "1 < 0",
    "choice": "true ? true : " * 1500 + "true",
    "relation": "<".join(["1"] * LINKS),
    "behind a raw text": "r'\\' == self || " + "+".join(["1"] * 3000) + " > 0",
    "behind an open text": "'''" + "+".join(["1"] * LINKS),
}
DEEP = "compilation failed: ERROR: <input>:-1:0: expression recursion limit exceeded: 250"


def crd_with(*rules: dict[str, Any]) -> dict[str, Any]:
    crd = widget_crd()
    spec = {
        "type": "object",
        "x-kubernetes-preserve-unknown-fields": True,
        "x-kubernetes-validations": list(rules),
    }
    schema = {"type": "object", "properties": {"spec": spec}}
    crd["spec"]["versions"][0]["schema"] = {"openAPIV3Schema": schema}
    return crd


def problems_of(crd: dict[str, Any]) -> list[str]:
    type = Catalogue().resource("apiextensions.k8s.io", "v1", "customresourcedefinitions")
    assert type is not None
    return [problem.text for problem in check_values(type, crd)]


def served(*rules: dict[str, Any]) -> ResourceType:
    (type,) = Catalogue().add_crd(crd_with(*rules))
    return type


@pytest.mark.parametrize("name", CHAINS)
def test_a_rule_of_too_many_links_is_refused(name: str) -> None:
    (problem,) = problems_of(crd_with({"rule": CHAINS[name]}))
    where = "spec.validation.openAPIV3Schema.properties[spec].x-kubernetes-validations[0].rule"
    assert problem.startswith(f"{where}: Invalid value: ")
    size = len(CHAINS[name])
    long = f"expression code point size exceeds limit: size: {size}, limit 100000"
    assert problem.endswith(long if size > 100_000 else DEEP)


def test_a_rule_kept_from_before_is_not_evaluated() -> None:
    kinds = [served({"rule": text}) for text in CHAINS.values()]
    assert [check_values(kind, {"spec": {}}) for kind in kinds] == [[]] * len(kinds)


def test_what_the_limits_allow_does_not_end_the_process() -> None:
    deepest = [
        "&&".join(["true"] * 1000),
        "+".join(["1"] * 240) + " > 0",
        "self" + ".a" * 240,
        "self" + ".f()" * 120,
        "!" * 240 + "true",
        "(" * 200 + "true" + ")" * 200,
    ]
    assert [depth_problem(text) for text in deepest] == [""] * len(deepest)
    program = f"""
import threading
threading.stack_size(1024 * 1024)
from holdfast.machinery.schema.cel.values import CelRuntimeError
from holdfast.machinery.schema.custom import cel as rules
def evaluate():
    for text in {deepest!r}:
        try:
            program = rules._program(text)
            if program is not None:
                program.run({{"self": {{"a": 1}}}})
        except CelRuntimeError:
            pass
thread = threading.Thread(target=evaluate)
thread.start()
thread.join()
"""
    subprocess.run([sys.executable, "-c", program], check=True, timeout=60)


@pytest.mark.parametrize(
    "text",
    [
        " && ".join(f"self.a{i}.b.c <= self.limits[{i}].max + {i}" for i in range(120)),
        "self.all(x, x.items.exists(y, y.name == 'a.b.c((((' && size(y.name) < 3))",
        "has(self.a) ? self.a.matches(r'^\\(\\[$') : self.b in ['x', \"y\"] // (((((",
    ],
)
def test_ordinary_rules_are_within_the_limits(text: str) -> None:
    assert depth_problem(text) == ""


def test_a_rule_that_costs_too_much_on_a_value_is_not_run() -> None:
    rule = "self.items.all(x, self.items.all(y, self.items.all(z, x + y + z >= 0)))"
    kind = served({"rule": rule}, {"rule": "false", "message": "not run either"})
    few = {"spec": {"items": [*range(20)]}}
    assert [problem.text for problem in check_values(kind, few)] == [
        "spec: Invalid value: not run either"
    ]
    many = {"spec": {"items": [*range(5000)]}}
    assert [problem.text for problem in check_values(kind, many)] == [
        "spec: Invalid value: \"object\": 'operation cancelled: actual cost limit exceeded': no "
        f"further validation rules will be run due to call cost exceeds limit for rule: {rule}"
    ]


def test_a_schema_has_a_bound_on_rules() -> None:
    assert problems_of(crd_with(*[{"rule": "true"}] * MAX_RULES)) == []
    (problem,) = problems_of(crd_with(*[{"rule": "true"}] * (2 * MAX_RULES)))
    assert problem.startswith(
        "spec.validation.openAPIV3Schema: Forbidden: x-kubernetes-validations estimated rule cost "
        "total for entire OpenAPIv3 schema exceeds budget by factor of more than 2.0x"
    )


def test_old_items_of_a_list_with_keys_are_found_by_key() -> None:
    crd = crd_with()
    crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"] = {
        "type": "array",
        "x-kubernetes-list-type": "map",
        "x-kubernetes-list-map-keys": ["name"],
        "items": {
            "type": "object",
            "properties": {"name": {"type": "string"}, "size": {"type": "integer"}},
            "x-kubernetes-validations": [{"rule": "self.size >= oldSelf.size", "message": "shrank"}],
        },
    }
    (kind,) = Catalogue().add_crd(crd)
    old = {"spec": [{"name": "a", "size": 1}, {"name": "b", "size": 2}]}
    new = {"spec": [{"name": "b", "size": 1}, {"name": "c", "size": 0}, {"name": "a", "size": 1}]}
    assert [problem.text for problem in check_values(kind, new, old)] == [
        "spec[0]: Invalid value: shrank"
    ]
