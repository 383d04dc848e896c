"""Columns of nodes, namespaces, events, configuration, leases, priority classes, pod groups, volumes
and claims."""

from typing import Any

from holdfast.api import names
from holdfast.api.pod_groups import group_state
from holdfast.local.apiserver.tables.columns import (
    AGE,
    NAME,
    NONE,
    UNKNOWN,
    UNSET,
    Printer,
    TableColumn,
    age,
    condition,
    since,
    wide,
)
from holdfast.local.store import Raw

_ROLE_PREFIX = "node-role.kubernetes.io/"
_ROLE_LABEL = "kubernetes.io/role"


def _cells(node: Raw, now: float) -> list[Any]:
    status = node.get("status") or {}
    info = status.get("nodeInfo") or {}
    return [
        node["metadata"]["name"],
        _state(node),
        _roles(node["metadata"].get("labels") or {}),
        age(node, now),
        info.get("kubeletVersion", ""),
        _address(status, "InternalIP"),
        _address(status, "ExternalIP"),
        info.get("osImage") or UNKNOWN,
        info.get("kernelVersion") or UNKNOWN,
        info.get("containerRuntimeVersion") or UNKNOWN,
    ]


def _state(node: Raw) -> str:
    state = "Unknown"
    ready = condition(node, "Ready")
    if ready is not None:
        state = "Ready" if ready.get("status") == "True" else "NotReady"
    cordoned = (node.get("spec") or {}).get("unschedulable")
    return f"{state},SchedulingDisabled" if cordoned else state


def _roles(labels: dict[str, str]) -> str:
    roles = {key.removeprefix(_ROLE_PREFIX) for key in labels if key.startswith(_ROLE_PREFIX)}
    roles.add(labels.get(_ROLE_LABEL, ""))
    return ",".join(sorted(filter(None, roles))) or NONE


def _address(status: Raw, type: str) -> str:
    addresses = status.get("addresses") or []
    return next((each.get("address", "") for each in addresses if each.get("type") == type), NONE)


NODES = Printer(
    (
        NAME,
        TableColumn("Status", description="Whether the node is ready, and whether it takes pods."),
        TableColumn("Roles", description="The roles its labels give it."),
        AGE,
        TableColumn("Version", description="The kubelet's version."),
        wide("Internal-IP"),
        wide("External-IP"),
        wide("OS-Image"),
        wide("Kernel-Version"),
        wide("Container-Runtime"),
    ),
    _cells,
)


def _namespace(raw: Raw, now: float) -> list[Any]:
    phase = (raw.get("status") or {}).get("phase", "")
    return [raw["metadata"]["name"], phase, age(raw, now)]


def _name_and_age(raw: Raw, now: float) -> list[Any]:
    return [raw["metadata"]["name"], age(raw, now)]


def _secret(raw: Raw, now: float) -> list[Any]:
    return [raw["metadata"]["name"], raw.get("type", ""), len(raw.get("data") or {}), age(raw, now)]


def _config_map(raw: Raw, now: float) -> list[Any]:
    count = len(raw.get("data") or {}) + len(raw.get("binaryData") or {})
    return [raw["metadata"]["name"], str(count), age(raw, now)]


def _lease(raw: Raw, now: float) -> list[Any]:
    holder = (raw.get("spec") or {}).get("holderIdentity") or ""
    return [raw["metadata"]["name"], holder, age(raw, now)]


def _priority_class(raw: Raw, now: float) -> list[Any]:
    return [
        raw["metadata"]["name"],
        raw.get("value", 0),
        bool(raw.get("globalDefault")),
        age(raw, now),
        raw.get("preemptionPolicy") or "",
    ]


def _definition(raw: Raw, now: float) -> list[Any]:
    return [raw["metadata"]["name"], raw["metadata"].get("creationTimestamp")]


def _event(raw: Raw, now: float) -> list[Any]:
    """Both forms of events: with first and last times and a count, or with one time and a series."""
    about = raw.get("involvedObject") or raw.get("regarding") or {}
    source = raw.get("source") or raw.get("deprecatedSource") or {}
    first = since(_time(raw, "First") or raw.get("eventTime"), now)
    last = _time(raw, "Last")
    count = raw.get("count") or raw.get("deprecatedCount") or 1
    shown = since(last, now) if last else first
    series = raw.get("series")
    if series:
        shown, count = since(series.get("lastObservedTime"), now), series.get("count", 1)
    kind = about.get("kind", "").lower()
    component = source.get("component") or _reporter(raw, "Component", "Controller")
    host = source.get("host") or raw.get("reportingInstance") or ""
    return [
        shown,
        raw.get("type", ""),
        raw.get("reason", ""),
        f"{kind}/{about['name']}" if about.get("name") else kind,
        about.get("fieldPath", ""),
        f"{component}, {host}" if host else component,
        (raw.get("message") or raw.get("note") or "").strip(),
        first if first != UNKNOWN else shown,
        count,
        raw["metadata"]["name"],
    ]


