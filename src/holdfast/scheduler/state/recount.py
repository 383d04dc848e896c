"""The recount: recomputes everything the cluster state keeps incrementally, and compares.

Like kube-scheduler's cache comparer, but against the state's own pods and reservations. Also reports
over-claimed nodes, and how many names are interned.
"""

from collections import Counter

import numpy as np

from holdfast.api.resources import claimed_nonzero, pod_requests
from holdfast.scheduler.cluster.affinity_terms import is_outdated
from holdfast.scheduler.cluster.class_key import nonzero, resized_resources
from holdfast.scheduler.cluster.node_table import NO_PODS, Images
from holdfast.scheduler.cluster.pod_classes import PodClass
from holdfast.scheduler.cluster.records import Phase, PodRecord
from holdfast.scheduler.cluster.slots import NONZERO_CPU, NONZERO_MEMORY, PODS, capped
from holdfast.scheduler.state.cluster import Cluster


def validate_state(cluster: Cluster) -> list[str]:
    """A message for every difference; empty if the state is consistent."""
    return [
        *_rows(cluster),
        *_claims(cluster),
        *_pods(cluster),
        *_columns(cluster),
        *_counters(cluster),
        *_reservations(cluster),
        *_classes(cluster),
        *cluster.virtuals.problems(),
        *cluster.managers.problems(),
        *cluster.claims.problems(cluster.pods),
        *cluster.volumes.problems({**cluster.pods, **{pod.uid: pod for pod in present(cluster)}}),
    ]


def oversold(cluster: Cluster) -> list[str]:
    """A message for every over-claimed resource of a node. The scheduler itself never over-claims:
    another scheduler, a node whose allocatable shrank, or a waiting reservation can."""
    table = cluster.nodes
    problems = []
    for name, row in table.names():
        for slot, resource in table.slots.resources():
            claimed, offered = table.claimed[slot, row], table.allocatable[slot, row]
            if claimed > offered:
                problems.append(f"Node/{name}: {resource}: {claimed} claimed of {offered}")
    return problems


def _rows(cluster: Cluster) -> list[str]:
    table = cluster.nodes
    problems = []
    rows = dict(table.names())
    if len(set(rows.values())) != len(rows):
        problems.append("two nodes share a row")
    for name, row in rows.items():
        if table.name(row) != name:
            problems.append(f"Node/{name}: row {row} is named {table.name(row)!r}")
        if not table.alive[row] and cluster.ledger.is_empty(row):
            problems.append(f"Node/{name}: its row should have been released")
        if table.alive[row] != (row in table.info):
            problems.append(f"Node/{name}: alive is {table.alive[row]}")
    if table.count != int(table.alive.sum()):
        problems.append(f"{table.count} nodes counted, {table.alive.sum()} alive")
    lacking = (table.allocatable <= 0) & table.alive
    if table.sparse != set(np.flatnonzero(lacking.any(axis=1)).tolist()):
        problems.append(f"wrong slots that some node has nothing of: {sorted(table.sparse)}")
    stray = table.alive | table.claimed.any(axis=0)
    stray[list(rows.values())] = False
    problems.extend(
        f"row {row} belongs to no node but is not empty" for row in np.flatnonzero(stray).tolist()
    )
    return problems


def _claims(cluster: Cluster) -> list[str]:
    table = cluster.nodes
    claimed = np.zeros_like(table.claimed)
    held = np.zeros_like(table.held)
    held_once_pods_end = np.zeros_like(table.held_once_pods_end)
    daemon_requested = np.zeros_like(table.daemon_requested)
    ports: Counter[tuple[int, object]] = Counter()
    asked_by: dict[int, tuple[list[int], list[int]]] = {}
    for pod in cluster.pods.values():
        if pod.row < 0:
            continue
        if pod.cls.id not in asked_by:
            asked_by[pod.cls.id] = _asked(cluster, pod.cls)
        slots, amounts = asked_by[pod.cls.id]
        claimed[slots, pod.row] += amounts
        ports.update((pod.row, port) for port in pod.cls.ports)
        if pod.cls.is_daemon:
            for slot, amount in pod.cls.usage:
                daemon_requested[slot, pod.row] += amount
    for entry in cluster.ledger.reservations:
        taken: Counter[int] = Counter()
        for_good: Counter[int] = Counter()
        for pod in cluster.pods.values():
            if pod.reservation_uid == entry.pod.uid and pod.row == entry.row:
                asked = {slot: n for slot, n in pod.cls.usage if slot in entry.amounts}
                taken.update(asked)
                if entry.reservation.once or pod.cls.is_daemon:
                    for_good.update(asked)
        for slot, amount in entry.amounts.items():
            held[slot, entry.row] += max(0, amount - taken[slot])
            held_once_pods_end[slot, entry.row] += max(0, amount - for_good[slot])
        ports.update((entry.row, port) for port in entry.pod.cls.ports)
    for resource, counted in cluster.classes.counted.items():
        for slot, scored in ((counted.slot, False), (counted.scored, True)):
            sums = cluster.limits.recomputed(resource, scored)
            claimed[slot, : table.size] = sums - held[slot, : table.size]
    problems = []
    for what, kept, right in (
        ("claimed", table.claimed, claimed + held),
        ("held", table.held, held),
        ("held_once_pods_end", table.held_once_pods_end, held_once_pods_end),
        ("daemon_requested", table.daemon_requested, daemon_requested),
    ):
        for slot, row in zip(*np.nonzero(kept != right), strict=True):
            problems.append(
                f"row {row} ({table.name(row)}): {what} {table.slots.name(slot)!r} "
                f"is {kept[slot, row]}, should be {right[slot, row]}"
            )
    kept_ports = Counter(
        {
            (row, port): count
            for row in range(table.size)
            for port, count in table.ports.in_use(row).items()
        }
    )
    if kept_ports != ports:
        problems.append(f"ports in use are {dict(kept_ports)}, should be {dict(ports)}")
    return problems


