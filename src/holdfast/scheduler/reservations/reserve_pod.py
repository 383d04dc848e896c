"""The reserve pod of a reservation, and the terms on which owners are allocated from it."""

from __future__ import annotations

from typing import Any, NamedTuple

from holdfast.api import names
from holdfast.api.decode import convert, decode_json
from holdfast.api.errors import InvalidObject
from holdfast.api.meta import ObjectMeta, ResourceList
from holdfast.api.pod import Pod, PodSpec
from holdfast.api.quantity import QuantityError, amount
from holdfast.api.reservation import AllocatePolicy, Reservation
from holdfast.api.selectors import as_integer
from holdfast.scheduler.cluster.node_table import NodeTable
from holdfast.scheduler.cluster.pod_classes import PodClass, Traits
from holdfast.scheduler.cluster.slots import (
    CPU,
    MEMORY,
    NONZERO_CPU,
    NONZERO_MEMORY,
    PODS,
    Amounts,
    capped,
)
from holdfast.scheduler.reservations.preemption_holds import preemptor_of
from holdfast.scheduler.reservations.reservation_victims import labelled_priority


class Terms(NamedTuple):
    """What a reservation reserves, and how owners are allocated from it."""

    wanted: Amounts
    once: bool
    order: int
    restricted: frozenset[int] | None
    withheld: Amounts


def terms_of(reservation: Reservation, cls: PodClass, nodes: NodeTable) -> Terms:
    """Reads the terms of an object; `cls` is the class of its reserve pod."""
    spec, slots = reservation.spec, nodes.slots
    wanted = _asked(reservation, cls, nodes)
    restricted = None
    if spec.allocate_policy == AllocatePolicy.RESTRICTED:
        listed = restricted_names(reservation)
        every = frozenset(slot for slot in wanted if slot != PODS and slots.name(slot))
        # A list without any of its own resources is ignored.
        restricted = frozenset(slot for slot in every if slots.name(slot) in listed) or every
        if counts_pods(reservation, cls):
            restricted |= {PODS}
    withheld = annotated_amounts(reservation, names.RESERVATION_INNER)
    return Terms(
        wanted,
        spec.once,
        as_integer(reservation.metadata.labels.get(names.RESERVATION_ORDER, "")) or 0,
        restricted,
        {nodes.slot(name): value for name, value in withheld.items()},
    )


def counts_pods(reservation: Reservation, cls: PodClass) -> bool:
    """Whether it requests a number of pods; else it has the one pod slot that every reservation has."""
    asked = any(slot == PODS for slot, _ in cls.requests)
    return asked or names.PODS in reservation.status.allocatable


def traits_of(reservation: Reservation, spec: int, node: str) -> Traits:
    """The traits of its reserve pod's class."""
    asked = reservation.spec
    shared = not asked.once and asked.allocate_policy == AllocatePolicy.DEFAULT
    starts_later = names.STARTS_AT in reservation.metadata.annotations
    return Traits(
        owner_spec_id=spec,
        wants_node=node,
        exclusive=shared,
        pre_allocation=asked.pre_allocation or starts_later,
        is_planned=starts_later,
    )


def held(allocatable: ResourceList, cls: PodClass, nodes: NodeTable) -> Amounts:
    """The allocatable in the status of a reservation, by slot. Raises QuantityError."""
    amounts = {nodes.slot(name): capped(amount(name, q)) for name, q in allocatable.items()}
    return _complete(amounts, cls)


def _asked(reservation: Reservation, cls: PodClass, nodes: NodeTable) -> Amounts:
    """The requests of a reservation by slot, with its pod slots and derived sums that scores read."""
    asked: Amounts = dict(cls.requests)
    resized = annotated_amounts(reservation, names.RESERVATION_RESIZE_ALLOCATABLE)
    asked.update((nodes.slot(name), capped(value)) for name, value in resized.items())
    return _complete(asked, cls)


