"""An API server as a scheduler meets it, in memory: plain objects, one version counter, a history.

It is written from the API's documented behaviour and shares no code with the program: preconditions,
bindings, graceful deletion, finalizers, status subresources, field selectors of watches, bookmarks,
versions that are too old. `written` hears of every accepted write.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any
from urllib.parse import parse_qsl, urlsplit

from msgspec.json import decode, encode

Raw = dict[str, Any]
Key = tuple[str, str]

PODS = "/api/v1/pods"
NODES = "/api/v1/nodes"
RESERVATIONS = "/apis/scheduling.koordinator.sh/v1alpha1/reservations"
MIGRATIONS = "/apis/scheduling.koordinator.sh/v1alpha1/podmigrationjobs"
OTHER_GROUPS = "/apis/scheduling.sigs.k8s.io/v1alpha1/podgroups"
GROUPS = "/apis/scheduling.volcano.sh/v1beta1/podgroups"
QUEUES = "/apis/scheduling.volcano.sh/v1beta1/queues"
CLAIMS = "/apis/resource.k8s.io/v1/resourceclaims"
TEMPLATES = "/apis/resource.k8s.io/v1/resourceclaimtemplates"
SLICES = "/apis/resource.k8s.io/v1/resourceslices"
CLASSES = "/apis/resource.k8s.io/v1/deviceclasses"
LEASES = "/apis/coordination.k8s.io/v1/leases"
EVENTS = "/apis/events.k8s.io/v1/events"
QUOTAS = "/apis/example.com/v1/teamquotas"
"""Which only a plugin reads, and which may have no definition."""
CUSTOM = ("koordinator.sh", "volcano.sh", "sigs.k8s.io", "topology.node.k8s.io")

_HAS_STATUS = {PODS, NODES, RESERVATIONS, MIGRATIONS, CLAIMS}
_KEPT = 400
"""So many changes of a kind can be watched from; older versions are gone."""


class Refused(Exception):
    def __init__(self, code: int, reason: str, message: str, retry_after: int | None = None) -> None:
        super().__init__(message)
        self.code = code
        self.retry_after = retry_after
        status: Raw = {"kind": "Status", "status": "Failure", "code": code, "reason": reason}
        status["message"] = message
        self.body = encode(status)


class Collection:
    __slots__ = ("changes", "compacted", "objects", "watches")

    def __init__(self) -> None:
        self.objects: dict[Key, Raw] = {}
        self.changes: list[tuple[int, str, Raw, Raw | None]] = []
        """Version, type, the object, and as it was before."""
        self.compacted = 0
        self.watches: dict[Watch, None] = {}


class Watch:
    """One watcher of a kind; `send` takes frames."""

    def __init__(self, selector: str, send: Callable[[bytes, int], None]) -> None:
        self.selector = frozenset(part for part in selector.split(",") if part)
        self.send = send

    def notify(self, version: int, kind: str, new: Raw, old: Raw | None) -> None:
        if self.selector:
            is_in = kind != "DELETED" and self.selects(new)
            was_in = old is not None and self.selects(old)
            if kind == "DELETED":
                if not was_in:
                    return
            elif is_in:
                kind = "MODIFIED" if was_in else "ADDED"
            elif was_in:
                kind = "DELETED"
            else:
                return
        self.send(frame(kind, new), version)

    def selects(self, raw: Raw) -> bool:
        phase = (raw.get("status") or {}).get("phase") or "Pending"
        return f"status.phase!={phase}" not in self.selector


def frame(kind: str, raw: Raw) -> bytes:
    return encode({"type": kind, "object": raw}) + b"\n"


class Model:
    def __init__(self, now: Callable[[], str]) -> None:
        self.version = 1000
        self.written: Callable[[str, Raw | None, Raw | None], None] = lambda *_: None
        """Called with the collection, the object before and after."""
        self.has_custom = True
        self.undefined: set[str] = set()
        """Collections that are not there, since their definition is not."""
        self.evictable: Callable[[Raw], bool] = lambda _: True
        self._now = now
        self._uids = 0
        self._of: dict[str, Collection] = {}

    # What is there

    def of(self, path: str) -> Collection:
        found = self._of.get(path)
        if found is None:
            found = self._of[path] = Collection()
        return found

    def all(self, path: str) -> list[Raw]:
        return list(self.of(path).objects.values())

    def find(self, path: str, name: str, namespace: str = "default") -> Raw | None:
        return self.of(path).objects.get((namespace, name))

    # Requests

    def handle(self, method: str, url: str, body: bytes, content_type: str) -> bytes:
        """The answer. Raises Refused."""
        whole, query = parse(url)
        path, key, subresource = _split(whole)
        self._check_defined(path)
        if method == "GET":
            return self._list(path, query) if key is None else _dump(self._get(path, key))
        raw = decode(body) if body else {}
        if method == "POST":
            if subresource == "binding":
                assert key is not None
                return self._bind(key, raw)
            if subresource == "eviction":
                assert key is not None
                return self._evict(key, raw)
            return _dump(self._create(path, raw))
        assert key is not None, (method, url)
        if method == "DELETE":
            return self._delete(path, key, raw)
        if method == "PUT":
            return _dump(self._update(path, key, raw))
        return _dump(self._patch(path, key, subresource, raw, content_type))

    def watch(self, url: str, send: Callable[[bytes, int], None]) -> Watch:
        """Begins with what happened since the version asked for. Raises Refused."""
        path, query = parse(url)
        self._check_defined(path)
        collection = self.of(path)
        watch = Watch(query.get("fieldSelector", ""), send)
        if query.get("sendInitialEvents") == "true":
            for raw in collection.objects.values():
                if not watch.selector or watch.selects(raw):
                    send(frame("ADDED", raw), 0)
            annotations = {"k8s.io/initial-events-end": "true"}
            send(self.bookmark(annotations), self.version)
        else:
            since = int(query["resourceVersion"])
            if since < collection.compacted:
                raise Refused(410, "Expired", f"too old resource version: {since}")
            for version, kind, new, old in collection.changes:
                if version > since:
                    watch.notify(version, kind, new, old)
        collection.watches[watch] = None
        return watch

    def end_watch(self, watch: Watch) -> None:
        for collection in self._of.values():
            collection.watches.pop(watch, None)

    def bookmark(self, annotations: dict[str, str] | None = None) -> bytes:
        meta: Raw = {"resourceVersion": str(self.version)}
        if annotations:
            meta["annotations"] = annotations
        return frame("BOOKMARK", {"metadata": meta})

    def compact(self) -> None:
        """Nothing before now can be watched from any more."""
        for collection in self._of.values():
            collection.changes.clear()
            collection.compacted = self.version

    # What others than schedulers do

    def create(self, path: str, raw: Raw) -> Raw:
        return self._create(path, decode(encode(raw)))

    def change(self, path: str, raw: Raw, **changes: Any) -> None:
        """Replaces whole fields of the object, by name."""
        self._put(path, {**raw, **changes})

    def delete(self, path: str, name: str, namespace: str = "default") -> None:
        if (namespace, name) in self.of(path).objects:
            self._delete(path, (namespace, name), {})

    def remove(self, path: str, raw: Raw) -> None:
        """For good, whatever its grace period: what a kubelet does."""
        key = _key(raw)
        found = self.of(path).objects.get(key)
        if found is not None and found["metadata"]["uid"] == raw["metadata"]["uid"]:
            self._remove(path, key, found)

    def undefine(self, path: str) -> None:
        """The definition of the kind is deleted, with all objects."""
        for key, raw in list(self.of(path).objects.items()):
            self._remove(path, key, raw)
        self.undefined.add(path)

    # How it is done

    def _check_defined(self, path: str) -> None:
        is_custom = any(group in path for group in CUSTOM)
        if path in self.undefined or (is_custom and not self.has_custom):
            raise Refused(404, "NotFound", "the server could not find the requested resource")

    def _get(self, path: str, key: Key) -> Raw:
        found = self.of(path).objects.get(key)
        if found is None:
            raise Refused(404, "NotFound", f'{path.rpartition("/")[2]} "{key[1]}" not found')
        return found

    def _list(self, path: str, query: dict[str, str]) -> bytes:
        watch = Watch(query.get("fieldSelector", ""), lambda *_: None)
        objects = self.of(path).objects.values()
        items = [raw for raw in objects if not watch.selector or watch.selects(raw)]
        meta = {"resourceVersion": str(self.version)}
        return encode({"kind": "List", "metadata": meta, "items": items})

    def _create(self, path: str, raw: Raw) -> Raw:
        if "name" not in raw["metadata"]:
            raw["metadata"]["name"] = f"{raw['metadata']['generateName']}{self._uids + 1}"
        key = _key(raw)
        collection = self.of(path)
        if key in collection.objects:
            name = path.rpartition("/")[2]
            raise Refused(409, "AlreadyExists", f'{name} "{key[1]}" already exists')
        if path == EVENTS:
            return raw  # read by nobody here
        self._uids += 1
        meta = raw["metadata"]
        meta["uid"] = f"uid-{self._uids}"
        meta["creationTimestamp"] = self._now()
        if path in _HAS_STATUS and path != NODES:
            raw.pop("status", None)
        if path == PODS:
            raw["status"] = {"phase": "Pending"}
        self._put(path, raw)
        return raw

    def _update(self, path: str, key: Key, raw: Raw) -> Raw:
        found = self._get(path, key)
        wanted = raw["metadata"].get("resourceVersion")
        if wanted and wanted != found["metadata"]["resourceVersion"]:
            raise _conflict(path, key, "the object has been modified")
        raw["metadata"]["uid"] = found["metadata"]["uid"]
        raw["metadata"]["creationTimestamp"] = found["metadata"]["creationTimestamp"]
        self._put(path, raw)
        return raw

    def _patch(self, path: str, key: Key, subresource: str, patch: Any, content_type: str) -> Raw:
        if path == EVENTS:
            return {}
        found = self._get(path, key)
        if content_type.startswith("application/json-patch"):
            changed = _json_patched(found, patch)
        else:
            meta = patch.get("metadata") or {}
            for field in ("uid", "resourceVersion"):
                if meta.get(field) and meta[field] != found["metadata"][field]:
                    raise _conflict(path, key, f"Precondition failed: {field}")
            changed = _merged(found, patch, content_type.startswith("application/strategic"))
        if path in _HAS_STATUS:
            if subresource == "status":
                changed = {**found, "status": changed.get("status", {})}
            elif "status" in found:
                changed["status"] = found["status"]
            else:
                changed.pop("status", None)
        elif subresource:
            raise Refused(404, "NotFound", "the server could not find the requested resource")
        meta = {**changed["metadata"], "resourceVersion": found["metadata"]["resourceVersion"]}
        changed["metadata"] = meta
        if changed == found:
            return found  # no change, no version
        if path == CLAIMS:
            _check_claim(key, found, changed)
        if meta.get("deletionTimestamp") and not meta.get("finalizers") and path != PODS:
            self._remove(path, key, found)
            return changed
        self._put(path, changed)
        return changed

    def _bind(self, key: Key, body: Raw) -> bytes:
        pod = self._get(PODS, key)
        meta = body["metadata"]
        for field in ("uid", "resourceVersion"):
            if meta.get(field) and meta[field] != pod["metadata"][field]:
                raise _conflict("pods/binding", key, f"Precondition failed: {field} in precondition")
        if pod["metadata"].get("deletionTimestamp"):
            raise _conflict("pods/binding", key, f"pod {key[1]} is being deleted, cannot be assigned")
        if pod["spec"].get("nodeName"):
            node = pod["spec"]["nodeName"]
            raise _conflict("pods/binding", key, f'pod {key[1]} is already assigned to node "{node}"')
        annotations = {**(pod["metadata"].get("annotations") or {}), **(meta.get("annotations") or {})}
        conditions = [
            each for each in pod["status"].get("conditions", []) if each["type"] != "PodScheduled"
        ]
        conditions.append({"type": "PodScheduled", "status": "True", "lastTransitionTime": self._now()})
        bound = {
            **pod,
            "metadata": {**pod["metadata"], "annotations": annotations},
            "spec": {**pod["spec"], "nodeName": body["target"]["name"]},
            "status": {**pod["status"], "conditions": conditions},
        }
        self._put(PODS, bound)
        return _SUCCESS

    def _evict(self, key: Key, body: Raw) -> bytes:
        pod = self._get(PODS, key)
        if not self.evictable(pod):
            message = "Cannot evict pod as it would violate the pod's disruption budget."
            raise Refused(429, "TooManyRequests", message, 10)
        return self._delete(PODS, key, body.get("deleteOptions") or {})

    def _delete(self, path: str, key: Key, options: Raw) -> bytes:
        found = self._get(path, key)
        meta = found["metadata"]
        for field, value in (options.get("preconditions") or {}).items():
            if value and value != meta[field]:
                raise _conflict(path, key, f"Precondition failed: {field}")
        stays = bool(meta.get("finalizers"))
        if path == PODS and found["spec"].get("nodeName"):
            stays = stays or (found["status"].get("phase") in ("Pending", "Running"))
        if not stays:
            self._remove(path, key, found)
        elif not meta.get("deletionTimestamp"):
            self._put(path, {**found, "metadata": {**meta, "deletionTimestamp": self._now()}})
        return _SUCCESS

    def _put(self, path: str, raw: Raw) -> None:
        self.version += 1
        key = _key(raw)
        raw["metadata"] = {**raw["metadata"], "resourceVersion": str(self.version)}
        collection = self.of(path)
        old = collection.objects.get(key)
        collection.objects[key] = raw
        self._changed(path, "MODIFIED" if old is not None else "ADDED", raw, old)
        self.written(path, old, raw)

    def _remove(self, path: str, key: Key, found: Raw) -> None:
        self.version += 1
        del self.of(path).objects[key]
        gone = {**found, "metadata": {**found["metadata"], "resourceVersion": str(self.version)}}
        self._changed(path, "DELETED", gone, found)
        self.written(path, found, None)

    def _changed(self, path: str, kind: str, new: Raw, old: Raw | None) -> None:
        collection = self.of(path)
        collection.changes.append((self.version, kind, new, old))
        if len(collection.changes) > _KEPT:
            collection.compacted = collection.changes[0][0]
            del collection.changes[0]
        for watch in list(collection.watches):
            watch.notify(self.version, kind, new, old)


_SUCCESS = b'{"kind": "Status", "status": "Success"}'


def _dump(raw: Raw) -> bytes:
    return encode(raw)


def _check_claim(key: Key, old: Raw, new: Raw) -> None:
    """An allocation cannot be changed, and nobody uses a claim without one, or one being deleted."""
    before, after = old.get("status", {}), new.get("status", {})
    allocations = before.get("allocation"), after.get("allocation")
    named = f'ResourceClaim.resource.k8s.io "{key[1]}" is invalid'
    if all(allocations) and allocations[0] != allocations[1]:
        raise Refused(422, "Invalid", f"{named}: status.allocation: field is immutable")
    users = [{each["uid"] for each in status.get("reservedFor") or ()} for status in (before, after)]
    if users[1] and not allocations[1]:
        raise Refused(422, "Invalid", f"{named}: status.reservedFor: claim must be allocated first")
    if users[1] - users[0] and old["metadata"].get("deletionTimestamp"):
        raise Refused(422, "Invalid", f"{named}: status.reservedFor: claim is being deleted")


def _conflict(path: str, key: Key, why: str) -> Refused:
    what = path.rpartition("/")[2] if path.startswith("/") else path
    return Refused(409, "Conflict", f'Operation cannot be fulfilled on {what} "{key[1]}": {why}')


def _key(raw: Raw) -> Key:
    meta = raw["metadata"]
    return meta.get("namespace", ""), meta["name"]


@lru_cache(maxsize=1000)
def parse(url: str) -> tuple[str, dict[str, str]]:
    """The path and the query."""
    parts = urlsplit(url)
    return parts.path, dict(parse_qsl(parts.query))


@lru_cache(maxsize=1000)
def _split(path: str) -> tuple[str, Key | None, str]:
    """The collection over all namespaces, the key, the subresource."""
    parts = path.strip("/").split("/")
    root, rest = (parts[:3], parts[3:]) if parts[0] == "apis" else (parts[:2], parts[2:])
    namespace = ""
    if rest[0] == "namespaces" and len(rest) > 2:
        namespace, rest = rest[1], rest[2:]
    key = (namespace, rest[1]) if len(rest) > 1 else None
    return "/" + "/".join([*root, rest[0]]), key, rest[2] if len(rest) > 2 else ""


def _merged(old: Any, patch: Any, strategic: bool) -> Any:
    if not isinstance(patch, dict) or not isinstance(old, dict):
        return patch
    new = dict(old)
    for name, value in patch.items():
        if value is None:
            new.pop(name, None)
        elif strategic and name == "conditions" and isinstance(new.get(name), list):
            merged = {each["type"]: each for each in new[name]}
            for each in value:
                merged[each["type"]] = {**merged.get(each["type"], {}), **each}
            new[name] = list(merged.values())
        elif strategic and name == "reservedFor":
            gone = {each["uid"] for each in value if each.get("$patch") == "delete"}
            new[name] = [each for each in new.get(name) or () if each["uid"] not in gone]
            if not new[name]:
                del new[name]
        else:
            new[name] = _merged(
                new.get(name, {} if isinstance(value, dict) else None), value, strategic
            )
    return new


def _json_patched(found: Raw, operations: list[Raw]) -> Raw:
    changed = dict(found)
    for operation in operations:
        names = [part for part in operation["path"].split("/") if part]
        if operation["op"] == "test":
            at: Any = changed
            for name in names:
                at = at.get(name) if isinstance(at, dict) else None
            if at != operation["value"]:
                raise Refused(
                    422, "Invalid", "the server rejected our request due to an error in our request"
                )
        else:
            assert operation["op"] in ("add", "replace") and len(names) == 1, operation
            changed[names[0]] = operation["value"]
    return changed
