"""Rules of Reservations, Queues and PodGroups that a schema cannot state.

Those of queues and groups are those of Volcano's own admission: the guarantee of a queue is at most
what it deserves, and that at most its capability, where these are given.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from holdfast.api import names
from holdfast.api.calendar import CalendarTerms, checked_terms
from holdfast.api.cron import CronError, load_zone
from holdfast.api.errors import DurationError, TimeError
from holdfast.api.names import HOLDFAST_API, RESERVATION_API, RESERVATION_ORDER, VOLCANO_API
from holdfast.api.quantity import MOST_COUNTED, QuantityError, amount, format_amount, parse
from holdfast.api.reservation_schedules import parse_schedule
from holdfast.api.selectors import as_integer
from holdfast.api.times import parse_duration, parse_time
from holdfast.machinery.schema.field_errors import INVALID, FieldError, field_problem, invalid, required
from holdfast.machinery.schema.types import ResourceType
from holdfast.machinery.validation.core_kinds import check_quantity
from holdfast.machinery.validation.metadata import check_key, check_label_selector, check_labels
from holdfast.machinery.validation.placement import (
    check_affinity,
    check_spread,
    check_taints,
    check_tolerations,
)

Part = Mapping[str, Any]
Found = list[FieldError]

_RESERVATIONS = RESERVATION_API.partition("/")[0]
_JOBS = VOLCANO_API.partition("/")[0]
_SCHEDULES = HOLDFAST_API.partition("/")[0]
_LONGEST_SCHEDULE_NAME = 244
"""A Reservation's name is at most 253 characters; the minute of its start and a hyphen are nine."""


def check_own_kinds(type: ResourceType, raw: dict[str, Any]) -> Found:
    spec = raw.get("spec")
    if not isinstance(spec, dict):
        return []
    if (type.group, type.kind) == (_RESERVATIONS, "Reservation"):
        return _check_reservation(raw, spec)
    if (type.group, type.kind) == (_SCHEDULES, "ReservationSchedule"):
        return _check_schedule(raw, spec)
    if (type.group, type.kind) == (_JOBS, "Queue"):
        found = queue_contradictions((raw.get("metadata") or {}).get("name", ""), spec)
    elif (type.group, type.kind) == (_JOBS, "PodGroup"):
        found = group_contradictions(spec)
    else:
        return []
    return [field_problem(INVALID, ".".join(e.path), e.value, e.message) for e in found]


def _check_reservation(raw: dict[str, Any], spec: dict[str, Any]) -> Found:
    """Errors that the schema does not find: a reservation that cannot be scheduled or matches no
    pod."""
    found: Found = []
    _check_order(found, (raw.get("metadata") or {}).get("labels") or {}, "metadata.labels")
    _check_calendar(found, (raw.get("metadata") or {}).get("annotations") or {}, spec)
    _check_reservation_spec(found, spec, "spec")
    return found


def _check_reservation_spec(found: Found, spec: dict[str, Any], path: str) -> None:
    for i, owner in enumerate(spec.get("owners") or ()):
        check_label_selector(found, owner.get("labelSelector"), f"{path}.owners[{i}].labelSelector")
    check_taints(found, spec.get("taints") or [], f"{path}.taints")
    template = (spec.get("template") or {}).get("spec") or {}
    _check_template(found, template, f"{path}.template.spec")


def _check_calendar(found: Found, annotations: dict[str, str], spec: dict[str, Any]) -> None:
    terms = _check_terms(found, annotations, "metadata.annotations")
    try:
        expires = parse_time(spec["expires"]) if spec.get("expires") else None
    except TimeError:
        return  # the schema reports it
    if terms.start is not None and expires is not None and expires <= terms.start:
        where = f"must be after metadata.annotations[{names.STARTS_AT}]"
        found.append(invalid("spec.expires", spec["expires"], where))


def _check_terms(found: Found, annotations: Mapping[str, str], path: str) -> CalendarTerms:
    terms, errors = checked_terms(annotations)
    for error in errors:
        key = error.field.partition("[")[2].rstrip("]")
        found.append(invalid(f"{path}[{key}]", annotations.get(key, ""), error.message))
    return terms


