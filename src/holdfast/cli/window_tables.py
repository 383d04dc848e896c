"""The tables of `holdfast advise`."""

from collections import Counter
from collections.abc import Iterator, Sequence

from holdfast.api.times import span_text
from holdfast.cli.text_table import Column, Screen, TextTable
from holdfast.sim.windows.window_answers import Confidence, ReservationWindow, WindowReport

_NAMED = 6
"""How many objects of a window are named."""


def print_windows(report: WindowReport) -> None:
    screen = Screen()
    amounts = ", ".join(f"{value} {name}" for name, value in report.requests.items())
    each = f"{report.replicas} x " if report.replicas > 1 else ""
    asked = f"{each}{amounts} for {span_text(report.duration)}"
    if report.windows:
        screen.show(_windows(report, asked))
        if any(w.evicts or w.waits_for or w.displaces for w in report.windows):
            screen.show(_obstacles(report))
        for window in report.windows:
            screen.note(window.command)
    else:
        why = f": {report.message}" if report.message else ""
        screen.note(f"No window for {asked}{why}{'' if why.endswith('?') else '.'}")
    if report.windows and report.message:
        screen.note(f"Not known to be free: {report.message}.")
    screen.note(f"From the state at {report.time}, within {span_text(report.within)}.")
    for note in report.notes:
        screen.note(f"Note: {note}.")


def _windows(report: WindowReport, asked: str) -> TextTable:
    table = TextTable(
        f"Windows for {asked}",
        [
            Column("start", wraps=False),
            Column("latest start", wraps=False),
            Column("end", wraps=False),
            Column("confidence", wraps=False),
            Column("evictions", right=True, wraps=False),
            Column("nodes"),
        ],
    )
    for window in report.windows:
        known = window.confidence is Confidence.KNOWN
        style = ("yellow" if window.evictions else "green") if known else "dim"
        evictions = str(window.evictions) if known else ""
        times = window.start, window.latest_start, window.end
        table.add(*times, window.confidence, evictions, _nodes(window), styled=3, style=style)
    return table


def _obstacles(report: WindowReport) -> TextTable:
    table = TextTable(
        "What is in the way",
        [
            Column("start", wraps=False),
            Column("object"),
            Column("node"),
            Column("priority", right=True, wraps=False),
            Column(""),
        ],
    )
    for window in report.windows:
        rows = [*_rows(window)]
        for row in rows[:_NAMED]:
            table.add(window.start, *row)
        if len(rows) > _NAMED:
            table.add(window.start, f"and {len(rows) - _NAMED} more; -o json has all", "", "", "")
    return table


def _rows(window: ReservationWindow) -> Iterator[tuple[str, str, str, str]]:
    for each in window.evicts:
        budget = "" if each.within_budget else ", which a PodDisruptionBudget does not permit now"
        yield each.object, each.node, str(each.priority), f"is evicted{budget}"
    for name in sorted(window.waits_for, key=lambda name: name not in window.enough):
        yield name, "", "", f"has no known end{_part(name, window)}"
    for name in window.displaces:
        yield name, "", "", "is planned, and loses its capacity"


def _part(name: str, window: ReservationWindow) -> str:
    """Whether the end of this pod is needed, enough, or one that helps."""
    count = len(window.enough)
    if count == len(window.waits_for):
        return ", and must have ended"
    if name not in window.enough:
        return "; helps if it has ended"
    return "; enough if it has ended" if count == 1 else f"; enough if these {count} have ended"


def _nodes(window: ReservationWindow) -> str:
    counts = Counter(window.nodes)
    return _few([f"{node} ({n})" if n > 1 else node for node, n in counts.items()])


def _few(names: Sequence[str]) -> str:
    more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
    return ", ".join(names[:_NAMED]) + more
