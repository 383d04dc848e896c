"""Commands that read a cluster answer the same from a snapshot of it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from harness.objects import pod, reservation
from harness.served_cluster import ServedCluster, call
from holdfast.cli.client import cluster_objects
from holdfast.cli.options import Where
from holdfast.snapshot.snapshot_file import write_snapshot


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServedCluster]:
    with ServedCluster(tmp_path_factory.mktemp("snapshot")) as cluster:
        cluster.create(
            reservation("peak", "6", allocateOnce=False, ttl="0s", app="web", memory="8Gi")
        ).settle()
        cluster.create(pod("web-0", "2", "web", memory="1Gi"), pod("big", "30", memory="1Gi")).settle()
        yield cluster


@pytest.fixture(scope="module")
def file(cluster: ServedCluster, tmp_path_factory: pytest.TempPathFactory) -> str:
    path = tmp_path_factory.mktemp("file") / "cluster.json.gz"
    write_snapshot(path, cluster_objects(Where(str(cluster.kubeconfig))))
    return str(path)


@pytest.mark.parametrize(
    "arguments",
    [
        ("get", "nodes", "-o", "name"),
        ("get", "nodes", "-o", "custom-columns=NAME:.metadata.name"),
        ("get", "rsv", "-o", "name"),
        ("get", "pods", "-A", "-l", "app=web", "-o", "name"),
        ("get", "pods", "--field-selector", "status.phase=Pending", "-o", "name"),
        ("get", "queue", "-A", "-o", "name"),
        ("get", "nodes", "node-9"),
        ("explain", "pod", "nobody"),
    ],
)
def test_a_snapshot_gives_the_answers_of_its_cluster(
    cluster: ServedCluster, file: str, arguments: tuple[str, ...]
) -> None:
    live, stored = cluster(*arguments), call(*arguments, "--snapshot", file)
    assert (stored.status, stored.out, stored.err) == (live.status, live.out, live.err)


def test_explain_says_the_same_but_for_events(cluster: ServedCluster, file: str) -> None:
    arguments = ("explain", "pod", "big", "-o", "json")
    live, stored = cluster(*arguments), call(*arguments, "--snapshot", file)
    assert stored.status == 0, stored.err
    expected, found = json.loads(live.out), json.loads(stored.out)
    assert expected.pop("events")
    assert found.pop("events", []) == []
    for answer in (expected, found):  # a snapshot has less of a pod, and so has a patch of it
        assert [advice.pop("change")["actions"] for advice in answer["advice"]] == [["Resize"]]
    assert found == expected


def test_ages_are_counted_to_the_time_of_the_snapshot(tmp_path: Path) -> None:
    path = tmp_path / "old.yaml"
    path.write_text(
        """
apiVersion: v1
kind: List
items:
- apiVersion: v1
  kind: Pod
  metadata: {name: a, creationTimestamp: "2020-01-01T00:00:00Z"}
  spec: {containers: [{name: c}]}
  status: {phase: Running, startTime: "2020-01-01T00:05:00Z"}
"""
    )
    done = call("get", "pods", "--snapshot", str(path), "--no-headers")
    assert done.out.split()[-1] == "5m"


def test_a_snapshot_cannot_be_watched(file: str) -> None:
    done = call("get", "nodes", "-w", "--snapshot", file)
    assert (done.status, done.err) == (1, "error: --watch: a snapshot does not change\n")


def test_a_file_that_is_not_there_is_named() -> None:
    done = call("get", "nodes", "--snapshot", "nowhere.json.gz")
    assert (done.status, done.err) == (1, "error: nowhere.json.gz: No such file or directory\n")


NODE = """
apiVersion: v1
kind: Node
metadata: {name: n1}
status:
  allocatable: {cpu: "8", memory: 32Gi, pods: "110", nvidia.com/gpu: "4", ephemeral-storage: 10Gi}
  conditions: [{type: Ready, status: "True"}]
"""
WAITING = """
---
apiVersion: v1
kind: Pod
metadata: {name: x, namespace: default, creationTimestamp: "2026-01-01T00:00:00Z"}
spec:
  nodeName: n1
  containers: [{name: c, resources: {requests: {cpu: "6", ephemeral-storage: 1Gi}}}]
status: {phase: Running}
---
apiVersion: scheduling.koordinator.sh/v1alpha1
kind: Reservation
metadata: {name: pre, uid: pre, creationTimestamp: "2026-01-01T00:00:00Z"}
spec:
  preAllocation: true
  owners: [{labelSelector: {matchLabels: {app: web}}}]
  template: {spec: {containers: [{name: c, resources: {requests: {cpu: "8", pods: "3"}}}]}}
status: {phase: Waiting, nodeName: n1}
"""


def test_nodes_fit_a_terminal_and_have_no_less_than_nothing_free(tmp_path: Path) -> None:
    path = tmp_path / "cluster.yaml"
    path.write_text(NODE + WAITING)
    done = call("get", "nodes", "--snapshot", str(path))
    header, row = done.rows()
    assert row[header.index("CPU-FREE")] == "0"
    assert row[header.index("GPU-FREE")] == "4"
    assert max(map(len, done.lines)) <= 120
    wide = call("get", "nodes", "-o", "wide", "--snapshot", str(path)).rows()[0]
    assert {"PODS-FREE", "NVIDIA.COM/GPU-FREE", "EPHEMERAL-STORAGE-FREE"} <= set(wide)
    assert not [each for each in wide if each.endswith("-LIMITS")], "no pod has a limit"
    explained = json.loads(call("explain", "node", "n1", "-o", "json", "--snapshot", str(path)).out)
    cpu, *others = explained["nodeCapacity"]
    assert cpu["free"] == "0"
    assert {each["limits"] for each in (cpu, *others)} == {""}


def test_a_file_without_namespaces_says_nothing_of_them(tmp_path: Path) -> None:
    path = tmp_path / "cluster.yaml"
    path.write_text(NODE)
    done = call("get", "pods", "-n", "default", "--snapshot", str(path))
    assert done.err == "No resources found in default namespace.\n"
