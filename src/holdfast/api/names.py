"""Names other programs know: labels, annotations, taints, resources, schedulers.

They stand here and nowhere else, so that a search for a name ends in one place.
"""

from __future__ import annotations

# API groups and versions.
RESERVATION_API = "scheduling.koordinator.sh/v1alpha1"
VOLCANO_API = "scheduling.volcano.sh/v1beta1"
SIGS_PODGROUP_API = "scheduling.sigs.k8s.io/v1alpha1"
WORKLOAD_API = "scheduling.k8s.io/v1beta1"
WORKLOAD_GROUP = "scheduling.k8s.io"
VOLCANO_JOB_API = "batch.volcano.sh/v1alpha1"
TOPOLOGY_API = "topology.node.k8s.io/v1alpha1"
RESOURCE_API = "resource.k8s.io/v1"
HOLDFAST_API = "scheduling.holdfast.io/v1alpha1"
SIM_API = "sim.holdfast.io/v1alpha1"

# Schedulers a pod may ask for.
DEFAULT_SCHEDULER = "default-scheduler"
HOLDFAST_SCHEDULER = "holdfast-scheduler"
KOORD_SCHEDULER = "koord-scheduler"

DEFAULT_NAMESPACE = "default"

# Resources.
CPU = "cpu"
MEMORY = "memory"
STORAGE = "storage"
PODS = "pods"
HUGEPAGES_PREFIX = "hugepages-"
ATTACHABLE_VOLUMES_PREFIX = "attachable-volumes-"

# GPU requests come whole (a vendor's name), in percent, or as parts of a card.
NVIDIA_GPU = "nvidia.com/gpu"
AMD_GPU = "amd.com/gpu"
DCU_GPU = "dcu.com/gpu"
GPU_PERCENT = "koordinator.sh/gpu"
GPU_SHARED = "koordinator.sh/gpu.shared"
GPU_CORE = "koordinator.sh/gpu-core"
GPU_MEMORY = "koordinator.sh/gpu-memory"
GPU_MEMORY_RATIO = "koordinator.sh/gpu-memory-ratio"
RDMA = "koordinator.sh/rdma"
FPGA = "koordinator.sh/fpga"

# Kubernetes: node labels and their older spellings.
HOSTNAME_LABEL = "kubernetes.io/hostname"
ZONE_LABEL = "topology.kubernetes.io/zone"
REGION_LABEL = "topology.kubernetes.io/region"
OLD_ZONE_LABEL = "failure-domain.beta.kubernetes.io/zone"
OLD_REGION_LABEL = "failure-domain.beta.kubernetes.io/region"
OS_LABEL = "kubernetes.io/os"
ARCH_LABEL = "kubernetes.io/arch"
INSTANCE_TYPE_LABEL = "node.kubernetes.io/instance-type"
NAMESPACE_NAME_LABEL = "kubernetes.io/metadata.name"
NODE_NAME_FIELD = "metadata.name"

# Kubernetes: taints a node controller sets.
TAINT_UNSCHEDULABLE = "node.kubernetes.io/unschedulable"
TAINT_NOT_READY = "node.kubernetes.io/not-ready"
TAINT_UNREACHABLE = "node.kubernetes.io/unreachable"
TAINT_MEMORY_PRESSURE = "node.kubernetes.io/memory-pressure"
TAINT_DISK_PRESSURE = "node.kubernetes.io/disk-pressure"
TAINT_PID_PRESSURE = "node.kubernetes.io/pid-pressure"
TAINT_NETWORK_UNAVAILABLE = "node.kubernetes.io/network-unavailable"

NO_SCHEDULE = "NoSchedule"
PREFER_NO_SCHEDULE = "PreferNoSchedule"
NO_EXECUTE = "NoExecute"

# Kubernetes: annotations of pods, claims and volumes.
MIRROR_POD_ANNOTATION = "kubernetes.io/config.mirror"
SELECTED_NODE_ANNOTATION = "volume.kubernetes.io/selected-node"
BIND_COMPLETED_ANNOTATION = "pv.kubernetes.io/bind-completed"
BOUND_BY_CONTROLLER_ANNOTATION = "pv.kubernetes.io/bound-by-controller"
PROVISIONED_BY_ANNOTATION = "pv.kubernetes.io/provisioned-by"
DEFAULT_STORAGE_CLASS_ANNOTATION = "storageclass.kubernetes.io/is-default-class"
STORAGE_CLASS_ANNOTATION = "volume.beta.kubernetes.io/storage-class"
MIGRATED_PLUGINS_ANNOTATION = "storage.alpha.kubernetes.io/migrated-plugins"
LAST_APPLIED_ANNOTATION = "kubectl.kubernetes.io/last-applied-configuration"
DELETION_COST_ANNOTATION = "controller.kubernetes.io/pod-deletion-cost"

NO_PROVISIONER = "kubernetes.io/no-provisioner"