def _asked(cluster: Cluster, cls: PodClass) -> tuple[list[int], list[int]]:
    """The slots in which a pod of the class claims something, each once, and how much."""
    resized = bool(resized_resources(cls.pod))
    cpu, memory = nonzero(claimed_nonzero(cls.pod, resized))
    asked = {NONZERO_CPU: cpu, NONZERO_MEMORY: memory, PODS: 1}
    for resource, amount in pod_requests(cls.pod, use_status=resized).items():
        if amount and resource != "pods":  # a pod counts as one pod, whatever it requests
            asked[cluster.nodes.slot(resource)] = capped(amount)
    return [*asked], [*asked.values()]


def _pods(cluster: Cluster) -> list[str]:
    problems = []
    for row in range(cluster.nodes.size):
        there = cluster.ledger.pods.get(row, {}).values()
        lowest = min((pod.cls.priority for pod in there), default=NO_PODS)
        if cluster.nodes.lowest[row] != lowest:
            problems.append(f"row {row}: lowest priority is {cluster.nodes.lowest[row]}")
        held = cluster.ledger.reservations.on(row)
        lowest = min((entry.pod.cls.priority for entry in held), default=NO_PODS)
        if cluster.nodes.lowest_held[row] != lowest:
            problems.append(f"row {row}: lowest priority held is {cluster.nodes.lowest_held[row]}")
    for node, pods in cluster.nominator.items():
        problems += [
            f"{pod!r} is nominated for {node} by mistake"
            for pod in pods.values()
            if pod.nominated != node or cluster.pods.get(pod.uid) is not pod or pod.row >= 0
        ]
    on_rows = {uid: row for row, pods in cluster.ledger.pods.items() for uid in pods}
    for uid, pod in cluster.pods.items():
        if (pod.row < 0) != (pod.phase is Phase.PENDING):
            problems.append(f"{pod!r} is on row {pod.row}")
        if on_rows.pop(uid, -1) != pod.row:
            problems.append(f"{pod!r}: row {pod.row} does not list it")
        if cluster.pod(pod.namespace, pod.name) is not pod:
            problems.append(f"{pod!r} is not found by its name")
    problems.extend(f"pod {uid} is forgotten but still on row {row}" for uid, row in on_rows.items())
    return problems


def _columns(cluster: Cluster) -> list[str]:
    table = cluster.nodes
    problems = []
    images = Images(table.columns)
    for row, info in table.info.items():
        offered = {r: table.allocatable[s, row] for s, r in table.slots.resources()}
        if {r: a for r, a in offered.items() if a} != {r: a for r, a in info.allocatable.items() if a}:
            problems.append(f"Node/{info.name}: allocatable is {offered}")
        taints = table.taints[table.taint_set[row]]
        if [(t.key, t.value, t.effect) for t in taints] != [
            (t.key, t.value, t.effect) for t in info.taints
        ]:
            problems.append(f"Node/{info.name}: taints are {taints}")
        images.set(row, info.images)
    for column in table.labels.known():
        for row in range(table.size):
            code = column.codes[row]
            kept = column.values[code] if code >= 0 else None
            right = table.info[row].labels.get(column.key) if row in table.info else None
            if kept != right:
                problems.append(f"row {row}: label {column.key} is {kept!r}, should be {right!r}")
    names = {name for info in table.info.values() for name in info.images}
    for name in sorted(names):
        kept_image, right_image = table.images.get(name), images.get(name)
        if kept_image is None or right_image is None:
            problems.append(f"image {name} is not known")
        elif not np.array_equal(kept_image.present, right_image.present):
            problems.append(f"image {name} is on the wrong rows")
    if len(table.images) != len(names):
        problems.append("images are known that no node has")
    return problems


