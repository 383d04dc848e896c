"""Reads a cluster: the objects that scheduling depends on, or a scheduler that was fed them."""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import NamedTuple

from holdfast import __version__
from holdfast.api.kinds import KINDS, KindInfo
from holdfast.kube.decoding import WATCHED, Watched, read_by_plugins
from holdfast.kube.errors import ApiError
from holdfast.kube.object_client import ObjectLister, ObjectPage, Raw, RunningConfiguration, Server
from holdfast.local.setup import SchedulerFactory
from holdfast.scheduler.assembly import declared_kinds
from holdfast.scheduler.framework.config import ConfigError
from holdfast.scheduler.framework.registry import PluginError
from holdfast.snapshot.cluster_objects import ClusterObjects, of_objects
from holdfast.snapshot.cluster_snapshot import NODE, POD, ClusterSnapshot
from holdfast.snapshot.snapshot_header import MissingKind, SnapshotHeader
from holdfast.snapshot.stripping import Stripper, decode_pods


async def take_snapshot(
    source: ObjectLister,
    setup: SchedulerFactory | None = None,
    only: Iterable[KindInfo] | None = None,
) -> ClusterSnapshot:
    """Feeds a scheduler all kinds that it watches, or some. Kinds that the server does not have or that
    we may not read are skipped; the latter with a warning.
    """
    unknown = ""
    if setup is None:
        setup, unknown = await running_setup(source)
    wanted = [each for each in WATCHED if only is None or each.info in only]
    if only is None:
        wanted += read_by_plugins(declared_kinds(setup.configuration, setup.registry))
    warnings: list[str] = []
    lists = await asyncio.gather(*(_listed(source, each, warnings) for each in wanted))
    snapshot = ClusterSnapshot(setup.scheduler(), source.now(), warnings=warnings)
    snapshot.unknown_configuration = unknown
    for watched, items in zip(wanted, lists, strict=True):
        snapshot.add(watched, items)
    return snapshot


class RunningSetup(NamedTuple):
    """A scheduler that is configured as that of the cluster, as far as this is known."""

    setup: SchedulerFactory
    why_unknown: str
    """Why it has the default configuration instead; empty if it has not."""


async def running_setup(source: ObjectLister) -> RunningSetup:
    return setup_of(await source.configuration())


def setup_of(found: RunningConfiguration) -> RunningSetup:
    if found.mapping is None:
        return RunningSetup(SchedulerFactory.of(), found.why_unknown)
    try:
        return RunningSetup(SchedulerFactory.of(found.mapping), "")
    except (ConfigError, PluginError) as error:
        return RunningSetup(SchedulerFactory.of(), f"it is not valid here: {error}")


async def _listed(source: ObjectLister, watched: Watched, warnings: list[str]) -> list[Raw]:
    try:
        found, _ = await source.listed(watched.info, fields=watched.field_selector)
    except ApiError as error:
        if error.status == 404:
            return []
        if error.status != 403 or watched.info in (NODE, POD):
            raise
        warnings.append(f"skipped, not permitted: {error.message}")
        return []
    return found


# The raw objects


class ListedKind(NamedTuple):
    info: KindInfo
    effect: str
    """What answers do not take into account without it."""


def _kind(api_version: str, kind: str, effect: str) -> ListedKind:
    return ListedKind(KINDS[api_version, kind], effect)


_NO_PODS = "pods that it would create are not created"
_EFFECTS = {
    "Namespace": "namespace selectors of affinity terms match nothing",
    "Service": "default spread constraints ignore it",
    "ReplicationController": "default spread constraints ignore it",
    "ReplicaSet": f"default spread constraints ignore it, and {_NO_PODS}",
    "StatefulSet": f"default spread constraints ignore it, and {_NO_PODS}",
    "PodDisruptionBudget": "preemption and drains do not respect them",
    "PersistentVolume": "pods with volumes may be placed on other nodes than in the cluster",
    "PersistentVolumeClaim": "pods with volumes cannot be scheduled",
    "StorageClass": "pods with unbound claims cannot be scheduled",
    "CSINode": "limits of volumes per node are not checked",
    "CSIDriver": "free storage is not checked",
    "CSIStorageCapacity": "free storage is not checked",
    "VolumeAttachment": "volumes attached without a pod are not counted",
    "DeviceClass": "pods with resource claims cannot be scheduled",
    "ResourceSlice": "pods with resource claims cannot be scheduled",
    "DeviceTaintRule": "taints of devices are not respected",
    "ResourceClaim": "devices in use count as free",
    "ResourceClaimTemplate": "pods that need a claim cannot be scheduled",
    "Device": "GPUs and other devices are counted by node only",
    "NodeResourceTopology": "NUMA nodes and exclusive CPUs are not checked",
    "Reservation": "reserved capacity counts as free",
    "ReservationSchedule": "reservations that it would create are not created",
    "PodMigrationJob": "pods are not migrated",
    "PriorityClass": "pods that name one cannot be created",
    "PodGroup": "pods are not scheduled as a group",
    "Queue": "shares and limits of queues are not respected",
    "Job": _NO_PODS,
}

