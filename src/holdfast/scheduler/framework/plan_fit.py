"""How a planned reservation fits a node at its start, beside the other plans that stand.

    True      what is expected to have ended by the start leaves enough
    Unknown   enough only if pods without a known end will have ended
    False     not even then

What a pod has from a reservation that is reusable and lasts longer than until the start returns to the
reservation when the pod ends: then the reservation is in the way, not the pod.

Enough means amounts, limits, and the particular resources it requests: host ports, CPUs, devices and
volumes. With `Preempt` it is also enough if pods of lower priority are evicted; it is Unknown whether
those will be that PodDisruptionBudgets protect now.
"""

import math
from collections.abc import Collection, Iterable
from typing import NamedTuple

from holdfast.api import names
from holdfast.api.calendar import BeforeStart
from holdfast.api.plurals import plural
from holdfast.api.quantity import shown
from holdfast.api.times import format_time
from holdfast.scheduler.cluster.records import PodRecord
from holdfast.scheduler.cluster.reservation_usage import ReservationUsage, Step, UsageStates
from holdfast.scheduler.cluster.slots import Amounts, Pairs
from holdfast.scheduler.jobs.capacity_planner import CapacityPlanner
from holdfast.scheduler.jobs.node_forecast import SHARED_BY_NODES
from holdfast.scheduler.reservations.calendar import PlannedReservation
from holdfast.scheduler.state.cluster import Cluster

_CRITICAL = 2_000_000_000
"""The least priority of pods that are critical for the cluster."""
_NAMED = 3
"""How many pods a message names."""


class Standing:
    """The plans that stand, by node."""

    def __init__(self, cluster: Cluster, plans: Iterable[PlannedReservation] = ()) -> None:
        self._cluster = cluster
        self._by_node: dict[str, list[PlannedReservation]] = {}
        self._all: list[tuple[int, float, float, PlannedReservation]] = []
        """With the rows of their nodes, their starts and ends."""
        self._known: set[PlannedReservation] = set()
        for planned in plans:
            self.add(planned, planned.node)

    def add(self, planned: PlannedReservation, node: str) -> None:
        """Adds a plan for a node; without a node it is none."""
        row = self._cluster.nodes.row(node) if node else None
        if row is not None:
            self._by_node.setdefault(node, []).append(planned)
            self._all.append((row, planned.start, planned.end, planned))
            self._known.add(planned)

    def victims(self, beside: PlannedReservation) -> list[PodRecord]:
        """The pods that are evicted for the other plans."""
        return [pod for *_, each in self._all if each is not beside for pod in each.victims]

    def copy(self) -> "Standing":
        copied = Standing(self._cluster)
        copied._by_node = {node: list(plans) for node, plans in self._by_node.items()}
        copied._all, copied._known = list(self._all), set(self._known)
        return copied

    def beside(self, planned: PlannedReservation, row: int) -> list[PlannedReservation]:
        """The other plans on a row."""
        there = self._by_node.get(self._cluster.nodes.name(row), ())
        return [each for each in there if each is not planned]

    def overlapping(self, planned: PlannedReservation) -> dict[int, list[PlannedReservation]]:
        """The other plans that overlap with one in time, by row."""
        start, end = planned.start, planned.end
        found: dict[int, list[PlannedReservation]] = {}
        for row, its_start, its_end, each in self._all:
            if its_start < end and start < its_end and each is not planned:
                found.setdefault(row, []).append(each)
        return found

    def since(self, count: int) -> list[tuple[int, float, float, PlannedReservation]]:
        """The plans that were added after the first `count`: row, start, end and plan."""
        return self._all[count:]

    @property
    def count(self) -> int:
        return len(self._all)

    def __contains__(self, planned: PlannedReservation) -> bool:
        return planned in self._known


class PlanFit(NamedTuple):
    """How a planned reservation fits a node."""

    feasible: str
    message: str


class WaitedPods(NamedTuple):
    """Pods without a known end, of which some must end for a plan."""

    helping: list[PodRecord]
    """Those that have some of what it lacks."""
    enough: list[PodRecord]
    """The fewest of them that together have all of it, by taking the largest first."""


