"""The class key of a pod: the parts of its object that scheduling reads, encoded.

Pods with equal keys are of one class (`pod_classes`). Plugins may add annotations and fields to what is
read (`Read`).
"""

from collections.abc import Callable, Iterator, Mapping
from functools import cache, lru_cache
from operator import attrgetter
from types import NoneType
from typing import Any, NamedTuple, get_args

import msgspec

from holdfast.api import names
from holdfast.api.affinity import Affinity, NodeSelectorTerm
from holdfast.api.errors import HoldfastError, InvalidObject
from holdfast.api.pod import Container, Pod, PodSpec
from holdfast.api.resources import resize_infeasible
from holdfast.api.storage import Volume
from holdfast.scheduler.cluster.node_table import WILDCARD, HostPort
from holdfast.scheduler.cluster.read_only import ReadOnlyDict
from holdfast.scheduler.cluster.slots import capped

# Fields of pods that plugins declare to read, by their path in JSON, such as `spec.hostIPC`. Only a
# field that Holdfast decodes can be read.

Reader = Callable[[Pod], Any]


class UnknownField(HoldfastError):
    """A path is not a field of a pod, or Holdfast does not decode it."""


def field_reader(path: str) -> Reader:
    """A function that returns the value of a field as plain values; raises UnknownField."""
    steps: list[str] = []
    at: Any = Pod
    for part in path.split("."):
        at = next((each for each in (at, *get_args(at)) if _is_struct(each)), None)
        found = None if at is None else {f.encode_name: f for f in msgspec.structs.fields(at)}.get(part)
        if found is None:
            raise UnknownField(f"{path!r} is not a pod field that Holdfast reads")
        steps.append(found.name)
        at = found.type

    def read(pod: Pod) -> Any:
        value: Any = pod
        for name in steps:
            if value is None:
                return None
            value = getattr(value, name)
        return msgspec.to_builtins(value)

    return read


def _is_struct(found: Any) -> bool:
    return found is not NoneType and isinstance(found, type) and issubclass(found, msgspec.Struct)


# The key, and the parts of a pod that it is made of.


_ASKED_FOR = 1000


class UndeclaredAnnotation(HoldfastError):
    """A plugin reads an annotation it did not declare."""


encode = msgspec.msgpack.Encoder(order="deterministic").encode

_PARTICULAR = (
    names.RESOURCE_SPEC,
    names.NUMA_TOPOLOGY_SPEC,
    names.DEVICE_ALLOCATE_HINT,
    names.DEVICE_JOINT_ALLOCATE,
    names.GPU_PARTITION_SPEC,
)
_SCHEDULING_DOMAINS = ("koordinator.sh/", "volcano.sh/", "holdfast.io/", "sigs.k8s.io/", "k8s.io/")
RESULTS = frozenset(
    (
        names.RESERVATION_ALLOCATED,
        names.DEVICE_ALLOCATED,
        names.RESOURCE_STATUS,
        names.PREEMPTS,
        names.PREEMPTED_BY,
        names.SOFT_EVICTION,
        names.NEW_RESERVATION_REQUIREMENT,
        names.RESERVATION_PROVISION_ERROR,
        names.OVERRAN,
    )
)
"""Annotations that schedulers write: results, which are not part of a class."""
_OF_JOBS = frozenset(
    (
        *names.POD_GROUP_KEYS,
        *names.GANG_KEYS,
        names.LIGHT_GROUP_MATCH_POLICY,
        names.QUEUE_NAME_ANNOTATION,
        names.RUN_ESTIMATE,
    )
)
"""Annotations about the pod's job, which do not affect nodes: pods of different jobs share classes."""


class Read(NamedTuple):
    """What plugins declare to read of a pod besides what Holdfast reads."""

    annotations: frozenset[str] = frozenset()
    """Names, and domains that end in a slash."""
    fields: tuple[tuple[str, Reader], ...] = ()
    """By path."""

    def values(self, pod: Pod) -> dict[str, Any]:
        """The values of the fields."""
        return {path: read(pod) for path, read in self.fields}


NOTHING_MORE = Read()


