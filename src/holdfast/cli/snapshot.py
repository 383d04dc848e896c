"""The snapshot for a command, with warnings on stderr."""

from collections.abc import Iterable

import typer

from holdfast.api.kinds import KindInfo
from holdfast.kube.object_client import ObjectLister
from holdfast.local.setup import SchedulerFactory
from holdfast.snapshot.cluster_snapshot import ClusterSnapshot
from holdfast.snapshot.reader import take_snapshot


async def warned_snapshot(
    reader: ObjectLister, setup: SchedulerFactory | None = None, only: Iterable[KindInfo] | None = None
) -> ClusterSnapshot:
    snapshot = await take_snapshot(reader, setup, only)
    for warning in snapshot.warnings:
        typer.echo(f"warning: {warning}", err=True)
    return snapshot
