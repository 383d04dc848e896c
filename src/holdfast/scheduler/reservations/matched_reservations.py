"""The reservations pods of one class may draw on, by row."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from holdfast.scheduler.cluster.pod_classes import PodClass
from holdfast.scheduler.cluster.reservation_table import ReservationRow
from holdfast.scheduler.reservations.reservation_info import ReservationInfo

if TYPE_CHECKING:
    from holdfast.scheduler.reservations.reservation_cache import ReservationCache

_NO_LABELS: Mapping[str, str] = {}


class MatchedReservations:
    """Which of them can be drawn on at the moment changes with every pod, and is asked for then."""

    __slots__ = (
        "_by_row",
        "_cls",
        "_matching",
        "_position",
        "_promises",
        "_row",
        "_specs",
        "wish",
    )

    def __init__(self, promises: ReservationCache, cls: PodClass) -> None:
        self._promises = promises
        self._cls = cls
        self.wish = promises.wish(cls)
        self._matching: frozenset[int] = frozenset()
        self._position = -1
        self._specs = -1
        self._by_row: dict[int, tuple[ReservationInfo, ...]] = {}
        self._row: dict[str, int] = {}

    def refresh(self) -> None:
        promises = self._promises
        end = promises.log_start + len(promises.log)
        self._specs = promises.specs.version
        matching = promises.matching(self._cls)
        if matching != self._matching or self._position < promises.log_start:
            self._matching = matching
            self._by_row.clear()
            self._row.clear()
            for spec in matching:
                for promise in promises.members.get(spec, {}).values():
                    self._add(promise)
        else:
            for uid in promises.log[self._position - promises.log_start :]:
                self._look_at(uid)
        self._position = end

    @property
    def is_current(self) -> bool:
        promises = self._promises
        end = promises.log_start + len(promises.log)
        return end == self._position and promises.specs.version == self._specs

    def on(self, row: int) -> list[ReservationRow]:
        """Those on the row that can be drawn on now, with what is left of them."""
        there = self._by_row.get(row)
        if there is None:
            return []
        usable = self._promises.is_usable
        if len(there) == 1:
            (promise,) = there
            hold = promise.hold
            if hold is None or promise.waiting or promise.leaving or promise.deleting:
                return []
            return [hold] if not promise.once or usable(promise) else []
        return [p.hold for p in there if p.hold is not None and usable(p)]

    def everywhere(self) -> list[ReservationRow]:
        """Those on all rows."""
        usable = self._promises.is_usable
        return [
            promise.hold
            for there in self._by_row.values()
            for promise in there
            if promise.hold is not None and usable(promise)
        ]

    def rows(self) -> list[int]:
        return list(self._by_row)

    def _look_at(self, uid: str) -> None:
        row = self._row.pop(uid, None)
        if row is not None:
            there = tuple([each for each in self._by_row.pop(row) if each.uid != uid])
            if there:
                self._by_row[row] = there
        promise = self._promises.known.get(uid)
        if promise is not None and promise.spec is not None and promise.spec.id in self._matching:
            self._add(promise)

    def _add(self, promise: ReservationInfo) -> None:
        """One for pods like these, if it has a node and they would have it."""
        row = promise.pod.row if promise.pod is not None else -1
        if row < 0:
            return
        labels = self._promises.node_labels(row) if self.wish.required else _NO_LABELS
        if self.wish.refusal(promise, labels):
            return
        self._row[promise.uid] = row
        there = self._by_row.get(row)
        self._by_row[row] = (promise,) if there is None else (*there, promise)
