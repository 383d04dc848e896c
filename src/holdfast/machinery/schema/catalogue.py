"""All types the server knows: the built-in ones, and those users bring.

Looking one up is a dictionary access. `generation` grows with every change, so that discovery and
OpenAPI documents are made anew only when they must be.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from typing import Any

from holdfast.api.crds import definitions
from holdfast.api.kinds import KindInfo
from holdfast.machinery import openapi
from holdfast.machinery.schema.crd import crd_types
from holdfast.machinery.schema.types import VERBS, ResourceType, ScalePaths, Subresource


class Catalogue:
    """Types by (group, version, plural)."""

    def __init__(self) -> None:
        self.generation = 1
        self._types: dict[tuple[str, str, str], ResourceType] = {}
        self._kinds: dict[tuple[str, str, str], ResourceType] = {}
        for type in builtin_types():
            self._add(type)

    def __iter__(self) -> Iterator[ResourceType]:
        """Every served type; of one group together, its versions in the order of preference."""
        return iter(list(self._types.values()))

    def resource(self, group: str, version: str, plural: str) -> ResourceType | None:
        return self._types.get((group, version, plural))

    def kind(self, group: str, version: str, kind: str) -> ResourceType | None:
        """The type whose objects say this apiVersion and kind."""
        return self._kinds.get((group, version, kind))

    def versions(self, group: str, plural: str) -> list[ResourceType]:
        """All served versions of one resource; objects are kept in the one whose `storage` is set."""
        return [type for type in self._types.values() if (type.group, type.plural) == (group, plural)]

    def add_crd(self, raw: dict[str, Any]) -> tuple[ResourceType, ...]:
        """Serve what a CustomResourceDefinition describes, in place of what it described before."""
        types = crd_types(raw)
        self._drop(raw["metadata"]["name"])
        for type in types:
            self._add(type)
        self.generation += 1
        return types

    def remove_crd(self, name: str) -> None:
        if self._drop(name):
            self.generation += 1

    def openapi_v2(self) -> dict[str, Any]:
        """Everything in one document of OpenAPI 2."""
        return openapi.openapi_v2(self)

    def openapi_v3_paths(self) -> list[str]:
        """The names of the documents of OpenAPI 3: `api/v1`, `apis/apps/v1`."""
        return openapi.openapi_v3_paths(self)

    def openapi_v3(self, path: str) -> dict[str, Any]:
        """One of them."""
        return openapi.openapi_v3(self, path)

    def _add(self, type: ResourceType) -> None:
        self._types[type.group, type.version, type.plural] = type
        self._kinds[type.group, type.version, type.kind] = type

    def _drop(self, name: str) -> bool:
        gone = [type for type in self._types.values() if type.crd == name]
        for type in gone:
            del self._types[type.group, type.version, type.plural]
            self._kinds.pop((type.group, type.version, type.kind), None)
        return bool(gone)


@cache
def holdfast_catalogue() -> Catalogue:
    """The built-in types and those of Holdfast's own definitions; shared, so left as it is."""
    catalogue = Catalogue()
    for definition in definitions():
        catalogue.add_crd(definition)
    return catalogue


def open_type(info: KindInfo) -> ResourceType:
    """The type of a kind whose fields are not known: only its metadata has rules."""
    return ResourceType(
        group=info.group,
        version=info.version,
        kind=info.kind,
        plural=info.plural,
        namespaced=info.namespaced,
        schema={"type": "object", "x-kubernetes-preserve-unknown-fields": True},
        crd=f"{info.plural}.{info.group}",
    )


# The built-in kinds the server serves, one line each.
#
# What a kind's objects look like is in the definitions; here is how it is called and what can be done
# with it.


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
