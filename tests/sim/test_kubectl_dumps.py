"""What `kubectl get -o yaml` prints is a scenario: its pods are not made again, what scheduling does
not read is skipped, and time goes on where the dump stopped."""

import itertools
import json
import random
from pathlib import Path
from typing import Any

import pytest

from harness.scenarios import NODE, documents, events, find, joined, pod_text, simulate, step_text
from holdfast.sim.scenario import read_scenario
from holdfast.sim.simulation import Result
from holdfast.snapshot.manifests import InvalidInput, load_files

Raw = dict[str, Any]

CONTAINERS = [{"name": "c", "resources": {"requests": {"cpu": "1"}}}]


def _list(*items: Raw) -> str:
    return json.dumps({"apiVersion": "v1", "kind": "List", "items": items})


def _node(name: str = "n1", cpu: str = "16") -> Raw:
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name},
        "status": {"allocatable": {"cpu": cpu}},
    }


def _by(kind: str, name: str, uid: str) -> list[Raw]:
    api_version = "batch/v1" if kind == "Job" else "apps/v1"
    owner = {"apiVersion": api_version, "kind": kind, "name": name, "uid": uid, "controller": True}
    return [owner if uid else {key: value for key, value in owner.items() if key != "uid"}]


def _pod(name: str, owners: list[Raw], **labels: str) -> Raw:
    metadata: Raw = {"name": name, "uid": f"u-{name}", "labels": {"app": "web", **labels}}
    if owners:
        metadata["ownerReferences"] = owners
    spec = {"nodeName": "n1", "containers": CONTAINERS}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}


def _workload(kind: str, name: str, uid: str = "", replicas: int = 2, **metadata: Any) -> Raw:
    labels = {"app": "web"}
    if kind == "ReplicaSet":
        labels["pod-template-hash"] = name.rpartition("-")[2]
    spec: Raw = {
        "template": {"metadata": {"labels": labels}, "spec": {"containers": CONTAINERS}},
    }
    if kind == "Job":
        spec |= {"parallelism": replicas, "completions": replicas}
        spec["template"]["spec"] = {"containers": CONTAINERS, "restartPolicy": "Never"}
    else:
        spec["selector"] = {"matchLabels": labels}
        if kind != "DaemonSet":
            spec["replicas"] = replicas
    given = {"name": name, "uid": uid, "labels": labels, **metadata}
    return {
        "apiVersion": "batch/v1" if kind == "Job" else "apps/v1",
        "kind": kind,
        "metadata": {key: value for key, value in given.items() if value},
        "spec": spec,
    }


def _rollout(*, uids: bool = True, set_uid: str = "r-1") -> list[Raw]:
    """A Deployment, its ReplicaSet and two pods."""
    of_deployment = _by("Deployment", "web", "d-1" if uids else "")
    of_set = _by("ReplicaSet", "web-abc", set_uid if uids else "")
    return [
        _pod("web-abc-1", of_set, **{"pod-template-hash": "abc"}),
        _pod("web-abc-2", of_set, **{"pod-template-hash": "abc"}),
        _workload("Deployment", "web", "d-1" if uids else ""),
        _workload("ReplicaSet", "web-abc", set_uid if uids else "", ownerReferences=of_deployment),
    ]


def _pods(result: Result) -> list[str]:
    return sorted(raw["metadata"]["name"] for raw in result.objects if raw["kind"] == "Pod")


@pytest.mark.parametrize("order", list(itertools.permutations(range(4))))
@pytest.mark.parametrize("uids", [True, False])
def test_pods_of_a_dump_are_not_made_again_in_any_order(order: tuple[int, ...], uids: bool) -> None:
    parts = _rollout(uids=uids)
    result = simulate(_list(_node(), *(parts[i] for i in order)))
    assert _pods(result) == ["web-abc-1", "web-abc-2"]
    assert result.summary["pods"]["created"] == 2
    assert find(result, "Deployment", "web")["status"]["readyReplicas"] == 2


def test_pods_are_not_made_again_when_only_owners_or_only_references_have_uids() -> None:
    by_name, by_uid = _rollout(uids=False), _rollout()
    for parts in (by_name[:2] + by_uid[2:], by_uid[:2] + by_name[2:]):
        assert _pods(simulate(_list(_node(), *parts))) == ["web-abc-1", "web-abc-2"]


