"""Plans the starvation holds of a job: which node for which task, and whether the job is then ready.

A task goes to the best node that is feasible for it when the pods that end by themselves are gone. If
it fits there now it is assumed; otherwise the plan holds capacity for it on that node. The plan is kept
only if the job is ready with the tasks assumed, or will be once the held capacity is free.
"""

import math
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from holdfast.api.meta import controller_of
from holdfast.api.names import RESERVATION_IGNORED
from holdfast.api.resource_slices import DeviceID
from holdfast.scheduler.cluster.decisions import ObjectRef
from holdfast.scheduler.cluster.plugin_errors import RAISED
from holdfast.scheduler.cluster.pod_classes import PodClass, Traits
from holdfast.scheduler.cluster.records import PodRecord
from holdfast.scheduler.cluster.slots import CPU, MEMORY, NONZERO_CPU, NONZERO_MEMORY, PODS, Amounts
from holdfast.scheduler.cluster.view import All, Cells, One, View
from holdfast.scheduler.framework.config.plugin_sets import (
    CALENDAR_FILTER,
    DYNAMIC_RESOURCES,
    NODE_RESOURCES_FIT,
    STARVATION_FILTER,
)
from holdfast.scheduler.framework.feasibility.column import ClassColumn
from holdfast.scheduler.framework.feasibility.compiled_class import CompiledClass
from holdfast.scheduler.framework.feasibility.node_search import ColumnStore
from holdfast.scheduler.framework.interface import Filter, Offer, Plugin
from holdfast.scheduler.framework.profile import Profile
from holdfast.scheduler.framework.registry import PluginError
from holdfast.scheduler.framework.scheduling_cycle import SchedulingCycle, Statement
from holdfast.scheduler.jobs import Job
from holdfast.scheduler.reservations import ReservationInfo
from holdfast.scheduler.reservations.hold_objects import starvation_hold
from holdfast.scheduler.reservations.owners import OwnerSpec
from holdfast.scheduler.reservations.reserve_pod import reserve_pod
from holdfast.scheduler.state.cluster import Cluster

Bools = NDArray[np.bool_]

_ON_AMOUNTS = (NODE_RESOURCES_FIT, STARVATION_FILTER, CALENDAR_FILTER)
"""The filters on amounts, starvation holds and planned reservations."""


Place = tuple[PodRecord, int]
"""A pod, and the row of a hold for it."""


class HoldPlan(NamedTuple):
    """The placements and holds that make a job ready, now or later."""

    statement: Statement
    """The tasks that fit now, assumed on their nodes."""
    held: list[Place]
    """The other tasks, and the rows to hold capacity on."""
    ready: bool
    """Whether the job is ready without any hold."""


