"""Measures the dashboard of a large cluster in a browser: `python -m web.measure`, from a clone with
PYTHONPATH=src:tests.

Scheduler, server and browser run on the same machine, so other load on it counts. The figures of
docs/dashboard.md are medians of three runs.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import resource
import statistics
import time
from functools import partial
from typing import TYPE_CHECKING, Any

from holdfast.web.live_view import LiveView, WatchedScheduler
from web.browser import browser
from web.large_cluster import NOW, PENDING, LargeDashboard, large_dashboard, large_scheduler

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

    from holdfast.scheduler.scheduler import Scheduler

_SECONDS = 10
"""For which frames are counted."""
_CHANGES = 13
"""Pods that change ten times a second."""
_FRAMES = """async ([seconds, scroll]) => {
  const gaps = [], long = [];
  new PerformanceObserver(list => long.push(...list.getEntries().map(each => each.duration)))
    .observe({type: "longtask"});
  const box = document.querySelector(".list-box"), start = performance.now();
  let last = start;
  while (last - start < 1000 * seconds) {
    const now = await new Promise(requestAnimationFrame);
    gaps.push(now - last);
    last = now;
    if (scroll) box.scrollTop += 120;
  }
  return [gaps.slice(1).sort((a, b) => a - b), long];
}"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition(":")[0])
    parser.add_argument(
        "--runs", type=int, default=3, metavar="N", help="runs, of which medians are shown"
    )
    runs = parser.parse_args().runs
    scheduler = large_scheduler(pending=PENDING)
    gc.collect()
    gc.freeze()  # as `holdfast up` does
    found: dict[str, list[float]] = {}
    for name, value in snapshots(scheduler):
        found.setdefault(name, []).append(value)
    with browser() as chrome, large_dashboard(scheduler) as served:
        before = _memory()
        for _ in range(runs):
            for name, value in page_figures(chrome, served):
                found.setdefault(name, []).append(value)
        found["longest computation of the event loop (CPU), ms"] = [1000 * served.longest]
        found["most memory of the process before the page, MB"] = [before]
        found["most memory of the process with the page, MB"] = [_memory()]
    for name, values in found.items():
        print(f"{name:60} {statistics.median(values):10,.1f}")


def snapshots(scheduler: Scheduler) -> list[tuple[str, float]]:
    """CPU time of the first snapshot of a process, of that of a later view, and of one again."""
    watched = WatchedScheduler("measured", lambda: NOW)
    watched.attach(scheduler)

    async def timed(view: LiveView) -> float:
        start = time.process_time()
        await view.snapshot()
        return 1000 * (time.process_time() - start)

    async def measured() -> list[tuple[str, float]]:
        first, later = LiveView(watched), LiveView(watched)
        figures = [
            ("first snapshot (CPU), ms", await timed(first)),
            ("snapshot of a later view (CPU), ms", await timed(later)),
            ("snapshot again (CPU), ms", await timed(later)),
        ]
        await first.close()
        await later.close()
        return figures

    return asyncio.run(measured())


def page_figures(chrome: Browser, served: LargeDashboard) -> list[tuple[str, float]]:
    context = chrome.new_context(viewport={"width": 1280, "height": 800})
    page = context.new_page()
    session = context.new_cdp_session(page)
    session.send("Network.enable")
    sizes: dict[str, dict[str, Any]] = {}
    session.on(
        "Network.responseReceived",
        lambda e: sizes.setdefault(e["requestId"], {}).update(url=e["response"]["url"]),
    )
    session.on(
        "Network.loadingFinished",
        lambda e: sizes.setdefault(e["requestId"], {}).update(sent=e["encodedDataLength"]),
    )
    session.on(
        "Network.dataReceived",
        lambda e: sizes.setdefault(e["requestId"], {}).update(
            body=sizes.get(e["requestId"], {}).get("body", 0) + e["dataLength"]
        ),
    )
    page.goto(served.address)
    page.wait_for_selector("html[data-ready]")
    page.wait_for_timeout(1500)
    done = [each for each in sizes.values() if "sent" in each and "url" in each]
    of_page = [each for each in done if "/api/" not in each["url"]]
    (snapshot,) = [each for each in done if "api/snapshot" in each["url"]]
    marks = dict(page.evaluate("performance.getEntries().map(each => [each.name, each.startTime])"))
    figures = [
        ("page: requests", len(of_page)),
        ("page: KB sent with headers", sum(each["sent"] for each in of_page) / 1000),
        ("page: KB unpacked", sum(each.get("body", 0) for each in of_page) / 1000),
        ("snapshot: KB sent", snapshot["sent"] / 1000),
        ("snapshot: KB unpacked", snapshot["body"] / 1000),
        ("first contentful paint, ms", marks["first-contentful-paint"]),
        ("data to paint, ms", marks["holdfast-painted"] - marks["holdfast-data"]),
    ]
    session.send("HeapProfiler.enable")
    session.send("HeapProfiler.collectGarbage")
    heap = session.send("Runtime.getHeapUsage")["usedSize"]
    figures += [
        ("JavaScript heap, MB", heap / 1e6),
        ("elements of the page", page.evaluate("document.querySelectorAll('*').length")),
        ("a change until it is on the page, ms", _latency(page, served)),
    ]
    figures += _frames(page, served, f"with {10 * _CHANGES} changed pods a second", scroll=False)
    figures += _frames(page, served, "while scrolling", scroll=True)
    context.close()
    return figures


_cpu = 100


def _latency(page: Page, served: LargeDashboard) -> float:
    global _cpu
    _cpu += 1
    shown = page.locator(".rows .row", has_text="node-1").first.locator(".figures .sr").first
    wanted = f"of {_cpu} cpu"
    start = time.perf_counter()
    served.do(lambda: served.resize_node(1, cpu=str(_cpu)))
    while wanted not in (shown.text_content() or ""):
        page.wait_for_timeout(5)
    return 1000 * (time.perf_counter() - start)


_changed = 0


def _frames(page: Page, served: LargeDashboard, when: str, *, scroll: bool) -> list[tuple[str, float]]:
    """Frames, with a timer in the page's own thread; pods change meanwhile unless it scrolls."""
    global _changed
    if not scroll:
        for number in range(10 * _SECONDS):
            first = _changed + number * _CHANGES
            served.later(number / 10, partial(served.change_pods, range(first, first + _CHANGES)))
        _changed += 10 * _SECONDS * _CHANGES
    gaps, long = page.evaluate(_FRAMES, [_SECONDS, scroll])
    return [
        (f"frames {when}: median, ms", statistics.median(gaps)),
        (f"frames {when}: 99th percentile, ms", gaps[int(0.99 * len(gaps))]),
        (f"frames {when}: longest, ms", gaps[-1]),
        (f"tasks over 50 ms {when}: number", len(long)),
        (f"tasks over 50 ms {when}: longest, ms", max(long, default=0)),
    ]


def _memory() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


if __name__ == "__main__":
    main()
