"""A reservation made ahead of time goes where there will be room soonest, by what running pods say."""

import pytest

from harness.objects import Raw, node, pod, reservation
from harness.world import World

ESTIMATE = "holdfast.io/run-estimate"


def running(name: str, on: str, deadline: int = 0, estimate: str = "", cpu: str = "8") -> Raw:
    made = pod(name, cpu=cpu)
    made["spec"]["nodeName"] = on
    made["status"] = {"phase": "Running", "startTime": "2026-01-01T00:00:00Z"}
    if deadline:
        made["spec"]["activeDeadlineSeconds"] = deadline
    if estimate:
        made["metadata"]["annotations"] = {ESTIMATE: estimate}
    return made


def where(*pods: Raw, nodes: int = 3, cpu: str = "8") -> str:
    made = World(*(node(f"n{i}", cpu="8") for i in range(nodes)))
    made.put(*pods).put(reservation("ahead", cpu=cpu, preAllocation=True))
    return str(made.status("ahead")["nodeName"])


@pytest.mark.parametrize(
    ("pods", "chosen"),
    [
        ([running("a", "n0", 600), running("b", "n1", 60), running("c", "n2", 300)], "n1"),
        ([running("a", "n0", estimate="10m"), running("b", "n1", estimate="301s")], "n2"),
        ([running("a", "n0"), running("b", "n1"), running("c", "n2", 86400)], "n2"),
        (
            [running("a", "n0", 600, "30s"), running("b", "n1", 60), running("c", "n2", 300)],
            "n0",
        ),
        (
            [
                running("a", "n0", 30, cpu="4"),
                running("a2", "n0", 900, cpu="4"),
                running("b", "n1", 100, cpu="4"),
                running("b2", "n1", 200, cpu="4"),
                running("c", "n2", 300),
            ],
            "n1",
        ),
    ],
    ids=[
        "the first to end",
        "room at once comes first",
        "unknown comes last",
        "of two lengths the shorter",
        "the last one that has to end counts",
    ],
)
def test_where_capacity_comes_free_first(pods: list[Raw], chosen: str) -> None:
    assert where(*pods) == chosen


def test_only_those_that_have_to_go_are_waited_for() -> None:
    pods = [
        running("a", "n0", 30, cpu="4"),
        running("a2", "n0", cpu="4"),
        running("b", "n1", 100),
        running("c", "n2", 300),
    ]
    assert where(*pods, cpu="4") == "n0"


def test_where_nobody_knows_least_is_missing() -> None:
    assert where(running("a", "n0"), running("b", "n1", cpu="5"), running("c", "n2")) == "n1"
