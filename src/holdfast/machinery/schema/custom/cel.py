"""`x-kubernetes-validations`: rules in CEL, the Common Expression Language.

Rules are evaluated by `machinery.schema.cel`. The rules of Holdfast's own definitions are Python
functions (`own_rule`): reservations are written often. A rule that is no expression of CEL is not
checked, and the response to a write of its definition has a warning.

The text of a rule is scanned first, without recursion, for its depth. Limits and messages are those of
cel-go and of the API server. A definition with a rule beyond the limits is refused; such a rule in a
definition that is already stored is not evaluated. What an evaluation costs is counted and limited.
"""

from __future__ import annotations

import json
import re
from base64 import b64decode
from collections.abc import Callable, Iterable, Iterator
from functools import cache, lru_cache
from typing import Any

from holdfast.api.crds import definitions
from holdfast.api.errors import HoldfastError
from holdfast.machinery.schema.cel.evaluation import MAX_COST, State
from holdfast.machinery.schema.cel.overloads import DYN
from holdfast.machinery.schema.cel.program import CelProgram
from holdfast.machinery.schema.cel.syntax import CelSyntaxError
from holdfast.machinery.schema.cel.times import duration, timestamp
from holdfast.machinery.schema.cel.values import (
    NO_OVERLOAD,
    NOTHING,
    CelRuntimeError,
    OptionalValue,
)
from holdfast.machinery.schema.field_errors import (
    FORBIDDEN,
    INVALID,
    REQUIRED,
    FieldError,
    field_problem,
)

Schema = dict[str, Any]


Problems = list[FieldError]

_RULES = "x-kubernetes-validations"
_ABSENT: Any = object()


class RuleTooCostly(HoldfastError):
    """Evaluating the rules on this object takes longer than a request may."""


def has_rules(schema: Schema) -> bool:
    return any(True for _ in _rules_in(schema, ""))


def has_only_own_rules(schema: Schema) -> bool:
    """Whether all rules are those of Holdfast's own definitions, which can be evaluated on an object of
    which parts are missing."""
    return all(own_rule(rule.get("rule", "")) is not None for _, rule in _rules_in(schema, ""))


def check_rules(schema: Schema, value: Any, old: Any, problems: Problems) -> None:
    """Evaluates every rule of a schema on an object without other errors, or without the parts that
    have some; `old` None on creation."""
    try:
        _Checking(problems).part(schema, value, _ABSENT if old is None else old, "")
    except RuleTooCostly as error:
        problems.append(error.args[0])


