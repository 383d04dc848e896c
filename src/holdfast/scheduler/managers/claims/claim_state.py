"""ResourceClaims and what is in flight for them: the state of the claim manager (`claim_manager`)."""

from collections import Counter, deque
from collections.abc import Callable, Hashable, Iterable
from dataclasses import dataclass, field
from typing import NamedTuple

from holdfast.api.pod import ContainerExtendedResourceRequest
from holdfast.api.pod_groups import CorePodGroup
from holdfast.api.resource_claims import (
    AllocationResult,
    ResourceClaim,
    ResourceClaimSpec,
    ResourceClaimTemplate,
)
from holdfast.api.resource_slices import DeviceID
from holdfast.scheduler.cluster.base import ClusterBase
from holdfast.scheduler.cluster.decisions import Decision, ObjectRef
from holdfast.scheduler.cluster.records import PodRecord
from holdfast.scheduler.managers.claims.allocator import ClaimsAllocator
from holdfast.scheduler.managers.claims.catalogue import DeviceCatalogue
from holdfast.scheduler.managers.claims.class_claims import ClassClaims
from holdfast.scheduler.managers.claims.device_use import DeviceUse
from holdfast.scheduler.managers.claims.held_devices import (
    HeldDevices,
    HolderClaim,
)
from holdfast.scheduler.managers.claims.pod_claims import (
    PodClaimIndex,
    ResourceClaimKey,
)

_MOST_WAITS = 10_000
"""The waits that are kept until metrics are read."""


@dataclass(slots=True)
class InFlight:
    """What was decided about a claim and is not on its object yet."""

    uid: str
    """The uid of the claim; empty if it is yet to be created."""
    allocation: AllocationResult | None
    """None if the claim is allocated, and only gets new consumers."""
    pods: set[str] = field(default_factory=set)
    """The uids of the pods that it was decided for."""
    spec: ResourceClaimSpec | None = None
    """Of a claim that is yet to be created."""
    holder: HolderClaim | None = None
    """Of a claim with which a reservation is to hold devices: what it holds with it."""
    written: AllocationResult | None = None
    """Of such a claim: its devices that no other claim uses, with which it is written."""
    is_refused: bool = False
    """Of such a claim: whether the write was refused, and is to be decided again."""
    mappings: tuple[ContainerExtendedResourceRequest, ...] = ()
    groups: dict[str, ObjectRef] = field(default_factory=dict)
    """By pod, the PodGroup that the claim is reserved for in its place."""
    joined: dict[str, AllocationResult] = field(default_factory=dict)
    """By pod, the allocation that the claim's object had when the claim was reserved for it."""
    is_decided: bool = False
    """Whether the write of the allocation is decided."""
    judged: int = 0
    """The version of the catalogue for which the allocation is known to be possible."""

    def landed(self, claim: ResourceClaim) -> set[str]:
        """The pods that the claim's object is reserved for, themselves or by their PodGroup."""
        uids = {consumer.uid for consumer in claim.status.reserved_for}
        named = ((uid, self.groups.get(uid)) for uid in self.pods)
        return {uid for uid, group in named if (group.uid if group is not None else uid) in uids}


@dataclass(slots=True)
class RefusedWrite:
    """A write about a claim of a reservation that was refused."""

    message: str
    due: float
    """When it is decided again."""
    times: int
    claims: set[ResourceClaimKey]
    """The claims that were not written."""


class DeviceWait(NamedTuple):
    """A pod's wait for devices with binding conditions, when it is over."""

    profile: str
    status: str
    """As in kube-scheduler's metrics: success, failure, timeout or error."""
    seconds: float
    results: Counter[str]
    """The number of allocated devices, by driver."""
    conditional: Counter[str]
    """The number of those with binding conditions, by driver."""


