"""Resource amounts, and the rules of core kinds other than pods: nodes, volumes, claims, disruption
budgets, priority classes.
"""

from __future__ import annotations

from typing import Any

from holdfast.api.errors import MalformedText
from holdfast.api.name_rules import label_key
from holdfast.api.quantity import NANO, parse
from holdfast.api.resources import is_extended, is_hugepages, is_native, is_pod_level
from holdfast.api.workloads import scaled_value
from holdfast.machinery.schema.field_errors import (
    FORBIDDEN,
    INVALID,
    REQUIRED,
    FieldError,
    field_problem,
    not_supported,
)
from holdfast.machinery.validation.metadata import check_label_selector
from holdfast.machinery.validation.placement import check_taints, check_volume_affinity

Found = list[FieldError]

_CONTAINER = frozenset({"cpu", "memory", "ephemeral-storage"})
_STANDARD = _CONTAINER | {
    "storage",
    "pods",
    "services",
    "replicationcontrollers",
    "resourcequotas",
    "secrets",
    "configmaps",
    "persistentvolumeclaims",
}
_NEGATIVE = "must be greater than or equal to 0"
_NOT_WHOLE = "must be an integer"


def check_requirements(
    found: Found, resources: dict[str, Any], path: str, whole_pod: bool = False
) -> None:
    limits = resources.get("limits") or {}
    requests = resources.get("requests") or {}
    for name, quantity in limits.items():
        _check_amount(found, name, quantity, f"{path}.limits[{name}]", whole_pod)
    for name, quantity in requests.items():
        _check_amount(found, name, quantity, f"{path}.requests[{name}]", whole_pod)
        _check_against_limit(found, name, quantity, limits, path)
    huge = any(is_hugepages(name) for name in (*limits, *requests))
    if huge and not {"cpu", "memory"} & (limits.keys() | requests.keys()):
        found.append(field_problem(FORBIDDEN, path, detail="HugePages require cpu or memory"))


def _check_against_limit(
    found: Found, name: str, quantity: str, limits: dict[str, str], path: str
) -> None:
    limit = limits.get(name)
    firm = is_hugepages(name) or not is_native(name)
    if limit is None:
        if firm:
            why = "Limit must be set for non overcommitable resources"
            found.append(field_problem(REQUIRED, f"{path}.limits", detail=why))
    elif quantity != limit:
        asked, allowed = parse(quantity), parse(limit)
        if firm and asked != allowed:
            why = f"must be equal to {name} limit of {limit}"
            found.append(field_problem(INVALID, f"{path}.requests", quantity, why))
        elif asked > allowed:
            why = f"must be less than or equal to {name} limit of {limit}"
            found.append(field_problem(INVALID, f"{path}.requests", quantity, why))


def _check_amount(found: Found, name: str, quantity: str, where: str, whole_pod: bool) -> None:
    before = len(found)
    found.extend(field_problem(INVALID, where, name, message) for message in label_key(name))
    if whole_pod:
        if not is_pod_level(name):
            found.append(not_supported(where, name, ("cpu", "hugepages-", "memory")))
    elif "/" not in name:
        if len(found) == before and name not in _STANDARD and not is_hugepages(name):
            why = "must be a standard resource type or fully qualified"
            found.append(field_problem(INVALID, where, name, why))
        if name not in _CONTAINER and not is_hugepages(name):
            why = "must be a standard resource for containers"
            found.append(field_problem(INVALID, where, name, why))
    elif not is_native(name) and not is_extended(name):
        why = "doesn't follow extended resource name standard"
        found.append(field_problem(INVALID, where, name, why))
    check_quantity(found, name, quantity, where)


def check_quantity(found: Found, name: str, quantity: str, where: str) -> None:
    nano = parse(quantity)
    if nano < 0:
        found.append(field_problem(INVALID, where, quantity, _NEGATIVE))
    if is_extended(name) and nano % NANO:
        found.append(field_problem(INVALID, where, quantity, _NOT_WHOLE))


Part = dict[str, Any]

_MODES = ("ReadOnlyMany", "ReadWriteMany", "ReadWriteOnce", "ReadWriteOncePod")
_VOLUME_MODES = ("Block", "Filesystem")
_RECLAIM = ("Delete", "Recycle", "Retain")
ABOUT_VOLUMES = frozenset(
    {
        "accessModes",
        "capacity",
        "claimRef",
        "mountOptions",
        "nodeAffinity",
        "persistentVolumeReclaimPolicy",
        "storageClassName",
        "volumeAttributesClassName",
        "volumeMode",
    }
)
_NOT_NEGATIVE = "must be greater than or equal to 0"
_USER_MAX = 1_000_000_000


def check_node(found: Found, raw: Part) -> None:
    # Kubernetes reports metadata.taints.
    check_taints(found, (raw.get("spec") or {}).get("taints") or [], "metadata.taints")
    status = raw.get("status") or {}
    for field in ("capacity", "allocatable"):
        for name, quantity in (status.get(field) or {}).items():
            check_quantity(found, name, quantity, f"status.{field}.{name}")


