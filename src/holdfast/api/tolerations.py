"""Taints keep pods off a node; tolerations let them in."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence

from holdfast.api.affinity import Taint, Toleration
from holdfast.api.label_selectors import as_integer
from holdfast.api.names import NO_EXECUTE, NO_SCHEDULE

HARD_EFFECTS = (NO_SCHEDULE, NO_EXECUTE)
"""The effects that forbid; PreferNoSchedule only discourages."""


def tolerates(toleration: Toleration, taint: Taint) -> bool:
    """An empty effect stands for all effects, and an empty key for all keys."""
    if toleration.effect and toleration.effect != taint.effect:
        return False
    if toleration.key and toleration.key != taint.key:
        return False
    match toleration.operator:
        case "" | "Equal":
            return toleration.value == taint.value
        case "Exists":
            return True
        case "Gt" | "Lt":
            has, bound = as_integer(taint.value), as_integer(toleration.value)
            if has is None or bound is None:
                return False
            return has > bound if toleration.operator == "Gt" else has < bound
        case _:
            return False


def tolerated(taint: Taint, tolerations: Iterable[Toleration]) -> bool:
    return any(tolerates(toleration, taint) for toleration in tolerations)


def find_untolerated(
    taints: Iterable[Taint],
    tolerations: Sequence[Toleration],
    effects: Collection[str] = HARD_EFFECTS,
) -> Taint | None:
    """The first taint with one of the effects that no toleration covers."""
    for taint in taints:
        if taint.effect in effects and not tolerated(taint, tolerations):
            return taint
    return None