@dataclass(slots=True)
class ClaimCounts:
    """What metrics report of claims."""

    created: Counter[tuple[str, str]] = field(default_factory=Counter)
    """Claims that the scheduler created, by the kind of their owner, and success or failure."""
    waits: deque[DeviceWait] = field(default_factory=lambda: deque(maxlen=_MOST_WAITS))
    refused: int = 0
    """Refused writes of claims with which reservations hold devices."""


class DeviceHeld(NamedTuple):
    """A device that a reservation holds."""

    reservation: str
    driver: str
    is_free: bool
    """Whether no claim uses it."""


class ServedPod(NamedTuple):
    """What a pod of a sequence would get after those before it."""

    of: tuple[str, int, int]
    """The uid and the class of the pod, and the row."""
    keys: list[ResourceClaimKey]
    """Its claims, if it would get devices for them."""
    devices: list[DeviceID]


class ConflictingClaim(NamedTuple):
    """A claim with a device that a claim of a pod has as well."""

    claim: ResourceClaimKey
    """The claim of the pod."""
    other: ResourceClaimKey
    device: DeviceID
    was_first: bool
    """Whether the other claim certainly got the device before."""

    def __str__(self) -> str:
        device = "/".join(self.device)
        return f"device {device} of claim {self.claim} is also allocated to claim {self.other}"


