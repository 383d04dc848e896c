"""Changes that make a matching reservation usable for a pod, or the pod independent of reservations."""

import json
from collections.abc import Iterator

import msgspec

from holdfast.api.annotations import ReservationAffinity
from holdfast.api.names import (
    EXACT_MATCH_RESERVATION,
    RESERVATION_AFFINITY,
    RESERVATION_RESIZE_ALLOCATABLE,
)
from holdfast.api.quantity import format_amount
from holdfast.api.similar_names import nearest
from holdfast.explanation.advice.advisor import Advisor
from holdfast.explanation.advice.smaller_requests import resize
from holdfast.explanation.facts.capacity import free_on, requested, row_of
from holdfast.explanation.facts.matching_reservations import (
    UNTOLERATED,
    has_labels,
    taints_text,
)
from holdfast.explanation.facts.near_owners import near_owner
from holdfast.explanation.facts.node_labels import unmet_labels
from holdfast.explanation.facts.other_pods import siblings, uncreated_replicas
from holdfast.explanation.repairs.node_repairs import settings_repairs
from holdfast.explanation.repairs.owner_corrections import owner_corrections
from holdfast.explanation.repairs.repair import (
    CONFIGURE,
    DELETE_RESERVATION,
    RESIZE,
    Repair,
    metadata_changes,
    repair,
    spec_changes,
)
from holdfast.explanation.verdicts import NodeVerdicts, Subject
from holdfast.kube.object_client import Raw
from holdfast.scheduler.cluster.records import PodRecord
from holdfast.scheduler.cluster.slots import PODS
from holdfast.scheduler.plugins.reservation import REASON_SAME_REUSABLE
from holdfast.scheduler.reservations import ReservationInfo
from holdfast.scheduler.reservations.reservation_affinity import NOT_EXACT, UNSCHEDULABLE
from holdfast.snapshot.cluster_changes import delete, patch
from holdfast.snapshot.cluster_snapshot import RESERVATION, ClusterSnapshot, shown

_NODES = 3
_REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
_OTHER_TERMS = (
    ("allocatePolicy", "Aligned", "set allocatePolicy: Aligned, so that a node may have several"),
    ("allocateOnce", True, "set allocateOnce: true, if one pod is to use it"),
)
"""Fields with which a reservation may be on a node beside another one with the same owners."""


def consider_reservations(snapshot: ClusterSnapshot, subject: Subject, advisor: Advisor) -> None:
    """Proposes changes that make a matching reservation usable, or the pod independent of them."""
    pod = subject.record(snapshot)
    if pod is None or pod.reservation is not None:
        return
    for each in _repairs(snapshot, subject, pod):
        advisor.propose(each)
    for row in _rows_of_usable(snapshot, pod):
        repairs = settings_repairs(snapshot, subject, pod, row)
        if not (repairs and advisor.propose(*repairs)):
            any(map(advisor.propose, _without_selector(snapshot, subject, pod, row)))


def consider_same_owners(
    snapshot: ClusterSnapshot, pod: PodRecord, placing: NodeVerdicts, advisor: Advisor
) -> None:
    """For a reusable reservation that is kept off a node by another one with the same owners: other
    terms for it, or the other one deleted."""
    own = pod.reservation
    nodes = sorted(n for n, each in placing.rejections.items() if REASON_SAME_REUSABLE in each.texts)
    raw = snapshot.find(RESERVATION, own.name) if own is not None else None
    if own is None or raw is None or not nodes:
        return
    others = sorted(
        (name, entry.reservation.name)
        for name in nodes[:_NODES]
        for entry in snapshot.cluster.ledger.reservations.on(row_of(snapshot, name))
        if entry.reservation.owner_spec_id == own.owner_spec_id and entry.pod.cls.exclusive
    )
    for field, value, text in _OTHER_TERMS:
        change = patch(RESERVATION, raw, {"spec": {field: value}})
        advisor.propose(repair(text, "SetTerms", [change]))
    for node, other in others:
        text, deleted = f"delete the reservation {other} on {node}", [delete(RESERVATION, other)]
        made = repair(text, "DeleteReservation", deleted, DELETE_RESERVATION)
        if advisor.propose_once(("Delete",), made):
            return