def check_limits(found: Problems, schema: Schema, path: str) -> None:
    """The rules of a schema that are too long, too deep or too many."""
    count = 0
    for where, rule in _rules_in(schema, path):
        count += 1
        for word in ("rule", "messageExpression"):
            problem = depth_problem(rule[word]) if isinstance(rule.get(word), str) else ""
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
        self._left = BUDGET

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

    def _judge(
        self, schema: Schema, rule: Schema, value: Any, old: Any, path: str
    ) -> FieldError | None:
        text = rule.get("rule", "")
        program = _program(text)
        if program is None or ("oldSelf" in text and not self._may_run(rule, old)):
            return None
        variables = {"self": as_value(schema, value)}
        if rule.get("optionalOldSelf"):
            before = NOTHING if old is _ABSENT else OptionalValue(True, as_value(schema, old))
            variables["oldSelf"] = before
        elif old is not _ABSENT:
            variables["oldSelf"] = as_value(schema, old)
        given = rule.get("message", "").strip()
        try:
            if self._evaluated(program, variables, value, path) is True:
                return None
        except CelRuntimeError as error:
            return self._failed(str(error), given or text, value, path)
        message = self._message(rule, variables, value, path) or given or f"failed rule: {text}"
        where = path + rule.get("fieldPath", "") if rule.get("fieldPath") else path
        reason = rule.get("reason") or INVALID
        if reason == REQUIRED or reason == "FieldValueForbidden" or isinstance(value, dict | list):
            return field_problem(reason, where, detail=message)
        return field_problem(reason, where, value, message)

    def _may_run(self, rule: Schema, old: Any) -> bool:
        """Whether a rule about a change applies: there is an old value, or it does not need one."""
        return old is not _ABSENT or bool(rule.get("optionalOldSelf"))

    def _message(self, rule: Schema, variables: dict[str, Any], value: Any, path: str) -> str:
        expression = rule.get("messageExpression")
        program = _program(expression) if expression else None
        if program is None:
            return ""
        try:
            message = self._evaluated(program, variables, value, path)
        except CelRuntimeError:
            return ""
        return message.strip() if isinstance(message, str) and "\n" not in message else ""

    def _evaluated(
        self, program: Rule | CelProgram, variables: dict[str, Any], value: Any, path: str
    ) -> Any:
        if not isinstance(program, CelProgram):
            return program(variables)
        state = State(dict(variables))
        try:
            return program.evaluate(state)
        finally:
            self._spend(min(state.cost, MAX_COST), value, path)

    def _failed(self, error: str, rule: str, value: Any, path: str) -> FieldError:
        """The error of a rule that cannot be evaluated on a value. Raises RuleTooCostly."""
        if error.startswith(NO_OVERLOAD):
            why = (
                f"'{error}': call arguments did not match a supported operator, function or macro "
                f"signature for rule: {rule}"
            )
        elif error.startswith("operation cancelled"):
            why = (
                f"'{error}': no further validation rules will be run due to call cost exceeds limit "
                f"for rule: {rule}"
            )
            raise RuleTooCostly(field_problem(INVALID, path, _kind(value), why))
        else:
            why = f"{error} evaluating rule: {rule}"
        return field_problem(INVALID, path, _kind(value), why)

    def _spend(self, cost: int, value: Any, path: str) -> None:
        self._left -= cost
        if self._left < 0:
            why = (
                "validation failed due to running out of cost budget, no further validation rules "
                "will be run"
            )
            raise RuleTooCostly(field_problem(INVALID, path, _kind(value), why))


def _kind(value: Any) -> str:
    """The type of a value in its schema."""
    match value:
        case dict():
            return "object"
        case list():
            return "array"
        case bool():
            return "boolean"
        case int():
            return "integer"
        case float():
            return "number"
        case _:
            return "string"


def _identity(item: Any, keys: Iterable[str]) -> str:
    """The identity of an item of a list with keys, which is the same in an older version of the
    list."""
    values = [item.get(key) for key in keys] if isinstance(item, dict) else item
    return json.dumps(values, sort_keys=True)


def _program(text: str) -> Rule | CelProgram | None:
    return own_rule(text) or _compiled(text)


@lru_cache(maxsize=1024)
def _compiled(text: str) -> CelProgram | None:
    if depth_problem(text):
        return None
    try:
        return CelProgram(text, {"self": DYN, "oldSelf": DYN})
    except CelSyntaxError:
        return None


MAX_CODE_POINTS = 100_000
MAX_DEPTH = 250
MAX_LINKS = 1_000
"""The most `&&` and `||` in a chain."""
MAX_OPERATORS = 4_000
"""In all, wherever they are."""
MAX_RULES = 2_000
"""In one schema: each is compiled, and evaluated on every write."""
BUDGET = 10 * MAX_COST
"""What all evaluations on one object may cost."""

