"""Several runs of one scenario compared: figures with differences, and curves in common plots."""

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from html import escape
from typing import Any, NamedTuple
from urllib.parse import quote

from holdfast.sim.figures import hours_text, share, time_text, wait_text
from holdfast.sim.report.page import document, figure, scrolled
from holdfast.sim.report.plots import KIND_LABELS, MOST_POINTS, TITLES, column, pod_waits, waits_plot
from holdfast.sim.report.scales import Ticks, amount_scale, count_scale, time_ticks
from holdfast.sim.report.svg import LegendEntry, Plot, PlotArea, line
from holdfast.sim.reservation_lives import KINDS
from holdfast.sim.run_history import RESOURCES, StepSeries
from holdfast.sim.simulation import Result

_COLOURS = 8
_HEIGHT = 220

Values = dict[str, float | None]


class ComparedRun(NamedTuple):
    folder: str
    name: str
    """What pages call it."""
    config: str | None
    result: Result


# Plots


def comparison_plots(runs: Sequence[ComparedRun]) -> list[Plot]:
    end = max(run.result.end for run in runs)
    series = [_series(run.result) for run in runs]
    plots = []
    for resource in RESOURCES:
        requested = [column(each, f"{resource} requested") for each in series]
        capacity = [column(each, f"{resource} capacity") for each in series]
        most = max((max(values, default=0.0) for values in capacity), default=0.0)
        if most and any(map(any, requested)):
            title, note = f"{TITLES[resource]} requested", "By pods, up to the capacity of all nodes."
            name, scale = f"utilisation-{resource}", amount_scale(resource, most)
            plots.append(_curves(name, title, note, runs, series, requested, scale, end))
    for resource in RESOURCES:
        held = [_held(each, resource) for each in series]
        most = max((max(values, default=0.0) for values in held), default=0.0)
        if most:
            title = f"{TITLES[resource]} held but unused"
            note = "Idle capacity that reservations of all kinds keep from other pods."
            scale = amount_scale(resource, most)
            plots.append(_curves(f"held-{resource}", title, note, runs, series, held, scale, end))
    pending = [column(each, "pods pending") for each in series]
    scale = count_scale(max((max(values, default=0.0) for values in pending), default=0.0))
    note = "Pods without a node, whatever the reason."
    plots.append(_curves("pending", "Pending pods", note, runs, series, pending, scale, end))
    if any(run.result.summary["pods"]["bound"] for run in runs):
        curves = [(run.name, _style(i), pod_waits(run.result)) for i, run in enumerate(runs)]
        plots.append(waits_plot(curves, *(run.result.summary for run in runs)))
    return plots


def _series(result: Result) -> StepSeries:
    assert result.history is not None
    return result.history.series.resampled(result.end, MOST_POINTS)


def _held(series: StepSeries, resource: str) -> list[float]:
    kinds = [column(series, f"{resource} held {kind}") for kind in KINDS]
    return [sum(values) for values in zip(*kinds, strict=True)]


def _style(i: int) -> str:
    return f"run{i % _COLOURS}"


def _curves(
    name: str,
    title: str,
    note: str,
    runs: Sequence[ComparedRun],
    series: Sequence[StepSeries],
    values: Sequence[Sequence[float]],
    scale: tuple[float, Ticks],
    end: float,
) -> Plot:
    merged = " Each step is the mean of an interval." if any(s.merged for s in series) else ""
    plot = Plot(name, title, note + merged, _HEIGHT, timed=False)
    top, ticks = scale
    frame = PlotArea(_HEIGHT, top, end)
    paths = []
    for i, (run, steps, column_) in enumerate(zip(runs, series, values, strict=True)):
        drawn = line(frame, zip(steps.times, column_, strict=True), until=run.result.end)
        paths.append(f'<path class="line {_style(i)}" d="{drawn}"/>')
        plot.keys.append(LegendEntry(_style(i), run.name))
    plot.parts = [frame.grid(ticks), frame.inner("".join(paths)), frame.marks(time_ticks(end))]
    return plot


# Figures


class _Row(NamedTuple):
    label: str
    values: list[float | None]
    text: Callable[[float], str]
    better: int
    """1 if more is better, -1 if less is, 0 if neither. What is counted or averaged over a number of
    pods or a time that differs between runs is neither: pods that never start have no wait."""


