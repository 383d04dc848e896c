"""Messages: why a node is infeasible or a pod is pending, reasons of Events, conditions.

A text is written here as in the source, with `{}` where the source fills something in. Tests check that
each is in the source, and that reasons of plugins and Events in the source are here.
"""

from __future__ import annotations

from reference_pages.markdown import code, page, table

_INTRODUCTION = """\
A pod that has no node gets the condition `PodScheduled=False` with a message such as `0/5 nodes are available: 2
Insufficient cpu, 3 node(s) had untolerated taint(s).` and the Event `FailedScheduling`. Each node counts under the
first filter that rejected it. Messages of kube-scheduler and Koordinator are theirs to the letter. `…` stands for
text that depends on the object. `holdfast explain` adds what would help: [why is my pod
pending](../howto/why-is-my-pod-pending.md).
"""

REASONS: dict[str, dict[str, str]] = {
    "Nodes, taints and affinity": {
        "node(s) were unschedulable": "The node is cordoned: `kubectl uncordon`.",
        "node(s) had untolerated taint(s)": "Add a toleration, or remove the taint.",
        "node(s) didn't match the requested node name": "`spec.nodeName` of the pod.",
        "node(s) didn't match the nodeName specified by reservation": "`nodeName` in the template of the reservation.",
        "node(s) didn't match Pod's node affinity/selector": "`nodeSelector` or node affinity of the pod.",
        "node(s) didn't match scheduler-enforced node affinity": "`addedAffinity` of the configuration.",
        "pod affinity terms conflict": "The node names in the pod's affinity exclude each other.",
        "node(s) didn't have free ports for the requested pod ports": "A host port is in use, or reserved.",
        "node(s) didn't match pod affinity rules": "Required pod affinity.",
        "node(s) didn't match pod anti-affinity rules": "Required anti-affinity of the pod.",
        "node(s) didn't satisfy existing pods anti-affinity rules": "Required anti-affinity of a running pod or reservation.",
        "node(s) didn't match pod topology spread constraints": "`maxSkew` would be exceeded, or the node lacks the label.",
        "node(s) didn't match Pod's required features": "The pod needs a feature that the kubelet does not declare in `status.declaredFeatures`.",
        "node(s) didn't satisfy plugin {}": "A third-party plugin rejected the node without a reason.",
    },
    "Capacity": {
        "Insufficient {}": "Not enough of the resource is free. Reservations of other owners count as used: `holdfast get nodes`.",
        "Too many pods": "The node has as many pods and reservations as it takes.",
        "Insufficient {} limit": "The sum of limits would exceed the bound: [limit-aware scheduling](../limit-aware.md).",
        "node(s) had a malformed limit-to-allocatable annotation": "Fix the annotation of the node; its Event names the error.",
        "node(s) had capacity planned for reservations that start later": "A reservation of the [calendar](../calendar.md) takes the capacity later, and the pod is not known to end by then: `holdfast get reservations`, or give the pod a run-time estimate.",
        "node(s) resource was(were) reserved": "A [starvation hold](../starvation.md) with `hold: node`: `holdfast get holds`.",
    },
    "Reservations": {
        "node(s) no reservations match reservation affinity": "The pod must use a reservation, and none on the node matches.",
        "node(s) no reservation(s) to meet the requirements": "The matching reservations on the node are too small.",
        "Reservation(s) Insufficient {}": "The named or `Restricted` reservation has not enough left.",
        "Reservation(s) Too many pods": "It reserves `pods`, and that many use it.",
        "Insufficient {} by node": "The reservation has not enough, and the node not enough for the rest.",
        "node(s) only one same reusable reservation can be scheduled on a same node": "Two reusable reservations with the same owners.",
        "reservation is not active": "The reservation ended while the pod waited for it; the pod is scheduled again.",
        "waiting for preempted reservations to be gone: {}": "[Reservation preemption](../reservation-preemption.md) is in progress.",
    },
    "Volumes": {
        "node(s) exceed max volume count": "The attach limit of a CSI driver.",
        "{} CSI driver is not installed on the node": "The CSIDriver sets `preventPodSchedulingIfMissing`, and the node's CSINode lacks it.",
        "node(s) didn't match PersistentVolume's node affinity": "The volume is elsewhere.",
        "node(s) didn't find available persistent volumes to bind": "No matching volume, and the class cannot provision one there.",
        "node(s) did not have enough free storage": "CSIStorageCapacity shows too little.",
        "node(s) unavailable due to one or more pvc(s) bound to non-existent pv(s)": "A volume was deleted.",
        "pod has unbound immediate PersistentVolumeClaims": "The claim is not bound yet.",
        "node(s) had no available disk": "A disk in the pod spec is in use there.",
        "node(s) had no available volume zone": "The volume is in another zone.",
    },
    "Devices by claim (DRA)": {
        "cannot allocate all claims": "Not enough free devices match the ResourceClaims of the pod.",
        "resourceclaim not available on the node": "A claim of the pod is allocated for other nodes.",
        "invalid resource pools were encountered": "A driver publishes contradictory ResourceSlices.",
        "request {}: device class {} does not exist": "Create the DeviceClass, or name another in the claim.",
    },
    "Devices, CPUs and NUMA nodes": {
        "Insufficient {} devices": "Not enough free devices of the type: [GPUs](../gpu.md).",
        "Insufficient GPU Devices": "Not enough free GPUs, or parts of one.",
        "Insufficient devices": "Devices of several types.",
        "Insufficient Topology Scoped GPU Devices": "Not enough on one PCIe switch or NUMA node.",
        "Insufficient Partitioned GPU Devices": "No free GPU partition.",
        "Insufficient {} VirtualFunctions": "No free virtual function.",
        "node(s) missing GPU Device Topology Tree": "The `Device` has no topology.",
        "node(s) missing GPU Partition Table": "The `Device` has no partitions.",
        "node(s) Unsupported Multi-Shared GPU": "`gpu.shared` is not possible there.",
        "node(s) Unsupported number of GPU requests": "No partition has this size.",
        "node(s) Device Joint-Allocate rules violation": "Devices of several types are not close to each other.",
        "invalid resource unit {}: {}": "Above 100, GPU shares are multiples of 100.",
        "invalid resource device requests: [{}]": "These resources cannot be combined.",
        "the requested CPUs must be integer": "Exclusive CPUs are whole CPUs: [NUMA](../numa.md).",
        "not enough cpus available to satisfy request": "Not enough free exclusive CPUs.",
        "node(s) NUMA Topology policy not match": "Pod and node have different policies.",
        "node(s) invalid CPU Topology": "The NodeResourceTopology has no valid CPU topology.",
        "node(s) requested cpus not multiple cpus per core": "The node allocates whole cores only.",
        "node(s) cpu bind policy conflicts with pod's required cpu bind policy": "Pod and node require different bind policies.",
        "node(s) invalid CPU amplification ratio": "Fix the annotation of the node.",
        "Insufficient amplified cpu": "The CPUs count with the amplification ratio.",
        "node(s) missing NUMA resources": "The NodeResourceTopology has no zones.",
        "Insufficient NUMA {}": "No NUMA node, or set of them, has enough.",
    },
    "Preemption": {
        "No preemption victims found for incoming pod": "No pods of lower priority, or removing them would not help.",
        "found a potential placement for pod on node {}, preempting {} victims": "Pods are being preempted for this one.",
        "Preemption is not helpful for scheduling": "The reason on these nodes is not one that evictions change.",
    },
    "Jobs and queues": {
        "queue {} would have more {} than its capability": "The queue is full: `holdfast get queues`.",
        "queue {} does not exist": "Create the queue, or name another.",
        "queue {} is closed": "`status.state` of the queue.",
        "gang {} has {} of {} reservations": "A gang of reservations is incomplete.",
        'waiting for pods\'s pod group "{}" to appear in scheduling queue': "Create the PodGroup that the pod's `spec.schedulingGroup` names.",
        "waiting for minCount pods from a gang to appear in scheduling queue": "The gang has fewer pods than `minCount`.",
        "minCount ({}) cannot be satisfied: {} scheduled, {} remaining": "Too few pods of the gang fit: `holdfast explain podgroup NAME`.",
        "0/{} placements are available, first placement status: {}": "The pods do not fit in one topology domain of their PodGroup.",
        "no feasible placements found": "No node has the topology label of the PodGroup.",
        "all pods in a single pod group should have the same priority as the pod group's priority, got {} and {}": "Give the pods and their PodGroup the same priority class.",
        "waiting for scheduling gates: [{}]": "Something else must remove `spec.schedulingGates`.",
    },
}

