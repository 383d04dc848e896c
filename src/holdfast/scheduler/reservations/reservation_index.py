"""The index of reservations: by uid and name, by owners, by preemptor, by the pods allocated from them.

`ReservationCache` extends it by everything that changes a reservation.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping

from holdfast.api import names
from holdfast.api.meta import ObjectMeta
from holdfast.scheduler.cluster.base import ClusterBase
from holdfast.scheduler.cluster.epoch import Epoch
from holdfast.scheduler.cluster.pod_classes import ORDINARY, PodClass, Traits
from holdfast.scheduler.cluster.records import Phase, PodRecord, ReservationEntry, ReservationInfo
from holdfast.scheduler.reservations.owners import OwnerSpec, OwnerSpecs, PodName
from holdfast.scheduler.reservations.preemption_holds import PreemptionHolds
from holdfast.scheduler.reservations.reservation_affinity import RequiredReservation

_PRIVATE = Traits(private=True)
_NO_LABELS: Mapping[str, str] = {}


class ReservationIndex:
    """All reservations, by uid, and the ways to find them."""

    def __init__(self, cluster: ClusterBase) -> None:
        self._nodes = cluster.nodes
        self._epoch = cluster.epoch
        self.known: dict[str, ReservationInfo] = {}
        """By uid."""
        self._uid: dict[str, str] = {}
        """By name."""
        self.specs = OwnerSpecs(cluster.epoch)
        self.members: dict[int, dict[str, ReservationInfo]] = {}
        """The reservations of each owner spec, by its id and their uid."""
        self._named: Counter[tuple[str, str]] = Counter()
        self._naming_groups = 0
        """The number of reservations whose owners name PodGroups or Workloads."""
        """How many reservations name a pod by its uid, or by its name."""
        self.preemption_holds = PreemptionHolds()
        """Reservations that keep what victims leave for their preemptor."""
        self.without_virtual: frozenset[str] = frozenset()
        """The scheduler names whose pods are not allocated from virtual reservations: their profiles
        would bind them without waiting for the reservation that replaces it."""
        self._no_owners: OwnerSpec | None = None
        self._allocated: dict[str, dict[str, PodRecord]] = {}
        self._affinities: dict[int, RequiredReservation] = {}
        self._matched: dict[int, MatchedReservations] = {}
        cluster.classes.on_dropped.append(self._class_dropped)

    def get(self, name: str) -> ReservationInfo | None:
        return self.known.get(self._uid.get(name, ""))

    def allocated_pods(self, reservation: ReservationInfo) -> list[PodRecord]:
        """The pods on its node that are allocated from it; they may not be bound yet."""
        allocated_pods = self._allocated.get(reservation.uid)
        if not allocated_pods:
            return []
        row: int | None = reservation.pod.row if reservation.pod is not None else -1
        if row == -1 and reservation.preemptor:
            # The preemptor can be assumed before its preemption hold is scheduled.
            row = self._nodes.row(reservation.wants_node)
        return [pod for pod in allocated_pods.values() if pod.row == row]

    def is_usable(self, reservation: ReservationInfo) -> bool:
        """Whether owners can be allocated from it now. They are bound only after its own status is
        written."""
        return (
            reservation.entry is not None
            and not reservation.waiting
            and not reservation.ending
            and not (
                reservation.once
                and reservation.uid in self._allocated
                and self.allocated_pods(reservation)
            )
        )

    def is_being_bound(self, reservation: ReservationInfo) -> bool:
        """Whether the binding of a pod that is allocated from it is in progress."""
        return reservation.uid in self._allocated and any(
            pod.phase is Phase.ASSUMED and pod.bind_decided for pod in self.allocated_pods(reservation)
        )

    def can_be_bound(self, pod: PodRecord) -> bool:
        """Whether a pod that waits in Permit can still be bound: the reservation it is allocated from,
        if any, has neither finished nor is about to."""
        if not pod.reservation_uid:
            return True
        reservation = self.known.get(pod.reservation_uid)
        return reservation is not None and not reservation.finished and not reservation.ending

    def matching(self, cls: PodClass) -> frozenset[int]:
        """The ids of the owner specs that pods of the class match."""
        return self.specs.matching(cls)

    def is_allowed_for(self, reservation: ReservationInfo, pod: PodRecord) -> bool:
        """Whether the pod's profile lets it be allocated from a reservation that it matches."""
        return not reservation.virtual or pod.scheduler not in self.without_virtual

    def matched(self, cls: PodClass) -> MatchedReservations | None:
        """The reservations that pods of the class match, up to date; None if there are none. Virtual
        ones are among them, which not all profiles offer to their pods."""
        if not self.specs.matching(cls):
            return None
        found = self._matched.get(cls.id)
        if found is None:
            found = self._matched[cls.id] = MatchedReservations(self, self._epoch, cls)
        if not found.is_current:
            found.refresh()
        return found

    def reserving_for(self, cls: PodClass) -> list[PodClass]:
        """The classes of the reserve pods of reservations that pods of this class match."""
        matching = self.specs.matching(cls)
        if not matching:
            return []
        found = {
            reservation.pod.cls.id: reservation.pod.cls
            for spec in matching
            for reservation in self.members.get(spec, {}).values()
            if reservation.pod is not None
        }
        return list(found.values())

    def affinity(self, cls: PodClass) -> RequiredReservation:
        """The reservation affinity of pods of the class."""
        affinity = self._affinities.get(cls.id)
        if affinity is None:
            affinity = self._affinities[cls.id] = RequiredReservation(cls, self.by_name(cls.requests))
        return affinity

    def concerns(self, cls: PodClass) -> bool:
        """Whether pods of the class match reservations or have a reservation affinity."""
        return not cls.at_reservation_size and (
            bool(self.specs.matching(cls))
            or (names.RESERVATION_AFFINITY in cls.annotations and cls.owner_spec_id < 0)
        )

    @property
    def names_groups(self) -> bool:
        """Whether owners of any reservation name a PodGroup or Workload: then the PodGroup of a pod is
        part of its class."""
        return self._naming_groups > 0

    def traits(self, metadata: ObjectMeta) -> Traits:
        """The traits of a pod's class that depend on reservations: whether one names the pod."""
        if not self._named:
            return ORDINARY
        if ("", metadata.uid) in self._named or ("name", metadata.name) in self._named:
            return _PRIVATE
        return ORDINARY

    def node_labels(self, row: int) -> Mapping[str, str]:
        info = self._nodes.info.get(row)
        return info.labels if info is not None else {}

    def by_name(self, amounts: Iterable[tuple[int, int]]) -> dict[str, int]:
        """Amounts by resource name, without derived sums."""
        slots = self._nodes.slots
        return {slots.name(slot): amount for slot, amount in amounts if slots.name(slot)}

    def reservation_for_nominated(self, pod: PodRecord, row: int) -> str:
        """The uid of the reservation that a nominated pod would be allocated from on the row: the one
        it preempted for; else the first that could be large enough."""
        matched = self.matched(pod.cls)
        if matched is None:
            return ""
        asked = {slot for slot, _ in pod.cls.requests}
        there = [
            entry.reservation
            for entry in matched.on(row)
            if not asked.isdisjoint(entry.amounts)
            and _could_serve(entry, pod)
            and self.is_allowed_for(entry.reservation, pod)
        ]
        if any(reservation.uid == pod.nominated_reservation for reservation in there):
            return pod.nominated_reservation
        first = min(there, key=lambda p: (not p.order, p.order, p.created, p.name), default=None)
        return first.uid if first is not None else ""

    def slots(self) -> set[int]:
        """The slots of all resources that reservations name."""
        used: set[int] = set()
        for reservation in self.known.values():
            used.update(
                reservation.amounts,
                reservation.wanted,
                reservation.withheld,
                reservation.restricted or (),
            )
            used.update(slot for slot, _ in reservation.listed)
            if reservation.entry is not None:
                used.update(reservation.entry.amounts, reservation.entry.taken)
        return used

    # Reservations that are added and removed

    def _add(self, reservation: ReservationInfo) -> None:
        self.known[reservation.uid] = reservation
        self._uid[reservation.name] = reservation.uid

    def _remove(self, uid: str) -> ReservationInfo | None:
        reservation = self.known.pop(uid, None)
        if reservation is not None and self._uid.get(reservation.name) == uid:
            del self._uid[reservation.name]
        return reservation

    def _join_owners(self, reservation: ReservationInfo, spec: OwnerSpec) -> list[PodName]:
        """Makes this the owner spec of a reservation that has none. Returns the pods that are now named
        by a reservation and were not before. All preemption holds have the empty owner spec: as the
        preemptor is matched by uid, they make no difference to pod classes."""
        reservation.owner_spec_id = spec.id
        if reservation.preemptor:
            self.preemption_holds.add(reservation)
            if self._no_owners is None:
                # Never released, since preemption holds come and go all the time.
                self._no_owners = self.specs.acquire([])
        self.members.setdefault(spec.id, {})[reservation.uid] = reservation
        self._naming_groups += spec.names_groups
        return [named for named in spec.names() if self._count_name(named, 1)]

    def _leave_owners(self, reservation: ReservationInfo) -> list[PodName]:
        """Removes and releases the owner spec of a reservation. Returns the pods that no reservation
        names any more."""
        spec = self.specs.get(reservation.owner_spec_id)
        there = self.members[spec.id]
        there.pop(reservation.uid, None)
        if not there:
            del self.members[spec.id]
        freed = [named for named in spec.names() if self._count_name(named, -1)]
        self._naming_groups -= spec.names_groups
        self.specs.release(spec)
        self.preemption_holds.remove(reservation)
        reservation.owner_spec_id = -1
        return freed

    def _count_name(self, named: PodName, count: int) -> bool:
        """Counts the reservations that name a pod by name or uid. Returns whether it is the first or
        the last one, which changes the class of the pod."""
        key = ("", named.uid) if named.uid else ("name", named.name)
        before = self._named[key]
        self._named[key] = before + count
        if not self._named[key]:
            del self._named[key]
        return (before == 0) != (before + count == 0)

    def _class_dropped(self, cls: PodClass) -> None:
        self.specs.forget_class(cls)
        self._matched.pop(cls.id, None)
        self._affinities.pop(cls.id, None)


