"""Leader election by a Lease with client-go's timing, and the fence that keeps a former leader from
writing.
"""

import asyncio
import math
import random
from collections.abc import Callable, Mapping
from contextlib import suppress
from types import MappingProxyType
from typing import Any

import msgspec

from holdfast.api.names import LEASE_LABELS
from holdfast.api.times import format_micro_time
from holdfast.api.workloads import Lease, LeaseSpec
from holdfast.kube.client import LEASE, Client, Request, get, path_of
from holdfast.kube.errors import ApiError, KubernetesError, LeadershipLost
from holdfast.kube.flow_control import LATE, Backoff, Clock
from holdfast.scheduler.cluster.decisions import Emit, ObjectRef
from holdfast.scheduler.event_recorder import EventRecorder, SeriesEvents
from holdfast.scheduler.framework.config import LeaderElection


class Fence:
    """Allows writes until a given moment of `elapsed`; without an election, always once opened.

    A Lease does not stop a process that was suspended past its expiry from believing that it leads. So
    every write checks, in the same step in which it is sent, whether the last renewal is recent enough.
    A write may still be in flight when the lease expires, so it also carries a time limit that ends
    before another process can lead.
    """

    def __init__(self, elapsed: Callable[[], float]) -> None:
        self._elapsed = elapsed
        self._until = -math.inf
        self._exclusive_until = math.inf

    def open_until(self, moment: float, exclusive_until: float = math.inf) -> None:
        """No other process leads before `exclusive_until`."""
        self._until = moment
        self._exclusive_until = exclusive_until

    def close(self) -> None:
        self._until = -math.inf

    @property
    def is_open(self) -> bool:
        return self._elapsed() < self._until

    def exclusive_for(self) -> float:
        """Seconds during which no other process can lead."""
        return self._exclusive_until - self._elapsed()

    def check(self) -> None:
        """Raises LeadershipLost."""
        if self._elapsed() >= self._until:
            raise LeadershipLost("not sent: the lease was not renewed in time")


_JITTER = 1.2
_READS = 8
"""A candidate reads the lease so many times per retry period."""
_LAST_RELEASE = 10.0
"""Seconds for which a leader that stops tries to release its lease."""
_LATE_READ = 0.5
"""A renewal that is seen this long after the read before it, or longer, counts from when it is seen;
else from the read before it, which is at most this much too early."""
_decoder = msgspec.json.Decoder(Lease)

Report = Callable[[str, str], None]


