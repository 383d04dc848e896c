"""The data behind a page's views of a moment: what was on each node, and which pods were pending why.

Lists are cut so that a page stays small; `notes` say what is left out and where it is.
"""

from collections import Counter
from collections.abc import Sequence
from typing import Any

from holdfast.local.timeline import (
    BOUND,
    CREATED,
    DELETED,
    FAILED,
    RUNNING,
    SUCCEEDED,
    UNSCHEDULABLE,
    TimelineEntry,
)
from holdfast.scheduler.framework.diagnosis import reasons_in
from holdfast.sim.report.plots import MOST_POINTS, natural
from holdfast.sim.reservation_lives import KINDS, ReservationLife
from holdfast.sim.run_history import COLUMNS, RESOURCES, RunHistory, StepSeries, shown
from holdfast.sim.simulation import Result

MOST_PLACEMENTS = 60_000
MOST_PENDING = 60_000
MOST_RESERVATIONS = 3_000
_MOST_LIFE_STEPS = 60
_NO_LONGER_PENDING = frozenset((BOUND, RUNNING, SUCCEEDED, FAILED, DELETED))


class _Names:
    """Numbers for names."""

    def __init__(self) -> None:
        self.numbers: dict[str, int] = {}

    def number(self, name: str) -> int:
        return self.numbers.setdefault(name, len(self.numbers))


def page_data(result: Result) -> dict[str, Any]:
    history = result.history
    assert history is not None
    notes: list[str] = []
    nodes = _shown_nodes(history, notes)
    pods, shapes, reservations = _Names(), _Names(), _Names()
    lives = result.node_usage.reservations.lives
    if len(lives) > MOST_RESERVATIONS:
        notes.append(
            f"The first {MOST_RESERVATIONS} of {len(lives)} reservations are shown on nodes; "
            "timeline.csv has all."
        )
        lives = lives[:MOST_RESERVATIONS]
    placed = [
        (
            pods.number(each.pod),
            nodes[each.node],
            time(each.start),
            time(each.end) if each.end is not None else -1,
            shapes.number(" ".join(f"{amount:g}" for amount in each.amounts)),
            reservations.number(each.reservation) if each.reservation else -1,
        )
        for each in history.placements
        if each.node in nodes
    ]
    reasons = _Names()
    pending = [
        (pods.number(pod), time(start), time(stop), reasons.number(reason))
        for pod, start, stop, reason in _pending(result.timeline, result.end, notes)
    ]
    return {
        "end": time(result.end),
        "resources": list(RESOURCES),
        "kinds": list(KINDS),
        "nodes": list(nodes),
        "offers": [
            [time(change.t), nodes[change.node], *(change.capacity or ())]
            for change in history.nodes
            if change.node in nodes
        ],
        "pods": list(pods.numbers),
        "shapes": [[float(part) for part in shape.split()] for shape in shapes.numbers],
        "usedReservations": list(reservations.numbers),
        "placed": [list(column) for column in zip(*placed, strict=True)],
        "pending": [list(column) for column in zip(*pending, strict=True)],
        "reasons": list(reasons.numbers),
        "reservations": [_life(life, nodes) for life in lives],
        "series": _series(history.series.resampled(result.end, MOST_POINTS)),
        "notes": notes,
    }


def time(seconds: float) -> float:
    """To the millisecond; whole seconds without a point."""
    rounded = round(seconds, 3)
    return int(rounded) if rounded == int(rounded) else rounded


def _shown_nodes(history: RunHistory, notes: list[str]) -> dict[str, int]:
    names = sorted({change.node for change in history.nodes}, key=natural)
    if len(history.placements) > MOST_PLACEMENTS:
        counts = Counter(each.node for each in history.placements)
        total, most = 0, 0
        for name in names:
            total += counts[name]
            if total > MOST_PLACEMENTS:
                break
            most += 1
        notes.append(
            f"The first {most} of {len(names)} nodes are shown at a moment; timeline.csv has what "
            "happened on all."
        )
        names = names[:most]
    return {name: i for i, name in enumerate(names)}


_Pending = tuple[str, float, float, str]


def _pending(timeline: Sequence[TimelineEntry], end: float, notes: list[str]) -> list[_Pending]:
    """Pods with the times between which they were pending for a reason."""
    found: list[_Pending] = []
    current: dict[str, tuple[float, str]] = {}
    texts: dict[str, str] = {}
    for entry in timeline:
        name, event = entry.object, entry.event
        if not name.startswith("Pod/"):
            continue
        if event == CREATED:
            current[name] = (entry.t, "")
        elif event == UNSCHEDULABLE:
            known = current.get(name)
            reason = texts.get(entry.message)
            if reason is None:
                reason = texts[entry.message] = ", ".join(reasons_in(entry.message))
            if known is None or known[1] == reason:
                continue
            if known[0] < entry.t:
                found.append((name, known[0], entry.t, known[1]))
            current[name] = (entry.t, reason)
        elif event in _NO_LONGER_PENDING:
            known = current.pop(name, None)
            if known is not None and known[0] < entry.t:
                found.append((name, known[0], entry.t, known[1]))
    found += [(name, start, end + 1, reason) for name, (start, reason) in current.items()]
    if len(found) > MOST_PENDING:
        notes.append(
            f"Of {len(found)} times that pods were pending for a reason the longest {MOST_PENDING} "
            "are listed; timeline.csv has all."
        )
        found = sorted(found, key=lambda each: (each[1] - each[2], each))[:MOST_PENDING]
    return [(name.removeprefix("Pod/"), start, stop, reason) for name, start, stop, reason in found]


def _life(life: ReservationLife, nodes: dict[str, int]) -> list[Any]:
    steps = life.steps or []
    every = -(-len(steps) // _MOST_LIFE_STEPS)
    kept = [
        step
        for i, step in enumerate(steps)
        if every <= 1 or i % every == 0 or i == len(steps) - 1 or step.phase != steps[i - 1].phase
    ]
    return [
        life.name,
        KINDS.index(life.kind),
        nodes.get(life.node, -1),
        life.pods,
        [[time(step.t), step.phase, *shown(step.used), *shown(step.unused)] for step in kept],
    ]


def _series(series: StepSeries) -> dict[str, list[float]]:
    return {
        "t": [time(t) for t in series.times],
        **{
            name: [round(value, 2) if value % 1 else int(value) for value in series.column(i)]
            for i, name in enumerate(COLUMNS)
            if any(series.column(i))
        },
    }
