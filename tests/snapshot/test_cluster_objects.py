"""Objects of a cluster from files: which files, what is refused, and queries answered from them."""

import asyncio
import gzip
import json
from pathlib import Path
from typing import Any, cast

import pytest

from holdfast.api.kinds import KINDS
from holdfast.api.names import SIM_API
from holdfast.api.times import format_time, parse_time
from holdfast.kube.errors import ApiError
from holdfast.snapshot.cluster_objects import of_objects, read_files
from holdfast.snapshot.manifests import InvalidInput
from holdfast.snapshot.reader import take_snapshot
from holdfast.snapshot.snapshot_file import SnapshotWriter, write_snapshot
from holdfast.snapshot.snapshot_header import MissingKind, SnapshotHeader

Raw = dict[str, Any]
POD, NODE, QUEUE = (
    KINDS["v1", "Pod"],
    KINDS["v1", "Node"],
    KINDS["scheduling.volcano.sh/v1beta1", "Queue"],
)
TAKEN = parse_time("2026-03-01T10:00:00Z")


def _node(name: str) -> Raw:
    amounts = {"cpu": "4", "memory": "8Gi", "pods": "10"}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "uid": f"u-{name}", "creationTimestamp": "2026-02-01T00:00:00Z"},
        "status": {"allocatable": amounts, "capacity": amounts},
    }


def _pod(
    name: str, namespace: str = "shop", node: str = "", phase: str = "Running", **labels: str
) -> Raw:
    spec: Raw = {"containers": [{"name": "c", "image": "x", "resources": {"requests": {"cpu": "1"}}}]}
    if node:
        spec["nodeName"] = node
    metadata = {"name": name, "namespace": namespace, "uid": f"u-{name}", "labels": labels}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": metadata,
        "spec": spec,
        "status": {"phase": phase},
    }


OBJECTS = [_node("n1"), _pod("a", node="n1", app="web"), _pod("b", "other", phase="Pending")]
HEADER = SnapshotHeader(
    time=TAKEN,
    holdfast_version="9.9",
    server_version="v1.37.0",
    resource_version="17",
    not_permitted=(MissingKind("queues.scheduling.volcano.sh", "may not", "shares are ignored"),),
)


@pytest.mark.parametrize("name", ["c.json", "c.json.gz"])
def test_a_snapshot_file_is_read_as_it_was_written(tmp_path: Path, name: str) -> None:
    written = of_objects(OBJECTS, HEADER)
    write_snapshot(tmp_path / name, written)
    read = read_files([str(tmp_path / name)])
    assert read.objects == OBJECTS
    assert read.header == HEADER
    assert read.now == TAKEN
    assert read.warnings == ["not permitted to list queues.scheduling.volcano.sh; shares are ignored"]
    is_compressed = (tmp_path / name).read_bytes()[:2] == b"\x1f\x8b"
    assert is_compressed is name.endswith(".gz")


def test_a_snapshot_file_is_one_list_whose_first_item_is_the_header(tmp_path: Path) -> None:
    path = tmp_path / "c.json.gz"
    write_snapshot(path, of_objects(OBJECTS, HEADER))
    data = json.loads(gzip.decompress(path.read_bytes()))
    assert (data["apiVersion"], data["kind"], len(data["items"])) == ("v1", "List", 4)
    assert data["items"][0] == {
        "apiVersion": SIM_API,
        "kind": "Snapshot",
        "formatVersion": 1,
        "metadata": {"creationTimestamp": "2026-03-01T10:00:00Z"},
        "holdfastVersion": "9.9",
        "serverVersion": "v1.37.0",
        "resourceVersion": "17",
        "notPermitted": [
            {
                "resource": "queues.scheduling.volcano.sh",
                "message": "may not",
                "effect": "shares are ignored",
            }
        ],
    }


def test_a_damaged_snapshot_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "c.json"
    write_snapshot(path, of_objects(OBJECTS, HEADER))
    path.write_text(path.read_text().replace('"phase":"Running"', '"phase":Running'))
    with pytest.raises(InvalidInput, match=r"c\.json: document 1, line 1: not JSON"):
        read_files([str(path)])


def test_a_failed_write_leaves_the_file_that_was_there(tmp_path: Path) -> None:
    path = tmp_path / "c.json"
    path.write_text("before")
    writer = SnapshotWriter(compress=False)
    writer.add([_node("n1")])
    with pytest.raises(TypeError):
        writer.save(path, SnapshotHeader(time=TAKEN, server_version=cast(str, object())))
    assert path.read_text() == "before"
    assert [each.name for each in tmp_path.iterdir()] == ["c.json"]


