"""The base class of the CPU manager and the device manager: which pod has which units of a node.

A unit is a CPU, a device, or an amount of one or of a NUMA node. An allocation of a pod is one of

    tentative chosen when the pod came to a row without an annotation (assumed by the scheduler,
              tried in a dry run, or bound by somebody else), so that no other pod gets the same units.
              Nowhere is written which units a pod has that somebody else has bound: they are chosen
              again when the row changes (`ResourceManagers.choose_again`), so that they do not depend
              on what came first
    settled   final: read from the pod's annotation, or made from `tentative` when the pod is scheduled;
              written to the annotation when the pod is bound
    planned   of a Waiting reservation: units that are free, or become free when terminating pods (or
              pods that can end) are gone. No other pod gets them. A plan is never written to the
              object, and is made again whenever something on the node changes; `accept` makes it
              `settled` when the reservation becomes Available.

A reservation has an allocation like a pod, by its reserve pod. Owners are allocated units of it; the
reservation holds what is left.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping
from enum import IntEnum
from typing import ClassVar, Generic, TypeVar

import numpy as np
from numpy.typing import NDArray

from holdfast.api.meta import ObjectMeta
from holdfast.scheduler.cluster.base import ClusterBase
from holdfast.scheduler.cluster.columns import cells_of
from holdfast.scheduler.cluster.records import Phase, PodRecord, ReservationInfo

T = TypeVar("T")


class Horizon(IntEnum):
    """Which pods and reservations count as gone when units are chosen."""

    NOW = 0
    """None: the units chosen are free."""
    SOON = 1
    """Pods that are being deleted, and the victims of the reservation itself."""
    LATER = 2
    """All pods except those of DaemonSets, and the victims of the reservation itself."""


class ResourceManager(ABC, Generic[T]):
    """Keeps the allocations of one kind of unit on all nodes. T is the type of one allocation."""

    annotation: ClassVar[str]
    """The annotation that stores a pod's allocation."""
    lacks: ClassVar[str]
    """The name of the resource in the conditions of reservations that lack it."""
    governed: NDArray[np.bool_] = cells_of("_governed")
    """Rows with units: an object lists them, or a pod has some."""

    def __init__(self, cluster: ClusterBase, on_active: Callable[[], None], nothing: T) -> None:
        """`on_active` is called once, when the manager becomes active."""
        self._cluster = cluster
        self._on_active = on_active
        self.nothing = nothing
        self.active = False
        """Whether any node has units. Until then the manager does nothing."""
        self._governed = cluster.nodes.columns.new(np.bool_)
        self.version = 0
        """Incremented when the units of any node change."""
        self.settled: dict[str, T] = {}
        """Final allocations, by uid of the pod or reservation."""
        self.planned: dict[str, T] = {}
        """Allocations planned for Waiting reservations; pods may still have the units."""
        self.chosen: dict[str, None] = {}
        """The uids of settled allocations that were chosen by this scheduler, not read from an
        object."""
        self.tentative: dict[str, T] = {}
        """Tentative allocations, by uid; `nothing` where the row has too few units."""
        self.there: dict[int, dict[str, PodRecord]] = {}
        """Pods and reserve pods with an allocation, by row and uid."""
        self._listed: set[int] = set()
        """Rows whose units an object lists."""
        self.changed_rows: dict[int, None] = {}
        """Rows that changed while units were chosen tentatively."""
        self._entry: dict[str, int] = {}
        """The entry index of each reserve pod with an allocation."""

    # What a manager implements

    @abstractmethod
    def _read(self, text: str) -> T | None:
        """Decodes the annotation; None if it is invalid."""

    @abstractmethod
    def _write(self, row: int, what: T) -> str:
        """Encodes the annotation."""

    @abstractmethod
    def _list(self, row: int) -> bool:
        """Reads the units of a row from its object, while none is allocated; False without an
        object."""

    @abstractmethod
    def _choose(
        self, pod: PodRecord, row: int, hold: int | None, horizon: Horizon = Horizon.NOW
    ) -> T | None:
        """The units a pod would get on a row, from the reservation with index `entry` if given;
        `nothing` if there are too few, None if it requests none. Horizons other than NOW are for
        Waiting reservations, SOON also for nominated pods."""

    @abstractmethod
    def _is_as_asked(self, pod: PodRecord, what: T) -> bool:
        """Whether the allocation is what the pod requests now, after a possible resize."""

    @abstractmethod
    def lost(self, pod: PodRecord) -> bool:
        """Whether the node no longer has a unit of the pod on its row, or another pod has it too."""

    @abstractmethod
    def _recount(self, row: int) -> None:
        """Computes again what is free on a row, and what is left of reservations there."""

    @abstractmethod
    def _release(self, index: int) -> None:
        """Clears what is kept for a entry index."""

    @abstractmethod
    def _open(self) -> None:
        """Called once, when the manager becomes active."""

    def _count(self, pod: PodRecord, row: int, what: T, sign: int) -> None:
        """Accounts for an allocation that was added to a row (sign 1) or removed from it (-1)."""
        self._recount(row)

    # Queries

    def has(self, uid: str) -> T:
        """The allocation of a pod or reservation, of whichever kind; `nothing` without one."""
        for kept in (self.settled, self.planned, self.tentative):
            found = kept.get(uid)
            if found is not None:
                return found
        return self.nothing

    def annotate(self, pod: PodRecord, row: int, into: dict[str, str]) -> None:
        """Adds the annotation for a pod that is bound to the row."""
        found = self.settled.get(pod.uid)
        if found:
            into[self.annotation] = self._write(row, found)

    def _hold_on(self, pod: PodRecord, row: int) -> int | None:
        """The entry index of the reservation a pod is allocated from, if that is on the row."""
        entry = (
            self._cluster.ledger.reservations.get(pod.reservation_uid) if pod.reservation_uid else None
        )
        return entry.index if entry is not None and entry.row == row else None

    # Objects

    def put(self, node: str) -> None:
        """Reads the units of a node again, after its object was added, changed or deleted."""
        self._activate()
        row = self._cluster.nodes.row(node)
        if row is not None:
            self.load(row)
            self._cluster.epoch.usage.add(row)

    def load(self, row: int) -> None:
        """Reads the units of a row, and enters the pods and reserve pods on it again."""
        self._clear(row)
        if self._list(row):
            self._listed.add(row)
        else:
            self._listed.discard(row)
        self.version += 1
        self._govern(row)
        self._fill(row)

    def note_change(self, row: int) -> None:
        """Notes that a pod or reserve pod came to a row or left it, or has other units than before."""
        if self.tentative:
            self.changed_rows[row] = None

    def has_choices(self, row: int) -> bool:
        """Whether units are chosen for a pod on the row that somebody else has bound."""
        return any(
            uid in self.tentative and pod.reservation is None and pod.phase is Phase.ASSIGNED
            for uid, pod in self.there.get(row, {}).items()
        )

    def choose_again(self, row: int) -> bool:
        """Chooses all units of a row again that are not final, in the order in which `load` does;
        returns whether pods have others than before. Plans of Waiting reservations are dropped."""
        before = {uid: self.tentative[uid] for uid in self.there.get(row, ()) if uid in self.tentative}
        self._clear(row)
        self._govern(row)
        self._recount(row)
        self._fill(row)
        return any(
            self.tentative.get(uid) != what
            for uid, what in before.items()
            if uid in self._cluster.ledger.pods.get(row, ())
        )

    def _clear(self, row: int) -> None:
        """Removes all pods and reserve pods of a row, to enter them again."""
        for uid in self.there.pop(row, {}):
            self.tentative.pop(uid, None)
            self.planned.pop(uid, None)
            index = self._entry.pop(uid, None)
            if index is not None:
                self._release(index)

    def _fill(self, row: int) -> None:
        """Enters the pods and reserve pods of a row, of which none is entered."""
        ledger = self._cluster.ledger
        on_row: Iterable[PodRecord] = ledger.pods.get(row, {}).values()
        present = [*on_row, *(entry.pod for entry in ledger.reservations.on(row))]
        for pod in sorted(present, key=self._first_choice):
            self._enter(pod, row)

    def _first_choice(self, pod: PodRecord) -> tuple[bool, bool, bool, str]:
        """Orders the pods and reserve pods of a row: units are chosen for pods that are there, then for
        reservations that have capacity, then for those that are Waiting."""
        waits = pod.reservation is not None and pod.reservation.waiting
        return pod.uid not in self.settled, waits, pod.reservation is not None, pod.uid

    def seen(self, pod: PodRecord, metadata: ObjectMeta) -> None:
        """Reads the annotation of an assigned pod or reservation, which may be on its row already."""
        text = metadata.annotations.get(self.annotation)
        found = self._read(text) if text is not None else None
        row = pod.row
        if found and self.settled.get(pod.uid) != found:
            self._activate()
            if row >= 0 and pod.uid in self.there.get(row, ()):
                self._leave(pod, row)
            self.settled[pod.uid] = found
            self.chosen.pop(pod.uid, None)
            if row >= 0:
                self._enter(pod, row)
                self._cluster.epoch.usage.add(row)
                self.note_change(row)
        elif row >= 0 and pod.uid in self.there.get(row, ()):
            self._recount(row)  # it may be allocated from another reservation than before
            self.note_change(row)

    # Scheduling

    def settle(self, pod: PodRecord) -> bool:
        """Makes the tentative allocation of a pod on its row final; False if it requests units and
        there were too few. A Waiting reservation gets nothing yet."""
        if pod.reservation is not None and pod.reservation.waiting:
            return True
        found = self.tentative.get(pod.uid)
        if found is None:
            return True
        if not found:
            return False
        self.settled[pod.uid] = self.tentative.pop(pod.uid)
        self.chosen[pod.uid] = None
        self.note_change(pod.row)
        return True

    def unsettle(self, pod: PodRecord) -> None:
        """Makes the allocation of a pod tentative again: it is not bound. It may still be on its
        row."""
        self.unplan(pod)
        self.chosen.pop(pod.uid, None)
        found = self.settled.pop(pod.uid, None)
        if found is not None and pod.row >= 0 and pod.uid in self.there.get(pod.row, ()):
            self.tentative[pod.uid] = found

    def renewed(self, pod: PodRecord) -> T | None:
        """The allocation a reserve pod would get by what it requests now, after a resize; None if it
        has that already; `nothing` if there are too few units, or owners have some of the current
        ones."""
        there, row = self.there.get(pod.row, {}), pod.row
        if pod.reservation is not None and pod.reservation.waiting:
            return None  # its plan is made again
        if pod.uid not in there or self._is_as_asked(pod, self.has(pod.uid)):
            return None
        if any(other.reservation_uid == pod.uid for other in there.values()):
            return self.nothing
        self._leave(pod, row)
        before = self.settled.pop(pod.uid, None)
        found = self._choose(pod, row, None)
        if before is not None:
            self.settled[pod.uid] = before
        self._enter(pod, row)
        return self.nothing if found is None else found

    def renew(self, pod: PodRecord) -> None:
        """Gives a reserve pod the allocation it requests now, if there is one."""
        found = self.renewed(pod)
        if found:
            self._leave(pod, pod.row)
            self.settled[pod.uid] = found
            self._enter(pod, pod.row)
            self.note_change(pod.row)

    def pass_on(self, uid: str, successor: str) -> None:
        """Makes the allocation of one pod or reservation the final one of another, for when that comes
        to the row."""
        found = self.has(uid)
        if found:
            self.settled[successor] = found

    def forget(self, uid: str) -> None:
        """Drops the allocation of a pod or reservation that is deleted and on no row."""
        self.settled.pop(uid, None)
        self.planned.pop(uid, None)
        self.chosen.pop(uid, None)

    # Plans of Waiting reservations

    def withdraw(self, pod: PodRecord, row: int) -> None:
        """Drops the plan of a Waiting reservation, and any allocation it had before it was Waiting."""
        if pod.uid in self.there.get(row, ()):
            self._leave(pod, row)
        self.settled.pop(pod.uid, None)
        self.planned.pop(pod.uid, None)
        self.chosen.pop(pod.uid, None)

    def plan(self, pod: PodRecord, row: int, horizon: Horizon) -> bool:
        """Plans units for a Waiting reservation without a plan; False if there are too few."""
        found = self._choose(pod, row, None, horizon) if self.governed[row] else None
        if found is None:
            return True
        if not found:
            return False
        self.planned[pod.uid] = found
        self._enter(pod, row)
        return True

    def plan_nothing(self, pod: PodRecord, row: int) -> None:
        """Plans `nothing` for a Waiting reservation that does not fit even if all pods end."""
        if self.governed[row] and self._choose(pod, row, None, Horizon.LATER) is not None:
            self.planned[pod.uid] = self.nothing
            self._enter(pod, row)

    def accept(self, pod: PodRecord) -> None:
        """Makes the plan of a reservation that becomes Available its final allocation."""
        found = self.planned.pop(pod.uid, None)
        if found:
            self.settled[pod.uid] = found
            self.chosen[pod.uid] = None
            self.note_change(pod.row)
        elif found is not None:
            self.tentative[pod.uid] = found

    def unplan(self, pod: PodRecord) -> None:
        """Ends the plan of a reservation that is no longer Waiting on its row, where it may still
        be."""
        found = self.planned.pop(pod.uid, None)
        if found is not None and pod.row >= 0 and pod.uid in self.there.get(pod.row, ()):
            self.tentative[pod.uid] = found

    def _stays(self, pod: PodRecord, waits: ReservationInfo | None, horizon: Horizon) -> bool:
        """Whether a pod or reserve pod is still there at the horizon, for a Waiting reservation or a
        nominated pod (`waits` is None)."""
        victims = waits.victims if waits is not None else ()
        if pod.uid in victims or (pod.reservation_uid and pod.reservation_uid in victims):
            return False
        if pod.reservation is not None or horizon is Horizon.NOW:
            return True
        is_going = pod.being_preempted or pod.deletion_pending or pod.cls.terminating
        if is_going and (waits is not None or horizon is Horizon.SOON):
            return False
        return horizon is Horizon.SOON or pod.cls.is_daemon

    def _held_first(self, there: Mapping[str, PodRecord]) -> list[tuple[str, PodRecord]]:
        """The reserve pods: Available reservations before Waiting ones. A plan gets no more than the
        former leave, so that no owner of these lacks units because of it."""
        reserving = [(uid, pod) for uid, pod in there.items() if pod.reservation is not None]
        return sorted(reserving, key=lambda each: each[0] in self.planned)

    def _staying(
        self, row: int, waits: ReservationInfo | None, horizon: Horizon
    ) -> dict[str, PodRecord]:
        """The pods and reserve pods of the row that are still there at the horizon."""
        there = self.there.get(row, {})
        return {uid: pod for uid, pod in there.items() if self._stays(pod, waits, horizon)}

    def moved(self, pod: PodRecord, row: int, sign: int, horizon: Horizon = Horizon.NOW) -> None:
        """Follows the ledger: a pod or reserve pod was added to a row (sign 1) or removed (-1)."""
        if sign > 0:
            self._enter(pod, row, horizon)
        elif pod.uid in self.there.get(row, ()):
            self._leave(pod, row)

    def come_back(self, pod: PodRecord, row: int, what: T | None) -> None:
        """Adds a pod to a row it was on before, with its former tentative allocation, if it had one."""
        if what is None:
            self._enter(pod, row)
        else:
            self.tentative[pod.uid] = what
            self._count_in(pod, row, what)

    def is_as_asked(self, pod: PodRecord, what: T | None) -> bool:
        """Whether a tentative allocation, if there is one, is what the pod requests now."""
        return what is None or (bool(what) and self._is_as_asked(pod, what))

    # Allocations on rows

    def is_short(self, uid: str) -> bool:
        """Whether a pod requests units and there were too few for a tentative allocation."""
        found = self.tentative.get(uid)
        return found is not None and not found

    def _enter(self, pod: PodRecord, row: int, horizon: Horizon = Horizon.NOW) -> None:
        """Adds a pod to a row, with a tentative allocation if it has no other."""
        what = self.settled.get(pod.uid, self.planned.get(pod.uid))
        if what is None:
            if self.governed[row]:
                what = self._choose(pod, row, self._hold_on(pod, row), horizon)
            if what is None:
                return
            self.tentative[pod.uid] = what
        self._count_in(pod, row, what)

    def _count_in(self, pod: PodRecord, row: int, what: T) -> None:
        """Adds an allocation to a row."""
        self.there.setdefault(row, {})[pod.uid] = pod
        self.governed[row] = True
        entry = self._cluster.ledger.reservations.get(pod.uid) if pod.reservation is not None else None
        if entry is not None:
            self._entry[pod.uid] = entry.index
        self._count(pod, row, what, 1)

    def _leave(self, pod: PodRecord, row: int) -> None:
        """Removes a pod from a row; a tentative allocation is dropped."""
        there = self.there[row]
        del there[pod.uid]
        index = self._entry.pop(pod.uid, None)
        if index is not None:
            self._release(index)
        self._count(pod, row, self.has(pod.uid), -1)
        self.tentative.pop(pod.uid, None)
        if not there:
            del self.there[row]
            self._govern(row)

    def _is_held(self, row: int) -> bool:
        """Whether a reservation has an allocation on the row."""
        return bool(self._entry) and any(uid in self._entry for uid in self.there.get(row, ()))

    # Rows

    def row_closed(self, row: int) -> None:
        self._listed.discard(row)
        self.governed[row] = False

    def _govern(self, row: int) -> None:
        self.governed[row] = row in self._listed or row in self.there

    def _activate(self) -> None:
        if not self.active:
            self.active = True
            self._open()
            self._on_active()

    def _given(self, row: int) -> list[tuple[PodRecord, T]]:
        """The pods on a row, and reservations without owners, with allocations chosen by this
        scheduler."""
        there = self.there.get(row, {})
        used = {pod.reservation_uid for pod in there.values()}
        return [
            (pod, self.settled[uid])
            for uid, pod in there.items()
            if uid in self.chosen and uid not in used
        ]

    def _strays(self) -> list[str]:
        """Self-check: allocations on a row of pods that are not there."""
        pods, reservation_table = self._cluster.ledger.pods, self._cluster.ledger.reservations
        here = {uid: row for row, there in self.there.items() for uid in there}
        problems = []
        for uid, row in here.items():
            entry = reservation_table.get(uid)
            if uid not in pods.get(row, ()) and (entry is None or entry.row != row):
                problems.append(f"{uid} has an allocation on row {row}, but is not on it")
        nowhere = [uid for uid in self.tentative if uid not in here]
        return problems + [f"{uid} has a tentative allocation, but is on no row" for uid in nowhere]
