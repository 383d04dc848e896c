"""Takes the pictures of the dashboard and of reports for the documentation.

    python tools/screenshots.py --out docs/images

Starts `holdfast up` with a cluster that has something in every view, first with a clock of some hours
ago, so that its reservations have a past. Waits until it is at rest, and opens it in Debian's chromium
(`apt-get install chromium`, and playwright, which the tests need too).
The reports are of four days of mixed load with three configurations, which takes some minutes.
Look at each picture before you commit it.
"""

import argparse
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import yaml

if TYPE_CHECKING:
    from playwright.sync_api import Browser

Raw = dict[str, Any]
RESERVATION_API = "scheduling.koordinator.sh/v1alpha1"
_AT_REST = 12.0
"""Seconds until the starving job has its holds and all messages are written."""
_PAST = (7.0, 2.5)
"""Hours before now at which the cluster runs for a moment, first to last."""
_PAST_LASTS = 8.0
_EARLIER = """
import sys, time
now, back = time.time, 3600 * float(sys.argv.pop(1))
time.time = lambda: now() - back
from holdfast.cli import main
main()
"""
"""Runs `holdfast` with a clock that is some hours slow."""
_CONFIG = """
apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
actions:
  - name: allocate
  - name: backfill
  - name: reserve
    arguments: {starvingJobTimeThreshold: 4s, hold: amount}
  - name: preempt
  - name: reclaim
"""


class Picture(NamedTuple):
    file: str
    address: str
    """The part behind `#`."""
    size: tuple[int, int] = (1280, 760)
    dark: bool = False
    awaits: str = ".rows .row"
    """A selector of what must be on the page."""


PICTURES = (
    Picture("dashboard.png", "/nodes?sort=-cpu"),
    Picture("dashboard-dark.png", "/nodes?sort=-cpu", dark=True),
    Picture("dashboard-reservations.png", "/reservations", (1280, 656), dark=True),
    Picture("dashboard-calendar.png", "/reservations?filter=planned", (1280, 608)),
    Picture("dashboard-explain.png", "/pods/default/report", (1280, 860), awaits="#explanation"),
    Picture("dashboard-small.png", "/nodes/gpu-05?filter=gpu", (1280, 620), awaits="#details h2"),
    Picture("dashboard-phone.png", "/nodes?sort=-cpu", (400, 760)),
)


_STARVATION = Path(__file__).parent.parent / "examples" / "starvation"
_WEEK = ("40", "96", "12", "0.85", "1")
"""Nodes, hours, members of a large job, load and seed."""
_REPORTS = (
    ("report-comparison.png", "report.html", 1290),
    ("report-run.png", "conservative/report.html", 1130),
)
"""Pictures of pages, with their heights."""


# The cluster


def objects(now: datetime) -> Iterator[Raw]:
    yield from _nodes()
    for name, weight in (("research", 3), ("serving", 2)):
        queue = {"apiVersion": "scheduling.volcano.sh/v1beta1", "kind": "Queue"}
        yield queue | {"metadata": {"name": name}, "spec": {"weight": weight}}
    for i, hours in enumerate((4, 8, 9, 10, 12, 13)):
        yield _reservation(f"peak-web-{i}", "12", "24Gi", "web", ttl=f"{hours}h")
    yield _reservation("migration-db", "4", "32Gi", "db", ttl="6h")
    yield from _planned(now)
    yield _deployment("web", 14, "3", "4Gi")
    yield _deployment("api", 40, "4", "8Gi")
    for i in range(9):
        yield _pod(f"train-{i}", "16", "96Gi", gpus=4, queue="research")
    yield {
        "apiVersion": "scheduling.volcano.sh/v1beta1",
        "kind": "PodGroup",
        "metadata": {"name": "llm", "namespace": "default"},
        "spec": {"minMember": 2, "queue": "research"},
    }
    for i in range(2):
        yield _pod(f"llm-{i}", "48", "256Gi", gpus=8, queue="research", group="llm")
    yield _pod("report", "24", "16Gi", selector={"pool": "batch"})
    yield _pod("giant", "200", "64Gi")


