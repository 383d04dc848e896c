"""Holding room for a starving job: which node for which task, and whether that makes it ready.

A task goes where it would be placed but for what runs there now. If it fits already it is allocated,
else the node is to hold room for it. When enough tasks have one or the other, the job is ready, or
ready on condition that the room comes free; only then does any of it stand.
"""

import math
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from holdfast.api.names import RESERVATION_IGNORED
from holdfast.scheduler.cluster.cluster import Cluster
from holdfast.scheduler.cluster.plugin_errors import RAISED
from holdfast.scheduler.cluster.pod_classes import PodClass, Traits
from holdfast.scheduler.cluster.pods import PodRecord
from holdfast.scheduler.cluster.reservation_table import Amounts
from holdfast.scheduler.cluster.slots import CPU, MEMORY, NONZERO_CPU, NONZERO_MEMORY, PODS
from holdfast.scheduler.cluster.view import All, One
from holdfast.scheduler.framework.feasibility.column import ClassColumn
from holdfast.scheduler.framework.interface import Offer, Plugin
from holdfast.scheduler.framework.plugin_names import NODE_RESOURCES_FIT, STARVATION_FILTER
from holdfast.scheduler.framework.profile import Profile
from holdfast.scheduler.framework.registry import PluginError
from holdfast.scheduler.framework.scheduling_cycle import Cycle
from holdfast.scheduler.framework.statement import Statement
from holdfast.scheduler.jobs import Job
from holdfast.scheduler.reservations import ReservationInfo
from holdfast.scheduler.reservations.hold_objects import starvation_hold
from holdfast.scheduler.reservations.owners import OwnerSpec
from holdfast.scheduler.reservations.reserve_pod import reserve_pod

Bools = NDArray[np.bool_]


class HoldPlan(NamedTuple):
    """What would make a job ready, now or later."""

    statement: Statement
    """Tasks that fit already, with the places they have taken."""
    held: list[tuple[PodRecord, int]]
    """Tasks that do not, and the rows to hold room on."""
    ready: bool
    """Whether it is ready without any room being held."""


