"""kubectl and kinds that nothing acts on: created from flags (protobuf) and from manifests (JSON)."""

from __future__ import annotations

import json
from typing import Any

import pytest

from kubectl.conftest import Kubectl

DEPLOYMENT = {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"}
CPU_80 = {
    "type": "Resource",
    "resource": {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": 80}},
}


def shown(kubectl: Kubectl, kind: str, name: str) -> dict[str, Any]:
    return dict(json.loads(kubectl("get", kind, name, "-o", "json").out))


def apply(kubectl: Kubectl, api_version: str, kind: str, name: str, **parts: Any) -> None:
    raw = {"apiVersion": api_version, "kind": kind, "metadata": {"name": name}, **parts}
    kubectl("apply", "-f", "-", stdin=json.dumps(raw))


def test_a_quota_from_flags_is_that_of_a_manifest(kubectl: Kubectl) -> None:
    kubectl("create", "quota", "a", "--hard=cpu=1,pods=0,limits.memory=1Gi", "--scopes=BestEffort")
    spec = {"hard": {"cpu": "1", "pods": "0", "limits.memory": "1Gi"}, "scopes": ["BestEffort"]}
    apply(kubectl, "v1", "ResourceQuota", "b", spec=spec)
    assert shown(kubectl, "quota", "a")["spec"] == shown(kubectl, "quota", "b")["spec"] == spec
    row = kubectl("get", "quota", "a", "--no-headers").out.split()
    assert row[:-1] == ["a"], "nothing is counted, so no usage is shown"


def test_an_autoscaler_from_flags_is_that_of_a_manifest(kubectl: Kubectl) -> None:
    kubectl("create", "deployment", "web", "--image=i")
    kubectl("autoscale", "deployment", "web", "--max=5", "--cpu=80%")
    spec = {"scaleTargetRef": DEPLOYMENT, "maxReplicas": 5}
    apply(kubectl, "autoscaling/v2", "HorizontalPodAutoscaler", "b", spec=spec)
    made = shown(kubectl, "hpa", "web")
    assert made["spec"] == {**spec, "minReplicas": 1, "metrics": [CPU_80]}
    assert made["status"] == {"currentMetrics": None, "desiredReplicas": 0}
    assert shown(kubectl, "hpa", "b")["spec"] == made["spec"]
    row = kubectl("get", "hpa", "web", "--no-headers").out
    assert row.split()[1:7] == ["Deployment/web", "cpu:", "<unknown>/80%", "1", "5", "0"]
    assert "resource cpu on pods" in kubectl("describe", "hpa", "web").out


def test_both_versions_of_an_autoscaler_are_one_object(kubectl: Kubectl) -> None:
    spec = {"scaleTargetRef": DEPLOYMENT, "maxReplicas": 5, "targetCPUUtilizationPercentage": 80}
    for _ in range(2):
        apply(kubectl, "autoscaling/v1", "HorizontalPodAutoscaler", "old", spec=spec)
    old = "horizontalpodautoscalers.v1.autoscaling"
    assert shown(kubectl, old, "old")["spec"] == {**spec, "minReplicas": 1}
    assert shown(kubectl, "hpa", "old")["spec"]["metrics"] == [CPU_80]
    behavior = {"scaleDown": {"stabilizationWindowSeconds": 0}}
    kubectl("patch", "hpa", "old", "--type=merge", "-p", json.dumps({"spec": {"behavior": behavior}}))
    patch = {"spec": {"targetCPUUtilizationPercentage": 50}}
    kubectl("patch", old, "old", "--type=merge", "-p", json.dumps(patch))
    made = shown(kubectl, "hpa", "old")
    assert made["spec"]["metrics"][0]["resource"]["target"]["averageUtilization"] == 50
    assert made["spec"]["behavior"]["scaleDown"]["stabilizationWindowSeconds"] == 0
    assert made["spec"]["behavior"]["scaleUp"]["selectPolicy"] == "Max"
    assert shown(kubectl, old, "old")["status"] == {"currentReplicas": 0, "desiredReplicas": 0}


def test_roles_from_flags(kubectl: Kubectl) -> None:
    kubectl("create", "role", "r", "--verb=get,list", "--resource=pods", "--resource-name=a")
    rule = {"verbs": ["get", "list"], "apiGroups": [""], "resources": ["pods"], "resourceNames": ["a"]}
    assert shown(kubectl, "role", "r")["rules"] == [rule]
    subjects = ("--user=u", "--group=g", "--serviceaccount=default:sa")
    kubectl("create", "rolebinding", "rb", "--role=r", *subjects)
    row = kubectl("get", "rolebinding", "rb", "-o", "wide", "--no-headers").out.split()
    assert [*row[:2], *row[3:]] == ["rb", "Role/r", "u", "g", "default/sa"]
    kubectl("create", "clusterrole", "cr", "--verb=get", "--non-resource-url=/healthz")
    assert shown(kubectl, "clusterrole", "cr")["rules"] == [
        {"verbs": ["get"], "nonResourceURLs": ["/healthz"]}
    ]


def test_an_ingress_from_flags(kubectl: Kubectl) -> None:
    rules = ("--rule=foo.com/bar*=svc:8080,tls=secret", "--rule=bar.com/=svc:http")
    kubectl("create", "ingress", "i", "--class=nginx", *rules)
    made = shown(kubectl, "ingress", "i")
    assert made["spec"]["rules"][0]["http"]["paths"] == [
        {
            "path": "/bar",
            "pathType": "Prefix",
            "backend": {"service": {"name": "svc", "port": {"number": 8080}}},
        }
    ]
    assert made["status"] == {"loadBalancer": {}}
    row = kubectl("get", "ingress", "i", "--no-headers").out
    assert row.split()[:5] == ["i", "nginx", "foo.com,bar.com", "80,", "443"]


@pytest.mark.parametrize(
    ("api_version", "kind", "parts", "expected"),
    [
        (
            "networking.k8s.io/v1",
            "NetworkPolicy",
            {
                "spec": {
                    "podSelector": {"matchLabels": {"app": "web"}},
                    "ingress": [{"ports": [{"port": 80, "endPort": 90}, {"port": "dns"}]}],
                }
            },
            {
                "podSelector": {"matchLabels": {"app": "web"}},
                "ingress": [
                    {
                        "ports": [
                            {"port": 80, "endPort": 90, "protocol": "TCP"},
                            {"port": "dns", "protocol": "TCP"},
                        ]
                    }
                ],
                "policyTypes": ["Ingress"],
            },
        ),
        (
            "v1",
            "LimitRange",
            {"spec": {"limits": [{"type": "Container", "max": {"cpu": "2"}, "min": {"memory": "0"}}]}},
            {
                "limits": [
                    {
                        "type": "Container",
                        "max": {"cpu": "2"},
                        "min": {"memory": "0"},
                        "default": {"cpu": "2"},
                        "defaultRequest": {"cpu": "2", "memory": "0"},
                    }
                ]
            },
        ),
        (
            "policy/v1",
            "PodDisruptionBudget",
            {"spec": {"maxUnavailable": 0, "selector": {"matchLabels": {"app": "web"}}}},
            {"maxUnavailable": 0, "selector": {"matchLabels": {"app": "web"}}},
        ),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_manifest_gets_its_defaults(
    kubectl: Kubectl, api_version: str, kind: str, parts: dict[str, Any], expected: dict[str, Any]
) -> None:
    for _ in range(2):
        apply(kubectl, api_version, kind, "m", **parts)
    assert shown(kubectl, kind, "m")["spec"] == expected


def test_accounts_have_no_tokens(kubectl: Kubectl) -> None:
    kubectl("create", "serviceaccount", "robot")
    refused = kubectl("create", "token", "robot", fails=True).err
    assert "ServiceAccounts have no tokens here" in refused
    assert "kubeconfig" in refused
    assert 'serviceaccounts "none" not found' in kubectl("create", "token", "none", fails=True).err


def test_a_short_name_is_that_of_one_kind(kubectl: Kubectl) -> None:
    for name in ("pg", "pgs"):
        assert "Warning" not in kubectl("get", name).err
