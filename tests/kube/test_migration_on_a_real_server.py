"""A pod is moved on a real server, with the permissions of deploy/ and no others."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from harness.builders import make_node
from harness.holdfast_process import holdfast
from harness.objects import own_pod
from holdfast.api.crds import definitions
from realserver.accounts import as_the_account, documents, ensure
from realserver.server import RealServer

Json = dict[str, Any]
GROUP = "/apis/scheduling.koordinator.sh/v1alpha1"
KINDS = ("reservations", "podmigrationjobs")


def test_a_pod_is_moved(real_cluster: RealServer, tmp_path: Path) -> None:
    client = real_cluster.client
    for obj in (*documents("namespace.yaml"), *documents("rbac.yaml")):
        ensure(real_cluster, obj)
    for definition in definitions(*KINDS):
        ensure(real_cluster, definition)
    for name in ("n1", "n2"):
        client.create(make_node(name).allocatable(cpu="1", memory="8Gi", pods=110).raw())

    def job() -> Json:
        status: Json = client.request("GET", f"{GROUP}/podmigrationjobs/move").get("status", {})
        return status

    config = tmp_path / "config.yaml"
    config.write_text(documents("config.yaml")[0]["data"]["config.yaml"])
    flags = ("--config", str(config))
    with holdfast(as_the_account(real_cluster, tmp_path), tmp_path / "log", *flags) as run:
        run.wait_until(lambda: all(client.can_watch(GROUP[6:], kind) for kind in KINDS))
        old = client.create(own_pod("web", "1"))
        run.wait_until(lambda: client.get(old)["spec"].get("nodeName"))
        before = client.get(old)["spec"]["nodeName"]
        client.patch(old, {"status": {"phase": "Running"}}, "status")
        wanted = {
            "apiVersion": GROUP[6:],
            "kind": "PodMigrationJob",
            "metadata": {"name": "move"},
            "spec": {"podRef": {"namespace": "default", "name": "web"}, "ttl": "10m"},
        }
        client.request("POST", f"{GROUP}/podmigrationjobs", wanted)
        run.wait_until(lambda: client.get(old)["metadata"].get("deletionTimestamp"))
        [reservation] = client.request("GET", f"{GROUP}/reservations")["items"]
        assert (reservation["status"]["phase"], reservation["status"]["nodeName"] != before) == (
            "Available",
            True,
        )
        client.delete(old)  # as its kubelet would, were there one
        run.wait_until(lambda: job().get("reason") == "WaitForPodBindReservation")
        new = client.create(own_pod("web", "1"))
        run.wait_until(lambda: job().get("reason") == "WaitForBoundPodReady")
        assert client.get(new)["spec"]["nodeName"] == reservation["status"]["nodeName"]
        ready = [{"type": "Ready", "status": "True"}]
        client.patch(new, {"status": {"phase": "Running", "conditions": ready}}, "status")
        run.wait_until(lambda: job().get("phase") == "Succeeded")
        # Events are written in a lane of their own, so they may come after the status.
        emitted = {"ReservationCreated", "EvictComplete", "Complete", "Descheduled"}
        run.wait_until(lambda: emitted <= {event["reason"] for event in client.list("v1", "events")})
        client.request("DELETE", f"{GROUP}/podmigrationjobs/move")
        assert run.stop() == 0
        refused = [event for event in run.events() if "forbidden" in str(event).lower()]
        assert refused == []
