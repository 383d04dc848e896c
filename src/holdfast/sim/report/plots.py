"""The plots of one run."""

from collections.abc import Iterable, Sequence

from holdfast.sim.figures import hours_text, time_text
from holdfast.sim.report.scales import (
    Ticks,
    amount_scale,
    count_scale,
    short_time,
    time_ticks,
    wait_place,
    wait_ticks,
)
from holdfast.sim.report.svg import (
    LegendEntry,
    Plot,
    PlotArea,
    PlotLane,
    Segment,
    area,
    heat,
    lanes,
    line,
)
from holdfast.sim.reservation_lives import KINDS, ReservationLife, hours
from holdfast.sim.run_history import COLUMNS, RESOURCES, RunHistory, StepSeries
from holdfast.sim.simulation import Result
from holdfast.sim.summary import StarvationEpisode, starvation_episodes

MOST_POINTS = 600
"""Steps of a curve; with more, a plot shows means over equal intervals."""
MOST_LANES = 200
MOST_ROWS = 120
_HEIGHT = 190
_HEAT_COLUMNS = 160

KIND_LABELS = {
    "user": "reservations of users",
    "dynamic": "dynamic reservations",
    "preemption": "preemption holds",
    "starvation": "starvation holds",
    "migration": "reservations of migrations",
}
TITLES = {"cpu": "CPU", "memory": "Memory", "gpu": "GPUs"}


def run_plots(result: Result) -> list[Plot]:
    history = result.history
    assert history is not None
    series = history.series.resampled(result.end, MOST_POINTS)
    held = [each for each in RESOURCES if _kinds_held(series, each)]
    used = [each for each in RESOURCES if each in held or any(column(series, f"{each} requested"))]
    plots = [
        *(_utilisation(series, resource, result.end) for resource in used),
        *(_held(series, resource, result.end) for resource in held),
        _pending(series, result.end),
    ]
    if result.summary["pods"]["bound"]:
        plots.append(waits_plot([("pods bound", "run0", pod_waits(result))], result.summary))
    if result.node_usage.reservations.lives:
        plots.append(_reservations(result.node_usage.reservations.lives, result.end))
    episodes = starvation_episodes(result.timeline)
    if episodes:
        plots.append(_starvation(episodes, _created(result), result.end))
    if history.nodes:
        plots.append(_nodes(history, result.end))
    return plots


def column(series: StepSeries, name: str) -> list[float]:
    return series.column(COLUMNS.index(name))


def _mean_note(series: StepSeries) -> str:
    return " Each step is the mean of an interval." if series.merged else ""


def _kinds_held(series: StepSeries, resource: str) -> list[str]:
    return [kind for kind in KINDS if any(column(series, f"{resource} held {kind}"))]


# Amounts over time


def _utilisation(series: StepSeries, resource: str, end: float) -> Plot:
    kinds = _kinds_held(series, resource)
    plot = Plot(
        f"utilisation-{resource}",
        f"{TITLES[resource]} over time",
        "Requested by pods, held unused by reservations, and the capacity of all nodes."
        + _mean_note(series),
        _HEIGHT,
    )
    capacity = column(series, f"{resource} capacity")
    layers = [("pods", column(series, f"{resource} requested"))]
    layers += [(f"held {kind}", column(series, f"{resource} held {kind}")) for kind in kinds]
    most = max(capacity, default=0.0)
    most = max([most, *map(sum, zip(*(values for _, values in layers), strict=True))], default=0.0)
    frame, ticks = _amount_frame(resource, most, end)
    plot.parts = [
        frame.grid(ticks),
        frame.inner(
            _stacked(frame, series.times, layers)
            + f'<path class="capacity" d="{line(frame, zip(series.times, capacity, strict=True))}"/>'
        ),
        frame.marks(time_ticks(end)),
    ]
    plot.keys = [
        LegendEntry("pods", "requested by pods"),
        *_held_keys(kinds),
        LegendEntry("capacity", "capacity"),
    ]
    return plot


