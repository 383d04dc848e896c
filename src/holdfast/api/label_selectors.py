"""Selecting objects by labels: label selectors, compiled once and matched often.

A compiled `Selector` is a set of requirements that must all hold. Its `key` is the same for
any two selectors that say the same in the same words, in whatever order, so counts kept per
selector are shared between the pods that mean the same.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import NamedTuple

from holdfast.api.errors import SelectorError
from holdfast.api.meta import LabelSelector
from holdfast.api.syntax import label_value_problem, qualified_name_problem

_INTEGER = re.compile(r"[+-]?[0-9]+")
_LABEL_OPERATORS = ("In", "NotIn", "Exists", "DoesNotExist")
_NODE_OPERATORS = (*_LABEL_OPERATORS, "Gt", "Lt")


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


class Selector:
    """Requirements that must all hold; none at all matches everything, `nothing` nothing."""

    __slots__ = ("_hash", "key", "nothing", "requirements")

    def __init__(self, requirements: tuple[Requirement, ...] = (), *, nothing: bool = False):
        self.requirements = tuple(sorted(set(requirements)))
        self.nothing = nothing
        self.key: tuple[object, ...] = (nothing, *self.requirements)
        self._hash = hash(self.key)

    def matches(self, labels: Mapping[str, str]) -> bool:
        if self.nothing:
            return False
        for requirement in self.requirements:
            if not requirement.matches(labels):
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
    operators = _NODE_OPERATORS if node else _LABEL_OPERATORS
    if operator not in operators:
        sort = "node" if node else "label"
        raise SelectorError(f'"{operator}" is not a valid {sort} selector operator')
    if problem := qualified_name_problem(key):
        raise SelectorError(f"key: {problem}")
    if operator in ("In", "NotIn") and not values:
        raise SelectorError(f"{operator} needs at least one value")
    if operator in ("Exists", "DoesNotExist") and values:
        raise SelectorError(f"{operator} takes no values")
    if operator in ("Gt", "Lt") and (len(values) != 1 or as_integer(values[0]) is None):
        if len(values) != 1:
            raise SelectorError("values: for 'Gt', 'Lt' operators, exactly one value is required")
        why = "for 'Gt', 'Lt' operators, the value must be an integer"
        raise SelectorError(f'values[0]: Invalid value: "{values[0]}": {why}')
    for value in values:
        if problem := label_value_problem(value):
            raise SelectorError(f"value: {problem}")
    return Requirement(key, operator, tuple(sorted(set(values))))


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
