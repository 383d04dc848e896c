"""The rules of single kinds when their objects are written: admission, preparation, update rules.

    strategy             the rules that most kinds share
    admission            admission of pods; priority classes
    pods                 pods: what may change
    workloads            selectors and templates of workload kinds
    resource_claims      claims on devices, their templates and classes, slices, taint rules
    pod_groups           PodGroups and Workloads of scheduling.k8s.io
    queues               Queues: their parents
    core_kinds, crds     the other built-in kinds and Reservations; CustomResourceDefinitions

`strategy_of` has the strategy of each kind; a kind without one of its own is stored as it was sent.
May import `machinery.schema`, `machinery.validation`, `machinery.status`, `machinery.object_request`
and `api`.
"""

from holdfast.api.raw_objects import Raw
from holdfast.machinery.schema import ResourceType
from holdfast.machinery.strategies.admission import PRIORITY_CLASS
from holdfast.machinery.strategies.core_kinds import (
    ATTACHMENT,
    CLAIM,
    CONFIG_MAP,
    CSI_CAPACITY,
    CSI_DRIVER,
    CSI_NODE,
    EVENT,
    LEASE,
    NAMESPACE,
    NODE,
    RESERVATION,
    SECRET,
    SERVICE,
    STORAGE_CLASS,
    VOLUME,
)
from holdfast.machinery.strategies.crds import DEFINITION
from holdfast.machinery.strategies.pod_groups import POD_GROUP, WORKLOAD
from holdfast.machinery.strategies.pods import POD
from holdfast.machinery.strategies.queues import QUEUE
from holdfast.machinery.strategies.resource_claims import (
    DEVICE_CLASS,
    DEVICE_TAINT_RULE,
    RESOURCE_CLAIM,
    RESOURCE_CLAIM_TEMPLATE,
    RESOURCE_SLICE,
)
from holdfast.machinery.strategies.strategy import (
    PLAIN,
    Strategy,
    all_but_metadata,
    all_but_status,
    keep_all_but_status,
    keep_status,
    spec_of,
    status_of,
    without_status,
)
from holdfast.machinery.strategies.workloads import (
    BUDGET,
    CRON_JOB,
    DAEMON_SET,
    DEPLOYMENT,
    JOB,
    REPLICA_SET,
    REPLICATION_CONTROLLER,
    STATEFUL_SET,
)

_DEVICES = "resource.k8s.io"
_RBAC = "rbac.authorization.k8s.io"
_STORAGE = "storage.k8s.io"
_UPSERTED = Strategy(create_on_update=True)

_BUILTIN: dict[tuple[str, str], Strategy] = {
    ("", "Pod"): POD,
    ("", "Node"): NODE,
    ("", "Namespace"): NAMESPACE,
    ("", "Service"): SERVICE,
    ("", "ReplicationController"): REPLICATION_CONTROLLER,
    ("", "PersistentVolume"): VOLUME,
    ("", "PersistentVolumeClaim"): CLAIM,
    ("", "ConfigMap"): CONFIG_MAP,
    ("", "Secret"): SECRET,
    ("", "Event"): EVENT,
    ("events.k8s.io", "Event"): EVENT,
    ("", "Endpoints"): _UPSERTED,
    ("", "PodTemplate"): Strategy(generation_of=lambda raw: raw.get("template"), returns_deleted=True),
    ("", "ServiceAccount"): Strategy(returns_deleted=True),
    ("apps", "Deployment"): DEPLOYMENT,
    ("apps", "ReplicaSet"): REPLICA_SET,
    ("apps", "StatefulSet"): STATEFUL_SET,
    ("apps", "DaemonSet"): DAEMON_SET,
    ("batch", "Job"): JOB,
    ("batch", "CronJob"): CRON_JOB,
    ("policy", "PodDisruptionBudget"): BUDGET,
    ("scheduling.k8s.io", "PriorityClass"): PRIORITY_CLASS,
    ("scheduling.k8s.io", "PodGroup"): POD_GROUP,
    ("scheduling.k8s.io", "Workload"): WORKLOAD,
    ("coordination.k8s.io", "Lease"): LEASE,
    ("apiextensions.k8s.io", "CustomResourceDefinition"): DEFINITION,
    ("networking.k8s.io", "Ingress"): Strategy(
        generation_of=spec_of, new=status_of(loadBalancer={}), changed=keep_status
    ),
    ("autoscaling", "HorizontalPodAutoscaler"): Strategy(
        new=status_of(currentMetrics=None, desiredReplicas=0), changed=keep_status
    ),
    ("", "ResourceQuota"): Strategy(new=without_status, changed=keep_status, returns_deleted=True),
    **{
        ("admissionregistration.k8s.io", kind): Strategy(generation_of=all_but_metadata)
        for kind in (
            "MutatingWebhookConfiguration",
            "ValidatingAdmissionPolicyBinding",
            "ValidatingWebhookConfiguration",
        )
    },
    ("admissionregistration.k8s.io", "ValidatingAdmissionPolicy"): Strategy(
        generation_of=spec_of, new=without_status, changed=keep_status
    ),
    ("networking.k8s.io", "IngressClass"): Strategy(generation_of=spec_of),
    ("networking.k8s.io", "NetworkPolicy"): Strategy(generation_of=spec_of),
    ("discovery.k8s.io", "EndpointSlice"): Strategy(generation_of=all_but_metadata),
    ("node.k8s.io", "RuntimeClass"): Strategy(unconditional_update=False, create_on_update=True),
    **{
        (_RBAC, kind): _UPSERTED
        for kind in ("Role", "RoleBinding", "ClusterRole", "ClusterRoleBinding")
    },
    (_DEVICES, "DeviceClass"): DEVICE_CLASS,
    (_DEVICES, "DeviceTaintRule"): DEVICE_TAINT_RULE,
    (_DEVICES, "ResourceClaim"): RESOURCE_CLAIM,
    (_DEVICES, "ResourceClaimTemplate"): RESOURCE_CLAIM_TEMPLATE,
    (_DEVICES, "ResourceSlice"): RESOURCE_SLICE,
    (_STORAGE, "StorageClass"): STORAGE_CLASS,
    (_STORAGE, "VolumeAttachment"): ATTACHMENT,
    (_STORAGE, "CSINode"): CSI_NODE,
    (_STORAGE, "CSIDriver"): CSI_DRIVER,
    (_STORAGE, "CSIStorageCapacity"): CSI_CAPACITY,
}


def _without_status(request: object, raw: Raw) -> Raw:
    return {name: value for name, value in raw.items() if name != "status"}


_CUSTOM = Strategy(generation_of=all_but_metadata, unconditional_update=False)
_CUSTOM_WITH_STATUS = Strategy(
    generation_of=all_but_status,
    unconditional_update=False,
    new=_without_status,
    changed=keep_status,
    status_changed=keep_all_but_status,
)


_OWN: dict[tuple[str, str], Strategy] = {
    ("scheduling.koordinator.sh", "Reservation"): RESERVATION,
    ("scheduling.volcano.sh", "Queue"): QUEUE,
}


def strategy_of(type: ResourceType) -> Strategy:
    if type.builtin:
        return _BUILTIN.get((type.group, type.kind), PLAIN)
    if (type.group, type.kind) in _OWN:
        return _OWN[type.group, type.kind]
    return _CUSTOM_WITH_STATUS if type.subresource("status") is not None else _CUSTOM
