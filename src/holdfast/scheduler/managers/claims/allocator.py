"""The allocator: which nodes can serve a pod's claims, and with which devices.

`feasible` answers for many nodes. For the usual claim (so many devices that match a selector) it counts
the free devices that match, for all nodes at once. For others, nodes that look alike to the claim have
one answer: the same devices in the same order, as far as the claim can tell them apart, in the same
state. An answer is kept under that signature, so nothing invalidates it but a change of the request's
classes, which makes another request.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from msgspec.msgpack import encode
from numpy.typing import NDArray

from holdfast.api.resource_claims import ResourceClaimSpec
from holdfast.api.resource_slices import DeviceID, ResourceSlice
from holdfast.scheduler.cluster.node_table import NodeTable
from holdfast.scheduler.managers.claims.allocation import (
    CANNOT_ALLOCATE,
    INVALID_POOLS,
    ClaimName,
    ClaimsAllocation,
    ClaimsRefusal,
    ShareID,
    allocation_of,
    derived_share_id,
)
from holdfast.scheduler.managers.claims.catalogue import DeviceCatalogue, Rows
from holdfast.scheduler.managers.claims.claims_request import ClaimsRequest
from holdfast.scheduler.managers.claims.device_use import UseSnapshot
from holdfast.scheduler.managers.claims.pools import VisibleDevices
from holdfast.scheduler.managers.claims.request_columns import ColumnCache, RequestColumns
from holdfast.scheduler.managers.claims.search import (
    TIMED_OUT,
    AllocationProblem,
    Pick,
    Recorder,
    Search,
    Solution,
)

_MOST_REQUESTS = 4096
_MOST_SIGNATURES = 4096
_FEW_ROWS = 24
"""Below this number of rows, counting row by row is faster than over all devices."""

FEASIBLE, NO_DEVICES, INVALID, PROBLEM = 0, 1, 2, 3
_MESSAGES = ("", CANNOT_ALLOCATE, INVALID_POOLS, "")


class ClaimsVerdict(NamedTuple):
    """The answer for a node."""

    code: int
    score: int = 0


@dataclass(slots=True)
class ClaimsFeasibility:
    """The answers for some rows, in their order."""

    rows: Rows
    codes: NDArray[np.int8]
    """FEASIBLE, or why not."""
    scores: NDArray[np.int64]
    """Of the alternatives that would be chosen; 0 for requests without."""

    @property
    def feasible(self) -> NDArray[np.bool_]:
        return np.equal(self.codes, FEASIBLE)

    @property
    def fatal(self) -> NDArray[np.bool_]:
        """The rows where the claims turn out to be at fault. `allocate` says why."""
        return np.equal(self.codes, PROBLEM)

    def message(self, at: int) -> str:
        """Why the row at this place is infeasible."""
        return _MESSAGES[self.codes[at]]


@dataclass(slots=True)
class _Compiled:
    request: ClaimsRequest
    columns: RequestColumns
    verdicts: dict[object, ClaimsVerdict]


class ClaimsAllocator:
    """Allocates devices of a catalogue. Pure: the use of devices is the caller's."""

    def __init__(self, catalogue: DeviceCatalogue, nodes: NodeTable) -> None:
        self.catalogue = catalogue
        self._nodes = nodes
        self._cache = ColumnCache(catalogue.table)
        self._requests: dict[bytes, ClaimsRequest] = {}
        self._compiled: dict[ClaimsRequest, _Compiled] = {}
        self._class_version = catalogue.class_version
        self._flat: _Flat | None = None

    def request(self, specs: Sequence[ResourceClaimSpec]) -> ClaimsRequest:
        """The claims with these specs, as one request: the same object as long as the classes do not
        change."""
        if self._class_version != self.catalogue.class_version or len(self._requests) > _MOST_REQUESTS:
            self._requests.clear()
            self._compiled.clear()
            self._class_version = self.catalogue.class_version
        key = encode(specs)
        found = self._requests.get(key)
        if found is None:
            found = self._requests[key] = ClaimsRequest(specs, self.catalogue.classes)
        return found

    # Many nodes

    def feasible(self, request: ClaimsRequest, rows: Rows, use: UseSnapshot) -> ClaimsFeasibility:
        """Which nodes have the devices for all claims of the request."""
        compiled = self._columns(request)
        use.cover()
        if request.single is not None:
            return self._counted(compiled, request.single.count, rows, use)
        return self._searched(compiled, rows, use)

    def verdict(self, request: ClaimsRequest, row: int, use: UseSnapshot) -> ClaimsVerdict:
        """The answer for one node."""
        compiled = self._columns(request)
        use.cover()
        visible = self.catalogue.visible(row)
        if request.single is not None:
            columns = compiled.columns
            if not columns.hard.take(visible.rows).any():
                free = columns.easy.take(visible.rows) & ~use.busy(visible)
                if visible.any_unselected:
                    free &= ~visible.unselected
                return _enough(int(np.count_nonzero(free)), request.single.count, visible)
        return self._signed(compiled, visible, use)

    def _counted(
        self, compiled: _Compiled, count: int, rows: Rows, use: UseSnapshot
    ) -> ClaimsFeasibility:
        if len(rows) < _FEW_ROWS:
            return _verdicts(rows, [self.verdict(compiled.request, row, use) for row in rows.tolist()])
        flat, columns = self._all_devices(), compiled.columns
        devices = flat.devices_of(rows)
        identities, entries = flat.identities.take(devices.at), flat.rows.take(devices.at)
        free = (use.taken.take(identities) == 0) & (use.share_state.take(identities) == 0)
        free &= columns.easy.take(entries)
        free &= flat.selected.take(devices.at)
        codes = np.where(flat.invalid[rows], np.int8(INVALID), np.int8(NO_DEVICES))
        codes[devices.sums(free) >= count] = FEASIBLE
        found = ClaimsFeasibility(rows, codes, np.zeros(len(rows), dtype=np.int64))
        if columns.has_hard:
            for at in np.flatnonzero(devices.sums(columns.hard.take(entries))).tolist():
                visible = self.catalogue.visible(int(rows[at]))
                found.codes[at] = self._signed(compiled, visible, use).code
        return found

    def _searched(self, compiled: _Compiled, rows: Rows, use: UseSnapshot) -> ClaimsFeasibility:
        if len(rows) < _FEW_ROWS:
            return _verdicts(
                rows,
                [self._signed(compiled, self.catalogue.visible(row), use) for row in rows.tolist()],
            )
        flat = self._all_devices()
        busy = use.taken[flat.identities] > 0
        states = np.stack(
            [compiled.columns.code[flat.rows], busy, use.share_state[flat.identities]], axis=1
        ).astype(np.int32)
        codes = np.zeros(len(rows), dtype=np.int8)
        scores = np.zeros(len(rows), dtype=np.int64)
        for places in flat.alike(rows, states):
            visible = self.catalogue.visible(int(rows[places[0]]))
            codes[places], scores[places] = self._signed(compiled, visible, use)
        return ClaimsFeasibility(rows, codes, scores)

    def _signed(self, compiled: _Compiled, visible: VisibleDevices, use: UseSnapshot) -> ClaimsVerdict:
        """The answer for a node that sees these devices."""
        signature = (
            visible.structure,
            compiled.columns.code.take(visible.rows).tobytes(),
            use.busy(visible).tobytes(),
            use.share_state.take(visible.identities).tobytes(),
            tuple(tuple(use.available(pool).values()) for pool in visible.counted),
        )
        found = compiled.verdicts.get(signature)
        if found is None:
            if len(compiled.verdicts) >= _MOST_SIGNATURES:
                compiled.verdicts.clear()
            found = compiled.verdicts[signature] = self._verdict(compiled, visible, use)
        return found

    def _verdict(self, compiled: _Compiled, visible: VisibleDevices, use: UseSnapshot) -> ClaimsVerdict:
        try:
            solution = self._search(compiled, visible, use).run()
        except AllocationProblem:
            return ClaimsVerdict(PROBLEM)
        if solution is None:
            return ClaimsVerdict(INVALID if visible.invalid else NO_DEVICES)
        claims = compiled.request.claims
        score = sum(c.score(choice) for c, choice in zip(claims, solution.choices, strict=True))
        return ClaimsVerdict(FEASIBLE, score)

    # One node

    def allocate(
        self,
        request: ClaimsRequest,
        row: int,
        use: UseSnapshot,
        claims: Sequence[ClaimName],
        *,
        prefer: Collection[DeviceID] = (),
        only: Collection[DeviceID] | None = None,
        share_id: ShareID = derived_share_id,
    ) -> ClaimsAllocation | ClaimsRefusal:
        """The devices for the claims on the node of a row, or why there are none.

        `prefer` are devices that are tried before others, in their order; with `only`, others are not
        tried at all (except for admin access)."""
        compiled = self._columns(request)
        use.cover()
        visible = self.catalogue.visible(row)
        node = self._nodes.info[row].name
        solution: Solution | None = None
        try:
            if not prefer and only is None:
                solution = self._first(compiled, visible, use)
            if solution is None:
                solution = self._search(compiled, visible, use, prefer, only).run()
        except AllocationProblem as error:
            message = error.problem.message([str(each) for each in claims])
            return ClaimsRefusal(f"node {node}: {message}" if message == TIMED_OUT else message, True)
        if solution is None:
            return ClaimsRefusal(INVALID_POOLS if visible.invalid else CANNOT_ALLOCATE)
        return allocation_of(request, solution, node, self._slice, claims, share_id)

    def _first(self, compiled: _Compiled, visible: VisibleDevices, use: UseSnapshot) -> Solution | None:
        """The solution where the first devices that match are one; None where a search is needed."""
        part, columns = compiled.request.single, compiled.columns
        if part is None or columns.hard.take(visible.rows).any():
            return None
        free = columns.easy.take(visible.rows) & ~use.busy(visible)
        if visible.any_unselected:
            free &= ~visible.unselected
        places = np.flatnonzero(free)[: part.count].tolist()
        if len(places) < part.count:
            return None
        return Solution([[Pick(part, visible.entries[at], None) for at in places]], [(0,)])

    def search(
        self,
        request: ClaimsRequest,
        row: int,
        use: UseSnapshot,
        recorder: Recorder,
        prefer: Collection[DeviceID] = (),
        only: Collection[DeviceID] | None = None,
    ) -> Search:
        """A search on a node that tells a recorder why it passes devices over."""
        use.cover()
        search = self._search(self._columns(request), self.catalogue.visible(row), use, prefer, only)
        search.recorder = recorder
        return search

    def _search(
        self,
        compiled: _Compiled,
        visible: VisibleDevices,
        use: UseSnapshot,
        prefer: Collection[DeviceID] = (),
        only: Collection[DeviceID] | None = None,
    ) -> Search:
        closed: list[bool] = use.busy(visible).tolist()
        order: Sequence[int] = range(len(visible))
        if prefer:
            wanted = set(prefer)
            order = sorted(order, key=lambda at: visible.entries[at].id not in wanted)
        if only is not None:
            offered = set(only)
            closed = [
                taken or entry.id not in offered
                for taken, entry in zip(closed, visible.entries, strict=True)
            ]
        return Search(compiled.request, compiled.columns, visible, use, order, closed)

    # Upkeep

    def _columns(self, request: ClaimsRequest) -> _Compiled:
        found = self._compiled.get(request)
        if found is None:
            if len(self._compiled) > _MOST_REQUESTS:
                self._compiled.clear()
            columns = RequestColumns(request, self._cache)
            found = self._compiled[request] = _Compiled(request, columns, {})
        found.columns.refresh()
        return found

    def _all_devices(self) -> _Flat:
        if self._flat is None or not self._flat.current(self.catalogue, self._nodes):
            self._flat = _Flat(self.catalogue, self._nodes)
        return self._flat

    def _slice(self, name: str) -> ResourceSlice:
        found = self.catalogue.slice(name)
        assert found is not None
        return found


