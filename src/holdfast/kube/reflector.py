"""Reflector: lists and watches one kind and feeds the scheduler the differences."""

import asyncio
import random
from collections.abc import AsyncIterator, Callable, Iterator
from urllib.parse import urlencode

import msgspec

from holdfast.api.kinds import KindInfo
from holdfast.api.meta import Object, ObjectMeta
from holdfast.api.pod import Pod
from holdfast.kube.client import Client, get, path_of
from holdfast.kube.decoding import (
    INITIAL_EVENTS_END,
    Broken,
    Found,
    Frame,
    Watched,
    decode_frame,
    decode_page,
)
from holdfast.kube.errors import ApiError, CredentialsError, Unreachable
from holdfast.kube.flow_control import Backoff
from holdfast.scheduler.cluster.events import Added, Deleted, Event, Updated

Key = tuple[str, str]
"""Namespace and name."""


def is_older(version: str, than: str) -> bool:
    """Compares resource versions, which are numbers on every known server; otherwise the order is
    unknown.
    """
    return version.isdigit() and than.isdigit() and int(version) < int(than)


class ObjectStore:
    """The known objects of one kind and their resource versions.

    Compares a new list with the known objects and yields exactly the events in between, including
    deletions and objects recreated under the same name.
    """

    def __init__(self, info: KindInfo, ended: bool = False) -> None:
        self._info = info
        self._ended = ended
        """Whether they are pods that have ended."""
        self._known: dict[Key, tuple[str, str]] = {}
        """To uid and version."""
        self._unseen: dict[Key, tuple[str, str]] | None = None
        """While a list is read: what it has not had yet."""

    def __len__(self) -> int:
        return len(self._known)

    def version(self, namespace: str, name: str, uid: str) -> str:
        """The resourceVersion last seen of the object; empty if another has its name, or none."""
        known_uid, version = self._known.get((namespace, name), ("", ""))
        return version if known_uid == uid else ""

    def knows(self, found: Object) -> bool:
        """Whether the object is known, in this version or an earlier one."""
        meta = found.metadata
        uid, version = self._known.get((meta.namespace, meta.name), ("", ""))
        return uid == meta.uid and not is_older(meta.resource_version, version)

    def put(self, found: Found) -> Iterator[Event]:
        """The object exists, as it is here."""
        if isinstance(found, Broken):
            key, uid = (found.event.namespace, found.event.name), found.event.uid
            version = found.resource_version
        else:
            meta = found.metadata
            key, uid, version = (meta.namespace, meta.name), meta.uid, meta.resource_version
        before = self._known.get(key)
        if self._unseen is not None:
            self._unseen.pop(key, None)
        if before is not None:
            if before == (uid, version):
                return
            if before[0] != uid:
                yield self._gone(key, before[0])
                before = None
        self._known[key] = (uid, version)
        if isinstance(found, Broken):
            yield found.event
        else:
            yield Updated(found) if before is not None else Added(found)

    def remove(self, found: Found) -> Iterator[Event]:
        """Removes an object after a DELETED event."""
        if isinstance(found, Broken):
            key = (found.event.namespace, found.event.name)
        else:
            key = (found.metadata.namespace, found.metadata.name)
        before = self._known.pop(key, None)
        if self._unseen is not None:
            self._unseen.pop(key, None)
        if before is None:
            return
        if isinstance(found, Broken) or found.metadata.uid != before[0]:
            yield self._gone(key, before[0])
        else:
            yield Deleted(found)

    def begin_list(self) -> None:
        """Starts a list: every object that exists is put next."""
        self._unseen = dict(self._known)

    def end_list(self) -> Iterator[Event]:
        """Ends a list: known objects that were not in it are deleted."""
        unseen, self._unseen = self._unseen or {}, None
        for key, (uid, _) in unseen.items():
            del self._known[key]
            yield self._gone(key, uid)

    def clear(self) -> Iterator[Event]:
        """The objects of this kind no longer exist."""
        self.begin_list()
        yield from self.end_list()

    def _gone(self, key: Key, uid: str) -> Event:
        namespace, name = key
        gone: Object = self._info.type(metadata=ObjectMeta(namespace=namespace, name=name, uid=uid))
        gone.api_version, gone.kind = self._info.api_version, self._info.kind
        if self._ended and isinstance(gone, Pod):
            gone.status.phase = "Succeeded"
        return Deleted(gone)


PAGE = 500
"""Objects in one page of a list."""
QUIET = 90.0
"""After this many seconds without a byte a watch is considered dead."""
MAX_WATCH_SECONDS = 600
"""The server is asked to end a watch after this many seconds, or at random up to half of it earlier."""
HEALTHY = 30.0
"""A watch that lasted this many seconds resets the back-off."""
ABSENT = 20.0
"""A kind that the server does not have is looked for after a second or two, since its definition is
often installed together with Holdfast, then less and less often, at last every 20 to 40 seconds."""
_EMPTY_WATCHES = 5
"""After this many consecutive watches that end at once without an event, the kind is listed again."""
_LIST_TIMEOUT = 60.0
_LONGEST_LINE = 64 * 2**20
_FORBIDDEN = 403
_GONE = 410

