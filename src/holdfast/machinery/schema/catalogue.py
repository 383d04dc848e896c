"""All types that the API serves: the built-in ones and those of CustomResourceDefinitions.

The fields of a built-in type are in the OpenAPI definitions (`shapes.definitions`); its names, verbs
and subresources are here. `Catalogue.generation` grows with every change: discovery and OpenAPI
documents are valid for one generation.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache
from typing import Any

from holdfast.api.crds import definitions
from holdfast.api.kinds import KindInfo
from holdfast.machinery.schema.custom import cel as rules
from holdfast.machinery.schema.types import VERBS, PrinterColumn, ResourceType, ScalePaths, Subresource


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
        """The type of objects with this group, version and kind."""
        return self._kinds.get((group, version, kind))

    def versions(self, group: str, plural: str) -> list[ResourceType]:
        """All served versions of a resource; objects are stored in the one with `storage` set."""
        return [type for type in self._types.values() if (type.group, type.plural) == (group, plural)]

    def add_crd(self, raw: dict[str, Any]) -> tuple[ResourceType, ...]:
        """Serves the types of a CustomResourceDefinition, in place of those of its earlier version."""
        types = crd_types(raw)
        self._drop(raw["metadata"]["name"])
        for type in types:
            self._add(type)
        self.generation += 1
        return types

    def remove_crd(self, name: str) -> None:
        if self._drop(name):
            self.generation += 1

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
    """The built-in types and those of Holdfast's own definitions; shared, so it must not be changed."""
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
    version: str = "v1",
    deprecation: str = "",
) -> ResourceType:
    subresources = list(also)
    if scale:
        subresources.append(_SCALE)
    if status:
        subresources.append(Subresource("status", kind))
    package = _PACKAGES.get(group) or f"io.k8s.api.{group.partition('.')[0]}.{version}"
    return ResourceType(
        group=group,
        version=version,
        kind=kind,
        plural=plural,
        short_names=short_names,
        categories=("all",) if all else categories,
        namespaced=namespaced,
        verbs=verbs,
        subresources=tuple(sorted(subresources, key=lambda sub: sub.name)),
        definition=f"{package}.{kind}",
        scale=ScalePaths() if scale else None,
        deprecation=deprecation,
    )


_POD_SUBRESOURCES = (
    Subresource("binding", "Binding", _POSTED),
    Subresource("ephemeralcontainers", "Pod"),
    Subresource("eviction", "Eviction", _POSTED, group="policy", version="v1"),
    Subresource("resize", "Pod"),
)

_ENDPOINTS_DEPRECATED = "v1 Endpoints is deprecated in v1.33+; use discovery.k8s.io/v1 EndpointSlice"
_ADMISSION = "admissionregistration.k8s.io"
_AUTHENTICATION = "authentication.k8s.io"
_AUTHORIZATION = "authorization.k8s.io"
_DISCOVERY = "discovery.k8s.io"
_NETWORKING = "networking.k8s.io"
_RBAC = "rbac.authorization.k8s.io"
_RESOURCE = "resource.k8s.io"
_STORAGE = "storage.k8s.io"


