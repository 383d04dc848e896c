"""Selecting objects by labels: label selectors, compiled once and matched often.

A compiled `Selector` is a set of requirements that must all hold. Two selectors with the same
requirements, in any order, have the same `key`, so that pods with equal selectors share counts.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from holdfast.api.affinity import (
    NodeSelector,
    NodeSelectorRequirement,
    NodeSelectorTerm,
    Taint,
    Toleration,
)
from holdfast.api.errors import SelectorError
from holdfast.api.meta import LabelSelector
from holdfast.api.name_rules import label_key, label_value
from holdfast.api.names import NO_EXECUTE, NO_SCHEDULE, NODE_NAME_FIELD

_INTEGER = re.compile(r"[+-]?[0-9]+")
_LABEL_OPERATORS = ("In", "NotIn", "Exists", "DoesNotExist")
_NODE_OPERATORS = (*_LABEL_OPERATORS, "Gt", "Lt")
_EMPTY_SET = "for 'in', 'notin' operators, values set can't be empty"
_NO_SET = "values set must be empty for exists and does not exist"
_ONE_NUMBER = "for 'Gt', 'Lt' operators, exactly one value is required"
_NUMBER = "for 'Gt', 'Lt' operators, the value must be an integer"


class Requirement(NamedTuple):
    """One condition on one label. `values` are sorted and distinct, so equal means equal."""

    key: str
    operator: str
    values: tuple[str, ...] = ()

    def matches(self, labels: Mapping[str, str]) -> bool:
        value = labels.get(self.key)
        match self.operator:
            case "In":
                return value is not None and value in self.values
            case "NotIn":
                return value is None or value not in self.values
            case "Exists":
                return value is not None
            case "DoesNotExist":
                return value is None
            case "Gt" | "Lt":
                return value is not None and _compare(self.operator, value, self.values[0])
            case _:
                return False


class _OfKey:
    """All requirements on one label, joined, so that a value is checked once for all of them."""

    __slots__ = ("_above", "_allowed", "_below", "_denied", "_never", "needed")

    def __init__(self, requirements: list[Requirement]) -> None:
        self.needed = any(each.operator not in ("NotIn", "DoesNotExist") for each in requirements)
        """Whether the label must be there."""
        self._never = False
        """Whether no value matches."""
        self._allowed: frozenset[str] | None = None
        self._denied: frozenset[str] = frozenset()
        self._above: int | None = None
        self._below: int | None = None
        denied: set[str] = set()
        for each in requirements:
            match each.operator:
                case "In":
                    values = frozenset(each.values)
                    self._allowed = values if self._allowed is None else self._allowed & values
                case "NotIn":
                    denied.update(each.values)
                case "Exists":
                    pass
                case "Gt" | "Lt":
                    self._bound(each.operator, as_integer(each.values[0]))
                case _:
                    self._never = True
        self._denied = frozenset(denied)

    def _bound(self, operator: str, value: int | None) -> None:
        if value is None:
            self._never = True
        elif operator == "Gt":
            self._above = value if self._above is None else max(self._above, value)
        else:
            self._below = value if self._below is None else min(self._below, value)

    def allows(self, value: str) -> bool:
        if self._never or value in self._denied:
            return False
        if self._allowed is not None and value not in self._allowed:
            return False
        if self._above is None and self._below is None:
            return True
        number = as_integer(value)
        return (
            number is not None
            and (self._above is None or number > self._above)
            and (self._below is None or number < self._below)
        )


_FEW = 4
"""Requirements, or values of one, that are judged one after the other."""


class Selector:
    """Requirements that must all hold; none at all matches everything, `nothing` nothing.

    What labels cost to match depends on how many these are, not on how long the selector is."""

    __slots__ = ("_hash", "_joined", "_needed", "key", "nothing", "requirements")

    def __init__(self, requirements: tuple[Requirement, ...] = (), *, nothing: bool = False):
        self.requirements = tuple(sorted(set(requirements)))
        self.nothing = nothing
        self.key: tuple[object, ...] = (nothing, *self.requirements)
        self._hash = hash(self.key)
        self._joined: dict[str, _OfKey] | None = None
        """By label, of a long selector."""
        self._needed: tuple[str, ...] = ()
        if len(self.requirements) > _FEW or any(len(r.values) > _FEW for r in self.requirements):
            self._join()

    def _join(self) -> None:
        by_key: dict[str, list[Requirement]] = {}
        for each in self.requirements:
            by_key.setdefault(each.key, []).append(each)
        self._joined = {key: _OfKey(requirements) for key, requirements in by_key.items()}
        self._needed = tuple(key for key, joined in self._joined.items() if joined.needed)

    def matches(self, labels: Mapping[str, str]) -> bool:
        if self.nothing:
            return False
        if self._joined is not None:
            return self._matches_joined(self._joined, labels)
        for requirement in self.requirements:
            if not requirement.matches(labels):
                return False
        return True

    def _matches_joined(self, joined: dict[str, _OfKey], labels: Mapping[str, str]) -> bool:
        if len(self._needed) > len(labels):
            return False
        for key in self._needed:
            if key not in labels:
                return False
        for key, value in labels.items():
            of_key = joined.get(key)
            if of_key is not None and not of_key.allows(value):
                return False
        return True

    @property
    def everything(self) -> bool:
        return not self.nothing and not self.requirements

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Selector) and self.key == other.key

    def __hash__(self) -> int:
        return self._hash

    def __repr__(self) -> str:
        if self.nothing:
            return "Selector(nothing)"
        said = (f"{r.key} {r.operator} {','.join(r.values)}".rstrip() for r in self.requirements)
        return f"Selector({'; '.join(said)})"


EVERYTHING = Selector()
NOTHING = Selector(nothing=True)


def requirement(
    key: str, operator: str, values: list[str] | tuple[str, ...], *, node: bool = False
) -> Requirement:
    """A checked requirement; raises `SelectorError`. `node` also allows Gt and Lt."""
    if problems := requirement_problems(key, operator, values, node=node):
        raise SelectorError(aggregated(problems))
    return Requirement(key, operator, tuple(sorted(set(values))))


def requirement_problems(
    key: str,
    operator: str,
    values: list[str] | tuple[str, ...],
    *,
    node: bool = False,
    path: str = "",
) -> list[str]:
    """The errors of a requirement at a path, with kube-scheduler's messages."""
    at = f"{path}." if path else ""
    if not node and operator not in _LABEL_OPERATORS:
        return [f'"{operator}" is not a valid label selector operator']
    if operator not in _NODE_OPERATORS:
        known = ", ".join(f'"{name}"' for name in sorted(_NODE_OPERATORS))
        return [f'{at}operator: Unsupported value: "{operator}": supported values: {known}']
    found = []
    if said := label_key(key):
        found.append(f'{at}key: Invalid value: "{key}": {"; ".join(said)}')
    shown = shown_values(values)
    match operator:
        case "In" | "NotIn" if not values:
            found.append(f"{at}values: Invalid value: {shown}: {_EMPTY_SET}")
        case "Exists" | "DoesNotExist" if values:
            found.append(f"{at}values: Invalid value: {shown}: {_NO_SET}")
        case "Gt" | "Lt":
            if len(values) != 1:
                found.append(f"{at}values: Invalid value: {shown}: {_ONE_NUMBER}")
            found += [
                f'{at}values[{i}]: Invalid value: "{value}": {_NUMBER}'
                for i, value in enumerate(values)
                if as_integer(value) is None
            ]
    found += [
        f'{at}values[{i}][{key}]: Invalid value: "{value}": {"; ".join(said)}'
        for i, value in enumerate(values)
        if (said := label_value(value))
    ]
    return found


