"""ResourceClaims and their status, ResourceClaimTemplates, DeviceClasses, and the claims of pods."""

from __future__ import annotations

from typing import Any

from holdfast.api.name_rules import dns_label, dns_subdomain
from holdfast.api.resources import is_extended
from holdfast.machinery.schema.field_errors import (
    DUPLICATE,
    FORBIDDEN,
    INVALID,
    NOT_FOUND,
    REQUIRED,
    field_problem,
    not_supported,
    too_long,
)
from holdfast.machinery.validation.device_fields import (
    MAX_CONFIGS,
    MAX_SELECTORS,
    Found,
    Part,
    check_addresses,
    check_binding_conditions,
    check_conditions,
    check_configuration,
    check_device_tolerations,
    check_driver,
    check_driver_data,
    check_full_name,
    check_label,
    check_list,
    check_pool_name,
    check_selector,
    check_uuid,
    name_of,
)
from holdfast.machinery.validation.metadata import check_labels
from holdfast.machinery.validation.placement import check_node_selector

_MAX_REQUESTS = 32
_MAX_ALTERNATIVES = 8
_MAX_CONSTRAINTS = 32
_MAX_RESULTS = 32
_MAX_CONSUMERS = 256
_MAX_DEVICE_CONDITIONS = 8
_MAX_INTERFACE, _MAX_HARDWARE = 256, 128
_MODES = ("All", "ExactCount")
_SOURCES = ("FromClaim", "FromClass")
_ONE_REQUEST = "exactly one of `exactly` or `firstAvailable` is required"
_NO_SUCH_REQUEST = (
    "must be the name of a request in the claim or the name of a request and a subrequest separated by "
    "'/'"
)
_IMMUTABLE = "field is immutable"

RequestNames = dict[str, set[str]]
"""The subrequests of each request of a claim."""


def check_claim(found: Found, raw: Part) -> None:
    _check_claim_spec(found, raw.get("spec") or {}, "spec")


def check_template(found: Found, raw: Part) -> None:
    spec = raw.get("spec") or {}
    metadata = spec.get("metadata") or {}
    check_labels(found, metadata.get("labels") or {}, "spec.metadata.labels")
    _check_claim_spec(found, spec.get("spec") or {}, "spec.spec")


def check_device_class(found: Found, raw: Part) -> None:
    spec = raw.get("spec") or {}
    check_list(found, spec.get("selectors"), "spec.selectors", MAX_SELECTORS, check_selector)
    check_list(found, spec.get("config"), "spec.config", MAX_CONFIGS, check_configuration)
    name = spec.get("extendedResourceName")
    if name is not None and not is_extended(name):
        why = "must be a valid extended resource name"
        found.append(field_problem(INVALID, "spec.extendedResourceName", name, why))


def _check_claim_spec(found: Found, spec: Part, path: str) -> None:
    devices, path = spec.get("devices") or {}, f"{path}.devices"
    names = request_names(devices)
    check_list(
        found, devices.get("requests"), f"{path}.requests", _MAX_REQUESTS, _check_request, name_of
    )

    def check_constraint(found: Found, constraint: Part, path: str) -> None:
        _check_references(found, constraint.get("requests"), f"{path}.requests", names)
        match, distinct = constraint.get("matchAttribute"), constraint.get("distinctAttribute")
        if match is not None:
            check_full_name(found, match, f"{path}.matchAttribute")
        elif distinct is not None:
            check_full_name(found, distinct, f"{path}.distinctAttribute")
        else:
            why = (
                'exactly one of "matchAttribute" or "distinctAttribute" is required, but multiple '
                "fields are set"
            )
            found.append(field_problem(REQUIRED, path, detail=why))

    def check_config(found: Found, config: Part, path: str) -> None:
        _check_references(found, config.get("requests"), f"{path}.requests", names)
        check_configuration(found, config, path)

    constraints = devices.get("constraints")
    check_list(found, constraints, f"{path}.constraints", _MAX_CONSTRAINTS, check_constraint)
    check_list(found, devices.get("config"), f"{path}.config", MAX_CONFIGS, check_config)


