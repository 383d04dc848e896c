"""The column of a class that matches reservations (its pods are owners of them) or has a reservation
affinity, even if that matches none.

A row with a matched reservation is evaluated as if what is left of the reservation were free, once per
reservation. Of those with which the row is feasible one is nominated (`reservation_scores.nominate`),
and its score is added to the row's. A row is *open* if pods of the class may also use its free capacity
without a reservation: not where a matched reservation is Restricted, unless the class requests nothing,
nor if the class requires one (reservation affinity).

`refresh` first brings the matched reservations up to date (`MatchedReservations`, by
`Epoch.reservations` and `Epoch.owners`). Rows follow `Epoch.nodes` and `Epoch.usage`, as in every
column: `ReservationCache.mark_changed` logs the uid of a reservation and its row together. If other
owner specs match the class, plugins are asked again: the Reservation plugin answers with a filter that
all rows pass, whose `version` is the set of those specs. Results are memoized by `_score_memo`, with
the state of the reservation in the key, instead of by the memo of `ClassRows`.
"""

from collections import Counter
from collections.abc import Hashable
from functools import partial
from weakref import proxy

import numpy as np
from numpy.typing import NDArray

from holdfast.scheduler.cluster.columns import distinct
from holdfast.scheduler.cluster.pod_classes import PodClass
from holdfast.scheduler.cluster.records import ReservationEntry
from holdfast.scheduler.cluster.view import Cells, One, View
from holdfast.scheduler.framework.config.plugin_sets import NODE_RESOURCES_FIT
from holdfast.scheduler.framework.feasibility.column import ClassColumn
from holdfast.scheduler.framework.feasibility.reservation_scores import (
    AllocatingOne,
    AllocatingSome,
    ReservationScores,
    nominate,
)
from holdfast.scheduler.framework.feasibility.rows import (
    INFEASIBLE,
    Bools,
    Ints,
    RowMemo,
    capacity_vector,
)
from holdfast.scheduler.framework.interface import Filter, Need, Reason, Scope
from holdfast.scheduler.framework.profile import Profile
from holdfast.scheduler.reservations import ReservationInfo
from holdfast.scheduler.state.cluster import Cluster

NO_MATCH = "node(s) no reservations match reservation affinity"
NONE_FEASIBLE = "node(s) no reservation(s) to meet the requirements"