class HoldPlanner:
    """Finds nodes to hold for the tasks of starving jobs."""

    def __init__(
        self, cluster: Cluster, cycle: SchedulingCycle, profiles: Mapping[str, Profile]
    ) -> None:
        self._cluster = cluster
        self._nodes = cluster.nodes
        self._holds = cluster.reservations.starvation_holds
        self._cycle = cycle
        self._profiles = profiles
        self.feasibility = HoldFeasibility(cluster, cycle.columns, profiles)
        self._named_at: tuple[int, int] = (-1, -1)
        self._named = np.empty(0, dtype=np.object_), np.empty(0, dtype=np.intp)

    # Nodes

    def suitable(self, column: ClassColumn, pod: PodRecord) -> Bools:
        """The rows that are feasible for the pod but for free capacity and starvation holds."""
        rows = suitable(self._cluster, column)
        if pod.pinned_node is not None:
            nodes = self._nodes
            rows &= np.array([nodes.name(row) == pod.pinned_node for row in range(nodes.size)])
        return rows

    def idle(self, slot: int) -> NDArray[np.int64]:
        """What is free on every row, capacity of starvation holds included."""
        nodes = self._nodes
        free: NDArray[np.int64] = (nodes.allocatable[slot] - nodes.claimed[slot])[: nodes.size]
        return free + self._holds.held(slot)

    def most_nodes(self, percent: float) -> int:
        return math.ceil(self._nodes.count * percent / 100)

    def ordered(
        self, profile: Profile, pod: PodRecord, among: Bools, held: Bools, more: int
    ) -> list[int]:
        """The rows to try for the pod, the best first. `held` marks rows that count as held already;
        `more` is the number of other rows that may come to be held."""
        rows = np.flatnonzero(among)
        if not len(rows):
            return []
        names, order = self._names()
        offer = Offer(
            rows,
            names[rows].tolist(),
            lambda slot: self.idle(slot)[rows],
            held[rows],
            max(0, more),
        )
        ranks = node_score(pod.cls, offer.idle, len(rows))
        if profile.node_orders:
            points = np.zeros(len(rows))
            for plugin in profile.node_orders:
                points += self._points(plugin, pod, offer)
        else:
            points = np.ones(len(rows))
        best = np.lexsort((order[rows], -ranks, -points))
        return [int(row) for row in rows[best[points[best] > 0]]]

    def _points(self, plugin: Plugin, pod: PodRecord, offer: Offer) -> NDArray[np.float64]:
        """The scores of one plugin; zeros if it fails."""
        try:
            found = np.asarray(plugin.node_order_on_resource(pod.cls, offer), dtype=np.float64)
            if found.shape not in ((), (len(offer.rows),)) or not np.isfinite(found).all():
                raise PluginError(f"{found!r} is not a number for each of {len(offer.rows)} nodes")
        except RAISED as error:
            self._cluster.plugin_errors.note(plugin.name, "NodeOrderOnResource", error)
            return np.zeros(len(offer.rows))
        return found

    def _names(self) -> tuple[NDArray[np.object_], NDArray[np.intp]]:
        """The names of all rows, and the position of each in alphabetical order."""
        nodes, version = self._nodes, (self._cluster.epoch.nodes.end, self._nodes.size)
        if version != self._named_at:
            names = np.array([nodes.name(row) for row in range(nodes.size)], dtype=np.object_)
            order = np.empty(nodes.size, dtype=np.intp)
            order[np.argsort(names, kind="stable")] = np.arange(nodes.size)
            self._named_at, self._named = version, (names, order)
        return self._named

    # Jobs

    def plan(
        self, jobs: list[Job], tasks: list[PodRecord], percent: float, closed: Collection[int] = ()
    ) -> HoldPlan | None:
        """A plan to make the jobs ready together, or the one task where `jobs` is empty; None if there
        is none. Rows in `closed` are not used. Tasks that fit are assumed: the caller has to commit or
        discard the plan's statement."""
        statement = Statement(self._cycle)
        search = HoldSearch(self, self._cluster, jobs, self.most_nodes(percent), closed)
        for pod in tasks:
            if self._holds.has_capacity(pod):
                continue
            profile = self._profiles[pod.scheduler]
            row = search.row_for(profile, pod)
            if row < 0:
                continue
            if search.is_held(row) or not self._assume(statement, profile, pod, row):
                search.hold(pod, row)
            else:
                search.assumed(row)
        placed, held = [pod for _, pod in statement.assumed], search.held
        waiting = [pod for pod, _ in held]
        if not jobs:
            ready, on_condition = bool(placed), bool(waiting)
        else:
            waiting += [pod for pod in tasks if self._holds.has_capacity(pod)]
            ready = bool(placed) and all(job.is_ready for job in jobs)
            on_condition = bool(placed or held) and all(
                job.would_be_ready(pod for pod in waiting if pod.job == job.name) for job in jobs
            )
        if not (ready or on_condition):
            statement.discard()
            return None
        return HoldPlan(statement, held, ready)

    def would_take(
        self, jobs: list[Job], tasks: list[PodRecord], percent: float, closed: Collection[int]
    ) -> list[int]:
        """The rows that would be held for the jobs if there were no other holds; empty if the jobs
        could not be ready even then."""
        search = HoldSearch(
            self, self._cluster, jobs, self.most_nodes(percent), closed, ignore_holds=True
        )
        for pod in tasks:
            row = search.row_for(self._profiles[pod.scheduler], pod)
            if row >= 0:
                search.hold(pod, row)
        found = [pod for pod, _ in search.held]
        enough = all(job.would_be_ready(pod for pod in found if pod.job == job.name) for job in jobs)
        return [row for _, row in search.held] if enough else []

    def beside_plans(self, jobs: list[Job], tasks: list[PodRecord], percent: float) -> list[ObjectRef]:
        """The reservations with a start, or their schedules, without which capacity could be held for
        the jobs, or for the one task where `jobs` is empty; empty if that would not help."""
        search = HoldSearch(self, self._cluster, jobs, self.most_nodes(percent), (), ignore_plans=True)
        for pod in tasks:
            row = search.row_for(self._profiles[pod.scheduler], pod)
            if row >= 0:
                search.hold(pod, row)
        found = [pod for pod, _ in search.held]
        if not found or not all(
            job.would_be_ready(pod for pod in found if pod.job == job.name) for job in jobs
        ):
            return []
        rows = dict.fromkeys(row for _, row in search.held)
        return list(dict.fromkeys(ref for row in rows for ref in self._planned_on(row)))

    def _planned_on(self, row: int) -> list[ObjectRef]:
        """The reservations with a start that a row has, or is planned for; of those that a schedule
        created, the schedule."""
        reservations = self._cluster.reservations
        there = [each.reservation for each in reservations.calendar.on(row)]
        there += [
            entry.reservation
            for entry in self._cluster.ledger.reservations.on(row)
            if entry.reservation.calendar.start is not None
        ]
        refs = []
        for reservation in there:
            owner = controller_of(reservation.object.metadata)
            is_occurrence = owner is not None and owner.kind == "ReservationSchedule"
            refs.append(
                ObjectRef(owner.kind, "", owner.name, owner.uid)
                if is_occurrence and owner
                else reservation.ref
            )
        return refs

    def _assume(self, statement: Statement, profile: Profile, pod: PodRecord, row: int) -> bool:
        """Assumes the pod on the row if it fits there now."""
        column = self._cycle.columns.column(profile, pod.cls)
        if not column.fits_row(row) or self._cluster.jobs.queue_limits.admission_error(pod):
            return False
        self._cycle.search.nominate_reservation(profile, pod, column, row)
        return statement.assume_on(profile, pod, row)

    def never_fits(self, tasks: list[PodRecord]) -> PodRecord | None:
        """The first task that fits no node even when all pods that end by themselves are gone."""
        nodes = self._nodes
        for pod in tasks:
            fits = self.feasibility.rows_once_pods_end(pod)
            for slot, amount in self.feasibility.hold_amounts(pod.cls).items():
                fits &= (
                    self.feasibility.capacity(slot) - nodes.daemon_requested[slot, : nodes.size]
                    >= amount
                )
            if not fits.any():
                return pod
        return None

    def lacks_devices(self, tasks: list[PodRecord]) -> PodRecord | None:
        """The first task that no node has free devices for, beside those for pods with holds, though
        some node will."""
        feasibility = self.feasibility
        for pod in tasks:
            if (
                pod.cls.claims
                and feasibility.rows_once_pods_end(pod).any()
                and not feasibility.rows(pod, self._holds.pending()).any()
            ):
                return pod
        return None

    def has_devices_but_for_holds(self, pod: PodRecord) -> bool:
        """Whether a node has free devices for the pod, without those for pods with holds."""
        return bool(self.feasibility.rows(pod).any())


