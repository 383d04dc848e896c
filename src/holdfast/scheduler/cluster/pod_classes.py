"""Pod classes: what scheduling can see of a pod, interned.

Two pods of one class get the same answer from every plugin, so masks and scores are kept per class
and not per pod. Left out of the class is what tells siblings apart without mattering to placement:
names, uids, environment, the volume of an injected token, and the node a DaemonSet pod is meant for
(`pinned_node`), which would otherwise make every such pod a class of its own.
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
    is_daemon_pod,
    nonzero,
    pin_of,
    resized_resources,
    scheduling_annotations,
    scheduling_volumes,
    without_pin,
)
from holdfast.scheduler.cluster.node_table import normalized
from holdfast.scheduler.cluster.pod_limits import CountedLimits, PodLimits
from holdfast.scheduler.cluster.slots import CPU, MEMORY, NONZERO_CPU, NONZERO_MEMORY, PODS, capped

_KEPT = 32


class Traits(NamedTuple):
    """What sets a class apart though it is not written in the pod."""

    private: bool = False
    """Whether it is the class of one pod alone, which some reservation means by name."""
    owner_spec_id: int = -1
    """Of reserve pods: the owner spec of their reservation."""
    wants_node: str = ""
    """Of reserve pods: the node asked for by name before being placed."""
    exclusive: bool = False
    """Of reserve pods: whether no other with the same owners may be on the same node."""
    pre_allocation: bool = False
    """Of reserve pods: whether pods now in its place may stay until they end by themselves."""
    priority: int | None = None
    """Of members of a job that have none of their own: that of their PodGroup."""
    non_preemptible: bool = False
    """Of members of a job: whether its PodGroup says that they are nobody's victims."""


ORDINARY = Traits()


