"""Labels and annotations: where each is, what writes it, its value and its meaning."""

from __future__ import annotations

from typing import NamedTuple

from holdfast.api import names
from reference_pages.markdown import code, page, table

_INTRODUCTION = """\
Every label and annotation that Holdfast reads or writes. "You" is the author of the object, or the controller that
creates it. Koordinator's agent is koordlet.
"""


class Name(NamedTuple):
    where: str
    written_by: str
    value: str
    meaning: str


_R = "[reservations](../reservations.md)"
_N = "[NUMA](../numa.md)"
_G = "[GPUs](../gpu.md)"
_J = "[jobs](../jobs.md#membership)"
_D = "[dynamic reservations](../dynamic-reservations.md#protocol)"
_P = "[reservation preemption](../reservation-preemption.md)"
_S = "[starvation](../starvation.md)"
_M = "[migrating pods](../reservations.md#migrating-pods)"
_K = "as in Kubernetes"

SECTIONS: dict[str, dict[str, Name]] = {
    "Reservations, on pods": {
        "RESERVATION_ALLOCATED": Name(
            "annotation of a pod",
            "the scheduler, with the binding",
            '`{"name", "uid"}`',
            f"the reservation that the pod uses; {_R}",
        ),
        "RESERVATION_AFFINITY": Name(
            "annotation of a pod",
            "you",
            '`{"name", "reservationSelector", "requiredDuringSchedulingIgnoredDuringExecution", "tolerations"}`',
            f"the pod must use a matching reservation; {_R}",
        ),
        "EXACT_MATCH_RESERVATION": Name(
            "annotation of a pod",
            "you",
            '`{"resourceNames": []}`',
            f"only a reservation with exactly the pod's amounts; {_R}",
        ),
        "RESERVATION_IGNORED": Name(
            "label of a pod", "you", "`true`", f"the pod uses no reservation; {_R}"
        ),
        "DISABLE_PREEMPTIBLE": Name(
            "label of a pod or reservation", "you", "`true`", "never a victim of preemption"
        ),
    },
    "Reservations, on reservations": {
        "RESERVATION_ORDER": Name(
            "label of a reservation",
            "you; migrations",
            "an integer above 0",
            f"of several matching reservations on a node, the lowest is used first; {_R}",
        ),
        "RESERVATION_RESTRICTED_OPTIONS": Name(
            "annotation of a reservation",
            "you",
            '`{"resources": []}`',
            "the resources to which `allocatePolicy: Restricted` applies; default: all that it reserves",
        ),
        "RESERVATION_RESIZE_ALLOCATABLE": Name(
            "annotation of a reservation",
            "you",
            '`{"resources": {}}`',
            "amounts that replace those of the template",
        ),
        "RESERVATION_INNER": Name(
            "annotation of a reservation or NodeResourceTopology",
            "you; koordlet",
            '`{"resources": {}}`',
            f"an amount inside the reservation that owners do not get; on a NodeResourceTopology, CPUs of the system ({_N})",
        ),
    },
    "Reservation preemption": {
        "RESERVATION_PRIORITY": Name(
            "label of a reservation",
            "you",
            "a 32-bit integer",
            f"its priority; without one it is never a victim; {_P}",
        ),
        "CAN_PREEMPT": Name(
            "label of a reservation",
            "you",
            "`true`",
            f"it may preempt reservations of lower priority; {_P}",
        ),
        "SOFT_EVICTION": Name(
            "label and annotation of a reservation",
            "the scheduler",
            'label `true`; annotation `{"timestamp", "initiator", "reason"}`',
            f"it is preempted with `eviction: Soft`; {_P}",
        ),
        "PREEMPTS": Name(
            "annotation of a reservation",
            "the scheduler",
            "a JSON list",
            f"its victims, for a restarted scheduler; {_P}",
        ),
        "PREEMPTED_BY": Name(
            "annotation of a reservation",
            "the scheduler",
            "`Reservation/name`",
            f"the reservation that preempts it; {_P}",
        ),
    },
    "Holds": {
        "PREEMPTOR_UID": Name(
            "label of a reservation",
            "the scheduler",
            "a UID",
            "the pod of a [preemption hold](../reservations.md#preemption-holds)",
        ),
        "HELD_FOR": Name(
            "annotation of a reservation", "the scheduler", "a pod", "the pod that capacity is held for"
        ),
        "HELD_BECAUSE": Name("annotation of a reservation", "the scheduler", "text", "why it is held"),
        "HELD_DEVICES": Name(
            "annotation of a ResourceClaim that a reservation owns",
            "the scheduler",
            "an allocation in JSON",
            "the devices that the reservation holds, those in use by owners included",
        ),
        "MANAGED_BY": Name(
            "label of a ResourceClaimTemplate",
            "`holdfast reserve`",
            "`holdfast-reserve`",
            "it was created for reservations and is deleted after them",
        ),
        "HOLD_LABEL": Name(
            "label of a reservation", "the scheduler", "`starvation`", f"it is a starvation hold; {_S}"
        ),
        "HOLD_JOB": Name(
            "annotation of a reservation, and label with the name alone",
            "the scheduler",
            "`PodGroup/namespace/name` or `Pod/namespace/name`",
            f"the starving job; {_S}",
        ),
        "HOLD_EXPECTED_START": Name(
            "annotation of a reservation",
            "the scheduler",
            "a time",
            f"when the held capacity should be free; {_S}",
        ),
        "OVERRAN": Name(
            "annotation of a pod",
            "the scheduler",
            "a time in RFC 3339",
            "when the pod was found to have exceeded its run-time estimate where capacity is held for others; "
            "its job is not [backfilled](../starvation.md#backfill) again",
        ),
        "RUN_ESTIMATE": Name(
            "annotation of a pod",
            "you",
            "a duration, `2h30m`",
            "how long the pod runs; for [backfill](../starvation.md#backfill) and pre-allocation",
        ),
        "STARTS_AT": Name(
            "annotation of a reservation",
            "you",
            "a time, `2026-12-01T18:00:00Z`",
            "when the reservation starts; see [calendar](../calendar.md)",
        ),
        "LEAD": Name(
            "annotation of a reservation",
            "you",
            "a duration, `30m`",
            "how long before its start its node is drained",
        ),
        "BEFORE_START": Name(
            "annotation of a reservation",
            "you",
            "`Backfill`, `Drain` or `Preempt`",
            "what may run on its node before its start",
        ),
        "RELEASE_IF_UNUSED_AFTER": Name(
            "annotation of a reservation",
            "you",
            "a duration",
            "the reservation ends if no owner uses it for so long",
        ),
        "AT_END": Name(
            "annotation of a reservation",
            "you",
            "`Keep` or `Evict`",
            "what happens to owners when the reservation expires",
        ),
        "SCHEDULE_GENERATION": Name(
            "annotation of a reservation",
            "the scheduler",
            "a number",
            "the generation of the ReservationSchedule it was made from",
        ),
    },
    "Dynamic reservations": {
        "RESERVATION_TEMPLATE": Name(
            "annotation of a pod", "you", "JSON", f"request a reservation made from this template; {_D}"
        ),
        "NEW_RESERVATION_REQUIREMENT": Name(
            "annotation of a pod",
            "the scheduler",
            '`{"labels", "resources"}`',
            f"what the provisioner should create; {_D}",
        ),
        "RESERVATION_ID": Name(
            "label or annotation of a reservation",
            "the provisioner",
            "an id",
            f"the request that it fulfils; {_D}",
        ),
        "RESERVATION_PROVISION_ERROR": Name(
            "annotation of a pod", "the provisioner", "text", f"why it was not created; {_D}"
        ),
    },
    "Migration": {
        "EVICT_REASON": Name(
            "annotation of a PodMigrationJob", "you", "text", f"shown in events as the reason; {_M}"
        ),
        "EVICT_TRIGGER": Name(
            "annotation of a PodMigrationJob", "you", "text", "the same, if there is no reason"
        ),
        "EARLIER_OWNERS": Name(
            "annotation of a PodMigrationJob",
            "the scheduler",
            "UIDs, separated by commas",
            "the pods that used its reservation before; none of them is the replacement",
        ),
        "EVICTION_COST": Name(
            "annotation of a pod", "you", "an integer", "`2147483647`: the pod is never migrated"
        ),
        "CREATED_BY": Name("label of a reservation", "the scheduler", "text", "made for a migration"),
        "MIGRATION_JOB": Name(
            "label of a reservation",
            "the scheduler",
            "the name of the job",
            f"the migration that it is for; {_M}",
        ),
    },
    "Limits": {
        "LIMIT_TO_ALLOCATABLE": Name(
            "annotation of a node",
            "you",
            '`{"cpu": "125%", "memory": 150}`',
            "the bound on the sum of limits: [limit-aware scheduling](../limit-aware.md)",
        ),
    },
    "Devices": {
        "DEVICE_ALLOCATED": Name(
            "annotation of a pod or reservation",
            "the scheduler",
            "JSON",
            f"the devices that it has; {_G}",
        ),
        "DEVICE_ALLOCATE_HINT": Name(
            "annotation of a pod", "you", "JSON", f"topology, selectors and strategy; {_G}"
        ),
        "DEVICE_JOINT_ALLOCATE": Name(
            "annotation of a pod", "you", "JSON", f"devices of several types close to each other; {_G}"
        ),
        "GPU_PARTITION_SPEC": Name("annotation of a pod", "you", "JSON", f"use a GPU partition; {_G}"),
        "GPU_PARTITIONS": Name(
            "annotation of a Device", "koordlet", "JSON", f"the partitions of a node; {_G}"
        ),
        "GPU_PARTITION_POLICY": Name(
            "label of a Device",
            "koordlet, you",
            "`Honor`",
            f"allocate whole GPUs only by partition; {_G}",
        ),
        "GPU_VENDOR": Name(
            "label of a Device", "koordlet", "`nvidia`, …", "which vendor's resource the GPUs are"
        ),
    },
    "CPUs and NUMA nodes": {
        "QOS_CLASS": Name(
            "label of a pod", "you", "`LSE`, `LSR`, …", f"`LSE` and `LSR` get exclusive CPUs; {_N}"
        ),
        "KOORD_PRIORITY_CLASS": Name(
            "label of a pod",
            "you",
            "`koord-prod`, …",
            "Koordinator's priority class, if the priority does not tell",
        ),
        "RESOURCE_SPEC": Name("annotation of a pod", "you", "JSON", f"how CPUs are chosen; {_N}"),
        "RESOURCE_STATUS": Name(
            "annotation of a pod or reservation",
            "the scheduler",
            '`{"cpuset", "numaNodeResources"}`',
            f"the CPUs and NUMA nodes that it has; {_N}",
        ),
        "NUMA_TOPOLOGY_SPEC": Name("annotation of a pod", "you", "JSON", f"NUMA policy; {_N}"),
        "NODE_NUMA_TOPOLOGY_POLICY": Name(
            "label of a node",
            "you",
            "`SingleNUMANode`, `Restricted`, `BestEffort`",
            f"NUMA policy of all pods there; {_N}",
        ),
        "NODE_CPU_BIND_POLICY": Name(
            "label of a node",
            "you",
            "`FullPCPUsOnly`, `SpreadByPCPUs`",
            f"required for all pods there; {_N}",
        ),
        "NODE_NUMA_ALLOCATE_STRATEGY": Name(
            "label of a node",
            "you",
            "`LeastAllocated`, `MostAllocated`",
            f"which NUMA node is preferred; {_N}",
        ),
        "CPU_TOPOLOGY": Name(
            "annotation of a NodeResourceTopology", "koordlet", "JSON", f"the CPUs of the node; {_N}"
        ),
        "KUBELET_CPU_POLICY": Name(
            "annotation of a NodeResourceTopology",
            "koordlet",
            "JSON",
            "CPUs that the kubelet manages or keeps",
        ),
        "POD_CPU_ALLOCS": Name(
            "annotation of a NodeResourceTopology",
            "koordlet",
            "JSON",
            "CPUs that the kubelet has given to pods",
        ),
        "SYSTEM_CPUS": Name(
            "annotation of a NodeResourceTopology", "koordlet", "JSON", "CPUs of the system"
        ),
        "AMPLIFICATION_RATIO": Name(
            "annotation of a node",
            "koordlet, you",
            '`{"cpu": 1.5}`',
            "how many times the node advertises its CPUs",
        ),
    },
    "Jobs and queues": {
        "GANG_NAME": Name("annotation of a pod or reservation", "you", "a name", f"the gang; {_J}"),
        "GANG_MIN_AVAILABLE": Name(
            "annotation of a pod or reservation",
            "you",
            "an integer",
            f"members that must have a node before any starts; {_J}",
        ),
        "GANG_TOTAL_NUMBER": Name(
            "annotation of a pod or reservation",
            "you",
            "an integer",
            "members that the gang has; default: `min-available`",
        ),
        "GANG_WAITING_TIME": Name(
            "annotation of a pod",
            "you",
            "a duration",
            "how long it may be pending before `ScheduleTimeout` is reported",
        ),
        "GANG_MODE": Name(
            "annotation of a pod",
            "you",
            "`Strict`, `NonStrict`",
            "accepted, no effect: a gang never starts in part",
        ),
        "GANG_GROUPS": Name(
            "annotation of a pod or PodGroup",
            "you",
            '`["ns/a", "ns/b"]`',
            f"gangs that start together; {_J}",
        ),
        "GANG_MATCH_POLICY": Name(
            "annotation of a pod or PodGroup",
            "you",
            "`once-satisfied`, `waiting-and-running`",
            f"which members count; {_J}",
        ),
        "POD_GROUP_LABEL": Name(
            "label or annotation of a pod",
            "you",
            "a name",
            f"a PodGroup of `scheduling.sigs.k8s.io`; {_J}",
        ),
        "LIGHT_GROUP_NAME": Name("label of a pod", "you", "a name", f"a gang without an object; {_J}"),
        "LIGHT_GROUP_MIN_AVAILABLE": Name(
            "label of a pod", "you", "an integer", "its least number of members"
        ),
        "LIGHT_GROUP_MATCH_POLICY": Name("label of a pod", "you", "as above", "which members count"),
        "GROUP_NAME_ANNOTATION": Name(
            "annotation or label of a pod",
            "you, Volcano's controller",
            "a name",
            f"a PodGroup of `scheduling.volcano.sh`; {_J}",
        ),
        "VOLCANO_GROUP_NAME_ANNOTATION": Name(
            "annotation of a pod", "you, Volcano's controller", "a name", f"the same; {_J}"
        ),
        "QUEUE_NAME_ANNOTATION": Name(
            "annotation of a pod",
            "you",
            "a name",
            "the [queue](../jobs.md#queues) of a pod without a group",
        ),
        "TASK_SPEC": Name(
            "annotation of a pod",
            "you, Volcano's controller",
            "a name",
            "the task, for `minTaskMember`",
        ),
        "PREEMPTABLE": Name(
            "annotation of a pod or PodGroup",
            "you",
            "`false`",
            "never a victim of [preempt and reclaim](../jobs.md#actions)",
        ),
        "VOLCANO_JOB_NAME": Name(
            "annotation of a pod",
            "Volcano's controller",
            "a name",
            "the Volcano job, for `runningEstimate`",
        ),
    },
    "Simulation": {
        "SIM_AT": Name(
            "annotation of any object",
            "you",
            "a duration",
            "when it is created: [scenarios](../../examples/README.md#annotations)",
        ),
        "SIM_DELETE_AT": Name("annotation of any object", "you", "a duration", "when it is deleted"),
        "SIM_RUNS_FOR": Name(
            "annotation of a pod",
            "you",
            "a duration",
            "how long it runs after its binding, in `simulate` and `up`",
        ),
        "SIM_COUNT": Name(
            "annotation of any object of a scenario",
            "you",
            "an integer",
            "how many of it there are in `simulate`",
        ),
        "SIM_STOPS_IN": Name(
            "annotation of a pod",
            "you",
            "a duration",
            "how long it takes to stop, in `simulate` and `up`",
        ),
    },
    "Of Kubernetes": {
        "HOSTNAME_LABEL": Name("label of a node", "the kubelet", "a name", "topology spread"),
        "ZONE_LABEL": Name(
            "label of a node or volume", "the cloud provider", "a name", "topology spread, volumes"
        ),
        "REGION_LABEL": Name("label of a node or volume", "the cloud provider", "a name", "volumes"),
        "OLD_ZONE_LABEL": Name("label of a volume", "older clusters", "a name", "the zone"),
        "OLD_REGION_LABEL": Name("label of a volume", "older clusters", "a name", "the region"),
        "OS_LABEL": Name("label of a node", "the kubelet", "`linux`", "set by `holdfast up`"),
        "ARCH_LABEL": Name("label of a node", "the kubelet", "`amd64`, …", "set by `holdfast up`"),
        "INSTANCE_TYPE_LABEL": Name(
            "label of a node", "the cloud provider", "a name", "set by `holdfast up`"
        ),
        "NAMESPACE_NAME_LABEL": Name(
            "label of a Namespace", "the API server", "its name", "namespace selectors"
        ),
        "MIRROR_POD_ANNOTATION": Name(
            "annotation of a pod",
            "the kubelet",
            "a hash",
            "a static pod: never a victim, never migrated",
        ),
        "SELECTED_NODE_ANNOTATION": Name(
            "annotation of a claim", "the scheduler", "a node", "provision the volume for this node"
        ),
        "POD_CLAIM_NAME_ANNOTATION": Name(
            "annotation of a resource claim",
            "the claim controller",
            "a name",
            "the entry of the pod's `resourceClaims` that the claim was created for",
        ),
        "EXTENDED_RESOURCE_CLAIM_ANNOTATION": Name(
            "annotation of a resource claim",
            "the scheduler",
            "`true`",
            "the claim serves a pod's requests for extended resources",
        ),
        "POD_GROUP_FINALIZER": Name(
            "finalizer of a PodGroup of `scheduling.k8s.io`",
            "the API server",
            "",
            "the group is kept while pods belong to it that have not ended",
        ),
        "CLAIM_FINALIZER": Name(
            "finalizer of a resource claim",
            "the scheduler",
            "",
            "an allocated claim is kept until it is deallocated",
        ),
        "ADMIN_ACCESS_LABEL": Name(
            "label of a namespace",
            "you",
            "`true`",
            "claims of the namespace may ask for `adminAccess`",
        ),
        "DEVICE_CLASS_RESOURCE_PREFIX": Name(
            "resource",
            "you",
            "a number",
            "with the name of a DeviceClass: a container's request for devices of that class",
        ),
        "BIND_COMPLETED_ANNOTATION": Name(
            "annotation of a claim", "the volume controller", "`yes`", _K
        ),
        "BOUND_BY_CONTROLLER_ANNOTATION": Name("annotation of a volume", "the scheduler", "`yes`", _K),
        "PROVISIONED_BY_ANNOTATION": Name(
            "annotation of a volume", "the provisioner", "a name", "set by `holdfast up`"
        ),
        "DEFAULT_STORAGE_CLASS_ANNOTATION": Name("annotation of a StorageClass", "you", "`true`", _K),
        "STORAGE_CLASS_ANNOTATION": Name(
            "annotation of a claim", "you", "a name", "the older form of `storageClassName`"
        ),
        "MIGRATED_PLUGINS_ANNOTATION": Name(
            "annotation of a CSINode",
            "the kubelet",
            "a list",
            "in-tree volumes that count for CSI drivers",
        ),
        "LAST_APPLIED_ANNOTATION": Name(
            "annotation of any object", "kubectl", "JSON", "not copied into revisions by `holdfast up`"
        ),
        "DELETION_COST_ANNOTATION": Name(
            "annotation of a pod",
            "you",
            "an integer",
            "which pod a ReplicaSet of `holdfast up` deletes first",
        ),
    },
    "Leases": {
        "RUNNING_CONFIGURATION": Name(
            "annotation of the Lease of `holdfast run`",
            "the scheduler, while it leads",
            '`{"configuration", "argumentsLeftOut": []}`',
            "what it runs with, for commands: [running](../running.md#the-running-configuration)",
        ),
    },
}
"""By the constant of `holdfast.api.names`."""

