"""`holdfast run` on a real API server."""

from __future__ import annotations

import json
import signal
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from harness.holdfast_process import HoldfastProcess, holdfast, wait_until
from harness.objects import node, own_pod
from realserver.client import RefusedError
from realserver.server import RealServer

MINE = "holdfast-scheduler"
Json = dict[str, Any]


def create_all(server: RealServer, objects: list[Json], workers: int = 4) -> None:
    def some(part: list[Json]) -> None:
        client = server.new_client()
        try:
            for obj in part:
                client.create(obj)
        finally:
            client.close()

    with ThreadPoolExecutor(workers) as pool:
        list(pool.map(some, [objects[i::workers] for i in range(workers)]))


def nodes_of(server: RealServer) -> dict[str, str]:
    return {
        p["metadata"]["name"]: p["spec"].get("nodeName", "") for p in server.client.list("v1", "pods")
    }


def all_bound(server: RealServer, count: int) -> bool:
    try:
        return sum(map(bool, nodes_of(server).values())) == count
    except (OSError, RefusedError):
        return False


def bind_events(server: RealServer) -> Counter[str]:
    """How many Scheduled events each pod has; names are unique in these tests."""
    return Counter(
        event["involvedObject"]["name"]
        for event in server.client.list("v1", "events")
        if event["reason"] == "Scheduled"
    )


def agrees(process: HoldfastProcess) -> bool:
    return process.get("/debug/compare")[0] == 200 and process.difference() == {}


def _is_created(server: RealServer, raw: Json) -> bool:
    try:
        server.client.create(raw)
    except RefusedError as error:
        if error.status != 403:
            raise
        return False
    return True


def test_pods_are_bound_or_unschedulable_with_a_message_and_preempt(
    real_cluster: RealServer, tmp_path: Path
) -> None:
    client = real_cluster.client
    client.create(node("n1", cpu="1"))
    with holdfast(real_cluster.kubeconfig("holdfast"), tmp_path / "log", "--no-leader-elect") as run:
        low = client.create(own_pod("low", cpu="1"))
        run.wait_until(lambda: all_bound(real_cluster, 1))
        client.create(own_pod("big", cpu="4"))

        def message() -> str:
            conditions = client.get(own_pod("big")).get("status", {}).get("conditions", [])
            return str(conditions[0]["message"]) if conditions else ""

        run.wait_until(message)
        assert message().startswith("0/1 nodes are available: 1 Insufficient cpu. ")
        client.create(
            {
                "apiVersion": "scheduling.k8s.io/v1",
                "kind": "PriorityClass",
                "metadata": {"name": "high"},
                "value": 1000,
            }
        )
        try:
            urgent = own_pod("urgent", cpu="1")
            urgent["spec"]["priorityClassName"] = "high"
            # The server's admission sees the class a moment after it was created.
            run.wait_until(lambda: _is_created(real_cluster, urgent))
            # No kubelet is here to end the victim, so the test does once it has a deletion timestamp.
            run.wait_until(lambda: client.get(low)["metadata"].get("deletionTimestamp"))
            conditions = {c["type"]: c for c in client.get(low)["status"]["conditions"]}
            assert conditions["DisruptionTarget"]["reason"] == "PreemptionByScheduler"
            run.wait_until(lambda: client.get(urgent)["status"].get("nominatedNodeName") == "n1")
            client.delete(low)
            run.wait_until(lambda: nodes_of(real_cluster).get("urgent") == "n1")
            assert "low" not in nodes_of(real_cluster)
        finally:
            client.request("DELETE", "/apis/scheduling.k8s.io/v1/priorityclasses/high")
        run.wait_until(lambda: agrees(run))
        run.wait_until(lambda: bind_events(real_cluster)["urgent"] == 1)
        run.signal(signal.SIGUSR2)
        run.wait_until(lambda: any(e["event"] == "compared" and e["agrees"] for e in run.events()))
        assert (
            run.figure('scheduler_schedule_attempts_total{profile="holdfast-scheduler",result="sch')
            == 2
        )
        assert run.stop() == 0


