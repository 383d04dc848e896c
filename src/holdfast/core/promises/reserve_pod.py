"""The reserve pod: what a reservation is scheduled as, made from its template."""

from typing import Any

from holdfast.api import names
from holdfast.api.decode import convert, decode_json
from holdfast.api.errors import InvalidObject
from holdfast.api.meta import ObjectMeta, ResourceList
from holdfast.api.pod import Pod, PodSpec
from holdfast.api.quantity import QuantityError, amount
from holdfast.api.reservation import Reservation
from holdfast.core.promises.preempting import labelled_priority
from holdfast.core.promises.rooms import preemptor_of

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
