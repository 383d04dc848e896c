"""When jobs that wait will have waited too long.

That may be days away, and most are served long before: they are forgotten as soon as they make up half
of what is kept here. A job whose pods are made anew in the meantime goes on waiting.
"""

import heapq
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from holdfast.api.times import format_duration
from holdfast.scheduler.actions.round import Action, Round
from holdfast.scheduler.cluster.decisions import Bind, CreateReservation, Emit, ObjectRef
from holdfast.scheduler.cluster.pods import Phase, PodRecord
from holdfast.scheduler.framework.gangs import READY
from holdfast.scheduler.framework.hold_planner import HoldPlan
from holdfast.scheduler.framework.statement import Statement
from holdfast.scheduler.jobs import Job
from holdfast.scheduler.reservations.hold_objects import starvation_hold, starvation_hold_name

_FEW = 1000


class StarvationTimers:
    def __init__(self) -> None:
        self._due: list[tuple[float, int, object]] = []
        self._jobs: dict[object, tuple[float, PodRecord]] = {}
        """By key, when a job is due and the pod of it that was last tried."""
        self._pushed = 0
        self._tidy_at = _FEW

    def __len__(self) -> int:
        return len(self._due)

    def put(self, key: object, due: float, pod: PodRecord) -> None:
        """The job is due then, whatever was said of it before; the pod stands for it."""
        if self._when(key) != due:
            self._pushed += 1
            heapq.heappush(self._due, (due, self._pushed, key))
        self._jobs[key] = due, pod
        if len(self._due) > self._tidy_at:
            self._tidy()

    def next(self) -> float | None:
        """When the first of those that wait is due."""
        while self._due and not self._counts(self._due[0]):
            self._pop()
        return self._due[0][0] if self._due else None

    def over(self, now: float) -> Iterator[tuple[object, PodRecord]]:
        """The jobs that wait still and are due by now, with the pods that stand for them; once."""
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
    """Whether the pod wants a place, and has none yet."""
    return pod.phase is Phase.PENDING and not pod.deletion_pending and not pod.gone


# Reserve: holds room for jobs that wait too long, so that smaller ones cannot starve them.
#
# Jobs are looked at in the queue's order once everything else has been decided. One that is starving
# gets room held for it if none ahead of it could be scheduled now; if one could, that comes first, and
# the action is over for this round.


STARVING, RESERVED, CANNOT = "Starving", "Reserved", "CannotReserve"
_AT_A_TIME = 32
"""Pods that room is held for before it is asked whether the round has lasted long enough: each part of
a round gives those that still wait other reasons, which are written."""