class ReservationColumn(ClassColumn):
    owned = True
    shares_corrections = False

    def __init__(self, cluster: Cluster, profile: Profile, cls: PodClass) -> None:
        self._weak: ReservationColumn = proxy(self)
        """For what the column owns, so that no reference cycle keeps a dropped column."""
        self._chosen: dict[int, ReservationInfo] = {}
        self._managers = cluster.managers
        self._waiting = cluster.ledger.reservations.waiting
        self._best_row, self._best_total = -1, 0
        """The best row and its total, as long as no other row changed."""
        self._open: Bools = np.zeros(0, dtype=np.bool_)
        """The rows that can be used without a reservation."""
        self.reservation_counts: tuple[Hashable, str] = (None, "")
        """A version, and the message on how many reservations match that was made at it."""
        super().__init__(cluster, profile, cls)

    def best(self, among: Bools | None = None) -> int:
        """As `ClassColumn.best`. Owners use up one reservation after the other, so the best row mostly
        stays the same."""
        if among is not None or not self.is_absolute:
            return super().best(among)
        row = self._best_row
        if row < 0 or self._base.item(row) < self._best_total or self.rejected is not None:
            row = self._best_row = super().best()
        if row >= 0:
            self._best_total = self._base.item(row)
        return row

    def totals(self) -> Ints:
        """As `ClassColumn.totals`. The order of a reservation outweighs INFEASIBLE, so that this cannot
        be added to it."""
        totals = super().totals()
        if self._keys is None:
            return totals
        return np.where(self._key_passes.take(self._keys.of[: self._size]), totals, INFEASIBLE)

    def reservation_uid(self, row: int) -> str:
        chosen = self._chosen.get(row)
        return chosen.uid if chosen is not None else ""

    def reservation_score(self, row: int) -> int:
        chosen = self._chosen.get(row)
        if chosen is None or chosen.entry is None:
            return 0
        score = self._reservation_scores.score_of(chosen.entry)
        return 0 if score is None else int(self._reservation_scores.weighted(score))

    @property
    def needs(self) -> tuple[Need, ...] | None:
        return None

    def _compile(self) -> None:
        super()._compile()
        self._combined_only: Filter | None = None
        profile = self._profile
        self._reservation_scores = ReservationScores(
            self._cluster,
            self.cls,
            profile.reservation_args.ignores,
            profile.reservation_weight,
            virtual_too=profile.provisions,
        )
        self._inner_filters = list(self._usage_filters)
        by_amounts = self._by_amounts and self._reservation_scores.by_amounts and self.is_absolute
        changed = self._cluster.epoch.usage
        self._score_memo: RowMemo[int | None] | None = RowMemo(changed) if by_amounts else None
        self._memo = None  # whether a row is open does not follow from amounts
        is_open = partial(ReservationColumn._is_open, self._weak)
        gate = self._gate = Filter(
            is_open, partial(ReservationColumn._reasons, self._weak), Scope.USAGE
        )
        # For a class that requires a reservation, this is the first reason to report.
        place = 0 if self._reservation_scores.required else len(self.filters)
        self.filters.insert(place, (self._profile.reservation_plugin, gate))
        self._usage_filters.append(is_open)
        if not self._reservation_scores.required:
            self._reject_before_fit()

    def _reject_before_fit(self) -> None:
        """Adds a filter before NodeResourcesFit that reports the reservations of rows where the pod
        would fit only by allocating from several of them, or from one that is infeasible."""
        names = [name for name, _ in self.filters]
        if NODE_RESOURCES_FIT in names:
            combined_only = Filter(
                partial(ReservationColumn._is_not_combined_only, self._weak),
                partial(ReservationColumn._combined_only_reasons, self._weak),
                Scope.USAGE,
            )
            self.filters.insert(
                names.index(NODE_RESOURCES_FIT), (self._profile.reservation_plugin, combined_only)
            )
            self._combined_only = combined_only

    def refresh(self) -> None:
        matched = self._reservation_scores.matched
        if matched is not None and not matched.is_current:
            matched.refresh()
        super().refresh()

    def _rebuild(self) -> None:
        self._best_row = -1
        self._open = np.ones(self._table.capacity, dtype=np.bool_)
        self._chosen = {}
        super()._rebuild()

    # Rows, one or many

    def _update_one(self, row: int, node_too: bool) -> bool:
        if row != self._best_row:
            self._best_row = -1
        reservations = self._reservation_scores
        matched = reservations.on(row)
        closed = reservations.required or (bool(matched) and self._is_closed_by(matched))
        if closed == self._open.item(row):
            self._open[row] = not closed
        if node_too:
            self._node_part(One(self._table, row), row)
        memo = self._score_memo
        if memo is not None and len(matched) < 2 and self._passes_node.item(row):
            entry = matched[0] if matched else None
            special = self._managers.awake or row in self._waiting
            if not special and (entry is None or not entry.reservation.withheld):
                self._store_memoized(memo, row, entry, closed)
                return False
        best = self._nominated(matched) if matched and self._passes_node.item(row) else None
        if best is None:
            self._chosen.pop(row, None)
            return super()._update_one(row, False)
        entry, view, reservation_score = best
        self._chosen[row] = entry.reservation
        score: int = reservations.weighted(reservation_score)
        if self._node_scores:
            score += self._node_score.item(row)
        for weight, scores in self._usage_scores:
            score += weight * scores(view)
        return self._store(row, True, score, self._raw_scores(view) if self._normalized else ())

    def _store_memoized(
        self, memo: RowMemo[int | None], row: int, entry: ReservationEntry | None, closed: bool
    ) -> None:
        """Stores the result of a row where nothing but amounts matters, memoized: mostly reservations
        are as alike as the nodes are."""
        table = self._table
        of_row: Hashable = capacity_vector(table, row)
        if self._row_kinds:
            of_row = of_row, *[kind(row) for kind in self._row_kinds]
        known = memo.known
        total: int | None = None
        if entry is not None:
            reservation = entry.reservation
            slots = reservation.counts_pods, reservation.holds_more
            key: Hashable = (of_row, entry.usage, reservation.order, reservation.restricted, slots)
            if key in known:
                total = known[key]
            else:
                best = self._evaluate(entry)
                if best is not None:
                    total = self._reservation_scores.weighted(best[2]) + self._scored(best[1])
                memo.remember(key, total)
        if entry is not None and total is not None:
            self._chosen[row] = entry.reservation
        else:
            self._chosen.pop(row, None)
            if not closed and of_row in known:
                total = known[of_row]
            elif not closed:
                view = One(table, row)
                if all(passes(view) for passes in self._inner_filters):
                    total = self._scored(view)
                memo.remember(of_row, total)
        if not memo.worth_it:
            self._score_memo = None
        self._passes_usage[row] = total is not None
        if total is not None and self._node_scores:
            total += self._node_score.item(row)
        self._base[row] = INFEASIBLE if total is None else total

    def _scored(self, view: View) -> int:
        score = 0
        for weight, scores in self._usage_scores:
            score += weight * scores(view)
        return score

    def _nominated(
        self, matched: list[ReservationEntry]
    ) -> tuple[ReservationEntry, AllocatingOne, int] | None:
        """The nominated reservation of one row, as `_evaluate`; None if it is infeasible with each."""
        if len(matched) == 1:
            return self._evaluate(matched[0])
        found = [each for entry in matched if (each := self._evaluate(entry)) is not None]
        if len(found) > 1:
            return found[nominate([(entry.reservation, score) for entry, _, score in found])]
        return found[0] if found else None

    def _evaluate(self, entry: ReservationEntry) -> tuple[ReservationEntry, AllocatingOne, int] | None:
        """The reservation, the row as its owner sees it, and its score; None if infeasible."""
        score = self._reservation_scores.score_of(entry)
        if score is None:
            return None
        view = AllocatingOne(self._table, self._cluster.ledger, entry)
        for passes in self._inner_filters:
            if not passes(view):
                return None
        return entry, view, score

    def _update_all(self) -> None:
        self._update_many(np.arange(self._size), node_too=True)

    def _update_many(self, rows: NDArray[np.intp], node_too: bool) -> None:
        self._best_row = -1
        rows = distinct(rows)
        self._open[rows] = not self._reservation_scores.required
        for row in self._chosen.keys() & set(rows.tolist()) if self._chosen else ():
            del self._chosen[row]
        matched = self._reservation_scores.among(rows)
        closes = self._reservation_scores.closes
        self._open[[entry.row for entry in matched if closes(entry)]] = False
        pairs = self._reservation_scores.serving(matched)
        super()._update_many(rows, node_too)
        if pairs := [entry for entry in pairs if self._passes_node.item(entry.row)]:
            self._score_reservations(pairs)

    def _score_reservations(self, pairs: list[ReservationEntry]) -> None:
        """Stores the results of rows that pass the node filters and have these reservations."""
        view = AllocatingSome(self._table, self._cluster.ledger, pairs)
        ok = view.full(True)
        for passes in self._inner_filters:
            ok = ok & passes(view)
        reservation_score = self._reservation_scores.scores(pairs)
        local = self._node_score[view.rows] if self._node_scores else 0
        for weight, scores in self._usage_scores:
            local = local + weight * scores(view)
        local = local + self._reservation_scores.weighted(reservation_score)
        best = self._picked(pairs, np.flatnonzero(ok & view.full(True)).tolist(), reservation_score)
        if not best:
            return
        self._chosen.update((pairs[i].row, pairs[i].reservation) for i in best)
        at = view.rows[best]
        scores = (local + np.zeros(len(pairs), dtype=np.int64))[best]
        self._refit(at, np.ones(len(at), dtype=np.bool_))
        self._passes_usage[at] = True
        if not self._normalized:
            self._base[at] = scores
            return
        self._local[at] = scores
        for normalized in self._normalized:
            if normalized.by_usage:
                normalized.store(at, normalized.score.score(view)[best])
        if self._keys is None:
            self._normalize(at)

    def _picked(self, pairs: list[ReservationEntry], good: list[int], scores: Ints) -> list[int]:
        """The nominated reservation of each row, of those that are feasible; all as positions."""
        if len({pairs[i].row for i in good}) == len(good):
            return good
        by_row: dict[int, list[int]] = {}
        for i in good:
            by_row.setdefault(pairs[i].row, []).append(i)
        return [
            there[nominate([(pairs[i].reservation, int(scores[i])) for i in there])]
            for there in by_row.values()
        ]

    def allows(self, reservation: ReservationInfo) -> bool:
        """Whether pods of the class can be allocated from a matched reservation of this kind."""
        return not reservation.virtual or self._profile.provisions

    def against(self, entry: ReservationEntry) -> list[str]:
        """Why a pod of the class cannot allocate from a reservation; empty if it can."""
        found = self._reservation_scores.texts([entry])
        if found:
            return found
        view = AllocatingOne(self._table, self._cluster.ledger, entry)
        for (_, bare), (_, test) in zip(self.filters, self.guarded_filters, strict=True):
            if bare not in (self._gate, self._combined_only) and not test.passes(view):
                return [reason.text for reason in test.reasons(view) if reason.rows]
        return [] if self._reservation_scores.serves(entry) else [NONE_FEASIBLE]

    def node_reasons(self, entries: list[ReservationEntry]) -> dict[int, list[str]]:
        """By the index of the reservation, why its node rejects a pod of the class that is allocated
        from it. Reservations with too little, or with which the node is feasible, are left out."""
        found: dict[int, list[str]] = {}
        left = [entry for entry in entries if not self._reservation_scores.texts([entry])]
        for (_, bare), (_, test) in zip(self.filters, self.guarded_filters, strict=True):
            if not left:
                break
            if bare in (self._gate, self._combined_only):
                continue
            view = AllocatingSome(self._table, self._cluster.ledger, left)
            passes = view.full(True) & test.passes(view)
            if passes.all():
                continue
            for reason in test.reasons(view):
                for at in np.flatnonzero(~passes & reason.rows).tolist():
                    found.setdefault(left[at].index, []).append(reason.text)
            left = [entry for at, entry in enumerate(left) if passes[at]]
        return found

    # Reasons of rows that need a reservation

    def _is_closed_by(self, matched: list[ReservationEntry]) -> bool:
        closes = self._reservation_scores.closes
        return closes(matched[0]) if len(matched) == 1 else any(map(closes, matched))

    def _is_open(self, view: View) -> Cells:
        return view.take(self._open)

    def _reasons(self, view: View) -> list[Reason]:
        rows = np.atleast_1d(view.rows)
        found = {}
        for row in rows[~self._open[rows]].tolist():
            matched = self._reservation_scores.on(row)
            found[row] = self._reservation_scores.texts(matched) or [
                NONE_FEASIBLE if matched else NO_MATCH
            ]
        return _reasons_by_rows(view, found)

    def _is_not_combined_only(self, view: View) -> Cells:
        if isinstance(view.rows, int):
            return not self._combined_only_on(self._reservation_scores.on(view.rows))
        combined_only = list(self._all_combined_only(view))
        return view.full(True) & ~np.isin(view.rows, combined_only)

    def _combined_only_reasons(self, view: View) -> list[Reason]:
        return _reasons_by_rows(view, self._all_combined_only(view))

    def _all_combined_only(self, view: View) -> dict[int, list[str]]:
        on: dict[int, list[ReservationEntry]] = {}
        for entry in self._reservation_scores.among(np.atleast_1d(view.rows)):
            on.setdefault(entry.row, []).append(entry)
        found = {row: self._combined_only_on(matched) for row, matched in on.items()}
        return {row: texts for row, texts in found.items() if texts}

    def _combined_only_on(self, matched: list[ReservationEntry]) -> list[str]:
        return (
            self._reservation_scores.texts(matched)
            if self._reservation_scores.enough_combined(matched)
            else []
        )


def _reasons_by_rows(view: View, found: dict[int, list[str]]) -> list[Reason]:
    """Reasons by rows; one text may apply to a row several times."""
    rows: dict[tuple[str, int], set[int]] = {}
    for row, texts in found.items():
        for text, times in Counter(texts).items():
            rows.setdefault((text, times), set()).add(row)
    return [
        Reason(text, _is_among(view, there), resolvable=text != NO_MATCH, times=times)
        for (text, times), there in rows.items()
    ]


def _is_among(view: View, rows: set[int]) -> Cells:
    if isinstance(view.rows, int):
        return view.rows in rows
    return np.isin(view.rows, list(rows))
