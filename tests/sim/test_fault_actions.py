"""Bad things that happen to objects: the run goes on, and the state stays right throughout.

Every run checks the scheduler's state against the objects after each step, so that these end
without an error is what is tested."""

import pytest

from harness.scenarios import NODE, events, find, joined, pod_text, simulate, step_text
from holdfast.sim.simulated_cluster import InvariantBroken
from holdfast.snapshot.manifests import InvalidInput


def test_a_node_shrinking_below_its_use_disturbs_nothing_that_runs() -> None:
    shrink = "patch: {kind: Node, name: n1, merge: {status: {allocatable: {cpu: '1'}}}}"
    result = simulate(joined(NODE, pod_text("a", "3"), step_text("5s", shrink), pod_text("b", at="6s")))
    assert find(result, "Pod", "a")["status"]["phase"] == "Running"
    assert events(result, "Pod/default/b")[-1] == (6.0, "Unschedulable")


def test_pods_placed_by_others_may_oversell_a_node() -> None:
    result = simulate(joined(NODE, *(pod_text(f"p{i}", "3", spec="nodeName: n1") for i in range(3))))
    assert result.summary["utilisation"]["cpu"]["end"] == 2.25


def test_a_node_replaced_under_its_name_at_one_moment() -> None:
    again = "{apiVersion: v1, kind: Node, metadata: {name: n1}, status: {allocatable: {cpu: '1'}}}"
    text = joined(
        NODE,
        pod_text("p", "3"),
        step_text("5s", "delete: {kind: Node, name: n1}"),
        step_text("5s", f"apply: {again}"),
        pod_text("q", at="6s"),
    )
    result = simulate(text)
    assert events(result, "Pod/default/p")[-1] == (5.0, "Deleted")
    assert find(result, "Pod", "q")["spec"]["nodeName"] == "n1"


def test_a_pod_of_an_unknown_scheduler_is_not_scheduled() -> None:
    result = simulate(joined(NODE, pod_text("p", spec="schedulerName: someone-else")))
    assert events(result, "Pod/default/p") == [(0.0, "Created")]


@pytest.mark.parametrize("name", ["default-scheduler", "holdfast-scheduler"])
def test_both_scheduler_names_are_served(name: str) -> None:
    result = simulate(joined(NODE, pod_text("p", spec=f"schedulerName: {name}")))
    assert find(result, "Pod", "p")["spec"]["nodeName"] == "n1"


@pytest.mark.parametrize(
    ("what", "message"),
    [
        ("delete: {kind: Pod, name: gone}", "Pod/default/gone: delete: there is no such object"),
        ("patch: {kind: Node, name: n9, merge: {}}", "Node/n9: patch: there is no such object"),
        (
            "patch: {kind: Pod, name: p, merge: {spec: {nodeName: n2}}}",
            "Pod/default/p: patch.merge.spec: Forbidden: pod updates may not change fields other than",
        ),
        (
            "patch: {kind: Node, name: n1, merge: {status: {allocatable: {cpu: lots}}}}",
            r"Node/n1: patch.merge.status.allocatable\[cpu\]",
        ),
        (
            "patch: {kind: Node, name: n1, merge: {metadata: {name: n2}}}",
            'Node/n1: patch.merge.metadata.name: Invalid value: "n2": field is immutable',
        ),
    ],
)
def test_a_step_that_cannot_be_taken_ends_the_run(what: str, message: str) -> None:
    with pytest.raises(InvalidInput, match=f"s.yaml: document 3.*{message}.*at 5s"):
        simulate(joined(NODE, pod_text("p"), step_text("5s", what)))


def test_a_name_that_is_taken_cannot_be_given_again() -> None:
    with pytest.raises(InvalidInput, match=r"document 3.*Pod/default/p: already exists"):
        simulate(joined(NODE, pod_text("p"), pod_text("p", at="5s")))


def test_a_broken_invariant_is_reported_with_the_story_of_the_object(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A scheduler that forgets what its pods claim would sell the node twice."""
    from holdfast.scheduler.plugins.node_resources_fit import NodeResourcesFit

    monkeypatch.setattr(NodeResourcesFit, "filter", lambda self, cls: None)
    with pytest.raises(InvariantBroken) as broken:
        simulate(joined(NODE, pod_text("a", "3"), pod_text("b", "3")))
    assert "Node/n1: cpu: 3000 more on 3000 of 4000 for Pod/default/b" in broken.value.problems
    assert any("story of Pod/default/b" in line for line in broken.value.stories)


def test_a_scheduler_that_does_not_settle_is_stopped(monkeypatch: pytest.MonkeyPatch) -> None:
    from holdfast.scheduler.cluster.decisions import Emit, ObjectRef
    from holdfast.sim import simulation

    monkeypatch.setattr(simulation, "_ROUNDS_AT_ONCE", 50)
    emit = Emit(ObjectRef("Node", "", "n1", ""), "Normal", "Again", "and again")
    monkeypatch.setattr("holdfast.scheduler.scheduler.Scheduler.round", lambda self, now: [emit])
    with pytest.raises(InvariantBroken, match="the scheduler does not settle at 0s"):
        simulate(NODE)
