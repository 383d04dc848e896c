"""The queue: pods and reservations without a node, in the order in which they will be tried."""

import math
import time
from typing import NamedTuple

from holdfast.api.kinds import KINDS
from holdfast.api.label_selectors import Selector
from holdfast.api.names import HOLD_EXPECTED_START, SIGS_PODGROUP_API, VOLCANO_API
from holdfast.api.selector_text import parse_label_selector
from holdfast.cli.asking.picture import CAPACITY, Picture, take_picture
from holdfast.cli.asking.printing import Description, age, events
from holdfast.cli.asking.server import POD, RESERVATION, Raw, Server
from holdfast.cli.kinds.kind import Column, Found, Kind, Query, Row
from holdfast.core.pods import Phase, PodRecord

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


class Waiting(Kind):
    info = POD
    columns = (
        Column("NAME"),
        Column("PRIORITY"),
        Column("SCHEDULER"),
        Column("STATE"),
        Column("NOMINATED"),
        Column("WAITING"),
        Column("JOB", wide=True),
        Column("QUEUE", wide=True),
        Column("SHARE", wide=True),
        Column("EXPECTED-START", wide=True),
        Column("MESSAGE", wide=True),
    )

    async def find(self, server: Server, query: Query) -> Found:
        picture = await take_picture(server, only=_READ)
        _share_out(picture)
        selector = parse_label_selector(query.selector)
        places = [place for place in _in_order(picture) if _is_meant(place, query, selector)]
        rows = [Row(place.raw, _cells(place, picture)) for place in places]
        found = {name for place in places for name in _called(place)}
        missing = [name for name in query.names if name not in found]
        return Found(
            rows, self.columns, missing=tuple(f'"{name}" does not wait for a node' for name in missing)
        )

    async def describe(self, server: Server, raw: Raw) -> str:
        now = time.time()
        text = Description()
        picture = await take_picture(server, only=_READ)
        _share_out(picture)
        for number, place in enumerate(_in_order(picture), 1):
            if place.raw["metadata"].get("uid") == raw["metadata"].get("uid"):
                text.field("Place", number)
                for column, cell in zip(self.columns, _cells(place, picture), strict=True):
                    text.field(column.name.capitalize(), cell)
        events(text, await server.events(raw), now)
        return text.text()


def _in_order(picture: Picture) -> list[_Place]:
    cluster = picture.cluster
    places = []
    for pod in cluster.pods.values():
        if pod.phase is Phase.PENDING and not pod.leaving:
            raw = picture.find(POD, pod.name, pod.namespace)
            assert raw is not None
            places.append(_Place(pod, raw))
    for promise in cluster.promises.known.values():
        if promise.pod is not None and promise.pod.phase is Phase.PENDING and not promise.terminating:
            raw = picture.find(RESERVATION, promise.name)
            assert raw is not None
            places.append(_Place(promise.pod, raw))
    return sorted(places, key=_order)


def _order(place: _Place) -> tuple[int, str, str, str]:
    """As PrioritySort has it; when a pod was first seen, its object says best."""
    pod, raw = place
    created = str(raw["metadata"].get("creationTimestamp") or "")
    priority = pod.cls.priority if pod.job is None else pod.job.priority
    return -priority, created, pod.namespace, pod.name


def _is_meant(place: _Place, query: Query, selector: Selector) -> bool:
    metadata = place.raw["metadata"]
    return (
        (not query.names or any(name in query.names for name in _called(place)))
        and (not query.namespace or metadata.get("namespace") == query.namespace)
        and selector.matches(metadata.get("labels") or {})
    )


def _called(place: _Place) -> tuple[str, ...]:
    """What users may call it."""
    name = str(place.raw["metadata"]["name"])
    namespace = place.raw["metadata"].get("namespace")
    return (name, f"{namespace}/{name}", title(place.raw)) if namespace else (name, title(place.raw))


def title(raw: Raw) -> str:
    """`Pod/namespace/name`, `Reservation/name`"""
    metadata = raw["metadata"]
    parts = (raw["kind"], metadata.get("namespace"), metadata["name"])
    return "/".join(part for part in parts if part)


def _share_out(picture: Picture) -> None:
    """Works out what queues deserve, as a round would."""
    waiting = [pod for pod in picture.cluster.pods.values() if pod.phase is Phase.PENDING]
    picture.cluster.jobs.queues.share_out(waiting)


def _share(picture: Picture, queue: str) -> str:
    """How much of what it deserves the queue has, in percent."""
    queues = picture.cluster.jobs.queues
    if queue not in queues.known:
        return ""
    share = queues.share_of(queues.known[queue])
    return "above" if share == math.inf else f"{round(100 * share)}%"


def _expected_start(picture: Picture, pod: PodRecord) -> str:
    """When the room held for it will be free, where that is known."""
    hold = picture.cluster.jobs.holds.of(pod)
    annotations = hold.object.metadata.annotations if hold is not None else {}
    return annotations.get(HOLD_EXPECTED_START, "")


def _cells(place: _Place, picture: Picture) -> list[str]:
    pod, raw = place
    queue = picture.cluster.jobs.queues.of(pod)
    status = raw.get("status") or {}
    said = _said(raw)
    state = "Gated" if pod.gates else "Unschedulable" if said else "Active"
    return [
        title(raw),
        str(pod.cls.priority),
        pod.scheduler,
        state,
        status.get("nominatedNodeName") or "",
        age(raw, picture.now),
        str(pod.job.name) if pod.job is not None else "",
        queue,
        _share(picture, queue),
        _expected_start(picture, pod),
        said,
    ]


def _said(raw: Raw) -> str:
    """Why it was told that it has no node."""
    kind = "PodScheduled" if raw["kind"] == "Pod" else "Scheduled"
    for each in (raw.get("status") or {}).get("conditions") or ():
        if each.get("type") == kind and each.get("status") == "False":
            return str(each.get("message") or "")
    return ""
