"""Objects, versions, lists and watches, in memory."""

import asyncio
import json
import tracemalloc
import weakref
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.local.store import (
    AlreadyExists,
    Compacted,
    Conflict,
    FutureRevision,
    Key,
    NotFound,
    Store,
    StoreChange,
    pod_key,
)

P = pod_key("default", "p")


def raw(name: str = "p", **more: Any) -> dict[str, Any]:
    return {"metadata": {"name": name}, **more}


def names(objects: Any) -> list[str]:
    return [each["metadata"]["name"] for each in objects]


def test_every_change_is_one_revision_for_all_kinds() -> None:
    store = Store()
    pod = store.create(P, raw())
    node = store.create(Key("", "Node", "", "n"), raw("n"))
    again = store.update(P, {**pod, "spec": {}})
    store.delete(P)
    assert [each["metadata"]["resourceVersion"] for each in (pod, node, again)] == ["1", "2", "3"]
    assert (store.revision, store.durable) == (4, 4)


def test_objects_are_replaced_and_never_changed() -> None:
    store = Store()
    given = raw()
    first = store.create(P, given)
    assert given == raw()
    second = store.update(P, {**first, "spec": {"a": 1}})
    assert (first["metadata"]["resourceVersion"], "spec" in first) == ("1", False)
    assert store.get(P) is second
    assert store.delete(P) is second
    assert P not in store


def test_what_is_refused_leaves_no_trace() -> None:
    store = Store()
    store.create(P, raw())
    missing = pod_key("default", "q")
    attempts: list[tuple[type[Exception], Callable[[], object]]] = [
        (AlreadyExists, lambda: store.create(P, raw())),
        (NotFound, lambda: store.update(missing, raw("q"))),
        (NotFound, lambda: store.delete(missing)),
        (Conflict, lambda: store.update(P, raw(), expected="7")),
        (Conflict, lambda: store.delete(P, expected="7")),
    ]
    for error, refused in attempts:
        with pytest.raises(error):
            refused()
    assert (store.revision, names(store.list("", "Pod"))) == (1, ["p"])
    store.update(P, raw(), expected="1")
    store.delete(P, expected="2")


def test_the_same_name_again_is_another_object() -> None:
    store = Store()
    store.create(P, raw(a=1))
    store.delete(P)
    store.create(P, raw(a=2))
    kinds = [(c.before is None, c.after is None) for c in store.changes_after(0, "", "Pod")]
    assert kinds == [(True, False), (False, True), (True, False)]


def test_lists_are_sorted_and_scans_are_as_created() -> None:
    store = Store()
    for namespace, name in (("b", "x"), ("a", "z"), ("a-b", "k"), ("a", "y")):
        store.create(pod_key(namespace, name), raw(name))
    assert names(store.list("", "Pod")) == ["y", "z", "k", "x"]
    assert names(store.list("", "Pod", "a")) == ["y", "z"]
    assert names(store.list("", "Pod", "none")) == []
    assert names(store.list("apps", "Pod")) == []
    assert names(store.scan("", "Pod")) == ["x", "z", "k", "y"]
    assert [key.name for key in store.keys_in("a")] == ["z", "y"]


def test_pages_come_from_one_revision() -> None:
    store = Store()
    for name in "abcd":
        store.create(pod_key("x", name), raw(name))
    first = store.snapshot("", "Pod")
    store.delete(pod_key("x", "b"))
    store.update(pod_key("x", "c"), raw("c", spec=1))
    store.create(pod_key("x", "bb"), raw("bb"))
    later = store.snapshot("", "Pod", at=first.revision)
    assert (later.revision, list(later.objects)) == (4, list(first.objects))
    start, end = later.span("x", after=pod_key("x", "b"))
    assert names(later.objects[start:end]) == ["c", "d"]
    assert "spec" not in later.objects[start]
    assert names(store.snapshot("", "Pod", at=5).objects) == ["a", "c", "d"]
    assert names(store.snapshot("", "Pod", at=store.revision).objects) == ["a", "bb", "c", "d"]
    assert names(store.snapshot("", "Node", at=2).objects) == []


def test_a_page_after_a_name_that_is_gone_goes_on_behind_it() -> None:
    store = Store()
    for name in "ac":
        store.create(pod_key("x", name), raw(name))
    snapshot = store.snapshot("", "Pod")
    start, end = snapshot.span(None, after=pod_key("x", "b"))
    assert names(snapshot.objects[start:end]) == ["c"]
    assert snapshot.span(None, after=pod_key("z", "z")) == (2, 2)


def test_a_watch_begins_anywhere_that_is_remembered() -> None:
    store = Store()
    for name in "abc":
        store.create(pod_key("x", name), raw(name))
    store.create(Key("", "Node", "", "n"), raw("n"))
    assert [c.key.name for c in store.changes_after(1, "", "Pod")] == ["b", "c"]
    assert store.changes_after(4, "", "Pod") == []
    with pytest.raises(FutureRevision):
        store.changes_after(5, "", "Pod")
    store.compact(2)
    assert [c.key.name for c in store.changes_after(2, "", "Pod")] == ["c"]
    for too_old in (lambda: store.changes_after(1, "", "Pod"), lambda: store.snapshot("", "Pod", at=1)):
        with pytest.raises(Compacted, match=r"too old resource version: 1 \(2\)"):
            too_old()
    with pytest.raises(FutureRevision):
        store.compact(9)
    store.compact(1)
    assert store.compacted == 2