_TOKEN = re.compile(
    r"""
    \s+ | //[^\n]*
  | (?P<raw>[bB]?[rR][bB]?(?:\"{3}.*?(?:\"{3}|\Z)|'{3}.*?(?:'{3}|\Z)|"[^"\n]*"?|'[^'\n]*'?))
  | (?P<text>[bB]?(?:\"{3}(?:[^\\]|\\.)*?(?:\"{3}|\Z)|'{3}(?:[^\\]|\\.)*?(?:'{3}|\Z)
        |"(?:[^"\\\n]|\\.)*"?|'(?:[^'\\\n]|\\.)*'?))
  | (?P<name>[A-Za-z_]\w*)
  | (?P<number>(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?[uU]?)
  | (?P<sign>&&|\|\||==|!=|<=|>=|.)
    """,
    re.VERBOSE | re.DOTALL,
)
_RELATIONS = frozenset(("==", "!=", "<", "<=", ">", ">=", "in"))
_SUMS = frozenset("+-*/%")
_BEFORE_OPERAND = (
    _RELATIONS | _SUMS | frozenset(("", "(", "[", "{", ",", "?", ":", "&&", "||", "!", "."))
)
_OPERATOR = re.compile(r"[-+*/%.<>=!&|?:(\[{]")
_FAILED = "compilation failed: ERROR: <input>:-1:0: "
_TOO_DEEP = f"{_FAILED}expression recursion limit exceeded: {MAX_DEPTH}"


class _Frame:
    """The open chains within one pair of brackets, with their lengths."""

    __slots__ = ("calc", "choices", "links", "member", "relations")

    def __init__(self) -> None:
        self.links = self.choices = self.relations = self.calc = self.member = 0

    @property
    def depth(self) -> int:
        return 1 + self.choices + self.relations + self.calc + self.member


@lru_cache(maxsize=2048)
def depth_problem(text: str) -> str:
    """Why a text is too long or too deep to be parsed; empty if it is not."""
    if len(text) > MAX_CODE_POINTS:
        why = f"expression code point size exceeds limit: size: {len(text)}, limit {MAX_CODE_POINTS}"
        return f"{_FAILED}{why}"
    if len(_OPERATOR.findall(text)) > MAX_OPERATORS:
        return _TOO_DEEP
    frames = [_Frame()]
    outer_depth = outer_links = 0
    last = ""
    for token in _TOKEN.finditer(text):
        if token.lastgroup is None:
            continue
        word = token[0]
        top = frames[-1]
        after_operand = last not in _BEFORE_OPERAND
        if token.lastgroup != "sign" and word != "in":
            pass
        elif word in "([{":
            top.member += after_operand
            outer_depth += top.depth
            outer_links += top.links
            frames.append(_Frame())
        elif word in ")]}":
            if len(frames) > 1:
                frames.pop()
                outer_depth -= frames[-1].depth
                outer_links -= frames[-1].links
        elif word == ",":
            frames[-1] = _Frame()
        elif word == ".":
            top.member += 1
        elif word in ("&&", "||"):
            top.links += 1
            top.relations = top.calc = top.member = 0
        elif word in "?:":
            top.choices += 1
            top.relations = top.calc = top.member = 0
        elif word in _RELATIONS:
            top.relations += 1
            top.calc = top.member = 0
        elif word in _SUMS and after_operand:
            top.calc += 1
            top.member = 0
        elif word in "!-":
            top.member += 1
        top = frames[-1]
        if outer_depth + top.depth > MAX_DEPTH or outer_links + top.links > MAX_LINKS:
            return _TOO_DEEP
        last = word
    return ""


_RESERVED = frozenset(
    """true false null in as break const continue else for function if import let loop package
    namespace return var void while""".split()
)
_SIGNS = {"__": "__underscores__", ".": "__dot__", "-": "__dash__", "/": "__slash__"}


def as_value(schema: Schema, value: Any) -> Any:
    """A value as rules see it: field names that are not CEL identifiers are escaped, numbers are
    doubles, and texts with some formats are times, durations or bytes."""
    if isinstance(value, dict):
        fields, values = schema.get("properties") or {}, schema.get("additionalProperties")
        return {
            field_name(name) if name in fields else name: as_value(
                fields.get(name) or (values if isinstance(values, dict) else {}), item
            )
            for name, item in value.items()
        }
    if isinstance(value, list):
        items = schema.get("items")
        return [as_value(items if isinstance(items, dict) else {}, item) for item in value]
    if schema.get("type") == "number" and isinstance(value, int) and not isinstance(value, bool):
        return float(value)
    if isinstance(value, str) and schema.get("format") in _FORMATS:
        try:
            return _FORMATS[schema["format"]](value)
        except (CelRuntimeError, ValueError):
            return value
    return value


