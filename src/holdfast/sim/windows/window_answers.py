"""What a search for windows answers, as data. The published JSON Schema is made from these types."""

from __future__ import annotations

from enum import StrEnum
from typing import Any

import msgspec


class WindowData(msgspec.Struct, rename="camel"):
    """Base of the answers: fields are in camel case."""


class Confidence(StrEnum):
    """Whether the capacity of a window will be free at its start, by what is known now."""

    KNOWN = "Known"
    UNKNOWN = "Unknown"


class EvictedPod(WindowData):
    """A pod that has to be evicted."""

    object: str
    node: str
    priority: int
    within_budget: bool = True
    """Whether PodDisruptionBudgets permit its eviction now, beside those listed before it."""


class ReservationWindow(WindowData):
    """A time at which the reservations can start, and until when they can start as well."""

    start: str
    latest_start: str
    """The reservations can start at any time from `start` to this, with as few evictions."""
    end: str
    """When reservations that start at `start` end."""
    confidence: Confidence
    evictions: int
    nodes: list[str] = []
    """The planned node of each reservation."""
    evicts: list[EvictedPod] = []
    waits_for: list[str] = []
    """Pods without a known end, of which enough must have ended by the start."""
    enough: list[str] = []
    """The fewest of these whose ends are enough."""
    displaces: list[str] = []
    """Planned reservations of lower priority that would lose their capacity."""
    message: str = ""
    command: str = ""
    """The command that creates the reservations."""


class WindowReport(WindowData):
    """The output of `holdfast advise -o json`."""

    time: str
    """The time of the snapshot."""
    within: float
    """Windows start within this many seconds."""
    duration: float
    """How long each lasts, in seconds."""
    replicas: int
    requests: dict[str, str]
    windows: list[ReservationWindow] = []
    """The fewest evictions first, then the earliest; those of unknown confidence last."""
    message: str = ""
    """Why there is no window of which the capacity is known to be free."""
    notes: list[str] = []


def as_data(report: WindowReport) -> dict[str, Any]:
    data: dict[str, Any] = msgspec.to_builtins(report)
    return data


def schema() -> dict[str, Any]:
    """The JSON Schema of `holdfast advise -o json`."""
    return msgspec.json.schema(WindowReport)
