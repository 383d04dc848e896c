"""Claims on devices in simulations: made, released and evicted as in a local cluster."""

from __future__ import annotations

from typing import Any

from harness.objects import node, pod, reservation
from harness.scenarios import Played, play, step

API = "resource.k8s.io/v1"
Raw = dict[str, Any]


def of(kind: str, name: str, spec: Raw, **metadata: Any) -> Raw:
    return {"apiVersion": API, "kind": kind, "metadata": {"name": name, **metadata}, "spec": spec}


def gpus(node: str, count: int) -> Raw:
    pool = {"name": node, "generation": 1, "resourceSliceCount": 1}
    devices = [{"name": f"gpu-{i}"} for i in range(count)]
    return of(
        "ResourceSlice",
        f"{node}-gpus",
        {"driver": "d.io", "nodeName": node, "pool": pool, "devices": devices},
    )


ONE = {"devices": {"requests": [{"name": "gpu", "exactly": {"deviceClassName": "gpu"}}]}}
CLASS = of("DeviceClass", "gpu", {})
TEMPLATE = of("ResourceClaimTemplate", "one", {"spec": ONE})


def user(name: str, runs_for: str = "", at: str = "", **entry: str) -> Raw:
    given = {"name": "gpu", **(entry or {"resourceClaimTemplateName": "one"})}
    annotations = {}
    if runs_for:
        annotations["sim.holdfast.io/runs-for"] = runs_for
    if at:
        annotations["sim.holdfast.io/at"] = at
    return pod(name, metadata={"annotations": annotations}, resourceClaims=[given])


def claims(played: Played) -> list[Raw]:
    return played.all("ResourceClaim")


def test_a_device_is_released_when_its_pod_ends() -> None:
    played = play(node("n1", 4), gpus("n1", 1), CLASS, TEMPLATE, user("a", "10s"), user("b", "10s"))
    assert played.bound() == {"a": (0, "n1"), "b": (10, "n1")}
    assert claims(played) == []


def test_a_shared_claim_is_deallocated_after_its_last_pod() -> None:
    shared = of("ResourceClaim", "shared", ONE)
    first = user("a", "10s", resourceClaimName="shared")
    second = user("b", "20s", resourceClaimName="shared")
    third = user("c", "5s", at="25s")
    played = play(node("n1", 4), gpus("n1", 1), CLASS, TEMPLATE, shared, first, second, third)
    assert played.bound() == {"a": (0, "n1"), "b": (0, "n1"), "c": (25, "n1")}
    (left,) = claims(played)
    assert left["status"] == {}
    assert "finalizers" not in left["metadata"]


def test_slices_of_a_deleted_node_are_gone() -> None:
    played = play(
        node("n1", 4),
        node("n2", 4),
        gpus("n1", 1),
        gpus("n2", 1),
        CLASS,
        TEMPLATE,
        user("a"),
        user("b"),
        step("10s", delete={"kind": "Node", "name": "n1"}),
    )
    assert {
        raw["metadata"]["name"] for raw in played.result.objects if raw["kind"] == "ResourceSlice"
    } == {"n2-gpus"}
    assert len(claims(played)) == 1


def test_a_rule_evicts_and_the_device_is_avoided() -> None:
    taint = {"key": "example.com/broken", "effect": "NoExecute"}
    rule = of("DeviceTaintRule", "broken", {"deviceSelector": {"pool": "n1"}, "taint": taint})
    played = play(
        node("n1", 4),
        node("n2", 4),
        gpus("n1", 1),
        CLASS,
        TEMPLATE,
        user("a"),
        step("10s", apply=rule),
        step("20s", apply=gpus("n2", 1)),
        user("later", at="15s"),
    )
    assert played.bound() == {"a": (0, "n1"), "later": (20, "n2")}
    assert played.events("Pod/default/a", "Deleted") == [(10, "Deleted")]


def test_claims_of_evicted_pods_are_released_at_once() -> None:
    """Also if nothing happens afterwards."""
    taint = {"key": "example.com/broken", "effect": "NoExecute"}
    rule = of("DeviceTaintRule", "broken", {"deviceSelector": {"pool": "n1"}, "taint": taint})
    played = play(
        node("n1", 4), gpus("n1", 1), CLASS, TEMPLATE, user("a"), step("10s", apply=rule), until=60
    )
    assert played.all("Pod") == []
    assert claims(played) == []


def test_a_dump_of_a_cluster_with_claims_in_use() -> None:
    """As `kubectl get -o yaml` prints it: nothing is made or allocated twice."""
    owner = {"apiVersion": "v1", "kind": "Pod", "name": "a", "uid": "u1", "controller": True}
    results = [{"request": "gpu", "driver": "d.io", "pool": "n1", "device": "gpu-0"}]
    selector = {"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n1"]}]}
    claim = of(
        "ResourceClaim",
        "a-gpu-x",
        ONE,
        namespace="default",
        uid="c1",
        ownerReferences=[owner],
        annotations={"resource.kubernetes.io/pod-claim-name": "gpu"},
        finalizers=["resource.kubernetes.io/delete-protection"],
    )
    claim["status"] = {
        "allocation": {
            "devices": {"results": results},
            "nodeSelector": {"nodeSelectorTerms": [selector]},
        },
        "reservedFor": [{"resource": "pods", "name": "a", "uid": "u1"}],
    }
    running = user("a")
    running["metadata"] |= {"namespace": "default", "uid": "u1"}
    running["spec"]["nodeName"] = "n1"
    statuses = [{"name": "gpu", "resourceClaimName": "a-gpu-x"}]
    running["status"] = {"phase": "Running", "resourceClaimStatuses": statuses}
    played = play(
        node("n1", 4),
        gpus("n1", 1),
        CLASS,
        TEMPLATE,
        claim,
        running,
        user("b"),
        step("10s", delete={"kind": "Pod", "name": "a", "namespace": "default"}),
    )
    assert played.bound() == {"b": (10, "n1")}
    assert [raw["metadata"]["name"].startswith("b-gpu-") for raw in claims(played)] == [True]


def test_a_reservation_waits_for_a_device_that_passes_to_a_pod_which_may_end() -> None:
    """While the first reservation holds the device, nothing says when it will be free."""
    device = {"resourceClaims": [{"name": "gpu", "resourceClaimTemplateName": "one"}]}
    everyone: list[Raw] = [{"labelSelector": {}}]
    first = reservation("first", cpu="", owners=everyone, pod=device)
    later = reservation("later", cpu="", owners=everyone, pod=device, preAllocation=True)
    user_of_first = user("a", "30s", resourceClaimName="solo")
    solo = of("ResourceClaim", "solo", ONE)
    played = play(
        node("n1", 4), gpus("n1", 1), CLASS, TEMPLATE, solo, first, later, user_of_first, until=60
    )
    assert played.events("Reservation/later", "Waiting", "Available") == [
        (0, "Waiting"),
        (30, "Available"),
    ]
