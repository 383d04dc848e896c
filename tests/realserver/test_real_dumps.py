"""Dumps of a cluster that Kubernetes itself made: its controllers' objects, bound by kube-scheduler."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Event, Thread
from typing import Any

import pytest

from harness.served_cluster import call
from realserver.assets import CONTROLLERS, SCHEDULER, missing
from realserver.client import Client, Json, RefusedError
from realserver.server import RealServer

Raw = dict[str, Any]
NAMESPACE = "/namespaces/default"
MERGE = "application/merge-patch+json"
DUMPED = (
    ("/api/v1", "nodes"),
    ("/api/v1", "pods"),
    ("/api/v1", "services"),
    ("/api/v1", "events"),
    ("/api/v1", "configmaps"),
    ("/api/v1", "serviceaccounts"),
    ("/apis/apps/v1", "deployments"),
    ("/apis/apps/v1", "replicasets"),
    ("/apis/apps/v1", "statefulsets"),
    ("/apis/apps/v1", "daemonsets"),
    ("/apis/apps/v1", "controllerrevisions"),
    ("/apis/batch/v1", "jobs"),
    ("/apis/batch/v1", "cronjobs"),
    ("/apis/scheduling.k8s.io/v1", "priorityclasses"),
)
_WAIT = 90.0


def _template(app: str, value: str = "1", **spec: Any) -> Raw:
    container = {
        "name": "c",
        "image": "i",
        "env": [{"name": "A", "value": value}],
        "resources": {"requests": {"cpu": "100m"}},
    }
    return {"metadata": {"labels": {"app": app}}, "spec": {"containers": [container], **spec}}


def _workload(kind: str, **spec: Any) -> Raw:
    name = kind.lower()
    return {
        "apiVersion": "apps/v1",
        "kind": kind,
        "metadata": {"name": name, "namespace": "default"},
        "spec": {"selector": {"matchLabels": {"app": name}}, "template": _template(name), **spec},
    }


def _job(name: str, **spec: Any) -> Raw:
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {"template": _template(name, restartPolicy="Never"), **spec},
    }


def _node(name: str, **spec: Any) -> Raw:
    amounts = {"cpu": "8", "memory": "16Gi", "pods": "50"}
    ready = {"type": "Ready", "status": "True"}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": {"kubernetes.io/hostname": name}},
        "spec": spec,
        "status": {"allocatable": amounts, "capacity": amounts, "conditions": [ready]},
    }


class Kubelets:
    """Starts every pod that has a node; ends deleted ones, and those that a test names."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self.to_end: set[str] = set()
        self._stopping = Event()
        self._thread = Thread(target=self._run, daemon=True)

    def __enter__(self) -> Kubelets:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopping.set()
        self._thread.join()
        self._client.close()

    def _run(self) -> None:
        while not self._stopping.wait(0.2):
            for pod in self._client.list("v1", "pods"):
                try:
                    self._report(pod)
                except RefusedError as error:
                    if error.status not in (404, 409):
                        raise

    def _report(self, pod: Raw) -> None:
        metadata = pod["metadata"]
        path = f"/api/v1{NAMESPACE}/pods/{metadata['name']}"
        if metadata.get("deletionTimestamp"):
            body = json.dumps({"gracePeriodSeconds": 0})
            self._client.ask("DELETE", path, body, "application/json")
            return
        phase = pod["status"].get("phase")
        ends = any(metadata["name"].startswith(each) for each in self.to_end)
        wanted = "Succeeded" if ends else "Running"
        if not pod["spec"].get("nodeName") or phase in (wanted, "Succeeded"):
            return
        now = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
        running = wanted == "Running"
        state = (
            {"running": {"startedAt": now}}
            if running
            else {"terminated": {"exitCode": 0, "finishedAt": now, "startedAt": now}}
        )
        status = {
            "phase": wanted,
            "startTime": now,
            "conditions": [
                *pod["status"].get("conditions", []),
                {"type": "Ready", "status": str(running), "lastTransitionTime": now},
            ],
            "containerStatuses": [
                {
                    "name": "c",
                    "ready": running,
                    "restartCount": 0,
                    "image": "i",
                    "imageID": "i",
                    "state": state,
                }
            ],
        }
        self._client.ask("PATCH", f"{path}/status", json.dumps({"status": status}), MERGE)


