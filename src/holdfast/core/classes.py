"""Pod classes: what scheduling can see of a pod, interned.

Two pods of one class get the same answer from every plugin, so masks and scores are kept per class
and not per pod. Left out of the class is what tells siblings apart without mattering to placement:
names, uids, environment, the volume of an injected token, and the node a DaemonSet pod is meant for
(`pin`), which would otherwise make every such pod a class of its own.
"""

from collections.abc import Callable, Iterator, Mapping
from copy import copy
from typing import Any, NamedTuple

import msgspec
import numpy as np
from numpy.typing import NDArray

from holdfast.api import names
from holdfast.api.affinity import Affinity, NodeSelectorTerm, Toleration
from holdfast.api.errors import InvalidObject
from holdfast.api.meta import OwnerReference
from holdfast.api.pod import Container, Pod, PodSpec
from holdfast.api.resources import (
    claimed_nonzero,
    has_pod_level,
    pod_requests,
    resize_infeasible,
    scored_nonzero,
)
from holdfast.api.volumes import Volume
from holdfast.core.images import normalized
from holdfast.core.limits import CountedLimits, PodLimits
from holdfast.core.ports import WILDCARD, HostPort
from holdfast.core.slots import CPU, MEMORY, MOST, NONZERO_CPU, NONZERO_MEMORY, PODS

_encode = msgspec.msgpack.Encoder(order="deterministic").encode

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
    )
)
"""Annotations scheduling writes rather than reads."""
_OF_JOBS = frozenset(
    (
        names.GROUP_NAME_ANNOTATION,
        names.VOLCANO_GROUP_NAME_ANNOTATION,
        names.POD_GROUP_LABEL,
        names.GANG_NAME,
        names.GANG_MIN_AVAILABLE,
        names.GANG_TOTAL_NUMBER,
        names.GANG_WAITING_TIME,
        names.GANG_MODE,
        names.GANG_GROUPS,
        names.GANG_MATCH_POLICY,
        names.QUEUE_NAME_ANNOTATION,
        names.RUN_ESTIMATE,
    )
)
"""Annotations that tell jobs apart, which is no matter of nodes: their pods share classes."""


class Traits(NamedTuple):
    """What sets a class apart though it is not written in the pod."""

    private: bool = False
    """Whether it is the class of one pod alone, which some reservation means by name."""
    promised_to: int = -1
    """Of reserve pods: the owner spec of their reservation."""
    wants_node: str = ""
    """Of reserve pods: the node asked for by name before being placed."""
    alone: bool = False
    """Of reserve pods: whether no other with the same owners may be on the same node."""
    ahead: bool = False
    """Of reserve pods: whether pods now in its place may stay until they end by themselves."""


ORDINARY = Traits()