# Kubernetes: resource claims.
POD_GROUP_FINALIZER = "scheduling.k8s.io/podgroup-protection"
CLAIM_FINALIZER = "resource.kubernetes.io/delete-protection"
POD_CLAIM_NAME_ANNOTATION = "resource.kubernetes.io/pod-claim-name"
EXTENDED_RESOURCE_CLAIM_ANNOTATION = "resource.kubernetes.io/extended-resource-claim"
ADMIN_ACCESS_LABEL = "resource.kubernetes.io/admin-access"
"""On a namespace: its claims may ask for devices in use."""
DEVICE_CLASS_RESOURCE_PREFIX = "deviceclass.resource.kubernetes.io/"
"""With the name of a DeviceClass: the extended resource that every class has."""

# Kubernetes: the two classes whose pods keep a cluster alive.
SYSTEM_CLUSTER_CRITICAL = "system-cluster-critical"
SYSTEM_NODE_CRITICAL = "system-node-critical"

# Reservations, written on pods.
RESERVATION_ALLOCATED = "scheduling.koordinator.sh/reservation-allocated"
RESERVATION_AFFINITY = "scheduling.koordinator.sh/reservation-affinity"
EXACT_MATCH_RESERVATION = "scheduling.koordinator.sh/exact-match-reservation"
RESERVATION_IGNORED = "scheduling.koordinator.sh/reservation-ignored"
DISABLE_PREEMPTIBLE = "scheduling.koordinator.sh/disable-preemptible"

# Reservations, written on reservations.
RESERVATION_ORDER = "scheduling.koordinator.sh/reservation-order"
RESERVATION_RESTRICTED_OPTIONS = "scheduling.koordinator.sh/reservation-restricted-options"
RESERVATION_RESIZE_ALLOCATABLE = "scheduling.koordinator.sh/reservation-resize-allocatable"
RESERVATION_INNER = "node.koordinator.sh/reservation"

# Preemption among reservations.
RESERVATION_PRIORITY = "koordinator.sh/priority"
CAN_PREEMPT = "scheduling.koordinator.sh/can-preempt"
SOFT_EVICTION = "scheduling.koordinator.sh/soft-eviction"
PREEMPTS = "holdfast.io/preempts"
PREEMPTED_BY = "holdfast.io/preempted-by"

# Migration: why a pod is moved, and which pods used the reservation before, on the job; the cost of its
# eviction, on the pod; the job, on the reservation made for it.
EVICT_REASON = "koordinator.sh/evict-reason"
EVICT_TRIGGER = "koordinator.sh/evict-trigger"
EARLIER_OWNERS = "holdfast.io/earlier-owners"
EVICTION_COST = "scheduling.koordinator.sh/eviction-cost"
CREATED_BY = "app.kubernetes.io/created-by"
MIGRATION_JOB = "holdfast.io/migration-job"

# Dynamic reservations.
RESERVATION_TEMPLATE = "scheduling.koordinator.sh/reservation-template"
NEW_RESERVATION_REQUIREMENT = "scheduling.koordinator.sh/new-reservation-requirement"
RESERVATION_ID = "scheduling.koordinator.sh/reservation-id"
RESERVATION_PROVISION_ERROR = "scheduling.koordinator.sh/reservation-provision-error"

# LimitAware, written on nodes.
LIMIT_TO_ALLOCATABLE = "node.koordinator.sh/limit-to-allocatable"

# Devices, written on pods and reservations.
DEVICE_ALLOCATED = "scheduling.koordinator.sh/device-allocated"
DEVICE_ALLOCATE_HINT = "scheduling.koordinator.sh/device-allocate-hint"
DEVICE_JOINT_ALLOCATE = "scheduling.koordinator.sh/device-joint-allocate"
GPU_PARTITIONS = "scheduling.koordinator.sh/gpu-partitions"
GPU_PARTITION_SPEC = "scheduling.koordinator.sh/gpu-partition-spec"

# CPUs and NUMA nodes: requests and results on pods, policies on nodes.
QOS_CLASS = "koordinator.sh/qosClass"
RESOURCE_SPEC = "scheduling.koordinator.sh/resource-spec"
RESOURCE_STATUS = "scheduling.koordinator.sh/resource-status"
NUMA_TOPOLOGY_SPEC = "scheduling.koordinator.sh/numa-topology-spec"
NODE_NUMA_TOPOLOGY_POLICY = "node.koordinator.sh/numa-topology-policy"
NODE_CPU_BIND_POLICY = "node.koordinator.sh/cpu-bind-policy"
NODE_NUMA_ALLOCATE_STRATEGY = "node.koordinator.sh/numa-allocate-strategy"
GPU_PARTITION_POLICY = "node.koordinator.sh/gpu-partition-policy"
GPU_VENDOR = "node.koordinator.sh/gpu-vendor"
KUBELET_CPU_POLICY = "kubelet.koordinator.sh/cpu-manager-policy"
POD_CPU_ALLOCS = "node.koordinator.sh/pod-cpu-allocs"
SYSTEM_CPUS = "node.koordinator.sh/system-qos-resource"
AMPLIFICATION_RATIO = "node.koordinator.sh/resource-amplification-ratio"
KOORD_PRIORITY_CLASS = "koordinator.sh/priority-class"
CPU_TOPOLOGY = "node.koordinator.sh/cpu-topology"

