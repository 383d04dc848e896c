"""A snapshot of a cluster for the CLI: everything the scheduler reads, fed to a scheduler that is
only queried.
"""

import asyncio
import time
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import NamedTuple

import msgspec
import typer

from holdfast.api.decode import convert, object_name
from holdfast.api.errors import InvalidObject
from holdfast.api.kinds import KindInfo
from holdfast.api.raw_objects import RawObject, raw_object
from holdfast.cli.client import NODE, POD, RESERVATION, Raw, Server
from holdfast.kube.decoding import WATCHED, Watched, read_by_plugins
from holdfast.kube.errors import ApiError
from holdfast.local.setup import SchedulerFactory
from holdfast.scheduler.assembly import declared_kinds
from holdfast.scheduler.cluster.events import Added, Malformed
from holdfast.scheduler.scheduler import Scheduler
from holdfast.scheduler.state.cluster import Cluster

# Taking a snapshot. The scheduler makes no decisions, and nothing is written.


CAPACITY = (NODE, POD, RESERVATION)
"""The kinds that determine the used capacity of nodes."""


@dataclass(slots=True)
class ClusterSnapshot:
    scheduler: Scheduler
    now: float
    objects: dict[tuple[str, str], dict[tuple[str, str], Raw]] = field(default_factory=dict)
    """Raw objects, by (apiVersion, kind) and then (namespace, name)."""

    @property
    def cluster(self) -> Cluster:
        return self.scheduler.cluster

    def all(self, info: KindInfo) -> list[Raw]:
        return list(self.objects.get((info.api_version, info.kind), {}).values())

    def find(self, info: KindInfo, name: str, namespace: str = "") -> Raw | None:
        return self.objects.get((info.api_version, info.kind), {}).get((namespace, name))


async def take_snapshot(
    server: Server, setup: SchedulerFactory | None = None, only: Iterable[KindInfo] | None = None
) -> ClusterSnapshot:
    """Reads all kinds, or some. Kinds that the server does not have or that we may not read are
    skipped; the latter with a warning.
    """
    setup = setup or SchedulerFactory.of()
    wanted = [each for each in WATCHED if only is None or each.info in only]
    if only is None:
        wanted += read_by_plugins(declared_kinds(setup.configuration, setup.registry))
    lists = await asyncio.gather(*(_listed(server, each) for each in wanted))
    now = time.time()
    snapshot = ClusterSnapshot(setup.scheduler(), now)
    for watched, items in zip(wanted, lists, strict=True):
        info = watched.info
        known = snapshot.objects.setdefault((info.api_version, info.kind), {})
        for raw in items:
            metadata = raw["metadata"]
            if not watched.ended and not watched.read_by:
                known[metadata.get("namespace") or "", metadata["name"]] = raw
            snapshot.scheduler.feed(_event(info, raw), now)
    return snapshot


async def _listed(server: Server, watched: Watched) -> list[Raw]:
    try:
        found, _ = await server.listed(watched.info, fields=watched.field_selector)
    except ApiError as error:
        if error.status == 404:
            return []
        if error.status != 403 or watched.info in (NODE, POD):
            raise
        typer.echo(f"warning: skipped, not permitted: {error.message}", err=True)
        return []
    return found


def _event(info: KindInfo, raw: Raw) -> Added | Malformed:
    is_raw = info.type is RawObject
    try:
        if is_raw:
            return Added(raw_object(info, raw))
        try:
            return Added(msgspec.convert(raw, info.type))
        except msgspec.ValidationError:
            return Added(convert(raw, info.type, object_name(raw)))
    except InvalidObject as error:
        metadata = raw["metadata"]
        uid = metadata.get("uid") or ""
        namespace, api_version = metadata.get("namespace") or "", info.api_version if is_raw else ""
        return Malformed(info.kind, namespace, metadata["name"], uid, error, api_version)


class NodeAmounts(NamedTuple):
    """The amounts of one resource on one node, from the ledger."""

    allocatable: int
    requested: int
    """By pods."""
    held: int
    """By reservations, of what their owners have not taken yet."""

    @property
    def free(self) -> int:
        return self.allocatable - self.requested - self.held


def node_amounts(cluster: Cluster, node: str) -> dict[str, NodeAmounts]:
    """By resource name; resources that the node lacks and no pod requests are left out."""
    table = cluster.nodes
    row = table.row(node)
    if row is None:
        return {}
    found = {}
    for slot, name in table.slots.resources():
        held = table.held.item(slot, row)
        requested = table.claimed.item(slot, row) - held
        amount = NodeAmounts(table.allocatable.item(slot, row), requested, held)
        if any(amount):
            found[name] = amount
    return found
