"""Pre-allocation: reservations that are on a node where not all they reserve is free yet, by row.

They are satisfied oldest first: what pods of the row release goes to the oldest reservation until it
has all it reserves. One that had to start at a time comes before starvation holds. Available
reservations that are to grow come after all Waiting ones. Waiting reservations hold amounts from the
start. One becomes Available when everything it reserves is free: amounts, ports, volumes, CPUs and
devices; only then its CPUs and devices are chosen.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Mapping

from holdfast.api.calendar import BeforeStart
from holdfast.scheduler.cluster.affinity_terms import required
from holdfast.scheduler.cluster.base import ClusterBase
from holdfast.scheduler.cluster.pod_classes import PodClass
from holdfast.scheduler.cluster.records import PodRecord, ReservationEntry, ReservationInfo, age
from holdfast.scheduler.cluster.slots import Amounts
from holdfast.scheduler.managers.resource_managers import ResourceManagers
from holdfast.scheduler.managers.volumes import VolumeManager
from holdfast.scheduler.reservations.reserved_ports import used_by_others
from holdfast.scheduler.reservations.starvation_holds import is_starvation_hold

BY_CLAIM = "devices by claim"
"""What a reservation lacks that waits for devices of its `resourceClaims`."""
BY_TOPOLOGY = "a node without its victims"
"""What a reservation lacks that has victims which affinity or spread constraints may keep it from."""


class WaitingReservations:
    """The Waiting reservations of each row, and those that are to grow."""

    def __init__(
        self,
        cluster: ClusterBase,
        managers: ResourceManagers,
        volumes: VolumeManager,
        known: Mapping[str, ReservationInfo],
        allocated_pods: Callable[[ReservationInfo], list[PodRecord]],
    ) -> None:
        """`known` has all reservations by uid; `allocated_pods` returns the pods on a reservation's
        node that are allocated from it."""
        self._managers = managers
        self._volumes = volumes
        self._known = known
        self._allocated_pods = allocated_pods
        self._ledger = cluster.ledger
        self._reservation_table = cluster.ledger.reservations
        self._nodes = cluster.nodes
        self._limits = cluster.limits
        self.on_row = cluster.ledger.reservations.waiting
        """The uids of Waiting reservations, by row."""
        self.lacks_devices: Callable[[PodRecord], bool] = lambda pod: False
        """Whether a reservation waits for devices that it holds by claims."""
        self.preempting: dict[str, None] = {}
        """The uids of those that started with `Preempt`: pods in their way are evicted."""
        self.growing: dict[int, dict[str, None]] = {}
        """The uids of reservations that could not be resized, by row."""
        self.blocked: Callable[[int, float], Amounts] = lambda row, until: {}
        """What must stay free on a row for planned reservations that start before a time, by slot
        (`CapacityPlanner`)."""

    def on(self, row: int) -> Collection[str]:
        """The uids of the Waiting reservations of the row."""
        return self.on_row.get(row, ())

    def candidates(self, row: int) -> Collection[str]:
        """The uids of the reservations that can use capacity released on the row, in the order in which
        they get it."""
        there = self.on_row.get(row, {})
        if len(there) > 1:
            there = {each.uid: None for each in in_order(self._known[uid] for uid in there)}
        return there | self.growing.pop(row, {})

    def retry_resize(self, reservation: ReservationInfo) -> None:
        """Has the resize of a reservation tried again when capacity of its row is released."""
        assert reservation.pod is not None
        self.growing.setdefault(reservation.pod.row, {})[reservation.uid] = None

    def join(self, reservation: ReservationInfo) -> None:
        """Makes it Waiting."""
        assert reservation.pod is not None
        reservation.waiting = True
        calendar = reservation.calendar
        if calendar.start is not None and calendar.before == BeforeStart.PREEMPT:
            self.preempting[reservation.uid] = None
        self.on_row.setdefault(reservation.pod.row, {})[reservation.uid] = None
        self._volumes.waiting_changed(reservation.pod.row)
        self.plan(reservation.pod.row)

    def leave(self, reservation: ReservationInfo) -> None:
        """Ends its wait, if it is Waiting."""
        if not reservation.waiting:
            return
        assert reservation.pod is not None
        reservation.waiting = False
        self.preempting.pop(reservation.uid, None)
        self._volumes.waiting_changed(reservation.pod.row)
        self._managers.unplan(reservation.pod)
        there = self.on_row[reservation.pod.row]
        there.pop(reservation.uid, None)
        if not there:
            del self.on_row[reservation.pod.row]

    def lacking(self, reservation: ReservationInfo, amounts: Amounts | None = None) -> list[str]:
        """The resources of which its row has too little for what it reserves; or for `amounts` instead,
        as far as these are more. For a Waiting reservation, `amounts` need only fit once pods that can
        end have ended."""
        entry, managers = reservation.entry, self._managers
        assert entry is not None
        names = self._nodes.slots
        lacking = [
            names.name(slot) or self._limits.allowed(slot, entry.row)[0]
            for slot in self.shortage(reservation, amounts)
        ]
        if amounts is None:
            lacking += self.lacking_particulars(reservation)
        elif managers.awake and not lacking:
            lacking += managers.lacking_after_resize(entry.pod)
        return lacking

    def lacking_particulars(self, reservation: ReservationInfo) -> list[str]:
        """As `lacking`, of what is no amount: ports, volumes, CPUs, devices and the absence of
        victims."""
        entry, managers = reservation.entry, self._managers
        assert entry is not None
        lacking = self._claims_of_others(reservation)
        if entry.pod.cls.claims and self.lacks_devices(entry.pod):
            lacking.append(BY_CLAIM)
        if reservation.victims and self._has_victims_in_its_domain(reservation):
            lacking.append(BY_TOPOLOGY)
        if managers.awake and reservation.waiting:
            lacking += self.plan(entry.row).get(reservation.uid, [])
        elif managers.awake:
            lacking += managers.lacking(entry.pod, [each.pod.uid for each in self._behind(reservation)])
        return lacking

    def _has_victims_in_its_domain(self, reservation: ReservationInfo) -> bool:
        """Whether a victim is left, and the constraints of either may not allow them together, however
        much is free."""
        assert reservation.pod is not None
        for uid in reservation.victims:
            victim = self._known.get(uid)
            if victim is not None and victim.pod is not None and victim.pod.row >= 0:
                left = [reservation.pod, victim.pod, *self._allocated_pods(victim)]
                if any(_keeps_apart(pod.cls) for pod in left):
                    return True
        return False

    def plan(self, row: int) -> dict[str, list[str]]:
        """Plans the CPUs and devices of the Waiting reservations of a row. Returns by uid what they
        lack."""
        managers = self._managers
        if not managers.awake:
            return {}
        known = self._known
        there = in_order(known[uid] for uid in self.on(row) if uid in known)
        return managers.plan(row, [each.pod for each in there if each.pod is not None])

    def _claims_of_others(self, reservation: ReservationInfo) -> list[str]:
        """Whether other pods or reservations have its ports or volumes, by name."""
        entry = reservation.entry
        assert entry is not None
        ours = [entry.pod, *(each.pod for each in self._behind(reservation))]
        ours += self._allocated_pods(reservation)
        return self.claimed_by_others(entry.pod.cls, entry.row, ours)

    def claimed_by_others(self, cls: PodClass, row: int, ours: list[PodRecord]) -> list[str]:
        """Whether pods other than `ours` have ports or volumes of a class on a row, by name."""
        if not cls.ports and not cls.volumes:
            return []
        taken = ["ports"] if used_by_others(self._nodes.ports, cls, row, ours) else []
        if cls.volumes and self._volumes.is_claimed(cls, row, [pod.cls for pod in ours]):
            taken.append("volumes")
        return taken

    def shortage(
        self,
        reservation: ReservationInfo,
        amounts: Amounts | None = None,
        until: float | None = None,
    ) -> Amounts:
        """By slot, how much is missing, with the arguments of `lacking`. Younger Waiting reservations
        of the row do not count, except for a resize. `until` is when it ends, if that is not when it
        expires: plans for later do not count."""
        entry = reservation.entry
        assert entry is not None
        row, nodes = entry.row, self._nodes
        behind = self._behind(reservation) if amounts is None else []
        for_good = self._ledger.taken_permanently(entry)
        blocked: Amounts = {}
        if reservation.calendar.start is None:  # else the planner has decided between the two
            until = reservation.expires if until is None else until
            blocked = self.blocked(row, math.inf if until is None else until)
        short: Amounts = {}
        for slot, reserved in (entry.amounts if amounts is None else amounts).items():
            if amounts is not None and reserved <= entry.amounts.get(slot, 0):
                continue
            name, offered = nodes.slots.name(slot), nodes.allocatable.item(slot, row)
            if not name:
                name, offered = self._limits.allowed(slot, row)
            if amounts is not None and reservation.waiting:
                claimed = nodes.held_once_pods_end.item(slot, row) + nodes.daemon_requested.item(
                    slot, row
                )
                taken = for_good.get(slot, 0)
            else:
                claimed = nodes.claimed.item(slot, row)
                if behind:
                    claimed -= sum(each.left(slot) for each in behind)
                taken = entry.taken.get(slot, 0)
            claimed += blocked.get(slot, 0) - max(0, entry.amounts.get(slot, 0) - taken)
            needed = max(0, reserved - taken)
            if name and claimed + needed > offered:
                short[slot] = claimed + needed - offered
        return short

    def _behind(self, reservation: ReservationInfo) -> list[ReservationEntry]:
        """The Waiting reservations of its row that come after it."""
        entry = reservation.entry
        assert entry is not None
        there = self.on(entry.row)
        if not there:
            return []
        ordered = in_order(
            {reservation.uid: reservation, **{uid: self._known[uid] for uid in there}}.values()
        )
        behind = ordered[ordered.index(reservation) + 1 :]
        return [
            found for each in behind if (found := self._reservation_table.get(each.uid)) is not None
        ]


def in_order(waiting: Iterable[ReservationInfo]) -> list[ReservationInfo]:
    """Waiting reservations of a row in the order in which they get capacity: oldest first, but those
    with a start before all starvation holds. They were promised it at that time; a starvation hold
    waits for as long as it takes."""
    oldest_first = sorted(waiting, key=age)
    first_hold = next((i for i, each in enumerate(oldest_first) if is_starvation_hold(each)), None)
    if first_hold is None:
        return oldest_first
    rest = oldest_first[first_hold:]
    rest.sort(key=lambda each: each.calendar.start is None)
    return [*oldest_first[:first_hold], *rest]


def comes_before(one: ReservationInfo, other: ReservationInfo) -> bool:
    """Whether a Waiting reservation gets capacity before another."""
    return in_order((one, other))[0] is one


def _keeps_apart(cls: PodClass) -> bool:
    """Whether pods of the class may not be where certain others are."""
    away = cls.affinity.pod_anti_affinity if cls.affinity is not None else None
    if away is not None and required(away):
        return True
    spread = cls.pod.spec.topology_spread_constraints
    return any(each.when_unsatisfiable == "DoNotSchedule" for each in spread)
