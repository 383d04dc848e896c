"""What is filled in, by kind."""

from __future__ import annotations

from typing import Any

import pytest

from holdfast.machinery.schema import apply_defaults, read_object
from holdfast.machinery.schema.catalogue import Catalogue

CATALOGUE = Catalogue()


def defaulted(group: str, plural: str, raw: dict[str, Any]) -> dict[str, Any]:
    type = CATALOGUE.resource(group, "v1", plural)
    assert type is not None
    read, problems = read_object(type, {"apiVersion": type.api_version, "kind": type.kind, **raw})
    assert not problems
    return apply_defaults(type, read)


def test_a_pod() -> None:
    raw = {"spec": {"containers": [{"name": "c", "image": "nginx", "ports": [{"containerPort": 80}]}]}}
    assert defaulted("", "pods", raw)["spec"] == {
        "containers": [
            {
                "name": "c",
                "image": "nginx",
                "ports": [{"containerPort": 80, "protocol": "TCP"}],
                "resources": {},
                "imagePullPolicy": "Always",
                "terminationMessagePath": "/dev/termination-log",
                "terminationMessagePolicy": "File",
            }
        ],
        "dnsPolicy": "ClusterFirst",
        "enableServiceLinks": True,
        "restartPolicy": "Always",
        "schedulerName": "default-scheduler",
        "securityContext": {},
        "terminationGracePeriodSeconds": 30,
    }


@pytest.mark.parametrize(
    ("image", "policy"),
    [
        ("nginx", "Always"),
        ("nginx:latest", "Always"),
        ("nginx:1.2", "IfNotPresent"),
        ("host:5000/nginx", "Always"),
        ("host:5000/nginx:1", "IfNotPresent"),
        ("nginx@sha256:0123", "IfNotPresent"),
    ],
)
def test_when_images_are_pulled(image: str, policy: str) -> None:
    spec = defaulted("", "pods", {"spec": {"containers": [{"name": "c", "image": image}]}})["spec"]
    assert spec["containers"][0]["imagePullPolicy"] == policy


def container(**more: Any) -> dict[str, Any]:
    return {"name": "c", "image": "i", **more}


@pytest.mark.parametrize(
    ("spec", "path", "expected"),
    [
        (
            {"containers": [container(resources={"limits": {"cpu": "2"}})]},
            ("containers", 0, "resources"),
            {"limits": {"cpu": "2"}, "requests": {"cpu": "2"}},
        ),
        (
            {"containers": [container(resources={"limits": {"cpu": "2"}, "requests": {"cpu": 1}})]},
            ("containers", 0, "resources", "requests"),
            {"cpu": "1"},
        ),
        (
            {"hostNetwork": True, "containers": [container(ports=[{"containerPort": 80}])]},
            ("containers", 0, "ports", 0, "hostPort"),
            80,
        ),
        (
            {"containers": [container()], "volumes": [{"name": "v"}]},
            ("volumes",),
            [{"name": "v", "emptyDir": {}}],
        ),
        (
            {"containers": [container()], "volumes": [{"name": "v", "secret": {"secretName": "s"}}]},
            ("volumes", 0, "secret", "defaultMode"),
            420,
        ),
        (
            {"containers": [container(livenessProbe={"httpGet": {"port": 80}})]},
            ("containers", 0, "livenessProbe"),
            {
                "httpGet": {"port": 80, "path": "/", "scheme": "HTTP"},
                "timeoutSeconds": 1,
                "periodSeconds": 10,
                "successThreshold": 1,
                "failureThreshold": 3,
            },
        ),
        (
            {
                "resources": {"limits": {"cpu": "4", "memory": "1Gi"}},
                "containers": [container(resources={"requests": {"cpu": "500m"}})] * 2,
            },
            ("resources", "requests"),
            {"cpu": "1", "memory": "1Gi"},
        ),
        (
            {"containers": [container(resources={"requests": {"cpu": "100u"}})]},
            ("containers", 0, "resources", "requests"),
            {"cpu": "1m"},
        ),
    ],
)
def test_parts_of_a_pod(spec: dict[str, Any], path: tuple[Any, ...], expected: Any) -> None:
    part: Any = defaulted("", "pods", {"spec": spec})["spec"]
    for step in path:
        part = part[step]
    assert part == expected


def test_a_template_gets_no_requests_from_limits() -> None:
    template = {"spec": {"containers": [container(resources={"limits": {"cpu": "1"}})]}}
    spec = defaulted("apps", "deployments", {"spec": {"template": template}})["spec"]
    assert spec["template"]["spec"]["containers"][0]["resources"] == {"limits": {"cpu": "1"}}
    assert "enableServiceLinks" not in spec["template"]["spec"]


