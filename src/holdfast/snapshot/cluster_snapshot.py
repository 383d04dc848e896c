"""The objects of a cluster and a scheduler that was fed them and is only asked. Nothing is written."""

from collections.abc import Callable, Hashable, Iterable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import msgspec
import numpy as np

from holdfast.api.decode import convert, object_name
from holdfast.api.errors import InvalidObject
from holdfast.api.kinds import KINDS, KindInfo
from holdfast.api.names import GPU_SHARED, RESERVATION_API, RESOURCE_API
from holdfast.api.quantity import shown as shown
from holdfast.api.raw_objects import RawObject, raw_object
from holdfast.api.resources import is_extended
from holdfast.kube.decoding import Watched
from holdfast.kube.object_client import Raw
from holdfast.scheduler.cluster.events import Added, Malformed
from holdfast.scheduler.cluster.limit_sums import UNLIMITED
from holdfast.scheduler.cluster.records import PodRecord, ReservationInfo
from holdfast.scheduler.cluster.slots import PODS, Amounts
from holdfast.scheduler.managers.claims.device_counts import DeviceCounts, devices_resource
from holdfast.scheduler.managers.devices.device_amounts import GPU_PARTS, device_amounts, left_on
from holdfast.scheduler.managers.devices.requests import TYPE_OF
from holdfast.scheduler.reservations.reservation_status import SUCCEEDED
from holdfast.scheduler.scheduler import Scheduler
from holdfast.scheduler.state.cluster import Cluster

NODE = KINDS["v1", "Node"]
POD = KINDS["v1", "Pod"]
RESERVATION = KINDS[RESERVATION_API, "Reservation"]
RESOURCE_SLICE = KINDS[RESOURCE_API, "ResourceSlice"]
RESOURCE_CLAIM = KINDS[RESOURCE_API, "ResourceClaim"]
DEVICE = KINDS[RESERVATION_API, "Device"]

CAPACITY = (NODE, POD, RESERVATION, DEVICE, RESOURCE_SLICE, RESOURCE_CLAIM)
"""The kinds that determine the used capacity of nodes."""


class ForecastStart(NamedTuple):
    """When an object starts if nothing is changed."""

    time: float | None
    """None if it does not."""
    node: str = ""
    ended: tuple[tuple[KindInfo, str, str], ...] = ()
    """The pods and reservations that are gone from its node by then, the latest first: kind, name and
    namespace."""
    pods_before: int = 0
    """How many other pending pods start before it."""
    is_exact: bool = True
    is_held_for: bool = False
    """Whether it starts because the scheduler makes a starvation hold for it."""


StartForecast = Callable[[KindInfo, str, str], ForecastStart | None]
"""Called with the kind, the name and the namespace of a pending object. None if nothing is known."""


SnapshotObjects = dict[tuple[str, str], dict[tuple[str, str], Raw]]
"""Raw objects, by (apiVersion, kind) and then (namespace, name)."""


@dataclass(slots=True)
class ClusterSnapshot:
    scheduler: Scheduler
    now: float
    objects: SnapshotObjects = field(default_factory=dict)
    ended_pods: dict[tuple[str, str], Raw] = field(default_factory=dict)
    """By (namespace, name)."""
    warnings: list[str] = field(default_factory=list)
    """What could not be read."""
    unknown_configuration: str = ""
    """Why the scheduler here has the default configuration and not that of the cluster's, if so."""
    is_hypothetical: bool = False
    """Whether the pods that are explained are yet to be created, so that none has to be replaced."""
    forecast: StartForecast | None = None
    """Plays the scheduler forward from the objects as they are."""
    before: SnapshotObjects = field(default_factory=dict)
    """Of a hypothetical cluster, its objects before manifests were applied."""
    plugin_objects: list[Raw] = field(default_factory=list)
    """Objects of kinds that only plugins read."""
    unwatched: list[Raw] = field(default_factory=list)
    """Objects of kinds that schedulers do not read: what creates pods, and what that depends on."""
    memo: dict[Hashable, Any] = field(default_factory=dict)
    """Answers about the objects as they are at the moment: while changes of them are tried there is
    another one."""

    @property
    def cluster(self) -> Cluster:
        return self.scheduler.cluster

    def all(self, info: KindInfo) -> list[Raw]:
        return list(self.objects.get((info.api_version, info.kind), {}).values())

    def find(self, info: KindInfo, name: str, namespace: str = "") -> Raw | None:
        return self.objects.get((info.api_version, info.kind), {}).get((namespace, name))

    def add(self, watched: Watched, items: Iterable[Raw]) -> None:
        """Feeds the objects of one kind to the scheduler. Nodes come before pods."""
        info = watched.info
        known = self.objects.setdefault((info.api_version, info.kind), {})
        if watched.ended:
            known = self.ended_pods
        for raw in items:
            metadata = raw["metadata"]
            if watched.read_by:
                self.plugin_objects.append(raw)
            else:
                known[metadata.get("namespace") or "", metadata["name"]] = raw
            self.scheduler.feed(event_of(info, raw), self.now)


def reserved_by_name(
    cluster: Cluster, reserved: Amounts, amounts: Amounts | None = None
) -> dict[str, int]:
    """What a reservation holds, or other amounts of the same resources, by name. The pod slot that
    every reservation has is left out, unless it holds nothing else."""
    slots, others = cluster.nodes.slots, any(reserved[slot] for slot in reserved if slot != PODS)
    named = [slot for slot in reserved if slot != PODS or reserved[slot] > 1 or not others]
    of = reserved if amounts is None else amounts
    return {name: of.get(slot, 0) for slot in sorted(named) if (name := slots.name(slot))}


