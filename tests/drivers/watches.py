"""What was written to a real server, and what its watches have shown of it.

Only the test writes there. So the cluster is quiet when each watch has shown everything that was
written to what it watches, and its reader has handled it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import NamedTuple
from urllib.parse import parse_qs

from holdfast.local.clock import VirtualClock
from holdfast.local.store.objects import Raw

PATIENCE = 30.0
"""Seconds in which a watch shows what was written, on the slowest machine."""
_ANSWERED_WITHOUT_IT = ("binding", "eviction", "finalize")
"""Subresources that do not answer with the object as it is after that."""


class Place(NamedTuple):
    """Where a request goes: the collection as it is watched, and the object's own path."""

    collection: str
    object: str
    subresource: str

    @classmethod
    def of(cls, path: str) -> Place:
        root, _, rest = path.partition("?")[0].strip("/").partition("/")
        parts = rest.split("/")
        version = 1 if root == "api" else 2
        start, parts = f"/{root}/{'/'.join(parts[:version])}", parts[version:]
        inside = parts[0] == "namespaces" and len(parts) > 2 and parts[2] not in ("status", "finalize")
        namespace = f"/namespaces/{parts[1]}" if inside else ""
        plural, name, subresource = [*(parts[2:] if inside else parts), "", ""][:3]
        object_path = f"{start}{namespace}/{plural}/{name}" if name else ""
        return cls(f"{start}/{plural}", object_path, subresource)


class Scope(NamedTuple):
    """What a list or a watch is about: a collection, or those of it a selector leaves."""

    collection: str
    selector: str

    @classmethod
    def of(cls, path: str) -> Scope:
        query = parse_qs(path.partition("?")[2])
        return cls(Place.of(path).collection, query.get("fieldSelector", [""])[0])

    def has(self, phase: str) -> bool:
        """Whether objects in this phase are among them; the phase is all that is selected by."""
        unwanted = (term.partition("!=") for term in self.selector.split(",") if term)
        return all(field == "status.phase" and value != phase for field, _, value in unwanted)


class Stream:
    """One watch. `shown` are the uids of objects its reader knows of."""

    def __init__(self, path: str, shown: set[str]) -> None:
        query = parse_qs(path.partition("?")[2])
        self.scope = Scope.of(path)
        self._version = int(query.get("resourceVersion", ["0"])[0])
        self._shown = shown

    def showed(self, kind: str, obj: Raw) -> None:
        metadata = obj.get("metadata") or {}
        self._version = max(self._version, int(metadata.get("resourceVersion") or 0))
        if kind == "DELETED":
            self._shown.discard(metadata["uid"])
        elif kind in ("ADDED", "MODIFIED"):
            self._shown.add(metadata["uid"])

    def has_shown(self, written: Written) -> bool:
        if written.version is None or not self.scope.has(written.phase):
            return written.uid not in self._shown
        return self._version >= written.version


class Written(NamedTuple):
    collection: str
    uid: str
    version: int | None
    """None of an object that is gone."""
    phase: str

    @classmethod
    def as_it_is(cls, collection: str, obj: Raw) -> Written:
        metadata, status = obj["metadata"], obj.get("status") or {}
        phase = str(status.get("phase") or "")
        return cls(collection, metadata["uid"], int(metadata["resourceVersion"]), phase)


Look = Callable[[str], Raw | None]
"""Reads an object by its path; None if it is not there."""


class Watches:
    def __init__(self, look: Look) -> None:
        self._look = look
        self._streams: list[Stream] = []
        self._written: list[Written] = []
        self._moved = asyncio.Event()

    def opened(self, path: str, shown: set[str]) -> Stream:
        stream = Stream(path, shown)
        self._streams.append(stream)
        return stream

    def closed(self, stream: Stream) -> None:
        self._streams.remove(stream)
        self._moved.set()

    def moved(self) -> None:
        """A stream has shown something, and its reader has done with it."""
        self._moved.set()

    def wrote(self, method: str, path: str, answer: Raw) -> None:
        """The server has answered a request with a success."""
        place = Place.of(path)
        if method != "DELETE" and place.subresource not in _ANSWERED_WITHOUT_IT:
            self._written.append(Written.as_it_is(place.collection, answer))
            return
        about = answer.get("metadata") or {}
        uid = str(about.get("uid") or (answer.get("details") or {}).get("uid") or "")
        now = self._look(place.object)
        if now is None or (uid and now["metadata"]["uid"] != uid):
            self._written.append(Written(place.collection, uid, None, ""))
        else:
            self._written.append(Written.as_it_is(place.collection, now))

    @property
    def behind(self) -> list[Written]:
        """What some watch has yet to show."""
        self._written = [each for each in self._written if not self._is_shown(each)]
        return self._written

    def _is_shown(self, written: Written) -> bool:
        concerned = (s for s in self._streams if s.scope.collection == written.collection)
        return all(stream.has_shown(written) for stream in concerned)

    async def caught_up(self) -> None:
        try:
            async with asyncio.timeout(PATIENCE):
                while self.behind:
                    self._moved.clear()
                    await self._moved.wait()
        except TimeoutError:
            raise AssertionError(f"not shown in {PATIENCE:g} s: {self._written}") from None


class Times:
    """When objects came to be in the scenario's time: a server stamps them with its own.

    An object that is seen for the first time has just been made, since time stands still until all that
    was written has been seen; unless the scenario says since when it is there.
    """

    def __init__(self, clock: VirtualClock) -> None:
        self._clock = clock
        self._made: dict[str, str] = {}
        self._stated: dict[tuple[str, str, str], str] = {}

    def without(self, raw: Raw) -> Raw:
        """An object that is about to be made; its times are those of the scenario."""
        metadata = raw.get("metadata") or {}
        if "creationTimestamp" not in metadata:
            return raw
        self._stated[_name(raw)] = metadata["creationTimestamp"]
        rest = {name: value for name, value in metadata.items() if name != "creationTimestamp"}
        return {**raw, "metadata": rest}

    def put_right(self, answer: Raw) -> Raw:
        """The object, or each of a list, with its time in the scenario."""
        if "items" in answer and answer["items"] is not None:
            kind = str(answer.get("kind", "")).removesuffix("List")
            items = [self._stamped({"kind": kind, **item}) for item in answer["items"]]
            return {**answer, "items": items}
        return self._stamped(answer)

    def _stamped(self, raw: Raw) -> Raw:
        metadata = raw.get("metadata") or {}
        uid = metadata.get("uid")
        if not uid:
            return raw
        if uid not in self._made:
            self._made[uid] = self._stated.pop(_name(raw), "") or self._clock.stamp()
        return {**raw, "metadata": {**metadata, "creationTimestamp": self._made[uid]}}


def _name(raw: Raw) -> tuple[str, str, str]:
    metadata = raw["metadata"]
    return str(raw.get("kind")), metadata.get("namespace") or "default", str(metadata.get("name"))
