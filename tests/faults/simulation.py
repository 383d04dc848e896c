"""One life from beginning to end: processes, troubles, users, kubelets, and the rules."""

from __future__ import annotations

import asyncio
import random
import signal
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache
from typing import Any

from faults.audit import GROUP_NAME, Audit, Violation, group_of, has_ended
from faults.claim_controller import ClaimController
from faults.life import NAMES, START, Life, Trouble
from faults.model import LEASES, NODES, PODS, QUOTAS, Model, Raw, Refused, frame
from faults.network import CONNECTING, OK, Fate, Network, Sent, Stream
from faults.process import Endless, ProcessLoop, Timeline
from faults.slow_permit import SlowPermit
from harness.team_quotas import QUOTA, TeamQuotas
from holdfast.api.times import format_time
from holdfast.kube.cache_comparer import Difference, compare
from holdfast.kube.client_settings import Access
from holdfast.kube.decoding import WATCHED, Watched
from holdfast.kube.flow_control import Clock
from holdfast.kube.run import Running, RunSettings
from holdfast.scheduler.cluster.records import Phase
from holdfast.scheduler.framework.config import API_VERSION, KIND, Configuration, load
from holdfast.scheduler.framework.registry import Registry
from holdfast.scheduler.plugins import registry

PATIENCE = 240.0
"""Virtual seconds after the last fault within which everything must have come to rest."""
QUIET = 8.0
"""At rest nothing is written for so long."""
FIRST_LOOK, LAST_LOOK = 2.0, 20.0


@cache
def plugins() -> Registry:
    known = registry()
    known.add(TeamQuotas)
    known.add(SlowPermit)
    return known


@cache
def configuration(
    starving: bool, retry_period: str, quotas: bool, slow_permit: bool, scheduler: str
) -> Configuration:
    raw: Raw = {"apiVersion": API_VERSION, "kind": KIND}
    chosen = ((TeamQuotas, quotas), (SlowPermit, slow_permit))
    enabled = [{"name": plugin.name} for plugin, is_on in chosen if is_on]
    if enabled:
        raw["profiles"] = [{"plugins": {"multiPoint": {"enabled": enabled}}}]
    raw["leaderElection"] = {"leaderElect": True, "retryPeriod": retry_period}
    if scheduler:
        raw["profiles"] = [{"schedulerName": scheduler}]
        raw["leaderElection"]["resourceName"] = scheduler
    if starving:
        reserve = {"starvingJobTimeThreshold": 5, "reservedNodePercent": 50, "hold": "amount"}
        raw["actions"] = [
            {"name": "allocate"},
            {"name": "backfill"},
            {"name": "reserve", "arguments": reserve},
            {"name": "preempt"},
            {"name": "reclaim"},
        ]
    return load(raw, plugins().implements())


class ProcessClock(Clock):
    """Elapsed time is the timeline's; the wall clock can be set."""

    def __init__(self, timeline: Timeline, booted: float) -> None:
        self._timeline = timeline
        self._booted = booted
        self.ahead = 0.0
        super().__init__()

    def elapsed(self) -> float:
        return self._timeline.now + self._booted

    def wall(self) -> float:
        return START + self._timeline.now + self.ahead


@dataclass
class Outcome:
    seed: int
    problems: list[str] = field(default_factory=list)
    log: list[str] = field(default_factory=list)
    end: float = 0.0
    steps: int = 0
    binds: int = 0
    doubles: int = 0
    """Pairs of claims with one device at the end."""


