"""Plain default values, by type: what a field is when it was not given."""

from __future__ import annotations

from collections.abc import Callable
from threading import Lock
from typing import Any

from holdfast.machinery.schema.defaults.computed import COMPUTED
from holdfast.machinery.schema.shapes import FieldShape

_PROBE = {"timeoutSeconds": 1, "periodSeconds": 10, "successThreshold": 1, "failureThreshold": 3}
_RBAC = "rbac.authorization.k8s.io"

PLAIN: dict[str, dict[str, Any]] = {
    "apps.v1.DaemonSetSpec": {"revisionHistoryLimit": 10},
    "apps.v1.DeploymentSpec": {
        "replicas": 1,
        "revisionHistoryLimit": 10,
        "progressDeadlineSeconds": 600,
    },
    "apps.v1.ReplicaSetSpec": {"replicas": 1},
    "apps.v1.StatefulSetPersistentVolumeClaimRetentionPolicy": {
        "whenDeleted": "Retain",
        "whenScaled": "Retain",
    },
    "apps.v1.StatefulSetSpec": {
        "podManagementPolicy": "OrderedReady",
        "replicas": 1,
        "revisionHistoryLimit": 10,
        "persistentVolumeClaimRetentionPolicy": {},
    },
    "batch.v1.CronJobSpec": {
        "concurrencyPolicy": "Allow",
        "suspend": False,
        "successfulJobsHistoryLimit": 3,
        "failedJobsHistoryLimit": 1,
    },
    "batch.v1.PodFailurePolicyOnPodConditionsPattern": {"status": "True"},
    "core.v1.AzureDiskVolumeSource": {
        "cachingMode": "ReadWrite",
        "fsType": "ext4",
        "kind": "Shared",
        "readOnly": False,
    },
    "core.v1.ConfigMapVolumeSource": {"defaultMode": 0o644},
    "core.v1.ContainerPort": {"protocol": "TCP"},
    "core.v1.DownwardAPIVolumeSource": {"defaultMode": 0o644},
    "core.v1.EndpointPort": {"protocol": "TCP"},
    "core.v1.FileKeySelector": {"optional": False},
    "core.v1.GRPCAction": {"service": ""},
    "core.v1.HTTPGetAction": {"path": "/", "scheme": "HTTP"},
    "core.v1.HostPathVolumeSource": {"type": ""},
    "core.v1.ISCSIPersistentVolumeSource": {"iscsiInterface": "default"},
    "core.v1.ISCSIVolumeSource": {"iscsiInterface": "default"},
    "core.v1.NamespaceStatus": {"phase": "Active"},
    "core.v1.ObjectFieldSelector": {"apiVersion": "v1"},
    "core.v1.PersistentVolumeClaimSpec": {"volumeMode": "Filesystem"},
    "core.v1.PersistentVolumeClaimStatus": {"phase": "Pending"},
    "core.v1.PersistentVolumeSpec": {
        "persistentVolumeReclaimPolicy": "Retain",
        "volumeMode": "Filesystem",
    },
    "core.v1.PersistentVolumeStatus": {"phase": "Pending"},
    "core.v1.PodSpec": {
        "dnsPolicy": "ClusterFirst",
        "restartPolicy": "Always",
        "securityContext": {},
        "terminationGracePeriodSeconds": 30,
        "schedulerName": "default-scheduler",
    },
    "core.v1.Probe": _PROBE,
    "core.v1.ProjectedVolumeSource": {"defaultMode": 0o644},
    "core.v1.RBDPersistentVolumeSource": {
        "pool": "rbd",
        "user": "admin",
        "keyring": "/etc/ceph/keyring",
    },
    "core.v1.RBDVolumeSource": {"pool": "rbd", "user": "admin", "keyring": "/etc/ceph/keyring"},
    "core.v1.ReplicationControllerSpec": {"replicas": 1},
    "core.v1.ScaleIOPersistentVolumeSource": {"storageMode": "ThinProvisioned", "fsType": "xfs"},
    "core.v1.ScaleIOVolumeSource": {"storageMode": "ThinProvisioned", "fsType": "xfs"},
    "core.v1.Secret": {"type": "Opaque"},
    "core.v1.SecretVolumeSource": {"defaultMode": 0o644},
    "core.v1.ServiceAccountTokenProjection": {"expirationSeconds": 3600},
    "core.v1.ServicePort": {"protocol": "TCP"},
    "discovery.v1.EndpointPort": {"name": "", "protocol": "TCP"},
    "networking.v1.IngressClassParametersReference": {"scope": "Cluster"},
    "networking.v1.NetworkPolicyPort": {"protocol": "TCP"},
    "rbac.v1.RoleRef": {"apiGroup": _RBAC},
    "scheduling.v1.PriorityClass": {"preemptionPolicy": "PreemptLowerPriority"},
    "storage.v1.CSIDriverSpec": {
        "attachRequired": True,
        "podInfoOnMount": False,
        "storageCapacity": False,
        "fsGroupPolicy": "ReadWriteOnceWithFSType",
        "volumeLifecycleModes": ["Persistent"],
        "requiresRepublish": False,
        "seLinuxMount": False,
    },
    "storage.v1.StorageClass": {"reclaimPolicy": "Delete", "volumeBindingMode": "Immediate"},
}


# Going through an object to every part whose type has defaults, outer parts first.


Fill = Callable[[Any], Any]
"""A part of an object to the same part with defaults: itself if there was nothing to add."""

_known: dict[int, Fill | None] = {}
"""Finished ones, by the identity of their shape."""
_unfinished: dict[int, Fill | None] = {}
_compiling = Lock()


def defaulter(shape: FieldShape) -> Fill | None:
    """What fills in parts of this shape; None when neither it nor anything in it has defaults."""
    key = id(shape)
    if key not in _known:
        with _compiling:
            _defaulter(shape)
            _known.update(_unfinished)
    return _known[key]


def _defaulter(shape: FieldShape) -> Fill | None:
    key = id(shape)
    if key not in _unfinished:
        _unfinished[key] = None
        _unfinished[key] = _compile(shape)
    return _unfinished[key]


def _compile(shape: FieldShape) -> Fill | None:
    if shape.kind == "list" and shape.items is not None:
        item = _defaulter(shape.items)
        return None if item is None else _each(item)
    if shape.kind != "struct":
        return None
    name = shape.name.removeprefix("io.k8s.api.")
    inner = [(field, fill) for field, part in shape.fields.items() if (fill := _defaulter(part))]
    return _struct(PLAIN.get(name), COMPUTED.get(name), inner)


def _each(fill: Fill) -> Fill:
    def fill_each(items: list[Any]) -> list[Any]:
        if items is None:
            return items
        filled = [fill(item) for item in items]
        return items if all(map(_is, filled, items)) else filled

    return fill_each


def _is(a: Any, b: Any) -> bool:
    return a is b


def _struct(
    plain: dict[str, Any] | None, computed: Fill | None, inner: list[tuple[str, Fill]]
) -> Fill | None:
    if plain is None and computed is None and not inner:
        return None

    def fill_struct(part: Any) -> Any:
        if part.__class__ is not dict:
            return part
        filled = part
        if computed is not None:
            filled = computed(filled)
        if plain is not None:
            missing = {
                name: value for name, value in plain.items() if filled.get(name, "") in ("", None)
            }
            if missing and any(filled.get(name) != value for name, value in missing.items()):
                filled = {**filled, **missing}
        for name, fill in inner:
            old = filled.get(name)
            if old is not None:
                new = fill(old)
                if new is not old:
                    if filled is part:
                        filled = dict(part)
                    filled[name] = new
        return filled

    return fill_struct
