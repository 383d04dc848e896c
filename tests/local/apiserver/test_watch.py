"""watch: where it begins, which events it sends, how it ends."""

from __future__ import annotations

import asyncio
import functools
import json
import socket
from collections.abc import Iterator
from contextlib import ExitStack
from itertools import islice
from typing import Any

import pytest
from aiohttp import web

from harness.apiserver import CONFIG_MAPS, TABLE, LiveServer
from harness.objects import config_map
from holdfast.local.apiserver import responses as encoding
from holdfast.local.apiserver import watch as streams
from holdfast.local.apiserver import watch as watching
from holdfast.local.apiserver.request_info import ListOptions
from holdfast.local.apiserver.responses import PLAIN, object_form
from holdfast.local.apiserver.selection import EVERYTHING
from holdfast.local.apiserver.watch import SharedEncoding, Watcher, WatchHub, WatchStreams
from holdfast.local.store import Key, StoreChange
from holdfast.serving.limits import CHUNK_BYTES, Turns

Raw = dict[str, Any]


def next_events(events: Iterator[Raw], count: int) -> list[tuple[str, str]]:
    return [
        (each["type"], each["object"]["metadata"].get("name", "")) for each in islice(events, count)
    ]


def test_without_a_revision_a_watch_begins_with_what_there_is() -> None:
    with LiveServer() as server:
        server.post(CONFIG_MAPS, config_map("a"))
        for query in ("", "&resourceVersion=0"):
            with server.watch(f"{CONFIG_MAPS}?watch=1{query}") as events:
                assert next_events(events, 1) == [("ADDED", "a")]
                server.patch(f"{CONFIG_MAPS}/a", {"data": {"a": query or "x"}})
                assert next_events(events, 1) == [("MODIFIED", "a")]


def test_a_watch_goes_on_where_it_stopped() -> None:
    with LiveServer() as server:
        start = server.post(CONFIG_MAPS, config_map("a")).revision
        server.post(CONFIG_MAPS, config_map("b"))
        server.patch(f"{CONFIG_MAPS}/a", {"data": {"a": "b"}})
        server.delete(f"{CONFIG_MAPS}/b")
        with server.watch(f"{CONFIG_MAPS}?watch=1&resourceVersion={start}") as events:
            assert next_events(events, 3) == [("ADDED", "b"), ("MODIFIED", "a"), ("DELETED", "b")]
            server.post(CONFIG_MAPS, config_map("c"))
            assert next_events(events, 1) == [("ADDED", "c")]


def test_a_deletion_carries_its_own_revision() -> None:
    with LiveServer() as server:
        start = server.post(CONFIG_MAPS, config_map("a")).revision
        server.delete(f"{CONFIG_MAPS}/a")
        with server.watch(f"{CONFIG_MAPS}?watch=1&resourceVersion={start}") as events:
            gone = next(events)
            assert int(gone["object"]["metadata"]["resourceVersion"]) == int(start) + 1


def test_a_change_that_starts_or_stops_matching_is_added_or_deleted() -> None:
    with LiveServer() as server:
        start = server.get(CONFIG_MAPS).revision
        path = f"{CONFIG_MAPS}?watch=1&resourceVersion={start}&labelSelector=app%3Dweb"
        with server.watch(path) as events:
            server.post(CONFIG_MAPS, config_map("a"))
            server.patch(f"{CONFIG_MAPS}/a", {"metadata": {"labels": {"app": "web"}}})
            server.patch(f"{CONFIG_MAPS}/a", {"data": {"x": "y"}})
            server.patch(f"{CONFIG_MAPS}/a", {"metadata": {"labels": {"app": "db"}}})
            server.delete(f"{CONFIG_MAPS}/a")
            server.post(CONFIG_MAPS, config_map("b", labels={"app": "web"}))
            assert next_events(events, 4) == [
                ("ADDED", "a"),
                ("MODIFIED", "a"),
                ("DELETED", "a"),
                ("ADDED", "b"),
            ]


