"""An API server in memory that fails by a script.

It knows what a scheduler uses: lists in pages, watches, bindings, patches, preconditions.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, Callable
from copy import deepcopy
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import parse_qsl, urlsplit

from holdfast.kube.client import Request, api_error
from holdfast.kube.errors import ApiError, NoConnection, Unreachable

Raw = dict[str, Any]
Key = tuple[str, str]


@dataclass
class Fault:
    """What happens to requests that match, so many times."""

    method: str = ""
    path: str = ""
    """Part of it, query included."""
    times: float = 1
    status: int = 0
    reason: str = ""
    message: str = "scripted"
    retry_after: float | None = None
    cut: str = ""
    """`before` the request is carried out, or `after`."""
    delay: float = 0.0

    def matches(self, method: str, path: str) -> bool:
        return self.times > 0 and self.method in ("", method) and self.path in path


@dataclass
class Collection:
    objects: dict[Key, Raw] = field(default_factory=dict)
    log: list[tuple[int, str, Raw]] = field(default_factory=list)


class Watching(asyncio.Queue[Any]):
    """The events that one watcher of a path has yet to receive."""

    def __init__(self, path: str, query: dict[str, str]) -> None:
        super().__init__()
        self.path = path
        self._query = query
        self.is_about_the_ended = "status.phase!=Running" in query.get("fieldSelector", "")

    def send(self, kind: str, raw: Raw) -> None:
        """What ceases to be selected is deleted, in the state it was in before."""
        if not _selected(raw, self._query):
            kind, raw = "DELETED", raw | {"status": raw.get("status", {}) | {"phase": "Running"}}
        self.put_nowait(_frame(kind, raw))


class FakeApi:
    def __init__(self) -> None:
        self.version = 100
        self.compacted = 0
        self.faults: list[Fault] = []
        self.requests: list[tuple[str, str]] = []
        self.bodies: list[Any] = []
        self._lost: list[Request] = []
        self.served: set[str] | None = None
        """The collections there are; None for any."""
        self.streams = False
        self.watches: list[Watching] = []
        self.on_bind: Callable[[Raw], None] | None = None
        self.binds: list[tuple[str, str]] = []
        self._collections: dict[str, Collection] = {}
        self._uids = 0
        self.silent = False
        """Whether watches send nothing more, though they stay open."""

    # What the test does

    def create(self, raw: Raw) -> Raw:
        raw = deepcopy(raw)
        self._uids += 1
        meta = raw.setdefault("metadata", {})
        meta["uid"] = f"{meta.get('name')}-{self._uids}"
        self._put(_collection_of(raw), raw, "ADDED")
        return raw

    def change(self, raw: Raw, silently: bool = False) -> Raw:
        raw = deepcopy(raw)
        self._put(_collection_of(raw), raw, "MODIFIED", silently)
        return raw

    def delete(self, raw: Raw, silently: bool = False) -> None:
        path = _collection_of(raw)
        gone = self._of(path).objects.pop(_key(raw), None)
        if gone is not None:
            self.version += 1
            gone["metadata"]["resourceVersion"] = str(self.version)
            self._notify(path, "DELETED", gone, silently)

    def get(self, kind_path: str, name: str, namespace: str = "default") -> Raw:
        return self._of(kind_path).objects[namespace, name]

    def all(self, kind_path: str) -> list[Raw]:
        return list(self._of(kind_path).objects.values())

    def pods(self) -> dict[str, str]:
        """Their nodes."""
        return {p["metadata"]["name"]: p["spec"].get("nodeName", "") for p in self.all("/api/v1/pods")}

    def cut_watches(self) -> None:
        for queue in self.watches:
            queue.put_nowait(Unreachable("cut"))

    def end_watches(self) -> None:
        for queue in self.watches:
            queue.put_nowait(None)

    def send_to_all(self, frame: Raw) -> None:
        """To all watches, whatever they watch."""
        for queue in self.watches:
            queue.put_nowait(json.dumps(frame).encode() + b"\n")

    def expire(self) -> None:
        """Nothing before now can be watched any more."""
        self.compacted = self.version

    def count(self, method: str, path: str = "") -> int:
        return sum(m == method and path in p for m, p in self.requests)

    def carry_out_late(self) -> None:
        """Carries out the first request that was cut before it was. Raises ApiError."""
        self._answer(self._lost.pop(0))

    # What the client sees

    async def handle(self, request: Request) -> bytes:
        method, path = request.method, request.path
        self.requests.append((method, path))
        fault = next((fault for fault in self.faults if fault.matches(method, path)), None)
        if fault is not None:
            fault.times -= 1
            if fault.delay:
                if fault.delay >= request.timeout:
                    await asyncio.sleep(request.timeout)
                    if fault.cut == "after":
                        self._answer(request)
                    raise Unreachable("no response in time")
                await asyncio.sleep(fault.delay)
            if fault.cut == "before":
                self._lost.append(request)
                raise NoConnection("refused")
            if fault.status:
                error = api_error(fault.status, _status(fault), None)
                error.retry_after = fault.retry_after
                raise error
            if fault.cut == "after":
                self._answer(request)
                raise Unreachable("cut")
        await asyncio.sleep(0.001)
        return self._answer(request)

    def _answer(self, request: Request) -> bytes:
        url = urlsplit(request.path)
        query = dict(parse_qsl(url.query))
        body = json.loads(request.body) if request.body else None
        self.bodies.append((request.method, url.path, body))
        path, key, subresource = _split(url.path)
        self._check_served(path)
        if request.method == "GET" and key is None:
            return self._list(path, query)
        answer = self._one(request.method, path, key, subresource, body)
        return json.dumps(answer).encode()

    def _one(self, method: str, path: str, key: Key | None, subresource: str, body: Any) -> Raw:
        if method == "POST" and subresource == "binding":
            assert key is not None
            return self._bind(path, key, body)
        if method == "POST" and subresource == "eviction":
            method, body = "DELETE", body.get("deleteOptions")
        if method == "POST":
            if "name" not in body["metadata"] and "generateName" in body["metadata"]:
                body["metadata"]["name"] = f"{body['metadata']['generateName']}{self.version}"
            key = _key(body)
            if key in self._of(path).objects:
                raise ApiError(409, "AlreadyExists", "it exists")
            if "uid" not in body["metadata"]:
                self._uids += 1
                body["metadata"]["uid"] = f"made-{self._uids}"
            self._put(path, body, "ADDED")
            made: Raw = body
            return made
        assert key is not None
        found = self._of(path).objects.get(key)
        if found is None:
            raise ApiError(404, "NotFound", f'{path.rpartition("/")[2]} "{key[1]}" not found')
        if method == "GET":
            return found
        if isinstance(body, list):
            body = _from_json_patch(found, body)
        _check_preconditions(found, body if method != "DELETE" else _preconditions(body))
        if method == "DELETE":
            self.delete(found)
            return {"kind": "Status", "status": "Success"}
        changed = _merged(found, body) if method == "PATCH" else {**body}
        changed["metadata"] = {**changed["metadata"], "uid": found["metadata"]["uid"]}
        self._put(path, changed, "MODIFIED")
        return changed

    def _bind(self, path: str, key: Key, body: Raw) -> Raw:
        pod = self._of(path).objects.get(key)
        if pod is None:
            raise ApiError(404, "NotFound", f'pods "{key[1]}" not found')
        wanted = ("uid", "resourceVersion")
        _check_preconditions(pod, {"metadata": {name: body["metadata"].get(name) for name in wanted}})
        start = f'Operation cannot be fulfilled on pods/binding "{key[1]}"'
        if pod["metadata"].get("deletionTimestamp"):
            raise ApiError(409, "Conflict", f"{start}: pod {key[1]} is being deleted")
        if pod["spec"].get("nodeName"):
            node = pod["spec"]["nodeName"]
            raise ApiError(
                409, "Conflict", f'{start}: pod {key[1]} is already assigned to node "{node}"'
            )
        pod = deepcopy(pod)
        pod["spec"]["nodeName"] = body["target"]["name"]
        written = body["metadata"].get("annotations") or {}
        pod["metadata"]["annotations"] = {**(pod["metadata"].get("annotations") or {}), **written}
        self.binds.append((key[1], body["target"]["name"]))
        self._put(path, pod, "MODIFIED")
        return {"kind": "Status", "status": "Success"}

    def _list(self, path: str, query: dict[str, str]) -> bytes:
        objects = [o for o in self._of(path).objects.values() if _selected(o, query)]
        start = 0
        version = self.version
        if "continue" in query:
            at, _, since = query["continue"].partition("@")
            if int(since) < self.compacted:
                raise ApiError(410, "Expired", "The provided continue parameter is too old")
            start, version = int(at), int(since)
        limit = int(query.get("limit", 0)) or len(objects)
        page = objects[start : start + limit]
        meta: Raw = {"resourceVersion": str(version)}
        if start + limit < len(objects):
            meta["continue"] = f"{start + limit}@{version}"
        bare = [{k: v for k, v in o.items() if k not in ("kind", "apiVersion")} for o in page]
        return json.dumps({"kind": "List", "metadata": meta, "items": bare}).encode()

    async def watch(self, path: str, idle: float) -> AsyncGenerator[bytes, None]:
        self.requests.append(("WATCH", path))
        url = urlsplit(path)
        query = dict(parse_qsl(url.query))
        fault = next((fault for fault in self.faults if fault.matches("WATCH", path)), None)
        if fault is not None:
            fault.times -= 1
            if fault.cut:
                raise NoConnection("refused") if fault.cut == "before" else Unreachable("cut")
            if fault.status:
                error = api_error(fault.status, _status(fault), None)
                error.retry_after = fault.retry_after
                raise error
        self._check_served(url.path)
        queue = Watching(url.path, query)
        initial = query.get("sendInitialEvents") == "true"
        if initial and not self.streams:
            raise ApiError(422, "Invalid", "sendInitialEvents is forbidden")
        if fault is not None and not fault.cut:
            return  # closes at once
        if initial:
            for obj in self._of(url.path).objects.values():
                if _selected(obj, query):
                    queue.put_nowait(_frame("ADDED", obj))
            mark = {
                "annotations": {"k8s.io/initial-events-end": "true"},
                "resourceVersion": str(self.version),
            }
            queue.put_nowait(_frame("BOOKMARK", {"metadata": mark}))
        else:
            since = int(query["resourceVersion"])
            if since < self.compacted:
                error_ = {"kind": "Status", "code": 410, "reason": "Expired", "message": "too old"}
                queue.put_nowait(_frame("ERROR", error_))
            for version, kind, obj in self._of(url.path).log:
                if version > since:
                    queue.send(kind, obj)
        self.watches.append(queue)
        try:
            while True:
                try:
                    async with asyncio.timeout(idle):
                        item = await queue.get()
                        while self.silent:
                            await asyncio.sleep(idle)
                except TimeoutError:
                    raise Unreachable("no response in time") from None
                if item is None:
                    return
                if isinstance(item, Exception):
                    raise item
                yield item
        finally:
            self.watches.remove(queue)

    # How it is kept

    def _of(self, path: str) -> Collection:
        return self._collections.setdefault(path, Collection())

    def _check_served(self, path: str) -> None:
        if self.served is not None and path not in self.served:
            raise ApiError(404, "NotFound", "the server could not find the requested resource")

    def _put(self, path: str, raw: Raw, kind: str, silently: bool = False) -> None:
        self.version += 1
        raw["metadata"]["resourceVersion"] = str(self.version)
        self._of(path).objects[_key(raw)] = raw
        self._notify(path, kind, deepcopy(raw), silently)

    def _notify(self, path: str, kind: str, raw: Raw, silently: bool) -> None:
        if silently:
            return
        self._of(path).log.append((self.version, kind, raw))
        for queue in self.watches:
            if queue.path == path:
                queue.send(kind, raw)


def _frame(kind: str, raw: Raw) -> bytes:
    return json.dumps({"type": kind, "object": raw}).encode() + b"\n"


def _status(fault: Fault) -> bytes:
    return json.dumps({"kind": "Status", "reason": fault.reason, "message": fault.message}).encode()


def _key(raw: Raw) -> Key:
    meta = raw["metadata"]
    return meta.get("namespace", ""), meta["name"]


_PLURALS = {"StorageClass": "storageclasses"}


def _collection_of(raw: Raw) -> str:
    version, kind = raw["apiVersion"], raw["kind"]
    root = f"/apis/{version}" if "/" in version else f"/api/{version}"
    return f"{root}/{_PLURALS.get(kind, kind.lower() + 's')}"


def _split(path: str) -> tuple[str, Key | None, str]:
    """Collection of all namespaces, key, subresource."""
    parts = path.strip("/").split("/")
    root, rest = (parts[:3], parts[3:]) if parts[0] == "apis" else (parts[:2], parts[2:])
    namespace = ""
    if rest[0] == "namespaces" and len(rest) > 2:
        namespace, rest = rest[1], rest[2:]
    collection = "/" + "/".join([*root, rest[0]])
    key = (namespace, rest[1]) if len(rest) > 1 else None
    return collection, key, rest[2] if len(rest) > 2 else ""


def _selected(raw: Raw, query: dict[str, str]) -> bool:
    """As much of selectors as is used: phases that are not wanted."""
    phase = raw.get("status", {}).get("phase") or "Pending"
    return f"status.phase!={phase}" not in query.get("fieldSelector", "").split(",")


def _from_json_patch(found: Raw, operations: list[Raw]) -> Raw:
    """As much of it as is used: tests of metadata, and a status as a whole."""
    *tests, add = operations
    assert (add["op"], add["path"]) == ("add", "/status")
    for test in tests:
        _, part, name = test["path"].split("/")
        assert (test["op"], part) == ("test", "metadata")
        if test["value"] != found["metadata"][name]:
            message = "the server rejected our request due to an error in our request"
            raise ApiError(422, "Invalid", message)
    found.pop("status", None)
    return {"status": add["value"]}


def _preconditions(body: Any) -> Raw:
    return {"metadata": (body or {}).get("preconditions", {})}


def _check_preconditions(found: Raw, wanted: Raw) -> None:
    for field_ in ("uid", "resourceVersion"):
        value = (wanted.get("metadata") or {}).get(field_)
        if value and value != found["metadata"][field_]:
            raise ApiError(409, "Conflict", f"Precondition failed: {field_} in precondition: {value}")


def _merged(before: Any, patch: Any) -> Any:
    """Merge patch, but conditions are merged by type, as in a strategic one."""
    if not isinstance(patch, dict) or not isinstance(before, dict):
        return patch
    merged = dict(before)
    for key, value in patch.items():
        if value is None:
            merged.pop(key, None)
        elif key == "conditions":
            by_type = {c["type"]: c for c in merged.get(key, [])}
            for condition in value:
                by_type[condition["type"]] = {**by_type.get(condition["type"], {}), **condition}
            merged[key] = list(by_type.values())
        else:
            merged[key] = _merged(merged.get(key, {}), value)
    return merged
