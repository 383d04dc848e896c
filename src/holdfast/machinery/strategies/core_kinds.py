"""Strategies of core kinds other than pods and workloads, and of Reservations.

Namespaces, nodes; events of core/v1 and of events.k8s.io; ConfigMaps and Secrets (immutable ones,
`stringData`), leases; services with their addresses and ports; Reservations; volumes and claims.
"""

from __future__ import annotations

import base64
import binascii
import ipaddress
import re
from collections.abc import Iterable
from typing import Any

from holdfast.api import names
from holdfast.api.errors import QuantityError
from holdfast.api.quantity import parse
from holdfast.api.raw_objects import Key, Raw
from holdfast.api.reservation import DEFAULT_TTL
from holdfast.machinery.object_request import WriteRequest
from holdfast.machinery.schema import FieldError
from holdfast.machinery.schema import field_errors as fields
from holdfast.machinery.schema.types import EVENTS_GROUP
from holdfast.machinery.status import Resource, forbidden
from holdfast.machinery.strategies.strategy import (
    Strategy,
    all_but_status,
    keep_all_but_status,
    keep_spec,
    keep_status,
    without_status,
)

FINALIZER = "kubernetes"


def _labelled(raw: Raw) -> Raw:
    """With the label by which selectors know a namespace's name."""
    metadata = raw["metadata"]
    labels = metadata.get("labels") or {}
    name = metadata.get("name") or ""
    if labels.get(names.NAMESPACE_NAME_LABEL) == name:
        return raw
    return {**raw, "metadata": {**metadata, "labels": {**labels, names.NAMESPACE_NAME_LABEL: name}}}


def _new(request: WriteRequest, raw: Raw) -> Raw:
    spec = dict(raw.get("spec") or {})
    if FINALIZER not in (spec.get("finalizers") or []):
        spec["finalizers"] = [*(spec.get("finalizers") or []), FINALIZER]
    return {**_labelled(raw), "spec": spec, "status": {"phase": "Active"}}


def _changed(request: WriteRequest, before: Raw, after: Raw) -> Raw:
    after = keep_status(request, before, _labelled(after))
    # Only the finalize subresource takes a namespace's own finalizers away.
    return after if request.subresource == "finalize" else keep_spec(request, before, after)


NAMESPACE = Strategy(returns_deleted=True, new=_new, changed=_changed)


def _check_node(request: WriteRequest, before: Raw, after: Raw) -> list[FieldError]:
    was, now = (before.get("spec") or {}).get("podCIDR"), (after.get("spec") or {}).get("podCIDR")
    if was and was != now:
        return [
            fields.forbidden(
                "spec.podCIDRs", 'node updates may not change podCIDR except from "" to valid'
            )
        ]
    return []


NODE = Strategy(changed=keep_status, check_changed=_check_node)


_LIMITS = (("reportingInstance", 128), ("action", 128), ("reason", 128), ("message", 1024))
_NEEDED = ("reportingInstance", "action", "reason")
_OLD_FIELDS = ("firstTimestamp", "lastTimestamp", "count", "source")


def _check_new(request: WriteRequest, raw: Raw) -> list[FieldError]:
    found = _check_new_sort(request, raw) if raw.get("eventTime") else _check_place(raw)
    if request.type.group == EVENTS_GROUP:
        found += _check_strictly(raw)
    return found


def _check_place(raw: Raw) -> list[FieldError]:
    own = raw["metadata"].get("namespace") or ""
    about = (raw.get("involvedObject") or {}).get("namespace") or ""
    if about == own or (not about and own == "default"):
        return []
    return [fields.invalid("involvedObject.namespace", about, "does not match event.namespace")]


def _check_new_sort(request: WriteRequest, raw: Raw) -> list[FieldError]:
    found: list[FieldError] = []
    own = raw["metadata"].get("namespace") or ""
    if not (raw.get("involvedObject") or {}).get("namespace") and own not in ("default", "kube-system"):
        found.append(fields.invalid("involvedObject.namespace", "", "does not match event.namespace"))
    if not raw.get("reportingComponent"):
        newer = request.type.group == EVENTS_GROUP
        found.append(fields.required("reportingController" if newer else "reportingComponent"))
    found += [fields.required(name) for name in _NEEDED if not raw.get(name)]
    for name, limit in _LIMITS:
        if len(raw.get(name) or "") > limit:
            found.append(fields.invalid(name, "", f"can have at most {limit} characters"))
    return found