class HoldPlanner:
    def __init__(self, cluster: Cluster, cycle: Cycle, profiles: Mapping[str, Profile]) -> None:
        self._cluster = cluster
        self._nodes = cluster.nodes
        self._holds = cluster.jobs.holds
        self._cycle = cycle
        self._profiles = profiles
        self.feasibility = HoldFeasibility(cluster, cycle, profiles)
        self._named_at: tuple[int, int] = (-1, -1)
        self._named = np.empty(0, dtype=np.object_), np.empty(0, dtype=np.intp)

    # Nodes

    def suitable(self, column: ClassColumn, pod: PodRecord) -> Bools:
        """The rows that would do for the pod if there were room."""
        rows = suitable(self._cluster, column)
        if pod.pinned_node is not None:
            nodes = self._nodes
            rows &= np.array([nodes.name(row) == pod.pinned_node for row in range(nodes.size)])
        return rows

    def idle(self, slot: int) -> NDArray[np.int64]:
        """What pods and other reservations leave of every row."""
        nodes = self._nodes
        free: NDArray[np.int64] = (nodes.allocatable[slot] - nodes.claimed[slot])[: nodes.size]
        return free + self._holds.held(slot)

    def most_nodes(self, percent: float) -> int:
        return math.ceil(self._nodes.count * percent / 100)

    def ordered(
        self, profile: Profile, pod: PodRecord, among: Bools, held: Bools, more: int
    ) -> list[int]:
        """The rows to try for the pod, the best first, if so many more may come to hold something."""
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
        """Those of one plugin; none if it fails."""
        try:
            found = np.asarray(plugin.node_order_on_resource(pod.cls, offer), dtype=np.float64)
            if found.shape not in ((), (len(offer.rows),)) or not np.isfinite(found).all():
                raise PluginError(f"{found!r} is not a number for each of {len(offer.rows)} nodes")
        except RAISED as error:
            self._cluster.plugin_errors.note(plugin.name, "NodeOrderOnResource", error)
            return np.zeros(len(offer.rows))
        return found

    def _names(self) -> tuple[NDArray[np.object_], NDArray[np.intp]]:
        """The names of all rows, and where each stands among them."""
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
        """How to make the jobs ready, together; with none of them, the one pod that is one; not on rows
        that are closed. What fits takes its place: the plan must be discarded or committed."""
        statement = Statement(self._cycle)
        search = Search(self, self._cluster, self.most_nodes(percent), closed)
        for pod in tasks:
            if self._holds.has_capacity(pod):
                continue
            profile = self._profiles[pod.scheduler]
            row = search.row_for(profile, pod)
            if row < 0:
                continue
            if search.is_held(row) or not self._take(statement, profile, pod, row):
                search.hold(pod, row)
            else:
                search.take(row)
        placed, held = [pod for _, pod in statement.placed], search.held
        waiting = [pod for pod, _ in held]
        if not jobs:
            ready, on_condition = bool(placed), bool(waiting)
        else:
            waiting += [pod for pod in tasks if self._holds.has_capacity(pod)]
            ready = bool(placed) and all(job.is_ready for job in jobs)
            on_condition = bool(placed or held) and all(
                job.would_be_ready(pod for pod in waiting if pod.job is job) for job in jobs
            )
        if not (ready or on_condition):
            statement.discard()
            return None
        return HoldPlan(statement, held, ready)

    def would_take(
        self, jobs: list[Job], tasks: list[PodRecord], percent: float, closed: Collection[int]
    ) -> list[int]:
        """The rows that would be held for the jobs if nothing were held for others; none if even then
        they could not be ready."""
        search = Search(self, self._cluster, self.most_nodes(percent), closed, alone=True)
        for pod in tasks:
            row = search.row_for(self._profiles[pod.scheduler], pod)
            if row >= 0:
                search.hold(pod, row)
        found = [pod for pod, _ in search.held]
        enough = all(job.would_be_ready(pod for pod in found if pod.job is job) for job in jobs)
        return [row for _, row in search.held] if enough else []

    def _take(self, statement: Statement, profile: Profile, pod: PodRecord, row: int) -> bool:
        """Takes a place there for the pod, if it fits as things are."""
        column = self._cycle.column(profile, pod.cls)
        if not column.fits_row(row) or self._cluster.jobs.queues.admission_error(pod):
            return False
        self._cycle.nominate_reservation(profile, pod, column, row)
        return statement.put(profile, pod, row)

    def never_fits(self, tasks: list[PodRecord]) -> PodRecord | None:
        """A task for which no node that would do is large enough, whatever ends."""
        nodes = self._nodes
        for pod in tasks:
            room = self.feasibility.rows(pod)
            for slot, amount in self.feasibility.takes(pod.cls).items():
                room &= (
                    self.feasibility.offered(slot) - nodes.daemon_requested[slot, : nodes.size]
                    >= amount
                )
            if not room.any():
                return pod
        return None