class Process:
    """A scheduler process that can die and be started again."""

    def __init__(self, simulation: Simulation, name: str) -> None:
        self.simulation = simulation
        self.name = name
        self.loop: ProcessLoop | None = None
        self.running: Running | None = None
        self.main: asyncio.Task[None] | None = None
        self.starts = 0
        index = NAMES.index(name)
        self.clock_ahead = 0.0
        self._booted = 1000.0 * (index + 1)
        self.clock: ProcessClock | None = None

    @property
    def is_alive(self) -> bool:
        return self.loop is not None and not self.loop.is_dead

    def start(self) -> None:
        sim = self.simulation
        if self.is_alive:
            return
        self.starts += 1
        sim.trace("start", self.name)
        self.loop = ProcessLoop(sim.timeline, self.name, sim.network.connect, sim.callback_failed)
        sim.loops.append(self.loop)
        self.clock = ProcessClock(sim.timeline, self._booted)
        self.clock.ahead = self.clock_ahead
        self.main = self.loop.start(self._main(self.loop))

    async def _main(self, loop: ProcessLoop) -> None:
        sim = self.simulation
        life = sim.life
        assert self.clock is not None
        settings = RunSettings(
            access=Access(f"http://{self.name}.example:80"),
            configuration=configuration(
                life.starving,
                life.retry_period,
                life.quotas,
                life.slow_permit,
                life.schedulers.get(self.name, ""),
            ),
            registry=plugins(),
            elect=True,
            health=None,
            log=self._log,
            clock=self.clock,
            rng=random.Random(f"{life.seed}/{self.name}/{self.starts}"),
            watched=WATCHED if life.every_kind else _kinds(life.claims),
            collect=sim.collect,
        )
        running = self.running = Running(settings)
        try:
            async with running.client:
                await running.run()
        except Exception as error:
            if not loop.is_dead:
                sim.fail(f"process {self.name} ended: {type(error).__name__}: {error}")
            raise
        finally:
            loop.is_dead = True

    def _log(self, event: str, **particulars: object) -> None:
        self.simulation.trace("log", self.name, event, *(f"{k}={v}" for k, v in particulars.items()))
        if event == "leading":
            self.simulation.audit.new_leader()

    def kill(self) -> None:
        if self.loop is not None and self.is_alive:
            self.simulation.trace("kill", self.name)
            self.loop.kill()
            self.simulation.network.drop(self.loop)

    def stop(self) -> None:
        if self.loop is not None and self.is_alive:
            handler = self.loop.signals.get(signal.SIGTERM)
            if handler is not None:
                self.simulation.trace("SIGTERM", self.name)
                self.loop.call_soon(handler)


