"""Node selector terms: requirements on a node's labels and on its name.

A term with a mistake in it matches no node, as in Kubernetes; `validation` is where mistakes
are reported.
"""

from __future__ import annotations

from collections.abc import Mapping

from holdfast.api.affinity import NodeSelector, NodeSelectorRequirement, NodeSelectorTerm
from holdfast.api.errors import SelectorError
from holdfast.api.label_selectors import (
    Requirement,
    requirement,
    requirement_problems,
    shown_values,
)
from holdfast.api.names import NODE_NAME_FIELD


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
    """What is wrong with a term that stands at a path, in kube-scheduler's words."""
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
    """All expressions and all fields must hold; a term that says nothing matches nothing."""
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
