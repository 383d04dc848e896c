"""A live API server for tests, on a loopback port, in a thread of its own.

    with LiveServer() as server:
        answer = server.post("/api/v1/namespaces/default/pods", pod("a"))
        assert answer.code == 201

Its store lives in the server's thread: `server.run(function)` calls a function there.
"""

from __future__ import annotations

import asyncio
import http.client
import json
import ssl
import threading
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from holdfast.local.apiserver.api_state import ApiState
from holdfast.local.apiserver.credentials import ServerCredentials, write_kubeconfig
from holdfast.local.apiserver.server import ApiServer
from holdfast.local.apiserver.system_objects import bootstrap
from holdfast.local.clock import RealClock
from holdfast.local.store import Store
from holdfast.serving.health import Health
from holdfast.serving.listener import Bounds, Listener

Raw = dict[str, Any]
T = TypeVar("T")

PODS = "/api/v1/namespaces/default/pods"
CONFIG_MAPS = "/api/v1/namespaces/default/configmaps"
MERGE = "application/merge-patch+json"
TABLE = "application/json;as=Table;v=v1;g=meta.k8s.io"
_PATIENCE = 20.0


@dataclass(frozen=True)
class Answer:
    code: int
    media: str
    text: str
    warnings: list[str]

    @property
    def body(self) -> Raw:
        value = json.loads(self.text)
        assert isinstance(value, dict)
        return value

    @property
    def message(self) -> str:
        return str(self.body.get("message", ""))

    @property
    def reason(self) -> str:
        return str(self.body.get("reason", ""))

    @property
    def names(self) -> list[str]:
        return [each["metadata"]["name"] for each in self.body["items"]]

    @property
    def revision(self) -> str:
        return str(self.body["metadata"]["resourceVersion"])


async def _turns() -> None:
    """In these an accepted connection comes to its protocol, and a closed one lets go of its socket."""
    for _ in range(4):
        await asyncio.sleep(0)


async def _closed(api: ApiServer, listener: Listener) -> None:
    """Serves no more, and leaves no connection open for the garbage collector to find in another test.

    All are cut: with TLS, closing them would wait for the other side.
    """
    await listener.stop_accepting()
    await _turns()
    listener.cut_all()
    await _turns()
    api.close()
    await listener.close(1.0)


async def _end_all() -> None:
    """Ends what is still going on in the loop, such as a handshake."""
    others = asyncio.all_tasks() - {asyncio.current_task()}
    for task in others:
        task.cancel()
    await asyncio.gather(*others, return_exceptions=True)
    await _turns()