def request_names(devices: Part) -> RequestNames:
    return {
        name_of(request): {name_of(each) for each in request.get("firstAvailable") or ()}
        for request in devices.get("requests") or ()
    }


def _check_request(found: Found, request: Part, path: str) -> None:
    check_label(found, name_of(request), f"{path}.name")
    exactly, alternatives = request.get("exactly"), request.get("firstAvailable")
    if exactly is not None and alternatives:
        why = f"{_ONE_REQUEST}, but multiple fields are set"
        found.append(field_problem(INVALID, path, None, why))
    elif alternatives:
        where = f"{path}.firstAvailable"
        check_list(found, alternatives, where, _MAX_ALTERNATIVES, _check_alternative, name_of)
    elif exactly is not None:
        _check_demand(found, exactly, f"{path}.exactly")
    else:
        found.append(field_problem(REQUIRED, path, detail=_ONE_REQUEST))


def _check_alternative(found: Found, request: Part, path: str) -> None:
    check_label(found, name_of(request), f"{path}.name")
    _check_demand(found, request, path)


def _check_demand(found: Found, demand: Part, path: str) -> None:
    name, where = demand.get("deviceClassName", ""), f"{path}.deviceClassName"
    if name:
        found.extend(field_problem(INVALID, where, name, message) for message in dns_subdomain(name))
    else:
        found.append(field_problem(REQUIRED, where))
    check_list(found, demand.get("selectors"), f"{path}.selectors", MAX_SELECTORS, check_selector)
    mode, count = demand.get("allocationMode", ""), demand.get("count", 0)
    if mode == "All":
        if count:
            why = "must not be specified when allocationMode is 'All'"
            found.append(field_problem(INVALID, f"{path}.count", count, why))
    elif mode == "ExactCount":
        if count <= 0:
            why = "must be greater than zero"
            found.append(field_problem(INVALID, f"{path}.count", count, why))
    else:
        found.append(not_supported(f"{path}.allocationMode", mode, _MODES))
    check_device_tolerations(found, demand.get("tolerations"), f"{path}.tolerations")


def _check_references(found: Found, requests: Any, path: str, names: RequestNames) -> None:
    def check(found: Found, name: str, path: str) -> None:
        _check_reference(found, name, path, names)

    check_list(found, requests, path, _MAX_REQUESTS, check, str)


def _check_reference(found: Found, name: str, path: str, names: RequestNames) -> None:
    request, slash, alternative = name.partition("/")
    if "/" in alternative:
        found.append(field_problem(INVALID, path, name, _NO_SUCH_REQUEST))
        return
    for part in (request, alternative) if slash else (request,):
        check_label(found, part, path)
    if request not in names or (slash and alternative not in names[request]):
        found.append(field_problem(INVALID, path, name, _NO_SUCH_REQUEST))


def check_claim_status(found: Found, before: Part, after: Part) -> None:
    """A write of a claim's status."""
    old, new = before.get("status") or {}, after.get("status") or {}
    consumers, path = new.get("reservedFor"), "status.reservedFor"
    check_list(found, consumers, path, _MAX_CONSUMERS, _check_consumer, lambda each: each.get("uid"))
    was, allocation = old.get("allocation"), new.get("allocation")
    results = ((allocation or {}).get("devices") or {}).get("results") or []
    allocated = {_device_key(result) for result in results}

    def check_device(found: Found, device: Part, path: str) -> None:
        _check_device_status(found, device, path, allocated)

    check_list(found, new.get("devices"), "status.devices", -1, check_device, _device_key)
    if consumers:
        if allocation is None:
            why = "may not be specified when `allocated` is not set"
            found.append(field_problem(FORBIDDEN, path, detail=why))
        elif after["metadata"].get("deletionTimestamp"):
            known = old.get("reservedFor") or []
            if any(each not in known for each in consumers):
                why = (
                    "new entries may not be added while `deallocationRequested` or "
                    "`deletionTimestamp` are set"
                )
                found.append(field_problem(FORBIDDEN, path, detail=why))
    if was is not None and allocation is not None:
        if was != allocation:
            found.append(field_problem(INVALID, "status.allocation", allocation, _IMMUTABLE))
    elif allocation is not None:
        names = request_names((after.get("spec") or {}).get("devices") or {})
        _check_allocation(found, allocation, "status.allocation", names)