class MatchedReservations:
    """The reservations that pods of one class match, by row. Kept up to date by `Epoch.reservations`.
    Which of them are usable now changes with every pod, so that is evaluated by each query."""

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

    def __init__(self, reservations: ReservationIndex, epoch: Epoch, cls: PodClass) -> None:
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

    def on(self, row: int) -> list[ReservationEntry]:
        """The matched reservations on the row that are usable now."""
        there = self._by_row.get(row)
        if there is None:
            return []
        usable = self._reservations.is_usable
        if len(there) == 1:
            (reservation,) = there
            entry = reservation.entry
            if entry is None or reservation.waiting or reservation.ending:
                return []
            return [entry] if not reservation.once or usable(reservation) else []
        return [p.entry for p in there if p.entry is not None and usable(p)]

    def everywhere(self) -> list[ReservationEntry]:
        """The matched reservations on all rows that are usable now."""
        usable = self._reservations.is_usable
        return [
            reservation.entry
            for there in self._by_row.values()
            for reservation in there
            if reservation.entry is not None and usable(reservation)
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


def _could_serve(entry: ReservationEntry, pod: PodRecord) -> bool:
    """Whether a reservation is large enough for a pod if nothing is allocated from it."""
    only = entry.reservation.restricted or frozenset()
    return all(entry.amounts.get(slot, 0) >= asked for slot, asked in pod.cls.requests if slot in only)