def consider_owners(snapshot: ClusterSnapshot, pod: PodRecord, advisor: Advisor) -> Iterator[str]:
    """Proposes the owners that reservations should name for the pod; facts about what they name."""
    for each in owner_corrections(snapshot, pod):
        if each.fact:
            yield each.fact
        advisor.propose(each.repair)


def _rows_of_usable(snapshot: ClusterSnapshot, pod: PodRecord) -> Iterator[int]:
    """The nodes of the reservations that a pod requires and that accept it."""
    reservations = snapshot.cluster.reservations
    affinity, matching = reservations.affinity(pod.cls), reservations.matching(pod.cls)
    for reservation in sorted(reservations.known.values(), key=lambda each: each.name):
        entry = reservation.entry
        if entry is None or not affinity.required or reservation.owner_spec_id not in matching:
            continue
        if reservations.is_usable(reservation) and not affinity.refusal(
            reservation, reservations.node_labels(entry.row)
        ):
            yield entry.row


def _without_selector(
    snapshot: ClusterSnapshot, subject: Subject, pod: PodRecord, row: int
) -> Iterator[Repair]:
    """The pod without the node selector that the node of its reservation does not meet."""
    unmet, _ = unmet_labels(snapshot, pod, row)
    if unmet:
        body = {"nodeSelector": dict.fromkeys(unmet)}
        labels = ",".join(f"{key}={value}" for key, value in sorted(unmet.items()))
        node = snapshot.cluster.nodes.name(row)
        text = f"remove nodeSelector {labels}, which {node} with its reservation does not meet"
        objects = spec_changes(snapshot, subject, lambda spec: body)
        yield repair(text, "RemoveSelector", objects)


def reservation_repairs(
    snapshot: ClusterSnapshot, subject: Subject, pod: PodRecord, row: int
) -> Iterator[Repair]:
    """Changes that make a reservation on a row usable, or the pod independent of them."""
    if pod.reservation is not None:
        return
    for each in owner_corrections(snapshot, pod):
        if each.row == row:
            yield each.repair
    yield from _repairs(snapshot, subject, pod, row)


def _repairs(
    snapshot: ClusterSnapshot, subject: Subject, pod: PodRecord, row: int | None = None
) -> Iterator[Repair]:
    """Of all matching reservations, or of those on one row."""
    reservations = snapshot.cluster.reservations
    affinity, matching = reservations.affinity(pod.cls), reservations.matching(pod.cls)
    for reservation in sorted(reservations.known.values(), key=lambda each: each.name):
        is_matched = reservation.owner_spec_id in matching
        if reservation.finished or reservation.entry is None:
            continue
        if row is not None and reservation.entry.row != row:
            continue
        if is_matched and reservations.is_usable(reservation):
            yield from _usable(snapshot, subject, pod, reservation)
        elif affinity.by_name == reservation.name and not is_matched:
            yield from _become_owner(snapshot, subject, reservation)
        elif is_matched or (near := near_owner(snapshot, pod, reservation)) is None:
            continue
        elif near.has_pods or not near.is_shared:
            yield _relabelled(snapshot, subject, pod, reservation, near.labels)
    if affinity.by_name and reservations.get(affinity.by_name) is None:
        names = [each.name for each in reservations.known.values() if not each.finished]
        for name in nearest(affinity.by_name, names):
            text = json.dumps({"name": name})
            body = {"annotations": {RESERVATION_AFFINITY: text}}
            objects = metadata_changes(snapshot, subject, body)
            yield repair(f"name the reservation {name} in {RESERVATION_AFFINITY}", "Annotate", objects)
    yield from _other_selector(snapshot, subject, pod)
    yield from _other_terms(snapshot, subject, pod)
    if affinity.error:
        yield from _other_fields(snapshot, subject, pod)
    if affinity.required or affinity.error:
        removed = {"annotations": {RESERVATION_AFFINITY: None}}
        text = f"remove the annotation {RESERVATION_AFFINITY}, so that it may use free capacity"
        yield repair(text, "RemoveAnnotation", metadata_changes(snapshot, subject, removed))


