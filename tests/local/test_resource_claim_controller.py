"""Claims of pods: created from templates, released and deleted with their pods."""

from __future__ import annotations

from pathlib import Path
from random import Random
from typing import Any

import pytest

from harness.embedded_cluster import HandClock, SteppedCluster
from holdfast.local.claim_references import claim_key, used_claims
from holdfast.local.namespace_controller import GRACE
from holdfast.local.resource_claim_controller import generated_name
from holdfast.local.store import Key, Raw, open_store, pod_key

API = "resource.k8s.io/v1"
FINALIZER = "resource.kubernetes.io/delete-protection"
RESULT = {"request": "gpu", "driver": "d.io", "pool": "n", "device": "gpu-0"}
SPEC = {"devices": {"requests": [{"name": "gpu", "exactly": {"deviceClassName": "gpu"}}]}}


def template(it: SteppedCluster, name: str = "one", **metadata: Any) -> Raw:
    return it.create(
        {
            "apiVersion": API,
            "kind": "ResourceClaimTemplate",
            "metadata": {"name": name, "namespace": "default"},
            "spec": {"metadata": metadata, "spec": SPEC},
        }
    )


def claim(it: SteppedCluster, name: str, **metadata: Any) -> Key:
    given = {"name": name, "namespace": "default", **metadata}
    it.create(
        {"apiVersion": API, "kind": "ResourceClaim", "metadata": given, "spec": SPEC, "status": {}}
    )
    return claim_key("default", name)


def pod(it: SteppedCluster, name: str, *entries: Raw, **more: Any) -> Key:
    """Of a scheduler that is not there, so that the test itself allocates."""
    return it.create_pod(name, schedulerName="mine", resourceClaims=list(entries), **more)


BY_TEMPLATE = {"name": "gpu", "resourceClaimTemplateName": "one"}
BY_NAME = {"name": "gpu", "resourceClaimName": "shared"}


def made_for(it: SteppedCluster, key: Key) -> list[Key]:
    statuses = it.get(key)["status"].get("resourceClaimStatuses") or []
    return [claim_key(key.namespace, each["resourceClaimName"]) for each in statuses]


def allocate(it: SteppedCluster, key: Key, *pods: Key) -> None:
    """As a scheduler does."""
    consumers = [
        {"resource": "pods", "name": each.name, "uid": it.get(each)["metadata"]["uid"]} for each in pods
    ]
    status: Raw = {"allocation": {"devices": {"results": [RESULT]}}}
    if consumers:
        status["reservedFor"] = consumers
    it.update(key, metadata={"finalizers": [FINALIZER]}, status=status)


def reserved_for(it: SteppedCluster, key: Key) -> list[str]:
    return [each["name"] for each in it.get(key)["status"].get("reservedFor") or ()]


def cluster() -> SteppedCluster:
    it = SteppedCluster()
    it.create_node("n")
    return it


def test_a_claim_is_created_for_each_template() -> None:
    it = cluster()
    template(it, labels={"a": "b"}, annotations={"c": "d"})
    key = pod(it, "p", BY_TEMPLATE, {**BY_TEMPLATE, "name": "another"}, BY_NAME | {"name": "third"})
    another, made = made_for(it, key)
    raw = it.get(made)
    assert made.name.startswith("p-gpu-")
    assert another.name.startswith("p-another-")
    assert raw["spec"]["devices"]["requests"][0]["exactly"]["count"] == 1
    assert raw["metadata"]["labels"] == {"a": "b"}
    assert raw["metadata"]["annotations"] == {"c": "d", "resource.kubernetes.io/pod-claim-name": "gpu"}
    (owner,) = raw["metadata"]["ownerReferences"]
    assert (owner["kind"], owner["name"], owner["controller"]) == ("Pod", "p", True)


def test_a_missing_template_is_an_event_until_it_comes() -> None:
    it = cluster()
    key = pod(it, "p", BY_TEMPLATE)
    (event,) = it.store.scan("", "Event")
    assert event["reason"] == "FailedResourceClaimCreation"
    assert event["message"] == (
        'PodResourceClaim gpu: resource claim template "one": resourceclaimtemplate.resource.k8s.io '
        '"one" not found'
    )
    template(it)
    assert len(made_for(it, key)) == 1


