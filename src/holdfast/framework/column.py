"""Mask and scores of one pod class over all nodes, kept up to date.

After a pod is placed one row has changed, and only that row is computed again. What a class knows:

    fits_node    rows whose node object suits the class         recomputed when the node changes
    fits         … and that have room now                       also when pods come and go there
    total        the weighted sum of scores, INFEASIBLE where not `fits`

Scores that are normalised depend on all rows that fit. They keep their raw values, and are worked
out anew as a whole only when what the normalisation measures (say, the best raw score) changed.
"""

from collections.abc import Hashable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from holdfast.core.classes import PodClass
from holdfast.core.cluster import Cluster
from holdfast.core.view import All, One, Some, View
from holdfast.framework.diagnosis import Diagnosis, Verdict
from holdfast.framework.interface import Filter, Normalize, Rejected, Scope, Score, Version
from holdfast.framework.profile import Profile

INFEASIBLE = -(2**62)
_FEW = 6
"""Up to this many rows are computed one by one, which is then faster than as a vector."""

At = Any
"""An index into a column: a row, an array of rows, or a slice."""


class Normalized:
    """The scores of one plugin that have to be normalised."""

    __slots__ = ("measure", "normalize", "raw", "score", "weight", "weighted")

    def __init__(self, score: Score, weight: int, normalize: Normalize, capacity: int) -> None:
        self.score = score
        self.weight = weight
        self.normalize = normalize
        self.measure: Hashable = None
        self.raw: NDArray[np.int64] = np.zeros(capacity, dtype=np.int64)
        self.weighted: NDArray[np.int64] = np.zeros(capacity, dtype=np.int64)


