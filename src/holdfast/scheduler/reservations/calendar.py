"""The calendar: reservations that start later, and the nodes planned for them.

A reservation with a start is *planned* until then: it has a node in the plan and claims nothing of it
in the ledger. What it takes from its start on counts in the free capacity over time
(`jobs.capacity_planner`), so that nothing starts on the node that would be in its way. At its start it
leaves the calendar and is scheduled like any pre-allocation, its planned node first.

    Planned ──► Draining (from start - lead) ──► Started: Waiting or Available

Which node is planned is decided in `framework.calendar_planner`. The plan is in the status of the
Reservation (`nodeName` while it is Pending), so a restarted scheduler goes on with it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator

from holdfast.api.calendar import BeforeStart
from holdfast.api.meta import condition
from holdfast.scheduler.cluster.base import ClusterBase
from holdfast.scheduler.cluster.events import Change
from holdfast.scheduler.cluster.records import PodRecord, ReservationInfo
from holdfast.scheduler.cluster.slots import Amounts

PLANNED, FEASIBLE = "Planned", "Feasible"
"""Types of conditions."""
DRAINING, STARTED, NOT_PLANNED = "Draining", "Started", "NotPlanned"
"""Reasons of the condition Planned, beside Planned itself."""


class PlannedReservation:
    """A reservation that has not started yet, and its plan."""

    __slots__ = (
        "bounded",
        "draining",
        "feasible",
        "message",
        "node",
        "reservation",
        "start",
        "victims",
    )

    def __init__(self, reservation: ReservationInfo, start: float, node: str) -> None:
        self.reservation = reservation
        self.start = start
        self.node = node
        """The planned node; empty if there is none."""
        self.draining = False
        """Whether `start - lead` is reached; then the plan is kept as it is."""
        self.feasible = "Unknown"
        """The status of the condition Feasible: True, False or Unknown."""
        self.message = ""
        """The message of that condition."""
        self.victims: list[PodRecord] = []
        """The pods that have to be evicted for it, as of when it was last checked."""
        self.bounded: tuple[Amounts | None, Amounts] = None, {}
        """Its amounts, and those of them that nodes have a capacity for (`CapacityPlanner.wanted`)."""

    @property
    def end(self) -> float:
        """When it expires."""
        expires = self.reservation.expires
        return math.inf if expires is None else expires

    @property
    def amounts(self) -> Amounts:
        """What it takes of its node from its start on, by slot."""
        return self.reservation.wanted

    @property
    def binds(self) -> bool:
        """Whether the plan restricts what may start on the node now."""
        return self.draining or self.reservation.calendar.before == BeforeStart.BACKFILL

    @property
    def is_frozen(self) -> bool:
        """Whether it drains its node, and will have its capacity."""
        return self.draining and self.feasible == "True"

    def overlaps(self, start: float, end: float) -> bool:
        return self.start < end and start < self.end

    def __repr__(self) -> str:
        return f"<{self.reservation.ref} planned on {self.node or 'no node'}>"


class Calendar:
    """The planned reservations of a cluster."""

    def __init__(self, cluster: ClusterBase, changed: Callable[[int], None]) -> None:
        """`changed` is called with a row of which other amounts are planned than before."""
        self._cluster = cluster
        self._row_changed = changed
        self._known: dict[str, PlannedReservation] = {}
        self._on_node: dict[str, dict[str, PlannedReservation]] = {}
        self.late: set[int] = set()
        """The classes of reserve pods that had no node at their start, and are pending; of those with
        volumes also the classes without, whose columns they share."""
        self.late_uids: dict[str, None] = {}
        """The uids of these reservations; some of them may have a node meanwhile, or be gone."""
        cluster.classes.on_dropped.append(lambda cls: self.late.discard(cls.id))
        self.revision = 0
        """Changes with the calendar: a reservation is added, removed or changed, or gets another
        node."""

    def __bool__(self) -> bool:
        return bool(self._known)

    def __iter__(self) -> Iterator[PlannedReservation]:
        return iter(list(self._known.values()))

    def __len__(self) -> int:
        return len(self._known)

    def get(self, uid: str) -> PlannedReservation | None:
        return self._known.get(uid)

    def put(self, reservation: ReservationInfo, start: float) -> PlannedReservation:
        """Adds a reservation that starts later, with the node of its status; or notes that it
        changed."""
        planned = self._known.get(reservation.uid)
        if planned is None:
            if not self._known:
                self._cluster.epoch.objects += 1  # classes have the filter of the calendar now
            planned = PlannedReservation(reservation, start, "")
            self._known[reservation.uid] = planned
            self.assign(planned, reservation.object.status.node_name)
            known = condition(reservation.object.status.conditions, FEASIBLE)
            if planned.node and known is not None and known.status == "True":
                planned.feasible = "True"  # a plan that is kept is kept after a restart too
        planned.start = start
        planned.draining = reservation.calendar.drains_at <= self._cluster.now
        self._changed(planned.node)
        return planned

    def drop(self, uid: str) -> PlannedReservation | None:
        """Removes a reservation: it starts, or it is gone."""
        planned = self._known.pop(uid, None)
        if planned is None:
            return None
        node = planned.node
        if node:
            self.assign(planned, "")
        else:
            self._changed("")  # others of its gang may have a plan without it
        planned.node = node
        if not self._known:
            self._cluster.epoch.objects += 1
        return planned

    def assign(self, planned: PlannedReservation, node: str) -> None:
        """Sets the planned node; an empty name clears it."""
        if planned.node:
            there = self._on_node[planned.node]
            there.pop(planned.reservation.uid, None)
            if not there:
                del self._on_node[planned.node]
            self._changed(planned.node)
        planned.node = node
        if node:
            self._on_node.setdefault(node, {})[planned.reservation.uid] = planned
            self._changed(node)

    def note_late(self, reservation: ReservationInfo) -> None:
        """Notes that a reservation had no node at its start."""
        pod = reservation.pod
        self.late_uids[reservation.uid] = None
        if pod is not None and pod.cls.id not in self.late:
            classes = pod.cls, pod.cls.without_volumes
            self.late.update(cls.id for cls in classes if cls is not None)
            self._cluster.epoch.objects += 1  # these classes have the filter of the calendar now

    def has(self, row: int) -> bool:
        """Whether reservations are planned on the node of a row."""
        return self._cluster.nodes.name(row) in self._on_node

    def on(self, row: int) -> list[PlannedReservation]:
        """The reservations planned on the node of a row."""
        there = self._on_node.get(self._cluster.nodes.name(row)) if self._on_node else None
        return list(there.values()) if there else []

    def rows(self) -> list[int]:
        """The rows with planned reservations."""
        rows = map(self._cluster.nodes.row, self._on_node)
        return [row for row in rows if row is not None]

    def drain(self, planned: PlannedReservation) -> None:
        """Begins to drain the planned node."""
        planned.draining = True
        self._changed(planned.node)

    def _changed(self, node: str) -> None:
        """Has the row computed again, and pods tried again that it was closed to."""
        self.revision += 1
        self._cluster.epoch.inputs += 1
        row = self._cluster.nodes.row(node) if node else None
        if row is not None:
            self._cluster.epoch.usage.add(row)
            self._row_changed(row)
        self._cluster.changed(Change.POD_LEFT)
