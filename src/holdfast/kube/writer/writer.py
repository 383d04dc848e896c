"""Carries out a round's decisions: dispatches each to the writer of its kind, and sends Events."""

import asyncio
import socket
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from types import MappingProxyType
from typing import Any, assert_never

import msgspec

from holdfast.api.pod import Pod
from holdfast.api.reservation import PodMigrationJob, Reservation
from holdfast.api.storage import PersistentVolumeClaim
from holdfast.kube.client import MERGE, Client
from holdfast.kube.errors import ApiError, LeadershipLost
from holdfast.kube.flow_control import Backoff, RateLimit
from holdfast.kube.leader_election import Fence
from holdfast.kube.writer.binder import BeforeBind, BindWrite, ClaimWaiter, ConflictsOf, Feed
from holdfast.kube.writer.job_writes import JobStatuses, MigrationWriter
from holdfast.kube.writer.pod_writes import EvictionWrite, Statuses, Victims, annotation_write
from holdfast.kube.writer.reservation_writes import Releases, ReservationWriter
from holdfast.kube.writer.resource_claim_writes import ResourceClaimWriter
from holdfast.kube.writer.status_writes import StatusWriter
from holdfast.kube.writer.write_queue import (
    TRANSIENT,
    ApiWriter,
    Failed,
    Lane,
    Write,
    WriteQueue,
    WriteResult,
    wait_after,
)
from holdfast.scheduler.cluster.decisions import (
    AnnotatePod,
    AnnotateReservation,
    Bind,
    BindVolume,
    CreateClaim,
    CreateHolder,
    CreateReservation,
    DeallocateClaim,
    Decision,
    DeleteClaim,
    DeleteReservation,
    Emit,
    Evict,
    HoldDevices,
    Nominate,
    ObjectRef,
    Preempt,
    PreemptReservation,
    ReserveClaim,
    SelectNode,
    SetMigrationStatus,
    SetPodGroupStatus,
    SetPodScheduled,
    SetQueueStatus,
    SetReservationStatus,
    SetScheduleStatus,
    SpecifyMigration,
    UnreserveClaim,
)
from holdfast.scheduler.cluster.events import Deleted, Event
from holdfast.scheduler.event_recorder import EventRecorder, EventWrite, SeriesEvents
from holdfast.scheduler.reservations.preemption_holds import preemptor_of

EVENTS_WAITING = 50_000
"""The limit of queued Events; further ones are dropped."""

NameController = Callable[[Emit], str]
"""Returns the scheduler name that an Event is reported by."""


