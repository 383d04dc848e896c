"""JSON patch: what the operations do, and the errors of Kubernetes when one cannot be carried out."""

from __future__ import annotations

from typing import Any

import pytest

from holdfast.machinery.patch import PatchError, json_patch, merge_patch

DOC: dict[str, Any] = {"a": {"b": [1, 2, 3], "c/d": "x"}, "e": None}


def op(kind: str, path: str, value: Any = None, **more: Any) -> dict[str, Any]:
    return {"op": kind, "path": path, "value": value, **more}


@pytest.mark.parametrize(
    ("operations", "expected"),
    [
        ([op("add", "/x", 1)], {**DOC, "x": 1}),
        ([op("add", "/a/b/-", 4)], {**DOC, "a": {"b": [1, 2, 3, 4], "c/d": "x"}}),
        ([op("add", "/a/b/0", 0)], {**DOC, "a": {"b": [0, 1, 2, 3], "c/d": "x"}}),
        ([op("add", "/a/b/-1", 9)], {**DOC, "a": {"b": [1, 2, 3, 9], "c/d": "x"}}),
        ([op("remove", "/a/b/1")], {**DOC, "a": {"b": [1, 3], "c/d": "x"}}),
        ([op("remove", "/a/c~1d")], {**DOC, "a": {"b": [1, 2, 3]}}),
        ([op("replace", "/a", 1)], {"a": 1, "e": None}),
        ([op("replace", "/new", 1)], {**DOC, "new": 1}),
        ([op("replace", "", {"z": 1})], {"z": 1}),
        ([op("move", "/m", **{"from": "/a/b"})], {"a": {"c/d": "x"}, "e": None, "m": [1, 2, 3]}),
        ([op("copy", "/m", **{"from": "/a/b/0"})], {**DOC, "m": 1}),
        ([op("copy", "/m", **{"from": "/nothing"})], {**DOC, "m": None}),
        ([op("test", "/a/b/0", 1), op("remove", "/a")], {"e": None}),
        ([op("test", "/nowhere", None)], DOC),
    ],
)
def test_operations(operations: list[Any], expected: Any) -> None:
    before = {"a": {"b": [1, 2, 3], "c/d": "x"}, "e": None}
    assert json_patch(DOC, operations) == expected
    assert before == DOC


@pytest.mark.parametrize(
    ("operation", "message"),
    [
        (op("dance", "/a"), "Unexpected kind: dance"),
        (
            op("add", "/x/y", 1),
            'add operation does not apply: doc is missing path: "/x/y": missing value',
        ),
        (
            op("add", "/a/b/7", 1),
            "error in add for path: '/a/b/7': "
            "Unable to access invalid index: 7: invalid index referenced",
        ),
        (
            op("remove", "/x"),
            "error in remove for path: '/x': Unable to remove nonexistent key: x: missing value",
        ),
        (
            op("replace", "/x/y", 1),
            "replace operation does not apply: doc is missing path: /x/y: missing value",
        ),
        (op("test", "/a/b/0", 2), "testing value /a/b/0 failed: test failed"),
        (op("test", "/a/b/0", True), "testing value /a/b/0 failed: test failed"),
        (
            op("copy", "/m", **{"from": "/x/y"}),
            "copy operation does not apply: doc is missing from path: /x/y: missing value",
        ),
    ],
)
def test_an_operation_that_cannot_be_carried_out(operation: Any, message: str) -> None:
    with pytest.raises(PatchError) as caught:
        json_patch(DOC, [operation])
    assert caught.value.message == message
    assert caught.value.code == 422


@pytest.mark.parametrize(
    ("operations", "found", "wanted"),
    [({"op": "add"}, "object", "[]handlers.jsonPatchOp"), ([5], "number", "handlers.jsonPatchOp")],
)
def test_a_patch_that_is_no_list_is_a_bad_request(operations: Any, found: str, wanted: str) -> None:
    with pytest.raises(PatchError) as caught:
        json_patch(DOC, operations)
    text = f"error decoding patch: json: cannot unmarshal {found} into Go value of type {wanted}"
    assert (caught.value.code, caught.value.message) == (400, text)


def test_a_patch_has_so_many_operations_at_most() -> None:
    with pytest.raises(PatchError) as caught:
        json_patch(DOC, [op("test", "/x", None)] * 10_001)
    assert (caught.value.code, caught.value.reason) == (413, "RequestEntityTooLarge")
    assert caught.value.message.endswith("maximum operations in a JSON patch is 10000, got 10001")


def test_what_is_not_touched_is_shared() -> None:
    result = json_patch(DOC, [op("add", "/x", 1)])
    assert result["a"] is DOC["a"]


@pytest.mark.parametrize(
    ("raw", "patch", "expected"),
    [
        ({"a": {"b": 1, "c": 2}}, {"a": {"b": None, "d": 3}}, {"a": {"c": 2, "d": 3}}),
        ({"a": [1, 2]}, {"a": [3]}, {"a": [3]}),
        ({"a": 1}, {"a": {"b": None, "c": {"d": None}}}, {"a": {"c": {}}}),
        ({}, {"a": None}, {}),
    ],
)
def test_merge_patch(raw: Any, patch: Any, expected: Any) -> None:
    assert merge_patch(raw, patch) == expected
