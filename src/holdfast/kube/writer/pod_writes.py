"""Writes about pods that are not binds: their PodScheduled condition, annotations and eviction.

A victim of preemption gets its DisruptionTarget condition, then is deleted gracefully:

    condition written ─► (those of all victims of the same job written) ─► deleted
            │            (the status of its reservation written)              │
            └───────┬─────────────────────────────────────────────────────────┘ refused, or no answer
                    ▼
       read the pod: gone, or recreated under its name? then done
                    │ it still exists
                    ▼
       the scheduler learns that it stays, and its preemptor is retried

Conditions come first, so that the next leader after a crash sees every victim even if only some are
deleted: a gang that is evicted as a whole is not left half there. A victim may have several preemptors,
and the condition of a pod whose bind is not settled waits for that. The owner of an AllocateOnce
reservation is recorded only in the owner until the reservation's status is written.
"""

import asyncio
from collections.abc import Callable
from typing import Any

from holdfast.api.decode import decode_pod_json
from holdfast.api.errors import InvalidObject
from holdfast.api.meta import Condition, condition
from holdfast.api.pod import Pod
from holdfast.api.times import format_time
from holdfast.kube.client import JSON, POD, STRATEGIC, path_of
from holdfast.kube.errors import ApiError, LeadershipLost
from holdfast.kube.writer.write_queue import (
    TRANSIENT,
    ApiWriter,
    Failed,
    Write,
    WriteResult,
    is_conflict,
    persistent,
    version_of,
    wait_after,
)
from holdfast.scheduler.cluster.decisions import (
    AnnotatePod,
    Nominate,
    ObjectRef,
    Preempt,
    SetPodScheduled,
    disruption_condition,
    metadata_patch,
    pod_scheduled_condition,
)
from holdfast.scheduler.cluster.events import Event, Updated, write_refused

_ATTEMPTS = 8
_NOT_FOUND = 404


class Victims:
    """The victims of one job, for any number of preemptors: none is deleted before all have their
    condition. `ended` is called when all have it.
    """

    def __init__(self, ended: Callable[[], None]) -> None:
        self._ended = ended
        self._unmarked: set[str] = set()
        self._marked: set[str] = set()
        self._all_marked: asyncio.Future[None] | None = None

    def add(self, uid: str) -> None:
        """A pod that is in it is not waited for again: it may be decided twice that it goes, and the
        second write about a pod follows the first."""
        if uid not in self._marked:
            self._unmarked.add(uid)

    def marked(self, uid: str) -> None:
        """One has its condition, or will not have it."""
        if uid not in self._unmarked:
            return
        self._unmarked.remove(uid)
        self._marked.add(uid)
        if not self._unmarked:
            self._ended()
            if self._all_marked is not None:
                self._all_marked.set_result(None)

    def waiting(self) -> asyncio.Future[None] | None:
        """Done when all have their condition; None if they have."""
        if not self._unmarked:
            return None
        if self._all_marked is None:
            self._all_marked = asyncio.get_running_loop().create_future()
        return self._all_marked