class Writer:
    """`feed` takes the outcomes of binds; `claims` and `resource_claims` are those in the scheduler's
    cache."""

    def __init__(
        self,
        client: Client,
        fence: Fence,
        feed: Feed,
        claims: Mapping[tuple[str, str], Any],
        controller: NameController,
        wall: Callable[[], float],
        failed: Failed,
        limit: RateLimit | None = None,
        claim_timeout: float = 600.0,
        version: Callable[[ObjectRef], str] = lambda _: "",
        resource_claims: Mapping[tuple[str, str], Any] = MappingProxyType({}),
        conflicting: ConflictsOf = lambda _: (),
    ) -> None:
        self._conflicts_of = conflicting
        self._api = ApiWriter(client, fence)
        self._feed = feed
        self._controller = controller
        self._wall = wall
        self._claim_timeout = claim_timeout
        self._failed = failed
        self.queue = WriteQueue(failed, limit)
        self.claims = ClaimWaiter(claims)
        self.statuses = Statuses(self._api, wall)
        self._releases = Releases()
        self._resource_claims = ResourceClaimWriter(self._api, self.queue, feed, resource_claims, wall)
        self._object_statuses = StatusWriter(self._api, version)
        self._reservations = ReservationWriter(
            self._api,
            self.queue,
            feed,
            self._releases,
            self._resource_claims.write_holder,
            self._object_statuses,
        )
        self._jobs = JobStatuses(self._api, self.queue, feed)
        self._migrations = MigrationWriter(
            self._api, self.queue, feed, self._emit, self._object_statuses
        )
        # The next leader need not wait for Events.
        self._recorder = EventWriter(ApiWriter(client, fence), wall, version)
        self._version = version
        self._victims: dict[str, Victims] = {}
        """The victims of each job, or single pods, until all of them have their conditions."""
        self.events_lost = 0

    async def finish(self, patience: float) -> bool:
        """Sends nothing more; waits for outstanding answers, or until the server can no longer execute
        unanswered writes. False if that takes too long."""
        give_up_at = asyncio.get_running_loop().time() + patience
        if not await self.queue.finish(patience):
            return False
        return await self._api.sure(give_up_at - asyncio.get_running_loop().time())

    def carry_out(self, decisions: Iterable[Decision]) -> None:
        before: list[BeforeBind] = []
        holders: dict[str, list[CreateHolder]] = {}
        victims: defaultdict[str, dict[str, Victims]] = defaultdict(dict)
        for decision in decisions:
            if isinstance(decision, Bind):
                self._bind(decision, before)
                before = []
            elif isinstance(decision, Emit):
                self._emit(decision)
            elif isinstance(decision, BindVolume | SelectNode):
                before.append(decision)
            elif isinstance(decision, ReserveClaim):
                if decision.waits:
                    self._resource_claims.reserve(decision)
                else:
                    before.append(decision)
            elif isinstance(decision, CreateClaim):
                before.append(decision)
            elif isinstance(decision, CreateHolder):
                self._resource_claims.holds(decision)
                if decision.before_bind:
                    holders.setdefault(decision.reservation.uid, []).append(decision)
                else:
                    self._resource_claims.create_holder(decision)
            elif isinstance(decision, HoldDevices):
                self._resource_claims.holds(decision)
                if decision.before_bind:
                    before.append(decision)
                else:
                    self._resource_claims.hold(decision)
            elif isinstance(decision, UnreserveClaim):
                self._resource_claims.unreserve(decision)
            elif isinstance(decision, DeallocateClaim):
                self._resource_claims.deallocate(decision)
            elif isinstance(decision, DeleteClaim):
                self._resource_claims.delete(decision)
            elif isinstance(decision, SetPodScheduled | Nominate):
                if self.statuses.want(decision):
                    write = self.statuses.write(decision.pod)
                    self.queue.submit(Lane.STATUS, decision.pod.uid, write)
            elif isinstance(decision, Preempt):
                group = self._preempt(decision)
                if decision.job:
                    victims[decision.preemptor.uid][decision.job] = group
            elif isinstance(decision, AnnotatePod):
                write = annotation_write(self._api, decision, self._feed)
                self.queue.submit(Lane.BIND, decision.pod.uid, write)
            elif isinstance(decision, CreateReservation):
                preemptor = preemptor_of(decision.reservation)
                self._reservations.create(decision, victims[preemptor].values() if preemptor else ())
            elif isinstance(decision, SetReservationStatus):
                held = holders.pop(decision.reservation.uid, ()) if decision.binds else ()
                self._reservations.set_status(decision, held)
            elif isinstance(decision, DeleteReservation):
                self._reservations.delete(decision)
            elif isinstance(decision, PreemptReservation):
                self._reservations.preempt(decision)
            elif isinstance(decision, AnnotateReservation):
                self._reservations.annotate(decision)
            elif isinstance(decision, SetPodGroupStatus | SetQueueStatus | SetScheduleStatus):
                self._jobs.set_status(decision)
            elif isinstance(decision, Evict):
                self._migrations.evict(decision)
            elif isinstance(decision, SetMigrationStatus):
                self._migrations.set_status(decision)
            elif isinstance(decision, SpecifyMigration):
                self._migrations.specify(decision)
            else:
                assert_never(decision)

    def saw(self, event: Event) -> None:
        """Something came from the server that a write may wait for or depend on."""
        obj: Any = getattr(event, "object", None)
        if isinstance(obj, Pod):
            if isinstance(event, Deleted):
                self.statuses.gone(obj.metadata.uid)
            else:
                self.statuses.seen(obj)
        elif isinstance(obj, Reservation | PodMigrationJob):
            if isinstance(event, Deleted):
                self._object_statuses.gone(obj.metadata.uid)
            else:
                self._object_statuses.seen(obj.metadata)
        elif isinstance(obj, PersistentVolumeClaim):
            self.claims.changed((obj.metadata.namespace, obj.metadata.name))

    def sweep(self) -> None:
        """Called about every minute."""
        for write in self._recorder.ended():
            self.queue.submit(Lane.EVENT, object(), write)

    def _bind(self, decision: Bind, before: list[BeforeBind]) -> None:
        self.statuses.drop(decision.pod.uid)
        write = BindWrite(
            self._api,
            self._feed,
            self.claims,
            decision,
            before,
            self._claim_timeout,
            self._wall,
            self._releases,
            self._resource_claims,
            self._version(decision.pod),
            self._conflicts_of,
        )
        self.queue.submit(Lane.BIND, decision.pod.uid, write)

    def _preempt(self, decision: Preempt) -> Victims:
        key = decision.job or decision.pod.uid
        victims = self._victims.get(key)
        if victims is None:
            victims = self._victims[key] = Victims(partial(self._all_marked, key))
        write = EvictionWrite(
            self._api,
            self._feed,
            self._failed,
            decision,
            self._wall(),
            victims,
            self._reservations.unwritten,
        )
        self.queue.submit(Lane.STATUS, decision.pod.uid, write)
        return victims

    def _all_marked(self, key: str) -> None:
        del self._victims[key]

    def _emit(self, decision: Emit) -> None:
        if self.queue.length(Lane.EVENT) >= EVENTS_WAITING:
            self.events_lost += 1
            return
        write = self._recorder.write(decision, self._controller(decision))
        if write is not None:
            # An Event of its own is an object of its own; only those of one series keep an order.
            key = (decision.about.uid, decision.reason) if decision.type != "Normal" else object()
            self.queue.submit(Lane.EVENT, key, write)


