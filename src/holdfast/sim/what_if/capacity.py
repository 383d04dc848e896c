"""Amounts of the whole cluster: allocatable, requested, reserved, free, and how fragmented that is.

Free capacity is fragmented as far as pods cannot use it because it is spread over nodes, or because
another resource is used up beside it. For each resource the measure is the most frequent request of
pods that request it: how many more such pods fit, node by node, against how many would fit if all free
capacity were one node's. Cordoned nodes, and so drained ones, have no free capacity, since no pod is
placed there; they are allocatable all the same, since pods that are left run there.

Devices that pods get by claims are listed by their driver, as in `holdfast get nodes` too. On nodes
with a Device object the amounts of devices are those of their table, as in `holdfast get
nodes`: a GPU of which a pod has a share is taken under every name that GPUs have.
"""

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from holdfast.api.names import GPU_SHARED
from holdfast.api.quantity import shown
from holdfast.scheduler.cluster.pod_classes import PodClass
from holdfast.scheduler.cluster.slots import PODS
from holdfast.scheduler.managers.claims.device_counts import DeviceCounts, devices_resource
from holdfast.scheduler.managers.devices.device_amounts import GPU_PARTS, device_amounts, left_on
from holdfast.scheduler.managers.devices.requests import TYPE_OF
from holdfast.scheduler.state.cluster import Cluster

Ints = NDArray[np.int64]

_UNBOUNDED = np.iinfo(np.int64).max
_MOST_RESOURCES = 32


@dataclass(frozen=True, slots=True)
class ResourceAmounts:
    """One resource over all nodes. Amounts are as the scheduler counts: cpu in thousandths."""

    resource: str
    allocatable: int
    requested: int
    """By pods."""
    reserved: int
    """Kept free by reservations for their owners."""
    free: int
    """Neither requested nor reserved, on nodes that are not cordoned."""
    largest_free: int
    """The most that is free on one node."""
    typical: dict[str, int] = field(default_factory=dict)
    """The most frequent request of pods that request this resource; empty if none does."""
    fits: int = 0
    """How many more such pods fit."""
    fits_pooled: int = 0
    """How many would fit if all that is free were on one node."""
    is_named: bool = True
    """Whether it is of interest: of parts of GPUs that devices serve, those that a pod or reservation
    on a node requests by this name."""

    @property
    def utilisation(self) -> float:
        return round(self.requested / self.allocatable, 4) if self.allocatable else 0.0

    @property
    def fragmentation(self) -> float:
        """The share of free capacity that pods with the typical request cannot use."""
        return round(1 - self.fits / self.fits_pooled, 4) if self.fits_pooled else 0.0

    def data(self) -> dict[str, object]:
        def text(amount: int) -> str:
            return shown(self.resource, amount)

        return {
            "allocatable": text(self.allocatable),
            "requested": text(self.requested),
            "reserved": text(self.reserved),
            "free": text(self.free),
            "largestFree": text(self.largest_free),
            "utilisation": self.utilisation,
            "fragmentation": self.fragmentation,
            "typicalRequest": {name: shown(name, amount) for name, amount in self.typical.items()},
            "fits": self.fits,
            "fitsPooled": self.fits_pooled,
        }


@dataclass(frozen=True, slots=True)
class ClusterCapacity:
    nodes: int
    schedulable_nodes: int
    empty_nodes: int
    """Nodes without any pods but those of DaemonSets and static ones."""
    pods: int
    pending: int
    resources: dict[str, ResourceAmounts]

    @property
    def cordoned_nodes(self) -> int:
        return self.nodes - self.schedulable_nodes

    def data(self) -> dict[str, object]:
        return {
            "nodes": self.nodes,
            "schedulableNodes": self.schedulable_nodes,
            "emptyNodes": self.empty_nodes,
            "pods": self.pods,
            "pendingPods": self.pending,
            "resources": {name: each.data() for name, each in self.resources.items()},
        }


