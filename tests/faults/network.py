"""Connections in memory between scheduler processes and the model server.

Bytes are real HTTP/1.1: what a process writes is parsed, what it reads goes through its own parser. A
request is given a `Fate` by the troubles of its moment; without any it arrives and is answered within a
few milliseconds. What is sent arrives within `LATEST` seconds or never: connections whose bytes are not
acknowledged for so long are reset.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from typing import Any, NamedTuple

from msgspec.json import decode

from faults.model import Model, Refused, Watch, parse
from faults.process import ProcessLoop, Timeline

LATEST = 3.0
_REQUEST_TIMEOUT = 60.0
_BOOKMARKS_EVERY = 50.0
CONNECTING = 0.0005


class Sent(NamedTuple):
    """A request on its way."""

    process: str
    method: str
    url: str
    content_type: str
    body: bytes
    identity: str
    """Under which the process held the lease when it sent this; "" if it did not."""
    what: str
    """Of which kind it is: by this troubles choose."""

    @property
    def allowed(self) -> float:
        """For how many seconds it may be carried out."""
        asked = parse(self.url)[1].get("timeout")
        return float(asked.rstrip("s")) if asked is not None else _REQUEST_TIMEOUT


def kind_of(method: str, url: str) -> str:
    """The kind of a request: lease, watch, read, bind, event or write."""
    if "/leases" in url:
        return "lease"
    if "watch=true" in url:
        return "watch"
    if method == "GET":
        return "read"
    if url.partition("?")[0].endswith("/binding"):
        return "bind"
    return "event" if "/events" in url else "write"


class Fate(NamedTuple):
    """What becomes of a request."""

    how: str = "ok"
    """ok, lost, cut, error, error after, error late, unanswered, cut after, twice, garbled"""
    arrives: float = 0.001
    answered: float = 0.001
    status: int = 503
    later: float = 0.0


OK = Fate()
_WORDS = {200: "OK", 429: "Too Many Requests", 503: "Service Unavailable"}


def answer_bytes(status: int, body: bytes, retry_after: int | None = None) -> bytes:
    head = f"HTTP/1.1 {status} {_WORDS.get(status, 'Answer')}\r\nContent-Type: application/json\r\n"
    if retry_after is not None:
        head += f"Retry-After: {retry_after}\r\n"
    return f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body


_STREAM = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n"


class Transport(asyncio.Transport):
    """A process's end of a connection."""

    def __init__(self, network: Network, loop: ProcessLoop, protocol: Any) -> None:
        super().__init__()
        self.network = network
        self.loop = loop
        self.protocol = protocol
        self.closing = False
        self.broken = False
        """Whether nothing passes any more, though neither side knows."""
        self.last_at = 0.0
        """When what was delivered last arrives: bytes keep their order."""
        self.stream: Stream | None = None

    def write(self, data: Any) -> None:
        if not self.closing and not self.loop.is_dead:
            self.network.send(self, bytes(data))

    def close(self) -> None:
        self._close(None)

    def abort(self) -> None:
        self._close(None)

    def _close(self, error: Exception | None) -> None:
        if self.closing:
            return
        self.closing = True
        if self.stream is not None:
            self.stream.close()
        self.network.open.pop(self, None)
        self.loop.call_soon(self.protocol.connection_lost, error)

    def is_closing(self) -> bool:
        return self.closing

    def pause_reading(self) -> None:
        pass

    def resume_reading(self) -> None:
        pass

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return default

    # What the network does

    def deliver(self, delay: float, data: bytes) -> None:
        timeline = self.network.timeline
        when = max(timeline.now + delay, self.last_at)
        self.last_at = when
        timeline.call_at(when, self._arrive, data)

    def _arrive(self, data: bytes) -> None:
        if self.closing or self.broken or self.loop.is_dead:
            return
        if self.network.is_apart(self.loop.name):
            self.broken = True
            return
        self.loop.call_soon(self._receive, data)

    def _receive(self, data: bytes) -> None:
        if not self.closing:
            self.protocol.data_received(data)

    def cut(self) -> None:
        if not self.loop.is_dead:
            self._close(ConnectionResetError())