def class_key(
    pod: Pod, with_volumes: bool = True, read: Read = NOTHING_MORE, stores_pin: bool = True
) -> bytes:
    """The key of a pod's class; raises InvalidObject if the pod cannot be encoded. Without `stores_pin`
    the node that the pod's affinity names belongs to the class."""
    spec, meta = pod.spec, pod.metadata
    parts: list[Any] = [
        meta.namespace,
        meta.labels,
        [(c.image, c.resources, c.ports) for c in spec.containers],
        spec.priority,
    ]
    # Most pods have none of what follows; each present part carries its name, so that two
    # different absences never encode alike.
    if read.fields:
        parts.append(("fields", list(read.values(pod).values())))
    if meta.annotations and (read.annotations or not RESULTS.issuperset(meta.annotations)):
        annotations = scheduling_annotations(pod, read.annotations)
        if annotations:
            parts.append(("annotations", annotations))
    if meta.owner_references:
        parts.append(("owners", [(o.kind, o.name, o.uid, o.controller) for o in meta.owner_references]))
    if spec.init_containers:
        inits = [(c.image, c.resources, c.ports, c.restart_policy) for c in spec.init_containers]
        parts.append(("init", inits))
    if spec.node_selector:
        parts.append(("selector", spec.node_selector))
    if spec.affinity is not None:
        pin = pin_of(spec) if stores_pin else None
        parts.append(("affinity", spec.affinity if pin is None else without_pin(spec.affinity)))
        parts.append(("pinned", pin is not None))
    if spec.tolerations:
        parts.append(("tolerations", spec.tolerations))
    if spec.topology_spread_constraints:
        parts.append(("spread", spec.topology_spread_constraints))
    if spec.volumes:
        volumes = scheduling_volumes(spec) if with_volumes else []
        if volumes:
            parts.append(("volumes", volumes))
            if any(volume.ephemeral for volume in volumes):
                # The claim of an ephemeral volume is named after the pod and belongs to it alone.
                parts.append(("pod", meta.name, meta.uid))
        images = image_volumes(spec)
        if images:
            parts.append(("images", images))
    features = required_features(spec)
    if features:
        parts.append(("features", features))
    if spec.overhead:
        parts.append(("overhead", spec.overhead))
    if spec.resources is not None:
        parts.append(("resources", spec.resources))
    if spec.host_network:
        parts.append(("hostNetwork", True))
    if spec.preemption_policy:
        parts.append(("preemptionPolicy", spec.preemption_policy))
    if meta.deletion_timestamp is not None:
        parts.append(("terminating", True))
    if spec.node_name:
        resized = resized_resources(pod)
        if resized:
            parts.append(("resized", resized))
    try:
        return encode(parts)
    except (TypeError, OverflowError, RecursionError) as error:
        raise InvalidObject("", "spec", str(error)) from error


def is_daemon_pod(pod: Pod) -> bool:
    """Whether a pod belongs to a DaemonSet, or is the mirror pod of a static pod."""
    if names.MIRROR_POD_ANNOTATION in pod.metadata.annotations:
        return True
    return any(
        owner.controller and owner.kind == "DaemonSet" for owner in pod.metadata.owner_references
    )


def nonzero(amounts: Mapping[str, int]) -> tuple[int, int]:
    return capped(amounts.get("cpu", 0)), capped(amounts.get("memory", 0))


def scheduling_annotations(pod: Pod, read: frozenset[str] = frozenset()) -> dict[str, str]:
    return {
        key: value for key, value in pod.metadata.annotations.items() if is_class_annotation(key, read)
    }


@lru_cache(_ASKED_FOR)
def is_class_annotation(key: str, read: frozenset[str]) -> bool:
    """Whether pods that differ in the annotation are of different classes. `read` has names, and
    domains that end in a slash."""
    if read and (key in read or key.partition("/")[0] + "/" in read):
        return True
    return (
        key not in RESULTS
        and key not in _OF_JOBS
        and any(domain in key for domain in _SCHEDULING_DOMAINS)
        and not key.startswith(names.SIM_PREFIX)
    )


