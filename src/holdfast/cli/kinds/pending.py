"""Output of the scheduling queue: pending pods and reservations in the order they will be tried."""

import math
from collections import deque
from collections.abc import Callable, Mapping
from heapq import heapify, heappop, heapreplace
from typing import Any, NamedTuple

from holdfast.api.kinds import KINDS
from holdfast.api.names import (
    HOLD_EXPECTED_START,
    RESOURCE_API,
    SIGS_PODGROUP_API,
    VOLCANO_API,
    WORKLOAD_API,
)
from holdfast.api.similar_names import did_you_mean
from holdfast.cli.client import POD, RESERVATION, ObjectLister, Raw
from holdfast.cli.kinds.kind import Found, OutputColumn, OutputRow, Query
from holdfast.cli.kinds.snapshot_kind import SnapshotKind, matching, not_found
from holdfast.cli.printing import Description, age, events
from holdfast.cli.snapshot import warned_snapshot
from holdfast.local.setup import SERVED
from holdfast.scheduler.cluster.records import Phase, PodRecord
from holdfast.scheduler.jobs import JobName, Jobs
from holdfast.snapshot.cluster_snapshot import CAPACITY, ClusterSnapshot

_READ = (
    *CAPACITY,
    KINDS[RESOURCE_API, "ResourceClaimTemplate"],
    KINDS["scheduling.k8s.io/v1", "PriorityClass"],
    KINDS[VOLCANO_API, "PodGroup"],
    KINDS[SIGS_PODGROUP_API, "PodGroup"],
    KINDS[WORKLOAD_API, "PodGroup"],
    KINDS[VOLCANO_API, "Queue"],
)


_WATCHED_PLACES = 100
"""The places at the head of the queue whose changes are shown by a watch."""


class _Place(NamedTuple):
    pod: PodRecord
    raw: Raw


class PendingObject(SnapshotKind):
    infos = (POD,)
    reads = _READ
    status = "STATE"
    unsteady = frozenset({"WAITING", "PLACE", "SHARE"})
    columns = (
        OutputColumn("NAME"),
        OutputColumn("PRIORITY"),
        OutputColumn("SCHEDULER"),
        OutputColumn("STATE"),
        OutputColumn("NOMINATED"),
        OutputColumn("WAITING"),
        OutputColumn("PLACE"),
        OutputColumn("JOB", wide=True),
        OutputColumn("QUEUE", wide=True),
        OutputColumn("SHARE", wide=True),
        OutputColumn("EXPECTED-START", wide=True),
        OutputColumn("MESSAGE", wide=True),
    )

    @property
    def names_namespace(self) -> bool:
        return False

    def rows(self, snapshot: ClusterSnapshot, query: Query) -> Found:
        _share_out(snapshot)
        matches = matching(query)
        rows: list[OutputRow] = []
        found: set[str] = set()
        elsewhere = 0
        for number, place in enumerate(in_order(snapshot), 1):
            if not matches(place.raw):
                continue
            if not _is_named(place, query):
                continue
            if not _is_in(place, query):
                elsewhere += 1
                continue
            found.update(_called(place))
            rows.append(OutputRow(place.raw, _cells(place, number, snapshot)))
        missing = [_not_pending(snapshot, name, query) for name in query.names if name not in found]
        return Found(rows, self.columns, tuple(missing), elsewhere)

    def is_changed(self, before: Mapping[str, str], after: Mapping[str, str]) -> bool:
        """Also if only its place has, of the first ones: in a long queue every pod that gets a node
        would have all rows shown again."""
        has_moved = before["PLACE"] != after["PLACE"] and int(after["PLACE"]) <= _WATCHED_PLACES
        return has_moved or super().is_changed(before, after)

    def last_status(self, snapshot: ClusterSnapshot, raw: Raw) -> str:
        """`Scheduled`, if it is there still."""
        metadata = raw["metadata"]
        info = POD if raw["kind"] == "Pod" else RESERVATION
        now = snapshot.find(info, metadata["name"], metadata.get("namespace") or "")
        if now is None or now["metadata"].get("uid") != metadata.get("uid"):
            return "Deleted"
        return "Terminating" if now["metadata"].get("deletionTimestamp") else "Scheduled"

    async def describe(self, server: ObjectLister, raw: Raw) -> str:
        now = server.now()
        text = Description()
        snapshot = await warned_snapshot(server, only=_READ)
        _share_out(snapshot)
        for number, place in enumerate(in_order(snapshot), 1):
            if place.raw["metadata"].get("uid") == raw["metadata"].get("uid"):
                text.field("Place", number)
                cells = _cells(place, number, snapshot)
                for column, cell in zip(self.columns, cells, strict=True):
                    if column.name != "PLACE":
                        text.field(column.name.capitalize(), cell)
        events(text, await server.events(raw), now)
        return text.text()


