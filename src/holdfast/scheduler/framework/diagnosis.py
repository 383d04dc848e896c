"""Why no node is feasible for a class of pods, in kube-scheduler's words.

The rejection of a node is that of the first filter, in the profile's order, that it does not pass; a
filter may give several reasons. Reasons are counted over nodes and listed sorted:

    0/5 nodes are available: 2 Insufficient cpu, 3 node(s) had untolerated taint(s).

A node with nominated pods is filtered with those pods added first, and then without them.

The rejection of each row is kept, so that after a change only the changed rows are filtered again.
"""

import re
from collections.abc import Container, Iterable, Mapping
from typing import NamedTuple, Protocol
from weakref import ref

import numpy as np
from numpy.typing import NDArray

from holdfast.scheduler.cluster.columns import distinct
from holdfast.scheduler.cluster.node_table import NodeTable
from holdfast.scheduler.cluster.view import All, One, Some, View
from holdfast.scheduler.framework.config.plugin_sets import NODE_AFFINITY
from holdfast.scheduler.framework.interface import Filter

NO_NODES = "no nodes available to schedule pods"
OF_RESERVATIONS = "Reservation(s) "
MATCHED_NAME = "exactly matches the requested reservation name"
MATCHED_TOTAL = "matched owner total"
"""Counts of matching reservations, which stand among the reasons of a message but are not reasons."""

_FEW = 64
SINGLY = 8
"""Up to this many rows are filtered one by one, which is then faster than as arrays."""
_MOST_BITS = 31
"""The number of reasons that fit an integer at two bits each."""

_AVAILABLE = " nodes are available: "
_PREEMPTION = re.compile(r"(?:^|[.,]? )preemption: ")
"""Plugins' post filter messages are joined by commas, so preemption may follow one."""
_BETWEEN = re.compile(r"[.,] (?=\d+ )")
_COUNTED = re.compile(r"\d+ (.*)", re.DOTALL)


class NodeRejection(NamedTuple):
    """The plugin that rejects a node, its reasons, and whether preemption could help."""

    plugin: str
    texts: tuple[str, ...]
    resolvable: bool
    error: bool = False
    """Whether a reason is an error."""


FITS = NodeRejection("", (), True)


class Verdict(NamedTuple):
    """Why no node is feasible."""

    reasons: str
    plugins: frozenset[str]
    """The plugins that reject nodes."""
    error: bool = False
    """The pod spec is invalid (reported as SchedulerError), not just unschedulable."""
    has_failed: bool = False
    """A plugin raised: the pod is tried again after a back-off, without waiting for a change."""

    @property
    def condition(self) -> str:
        """The reason of the pod's condition."""
        return "SchedulerError" if self.error else "Unschedulable"

    def message(self, nodes: int, post_filter: str = "") -> str:
        """The message of the pod's condition."""
        if self.error:
            return self.reasons
        text = f"0/{nodes} nodes are available:"
        if self.reasons:
            text += f" {self.reasons}."
        if post_filter:
            text += f" {post_filter}"
        return text


def reasons_in(message: str) -> list[str]:
    """The single reasons in a message, without their counts and without what preemption says:
    `0/3 nodes are available: 1 Insufficient cpu, 2 node(s) were unschedulable.` gives the two."""
    _, found, rest = message.partition(_AVAILABLE)
    if not found:
        return [whole] if (whole := message.rstrip(".")) else []
    reasons = []
    for part in _BETWEEN.split(_PREEMPTION.split(rest, maxsplit=1)[0]):
        text = part.strip(" .")
        counted = _COUNTED.fullmatch(text)
        reason = counted[1] if counted else text
        if reason and reason.removeprefix(OF_RESERVATIONS) not in (MATCHED_NAME, MATCHED_TOTAL):
            reasons.append(reason)
    return list(dict.fromkeys(reasons))


class NominatedCheck(Protocol):
    """The rejections of nodes that have nominated pods."""

    def rows(self) -> Iterable[int]:
        """The rows with nominated pods."""

    def rejection(self, row: int) -> NodeRejection | None:
        """The rejection of the row with its nominated pods added, if there is one."""


class GuardedColumn(Protocol):
    """What a diagnosis reads of its column."""

    @property
    def guarded_filters(self) -> list[tuple[str, Filter]]:
        """The filters, with formulas that never raise."""


