"""The figures of a run."""

from harness.scenarios import NODE, joined, pod_text, simulate


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
