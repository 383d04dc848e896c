"""Selecting objects by labels: label selectors, compiled once and matched often.

A compiled `Selector` is a set of requirements that must all hold. Its `key` is the same for
any two selectors that say the same in the same words, in whatever order, so counts kept per
selector are shared between the pods that mean the same.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import NamedTuple

from holdfast.api.errors import SelectorError
from holdfast.api.meta import LabelSelector
from holdfast.api.name_words import label_key, label_value

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
    """All requirements on one label, joined, so that a value is judged at once however many there
    are."""

    __slots__ = ("_above", "_allowed", "_below", "_denied", "_never", "needed")

    def __init__(self, requirements: list[Requirement]) -> None:
        self.needed = any(each.operator not in ("NotIn", "DoesNotExist") for each in requirements)
        """Whether the label must be there."""
        self._never = False
        """Whether no value will do."""
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
    """What is wrong with a requirement that stands at a path, in kube-scheduler's words."""
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
    """As Kubernetes shows them where they are wrong together."""
    return json.dumps(list(values), ensure_ascii=False, separators=(",", ":")) if values else "null"


def aggregated(problems: list[str]) -> str:
    """Several problems in one line, each said once."""
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
