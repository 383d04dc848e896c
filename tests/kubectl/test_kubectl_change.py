"""Changing things with kubectl."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from harness.apiserver import LiveServer
from kubectl.conftest import Kubectl

POD = """
apiVersion: v1
kind: Pod
metadata: {name: NAME, labels: {app: one}}
spec: {containers: [{name: c, image: i}]}
"""
DEPLOYMENT = """
apiVersion: apps/v1
kind: Deployment
metadata: {name: web}
spec:
  replicas: 2
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec: {containers: [{name: c, image: i, env: [{name: A, value: b}]}]}
"""


def shown(kubectl: Kubectl, *what: str) -> dict[str, Any]:
    value = json.loads(kubectl("get", *what, "-o", "json").out)
    assert isinstance(value, dict)
    return value


def test_apply_diff_and_apply_again(kubectl: Kubectl, tmp_path: Path) -> None:
    file = tmp_path / "deployment.yaml"
    file.write_text(DEPLOYMENT)
    assert kubectl("diff", "-f", str(file), fails=True).code == 1
    assert kubectl("apply", "-f", str(file)).out == "deployment.apps/web created\n"
    assert kubectl("apply", "-f", str(file)).out == "deployment.apps/web unchanged\n"
    assert kubectl("diff", "-f", str(file)).out == ""
    file.write_text(DEPLOYMENT.replace("replicas: 2", "replicas: 3").replace("{name: A, value: b}", ""))
    assert "-  replicas: 2\n+  replicas: 3" in kubectl("diff", "-f", str(file), fails=True).out
    assert kubectl("apply", "-f", str(file)).out == "deployment.apps/web configured\n"
    spec = shown(kubectl, "deploy", "web")["spec"]
    assert spec["replicas"] == 3
    assert "env" not in spec["template"]["spec"]["containers"][0], "what was applied is taken back"
    assert kubectl("scale", "deploy/web", "--replicas=7").out == "deployment.apps/web scaled\n"
    assert shown(kubectl, "deploy", "web")["spec"]["replicas"] == 7
    kubectl("set", "image", "deploy/web", "c=other")
    assert kubectl("delete", "-f", str(file)).code == 0


def test_server_side_apply_has_owners(kubectl: Kubectl) -> None:
    mine = POD.replace("NAME", "owned")
    kubectl("apply", "--server-side", "-f", "-", stdin=mine)
    theirs = mine.replace("app: one", "app: two")
    arguments = ("apply", "--server-side", "--field-manager=other", "-f", "-")
    refused = kubectl(*arguments, stdin=theirs, fails=True)
    assert 'conflict with "kubectl": .metadata.labels.app' in refused.err
    kubectl(*arguments, "--force-conflicts", stdin=theirs)
    assert shown(kubectl, "pod", "owned")["metadata"]["labels"] == {"app": "two"}


@pytest.mark.parametrize(
    ("kind", "patch", "labels"),
    [
        ("strategic", '{"metadata":{"labels":{"x":"y"}}}', {"app": "one", "x": "y"}),
        ("merge", '{"metadata":{"labels":{"app":null,"z":"z"}}}', {"z": "z"}),
        ("json", '[{"op":"replace","path":"/metadata/labels/app","value":"two"}]', {"app": "two"}),
    ],
)
def test_patch(kubectl: Kubectl, kind: str, patch: str, labels: dict[str, str]) -> None:
    name = f"patch-{kind}"
    kubectl("create", "-f", "-", stdin=POD.replace("NAME", name))
    assert kubectl("patch", "pod", name, "--type", kind, "-p", patch).out == f"pod/{name} patched\n"
    assert shown(kubectl, "pod", name)["metadata"]["labels"] == labels
    assert "(no change)" in kubectl("patch", "pod", name, "--type=merge", "-p", "{}").out


def test_edit(kubectl: Kubectl, tmp_path: Path) -> None:
    kubectl("create", "-f", "-", stdin=POD.replace("NAME", "edited"))
    editor = tmp_path / "editor"
    editor.write_text('#!/bin/sh\nsed -i "s/app: one/app: three/" "$1"\n')
    editor.chmod(0o755)
    assert kubectl("edit", "pod", "edited", EDITOR=str(editor)).out == "pod/edited edited\n"
    assert shown(kubectl, "pod", "edited")["metadata"]["labels"] == {"app": "three"}
    editor.write_text('#!/bin/sh\nsed -i "s/image: i/imagine: i/" "$1"\nexit 1\n')
    assert kubectl("edit", "pod", "edited", fails=True, EDITOR=str(editor)).code == 1


def test_label_and_annotate(kubectl: Kubectl) -> None:
    kubectl("create", "-f", "-", stdin=POD.replace("NAME", "marked"))
    kubectl("label", "pod", "marked", "a=b")
    assert "already has a value" in kubectl("label", "pod", "marked", "a=c", fails=True).err
    kubectl("label", "pod", "marked", "a=c", "--overwrite")
    kubectl("label", "pod", "marked", "app-")
    kubectl("annotate", "pod", "marked", "d=e")
    metadata = shown(kubectl, "pod", "marked")["metadata"]
    assert (metadata["labels"], metadata["annotations"]) == ({"a": "c"}, {"d": "e"})
    assert "a valid label must be" in kubectl("label", "pod", "marked", "a=x/y", fails=True).err


def test_cordon_taint_and_drain(kubectl: Kubectl, live: LiveServer) -> None:
    node = {"metadata": {"name": "n1"}, "status": {"allocatable": {"cpu": "4"}}}
    live.post("/api/v1/nodes", node)
    kubectl("taint", "node", "n1", "k=v:NoSchedule")
    assert shown(kubectl, "node", "n1")["spec"]["taints"] == [
        {"key": "k", "value": "v", "effect": "NoSchedule"}
    ]
    kubectl("taint", "node", "n1", "k-")
    kubectl("cordon", "n1")
    assert "SchedulingDisabled" in kubectl("get", "node", "n1").out
    kubectl("uncordon", "n1")
    assert "unschedulable" not in shown(kubectl, "node", "n1")["spec"]
    kubectl("create", "-f", "-", stdin=POD.replace("NAME", "drained"))
    body = {"metadata": {"name": "drained"}, "target": {"kind": "Node", "name": "n1"}}
    live.post("/api/v1/namespaces/default/pods/drained/binding", body)
    drained = kubectl("drain", "n1", "--force", "--grace-period=0", "--timeout=30s")
    assert "pod/drained evicted" in drained.out
    assert "not found" in kubectl("get", "pod", "drained", fails=True).err
    assert "SchedulingDisabled" in kubectl("get", "node", "n1").out


def test_create_of_many_sorts(kubectl: Kubectl) -> None:
    for arguments in (
        ("deployment", "made", "--image=i", "--replicas=2"),
        ("job", "made", "--image=i"),
        ("cronjob", "made", "--image=i", "--schedule=* * * * *"),
        ("configmap", "made", "--from-literal=a=b"),
        ("secret", "generic", "made", "--from-literal=a=b"),
        ("namespace", "made"),
        ("serviceaccount", "made"),
        ("service", "clusterip", "made", "--tcp=80:8080"),
        ("pdb", "made", "--selector=a=b", "--min-available=50%"),
        ("priorityclass", "made", "--value=5"),
    ):
        assert kubectl("create", *arguments).out.endswith("made created\n")
    assert shown(kubectl, "secret", "made")["data"] == {"a": "Yg=="}
    assert shown(kubectl, "pdb", "made")["spec"]["minAvailable"] == "50%"
    assert shown(kubectl, "svc", "made")["spec"]["ports"][0]["targetPort"] == 8080
    kubectl("run", "ran", "--image=i", "--labels=a=b")
    assert shown(kubectl, "pod", "ran")["metadata"]["labels"] == {"a": "b"}


def test_delete_and_wait(kubectl: Kubectl) -> None:
    kubectl("create", "-f", "-", stdin=POD.replace("NAME", "waited"))
    kubectl("wait", "--for=jsonpath={.status.phase}=Pending", "pod/waited", "--timeout=10s")
    assert 'pod "waited" deleted' in kubectl("delete", "pod", "waited").out
    kubectl("wait", "--for=delete", "pod/waited", "--timeout=10s")
    assert "NotFound" in kubectl("delete", "pod", "waited", fails=True).err
    kubectl("create", "-f", "-", stdin=POD.replace("NAME", "slow"))
    timed_out = kubectl("wait", "--for=condition=Ready", "pod/slow", "--timeout=1s", fails=True)
    assert "timed out waiting for the condition" in timed_out.err
    kubectl("delete", "pod", "slow", "--now")


@pytest.mark.parametrize(
    ("manifest", "words"),
    [
        (POD.replace("containers", "contaners"), 'unknown field "spec.contaners"'),
        (POD.replace("image: i", "image: i, ports: x"), "cannot be handled as a Pod"),
        (POD.replace("NAME", "Big"), "a lowercase RFC 1123 subdomain must consist of"),
        (POD.replace("kind: Pod", "kind: Pood"), 'no matches for kind "Pood" in version "v1"'),
        (POD.replace("[{name: c, image: i}]", "[]"), "spec.containers: Required value"),
        (DEPLOYMENT.replace("labels: {app: web}", "labels: {app: db}"), "does not match template"),
        ("a: b: c", "error converting YAML to JSON"),
        (POD.replace("NAME", "x, namespace: nowhere"), 'namespaces "nowhere" not found'),
    ],
)
def test_invalid_manifests_are_refused_with_a_reason(
    kubectl: Kubectl, manifest: str, words: str
) -> None:
    output = kubectl("create", "-f", "-", stdin=manifest, fails=True)
    assert words in output.err


def test_reservations_by_kubectl(kubectl: Kubectl) -> None:
    manifest = """
