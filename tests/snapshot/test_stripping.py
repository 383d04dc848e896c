"""What leaves the cluster in a snapshot: what scheduling reads, and nothing that may be private."""

from __future__ import annotations

import json
from typing import Any

import pytest

from holdfast.api import names as n
from holdfast.snapshot.stripping import TEMPLATE_DIGEST, Stripper, decode_pods

Raw = dict[str, Any]
PRIVATE = "s3cr3t"

CONTAINER: Raw = {
    "name": "c",
    "image": "nginx",
    "resources": {"requests": {"cpu": "1"}},
    "ports": [{"containerPort": 80, "hostPort": 8080}],
}
PRIVATE_CONTAINER: Raw = {
    **CONTAINER,
    "env": [{"name": "A", "value": PRIVATE}],
    "envFrom": [{"secretRef": {"name": PRIVATE}}],
    "command": [PRIVATE],
    "args": [PRIVATE],
    "workingDir": f"/{PRIVATE}",
    "livenessProbe": {"exec": {"command": [PRIVATE]}},
    "lifecycle": {"preStop": {"exec": {"command": [PRIVATE]}}},
    "volumeMounts": [{"name": "v", "mountPath": f"/{PRIVATE}"}],
    "securityContext": {"seLinuxOptions": {"user": PRIVATE}},
}
SPEC: Raw = {
    "containers": [PRIVATE_CONTAINER],
    "initContainers": [PRIVATE_CONTAINER],
    "ephemeralContainers": [PRIVATE_CONTAINER],
    "serviceAccountName": PRIVATE,
    "imagePullSecrets": [{"name": PRIVATE}],
    "hostAliases": [{"ip": "1.2.3.4", "hostnames": [PRIVATE]}],
    "dnsConfig": {"searches": [PRIVATE]},
    "hostname": PRIVATE,
    "volumes": [
        {"name": "a", "secret": {"secretName": PRIVATE}},
        {"name": "b", "configMap": {"name": PRIVATE}},
        {"name": "c", "hostPath": {"path": f"/{PRIVATE}"}},
        {"name": "d", "projected": {"sources": [{"secret": {"name": PRIVATE}}]}},
        {"name": "e", "nfs": {"server": PRIVATE, "path": "/"}},
        {"name": "f", "persistentVolumeClaim": {"claimName": "data"}},
        {"name": "g", "csi": {"driver": "d", "volumeAttributes": {"a": PRIVATE}}},
        {"name": "h", "rbd": {"monitors": ["m"], "image": "i", "keyring": PRIVATE}},
    ],
    "nodeSelector": {"disk": "ssd"},
    "tolerations": [{"operator": "Exists"}],
}
METADATA: Raw = {
    "name": "x",
    "namespace": "shop",
    "uid": "u",
    "labels": {"app": "web"},
    "managedFields": [{"manager": PRIVATE}],
    "annotations": {
        n.LAST_APPLIED_ANNOTATION: PRIVATE,
        "example.com/token": PRIVATE,
        "kubernetes.io/description": PRIVATE,
        "notkoordinator.sh/x": PRIVATE,
        n.RESERVATION_AFFINITY: "{}",
        n.RUN_ESTIMATE: "1h",
        n.GROUP_NAME_ANNOTATION: "g",
        n.SELECTED_NODE_ANNOTATION: "n1",
    },
}
TEMPLATE: Raw = {"metadata": {**METADATA, "name": ""}, "spec": SPEC}
STATUS: Raw = {
    "phase": "Running",
    "podIP": "10.0.0.1",
    "containerStatuses": [
        {
            "name": "c",
            "ready": True,
            "restartCount": 1,
            "imageID": PRIVATE,
            "state": {"terminated": {"exitCode": 1, "message": PRIVATE, "finishedAt": "2026"}},
            "lastState": {"terminated": {"exitCode": 1, "message": PRIVATE}},
        }
    ],
}

CSI_VOLUME: Raw = {
    "csi": {
        "driver": "d",
        "volumeHandle": "h",
        "volumeAttributes": {"password": PRIVATE},
        "nodeStageSecretRef": {"name": PRIVATE},
    },
    "mountOptions": [PRIVATE],
    "capacity": {"storage": "1Gi"},
}
OPAQUE: Raw = {"opaque": {"driver": "d", "parameters": {"key": PRIVATE}}}
DEVICES: Raw = {"requests": [{"name": "r"}], "config": [OPAQUE]}

