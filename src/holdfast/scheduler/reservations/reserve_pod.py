"""What a reservation's object says, in the scheduler's words."""

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
from holdfast.scheduler.cluster.reservation_table import Amounts
from holdfast.scheduler.cluster.slots import CPU, MEMORY, NONZERO_CPU, NONZERO_MEMORY, PODS, capped
from holdfast.scheduler.reservations.preemption_holds import preemptor_of
from holdfast.scheduler.reservations.reservation_victims import labelled_priority


class Terms(NamedTuple):
    """On which owners may draw, but for who they are."""

    wanted: Amounts
    once: bool
    order: int
    restricted: frozenset[int] | None
    withheld: Amounts


def terms_of(reservation: Reservation, cls: PodClass, nodes: NodeTable) -> Terms:
    """`cls` is that of its reserve pod."""
    spec, slots = reservation.spec, nodes.slots
    wanted = _asked(reservation, cls, nodes)
    restricted = None
    if spec.allocate_policy == AllocatePolicy.RESTRICTED:
        listed = restricted_names(reservation)
        every = frozenset(slot for slot in wanted if slot != PODS and slots.name(slot))
        # Where none of the names listed is one of its own, the list means nothing.
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
    """Whether it says how many pods it is for; else it has the one pod slot every reservation has."""
    asked = any(slot == PODS for slot, _ in cls.requests)
    return asked or names.PODS in reservation.status.allocatable


def traits_of(reservation: Reservation, spec: int, node: str) -> Traits:
    """What sets the class of its reserve pod apart."""
    asked = reservation.spec
    shared = not asked.once and asked.allocate_policy == AllocatePolicy.DEFAULT
    return Traits(
        owner_spec_id=spec, wants_node=node, exclusive=shared, pre_allocation=asked.pre_allocation
    )


def held(allocatable: ResourceList, cls: PodClass, nodes: NodeTable) -> Amounts:
    """What a live reservation says it holds, by slot; raises QuantityError."""
    amounts = {nodes.slot(name): capped(amount(name, q)) for name, q in allocatable.items()}
    return _complete(amounts, cls)


def _asked(reservation: Reservation, cls: PodClass, nodes: NodeTable) -> Amounts:
    """By slot, with the pods it makes room for and the sums that scores are made of."""
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


# The reserve pod: what a reservation is scheduled as, made from its template.


_TEMPLATE = "spec.template"


def node_and_scheduler(reservation: Reservation) -> tuple[str, str]:
    """Which the template asks for by name; raises InvalidObject if it is no template."""
    template = reservation.spec.template
    if not template:
        raise InvalidObject("", _TEMPLATE, "is required: the pod to reserve for")
    spec = template.get("spec") or {}
    if not isinstance(spec, dict):
        raise InvalidObject("", f"{_TEMPLATE}.spec", "expected an object")
    return spec.get("nodeName") or "", spec.get("schedulerName") or ""


def reserve_pod(reservation: Reservation) -> Pod:
    """Raises InvalidObject.

    The reservation's own labels and annotations come before those of the template. One that holds
    preempted room stands for the preemptor and nothing else.
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
    """Where the pods are that it is for."""
    template = reservation.spec.template or {}
    metadata = template.get("metadata")
    given = metadata.get("namespace") if isinstance(metadata, dict) else None
    return str(given or template.get("namespace") or names.DEFAULT_NAMESPACE)


def _labels(given: dict[str, str], own: dict[str, str]) -> dict[str, str]:
    """Less the id of one made on demand, which would make each of them a class of its own."""
    labels = {**given, **own}
    labels.pop(names.RESERVATION_ID, None)
    return labels


def priority_of(reservation: Reservation, spec: PodSpec) -> int:
    """The template's, else the label's; without either a reservation comes before everything."""
    if spec.priority is not None:
        return spec.priority
    value = labelled_priority(reservation)
    return names.UNSET_RESERVATION_PRIORITY if value is None else value


def annotated_amounts(reservation: Reservation, annotation: str) -> dict[str, int]:
    """Amounts an annotation gives as `{"resources": {…}}`; nothing where it makes no sense."""
    text = reservation.metadata.annotations.get(annotation)
    if text is None:
        return {}
    try:
        resources = decode_json(text, dict[str, ResourceList]).get("resources", {})
        return {name: amount(name, quantity) for name, quantity in resources.items()}
    except (InvalidObject, QuantityError):
        return {}


def restricted_names(reservation: Reservation) -> frozenset[str]:
    """The resources Restricted is about, where the reservation says so."""
    text = reservation.metadata.annotations.get(names.RESERVATION_RESTRICTED_OPTIONS)
    if text is None:
        return frozenset()
    try:
        return frozenset(decode_json(text, dict[str, list[str]]).get("resources", []))
    except InvalidObject:
        return frozenset()
