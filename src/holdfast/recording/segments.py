"""The files of a recording.

A recording is a folder of segments, `000001.jsonl.gz` and so on. Each line of a segment is a JSON
object with the time `t` in seconds since the epoch and a `type`:

    SEGMENT     the first line: the version of the format
    STATE       an object that existed when the segment began
    COMPLETE    all of the state was written
    ADDED, MODIFIED, DELETED    a change of an object; of a deleted one only its identity
    GAP         changes between `since` and `t` may be missing; `kind` names the kind, or all if empty
    END         the recorder stopped in an orderly way

Since every segment begins with the whole state, the oldest can be deleted, and one that is damaged
costs only itself. A segment is flushed every few seconds; its end may be torn after a crash, and a
reader takes the lines that are whole.
"""

from __future__ import annotations

import fcntl
import os
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from holdfast.api.errors import HoldfastError

Raw = dict[str, Any]

FORMAT = 1
SUFFIX = ".jsonl.gz"
SEGMENT, STATE, COMPLETE, GAP, END = "SEGMENT", "STATE", "COMPLETE", "GAP", "END"
ADDED, MODIFIED, DELETED = "ADDED", "MODIFIED", "DELETED"
_CHANGES = (ADDED, MODIFIED, DELETED)
_GZIP = 31
_LEVEL = 6
_CHUNK = 1 << 20
_LARGEST_SEGMENT = 64 << 20
_SEGMENTS = 4
"""A recording of the largest size has at least so many segments."""
_LOCK = ".lock"


class RecordingError(HoldfastError):
    """A recording that cannot be read or written."""


class RecordedLine(msgspec.Struct, omit_defaults=True):
    t: float
    type: str
    object: Raw | None = None
    since: float | None = None
    kind: str = ""
    format: int = 0


_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(RecordedLine).decode


def is_recording(folder: Path) -> bool:
    return folder.is_dir() and any(folder.glob(f"*{SUFFIX}"))


def segment_files(folder: Path) -> list[Path]:
    """In order."""
    return sorted(each for each in folder.glob(f"*{SUFFIX}") if each.name.split(".")[0].isdigit())


# Writing


class SegmentWriter:
    """Writes one recording, for the eyes of its user only, as snapshots are. Raises RecordingError if
    another process writes it, and OSError."""

    def __init__(self, folder: Path, max_size: int) -> None:
        self._folder = folder
        self._max_size = max_size
        self._limit = min(_LARGEST_SEGMENT, max_size // _SEGMENTS)
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._lock = os.open(folder / _LOCK, os.O_CREAT | os.O_RDWR, 0o600)
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            os.close(self._lock)
            raise RecordingError(f"{folder}: another process records there") from None
        self._number = max((int(each.name.split(".")[0]) for each in segment_files(folder)), default=0)
        self._file: Any = None
        self._compress: Any = None
        self.size = 0
        """Bytes of the current segment that are written."""
        self.dropped = 0
        """How many old segments were deleted to stay within the size."""

    @property
    def is_full(self) -> bool:
        """Whether the next line belongs into a new segment."""
        return self._file is None or self.size >= self._limit

    def begin(self, t: float, state: Iterator[bytes]) -> None:
        """Begins a segment with the objects that exist. Raises RecordingError if they alone are too
        large."""
        self._finish()
        self._delete_oldest()
        self._number += 1
        path = self._folder / f"{self._number:06}{SUFFIX}"
        self._file = os.fdopen(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600), "wb")
        self._compress = zlib.compressobj(_LEVEL, zlib.DEFLATED, _GZIP)
        self.size = 0
        self.write(RecordedLine(t, SEGMENT, format=FORMAT))
        prefix = b'{"t":' + _encode(t) + b',"type":"STATE","object":'
        for encoded in state:
            self._put(prefix + encoded + b"}\n")
        self.write(RecordedLine(t, COMPLETE))
        self.sync()
        if self.size > self._limit:
            mebi = self.size / 2**20
            raise RecordingError(
                f"the state of the cluster takes {mebi:.1f} MiB: --max-size must be at least "
                f"{_SEGMENTS} times as much"
            )

    def write(self, line: RecordedLine) -> None:
        self._put(_encode(line) + b"\n")

    def write_change(self, t: float, type_: str, encoded: bytes) -> None:
        """A change of an object that is encoded."""
        head = b'{"t":' + _encode(t) + b',"type":"' + type_.encode() + b'","object":'
        self._put(head + encoded + b"}\n")

    def sync(self) -> None:
        """Puts on disk what was written so far."""
        if self._file is not None:
            self._out(self._compress.flush(zlib.Z_SYNC_FLUSH))
            self._file.flush()
            os.fsync(self._file.fileno())

    def close(self) -> None:
        """Once or several times."""
        self._finish()
        if self._lock >= 0:
            os.close(self._lock)
            self._lock = -1

    def total(self) -> int:
        """Bytes of all segments."""
        return sum(each.stat().st_size for each in segment_files(self._folder))

    def _put(self, line: bytes) -> None:
        self._out(self._compress.compress(line))

    def _out(self, data: bytes) -> None:
        if data:
            self._file.write(data)
            self.size += len(data)

    def _finish(self) -> None:
        if self._file is not None:
            self._out(self._compress.flush(zlib.Z_FINISH))
            self._file.flush()
            os.fsync(self._file.fileno())
            self._file.close()
            self._file = None

    def _delete_oldest(self) -> None:
        """Deletes the oldest segments, so that the next one fits."""
        files = segment_files(self._folder)
        total = sum(each.stat().st_size for each in files)
        for path in files:
            if total + self._limit <= self._max_size:
                return
            total -= path.stat().st_size
            path.unlink()
            self.dropped += 1


