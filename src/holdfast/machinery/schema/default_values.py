"""The defaults of each type.

`PLAIN` has the constants, by type; `COMPUTED` has the defaults that depend on other fields, as
functions that return the part or a changed copy, and that come first. Those of pods are in
`pod_defaults`.
"""

from __future__ import annotations

import base64
from collections.abc import Callable
from typing import Any

from holdfast.machinery.schema.pod_defaults import (
    default_container,
    default_image_volume,
    default_pod,
    default_pod_spec,
    default_requirements,
    default_volume,
)

Part = dict[str, Any]

_PROBE = {"timeoutSeconds": 1, "periodSeconds": 10, "successThreshold": 1, "failureThreshold": 3}
_RBAC = "rbac.authorization.k8s.io"

_MATCHES_ALL = {"matchPolicy": "Equivalent", "namespaceSelector": {}, "objectSelector": {}}
_WEBHOOK = {"failurePolicy": "Fail", "timeoutSeconds": 10, **_MATCHES_ALL}

PLAIN: dict[str, dict[str, Any]] = {
    "admissionregistration.v1.MatchResources": _MATCHES_ALL,
    "admissionregistration.v1.MutatingWebhook": {**_WEBHOOK, "reinvocationPolicy": "Never"},
    "admissionregistration.v1.NamedRuleWithOperations": {"scope": "*"},
    "admissionregistration.v1.RuleWithOperations": {"scope": "*"},
    "admissionregistration.v1.ServiceReference": {"port": 443},
    "admissionregistration.v1.ValidatingAdmissionPolicySpec": {"failurePolicy": "Fail"},
    "admissionregistration.v1.ValidatingWebhook": _WEBHOOK,
    "apps.v1.DaemonSetSpec": {"revisionHistoryLimit": 10},
    "apps.v1.DeploymentSpec": {
        "replicas": 1,
        "revisionHistoryLimit": 10,
        "progressDeadlineSeconds": 600,
    },
    "apps.v1.ReplicaSetSpec": {"replicas": 1},
    "apps.v1.StatefulSetPersistentVolumeClaimRetentionPolicy": {
        "whenDeleted": "Retain",
        "whenScaled": "Retain",
    },
    "apps.v1.StatefulSetSpec": {
        "podManagementPolicy": "OrderedReady",
        "replicas": 1,
        "revisionHistoryLimit": 10,
        "persistentVolumeClaimRetentionPolicy": {},
    },
    "autoscaling.v1.HorizontalPodAutoscalerSpec": {"minReplicas": 1},
    "autoscaling.v2.HorizontalPodAutoscalerSpec": {"minReplicas": 1},
    "batch.v1.CronJobSpec": {
        "concurrencyPolicy": "Allow",
        "suspend": False,
        "successfulJobsHistoryLimit": 3,
        "failedJobsHistoryLimit": 1,
    },
    "batch.v1.PodFailurePolicyOnPodConditionsPattern": {"status": "True"},
    "core.v1.AzureDiskVolumeSource": {
        "cachingMode": "ReadWrite",
        "fsType": "ext4",
        "kind": "Shared",
        "readOnly": False,
    },
    "core.v1.ConfigMapVolumeSource": {"defaultMode": 0o644},
    "core.v1.ContainerPort": {"protocol": "TCP"},
    "core.v1.DownwardAPIVolumeSource": {"defaultMode": 0o644},
    "core.v1.EndpointPort": {"protocol": "TCP"},
    "core.v1.FileKeySelector": {"optional": False},
    "core.v1.GRPCAction": {"service": ""},
    "core.v1.HTTPGetAction": {"path": "/", "scheme": "HTTP"},
    "core.v1.HostPathVolumeSource": {"type": ""},
    "core.v1.ISCSIPersistentVolumeSource": {"iscsiInterface": "default"},
    "core.v1.ISCSIVolumeSource": {"iscsiInterface": "default"},
    "core.v1.NamespaceStatus": {"phase": "Active"},
    "core.v1.ObjectFieldSelector": {"apiVersion": "v1"},
    "core.v1.PersistentVolumeClaimSpec": {"volumeMode": "Filesystem"},
    "core.v1.PersistentVolumeClaimStatus": {"phase": "Pending"},
    "core.v1.PersistentVolumeSpec": {
        "persistentVolumeReclaimPolicy": "Retain",
        "volumeMode": "Filesystem",
    },
    "core.v1.PersistentVolumeStatus": {"phase": "Pending"},
    "core.v1.PodSpec": {
        "dnsPolicy": "ClusterFirst",
        "restartPolicy": "Always",
        "securityContext": {},
        "terminationGracePeriodSeconds": 30,
        "schedulerName": "default-scheduler",
    },
    "core.v1.Probe": _PROBE,
    "core.v1.ProjectedVolumeSource": {"defaultMode": 0o644},
    "core.v1.RBDPersistentVolumeSource": {
        "pool": "rbd",
        "user": "admin",
        "keyring": "/etc/ceph/keyring",
    },
    "core.v1.RBDVolumeSource": {"pool": "rbd", "user": "admin", "keyring": "/etc/ceph/keyring"},
    "core.v1.ReplicationControllerSpec": {"replicas": 1},
    "core.v1.ScaleIOPersistentVolumeSource": {"storageMode": "ThinProvisioned", "fsType": "xfs"},
    "core.v1.ScaleIOVolumeSource": {"storageMode": "ThinProvisioned", "fsType": "xfs"},
    "core.v1.Secret": {"type": "Opaque"},
    "core.v1.SecretVolumeSource": {"defaultMode": 0o644},
    "core.v1.ServiceAccountTokenProjection": {"expirationSeconds": 3600},
    "core.v1.ServicePort": {"protocol": "TCP"},
    "discovery.v1.EndpointPort": {"name": "", "protocol": "TCP"},
    "networking.v1.IngressClassParametersReference": {"scope": "Cluster"},
    "networking.v1.NetworkPolicyPort": {"protocol": "TCP"},
    "rbac.v1.RoleRef": {"apiGroup": _RBAC},
    "resource.v1.DeviceToleration": {"operator": "Equal"},
    "scheduling.v1.PriorityClass": {"preemptionPolicy": "PreemptLowerPriority"},
    "scheduling.v1beta1.PodGroupSpec": {"disruptionMode": {"single": {}}},
    "storage.v1.CSIDriverSpec": {
        "attachRequired": True,
        "podInfoOnMount": False,
        "storageCapacity": False,
        "fsGroupPolicy": "ReadWriteOnceWithFSType",
        "volumeLifecycleModes": ["Persistent"],
        "requiresRepublish": False,
        "seLinuxMount": False,
    },
    "storage.v1.StorageClass": {"reclaimPolicy": "Delete", "volumeBindingMode": "Immediate"},
}


