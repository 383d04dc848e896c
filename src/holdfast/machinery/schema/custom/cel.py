"""`x-kubernetes-validations`: rules in CEL, the Common Expression Language.

Rules are evaluated by the package `common-expression-language`, which is loaded at the first rule that
needs it: it takes 0.2 s and 30 MB. The rules of Holdfast's own definitions do not, they are Python
functions (`own_rule`), so that a simulation or a local cluster with reservations starts without it. A
rule that cannot be evaluated, because it calls a function that the library lacks, is not checked, and
the response to a write of its definition has a warning.

The library parses and evaluates by recursion in native code: an expression that is too deep would end
the process. So the text of a rule is scanned first, without recursion, for its depth and for the
nesting of its macros, which bounds the cost of its evaluation. Limits and messages are those of cel-go
and of the API server. A definition with a rule beyond the limits is refused; such a rule in a
definition that is already stored is not evaluated.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator
from functools import cache, lru_cache
from importlib import import_module
from itertools import pairwise
from typing import Any, NamedTuple

from holdfast.api.crds import definitions
from holdfast.api.errors import HoldfastError
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


class NotEvaluated(HoldfastError):
    """The rule cannot be evaluated here."""


class RuleTooCostly(HoldfastError):
    """Evaluating the rule on this value could take longer than a request may."""


def has_rules(schema: Schema) -> bool:
    return any(True for _ in _rules_in(schema, ""))


def check_rules(schema: Schema, value: Any, old: Any, problems: Problems) -> None:
    """Evaluates every rule of a schema on an otherwise valid object; `old` None on creation."""
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

    def _judge(
        self, schema: Schema, rule: Schema, value: Any, old: Any, path: str
    ) -> FieldError | None:
        text = rule.get("rule", "")
        if "oldSelf" in text and (old is _ABSENT or rule.get("optionalOldSelf")):
            return None
        variables = {"self": escaped(schema, value)}
        if old is not _ABSENT:
            variables["oldSelf"] = escaped(schema, old)
        given = rule.get("message", "").strip()
        self._spend(cost(_nesting(text, rule), variables), given or text, value, path)
        try:
            if _evaluate(text, variables) is True:
                return None
        except NotEvaluated:
            return None
        except KeyError as error:
            detail = f"no such key: {error.args[0]} evaluating rule: {given or text}"
            return field_problem(INVALID, path, _kind(value), detail)
        message = _message(rule, variables) or given or f"failed rule: {text}"
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
            raise RuleTooCostly(field_problem(INVALID, path, _kind(value), why))
        self._left -= iterations
        if self._left < 0:
            why = (
                "validation failed due to running out of cost budget, no further validation rules "
                "will be run"
            )
            raise RuleTooCostly(field_problem(INVALID, path, _kind(value), why))


def _kind(value: Any) -> str:
    return "object" if isinstance(value, dict) else "array"


def _identity(item: Any, keys: Iterable[str]) -> str:
    """The identity of an item of a list with keys, which is the same in an older version of the
    list."""
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
        message = _evaluate(expression, variables)
    except (NotEvaluated, KeyError):
        return ""
    return message.strip() if isinstance(message, str) and "\n" not in message else ""


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
    return own_rule(text) or _compiled(text)


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


MAX_CODE_POINTS = 100_000
MAX_DEPTH = 250
MAX_LINKS = 1_000
"""The most `&&` and `||` in a chain. cel-go balances such chains; the library descends along them."""
MAX_OPERATORS = 4_000
"""In all, wherever they are: a bound that holds however the library reads a text."""
MAX_RULES = 2_000
"""In one schema: each is compiled, and evaluated on every write."""
CALL_BUDGET = 250_000
"""Iterations of macros one evaluation may take: a few tenths of a second."""
BUDGET = 10 * CALL_BUDGET
"""Iterations all evaluations on one object may take."""
_COPY = 64
"""`map` and `filter` copy what they have so far in every iteration: so many items cost as one more."""
_TEXT = 1_024
"""The number of characters that cost one more iteration."""

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
_LOOPS = frozenset(("all", "exists", "exists_one", "existsOne"))
_COPIES = frozenset(("map", "filter", "transformList", "transformMap"))


_FAILED = "compilation failed: ERROR: <input>:-1:0: "
_TOO_DEEP = f"{_FAILED}expression recursion limit exceeded: {MAX_DEPTH}"


class Nesting(NamedTuple):
    """How many macros enclose each other at most."""

    loops: int = 0
    copies: int = 0

    @property
    def order(self) -> int:
        return self.loops + 2 * self.copies


class Scan(NamedTuple):
    problem: str
    """Why the library must not see the text; empty if it may."""
    nesting: Nesting


class _Frame:
    """The open chains within one pair of brackets, with their lengths."""

    __slots__ = ("calc", "choices", "links", "member", "nesting", "relations")

    def __init__(self, nesting: Nesting) -> None:
        self.nesting = nesting
        self.links = self.choices = self.relations = self.calc = self.member = 0

    @property
    def depth(self) -> int:
        return 1 + self.choices + self.relations + self.calc + self.member


@lru_cache(maxsize=2048)
def scan(text: str) -> Scan:
    """What is known of a rule from its text."""
    if len(text) > MAX_CODE_POINTS:
        why = f"expression code point size exceeds limit: size: {len(text)}, limit {MAX_CODE_POINTS}"
        return Scan(f"{_FAILED}{why}", Nesting())
    if len(_OPERATOR.findall(text)) > MAX_OPERATORS:
        return Scan(_TOO_DEEP, Nesting())
    frames = [_Frame(Nesting())]
    outer_depth = outer_links = 0
    worst = Nesting()
    before = last = ""
    for token in _TOKEN.finditer(text):
        if token.lastgroup is None:
            continue
        word = token[0]
        top = frames[-1]
        after_operand = last not in _BEFORE_OPERAND
        if token.lastgroup != "sign" and word != "in":
            pass
        elif word in "([{":
            nesting = top.nesting
            if word == "(" and before == "." and last in _LOOPS:
                nesting = nesting._replace(loops=nesting.loops + 1)
            elif word == "(" and before == "." and last in _COPIES:
                nesting = nesting._replace(copies=nesting.copies + 1)
            worst = max(worst, nesting, key=_order)
            top.member += after_operand
            outer_depth += top.depth
            outer_links += top.links
            frames.append(_Frame(nesting))
        elif word in ")]}":
            if len(frames) > 1:
                frames.pop()
                outer_depth -= frames[-1].depth
                outer_links -= frames[-1].links
        elif word == ",":
            frames[-1] = _Frame(top.nesting)
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
            return Scan(_TOO_DEEP, worst)
        before, last = last, word
    return Scan("", worst)


def _order(nesting: Nesting) -> int:
    return nesting.order


def cost(nesting: Nesting, variables: dict[str, Any]) -> float:
    """How many iterations evaluating a rule on these values may take."""
    if not nesting.order:
        return 0.0
    items, longest = _extent(variables)
    copy = items * (1 + items / _COPY)
    iterations = float(items) ** nesting.loops * copy**nesting.copies
    return iterations * (1 + longest / _TEXT)


def _extent(value: Any) -> tuple[int, int]:
    """The size of the largest list or map in a value, and the length of the longest text."""
    items = longest = 0
    waiting = [value]
    while waiting:
        one = waiting.pop()
        if one.__class__ is str:
            longest = max(longest, len(one))
        elif one.__class__ is dict:
            items = max(items, len(one))
            waiting.extend(one.values())
        elif one.__class__ is list:
            items = max(items, len(one))
            waiting.extend(one)
    return items, longest


_RESERVED = frozenset(
    """true false null in as break const continue else for function if import let loop package
    namespace return var void while""".split()
)
_SIGNS = {"__": "__underscores__", ".": "__dot__", "-": "__dash__", "/": "__slash__"}


def escaped(schema: Schema, value: Any) -> Any:
    """A value as rules see it: field names that are not CEL identifiers are escaped."""
    if isinstance(value, dict):
        fields, values = schema.get("properties") or {}, schema.get("additionalProperties")
        return {
            field_name(name) if name in fields else name: escaped(
                fields.get(name) or (values if isinstance(values, dict) else {}), item
            )
            for name, item in value.items()
        }
    if isinstance(value, list):
        items = schema.get("items")
        return [escaped(items if isinstance(items, dict) else {}, item) for item in value]
    return value


def field_name(name: str) -> str:
    if name in _RESERVED:
        return f"__{name}__"
    if name.isidentifier() and "__" not in name:
        return name
    for sign, word in _SIGNS.items():
        name = name.replace(sign, word)
    return name


def _is_sorted(items: list[Any]) -> bool:
    return all(a <= b for a, b in pairwise(items))


def _substring(text: str, start: int, end: int | None = None) -> str:
    return text[start:end]


FUNCTIONS: dict[str, Callable[..., Any]] = {
    "indexOf": lambda text, part: text.find(part),
    "isSorted": _is_sorted,
    "join": lambda items, between="": between.join(items),
    "lastIndexOf": lambda text, part: text.rfind(part),
    "lowerAscii": lambda text: text.lower(),
    "max": lambda *items: max(items[0] if len(items) == 1 else items),
    "min": lambda *items: min(items[0] if len(items) == 1 else items),
    "replace": lambda text, old, new: text.replace(old, new),
    "split": lambda text, between: text.split(between),
    "substring": _substring,
    "sum": lambda items: sum(items),
    "trim": lambda text: text.strip(),
    "upperAscii": lambda text: text.upper(),
}


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
    "is required: at least one container, or resources of the pod as a whole": _has_containers,
    f"{', '.join(_FIXED[:-1])} and {_FIXED[-1]} {_FIXED_ONCE}": _keeps_policy,
    _RESIZED: _keeps_template,
}
