"""The times of past events that objects state, from which the age of a dump is known."""

from collections.abc import Iterable, Iterator
from typing import Any

from holdfast.api.errors import TimeError
from holdfast.api.times import parse_time

Raw = dict[str, Any]

_PAST = frozenset(
    {
        "completionTime",
        "creationTimestamp",
        "eventTime",
        "finishedAt",
        "firstTimestamp",
        "lastHeartbeatTime",
        "lastProbeTime",
        "lastScheduleTime",
        "lastSuccessfulTime",
        "lastTimestamp",
        "lastTransitionTime",
        "lastUpdateTime",
        "renewTime",
        "startTime",
        "startedAt",
        "time",
    }
)
"""Fields with the time of something that has happened."""
_PARTS = ("metadata", "status", "firstTimestamp", "lastTimestamp", "eventTime")


def past_times(raw: Raw) -> Iterator[float]:
    """In seconds since the epoch."""
    stack: list[Any] = [{part: raw[part] for part in _PARTS if part in raw}]
    if raw.get("kind") == "Lease":
        stack.append(raw.get("spec"))
    while stack:
        here = stack.pop()
        if isinstance(here, list):
            stack.extend(here)
        elif isinstance(here, dict):
            for key, value in here.items():
                if isinstance(value, dict | list):
                    if key not in ("annotations", "labels", "fieldsV1"):
                        stack.append(value)
                elif key in _PAST and isinstance(value, str):
                    try:
                        yield parse_time(value)
                    except TimeError:
                        continue


def newest_time(objects: Iterable[Raw]) -> float | None:
    """The latest time that any of the objects states, in seconds since the epoch."""
    return max((time for raw in objects for time in past_times(raw)), default=None)


def newest_creation(objects: Iterable[Raw]) -> float | None:
    """The latest time that one of the objects was created. As timestamps of a server, which are all in
    UTC, they are compared as text."""
    texts = (raw["metadata"].get("creationTimestamp") or "" for raw in objects)
    try:
        return parse_time(str(max(texts, default="")))
    except TimeError:
        return None
