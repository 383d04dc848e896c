"""`holdfast when`, on files and on a cluster: output, exit status, errors."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest

from harness.objects import pod as served_pod
from harness.served_cluster import ServedCluster, call
from holdfast.sim.forecast.answers import ForecastReport
from sim.forecast.cluster_dump import ESTIMATE, node, pod, running


@pytest.fixture(scope="module")
def dump(tmp_path_factory: pytest.TempPathFactory) -> str:
    objects = [
        node(),
        running(pod("a", annotations={ESTIMATE: "30m"}), since="2026-01-01T12:00:00Z"),
        pod("b"),
        pod("c"),
        pod("huge", cpu=30),
    ]
    file = tmp_path_factory.mktemp("when") / "dump.json"
    file.write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": objects}))
    return str(file)


def test_one_pod_as_text(dump: str) -> None:
    done = call("when", "pod", "b", "--snapshot", dump)
    assert done.status == 0, done.err
    assert "2026-01-01T12:30:00Z, in 30m" in done.out
    assert "Pod/default/a" in done.out and "holdfast.io/run-estimate: 30m0s" in done.out


@pytest.mark.parametrize(("name", "status"), [("b", 0), ("c", 3), ("huge", 4)])
def test_the_exit_status_says_whether_the_start_is_known(dump: str, name: str, status: int) -> None:
    assert call("when", f"pod/{name}", "--snapshot", dump).status == status


def test_all_pending_pods_are_listed(dump: str) -> None:
    done = call("when", "pods", "--snapshot", dump)
    assert done.status == 0
    for name, status in (("b", "Expected"), ("c", "Unknown"), ("huge", "Never")):
        assert any(f"Pod/default/{name}" in line and status in line for line in done.out.splitlines())


def test_json_is_what_the_schema_says(dump: str) -> None:
    done = call("when", "pod", "-A", "--snapshot", dump, "-o", "json")
    report = msgspec.json.decode(done.out, type=ForecastReport)
    assert [each.status for each in report.starts] == ["Expected", "Unknown", "Never"]
    data: dict[str, Any] = json.loads(done.out)
    assert data["time"] == "2026-01-01T12:00:00Z" and data["futures"] == 7


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        (("pdo", "b"), "KIND: no starts of 'pdo'; did you mean pod?"),
        (("pod", "x"), 'no pod "x" in namespace default'),
        (("pod", "b", "--within", "soon"), "--within: not a duration"),
        (("pod", "b", "--within", "0s"), "--within: must be more than 0"),
        (("pod", "b", "--history", "/no/such/folder"), "--history: /no/such/folder: no recording"),
        (("pod/",), "NAME: which pod?"),
    ],
)
def test_errors_name_what_is_wrong(dump: str, arguments: tuple[str, ...], error: str) -> None:
    done = call("when", *arguments, "--snapshot", dump)
    assert done.status == 1
    assert error in done.err


def test_the_horizon_may_be_in_days(dump: str) -> None:
    assert "of up to 24h" in call("when", "pod", "b", "--within", "1d", "--snapshot", dump).out
    assert call("when", "pod", "b", "--within", "10m", "--snapshot", dump).status == 4


def test_a_cluster_is_only_read(tmp_path: Path) -> None:
    with ServedCluster(tmp_path, nodes=1) as cluster:
        metadata = {"annotations": {ESTIMATE: "1h"}}
        cluster.create(served_pod("first", "6", metadata=metadata, memory="1Gi")).settle()
        cluster.create(served_pod("second", "6", memory="1Gi")).settle()

        def revision() -> Any:
            return cluster.server.get("/api/v1/pods").revision

        before = revision()
        done = cluster("when", "pod", "second")
        assert done.status == 0, done.err
        assert "in 60m" in done.out or "in 59m" in done.out or "in 1h" in done.out
        assert revision() == before