class Stream:
    """A watch as the server serves it."""

    def __init__(self, network: Network, transport: Transport, sent: Sent) -> None:
        self.network = network
        self.transport = transport
        self.process = sent.process
        self.path = sent.url.partition("?")[0]
        self.lag = 0.0
        self.doubled = False
        self.mute = False
        self.watch: Watch | None = None

    def send(self, line: bytes, version: int) -> None:
        if self.mute:
            return
        times = 2 if self.doubled and version and self.network.rng.random() < 0.5 else 1
        for _ in range(times):
            delay = 0.001 + (self.lag * self.network.rng.random() if self.lag else 0.0)
            self.transport.deliver(delay, b"%x\r\n%b\r\n" % (len(line), line))

    def end(self, last: bytes = b"") -> None:
        """As a server ends a watch."""
        if not self.mute:
            if last:
                last = b"%x\r\n%b\r\n" % (len(last), last)
            self.transport.deliver(0.001, last + b"0\r\n\r\n")
        self.close()

    def garble(self) -> None:
        """What comes is no HTTP any more; and nothing else comes."""
        self.transport.deliver(0.001, b"ZZ\xff\r\n\x00garbage")
        self.mute = True

    def truncate(self) -> None:
        """Half an event, then the end."""
        half = b'{"type": "MODIFIED", "object": {"metadata": {"na'
        self.transport.deliver(0.001, b"%x\r\n%b\r\n0\r\n\r\n" % (len(half), half))
        self.close()

    def nonsense(self) -> None:
        """A line that is no event."""
        line = b'\xff\xfe{"type": 7}\n'
        self.transport.deliver(0.001, b"%x\r\n%b\r\n" % (len(line), line))

    def close(self) -> None:
        self.network.streams.pop(self, None)
        if self.watch is not None:
            self.network.model.end_watch(self.watch)
            self.watch = None