class Search:
    """Rows to hold room on for the tasks of one job, one after the other. With `alone`, as if nothing
    were held for others."""

    def __init__(
        self,
        reserving: HoldPlanner,
        cluster: Cluster,
        most: int,
        closed: Collection[int],
        alone: bool = False,
    ) -> None:
        self._reserving = reserving
        self._feasibility = reserving.feasibility
        self._cluster = cluster
        self._nodes = cluster.nodes
        self._holds = cluster.jobs.holds
        self._most = most
        self._open = np.ones(self._nodes.size, dtype=np.bool_)
        self._open[list(closed)] = False
        self._alone = alone
        self._marked = np.zeros(self._nodes.size, dtype=np.bool_)
        """Rows where something is held, or taken for the job."""
        self._barred = np.zeros(self._nodes.size, dtype=np.bool_)
        """Rows where something is held."""
        if not alone:
            rows = [row for name in self._holds.nodes() if (row := self._nodes.row(name)) is not None]
            self._marked[rows] = self._barred[rows] = True
        self._kept: dict[int, NDArray[np.int64]] = {}
        self._orders: dict[tuple[int, int], list[int]] = {}
        self.held: list[tuple[PodRecord, int]] = []

    def row_for(self, profile: Profile, pod: PodRecord) -> int:
        """Where to hold room for the pod, or -1. Pods of a class are tried in one order, as long as
        what is idle is the same."""
        key = (profile.index, pod.cls.id)
        rows = self._orders.get(key) if pod.pinned_node is None and not self._unfit(pod) else None
        if rows is None:
            rows = self._ordered(profile, pod)
            self._orders[key] = rows
        while rows and not self._fits(pod, rows[0]):
            del rows[0]
        return rows[0] if rows else -1

    def is_held(self, row: int) -> bool:
        return bool(self._barred[row])

    def hold(self, pod: PodRecord, row: int) -> None:
        self.held.append((pod, row))
        self._marked[row] = self._barred[row] = True
        takes = self._feasibility.takes(pod.cls)
        for slot, kept in self._kept.items():
            kept[row] += takes.get(slot, 0)

    def take(self, row: int) -> None:
        """The pod has its place on the row; what was worked out is out of date."""
        self._marked[row] = True
        self._kept.clear()
        self._orders.clear()

    def _unfit(self, pod: PodRecord) -> list[int]:
        rows = map(self._nodes.row, self._holds.unfit(pod))
        return [row for row in rows if row is not None]

    def _ordered(self, profile: Profile, pod: PodRecord) -> list[int]:
        feasibility = self._feasibility
        among = feasibility.rows(pod) & self._open
        for slot, amount in feasibility.takes(pod.cls).items():
            among &= self._keeps(slot, pod) + amount <= feasibility.offered(slot)
        among[self._unfit(pod)] = False
        more = self._most - int(self._marked.sum())
        return self._reserving.ordered(profile, pod, among, self._marked, more)

    def _fits(self, pod: PodRecord, row: int) -> bool:
        if not self._marked[row] and int(self._marked.sum()) >= self._most:
            return False
        feasibility = self._feasibility
        return all(
            self._keeps(slot, pod)[row] + amount <= feasibility.offered(slot)[row]
            for slot, amount in feasibility.takes(pod.cls).items()
        )

    def _keeps(self, slot: int, pod: PodRecord) -> NDArray[np.int64]:
        """What of every row is held, or the job has there itself, or never ends."""
        known = self._kept.get(slot)
        if known is not None:
            return known
        kept: NDArray[np.int64]
        nodes, besides = self._nodes, [(other.cls, row) for other, row in self.held]
        kept = (nodes.reserved[slot] + nodes.daemon_requested[slot])[: nodes.size].copy()
        if self._alone:
            kept = kept - self._holds.held(slot)
        else:
            besides += self._wanted()
        if pod.job is not None:
            besides += [(p.cls, p.row) for p in pod.job.placed() if not p.cls.is_daemon]
        for cls, row in besides:
            kept[row] += self._feasibility.takes(cls).get(slot, 0)
        self._kept[slot] = kept
        return kept

    def _wanted(self) -> list[tuple[PodClass, int]]:
        """What is going to be held and is not yet."""
        found = []
        for wanted in self._holds.wanted.values():
            other, at = self._cluster.pods.get(wanted.pod), self._nodes.row(wanted.node)
            if other is not None and at is not None:
                found.append((other.cls, at))
        return found


# How well what is idle on a node goes with what a task asks for.
#
#     one resource    100 - 100 required / idle     where it fits
#                     100 idle / required - 100     where it does not
#     a node          ((cpu + memory) / 2 + 2 scalars) / 3
#
# Nothing idle counts as 0, and so does a resource not asked for. `scalars` is the mean over the other
# resources that are. An exact fit scores 0, more room more, up to 100; less room less, down to -100.


Scores = NDArray[np.float64]

_NOT_SCALAR = frozenset((CPU, MEMORY, PODS, NONZERO_CPU, NONZERO_MEMORY))


def resource_score(required: int, idle: NDArray[np.int64]) -> Scores:
    """Of one resource."""
    if required <= 0:
        return np.zeros(len(idle))
    room = np.maximum(idle, 0).astype(np.float64)
    fits = room >= required
    more = 100.0 - 100.0 * required / np.where(fits, room, 1.0)
    less = 100.0 * room / required - 100.0
    return np.where(fits, more, less)


def node_score(cls: PodClass, idle: Callable[[int], NDArray[np.int64]], nodes: int) -> Scores:
    """Of every node; `idle` is asked by slot."""
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
#
# A starvation hold is a pre-allocation made from its pod, so a node is feasible for it if such a
# reserve pod passes its filters there: they look at the node as if the pods that end by themselves were
# gone. This is the one rule about nodes. Choosing a node (`Search`) and keeping a hold where it is
# (`HoldCare`) both ask it, the latter as if the hold, and those that come after it, were not there: so
# a hold that was just made is never found to be infeasible, unless something else happened.


Ints = NDArray[np.int64]