class World:
    def __init__(self, server: RealServer, kubelets: Kubelets) -> None:
        self.client = server.client
        self.kubelets = kubelets

    def create(self, *objects: Raw) -> None:
        for raw in objects:
            self.client.create(raw)

    def get(self, path: str) -> Json:
        found: Json = self.client.request("GET", path)
        return found

    def pods(self, prefix: str = "") -> list[Raw]:
        return [
            pod for pod in self.client.list("v1", "pods") if pod["metadata"]["name"].startswith(prefix)
        ]

    def wait(self, done: Callable[[], bool], about: str) -> None:
        end = time.monotonic() + _WAIT
        while not done():
            assert time.monotonic() < end, f"{about}: {_places(self.pods())}"
            time.sleep(0.3)

    def running(self, prefix: str, count: int) -> None:
        def are() -> bool:
            pods = self.pods(prefix)
            return len(pods) == count and all(pod["status"].get("phase") == "Running" for pod in pods)

        self.wait(are, f"{count} pods of {prefix} run")

    def replaced(self, prefix: str, before: set[str]) -> None:
        self.wait(
            lambda: not before & {pod["metadata"]["uid"] for pod in self.pods(prefix)},
            f"{prefix} rolls out",
        )

    def dump(self, path: Path, *without: str) -> None:
        """What `kubectl get … -A -o json` writes."""
        items = []
        for root, plural in DUMPED:
            if plural not in without:
                answer = self.get(f"{root}/{plural}")
                kind = answer["kind"].removesuffix("List")
                api_version = answer["apiVersion"]
                items += [{"apiVersion": api_version, "kind": kind, **raw} for raw in answer["items"]]
        path.write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": items}))


def _places(pods: list[Raw]) -> dict[str, tuple[str, str]]:
    return {
        pod["metadata"]["name"]: (pod["spec"].get("nodeName") or "", pod["status"].get("phase") or "")
        for pod in pods
    }


@contextmanager
def _world(server: RealServer) -> Iterator[World]:
    taint = {"key": "gpu", "effect": "NoSchedule"}
    with server.kube_scheduler(), server.kube_controller_manager():
        for raw in (_node("n1"), _node("n2"), _node("n3", taints=[taint])):
            server.client.create(raw)
        with Kubelets(server.new_client()) as kubelets:
            yield World(server, kubelets)


def _simulated(file: Path) -> tuple[dict[str, tuple[str, str]], str]:
    done = call("simulate", str(file), "--until", "1h", "-o", "json")
    assert done.status == 0, done.err
    objects = json.loads(done.out)["objects"]
    return _places([raw for raw in objects if raw["kind"] == "Pod"]), done.err


@pytest.mark.skipif(
    bool(missing(SCHEDULER, CONTROLLERS)), reason=missing(SCHEDULER, CONTROLLERS) or "there"
)
def test_a_cluster_of_kubernetes_stays_as_it_is(real_cluster: RealServer, tmp_path: Path) -> None:
    """Every owner's pods, after rolling updates, with half of a Job done and a pod that is terminating:
    nothing is made twice, and nothing is moved."""
    with _world(real_cluster) as world:
        world.create(
            _workload("Deployment", replicas=3),
            _workload("StatefulSet", replicas=2, serviceName="db"),
            _workload("DaemonSet"),
            _workload("ReplicaSet", replicas=2),
            _job("indexed", completions=4, parallelism=2, completionMode="Indexed"),
            _job("plain", completions=3, parallelism=2),
        )
        world.running("deployment", 3)
        world.running("statefulset", 2)
        world.running("daemonset", 2)
        world.running("indexed", 2)
        world.running("plain", 2)
        for kind in ("deployment", "statefulset", "daemonset"):
            change = {"spec": {"template": _template(kind, "2")}}
            path = f"/apis/apps/v1{NAMESPACE}/{kind}s/{kind}"
            before = {pod["metadata"]["uid"] for pod in world.pods(kind)}
            status, text = world.client.ask("PATCH", path, json.dumps(change), MERGE)
            assert status == 200, text
            world.replaced(kind, before)
        world.kubelets.to_end |= {"indexed-0", "plain-"}
        world.running("deployment", 3)
        world.running("statefulset", 2)
        world.running("daemonset", 2)
        world.running("indexed-2", 1)
        world.wait(
            lambda: world.get(f"/apis/batch/v1{NAMESPACE}/jobs/plain")["status"].get("succeeded") == 3,
            "the plain Job ends",
        )
        time.sleep(1)
        world.dump(tmp_path / "dump.json")
        world.dump(tmp_path / "no-sets.json", "replicasets")
        kubeconfig = str(real_cluster.kubeconfig())
        done = call("snapshot", "-o", str(tmp_path / "s.json.gz"), "--kubeconfig", kubeconfig)
        assert done.status == 0, done.err
        expected = _places(world.pods())
    assert len([phase for _, phase in expected.values() if phase == "Succeeded"]) == 4
    found, notes = _simulated(tmp_path / "dump.json")
    assert found == expected
    assert "Event" in notes and "ControllerRevision" in notes
    assert _simulated(tmp_path / "s.json.gz")[0] == expected
    without = {name: place for name, place in expected.items() if not name.startswith("replicaset")}
    left, _ = _simulated(tmp_path / "no-sets.json")
    assert {name: place for name, place in left.items() if not name.startswith("replicaset")} == without
    _delete_all(real_cluster)


def _delete_all(server: RealServer) -> None:
    for root, plural in (
        ("/apis/apps/v1", "deployments"),
        ("/apis/apps/v1", "daemonsets"),
        ("/apis/batch/v1", "jobs"),
    ):
        server.client.request("DELETE", f"{root}{NAMESPACE}/{plural}")
