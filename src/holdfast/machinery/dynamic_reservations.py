"""The annotations by which scheduler and provisioner exchange requests for reservations.

pod          reservation-template           what to reserve, written by its user
pod          new-reservation-requirement    id and amounts, written by the scheduler
reservation  reservation-id                 the id of the request, written by the provisioner
pod          reservation-provision-error    why there is none, written by the provisioner
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from functools import lru_cache
from itertools import chain

import msgspec

from holdfast.api import names
from holdfast.api.decode import decode_json
from holdfast.api.errors import InvalidObject
from holdfast.api.meta import ObjectMeta, ResourceList
from holdfast.api.name_rules import dns_subdomain
from holdfast.api.quantity import amount
from holdfast.api.reservation import (
    AllocatePolicy,
    DynamicReservationTemplate,
    NewReservationRequirement,
    Reservation,
    ReservationSpec,
)
from holdfast.machinery.schema.decoding import find_unknown
from holdfast.machinery.schema.field_errors import FieldError, required
from holdfast.machinery.validation.own_kinds import check_amounts, check_owner

_TEMPLATE_FIELD = f"metadata.annotations[{names.RESERVATION_TEMPLATE}]"
_NAMES = uuid.UUID("6f6c6466-6173-5400-8000-647265736572")
_PREFIX = "drp-"


@lru_cache(maxsize=1024)
def read_template(text: str) -> DynamicReservationTemplate:
    """The decoded template, which is shared and must not be changed. Raises InvalidObject with the
    first error."""
    template = decode_json(text, DynamicReservationTemplate, field=_TEMPLATE_FIELD)
    raw = msgspec.json.decode(text)
    found: list[FieldError] = []
    if not template.owners:
        found.append(required("owners", "at least one owner"))
    for i, owner in enumerate(raw.get("owners") or ()):
        check_owner(found, owner, f"owners[{i}]")
    check_amounts(found, template.recommended_size, "recommendedSize")
    check_amounts(found, template.roundup, "roundup")
    errors = find_unknown(raw, DynamicReservationTemplate)
    invalid = (InvalidObject("", each.field, each.message) for each in found)
    first = next(chain(errors, invalid), None)
    if first is not None:
        raise first.within(prefix=_TEMPLATE_FIELD)
    return template


def read_requirement(text: str | None) -> NewReservationRequirement | None:
    """None if there is no valid one: it needs an id."""
    if text is None:
        return None
    try:
        requirement = decode_json(text, NewReservationRequirement)
    except InvalidObject:
        return None
    found: list[FieldError] = []
    check_amounts(found, requirement.resources, "resources")
    return requirement if requirement.id and not found else None


def write_requirement(labels: dict[str, str], resources: ResourceList) -> str:
    """The annotation's text."""
    requirement = NewReservationRequirement(labels=labels, resources=resources)
    return msgspec.json.encode(requirement).decode()


def new_id(pod_uid: str, spent: str = "") -> str:
    """The id of the reservation that is requested for a pod: a function of its UID, so that a repeated
    request is the same request. After the reservation of an id has ended, the next id derives from
    it."""
    return str(uuid.uuid5(_NAMES, f"{pod_uid}/{spent}" if spent else pod_uid))


def id_of(metadata: ObjectMeta) -> str:
    """Whose reservation it is; empty for those that no pod requested."""
    return metadata.labels.get(names.RESERVATION_ID) or metadata.annotations.get(
        names.RESERVATION_ID, ""
    )


def reservation_name(id: str) -> str:
    """The name derives from the id, so that a second reservation for it cannot be created."""
    name = f"{_PREFIX}{id}"
    return f"{_PREFIX}{uuid.uuid5(_NAMES, id)}" if dns_subdomain(name) else name


def reservation_for(
    template: DynamicReservationTemplate, requirement: NewReservationRequirement
) -> Reservation:
    """The reservation that Holdfast's provisioner creates."""
    container = {"name": "reserved", "resources": {"requests": dict(requirement.resources)}}
    return Reservation(
        api_version=names.RESERVATION_API,
        kind="Reservation",
        metadata=ObjectMeta(name=reservation_name(requirement.id), labels=dict(requirement.labels)),
        spec=ReservationSpec(
            template={"spec": {"containers": [container]}},
            owners=template.owners,
            allocate_once=False,
            allocate_policy=AllocatePolicy.ALIGNED,
        ),
    )


def sizes(
    requests: Mapping[str, int], template: DynamicReservationTemplate
) -> list[tuple[tuple[str, int], ...]]:
    """The amounts to try to reserve for a pod, best first, each at least its requests."""
    recommended = amounts_of(template.recommended_size)
    steps = amounts_of(template.roundup)
    most = at_least(requests, recommended)
    tried = (_rounded_up(most, steps), _rounded_up(requests, steps), dict(requests))
    ordered = (tuple(sorted((n, a) for n, a in each.items() if a > 0)) for each in tried)
    return [size for size in dict.fromkeys(ordered) if size]


def at_least(one: Mapping[str, int], other: Mapping[str, int]) -> dict[str, int]:
    """The larger amount of each resource."""
    return {name: max(one.get(name, 0), other.get(name, 0)) for name in {**one, **other}}


def _rounded_up(amounts: Mapping[str, int], steps: Mapping[str, int]) -> dict[str, int]:
    return {
        name: -(-value // steps[name]) * steps[name] if steps.get(name) else value
        for name, value in amounts.items()
    }


def amounts_of(resources: ResourceList) -> dict[str, int]:
    """Amounts in the units of the scheduler."""
    return {name: amount(name, quantity) for name, quantity in resources.items()}