def test_claims_are_bound_before_their_pod(real_cluster: RealServer, tmp_path: Path) -> None:
    client = real_cluster.client
    client.create(node("n1"))
    client.create(
        {
            "apiVersion": "storage.k8s.io/v1",
            "kind": "StorageClass",
            "metadata": {"name": "local"},
            "provisioner": "kubernetes.io/no-provisioner",
            "volumeBindingMode": "WaitForFirstConsumer",
        }
    )
    volume = client.create(
        {
            "apiVersion": "v1",
            "kind": "PersistentVolume",
            "metadata": {"name": "v1"},
            "spec": {
                "storageClassName": "local",
                "capacity": {"storage": "1Gi"},
                "accessModes": ["ReadWriteOnce"],
                "hostPath": {"path": "/nowhere"},
            },
            "status": {"phase": "Available"},
        }
    )
    claim = client.create(
        {
            "apiVersion": "v1",
            "kind": "PersistentVolumeClaim",
            "metadata": {"name": "data", "namespace": "default"},
            "spec": {
                "storageClassName": "local",
                "accessModes": ["ReadWriteOnce"],
                "resources": {"requests": {"storage": "1Gi"}},
            },
        }
    )
    with holdfast(real_cluster.kubeconfig("holdfast"), tmp_path / "log", "--no-leader-elect") as run:
        user = own_pod("user")
        user["spec"]["volumes"] = [{"name": "d", "persistentVolumeClaim": {"claimName": "data"}}]
        client.create(user)
        run.wait_until(lambda: client.get(volume)["spec"].get("claimRef", {}).get("name") == "data")
        assert nodes_of(real_cluster) == {"user": ""}
        bound = {"pv.kubernetes.io/bind-completed": "yes"}
        client.patch(claim, {"metadata": {"annotations": bound}, "spec": {"volumeName": "v1"}})
        run.wait_until(lambda: nodes_of(real_cluster) == {"user": "n1"})


def test_definitions_are_installed_before_anything_else(
    real_cluster: RealServer, tmp_path: Path
) -> None:
    flags = ("--install-crds", "--no-leader-elect")
    for log in ("first", "again"):
        with holdfast(real_cluster.kubeconfig("holdfast"), tmp_path / log, *flags):
            path = "/apis/scheduling.koordinator.sh/v1alpha1/reservations"
            assert real_cluster.client.request("GET", path)["items"] == []


def test_a_reservation_is_kept_for_its_owner(real_cluster: RealServer, tmp_path: Path) -> None:
    client = real_cluster.client
    client.create(node("n1", cpu="4"))
    flags = ("--install-crds", "--no-leader-elect")
    path = "/apis/scheduling.koordinator.sh/v1alpha1/reservations"
    with holdfast(real_cluster.kubeconfig("holdfast"), tmp_path / "log", *flags) as run:
        container = {"name": "c", "image": "pause", "resources": {"requests": {"cpu": "3"}}}
        template = {"containers": [container], "schedulerName": MINE}
        client.request(
            "POST",
            path,
            {
                "apiVersion": "scheduling.koordinator.sh/v1alpha1",
                "kind": "Reservation",
                "metadata": {"name": "kept"},
                "spec": {
                    "owners": [{"labelSelector": {"matchLabels": {"app": "mine"}}}],
                    "allocateOnce": False,
                    "template": {"spec": template},
                },
            },
        )

        def status() -> Json:
            found: Json = client.request("GET", f"{path}/kept").get("status", {})
            return found

        run.wait_until(lambda: status().get("phase") == "Available")
        assert status()["nodeName"] == "n1"
        client.create(own_pod("stranger", cpu="2"))
        owner = own_pod("owner", cpu="2")
        owner["metadata"]["labels"] = {"app": "mine"}
        client.create(owner)
        run.wait_until(lambda: nodes_of(real_cluster) == {"stranger": "", "owner": "n1"})
        assert "reservation-allocated" in str(client.get(owner)["metadata"]["annotations"])
        run.wait_until(lambda: status().get("allocated", {}).get("cpu") == "2")