def shown_values(values: list[str] | tuple[str, ...]) -> str:
    """The values in the form of Kubernetes' messages."""
    return json.dumps(list(values), ensure_ascii=False, separators=(",", ":")) if values else "null"


def aggregated(problems: list[str]) -> str:
    """Several problems in one line, without duplicates."""
    said = list(dict.fromkeys(problems))
    return said[0] if len(said) == 1 else f"[{', '.join(said)}]"


def compile_selector(selector: LabelSelector | None) -> Selector:
    """The compiled form; an absent selector selects nothing. Raises `SelectorError`."""
    if selector is None:
        return NOTHING
    wanted = [requirement(key, "In", [value]) for key, value in selector.match_labels.items()]
    wanted += [requirement(e.key, e.operator, e.values) for e in selector.match_expressions]
    return Selector(tuple(wanted)) if wanted else EVERYTHING


def selector_from_map(labels: Mapping[str, str]) -> Selector:
    """For the places where Kubernetes selects by a plain map (services, nodeSelector)."""
    return Selector(tuple(Requirement(key, "In", (value,)) for key, value in labels.items()))


def matches(selector: LabelSelector | None, labels: Mapping[str, str]) -> bool:
    """Absent matches nothing, empty matches everything. Compile what is asked often."""
    return compile_selector(selector).matches(labels)


def _compare(operator: str, value: str, bound: str) -> bool:
    left, right = as_integer(value), as_integer(bound)
    if left is None or right is None:
        return False
    return left > right if operator == "Gt" else left < right


def as_integer(text: str) -> int | None:
    if len(text) > 20 or _INTEGER.fullmatch(text) is None:
        return None
    value = int(text)
    return value if -(2**63) <= value < 2**63 else None