class PodClass:
    """One class. `pod` is the first pod seen of it, standing for them all."""

    __slots__ = (
        "_scored",
        "affinity",
        "ahead",
        "alone",
        "annotations",
        "container_count",
        "id",
        "images",
        "labels",
        "limits",
        "namespace",
        "node_selector",
        "nonzero",
        "owners",
        "permanent",
        "pinned",
        "placed",
        "plain",
        "pod",
        "ports",
        "priority",
        "private",
        "promised_to",
        "refs",
        "requests",
        "sized",
        "spared",
        "terminating",
        "tolerations",
        "usage",
        "usage_column",
        "volumes",
        "wants_node",
    )

    def __init__(
        self,
        class_id: int,
        pod: Pod,
        traits: "Traits",
        slot: Callable[[str], int],
        counted: CountedLimits,
    ) -> None:
        spec = pod.spec
        self.id = class_id
        self.pod = pod
        self.private = traits.private
        self.alone = traits.alone
        self.ahead = traits.ahead
        self.promised_to = traits.promised_to
        self.wants_node = traits.wants_node
        self.namespace = pod.metadata.namespace
        self.labels: Mapping[str, str] = pod.metadata.labels
        self.annotations = scheduling_annotations(pod)
        self.owners: list[OwnerReference] = pod.metadata.owner_references
        self.priority = pod_priority(spec)
        self.terminating = pod.metadata.deletion_timestamp is not None
        self.spared = names.NO in (
            self.annotations.get(names.PREEMPTABLE),
            self.labels.get(names.PREEMPTABLE),
        )
        """Whether pods of the class are nobody's victims."""
        self.permanent = is_permanent(pod)
        """Whether pods of the class stay on their node for as long as it lives."""
        self.tolerations: list[Toleration] = spec.tolerations
        self.node_selector: Mapping[str, str] = spec.node_selector
        self.pinned = pin_of(spec) is not None
        self.affinity: Affinity | None = without_pin(spec.affinity) if self.pinned else spec.affinity
        self.volumes = scheduling_volumes(spec)
        self.ports = host_ports(spec)
        self.images = [normalized(c.image) for c in (*spec.init_containers, *spec.containers)]
        self.container_count = len(self.images)

        resized = bool(resized_resources(pod))
        amounts = pod_requests(pod, use_status=resized)
        self.requests: tuple[tuple[int, int], ...] = tuple(
            sorted((slot(name), capped(amount)) for name, amount in amounts.items() if amount > 0)
        )
        """What the pod asks for, by slot; what it asks none of is left out."""
        self._scored = self.requests
        if has_pod_level(pod):
            amounts = pod_requests(pod, use_status=False, pod_level=False)
            self._scored = tuple((slot(name), capped(amount)) for name, amount in amounts.items())
        self.nonzero = nonzero(scored_nonzero(pod))
        """The cpu and memory the pod counts for in scores, with defaults where it asks for none."""
        usage = dict(self.requests)
        usage[PODS] = max(1, usage.get(PODS, 0)) if self.promised_to >= 0 else 1
        usage[NONZERO_CPU], usage[NONZERO_MEMORY] = nonzero(claimed_nonzero(pod, resized))
        self.usage: tuple[tuple[int, int], ...] = tuple(usage.items())
        """What a pod of the class claims of its row, by slot, derived sums included."""
        self.usage_column: NDArray[np.int64] = np.zeros(0, dtype=np.int64)
        """The same as a column of the node table; the ledger makes it."""
        self.limits = PodLimits(pod, counted)
        if counted:
            self.count_limits()
        self.plain: PodClass | None = None
        """The class that is the same but for volumes, which this one has."""
        self.sized = False
        """Whether it stands for a pod at the size of the reservation it asks for; see `at_size`."""
        self.refs = 0
        """How many pods are known to be of the class."""
        self.placed: dict[int, int] = {}
        """How many pods of the class are on each row."""

    def with_volumes(self, class_id: int, pod: Pod, volumes: list[Volume]) -> "PodClass":
        """The class of a pod that differs from this one in nothing but volumes."""
        cls = copy(self)
        cls.id = class_id
        cls.pod = pod
        cls.volumes = volumes
        cls.plain = self
        cls.refs = 0
        cls.placed = {}
        return cls

    def at_size(self, class_id: int, size: Mapping[int, int]) -> "PodClass":
        """The class of pods that differ from this one's in asking for so much, and in drawing on no
        reservation. There are no such pods: it is for finding out where there is room."""
        cls = copy(self)
        cls.id = class_id
        cls.sized = True
        cls.requests = cls._scored = tuple(sorted(size.items()))
        usage = {**dict(self.usage), **size}
        for slot, derived in ((CPU, NONZERO_CPU), (MEMORY, NONZERO_MEMORY)):
            usage[derived] = max(usage[derived], size.get(slot, 0))
        cls.nonzero = (
            max(self.nonzero[0], size.get(CPU, 0)),
            max(self.nonzero[1], size.get(MEMORY, 0)),
        )
        cls.usage = tuple(usage.items())
        cls.usage_column = np.zeros(0, dtype=np.int64)
        cls.plain = None
        cls.refs = 0
        cls.placed = {}
        return cls

    def count_limits(self) -> None:
        """Takes into what a pod of the class claims the limits that are counted by now."""
        self.usage = tuple((dict(self.usage) | self.limits.claims()).items())
        self.usage_column = np.zeros(0, dtype=np.int64)

    @property
    def pod_slots(self) -> int:
        """How many pods of the node it takes the room of."""
        return next(amount for slot, amount in self.usage if slot == PODS)

    @property
    def amounts(self) -> dict[int, int]:
        """What a pod of the class takes of its node's resources, derived sums left out."""
        return {**dict(self.requests), PODS: self.pod_slots}

    def request(self, slot: int) -> int:
        return next((amount for s, amount in self.requests if s == slot), 0)

    def scored(self, slot: int) -> int:
        """What the pod counts for where nodes are scored by how much is asked of them. As in
        kube-scheduler 1.35, what it asks for as a whole is not looked at there."""
        return next((amount for s, amount in self._scored if s == slot), 0)

    @property
    def best_effort(self) -> bool:
        return not any(slot in (CPU, MEMORY) for slot, _ in self.requests)


