"""The rules of each built-in kind."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from holdfast.machinery.schema.field_errors import FieldError
from holdfast.machinery.validation import others, pods
from holdfast.machinery.validation.crds import check_definition

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