def _held(series: StepSeries, resource: str, end: float) -> Plot:
    kinds = _kinds_held(series, resource)
    plot = Plot(
        f"held-{resource}",
        f"{TITLES[resource]} held but unused",
        "Idle capacity that reservations keep from other pods, by kind." + _mean_note(series),
        _HEIGHT,
    )
    layers = [(f"held {kind}", column(series, f"{resource} held {kind}")) for kind in kinds]
    most = max(map(sum, zip(*(values for _, values in layers), strict=True)), default=0.0)
    frame, ticks = _amount_frame(resource, most, end)
    plot.parts = [
        frame.grid(ticks),
        frame.inner(_stacked(frame, series.times, layers)),
        frame.marks(time_ticks(end)),
    ]
    plot.keys = _held_keys(kinds)
    return plot


def _pending(series: StepSeries, end: float) -> Plot:
    values = column(series, "pods pending")
    plot = Plot(
        "pending",
        "Pending pods",
        "Pods without a node, whatever the reason." + _mean_note(series),
        _HEIGHT,
        keys=[LegendEntry("waiting", "pending pods")],
    )
    top, ticks = count_scale(max(values, default=0.0))
    frame = PlotArea(_HEIGHT, top, end)
    plot.parts = [
        frame.grid(ticks),
        frame.inner(_stacked(frame, series.times, [("waiting", values)])),
        frame.marks(time_ticks(end)),
    ]
    return plot


def _held_keys(kinds: Iterable[str]) -> list[LegendEntry]:
    return [LegendEntry(f"held {kind}", KIND_LABELS[kind]) for kind in kinds]


def _amount_frame(resource: str, most: float, end: float) -> tuple[PlotArea, Ticks]:
    top, ticks = amount_scale(resource, most)
    return PlotArea(_HEIGHT, top, end), ticks


def _stacked(
    frame: PlotArea, times: Sequence[float], layers: Iterable[tuple[str, Sequence[float]]]
) -> str:
    low = [0.0] * len(times)
    parts = []
    for style, values in layers:
        high = [a + b for a, b in zip(low, values, strict=True)]
        parts.append(f'<path class="{style}" d="{area(frame, times, low, high)}"/>')
        low = high
    return "".join(parts)


# Waiting times


def pod_waits(result: Result) -> list[float]:
    """The waits of the pods that were bound, sorted."""
    return sorted(result.waits)


def waits_plot(
    runs: Sequence[tuple[str, str, Sequence[float]]], *summaries: dict[str, dict[str, int]]
) -> Plot:
    """For each run the share of pods that were bound within a time; pods that still wait count as
    pods that have not been bound."""
    longest = max((waits[-1] for _, _, waits in runs if waits), default=0.0)
    plot = Plot(
        "waits",
        "Waiting times",
        "Share of pods that were bound within a time, of those that were bound or are pending. "
        "The time axis is logarithmic.",
        _HEIGHT,
        timed=False,
        keys=[LegendEntry(style, label) for label, style, _ in runs],
    )
    frame = PlotArea(_HEIGHT, 1.0, 1.0)
    curves = []
    for (_, style, waits), summary in zip(runs, summaries, strict=True):
        total = len(waits) + summary["pods"]["pending"] or 1
        points = [(0.0, 0.0)]
        for i, wait in enumerate(waits):
            x = round(wait_place(wait, longest), 3)
            if points[-1][0] == x:
                points[-1] = (x, (i + 1) / total)
            else:
                points.append((x, (i + 1) / total))
        curves.append(f'<path class="line {style}" d="{line(frame, points)}"/>')
    shares = [(i / 4, f"{25 * i}%") for i in range(5)]
    plot.parts = [
        frame.grid(shares),
        frame.inner("".join(curves)),
        frame.marks(wait_ticks(longest)),
    ]
    return plot


# Lanes: reservations and starving jobs


