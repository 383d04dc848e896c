"""The timing annotations of objects, and a scenario's start time."""

from collections.abc import Iterable
from math import ceil

from holdfast.api import names
from holdfast.api.decode import object_name
from holdfast.api.errors import InvalidObject
from holdfast.api.times import parse_time
from holdfast.local.node_objects import EXPECTED_COUNT
from holdfast.local.store.objects import Raw
from holdfast.sim.document_fields import hint, seconds
from holdfast.snapshot.timestamps import past_times

START = parse_time("2026-01-01T00:00:00Z")

# Timing annotations


_ANNOTATIONS = (names.SIM_AT, names.SIM_DELETE_AT, names.SIM_RUNS_FOR, names.SIM_STOPS_IN)
_POD_ONLY = (names.SIM_RUNS_FOR, names.SIM_STOPS_IN)


def timing(raw: Raw, found: list[InvalidObject], step_at: float | None = None) -> dict[str, float]:
    """The values of the simulation's annotations, in seconds."""
    times: dict[str, float] = {names.SIM_AT: 0.0}
    annotations = raw["metadata"].get("annotations")
    if not annotations:
        return times
    name = object_name(raw)
    prefix = "apply." if step_at is not None else ""
    for key, text in annotations.items():
        field = f"{prefix}metadata.annotations[{key}]"
        if not key.startswith(names.SIM_PREFIX):
            continue
        if key == names.SIM_COUNT and raw["kind"] == "Node" and step_at is None:
            found.append(InvalidObject(name, field, EXPECTED_COUNT))
        elif key not in _ANNOTATIONS:
            message = f"unknown annotation{hint(key, _ANNOTATIONS)}"
            found.append(InvalidObject(name, field, message))
        elif key in _POD_ONLY and raw["kind"] != "Pod":
            found.append(InvalidObject(name, field, "only pods can have this"))
        elif key == names.SIM_AT and step_at is not None:
            message = "is not allowed in a Step, which has its own time"
            found.append(InvalidObject(name, field, message))
        else:
            times[key] = seconds(text, name, field, found)
    start = times[names.SIM_AT] if step_at is None else step_at
    if times.get(names.SIM_DELETE_AT, start) < start:
        field = f"{prefix}metadata.annotations[{names.SIM_DELETE_AT}]"
        found.append(InvalidObject(name, field, "is before the object is created"))
    return times


def start_time(objects: Iterable[Raw]) -> float:
    """When virtual time starts.

    A scenario starts at 2026-01-01T00:00:00Z. A dump of a cluster starts at its newest timestamp, so
    that its reservations expire and its pods have waited as in that cluster. Only objects with a
    resourceVersion, which a server sets, count: an earlier time in a hand-written object states its age
    at the start.
    """
    newest = served = float("-inf")
    for raw in objects:
        latest = max(past_times(raw), default=newest)
        newest = max(newest, latest)
        metadata = raw.get("metadata")
        if isinstance(metadata, dict) and metadata.get("resourceVersion"):
            served = max(served, latest)
    if newest > START:
        return float(ceil(newest))
    return float(ceil(served)) if served > float("-inf") else START