def _time(raw: Raw, which: str) -> str | None:
    return raw.get(f"{which.lower()}Timestamp") or raw.get(f"deprecated{which}Timestamp")


def _reporter(raw: Raw, *names: str) -> str:
    return next((raw[f"reporting{name}"] for name in names if raw.get(f"reporting{name}")), "")


_EVENT = Printer(
    (
        TableColumn("Last Seen", description="When it happened last."),
        TableColumn("Type", description="Normal, or Warning."),
        TableColumn("Reason", description="Why, in a word."),
        TableColumn("Object", description="The object it happened to."),
        wide("Subobject"),
        wide("Source"),
        TableColumn("Message", description="What happened."),
        wide("First Seen"),
        wide("Count"),
        TableColumn("Name", format="name", priority=1),
    ),
    _event,
)


def _pod_group(raw: Raw, now: float) -> list[Any]:
    spec = raw.get("spec") or {}
    is_gang = (spec.get("schedulingPolicy") or {}).get("gang") is not None
    workload = (spec.get("workloadRef") or {}).get("workloadName") or NONE
    policy = "Gang" if is_gang else "Basic"
    return [raw["metadata"]["name"], policy, workload, group_state(raw), age(raw, now)]


PLAIN = {
    ("", "Namespace"): Printer((NAME, TableColumn("Status"), AGE), _namespace),
    ("", "Secret"): Printer((NAME, TableColumn("Type"), TableColumn("Data"), AGE), _secret),
    ("", "ConfigMap"): Printer((NAME, TableColumn("Data"), AGE), _config_map),
    ("", "ServiceAccount"): Printer((NAME, AGE), _name_and_age),
    ("coordination.k8s.io", "Lease"): Printer((NAME, TableColumn("Holder"), AGE), _lease),
    ("scheduling.k8s.io", "PriorityClass"): Printer(
        (
            NAME,
            TableColumn("Value", "integer"),
            TableColumn("Global-Default", "boolean"),
            AGE,
            TableColumn("PreemptionPolicy"),
        ),
        _priority_class,
    ),
    ("scheduling.k8s.io", "PodGroup"): Printer(
        (
            NAME,
            TableColumn("Policy", description="How its pods are scheduled."),
            TableColumn("Workload", description="Name of the referenced Workload object"),
            TableColumn("Status", description="Status of the PodGroup"),
            AGE,
        ),
        _pod_group,
    ),
    ("scheduling.k8s.io", "Workload"): Printer((NAME, AGE), _name_and_age),
    ("", "Event"): _EVENT,
    ("events.k8s.io", "Event"): _EVENT,
    ("apiextensions.k8s.io", "CustomResourceDefinition"): Printer(
        (NAME, TableColumn("Created At", "date", description="When it was created.")), _definition
    ),
}

DEFAULT = Printer((NAME, AGE), _name_and_age)


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
            TableColumn("Capacity"),
            TableColumn("Access Modes"),
            TableColumn("Reclaim Policy"),
            TableColumn("Status"),
            TableColumn("Claim"),
            TableColumn("StorageClass"),
            TableColumn("VolumeAttributesClass"),
            TableColumn("Reason"),
            AGE,
            wide("VolumeMode"),
        ),
        _volume,
    ),
    ("", "PersistentVolumeClaim"): Printer(
        (
            NAME,
            TableColumn("Status"),
            TableColumn("Volume"),
            TableColumn("Capacity"),
            TableColumn("Access Modes"),
            TableColumn("StorageClass"),
            TableColumn("VolumeAttributesClass"),
            AGE,
            wide("VolumeMode"),
        ),
        _claim,
    ),
    ("storage.k8s.io", "StorageClass"): Printer(
        (
            NAME,
            TableColumn("Provisioner"),
            TableColumn("ReclaimPolicy"),
            TableColumn("VolumeBindingMode"),
            TableColumn("AllowVolumeExpansion"),
            AGE,
        ),
        _storage_class,
    ),
    ("storage.k8s.io", "VolumeAttachment"): Printer(
        (
            NAME,
            TableColumn("Attacher", format="name"),
            TableColumn("PV"),
            TableColumn("Node"),
            TableColumn("Attached", _BOOLEAN),
            AGE,
        ),
        _attachment,
    ),
    ("storage.k8s.io", "CSINode"): Printer((NAME, TableColumn("Drivers", "integer"), AGE), _csi_node),
    ("storage.k8s.io", "CSIDriver"): Printer(
        (
            NAME,
            TableColumn("AttachRequired", _BOOLEAN),
            TableColumn("PodInfoOnMount", _BOOLEAN),
            TableColumn("StorageCapacity", _BOOLEAN),
            TableColumn("TokenRequests"),
            TableColumn("RequiresRepublish", _BOOLEAN),
            TableColumn("Modes"),
            AGE,
        ),
        _csi_driver,
    ),
    ("storage.k8s.io", "CSIStorageCapacity"): Printer(
        (NAME, TableColumn("StorageClassName"), TableColumn("Capacity")), _csi_capacity
    ),
}
