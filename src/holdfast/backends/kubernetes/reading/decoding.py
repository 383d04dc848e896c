"""From the server's bytes to typed objects.

The fast way is one call into msgspec for a whole page, or for a watch event with its object; what
scheduling does not read is skipped without being built. Only where that fails are the parts looked at
one by one, so that an object that makes no sense spoils nothing but itself.
"""

from functools import cache
from types import GenericAlias
from typing import Any, NamedTuple

import msgspec

from holdfast.api.decode import convert, object_name
from holdfast.api.errors import InvalidObject
from holdfast.api.kinds import KindInfo
from holdfast.api.meta import Object
from holdfast.api.raw_objects import RawObject, raw_object
from holdfast.backends.kubernetes.errors import ApiError
from holdfast.backends.kubernetes.http.client import Status
from holdfast.core.events import Malformed

INITIAL_EVENTS_END = "k8s.io/initial-events-end"


class ListMeta(msgspec.Struct, rename="camel"):
    resource_version: str = ""
    continue_: str = msgspec.field(default="", name="continue")


class Broken(NamedTuple):
    """Stands for an object that does not decode."""

    event: Malformed
    resource_version: str


Found = Object | Broken


class Page(NamedTuple):
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


def decode_page(info: KindInfo, data: bytes) -> Page:
    """A page of a list. Items do not say their kind on the wire; here they do."""
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
    return Page(items, page.metadata.resource_version, page.metadata.continue_)


def decode_frame(info: KindInfo, line: bytes) -> Frame:
    """An event of a watch. Raises ApiError if it is the server's word that the watch is over."""
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


def _raw_page(info: KindInfo, data: bytes) -> Page:
    """Of a kind whose objects are kept as they are."""
    page = msgspec.json.decode(data, type=_RawPage)
    items = [decode_object(info, bytes(raw)) for raw in page.items or ()]
    return Page(items, page.metadata.resource_version, page.metadata.continue_)


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
