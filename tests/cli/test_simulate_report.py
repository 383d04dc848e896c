"""`holdfast simulate --report`: what is written where, and when."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from cli.test_simulate import CONFIG, GOOD, written
from harness.scenarios import pod_text, simulate
from harness.served_cluster import call
from holdfast.sim.report import raster, write_report


def test_a_report_is_written_with_all_its_files(tmp_path: Path) -> None:
    folder = tmp_path / "deep" / "report"
    done = call("simulate", written(tmp_path, "s.yaml", GOOD), "--report", str(folder))
    assert (done.status, done.err) == (0, "")
    names = sorted(str(path.relative_to(folder)) for path in folder.rglob("*.*"))
    plots = ["nodes", "pending", "utilisation-cpu", "waits"]  # no pod requests memory
    assert names == [
        *(f"plots/{name}.{suffix}" for name in plots for suffix in ("png", "svg")),
        "report.html",
        "report.json",
        "timeline.csv",
    ]
    assert json.loads((folder / "report.json").read_text())["end"] == 90.0
    first, *lines = (folder / "timeline.csv").read_text().splitlines()
    assert first == "t,object,event,node,reservation,message"
    assert "0.0,Pod/default/p1,Bound,n1,," in lines
    assert (folder / "plots" / "waits.png").read_bytes().startswith(b"\x89PNG")


def test_a_reader_that_stops_early_loses_nothing(tmp_path: Path) -> None:
    """Like `| head -1`, of output that is longer than a pipe holds."""
    pods = "".join(f"---\n{pod_text(f'p-{i}', '0')}\n" for i in range(400))
    command = [sys.executable, "-m", "holdfast", "simulate", "-", "--report", str(tmp_path / "r")]
    process = subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert process.stdin and process.stdout and process.stderr
    process.stdin.write(GOOD + pods)
    process.stdin.close()
    assert process.stdout.readline() == "Timeline\n"
    process.stdout.close()
    assert (process.stderr.read(), process.wait(timeout=120)) == ("", 0)
    process.stderr.close()
    assert (tmp_path / "r" / "report.html").exists()


def test_several_configurations_get_a_comparison_although_their_names_are_equal(tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        written(tmp_path, f"{name}/plots.yaml", CONFIG)
    options = [
        each for name in ("a", "b") for each in ("--config", str(tmp_path / name / "plots.yaml"))
    ]
    folder = tmp_path / "report"
    done = call("simulate", "-", *options, "--report", str(folder), stdin=GOOD)
    assert (done.status, done.err) == (0, "")
    assert sorted(path.name for path in folder.iterdir()) == [
        "plots",
        "plots-2",
        "plots-3",
        "report.html",
    ]
    page = (folder / "report.html").read_text()
    assert 'href="plots-2/report.html"' in page
    assert 'href="../report.html"' in (folder / "plots-3" / "report.html").read_text()
    assert (folder / "plots" / "waits.svg").exists()


def test_a_folder_that_cannot_be_made_is_reported_before_the_run(tmp_path: Path) -> None:
    file = written(tmp_path, "file", "")
    done = call("simulate", "-", "--report", f"{file}/report", stdin=GOOD)
    assert (done.status, done.out) == (1, "")
    assert done.err == f"error: --report: {file}/report: Not a directory\n"


def test_without_resvg_a_note_says_how_to_get_png(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    raster.rasterizer.cache_clear()
    monkeypatch.setitem(sys.modules, "resvg_py", None)
    try:
        note = write_report(tmp_path, [(None, simulate(GOOD, history=True))], ["s.yaml"])
        done = call("simulate", "-", "--report", str(tmp_path / "report"), stdin=GOOD)
    finally:
        raster.rasterizer.cache_clear()
    assert note == "the plots are SVG files; for PNG too: pip install 'holdfast[png]'"
    assert (done.status, done.err) == (0, f"{note}\n")
    assert not list(tmp_path.rglob("*.png"))


def test_a_run_that_does_not_look_for_starving_jobs_is_not_compared_by_them(tmp_path: Path) -> None:
    head = "apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\n"
    finds = "actions: [{name: allocate}, {name: reserve, arguments: {starvingJobTimeThreshold: 10s}}]\n"
    configs = {"finds": finds, "does-not": "actions: [{name: allocate}]\n"}
    options = [
        each
        for name, text in configs.items()
        for each in ("--config", written(tmp_path, f"{name}.yaml", head + text))
    ]
    scenario = written(tmp_path, "s.yaml", f"{GOOD}---\n{pod_text('big', '64')}\n")
    folder = tmp_path / "report"
    done = call("simulate", scenario, *options, "--until", "60s", "--report", str(folder))
    assert done.status == 0
    page = (folder / "report.html").read_text()
    row = page[page.index("jobs that starved") :].partition("</tr>")[0]
    cells = [each.partition("</td>")[0].rpartition(">")[2] for each in row.split("<td")[1:]]
    assert cells == ["2", "-", ""]


def test_the_keyboard_can_scroll_wide_tables(tmp_path: Path) -> None:
    folder = tmp_path / "report"
    assert call("simulate", written(tmp_path, "s.yaml", GOOD), "--report", str(folder)).status == 0
    page = (folder / "report.html").read_text()
    frames = [each.partition(">")[0] for each in page.split('<div class="scroll-x"')[1:]]
    assert frames
    assert all('tabindex="0"' in each and "aria-label=" in each for each in frames)