_CRD = "io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1."


def _rolling(strategy: Part, values: Part) -> Part:
    """RollingUpdate is the default strategy; its numbers have defaults."""
    kind = strategy.get("type") or "RollingUpdate"
    if kind != "RollingUpdate":
        return strategy
    rolling = {**values, **(strategy.get("rollingUpdate") or {})}
    return {**strategy, "type": kind, "rollingUpdate": rolling}


def _deployment_strategy(strategy: Part) -> Part:
    return _rolling(strategy, {"maxUnavailable": "25%", "maxSurge": "25%"})


def _daemon_set_strategy(strategy: Part) -> Part:
    return _rolling(strategy, {"maxUnavailable": 1, "maxSurge": 0})


def _stateful_set_strategy(strategy: Part) -> Part:
    if strategy.get("type") == "RollingUpdate" and strategy.get("rollingUpdate") is None:
        return strategy
    return _rolling(strategy, {"partition": 0})


def _job(job: Part) -> Part:
    """Defaults of a Job but not of the template of a CronJob."""
    spec: Part = job.get("spec") or {}
    defaults: Part = {
        "parallelism": 1,
        "backoffLimit": 2**31 - 1 if "backoffLimitPerIndex" in spec else 6,
        "completionMode": "NonIndexed",
        "suspend": False,
        "podReplacementPolicy": "Failed" if "podFailurePolicy" in spec else "TerminatingOrFailed",
        "manualSelector": False,
    }
    if "parallelism" not in spec:
        defaults["completions"] = 1
    filled = {**defaults, **spec}
    if len(filled) > len(spec):
        job = {**job, "spec": filled}
    return _labelled(job, spec.get("template", {}).get("metadata", {}).get("labels"))