def test_a_refused_claim_is_tried_again_when_the_namespace_changes() -> None:
    it = cluster()
    namespace = it.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "default"}})
    exactly = {"deviceClassName": "gpu", "adminAccess": True}
    spec = {"devices": {"requests": [{"name": "gpu", "exactly": exactly}]}}
    given = {"name": "one", "namespace": "default"}
    kind = {"apiVersion": API, "kind": "ResourceClaimTemplate"}
    it.create({**kind, "metadata": given, "spec": {"spec": spec}})
    key = pod(it, "p", BY_TEMPLATE)
    (event,) = it.store.scan("", "Event")
    assert "admin access to devices requires the" in event["message"]
    labels = {"resource.kubernetes.io/admin-access": "true"}
    it.update(Key("", "Namespace", "", namespace["metadata"]["name"]), metadata={"labels": labels})
    assert len(made_for(it, key)) == 1


def test_a_claim_that_was_deleted_is_created_again() -> None:
    it = cluster()
    template(it)
    key = pod(it, "p", BY_TEMPLATE)
    (first,) = made_for(it, key)
    it.delete(first)
    (second,) = made_for(it, key)
    assert second != first
    assert second in it.store


def test_a_claim_whose_pod_has_no_status_yet_is_found_again() -> None:
    it = cluster()
    template(it)
    key = pod(it, "p", BY_TEMPLATE)
    claims = made_for(it, key)
    it.update(key, status={"resourceClaimStatuses": []})
    assert made_for(it, key) == claims


@pytest.mark.parametrize(
    ("pod", "entry", "name"),
    [
        ("web", "gpu", "web-gpu-"),
        ("p" * 50, "gpu", "p" * 50 + "-gpu-"),
        ("p" * 60, "e" * 20, "p" * 41 + "-" + "e" * 13),
    ],
)
def test_names_of_claims(pod: str, entry: str, name: str) -> None:
    assert generated_name(pod, entry) == name


def test_a_claim_is_deallocated_when_its_last_pod_ends() -> None:
    it = cluster()
    key = claim(it, "shared")
    first, second = pod(it, "a", BY_NAME), pod(it, "b", BY_NAME)
    allocate(it, key, first, second)
    it.update(first, status={"phase": "Succeeded"})
    assert reserved_for(it, key) == ["b"]
    assert "allocation" in it.get(key)["status"]
    it.delete(second)
    assert it.get(key)["status"] == {}
    assert "finalizers" not in it.get(key)["metadata"]


def test_a_claim_that_was_never_reserved_keeps_its_allocation() -> None:
    it = cluster()
    key = claim(it, "held")
    allocate(it, key)
    it.delete(pod(it, "p", {"name": "gpu", "resourceClaimName": "held"}))
    assert "allocation" in it.get(key)["status"]


def test_a_deleted_claim_goes_when_nobody_uses_it() -> None:
    it = cluster()
    held, used = claim(it, "held"), claim(it, "shared")
    user = pod(it, "p", BY_NAME)
    allocate(it, held)
    allocate(it, used, user)
    for key in (held, used):
        it.update(key, metadata={"deletionTimestamp": it.clock.stamp()})
    assert held not in it.store
    assert reserved_for(it, used) == ["p"]
    it.delete(user)
    assert used not in it.store


def test_a_pod_of_the_same_name_does_not_keep_the_reservation() -> None:
    it = cluster()
    key = claim(it, "shared")
    user = pod(it, "p", BY_NAME)
    allocate(it, key, user)
    it.store.delete(user)
    pod(it, "p", BY_NAME)
    assert it.get(key)["status"] == {}


def test_entries_of_other_kinds_stay() -> None:
    it = cluster()
    key = claim(it, "shared")
    user = pod(it, "p", BY_NAME)
    allocate(it, key, user)
    group = {"apiGroup": "example.com", "resource": "jobs", "name": "j", "uid": "1"}
    consumers = [*it.get(key)["status"]["reservedFor"], group]
    it.update(key, status={"reservedFor": consumers})
    it.delete(user)
    assert it.get(key)["status"]["reservedFor"] == [group]
    assert "allocation" in it.get(key)["status"]


