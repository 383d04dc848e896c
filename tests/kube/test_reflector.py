"""What the core hears of a kind, whatever happens to lists and watches."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import partial
from unittest.mock import patch

import pytest

from harness.builders import make_node, make_pod
from harness.fake_api import FakeApi, Fault
from harness.fake_client import FakeClient
from harness.virtual_time import run, until
from holdfast.api.kinds import KINDS
from holdfast.kube.client import get
from holdfast.kube.decoding import Watched
from holdfast.kube.reflector import Reflector
from holdfast.scheduler.cluster.events import Added, Deleted, Event, Malformed, Updated

PODS = "/api/v1/pods"
POD = Watched(KINDS["v1", "Pod"], "status.phase!=Succeeded,status.phase!=Failed")
RESERVATION = Watched(KINDS["scheduling.koordinator.sh/v1alpha1", "Reservation"], optional=True)


def _listed(reflector: Reflector, api: FakeApi, times: int) -> bool:
    return reflector.lists == times and bool(api.watches)


class Heard:
    """What came out, and what a core that heard it would know."""

    def __init__(self) -> None:
        self.events: list[Event] = []
        self.known: dict[str, str] = {}
        """Names to uids."""

    def __call__(self, event: Event) -> None:
        self.events.append(event)
        if isinstance(event, Added | Updated):
            meta = event.object.metadata
            if isinstance(event, Added):
                assert meta.name not in self.known, f"{meta.name} was added twice"
            self.known[meta.name] = meta.uid
        elif isinstance(event, Malformed):
            self.known[event.name] = event.uid
        elif isinstance(event, Deleted):
            assert self.known.pop(event.object.metadata.name) == event.object.metadata.uid

    def described(self) -> list[str]:
        return [
            f"{type(e).__name__} {e.name if isinstance(e, Malformed) else e.object.metadata.name}"
            for e in self.events
            if isinstance(e, Added | Updated | Deleted | Malformed)
        ]


@asynccontextmanager
async def reflecting(
    api: FakeApi, watched: Watched = POD, stream: bool = False
) -> AsyncIterator[tuple[Reflector, Heard]]:
    heard = Heard()
    reflector = Reflector(FakeClient(api), watched, heard, stream=stream, rng=random.Random(1))
    task = asyncio.create_task(reflector.run())
    try:
        yield reflector, heard
        assert not task.done(), "the reflector ended"
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


def in_step(api: FakeApi, heard: Heard, path: str = PODS) -> bool:
    there = {
        o["metadata"]["name"]: o["metadata"]["uid"]
        for o in api.all(path)
        if o.get("status", {}).get("phase") not in ("Succeeded", "Failed")
    }
    return heard.known == there


@pytest.mark.parametrize("stream", [False, True])
def test_what_is_there_comes_first_then_what_changes(stream: bool) -> None:
    async def story() -> None:
        api = FakeApi()
        api.streams = stream
        api.create(make_pod("a").raw())
        done = make_pod("done").raw()
        done["status"] = {"phase": "Succeeded"}
        api.create(done)
        async with reflecting(api, stream=stream) as (reflector, heard):
            await reflector.synced.wait()
            assert heard.described() == ["Added a"]
            b = api.create(make_pod("b").raw())
            b["spec"]["nodeName"] = "n"
            api.change(b)
            api.delete(b)
            await until(lambda: len(heard.events) == 4)
            assert heard.described() == ["Added a", "Added b", "Updated b", "Deleted b"]
        assert api.count("GET") == (0 if stream else 1)

    run(story())


def test_a_server_that_refuses_streamed_lists_is_listed() -> None:
    async def story() -> None:
        api = FakeApi()
        api.create(make_pod("a").raw())
        async with reflecting(api, stream=True) as (reflector, heard):
            await reflector.synced.wait()
            assert in_step(api, heard)
            assert api.count("GET", PODS) == 1

    run(story())


def test_lists_come_in_pages_and_a_page_that_is_too_old_starts_them_over() -> None:
    async def story() -> None:
        api = FakeApi()
        for i in range(1200):
            api.create(make_pod(f"p{i}").raw())
        async with reflecting(api) as (reflector, heard):
            await reflector.synced.wait()
            assert (len(heard.known), api.count("GET")) == (1200, 3)
        api.requests.clear()
        api.faults.append(Fault("GET", "continue=", status=410, reason="Expired"))
        async with reflecting(api) as (reflector, heard):
            await reflector.synced.wait()
            assert (len(heard.known), api.count("GET")) == (1200, 3)
            assert api.count("GET", "limit=") == 2

    run(story())


def _cut(api: FakeApi) -> None:
    api.cut_watches()


def _end(api: FakeApi) -> None:
    api.end_watches()


def _gone(api: FakeApi) -> None:
    api.expire()
    api.send_to_all({"type": "ERROR", "object": {"kind": "Status", "code": 410, "reason": "Expired"}})


def _error(api: FakeApi) -> None:
    api.send_to_all(
        {"type": "ERROR", "object": {"kind": "Status", "code": 500, "message": "etcd is unwell"}}
    )


def _garbage(api: FakeApi) -> None:
    for queue in api.watches:
        queue.put_nowait(b"<html>a proxy's opinion</html>\n")


def _cut_and_expire(api: FakeApi) -> None:
    api.cut_watches()
    api.expire()


@pytest.mark.parametrize(
    ("breaks", "lists"),
    [(_cut, 1), (_end, 1), (_gone, 2), (_error, 2), (_garbage, 2), (_cut_and_expire, 2)],
)
def test_after_a_break_exactly_what_was_missed_is_heard(
    breaks: Callable[[FakeApi], None], lists: int
) -> None:
    async def story() -> None:
        api = FakeApi()
        kept, gone, changed, again = (
            api.create(make_pod(n).raw()) for n in ("kept", "gone", "changed", "again")
        )
        async with reflecting(api) as (reflector, heard):
            await until(lambda: api.watches)
            heard.events.clear()
            silently = lists == 2  # a list has to find out; a resumed watch gets the event
            changed["spec"]["nodeName"] = "n"
            api.change(changed, silently)
            api.delete(gone, silently)
            api.delete(again, silently)
            breaks(api)
            again = api.create(make_pod("again").raw())
            new = api.create(make_pod("new").raw())
            await until(lambda: in_step(api, heard))
            assert sorted(heard.described()) == [
                "Added again", "Added new", "Deleted again", "Deleted gone", "Updated changed",
            ]  # fmt: skip
            assert reflector.lists == lists
            assert kept["metadata"]["uid"] == heard.known["kept"]
            api.delete(new)
            await until(lambda: in_step(api, heard))
            assert reflector.problem == ""

    run(story())


def test_a_silent_watch_is_closed() -> None:
    async def story() -> None:
        api = FakeApi()
        async with reflecting(api) as (reflector, heard):
            await until(lambda: api.watches)
            api.silent = True
            api.create(make_pod("a").raw())
            await until(lambda: api.count("WATCH") == 2)
            api.silent = False
            await until(lambda: in_step(api, heard))
            assert reflector.lists == 1
            assert asyncio.get_running_loop().time() < 200

    run(story())


def test_a_server_that_is_back_after_long_is_followed_at_once() -> None:
    async def story() -> None:
        api = FakeApi()
        api.create(make_pod("p").raw())
        client, heard = FakeClient(api), Heard()
        reflector = Reflector(client, POD, heard, stream=False, rng=random.Random(1))
        task = asyncio.create_task(reflector.run())
        await until(lambda: _listed(reflector, api, 1))
        away = Fault("", cut="before", times=1e9)
        api.faults.append(away)
        api.cut_watches()
        await asyncio.sleep(600)
        assert api.count("WATCH") < 25, "it is not hammered"
        api.create(make_pod("q").raw())
        api.expire()
        away.times = 0
        await client.send(get("/api/v1/nodes"))  # somebody else finds that it is back
        await asyncio.sleep(1.5)
        assert in_step(api, heard) and _listed(reflector, api, 2)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)

    run(story())


def test_versions_too_old_again_and_again_are_not_asked_for_without_end() -> None:
    async def story() -> None:
        api = FakeApi()
        api.create(make_pod("p").raw())
        api.faults.append(Fault("WATCH", status=410, reason="Expired", times=1e9))
        async with reflecting(api) as (reflector, _):
            await asyncio.sleep(300)
            assert 3 < reflector.lists < 20

    run(story())


def test_a_watch_that_closes_at_once_for_ever_is_not_hammered_and_not_believed() -> None:
    async def story() -> None:
        api = FakeApi()
        api.create(make_pod("a").raw())
        closing = Fault("WATCH", times=float("inf"))
        api.faults.append(closing)
        async with reflecting(api) as (reflector, heard):
            await asyncio.sleep(600)
            assert 10 < api.count("WATCH") < 60
            assert 2 <= reflector.lists < 12
            api.create(make_pod("b").raw())
            closing.times = 0
            await until(lambda: in_step(api, heard))

    run(story())


@pytest.mark.parametrize(
    "fault",
    [
        Fault("GET", status=500, times=3),
        Fault("GET", status=429, retry_after=20, times=2),
        Fault("GET", cut="before", times=4),
        Fault("WATCH", status=429, retry_after=20, times=3),
        Fault("WATCH", cut="before", times=3),
        Fault("WATCH", status=403, times=3),
    ],
    ids=str,
)
def test_a_failure_that_passes_is_got_over(fault: Fault) -> None:
    async def story() -> None:
        api = FakeApi()
        api.faults.append(fault)
        api.create(make_pod("a").raw())
        async with reflecting(api) as (_, heard):
            times = fault.times
            await until(lambda: in_step(api, heard) and api.watches)
            assert fault.times == 0
            assert asyncio.get_running_loop().time() >= times * (fault.retry_after or 0.5)

    run(story())


def test_an_invalid_object_affects_no_other() -> None:
    async def story() -> None:
        api = FakeApi()
        bad = make_pod("bad").raw()
        bad["spec"]["containers"] = "three"
        api.create(make_pod("a").raw())
        bad = api.create(bad)
        api.create(make_pod("z").raw())
        async with reflecting(api) as (reflector, heard):
            await reflector.synced.wait()
            assert heard.described() == ["Added a", "Malformed bad", "Added z"]
            malformed = heard.events[1]
            assert isinstance(malformed, Malformed)
            assert malformed.uid == bad["metadata"]["uid"]
            assert (
                str(malformed.error)
                == "Pod/default/bad: spec.containers: expected a list, got the string 'three'"
            )
            worse = make_pod("worse").raw()
            worse["metadata"]["labels"] = {"a": 1}
            api.create(worse)
            api.delete(bad)
            api.create(make_pod("last").raw())
            await until(lambda: "last" in heard.known)
            assert heard.described()[3:] == ["Malformed worse", "Deleted bad", "Added last"]

    run(story())


def test_a_kind_the_server_does_not_know_is_passed_over_until_it_does() -> None:
    async def story() -> None:
        api = FakeApi()
        path = "/apis/scheduling.koordinator.sh/v1alpha1/reservations"
        api.served = {PODS}
        async with reflecting(api, RESERVATION, stream=True) as (reflector, heard):
            await reflector.synced.wait()
            assert reflector.absent and not reflector.problem
            api.served.add(path)
            raw = {
                "apiVersion": "scheduling.koordinator.sh/v1alpha1",
                "kind": "Reservation",
                "metadata": {"name": "r"},
            }
            api.create(raw)
            await until(lambda: "r" in heard.known)
            assert not reflector.absent
            # Taken away again, with all its objects.
            api.served.discard(path)
            api.end_watches()
            await until(lambda: reflector.absent)
            assert heard.known == {}

    run(story())


def test_a_repeated_list_feeds_only_differences() -> None:
    async def story() -> None:
        api = FakeApi()
        for i in range(50):
            api.create(make_node(f"n{i}").raw())
        async with reflecting(api, Watched(KINDS["v1", "Node"])) as (reflector, heard):
            await until(lambda: api.watches)
            heard.events.clear()
            for lists in (2, 3, 4):
                _gone(api)
                await until(partial(_listed, reflector, api, lists))
            assert heard.events == []

    run(story())


def test_items_of_lists_have_their_kind() -> None:
    async def story() -> None:
        api = FakeApi()
        api.create(make_node("n").raw())
        async with reflecting(api, Watched(KINDS["v1", "Node"])) as (reflector, heard):
            await reflector.synced.wait()
            (event,) = heard.events
            assert isinstance(event, Added)
            assert (event.object.kind, event.object.api_version) == ("Node", "v1")

    run(story())


def test_a_version_is_not_taken_from_before_the_list_was_complete() -> None:
    """A stream that is cut in the middle starts over, and what it had sent is not sent again."""

    async def story() -> None:
        api = FakeApi()
        api.streams = True
        api.create(make_pod("a").raw())
        original = api.watch
        cuts = 2

        def cutting(path: str, idle: float) -> AsyncGenerator[bytes, None]:
            nonlocal cuts
            cuts -= 1

            async def cut() -> AsyncGenerator[bytes, None]:
                stream = original(path, idle)
                yield await anext(stream)
                await stream.aclose()

            return cut() if cuts >= 0 else original(path, idle)

        with patch.object(api, "watch", cutting):
            async with reflecting(api, stream=True) as (reflector, heard):
                await reflector.synced.wait()
                assert heard.described() == ["Added a"]

    run(story())


def test_frames_fall_into_chunks_anywhere() -> None:
    from holdfast.kube.reflector import _lines

    async def story() -> None:
        data = b'{"a":1}\n\n{"b":2}\n{"c":3}\n{"cut'

        async def chunks(size: int) -> AsyncIterator[bytes]:
            for i in range(0, len(data), size):
                yield data[i : i + size]

        for size in range(1, len(data) + 1):
            assert [line async for line in _lines(chunks(size))] == [b'{"a":1}', b'{"b":2}', b'{"c":3}']

    run(story())