class HoldSearch:
    """Finds rows to hold for the tasks of jobs that start together, one task after the other. With
    `ignore_holds` the holds of other jobs are ignored, with `ignore_plans` the reservations with a
    start."""

    def __init__(
        self,
        planner: HoldPlanner,
        cluster: Cluster,
        jobs: list[Job],
        most: int,
        closed: Collection[int],
        ignore_holds: bool = False,
        ignore_plans: bool = False,
    ) -> None:
        self._planner = planner
        self._feasibility = planner.feasibility
        self._cluster = cluster
        self._nodes = cluster.nodes
        self._holds = cluster.reservations.starvation_holds
        self._jobs = jobs
        self._most = most
        self._open = np.ones(self._nodes.size, dtype=np.bool_)
        self._open[list(closed)] = False
        self._ignore_holds = ignore_holds
        self._ignore_plans = ignore_plans
        self._marked = np.zeros(self._nodes.size, dtype=np.bool_)
        """Rows with a hold, or with a task of the job."""
        self._held = np.zeros(self._nodes.size, dtype=np.bool_)
        """Rows with a hold."""
        if not ignore_holds:
            rows = [row for name in self._holds.nodes() if (row := self._nodes.row(name)) is not None]
            self._marked[rows] = self._held[rows] = True
        self._unavailable_by_slot: dict[int, NDArray[np.int64]] = {}
        self._orders: dict[tuple[int, int], list[int]] = {}
        self.held: list[Place] = []
        self._earlier: list[Place] = [] if ignore_holds else self._holds.pending()
        """The pods that have a hold, or get one in this plan, and its row."""

    def row_for(self, profile: Profile, pod: PodRecord) -> int:
        """The row to hold for the pod, or -1. The order of rows is computed once for all pods of a
        class, and again when a task was assumed."""
        key = (profile.index, pod.cls.id)
        rows = self._orders.get(key) if pod.pinned_node is None and not self._unfit(pod) else None
        if rows is None:
            rows = self._ordered(profile, pod)
            self._orders[key] = rows
        while rows and not self._fits(pod, rows[0]):
            del rows[0]
        return rows[0] if rows else -1

    def is_held(self, row: int) -> bool:
        return bool(self._held[row])

    def hold(self, pod: PodRecord, row: int) -> None:
        self.held.append((pod, row))
        self._earlier.append((pod, row))
        if pod.cls.claims:
            self._orders.clear()
        self._marked[row] = self._held[row] = True
        hold_amounts = self._feasibility.hold_amounts(pod.cls)
        for slot, kept in self._unavailable_by_slot.items():
            kept[row] += hold_amounts.get(slot, 0)

    def assumed(self, row: int) -> None:
        """A task was assumed on the row: orders and amounts are computed again."""
        self._marked[row] = True
        self._unavailable_by_slot.clear()
        self._orders.clear()

    def _unfit(self, pod: PodRecord) -> list[int]:
        rows = map(self._nodes.row, self._holds.unfit(pod))
        return [row for row in rows if row is not None]

    def _ordered(self, profile: Profile, pod: PodRecord) -> list[int]:
        feasibility = self._feasibility
        among = feasibility.rows(pod, self._earlier, self._ignore_plans) & self._open
        for slot, amount in feasibility.hold_amounts(pod.cls).items():
            among &= self._unavailable(slot) + amount <= feasibility.capacity(slot)
        among[self._unfit(pod)] = False
        more = self._most - int(self._marked.sum())
        return self._planner.ordered(profile, pod, among, self._marked, more)

    def _fits(self, pod: PodRecord, row: int) -> bool:
        if not self._marked[row] and int(self._marked.sum()) >= self._most:
            return False
        feasibility = self._feasibility
        return all(
            self._unavailable(slot)[row] + amount <= feasibility.capacity(slot)[row]
            for slot, amount in feasibility.hold_amounts(pod.cls).items()
        )

    def _unavailable(self, slot: int) -> NDArray[np.int64]:
        """The amount of every row that does not come free: reservations, also planned ones, pods that
        stay as long as their node, and the tasks of the jobs."""
        known = self._unavailable_by_slot.get(slot)
        if known is not None:
            return known
        kept: NDArray[np.int64]
        nodes, others = self._nodes, [(other.cls, row) for other, row in self.held]
        kept = (nodes.held_once_pods_end[slot] + nodes.daemon_requested[slot])[: nodes.size].copy()
        if self._ignore_holds:
            kept = kept - self._holds.held(slot)
        else:
            others += self._wanted()
        self._count_plans(slot, kept)
        placed = (pod for job in self._jobs for pod in job.placed())
        others += [(pod.cls, pod.row) for pod in placed if not pod.cls.is_daemon]
        for cls, row in others:
            kept[row] += self._feasibility.hold_amounts(cls).get(slot, 0)
        self._unavailable_by_slot[slot] = kept
        return kept

    def _count_plans(self, slot: int, kept: NDArray[np.int64]) -> None:
        """Adds what reservations will take that start later; or leaves out those that have started."""
        cluster = self._cluster
        if not self._ignore_plans:
            for row in cluster.reservations.calendar.rows():
                kept[row] += cluster.jobs.planner.planned(row).get(slot, 0)
            return
        for entry in cluster.ledger.reservations:
            if entry.reservation.calendar.start is not None:
                kept[entry.row] -= entry.left(slot)

    def _wanted(self) -> list[tuple[PodClass, int]]:
        """The holds that were decided and do not exist yet."""
        found = []
        for wanted in self._holds.wanted.values():
            other, at = self._cluster.pods.get(wanted.pod), self._nodes.row(wanted.node)
            if other is not None and at is not None:
                found.append((other.cls, at))
        return found


