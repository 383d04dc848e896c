"""A plan fed to a scheduler, with the clock running only while the scheduler works.

What is timed is what a backend would make the scheduler do, given decoded objects:

    feed       Added(pod) for each pod of a batch, its claims and volumes, and what churns meanwhile
    round      from the queue to decisions
    confirm    BindConfirmed, Updated with the pod as the watch shows it now, Deleted for victims

What is not: making and decoding objects. An object is let go as soon as it was fed, as a reflector
does, so that giving its memory back is in the figures.
"""

import gc
import hashlib
from collections.abc import Callable
from time import perf_counter_ns, process_time_ns
from typing import Any

from holdfast.actions.scheduler import Scheduler
from holdfast.api.meta import Object
from holdfast.api.pod import Pod
from holdfast.api.reservation import Reservation
from holdfast.backends.assembly import GARBAGE_AFTER, controllers
from holdfast.bench.hands import Hands
from holdfast.bench.making import PodMaker, make_object
from holdfast.bench.plan import Churning, Objects, Plan, Pods
from holdfast.core.events import Added, Deleted
from holdfast.framework.config import API_VERSION, DEFAULT_SCHEDULER_NAME, KIND, load
from holdfast.plugins import registry

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
        self, plan: Plan, batch: int, limit: int | None = None, watch: Watch | None = None
    ) -> None:
        implements = registry().implements()
        configuration = load({"apiVersion": API_VERSION, "kind": KIND}, implements)
        aliases = {"default-scheduler": DEFAULT_SCHEDULER_NAME}
        self.scheduler = Scheduler(configuration, registry(), aliases, controllers(configuration))
        self.meter = Meter()
        self._hands = Hands()
        self.decisions = self._hands.decisions
        self.placed = self._hands.placed
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
                    case Objects(objects):
                        for obj in objects:
                            if isinstance(obj, Reservation):
                                self._hands.reservations.know(obj)
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
        self._hands.know(maker, measured=False)
        if delete:
            self._hands.forget(pod.metadata.uid)
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
        self._hands.know(step.maker, step.measured)
        count = self._count(step)
        began = self._now
        for start in range(0, count, self._batch):
            numbers = range(start, min(start + self._batch, count))
            if self._plan.streamed:
                made = [step.maker.arriving(number) for number in reversed(numbers)]
            arriving = [obj for batch in made[-len(numbers) :] for obj in reversed(batch)]
            del made[-len(numbers) :]
            self._hands.waiting.update(obj.metadata.uid for obj in arriving if isinstance(obj, Pod))
            for obj in arriving:
                if isinstance(obj, Reservation):
                    self._hands.reservations.know(obj)
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
        waiting, idle, reported = self._hands.waiting, 0, False
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
        reports = self._hands.carry_out(decisions, self._measured)
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
