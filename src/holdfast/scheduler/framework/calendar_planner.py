"""Plans nodes for reservations that start later, drains them, and starts the reservations.

A plan is made when a reservation is first seen and made again while it is not draining, whenever its
node can no longer have it: the node is gone or infeasible, pods there are expected to end later, or a
reservation of higher priority takes the capacity. From `start - lead` on the plan is kept as long as
its node can have it once pods have ended. At the start the reservation is scheduled: on its planned
node if it can be, else on another node that leaves the other plans what they need. One that has no
node then is late: it is queued, and started as above once the queue has none for it but this has.
`Preempt` evicts pods from `start - lead` on until the reservation is Available.

The rest of a job whose start was interrupted comes before a plan is made and before a reservation
starts elsewhere than planned: after a restart, that would take the capacity which it had been assigned.

How a plan fits a node is in `plan_fit`, which node is best in `plan_search`. Plans that drain a node
and are certain come first, the others in the order of priority, then age. A gang of reservations is
planned and started as a whole or not at all, together with the gangs that it names as its partners.
"""

import math
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping

from holdfast.api.calendar import BeforeStart
from holdfast.api.times import format_time
from holdfast.scheduler.cluster.decisions import Decision, Emit, Evict
from holdfast.scheduler.cluster.records import Phase, PodRecord
from holdfast.scheduler.framework.gangs import Gangs
from holdfast.scheduler.framework.plan_fit import PlanFit, PlanFits, Standing
from holdfast.scheduler.framework.plan_questions import PlanQuestions
from holdfast.scheduler.framework.plan_search import PlanSearch
from holdfast.scheduler.framework.preemption import Preemption
from holdfast.scheduler.framework.profile import Profile
from holdfast.scheduler.framework.scheduling_cycle import SchedulingCycle, Statement
from holdfast.scheduler.framework.scheduling_queue import SchedulingQueue
from holdfast.scheduler.jobs import Job
from holdfast.scheduler.jobs.node_forecast import planning_order
from holdfast.scheduler.reservations.calendar import Calendar, PlannedReservation
from holdfast.scheduler.state.cluster import Cluster

MISSED = "StartMissed"
"""The reason of the event about a reservation that does not have its capacity at its start."""
_NOT_TOGETHER = "its gang fits no nodes together, though each of its members fits one"
_EVICT_AGAIN = 5.0
"""Seconds until an eviction that was refused is tried again."""


