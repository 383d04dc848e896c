"""A large cluster as an API server has it: nodes with images, Deployments whose pods have environment,
managed fields and a last-applied annotation, about 11 kB each.

    python -m snapshot.large_cluster FILE [nodes] [pods]     writes it as `holdfast snapshot` does
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from holdfast.snapshot.cluster_objects import of_objects
from holdfast.snapshot.snapshot_file import write_snapshot
from holdfast.snapshot.snapshot_header import SnapshotHeader
from holdfast.snapshot.stripping import Stripper

Raw = dict[str, Any]

STAMP = "2026-01-01T00:00:00Z"
NOW = 1_767_265_200.0
"""Two hours after the stamp."""
REPLICAS = 100
SIZES = (("500m", "1Gi"), ("1", "2Gi"), ("2", "4Gi"), ("250m", "512Mi"), ("4", "8Gi"))


def nodes(count: int) -> Iterator[Raw]:
    for number in range(count):
        name = f"node-{number:04}"
        amounts = {"cpu": "32", "memory": "128Gi", "ephemeral-storage": "100Gi", "pods": "110"}
        labels = {
            "kubernetes.io/hostname": name,
            "kubernetes.io/arch": "amd64",
            "kubernetes.io/os": "linux",
            "topology.kubernetes.io/zone": f"zone-{number % 3}",
            "node.kubernetes.io/instance-type": f"m{number % 5}",
        }
        images = [
            {"names": [f"registry.example/app-{i}:v1"], "sizeBytes": 100_000_000 + i}
            for i in range(number % 7, 20 + number % 7)
        ]
        conditions = [
            {
                "type": type_,
                "status": "True" if type_ == "Ready" else "False",
                "lastHeartbeatTime": STAMP,
                "lastTransitionTime": STAMP,
                "reason": "KubeletReady",
                "message": "kubelet is posting ready status",
            }
            for type_ in ("MemoryPressure", "DiskPressure", "PIDPressure", "Ready")
        ]
        yield {
            "apiVersion": "v1",
            "kind": "Node",
            "metadata": {"name": name, "labels": labels} | _stored(f"node-{number}"),
            "spec": {"podCIDR": "10.0.0.0/24"},
            "status": {
                "capacity": amounts,
                "allocatable": amounts,
                "conditions": conditions,
                "images": images,
            },
        }


def workloads(pods: int) -> Iterator[Raw]:
    for number in range(pods // REPLICAS):
        name, namespace = f"app-{number:03}", _namespace(number)
        labels = {"app": name}
        template = {"metadata": {"labels": labels}, "spec": _pod_spec(number)}
        spec = {"replicas": REPLICAS, "selector": {"matchLabels": labels}, "template": template}
        counts = dict.fromkeys(("replicas", "readyReplicas", "availableReplicas"), REPLICAS)
        yield {
            "apiVersion": "apps/v1",
            "kind": "Deployment",
            "metadata": {
                "name": name,
                "namespace": namespace,
                "generation": 1,
                "annotations": {"deployment.kubernetes.io/revision": "1"},
            }
            | _stored(f"deploy-{number}"),
            "spec": spec,
            "status": {"observedGeneration": 1, "updatedReplicas": REPLICAS, **counts},
        }
        hashed = {**labels, "pod-template-hash": f"h{number}"}
        yield {
            "apiVersion": "apps/v1",
            "kind": "ReplicaSet",
            "metadata": {
                "name": f"{name}-h{number}",
                "namespace": namespace,
                "generation": 1,
                "labels": hashed,
                "annotations": {"deployment.kubernetes.io/revision": "1"},
                "ownerReferences": [_owner("Deployment", name, f"deploy-{number}")],
            }
            | _stored(f"rs-{number}"),
            "spec": {
                "replicas": REPLICAS,
                "selector": {"matchLabels": hashed},
                "template": {"metadata": {"labels": hashed}, "spec": _pod_spec(number)},
            },
            "status": {"observedGeneration": 1, "fullyLabeledReplicas": REPLICAS, **counts},
        }
        yield {
            "apiVersion": "v1",
            "kind": "Service",
            "metadata": {"name": name, "namespace": namespace} | _stored(f"svc-{number}"),
            "spec": {"selector": labels, "ports": [{"port": 80, "protocol": "TCP"}]},
        }


def namespaces() -> Iterator[Raw]:
    for number in range(20):
        yield {
            "apiVersion": "v1",
            "kind": "Namespace",
            "metadata": {"name": _namespace(number)} | _stored(f"ns-{number}"),
            "status": {"phase": "Active"},
        }


def pods(count: int, on_nodes: int) -> Iterator[Raw]:
    """Running; their replicas are spread over the nodes."""
    for number in range(count):
        owner = number // REPLICAS
        name = f"app-{owner:03}"
        labels = {"app": name, "pod-template-hash": f"h{owner}"}
        spec = _pod_spec(owner)
        applied = {"apiVersion": "v1", "kind": "Pod", "metadata": {"labels": labels}, "spec": spec}
        fields: Raw = {
            f"f:{part}": {f"k:{i}": {".": {}, "f:name": {}, "f:value": {}} for i in range(30)}
            for part in ("spec", "status")
        }
        yield {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {
                "name": f"{name}-h{owner}-{number % REPLICAS:05}",
                "generateName": f"{name}-h{owner}-",
                "namespace": _namespace(owner),
                "labels": labels,
                "annotations": {
                    "kubectl.kubernetes.io/last-applied-configuration": json.dumps(applied)
                },
                "ownerReferences": [_owner("ReplicaSet", f"{name}-h{owner}", f"rs-{owner}")],
                "managedFields": [
                    {
                        "manager": "kubelet",
                        "operation": "Update",
                        "apiVersion": "v1",
                        "fieldsV1": fields,
                    }
                ],
            }
            | _stored(f"pod-{number}"),
            "spec": {**spec, "nodeName": f"node-{number * 7 % on_nodes:04}"},
            "status": _pod_status(),
        }


def _pod_spec(owner: int) -> Raw:
    cpu, memory = SIZES[(owner + owner // 50) % len(SIZES)]
    containers = []
    for each in ("app", "sidecar"):
        amounts = {"cpu": cpu, "memory": memory} if each == "app" else {"cpu": "50m", "memory": "64Mi"}
        containers.append(
            {
                "name": each,
                "image": f"registry.example/{each}-{owner % 40}:v1",
                "imagePullPolicy": "IfNotPresent",
                "env": [{"name": f"VARIABLE_{i}", "value": f"value-{i}" * 3} for i in range(15)],
                "resources": {"requests": amounts, "limits": amounts},
                "ports": [{"containerPort": 8080 if each == "app" else 9090, "protocol": "TCP"}],
                "terminationMessagePath": "/dev/termination-log",
                "terminationMessagePolicy": "File",
                "volumeMounts": [{"name": "access", "mountPath": "/var/run/secrets", "readOnly": True}],
            }
        )
    tolerations = [
        {"key": f"node.kubernetes.io/{key}", "operator": "Exists", "effect": "NoExecute"}
        | {"tolerationSeconds": 300}
        for key in ("not-ready", "unreachable")
    ]
    return {
        "containers": containers,
        "volumes": [{"name": "access", "secret": {"secretName": "s", "defaultMode": 420}}],
        "tolerations": tolerations,
        "schedulerName": "default-scheduler",
        "restartPolicy": "Always",
        "dnsPolicy": "ClusterFirst",
        "terminationGracePeriodSeconds": 30,
        "enableServiceLinks": True,
        "priority": 0,
        "preemptionPolicy": "PreemptLowerPriority",
        "securityContext": {},
        "serviceAccountName": "default",
    }


def _pod_status() -> Raw:
    conditions = [
        {"type": type_, "status": "True", "lastProbeTime": None, "lastTransitionTime": STAMP}
        for type_ in ("PodReadyToStartContainers", "Initialized", "Ready", "ContainersReady")
    ]
    conditions.append({**conditions[0], "type": "PodScheduled"})
    statuses = [
        {
            "name": each,
            "ready": True,
            "started": True,
            "restartCount": 0,
            "image": f"registry.example/{each}:v1",
            "imageID": f"registry.example/{each}@sha256:{'0' * 64}",
            "containerID": f"containerd://{'1' * 64}",
            "state": {"running": {"startedAt": STAMP}},
            "lastState": {},
        }
        for each in ("app", "sidecar")
    ]
    return {
        "phase": "Running",
        "qosClass": "Guaranteed",
        "startTime": STAMP,
        "podIP": "10.0.0.1",
        "hostIP": "10.1.0.1",
        "conditions": conditions,
        "containerStatuses": statuses,
    }


def _stored(uid: str) -> Raw:
    return {"uid": uid, "resourceVersion": "1", "creationTimestamp": STAMP}


def _owner(kind: str, name: str, uid: str) -> Raw:
    return {
        "apiVersion": "apps/v1",
        "kind": kind,
        "name": name,
        "uid": uid,
        "controller": True,
        "blockOwnerDeletion": True,
    }


def _namespace(number: int) -> str:
    return f"team-{number % 20:02}"


def write(path: Path, node_count: int = 5000, pod_count: int = 50_000) -> None:
    strip = Stripper().strip
    made = (nodes(node_count), pods(pod_count, node_count), namespaces(), workloads(pod_count))
    objects = (strip(raw) for each in made for raw in each)
    write_snapshot(path, of_objects(objects, SnapshotHeader(time=NOW)))


if __name__ == "__main__":
    write(Path(sys.argv[1]), *map(int, sys.argv[2:]))