class ClassAnnotations(ReadOnlyDict):
    """The annotations of a class. Reading one that is not part of class keys raises
    UndeclaredAnnotation, since pods of the class may have different values of it."""

    __slots__ = ("_part", "_read")

    def __init__(self, annotations: Mapping[str, str], read: frozenset[str]) -> None:
        super().__init__(annotations)
        self._read = read
        self._part = _asked_for(read)

    def __getitem__(self, key: str) -> str:
        if key not in self._part:
            self._check(key)
        found: str = dict.__getitem__(self, key)
        return found

    def __contains__(self, key: object) -> bool:
        if key not in self._part:
            self._check(str(key))
        return dict.__contains__(self, key)

    def get(self, key: str, default: Any = None) -> Any:
        if key not in self._part:
            self._check(key)
        return dict.get(self, key, default)

    def _check(self, key: str) -> None:
        if not is_class_annotation(key, self._read):
            raise UndeclaredAnnotation(
                f"annotation {key} is not part of the class of a pod: name it in reads_annotations"
            )
        if len(self._part) < _ASKED_FOR:
            self._part.add(key)


@cache
def _asked_for(read: frozenset[str]) -> set[str]:
    """Names that were read before and are part of class keys; plugins read the same few each time."""
    return set()


def allocation_annotations(annotations: Mapping[str, str]) -> dict[str, str]:
    """The annotations by which a pod requests CPUs, NUMA nodes and devices."""
    return {key: annotations[key] for key in _PARTICULAR if key in annotations}


def scheduling_volumes(spec: PodSpec) -> list[Volume]:
    """The volumes that can affect placement; node-local sources such as emptyDir do not."""
    return [
        volume
        for volume in spec.volumes
        if volume.persistent_volume_claim
        or volume.ephemeral
        or volume.gce_persistent_disk
        or volume.aws_elastic_block_store
        or volume.iscsi
        or volume.rbd
        or volume.azure_disk
        or volume.csi
    ]


def image_volumes(spec: PodSpec) -> list[str]:
    """The images that are mounted as volumes."""
    return [volume.image.reference for volume in spec.volumes if volume.image is not None]


RESTART_ALL_CONTAINERS = "RestartAllContainersOnContainerExits"
USER_NAMESPACES_ON_HOST_NETWORK = "UserNamespacesHostNetworkSupport"
FEATURES = (RESTART_ALL_CONTAINERS, USER_NAMESPACES_ON_HOST_NETWORK)
"""Features that pods can require and nodes declare."""
_restart_rules = attrgetter("restart_policy_rules")


def required_features(spec: PodSpec) -> list[str]:
    """The features that a pod requires its node to declare."""
    required = []
    if any(map(_restart_rules, spec.containers)) or any(map(_restart_rules, spec.init_containers)):
        containers = (*spec.containers, *spec.init_containers)
        if any(
            rule.action == "RestartAllContainers" for c in containers for rule in c.restart_policy_rules
        ):
            required.append(RESTART_ALL_CONTAINERS)
    if spec.host_users is False and spec.host_network:
        required.append(USER_NAMESPACES_ON_HOST_NETWORK)
    return required


def resized_resources(pod: Pod) -> list[Any]:
    """The resources in the statuses of the pod and its containers, where they differ from the spec
    (in-place resize)."""
    status = pod.status
    if not pod.spec.node_name or not (
        status.container_statuses or status.init_container_statuses or status.resources is not None
    ):
        return []
    statuses = status.container_statuses + status.init_container_statuses
    asked: dict[str, Container] = {c.name: c for c in (*pod.spec.containers, *pod.spec.init_containers)}
    resized: list[Any] = [
        (s.name, s.resources, s.allocated_resources)
        for s in statuses
        if s.resources is not None
        and s.name in asked
        and (
            s.resources.requests != asked[s.name].resources.requests
            or (s.allocated_resources or s.resources.requests) != s.resources.requests
        )
    ]
    whole, actual = pod.spec.resources, pod.status.resources
    if whole is not None and actual is not None:
        allocated = pod.status.allocated_resources
        if actual.requests != whole.requests or (allocated or whole.requests) != whole.requests:
            resized.append((actual, allocated))
    if resized and resize_infeasible(pod):
        resized.append("infeasible")
    return resized


def pin_of(spec: PodSpec) -> str | None:
    """The node that a pod's affinity names in the way the DaemonSet controller writes it."""
    if spec.topology_spread_constraints:
        return None  # the nodes that count for spreading depend on the whole affinity
    terms = required_terms(spec.affinity)
    if len(terms) != 1 or len(terms[0].match_fields) != 1:
        return None
    field = terms[0].match_fields[0]
    if field.key == "metadata.name" and field.operator == "In" and len(field.values) == 1:
        return field.values[0]
    return None