def _replication_controller(controller: Part) -> Part:
    spec = controller.get("spec") or {}
    labels = ((spec.get("template") or {}).get("metadata") or {}).get("labels")
    if labels and not spec.get("selector"):
        controller = {**controller, "spec": {**spec, "selector": labels}}
    return _labelled(controller, labels)


def _stateful_set_spec(spec: Part) -> Part:
    templates = spec.get("volumeClaimTemplates")
    if not templates or all("kind" in template for template in templates):
        return spec
    kind = {"apiVersion": "v1", "kind": "PersistentVolumeClaim"}
    return {**spec, "volumeClaimTemplates": [{**kind, **template} for template in templates]}


def _secret(secret: Part) -> Part:
    """`stringData` is merged into `data` and not stored."""
    texts = secret.get("stringData")
    if texts is None:
        return secret
    data = {name: base64.b64encode(text.encode()).decode() for name, text in texts.items()}
    rest = {name: value for name, value in secret.items() if name != "stringData"}
    return {**rest, "data": {**(secret.get("data") or {}), **data}}


def _labelled(workload: Part, labels: Part | None) -> Part:
    metadata = workload.get("metadata") or {}
    if not labels or metadata.get("labels"):
        return workload
    return {**workload, "metadata": {**metadata, "labels": labels}}


def _namespace(namespace: Part) -> Part:
    metadata = namespace.get("metadata") or {}
    name = metadata.get("name")
    labels = metadata.get("labels") or {}
    if not name or labels.get("kubernetes.io/metadata.name") == name:
        return namespace
    labels = {**labels, "kubernetes.io/metadata.name": name}
    return {**namespace, "metadata": {**metadata, "labels": labels}}


def _node_status(status: Part) -> Part:
    if "capacity" in status and "allocatable" not in status:
        return {**status, "allocatable": status["capacity"]}
    return status


def _service_spec(spec: Part) -> Part:
    filled: Part = {"sessionAffinity": "None", "type": "ClusterIP", **spec}
    if filled["sessionAffinity"] == "None":
        filled.pop("sessionAffinityConfig", None)
    elif filled["sessionAffinity"] == "ClientIP":
        config = filled.get("sessionAffinityConfig") or {}
        if "timeoutSeconds" not in (config.get("clientIP") or {}):
            filled["sessionAffinityConfig"] = {"clientIP": {"timeoutSeconds": 10800}}
    kind = filled["type"]
    outside = kind in ("LoadBalancer", "NodePort") or (
        kind == "ClusterIP" and filled.get("externalIPs")
    )
    if outside and "externalTrafficPolicy" not in filled:
        filled["externalTrafficPolicy"] = "Cluster"
    if kind in ("NodePort", "LoadBalancer", "ClusterIP"):
        filled.setdefault("internalTrafficPolicy", "Cluster")
    if kind == "LoadBalancer":
        filled.setdefault("allocateLoadBalancerNodePorts", True)
    return spec if filled == spec else filled


def _service_port(port: Part) -> Part:
    if port.get("targetPort") in (0, "", None):
        return {**port, "targetPort": port.get("port", 0)}
    return port


def _subject(subject: Part) -> Part:
    if subject.get("kind") in ("User", "Group") and "apiGroup" not in subject:
        return {**subject, "apiGroup": "rbac.authorization.k8s.io"}
    return subject


