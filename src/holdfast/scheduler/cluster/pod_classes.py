"""Pod classes: pods that are equal in everything scheduling reads share one `PodClass`.

Every plugin gives the same answer for two pods of one class, so filter and score results are kept per
class and not per pod. A class leaves out what differs between replicas without affecting placement:
names, uids, environment, the volume of the service account token, and the node of a DaemonSet pod
(`pinned_node`), which would otherwise put every such pod into a class of its own. The class of a
reserve pod has that node.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import repeat
from operator import attrgetter
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from holdfast.api import names
from holdfast.api.affinity import Affinity, Toleration
from holdfast.api.meta import OwnerReference
from holdfast.api.pod import Pod
from holdfast.api.resources import claimed_nonzero, has_pod_level, pod_requests, scored_nonzero
from holdfast.api.storage import Volume
from holdfast.scheduler.cluster.class_key import (
    NOTHING_MORE,
    ClassAnnotations,
    Read,
    check_bounds,
    class_key,
    encode,
    field_reader,
    host_ports,
    image_volumes,
    is_daemon_pod,
    nonzero,
    pin_of,
    required_features,
    resized_resources,
    scheduling_annotations,
    scheduling_volumes,
    without_pin,
)
from holdfast.scheduler.cluster.node_table import normalized
from holdfast.scheduler.cluster.pod_limits import CountedLimits, PodLimits
from holdfast.scheduler.cluster.slots import CPU, MEMORY, NONZERO_CPU, NONZERO_MEMORY, PODS, capped

_KEPT = 32


class ClaimTrait(NamedTuple):
    """A ResourceClaim of a pod, as far as it is part of the pod's class. Claims that were generated
    from templates and are not allocated count by what they request, so that the replicas of a workload
    are of one class; all others count by name."""

    name: str = ""
    """The name of the claim, in the pod's namespace; empty if the claim counts by its spec."""
    spec: bytes = b""
    """The spec of the claim, encoded, unless it counts by name."""
    problem: str = ""
    """Why the pod cannot be scheduled before the claim changes."""


class GroupMembership(NamedTuple):
    """The PodGroup of a pod."""

    family: str
    """Its API group."""
    name: str
    uid: str
    """Empty until the PodGroup exists."""
    workload: str
    """The Workload that the PodGroup was made for, if it names one."""


class Traits(NamedTuple):
    """The part of a class that is not written in the pod's object."""

    private: bool = False
    """Whether the class has a single pod, because the owners of a reservation name that pod."""
    owner_spec_id: int = -1
    """Of reserve pods: the owner spec of their reservation."""
    wants_node: str = ""
    """Of reserve pods: the node the reservation requires by name."""
    exclusive: bool = False
    """Of reserve pods: whether a node takes only one of the reservations with the same owners."""
    pre_allocation: bool = False
    """Of reserve pods: whether the reservation may be placed on capacity that running pods use, and
    wait until they end (`preAllocation`)."""
    is_planned: bool = False
    """Of reserve pods: whether the reservation has a start, so that its node is planned and not the
    best by score."""
    priority: int | None = None
    """Of members of a job without a priority of their own: the priority of their PodGroup."""
    non_preemptible: bool = False
    """Of members of a job: whether their PodGroup sets that they cannot be preempted."""
    claims: tuple[ClaimTrait, ...] = ()
    """The ResourceClaims of pods that have no node."""
    group: GroupMembership | None = None
    """Of members of a job, while owners of reservations name PodGroups: theirs."""

    @property
    def stores_pin(self) -> bool:
        """Whether the node that an affinity names is stored with each pod. With a reserve pod it is
        not: what plans and holds ask of a node is asked for its class."""
        return self.owner_spec_id < 0


ORDINARY = Traits()