# Node selector terms: requirements on a node's labels and on its name.
#
# A term with a mistake in it matches no node, as in Kubernetes; `validation` is where mistakes
# are reported.


def node_requirement(expression: NodeSelectorRequirement) -> Requirement:
    """A checked requirement on labels; raises `SelectorError`."""
    return requirement(expression.key, expression.operator, expression.values, node=True)


def field_requirement(expression: NodeSelectorRequirement) -> Requirement:
    """A checked requirement on the node's name, the only field there is."""
    if expression.key != NODE_NAME_FIELD:
        raise SelectorError(f"unknown field {expression.key!r}; known: {NODE_NAME_FIELD}")
    if problem := _field_problem(expression, ""):
        raise SelectorError(problem)
    return Requirement(expression.key, expression.operator, tuple(expression.values))


def term_problems(term: NodeSelectorTerm, path: str) -> list[str]:
    """The errors of a term at a path, with kube-scheduler's messages."""
    found: list[str] = []
    for i, e in enumerate(term.match_expressions):
        at = f"{path}.matchExpressions[{i}]"
        found += requirement_problems(e.key, e.operator, e.values, node=True, path=at)
    for i, e in enumerate(term.match_fields):
        if problem := _field_problem(e, f"{path}.matchFields[{i}]."):
            found.append(problem)
    return found


def _field_problem(expression: NodeSelectorRequirement, at: str) -> str:
    operator, values = expression.operator, expression.values
    if operator not in ("In", "NotIn"):
        return f'{at}operator: Unsupported value: "{operator}": supported values: "In", "NotIn"'
    if len(values) != 1:
        return f"{at}values: Invalid value: {shown_values(values)}: must have one element"
    return ""


def match_node_requirement(expression: NodeSelectorRequirement, labels: Mapping[str, str]) -> bool:
    try:
        return node_requirement(expression).matches(labels)
    except SelectorError:
        return False


def match_node_selector_term(term: NodeSelectorTerm, labels: Mapping[str, str], name: str) -> bool:
    """All expressions and all fields must hold; an empty term matches nothing."""
    if not term.match_expressions and not term.match_fields:
        return False
    try:
        wanted = [node_requirement(e) for e in term.match_expressions]
        fields = [field_requirement(e) for e in term.match_fields]
    except SelectorError:
        return False
    named = {NODE_NAME_FIELD: name}
    return all(r.matches(labels) for r in wanted) and all(r.matches(named) for r in fields)


def match_node_selector(selector: NodeSelector, labels: Mapping[str, str], name: str) -> bool:
    """Terms are alternatives; a selector without terms matches nothing."""
    return any(match_node_selector_term(t, labels, name) for t in selector.node_selector_terms)


# Selectors as people type them: `-l 'app=web,tier in (a,b)'` and `--field-selector`.
# Errors have Kubernetes' messages.


_TOKEN = re.compile(r"\s*(==|!=|[=!<>(),]|[^\s=!<>(),]+)")
_COMPARISONS = {"=": "In", "==": "In", "!=": "NotIn", ">": "Gt", "<": "Lt"}
_SETS = {"in": "In", "notin": "NotIn"}
_SIGNS = frozenset({"=", "==", "!=", "!", "<", ">", "(", ")", ","})


def parse_label_selector(text: str) -> Selector:
    """Requirements joined by commas; empty text selects everything. Raises `SelectorError`."""
    tokens = _tokens(text)
    requirements: list[Requirement] = []
    while tokens:
        if tokens[-1] != "!" and tokens[-1] in _SIGNS:
            raise SelectorError(f"found '{tokens[-1]}', expected: !, identifier, or 'end of string'")
        try:
            requirements.append(_requirement(tokens))
        except SelectorError as error:
            raise SelectorError(f"unable to parse requirement: {error}") from None
        if tokens:
            if tokens[-1] != ",":
                raise SelectorError(f"found '{tokens[-1]}', expected: ',' or 'end of string'")
            tokens.pop()
            if not tokens or (tokens[-1] != "!" and tokens[-1] in _SIGNS):
                found = tokens[-1] if tokens else ""
                raise SelectorError(f"found '{found}', expected: identifier after ','")
    return Selector(tuple(requirements))


def _tokens(text: str) -> list[str]:
    """The next one last, from where it is cheap to take it."""
    tokens = _TOKEN.findall(text.rstrip())
    tokens.reverse()
    return tokens


