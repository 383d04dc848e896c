"""As many pods as asked for, and which of them go first."""

from collections.abc import Callable
from typing import Any

import pytest

from holdfast.api.times import format_time
from holdfast.local.workloads.lister import Ref
from holdfast.local.workloads.replica_set import first_to_go
from local.workloads.controlled_store import START, Cluster, condition, workload

Raw = dict[str, Any]


def _set(replicas: int | None, **spec: Any) -> Cluster:
    cluster = Cluster()
    cluster.create(workload("ReplicaSet", replicas=replicas, **spec))
    cluster.settle()
    return cluster


def _status(cluster: Cluster) -> Raw:
    status = dict(cluster.get("ReplicaSet", "web")["status"])
    assert (
        status.pop("observedGeneration") == cluster.get("ReplicaSet", "web")["metadata"]["generation"]
    )
    return status


@pytest.mark.parametrize(("given", "pods"), [(None, 1), (0, 0), (1, 1), (300, 300)])
def test_so_many_pods_are_made(given: int | None, pods: int) -> None:
    cluster = _set(given)
    assert len(cluster.pods(app="web")) == pods
    assert all(name.startswith("web-") and len(name) == len("web-xxxxx") for name in cluster.names())


@pytest.mark.parametrize(("before", "after"), [(3, 5), (5, 2), (2, 0), (0, 2), (3, 3)])
def test_scaling(before: int, after: int) -> None:
    cluster = _set(before)
    cluster.run()
    cluster.patch("ReplicaSet", "web", replicas=after)
    cluster.settle()
    assert len(cluster.pods()) == after
    assert _status(cluster).get("replicas") == after


def test_a_pod_has_a_controller_reference() -> None:
    cluster = _set(1)
    [pod] = cluster.pods()
    owner = cluster.get("ReplicaSet", "web")["metadata"]["uid"]
    assert pod["metadata"]["ownerReferences"] == [
        {
            "apiVersion": "apps/v1",
            "kind": "ReplicaSet",
            "name": "web",
            "uid": owner,
            "controller": True,
            "blockOwnerDeletion": True,
        }
    ]
    assert cluster.emitted == [
        f"ReplicaSet/web SuccessfulCreate Created pod: {pod['metadata']['name']}"
    ]


def test_status_counts_pods() -> None:
    cluster = _set(3)
    assert _status(cluster) == {"replicas": 3, "fullyLabeledReplicas": 3}
    cluster.run(cluster.names()[0])
    counts = {"replicas": 3, "fullyLabeledReplicas": 3, "readyReplicas": 1, "availableReplicas": 1}
    assert _status(cluster) == counts


def test_available_pods_have_been_ready_long_enough() -> None:
    cluster = _set(1, minReadySeconds=30)
    cluster.run()
    assert "availableReplicas" not in _status(cluster)
    cluster.advance(29)
    assert "availableReplicas" not in _status(cluster)
    cluster.advance(1)
    assert _status(cluster)["availableReplicas"] == 1


@pytest.mark.parametrize("phase", ["Succeeded", "Failed"])
def test_a_pod_that_ended_is_replaced(phase: str) -> None:
    cluster = _set(1)
    [first] = cluster.names()
    cluster.end(first, phase)
    assert len(cluster.names()) == 2
    assert _status(cluster)["replicas"] == 1


def test_a_deleted_pod_is_replaced_at_once() -> None:
    cluster = _set(1)
    cluster.slow_to_stop = True
    cluster.run()
    [first] = cluster.names()
    cluster.delete("Pod", first)
    cluster.settle()
    assert len(cluster.names()) == 2
    cluster.stop(first)
    assert len(cluster.names()) == 1


def _pod(name: str = "stray", **labels: str) -> Raw:
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "labels": labels},
        "spec": {"containers": [{"name": "c"}]},
    }


@pytest.mark.parametrize("first", ["the pod", "the set"])
def test_a_pod_without_owner_is_adopted(first: str) -> None:
    cluster = Cluster()
    if first == "the pod":
        cluster.create(_pod(app="web"))
        cluster.create(workload("ReplicaSet", replicas=1))
    else:
        cluster.create(workload("ReplicaSet", replicas=0))
        cluster.settle()
        cluster.create(_pod(app="web"))
        cluster.patch("ReplicaSet", "web", replicas=1)
    cluster.settle()
    assert cluster.names() == ["stray"]
    assert cluster.pods()[0]["metadata"]["ownerReferences"][0]["name"] == "web"


