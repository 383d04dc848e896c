from __future__ import annotations

from holdfast.api.affinity import NodeAffinity as Terms
from holdfast.api.affinity import NodeSelector, NodeSelectorRequirement, NodeSelectorTerm
from holdfast.api.node import Node
from holdfast.api.pod import Pod
from reference.plugin import Nowhere, ReferencePlugin, Unfit, by_maximum
from reference.state import ReferenceState


class NodeAffinity(ReferencePlugin):
    """`added` is what the profile asks of every pod."""

    name = "NodeAffinity"

    def __init__(self, added: Terms | None = None) -> None:
        self._added = added or Terms()

    def only(self, pod: Pod, world: ReferenceState) -> set[str] | Nowhere | None:
        required = _required(_affinity(pod))
        if required is None or not required.node_selector_terms:
            return None
        named: set[str] = set()
        for term in required.node_selector_terms:
            by_name = [
                set(field.values)
                for field in term.match_fields
                if field.key == "metadata.name" and field.operator == "In"
            ]
            if not by_name:
                return None
            named |= set.intersection(*by_name)
        return named or Nowhere("pod affinity terms conflict")

    def filter(self, pod: Pod, node: Node, world: ReferenceState) -> Unfit | None:
        enforced = _required(self._added)
        if enforced is not None and not _selected(enforced, node):
            return Unfit(("node(s) didn't match scheduler-enforced node affinity",), False)
        labels = node.metadata.labels
        for key, value in pod.spec.node_selector.items():
            if labels.get(key) != value:
                return _MISMATCH
        required = _required(_affinity(pod))
        if required is not None and not _selected(required, node):
            return _MISMATCH
        return None

    def score(self, pod: Pod, node: Node, world: ReferenceState) -> int:
        total = 0
        for affinity in (self._added, _affinity(pod)):
            for term in affinity.preferred_during_scheduling_ignored_during_execution:
                if matches(term.preference, node):
                    total += term.weight
        return total

    def normalize(self, scores: dict[str, int]) -> dict[str, int]:
        return by_maximum(scores)


_MISMATCH = Unfit(("node(s) didn't match Pod's node affinity/selector",), False)


def _affinity(pod: Pod) -> Terms:
    if pod.spec.affinity is None or pod.spec.affinity.node_affinity is None:
        return Terms()
    return pod.spec.affinity.node_affinity


def _required(affinity: Terms) -> NodeSelector | None:
    return affinity.required_during_scheduling_ignored_during_execution


def _selected(selector: NodeSelector, node: Node) -> bool:
    return any(matches(term, node) for term in selector.node_selector_terms)


def matches(term: NodeSelectorTerm, node: Node) -> bool:
    if not term.match_expressions and not term.match_fields:
        return False
    for field in term.match_fields:
        if len(field.values) != 1 or field.operator not in ("In", "NotIn"):
            return False
        if (node.metadata.name == field.values[0]) != (field.operator == "In"):
            return False
    return all(_holds(expression, node.metadata.labels) for expression in term.match_expressions)


def _holds(expression: NodeSelectorRequirement, labels: dict[str, str]) -> bool:
    value = labels.get(expression.key)
    match expression.operator:
        case "Exists":
            return value is not None
        case "DoesNotExist":
            return value is None
        case "In":
            return value is not None and value in expression.values
        case "NotIn":
            return value is None or value not in expression.values
        case "Gt" | "Lt":
            try:
                has, bound = int(value or ""), int(expression.values[0])
            except ValueError:
                return False
            return has > bound if expression.operator == "Gt" else has < bound
        case _:
            return False