class Column:
    def __init__(self, cluster: Cluster, profile: Profile, cls: PodClass) -> None:
        self._cluster = cluster
        self._table = cluster.nodes
        self._profile = profile
        self.cls = cls
        self.rejected: Rejected | None = None
        self.rejected_by = ""
        self.filters: list[tuple[str, Filter]] = []
        """In the profile's order, by the plugin's name."""
        self.total: NDArray[np.int64] = np.zeros(0, dtype=np.int64)
        self.diagnosis = Diagnosis(self._table, self.filters)
        self._size = 0
        self._nodes_seen = -1
        self._usage_seen = -1
        self._compile()

    @property
    def fits(self) -> NDArray[np.bool_]:
        return self._fits[: self._table.size]

    def refresh(self) -> None:
        """Catches up with what happened since the last call."""
        for version, seen in self._versions:
            if version() != seen:
                self._compile()
                break
        table, cluster = self._table, self._cluster
        if len(self.total) != table.capacity or self._size != table.size:
            self._rebuild()
            return
        nodes, usage = cluster.nodes_changed, cluster.ledger.changed
        if nodes.end != self._nodes_seen:
            changed = nodes.since(self._nodes_seen)
            if changed is None or len(changed) > table.size // 4:
                self._rebuild()
                return
            self._nodes_seen = nodes.end
            self._update(list(set(changed)), node_too=True)
        if usage.end != self._usage_seen:
            used = usage.since(self._usage_seen)
            if used is None or len(used) > table.size:
                self._rebuild()
                return
            self._usage_seen = usage.end
            self._update(used if len(used) == 1 else list(set(used)), node_too=False)

    def best(self) -> int:
        """The row with the highest score, the lowest such row if there are several; -1 if none."""
        if not self._size or self.rejected is not None:
            return -1
        row = int(self.total[: self._size].argmax())
        return row if self.total.item(row) > INFEASIBLE else -1

    def verdict(self) -> Verdict:
        """Why no node will do."""
        if self.rejected is not None:
            return Verdict(self.rejected.message, frozenset((self.rejected_by,)))
        return self.diagnosis.verdict()

    def fits_row(self, row: int) -> bool:
        return self.rejected is None and bool(self._fits[row])

    def _compile(self) -> None:
        """Asks the plugins about the class."""
        cls, profile = self.cls, self._profile
        self.rejected = None
        self.rejected_by = ""
        self.filters.clear()
        versions: list[Version] = []
        for plugin in profile.filters:
            answer = plugin.filter(cls)
            if answer is None:
                continue
            if answer.version is not None:
                versions.append(answer.version)
            if isinstance(answer, Rejected):
                if self.rejected is None:
                    self.rejected, self.rejected_by = answer, plugin.name
            else:
                self.filters.append((plugin.name, answer))
        filters = [f for _, f in self.filters]
        self._node_filters = [f.passes for f in filters if f.scope is Scope.NODE]
        self._usage_filters = [f.passes for f in filters if f.scope is Scope.USAGE]
        self._only = [f.only for f in filters if f.only is not None]
        self._constant = 0
        self._node_scores: list[tuple[int, Any]] = []
        self._usage_scores: list[tuple[int, Any]] = []
        self._normalized: list[Normalized] = []
        for scorer, weight in profile.scorers:
            score = scorer.score(cls)
            if score is None:
                continue
            if score.version is not None:
                versions.append(score.version)
            if score.constant is not None:
                self._constant += weight * score.constant
            elif score.normalize is not None:
                self._normalized.append(Normalized(score, weight, score.normalize, 0))
            elif score.scope is Scope.NODE:
                self._node_scores.append((weight, score.score))
            else:
                self._usage_scores.append((weight, score.score))
        self._versions = [(version, version()) for version in versions]
        self.total = self.total[:0]
        self._size = 0
        self.diagnosis.reset()

    def _rebuild(self) -> None:
        """Computes every row."""
        table = self._table
        capacity = table.capacity
        self._size = table.size
        self._nodes_seen = self._cluster.nodes_changed.end
        self._usage_seen = self._cluster.ledger.changed.end
        self._fits_node = np.zeros(capacity, dtype=np.bool_)
        self._fits = np.zeros(capacity, dtype=np.bool_)
        self._node_score = np.zeros(capacity, dtype=np.int64)
        self._local = np.zeros(capacity, dtype=np.int64)
        self.total = np.full(capacity, INFEASIBLE, dtype=np.int64)
        for normalized in self._normalized:
            normalized.raw = np.zeros(capacity, dtype=np.int64)
            normalized.weighted = np.zeros(capacity, dtype=np.int64)
            normalized.measure = None
        self._only_rows = self._rows_named()
        self.diagnosis.reset()
        if self._size:
            self._update_many(All(table), slice(0, self._size), node_too=True)

    def _rows_named(self) -> NDArray[np.bool_] | None:
        """The rows of the only nodes worth looking at, if the class names them."""
        if not self._only:
            return None
        mask = np.zeros(self._table.capacity, dtype=np.bool_)
        rows = (self._table.row(name) for name in frozenset.intersection(*self._only))
        mask[[row for row in rows if row is not None]] = True
        return mask

    def _update(self, rows: list[int], node_too: bool) -> None:
        if node_too and self._only:
            self._only_rows = self._rows_named()
        self.diagnosis.outdated(rows)
        if len(rows) <= _FEW and not self._normalized:
            for row in rows:
                self._update_one(row, node_too)
        else:
            at = np.array(rows, dtype=np.intp)
            self._update_many(Some(self._table, at), at, node_too)

    def _update_one(self, row: int, node_too: bool) -> None:
        view = One(self._table, row)
        if node_too:
            self._node_part(view, row)
        ok = self._fits_node.item(row)
        if ok:
            for passes in self._usage_filters:
                if not passes(view):
                    ok = False
                    break
        self._fits[row] = ok
        if not ok:
            self.total[row] = INFEASIBLE
            return
        score = self._node_score.item(row) + self._constant
        for weight, scores in self._usage_scores:
            score += weight * scores(view)
        self.total[row] = score

    def _update_many(self, view: View, at: At, node_too: bool) -> None:
        if node_too:
            self._node_part(view, at)
        ok = self._fits_node[at]
        for passes in self._usage_filters:
            ok = ok & passes(view)
        local = self._node_score[at] + self._constant
        for weight, scores in self._usage_scores:
            local = local + weight * scores(view)
        refit = bool((ok != self._fits[at]).any())
        self._fits[at] = ok
        if not self._normalized:
            self.total[at] = np.where(ok, local, INFEASIBLE)
            return
        self._local[at] = local
        everywhere = False
        for normalized in self._normalized:
            if node_too or normalized.score.scope is Scope.USAGE:
                normalized.raw[at] = normalized.score.score(view)
                refit = True
            everywhere |= refit and self._measure(normalized)
        if everywhere:
            at = slice(0, self._size)
            ok, local = self._fits[at], self._local[at]
        total = local
        for normalized in self._normalized:
            if normalized.measure is not None:
                scaled = normalized.normalize.apply(normalized.raw[at], normalized.measure)
                normalized.weighted[at] = normalized.weight * scaled
            total = total + normalized.weighted[at]
        self.total[at] = np.where(ok, total, INFEASIBLE)

    def _measure(self, normalized: Normalized) -> bool:
        """Whether the scores of every row have to be normalised anew."""
        raw = normalized.raw[: self._size][self._fits[: self._size]]
        measure = normalized.normalize.measure(raw) if len(raw) else None
        changed = measure != normalized.measure
        normalized.measure = measure
        return changed

    def _node_part(self, view: View, at: At) -> None:
        ok = view.take(self._table.alive)
        if self._only_rows is not None:
            ok = ok & view.take(self._only_rows)
        for passes in self._node_filters:
            ok = ok & passes(view)
        self._fits_node[at] = ok
        score = 0
        for weight, scores in self._node_scores:
            score = score + weight * scores(view)
        self._node_score[at] = score
