"""PodGroup and Workload of Kubernetes 1.37 (`scheduling.k8s.io/v1beta1`).

Pods name their PodGroup in `spec.schedulingGroup.podGroupName`. A Workload has templates from which
controllers make PodGroups; the scheduler reads the PodGroups only.
"""

from __future__ import annotations

from typing import Any

from msgspec import field

from holdfast.api.jobs import PodGroup, PodGroupSpec, PodGroupStatus
from holdfast.api.meta import Object, Struct

INITIALLY_SCHEDULED = "PodGroupInitiallyScheduled"
"""The condition that is True for ever once the group was first scheduled."""
DISRUPTION_TARGET = "DisruptionTarget"
PREEMPTION_BY_SCHEDULER = "PreemptionByScheduler"


def group_state(raw: dict[str, Any]) -> str:
    """The state of a raw PodGroup as kubectl shows it."""
    state = "Pending"
    for each in (raw.get("status") or {}).get("conditions") or ():
        if each.get("type") == INITIALLY_SCHEDULED and state in ("Pending", "Unschedulable"):
            state = "Scheduled" if each.get("status") == "True" else "Unschedulable"
        elif each.get("type") == DISRUPTION_TARGET:
            state = str(each.get("reason") or "")
    return state


class NoFields(Struct):
    """A policy or mode whose presence is its meaning."""


class GangPolicy(Struct):
    min_count: int = 1


class GroupSchedulingPolicy(Struct):
    """One of the two."""

    basic: NoFields | None = None
    gang: GangPolicy | None = None


class TopologyConstraint(Struct):
    key: str = ""


class GroupSchedulingConstraints(Struct):
    topology: tuple[TopologyConstraint, ...] = ()


class GroupDisruptionMode(Struct):
    """One of the two."""

    single: NoFields | None = None
    all: NoFields | None = None


class WorkloadReference(Struct):
    workload_name: str = ""
    template_name: str = ""


class CorePodGroupSpec(PodGroupSpec):
    """The fields of the other PodGroups that it inherits follow from its own, or are not set."""

    scheduling_policy: GroupSchedulingPolicy = field(default_factory=GroupSchedulingPolicy)
    scheduling_constraints: GroupSchedulingConstraints | None = None
    disruption_mode: GroupDisruptionMode | None = None
    priority: int | None = None
    preemption_policy: str | None = None
    workload_ref: WorkloadReference | None = None
    parent_composite_pod_group_name: str | None = None
    resource_claims: list[dict[str, Any]] = field(default_factory=list)

    def __post_init__(self) -> None:
        gang = self.scheduling_policy.gang
        self.min_member = 1 if gang is None else gang.min_count

    @property
    def topology_key(self) -> str:
        """The node label that must be equal for all members; empty if there is none."""
        constraints = self.scheduling_constraints
        return constraints.topology[0].key if constraints is not None and constraints.topology else ""

    @property
    def is_disrupted_whole(self) -> bool:
        return self.disruption_mode is not None and self.disruption_mode.all is not None


class CorePodGroupStatus(PodGroupStatus):
    """It has conditions, and the claims made for the group, which are kept as they are."""

    resource_claim_statuses: list[dict[str, Any]] = field(default_factory=list)


class CorePodGroup(PodGroup):
    """A PodGroup of `scheduling.k8s.io`."""

    spec: CorePodGroupSpec = field(default_factory=CorePodGroupSpec)
    status: CorePodGroupStatus = field(default_factory=CorePodGroupStatus)


class CoreWorkload(Object):
    """Decoded for its name only."""