class Unit(NamedTuple):
    """A job, or a pod that is one by itself."""

    pod: PodRecord
    """The pod; of a job the member that stands for it."""
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
    name = "reserve"

    def __init__(self, arguments: Mapping[str, Any]) -> None:
        super().__init__(arguments)
        self._threshold = float(arguments["starvingJobTimeThreshold"])
        self._percent = float(arguments["reservedNodePercent"])
        self._timers = StarvationTimers()
        self._starving: dict[object, PodRecord] = {}
        self._told: dict[object, float] = {}
        self._refused: dict[object, str] = {}
        self._looked_at: dict[object, tuple[int, int]] = {}
        self._helped = 0
        """How many pods room was found for since it was last asked whether that is enough."""
        self._spoken_for: set[int] = set()
        """In this round, the rows that jobs ahead wait for, where others have room held now."""

    def next_timer(self) -> float | None:
        """When the next of the jobs that wait starts to starve."""
        return self._timers.next()

    def run(self, round_: Round) -> None:
        self._take_note(round_)
        if round_.cluster.has_changes() or round_.pods_left <= 0:
            return  # others may be scheduled yet
        units = self._in_need(round_)
        if not units:
            return
        untried = round_.queue.untried()
        in_vain: set[tuple[str, int, str | None]] = set()
        self._spoken_for = set()
        for unit in units:
            ahead = [pod for pod in untried if round_.queue.comes_before(pod, unit.pod)]
            if any(self._could_be_scheduled(round_, pod) for pod in ahead if pod is not unit.pod):
                return
            self._tell(round_, unit)
            kind = (unit.pod.scheduler, unit.pod.cls.id, unit.pod.pinned_node)
            if unit.job is not None:
                self._reserve(round_, unit)
            elif kind not in in_vain and not self._reserve(round_, unit):
                in_vain.add(kind)  # nor for others like it
            if round_.cluster.has_changes() or round_.pods_left <= 0:
                return

    # Who starves

    def _take_note(self, round_: Round) -> None:
        refused, round_.queue.refused = round_.queue.refused, {}
        for pod in refused.values():
            unit = Unit(pod, pod.job)
            if unit.key in self._starving:
                self._starving[unit.key] = pod
            else:
                self._timers.put(unit.key, unit.since + self._threshold, pod)
        self._starving.update(self._timers.over(round_.now))

    def _in_need(self, round_: Round) -> list[Unit]:
        """The starving jobs that have no room held yet, in the queue's order."""
        units = []
        for key, pod in list(self._starving.items()):
            unit = self._unit(pod)
            if unit is None or unit.since + self._threshold > round_.now or unit.key != key:
                del self._starving[key]
                if self._told.pop(key, None) is not None and pod.job is None and pod.row >= 0:
                    self._tell_ready(round_, pod)
                self._refused.pop(key, None)
                self._looked_at.pop(key, None)
                if unit is not None:
                    round_.queue.refused[unit.pod.uid] = unit.pod
            elif self._is_helped_by_room(round_, unit) and not self._is_served(round_, unit):
                units.append(unit)
        sort = round_.queue.sort_key
        return sorted(units, key=lambda unit: sort(unit.pod))

    def _unit(self, pod: PodRecord) -> Unit | None:
        if pod.job is None:
            return Unit(pod, None) if waits(pod) else None
        waiting = [member for member in pod.job.waiting() if member.reservation is None]
        if pod.job.is_ready or not waiting:
            return None
        return Unit(pod if waits(pod) and pod in waiting else waiting[0], pod.job)

    def _is_helped_by_room(self, round_: Round, unit: Unit) -> bool:
        """Whether it waits for nothing but room."""
        jobs = round_.cluster.jobs
        if unit.job is None:
            return not jobs.queues.never_admissible(unit.pod)
        if jobs.queues.all_refused(jobs.queues.never_admissible, unit.job.waiting()):
            return False
        return all(job.is_known and not job.lacks(job.waiting()) for job in jobs.partners(unit.job))

    def _is_served(self, round_: Round, unit: Unit) -> bool:
        """Whether room is held already, as much as it needs to be ready."""
        holds = round_.cluster.jobs.holds
        if unit.job is None:
            return holds.has_capacity(unit.pod)
        return unit.job.would_be_ready(m for m in unit.job.waiting() if holds.has_capacity(m))

    def _could_be_scheduled(self, round_: Round, pod: PodRecord) -> bool:
        """Whether there is a place now for the job the pod is, or stands for."""
        if pod.job is None:
            profile = round_.profiles[pod.scheduler]
            column = round_.cycle.column(profile, pod.cls)
            return round_.cycle.find_row(profile, pod, column) >= 0
        jobs, members = round_.cluster.jobs.partners(pod.job), round_.gangs.waiting(pod)
        if round_.gangs.early_refusal(jobs, members) is not None:
            return False
        statement = Statement(round_.cycle)
        round_.gangs.place_all(statement, members)
        ready = bool(statement.placed) and all(job.is_ready for job in jobs)
        statement.discard()
        return ready

    # What is done for them

    def _tell(self, round_: Round, unit: Unit) -> None:
        since = unit.since
        if self._told.get(unit.key) == since:
            return
        self._told[unit.key] = since
        waited = format_duration(round_.now - since)
        text = f"has waited for {waited}, as long as {format_duration(self._threshold)} or longer"
        round_.cycle.decisions.append(Emit(unit.ref, "Warning", STARVING, text, "Scheduling"))
        round_.cluster.chronicle.note(round_.now, unit.ref, "starving")

    def _tell_ready(self, round_: Round, pod: PodRecord) -> None:
        """A pod that starved has its place; said before it is bound there."""
        decisions = round_.cycle.decisions
        text = f"has a place on {round_.cluster.nodes.name(pod.row)}"
        ready = Emit(pod.ref, "Normal", READY, text, "Scheduling")
        for place, decision in enumerate(decisions):
            if isinstance(decision, Bind) and decision.pod == pod.ref:
                decisions.insert(place, ready)
                return
        decisions.append(ready)

    def _reserve(self, round_: Round, unit: Unit) -> bool:
        """Whether room was found, to have or to hold."""
        jobs = [] if unit.job is None else round_.cluster.jobs.partners(unit.job)
        tasks = [unit.pod] if unit.job is None else round_.gangs.waiting(unit.pod)
        tasks = [pod for pod in tasks if pod.reservation is None]
        tasks = self._as_many_as_may(round_, tasks)
        if not tasks or not all(job.would_be_ready(p for p in tasks if p.job is job) for job in jobs):
            return True  # more nodes would not help
        plan = round_.hold_planner.plan(jobs, tasks, self._percent, self._spoken_for)
        if plan is None:
            # When those have been served it is this job's turn, not that of smaller ones behind it.
            self._spoken_for |= set(
                round_.hold_planner.would_take(jobs, tasks, self._percent, self._spoken_for)
            )
            self._say_why(round_, unit, tasks)
            return False
        self._refused.pop(unit.key, None)
        if plan.ready:
            for _, pod in plan.statement.placed:
                round_.queue.remove(pod)
            lost = plan.statement.commit(round_.now, reports_ready=True)
            if lost is not None:
                round_.gangs.refuse_unpermitted(lost, round_.now)
        else:
            self._hold(round_, unit, plan)
        # Whoever was helped is not in need in the next part of the round; others would be, for ever.
        self._helped += len(tasks)
        if self._helped >= _AT_A_TIME:
            self._helped = 0
            round_.tried(len(tasks))
        return True

    def _as_many_as_may(self, round_: Round, tasks: list[PodRecord]) -> list[PodRecord]:
        """Those of the tasks their queue will have together, the first of them first."""
        queues = round_.cluster.jobs.queues
        if not tasks or not queues.never_admissible(*tasks):
            return tasks
        together: list[PodRecord] = []
        for pod in tasks:
            if not queues.never_admissible(*together, pod):
                together.append(pod)
        return together

    def _hold(self, round_: Round, unit: Unit, plan: HoldPlan) -> None:
        """Nothing starts before all of it can, so what fits already is held too."""
        nodes, jobs, reservations = (
            round_.cluster.nodes,
            round_.cluster.jobs,
            round_.cluster.reservations,
        )
        places = [(pod, pod.row) for _, pod in plan.statement.placed] + plan.held
        plan.statement.discard()
        names = [nodes.name(row) for _, row in places]
        text = f"room is held for {len(places)} of its pods on {', '.join(sorted(set(names)))}"
        round_.cycle.decisions.append(Emit(unit.ref, "Normal", RESERVED, text, "Reserving"))
        for (pod, _), node in zip(places, names, strict=True):
            name = starvation_hold_name(pod, lambda name: reservations.get(name) is not None)
            jobs.holds.want(name, pod, node)
            round_.cycle.decisions.append(CreateReservation(starvation_hold(pod, node, name)))
        round_.cluster.chronicle.note(round_.now, unit.ref, "reserved", text)

    def _say_why(self, round_: Round, unit: Unit, tasks: list[PodRecord]) -> None:
        seen = (round_.cluster.epoch.nodes.end, len(tasks))
        if self._looked_at.get(unit.key) == seen:
            return  # it has been said, and nodes are what they were
        self._looked_at[unit.key] = seen
        unused_reason = round_.hold_planner.feasibility.unused_reason
        unused = next(((pod, why) for pod in tasks if (why := unused_reason(pod))), None)
        if unused is not None:
            text = f"{unused[0].ref} {unused[1]}: nothing is held for it"
        elif (misfit := round_.hold_planner.never_fits(tasks)) is None:
            text = "no room can be held for it now"
        else:
            text = f"{misfit.ref} fits no node, whatever else ends: nothing is held for it"
        if self._refused.get(unit.key) != text:
            self._refused[unit.key] = text
            round_.cycle.decisions.append(Emit(unit.ref, "Warning", CANNOT, text, "Reserving"))
