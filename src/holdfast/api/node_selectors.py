"""Node selector terms: requirements on a node's labels and on its name.

A term with a mistake in it matches no node, as in Kubernetes; `validation` is where mistakes
are reported.
"""

from __future__ import annotations

from collections.abc import Mapping

from holdfast.api.affinity import NodeSelector, NodeSelectorRequirement, NodeSelectorTerm
from holdfast.api.errors import SelectorError
from holdfast.api.label_selectors import Requirement, requirement
from holdfast.api.names import NODE_NAME_FIELD


def node_requirement(expression: NodeSelectorRequirement) -> Requirement:
    """A checked requirement on labels; raises `SelectorError`."""
    return requirement(expression.key, expression.operator, expression.values, node=True)


def field_requirement(expression: NodeSelectorRequirement) -> Requirement:
    """A checked requirement on the node's name, the only field there is."""
    if expression.key != NODE_NAME_FIELD:
        raise SelectorError(f"unknown field {expression.key!r}; known: {NODE_NAME_FIELD}")
    if expression.operator not in ("In", "NotIn"):
        raise SelectorError(f"unknown operator {expression.operator!r}; known: In, NotIn")
    if len(expression.values) != 1:
        raise SelectorError(f"{expression.operator} on a field needs exactly one value")
    return Requirement(expression.key, expression.operator, tuple(expression.values))


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
