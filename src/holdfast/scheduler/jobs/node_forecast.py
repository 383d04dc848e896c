"""Plays a node forward: whether planned reservations get particular resources at their start, and when
those of a Waiting reservation are free.

Particular resources are host ports, CPUs, devices and volumes. Amounts over time are sums
(`capacity_planner`), these are not: two halves of different GPUs are not a GPU. So the node is played
forward in the order of time, inside a transaction of the ledger that is undone:

    an expected end     the pod leaves, or the reservation that expires
    a planned start     the reservation comes, as it will at its start, and must get what it requests
    a planned end       it leaves

Pods without an expected end stay. Devices by claim are searched without the claims of those that have
left (`managers.claims`); devices that a planned reservation would get are counted as taken.

Only reservations that request particular resources are played, and only pods that use the same kind
can be in their way.
"""

from collections.abc import Callable, Collection, Iterable
from typing import NamedTuple

from holdfast.api.resource_slices import DeviceID
from holdfast.scheduler.cluster.base import ClusterBase
from holdfast.scheduler.cluster.decisions import ObjectRef
from holdfast.scheduler.cluster.pod_classes import PodClass
from holdfast.scheduler.cluster.records import PodRecord, ReservationEntry
from holdfast.scheduler.cluster.slots import Pairs
from holdfast.scheduler.managers.claims.claim_manager import ClaimManager
from holdfast.scheduler.managers.resource_managers import ResourceManagers
from holdfast.scheduler.managers.volumes import VolumeManager
from holdfast.scheduler.reservations.calendar import PlannedReservation
from holdfast.scheduler.reservations.reserved_ports import used_by_others

PORTS, VOLUMES, CLAIMS, UNITS = "ports", "volumes", "devices by claim", "CPUs and devices"
"""Kinds of particular resources."""
SHARED_BY_NODES = frozenset((VOLUMES, CLAIMS))
"""Those that may be in use on another node."""

_NOTHING: frozenset[str] = frozenset()


class ExpectedRelease(NamedTuple):
    """Capacity that is expected to be released at a time."""

    time: float
    amounts: Pairs
    pod: PodRecord | None
    """The pod that ends then; None if a reservation expires."""
    entry: ReservationEntry | None = None
    """The reservation that expires then."""

    @property
    def of_waiting(self) -> bool:
        """Whether a Waiting reservation expires."""
        return self.entry is not None and self.entry.reservation.waiting


class UnmetPlan(NamedTuple):
    """A planned reservation that will not get all it requests at its start."""

    planned: PlannedReservation
    lacks: list[str]
    """What it lacks, in words such as `ports`."""


class Guest(NamedTuple):
    """A pod that would come to the node now."""

    cls: PodClass
    until: float
    """When it ends."""


class PlanElsewhere(NamedTuple):
    """A plan for another row."""

    planned: PlannedReservation
    row: int
    gone: frozenset[str]
    """The uids of pods and reservations that will have left that row."""


class NodeForecast:
    """Plays rows of the node table forward."""

    def __init__(
        self,
        cluster: ClusterBase,
        managers: ResourceManagers,
        volumes: VolumeManager,
        claims: ClaimManager,
    ) -> None:
        self._cluster = cluster
        self._ledger = cluster.ledger
        self._managers = managers
        self._volumes = volumes
        self._claims = claims

    def kinds(self, cls: PodClass, row: int) -> frozenset[str]:
        """The kinds of particular resources that a pod of the class uses on a row."""
        is_plain = not (cls.ports or cls.volumes or cls.claims or self._claims.extended)
        if is_plain and not self._managers.awake:
            return _NOTHING
        asked = (
            (PORTS, bool(cls.ports)),
            (VOLUMES, bool(cls.volumes)),
            (CLAIMS, self._claims.concerns(cls)),
            (UNITS, self._managers.governs(cls, row)),
        )
        return frozenset(kind for kind, is_used in asked if is_used)

    def sharing(self, cls: PodClass, other: PodClass) -> bool:
        """Whether pods of both classes use a claim that only one pod can use."""
        claims = self._volumes.exclusive_claims(cls)
        return bool(claims) and not claims.isdisjoint(self._volumes.exclusive_claims(other))

    def users_elsewhere(self, cls: PodClass, row: int) -> list[PodRecord]:
        """The pods and reserve pods on other rows that use claims of the class which only one pod can
        use."""
        rows: set[int] = set()
        for key in self._volumes.exclusive_claims(cls):
            rows.update(self._volumes.claim_uses.rows(key))
        ledger = self._ledger
        return [
            pod
            for at in sorted(rows - {row})
            for pod in (
                *ledger.pods.get(at, {}).values(),
                *(entry.pod for entry in ledger.reservations.on(at)),
            )
            if self.sharing(cls, pod.cls)
        ]

    def unmet(
        self,
        row: int,
        plans: Iterable[PlannedReservation],
        releases: Iterable[ExpectedRelease],
        without: Collection[PodRecord] = (),
        guest: Guest | None = None,
        elsewhere: Iterable[PlanElsewhere] = (),
    ) -> list[UnmetPlan]:
        """Those of the plans for the row that lack something at their start. The pods in `without`
        count as gone. Plans for other rows are `elsewhere`: they may take the same volumes, and devices
        that several nodes can use."""
        starts = [each for each in plans if each.reservation.pod is not None]
        if guest is not None:
            used = self.kinds(guest.cls, row)
            starts = [each for each in starts if used & self._kinds_of(each, row)]
        else:
            starts = [each for each in starts if self._kinds_of(each, row)]
        if not starts:
            return []
        played = _Play(self._cluster, self._managers, self._volumes, self._claims, row)
        with self._claims.unmoved(), self._ledger.peek():
            for each in elsewhere:
                played.start_elsewhere(each)
            return played.run(starts, releases, without, guest)

    def first_time(
        self,
        row: int,
        releases: Iterable[ExpectedRelease],
        start: float,
        is_enough: Callable[[], bool],
    ) -> float | None:
        """The first time from `start` on at which what is free on the row is enough; None if it is not
        even when all pods with an expected end have left."""
        played = _Play(self._cluster, self._managers, self._volumes, self._claims, row)
        with self._claims.unmoved(), self._ledger.peek():
            return played.first_time(releases, start, is_enough)

    def _kinds_of(self, planned: PlannedReservation, row: int) -> frozenset[str]:
        pod = planned.reservation.pod
        return self.kinds(pod.cls, row) if pod is not None else _NOTHING


