"""Workloads by kubectl, in a cluster that lives: rollouts, scaling, jobs, what `deploy/` holds."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from harness.apiserver import LiveServer
from holdfast.api.crds import definitions
from holdfast.local.apiserver.api_state import ApiState
from holdfast.local.apiserver.credentials import make_credentials
from holdfast.local.apiserver.system_objects import ensure_definition
from holdfast.local.cluster_loop import EmbeddedCluster
from holdfast.local.setup import SchedulerFactory
from kubectl.conftest import Kubectl

DEPLOY = Path(__file__).parents[2] / "deploy"
_running: list[asyncio.Task[None]] = []


def _bring_to_life(cluster: ApiState) -> None:
    for each in definitions():
        ensure_definition(cluster, each)
    embedded = EmbeddedCluster(SchedulerFactory.of(), cluster.store)
    embedded.add_nodes(3)
    _running.append(asyncio.get_running_loop().create_task(embedded.run()))


def _stop() -> None:
    _running.pop().cancel()


@pytest.fixture(scope="module")
def live() -> Iterator[LiveServer]:
    with LiveServer(credentials=make_credentials(), setup=_bring_to_life) as server:
        yield server
        server.run(_stop)


def _shown(kubectl: Kubectl, *what: str) -> dict[str, Any]:
    shown: dict[str, Any] = json.loads(kubectl("get", *what, "-o", "json").out)
    return shown


def _images(kubectl: Kubectl, label: str) -> list[str]:
    pods = _shown(kubectl, "pods", "-l", label)["items"]
    return sorted(
        pod["spec"]["containers"][0]["image"]
        for pod in pods
        if "deletionTimestamp" not in pod["metadata"]
    )


def test_events_are_found_by_the_object_they_are_about(kubectl: Kubectl) -> None:
    kubectl("create", "deployment", "web-1", "--image=web-1:1", "--replicas=1")
    kubectl("rollout", "status", "deployment/web-1", "--timeout=30s")
    (pod,) = _shown(kubectl, "pods", "-l", "app=web-1")["items"]
    name = pod["metadata"]["name"]
    assert "Successfully assigned" in kubectl("events", "--for", f"pod/{name}").out
    assert "Scaled up replica set" in kubectl("events", "--for", "deployment/web-1").out
    assert "Successfully assigned" in kubectl("describe", "pod", name).out
    (event,) = [
        each
        for each in _shown(kubectl, "events")["items"]
        if each["reason"] == "Scheduled" and each["involvedObject"]["name"] == name
    ]
    about = event["involvedObject"]
    assert int(about.pop("resourceVersion")) <= int(pod["metadata"]["resourceVersion"])
    assert about == {
        "apiVersion": "v1",
        "kind": "Pod",
        "namespace": "default",
        "name": name,
        "uid": pod["metadata"]["uid"],
    }
    assert event["reportingComponent"] == "default-scheduler"
    reservation = {
        "apiVersion": "scheduling.koordinator.sh/v1alpha1",
        "kind": "Reservation",
        "metadata": {"name": "web-1"},
        "spec": {
            "owners": [{"labelSelector": {"matchLabels": {"app": "none"}}}],
            "template": {"spec": {"containers": [{"name": "c"}], "nodeName": "node-1"}},
        },
    }
    kubectl("apply", "-f", "-", stdin=json.dumps(reservation))
    kubectl("wait", "rsv/web-1", "--for=jsonpath={.status.phase}=Available", "--timeout=30s")
    assert "Successfully assigned web-1" in kubectl("events", "--for", "reservation/web-1").out
    kubectl("delete", "deployment/web-1", "rsv/web-1")


def test_rollouts_of_a_deployment(kubectl: Kubectl) -> None:
    kubectl("create", "deployment", "web", "--image=web:1", "--replicas=3")
    done = 'deployment "web" successfully rolled out'
    assert done in kubectl("rollout", "status", "deployment/web").out
    assert _images(kubectl, "app=web") == ["web:1"] * 3

    kubectl("set", "image", "deployment/web", "web=web:2")
    assert done in kubectl("rollout", "status", "deployment/web").out
    assert _images(kubectl, "app=web") == ["web:2"] * 3
    history = kubectl("rollout", "history", "deployment/web").out
    assert [line.split()[0] for line in history.splitlines()[2:] if line] == ["1", "2"]
    assert "web:1" in kubectl("rollout", "history", "deployment/web", "--revision=1").out

    kubectl("rollout", "undo", "deployment/web")
    assert done in kubectl("rollout", "status", "deployment/web").out
    assert _images(kubectl, "app=web") == ["web:1"] * 3

    before = {pod["metadata"]["name"] for pod in _shown(kubectl, "pods", "-l", "app=web")["items"]}
    kubectl("rollout", "restart", "deployment/web")
    assert done in kubectl("rollout", "status", "deployment/web").out
    after = {pod["metadata"]["name"] for pod in _shown(kubectl, "pods", "-l", "app=web")["items"]}
    assert before.isdisjoint(after)

    kubectl("rollout", "pause", "deployment/web")
    kubectl("set", "image", "deployment/web", "web=web:3")
    kubectl("scale", "deployment/web", "--replicas=5")
    kubectl("wait", "deployment/web", "--for=jsonpath={.status.availableReplicas}=5", "--timeout=20s")
    assert _images(kubectl, "app=web") == ["web:1"] * 5
    kubectl("rollout", "resume", "deployment/web")
    assert done in kubectl("rollout", "status", "deployment/web").out
    assert _images(kubectl, "app=web") == ["web:3"] * 5
    assert "ScalingReplicaSet" in kubectl("describe", "deployment/web").out


@pytest.mark.parametrize("cascade", ["background", "foreground"])
def test_a_deployment_goes_with_its_pods(kubectl: Kubectl, cascade: str) -> None:
    name = f"gone-{cascade}"
    kubectl("create", "deployment", name, "--image=a", "--replicas=2")
    kubectl("rollout", "status", f"deployment/{name}")
    kubectl("delete", "deployment", name, f"--cascade={cascade}")
    kubectl("wait", "--for=delete", "pods", "-l", f"app={name}", "--timeout=20s")
    assert _shown(kubectl, "replicasets", "-l", f"app={name}")["items"] == []


def test_orphans_stay(kubectl: Kubectl) -> None:
    kubectl("create", "deployment", "left", "--image=a", "--replicas=2")
    kubectl("rollout", "status", "deployment/left")
    kubectl("delete", "deployment", "left", "--cascade=orphan")
    assert len(_shown(kubectl, "pods", "-l", "app=left")["items"]) == 2
    [only] = _shown(kubectl, "replicasets", "-l", "app=left")["items"]
    assert not only["metadata"].get("ownerReferences")


_DAEMON_SET = """
apiVersion: apps/v1
kind: DaemonSet
metadata: {name: agent}
spec:
  selector: {matchLabels: {app: agent}}
  template:
    metadata: {labels: {app: agent}}
    spec: {containers: [{name: c, image: "agent:1"}]}
