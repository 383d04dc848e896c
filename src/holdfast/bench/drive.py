"""Feeds a plan to a scheduler and times the scheduler's work alone.

Timed is what a backend makes the scheduler do with decoded objects:

    feed       Added(pod) for each pod of a batch, its claims and volumes, and concurrent churn
    round      from the queue to decisions
    confirm    BindConfirmed, Updated with the pod as the watch shows it now, Deleted for victims

Creating and decoding objects is not timed. An object is released right after it is fed, as by a
reflector, so the figures include freeing its memory.
"""

import gc
import hashlib
from collections import Counter
from collections.abc import Callable
from time import perf_counter_ns, process_time_ns
from typing import Any

import msgspec

from holdfast.api.meta import Object
from holdfast.api.pod import Pod
from holdfast.api.reservation import Reservation
from holdfast.bench.plan import (
    CREATED,
    BenchPlan,
    Churning,
    PlannedObjects,
    PodMaker,
    Pods,
    make_object,
    number_of,
    seen,
    uid_of,
)
from holdfast.scheduler.assembly import GARBAGE_AFTER, controllers
from holdfast.scheduler.cluster.decisions import (
    AnnotatePod,
    Bind,
    CreateReservation,
    Decision,
    DeleteReservation,
    Nominate,
    Preempt,
    SetPodScheduled,
    SetReservationStatus,
)
from holdfast.scheduler.cluster.events import Added, BindConfirmed, Deleted, Event, Updated
from holdfast.scheduler.framework.config import API_VERSION, DEFAULT_SCHEDULER_NAME, KIND, load
from holdfast.scheduler.plugins import registry
from holdfast.scheduler.scheduler import Scheduler

Report = tuple[Callable[[Any], Event], Any]
"""An event still to be made, and what of."""


class BenchExecutor:
    """Carries out decisions like an API server in a cluster without kubelets: a victim is deleted at
    once.
    """

    def __init__(self) -> None:
        self.decisions: Counter[str] = Counter()
        """How many there were of each kind while measured pods came."""
        self.placed: dict[str, str] = {}
        """Node names of measured pods, by the pod's name."""
        self.waiting: set[str] = set()
        """The uids of pods a barrier waits for."""
        self._makers: dict[str, tuple[PodMaker, bool]] = {}
        """Who can write a pod anew, and whether its pods are measured."""
        self.reservations = BenchReservationExecutor()
        self._said: dict[str, SetPodScheduled] = {}
        self._nominated: dict[str, str] = {}
        self._annotations: dict[str, dict[str, str]] = {}

    def know(self, maker: PodMaker, measured: bool) -> None:
        self._makers[maker.key] = maker, measured

    def forget(self, uid: str) -> None:
        self._said.pop(uid, None)
        self._nominated.pop(uid, None)
        self._annotations.pop(uid, None)
        self.waiting.discard(uid)

    def carry_out(self, decisions: list[Decision], measured: bool) -> list[Report]:
        """What the watch shows then, last first."""
        if measured:
            self.decisions.update(type(decision).__name__ for decision in decisions)
        reports: list[Report] = []
        changed: dict[str, None] = {}
        for decision in decisions:
            match decision:
                case Bind():
                    changed.pop(decision.pod.uid, None)
                    reports += self._bind(decision)
                case SetPodScheduled():
                    self._said[decision.pod.uid] = decision
                    changed[decision.pod.uid] = None
                case Nominate():
                    self._nominated[decision.pod.uid] = decision.node
                    changed[decision.pod.uid] = None
                case Preempt():
                    reports += self._preempt(decision)
                case AnnotatePod():
                    reports += self._annotate(decision)
                case CreateReservation() | SetReservationStatus() | DeleteReservation():
                    reports += self.reservations.carry_out(decision)
        # A pod's condition and the node it is nominated for are written in one go.
        for uid in changed:
            maker, _ = self._makers[uid[:8]]
            nominated = self._nominated.get(uid, "")
            pod = maker.with_condition(number_of(uid), self._said.get(uid), nominated)
            reports.append((Updated, pod))
        reports.reverse()
        return reports

    def _bind(self, decision: Bind) -> list[Report]:
        uid = decision.pod.uid
        maker, measured = self._makers[uid[:8]]
        annotations = {**self._annotations.get(uid, {}), **decision.annotations}
        self.forget(uid)
        if measured:
            self.placed[decision.pod.name] = decision.node
        pod = maker.bound(number_of(uid), decision.node, annotations)
        return [(BindConfirmed, uid), (Updated, pod)]

    def _annotate(self, decision: AnnotatePod) -> list[Report]:
        uid = decision.pod.uid
        maker, _ = self._makers[uid[:8]]
        given = {name: text for name, text in decision.annotations.items() if text is not None}
        annotations = self._annotations.setdefault(uid, {})
        annotations.update(given)
        return [(Updated, maker.annotated(number_of(uid), annotations))]

    def _preempt(self, decision: Preempt) -> list[Report]:
        uid = decision.pod.uid
        maker, measured = self._makers[uid[:8]]
        if measured:
            self.placed.pop(decision.pod.name, None)
        pod = maker.preempted(number_of(uid), decision.node, decision.message)
        return [(Updated, pod), (Deleted, pod)]