def _other_fields(snapshot: ClusterSnapshot, subject: Subject, pod: PodRecord) -> Iterator[Repair]:
    """The annotation with the nearest fields that exist in place of misspelt ones."""
    try:
        given = json.loads(pod.cls.annotations.get(RESERVATION_AFFINITY) or "{}")
    except ValueError:
        return
    known = [each.encode_name for each in msgspec.structs.fields(ReservationAffinity)]
    unknown = [each for each in given if each not in known] if isinstance(given, dict) else []
    right = {each: near[0] for each in unknown if (near := nearest(each, known))}
    if right:
        text = json.dumps({right.get(key, key): value for key, value in given.items()})
        objects = metadata_changes(snapshot, subject, {"annotations": {RESERVATION_AFFINITY: text}})
        fields = ", ".join(f"{new} instead of {old}" for old, new in right.items())
        yield repair(f"write {fields} in {RESERVATION_AFFINITY}", "Annotate", objects)


def _other_selector(snapshot: ClusterSnapshot, subject: Subject, pod: PodRecord) -> Iterator[Repair]:
    """The nearest labels of reservations in place of those that it requires and none has; or these
    labels for a reservation that has no others."""
    reservations = snapshot.cluster.reservations
    affinity, matching = reservations.affinity(pod.cls).affinity, reservations.matching(pod.cls)
    wanted = affinity.reservation_selector if affinity is not None else {}
    some = [each for each in reservations.known.values() if each.owner_spec_id in matching]
    if not wanted or any(has_labels(each, wanted) for each in some):
        return
    known = [each.object.metadata.labels for each in some]
    right: dict[str, str] = {}
    for key, value in wanted.items():
        names = {name for labels in known for name in labels}
        near_key = key if key in names else next(iter(nearest(key, names)), key)
        values = {labels[near_key] for labels in known if near_key in labels}
        right[near_key] = value if value in values else next(iter(nearest(value, values)), value)
    if right != wanted:
        given = json.loads(pod.cls.annotations[RESERVATION_AFFINITY])
        body = {RESERVATION_AFFINITY: json.dumps({**given, "reservationSelector": right})}
        labels = ",".join(f"{key}={value}" for key, value in sorted(right.items()))
        objects = metadata_changes(snapshot, subject, {"annotations": body})
        yield repair(f"require {labels} in its {RESERVATION_AFFINITY}", "Annotate", objects)
        return
    for each in sorted(some, key=lambda each: each.name):
        has, raw = each.object.metadata.labels, snapshot.find(RESERVATION, each.name)
        lacking = {key: value for key, value in wanted.items() if key not in has}
        if raw is None or each.finished or {**has, **lacking} != {**has, **wanted}:
            continue  # another value says that it is for others
        labels = " ".join(f"{key}={value}" for key, value in sorted(lacking.items()))
        text = f"label reservation {each.name} (kubectl label reservation {each.name} {labels})"
        change = patch(RESERVATION, raw, {"metadata": {"labels": lacking}})
        yield repair(text, "LabelReservation", [change])


def _other_terms(snapshot: ClusterSnapshot, subject: Subject, pod: PodRecord) -> Iterator[Repair]:
    """The nearest labels of reservations, or of their nodes, in the terms of which none is met."""
    reservations = snapshot.cluster.reservations
    affinity, matching = reservations.affinity(pod.cls).affinity, reservations.matching(pod.cls)
    required = affinity.required_during_scheduling_ignored_during_execution if affinity else None
    if required is None:
        return
    known = [
        {**reservations.node_labels(each.pod.row), **each.object.metadata.labels}
        for each in reservations.known.values()
        if each.owner_spec_id in matching and each.pod is not None and each.pod.row >= 0
    ]
    given = json.loads(pod.cls.annotations[RESERVATION_AFFINITY])
    texts = []
    for term in given[_REQUIRED]["reservationSelectorTerms"]:
        for each in term.get("matchExpressions") or ():
            right = _near_expression(each, known)
            if right != each:
                values = f" ({', '.join(right['values'])})" if right.get("values") else ""
                texts.append(f"{right['key']} {right['operator']}{values}")
                each.update(right)
    if texts:
        body = {"annotations": {RESERVATION_AFFINITY: json.dumps(given)}}
        text = f"require {' and '.join(texts)} in its {RESERVATION_AFFINITY}"
        yield repair(text, "Annotate", metadata_changes(snapshot, subject, body))