def test_leaders_hand_over_and_no_pod_is_bound_twice(real_cluster: RealServer, tmp_path: Path) -> None:
    create_all(real_cluster, [node(f"n{i}") for i in range(20)])
    config = tmp_path / "config.yaml"
    election = {"leaseDuration": "4s", "renewDeadline": "3s", "retryPeriod": "500ms"}
    content = {
        "apiVersion": "kubescheduler.config.k8s.io/v1",
        "kind": "KubeSchedulerConfiguration",
        "leaderElection": {"leaderElect": True, "resourceName": "hand-over", **election},
    }
    config.write_text(json.dumps(content))
    kubeconfig = real_cluster.kubeconfig("holdfast")
    flags = ("--config", str(config), "--leader-elect")
    with (
        holdfast(kubeconfig, tmp_path / "a", *flags) as a,
        holdfast(kubeconfig, tmp_path / "b", *flags) as b,
        ThreadPoolExecutor(1) as pool,
    ):

        def leaders() -> list[HoldfastProcess]:
            alive = [p for p in (a, b) if p.process.poll() is None]
            return [p for p in alive if p.figure("leader_election_master_status") == 1]

        wait_until(lambda: len(leaders()) == 1)
        first = leaders()[0]
        second = b if first is a else a
        creating = pool.submit(create_all, real_cluster, [own_pod(f"p{i}") for i in range(600)])
        wait_until(lambda: first.figure("scheduler_pod_scheduling_attempts_count") > 50)
        first.signal(signal.SIGSTOP)  # still believes that it leads, and has binds on their way
        wait_until(lambda: second.figure("leader_election_master_status") == 1)
        creating.result()
        second.wait_until(lambda: all_bound(real_cluster, 600))
        first.signal(signal.SIGCONT)
        first.wait_until(lambda: first.figure("holdfast_leadership_lost_total") == 1)
        assert first.process.poll() is None, "a leader that lost its lease is a candidate again"
        first.wait_until(first.is_ready)
        assert "election lost" in [event["event"] for event in first.events()]
        wait_until(lambda: agrees(second))
        # Writes that the first had still queued are dropped.
        placed = second.figure("scheduler_pod_scheduling_attempts_count")
        second.wait_until(lambda: len(bind_events(real_cluster)) >= placed)
        assert max(bind_events(real_cluster).values()) == 1
        lease = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases/hand-over"

        def holder() -> str:
            return str(real_cluster.client.request("GET", lease)["spec"].get("holderIdentity", ""))

        led = holder()
        assert second.stop() == 0
        assert led and holder() != led, "it was let go, and perhaps taken by the other"


def test_a_server_killed_in_the_middle_loses_nothing(real_cluster: RealServer, tmp_path: Path) -> None:
    pods = 2000
    create_all(real_cluster, [node(f"n{i}") for i in range(50)])
    kubeconfig = real_cluster.kubeconfig("holdfast")
    create_all(real_cluster, [own_pod(f"p{i}") for i in range(pods)])
    with holdfast(kubeconfig, tmp_path / "log", "--no-leader-elect") as run:
        bound = "scheduler_pod_scheduling_attempts_count"
        run.wait_until(lambda: run.figure(bound) > 100)
        real_cluster.kill_api_server()
        assert run.figure(bound) < pods, "it was not in the middle"
        assert run.get("/healthz")[0] == 200
        real_cluster.client.close()
        real_cluster.start_api_server()
        run.wait_until(lambda: all_bound(real_cluster, pods), within=120)
        run.wait_until(lambda: agrees(run))
        run.wait_until(lambda: len(bind_events(real_cluster)) >= pods * 0.99)
        assert max(bind_events(real_cluster).values()) == 1
        assert run.figure('scheduler_cache_size{type="assumed_pods"}') == 0
        assert run.stop() == 0