def unknown_configuration(why: str) -> str:
    """`the configuration of the scheduler is not known (…), and the default one is assumed: …`"""
    return (
        f"the configuration of the scheduler is not known ({why}), and the default one is assumed: if "
        "it has another one, pass it with --config"
    )


def unknown_bounds(snapshot: ClusterSnapshot) -> str:
    """That figures of limits lack the bounds of the scheduler's configuration; empty if they do not."""
    if not snapshot.unknown_configuration:
        return ""
    return (
        "bounds of limits are those of annotations; whether the configuration of the scheduler has "
        f"others is not known ({snapshot.unknown_configuration})"
    )


def event_of(info: KindInfo, raw: Raw) -> Added | Malformed:
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
    """The amounts of one resource on one node, from the ledger; of devices, from their table."""

    allocatable: int
    requested: int
    """By pods."""
    held: int
    """By reservations, of what their owners have not taken yet."""

    @property
    def free(self) -> int:
        """Nothing where reservations that wait claim more than there is."""
        return max(0, self.allocatable - self.requested - self.held)


def node_amounts(cluster: Cluster, node: str) -> dict[str, NodeAmounts]:
    """By resource name; resources that the node lacks and no pod requests are left out. Of a node with
    a Device object, parts of GPUs are left out unless some pod or reservation requests them by that
    name."""
    table = cluster.nodes
    row = table.row(node)
    if row is None:
        return {}
    found = {}
    for slot, name in table.slots.resources():
        held = table.held.item(slot, row)
        requested = table.claimed.item(slot, row) - held
        amount = NodeAmounts(table.allocatable.item(slot, row), requested, held)
        if amount.allocatable and _has_devices(cluster, name, row):
            if name in GPU_PARTS and not table.claimed[slot].any():
                continue
            amount = _of_devices(cluster, name, row)
        if any(amount):
            found[name] = amount
    return found


def limited_resources(cluster: Cluster, node: str) -> set[str]:
    """The resources of which the sum of limits on a node is of interest: some node bounds it, or some
    pod or reservation in the cluster states a limit that may differ from what it requests; limits of
    extended resources do not. LimitAware counts pods and reservations without a limit by their
    requests, so these resources have a sum on every node."""
    if cluster.nodes.row(node) is None:
        return set()
    classes = {cls.id: cls for cls in cluster.classes if cls.placed}
    classes |= {entry.pod.cls.id: entry.pod.cls for entry in cluster.ledger.reservations}
    specs = [cls.pod.spec for cls in classes.values()]
    parts = [each.resources for spec in specs for each in (*spec.containers, *spec.init_containers)]
    parts += [spec.resources for spec in specs if spec.resources is not None]
    stated = {name for each in parts for name in each.limits if not is_extended(name)}
    bounded = {name for name in cluster.classes.counted if _is_bounded(cluster, name)}
    return stated | bounded


def _is_bounded(cluster: Cluster, resource: str) -> bool:
    return any(column(resource) is not None for column in cluster.limits.columns)


def allowed_limit(cluster: Cluster, node: str, resource: str) -> float | None:
    """The ratio to allocatable that the sum of limits of a resource may have on a node, if it is
    bounded."""
    row, slot = cluster.nodes.row(node), cluster.nodes.slot(resource)
    if row is None:
        return None
    most = min((ceiling(resource, row) for ceiling in cluster.limits.ceilings), default=UNLIMITED)
    allocatable = cluster.nodes.allocatable.item(slot, row)
    return most / allocatable if most < UNLIMITED and allocatable else None


def used_reservation(cluster: Cluster, pod: PodRecord) -> ReservationInfo | None:
    """The reservation that counts the pod among its owners. One to allocate once has succeeded with its
    pod; one that has expired counts none."""
    found = cluster.reservations.known.get(pod.reservation_uid)
    return found if found is not None and found.finished in ("", SUCCEEDED) else None


def claimed_devices(cluster: Cluster) -> dict[str, dict[str, NodeAmounts]]:
    """By node, the devices of DRA drivers: published, allocated to claims of pods, and held by
    reservations. They are listed like resources, as `gpu.example.com/devices`."""
    table = cluster.nodes
    found: dict[str, dict[str, NodeAmounts]] = {}
    for driver, devices in DeviceCounts(cluster.claims).by_driver(table.size).items():
        for row in np.flatnonzero(devices.published).tolist():
            amounts = (devices.published, devices.in_use, devices.reserved)
            of = NodeAmounts(*(each.item(row) for each in amounts))
            found.setdefault(table.name(row), {})[devices_resource(driver)] = of
    return found


def _has_devices(cluster: Cluster, name: str, row: int) -> bool:
    table = cluster.managers.devices.tables.get(TYPE_OF.get(name, ""))
    return table is not None and bool(table.known[row].any())


def _of_devices(cluster: Cluster, name: str, row: int) -> NodeAmounts:
    if name == GPU_SHARED:
        return NodeAmounts(0, 0, 0)  # how a request is divided, and no amount
    table = cluster.managers.devices.tables[TYPE_OF[name]]
    rows = slice(row, row + 1)
    left = left_on(rows, table, cluster.ledger.reservations.on(row))
    of = device_amounts(table, name, rows, left, np.zeros_like(left))
    return NodeAmounts(of.total.item(), of.requested.item(), of.reserved.item())