def _near_expression(each: Raw, known: list[dict[str, str]]) -> Raw:
    """With the nearest label, and the nearest of its values in place of those that nothing has."""
    if each["operator"] not in ("In", "Exists"):
        return each
    names = {name for labels in known for name in labels}
    key = each["key"] if each["key"] in names else next(iter(nearest(each["key"], names)), each["key"])
    there = {labels[key] for labels in known if key in labels}
    values = list(each.get("values") or ())
    if there.intersection(values) or not values:
        return {**each, "key": key}
    right = [next(iter(nearest(value, there)), value) for value in values]
    return {**each, "key": key, "values": list(dict.fromkeys(right))}


def _usable(
    snapshot: ClusterSnapshot,
    subject: Subject,
    pod: PodRecord,
    reservation: ReservationInfo,
) -> Iterator[Repair]:
    """Changes for a reservation that is Available and matches, but is refused."""
    cluster, name = snapshot.cluster, reservation.name
    entry, record = reservation.entry, reservation.pod
    raw = snapshot.find(RESERVATION, name)
    if entry is None or record is None or raw is None:
        return
    reservations = cluster.reservations
    refusal = reservations.affinity(pod.cls).refusal(reservation, reservations.node_labels(record.row))
    slots, asked = cluster.nodes.slots, requested(pod)
    if refusal == UNSCHEDULABLE and not reservation.terminating:
        change = patch(RESERVATION, raw, {"spec": {"unschedulable": False}})
        yield repair(
            f"set spec.unschedulable: false in reservation {name}", "OpenReservation", [change]
        )
    elif refusal.startswith(UNTOLERATED):
        added = [
            {"key": t.key, "operator": "Equal", "value": t.value or "", "effect": t.effect}
            for t in reservation.taints
        ]
        objects = spec_changes(
            snapshot, subject, lambda spec: {"tolerations": [*(spec.get("tolerations") or ()), *added]}
        )
        text = f"tolerate {taints_text(reservation)}, a taint of reservation {name}"
        yield repair(text, "Tolerate", objects, CONFIGURE)
    elif refusal == NOT_EXACT and EXACT_MATCH_RESERVATION in pod.cls.annotations:
        removed = {"annotations": {EXACT_MATCH_RESERVATION: None}}
        text = (
            f"remove the annotation {EXACT_MATCH_RESERVATION}, which reservation {name} does not meet"
        )
        yield repair(text, "RemoveAnnotation", metadata_changes(snapshot, subject, removed))
        sizes = reservations.affinity(pod.cls).unequal(reservation)
        if all(own and has for own, has in sizes.values()):
            same = resize(snapshot, subject, sizes, exactly=True)
            if same is not None:
                yield same._replace(text=f"{same.text}, exactly what reservation {name} has")
    elif not refusal:
        if (larger := _beside_free(snapshot, subject, pod, reservation)) is not None:
            yield larger
        bound = entry.remaining
        lowered = {
            slots.name(slot): (amount, bound[slot])
            for slot, amount in asked.items()
            if slot != PODS and slot in bound and bound[slot] < amount
        }
        if lowered and (smaller := resize(snapshot, subject, lowered)) is not None:
            yield smaller._replace(text=f"{smaller.text}, as reservation {name} has")
        others = [each.record(snapshot) for each in siblings(snapshot, subject)]
        waiting = 1 + sum(each is not None and each.row < 0 for each in others)
        waiting += len(uncreated_replicas(snapshot, subject, len(others)))
        made = (_enlarged(snapshot, pod, reservation, n) for n in dict.fromkeys((waiting, 1)))
        yield from filter(None, made)