def test_a_watch_of_a_namespace_or_a_name_hears_of_nothing_else() -> None:
    with LiveServer() as server:
        server.post("/api/v1/namespaces", {"metadata": {"name": "other"}})
        with (
            server.watch(f"{CONFIG_MAPS}?watch=1") as here,
            server.watch(f"{CONFIG_MAPS}?watch=1&fieldSelector=metadata.name%3Db") as named,
            server.watch("/api/v1/configmaps?watch=1") as everywhere,
        ):
            server.post("/api/v1/namespaces/other/configmaps", config_map("x"))
            server.post(CONFIG_MAPS, config_map("a"))
            server.post(CONFIG_MAPS, config_map("b"))
            assert next_events(here, 2) == [("ADDED", "a"), ("ADDED", "b")]
            assert next_events(named, 1) == [("ADDED", "b")]
            assert next_events(everywhere, 3) == [("ADDED", "x"), ("ADDED", "a"), ("ADDED", "b")]


def test_the_older_way_to_ask_for_a_watch() -> None:
    with LiveServer() as server:
        server.post(CONFIG_MAPS, config_map("a"))
        server.post(CONFIG_MAPS, config_map("b"))
        with server.watch("/api/v1/watch/namespaces/default/configmaps") as events:
            assert next_events(events, 2) == [("ADDED", "a"), ("ADDED", "b")]
        with server.watch("/api/v1/watch/namespaces/default/configmaps/b") as events:
            assert next_events(events, 1) == [("ADDED", "b")]


def test_initial_events_end_with_a_bookmark() -> None:
    with LiveServer() as server:
        server.post(CONFIG_MAPS, config_map("a"))
        revision = server.post(CONFIG_MAPS, config_map("b")).revision
        query = "watch=1&sendInitialEvents=true&resourceVersionMatch=NotOlderThan"
        with server.watch(f"{CONFIG_MAPS}?{query}&allowWatchBookmarks=true") as events:
            assert next_events(events, 2) == [("ADDED", "a"), ("ADDED", "b")]
            end = next(events)
            assert (end["type"], end["object"]["kind"]) == ("BOOKMARK", "ConfigMap")
            metadata = end["object"]["metadata"]
            assert metadata["annotations"] == {"k8s.io/initial-events-end": "true"}
            assert metadata["resourceVersion"] == revision
            server.post(CONFIG_MAPS, config_map("c"))
            assert next_events(events, 1) == [("ADDED", "c")]
        quiet = "watch=1&sendInitialEvents=false&resourceVersionMatch=NotOlderThan"
        with server.watch(f"{CONFIG_MAPS}?{quiet}") as events:
            server.post(CONFIG_MAPS, config_map("d"))
            assert next_events(events, 1) == [("ADDED", "d")]


def test_a_watch_ends_in_time_with_a_bookmark() -> None:
    with LiveServer() as server:
        start = server.get(CONFIG_MAPS).revision
        path = (
            f"{CONFIG_MAPS}?watch=1&resourceVersion={start}&timeoutSeconds=1&allowWatchBookmarks=true"
        )
        with server.watch(path) as events:
            latest = server.post(
                "/api/v1/namespaces/default/secrets", {"metadata": {"name": "s"}}
            ).revision
            last = list(events)
            assert [each["type"] for each in last] == ["BOOKMARK"]
            assert last[0]["object"]["metadata"]["resourceVersion"] == latest


def test_the_forgotten_past_is_410() -> None:
    with LiveServer() as server:
        start = server.post(CONFIG_MAPS, config_map("a")).revision
        server.post(CONFIG_MAPS, config_map("b"))
        server.run(lambda: server.cluster.store.compact(server.cluster.store.revision))
        with server.watch(f"{CONFIG_MAPS}?watch=1&resourceVersion={start}") as events:
            (error,) = events
            assert error["type"] == "ERROR"
            status = error["object"]
            assert (status["code"], status["reason"]) == (410, "Expired")
            assert status["message"].startswith(f"too old resource version: {start} (")


def test_from_the_future_a_watch_waits_for_it() -> None:
    with LiveServer() as server:
        now = int(server.get(CONFIG_MAPS).revision)
        with server.watch(f"{CONFIG_MAPS}?watch=1&resourceVersion={now + 2}") as events:
            for name in "abc":
                server.post(CONFIG_MAPS, config_map(name))
            assert next_events(events, 1) == [("ADDED", "c")]
        strict = "watch=1&sendInitialEvents=true&resourceVersionMatch=NotOlderThan"
        answer = server.get(f"{CONFIG_MAPS}?{strict}&resourceVersion=999999")
        assert (answer.code, answer.reason) == (504, "Timeout")


