"""Amounts of the whole cluster: allocatable, requested, reserved, free, and how fragmented that is.

Free capacity is fragmented as far as pods cannot use it because it is spread over nodes, or because
another resource is used up beside it. For each resource the measure is the most frequent request of
pods that request it: how many more such pods fit, node by node, against how many would fit if all free
capacity were one node's. Cordoned nodes, and so drained ones, have no free capacity, since no pod is
placed there; they are allocatable all the same, since pods that are left run there.
"""

from collections import Counter
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from holdfast.api.quantity import shown
from holdfast.scheduler.cluster.slots import PODS
from holdfast.scheduler.state.cluster import Cluster

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


def cluster_capacity(cluster: Cluster, pending: int) -> ClusterCapacity:
    table = cluster.nodes
    rows = np.flatnonzero(table.alive[: table.size])
    cordoned = np.array([table.info[row].unschedulable for row in rows.tolist()], dtype=np.bool_)
    named = [
        (slot, name) for slot, name in table.slots.resources() if table.allocatable[slot][rows].any()
    ]
    slots = [slot for slot, _ in named]
    allocatable = table.allocatable[slots][:, rows]
    claimed = table.claimed[slots][:, rows]
    held = table.held[slots][:, rows]
    free = np.maximum(allocatable - claimed, 0)
    free[:, cordoned] = 0
    requests = _requests(cluster)
    found = {}
    for at, (slot, name) in enumerate(named[:_MOST_RESOURCES]):
        typical = requests.get(slot)
        fits = pooled = 0
        if typical is not None:
            fits = int(_fitting(free, slots, typical).sum())
            pooled = int(_fitting(free.sum(axis=1, keepdims=True), slots, typical)[0])
        found[name] = ResourceAmounts(
            name,
            int(allocatable[at].sum()),
            int((claimed[at] - held[at]).sum()),
            int(held[at].sum()),
            int(free[at].sum()),
            int(free[at].max(initial=0)),
            {
                label: amount
                for s, amount in typical or ()
                for q, label in named
                if q == s and s != PODS
            },
            fits,
            pooled,
        )
    daemons = table.daemon_requested[PODS][rows]
    busy = table.claimed[PODS][rows] > daemons
    bound = sum(pod.row >= 0 and pod.reservation is None for pod in cluster.pods.values())
    return ClusterCapacity(len(rows), int((~cordoned).sum()), int((~busy).sum()), bound, pending, found)


def _requests(cluster: Cluster) -> dict[int, tuple[tuple[int, int], ...]]:
    """By slot, the most frequent requests of pods that request it; of equally frequent, the larger."""
    counts: Counter[tuple[tuple[int, int], ...]] = Counter()
    for cls in cluster.classes:
        if cls.refs and not cls.is_reserve_pod and not cls.is_daemon:
            counts[cls.requests] += cls.refs
    found: dict[int, tuple[int, tuple[tuple[int, int], ...]]] = {}
    for requests, count in counts.items():
        for slot, _ in requests:
            found[slot] = max(found.get(slot, (0, ())), (count, requests))
    if counts:
        found[PODS] = max((count, requests) for requests, count in counts.items())
    return {slot: ((PODS, 1), *requests) for slot, (_, requests) in found.items()}


def _fitting(
    free: NDArray[np.int64], slots: list[int], requests: tuple[tuple[int, int], ...]
) -> NDArray[np.int64]:
    """How many pods with these requests fit into each column of free amounts."""
    fitting = np.full(free.shape[1], _UNBOUNDED, dtype=np.int64)
    for slot, amount in requests:
        if slot not in slots:
            return np.zeros(free.shape[1], dtype=np.int64)
        if amount:
            fitting = np.minimum(fitting, free[slots.index(slot)] // amount)
    return fitting