class PodEnds:
    """What becomes free as pods without a known end have ended by a time, one after the other. What
    they have from a reservation that stays returns to it, so that only what its pods have beyond what
    it reserves becomes free."""

    def __init__(self, planner: CapacityPlanner, usage_states: UsageStates, time: float) -> None:
        self._planner = planner
        self._usage_states = usage_states
        self._time = time
        self._usage: dict[str, ReservationUsage] = {}
        """The usage of reservations by the pods that are left, by uid."""

    def freed(self, pod: PodRecord) -> Pairs:
        """What the end of another pod frees."""
        step = self._step(pod)
        return pod.cls.usage if step is None else step.freed

    def end(self, pod: PodRecord) -> Pairs:
        """Ends another pod; returns what that frees."""
        step = self._step(pod)
        if step is None:
            return pod.cls.usage
        self._usage[pod.reservation_uid] = step.usage
        return step.freed

    def _step(self, pod: PodRecord) -> Step | None:
        """The end of a pod whose capacity returns to a reservation."""
        entry = self._planner.returns_to(pod, self._time)
        if entry is None:
            return None
        usage = self._usage.get(pod.reservation_uid)
        if usage is None:
            usage = self._usage[pod.reservation_uid] = self._planner.usage_at(entry, self._time)
        return self._usage_states.step(usage, pod.cls, -1)


