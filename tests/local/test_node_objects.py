"""The nodes of `up`: `--nodes` with its sizes, `--node-file`, and a restart."""

from pathlib import Path
from typing import Any

import pytest

from harness.embedded_cluster import SteppedCluster
from holdfast.api import names
from holdfast.local.node_objects import NodeShape, device_of, new_node, read_nodes
from holdfast.local.setup import SchedulerFactory
from holdfast.local.store import Key, node_key
from holdfast.local.up import NotApplied, Up, UpSettings
from holdfast.snapshot.manifests import load_text

Raw = dict[str, Any]
SHARE = "koordinator.sh/gpu"
FILE = """
apiVersion: v1
kind: Node
metadata:
  name: small
  annotations: {sim.holdfast.io/count: "4", team: a}
  labels: {topology.kubernetes.io/zone: mine}
status: {capacity: {cpu: "2", memory: 4Gi}}
---
apiVersion: v1
kind: List
items:
- apiVersion: v1
  kind: Node
  metadata: {name: big}
  status: {allocatable: {cpu: "64", nvidia.com/gpu: 8}}
- {apiVersion: v1, kind: Node, metadata: {name: plain}}
"""


def _read(text: str, *taken: str) -> tuple[list[Raw], list[str]]:
    found = read_nodes(load_text(text, "f.yaml"), taken)
    return found.nodes, found.problems


def test_labels_that_a_real_node_has() -> None:
    labels = [new_node(number)["metadata"]["labels"] for number in range(1, 5)]
    assert [each[names.ZONE_LABEL] for each in labels] == ["zone-a", "zone-b", "zone-c", "zone-a"]
    assert {each[names.REGION_LABEL] for each in labels} == {"local"}
    assert labels[0][names.HOSTNAME_LABEL] == "node-1"
    assert (labels[0][names.ARCH_LABEL], labels[0][names.OS_LABEL]) == ("amd64", "linux")
    assert "nvidia.com/gpu.present" not in labels[0]


def test_sizes_of_the_flags() -> None:
    node = new_node(1, NodeShape("16", "64Gi", 4))
    assert (
        node["status"]["capacity"]
        == node["status"]["allocatable"]
        == {
            "cpu": "16",
            "memory": "64Gi",
            "ephemeral-storage": "100Gi",
            "pods": "110",
            "nvidia.com/gpu": "4",
        }
    )
    device = device_of(_created(node))
    assert device is not None
    gpus = device["spec"]["devices"]
    assert [gpu["minor"] for gpu in gpus] == [0, 1, 2, 3]
    assert [gpu["topology"]["nodeID"] for gpu in gpus] == [0, 0, 1, 1]
    assert len({gpu["id"] for gpu in gpus}) == 4
    assert device_of(new_node(1)) is None


def _created(node: Raw) -> Raw:
    return {**node, "metadata": {**node["metadata"], "uid": "u"}}


@pytest.mark.parametrize(
    ("shape", "flag"),
    [
        (NodeShape(cpu="lots"), "--node-cpu"),
        (NodeShape(cpu="0"), "--node-cpu"),
        (NodeShape(memory="-1Gi"), "--node-memory"),
        (NodeShape(memory="64GB"), "--node-memory"),
    ],
)
def test_a_wrong_size_names_its_flag(shape: NodeShape, flag: str) -> None:
    (problem,) = shape.problems()
    assert problem.startswith(f"{flag}: ")


def test_a_file_of_several_shapes() -> None:
    nodes, problems = _read(FILE)
    assert problems == []
    assert [node["metadata"]["name"] for node in nodes] == [
        "small-1",
        "small-2",
        "small-3",
        "small-4",
        "big",
        "plain",
    ]
    first, big, plain = nodes[0]["metadata"], nodes[4], nodes[5]
    assert first["annotations"] == {"team": "a"}
    assert first["labels"][names.ZONE_LABEL] == "mine"
    assert first["labels"][names.HOSTNAME_LABEL] == "small-1"
    assert big["metadata"]["labels"]["nvidia.com/gpu.present"] == "true"
    device = device_of(_created(big))
    assert device is not None
    assert len(device["spec"]["devices"]) == 8
    assert plain["metadata"]["labels"][names.ZONE_LABEL] == "zone-c"


def test_all_problems_of_a_node_are_reported_with_field_and_value() -> None:
    text = """
apiVersion: v1
kind: Node
metadata: {name: bad, annotations: {sim.holdfast.io/count: many}}
status: {capacity: {cpu: "4 cores"}, allocatable: {memory: 8GB}}
"""
    nodes, problems = _read(text)
    assert nodes == []
    assert [problem.partition("Node/bad: ")[2] for problem in problems] == [
        "status.capacity[cpu]: expected a quantity, such as 500m or 2Gi, got '4 cores'",
        "status.allocatable[memory]: expected a quantity, such as 500m or 2Gi, got '8GB'",
        "metadata.annotations[sim.holdfast.io/count]: expected a number from 0 to 100000, as a string",
    ]