_FORMATS: dict[str, Callable[[str], Any]] = {
    "date-time": timestamp,
    "date": lambda text: timestamp(f"{text}T00:00:00Z"),
    "duration": duration,
    "byte": lambda text: b64decode(text, validate=True),
}


def field_name(name: str) -> str:
    if name in _RESERVED:
        return f"__{name}__"
    if name.isidentifier() and "__" not in name:
        return name
    for sign, word in _SIGNS.items():
        name = name.replace(sign, word)
    return name


Variables = dict[str, Any]
Rule = Callable[[Variables], bool]

_FIXED = ("preAllocation", "preAllocationPolicy", "allocateOnce", "allocatePolicy")
_FIXED_IN_TEMPLATE = (
    "nodeName",
    "nodeSelector",
    "affinity",
    "tolerations",
    "topologySpreadConstraints",
    "volumes",
    "priority",
    "schedulerName",
)


_DURATION = re.compile(r"\+?(0|(([0-9]+(\.[0-9]*)?|\.[0-9]+)(ns|us|µs|μs|ms|s|m|h))+)")


def own_rule(text: str) -> Rule | None:
    """The Python function of a rule of Holdfast's own definitions. Rules are found by their message,
    their text is that of the definition."""
    return _by_text().get(text)


@cache
def _by_text() -> dict[str, Rule]:
    return {
        rule["rule"]: _BY_MESSAGE[rule["message"]]
        for definition in definitions()
        for version in definition["spec"]["versions"]
        for rule in own_rules_in(version["schema"]["openAPIV3Schema"])
        if rule.get("message") in _BY_MESSAGE
    }


def own_rules_in(schema: Any) -> Iterator[dict[str, Any]]:
    if isinstance(schema, dict):
        yield from schema.get("x-kubernetes-validations") or ()
        for part in schema.values():
            yield from own_rules_in(part)


def _one_end(variables: Variables) -> bool:
    return not ("ttl" in variables["self"] and "expires" in variables["self"])


def _is_duration(variables: Variables) -> bool:
    return _DURATION.fullmatch(variables["self"]) is not None


def _has_containers(variables: Variables) -> bool:
    return "resources" in variables["self"] or bool(variables["self"].get("containers"))


def _keeps_policy(variables: Variables) -> bool:
    return _unplaced(variables) or _same(_specs(variables), _FIXED)


def _keeps_template(variables: Variables) -> bool:
    templates = [(spec.get("template") or {}).get("spec") or {} for spec in _specs(variables)]
    return _unplaced(variables) or _same(templates, _FIXED_IN_TEMPLATE)


def _unplaced(variables: Variables) -> bool:
    return not (variables["oldSelf"].get("status") or {}).get("nodeName")


def _specs(variables: Variables) -> list[dict[str, Any]]:
    return [variables[name].get("spec") or {} for name in ("oldSelf", "self")]


def _same(parts: list[dict[str, Any]], fields: tuple[str, ...]) -> bool:
    before, after = parts
    return all(
        (field in before) == (field in after) and before.get(field) == after.get(field)
        for field in fields
    )


_FIXED_ONCE = "are fixed once the reservation has a node"
_RESIZED = "only the resources of the template can be changed once the reservation has a node"
_BY_MESSAGE: dict[str, Rule] = {
    "expires cannot be given together with ttl; keep one of them": _one_end,
    "must be a duration such as 90s, 5m or 1h30m": _is_duration,
    "is required: at least one container, or resources of the pod as a whole": _has_containers,
    f"{', '.join(_FIXED[:-1])} and {_FIXED[-1]} {_FIXED_ONCE}": _keeps_policy,
    _RESIZED: _keeps_template,
}
