"""Requests and limits of a pod.

Each quantity is rounded up to a thousandth, as the API server does; sums are exact and rounded up once
at the end. Amounts that leave this module are integers in the unit the scheduler counts in: milli for
cpu, whole for everything else.

The API server copies limits to requests where requests are missing. Objects that never passed
through one (files given to `simulate`) have not had that done, so it is done here.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Literal

from holdfast.api.errors import InvalidObject, QuantityError
from holdfast.api.meta import ResourceList, condition
from holdfast.api.name_rules import is_qualified_name
from holdfast.api.names import ATTACHABLE_VOLUMES_PREFIX, CPU, HUGEPAGES_PREFIX, MEMORY
from holdfast.api.pod import Container, ContainerStatus, Pod, ResourceRequirements
from holdfast.api.quantity import NANO, from_nano, parse, to_nano

Amounts = dict[str, int]

NON_ZERO: Mapping[str, int] = {CPU: 100, MEMORY: 200 * 1024**2}
"""The default requests of a container without any, for scores that compare usage."""

_MILLI = NANO // 1000

QOS = Literal["Guaranteed", "Burstable", "BestEffort"]


def pod_requests(
    pod: Pod,
    *,
    non_missing: Mapping[str, int] | None = None,
    use_status: bool = True,
    pod_level: bool = True,
) -> Amounts:
    """The requests of the pod on a node.

    `non_missing` gives amounts for resources a container does not mention (a mentioned zero
    stays zero). With `use_status` a pod that is being resized counts with the largest of its requested,
    allocated and actual resources, or of the latter two if the resize is infeasible; a pod without
    statuses is unaffected. Without `pod_level`, pod-level resources are ignored.
    """
    infeasible = use_status and resize_infeasible(pod)
    statuses = _statuses(pod) if use_status else {}
    defaults = {name: to_nano(name, value) for name, value in (non_missing or {}).items()}

    def summed(of: Callable[[Container], Amounts]) -> Amounts:
        return _aggregate(pod, (lambda c: {**defaults, **of(c)}) if defaults else of)

    def asked(container: Container) -> Amounts:
        return _requests(container.resources)

    def allocated(container: Container) -> Amounts:
        status = statuses.get(container.name)
        if status is None:
            return asked(container)
        if status.allocated_resources:
            return _nanos(status.allocated_resources, "status.allocatedResources")
        return {} if infeasible else asked(container)

    def actual(container: Container) -> Amounts:
        status = statuses.get(container.name)
        if status is None or status.resources is None or not status.resources.requests:
            return allocated(container)
        return _nanos(status.resources.requests, "status.resources.requests")

    total = summed(asked) if not (statuses and infeasible) else {}
    if statuses:
        _raise(total, summed(allocated))
        _raise(total, summed(actual))
    if pod_level:
        whole = _pod_level_requests(pod)
        if whole and use_status and pod.status.resources is not None:
            status = pod.status
            whole = _in_effect(whole, pod.status.resources, status.allocated_resources, infeasible)
            whole = {name: nano for name, nano in whole.items() if is_pod_level(name)}
        total.update(whole)
    if pod.spec.overhead:
        _add(total, _nanos(pod.spec.overhead, "spec.overhead"))
    return {name: from_nano(name, nano) for name, nano in total.items()}


def claimed_nonzero(pod: Pod, use_status: bool = True) -> Amounts:
    """What the pod, once on a node, adds to the sums that scores compare."""
    if not has_pod_level(pod):
        return pod_requests(pod, non_missing=NON_ZERO, use_status=use_status)
    known = pod_requests(pod, use_status=use_status)
    missing = {name: amount for name, amount in NON_ZERO.items() if name not in known}
    return pod_requests(pod, non_missing=missing, use_status=use_status)


def scored_nonzero(pod: Pod) -> Amounts:
    """What the pod counts for while a node is being scored for it. As in kube-scheduler, pod-level
    resources are ignored here."""
    return pod_requests(pod, non_missing=NON_ZERO, use_status=False, pod_level=False)


def has_pod_level(pod: Pod) -> bool:
    """Whether the pod has pod-level resources."""
    whole = pod.spec.resources
    return whole is not None and any(map(is_pod_level, (*whole.requests, *whole.limits)))


def pod_limits(pod: Pod, *, non_missing: Mapping[str, int] | None = None) -> Amounts:
    """The most the pod may use: per container the larger of limit and request, or what `non_missing`
    gives for resources it mentions in neither. A limit of the pod as a whole replaces that of its
    containers."""
    defaults = {name: to_nano(name, value) for name, value in (non_missing or {}).items()}
    total = _aggregate(pod, lambda container: {**defaults, **_ceiling(container.resources)})
    whole = pod.spec.resources
    if whole is not None:
        # A request alone bounds nothing: the containers may still use up to their limits.
        limited = (
            _aggregate(pod, lambda container: _ceiling(container.resources)) if defaults else total
        )
        for name, nano in _located(_ceiling, whole, "spec.resources").items():
            if is_pod_level(name):
                total[name] = nano if name in whole.limits else max(nano, limited.get(name, 0))
    if pod.spec.overhead:
        _add(total, _nanos(pod.spec.overhead, "spec.overhead"))
    return {name: from_nano(name, nano) for name, nano in total.items()}


def amounts(resources: ResourceList, path: str = "") -> Amounts:
    """A resource list in the units the scheduler counts in; `path` names it in errors."""
    return {name: from_nano(name, nano) for name, nano in _nanos(resources, path).items()}


def qos_class(pod: Pod) -> QOS:
    """The QoS class of the pod, from its cpu and memory only."""
    parts: list[tuple[ResourceRequirements, str]]
    if pod.spec.resources is not None and (pod.spec.resources.requests or pod.spec.resources.limits):
        parts = [(pod.spec.resources, "spec.resources")]
    else:
        parts = _container_resources(pod)
    guaranteed, asks = True, False
    for resources, path in parts:
        requests = _compute(_located(_requests, resources, path))
        limits = _compute(_nanos(resources.limits, f"{path}.limits"))
        asks = asks or bool(requests or limits)
        guaranteed = guaranteed and len(limits) == 2 and requests == limits
    if not asks:
        return "BestEffort"
    return "Guaranteed" if guaranteed else "Burstable"


def is_native(name: str) -> bool:
    """A resource Kubernetes itself defines."""
    return "/" not in name or is_prefixed_native(name)


def is_prefixed_native(name: str) -> bool:
    return "kubernetes.io/" in name


def is_extended(name: str) -> bool:
    """A resource with someone's domain, such as `nvidia.com/gpu`."""
    if is_native(name) or name.startswith("requests."):
        return False
    return is_qualified_name(f"requests.{name}")