class Simulation:
    def __init__(self, life: Life, keep_log: bool = True) -> None:
        self.life = life
        self.outcome = Outcome(life.seed)
        self.keep_log = keep_log
        self.timeline = Timeline()
        self.model = Model(lambda: format_time(START + self.timeline.now))
        self.network = Network(self.timeline, self.model, random.Random(life.seed + 5))
        self.network.leases = life.schedulers
        self.audit = self.new_audit()
        self.loops: list[ProcessLoop] = []
        self.processes = {name: Process(self, name) for name in NAMES[: life.replicas]}
        self.rng = random.Random(life.seed + 11)
        claims_rng = random.Random(life.seed + 17)
        self.claims = ClaimController(self.model, self.timeline.call_later, claims_rng)
        self._connects = random.Random(life.seed + 13)
        self.healed = False
        self.collect: Callable[[], object] = int
        """Called when a process is done with a runner; see `RunSettings`."""
        self._storms: list[tuple[Trouble, random.Random]] = []
        self._watching: list[Trouble] = []
        self._apart: dict[str, float] = {}
        self._recreated: dict[str, int] = {}
        self._last_write = 0.0
        self._places: dict[str, str] = {}
        """The nodes that pods were to be bound to, by uid."""
        self._writes = 0
        self.model.written = self._written
        self.network.fate = self._fate
        self.network.is_apart = self._is_apart
        self.network.connecting_takes = self._connecting_takes
        self.network.stream_opened = self._stream_opened
        self.network.streams_lists = life.streams
        self.network.log = self.trace

    def new_audit(self) -> Audit:
        return Audit(self.model, self.network)

    def run(self) -> Outcome:
        try:
            self._live()
        except (Violation, Endless) as error:
            self.fail(str(error))
        finally:
            self.outcome.end = self.timeline.now
            self.outcome.steps = self.timeline.steps
            for loop in self.loops:
                loop.kill()
            self.network.drop_all()
            self.timeline.clear()
            for loop in self.loops:
                loop.bury()
        return self.outcome

    def fail(self, problem: str) -> None:
        self.trace("VIOLATION", problem)
        self.outcome.problems.append(f"{self.timeline.now:.3f} s: {problem}")

    def trace(self, *what: object) -> None:
        if self.keep_log:
            self.outcome.log.append(f"{self.timeline.now:9.4f} {' '.join(map(str, what))}")

    def callback_failed(self, loop: ProcessLoop, error: object) -> None:
        self.fail(f"a callback of {loop.name} failed: {error!r}")

    # The life

    def _live(self) -> None:
        for path, raw in self.life.first:
            self.model.create(path, raw)
        for when, what, args in self.life.acts:
            self.timeline.call_at(when, self._act, what, args)
        for index, trouble in enumerate(self.life.troubles):
            self.timeline.call_at(trouble.at, self._begin, trouble, index)
        for index, process in enumerate(self.processes.values()):
            self.timeline.call_at(0.05 * index, process.start)
        self.timeline.run(self.life.troubled + 1, self._has_failed)
        if self._has_failed():
            return
        self._heal()
        healed_at, wait = self.timeline.now, FIRST_LOOK
        while True:
            self.timeline.run(self.timeline.now + wait, self._has_failed)
            if self._has_failed():
                return
            quiet = self.timeline.now - self._last_write >= QUIET
            problems = list(self._at_rest()) if quiet else ["still writing"]
            if not problems:
                break
            if quiet:
                wait = min(wait * 1.5, LAST_LOOK)  # to compare takes long
            if self.timeline.now - healed_at > PATIENCE:
                for problem in problems:
                    self.fail(f"not at rest {PATIENCE:.0f} s after the last fault: {problem}")
                return

    def _has_failed(self) -> bool:
        return bool(self.outcome.problems)

    def _at_rest(self) -> list[str]:
        problems = list(self.audit.at_rest())
        if problems:
            return problems
        leaders = [
            process
            for process in self.processes.values()
            if process.running is not None
            and process.running.runner is not None
            and process.running.runner.fence.is_open
        ]
        if len(leaders) != max(1, len(self.life.schedulers)):
            return [f"{len(leaders)} leaders"]
        for process in self.processes.values():
            difference = self._compare(process)
            if isinstance(difference, str):
                problems.append(difference)
                continue
            found = {name: getattr(difference, name) for name in difference.__struct_fields__}
            if process not in leaders:
                found.pop("misjudged_reservations")
            problems += [f"{process.name}: {name}: {what}" for name, what in found.items() if what]
            problems += self._stale_quotas(process)
        return problems

    def _stale_quotas(self, process: Process) -> list[str]:
        """Whether the plugin sees the objects as they are."""
        if not self.life.quotas or process.running is None or process.running.runner is None:
            return []
        known = process.running.runner.scheduler.cluster.raw_objects.of(QUOTA)
        there = {raw["metadata"]["name"]: raw["spec"] for raw in self.model.all(QUOTAS)}
        seen = {name: raw["spec"] for (_, name), raw in known.items()}
        return [] if seen == there else [f"{process.name}: quotas are {there}, seen are {seen}"]

    def _compare(self, process: Process) -> Difference | str:
        running, loop = process.running, process.loop
        if running is None or running.runner is None or loop is None:
            return f"{process.name} does not run"
        task = loop.start(compare(running.client, running.runner.scheduler))
        self.timeline.run(self.timeline.now + 30.0, task.done)
        if not task.done():
            return f"{process.name} cannot be compared"
        difference: Difference = task.result()
        return difference

    # Users, kubelets, controllers

    def _act(self, what: str, args: Any) -> None:
        self.trace("act", what, args[1] if what != "create" else args[1]["metadata"]["name"])
        self._look_at_places()
        try:
            if args[0] in self.model.undefined and what != "define":
                return
            if what == "create":
                self.model.create(*args)
            elif what in ("open", "close"):
                self._change_quota(args[1], what == "close")
            elif what == "define":
                self.model.undefined.discard(args[0])
            elif what == "undefine":
                self._undefine(args[0])
            elif what == "delete":
                self._delete(*args)
            elif what == "end":
                self._end(args[1])
        except Refused:
            pass

    def _change_quota(self, team: str, closed: bool) -> None:
        found = self.model.find(QUOTAS, team)
        if found is not None:
            self.model.change(QUOTAS, found, spec={**found["spec"], "closed": closed})

    def _undefine(self, path: str) -> None:
        self.model.undefine(path)
        for stream in list(self.network.streams):
            if stream.path == path:
                stream.end()

    def _delete(self, path: str, name: str, namespace: str) -> None:
        if path == NODES:
            self.audit.broken_up |= self._gangs_on(name)
        elif path == PODS and (pod := self.model.find(PODS, name)) is not None:
            self.audit.broken_up.add(group_of(pod))
        self.model.delete(path, name, namespace)
        if path == NODES:
            for pod in self.audit.pods_on(name):
                self.model.remove(PODS, pod)

    def _gangs_on(self, node: str) -> set[str]:
        """Gangs of which a member is on the node, or was to be bound to it."""
        chosen = {**self._places, **self.network.targets}
        return {
            group_of(pod)
            for pod in self.model.all(PODS)
            if (pod["spec"].get("nodeName") or chosen.get(pod["metadata"]["uid"])) == node
            and not has_ended(pod)
        }

    def _look_at_places(self) -> None:
        """Takes note of the nodes that pods are to be bound to: a process may lose them, and the
        leadership, before it sends the binds. It may also have chosen a node that is deleted already,
        which it does not know."""
        for process in self.processes.values():
            if process.running is not None and process.running.runner is not None:
                cluster = process.running.runner.scheduler.cluster
                assumed = [pod for pod in cluster.pods.values() if pod.phase is Phase.ASSUMED]
                self._places.update((pod.uid, cluster.nodes.name(pod.row)) for pod in assumed)
        there = {node["metadata"]["name"] for node in self.model.all(NODES)}
        for pod in self.model.all(PODS):
            chosen = self._places.get(pod["metadata"]["uid"])
            if chosen is not None and chosen not in there:
                self.audit.broken_up.add(group_of(pod))

    def _end(self, name: str) -> None:
        pod = self.model.find(PODS, name)
        if pod is not None and pod["spec"].get("nodeName") and not has_ended(pod):
            self.model.change(PODS, pod, status={**pod["status"], "phase": "Succeeded"})

    def _written(self, path: str, old: Raw | None, new: Raw | None) -> None:
        if path == LEASES:
            self.audit.written(path, old, new)
            return
        self._last_write = self.timeline.now
        if path == PODS:
            self._kubelet(old, new)
        if self.life.claims:
            self.claims.written(path, old, new)
        self.audit.written(path, old, new)

    def _kubelet(self, old: Raw | None, new: Raw | None) -> None:
        later = self.timeline.call_later
        if new is None:
            assert old is not None
            self._replace(old)
            return
        meta, uid = new["metadata"], new["metadata"]["uid"]
        if new["spec"].get("nodeName") and (old is None or not old["spec"].get("nodeName")):
            self.outcome.binds += 1
            later(self.rng.uniform(0.05, 1.0), self._run_pod, meta["name"], uid)
        was_leaving = old is not None and old["metadata"].get("deletionTimestamp")
        if meta.get("deletionTimestamp") and not was_leaving:
            later(self.rng.uniform(0.1, 4.0), self._finish_pod, meta["name"], uid)

    def _current(self, name: str, uid: str) -> Raw | None:
        pod = self.model.find(PODS, name)
        return pod if pod is not None and pod["metadata"]["uid"] == uid else None

    def _run_pod(self, name: str, uid: str) -> None:
        pod = self._current(name, uid)
        if pod is not None and pod["status"].get("phase") == "Pending":
            self.model.change(PODS, pod, status={**pod["status"], "phase": "Running"})

    def _finish_pod(self, name: str, uid: str) -> None:
        pod = self._current(name, uid)
        if pod is not None:
            self.model.remove(PODS, pod)

    def _replace(self, gone: Raw) -> None:
        """What a ReplicaSet does."""
        meta = gone["metadata"]
        if (meta.get("annotations") or {}).get("replica") != "yes":
            return
        base = meta["name"].partition(".")[0]
        count = self._recreated[base] = self._recreated.get(base, 0) + 1
        if count > 12:
            self.fail(f"{base} was made to go {count} times")
            return
        kept = {k: v for k, v in meta["annotations"].items() if k in ("replica", GROUP_NAME)}
        fresh = {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {
                "name": f"{base}.{count}",
                "namespace": "default",
                "labels": meta.get("labels", {}),
                "annotations": kept,
            },
            "spec": {k: v for k, v in gone["spec"].items() if k != "nodeName"},
        }
        self.timeline.call_later(self.rng.uniform(0.1, 1.0), self._create, fresh)

    def _create(self, raw: Raw) -> None:
        self.model.create(PODS, raw)

    # Troubles

    def _begin(self, trouble: Trouble, index: int) -> None:
        if self.healed:
            return
        self.trace("trouble", trouble)
        later = self.timeline.call_later
        process = self.processes.get(trouble.who)
        if trouble.kind == "storm":
            entry = (trouble, random.Random(self.life.seed * 1000 + index))
            self._storms.append(entry)
        elif trouble.kind == "watch":
            self._disturb(trouble)
        elif trouble.kind == "kill" and process is not None:
            if process.loop is not None:
                process.loop.fuse = trouble.steps
                process.loop.burnt = lambda: self._killed(process, trouble.lasts)
        elif trouble.kind == "stop" and process is not None:
            process.stop()
            later(25.0 + trouble.lasts, process.start)
        elif trouble.kind == "pause" and process is not None:
            if process.loop is not None:
                process.loop.pause()
                later(trouble.lasts, process.loop.resume)
        elif trouble.kind == "partition":
            self._apart[trouble.who] = self.timeline.now + trouble.lasts
        elif trouble.kind == "outage":
            self.network.is_away = True
            self.network.cut_all()
            later(trouble.lasts, self._server_back)
        elif trouble.kind == "clock" and process is not None:
            process.clock_ahead += trouble.amount
            if process.clock is not None:
                process.clock.ahead = process.clock_ahead
        elif trouble.kind == "compact":
            self.model.compact()

    def _killed(self, process: Process, back_after: float) -> None:
        process.kill()
        self.timeline.call_later(back_after, process.start)

    def _server_back(self) -> None:
        self.network.is_away = False

    def _is_apart(self, name: str) -> bool:
        return self._apart.get(name, 0.0) > self.timeline.now

    def _disturb(self, trouble: Trouble) -> None:
        if trouble.how in ("lag", "double", "mute"):
            self._watching.append(trouble)
        for stream in list(self.network.streams):
            if self._concerns(trouble, stream):
                self._spoil(stream, trouble)

    def _concerns(self, trouble: Trouble, stream: Stream) -> bool:
        return trouble.who in ("", stream.process) and trouble.what in ("", stream.path)

    def _spoil(self, stream: Stream, trouble: Trouble) -> None:
        how = trouble.how
        if how == "cut":
            stream.transport.cut()
        elif how == "garble":
            stream.garble()
        elif how == "truncate":
            stream.truncate()
        elif how == "nonsense":
            stream.nonsense()
        elif how == "end":
            stream.end()
        elif how == "expire":
            status = {"kind": "Status", "code": 410, "reason": "Expired", "message": "too old"}
            stream.end(frame("ERROR", status))
        elif how == "lag":
            stream.lag = trouble.amount
        elif how == "double":
            stream.doubled = True
        elif how == "mute":
            stream.mute = True

    def _stream_opened(self, stream: Stream) -> None:
        for trouble in self._watching:
            is_now = self.timeline.now <= trouble.at + trouble.lasts
            if is_now and trouble.how != "mute" and self._concerns(trouble, stream):
                self._spoil(stream, trouble)

    def _fate(self, sent: Sent) -> Fate:
        if self.healed or not self._storms:
            return OK
        for trouble, rng in self._storms:
            if not trouble.at <= self.timeline.now <= trouble.at + trouble.lasts:
                continue
            if trouble.who not in ("", sent.process):
                continue
            if trouble.what not in ("", sent.what) or rng.random() >= trouble.chance:
                continue
            how = trouble.how
            if how == "any":
                how = rng.choice(_ANY)
            arrives = rng.uniform(0.0, min(trouble.amount, 2.5)) if rng.random() < 0.5 else 0.001
            answered = rng.uniform(0.0, trouble.amount) if how == "slow" else 0.001
            status = rng.choice((500, 503, 504, 429))
            if status == 429 and how != "error":
                status = 503  # a server does not carry out what it answers with 429
            later = rng.uniform(0.01, trouble.amount)
            fate = Fate("ok" if how == "slow" else how, arrives, answered, status, later)
            self.trace("fate", fate.how, sent.process, sent.method, sent.url)
            return fate
        return OK

    def _connecting_takes(self, process: str) -> float:
        for trouble, _ in self._storms:
            is_now = trouble.at <= self.timeline.now <= trouble.at + trouble.lasts
            concerns = is_now and trouble.how == "slow" and trouble.who in ("", process)
            if concerns and self._connects.random() < trouble.chance:
                return CONNECTING + self._connects.uniform(0.0, trouble.amount)
        return CONNECTING

    def _heal(self) -> None:
        self.trace("healed")
        self.healed = True
        self._storms.clear()
        self._watching.clear()
        self._apart.clear()
        self.network.is_away = False
        for stream in list(self.network.streams):
            stream.lag, stream.doubled = 0.0, False
        for process in self.processes.values():
            if process.loop is not None:
                process.loop.fuse = 0
                process.loop.resume()
            if not process.is_alive:
                process.start()


_USED = ("Node", "Pod", "PriorityClass", "Reservation", "PodMigrationJob", "PodGroup", "Queue")
_OF_DEVICES = ("ResourceClaim", "ResourceClaimTemplate", "ResourceSlice", "DeviceClass")


@cache
def _kinds(claims: bool) -> tuple[Watched, ...]:
    """Those that occur in lives; lists of others only take time."""
    used = (*_USED, *_OF_DEVICES) if claims else _USED
    return tuple(each for each in WATCHED if each.info.kind in used)


_ANY = ("error", "error after", "error late", "cut", "cut after", "unanswered", "twice", "slow")
