"""What is refused in a reservation, so that a mistake is an answer and not silence."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from holdfast.api.affinity import Taint
from holdfast.api.decode import convert
from holdfast.api.errors import InvalidObject
from holdfast.api.meta import ObjectMeta
from holdfast.api.name_rules import label_value_problem, qualified_name_problem
from holdfast.api.names import RESERVATION_ORDER
from holdfast.api.pod import PodSpec
from holdfast.api.reservation import (
    AllocatePolicy,
    Reservation,
    ReservationOwner,
    ReservationPhase,
    ReservationSpec,
)
from holdfast.api.selectors import as_integer
from holdfast.api.times import parse_duration, parse_time
from holdfast.machinery.error_list import ErrorList
from holdfast.machinery.known_fields import find_unknown, reservation_schema
from holdfast.machinery.metadata_validation import check_annotations, check_labels
from holdfast.machinery.pod_spec_validation import (
    check_label_selector,
    check_pod_spec,
    check_resource_list,
)


def check_reservation(findings: ErrorList, reservation: Reservation, raw: Mapping[str, Any]) -> None:
    find_unknown(findings, raw, reservation_schema())
    spec, path = reservation.spec, "spec"
    _check_template(findings, spec.template, f"{path}.template")
    if not spec.owners:
        findings.add(f"{path}.owners", "is required: at least one owner")
    for i, owner in enumerate(spec.owners):
        check_owner(findings, owner, f"{path}.owners[{i}]")
    _check_lifetime(findings, spec, path)
    findings.one_of(f"{path}.allocatePolicy", spec.allocate_policy, tuple(AllocatePolicy))
    check_taints(findings, spec.taints, f"{path}.taints")
    if spec.pre_allocation_policy is not None:
        mode = spec.pre_allocation_policy.mode
        findings.one_of(f"{path}.preAllocationPolicy.mode", mode, ("", "Default", "Cluster"))
    order = reservation.metadata.labels.get(RESERVATION_ORDER)
    if order is not None and as_integer(order) is None:
        findings.add(f"metadata.labels[{RESERVATION_ORDER}]", f"must be an integer, not {order!r}")
    findings.one_of("status.phase", reservation.status.phase, ("", *ReservationPhase))
    check_resource_list(findings, reservation.status.allocatable, "status.allocatable")
    check_resource_list(findings, reservation.status.allocated, "status.allocated")


def check_owner(findings: ErrorList, owner: ReservationOwner, path: str) -> None:
    """An owner that says nothing would be everyone; whoever wants that writes an empty
    labelSelector."""
    if owner.object is None and owner.controller is None and owner.label_selector is None:
        findings.add(path, "needs at least one of object, controller, labelSelector")
    reference = owner.object
    if reference is not None and not (
        reference.name
        or reference.uid
        or reference.namespace
        or reference.kind
        or reference.api_version
    ):
        findings.add(f"{path}.object", "needs at least one of name, namespace, uid, kind")
    controller = owner.controller
    if controller is not None and not (
        controller.name
        or controller.uid
        or controller.kind
        or controller.api_version
        or controller.namespace
    ):
        findings.add(f"{path}.controller", "needs at least one of name, kind, uid, namespace")
    check_label_selector(findings, owner.label_selector, f"{path}.labelSelector")


def check_taints(findings: ErrorList, taints: list[Taint], path: str) -> None:
    seen: set[tuple[str, str]] = set()
    for i, taint in enumerate(taints):
        where = f"{path}[{i}]"
        findings.check(f"{where}.key", qualified_name_problem(taint.key))
        findings.check(f"{where}.value", label_value_problem(taint.value))
        effects = ("NoSchedule", "PreferNoSchedule", "NoExecute")
        findings.one_of(f"{where}.effect", taint.effect, effects)
        if (taint.key, taint.effect) in seen:
            findings.add(where, f"duplicate taint {taint.key}:{taint.effect}")
        seen.add((taint.key, taint.effect))


def _check_template(findings: ErrorList, template: dict[str, Any] | None, path: str) -> None:
    if not template:
        findings.add(path, "is required: the pod to reserve for")
        return
    try:
        metadata = convert(template.get("metadata") or {}, ObjectMeta, prefix=f"{path}.metadata")
        spec = convert(template.get("spec") or {}, PodSpec, prefix=f"{path}.spec")
    except InvalidObject as error:
        findings.errors.append(error.within(findings.object))
        return
    check_labels(findings, metadata.labels, f"{path}.metadata.labels")
    check_annotations(findings, metadata.annotations, f"{path}.metadata.annotations")
    check_pod_spec(findings, spec, f"{path}.spec", template=True)


def _check_lifetime(findings: ErrorList, spec: ReservationSpec, path: str) -> None:
    if spec.ttl is not None:
        with findings.at(f"{path}.ttl"):
            if parse_duration(spec.ttl) < 0:
                findings.add(f"{path}.ttl", f"must not be negative: {spec.ttl}")
    if spec.expires is not None:
        with findings.at(f"{path}.expires"):
            parse_time(spec.expires)
    if spec.ttl is not None and spec.expires is not None:
        findings.add(f"{path}.expires", "cannot be given together with ttl; keep one of them")