def test_tables_are_watched_with_their_columns_sent_once() -> None:
    with LiveServer() as server:
        server.post(CONFIG_MAPS, config_map("a"))
        server.post(CONFIG_MAPS, config_map("b"))
        with server.watch(f"{CONFIG_MAPS}?watch=1", TABLE) as events:
            first, second = next(events)["object"], next(events)["object"]
            assert [each["name"] for each in first["columnDefinitions"]] == ["Name", "Data", "Age"]
            assert second["columnDefinitions"] is None
            assert [each["rows"][0]["cells"][0] for each in (first, second)] == ["a", "b"]


def test_a_change_is_made_a_table_once_for_all_who_watch_tables(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    made = []

    def in_form(*args: Any) -> Any:
        made.append(args)
        return encoding.in_form(*args)

    monkeypatch.setattr(watching, "in_form", in_form)
    with LiveServer() as server:

        def change() -> list[list[bytes]]:
            type = server.cluster.catalogue.resource("", "v1", "configmaps")
            assert type is not None
            hub = WatchHub(server.cluster)
            forms = [object_form(TABLE)] * 50 + [PLAIN]
            watchers = [Watcher(server.cluster, type, "", EVERYTHING, form) for form in forms]
            for watcher in watchers:
                hub.add(watcher)
            for name in "abc":
                key = Key("", "ConfigMap", "default", name)
                server.cluster.store.create(key, config_map(name))
            hub.close()
            return [list(watcher._pending) for watcher in watchers[:50]]

        next_events = server.run(change)
    assert all(each == next_events[0] for each in next_events)
    assert b"columnDefinitions" in next_events[0][0]
    assert len(made) == 3


def test_a_watcher_that_does_not_read_is_terminated(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watching, "MAX_PENDING", 10)
    with LiveServer() as server:
        server.post(CONFIG_MAPS, config_map("a"))
        type = server.cluster.catalogue.resource("", "v1", "configmaps")
        assert type is not None
        watcher = Watcher(server.cluster, type, "default", EVERYTHING, PLAIN)
        (pod,) = server.run(lambda: server.cluster.store.list("", "ConfigMap"))
        key = Key("", "ConfigMap", "default", "a")
        for revision in range(1, 13):
            assert watcher.closed is (revision == 12)
            watcher.take(StoreChange(revision, key, pod, pod), SharedEncoding(server.cluster))


def test_any_number_of_initial_events_is_sent(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watching, "MAX_PENDING", 10)
    monkeypatch.setattr(watching, "_CHUNK", 4)
    with LiveServer() as server:
        start = server.get(CONFIG_MAPS).revision
        names = [f"c{i:02}" for i in range(25)]
        for name in names:
            labels = {"odd": "yes"} if int(name[1:]) % 2 else {}
            server.post(CONFIG_MAPS, config_map(name, labels=labels))
        odd = names[1::2]
        for query in ("", f"&resourceVersion={start}"):
            with server.watch(f"{CONFIG_MAPS}?watch=1{query}") as events:
                assert next_events(events, 25) == [("ADDED", name) for name in names]
            with server.watch(f"{CONFIG_MAPS}?watch=1&labelSelector=odd{query}") as events:
                assert next_events(events, len(odd)) == [("ADDED", name) for name in odd]
                server.delete(f"{CONFIG_MAPS}/{odd[0]}")
                assert next_events(events, 1) == [("DELETED", odd[0])]
                server.post(CONFIG_MAPS, config_map(odd[0], labels={"odd": "yes"}))
        names_again = [("ADDED", name) for name in odd]
        with server.watch(f"{CONFIG_MAPS}?watch=1&labelSelector=odd") as events:
            assert next_events(events, len(odd)) == names_again


def test_watches_end_when_the_server_does() -> None:
    with ExitStack() as stack:
        with LiveServer() as server:
            events = stack.enter_context(server.watch(f"{CONFIG_MAPS}?watch=1"))
            server.post(CONFIG_MAPS, config_map("a"))
            assert next_events(events, 1) == [("ADDED", "a")]
        assert list(events) == []


def _watchers(server: LiveServer, count: int) -> tuple[WatchHub, list[Watcher]]:
    type = server.cluster.catalogue.resource("", "v1", "configmaps")
    assert type is not None
    hub = WatchHub(server.cluster)
    watchers = [Watcher(server.cluster, type, "default", EVERYTHING, PLAIN) for _ in range(count)]
    for watcher in watchers:
        hub.add(watcher)
    return hub, watchers


def test_what_waits_for_a_watcher_is_bounded_by_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watching, "WATCHER_BYTES", 5_000)
    with LiveServer() as server:

        def change() -> tuple[list[bool], int, bytes]:
            hub, (watcher,) = _watchers(server, 1)
            closed = []
            for i in range(4):
                raw = {**config_map(f"c{i}"), "data": {"x": "x" * 1_500}}
                server.cluster.store.create(Key("", "ConfigMap", "default", f"c{i}"), raw)
                closed.append(watcher.closed)
            watcher.bookmark(100)
            hub.close()
            return closed, hub.unsent.total, b"".join(watcher._pending)

        closed, waiting, rest = server.run(change)
        assert closed == [False, False, False, True]
        # What is dropped must not be taken for seen: no bookmark follows.
        assert (waiting, rest) == (0, b"")


