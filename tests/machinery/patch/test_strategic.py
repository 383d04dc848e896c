"""Strategic merge: lists merged by their keys, and the directives a patch may have."""

from __future__ import annotations

from typing import Any

import pytest

from holdfast.machinery.patch import PatchError, strategic_merge
from holdfast.machinery.schema import ResourceType
from holdfast.machinery.schema.catalogue import Catalogue

CATALOGUE = Catalogue()


def type_of(group: str, plural: str) -> ResourceType:
    type = CATALOGUE.resource(group, "v1", plural)
    assert type is not None
    return type


def containers(*names: str) -> list[dict[str, Any]]:
    return [{"name": name, "image": name} for name in names]


@pytest.mark.parametrize(
    ("old", "patch", "expected"),
    [
        pytest.param(
            {"containers": containers("a", "b")},
            {"containers": [{"name": "b", "image": "x"}]},
            {"containers": [{"name": "a", "image": "a"}, {"name": "b", "image": "x"}]},
            id="items are merged by their key",
        ),
        pytest.param(
            {"containers": containers("a", "b")},
            {"containers": [{"name": "c"}, {"name": "a"}]},
            {"containers": [{"name": "c"}, *containers("a", "b")]},
            id="the patch's order comes first",
        ),
        pytest.param(
            {"containers": containers("a", "b", "c")},
            {"containers": [{"name": "b", "$patch": "delete"}]},
            {"containers": containers("a", "c")},
            id="an item is deleted",
        ),
        pytest.param(
            {"containers": containers("a", "b")},
            {"containers": [{"$patch": "replace"}, {"name": "z"}]},
            {"containers": [{"name": "z"}]},
            id="a list is replaced",
        ),
        pytest.param(
            {"containers": containers("a", "b", "c")},
            {
                "$setElementOrder/containers": [{"name": "c"}, {"name": "a"}],
                "containers": [{"name": "a", "image": "x"}],
            },
            {"containers": [*containers("b", "c"), {"name": "a", "image": "x"}]},
            id="an order is set; what it does not name stays before its old neighbour",
        ),
        pytest.param(
            {"nodeSelector": {"a": "1", "b": "2"}},
            {"nodeSelector": {"a": None, "c": "3"}},
            {"nodeSelector": {"b": "2", "c": "3"}},
            id="a null removes a key",
        ),
        pytest.param(
            {"nodeSelector": {"a": "1"}},
            {"nodeSelector": {"$patch": "replace", "c": "3"}},
            {"nodeSelector": {"c": "3"}},
            id="a map is replaced",
        ),
        pytest.param(
            {"nodeSelector": {"a": "1"}},
            {"nodeSelector": {"$patch": "delete"}},
            {"nodeSelector": {}},
            id="a map is emptied",
        ),
        pytest.param(
            {"tolerations": [{"key": "a"}]},
            {"tolerations": [{"key": "b"}]},
            {"tolerations": [{"key": "b"}]},
            id="a list without a key is replaced",
        ),
        pytest.param(
            {"volumes": [{"name": "v", "emptyDir": {}}]},
            {
                "volumes": [
                    {"name": "v", "$retainKeys": ["name", "hostPath"], "hostPath": {"path": "/"}}
                ]
            },
            {"volumes": [{"name": "v", "hostPath": {"path": "/"}}]},
            id="only named keys are retained",
        ),
        pytest.param(
            {},
            {"affinity": {"nodeAffinity": None, "podAffinity": {}}},
            {"affinity": {"podAffinity": {}}},
            id="nulls in a new part are dropped",
        ),
    ],
)
def test_pod_specs(old: Any, patch: Any, expected: Any) -> None:
    assert strategic_merge(type_of("", "pods"), {"spec": old}, {"spec": patch}) == {"spec": expected}


def test_finalizers_are_a_set() -> None:
    old = {"metadata": {"finalizers": ["a/a", "b/b"]}}
    patch = {"metadata": {"finalizers": ["c/c"], "$deleteFromPrimitiveList/finalizers": ["a/a"]}}
    assert strategic_merge(type_of("", "pods"), old, patch) == {
        "metadata": {"finalizers": ["c/c", "b/b"]}
    }


def test_a_disruption_budget_replaces_its_selector() -> None:
    old = {"spec": {"selector": {"matchLabels": {"a": "b"}}}}
    patch = {"spec": {"selector": {"matchLabels": {"c": "d"}}}}
    assert strategic_merge(type_of("policy", "poddisruptionbudgets"), old, patch) == patch


@pytest.mark.parametrize(
    ("patch", "code", "message"),
    [
        (
            {"containers": [{"image": "x"}]},
            500,
            "map: map[image:x] does not contain declared merge key: name",
        ),
        (
            {"containers": [{"name": "a", "$patch": "dance"}]},
            500,
            "unknown patch type: dance in map: map[$patch:dance name:a]",
        ),
        ({"$retainKeys": ["a"], "containers": []}, 400, "invalid patch format of retainKeys"),
        ({"$setElementOrder": []}, 400, "invalid patch format of setElementOrder list"),
        (
            {"$setElementOrder/containers": [{"name": "b"}], "containers": [{"name": "a"}]},
            500,
            "The order in patch list:\n[map[name:a]]\n doesn't match $setElementOrder list:\n"
            "[map[name:b]]\n",
        ),
    ],
)
def test_an_invalid_patch_is_refused(patch: Any, code: int, message: str) -> None:
    with pytest.raises(PatchError) as caught:
        strategic_merge(type_of("", "pods"), {"spec": {"containers": containers("a")}}, {"spec": patch})
    assert (caught.value.code, caught.value.message) == (code, message)


def test_the_old_object_is_left_as_it_was() -> None:
    old = {"spec": {"containers": containers("a"), "nodeSelector": {"a": "b"}}}
    patch = {"spec": {"containers": [{"name": "a", "$patch": "delete"}], "nodeSelector": None}}
    strategic_merge(type_of("", "pods"), old, patch)
    assert old == {"spec": {"containers": containers("a"), "nodeSelector": {"a": "b"}}}
    assert "nodeSelector" in patch["spec"]