def _check_strictly(raw: Raw) -> list[FieldError]:
    found: list[FieldError] = []
    if not raw.get("eventTime"):
        found.append(fields.required("eventTime"))
    if raw.get("type") not in ("Normal", "Warning"):
        found.append(fields.invalid("type", "", f"has invalid value: {raw.get('type') or ''}"))
    found += [fields.invalid(name, "", "needs to be unset") for name in _OLD_FIELDS if raw.get(name)]
    return found


EVENT = Strategy(create_on_update=True, check_new=_check_new)


_KEY = re.compile(r"[-._a-zA-Z0-9]+")
_BAD_KEY = (
    "a valid config key must consist of alphanumeric characters, '-', '_' or '.' (e.g. 'key.name',  or "
    f"'KEY_NAME',  or 'key-name', regex used for validation is '{_KEY.pattern}')"
)
_SEALED = "field is immutable when `immutable` is set"


def _check_sealed(before: Raw, after: Raw, *parts: str) -> list[FieldError]:
    if not before.get("immutable"):
        return []
    found = []
    if not after.get("immutable"):
        found.append(fields.forbidden("immutable", _SEALED))
    found += [fields.forbidden(part, _SEALED) for part in parts if before.get(part) != after.get(part)]
    return found


def _check_keys(raw: Raw, *parts: str) -> list[FieldError]:
    return [
        fields.invalid(f"{part}[{key}]", key, _BAD_KEY)
        for part in parts
        for key in raw.get(part) or {}
        if _KEY.fullmatch(key) is None
    ]


def _check_new_config_map(request: WriteRequest, raw: Raw) -> list[FieldError]:
    return _check_keys(raw, "data", "binaryData")


def _check_config_map(request: WriteRequest, before: Raw, after: Raw) -> list[FieldError]:
    return [
        *_check_sealed(before, after, "data", "binaryData"),
        *_check_keys(after, "data", "binaryData"),
    ]


def _new_secret(request: WriteRequest, raw: Raw) -> Raw:
    text = raw.get("stringData") or {}
    encoded = {key: base64.b64encode(str(value).encode()).decode() for key, value in text.items()}
    secret = {name: value for name, value in raw.items() if name != "stringData"}
    if encoded:
        secret["data"] = {**(raw.get("data") or {}), **encoded}
    secret.setdefault("type", "Opaque")
    return secret


def _changed_secret(request: WriteRequest, before: Raw, after: Raw) -> Raw:
    after = _new_secret(request, after)
    return {**after, "type": after.get("type") or before.get("type")}


def _check_new_secret(request: WriteRequest, raw: Raw) -> list[FieldError]:
    found = _check_keys(raw, "data")
    for key, value in (raw.get("data") or {}).items():
        try:
            base64.b64decode(value, validate=True)
        except (binascii.Error, TypeError, ValueError):
            found.append(fields.invalid(f"data[{key}]", value, "must be base64"))
    return found


def _check_secret(request: WriteRequest, before: Raw, after: Raw) -> list[FieldError]:
    found = _check_sealed(before, after, "data")
    if before.get("type") != after.get("type"):
        found.append(fields.invalid("type", after.get("type"), "field is immutable"))
    return found + _check_new_secret(request, after)


def _check_new_lease(request: WriteRequest, raw: Raw) -> list[FieldError]:
    spec = raw.get("spec") or {}
    lasts, moved = spec.get("leaseDurationSeconds"), spec.get("leaseTransitions")
    found = []
    if isinstance(lasts, int) and lasts <= 0:
        found.append(fields.invalid("spec.leaseDurationSeconds", lasts, "must be greater than 0"))
    if isinstance(moved, int) and moved < 0:
        why = "must be greater than or equal to 0"
        found.append(fields.invalid("spec.leaseTransitions", moved, why))
    return found


def _check_lease(request: WriteRequest, before: Raw, after: Raw) -> list[FieldError]:
    return _check_new_lease(request, after)


CONFIG_MAP = Strategy(check_new=_check_new_config_map, check_changed=_check_config_map)
LEASE = Strategy(
    unconditional_update=False,
    create_on_update=True,
    check_new=_check_new_lease,
    check_changed=_check_lease,
)
SECRET = Strategy(
    new=_new_secret, changed=_changed_secret, check_new=_check_new_secret, check_changed=_check_secret
)


_ADDRESSES = ipaddress.ip_network("10.96.0.0/16")
FIRST_ADDRESS = str(_ADDRESSES[1])
"""The cluster address of the Service `kubernetes`."""
_TYPES = ("ClusterIP", "ExternalName", "LoadBalancer", "NodePort")
_NODE_PORTS = range(30000, 32768)


def _new_services(request: WriteRequest, raw: Raw) -> Raw:
    return {**_allocated(request, raw), "status": {"loadBalancer": {}}}


