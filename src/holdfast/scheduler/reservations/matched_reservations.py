"""The reservations that pods of one class match, by row."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from holdfast.scheduler.cluster.epoch import Epoch
from holdfast.scheduler.cluster.pod_classes import PodClass
from holdfast.scheduler.cluster.records import ReservationInfo, ReservationRow
from holdfast.scheduler.reservations.reservation_affinity import RequiredReservation

_NO_LABELS: Mapping[str, str] = {}


class Reservations(Protocol):
    """What matching reads of the reservation cache."""

    known: dict[str, ReservationInfo]
    members: dict[int, dict[str, ReservationInfo]]
    """The reservations of each owner spec, by its id and their uid."""

    def affinity(self, cls: PodClass) -> RequiredReservation: ...

    def matching(self, cls: PodClass) -> frozenset[int]:
        """The ids of the owner specs that pods of the class match."""

    def is_usable(self, reservation: ReservationInfo) -> bool:
        """Whether owners can be allocated from it now."""

    def node_labels(self, row: int) -> Mapping[str, str]: ...


class MatchedReservations:
    """Kept up to date by `Epoch.reservations`. Which of them are usable now changes with every pod, so
    that is evaluated by each query."""

    __slots__ = (
        "_by_row",
        "_cls",
        "_epoch",
        "_matching",
        "_position",
        "_reservations",
        "_row",
        "_specs",
        "affinity",
    )

    def __init__(self, reservations: Reservations, epoch: Epoch, cls: PodClass) -> None:
        self._reservations = reservations
        self._epoch = epoch
        self._cls = cls
        self.affinity = reservations.affinity(cls)
        self._matching: frozenset[int] = frozenset()
        self._position = -1
        self._specs = -1
        self._by_row: dict[int, tuple[ReservationInfo, ...]] = {}
        self._row: dict[str, int] = {}

    def refresh(self) -> None:
        """Follows the reservations that changed since; all of them if the owner specs that match
        did."""
        reservations, epoch = self._reservations, self._epoch
        self._specs = epoch.owners
        moved = epoch.reservations.since(self._position)
        matching = reservations.matching(self._cls)
        if matching != self._matching or moved is None:
            self._matching = matching
            self._by_row.clear()
            self._row.clear()
            for spec in matching:
                for reservation in reservations.members.get(spec, {}).values():
                    self._add(reservation)
        else:
            for uid in moved:
                self._follow(uid)
        self._position = epoch.reservations.end

    @property
    def is_current(self) -> bool:
        epoch = self._epoch
        return epoch.reservations.end == self._position and epoch.owners == self._specs

    def on(self, row: int) -> list[ReservationRow]:
        """The matched reservations on the row that are usable now."""
        there = self._by_row.get(row)
        if there is None:
            return []
        usable = self._reservations.is_usable
        if len(there) == 1:
            (reservation,) = there
            hold = reservation.hold
            if hold is None or reservation.waiting or reservation.ending:
                return []
            return [hold] if not reservation.once or usable(reservation) else []
        return [p.hold for p in there if p.hold is not None and usable(p)]

    def everywhere(self) -> list[ReservationRow]:
        """The matched reservations on all rows that are usable now."""
        usable = self._reservations.is_usable
        return [
            reservation.hold
            for there in self._by_row.values()
            for reservation in there
            if reservation.hold is not None and usable(reservation)
        ]

    def rows(self) -> list[int]:
        return list(self._by_row)

    def _follow(self, uid: str) -> None:
        row = self._row.pop(uid, None)
        if row is not None:
            there = tuple([each for each in self._by_row.pop(row) if each.uid != uid])
            if there:
                self._by_row[row] = there
        reservation = self._reservations.known.get(uid)
        if reservation is not None and reservation.owner_spec_id in self._matching:
            self._add(reservation)

    def _add(self, reservation: ReservationInfo) -> None:
        """Adds a reservation that is on a row, if the reservation affinity of the class allows it."""
        row = reservation.pod.row if reservation.pod is not None else -1
        if row < 0:
            return
        labels = self._reservations.node_labels(row) if self.affinity.required else _NO_LABELS
        if self.affinity.refusal(reservation, labels):
            return
        self._row[reservation.uid] = row
        there = self._by_row.get(row)
        self._by_row[row] = (reservation,) if there is None else (*there, reservation)
