"""The kinds that the scheduler watches, and decoding of list pages and watch events into typed objects.

Custom resources, and kinds that only plugins read (which they declare), may be absent on the server.

The fast path decodes a whole page, or a watch event with its object, in one msgspec call; fields that
scheduling does not read are skipped. Only if that fails are the parts decoded one by one, so that an
invalid object affects only itself.
"""

from collections.abc import Mapping
from functools import cache
from types import GenericAlias
from typing import Any, NamedTuple

import msgspec

from holdfast.api.decode import convert, object_name
from holdfast.api.errors import InvalidObject
from holdfast.api.kinds import KINDS, KindInfo
from holdfast.api.meta import Object
from holdfast.api.names import (
    HOLDFAST_API,
    RESERVATION_API,
    RESOURCE_API,
    SIGS_PODGROUP_API,
    TOPOLOGY_API,
    VOLCANO_API,
    VOLCANO_JOB_API,
    WORKLOAD_API,
)
from holdfast.api.raw_objects import ObjectKind, RawObject, raw_object
from holdfast.kube.client import Status
from holdfast.kube.errors import ApiError
from holdfast.scheduler.cluster.events import Malformed


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
        """The name in logs and metrics; unique among watched kinds."""
        if self.read_by:
            group = f".{self.info.group}" if self.info.group else ""
            return f"{self.info.plural}.{self.info.version}{group}"
        return f"{self.info.resource}/ended" if self.ended else self.info.resource

    @property
    def readers(self) -> str:
        """The plugins that read the kind, for logs; empty if Holdfast itself does."""
        match self.read_by:
            case ():
                return ""
            case (only,):
                return f"plugin {only} reads it"
            case many:
                return f"plugins {' and '.join(many)} read it"

    @property
    def remedy(self) -> str:
        """The remedy if reading the kind is forbidden; empty where Holdfast's own ClusterRole grants
        it."""
        if not self.read_by:
            return ""
        return (
            f"{self.readers}, so the ClusterRole of the scheduler needs a rule with apiGroups "
            f'["{self.info.group}"], resources [{self.info.plural}], verbs [get, list, watch]: see '
            "`holdfast config rbac`, or pluginResources of the chart"
        )


def read_by_plugins(kinds: Mapping[ObjectKind, tuple[str, ...]]) -> tuple[Watched, ...]:
    """The watched kinds for plugins, given which plugin reads which kind."""
    return tuple(
        Watched(kind.info(), optional=True, read_by=plugins) for kind, plugins in kinds.items()
    )


def _kind(api_version: str, kind: str, field_selector: str = "", optional: bool = False) -> Watched:
    return Watched(KINDS[api_version, kind], field_selector, optional)


ENDED_PODS = Watched(
    KINDS["v1", "Pod"], "status.phase!=Pending,status.phase!=Running,status.phase!=Unknown", ended=True
)
"""Finished members of jobs count; a watch of the other pods shows only their deletion."""

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
    _kind(RESOURCE_API, "DeviceClass", optional=True),
    _kind(RESOURCE_API, "ResourceSlice", optional=True),
    _kind(RESOURCE_API, "DeviceTaintRule", optional=True),
    _kind(RESOURCE_API, "ResourceClaim", optional=True),
    _kind(RESOURCE_API, "ResourceClaimTemplate", optional=True),
    _kind(RESERVATION_API, "Device", optional=True),
    _kind(TOPOLOGY_API, "NodeResourceTopology", optional=True),
    _kind(RESERVATION_API, "Reservation", optional=True),
    _kind(RESERVATION_API, "PodMigrationJob", optional=True),
    _kind(HOLDFAST_API, "ReservationSchedule", optional=True),
    _kind("scheduling.k8s.io/v1", "PriorityClass"),
    _kind(VOLCANO_API, "PodGroup", optional=True),
    _kind(SIGS_PODGROUP_API, "PodGroup", optional=True),
    _kind(WORKLOAD_API, "PodGroup", optional=True),
    _kind(VOLCANO_API, "Queue", optional=True),
    _kind(VOLCANO_JOB_API, "Job", optional=True),
)


INITIAL_EVENTS_END = "k8s.io/initial-events-end"