class PodClass:
    """One class. `pod` is the first pod seen of it, standing for them all."""

    __slots__ = (
        "_scored",
        "affinity",
        "annotations",
        "at_reservation_size",
        "brings_template",
        "container_count",
        "exclusive",
        "fields",
        "id",
        "images",
        "is_daemon",
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
        self.exclusive = traits.exclusive
        self.pre_allocation = traits.pre_allocation
        self.owner_spec_id = traits.owner_spec_id
        self.wants_node = traits.wants_node
        self.namespace = pod.metadata.namespace
        self.labels: Mapping[str, str] = pod.metadata.labels
        self.annotations = ClassAnnotations(
            scheduling_annotations(pod, read.annotations), read.annotations
        )
        self.brings_template = names.RESERVATION_TEMPLATE in self.annotations
        """Whether its pods ask for reservations of their own."""
        self.fields: Mapping[str, Any] = read.values(pod)
        """The values of the fields plugins say they read, by path."""
        self.owners: list[OwnerReference] = pod.metadata.owner_references
        self.priority = (spec.priority or 0) if traits.priority is None else traits.priority
        self.terminating = pod.metadata.deletion_timestamp is not None
        says = (self.annotations.get(names.PREEMPTABLE), self.labels.get(names.PREEMPTABLE))
        self.non_preemptible = (
            self.labels.get(names.DISABLE_PREEMPTIBLE) == "true"
            or names.NO in says
            or (traits.non_preemptible and not any(says))
        )
        """Whether pods of the class are nobody's victims."""
        self.is_daemon = is_daemon_pod(pod)
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
        usage[PODS] = max(1, usage.get(PODS, 0)) if self.owner_spec_id >= 0 else 1
        usage[NONZERO_CPU], usage[NONZERO_MEMORY] = nonzero(claimed_nonzero(pod, resized))
        self.usage: tuple[tuple[int, int], ...] = tuple(usage.items())
        """What a pod of the class claims of its row, by slot, derived sums included."""
        self.usage_column: NDArray[np.int64] = np.zeros(0, dtype=np.int64)
        """The same as a column of the node table; the ledger makes it."""
        self.limits = PodLimits(pod, counted)
        if counted:
            self.count_limits()
        self.without_volumes: PodClass | None = None
        """The class that is the same but for volumes, which this one has."""
        self.at_reservation_size = False
        """Whether it stands for a pod at the size of the reservation it asks for; see `at_size`."""
        self.refs = 0
        """How many pods are known to be of the class."""
        self.placed: dict[int, int] = {}
        """How many pods of the class are on each row."""

    def _copy(self) -> "PodClass":
        """Pods with claims of their own are each of a class of their own, so that this is done for
        every one of them: `map` takes one step where `copy.copy` takes some five hundred."""
        cls = PodClass.__new__(PodClass)
        any(map(setattr, repeat(cls), PodClass.__slots__, _slots_of(self)))
        return cls

    def with_volumes(self, class_id: int, pod: Pod, volumes: list[Volume]) -> "PodClass":
        """The class of a pod that differs from this one in nothing but volumes."""
        cls = self._copy()
        cls.id = class_id
        cls.pod = pod
        cls.volumes = volumes
        cls.without_volumes = self
        cls.refs = 0
        cls.placed = {}
        return cls

    def at_size(self, class_id: int, size: Mapping[int, int]) -> "PodClass":
        """The class of pods that differ from this one's in asking for so much, and in drawing on no
        reservation. There are no such pods: it is for finding out where there is room."""
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
        """Takes into what a pod of the class claims the limits that are counted by now."""
        self.usage = tuple((dict(self.usage) | self.limits.claims()).items())
        self.usage_column = np.zeros(0, dtype=np.int64)

    @property
    def is_reserve_pod(self) -> bool:
        """Whether pods of the class are reserve pods, as which reservations are scheduled."""
        return self.owner_spec_id >= 0

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
    def brings_names(self) -> bool:
        """Whether anything is kept by names that only such pods may have: columns of labels, counters
        of pods, slots of resources."""
        return bool(
            self.affinity is not None
            or self.node_selector
            or self.pod.spec.topology_spread_constraints
            or any(slot > NONZERO_MEMORY for slot, _ in self.requests)
        )

    @property
    def best_effort(self) -> bool:
        return not any(slot in (CPU, MEMORY) for slot, _ in self.requests)


_slots_of = attrgetter(*PodClass.__slots__)


class PodClasses:
    """The classes known, by their content.

    A class no pod is of any more is kept for a while, since the next pod of it is likely to come
    soon, and dropped when more than `keep` such classes have piled up. One that brings names of its own
    (of topology keys, labels, resources) goes at once, and what is known by these names with it.

    Pods of one workload often differ in the claims they name and in nothing else. A class with volumes
    therefore has one `without_volumes`, shared with its like, which no pod is of; it is not listed.
    """

    def __init__(
        self,
        slot: Callable[[str], int],
        keep: int = _KEPT,
        slots_left: Callable[[Iterable[int]], None] = lambda slots: None,
    ) -> None:
        self._slot = slot
        self.slots_left = slots_left
        """Told of the slots of a class that is dropped."""
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
        """Pods that differ in one of these annotations, or in one of these fields, are of different
        classes. To be said before there are any pods. Raises UnknownField."""
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
        """The classes listed, and those that are the same but for volumes."""
        yield from self._by_key.values()
        yield from self._without_volumes.values()

    def count_limits(self) -> None:
        """From now on what pods claim includes all limits that are `counted`."""
        for cls in self.every():
            cls.count_limits()

    def acquire(self, pod: Pod, traits: Traits = ORDINARY) -> PodClass:
        """The class of a pod, which now counts one pod more; raises InvalidObject."""
        key = class_key(pod, read=self._read)
        if traits is not ORDINARY:
            key += encode((traits, pod.metadata.uid if traits.private else ""))
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
        if cls.brings_names:
            self._drop(cls.id)
        elif len(self._idle) > self._keep:
            self._drop(next(iter(self._idle)))

    def _drop(self, idle: int) -> None:
        dropped = self._by_key.pop(self._idle.pop(idle))
        del self._keys[idle]
        self._dropped(dropped)

    def at_size(self, cls: PodClass, size: Mapping[int, int]) -> PodClass:
        """The class at another size, not listed, like one without volumes. Whoever has it made says
        when it is `unused`."""
        self._next += 1
        return cls.at_size(self._next - 1, size)

    def unused(self, sized: PodClass) -> None:
        for tell in self.on_dropped:
            tell(sized)

    def _make(self, pod: Pod, traits: Traits) -> PodClass:
        check_bounds(pod)
        volumes = scheduling_volumes(pod.spec)
        if not volumes:
            return self._new(pod, traits)
        key = class_key(pod, with_volumes=False, read=self._read)
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
        for tell in self.on_dropped:
            tell(cls)
        self.slots_left(slot for slot, _ in cls.requests)
        without_volumes = cls.without_volumes
        if without_volumes is not None:
            without_volumes.refs -= 1
            if not without_volumes.refs:
                del self._without_volumes[self._keys.pop(without_volumes.id)]
                self._dropped(without_volumes)
