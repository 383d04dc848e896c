"""The registry of kinds: how each is called, where it lives, what it decodes to.

Adding a kind is one line here and its type in a module of this package. Everything that must
treat all kinds alike (the store, the API server, `simulate`, decoding) reads this table.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

import msgspec

from holdfast.api import (
    events,
    jobs,
    node,
    pod,
    pod_groups,
    reservation,
    reservation_schedules,
    resource_claims,
    resource_slices,
    storage,
    workloads,
)
from holdfast.api import names as n
from holdfast.api import node as devices
from holdfast.api import reservation as migration
from holdfast.api import workloads as policy
from holdfast.api.errors import InvalidObject
from holdfast.api.meta import Object
from holdfast.api.similar_names import did_you_mean


class KindInfo(msgspec.Struct, frozen=True, kw_only=True):
    """One row of the table."""

    api_version: str
    kind: str
    plural: str
    type: type[Object]
    namespaced: bool = True
    short_names: tuple[str, ...] = ()
    categories: tuple[str, ...] = ()
    has_status: bool = True
    """Whether the status is a subresource; else it is written with the rest of the object."""

    @property
    def group(self) -> str:
        """The API group, "" for the core one."""
        return self.api_version.rpartition("/")[0]

    @property
    def version(self) -> str:
        return self.api_version.rpartition("/")[2]

    @property
    def singular(self) -> str:
        return self.kind.lower()

    @property
    def resource(self) -> str:
        """`plural.group`, as CRDs and RBAC write it."""
        return f"{self.plural}.{self.group}" if self.group else self.plural

    @property
    def command_names(self) -> tuple[str, ...]:
        """What kubectl takes for the kind, in lower case: `rsv`, `reservations`, `reservation`, each
        alone, with the group, and with version and group."""
        names = (self.plural, self.singular, *self.short_names)
        if not self.group:
            return names
        ends = ("", f".{self.group}", f".{self.version}.{self.group}")
        return tuple(f"{name}{end}" for end in ends for name in names)


def _row(
    api_version: str,
    kind: str,
    plural: str,
    type: type[Object],
    *short_names: str,
    namespaced: bool = True,
    has_status: bool = True,
    all: bool = False,
) -> KindInfo:
    return KindInfo(
        api_version=api_version,
        kind=kind,
        plural=plural,
        type=type,
        namespaced=namespaced,
        short_names=short_names,
        categories=("all",) if all else (),
        has_status=has_status,
    )


_STORAGE = "storage.k8s.io/v1"

_ROWS = (
    _row("v1", "Pod", "pods", pod.Pod, "po", all=True),
    _row("v1", "Node", "nodes", node.Node, "no", namespaced=False),
    _row("v1", "Namespace", "namespaces", policy.Namespace, "ns", namespaced=False),
    _row("v1", "Service", "services", workloads.Service, "svc", all=True),
    _row(
        "v1",
        "ReplicationController",
        "replicationcontrollers",
        workloads.ReplicationController,
        "rc",
        all=True,
    ),
    _row(
        "v1",
        "PersistentVolumeClaim",
        "persistentvolumeclaims",
        storage.PersistentVolumeClaim,
        "pvc",
    ),
    _row(
        "v1",
        "PersistentVolume",
        "persistentvolumes",
        storage.PersistentVolume,
        "pv",
        namespaced=False,
    ),
    _row("v1", "Event", "events", events.Event, "ev", has_status=False),
    _row("v1", "Binding", "bindings", events.Binding, has_status=False),
    _row("events.k8s.io/v1", "Event", "events", events.Event, "ev", has_status=False),
    _row("apps/v1", "ReplicaSet", "replicasets", workloads.ReplicaSet, "rs", all=True),
    _row("apps/v1", "StatefulSet", "statefulsets", workloads.StatefulSet, "sts", all=True),
    _row("apps/v1", "Deployment", "deployments", workloads.Deployment, "deploy", all=True),
    _row("apps/v1", "DaemonSet", "daemonsets", workloads.DaemonSet, "ds", all=True),
    _row("batch/v1", "Job", "jobs", workloads.BatchJob, all=True),
    _row("batch/v1", "CronJob", "cronjobs", workloads.CronJob, "cj", all=True),
    _row(
        "policy/v1",
        "PodDisruptionBudget",
        "poddisruptionbudgets",
        policy.PodDisruptionBudget,
        "pdb",
    ),
    _row(
        "scheduling.k8s.io/v1",
        "PriorityClass",
        "priorityclasses",
        policy.PriorityClass,
        "pc",
        namespaced=False,
        has_status=False,
    ),
    _row(
        "node.k8s.io/v1",
        "RuntimeClass",
        "runtimeclasses",
        policy.RuntimeClass,
        namespaced=False,
        has_status=False,
    ),
    _row("coordination.k8s.io/v1", "Lease", "leases", policy.Lease, has_status=False),
    _row(
        _STORAGE,
        "StorageClass",
        "storageclasses",
        storage.StorageClass,
        "sc",
        namespaced=False,
        has_status=False,
    ),
    _row(_STORAGE, "CSINode", "csinodes", storage.CSINode, namespaced=False, has_status=False),
    _row(_STORAGE, "CSIDriver", "csidrivers", storage.CSIDriver, namespaced=False, has_status=False),
    _row(
        _STORAGE,
        "VolumeAttachment",
        "volumeattachments",
        storage.VolumeAttachment,
        namespaced=False,
    ),
    _row(
        _STORAGE,
        "CSIStorageCapacity",
        "csistoragecapacities",
        storage.CSIStorageCapacity,
        has_status=False,
    ),
    _row(n.RESOURCE_API, "ResourceClaim", "resourceclaims", resource_claims.ResourceClaim),
    _row(
        n.RESOURCE_API,
        "ResourceClaimTemplate",
        "resourceclaimtemplates",
        resource_claims.ResourceClaimTemplate,
        has_status=False,
    ),
    _row(
        n.RESOURCE_API,
        "DeviceClass",
        "deviceclasses",
        resource_claims.DeviceClass,
        namespaced=False,
        has_status=False,
    ),
    _row(
        n.RESOURCE_API,
        "ResourceSlice",
        "resourceslices",
        resource_slices.ResourceSlice,
        namespaced=False,
        has_status=False,
    ),
    _row(
        n.RESOURCE_API,
        "DeviceTaintRule",
        "devicetaintrules",
        resource_slices.DeviceTaintRule,
        namespaced=False,
    ),
    _row(
        n.RESERVATION_API,
        "Reservation",
        "reservations",
        reservation.Reservation,
        "rsv",
        namespaced=False,
    ),
    _row(n.RESERVATION_API, "Device", "devices", devices.Device, namespaced=False, has_status=False),
    _row(
        n.RESERVATION_API,
        "PodMigrationJob",
        "podmigrationjobs",
        migration.PodMigrationJob,
        "pmj",
        namespaced=False,
    ),
    _row(
        n.HOLDFAST_API,
        "ReservationSchedule",
        "reservationschedules",
        reservation_schedules.ReservationSchedule,
        "rsvs",
        namespaced=False,
    ),
    _row(
        n.VOLCANO_API,
        "PodGroup",
        "podgroups",
        jobs.PodGroup,
        "pg",
        "podgroup-v1beta1",
        has_status=False,
    ),
    _row(n.VOLCANO_API, "Queue", "queues", jobs.Queue, "q", "queue-v1beta1", namespaced=False),
    _row(n.SIGS_PODGROUP_API, "PodGroup", "podgroups", jobs.PodGroup, "pgs", has_status=False),
    _row(n.WORKLOAD_API, "PodGroup", "podgroups", pod_groups.CorePodGroup),
    _row(n.WORKLOAD_API, "Workload", "workloads", pod_groups.CoreWorkload, has_status=False),
    _row(n.VOLCANO_JOB_API, "Job", "jobs", jobs.VolcanoJob, "vcjob", "vj"),
    _row(
        n.TOPOLOGY_API,
        "NodeResourceTopology",
        "noderesourcetopologies",
        devices.NodeResourceTopology,
        "node-res-topo",
        namespaced=False,
        has_status=False,
    ),
)

KINDS: dict[tuple[str, str], KindInfo] = {(row.api_version, row.kind): row for row in _ROWS}

_API_VERSIONS = {row.kind: row.api_version for row in reversed(_ROWS)}
_CLUSTER_SCOPED = frozenset(row.kind for row in _ROWS if not row.namespaced)


Kinds = Mapping[tuple[str, str], KindInfo]
"""By apiVersion and kind."""
NO_KINDS: Kinds = MappingProxyType({})


def kind_info(api_version: str, kind: str, declared: Kinds = NO_KINDS) -> KindInfo:
    """The row for a kind of the table, or of those plugins declare; what is in neither is an error
    naming the nearest that is."""
    found = KINDS.get((api_version, kind)) or declared.get((api_version, kind))
    if found is None:
        raise InvalidObject("", *_unknown(api_version, kind, declared))
    return found


def api_version_of(kind: str) -> str:
    """The apiVersion of a known kind, of several groups the first in the table; else empty."""
    return _API_VERSIONS.get(kind, "")


def is_cluster_scoped(kind: str) -> bool:
    """Whether objects of a known kind live outside namespaces."""
    return kind in _CLUSTER_SCOPED


def _unknown(api_version: str, kind: str, declared: Kinds) -> tuple[str, str]:
    if not kind:
        return "kind", "is required"
    if not api_version:
        return "apiVersion", "is required"
    rows = (*_ROWS, *declared.values())
    versions = sorted(row.api_version for row in rows if row.kind == kind)
    if versions:
        return "apiVersion", f"no {kind} in {api_version!r}; known: {', '.join(versions)}"
    return "kind", f"unknown kind {kind!r}{did_you_mean(kind, (row.kind for row in rows))}"
