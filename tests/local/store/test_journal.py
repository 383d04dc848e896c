"""Objects on disk: what is there after a restart, and what cannot be used."""

import asyncio
import sqlite3
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from holdfast.local.store import (
    Compacted,
    Key,
    NotEncodable,
    Store,
    StoreChange,
    StoreFailed,
    open_store,
    pod_key,
)
from holdfast.local.store.journal import FILE

P = pod_key("default", "p")


def raw(name: str = "p", **more: Any) -> dict[str, Any]:
    return {"metadata": {"name": name}, **more}


def reopened(store: Store, folder: Path, **more: Any) -> Store:
    store.close()
    return open_store(folder, **more)


def test_all_is_there_after_a_restart(tmp_path: Path) -> None:
    store = open_store(tmp_path)
    store.create(P, raw(spec={"text": "ü\n\u0000", "number": 1.5, "big": 2**60, "none": None}))
    store.create(Key("apps", "Deployment", "default", "d"), raw("d"))
    made = store.get(P)
    assert made is not None
    store.update(P, {**made, "status": {}})
    gone = pod_key("default", "gone")
    store.create(gone, raw("gone"))
    store.delete(gone)
    store.flush()
    before = (store.revision, store.list("", "Pod"), store.changes_after(0, "", "Pod"))
    store = reopened(store, tmp_path)
    assert (store.revision, store.list("", "Pod"), store.changes_after(0, "", "Pod")) == before
    assert store.snapshot("", "Pod", at=4).keys == [gone, P]
    assert store.create(gone, raw("gone"))["metadata"]["resourceVersion"] == "6"
    store.close()


def test_revisions_go_on_where_they_stopped_whatever_was_compacted(tmp_path: Path) -> None:
    store = open_store(tmp_path)
    store.create(P, raw())
    store.delete(P)
    store.flush()
    store.compact(2)
    store = reopened(store, tmp_path)
    assert (store.revision, store.compacted, store.count("", "Pod")) == (2, 2, 0)
    with pytest.raises(Compacted):
        store.changes_after(1, "", "Pod")
    store.close()


def test_what_is_compacted_is_gone_from_disk_too(tmp_path: Path) -> None:
    store = open_store(tmp_path, keep=50)
    store.create(P, raw())
    for i in range(2_000):
        store.update(P, raw(spec=i))
        store.create(pod_key("x", str(i)), raw())
        store.delete(pod_key("x", str(i)))
        if i % 100 == 0:
            store.flush()
    store.flush()
    store = reopened(store, tmp_path, keep=50)
    last = store.get(P)
    assert last is not None
    assert (store.revision, last["spec"]) == (6_001, 1_999)
    assert store.revision - store.compacted <= 62
    store.close()
    with sqlite3.connect(tmp_path / FILE) as database:
        (rows,) = database.execute("SELECT count(*) FROM changes").fetchone()
    database.close()
    assert rows <= 64


def test_compaction_is_of_what_is_durable(tmp_path: Path) -> None:
    store = open_store(tmp_path)
    store.create(P, raw())
    store.compact(1)
    assert store.compacted <= store.durable
    store.close()


def test_subscribers_are_notified_of_durable_changes_and_observers_at_once(tmp_path: Path) -> None:
    async def notified() -> None:
        store = open_store(tmp_path)
        seen: list[int] = []
        observed: list[int] = []
        on_disk: list[int] = []

        def look(change: StoreChange) -> None:
            seen.append(change.revision)
            on_disk.append(store.durable)

        store.subscribe(look)
        store.observe(lambda change: observed.append(change.revision))
        store.create(P, raw())
        store.update(P, raw())
        assert (seen, observed, store.durable) == ([], [1, 2], 0)
        assert store.changes_after(0, "", "Pod") == []
        await store.settled(2)
        assert (seen, on_disk) == ([1, 2], [1, 2])
        assert len(store.changes_after(0, "", "Pod")) == 2
        store.close()

    asyncio.run(notified())


def test_many_waiting_writers_are_served_by_few_commits(tmp_path: Path) -> None:
    async def write() -> None:
        store = open_store(tmp_path)

        async def one(i: int) -> int:
            made = store.create(pod_key("x", str(i)), raw(str(i)))
            revision = int(made["metadata"]["resourceVersion"])
            await store.settled(revision)
            assert store.durable >= revision
            return revision

        found = await asyncio.gather(*(one(i) for i in range(500)))
        assert sorted(found) == list(range(1, 501))
        store.close()

    asyncio.run(write())