def without_pin(affinity: Affinity | None) -> Affinity | None:
    """The affinity without the node's name."""
    assert affinity is not None and affinity.node_affinity is not None
    node_affinity = affinity.node_affinity
    required = node_affinity.required_during_scheduling_ignored_during_execution
    assert required is not None
    expressions = required.node_selector_terms[0].match_expressions
    rest = (
        msgspec.structs.replace(
            required, node_selector_terms=[NodeSelectorTerm(match_expressions=expressions)]
        )
        if expressions
        else None
    )
    return msgspec.structs.replace(
        affinity,
        node_affinity=msgspec.structs.replace(
            node_affinity, required_during_scheduling_ignored_during_execution=rest
        ),
    )


def required_terms(affinity: Affinity | None) -> list[NodeSelectorTerm]:
    if affinity is None or affinity.node_affinity is None:
        return []
    required = affinity.node_affinity.required_during_scheduling_ignored_during_execution
    return [] if required is None else required.node_selector_terms


def host_ports(spec: PodSpec) -> tuple[HostPort, ...]:
    """The host ports of the pod's containers and sidecars.

    With hostNetwork every container port is a host port, as the API server's defaulting sets it.
    """
    sidecars = [c for c in spec.init_containers if c.restart_policy == "Always"]
    return tuple(
        HostPort(port.host_ip or WILDCARD, port.protocol or "TCP", number)
        for container in (*spec.containers, *sidecars)
        for port in container.ports
        if (number := port.host_port or (port.container_port if spec.host_network else 0)) > 0
    )


# Bounds on one pod.
#
# Each topology key, label, resource and port that a pod names costs a column over all nodes. The API
# server allows thousands of them in one object; no real pod has as many. A pod over a bound is
# invalid, and its condition reports the bound.


MAX_POD_TERMS = 256
MAX_SPREAD = 64
MAX_NODE_EXPRESSIONS = 2_000
MAX_NODE_KEYS = 512
MAX_RESOURCES = 128
MAX_PORTS = 512


def check_bounds(pod: Pod) -> None:
    """Raises InvalidObject if the pod is over a bound."""
    spec = pod.spec
    affinity = spec.affinity
    if affinity is not None:
        sides = [side for side in (affinity.pod_affinity, affinity.pod_anti_affinity) if side]
        terms = sum(
            len(side.required_during_scheduling_ignored_during_execution)
            + len(side.preferred_during_scheduling_ignored_during_execution)
            for side in sides
        )
        _check("spec.affinity", terms, MAX_POD_TERMS, "pod affinity and anti-affinity terms")
    if affinity is not None or spec.node_selector:
        keys = [*spec.node_selector]
        for term in _node_terms(pod):
            keys += [expression.key for expression in term.match_expressions]
        _check("spec.affinity", len(keys), MAX_NODE_EXPRESSIONS, "node selector requirements")
        _check("spec.affinity", len(set(keys)), MAX_NODE_KEYS, "distinct node labels")
    spread = len(spec.topology_spread_constraints)
    _check("spec.topologySpreadConstraints", spread, MAX_SPREAD, "constraints")
    containers = (*spec.init_containers, *spec.containers)
    lists = [spec.overhead]
    for each in (*(c.resources for c in containers), spec.resources):
        if each is not None:
            lists += (each.requests, each.limits)
    if sum(map(len, lists)) > MAX_RESOURCES:
        _check("spec.containers", len(set().union(*lists)), MAX_RESOURCES, "resources")
    ports = sum(len(container.ports) for container in containers)
    if ports > MAX_PORTS:
        taken = sum(1 for c in containers for port in c.ports if port.host_port or spec.host_network)
        _check("spec.containers", taken, MAX_PORTS, "host ports")


def _node_terms(pod: Pod) -> Iterator[NodeSelectorTerm]:
    affinity = pod.spec.affinity.node_affinity if pod.spec.affinity is not None else None
    if affinity is None:
        return
    required = affinity.required_during_scheduling_ignored_during_execution
    if required is not None:
        yield from required.node_selector_terms
    for term in affinity.preferred_during_scheduling_ignored_during_execution:
        yield term.preference


def _check(field: str, count: int, most: int, what: str) -> None:
    if count > most:
        raise InvalidObject("", field, f"{count} {what} exceed the limit of {most}")
