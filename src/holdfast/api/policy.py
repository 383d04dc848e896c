"""Disruption budgets, priority and runtime classes, namespaces, leases."""

from __future__ import annotations

from msgspec import field

from holdfast.api.affinity import Toleration
from holdfast.api.intorstring import IntOrString
from holdfast.api.meta import Condition, LabelSelector, Object, ResourceList, Struct


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
