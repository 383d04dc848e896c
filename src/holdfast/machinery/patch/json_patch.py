"""JSON merge patch (RFC 7386) and JSON patch (RFC 6902), with the messages of Kubernetes.

Kubernetes deviates from RFC 6902: replacing an absent key adds it, and an index may count from the end.
The result shares with the object what no operation changed: a container is copied when it is first
changed.
"""

from __future__ import annotations

from collections.abc import Callable
from types import NoneType
from typing import Any

import msgspec

from holdfast.machinery.patch.compare import same
from holdfast.machinery.patch.fields import PatchError


def merge_patch(raw: Any, patch: Any) -> Any:
    """Maps are merged, nulls remove, everything else replaces; what is untouched is shared."""
    if not isinstance(patch, dict):
        return patch
    result = dict(raw) if isinstance(raw, dict) else {}
    for key, value in patch.items():
        if value is None:
            result.pop(key, None)
        else:
            result[key] = merge_patch(result.get(key), value)
    return result


_MAX_OPERATIONS = 10_000
_MAX_COPIED = 3 * 1024 * 1024
_MISSING: Any = object()

Change = Callable[[Any, str], None]
"""Changes a container, which is the patch's own, at a key."""


def json_patch(raw: Any, operations: Any) -> Any:
    """Carry the operations out in order; the first that cannot be is an error, and nothing is done."""
    if not isinstance(operations, list):
        raise _undecodable(operations, "[]handlers.jsonPatchOp")
    for operation in operations:
        if not isinstance(operation, dict):
            raise _undecodable(operation, "handlers.jsonPatchOp")
    if len(operations) > _MAX_OPERATIONS:
        count = len(operations)
        text = (
            "Request entity too large: The allowed maximum operations in a JSON patch is "
            f"{_MAX_OPERATIONS}, got {count}"
        )
        raise PatchError(text, code=413, reason="RequestEntityTooLarge")
    return _Patching(raw).carry_out(operations)


class _Patching:
    """The object as the operations so far have left it."""

    def __init__(self, raw: Any) -> None:
        self._raw = raw
        self._own: dict[int, Any] = {}
        """Containers that belong to the patch alone, by identity."""
        self._copied = 0

    def carry_out(self, operations: list[dict[str, Any]]) -> Any:
        for operation in operations:
            kind = operation.get("op")
            carry_out = _OPERATIONS.get(kind) if isinstance(kind, str) else None
            if carry_out is None:
                raise _failed(f"Unexpected kind: {kind if isinstance(kind, str) else 'unknown'}")
            carry_out(self, operation)
        return self._raw

    def add(self, operation: dict[str, Any]) -> None:
        path = _path(operation, "add operation failed to decode path: missing value")
        missing = f'add operation does not apply: doc is missing path: "{path}": missing value'
        wrong = f"error in add for path: '{path}'"
        self._change(path, missing, wrong, _added(operation.get("value")))

    def remove(self, operation: dict[str, Any]) -> None:
        path = _path(operation, "remove operation failed to decode path: missing value")
        missing = f'remove operation does not apply: doc is missing path: "{path}": missing value'
        self._change(path, missing, f"error in remove for path: '{path}'", _removed)

    def replace(self, operation: dict[str, Any]) -> None:
        path = _path(
            operation,
            "replace operation failed to decode path: operation missing path field: missing value",
        )
        value = operation.get("value")
        if not path:
            self._raw = value
            return
        missing = f"replace operation does not apply: doc is missing path: {path}: missing value"

        def replaced(parent: Any, key: str) -> None:
            if isinstance(parent, dict):
                parent[key] = value
                return
            i = _index(key, len(parent))
            if i is None:
                raise _failed(
                    f"replace operation does not apply: doc is missing key: {path}: missing value"
                )
            parent[i] = value

        self._change(path, missing, f"error in remove for path: '{path}'", replaced)

    def move(self, operation: dict[str, Any]) -> None:
        source = _path(operation, "move operation failed to decode from", "from")
        missing = f"move operation does not apply: doc is missing from path: {source}: missing value"
        key = source.rpartition("/")[2]
        value = _get(self._raw, source)
        self._change(source, missing, f"error in move for path: '{key}'", _removed)
        path = _path(operation, "move operation failed to decode path: missing value")
        missing = (
            f"move operation does not apply: doc is missing destination path: {path}: missing value"
        )
        self._change(path, missing, f"error in move for path: '{path}'", _added(value))

    def copy(self, operation: dict[str, Any]) -> None:
        source = _path(operation, "copy operation failed to decode from", "from")
        if _get(self._raw, source.rpartition("/")[0]) is _MISSING:
            raise _failed(
                f"copy operation does not apply: doc is missing from path: {source}: missing value"
            )
        found = _get(self._raw, source)
        encoded = msgspec.json.encode(None if found is _MISSING else found)
        path = _path(operation, "copy operation failed to decode path: missing value")
        missing = (
            f"copy operation does not apply: doc is missing destination path: {path}: missing value"
        )
        # One of its own, since what is changed in the one must not change in the other.
        value = msgspec.json.decode(encoded)
        self._change(path, missing, "error while adding value during copy", _added(value))
        self._copied += len(encoded)
        if self._copied > _MAX_COPIED:
            raise _failed(
                "Unable to complete the copy, the accumulated size increase of copy is "
                f"{self._copied}, exceeding the limit {_MAX_COPIED}"
            )

    def test(self, operation: dict[str, Any]) -> None:
        path = _path(operation, "test operation failed to decode path")
        if path and _get(self._raw, path.rpartition("/")[0]) in (_MISSING, None):
            raise _failed(f"test operation does not apply: is missing path: {path}: missing value")
        found = _get(self._raw, path)
        wanted = operation.get("value")
        if found is _MISSING:
            found = None
        if not same(found, wanted):
            raise _failed(f"testing value {path} failed: test failed")

    def _change(self, path: str, missing: str, wrong: str, change: Change) -> None:
        """Changes the container a path leads to, which it and those on the way are made our own for."""
        steps = _steps(path)
        if not steps:
            raise _failed(missing)
        trail = [self._raw]
        for step in steps[:-1]:
            inner = _step_into(trail[-1], step)
            if inner is _MISSING:
                raise _failed(missing)
            trail.append(inner)
        if not isinstance(trail[-1], dict | list):
            raise _failed(missing)
        self._raw = here = self._ours(self._raw)
        for step in steps[:-1]:
            key: Any = step if isinstance(here, dict) else int(step)
            here[key] = here = self._ours(here[key])
        try:
            change(here, steps[-1])
        except LookupError as error:
            raise _failed(f"{wrong}: {error.args[0]}") from None

    def _ours(self, container: Any) -> Any:
        if id(container) in self._own:
            return container
        ours = container.copy()
        self._own[id(ours)] = ours
        return ours