_PERCENT_POLICY = {"type": "Percent", "value": 100, "periodSeconds": 15}
_SCALE_DOWN = {"selectPolicy": "Max", "policies": [_PERCENT_POLICY]}
_SCALE_UP = {
    "stabilizationWindowSeconds": 0,
    "selectPolicy": "Max",
    "policies": [{"type": "Pods", "value": 4, "periodSeconds": 15}, _PERCENT_POLICY],
}
_CPU_METRIC = {
    "type": "Resource",
    "resource": {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": 80}},
}


def _autoscaler_spec(spec: Part) -> Part:
    return spec if spec.get("metrics") else {**spec, "metrics": [_CPU_METRIC]}


def _autoscaler_behavior(behavior: Part) -> Part:
    given = {name: value for name, value in behavior.items() if value is not None}
    return {
        "scaleUp": {**_SCALE_UP, **(given.get("scaleUp") or {})},
        "scaleDown": {**_SCALE_DOWN, **(given.get("scaleDown") or {})},
    }


def _limit_range_item(item: Part) -> Part:
    """A limit that is not given is the maximum, a request the limit or else the minimum."""
    if item.get("type") != "Container":
        return item
    limits = {**(item.get("max") or {}), **(item.get("default") or {})}
    requests = {**(item.get("min") or {}), **limits, **(item.get("defaultRequest") or {})}
    added = {"default": limits, "defaultRequest": requests}
    return {**item, **{name: amounts for name, amounts in added.items() if amounts}}


def _network_policy_spec(spec: Part) -> Part:
    if spec.get("policyTypes"):
        return spec
    return {**spec, "policyTypes": ["Ingress", "Egress"] if spec.get("egress") else ["Ingress"]}


def _crd(crd: Part) -> Part:
    status = crd.get("status") or {}
    if status.get("storedVersions"):
        return crd
    versions = (crd.get("spec") or {}).get("versions") or ()
    stored = [version.get("name", "") for version in versions if version.get("storage")][:1]
    return {**crd, "status": {**status, "storedVersions": stored}} if stored else crd


def _crd_spec(spec: Part) -> Part:
    names = spec.get("names") or {}
    kind = names.get("kind", "")
    added: Part = {}
    if not names.get("singular"):
        added["singular"] = kind.lower()
    if not names.get("listKind") and kind:
        added["listKind"] = f"{kind}List"
    if not added and "conversion" in spec:
        return spec
    return {"conversion": {"strategy": "None"}, **spec, "names": {**names, **added}}


def _device_request(request: Part) -> Part:
    mode = request.get("allocationMode") or "ExactCount"
    count = request.get("count") or 0
    if mode == "ExactCount" and not count:
        return {**request, "allocationMode": mode, "count": 1}
    return request if request.get("allocationMode") else {**request, "allocationMode": mode}


COMPUTED: dict[str, Callable[[Part], Part]] = {
    "apps.v1.DaemonSetUpdateStrategy": _daemon_set_strategy,
    "apps.v1.DeploymentStrategy": _deployment_strategy,
    "apps.v1.StatefulSetSpec": _stateful_set_spec,
    "apps.v1.StatefulSetUpdateStrategy": _stateful_set_strategy,
    "autoscaling.v2.HorizontalPodAutoscalerBehavior": _autoscaler_behavior,
    "autoscaling.v2.HorizontalPodAutoscalerSpec": _autoscaler_spec,
    "batch.v1.Job": _job,
    "core.v1.Container": default_container,
    "core.v1.EphemeralContainer": default_container,
    "core.v1.ImageVolumeSource": default_image_volume,
    "core.v1.LimitRangeItem": _limit_range_item,
    "core.v1.Namespace": _namespace,
    "core.v1.NodeStatus": _node_status,
    "core.v1.Pod": default_pod,
    "core.v1.PodSpec": default_pod_spec,
    "core.v1.ReplicationController": _replication_controller,
    "core.v1.ResourceRequirements": default_requirements,
    "core.v1.Secret": _secret,
    "core.v1.ServicePort": _service_port,
    "core.v1.ServiceSpec": _service_spec,
    "core.v1.Volume": default_volume,
    "networking.v1.NetworkPolicySpec": _network_policy_spec,
    "rbac.v1.Subject": _subject,
    "resource.v1.DeviceSubRequest": _device_request,
    "resource.v1.ExactDeviceRequest": _device_request,
    _CRD + "CustomResourceDefinition": _crd,
    _CRD + "CustomResourceDefinitionSpec": _crd_spec,
}
