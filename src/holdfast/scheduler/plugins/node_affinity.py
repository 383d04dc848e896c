"""NodeAffinity: `nodeSelector` and node affinity, required and preferred, and the affinity a profile
adds to every pod."""

from collections.abc import Mapping
from typing import Any

from holdfast.api.affinity import NodeAffinity as Affinity
from holdfast.api.affinity import NodeSelectorTerm, PreferredSchedulingTerm
from holdfast.api.decode import convert
from holdfast.api.errors import SelectorError
from holdfast.api.names import NODE_NAME_FIELD
from holdfast.api.selectors import aggregated, term_problems
from holdfast.scheduler.cluster.class_key import required_terms
from holdfast.scheduler.cluster.events import Change
from holdfast.scheduler.cluster.pod_classes import PodClass
from holdfast.scheduler.cluster.view import Cells, View
from holdfast.scheduler.framework.handle import Handle
from holdfast.scheduler.framework.interface import (
    ByMaximum,
    Filter,
    Plugin,
    Reason,
    Rejected,
    Scope,
    Score,
)

REASON = "node(s) didn't match Pod's node affinity/selector"
REASON_ENFORCED = "node(s) didn't match scheduler-enforced node affinity"
REASON_CONFLICT = "pod affinity terms conflict"


class NodeAffinityPlugin(Plugin):
    name = "NodeAffinity"
    wakes_on = Change.NODE_ADDED | Change.NODE_LABELS

    def __init__(self, handle: Handle, args: Mapping[str, Any] | Any) -> None:
        super().__init__(handle, args)
        raw = getattr(args, "added_affinity", None)
        self._added = convert(raw, Affinity) if raw else Affinity()

    def filter(self, cls: PodClass) -> Filter | Rejected | None:
        nodes = self.handle.nodes
        added = self._added.required_during_scheduling_ignored_during_execution
        enforced = nodes.matching_terms(added.node_selector_terms) if added else None
        wanted = [nodes.matching_labels(cls.node_selector)] if cls.node_selector else []
        if has_required(cls):
            wanted.append(nodes.matching_terms(required_terms(cls.affinity)))
        if enforced is None and not wanted:
            return None
        only = named_nodes(required_terms(cls.affinity))
        if only is not None and not only:
            return Rejected(REASON_CONFLICT)

        def matches(view: View) -> Cells:
            found = view.full(True)
            for mask in wanted:
                found = found & mask(view)
            return found

        def passes(view: View) -> Cells:
            return matches(view) if enforced is None else matches(view) & enforced(view)

        def reasons(view: View) -> list[Reason]:
            if enforced is None:
                return [Reason(REASON, view.negate(matches(view)), resolvable=False)]
            kept_out = view.negate(enforced(view))
            return [
                Reason(REASON_ENFORCED, kept_out, resolvable=False),
                Reason(REASON, kept_out < view.negate(matches(view)), resolvable=False),
            ]

        return Filter(passes, reasons, Scope.NODE, only=only)

    def score(self, cls: PodClass) -> Score | None:
        own = preferred_of(cls)
        problems = [
            problem
            for i, term in enumerate(own)
            if term.weight
            for problem in term_problems(term.preference, f"[{i}]")
        ]
        if problems:
            raise SelectorError(aggregated(problems))
        terms = [*preferred_terms(self._added), *own]
        weighed = [
            (term.weight, self.handle.nodes.matching_terms([term.preference]))
            for term in terms
            if term.weight and (term.preference.match_expressions or term.preference.match_fields)
        ]
        if not weighed:
            return None

        def score(view: View) -> Cells:
            total = 0
            for weight, mask in weighed:
                total = total + weight * mask(view)
            return total

        return Score(score, Scope.NODE, ByMaximum())


def has_required(cls: PodClass) -> bool:
    affinity = cls.affinity
    return (
        affinity is not None
        and affinity.node_affinity is not None
        and affinity.node_affinity.required_during_scheduling_ignored_during_execution is not None
    )


def preferred_terms(affinity: Affinity) -> list[PreferredSchedulingTerm]:
    return affinity.preferred_during_scheduling_ignored_during_execution


def preferred_of(cls: PodClass) -> list[PreferredSchedulingTerm]:
    affinity = cls.affinity
    if affinity is None or affinity.node_affinity is None:
        return []
    return preferred_terms(affinity.node_affinity)


def named_nodes(terms: list[NodeSelectorTerm]) -> frozenset[str] | None:
    """The node names that the terms allow; None if some term does not restrict the name."""
    named: set[str] = set()
    for term in terms:
        sets = [
            set(field.values)
            for field in term.match_fields
            if field.key == NODE_NAME_FIELD and field.operator == "In"
        ]
        if not sets:
            return None
        named |= set.intersection(*sets)
    return frozenset(named) if terms else None