@pytest.mark.parametrize("uids", [True, False])
@pytest.mark.parametrize("order", list(itertools.permutations(range(3))))
def test_pods_are_not_made_again_when_their_replica_set_is_not_in_the_dump(
    order: tuple[int, ...], uids: bool
) -> None:
    parts = _rollout(uids=uids)[:3]
    result = simulate(_list(_node(), *(parts[i] for i in order)))
    assert _pods(result) == ["web-abc-1", "web-abc-2"]
    made = find(result, "ReplicaSet", "web-abc")
    assert made["metadata"]["ownerReferences"][0]["name"] == "web"
    if uids:
        assert made["metadata"]["uid"] == "r-1"


@pytest.mark.parametrize("with_set", [True, False])
def test_pods_without_owner_references_are_adopted_by_their_labels(with_set: bool) -> None:
    parts = _rollout()
    for each in parts[:2]:
        del each["metadata"]["ownerReferences"]
    result = simulate(_list(_node(), *(parts if with_set else parts[:3])))
    assert _pods(result) == ["web-abc-1", "web-abc-2"]
    owner = find(result, "Pod", "web-abc-1")["metadata"]["ownerReferences"][0]
    assert (owner["kind"], owner["name"], owner["controller"]) == ("ReplicaSet", "web-abc", True)


def test_a_deployment_of_a_dump_can_be_scaled_both_ways() -> None:
    for replicas, left in ((4, 4), (1, 1), (0, 0)):
        merge = json.dumps({"spec": {"replicas": replicas}})
        patch = step_text("10s", f"patch: {{kind: Deployment, name: web, merge: {merge}}}")
        for parts in (_rollout(), _rollout()[:3]):
            assert len(_pods(simulate(joined(_list(_node(), *parts), patch)))) == left


def test_a_deployment_in_the_middle_of_an_update_goes_on_with_it() -> None:
    """Neither ReplicaSet is in the dump: the newer pods are of the present template."""
    old, new = _by("ReplicaSet", "web-old", "r-0"), _by("ReplicaSet", "web-new", "r-1")
    parts = [
        _pod("web-old-1", old, **{"pod-template-hash": "old"}),
        _pod("web-new-1", new, **{"pod-template-hash": "new"}),
        _workload("Deployment", "web", "d-1"),
    ]
    parts[0]["metadata"]["creationTimestamp"] = "2026-03-01T00:00:00Z"
    parts[1]["metadata"]["creationTimestamp"] = "2026-03-02T00:00:00Z"
    parts[0]["spec"]["containers"] = [{"name": "c", "image": "old"}]
    result = simulate(_list(_node(), *parts), until=60)
    names = _pods(result)
    assert len(names) == 2
    assert "web-new-1" in names
    assert "web-old-1" not in names


def test_two_deployments_of_a_namespace_keep_their_pods_apart() -> None:
    other = _workload("Deployment", "web-blue", "d-2", replicas=1)
    other["spec"]["selector"] = {"matchLabels": {"app": "web", "colour": "blue"}}
    other["spec"]["template"]["metadata"]["labels"] = {"app": "web", "colour": "blue"}
    blue = _by("ReplicaSet", "web-blue-x1", "r-2")
    pods = [
        *_rollout()[:2],
        _pod("web-blue-x1-1", blue, **{"pod-template-hash": "x1", "colour": "blue"}),
    ]
    result = simulate(_list(_node(), *pods, other, _workload("Deployment", "web", "d-1")))
    assert _pods(result) == ["web-abc-1", "web-abc-2", "web-blue-x1-1"]


@pytest.mark.parametrize("kind", ["ReplicaSet", "StatefulSet", "DaemonSet", "Job"])
@pytest.mark.parametrize("labelled", [True, False])
@pytest.mark.parametrize("uids", [True, False])
@pytest.mark.parametrize("first", ["pods", "owner"])
def test_pods_of_other_owners_are_not_made_again(
    kind: str, labelled: bool, uids: bool, first: str
) -> None:
    name = "web-abc" if kind == "ReplicaSet" else "web"
    revision = "web-5c9f" if kind == "StatefulSet" else "5c9f"
    labels = {"controller-revision-hash": revision} if labelled else {}
    if kind == "ReplicaSet":
        labels = {"pod-template-hash": "abc"}
    owners = _by(kind, name, "o-1" if uids else "")
    count = 1 if kind == "DaemonSet" else 2
    pods = [_pod(f"{name}-{i}", owners, **labels) for i in range(count)]
    owner = _workload(kind, name, "o-1" if uids else "")
    parts = [*pods, owner] if first == "pods" else [owner, *pods]
    result = simulate(_list(_node(), *parts), until=60)
    assert _pods(result) == [f"{name}-{i}" for i in range(count)]
    assert [each[1] for each in events(result, f"Pod/default/{name}-0")] == ["Created", "Running"]


