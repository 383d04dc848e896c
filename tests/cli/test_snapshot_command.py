"""`holdfast snapshot`: one file, from which a simulation goes on where the cluster was."""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from harness.objects import pod, reservation
from harness.served_cluster import Done, ServedCluster, call

Raw = dict[str, Any]


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServedCluster]:
    with ServedCluster(tmp_path_factory.mktemp("snapshot")) as cluster:
        cluster.create(reservation("peak", "6", allocateOnce=False, app="web")).settle()
        cluster.create(pod("web-0", "2", "web"), pod("big", "30")).settle()
        yield cluster


def _items(path: Path) -> list[Raw]:
    content = path.read_bytes()
    text = gzip.decompress(content) if path.name.endswith(".gz") else content
    items: list[Raw] = json.loads(text)["items"]
    return items


@pytest.mark.parametrize("name", ["c.json.gz", "c.json"])
def test_the_file_has_the_objects_that_scheduling_reads(
    cluster: ServedCluster, tmp_path: Path, name: str
) -> None:
    path = tmp_path / name
    done = cluster("snapshot", "-o", str(path))
    assert done.status == 0, done.err
    header, *objects = _items(path)
    assert header["kind"] == "Snapshot"
    kinds = {raw["kind"] for raw in objects}
    assert {"Node", "Pod", "Reservation", "Namespace"} <= kinds
    assert not kinds & {"Secret", "ConfigMap", "Event", "ServiceAccount", "Lease"}
    assert done.err.startswith(f"{path}: 2 nodes, 2 pods, ")
    assert path.stat().st_mode & 0o077 == 0, "for its owner only"


def test_the_simulation_goes_on_where_the_cluster_was(cluster: ServedCluster, tmp_path: Path) -> None:
    path = tmp_path / "c.json.gz"
    assert cluster("snapshot", "-o", str(path)).status == 0
    done = call("simulate", str(path), "--until", "1h", "-o", "json")
    assert done.status == 0, done.err
    timeline = json.loads(done.out)["timeline"]
    changes = {(each["object"], each["event"]) for each in timeline if each["t"] > 0}
    assert changes == set()
    placed = {
        raw["metadata"]["name"]: raw["spec"].get("nodeName")
        for raw in json.loads(done.out)["objects"]
        if raw["kind"] == "Pod"
    }
    assert placed["big"] is None
    assert placed["web-0"] == _node_of(cluster, "web-0")


def _node_of(cluster: ServedCluster, name: str) -> str:
    done: Done = cluster("get", "pods", name, "-o", "jsonpath={.spec.nodeName}")
    return done.out


def test_an_anonymized_file_has_other_names_and_the_same_answers(
    cluster: ServedCluster, tmp_path: Path
) -> None:
    plain, renamed = tmp_path / "plain.json", tmp_path / "renamed.json"
    assert cluster("snapshot", "-o", str(plain)).status == 0
    assert cluster("snapshot", "--anonymize", "-o", str(renamed)).status == 0
    assert _items(renamed)[0]["anonymized"] is True
    text = renamed.read_text()
    for name in ("node-1", "peak", "web", '"big"'):
        assert name in plain.read_text() and name not in text

    def rows(path: Path) -> list[list[str]]:
        done = call("get", "nodes", "--no-headers", "--snapshot", str(path))
        assert done.status == 0, done.err
        return [row[1:-1] for row in done.rows()]

    assert rows(renamed) == rows(plain)
    done = call("simulate", str(renamed), "--until", "1h", "-o", "json")
    assert done.status == 0, done.err
    assert {each["event"] for each in json.loads(done.out)["timeline"] if each["t"] > 0} == set()


def test_without_a_name_the_file_is_named_by_the_time(
    cluster: ServedCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    done = cluster("snapshot")
    (file,) = tmp_path.iterdir()
    assert file.name.startswith("snapshot-") and file.name.endswith(".json.gz")
    assert done.err.startswith(f"{file.name}: ")
    assert _items(file)


@pytest.mark.parametrize(
    ("target", "complaint"),
    [
        ("", "is a directory"),
        ("nowhere/c.json.gz", "no directory"),
    ],
)
def test_a_bad_target_is_refused_before_the_cluster_is_read(
    tmp_path: Path, target: str, complaint: str
) -> None:
    done = call("snapshot", "-o", str(tmp_path / target), "--kubeconfig", "/nonexistent")
    assert done.status == 1
    assert complaint in done.err


def test_an_unreachable_server_leaves_no_file(tmp_path: Path) -> None:
    done = call("snapshot", "-o", str(tmp_path / "c.json"), "--kubeconfig", str(tmp_path / "none"))
    assert done.status == 1
    assert done.err.startswith("error: ")
    assert list(tmp_path.iterdir()) == []
