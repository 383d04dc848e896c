"""Jobs of several pods, and the queues they wait in."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from msgspec import field

from holdfast.api.meta import Condition, Object, ResourceList, Struct
from holdfast.api.similar_names import did_you_mean


class PodGroupCondition(Condition):
    transition_id: str = field(default="", name="transitionID")


class NetworkTopology(Struct):
    mode: str = ""
    highest_tier_allowed: int | None = None
    highest_tier_name: str = ""


class PodGroupSpec(Struct):
    """The fields of both groups: Volcano's, and `schedule_timeout_seconds` of the sigs one."""

    min_member: int = 0
    min_task_member: dict[str, int] = field(default_factory=dict)
    queue: str = ""
    priority_class_name: str = ""
    min_resources: ResourceList = field(default_factory=dict)
    network_topology: NetworkTopology | None = None
    schedule_timeout_seconds: int | None = None


class PodGroupStatus(Struct):
    phase: str = ""
    conditions: list[PodGroupCondition] = field(default_factory=list)
    running: int = 0
    succeeded: int = 0
    failed: int = 0
    scheduled: int = 0
    occupied_by: str = ""
    schedule_start_time: str | None = None


class PodGroup(Object):
    """`scheduling.volcano.sh/v1beta1` and `scheduling.sigs.k8s.io/v1alpha1`."""

    spec: PodGroupSpec = field(default_factory=PodGroupSpec)
    status: PodGroupStatus = field(default_factory=PodGroupStatus)


class Guarantee(Struct):
    resource: ResourceList = field(default_factory=dict)


ROOT_QUEUE = "root"
"""Above all queues; it need not exist."""


class QueueSpec(Struct):
    """None where an absent value means something else than zero: no cap, no own share."""

    weight: int = 1
    capability: ResourceList | None = None
    deserved: ResourceList | None = None
    guarantee: Guarantee | None = None
    reclaimable: bool | None = None
    parent: str = ""
    priority: int = 0
    dequeue_strategy: str = ""


class QueueStatus(Struct):
    state: str = ""
    allocated: ResourceList = field(default_factory=dict)
    pending: int = 0
    running: int = 0
    inqueue: int = 0
    unknown: int = 0
    completed: int = 0


class Queue(Object):
    spec: QueueSpec = field(default_factory=QueueSpec)
    status: QueueStatus = field(default_factory=QueueStatus)


def missing_parent(queue: str, parent: str, known: Collection[str]) -> str:
    """What is wrong with the parent of a queue; empty if it exists, or the queue has none."""
    if parent in ("", ROOT_QUEUE, queue) or parent in known:
        return ""
    hint = did_you_mean(parent, [each for each in known if each != queue])
    return f"its parent {parent} does not exist, so that nothing above it limits it{hint}"


class VolcanoTask(Struct):
    name: str = ""
    replicas: int = 0
    min_available: int | None = None
    template: dict[str, Any] | None = None


class VolcanoJobSpec(Struct):
    scheduler_name: str = ""
    min_available: int = 0
    tasks: list[VolcanoTask] = field(default_factory=list)
    queue: str = ""
    priority_class_name: str = ""
    running_estimate: str | None = None


class VolcanoJob(Object):
    """Read only for its `running_estimate`; its pods and PodGroup come from Volcano."""

    spec: VolcanoJobSpec = field(default_factory=VolcanoJobSpec)
