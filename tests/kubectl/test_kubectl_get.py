"""Looking at things with kubectl."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest
import yaml

from harness.apiserver import LiveServer
from kubectl.conftest import Kubectl, kubectl_binary

PODS = """
apiVersion: v1
kind: List
items:
- &a
  apiVersion: v1
  kind: Pod
  metadata: {name: a, labels: {app: web}}
  spec: {containers: [{name: c, image: i}]}
- {<<: *a, metadata: {name: b, labels: {app: web}}}
- {<<: *a, metadata: {name: c, labels: {app: db}}}
"""


@pytest.fixture(scope="module", autouse=True)
def pods(kubectl: Kubectl, live: LiveServer) -> None:
    kubectl("apply", "-f", "-", stdin=PODS)
    body = {"metadata": {"name": "b"}, "target": {"kind": "Node", "name": "n1"}}
    live.post("/api/v1/namespaces/default/pods/b/binding", body)
    uid = live.get("/api/v1/namespaces/default/pods/b").body["metadata"]["uid"]
    event = {
        "metadata": {"name": "b.1"},
        "involvedObject": {
            "apiVersion": "v1",
            "kind": "Pod",
            "namespace": "default",
            "name": "b",
            "uid": uid,
        },
        "reason": "Scheduled",
        "message": "Successfully assigned default/b to n1",
        "type": "Normal",
        "count": 1,
        "source": {"component": "default-scheduler"},
        "firstTimestamp": "2026-01-01T00:00:00Z",
        "lastTimestamp": "2026-01-01T00:00:00Z",
    }
    live.post("/api/v1/namespaces/default/events", event)


def test_get(kubectl: Kubectl) -> None:
    lines = kubectl("get", "pods").lines
    assert lines[0].split() == ["NAME", "READY", "STATUS", "RESTARTS", "AGE"]
    assert [line.split()[:4] for line in lines[1:]] == [
        ["a", "0/1", "Pending", "0"],
        ["b", "0/1", "Pending", "0"],
        ["c", "0/1", "Pending", "0"],
    ]


def test_get_wide(kubectl: Kubectl) -> None:
    head, *lines = kubectl("get", "pods", "-o", "wide").lines
    assert head.split(maxsplit=5)[5].split("  ")[0] == "IP"
    assert "NOMINATED NODE" in head
    assert "READINESS GATES" in head
    assert lines[1].split()[5:] == ["<none>", "n1", "<none>", "<none>"]


def test_get_json_and_yaml(kubectl: Kubectl) -> None:
    listed = json.loads(kubectl("get", "pods", "-o", "json").out)
    assert [each["metadata"]["name"] for each in listed["items"]] == ["a", "b", "c"]
    assert {(each["apiVersion"], each["kind"]) for each in listed["items"]} == {("v1", "Pod")}
    one = yaml.safe_load(kubectl("get", "pod", "b", "-o", "yaml").out)
    assert one["spec"]["nodeName"] == "n1"


def test_get_columns_names_and_paths(kubectl: Kubectl) -> None:
    columns = "custom-columns=N:.metadata.name,ON:.spec.nodeName"
    assert kubectl("get", "pods", "-o", columns).lines[2].split() == ["b", "n1"]
    assert kubectl("get", "pods", "-o", "name").lines == ["pod/a", "pod/b", "pod/c"]
    assert kubectl("get", "pods", "-o", "jsonpath={.items[*].metadata.name}").out == "a b c"


def test_get_by_selector(kubectl: Kubectl) -> None:
    assert kubectl("get", "po", "-l", "app=web", "-o", "name").lines == ["pod/a", "pod/b"]
    assert kubectl("get", "po", "-l", "app in (db)", "-o", "name").lines == ["pod/c"]
    chosen = kubectl("get", "po", "--field-selector", "spec.nodeName=n1", "-o", "name")
    assert chosen.lines == ["pod/b"]
    wrong = kubectl("get", "po", "--field-selector", "spec.foo=1", fails=True)
    assert "field label not supported: spec.foo" in wrong.err


def test_get_in_chunks(kubectl: Kubectl) -> None:
    assert len(kubectl("get", "pods", "--chunk-size=1").lines) == 4
    assert kubectl("get", "pods", "--chunk-size=2", "-o", "name").lines == ["pod/a", "pod/b", "pod/c"]


def test_get_everything_everywhere(kubectl: Kubectl) -> None:
    assert "pod/a" in kubectl("get", "all", "-A").out
    assert kubectl("get", "ns").lines[1].split()[:2] == ["default", "Active"]
    assert "No resources found" in kubectl("get", "deploy").err


def test_get_watch(kubectl: Kubectl, live: LiveServer, tmp_path: Path) -> None:
    config = live.kubeconfig(tmp_path / "config")
    watching = subprocess.Popen(
        [kubectl_binary(), f"--kubeconfig={config}", "get", "cm", "-w", "--output-watch-events"],
        stdout=subprocess.PIPE,
        text=True,
    )
    assert watching.stdout is not None
    with watching:
        try:
            kubectl("create", "cm", "watched")
            seen = [watching.stdout.readline().split()[:2] for _ in range(2)]
            assert seen == [["EVENT", "NAME"], ["ADDED", "watched"]]
            kubectl("delete", "cm", "watched")
            assert watching.stdout.readline().split()[:2] == ["DELETED", "watched"]
        finally:
            watching.terminate()


def test_describe_shows_events(kubectl: Kubectl) -> None:
    output = kubectl("describe", "pod", "b").out
    assert "Node:         n1/" in output or "Node:             n1/" in output
    assert "Successfully assigned default/b to n1" in output
    assert "Scheduled" in kubectl("events", "--for", "pod/b").out
    assert "pod/b" in kubectl("get", "events").out


def test_explain(kubectl: Kubectl) -> None:
    assert "nodeSelector" in kubectl("explain", "pod.spec").out
    output = kubectl("explain", "deploy.spec.strategy.rollingUpdate").out
    assert "maxUnavailable" in output
    assert "allocateOnce" in kubectl("explain", "reservation.spec").out
    assert "does not exist" in kubectl("explain", "pod.spec.nope", fails=True).err


def test_api_resources_and_versions(kubectl: Kubectl) -> None:
    lines = kubectl("api-resources").lines
    rows = {line.split()[0]: line.split() for line in lines}
    assert rows["pods"][1:] == ["po", "v1", "true", "Pod"]
    assert rows["reservations"][1:] == [
        "rsv",
        "scheduling.koordinator.sh/v1alpha1",
        "false",
        "Reservation",
    ]
    assert "apps/v1" in kubectl("api-versions").lines
    shown = kubectl("version")
    assert "Server Version: v1.37" in shown.out
    assert "skew" not in shown.out + shown.err


def test_auth(kubectl: Kubectl) -> None:
    assert kubectl("auth", "can-i", "create", "pods").out == "yes\n"
    assert "system:masters" in kubectl("auth", "whoami").out
    assert "*.*" in kubectl("auth", "can-i", "--list").out


DEVICES = """
apiVersion: resource.k8s.io/v1
kind: DeviceClass
metadata: {name: gpu}
spec:
  selectors: [{cel: {expression: device.driver == "d.io"}}]
