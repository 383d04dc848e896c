"""Pods that request GPUs, or other resources, by a name that no node has."""

from __future__ import annotations

import pytest

from explanation.test_situations import Row, check, snapshot_of, world_of
from explanation.test_workloads import owned, selected, workload
from harness.objects import Raw, node, pod
from holdfast.explanation.explainer import explain

NVIDIA, AMD, PERCENT = "nvidia.com/gpu", "amd.com/gpu", "koordinator.sh/gpu"
CORE, RATIO = "koordinator.sh/gpu-core", "koordinator.sh/gpu-memory-ratio"


def having(**amounts: str) -> Raw:
    return node("n1", cpu="8", allocatable=amounts)


def asking(**amounts: str) -> Raw:
    return pod("p", requests={"cpu": "1", **amounts})


@pytest.mark.parametrize(
    ("has", "asks", "advice"),
    [
        ({PERCENT: "400"}, {NVIDIA: "2"}, f"request 200 {PERCENT} instead of 2 {NVIDIA}; then "),
        ({NVIDIA: "4"}, {PERCENT: "200"}, f"request 2 {NVIDIA} instead of 200 {PERCENT}; then "),
        ({NVIDIA: "4"}, {PERCENT: "50"}, f"request 1 {NVIDIA} instead of 50 {PERCENT}; then "),
        (
            {AMD: "4"},
            {NVIDIA: "2"},
            f"request 2 {AMD} instead of 2 {NVIDIA}, if its image is made for such GPUs; then ",
        ),
        (
            {NVIDIA: "4"},
            {CORE: "30", RATIO: "50"},
            f"request 1 {NVIDIA} instead of 30 {CORE} and 50 {RATIO}; then ",
        ),
        (
            {CORE: "400", RATIO: "400"},
            {NVIDIA: "1"},
            f"request 100 {CORE} and 100 {RATIO} instead of 1 {NVIDIA}; then ",
        ),
    ],
)
def test_gpus_by_the_name_that_nodes_have(
    has: dict[str, str], asks: dict[str, str], advice: str
) -> None:
    name = next(iter(asks))
    fact = f"no node has the resource {name}; nodes have {', '.join(has)}"
    row = Row([having(**has), asking(**asks)], [fact], ["CorrectResource", "AddNode"])
    report = check(row)
    assert report.advice[0].text.startswith(advice)


def test_fewer_gpus_by_the_name_that_nodes_have() -> None:
    row = Row([having(**{PERCENT: "200"}), asking(**{NVIDIA: "4"})], [], ["CorrectResource"])
    assert check(row).advice[0].text == (
        f"request 400 {PERCENT} instead of 4 {NVIDIA} and request at most 200 {PERCENT} instead of "
        "400; then it fits n1"
    )


def test_a_resource_that_no_node_has() -> None:
    row = Row([having(), asking(**{"example.com/fpga": "1"})], [], ["AddNode"])
    assert check(row).advice[0].text.startswith("add a node with example.com/fpga: 1 (tried as")


def test_no_node_is_added_for_a_misspelt_resource() -> None:
    check(Row([having(**{NVIDIA: "2"}), asking(**{"nvidia.con/gpu": "1"})], [], ["CorrectResource"]))


def test_a_new_node_has_enough_for_all_replicas() -> None:
    spec = pod("x", requests={"cpu": "1", NVIDIA: "1"})["spec"]
    top, sets = (selected(workload(kind, "web", 2)) for kind in ("Deployment", "ReplicaSet"))
    for each in (top, sets):
        each["spec"]["template"]["spec"] = spec
    pods = [
        pod(f"web-{i}", requests={"cpu": "1", NVIDIA: "1"}, metadata=owned("ReplicaSet", "web"))
        for i in range(2)
    ]
    report = explain(snapshot_of(world_of([having(), sets, *pods])), top)
    assert [each.text for each in report.advice] == [
        "add a node with nvidia.com/gpu: 2 (tried as new-node, like n1 without its pods); "
        "then both pods fit: new-node"
    ]
