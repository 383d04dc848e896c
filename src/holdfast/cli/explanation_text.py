"""The text of `holdfast explain`, wrapped to the width of the terminal."""

import shutil
import sys
from collections.abc import Sequence
from textwrap import wrap

from holdfast.cli.printing import event_cells
from holdfast.explanation.facts.holders import kind_text
from holdfast.explanation.report import Ranked, Report, few
from holdfast.kube.object_client import Raw

_PIPED_WIDTH = 100
"""The width of a line where there is no terminal."""
_WIDTHS = 40, 160
_GAP = "   "
_EVENTS = 8
"""The number of events that are listed, the last ones."""
_MEMBERS = 20
"""Members and owners that are listed at most."""


def terminal_width() -> int:
    if not sys.stdout.isatty():
        return _PIPED_WIDTH
    narrowest, widest = _WIDTHS
    return min(max(shutil.get_terminal_size().columns, narrowest), widest)


def text(report: Report, now: float, width: int = _PIPED_WIDTH) -> str:
    """The answer in the first lines, then facts and what would help, then what it is based on."""
    lines = _wrapped(_answer(report), width, "", "  ")
    lines += _listed("Details", report.details, width)
    advice = [each.text for each in report.advice]
    lines += _listed("What would help (verified with the scheduler)", advice, width)
    headers: tuple[str, ...] = ()
    capacity = [
        [c.resource, c.allocatable, c.requested, c.held, c.free, c.limits or "-"]
        for c in report.node_capacity
    ]
    headers = ("RESOURCE", "ALLOCATABLE", "REQUESTED", "HELD", "FREE", "LIMITS")
    lines += _part("Capacity", headers, capacity, width)
    amounts = [
        [q.resource, q.allocated, q.requested, q.deserved, q.guarantee or "-", q.capability or "-"]
        for q in report.queue_capacity
    ]
    headers = ("RESOURCE", "ALLOCATED", "PENDING", "DESERVED", "GUARANTEE", "CAPABILITY")
    lines += _part("Capacity", headers, amounts, width)
    pods = [[str(p.count), p.state, few(p.pods, 3), p.reason or "-"] for p in report.pods]
    title = "Pending" if report.object.startswith(("Node ", "Queue ")) else "Pods"
    lines += _part(title, ("COUNT", "STATE", "PODS", "REASON"), pods, width)
    lines += _on_node(report, width)
    lines += _message("Last message", report.told, width)
    if report.would_say != report.told:
        lines += _message("Message if tried now", report.would_say, width)
    rejected = [[str(len(r.nodes)), r.reason, r.plugin, few(r.nodes, 3)] for r in report.nodes]
    lines += _part("Rejected nodes", ("COUNT", "REASON", "PLUGIN", "NODES"), rejected, width)
    ranked = [
        [p.node, str(p.node_score), _reservation_score(p), p.reservation or "-"] for p in report.ranked
    ]
    headers = ("NODE", "NODE SCORE", "RESERVATION SCORE", "RESERVATION")
    lines += _part("Feasible nodes, best first", headers, ranked, width)
    matching = [[p.name, p.phase, p.node or "-", p.left or "-", p.why] for p in report.reservations]
    headers = ("NAME", "PHASE", "NODE", "LEFT", "WHY")
    lines += _part("Matching reservations", headers, matching, width)
    lines += _listed("Owners", report.owners, width, _MEMBERS)
    lines += _listed("Members", report.members, width, _MEMBERS)
    lines += _events(report, now, width)
    return "\n".join(line.rstrip() for line in lines) + "\n"


def _reservation_score(ranked: Ranked) -> str:
    if ranked.reservation_score < 0:
        return "last resort"
    return str(ranked.reservation_score or "-")


def _on_node(report: Report, width: int) -> list[str]:
    """The reservations and pods of a node."""
    held = [
        [
            kind_text(r.kind),
            r.name,
            r.phase,
            _amounts(r.amounts),
            _amounts(r.left),
            r.held_for,
            r.start or "-",
            r.end or "-",
        ]
        for r in report.held[:_MEMBERS]
    ]
    headers: tuple[str, ...] = ("KIND", "NAME", "PHASE", "RESERVED", "LEFT", "FOR", "STARTS", "ENDS")
    lines = _part("Reservations", headers, held, width)
    lines += _more(report.held)
    placed = [
        [
            p.name,
            p.state,
            str(p.priority),
            _amounts(p.amounts),
            p.reservation or "-",
            p.expected_end or ("overdue" if p.overdue else "-"),
        ]
        for p in report.placed[:_MEMBERS]
    ]
    headers = ("NAME", "STATE", "PRIORITY", "REQUESTS", "RESERVATION", "EXPECTED END")
    lines += _part("Pods", headers, placed, width)
    return [*lines, *_more(report.placed)]