"""
_STATEFUL_SET = """
apiVersion: apps/v1
kind: StatefulSet
metadata: {name: db}
spec:
  replicas: 3
  serviceName: db
  selector: {matchLabels: {app: db}}
  template:
    metadata: {labels: {app: db}}
    spec: {containers: [{name: c, image: "db:1"}]}
"""
SETS = {"daemonset/agent": _DAEMON_SET, "statefulset/db": _STATEFUL_SET}


@pytest.mark.parametrize("name", SETS)
def test_rollouts_of_sets(kubectl: Kubectl, name: str) -> None:
    kubectl("apply", "-f", "-", stdin=SETS[name])
    kubectl("rollout", "status", name)
    label = f"app={name.partition('/')[2]}"
    [first] = set(_images(kubectl, label))
    kubectl("set", "image", name, "c=next:2")
    kubectl("rollout", "status", name)
    assert _images(kubectl, label) == ["next:2"] * 3
    kubectl("rollout", "undo", name)
    kubectl("rollout", "status", name)
    assert _images(kubectl, label) == [first] * 3
    history = kubectl("rollout", "history", name).out
    assert [line.split()[0] for line in history.splitlines()[2:] if line] == ["2", "3"]


def test_a_job_completes(kubectl: Kubectl) -> None:
    job = """
apiVersion: batch/v1
kind: Job
metadata: {name: work}
spec:
  completions: 3
  parallelism: 3
  completionMode: Indexed
  template:
    metadata: {annotations: {sim.holdfast.io/runs-for: 0s}}
    spec: {restartPolicy: Never, containers: [{name: c, image: a}]}
"""
    kubectl("apply", "-f", "-", stdin=job)
    kubectl("wait", "--for=condition=complete", "job/work", "--timeout=20s")
    status = _shown(kubectl, "job", "work")["status"]
    assert (status["succeeded"], status["completedIndexes"]) == (3, "0-2")
    kubectl("delete", "job", "work")
    kubectl("wait", "--for=delete", "pods", "-l", "job-name=work", "--timeout=20s")


def test_what_deploy_holds_can_be_applied(kubectl: Kubectl) -> None:
    kubectl("apply", "--server-side", "--force-conflicts", "-f", str(DEPLOY / "crds"))
    kubectl("apply", "-k", str(DEPLOY / "manifests"))
    kubectl("-n", "holdfast-system", "rollout", "status", "deployment/holdfast")
    again = kubectl("apply", "-k", str(DEPLOY / "manifests")).out
    # kubectl replaces budgets rather than merge them, and calls that a change wherever it runs.
    changed = [line for line in again.splitlines() if not line.endswith(" unchanged")]
    assert changed == ["poddisruptionbudget.policy/holdfast configured"]
    budget = _shown(kubectl, "-n", "holdfast-system", "poddisruptionbudget", "holdfast")
    assert budget["status"]["disruptionsAllowed"] == 1


def test_the_chart_can_be_applied(kubectl: Kubectl) -> None:
    from deploy.chart import rendered

    kubectl("create", "namespace", "by-helm")
    documents = rendered({"fullnameOverride": "by-helm"}, namespace="by-helm")
    everything = {"apiVersion": "v1", "kind": "List", "items": documents}
    kubectl("apply", "-f", "-", stdin=json.dumps(everything))
    kubectl("-n", "by-helm", "rollout", "status", "deployment/by-helm")
