"""The built-in kinds the server serves, one line each.

What a kind's objects look like is in the definitions; here is how it is called and what can be done
with it.
"""

from __future__ import annotations

from holdfast.server.schema.types import VERBS, ResourceType, ScalePaths, Subresource

_POSTED = ("create",)
_SCALE = Subresource("scale", "Scale", group="autoscaling", version="v1")

_PACKAGES = {
    "": "io.k8s.api.core.v1",
    "apiextensions.k8s.io": "io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1",
}


def _type(
    group: str,
    kind: str,
    plural: str,
    *short_names: str,
    namespaced: bool = True,
    status: bool = False,
    scale: bool = False,
    all: bool = False,
    verbs: tuple[str, ...] = VERBS,
    also: tuple[Subresource, ...] = (),
    categories: tuple[str, ...] = (),
) -> ResourceType:
    subresources = list(also)
    if scale:
        subresources.append(_SCALE)
    if status:
        subresources.append(Subresource("status", kind))
    package = _PACKAGES.get(group) or f"io.k8s.api.{group.partition('.')[0]}.v1"
    return ResourceType(
        group=group,
        version="v1",
        kind=kind,
        plural=plural,
        short_names=short_names,
        categories=("all",) if all else categories,
        namespaced=namespaced,
        verbs=verbs,
        subresources=tuple(sorted(subresources, key=lambda sub: sub.name)),
        definition=f"{package}.{kind}",
        scale=ScalePaths() if scale else None,
    )


_POD_SUBRESOURCES = (
    Subresource("binding", "Binding", _POSTED),
    Subresource("ephemeralcontainers", "Pod"),
    Subresource("eviction", "Eviction", _POSTED, group="policy", version="v1"),
    Subresource("resize", "Pod"),
)

_AUTHENTICATION = "authentication.k8s.io"
_AUTHORIZATION = "authorization.k8s.io"
_DISCOVERY = "discovery.k8s.io"
_NETWORKING = "networking.k8s.io"
_RBAC = "rbac.authorization.k8s.io"
_STORAGE = "storage.k8s.io"


def builtin_types() -> tuple[ResourceType, ...]:
    """Every built-in type, in the order discovery lists them."""
    return (
        _type("", "Binding", "bindings", verbs=_POSTED),
        _type("", "ConfigMap", "configmaps", "cm"),
        _type("", "Endpoints", "endpoints", "ep"),
        _type("", "Event", "events", "ev"),
        _type(
            "",
            "Namespace",
            "namespaces",
            "ns",
            namespaced=False,
            status=True,
            verbs=tuple(verb for verb in VERBS if verb != "deletecollection"),
            also=(Subresource("finalize", "Namespace", ("update",)),),
        ),
        _type("", "Node", "nodes", "no", namespaced=False, status=True),
        _type("", "PersistentVolumeClaim", "persistentvolumeclaims", "pvc", status=True),
        _type("", "PersistentVolume", "persistentvolumes", "pv", namespaced=False, status=True),
        _type("", "Pod", "pods", "po", status=True, all=True, also=_POD_SUBRESOURCES),
        _type("", "PodTemplate", "podtemplates"),
        _type(
            "",
            "ReplicationController",
            "replicationcontrollers",
            "rc",
            status=True,
            scale=True,
            all=True,
        ),
        _type("", "Secret", "secrets"),
        _type("", "ServiceAccount", "serviceaccounts", "sa"),
        _type("", "Service", "services", "svc", status=True, all=True),
        _type(
            "apiextensions.k8s.io",
            "CustomResourceDefinition",
            "customresourcedefinitions",
            "crd",
            "crds",
            namespaced=False,
            status=True,
            categories=("api-extensions",),
        ),
        _type("apps", "ControllerRevision", "controllerrevisions"),
        _type("apps", "DaemonSet", "daemonsets", "ds", status=True, all=True),
        _type("apps", "Deployment", "deployments", "deploy", status=True, scale=True, all=True),
        _type("apps", "ReplicaSet", "replicasets", "rs", status=True, scale=True, all=True),
        _type("apps", "StatefulSet", "statefulsets", "sts", status=True, scale=True, all=True),
        _type(
            _AUTHENTICATION, "SelfSubjectReview", "selfsubjectreviews", namespaced=False, verbs=_POSTED
        ),
        _type(_AUTHENTICATION, "TokenReview", "tokenreviews", namespaced=False, verbs=_POSTED),
        _type(
            _AUTHORIZATION,
            "LocalSubjectAccessReview",
            "localsubjectaccessreviews",
            verbs=_POSTED,
        ),
        _type(
            _AUTHORIZATION,
            "SelfSubjectAccessReview",
            "selfsubjectaccessreviews",
            namespaced=False,
            verbs=_POSTED,
        ),
        _type(
            _AUTHORIZATION,
            "SelfSubjectRulesReview",
            "selfsubjectrulesreviews",
            namespaced=False,
            verbs=_POSTED,
        ),
        _type(
            _AUTHORIZATION,
            "SubjectAccessReview",
            "subjectaccessreviews",
            namespaced=False,
            verbs=_POSTED,
        ),
        _type("batch", "CronJob", "cronjobs", "cj", status=True, all=True),
        _type("batch", "Job", "jobs", status=True, all=True),
        _type("coordination.k8s.io", "Lease", "leases"),
        _type(_DISCOVERY, "EndpointSlice", "endpointslices"),
        _type("events.k8s.io", "Event", "events", "ev"),
        _type(_NETWORKING, "IngressClass", "ingressclasses", namespaced=False),
        _type(_NETWORKING, "Ingress", "ingresses", "ing", status=True),
        _type(_NETWORKING, "NetworkPolicy", "networkpolicies", "netpol"),
        _type("node.k8s.io", "RuntimeClass", "runtimeclasses", namespaced=False),
        _type("policy", "PodDisruptionBudget", "poddisruptionbudgets", "pdb", status=True),
        _type(_RBAC, "ClusterRoleBinding", "clusterrolebindings", namespaced=False),
        _type(_RBAC, "ClusterRole", "clusterroles", namespaced=False),
        _type(_RBAC, "RoleBinding", "rolebindings"),
        _type(_RBAC, "Role", "roles"),
        _type("scheduling.k8s.io", "PriorityClass", "priorityclasses", "pc", namespaced=False),
        _type(_STORAGE, "CSIDriver", "csidrivers", namespaced=False),
        _type(_STORAGE, "CSINode", "csinodes", namespaced=False),
        _type(_STORAGE, "CSIStorageCapacity", "csistoragecapacities"),
        _type(_STORAGE, "StorageClass", "storageclasses", "sc", namespaced=False),
        _type(_STORAGE, "VolumeAttachment", "volumeattachments", namespaced=False, status=True),
    )