class BenchReservationExecutor:
    def __init__(self) -> None:
        self._known: dict[str, Reservation] = {}
        self._made = 0

    def know(self, reservation: Reservation) -> None:
        self._known[reservation.metadata.uid] = reservation

    def carry_out(
        self, decision: CreateReservation | SetReservationStatus | DeleteReservation
    ) -> list[Report]:
        if isinstance(decision, CreateReservation):
            return [(Added, self._create(decision.reservation))]
        uid = decision.reservation.uid
        before = self._known.get(uid)
        if before is None:
            return []
        if isinstance(decision, DeleteReservation):
            return [(Deleted, self._known.pop(uid))]
        after = self._known[uid] = seen(msgspec.structs.replace(before, status=decision.status))
        confirmed: list[Report] = [(BindConfirmed, uid)] if decision.binds else []
        return [*confirmed, (Updated, after)]

    def _create(self, wanted: Reservation) -> Reservation:
        self._made += 1
        metadata = msgspec.structs.replace(
            wanted.metadata,
            uid=uid_of(wanted.metadata.name, self._made),
            creation_timestamp=CREATED,
            generation=1,
        )
        made = seen(msgspec.structs.replace(wanted, metadata=metadata))
        self.know(made)
        return made


Watch = Callable[[str], None]
"""Is told which part of the work begins: feed, round, confirm, or "" for none of them."""


class Meter:
    """Nanoseconds spent in measured batches, by part."""

    def __init__(self) -> None:
        self.feed = 0
        self.round = 0
        self.confirm = 0
        self.cpu = 0
        self.pods = 0
        self.decision_times: list[float] = []
        """Of each batch, from its first pod fed to its decisions, divided by its pods."""

    @property
    def total(self) -> int:
        return self.feed + self.round + self.confirm