apiVersion: scheduling.koordinator.sh/v1alpha1
kind: Reservation
metadata: {name: r1}
spec:
  owners: [{object: {name: x}}]
  template: {spec: {containers: [{name: c, image: i, resources: {requests: {cpu: 1}}}]}}
"""
    kubectl("apply", "-f", "-", stdin=manifest)
    assert kubectl("get", "rsv").lines[0].split()[:3] == ["NAME", "PHASE", "NODE"]
    ends = ("get", "rsv", "r1", "-o", "jsonpath={.spec.ttl}|{.spec.expires}")
    assert kubectl(*ends).out == "24h|"
    for patch, expected in (
        ('{"spec":{"expires":"2027-01-01T00:00:00Z"}}', "|2027-01-01T00:00:00Z"),
        ('{"spec":{"expires":null}}', "24h|"),
    ):
        kubectl("patch", "rsv", "r1", "--type=merge", "-p", patch)
        assert kubectl(*ends).out == expected
    patch = '{"status":{"phase":"Available"}}'
    kubectl("patch", "rsv", "r1", "--subresource=status", "--type=merge", "-p", patch)
    assert kubectl("get", "rsv", "r1").lines[1].split()[:2] == ["r1", "Available"]
    bad = kubectl("create", "-f", "-", stdin=manifest.replace("owners", "owner"), fails=True)
    assert "owner" in bad.err
    kubectl("delete", "rsv", "r1")