def test_what_waits_for_all_watchers_is_bounded_and_the_slowest_go(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(watching, "WATCHERS_BYTES", 8_000)
    with LiveServer() as server:

        async def read(watcher: Watcher) -> None:
            while watcher.waiting:
                await watcher.next(0)

        async def change() -> tuple[list[bool], int]:
            hub, watchers = _watchers(server, 4)
            for i in range(8):
                raw = {**config_map(f"c{i}"), "data": {"x": "x" * 1_500}}
                server.cluster.store.create(Key("", "ConfigMap", "default", f"c{i}"), raw)
                await read(watchers[0])
            closed = [watcher.closed for watcher in watchers]
            waiting = hub.unsent.total
            for watcher in watchers:
                hub.remove(watcher)
            assert (hub.unsent.total, len(hub)) == (0, 0)
            hub.close()
            return closed, waiting

        closed, waiting = server.wait(change())
        assert not closed[0]
        assert any(closed[1:])
        assert waiting <= 8_000


def _large(name: str, size: int) -> Raw:
    return {**config_map(name), "data": {"x": "x" * size}}


async def _pieces(watcher: Watcher) -> list[bytes]:
    pieces = []
    while piece := await watcher.next(0):
        pieces.append(bytes(piece))
    return pieces


def test_a_large_event_is_sent_in_pieces_and_small_ones_together() -> None:
    with LiveServer() as server:

        async def read() -> tuple[list[bytes], int]:
            hub, (watcher,) = _watchers(server, 1)
            sizes = (10, 200_000, 10, 10, 70_000)
            for i, size in enumerate(sizes):
                key = Key("", "ConfigMap", "default", f"c{i}")
                server.cluster.store.create(key, _large(f"c{i}", size))
            pieces = await _pieces(watcher)
            hub.close()
            return pieces, hub.unsent.total

        pieces, unsent = server.wait(read())
        assert unsent == 0
        assert max(map(len, pieces)) <= CHUNK_BYTES
        assert len(pieces) <= 7
        events = [json.loads(line) for line in b"".join(pieces).splitlines()]
        assert [len(each["object"]["data"]["x"]) for each in events] == [10, 200_000, 10, 10, 70_000]


@pytest.mark.parametrize("initial", [True, False])
def test_an_event_is_kept_once_however_many_wait_for_it(initial: bool) -> None:
    with LiveServer() as server:

        async def wait_for_it() -> list[int]:
            store = server.cluster.store
            hub, watchers = _watchers(server, 50)
            raw = store.create(Key("", "ConfigMap", "default", "a"), _large("a", 200_000))
            if initial:
                hub.close()
                hub, watchers = _watchers(server, 50)
                for watcher in watchers:
                    watcher.begin_with([raw], store.revision, ends=False)
            for watcher in watchers:
                await watcher.next(0)
            unsent = [hub.unsent.total]
            for watcher in watchers[1:]:
                hub.remove(watcher)
            unsent.append(hub.unsent.total)
            await _pieces(watchers[0])
            hub.close()
            return [*unsent, hub.unsent.total]

        many, one, none = server.wait(wait_for_it())
        assert 200_000 < many < 201_000
        assert (one, none) == (many, 0)


def test_initial_events_that_cannot_be_shared_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watching, "WATCHERS_BYTES", 1_000_000)
    with LiveServer() as server:

        async def begin() -> tuple[list[int], list[Watcher], list[int]]:
            store = server.cluster.store
            raw = store.create(Key("", "ConfigMap", "default", "a"), _large("a", 200_000))
            type = server.cluster.catalogue.resource("", "v1", "configmaps")
            assert type is not None
            hub, watchers, cut, unsent = WatchHub(server.cluster), list[Watcher](), list[int](), []
            for i in range(30):
                form = object_form(TABLE)
                watcher = Watcher(server.cluster, type, "", EVERYTHING, form, "Object")
                watcher.cut = functools.partial(cut.append, i)
                hub.add(watcher)
                watcher.begin_with([raw], store.revision, ends=False)
                await watcher.next(0)
                watchers.append(watcher)
                unsent.append(hub.unsent.total)
            hub.close()
            return unsent, watchers, cut

        unsent, watchers, cut = server.wait(begin())
        assert max(unsent) <= 1_000_000
        assert cut == list(range(len(cut))), "not the slowest"
        assert 20 < len(cut) < 30
        assert all(watcher.waiting == 0 for watcher in watchers[: len(cut)])


