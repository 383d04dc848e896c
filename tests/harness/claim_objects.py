"""Objects of Dynamic Resource Allocation as a user, a driver or the claim controller writes them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from harness.objects import Raw, pod

API = "resource.k8s.io/v1"
DRIVER = "gpu.example.com"
_DEVICE_FIELDS = (
    "taints",
    "capacity",
    "consumesCounters",
    "bindsToNode",
    "bindingConditions",
    "bindingFailureConditions",
    "allowMultipleAllocations",
    "nodeName",
    "allNodes",
)


def attributes(**values: Any) -> Raw:
    """Attributes by the type of their value; a string with two dots is a version."""
    return {name: _attribute(value) for name, value in values.items()}


def _attribute(value: Any) -> Raw:
    if isinstance(value, bool):
        return {"bool": value}
    if isinstance(value, int):
        return {"int": value}
    return {"version": value} if value.count(".") == 2 else {"string": value}


def device(name: str, memory: str = "", **more: Any) -> Raw:
    """`taints`, `capacity` and other fields of a device by their name; the rest are attributes."""
    given = {key: more.pop(key) for key in _DEVICE_FIELDS if key in more}
    if memory:
        given.setdefault("capacity", {})["memory"] = {"value": memory}
    if more:
        given["attributes"] = attributes(**more)
    return {"name": name, **given}


def gpus(count: int, **more: Any) -> list[Raw]:
    return [device(f"gpu-{i}", **more) for i in range(count)]


def resource_slice(node: str = "", devices: Sequence[Raw] | int = 1, **more: Any) -> Raw:
    """The devices of a node, or of all with `allNodes`; the rest is its spec."""
    listed = gpus(devices) if isinstance(devices, int) else list(devices)
    pool = {"name": more.pop("pool", node or "everywhere"), "generation": 1, "resourceSliceCount": 1}
    name = more.pop("name", f"{pool['name']}-slice")
    spec: Raw = {"driver": more.pop("driver", DRIVER), "pool": pool, "devices": listed}
    if node:
        spec["nodeName"] = node
    return {
        "apiVersion": API,
        "kind": "ResourceSlice",
        "metadata": {"name": name},
        "spec": {**spec, **more},
    }


def device_class(name: str = "gpu", *selectors: str, **spec: Any) -> Raw:
    if selectors:
        spec["selectors"] = [{"cel": {"expression": each}} for each in selectors]
    return {"apiVersion": API, "kind": "DeviceClass", "metadata": {"name": name}, "spec": spec}


def request(name: str = "r", count: int = 1, *selectors: str, of: str = "gpu", **more: Any) -> Raw:
    exactly: Raw = {"deviceClassName": of, **more}
    if exactly.get("allocationMode") != "All":
        exactly |= {"allocationMode": "ExactCount", "count": count}
    if selectors:
        exactly["selectors"] = [{"cel": {"expression": each}} for each in selectors]
    return {"name": name, "exactly": exactly}


def first_available(name: str, *alternatives: Raw) -> Raw:
    """A request with alternatives, which are requests themselves."""
    subrequests = [{"name": each["name"], **each["exactly"]} for each in alternatives]
    return {"name": name, "firstAvailable": subrequests}


def claim_spec(*requests: Raw, **more: Any) -> Raw:
    return {"devices": {"requests": list(requests or (request(),)), **more}}


def resource_claim(name: str, *requests: Raw, owner: str = "", **more: Any) -> Raw:
    """`owner` is the pod that it was generated for; `reserved_for` names pods; the rest is its status
    or, for `constraints` and `config`, its spec."""
    metadata: Raw = {"name": name, "namespace": "default", **more.pop("metadata", {})}
    if owner:
        metadata["ownerReferences"] = [
            {
                "apiVersion": "v1",
                "kind": "Pod",
                "name": owner,
                "uid": f"pod-{owner}",
                "controller": True,
            }
        ]
    devices = {key: more.pop(key) for key in ("constraints", "config") if key in more}
    consumers = more.pop("reserved_for", ())
    if consumers:
        more["reservedFor"] = [
            {"resource": "pods", "name": each, "uid": f"pod-{each}"} for each in consumers
        ]
    return {
        "apiVersion": API,
        "kind": "ResourceClaim",
        "metadata": metadata,
        "spec": claim_spec(*requests, **devices),
        "status": more,
    }


def allocation(node: str, *devices: str, request: str = "r", pool: str = "", **more: Any) -> Raw:
    results = [
        {"request": request, "driver": DRIVER, "pool": pool or node, "device": each} for each in devices
    ]
    found: Raw = {"devices": {"results": results}, **more}
    if node:
        name = {"key": "metadata.name", "operator": "In", "values": [node]}
        found["nodeSelector"] = {"nodeSelectorTerms": [{"matchFields": [name]}]}
    return found


def claim_template(name: str, *requests: Raw, **more: Any) -> Raw:
    return {
        "apiVersion": API,
        "kind": "ResourceClaimTemplate",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {"spec": claim_spec(*requests, **more)},
    }


def claiming_pod(
    name: str, *claims: str, templates: Mapping[str, str | None] | None = None, **more: Any
) -> Raw:
    """A pod that names claims. `templates` are the claims generated for it, by template; None for one
    that is not generated yet."""
    entries: list[Raw] = [{"name": f"c{i}", "resourceClaimName": each} for i, each in enumerate(claims)]
    statuses: list[Raw] = []
    for template, generated in (templates or {}).items():
        entries.append({"name": template, "resourceClaimTemplateName": template})
        if generated is not None:
            statuses.append({"name": template, "resourceClaimName": generated})
    made = pod(name, **more, resourceClaims=entries)
    if statuses:
        made["status"] = {"phase": "Pending", "resourceClaimStatuses": statuses}
    return made


def generated(name: str, *requests: Raw, **more: Any) -> tuple[Raw, Raw]:
    """A pod with the claim that was generated for it: `<name>-gpu`."""
    claim = resource_claim(f"{name}-gpu", *requests, owner=name)
    return claiming_pod(name, templates={"gpu": f"{name}-gpu"}, **more), claim


def devices_of(claim: Raw) -> list[str]:
    """The devices of a claim, with their pools: `n1/gpu-0`."""
    allocated = (claim.get("status") or {}).get("allocation") or {}
    results = (allocated.get("devices") or {}).get("results") or []
    return [f"{each['pool']}/{each['device']}" for each in results]


def consumers_of(claim: Raw) -> list[str]:
    return [each["name"] for each in (claim.get("status") or {}).get("reservedFor") or ()]
