"""Defaults that depend on other fields, by type.

Each takes a part that was read and gives it back, or a changed copy. What such a part would get from
the table of plain values comes after.
"""

from __future__ import annotations

import base64
from collections.abc import Callable
from typing import Any

from holdfast.server.schema.defaults import pods

Part = dict[str, Any]

_CRD = "io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1."


def _rolling(strategy: Part, values: Part) -> Part:
    """A strategy is RollingUpdate unless it says otherwise, and then has numbers."""
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
    """A job has these; the template of one, as a CronJob has it, has not."""
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
    """`stringData` is a way to write `data`, and is not kept."""
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


COMPUTED: dict[str, Callable[[Part], Part]] = {
    "apps.v1.DaemonSetUpdateStrategy": _daemon_set_strategy,
    "apps.v1.DeploymentStrategy": _deployment_strategy,
    "apps.v1.StatefulSetSpec": _stateful_set_spec,
    "apps.v1.StatefulSetUpdateStrategy": _stateful_set_strategy,
    "batch.v1.Job": _job,
    "core.v1.Container": pods.container,
    "core.v1.EphemeralContainer": pods.container,
    "core.v1.ImageVolumeSource": pods.image_volume,
    "core.v1.Namespace": _namespace,
    "core.v1.NodeStatus": _node_status,
    "core.v1.Pod": pods.pod,
    "core.v1.PodSpec": pods.pod_spec,
    "core.v1.ReplicationController": _replication_controller,
    "core.v1.ResourceRequirements": pods.requirements,
    "core.v1.Secret": _secret,
    "core.v1.ServicePort": _service_port,
    "core.v1.ServiceSpec": _service_spec,
    "core.v1.Volume": pods.volume,
    "networking.v1.NetworkPolicySpec": _network_policy_spec,
    "rbac.v1.Subject": _subject,
    _CRD + "CustomResourceDefinition": _crd,
    _CRD + "CustomResourceDefinitionSpec": _crd_spec,
}
