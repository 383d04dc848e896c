"""What becomes of pods once they have a node, or are deleted."""

import json

import pytest

from harness.scenarios import NODE, condition, events, find, joined, pod_text, simulate, step_text


def test_a_bound_pod_runs_at_once_and_ends_after_runs_for() -> None:
    result = simulate(joined(NODE, pod_text("p", at="2s", runs_for="10s")))
    assert events(result, "Pod/default/p") == [
        (2.0, "Created"),
        (2.0, "Bound"),
        (2.0, "Running"),
        (12.0, "Succeeded"),
    ]
    raw = find(result, "Pod", "p")
    assert raw["status"]["phase"] == "Succeeded"
    assert raw["status"]["startTime"] == "2026-01-01T00:00:02Z"
    assert condition(raw, "PodScheduled")["status"] == "True"
    assert condition(raw, "Ready") == {
        "type": "Ready",
        "status": "False",
        "reason": "PodCompleted",
        "lastTransitionTime": "2026-01-01T00:00:12Z",
    }


def test_a_pod_is_nominated_until_it_is_bound() -> None:
    there = pod_text("low", "4", "nodeName: n1", stops_in="10s")
    urgent = pod_text("high", "4", "priority: 100")
    waiting = find(simulate(joined(NODE, there, urgent), until=5), "Pod", "high")
    assert waiting["status"]["nominatedNodeName"] == "n1"
    bound = find(simulate(joined(NODE, there, urgent), until=20), "Pod", "high")
    assert bound["spec"]["nodeName"] == "n1"
    assert "nominatedNodeName" not in bound["status"]


def test_runs_for_counts_from_being_bound_not_from_creation() -> None:
    result = simulate(
        joined(NODE, pod_text("a", "4", runs_for="10s"), pod_text("b", "4", runs_for="5s"))
    )
    assert (15.0, "Succeeded") in events(result, "Pod/default/b")


def test_runs_for_counts_from_the_start_of_a_pod_that_runs_already() -> None:
    node = NODE.replace("metadata: {", 'metadata: {creationTimestamp: "2026-03-02T09:00:00Z", ')
    since = {"phase": "Running", "startTime": "2026-03-02T06:00:00Z"}
    created = {"creationTimestamp": "2026-03-02T06:00:00Z"}
    for runs_for, end in (("4h", 3600.0), ("1h", 0.0)):
        there = json.loads(pod_text("p", "1", "nodeName: n1", created, runs_for=runs_for))
        result = simulate(joined(node, json.dumps({**there, "status": since})), until=7200)
        assert (end, "Succeeded") in events(result, "Pod/default/p")


def test_a_pod_with_a_node_from_the_start_is_running_without_being_bound() -> None:
    result = simulate(joined(NODE, pod_text("p", spec="nodeName: n1", runs_for="5s")))
    assert events(result, "Pod/default/p") == [(0.0, "Created"), (0.0, "Running"), (5.0, "Succeeded")]


def test_a_pod_on_a_node_that_is_not_there_starts_when_the_node_comes() -> None:
    node = "{apiVersion: v1, kind: Node, metadata: {name: n2, annotations: {sim.holdfast.io/at: 9s}}}"
    result = simulate(joined(NODE, pod_text("p", spec="nodeName: n2"), node))
    assert events(result, "Pod/default/p") == [(0.0, "Created"), (9.0, "Running")]


def test_a_pod_on_a_node_that_never_comes_stays_pending() -> None:
    result = simulate(joined(NODE, pod_text("p", spec="nodeName: n2")))
    assert find(result, "Pod", "p")["status"]["phase"] == "Pending"


@pytest.mark.parametrize(
    ("deadline", "runs_for", "expected"),
    [
        (5, "10s", (5.0, "Failed")),
        (10, "5s", (5.0, "Succeeded")),
        (5, "5s", (5.0, "Succeeded")),
    ],
)
def test_the_deadline_and_runs_for_race(
    deadline: int, runs_for: str, expected: tuple[float, str]
) -> None:
    spec = f"activeDeadlineSeconds: {deadline}"
    result = simulate(joined(NODE, pod_text("p", spec=spec, runs_for=runs_for)))
    assert events(result, "Pod/default/p")[-1] == expected