@pytest.mark.parametrize(
    ("kind", "made"), [("ReplicaSet", 2), ("StatefulSet", 2), ("DaemonSet", 2), ("Job", 2)]
)
def test_every_owner_with_a_template_makes_its_pods(kind: str, made: int) -> None:
    result = simulate(_list(_node(), _node("n2"), _workload(kind, "web")))
    assert len(_pods(result)) == made
    assert all(raw["status"]["phase"] == "Running" for raw in result.objects if raw["kind"] == "Pod")


def test_pods_of_a_job_end_and_the_job_with_them() -> None:
    job = _workload("Job", "batch")
    job["spec"]["template"]["metadata"]["annotations"] = {"sim.holdfast.io/runs-for": "30s"}
    job["spec"]["completions"] = 4
    result = simulate(_list(_node(), job))
    assert result.end == 60.0
    conditions = find(result, "Job", "batch")["status"]["conditions"]
    assert "Complete" in [each["type"] for each in conditions]


def test_a_deleted_owner_takes_its_pods_along() -> None:
    delete = step_text("10s", "delete: {kind: Deployment, name: web}")
    for parts in (_rollout(), _rollout()[:3], _rollout(uids=False)):
        assert _pods(simulate(joined(_list(_node(), *parts), delete))) == []


def test_an_owner_without_a_template_is_there_to_be_referred_to() -> None:
    owner = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "metadata": {"name": "web-abc"}}
    parts = [_pod("web-abc-1", _by("ReplicaSet", "web-abc", "")), owner]
    scenario = read_scenario(documents(_list(_node(), *parts)))
    assert scenario.notes == ()
    assert _pods(simulate(_list(_node(), *parts))) == ["web-abc-1"]


def test_owners_that_create_no_pods_are_reported() -> None:
    controller = {
        "apiVersion": "v1",
        "kind": "ReplicationController",
        "metadata": {"name": "rc"},
        "spec": {"replicas": 1, "selector": {"a": "b"}},
    }
    bare = {"apiVersion": "apps/v1", "kind": "StatefulSet", "metadata": {"name": "x"}}
    volcano = {"apiVersion": "batch.volcano.sh/v1alpha1", "kind": "Job", "metadata": {"name": "v"}}
    scenario = read_scenario(documents(_list(_node(), controller, bare, volcano)))
    assert scenario.notes == (
        "no pods are created for: 1 Job.batch.volcano.sh, 1 ReplicationController, 1 StatefulSet",
    )


def _object(api_version: str, kind: str, name: str = "x") -> Raw:
    return {"apiVersion": api_version, "kind": kind, "metadata": {"name": name}}


def test_kinds_that_scheduling_does_not_read_are_skipped_and_counted() -> None:
    items = [
        _object("v1", "Secret"),
        _object("v1", "ConfigMap", "a"),
        _object("v1", "ConfigMap", "b"),
        _object("v1", "ServiceAccount"),
        _object("networking.k8s.io/v1", "Ingress"),
        _object("autoscaling/v2", "HorizontalPodAutoscaler"),
        _object("serving.knative.dev/v1", "Service"),
        _object("example.com/v1", "Widget"),
        _object("resource.k8s.io/v1beta1", "ResourceClaim"),
    ]
    scenario = read_scenario(documents(_list(_node(), *items)))
    assert scenario.notes == (
        "skipped: 2 ConfigMap, 1 HorizontalPodAutoscaler, 1 Ingress, 1 ResourceClaim, "
        "1 Secret, 1 Service.serving.knative.dev, 1 ServiceAccount, 1 Widget",
    )
    assert len(scenario.actions) == 1