class Election:
    """A candidate for one Lease.

        follower ── the lease is free, ours, or not renewed for its duration ──► leader
           ▲                                                                     │
           └──────────────── not renewed within the renew deadline ──────────────┘

    A lease's age counts from when this process saw it change, never by the holder's clock. A candidate
    reads the lease several times per retry period, so that it knows within a fraction of a second when
    it was last renewed, and tries to acquire it when it expires. Each renewal opens the fence until the
    renew deadline, counted from before the request was sent, so the fence closes before another process
    can acquire the lease.
    """

    def __init__(
        self,
        client: Client,
        settings: LeaderElection,
        identity: str,
        fence: Fence,
        clock: Clock,
        report: Report,
        rng: random.Random | None = None,
        annotations: Mapping[str, str] = MappingProxyType({}),
    ) -> None:
        """The `annotations` are written to the lease while this process leads."""
        self.identity = identity
        self.leader = ""
        """The last known holder of the lease."""
        self.is_leading = False
        self.is_first = False
        """Whether the lease did not exist before, so there was no leader yet."""
        self._client = client
        self._settings = settings
        self._fence = fence
        self._clock = clock
        self._report = report
        self._rng = rng or client.rng
        self._annotations = annotations
        self._collection = path_of(LEASE, settings.resource_namespace)
        self._path = f"{self._collection}/{settings.resource_name}"
        self._seen: Lease | None = None
        self._seen_at = 0.0
        self._read_at = -math.inf
        """When the lease was last read."""
        self._renewed_at = 0.0
        self._problem = ""
        """The error of the last attempt."""

    async def acquire(self) -> None:
        """Returns when this process leads."""
        while not await self._try(self._settings.retry_period):
            await asyncio.sleep(self._wait())
        self.is_leading = True

    def _wait(self) -> float:
        """Seconds that a candidate waits before it reads the lease again."""
        random = self._rng.random()
        if self._problem:
            return self._settings.retry_period * (1 + _JITTER * random)
        left = self._seen_at + self._duration() - self._clock.elapsed()
        wait = self._settings.retry_period / _READS * (1 + random / 2)
        return min(wait, left) if left > 0 else wait

    def _duration(self) -> float:
        """The duration in the lease on the server; the holder may be configured differently."""
        seen = self._seen.spec.lease_duration_seconds if self._seen is not None else None
        return float(seen or self._settings.lease_duration)

    async def hold(self) -> None:
        """Renews the lease; returns when that failed for too long, or another has it."""
        try:
            while True:
                await asyncio.sleep(self._settings.retry_period)
                if not await self._renew():
                    return
        finally:
            self._fence.close()
            self.is_leading = False

    async def release(self, patience: float = _LAST_RELEASE) -> None:
        """Releases the lease, so that another candidate need not wait until it expires. Tries for at
        most `patience` seconds, and no longer than the lease lasts."""
        self._fence.close()
        self.is_leading = False
        lease = self._seen
        if lease is None or lease.spec.holder_identity != self.identity:
            return
        backoff = Backoff(self._rng, 0.2, self._settings.retry_period)
        give_up_at = min(
            self._clock.elapsed() + patience, self._renewed_at + self._settings.lease_duration
        )
        problem = ""
        while (left := give_up_at - self._clock.elapsed()) > 0:
            try:
                async with asyncio.timeout(min(left, max(self._settings.retry_period, left / 2))):
                    if lease is None:
                        lease = await self._read()
                    await self._let_go(lease)
            except (KubernetesError, msgspec.DecodeError, TimeoutError) as error:
                # A last renewal, or an attempt that was not answered, may have arrived.
                lease, problem = None, str(error) or LATE
                await asyncio.sleep(min(backoff.next(), max(0.0, give_up_at - self._clock.elapsed())))
            else:
                self._report("released", self.identity)
                return
        self._report("not released", problem or "the lease expired")

    async def _let_go(self, lease: Lease) -> None:
        if lease.spec.holder_identity != self.identity:
            return
        now = self._stamp()
        spec: dict[str, Any] = {
            "holderIdentity": "",
            "leaseDurationSeconds": 1,
            "renewTime": now,
            "acquireTime": now,
            "leaseTransitions": lease.spec.lease_transitions or 0,
        }
        await self._put(spec, lease)

    def is_stale(self, tolerance: float) -> bool:
        """Whether a lease believed ours has not been renewed for its duration and more."""
        if not self.is_leading:
            return False
        return self._clock.elapsed() > self._renewed_at + self._settings.lease_duration + tolerance

    async def _renew(self) -> bool:
        deadline = self._renewed_at + self._settings.renew_deadline
        while (left := deadline - self._clock.elapsed()) > 0:
            # A request that hangs leaves time for another.
            if await self._try(min(left, max(self._settings.retry_period, left / 2))):
                return True
            if self.leader not in ("", self.identity):
                break
            left = deadline - self._clock.elapsed()
            await asyncio.sleep(max(0.0, min(self._settings.retry_period, left)))
        self._report(
            "lost", f"held by {self.leader!r}" if self.leader != self.identity else "not renewed"
        )
        return False

    async def _try(self, timeout: float) -> bool:
        """One attempt to take or keep the lease."""
        start = self._clock.elapsed()
        try:
            async with asyncio.timeout(max(timeout, 0.001)):
                taken = await self._take()
        except (KubernetesError, msgspec.DecodeError, TimeoutError) as error:
            problem = str(error) or LATE
            if problem != self._problem:
                self._problem = problem
                self._report("failed", problem)
            return False
        self._problem = ""
        if taken:
            self._renewed_at = start
            # Others count from when they saw the renewal; at most `_LATE_READ` too early.
            exclusive_until = start + self._lease_seconds() - _LATE_READ
            self._fence.open_until(
                min(start + self._settings.renew_deadline, exclusive_until), exclusive_until
            )
        return taken

    def _lease_seconds(self) -> int:
        """The lease duration in whole seconds, rounded up, as written to the lease."""
        return max(1, math.ceil(self._settings.lease_duration))

    async def _take(self) -> bool:
        now = self._clock.elapsed()
        seen = self._seen
        if self.is_leading and seen is not None and seen.spec.holder_identity == self.identity:
            try:
                await self._put(self._spec(seen.spec), seen)
                return True
            except ApiError as error:
                if error.status not in (404, 409):
                    raise
        try:
            lease = await self._read()
        except ApiError as error:
            if error.status != 404:
                raise
            return await self._take_deleted()
        self._saw(lease, now)
        return not self._is_held() and await self._put_first(lease)

    async def _take_deleted(self) -> bool:
        """Handles a missing lease. If there was one, it was deleted; its holder creates it again, or
        has not noticed yet."""
        if self._is_held():
            return False
        led = self._seen is not None
        taken = await self._put_first(None)
        self.is_first = taken and not led
        return taken

    def _is_held(self) -> bool:
        """Whether the lease last seen is somebody else's, and has not run out."""
        holder = self._seen.spec.holder_identity if self._seen is not None else None
        if not holder or holder == self.identity:
            return False
        return self._clock.elapsed() < self._seen_at + self._duration()

    async def _put_first(self, before: Lease | None) -> bool:
        """False if somebody else was faster, or the lease was renewed at the last moment."""
        try:
            await self._put(self._spec(before.spec if before is not None else None), before)
        except ApiError as error:
            if error.status != 409:
                raise
            return False
        return True

    async def _read(self) -> Lease:
        return _decoder.decode(await self._client.send(get(self._path, self._settings.renew_deadline)))

    def _spec(self, before: LeaseSpec | None) -> dict[str, Any]:
        now = self._stamp()
        ours = before is not None and before.holder_identity == self.identity
        transitions = (before.lease_transitions or 0) if before is not None else 0
        return {
            "holderIdentity": self.identity,
            "leaseDurationSeconds": self._lease_seconds(),
            "acquireTime": before.acquire_time if ours and before is not None else now,
            "renewTime": now,
            "leaseTransitions": transitions if ours or before is None else transitions + 1,
        }

    async def _put(self, spec: dict[str, Any], before: Lease | None) -> None:
        """With the version it was read in, so of several that try at once one succeeds."""
        metadata: dict[str, Any] = {
            "name": self._settings.resource_name,
            "namespace": self._settings.resource_namespace,
            "labels": LEASE_LABELS,
            "annotations": dict(self._annotations),
        }
        if before is not None:
            known = before.metadata
            metadata["resourceVersion"] = known.resource_version
            metadata["labels"] = {**known.labels, **LEASE_LABELS}
            metadata["annotations"] = {**known.annotations, **self._annotations}
        body = {"apiVersion": LEASE.api_version, "kind": "Lease", "metadata": metadata, "spec": spec}
        answer = await self._client.send(
            Request(
                "PUT" if before is not None else "POST",
                self._path if before is not None else self._collection,
                msgspec.json.encode(body),
                timeout=self._settings.renew_deadline,
            )
        )
        self._saw(_decoder.decode(answer), self._clock.elapsed())

    def _saw(self, lease: Lease, asked_at: float) -> None:
        before, self._seen = self._seen, lease
        now = self._clock.elapsed()
        if before is None or before.spec != lease.spec:
            # It changed between the last read and this one, which may have been answered late.
            self._seen_at = self._read_at if now - self._read_at <= _LATE_READ else now
        self._read_at = asked_at
        holder = lease.spec.holder_identity or ""
        if holder != self.leader:
            self.leader = holder
            self._report("leader", holder or "none")

    def _stamp(self) -> str:
        return format_micro_time(self._clock.wall())


async def announce(client: Client, settings: LeaderElection, message: str, wall: float) -> None:
    """Writes an Event about the lease, at best effort."""
    about = ObjectRef("Lease", settings.resource_namespace, settings.resource_name, "")
    event = Emit(about, "Normal", "LeaderElection", message, "LeaderElection")
    recorder = EventRecorder(SeriesEvents(message.split()[0]), lambda _: "", limit=0)
    write = recorder.record(event, settings.resource_name, wall)
    assert write is not None
    path = f"/apis/events.k8s.io/v1/namespaces/{write.namespace}/events"
    with suppress(KubernetesError):
        await client.call(Request("POST", path, msgspec.json.encode(write.body)), attempts=5)