def test_a_pod_past_its_deadline_has_the_reason_deadline_exceeded() -> None:
    raw = find(simulate(joined(NODE, pod_text("p", spec="activeDeadlineSeconds: 3"))), "Pod", "p")
    assert (raw["status"]["phase"], raw["status"]["reason"]) == ("Failed", "DeadlineExceeded")


@pytest.mark.parametrize(
    ("grace", "stops_in", "gone"),
    [("30", None, 10.0), ("30", "5s", 15.0), ("3", "1m", 13.0), ("0", "1m", 10.0)],
)
def test_a_deleted_pod_stops_within_its_grace_period(
    grace: str, stops_in: str | None, gone: float
) -> None:
    more = {"stops_in": stops_in} if stops_in else {}
    spec = f"terminationGracePeriodSeconds: {grace}"
    result = simulate(joined(NODE, pod_text("p", spec=spec, delete_at="10s", **more)))
    assert events(result, "Pod/default/p")[-1] == (gone, "Deleted")


def test_a_stopping_pod_is_marked_and_keeps_its_capacity() -> None:
    text = joined(
        NODE, pod_text("p", "4", delete_at="10s", stops_in="5s"), pod_text("next", "4", at="11s")
    )
    assert find(simulate(text, until=12), "Pod", "p")["metadata"]["deletionTimestamp"] == (
        "2026-01-01T00:00:40Z"
    )
    assert (15.0, "Bound") in events(simulate(text), "Pod/default/next")


def test_a_pod_that_ends_while_stopping_is_gone_at_once() -> None:
    text = joined(NODE, pod_text("p", runs_for="12s", delete_at="10s", stops_in="20s"))
    assert events(simulate(text), "Pod/default/p")[-2:] == [(12.0, "Succeeded"), (12.0, "Deleted")]


def test_a_name_given_again_belongs_to_another_pod() -> None:
    """The end planned for the first pod does not come to the second."""
    text = joined(
        NODE,
        pod_text("p", runs_for="20s", delete_at="10s"),
        pod_text("p", at="15s", runs_for="20s"),
    )
    assert events(simulate(text), "Pod/default/p")[-1] == (35.0, "Succeeded")


def test_pods_of_a_deleted_node_are_deleted_and_their_capacity_is_gone_with_it() -> None:
    text = joined(NODE, pod_text("p", stops_in="9s"), step_text("5s", "delete: {kind: Node, name: n1}"))
    result = simulate(text)
    assert events(result, "Pod/default/p")[-1] == (5.0, "Deleted")
    assert result.end == 5.0


def test_runs_for_can_be_given_later() -> None:
    merge = "{metadata: {annotations: {sim.holdfast.io/runs-for: 30s}}}"
    text = joined(
        NODE, pod_text("p"), step_text("10s", f"patch: {{kind: Pod, name: p, merge: {merge}}}")
    )
    assert events(simulate(text), "Pod/default/p")[-1] == (30.0, "Succeeded")


def test_pods_leave_a_node_tainted_noexecute_when_they_no_longer_tolerate_it() -> None:
    taint = "merge: {spec: {taints: [{key: k, effect: NoExecute}]}}"
    tolerating = "tolerations: [{key: k, operator: Exists, effect: NoExecute, tolerationSeconds: 7}]"
    result = simulate(
        joined(
            NODE,
            pod_text("leaves"),
            pod_text("stays", spec=tolerating),
            step_text("5s", f"patch: {{kind: Node, name: n1, {taint}}}"),
        )
    )
    assert events(result, "Pod/default/leaves")[-1] == (5.0, "Deleted")
    assert events(result, "Pod/default/stays")[-1] == (12.0, "Deleted")