def builtin_types() -> tuple[ResourceType, ...]:
    """Every built-in type, in the order discovery lists them."""
    return (
        _type("", "Binding", "bindings", verbs=_POSTED),
        _type("", "ConfigMap", "configmaps", "cm"),
        _type("", "Endpoints", "endpoints", "ep", deprecation=_ENDPOINTS_DEPRECATED),
        _type("", "Event", "events", "ev"),
        _type("", "LimitRange", "limitranges", "limits"),
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
        _type("", "ResourceQuota", "resourcequotas", "quota", status=True),
        _type("", "Secret", "secrets"),
        _type("", "ServiceAccount", "serviceaccounts", "sa"),
        _type("", "Service", "services", "svc", status=True, all=True),
        _type(
            _ADMISSION,
            "MutatingWebhookConfiguration",
            "mutatingwebhookconfigurations",
            namespaced=False,
            categories=("api-extensions",),
        ),
        _type(
            _ADMISSION,
            "ValidatingAdmissionPolicy",
            "validatingadmissionpolicies",
            namespaced=False,
            status=True,
            categories=("api-extensions",),
        ),
        _type(
            _ADMISSION,
            "ValidatingAdmissionPolicyBinding",
            "validatingadmissionpolicybindings",
            namespaced=False,
            categories=("api-extensions",),
        ),
        _type(
            _ADMISSION,
            "ValidatingWebhookConfiguration",
            "validatingwebhookconfigurations",
            namespaced=False,
            categories=("api-extensions",),
        ),
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
        _type(
            "autoscaling",
            "HorizontalPodAutoscaler",
            "horizontalpodautoscalers",
            "hpa",
            status=True,
            all=True,
            version="v2",
        ),
        _type(
            "autoscaling",
            "HorizontalPodAutoscaler",
            "horizontalpodautoscalers",
            "hpa",
            status=True,
            all=True,
            version="v1",
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
        _type(_RESOURCE, "DeviceClass", "deviceclasses", namespaced=False),
        _type(_RESOURCE, "DeviceTaintRule", "devicetaintrules", namespaced=False, status=True),
        _type(_RESOURCE, "ResourceClaim", "resourceclaims", status=True),
        _type(_RESOURCE, "ResourceClaimTemplate", "resourceclaimtemplates"),
        _type(_RESOURCE, "ResourceSlice", "resourceslices", namespaced=False),
        _type("scheduling.k8s.io", "PriorityClass", "priorityclasses", "pc", namespaced=False),
        _type("scheduling.k8s.io", "PodGroup", "podgroups", status=True, version="v1beta1"),
        _type("scheduling.k8s.io", "Workload", "workloads", version="v1beta1"),
        _type(_STORAGE, "CSIDriver", "csidrivers", namespaced=False),
        _type(_STORAGE, "CSINode", "csinodes", namespaced=False),
        _type(_STORAGE, "CSIStorageCapacity", "csistoragecapacities"),
        _type(_STORAGE, "StorageClass", "storageclasses", "sc", namespaced=False),
        _type(_STORAGE, "VolumeAttachment", "volumeattachments", namespaced=False, status=True),
    )


NOT_ACTED_ON = frozenset(
    {
        ("", "LimitRange"),
        ("", "ReplicationController"),
        ("", "ResourceQuota"),
        *(
            (_ADMISSION, kind)
            for kind in (
                "MutatingWebhookConfiguration",
                "ValidatingAdmissionPolicy",
                "ValidatingAdmissionPolicyBinding",
                "ValidatingWebhookConfiguration",
            )
        ),
        ("autoscaling", "HorizontalPodAutoscaler"),
        *((_NETWORKING, kind) for kind in ("Ingress", "IngressClass", "NetworkPolicy")),
        *((_RBAC, kind) for kind in ("ClusterRole", "ClusterRoleBinding", "Role", "RoleBinding")),
    }
)
"""Kinds whose objects the local cluster stores, without a controller or plugin that reads them."""


MAX_COLUMNS = 100
"""Printer columns of a version; an older definition may have more, which are not shown."""
_VERSION = re.compile(r"v([1-9][0-9]*)(?:(alpha|beta)([1-9][0-9]*))?")
_STAGES = {"": 2, "beta": 1, "alpha": 0}


def crd_types(raw: dict[str, Any]) -> tuple[ResourceType, ...]:
    """One type per served version, the preferred version first. The CRD must have been validated."""
    spec = raw["spec"]
    served = [version for version in spec["versions"] if version.get("served")]
    served.sort(key=lambda version: version_rank(version["name"]), reverse=True)
    return tuple(_custom_type(raw["metadata"]["name"], spec, version) for version in served)


def crd_warnings(raw: dict[str, Any]) -> list[str]:
    """The warnings in the response to a write of the definition: rules that are not evaluated."""
    found: list[str] = []
    for i, version in enumerate((raw.get("spec") or {}).get("versions") or ()):
        schema = (version.get("schema") or {}).get("openAPIV3Schema") or {}
        path = f"spec.versions[{i}].schema.openAPIV3Schema"
        for where, rule in rules.unevaluated_rules(schema, path):
            found.append(f"{where}: this rule is not evaluated here: {rule}")
    return found


def version_rank(name: str) -> tuple[int, int, int, int, tuple[int, ...]]:
    """Sorts versions as Kubernetes does: v2, v1, v1beta2, v1alpha1, then other names from a to z."""
    match = _VERSION.fullmatch(name)
    if match is None:
        return (0, 0, 0, 0, tuple(-ord(char) for char in name))
    stage = match[2] or ""
    return (1, _STAGES[stage], int(match[1]), int(match[3] or 0), ())


def _custom_type(name: str, spec: dict[str, Any], version: dict[str, Any]) -> ResourceType:
    names = spec["names"]
    subresources = version.get("subresources") or {}
    scale = subresources.get("scale")
    found: list[Subresource] = []
    if scale is not None:
        found.append(Subresource("scale", "Scale", group="autoscaling", version="v1"))
    if subresources.get("status") is not None:
        found.append(Subresource("status", names["kind"]))
    return ResourceType(
        group=spec["group"],
        version=version["name"],
        kind=names["kind"],
        plural=names["plural"],
        singular=names.get("singular", ""),
        list_kind=names.get("listKind", ""),
        short_names=tuple(names.get("shortNames") or ()),
        categories=tuple(names.get("categories") or ()),
        namespaced=spec["scope"] == "Namespaced",
        subresources=tuple(found),
        columns=tuple(
            _column(column) for column in (version.get("additionalPrinterColumns") or ())[:MAX_COLUMNS]
        ),
        schema=(version.get("schema") or {}).get("openAPIV3Schema"),
        crd=name,
        scale=_scale(scale) if scale is not None else None,
        deprecation=_deprecation(spec, version),
        storage=bool(version.get("storage")),
        selectable_fields=tuple(
            field["jsonPath"].removeprefix(".") for field in version.get("selectableFields") or ()
        ),
    )


def _column(raw: dict[str, Any]) -> PrinterColumn:
    return PrinterColumn(
        name=raw["name"],
        type=raw["type"],
        json_path=raw["jsonPath"],
        format=raw.get("format", ""),
        description=raw.get("description", ""),
        priority=raw.get("priority", 0),
    )


def _scale(raw: dict[str, Any]) -> ScalePaths:
    return ScalePaths(
        replicas=raw["specReplicasPath"].lstrip("."),
        status_replicas=raw["statusReplicasPath"].lstrip("."),
        selector=raw.get("labelSelectorPath", "").lstrip("."),
    )


def _deprecation(spec: dict[str, Any], version: dict[str, Any]) -> str:
    if not version.get("deprecated"):
        return ""
    warning = version.get("deprecationWarning")
    if warning is not None:
        return str(warning)
    return f"{spec['group']}/{version['name']} {spec['names']['kind']} is deprecated"