def present(cluster: Cluster) -> list[PodRecord]:
    """Pods and reserve pods that are on a row."""
    pods = [pod for pod in cluster.pods.values() if pod.row >= 0]
    return pods + [entry.pod for entry in cluster.ledger.reservations]


def _reservations(cluster: Cluster) -> list[str]:
    problems = []
    entries = {entry.pod.uid: entry for entry in cluster.ledger.reservations}
    for uid, reservation in cluster.reservations.known.items():
        pod, entry = reservation.pod, entries.pop(uid, None)
        row = pod.row if pod is not None else -1
        if (entry.row if entry is not None else -1) != row:
            problems.append(f"{reservation!r} is on row {row}, but holds capacity on another")
        if pod is not None and (row < 0) != (pod.phase is Phase.PENDING):
            problems.append(f"{reservation!r}: {pod!r} is on row {row}")
        if reservation.finished and entry is not None:
            problems.append(f"{reservation!r} is finished but holds capacity")
        if cluster.reservations.get(reservation.name) is not reservation:
            problems.append(f"{reservation!r} is not found by its name")
        if entry is not None and entry.amounts != reservation.amounts:
            problems.append(f"{reservation!r} holds {entry.amounts}, should be {reservation.amounts}")
        if entry is not None:
            left = {slot: entry.left(slot) for slot in entry.amounts}
            kept = {
                slot: int(cluster.ledger.reservations.left[slot, entry.index]) for slot in entry.amounts
            }
            if left != kept:
                problems.append(f"{reservation!r} has {left} left, the table has {kept}")
    problems.extend(
        f"{uid} is forgotten but holds capacity on row {entry.row}" for uid, entry in entries.items()
    )
    return problems


def _counters(cluster: Cluster) -> list[str]:
    problems = []
    for key, counter in cluster.topology.counters().items():
        if is_outdated(key, cluster):
            continue
        rows = np.zeros_like(counter.rows)
        for pod in present(cluster):
            if counter.counts(pod.cls):
                rows[pod.row] += 1
        if not np.array_equal(rows, counter.rows):
            problems.append(f"counter {key}: rows are {counter.rows}, should be {rows}")
        for label, totals in counter.recount().items():
            kept = counter.domains(cluster.nodes.labels.column(label))
            if not np.array_equal(kept, totals):
                problems.append(f"counter {key}: {label} is {kept}, should be {totals}")
    return problems


def _classes(cluster: Cluster) -> list[str]:
    reserving = [
        reservation.pod
        for reservation in cluster.reservations.known.values()
        if reservation.pod is not None
    ]
    refs = Counter(pod.cls.id for pod in (*cluster.pods.values(), *reserving))
    placed: dict[int, Counter[int]] = {}
    for pod in present(cluster):
        placed.setdefault(pod.cls.id, Counter())[pod.row] += 1
    problems = []
    for cls in cluster.classes:
        if cls.refs != refs[cls.id]:
            problems.append(f"class {cls.id}: {cls.refs} pods counted, {refs[cls.id]} there")
        if cls.placed != dict(placed.get(cls.id, {})):
            problems.append(f"class {cls.id}: placed is {cls.placed}")
    return problems


def interned(cluster: Cluster) -> dict[str, int]:
    """How many entries are interned by names that objects bring. Each is released with its last user,
    so that memory does not grow with names that come and go:

    classes         with their last pod; a few idle ones without names of their own are kept
    label columns   with the last compiled selector, topology term or constraint (weakly referenced)
    label values    with the last node that has the value
    counters        with the last compiled term or constraint (weakly referenced)
    slots           with the last node, class and reservation that has the resource (once a round)
    taint sets      with the last node
    images          with the last node
    host ports      with the last pod that uses the port
    owner specs     with the last reservation
    """
    nodes = cluster.nodes
    columns = list(nodes.labels.known())
    return {
        "classes": len(cluster.classes),
        "label columns": len(columns),
        "label values": sum(column.in_use() for column in columns),
        "counters": len(cluster.topology.counters()),
        "slots": nodes.slots.in_use(),
        "taint sets": nodes.taints.in_use(),
        "images": len(nodes.images),
        "host ports": len(nodes.ports),
        "owner specs": len(cluster.reservations.specs),
    }