@pytest.mark.parametrize("end", ["ended", "deleted", "deleted before it had a node"])
def test_a_generated_claim_goes_with_its_pod(end: str) -> None:
    it = cluster()
    template(it)
    key = pod(it, "p", BY_TEMPLATE, finalizers=["example.com/wait"])
    (made,) = made_for(it, key)
    if end == "deleted before it had a node":
        it.update(key, metadata={"deletionTimestamp": it.clock.stamp()})
    else:
        allocate(it, made, key)
        it.update(key, spec={"nodeName": "n"})
        assert it.phase(key) == "Running"
        if end == "ended":
            it.update(key, status={"phase": "Failed"})
        else:
            it.delete(key)
    assert made not in it.store


def test_a_pod_bound_by_another_scheduler_gets_the_allocated_claim() -> None:
    it = cluster()
    key = claim(it, "shared")
    allocate(it, key)
    user = pod(it, "p", BY_NAME, nodeName="n")
    assert reserved_for(it, key) == ["p"]
    assert it.phase(user) == "Running"


def test_a_pod_waits_on_its_node_for_its_claims() -> None:
    it = cluster()
    user = pod(it, "p", BY_NAME, nodeName="n")
    assert it.phase(user) == "Pending"
    key = claim(it, "shared")
    assert it.phase(user) == "Pending"
    messages = [event["message"] for event in it.store.scan("", "Event")]
    prefix = "Failed to prepare dynamic resources: prepare dynamic resources: "
    uid, claim_uid = it.get(user)["metadata"]["uid"], it.get(key)["metadata"]["uid"]
    assert messages == [
        f'{prefix}fetch ResourceClaim shared: resourceclaims.resource.k8s.io "shared" not found',
        f"{prefix}pod p ({uid}) is not allowed to use ResourceClaim shared ({claim_uid})",
    ]
    allocate(it, key)
    assert it.phase(user) == "Running"


def test_a_claim_of_another_pod_of_this_name_is_not_used() -> None:
    it = cluster()
    template(it)
    claim(it, "old")
    user = pod(it, "p", BY_TEMPLATE)
    (made,) = made_for(it, user)
    entry = {"name": "gpu", "resourceClaimName": "old"}
    it.update(user, status={"resourceClaimStatuses": [entry]})
    allocate(it, claim_key("default", "old"))
    it.update(user, spec={"nodeName": "n"})
    assert it.phase(user) == "Pending"
    (event,) = it.store.scan("", "Event")
    why = "ResourceClaim default/old was not created for Pod default/p (Pod is not owner)"
    assert event["message"].endswith(why)
    allocate(it, made)
    it.update(user, status={"resourceClaimStatuses": [{**entry, "resourceClaimName": made.name}]})
    assert it.phase(user) == "Running"


def test_claims_are_released_after_a_restart(tmp_path: Path) -> None:
    clock = HandClock()
    store = open_store(tmp_path)
    it = SteppedCluster(store, clock)
    it.create_node("n")
    template(it)
    user, gone = pod(it, "p", BY_TEMPLATE), pod(it, "q", BY_NAME)
    (made,) = made_for(it, user)
    shared = claim(it, "shared")
    allocate(it, made, user)
    allocate(it, shared, gone)
    store.delete(gone)
    store.close()
    again = SteppedCluster(open_store(tmp_path), clock)
    assert again.get(shared)["status"] == {}
    assert reserved_for(again, made) == ["p"]
    again.delete(pod_key("default", "p"))
    assert made not in again.store


def test_a_namespace_with_claims_in_use_can_be_deleted() -> None:
    it = cluster()
    metadata = {"name": "x", "finalizers": []}
    it.create({"apiVersion": "v1", "kind": "Namespace", "metadata": metadata})
    given = {"name": "shared", "namespace": "x"}
    it.create(
        {"apiVersion": API, "kind": "ResourceClaim", "metadata": given, "spec": SPEC, "status": {}}
    )
    user = pod(it, "p", BY_NAME, namespace="x")
    allocate(it, claim_key("x", "shared"), user)
    it.update(Key("", "Namespace", "", "x"), metadata={"deletionTimestamp": it.clock.stamp()})
    it.after(GRACE + 1)
    assert [key for key in it.store.keys_in("x") if key.kind != "Event"] == []


