"""Writes snapshot files: objects as they come, the header that is known last first."""

import gzip
import os
import tempfile
import zlib
from collections import Counter
from collections.abc import Iterable, Iterator
from io import BytesIO
from pathlib import Path
from typing import BinaryIO

import msgspec

from holdfast.api.plurals import number_of
from holdfast.snapshot.anonymizing import Anonymizer, Renaming
from holdfast.snapshot.cluster_objects import ClusterObjects
from holdfast.snapshot.snapshot_header import LIST_STARTS, Raw, SnapshotHeader

_LEVEL = 6
_ENDS = b"]}\n"


class SnapshotWriter:
    """Compresses objects as they are added. A gzip file may have several members, which are read as one
    text: the header is written when everything is known, before the objects."""

    def __init__(self, *, compress: bool = True) -> None:
        self._compress = compress
        self._kept = BytesIO()
        self._items: BytesIO | gzip.GzipFile = self._kept
        if compress:
            self._items = gzip.GzipFile(fileobj=self._kept, mode="wb", compresslevel=_LEVEL, mtime=0)
        self._encode = msgspec.json.Encoder().encode
        self.counts: Counter[str] = Counter()
        """How many objects of each kind were added."""

    def add(self, objects: Iterable[Raw]) -> None:
        for raw in objects:
            self._items.write(b",\n" + self._encode(raw))
            self.counts[raw["kind"]] += 1

    def summary(self) -> str:
        """`3 nodes, 20 pods, 14 other objects`"""
        nodes, pods = self.counts["Node"], self.counts["Pod"]
        other = self.counts.total() - nodes - pods
        parts = ((nodes, "node"), (pods, "pod"), (other, "other object"))
        return ", ".join(number_of(count, name) for count, name in parts)

    def write(self, file: BinaryIO, header: SnapshotHeader) -> None:
        if self._compress:
            self._items.close()
        file.write(self._member(LIST_STARTS.encode() + self._encode(header.raw())))
        file.write(self._kept.getbuffer())
        file.write(self._member(_ENDS))

    def _member(self, text: bytes) -> bytes:
        return gzip.compress(text, _LEVEL, mtime=0) if self._compress else text

    def save(self, path: Path, header: SnapshotHeader) -> None:
        """Replaces the file as a whole, or leaves it. Raises OSError."""
        handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
        try:
            with os.fdopen(handle, "wb") as file:
                self.write(file, header)
            Path(name).replace(path)
        except BaseException:
            Path(name).unlink(missing_ok=True)
            raise


class AnonymousPages:
    """Keeps objects, compressed, until all words are known; then they can be renamed."""

    def __init__(self) -> None:
        self._renaming = Renaming()
        self._collector = Anonymizer.that_collects(self._renaming)
        self._pages: list[bytes] = []

    def add(self, objects: list[Raw]) -> None:
        for raw in objects:
            self._collector.object(raw)
        self._pages.append(zlib.compress(msgspec.json.encode(objects), 1))

    def renamed(self) -> Iterator[list[Raw]]:
        """Every page, once."""
        self._renaming.freeze()
        renamer = Anonymizer.that_renames(self._renaming)
        while self._pages:
            page = msgspec.json.decode(zlib.decompress(self._pages.pop(0)), type=list[Raw])
            yield [renamer.object(raw) for raw in page]


def write_snapshot(path: Path, objects: ClusterObjects) -> None:
    """Compressed if the name ends with `.gz`. Raises OSError."""
    writer = SnapshotWriter(compress=path.name.endswith(".gz"))
    writer.add(objects.objects)
    writer.save(path, objects.header or SnapshotHeader(time=objects.now))
