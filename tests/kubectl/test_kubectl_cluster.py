"""kubectl and `holdfast up`: things that happen because something is running."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from kubectl.conftest import Kubectl, kubectl_for

_PATIENCE = 60


@pytest.fixture(scope="module")
def kubectl(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kubectl]:
    """Of a cluster with three nodes, in a process of its own."""
    home = tmp_path_factory.mktemp("up")
    config = home / "config"
    command = [sys.executable, "-m", "holdfast", "up", "--nodes", "3", "--kubeconfig-out", str(config)]
    running = subprocess.Popen(
        command, cwd=home, stdout=subprocess.PIPE, text=True, env={**os.environ, "COLUMNS": "200"}
    )
    assert running.stdout is not None
    try:
        assert running.stdout.readline().startswith("Holdfast is up")
        yield kubectl_for(config, home)
    finally:
        running.send_signal(signal.SIGTERM)
        rest = running.communicate(timeout=_PATIENCE)
        assert running.returncode == 0, rest


def where(kubectl: Kubectl, selector: str) -> dict[str, str]:
    listed = json.loads(kubectl("get", "pods", "-l", selector, "-o", "json").out)
    return {each["metadata"]["name"]: each["spec"].get("nodeName", "") for each in listed["items"]}


def test_a_deployment_is_scaled_rolled_out_and_rolled_back(kubectl: Kubectl) -> None:
    kubectl("create", "deployment", "web", "--image=one", "--replicas=3")
    assert "successfully rolled out" in kubectl("rollout", "status", "deploy/web", "--timeout=30s").out
    assert set(where(kubectl, "app=web").values()) == {"node-1", "node-2", "node-3"}
    kubectl("scale", "deploy/web", "--replicas=5")
    assert "successfully rolled out" in kubectl("rollout", "status", "deploy/web", "--timeout=30s").out
    assert kubectl("get", "deploy", "web").lines[1].split()[:4] == ["web", "5/5", "5", "5"]
    kubectl("set", "image", "deploy/web", "one=two")
    kubectl("rollout", "status", "deploy/web", "--timeout=30s")
    images = "jsonpath={.items[*].spec.containers[0].image}"
    assert kubectl("get", "pods", "-l", "app=web", "-o", images).out.split() == ["two"] * 5
    kubectl("rollout", "undo", "deploy/web")
    kubectl("rollout", "status", "deploy/web", "--timeout=30s")
    assert kubectl("get", "pods", "-l", "app=web", "-o", images).out.split() == ["one"] * 5
    kubectl("delete", "deploy", "web", "--cascade=foreground", "--timeout=30s")
    assert where(kubectl, "app=web") == {}


def test_a_drained_node_is_left_and_stays_empty(kubectl: Kubectl) -> None:
    kubectl("create", "deployment", "moved", "--image=i", "--replicas=3")
    kubectl("rollout", "status", "deploy/moved", "--timeout=30s")
    assert "node/node-2 drained" in kubectl("drain", "node-2", "--timeout=30s").out
    kubectl("rollout", "status", "deploy/moved", "--timeout=30s")
    assert "node-2" not in where(kubectl, "app=moved").values()
    assert "SchedulingDisabled" in kubectl("get", "node", "node-2").out
    kubectl("uncordon", "node-2")
    kubectl("delete", "deploy", "moved")


def test_a_budget_holds_a_drain_up(kubectl: Kubectl) -> None:
    kubectl("run", "only", "--image=i", "--labels=app=only")
    kubectl("wait", "--for=condition=Ready", "pod/only", "--timeout=30s")
    kubectl("create", "pdb", "only", "--selector=app=only", "--min-available=1")
    kubectl("wait", "--for=jsonpath={.status.currentHealthy}=1", "pdb/only", "--timeout=30s")
    node = where(kubectl, "app=only")["only"]
    output = kubectl("drain", node, "--force", "--timeout=2s", fails=True)
    assert "Cannot evict pod as it would violate the pod's disruption budget" in output.out + output.err
    kubectl("uncordon", node)
    kubectl("delete", "pdb,pod", "only")


def test_describe_shows_why_a_pod_is_pending(kubectl: Kubectl) -> None:
    huge = json.dumps(
        {"spec": {"containers": [{"name": "huge", "resources": {"requests": {"cpu": "1k"}}}]}}
    )
    kubectl("run", "huge", "--image=i", "--override-type=strategic", f"--overrides={huge}")
    condition = '--for=jsonpath={.status.conditions[?(@.type=="PodScheduled")].reason}=Unschedulable'
    kubectl("wait", condition, "pod/huge", "--timeout=30s")
    assert "0/3 nodes are available: 3 Insufficient cpu." in kubectl("describe", "pod", "huge").out
    kubectl("delete", "pod", "huge")


def test_a_namespace_takes_everything_with_it(kubectl: Kubectl) -> None:
    kubectl("create", "namespace", "short-lived")
    kubectl("-n", "short-lived", "create", "deployment", "x", "--image=i")
    kubectl("-n", "short-lived", "create", "configmap", "x")
    kubectl("-n", "short-lived", "rollout", "status", "deploy/x", "--timeout=30s")
    kubectl("delete", "namespace", "short-lived", "--timeout=30s")
    assert "NotFound" in kubectl("get", "namespace", "short-lived", fails=True).err
    assert "short-lived" not in kubectl("get", "pods,deploy,rs,cm", "-A").out


def test_manifests_are_deleted_as_they_were_applied(kubectl: Kubectl) -> None:
    manifests = str(Path(__file__).parents[2] / "deploy" / "manifests")
    for _ in range(2):
        kubectl("apply", "-k", manifests)
        assert kubectl("delete", "-k", manifests, "--timeout=30s").err == ""
    assert "NotFound" in kubectl("get", "namespace", "holdfast-system", fails=True).err


def test_a_tainted_node_is_avoided(kubectl: Kubectl) -> None:
    for node in ("node-1", "node-2"):
        kubectl("taint", "node", node, "k=v:NoSchedule")
    kubectl("create", "deployment", "shy", "--image=i", "--replicas=3")
    kubectl("rollout", "status", "deploy/shy", "--timeout=30s")
    assert set(where(kubectl, "app=shy").values()) == {"node-3"}
    kubectl("taint", "node", "node-3", "k=v:NoExecute")
    kubectl("taint", "node", "node-1", "k-")
    kubectl("rollout", "status", "deploy/shy", "--timeout=30s")
    assert set(where(kubectl, "app=shy").values()) <= {"node-1"}
    kubectl("delete", "deploy", "shy")
    kubectl("taint", "nodes", "node-2", "node-3", "k-")
