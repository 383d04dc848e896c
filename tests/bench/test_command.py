"""`holdfast bench` as it is typed."""

import json
from pathlib import Path
from typing import Any

import pytest
import typer
from typer.testing import CliRunner

from holdfast.bench.command import bench
from holdfast.bench.measure import section_of

app = typer.Typer()
app.command()(bench)

SMALL = ["--nodes", "20", "--repeat", "1"]


def run(*arguments: str) -> Any:
    return CliRunner().invoke(app, list(arguments), env={"COLUMNS": "80", "NO_COLOR": "1"})


def test_json_has_the_machine_and_a_row_for_each_workload() -> None:
    done = run("schedulingbasic", "Mixed160", "--in-process", "-o", "json", *SMALL)
    assert done.exit_code == 0, done.output
    document = json.loads(done.stdout)
    assert set(document) == {"mode", "machine", "rows"}
    assert set(document["machine"]) == {"cpu", "cores", "system", "python", "numpy", "holdfast"}
    assert [row["workload"] for row in document["rows"]] == ["SchedulingBasic", "Mixed160"]
    row = document["rows"][0]
    assert set(row) == {
        "workload", "nodes", "initPods", "measuredPods", "bound", "checksum", "decisions",
        "podsPerSecond", "parts", "batch", "batchShare", "latency", "cpuSecondsPer1000Pods",
        "peakMemoryMB", "wallToCpu",
    }  # fmt: skip
    assert set(row["podsPerSecond"]) == {"best", "mean", "runs"}
    assert set(row["latency"]) == set(row["batchShare"]) == {"p50", "p99"}


def test_a_row_in_a_process_of_its_own_comes_to_the_same_decisions() -> None:
    apart, here = (
        run("SchedulingBasic", "-o", "json", *SMALL),
        run("SchedulingBasic", "-o", "json", "--in-process", *SMALL),
    )
    assert apart.exit_code == 0, apart.output
    first, second = json.loads(apart.stdout)["rows"][0], json.loads(here.stdout)["rows"][0]
    assert first["checksum"] == second["checksum"]


def test_progress_is_a_line_per_row_on_stderr() -> None:
    done = run("SchedulingBasic", "Unschedulable", "--in-process", "-o", "json", *SMALL)
    lines = done.stderr.splitlines()
    assert [line.split(":")[0] for line in lines] == ["SchedulingBasic", "Unschedulable"]
    assert "40 of 40 pods bound" in lines[0]


def test_the_table_fits_eighty_columns() -> None:
    done = run("SchedulingWithMixedChurn", "SchedulingBasic/50000Pods", "--in-process", *SMALL)
    assert done.exit_code == 0, done.output
    assert "SchedulingWithMixedChurn" in done.stdout
    assert max(map(len, done.stdout.splitlines())) <= 80


def test_the_profile_shows_where_the_time_goes() -> None:
    done = run("SchedulingBasic", "--profile", "--nodes", "20", "-o", "json")
    assert done.exit_code == 0, done.output
    (profile,) = json.loads(done.stdout)["profiles"]
    assert [part["name"] for part in profile["parts"]] == ["feed", "round", "confirm"]
    done = run("SchedulingBasic", "--profile", "--nodes", "20")
    assert "µs per pod" in done.stdout


@pytest.mark.parametrize(
    ("path", "function", "section"),
    [
        ("scheduler/framework/feasibility/column.py", "Column.best", "argmax"),
        ("scheduler/framework/feasibility/column.py", "Column.refresh", "column refresh"),
        ("scheduler/plugins/node_resources_fit.py", "NodeResourcesFit.filter.passes", "column refresh"),
        ("scheduler/plugins/default_binder.py", "DefaultBinder.bind", "decisions"),
        ("scheduler/cluster/ledger.py", "Ledger.place", "ledger"),
        ("elsewhere.py", "f", "other"),
    ],
)
def test_functions_belong_to_sections(path: str, function: str, section: str) -> None:
    assert section_of(path, function) == section


def test_the_list_names_every_workload() -> None:
    done = run("--list")
    assert done.exit_code == 0
    for name in ("SchedulingBasic/50000Pods", "Unschedulable/20kInit", "openb", "--trace"):
        assert name in done.stdout


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["SchedulingBasik"], "did you mean SchedulingBasic?"),
        (["Nope"], "`holdfast bench --list` shows all"),
        (["openb"], "--trace DIR"),
        (["openb", "--trace", "/nonexistent"], "openb_node_list_all_node.csv"),
        (["SchedulingBasic", "--plot", "/no/such/plot.svg"], "no directory /no/such"),
        (["SchedulingBasic", "--mode", "embedded"], "it takes no workload"),
        (["--mode", "kube", "--profile"], "--profile is for --mode core"),
        (["SchedulingBasic", "--kubeconfig", "f"], "are for --mode kube"),
    ],
)
def test_a_run_that_cannot_start_ends_with_exit_status_1(arguments: list[str], message: str) -> None:
    done = run(*arguments)
    assert done.exit_code == 1
    assert done.stderr.startswith("error: ")
    assert message in done.stderr


@pytest.mark.parametrize("arguments", [["--mode", "warp"], ["--nodes", "0"], ["--batch", "0"]])
def test_bad_options_are_usage_errors(arguments: list[str]) -> None:
    assert run("SchedulingBasic", *arguments).exit_code == 2


def test_a_trace_is_passed_on_to_the_process_that_reads_it(tmp_path: Path) -> None:
    (tmp_path / "openb_node_list_x.csv").write_text(
        "sn,cpu_milli,memory_mib,gpu,model\nn,9000,9000,0,\n"
    )
    (tmp_path / "openb_pod_list_y.csv").write_text(
        "name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec,qos\np,1000,100,0,0,,LS\n"
    )
    lists = ["--trace", str(tmp_path), "--trace-nodes", "x", "--trace-pods", "y"]
    done = run("openb", *lists, "-o", "json", "--repeat", "1")
    assert done.exit_code == 0, done.output
    assert json.loads(done.stdout)["rows"][0]["bound"] == 1


def test_a_trace_with_gpus_also_reports_their_allocation(tmp_path: Path) -> None:
    (tmp_path / "openb_node_list_x.csv").write_text(
        "sn,cpu_milli,memory_mib,gpu,model\nn,9000,9000,2,T4\n"
    )
    (tmp_path / "openb_pod_list_y.csv").write_text(
        "name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec,qos\np,1000,100,1,500,,LS\n"
    )
    lists = ["--trace", str(tmp_path), "--trace-nodes", "x", "--trace-pods", "y", "--seeds", "2"]
    plotted = tmp_path / "plot.svg"
    done = run("openb", *lists, "--plot", str(plotted), "-o", "json", "--repeat", "1", "--in-process")
    assert done.exit_code == 0, done.output
    packing = json.loads(done.stdout)["packing"]
    assert [each["strategy"] for each in packing] == ["binpack", "best fit", "least fragmented"]
    assert all(each["allocated"]["100"] == 100 and each["seeds"] == 2 for each in packing)
    assert plotted.read_text().startswith("<svg")
