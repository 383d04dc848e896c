"""Which job a pod, or a reservation, says it belongs to, and what it says of that job.

A PodGroup is named by label or annotation; those of the two API groups by different ones. A gang by
annotations, or by the labels of lightweight coscheduling, needs no PodGroup: its members say how many
of them must be there.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from holdfast.api import names
from holdfast.api.decode import decode_json
from holdfast.api.duration import parse_duration
from holdfast.api.errors import DurationError, InvalidObject
from holdfast.api.label_selectors import as_integer
from holdfast.api.meta import ObjectMeta

VOLCANO = names.VOLCANO_API.partition("/")[0]
SIGS = names.SIGS_PODGROUP_API.partition("/")[0]

_VOLCANO_KEYS = (names.VOLCANO_GROUP_NAME_ANNOTATION, names.GROUP_NAME_ANNOTATION)
KEYS = frozenset((*_VOLCANO_KEYS, names.GANG_NAME, names.POD_GROUP_LABEL, names.LIGHT_GROUP_NAME))
"""Labels and annotations by which a job may be named."""


class JobName(NamedTuple):
    family: str
    """The API group whose PodGroup is meant; the other one's will do where there is none."""
    namespace: str
    name: str

    def __str__(self) -> str:
        return f"PodGroup/{self.namespace}/{self.name}"


class Bond(NamedTuple):
    """How a gang hangs together."""

    partners: frozenset[JobName] = frozenset()
    """The gangs that must be ready together with it, itself among them."""
    policy: str = ""
    """Which members count: all that have a place or did their work, unless it says otherwise."""


UNBOUND = Bond()


class Declared(NamedTuple):
    """What the annotations of a gang's members say."""

    min_member: int
    total: int
    """How many there will be; 0 if that is not said."""
    timeout: float | None
    bond: Bond


def named_in(meta: ObjectMeta, namespace: str = "") -> JobName | None:
    """The job, if one is named."""
    labels, annotations = meta.labels, meta.annotations
    if KEYS.isdisjoint(labels) and KEYS.isdisjoint(annotations):
        return None
    if annotations:
        name = annotations.get(names.GANG_NAME)
        if name:
            return JobName(SIGS, namespace or meta.namespace, name)
        for key in _VOLCANO_KEYS:
            name = annotations.get(key)
            if name:
                return JobName(VOLCANO, namespace or meta.namespace, name)
        name = annotations.get(names.POD_GROUP_LABEL)
        if name:
            return JobName(SIGS, namespace or meta.namespace, name)
    if labels:
        keys = (names.POD_GROUP_LABEL, names.LIGHT_GROUP_NAME, names.GANG_NAME)
        name = next((labels[key] for key in keys if labels.get(key)), "")
        if name:
            return JobName(SIGS, namespace or meta.namespace, name)
        name = labels.get(names.GROUP_NAME_ANNOTATION)
        if name:
            return JobName(VOLCANO, namespace or meta.namespace, name)
    return None


def declared_in(meta: ObjectMeta, namespace: str) -> Declared | None:
    """What a member says of its gang; None if it leaves that to a PodGroup."""
    annotations = meta.annotations
    given = meta.labels.get(names.LIGHT_GROUP_MIN_AVAILABLE)
    least = as_integer(given or annotations.get(names.GANG_MIN_AVAILABLE, ""))
    if least is None or least < 0:
        return None
    total = as_integer(annotations.get(names.GANG_TOTAL_NUMBER, "")) or 0
    return Declared(least, max(0, total), _timeout(annotations), bond_in(annotations, namespace))


def bond_in(annotations: Mapping[str, str], namespace: str) -> Bond:
    """What the annotations of members, or of a PodGroup, say of it."""
    keys = (names.GANG_MATCH_POLICY, names.LIGHT_GROUP_MATCH_POLICY)
    policy = next((annotations[key] for key in keys if annotations.get(key)), "")
    return Bond(_partners(annotations, namespace), policy)


def _timeout(annotations: Mapping[str, str]) -> float | None:
    try:
        return max(0.0, parse_duration(annotations.get(names.GANG_WAITING_TIME, "")))
    except DurationError:
        return None


def _partners(annotations: Mapping[str, str], namespace: str) -> frozenset[JobName]:
    text = annotations.get(names.GANG_GROUPS)
    if text is None:
        return frozenset()
    try:
        listed = decode_json(text, list[str])
    except InvalidObject:
        return frozenset()
    split = [each.rpartition("/") for each in listed]
    return frozenset(JobName(SIGS, ns or namespace, name) for ns, _, name in split if name)
