"""What an API server would make of objects: identity, defaults, conditions, events."""

from typing import Any

import pytest

from harness.scenarios import NODE, condition, events, find, joined, pod_text, simulate, step_text
from holdfast.machinery.patch.json_patch import merge_patch
from holdfast.snapshot.manifests import InvalidInput


def test_given_metadata_is_kept_and_the_rest_is_filled_in() -> None:
    given = """
        apiVersion: v1
        kind: Pod
        metadata: {name: p, uid: mine, creationTimestamp: 2025-06-01T00:00:00Z, labels: {a: b}}
        spec: {containers: [{name: c, image: x, command: [sleep]}], dnsPolicy: None}
    """
    raw = find(simulate(joined(NODE, given)), "Pod", "p")
    assert raw["metadata"]["uid"] == "mine"
    assert raw["metadata"]["creationTimestamp"] == "2025-06-01T00:00:00Z"
    assert raw["metadata"]["namespace"] == "default"
    assert raw["spec"]["dnsPolicy"] == "None"
    (container,) = raw["spec"]["containers"]
    assert (container["image"], container["command"]) == ("x", ["sleep"])
    assert raw["spec"]["terminationGracePeriodSeconds"] == 30


def test_a_node_given_little_gets_the_rest_from_its_kubelet() -> None:
    node = "{apiVersion: v1, kind: Node, metadata: {name: n}, status: {capacity: {cpu: '2'}}}"
    raw = find(simulate(node), "Node", "n")
    assert raw["status"]["allocatable"] == raw["status"]["capacity"] == {"pods": "110", "cpu": "2"}
    assert raw["metadata"]["labels"] == {"kubernetes.io/hostname": "n"}


PRIORITY = "{apiVersion: scheduling.k8s.io/v1, kind: PriorityClass, metadata: {name: %s}, value: %d%s}"


@pytest.mark.parametrize(
    ("spec", "classes", "priority", "policy"),
    [
        ("priorityClassName: hi", [("hi", 7, ", preemptionPolicy: Never")], 7, "Never"),
        ("", [("d", 3, ", globalDefault: true"), ("hi", 7, "")], 3, "PreemptLowerPriority"),
        ("", [], 0, "PreemptLowerPriority"),
        ("priority: 5", [], 5, "PreemptLowerPriority"),
        ("priorityClassName: system-node-critical", [], 2_000_001_000, "PreemptLowerPriority"),
    ],
)
def test_priority_comes_from_the_class(
    spec: str, classes: list[tuple[str, int, str]], priority: int, policy: str
) -> None:
    text = joined(NODE, pod_text("p", spec=spec), *(PRIORITY % each for each in classes))
    made = find(simulate(text), "Pod", "p")["spec"]
    assert (made["priority"], made["preemptionPolicy"]) == (priority, policy)


def test_a_class_that_comes_too_late_is_no_class() -> None:
    late = PRIORITY.replace("{name: %s}", "{name: %s, annotations: {sim.holdfast.io/at: 5s}}")
    with pytest.raises(InvalidInput, match="no PriorityClass with name hi was found"):
        simulate(joined(NODE, pod_text("p", spec="priorityClassName: hi"), late % ("hi", 7, "")))


def test_generated_names_are_distinct_and_repeatable() -> None:
    text = joined(
        *["{apiVersion: v1, kind: Pod, metadata: {generateName: p-}, spec: {containers: [{name: c}]}}"]
        * 3
    )
    names = [raw["metadata"]["name"] for raw in simulate(text).objects if raw["kind"] == "Pod"]
    again = [raw["metadata"]["name"] for raw in simulate(text).objects if raw["kind"] == "Pod"]
    assert len(set(names)) == 3
    assert names == again