Sink = Callable[[Event], None]
Report = Callable[[str, str], None]
"""Called with what happened to the reflector (`listed`, `failed`, …) and the details, for logs."""


def _no_report(what: str, particulars: str) -> None:
    pass


class Reflector:
    """Keeps the scheduler in sync with all objects of one kind.

                      listed, or streamed             closed, cut, quiet for too long: same version
        start ──────────────────────► following ◄──┐──────────────────────────────────────┐
          ▲                             │  └───────┘──────────────────────────────────────┘
          └─────────────────────────────┘
            410, another ERROR event, undecodable bytes, any other read error, or a watch that
            repeatedly closes at once; after a back-off

    A watch is resumed at the last version seen. Only if that is impossible is the kind listed again,
    and then only the difference is fed. A dead connection is detected by its silence: servers send a
    bookmark about once a minute.
    """

    def __init__(
        self,
        client: Client,
        watched: Watched,
        sink: Sink,
        report: Report = _no_report,
        stream: bool = True,
        rng: random.Random | None = None,
    ) -> None:
        self.watched = watched
        self.synced = asyncio.Event()
        self.problem = ""
        """Why the store is not in sync; "" if it is."""
        self.lists = 0
        """How often everything was listed."""
        self.absent = False
        """Whether the server does not know the kind."""
        self._client = client
        self._sink = sink
        self._report = report
        self._stream = stream
        self._rng = rng or client.rng
        self._store = ObjectStore(watched.info, watched.ended)
        self._version: str | None = None
        self._backoff = Backoff(self._rng)
        self._absence = Backoff(self._rng, first=1.0, most=ABSENT)
        self._empty = 0
        self._expired = False
        """Whether the version was too old, and nothing new has been heard since."""
        self._path = path_of(watched.info)
        self._turns: asyncio.Task[None] | None = None
        self._is_restarting = False
        self._is_fresh = asyncio.Event()

    def __len__(self) -> int:
        return len(self._store)

    def version(self, namespace: str, name: str, uid: str) -> str:
        """The resourceVersion last seen of an object; empty if it is not known."""
        return self._store.version(namespace, name, uid)

    def knows(self, found: Object) -> bool:
        """Whether the object is known, in this version or an earlier one."""
        return self._store.knows(found)

    async def refresh(self) -> None:
        """Lists everything again; returns when that is done, or the kind turns out to be absent. A
        watch that is open may be behind, or dead without anybody knowing: only a list shows the state
        of the server at this moment."""
        self._is_fresh.clear()
        if self._turns is not None:
            self._is_restarting = True
            self._turns.cancel()
        await self._is_fresh.wait()

    async def run(self) -> None:
        """For ever."""
        while True:
            self._turns = asyncio.create_task(self._run())
            try:
                await self._turns
            except asyncio.CancelledError:
                task = asyncio.current_task()
                if not self._is_restarting or (task is not None and task.cancelling()):
                    raise
                self._is_restarting = False
                self._version = None

    async def _run(self) -> None:
        while True:
            try:
                if self._version is None and not self._stream:
                    await self._list()
                await self._follow()
            except ApiError as error:
                await self._refused(error)
            except Unreachable as error:
                await self._wait(str(error), report="interrupted")
            except CredentialsError as error:
                await self._wait(str(error))
            except msgspec.DecodeError as error:
                # Not JSON at all: it comes from something between this process and the server.
                self._version = None
                await self._wait(f"not JSON: {error}")
            except Exception as error:
                # On any error the watch continues: a kind that is no longer watched would be worse.
                self._version = None
                await self._wait(f"{type(error).__name__}: {error}")

    # What there is

    async def _list(self) -> None:
        self._store.begin_list()
        self.lists += 1
        more, limit = "", PAGE
        while True:
            query = {"limit": str(limit)} if limit else {}
            if more:
                query["continue"] = more
            try:
                data = await self._client.send(get(self._url(query), _LIST_TIMEOUT))
            except ApiError as error:
                if error.status != _GONE or not more:
                    raise
                # The version of the paged list has expired: list without paging.
                self._store.begin_list()
                more, limit = "", 0
                continue
            page = decode_page(self.watched.info, data)
            del data
            for item in page.items:
                for event in self._store.put(item):
                    self._sink(event)
            more = page.continue_
            if not more:
                break
            await asyncio.sleep(0)
        self._complete(page.resource_version)

    def _complete(self, version: str) -> None:
        for event in self._store.end_list():
            self._sink(event)
        self._version = version
        self._is_fresh.set()
        self.absent = False
        self._absence.reset()
        self._in_step()
        self._report("listed", f"{len(self._store)} objects at version {version}")

    def _in_step(self) -> None:
        self.problem = ""
        self.synced.set()

    # What changes

    async def _follow(self) -> None:
        """Watches once. Returns when the watch ended as watches do."""
        loop = asyncio.get_running_loop()
        start, came = loop.time(), False
        initial = self._version is None
        if initial:
            self._store.begin_list()
            self.lists += 1
        try:
            async with self._client.watch(self._watch_url(), QUIET) as chunks:
                if not initial:
                    self._in_step()
                async for line in _lines(chunks):
                    frame = decode_frame(self.watched.info, line)
                    came = came or frame.type != "BOOKMARK"
                    self._take(frame)
        finally:
            if loop.time() - start >= HEALTHY:
                self._backoff.reset()
        if self._version is None:
            raise Unreachable("the watch ended before the initial list was complete")
        if came or loop.time() - start >= HEALTHY:
            self._empty = 0
            return
        self._empty += 1
        if self._empty >= _EMPTY_WATCHES:
            self._empty = 0
            self._version = None
        await self._wait("the watch ended immediately")

    def _take(self, frame: Frame) -> None:
        found = frame.object
        if isinstance(found, Broken):
            version = found.resource_version
        else:
            version = found.metadata.resource_version
        self._expired = False
        if frame.type == "BOOKMARK":
            if (
                self._version is None
                and not isinstance(found, Broken)
                and found.metadata.annotations.get(INITIAL_EVENTS_END) == "true"
            ):
                self._complete(version)
        elif frame.type == "DELETED":
            for event in self._store.remove(found):
                self._sink(event)
        elif frame.type in ("ADDED", "MODIFIED"):
            for event in self._store.put(found):
                self._sink(event)
        else:
            raise ApiError(500, "UnknownEvent", f"a watch event of type {frame.type!r}")
        if version and self._version is not None:
            self._version = version

    # What goes wrong

    async def _refused(self, error: ApiError) -> None:
        starting = self._version is None
        if starting and self._stream and error.status not in (401, 404, 429):
            # Servers without streamed lists refuse them in several ways.
            self._stream = False
            self._report("listing", f"the server refused a streamed list: {error}")
            return
        if error.status == 404 and self.watched.optional:
            await self._missing(error)
            return
        if error.status == _GONE and not self._expired:
            self._expired = True
            self._version = None
            self._report("expired", error.message)
            return
        if error.status != 429:
            self._version = None
        remedy = self.watched.remedy if error.status == _FORBIDDEN else ""
        await self._wait(f"{error}; {remedy}" if remedy else str(error), error.retry_after)

    async def _missing(self, error: ApiError) -> None:
        for event in self._store.clear():
            self._sink(event)
        self._version = None
        if not self.absent:
            self.absent = True
            readers = self.watched.readers
            about = f"; {readers}, and sees no objects until the server has it" if readers else ""
            self._report("absent", f"{error.message}{about}")
        self._is_fresh.set()
        self._in_step()
        await asyncio.sleep(self._absence.next())

    async def _wait(self, problem: str, at_least: float | None = None, report: str = "failed") -> None:
        wait = self._backoff.next(at_least)
        if problem != self.problem:
            self.problem = problem
            self._report(report, f"{problem}; retrying in {wait:.1f} s")
        if await self._client.reach.wait(wait):
            self._backoff.reset()
            await asyncio.sleep(self._rng.random())  # not all at once

    def _url(self, query: dict[str, str]) -> str:
        if self.watched.field_selector:
            query["fieldSelector"] = self.watched.field_selector
        return f"{self._path}?{urlencode(query)}" if query else self._path

    def _watch_url(self) -> str:
        query = {
            "watch": "true",
            "allowWatchBookmarks": "true",
            "timeoutSeconds": str(self._rng.randint(MAX_WATCH_SECONDS // 2, MAX_WATCH_SECONDS)),
        }
        if self._version is None:
            query["sendInitialEvents"] = "true"
            query["resourceVersionMatch"] = "NotOlderThan"
        else:
            query["resourceVersion"] = self._version
        return self._url(query)


async def _lines(chunks: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    """Splits a stream of arbitrary chunks into lines."""
    rest: list[bytes] = []
    length = 0
    async for chunk in chunks:
        if b"\n" not in chunk:
            rest.append(chunk)
            length += len(chunk)
            if length > _LONGEST_LINE:
                raise Unreachable(f"a watch event of more than {_LONGEST_LINE} bytes")
            continue
        length = 0
        first, *others = chunk.split(b"\n")
        rest.append(first)
        line = b"".join(rest)
        if line:
            yield line
        for line in others[:-1]:
            if line:
                yield line
        rest = [others[-1]]
