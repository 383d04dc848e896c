"""One formula, computed on every kind of view: one row, some rows, all rows, and rows as the owner of a
reservation sees them. The scheduler uses now one, now the other, so all must agree."""

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from holdfast.api.errors import HoldfastError
from holdfast.scheduler.cluster.plugin_errors import RAISED, text_of
from holdfast.scheduler.cluster.view import All, Cells, One, Some, View
from holdfast.scheduler.framework.checked_answers import no_reason_given
from holdfast.scheduler.framework.feasibility.reservation_scores import AllocatingOne, AllocatingSome
from holdfast.scheduler.framework.interface import Filter, Normalize
from holdfast.scheduler.state.cluster import Cluster

Formula = Callable[[View], Cells]
Rows = NDArray[np.intp]


class ContractBroken(HoldfastError, AssertionError):
    """A plugin does what the contract forbids; the message has the node and the path."""


class PluginRaised(ContractBroken):
    """A plugin raised an exception, or answered with what is no answer."""


class Paths:
    """The formulas of one plugin about one class of pods."""

    def __init__(self, cluster: Cluster, plugin: str) -> None:
        self._cluster = cluster
        self._table = cluster.nodes
        self._plugin = plugin
        self.rows: Rows = np.flatnonzero(self._table.alive[: self._table.size])
        """The rows that have a node. Views have others too, of which answers are ignored."""

    def passes(self, test: Filter) -> dict[int, bool]:
        """The result of the filter for each row; a row that does not pass must have a reason."""
        found = self.agreed("filter", test.passes, self.rows)
        failed = np.array([row for row, passed in found.items() if not passed], dtype=np.intp)
        default = no_reason_given(self._plugin)
        for row, reasons in self.reasons(test, failed).items():
            if any(text == default for text, *_ in reasons) or not reasons:
                self._broken("filter", row, "does not pass, and `reasons` gives no reason")
        return {row: bool(passed) for row, passed in found.items()}

    def reasons(self, test: Filter, failed: Rows) -> dict[int, tuple[Any, ...]]:
        """The reasons of each row, in a form that does not depend on the path."""

        def asked(view: View) -> Cells:
            listed: list[list[Any]] = [[] for _ in range(np.size(view.rows))]
            for text, rows, resolvable, times in test.reasons(view):
                held, hopeful = _spread(rows, view), _spread(resolvable, view)
                for at in np.flatnonzero(held).tolist():
                    listed[at].append((text, bool(hopeful[at]), times))
            cells = np.empty(len(listed), dtype=object)
            cells[:] = [tuple(each) for each in listed]
            return cells[0] if view.single else cells

        return self.agreed("reasons", asked, failed, whole=False)

    def scores(self, score: Formula, rows: Rows) -> dict[int, float]:
        """Raw scores, of the rows that passed all filters."""
        return self.agreed("score", score, rows)

    def normalized(self, normalize: Normalize, raw: dict[int, float]) -> dict[int, int]:
        """Scores of all rows that passed, normalised together."""
        cells = np.array(list(raw.values()))
        if not len(cells):
            return {}
        measure = normalize.measure(cells)
        many = np.asarray(normalize.apply(cells, measure)) + np.zeros(len(cells), dtype=np.int64)
        singly = [int(normalize.apply(each, measure)) for each in raw.values()]
        for at, row in enumerate(raw):
            if int(many[at]) != singly[at]:
                self._differs("normalize", row, "one score", singly[at], "all scores", int(many[at]))
        return dict(zip(raw, singly, strict=True))

    def agreed(self, what: str, formula: Formula, rows: Rows, *, whole: bool = True) -> dict[int, Any]:
        """The result of a formula for each of these rows, on any view. `whole` asks about all rows of
        the table at once, too."""
        found = {int(row): self._asked(what, formula, One(self._table, int(row))) for row in rows}
        for label, view in self._views(rows, whole):
            cells = _spread(self._asked(what, formula, view), view)
            for row, cell in zip(view.rows.tolist(), cells.tolist(), strict=True):
                if row in found and found[row] != cell:
                    self._differs(what, row, "one row", found[row], label, cell)
        self._as_owner(what, formula)
        return found

    def _views(self, rows: Rows, whole: bool) -> Iterator[tuple[str, View]]:
        if whole:
            yield "all rows", All(self._table)
        yield "some rows", Some(self._table, rows[::-1])
        yield "every other row", Some(self._table, rows[::2])
        yield "no rows", Some(self._table, rows[:0])

    def _as_owner(self, what: str, formula: Formula) -> None:
        """The same with what reservations have left being free."""
        ledger = self._cluster.ledger
        holds = [hold for hold in ledger.reserved if not hold.reservation.waiting]
        if not holds or what == "reasons":
            return
        cells = self._asked(what, formula, AllocatingSome(self._table, ledger, holds))
        many = np.broadcast_to(np.asarray(cells), (len(holds),)).tolist()
        for hold, cell in zip(holds, many, strict=True):
            one = self._asked(what, formula, AllocatingOne(self._table, ledger, hold))
            if one != cell:
                label = "some rows seen by owners of reservations"
                self._differs(what, hold.row, "one row seen by an owner", one, label, cell)

    def _asked(self, what: str, formula: Formula, view: View) -> Any:
        try:
            return formula(view)
        except RAISED as error:
            rows = "one row" if view.single else f"{np.size(view.rows)} rows"
            text = f"plugin {self._plugin}: {what} of {rows}: {text_of(error)}"
            raise PluginRaised(text) from error

    def _differs(self, what: str, row: int, one: str, first: Any, other: str, second: Any) -> None:
        self._broken(what, row, f"computed on {one} it is {first!r}, on {other} it is {second!r}")

    def _broken(self, what: str, row: int, text: str) -> None:
        name = self._table.name(row)
        raise ContractBroken(f"plugin {self._plugin}: {what}: node {name}: {text}")


def _spread(cells: Cells, view: View) -> NDArray[Any]:
    """One cell for each row, where an answer may be the same for all."""
    return np.broadcast_to(np.asarray(cells), (np.size(view.rows),))
