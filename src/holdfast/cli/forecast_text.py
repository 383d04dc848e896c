"""The tables of `holdfast when`."""

from holdfast.api.plurals import number_of
from holdfast.api.times import format_time, span_text
from holdfast.cli.text_table import Column, Screen, TextTable
from holdfast.sim.forecast.answers import ForecastReport, StartAnswer, StartStatus, TimeRange, WaitedFor

_STYLES = {
    StartStatus.STARTED: "green",
    StartStatus.EXPECTED: "green",
    StartStatus.LATER: "yellow",
    StartStatus.UNKNOWN: "yellow",
    StartStatus.NEVER: "red",
    StartStatus.OVER: "dim",
}


def print_forecast(report: ForecastReport, now: float, *, single: bool) -> None:
    screen = Screen()
    if not report.starts:
        screen.note("nothing is pending")
        return
    if report.workloads:
        _print_workloads(screen, report)
    elif single:
        for answer in report.starts:
            _print_one(screen, answer, report)
    else:
        _print_all(screen, report)
    futures = number_of(report.futures, "future")
    if report.futures:
        within = span_text(report.within)
        screen.note(f"Simulated from the state at {format_time(now)}: {futures} of up to {within}.")
    for note in report.notes:
        screen.note(f"Note: {note}.")


def _print_all(screen: Screen, report: ForecastReport) -> None:
    table = TextTable(
        "Starts",
        [
            Column("object"),
            Column("status", wraps=False),
            Column("in", right=True, wraps=False),
            Column("range", wraps=False),
            Column("node"),
            Column("waits for"),
        ],
    )
    for each in report.starts:
        cells = (_wait(each), _range(each.wait), each.node, _reason(each))
        style = _STYLES[each.status]
        table.add(each.object, each.status, *cells, styled=1, style=style)
    screen.show(table)


def _print_workloads(screen: Screen, report: ForecastReport) -> None:
    """A table for each workload, with a line for those of its pods that start alike."""
    for workload in report.workloads:
        total = workload.placed + workload.pending
        pods = number_of(total, "pod has", "pods have")
        table = TextTable(
            f"{workload.object}: {workload.placed} of {pods} a node",
            [
                Column("pods", right=True, wraps=False),
                Column("status", wraps=False),
                Column("start", wraps=False),
                Column("in", right=True, wraps=False),
                Column("range", wraps=False),
                Column("node"),
                Column("waits for"),
            ],
        )
        answers = [each for each in report.starts if each.object == workload.object]
        for each in answers:
            at = str(each.start.expected) if each.start is not None else ""
            cells = (at, _wait(each), _range(each.wait), each.node, _reason(each))
            count = len(each.pods) or total
            table.add(str(count), each.status, *cells, styled=1, style=_STYLES[each.status])
        screen.show(table)
        _print_needs(screen, answers)


def _print_one(screen: Screen, answer: StartAnswer, report: ForecastReport) -> None:
    table = TextTable(answer.object, [Column("status"), Column(answer.status)])
    start = answer.start
    if answer.status is StartStatus.EXPECTED and start is not None:
        at = str(start.expected)
        table.add("start", f"{at}, in {_wait(answer)}" if _wait(answer) != "0s" else f"{at}, now")
        if start.earliest != start.latest:
            latest = start.latest or f"after {span_text(report.within)}"
            in_ = f"in {_range(answer.wait)}"
            table.add("range", f"{start.earliest} to {latest}, {in_}")
        if answer.starts_in < report.futures:
            table.add("starts in", f"{answer.starts_in} of {report.futures} futures")
    elif start is not None:
        table.add("start", str(start.expected))
    for label, text in (
        ("node", answer.node),
        ("reservation", answer.reservation),
        ("starts before it", _pods_before(answer.pods_before)),
        ("message", answer.message),
        ("until", answer.until),
    ):
        if text:
            table.add(label, text)
    screen.show(table)
    if answer.waits_for:
        screen.show(_waits_for(answer))
    _print_needs(screen, [answer])


def _print_needs(screen: Screen, answers: list[StartAnswer]) -> None:
    needs = {each.object: each.remedy for answer in answers for each in answer.needs}
    if not needs:
        return
    table = TextTable(
        "Pods without a known end", [Column("object"), Column("what would make it known")]
    )
    for name, remedy in needs.items():
        table.add(name, remedy)
    if more := max(answer.needs_more for answer in answers):
        table.add(f"and {more} more", "")
    screen.show(table)


def _waits_for(answer: StartAnswer) -> TextTable:
    table = TextTable(
        f"What ends on {answer.node} before",
        [
            Column("object"),
            Column("event"),
            Column("at", wraps=False),
            Column("range"),
            Column("estimate"),
        ],
    )
    for each in answer.waits_for:
        at = each.at
        range_ = f"{at.earliest} to {at.latest}" if at.earliest != at.latest else ""
        estimate = each.estimate.text if each.estimate is not None else ""
        table.add(each.object, each.event, str(at.expected), range_, estimate)
    if answer.waits_for_more:
        table.add(f"and {answer.waits_for_more} more", "", "", "", "")
    return table


def _pods_before(count: int) -> str:
    if not count:
        return ""
    return number_of(count, "pending pod")


def _wait(answer: StartAnswer) -> str:
    wait = answer.wait
    if wait is None or not isinstance(wait.expected, float):
        return ""
    return span_text(wait.expected)


def _range(wait: TimeRange | None) -> str:
    if wait is None or wait.earliest == wait.latest or not isinstance(wait.earliest, float):
        return ""
    latest = span_text(wait.latest) if isinstance(wait.latest, float) else "…"
    return f"{span_text(wait.earliest)} to {latest}"


def _reason(answer: StartAnswer) -> str:
    if answer.waits_for:
        return _shortest(answer.waits_for[0])
    if answer.needs:
        more = len(answer.needs) - 1 + answer.needs_more
        rest = f" and {more} more" if more else ""
        return f"{answer.needs[0].object}{rest}, end unknown"
    return answer.message


def _shortest(each: WaitedFor) -> str:
    source = f" ({each.estimate.source})" if each.estimate is not None else ""
    return f"{each.object} {each.event}{source}"
