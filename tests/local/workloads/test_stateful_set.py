"""Pods with names that stay."""

from typing import Any

import pytest

from local.workloads.controlled_store import Cluster, image, workload

Raw = dict[str, Any]


def _set(replicas: int = 3, **spec: Any) -> Cluster:
    cluster = Cluster()
    cluster.create(workload("StatefulSet", "db", replicas=replicas, serviceName="db", **spec))
    cluster.settle()
    return cluster


def _run_until_done(cluster: Cluster) -> list[list[str]]:
    seen = []
    for _ in range(20):
        seen.append(cluster.names())
        waiting = [pod for pod in cluster.pods() if pod["status"]["phase"] == "Pending"]
        if not waiting:
            return seen
        cluster.run()
    raise AssertionError("does not end")


def test_one_after_the_other() -> None:
    cluster = _set()
    all_there = ["db-0", "db-1", "db-2"]
    assert _run_until_done(cluster) == [all_there[:1], all_there[:2], all_there, all_there]


def test_parallel_pod_management_creates_all_at_once() -> None:
    cluster = _set(podManagementPolicy="Parallel")
    assert cluster.names() == ["db-0", "db-1", "db-2"]


def test_down_from_the_highest_one_at_a_time() -> None:
    cluster = _set()
    _run_until_done(cluster)
    cluster.slow_to_stop = True
    cluster.patch("StatefulSet", "db", replicas=1)
    cluster.settle()
    going = [p["metadata"]["name"] for p in cluster.pods() if "deletionTimestamp" in p["metadata"]]
    assert going == ["db-2"]
    cluster.stop("db-2")
    cluster.stop("db-1")
    assert cluster.names() == ["db-0"]


def test_a_lost_pod_comes_back_under_its_name() -> None:
    cluster = _set()
    _run_until_done(cluster)
    before = cluster.get("Pod", "db-1")["metadata"]["uid"]
    cluster.delete("Pod", "db-1")
    cluster.settle()
    assert cluster.get("Pod", "db-1")["metadata"]["uid"] != before


@pytest.mark.parametrize("phase", ["Failed", "Succeeded"])
def test_a_pod_that_ended_is_recreated(phase: str) -> None:
    cluster = _set(1)
    cluster.run()
    cluster.end("db-0", phase)
    assert cluster.get("Pod", "db-0")["status"]["phase"] == "Pending"


def test_claims_stay_with_the_name() -> None:
    template = {"metadata": {"name": "data"}, "spec": {"accessModes": ["ReadWriteOnce"]}}
    cluster = _set(1, volumeClaimTemplates=[template])
    claim = cluster.get("PersistentVolumeClaim", "data-db-0")
    assert claim["status"] == {"phase": "Pending"}
    [volume] = cluster.get("Pod", "db-0")["spec"]["volumes"]
    assert volume == {"name": "data", "persistentVolumeClaim": {"claimName": "data-db-0"}}
    cluster.delete("Pod", "db-0")
    cluster.settle()
    assert cluster.get("PersistentVolumeClaim", "data-db-0") == claim


def test_a_claim_template_without_a_name_is_ignored() -> None:
    template = {"spec": {"accessModes": ["ReadWriteOnce"]}}
    cluster = _set(1, volumeClaimTemplates=[template])
    assert "volumes" not in cluster.get("Pod", "db-0")["spec"]


_CLAIM = {"metadata": {"name": "data"}, "spec": {"accessModes": ["ReadWriteOnce"]}}
RETENTION = {
    # whenScaled, whenDeleted: the claims after scaling from 3 to 1, and after deleting the set
    ("Retain", "Retain"): ([0, 1, 2], [0, 1, 2]),
    ("Delete", "Retain"): ([0], [0]),
    ("Retain", "Delete"): ([0, 1, 2], []),
    ("Delete", "Delete"): ([0], []),
}


