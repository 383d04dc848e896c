"""Volumes, claims and what provides them, in one line each."""

from typing import Any

from holdfast.api import names
from holdfast.server.api.tables.columns import AGE, NAME, UNSET, Column, Printer, age, wide
from holdfast.store import Raw

_MODES = {
    "ReadWriteOnce": "RWO",
    "ReadOnlyMany": "ROX",
    "ReadWriteMany": "RWX",
    "ReadWriteOncePod": "RWOP",
}
_BOOLEAN = "boolean"


def _access_modes(modes: list[str] | None) -> str:
    given = modes or []
    return ",".join(short for mode, short in _MODES.items() if mode in given)


def _phase(raw: Raw) -> str:
    if raw["metadata"].get("deletionTimestamp"):
        return "Terminating"
    return str((raw.get("status") or {}).get("phase", ""))


def _class(raw: Raw) -> str:
    annotations = raw["metadata"].get("annotations") or {}
    spec = raw.get("spec") or {}
    return str(annotations.get(names.STORAGE_CLASS_ANNOTATION) or spec.get("storageClassName") or "")


def _volume(raw: Raw, now: float) -> list[Any]:
    spec, status = raw.get("spec") or {}, raw.get("status") or {}
    claim = spec.get("claimRef")
    return [
        raw["metadata"]["name"],
        str((spec.get("capacity") or {}).get("storage", "0")),
        _access_modes(spec.get("accessModes")),
        spec.get("persistentVolumeReclaimPolicy", ""),
        _phase(raw),
        f"{claim.get('namespace', '')}/{claim.get('name', '')}" if claim else "",
        _class(raw),
        spec.get("volumeAttributesClassName") or UNSET,
        status.get("reason", ""),
        age(raw, now),
        spec.get("volumeMode") or UNSET,
    ]


def _claim(raw: Raw, now: float) -> list[Any]:
    spec, status = raw.get("spec") or {}, raw.get("status") or {}
    bound = bool(spec.get("volumeName"))
    return [
        raw["metadata"]["name"],
        _phase(raw),
        spec.get("volumeName", ""),
        str((status.get("capacity") or {}).get("storage", "0")) if bound else "",
        _access_modes(status.get("accessModes")) if bound else "",
        _class(raw),
        spec.get("volumeAttributesClassName") or UNSET,
        age(raw, now),
        spec.get("volumeMode") or UNSET,
    ]


def _storage_class(raw: Raw, now: float) -> list[Any]:
    annotations = raw["metadata"].get("annotations") or {}
    is_default = annotations.get(names.DEFAULT_STORAGE_CLASS_ANNOTATION) == "true"
    return [
        raw["metadata"]["name"] + (" (default)" if is_default else ""),
        raw.get("provisioner", ""),
        raw.get("reclaimPolicy") or "Delete",
        raw.get("volumeBindingMode") or "Immediate",
        bool(raw.get("allowVolumeExpansion")),
        age(raw, now),
    ]


def _attachment(raw: Raw, now: float) -> list[Any]:
    spec, status = raw.get("spec") or {}, raw.get("status") or {}
    return [
        raw["metadata"]["name"],
        spec.get("attacher", ""),
        (spec.get("source") or {}).get("persistentVolumeName") or "",
        spec.get("nodeName", ""),
        bool(status.get("attached")),
        age(raw, now),
    ]


def _csi_node(raw: Raw, now: float) -> list[Any]:
    drivers = (raw.get("spec") or {}).get("drivers") or []
    return [raw["metadata"]["name"], len(drivers), age(raw, now)]


def _csi_driver(raw: Raw, now: float) -> list[Any]:
    spec = raw.get("spec") or {}
    requests = spec.get("tokenRequests")
    return [
        raw["metadata"]["name"],
        spec.get("attachRequired", True),
        bool(spec.get("podInfoOnMount")),
        bool(spec.get("storageCapacity")),
        UNSET if requests is None else ",".join(each.get("audience", "") for each in requests),
        bool(spec.get("requiresRepublish")),
        ",".join(spec.get("volumeLifecycleModes") or []) or "<none>",
        age(raw, now),
    ]


def _csi_capacity(raw: Raw, now: float) -> list[Any]:
    capacity = raw.get("capacity")
    return [
        raw["metadata"]["name"],
        raw.get("storageClassName", ""),
        UNSET if capacity is None else str(capacity),
    ]


STORAGE = {
    ("", "PersistentVolume"): Printer(
        (
            NAME,
            Column("Capacity"),
            Column("Access Modes"),
            Column("Reclaim Policy"),
            Column("Status"),
            Column("Claim"),
            Column("StorageClass"),
            Column("VolumeAttributesClass"),
            Column("Reason"),
            AGE,
            wide("VolumeMode"),
        ),
        _volume,
    ),
    ("", "PersistentVolumeClaim"): Printer(
        (
            NAME,
            Column("Status"),
            Column("Volume"),
            Column("Capacity"),
            Column("Access Modes"),
            Column("StorageClass"),
            Column("VolumeAttributesClass"),
            AGE,
            wide("VolumeMode"),
        ),
        _claim,
    ),
    ("storage.k8s.io", "StorageClass"): Printer(
        (
            NAME,
            Column("Provisioner"),
            Column("ReclaimPolicy"),
            Column("VolumeBindingMode"),
            Column("AllowVolumeExpansion"),
            AGE,
        ),
        _storage_class,
    ),
    ("storage.k8s.io", "VolumeAttachment"): Printer(
        (
            NAME,
            Column("Attacher", format="name"),
            Column("PV"),
            Column("Node"),
            Column("Attached", _BOOLEAN),
            AGE,
        ),
        _attachment,
    ),
    ("storage.k8s.io", "CSINode"): Printer((NAME, Column("Drivers", "integer"), AGE), _csi_node),
    ("storage.k8s.io", "CSIDriver"): Printer(
        (
            NAME,
            Column("AttachRequired", _BOOLEAN),
            Column("PodInfoOnMount", _BOOLEAN),
            Column("StorageCapacity", _BOOLEAN),
            Column("TokenRequests"),
            Column("RequiresRepublish", _BOOLEAN),
            Column("Modes"),
            AGE,
        ),
        _csi_driver,
    ),
    ("storage.k8s.io", "CSIStorageCapacity"): Printer(
        (NAME, Column("StorageClassName"), Column("Capacity")), _csi_capacity
    ),
}
