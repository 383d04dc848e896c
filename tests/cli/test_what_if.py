"""`holdfast what-if` on the command line: formats, files, a live cluster, errors."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from harness.objects import reservation
from harness.served_cluster import ServedCluster, call
from holdfast.api.quantity import milli
from holdfast.snapshot.cluster_objects import of_objects
from holdfast.snapshot.snapshot_file import write_snapshot
from holdfast.snapshot.snapshot_header import SnapshotHeader
from sim.what_if.clusters import cluster as objects_of
from sim.what_if.clusters import node, pod, priority, template, workload
from sim.what_if.test_answer import schema

CLUSTER = [node("n1"), node("n2"), workload("web", 4)]


def _file(folder: Path, name: str, *objects: dict[str, Any]) -> str:
    path = folder / name
    path.write_text("---\n".join(json.dumps(raw) + "\n" for raw in objects))
    return str(path)


@pytest.fixture
def snapshot(tmp_path: Path) -> str:
    return _file(tmp_path, "cluster.yaml", *CLUSTER)


def test_the_table(snapshot: str, tmp_path: Path) -> None:
    manifest = _file(tmp_path, "m.yaml", workload("new", 6))
    done = call("what-if", snapshot, "-f", manifest)
    assert (done.status, done.err) == (0, "")
    assert done.out.startswith("What if: applied: 1 Deployment\n")
    lines = [line.split() for line in done.out.splitlines()]
    assert ["Deployment/default/new", "new", "4", "n1", "(2),", "n2", "(2)"] in lines
    assert any(line[:3] == ["Deployment/default/new", "new", "2"] for line in lines)
    assert done.out.rstrip().endswith("4 placed, 2 newly pending.")


@pytest.mark.parametrize(
    ("reservations", "pods", "nodes"),
    [
        ({}, 4, "n1 (4)"),
        ({"one": "1"}, 1, "n1 by reservation one"),
        ({"one": "1"}, 4, "n1 (4), 1 of them by reservation one"),
        ({"one": "2"}, 2, "n1 (2) by reservation one"),
        ({"one": "1", "two": "1"}, 2, "n1 (2) by reservation one, two"),
        ({"one": "2", "two": "1"}, 4, "n1 (4), 3 of them by reservation one (2), two"),
    ],
)
def test_the_table_counts_the_pods_that_use_a_reservation(
    reservations: dict[str, str], pods: int, nodes: str, tmp_path: Path
) -> None:
    made = [
        {
            "apiVersion": "scheduling.koordinator.sh/v1alpha1",
            "kind": "Reservation",
            "metadata": {"name": name},
            "spec": {
                "template": template(name, cpu),
                "owners": [{"labelSelector": {"matchLabels": {"app": "web"}}}],
                "allocateOnce": cpu == "1",
            },
        }
        for name, cpu in reservations.items()
    ]
    path = _file(tmp_path, "cluster.yaml", node("n1", "8"), workload("web", 0), *made)
    done = call("what-if", path, "--scale", f"deployment/web={pods}")
    [row] = [line for line in done.out.splitlines() if line.lstrip().startswith("Deployment/")]
    assert row.split(None, 3)[3].rstrip() == nodes


def test_json_is_as_its_schema_says(snapshot: str) -> None:
    done = call("what-if", snapshot, "--drain", "n1", "--nodes", "+1xn2", "-o", "json")
    assert (done.status, done.err) == (0, "")
    data = json.loads(done.out)
    jsonschema.validate(data, schema("what_if"), jsonschema.Draft202012Validator)
    assert data["summary"]["displaced"] == 2


def test_html_on_stdout_and_to_a_file(snapshot: str, tmp_path: Path) -> None:
    page = tmp_path / "answer.html"
    done = call("what-if", snapshot, "--remove", "n1", "-o", "html", "--html", str(page))
    assert done.status == 0
    assert done.out == page.read_text() and "NodeRemoved" in done.out
    refused = call("what-if", snapshot, "--remove", "n1", "--html", str(tmp_path / "no" / "x.html"))
    assert refused.status == 1 and "--html:" in refused.err


def test_a_plan(snapshot: str) -> None:
    done = call("what-if", snapshot, "--scale", "deployment/web=11", "--plan", "cpu=2,memory=4Gi")
    assert done.status == 0
    assert "Plan: 2 nodes needed: 2 x cpu=2,memory=4Gi; fewer do not suffice" in done.out
    assert "With one node less: Insufficient cpu (1 pod)" in done.out
    none = call("what-if", snapshot, "--scale", "deployment/web=1", "--plan", "n1")
    assert "Plan: no more nodes are needed\n" in none.out


def test_a_plan_for_reservations_says_so(tmp_path: Path) -> None:
    reserved = [reservation(name, "2", "x") for name in ("r1", "r2")]
    objects = _file(tmp_path, "c.yaml", node("n1", "1"), *reserved, pod("huge", "64"))
    page = tmp_path / "answer.html"
    done = call("what-if", objects, "--plan", "cpu=2,memory=4Gi", "--html", str(page))
    assert "Plan: 2 nodes needed" in done.out
    assert "\nWith one node less: Insufficient cpu (1 reservation)\n" in done.out
    unplaceable = "1 pod does not fit with any number of these nodes: Insufficient cpu (1 pod)"
    assert f"\n{unplaceable}\n" in done.out
    assert "<td>1 reservation</td>" in page.read_text()
    data = json.loads(call("what-if", objects, "--plan", "cpu=2,memory=4Gi", "-o", "json").out)
    binding = {"reason": "Insufficient cpu", "pods": 0, "reservations": 1}
    assert (data["plan"]["binding"], data["plan"]["unplaceable"]) == ([binding], 1)
    none = call("what-if", objects, "--plan", "cpu=1,memory=4Gi")
    assert "\n1 pod and 2 reservations do not fit with any number of these nodes: " in none.out


@pytest.mark.parametrize(
    ("options", "nodes"),
    [
        (["--drain", "n2"], "0 before, 1 after"),
        (["--remove", "n2"], ""),
        (["--drain", "n2", "--nodes", "+1xn1"], "0 before, 1 after"),
    ],
)
def test_the_amounts_of_the_capacity_table_add_up(
    options: list[str], nodes: str, tmp_path: Path
) -> None:
    """A drained node is allocatable and not free: then a note says so."""
    reserved = reservation("r", "2", "x")
    objects = _file(tmp_path, "c.yaml", node("n1", "8"), node("n2"), workload("web", 4), reserved)
    page = tmp_path / "answer.html"
    done = call("what-if", objects, *options, "--html", str(page))
    note = f"allocatable includes cordoned nodes ({nodes}), on which nothing is free"
    assert (f"\nnote: {note}\n" in done.out) == (note in page.read_text()) == bool(nodes)
    [header] = [line.split() for line in done.out.splitlines() if "allocatable   " in line]
    assert header[:5] == ["resource", "allocatable", "requested", "reserved", "free"]
    data = json.loads(call("what-if", objects, *options, "-o", "json").out)
    for part in (data["before"], data["after"]):
        cpu = {name: milli(part["resources"]["cpu"][name]) for name in header[1:5]}
        rest = cpu["allocatable"] - cpu["requested"] - cpu["reserved"] - cpu["free"]
        assert rest == 4000 * (part["nodes"] - part["schedulableNodes"])


def test_a_node_that_is_cordoned_already_is_noted(tmp_path: Path) -> None:
    objects = _file(tmp_path, "c.yaml", node("n1"), node("n2", unschedulable=True))
    done = call("what-if", objects, "--nodes", "+1xn1")
    assert "\nnote: allocatable includes cordoned nodes (1), on which nothing is free\n" in done.out


def test_a_manifest_without_documents(snapshot: str, tmp_path: Path) -> None:
    (tmp_path / "empty.yaml").write_text("# nothing\n")
    done = call("what-if", snapshot, "-f", str(tmp_path / "empty.yaml"))
    assert done.status == 1 and "empty.yaml: no documents" in done.err


def test_a_configuration_is_a_change_if_there_is_no_other(tmp_path: Path) -> None:
    objects = _file(tmp_path, "c.yaml", node("n1"), pod("p", schedulerName="mine"), pod("q"))
    config = {
        "apiVersion": "kubescheduler.config.k8s.io/v1",
        "kind": "KubeSchedulerConfiguration",
        "profiles": [{"schedulerName": "mine"}, {"schedulerName": "default-scheduler"}],
    }
    file = _file(tmp_path, "config.yaml", config)
    done = call("what-if", objects, "--config", file, "-o", "json")
    assert (done.status, done.err) == (0, "")
    data = json.loads(done.out)
    assert data["changes"] == [f"configuration {file}"]
    assert [(each["object"], each["was"]) for each in data["placed"]] == [("Pod/default/p", "pending")]
    assert (data["before"]["pendingPods"], data["after"]["pendingPods"]) == (1, 0)
    beside = call("what-if", objects, "--config", file, "--nodes", "+1xn1", "-o", "json")
    assert json.loads(beside.out)["before"]["pendingPods"] == 0


def test_a_plan_at_the_expense_of_a_pod_without_a_controller(tmp_path: Path) -> None:
    objects = _file(tmp_path, "c.yaml", node("n1"), pod("bare", "3", nodeName="n1"))
    high = pod("high", "3", priorityClassName="high")
    manifest = _file(tmp_path, "m.yaml", priority("high", 100), high)
    done = call("what-if", objects, "-f", manifest, "--plan", "n1")
    text = "Plan: no more nodes are needed; but 1 pod is preempted and not replaced"
    assert text in done.out


def test_a_snapshot_file_compressed_or_not(snapshot: str, tmp_path: Path) -> None:
    from holdfast.local.setup import SchedulerFactory
    from holdfast.sim.what_if.question import WhatIfQuestion

    question = WhatIfQuestion.about(SchedulerFactory.of(), objects_of(*CLUSTER))
    stored = [*question.cluster.objects.all()]
    taken = of_objects(stored, SnapshotHeader(time=question.time))
    answers = []
    for name in ("s.json", "s.json.gz"):
        write_snapshot(tmp_path / name, taken)
        done = call("what-if", str(tmp_path / name), "--scale", "deployment/web=6", "-o", "json")
        assert (done.status, done.err) == (0, "")
        answers.append(json.loads(done.out))
    assert answers[0] == answers[1]
    assert answers[0]["summary"] == {
        **dict.fromkeys(answers[0]["summary"], 0),
        "placed": 2,
    }


ERRORS: dict[str, tuple[list[str], str]] = {
    "nothing to change": ([], "nothing to change: give -f, --scale"),
    "no such node": (["--drain", "n3"], "--drain: there is no node 'n3'"),
    "no such file": (["-f", "/nonexistent.yaml"], "/nonexistent.yaml: No such file"),
    "bad shape": (["--plan", "cpu=lots"], "--plan: 'cpu=lots': cpu:"),
    "no shape": (["--plan", ","], "--plan: expected a shape"),
    "stdin twice": (["-", "-f", "-"], "standard input can be read once"),
    "bad configuration": (["--config", "/nonexistent.yaml", "--drain", "n1"], "/nonexistent.yaml"),
}


@pytest.mark.parametrize("case", ERRORS)
def test_errors(case: str, snapshot: str) -> None:
    arguments, text = ERRORS[case]
    done = call("what-if", snapshot, *arguments)
    assert (done.status, done.out) == (1, "")
    assert text in done.err


def test_a_manifest_that_a_server_refuses_names_file_and_field(snapshot: str, tmp_path: Path) -> None:
    bad = pod("p")
    bad["spec"]["containers"][0]["resources"]["requests"]["cpu"] = "x"
    done = call("what-if", snapshot, "-f", _file(tmp_path, "bad.yaml", pod("q"), bad))
    assert done.status == 1
    assert "bad.yaml: document 2, line 3" in done.err and "resources.requests" in done.err


def test_a_live_cluster_is_only_read(tmp_path: Path) -> None:
    with ServedCluster(tmp_path, nodes=2) as served:
        served.create(workload("web", 4)).settle()
        revision = served.embedded.store.revision
        done = served("what-if", "-f", _file(tmp_path, "m.yaml", pod("new")), "-o", "json")
        assert done.status == 0, done.err
        data = json.loads(done.out)
        assert "Pod/default/new" in [each["object"] for each in data["placed"]]
        assert data["before"]["pods"] == 4
        assert served.embedded.store.revision == revision


def test_a_snapshot_of_a_cluster_does_not_replace_pods(tmp_path: Path) -> None:
    """What a snapshot leaves out of templates does not look like a new template."""
    deployment = workload("web", 4)
    container = deployment["spec"]["template"]["spec"]["containers"][0]
    container |= {
        "command": ["serve"],
        "env": [{"name": "A", "value": "b"}],
        "readinessProbe": {"httpGet": {"path": "/", "port": 80}},
    }
    file = str(tmp_path / "s.json.gz")
    with ServedCluster(tmp_path, nodes=2) as served:
        served.create(deployment, workload("db", 2, kind="StatefulSet")).settle()
        assert served("snapshot", "-o", file).status == 0
    for scale in ("deployment/web=6", "statefulset/db=4"):
        done = call("what-if", file, "--scale", scale, "-o", "json")
        summary = json.loads(done.out)["summary"]
        assert (summary["placed"], summary["displaced"]) == (2, 0), done.out


def test_speed(tmp_path: Path) -> None:
    """A tenth of 5,000 nodes and 50,000 pods takes less than a tenth of 5 s of CPU time, and the time
    that it takes to begin."""
    stamp = "2026-01-01T00:00:00Z"
    stored: list[dict[str, Any]] = []
    for i in range(500):
        raw = node(f"n{i}", "32")
        raw["metadata"] |= {"uid": f"n{i}", "creationTimestamp": stamp}
        stored.append(raw)
    for i in range(5000):
        raw = pod(f"p{i}", "1", nodeName=f"n{i % 500}", schedulerName="default-scheduler")
        raw["metadata"] |= {"uid": f"p{i}", "namespace": "default", "creationTimestamp": stamp}
        raw["status"] = {"phase": "Running", "startTime": stamp}
        stored.append(raw)
    path = tmp_path / "s.json.gz"
    write_snapshot(path, of_objects(stored, SnapshotHeader(time=1.8e9)))
    call("what-if", str(path), "--drain", "n1")  # imports
    begun = time.process_time()
    done = call("what-if", str(path), "-f", _file(tmp_path, "m.yaml", workload("new", 20)))
    took = time.process_time() - begun
    assert done.status == 0 and "20 placed" in done.out
    assert took < 1.5, took


def test_a_dump_without_resource_versions(tmp_path: Path) -> None:
    """Which tools that tidy dumps remove: its own objects can be applied to it."""
    raw = node("n1", "4")
    raw["metadata"] |= {"uid": "n1", "creationTimestamp": "2026-01-01T00:00:00Z"}
    dump = _file(tmp_path, "dump.yaml", raw)
    done = call("what-if", dump, "-f", dump, "-f", _file(tmp_path, "m.yaml", pod("new", "1")))
    assert done.status == 0, done.err
    assert "1 placed" in done.out