NODE = "{apiVersion: v1, kind: Node, metadata: {name: n%s}%s}"
WRONG = {
    "another kind": (
        "{apiVersion: v1, kind: Pod, metadata: {name: p}}",
        "expected a Node of v1, not Pod",
    ),
    "no object": ("[1]", "expected a Node"),
    "a misspelt field": (
        NODE % ("", ", status: {capcity: {cpu: 1}}"),
        'unknown field "status.capcity"',
    ),
    "a quantity": (NODE % ("", ", status: {capacity: {cpu: lots}}"), "quantit"),
    "less than nothing": (NODE % ("", ", status: {capacity: {cpu: '-1'}}"), "status.capacity.cpu"),
    "a count that is no number": (
        NODE % (", annotations: {sim.holdfast.io/count: many}", ""),
        "metadata.annotations[sim.holdfast.io/count]: expected a number from 0 to 100000",
    ),
    "a count below 0": (
        NODE % (", annotations: {sim.holdfast.io/count: '-1'}", ""),
        "from 0 to 100000",
    ),
    "too many GPUs": (NODE % ("", ", status: {capacity: {nvidia.com/gpu: 65}}"), "at most 64, not 65"),
    "a name": ("{apiVersion: v1, kind: Node, metadata: {name: A_B}}", "metadata.name"),
    "no name": ("{apiVersion: v1, kind: Node, metadata: {}}", "metadata.name"),
    "one name twice": (
        NODE % ("", "") + "\n---\n" + NODE % ("", ""),
        "metadata.name: is also given by f.yaml: document 1",
    ),
    "a name of --nodes": ("{apiVersion: v1, kind: Node, metadata: {name: node-1}}", "given by --nodes"),
}


@pytest.mark.parametrize("case", WRONG)
def test_what_is_wrong_names_file_document_and_field(case: str) -> None:
    text, expected = WRONG[case]
    problem = _read(text, "node-1")[1][0]
    assert problem.startswith("f.yaml: document ")
    assert expected in problem


def _cpu(node: Raw) -> str | None:
    status = node.get("status", {})
    cpu: str | None = (status.get("allocatable") or status.get("capacity") or {}).get("cpu")
    return cpu


def _up(tmp_path: Path, **more: Any) -> Up:
    settings = UpSettings(SchedulerFactory.of(), tmp_path / "config", folder=tmp_path / "data", **more)
    (tmp_path / "data").mkdir(exist_ok=True)
    return Up(settings)


def test_after_a_restart_nodes_are_as_they_were(tmp_path: Path) -> None:
    first = _up(tmp_path, nodes=2, node_shape=NodeShape("4", "8Gi", 1))
    assert first.kept_nodes == 0
    first.store.close()
    documents = load_text(FILE, "f.yaml")
    second = _up(tmp_path, nodes=3, node_shape=NodeShape("16", "64Gi"), node_documents=documents)
    assert second.kept_nodes == 2
    cpus = {node["metadata"]["name"]: _cpu(node) for node in second.store.scan("", "Node")}
    assert (cpus["node-1"], cpus["node-3"], cpus["small-2"]) == ("4", "16", "2")
    devices = {each["metadata"]["name"] for each in second.store.scan(*_DEVICE)}
    assert devices == {"node-1", "node-2", "big"}
    second.store.close()


def test_a_wrong_file_stops_it(tmp_path: Path) -> None:
    documents = load_text("{apiVersion: v1, kind: Pod}", "f.yaml")
    with pytest.raises(NotApplied, match="expected a Node of v1, not Pod"):
        _up(tmp_path, node_documents=documents)


_DEVICE = ("scheduling.koordinator.sh", "Device")


def test_shares_and_whole_gpus_are_allocated() -> None:
    it = SteppedCluster()
    it.cluster.add_nodes(1, NodeShape("16", "64Gi", 2))
    it.settle()
    for name, requests in {
        "half": {SHARE: "50"},
        "whole": {"nvidia.com/gpu": "1"},
        "quarter": {SHARE: "25"},
        "two": {"nvidia.com/gpu": "1"},
    }.items():
        container = {"name": "c", "image": "i", "resources": {"limits": requests, "requests": requests}}
        it.create_pod(name, containers=[container])
    placed = {name: it.placed(Key("", "Pod", "default", name)) for name in ("half", "whole", "quarter")}
    assert set(placed.values()) == {"node-1"}
    assert not it.placed(Key("", "Pod", "default", "two"))
    node = it.get(node_key("node-1"))
    assert node["status"]["allocatable"]["nvidia.com/gpu"] == "2"
