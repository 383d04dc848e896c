"""Selectors as people type them: `-l 'app=web,tier in (a,b)'` and `--field-selector`.

What is wrong with one is said in Kubernetes' words.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, NamedTuple

from holdfast.api.errors import SelectorError
from holdfast.api.label_selectors import Requirement, Selector, requirement
from holdfast.api.name_words import label_key

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