OBJECTS = [
    ("v1", "Pod", {"spec": SPEC, "status": STATUS}),
    ("apps/v1", "Deployment", {"spec": {"template": TEMPLATE}}),
    ("apps/v1", "ReplicaSet", {"spec": {"template": TEMPLATE}}),
    ("apps/v1", "DaemonSet", {"spec": {"template": TEMPLATE}}),
    (
        "apps/v1",
        "StatefulSet",
        {"spec": {"template": TEMPLATE, "volumeClaimTemplates": [{"metadata": METADATA}]}},
    ),
    ("v1", "ReplicationController", {"spec": {"template": TEMPLATE}}),
    ("batch/v1", "Job", {"spec": {"template": TEMPLATE}}),
    (
        "batch/v1",
        "CronJob",
        {"spec": {"jobTemplate": {"metadata": METADATA, "spec": {"template": TEMPLATE}}}},
    ),
    (
        n.VOLCANO_JOB_API,
        "Job",
        {
            "spec": {
                "plugins": {"ssh": [PRIVATE]},
                "tasks": [{"name": "t", "replicas": 1, "template": TEMPLATE}],
            }
        },
    ),
    (n.RESERVATION_API, "Reservation", {"spec": {"template": TEMPLATE}}),
    (
        n.RESERVATION_API,
        "PodMigrationJob",
        {"spec": {"reservationOptions": {"template": {"spec": {"template": TEMPLATE}}}}},
    ),
    (
        n.HOLDFAST_API,
        "ReservationSchedule",
        {
            "spec": {
                "template": {
                    "metadata": {"annotations": {"example.com/note": PRIVATE}},
                    "spec": {"template": TEMPLATE},
                }
            }
        },
    ),
    ("v1", "PersistentVolume", {"spec": CSI_VOLUME}),
    ("v1", "PersistentVolume", {"spec": {"nfs": {"server": PRIVATE, "path": "/"}}}),
    ("v1", "Service", {"spec": {"externalName": PRIVATE, "selector": {"app": "web"}}}),
    ("v1", "Node", {"spec": {"providerID": PRIVATE}, "status": {"addresses": [PRIVATE]}}),
    ("storage.k8s.io/v1", "StorageClass", {"provisioner": "p", "parameters": {"a": PRIVATE}}),
    (
        "storage.k8s.io/v1",
        "VolumeAttachment",
        {
            "spec": {"source": {"persistentVolumeName": "v"}},
            "status": {"attached": True, "attachmentMetadata": {"a": PRIVATE}},
        },
    ),
    (n.RESOURCE_API, "DeviceClass", {"spec": {"config": [OPAQUE]}}),
    (
        n.RESOURCE_API,
        "ResourceClaim",
        {
            "spec": {"devices": DEVICES},
            "status": {
                "allocation": {"devices": {"results": [{"request": "r"}], "config": [OPAQUE]}},
                "devices": [{"data": PRIVATE}],
            },
        },
    ),
    (n.RESOURCE_API, "ResourceClaimTemplate", {"spec": {"spec": {"devices": DEVICES}}}),
    ("scheduling.k8s.io/v1", "PriorityClass", {"value": 1, "description": PRIVATE}),
    (n.VOLCANO_API, "Queue", {"spec": {"weight": 1}}),
]


@pytest.mark.parametrize(("api_version", "kind", "rest"), OBJECTS)
def test_nothing_private_is_left(api_version: str, kind: str, rest: Raw) -> None:
    raw = {"apiVersion": api_version, "kind": kind, "metadata": METADATA, **rest}
    before = json.dumps(raw)
    assert PRIVATE in before
    stripped = Stripper().strip(raw)
    assert PRIVATE not in json.dumps(stripped)
    assert json.dumps(raw) == before, "the object itself is left alone"
    assert stripped["metadata"]["labels"] == {"app": "web"}


