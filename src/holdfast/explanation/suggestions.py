"""Suggestions for an unschedulable pod.

A change is suggested only if the scheduler, asked again with the change made, finds the node eligible.
Capacity that is reserved for the pod itself does not count against it.
"""

from collections.abc import Callable, Iterable, Iterator
from typing import Any

import msgspec

from holdfast.api.affinity import Taint, Toleration
from holdfast.api.decode import convert
from holdfast.api.names import TAINT_UNSCHEDULABLE
from holdfast.api.node import Node
from holdfast.api.selectors import tolerated
from holdfast.explanation.report import NodeVerdicts, few
from holdfast.kube.object_client import Raw
from holdfast.scheduler.cluster.decisions import Preempt
from holdfast.scheduler.cluster.events import Updated
from holdfast.scheduler.cluster.pod_classes import Traits
from holdfast.scheduler.cluster.records import PodRecord, ReservationEntry
from holdfast.scheduler.cluster.slots import PODS
from holdfast.scheduler.framework.config.plugin_sets import NODE_RESOURCES_FIT
from holdfast.scheduler.framework.feasibility.compiled_class import RESERVED
from holdfast.scheduler.reservations.starvation_holds import pod_of
from holdfast.snapshot.cluster_snapshot import NODE, ClusterSnapshot, shown

_MOST = 5

Amounts = dict[int, int]


def help_for(snapshot: ClusterSnapshot, pod: PodRecord, placing: NodeVerdicts) -> list[str]:
    if not placing.message:
        return []
    wanted = [*_named_reservation(snapshot, pod)]
    if placing.column.rejected is not None:
        return wanted
    return [
        *wanted,
        *_preemption(snapshot, pod, placing),
        *_shortage(snapshot, pod, placing),
        *_barred(snapshot, placing),
        *_cordoned(snapshot, pod, placing),
        *_taints(snapshot, pod, placing),
    ]


def stopping_on(snapshot: ClusterSnapshot, node: str) -> list[str]:
    """The terminating pods that a nominated pod waits for."""
    cluster = snapshot.cluster
    row = cluster.nodes.row(node)
    if row is None:
        return [f"node {node} no longer exists"]
    pods = sorted(
        str(each.ref) for each in cluster.ledger.pods.get(row, {}).values() if each.cls.terminating
    )
    return [f"pods terminating on {node}: {', '.join(pods)}"] if pods else []


def _named_reservation(snapshot: ClusterSnapshot, pod: PodRecord) -> Iterator[str]:
    """What is wrong with the reservation the pod names, if it names one."""
    reservations = snapshot.cluster.reservations
    affinity = reservations.affinity(pod.cls)
    if pod.reservation is not None or not affinity.by_name:
        return
    reservation, matching = reservations.get(affinity.by_name), reservations.matching(pod.cls)
    if reservation is None:
        yield f"the reservation it names, {affinity.by_name}, does not exist"
    elif reservation.finished:
        yield f"the reservation it names, {reservation.name}, has ended"
    elif reservation.owner_spec_id >= 0 and reservation.owner_spec_id not in matching:
        yield f"the reservation it names, {reservation.name}, is for other owners (spec.owners)"


def _preemption(snapshot: ClusterSnapshot, pod: PodRecord, placing: NodeVerdicts) -> Iterator[str]:
    nomination = snapshot.scheduler.preemption.post_filter(placing.profile, pod, placing.column)
    victims = [each.pod for each in nomination.decisions if isinstance(each, Preempt)]
    if nomination.node and victims:
        names = ", ".join(str(victim) for victim in victims)
        yield f"it can preempt lower-priority pods on {nomination.node}: {names}"


def _shortage(snapshot: ClusterSnapshot, pod: PodRecord, placing: NodeVerdicts) -> Iterator[str]:
    """The smallest shortage, and the pods that have it, among nodes that it alone makes ineligible."""
    table = snapshot.cluster.nodes
    asked = {slot: amount for slot, amount in (*pod.cls.requests, (PODS, 1)) if amount}
    candidates = [
        name for name, rejection in placing.rejections.items() if rejection.plugin == NODE_RESOURCES_FIT
    ]
    if not candidates:
        return
    for slot, amount in asked.items():
        alive = (at for at in range(table.size) if table.alive[at])
        most = max((table.allocatable.item(slot, at) for at in alive), default=0)
        if amount > most:
            resource = table.slots.name(slot)
            yield (
                f"no node is large enough: it requests {shown(resource, amount)} {resource}, the most "
                f"a node has is {shown(resource, most)}"
            )
            return
    missing = {name: _missing(snapshot, pod, asked, _row(snapshot, name)) for name in candidates}
    larger = {name: _large_enough(snapshot, asked, _row(snapshot, name)) for name in candidates}
    eligible = eligible_on_changed_nodes(snapshot, pod, placing, candidates, enlarged(larger))
    ranked = sorted(
        (sum(lack / asked[slot] for slot, lack in missing[name].items()), name)
        for name in candidates
        if missing[name] and name in eligible
    )
    if not ranked:
        return
    nearest = ranked[0][1]
    texts = ", ".join(
        f"{shown(table.slots.name(slot), lack)} {table.slots.name(slot)}"
        for slot, lack in missing[nearest].items()
    )
    yield f"closest: {nearest}, short of {texts}"
    if holders := _holders(snapshot, pod, nearest, missing[nearest]):
        yield f"reservations for other owners hold that much there: {holders}"
        return
    for _, name in ranked[1:]:
        if holders := _holders(snapshot, pod, name, missing[name]):
            yield f"reservations for other owners hold that much on {name}: {holders}"
            return