class PodClasses:
    """The classes known, by their content.

    A class no pod is of any more is kept for a while, since the next pod of it is likely to come
    soon, and dropped when more than `keep` such classes have piled up.

    Pods of one workload often differ in the claims they name and in nothing else. A class with volumes
    therefore has a `plain` one, shared with its like, which no pod is of and which is not listed here.
    """

    def __init__(self, slot: Callable[[str], int], keep: int = 1024) -> None:
        self._slot = slot
        self._keep = keep
        self._by_key: dict[bytes, PodClass] = {}
        self._plain: dict[bytes, PodClass] = {}
        self._idle: dict[int, bytes] = {}
        self._keys: dict[int, bytes] = {}
        self._next = 0
        self.counted: CountedLimits = {}
        self.on_added: list[Callable[[PodClass], None]] = []
        self.on_dropped: list[Callable[[PodClass], None]] = []

    def __len__(self) -> int:
        return len(self._by_key)

    def __iter__(self) -> Iterator[PodClass]:
        return iter(self._by_key.values())

    def count_limits(self) -> None:
        """From now on what pods claim includes all limits that are `counted`."""
        for cls in (*self._by_key.values(), *self._plain.values()):
            cls.count_limits()

    def acquire(self, pod: Pod, traits: Traits = ORDINARY) -> PodClass:
        """The class of a pod, which now counts one pod more; raises InvalidObject."""
        key = class_key(pod)
        if traits is not ORDINARY:
            key += _encode((traits, pod.metadata.uid if traits.private else ""))
        found = self._by_key.get(key)
        if found is None:
            found = self._by_key[key] = self._make(pod, traits)
            self._keys[found.id] = key
            for tell in self.on_added:
                tell(found)
        elif not found.refs:
            self._idle.pop(found.id, None)
        found.refs += 1
        return found

    def once_more(self, cls: PodClass) -> bool:
        """The class counts one pod more; False if it is known no more."""
        if cls.id not in self._keys:
            return False
        if not cls.refs:
            self._idle.pop(cls.id, None)
        cls.refs += 1
        return True

    def release(self, cls: PodClass) -> None:
        """The class counts one pod less."""
        cls.refs -= 1
        if cls.refs:
            return
        self._idle[cls.id] = self._keys[cls.id]
        if len(self._idle) > self._keep:
            oldest = next(iter(self._idle))
            dropped = self._by_key.pop(self._idle.pop(oldest))
            del self._keys[oldest]
            self._dropped(dropped)

    def at_size(self, cls: PodClass, size: Mapping[int, int]) -> PodClass:
        """The class at another size, which like a plain one is not listed. Whoever has it made says
        when it is `unused`."""
        self._next += 1
        return cls.at_size(self._next - 1, size)

    def unused(self, sized: PodClass) -> None:
        for tell in self.on_dropped:
            tell(sized)

    def _make(self, pod: Pod, traits: Traits) -> PodClass:
        volumes = scheduling_volumes(pod.spec)
        if not volumes:
            return self._new(pod, traits)
        key = class_key(pod, with_volumes=False)
        if traits is not ORDINARY:
            key += _encode((traits, pod.metadata.uid if traits.private else ""))
        plain = self._plain.get(key)
        if plain is None:
            plain = self._plain[key] = self._new(pod, traits)
            plain.volumes = []
            self._keys[plain.id] = key
        plain.refs += 1
        self._next += 1
        return plain.with_volumes(self._next - 1, pod, volumes)

    def _new(self, pod: Pod, traits: Traits) -> PodClass:
        self._next += 1
        return PodClass(self._next - 1, pod, traits, self._slot, self.counted)

    def _dropped(self, cls: PodClass) -> None:
        for tell in self.on_dropped:
            tell(cls)
        plain = cls.plain
        if plain is not None:
            plain.refs -= 1
            if not plain.refs:
                del self._plain[self._keys.pop(plain.id)]
                self._dropped(plain)


