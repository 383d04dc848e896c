"""Columns of claims on devices, slices and taint rules."""

from typing import Any

from holdfast.local.apiserver.tables.columns import AGE, NAME, Printer, TableColumn, age, since
from holdfast.local.store import Raw


def _resource_claim(raw: Raw, now: float) -> list[Any]:
    status = raw.get("status") or {}
    deleted, allocated = bool(raw["metadata"].get("deletionTimestamp")), bool(status.get("allocation"))
    states = ["deleted"] if deleted else []
    if allocated:
        states += ["allocated", "reserved"] if status.get("reservedFor") else ["allocated"]
    elif not deleted:
        states.append("pending")
    return [raw["metadata"]["name"], ",".join(states), age(raw, now)]


def _resource_slice(raw: Raw, now: float) -> list[Any]:
    spec = raw.get("spec") or {}
    pool = (spec.get("pool") or {}).get("name", "")
    return [
        raw["metadata"]["name"],
        spec.get("nodeName", ""),
        spec.get("driver", ""),
        pool,
        age(raw, now),
    ]


def _device_taint_rule(raw: Raw, now: float) -> list[Any]:
    taint = (raw.get("spec") or {}).get("taint") or {}
    added = taint.get("timeAdded")
    return [
        raw["metadata"]["name"],
        taint.get("key", ""),
        taint.get("value", ""),
        taint.get("effect", ""),
        since(added, now) if added else "",
        age(raw, now),
    ]


DEVICES = {
    ("resource.k8s.io", "ResourceClaim"): Printer(
        (
            NAME,
            TableColumn("State", description="Whether the claim is pending, allocated or reserved."),
            AGE,
        ),
        _resource_claim,
    ),
    ("resource.k8s.io", "ResourceSlice"): Printer(
        (NAME, TableColumn("Node"), TableColumn("Driver"), TableColumn("Pool"), AGE), _resource_slice
    ),
    ("resource.k8s.io", "DeviceTaintRule"): Printer(
        (
            NAME,
            TableColumn("Key"),
            TableColumn("Value"),
            TableColumn("Effect"),
            TableColumn("TimeAdded"),
            AGE,
        ),
        _device_taint_rule,
    ),
}