def test_what_is_remembered_is_bounded() -> None:
    store = Store(keep=100)
    for i in range(5_000):
        store.create(pod_key("x", str(i)), raw(str(i)))
    assert 100 <= store.revision - store.compacted <= 125
    assert len(store.changes_after(store.compacted, "", "Pod")) == store.revision - store.compacted
    assert store.count("", "Pod") == 5_000


def test_listeners_are_notified_in_order_even_of_the_writes_of_listeners() -> None:
    store = Store()
    notified: dict[str, list[int]] = {"observer": [], "late": [], "subscriber": []}

    def answer(change: StoreChange) -> None:
        notified["observer"].append(change.revision)
        if change.before is None and change.after is not None:
            store.update(change.key, change.after)

    store.observe(answer)
    store.observe(lambda change: notified["late"].append(change.revision))
    store.subscribe(lambda change: notified["subscriber"].append(change.revision))
    store.create(P, raw())
    store.delete(P)
    assert notified == {who: [1, 2, 3] for who in notified}


def test_a_listener_can_unsubscribe_during_its_notification() -> None:
    store = Store()
    notified: list[int] = []

    def once(change: StoreChange) -> None:
        notified.append(change.revision)
        stop()

    stop = store.subscribe(once)
    again = store.subscribe(once)
    store.create(P, raw())
    store.update(P, raw())
    again()
    store.update(P, raw())
    assert notified == [1, 1, 2]


async def _settled(store: Store, revision: int) -> None:
    await store.settled(revision)


def test_without_a_journal_all_is_settled_at_once() -> None:
    store = Store()
    store.create(P, raw())
    asyncio.run(_settled(store, 1))
    with pytest.raises(FutureRevision):
        asyncio.run(_settled(store, 2))


def test_history_is_bounded_by_bytes_too() -> None:
    store = Store(keep=1_000, keep_bytes=100_000)
    keys = [Key("", "ConfigMap", "default", f"c{i}") for i in range(5)]
    for key in keys:
        store.create(key, {"metadata": {"name": key.name}, "data": "x" * 10_000})
    for turn in range(20):
        for key in keys:
            store.update(key, {"metadata": {"name": key.name}, "data": str(turn) * 10_000})
    # Each change holds the version it replaced.
    assert store.revision - store.compacted <= 10
    with pytest.raises(Compacted):
        store.changes_after(store.compacted - 1, "", "ConfigMap")
    assert store.changes_after(store.compacted, "", "ConfigMap")
    for key in keys:
        store.delete(key)
    assert store.revision - store.compacted <= 10


@pytest.mark.parametrize(
    "data",
    [
        {f"key-{i}": "x" for i in range(5_000)},
        [{} for _ in range(5_000)],
        [[] for _ in range(5_000)],
        [{"a": i} for i in range(5_000)],
        list(range(1_000, 6_000)),
        {f"f:{i}": {".": {}} for i in range(5_000)},
        {"text": "x" * 100_000},
    ],
    ids=["fields", "objects", "lists", "nested", "numbers", "managed", "text"],
)
def test_history_counts_what_objects_take_in_memory(data: Any) -> None:
    """Of many small fields that is ten times what they take as JSON."""
    text = json.dumps(data)
    tracemalloc.start()
    store = Store(keep=1_000_000, keep_bytes=20_000_000)
    before, _ = tracemalloc.get_traced_memory()
    for turn in range(60):
        change = store.update if turn else store.create
        change(P, raw(data=json.loads(text)))
    held, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert held - before < 30_000_000


def test_small_changes_are_bounded_by_number() -> None:
    store = Store(keep=100, keep_bytes=10**9)
    for i in range(500):
        store.create(Key("", "ConfigMap", "default", f"c{i}"), {"metadata": {"name": f"c{i}"}})
    assert 100 <= store.revision - store.compacted <= 104


def test_a_failing_listener_does_not_keep_others_from_being_notified() -> None:
    store = Store()
    notified: list[int] = []

    def fails(change: StoreChange) -> None:
        raise LookupError("broken")

    store.observe(fails)
    store.observe(lambda change: notified.append(change.revision))
    with pytest.raises(LookupError):
        store.create(Key("", "ConfigMap", "default", "c"), {"metadata": {"name": "c"}})
    assert notified == [1]


def test_what_is_forgotten_is_not_held() -> None:
    class Held(dict[str, Any]):
        """As a dict, but there can be weak references to it."""

    store = Store(keep=2, keep_bytes=10**9)
    versions = []
    for i in range(20):
        held = Held(a=i)
        versions.append(weakref.ref(held))
        change = store.update if i else store.create
        change(P, raw(data=held))
        del held
    assert [each() is not None for each in versions].count(True) <= 4


@given(
    st.lists(
        st.tuples(st.sampled_from(("create", "update", "delete", "list")), st.integers(0, 6)),
        max_size=40,
    )
)
def test_lists_are_in_order_whatever_has_come_and_gone_since_the_last(
    steps: list[tuple[str, int]],
) -> None:
    store = Store()
    for what, number in steps:
        key = pod_key("default", f"p{number}")
        if what == "create" and key not in store:
            store.create(key, {"metadata": {"name": key.name}})
        elif what == "update" and key in store:
            store.update(key, {"metadata": {"name": key.name}})
        elif what == "delete" and key in store:
            store.delete(key)
        elif what == "list":
            expected = sorted(store.scan("", "Pod"), key=lambda raw: str(raw["metadata"]["name"]))
            assert store.list("", "Pod") == expected


def test_keys_of_a_kind_that_is_not_listed_again_are_not_kept() -> None:
    store = Store()
    store.list("", "Pod")
    for number in range(5_000):
        key = pod_key("default", f"p{number}")
        store.create(key, {"metadata": {"name": key.name}})
        store.delete(key)
    assert not store._order
