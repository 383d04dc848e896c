"""When virtual time starts.

A scenario starts at 2026-01-01T00:00:00Z. What was read from a cluster carries times, and starts at the
newest of them: its reservations expire and its pods have waited as they would in that cluster. A time
before 2026 in a scenario written by hand says how old an object is at the start, and moves nothing;
only in objects with a resourceVersion, which a server gives, does it count.
"""

from collections.abc import Iterable, Iterator
from math import ceil
from typing import Any

from holdfast.api.errors import TimeError
from holdfast.api.timestamps import parse_time
from holdfast.sim.clock import START
from holdfast.store.objects import Raw

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


def start_time(objects: Iterable[Raw]) -> float:
    """Of what is there at the start."""
    newest = served = float("-inf")
    for raw in objects:
        latest = max(_times(raw), default=newest)
        newest = max(newest, latest)
        metadata = raw.get("metadata")
        if isinstance(metadata, dict) and metadata.get("resourceVersion"):
            served = max(served, latest)
    if newest > START:
        return float(ceil(newest))
    return float(ceil(served)) if served > float("-inf") else START


def _times(raw: Raw) -> Iterator[float]:
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
