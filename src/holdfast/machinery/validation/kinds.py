"""The rules of each kind, found by the object's type."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from holdfast.machinery.schema.custom.validation import check as check_by_schema
from holdfast.machinery.schema.custom.validation import of_right_types, unreported
from holdfast.machinery.schema.field_errors import FieldError
from holdfast.machinery.schema.types import ResourceType
from holdfast.machinery.validation import core_kinds, pods, resource_claims, resource_slices
from holdfast.machinery.validation.crds import check_definition
from holdfast.machinery.validation.cron_jobs import check_cron_job
from holdfast.machinery.validation.own_kinds import check_own_kinds
from holdfast.machinery.validation.pod_groups import check_group, check_workload

Check = Callable[[list[FieldError], dict[str, Any]], None]


def _workload(found: list[FieldError], raw: dict[str, Any]) -> None:
    spec = raw.get("spec") or {}
    claims = [
        (each.get("metadata") or {}).get("name", "") for each in spec.get("volumeClaimTemplates") or ()
    ]
    pods.check_template(found, spec.get("template"), "spec.template", claims)


CHECKS: dict[tuple[str, str], Check] = {
    ("", "Node"): core_kinds.check_node,
    ("", "PersistentVolume"): core_kinds.check_volume,
    ("", "PersistentVolumeClaim"): core_kinds.check_claim,
    ("", "Pod"): pods.check_pod,
    ("", "ReplicationController"): _workload,
    ("apiextensions.k8s.io", "CustomResourceDefinition"): check_definition,
    ("apps", "DaemonSet"): _workload,
    ("apps", "Deployment"): _workload,
    ("apps", "ReplicaSet"): _workload,
    ("apps", "StatefulSet"): _workload,
    ("batch", "CronJob"): check_cron_job,
    ("batch", "Job"): _workload,
    ("policy", "PodDisruptionBudget"): core_kinds.check_budget,
    ("resource.k8s.io", "DeviceClass"): resource_claims.check_device_class,
    ("resource.k8s.io", "DeviceTaintRule"): resource_slices.check_taint_rule,
    ("resource.k8s.io", "ResourceClaim"): resource_claims.check_claim,
    ("resource.k8s.io", "ResourceClaimTemplate"): resource_claims.check_template,
    ("resource.k8s.io", "ResourceSlice"): resource_slices.check_slice,
    ("scheduling.k8s.io", "PodGroup"): check_group,
    ("scheduling.k8s.io", "PriorityClass"): core_kinds.check_priority_class,
    ("scheduling.k8s.io", "Workload"): check_workload,
}


def check_values(
    type: ResourceType, raw: dict[str, Any], old: dict[str, Any] | None = None
) -> list[FieldError]:
    """The validation errors of an object that is decoded and defaulted. `old` is the object that it
    replaces, for transition rules of custom kinds."""
    if not type.definition:
        by_schema = check_by_schema(type, raw, old)
        own = check_own_kinds(type, of_right_types(type, raw) if by_schema else raw)
        return [*by_schema, *unreported(own, by_schema)]
    found: list[FieldError] = []
    check = CHECKS.get((type.group, type.kind))
    if check is not None:
        check(found, raw)
    return found
