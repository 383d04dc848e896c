"""The latest Events: those the scheduler emits, and on a local cluster all that are in its store."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping
from heapq import nlargest
from itertools import islice
from typing import Any

from holdfast.api.errors import TimeError
from holdfast.api.events import last_observed
from holdfast.api.times import parse_time
from holdfast.scheduler.cluster.decisions import Decision, Emit

MAX_EVENTS = 500
"""Events that are kept, and sent to a browser that connects."""

Json = dict[str, Any]


class EventLog:
    """A bounded log. Events are kept as they come and put into words when somebody reads them."""

    def __init__(self) -> None:
        self._events: deque[tuple[int, float, Emit | Mapping[str, Any]]] = deque(maxlen=MAX_EVENTS)
        self.count = 0
        """How many events there were so far."""

    def decided(self, decisions: Iterable[Decision], now: float) -> None:
        """Takes the events from the decisions of a round."""
        for decision in decisions:
            if type(decision) is Emit:
                self.count += 1
                self._events.append((self.count, now, decision))

    def stored(self, event: Mapping[str, Any]) -> None:
        """Takes an Event object, new or counted again."""
        self.count += 1
        self._events.append((self.count, 0.0, event))

    def load(self, events: Iterable[Mapping[str, Any]]) -> None:
        """Takes the latest of the Events that existed before."""
        for event in reversed(nlargest(MAX_EVENTS, events, key=last_observed)):
            self.stored(event)

    def since(self, count: int) -> list[Json]:
        """The events after the first so many, as far as they are kept, oldest first."""
        new = min(self.count - count, len(self._events))
        latest = islice(self._events, len(self._events) - new, None)
        return [_event(*each) for each in latest]


def _event(number: int, now: float, event: Emit | Mapping[str, Any]) -> Json:
    if isinstance(event, Emit):
        about = event.about
        return {
            "id": str(number),
            "time": now,
            "type": event.type,
            "reason": event.reason,
            "kind": about.kind,
            "namespace": about.namespace,
            "name": about.name,
            "message": event.message,
            "count": 1,
            "from": "",
        }
    metadata = event["metadata"]
    about_raw = event.get("involvedObject") or event.get("regarding") or {}
    series = event.get("series") or {}
    return {
        "id": f"{metadata.get('namespace')}/{metadata.get('name')}",
        "time": _seconds(last_observed(event)),
        "type": str(event.get("type") or ""),
        "reason": str(event.get("reason") or ""),
        "kind": str(about_raw.get("kind") or ""),
        "namespace": str(about_raw.get("namespace") or ""),
        "name": str(about_raw.get("name") or ""),
        "message": str(event.get("message") or event.get("note") or ""),
        "count": event.get("count") or series.get("count") or 1,
        "from": str(
            event.get("reportingComponent")
            or event.get("reportingController")
            or (event.get("source") or {}).get("component")
            or ""
        ),
    }


def _seconds(text: str) -> float:
    try:
        return parse_time(text)
    except TimeError:
        return 0.0
