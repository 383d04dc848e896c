"""Records a cluster: lists and watches what scheduling reads, and writes what changes.

Only GET requests are sent. Changes of what is not recorded, such as the heartbeats of nodes and the
messages of pods that wait, are no changes. When a watch expires or is lost, the kind is listed again;
what differs is recorded, and a gap, since changes in between may be missing.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec

from holdfast.api.kinds import KindInfo
from holdfast.kube.object_client import Server
from holdfast.kube.object_watch import DELETED, LISTED, WatchedChange, WatchScope, changes
from holdfast.recording.segments import ADDED, END, GAP, MODIFIED, RecordedLine, SegmentWriter
from holdfast.snapshot.cluster_snapshot import NODE, POD
from holdfast.snapshot.reader import SNAPSHOT_KINDS
from holdfast.snapshot.stripping import Stripper

Raw = dict[str, Any]
_Identity = tuple[str, str, str, str]

_SYNC = 5.0
"""Seconds after which what was written is put on disk."""
_UNREAD_IN_CONDITIONS = {
    "Node": frozenset({"lastHeartbeatTime"}),
    "Pod": frozenset({"lastProbeTime", "message"}),
}
"""What changes in conditions all the time: of a waiting pod, how many nodes it does not fit."""
_UNREAD_METADATA = ("resourceVersion", "managedFields")

RecordingProgress = Callable[["RecordedFigures"], None]
"""Called every few seconds."""


@dataclass(slots=True)
class RecordedFigures:
    """What was recorded so far."""

    objects: Counter[str] = field(default_factory=Counter)
    """How many objects there are, by kind."""
    changes: int = 0
    gaps: int = 0
    size: int = 0
    """Bytes of all segments."""
    dropped: int = 0
    """Old segments that were deleted to stay within the size."""
    began: float = 0.0


class RecordedState:
    """The objects as they were last recorded, and the writer. Pure but for the writer."""

    def __init__(self, writer: SegmentWriter, stripper: Stripper) -> None:
        self._writer = writer
        self._stripper = stripper
        self._known: dict[_Identity, tuple[str, bytes]] = {}
        """To uid and what was written."""
        self._encode = msgspec.json.Encoder(order="deterministic").encode
        self.figures = RecordedFigures()

    def put(self, t: float, raw: Raw) -> None:
        """The object is like this now."""
        stripped = compact(self._stripper.strip(raw))
        encoded = self._encode(stripped)
        identity, uid = _identity(raw), str(raw["metadata"].get("uid") or "")
        before = self._known.get(identity)
        if before is not None and before[1] == encoded:
            return
        is_new = before is None or before[0] != uid
        if before is None:
            self.figures.objects[raw["kind"]] += 1
        self._known[identity] = uid, encoded
        self._write(t, ADDED if is_new else MODIFIED, encoded)

    def drop(self, t: float, raw: Raw) -> None:
        """The object is gone."""
        identity, uid = _identity(raw), str(raw["metadata"].get("uid") or "")
        before = self._known.get(identity)
        if before is None or before[0] != uid:
            return
        del self._known[identity]
        self.figures.objects[raw["kind"]] -= 1
        self._write(t, DELETED, self._encode(identity_only(raw)))

    def lost(self, t: float, since: float, kind: str) -> None:
        """Changes of the kind may be missing."""
        self.figures.gaps += 1
        self._writer.write(RecordedLine(t, GAP, since=since, kind=kind))

    def end(self, t: float) -> None:
        self._writer.write(RecordedLine(t, END))

    def sync(self) -> None:
        self._writer.sync()
        self.figures.size = self._writer.total()
        self.figures.dropped = self._writer.dropped

    def begin(self, t: float) -> None:
        """Begins a segment with all objects."""
        self._writer.begin(t, (encoded for _, encoded in self._known.values()))

    def note(self, raw: Raw, *, exists: bool) -> None:
        """Whether the object belongs to the state with which the recording begins."""
        identity = _identity(raw)
        was_known = self._known.pop(identity, None) is not None
        self.figures.objects[raw["kind"]] += exists - was_known
        if exists:
            encoded = self._encode(compact(self._stripper.strip(raw)))
            self._known[identity] = str(raw["metadata"].get("uid") or ""), encoded

    def _write(self, t: float, type_: str, encoded: bytes) -> None:
        """A full segment is followed by one that begins with all objects, this change included."""
        self.figures.changes += 1
        self._writer.write_change(t, type_, encoded)
        if self._writer.is_full:
            self.begin(t)


class ClusterRecorder:
    def __init__(
        self,
        server: Server,
        folder: Path,
        max_size: int,
        keep_annotations: Collection[str] = (),
        clock: Callable[[], float] = time.time,
        warn: Callable[[str], None] = lambda text: None,
    ) -> None:
        """Raises RecordingError if another process records to the folder, and OSError."""
        self._server = server
        self._clock = clock
        self._warn = warn
        self._writer = SegmentWriter(folder, max_size)
        self._state = RecordedState(self._writer, Stripper(keep_annotations))
        self._listed: set[str] = set()
        self._unlisted = {kind.info.resource for kind in SNAPSHOT_KINDS}
        self._heard: dict[str, float] = {}
        """When each kind was last known to be complete."""

    @property
    def figures(self) -> RecordedFigures:
        return self._state.figures

    async def run(
        self, seconds: float | None = None, progress: RecordingProgress | None = None
    ) -> None:
        """Until it is cancelled, or the time is over. Raises ApiError if nodes or pods may not be
        read, RecordingError and OSError."""
        scopes = [
            WatchScope(each.info, optional=each.info not in (NODE, POD)) for each in SNAPSHOT_KINDS
        ]
        source = changes(self._server, scopes, [], self._lost_watch, keep=identity_only)
        syncing = asyncio.create_task(self._sync(progress))
        try:
            async with asyncio.timeout(seconds):
                async for change in source:
                    self._take(change)
                    if syncing.done():
                        syncing.result()
        except TimeoutError:
            pass
        finally:
            syncing.cancel()
            await source.aclose()
            if not self._unlisted:
                self._state.end(self._clock())
                self._state.sync()
            self._writer.close()

    def _take(self, change: WatchedChange) -> None:
        t, kind = self._clock(), change.info.resource
        if change.event == LISTED:
            self._complete(kind, t)
        elif self._unlisted:
            self._state.note(change.raw, exists=change.event != DELETED)
        elif change.event == DELETED:
            self._state.drop(t, change.raw)
        else:
            self._state.put(t, change.raw)
        self._heard[kind] = t

    def _complete(self, kind: str, t: float) -> None:
        """A list of the kind is complete. With the last one the recording begins; a further list means
        that the watch was lost."""
        if kind in self._listed and not self._unlisted:
            self._state.lost(t, self._heard.get(kind, t), kind)
            return
        self._listed.add(kind)
        if self._unlisted:
            self._unlisted.discard(kind)
            if not self._unlisted:
                self.figures.began = t
                self._state.begin(t)

    def _lost_watch(self, info: KindInfo, why: str) -> None:
        self._warn(f"lost the watch of {info.plural} ({why}); retrying")

    async def _sync(self, progress: RecordingProgress | None) -> None:
        while True:
            await asyncio.sleep(_SYNC)
            if not self._unlisted:
                self._state.sync()
            if progress is not None:
                progress(self.figures)


def compact(raw: Raw) -> Raw:
    """The object without what changes all the time and nothing reads."""
    metadata = {key: value for key, value in raw["metadata"].items() if key not in _UNREAD_METADATA}
    found = {**raw, "metadata": metadata}
    status, unread = raw.get("status"), _UNREAD_IN_CONDITIONS.get(raw["kind"])
    if isinstance(status, dict) and unread and status.get("conditions"):
        conditions = [
            {key: value for key, value in each.items() if key not in unread}
            for each in status["conditions"]
        ]
        found["status"] = {**status, "conditions": conditions}
    return found


def identity_only(raw: Raw) -> Raw:
    metadata = raw["metadata"]
    kept = {
        key: metadata[key] for key in ("name", "namespace", "uid", "resourceVersion") if key in metadata
    }
    return {"apiVersion": raw["apiVersion"], "kind": raw["kind"], "metadata": kept}


def _identity(raw: Raw) -> _Identity:
    metadata = raw["metadata"]
    return raw["apiVersion"], raw["kind"], metadata.get("namespace") or "", metadata["name"]