class HoldFeasibility:
    def __init__(self, cluster: Cluster, cycle: Cycle, profiles: Mapping[str, Profile]) -> None:
        self._cluster = cluster
        self._nodes = cluster.nodes
        self._cycle = cycle
        self._profiles = profiles
        self._nobody: OwnerSpec | None = None
        self._classes: dict[int, PodClass] = {}
        """The classes of reserve pods made from pods, by the class of those."""
        cluster.classes.on_dropped.append(self._class_dropped)

    def rows(self, pod: PodRecord) -> Bools:
        """The rows that pass every filter but the one on amounts; see `takes` and `offered`."""
        if self.no_use(pod):
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

    def no_use(self, pod: PodRecord) -> str:
        """Why the pod would use no hold, wherever it is; empty if it would."""
        reservations = self._cluster.reservations
        if pod.cls.labels.get(RESERVATION_IGNORED) == "true":
            return "ignores reservations"
        if not reservations.affinity(pod.cls).takes_new(reservations.by_name(pod.cls.requests)):
            return "must use another reservation"
        return ""

    def takes(self, cls: PodClass) -> Amounts:
        """What a hold for a pod of the class takes of a node, by slot: resources and limits."""
        amounts = cls.amounts
        cls.limits.hold(amounts)
        scored = {each.scored for each in self._cluster.classes.counted.values()}
        limited = {each.slot for each in self._cluster.classes.counted.values()}
        return {s: amount for s, amount in amounts.items() if s not in scored or s in limited}

    def offered(self, slot: int) -> Ints:
        """How much of a slot every row has for holds and pods that never end; not to be written to."""
        if self._nodes.slots.name(slot):
            return self._nodes.allocatable[slot, : self._nodes.size]
        return self._cluster.limits.ceiling(slot)

    def obstacle(self, reservation: ReservationInfo, pod: PodRecord, row: int) -> str:
        """Why a hold cannot stay on its row; empty if it can."""
        nodes = self._nodes
        name = nodes.name(row)
        if reservation.node_gone or not nodes.alive[row]:
            return f"node {name} is gone"
        if why := self.no_use(pod):
            return f"its pod {why}"
        column = self._column(pod)
        behind = [other for other in self._cluster.jobs.holds.on(row) if reservation.is_before(other)]
        with self._cluster.ledger.peek():
            self._release([reservation, *behind])
            for slot, amount in self.takes(pod.cls).items():
                kept = nodes.reserved.item(slot, row) + nodes.daemon_requested.item(slot, row)
                if kept + amount > self.offered(slot).item(row):
                    return f"node {name} will never have the room"
            if not self._passes(column, pod, row):
                return f"node {name} does not suit its pod any more"
        return ""

    def _release(self, reservations: Iterable[ReservationInfo]) -> None:
        for each in reservations:
            if each.pod is not None and each.pod.row >= 0:
                self._cluster.ledger.release(each.pod)

    def _passes(self, column: ClassColumn, pod: PodRecord, row: int) -> bool:
        name, view = self._nodes.name(row), One(self._nodes, row)
        return (
            column.rejected is None
            and (pod.pinned_node is None or pod.pinned_node == name)
            and all(
                (test.only is None or name in test.only)
                and (kind in (NODE_RESOURCES_FIT, STARVATION_FILTER) or bool(test.passes(view)))
                for kind, test in column.guarded_filters
            )
        )

    def _column(self, pod: PodRecord) -> ClassColumn:
        return self._cycle.column(self._profiles[pod.scheduler], self._class(pod))

    def _class(self, pod: PodRecord) -> PodClass:
        """The class a hold for the pod would have, but for the node it names."""
        classes, known = self._cluster.classes, self._classes.get(pod.cls.id)
        if known is None or not classes.once_more(known):
            if self._nobody is None:
                self._nobody = self._cluster.reservations.specs.acquire([])
            traits = Traits(owner_spec_id=self._nobody.id, pre_allocation=True)
            known = classes.acquire(reserve_pod(starvation_hold(pod, "", "")), traits)
            self._classes[pod.cls.id] = known
        classes.release(known)
        return known

    def _class_dropped(self, cls: PodClass) -> None:
        self._classes.pop(cls.id, None)


def suitable(cluster: Cluster, column: ClassColumn) -> Bools:
    """The rows that pass all of a column's filters, but for amounts and what is held for others."""
    nodes = cluster.nodes
    if column.rejected is not None:
        return np.zeros(nodes.size, dtype=np.bool_)
    view = All(nodes)
    rows = nodes.alive[: nodes.size].copy()
    for name, test in column.guarded_filters:
        if test.only is not None:
            rows &= np.array([nodes.name(row) in test.only for row in range(nodes.size)])
        if name not in (NODE_RESOURCES_FIT, STARVATION_FILTER):
            rows &= np.asarray(test.passes(view) & view.full(True))
    return rows
