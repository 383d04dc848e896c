"""Drafts: writes of requests in other threads, committed later."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from holdfast.local.store import AlreadyExists, ChangedMeanwhile, Draft, Key, NotFound, Raw, Store

KEY = Key("", "ConfigMap", "default", "a")
OTHER = Key("", "ConfigMap", "default", "b")


def raw(value: str) -> Raw:
    return {"metadata": {"name": "a"}, "data": {"x": value}}


def test_nothing_is_written_before_the_commit() -> None:
    store = Store()
    draft = Draft(store)
    draft.create(KEY, raw("1"))
    assert store.get(KEY) is None
    assert store.revision == 0
    committed = draft.commit()
    assert committed is store.get(KEY)
    assert committed is not None and committed["metadata"]["resourceVersion"] == "1"


def test_a_commit_after_somebody_elses_write_is_refused() -> None:
    store = Store()
    store.create(KEY, raw("1"))
    draft = Draft(store)
    assert draft.get(KEY) is store.get(KEY)
    store.update(KEY, raw("2"))
    seen = draft.get(KEY)
    assert seen is not None and seen["data"] == {"x": "1"}, "it sees what it saw first"
    draft.update(KEY, raw("3"))
    with pytest.raises(ChangedMeanwhile):
        draft.commit()
    kept = store.get(KEY)
    assert kept is not None and kept["data"] == {"x": "2"}


def test_a_creation_after_somebody_elses_is_refused() -> None:
    store = Store()
    draft = Draft(store)
    draft.create(KEY, raw("1"))
    store.create(KEY, raw("2"))
    with pytest.raises(ChangedMeanwhile):
        draft.commit()
    with pytest.raises(AlreadyExists):
        Draft(store).create(KEY, raw("1"))


def test_a_deletion_is_committed_and_writes_of_other_objects_do_not_matter() -> None:
    store = Store()
    store.create(KEY, raw("1"))
    draft = Draft(store)
    draft.delete(KEY)
    store.create(OTHER, raw("2"))
    assert draft.commit() is None
    assert store.get(KEY) is None
    with pytest.raises(NotFound):
        Draft(store).delete(KEY)


def test_lists_are_sorted_and_leave_no_trace_in_the_store() -> None:
    store = Store()
    for name in "cab":
        store.create(KEY._replace(name=name), {"metadata": {"name": name}})
    draft = Draft(store)
    assert [each["metadata"]["name"] for each in draft.list("", "ConfigMap")] == ["a", "b", "c"]
    assert [each["metadata"]["name"] for each in draft.scan("", "ConfigMap")] == ["c", "a", "b"]
    store.create(KEY._replace(name="d"), {"metadata": {"name": "d"}})
    assert len(store.list("", "ConfigMap")) == 4


def test_a_commit_is_refused_after_a_write_to_an_object_that_was_looked_at() -> None:
    store = Store()
    store.create(OTHER, raw("1"))
    writes: list[Callable[[], Raw]] = [
        lambda: store.update(OTHER, raw("2")),
        lambda: store.delete(OTHER),
    ]
    for write in writes:
        draft = Draft(store)
        draft.get(OTHER)
        draft.create(KEY, raw("1"))
        write()
        with pytest.raises(ChangedMeanwhile):
            draft.commit()
    draft = Draft(store)
    assert draft.get(OTHER) is None
    draft.create(KEY, raw("1"))
    store.create(OTHER, raw("3"))
    with pytest.raises(ChangedMeanwhile):
        draft.commit()


def test_a_commit_is_refused_after_a_write_to_a_kind_that_was_gone_through() -> None:
    store = Store()
    third = KEY._replace(name="c")
    writes: list[Callable[[], Raw]] = [
        lambda: store.create(third, raw("1")),
        lambda: store.update(third, raw("2")),
        lambda: store.delete(third),
    ]
    for write in writes:
        scanning, listing = Draft(store), Draft(store)
        scanning.scan("", "ConfigMap")
        listing.list("", "ConfigMap")
        write()
        for draft in (scanning, listing):
            draft.create(KEY._replace(kind="Service"), raw("1"))
            with pytest.raises(ChangedMeanwhile):
                draft.commit()
    draft = Draft(store)
    draft.scan("", "ConfigMap")
    draft.create(KEY._replace(kind="Service"), raw("1"))
    store.create(KEY._replace(kind="Secret"), raw("1"))
    assert draft.commit() is not None, "nobody looked at that kind"
