"""One reservation that has no object yet, and how its kind is dealt with."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import NamedTuple

from holdfast.api.meta import ResourceList
from holdfast.core.decisions import ObjectRef
from holdfast.core.pods import PodRecord
from holdfast.core.promises.promise import Promise

_MOST_OBSERVED = 100_000
"""So many observations are kept for whoever asks for them."""


class Settings(NamedTuple):
    timeout: float
    """How long a reservation is waited for."""
    retention: float
    """How long the room is kept when that was in vain."""
    bind_anyway: bool
    """Whether the pod is then bound without one."""


@dataclass(slots=True)
class Figures:
    """For metrics."""

    requests: int = 0
    created: int = 0
    failures: int = 0
    latencies: deque[float] = field(default_factory=lambda: deque(maxlen=_MOST_OBSERVED))
    """From asking for a reservation until there was one, in seconds; those not yet taken."""
    pendings: deque[float] = field(default_factory=lambda: deque(maxlen=_MOST_OBSERVED))
    """From a reservation being there until it was available."""


class Virtual:
    __slots__ = (
        "asked_at",
        "deadline",
        "failed",
        "id",
        "keep_until",
        "promise",
        "requester",
        "resources",
        "waiting",
    )

    def __init__(
        self, id: str, promise: Promise, requester: ObjectRef, resources: ResourceList
    ) -> None:
        self.id = id
        self.promise = promise
        self.requester = requester
        """The pod that says what is asked for."""
        self.resources = resources
        self.waiting: dict[str, PodRecord] = {}
        """Pods that draw on it, by uid."""
        self.asked_at = 0.0
        self.deadline = 0.0
        self.failed = ""
        """Why nothing came of it, until it is asked for again."""
        self.keep_until: float | None = None
        """When it is dropped even if pods wait; set when it first failed."""

    @property
    def row(self) -> int:
        return self.promise.pod.row if self.promise.pod is not None else -1