def is_hugepages(name: str) -> bool:
    return name.startswith(HUGEPAGES_PREFIX)


def is_scalar_resource(name: str) -> bool:
    """A resource the scheduler counts besides cpu, memory, ephemeral storage and pods."""
    return (
        is_extended(name)
        or is_hugepages(name)
        or is_prefixed_native(name)
        or name.startswith(ATTACHABLE_VOLUMES_PREFIX)
    )


def is_pod_level(name: str) -> bool:
    """A resource that may be given for the pod as a whole."""
    return name in (CPU, MEMORY) or is_hugepages(name)


def is_sidecar(container: Container) -> bool:
    """An init container that keeps running beside the others."""
    return container.restart_policy == "Always"


def _aggregate(pod: Pod, of: Callable[[Container], Amounts]) -> Amounts:
    """The peak over the pod's life: each init container with the sidecars started before it,
    then all containers with all sidecars."""
    total: Amounts = {}
    for i, container in enumerate(pod.spec.containers):
        try:
            _add(total, of(container))
        except InvalidObject as error:
            raise error.within(prefix=f"spec.containers[{i}].resources") from None
    if not pod.spec.init_containers:
        return total
    sidecars: Amounts = {}
    peak: Amounts = {}
    for i, container in enumerate(pod.spec.init_containers):
        try:
            own = of(container)
        except InvalidObject as error:
            raise error.within(prefix=f"spec.initContainers[{i}].resources") from None
        if is_sidecar(container):
            _add(total, own)
            _add(sidecars, own)
            _raise(peak, sidecars)
        else:
            during = dict(sidecars)
            _add(during, own)
            _raise(peak, during)
    _raise(total, peak)
    return total


