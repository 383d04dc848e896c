"""Output of Queues, and of the scheduling queue: pending pods and reservations in the order they will
be tried.
"""

import math
import time
from collections import deque
from collections.abc import Callable
from heapq import heapify, heappop, heapreplace
from typing import Any, NamedTuple

from holdfast.api.kinds import KINDS
from holdfast.api.names import HOLD_EXPECTED_START, SIGS_PODGROUP_API, VOLCANO_API
from holdfast.api.selectors import Selector, parse_label_selector
from holdfast.cli.client import POD, RESERVATION, Raw, Server
from holdfast.cli.kinds.kind import Found, OutputColumn, OutputKind, OutputRow, PlainKind, Query
from holdfast.cli.printing import Description, age, events, pairs
from holdfast.cli.snapshot import warned_snapshot
from holdfast.scheduler.cluster.records import Phase, PodRecord
from holdfast.scheduler.jobs import JobName, Jobs
from holdfast.snapshot.cluster_snapshot import CAPACITY, ClusterSnapshot

_READ = (
    *CAPACITY,
    KINDS["scheduling.k8s.io/v1", "PriorityClass"],
    KINDS[VOLCANO_API, "PodGroup"],
    KINDS[SIGS_PODGROUP_API, "PodGroup"],
    KINDS[VOLCANO_API, "Queue"],
)


class _Place(NamedTuple):
    pod: PodRecord
    raw: Raw


class PendingObject(OutputKind):
    info = POD
    columns = (
        OutputColumn("NAME"),
        OutputColumn("PRIORITY"),
        OutputColumn("SCHEDULER"),
        OutputColumn("STATE"),
        OutputColumn("NOMINATED"),
        OutputColumn("WAITING"),
        OutputColumn("JOB", wide=True),
        OutputColumn("QUEUE", wide=True),
        OutputColumn("SHARE", wide=True),
        OutputColumn("EXPECTED-START", wide=True),
        OutputColumn("MESSAGE", wide=True),
    )

    async def find(self, server: Server, query: Query) -> Found:
        snapshot = await warned_snapshot(server, only=_READ)
        _share_out(snapshot)
        selector = parse_label_selector(query.selector)
        places = [place for place in in_order(snapshot) if _is_queried(place, query, selector)]
        rows = [OutputRow(place.raw, _cells(place, snapshot)) for place in places]
        found = {name for place in places for name in _called(place)}
        missing = [name for name in query.names if name not in found]
        return Found(rows, self.columns, missing=tuple(f'"{name}" is not pending' for name in missing))

    async def describe(self, server: Server, raw: Raw) -> str:
        now = time.time()
        text = Description()
        snapshot = await warned_snapshot(server, only=_READ)
        _share_out(snapshot)
        for number, place in enumerate(in_order(snapshot), 1):
            if place.raw["metadata"].get("uid") == raw["metadata"].get("uid"):
                text.field("Place", number)
                for column, cell in zip(self.columns, _cells(place, snapshot), strict=True):
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


def _is_queried(place: _Place, query: Query, selector: Selector) -> bool:
    metadata = place.raw["metadata"]
    return (
        (not query.names or any(name in query.names for name in _called(place)))
        and (not query.namespace or metadata.get("namespace") == query.namespace)
        and selector.matches(metadata.get("labels") or {})
    )


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


def _cells(place: _Place, snapshot: ClusterSnapshot) -> list[str]:
    pod, raw = place
    queue = snapshot.cluster.jobs.queues.of(pod)
    status = raw.get("status") or {}
    message = _condition_message(raw)
    state = "Gated" if pod.gates else "Unschedulable" if message else "Active"
    return [
        title(raw),
        str(pod.cls.priority),
        pod.scheduler,
        state,
        status.get("nominatedNodeName") or "",
        age(raw, snapshot.now),
        pod.job_name,
        queue,
        _share(snapshot, queue),
        _expected_start(snapshot, pod),
        message,
    ]


def _condition_message(raw: Raw) -> str:
    """The message of its condition: why it has no node."""
    kind = "PodScheduled" if raw["kind"] == "Pod" else "Scheduled"
    for each in (raw.get("status") or {}).get("conditions") or ():
        if each.get("type") == kind and each.get("status") == "False":
            return str(each.get("message") or "")
    return ""


# Queues: their shares of the cluster, and how much of them is in use


class QueueKind(PlainKind):
    info = KINDS[VOLCANO_API, "Queue"]
    columns = (
        OutputColumn("NAME"),
        OutputColumn("WEIGHT"),
        OutputColumn("STATE"),
        OutputColumn("ALLOCATED"),
        OutputColumn("DESERVED"),
        OutputColumn("CAPABILITY"),
        OutputColumn("AGE"),
        OutputColumn("GUARANTEE", wide=True),
        OutputColumn("RECLAIMABLE", wide=True),
    )

    def cells(self, raw: Raw, now: float) -> list[str]:
        spec, status = raw.get("spec") or {}, raw.get("status") or {}
        return [
            raw["metadata"]["name"],
            str(spec.get("weight", 1)),
            status.get("state") or "Open",
            pairs(status.get("allocated")),
            pairs(spec.get("deserved")),
            pairs(spec.get("capability")),
            age(raw, now),
            pairs((spec.get("guarantee") or {}).get("resource")),
            "false" if spec.get("reclaimable") is False else "true",
        ]

    async def describe(self, server: Server, raw: Raw) -> str:
        now = time.time()
        text = Description()
        for column, cell in zip(self.columns, self.cells(raw, now), strict=True):
            text.field(column.name.capitalize(), cell)
        status = raw.get("status") or {}
        for counted in ("pending", "inqueue", "running", "completed"):
            text.field(f"{counted.capitalize()} Jobs", status.get(counted, 0))
        events(text, await server.events(raw), now)
        return text.text()