def test_what_scheduling_reads_stays() -> None:
    raw = {"apiVersion": "v1", "kind": "Pod", "metadata": METADATA, "spec": SPEC, "status": STATUS}
    stripped = Stripper().strip(raw)
    assert stripped["spec"]["containers"] == [CONTAINER]
    assert stripped["spec"]["nodeSelector"] == {"disk": "ssd"}
    assert stripped["spec"]["volumes"] == [
        *({"name": name, "emptyDir": {}} for name in "abcde"),
        {"name": "f", "persistentVolumeClaim": {"claimName": "data"}},
        {"name": "g", "csi": {"driver": "d"}},
        {"name": "h", "rbd": {"monitors": ["m"], "image": "i"}},
    ]
    assert stripped["metadata"]["annotations"] == {
        n.RESERVATION_AFFINITY: "{}",
        n.RUN_ESTIMATE: "1h",
        n.GROUP_NAME_ANNOTATION: "g",
        n.SELECTED_NODE_ANNOTATION: "n1",
    }
    assert stripped["status"]["containerStatuses"] == [
        {
            "name": "c",
            "ready": True,
            "restartCount": 1,
            "state": {"terminated": {"finishedAt": "2026", "exitCode": 1}},
        }
    ]


def test_a_page_of_pods_is_decoded_without_what_is_removed() -> None:
    pod = {"metadata": METADATA, "spec": SPEC, "status": STATUS}
    page = {"metadata": {"continue": "c", "resourceVersion": "7"}, "items": [pod, {"metadata": {}}]}
    decoded = decode_pods(json.dumps(page).encode())
    assert decoded["metadata"] == page["metadata"]
    first, second = decoded["items"]
    assert "managedFields" not in first["metadata"] and "env" not in json.dumps(first)
    assert second == {"metadata": {}}
    named = {"apiVersion": "v1", "kind": "Pod"}
    assert Stripper().strip({**named, **first}) == Stripper().strip({**named, **pod})
    odd = {"items": [{"metadata": {"name": "x"}, "spec": {"containers": None}}]}
    assert decode_pods(json.dumps(odd).encode()) == odd


def test_an_annotation_that_is_asked_for_stays() -> None:
    raw = {"apiVersion": "v1", "kind": "Pod", "metadata": METADATA, "spec": {}}
    kept = Stripper(["example.com/token"]).strip(raw)["metadata"]["annotations"]
    assert kept["example.com/token"] == PRIVATE
    assert "kubernetes.io/description" not in kept


def test_a_reservation_in_an_annotation_is_stripped_too() -> None:
    template = {"spec": {"template": TEMPLATE, "owners": [{"labelSelector": {}}]}}
    for text, left in ((json.dumps(template), True), ("no JSON", False)):
        annotations = {n.RESERVATION_TEMPLATE: text}
        raw = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "x", "annotations": annotations}}
        found = Stripper().strip(raw)["metadata"]["annotations"][n.RESERVATION_TEMPLATE]
        assert PRIVATE not in found
        if left:
            assert json.loads(found)["spec"]["template"]["spec"]["containers"] == [CONTAINER]


def _digest(stripper: Stripper, kind: str, template: Raw) -> str:
    raw = {
        "apiVersion": "apps/v1",
        "kind": kind,
        "metadata": {"name": "x"},
        "spec": {"template": template},
    }
    annotations = stripper.strip(raw)["spec"]["template"]["metadata"].get("annotations") or {}
    return str(annotations.get(TEMPLATE_DIGEST) or "")


def test_revisions_that_differ_in_what_was_removed_stay_different() -> None:
    def template(value: str, **labels: str) -> Raw:
        container = {**CONTAINER, "env": [{"name": "A", "value": value}]}
        return {"metadata": {"labels": labels}, "spec": {"containers": [container]}}

    one = Stripper()
    old, new = _digest(one, "Deployment", template("a")), _digest(one, "Deployment", template("b"))
    assert old and new and old != new
    assert _digest(one, "ReplicaSet", template("a", **{"pod-template-hash": "5d4"})) == old
    assert _digest(Stripper(), "Deployment", template("a")) != old, "the key is random"
    plain = {"metadata": {}, "spec": {"containers": [CONTAINER]}}
    assert _digest(one, "Deployment", plain) == ""