@pytest.mark.parametrize(
    ("api_version", "kind", "complaint"),
    [
        ("v1", "Pood", "unknown kind 'Pood'; did you mean Pod?"),
        ("apps/v1", "Deploymnt", "unknown kind 'Deploymnt'; did you mean Deployment?"),
        ("apps/v1beta1", "Deployment", "no Deployment in 'apps/v1beta1'; known: apps/v1"),
        ("app/v1", "Deployment", "no Deployment in 'app/v1'; known: apps/v1"),
        ("extensions/v1beta1", "DaemonSet", "no DaemonSet in 'extensions/v1beta1'"),
        ("scheduling.koordinatr.sh/v1alpha1", "Reservation", "no Reservation in"),
        ("scheduling.x-k8s.io/v1alpha1", "PodGroup", "no PodGroup in"),
        ("scheduling.koordinator.sh/v1alpha1", "Reservaton", "did you mean Reservation?"),
        ("sim.holdfast.io/v1", "Stop", "unknown kind 'Stop'"),
    ],
)
def test_a_misspelt_kind_is_still_an_error(api_version: str, kind: str, complaint: str) -> None:
    with pytest.raises(InvalidInput) as refused:
        read_scenario(documents(joined(NODE, json.dumps(_object(api_version, kind)))))
    assert complaint in str(refused.value)


def test_lists_of_one_kind_and_lists_in_lists_are_taken_apart(tmp_path: Path) -> None:
    pods = {"apiVersion": "v1", "kind": "PodList", "items": [_without_kind(_pod("p", []))]}
    outer = {"apiVersion": "v1", "kind": "List", "items": [_node(), pods]}
    file = tmp_path / "l.json"
    file.write_text(json.dumps(outer))
    found = [each.data["kind"] for each in load_files([str(file)])]
    assert found == ["Node", "Pod"]


def _without_kind(raw: Raw) -> Raw:
    return {key: value for key, value in raw.items() if key not in ("apiVersion", "kind")}


RESERVATION = """
    apiVersion: scheduling.koordinator.sh/v1alpha1
    kind: Reservation
    metadata: {name: r, creationTimestamp: "2026-11-16T05:00:00Z"}
    spec:
      ttl: 1m
      owners: [{labelSelector: {matchLabels: {a: b}}}]
      template: {spec: {containers: [{name: c, resources: {requests: {cpu: "1"}}}]}}
"""


def test_time_starts_at_the_newest_time_of_the_input() -> None:
    result = simulate(joined(NODE, RESERVATION), until=120)
    assert (60.0, "Failed") in events(result, "Reservation/r")


def test_times_of_skipped_objects_count_too() -> None:
    late = _object("v1", "ConfigMap")
    late["metadata"]["creationTimestamp"] = "2026-11-16T05:02:00Z"
    result = simulate(joined(NODE, RESERVATION, json.dumps(late)), until=10)
    assert (0.0, "Failed") in events(result, "Reservation/r")


@pytest.mark.parametrize(
    ("metadata", "stamp"),
    [
        ({}, "2026-01-01T00:00:00Z"),
        ({"creationTimestamp": "2025-12-31T00:00:00Z"}, "2026-01-01T00:00:00Z"),
        ({"creationTimestamp": "2025-06-01T00:00:00Z", "resourceVersion": "7"}, "2025-06-01T00:00:00Z"),
        ({"creationTimestamp": "2026-06-01T00:00:00Z"}, "2026-06-01T00:00:00Z"),
    ],
)
def test_where_time_starts(metadata: Raw, stamp: str) -> None:
    """A hand-written time before 2026 sets the age of an object; it moves the start only of a dump."""
    given = _node("n2")
    given["metadata"] |= metadata
    result = simulate(joined(NODE, json.dumps(given)))
    assert find(result, "Node", "n1")["metadata"]["creationTimestamp"] == stamp


def test_a_deadline_of_a_running_pod_counts_from_when_it_started() -> None:
    running = _pod("old", [])
    running["metadata"]["creationTimestamp"] = "2026-06-01T00:10:00Z"
    running["spec"]["activeDeadlineSeconds"] = 900
    running["status"] = {"phase": "Running", "startTime": "2026-06-01T00:00:00Z"}
    result = simulate(_list(_node(), running))
    assert (300.0, "Failed") in events(result, "Pod/default/old")