class Diagnosis:
    """The rejections of all rows for one class. It shares `filters` with its column and keeps only a
    weak reference to the column, which owns it."""

    def __init__(
        self, table: NodeTable, filters: list[tuple[str, Filter]], column: ref[GuardedColumn]
    ) -> None:
        self._table = table
        self._filters = filters
        self._column = column
        self._rejections: list[NodeRejection] = [FITS]
        self._code: dict[NodeRejection, int] = {FITS: 0}
        self._codes: NDArray[np.intp] | None = None
        self._counts: list[int] = [0]
        """How many rows have each code."""
        self._resolvable: NDArray[np.bool_] = np.zeros(0, dtype=np.bool_)
        self._outdated: set[int] = set()
        self._verdict: Verdict | None = None
        self.nominated_check: NominatedCheck | None = None

    def reset(self) -> None:
        self._codes = None
        self._verdict = None
        self._outdated.clear()

    def outdated(self, rows: NDArray[np.intp]) -> None:
        if self._codes is not None:
            self._outdated.update(rows.tolist())

    def row_outdated(self, row: int) -> None:
        if self._codes is not None:
            self._outdated.add(row)

    def verdict(self) -> Verdict:
        """The reasons of all nodes, counted, up to date."""
        self._catch_up()
        if self._verdict is None:
            self._verdict = verdict(self.histogram())
        return self._verdict

    def verdict_within(self, rows: NDArray[np.bool_]) -> Verdict:
        """The same for these rows only."""
        counts = np.bincount(self._catch_up()[rows], minlength=len(self._rejections)).tolist()
        return verdict(dict(zip(self._rejections[1:], counts[1:], strict=True)))

    def resolvable(self) -> NDArray[np.bool_]:
        """The rows where removing pods could help; read-only."""
        self._catch_up()
        return self._resolvable

    def feasible(self) -> NDArray[np.bool_]:
        """The rows without a rejection."""
        feasible: NDArray[np.bool_] = self._catch_up() == 0
        return feasible

    def rows_with(self, text: str) -> NDArray[np.bool_]:
        """The rows of which this is a reason."""
        codes = self._catch_up()
        rows: NDArray[np.bool_] = np.array([text in each.texts for each in self._rejections])[codes]
        return rows

    def histogram(self) -> dict[NodeRejection, int]:
        """The number of nodes with each rejection."""
        self._catch_up()
        known = zip(self._rejections[1:], self._counts[1:], strict=True)
        return {rejection: count for rejection, count in known if count}

    def _catch_up(self) -> NDArray[np.intp]:
        if self._codes is None or len(self._outdated) > max(_FEW, self._table.size // 2):
            self._codes = self._reject_all()
            self._counts = np.bincount(self._codes, minlength=len(self._rejections)).tolist()
            self._resolvable = self._are_resolvable(self._codes) & self._table.alive[: self._table.size]
            self._verdict = None
        elif self._outdated:
            self._verdict = None
            if len(self._outdated) > SINGLY:
                self._reject_again(self._codes, self._outdated)
            else:
                for row in self._outdated:
                    self._record(self._codes, row, self._current_rejection(row))
        self._outdated.clear()
        return self._codes

    def _are_resolvable(self, codes: NDArray[np.intp]) -> NDArray[np.bool_]:
        resolvable: NDArray[np.bool_] = np.array(
            [rejection.resolvable for rejection in self._rejections]
        )[codes]
        return resolvable

    def _record(self, codes: NDArray[np.intp], row: int, rejection: NodeRejection) -> None:
        code = self._intern(rejection)
        self._counts[codes.item(row)] -= 1
        self._counts[code] += 1
        codes[row] = code
        self._resolvable[row] = rejection.resolvable and self._table.alive.item(row)

    def known_rejection(self, row: int) -> NodeRejection:
        """The rejection of one row as it counts in the histogram."""
        return self._rejections[self._catch_up().item(row)]

    def _current_rejection(self, row: int) -> NodeRejection:
        if not self._table.alive[row]:
            return FITS
        rejection = self.nominated_check.rejection(row) if self.nominated_check is not None else None
        return self.rejection(row) if rejection is None else rejection

    def _check_nominated_pods(self, codes: NDArray[np.intp], among: Container[int]) -> None:
        """Corrects the codes of rows with nominated pods."""
        if self.nominated_check is None:
            return
        for row in self.nominated_check.rows():
            rejection = self.nominated_check.rejection(row) if row in among else None
            if rejection is not None:
                codes[row] = self._intern(rejection)

    def rejection(self, row: int) -> NodeRejection:
        """The rejection of one row without its nominated pods."""
        if self._not_named(row):
            return NodeRejection(self._naming()[0], (self._not_named_text(),), False)
        return first_rejection(self._guarded_filters(), One(self._table, row))

    def all_rejections(self, row: int) -> list[NodeRejection]:
        """The rejections of one row by every filter that it does not pass, in the order of the
        profile."""
        view, filters = One(self._table, row), self._guarded_filters()
        found = [first_rejection([each], view) for each in filters]
        return [each for each in found if each != FITS]

    def _guarded_filters(self) -> list[tuple[str, Filter]]:
        column = self._column()
        assert column is not None, "a diagnosis needs its column"
        return column.guarded_filters

    def _reject_all(self) -> NDArray[np.intp]:
        codes = self._rejected_codes(All(self._table), np.arange(self._table.size))
        self._check_nominated_pods(codes, range(self._table.size))
        return codes

    def _reject_again(self, codes: NDArray[np.intp], outdated: set[int]) -> None:
        """Computes the codes of outdated rows again, and the counts with them."""
        rows = np.fromiter(outdated, dtype=np.intp, count=len(outdated))
        before = codes[rows]
        codes[rows] = self._rejected_codes(Some(self._table, rows), rows)
        self._check_nominated_pods(codes, outdated)
        after = codes[rows]
        known = len(self._rejections)
        more = np.bincount(after, minlength=known) - np.bincount(before, minlength=known)
        self._counts = [count + n for count, n in zip(self._counts, more.tolist(), strict=True)]
        self._resolvable[rows] = self._are_resolvable(after) & self._table.alive[rows]

    def _rejected_codes(self, view: View, rows: NDArray[np.intp]) -> NDArray[np.intp]:
        """The code of the rejection of each of the view's rows, without nominated pods."""
        codes = np.zeros(len(rows), dtype=np.intp)
        left = self._table.alive[rows]
        if self._naming():
            named = np.array([not self._not_named(row) for row in rows.tolist()])
            codes[left & ~named] = self._intern(
                NodeRejection(self._naming()[0], (self._not_named_text(),), False)
            )
            left &= named
        for plugin, test in self._guarded_filters():
            failed = left & ~np.asarray(test.passes(view) & view.full(True))
            if not failed.any():
                continue
            left &= ~failed
            at = np.flatnonzero(failed)
            failing = view if len(at) == len(rows) else Some(self._table, rows[at])
            reasons = test.reasons(failing)
            if len(reasons) > _MOST_BITS:
                for one in at.tolist():
                    codes[one] = self._intern(self.rejection(int(rows[one])))
                continue
            # Rows with the same combination of reasons share a rejection.
            combination = np.zeros(len(at), dtype=np.int64)
            for bit, reason in enumerate(reasons):
                combination |= (reason.rows & failing.full(True)).astype(np.int64) << (2 * bit)
                unresolvable = reason.rows & ~(reason.resolvable & failing.full(True))
                combination |= unresolvable.astype(np.int64) << (2 * bit + 1)
            for value in distinct(combination):
                bits = int(value)
                those = [reason for bit, reason in enumerate(reasons) if bits >> (2 * bit) & 1]
                texts = tuple(reason.text for reason in those for _ in range(reason.times))
                resolvable = not any(bits >> (2 * bit + 1) & 1 for bit in range(len(reasons)))
                error = any(reason.error for reason in those)
                rejection = NodeRejection(plugin, texts, resolvable, error)
                codes[at[combination == value]] = self._intern(rejection)
        return codes

    def _intern(self, rejection: NodeRejection) -> int:
        code = self._code.get(rejection)
        if code is None:
            code = self._code[rejection] = len(self._rejections)
            self._rejections.append(rejection)
            self._counts.append(0)
        return code

    # Nodes that are not among those a filter names as the only feasible ones (`Filter.only`).

    def _naming(self) -> list[str]:
        return sorted(plugin for plugin, test in self._filters if test.only is not None)

    def _not_named(self, row: int) -> bool:
        name = self._table.name(row)
        return any(test.only is not None and name not in test.only for _, test in self._filters)

    def _not_named_text(self) -> str:
        return not_named_text(self._naming())


def first_rejection(filters: Iterable[tuple[str, Filter]], view: One) -> NodeRejection:
    """The rejection of the first filter that the row does not pass; FITS if it passes all."""
    for plugin, test in filters:
        if not test.passes(view):
            reasons = [reason for reason in test.reasons(view) if reason.rows]
            texts = tuple(reason.text for reason in reasons for _ in range(reason.times))
            resolvable = all(bool(reason.resolvable) for reason in reasons)
            return NodeRejection(plugin, texts, resolvable, any(reason.error for reason in reasons))
    return FITS


def not_named_text(plugins: list[str]) -> str:
    return f"node(s) didn't satisfy plugin(s) [{' '.join(plugins)}]"


NOT_PINNED = NodeRejection(NODE_AFFINITY, (not_named_text([NODE_AFFINITY]),), False)
"""The rejection of every node but the one that a DaemonSet's pod is pinned to."""


def verdict(rejections: Mapping[NodeRejection, int]) -> Verdict:
    """The reasons, counted over nodes and sorted as text; or an error, if there is one."""
    reasons: dict[str, int] = {}
    plugins = set()
    error: NodeRejection | None = None
    for rejection, count in rejections.items():
        if count > 0 and rejection.plugin:
            plugins.add(rejection.plugin)
            if rejection.error and error is None:
                error = rejection
            for text in rejection.texts:
                reasons[text] = reasons.get(text, 0) + count
    if error is not None:
        text = f'running "{error.plugin}" filter plugin: {", ".join(error.texts)}'
        return Verdict(text, frozenset(plugins), error=True)
    listed = ", ".join(sorted(f"{count} {text}" for text, count in reasons.items()))
    return Verdict(listed, frozenset(plugins))