# The score of a node for a task, by idle capacity.
#
#     one resource    100 - 100 required / idle     where it fits
#                     100 idle / required - 100     where it does not
#     a node          ((cpu + memory) / 2 + 2 scalars) / 3
#
# A resource that is not requested scores 0. `scalars` is the mean over the other requested resources.
# An exact fit scores 0, more idle capacity up to 100, less down to -100.


Scores = NDArray[np.float64]

_NOT_SCALAR = frozenset((CPU, MEMORY, PODS, NONZERO_CPU, NONZERO_MEMORY))


def resource_score(required: int, idle: NDArray[np.int64]) -> Scores:
    """The score of each node for one resource."""
    if required <= 0:
        return np.zeros(len(idle))
    free = np.maximum(idle, 0).astype(np.float64)
    fits = free >= required
    more = 100.0 - 100.0 * required / np.where(fits, free, 1.0)
    less = 100.0 * free / required - 100.0
    return np.where(fits, more, less)


def node_score(cls: PodClass, idle: Callable[[int], NDArray[np.int64]], nodes: int) -> Scores:
    """The score of each node; `idle` returns the idle amounts of a slot."""
    asked = dict(cls.requests)
    cpu = resource_score(asked.get(CPU, 0), idle(CPU))
    memory = resource_score(asked.get(MEMORY, 0), idle(MEMORY))
    scalars = [
        resource_score(amount, idle(slot)) for slot, amount in cls.requests if slot not in _NOT_SCALAR
    ]
    scalar = sum(scalars) / len(scalars) if scalars else np.zeros(nodes)
    score: Scores = ((cpu + memory) / 2 + 2 * scalar) / 3
    return score