def comparable(
    before: ClusterCapacity, after: ClusterCapacity
) -> tuple[ClusterCapacity, ClusterCapacity]:
    """With the resources that are of interest before or after."""

    def named(capacity: ClusterCapacity) -> set[str]:
        return {name for name, each in capacity.resources.items() if each.is_named}

    names = named(before) | named(after)

    def of(capacity: ClusterCapacity) -> ClusterCapacity:
        kept = {name: each for name, each in capacity.resources.items() if name in names}
        return replace(capacity, resources=kept)

    return of(before), of(after)


def cluster_capacity(cluster: Cluster, pending: int) -> ClusterCapacity:
    table = cluster.nodes
    rows = np.flatnonzero(table.alive[: table.size])
    cordoned = np.array([table.info[row].unschedulable for row in rows.tolist()], dtype=np.bool_)
    amounts = {
        slot: _Amounts.of(cluster, slot, name, rows)
        for slot, name in table.slots.resources()
        if table.allocatable[slot][rows].any()
    }
    claimed = [*_claimed(cluster, rows)]
    for each in (*amounts.values(), *claimed):
        each.free[cordoned] = 0
    requests = _requests(cluster)
    found = {}
    for slot, each in list(amounts.items())[:_MOST_RESOURCES]:
        if not each.allocatable.any():
            continue
        typical = requests.get(slot)
        fits, pooled = _fits(cluster, amounts, typical, rows, ~cordoned) if typical else (0, 0)
        found[each.name] = each.total(
            {
                amounts[s].name: amount
                for s, amount in (typical.requests if typical is not None else ())
                if s in amounts
            },
            fits,
            pooled,
        )
    found |= {each.name: each.total() for each in claimed}
    daemons = table.daemon_requested[PODS][rows]
    busy = table.claimed[PODS][rows] > daemons
    bound = sum(pod.row >= 0 and pod.reservation is None for pod in cluster.pods.values())
    return ClusterCapacity(len(rows), int((~cordoned).sum()), int((~busy).sum()), bound, pending, found)


@dataclass(frozen=True, slots=True)
class _Amounts:
    """One resource by node."""

    name: str
    allocatable: Ints
    requested: Ints
    held: Ints
    free: Ints
    is_named: bool

    def total(
        self, typical: dict[str, int] | None = None, fits: int = 0, fits_pooled: int = 0
    ) -> ResourceAmounts:
        """Over all nodes."""
        return ResourceAmounts(
            self.name,
            int(self.allocatable.sum()),
            int(self.requested.sum()),
            int(self.held.sum()),
            int(self.free.sum()),
            int(self.free.max(initial=0)),
            typical or {},
            fits,
            fits_pooled,
            self.is_named,
        )

    @classmethod
    def of(cls, cluster: Cluster, slot: int, name: str, rows: NDArray[np.intp]) -> "_Amounts":
        table = cluster.nodes
        allocatable, held = table.allocatable[slot][rows], table.held[slot][rows]
        requested = table.claimed[slot][rows] - held
        is_named = True
        served = _served(cluster, name, rows) & (allocatable > 0)
        if served.any():
            is_named = name not in GPU_PARTS or bool(table.claimed[slot].any())
            of_devices = _of_devices(cluster, name, rows)
            allocatable, requested, held = (
                np.where(served, devices, amounts)
                for devices, amounts in zip(of_devices, (allocatable, requested, held), strict=True)
            )
        free = np.maximum(allocatable - requested - held, 0)
        return cls(name, allocatable, requested, held, free, is_named)


def _claimed(cluster: Cluster, rows: NDArray[np.intp]) -> Iterator[_Amounts]:
    """The devices of each DRA driver on the nodes. What requests them is in claims, so that there is no
    typical request."""
    for driver, devices in DeviceCounts(cluster.claims).by_driver(cluster.nodes.size).items():
        of = devices.published[rows], devices.in_use[rows], devices.reserved[rows]
        if of[0].any():
            free = np.maximum(of[0] - of[1] - of[2], 0)
            yield _Amounts(devices_resource(driver), *of, free, is_named=True)