# Events; repeated ones are sent as a series


_MOST_SERIES = 10_000
_ATTEMPTS = 6
_ALREADY_EXISTS = 409


class EventWriter:
    def __init__(
        self, api: ApiWriter, wall: Callable[[], float], version: Callable[[ObjectRef], str]
    ) -> None:
        self._api = api
        self._wall = wall
        self._recorder = EventRecorder(SeriesEvents(socket.gethostname()), version, _MOST_SERIES)

    def write(self, event: Emit, controller: str) -> Write | None:
        """The next write; None if there is none."""
        recorded = self._recorder.record(event, controller, self._wall())
        return self._write(recorded) if recorded is not None else None

    def ended(self) -> list[Write]:
        """The last writes of series that have ended."""
        return [self._write(recorded) for recorded in self._recorder.ended(self._wall())]

    def _write(self, recorded: EventWrite) -> Write:
        path = events_path(recorded.namespace)
        body = msgspec.Raw(msgspec.json.encode(recorded.body))
        if recorded.is_new:
            return _Writing(self._api, "POST", path, body)
        return _Writing(self._api, "PATCH", f"{path}/{recorded.name}", body)


def events_path(namespace: str) -> str:
    return f"/apis/events.k8s.io/v1/namespaces/{namespace}/events"


class _Writing:
    """One write. Tens of thousands may wait while the server is slow, so it is small: encoded
    already, and without a back-off until it needs one.
    """

    __slots__ = ("_api", "_backoff", "_body", "_method", "_path")

    def __init__(self, api: ApiWriter, method: str, path: str, body: msgspec.Raw) -> None:
        self._api = api
        self._method, self._path, self._body = method, path, body
        self._backoff: Backoff | None = None

    async def __call__(self) -> WriteResult:
        content_type = MERGE if self._method == "PATCH" else "application/json"
        try:
            await self._api.write(self._method, self._path, self._body, content_type)
        except LeadershipLost:
            return None
        except TRANSIENT as error:
            if isinstance(error, ApiError) and error.status in (404, _ALREADY_EXISTS):
                return None  # its namespace or series has gone; or an attempt did arrive
            if self._backoff is None:
                self._backoff = self._api.backoff(1.0, 20.0)
            wait = wait_after(error, self._backoff)
            if wait is None or self._backoff.tries >= _ATTEMPTS:
                raise
            return wait
        return None