def class_key(pod: Pod, with_volumes: bool = True) -> bytes:
    spec, meta = pod.spec, pod.metadata
    parts: list[Any] = [
        meta.namespace,
        meta.labels,
        [(c.image, c.resources, c.ports) for c in spec.containers],
        spec.priority,
    ]
    # Most pods have none of what follows; each present part carries its name, so that two
    # different absences never encode alike.
    if meta.annotations and not meta.annotations.keys() <= RESULTS:
        annotations = scheduling_annotations(pod)
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
        pin = pin_of(spec)
        parts.append(("affinity", spec.affinity if pin is None else without_pin(spec.affinity)))
        parts.append(("pinned", pin is not None))
    if spec.tolerations:
        parts.append(("tolerations", spec.tolerations))
    if spec.topology_spread_constraints:
        parts.append(("spread", spec.topology_spread_constraints))
    if spec.volumes and with_volumes:
        volumes = scheduling_volumes(spec)
        if volumes:
            parts.append(("volumes", volumes))
            if any(volume.ephemeral for volume in volumes):
                # The claims of such volumes are named after the pod and belong to it alone.
                parts.append(("pod", meta.name, meta.uid))
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
    resized = resized_resources(pod)
    if resized:
        parts.append(("resized", resized))
    try:
        return _encode(parts)
    except (TypeError, OverflowError, RecursionError) as error:
        raise InvalidObject("", "spec", str(error)) from error


def is_permanent(pod: Pod) -> bool:
    """Whether a pod is its node's own: a DaemonSet's, or a static one's mirror."""
    if names.MIRROR_POD_ANNOTATION in pod.metadata.annotations:
        return True
    return any(
        owner.controller and owner.kind == "DaemonSet" for owner in pod.metadata.owner_references
    )


def capped(amount: int) -> int:
    return min(amount, MOST + 1)


def nonzero(amounts: Mapping[str, int]) -> tuple[int, int]:
    return capped(amounts.get("cpu", 0)), capped(amounts.get("memory", 0))


def pod_priority(spec: PodSpec) -> int:
    return spec.priority or 0


def scheduling_annotations(pod: Pod) -> dict[str, str]:
    return {
        key: value
        for key, value in pod.metadata.annotations.items()
        if key not in RESULTS
        and key not in _OF_JOBS
        and any(domain in key for domain in _SCHEDULING_DOMAINS)
        and not key.startswith(names.SIM_PREFIX)
    }


def scheduling_volumes(spec: PodSpec) -> list[Volume]:
    """Volumes that can bear on placement: those that are more than a name and a node-local source."""
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


def resized_resources(pod: Pod) -> list[Any]:
    """What the kubelet reports of resources where that differs from what the spec asks."""
    if not pod.spec.node_name:
        return []
    statuses = pod.status.container_statuses + pod.status.init_container_statuses
    if not statuses:
        return []
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
    if resized and resize_infeasible(pod):
        resized.append("infeasible")
    return resized


def pin_of(spec: PodSpec) -> str | None:
    """The one node a pod names in its affinity, the way the DaemonSet controller writes it."""
    if spec.topology_spread_constraints:
        return None  # which nodes count for spreading depends on the whole affinity
    terms = required_terms(spec.affinity)
    if len(terms) != 1 or len(terms[0].match_fields) != 1:
        return None
    field = terms[0].match_fields[0]
    if field.key == "metadata.name" and field.operator == "In" and len(field.values) == 1:
        return field.values[0]
    return None


def without_pin(affinity: Affinity | None) -> Affinity | None:
    """The affinity less the node's name in the term that has it."""
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
    """Ports the pod takes of its node: those of containers and sidecars.

    With the host's network every container port is one, as the API server writes it down.
    """
    sidecars = [c for c in spec.init_containers if c.restart_policy == "Always"]
    return tuple(
        HostPort(port.host_ip or WILDCARD, port.protocol or "TCP", number)
        for container in (*spec.containers, *sidecars)
        for port in container.ports
        if (number := port.host_port or (port.container_port if spec.host_network else 0)) > 0
    )
