"""Default values, as an API server sets them before validation.

A default belongs to a type wherever it occurs: a container in a Deployment's template gets the same
defaults as one in a pod. Outer parts come first. `COMPUTED` has the defaults that depend on other
fields, as functions that return the part or a changed copy; `PLAIN` has the constants, set after those.
Types are compiled once into nested functions. Custom kinds have the defaults of their schema.
"""

from __future__ import annotations

import base64
from collections.abc import Callable
from threading import Lock
from typing import Any

from holdfast.api.memo import Memo
from holdfast.api.quantity import parse
from holdfast.api.resources import is_hugepages, is_pod_level
from holdfast.machinery.schema.custom.pruning import defaulted
from holdfast.machinery.schema.scalars import canonical
from holdfast.machinery.schema.shapes import FieldShape
from holdfast.machinery.schema.types import ResourceType


def apply_defaults(type: ResourceType, raw: dict[str, Any]) -> dict[str, Any]:
    """The object with the defaults of its type; the same object if there is nothing to add."""
    if not type.definition:
        return defaulted(type, raw)
    fill = defaulter(type.shape)
    if fill is None:
        return raw
    if type.definition == _POD:
        return _defaulted_pod(raw, fill)
    filled: dict[str, Any] = fill(raw)
    return filled


_POD = "io.k8s.api.core.v1.Pod"
_known_specs: Memo[int, tuple[Any, Any]] = Memo(1024)
"""Pod specs with and without defaults, by the identity of the latter, which the entry keeps alive."""


def _defaulted_pod(raw: dict[str, Any], fill: Fill) -> dict[str, Any]:
    """Pods of one template share their spec: it is filled once, and they share the result."""
    spec = raw.get("spec")
    known = _known_specs.get(id(spec))
    if known is None:
        filled: dict[str, Any] = fill(raw)
        if spec is not None:
            _known_specs[id(spec)] = (spec, filled["spec"])
        return filled
    # The defaults of a pod are all in its spec.
    return {**raw, "spec": known[1]}


Fill = Callable[[Any], Any]
"""Returns a part of an object with defaults; the part itself if there is nothing to add."""

_known: dict[int, Fill | None] = {}
"""Compiled functions by the identity of their shape."""
_unfinished: dict[int, Fill | None] = {}
_compiling = Lock()


def defaulter(shape: FieldShape) -> Fill | None:
    """The compiled function for a shape; None if neither it nor a part of it has defaults."""
    key = id(shape)
    if key not in _known:
        with _compiling:
            _defaulter(shape)
            _known.update(_unfinished)
    return _known[key]


def _defaulter(shape: FieldShape) -> Fill | None:
    key = id(shape)
    if key not in _unfinished:
        _unfinished[key] = None
        _unfinished[key] = _compile(shape)
    return _unfinished[key]


def _compile(shape: FieldShape) -> Fill | None:
    if shape.kind == "list" and shape.items is not None:
        item = _defaulter(shape.items)
        return None if item is None else _each(item)
    if shape.kind != "struct":
        return None
    name = shape.name.removeprefix("io.k8s.api.")
    inner = [(field, fill) for field, part in shape.fields.items() if (fill := _defaulter(part))]
    return _struct(PLAIN.get(name), COMPUTED.get(name), inner)


def _each(fill: Fill) -> Fill:
    def fill_each(items: list[Any]) -> list[Any]:
        if items is None:
            return items
        filled = [fill(item) for item in items]
        return items if all(map(_is, filled, items)) else filled

    return fill_each


def _is(a: Any, b: Any) -> bool:
    return a is b


def _struct(
    plain: dict[str, Any] | None, computed: Fill | None, inner: list[tuple[str, Fill]]
) -> Fill | None:
    if plain is None and computed is None and not inner:
        return None

    def fill_struct(part: Any) -> Any:
        if part.__class__ is not dict:
            return part
        filled = part
        if computed is not None:
            filled = computed(filled)
        if plain is not None:
            missing = {
                name: value for name, value in plain.items() if filled.get(name, "") in ("", None)
            }
            if missing and any(filled.get(name) != value for name, value in missing.items()):
                filled = {**filled, **missing}
        for name, fill in inner:
            old = filled.get(name)
            if old is not None:
                new = fill(old)
                if new is not old:
                    if filled is part:
                        filled = dict(part)
                    filled[name] = new
        return filled

    return fill_struct


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


Part = dict[str, Any]


def _pod(pod: Part) -> Part:
    """Defaults of a pod but not of a template: requests from limits, and host ports."""
    spec = pod.get("spec")
    if not isinstance(spec, dict):
        return pod
    changed: Part = {}
    host_network = spec.get("hostNetwork") is True
    for field in ("containers", "initContainers"):
        containers = spec.get(field)
        if containers:
            filled = [_of_a_pod(container, host_network) for container in containers]
            if any(new is not old for new, old in zip(filled, containers, strict=True)):
                changed[field] = filled
    if "enableServiceLinks" not in spec:
        changed["enableServiceLinks"] = True
    if isinstance(spec.get("resources"), dict):
        changed["resources"] = _pod_level({**spec, **changed})
    return {**pod, "spec": {**spec, **changed}} if changed else pod


def _pod_spec(spec: Part) -> Part:
    """serviceAccount is the deprecated name of serviceAccountName."""
    name, old_name = spec.get("serviceAccountName"), spec.get("serviceAccount")
    if name == old_name:
        return spec
    account = name or old_name
    return {**spec, "serviceAccountName": account, "serviceAccount": account}