# Gangs by annotation (on pods, and on reservations that belong together).
GANG_NAME = "gang.scheduling.koordinator.sh/name"
GANG_MIN_AVAILABLE = "gang.scheduling.koordinator.sh/min-available"
GANG_TOTAL_NUMBER = "gang.scheduling.koordinator.sh/total-number"
GANG_WAITING_TIME = "gang.scheduling.koordinator.sh/waiting-time"
GANG_MODE = "gang.scheduling.koordinator.sh/mode"
GANG_GROUPS = "gang.scheduling.koordinator.sh/groups"
GANG_MATCH_POLICY = "gang.scheduling.koordinator.sh/match-policy"
GANG_KEYS = (
    GANG_NAME,
    GANG_MIN_AVAILABLE,
    GANG_TOTAL_NUMBER,
    GANG_WAITING_TIME,
    GANG_MODE,
    GANG_GROUPS,
    GANG_MATCH_POLICY,
)
ONCE_SATISFIED, WAITING_AND_RUNNING = "once-satisfied", "waiting-and-running"

# Which PodGroup and queue a pod belongs to.
POD_GROUP_LABEL = "pod-group.scheduling.sigs.k8s.io"
LIGHT_GROUP_NAME = "pod-group.scheduling.sigs.k8s.io/name"
LIGHT_GROUP_MIN_AVAILABLE = "pod-group.scheduling.sigs.k8s.io/min-available"
LIGHT_GROUP_MATCH_POLICY = "pod-group.scheduling.sigs.k8s.io/match-policy"
GROUP_NAME_ANNOTATION = "scheduling.k8s.io/group-name"
VOLCANO_GROUP_NAME_ANNOTATION = "scheduling.volcano.sh/group-name"
QUEUE_NAME_ANNOTATION = "scheduling.volcano.sh/queue-name"
TASK_SPEC = "volcano.sh/task-spec"
PREEMPTABLE = "volcano.sh/preemptable"
NO = "false"
VOLCANO_JOB_NAME = "volcano.sh/job-name"

# Holdfast's own.
RUN_ESTIMATE = "holdfast.io/run-estimate"
OVERRAN = "holdfast.io/overran"
"""When a pod was found to have exceeded its run-time estimate where capacity is held for others."""
PREEMPTOR_UID = "holdfast.io/preemptor-uid"
HELD_FOR = "holdfast.io/held-for"
HELD_BECAUSE = "holdfast.io/held-because"
HELD_DEVICES = "holdfast.io/held-devices"
"""On a ResourceClaim of a reservation: the devices that it holds, as an allocation in JSON."""
MANAGED_BY = "app.kubernetes.io/managed-by"
"""On a ResourceClaimTemplate that `holdfast reserve` created."""
RUNNING_CONFIGURATION = "holdfast.io/running-configuration"
"""Annotation of the scheduler's Lease: the configuration of the leader, as JSON."""
LEASE_LABELS = {"app.kubernetes.io/name": "holdfast"}
"""By which the Leases of Holdfast's processes are found."""
HOLD_LABEL = "holdfast.io/hold"
STARVATION = "starvation"
"""The value of the hold label on starvation holds."""
HOLD_JOB = "holdfast.io/hold-job"
HOLD_EXPECTED_START = "holdfast.io/expected-start"

# The calendar: when a Reservation starts, what happens on its node before, and how it ends.
STARTS_AT = "holdfast.io/starts-at"
LEAD = "holdfast.io/lead"
BEFORE_START = "holdfast.io/before-start"
RELEASE_IF_UNUSED_AFTER = "holdfast.io/release-if-unused-after"
AT_END = "holdfast.io/at-end"
SCHEDULE_GENERATION = "holdfast.io/schedule-generation"
"""On a Reservation: the generation of the ReservationSchedule it was made from."""

# Simulation: when things happen to an object.
SIM_PREFIX = "sim.holdfast.io/"
SIM_AT = "sim.holdfast.io/at"
SIM_DELETE_AT = "sim.holdfast.io/delete-at"
SIM_RUNS_FOR = "sim.holdfast.io/runs-for"
SIM_STOPS_IN = "sim.holdfast.io/stops-in"
SIM_COUNT = "sim.holdfast.io/count"
"""On a Node of `up --node-file`: how many nodes it stands for."""

# Where a pod's group may be written, in the order they are believed.
POD_GROUP_KEYS = (POD_GROUP_LABEL, VOLCANO_GROUP_NAME_ANNOTATION, GROUP_NAME_ANNOTATION)

# A reservation without a priority label is never a victim.
UNSET_RESERVATION_PRIORITY = 2**31 - 1
