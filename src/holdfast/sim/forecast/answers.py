"""What a forecast answers, as data. The published JSON Schema is made from these types."""

from __future__ import annotations

from enum import StrEnum
from typing import Any

import msgspec


class ForecastData(msgspec.Struct, rename="camel"):
    """Base of the answers: fields are in camel case."""


class StartStatus(StrEnum):
    """Whether the start of an object is known."""

    STARTED = "Started"
    EXPECTED = "Expected"
    LATER = "Later"
    UNKNOWN = "Unknown"
    NEVER = "Never"
    OVER = "Over"


class TimeRange(ForecastData):
    """Times as RFC 3339, or seconds from the time of the snapshot. The latest is null if there are
    futures in which it does not happen within the horizon."""

    earliest: str | float | None
    expected: str | float | None
    latest: str | float | None


class EstimateAnswer(ForecastData):
    """How long a pod runs. Quantiles are in seconds; all are the same of a run time that is stated."""

    source: str
    of: str
    samples: int
    quantiles: dict[str, float | None]
    text: str


class WaitedFor(ForecastData):
    """A pod or reservation that is gone from the node by the start."""

    object: str
    event: str
    at: TimeRange
    estimate: EstimateAnswer | None = None


class PodWithoutEnd(ForecastData):
    """A pod whose end is not known, and what would make it known."""

    object: str
    remedy: str


class StartAnswer(ForecastData):
    """The expected start of one object."""

    object: str
    status: StartStatus
    pods: list[str] = []
    """Of a Deployment, ReplicaSet, StatefulSet or DaemonSet: the names of those of its pending pods
    that this is about."""
    start: TimeRange | None = None
    wait: TimeRange | None = None
    """Seconds from the time of the snapshot."""
    node: str = ""
    reservation: str = ""
    pods_before: int = 0
    """How many other pods that are pending now start before it."""
    starts_in: int = 0
    """In how many futures it starts."""
    waits_for: list[WaitedFor] = []
    waits_for_more: int = 0
    message: str = ""
    until: str = ""
    """What would have to change for the start to be known, or to come."""
    needs: list[PodWithoutEnd] = []
    needs_more: int = 0


class WorkloadAnswer(ForecastData):
    """How many pods of a Deployment, ReplicaSet, StatefulSet or DaemonSet have a node."""

    object: str
    placed: int
    pending: int


class ForecastReport(ForecastData):
    """The output of `holdfast when -o json`."""

    time: str
    """The time of the snapshot."""
    within: float
    """The horizon in seconds."""
    futures: int
    """How many futures were played."""
    seed: int = 0
    starts: list[StartAnswer] = []
    workloads: list[WorkloadAnswer] = []
    """The workloads that were asked about."""
    notes: list[str] = []


def as_data(report: ForecastReport) -> dict[str, Any]:
    data: dict[str, Any] = msgspec.to_builtins(report)
    return data


def schema() -> dict[str, Any]:
    """The JSON Schema of `holdfast when -o json`."""
    return msgspec.json.schema(ForecastReport)
