"""What has lost its owners goes."""

from typing import Any

import pytest

from local.workloads.controlled_store import Cluster, workload

Raw = dict[str, Any]


def _deployed() -> Cluster:
    cluster = Cluster()
    cluster.create(workload("Deployment", replicas=2))
    cluster.settle()
    cluster.run()
    return cluster


def _kinds(cluster: Cluster) -> list[str]:
    kinds = [("apps", "Deployment"), ("apps", "ReplicaSet"), ("", "Pod")]
    return [kind for group, kind in kinds for _ in cluster.store.list(group, kind)]


@pytest.mark.parametrize("propagation", ["Background", "Foreground"])
def test_pods_go_with_their_deployment(propagation: str) -> None:
    cluster = _deployed()
    cluster.delete("Deployment", "web", propagation)
    cluster.settle()
    assert _kinds(cluster) == []


def test_orphans_stay_and_are_adopted_again() -> None:
    cluster = _deployed()
    names = cluster.names()
    cluster.delete("Deployment", "web", "Orphan")
    cluster.settle()
    assert _kinds(cluster) == ["ReplicaSet", "Pod", "Pod"]
    cluster.create(workload("Deployment", replicas=2))
    cluster.settle()
    assert _kinds(cluster) == ["Deployment", "ReplicaSet", "Pod", "Pod"]
    assert cluster.names() == names


def test_in_the_foreground_the_owner_goes_last() -> None:
    cluster = _deployed()
    cluster.slow_to_stop = True
    cluster.delete("Deployment", "web", "Foreground")
    cluster.settle()
    assert _kinds(cluster) == ["Deployment", "ReplicaSet", "Pod", "Pod"]
    first, second = cluster.names()
    cluster.stop(first)
    assert _kinds(cluster) == ["Deployment", "ReplicaSet", "Pod"]
    cluster.stop(second)
    assert _kinds(cluster) == []


def _pod(owners: list[Raw]) -> Raw:
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "p", "ownerReferences": owners},
        "spec": {},
    }


def _reference(raw: Raw, uid: str = "") -> Raw:
    metadata = raw["metadata"]
    return {
        "apiVersion": raw["apiVersion"],
        "kind": raw["kind"],
        "name": metadata["name"],
        "uid": uid or metadata["uid"],
    }


def test_one_owner_that_stays_is_enough() -> None:
    cluster = Cluster()
    one, two = (cluster.create(workload("Job", name, suspend=True)) for name in ("one", "two"))
    cluster.create(_pod([_reference(one), _reference(two)]))
    cluster.settle()
    cluster.delete("Job", "one")
    cluster.settle()
    assert cluster.names() == ["p"]
    assert [each["name"] for each in cluster.pods()[0]["metadata"]["ownerReferences"]] == ["two"]
    cluster.delete("Job", "two")
    cluster.settle()
    assert cluster.names() == []


def test_an_owner_of_the_same_name_is_another_owner() -> None:
    cluster = Cluster()
    one = cluster.create(workload("Job", "one", suspend=True))
    cluster.create(_pod([_reference(one, uid="of-one-long-gone")]))
    cluster.settle()
    assert cluster.names() == []


def test_an_owner_outside_namespaces_counts() -> None:
    cluster = Cluster()
    node = cluster.create({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n"}, "spec": {}})
    cluster.create(_pod([_reference(node)]))
    cluster.settle()
    assert cluster.names() == ["p"]
    cluster.delete("Node", "n")
    cluster.settle()
    assert cluster.names() == []


def test_an_owner_outside_namespaces_goes_after_those_that_block_it() -> None:
    cluster = Cluster()
    cluster.slow_to_stop = True
    node = cluster.create({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n"}, "spec": {}})
    cluster.create(_pod([{**_reference(node), "blockOwnerDeletion": True}]))
    cluster.run("p")
    cluster.delete("Node", "n", "Foreground")
    cluster.settle()
    assert cluster.get("Node", "n")["metadata"]["finalizers"] == ["foregroundDeletion"]
    cluster.stop("p")
    assert cluster.store.count("", "Node") == 0


def test_an_owner_goes_when_its_last_dependent_has_another_owner() -> None:
    cluster = Cluster()
    cluster.slow_to_stop = True
    one, two = (cluster.create(workload("Job", name, suspend=True)) for name in ("one", "two"))
    cluster.create(_pod([{**_reference(one), "blockOwnerDeletion": True}]))
    cluster.run("p")
    cluster.delete("Job", "one", "Foreground")
    cluster.settle()
    key, pod = cluster.key("Pod", "p"), cluster.get("Pod", "p")
    metadata = {**pod["metadata"], "ownerReferences": [_reference(two)]}
    cluster.store.update(key, {**pod, "metadata": metadata})
    cluster.settle()
    assert [raw["metadata"]["name"] for raw in cluster.store.list("batch", "Job")] == ["two"]


def test_an_object_in_no_namespace_does_not_go_with_one_that_is_in_one() -> None:
    cluster = Cluster()
    job = cluster.create(workload("Job", "one", suspend=True))
    cluster.create(
        {
            "apiVersion": "v1",
            "kind": "Node",
            "metadata": {"name": "n", "ownerReferences": [_reference(job)]},
            "spec": {},
        }
    )
    cluster.settle()
    cluster.delete("Job", "one")
    cluster.settle()
    assert cluster.store.count("", "Node") == 1


def test_controllers_that_start_late_find_what_is_there() -> None:
    """As after a restart: every object is observed as new, and nothing needs to be done."""
    cluster = _deployed()
    before = cluster.store.revision
    from holdfast.local.workloads import Workloads

    cluster.workloads = Workloads(cluster.store)
    for kind in cluster.store.kinds():
        for raw in cluster.store.scan(*kind):
            key = (*kind, raw["metadata"].get("namespace", ""), raw["metadata"]["name"])
            cluster.workloads.changed(key, None, raw)
    cluster.settle()
    assert cluster.store.revision == before
    cluster.patch("Deployment", "web", replicas=3)
    cluster.settle()
    assert len(cluster.names()) == 3


@pytest.mark.parametrize("propagation", ["Background", "Foreground"])
def test_a_workload_that_makes_pods_without_end_can_be_deleted(propagation: str) -> None:
    cluster = Cluster()
    cluster.create(workload("Deployment", replicas=2**31 - 1))
    while len(cluster.names()) < 300:
        for action in cluster.workloads.step(cluster.now) or ():
            cluster._carry_out(action)
    cluster.delete("Deployment", "web", propagation)
    cluster.settle()
    assert _kinds(cluster) == []
