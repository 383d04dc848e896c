"""Feeds a plan to a scheduler and times only the scheduler's work.

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
from collections.abc import Callable, Iterable, Mapping
from time import perf_counter_ns, process_time_ns
from typing import Any

import msgspec

from holdfast.api.decode import decode_json, decode_pod_json
from holdfast.api.meta import Object
from holdfast.api.pod import Pod
from holdfast.api.raw_objects import Key, Raw
from holdfast.api.reservation import Reservation
from holdfast.api.resource_claims import ResourceClaim
from holdfast.bench.plan import (
    CREATED,
    BenchPlan,
    Churning,
    PlannedObjects,
    PodMaker,
    Pods,
    make_object,
    uid_of,
)
from holdfast.local.executor import DecisionExecutor, reservation_key
from holdfast.scheduler.assembly import GARBAGE_AFTER, controllers
from holdfast.scheduler.cluster.claim_writes import as_json
from holdfast.scheduler.cluster.decisions import Bind, Decision, Emit
from holdfast.scheduler.cluster.events import Added, Deleted, Event, Updated
from holdfast.scheduler.framework.config import API_VERSION, DEFAULT_SCHEDULER_NAME, KIND, load
from holdfast.scheduler.plugins import registry
from holdfast.scheduler.scheduler import Scheduler


class PlanCluster:
    """The pods and reservations of a plan, without kubelets, for decisions to be carried out on.

    A victim is deleted at once. Pods are not stored: a pod is made again from its template and what
    was written to it.
    """

    def __init__(self) -> None:
        self.objects = self
        self.decisions: Counter[str] = Counter()
        """How many there were of each kind while measured pods came."""
        self.placed: dict[str, str] = {}
        """Node names of measured pods, by the pod's name."""
        self.waiting: set[str] = set()
        """The names of pods a barrier waits for."""
        self._makers: dict[str, tuple[PodMaker, bool]] = {}
        """The maker of pods whose names begin so, and whether its pods are measured."""
        self._nodes: dict[str, str] = {}
        """The node of each bound pod, by the pod's name."""
        self._annotations: dict[str, Mapping[str, str]] = {}
        """The annotations of pods that differ from their template's, by the pod's name."""
        self._statuses: dict[str, Raw] = {}
        """The statuses of pods that have no node, by the pod's name."""
        self._reservations: dict[Key, Reservation] = {}
        self._claims: dict[tuple[str, str], ResourceClaim] = {}
        """As the scheduler has them."""
        self._extended: dict[str, str] = {}
        """The claims that were created for extended resources of pods, by the pod's name."""
        self._created = 0
        self._reports: list[Event | None] = []
        self._updated: dict[Key, int] = {}
        """The place in the reports where an object is shown as updated."""
        self._executor = DecisionExecutor(self)

    def know_maker(self, maker: PodMaker, measured: bool) -> None:
        self._makers[maker.prefix] = maker, measured

    def know(self, obj: Object) -> None:
        """An object of the plan arrives."""
        meta = obj.metadata
        if isinstance(obj, Reservation):
            self._reservations[reservation_key(meta.name)] = obj
        elif isinstance(obj, ResourceClaim):
            self._claims[meta.namespace, meta.name] = obj
        elif isinstance(obj, Pod):
            self.waiting.add(meta.name)

    def forget(self, pod: Pod) -> None:
        """A pod of the plan is deleted."""
        self._forget_writes(pod.metadata.name)
        self.waiting.discard(pod.metadata.name)

    def carry_out(self, decisions: list[Decision], measured: bool) -> list[Event]:
        """The outcomes and what the watch shows then, last first. An object that is written several
        times is shown once, as the writer to an API server combines writes to a pod's status."""
        if measured:
            self.decisions.update(type(decision).__name__ for decision in decisions)
        self._reports, self._updated = [], {}
        for decision in decisions:
            self._executor.carry_out(decision)
        reports = [report for report in self._reports if report is not None]
        for key in self._updated:
            if key.name in self._nodes:
                self._statuses.pop(key.name, None)
        self._reports = []
        reports.reverse()
        return reports

    # Its objects

    def get(self, key: Key) -> Raw | None:
        if key.kind == "ResourceClaim":
            claim = self._claims.get((key.namespace, key.name))
            return None if claim is None else as_json(claim)
        if key.kind != "Pod":
            reservation = self._reservations.get(key)
            return None if reservation is None else msgspec.to_builtins(reservation)
        name = key.name
        maker, _ = self._maker(name)
        raw = maker.raw(maker.number_of(name), self._nodes.get(name, ""), self._annotations.get(name))
        if name in self._statuses:
            raw["status"] = self._statuses[name]
        return raw

    def update(self, key: Key, raw: Raw) -> None:
        if key.kind == "Pod":
            self._write_pod(key.name, raw)
            shown: Object = decode_pod_json(msgspec.json.encode(raw))
        elif key.kind == "ResourceClaim":
            claim = decode_json(msgspec.json.encode(raw), ResourceClaim)
            shown = self._claims[key.namespace, key.name] = claim
        else:
            shown = self._reservations[key] = _decoded_reservation(raw)
        earlier = self._updated.get(key)
        if earlier is not None:
            self._reports[earlier] = None
        self._updated[key] = len(self._reports)
        self._reports.append(Updated(shown))

    def _write_pod(self, name: str, raw: Raw) -> None:
        self._statuses[name] = raw["status"]
        if node := raw["spec"]["nodeName"]:
            self._nodes[name] = node
        maker, _ = self._maker(name)
        annotations = raw["metadata"]["annotations"]
        if annotations != maker.annotations(maker.number_of(name)):
            self._annotations[name] = annotations
        else:
            self._annotations.pop(name, None)

    def submit(self, raw: Raw) -> Raw:
        self._created += 1
        if raw["kind"] == "ResourceClaim":
            return self._submit_claim(raw)
        key = reservation_key(raw["metadata"]["name"])
        made = {"uid": uid_of(key.name, self._created), "creationTimestamp": CREATED, "generation": 1}
        raw = {**raw, "metadata": {**raw["metadata"], **made}}
        shown = self._reservations[key] = _decoded_reservation(raw)
        self._reports.append(Added(shown))
        return raw

    def _submit_claim(self, raw: Raw) -> Raw:
        """A claim for the extended resources of a pod. It is shown when it has its allocation."""
        meta = raw["metadata"]
        name = f"{meta['generateName']}{self._created}"
        made = {"name": name, "uid": uid_of(name, self._created), "creationTimestamp": CREATED}
        raw = {**raw, "metadata": {**meta, **made}}
        self._extended[meta["ownerReferences"][0]["name"]] = name
        self._claims[meta["namespace"], name] = decode_json(msgspec.json.encode(raw), ResourceClaim)
        return raw

    def remove(self, maker: PodMaker, number: int) -> list[Event]:
        """Deletes a pod, with the claims that it has."""
        meta = maker.raw(number)["metadata"]
        name, namespace = meta["name"], meta["namespace"]
        raw = self.get(Key("", "Pod", namespace, name))
        claims = [each.metadata.name for each in maker.along(number)]
        if name in self._extended:
            claims.append(self._extended.pop(name))
        gone = [self._claims.pop((namespace, claim)) for claim in claims]
        self._forget_writes(name)
        return [Deleted(decode_pod_json(msgspec.json.encode(raw))), *map(Deleted, gone)]

    def end(self, key: Key) -> None:
        self._reports.append(Deleted(self._reservations.pop(key)))

    def scan(self, group: str, kind: str) -> Iterable[Raw]:
        return ()

    def _maker(self, name: str) -> tuple[PodMaker, bool]:
        return self._makers[name.rpartition("-")[0]]

    # What decisions are carried out on; see `DecisionTarget`

    def now(self) -> str:
        return CREATED

    def feed(self, event: Event) -> None:
        self._reports.append(event)

    def record(
        self, key: Key, event: str, *, node: str = "", reservation: str = "", message: str = ""
    ) -> None:
        pass

    def binding(self, key: Key, decision: Bind) -> None:
        if self._maker(key.name)[1]:
            self.placed[key.name] = decision.node
        self.waiting.discard(key.name)

    def started(self, pod: Raw, bound: Raw) -> Raw:
        return bound

    def delete_pod(self, key: Key, grace: int | None = None) -> None:
        pod = self.get(key)
        assert pod is not None
        self._reports.append(Deleted(decode_pod_json(msgspec.json.encode(pod))))
        self.placed.pop(key.name, None)
        self._forget_writes(key.name)

    def emit(self, decision: Emit) -> None:
        pass

    def _forget_writes(self, name: str) -> None:
        for written in (self._nodes, self._annotations, self._statuses):
            written.pop(name, None)


