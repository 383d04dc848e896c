"""Whether a pod is among the owners of a reservation."""

from collections.abc import Mapping
from typing import Any

from holdfast.sim.audit.facts import PodFacts, ReservationFacts

Raw = dict[str, Any]

_ID = "scheduling.koordinator.sh/reservation-id"
_REQUIREMENT = "scheduling.koordinator.sh/new-reservation-requirement"


def owns(pod: PodFacts, reservation: ReservationFacts) -> bool:
    return any(_matches(pod, owner) for owner in reservation.owners) or _asked_for(pod, reservation)


def selects(selector: Raw, labels: Mapping[str, str]) -> bool:
    """A LabelSelector."""
    for key, value in (selector.get("matchLabels") or {}).items():
        if labels.get(key) != value:
            return False
    return all(expression(each, labels) for each in selector.get("matchExpressions") or ())


def expression(each: Raw, labels: Mapping[str, str]) -> bool:
    """One requirement of a label or node selector."""
    key, operator, values = each.get("key", ""), each.get("operator"), each.get("values") or ()
    has, value = key in labels, labels.get(key)
    if operator == "In":
        return has and value in values
    if operator == "NotIn":
        return value not in values
    if operator == "Exists":
        return has
    if operator == "DoesNotExist":
        return not has
    if operator in ("Gt", "Lt") and has and values:
        try:
            left, right = int(value or ""), int(values[0])
        except ValueError:
            return False
        return left > right if operator == "Gt" else left < right
    return False


def _matches(pod: PodFacts, owner: Raw) -> bool:
    """What one entry says must all hold."""
    object = owner.get("object")
    if object is not None and not _is_object(pod, object):
        return False
    controller = owner.get("controller")
    if controller is not None and not _is_controlled(pod, controller):
        return False
    selector = owner.get("labelSelector")
    return selector is None or selects(selector, pod.labels)


def _is_object(pod: PodFacts, wanted: Raw) -> bool:
    is_ = {
        "uid": pod.uid,
        "name": pod.name,
        "namespace": pod.namespace,
        "apiVersion": "v1",
        "kind": "Pod",
    }
    return all(not wanted.get(field) or wanted[field] == value for field, value in is_.items())


def _is_controlled(pod: PodFacts, wanted: Raw) -> bool:
    if wanted.get("namespace") and wanted["namespace"] != pod.namespace:
        return False
    fields = ("uid", "name", "kind", "apiVersion")
    return any(
        all(not wanted.get(field) or wanted[field] == each.get(field) for field in fields)
        for each in pod.owner_references
    )


def _asked_for(pod: PodFacts, reservation: ReservationFacts) -> bool:
    """A pod gets the reservation it asked for, whatever that says of its owners."""
    known = reservation.labels.get(_ID) or reservation.annotations.get(_ID)
    return bool(known) and f'"{known}"' in pod.annotations.get(_REQUIREMENT, "")