class PlanFits:
    """Compares plans with what nodes will have."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._nodes = cluster.nodes
        self._limits = cluster.limits
        self._planner = cluster.jobs.planner
        self._holds = cluster.reservations.starvation_holds

    def on(self, planned: PlannedReservation, row: int, standing: Standing) -> PlanFit:
        """How the plan fits a row, with figures if it may not."""
        node, short = self._nodes.name(row), self.shortage(planned, row, standing)
        lacks = self._lacking(planned, row, standing)
        if not short and not lacks:
            return PlanFit("True", "")
        if planned.reservation.calendar.before == BeforeStart.PREEMPT:
            victims, refused = self._preemptible(planned, row, standing)
            if self._is_enough(planned, row, standing, victims):
                return PlanFit("True", _evicts(planned, victims))
            if refused and self._is_enough(planned, row, standing, [*victims, *refused]):
                needed = self.victims(planned, row, standing)
                figures = self._figures(planned, short, lacks)
                protected = [pod for pod in refused if pod in needed] or refused
                return PlanFit("Unknown", f"{node}: {figures}, unless {_are_evicted(protected)}")
        figures = self._figures(planned, short, lacks)
        ends = self.ends_by(planned.start)
        may_end = _covers(short, self.without_known_end(row), ends)
        if may_end and self.has_particular(planned, row, standing, self.may_end(planned, row)):
            waited = self._waited_for(planned, row, standing, short, lacks)
            return PlanFit("Unknown", f"{node}: {figures}, unless {_ends_of(waited)}")
        late = self._in_the_way(planned, row, short, lacks)
        return PlanFit("False", f"{node}: {figures}" + "".join(f"; {text}" for text in late[:_NAMED]))

    def _in_the_way(
        self, planned: PlannedReservation, row: int, short: Amounts, lacks: list[str]
    ) -> list[str]:
        """What has some of what is missing at the start, in the order in which it ends: pods with a
        known end, and reservations."""
        releases = self._planner.releases(row)
        if lacks:
            releases += self._planner.releases_elsewhere(planned, row)
        found = [
            (each.time, f"{each.pod.ref.name} runs until {format_time(each.time)}")
            for each in releases
            if each.pod is not None
            and each.time > planned.start
            and self._helps(planned, row, short, lacks, each.pod)
        ]
        for entry in self._planner.staying(row, planned.start):
            reservation, amounts = entry.reservation, entry.amounts
            if reservation.waiting and self._holds.knows(reservation):
                continue  # it comes after reservations with a start
            has_amounts = any(lack > 0 and amounts.get(slot, 0) > 0 for slot, lack in short.items())
            if has_amounts or (lacks and self._planner.shares(planned, entry.pod.cls, row)):
                expires = reservation.expires
                until = "does not expire" if expires is None else f"lasts until {format_time(expires)}"
                end = math.inf if expires is None else expires
                found.append((end, f"reservation {reservation.name} {until}"))
        return [text for _, text in sorted(found)]

    # Amounts

    def shortage(
        self, planned: PlannedReservation, row: int, standing: Standing, at_once: bool = False
    ) -> Amounts:
        """What will be missing on a row, by slot: at the start of the plan, or at the start of another
        plan while it lasts, with what is expected to have ended by then. With `at_once` other plans
        take at the start of this one what they take later: what pods have that end in between is not
        counted on, since they may be the ones that are evicted."""
        beside = standing.beside(planned, row)
        others = [each for each in beside if each.overlaps(planned.start, planned.end)]
        releases = self._planner.releases(row)
        taken: Amounts = {}
        if others and at_once:
            taken = self._planner.most_taken(others, planned.start)
        elif others:
            taken = self._planner.most_missing(others, planned.start, releases)
        outranked, limits = self._holds.outranked_on(row), self._limits
        short = {
            slot: amount + taken.get(slot, 0) - limits.free_on(slot, row) - outranked.get(slot, 0)
            for slot, amount in self._planner.wanted(planned).items()
        }
        for release in releases:
            if release.time <= planned.start:
                for slot, amount in release.amounts:
                    if slot in short:
                        short[slot] -= amount
        return {slot: amount for slot, amount in short.items() if amount > 0}

    def fits_once_pods_end(self, planned: PlannedReservation, row: int) -> bool:
        """Whether the row can have the reservation now, or once pods that are in its way have ended.
        Between it and other plans was decided when they were made."""
        nodes, outranked = self._nodes, self._holds.outranked_on(row)
        has_amounts = all(
            nodes.held_once_pods_end.item(slot, row)
            + nodes.daemon_requested.item(slot, row)
            - outranked.get(slot, 0)
            + amount
            <= self._limits.capacity_on(slot, row)
            for slot, amount in self._planner.wanted(planned).items()
        )
        alone = Standing(self._cluster)
        return has_amounts and self.has_particular(planned, row, alone, self._planner.ending(row))

    # Particular resources

    def has_particular(
        self,
        planned: PlannedReservation,
        row: int,
        standing: Standing,
        without: Collection[PodRecord] = (),
    ) -> bool:
        """Whether the plan gets its particular resources on a row, and leaves those of other plans to
        them. The pods in `without` count as gone."""
        return not self._lacking(planned, row, standing, without)

    def _lacking(
        self,
        planned: PlannedReservation,
        row: int,
        standing: Standing,
        without: Collection[PodRecord] = (),
    ) -> list[str]:
        """The particular resources that it will lack, or that another plan lacks because of it."""
        kinds = self._planner.kinds(planned, row)
        if not kinds:
            return []
        others = standing.beside(planned, row)
        elsewhere = standing.overlapping(planned) if kinds & SHARED_BY_NODES else {}
        unmet = self._planner.unmet(row, [*others, planned], without, elsewhere=elsewhere)
        own = [each.lacks for each in unmet if each.planned is planned]
        if own or not unmet:
            return own[0] if own else []
        without_it = self._planner.unmet(row, others, without, elsewhere=elsewhere)
        anyway = {each.planned for each in without_it}
        return [
            f"{what} for {each.planned.reservation.ref}"
            for each in unmet
            if each.planned not in anyway
            for what in each.lacks
        ]

    # Pods in the way

    def without_known_end(self, row: int) -> list[PodRecord]:
        """The pods on a row that can end, and of which is not known when."""
        releases = self._planner.releases(row)
        known = {each.pod.uid for each in releases if each.pod is not None}
        return [pod for pod in self._planner.ending(row) if pod.uid not in known]

    def may_end(self, planned: PlannedReservation, row: int) -> list[PodRecord]:
        """The pods on a row that can end, and of which is not known when, and those on other rows that
        use a claim of the reservation which only one pod can use."""
        users = self._planner.users_elsewhere(planned, row)
        if not users:
            return self.without_known_end(row)
        known = {
            each.pod.uid
            for each in self._planner.releases_elsewhere(planned, row)
            if each.pod is not None
        }
        away = [
            pod
            for pod in users
            if pod.reservation is None and not pod.cls.is_daemon and pod.uid not in known
        ]
        return [*self.without_known_end(row), *away]

    def ends_by(self, time: float) -> PodEnds:
        return PodEnds(self._planner, self._cluster.ledger.reservations.usage_states, time)

    def waited_for(self, planned: PlannedReservation, row: int, standing: Standing) -> WaitedPods:
        """The pods without a known end that have some of what the plan lacks on a row."""
        short, lacks = self.shortage(planned, row, standing), self._lacking(planned, row, standing)
        return self._waited_for(planned, row, standing, short, lacks)

    def _waited_for(
        self,
        planned: PlannedReservation,
        row: int,
        standing: Standing,
        short: Amounts,
        lacks: list[str],
    ) -> WaitedPods:
        unknown, ends = self.may_end(planned, row), self.ends_by(planned.start)
        helping = [pod for pod in unknown if self._helps(planned, row, short, lacks, pod)]
        if lacks and not self.has_particular(planned, row, standing, helping):
            # A pod may have more particular resources than the reservation that it uses.
            shares = self._planner.shares
            helping += [p for p in unknown if p not in helping and shares(planned, p.cls, row)]
        helping = helping or unknown  # of a pod that was bound when first seen less is known

        def order(pod: PodRecord) -> tuple[float, str, str]:
            return -_share_of(ends.freed(pod), short), pod.namespace, pod.name

        largest = sorted(helping, key=order)
        return WaitedPods(helping, self._enough(planned, row, standing, largest, short))

    def _helps(
        self, planned: PlannedReservation, row: int, short: Amounts, lacks: list[str], pod: PodRecord
    ) -> bool:
        """Whether the end of the pod frees some of what is missing."""
        freed = self.ends_by(planned.start).freed(pod)
        if pod.row == row and any(short.get(slot, 0) > 0 and amount > 0 for slot, amount in freed):
            return True
        if not lacks or not self._planner.shares(planned, pod.cls, row):
            return False
        entry = self._planner.returns_to(pod, planned.start)
        return entry is None or not self._planner.shares(planned, entry.pod.cls, row)

    def _is_enough(
        self, planned: PlannedReservation, row: int, standing: Standing, victims: list[PodRecord]
    ) -> bool:
        """Whether the plan has what it needs on a row without these pods."""
        short = self.shortage(planned, row, standing, at_once=True)
        is_covered = _covers(short, victims, self.ends_by(planned.start))
        return is_covered and self.has_particular(planned, row, standing, victims)

    def _preemptible(
        self, planned: PlannedReservation, row: int, standing: Standing
    ) -> tuple[list[PodRecord], list[PodRecord]]:
        """The pods on a row that may be evicted for the reservation, least important first: of lower
        priority, and not expected to have ended by its start. Pods that are critical for the cluster
        only if the reservation states a higher priority; not pods whose capacity would return to a
        reservation. Apart from them, those that PodDisruptionBudgets protect now."""
        pod = planned.reservation.pod
        priority = pod.cls.priority if pod is not None else 0
        if priority == names.UNSET_RESERVATION_PRIORITY:
            priority = _CRITICAL
        table = self._cluster.ledger.reservations
        ends = {e.pod.uid: e.time for e in self._planner.releases(row) if e.pod is not None}
        found = [
            each
            for each in self._planner.ending(row)
            if each.cls.priority < priority
            and not each.cls.non_preemptible
            and not (each.reservation_uid and table.get(each.reservation_uid) is not None)
            and ends.get(each.uid, math.inf) > planned.start
        ]
        found = self._cluster.jobs.victims.preemptible_together(found, priority)
        found = sorted(found, key=lambda each: (each.cls.priority, -each.since, each.uid))
        refused = self._planner.refused(found, standing.victims(planned))
        return [pod for pod in found if pod not in refused], refused

    def victims_of_plan(
        self, planned: PlannedReservation, row: int, standing: Standing
    ) -> list[PodRecord]:
        """As `victims`; none without `Preempt`, or if it has not what it needs even without them."""
        if planned.reservation.calendar.before != BeforeStart.PREEMPT:
            return []
        allowed, refused = self._preemptible(planned, row, standing)
        if not self._is_enough(planned, row, standing, [*allowed, *refused]):
            return []
        return self.victims(planned, row, standing)

    def victims(self, planned: PlannedReservation, row: int, standing: Standing) -> list[PodRecord]:
        """The pods that have to go for the reservation, no more than are needed."""
        short = self.shortage(planned, row, standing)
        if short:
            short = self.shortage(planned, row, standing, at_once=True)
        allowed, refused = self._preemptible(planned, row, standing)
        return self._enough(planned, row, standing, [*allowed, *refused], short)

    def _enough(
        self,
        planned: PlannedReservation,
        row: int,
        standing: Standing,
        pods: list[PodRecord],
        short: Amounts,
    ) -> list[PodRecord]:
        """Of these pods, the first first, no more than have what the plan lacks."""
        there = [pod for pod in pods if pod.row == row]
        chosen = _enough_of(there, short, self.ends_by(planned.start))
        if self.has_particular(planned, row, standing, chosen):
            return chosen
        more = [pod for pod in pods if pod not in chosen]
        for pod in reversed(more):
            spared = [each for each in more if each is not pod]
            if self.has_particular(planned, row, standing, [*chosen, *spared]):
                more = spared
        enough = self.has_particular(planned, row, standing, [*chosen, *more])
        return [*chosen, *more] if enough else chosen

    def victims_of_started(self, planned: PlannedReservation, row: int) -> list[PodRecord]:
        """The pods that have to go for a reservation that has started and waits on the row. For
        particular resources one at a time."""
        allowed, refused = self._preemptible(planned, row, Standing(self._cluster))
        preemptible = [*allowed, *refused]
        short = self._cluster.reservations.waiting.shortage(planned.reservation)
        if short:
            return _enough_of(preemptible, short, self.ends_by(planned.start))
        return [pod for pod in preemptible if self._planner.shares(planned, pod.cls, row)][:1]

    def waits_for(self, planned: PlannedReservation, row: int) -> str:
        """What a reservation that has started and waits on a row is short of."""
        short = self._cluster.reservations.waiting.shortage(planned.reservation)
        lacks = [] if short else ["what it needs"]
        return f"{self._nodes.name(row)}: {self._figures(planned, short, lacks)}"

    def _figures(self, planned: PlannedReservation, short: Amounts, lacks: list[str]) -> str:
        """What is missing at the start, such as `3 cpu short and ports not free at …`."""
        named = [(self._limits.name(slot), amount) for slot, amount in sorted(short.items())]
        amounts = ", ".join(f"{shown(name.split()[0], amount)} {name}" for name, amount in named)
        parts = [f"{amounts} short"] if amounts else []
        parts += [f"{', '.join(lacks)} not free"] if lacks else []
        return f"{' and '.join(parts)} at {format_time(planned.start)}"


def _enough_of(pods: list[PodRecord], short: Amounts, ends: PodEnds) -> list[PodRecord]:
    """As many of these pods, in order, as free what is missing."""
    chosen, left = [], dict(short)
    for pod in pods:
        if all(lack <= 0 for lack in left.values()):
            break
        if any(left.get(slot, 0) > 0 and amount > 0 for slot, amount in ends.freed(pod)):
            chosen.append(pod)
            for slot, amount in ends.end(pod):
                if slot in left:
                    left[slot] -= amount
    return chosen


def _covers(short: Amounts, pods: list[PodRecord], ends: PodEnds) -> bool:
    """Whether the ends of these pods free as much as is missing."""
    left = dict(short)
    for pod in pods:
        for slot, amount in ends.end(pod):
            if slot in left:
                left[slot] -= amount
    return all(lack <= 0 for lack in left.values())


def _evicts(planned: PlannedReservation, victims: list[PodRecord]) -> str:
    drains = format_time(planned.reservation.calendar.drains_at)
    are = plural(len(victims), "it is", "they are")
    return f"evicts {_names(victims)} from {drains} on, as far as {are} in the way"


def _are_evicted(pods: list[PodRecord]) -> str:
    """`default/a is evicted, which a PodDisruptionBudget does not allow now`."""
    are = plural(len(pods), "is evicted", "are evicted")
    return f"{_names(pods)} {are}, which a PodDisruptionBudget does not allow now"


def _ends_of(waited: WaitedPods) -> str:
    """`default/a ends by then`; `enough of default/a, default/b end by then, such as default/a`."""
    helping, enough = waited
    if len(enough) == len(helping):
        return f"{_names(helping)} {plural(len(helping), 'ends', 'end')} by then"
    return f"enough of {_names(helping)} end by then, such as {_names(enough)}"


def _share_of(freed: Pairs, short: Amounts) -> float:
    """How much this is of what is missing."""
    return sum(min(amount / short[slot], 1.0) for slot, amount in freed if slot in short)


def _names(pods: list[PodRecord]) -> str:
    names = [f"{pod.namespace}/{pod.name}" for pod in pods[:_NAMED]]
    more = f" and {len(pods) - _NAMED} more" if len(pods) > _NAMED else ""
    return ", ".join(names) + more