def in_order(snapshot: ClusterSnapshot) -> list[_Place]:
    """The pending objects in scheduling order; queue shares must be computed before."""
    cluster = snapshot.cluster
    places = []
    for pod in cluster.pods.values():
        if pod.phase is Phase.PENDING and not pod.deletion_pending:
            raw = snapshot.find(POD, pod.name, pod.namespace)
            assert raw is not None
            places.append(_Place(pod, raw))
    for reservation in cluster.reservations.known.values():
        if (
            reservation.pod is not None
            and reservation.pod.phase is Phase.PENDING
            and not reservation.is_planned  # it is not tried before its start
            and not reservation.terminating
        ):
            raw = snapshot.find(RESERVATION, reservation.name)
            assert raw is not None
            places.append(_Place(reservation.pod, raw))
    return _in_turns(snapshot, sorted(places, key=_order(snapshot.cluster.jobs, places)))


def _order(jobs: Jobs, places: list[_Place]) -> Callable[[_Place], tuple[int, str, str, str, str]]:
    """PrioritySort's key, by creation time. Members of a job are tried with its first one."""
    first: dict[JobName, str] = {}
    for place in places:
        if place.pod.job is not None:
            name, created = place.pod.job, _created(place)
            first[name] = min(first.get(name, created), created)

    def key(place: _Place) -> tuple[int, str, str, str, str]:
        pod = place.pod
        if pod.job is None:
            return -pod.cls.priority, _created(place), pod.namespace, pod.name, ""
        name = pod.job
        return -jobs.known[name].priority, first[name], pod.namespace, name.name, pod.name

    return key


def _created(place: _Place) -> str:
    return str(place.raw["metadata"].get("creationTimestamp") or "")


def _in_turns(snapshot: ClusterSnapshot, places: list[_Place]) -> list[_Place]:
    """With queues, the queue with the smallest share of its deserved amount comes next, assuming
    that everything before it fits.
    """
    queues = snapshot.cluster.jobs.queues
    if not queues:
        return places
    lanes: dict[str, deque[tuple[int, _Place]]] = {}
    for number, place in enumerate(places):
        lanes.setdefault(queues.of(place.pod), deque()).append((number, place))

    def order_key(name: str) -> tuple[Any, int, str]:
        number, place = lanes[name][0]
        return queues.order_key(name, place.pod), number, name

    found = []
    with queues.expected_usage() as expected:
        turns = [order_key(name) for name in lanes]
        heapify(turns)
        while turns:
            name = turns[0][2]
            if (now := order_key(name)) != turns[0]:
                heapreplace(turns, now)  # what others have got since counts for the queues above it
                continue
            place = lanes[name].popleft()[1]
            found.append(place)
            if not place.pod.nominated:
                expected.coming(place.pod)
            if lanes[name]:
                heapreplace(turns, order_key(name))
            else:
                heappop(turns)
    return found


def _is_named(place: _Place, query: Query) -> bool:
    return not query.names or any(name in query.names for name in _called(place))


def _is_in(place: _Place, query: Query) -> bool:
    """Whether it is in the namespace; reservations are in none, and are shown for all."""
    namespace = place.raw["metadata"].get("namespace")
    return not query.namespace or not namespace or namespace == query.namespace