class EvictionWrite:
    """The write queue calls it repeatedly until it is done. `failed` gets the reason if the victim
    stays.
    """

    def __init__(
        self,
        api: ApiWriter,
        feed: Callable[[Event], None],
        failed: Failed,
        decision: Preempt,
        now: float,
        victims: Victims,
        unwritten: Callable[[str], asyncio.Future[None] | None] = lambda _: None,
    ) -> None:
        victims.add(decision.pod.uid)
        self._victims = victims
        self._unwritten = unwritten
        """Done when the status of a reservation, by uid, is written; None if it is."""
        self._is_marked = False
        self._api = api
        self._feed = feed
        self._failed = failed
        self._decision = decision
        self._path = path_of(POD, decision.pod.namespace, decision.pod.name)
        self._steps = [self._condition(now), self._deletion()]
        self._backoff = api.backoff(0.2, 10.0)
        self._refusal: Exception | None = None
        """Why the victim was not deleted, until it is reported."""

    async def __call__(self) -> WriteResult:
        result: WriteResult = None
        try:
            if self._refusal is None:
                result = await self._evict()
            else:
                result = await self._stays(self._refusal)
        except LeadershipLost:
            pass  # The current leader sees both pods as they are.
        finally:
            if result is None:
                self._mark()
        return result

    def _mark(self) -> None:
        if not self._is_marked:
            self._is_marked = True
            self._victims.marked(self._decision.pod.uid)

    async def _evict(self) -> WriteResult:
        try:
            while self._steps:
                if self._is_marked:
                    waiting = self._victims.waiting() or self._unwritten(self._decision.reservation)
                    if waiting is not None:
                        return waiting
                await self._api.write(*self._steps[0])
                del self._steps[0]
                self._mark()
        except TRANSIENT as error:
            if isinstance(error, ApiError) and error.status == _NOT_FOUND:
                return None
            wait = wait_after(error, self._backoff)
            if wait is not None and self._backoff.tries < _ATTEMPTS:
                return wait
            self._refusal = error
            self._backoff.reset()
            return await self._stays(error)
        return None

    async def _stays(self, why: Exception) -> WriteResult:
        """Reports that the victim stays, since the scheduler counts it as terminating."""
        try:
            found: Pod | None = decode_pod_json(await self._api.read(self._path))
        except ApiError as error:
            if error.is_transient:
                return wait_after(error, self._backoff)
            found = None
        except InvalidObject:
            found = None  # it is obsolete; the reflector delivers the change
        except TRANSIENT as error:
            return wait_after(error, self._backoff)
        there = found is not None and found.metadata.uid == self._decision.pod.uid
        if is_conflict(why) and not there:
            return None  # the conflict was with the name: another has it
        if found is not None and there:
            self._feed(Updated(found))
        self._feed(write_refused(self._decision, str(why)))
        self._failed(why)
        return None

    def _condition(self, now: float) -> tuple[str, str, dict[str, Any], str]:
        since = {"lastTransitionTime": format_time(now)}
        condition = disruption_condition(self._decision) | since
        body = {"metadata": {"uid": self._decision.pod.uid}, "status": {"conditions": [condition]}}
        return "PATCH", f"{self._path}/status", body, STRATEGIC

    def _deletion(self) -> tuple[str, str, dict[str, Any], str]:
        preconditions = {"uid": self._decision.pod.uid}
        body = {"apiVersion": "v1", "kind": "DeleteOptions", "preconditions": preconditions}
        return "DELETE", self._path, body, JSON


# The PodScheduled condition, the nominated node, and annotations of pods without a node


POD_SCHEDULED = "PodScheduled"

_NOT_THERE = (404, 409)
"""The pod is deleted, or recreated under the same name: nothing is left to write."""

Wall = Callable[[], float]


class _KnownStatus:
    """The last known condition and nomination of a pod."""

    __slots__ = ("condition", "nominated", "version")

    def __init__(self, condition: Condition | None, nominated: str, version: int = 0) -> None:
        self.condition = condition
        self.nominated = nominated
        self.version = version


