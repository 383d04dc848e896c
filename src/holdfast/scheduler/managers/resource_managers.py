"""All resource managers as the cluster calls them: the CPU manager and the device manager.

A manager becomes active with the first object that lists CPUs or devices, or the first pod with an
allocation. Until then no call costs anything.

The managers follow the ledger (`_moved`): a pod that is added to a row gets a tentative allocation
there, also in a dry run. What is undone, or removed and added again within one transaction, gets the
same allocation as before (`_Departed`), so that a dry run does not change which CPUs and devices a pod
gets.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import ClassVar, NamedTuple, Protocol

from holdfast.api.meta import ObjectMeta
from holdfast.api.node import Device, NodeResourceTopology
from holdfast.scheduler.cluster.base import ClusterBase
from holdfast.scheduler.cluster.pod_classes import PodClass
from holdfast.scheduler.cluster.records import Phase, PodRecord, ReservationEntry
from holdfast.scheduler.managers.devices import Allocation, DeviceManager
from holdfast.scheduler.managers.numa import CPUManager
from holdfast.scheduler.managers.numa.allocation import Holding
from holdfast.scheduler.managers.resource_manager import Horizon

TOPOLOGY_KINDS = (Device, NodeResourceTopology)
"""The objects that list the CPUs, NUMA nodes and devices of a node."""

_NONE: frozenset[int] = frozenset()


class AnyManager(Protocol):
    """What both managers do alike. `ResourceManager` documents the methods."""

    active: bool
    lacks: ClassVar[str]
    changed_rows: dict[int, None]

    def annotate(self, pod: PodRecord, row: int, into: dict[str, str]) -> None: ...
    def settle(self, pod: PodRecord) -> bool: ...
    def pass_on(self, uid: str, successor: str) -> None: ...
    def forget(self, uid: str) -> None: ...
    def load(self, row: int) -> None: ...
    def row_closed(self, row: int) -> None: ...

    def lacking(self, pod: PodRecord, behind: list[str]) -> list[str]:
        """What a reserve pod on its row does not have free yet. Reservations `behind` it, by uid, do
        not count."""

    def lost(self, pod: PodRecord) -> bool: ...
    def note_change(self, row: int) -> None: ...
    def has_choices(self, row: int) -> bool: ...
    def choose_again(self, row: int) -> bool: ...
    def withdraw(self, pod: PodRecord, row: int) -> None: ...
    def plan(self, pod: PodRecord, row: int, horizon: Horizon) -> bool: ...
    def plan_nothing(self, pod: PodRecord, row: int) -> None: ...
    def accept(self, pod: PodRecord) -> None: ...
    def unplan(self, pod: PodRecord) -> None: ...

    def problems(self) -> list[str]:
        """Self-check: what differs from a computation from scratch."""


_Tentative = tuple[Holding | None, Allocation | None]
"""The tentative allocations of a pod: CPUs and devices."""


class _Departure(NamedTuple):
    """A pod or reserve pod that was removed from a row."""

    row: int
    cls: PodClass
    tentative: _Tentative
    was_new: bool
    """Whether it was added to the row in the same transaction."""


class _Departed:
    """The pods removed from rows in one transaction, with their tentative allocations: a pod that is
    added again gets the same one, so that it does not depend on what was tried in between."""

    def __init__(self, transaction: int) -> None:
        self.transaction = transaction
        self._departures: dict[str, list[_Departure]] = {}
        """By uid, the latest last."""
        self._new: dict[int, set[str]] = {}
        """By row, the uids of pods added in this transaction, with units that were free then."""

    def leaves(self, pod: PodRecord, row: int, tentative: _Tentative, undoing: bool) -> None:
        """Records a pod that is removed from a row, unless that undoes an addition."""
        new = self._new.get(row, set())
        was_new = pod.uid in new
        new.discard(pod.uid)
        if not undoing:
            departure = _Departure(row, pod.cls, tentative, was_new)
            self._departures.setdefault(pod.uid, []).append(departure)

    def comes(self, pod: PodRecord, row: int, undoing: bool) -> tuple[PodClass, _Tentative] | None:
        """The class and the tentative allocations the pod had on the row, if it can have these
        again."""
        departures = self._departures.get(pod.uid)
        if undoing:
            last = departures.pop() if departures else None
            if last is not None and last.was_new:
                self._new.setdefault(row, set()).add(pod.uid)
            return (pod.cls, last.tentative) if last is not None else None
        last = departures[-1] if departures else None
        if last is not None and last.row == row and not last.was_new and not self._new.get(row):
            return last.cls, last.tentative
        self._new.setdefault(row, set()).add(pod.uid)
        return None


class ResourceManagers:
    """The CPU manager and the device manager of one cluster."""

    def __init__(
        self,
        cluster: ClusterBase,
        nominated_beside: Callable[[PodRecord, int], list[tuple[PodRecord, str]]],
    ) -> None:
        """`nominated_beside` returns the pods nominated to a row that a pod defers to, each with the
        uid of the reservation it would be allocated from."""
        self._cluster = cluster
        self._nominated_beside = nominated_beside
        self.devices = DeviceManager(cluster, self._wake, self._zones, self.beside_nominated)
        self.cpus = CPUManager(cluster, self._wake, self.devices)
        cluster.on_row_opened.append(self._row_opened)
        cluster.on_row_closed.append(self._row_closed)
        self.managers: tuple[AnyManager, ...] = (self.cpus, self.devices)
        self.annotations = (self.cpus.annotation, self.devices.annotation)
        """The annotations that store allocations."""
        self.awake = False
        """Whether any manager is active."""
        self._departed = _Departed(0)

    def seen(self, pod: PodRecord, metadata: ObjectMeta) -> None:
        """Reads the annotations of an assigned pod or reservation."""
        given = metadata.annotations
        if self.awake or (
            given and (self.cpus.annotation in given or self.devices.annotation in given)
        ):
            self.cpus.seen(pod, metadata)
            self.devices.seen(pod, metadata)

    def annotations_for(self, pod: PodRecord, row: int) -> dict[str, str]:
        """The annotations for a pod that is bound to the row."""
        into: dict[str, str] = {}
        if self.awake:
            for manager in self.managers:
                manager.annotate(pod, row, into)
        return into

    def pass_on(self, uid: str, successor: str) -> None:
        """Makes the allocation of one pod or reservation the final one of another."""
        if self.awake:
            for manager in self.managers:
                manager.pass_on(uid, successor)

    def settle(self, pod: PodRecord) -> None:
        """Makes the tentative allocation of a pod or reserve pod on its row final."""
        if self.awake:
            for manager in self.managers:
                manager.settle(pod)

    def choose_again(self) -> dict[int, bool]:
        """Chooses the units of pods that somebody else has bound again, on rows that changed, as a
        scheduler does that is started now. Returns the rows, and whether such a pod has other units
        there than before; the plans of Waiting reservations on them must be made again."""
        found: dict[int, bool] = {}
        managers = [manager for manager in self.managers if manager.active]
        changed = {row: None for manager in managers for row in manager.changed_rows}
        for manager in managers:
            manager.changed_rows.clear()
        for row in changed:
            if any(manager.has_choices(row) for manager in managers):
                # All of them: devices are chosen from the NUMA nodes of the CPUs.
                differ = [manager.choose_again(row) for manager in managers]
                found[row] = any(differ)
        return found

    def forget(self, uid: str) -> None:
        if self.awake:
            for manager in self.managers:
                manager.forget(uid)

    def object_changed(self, changed: Device | NodeResourceTopology) -> None:
        """Reads the devices or the CPUs of a node again, after their object was added, changed or
        deleted."""
        if isinstance(changed, Device):
            self.devices.put(changed.metadata.name)
        else:
            self.cpus.put(changed.metadata.name)

    def extended_resources(self, node: str) -> dict[str, int]:
        """The devices of a node as extended resources, which count as its allocatable."""
        return self.devices.extended_resources(node) if self.awake else {}

    def managed_slots(self, cls: PodClass, entry: ReservationEntry) -> frozenset[int]:
        """The slots of which a pod of the class gets specific CPUs or devices from the reservation,
        rather than an amount."""
        if not self.awake:
            return _NONE
        return self.devices.managed_slots(cls, entry) | self.cpus.managed_slots(cls, entry)

    def can_allocate_from(self, cls: PodClass, entry: ReservationEntry) -> bool:
        """Whether a pod of the class would be allocated CPUs or devices of the reservation."""
        return self.cpus.can_allocate_from(cls, entry) or self.devices.can_allocate_from(cls, entry)

    def reasons(self, cls: PodClass, entry: ReservationEntry) -> list[str]:
        """Why a pod of the class does not get its CPUs and devices through the reservation."""
        if not self.awake:
            return []
        return [*self.cpus.reasons(cls, entry), *self.devices.reasons(cls, entry)]

    def lacking(self, pod: PodRecord, behind: list[str]) -> list[str]:
        """What a reserve pod on its row does not have free yet. Reservations `behind` it, by uid, do
        not count."""
        if not self.awake:
            return []
        return [what for manager in self.managers for what in manager.lacking(pod, behind)]

    def lost(self, pod: PodRecord) -> list[str]:
        """The resources of which the node no longer has the pod's units, or another pod has them
        too."""
        if not self.awake:
            return []
        return [manager.lacks for manager in self.managers if manager.active and manager.lost(pod)]

    def plan(self, row: int, waiting: list[PodRecord]) -> dict[str, list[str]]:
        """Makes the plans of the Waiting reservations of a row again, in this order. Returns by uid the
        resources of which too little is free for each now."""
        managers = [manager for manager in self.managers if manager.active]
        lacking: dict[str, list[str]] = {}
        for pod in waiting if managers else ():
            for manager in managers:
                manager.withdraw(pod, row)
        for pod in waiting if managers else ():
            for horizon in Horizon:
                short = [manager for manager in managers if not manager.plan(pod, row, horizon)]
                if horizon is Horizon.NOW:
                    lacking[pod.uid] = [manager.lacks for manager in short]
                if not short:
                    break
                for manager in managers:
                    manager.withdraw(pod, row)
            else:
                for manager in managers:
                    manager.plan_nothing(pod, row)
        return lacking

    def accept(self, pod: PodRecord) -> None:
        """Makes the plan of a reservation that becomes Available its final allocation."""
        for manager in self.managers:
            manager.accept(pod)

    def unplan(self, pod: PodRecord) -> None:
        """Ends the plan of a reservation that is no longer Waiting on its row."""
        for manager in self.managers:
            manager.unplan(pod)

    def node_changed(self, row: int) -> None:
        self.cpus.node_changed(row)

    def lacking_after_resize(self, pod: PodRecord) -> list[str]:
        """The resources of which there is too little for a reserve pod that was resized."""
        if not self.awake:
            return []
        found = (("cpuset", self.cpus.renewed(pod)), ("devices", self.devices.renewed(pod)))
        return [what for what, had in found if had is not None and not had]

    def renew(self, pod: PodRecord) -> None:
        """Gives a reserve pod that was resized the allocation it requests now."""
        if self.awake:
            self.cpus.renew(pod)
            self.devices.renew(pod)

    def replace(self, pod: PodRecord) -> bool | None:
        """Gives a reserve pod other devices for those its node no longer has."""
        return self.devices.replace(pod) if self.devices.active else None

    def _row_opened(self, row: int) -> None:
        for manager in self.managers:
            if manager.active:
                manager.load(row)

    def _row_closed(self, row: int) -> None:
        for manager in self.managers:
            if manager.active:
                manager.row_closed(row)

    def problems(self) -> list[str]:
        return [
            problem for manager in self.managers if manager.active for problem in manager.problems()
        ]

    def _wake(self) -> None:
        """Follows the ledger from now on: a manager became active."""
        if not self.awake:
            self.awake = True
            self._cluster.ledger.listeners.append(self._moved)

    @contextmanager
    def beside_nominated(self, pod: PodRecord, row: int) -> Iterator[None]:
        """Inside, the nominated pods that a pod defers to have tentative allocations on the row, so
        that the pod gets none of these units. They are free, or become free when victims are gone."""
        nominated = self._nominated_beside(pod, row)
        try:
            for each, reservation_uid in nominated:
                each.reservation_uid = reservation_uid
                self._enter(each, row)
            yield
        finally:
            for each, _ in nominated:
                self._enter_or_leave(each, row, -1)
                each.reservation_uid = ""

    def _moved(self, pod: PodRecord, row: int, sign: int) -> None:
        """Follows the ledger: a pod or reserve pod was added to a row (sign 1) or removed (-1)."""
        ledger = self._cluster.ledger
        if ledger.in_transaction or ledger.undoing:
            if self._departed.transaction != ledger.transactions:
                self._departed = _Departed(ledger.transactions)
            if sign < 0:
                self._departed.leaves(pod, row, self._tentative(pod), ledger.undoing)
            elif self._comes_back(pod, row):
                return
        self._follow(pod, row, sign)
        if not (ledger.in_transaction or ledger.undoing):
            for manager in self.managers:
                manager.note_change(row)

    def _follow(self, pod: PodRecord, row: int, sign: int) -> None:
        if sign < 0 or pod.phase is Phase.ASSIGNED or not self._cluster.nominator:
            self._enter_or_leave(pod, row, sign)
            return
        with self.beside_nominated(pod, row):
            self._enter(pod, row)
        if self._is_short(pod):
            self._enter_or_leave(pod, row, -1)
            self._enter(pod, row)

    def _zones(self, pod: PodRecord, row: int) -> tuple[frozenset[int], bool]:
        return self.cpus.zones(pod, row)

    def _tentative(self, pod: PodRecord) -> _Tentative:
        return self.cpus.tentative.get(pod.uid), self.devices.tentative.get(pod.uid)

    def _comes_back(self, pod: PodRecord, row: int) -> bool:
        """Gives a pod that is added again to a row its tentative allocation of before; returns whether
        it did. It does if the removal is undone; else unless other pods were added to the row
        meanwhile."""
        known = self._departed.comes(pod, row, self._cluster.ledger.undoing)
        if known is None:
            return False
        cls, (cpus, devices) = known
        if cls is not pod.cls and not (
            self.cpus.is_as_asked(pod, cpus) and self.devices.is_as_asked(pod, devices)
        ):
            return False
        if self.cpus.active:
            self.cpus.come_back(pod, row, cpus)
        if self.devices.active:
            self.devices.come_back(pod, row, devices)
        return True

    def _enter(self, pod: PodRecord, row: int) -> None:
        """Adds a pod to a row; a nominated pod may get units that victims still have."""
        self._enter_or_leave(pod, row, 1)
        if pod.nominated == self._cluster.nodes.name(row) and self._is_short(pod):
            self._enter_or_leave(pod, row, -1)
            self._enter_or_leave(pod, row, 1, Horizon.SOON)

    def _is_short(self, pod: PodRecord) -> bool:
        return bool(self.short_of(pod))

    def short_of(self, pod: PodRecord) -> list[str]:
        """The resources of which there were too few units for a pod that came to a row."""
        return [each.lacks for each in (self.cpus, self.devices) if each.is_short(pod.uid)]

    def governs(self, cls: PodClass, row: int) -> bool:
        """Whether a pod of the class may get CPUs, amounts of NUMA nodes or devices of the row."""
        if not self.awake:
            return False
        if self.cpus.active and self.cpus.governed.item(row) and cls.requests:
            return True
        devices = self.devices
        return devices.active and devices.governed.item(row) and devices.valid_search(cls) is not None

    def _enter_or_leave(
        self, pod: PodRecord, row: int, sign: int, horizon: Horizon = Horizon.NOW
    ) -> None:
        """CPUs first: devices are chosen from the NUMA nodes of the CPUs."""
        if self.cpus.active:
            self.cpus.moved(pod, row, sign, horizon)
        if self.devices.active:
            self.devices.moved(pod, row, sign, horizon)