OTHERS = frozenset(
    """
    RESERVATION_API VOLCANO_API SIGS_PODGROUP_API WORKLOAD_API WORKLOAD_GROUP VOLCANO_JOB_API TOPOLOGY_API
    RESOURCE_API HOLDFAST_API
    SIM_API
    DEFAULT_SCHEDULER HOLDFAST_SCHEDULER KOORD_SCHEDULER DEFAULT_NAMESPACE
    CPU MEMORY STORAGE PODS HUGEPAGES_PREFIX ATTACHABLE_VOLUMES_PREFIX
    NVIDIA_GPU AMD_GPU DCU_GPU GPU_PERCENT GPU_SHARED GPU_CORE GPU_MEMORY GPU_MEMORY_RATIO RDMA FPGA
    NODE_NAME_FIELD NO_PROVISIONER SYSTEM_CLUSTER_CRITICAL SYSTEM_NODE_CRITICAL
    TAINT_UNSCHEDULABLE TAINT_NOT_READY TAINT_UNREACHABLE TAINT_MEMORY_PRESSURE TAINT_DISK_PRESSURE
    TAINT_PID_PRESSURE TAINT_NETWORK_UNAVAILABLE NO_SCHEDULE PREFER_NO_SCHEDULE NO_EXECUTE
    ONCE_SATISFIED WAITING_AND_RUNNING NO STARVATION SIM_PREFIX
    """.split()
)
"""Constants that are not labels or annotations: API versions, resources, taints, values."""


def text() -> str:
    return page(
        "Labels and annotations",
        _INTRODUCTION,
        *(part for title in SECTIONS for part in _section(title)),
    )


def _section(title: str) -> list[str]:
    rows = [
        (code(getattr(names, constant)), each.where, each.written_by, each.value, each.meaning)
        for constant, each in SECTIONS[title].items()
    ]
    return [f"## {title}\n", table(("name", "where", "written by", "value", "meaning"), rows)]
