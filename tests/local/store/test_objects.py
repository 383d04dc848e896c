"""Uids, names and times of new objects."""

import uuid
from collections.abc import Iterator
from typing import Any

import pytest

from holdfast.local.store import Identity, Key, RandomNames, SeededNames, pod_key
from holdfast.local.store.objects import with_generation

P = pod_key("default", "p")


def seeded(seed: int = 0) -> Identity:
    return Identity(SeededNames(seed), lambda: "2026-01-01T00:00:00Z")


def test_the_same_seed_gives_the_same_names() -> None:
    def drawn(identity: Identity) -> list[str]:
        uids = [identity.new(P, {"metadata": {}})["metadata"]["uid"] for _ in range(2)]
        return [*uids, identity.name("a-"), identity.name("a-")]

    assert drawn(seeded(3)) == drawn(seeded(3))
    assert len({*drawn(seeded(3)), *drawn(seeded(4))}) == 8
    assert all(uuid.UUID(uid).version == 5 for uid in drawn(seeded())[:2])


def test_random_names_are_distinct() -> None:
    identity = Identity(RandomNames(), lambda: "")
    names = {identity.name("a-") for _ in range(100)}
    assert len(names) > 97, "five letters may be drawn twice"
    assert len({identity.new(P, {"metadata": {}})["metadata"]["uid"] for _ in range(100)}) == 100


def test_a_seed_makes_no_uid_that_a_given_object_has() -> None:
    first, second, third = (made["uid"] for made in _metadata(seeded(), 3))
    again = seeded()
    again.exclude([{"metadata": {"uid": first}}, {"metadata": {"uid": third}}, {"metadata": {}}])
    fourth = [*_metadata(seeded(), 4)][-1]["uid"]
    assert [made["uid"] for made in _metadata(again, 2)] == [second, fourth]
    kept = seeded()
    assert kept.new(P, {"metadata": {"uid": second}})["metadata"]["uid"] == second
    assert [made["uid"] for made in _metadata(kept, 1)] == [third]


def _metadata(identity: Identity, count: int) -> Iterator[dict[str, Any]]:
    for _ in range(count):
        yield identity.new(P, {"metadata": {}})["metadata"]


def test_a_new_object_gets_what_it_lacks_and_keeps_what_it_has() -> None:
    made = seeded().new(P, {"metadata": {"uid": "mine"}, "spec": {}})
    assert made["metadata"] == {
        "name": "p",
        "namespace": "default",
        "uid": "mine",
        "resourceVersion": "",
        "creationTimestamp": "2026-01-01T00:00:00Z",
        "generation": 1,
    }
    node = seeded().new(Key("", "Node", "", "n"), {"metadata": {"namespace": "x"}})["metadata"]
    assert ("namespace" in node, "generation" in node) == (False, False)


@pytest.mark.parametrize(
    ("before", "after", "generation"),
    [
        ({"spec": {"a": 1}}, {"spec": {"a": 2}}, 2),
        ({"spec": {"a": 1}}, {"spec": {"a": 1, "nodeName": "n"}}, 1),
        ({"spec": {}, "status": {}}, {"spec": {}, "status": {"x": 1}}, 1),
    ],
)
def test_another_spec_is_another_generation(
    before: dict[str, Any], after: dict[str, Any], generation: int
) -> None:
    metadata = {"metadata": {"generation": 1}}
    found = with_generation({**before, **metadata}, {**after, **metadata})
    assert found["metadata"]["generation"] == generation