@pytest.mark.parametrize(
    ("group", "plural", "spec", "expected"),
    [
        (
            "apps",
            "deployments",
            {},
            {
                "replicas": 1,
                "revisionHistoryLimit": 10,
                "progressDeadlineSeconds": 600,
                "strategy": {
                    "type": "RollingUpdate",
                    "rollingUpdate": {"maxUnavailable": "25%", "maxSurge": "25%"},
                },
            },
        ),
        ("apps", "deployments", {"strategy": {"type": "Recreate"}}, {"strategy": {"type": "Recreate"}}),
        (
            "apps",
            "daemonsets",
            {},
            {
                "updateStrategy": {
                    "type": "RollingUpdate",
                    "rollingUpdate": {"maxUnavailable": 1, "maxSurge": 0},
                }
            },
        ),
        (
            "apps",
            "statefulsets",
            {},
            {
                "podManagementPolicy": "OrderedReady",
                "updateStrategy": {"type": "RollingUpdate", "rollingUpdate": {"partition": 0}},
                "persistentVolumeClaimRetentionPolicy": {
                    "whenDeleted": "Retain",
                    "whenScaled": "Retain",
                },
            },
        ),
        (
            "batch",
            "jobs",
            {},
            {"completions": 1, "parallelism": 1, "backoffLimit": 6, "completionMode": "NonIndexed"},
        ),
        ("batch", "jobs", {"parallelism": 3}, {"parallelism": 3}),
        (
            "",
            "services",
            {"ports": [{"port": 80}]},
            {
                "type": "ClusterIP",
                "sessionAffinity": "None",
                "internalTrafficPolicy": "Cluster",
                "ports": [{"port": 80, "protocol": "TCP", "targetPort": 80}],
            },
        ),
        ("", "services", {"type": "NodePort"}, {"externalTrafficPolicy": "Cluster"}),
        ("", "persistentvolumeclaims", {}, {"volumeMode": "Filesystem"}),
        ("", "persistentvolumes", {}, {"persistentVolumeReclaimPolicy": "Retain"}),
    ],
)
def test_specs(group: str, plural: str, spec: Any, expected: dict[str, Any]) -> None:
    result = defaulted(group, plural, {"spec": spec})["spec"]
    assert {name: result[name] for name in expected} == expected


def test_a_job_with_parallelism_has_no_completions() -> None:
    assert "completions" not in defaulted("batch", "jobs", {"spec": {"parallelism": 2}})["spec"]


def test_the_template_of_a_cron_job_is_no_job_yet() -> None:
    raw = {"spec": {"jobTemplate": {"spec": {"template": {"spec": {"containers": [container()]}}}}}}
    job = defaulted("batch", "cronjobs", raw)["spec"]["jobTemplate"]["spec"]
    assert set(job) == {"template"}
    assert job["template"]["spec"]["schedulerName"] == "default-scheduler"


@pytest.mark.parametrize("field", ["serviceAccount", "serviceAccountName"])
def test_the_service_account_has_two_names(field: str) -> None:
    spec = defaulted("", "pods", {"spec": {"containers": [container()], field: "me"}})["spec"]
    assert (spec["serviceAccount"], spec["serviceAccountName"]) == ("me", "me")


def test_secrets_may_be_written_as_text() -> None:
    raw = defaulted("", "secrets", {"stringData": {"a": "b"}, "data": {"a": "eA==", "c": "ZA=="}})
    assert raw["data"] == {"a": "Yg==", "c": "ZA=="}
    assert "stringData" not in raw
    assert raw["type"] == "Opaque"


def test_a_field_that_was_left_empty_gets_its_default() -> None:
    raw = defaulted("rbac.authorization.k8s.io", "rolebindings", {"roleRef": {"kind": "Role"}})
    assert raw["roleRef"]["apiGroup"] == "rbac.authorization.k8s.io"


def test_a_namespace_is_labelled_with_its_name() -> None:
    raw = defaulted("", "namespaces", {"metadata": {"name": "n"}})
    assert raw["metadata"]["labels"] == {"kubernetes.io/metadata.name": "n"}
    assert raw["status"] == {"phase": "Active"}


def test_a_node_can_allocate_its_capacity() -> None:
    raw = defaulted("", "nodes", {"status": {"capacity": {"cpu": "4"}}})
    assert raw["status"]["allocatable"] == {"cpu": "4"}


def test_storage_and_priority_classes() -> None:
    storage = defaulted("storage.k8s.io", "storageclasses", {"provisioner": "x"})
    assert (storage["reclaimPolicy"], storage["volumeBindingMode"]) == ("Delete", "Immediate")
    priority = defaulted("scheduling.k8s.io", "priorityclasses", {"value": 1})
    assert priority["preemptionPolicy"] == "PreemptLowerPriority"


def test_nothing_to_add_gives_the_same_object() -> None:
    type = CATALOGUE.resource("", "v1", "pods")
    assert type is not None
    raw = defaulted("", "pods", {"spec": {"containers": [container(ports=[{"containerPort": 1}])]}})
    assert apply_defaults(type, raw) is raw