def test_a_watch_is_cut_only_in_the_middle_of_an_event() -> None:
    with LiveServer() as server:

        async def terminate(read: int) -> tuple[bool, bytes]:
            hub, (watcher,) = _watchers(server, 1)
            cut: list[bool] = []
            watcher.cut = lambda: cut.append(True)
            for i, size in enumerate((10, 200_000)):
                key = Key("", "ConfigMap", "default", f"c{read}{i}")
                server.cluster.store.create(key, _large(f"c{read}{i}", size))
            got = b"".join([bytes(await watcher.next(0)) for _ in range(read)])
            watcher.terminate()
            assert await watcher.next(0) == b""
            hub.remove(watcher)
            assert hub.unsent.total == 0
            hub.close()
            return bool(cut), got

        cut, got = server.wait(terminate(1))
        assert not cut and got.endswith(b"}\n")
        cut, got = server.wait(terminate(2))
        assert cut and not got.endswith(b"}\n")


def test_a_watch_that_is_over_ends_after_a_whole_event() -> None:
    class Written(web.StreamResponse):
        parts = b""

        async def write(self, data: bytes | bytearray | memoryview) -> None:
            self.parts += data

    with LiveServer() as server:

        async def feed() -> bytes:
            hub, (watcher,) = _watchers(server, 1)
            for name in "abc":
                server.cluster.store.create(
                    Key("", "ConfigMap", "default", name), _large(name, 200_000)
                )
            streams, response = WatchStreams(server.cluster, hub, Turns()), Written()
            now = asyncio.get_running_loop().time()
            await streams._feed(response, watcher, ListOptions(), ends=now)
            hub.close()
            return response.parts

        (line,) = server.wait(feed()).splitlines()
        assert json.loads(line)["object"]["metadata"]["name"] == "a"


def test_a_watcher_that_never_reads_is_gone_when_its_time_is_over(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(streams, "FAREWELL_SECONDS", 0.0)
    with LiveServer() as server, socket.socket() as client:
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        client.settimeout(20)
        client.connect(("127.0.0.1", server.port))
        client.sendall(
            f"GET {CONFIG_MAPS}?watch=1&timeoutSeconds=1 HTTP/1.1\r\nHost: h\r\n\r\n".encode()
        )
        client.recv(1)
        for i in range(20):
            server.post(CONFIG_MAPS, {**config_map(f"big{i}"), "data": {"x": "x" * 900_000}})
        listener = server.listener
        assert listener is not None

        async def alone() -> None:
            """Until no authenticated connection is left."""
            while listener.connections:
                await asyncio.sleep(0.05)

        server.wait(alone())


def test_there_are_only_so_many_watches(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(streams, "WATCHES", 1)
    with LiveServer() as server, server.watch(f"{CONFIG_MAPS}?watch=1"):
        answer = server.get(f"{CONFIG_MAPS}?watch=1")
        assert (answer.code, answer.reason) == (429, "TooManyRequests")
        assert server.get(CONFIG_MAPS).code == 200


def test_a_client_of_http_1_0_watches_until_the_connection_ends() -> None:
    with LiveServer() as server, socket.create_connection(("127.0.0.1", server.port), 20) as client:
        server.post(CONFIG_MAPS, config_map("a"))
        client.sendall(f"GET {CONFIG_MAPS}?watch=1&timeoutSeconds=1 HTTP/1.0\r\n\r\n".encode())
        head, _, body = b"".join(iter(lambda: client.recv(65536), b"")).partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.0 200 OK\r\n")
    assert [json.loads(line)["type"] for line in body.splitlines()] == ["ADDED"]