def check_budget(found: Found, raw: Part) -> None:
    spec = raw.get("spec") or {}
    if "minAvailable" in spec and "maxUnavailable" in spec:
        both = {name: spec[name] for name in ("minAvailable", "maxUnavailable")}
        why = "minAvailable and maxUnavailable cannot be both set"
        found.append(field_problem(INVALID, "spec", both, why))
    for field in ("minAvailable", "maxUnavailable"):
        if field in spec:
            check_amount_or_percent(found, spec[field], f"spec.{field}")
    check_label_selector(found, spec.get("selector"), "spec.selector")


def check_amount_or_percent(found: Found, value: int | str, path: str) -> None:
    """A count, or a percentage of at most 100."""
    if isinstance(value, int):
        if value < 0:
            found.append(field_problem(INVALID, path, value, _NOT_NEGATIVE))
        return
    digits = value.removesuffix("%")
    if not (value.endswith("%") and digits.isascii() and digits.isdigit()):
        why = (
            "a valid percent string must be a numeric string followed by an ending '%' "
            "(e.g. '1%',  or '93%', regex used for validation is '[0-9]+%')"
        )
        found.append(field_problem(INVALID, path, value, why))
        return
    try:
        share = scaled_value(value, 100, round_up=True)
    except MalformedText:
        return
    if share > 100:
        found.append(field_problem(INVALID, path, value, "must not be greater than 100%"))


def check_priority_class(found: Found, raw: Part) -> None:
    name = (raw.get("metadata") or {}).get("name", "")
    value = raw.get("value", 0)
    if value > _USER_MAX and not name.startswith("system-"):
        why = f"maximum allowed value of a user defined priority is {_USER_MAX}"
        found.append(field_problem(FORBIDDEN, "value", detail=why))
    policy = raw.get("preemptionPolicy")
    if policy not in (None, "PreemptLowerPriority", "Never"):
        allowed = ("PreemptLowerPriority", "Never")
        found.append(not_supported("preemptionPolicy", policy, allowed))


def check_claim(found: Found, raw: Part) -> None:
    check_claim_spec(found, raw.get("spec") or {}, "spec")


def check_claim_spec(found: Found, spec: Part, path: str) -> None:
    modes = spec.get("accessModes") or []
    if not modes:
        why = "at least 1 access mode is required"
        found.append(field_problem(REQUIRED, f"{path}.accessModes", detail=why))
    check_label_selector(found, spec.get("selector"), f"{path}.selector")
    _check_modes(found, modes, f"{path}.accessModes")
    requests = (spec.get("resources") or {}).get("requests") or {}
    where = f"{path}.resources[storage]"
    if "storage" not in requests:
        found.append(field_problem(REQUIRED, where))
    else:
        _check_positive(found, requests["storage"], where)
    _check_volume_mode(found, spec, path)


def check_volume(found: Found, raw: Part) -> None:
    spec = raw.get("spec") or {}
    modes = spec.get("accessModes") or []
    if not modes:
        found.append(field_problem(REQUIRED, "spec.accessModes"))
    _check_modes(found, modes, "spec.accessModes")
    capacity = spec.get("capacity") or {}
    if not capacity:
        found.append(field_problem(REQUIRED, "spec.capacity"))
    if "storage" not in capacity or len(capacity) > 1:
        found.append(not_supported("spec.capacity", capacity or None, ("storage",)))
    if "storage" in capacity:
        _check_positive(found, capacity["storage"], "spec.capacity[storage]")
    policy = spec.get("persistentVolumeReclaimPolicy")
    if policy not in _RECLAIM:
        found.append(not_supported("spec.persistentVolumeReclaimPolicy", policy, _RECLAIM))
    _check_volume_mode(found, spec, "spec")
    if "nodeAffinity" in spec:
        check_volume_affinity(found, spec["nodeAffinity"], "spec.nodeAffinity")
    if not any(field not in ABOUT_VOLUMES for field in spec):
        found.append(field_problem(REQUIRED, "spec", detail="must specify a volume type"))


def _check_modes(found: Found, modes: list[str], path: str) -> None:
    for mode in modes:
        if mode not in _MODES:
            found.append(not_supported(path, mode, _MODES))
    if "ReadWriteOncePod" in modes and len(modes) > 1:
        why = "may not use ReadWriteOncePod with other access modes"
        found.append(field_problem(FORBIDDEN, path, detail=why))


def _check_positive(found: Found, quantity: str, path: str) -> None:
    if quantity == "0" or quantity.startswith("-"):
        found.append(field_problem(INVALID, path, quantity, "must be greater than zero"))


def _check_volume_mode(found: Found, spec: Part, path: str) -> None:
    mode = spec.get("volumeMode")
    if mode is not None and mode not in _VOLUME_MODES:
        found.append(not_supported(f"{path}.volumeMode", mode, _VOLUME_MODES))