def _complete(amounts: Amounts, cls: PodClass) -> Amounts:
    amounts[PODS] = max(amounts.get(PODS, 0), cls.pod_slots)
    for slot, derived in ((CPU, NONZERO_CPU), (MEMORY, NONZERO_MEMORY)):
        if amounts.get(slot):
            amounts[derived] = amounts[slot]
    cls.limits.hold(amounts)
    return {slot: amount for slot, amount in amounts.items() if amount > 0}


# The reserve pod


_TEMPLATE = "spec.template"


def node_and_scheduler(reservation: Reservation) -> tuple[str, str]:
    """The node name and scheduler name of the template. Raises InvalidObject."""
    template = reservation.spec.template
    if not template:
        raise InvalidObject("", _TEMPLATE, "is required: the pod to reserve for")
    spec = template.get("spec") or {}
    if not isinstance(spec, dict):
        raise InvalidObject("", f"{_TEMPLATE}.spec", "expected an object")
    return spec.get("nodeName") or "", spec.get("schedulerName") or ""


def reserve_pod(reservation: Reservation) -> Pod:
    """The pod that the reservation is scheduled as, from its template. Raises InvalidObject.

    The reservation's own labels and annotations take precedence over those of the template. A
    preemption hold has none of its own.
    """
    meta, template = reservation.metadata, reservation.spec.template or {}
    given: ObjectMeta = convert(
        template.get("metadata") or {}, ObjectMeta, prefix=f"{_TEMPLATE}.metadata"
    )
    own = ObjectMeta() if preemptor_of(reservation) else meta
    raw: dict[str, Any] = dict(template.get("spec") or {})
    raw.pop("nodeName", None)
    raw.pop("schedulingGates", None)
    spec: PodSpec = convert(raw, PodSpec, prefix=f"{_TEMPLATE}.spec")
    spec.priority = priority_of(reservation, spec)
    spec.scheduler_name = raw.get("schedulerName") or ""
    return Pod(
        metadata=ObjectMeta(
            name=meta.uid,
            uid=meta.uid,
            namespace=namespace_of(reservation),
            labels=_labels(given.labels, own.labels),
            annotations={**given.annotations, **own.annotations},
            owner_references=given.owner_references,
        ),
        spec=spec,
    )


def namespace_of(reservation: Reservation) -> str:
    """The namespace of its reserve pod: that of the template, else the default one."""
    template = reservation.spec.template or {}
    metadata = template.get("metadata")
    given = metadata.get("namespace") if isinstance(metadata, dict) else None
    return str(given or template.get("namespace") or names.DEFAULT_NAMESPACE)


def _labels(given: dict[str, str], own: dict[str, str]) -> dict[str, str]:
    """The labels of the reserve pod, without the id of a dynamic reservation, which would make each of
    them a class of its own."""
    labels = {**given, **own}
    labels.pop(names.RESERVATION_ID, None)
    return labels


def priority_of(reservation: Reservation, spec: PodSpec) -> int:
    """The priority of the template, else of the label; without either the highest."""
    if spec.priority is not None:
        return spec.priority
    value = labelled_priority(reservation)
    return names.UNSET_RESERVATION_PRIORITY if value is None else value


def annotated_amounts(reservation: Reservation, annotation: str) -> dict[str, int]:
    """The amounts of an annotation `{"resources": {…}}`; empty if it is invalid."""
    text = reservation.metadata.annotations.get(annotation)
    if text is None:
        return {}
    try:
        resources = decode_json(text, dict[str, ResourceList]).get("resources", {})
        return {name: amount(name, quantity) for name, quantity in resources.items()}
    except (InvalidObject, QuantityError):
        return {}


def restricted_names(reservation: Reservation) -> frozenset[str]:
    """The resources that the Restricted policy applies to, if the reservation lists them."""
    text = reservation.metadata.annotations.get(names.RESERVATION_RESTRICTED_OPTIONS)
    if text is None:
        return frozenset()
    try:
        return frozenset(decode_json(text, dict[str, list[str]]).get("resources", []))
    except InvalidObject:
        return frozenset()
