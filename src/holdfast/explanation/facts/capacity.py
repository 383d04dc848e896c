"""Capacity on nodes for one pod: what it requests, what is free for it, and what is short.

Capacity that is reserved for the pod itself never counts against it.
"""

import math
from collections import Counter

import numpy as np
from numpy.typing import NDArray

from holdfast.api.similar_names import did_you_mean
from holdfast.explanation.facts.own_reservations import own_entries, own_reservations
from holdfast.scheduler.cluster.records import PodRecord
from holdfast.scheduler.cluster.slots import CPU, PODS, Amounts
from holdfast.scheduler.managers.devices.requests import TYPE_OF
from holdfast.scheduler.reservations.calendar import PlannedReservation
from holdfast.snapshot.cluster_snapshot import ClusterSnapshot

_ABSENT = 1e6
"""Is added to the shortage of a node that has nothing of a requested resource at all: smaller requests
or pods that end cannot help there, so it comes after all nodes that have some."""


def requested(pod: PodRecord) -> Amounts:
    """What the pod requests of a node, a pod slot included."""
    return {slot: amount for slot, amount in (*pod.cls.requests, (PODS, 1)) if amount}


def row_of(snapshot: ClusterSnapshot, node: str) -> int:
    row = snapshot.cluster.nodes.row(node)
    assert row is not None, node
    return row


def missing_node(snapshot: ClusterSnapshot, name: str) -> str | None:
    """None if the node exists; otherwise `; did you mean node-1?`, or empty if no name is similar."""
    table = snapshot.cluster.nodes
    row = table.row(name)
    if row is not None and table.alive[row]:
        return None
    return did_you_mean(name, (known for known, row in table.names() if table.alive[row]))


def served_by_classes(snapshot: ClusterSnapshot, pod: PodRecord) -> set[int]:
    """The slots of requested resources that device classes serve, on nodes that have none of them."""
    return {slot for slot, _ in snapshot.cluster.claims.delegated(pod.cls)}


def free_on(snapshot: ClusterSnapshot, pod: PodRecord, row: int) -> Amounts:
    """What is free on a row for the pod, without reservations of its own."""
    table = snapshot.cluster.nodes
    asked, planned = requested(pod), planned_on(snapshot, pod, row)
    if pod.cls.pre_allocation:  # it may wait for pods that end, but not for other reservations
        holds = snapshot.cluster.reservations.starvation_holds
        outranked = holds.outranked_on(row) if pod.cls.is_planned else {}
        return {
            slot: table.allocatable.item(slot, row)
            - table.held.item(slot, row)
            + outranked.get(slot, 0)
            - table.daemon_requested.item(slot, row)
            - planned.get(slot, 0)
            for slot in asked
        }
    kept = nominated_on(snapshot, pod, row)
    kept[CPU] += amplified_on(snapshot, row)
    return {
        slot: table.allocatable.item(slot, row)
        - table.claimed.item(slot, row)
        - planned.get(slot, 0)
        - kept[slot]
        for slot in asked
    }


def amplified_on(snapshot: ClusterSnapshot, row: int) -> int:
    """By how much exclusive CPUs on a row count for more than they are, where cpu is amplified."""
    cpus, table = snapshot.cluster.managers.cpus, snapshot.cluster.nodes
    ratio = float(cpus.ratio[row]) if cpus.active else 1.0
    own = 1000 * int(cpus.exclusive_cpus[row]) if ratio > 1 else 0
    return math.ceil(own * ratio) - own if own and table.claimed.item(CPU, row) >= own else 0


def nominated_on(snapshot: ClusterSnapshot, pod: PodRecord, row: int) -> Counter[int]:
    """What the pod must leave free on a row for pods that it is nominated for, by slot. Those with a
    reservation there have their capacity already."""
    cluster = snapshot.cluster
    found: Counter[int] = Counter()
    for each in cluster.nominated_pods_for(pod, row):
        if not cluster.reservations.reservation_for_nominated(each, row):
            found.update(dict(each.cls.usage))
    return found


def planned_on(snapshot: ClusterSnapshot, pod: PodRecord, row: int) -> Amounts:
    """What the pod must leave free on a row for reservations that start later, by slot."""
    cluster = snapshot.cluster
    planner, estimate = cluster.jobs.planner, cluster.jobs.estimates.of(pod)
    if pod.cls.is_planned or not pod.cls.requests:
        return {}
    if pod.cls.pre_allocation:
        return planner.planned(row)
    until = cluster.now + estimate if estimate is not None and pod.reservation is None else math.inf
    return planner.blocked(row, until)


def plans_on(snapshot: ClusterSnapshot, pod: PodRecord, row: int) -> list[PlannedReservation]:
    """The reservations planned on a row that restrict what may start there now."""
    plans = snapshot.cluster.reservations.calendar.on(row)
    if pod.cls.is_planned:
        return []
    return plans if pod.cls.pre_allocation else [each for each in plans if each.binds]


