"""A few requests and watches, as plain as can be: tests must not trust the client under test."""

from __future__ import annotations

import http.client
import json
import ssl
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

Json = dict[str, Any]

_KEPT = 30.0
"""Seconds; the server closes connections that are idle for longer, at a time of its own."""
_PREFIX = {"v1": "/api/v1"}
_CLUSTER_SCOPED = {
    "nodes", "namespaces", "persistentvolumes", "storageclasses", "csinodes", "csidrivers",
    "priorityclasses", "customresourcedefinitions", "deviceclasses", "resourceslices",
    "devicetaintrules",
}  # fmt: skip
_PLURALS = {
    "StorageClass": "storageclasses",
    "PriorityClass": "priorityclasses",
    "DeviceClass": "deviceclasses",
    "CSIStorageCapacity": "csistoragecapacities",
}


class RefusedError(Exception):
    """The server's answer was not a success."""

    def __init__(self, method: str, path: str, status: int, text: str) -> None:
        super().__init__(f"{method} {path}: {status} {text}")
        self.status = status


class Client:
    def __init__(self, port: int, token: str, authority: Path) -> None:
        self._port = port
        self._token = token
        self._tls = ssl.create_default_context(cafile=str(authority))
        self._connection: http.client.HTTPSConnection | None = None
        self._used = 0.0

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def request(self, method: str, path: str, body: Json | None = None, kind: str = "json") -> Any:
        """One request on the kept connection; what the server answered, decoded if it is JSON."""
        now = time.monotonic()
        if now - self._used > _KEPT:
            self.close()
        self._used = now
        if self._connection is None:
            self._connection = self._connect(60.0)
        self._send(self._connection, method, path, body, kind)
        try:
            answer = self._connection.getresponse()
            text = answer.read()
        except (http.client.RemoteDisconnected, ConnectionError):
            self.close()
            raise
        if answer.status >= 300:
            raise RefusedError(method, path, answer.status, text.decode(errors="replace"))
        return json.loads(text) if text[:1] == b"{" else text.decode()

    def ask(self, method: str, path: str, body: str, content_type: str) -> tuple[int, str]:
        """What the server answers, whatever it is."""
        with closing(self._connect(60.0)) as connection:
            headers = {"Authorization": f"Bearer {self._token}", "Content-Type": content_type}
            connection.request(method, path, body, headers)
            answer = connection.getresponse()
            return answer.status, answer.read().decode()

    def create(self, obj: Json) -> Json:
        """The object as the server made it. What it has in `status` is written as well, as a controller
        would."""
        made: Json = self.request("POST", _collection(obj), obj)
        if obj.get("status"):
            path = f"{path_of(made)}/status"
            made = self.request("PATCH", path, {"status": obj["status"]}, "merge-patch+json")
        return made

    def patch(self, obj: Json, change: Json, subresource: str = "") -> Json:
        path = path_of(obj) + (f"/{subresource}" if subresource else "")
        changed: Json = self.request("PATCH", path, change, "merge-patch+json")
        return changed

    def get(self, obj: Json) -> Json:
        found: Json = self.request("GET", path_of(obj))
        return found

    def delete(self, obj: Json) -> None:
        self.request("DELETE", path_of(obj), {"gracePeriodSeconds": 0})

    def bind(self, pod: Json, node: str) -> None:
        target = {"apiVersion": "v1", "kind": "Node", "name": node}
        meta = {key: pod["metadata"][key] for key in ("name", "namespace") if key in pod["metadata"]}
        body = {"apiVersion": "v1", "kind": "Binding", "metadata": meta, "target": target}
        self.request("POST", f"{path_of(pod)}/binding", body)

    def list(self, api_version: str, plural: str) -> list[Json]:
        """Of all namespaces; items carry their kind, as single objects do."""
        answer = self.request("GET", f"{_prefix(api_version)}/{plural}")
        kind = answer["kind"].removesuffix("List")
        return [{"apiVersion": api_version, "kind": kind, **item} for item in answer["items"]]

    def watch(
        self, api_version: str, plural: str, query: str = "", within: float = 30.0
    ) -> Iterator[Json]:
        """Events from now on or from a given resourceVersion, until nothing comes for so long."""
        with closing(self._connect(within)) as connection:
            path = f"{_prefix(api_version)}/{plural}?watch=true&{query}"
            self._send(connection, "GET", path, None, "json")
            answer = connection.getresponse()
            if answer.status >= 300:
                raise RefusedError("GET", path, answer.status, answer.read().decode(errors="replace"))
            while line := answer.readline():
                yield json.loads(line)

    def can_watch(self, api_version: str, plural: str) -> bool:
        """Whether the server has what it takes by now: a new kind takes a moment."""
        with closing(self._connect(60.0)) as connection:
            path = f"{_prefix(api_version)}/{plural}?watch=true&resourceVersion=0"
            self._send(connection, "GET", path, None, "json")
            return connection.getresponse().status == 200

    def _connect(self, timeout: float) -> http.client.HTTPSConnection:
        return http.client.HTTPSConnection("127.0.0.1", self._port, timeout=timeout, context=self._tls)

    def _send(
        self, at: http.client.HTTPSConnection, method: str, path: str, body: Json | None, kind: str
    ) -> None:
        headers = {"Authorization": f"Bearer {self._token}", "Content-Type": f"application/{kind}"}
        # Compact, as kubectl writes it: the server keeps parameters of drivers byte by byte.
        text = None if body is None else json.dumps(body, separators=(",", ":"))
        at.request(method, path, text, headers)


def path_of(obj: Json) -> str:
    return f"{_collection(obj)}/{obj['metadata']['name']}"


def plural_of(kind: str) -> str:
    return _PLURALS.get(kind, kind.lower() + "s")


def _prefix(api_version: str) -> str:
    return _PREFIX.get(api_version, f"/apis/{api_version}")


def _collection(obj: Json) -> str:
    plural = plural_of(obj["kind"])
    if plural in _CLUSTER_SCOPED:
        return f"{_prefix(obj['apiVersion'])}/{plural}"
    namespace = obj["metadata"].get("namespace") or "default"
    return f"{_prefix(obj['apiVersion'])}/namespaces/{namespace}/{plural}"