def _reservations(lives: Sequence[ReservationLife], end: float) -> Plot:
    shown = lives[:MOST_LANES]
    left_out = len(lives) - len(shown)
    height, parts = lanes([_lane(life, end) for life in shown], end, time_ticks(end))
    more = f" The first {len(shown)} of {len(lives)}; report.json has all figures." if left_out else ""
    return Plot(
        "reservations",
        "Reservations",
        f"From creation to end. Solid: used by owners; hatched: held unused.{more}",
        height,
        parts,
        [
            LegendEntry("pendingbar", "pending"),
            LegendEntry("waitingbar", "waiting for pods to end"),
            *_held_keys(dict.fromkeys(life.kind for life in shown)),
            LegendEntry("ok", "succeeded"),
            LegendEntry("failed", "expired, released, failed or deleted"),
        ],
    )


def _lane(life: ReservationLife, end: float) -> PlotLane:
    lane = PlotLane(_lane_label(life), [])
    steps = life.steps or []
    for i, step in enumerate(steps):
        until = steps[i + 1].t if i + 1 < len(steps) else end
        if step.t >= until and i + 1 < len(steps):
            continue
        if life.ended is not None and step.t >= life.ended:
            continue
        span = f"{short_time(step.t)} to {short_time(until)}"
        if step.phase == "Pending" or not step.phase:
            lane.segments.append(Segment(step.t, until, "pendingbar", f"{span}: Pending"))
            continue
        used, unused = _share_used(step.used, step.unused)
        title = f"{span}: {step.phase} on {life.node}, {100 * used:.0f}% used"
        if step.phase == "Waiting":
            lane.segments.append(Segment(step.t, until, "waitingbar", title))
            lane.segments.append(Segment(step.t, until, f"held {life.kind}", title, unused))
            continue
        lane.segments.append(Segment(step.t, until, f"held {life.kind}", title))
        lane.segments.append(Segment(step.t, until, f"solid {life.kind}", title, used))
    if life.ended is not None:
        style = "mark ok" if life.end == "Succeeded" else "mark failed"
        lane.marks.append((life.ended, style, f"{short_time(life.ended)}: {life.end}"))
    return lane


def _share_used(used: dict[str, int], unused: dict[str, int]) -> tuple[float, float]:
    """The largest shares over all resources of what is used, and of what is idle."""
    shares, idle = [0.0], [0.0]
    for name, amount in used.items():
        total = amount + unused.get(name, 0)
        if total:
            shares.append(amount / total)
            idle.append(unused.get(name, 0) / total)
    return max(shares), max(idle)


def _lane_label(life: ReservationLife) -> str:
    pods = f", {life.pods} pod{'s' if life.pods != 1 else ''}" if life.pods else ""
    kept = life.seconds.get("cpu") or next(iter(life.seconds.values()), None)
    name = "cpu" if "cpu" in life.seconds else next(iter(life.seconds), "")
    unused = f", {hours_text(name, hours(name, kept.unused))} unused" if kept else ""
    where = f" on {life.node}" if life.node else ""
    return f"{life.name} ({life.kind}){where}{pods}{unused}"


def _created(result: Result) -> dict[str, float]:
    """When jobs were created."""
    found: dict[str, float] = {}
    for entry in result.timeline:
        if entry.event == "Created" and entry.object.startswith(("Pod/", "PodGroup/")):
            found[entry.object] = entry.t
    return found


def _starvation(episodes: Sequence[StarvationEpisode], created: dict[str, float], end: float) -> Plot:
    shown = sorted(episodes, key=lambda each: -each.seconds(end))[:MOST_LANES]
    shown.sort(key=lambda each: (each.starving, each.job))
    rows = []
    for each in shown:
        until = each.ended if each.ended is not None else end
        lane = PlotLane(f"{each.job}, starving for {time_text(each.seconds(end))}", [])
        since = created.get(each.job)
        if since is not None and since < each.starving:
            lane.segments.append(Segment(since, each.starving, "pendingbar", "pending"))
        held = each.reserved if each.reserved is not None else until
        lane.segments.append(Segment(each.starving, held, "starving", "starving"))
        lane.segments.append(Segment(held, until, "held starvation", "starving, with holds"))
        if each.ended is not None:
            what = "started" if each.started else "deleted"
            style = "mark ok" if each.started else "mark failed"
            lane.marks.append((each.ended, style, f"{short_time(each.ended)}: {what}"))
        rows.append(lane)
    height, parts = lanes(rows, end, time_ticks(end))
    more = f" The longest {len(shown)} of {len(episodes)}." if len(episodes) > len(shown) else ""
    return Plot(
        "starvation",
        "Starvation",
        f"Jobs that were pending for longer than the threshold, until they started.{more}",
        height,
        parts,
        [
            LegendEntry("pendingbar", "pending"),
            LegendEntry("starving", "starving"),
            LegendEntry("held starvation", "starving, with holds"),
            LegendEntry("ok", "started"),
            LegendEntry("failed", "deleted"),
        ],
    )