class _Flat:
    """The visible devices of all nodes in one array, row after row."""

    def __init__(self, catalogue: DeviceCatalogue, nodes: NodeTable) -> None:
        self._structure, self._size = catalogue.structure, nodes.size
        visible = [catalogue.visible(row) for row in range(nodes.size)]
        lengths = np.array([len(each) for each in visible], dtype=np.intp)
        self._starts = np.cumsum(lengths) - lengths
        self.rows = _joined([each.rows for each in visible], np.int32)
        self.identities = _joined([each.identities for each in visible], np.int32)
        self.selected = np.logical_not(_joined([each.unselected for each in visible], np.bool_))
        self.invalid = np.array([each.invalid for each in visible], dtype=np.bool_)
        structures: dict[object, int] = {}
        self._lengths = lengths
        self._kind = np.array(
            [_kind(each, row, structures) for row, each in enumerate(visible)], dtype=np.int32
        )
        """Equal for rows whose pools are alike; that of a row with counters is its own."""

    def current(self, catalogue: DeviceCatalogue, nodes: NodeTable) -> bool:
        return self._structure == catalogue.structure and self._size == nodes.size

    def devices_of(self, rows: Rows) -> _DevicesOfRows:
        """The places of the devices of some rows, of which there is at least one."""
        starts, lengths = self._starts[rows], self._lengths[rows]
        length = int(lengths[0])
        if length and (lengths == length).all():  # as on nodes that are alike: a table
            at = (starts[:, np.newaxis] + np.arange(length)).ravel()
            return _DevicesOfRows(at, lengths, length)
        ends = np.cumsum(lengths)
        at = np.arange(int(ends[-1])) + np.repeat(starts - ends + lengths, lengths)
        return _DevicesOfRows(at, lengths, 0)

    def alike(self, rows: Rows, states: NDArray[np.int32]) -> Iterator[NDArray[np.intp]]:
        """The places of rows whose devices have the same states in the same order. `states` has a line
        per device."""
        lengths = self._lengths[rows]
        for length in sorted(set(lengths.tolist())):
            places = np.flatnonzero(lengths == length)
            among = rows[places]
            cells = self._starts[among][:, np.newaxis] + np.arange(length)
            lines = np.concatenate(
                [self._kind[among][:, np.newaxis], states[cells].reshape(len(among), -1)], axis=1
            )
            yield from _equal_lines(places, np.ascontiguousarray(lines))