EVENTS: dict[str, dict[str, str]] = {
    "On pods": {
        "InvalidRunEstimate": "the annotation `holdfast.io/run-estimate` is malformed or misspelt, and ignored",
        "Scheduled": "bound; a reservation that got a node has it too",
        "FailedScheduling": "no node; the message has the reasons",
        "FailedScheduling-Reservation": "the part of the message about reservations, for pods with a reservation affinity",
        "BindingConditionsPending": "its devices are allocated and not ready yet; it is bound when they are",
        "Preempted": "evicted for a pod or reservation of higher priority",
        "Evicted": "evicted because its reservation has ended (`holdfast.io/at-end: Evict`)",
        "EvictionRefused": "it is to be evicted, and a disruption budget or an error refuses that; emitted once, and tried again",
        "Reclaimed": "evicted because its queue uses more than its share",
        "Descheduled": "evicted by a PodMigrationJob",
        "Overrun": "exceeded its run-time estimate on a node with a starvation hold",
        "ReservationCreationAttempt": "a dynamic reservation is requested",
        "ReservationCreationSuccess": "it was created",
        "ReservationCreationFailure": "it was rejected or not created",
        "ReservationTimeout": "it was not created in time",
    },
    "On reservations": {
        "Succeeded": "used up by its owner",
        "Expired": "its time has passed, its node was deleted, or it was released because it was unused",
        "Resized": "it has the size that its template requests",
        "ResizeFailed": "the node has not enough for the new size",
        "DevicesReplaced": "a reserved device failed and another was taken",
        "DevicesNotHeld": "devices of its `resourceClaims` are not held, or a claim is not written",
        "DevicesHeld": "its devices are held again",
        "Planned": "a node is planned for its start",
        "Draining": "its planned node takes only what ends by its start",
        "NotFeasible": "its capacity will not be free at its start",
        "AtEndIgnored": "`holdfast.io/at-end: Evict` has no effect with `allocateOnce`",
        "InvalidReservation": "a field is invalid; nothing is reserved",
        "Preempting": "it preempts reservations of lower priority",
        "InvalidPriority": "the priority label is not an integer",
        "InvalidCanPreempt": "the can-preempt label is not `true` or `false`",
        "IncompleteGang": "members of its gang are missing, so it does not preempt",
    },
    "On jobs (the PodGroup, or the pod without one)": {
        "Starving": "pending for longer than the threshold",
        "Reserved": "starvation holds were made",
        "Released": "a hold was deleted; the message has the reason",
        "CannotReserve": "no capacity is held: it does not fit even on empty nodes, would not use a "
        "hold, is rejected whatever is free, or no more nodes may be held",
        "Ready": "it has its nodes",
        "Unschedulable": "why the gang is pending",
        "ScheduleTimeout": "pending for longer than its timeout",
    },
    "On other objects": {
        "NotConverging": "the same decision was repeated without effect: [decisions that do not converge](../running.md#decisions-that-do-not-converge)",
        "Invalid{}": "an object is invalid and ignored, for example `InvalidNode`",
        "InvalidLimitToAllocatable": "the annotation of a node is malformed",
        "SuccessfulCreate": "a ReservationSchedule created a reservation",
        "Suspended": "spec.suspend of a ReservationSchedule was set",
        "Resumed": "spec.suspend of a ReservationSchedule was unset",
        "InvalidSchedule": "the schedule, time zone or duration of a ReservationSchedule is invalid",
        "NeverDue": "a ReservationSchedule has no start within five years",
        "NameTaken": "another Reservation has the name of an occurrence of a ReservationSchedule, which is left out",
        "FailedCreate": "a reservation of a ReservationSchedule was refused; the message has the reason",
        "UnreadableByPlugin": "a plugin could not read an object",
        "LeaderElection": "a replica started or stopped leading (on the Lease)",
    },
}