def _rows(summaries: Sequence[dict[str, Any]], ends: Sequence[float]) -> Iterable[_Row]:
    def of(*path: str) -> list[float | None]:
        found = []
        for each in summaries:
            value: Any = each
            for part in path:
                value = value.get(part) if isinstance(value, dict) else None
            found.append(value)
        return found

    def if_same(values: Sequence[float | None], better: int) -> int:
        return better if len(set(values)) == 1 else 0

    waits = if_same(of("pods", "bound"), -1)
    job_waits = if_same(of("jobs", "ready"), -1)
    yield _Row("end", list(ends), time_text, 0)
    yield _Row("pods created", of("pods", "created"), _count, 0)
    yield _Row("pods bound", of("pods", "bound"), _count, 0)
    yield _Row("pods pending at the end", of("pods", "pending"), _count, -1)
    for key, label in (
        ("mean", "mean wait"),
        ("median", "median wait"),
        ("p95", "95th percentile of waits"),
    ):
        yield _Row(label, of("wait", key), wait_text, waits)
    yield _Row("longest wait", of("wait", "max"), wait_text, waits)
    if any(of("jobs", "created")):
        created = of("jobs", "created")
        yield _Row("jobs created", created, _count, 0)
        yield _Row("jobs ready", of("jobs", "ready"), _count, if_same(created, 1))
        yield _Row("mean wait of jobs", of("jobs", "wait", "mean"), wait_text, job_waits)
        yield _Row("longest wait of jobs", of("jobs", "wait", "max"), wait_text, job_waits)
    yield _Row("nodes in use at the peak", of("nodes", "peak"), _count, 0)
    for name in _names(summaries, "utilisation"):
        if any(of("utilisation", name, "mean")):
            mean, better = of("utilisation", name, "mean"), if_same(ends, 1)
            yield _Row(f"{name} requested, mean", mean, _percent, better)
    if any(of("reservations", "created")):
        yield _Row("reservations", of("reservations", "created"), _count, 0)
        for kind in KINDS:
            if any(of("reservations", "kinds", kind, "created")):
                yield _Row(KIND_LABELS[kind], of("reservations", "kinds", kind, "created"), _count, 0)
        yield _Row("hit rate of reservations", of("reservations", "hitRate"), _percent, 1)
        yield _Row("pods bound through reservations", of("reservations", "podsBound"), _count, 0)
        for name in dict.fromkeys(n for s in summaries for n in s["reservations"]["held"]):
            held = of("reservations", "held", name, "unused")
            yield _Row(f"{name} held unused", held, partial(hours_text, name), -1)
            shares = of("reservations", "held", name, "unusedShare")
            yield _Row(f"{name} held unused, of reserved", shares, _percent, -1)
    if any(of("starvation", "jobs")):
        for key, label, text in (
            ("jobs", "jobs that starved", _count),
            ("starving", "still starving at the end", _count),
            ("longest", "longest starvation", wait_text),
        ):
            values = of("starvation", key)
            known = [
                value if is_detected else None
                for value, is_detected in zip(values, of("starvation", "detected"), strict=True)
            ]
            yield _Row(label, known, text, -1)
    for key in ("preempted", "evicted"):
        if any(of("evictions", key)):
            yield _Row(f"pods {key}", of("evictions", key), _count, -1)


def _names(summaries: Iterable[dict[str, Any]], part: str) -> Iterable[str]:
    return dict.fromkeys(name for each in summaries for name in each[part])


def _count(value: float) -> str:
    return f"{value:.0f}"


def _percent(value: float) -> str:
    return share(value) if abs(value) >= 0.1 or value == 0 else f"{100 * value:.1f}%"


def _difference(row: _Row, value: float | None, base: float | None) -> tuple[str, str]:
    """Its text and its class."""
    if value is None or base is None or value == base:
        return "", ""
    change = value - base
    if row.text(abs(change)) in (row.text(0), "0.0%"):
        return "", ""
    sign = "+" if change > 0 else "−"
    relative = f" ({sign}{abs(change) / abs(base):.0%})" if base and row.text is not _percent else ""
    style = "" if not row.better else "better" if (change > 0) == (row.better > 0) else "worse"
    return f"{sign}{row.text(abs(change))}{relative}", style


def comparison_page(title: str, runs: Sequence[ComparedRun], plots: Sequence[Plot]) -> str:
    rows = []
    for row in _rows([run.result.summary for run in runs], [run.result.end for run in runs]):
        base = row.values[0]
        cells = []
        for i, value in enumerate(row.values):
            cells.append(f'<td class="n">{escape("-" if value is None else row.text(value))}</td>')
            if i:
                text, style = _difference(row, value, base)
                cells.append(f'<td class="n {style}">{escape(text)}</td>')
        same = ' class="same"' if len(set(row.values)) == 1 else ""
        rows.append(f'<tr{same}><th scope="row">{escape(row.label.strip())}</th>{"".join(cells)}</tr>')
    heads = "".join(
        f'<th scope="col" class="n">{_link(run)}</th>'
        + ('<th scope="col" class="n">difference</th>' if i else "")
        for i, run in enumerate(runs)
    )
    links = "".join(_link(run) for run in runs)
    seeds = ", ".join(dict.fromkeys(str(run.result.seed) for run in runs))
    body = f"""<h1>{escape(title)}: {len(runs)} configurations</h1>
<p class="sub">Simulation with seed {seeds}. Differences are from the first configuration.</p>
<nav class="runs" aria-label="Reports of the runs">{links}</nav>
<h2>Figures</h2>
{scrolled("Figures")}<table><thead><tr><th scope="col">figure</th>{heads}</tr></thead>
<tbody>{"".join(rows)}</tbody></table></div>
<h2>Over time</h2>
<div class="plots">{"".join(figure(plot) for plot in plots)}</div>"""
    return document(f"{title}: comparison", body)


def _link(run: ComparedRun) -> str:
    return f'<a href="{quote(run.folder)}/report.html">{escape(run.name)}</a>'
