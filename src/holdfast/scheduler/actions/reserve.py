"""The reserve action: makes starvation holds for jobs that are pending for too long.

Without them smaller jobs could starve a large one. The action runs after the others and looks at
starving jobs in the order of the scheduling queue. A starving job gets holds unless a pod before it in
the queue can be scheduled now; that pod is scheduled first, and the action ends for this round.
"""

import heapq
from collections.abc import Collection, Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from holdfast.api.times import format_duration
from holdfast.scheduler.actions.round import Action, Round
from holdfast.scheduler.cluster.decisions import Bind, CreateReservation, Emit, ObjectRef
from holdfast.scheduler.cluster.records import Phase, PodRecord
from holdfast.scheduler.framework.gang_permit import READY
from holdfast.scheduler.framework.hold_planner import HoldPlan
from holdfast.scheduler.jobs import Job
from holdfast.scheduler.reservations.hold_objects import starvation_hold, starvation_hold_name

_FEW = 1000


class StarvationTimers:
    """When pending jobs start to starve. That may be days away and most jobs are scheduled long before;
    their entries are dropped when they are half of all entries. Recreating a job's pods does not reset
    its timer."""

    def __init__(self) -> None:
        self._due: list[tuple[float, int, object]] = []
        self._jobs: dict[object, tuple[float, PodRecord]] = {}
        """When each job starts to starve, and its pod that was last tried, by job key."""
        self._pushed = 0
        self._tidy_at = _FEW

    def __len__(self) -> int:
        return len(self._due)

    def put(self, key: object, due: float, pod: PodRecord) -> None:
        """Sets the timer of a job, in place of an earlier one; the pod represents the job."""
        if self._when(key) != due:
            self._pushed += 1
            heapq.heappush(self._due, (due, self._pushed, key))
        self._jobs[key] = due, pod
        if len(self._due) > self._tidy_at:
            self._tidy()

    def next(self) -> float | None:
        """When the first pending job is due."""
        while self._due and not self._counts(self._due[0]):
            self._pop()
        return self._due[0][0] if self._due else None

    def over(self, now: float) -> Iterator[tuple[object, PodRecord]]:
        """Removes and returns the pending jobs that are due, with the pods that represent them."""
        while (due := self.next()) is not None and due <= now:
            key = self._due[0][2]
            pod = self._jobs[key][1]
            self._pop()
            yield key, pod

    def _when(self, key: object) -> float | None:
        return self._jobs[key][0] if key in self._jobs else None

    def _counts(self, entry: tuple[float, int, object]) -> bool:
        due, _, key = entry
        return self._when(key) == due and waits(self._jobs[key][1])

    def _pop(self) -> None:
        due, _, key = heapq.heappop(self._due)
        if self._when(key) == due:
            del self._jobs[key]

    def _tidy(self) -> None:
        self._due = [entry for entry in self._due if self._counts(entry)]
        heapq.heapify(self._due)
        self._jobs = {key: self._jobs[key] for _, _, key in self._due}
        self._tidy_at = max(_FEW, 2 * len(self._due))


def waits(pod: PodRecord) -> bool:
    """Whether the pod is pending and not being deleted."""
    return pod.phase is Phase.PENDING and not pod.deletion_pending and not pod.gone


STARVING, RESERVED, CANNOT = "Starving", "Reserved", "CannotReserve"
_AT_A_TIME = 32
"""After this many pods with holds the action checks whether the round has lasted long enough. Not after
each one: every part of a round writes new condition messages to the pods that are still pending."""


_NAMED = 3
"""How many reservations a message names."""


class Unit(NamedTuple):
    """A job, or a pod that is not in a gang."""

    pod: PodRecord
    """The pod; of a job the member that represents it."""
    job: Job | None

    @property
    def key(self) -> object:
        return self.pod.uid if self.job is None else self.job.name

    @property
    def ref(self) -> ObjectRef:
        return self.pod.ref if self.job is None else self.job.ref

    @property
    def since(self) -> float:
        return self.pod.since if self.job is None else self.job.pending_since


