"""Which kind is judged by what."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from holdfast.server.schema.problems import Problem
from holdfast.server.schema.semantics import others, pods
from holdfast.server.schema.semantics.definitions import check_definition

Check = Callable[[list[Problem], dict[str, Any]], None]


def _workload(found: list[Problem], raw: dict[str, Any]) -> None:
    pods.check_template(found, (raw.get("spec") or {}).get("template"), "spec.template")


def _cron_job(found: list[Problem], raw: dict[str, Any]) -> None:
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