def _nodes() -> Iterator[Raw]:
    for i in range(1, 9):
        yield _node(f"gpu-{i:02}", "64", "512Gi", {"accelerator": "h100"}, gpus=8)
    for i in range(1, 33):
        yield _node(f"cpu-{i:02}", "32", "128Gi", {"pool": "general"})
    for i in range(1, 3):
        yield _node(f"batch-{i:02}", "32", "128Gi", {"pool": "batch"})
    cordoned = _node("cpu-33", "32", "128Gi", {"pool": "general"})
    cordoned["spec"] = {"unschedulable": True}
    yield cordoned


def _node(name: str, cpu: str, memory: str, labels: dict[str, str], gpus: int = 0) -> Raw:
    amounts = {"cpu": cpu, "memory": memory, "pods": "110"}
    if gpus:
        amounts["nvidia.com/gpu"] = str(gpus)
    status = {"capacity": amounts, "allocatable": amounts}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": {"kubernetes.io/hostname": name, **labels}},
        "status": status,
    }


def _container(cpu: str, memory: str, gpus: int = 0) -> Raw:
    requests: dict[str, str] = {"cpu": cpu, "memory": memory}
    resources: Raw = {"requests": requests}
    if gpus:
        requests["nvidia.com/gpu"] = str(gpus)
        resources["limits"] = {"nvidia.com/gpu": str(gpus)}
    return {"name": "main", "image": "app", "resources": resources}


def _pod(
    name: str,
    cpu: str,
    memory: str,
    *,
    gpus: int = 0,
    queue: str = "",
    group: str = "",
    selector: dict[str, str] | None = None,
) -> Raw:
    annotations = {"scheduling.volcano.sh/queue-name": queue} if queue else {}
    if group:
        annotations["scheduling.k8s.io/group-name"] = group
    spec: Raw = {"containers": [_container(cpu, memory, gpus)]}
    if selector:
        spec["nodeSelector"] = selector
    metadata = {"name": name, "namespace": "default", "annotations": annotations}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}


def _deployment(name: str, replicas: int, cpu: str, memory: str) -> Raw:
    labels = {"app": name}
    template = {"metadata": {"labels": labels}, "spec": {"containers": [_container(cpu, memory)]}}
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {"replicas": replicas, "selector": {"matchLabels": labels}, "template": template},
    }


def _reservation(
    name: str, cpu: str, memory: str, app: str, selector: dict[str, str] | None = None, **more: Any
) -> Raw:
    annotations = more.pop("annotations", {})
    template = {"spec": {"containers": [_container(cpu, memory)], "nodeSelector": selector or {}}}
    return {
        "apiVersion": RESERVATION_API,
        "kind": "Reservation",
        "metadata": {"name": name, "annotations": annotations},
        "spec": {
            "allocateOnce": False,
            "owners": [{"labelSelector": {"matchLabels": {"app": app}}}],
            "template": template,
            **more,
        },
    }


def _planned(now: datetime) -> Iterator[Raw]:
    """Reservations that start later; two of them on the nodes of the pool batch."""
    for i, (name, app, after, ttl, before) in enumerate(
        (
            ("closing-batch", "closing", 2, "4h", "Backfill"),
            ("reports-batch", "reports", 8, "3h", "Backfill"),
            ("release", "release", 5, "6h", "Drain"),
            ("load-test", "load", 13, "5h", "Preempt"),
        )
    ):
        starts = (now + timedelta(hours=after)).replace(minute=0, second=0, microsecond=0)
        annotations = {
            "holdfast.io/starts-at": starts.strftime("%Y-%m-%dT%H:%M:%SZ"),
            "holdfast.io/before-start": before,
            "holdfast.io/lead": "30m",
        }
        for copy in range(2):
            selector = {"pool": "batch"} if name.endswith("batch") else {"pool": "general"}
            full = f"{name}-{copy}"
            cpu = "20" if i < 2 else "16"
            yield _reservation(full, cpu, "64Gi", app, selector, ttl=ttl, annotations=annotations)


