"""A store whose objects are on a real server: read from watches, written by requests.

The parts of the embedded cluster live on it as they do on their own: what they write is there when the
call returns. Requests are made in the thread of the event loop, which waits for them.
"""

from __future__ import annotations

from typing import Any

from drivers.player import MERGE
from drivers.real_client import Requests
from holdfast.api.kinds import KINDS, KindInfo
from holdfast.kube.client import path_of
from holdfast.local.store.objects import AlreadyExists, Key, Raw
from holdfast.local.store.store import Store

_CONFLICT, _NOT_FOUND = 409, 404
_SERVERS_OWN = ("uid", "resourceVersion", "creationTimestamp", "generation", "managedFields")
_NOT_KEPT = ("Event", "Binding")
KINDS_KEPT = {(i.group, i.kind): i for i in KINDS.values() if i.kind not in _NOT_KEPT}
_WRITTEN = {**KINDS_KEPT, ("", "Event"): KINDS["v1", "Event"]}


class ServedStore(Store):
    def __init__(self, requests: Requests) -> None:
        super().__init__(keep=0)
        self._requests = requests
        self._versions: dict[Key, int] = {}
        self._gone: set[str] = set()

    def saw(self, kind: str, info: KindInfo, raw: Raw) -> None:
        """A watch has shown an object."""
        metadata = raw["metadata"]
        key = Key(info.group, info.kind, metadata.get("namespace", ""), metadata["name"])
        if kind == "DELETED":
            self._left(key, metadata["uid"])
        else:
            self._came(key, {"apiVersion": info.api_version, "kind": info.kind, **raw})

    # What the cluster's parts do

    def create(self, key: Key, raw: Raw) -> Raw:
        body = {**raw, "metadata": _without(raw["metadata"], _SERVERS_OWN)}
        status, made = self._requests.make("POST", path_of(_info(key), key.namespace), body)
        if status == _CONFLICT and key.kind == "Event":
            # The scheduler has a recorder of its own, with the same clock: it took the name.
            name = f"{key.name}.1"
            return self.create(
                key._replace(name=name), raw | {"metadata": raw["metadata"] | {"name": name}}
            )
        if status == _CONFLICT:
            raise AlreadyExists(key)
        _check(status, made)
        if raw.get("status") and _info(key).has_status:
            made = self._patch(key, {"status": raw["status"]}, "status")
        return self._came(key, made)

    def update(self, key: Key, raw: Raw, expected: str | None = None) -> Raw:
        before = self._found(key, expected)
        if raw["metadata"].get("deletionTimestamp") and not before["metadata"].get("deletionTimestamp"):
            return self._marked(key, raw)
        patch = _difference(before, raw)
        status = patch.pop("status", None) if _info(key).has_status else None
        after = before
        if patch:
            after = self._came(key, self._patch(key, patch))
        if status is not None and self.get(key) is not None:
            after = self._came(key, self._patch(key, {"status": status}, "status"))
        return after

    def delete(self, key: Key, expected: str | None = None) -> Raw:
        before = self._found(key, expected)
        path = self._path(key)
        if key.kind == "Namespace":
            emptied = {**before, "spec": {"finalizers": []}}
            emptied["metadata"] = _without(before["metadata"], _SERVERS_OWN)
            answer = self._requests.make("PUT", f"{path}/finalize", emptied)
        else:
            if before["metadata"].get("finalizers"):  # what deletes it has done what they wait for
                answer = self._requests.make("PATCH", path, {"metadata": {"finalizers": None}}, MERGE)
                _check(*answer)
            answer = self._requests.make("DELETE", path, {"gracePeriodSeconds": 0})
        if answer[0] != _NOT_FOUND:
            _check(*answer)
        self._left(key, before["metadata"]["uid"])
        return before

    def _marked(self, key: Key, raw: Raw) -> Raw:
        """To be deleted, by and by: the server sets the time, and deletes it if nothing keeps it."""
        grace = raw["metadata"].get("deletionGracePeriodSeconds") or 0
        answer = self._requests.make("DELETE", self._path(key), {"gracePeriodSeconds": grace})
        _check(*answer)
        status, now = self._requests.make("GET", self._path(key))
        if status == _NOT_FOUND:
            self._left(key, raw["metadata"]["uid"])
            return raw
        after = self._came(key, now)
        if after.get("status") != raw.get("status"):
            after = self._came(key, self._patch(key, {"status": raw["status"]}, "status"))
        return after

    def _patch(self, key: Key, patch: Raw, subresource: str = "") -> Raw:
        path = path_of(_info(key), key.namespace, key.name, subresource)
        status, after = self._requests.make("PATCH", path, patch, MERGE)
        _check(status, after)
        return after

    def _path(self, key: Key) -> str:
        return path_of(_info(key), key.namespace, key.name)

    # What is known

    def _came(self, key: Key, raw: Raw) -> Raw:
        """The object is there, in this version if none newer is known."""
        metadata = raw["metadata"]
        before, version = self.get(key), int(metadata["resourceVersion"])
        if before is not None and before["metadata"]["uid"] != metadata["uid"]:
            if version < self._versions[key]:
                return before
            self._left(key, before["metadata"]["uid"])
            before = None
        if metadata["uid"] in self._gone:
            return raw
        if before is not None and version <= self._versions[key]:
            return before
        self._versions[key] = version
        return super().create(key, raw) if before is None else super().update(key, raw)

    def _left(self, key: Key, uid: str) -> None:
        self._gone.add(uid)
        known = self.get(key)
        if known is not None and known["metadata"]["uid"] == uid:
            super().delete(key)


def _info(key: Key) -> KindInfo:
    return _WRITTEN[key[:2]]


def _difference(before: Raw, after: Raw) -> Raw:
    """The merge patch that leads from one to the other, without fields that only the server sets."""
    patch: Raw = {name: None for name in before if name not in after}
    for name, value in after.items():
        known = before.get(name)
        if name in _SERVERS_OWN or value == known:
            continue
        if isinstance(value, dict) and isinstance(known, dict):
            value = _difference(known, value)
        patch[name] = value
    return {name: value for name, value in patch.items() if value != {} or before.get(name) is None}


def _without(raw: Raw, fields: tuple[str, ...]) -> Raw:
    return {name: value for name, value in raw.items() if name not in fields}


def _check(status: int, answer: Any) -> None:
    if status >= 300:
        raise AssertionError(f"{status}: {answer.get('message')}")