def _row(snapshot: ClusterSnapshot, name: str) -> int:
    row = snapshot.cluster.nodes.row(name)
    assert row is not None
    return row


def _missing(snapshot: ClusterSnapshot, pod: PodRecord, asked: Amounts, row: int) -> Amounts:
    """The pod's shortage on a row, using the reservation there that leaves the smallest one."""
    table = snapshot.cluster.nodes
    free = {slot: table.allocatable.item(slot, row) - table.claimed.item(slot, row) for slot in asked}
    found = _lacking(asked, free)
    for entry in _own(snapshot, pod, row):
        beside = _lacking(asked, {slot: free[slot] + entry.left(slot) for slot in asked})
        if _share(beside, asked) < _share(found, asked):
            found = beside
    return found


def _lacking(asked: Amounts, free: Amounts) -> Amounts:
    return {slot: amount - free[slot] for slot, amount in asked.items() if amount > free[slot]}


def _share(lacking: Amounts, asked: Amounts) -> float:
    return sum(lack / asked[slot] for slot, lack in lacking.items())


def _large_enough(snapshot: ClusterSnapshot, asked: Amounts, row: int) -> dict[str, int]:
    """The capacity the node would need of each resource, including everything claimed there."""
    table = snapshot.cluster.nodes
    return {
        table.slots.name(slot): max(
            table.allocatable.item(slot, row), table.claimed.item(slot, row) + amount
        )
        for slot, amount in asked.items()
    }


def _own(snapshot: ClusterSnapshot, pod: PodRecord, row: int) -> Iterator[ReservationEntry]:
    """What is reserved on a row for the pod itself, usable now or once the reservation is Available."""
    cluster = snapshot.cluster
    reservations = cluster.reservations
    matching = reservations.matching(pod.cls)
    for entry in cluster.ledger.reservations.on(row):
        reservation = entry.reservation
        ready = reservation.waiting or reservations.is_usable(reservation)
        if reservation.owner_spec_id in matching and ready:
            yield entry


def _holders(snapshot: ClusterSnapshot, pod: PodRecord, name: str, missing: Amounts) -> str:
    """The reservations for others that hold the missing amount; empty if they hold less."""
    row = _row(snapshot, name)
    own = {entry.pod.uid for entry in _own(snapshot, pod, row)}
    others = [
        entry for entry in snapshot.cluster.ledger.reservations.on(row) if entry.pod.uid not in own
    ]
    if any(sum(entry.left(slot) for entry in others) < lack for slot, lack in missing.items()):
        return ""
    return ", ".join(
        sorted(entry.pod.name for entry in others if any(entry.left(slot) for slot in missing))
    )


def _barred(snapshot: ClusterSnapshot, placing: NodeVerdicts) -> Iterator[str]:
    """The jobs whose starvation holds exclude the pod from nodes."""
    found: dict[str, list[str]] = {}
    holds = snapshot.cluster.reservations.starvation_holds
    for name, rejection in placing.rejections.items():
        if RESERVED in rejection.texts:
            for entry in snapshot.cluster.ledger.reservations.on(_row(snapshot, name)):
                if holds.knows(entry.reservation):
                    found.setdefault(_held_for(snapshot, entry), []).append(name)
    for whom, nodes in sorted(found.items()):
        yield f"nodes with a starvation hold for {whom}: {few(sorted(set(nodes)), _MOST)}"


def _held_for(snapshot: ClusterSnapshot, entry: ReservationEntry) -> str:
    """The job of the pod a starvation hold is for, or the pod; the hold itself if that is gone."""
    pod = snapshot.cluster.pods.get(pod_of(entry.reservation))
    if pod is None:
        return entry.reservation.name
    return pod.job_name or str(pod.ref)