def _requirement(tokens: list[str]) -> Requirement:
    negated = tokens[-1] == "!"
    if negated:
        tokens.pop()
    if not tokens or tokens[-1] in _SIGNS:
        raise SelectorError(f"found '{tokens[-1] if tokens else ''}', expected: identifier")
    key = tokens.pop()
    if said := label_key(key):
        # Kubernetes names the field of a selector, and here there is none.
        raise SelectorError(f'<nil>: Invalid value: "{key}": {"; ".join(said)}')
    if negated:
        return requirement(key, "DoesNotExist", [])
    if not tokens or tokens[-1] == ",":
        return requirement(key, "Exists", [])
    sign = tokens.pop()
    if sign in _SETS:
        return requirement(key, _SETS[sign], sorted(set(_values(tokens))))
    if sign not in _COMPARISONS:
        raise SelectorError(f"found '{sign}', expected: in, notin, =, ==, !=, gt, lt")
    value = "" if not tokens or tokens[-1] == "," else tokens.pop()
    if value in _SIGNS:
        raise SelectorError(f"found '{value}', expected: identifier")
    return requirement(key, _COMPARISONS[sign], [value], node=True)


def _values(tokens: list[str]) -> list[str]:
    """`(a,b)`; between commas nothing means the empty value, as in Kubernetes."""
    if not tokens or tokens[-1] != "(":
        raise SelectorError(f"found '{tokens[-1] if tokens else ''}' expected: '('")
    tokens.pop()
    values, current = [], ""
    while tokens:
        token = tokens.pop()
        if token in (",", ")"):
            values.append(current)
            current = ""
            if token == ")":
                return values
        elif token in _SIGNS or current:
            raise SelectorError(f"found '{token}', expected: ',' or ')'")
        else:
            current = token
    raise SelectorError("found '', expected: ',' or ')'")


class FieldCondition(NamedTuple):
    path: str
    equal: bool
    value: str


class FieldSelector(NamedTuple):
    """Conditions on fields of raw objects; a field that is not there counts as empty."""

    conditions: tuple[FieldCondition, ...]

    def matches(self, raw: Mapping[str, Any]) -> bool:
        return all((_field(raw, c.path) == c.value) is c.equal for c in self.conditions)


def parse_field_selector(text: str) -> FieldSelector:
    """`metadata.name=x,status.phase!=Running`; a backslash takes `,`, `=` and itself as text."""
    conditions = []
    for part in re.findall(r"(?:[^\\,]|\\.)+", text):
        split = re.fullmatch(r"\s*([^=!\\\s]+)\s*(!=|==|=)((?:[^\\=]|\\[\\,=])*)", part)
        if split is None:
            raise SelectorError(f"expected field=value or field!=value instead of {part!r}")
        value = re.sub(r"\\([\\,=])", r"\1", split[3])
        conditions.append(FieldCondition(split[1], split[2] != "!=", value.strip()))
    return FieldSelector(tuple(conditions))


def _field(raw: Mapping[str, Any], path: str) -> str:
    here: Any = raw
    for step in path.split("."):
        if not isinstance(here, Mapping):
            return ""
        here = here.get(step)
    if here is None or isinstance(here, Mapping | list):
        return ""
    if isinstance(here, bool):
        return "true" if here else "false"
    return str(here)


# Taints keep pods off a node; tolerations let them in.


HARD_EFFECTS = (NO_SCHEDULE, NO_EXECUTE)
"""The effects that forbid; PreferNoSchedule only discourages."""


def tolerates(toleration: Toleration, taint: Taint) -> bool:
    """An empty effect stands for all effects, and an empty key for all keys."""
    if toleration.effect and toleration.effect != taint.effect:
        return False
    if toleration.key and toleration.key != taint.key:
        return False
    match toleration.operator:
        case "" | "Equal":
            return toleration.value == taint.value
        case "Exists":
            return True
        case "Gt" | "Lt":
            has, bound = as_integer(taint.value), as_integer(toleration.value)
            if has is None or bound is None:
                return False
            return has > bound if toleration.operator == "Gt" else has < bound
        case _:
            return False


def tolerated(taint: Taint, tolerations: Iterable[Toleration]) -> bool:
    return any(tolerates(toleration, taint) for toleration in tolerations)


def find_untolerated(
    taints: Iterable[Taint],
    tolerations: Sequence[Toleration],
    effects: Collection[str] = HARD_EFFECTS,
) -> Taint | None:
    """The first taint with one of the effects that no toleration covers."""
    for taint in taints:
        if taint.effect in effects and not tolerated(taint, tolerations):
            return taint
    return None


# Everything that selects: labels, fields, nodes, taints.
#
# The door to four small modules, so that users need not know which of them holds what.


__all__ = [
    "EVERYTHING",
    "NOTHING",
    "FieldSelector",
    "Requirement",
    "Selector",
    "SelectorError",
    "compile_selector",
    "find_untolerated",
    "match_node_requirement",
    "match_node_selector",
    "match_node_selector_term",
    "matches",
    "node_requirement",
    "parse_field_selector",
    "parse_label_selector",
    "requirement",
    "selector_from_map",
    "tolerates",
]