SNAPSHOT_KINDS = (
    *(ListedKind(each.info, _EFFECTS.get(each.info.kind, "")) for each in WATCHED if not each.ended),
    _kind("apps/v1", "Deployment", _NO_PODS),
    _kind("apps/v1", "DaemonSet", _NO_PODS),
    _kind("batch/v1", "Job", _NO_PODS),
    _kind("batch/v1", "CronJob", _NO_PODS),
    _kind("node.k8s.io/v1", "RuntimeClass", "overhead of new pods that name one is not counted"),
)
"""What a snapshot has, nodes and pods first. No Secrets, ConfigMaps or Events."""

Progress = Callable[[KindInfo, int, int], None]
"""Called after each page with the kind, how many of it were read, and how many follow."""

_UNAVAILABLE = (400, 410, 504)
"""Answers of a server that cannot list a kind as of the version that was asked for."""


@dataclass(slots=True)
class ClusterReader:
    """Lists all kinds of a snapshot, page by page, as of one version of the cluster where the server
    can do that, and strips the objects. Only GET requests are sent."""

    server: Server
    stripper: Stripper = field(default_factory=Stripper)
    progress: Progress | None = None
    version: str = ""
    """The version of the cluster that the lists are of."""
    is_consistent: bool = True
    """Whether all lists are of that version."""
    not_permitted: list[MissingKind] = field(default_factory=list)

    async def pages(self) -> AsyncIterator[list[Raw]]:
        """Raises ApiError if nodes or pods may not be read."""
        for kind in SNAPSHOT_KINDS:
            try:
                async for items in self._of_kind(kind.info):
                    yield [self.stripper.strip(raw) for raw in items]
            except ApiError as error:
                if error.status == 404:
                    continue
                if error.status != 403 or kind.info in (NODE, POD):
                    raise
                self.not_permitted.append(MissingKind(kind.info.resource, error.message, kind.effect))

    async def _of_kind(self, info: KindInfo) -> AsyncIterator[list[Raw]]:
        count = 0
        try:
            async for page in self._pages(info, self.version):
                self.version = self.version or page.version
                count += len(page.items)
                if self.progress is not None:
                    self.progress(info, count, page.left)
                yield page.items
        except ApiError as error:
            if count or not self.version or error.status not in _UNAVAILABLE:
                raise
        else:
            return
        self.is_consistent = False
        async for page in self._pages(info):
            count += len(page.items)
            if self.progress is not None:
                self.progress(info, count, page.left)
            yield page.items

    def _pages(self, info: KindInfo, version: str = "") -> AsyncIterator[ObjectPage]:
        if info is POD:
            return self.server.pages(info, version=version, decode=decode_pods)
        return self.server.pages(info, version=version)

    async def header(self, time: float) -> SnapshotHeader:
        """After the pages were read, which began at that time."""
        server: Raw = {}
        with suppress(ApiError):  # not everybody may read it
            server = await self.server.version()
        configuration = (await self.server.configuration()).mapping
        return SnapshotHeader(
            time=time,
            configuration=configuration,
            holdfast_version=__version__,
            server_version=str(server.get("gitVersion") or ""),
            resource_version=self.version if self.is_consistent else "",
            not_permitted=tuple(self.not_permitted),
        )


async def read_cluster(server: Server, progress: Progress | None = None) -> ClusterObjects:
    """The objects of a snapshot, from the API server, stripped as in a snapshot file."""
    reader = ClusterReader(server, progress=progress)
    now = server.now()
    objects = [raw async for page in reader.pages() for raw in page]
    return of_objects(objects, await reader.header(now))
