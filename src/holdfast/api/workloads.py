"""What pods come from: controllers and services.

Pod templates stay raw dicts; a pod made from one is decoded as a pod.
"""

from __future__ import annotations

from typing import Any

from msgspec import field

from holdfast.api.intorstring import IntOrString
from holdfast.api.meta import Condition, LabelSelector, Object, Struct


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
    """ReplicaSet, StatefulSet, Deployment and DaemonSet, as far as we care, look the same."""

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


class Job(Object):
    spec: JobSpec = field(default_factory=JobSpec)
    status: JobStatus = field(default_factory=JobStatus)