class PodClass:
    """Everything scheduling reads of the pods of one class. `pod` is the first pod seen of it, an
    example of all."""

    __slots__ = (
        "_scored",
        "affinity",
        "annotations",
        "at_reservation_size",
        "brings_template",
        "claims",
        "exclusive",
        "features",
        "fields",
        "group",
        "id",
        "images",
        "is_daemon",
        "is_planned",
        "labels",
        "limits",
        "namespace",
        "node_selector",
        "non_preemptible",
        "nonzero",
        "owner_spec_id",
        "owners",
        "pinned",
        "placed",
        "pod",
        "ports",
        "pre_allocation",
        "priority",
        "private",
        "refs",
        "requests",
        "terminating",
        "tolerations",
        "usage",
        "usage_column",
        "volumes",
        "wants_node",
        "without_volumes",
    )

    def __init__(
        self,
        class_id: int,
        pod: Pod,
        traits: "Traits",
        slot: Callable[[str], int],
        counted: CountedLimits,
        read: Read = NOTHING_MORE,
    ) -> None:
        spec = pod.spec
        self.id = class_id
        self.pod = pod
        self.private = traits.private
        self.group = traits.group
        self.exclusive = traits.exclusive
        self.pre_allocation = traits.pre_allocation
        self.is_planned = traits.is_planned
        self.owner_spec_id = traits.owner_spec_id
        self.wants_node = traits.wants_node
        self.claims = traits.claims
        """The ResourceClaims of its pods, in the order of `spec.resourceClaims`; empty if the pods were
        bound when they were first seen."""
        self.namespace = pod.metadata.namespace
        self.labels: Mapping[str, str] = pod.metadata.labels
        self.annotations = ClassAnnotations(
            scheduling_annotations(pod, read.annotations), read.annotations
        )
        self.brings_template = names.RESERVATION_TEMPLATE in self.annotations
        """Whether its pods carry a reservation template: a reservation is to be created for each."""
        self.fields: Mapping[str, Any] = read.values(pod)
        """The values of the fields that plugins declare to read, by path."""
        self.owners: list[OwnerReference] = pod.metadata.owner_references
        self.priority = (spec.priority or 0) if traits.priority is None else traits.priority
        self.terminating = pod.metadata.deletion_timestamp is not None
        preemptable = (self.annotations.get(names.PREEMPTABLE), self.labels.get(names.PREEMPTABLE))
        self.non_preemptible = (
            self.labels.get(names.DISABLE_PREEMPTIBLE) == "true"
            or names.NO in preemptable
            or (traits.non_preemptible and not any(preemptable))
        )
        """Whether pods of the class are never victims of preemption."""
        self.is_daemon = is_daemon_pod(pod)
        """Whether the pods belong to a DaemonSet or are static: they stay as long as their node."""
        self.tolerations: list[Toleration] = spec.tolerations
        self.node_selector: Mapping[str, str] = spec.node_selector
        self.pinned = traits.stores_pin and pin_of(spec) is not None
        self.affinity: Affinity | None = without_pin(spec.affinity) if self.pinned else spec.affinity
        self.volumes = scheduling_volumes(spec)
        self.ports = host_ports(spec)
        self.images = [
            *(normalized(c.image) for c in (*spec.init_containers, *spec.containers)),
            *(map(normalized, image_volumes(spec))),
        ]
        self.features = required_features(spec)

        resized = bool(resized_resources(pod))
        amounts = pod_requests(pod, use_status=resized)
        self.requests: tuple[tuple[int, int], ...] = tuple(
            sorted((slot(name), capped(amount)) for name, amount in amounts.items() if amount > 0)
        )
        """The pod's requests, by slot, without zeros."""
        self._scored = self.requests
        if has_pod_level(pod):
            amounts = pod_requests(pod, use_status=False, pod_level=False)
            self._scored = tuple((slot(name), capped(amount)) for name, amount in amounts.items())
        self.nonzero = nonzero(scored_nonzero(pod))
        """The pod's cpu and memory in scores, with kube-scheduler's defaults for containers that
        request none."""
        usage = dict(self.requests)
        usage[PODS] = max(1, usage.get(PODS, 0)) if self.owner_spec_id >= 0 else 1
        usage[NONZERO_CPU], usage[NONZERO_MEMORY] = nonzero(claimed_nonzero(pod, resized))
        self.usage: tuple[tuple[int, int], ...] = tuple(usage.items())
        """What a pod of the class claims of its row, by slot, including derived sums."""
        self.usage_column: NDArray[np.int64] = np.zeros(0, dtype=np.int64)
        """`usage` as a column of the node table; written by the ledger."""
        self.limits = PodLimits(pod, counted)
        if counted:
            self.count_limits()
        self.without_volumes: PodClass | None = None
        """For a class with volumes: the class equal to it except that it has none."""
        self.at_reservation_size = False
        """Whether the class is a pod at the size of the reservation created for it; see `at_size`."""
        self.refs = 0
        """How many known pods are of the class."""
        self.placed: dict[int, int] = {}
        """How many pods of the class are on each row."""

    def _copy(self) -> "PodClass":
        """Done for every pod with a persistent volume claim of its own, since each is a class of its
        own: `map` takes one step where `copy.copy` takes some five hundred."""
        cls = PodClass.__new__(PodClass)
        any(map(setattr, repeat(cls), PodClass.__slots__, _slots_of(self)))
        return cls

    def with_volumes(self, class_id: int, pod: Pod, volumes: list[Volume]) -> "PodClass":
        """The class of a pod that differs from this class only in its volumes."""
        cls = self._copy()
        cls.id = class_id
        cls.pod = pod
        cls.volumes = volumes
        cls.without_volumes = self
        cls.refs = 0
        cls.placed = {}
        return cls

    def at_size(self, class_id: int, size: Mapping[int, int]) -> "PodClass":
        """The class with these requests, and not allocated from any reservation. No pod is of it: it
        serves to find the nodes on which a reservation of that size fits."""
        cls = self._copy()
        cls.id = class_id
        cls.at_reservation_size = True
        cls.requests = cls._scored = tuple(sorted(size.items()))
        cls.limits = self.limits.at_size(size)
        usage = {**dict(self.usage), **size}
        for slot, derived in ((CPU, NONZERO_CPU), (MEMORY, NONZERO_MEMORY)):
            usage[derived] = max(usage[derived], size.get(slot, 0))
        cls.nonzero = (
            max(self.nonzero[0], size.get(CPU, 0)),
            max(self.nonzero[1], size.get(MEMORY, 0)),
        )
        cls.usage = tuple(usage.items())
        cls.usage_column = np.zeros(0, dtype=np.int64)
        cls.without_volumes = None
        cls.refs = 0
        cls.placed = {}
        return cls

    def count_limits(self) -> None:
        """Adds the limits that are counted now to `usage`."""
        self.usage = tuple((dict(self.usage) | self.limits.claims()).items())
        self.usage_column = np.zeros(0, dtype=np.int64)

    @property
    def is_reserve_pod(self) -> bool:
        """Whether the class is of reserve pods, the pods that reservations are scheduled as."""
        return self.owner_spec_id >= 0

    @property
    def pod_slots(self) -> int:
        """How many of the node's `pods` it claims: 1, or more for a reserve pod."""
        return next(amount for slot, amount in self.usage if slot == PODS)

    @property
    def amounts(self) -> dict[int, int]:
        """What a pod of the class claims of its node's resources, without derived sums."""
        return {**dict(self.requests), PODS: self.pod_slots}

    def request(self, slot: int) -> int:
        return next((amount for s, amount in self.requests if s == slot), 0)

    def scored(self, slot: int) -> int:
        """The pod's request in scores. As in kube-scheduler, pod-level requests do not count
        there."""
        return next((amount for s, amount in self._scored if s == slot), 0)

    @property
    def brings_names(self) -> bool:
        """Whether data may be kept for this class alone, under names its pods use: label columns, pod
        counters, resource slots."""
        return bool(
            self.affinity is not None
            or self.node_selector
            or self.pod.spec.topology_spread_constraints
            or any(slot > NONZERO_MEMORY for slot, _ in self.requests)
            or any(claim.name or claim.problem for claim in self.claims)
        )

    @property
    def best_effort(self) -> bool:
        return not any(slot in (CPU, MEMORY) for slot, _ in self.requests)