_OPERATIONS: dict[str, Callable[[_Patching, dict[str, Any]], None]] = {
    "add": _Patching.add,
    "remove": _Patching.remove,
    "replace": _Patching.replace,
    "move": _Patching.move,
    "copy": _Patching.copy,
    "test": _Patching.test,
}


def _undecodable(value: Any, wanted: str) -> PatchError:
    kinds = {dict: "object", list: "array", str: "string", bool: "bool", NoneType: "null"}
    kind = kinds.get(type(value), "number")
    text = f"json: cannot unmarshal {kind} into Go value of type {wanted}"
    return PatchError(f"error decoding patch: {text}")


def _failed(text: str) -> PatchError:
    return PatchError(text, code=422)


def _path(operation: dict[str, Any], complaint: str, field: str = "path") -> str:
    path = operation.get(field)
    if not isinstance(path, str):
        raise _failed(complaint)
    return path


def _steps(path: str) -> list[str]:
    return [step.replace("~1", "/").replace("~0", "~") for step in path.split("/")[1:]]


def _get(raw: Any, path: str) -> Any:
    for step in _steps(path):
        raw = _step_into(raw, step)
        if raw is _MISSING:
            return _MISSING
    return raw


def _step_into(raw: Any, step: str) -> Any:
    if isinstance(raw, dict):
        return raw.get(step, _MISSING)
    if isinstance(raw, list):
        i = _index(step, len(raw))
        return _MISSING if i is None else raw[i]
    return _MISSING


def _index(key: str, size: int) -> int | None:
    """The index in a list of this size; None if it is out of bounds or not a number."""
    try:
        i = int(key)
    except ValueError:
        return None
    if i < 0:
        i += size
    return i if 0 <= i < size else None


def _not_an_index(key: str) -> LookupError:
    try:
        return LookupError(f"Unable to access invalid index: {int(key)}: invalid index referenced")
    except ValueError:
        return LookupError(f'strconv.Atoi: parsing "{key}": invalid syntax')


def _removed(parent: Any, key: str) -> None:
    if isinstance(parent, dict):
        if key not in parent:
            raise LookupError(f"Unable to remove nonexistent key: {key}: missing value")
        del parent[key]
        return
    i = _index(key, len(parent))
    if i is None:
        raise _not_an_index(key)
    del parent[i]


def _added(value: Any) -> Change:
    def added(parent: Any, key: str) -> None:
        if isinstance(parent, dict):
            parent[key] = value
            return
        i = len(parent) if key == "-" else _index(key, len(parent) + 1)
        if i is None:
            error = _not_an_index(key)
            if error.args[0].startswith("strconv"):
                error = LookupError(f"value was not a proper array index: '{key}': {error.args[0]}")
            raise error
        parent.insert(i, value)

    return added