def missing_on(snapshot: ClusterSnapshot, pod: PodRecord, row: int) -> Amounts:
    """The pod's shortage on a row, using the reservation of its own that leaves the smallest one."""
    table, served = snapshot.cluster.nodes, served_by_classes(snapshot, pod)
    free = free_on(snapshot, pod, row)
    asked = {
        slot: amount
        for slot, amount in requested(pod).items()
        if slot not in served or table.allocatable.item(slot, row)
    }
    found = _lacking(asked, free)
    for entry in own_entries(snapshot, pod, row):
        beside = _lacking(asked, {slot: free[slot] + entry.left(slot) for slot in asked})
        if _share(beside, asked) < _share(found, asked):
            found = beside
    return found


def _lacking(asked: Amounts, free: Amounts) -> Amounts:
    return {slot: amount - free[slot] for slot, amount in asked.items() if amount > free[slot]}


def _share(lacking: Amounts, asked: Amounts) -> float:
    return sum(lack / asked[slot] for slot, lack in lacking.items())


def shortages(snapshot: ClusterSnapshot, pod: PodRecord) -> NDArray[np.float64]:
    """The shortage of every row as a share of the request, summed over resources; 0 where nothing is
    missing, and at least `_ABSENT` where a resource is absent. Computed for all rows at once."""
    table = snapshot.cluster.nodes
    size = table.size
    total = np.zeros(size, dtype=np.float64)
    asked, served = requested(pod), served_by_classes(snapshot, pod)
    for slot, amount in asked.items():
        free = (table.allocatable[slot] - table.claimed[slot])[:size]
        short = np.maximum(amount - free, 0) / amount
        total += short * (table.allocatable[slot, :size] > 0) if slot in served else short
    total += _short_of_devices(snapshot, pod, total.shape[0])
    own = (reservation.entry for reservation in own_reservations(snapshot, pod))
    special = {entry.row for entry in own if entry is not None}
    special.update(snapshot.cluster.reservations.calendar.rows())
    rows = map(table.row, snapshot.cluster.nominator)
    special.update(row for row in rows if row is not None and table.alive[row])
    for row in special:
        total[row] = _share(missing_on(snapshot, pod, row), asked)
    for slot in asked.keys() - served:
        total[table.allocatable[slot, :size] <= 0] += _ABSENT
    return total


def _short_of_devices(snapshot: ClusterSnapshot, pod: PodRecord, size: int) -> NDArray[np.float64]:
    """By how much more of its request the devices of every row are short than their sum is: what is
    free on several shared devices does not serve a request for one."""
    table, found = snapshot.cluster.nodes, np.zeros(size, dtype=np.float64)
    devices = snapshot.cluster.managers.devices
    search = devices.valid_search(pod.cls) if devices.active else None
    for share in search.shares if search is not None else ():
        if (known := devices.tables.get(share.type)) is None:
            continue
        lines = [line for line, amount in enumerate(share.each) if amount]
        asked = np.array([share.each[line] for line in lines], dtype=np.float64)
        shares = (known.free[lines, :size] / asked[:, None, None]).min(axis=0).clip(0, 1)
        best = np.sort(shares, axis=1)[:, ::-1][:, : share.number]
        whole = best if share.number == 1 else np.floor(best)
        short = 1 - whole.sum(axis=1) / share.number
        in_sum = np.zeros(size, dtype=np.float64)
        for slot, amount in pod.cls.requests:
            if TYPE_OF.get(table.slots.name(slot)) == share.type:
                free = (table.allocatable[slot] - table.claimed[slot])[:size]
                in_sum = np.maximum(in_sum, np.maximum(amount - free, 0) / amount)
        has_devices = known.known[:size].any(axis=1)
        found += np.maximum(short - in_sum, 0) * has_devices
    return found


def absent_on(snapshot: ClusterSnapshot, pod: PodRecord, row: int) -> list[str]:
    """The requested resources of which a node has nothing."""
    table = snapshot.cluster.nodes
    asked = requested(pod).keys() - served_by_classes(snapshot, pod)
    return [table.slots.name(slot) for slot in asked if table.allocatable.item(slot, row) <= 0]


def largest(snapshot: ClusterSnapshot, slot: int) -> int:
    """The most that a node has of a resource."""
    table = snapshot.cluster.nodes
    alive = table.alive[: table.size]
    amounts = table.allocatable[slot, : table.size][alive]
    return int(amounts.max()) if len(amounts) else 0


def largest_for(snapshot: ClusterSnapshot, pod: PodRecord, slot: int) -> int:
    """The most that a pod of its queue can have of a resource: no more than a node has, nor than the
    capabilities of the queue and of those above it."""
    queues = snapshot.cluster.jobs.queues
    limits = [each.capability for each in queues.path(queues.of(pod)) if each.capability]
    return min([largest(snapshot, slot), *(each[slot] for each in limits if slot in each)])
