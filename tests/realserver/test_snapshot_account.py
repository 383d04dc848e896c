"""`holdfast snapshot` with the permissions of its ClusterRole, which the server's own RBAC enforces."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import yaml

from harness.builders import make_node, make_pod
from harness.served_cluster import call
from holdfast.snapshot.reader import SNAPSHOT_KINDS
from realserver.accounts import as_the_account, ensure
from realserver.client import Json
from realserver.server import RealServer

ROLE = Path(__file__).parents[2] / "deploy" / "snapshot" / "rbac.yaml"
ACCOUNT = "system:serviceaccount:default:snapshots"
WRITES = ("create", "update", "patch", "delete", "deletecollection", "watch", "bind", "escalate")
SECRET = "s3cr3t"


def _grant(server: RealServer) -> None:
    role = yaml.safe_load(ROLE.read_text())
    subject = {"kind": "ServiceAccount", "name": "snapshots", "namespace": "default"}
    ensure(server, role)
    ensure(
        server,
        {
            "apiVersion": "rbac.authorization.k8s.io/v1",
            "kind": "ClusterRoleBinding",
            "metadata": {"name": "snapshots"},
            "roleRef": {
                "apiGroup": "rbac.authorization.k8s.io",
                "kind": "ClusterRole",
                "name": role["metadata"]["name"],
            },
            "subjects": [subject],
        },
    )
    # The server's authorizer sees the binding a moment later.
    server.wait_until(lambda: _may(server, "list", "", "nodes"))


def _may(server: RealServer, verb: str, group: str, resource: str, sub: str = "") -> bool:
    attributes = {"verb": verb, "group": group, "resource": resource, "subresource": sub}
    review: Json = {
        "apiVersion": "authorization.k8s.io/v1",
        "kind": "SubjectAccessReview",
        "spec": {
            "user": ACCOUNT,
            "groups": ["system:serviceaccounts", "system:authenticated"],
            "resourceAttributes": attributes,
        },
    }
    path = "/apis/authorization.k8s.io/v1/subjectaccessreviews"
    answer: Json = server.client.request("POST", path, review)
    return bool(answer["status"]["allowed"])


def _fill(server: RealServer) -> None:
    node = make_node("n1").allocatable(cpu="4", memory="8Gi", pods=10).raw()
    pod = make_pod("web").cpu("1").raw()
    for raw in (node, pod):
        del raw["metadata"]["uid"]
    pod["metadata"]["annotations"] = {"example.com/token": SECRET}
    container: dict[str, Any] = pod["spec"]["containers"][0]
    container |= {
        "env": [{"name": "PASSWORD", "value": SECRET}],
        "command": ["sh", "-c", f"echo {SECRET}"],
        "args": [SECRET],
    }
    pod["spec"]["volumes"] = [{"name": "v", "secret": {"secretName": SECRET}}]
    for raw in (node, pod):
        server.client.create(raw)


def test_the_account_may_read_what_is_listed_and_write_nothing(real_cluster: RealServer) -> None:
    _grant(real_cluster)
    for kind in SNAPSHOT_KINDS:
        group, resource = kind.info.group, kind.info.plural
        assert _may(real_cluster, "list", group, resource), resource
        for verb in WRITES:
            assert not _may(real_cluster, verb, group, resource), f"{verb} {resource}"
    for verb in ("get", "list", "watch", *WRITES):
        for resource in ("secrets", "configmaps", "events", "serviceaccounts"):
            assert not _may(real_cluster, verb, "", resource), f"{verb} {resource}"
    for sub in ("binding", "eviction", "exec", "log", "status"):
        for verb in ("get", "create", "patch"):
            assert not _may(real_cluster, verb, "", "pods", sub), f"{verb} pods/{sub}"


def test_a_snapshot_needs_no_more_than_the_role(real_cluster: RealServer, tmp_path: Path) -> None:
    _grant(real_cluster)
    _fill(real_cluster)
    kubeconfig = str(as_the_account(real_cluster, tmp_path, ACCOUNT))
    file = tmp_path / "c.json.gz"
    done = call("snapshot", "-o", str(file), "--kubeconfig", kubeconfig)
    assert done.status == 0, done.err
    assert "warning" not in done.err
    text = gzip.decompress(file.read_bytes()).decode()
    assert SECRET not in text
    header, *objects = json.loads(text)["items"]
    assert header["serverVersion"].startswith("v1.")
    assert header["resourceVersion"], "all lists are of one version"
    assert "notPermitted" not in header
    assert {("Node", "n1"), ("Pod", "web")} <= {
        (raw["kind"], raw["metadata"]["name"]) for raw in objects
    }
    nodes = call("get", "nodes", "--no-headers", "--snapshot", str(file))
    assert nodes.rows()[0][:3] == ["n1", "Unknown", "0/10"]


def test_what_is_not_permitted_is_reported(real_cluster: RealServer, tmp_path: Path) -> None:
    _grant(real_cluster)
    _fill(real_cluster)
    role = yaml.safe_load(ROLE.read_text())
    path = "/apis/rbac.authorization.k8s.io/v1/clusterroles/holdfast-snapshot"
    less = [rule for rule in role["rules"] if "policy" not in rule["apiGroups"]]
    merge = "application/merge-patch+json"
    status, text = real_cluster.client.ask("PATCH", path, json.dumps({"rules": less}), merge)
    assert status == 200, text
    try:
        real_cluster.wait_until(
            lambda: not _may(real_cluster, "list", "policy", "poddisruptionbudgets")
        )
        kubeconfig = str(as_the_account(real_cluster, tmp_path, ACCOUNT))
        file = tmp_path / "c.json"
        done = call("snapshot", "-o", str(file), "--kubeconfig", kubeconfig)
        assert done.status == 0, done.err
        warning = (
            "not permitted to list poddisruptionbudgets.policy; preemption and drains do not respect"
        )
        assert warning in done.err
        header = json.loads(file.read_text())["items"][0]
        (missing,) = header["notPermitted"]
        assert missing["resource"] == "poddisruptionbudgets.policy"
        assert "is forbidden" in missing["message"]
        assert warning in call("simulate", str(file)).err
    finally:
        real_cluster.client.ask("PATCH", path, json.dumps({"rules": role["rules"]}), merge)