class CalendarPlanner:
    """Keeps the plans of the calendar."""

    def __init__(
        self,
        cluster: Cluster,
        queue: SchedulingQueue,
        cycle: SchedulingCycle,
        gangs: Gangs,
        preemption: Preemption,
        profiles: Mapping[str, Profile],
        pending: Callable[[PodRecord], None],
    ) -> None:
        """`pending` queues a reserve pod."""
        self._cluster = cluster
        self._nodes = cluster.nodes
        self._calendar: Calendar = cluster.reservations.calendar
        self._planner = cluster.jobs.planner
        self._fits = PlanFits(cluster)
        self._search = PlanSearch(cluster, gangs, profiles, self._fits)
        self.questions = PlanQuestions(cluster, self._search, self._fits)
        self._queue = queue
        self._cycle = cycle
        self._gangs = gangs
        self._preemption = preemption
        self._profiles = profiles
        self._pending = pending
        self._seen: Hashable = None
        self._rows_seen = -1, -1
        self._are_certain = False
        """Whether all plans are."""
        self._stood: list[PlannedReservation] = []
        """The plans in the order in which they were last checked, each beside those before it."""
        self._elsewhere: list[PlannedReservation] = []
        """The plans for which it matters what happens on other nodes than their own."""
        self._next_end = math.inf
        """When an expectation about a planned node may turn out wrong."""
        self._late_seen: Hashable = None
        """What it depends on whether those start that the queue has no node for."""
        self._next_release = math.inf
        """When such a reservation may be started because a pod has not ended as expected."""
        self._asked: dict[str, float] = {}
        """When the eviction of a pod was last decided, by its uid."""

    @property
    def is_needed(self) -> bool:
        """Whether there are plans, late reservations, or started ones for which pods are evicted."""
        preempting = self._cluster.reservations.waiting.preempting
        return bool(self._calendar) or bool(preempting) or bool(self._calendar.late_uids)

    def next_timer(self, retries: bool = True) -> float | None:
        """The next start, or begin of draining; or when a pod on a planned node should have ended, or
        with `retries`, when a refused eviction is tried again."""
        if not self.is_needed:
            return None
        times = [each.start for each in self._calendar]
        times += [each.reservation.calendar.drains_at for each in self._calendar if not each.draining]
        times += [
            self._next_end,
            self._next_release,
            *(asked + _EVICT_AGAIN for asked in self._asked.values() if retries),
        ]
        now = self._cluster.now
        return min((time for time in times if time > now), default=None)

    def run(self, now: float) -> list[Decision]:
        """Starts and drains what is due, and makes plans again that changes may concern."""
        decisions = self._start(now)
        for planned in self._calendar:
            if not planned.draining and planned.reservation.calendar.drains_at <= now:
                self._calendar.drain(planned)
                self._dirty(planned)
                if planned.node and planned.reservation.calendar.lead:
                    text = f"{planned.node} takes only what ends by {format_time(planned.start)}"
                    decisions.append(_event(planned, "Draining", text))
        self._gangs.finish_starts(now)
        decisions += self._update(now)
        if self._start_late(now):
            decisions += self._update(now)
        self._evict_for_started(now)
        self._asked = {uid: at for uid, at in self._asked.items() if at + _EVICT_AGAIN > now}
        return decisions

    def _update(self, now: float) -> list[Decision]:
        """Makes plans again unless all stand."""
        if self._is_up_to_date(now):
            return []
        with self._search.memoized():
            decisions = self._plan(now)
        self._seen, self._rows_seen = self._state(), self._rows_changed()
        self._are_certain = all(each.feasible == "True" for each in self._calendar)
        self._elsewhere = [each for each in self._calendar if self._search.looks_elsewhere(each)]
        return decisions

    def _state(self) -> Hashable:
        """Versions of what plans depend on, but for what happens on rows."""
        epoch, claims = self._cluster.epoch, self._cluster.claims
        return (
            self._calendar.revision,
            epoch.nodes.end,
            epoch.run_estimates,
            epoch.objects,
            claims.shared_changes,
            self._planner.evicted_at_end(),
            tuple(self._lacking_members()),
        )

    def _lacking_members(self) -> Iterator[str]:
        """What the gangs of planned reservations lack, with all reservations that are planned."""
        planned = [each for each in self._calendar if _is_member(each)]
        for job in self._jobs_of(planned) if planned else ():
            yield job.lacks(_reserve_pods(planned, job)) if job.is_known else str(job.name)

    def _rows_changed(self) -> tuple[int, int]:
        return self._cluster.epoch.usage.end, self._cluster.epoch.pod_starts.end

    def _is_up_to_date(self, now: float) -> bool:
        """Whether no plan has to be made again. If pods only came and went, certain plans stand as long
        as they fit their own nodes."""
        if self._state() != self._seen or self._next_end <= now or self._asked:
            return False
        if self._rows_changed() == self._rows_seen:
            return True
        if not self._are_certain:
            return False
        usage, starts = self._rows_seen
        epoch = self._cluster.epoch
        logs = epoch.usage.since(usage), epoch.pod_starts.since(starts)
        if logs[0] is None or logs[1] is None:
            return False
        rows = {*logs[0].tolist(), *logs[1].tolist()}
        rows = {row for row in rows if self._calendar.has(row)}
        concerned = {*self._elsewhere, *(each for row in rows for each in self._calendar.on(row))}
        standing = Standing(self._cluster)
        for planned in self._stood if concerned else ():
            if planned in concerned:
                if self._fit(planned, standing) != (planned.feasible, planned.message):
                    return False
                self._note_next_end(planned)
            standing.add(planned, planned.node)
        self._rows_seen = self._rows_changed()
        return True

    # Starts

    def _start(self, now: float) -> list[Decision]:
        """Takes reservations that start now out of the calendar, and schedules them, gangs as a
        whole. Reports those that do not have their capacity."""
        decisions: list[Decision] = []
        due = sorted((each for each in self._calendar if each.start <= now), key=planning_order)
        for planned in due:
            self._calendar.drop(planned.reservation.uid)
            planned.reservation.started = True
            self._dirty(planned)
        # A certain plan that drains its node is kept, whatever comes later with a higher priority.
        units = self._units(due)
        units.sort(
            key=lambda members: (
                not any(each.is_frozen for each in members),
                bool(self._named_by(members)),
            )
        )
        kept = [
            members
            for members in units
            if any(each.is_frozen for each in members) and self._start_as_planned(members, now)
        ]
        if len(kept) < len(units):
            self._gangs.finish_starts(now)
        for members in units:
            has_started = members in kept or self._start_as_planned(members, now)
            has_started = has_started or self._start_elsewhere(members, now)
            if not has_started and not self._start_with_late(members, now):
                for planned in members:
                    self._calendar.note_late(planned.reservation)
                    if planned.reservation.pod is not None:
                        self._pending(planned.reservation.pod)
                    decisions.append(_event(planned, MISSED, _why_missed(planned), "Warning"))
                continue
            for planned in members:
                if planned.reservation.waiting:
                    row = planned.reservation.pod.row if planned.reservation.pod is not None else -1
                    text = self._fits.waits_for(planned, row)
                    decisions.append(_event(planned, MISSED, text, "Warning"))
        return decisions

    def _start_as_planned(self, members: list[PlannedReservation], now: float) -> bool:
        return self._start_on(members, [each.node for each in members], now)

    def _start_with_late(self, members: list[PlannedReservation], now: float) -> bool:
        """Starts members of a gang along with those that had an earlier start and had to wait for them,
        as if all were due now."""
        jobs = self._jobs_of(members)
        if all(job.is_ready for job in jobs):
            return False
        starting = {each.reservation.uid for each in members}
        late, together = [], list(members)
        for each in (pod for job in jobs for pod in job.waiting()):
            of = each.reservation
            if of is None or of.calendar.start is None or not of.started or of.uid in starting:
                continue
            late.append(each)
            together.append(PlannedReservation(of, now, ""))
        if not late or not self._start_elsewhere(sorted(together, key=planning_order), now):
            return False
        self._gangs.take_placed(late)
        return True

    def _start_late(self, now: float) -> bool:
        """Starts late reservations that the queue has no node for, as if they were due now; whether it
        did. The queue takes them for pods that never end, and lets them wait for no ports and disks."""
        units = self._rejected_late(now) if self._calendar.late_uids else []
        if not units:
            self._next_release = math.inf
            return False
        if self._next_release > now and self._state_of_late(units) == self._late_seen:
            return False
        with self._search.memoized():
            placed = self._place_late(units, now)
        self._gangs.take_placed(placed)
        self._late_seen = self._state_of_late(self._rejected_late(now))
        self._next_release = self._planner.next_release()
        return bool(placed)

    def _place_late(self, units: list[list[PlannedReservation]], now: float) -> list[PodRecord]:
        """Starts those that have a node; returns their reserve pods."""
        unsuccessful: dict[Hashable, float] = {}
        placed: list[PodRecord] = []
        standing = Standing(self._cluster, self._calendar)
        for members in units:
            pods = [each.reservation.pod for each in members if each.reservation.pod is not None]
            kind = pods[0].scheduler, pods[0].cls.id, members[0].reservation.calendar.before
            # What one that ends earlier does not get, another one of the kind does not either.
            if members[0].end >= unsuccessful.get(kind, math.inf):
                continue
            nodes = self._nodes_for(members, standing)
            if nodes and self._start_on(members, nodes, now):
                placed += [pod for pod in pods if pod.phase is not Phase.PENDING]
            elif pods[0].job is None:
                unsuccessful[kind] = members[0].end
            if nodes:
                self._search.forget()
        return placed

    def _rejected_late(self, now: float) -> list[list[PlannedReservation]]:
        """The late reservations that the queue found no node for, gangs as a whole."""
        known, found = self._cluster.reservations.known, []
        for uid in list(self._calendar.late_uids):
            late = known.get(uid)
            if late is None or late.pod is None or late.is_planned or late.pod.phase is Phase.ASSIGNED:
                del self._calendar.late_uids[uid]
                continue
            if late.pod.phase is Phase.PENDING and self._is_rejected(late.pod):
                found.append(PlannedReservation(late, now, ""))
        return self._units(sorted(found, key=planning_order))

    def _is_rejected(self, pod: PodRecord) -> bool:
        """Whether the queue found no node for a pod, or for the gang and its partners that it is a
        member of."""
        jobs = self._cluster.jobs
        job = jobs.of(pod)
        queued = [pod]
        if job is not None:
            together = [each for each in jobs.partners(job) if jobs.is_queued_with(each, job)]
            queued = [each.leader for each in together if each.leader is not None]
        places = {self._queue.place(each.uid) for each in queued}
        return "unschedulable" in places and places <= {"unschedulable", "following"}

    def _state_of_late(self, units: list[list[PlannedReservation]]) -> Hashable:
        uids = tuple(each.reservation.uid for members in units for each in members)
        lacking = tuple(
            job.lacks(_reserve_pods(members, job))
            for members in units
            for job in self._jobs_of(members)
        )
        return self._state(), self._rows_changed(), uids, lacking

    def _start_elsewhere(self, members: list[PlannedReservation], now: float) -> bool:
        """Starts the reservations on other nodes than planned, beside the plans that stand. If there
        are none, they are scheduled like other reservations that are pending."""
        with self._search.memoized():
            nodes = self._nodes_for(members, Standing(self._cluster, self._calendar))
        return bool(nodes) and self._start_on(members, nodes, now)

    def _nodes_for(self, members: list[PlannedReservation], standing: Standing) -> list[str]:
        """Nodes for all members beside the plans that stand; none if one has none."""
        for certain in (True, False):
            found = self._search.find(members, standing, certain)
            if found is not None:
                return [self._nodes.name(each.row) for each in found]
        return []

    def _start_on(self, members: list[PlannedReservation], nodes: list[str], now: float) -> bool:
        """Assumes the reservations on these nodes and binds them; False if one is infeasible there."""
        statement = Statement(self._cycle)
        for planned, node in zip(members, nodes, strict=True):
            pod, row = planned.reservation.pod, self._nodes.row(node) if node else None
            profile = self._profiles.get(pod.scheduler) if pod is not None else None
            if pod is None or profile is None or row is None or not self._nodes.alive[row]:
                statement.discard()
                return False
            is_suitable = self._search.is_suitable(planned, row, Standing(self._cluster))
            fits = is_suitable and self._fits.fits_once_pods_end(planned, row)
            if (
                not fits
                or not self._leaves_others(planned, row)
                or not statement.assume_on(profile, pod, row)
            ):
                statement.discard()
                return False
        jobs = self._jobs_of(members)
        if any(not job.is_ready or self._cluster.jobs.missing_partners(job) for job in jobs):
            statement.discard()
            return False
        lost = statement.commit(now, reports_ready=True)
        if lost is not None:
            for pod in lost.members:
                self._pending(pod)
        else:
            for job in jobs:
                self._gangs.changed(job)  # for the members that are queued
        return True

    def _leaves_others(self, planned: PlannedReservation, row: int) -> bool:
        """Whether a reservation that starts on a row leaves enough for the certain plans there that
        come before it, or drain the node. A plan that was certain there was compared with them."""
        if planned.feasible == "True" and planned.node == self._nodes.name(row):
            return True
        before = [
            each
            for each in self._calendar.on(row)
            if each.feasible == "True"
            and each.overlaps(planned.start, planned.end)
            and (each.draining or planning_order(each) < planning_order(planned))
        ]
        return self._planner.leaves(row, self._planner.wanted(planned), before)

    # Plans

    def _plan(self, now: float) -> list[Decision]:
        """Checks every plan, in order, and makes those again that do not hold. Certain plans that drain
        their node come first, as long as they can keep it."""
        decisions: list[Decision] = []
        standing = Standing(self._cluster)
        self._next_end, self._stood = math.inf, []
        kept: set[PlannedReservation] = set()
        units = self._units(sorted(self._calendar, key=planning_order))
        units.sort(key=lambda members: bool(self._named_by(members)))
        for members, fits in self._kept(units):
            kept.update(members)
            decisions += self._stand(members, fits, _states(members), standing, now)
        for members in units:
            if members[0] in kept:
                continue
            before, fits = _states(members), self._fits_of(members, standing)
            certain = all(fit.feasible == "True" for fit in fits)
            if not certain and not self._search.are_kept(members, standing):
                fits = self._place(members, fits, standing)
            fits = self._with_partners(members, _together(fits))
            decisions += self._stand(members, fits, before, standing, now)
        return decisions

    def _kept(
        self, units: list[list[PlannedReservation]]
    ) -> list[tuple[list[PlannedReservation], list[PlanFit]]]:
        """The certain plans that drain their node, and the plans on these nodes that come before them
        in the order of plans: a plan that evicts pods counted on what is left beside those. If the two
        no longer go together, only the plans that drain their node are kept."""
        frozen = [members for members in units if any(each.is_frozen for each in members)]
        nodes = {each.node for members in frozen for each in members}
        last = units.index(frozen[-1]) + 1 if frozen else 0
        beside = [each for each in units[:last] if any(planned.node in nodes for planned in each)]
        kept = self._fitting(beside)
        alone = self._fitting(frozen) if len(beside) > len(frozen) else kept
        there = [members for members, _ in kept]
        return kept if all(members in there for members, _ in alone) else alone

    def _fitting(
        self, units: list[list[PlannedReservation]]
    ) -> list[tuple[list[PlannedReservation], list[PlanFit]]]:
        """Those of these plans that are certain on their nodes, each beside those before it."""
        standing, found = Standing(self._cluster), []
        for members in units:
            fits = self._with_partners(members, self._fits_of(members, standing))
            if all(fit.feasible == "True" for fit in fits):
                found.append((members, fits))
                for planned in members:
                    standing.add(planned, planned.node)
        return found

    def _stand(
        self,
        members: list[PlannedReservation],
        fits: list[PlanFit],
        before: list[tuple[str, str, str]],
        standing: Standing,
        now: float,
    ) -> list[Decision]:
        """Adds plans to those that stand, reports those that differ from `before`, and evicts pods that
        are in their way."""
        decisions: list[Decision] = []
        for planned, fit, was in zip(members, fits, before, strict=True):
            planned.feasible, planned.message = fit
            planned.victims = self._victims(planned, standing) if fit.message else []
            self._stood.append(planned)
            if planned.node:
                standing.add(planned, planned.node)
                self._note_next_end(planned)
            if (planned.node, *fit) != was:
                self._dirty(planned)
                decisions += _report(planned, was)
            self._evict(planned, now)
        return decisions

    def _fits_of(self, members: list[PlannedReservation], standing: Standing) -> list[PlanFit]:
        """How the plans of a unit fit their nodes, beside the plans that stand and each other."""
        if len(members) == 1:
            return [self._fit(members[0], standing)]
        fits, beside = [], standing.copy()
        for planned in members:
            fits.append(self._fit(planned, beside))
            beside.add(planned, planned.node)
        return fits

    def _fit(self, planned: PlannedReservation, standing: Standing) -> PlanFit:
        """How the plan fits its node."""
        if incomplete := self._incomplete(planned):
            return PlanFit("False", incomplete)
        row = self._nodes.row(planned.node) if planned.node else None
        if row is None or not self._nodes.alive[row]:
            return PlanFit("False", f"node {planned.node} is gone" if planned.node else "")
        if not self._search.is_suitable(planned, row, standing):
            return PlanFit("False", f"node {planned.node} is no longer feasible")
        return self._fits.on(planned, row, standing)

    def _named_by(self, members: list[PlannedReservation]) -> list[Job]:
        """The gangs that members name as their partners, and that do not name theirs."""
        own = {each.reservation.pod.job for each in members if each.reservation.pod is not None}
        return [job for job in self._jobs_of(members) if job.name not in own]

    def _with_partners(self, members: list[PlannedReservation], fits: list[PlanFit]) -> list[PlanFit]:
        """The fits of a unit, which is no more certain than the gangs that it names."""
        named = self._named_by(members)
        theirs = [
            PlanFit(each.feasible, each.message)
            for each in (self._calendar if named else ())
            if any(_reserve_pods([each], job) for job in named)
        ]
        if not theirs:
            return fits
        found = _together([*fits, *theirs])[: len(fits)]
        if any(fit.feasible == "False" for fit in found):
            for planned in members:
                self._calendar.assign(planned, "")
        return found

    def _place(
        self, members: list[PlannedReservation], fits: list[PlanFit], standing: Standing
    ) -> list[PlanFit]:
        """Finds nodes for the members: certain ones if there are such for all, else the likeliest."""
        if any(map(self._incomplete, members)):
            for planned in members:
                self._calendar.assign(planned, "")
            texts = [self._incomplete(each) or "its gang is planned as a whole" for each in members]
            return [PlanFit("False", text) for text in texts]
        found = self._search.find(members, standing, certain=True)
        if found is None and all(fit.feasible != "False" for fit in fits):
            return fits  # no other nodes are better
        found = found or self._search.find(members, standing, certain=False)
        if found is not None:
            for planned, row, _ in found:
                if planned.node != self._nodes.name(row):
                    self._calendar.assign(planned, self._nodes.name(row))
            return [each.fit for each in found]
        nearest = []
        for planned in members:
            fit = self._search.nearest(planned, standing)
            nearest.append(fit if fit.message else fit._replace(message=_NOT_TOGETHER))
            self._calendar.assign(planned, "")
        return nearest

    def _incomplete(self, planned: PlannedReservation) -> str:
        """Why its gang and the partners of that cannot start with it: too few members do by then; empty
        if they can."""
        pod = planned.reservation.pod
        job = self._cluster.jobs.of(pod) if pod is not None else None
        if job is None:
            return ""
        by_then = [each for each in self._calendar if each.start <= planned.start]
        few = [
            each.name.gang
            for each in self._cluster.jobs.partners(job)
            if not each.is_known or not each.would_be_ready(_reserve_pods(by_then, each))
        ]
        few += self._cluster.jobs.missing_partners(job)
        return f"{few[0]} has fewer reservations than it needs that start by then" if few else ""

    def _jobs_of(self, members: list[PlannedReservation]) -> list[Job]:
        """The gangs of the members, and the partners of each; a partner may not name the others."""
        jobs = self._cluster.jobs
        pods = [each.reservation.pod for each in members]
        own = [job for pod in pods if pod is not None and (job := jobs.of(pod)) is not None]
        return list({each.name: each for job in own for each in jobs.partners(job)}.values())

    def _units(self, ordered: list[PlannedReservation]) -> list[list[PlannedReservation]]:
        """The members of each gang and of its partners together, and the others alone, in the order of
        their first."""
        units: dict[object, list[PlannedReservation]] = {}
        jobs = self._cluster.jobs
        for planned in ordered:
            pod = planned.reservation.pod
            if pod is not None:
                job = self._cluster.jobs.of(pod)
                together = frozenset(e.name for e in jobs.partners(job)) if job is not None else None
                units.setdefault(together or planned.reservation.uid, []).append(planned)
        return list(units.values())

    def _note_next_end(self, planned: PlannedReservation) -> None:
        row = self._nodes.row(planned.node)
        if row is not None:
            users = self._planner.users_elsewhere(planned, row)
            ends = (self._planner.next_end(at) for at in {row, *(pod.row for pod in users)})
            self._next_end = min(self._next_end, *ends)

    # Draining

    def _evict(self, planned: PlannedReservation, now: float) -> None:
        """Evicts pods in the way of a reservation that drains its node with `Preempt`."""
        if planned.victims and planned.draining:
            self._evict_pods(planned.victims, planned, now)

    def _victims(self, planned: PlannedReservation, standing: Standing) -> list[PodRecord]:
        """The pods in the way of a reservation with `Preempt` on its node."""
        row = self._nodes.row(planned.node) if planned.node else None
        preempts = planned.reservation.calendar.before == BeforeStart.PREEMPT
        return self._fits.victims(planned, row, standing) if preempts and row is not None else []

    def _evict_for_started(self, now: float) -> None:
        """Evicts pods in the way of reservations with `Preempt` that have started and wait."""
        reservations = self._cluster.reservations
        for uid in list(reservations.waiting.preempting):
            reservation = reservations.known[uid]
            entry, start = reservation.entry, reservation.calendar.start
            if entry is None or start is None or start > now:
                continue
            started = PlannedReservation(reservation, start, self._nodes.name(entry.row))
            victims = self._fits.victims_of_started(started, entry.row)
            self._evict_pods(victims, started, now)

    def _evict_pods(self, pods: list[PodRecord], planned: PlannedReservation, now: float) -> None:
        """Evicts pods; again after some seconds where that is refused."""
        for pod in pods:
            asked = self._asked.get(pod.uid, -math.inf)
            if pod.being_preempted or pod.cls.terminating or asked + _EVICT_AGAIN > now:
                continue
            self._asked[pod.uid] = now
            starts = format_time(planned.start)
            text = f"evicted for {planned.reservation.ref}, which starts at {starts}"
            event = Emit(pod.ref, "Normal", "Preempted", text, "Preempting")
            self._preemption.apply([Evict(pod.ref, text, event=event)])

    def _dirty(self, planned: PlannedReservation) -> None:
        """Has the status written."""
        self._cluster.reservations.dirty[planned.reservation.uid] = None


