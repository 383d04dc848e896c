"""Reservations whose owners a pod only misses by a misspelt label, or by its namespace."""

import re
from collections.abc import Iterator, Mapping
from typing import NamedTuple

from holdfast.api.meta import LabelSelector
from holdfast.api.similar_names import nearest
from holdfast.explanation.facts.holders import held_for
from holdfast.scheduler.cluster.records import PodRecord
from holdfast.scheduler.reservations import ReservationInfo
from holdfast.snapshot.cluster_snapshot import ClusterSnapshot

_NUMBER = re.compile(r"\d+")
_WORKLOADS = ("Deployment", "ReplicaSet", "StatefulSet", "DaemonSet", "Job")


def near_owners(snapshot: ClusterSnapshot, pod: PodRecord) -> Iterator[str]:
    """Reservations whose owners the pod misses by a misspelt label, or by its namespace."""
    reservations = snapshot.cluster.reservations
    matching = reservations.matching(pod.cls)
    for each in sorted(reservations.known.values(), key=lambda each: each.name):
        if each.finished or pod.reservation is not None or each.owner_spec_id in matching:
            continue
        if (near := near_owner(snapshot, pod, each)) is not None:
            hint = ",".join(f"{key}={value}" for key, (_, value) in sorted(near.labels.items()))
            has = ",".join(f"{key}={pod.cls.labels[key]}" for key, _ in near.labels.values())
            if near.has_pods:
                yield f"{_not_for(snapshot, each)} has {has}; did you mean {hint}?"
            else:
                whom = held_for(snapshot, each)
                yield f"reservation {each.name} is for {whom}, but no pod has {hint}; the pod has {has}"
        elif namespaces := other_namespaces(pod, each):
            yield (
                f"{_not_for(snapshot, each)} has these labels, but is in namespace {pod.namespace}: "
                f"create it in {' or '.join(namespaces.values())}, or add its namespace to spec.owners"
            )


def _not_for(snapshot: ClusterSnapshot, reservation: ReservationInfo) -> str:
    return f"reservation {reservation.name} is for {held_for(snapshot, reservation)}; the pod"


class NearOwner(NamedTuple):
    """Owners of a reservation whose labels are almost those of a pod."""

    at: int
    """The entry of `spec.owners`."""
    labels: dict[str, tuple[str, str]]
    """By label of the owners that the pod does not have, the similar one that it has, and the value of
    the owners."""
    has_pods: bool
    """Whether pods or workloads have the labels of the owners, so that the pod misspells them."""
    is_shared: bool
    """Whether other pods have the labels of the pod, so that the owners misspell them unless they have
    pods; also if it is of a workload, whose selector has the labels of its pods."""


def near_owner(
    snapshot: ClusterSnapshot, pod: PodRecord, reservation: ReservationInfo
) -> NearOwner | None:
    """None if the pod lacks labels of all owners that it has nothing similar to."""
    for at, owner in enumerate(reservation.object.spec.owners):
        selector, place = owner.label_selector, owner.object
        wanted = _wanted_labels(selector) if selector is not None else None
        if owner.controller is not None or wanted is None:
            continue
        if place is not None and (place.name or place.uid or place.namespace != pod.namespace):
            continue
        labels = _near_labels(pod, wanted)
        if labels:
            known = list(_known_labels(snapshot, pod, place.namespace if place is not None else ""))
            has_pods = any(_has_one(each, wanted) for each in known)
            own = {key: pod.cls.labels[key] for key, _ in labels.values()}
            is_shared = any(each.controller for each in pod.cls.owners)
            return NearOwner(at, labels, has_pods, is_shared or any(_has(each, own) for each in known))
    return None


def _wanted_labels(selector: LabelSelector) -> dict[str, list[str]] | None:
    """By label, the values of which an owner has one; None if it must meet something else."""
    found = {key: [value] for key, value in selector.match_labels.items()}
    for each in selector.match_expressions:
        if each.operator != "In" or each.key in found:
            return None
        found[each.key] = list(each.values)
    return found


def _near_labels(pod: PodRecord, wanted: dict[str, list[str]]) -> dict[str, tuple[str, str]]:
    found: dict[str, tuple[str, str]] = {}
    for key, values in wanted.items():
        has = pod.cls.labels.get(key)
        if has in values:
            continue
        keys = [key] if has is not None else nearest(key, pod.cls.labels)
        near = [
            (own, value) for own in keys for value in values if _is_like(pod.cls.labels[own], value)
        ]
        if not near:
            return {}
        found[key] = near[0]
    return found


def _known_labels(
    snapshot: ClusterSnapshot, pod: PodRecord, namespace: str
) -> Iterator[Mapping[str, str]]:
    """The labels of all other pods, and of the templates of workloads."""
    for other in snapshot.cluster.pods.values():
        if other is not pod and not other.reservation and namespace in ("", other.namespace):
            yield other.cls.labels
    for (_, kind), raws in snapshot.objects.items():
        for (where, _), raw in raws.items() if kind in _WORKLOADS else ():
            template = (raw.get("spec") or {}).get("template") or {}
            if namespace in ("", where):
                yield (template.get("metadata") or {}).get("labels") or {}


def has_pods(
    snapshot: ClusterSnapshot, pod: PodRecord, labels: Mapping[str, str], namespace: str
) -> bool:
    """Whether other pods, or workloads, of the namespace have these labels."""
    return any(_has(each, labels) for each in _known_labels(snapshot, pod, namespace))


def _has_one(labels: Mapping[str, str], wanted: Mapping[str, list[str]]) -> bool:
    return all(labels.get(key) in values for key, values in wanted.items())


def _has(labels: Mapping[str, str], wanted: Mapping[str, str]) -> bool:
    return all(labels.get(key) == value for key, value in wanted.items())


def _is_like(has: str, value: str) -> bool:
    """Whether one may be a misspelling of the other: shard-1 and shard-2 are two shards."""
    is_numbered = has != value and all(_NUMBER.search(each) for each in (has, value))
    if is_numbered and _NUMBER.sub("", has) == _NUMBER.sub("", value):
        return False
    return has == value or bool(nearest(has, [value]))


def other_namespaces(pod: PodRecord, reservation: ReservationInfo) -> dict[int, str]:
    """By entry of `spec.owners`, the namespaces of owners whose labels the pod has."""
    found = {}
    for at, owner in enumerate(reservation.object.spec.owners):
        namespace = owner.object.namespace if owner.object is not None else ""
        labels = owner.label_selector.match_labels if owner.label_selector is not None else {}
        if namespace and namespace != pod.namespace and labels and _has(pod.cls.labels, labels):
            found[at] = namespace
    return found