def _check_consumer(found: Found, consumer: Part, path: str) -> None:
    for field in ("resource", "name", "uid"):
        if not consumer.get(field):
            found.append(field_problem(REQUIRED, f"{path}.{field}"))


def _device_key(device: Part) -> str:
    """`driver/pool/device`, and the share where there is one."""
    parts = [device.get(field, "") for field in ("driver", "pool", "device")]
    share = device.get("shareID")
    return "/".join(parts if share is None else [*parts, share])


def _check_device_status(found: Found, device: Part, path: str, allocated: set[str]) -> None:
    _check_device_reference(found, device, path)
    if _device_key(device) not in allocated:
        why = "must be an allocated device in the claim"
        value = {field: device.get(field, "") for field in ("driver", "pool", "device")}
        found.append(field_problem(INVALID, path, value, why))
    check_conditions(found, device.get("conditions"), f"{path}.conditions", _MAX_DEVICE_CONDITIONS)
    if device.get("data") is not None:
        check_driver_data(found, device["data"], f"{path}.data")
    network, where = device.get("networkData") or {}, f"{path}.networkData"
    for field, most in (("interfaceName", _MAX_INTERFACE), ("hardwareAddress", _MAX_HARDWARE)):
        if len(network.get(field, "")) > most:
            found.append(too_long(f"{where}.{field}", most))
    check_addresses(found, network.get("ips"), f"{where}.ips")


def _check_device_reference(found: Found, device: Part, path: str) -> None:
    check_driver(found, device.get("driver", ""), f"{path}.driver")
    check_pool_name(found, device.get("pool", ""), f"{path}.pool")
    check_label(found, device.get("device", ""), f"{path}.device")
    if device.get("shareID") is not None:
        check_uuid(found, device["shareID"], f"{path}.shareID")


def _check_allocation(found: Found, allocation: Part, path: str, names: RequestNames) -> None:
    def check_result(found: Found, result: Part, path: str) -> None:
        _check_reference(found, result.get("request", ""), f"{path}.request", names)
        _check_device_reference(found, result, path)
        check_binding_conditions(found, result, path)
        check_device_tolerations(found, result.get("tolerations"), f"{path}.tolerations")

    def check_config(found: Found, config: Part, path: str) -> None:
        source = config.get("source", "")
        if not source:
            found.append(field_problem(REQUIRED, f"{path}.source"))
        elif source not in _SOURCES:
            found.append(not_supported(f"{path}.source", source, _SOURCES))
        _check_references(found, config.get("requests"), f"{path}.requests", names)
        check_configuration(found, config, path)

    devices, where = allocation.get("devices") or {}, f"{path}.devices"
    check_list(found, devices.get("results"), f"{where}.results", _MAX_RESULTS, check_result)
    check_list(found, devices.get("config"), f"{where}.config", 2 * MAX_CONFIGS, check_config)
    if allocation.get("nodeSelector") is not None:
        check_node_selector(found, allocation["nodeSelector"], f"{path}.nodeSelector")


def check_pod_claims(found: Found, claims: list[Part], path: str) -> set[str]:
    """The entries of a pod's `resourceClaims`; their names."""
    names: set[str] = set()
    for i, claim in enumerate(claims):
        where, name = f"{path}[{i}]", name_of(claim)
        if not name:
            found.append(field_problem(REQUIRED, f"{where}.name"))
        elif name in names:
            found.append(field_problem(DUPLICATE, f"{where}.name", name))
        else:
            check_label(found, name, f"{where}.name")
            names.add(name)
        chosen = [
            field
            for field in ("resourceClaimName", "resourceClaimTemplateName")
            if claim.get(field) is not None
        ]
        if len(chosen) > 1:
            why = "at most one of `resourceClaimName` or `resourceClaimTemplateName` may be specified"
            found.append(field_problem(INVALID, where, claim, why))
        if not chosen:
            why = "must specify one of: `resourceClaimName`, `resourceClaimTemplateName`"
            found.append(field_problem(INVALID, where, claim, why))
        for field in chosen:
            place, problems = f"{where}.{field}", dns_subdomain(claim[field])
            found.extend(field_problem(INVALID, place, claim[field], each) for each in problems)
    return names