def _served(cluster: Cluster, name: str, rows: NDArray[np.intp]) -> NDArray[np.bool_]:
    """The nodes whose Device object has devices that serve the resource."""
    table = cluster.managers.devices.tables.get(TYPE_OF.get(name, ""))
    if table is None:
        return np.zeros(len(rows), dtype=np.bool_)
    return np.asarray(table.known[rows].any(axis=1))


def _of_devices(cluster: Cluster, name: str, rows: NDArray[np.intp]) -> tuple[Ints, Ints, Ints]:
    """Allocatable, requested and held."""
    if name == GPU_SHARED:  # how a request is divided, and no amount
        none = np.zeros(len(rows), dtype=np.int64)
        return none, none, none
    table, every = cluster.managers.devices.tables[TYPE_OF[name]], slice(0, cluster.nodes.size)
    left = left_on(every, table, cluster.ledger.reservations)
    of = device_amounts(table, name, every, left, np.zeros_like(left))
    return of.total[rows], of.requested[rows], of.reserved[rows]


def _requests(cluster: Cluster) -> dict[int, PodClass]:
    """By slot, a class with the most frequent requests of pods that request it; of equally frequent
    ones, the larger."""
    counts: Counter[tuple[tuple[int, int], ...]] = Counter()
    classes: dict[tuple[tuple[int, int], ...], PodClass] = {}
    for cls in cluster.classes:
        if cls.refs and not cls.is_reserve_pod and not cls.is_daemon:
            counts[cls.requests] += cls.refs
            classes.setdefault(cls.requests, cls)
    found: dict[int, tuple[int, tuple[tuple[int, int], ...]]] = {}
    for requests, count in counts.items():
        for slot, _ in requests:
            found[slot] = max(found.get(slot, (0, ())), (count, requests))
    if counts:
        found[PODS] = max((count, requests) for requests, count in counts.items())
    return {slot: classes[requests] for slot, (_, requests) in found.items()}


def _fits(
    cluster: Cluster,
    amounts: Mapping[int, _Amounts],
    typical: PodClass,
    rows: NDArray[np.intp],
    schedulable: NDArray[np.bool_],
) -> tuple[int, int]:
    """How many pods of the class fit, and how many would if all that is free were on one node."""
    fitting, pooled = np.full(len(rows), _UNBOUNDED, dtype=np.int64), _UNBOUNDED
    for slot, amount in ((PODS, 1), *typical.requests):
        if slot not in amounts:
            return 0, 0
        if amount and amounts[slot].name != GPU_SHARED:
            free = amounts[slot].free
            fitting = np.minimum(fitting, free // amount)
            pooled = min(pooled, int(free.sum()) // amount)
    devices = cluster.managers.devices
    search = devices.valid_search(typical) if devices.active else None
    for share in search.shares if search is not None else ():
        if (known := devices.tables.get(share.type)) is None:
            continue
        lines = [line for line, amount in enumerate(share.each) if amount]
        each = np.array([share.each[line] for line in lines], dtype=np.int64)[:, None, None]
        on_device = (known.free[lines][:, rows] // each).min(axis=0).clip(0, None)
        on_device = on_device if share.number == 1 else on_device.clip(0, 1)
        on_node = np.where(schedulable, on_device.sum(axis=1), 0)
        served = known.known[rows].any(axis=1)
        if served.all(where=fitting > 0):  # nodes without a Device object have amounts only
            pooled = min(pooled, int(on_node.sum()) // share.number)
        fitting = np.minimum(fitting, np.where(served, on_node // share.number, _UNBOUNDED))
    return int(fitting.sum()), pooled
