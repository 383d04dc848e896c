"""Claims of PodGroups: one for all members, made, reserved and released with the group.

Also the finalizer that keeps a group while it has pods."""

from __future__ import annotations

from harness.embedded_cluster import SteppedCluster
from holdfast.local.claim_references import POD_GROUP, claim_key
from holdfast.local.store import Key, Raw

from .test_resource_claim_controller import (
    BY_NAME,
    BY_TEMPLATE,
    RESULT,
    allocate,
    claim,
    cluster,
    made_for,
    pod,
    reserved_for,
    template,
)

GROUP = {"schedulingGroup": {"podGroupName": "g"}}
FINALIZER = "scheduling.k8s.io/podgroup-protection"


def group(it: SteppedCluster, *entries: Raw, name: str = "g") -> Key:
    """As a user creates it."""
    it.cluster.world.objects.submit(
        {
            "apiVersion": "scheduling.k8s.io/v1beta1",
            "kind": "PodGroup",
            "metadata": {"name": name, "namespace": "default"},
            "spec": {"schedulingPolicy": {"basic": {}}, "resourceClaims": list(entries)},
        }
    )
    it.settle()
    return Key(*POD_GROUP, "default", name)


def delete(it: SteppedCluster, key: Key) -> None:
    """As the API server does: what has finalizers is marked."""
    it.cluster.world.objects.end(key)
    it.settle()


def consumers(it: SteppedCluster, key: Key) -> list[Raw]:
    return it.get(key)["status"].get("reservedFor") or []


def test_one_claim_is_made_for_a_group_and_its_members() -> None:
    it = cluster()
    template(it, labels={"a": "b"})
    its = group(it, BY_TEMPLATE)
    pods = [pod(it, name, BY_TEMPLATE, **GROUP) for name in ("p", "q")]
    (made,) = it.store.scan("resource.k8s.io", "ResourceClaim")
    assert made["metadata"]["generateName"] == "g-gpu-"
    assert made["metadata"]["labels"] == {"a": "b"}
    assert made["metadata"]["annotations"] == {"resource.kubernetes.io/pod-claim-name": "gpu"}
    assert made["metadata"]["ownerReferences"] == [
        {
            "apiVersion": "scheduling.k8s.io/v1beta1",
            "kind": "PodGroup",
            "name": "g",
            "uid": it.get(its)["metadata"]["uid"],
            "controller": True,
        }
    ]
    key = claim_key("default", made["metadata"]["name"])
    assert [made_for(it, each) for each in (its, *pods)] == [[key]] * 3


def test_an_entry_that_differs_from_that_of_the_group_is_the_pods_own() -> None:
    it = cluster()
    template(it)
    template(it, "other")
    its = group(it, BY_TEMPLATE)
    own = {"name": "gpu", "resourceClaimTemplateName": "other"}
    key = pod(it, "p", own, **GROUP)
    (made,) = made_for(it, key)
    assert it.get(made)["metadata"]["ownerReferences"][0]["kind"] == "Pod"
    assert made not in made_for(it, its)


def test_a_pod_gets_its_claims_when_its_group_exists() -> None:
    it = cluster()
    template(it)
    shared = pod(it, "p", BY_TEMPLATE, **GROUP)
    own = pod(it, "q", {**BY_TEMPLATE, "name": "own"}, **GROUP)
    assert made_for(it, shared) == made_for(it, own) == []
    its = group(it, BY_TEMPLATE)
    assert made_for(it, shared) == made_for(it, its) != []
    assert len(made_for(it, own)) == 1


def test_a_template_that_is_missing_is_reported_and_used_once_it_is_there() -> None:
    it = cluster()
    its = group(it, BY_TEMPLATE)
    (event,) = it.store.scan("", "Event")
    assert event["reason"] == "FailedResourceClaimCreation"
    assert event["involvedObject"]["kind"] == "PodGroup"
    assert event["message"] == (
        'PodGroupResourceClaim gpu: resource claim template "one": '
        'resourceclaimtemplate.resource.k8s.io "one" not found'
    )
    template(it)
    assert len(made_for(it, its)) == 1


