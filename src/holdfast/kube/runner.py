"""The main loop on Kubernetes: feeds events to the scheduler, runs rounds, passes decisions to the
writer.

    reflectors ─► inbox ─► scheduler ─► writer ─► server ─► reflectors …

The loop never waits for the server. A round is cut into slices of some pods each, so that binds are
written while the rest is still being decided, and decisions stop while too many binds are unwritten: a
pod that has not been decided can still be overtaken by a more important one.
"""

import asyncio
import random
import time
from collections import defaultdict, deque
from collections.abc import Callable, Sequence
from itertools import chain, repeat

from holdfast.kube.client import Client
from holdfast.kube.decoding import WATCHED, Watched
from holdfast.kube.flow_control import Clock, RateLimit
from holdfast.kube.leader_election import Fence
from holdfast.kube.reflector import Reflector, is_older
from holdfast.kube.writer.write_queue import Lane
from holdfast.kube.writer.writer import Writer
from holdfast.metrics import SchedulingMetrics
from holdfast.scheduler.cluster.decisions import Emit, ObjectRef
from holdfast.scheduler.cluster.events import BindConfirmed, Event, Updated
from holdfast.scheduler.managers.claims.claim_state import ConflictingClaim
from holdfast.scheduler.scheduler import Scheduler

MAX_SLICE_PODS = 100
"""Pods scheduled before the event loop handles I/O again."""
MAX_SLICE_SECONDS = 0.02
"""Seconds after which a slice ends earlier: diagnosing an unschedulable pod takes milliseconds."""
MAX_FED_EVENTS = 500
"""Events fed to the scheduler before the event loop handles I/O again."""
MAX_UNSENT_BINDS = 500
"""With this many binds waiting to be sent, no more pods are scheduled."""
_SWEEP_SECONDS = 60.0
_CLAIMING = (
    "Node",
    "Pod",
    "Reservation",
    "PodGroup",
    "PersistentVolume",
    "PersistentVolumeClaim",
    "ResourceClaim",
    "ResourceSlice",
)
"""The kinds in which claims on capacity are written, and where there is any."""

_LEVELS = {"listed": "debug", "listing": "debug", "interrupted": "debug", "failed": "warning"}
"""The client logs once for all reflectors that the server is unreachable."""

Log = Callable[..., None]
"""Called with an event's name and its particulars by name; `level` among them if it is not `info`."""


_STORY = 20
"""Lines of an object's story that are logged."""


def no_log(event: str, **particulars: object) -> None:
    pass