def _is_member(planned: PlannedReservation) -> bool:
    return planned.reservation.pod is not None and planned.reservation.pod.job is not None


def _reserve_pods(planned: Iterable[PlannedReservation], job: Job) -> list[PodRecord]:
    """The reserve pods of those that are members of a job."""
    pods = (each.reservation.pod for each in planned)
    return [pod for pod in pods if pod is not None and pod.job == job.name]


def _together(fits: list[PlanFit]) -> list[PlanFit]:
    """The fits of the members of a gang: none is more certain than the others, since all start or
    none."""
    for status in ("False", "Unknown"):
        worst = next((fit for fit in fits if fit.feasible == status), None)
        if worst is not None:
            certain = PlanFit(worst.feasible, worst.message)
            return [
                certain if each.feasible == "True" else each._replace(feasible=status) for each in fits
            ]
    return fits


def _states(members: list[PlannedReservation]) -> list[tuple[str, str, str]]:
    """The node, status and message of each plan."""
    return [(each.node, each.feasible, each.message) for each in members]


def _report(planned: PlannedReservation, was: tuple[str, str, str]) -> list[Decision]:
    """The event about a plan that changed."""
    node, feasible, _ = was
    if planned.feasible == "False" and feasible != "False":
        return [_event(planned, "NotFeasible", planned.message, "Warning")]
    if planned.feasible == "Unknown" and feasible == "True":
        return [_event(planned, "NotCertain", planned.message, "Warning")]
    if planned.node and planned.node != node:
        text = f"planned on {planned.node} from {format_time(planned.start)}"
        return [_event(planned, "Planned", text)]
    return []


def _why_missed(planned: PlannedReservation) -> str:
    why = f": {planned.message}" if planned.message else ""
    return f"no node has its capacity at its start{why}"


def _event(planned: PlannedReservation, reason: str, text: str, type: str = "Normal") -> Emit:
    return Emit(planned.reservation.ref, type, reason, text, "Planning")
