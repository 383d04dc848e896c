"""`holdfast run` on a real API server: claims are allocated and reserved before pods are bound."""

from __future__ import annotations

from pathlib import Path

from harness.claim_objects import (
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
from harness.objects import Raw, node, own_pod
from realserver.accounts import as_the_account, documents, ensure
from realserver.server import RealServer

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