class Runner:
    """`fence` knows whether this process may decide and write; see `Election`."""

    def __init__(
        self,
        scheduler: Scheduler,
        client: Client,
        fence: Fence,
        clock: Clock,
        *,
        metrics: SchedulingMetrics | None = None,
        log: Log = no_log,
        limit: RateLimit | None = None,
        watched: Sequence[Watched] = WATCHED,
        stream: bool = True,
        claim_timeout: float = 600.0,
        rng: random.Random | None = None,
    ) -> None:
        self.scheduler = scheduler
        self.fence = fence
        self._clock = clock
        self._metrics = metrics
        self._log = log
        self._inbox: deque[Event] = deque()
        self._held: list[Event] | None = []
        """Events received before all nodes were known; None afterwards. They come first, so that two
        schedulers that start on the same cluster have them in the same order."""
        self._wake = asyncio.Event()
        self._stopping = False
        self._follows = False
        self.reflectors = [
            Reflector(client, each, sink, self._reporter(each), stream, rng)
            for each, sink in zip(
                watched, chain([self._put], repeat(self._put_after_first)), strict=False
            )
        ]
        self._by_kind: defaultdict[str, list[Reflector]] = defaultdict(list)
        for each, reflector in zip(watched, self.reflectors, strict=True):
            if not each.read_by:
                self._by_kind[each.info.kind].append(reflector)
        claims = scheduler.cluster.objects.setdefault("PersistentVolumeClaim", {})
        self.writer = Writer(
            client,
            fence,
            self._write_answered,
            claims,
            self._controller,
            clock.wall,
            self._write_failed,
            limit,
            claim_timeout,
            self._version,
            scheduler.cluster.objects.setdefault("ResourceClaim", {}),
            self._conflicts_of,
        )
        self.has_synced = False
        self._names = [profile.scheduler_name for profile in scheduler.profiles]

    def _version(self, ref: ObjectRef) -> str:
        """The resourceVersion last seen of an object."""
        found = (each.version(ref.namespace, ref.name, ref.uid) for each in self._by_kind[ref.kind])
        return next(filter(None, found), "")

    def _conflicts_of(self, uid: str) -> Sequence[ConflictingClaim] | None:
        """The claims that have devices of a pod's claims; None while it is not known: as long as the
        watch lags behind the answers to writes, or something is not fed yet."""
        cluster = self.scheduler.cluster
        pod = cluster.pods.get(uid)
        if pod is None or not cluster.claims.active or not cluster.claims.concerns(pod.cls):
            return ()
        if self._inbox:
            return None
        for claim in cluster.claims.claims_of(pod):
            meta = claim.metadata
            seen = self._version(ObjectRef("ResourceClaim", meta.namespace, meta.name, meta.uid))
            if claim.status.allocation is None or is_older(seen or "0", meta.resource_version):
                return None
        return cluster.claims.conflicting(pod)

    async def run(self) -> None:
        """Runs until cancelled."""
        endless = [asyncio.create_task(reflector.run()) for reflector in self.reflectors]
        endless += [asyncio.create_task(self._loop()), asyncio.create_task(self._sweep())]
        syncing = asyncio.create_task(self._mark_synced())
        try:
            done, _ = await asyncio.wait(endless, return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                task.result()  # it cannot have ended but by an error
        finally:
            for task in (*endless, syncing):
                task.cancel()
            await asyncio.gather(*endless, syncing, return_exceptions=True)

    def follow(self) -> None:
        """Makes no decisions before `lead` is called."""
        self._follows = True

    async def lead(self, resync: bool) -> None:
        """Decides from now on; with `resync`, once everything that claims capacity has been read again.
        Another led until a moment ago, and what it wrote last must be known first."""
        if resync:
            claiming = [r for r in self.reflectors if r.watched.info.kind in _CLAIMING and not r.absent]
            await asyncio.gather(*(reflector.refresh() for reflector in claiming))
            while self._inbox:
                await asyncio.sleep(0)
        self._follows = False
        self._wake.set()

    async def stop(self, patience: float) -> bool:
        """Decides nothing more; waits for what was decided to be written. False if it took too long."""
        self._stopping = True
        give_up_at = asyncio.get_running_loop().time() + patience
        if not await self.writer.queue.drain(patience):
            return False
        # The outcomes of the last binds are known now; their Events are still to be written.
        while self._inbox:
            self._feed_some()
        self.writer.carry_out(self.scheduler.round(self._clock.now(), limit=0))
        return await self.writer.queue.drain(give_up_at - asyncio.get_running_loop().time())

    async def finish(self, patience: float) -> bool:
        """Sends nothing more; waits for the answers that are due. False if that takes too long."""
        return await self.writer.finish(patience)

    async def close(self) -> None:
        await self.writer.queue.close()

    def unsynced(self) -> list[str]:
        """The kinds that have not been read yet, each with the problem."""
        return [
            f"{r.watched.name}: {r.problem or 'not listed yet'}"
            for r in self.reflectors
            if not r.synced.is_set()
        ]

    @property
    def is_quiet(self) -> bool:
        """Whether there is nothing to feed, to decide or to write."""
        return not (self._inbox or self.scheduler.unfinished or len(self.writer.queue))

    def wake(self) -> None:
        """Wakes the loop up after an outside change, such as of the leader."""
        self._wake.set()

    # The loop

    async def _loop(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            self._feed_some()
            if self._may_decide():
                self._decide()
            if self._inbox or (self.scheduler.unfinished and self._may_decide()):
                await asyncio.sleep(0)
                continue
            self._wake.clear()
            timer = self._timer(loop)
            try:
                await self._wake.wait()
            finally:
                if timer is not None:
                    timer.cancel()

    def _feed_some(self) -> None:
        inbox, scheduler, now = self._inbox, self.scheduler, self._clock.now()
        for _ in range(min(len(inbox), MAX_FED_EVENTS)):
            event = inbox.popleft()
            scheduler.feed(event, now)
            self.writer.saw(event)

    def _may_decide(self) -> bool:
        return (
            self.has_synced
            and not self._stopping
            and not self._follows
            and self.fence.is_open
            and self.writer.queue.length(Lane.BIND) < MAX_UNSENT_BINDS
        )

    def _decide(self) -> None:
        absent = any(reflector.absent for reflector in self._by_kind["Reservation"])
        self.scheduler.cluster.reservations.are_kept = not absent
        start = time.perf_counter()
        until = self._clock.elapsed() + MAX_SLICE_SECONDS
        decisions = self.scheduler.round(
            self._clock.now(), MAX_SLICE_PODS, lambda: self._clock.elapsed() > until
        )
        if self._metrics is not None:
            self._metrics.round_done(time.perf_counter() - start, decisions)
        for report in self.scheduler.guard.take_reports():
            story = [str(line) for line in self.scheduler.cluster.story(str(report.about))[-_STORY:]]
            self._log(
                "not converging",
                level="warning",
                object=str(report.about),
                message=report.message,
                story=story,
            )
        for failed in self.scheduler.cluster.plugin_errors.take_reports():
            self._log(
                "plugin failed",
                level="error",
                plugin=failed.plugin,
                extension_point=failed.point,
                message=failed.message,
                traceback=failed.trace,
            )
        self.writer.carry_out(decisions)

    def _timer(self, loop: asyncio.AbstractEventLoop) -> asyncio.TimerHandle | None:
        due = self.scheduler.next_timer() if self._may_decide() else None
        if due is None:
            return None
        return loop.call_later(max(0.0, due - self._clock.now()), self._wake.set)

    # What happens

    def _put(self, event: Event) -> None:
        self._inbox.append(event)
        self._wake.set()

    def _put_after_first(self, event: Event) -> None:
        if self._held is None:
            self._put(event)
        else:
            self._held.append(event)

    def _write_answered(self, event: Event) -> None:
        if isinstance(event, BindConfirmed) and self._metrics is not None:
            self._metrics.pod_bound(event.uid, self._clock.now())
        if isinstance(event, Updated) and not any(
            reflector.knows(event.object) for reflector in self._by_kind[event.object.kind]
        ):
            return  # the watch was faster: the object has changed since it was read, or is gone
        self._put(event)

    async def _mark_synced(self) -> None:
        for reflector in self.reflectors:
            await reflector.synced.wait()
            if self._held is not None:
                self._inbox.extend(self._held)
                self._held = None
                self._wake.set()
        while self._inbox:  # the first lists are to be fed whole before anything is decided
            await asyncio.sleep(0)
        self.has_synced = True
        self._log("synced", objects=sum(len(reflector) for reflector in self.reflectors))
        self._wake.set()

    async def _sweep(self) -> None:
        while True:
            await asyncio.sleep(_SWEEP_SECONDS)
            self.writer.sweep()

    def _controller(self, event: Emit) -> str:
        pod = self.scheduler.cluster.pods.get(event.about.uid)
        return pod.scheduler if pod is not None and pod.scheduler in self._names else self._names[0]

    def _write_failed(self, error: BaseException) -> None:
        self._log("write failed", level="warning", error=str(error) or type(error).__name__)

    def _reporter(self, watched: Watched) -> Callable[[str, str], None]:
        def report(what: str, particulars: str) -> None:
            level = _LEVELS.get(what, "info")
            self._log(f"reflector {what}", level=level, resource=watched.name, detail=particulars)

        return report