class ClaimState:
    """All ResourceClaims, what is in flight for them, and what follows from both."""

    def __init__(self, cluster: ClusterBase) -> None:
        self._cluster = cluster
        self._ledger = cluster.ledger
        self.catalogue = DeviceCatalogue(cluster.nodes)
        self.use = DeviceUse(self.catalogue.table)
        self.allocator = ClaimsAllocator(self.catalogue, cluster.nodes)
        self.counts = ClaimCounts()
        self.shared_changes = 0
        """Changes with devices that are not of a single node: when some are published or withdrawn,
        come into use or out of use."""
        self.active = False
        """Whether there is anything to keep: an object of `DEVICE_KINDS`, or a pod with claims."""
        self.pods_changed: Callable[[Iterable[str]], None] = lambda uids: None
        """Called with the uids of pods whose claims changed."""
        self.decisions: list[Decision] = []
        """Writes about claims that do not belong to a bind, until they are taken."""
        self.serves_extended = False
        """Whether the plugin DynamicResources is enabled, which serves extended resources by claims."""
        self.extended: dict[str, str] = {}
        """The device classes that serve extended resources, by resource."""
        self.templates_changed: Callable[[], None] = lambda: None
        """Called when ResourceClaimTemplates changed, which reservations may name."""
        self.pod_group: Callable[[str, str], CorePodGroup | None] = lambda namespace, name: None
        """The PodGroup of `scheduling.k8s.io` of a namespace and name."""
        self.is_live: Callable[[str], bool] = lambda uid: True
        """Whether the reservation with a uid has a node and is not finished."""
        self.allocated_pods: Callable[[str], list[PodRecord]] = lambda uid: []
        """The pods that are allocated from the reservation with a uid."""
        self.holder_changed: Callable[[str], None] = lambda uid: None
        """Called with the uid of a reservation when what it holds with a claim may have changed."""
        self.short: dict[str, None] = {}
        """The uids of reservations that lost a claim and for which there are not enough devices."""
        self.unplanned: dict[str, None] = {}
        """The uids of Waiting reservations that wait for devices which cannot be allocated any more."""
        self._claims: dict[ResourceClaimKey, ResourceClaim] = {}
        self._templates: dict[ResourceClaimKey, ResourceClaimTemplate] = {}
        self.held = HeldDevices()
        self._broken_holders: dict[ResourceClaimKey, str] = {}
        """Claims of reservations whose annotation somebody removed or made invalid, with the uids of
        the reservations."""
        self._outdated_holders: dict[ResourceClaimKey, None] = {}
        """Claims of reservations whose objects may have other devices than they should."""
        self._holds_decided: dict[ResourceClaimKey, AllocationResult | None] = {}
        """The allocations of claims of reservations that were decided last and not seen yet."""
        self._released: set[str] = set()
        """The uids of claims of reservations whose deletion is decided."""
        self.pods = PodClaimIndex(self._claims)
        self._in_flight: dict[ResourceClaimKey, InFlight] = {}
        self._flights_of: dict[str, tuple[ResourceClaimKey, ...]] = {}
        """The claims that are in flight for a pod, by its uid."""
        self._consumers: dict[ResourceClaimKey, frozenset[str]] = {}
        """The uids of the consumers of a claim, in flight or on the object."""
        self._consumed: dict[str, set[ResourceClaimKey]] = {}
        """The claims that a pod consumes, by its uid."""
        self._created_for: dict[str, set[ResourceClaimKey]] = {}
        """The claims that a scheduler created for extended resources of a pod, by its uid."""
        self._used: dict[ResourceClaimKey, AllocationResult] = {}
        """The allocations that count as using devices."""
        self._drawn: dict[ResourceClaimKey, str] = {}
        """The uid of the reservation that the pods of an allocated claim are allocated from."""
        self._refused_writes: dict[str, RefusedWrite] = {}
        """By the uid of a reservation, writes about its claims that were refused."""
        self._named_by_reservations: dict[ResourceClaimKey, dict[str, None]] = {}
        """Claims that templates of reservations name, with the uids of these reservations."""
        self._tentative: set[str] = set()
        """The uids of pods that were reserved in a transaction, to be undone with it."""
        self._is_dry_run = False
        """Whether claims are being reserved in a transaction: nothing is decided about them."""
        self._departed: set[str] = set()
        """The uids of consumers that a transaction removed from their row."""
        self._orphans: set[str] = set()
        """The uids of unreserved pods with writes in flight: the outcome of a decided bind is unknown,
        or that of writes for a pod that waited in Permit."""
        self.outdated_pods: dict[str, None] = {}
        """The uids of pods whose class has claims as they were before."""
        self.changed_meanwhile: set[str] = set()
        """The uids of assumed pods whose claims changed: they keep their class until they are pending
        again."""
        self._ending: dict[ResourceClaimKey, None] = {}
        """Claims that are being deleted and are reserved for somebody."""
        self._leaving: set[tuple[str, str]] = set()
        """The uids of claims and of consumers whose removal is decided and not on the objects yet."""
        self.waiting: dict[str, float] = {}
        """By the uid of a pod, since when it waits in Permit for its devices."""
        self.refused: dict[str, str] = {}
        """By the uid of a pod, why a claim of it was not written."""
        self._allocated_at: dict[ResourceClaimKey, int] = {}
        """The version of each allocated claim in which its allocation was first seen."""
        self._stamps: dict[ResourceClaimKey, tuple[int, object]] = {}
        """By claim, a number that changes with what classes read of it, and what they read."""
        self._stamped = 0
        self._of_class: dict[int, tuple[Hashable, ClassClaims]] = {}
        self._served: list[ServedPod] = []
        """The last sequence of pods of `ClaimFeasibility.taken_by`."""
        self._served_at: Hashable = None
        """The version of the state for which it is valid."""
        self._delegated: dict[int, list[tuple[int, str]]] = {}

    def claim(self, key: ResourceClaimKey) -> ResourceClaim | None:
        return self._claims.get(key)

    def _drop_flight(self, key: ResourceClaimKey, uid: str) -> None:
        """Ends what is in flight for a claim and one of its pods."""
        flight = self._in_flight[key]
        flight.pods.discard(uid)
        flight.groups.pop(uid, None)
        flight.joined.pop(uid, None)
        if not flight.pods:
            del self._in_flight[key]
        rest = tuple(each for each in self._flights_of[uid] if each != key)
        if rest:
            self._flights_of[uid] = rest
        else:
            del self._flights_of[uid]
            self._orphans.discard(uid)