def test_a_pod_of_a_dump_needs_no_priority_class() -> None:
    given = _pod("p", [])
    given["spec"] |= {"priorityClassName": "gone", "priority": 7}
    result = simulate(_list(_node(), given))
    assert find(result, "Pod", "p")["spec"]["priority"] == 7


def test_a_dump_simulated_twice_is_the_same() -> None:
    text = _list(_node(), *_rollout()[:3], _workload("Job", "batch"), _workload("DaemonSet", "agent"))
    first, second = simulate(text), simulate(text)
    assert first.objects == second.objects
    assert first.timeline == second.timeline


def test_fields_newer_than_this_version_are_no_reason_to_refuse_a_dump() -> None:
    given = _pod("p", [])
    given["metadata"]["resourceVersion"] = "7"
    given["spec"]["inventedIn2030"] = True
    scenario = read_scenario(documents(_list(_node(), given)))
    assert scenario.notes == ("ignored: fields this version does not know: Pod spec.inventedIn2030",)


def test_a_bare_pod_beside_a_deployment_stays_its_own() -> None:
    result = simulate(joined(_list(_node(), *_rollout()), pod_text("bare")))
    assert _pods(result) == ["bare", "web-abc-1", "web-abc-2"]


RUNTIME_CLASS = {
    "apiVersion": "node.k8s.io/v1",
    "kind": "RuntimeClass",
    "metadata": {"name": "kata"},
    "handler": "kata",
    "overhead": {"podFixed": {"cpu": "2"}},
    "scheduling": {
        "nodeSelector": {"kata": "yes"},
        "tolerations": [{"key": "kata", "operator": "Exists"}],
    },
}


def test_a_runtime_class_gives_its_pods_overhead_selector_and_tolerations() -> None:
    able = _node("n2")
    able["metadata"]["labels"] = {"kata": "yes"}
    able["spec"] = {"taints": [{"key": "kata", "effect": "NoSchedule"}]}
    able["status"] = {"allocatable": {"cpu": "5"}}
    first, second = (pod_text(name, spec="runtimeClassName: kata") for name in ("a", "b"))
    result = simulate(joined(first, second, _list(_node(), able, RUNTIME_CLASS)))
    a, b = find(result, "Pod", "a"), find(result, "Pod", "b")
    assert a["spec"]["nodeName"] == "n2"
    assert a["spec"]["overhead"] == {"cpu": "2"}
    assert "nodeName" not in b["spec"]  # 1 cpu and 2 of overhead each, of 5


def test_pods_made_of_a_template_get_it_too() -> None:
    owner = _workload("StatefulSet", "web", replicas=1)
    owner["spec"]["template"]["spec"] = {"containers": CONTAINERS, "runtimeClassName": "kata"}
    result = simulate(_list(_node(), owner, RUNTIME_CLASS))
    assert find(result, "Pod", "web-0")["spec"]["overhead"] == {"cpu": "2"}


def test_a_pod_at_odds_with_its_runtime_class_is_refused() -> None:
    for spec, complaint in (
        ("overhead: {cpu: '1'}", "Pod's Overhead doesn't match RuntimeClass's defined Overhead"),
        ("nodeSelector: {kata: 'no'}", "conflict: runtimeClass.scheduling.nodeSelector[kata] = yes"),
    ):
        given = pod_text("p", spec=f"runtimeClassName: kata, {spec}")
        with pytest.raises(InvalidInput) as refused:
            simulate(joined(NODE, json.dumps(RUNTIME_CLASS), given))
        assert complaint in str(refused.value)


def test_a_runtime_class_that_is_not_in_the_dump_is_no_reason_to_refuse_its_pods() -> None:
    result = simulate(joined(NODE, pod_text("p", spec="runtimeClassName: kata, overhead: {cpu: '1'}")))
    assert find(result, "Pod", "p")["spec"]["nodeName"] == "n1"


def test_a_step_that_applies_what_scheduling_does_not_read_is_skipped_too() -> None:
    scenario = read_scenario(documents(joined(NODE, step_text("1s", f"apply: {json.dumps(CONFIG)}"))))
    assert scenario.notes == ("skipped: 1 ConfigMap",)
    assert len(scenario.actions) == 1


CONFIG = _object("v1", "ConfigMap")