CONDITIONS: dict[str, list[tuple[str, str, str]]] = {
    "Reservation": [
        (
            "Scheduled",
            "`Scheduled`, `Unschedulable`, `Invalid`",
            "whether it has a node; the message is that of a pod",
        ),
        ("Ready", "`Available`, `Waiting`, `Succeeded`, `Expired`", "whether owners can use it"),
        ("Resized", "`Resized`, `Unschedulable`", "the last change of its size"),
        (
            "Planned",
            "`Planned`, `Draining`, `NotPlanned`, `Started`",
            "before its start: whether it has a planned node",
        ),
        (
            "Feasible",
            "`Fits`, `EndsUnknown`, `DoesNotFit`",
            "before its start: whether its capacity will be free",
        ),
        (
            "Used",
            "`HasOwners`, `NoOwner`",
            "with `holdfast.io/release-if-unused-after`, while it is Available: whether it has owners",
        ),
        ("DevicesHeld", "`Held`, `NotHeld`", "whether the devices of its `resourceClaims` are held"),
    ],
    "PodGroup of scheduling.volcano.sh": [
        ("Scheduled", "`Ready`, `NotReady`", "whether enough members have a node"),
        (
            "Unschedulable",
            "`NotEnoughTasks`, `NotEnoughPodsOfTask`, `NotEnoughResources`, `NotPermitted`, `NotAdmitted`, "
            "`PodGroupNotFound`, `ScheduleTimeout`",
            "why the job is pending: members are missing, nodes are, a plugin or the queue does not admit it",
        ),
    ],
    "PodGroup of scheduling.k8s.io": [
        (
            "PodGroupInitiallyScheduled",
            "`Scheduled`, `Unschedulable`, `SchedulerError`",
            "whether it was ever scheduled; see [PodGroups of Kubernetes](../jobs.md#podgroups-of-kubernetes)",
        ),
        ("DisruptionTarget", "`PreemptionByScheduler`", "its pods are preempted together"),
    ],
    "PodMigrationJob": [
        (
            "ReservationCreated",
            "`FailedCreateReservation`",
            "see [migrating pods](../reservations.md#migrating-pods)",
        ),
        ("ReservationScheduled", "`Unschedulable`", ""),
        ("Eviction", "`Evicting`, `FailedEvict`", ""),
        ("PodBoundReservation", "`WaitForPodBindReservation`", ""),
        ("BoundPodReady", "`WaitForBoundPodReady`", ""),
    ],
    "Pod": [
        (
            "PodScheduled",
            "`Unschedulable`, `SchedulerError`",
            "no node; or the pod or a plugin is at fault",
        ),
        ("DisruptionTarget", "`PreemptionByScheduler`", "it is being evicted"),
    ],
}


def text() -> str:
    reasons = [part for title, rows in REASONS.items() for part in _section(title, "message", rows)]
    events = [part for title, rows in EVENTS.items() for part in _section(title, "reason", rows)]
    conditions = [
        part
        for kind, rows in CONDITIONS.items()
        for part in (
            f"### {kind}\n",
            table(("condition", "reasons", "meaning"), [(code(name), *rest) for name, *rest in rows]),
        )
    ]
    return page(
        "Messages",
        _INTRODUCTION,
        "## Why a pod or reservation is pending\n",
        *reasons,
        "## Events\n",
        *events,
        "## Conditions\n",
        *conditions,
    )


def _section(title: str, head: str, rows: dict[str, str]) -> list[str]:
    return [
        f"### {title}\n",
        table(
            (head, "meaning"),
            [(code(text.replace("{}", "…")), meaning) for text, meaning in rows.items()],
        ),
    ]
