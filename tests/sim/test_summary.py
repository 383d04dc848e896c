"""The figures of a run."""

import pytest

from harness.scenarios import NODE, joined, pod_text, simulate
from holdfast.sim.summary import reasons_in


def test_the_figures_add_up() -> None:
    result = simulate(
        joined(NODE, pod_text("a", "4", runs_for="10s"), pod_text("b", "2"), pod_text("big", "9")),
        until=20,
    )
    summary = result.summary
    assert summary["objects"] == {"Pod": 3, "Node": 1, "Event": 4}
    assert summary["pods"] == {
        "created": 3,
        "bound": 2,
        "pending": 1,
        "unschedulable": 1,
        "gated": 0,
        "phases": {"Pending": 1, "Running": 1, "Succeeded": 1},
    }
    assert summary["wait"] == {"mean": 5.0, "max": 10.0, "median": 0.0, "p95": 10.0, "p99": 10.0}
    assert summary["nodes"] == {"total": 1, "used": 1, "peak": 1}
    assert summary["utilisation"] == {"cpu": {"mean": 0.75, "end": 0.5}}
    assert summary["unschedulable"] == {"Insufficient cpu": 1}


def test_utilisation_follows_nodes_that_come_and_go() -> None:
    gone = NODE.replace("name: n1", "name: n2, annotations: {sim.holdfast.io/delete-at: 10s}")
    result = simulate(joined(NODE, gone, pod_text("a", "4", spec="nodeName: n1")), until=20)
    assert result.summary["utilisation"]["cpu"] == {"mean": round(80 / 120, 6), "end": 1.0}


@pytest.mark.parametrize(
    ("message", "reasons"),
    [
        ("0/1 nodes are available: 1 Insufficient cpu.", ["Insufficient cpu"]),
        (
            "0/3 nodes are available: 1 Too many pods, 2 node(s) had untolerated taint(s). "
            "preemption: 0/3 nodes are available: 3 Preemption is not helpful for scheduling.",
            ["Too many pods", "node(s) had untolerated taint(s)"],
        ),
        ("no nodes available to schedule pods", ["no nodes available to schedule pods"]),
    ],
)
def test_reasons_are_read_off_the_message(message: str, reasons: list[str]) -> None:
    assert reasons_in(message) == reasons