def check_container_claims(found: Found, claims: list[Part], path: str, of_pod: set[str]) -> None:
    """The claims that a container uses, each an entry of the pod's."""
    seen: set[str] = set()
    for i, claim in enumerate(claims):
        where, name, request = f"{path}[{i}]", name_of(claim), claim.get("request", "")
        if not name:
            found.append(field_problem(REQUIRED, where))
            continue
        if name in seen:
            found.append(field_problem(DUPLICATE, where, name))
        else:
            key = f"{name}/{request}" if request else name
            if request:
                place, problems = f"{where}.request", dns_label(request)
                found.extend(field_problem(INVALID, place, request, each) for each in problems)
            if key in seen:
                found.append(field_problem(DUPLICATE, where, key))
            elif not request:
                # The container already uses some of the claim's requests.
                overlaps = [each for each in seen if each.startswith(f"{name}/")]
                found.extend(field_problem(DUPLICATE, where, name) for _ in overlaps)
            seen.add(key)
        if name not in of_pod:
            why = "must be one of the names in pod.spec.resourceClaims"
            why += f": {', '.join(sorted(of_pod))}" if of_pod else " which is empty"
            found.append(field_problem(NOT_FOUND, where, name, why))


def check_pod_claim_status(found: Found, spec: Part, status: Part) -> None:
    """The claims in a pod's status: those created for its entries, and for extended resources."""
    entries = {name_of(each) for each in spec.get("resourceClaims") or ()}
    seen: set[str] = set()
    for i, each in enumerate(status.get("resourceClaimStatuses") or ()):
        where, name = f"status.resourceClaimStatuses[{i}]", name_of(each)
        if name not in entries:
            why = "must match the name of an entry in `spec.resourceClaims`"
            found.append(field_problem(INVALID, f"{where}.name", name, why))
        if name in seen:
            found.append(field_problem(DUPLICATE, f"{where}.name", name))
        seen.add(name)
        claim = each.get("resourceClaimName")
        if claim is not None:
            place, problems = f"{where}.resourceClaimName", dns_subdomain(claim)
            found.extend(field_problem(INVALID, place, claim, message) for message in problems)
    if status.get("extendedResourceClaimStatus") is not None:
        _check_extended(found, spec, status["extendedResourceClaimStatus"])


def _check_extended(found: Found, spec: Part, status: Part) -> None:
    path = "status.extendedResourceClaimStatus"
    containers = {
        name_of(each): (each.get("resources") or {}).get("requests") or {}
        for part in ("initContainers", "containers")
        for each in spec.get(part) or ()
    }
    mappings = status.get("requestMappings") or ()
    if not mappings:
        why = "at least one request mapping is required"
        found.append(field_problem(REQUIRED, f"{path}.requestMappings", detail=why))
    fields = ("containerName", "resourceName", "requestName")
    seen: set[tuple[str, ...]] = set()
    for i, mapping in enumerate(mappings):
        where = f"{path}.requestMappings[{i}]"
        container, resource, request = key = tuple(mapping.get(field, "") for field in fields)
        if container not in containers:
            why = "must match the name of an entry in spec.initContainers.name or spec.containers.name"
            found.append(field_problem(INVALID, f"{where}.containerName", container, why))
        elif resource not in containers[container]:
            why = (
                "must match the extended resource name of an entry in "
                "spec.initContainers.resources.requests or spec.containers.resources.requests"
            )
            found.append(field_problem(INVALID, f"{where}.resourceName", resource, why))
        check_label(found, request, f"{path}.requestName")
        if key in seen:
            for field, value in zip(fields, key, strict=True):
                found.append(field_problem(DUPLICATE, f"{where}.{field}", value))
        seen.add(key)
    name = status.get("resourceClaimName", "")
    if not name:
        found.append(field_problem(REQUIRED, f"{path}.resourceClaimName"))
    else:
        place, problems = f"{path}.resourceClaimName", dns_subdomain(name)
        found.extend(field_problem(INVALID, place, name, message) for message in problems)
