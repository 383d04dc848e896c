"""What pods and reservations have of a node beyond amounts: particular devices, particular CPUs.

Each kind of thing has a manager, which wakes up when the first object comes that tells of such things;
until then none of this costs anything.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, ClassVar, NamedTuple, Protocol

from holdfast.api.devices import Device, NodeResourceTopology
from holdfast.api.meta import Object, ObjectMeta
from holdfast.scheduler.cluster.pod_classes import PodClass
from holdfast.scheduler.cluster.pods import Phase, PodRecord
from holdfast.scheduler.cluster.reservation_table import ReservationRow
from holdfast.scheduler.managers.devices import Allocation, DeviceManager
from holdfast.scheduler.managers.numa import CPUManager
from holdfast.scheduler.managers.numa.allocation import Holding
from holdfast.scheduler.managers.resource_manager import Horizon

if TYPE_CHECKING:
    from holdfast.scheduler.cluster.cluster import Cluster


ABOUT_BELONGINGS = ("Device", "NodeResourceTopology")
"""The kinds of objects that tell what there is to have."""

_NONE: frozenset[int] = frozenset()


class AnyManager(Protocol):
    active: bool
    lacks: ClassVar[str]
    """What a Waiting reservation is told that it waits for."""

    def annotate(self, pod: PodRecord, row: int, into: dict[str, str]) -> None:
        """Adds what is to be written on a pod that is bound to the row."""

    def settle(self, pod: PodRecord) -> bool: ...
    def pass_on(self, uid: str, heir: str) -> None: ...

    def forget(self, uid: str) -> None:
        """The pod, or reservation, is on no row any more, and gone for good."""

    def load(self, row: int) -> None:
        """The row is another node's from now on."""

    def row_closed(self, row: int) -> None: ...

    def lacking(self, pod: PodRecord, behind: list[str]) -> list[str]:
        """What a reserve pod on its row has not got free yet. Reservations `behind` it, by uid, do not
        count."""

    def lost(self, pod: PodRecord) -> bool:
        """Whether a pod has something that its node does not offer any more, or that others have."""

    def withdraw(self, pod: PodRecord, row: int) -> None:
        """Drops the plan of a Waiting reservation."""

    def plan(self, pod: PodRecord, row: int, horizon: Horizon) -> bool:
        """Plans things for a Waiting reservation that has no plan; False if there are too few."""

    def plan_nothing(self, pod: PodRecord, row: int) -> None:
        """Nothing on the node can serve a Waiting reservation, whoever ends."""

    def accept(self, pod: PodRecord) -> None:
        """A reservation that waited has what was planned for it."""

    def unplan(self, pod: PodRecord) -> None:
        """A reservation waits no more, or not there."""

    def problems(self) -> list[str]:
        """What is not as it would be were it worked out anew."""


_Guesses = tuple[Holding | None, Allocation | None]
"""The CPUs and the devices a pod was given in thought."""


class _Departure(NamedTuple):
    """A pod, or reserve pod, that left a row."""

    row: int
    cls: PodClass
    guesses: _Guesses
    was_new: bool
    """Whether it came to the row in the same transaction."""


class _Departed:
    """Who left which row in a transaction, and with what, so that it has the same when it comes back:
    what was chosen for it does not depend on what was tried in between."""

    def __init__(self, transaction: int) -> None:
        self.transaction = transaction
        self._departures: dict[str, list[_Departure]] = {}
        """By uid, the latest last."""
        self._new: dict[int, set[str]] = {}
        """By row, the uids of those who came in this transaction and were given what was free then."""

    def leaves(self, pod: PodRecord, row: int, guesses: _Guesses, undoing: bool) -> None:
        new = self._new.get(row, set())
        was_new = pod.uid in new
        new.discard(pod.uid)
        if not undoing:
            departure = _Departure(row, pod.cls, guesses, was_new)
            self._departures.setdefault(pod.uid, []).append(departure)

    def comes(self, pod: PodRecord, row: int, undoing: bool) -> tuple[PodClass, _Guesses] | None:
        """The class it had when it left the row and what it was given there, if it can have that."""
        departures = self._departures.get(pod.uid)
        if undoing:
            last = departures.pop() if departures else None
            if last is not None and last.was_new:
                self._new.setdefault(row, set()).add(pod.uid)
            return (pod.cls, last.guesses) if last is not None else None
        last = departures[-1] if departures else None
        if last is not None and last.row == row and not last.was_new and not self._new.get(row):
            return last.cls, last.guesses
        self._new.setdefault(row, set()).add(pod.uid)
        return None


