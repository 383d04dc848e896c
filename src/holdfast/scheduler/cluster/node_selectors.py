"""Node selectors compiled to operations on label columns.

A requirement is evaluated once per distinct value of its label; a node costs one table look-up. An
invalid term selects nothing, as in Kubernetes.
"""

from collections.abc import Callable, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from holdfast.api.affinity import NodeSelectorTerm
from holdfast.api.errors import SelectorError
from holdfast.api.selectors import Requirement, field_requirement, node_requirement
from holdfast.scheduler.cluster.node_labels import LabelColumn
from holdfast.scheduler.cluster.node_table import NodeTable
from holdfast.scheduler.cluster.view import Cells, View

Mask = Callable[[View], Cells]


def compile_labels(nodes: NodeTable, labels: Mapping[str, str]) -> list[Mask]:
    """The masks of a `nodeSelector`, all of which must hold."""
    return [_equals(nodes.labels.column(key), value) for key, value in labels.items()]


def compile_terms(nodes: NodeTable, terms: Sequence[NodeSelectorTerm]) -> Mask:
    """The mask of node selector terms, of which one must hold; no terms select nothing."""
    masks = [mask for mask in (compile_term(nodes, term) for term in terms) if mask is not None]

    def selected(view: View) -> Cells:
        found = view.full(False)
        for mask in masks:
            found = found | mask(view)
        return found

    return selected


def compile_term(nodes: NodeTable, term: NodeSelectorTerm) -> Mask | None:
    """The mask of one term, all of whose requirements must hold; None if it selects nothing."""
    try:
        masks = [_requirement(nodes, node_requirement(e)) for e in term.match_expressions]
        masks += [_field(nodes, field_requirement(e)) for e in term.match_fields]
    except SelectorError:
        return None
    if not masks:
        return None

    def selected(view: View) -> Cells:
        found = masks[0](view)
        for mask in masks[1:]:
            found = found & mask(view)
        return found

    return selected


def _equals(column: LabelColumn, value: str) -> Mask:
    return lambda view: view.take(column.codes) == column.code(value)


def _requirement(nodes: NodeTable, requirement: Requirement) -> Mask:
    column = nodes.labels.column(requirement.key)
    if requirement.operator == "In" and len(requirement.values) == 1:
        return _equals(column, requirement.values[0])
    verdicts = Verdicts(column, requirement)
    return lambda view: verdicts.of(view.take(column.codes)) == 1


def _field(nodes: NodeTable, requirement: Requirement) -> Mask:
    """The mask of a matchFields requirement; metadata.name is the only field."""
    (name,) = requirement.values

    def selected(view: View) -> Cells:
        row = nodes.row(name)
        here = view.rows == (-1 if row is None else row)
        return here if requirement.operator == "In" else view.negate(here)

    return selected


class Verdicts:
    """Whether a requirement matches, by code of its label column, including the absent label."""

    def __init__(self, column: LabelColumn, requirement: Requirement) -> None:
        self._column = column
        self._requirement = requirement
        self._reused = column.reused
        self._table: NDArray[np.int8] = np.array([requirement.matches({})], dtype=np.int8)

    def of(self, codes: Cells) -> Cells:
        if self._reused != self._column.reused:
            self._reused = self._column.reused
            self._table = self._table[:1]
        known = len(self._table) - 1
        values = self._column.values
        if known < len(values):
            key = self._column.key
            more = [self._requirement.matches({key: value}) for value in values[known:]]
            self._table = np.concatenate([self._table, np.array(more, dtype=np.int8)])
        return self._table[codes + 1]
