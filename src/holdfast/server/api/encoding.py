"""Objects to bytes, each version of an object once.

A revision belongs to one object only, so it names the bytes of a version: what answers a request, goes
to watchers and is read again by the next client is encoded by whoever comes first.
"""

from collections import OrderedDict
from collections.abc import Iterable, Sequence
from typing import Any

import msgspec
import yaml

from holdfast.server.api.negotiate import JSON, YAML, Form
from holdfast.server.api.tables.render import partial_metadata, table
from holdfast.server.api.views import shown
from holdfast.server.limits import ENCODED_BYTES
from holdfast.server.schema.types import ResourceType
from holdfast.store import Raw, memory_of

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