def _of_a_pod(container: Part, host_network: bool) -> Part:
    resources = container.get("resources") or {}
    limits = resources.get("limits")
    if limits:
        requests = resources.get("requests") or {}
        if any(name not in requests for name in limits):
            resources = {**resources, "requests": {**limits, **requests}}
            container = {**container, "resources": resources}
    if host_network and container.get("ports"):
        ports = [
            port if port.get("hostPort") else {**port, "hostPort": port.get("containerPort", 0)}
            for port in container["ports"]
        ]
        container = {**container, "ports": ports}
    return container


def _pod_level(spec: Part) -> Part:
    """Pod-level resources: requests default to the sum of the containers' requests, else to the
    limits."""
    resources: Part = spec["resources"]
    limits = dict(resources.get("limits") or {})
    requests = dict(resources.get("requests") or {})
    if limits or requests:
        for name, quantity in _sum_of_containers(spec, "limits").items():
            if is_hugepages(name):
                limits.setdefault(name, quantity)
    if limits:
        for name, quantity in _sum_of_containers(spec, "requests").items():
            if is_pod_level(name) and not is_hugepages(name):
                requests.setdefault(name, quantity)
        for name, quantity in limits.items():
            if is_pod_level(name):
                requests.setdefault(name, quantity)
    filled = dict(resources)
    if limits:
        filled["limits"] = limits
    if requests:
        filled["requests"] = requests
    return filled


def _sum_of_containers(spec: Part, field: str) -> dict[str, str]:
    """The sum of the containers, or the largest init container if that is more."""
    running: dict[str, int] = {}
    largest: dict[str, int] = {}
    spelling: dict[str, str] = {}
    for container in spec.get("initContainers") or ():
        sidecar = container.get("restartPolicy") == "Always"
        for name, nano in _amounts(container, field, spelling).items():
            if sidecar:
                running[name] = running.get(name, 0) + nano
            largest[name] = max(largest.get(name, 0), running.get(name, 0) + nano * (not sidecar))
    for container in spec.get("containers") or ():
        for name, nano in _amounts(container, field, spelling).items():
            running[name] = running.get(name, 0) + nano
    totals = {name: max(running.get(name, 0), largest.get(name, 0)) for name in running | largest}
    return {name: _spelt(nano, spelling[name]) for name, nano in totals.items()}


def _amounts(container: Part, field: str, spelling: dict[str, str]) -> dict[str, int]:
    found = (container.get("resources") or {}).get(field) or {}
    for name, quantity in found.items():
        spelling.setdefault(name, quantity)
    return {name: parse(quantity) for name, quantity in found.items()}


def _spelt(nano: int, like: str) -> str:
    """A sum, in the kind of suffix its first part had."""
    if like.endswith("i") and nano % 10**9 == 0 and (nano // 10**9) % 1024 == 0:
        return canonical(f"{nano // 10**9 // 1024}Ki")
    return canonical(f"{nano}n")


def _container(container: Part) -> Part:
    missing: Part = {}
    if "imagePullPolicy" not in container:
        missing["imagePullPolicy"] = _pull_policy(container.get("image", ""))
    if "terminationMessagePath" not in container:
        missing["terminationMessagePath"] = "/dev/termination-log"
    if "terminationMessagePolicy" not in container:
        missing["terminationMessagePolicy"] = "File"
    return {**container, **missing} if missing else container


def _image_volume(source: Part) -> Part:
    if "pullPolicy" in source:
        return source
    return {**source, "pullPolicy": _pull_policy(source.get("reference", ""))}


def _pull_policy(image: str) -> str:
    """The tag `latest`, or none at all, means always."""
    name, at, _ = image.partition("@")
    tag = name.rpartition("/")[2].partition(":")[2]
    if not image or (at and not tag):
        return "IfNotPresent"
    return "Always" if tag in ("", "latest") else "IfNotPresent"


def _volume(volume: Part) -> Part:
    """A volume without a source is an emptyDir."""
    if any(name != "name" for name in volume):
        return volume
    return {**volume, "emptyDir": {}}


def _requirements(resources: Part) -> Part:
    """Amounts finer than a thousandth are rounded up to one."""
    for field in ("limits", "requests"):
        amounts = resources.get(field)
        if amounts and any(quantity[-1] in "nu" for quantity in amounts.values()):
            rounded = {name: _milli(quantity) for name, quantity in amounts.items()}
            resources = {**resources, field: rounded}
    return resources


def _milli(quantity: str) -> str:
    if quantity[-1] not in "nu":
        return quantity
    return canonical(f"{-(-parse(quantity) // 10**6)}m")


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
    "core.v1.Container": _container,
    "core.v1.EphemeralContainer": _container,
    "core.v1.ImageVolumeSource": _image_volume,
    "core.v1.LimitRangeItem": _limit_range_item,
    "core.v1.Namespace": _namespace,
    "core.v1.NodeStatus": _node_status,
    "core.v1.Pod": _pod,
    "core.v1.PodSpec": _pod_spec,
    "core.v1.ReplicationController": _replication_controller,
    "core.v1.ResourceRequirements": _requirements,
    "core.v1.Secret": _secret,
    "core.v1.ServicePort": _service_port,
    "core.v1.ServiceSpec": _service_spec,
    "core.v1.Volume": _volume,
    "networking.v1.NetworkPolicySpec": _network_policy_spec,
    "rbac.v1.Subject": _subject,
    "resource.v1.DeviceSubRequest": _device_request,
    "resource.v1.ExactDeviceRequest": _device_request,
    _CRD + "CustomResourceDefinition": _crd,
    _CRD + "CustomResourceDefinitionSpec": _crd_spec,
}