def _check_schedule(raw: dict[str, Any], spec: dict[str, Any]) -> Found:
    """Errors in a ReservationSchedule that the schema does not find: also those for which the
    reservations would be refused."""
    found: Found = []
    name = str((raw.get("metadata") or {}).get("name") or "")
    if len(name) > _LONGEST_SCHEDULE_NAME:
        why = (
            f"must be no more than {_LONGEST_SCHEDULE_NAME} characters: reservations are named after it"
        )
        found.append(invalid("metadata.name", name, why))
    zone = spec.get("timeZone")
    try:
        if zone:
            load_zone(zone)
    except CronError as error:
        found.append(invalid("spec.timeZone", zone, str(error)))
    text = spec.get("schedule") or ""
    if "TZ" in text:
        why = "cannot use TZ or CRON_TZ in schedule, use timeZone field instead"
        found.append(invalid("spec.schedule", text, why))
    else:
        try:
            parse_schedule(text, None)
        except CronError as error:
            found.append(invalid("spec.schedule", text, str(error)))
    try:
        if parse_duration(str(spec.get("duration") or "")) <= 0:
            found.append(invalid("spec.duration", spec["duration"], "must be greater than 0"))
    except DurationError:
        pass  # the schema reports it
    metadata = (spec.get("template") or {}).get("metadata") or {}
    _check_template_metadata(found, metadata)
    template = (spec.get("template") or {}).get("spec") or {}
    for name in ("ttl", "expires"):
        if template.get(name) is not None:
            why = "must not be given: each reservation lasts spec.duration from its start"
            found.append(invalid(f"spec.template.spec.{name}", template[name], why))
    _check_reservation_spec(found, template, "spec.template.spec")
    return found


def _check_template_metadata(found: Found, metadata: dict[str, Any]) -> None:
    path = "spec.template.metadata"
    labels = _strings(found, metadata.get("labels") or {}, f"{path}.labels")
    annotations = _strings(found, metadata.get("annotations") or {}, f"{path}.annotations")
    check_labels(found, labels, f"{path}.labels")
    _check_order(found, labels, f"{path}.labels")
    for key in annotations:
        check_key(found, key.lower(), f"{path}.annotations")
    if names.STARTS_AT in annotations:
        why = "must not be given: each reservation has the start of its occurrence"
        where = f"{path}.annotations[{names.STARTS_AT}]"
        found.append(invalid(where, annotations[names.STARTS_AT], why))
    of_occurrence = {**annotations, names.STARTS_AT: "2000-01-01T00:00:00Z"}
    _check_terms(found, of_occurrence, f"{path}.annotations")


def _strings(found: Found, given: Any, path: str) -> dict[str, str]:
    """The entries of a map that are strings; the others are errors."""
    if not isinstance(given, dict):
        found.append(invalid(path, given, "must be a map"))
        return {}
    for key, value in given.items():
        if not isinstance(value, str):
            found.append(invalid(f"{path}[{key}]", value, "must be a string"))
    return {key: value for key, value in given.items() if isinstance(value, str)}


def _check_order(found: Found, labels: Mapping[str, str], path: str) -> None:
    order = labels.get(RESERVATION_ORDER)
    if order is not None and as_integer(order) is None:
        found.append(invalid(f"{path}[{RESERVATION_ORDER}]", order, "must be an integer"))


def _check_template(found: Found, spec: dict[str, Any], path: str) -> None:
    check_labels(found, spec.get("nodeSelector") or {}, f"{path}.nodeSelector")
    if spec.get("affinity"):
        check_affinity(found, spec["affinity"], f"{path}.affinity")
    check_spread(
        found, spec.get("topologySpreadConstraints") or [], f"{path}.topologySpreadConstraints"
    )
    check_tolerations(found, spec.get("tolerations") or [], f"{path}.tolerations")
    for part in ("containers", "initContainers"):
        for i, container in enumerate(spec.get(part) or ()):
            resources = container.get("resources") or {}
            _check_resources(found, resources, f"{path}.{part}[{i}].resources")


def _check_resources(found: Found, resources: dict[str, Any], path: str) -> None:
    requests, limits = resources.get("requests") or {}, resources.get("limits") or {}
    for part, amounts in (("requests", requests), ("limits", limits)):
        for name in amounts:
            check_key(found, name, f"{path}.{part}[{name}]")
        check_amounts(found, amounts, f"{path}.{part}")
        _check_counted(found, amounts, f"{path}.{part}")
    for name in requests.keys() & limits.keys():
        if _exceeds(requests[name], limits[name]):
            why = f"must be less than or equal to {name} limit of {limits[name]}"
            found.append(invalid(f"{path}.requests", requests[name], why))


