"""What happens at one moment, and what an update may and may not do."""

import pytest

from harness.scenarios import NODE, events, find, joined, pod_text, simulate, step_text
from holdfast.snapshot.manifests import InvalidInput

A = "Pod/default/a"
BORN = ["Created", "Bound", "Running"]


def patch(at: str, merge: str, name: str = "a") -> str:
    return step_text(at, f"patch: {{kind: Pod, name: {name}, merge: {merge}}}")


@pytest.mark.parametrize(
    "again",
    [step_text("5s", f"apply: {pod_text('a', '1')}"), pod_text("a", "1", at="5s")],
    ids=["step", "at"],
)
@pytest.mark.parametrize("first", [True, False])
def test_a_deletion_comes_before_creations_of_its_moment(again: str, first: bool) -> None:
    parts = [pod_text("a", "3", delete_at="5s"), again]
    result = simulate(joined(NODE, *(parts if first else reversed(parts))))
    assert events(result, A) == [
        *((0.0, event) for event in BORN),
        (5.0, "Deleted"),
        *((5.0, event) for event in BORN),
    ]


def test_a_pod_that_has_stopped_leaves_its_name_to_another_of_that_moment() -> None:
    text = joined(NODE, pod_text("a", delete_at="3s", stops_in="2s"), pod_text("a", at="5s"))
    assert events(simulate(text), A)[-4:] == [(5.0, event) for event in ("Deleted", *BORN)]


def test_an_end_comes_before_steps_of_its_moment() -> None:
    text = joined(step_text("5s", "delete: {kind: Pod, name: a}"), NODE, pod_text("a", runs_for="5s"))
    assert events(simulate(text), A)[-2:] == [(5.0, "Succeeded"), (5.0, "Deleted")]


def test_ends_and_deletions_go_in_the_order_of_documents() -> None:
    pods = [
        pod_text("c", runs_for="5s"),
        pod_text("a", delete_at="5s"),
        pod_text("b", at="1s", runs_for="4s"),
    ]
    result = simulate(joined(NODE, *pods))
    assert [(entry.object[-1], entry.event) for entry in result.timeline if entry.t == 5.0] == [
        ("c", "Succeeded"),
        ("a", "Deleted"),
        ("b", "Succeeded"),
    ]


def test_what_is_created_and_deleted_at_one_moment_is_there_for_steps() -> None:
    text = joined(
        NODE, pod_text("a", at="5s", delete_at="5s"), patch("5s", "{metadata: {labels: {x: y}}}")
    )
    assert events(simulate(text), A) == [(5.0, "Created"), (5.0, "Deleted")]


@pytest.mark.parametrize(
    ("annotations", "end"),
    [
        ({"runs_for": "6s", "delete_at": "5s", "stops_in": "10s"}, 6.0),
        ({"runs_for": "5s", "delete_at": "5s", "stops_in": "3s"}, 5.0),
        ({"runs_for": "4s", "delete_at": "9s", "stops_in": "3s"}, 9.0),
    ],
)
def test_timers_of_a_pod_that_is_gone_do_not_count(annotations: dict[str, str], end: float) -> None:
    result = simulate(joined(NODE, pod_text("a", "4", **annotations), pod_text("b", "4", at="1s")))
    assert result.end == end
    assert events(result, A)[-1] == (end, "Deleted")


def test_a_deletion_stated_for_what_is_gone_already_does_not_count() -> None:
    gone = step_text("5s", "delete: {kind: Pod, name: a}")
    assert simulate(joined(NODE, pod_text("a", delete_at="90s", runs_for="60s"), gone)).end == 5.0


