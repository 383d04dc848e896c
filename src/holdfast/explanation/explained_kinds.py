"""The kinds that can be explained. Importing it needs no scheduler: shell completion uses it."""

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from holdfast.api.kinds import KINDS, KindInfo
from holdfast.api.names import (
    HOLDFAST_API,
    RESERVATION_API,
    RESOURCE_API,
    SIGS_PODGROUP_API,
    VOLCANO_API,
    WORKLOAD_API,
)
from holdfast.api.similar_names import did_you_mean


class ExplainedKind(NamedTuple):
    infos: tuple[KindInfo, ...]
    """An object of any of these is meant."""
    aliases: tuple[str, ...] = ()
    """What users may call it besides what kubectl takes."""


EXPLAINED = {
    "pod": ExplainedKind((KINDS["v1", "Pod"],)),
    "reservation": ExplainedKind((KINDS[RESERVATION_API, "Reservation"],), ("hold", "holds")),
    "podgroup": ExplainedKind(
        tuple(KINDS[api, "PodGroup"] for api in (VOLCANO_API, SIGS_PODGROUP_API, WORKLOAD_API)), ("pg",)
    ),
    "deployment": ExplainedKind((KINDS["apps/v1", "Deployment"],)),
    "statefulset": ExplainedKind((KINDS["apps/v1", "StatefulSet"],)),
    "daemonset": ExplainedKind((KINDS["apps/v1", "DaemonSet"],)),
    "replicaset": ExplainedKind((KINDS["apps/v1", "ReplicaSet"],)),
    "job": ExplainedKind((KINDS["batch/v1", "Job"],)),
    "cronjob": ExplainedKind((KINDS["batch/v1", "CronJob"],)),
    "persistentvolumeclaim": ExplainedKind((KINDS["v1", "PersistentVolumeClaim"],)),
    "resourceclaim": ExplainedKind((KINDS[RESOURCE_API, "ResourceClaim"],)),
    "node": ExplainedKind((KINDS["v1", "Node"],)),
    "queue": ExplainedKind((KINDS[VOLCANO_API, "Queue"],)),
    "podmigrationjob": ExplainedKind(
        (KINDS[RESERVATION_API, "PodMigrationJob"],), ("migration", "migrations")
    ),
    "reservationschedule": ExplainedKind(
        (KINDS[HOLDFAST_API, "ReservationSchedule"],), ("schedule", "schedules")
    ),
}
"""By the name of the kind on the command line."""


_VOLUMES, _DEVICES = "the persistentvolumeclaim, or the pod that waits", "the resourceclaim, or the pod"
INSTEAD = {
    "PersistentVolume": "the persistentvolumeclaim that it is for",
    "StorageClass": _VOLUMES,
    "CSINode": _VOLUMES,
    "CSIDriver": _VOLUMES,
    "CSIStorageCapacity": _VOLUMES,
    "VolumeAttachment": _VOLUMES,
    "ResourceClaimTemplate": _DEVICES,
    "DeviceClass": _DEVICES,
    "ResourceSlice": _DEVICES,
    "DeviceTaintRule": f"{_DEVICES} that does not get a device",
    "Device": "its node, or the pod that does not get a device",
    "NodeResourceTopology": "its node",
    "PodDisruptionBudget": "a pod that it protects, or the podmigrationjob whose eviction it forbids",
    "PriorityClass": "a pod that has it",
    "Service": "the workload behind it, or a pod",
    "ReplicationController": "one of its pods",
    "Workload": "its podgroup",
    "Job": "its podgroup, or one of its pods",
    "Namespace": "a pod or a workload of it",
}
"""What to explain instead of an object of a kind that is not explained."""


class KnownKind(NamedTuple):
    name: str
    """The key of `EXPLAINED`."""
    infos: tuple[KindInfo, ...]
    """Those of them that are meant: of one group, if that is named."""


def known_kinds() -> dict[str, KnownKind]:
    """By each name that a user may give: as kubectl takes it, or an alias."""
    found: dict[str, KnownKind] = {}
    for name, each in EXPLAINED.items():
        found |= dict.fromkeys((name, *each.aliases), KnownKind(name, each.infos))
        for info in each.infos:
            for title in info.command_names:
                infos = found[title].infos if title in found else ()
                meant = tuple(i for i in each.infos if i in infos or i == info)
                found[title] = KnownKind(name, meant)
    return found


def instead_of(given: str, instead: Mapping[str, str] = INSTEAD) -> str:
    """What to ask about instead of an object of a kind that a command does not take; empty for a name
    that is unknown or misspelt. Kinds of one name are told apart by their group."""
    infos = [info for info in KINDS.values() if given.lower() in info.command_names]
    return next((instead[info.kind] for info in infos if info.kind in instead), "")


def unknown_kind(given: str, known: Iterable[str], listed: Iterable[str]) -> str:
    """`; did you mean pod?` for a kind that a command does not take, or the kinds that it lists. The
    name of another kind, such as svc, is no misspelling."""
    otherwise = f"known: {', '.join(listed)}"
    if any(given.lower() in info.command_names for info in KINDS.values()):
        return f"; {otherwise}"
    likely = [each for each in known if len(each) > 2 and ("." in given or "." not in each)]
    return did_you_mean(given, likely, otherwise)