def test_without_a_header_the_time_is_the_newest_that_objects_state(tmp_path: Path) -> None:
    late = _pod("late")
    late["status"]["startTime"] = "2026-02-03T04:05:06Z"
    late["metadata"]["deletionTimestamp"] = "2027-01-01T00:00:00Z"
    path = tmp_path / "d.json"
    path.write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": [_node("n1"), late]}))
    read = read_files([str(path)])
    assert format_time(read.now) == "2026-02-03T04:05:06Z"
    assert read.header is None


def test_several_files_are_one_cluster(tmp_path: Path) -> None:
    (tmp_path / "nodes.json").write_text(json.dumps(_node("n1")))
    with gzip.open(tmp_path / "pods.yaml.gz", "wt") as file:
        file.write(json.dumps(_pod("a")))
    read = read_files([str(tmp_path)])
    assert [raw["kind"] for raw in read.objects] == ["Node", "Pod"]


@pytest.mark.parametrize(
    ("content", "complaint"),
    [
        ("[1]", "expected an object"),
        ('{"kind": "Pod", "metadata": {"name": "x"}}', "apiVersion: is required"),
        ('{"apiVersion": "v1", "kind": "Pod"}', "metadata.name: is required"),
        ("", "no documents"),
        (
            f'{{"apiVersion": "{SIM_API}", "kind": "Snapshot", "formatVersion": 2}}',
            "formatVersion: 2 is of a later Holdfast; this one reads up to 1",
        ),
        (
            f'{{"apiVersion": "{SIM_API}", "kind": "Snapshot"}}',
            "metadata.creationTimestamp: not a time",
        ),
    ],
)
def test_what_is_no_snapshot_is_refused(tmp_path: Path, content: str, complaint: str) -> None:
    path = tmp_path / "x.yaml"
    path.write_text(content)
    with pytest.raises(InvalidInput, match=complaint):
        read_files([str(path)])


def test_a_damaged_file_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "c.json.gz"
    write_snapshot(path, of_objects(OBJECTS, HEADER))
    whole = path.read_bytes()
    for broken in (whole[:-10], whole[:20], whole[:30] + b"\0\0\0\0" + whole[34:]):
        path.write_bytes(broken)
        with pytest.raises(InvalidInput, match=r"c\.json\.gz: damaged gzip file"):
            read_files([str(path)])


@pytest.mark.parametrize(
    ("namespace", "selector", "fields", "found"),
    [
        ("", "", "", ["a", "b"]),
        ("shop", "", "", ["a"]),
        ("", "app=web", "", ["a"]),
        ("", "app!=web", "", ["b"]),
        ("", "", "status.phase!=Running", ["b"]),
        ("", "", "metadata.name=a,spec.nodeName=n1", ["a"]),
        ("none", "", "", []),
    ],
)
def test_queries_are_answered_as_by_a_server(
    namespace: str, selector: str, fields: str, found: list[str]
) -> None:
    reader = of_objects(OBJECTS, HEADER).lister()
    listed, _ = asyncio.run(reader.listed(POD, namespace, selector, fields))
    assert [raw["metadata"]["name"] for raw in listed] == found


def test_an_object_that_is_not_there_is_not_found() -> None:
    reader = of_objects(OBJECTS, HEADER).lister("shop")
    assert asyncio.run(reader.get(POD, "a", "shop"))["metadata"]["uid"] == "u-a"
    with pytest.raises(ApiError, match='pods "a" not found'):
        asyncio.run(reader.get(POD, "a", "other"))
    assert asyncio.run(reader.listed(QUEUE)) == ([], "")


def test_objects_written_by_hand_get_a_namespace_and_a_uid() -> None:
    raw = _pod("a", "")
    del raw["metadata"]["uid"], raw["metadata"]["namespace"]
    reader = of_objects([raw, _node("n1")], HEADER).lister()
    pod = asyncio.run(reader.get(POD, "a", "default"))
    assert pod["metadata"]["uid"]
    again = of_objects([raw], HEADER).lister()
    assert asyncio.run(again.get(POD, "a", "default"))["metadata"]["uid"] == pod["metadata"]["uid"]
    assert "namespace" not in asyncio.run(reader.get(NODE, "n1"))["metadata"]


def test_a_scheduler_is_fed_from_a_file_at_the_time_of_the_file() -> None:
    snapshot = asyncio.run(take_snapshot(of_objects(OBJECTS, HEADER).lister()))
    assert snapshot.now == TAKEN
    assert len(snapshot.cluster.pods) == 2
    assert snapshot.find(POD, "a", "shop") is not None