class Reserve(Action):
    """Makes starvation holds."""

    name = "reserve"

    def __init__(self, arguments: Mapping[str, Any]) -> None:
        super().__init__(arguments)
        self._threshold = float(arguments["starvingJobTimeThreshold"])
        self._percent = float(arguments["reservedNodePercent"])
        self._timers = StarvationTimers()
        self._starving: dict[object, PodRecord] = {}
        self._reported: dict[object, float] = {}
        self._refused: dict[object, str] = {}
        self._looked_at: dict[object, tuple[int, ...]] = {}
        self._helped = 0
        """The number of pods placed or held for since the action last checked for the end of the
        round."""
        self._closed_rows: set[int] = set()
        """In this round, the rows that starving jobs earlier in the order will use once the holds of
        others there are gone."""

    def next_timer(self) -> float | None:
        """When the next pending job starts to starve."""
        return self._timers.next()

    def run(self, round_: Round) -> None:
        self._update_starving(round_)
        if round_.cluster.has_changes() or round_.pods_left <= 0:
            return  # other pods may be schedulable after these changes
        units = self._in_need(round_)
        if not units:
            return
        untried = round_.queue.untried()
        unsuccessful: set[tuple[str, int, str | None]] = set()
        self._closed_rows = set()
        for unit in units:
            before = [pod for pod in untried if round_.queue.comes_before(pod, unit.pod)]
            if any(self._could_be_scheduled(round_, pod) for pod in before if pod is not unit.pod):
                return
            self._emit_starving(round_, unit)
            kind = (unit.pod.scheduler, unit.pod.cls.id, unit.pod.pinned_node)
            if unit.job is not None:
                self._reserve(round_, unit)
            elif kind not in unsuccessful and not self._reserve(round_, unit):
                unsuccessful.add(kind)  # pods of the same class get the same result
            if round_.cluster.has_changes() or round_.pods_left <= 0:
                return

    # Which jobs starve

    def _update_starving(self, round_: Round) -> None:
        """Sets timers for pods that were unschedulable, and collects the jobs that starve by now."""
        refused, round_.queue.refused = round_.queue.refused, {}
        for pod in refused.values():
            unit = Unit(pod, round_.cluster.jobs.of(pod))
            if unit.key in self._starving:
                self._starving[unit.key] = pod
            else:
                self._timers.put(unit.key, unit.since + self._threshold, pod)
        self._starving.update(self._timers.over(round_.now))

    def _in_need(self, round_: Round) -> list[Unit]:
        """The starving jobs that lack holds, in the order of the scheduling queue."""
        units = []
        for key, pod in list(self._starving.items()):
            unit = self._unit(round_, pod)
            if unit is None or unit.since + self._threshold > round_.now or unit.key != key:
                del self._starving[key]
                if self._reported.pop(key, None) is not None and pod.job is None and pod.row >= 0:
                    self._emit_ready(round_, pod)
                self._refused.pop(key, None)
                self._looked_at.pop(key, None)
                if unit is not None:
                    round_.queue.refused[unit.pod.uid] = unit.pod
            elif self._lacks_only_capacity(round_, unit) and not self._is_served(round_, unit):
                units.append(unit)
        sort = round_.queue.sort_key
        return sorted(units, key=lambda unit: sort(unit.pod))

    def _unit(self, round_: Round, pod: PodRecord) -> Unit | None:
        job = round_.cluster.jobs.of(pod)
        if job is None:
            return Unit(pod, None) if waits(pod) else None
        waiting = [member for member in job.waiting() if member.reservation is None]
        if job.is_ready or not waiting:
            return None
        return Unit(pod if waits(pod) and pod in waiting else waiting[0], job)

    def _lacks_only_capacity(self, round_: Round, unit: Unit) -> bool:
        """Whether the job is pending for lack of capacity alone."""
        jobs = round_.cluster.jobs
        if unit.job is None:
            return not jobs.queue_limits.never_admissible(unit.pod)
        if jobs.queue_limits.all_refused(jobs.queue_limits.never_admissible, unit.job.waiting()):
            return False
        partners = jobs.partners(unit.job)
        if any(jobs.missing_partners(job) for job in partners):
            return False
        return all(job.is_known and not job.lacks(job.waiting()) for job in partners)

    def _is_served(self, round_: Round, unit: Unit) -> bool:
        """Whether there are holds for as many pods as the job needs to be ready."""
        holds = round_.cluster.reservations.starvation_holds
        if unit.job is None:
            return holds.has_capacity(unit.pod)
        return unit.job.would_be_ready(m for m in unit.job.waiting() if holds.has_capacity(m))

    def _could_be_scheduled(self, round_: Round, pod: PodRecord) -> bool:
        """Whether the pod, or the job it represents, can be scheduled now."""
        job = round_.cluster.jobs.of(pod)
        if job is None:
            profile = round_.profiles[pod.scheduler]
            column = round_.columns.column(profile, pod.cls)
            return round_.search.find_row(profile, pod, column) >= 0
        jobs, members = round_.cluster.jobs.partners(job), round_.gangs.admission.pending_members(pod)
        return round_.gangs.attempts.can_start(jobs, members)

    # Holds and events

    def _emit_starving(self, round_: Round, unit: Unit) -> None:
        """Emits the Starving event, once per time that the job becomes pending."""
        since = unit.since
        if self._reported.get(unit.key) == since:
            return
        self._reported[unit.key] = since
        waited = format_duration(round(round_.now - since, 1))
        threshold = format_duration(self._threshold)
        text = f"pending for {waited}, over the starvation threshold of {threshold}"
        round_.decisions.append(Emit(unit.ref, "Warning", STARVING, text, "Scheduling"))
        round_.cluster.chronicle.note(round_.now, unit.ref, "starving")

    def _emit_ready(self, round_: Round, pod: PodRecord) -> None:
        """Emits the Ready event of a pod that starved, before its binding."""
        decisions = round_.decisions
        text = f"placed on {round_.cluster.nodes.name(pod.row)}"
        ready = Emit(pod.ref, "Normal", READY, text, "Scheduling")
        for place, decision in enumerate(decisions):
            if isinstance(decision, Bind) and decision.pod == pod.ref:
                decisions.insert(place, ready)
                return
        decisions.append(ready)

    def _reserve(self, round_: Round, unit: Unit) -> bool:
        """Places the job's pods or makes holds for them; whether that was possible."""
        jobs = [] if unit.job is None else round_.cluster.jobs.partners(unit.job)
        tasks = [unit.pod] if unit.job is None else round_.gangs.admission.pending_members(unit.pod)
        tasks = [pod for pod in tasks if pod.reservation is None]
        tasks = self._admissible(round_, tasks)
        if not tasks or not all(
            job.would_be_ready(p for p in tasks if p.job == job.name) for job in jobs
        ):
            return True  # more nodes would not help
        plan = None
        closed = [self._closed_and_outside(rows) for rows in round_.gangs.attempts.placements_of(jobs)]
        for rows in closed:
            plan = plan or round_.hold_planner.plan(jobs, tasks, self._percent, rows)
        if plan is None:
            # Once the jobs with holds there have started, these rows are for this job and not for
            # smaller ones after it.
            taken = (
                round_.hold_planner.would_take(jobs, tasks, self._percent, rows) for rows in closed
            )
            self._closed_rows |= set(next(filter(None, taken), ()))
            self._emit_cannot_reserve(round_, unit, tasks)
            return False
        if lacking := round_.gangs.admission.would_lack(jobs, [pod for pod, _ in plan.held]):
            # The job is not admitted, so that it must neither start nor keep capacity from others.
            plan.statement.discard()
            text = f"its minResources are not free: {', '.join(lacking)}; no capacity was reserved"
            self._emit_refused(round_, unit, text)
            return False
        self._refused.pop(unit.key, None)
        if plan.ready:
            round_.gangs.commit(plan.statement, round_.now)
        else:
            self._hold(round_, unit, plan)
        # A job that got holds is not in need in the next part of the round; counting others too could
        # split the round without end.
        self._helped += len(tasks)
        if self._helped >= _AT_A_TIME:
            self._helped = 0
            round_.tried(len(tasks))
        return True

    def _closed_and_outside(self, placement: NDArray[np.bool_] | None) -> Collection[int]:
        """The closed rows, and those outside of a topology domain."""
        if placement is None:
            return self._closed_rows
        return self._closed_rows.union(np.flatnonzero(~placement).tolist())

    def _admissible(self, round_: Round, tasks: list[PodRecord]) -> list[PodRecord]:
        """The tasks that their queue can admit together; earlier tasks come first."""
        queue_limits = round_.cluster.jobs.queue_limits
        if not tasks or not queue_limits.never_admissible(*tasks):
            return tasks
        together: list[PodRecord] = []
        for pod in tasks:
            if not queue_limits.never_admissible(*together, pod):
                together.append(pod)
        return together

    def _hold(self, round_: Round, unit: Unit, plan: HoldPlan) -> None:
        """Creates the holds of a plan. No member starts before all can, so tasks that fit now get holds
        too."""
        nodes, reservations = round_.cluster.nodes, round_.cluster.reservations
        places = [(pod, pod.row) for _, pod in plan.statement.assumed] + plan.held
        plan.statement.discard()
        names = [nodes.name(row) for _, row in places]
        text = f"capacity is held for {len(places)} of its pods on {', '.join(sorted(set(names)))}"
        round_.decisions.append(Emit(unit.ref, "Normal", RESERVED, text, "Reserving"))
        for (pod, _), node in zip(places, names, strict=True):
            name = starvation_hold_name(pod, lambda name: reservations.get(name) is not None)
            reservations.starvation_holds.want(name, pod, node)
            round_.decisions.append(CreateReservation(starvation_hold(pod, node, name)))
        round_.cluster.chronicle.note(round_.now, unit.ref, "reserved", text)

    def _emit_cannot_reserve(self, round_: Round, unit: Unit, tasks: list[PodRecord]) -> None:
        """Emits the CannotReserve event, once per reason."""
        calendar = round_.cluster.reservations.calendar
        seen = (round_.cluster.epoch.nodes.end, len(tasks), calendar.revision)
        if self._looked_at.get(unit.key) == seen:
            return  # reported before, and neither nodes nor plans have changed
        self._looked_at[unit.key] = seen
        unused_reason = round_.hold_planner.feasibility.unused_reason
        unused = next(((pod, why) for pod in tasks if (why := unused_reason(pod))), None)
        if unused is not None:
            text = f"{unused[0].ref} {unused[1]}; no capacity was reserved"
        elif (misfit := round_.hold_planner.never_fits(tasks)) is None:
            text = self._why_not_now(round_, unit, tasks)
        else:
            text = f"{misfit.ref} does not fit any node even when empty; no capacity was reserved"
        self._emit_refused(round_, unit, text)

    def _emit_refused(self, round_: Round, unit: Unit, text: str) -> None:
        if self._refused.get(unit.key) != text:
            self._refused[unit.key] = text
            round_.decisions.append(Emit(unit.ref, "Warning", CANNOT, text, "Reserving"))

    def _why_not_now(self, round_: Round, unit: Unit, tasks: list[PodRecord]) -> str:
        """Why no capacity can be held, though the job fits empty nodes."""
        if (lacks := round_.hold_planner.lacks_devices(tasks)) is not None:
            what = f"the devices for the claims of {lacks.ref} are in use"
            if round_.hold_planner.has_devices_but_for_holds(lacks):
                what += ", or will be by pods that capacity is held for"
            return f"{what}; no capacity was reserved"
        jobs = [] if unit.job is None else round_.cluster.jobs.partners(unit.job)
        beside = round_.hold_planner.beside_plans(jobs, tasks, self._percent)
        if not beside:
            return "no capacity can be held for it now"
        names = ", ".join(str(each) for each in beside[:_NAMED])
        more = f" and {len(beside) - _NAMED} more" if len(beside) > _NAMED else ""
        return f"its capacity is planned for {names}{more}; no capacity was reserved"