# Reading


class RecordedChange(NamedTuple):
    t: float
    type: str
    """ADDED, MODIFIED or DELETED; GAP."""
    raw: Raw
    since: float = 0.0
    """Of a GAP."""


class Recording:
    """Reads a recording: the state at its beginning, and all changes since, whatever segments they are
    in. Raises RecordingError if there is none."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.files = segment_files(folder)
        if not self.files:
            raise RecordingError(f"{folder}: no recording: no file *{SUFFIX}")
        self.notes: list[str] = []
        """What is missing, after all changes were read."""
        self.begin = 0.0
        self.end = 0.0
        self.gaps: list[tuple[float, float, str]] = []
        """From, to, and the kind; empty for all."""

    def changes(self) -> Iterator[RecordedChange]:
        """In order. What exists at the beginning is ADDED then."""
        self.notes.clear()
        self.gaps.clear()
        self.begin = self.end = 0.0
        known: dict[tuple[str, str, str, str], tuple[str, Raw]] = {}
        usable = 0
        for path in self.files:
            state: dict[tuple[str, str, str, str], Raw] | None = {}
            for line in self._lines(path):
                if line.type == SEGMENT:
                    if line.format > FORMAT:
                        raise RecordingError(f"{path}: of a later version of Holdfast")
                    continue
                if line.type == STATE and line.object is not None and state is not None:
                    state[_identity(line.object)] = line.object
                    continue
                if line.type == COMPLETE and state is not None:
                    usable += 1
                    yield from self._state(line.t, state, known, first=usable == 1)
                    state = None
                elif state is not None:
                    continue  # the state was torn, and changes of it mean nothing
                self.end = max(self.end, line.t)
                if line.type == GAP:
                    self._gap(line.since or line.t, line.t, line.kind)
                elif line.type in _CHANGES and line.object is not None:
                    yield from _changed(line, known)
            if state is not None:
                self.notes.append(f"{path.name}: its beginning is incomplete; skipped")
        if not usable:
            raise RecordingError(f"{self.folder}: no segment is complete")

    def _state(
        self,
        t: float,
        state: dict[tuple[str, str, str, str], Raw],
        known: dict[tuple[str, str, str, str], tuple[str, Raw]],
        first: bool,
    ) -> Iterator[RecordedChange]:
        """What differs from what is known, which is nothing unless segments are missing in between."""
        if first:
            self.begin = self.end = t
        different = 0
        for identity, (_, raw) in list(known.items()):
            if identity not in state:
                different += 1
                del known[identity]
                yield RecordedChange(t, DELETED, raw)
        for identity, raw in state.items():
            uid = _uid(raw)
            before = known.get(identity)
            if before is not None and before[1] == raw:
                continue
            different += not first
            if before is not None and before[0] != uid:
                yield RecordedChange(t, DELETED, before[1])
                before = None
            known[identity] = uid, raw
            yield RecordedChange(t, MODIFIED if before is not None else ADDED, raw)
        if different and not first:
            self._gap(self.end, t, "")

    def _gap(self, since: float, t: float, kind: str) -> None:
        self.gaps.append((since, t, kind))

    def _lines(self, path: Path) -> Iterator[RecordedLine]:
        """The lines of a segment up to where it is torn."""
        unzip = zlib.decompressobj(_GZIP)
        rest = b""
        with path.open("rb") as file:
            while chunk := file.read(_CHUNK):
                try:
                    data = unzip.decompress(chunk)
                except zlib.error as error:
                    self.notes.append(f"{path.name}: damaged ({error}); read up to there")
                    return
                *lines, rest = (rest + data).split(b"\n")
                for line in lines:
                    try:
                        yield _decode(line)
                    except msgspec.DecodeError as error:
                        self.notes.append(f"{path.name}: a line is damaged ({error}); skipped")
        if rest:
            self.notes.append(f"{path.name}: its last line is torn; skipped")


def _changed(
    line: RecordedLine, known: dict[tuple[str, str, str, str], tuple[str, Raw]]
) -> Iterator[RecordedChange]:
    raw = line.object
    assert raw is not None
    identity, uid = _identity(raw), _uid(raw)
    before = known.get(identity)
    if line.type == DELETED:
        if before is not None and before[0] in ("", uid):
            del known[identity]
            yield RecordedChange(line.t, DELETED, before[1])
        return
    if before is not None and before[0] != uid:
        yield RecordedChange(line.t, DELETED, before[1])  # recreated under the same name
        before = None
    known[identity] = uid, raw
    yield RecordedChange(line.t, MODIFIED if before is not None else ADDED, raw)


def _identity(raw: Raw) -> tuple[str, str, str, str]:
    metadata = raw["metadata"]
    return raw["apiVersion"], raw["kind"], metadata.get("namespace") or "", metadata["name"]


def _uid(raw: Raw) -> str:
    return str(raw["metadata"].get("uid") or "")
