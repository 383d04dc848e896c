"""`holdfast explain` of kinds that schedulers do not read, from an API server and from a snapshot."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from harness.objects import Raw, migration, pod
from harness.served_cluster import ServedCluster, call

DB = {"key": "dedicated", "value": "db", "effect": "NoSchedule"}


def named(api_version: str, kind: str, name: str, spec: Raw) -> Raw:
    metadata = {"name": name, "namespace": "default"}
    return {"apiVersion": api_version, "kind": kind, "metadata": metadata, "spec": spec}


def template(app: str, cpu: str, **spec: object) -> Raw:
    container = {"name": "c", "image": "x", "resources": {"requests": {"cpu": cpu}}}
    return {"metadata": {"labels": {"app": app}}, "spec": {"containers": [container], **spec}}


OBJECTS = [
    named(
        "batch/v1",
        "CronJob",
        "nightly",
        {
            "schedule": "0 2 * * *",
            "suspend": True,
            "jobTemplate": {"spec": {"template": template("nightly", "1", restartPolicy="Never")}},
        },
    ),
    named(
        "apps/v1",
        "DaemonSet",
        "agent",
        {
            "selector": {"matchLabels": {"app": "agent"}},
            "template": template("agent", "1", nodeSelector={"pool": "gpu"}),
        },
    ),
    named(
        "v1",
        "PersistentVolumeClaim",
        "data",
        {
            "accessModes": ["ReadWriteOnce"],
            "storageClassName": "fsat",
            "resources": {"requests": {"storage": "1Gi"}},
        },
    ),
    pod("web", "2", memory="1Gi"),
]


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServedCluster]:
    """Two nodes, one of them tainted: nothing can be moved to it."""
    with ServedCluster(tmp_path_factory.mktemp("kinds"), nodes=2) as cluster:
        cluster.settle()
        cluster.merge("/api/v1/nodes/node-2", {"spec": {"taints": [DB]}})
        cluster.create(*OBJECTS).settle()
        cluster.create(migration(pod="web")).settle()
        yield cluster


SUMMARIES = {
    "cj/nightly": "It is suspended (spec.suspend), and starts no Jobs until it is resumed. "
    "It has never run.",
    "ds/agent": "It has no pods:",
    "pvc/data": "It is not bound to a volume. No pod uses it, and one that did would be pending:",
    "pmj/move": "It evicts pod default/web on node-1 once its reservation",
}


@pytest.fixture(scope="module")
def file(cluster: ServedCluster, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("snapshot") / "cluster.json"
    done = cluster("snapshot", "-o", str(path))
    assert done.status == 0, done.err
    return path


@pytest.mark.parametrize("which", SUMMARIES)
def test_from_an_api_server(cluster: ServedCluster, which: str) -> None:
    done = cluster("explain", which, "-o", "json")
    assert done.status == 0, done.err
    assert json.loads(done.out)["summary"].startswith(SUMMARIES[which])


@pytest.mark.parametrize("which", SUMMARIES)
def test_from_a_snapshot(cluster: ServedCluster, file: Path, which: str) -> None:
    """It gives the same answer, but for what depends on the time."""
    done = call("explain", which, "--snapshot", str(file), "-o", "json")
    assert done.status == 0, done.err
    found = json.loads(done.out)
    live = json.loads(cluster("explain", which, "-o", "json").out)
    assert found["summary"] == live["summary"]
    assert [each["change"]["actions"] for each in found["advice"]] == [
        each["change"]["actions"] for each in live["advice"]
    ]


def test_names_are_looked_up_as_for_other_kinds(cluster: ServedCluster) -> None:
    done = cluster("explain", "cronjob", "nightyl")
    assert done.err == (
        'Error from server (NotFound): cronjobs.batch "nightyl" not found; did you mean nightly?\n'
    )