@pytest.mark.parametrize(
    ("given", "merge", "deleted"),
    [
        ({}, "'7s'", [7.0]),
        ({"delete_at": "9s"}, "'7s'", [7.0]),
        ({"delete_at": "9s"}, "'20s'", [20.0]),
        ({"delete_at": "9s"}, "null", []),
        ({}, "'1s'", [3.0]),
    ],
)
def test_delete_at_may_be_patched(given: dict[str, str], merge: str, deleted: list[float]) -> None:
    merge = f"{{metadata: {{annotations: {{sim.holdfast.io/delete-at: {merge}}}}}}}"
    result = simulate(joined(NODE, pod_text("a", **given), patch("3s", merge)))
    assert [t for t, event in events(result, A) if event == "Deleted"] == deleted
    assert result.end == (deleted or [3.0])[0]


@pytest.mark.parametrize("phase", ["Failed", "Succeeded"])
@pytest.mark.parametrize("cpu", ["1", "8"], ids=["running", "pending"])
def test_an_end_that_is_written_is_an_end(phase: str, cpu: str) -> None:
    merge = f"{{status: {{phase: {phase}, message: so}}}}"
    result = simulate(joined(NODE, pod_text("a", cpu, runs_for="50s"), patch("3s", merge)))
    last = result.timeline[-1]
    assert (last.t, last.event, last.message) == (3.0, phase, "so")
    assert last.node == ("n1" if cpu == "1" else "")
    assert result.end == 3.0


def test_a_stopping_pod_whose_end_is_written_is_gone() -> None:
    stopping = pod_text("a", delete_at="2s", stops_in="20s")
    result = simulate(joined(NODE, stopping, patch("3s", "{status: {phase: Failed}}")))
    assert events(result, A)[-2:] == [(3.0, "Failed"), (3.0, "Deleted")]
    assert result.end == 3.0


SPEC = "schedulingGates: [{name: g}], tolerations: [{key: k, operator: Exists}]"
MAY_CHANGE = "pod updates may not change fields other than"
CONTAINERS = "containers: [{name: main, image: app, resources: {requests: {cpu: '2'}}}]"


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        (patch("5s", f"{{spec: {{{CONTAINERS}}}}}"), f"patch.merge.spec: Forbidden: {MAY_CHANGE}"),
        (
            step_text("5s", f"apply: {pod_text('a', '2', spec=SPEC)}"),
            f"apply.spec: Forbidden: {MAY_CHANGE}",
        ),
        (
            patch("5s", "{spec: {schedulingGates: [{name: g}, {name: h}]}}"),
            r"schedulingGates\[1\].name: F",
        ),
        (
            patch("5s", "{spec: {tolerations: []}}"),
            "spec.tolerations: Forbidden: existing toleration",
        ),
        (
            patch("5s", "{spec: null}"),
            "patch.merge.spec.containers: Forbidden: pod updates may",
        ),
    ],
    ids=["patched", "applied", "gate", "toleration", "no spec"],
)
def test_what_an_api_server_would_refuse(change: str, complaint: str) -> None:
    given = pod_text("a", spec=SPEC)
    with pytest.raises(InvalidInput, match=rf"s.yaml: document 3, line \d+: {A}: .*{complaint}"):
        simulate(joined(NODE, given, change))


def test_only_the_scheduler_sets_the_node() -> None:
    with pytest.raises(InvalidInput, match=f"patch.merge.spec: Forbidden: {MAY_CHANGE}"):
        simulate(joined(NODE, pod_text("a", "8"), patch("5s", "{spec: {nodeName: n1}}")))


@pytest.mark.parametrize(
    "merge",
    [
        "{metadata: {labels: {x: y}, annotations: {x: y}}}",
        "{spec: {schedulingGates: null}}",
        "{spec: {schedulingGates: [{name: h}]}}",
        "{spec: {tolerations: [{key: k}, {key: l}]}}",
        "{spec: {activeDeadlineSeconds: 7}}",
        "{spec: {containers: [{name: main, image: new, resources: {requests: {cpu: 1000m}}}]}}",
        "{status: {nominatedNodeName: n1}}",
    ],
)
def test_what_an_api_server_takes(merge: str) -> None:
    given = pod_text("a", spec="schedulingGates: [{name: g}, {name: h}], tolerations: [{key: k}]")
    assert find(simulate(joined(NODE, given, patch("5s", merge))), "Pod", "a")