def _pod_level_requests(pod: Pod) -> Amounts:
    """The pod-level requests, which replace the sum of the containers' requests.

    The API server completes it, if there is a limit for the whole: by the sum of the containers'
    requests, else by the limit. Huge pages cannot be overcommitted, so their limit comes first, and is
    itself completed by the sum of the containers' limits.
    """
    whole = pod.spec.resources
    if whole is None or not (whole.requests or whole.limits):
        return {}
    requests = _nanos(whole.requests, "spec.resources.requests")
    limits = _nanos(whole.limits, "spec.resources.limits")
    for name, nano in _aggregate(pod, lambda c: _nanos(c.resources.limits, "limits")).items():
        if is_hugepages(name) and name not in requests:
            limits.setdefault(name, nano)
    if limits:
        for name, nano in _aggregate(pod, lambda c: _requests(c.resources)).items():
            if not is_hugepages(name):
                requests.setdefault(name, nano)
        requests = {**limits, **requests}
    return {name: nano for name, nano in requests.items() if is_pod_level(name)}


def _container_resources(pod: Pod) -> list[tuple[ResourceRequirements, str]]:
    return [
        (container.resources, f"spec.{field}[{i}].resources")
        for field, containers in (
            ("containers", pod.spec.containers),
            ("initContainers", pod.spec.init_containers),
        )
        for i, container in enumerate(containers)
    ]


def _statuses(pod: Pod) -> dict[str, ContainerStatus]:
    """By container name, where the kubelet reports resources; a plain init container's status never
    counts, it is done or not yet."""
    if not pod.status.container_statuses and not pod.status.init_container_statuses:
        return {}
    statuses = {s.name: s for s in pod.status.container_statuses}
    sidecars = {c.name for c in pod.spec.init_containers if is_sidecar(c)}
    statuses.update({s.name: s for s in pod.status.init_container_statuses if s.name in sidecars})
    return {name: status for name, status in statuses.items() if status.resources is not None}


def resize_infeasible(pod: Pod) -> bool:
    """Whether the kubelet reports the requested resize as infeasible."""
    if not pod.status.conditions:
        return False
    pending = condition(pod.status.conditions, "PodResizePending")
    return pending is not None and pending.reason == "Infeasible"


def _in_effect(
    spec: Amounts, actuated: ResourceRequirements, allocated: ResourceList, infeasible: bool
) -> Amounts:
    """A resize counts from when it is requested until it is infeasible."""
    result = {} if infeasible else dict(spec)
    _raise(result, _nanos(actuated.requests, "status.resources.requests"))
    _raise(result, _nanos(allocated, "status.allocatedResources"))
    return result


def _requests(resources: ResourceRequirements) -> Amounts:
    requests = _nanos(resources.requests, "requests")
    if resources.limits:
        for name, nano in _nanos(resources.limits, "limits").items():
            requests.setdefault(name, nano)
    return requests


def _ceiling(resources: ResourceRequirements) -> Amounts:
    ceiling = _nanos(resources.requests, "requests")
    _raise(ceiling, _nanos(resources.limits, "limits"))
    return ceiling


def _located(
    of: Callable[[ResourceRequirements], Amounts], resources: ResourceRequirements, path: str
) -> Amounts:
    try:
        return of(resources)
    except InvalidObject as error:
        raise error.within(prefix=path) from None


def _compute(nanos: Amounts) -> Amounts:
    return {name: nano for name, nano in nanos.items() if nano and name in (CPU, MEMORY)}


def _nanos(resources: ResourceList, path: str) -> Amounts:
    """Parsed; paths are put together only once something is wrong, for this runs per pod."""
    nanos: Amounts = {}
    for name, quantity in resources.items():
        try:
            nano = parse(quantity)
        except QuantityError as error:
            raise InvalidObject("", f"{path}[{name}]", str(error)) from None
        if nano < 0:
            raise InvalidObject("", f"{path}[{name}]", f"must not be negative: {quantity}")
        nanos[name] = -(-nano // _MILLI) * _MILLI
    return nanos


def _add(into: Amounts, other: Amounts) -> None:
    for name, nano in other.items():
        into[name] = into.get(name, 0) + nano


def _raise(into: Amounts, other: Amounts) -> None:
    for name, nano in other.items():
        if nano >= into.get(name, 0):
            into[name] = nano
