"""The pool of available volumes of one storage class, and which of them are accessible from a row.

A volume is accessible from every row, from those with a certain label value (local and zonal volumes),
or from those that a longer node affinity selects: each of these is a *place*. Rows with the same set of
places (a *reach*) match the same volumes, so matching is done per reach rather than per row, and after
a change only for the reaches concerned.

Claims of a pod are matched smallest first, each with the smallest volume that satisfies it.
"""

from bisect import bisect_left, insort
from collections.abc import Hashable, Sequence
from typing import NamedTuple

import msgspec
import numpy as np
from numpy.typing import NDArray

from holdfast.api.affinity import NodeSelectorTerm
from holdfast.api.selectors import Selector, compile_selector
from holdfast.api.storage import PersistentVolume, PersistentVolumeClaim
from holdfast.scheduler.cluster.epoch import RowLog
from holdfast.scheduler.cluster.node_selectors import Mask, compile_terms
from holdfast.scheduler.cluster.node_table import NodeTable
from holdfast.scheduler.cluster.view import All
from holdfast.scheduler.managers.volumes.volume_objects import FILESYSTEM, in_bytes, storage_of

Place = Hashable
EVERYWHERE: Place = ()

_encode = msgspec.msgpack.Encoder(order="deterministic").encode
_MATCHERS = 64
"""The number of matchers kept per class."""


class VolumeRequest(NamedTuple):
    """The requirements of a claim. Claims with equal ones match the same volumes."""

    size: int
    modes: frozenset[str]
    volume_mode: str
    attributes: str
    selector: Selector | None


def request(claim: PersistentVolumeClaim) -> VolumeRequest:
    """Raises SelectorError."""
    spec = claim.spec
    return VolumeRequest(
        storage_of(spec.resources.requests),
        frozenset(spec.access_modes),
        spec.volume_mode or FILESYSTEM,
        spec.volume_attributes_class_name or "",
        None if spec.selector is None else compile_selector(spec.selector),
    )


def suits(request: VolumeRequest, volume: PersistentVolume) -> bool:
    """Whether a volume that is pre-bound to the claim satisfies it."""
    spec = volume.spec
    return (
        storage_of(spec.capacity) >= request.size
        and (spec.volume_mode or FILESYSTEM) == request.volume_mode
        and (spec.volume_attributes_class_name or "") == request.attributes
        and volume.metadata.deletion_timestamp is None
    )


def may_take(request: VolumeRequest, volume: PersistentVolume) -> bool:
    """Whether an available volume satisfies the claim."""
    return (
        suits(request, volume)
        and request.modes.issubset(volume.spec.access_modes)
        and (request.selector is None or request.selector.matches(volume.metadata.labels))
    )


def affinity_terms(volume: PersistentVolume) -> list[NodeSelectorTerm] | None:
    """The node affinity of a volume; None if it is accessible from all nodes."""
    affinity = volume.spec.node_affinity
    if affinity is None or affinity.required is None:
        return None
    return affinity.required.node_selector_terms


def affinity_mask(nodes: NodeTable, terms: list[NodeSelectorTerm]) -> Mask:
    """The rows that node affinity terms of a volume select. They read labels only: matchFields are
    evaluated as if the node had no name."""
    kept = []
    for term in terms:
        if not term.match_fields:
            kept.append(term)
        elif all(field.operator == "NotIn" for field in term.match_fields):
            if not term.match_expressions:
                return lambda view: view.full(True)
            kept.append(NodeSelectorTerm(match_expressions=term.match_expressions))
    return compile_terms(nodes, kept)


def places(volume: PersistentVolume) -> list[Place]:
    """The places of a volume."""
    terms = affinity_terms(volume)
    if terms is None:
        return [EVERYWHERE]
    if len(terms) == 1 and not terms[0].match_fields and len(terms[0].match_expressions) == 1:
        expression = terms[0].match_expressions[0]
        if expression.operator == "In":
            return [(expression.key, value) for value in dict.fromkeys(expression.values)]
    return [_encode(terms)]


Part = tuple[NDArray[np.int64], list[Place | None]]
"""One criterion that distinguishes rows: a digit per row, and the place that each digit stands for."""