def _not_pending(snapshot: ClusterSnapshot, name: str, query: Query) -> str:
    """Why a name is not in the queue: it is not pending, or there is no such pod."""
    if name in _names(snapshot, query.namespace) or "/" in name:
        return f'"{name}" is not pending'
    return not_found(POD, name, snapshot.all(POD), query.namespace)


def _names(snapshot: ClusterSnapshot, namespace: str) -> set[str]:
    pods = {
        str(raw["metadata"]["name"])
        for raw in snapshot.all(POD)
        if not namespace or raw["metadata"].get("namespace") == namespace
    }
    return pods | {str(raw["metadata"]["name"]) for raw in snapshot.all(RESERVATION)}


def _called(place: _Place) -> tuple[str, ...]:
    """The names that users may use for it."""
    name = str(place.raw["metadata"]["name"])
    namespace = place.raw["metadata"].get("namespace")
    return (name, f"{namespace}/{name}", title(place.raw)) if namespace else (name, title(place.raw))


def title(raw: Raw) -> str:
    """`Pod/namespace/name`, `Reservation/name`"""
    metadata = raw["metadata"]
    parts = (raw["kind"], metadata.get("namespace"), metadata["name"])
    return "/".join(part for part in parts if part)


def _share_out(snapshot: ClusterSnapshot) -> None:
    """Computes the queues' deserved amounts, as a round does."""
    waiting = [pod for pod in snapshot.cluster.pods.values() if pod.phase is Phase.PENDING]
    snapshot.cluster.jobs.queues.share_out(waiting)


def _share(snapshot: ClusterSnapshot, queue: str) -> str:
    """The queue's allocated share of its deserved amount, in percent."""
    queues = snapshot.cluster.jobs.queues
    if queue not in queues.known:
        return ""
    share = queues.share_of(queues.known[queue])
    return "above" if share == math.inf else f"{round(100 * share)}%"


def _expected_start(snapshot: ClusterSnapshot, pod: PodRecord) -> str:
    """When the capacity held for it will be free, if known."""
    hold = snapshot.cluster.reservations.starvation_holds.of(pod)
    annotations = hold.object.metadata.annotations if hold is not None else {}
    return annotations.get(HOLD_EXPECTED_START, "")


def _cells(place: _Place, number: int, snapshot: ClusterSnapshot) -> list[str]:
    pod, raw = place
    queue = snapshot.cluster.jobs.queues.of(pod)
    status = raw.get("status") or {}
    failed = _failed_condition(raw)
    message = str(failed.get("message") or "")
    gated = snapshot.scheduler.gate_reason(pod)
    state = "Gated" if gated else "Unschedulable" if failed else "Active"
    if state == "Active" and snapshot.scheduler.profile_of(pod.scheduler) is None:
        state, message = "NotServed", _not_served(snapshot, pod)
    return [
        title(raw),
        str(pod.cls.priority),
        pod.scheduler,
        state,
        status.get("nominatedNodeName") or "",
        age(raw, snapshot.now),
        str(number),
        pod.job_name,
        snapshot.cluster.jobs.queues.named_by(pod),
        _share(snapshot, queue),
        _expected_start(snapshot, pod),
        message or gated,
    ]


def _not_served(snapshot: ClusterSnapshot, pod: PodRecord) -> str:
    """Only the scheduler knows its configuration; but a pod that it serves soon gets a node or a
    condition."""
    known = [profile.scheduler_name for profile in snapshot.scheduler.profiles]
    hint = did_you_mean(pod.scheduler, [*known, *SERVED], f"by default it serves {' and '.join(known)}")
    return f"no profile of the scheduler serves spec.schedulerName {pod.scheduler}{hint}"


def _failed_condition(raw: Raw) -> Raw:
    """The condition that says that it has no node; empty if there is none. Its message says why, except
    in an anonymized snapshot."""
    kind = "PodScheduled" if raw["kind"] == "Pod" else "Scheduled"
    for each in (raw.get("status") or {}).get("conditions") or ():
        if each.get("type") == kind and each.get("status") == "False":
            return dict(each)
    return {}