def test_an_extended_resource_claim_is_released_with_its_pod() -> None:
    it = cluster()
    user = it.create_pod("p", schedulerName="mine")
    uid = it.get(user)["metadata"]["uid"]
    owner = {"apiVersion": "v1", "kind": "Pod", "name": "p", "uid": uid, "controller": True}
    key = claim(it, "p-extended", ownerReferences=[owner])
    allocate(it, key, user)
    it.update(user, status={"extendedResourceClaimStatus": {"resourceClaimName": "p-extended"}})
    it.update(user, status={"phase": "Succeeded"})
    assert key not in it.store


@pytest.mark.parametrize("seed", range(12))
def test_claims_follow_their_pods_whatever_happens(seed: int) -> None:
    """Random lives of pods and claims: after each step nothing is reserved for a pod that is gone,
    no claim outlives the pod it was made for, and every pod has its claims."""
    choose = Random(seed)
    it = cluster()
    template(it)
    claim(it, "shared")
    for number in range(25):
        pods = [each for each in it.store.scan("", "Pod") if each["status"]["phase"] != "Failed"]
        claims = [*it.store.scan("resource.k8s.io", "ResourceClaim")]
        what = choose.choice(
            ("create", "create", "allocate", "allocate", "bind", "end", "delete", "lose")
        )
        if what == "create":
            entries = [BY_TEMPLATE, {**BY_TEMPLATE, "name": "more"}, {**BY_NAME, "name": "shared"}]
            name = f"p{choose.randrange(8)}"
            if pod_key("default", name) not in it.store:
                pod(it, name, *choose.sample(entries, choose.randint(1, 3)))
        elif what == "allocate" and claims:
            _allocate_to_users(it, choose.choice(claims), pods)
        elif what == "lose" and claims:
            key = claim_key("default", choose.choice(claims)["metadata"]["name"])
            if key.name != "shared":
                it.cluster.world.objects.end(key)
                it.settle()
        elif pods and what != "lose":
            key = pod_key("default", choose.choice(pods)["metadata"]["name"])
            if what == "bind":
                it.update(key, spec={"nodeName": "n"})
            elif what == "end":
                it.update(key, status={"phase": "Failed"})
            elif what == "delete":
                it.delete(key)
        _check_claims(it, f"seed {seed}, step {number}: {what}")


def _allocate_to_users(it: SteppedCluster, raw: Raw, pods: list[Raw]) -> None:
    if raw["metadata"].get("deletionTimestamp"):
        return
    key = claim_key("default", raw["metadata"]["name"])
    users = [
        pod_key("default", each["metadata"]["name"])
        for each in pods
        if key.name in [name for name, _ in used_claims(each)]
    ]
    if users:
        allocate(it, key, *users)


def _check_claims(it: SteppedCluster, when: str) -> None:
    pods = {raw["metadata"]["uid"]: raw for raw in it.store.scan("", "Pod")}
    for raw in it.store.scan("resource.k8s.io", "ResourceClaim"):
        status, name = raw["status"], raw["metadata"]["name"]
        for consumer in status.get("reservedFor") or ():
            user = pods.get(consumer["uid"])
            assert user is not None and user["status"]["phase"] != "Failed", f"{when}: {name}"
            assert status.get("allocation"), f"{when}: {name}"
        if FINALIZER not in (raw["metadata"].get("finalizers") or ()):
            assert not raw["metadata"].get("deletionTimestamp"), f"{when}: {name}"
        for owner in raw["metadata"].get("ownerReferences") or ():
            assert pods[owner["uid"]]["status"]["phase"] != "Failed", f"{when}: {name}"
    for each in pods.values():
        if each["status"]["phase"] != "Failed":
            wanted = {entry["name"] for entry in each["spec"]["resourceClaims"]}
            made = {status["name"] for status in each["status"].get("resourceClaimStatuses") or ()}
            assert made == wanted - {"shared"}, f"{when}: {each['metadata']['name']}"
            for name, _ in used_claims(each):
                assert claim_key("default", name) in it.store, f"{when}: {name}"
