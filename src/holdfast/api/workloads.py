"""Values that are a number or a percentage, such as a budget's `minAvailable: 50%`."""

from __future__ import annotations

import re
from typing import Any

from msgspec import field

from holdfast.api.affinity import Toleration
from holdfast.api.errors import MalformedText
from holdfast.api.meta import Condition, LabelSelector, Object, ResourceList, Struct

_PERCENT = re.compile(r"([0-9]+)%", re.ASCII)

IntOrString = int | str

MOST_PERCENT = 2**31 - 1
"""The largest percentage taken for one."""


def scaled_value(value: IntOrString, total: int, *, round_up: bool) -> int:
    """The value itself, or that percentage of `total` rounded as asked."""
    if isinstance(value, int):
        return value
    percent = _PERCENT.fullmatch(value)
    if percent is None:
        raise MalformedText(f"neither a number nor a percentage: {value!r}")
    parts = int(percent[1]) * total
    return -(-parts // 100) if round_up else parts // 100


def percentage(value: object) -> int | None:
    """125 or "125%" as a number of percent; None if it is neither, negative, or absurdly large."""
    if isinstance(value, str):
        match = _PERCENT.fullmatch(value)
        value = int(match[1]) if match and len(match[1]) <= len(str(MOST_PERCENT)) else None
    if isinstance(value, bool) or not isinstance(value, int):
        return None
    return value if 0 <= value <= MOST_PERCENT else None


# Disruption budgets, priority and runtime classes, namespaces, leases.


class PodDisruptionBudgetSpec(Struct):
    min_available: IntOrString | None = None
    max_unavailable: IntOrString | None = None
    selector: LabelSelector | None = None
    unhealthy_pod_eviction_policy: str | None = None


class PodDisruptionBudgetStatus(Struct):
    observed_generation: int = 0
    disrupted_pods: dict[str, str] = field(default_factory=dict)
    disruptions_allowed: int = 0
    current_healthy: int = 0
    desired_healthy: int = 0
    expected_pods: int = 0
    conditions: list[Condition] = field(default_factory=list)


class PodDisruptionBudget(Object):
    """`status` is None where no disruption controller has looked at the budget yet."""

    spec: PodDisruptionBudgetSpec = field(default_factory=PodDisruptionBudgetSpec)
    status: PodDisruptionBudgetStatus | None = None


class PriorityClass(Object):
    value: int = 0
    global_default: bool = False
    description: str = ""
    preemption_policy: str | None = None


class RuntimeOverhead(Struct):
    pod_fixed: ResourceList = field(default_factory=dict)


class RuntimeScheduling(Struct):
    node_selector: dict[str, str] = field(default_factory=dict)
    tolerations: list[Toleration] = field(default_factory=list)


class RuntimeClass(Object):
    handler: str = ""
    overhead: RuntimeOverhead | None = None
    scheduling: RuntimeScheduling | None = None


class NamespaceStatus(Struct):
    phase: str = ""


class Namespace(Object):
    status: NamespaceStatus = field(default_factory=NamespaceStatus)


class LeaseSpec(Struct):
    holder_identity: str | None = None
    lease_duration_seconds: int | None = None
    acquire_time: str | None = None
    renew_time: str | None = None
    lease_transitions: int | None = None


class Lease(Object):
    spec: LeaseSpec = field(default_factory=LeaseSpec)


# What pods come from: controllers and services.
#
# Pod templates stay raw dicts; a pod made from one is decoded as a pod.


class ServiceSpec(Struct):
    """A service selects by a plain map of labels; None selects nothing."""

    selector: dict[str, str] | None = None
    cluster_ip: str = field(default="", name="clusterIP")
    type: str = ""


class Service(Object):
    spec: ServiceSpec = field(default_factory=ServiceSpec)


class ReplicationControllerSpec(Struct):
    replicas: int | None = None
    selector: dict[str, str] | None = None
    template: dict[str, Any] | None = None


class WorkloadSpec(Struct):
    """The fields that are read of ReplicaSets, StatefulSets, Deployments and DaemonSets."""

    replicas: int | None = None
    selector: LabelSelector | None = None
    template: dict[str, Any] | None = None
    min_ready_seconds: int = 0


class RollingUpdate(Struct):
    max_surge: IntOrString | None = None
    max_unavailable: IntOrString | None = None


class DeploymentStrategy(Struct):
    type: str = ""
    rolling_update: RollingUpdate | None = None


class DeploymentSpec(WorkloadSpec):
    strategy: DeploymentStrategy | None = None
    paused: bool = False
    progress_deadline_seconds: int | None = None
    revision_history_limit: int | None = None


class WorkloadStatus(Struct):
    replicas: int = 0
    ready_replicas: int = 0
    available_replicas: int = 0
    observed_generation: int = 0
    conditions: list[Condition] = field(default_factory=list)


class ReplicationController(Object):
    spec: ReplicationControllerSpec = field(default_factory=ReplicationControllerSpec)
    status: WorkloadStatus = field(default_factory=WorkloadStatus)


class ReplicaSet(Object):
    spec: WorkloadSpec = field(default_factory=WorkloadSpec)
    status: WorkloadStatus = field(default_factory=WorkloadStatus)


class StatefulSet(Object):
    spec: WorkloadSpec = field(default_factory=WorkloadSpec)
    status: WorkloadStatus = field(default_factory=WorkloadStatus)


class Deployment(Object):
    spec: DeploymentSpec = field(default_factory=DeploymentSpec)
    status: WorkloadStatus = field(default_factory=WorkloadStatus)


class DaemonSet(Object):
    spec: WorkloadSpec = field(default_factory=WorkloadSpec)


class JobSpec(Struct):
    parallelism: int | None = None
    completions: int | None = None
    active_deadline_seconds: int | None = None
    backoff_limit: int | None = None
    suspend: bool | None = None
    selector: LabelSelector | None = None
    template: dict[str, Any] | None = None


class JobStatus(Struct):
    active: int = 0
    succeeded: int = 0
    failed: int = 0
    conditions: list[Condition] = field(default_factory=list)


class BatchJob(Object):
    spec: JobSpec = field(default_factory=JobSpec)
    status: JobStatus = field(default_factory=JobStatus)


class CronJob(Object):
    """Only its controller reads more of it, from the raw object."""