# Nodes


def _nodes(history: RunHistory, end: float) -> Plot:
    """Levels of cpu, or of memory or GPUs if pods request no cpu, requested per node over time."""
    offered_at_all = [
        i for i in range(len(RESOURCES)) if any(c.capacity and c.capacity[i] for c in history.nodes)
    ]
    requested = [i for i in offered_at_all if any(each.amounts[i] for each in history.placements)]
    number = next(iter(requested or offered_at_all), 0)
    names = sorted({change.node for change in history.nodes}, key=natural)
    group = -(-len(names) // MOST_ROWS)
    row_of = {name: i // group for i, name in enumerate(names)}
    count = row_of[names[-1]] + 1
    used = [[0.0] * _HEAT_COLUMNS for _ in range(count)]
    offered = [[0.0] * _HEAT_COLUMNS for _ in range(count)]
    current: dict[str, tuple[float, float]] = {}
    for change in history.nodes:
        before = current.pop(change.node, None)
        if before is not None:
            _spread(offered[row_of[change.node]], before[0], change.t, before[1], end)
        if change.capacity is not None:
            current[change.node] = (change.t, change.capacity[number])
    for name, (t, amount) in current.items():
        _spread(offered[row_of[name]], t, end, amount, end)
    for placed in history.placements:
        row = row_of.get(placed.node)
        if row is not None:
            until = placed.end if placed.end is not None else end
            _spread(used[row], placed.start, until, placed.amounts[number], end)
    levels: dict[str, list[int]] = {}
    for i in range(count):
        inside = names[i * group : (i + 1) * group]
        label = inside[0] if len(inside) == 1 else f"{inside[0]} to {inside[-1]}"
        levels[label] = [
            min(10, max(1, round(10 * u / o)) if u else 0) if o else -1
            for u, o in zip(used[i], offered[i], strict=True)
        ]
    labelled = group == 1 and count <= 40 and max(map(len, names)) <= 14
    ticks = time_ticks(end)
    height, parts = heat(levels, 14 if count <= 40 else 6, labelled, ticks)
    rows = f" Each row is the mean of {group} nodes." if group > 1 else ""
    return Plot(
        "nodes",
        "Nodes over time",
        f"Share of {RESOURCES[number]} that pods request, a row per node, from empty to full.{rows}",
        height,
        parts,
        [
            LegendEntry("heat0", "0%"),
            LegendEntry("heat3", "30%"),
            LegendEntry("heat6", "60%"),
            LegendEntry("heat10", "100%"),
        ],
    )


def _spread(into: list[float], start: float, stop: float, amount: float, end: float) -> None:
    """Adds an amount from `start` to `stop` to the columns that these times are in."""
    if not amount:
        return
    width = (end or 1.0) / len(into)
    if end <= 0:
        for i in range(len(into)):
            into[i] += amount
        return
    first, last = int(start / width), min(int(stop / width), len(into) - 1)
    for i in range(min(first, len(into) - 1), last + 1):
        part = min(stop, (i + 1) * width) - max(start, i * width)
        if part > 0:
            into[i] += amount * part / width


def natural(name: str) -> tuple[str, int, str]:
    """n2 before n10."""
    stem = name.rstrip("0123456789")
    digits = name[len(stem) :]
    return (stem, int(digits or 0), name)
