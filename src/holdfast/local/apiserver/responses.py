"""Responses: content negotiation, encoded objects, HTTP responses.

A client chooses JSON or YAML, and the object itself, a table of it or its metadata. Responses are never
protobuf: a client that prefers it, as Go clients do, accepts JSON as its second choice.

Each version of an object is encoded once. A revision belongs to one object, so it identifies the bytes
that answer a request, go to watchers and are read by the next client.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

import msgspec
import yaml
from aiohttp import web

from holdfast.local.apiserver.tables.render import partial_metadata, table
from holdfast.local.store import Raw, memory_of
from holdfast.machinery.schema.types import ResourceType, to_version
from holdfast.machinery.status import StatusError
from holdfast.serving.limits import ENCODED_BYTES

JSON = "application/json"
YAML = "application/yaml"
META_GROUP = "meta.k8s.io"
DISCOVERY_GROUP = "apidiscovery.k8s.io"

_KNOWN = "application/json, application/yaml, application/vnd.kubernetes.protobuf"
_STREAMS = "application/json;stream=watch, application/vnd.kubernetes.protobuf;stream=watch"
_META_KINDS = frozenset({"Table", "PartialObjectMetadata", "PartialObjectMetadataList"})
_META_VERSIONS = frozenset({"v1", "v1beta1"})


class Form(NamedTuple):
    """The form of a response; `kind` is empty for the object itself."""

    media: str = JSON
    kind: str = ""
    version: str = ""

    @property
    def table(self) -> bool:
        return self.kind == "Table"

    @property
    def api_version(self) -> str:
        return f"{META_GROUP}/{self.version}"


PLAIN = Form()


class _Choice(NamedTuple):
    media: str
    parameters: dict[str, str]


@lru_cache(maxsize=512)
def object_form(accept: str) -> Form:
    """The form of a response with objects. Raises StatusError 406 if the client accepts none that the
    server has."""
    offered = False
    for choice in _choices(accept):
        media = _media(choice.media)
        if media is None:
            continue
        wanted = choice.parameters.get("as", "")
        if not wanted:
            return Form(media)
        offered = True
        group, version = choice.parameters.get("g", ""), choice.parameters.get("v", "")
        if wanted in _META_KINDS and group == META_GROUP and version in _META_VERSIONS:
            return Form(media, wanted, version)
    if offered:
        raise StatusError(
            406, "NotAcceptable", f"only the following media types are accepted: {_KNOWN}"
        )
    raise not_acceptable()


@lru_cache(maxsize=512)
def media_type(accept: str) -> str:
    """The media type of a response that has only one form. Raises StatusError 406."""
    for choice in _choices(accept):
        media = _media(choice.media)
        if media is not None and "as" not in choice.parameters:
            return media
    raise not_acceptable()


@lru_cache(maxsize=64)
def wants_aggregated_discovery(accept: str) -> bool:
    """Whether the client accepts aggregated discovery: all groups and resources in one document."""
    for choice in _choices(accept):
        if choice.media in (JSON, "application/*", "*/*"):
            wanted = choice.parameters
            if "as" not in wanted:
                return False
            if (wanted["as"], wanted.get("g"), wanted.get("v")) == (
                "APIGroupDiscoveryList",
                DISCOVERY_GROUP,
                "v2",
            ):
                return True
    return False


def not_acceptable() -> StatusError:
    message = f"406: Not Acceptable\n\nAvailable representations: {_KNOWN}, {_STREAMS}"
    return StatusError(406, "NotAcceptable", message, {})


def _media(name: str) -> str | None:
    if name in (JSON, "*/*", "application/*"):
        return JSON
    return YAML if name == YAML else None


def _choices(accept: str) -> list[_Choice]:
    """The accepted media types, preferred ones first."""
    if not accept.strip():
        return [_Choice("*/*", {})]
    weighted = []
    for part in accept.split(","):
        media, *rest = part.split(";")
        parameters = {}
        for each in rest:
            name, _, value = each.partition("=")
            parameters[name.strip().lower()] = value.strip().strip('"')
        weighted.append((_weight(parameters.pop("q", "1")), _Choice(media.strip().lower(), parameters)))
    weighted.sort(key=lambda pair: -pair[0])
    return [choice for weight, choice in weighted if weight > 0]


def _weight(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        return 1.0


_KEPT = 1024
"""Encoded object versions that are kept: the latest, which watchers and readers ask for next."""
_PIECE = 20
"""Objects written as YAML at a time."""
_encode = msgspec.json.Encoder().encode
_Dumper: Any = type(
    "_Dumper",
    (getattr(yaml, "CSafeDumper", yaml.SafeDumper),),
    {"ignore_aliases": lambda dumper, data: True},
)
"""Writes out what two objects share, instead of referring to it."""


class Encoder:
    """Encodes stored objects; keeps the bytes of the latest versions."""

    def __init__(self) -> None:
        self._recent: OrderedDict[tuple[str, str, str], tuple[Raw, bytes]] = OrderedDict()
        self.bytes = 0
        """Memory of the kept entries: the bytes and the objects, which may be older versions."""

    def object(self, type: ResourceType, raw: Raw) -> bytes:
        """JSON of a stored object as its type shows it."""
        revision = raw["metadata"].get("resourceVersion")
        if revision is None:
            return _encode(ordered(type, raw))
        key = (revision, type.group, type.version)
        known = self._recent.get(key)
        # The result of a dry run has the revision of the stored object.
        if known is not None and known[0] is raw:
            return known[1]
        encoded = _encode(ordered(type, raw))
        if known is None:
            self._recent[key] = (raw, encoded)
            self.bytes += _kept_memory(encoded)
            while len(self._recent) > _KEPT or self.bytes > ENCODED_BYTES:
                self.bytes -= _kept_memory(self._recent.popitem(last=False)[1][1])
        return encoded

    def list(
        self, type: ResourceType, objects: Iterable[Raw], metadata: Raw, media: str = JSON
    ) -> bytes:
        """A list of objects. Items of built-in kinds have no kind and apiVersion of their own."""
        about = {"kind": type.list_kind, "apiVersion": type.api_version, "metadata": metadata}
        if media == YAML:
            return _yaml({**about, "items": [_item(type, each) for each in objects]})
        head = _encode(about)
        items = b",".join(_encode(_item(type, each)) for each in objects)
        return head[:-1] + b',"items":[' + items + b"]}"


def _kept_memory(encoded: bytes) -> int:
    return len(encoded) + memory_of(encoded)


def in_form(
    type: ResourceType, raw: Raw, form: Form, now: float, include: str = "", headers: bool = True
) -> Any:
    """One object as a table or as its metadata."""
    raw = to_version(type, raw)
    if form.table:
        metadata = {"resourceVersion": raw["metadata"].get("resourceVersion", "")}
        return table(type, [raw], metadata, now, form.api_version, include, headers)
    return partial_metadata(raw, form.api_version)


def list_in_form(
    type: ResourceType, objects: Sequence[Raw], metadata: Raw, form: Form, now: float, include: str
) -> Raw:
    objects = [to_version(type, each) for each in objects]
    if form.table:
        metadata = {name: value for name, value in metadata.items() if value != ""}
        return table(type, objects, metadata, now, form.api_version, include)
    return {
        "kind": "PartialObjectMetadataList",
        "apiVersion": form.api_version,
        "metadata": metadata,
        "items": [partial_metadata(each, form.api_version) for each in objects],
    }


def to_bytes(document: Any, media: str) -> bytes:
    return _yaml(document) if media == YAML else _encode(document)


def _yaml(document: Any) -> bytes:
    """YAML; a long list is written in pieces, since the library holds the interpreter lock."""
    if not isinstance(document, dict) or not any(_is_long(each) for each in document.values()):
        return _dumped(document)
    parts = []
    for name in sorted(document):
        value = document[name]
        if _is_long(value):
            parts.append(f"{name}:\n".encode())
            parts += [_dumped(value[at : at + _PIECE]) for at in range(0, len(value), _PIECE)]
        else:
            parts.append(_dumped({name: value}))
    return b"".join(parts)


def _is_long(value: Any) -> bool:
    return isinstance(value, list) and len(value) > _PIECE


def _dumped(document: Any) -> bytes:
    text: str = yaml.dump(document, Dumper=_Dumper, sort_keys=True, allow_unicode=True)
    return text.encode()


def as_media(encoded: bytes, media: str) -> bytes:
    """An object encoded as JSON, in the media type wanted."""
    return to_bytes(msgspec.json.decode(encoded), media) if media == YAML else encoded


def ordered(type: ResourceType, raw: Raw) -> Raw:
    """The object with kind and apiVersion first, as Kubernetes writes it."""
    return {"kind": type.kind, "apiVersion": type.api_version, **_item(type, raw, always=False)}


def _item(type: ResourceType, raw: Raw, always: bool = True) -> Raw:
    raw = to_version(type, raw)
    if not type.builtin and always:
        return raw
    return {name: value for name, value in raw.items() if name not in ("kind", "apiVersion")}


_ALL_WARNINGS = 4 * 1024
_ONE_WARNING = 256
_MOST_WARNINGS = 64
"""Python's HTTP client, among others, refuses responses with more than 100 headers."""
_PLAIN = "text/plain; charset=utf-8"