def _beside_free(
    snapshot: ClusterSnapshot, subject: Subject, pod: PodRecord, reservation: ReservationInfo
) -> Repair | None:
    """Requests as large as what the reservation has left and, of resources that it does not restrict,
    what is free on its node besides; None if that is no more than the reservation has."""
    entry, slots = reservation.entry, snapshot.cluster.nodes.slots
    assert entry is not None
    bound, restricted = entry.remaining, reservation.restricted or frozenset()
    asked, free = requested(pod), free_on(snapshot, pod, entry.row)
    most = {
        slot: bound[slot] + (0 if slot in restricted else free[slot])
        for slot in asked
        if slot != PODS and slot in bound
    }
    lowered = {slot: then for slot, then in most.items() if then < asked[slot]}
    if all(then <= bound[slot] for slot, then in lowered.items()):
        return None
    return resize(
        snapshot, subject, {slots.name(slot): (asked[slot], then) for slot, then in lowered.items()}
    )


def _enlarged(
    snapshot: ClusterSnapshot, pod: PodRecord, reservation: ReservationInfo, count: int
) -> Repair | None:
    """A Restricted reservation with as much as it has too little of for so many such pods; None if its
    node has too little free."""
    entry, annotations = reservation.entry, reservation.object.metadata.annotations
    restricted = reservation.restricted or frozenset()
    if entry is None or not restricted or RESERVATION_RESIZE_ALLOCATABLE in annotations:
        return None
    cluster, subject = snapshot.cluster, Subject(RESERVATION, reservation.name)
    larger = {
        slot: entry.amounts[slot] + count * amount - entry.left(slot)
        for slot, amount in requested(pod).items()
        if slot != PODS and slot in restricted and entry.left(slot) < count * amount
    }
    if not larger or not cluster.reservations.has_capacity(reservation, {**entry.amounts, **larger}):
        return None
    slots = cluster.nodes.slots
    sizes = {slots.name(slot): (entry.amounts[slot], amount) for slot, amount in larger.items()}
    made = resize(snapshot, subject, sizes, exactly=True)
    if made is None:
        return None
    amounts = {name: format_amount(name, then) for name, (_, then) in sizes.items()}
    status = patch(
        RESERVATION, subject.raw(snapshot), {"status": {"allocatable": amounts}}, follows=True
    )
    figures = ", ".join(
        f"{shown(name, then)} {name} instead of {shown(name, now)}"
        for name, (now, then) in sizes.items()
    )
    text = f"enlarge reservation {reservation.name} to {figures}, in its template"
    return repair(text, "EnlargeReservation", [*made.change.objects, status], RESIZE)


def _relabelled(
    snapshot: ClusterSnapshot,
    subject: Subject,
    pod: PodRecord,
    reservation: ReservationInfo,
    meant: dict[str, tuple[str, str]],
) -> Repair:
    """The pod with the labels of the owners in place of those that it misspells."""
    labels: dict[str, str | None] = {key: None for key, _ in meant.values()}
    labels |= {key: value for key, (_, value) in meant.items()}
    texts = [
        f"{key}={value} instead of {has}={pod.cls.labels[has]}" for key, (has, value) in meant.items()
    ]
    objects = metadata_changes(snapshot, subject, {"labels": labels})
    text = f"label the pod {' and '.join(texts)}, which reservation {reservation.name} is for"
    return repair(text, "LabelPod", objects)


def _become_owner(
    snapshot: ClusterSnapshot, subject: Subject, reservation: ReservationInfo
) -> Iterator[Repair]:
    """The labels that make the pod an owner."""
    for owner in reservation.object.spec.owners:
        selector = owner.label_selector
        if owner.object is None and owner.controller is None and selector and selector.match_labels:
            labels = dict(selector.match_labels)
            text = ",".join(f"{key}={value}" for key, value in sorted(labels.items()))
            objects = metadata_changes(snapshot, subject, {"labels": labels})
            yield repair(
                f"label the pod {text}, which reservation {reservation.name} is for",
                "LabelPod",
                objects,
            )
            return