def test_the_condition_keeps_the_time_of_its_status_when_only_the_message_changes() -> None:
    node = "{apiVersion: v1, kind: Node, metadata: {name: n2, annotations: {sim.holdfast.io/at: 9s}}}"
    result = simulate(joined(NODE, pod_text("p", "8"), node))
    messages = [entry.message for entry in result.timeline if entry.event == "Unschedulable"]
    assert messages == [
        f"0/{n} nodes are available: {n} Insufficient cpu. preemption: 0/{n} nodes are available: "
        f"{n} Preemption is not helpful for scheduling."
        for n in (1, 2)
    ]
    found = condition(find(result, "Pod", "p"), "PodScheduled")
    assert found["lastTransitionTime"] == "2026-01-01T00:00:00Z"
    assert found["message"] == messages[-1]


def test_events_that_repeat_are_counted() -> None:
    text = joined(NODE, pod_text("p", "8"), step_text("5s", "restart: scheduler"))
    recorded = [raw for raw in simulate(text).objects if raw["kind"] == "Event"]
    assert [(e["reason"], e["count"], e["firstTimestamp"], e["lastTimestamp"]) for e in recorded] == [
        ("FailedScheduling", 2, "2026-01-01T00:00:00Z", "2026-01-01T00:00:05Z")
    ]


def test_a_gated_pod_has_the_reason_scheduling_gated() -> None:
    result = simulate(joined(NODE, pod_text("p", spec="schedulingGates: [{name: g}]")))
    found = condition(find(result, "Pod", "p"), "PodScheduled")
    assert found["reason"] == "SchedulingGated"
    assert found["message"] == "Scheduling is blocked due to non-empty scheduling gates"
    assert events(result, "Pod/default/p") == [(0.0, "Created")]


@pytest.mark.parametrize(
    ("target", "patch", "result"),
    [
        ({"a": 1}, {"a": 2}, {"a": 2}),
        ({"a": 1, "b": 2}, {"a": None}, {"b": 2}),
        ({"a": {"b": 1, "c": 2}}, {"a": {"b": None, "d": 3}}, {"a": {"c": 2, "d": 3}}),
        ({"a": [1, 2]}, {"a": [3]}, {"a": [3]}),
        ({}, {"a": {"b": None}}, {"a": {}}),
    ],
)
def test_merge_patch(target: Any, patch: Any, result: Any) -> None:
    assert merge_patch(target, patch) == result


def test_apply_removes_only_what_was_applied_before() -> None:
    labelled = "apiVersion: v1, kind: Node, metadata: {name: n1, labels: {%s}}"
    node = "{%s, status: {allocatable: {cpu: '1'}}}" % (labelled % "mine: a, also: b")
    theirs = step_text("3s", "patch: {kind: Node, name: n1, merge: {metadata: {labels: {theirs: c}}}}")
    again = step_text("5s", "apply: {%s}" % (labelled % "mine: d"))
    labels = find(simulate(joined(node, theirs, again)), "Node", "n1")["metadata"]["labels"]
    assert labels == {"kubernetes.io/hostname": "n1", "mine": "d", "theirs": "c"}


def test_apply_that_omits_a_map_keeps_what_others_wrote_in_it() -> None:
    node = "apiVersion: v1, kind: Node, metadata: {name: n1%s}"
    theirs = step_text("3s", "patch: {kind: Node, name: n1, merge: {metadata: {annotations: {b: x}}}}")
    again = step_text("5s", "apply: {%s}" % (node % ""))
    for annotations, kept in (("{}", {"b": "x"}), ("{a: y}", {"b": "x"}), ("{b: y}", {"b": "x"})):
        first = "{%s}" % (node % f", annotations: {annotations}")
        after = find(simulate(joined(first, theirs, again)), "Node", "n1")
        assert after["metadata"]["annotations"] == kept, annotations