class _Play:
    """One row, played forward."""

    def __init__(
        self,
        cluster: ClusterBase,
        managers: ResourceManagers,
        volumes: VolumeManager,
        claims: ClaimManager,
        row: int,
    ) -> None:
        self._cluster = cluster
        self._ledger = cluster.ledger
        self._managers = managers
        self._volumes = volumes
        self._claims = claims
        self._row = row
        self._gone: set[str] = set()
        """The uids of pods and reservations that have left."""
        self._devices: dict[str, list[DeviceID]] = {}
        """The devices by claim of those that came, by uid."""

    def run(
        self,
        plans: list[PlannedReservation],
        releases: Iterable[ExpectedRelease],
        without: Collection[PodRecord],
        guest: Guest | None,
    ) -> list[UnmetPlan]:
        for pod in without:
            self._leave(pod)
        leaving = [(each.time, each.pod or each.entry) for each in releases]
        if guest is not None:
            leaving.append((guest.until, self._come(guest)))
        plans = sorted(plans, key=starting_order)
        leaving += [(each.end, each.reservation.pod) for each in plans]
        leaving.sort(key=lambda each: each[0])
        unmet = []
        for planned in plans:
            while leaving and leaving[0][0] <= planned.start:
                self._leave(leaving.pop(0)[1])
            if lacks := self._start(planned):
                unmet.append(UnmetPlan(planned, lacks))
        return unmet

    def first_time(
        self, releases: Iterable[ExpectedRelease], start: float, is_enough: Callable[[], bool]
    ) -> float | None:
        leaving = [(each.time, each.pod or each.entry) for each in releases if not each.of_waiting]
        for time, who in leaving:
            if time > start and is_enough():
                return start
            self._leave(who)
            start = max(start, time)
        return start if is_enough() else None

    def start_elsewhere(self, other: PlanElsewhere) -> None:
        """Adds a reservation that is planned on another row."""
        pod = other.planned.reservation.pod
        if pod is None or pod.row >= 0:
            return
        if self._claims.concerns(pod.cls):
            self._allocate(pod, other.row, other.gone)
        self._ledger.reserve(pod, other.row, other.planned.amounts)

    def _come(self, guest: Guest) -> PodRecord:
        """Adds a pod of the class to the row, which uses what it can get there."""
        ref = ObjectRef("Pod", guest.cls.namespace, "", "guest")
        pod = PodRecord(ref, guest.cls, "", self._cluster.now)
        self._ledger.place(pod, self._row)
        if self._claims.concerns(guest.cls):
            self._allocate(pod, self._row, self._gone)
        return pod

    def _leave(self, who: PodRecord | ReservationEntry | None) -> None:
        pod = who.pod if isinstance(who, ReservationEntry) else who
        if pod is None or pod.row < 0:
            return
        if pod.reservation is not None:
            self._ledger.release(pod)
        else:
            self._ledger.remove(pod)
        self._gone.add(pod.uid)
        self._devices.pop(pod.uid, None)

    def _start(self, planned: PlannedReservation) -> list[str]:
        """Adds a reservation to the row at its start; what it lacks."""
        pod, row = planned.reservation.pod, self._row
        assert pod is not None
        lacks = [PORTS] if used_by_others(self._cluster.nodes.ports, pod.cls, row, ()) else []
        if self._claims.concerns(pod.cls) and not self._allocate(pod, row, self._gone):
            lacks.append(CLAIMS)
        self._ledger.reserve(pod, row, planned.amounts)
        lacks += self._managers.short_of(pod)
        if pod.cls.volumes and self._volumes.is_claimed(pod.cls, row, [pod.cls]):
            lacks.append(VOLUMES)
        return lacks

    def _allocate(self, pod: PodRecord, row: int, gone: Collection[str]) -> bool:
        """Finds devices by claim for a pod on a row; whether it gets all."""
        used = [device for devices in self._devices.values() for device in devices]
        found = self._claims.forecast(pod.cls, row, gone, used)
        if found is not None:
            self._devices[pod.uid] = found
        return found is not None


def starting_order(planned: PlannedReservation) -> tuple[float | str, ...]:
    """The order in which planned reservations start: by time, then by that of plans."""
    return planned.start, *planning_order(planned)


def planning_order(planned: PlannedReservation) -> tuple[float | str, ...]:
    """Plans of higher priority first, then those of older reservations."""
    reservation = planned.reservation
    priority = reservation.pod.cls.priority if reservation.pod is not None else 0
    return -priority, reservation.created, reservation.name
