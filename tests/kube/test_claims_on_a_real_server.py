"""`holdfast run` on a real API server: claims are allocated and reserved before pods are bound."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from harness.claim_objects import (
    claim_template,
    claiming_pod,
    consumers_of,
    device,
    device_class,
    devices_of,
    request,
    resource_claim,
    resource_slice,
)
from harness.holdfast_process import holdfast
from harness.objects import Raw, node, own_pod, reservation
from realserver.accounts import as_the_account, documents, ensure
from realserver.server import RealServer

RESERVATIONS = "/apis/scheduling.koordinator.sh/v1alpha1/reservations"
SELECTOR = "device.attributes['gpu.example.com'].model == 'h100'"


def _claiming(name: str, claim: str) -> Raw:
    more: Raw = {"schedulerName": "holdfast-scheduler", "metadata": {"namespace": "default"}}
    return claiming_pod(name, claim, **more)


def _new_claim(name: str, count: int = 1) -> Raw:
    made = resource_claim(name, request("r", count, SELECTOR))
    del made["status"]
    return made


def test_claims_are_written_before_pods_are_bound(real_cluster: RealServer, tmp_path: Path) -> None:
    from holdfast.api.crds import definitions

    client = real_cluster.client
    for obj in (*documents("namespace.yaml"), *documents("rbac.yaml"), *definitions()):
        ensure(real_cluster, obj)
    devices = [device("gpu-0", model="a100"), device("gpu-1", model="h100")]
    client.create(device_class("gpu", "device.driver == 'gpu.example.com'"))
    for name in ("n1", "n2"):
        client.create(node(name))
    client.create(resource_slice("n2", devices))
    account = as_the_account(real_cluster, tmp_path)
    shared, more = _claiming("p1", "shared"), _claiming("p2", "shared")
    with holdfast(account, tmp_path / "log", "--no-leader-elect") as run:
        for obj in (_new_claim("shared"), shared, more):
            client.create(obj)
        run.wait_until(lambda: all(client.get(p)["spec"].get("nodeName") for p in (shared, more)))
        found = client.get(_new_claim("shared"))
        assert devices_of(found) == ["n2/gpu-1"]
        assert sorted(consumers_of(found)) == ["p1", "p2"]
        assert found["metadata"]["finalizers"] == ["resource.kubernetes.io/delete-protection"]
        assert client.get(shared)["spec"]["nodeName"] == "n2"
        waits = _claiming("p3", "other")
        client.create(_new_claim("other"))
        client.create(waits)

        def message() -> str:
            conditions = client.get(waits).get("status", {}).get("conditions") or [{}]
            return str(conditions[0].get("message", ""))

        run.wait_until(lambda: "2 cannot allocate all claims" in message())
        free = own_pod("free")
        client.create(free)
        run.wait_until(lambda: client.get(free)["spec"].get("nodeName"))
        assert run.stop() == 0
        assert not any("Traceback" in str(line) for line in run.events())


def test_a_reservation_holds_devices_on_a_real_server(real_cluster: RealServer, tmp_path: Path) -> None:
    """With a claim that it owns; one that a user deletes is created again."""
    from holdfast.api.crds import definitions

    client = real_cluster.client
    for obj in (*documents("namespace.yaml"), *documents("rbac.yaml"), *definitions()):
        ensure(real_cluster, obj)
    client.create(device_class("gpu", "device.driver == 'gpu.example.com'"))
    client.create(node("n1"))
    client.create(resource_slice("n1", 3))
    client.create(claim_template("two", request("r", 2)))
    claims = "/apis/resource.k8s.io/v1/namespaces/default/resourceclaims"
    entries = [{"name": "gpu", "resourceClaimTemplateName": "two"}]
    wanted = reservation("hold", cpu="1", allocateOnce=False, pod={"resourceClaims": entries})

    path = f"{RESERVATIONS}/hold"

    def held() -> list[str]:
        return [
            device for each in client.request("GET", claims)["items"] for device in devices_of(each)
        ]

    with holdfast(as_the_account(real_cluster, tmp_path), tmp_path / "log", "--no-leader-elect") as run:
        client.request("POST", RESERVATIONS, wanted)
        run.wait_until(
            lambda: client.request("GET", path).get("status", {}).get("phase") == "Available"
        )
        assert held() == ["n1/gpu-0", "n1/gpu-1"]
        (holder,) = client.request("GET", claims)["items"]
        assert holder["metadata"]["ownerReferences"][0]["name"] == "hold"
        its = f"{claims}/{holder['metadata']['name']}"
        unprotected = {**holder, "metadata": {**holder["metadata"], "finalizers": []}}
        client.request("PUT", its, unprotected)
        client.request("DELETE", its)
        run.wait_until(lambda: held() == ["n1/gpu-0", "n1/gpu-1"])
        changed = client.request("GET", path)
        changed["spec"]["template"]["spec"]["resourceClaims"].append(
            {"name": "more", "resourceClaimTemplateName": "two"}
        )
        with pytest.raises(Exception, match="only the resources of the template can be changed"):
            client.request("PUT", path, changed)
        client.request("DELETE", path)
        run.wait_until(lambda: held() == [])
        assert run.stop() == 0
        assert not any("Traceback" in str(line) for line in run.events())


def test_a_claim_with_parameters_that_are_not_compact_gets_its_finalizer(
    real_cluster: RealServer, tmp_path: Path
) -> None:
    client = real_cluster.client
    client.create(device_class("gpu", "device.driver == 'gpu.example.com'"))
    client.create(node("n1"))
    client.create(resource_slice("n1", [device("gpu-0", model="h100")]))
    made = _new_claim("spacious")
    opaque = {"driver": "gpu.example.com", "parameters": {"z": 1, "a": {"b": [1, 2]}}}
    made["spec"]["devices"]["config"] = [{"opaque": opaque}]
    # The server keeps the spaces.
    path = "/apis/resource.k8s.io/v1/namespaces/default/resourceclaims"
    status, answer = client.ask("POST", path, json.dumps(made, indent=2), "application/json")
    assert status == 201, answer
    pod = _claiming("p1", "spacious")
    with holdfast(real_cluster.kubeconfig("holdfast"), tmp_path / "log", "--no-leader-elect") as run:
        client.create(pod)
        run.wait_until(lambda: client.get(pod)["spec"].get("nodeName"))
        found = client.get(made)
        assert (devices_of(found), consumers_of(found)) == (["n1/gpu-0"], ["p1"])
        assert found["metadata"]["finalizers"] == ["resource.kubernetes.io/delete-protection"]
        assert run.stop() == 0
    # Without its finalizer it can be deleted after the test; a patch would compact the parameters.
    made["metadata"]["resourceVersion"] = found["metadata"]["resourceVersion"]
    text = json.dumps(made, indent=2)
    status, answer = client.ask("PUT", f"{path}/spacious", text, "application/json")
    assert status == 200, answer
