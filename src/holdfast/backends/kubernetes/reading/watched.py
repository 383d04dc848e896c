"""The kinds the scheduler reads. One line each; those of custom resources may be absent. So may kinds
that plugins read, which they declare."""

from collections.abc import Mapping
from typing import NamedTuple

from holdfast.api.kinds import KINDS, KindInfo
from holdfast.api.names import (
    RESERVATION_API,
    SIGS_PODGROUP_API,
    TOPOLOGY_API,
    VOLCANO_API,
    VOLCANO_JOB_API,
)
from holdfast.api.raw_objects import ObjectKind


class Watched(NamedTuple):
    info: KindInfo
    field_selector: str = ""
    optional: bool = False
    """Whether the server may not know the kind."""
    ended: bool = False
    """Whether it is about pods that have ended."""
    read_by: tuple[str, ...] = ()
    """The plugins for which it is read, where Holdfast itself does not."""

    @property
    def name(self) -> str:
        """As logs and figures have it; no two that are watched have the same."""
        if self.read_by:
            group = f".{self.info.group}" if self.info.group else ""
            return f"{self.info.plural}.{self.info.version}{group}"
        return f"{self.info.resource}/ended" if self.ended else self.info.resource

    @property
    def readers(self) -> str:
        """Which plugins read it, as logs say it; empty where Holdfast itself does."""
        match self.read_by:
            case ():
                return ""
            case (only,):
                return f"plugin {only} reads it"
            case many:
                return f"plugins {' and '.join(many)} read it"

    @property
    def remedy(self) -> str:
        """What to do where we may not read it; empty where Holdfast's own ClusterRole says we may."""
        if not self.read_by:
            return ""
        return (
            f"{self.readers}, so the ClusterRole of the scheduler needs a rule with apiGroups "
            f'["{self.info.group}"], resources [{self.info.plural}], verbs [get, list, watch]: see '
            "`holdfast config rbac`, or pluginResources of the chart"
        )


def read_by_plugins(kinds: Mapping[ObjectKind, tuple[str, ...]]) -> tuple[Watched, ...]:
    """What is watched for plugins, given who reads which kind."""
    return tuple(
        Watched(kind.info(), optional=True, read_by=plugins) for kind, plugins in kinds.items()
    )


def _kind(api_version: str, kind: str, field_selector: str = "", optional: bool = False) -> Watched:
    return Watched(KINDS[api_version, kind], field_selector, optional)


ENDED_PODS = Watched(
    KINDS["v1", "Pod"], "status.phase!=Pending,status.phase!=Running,status.phase!=Unknown", ended=True
)
"""Members of jobs that did their work count, and those who watch the others see them only vanish."""

WATCHED = (
    # Nodes first, so that pods find theirs.
    _kind("v1", "Node"),
    _kind("v1", "Pod", "status.phase!=Succeeded,status.phase!=Failed"),
    ENDED_PODS,
    _kind("v1", "Namespace"),
    _kind("v1", "Service"),
    _kind("v1", "ReplicationController"),
    _kind("apps/v1", "ReplicaSet"),
    _kind("apps/v1", "StatefulSet"),
    _kind("policy/v1", "PodDisruptionBudget"),
    _kind("v1", "PersistentVolume"),
    _kind("v1", "PersistentVolumeClaim"),
    _kind("storage.k8s.io/v1", "StorageClass"),
    _kind("storage.k8s.io/v1", "CSINode"),
    _kind("storage.k8s.io/v1", "CSIDriver"),
    _kind("storage.k8s.io/v1", "CSIStorageCapacity"),
    _kind("storage.k8s.io/v1", "VolumeAttachment"),
    _kind(RESERVATION_API, "Device", optional=True),
    _kind(TOPOLOGY_API, "NodeResourceTopology", optional=True),
    _kind(RESERVATION_API, "Reservation", optional=True),
    _kind(RESERVATION_API, "PodMigrationJob", optional=True),
    _kind("scheduling.k8s.io/v1", "PriorityClass"),
    _kind(VOLCANO_API, "PodGroup", optional=True),
    _kind(SIGS_PODGROUP_API, "PodGroup", optional=True),
    _kind(VOLCANO_API, "Queue", optional=True),
    _kind(VOLCANO_JOB_API, "Job", optional=True),
)