_slots_of = attrgetter(*PodClass.__slots__)


class PodClasses:
    """The known classes, by content.

    A class without pods is kept, since the next pod of it is likely to come soon; the oldest such class
    is dropped when there are more than `keep`. A class that brings names (topology keys, labels,
    resources) is dropped with its last pod, so that the data kept under these names goes with it.

    Pods of one workload often differ only in the persistent volume claims they name. A class with
    volumes therefore has a class `without_volumes`, which it shares with such classes. No pod is of
    that class, and it is not listed.
    """

    def __init__(
        self,
        slot: Callable[[str], int],
        keep: int = _KEPT,
        slots_left: Callable[[Iterable[int]], None] = lambda slots: None,
    ) -> None:
        self._slot = slot
        self.slots_left = slots_left
        """Called with the slots of a class that is dropped."""
        self._keep = keep
        self._by_key: dict[bytes, PodClass] = {}
        self._without_volumes: dict[bytes, PodClass] = {}
        self._idle: dict[int, bytes] = {}
        self._keys: dict[int, bytes] = {}
        self._next = 0
        self._read = NOTHING_MORE
        self.counted: CountedLimits = {}
        self.on_added: list[Callable[[PodClass], None]] = []
        self.on_dropped: list[Callable[[PodClass], None]] = []

    def __len__(self) -> int:
        return len(self._by_key)

    def __iter__(self) -> Iterator[PodClass]:
        return iter(self._by_key.values())

    def read(self, annotations: Iterable[str], fields: Iterable[str] = ()) -> None:
        """Adds annotations and fields to what is read of a pod: pods that differ in one of them are of
        different classes. Must be called before the first pod is seen. Raises UnknownField."""
        before = self._read
        known = dict(before.fields)
        for path in fields:
            if path not in known:
                known[path] = field_reader(path)
        read = Read(before.annotations.union(annotations), tuple(sorted(known.items())))
        if read != before:
            assert not self._by_key, "classes of pods are known already"
            self._read = read

    def every(self) -> Iterator[PodClass]:
        """The listed classes, and the classes `without_volumes`."""
        yield from self._by_key.values()
        yield from self._without_volumes.values()

    def count_limits(self) -> None:
        """Adds the limits that are `counted` to the usage of every class."""
        for cls in self.every():
            cls.count_limits()

    def acquire(self, pod: Pod, traits: Traits = ORDINARY) -> PodClass:
        """The class of a pod, with one reference more; raises InvalidObject."""
        key = class_key(pod, read=self._read, stores_pin=traits.stores_pin)
        if traits is not ORDINARY:
            key += encode((traits, pod.metadata.uid if traits.private else ""))
        found = self._by_key.get(key)
        if found is None:
            found = self._by_key[key] = self._make(pod, traits)
            self._keys[found.id] = key
            for notify in self.on_added:
                notify(found)
        elif not found.refs:
            self._idle.pop(found.id, None)
        found.refs += 1
        return found

    def acquire_again(self, cls: PodClass) -> bool:
        """Adds a reference to a class; False if the class was dropped meanwhile."""
        if cls.id not in self._keys:
            return False
        if not cls.refs:
            self._idle.pop(cls.id, None)
        cls.refs += 1
        return True

    def release(self, cls: PodClass) -> None:
        """Removes a reference from a class."""
        cls.refs -= 1
        if cls.refs:
            return
        self._idle[cls.id] = self._keys[cls.id]
        if cls.brings_names:
            self._drop(cls.id)
        elif len(self._idle) > self._keep:
            self._drop(next(iter(self._idle)))

    def _drop(self, idle: int) -> None:
        dropped = self._by_key.pop(self._idle.pop(idle))
        del self._keys[idle]
        self._dropped(dropped)

    def at_size(self, cls: PodClass, size: Mapping[int, int]) -> PodClass:
        """The class with other requests (see `PodClass.at_size`), which is not listed. The caller calls
        `unused` when it no longer needs it."""
        self._next += 1
        return cls.at_size(self._next - 1, size)

    def unused(self, sized: PodClass) -> None:
        """Drops a class made by `at_size`."""
        for notify in self.on_dropped:
            notify(sized)

    def _make(self, pod: Pod, traits: Traits) -> PodClass:
        check_bounds(pod)
        volumes = scheduling_volumes(pod.spec)
        if not volumes:
            return self._new(pod, traits)
        key = class_key(pod, False, self._read, traits.stores_pin)
        if traits is not ORDINARY:
            key += encode((traits, pod.metadata.uid if traits.private else ""))
        without_volumes = self._without_volumes.get(key)
        if without_volumes is None:
            without_volumes = self._without_volumes[key] = self._new(pod, traits)
            without_volumes.volumes = []
            self._keys[without_volumes.id] = key
        without_volumes.refs += 1
        self._next += 1
        return without_volumes.with_volumes(self._next - 1, pod, volumes)

    def _new(self, pod: Pod, traits: Traits) -> PodClass:
        self._next += 1
        return PodClass(self._next - 1, pod, traits, self._slot, self.counted, self._read)

    def _dropped(self, cls: PodClass) -> None:
        for notify in self.on_dropped:
            notify(cls)
        self.slots_left(slot for slot, _ in cls.requests)
        without_volumes = cls.without_volumes
        if without_volumes is not None:
            without_volumes.refs -= 1
            if not without_volumes.refs:
                del self._without_volumes[self._keys.pop(without_volumes.id)]
                self._dropped(without_volumes)
