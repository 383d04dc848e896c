"""`x-kubernetes-validations`: rules in the Common Expression Language.

They are evaluated where the package `common-expression-language` is installed (`pip install
'holdfast[cel]'`). Where it is not, or a rule calls what it does not know, the rule is not checked, and
whoever creates the definition is warned.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cache, lru_cache
from importlib import import_module
from importlib.util import find_spec
from typing import Any

from holdfast.server.schema.custom.expressions import FUNCTIONS, escaped
from holdfast.server.schema.problems import INVALID, REQUIRED, Problem, field_problem

Schema = dict[str, Any]
Problems = list[Problem]

_RULES = "x-kubernetes-validations"
_ABSENT: Any = object()


class NotEvaluated(Exception):
    """The rule says something that cannot be evaluated here."""


@cache
def available() -> bool:
    return find_spec("cel") is not None


def has_rules(schema: Schema) -> bool:
    """Whether there are any rules to evaluate, and a way to."""
    return available() and any(True for _ in _rules_in(schema, ""))


def check_rules(schema: Schema, value: Any, old: Any, problems: Problems) -> None:
    """Every rule of a schema, on an object that is otherwise in order; `old` None on creation."""
    _check(schema, value, _ABSENT if old is None else old, "", problems)


def unevaluated_rules(schema: Schema, path: str) -> Iterator[tuple[str, str]]:
    """The place and text of each rule that is not evaluated here."""
    for where, rule in _rules_in(schema, path):
        text = rule.get("rule", "")
        if not available() or _program(text) is None:
            yield where, text


def _rules_in(schema: Schema, path: str) -> Iterator[tuple[str, Schema]]:
    for i, rule in enumerate(schema.get(_RULES) or ()):
        yield f"{path}.{_RULES}[{i}]", rule
    for name, part in (schema.get("properties") or {}).items():
        yield from _rules_in(part, f"{path}.properties[{name}]")
    for word in ("items", "additionalProperties"):
        if isinstance(schema.get(word), dict):
            yield from _rules_in(schema[word], f"{path}.{word}")


def _check(schema: Schema, value: Any, old: Any, path: str, problems: Problems) -> None:
    for rule in schema.get(_RULES) or ():
        problem = _judge(schema, rule, value, old, path)
        if problem is not None:
            problems.append(problem)
    if isinstance(value, dict):
        fields, values = schema.get("properties") or {}, schema.get("additionalProperties")
        before = old if isinstance(old, dict) else {}
        for name, item in value.items():
            part = fields.get(name, values)
            if isinstance(part, dict) and item is not None:
                where = f"{path}.{name}" if path else name
                _check(part, item, before.get(name, _ABSENT), where, problems)
    elif isinstance(value, list) and isinstance(schema.get("items"), dict):
        for i, item in enumerate(value):
            before = _same_item(schema, item, old)
            _check(schema["items"], item, before, f"{path}[{i}]", problems)


def _same_item(schema: Schema, item: Any, old: Any) -> Any:
    """The item of the old list this one was; only lists with keys can tell."""
    keys = schema.get("x-kubernetes-list-map-keys")
    if not keys or not isinstance(old, list) or not isinstance(item, dict):
        return _ABSENT
    for other in old:
        if isinstance(other, dict) and all(other.get(key) == item.get(key) for key in keys):
            return other
    return _ABSENT


def _judge(schema: Schema, rule: Schema, value: Any, old: Any, path: str) -> Problem | None:
    text = rule.get("rule", "")
    if "oldSelf" in text and (old is _ABSENT or rule.get("optionalOldSelf")):
        return None
    variables = {"self": escaped(schema, value)}
    if old is not _ABSENT:
        variables["oldSelf"] = escaped(schema, old)
    said = rule.get("message", "").strip()
    try:
        if _evaluate(text, variables) is True:
            return None
    except NotEvaluated:
        return None
    except KeyError as error:
        kind = "object" if isinstance(value, dict) else "array"
        detail = f"no such key: {error.args[0]} evaluating rule: {said or text}"
        return field_problem(INVALID, path, kind, detail)
    message = _message(rule, variables) or said or f"failed rule: {text}"
    where = path + rule.get("fieldPath", "") if rule.get("fieldPath") else path
    reason = rule.get("reason") or INVALID
    if reason == REQUIRED or reason == "FieldValueForbidden" or isinstance(value, dict | list):
        return field_problem(reason, where, detail=message)
    return field_problem(reason, where, value, message)


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


@lru_cache(maxsize=1024)
def _program(text: str) -> Callable[[dict[str, Any]], Any] | None:
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
