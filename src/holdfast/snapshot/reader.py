"""Takes a snapshot: reads every kind that the scheduler watches from an API server."""

import asyncio
import time
from collections.abc import Iterable
from typing import Protocol

from holdfast.api.kinds import KindInfo
from holdfast.kube.decoding import WATCHED, Watched, read_by_plugins
from holdfast.kube.errors import ApiError
from holdfast.kube.object_client import Raw
from holdfast.local.setup import SchedulerFactory
from holdfast.scheduler.assembly import declared_kinds
from holdfast.snapshot.cluster_snapshot import NODE, POD, ClusterSnapshot


class ObjectSource(Protocol):
    """Lists objects, like `kube.object_client.Server`."""

    async def listed(
        self, info: KindInfo, namespace: str = "", selector: str = "", fields: str = ""
    ) -> tuple[list[Raw], str]: ...


async def take_snapshot(
    source: ObjectSource,
    setup: SchedulerFactory | None = None,
    only: Iterable[KindInfo] | None = None,
) -> ClusterSnapshot:
    """Reads all kinds, or some. Kinds that the server does not have or that we may not read are
    skipped; the latter with a warning.
    """
    setup = setup or SchedulerFactory.of()
    wanted = [each for each in WATCHED if only is None or each.info in only]
    if only is None:
        wanted += read_by_plugins(declared_kinds(setup.configuration, setup.registry))
    warnings: list[str] = []
    lists = await asyncio.gather(*(_listed(source, each, warnings) for each in wanted))
    snapshot = ClusterSnapshot(setup.scheduler(), time.time(), warnings=warnings)
    for watched, items in zip(wanted, lists, strict=True):
        snapshot.add(watched, items)
    return snapshot


async def _listed(source: ObjectSource, watched: Watched, warnings: list[str]) -> list[Raw]:
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