---
apiVersion: resource.k8s.io/v1
kind: ResourceSlice
metadata: {name: n1-d.io}
spec:
  driver: d.io
  nodeName: n1
  pool: {name: n1, generation: 1, resourceSliceCount: 1}
  devices: [{name: gpu-0, attributes: {model: {string: a100}}}]
---
apiVersion: resource.k8s.io/v1
kind: ResourceClaim
metadata: {name: mine}
spec:
  devices:
    requests: [{name: gpu, exactly: {deviceClassName: gpu}}]
"""


def test_devices_and_claims(kubectl: Kubectl) -> None:
    for _ in range(2):
        kubectl("apply", "-f", "-", stdin=DEVICES)
    shown = kubectl("get", "resourceslices,deviceclasses,resourceclaims", "--no-headers").lines
    assert [line.split()[:-1] for line in shown if line] == [
        ["resourceslice.resource.k8s.io/n1-d.io", "n1", "d.io", "n1"],
        ["deviceclass.resource.k8s.io/gpu"],
        ["resourceclaim.resource.k8s.io/mine", "pending"],
    ]
    fields = kubectl("explain", "resourceclaim.spec.devices.requests.exactly").out
    assert "allocationMode" in fields
    count = '[{"op": "add", "path": "/spec/devices/requests/0/exactly/count", "value": 2}]'
    refused = kubectl("patch", "resourceclaim", "mine", "--type=json", "-p", count, fails=True)
    assert "field is immutable" in refused.err
