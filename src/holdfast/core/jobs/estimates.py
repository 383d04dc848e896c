"""How long pods run, as far as anyone says so: what backfilling past a hold goes by."""

from __future__ import annotations

from holdfast.api.duration import parse_duration
from holdfast.api.errors import DurationError
from holdfast.api.names import RUN_ESTIMATE
from holdfast.api.pod import Pod


def estimate_in(pod: Pod) -> float | None:
    """What the pod itself says; of two, the shorter."""
    text = pod.metadata.annotations.get(RUN_ESTIMATE)
    if text is None and pod.spec.active_deadline_seconds is None:
        return None
    found = []
    if pod.spec.active_deadline_seconds is not None:
        found.append(float(pod.spec.active_deadline_seconds))
    if text is not None and (seconds := duration_or_none(text)) is not None:
        found.append(seconds)
    return min(found, default=None)


def duration_or_none(text: str | None) -> float | None:
    """What is no duration is as good as not said."""
    try:
        return max(0.0, parse_duration(text or ""))
    except DurationError:
        return None