class ResourceManagers:
    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self.cpus = CPUManager(cluster)
        self.devices = DeviceManager(cluster)
        self.managers: tuple[AnyManager, ...] = (self.cpus, self.devices)
        self.annotations = (self.cpus.annotation, self.devices.annotation)
        """Where it is written what a pod, or a reservation, has."""
        self.awake = False
        """Whether any manager has anything to keep."""
        self._departed = _Departed(0)

    def seen(self, pod: PodRecord, metadata: ObjectMeta) -> None:
        """The object of a pod, or reservation, that has a node."""
        told = metadata.annotations
        if self.awake or (told and (self.cpus.annotation in told or self.devices.annotation in told)):
            self.cpus.seen(pod, metadata)
            self.devices.seen(pod, metadata)

    def annotations_for(self, pod: PodRecord, row: int) -> dict[str, str]:
        """What is to be written on a pod that is bound to the row."""
        into: dict[str, str] = {}
        if self.awake:
            for manager in self.managers:
                manager.annotate(pod, row, into)
        return into

    def pass_on(self, uid: str, heir: str) -> None:
        """What one pod, or reservation, has another is to have in its place."""
        if self.awake:
            for manager in self.managers:
                manager.pass_on(uid, heir)

    def settle(self, pod: PodRecord) -> None:
        """The pod, or reserve pod, just put on its row, has what it was given in thought."""
        if self.awake:
            for manager in self.managers:
                manager.settle(pod)

    def forget(self, uid: str) -> None:
        if self.awake:
            for manager in self.managers:
                manager.forget(uid)

    def object_changed(self, before: Object | None, after: Object | None) -> None:
        """An object came, changed or went; most have nothing to do with this."""
        some = after if after is not None else before
        if isinstance(some, Device):
            self.devices.put(some.metadata.name)
            self._cluster.device_resources_changed(some.metadata.name)
        elif isinstance(some, NodeResourceTopology):
            self.cpus.put(some.metadata.name)
        else:
            return
        row = self._cluster.nodes.row(some.metadata.name)
        if row is not None:
            self._cluster.reservations.node_changed(row)

    def offered(self, node: str) -> dict[str, int]:
        """What a node offers by what is known of its devices, for those who look at amounts."""
        return self.devices.offered(node) if self.awake else {}

    def particular(self, cls: PodClass, hold: ReservationRow) -> frozenset[int]:
        """The slots of which pods of the class would draw particular things on a reservation, not
        amounts."""
        if not self.awake:
            return _NONE
        return self.devices.particular(cls, hold) | self.cpus.particular(cls, hold)

    def can_allocate_from(self, cls: PodClass, hold: ReservationRow) -> bool:
        """Whether a pod of the class would get some of the things a reservation holds."""
        return self.cpus.can_allocate_from(cls, hold) or self.devices.can_allocate_from(cls, hold)

    def reasons(self, cls: PodClass, hold: ReservationRow) -> list[str]:
        """Why a pod of the class would not find the things it wants through a reservation."""
        if not self.awake:
            return []
        return [*self.cpus.reasons(cls, hold), *self.devices.reasons(cls, hold)]

    def lacking(self, pod: PodRecord, behind: list[str]) -> list[str]:
        if not self.awake:
            return []
        return [what for manager in self.managers for what in manager.lacking(pod, behind)]

    def lost(self, pod: PodRecord) -> list[str]:
        """What of the things of a pod on its row the node does not offer any more, or others have."""
        if not self.awake:
            return []
        return [manager.lacks for manager in self.managers if manager.active and manager.lost(pod)]

    def plan(self, row: int, waiting: list[PodRecord]) -> dict[str, list[str]]:
        """Plans anew what reservations that wait on a row would get, the first one first; by uid, what
        there is not enough of for each as things are now."""
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
        """A reservation that waited has what was planned for it."""
        for manager in self.managers:
            manager.accept(pod)

    def unplan(self, pod: PodRecord) -> None:
        """A reservation waits no more, or not there."""
        for manager in self.managers:
            manager.unplan(pod)

    def node_changed(self, row: int) -> None:
        self.cpus.node_changed(row)

    def lacking_anew(self, pod: PodRecord) -> list[str]:
        """What there is not enough of for a reserve pod that asks for something else by now."""
        if not self.awake:
            return []
        found = (("cpuset", self.cpus.renewed(pod)), ("devices", self.devices.renewed(pod)))
        return [what for what, had in found if had is not None and not had]

    def renew(self, pod: PodRecord) -> None:
        """A reserve pod has what it asks for by now."""
        if self.awake:
            self.cpus.renew(pod)
            self.devices.renew(pod)

    def replace(self, pod: PodRecord) -> bool | None:
        """Gives a reserve pod other devices for those its node does not offer any more."""
        return self.devices.replace(pod) if self.devices.active else None

    def row_opened(self, row: int) -> None:
        for manager in self.managers:
            if manager.active:
                manager.load(row)

    def row_closed(self, row: int) -> None:
        for manager in self.managers:
            if manager.active:
                manager.row_closed(row)

    def problems(self) -> list[str]:
        return [
            problem for manager in self.managers if manager.active for problem in manager.problems()
        ]

    def wake(self) -> None:
        """There is something to have."""
        if not self.awake:
            self.awake = True
            self._cluster.ledger.listeners.append(self._moved)

    @contextmanager
    def beside_nominated(self, pod: PodRecord, row: int) -> Iterator[None]:
        """Inside, the nominated pods that a pod defers to have things of the row, so that what the pod
        gets is not what they need. They have what is free, or becomes free when victims have left."""
        cluster, known = self._cluster, self._cluster.nominated_pods(row)
        defers_to = cluster.jobs.queues.defers_to
        nominated_pods = [each for each in known if each is not pod and defers_to(pod, each)]
        try:
            for each in nominated_pods:
                each.reservation_uid = cluster.reservations.inside(each, row)
                self._enter(each, row)
            yield
        finally:
            for each in nominated_pods:
                self._enter_or_leave(each, row, -1)
                each.reservation_uid = ""

    def _moved(self, pod: PodRecord, row: int, sign: int) -> None:
        """The ledger's word: a pod, or a reserve pod, came to a row or left it."""
        ledger = self._cluster.ledger
        if ledger.in_transaction or ledger.undoing:
            if self._departed.transaction != ledger.transactions:
                self._departed = _Departed(ledger.transactions)
            if sign < 0:
                self._departed.leaves(pod, row, self._guesses(pod), ledger.undoing)
            elif self._comes_back(pod, row):
                return
        if sign < 0 or pod.phase is Phase.ASSIGNED or not self._cluster.nominator:
            self._enter_or_leave(pod, row, sign)
            return
        with self.beside_nominated(pod, row):
            self._enter(pod, row)
        if self._is_short(pod):
            self._enter_or_leave(pod, row, -1)
            self._enter(pod, row)

    def _guesses(self, pod: PodRecord) -> _Guesses:
        return self.cpus.guessed.get(pod.uid), self.devices.guessed.get(pod.uid)

    def _comes_back(self, pod: PodRecord, row: int) -> bool:
        """Whether a pod comes back to a row it left in the same transaction, and has again what it was
        given there in thought. That is so if the departure is undone; else as long as nobody came to
        the row who was given something meanwhile."""
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
        self._enter_or_leave(pod, row, 1)
        if pod.nominated == self._cluster.nodes.name(row) and self._is_short(pod):
            self._enter_or_leave(pod, row, -1)
            self._enter_or_leave(pod, row, 1, Horizon.SOON)

    def _is_short(self, pod: PodRecord) -> bool:
        return self.cpus.is_short(pod.uid) or self.devices.is_short(pod.uid)

    def _enter_or_leave(
        self, pod: PodRecord, row: int, sign: int, horizon: Horizon = Horizon.NOW
    ) -> None:
        """CPUs first: devices come from the NUMA nodes that were chosen."""
        if self.cpus.active:
            self.cpus.moved(pod, row, sign, horizon)
        if self.devices.active:
            self.devices.moved(pod, row, sign, horizon)
