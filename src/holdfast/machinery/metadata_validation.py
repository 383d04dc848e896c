"""What is refused in the metadata of any object."""

from __future__ import annotations

from holdfast.api.kinds import KindInfo
from holdfast.api.meta import ObjectMeta
from holdfast.api.name_rules import (
    dns_label_problem,
    dns_subdomain_problem,
    label_value_problem,
    qualified_name_problem,
)
from holdfast.api.times import parse_time
from holdfast.machinery.error_list import ErrorList

_DNS_LABEL_KINDS = frozenset({"Namespace", "Service"})
_MAX_ANNOTATIONS = 256 * 1024


def check_metadata(findings: ErrorList, metadata: ObjectMeta, info: KindInfo) -> None:
    problem_of = dns_label_problem if info.kind in _DNS_LABEL_KINDS else dns_subdomain_problem
    if metadata.name:
        findings.check("metadata.name", problem_of(metadata.name))
    elif not metadata.generate_name:
        findings.add("metadata.name", "is required")
    if info.namespaced and metadata.namespace:
        findings.check("metadata.namespace", dns_label_problem(metadata.namespace))
    check_labels(findings, metadata.labels, "metadata.labels")
    check_annotations(findings, metadata.annotations, "metadata.annotations")
    for field, time in (
        ("creationTimestamp", metadata.creation_timestamp),
        ("deletionTimestamp", metadata.deletion_timestamp),
    ):
        if time is not None:
            with findings.at(f"metadata.{field}"):
                parse_time(time)
    for i, owner in enumerate(metadata.owner_references):
        for field, value in (
            ("apiVersion", owner.api_version),
            ("kind", owner.kind),
            ("name", owner.name),
        ):
            if not value:
                findings.add(f"metadata.ownerReferences[{i}].{field}", "is required")
    if sum(owner.controller is True for owner in metadata.owner_references) > 1:
        findings.add("metadata.ownerReferences", "only one of them can be the controller")


def check_labels(findings: ErrorList, labels: dict[str, str], path: str) -> None:
    for key, value in labels.items():
        findings.check(f"{path}[{key}]", qualified_name_problem(key))
        findings.check(f"{path}[{key}]", label_value_problem(value))


def check_annotations(findings: ErrorList, annotations: dict[str, str], path: str) -> None:
    """Keys look like label keys, case aside; values are free but not endless."""
    for key in annotations:
        findings.check(f"{path}[{key}]", qualified_name_problem(key.lower()))
    if sum(len(key) + len(value) for key, value in annotations.items()) > _MAX_ANNOTATIONS:
        findings.add(path, "must be no more than 256 KiB in all")