def test_a_claim_that_was_deleted_is_made_again_for_the_group_and_its_members() -> None:
    it = cluster()
    template(it)
    its = group(it, BY_TEMPLATE)
    key = pod(it, "p", BY_TEMPLATE, **GROUP)
    (first,) = made_for(it, its)
    it.delete(first)
    (second,) = made_for(it, its)
    assert second != first
    assert made_for(it, key) == [second]


def test_a_claim_is_reserved_for_the_group_of_a_pod_that_others_bound() -> None:
    it = cluster()
    template(it)
    claim(it, "shared")
    its = group(it, BY_TEMPLATE, BY_NAME | {"name": "named"})
    key = pod(it, "p", BY_TEMPLATE, BY_NAME | {"name": "named"}, **GROUP)
    (made,) = made_for(it, key)
    for each in (made, claim_key("default", "shared")):
        allocate(it, each)
    it.update(key, spec={"nodeName": "n"})
    of_group = {
        "apiGroup": "scheduling.k8s.io",
        "resource": "podgroups",
        "name": "g",
        "uid": it.get(its)["metadata"]["uid"],
    }
    assert consumers(it, made) == consumers(it, claim_key("default", "shared")) == [of_group]
    assert it.phase(key) == "Running"


def test_a_claim_stays_reserved_for_a_group_without_pods_until_the_group_is_deleted() -> None:
    it = cluster()
    template(it)
    claim(it, "shared")
    its = group(it, BY_TEMPLATE, BY_NAME | {"name": "named"})
    key = pod(it, "p", BY_TEMPLATE, BY_NAME | {"name": "named"}, **GROUP)
    (made,) = made_for(it, key)
    named = claim_key("default", "shared")
    allocate(it, made)
    allocate(it, named)
    it.update(key, spec={"nodeName": "n"})
    it.delete(key)
    assert reserved_for(it, made) == reserved_for(it, named) == ["g"]
    assert it.get(named)["status"]["allocation"]["devices"]["results"] == [RESULT]
    delete(it, its)
    assert it.store.get(its) is None
    assert it.store.get(made) is None
    assert it.get(named)["status"] == {}
    assert "finalizers" not in it.get(named)["metadata"]


def test_a_new_group_of_the_same_name_does_not_inherit_reservations() -> None:
    it = cluster()
    claim(it, "shared")
    its = group(it, BY_NAME)
    named = claim_key("default", "shared")
    allocate(it, named)
    of_old = [
        {
            "apiGroup": "scheduling.k8s.io",
            "resource": "podgroups",
            "name": "g",
            "uid": it.get(its)["metadata"]["uid"],
        }
    ]
    delete(it, its)
    group(it, BY_NAME)
    it.update(named, status={"reservedFor": of_old})
    assert it.get(named)["status"] == {}


def test_a_group_stays_while_it_has_pods_that_have_not_ended() -> None:
    it = cluster()
    its = group(it)
    assert it.get(its)["metadata"]["finalizers"] == [FINALIZER]
    running = pod(it, "p", **GROUP)
    waiting = pod(it, "q", **GROUP)
    delete(it, its)
    it.update(running, status={"phase": "Succeeded"})
    assert it.get(its)["metadata"]["deletionTimestamp"]
    it.delete(waiting)
    assert it.store.get(its) is None


def test_a_group_without_pods_goes_at_once_and_another_finalizer_is_respected() -> None:
    it = cluster()
    its, other = group(it), group(it, name="other")
    it.update(other, metadata={"finalizers": [FINALIZER, "example.com/mine"]})
    delete(it, its)
    delete(it, other)
    assert it.store.get(its) is None
    assert it.get(other)["metadata"]["finalizers"] == ["example.com/mine"]