def _amounts(amounts: dict[str, str]) -> str:
    return ", ".join(f"{amount} {name}" for name, amount in amounts.items()) or "-"


def _more(listed: Sequence[object]) -> list[str]:
    if len(listed) <= _MEMBERS:
        return []
    return [f"  … and {len(listed) - _MEMBERS} more: -o json lists all"]


def _answer(report: Report) -> str:
    """`Pod default/web-0 is Pending. No suitable node among 3 nodes: too little cpu (3).`"""
    if " " in report.phase:
        return f"{report.object}: {report.summary}"
    return f"{report.object} is {report.phase}. {report.summary}"


def _wrapped(text: str, width: int, first: str, others: str) -> list[str]:
    return wrap(
        text,
        width,
        initial_indent=first,
        subsequent_indent=others,
        break_long_words=False,
        break_on_hyphens=False,
    )


def _listed(title: str, texts: Sequence[str], width: int, most: int | None = None) -> list[str]:
    if not texts:
        return []
    lines = ["", title]
    for each in texts[:most]:
        lines += _wrapped(each, width, "  * ", "    ")
    if most is not None and len(texts) > most:
        lines.append(f"  … and {len(texts) - most} more: -o json lists all")
    return lines


def _message(title: str, message: str, width: int) -> list[str]:
    return ["", title, *_wrapped(message, width, "  ", "  ")] if message else []


def _events(report: Report, now: float, width: int) -> list[str]:
    """The last events, each with its message unless that has been shown above."""
    lines = ["", "Events"] if report.events else []
    earlier = len(report.events) - _EVENTS
    if earlier > 0:
        lines.append(f"  … {earlier} earlier: -o json lists all")
    shown = {report.told, report.would_say}
    for each in report.events[-_EVENTS:]:
        lines += _event(each, now, width, shown)
    return lines


def _event(event: Raw, now: float, width: int, shown: set[str]) -> list[str]:
    kind, reason, age, source, message = event_cells(event, now)
    last, _, series = age.partition(" ")
    ago = f"{last} ago {series}".rstrip()
    head = f"{kind} {reason}, {ago}{f', from {source}' if source else ''}:"
    if message in shown:
        return _wrapped(f"{head} the message above", width, "  ", "    ")
    if len(head) + len(message) + 3 <= width:
        return [f"  {head} {message}"]
    return [*_wrapped(head, width, "  ", "    "), *_wrapped(message, width, "    ", "    ")]


def _part(title: str, headers: Sequence[str], rows: list[list[str]], width: int) -> list[str]:
    """A table; cells of the widest columns are wrapped between words until it fits."""
    if not rows:
        return []
    lines = [list(headers), *rows]
    columns = list(zip(*lines, strict=True))
    words = [max((len(w) for cell in column for w in cell.split()), default=1) for column in columns]
    widths = [max(map(len, column)) for column in columns]
    space = width - 2 - len(_GAP) * (len(widths) - 1)
    while sum(widths) > space:
        shrinkable = [i for i, each in enumerate(widths) if each > words[i]]
        if not shrinkable:
            break
        widths[max(shrinkable, key=lambda i: widths[i])] -= 1
    wrapped = [_cells(row, widths) for row in lines]
    tight = [max(len(part) for row in wrapped for part in row[i]) for i in range(len(widths))]
    return ["", title, *(line for cells in wrapped for line in _row(cells, tight))]


def _cells(row: Sequence[str], widths: Sequence[int]) -> list[list[str]]:
    return [_wrapped(cell, wide, "", "") or [""] for cell, wide in zip(row, widths, strict=True)]


def _row(cells: Sequence[list[str]], widths: Sequence[int]) -> list[str]:
    height = max(map(len, cells))
    filled = [[*cell, *[""] * (height - len(cell))] for cell in cells]
    return [
        "  " + _GAP.join(part.ljust(wide) for part, wide in zip(parts, widths, strict=True))
        for parts in zip(*filled, strict=True)
    ]