def check_owner(found: Found, owner: Part, path: str) -> None:
    """An owner without any field is invalid, as it would match every pod; an empty labelSelector
    says so explicitly."""
    if not any(owner.get(name) is not None for name in ("object", "controller", "labelSelector")):
        found.append(required(path, "needs at least one of object, controller, labelSelector"))
    for name in ("object", "controller"):
        if owner.get(name) is not None and not any(owner[name].values()):
            found.append(required(f"{path}.{name}", "needs at least one of name, namespace, uid, kind"))
    check_label_selector(found, owner.get("labelSelector"), f"{path}.labelSelector")


def check_amounts(found: Found, resources: Mapping[str, Any], path: str) -> None:
    """Quantities that were not decoded by a type."""
    for name, quantity in resources.items():
        where = f"{path}[{name}]"
        try:
            parse(quantity)
        except QuantityError as error:
            found.append(invalid(where, quantity, str(error)))
        else:
            check_quantity(found, name, str(quantity), where)


def _check_counted(found: Found, resources: Mapping[str, Any], path: str) -> None:
    """A larger amount would count as less than it is."""
    for name, quantity in resources.items():
        try:
            counted = amount(name, quantity)
        except QuantityError:
            continue  # reported already
        if counted > MOST_COUNTED:
            found.append(invalid(f"{path}[{name}]", quantity, most_text(name)))


def most_text(name: str) -> str:
    return f"must be at most {format_amount(name, MOST_COUNTED)}"


class Contradiction(NamedTuple):
    path: tuple[str, ...]
    """The path of the invalid field, from `spec` on."""
    value: Any
    message: str


def queue_contradictions(name: str, spec: Part) -> Iterator[Contradiction]:
    guarantee = _part(_part(spec, "guarantee"), "resource")
    deserved, capability = _part(spec, "deserved"), _part(spec, "capability")
    for resource, owed in guarantee.items():
        if resource in deserved and _exceeds(owed, deserved[resource]):
            text = _text("deserved", resource, deserved, ">=", "guarantee", guarantee)
            yield Contradiction(("spec", "deserved", resource), deserved[resource], text)
        elif resource in capability and _exceeds(owed, capability[resource]):
            text = _text("guarantee", resource, guarantee, "<=", "capability", capability)
            yield Contradiction(("spec", "guarantee", "resource", resource), owed, text)
    for resource, given in deserved.items():
        if resource in capability and _exceeds(given, capability[resource]):
            text = _text("deserved", resource, deserved, "<=", "capability", capability)
            yield Contradiction(("spec", "deserved", resource), given, text)
    if name and spec.get("parent") == name:
        yield Contradiction(("spec", "parent"), name, f"queue {name} cannot use itself as parent")


def group_contradictions(spec: Part) -> Iterator[Contradiction]:
    parts: list[tuple[tuple[str, ...], Part]] = [(("spec", "networkTopology"), spec)]
    policies = spec.get("subGroupPolicy")
    if isinstance(policies, list):
        parts += [
            (("spec", f"subGroupPolicy[{i}]", "networkTopology"), policy)
            for i, policy in enumerate(policies)
            if isinstance(policy, Mapping)
        ]
    for path, part in parts:
        topology = _part(part, "networkTopology")
        if topology.get("highestTierAllowed") is not None and topology.get("highestTierName"):
            text = "must not specify 'highestTierAllowed' and 'highestTierName' simultaneously"
            yield Contradiction(path, dict(topology), text)


def _part(part: Part, name: str) -> Part:
    found = part.get(name)
    return found if isinstance(found, Mapping) else {}


def _exceeds(one: Any, other: Any) -> bool:
    """False for invalid quantities, which other checks report."""
    try:
        return parse(one) > parse(other)
    except (QuantityError, TypeError):
        return False


def _text(of: str, resource: str, own: Part, sign: str, than: str, other: Part) -> str:
    return f"{of}[{resource}]={own[resource]} must be {sign} {than}[{resource}]={other[resource]}"