class Network:
    def __init__(self, timeline: Timeline, model: Model, rng: random.Random) -> None:
        self.timeline = timeline
        self.model = model
        self.rng = rng
        self.fate: Callable[[Sent], Fate] = lambda _: OK
        self.stream_opened: Callable[[Stream], None] = lambda _: None
        self.is_apart: Callable[[str], bool] = lambda _: False
        self.connecting_takes: Callable[[str], float] = lambda _: CONNECTING
        self.is_away = False
        self.streams_lists = True
        self.log: Callable[..., None] = lambda *_: None
        self.accepting: Sent | None = None
        """The request that is being carried out."""
        self.open: dict[Transport, None] = {}
        self.streams: dict[Stream, None] = {}
        self.holders: dict[str, str] = {}
        """The identity under which each process last took the lease."""
        self.leases: dict[str, str] = {}
        """The name of the lease of each process, where it is not that of all."""
        self.targets: dict[str, str] = {}
        """The node of the last bind that was sent for each pod, by uid."""
        self.writes = 0
        timeline.call_later(_BOOKMARKS_EVERY, self._bookmarks)

    async def connect(self, loop: ProcessLoop, protocol_factory: Callable[[], Any]) -> Any:
        await asyncio.sleep(self.connecting_takes(loop.name))
        if self.is_apart(loop.name):
            await asyncio.sleep(3600)
        if self.is_away:
            raise ConnectionRefusedError(111, "Connection refused")
        protocol = protocol_factory()
        transport = Transport(self, loop, protocol)
        self.open[transport] = None
        protocol.connection_made(transport)
        return transport, protocol

    def cut_all(self, process: str | None = None) -> None:
        for transport in list(self.open):
            if process is None or transport.loop.name == process:
                transport.cut()

    def drop(self, loop: ProcessLoop) -> None:
        """The process is dead: the kernel closes what it had open."""
        for transport in [each for each in self.open if each.loop is loop]:
            transport.closing = True
            if transport.stream is not None:
                transport.stream.close()
            del self.open[transport]

    def drop_all(self) -> None:
        """Nothing passes any more, and nobody can connect."""
        self.is_away = True
        self.model.written = lambda *_: None
        for transport in self.open:
            transport.closing = True
        self.open.clear()

    def send(self, transport: Transport, data: bytes) -> None:
        head, _, body = data.partition(b"\r\n\r\n")
        lines = head.decode("latin-1").split("\r\n")
        method, url, _ = lines[0].split(" ")
        content_type = next((x[14:] for x in lines if x.startswith("Content-Type: ")), "")
        name = transport.loop.name
        identity, what = self.holders.get(name, ""), kind_of(method, url)
        sent = Sent(name, method, url, content_type, body, identity, what)
        if sent.what == "bind":
            binding = decode(body)
            if "target" in binding:
                self.targets[binding["metadata"]["uid"]] = binding["target"]["name"]
        fate = self.fate(sent)
        if self.is_apart(name) or transport.broken:
            transport.broken = True
            return
        if fate.how == "lost":
            transport.broken = True
        elif fate.how == "cut":
            self.timeline.call_later(fate.arrives, transport.cut)
        else:
            self.timeline.call_later(min(fate.arrives, LATEST), self._arrive, transport, sent, fate)

    def _arrive(self, transport: Transport, sent: Sent, fate: Fate) -> None:
        if self.is_away:
            transport.cut()
        elif sent.what == "watch":
            self._watch(transport, sent, fate)
        elif fate.how == "error":
            self._refuse(transport, sent, fate)
        elif fate.how == "error late":
            self.timeline.call_later(min(fate.later, sent.allowed), self._carry_out, sent)
            self._refuse(transport, sent, fate)
        else:
            self._answer(transport, sent, fate)

    def _answer(self, transport: Transport, sent: Sent, fate: Fate) -> None:
        status, body, retry_after = self._carry_out(sent)
        answered = fate.answered
        if fate.how == "twice":
            # Whatever stands between and sends it again does so while somebody waits for the answer.
            again = min(fate.later, sent.allowed)
            self.timeline.call_later(again, self._carry_out, sent)
            answered += again
        if fate.how == "unanswered":
            transport.broken = True
        elif fate.how == "cut after":
            self.timeline.call_later(fate.answered, transport.cut)
        elif fate.how == "error after":
            self._refuse(transport, sent, fate)
        elif fate.how == "garbled":
            transport.deliver(fate.answered, b"HTTP/9 \x00\xff\r\n" + body[:20])
        else:
            transport.deliver(answered, answer_bytes(status, body, retry_after))

    def _refuse(self, transport: Transport, sent: Sent, fate: Fate) -> None:
        body = b'{"kind":"Status","reason":"Scripted","message":"scripted"}'
        retry_after = 1 if fate.status == 429 else None
        transport.deliver(fate.answered, answer_bytes(fate.status, body, retry_after))

    def _carry_out(self, sent: Sent) -> tuple[int, bytes, int | None]:
        self.accepting = sent
        before = self.model.version
        try:
            body = self.model.handle(sent.method, sent.url, sent.body, sent.content_type)
        except Refused as error:
            if sent.method != "GET":
                self.log("refused", sent.process, sent.method, sent.url, error.code, str(error))
            return error.code, error.body, error.retry_after
        finally:
            self.accepting = None
        if self.model.version != before and sent.what != "lease":
            self.writes += 1
        if sent.what in ("bind", "write"):
            self.log("accepted", sent.process, sent.method, sent.url, _brief(sent))
        return 200 if sent.method != "POST" else 201, body, None

    def _watch(self, transport: Transport, sent: Sent, fate: Fate) -> None:
        if fate.how not in ("ok", "twice"):
            self._refuse(transport, sent, fate)
            return
        if "sendInitialEvents" in sent.url and not self.streams_lists:
            body = b'{"kind":"Status","reason":"Invalid","message":"sendInitialEvents is forbidden"}'
            transport.deliver(0.001, answer_bytes(422, body))
            return
        stream = Stream(self, transport, sent)
        self.stream_opened(stream)
        lines: list[tuple[bytes, int]] = []
        try:
            stream.watch = self.model.watch(
                sent.url, lambda line, version: lines.append((line, version))
            )
        except Refused as error:
            transport.deliver(0.001, answer_bytes(error.code, error.body))
            return
        stream.watch.send = stream.send
        transport.stream = stream
        self.streams[stream] = None
        transport.deliver(fate.answered, _STREAM)
        for line, version in lines:
            stream.send(line, version)

    def _bookmarks(self) -> None:
        line = self.model.bookmark()
        for stream in list(self.streams):
            stream.send(line, 0)
        self.timeline.call_later(_BOOKMARKS_EVERY, self._bookmarks)

    def lease_taken(self, identity: str) -> None:
        """The process that wrote this holds the lease now."""
        sent = self.accepting
        if sent is not None and "/leases" in sent.url:
            self.holders[sent.process] = identity


def _brief(sent: Sent) -> str:
    """A write, for the log."""
    text = sent.body.decode()
    if sent.what == "bind":
        return text[text.index('"target"') :]
    return text if len(text) < 300 else f"{text[:300]}…"
