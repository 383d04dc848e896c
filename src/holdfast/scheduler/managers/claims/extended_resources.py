"""Extended resources that a device class serves: a claim in place of what a container requests.

A class maps to the resource that it names, and to one of its own name. Where a node has none of such a
resource itself, a pod that requests it gets devices by a claim that the scheduler creates for it. The
claim has a request for each container and resource. Init containers that end before others start use
the devices of those; only what they request beyond that is added, once for all of them.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import NamedTuple

from holdfast.api.errors import QuantityError
from holdfast.api.meta import ObjectMeta, OwnerReference
from holdfast.api.names import DEVICE_CLASS_RESOURCE_PREFIX, EXTENDED_RESOURCE_CLAIM_ANNOTATION
from holdfast.api.pod import Container, ContainerExtendedResourceRequest, Pod
from holdfast.api.quantity import NANO, Quantity, parse
from holdfast.api.resource_claims import (
    EXACT_COUNT,
    DeviceClaim,
    DeviceClass,
    DeviceRequest,
    ExactDeviceRequest,
    ResourceClaim,
    ResourceClaimSpec,
)
from holdfast.api.times import TimeError, parse_time
from holdfast.scheduler.cluster.decisions import ObjectRef

_BASE_LENGTH = 57
"""The longest prefix of a generated name, less the hyphen; the API server adds five characters."""


def classes_by_resource(classes: Iterable[DeviceClass]) -> dict[str, str]:
    """The device class of each extended resource. Of several that name one, the newest; of these the
    first by name."""
    found: dict[str, str] = {}
    for each in sorted(classes, key=lambda c: (-_created(c), c.metadata.name)):
        name = each.metadata.name
        found.setdefault(DEVICE_CLASS_RESOURCE_PREFIX + name, name)
        if each.spec.extended_resource_name:
            found.setdefault(each.spec.extended_resource_name, name)
    return found


def _created(device_class: DeviceClass) -> float:
    try:
        return parse_time(device_class.metadata.creation_timestamp or "")
    except TimeError:
        return 0.0


class ExtendedClaim(NamedTuple):
    """The claim for extended resources of a pod, and which request serves which container."""

    spec: ResourceClaimSpec
    mappings: tuple[ContainerExtendedResourceRequest, ...]


def extended_claim(pod: Pod, resources: Collection[str], classes: Mapping[str, str]) -> ExtendedClaim:
    """The claim for these resources of a pod."""
    requests: list[DeviceRequest] = []
    mappings: list[ContainerExtendedResourceRequest] = []
    for resource in sorted(resources):
        _add_resource(pod, resource, classes[resource], requests, mappings)
    requests.sort(key=lambda request: request.name)
    return ExtendedClaim(
        ResourceClaimSpec(devices=DeviceClaim(requests=tuple(requests))), tuple(mappings)
    )


def _add_resource(
    pod: Pod,
    resource: str,
    class_name: str,
    requests: list[DeviceRequest],
    mappings: list[ContainerExtendedResourceRequest],
) -> None:
    containers = [*pod.spec.init_containers, *pod.spec.containers]
    inits = len(pod.spec.init_containers)
    short_lived = [at for at in range(inits) if containers[at].restart_policy != "Always"]
    counts: dict[int, int] = {}
    """What long-lived containers request, by their index."""
    for at, container in enumerate(containers):
        if at not in short_lived and (count := _count(container, resource)):
            counts[at] = count
            mappings.append(_mapping(container, resource, _name(at, container, resource)))
    extra: tuple[str, int] | None = None
    reused: list[tuple[int, str]] = []
    added: list[ContainerExtendedResourceRequest] = []
    for at in short_lived:
        container, left = containers[at], _count(containers[at], resource)
        if not left:
            continue
        for other in (each for each in counts if each > at):
            added.append(_mapping(container, resource, _name(other, containers[other], resource)))
            left -= counts[other]
            if left <= 0:
                break
        if left > 0:
            name = _name(at, container, resource)
            reused.append((len(added), name))
            added.append(_mapping(container, resource, name))
            if extra is None or extra[1] < left:
                extra = name, left
    if extra is not None:
        requests.append(_request(*extra, class_name))
        for place, _ in reused:  # one request serves all of them, one after the other
            before = added[place]
            added[place] = ContainerExtendedResourceRequest(
                container_name=before.container_name,
                resource_name=before.resource_name,
                request_name=extra[0],
            )
    requests += [
        _request(_name(at, containers[at], resource), count, class_name) for at, count in counts.items()
    ]
    mappings += added


def _requests(container: Container) -> Mapping[str, Quantity]:
    """What a container requests; the API server copies limits where requests are missing."""
    return {**container.resources.limits, **container.resources.requests}


def _count(container: Container, resource: str) -> int:
    """How many devices a container requests; 0 if that is no whole number."""
    try:
        amount = parse(_requests(container).get(resource, 0))
    except QuantityError:
        return 0
    return amount // NANO if amount > 0 and amount % NANO == 0 else 0


def _name(at: int, container: Container, resource: str) -> str:
    return f"container-{at}-request-{sorted(_requests(container)).index(resource)}"


def _mapping(container: Container, resource: str, request: str) -> ContainerExtendedResourceRequest:
    return ContainerExtendedResourceRequest(
        container_name=container.name, resource_name=resource, request_name=request
    )


def _request(name: str, count: int, class_name: str) -> DeviceRequest:
    exactly = ExactDeviceRequest(device_class_name=class_name, allocation_mode=EXACT_COUNT, count=count)
    return DeviceRequest(name=name, exactly=exactly)


def new_extended_claim(pod: ObjectRef, spec: ResourceClaimSpec) -> ResourceClaim:
    """The claim to create for a pod."""
    owner = OwnerReference(api_version="v1", kind="Pod", name=pod.name, uid=pod.uid, controller=True)
    base = f"{pod.name}-extended-resources-"
    return ResourceClaim(
        api_version="resource.k8s.io/v1",
        kind="ResourceClaim",
        metadata=ObjectMeta(
            generate_name=base[: _BASE_LENGTH + 1],
            namespace=pod.namespace,
            annotations={EXTENDED_RESOURCE_CLAIM_ANNOTATION: "true"},
            owner_references=[owner],
        ),
        spec=spec,
    )


def is_extended_claim(claim: ResourceClaim) -> bool:
    """Whether a scheduler created the claim for extended resources of a pod."""
    return claim.metadata.annotations.get(EXTENDED_RESOURCE_CLAIM_ANNOTATION) == "true"
