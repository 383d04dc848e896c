"""Who has which particular things of a node: the part that is the same for devices and for CPUs.

What a pod has is written on it, and believed. A pod that is on a node without saying what it has is
given something in thought (`guessed`), so that it is not given to others; so is one that is only tried
out on a node. When a pod is scheduled here, what it was given in thought becomes what it has
(`settled`), and is written on it when it is bound.

A reservation has things like a pod. What its owners take of them is theirs; it holds what is left.

A Waiting reservation has nothing yet: which things it gets is chosen when it becomes Available, among
those that are free then. Until then there is a plan (`planned`): things that are free, or become free
when pods that leave (or may end) are gone. A plan keeps others from taking them, is never written on
the object, and is made anew whenever something on the node changes.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from enum import IntEnum
from typing import TYPE_CHECKING, ClassVar, Generic, TypeVar

import numpy as np
from numpy.typing import NDArray

from holdfast.api.meta import ObjectMeta
from holdfast.scheduler.cluster.columns import cells_of
from holdfast.scheduler.cluster.pods import PodRecord

if TYPE_CHECKING:
    from holdfast.scheduler.cluster.cluster import Cluster
    from holdfast.scheduler.reservations.reservation_info import ReservationInfo

T = TypeVar("T")


class Horizon(IntEnum):
    """Which pods and reservations count as gone when things are chosen."""

    NOW = 0
    """None: what is chosen is free."""
    SOON = 1
    """Those on their way out: pods being deleted, and the victims of the reservation itself."""
    LATER = 2
    """All pods but those that never end, and the victims of the reservation itself."""


class ResourceManager(ABC, Generic[T]):
    annotation: ClassVar[str]
    """Where it is written what a pod has."""
    lacks: ClassVar[str]
    """What a Waiting reservation is told that it waits for."""
    governed: NDArray[np.bool_] = cells_of("_governed")
    """The rows of which it is known what there is, or that somebody has some of it."""

    def __init__(self, cluster: Cluster, nothing: T) -> None:
        self._cluster = cluster
        self.nothing = nothing
        self.active = False
        """Whether there is anything to have."""
        self._governed = cluster.nodes.columns.new(np.bool_)
        self.version = 0
        """Moves with every change of what there is."""
        self.settled: dict[str, T] = {}
        """What pods and reservations have, by uid."""
        self.planned: dict[str, T] = {}
        """What Waiting reservations would get; others may have it still."""
        self.chosen: dict[str, None] = {}
        """The uids of those whose things were chosen here, not found written on them."""
        self.guessed: dict[str, T] = {}
        """What those on a row seem to have that do not say."""
        self.there: dict[int, dict[str, PodRecord]] = {}
        """Pods and reserve pods on each row that have something, by uid."""
        self._listed: set[int] = set()
        """The rows of which an object says what there is."""
        self._hold: dict[str, int] = {}
        """The index of the hold of each reserve pod that has something."""

    # What each kind of thing does its own way

    @abstractmethod
    def _read(self, text: str) -> T | None:
        """What an annotation says; None where it makes no sense."""

    @abstractmethod
    def _write(self, row: int, what: T) -> str:
        """The annotation that says it."""

    @abstractmethod
    def _list(self, row: int) -> bool:
        """Reads what there is on a row, of which nobody has anything yet; False if nothing says."""

    @abstractmethod
    def _choose(
        self, pod: PodRecord, row: int, hold: int | None, horizon: Horizon = Horizon.NOW
    ) -> T | None:
        """What a pod would be given on a row, perhaps drawing on a hold there; `nothing` if there is
        not enough, None if it asks for nothing of the sort. Horizons other than NOW are for reserve
        pods that wait, SOON also for nominated pods."""

    @abstractmethod
    def _is_as_asked(self, pod: PodRecord, what: T) -> bool:
        """Whether what a pod has is what it asks for by now."""

    @abstractmethod
    def lost(self, pod: PodRecord) -> bool:
        """Whether a pod on its row has something that the node does not offer any more, or that others
        came to have as well."""

    @abstractmethod
    def _recount(self, row: int) -> None:
        """Works out anew what is free on a row, and what reservations there have left."""

    @abstractmethod
    def _release(self, index: int) -> None:
        """A hold has nothing any more."""

    @abstractmethod
    def _open(self) -> None:
        """The first thing there is was heard of."""

    def _count(self, pod: PodRecord, row: int, what: T, sign: int) -> None:
        """A pod came to have something on a row, or ceased to."""
        self._recount(row)

    # What is asked

    def has(self, uid: str) -> T:
        for kept in (self.settled, self.planned, self.guessed):
            found = kept.get(uid)
            if found is not None:
                return found
        return self.nothing

    def annotate(self, pod: PodRecord, row: int, into: dict[str, str]) -> None:
        """Adds what is to be written on a pod that is bound to the row."""
        found = self.settled.get(pod.uid)
        if found:
            into[self.annotation] = self._write(row, found)

    def _hold_on(self, pod: PodRecord, row: int) -> int | None:
        """The index of the hold a pod draws on, if it is on the row."""
        hold = self._cluster.ledger.holds.get(pod.reservation_uid) if pod.reservation_uid else None
        return hold.index if hold is not None and hold.row == row else None

    # Objects

    def put(self, node: str) -> None:
        """The object that says what a node has came, changed or went."""
        self._activate()
        row = self._cluster.nodes.row(node)
        if row is not None:
            self.load(row)
            self._cluster.epoch.usage.add(row)

    def load(self, row: int) -> None:
        """Reads what there is on a row, and who has what of it."""
        ledger = self._cluster.ledger
        for uid in self.there.pop(row, {}):
            self.guessed.pop(uid, None)
            self.planned.pop(uid, None)
            index = self._hold.pop(uid, None)
            if index is not None:
                self._release(index)
        if self._list(row):
            self._listed.add(row)
        else:
            self._listed.discard(row)
        self.version += 1
        self._govern(row)
        on_row: Iterable[PodRecord] = ledger.pods.get(row, {}).values()
        present = [*on_row, *(hold.pod for hold in ledger.holds.on(row))]
        for pod in sorted(present, key=lambda pod: (pod.uid not in self.settled, pod.uid)):
            self._enter(pod, row)

    def seen(self, pod: PodRecord, metadata: ObjectMeta) -> None:
        """The object of a pod, or reservation, that has a node; it may be on its row already."""
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
        elif row >= 0 and pod.uid in self.there.get(row, ()):
            self._recount(row)  # it may draw on another reservation than before

    # Scheduling

    def settle(self, pod: PodRecord) -> bool:
        """The pod, just put on its row, has what it was given in thought; False if it asks for
        something and was given nothing. A Waiting reservation gets nothing yet."""
        if pod.reservation is not None and pod.reservation.waiting:
            return True
        found = self.guessed.get(pod.uid)
        if found is None:
            return True
        if not found:
            return False
        self.settled[pod.uid] = self.guessed.pop(pod.uid)
        self.chosen[pod.uid] = None
        return True

    def unsettle(self, pod: PodRecord) -> None:
        """The pod is not to be bound after all. It may still be on its row."""
        self.unplan(pod)
        self.chosen.pop(pod.uid, None)
        found = self.settled.pop(pod.uid, None)
        if found is not None and pod.row >= 0 and pod.uid in self.there.get(pod.row, ()):
            self.guessed[pod.uid] = found

    def renewed(self, pod: PodRecord) -> T | None:
        """What a reserve pod would have on its row by what it asks for now; None if it has just that.
        While owners have a part of it, nothing else will do."""
        there, row = self.there.get(pod.row, {}), pod.row
        if pod.reservation is not None and pod.reservation.waiting:
            return None  # it is planned anew
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
        """A reserve pod has what it asks for now, if it can."""
        found = self.renewed(pod)
        if found:
            self._leave(pod, pod.row)
            self.settled[pod.uid] = found
            self._enter(pod, pod.row)

    def pass_on(self, uid: str, heir: str) -> None:
        """What one has another is to have in its place, once it comes to the row."""
        found = self.has(uid)
        if found:
            self.settled[heir] = found

    def forget(self, uid: str) -> None:
        """The pod, or reservation, is on no row any more, and gone for good."""
        self.settled.pop(uid, None)
        self.planned.pop(uid, None)
        self.chosen.pop(uid, None)

    # What Waiting reservations would get

    def withdraw(self, pod: PodRecord, row: int) -> None:
        """Drops the plan of a Waiting reservation, and whatever it had before it had to wait."""
        if pod.uid in self.there.get(row, ()):
            self._leave(pod, row)
        self.settled.pop(pod.uid, None)
        self.planned.pop(pod.uid, None)
        self.chosen.pop(pod.uid, None)

    def plan(self, pod: PodRecord, row: int, horizon: Horizon) -> bool:
        """Plans things for a Waiting reservation that has no plan; False if there are too few."""
        found = self._choose(pod, row, None, horizon) if self.governed[row] else None
        if found is None:
            return True
        if not found:
            return False
        self.planned[pod.uid] = found
        self._enter(pod, row)
        return True

    def plan_nothing(self, pod: PodRecord, row: int) -> None:
        """Nothing on the node can serve a Waiting reservation, whoever ends."""
        if self.governed[row] and self._choose(pod, row, None, Horizon.LATER) is not None:
            self.planned[pod.uid] = self.nothing
            self._enter(pod, row)

    def accept(self, pod: PodRecord) -> None:
        """A reservation that waited has what was planned for it."""
        found = self.planned.pop(pod.uid, None)
        if found:
            self.settled[pod.uid] = found
            self.chosen[pod.uid] = None
        elif found is not None:
            self.guessed[pod.uid] = found

    def unplan(self, pod: PodRecord) -> None:
        """A reservation waits no more, or not there. It may still be on its row."""
        found = self.planned.pop(pod.uid, None)
        if found is not None and pod.row >= 0 and pod.uid in self.there.get(pod.row, ()):
            self.guessed[pod.uid] = found

    def _stays(self, pod: PodRecord, waits: ReservationInfo | None, horizon: Horizon) -> bool:
        """Whether a pod, or reserve pod, counts as there for a reservation that waits, or for a
        nominated pod."""
        victims = waits.clears if waits is not None else ()
        if pod.uid in victims or (pod.reservation_uid and pod.reservation_uid in victims):
            return False
        if pod.reservation is not None or horizon is Horizon.NOW:
            return True
        is_going = pod.being_preempted or pod.deletion_pending or pod.cls.terminating
        if is_going and (waits is not None or horizon is Horizon.SOON):
            return False
        return horizon is Horizon.SOON or pod.cls.is_daemon

    def _held_first(self, there: Mapping[str, PodRecord]) -> list[tuple[str, PodRecord]]:
        """Those of them that are reserve pods: first those that have things, then those that wait. What
        is planned takes no more than these leave, so that it is in the way of no owner of theirs."""
        reserving = [(uid, pod) for uid, pod in there.items() if pod.reservation is not None]
        return sorted(reserving, key=lambda each: each[0] in self.planned)

    def _staying(
        self, row: int, waits: ReservationInfo | None, horizon: Horizon
    ) -> dict[str, PodRecord]:
        """Those on the row that count as there."""
        there = self.there.get(row, {})
        return {uid: pod for uid, pod in there.items() if self._stays(pod, waits, horizon)}

    def moved(self, pod: PodRecord, row: int, sign: int, horizon: Horizon = Horizon.NOW) -> None:
        """The ledger's word: a pod, or a reserve pod, came to a row or left it."""
        if sign > 0:
            self._enter(pod, row, horizon)
        elif pod.uid in self.there.get(row, ()):
            self._leave(pod, row)

    def come_back(self, pod: PodRecord, row: int, what: T | None) -> None:
        """The same of a pod that was on the row before and was given this in thought, or nothing if
        that is None."""
        if what is None:
            self._enter(pod, row)
        else:
            self.guessed[pod.uid] = what
            self._count_in(pod, row, what)

    def is_as_asked(self, pod: PodRecord, what: T | None) -> bool:
        """Whether what a pod was given in thought, if anything, is what it asks for by now."""
        return what is None or (bool(what) and self._is_as_asked(pod, what))

    # Keeping count

    def is_short(self, uid: str) -> bool:
        """Whether a pod asks for something and was given nothing, in thought."""
        found = self.guessed.get(uid)
        return found is not None and not found

    def _enter(self, pod: PodRecord, row: int, horizon: Horizon = Horizon.NOW) -> None:
        what = self.settled.get(pod.uid, self.planned.get(pod.uid))
        if what is None:
            if self.governed[row]:
                what = self._choose(pod, row, self._hold_on(pod, row), horizon)
            if what is None:
                return
            self.guessed[pod.uid] = what
        self._count_in(pod, row, what)

    def _count_in(self, pod: PodRecord, row: int, what: T) -> None:
        self.there.setdefault(row, {})[pod.uid] = pod
        self.governed[row] = True
        hold = self._cluster.ledger.holds.get(pod.uid) if pod.reservation is not None else None
        if hold is not None:
            self._hold[pod.uid] = hold.index
        self._count(pod, row, what, 1)

    def _leave(self, pod: PodRecord, row: int) -> None:
        there = self.there[row]
        del there[pod.uid]
        index = self._hold.pop(pod.uid, None)
        if index is not None:
            self._release(index)
        self._count(pod, row, self.has(pod.uid), -1)
        self.guessed.pop(pod.uid, None)
        if not there:
            del self.there[row]
            self._govern(row)

    def _is_held(self, row: int) -> bool:
        """Whether reservations have something on the row."""
        return bool(self._hold) and any(uid in self._hold for uid in self.there.get(row, ()))

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
            self._cluster.managers.wake()

    def _given(self, row: int) -> list[tuple[PodRecord, T]]:
        """The pods on a row, and reservations without owners, with what was chosen for them here."""
        there = self.there.get(row, {})
        used = {pod.reservation_uid for pod in there.values()}
        return [
            (pod, self.settled[uid])
            for uid, pod in there.items()
            if uid in self.chosen and uid not in used
        ]

    def _strays(self) -> list[str]:
        """Those that should not be where they are thought to be."""
        pods, holds = self._cluster.ledger.pods, self._cluster.ledger.holds
        here = {uid: row for row, there in self.there.items() for uid in there}
        problems = []
        for uid, row in here.items():
            hold = holds.get(uid)
            if uid not in pods.get(row, ()) and (hold is None or hold.row != row):
                problems.append(f"{uid} has something on row {row}, but is not there")
        nowhere = [uid for uid in self.guessed if uid not in here]
        return problems + [f"{uid} was given something in thought, but is nowhere" for uid in nowhere]