# The pictures


@contextmanager
def cluster(folder: Path) -> Iterator[str]:
    """The address of the dashboard of a cluster that runs until the end of the block."""
    manifests, config = folder / "cluster.yaml", folder / "config.yaml"
    manifests.write_text(yaml.safe_dump_all(objects(datetime.now(UTC))), encoding="utf-8")
    config.write_text(_CONFIG, encoding="utf-8")
    up = ["up", "--config", str(config), "--data-dir", str(folder / "data")]
    apply = ["--apply", str(manifests)]
    for hours in _PAST:
        with _up([sys.executable, "-c", _EARLIER, str(hours), *up, *apply]):
            time.sleep(_PAST_LASTS)
        apply = []
    with _up([sys.executable, "-m", "holdfast", *up]) as address:
        yield address


@contextmanager
def _up(command: list[str]) -> Iterator[str]:
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    try:
        for line in process.stdout:
            if found := re.search(r"http://127\.0\.0\.1:\d+/\?token=\w+", line):
                yield found[0]
                return
        raise SystemExit(f"holdfast up ended with status {process.wait()}")
    finally:
        process.terminate()
        process.wait()


def take(browser: "Browser", address: str, picture: Picture, folder: Path) -> None:
    width, height = picture.size
    context = browser.new_context(
        viewport={"width": width, "height": height},
        color_scheme="dark" if picture.dark else "light",
        timezone_id="UTC",
    )
    page = context.new_page()
    page.goto(address)
    page.wait_for_selector("html[data-ready]")
    page.evaluate(f"location.hash = '#{picture.address}'")
    page.wait_for_selector(picture.awaits, timeout=60_000)
    page.wait_for_timeout(500)
    page.screenshot(path=str(folder / picture.file))
    context.close()


def write_reports(folder: Path) -> Path:
    scenario, out = folder / "week.json", folder / "out"
    command = [sys.executable, str(_STARVATION / "week.py"), "scenario", *_WEEK]
    with scenario.open("w", encoding="utf-8") as file:
        subprocess.run(command, stdout=file, check=True)
    command = [sys.executable, "-m", "holdfast", "simulate", str(scenario), "--until", "120h"]
    for name in ("allocate", "amount", "conservative"):
        command += ["--config", f"{name}.yaml"]
    command += ["--report", str(out)]
    subprocess.run(command, stdout=subprocess.DEVNULL, check=True, cwd=_STARVATION / "configs")
    return out


def take_report(browser: "Browser", page_file: Path, picture: Path, height: int) -> None:
    page = browser.new_page(viewport={"width": 1150, "height": height}, color_scheme="light")
    page.goto(page_file.as_uri())
    slider = page.locator("input[type=range]")
    if slider.count():
        slider.evaluate("s => { s.value = s.max * 0.45; s.dispatchEvent(new Event('input')); }")
    page.wait_for_timeout(500)
    page.screenshot(path=str(picture))
    page.close()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--out", type=Path, required=True, help="the directory for the pictures")
    arguments = parser.parse_args()
    path = shutil.which("chromium") or shutil.which("chromium-browser")
    if path is None:
        raise SystemExit("needs the browser chromium (Debian: apt-get install chromium)")
    from playwright.sync_api import sync_playwright

    arguments.out.mkdir(parents=True, exist_ok=True)
    with (
        tempfile.TemporaryDirectory() as folder,
        cluster(Path(folder)) as address,
        sync_playwright() as playwright,
    ):
        flags = ["--headless", "--no-sandbox", "--disable-gpu"]
        browser = playwright.chromium.launch(executable_path=path, args=flags)
        browser.new_page().wait_for_timeout(_AT_REST * 1000)
        for picture in PICTURES:
            take(browser, address, picture, arguments.out)
            print(arguments.out / picture.file)
        reports = write_reports(Path(folder))
        for name, page, height in _REPORTS:
            take_report(browser, reports / page, arguments.out / name, height)
            print(arguments.out / name)
        browser.close()


if __name__ == "__main__":
    main()
