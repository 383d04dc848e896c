"""`x-kubernetes-validations`: rules in the Common Expression Language.

They are evaluated where the package `common-expression-language` is installed (`pip install
'holdfast[cel]'`). Where it is not, only the rules of Holdfast's own definitions are (`own_rules`). A
rule that is not evaluated, also because it calls what the library does not know, is not checked, and
whoever creates the definition is warned. A rule beyond the limits (`rule_limits`) is refused when the
definition is created; one that is kept from before is not evaluated.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator
from functools import cache, lru_cache
from importlib import import_module
from importlib.util import find_spec
from typing import Any

from holdfast.api.errors import HoldfastError
from holdfast.server.schema.custom.expressions import FUNCTIONS, escaped
from holdfast.server.schema.custom.own_rules import own_rule
from holdfast.server.schema.custom.rule_limits import (
    BUDGET,
    CALL_BUDGET,
    MAX_RULES,
    Nesting,
    cost,
    scan,
)
from holdfast.server.schema.problems import FORBIDDEN, INVALID, REQUIRED, Problem, field_problem

Schema = dict[str, Any]
Problems = list[Problem]

_RULES = "x-kubernetes-validations"
_ABSENT: Any = object()


class NotEvaluated(HoldfastError):
    """The rule says something that cannot be evaluated here."""


class TooCostly(HoldfastError):
    """Evaluating the rule on this value could take longer than a request may."""


@cache
def available() -> bool:
    return find_spec("cel") is not None


def has_rules(schema: Schema) -> bool:
    """Whether there are any rules to evaluate, and a way to."""
    return any(
        available() or own_rule(rule.get("rule", "")) is not None for _, rule in _rules_in(schema, "")
    )


def check_rules(schema: Schema, value: Any, old: Any, problems: Problems) -> None:
    """Every rule of a schema, on an object that is otherwise in order; `old` None on creation."""
    try:
        _Checking(problems).part(schema, value, _ABSENT if old is None else old, "")
    except TooCostly as error:
        problems.append(error.args[0])


def check_limits(found: Problems, schema: Schema, path: str) -> None:
    """The rules of a schema that are too long, too deep or too many."""
    count = 0
    for where, rule in _rules_in(schema, path):
        count += 1
        for word in ("rule", "messageExpression"):
            problem = scan(rule[word]).problem if isinstance(rule.get(word), str) else ""
            if problem:
                found.append(field_problem(INVALID, f"{where}.{word}", rule[word], problem))
    if count > MAX_RULES:
        why = (
            "x-kubernetes-validations estimated rule cost total for entire OpenAPIv3 schema exceeds "
            f"budget by factor of more than {count / MAX_RULES:.1f}x (try simplifying the rule, or "
            "adding maxItems, maxProperties, and maxLength where arrays, maps, and strings are "
            "declared)"
        )
        found.append(field_problem(FORBIDDEN, path, detail=why))


def unevaluated_rules(schema: Schema, path: str) -> Iterator[tuple[str, str]]:
    """The place and text of each rule that is not evaluated here."""
    for where, rule in _rules_in(schema, path):
        text = rule.get("rule", "")
        if _program(text) is None:
            yield where, text


def _rules_in(schema: Schema, path: str) -> Iterator[tuple[str, Schema]]:
    for i, rule in enumerate(schema.get(_RULES) or ()):
        yield f"{path}.{_RULES}[{i}]", rule
    for name, part in (schema.get("properties") or {}).items():
        yield from _rules_in(part, f"{path}.properties[{name}]")
    for word in ("items", "additionalProperties"):
        if isinstance(schema.get(word), dict):
            yield from _rules_in(schema[word], f"{path}.{word}")


class _Checking:
    """All rules of a schema on one object."""

    def __init__(self, problems: Problems) -> None:
        self._problems = problems
        self._left = float(BUDGET)

    def part(self, schema: Schema, value: Any, old: Any, path: str) -> None:
        for rule in schema.get(_RULES) or ():
            problem = self._judge(schema, rule, value, old, path)
            if problem is not None:
                self._problems.append(problem)
        if isinstance(value, dict):
            fields, values = schema.get("properties") or {}, schema.get("additionalProperties")
            before = old if isinstance(old, dict) else {}
            for name, item in value.items():
                part = fields.get(name, values)
                if isinstance(part, dict) and item is not None:
                    where = f"{path}.{name}" if path else name
                    self.part(part, item, before.get(name, _ABSENT), where)
        elif isinstance(value, list) and isinstance(schema.get("items"), dict):
            keys = schema.get("x-kubernetes-list-map-keys") or ()
            olds: dict[str, Any] = {}
            if keys and isinstance(old, list):
                for item in reversed(old):
                    olds[_identity(item, keys)] = item
            for i, item in enumerate(value):
                before = olds.get(_identity(item, keys), _ABSENT) if olds else _ABSENT
                self.part(schema["items"], item, before, f"{path}[{i}]")

    def _judge(self, schema: Schema, rule: Schema, value: Any, old: Any, path: str) -> Problem | None:
        text = rule.get("rule", "")
        if "oldSelf" in text and (old is _ABSENT or rule.get("optionalOldSelf")):
            return None
        variables = {"self": escaped(schema, value)}
        if old is not _ABSENT:
            variables["oldSelf"] = escaped(schema, old)
        said = rule.get("message", "").strip()
        self._spend(cost(_nesting(text, rule), variables), said or text, value, path)
        try:
            if _evaluate(text, variables) is True:
                return None
        except NotEvaluated:
            return None
        except KeyError as error:
            detail = f"no such key: {error.args[0]} evaluating rule: {said or text}"
            return field_problem(INVALID, path, _kind(value), detail)
        message = _message(rule, variables) or said or f"failed rule: {text}"
        where = path + rule.get("fieldPath", "") if rule.get("fieldPath") else path
        reason = rule.get("reason") or INVALID
        if reason == REQUIRED or reason == "FieldValueForbidden" or isinstance(value, dict | list):
            return field_problem(reason, where, detail=message)
        return field_problem(reason, where, value, message)

    def _spend(self, iterations: float, rule: str, value: Any, path: str) -> None:
        if iterations > CALL_BUDGET:
            why = (
                "no further validation rules will be run due to call cost exceeds limit for rule: "
                f"{rule}"
            )
            raise TooCostly(field_problem(INVALID, path, _kind(value), why))
        self._left -= iterations
        if self._left < 0:
            why = (
                "validation failed due to running out of cost budget, no further validation rules "
                "will be run"
            )
            raise TooCostly(field_problem(INVALID, path, _kind(value), why))


def _kind(value: Any) -> str:
    return "object" if isinstance(value, dict) else "array"


def _identity(item: Any, keys: Iterable[str]) -> str:
    """Which item of a list with keys this is, also in an older version of the list."""
    values = [item.get(key) for key in keys] if isinstance(item, dict) else item
    return json.dumps(values, sort_keys=True)


def _nesting(text: str, rule: Schema) -> Nesting:
    message = scan(rule.get("messageExpression") or "").nesting
    return max(scan(text).nesting, message, key=lambda each: each.order)


def _message(rule: Schema, variables: dict[str, Any]) -> str:
    expression = rule.get("messageExpression")
    if not expression:
        return ""
    try:
        said = _evaluate(expression, variables)
    except (NotEvaluated, KeyError):
        return ""
    return said.strip() if isinstance(said, str) and "\n" not in said else ""


def _evaluate(text: str, variables: dict[str, Any]) -> Any:
    program = _program(text)
    if program is None:
        raise NotEvaluated(text)
    try:
        return program(variables)
    except KeyError:
        raise
    except (RuntimeError, TypeError, ValueError) as error:
        raise NotEvaluated(str(error)) from None


def _program(text: str) -> Callable[[dict[str, Any]], Any] | None:
    return _compiled(text) if available() else own_rule(text)


@lru_cache(maxsize=1024)
def _compiled(text: str) -> Callable[[dict[str, Any]], Any] | None:
    if scan(text).problem:
        return None
    cel = import_module("cel")
    try:
        compiled = cel.compile(text)
    except ValueError:
        return None

    def run(variables: dict[str, Any]) -> Any:
        context = cel.Context(variables)
        for name, function in FUNCTIONS.items():
            context.add_function(name, function)
        return compiled.execute(context)

    return run