def _claims(cluster: Cluster) -> list[int]:
    claims = cluster.store.list("", "PersistentVolumeClaim")
    return [int(each["metadata"]["name"].removeprefix("data-db-")) for each in claims]


@pytest.mark.parametrize(("scaled", "deleted"), RETENTION)
def test_claims_go_by_the_retention_policy(scaled: str, deleted: str) -> None:
    policy = {"whenScaled": scaled, "whenDeleted": deleted}
    cluster = _set(3, volumeClaimTemplates=[_CLAIM], persistentVolumeClaimRetentionPolicy=policy)
    _run_until_done(cluster)
    cluster.delete("Pod", "db-1")
    cluster.settle()
    _run_until_done(cluster)
    assert _claims(cluster) == [0, 1, 2]
    cluster.patch("StatefulSet", "db", replicas=1)
    cluster.settle()
    assert (cluster.names(), _claims(cluster)) == (["db-0"], RETENTION[scaled, deleted][0])
    cluster.delete("StatefulSet", "db")
    cluster.settle()
    assert (cluster.names(), _claims(cluster)) == ([], RETENTION[scaled, deleted][1])


def _claim_owners(cluster: Cluster, name: str = "data-db-0") -> list[str]:
    owners = cluster.get("PersistentVolumeClaim", name)["metadata"].get("ownerReferences") or ()
    return [f"{each['kind']}/{each['name']}" for each in owners]


def test_a_policy_that_changes_changes_the_owner_of_the_claims() -> None:
    cluster = _set(1, volumeClaimTemplates=[_CLAIM])
    assert _claim_owners(cluster) == []
    for policy, owners in (("Delete", ["StatefulSet/db"]), ("Retain", [])):
        changed = {"whenScaled": "Retain", "whenDeleted": policy}
        cluster.patch("StatefulSet", "db", persistentVolumeClaimRetentionPolicy=changed)
        cluster.settle()
        assert _claim_owners(cluster) == owners