class Pool:
    """The available volumes of one storage class."""

    def __init__(self, nodes: NodeTable, nodes_changed: RowLog) -> None:
        self._nodes = nodes
        self._nodes_changed = nodes_changed
        self._volumes: dict[str, PersistentVolume] = {}
        self._at: dict[Place, list[tuple[int, str]]] = {}
        """The available volumes of each place as (size, name), smallest first."""
        self._masks: dict[Place, Mask] = {}
        self._seen = -1
        self._size = 0
        self._reach_of: NDArray[np.intp] = np.zeros(0, dtype=np.intp)
        self._reaches: list[tuple[Place, ...]] = []
        """The places of each reach."""
        self._reaches_at: dict[Place, list[int]] = {}
        self._matchers: dict[tuple[VolumeRequest, ...], Matcher] = {}

    def __len__(self) -> int:
        return len(self._volumes)

    def names(self) -> set[str]:
        return set(self._volumes)

    def put(self, volume: PersistentVolume) -> None:
        """Adds an available volume, or follows its change."""
        name = volume.metadata.name
        self.take(name)
        self._volumes[name] = volume
        size = storage_of(volume.spec.capacity)
        for place in places(volume):
            if place not in self._at:
                self._at[place] = []
                self._seen = -1
                if isinstance(place, bytes):
                    self._masks[place] = affinity_mask(self._nodes, affinity_terms(volume) or [])
            insort(self._at[place], (size, name))
            self._changed(place)

    def take(self, name: str) -> bool:
        """Removes a volume. Returns whether it was there."""
        volume = self._volumes.pop(name, None)
        if volume is None:
            return False
        entry = (storage_of(volume.spec.capacity), name)
        for place in places(volume):
            listed = self._at[place]
            del listed[bisect_left(listed, entry)]
            self._changed(place)
        return True

    def matcher(self, requests: tuple[VolumeRequest, ...]) -> "Matcher":
        """The matcher for the requests of one pod, smallest first."""
        self._refresh()
        matcher = self._matchers.get(requests)
        if matcher is None:
            matcher = self._matchers[requests] = Matcher(self, requests, len(self._reaches))
            if len(self._matchers) > _MATCHERS:
                del self._matchers[next(iter(self._matchers))]
        return matcher

    def choose(self, requests: Sequence[VolumeRequest], row: int) -> list[PersistentVolume | None]:
        """The volume of each request of a pod on that row."""
        self._refresh()
        return self.serve(requests, int(self._reach_of[row]))

    def reaches(self) -> NDArray[np.intp]:
        """The reach of each row, as an index."""
        self._refresh()
        return self._reach_of

    def serve(self, requests: Sequence[VolumeRequest], reach: int) -> list[PersistentVolume | None]:
        taken: set[str] = set()
        served: list[PersistentVolume | None] = []
        for wanted in requests:
            best: tuple[int, str] | None = None
            for place in self._reaches[reach]:
                found = self._first(place, wanted, taken)
                if found is not None and (best is None or found < best):
                    best = found
            if best is not None:
                taken.add(best[1])
            served.append(None if best is None else self._volumes[best[1]])
        return served

    def _first(self, place: Place, wanted: VolumeRequest, taken: set[str]) -> tuple[int, str] | None:
        listed = self._at[place]
        for at in range(bisect_left(listed, (wanted.size, "")), len(listed)):
            name = listed[at][1]
            if name not in taken and may_take(wanted, self._volumes[name]):
                return listed[at]
        return None

    def _changed(self, place: Place) -> None:
        if self._matchers:
            for reach in self._reaches_at.get(place, ()):
                for matcher in self._matchers.values():
                    matcher.stale.add(reach)

    def _refresh(self) -> None:
        """Computes the reach of rows again, if nodes changed or a place is new."""
        nodes = self._nodes
        if self._seen == self._nodes_changed.end and self._size == nodes.size:
            return
        self._seen = self._nodes_changed.end
        self._size = nodes.size
        for place in [place for place, listed in self._at.items() if not listed]:
            del self._at[place]
            self._masks.pop(place, None)
        self._reach_of, first, parts = self._sorted_rows()
        self._reaches = []
        self._reaches_at = {}
        for number, row in enumerate(first):
            reached: list[Place] = [EVERYWHERE] if EVERYWHERE in self._at else []
            for digits, meanings in parts:
                place = meanings[digits[row]]
                if place is not None:
                    reached.append(place)
            self._reaches.append(tuple(reached))
            for place in reached:
                self._reaches_at.setdefault(place, []).append(number)
        self._matchers.clear()

    def _sorted_rows(self) -> tuple[NDArray[np.intp], list[int], list[Part]]:
        """The reach of each row, one row of each reach, and the criteria that distinguish rows."""
        nodes = self._nodes
        parts: list[Part] = []
        by_key: dict[str, list[str]] = {}
        for place in self._at:
            if isinstance(place, tuple) and place:
                by_key.setdefault(place[0], []).append(place[1])
        for key, values in by_key.items():
            column = nodes.labels.column(key)
            table = np.zeros(len(column.values) + 1, dtype=np.int64)
            meanings: list[Place | None] = [None]
            for value in values:
                code = column.code(value)
                if code >= 0:
                    table[code] = len(meanings)
                    meanings.append((key, value))
            parts.append((table[column.codes[: nodes.size]], meanings))
        for place, mask in self._masks.items():
            parts.append((mask(All(nodes)).astype(np.int64), [None, place]))
        reach_of: NDArray[np.intp] = np.zeros(nodes.size, dtype=np.intp)
        first: list[int] = [0] if nodes.size else []
        for digits, meanings in parts:
            combined = reach_of * len(meanings) + digits
            _, index, inverse = np.unique(combined, return_index=True, return_inverse=True)
            reach_of, first = inverse.reshape(-1), index.tolist()
        return reach_of, first, parts


class Matcher:
    """The rows with an available volume for each request of a pod, kept up to date."""

    def __init__(self, pool: Pool, requests: tuple[VolumeRequest, ...], reaches: int) -> None:
        self._pool = pool
        self._requests = requests
        self._sizes: NDArray[np.int64] = np.full((len(requests), reaches), -1, dtype=np.int64)
        self._rows: list[NDArray[np.int64]] = []
        self.stale: set[int] = set(range(reaches))

    def sizes(self) -> list[NDArray[np.int64]]:
        """For each request and row the size of the volume for it, in bytes; -1 if there is none."""
        if self.stale or not self._rows:
            for reach in self.stale:
                volumes = self._pool.serve(self._requests, reach)
                self._sizes[:, reach] = [
                    -1 if v is None else in_bytes(v.spec.capacity) for v in volumes
                ]
            self.stale.clear()
            reach_of = self._pool.reaches()
            self._rows = [sizes[reach_of] for sizes in self._sizes]
        return self._rows
