"""The figures of a run."""

from harness.scenarios import NODE, joined, pod_text, simulate
from holdfast.sim.figures import figures
from holdfast.sim.report.page import run_page


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


def test_a_pod_that_is_invalid_for_the_scheduler_is_unschedulable() -> None:
    invalid = {"annotations": {"scheduling.koordinator.sh/reservation-affinity": "{"}}
    result = simulate(joined(NODE, pod_text("a"), pod_text("p", metadata=invalid)), until=20)
    pods, reasons = result.summary["pods"], result.summary["unschedulable"]
    assert (pods["pending"], pods["unschedulable"], sum(reasons.values())) == (1, 1, 1), reasons
    assert "reservation-affinity" in next(iter(reasons))
    shown = figures(result)
    assert (shown["pods pending"], shown["  unschedulable"]) == ("1", "1")


def test_no_wait_is_not_a_wait_of_0s() -> None:
    group = (
        "apiVersion: scheduling.volcano.sh/v1beta1\nkind: PodGroup\n"
        "metadata: {name: g}\nspec: {minMember: 1}\n"
    )
    mark = {"annotations": {"scheduling.k8s.io/group-name": "g"}}
    result = simulate(joined(NODE, group, pod_text("big", "9", metadata=mark)), until=20)
    nothing = dict.fromkeys(("mean", "max", "median", "p95", "p99"))
    assert result.summary["wait"] == nothing
    assert result.summary["jobs"] == {"created": 1, "ready": 0, "wait": nothing}
    shown = figures(result)
    assert shown["jobs ready"] == "0 of 1"
    assert {value for name, value in shown.items() if "wait" in name} == {"-"}


def test_utilisation_follows_nodes_that_come_and_go() -> None:
    gone = NODE.replace("name: n1", "name: n2, annotations: {sim.holdfast.io/delete-at: 10s}")
    result = simulate(joined(NODE, gone, pod_text("a", "4", spec="nodeName: n1")), until=20)
    assert result.summary["utilisation"]["cpu"] == {"mean": round(80 / 120, 6), "end": 1.0}


def test_a_pod_that_was_pending_before_the_start_has_waited_since_its_creation() -> None:
    """As in a dump, whose newest timestamp is the start."""

    def dumped(name: str, cpu: str, created: str, **more: str) -> str:
        stamp = {"creationTimestamp": f"2026-03-{created}:00:00Z", "resourceVersion": "1"}
        return pod_text(name, cpu, metadata=stamp, **more)

    result = simulate(
        joined(
            NODE,
            dumped("old", "3", "01T00", runs_for="1h", spec="nodeName: n1"),
            dumped("early", "3", "01T01"),
            dumped("new", "1", "02T23", spec="nodeName: n1"),
        ),
        until=7200,
        history=True,
    )
    assert result.waits == [47 * 3600]
    assert result.summary["wait"]["max"] == 47 * 3600
    waits = run_page("", None, result, ()).partition("Longest waits")[2]
    assert "default/early" in waits and "47h0m0s" in waits