def test_a_pending_pod_of_a_dump_has_waited_since_it_was_created() -> None:
    """47 hours, of the 48 after which it starves."""
    running, big = _pod("running", []), _pod("big", [])
    running["metadata"]["creationTimestamp"] = "2026-06-02T23:00:00Z"
    big["metadata"]["creationTimestamp"] = "2026-06-01T00:00:00Z"
    big["spec"] = {"containers": [{"name": "c", "resources": {"requests": {"cpu": "16"}}}]}
    result = simulate(_list(_node(), running, big), until=7200)
    assert (3600.0, "Starving") in events(result, "Pod/default/big")


def test_managed_fields_are_part_of_a_dump() -> None:
    given = _pod("p", [])
    given["metadata"] |= {
        "resourceVersion": "7",
        "managedFields": [
            {
                "manager": "kubectl",
                "operation": "Update",
                "apiVersion": "v1",
                "time": "2026-06-01T00:00:00Z",
                "fieldsType": "FieldsV1",
                "fieldsV1": {"f:spec": {"f:containers": {}}},
            }
        ],
    }
    result = simulate(_list(_node(), given))
    assert find(result, "Node", "n1")["metadata"]["creationTimestamp"] == "2026-06-01T00:00:00Z"


def test_templates_whose_priority_class_is_not_in_the_dump_are_named() -> None:
    owner = _workload("Deployment", "web")
    owner["spec"]["template"]["spec"] = {"containers": CONTAINERS, "priorityClassName": "high"}
    scenario = read_scenario(documents(_list(_node(), owner)))
    assert scenario.notes == (
        "no pods can be created with PriorityClasses that do not exist: high (of "
        "Deployment/default/web)",
    )
    classes = {
        "apiVersion": "scheduling.k8s.io/v1",
        "kind": "PriorityClass",
        "metadata": {"name": "high"},
        "value": 7,
    }
    assert read_scenario(documents(_list(_node(), owner, classes))).notes == ()


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("left_out", [(), ("ReplicaSet", "ControllerRevision")])
def test_the_objects_of_a_run_are_a_dump_that_changes_nothing(
    seed: int, left_out: tuple[str, ...]
) -> None:
    chance = random.Random(seed)
    job = _workload("Job", "batch")
    job["spec"]["template"]["metadata"]["annotations"] = {"sim.holdfast.io/runs-for": "30s"}
    template = {"template": _workload("Deployment", "web")["spec"]["template"] | {"spec": {}}}
    template["template"]["spec"] = {"containers": [{"name": "c", "image": "newer"}]}
    patch = f"patch: {{kind: Deployment, name: web, merge: {json.dumps({'spec': template})}}}"
    first = simulate(
        joined(
            _list(
                _node("n1", "4"),
                _node("n2", "4"),
                _workload("Deployment", "web", replicas=3),
                _apart("StatefulSet", "db"),
                _apart("DaemonSet", "agent"),
                job,
            ),
            step_text("10s", patch),
        ),
        until=chance.choice([5, 10, 20, 60]),
    )
    items = [raw for raw in first.objects if raw["kind"] not in left_out]
    chance.shuffle(items)
    second = simulate(_list(*items), until=1)
    assert _pods(second) == _pods(first)
    assert not [each for each in second.timeline if each.event in ("Bound", "Deleted")]


def _apart(kind: str, app: str) -> Raw:
    """A workload with labels of its own."""
    raw = _workload(kind, app)
    raw["spec"]["selector"] = {"matchLabels": {"app": app}}
    raw["spec"]["template"]["metadata"]["labels"] = {"app": app}
    return raw


def test_revisions_that_the_controllers_make_are_not_in_the_timeline() -> None:
    """Those of the dump are skipped, so that they would be said to be created and skipped at once."""
    template = {"metadata": {"labels": {"app": "s"}}, "spec": {"containers": CONTAINERS}}
    spec = {"replicas": 1, "selector": {"matchLabels": {"app": "s"}}, "template": template}
    owner = {"apiVersion": "apps/v1", "kind": "StatefulSet", "metadata": {"name": "s"}, "spec": spec}
    result = simulate(_list(_node(), owner, _object("apps/v1", "ControllerRevision")))
    created = {each.object.partition("/")[0] for each in result.timeline if each.event == "Created"}
    assert created == {"Node", "StatefulSet", "Pod"}