def test_applying_again_changes_what_is_given_and_keeps_what_others_wrote() -> None:
    again = "apply: {apiVersion: v1, kind: Pod, metadata: {name: p, labels: {new: x}}, spec: " + (
        "{containers: [{name: main, image: app, resources: {requests: {cpu: '1'}}}]}}"
    )
    raw = find(simulate(joined(NODE, pod_text("p"), step_text("5s", again))), "Pod", "p")
    assert raw["metadata"]["labels"] == {"new": "x"}
    assert "annotations" not in raw["metadata"]
    assert raw["spec"]["nodeName"] == "n1"
    assert raw["status"]["phase"] == "Running"


def test_a_waiting_claim_gets_a_volume_that_its_pods_node_can_reach() -> None:
    storage = """
        apiVersion: storage.k8s.io/v1
        kind: StorageClass
        metadata: {name: local}
        provisioner: kubernetes.io/no-provisioner
        volumeBindingMode: WaitForFirstConsumer
        ---
        apiVersion: v1
        kind: PersistentVolumeClaim
        metadata: {name: data}
        spec:
          storageClassName: local
          accessModes: [ReadWriteOnce]
          resources: {requests: {storage: 5Gi}}
    """
    volume = """
        apiVersion: v1
        kind: PersistentVolume
        metadata: {name: %s}
        spec:
          storageClassName: local
          accessModes: [ReadWriteOnce]
          capacity: {storage: %s}
          nodeAffinity: {required: {nodeSelectorTerms: [{matchExpressions: [
            {key: kubernetes.io/hostname, operator: In, values: [%s]}]}]}}
    """
    uses = "volumes: [{name: v, persistentVolumeClaim: {claimName: data}}]"
    volumes = [("elsewhere", "5Gi", "n2"), ("small", "1Gi", "n1"), ("fits", "9Gi", "n1")]
    result = simulate(
        joined(NODE, storage, *(volume % each for each in volumes), pod_text("p", at="3s", spec=uses))
    )
    assert find(result, "PersistentVolumeClaim", "data")["spec"]["volumeName"] == "fits"
    bound = find(result, "PersistentVolume", "fits")
    assert bound["spec"]["claimRef"]["name"] == "data"
    assert bound["metadata"]["annotations"] == {"pv.kubernetes.io/bound-by-controller": "yes"}
    assert find(result, "PersistentVolume", "elsewhere")["status"]["phase"] == "Available"


@pytest.mark.parametrize(
    ("budget", "allowed"),
    [
        ("minAvailable: 1", 1),
        ("minAvailable: 50%", 1),
        ("maxUnavailable: 0", 0),
        ("maxUnavailable: 2", 2),
    ],
)
def test_a_budgets_status_is_computed_where_it_is_absent(budget: str, allowed: int) -> None:
    text = f"""
        apiVersion: policy/v1
        kind: PodDisruptionBudget
        metadata: {{name: b}}
        spec: {{selector: {{}}, {budget}}}
    """
    status = find(
        simulate(joined(NODE, text, pod_text("a"), pod_text("b"))), "PodDisruptionBudget", "b"
    )["status"]
    assert (status["currentHealthy"], status["expectedPods"]) == (2, 2)
    assert status["disruptionsAllowed"] == allowed


def test_a_budgets_status_is_taken_as_given() -> None:
    text = """
        apiVersion: policy/v1
        kind: PodDisruptionBudget
        metadata: {name: b}
        spec: {selector: {}, minAvailable: 1}
        status: {disruptionsAllowed: 5}
    """
    status = find(simulate(joined(NODE, text, pod_text("a"))), "PodDisruptionBudget", "b")["status"]
    assert status["disruptionsAllowed"] == 5


def test_a_more_important_pod_takes_the_place_of_another_once_that_is_gone() -> None:
    low = pod_text("low", "4", spec="priority: 1")
    result = simulate(joined(NODE, low, pod_text("high", "4", at="3s", spec="priority: 9")))
    happened = [(e.object, e.event) for e in result.timeline if e.event in ("Bound", "Deleted")]
    assert happened == [
        ("Pod/default/low", "Bound"),
        ("Pod/default/low", "Deleted"),
        ("Pod/default/high", "Bound"),
    ]
