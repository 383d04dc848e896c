"""`holdfast advise`, on files and on a cluster: output, exit status, errors, the command."""

from __future__ import annotations

import json
import shlex
from pathlib import Path
from typing import Any

import msgspec
import pytest

from harness.objects import pod as served_pod
from harness.served_cluster import ServedCluster, call
from holdfast.sim.windows.window_answers import WindowReport
from sim.forecast.cluster_dump import ESTIMATE, node, pod, running

NOON = "2026-01-01T12:00:00Z"


@pytest.fixture(scope="module")
def dump(tmp_path_factory: pytest.TempPathFactory) -> str:
    objects = [
        node("n1", 8),
        node("n2", 8),
        running(pod("short", 6, annotations={ESTIMATE: "3h"}), "n1", NOON),
        running(pod("endless", 2), "n1", NOON),
        running(pod("long", 8, annotations={ESTIMATE: "48h"}), "n2", NOON),
    ]
    file = tmp_path_factory.mktemp("advise") / "dump.json"
    file.write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": objects}))
    return str(file)


def test_windows_are_listed_with_what_makes_way_and_a_command(dump: str) -> None:
    done = call("advise", "--cpu", "8", "--for", "4h", "--snapshot", dump)
    assert done.status == 0, done.err
    assert "Windows for 8 cpu for 4h" in done.out
    lines = done.out.splitlines()
    free = next(i for i, line in enumerate(lines) if "2026-01-03T12:00:00Z" in line and "n2" in line)
    cheap = next(i for i, line in enumerate(lines) if "2026-01-01T12:05:00Z" in line)
    assert free < cheap and "Known" in lines[free]
    assert any("Pod/default/long" in line and "is evicted" in line for line in lines)
    reserve = "holdfast reserve --cpu 8 --owner app=my-app --start"
    assert f"{reserve} 2026-01-03T12:00:00Z --for 4h" in lines
    assert f"{reserve} 2026-01-01T12:05:00Z --for 4h --before-start Preempt --lead 5m" in lines


@pytest.mark.parametrize(
    ("arguments", "status"),
    [
        (("--cpu", "8"), 0),
        (("--cpu", "8", "--max-evictions", "0", "--within", "1d"), 3),
        (("--cpu", "9"), 4),
        (("--cpu", "8", "--count", "3"), 4),
    ],
)
def test_the_exit_status_says_whether_a_window_is_known(
    dump: str, arguments: tuple[str, ...], status: int
) -> None:
    assert call("advise", *arguments, "--for", "1h", "--snapshot", dump).status == status


def test_json_is_what_the_schema_says(dump: str) -> None:
    words = ("--cpu", "4", "--memory", "1Gi", "--count", "2", "--priority", "7", "--owner", "app=x")
    done = call("advise", *words, "--for", "90m", "--snapshot", dump, "-o", "json")
    report = msgspec.json.decode(done.out, type=WindowReport)
    assert report.time == NOON and report.replicas == 2 and report.duration == 5400
    assert report.requests == {"cpu": "4", "memory": "1Gi"} and report.notes == []
    command = shlex.split(report.windows[0].command)
    assert command[:2] == ["holdfast", "reserve"]
    for flag, value in (("--replicas", "2"), ("--priority", "7"), ("--owner", "app=x")):
        assert command[command.index(flag) + 1] == value


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        (("--for", "4h"), "nothing to reserve: give --cpu, --memory, --gpu or --resource"),
        (("--cpu", "4"), "--for"),
        (("--cpu", "four", "--for", "4h"), "--cpu: "),
        (("--cpu", "4", "--for", "soon"), "--for: not a duration"),
        (("--cpu", "4", "--for", "4h", "--within", "soon"), "--within: not a duration"),
        (("--cpu", "4", "--for", "4h", "--max-evictions", "-1"), "--max-evictions: must not be"),
        (("--cpu", "4", "--for", "4h", "--priority", "-1"), "--priority: expected a number"),
    ],
)
def test_errors_name_what_is_wrong(dump: str, arguments: tuple[str, ...], error: str) -> None:
    done = call("advise", *arguments, "--snapshot", dump)
    assert done.status == 1
    assert error in done.err


def test_the_printed_command_reserves_the_window(tmp_path: Path) -> None:
    with ServedCluster(tmp_path, nodes=2) as cluster:
        metadata = {"annotations": {ESTIMATE: "1h"}}
        cluster.create(served_pod("first", "6", metadata=metadata, memory="1Gi")).settle()

        def revision() -> Any:
            return cluster.server.get("/api/v1/pods").revision

        before = revision()
        done = cluster("advise", "--cpu", "6", "--count", "2", "--for", "2h", "-o", "json")
        assert done.status == 0, done.err
        assert revision() == before
        report = msgspec.json.decode(done.out, type=WindowReport)
        window = report.windows[0]
        assert window.evictions == 0 and sorted(window.nodes) == ["node-1", "node-2"]
        made = cluster(*shlex.split(window.command)[1:])
        assert made.status == 0, made.err
        cluster.settle()
        planned = [
            cluster.server.get(f"/apis/scheduling.koordinator.sh/v1alpha1/reservations/my-app-{i}").body
            for i in (1, 2)
        ]
        assert sorted(each["status"]["nodeName"] for each in planned) == sorted(window.nodes)
        for each in planned:
            feasible = [c for c in each["status"]["conditions"] if c["type"] == "Feasible"]
            assert [c["status"] for c in feasible] == ["True"]


def test_nodes_that_are_too_small_are_said_to_be(dump: str) -> None:
    done = call("advise", "--cpu", "9", "--for", "4h", "--snapshot", dump)
    said = (
        "No window for 9 cpu for 4h: no node is large enough: 9 cpu are requested, and the most a node "
    )
    assert " ".join(done.out.split()).startswith(f"{said}has is 8.")
