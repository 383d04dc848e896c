"""Who leads, by a Lease, with the timing and the manners of client-go's elections.

    follower ── the lease is free, ours, or not renewed for its duration ──► leader
       ▲                                                                     │
       └──────────────── not renewed within the renew deadline ──────────────┘

How old a lease is goes by when this process saw it change, never by the other's clock. The fence opens
with every renewal until the renew deadline, counted from before the renewal was sent; so it is shut
before anyone else can take the lease, whatever became of our requests.
"""

import asyncio
import random
from collections.abc import Callable
from typing import Any

import msgspec

from holdfast.api.policy import Lease, LeaseSpec
from holdfast.api.timestamps import format_micro_time
from holdfast.backends.kubernetes.clock import Clock
from holdfast.backends.kubernetes.errors import ApiError, KubernetesError
from holdfast.backends.kubernetes.fence import Fence
from holdfast.backends.kubernetes.http.client import Client, Request, get
from holdfast.backends.kubernetes.http.paths import LEASE, path_of
from holdfast.backends.kubernetes.http.reach import LATE
from holdfast.framework.config import LeaderElection

_JITTER = 1.2
_decoder = msgspec.json.Decoder(Lease)

Report = Callable[[str, str], None]


class Election:
    def __init__(
        self,
        client: Client,
        settings: LeaderElection,
        identity: str,
        fence: Fence,
        clock: Clock,
        report: Report,
        rng: random.Random | None = None,
    ) -> None:
        self.identity = identity
        self.leader = ""
        """Who holds the lease as far as is known."""
        self.is_leading = False
        self._client = client
        self._settings = settings
        self._fence = fence
        self._clock = clock
        self._report = report
        self._rng = rng or random.Random()
        self._collection = path_of(LEASE, settings.resource_namespace)
        self._path = f"{self._collection}/{settings.resource_name}"
        self._seen: Lease | None = None
        self._seen_at = 0.0
        self._renewed_at = 0.0
        self._problem = ""
        """What the last attempt failed for."""

    async def acquire(self) -> None:
        """Returns when this process leads."""
        while not await self._try(self._settings.retry_period):
            jitter = 1 + _JITTER * self._rng.random()
            await asyncio.sleep(self._settings.retry_period * jitter)
        self.is_leading = True

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

    async def release(self) -> None:
        """Lets go of the lease, so that another need not wait for it to run out."""
        self._fence.close()
        if self._seen is None or self._seen.spec.holder_identity != self.identity:
            return
        try:
            try:
                await self._let_go(self._seen)
            except ApiError as error:
                if error.status != 409:
                    raise
                # A last renewal was on its way, and has arrived.
                await self._let_go(await self._read())
            self._report("released", self.identity)
        except (KubernetesError, msgspec.DecodeError) as error:
            self._report("not released", str(error))

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
        await self._put(spec, lease, self._settings.renew_deadline)

    def is_stale(self, tolerance: float) -> bool:
        """Whether a lease believed ours has not been renewed for its duration and more."""
        if not self.is_leading:
            return False
        return self._clock.elapsed() > self._renewed_at + self._settings.lease_duration + tolerance

    async def _renew(self) -> bool:
        deadline = self._renewed_at + self._settings.renew_deadline
        while (left := deadline - self._clock.elapsed()) > 0:
            if await self._try(left):
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
            self._fence.open_until(start + self._settings.renew_deadline)
        return taken

    async def _take(self) -> bool:
        now = self._clock.elapsed()
        seen = self._seen
        if self.is_leading and seen is not None and seen.spec.holder_identity == self.identity:
            try:
                await self._put(self._spec(seen.spec), seen)
                return True
            except ApiError as error:
                if error.status != 409:
                    raise
        try:
            lease = await self._read()
        except ApiError as error:
            if error.status != 404:
                raise
            await self._put(self._spec(None), None)
            return True
        self._saw(lease, now)
        spec = lease.spec
        duration = float(spec.lease_duration_seconds or self._settings.lease_duration)
        is_free = not spec.holder_identity or spec.holder_identity == self.identity
        if not is_free and now < self._seen_at + duration:
            return False
        await self._put(self._spec(spec), lease)
        return True

    async def _read(self) -> Lease:
        return _decoder.decode(await self._client.send(get(self._path, self._settings.renew_deadline)))

    def _spec(self, before: LeaseSpec | None) -> dict[str, Any]:
        now = self._stamp()
        ours = before is not None and before.holder_identity == self.identity
        transitions = (before.lease_transitions or 0) if before is not None else 0
        return {
            "holderIdentity": self.identity,
            "leaseDurationSeconds": max(1, round(self._settings.lease_duration)),
            "acquireTime": before.acquire_time if ours and before is not None else now,
            "renewTime": now,
            "leaseTransitions": transitions if ours or before is None else transitions + 1,
        }

    async def _put(
        self, spec: dict[str, Any], before: Lease | None, timeout: float | None = None
    ) -> None:
        """With the version it was read in, so of several that try at once one succeeds."""
        metadata: dict[str, Any] = {
            "name": self._settings.resource_name,
            "namespace": self._settings.resource_namespace,
        }
        if before is not None:
            known = before.metadata
            metadata["resourceVersion"] = known.resource_version
            metadata["labels"], metadata["annotations"] = known.labels, known.annotations
        body = {"apiVersion": LEASE.api_version, "kind": "Lease", "metadata": metadata, "spec": spec}
        answer = await self._client.send(
            Request(
                "PUT" if before is not None else "POST",
                self._path if before is not None else self._collection,
                msgspec.json.encode(body),
                timeout=timeout or self._settings.renew_deadline,
            )
        )
        self._saw(_decoder.decode(answer), self._clock.elapsed())

    def _saw(self, lease: Lease, now: float) -> None:
        before = self._seen
        self._seen = lease
        if before is None or before.spec != lease.spec:
            self._seen_at = now
        holder = lease.spec.holder_identity or ""
        if holder != self.leader:
            self.leader = holder
            self._report("leader", holder or "nobody")

    def _stamp(self) -> str:
        return format_micro_time(self._clock.wall())
