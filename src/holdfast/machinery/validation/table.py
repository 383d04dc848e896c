"""Queues and PodGroups, of which a schema cannot say that one field contradicts another."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from holdfast.api.names import VOLCANO_API
from holdfast.machinery.group_validation import group_contradictions, queue_contradictions
from holdfast.machinery.schema.field_errors import INVALID, FieldError, field_problem
from holdfast.machinery.schema.types import ResourceType
from holdfast.machinery.validation import others, pods
from holdfast.machinery.validation.crds import check_definition

_GROUP = VOLCANO_API.partition("/")[0]


def check_job_kinds(type: ResourceType, raw: dict[str, Any]) -> list[FieldError]:
    if type.group != _GROUP or type.kind not in ("Queue", "PodGroup"):
        return []
    spec = raw.get("spec")
    if not isinstance(spec, dict):
        return []
    if type.kind == "Queue":
        found = queue_contradictions((raw.get("metadata") or {}).get("name", ""), spec)
    else:
        found = group_contradictions(spec)
    return [field_problem(INVALID, ".".join(e.path), e.value, e.message) for e in found]


# Which kind is judged by what.


Check = Callable[[list[FieldError], dict[str, Any]], None]


def _workload(found: list[FieldError], raw: dict[str, Any]) -> None:
    pods.check_template(found, (raw.get("spec") or {}).get("template"), "spec.template")


def _cron_job(found: list[FieldError], raw: dict[str, Any]) -> None:
    job = ((raw.get("spec") or {}).get("jobTemplate") or {}).get("spec") or {}
    pods.check_template(found, job.get("template"), "spec.jobTemplate.spec.template")


CHECKS: dict[tuple[str, str], Check] = {
    ("", "Node"): others.check_node,
    ("", "PersistentVolume"): others.check_volume,
    ("", "PersistentVolumeClaim"): others.check_claim,
    ("", "Pod"): pods.check_pod,
    ("", "ReplicationController"): _workload,
    ("apiextensions.k8s.io", "CustomResourceDefinition"): check_definition,
    ("apps", "DaemonSet"): _workload,
    ("apps", "Deployment"): _workload,
    ("apps", "ReplicaSet"): _workload,
    ("apps", "StatefulSet"): _workload,
    ("batch", "CronJob"): _cron_job,
    ("batch", "Job"): _workload,
    ("policy", "PodDisruptionBudget"): others.check_budget,
    ("scheduling.k8s.io", "PriorityClass"): others.check_priority_class,
}