# Where capacity can be held for a pod of a starving job.


Ints = NDArray[np.int64]


class HoldFeasibility:
    """The one rule about which nodes can be held for a pod.

    A starvation hold is a pre-allocation made from its pod, so a node is feasible for it if such a
    reserve pod passes its filters there: they see the node without the pods that end by themselves.
    A hold keeps no devices: when its other resources are free, it would keep them for a pod that cannot
    start yet. So the devices for the pod's claims must be free now, beside those that the pods of
    earlier holds will get.
    Choosing a node (`HoldSearch`) and keeping a hold (`HoldReconciler`) use the same rule, the latter
    as if the hold and those made after it were not there. So a hold that was just made stays feasible
    until something changes."""

    def __init__(self, cluster: Cluster, columns: ColumnStore, profiles: Mapping[str, Profile]) -> None:
        self._cluster = cluster
        self._nodes = cluster.nodes
        self._columns = columns
        self._profiles = profiles
        self._no_owners: OwnerSpec | None = None
        self._classes: dict[int, PodClass] = {}
        """The class of the reserve pod for each class of pods."""
        cluster.classes.on_dropped.append(self._class_dropped)

    def rows(self, pod: PodRecord, earlier: Iterable[Place] = (), ignore_plans: bool = False) -> Bools:
        """The rows that pass every filter but those on amounts; for amounts compare `hold_amounts`
        with `capacity`. `earlier` are the pods that have a hold or get one before this, and its row.
        With `ignore_plans` the particular resources that are planned for reservations count as free."""
        rows = self.rows_once_pods_end(pod)
        rows[self._closed_to(pod)] = False
        if pod.cls.claims and rows.any():
            rows &= np.asarray(self._has_devices(pod, All(self._nodes), self._taken(pod, earlier)))
        calendar = self._cluster.reservations.calendar
        if calendar and not ignore_plans:
            cls, planner = self._class(pod), self._cluster.jobs.planner
            for row in calendar.rows():
                if rows[row] and planner.is_in_the_way(cls, row, pods_end=True):
                    rows[row] = False
        return rows

    def _closed_to(self, pod: PodRecord) -> list[int]:
        """The rows with a Restricted reservation that the pod owns: it gets what that restricts through
        it alone, and a hold would be another way in."""
        matched = self._cluster.reservations.matched(pod.cls)
        slots = {slot for slot, _ in pod.cls.requests}
        return [
            entry.row
            for entry in (matched.everywhere() if matched is not None else ())
            if not slots.isdisjoint(entry.reservation.restricted or ())
        ]

    def rows_once_pods_end(self, pod: PodRecord) -> Bools:
        """The same, if the devices of pods that end by themselves were free too."""
        if self.unused_reason(pod):
            return np.zeros(self._nodes.size, dtype=np.bool_)
        column = self._column(pod)
        rows = suitable(self._cluster, column)
        if pod.pinned_node is not None:
            pinned = self._nodes.row(pod.pinned_node)
            at = np.zeros(self._nodes.size, dtype=np.bool_)
            if pinned is not None and pinned < self._nodes.size:
                at[pinned] = True
            rows &= at
        return rows

    def version(self, pod: PodRecord) -> tuple[object, ...]:
        """A version of what `infeasible_reason` depends on, apart from the row's usage."""
        nodes, claims = self._cluster.epoch.nodes.end, self._cluster.claims
        if not pod.cls.claims:
            return nodes, pod.cls.id
        devices = claims.catalogue.structure, claims.shared_changes
        return nodes, pod.cls.id, devices, claims.version(pod.cls)

    def unused_reason(self, pod: PodRecord) -> str:
        """Why the pod would not use a hold on any node; empty if it would."""
        reservations = self._cluster.reservations
        if pod.cls.labels.get(RESERVATION_IGNORED) == "true":
            return "ignores reservations"
        if not reservations.affinity(pod.cls).takes_new(reservations.by_name(pod.cls.requests)):
            return "must use another reservation"
        column = self._columns.column(self._profiles[pod.scheduler], pod.cls)
        rejected = column.plugin_rejection[0]
        return f"is rejected whatever is free: {rejected.message}" if rejected is not None else ""

    def hold_amounts(self, cls: PodClass) -> Amounts:
        """The amounts a hold for a pod of the class claims, by slot: resources and limits."""
        amounts = cls.amounts
        cls.limits.hold(amounts)
        scored = {each.scored for each in self._cluster.classes.counted.values()}
        limited = {each.slot for each in self._cluster.classes.counted.values()}
        return {s: amount for s, amount in amounts.items() if s not in scored or s in limited}

    def capacity(self, slot: int) -> Ints:
        """The capacity of every row for holds and pods that stay as long as their node; read-only."""
        return self._cluster.limits.capacity(slot)

    def infeasible_reason(self, reservation: ReservationInfo, pod: PodRecord, row: int) -> str:
        """Why a hold cannot stay on its row; empty if it can."""
        nodes = self._nodes
        name = nodes.name(row)
        if reservation.node_gone or not nodes.alive[row]:
            return f"node {name} is gone"
        if why := self.unused_reason(pod):
            return f"its pod {why}"
        if row in self._closed_to(pod):
            return f"its pod can use node {name} only through its Restricted reservation"
        column = self._column(pod)
        behind = [
            other
            for other in self._cluster.reservations.starvation_holds.on(row)
            if reservation.is_before(other)
        ]
        with self._cluster.ledger.peek():
            self._release([reservation, *behind])
            for slot, amount in self.hold_amounts(pod.cls).items():
                kept = nodes.held_once_pods_end.item(slot, row) + nodes.daemon_requested.item(slot, row)
                if kept + amount > self.capacity(slot).item(row):
                    return f"node {name} has too little besides reservations and daemon pods"
            refresh_topology(column)
            passes = self._passes(column, pod, row)
        refresh_topology(column)  # with the holds that were left out
        if passes and pod.cls.claims and not self._keeps_devices(reservation, pod, row):
            return f"node {name} has no free devices for the claims of its pod"
        return "" if passes else f"node {name} is no longer feasible for its pod"

    def _release(self, reservations: Iterable[ReservationInfo]) -> None:
        for each in reservations:
            if each.pod is not None and each.pod.row >= 0:
                self._cluster.ledger.release(each.pod)

    def _passes(self, column: ClassColumn, pod: PodRecord, row: int) -> bool:
        if pod.pinned_node is not None and pod.pinned_node != self._nodes.name(row):
            return False
        return is_suitable(self._cluster, column, row)

    def _keeps_devices(self, hold: ReservationInfo, pod: PodRecord, row: int) -> bool:
        """Whether the devices for the claims of a hold's pod are free beside those that the pods of
        older holds will get, whichever are allocated first."""
        holds, view = self._cluster.reservations.starvation_holds, One(self._nodes, row)
        before = holds.pending(before=hold)
        if self._has_devices(pod, view, self._taken(pod, before)):
            return True
        own = self._cluster.claims.taken_by([(pod, row)])
        return bool(self._has_devices(pod, view)) and all(
            self._has_devices(other, One(self._nodes, at), [*own, *self._taken(other, before[:i])])
            for i, (other, at) in enumerate(before)
            if other.cls.claims
        )

    def _taken(self, pod: PodRecord, earlier: Iterable[Place]) -> list[DeviceID]:
        """The devices that earlier pods will get, except those that share a claim with this one."""
        claims = self._cluster.claims
        alike = {uid for key in claims.pods.keys(pod.uid) for uid in claims.pods.pods(key)}
        others = [
            (other, row)
            for other, row in earlier
            if other is not pod and other.cls.claims and other.uid not in alike
        ]
        return claims.taken_by(others) if others else []

    def _has_devices(self, pod: PodRecord, view: View, taken: Collection[DeviceID] = ()) -> Cells:
        """Whether the devices for the pod's claims are free, by the filter for the pod itself: that for
        a pre-allocation counts those of pods as free. With those in `taken` in use too."""
        column = self._columns.column(self._profiles[pod.scheduler], pod.cls)
        has = view.full(True)
        for name, test in column.guarded_filters:
            if name == DYNAMIC_RESOURCES:
                has = has & test.passes(view)
        if taken:
            has = has & self._cluster.claims.has_devices_beside(pod.cls, view, taken)
        return has

    def _column(self, pod: PodRecord) -> ClassColumn:
        return self._columns.column(self._profiles[pod.scheduler], self._class(pod))

    def _class(self, pod: PodRecord) -> PodClass:
        """The class of the reserve pod of a hold for the pod, without a node name."""
        classes, known = self._cluster.classes, self._classes.get(pod.cls.id)
        if known is None or not classes.acquire_again(known):
            if self._no_owners is None:
                self._no_owners = self._cluster.reservations.specs.acquire([])
            traits = Traits(
                owner_spec_id=self._no_owners.id, pre_allocation=True, claims=pod.cls.claims
            )
            known = classes.acquire(reserve_pod(starvation_hold(pod, "", "")), traits)
            self._classes[pod.cls.id] = known
        classes.release(known)
        return known

    def _class_dropped(self, cls: PodClass) -> None:
        self._classes.pop(cls.id, None)