def _decoded_reservation(raw: Raw) -> Reservation:
    return decode_json(msgspec.json.encode(raw), Reservation)


Watch = Callable[[str], None]
"""Called when a part of the work begins: feed, round, confirm, or "" for none of them."""


class Meter:
    """Nanoseconds spent in measured batches, by part."""

    def __init__(self) -> None:
        self.feed = 0
        self.round = 0
        self.confirm = 0
        self.cpu = 0
        self.pods = 0
        self.decision_times: list[float] = []
        """Seconds per pod of each batch, from feeding its first pod to its decisions."""

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

    def events(self, drive: "Drive") -> list[Any]:
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
        self._cluster = PlanCluster()
        self.decisions = self._cluster.decisions
        self.placed = self._cluster.placed
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
        frozen_before = gc.get_freeze_count() > 0
        gc.collect()
        gc.freeze()
        thresholds = gc.get_threshold()
        gc.set_threshold(*GARBAGE_AFTER)  # as `holdfast run` has it
        try:
            for step in self._plan.steps:
                match step:
                    case PlannedObjects(objects):
                        for obj in objects:
                            self._cluster.know(obj)
                            self.scheduler.feed(Added(obj), self._now)
                    case Pods():
                        self._arrive(step, ready.pop(id(step)))
                    case Churning():
                        self._churners.append(_Churner(step, self._now))
                    case _:
                        self._settle()
        finally:
            gc.set_threshold(*thresholds)
            if not frozen_before:
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
        self._cluster.know_maker(maker, measured=False)
        if delete:
            self._cluster.forget(pod)
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
        self._cluster.know_maker(step.maker, step.measured)
        count = self._count(step)
        began = self._now
        batch = min(self._batch, step.at_once or self._batch)
        leaving: list[Event] = []
        for start in range(0, count, batch):
            numbers = range(start, min(start + batch, count))
            if self._plan.streamed:
                made = [step.maker.arriving(number) for number in reversed(numbers)]
            arriving = [obj for batch in made[-len(numbers) :] for obj in reversed(batch)]
            del made[-len(numbers) :]
            for obj in arriving:
                self._cluster.know(obj)
            self._now = began + numbers.stop / self._plan.arrivals_per_second
            events = leaving + [
                event
                for churner in self._churners
                for _ in range(churner.due(self._now, len(numbers)))
                for event in churner.events(self)
            ]
            self._round(len(numbers), arriving, events)
            if step.at_once:
                leaving = [
                    event for each in numbers for event in self._cluster.remove(step.maker, each)
                ]
        self._round(0, [], leaving)

    def _settle(self) -> None:
        """Lets time pass until pods have their nodes; the time between timers costs nothing."""
        waiting, idle, reported = self._cluster.waiting, 0, False
        while waiting and idle < 3:
            due = self.scheduler.next_timer()
            if due is None and not reported:
                break
            before, follows = len(waiting), reported
            if not follows:
                self._now = max(self._now, due or 0.0)
            reported = self._round(0, [], [])
            if len(waiting) < before:
                idle = 0
            elif not follows:
                idle += 1
        self._measured = False

    def _round(self, pods: int, arriving: list[Object], events: list[Any]) -> bool:
        """One round: feeds the events, schedules, and carries out the decisions. `arriving` is in
        reverse order. Returns whether anything was decided."""
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
        reports = self._cluster.carry_out(decisions, self._measured)
        del decisions
        reported = bool(reports)
        if watch:
            watch("confirm")
        cpu_resumed = process_time_ns()
        resumed = perf_counter_ns()
        while reports:
            feed(reports.pop(), now)
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