def test_notifications_of_many_changes_do_not_starve_other_tasks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A notification of a change takes a millisecond here, and a turn lasts five. Two turns may be
    due in one pass of the event loop, if the disk was slow."""
    now = 0.0

    def tick() -> float:
        nonlocal now
        now += 0.001
        return now

    monkeypatch.setattr("holdfast.local.store.store.time.perf_counter", tick)
    notified: list[int] = []
    seen: list[int] = []

    async def story() -> None:
        store = open_store(tmp_path)
        store.subscribe(lambda change: notified.append(change.revision))

        async def look() -> None:
            while True:
                seen.append(len(notified))
                await asyncio.sleep(0)

        looking = asyncio.create_task(look())
        for i in range(200):
            store.create(pod_key("x", str(i)), raw(str(i)))
        await store.settled(200)
        looking.cancel()
        store.create(pod_key("x", "last"), raw("last"))
        store.flush()
        store.close()

    asyncio.run(story())
    assert notified == list(range(1, 202))
    assert max(b - a for a, b in pairwise(seen)) <= 11


def test_two_cannot_have_one_file(tmp_path: Path) -> None:
    store = open_store(tmp_path)
    with pytest.raises(StoreFailed, match=r"holdfast\.db: is in use by another process"):
        open_store(tmp_path)
    store.create(P, raw())
    reopened(store, tmp_path).close()


def _newer(path: Path) -> None:
    with sqlite3.connect(path) as database:
        database.execute("PRAGMA user_version = 99")
    database.close()


def _someone_elses(path: Path) -> None:
    path.unlink()
    with sqlite3.connect(path) as database:
        database.execute("CREATE TABLE mine (a)")
    database.close()


def _text(path: Path) -> None:
    path.write_text("no database at all, but long enough to look at " * 10)


def _cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:6_000])


def _scribbled(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[5_000:9_000] = b"\x5a" * 4_000
    path.write_bytes(bytes(data))


def _flipped(path: Path) -> None:
    data = path.read_bytes()
    assert b"precious" in data
    path.write_bytes(data.replace(b"precious", b"preciouz"))


def _without_state(path: Path) -> None:
    with sqlite3.connect(path) as database:
        database.execute("DELETE FROM state")
    database.close()


@pytest.mark.parametrize(
    ("harm", "message"),
    [
        (_newer, "was written by a newer Holdfast .format 99; this version reads up to 1"),
        (_someone_elses, "is a database, but not Holdfast's"),
        (_text, "is damaged: file is not a database"),
        (_cut, "is damaged"),
        (_scribbled, "is damaged"),
        (_flipped, r"is damaged: the checksum of revision \d+ \(Pod/x/\d+\) is wrong"),
        (_without_state, "is damaged: the compacted revision is missing"),
    ],
)
def test_an_untrusted_file_is_refused_and_not_changed(
    tmp_path: Path, harm: Callable[[Path], None], message: str
) -> None:
    store = open_store(tmp_path)
    for i in range(100):
        store.create(pod_key("x", str(i)), raw(str(i), spec="precious " * 20))
    store.close()
    path = tmp_path / FILE
    harm(path)
    before = path.read_bytes()
    for _ in range(2):
        with pytest.raises(StoreFailed, match=message) as refused:
            open_store(tmp_path)
        assert str(path) in str(refused.value)
    assert path.read_bytes() == before


def test_a_folder_that_cannot_be_made_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(StoreFailed, match="cannot be opened"):
        open_store(tmp_path / "file" / "below")


def test_an_empty_file_is_a_new_one(tmp_path: Path) -> None:
    """That is what a crash in the first moment leaves."""
    (tmp_path / FILE).touch()
    store = open_store(tmp_path)
    assert store.revision == 0
    store.close()


def test_when_the_disk_takes_no_more_nothing_is_acknowledged_or_changed(tmp_path: Path) -> None:
    async def write() -> None:
        store = open_store(tmp_path)
        store.create(P, raw())
        await store.settled(1)
        journal: Any = store._journal
        database = journal._database
        database._connection.execute("PRAGMA max_page_count = 1")
        store.update(P, raw(spec="x" * 100_000))
        with pytest.raises(StoreFailed, match=r"holdfast\.db: cannot be written: .*full"):
            await store.settled(2)
        for refused in (lambda: store.update(P, raw()), lambda: store.delete(P), store.flush):
            with pytest.raises(StoreFailed):
                refused()
        with pytest.raises(StoreFailed):
            await store.settled(2)
        assert (store.revision, store.durable) == (2, 1)
        with pytest.raises(StoreFailed):
            store.close()
        again = open_store(tmp_path)
        assert (again.revision, "spec" in again.list("", "Pod")[0]) == (1, False)
        again.close()

    asyncio.run(write())


def test_an_object_that_json_cannot_hold_fails_its_write_and_no_other(tmp_path: Path) -> None:
    store = open_store(tmp_path)
    store.create(P, raw())
    deep: dict[str, Any] = {}
    for _ in range(5_000):
        deep = {"a": deep}
    for spec in ({True: "x"}, {None: "x"}, {"a": {True: 1}}, {"a": object()}, "\ud800", deep):
        with pytest.raises(NotEncodable, match="Pod/default/p: cannot be encoded as JSON"):
            store.update(P, raw(spec=spec))
    with pytest.raises(NotEncodable):
        store.create(pod_key("default", "q"), raw("q", spec={True: "x"}))
    assert (store.revision, store.get(pod_key("default", "q"))) == (1, None)
    store.update(P, raw(spec="fine"))
    store.flush()
    assert store.failure is None
    store = reopened(store, tmp_path)
    assert [each["spec"] for each in store.list("", "Pod")] == ["fine"]
    store.close()


def test_the_thread_that_writes_never_ends_in_silence(tmp_path: Path) -> None:
    async def write() -> None:
        store = open_store(tmp_path)
        journal: Any = store._journal

        def surprise(*_: object) -> None:
            raise LookupError("nobody thought of this")

        journal._database.commit = surprise
        store.create(P, raw())
        with pytest.raises(StoreFailed, match="cannot be written: nobody thought of this"):
            await asyncio.wait_for(store.settled(1), 10)
        assert store.failure is not None
        with pytest.raises(StoreFailed):
            store.close()

    asyncio.run(write())
