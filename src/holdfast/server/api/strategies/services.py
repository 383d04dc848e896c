"""Services: the addresses and ports they are given."""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable

from holdfast.server.api import fields
from holdfast.server.api.cluster import Call
from holdfast.server.api.strategies.strategy import Strategy, keep_status
from holdfast.server.schema import Problem
from holdfast.store import Raw

_ADDRESSES = ipaddress.ip_network("10.96.0.0/16")
_TYPES = ("ClusterIP", "ExternalName", "LoadBalancer", "NodePort")
_NODE_PORTS = range(30000, 32768)


def _new(call: Call, raw: Raw) -> Raw:
    return {**_allocated(call, raw), "status": {"loadBalancer": {}}}


def _changed(call: Call, before: Raw, after: Raw) -> Raw:
    spec = dict(after.get("spec") or {})
    old = before.get("spec") or {}
    if spec.get("type") != "ExternalName":
        for name in ("clusterIP", "clusterIPs", "ipFamilies", "ipFamilyPolicy"):
            if not spec.get(name) and old.get(name):
                spec[name] = old[name]
    return _allocated(call, keep_status(call, before, {**after, "spec": spec}))


def _allocated(call: Call, raw: Raw) -> Raw:
    spec = dict(raw.get("spec") or {})
    type = spec.setdefault("type", "ClusterIP")
    if type == "ExternalName":
        return {**raw, "spec": spec}
    others = [
        each.get("spec") or {}
        for each in call.cluster.store.scan("", "Service")
        if each["metadata"]["uid"] != raw["metadata"]["uid"]
    ]
    if not spec.get("clusterIP"):
        spec["clusterIP"] = _address(raw["metadata"]["uid"], {each.get("clusterIP") for each in others})
    spec.setdefault("clusterIPs", [spec["clusterIP"]])
    spec.setdefault("ipFamilies", ["IPv4"])
    spec.setdefault("ipFamilyPolicy", "SingleStack")
    spec.setdefault("internalTrafficPolicy", "Cluster")
    spec.setdefault("sessionAffinity", "None")
    if type in ("NodePort", "LoadBalancer"):
        spec.setdefault("externalTrafficPolicy", "Cluster")
        spec["ports"] = _with_node_ports(spec.get("ports") or [], others)
    return {**raw, "spec": spec}


def _address(uid: str, taken: set[str | None]) -> str:
    """Spread by uid, so that one who deletes a service and makes another gets another address."""
    size = _ADDRESSES.num_addresses - 2
    first = int(uid.replace("-", "")[:8] or "0", 16)
    for step in range(size):
        address = str(_ADDRESSES[1 + (first + step) % size])
        if address not in taken:
            return address
    raise RuntimeError("no cluster address is free")


def _with_node_ports(ports: list[Raw], others: Iterable[Raw]) -> list[Raw]:
    taken = {port.get("nodePort") for spec in others for port in spec.get("ports") or []}
    taken |= {port.get("nodePort") for port in ports}
    free = (number for number in _NODE_PORTS if number not in taken)
    return [port if port.get("nodePort") else {**port, "nodePort": next(free)} for port in ports]


def _check_new(call: Call, raw: Raw) -> list[Problem]:
    spec = raw.get("spec") or {}
    found: list[Problem] = []
    if not spec.get("ports") and spec.get("clusterIP") != "None" and spec.get("type") != "ExternalName":
        found.append(fields.required("spec.ports"))
    for i, port in enumerate(spec.get("ports") or []):
        number = port.get("port")
        if not isinstance(number, int) or not 1 <= number <= 65535:
            path = f"spec.ports[{i}].port"
            found.append(fields.invalid(path, number or 0, "must be between 1 and 65535, inclusive"))
        target = port.get("targetPort")
        if isinstance(target, int) and not 1 <= target <= 65535:
            path = f"spec.ports[{i}].targetPort"
            found.append(fields.invalid(path, target, "must be between 1 and 65535, inclusive"))
        if len(spec["ports"]) > 1 and not port.get("name"):
            found.append(fields.required(f"spec.ports[{i}].name"))
    if spec.get("type") not in _TYPES:
        found.append(fields.unsupported("spec.type", spec.get("type"), _TYPES))
    return found


def _check_changed(call: Call, before: Raw, after: Raw) -> list[Problem]:
    was, now = before.get("spec") or {}, after.get("spec") or {}
    both = "ExternalName" not in (was.get("type"), now.get("type"))
    if both and was.get("clusterIP") and was["clusterIP"] != now.get("clusterIP"):
        ips = now.get("clusterIPs")
        return [fields.invalid("spec.clusterIPs[0]", ips, "may not change once set")]
    return _check_new(call, after)


SERVICE = Strategy(
    create_on_update=True,
    returns_deleted=True,
    new=_new,
    changed=_changed,
    check_new=_check_new,
    check_changed=_check_changed,
)