class _Churner:
    def __init__(self, step: Churning, now: float) -> None:
        self._step = step
        self._count = 0
        self._next_time = now + step.seconds if step.seconds else float("inf")
        self._pods_left = step.pods

    def due(self, now: float, pods: int) -> int:
        """How many times its moment has come, now that so many more pods have arrived."""
        step, times = self._step, 0
        while self._next_time <= now:
            self._next_time += step.seconds
            times += 1
        if step.pods:
            self._pods_left -= pods
            while self._pods_left <= 0:
                self._pods_left += step.pods
                times += 1
        return times

    def turn(self, drive: "Drive") -> list[Any]:
        """The events of one such moment."""
        step, count = self._step, self._count
        self._count += 1
        number, delete = (count // 2, bool(count % 2)) if step.recreate else (count, False)
        return [drive.churned(step, template, number, delete) for template in step.templates]


class Drive:
    """One run of a plan. `watch` is for profilers."""

    def __init__(
        self, plan: BenchPlan, batch: int, limit: int | None = None, watch: Watch | None = None
    ) -> None:
        implements = registry().implements()
        configuration = load({"apiVersion": API_VERSION, "kind": KIND}, implements)
        aliases = {"default-scheduler": DEFAULT_SCHEDULER_NAME}
        self.scheduler = Scheduler(configuration, registry(), aliases, controllers(configuration))
        self.meter = Meter()
        self._executor = BenchExecutor()
        self.decisions = self._executor.decisions
        self.placed = self._executor.placed
        self._plan = plan
        self._batch = batch
        self._limit = limit
        self._watch = watch
        self._now = 0.0
        self._churners: list[_Churner] = []
        self._measured = False

    def run(self) -> None:
        ready = {id(step): self._made(step) for step in self._plan.steps if isinstance(step, Pods)}
        # The benchmark's own stock of objects is no business of the scheduler's collections.
        gc.collect()
        gc.freeze()
        thresholds = gc.get_threshold()
        gc.set_threshold(*GARBAGE_AFTER)  # as `holdfast run` has it
        try:
            for step in self._plan.steps:
                match step:
                    case PlannedObjects(objects):
                        for obj in objects:
                            if isinstance(obj, Reservation):
                                self._executor.reservations.know(obj)
                            self.scheduler.feed(Added(obj), self._now)
                    case Pods():
                        self._arrive(step, ready.pop(id(step)))
                    case Churning():
                        self._churners.append(_Churner(step, self._now))
                    case _:
                        self._settle()
        finally:
            gc.set_threshold(*thresholds)
            gc.unfreeze()

    def checksum(self) -> str:
        """Equal for two runs that put every measured pod on the same node."""
        lines = "".join(f"{pod} {node}\n" for pod, node in sorted(self.placed.items()))
        return hashlib.blake2b(lines.encode(), digest_size=6).hexdigest()

    def churned(self, step: Churning, template: Any, number: int, delete: bool) -> Any:
        prefix = f"{step.prefix}-{template['kind'].lower()}"
        event = Deleted if delete else Added
        if template["kind"] != "Pod":
            return event(make_object(template, prefix, number))
        maker = PodMaker(prefix, [template])
        pod = maker.pending(number)
        self._executor.know(maker, measured=False)
        if delete:
            self._executor.forget(pod.metadata.uid)
        return event(pod)

    def _count(self, step: Pods) -> int:
        return min(step.count, self._limit) if self._limit and step.measured else step.count

    def _made(self, step: Pods) -> list[list[Object]]:
        """The step's pods and what comes along with each, last first."""
        if self._plan.streamed:
            return []
        return [step.maker.arriving(number) for number in reversed(range(self._count(step)))]

    def _arrive(self, step: Pods, made: list[list[Object]]) -> None:
        self._measured = step.measured
        self._executor.know(step.maker, step.measured)
        count = self._count(step)
        began = self._now
        for start in range(0, count, self._batch):
            numbers = range(start, min(start + self._batch, count))
            if self._plan.streamed:
                made = [step.maker.arriving(number) for number in reversed(numbers)]
            arriving = [obj for batch in made[-len(numbers) :] for obj in reversed(batch)]
            del made[-len(numbers) :]
            self._executor.waiting.update(obj.metadata.uid for obj in arriving if isinstance(obj, Pod))
            for obj in arriving:
                if isinstance(obj, Reservation):
                    self._executor.reservations.know(obj)
            self._now = began + numbers.stop / self._plan.arrivals_per_second
            events = [
                event
                for churner in self._churners
                for _ in range(churner.due(self._now, len(numbers)))
                for event in churner.turn(self)
            ]
            self._turn(len(numbers), arriving, events)
        self._turn(0, [], [])

    def _settle(self) -> None:
        """Lets time pass until pods have their nodes; the time between timers costs nothing."""
        waiting, idle, reported = self._executor.waiting, 0, False
        while waiting and idle < 3:
            due = self.scheduler.next_timer()
            if due is None and not reported:
                break
            before, follows = len(waiting), reported
            if not follows:
                self._now = max(self._now, due or 0.0)
            reported = self._turn(0, [], [])
            if len(waiting) < before:
                idle = 0
            elif not follows:
                idle += 1
        self._measured = False

    def _turn(self, pods: int, arriving: list[Object], events: list[Any]) -> bool:
        """One round, with what came before it and what comes of it. `arriving` is last first. Answers
        whether anything came of it."""
        feed, now = self.scheduler.feed, self._now
        watch = self._watch if self._measured else None
        if watch:
            watch("feed")
        cpu = process_time_ns()
        began = perf_counter_ns()
        for churned in events:
            feed(churned, now)
        while arriving:
            feed(Added(arriving.pop()), now)
        fed = perf_counter_ns()
        if watch:
            watch("round")
        decisions = self.scheduler.round(now)
        decided = perf_counter_ns()
        cpu_decided = process_time_ns()
        if watch:
            watch("")
        reports = self._executor.carry_out(decisions, self._measured)
        del decisions
        reported = bool(reports)
        if watch:
            watch("confirm")
        cpu_resumed = process_time_ns()
        resumed = perf_counter_ns()
        while reports:
            event, about = reports.pop()
            feed(event(about), now)
            del about
        confirmed = perf_counter_ns()
        cpu_confirmed = process_time_ns()
        if watch:
            watch("")
        if self._measured:
            meter = self.meter
            meter.feed += fed - began
            meter.round += decided - fed
            meter.confirm += confirmed - resumed
            meter.cpu += cpu_decided - cpu + cpu_confirmed - cpu_resumed
            meter.pods += pods
            if pods:
                meter.decision_times.append((decided - began) / pods)
        return reported