def answer(body: bytes, code: int = 200, media: str = JSON) -> web.Response:
    return web.Response(body=body, status=code, headers={"Content-Type": media})


def add_warnings(response: web.StreamResponse, warnings: Iterable[str]) -> None:
    """Adds the warnings to a response of which nothing is sent yet."""
    for each in _fitting(warnings):
        response.headers.add("Warning", f'299 - "{_escaped(each)}"')


def _fitting(warnings: Iterable[str]) -> Iterator[str]:
    """The warnings within the API server's limits: all in full, or as many as fit, each truncated."""
    warnings = list(warnings)
    if sum(map(len, warnings)) > _ALL_WARNINGS:
        warnings = [*dict.fromkeys(each[:_ONE_WARNING] for each in warnings)]
    written = 0
    for each in warnings[:_MOST_WARNINGS]:
        written += len(each)
        if written > _ALL_WARNINGS:
            return
        yield each


def document(value: Any, code: int = 200, media: str = JSON) -> web.Response:
    return answer(to_bytes(value, media), code, media)


def failure(error: StatusError, accept: str) -> web.Response:
    try:
        media = media_type(accept)
    except StatusError:
        media = JSON
    response = answer(to_bytes(error.status(), media), error.code, media)
    response.headers.update(error.headers)
    return response


def page_not_found() -> web.Response:
    """The response to a path that the API does not have."""
    return text("404 page not found\n", 404)


def text(said: str, code: int = 200) -> web.Response:
    return answer(said.encode(), code, _PLAIN)


def _escaped(text: str) -> str:
    """The text as a quoted string of HTTP, without characters that a header cannot hold."""
    printable = "".join(each if each.isprintable() else " " for each in text)
    return printable.replace("\\", "\\\\").replace('"', '\\"')
