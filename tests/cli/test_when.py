"""`holdfast when`, on files and on a cluster: output, exit status, errors."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import msgspec
import pytest

from harness.objects import pod as served_pod
from harness.served_cluster import ServedCluster, call
from holdfast.api.times import parse_time
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


def test_a_pod_that_names_a_node_which_does_not_exist(tmp_path: Path) -> None:
    named = pod("p")
    named["spec"]["nodeName"] = "n9"
    file = tmp_path / "dump.json"
    file.write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": [node(), named]}))
    done = call("when", "pod", "p", "--snapshot", str(file))
    assert done.status == 4
    assert "it names the node n9, which does not exist" in done.out


@pytest.fixture(scope="module")
def rollout(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A Deployment of three pods, for the first of which a pod ends."""

    def owned(raw: dict[str, Any], kind: str, name: str) -> dict[str, Any]:
        owner = {"apiVersion": "apps/v1", "kind": kind, "name": name, "uid": name, "controller": True}
        raw["metadata"] |= {"ownerReferences": [owner]}
        return raw

    def workload(kind: str, name: str, replicas: int) -> dict[str, Any]:
        labels = {"app": name.partition("-")[0]}
        template = {"metadata": {"labels": labels}, "spec": pod("t")["spec"]}
        spec = {"replicas": replicas, "selector": {"matchLabels": labels}, "template": template}
        metadata = {"name": name, "namespace": "default", "uid": name}
        return {"apiVersion": "apps/v1", "kind": kind, "metadata": metadata, "spec": spec}

    objects = [
        node(),
        running(pod("a", annotations={ESTIMATE: "30m"}), since="2026-01-01T12:00:00Z"),
        workload("Deployment", "web", 3),
        owned(workload("ReplicaSet", "web-1", 3), "Deployment", "web"),
        *(owned(pod(f"web-1-{i}"), "ReplicaSet", "web-1") for i in range(3)),
        workload("Deployment", "idle", 0),
        workload("StatefulSet", "db", 1),
        owned(running(pod("db-0", cpu=0), since="2026-01-01T12:00:00Z"), "StatefulSet", "db"),
    ]
    for raw in objects:
        if raw["kind"] == "Pod":
            raw["metadata"]["labels"] = {"app": raw["metadata"]["name"].partition("-")[0]}
    file = tmp_path_factory.mktemp("when") / "rollout.json"
    file.write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": objects}))
    return str(file)


@pytest.mark.parametrize("kind", ["deployment/web", "rs/web-1"])
def test_a_workload_has_a_line_for_each_group_of_its_pods(rollout: str, kind: str) -> None:
    done = call("when", kind, "--snapshot", rollout)
    assert done.status == 4
    assert "0 of 3 pods have a node" in done.out
    lines = [line.split() for line in done.out.splitlines()]
    assert ["1", "Expected", "2026-01-01T12:30:00Z", "30m", "n1"] in [line[:5] for line in lines]
    assert ["2", "Never"] in [line[:2] for line in lines]


def test_groups_of_pods_as_data(rollout: str) -> None:
    done = call("when", "deploy", "--snapshot", rollout, "-o", "json")
    report = msgspec.json.decode(done.out, type=ForecastReport)
    assert [(each.object, each.placed, each.pending) for each in report.workloads] == [
        ("Deployment/default/web", 0, 3)
    ]
    assert [(each.object, each.status, each.pods) for each in report.starts] == [
        ("Deployment/default/web", "Expected", ["web-1-0"]),
        ("Deployment/default/web", "Never", ["web-1-1", "web-1-2"]),
    ]


@pytest.mark.parametrize(
    ("kind", "status", "says"),
    [
        ("sts/db", 0, "1 of 1 pod has a node"),
        ("deploy/idle", 4, "spec.replicas is 0"),
        ("deploy/wbe", 1, 'no deployment "wbe" in namespace default; did you mean web?'),
    ],
)
def test_workloads_without_pending_pods(rollout: str, kind: str, status: int, says: str) -> None:
    done = call("when", kind, "--snapshot", rollout)
    assert done.status == status
    assert says in done.out + done.err


def test_objects_that_state_no_time_are_as_of_now(tmp_path: Path) -> None:
    file = tmp_path / "dump.json"
    ending = running(pod("a", annotations={ESTIMATE: "30m"}))
    del ending["status"]["startTime"]
    file.write_text(
        json.dumps({"kind": "List", "apiVersion": "v1", "items": [node(), ending, pod("b")]})
    )
    started = time.time()
    done = call("when", "pod", "b", "--snapshot", str(file), "-o", "json")
    report = msgspec.json.decode(done.out, type=ForecastReport)
    assert int(started) <= parse_time(report.time) <= time.time()


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
        (("cronjob", "x"), "KIND: no starts of 'cronjob': give the job that it has started"),
        (("pmj", "x"), "KIND: no starts of 'pmj': give its reservation"),
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