class LiveServer:
    def __init__(
        self,
        store: Store | None = None,
        credentials: ServerCredentials | None = None,
        setup: Callable[[ApiState], None] = lambda cluster: None,
        bounds: Bounds | None = None,
        health: Health | None = None,
    ) -> None:
        self.cluster = ApiState(store or Store(), RealClock())
        self._health = health
        self.credentials = credentials
        self.port = 0
        self._setup = setup
        self._bounds = bounds
        self.listener: Listener | None = None
        self._loop = asyncio.new_event_loop()
        self._started = threading.Event()
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._stop: asyncio.Event | None = None

    def __enter__(self) -> LiveServer:
        self._thread.start()
        assert self._started.wait(_PATIENCE), "the server did not start"
        return self

    def __exit__(self, *_: object) -> None:
        if self._stop is not None:
            self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join(_PATIENCE)

    @property
    def url(self) -> str:
        return f"{'https' if self.credentials else 'http'}://127.0.0.1:{self.port}"

    def _serve(self) -> None:
        asyncio.set_event_loop(self._loop)
        self._loop.run_until_complete(self._served())
        self._loop.run_until_complete(_end_all())
        self._loop.close()

    async def _served(self) -> None:
        bootstrap(self.cluster)
        token = self.credentials.token if self.credentials else None
        api = ApiServer(self.cluster, token=token, health=self._health)
        self._setup(self.cluster)
        listener = Listener(
            api.handle, self.credentials.tls if self.credentials else None, self._bounds
        )
        await listener.start("127.0.0.1", 0)
        self.listener = listener
        self.port = listener.addresses[0][1]
        self._stop = asyncio.Event()
        self._started.set()
        await self._stop.wait()
        await _closed(api, listener)

    def run(self, function: Callable[[], T]) -> T:
        """Calls a function in the server's thread."""

        async def called() -> T:
            return function()

        return asyncio.run_coroutine_threadsafe(called(), self._loop).result(_PATIENCE)

    def wait(self, waiting: Coroutine[Any, Any, T]) -> T:
        """Runs a coroutine in the server's loop."""
        return asyncio.run_coroutine_threadsafe(waiting, self._loop).result(_PATIENCE)

    def kubeconfig(self, path: Path) -> Path:
        if self.credentials is not None:
            write_kubeconfig(path, self.url, self.credentials)
        else:
            cluster = {"name": "c", "cluster": {"server": self.url}}
            context = {"name": "c", "context": {"cluster": "c", "user": "u"}}
            user = {"name": "u", "user": {"token": "x"}}
            document = {
                "apiVersion": "v1",
                "kind": "Config",
                "current-context": "c",
                "clusters": [cluster],
                "contexts": [context],
                "users": [user],
            }
            path.write_text(json.dumps(document))
        return path

    # Asking

    def ask(
        self,
        method: str,
        path: str,
        body: Any = None,
        content_type: str = "application/json",
        accept: str = "",
        token: str | None = None,
    ) -> Answer:
        connection = self._connection()
        try:
            connection.request(
                method, path, _encoded(body), self._headers(body, content_type, accept, token)
            )
            response = connection.getresponse()
            text = response.read().decode()
            warnings = response.headers.get_all("Warning") or []
            return Answer(response.status, response.headers.get("Content-Type", ""), text, warnings)
        finally:
            connection.close()

    def get(self, path: str, accept: str = "") -> Answer:
        return self.ask("GET", path, accept=accept)

    def post(self, path: str, body: Any) -> Answer:
        return self.ask("POST", path, body)

    def put(self, path: str, body: Any) -> Answer:
        return self.ask("PUT", path, body)

    def patch(self, path: str, body: Any, content_type: str = MERGE) -> Answer:
        return self.ask("PATCH", path, body, content_type)

    def delete(self, path: str, body: Any = None) -> Answer:
        return self.ask("DELETE", path, body)

    @contextmanager
    def watch(self, path: str, accept: str = "") -> Iterator[Iterator[Raw]]:
        """The events of a watch, as they come."""
        connection = self._connection()
        try:
            connection.request("GET", path, headers=self._headers(None, "", accept, None))
            response = connection.getresponse()
            assert response.status == 200, response.read().decode()

            def events() -> Iterator[Raw]:
                while line := response.readline():
                    yield json.loads(line)

            yield events()
        finally:
            connection.close()

    def _connection(self) -> http.client.HTTPConnection:
        if self.credentials is None:
            return http.client.HTTPConnection("127.0.0.1", self.port, timeout=_PATIENCE)
        context = ssl.create_default_context(cadata=self.credentials.authority.decode())
        return http.client.HTTPSConnection("127.0.0.1", self.port, timeout=_PATIENCE, context=context)

    def _headers(self, body: Any, content_type: str, accept: str, token: str | None) -> dict[str, str]:
        headers = {"User-Agent": "tester/1.0"}
        if token is None and self.credentials is not None:
            token = self.credentials.token
        if token:
            headers["Authorization"] = f"Bearer {token}"
        if body is not None:
            headers["Content-Type"] = content_type
        if accept:
            headers["Accept"] = accept
        return headers


def _encoded(body: Any) -> bytes | None:
    if body is None or isinstance(body, bytes):
        return body
    return body.encode() if isinstance(body, str) else json.dumps(body).encode()
