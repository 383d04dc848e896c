"""Writes reservations: creation, status, deletion; and holds back binds until released capacity is
recorded.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Sequence
from contextlib import suppress
from functools import partial
from typing import Any

import msgspec

from holdfast.api.kinds import KINDS
from holdfast.api.meta import ObjectMeta
from holdfast.api.names import RESERVATION_API
from holdfast.api.reservation import Reservation, ReservationPhase
from holdfast.kube.client import JSON, MERGE, path_of
from holdfast.kube.errors import ApiError, LeadershipLost
from holdfast.kube.writer.pod_writes import Victims
from holdfast.kube.writer.status_writes import StatusWriter
from holdfast.kube.writer.write_queue import (
    TRANSIENT,
    ApiWriter,
    Lane,
    Write,
    WriteQueue,
    WriteResult,
    is_conflict,
    persistent,
    wait_after,
)
from holdfast.scheduler.cluster.claim_writes import ClaimConflict
from holdfast.scheduler.cluster.decisions import (
    AnnotateReservation,
    CreateHolder,
    CreateReservation,
    Decision,
    DeleteReservation,
    ObjectRef,
    PreemptReservation,
    SetReservationStatus,
    metadata_patch,
)
from holdfast.scheduler.cluster.events import (
    BindConfirmed,
    BindRefused,
    Deleted,
    Event,
    write_refused,
)
from holdfast.scheduler.cluster.records import FINISHED


class Releases:
    """Binds wait here until it is written that a reservation does not have the capacity they use.

    A reservation fails when its node is recreated under the same name, and its capacity becomes free;
    and an Available starvation hold is Waiting again when pods are placed on what it holds. If a pod
    were bound to that capacity first and the scheduler crashed, the next leader would find both on the
    node, since a reservation's status has only the node's name.
    """

    def __init__(self) -> None:
        self._nodes: dict[str, str] = {}
        """The nodes of reservations that have failed or are Waiting again, by uid, until that is
        written."""
        self._left: dict[str, int] = {}
        """How many there are, by node."""
        self._written: dict[str, asyncio.Future[None]] = {}

    def begin(self, uid: str, node: str) -> None:
        """Registers a write that a reservation on the node has failed or is Waiting."""
        if node and uid not in self._nodes:
            self._nodes[uid] = node
            self._left[node] = self._left.get(node, 0) + 1

    def end(self, uid: str) -> None:
        """It is written, or will not be."""
        node = self._nodes.pop(uid, None)
        if node is None:
            return
        self._left[node] -= 1
        if not self._left[node]:
            del self._left[node]
            written = self._written.pop(node, None)
            if written is not None and not written.done():
                written.set_result(None)

    def waiting(self, node: str) -> asyncio.Future[None] | None:
        """Done when all on the node are written; None if they are."""
        if node not in self._left:
            return None
        written = self._written.get(node)
        if written is None:
            written = self._written[node] = asyncio.get_running_loop().create_future()
        return written


_INFO = KINDS[RESERVATION_API, "Reservation"]
_ATTEMPTS = 8
_THERE_ALREADY = (409,)
_NOT_THERE = (404, 409)
"""Gone, or another has the name."""


class ReservationWriter:
    """Creates reservations, writes the last wanted status of each as a whole, and deletes them.

    * An intermediate Available of a waiting reservation is written before Succeeded, so that watchers
      see each phase.
    * A status that assigns a node is confirmed or refused like a pod's bind. It is retried when the
      outcome is unknown.
    * A preemption hold is created once all victims of a job have their conditions: otherwise, after a
      crash, it would keep pending pods of that job from their node although the other victims stay.
    """

    def __init__(
        self,
        api: ApiWriter,
        queue: WriteQueue,
        feed: Callable[[Event], None],
        releases: Releases | None = None,
        write_holder: Callable[[CreateHolder], Awaitable[None]] | None = None,
        statuses: StatusWriter | None = None,
    ) -> None:
        self._api = api
        self._queue = queue
        self._feed = feed
        self._releases = releases or Releases()
        self._write_holder = write_holder
        self._statuses = statuses or StatusWriter(api, lambda _: "")
        self._holders: dict[str, list[CreateHolder]] = {}
        """By uid, the claims to write before the status that assigns the node."""
        self._wanted: dict[str, list[SetReservationStatus]] = {}
        """By uid, what is still to be written, in order."""
        self._unwritten: dict[str, asyncio.Future[None] | None] = {}
        """By uid, reservations whose status write is queued or unanswered, and the writes that wait."""

    def create(self, decision: CreateReservation, victims: Iterable[Victims] = ()) -> None:
        """Creates the reservation once all these victims have their conditions."""
        name, body = decision.reservation.metadata.name, msgspec.to_builtins(decision.reservation)
        write = self._persistent(decision, "POST", path_of(_INFO), body, settled=_THERE_ALREADY)
        unmarked = list(victims)

        async def create() -> WriteResult:
            for each in unmarked:
                if (waiting := each.waiting()) is not None:
                    return waiting
            return await write()

        self._queue.submit(Lane.STATUS, ("create", name), create)

    def unwritten(self, uid: str) -> asyncio.Future[None] | None:
        """Done when the status of a reservation that was decided is written, or will not be; None if
        there is nothing to be written."""
        if uid not in self._unwritten:
            return None
        waiting = self._unwritten[uid]
        if waiting is None:
            waiting = self._unwritten[uid] = asyncio.get_running_loop().create_future()
        return waiting

    def set_status(self, decision: SetReservationStatus, holders: Sequence[CreateHolder] = ()) -> None:
        """Writes the status; one that assigns a node after these claims."""
        ref = decision.reservation
        if decision.binds:
            self._holders[ref.uid] = list(holders)
        self._unwritten.setdefault(ref.uid, None)
        if _may_release(decision):
            self._releases.begin(ref.uid, decision.status.node_name)
        wanted = self._wanted.setdefault(ref.uid, [])
        before = wanted[-1] if wanted else None
        if before is None or _is_seen_before(before, decision):
            wanted.append(decision)
        else:
            wanted[-1] = decision = _overtaken(before, decision)
        if len(wanted) == 1 and (before is None or decision.binds != before.binds):
            lane = Lane.BIND if decision.binds else Lane.STATUS
            self._queue.submit(lane, ref.uid, self._status_write(ref))

    def delete(self, decision: DeleteReservation) -> None:
        ref = decision.reservation
        self._wanted.pop(ref.uid, None)
        options = {"apiVersion": "v1", "kind": "DeleteOptions", "preconditions": {"uid": ref.uid}}
        write = self._persistent(decision, "DELETE", path_of(_INFO, "", ref.name), options)

        async def delete() -> WriteResult:
            result = await write()
            if result is None:
                self._releases.end(ref.uid)
            return result

        self._queue.submit(Lane.STATUS, ref.uid, delete)

    def preempt(self, decision: PreemptReservation) -> None:
        ref = decision.reservation
        body = {"metadata": {"uid": ref.uid, **metadata_patch(decision)}}
        write = self._persistent(decision, "PATCH", path_of(_INFO, "", ref.name), body, MERGE)
        self._queue.submit(Lane.STATUS, ref.uid, write)

    def annotate(self, decision: AnnotateReservation) -> None:
        ref = decision.reservation
        patch = {"metadata": {"uid": ref.uid, **metadata_patch(decision)}}

        async def write() -> WriteResult:
            with suppress(LeadershipLost, *TRANSIENT):  # its message is for people
                answer = await self._api.write("PATCH", path_of(_INFO, "", ref.name), patch, MERGE)
                self._statuses.answered(ref, answer)
            return None

        self._queue.submit(Lane.EVENT, (ref.uid, "annotations"), write)

    def _status_write(self, ref: ObjectRef) -> Write:
        send = self._write_status(ref)

        async def write() -> WriteResult:
            result: WriteResult = None
            try:
                result = await send()
            finally:
                if result is None and ref.uid not in self._wanted:
                    waiting = self._unwritten.pop(ref.uid, None)
                    if waiting is not None and not waiting.done():
                        waiting.set_result(None)
            return result

        return write

    def _write_status(self, ref: ObjectRef) -> Write:
        backoff = self._api.backoff(0.2, 10.0)

        async def write() -> WriteResult:
            wanted = self._take(ref.uid)
            if wanted is None:
                return None
            if wanted.binds and wanted.status.phase != ReservationPhase.FAILED:
                self._releases.end(ref.uid)  # without a node it had nothing to release
                releasing = self._releases.waiting(wanted.status.node_name)
                if releasing is not None:
                    self._put_back(ref.uid, wanted)
                    return releasing
            try:
                if wanted.binds:
                    await self._write_holders(ref.uid)
                status = msgspec.to_builtins(wanted.status)
                metadata = metadata_patch(wanted) if wanted.annotations else None
                await self._statuses.write(_INFO, ref, status, FINISHED, metadata)
            except LeadershipLost:
                self._releases.end(ref.uid)
                return None
            except TRANSIENT as error:
                wait = wait_after(error, backoff)
                if wait is not None and (wanted.binds or backoff.tries < _ATTEMPTS):
                    self._put_back(ref.uid, wanted)
                    return wait
                self._releases.end(ref.uid)
                self._refused(wanted, error)
                return None
            except ClaimConflict as error:
                self._refused(wanted, error)
                return None
            if wanted.binds:
                self._feed(BindConfirmed(ref.uid))
            if ref.uid in self._wanted:
                return 0.0
            self._releases.end(ref.uid)
            return None

        return write

    async def _write_holders(self, uid: str) -> None:
        """Writes the claims with which a reservation holds devices, before its status. Raises
        ClaimConflict if one is refused, and the errors of `ApiWriter` that a retry may resolve."""
        holders = self._holders.get(uid)
        while holders and self._write_holder is not None:
            for last in (False, False, True):
                try:
                    await self._write_holder(holders[0])
                    break
                except ApiError as error:
                    if is_conflict(error) and not last:
                        continue  # somebody else wrote in between: look again
                    if error.is_transient:
                        raise
                    raise ClaimConflict(str(error)) from error
            del holders[0]
        self._holders.pop(uid, None)

    def _take(self, uid: str) -> SetReservationStatus | None:
        """Takes the next write."""
        wanted = self._wanted.get(uid)
        if not wanted:
            return None
        first = wanted.pop(0)
        if not wanted:
            del self._wanted[uid]
        return first

    def _put_back(self, uid: str, decision: SetReservationStatus) -> None:
        """It was not written, and is to be tried again unless something newer overtakes it."""
        wanted = self._wanted.setdefault(uid, [])
        if wanted and not _is_seen_before(decision, wanted[0]):
            wanted[0] = _overtaken(decision, wanted[0])
        else:
            wanted.insert(0, decision)

    def _persistent(
        self,
        decision: Decision,
        method: str,
        path: str,
        body: Any,
        content_type: str = JSON,
        settled: tuple[int, ...] = _NOT_THERE,
    ) -> Write:
        return persistent(
            self._api,
            partial(self._api.write, method, path, body, content_type),
            lambda error: self._feed(write_refused(decision, str(error))),
            settled,
        )

    def _refused(self, decision: SetReservationStatus, error: Exception) -> None:
        ref = decision.reservation
        if isinstance(error, ApiError) and error.status == 404:
            gone = Reservation(metadata=ObjectMeta(name=ref.name, uid=ref.uid))
            gone.kind, gone.api_version = _INFO.kind, _INFO.api_version
            self._feed(Deleted(gone))
        if decision.binds:
            self._feed(BindRefused(ref.uid, str(error)))
        else:
            self._feed(write_refused(decision, str(error)))


def _may_release(decision: SetReservationStatus) -> bool:
    """Whether the reservation may have had capacity on its node that it does not have any more."""
    phase = decision.status.phase
    return phase == ReservationPhase.FAILED or (
        phase == ReservationPhase.WAITING and not decision.binds
    )


def _is_seen_before(one: SetReservationStatus, next: SetReservationStatus) -> bool:
    """Whether a status is written even though another one follows it."""
    ends = next.status.phase == ReservationPhase.SUCCEEDED
    return ends and one.status.phase == ReservationPhase.AVAILABLE and not one.binds


def _overtaken(one: SetReservationStatus, next: SetReservationStatus) -> SetReservationStatus:
    """Merges two status writes into one."""
    if not one.binds and not one.annotations:
        return next
    annotations = {**one.annotations, **next.annotations}
    return msgspec.structs.replace(next, binds=one.binds or next.binds, annotations=annotations)
