"""A node in one line."""

from typing import Any

from holdfast.server.api.tables.columns import (
    AGE,
    NAME,
    NONE,
    UNKNOWN,
    Column,
    Printer,
    age,
    condition,
    wide,
)
from holdfast.store import Raw

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
        Column("Status", description="Whether the node is ready, and whether it takes pods."),
        Column("Roles", description="The roles its labels give it."),
        AGE,
        Column("Version", description="The kubelet's version."),
        wide("Internal-IP"),
        wide("External-IP"),
        wide("OS-Image"),
        wide("Kernel-Version"),
        wide("Container-Runtime"),
    ),
    _cells,
)
