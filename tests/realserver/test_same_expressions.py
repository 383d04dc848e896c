"""Expressions of CEL have the same results here and on a real kube-apiserver, as rules of a
CustomResourceDefinition: those of `machinery/schema/cel/test_functions.py`, and their errors."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

import pytest

from machinery.schema.cel.test_functions import CASES, FAILS, REFUSED, VARIABLES
from realserver.client import RefusedError
from realserver.definitions import remove_definitions
from realserver.server import RealServer
from realserver.versions import minor_version

DEFINITIONS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
THINGS = "/apis/cel.example.com/v1/namespaces/default/things"
_DEFINED = ("apiextensions.k8s.io/v1", "customresourcedefinitions")
OF_SELECTORS_ONLY = ("cel.bind(", ".includes(")
"""Which rules of definitions do not have."""
_VARIABLE = re.compile(rf"(?<![\w'\".])({'|'.join(VARIABLES)})\b")


def definition(*rules: str) -> dict[str, Any]:
    short = {"type": "string", "maxLength": 20}
    few = {"type": "array", "maxItems": 5}
    properties = {
        "text": short,
        "numbers": {**few, "items": {"type": "integer"}},
        "words": {**few, "items": short},
        "scores": {
            "type": "object",
            "maxProperties": 5,
            "additionalProperties": {"type": "integer"},
        },
    }
    spec = {
        "type": "object",
        "properties": properties,
        "x-kubernetes-validations": [
            {"rule": _VARIABLE.sub(r"self.\1", rule), "message": f"rule {i}"}
            for i, rule in enumerate(rules)
        ],
    }
    schema = {"openAPIV3Schema": {"type": "object", "properties": {"spec": spec}}}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": "things.cel.example.com"},
        "spec": {
            "group": "cel.example.com",
            "scope": "Namespaced",
            "names": {"plural": "things", "kind": "Thing"},
            "versions": [{"name": "v1", "served": True, "storage": True, "schema": schema}],
        },
    }


def messages(error: RefusedError) -> list[str]:
    """The messages of the causes in a Status."""
    status = json.loads(str(error).partition(" 422 ")[2])
    return [cause["message"] for cause in status["details"]["causes"]]


@pytest.fixture(scope="module")
def server(real_server: RealServer) -> RealServer:
    if minor_version(real_server) < 37:
        pytest.skip("functions of Kubernetes 1.37 are compared")
    remove_definitions(real_server)
    return real_server


def is_too_costly(server: RealServer, rule: str) -> bool:
    """Whether the server refuses a rule because it could cost too much, which is not estimated here."""
    try:
        server.client.request("POST", f"{DEFINITIONS}?dryRun=All", definition(rule))
    except RefusedError as error:
        return "estimated rule cost" in str(error)
    return False


def results(server: RealServer, rules: list[str]) -> Iterator[str]:
    """What the rules say of an object with the variables."""
    server.client.request("POST", DEFINITIONS, definition(*rules))
    thing = {
        "apiVersion": "cel.example.com/v1",
        "kind": "Thing",
        "metadata": {"name": "a"},
        "spec": {name: value for name, value in VARIABLES.items() if value is not None},
    }
    found: list[list[str]] = []

    def created() -> bool:
        try:
            server.client.request("POST", f"{THINGS}?dryRun=All", thing)
            found.append([])
        except RefusedError as error:
            if error.status == 404:
                return False
            found.append(messages(error))
        return True

    try:
        server.wait_until(created)
    finally:
        server.client.request("DELETE", f"{DEFINITIONS}/things.cel.example.com")
        server.wait_until(lambda: not server.client.list(*_DEFINED))
    yield from found[0]


def test_expressions_that_are_true(server: RealServer) -> None:
    rules = [text for text in CASES if not any(part in text for part in OF_SELECTORS_ONLY)]
    rules = [text for text in rules if "nothing" not in text and not is_too_costly(server, text)]
    assert len(rules) > 0.9 * len(CASES)
    wrong = [*results(server, rules)]
    assert [rules[int(each.rpartition(" ")[2])] for each in wrong] == []


def test_expressions_that_fail(server: RealServer) -> None:
    rules = {f"dyn({text}) == dyn('')": why for text, why in FAILS.items()}
    known = {}
    for rule, why in rules.items():
        try:
            server.client.request("POST", f"{DEFINITIONS}?dryRun=All", definition(rule))
        except RefusedError:
            continue  # what consists of literals may fail when it is compiled
        known[rule] = why
    assert len(known) > 0.6 * len(rules)
    assert [*results(server, [*known])] == [
        f'Invalid value: "object": {why} evaluating rule: rule {i}'
        for i, why in enumerate(known.values())
    ]


@pytest.mark.parametrize("text", REFUSED)
def test_expressions_that_do_not_compile(server: RealServer, text: str) -> None:
    with pytest.raises(RefusedError) as error:
        server.client.request("POST", f"{DEFINITIONS}?dryRun=All", definition(text))
    first = messages(error.value)[0].partition("compilation failed: ")[2].splitlines()[0]
    assert first == f"ERROR: <input>:1:{REFUSED[text]}"