def _changed_services(request: WriteRequest, before: Raw, after: Raw) -> Raw:
    spec = dict(after.get("spec") or {})
    old = before.get("spec") or {}
    if spec.get("type") != "ExternalName":
        for name in ("clusterIP", "clusterIPs", "ipFamilies", "ipFamilyPolicy"):
            if not spec.get(name) and old.get(name):
                spec[name] = old[name]
    return _allocated(request, keep_status(request, before, {**after, "spec": spec}))


def _allocated(request: WriteRequest, raw: Raw) -> Raw:
    spec = dict(raw.get("spec") or {})
    type = spec.setdefault("type", "ClusterIP")
    if type == "ExternalName":
        return {**raw, "spec": spec}
    others = [
        each.get("spec") or {}
        for each in request.store.scan("", "Service")
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
    """Spread by uid, so that a recreated service gets another address."""
    size = _ADDRESSES.num_addresses - 3
    first = int(uid.replace("-", "")[:8] or "0", 16)
    for step in range(size):
        address = str(_ADDRESSES[2 + (first + step) % size])
        if address not in taken:
            return address
    raise RuntimeError("no cluster address is free")


def _with_node_ports(ports: list[Raw], others: Iterable[Raw]) -> list[Raw]:
    taken = {port.get("nodePort") for spec in others for port in spec.get("ports") or []}
    taken |= {port.get("nodePort") for port in ports}
    free = (number for number in _NODE_PORTS if number not in taken)
    return [port if port.get("nodePort") else {**port, "nodePort": next(free)} for port in ports]


def _check_new_services(request: WriteRequest, raw: Raw) -> list[FieldError]:
    spec = raw.get("spec") or {}
    found: list[FieldError] = []
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
        found.append(fields.not_supported("spec.type", spec.get("type"), _TYPES))
    return found


def _check_changed(request: WriteRequest, before: Raw, after: Raw) -> list[FieldError]:
    was, now = before.get("spec") or {}, after.get("spec") or {}
    both = "ExternalName" not in (was.get("type"), now.get("type"))
    if both and was.get("clusterIP") and was["clusterIP"] != now.get("clusterIP"):
        ips = now.get("clusterIPs")
        return [fields.invalid("spec.clusterIPs[0]", ips, "may not change once set")]
    return _check_new_services(request, after)


SERVICE = Strategy(
    create_on_update=True,
    returns_deleted=True,
    new=_new_services,
    changed=_changed_services,
    check_new=_check_new_services,
    check_changed=_check_changed,
)


def _new_reservation(request: WriteRequest, raw: Raw) -> Raw:
    kept = {name: value for name, value in raw.items() if name != "status"}
    return _expiring(kept, None)


def _changed_reservation(request: WriteRequest, before: Raw, after: Raw) -> Raw:
    return _expiring(keep_status(request, before, after), before)


def _expiring(raw: Raw, before: Raw | None) -> Raw:
    """The object with its expiry set. One without a spec is left to validation."""
    if not _has_spec(raw) or not (before is None or _has_spec(before)):
        return raw
    return with_expiry(raw, before)


def _has_spec(raw: dict[str, Any]) -> bool:
    return isinstance(raw.get("spec"), dict)


def with_expiry(reservation: Raw, before: Raw | None = None) -> Raw:
    """Sets the default ttl of a reservation that has neither ttl nor expiry. Setting an expiry later
    switches the default off.
    """
    spec, was = reservation["spec"], before["spec"] if before is not None else {}
    if spec.get("ttl") is None and spec.get("expires") is None:
        return {**reservation, "spec": {**spec, "ttl": DEFAULT_TTL}}
    switched_off = spec.get("expires") is not None and was.get("expires") is None
    if switched_off and spec.get("ttl") == was.get("ttl") == DEFAULT_TTL:
        spec = {name: value for name, value in spec.items() if name != "ttl"}
        return {**reservation, "spec": spec}
    return reservation


RESERVATION = Strategy(
    generation_of=all_but_status,
    unconditional_update=False,
    new=_new_reservation,
    changed=_changed_reservation,
    status_changed=keep_all_but_status,
)


_CLAIM_FIXED = (
    "spec is immutable after creation except resources.requests and volumeAttributesClassName for "
    "bound "
    "claims"
)


def _new_volume(request: WriteRequest, raw: Raw) -> Raw:
    return {**raw, "status": {"phase": "Pending", "lastPhaseTransitionTime": request.stamp()}}


def _new_claim(request: WriteRequest, raw: Raw) -> Raw:
    spec = dict(raw.get("spec") or {})
    annotations = raw["metadata"].get("annotations") or {}
    if spec.get("storageClassName") is None and names.STORAGE_CLASS_ANNOTATION not in annotations:
        default = _default_class(request)
        if default:
            spec["storageClassName"] = default
    return {**raw, "spec": spec, "status": {"phase": "Pending"}}


def _default_class(request: WriteRequest) -> str:
    """The default storage class; of several, the newest, then the first by name."""
    classes = [
        each["metadata"]
        for each in request.store.scan("storage.k8s.io", "StorageClass")
        if (each["metadata"].get("annotations") or {}).get(names.DEFAULT_STORAGE_CLASS_ANNOTATION)
        == "true"
    ]
    newest = max((each["creationTimestamp"] for each in classes), default="")
    return min((each["name"] for each in classes if each["creationTimestamp"] == newest), default="")


def _check_claim(request: WriteRequest, before: Raw, after: Raw) -> list[FieldError]:
    was, now = before.get("spec") or {}, after.get("spec") or {}
    allowed = {**was}
    if not was.get("volumeName"):
        allowed["volumeName"] = now.get("volumeName")
    if was.get("volumeName") or (before.get("status") or {}).get("phase") == "Bound":
        for name in ("resources", "volumeAttributesClassName"):
            allowed[name] = now.get(name)
    if was.get("storageClassName") is None:
        allowed["storageClassName"] = now.get("storageClassName")
    if _filled(allowed) != _filled(now):
        return [fields.forbidden("spec", _CLAIM_FIXED)]
    return _check_expansion(request, before, after)


def _check_expansion(request: WriteRequest, before: Raw, after: Raw) -> list[FieldError]:
    """A claim grows if its class allows it, and never shrinks below its volume. Raises StatusError 403,
    as the admission plugin PersistentVolumeClaimResize."""
    was, now = _storage(before), _storage(after)
    if was is None or now is None:
        return []
    capacity = ((before.get("status") or {}).get("capacity") or {}).get(names.STORAGE)
    if now < was and capacity is not None and now <= parse(capacity):
        field = "spec.resources.requests.storage"
        return [fields.forbidden(field, "field can not be less than status.capacity")]
    name = (after.get("spec") or {}).get("storageClassName")
    found = request.store.get(Key("storage.k8s.io", "StorageClass", "", name)) if name else None
    if now > was and not (found or {}).get("allowVolumeExpansion"):
        why = (
            "only dynamically provisioned pvc can be resized and the storageclass that provisions the "
            "pvc must support resize"
        )
        raise forbidden(Resource("", "persistentvolumeclaims"), request.name, why)
    return []


def _storage(claim: Raw) -> int | None:
    requests = ((claim.get("spec") or {}).get("resources") or {}).get("requests") or {}
    given = requests.get(names.STORAGE)
    try:
        return None if given is None else parse(given)
    except QuantityError:
        return None  # reported elsewhere


def _filled(spec: Raw) -> Raw:
    return {name: value for name, value in spec.items() if value is not None}


_RECLAIM = ("Delete", "Retain")
_BINDING = ("Immediate", "WaitForFirstConsumer")


def _check_new_class(request: WriteRequest, raw: Raw) -> list[FieldError]:
    found = [] if raw.get("provisioner") else [fields.required("provisioner")]
    for name, known in (("reclaimPolicy", _RECLAIM), ("volumeBindingMode", _BINDING)):
        if raw.get(name) not in known:
            found.append(fields.not_supported(name, raw.get(name), known))
    return found


def _check_class(request: WriteRequest, before: Raw, after: Raw) -> list[FieldError]:
    def differs(name: str) -> bool:
        return bool(before.get(name) != after.get(name))

    refused = filter(differs, ("parameters", "provisioner"))
    immutable = filter(differs, ("reclaimPolicy", "volumeBindingMode"))
    return [
        *(fields.forbidden(name, f"updates to {name} are forbidden.") for name in refused),
        *(fields.invalid(name, after.get(name), "field is immutable") for name in immutable),
    ]


VOLUME = Strategy(returns_deleted=True, new=_new_volume, changed=keep_status)
CLAIM = Strategy(returns_deleted=True, new=_new_claim, changed=keep_status, check_changed=_check_claim)
STORAGE_CLASS = Strategy(returns_deleted=True, check_new=_check_new_class, check_changed=_check_class)
ATTACHMENT = Strategy(
    unconditional_update=False, returns_deleted=True, new=without_status, changed=keep_status
)
CSI_NODE = Strategy(unconditional_update=False, returns_deleted=True)
CSI_DRIVER = Strategy(unconditional_update=False, returns_deleted=True)
CSI_CAPACITY = Strategy(unconditional_update=False)
