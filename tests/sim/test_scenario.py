"""What is wrong with a scenario is found before anything runs, all at once, with its place."""

import json

import pytest

from harness.scenarios import NODE, documents, joined, pod_text, reservation_text, simulate, step_text
from holdfast.sim.scenario import read_scenario
from holdfast.snapshot.manifests import InvalidInput

EXPECT = "{apiVersion: sim.holdfast.io/v1alpha1, kind: Expect, %s}"


def problems(*parts: str) -> list[str]:
    with pytest.raises(InvalidInput) as refused:
        read_scenario(documents(joined(*parts)))
    return refused.value.problems


@pytest.mark.parametrize(
    ("document", "complaint"),
    [
        (pod_text("p", "one"), "Pod/default/p: spec.containers[0].resources.requests[cpu]: "),
        (
            pod_text("p", at="soon"),
            "Pod/default/p: metadata.annotations[sim.holdfast.io/at]: not a dur",
        ),
        (
            pod_text("p", at="-1s"),
            "Pod/default/p: metadata.annotations[sim.holdfast.io/at]: must not",
        ),
        (pod_text("p", run_for="1s"), "unknown annotation; did you mean sim.holdfast.io/runs-for?"),
        (
            reservation_text("r", metadata={"annotations": {"holdfast.io/start-at": "x"}}),
            "metadata.annotations[holdfast.io/start-at]: unknown annotation; did you mean "
            "holdfast.io/starts-at?",
        ),
        (
            "{apiVersion: kubescheduler.config.k8s.io/v1, kind: KubeSchedulerConfiguration}",
            "kind: a KubeSchedulerConfiguration is given with --config",
        ),
        (pod_text("p", at="5s", delete_at="4s"), "is before the object is created"),
        (pod_text("p", spec="priorityClassName: x"), "no PriorityClass with name x was found"),
        ("{apiVersion: v1, kind: Pood}", "kind: unknown kind 'Pood'; did you mean Pod?"),
        ("{apiVersion: v2, kind: Pod}", "apiVersion: no Pod in 'v2'; known: v1"),
        ("[1]", "expected an object, got a list"),
        (step_text("1s", "restart: kubelet"), "Step: restart: must be scheduler, got 'kubelet'"),
        (step_text("60", "restart: scheduler"), "Step: at: not a duration: '60' (write it as 90s"),
        (step_text("-1s", "restart: scheduler"), "Step: at: must not be negative"),
        (
            step_text("1s", "delete: {kind: Pod, name: p, namspace: x}"),
            "Step: delete.namspace: unknown field; did you mean namespace?",
        ),
        (step_text("1s", "delete: {kind: Pod}"), "Step: delete.name: is required"),
        (
            step_text("1s", "delete: {kind: Nod, name: n}"),
            "Step: delete.kind: unknown kind 'Nod'; did you mean",
        ),
        (step_text("1s", "patch: {kind: Pod, name: p}"), "Step: patch.merge: is required"),
        (step_text("1s", "delte: {}"), "Step: delte: unknown field; did you mean delete?"),
        (
            step_text("1s", "restart: scheduler, delete: {kind: Pod, name: p}"),
            "exactly one of apply, delete, patch, restart; got delete and restart",
        ),
        (step_text("1s", "metadata: {}"), "exactly one of apply, delete, patch, restart; got none"),
        (
            step_text("1s", f"apply: {pod_text('p', 'one')}"),
            "Pod/default/p: apply.spec.containers[0].resources.requests[cpu]",
        ),
        (
            step_text("1s", f"apply: {pod_text('p', at='2s')}"),
            "apply.metadata.annotations[sim.holdfast.io/at]: is not allowed in a Step",
        ),
        ("{kind: Step, at: 1s}", "Step: apiVersion: must be sim.holdfast.io/v1alpha1"),
        ("{apiVersion: sim.holdfast.io/v1alpha1, kind: Stop}", "kind: no Stop in sim.holdfast.io"),
        (EXPECT % "boundd: {}", "Expect: boundd: unknown field; did you mean bound?"),
        (EXPECT % "bound: [p]", "Expect: bound: expected a mapping of pods, got a list"),
        (EXPECT % "timeline: [{time: 1s}]", "Expect: timeline[0].time: unknown field"),
        (EXPECT % "timeline: [{t: x}]", "Expect: timeline[0].t: not a duration"),
    ],
)
def test_a_problem_is_reported_with_file_document_and_field(document: str, complaint: str) -> None:
    found = problems(NODE, document)
    assert len(found) == 1
    assert found[0].startswith("s.yaml: document 2, line 3: ")
    assert complaint in found[0]


def test_runs_for_is_for_pods_only() -> None:
    node = "{apiVersion: v1, kind: Node, metadata: {name: n, annotations: {%s: 1s}}}"
    found = problems(node % "sim.holdfast.io/runs-for")
    assert "Node/n: metadata.annotations[sim.holdfast.io/runs-for]: only pods can have this" in found[0]


def test_every_problem_of_every_document_is_listed() -> None:
    found = problems(
        pod_text("a", "one"), NODE, step_text("x", "restart: y"), pod_text("b", "-1", at="z")
    )
    assert [line.partition(",")[0] for line in found] == [
        "s.yaml: document 1",
        "s.yaml: document 3",
        "s.yaml: document 3",
        "s.yaml: document 4",
    ]


def test_nothing_at_all_is_a_problem_too() -> None:
    assert problems("") == ["no documents were given"]


def test_a_node_with_a_count_is_several() -> None:
    counted = (
        "{apiVersion: v1, kind: Node, metadata: {name: n, annotations: {sim.holdfast.io/count: '%s'}}}"
    )
    result = simulate(counted % 3)
    assert [raw["metadata"]["name"] for raw in result.objects if raw["kind"] == "Node"] == [
        "n-1",
        "n-2",
        "n-3",
    ]
    with pytest.raises(InvalidInput, match="count]: expected a number from 0 to 100000"):
        simulate(counted % "many")


def test_run_time_estimates_that_are_ignored_are_noted() -> None:
    def annotated(kind: str, name: str, **annotations: str) -> str:
        pod = {"containers": [{"name": "c", "image": "i"}], "restartPolicy": "Never"}
        given = {f"holdfast.io/{key.replace('_', '-')}": value for key, value in annotations.items()}
        metadata: dict[str, object] = {"name": name}
        if kind == "Pod":
            raw = {"apiVersion": "v1", "metadata": {**metadata, "annotations": given}, "spec": pod}
        else:
            template = {"metadata": {"annotations": given}, "spec": pod}
            raw = {"apiVersion": "batch/v1", "metadata": metadata, "spec": {"template": template}}
        return json.dumps({"kind": kind, **raw})

    pods = [
        annotated("Pod", "good", run_estimate="5m"),
        annotated("Pod", "a", run_estimate="5 minutes"),
    ]
    [note] = read_scenario(documents(joined(*pods, annotated("Job", "j", run_estimat="5m")))).notes
    assert note.startswith(
        "warning: run-time estimates are ignored: Pod/default/a: metadata.annotations["
    )
    assert "Job/default/j: spec.template.metadata.annotations[holdfast.io/run-estimat]: unknown" in note
    assert "good" not in note