def _cordoned(snapshot: ClusterSnapshot, pod: PodRecord, placing: NodeVerdicts) -> Iterator[str]:
    nodes = [
        name
        for name, rejection in placing.rejections.items()
        if rejection.plugin == "NodeUnschedulable"
    ]
    if nodes:
        change = uncordoned(TAINT_UNSCHEDULABLE)
        eligible = eligible_on_changed_nodes(snapshot, pod, placing, nodes, change)
        if eligible:
            yield f"nodes that are cordoned (kubectl uncordon): {few(sorted(eligible), _MOST)}"


def _taints(snapshot: ClusterSnapshot, pod: PodRecord, placing: NodeVerdicts) -> Iterator[str]:
    found: dict[tuple[str, ...], tuple[list[Taint], list[str]]] = {}
    for name, rejection in placing.rejections.items():
        if rejection.plugin != "TaintToleration":
            continue
        taints = snapshot.cluster.nodes.info[_row(snapshot, name)].taints
        keeping = [
            taint
            for taint in taints
            if taint.effect in ("NoSchedule", "NoExecute") and not tolerated(taint, pod.cls.tolerations)
        ]
        if keeping:
            texts = tuple(sorted(map(_taint_text, keeping)))
            found.setdefault(texts, (keeping, []))[1].append(name)
    for texts, (keeping, nodes) in sorted(found.items()):
        eligible = eligible_with_tolerations(snapshot, pod, placing, keeping)
        helped = sorted(eligible.intersection(nodes))
        if helped:
            yield f"tolerating {' and '.join(texts)} would make {few(helped, _MOST)} eligible"


def _taint_text(taint: Taint) -> str:
    value = f"={taint.value}" if taint.value else ""
    return f"{taint.key}{value}:{taint.effect}"


# Checking suggestions: the scheduler of the snapshot is asked again with the pod or nodes changed. It
# decides nothing, and the changes are reverted.


def eligible_with_tolerations(
    snapshot: ClusterSnapshot, pod: PodRecord, placing: NodeVerdicts, taints: Iterable[Taint]
) -> set[str]:
    """The nodes that pass every filter once the pod tolerates these taints."""
    added = [
        Toleration(key=taint.key, operator="Equal", value=taint.value or "", effect=taint.effect)
        for taint in taints
    ]
    cls, classes = pod.cls, snapshot.cluster.classes
    given = cls.pod
    metadata = msgspec.structs.replace(given.metadata, name=pod.name, uid=pod.uid)
    spec = msgspec.structs.replace(given.spec, tolerations=[*given.spec.tolerations, *added])
    traits = Traits(
        cls.private,
        cls.owner_spec_id,
        cls.wants_node,
        cls.exclusive,
        cls.pre_allocation,
        cls.priority,
        cls.non_preemptible,
    )
    changed = classes.acquire(msgspec.structs.replace(given, metadata=metadata, spec=spec), traits)
    pod.cls = changed
    try:
        return _eligible(snapshot, pod, placing)
    finally:
        pod.cls = cls
        classes.release(changed)


def eligible_on_changed_nodes(
    snapshot: ClusterSnapshot,
    pod: PodRecord,
    placing: NodeVerdicts,
    names: Iterable[str],
    change: Callable[[str, Raw], Raw],
) -> set[str]:
    """Of these nodes, those that pass every filter once each is changed."""
    given = {name: raw for name in names if (raw := snapshot.find(NODE, name)) is not None}
    try:
        for name, raw in given.items():
            snapshot.scheduler.feed(Updated(convert(change(name, raw), Node)), snapshot.now)
        return _eligible(snapshot, pod, placing) & given.keys()
    finally:
        for raw in given.values():
            snapshot.scheduler.feed(Updated(convert(raw, Node)), snapshot.now)


def _eligible(snapshot: ClusterSnapshot, pod: PodRecord, placing: NodeVerdicts) -> set[str]:
    scheduler = snapshot.scheduler
    column = scheduler.columns.column(placing.profile, pod.cls)
    rejections = scheduler.search.rejections(placing.profile, pod, column)
    return {name for name, rejection in rejections.items() if not rejection.texts}


def uncordoned(taint: str) -> Callable[[str, Raw], Raw]:
    """Without `spec.unschedulable` and its taint."""

    def change(_: str, raw: Raw) -> Raw:
        spec: dict[str, Any] = {**(raw.get("spec") or {}), "unschedulable": False}
        spec["taints"] = [each for each in spec.get("taints") or () if each.get("key") != taint]
        return {**raw, "spec": spec}

    return change


def enlarged(missing: dict[str, dict[str, int]]) -> Callable[[str, Raw], Raw]:
    """With that much more allocatable, by node and resource; cpu in thousandths."""

    def change(name: str, raw: Raw) -> Raw:
        status = raw.get("status") or {}
        allocatable = {
            **(status.get("allocatable") or {}),
            **{
                resource: f"{amount}m" if resource == "cpu" else str(amount)
                for resource, amount in missing[name].items()
            },
        }
        return {**raw, "status": {**status, "allocatable": allocatable}}

    return change