class _DevicesOfRows(NamedTuple):
    """The places of devices of some rows in the array of all."""

    at: NDArray[np.intp]
    lengths: NDArray[np.intp]
    """The number of devices of each row."""
    same_length: int
    """The number of each row, if it is the same; else 0."""

    def sums(self, cells: NDArray[np.bool_]) -> NDArray[np.intp]:
        """How many of each row's devices have a property."""
        if self.same_length:
            ones = np.ones(self.same_length, dtype=np.float32)  # a product is faster than sums
            return (cells.reshape(-1, self.same_length) @ ones).astype(np.intp)
        totals = np.zeros(len(cells) + 1, dtype=np.intp)
        np.cumsum(cells, out=totals[1:])
        ends = np.cumsum(self.lengths)
        counts: NDArray[np.intp] = totals[ends] - totals[ends - self.lengths]
        return counts


def _kind(visible: VisibleDevices, row: int, known: dict[object, int]) -> int:
    if visible.counted:
        return -1 - row
    return known.setdefault(visible.structure, len(known))


def _joined(arrays: list[NDArray[Any]], dtype: type[np.generic]) -> NDArray[Any]:
    return np.concatenate(arrays) if arrays else np.zeros(0, dtype=dtype)


def _equal_lines(places: NDArray[np.intp], lines: NDArray[np.int32]) -> Iterator[NDArray[np.intp]]:
    """The places, grouped by equal lines."""
    whole = lines.view(np.dtype((np.void, lines.shape[1] * lines.itemsize))).ravel()
    order = np.argsort(whole, kind="stable")
    ordered = whole[order]
    starts = np.flatnonzero(np.concatenate([[True], ordered[1:] != ordered[:-1]]))
    for group in np.split(order, starts[1:]):
        yield places[group]


def _enough(free: int, count: int, visible: VisibleDevices) -> ClaimsVerdict:
    if free >= count:
        return ClaimsVerdict(FEASIBLE)
    return ClaimsVerdict(INVALID if visible.invalid else NO_DEVICES)


def _verdicts(rows: Rows, found: list[ClaimsVerdict]) -> ClaimsFeasibility:
    codes = np.array([each.code for each in found], dtype=np.int8)
    return ClaimsFeasibility(rows, codes, np.array([each.score for each in found], dtype=np.int64))