def test_a_claim_of_another_controller_is_left_to_it() -> None:
    cluster = Cluster()
    owner = cluster.create(workload("ReplicaSet", "other", replicas=0))
    reference = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "other", "controller": True}
    metadata = {
        "name": "data-db-0",
        "ownerReferences": [{**reference, "uid": owner["metadata"]["uid"]}],
    }
    cluster.create(
        {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": metadata, "spec": {}}
    )
    policy = {"whenScaled": "Delete", "whenDeleted": "Delete"}
    spec = {"volumeClaimTemplates": [_CLAIM], "persistentVolumeClaimRetentionPolicy": policy}
    cluster.create(workload("StatefulSet", "db", replicas=1, serviceName="db", **spec))
    cluster.settle()
    assert _claim_owners(cluster) == ["ReplicaSet/other"]


def test_a_pod_waits_for_the_claim_of_its_predecessor_to_be_gone() -> None:
    policy = {"whenScaled": "Delete", "whenDeleted": "Retain"}
    cluster = _set(2, volumeClaimTemplates=[_CLAIM], persistentVolumeClaimRetentionPolicy=policy)
    _run_until_done(cluster)
    key = cluster.key("PersistentVolumeClaim", "data-db-1")
    claim = cluster.get("PersistentVolumeClaim", "data-db-1")
    kept = {**claim, "metadata": {**claim["metadata"], "finalizers": ["example.com/kept"]}}
    cluster.store.update(key, kept)
    cluster.patch("StatefulSet", "db", replicas=1)
    cluster.settle()
    cluster.patch("StatefulSet", "db", replicas=2)
    cluster.settle()
    assert cluster.names() == ["db-0"]
    cluster.store.delete(key)
    cluster.advance(1)
    assert (cluster.names(), _claims(cluster)) == (["db-0", "db-1"], [0, 1])


UPDATES = {
    "all": ({}, ["b", "b", "b"]),
    "from a partition up": (
        {"type": "RollingUpdate", "rollingUpdate": {"partition": 2}},
        ["a", "a", "b"],
    ),
    "when deleted": ({"type": "OnDelete"}, ["a", "a", "a"]),
}


@pytest.mark.parametrize("case", UPDATES)
def test_an_update(case: str) -> None:
    strategy, images = UPDATES[case]
    cluster = _set(updateStrategy=strategy)
    _run_until_done(cluster)
    new = image(cluster.get("StatefulSet", "db"), "b")
    cluster.patch("StatefulSet", "db", template=new)
    cluster.settle()
    for names in _run_until_done(cluster):
        assert len(names) >= 2
    assert [pod["spec"]["containers"][0]["image"] for pod in cluster.pods()] == images
    status = cluster.get("StatefulSet", "db")["status"]
    assert status["updatedReplicas" if "b" in images else "replicas"] == (images.count("b") or 3)
    assert (status["currentRevision"] == status["updateRevision"]) == (set(images) == {"b"})


def _revisions(cluster: Cluster) -> list[tuple[int, str]]:
    found = cluster.store.list("apps", "ControllerRevision")
    shown = [
        (each["revision"], each["data"]["spec"]["template"]["spec"]["containers"][0]["image"])
        for each in found
    ]
    return sorted(shown)


def _update(cluster: Cluster, name: str) -> None:
    cluster.patch("StatefulSet", "db", template=image(cluster.get("StatefulSet", "db"), name))
    cluster.settle()
    _run_until_done(cluster)


def test_templates_are_numbered_and_come_back_under_a_new_number() -> None:
    cluster = _set(1)
    _run_until_done(cluster)
    _update(cluster, "b")
    assert _revisions(cluster) == [(1, "a"), (2, "b")]
    _update(cluster, "a")
    assert _revisions(cluster) == [(2, "b"), (3, "a")]


def test_no_more_templates_are_kept_than_wanted() -> None:
    cluster = _set(1, revisionHistoryLimit=2)
    for name in ("b", "c", "d", "e"):
        _run_until_done(cluster)
        _update(cluster, name)
    assert _revisions(cluster) == [(3, "c"), (4, "d"), (5, "e")]


def test_below_the_partition_a_lost_pod_comes_back_as_it_was() -> None:
    cluster = _set(3, updateStrategy={"rollingUpdate": {"partition": 2}})
    _run_until_done(cluster)
    _update(cluster, "b")
    for name, expected in (("db-0", "a"), ("db-2", "b")):
        cluster.delete("Pod", name)
        cluster.settle()
        _run_until_done(cluster)
        assert cluster.get("Pod", name)["spec"]["containers"][0]["image"] == expected


def test_a_set_of_two_billion_comes_some_at_a_time() -> None:
    cluster = Cluster()
    most = 2**31 - 1
    cluster.create(
        workload("StatefulSet", "db", replicas=most, serviceName="db", podManagementPolicy="Parallel")
    )
    made = [0]
    while made[-1] < 300:
        for action in cluster.workloads.step(cluster.now) or ():
            cluster._carry_out(action)
        if len(cluster.names()) > made[-1]:
            made.append(len(cluster.names()))
    assert made == [0, 100, 200, 300]


def test_a_set_of_two_billion_lets_those_go_that_are_too_many() -> None:
    cluster = _set(replicas=3, podManagementPolicy="Parallel")
    cluster.run()
    ordinals = {"start": 2}
    cluster.patch("StatefulSet", "db", replicas=2**31 - 3, ordinals=ordinals)
    for action in cluster.workloads.step(cluster.now) or ():
        cluster._carry_out(action)
    assert "db-0" not in _staying(cluster) and "db-1" not in _staying(cluster)
    assert "db-2" in _staying(cluster)


def _staying(cluster: Cluster) -> list[str]:
    pods = cluster.pods()
    return [pod["metadata"]["name"] for pod in pods if not pod["metadata"].get("deletionTimestamp")]