def refresh_topology(column: CompiledClass) -> None:
    """Counts pods by topology domain again, of which a column is not notified inside `Ledger.peek`."""
    for _, test in column.filters:
        for facet in test.facets:
            facet.refresh()


def suitable(
    cluster: Cluster, column: CompiledClass, without: Collection[str] = (), later: bool = False
) -> Bools:
    """The rows that pass all of a column's filters but those on amounts and on starvation holds, and
    those of the plugins named. With `later`, of filters on what is in use counts only what lasts."""
    nodes = cluster.nodes
    if column.rejected is not None:
        return np.zeros(nodes.size, dtype=np.bool_)
    view = All(nodes)
    rows = nodes.alive[: nodes.size].copy()
    for name, test in column.guarded_filters:
        if test.only is not None:
            named = [row for name in test.only if (row := nodes.row(name)) is not None]
            rows &= np.isin(np.arange(nodes.size), named)
        if name not in _ON_AMOUNTS and name not in without:
            rows &= np.asarray(_formula(test, later)(view) & view.full(True))
    return rows


def is_suitable(
    cluster: Cluster,
    column: CompiledClass,
    row: int,
    without: Collection[str] = (),
    later: bool = False,
) -> bool:
    """The same for one row."""
    name, view = cluster.nodes.name(row), One(cluster.nodes, row)
    return column.rejected is None and all(
        (test.only is None or name in test.only)
        and (kind in _ON_AMOUNTS or kind in without or bool(_formula(test, later)(view)))
        for kind, test in column.guarded_filters
    )


def _formula(test: Filter, later: bool) -> Callable[[View], Cells]:
    return test.lasting if later and test.lasting is not None else test.passes