def test_a_stray_pod_too_many_goes() -> None:
    cluster = _set(1)
    cluster.run()
    cluster.create(_pod(app="web"))
    cluster.settle()
    assert "stray" not in cluster.names() and len(cluster.names()) == 1


def test_a_pod_that_no_longer_fits_is_let_go_and_replaced() -> None:
    cluster = _set(1)
    [first] = cluster.names()
    cluster.relabel("Pod", first, {"app": "other"})
    cluster.settle()
    assert cluster.names(app="other") == [first]
    assert cluster.pods(app="other")[0]["metadata"]["ownerReferences"] == []
    assert len(cluster.names(app="web")) == 1


def test_a_pod_of_another_controller_is_not_adopted() -> None:
    cluster = Cluster()
    cluster.create(workload("ReplicaSet", "other", replicas=1, selector={"matchLabels": {"x": "y"}}))
    cluster.create(workload("ReplicaSet", replicas=0))
    pod = _pod(app="web", x="y")
    pod["metadata"]["ownerReferences"] = []
    cluster.create(pod)
    cluster.settle()
    assert cluster.pods()[0]["metadata"]["ownerReferences"][0]["name"] in ("web", "other")


def test_a_failed_creation_is_reported_and_retried() -> None:
    cluster = Cluster()
    cluster.refuse = "no such priority class"
    cluster.create(workload("ReplicaSet", replicas=2))
    cluster.settle()
    failure = condition(cluster.get("ReplicaSet", "web"), "ReplicaFailure")
    assert (failure["reason"], failure["message"]) == ("FailedCreate", "no such priority class")
    event = "ReplicaSet/web FailedCreate Error creating: no such priority class"
    assert event in cluster.emitted
    cluster.refuse = ""
    cluster.advance(10)
    assert len(cluster.pods()) == 2
    assert "conditions" not in cluster.get("ReplicaSet", "web")["status"]


def _ranked(**fields: Any) -> Callable[[str], tuple[Ref, Raw]]:
    def make(name: str) -> tuple[Ref, Raw]:
        made = START - fields.get("age", 100)
        conditions = []
        if "ready_for" in fields:
            at = format_time(START - fields["ready_for"])
            conditions = [{"type": "Ready", "status": "True", "lastTransitionTime": at}]
        pod = {
            "metadata": {
                "name": name,
                "uid": name,
                "creationTimestamp": format_time(made),
                "annotations": {"controller.kubernetes.io/pod-deletion-cost": fields["cost"]}
                if "cost" in fields
                else {},
            },
            "spec": {"nodeName": fields.get("node", "n1")},
            "status": {
                "phase": fields.get("phase", "Running"),
                "conditions": conditions,
                "containerStatuses": [{"restartCount": fields.get("restarts", 0)}],
            },
        }
        return Ref("", "Pod", "default", name), pod

    return make


GOES_FIRST = {
    "without a node": (_ranked(node=""), _ranked()),
    "waiting": (_ranked(phase="Pending"), _ranked(phase="Running")),
    "not ready": (_ranked(), _ranked(ready_for=5)),
    "cheap": (_ranked(ready_for=50, cost="-1"), _ranked(ready_for=50)),
    "on a crowded node": (_ranked(ready_for=50, node="full"), _ranked(ready_for=50)),
    "ready for a short time": (_ranked(ready_for=5), _ranked(ready_for=50)),
    "often restarted": (_ranked(restarts=3), _ranked(restarts=1)),
    "young": (_ranked(age=5), _ranked(age=50)),
}


@pytest.mark.parametrize("case", GOES_FIRST)
def test_of_two_pods_goes_first(case: str) -> None:
    first, second = (make(name) for make, name in zip(GOES_FIRST[case], "ba", strict=True))
    crowd = [_ranked(node="full")(f"c{i}")[1] for i in range(3)]
    order = first_to_go([second, first], [*crowd, first[1], second[1]], START)
    assert [ref.name for ref, _ in order] == ["b", "a"]