class ListMeta(msgspec.Struct, rename="camel"):
    resource_version: str = ""
    continue_: str = msgspec.field(default="", name="continue")


class Broken(NamedTuple):
    """Stands for an object that does not decode."""

    event: Malformed
    resource_version: str


Found = Object | Broken


class ListPage(NamedTuple):
    items: list[Found]
    resource_version: str
    continue_: str


class Frame(NamedTuple):
    type: str
    object: Found


class _RawPage(msgspec.Struct):
    metadata: ListMeta = msgspec.field(default_factory=ListMeta)
    items: list[msgspec.Raw] | None = None


class _RawFrame(msgspec.Struct):
    type: str
    object: msgspec.Raw


@cache
def _page_decoder(type_: type[Object]) -> msgspec.json.Decoder[Any]:
    fields: list[Any] = [
        ("metadata", ListMeta, msgspec.field(default_factory=ListMeta)),
        ("items", GenericAlias(list, (type_,)) | None, None),
    ]
    return msgspec.json.Decoder(msgspec.defstruct(f"{type_.__name__}Page", fields))


@cache
def _frame_decoder(type_: type[Object]) -> msgspec.json.Decoder[Any]:
    return msgspec.json.Decoder(
        msgspec.defstruct(f"{type_.__name__}Frame", [("type", str), ("object", type_)])
    )


def decode_page(info: KindInfo, data: bytes) -> ListPage:
    """Decodes a page of a list and sets the items' kind, which the wire format omits."""
    items: list[Found]
    if info.type is RawObject:
        return _raw_page(info, data)
    try:
        page = _page_decoder(info.type).decode(data)
        items = page.items or []
    except (msgspec.ValidationError, RecursionError):
        page = msgspec.json.decode(data, type=_RawPage)
        items = [decode_object(info, bytes(raw)) for raw in page.items or ()]
    api_version, kind = info.api_version, info.kind
    for item in items:
        if not isinstance(item, Broken):
            item.api_version = api_version
            item.kind = kind
    return ListPage(items, page.metadata.resource_version, page.metadata.continue_)


def decode_frame(info: KindInfo, line: bytes) -> Frame:
    """Decodes a watch event. Raises ApiError for an ERROR event."""
    try:
        frame = _frame_decoder(info.type).decode(line) if info.type is not RawObject else None
    except (msgspec.ValidationError, RecursionError):
        frame = None
    if frame is not None and frame.type != "ERROR":
        return Frame(frame.type, frame.object)
    raw = msgspec.json.decode(line, type=_RawFrame)
    if raw.type == "ERROR":
        try:
            status = msgspec.json.decode(raw.object, type=Status)
        except msgspec.ValidationError:
            status = Status(message=bytes(raw.object)[:200].decode(errors="replace"))
        after = status.details.retry_after_seconds if status.details is not None else None
        raise ApiError(status.code, status.reason, status.message, after)
    return Frame(raw.type, decode_object(info, bytes(raw.object)))


def _raw_page(info: KindInfo, data: bytes) -> ListPage:
    """A page of a kind whose objects are kept as raw JSON."""
    page = msgspec.json.decode(data, type=_RawPage)
    items = [decode_object(info, bytes(raw)) for raw in page.items or ()]
    return ListPage(items, page.metadata.resource_version, page.metadata.continue_)


def decode_object(info: KindInfo, data: bytes) -> Found:
    is_raw = info.type is RawObject
    api_version = info.api_version if is_raw else ""
    try:
        raw = msgspec.json.decode(data)
    except RecursionError:
        error = InvalidObject("", "", "nested too deeply")
        return Broken(Malformed(info.kind, "", "", "", error, api_version), "")
    raw = raw if isinstance(raw, dict) else {}
    named = {**raw, "kind": info.kind, "apiVersion": info.api_version}
    try:
        return raw_object(info, raw) if is_raw else convert(named, info.type, object_name(named))
    except InvalidObject as error:
        metadata = raw.get("metadata")
        texts = metadata if isinstance(metadata, dict) else {}
        namespace, name, uid, version = (
            str(texts.get(key) or "") for key in ("namespace", "name", "uid", "resourceVersion")
        )
        return Broken(Malformed(info.kind, namespace, name, uid, error, api_version), version)
