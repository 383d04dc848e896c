"""Which pods go first where there are too many: those that are missed least."""

from __future__ import annotations

from collections.abc import Iterable
from math import log2

from holdfast.api.label_selectors import as_integer
from holdfast.api.names import DELETION_COST_ANNOTATION
from holdfast.controllers.workloads.actions import Raw
from holdfast.controllers.workloads.claims import Member
from holdfast.controllers.workloads.pods import created, phase, ready, ready_since
from holdfast.controllers.workloads.view import annotations_of

_PHASES = {"Pending": 0, "Unknown": 1, "Running": 2}
Rank = tuple[object, ...]


def first_to_go(members: Iterable[Member], related: Iterable[Raw], now: float) -> list[Member]:
    """Without a node before with one, waiting before running, not ready before ready, cheap before
    dear, on a node with many of their kind before on one with few, ready for a short time before for
    long, often restarted before seldom, young before old."""
    crowd: dict[str, int] = {}
    for pod in related:
        node = pod["spec"].get("nodeName")
        if node:
            crowd[node] = crowd.get(node, 0) + 1

    def rank(member: Member) -> Rank:
        _, pod = member
        node = pod["spec"].get("nodeName") or ""
        is_ready = ready(pod)
        return (
            bool(node),
            _PHASES.get(phase(pod), 2),
            is_ready,
            _cost(pod),
            -crowd.get(node, 0),
            _magnitude(now, ready_since(pod)) if is_ready else 0,
            -_restarts(pod),
            _magnitude(now, created(pod)),
            pod["metadata"]["uid"],
        )

    return sorted(members, key=rank)


def _cost(pod: Raw) -> int:
    return as_integer(annotations_of(pod).get(DELETION_COST_ANNOTATION, "0")) or 0


def _magnitude(now: float, since: float | None) -> int:
    """How old, in powers of two: of pods about equally old none is always the first to go."""
    age = now - (since or 0.0)
    return int(log2(age)) if age >= 1 else -1


def _restarts(pod: Raw) -> int:
    statuses = (pod.get("status") or {}).get("containerStatuses") or ()
    return max((each.get("restartCount") or 0 for each in statuses), default=0)