class Statuses:
    """Combines the changes of a pod at one moment into one patch, and skips what the pod already
    has, also after a restart.
    """

    def __init__(self, api: ApiWriter, wall: Wall) -> None:
        self._api = api
        self._wall = wall
        self._known: dict[str, _KnownStatus] = {}
        """Last known condition and nomination of pods without a node, by uid."""
        self._wanted: dict[str, tuple[SetPodScheduled | None, Nominate | None]] = {}

    def seen(self, pod: Pod) -> None:
        """A pod came from the server."""
        uid = pod.metadata.uid
        if pod.spec.node_name:
            self._known.pop(uid, None)
            return
        found = condition(pod.status.conditions, POD_SCHEDULED)
        nominated = pod.status.nominated_node_name
        version, before = _number(pod.metadata.resource_version), self._known.get(uid)
        if before is not None and version < before.version:
            return  # from before we wrote
        if found or nominated:
            self._known[uid] = _KnownStatus(found, nominated, version)
        else:
            self._known.pop(uid, None)

    def gone(self, uid: str) -> None:
        self._known.pop(uid, None)

    def want(self, decision: SetPodScheduled | Nominate) -> bool:
        """Takes note; whether a write is needed that was not before."""
        uid = decision.pod.uid
        new = uid not in self._wanted
        known, nominated = self._wanted.get(uid, (None, None))
        if isinstance(decision, SetPodScheduled):
            known = decision
        else:
            nominated = decision
        self._wanted[uid] = (known, nominated)
        return new

    def drop(self, uid: str) -> None:
        """Drops the queued status of a pod that is about to be bound."""
        self._wanted.pop(uid, None)

    def write(self, pod: ObjectRef) -> Write:
        backoff = self._api.backoff(0.2, 10.0)

        async def write() -> WriteResult:
            wanted = self._wanted.pop(pod.uid, None)
            patch = self._patch(pod, *wanted) if wanted is not None else None
            if wanted is None or patch is None:
                return None
            path = path_of(POD, pod.namespace, pod.name, "status")
            try:
                self._wrote(pod, wanted, await self._api.write("PATCH", path, patch, STRATEGIC))
            except LeadershipLost:
                return None
            except TRANSIENT as error:
                if isinstance(error, ApiError) and error.status in _NOT_THERE:
                    return None
                wait = wait_after(error, backoff)
                if wait is None or backoff.tries >= _ATTEMPTS:
                    raise
                newer = self._wanted.get(pod.uid, (None, None))
                self._wanted[pod.uid] = (newer[0] or wanted[0], newer[1] or wanted[1])
                return wait
            return None

        return write

    def _wrote(
        self,
        pod: ObjectRef,
        wanted: tuple[SetPodScheduled | None, Nominate | None],
        answer: bytes,
    ) -> None:
        known = self._known.setdefault(pod.uid, _KnownStatus(None, ""))
        known.version = max(known.version, _number(version_of(answer)))
        if wanted[0] is not None:
            known.condition = Condition(
                type=POD_SCHEDULED, status="False", reason=wanted[0].reason, message=wanted[0].message
            )
        if wanted[1] is not None:
            known.nominated = wanted[1].node

    def _patch(
        self, pod: ObjectRef, wanted: SetPodScheduled | None, nominate: Nominate | None
    ) -> dict[str, Any] | None:
        """The patch; None if the pod is up to date."""
        known = self._known.get(pod.uid) or _KnownStatus(None, "")
        status: dict[str, Any] = {}
        if wanted is not None and not _is_same_condition(known.condition, wanted):
            new = pod_scheduled_condition(wanted)
            if known.condition is None or known.condition.status != "False":
                new["lastTransitionTime"] = format_time(self._wall())
            status["conditions"] = [new]
        if nominate is not None and nominate.node != known.nominated:
            status["nominatedNodeName"] = nominate.node or None
        # The uid makes the server refuse if the pod was recreated.
        return {"metadata": {"uid": pod.uid}, "status": status} if status else None


def _number(version: str) -> int:
    """Resource versions are numbers on every known server; otherwise the order is unknown."""
    return int(version) if version.isdigit() else 0


def _is_same_condition(found: Condition | None, wanted: SetPodScheduled) -> bool:
    return (
        found is not None
        and found.status == "False"
        and found.reason == wanted.reason
        and found.message == wanted.message
    )


def annotation_write(api: ApiWriter, decision: AnnotatePod, feed: Callable[[Event], None]) -> Write:
    """Writes annotations of a pod: the reservation requested for it, and errors."""
    pod = decision.pod
    # The uid makes the server refuse if the pod was recreated.
    patch = {"metadata": {"uid": pod.uid, **metadata_patch(decision)}}
    return persistent(
        api,
        lambda: api.write("PATCH", path_of(POD, pod.namespace, pod.name), patch, STRATEGIC),
        lambda error: feed(write_refused(decision, str(error))),
    )
