"""Events and bindings: what a scheduler writes besides status."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from msgspec import field

from holdfast.api.meta import Object, ObjectReference, Struct


class EventSource(Struct):
    component: str = ""
    host: str = ""


class EventSeries(Struct):
    count: int = 0
    last_observed_time: str | None = None


class Event(Object):
    """One type for both groups: `v1` has involvedObject and message, `events.k8s.io/v1` has regarding
    and note."""

    type: str = ""
    reason: str = ""
    action: str = ""
    reporting_controller: str = ""
    reporting_instance: str = ""
    event_time: str | None = None
    series: EventSeries | None = None
    related: ObjectReference | None = None

    regarding: ObjectReference | None = None
    note: str = ""

    involved_object: ObjectReference | None = None
    message: str = ""
    source: EventSource | None = None
    first_timestamp: str | None = None
    last_timestamp: str | None = None
    count: int = 0

    @property
    def subject(self) -> ObjectReference | None:
        """The object the event is about, in either spelling."""
        return self.regarding or self.involved_object

    @property
    def text(self) -> str:
        """The message of the event, in either version."""
        return self.note or self.message


class Binding(Object):
    target: ObjectReference = field(default_factory=ObjectReference)


def last_observed(event: Mapping[str, Any]) -> str:
    """The time an Event object was last observed. As text, such times sort in order."""
    series = event.get("series") or {}
    return str(
        series.get("lastObservedTime")
        or event.get("lastTimestamp")
        or event.get("eventTime")
        or event["metadata"].get("creationTimestamp")
        or ""
    )
