"""What a reservation's object says, in the scheduler's words."""

from __future__ import annotations

from typing import NamedTuple

from holdfast.api import names
from holdfast.api.label_selectors import as_integer
from holdfast.api.meta import ResourceList
from holdfast.api.quantity import amount
from holdfast.api.reservation import AllocatePolicy, Reservation
from holdfast.core.classes import PodClass, Traits
from holdfast.core.fills import Amounts
from holdfast.core.nodes import NodeTable
from holdfast.core.promises.reserve_pod import annotated_amounts, restricted_names
from holdfast.core.slots import CPU, MEMORY, NONZERO_CPU, NONZERO_MEMORY, PODS, capped


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
    wishes = reservation.spec
    shared = not wishes.once and wishes.allocate_policy == AllocatePolicy.DEFAULT
    return Traits(promised_to=spec, wants_node=node, alone=shared, ahead=wishes.pre_allocation)


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
