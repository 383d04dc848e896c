"""Objects to bytes, each version of an object once.

A revision belongs to one object only, so it names the bytes of a version: what answers a request, goes
to watchers and is read again by the next client is encoded by whoever comes first.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import msgspec
import yaml
from aiohttp import web
from multidict import CIMultiDict

from holdfast.local.apiserver.negotiation import JSON, YAML, Form, media_type
from holdfast.local.apiserver.tables.render import partial_metadata, table
from holdfast.local.store import Raw, memory_of
from holdfast.machinery.schema.types import ResourceType
from holdfast.machinery.schema.versions import shown
from holdfast.machinery.status import StatusError
from holdfast.serving.limits import ENCODED_BYTES

_KEPT = 1024
"""Versions of objects: those that were written last, which watchers and readers ask for next."""
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
    def __init__(self) -> None:
        self._recent: OrderedDict[tuple[str, str, str], tuple[Raw, bytes]] = OrderedDict()
        self.bytes = 0
        """What is kept takes, with the objects, which may be older versions."""

    def object(self, type: ResourceType, raw: Raw) -> bytes:
        """JSON of a stored object as its type shows it."""
        revision = raw["metadata"].get("resourceVersion")
        if revision is None:
            return _encode(ordered(type, raw))
        key = (revision, type.group, type.version)
        known = self._recent.get(key)
        # What a dry run makes has the revision of what it was made from.
        if known is not None and known[0] is raw:
            return known[1]
        encoded = _encode(ordered(type, raw))
        if known is None:
            self._recent[key] = (raw, encoded)
            self.bytes += _taken(encoded)
            while len(self._recent) > _KEPT or self.bytes > ENCODED_BYTES:
                self.bytes -= _taken(self._recent.popitem(last=False)[1][1])
        return encoded

    def list(
        self, type: ResourceType, objects: Iterable[Raw], metadata: Raw, media: str = JSON
    ) -> bytes:
        """Items of built-in kinds do not say what they are: the list does."""
        about = {"kind": type.list_kind, "apiVersion": type.api_version, "metadata": metadata}
        if media == YAML:
            return _yaml({**about, "items": [_item(type, each) for each in objects]})
        head = _encode(about)
        items = b",".join(_encode(_item(type, each)) for each in objects)
        return head[:-1] + b',"items":[' + items + b"]}"


def _taken(encoded: bytes) -> int:
    return len(encoded) + memory_of(encoded)


def in_form(
    type: ResourceType, raw: Raw, form: Form, now: float, include: str = "", headers: bool = True
) -> Any:
    """One object as a table or as its metadata."""
    raw = shown(type, raw)
    if form.table:
        metadata = {"resourceVersion": raw["metadata"].get("resourceVersion", "")}
        return table(type, [raw], metadata, now, form.api_version, include, headers)
    return partial_metadata(raw, form.api_version)


def list_in_form(
    type: ResourceType, objects: Sequence[Raw], metadata: Raw, form: Form, now: float, include: str
) -> Raw:
    objects = [shown(type, each) for each in objects]
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
    """A long list in pieces: the library lets no other thread run while it writes one."""
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
    """JSON that is already there, in the media type wanted."""
    return to_bytes(msgspec.json.decode(encoded), media) if media == YAML else encoded


def ordered(type: ResourceType, raw: Raw) -> Raw:
    """What it is comes first, as Kubernetes writes it."""
    return {"kind": type.kind, "apiVersion": type.api_version, **_item(type, raw, always=False)}


def _item(type: ResourceType, raw: Raw, always: bool = True) -> Raw:
    raw = shown(type, raw)
    if not type.builtin and always:
        return raw
    return {name: value for name, value in raw.items() if name not in ("kind", "apiVersion")}


# Answers as HTTP responses.


_ALL_WARNINGS = 4 * 1024
_ONE_WARNING = 256
_MOST_WARNINGS = 64
"""Python's HTTP client, among others, refuses an answer of more than a hundred headers."""
_PLAIN = "text/plain; charset=utf-8"


def answer(
    body: bytes, code: int = 200, media: str = JSON, warnings: Iterable[str] = ()
) -> web.Response:
    headers: CIMultiDict[str] = CIMultiDict()
    headers["Content-Type"] = media
    for each in _fitting(warnings):
        headers.add("Warning", f'299 - "{_escaped(each)}"')
    return web.Response(body=body, status=code, headers=headers)


def _fitting(warnings: Iterable[str]) -> Iterator[str]:
    """As the API server bounds them: all in full, or as many as fit, each cut short."""
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


def failure(error: StatusError, accept: str, warnings: Iterable[str] = ()) -> web.Response:
    try:
        media = media_type(accept)
    except StatusError:
        media = JSON
    response = answer(to_bytes(error.status(), media), error.code, media, warnings)
    response.headers.update(error.headers)
    return response


def page_not_found() -> web.Response:
    """Of a path that has never been one."""
    return text("404 page not found\n", 404)


def text(said: str, code: int = 200) -> web.Response:
    return answer(said.encode(), code, _PLAIN)


def _escaped(text: str) -> str:
    """As a quoted string of HTTP; what a header cannot hold is left out."""
    printable = "".join(each if each.isprintable() else " " for each in text)
    return printable.replace("\\", "\\\\").replace('"', '\\"')
