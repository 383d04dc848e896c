"""The embedded API server: authenticates requests and dispatches them by path.

/api, /apis, /version, /openapi/…        `discovery`
/api/v1/…, /apis/{group}/{version}/…     `object_handler`, `watch`
"""

from __future__ import annotations

import hmac
from collections.abc import Iterable

from aiohttp import web

from holdfast.local.apiserver import discovery
from holdfast.local.apiserver import request_info as paths
from holdfast.local.apiserver import responses as answers
from holdfast.local.apiserver.api_state import ApiState
from holdfast.local.apiserver.crd_registry import CrdRegistry
from holdfast.local.apiserver.discovery import Documents
from holdfast.local.apiserver.object_handler import ObjectHandler
from holdfast.local.apiserver.responses import media_type, wants_aggregated_discovery
from holdfast.local.apiserver.watch import WatchHub, WatchStreams
from holdfast.local.apiserver.workers import Workers
from holdfast.local.store import NotEncodable, Raw, StoreFailed
from holdfast.machinery.status import (
    StatusError,
    internal,
    method_not_allowed,
    too_many_requests,
    unauthorized,
    unavailable,
    unknown_resource,
)
from holdfast.serving.health import OPEN_PATHS, Endpoints, Health, is_open
from holdfast.serving.limits import CHUNK_BYTES, IN_FLIGHT, RareLog, Turns
from holdfast.serving.listener import Connection
from holdfast.serving.unsent import ResponseBudget

_AGGREGATED = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"
_PANIC = "This request caused apiserver to panic. Look in the logs for details."
_BUSY = "Too many requests, please try again later."
_FULL = "too many connections, please try again later"


class ApiServer:
    """Answers requests with `handle`. With None for the token everyone may do everything: for tests,
    and for behind a proxy that asks. An empty token is an error, not the same as None.

    `health` is served beside the API; the paths in `open_paths` without the token."""

    def __init__(
        self,
        cluster: ApiState,
        *,
        token: str | None = None,
        health: Health | None = None,
        open_paths: Iterable[str] = OPEN_PATHS,
    ) -> None:
        if token is not None and not token.strip():
            raise ValueError("the token is empty")
        self._cluster = cluster
        self._token = token.encode() if token is not None else None
        self._health = health if health is not None else Health(Endpoints())
        self._open = frozenset(open_paths)
        self._definitions = CrdRegistry(cluster)
        self._hub = WatchHub(cluster)
        self._turns = Turns()
        self._workers = Workers(cluster.store)
        streams = WatchStreams(cluster, self._hub, self._turns)
        self._responses = ResponseBudget()
        self._objects = ObjectHandler(cluster, streams, self._turns, self._workers, self._responses)
        self._documents = Documents(cluster.catalogue, self._workers.compute)
        self._in_flight = 0
        self._log = RareLog()

    def close(self) -> None:
        """Ends all watches."""
        self._hub.close()
        self._definitions.stop()
        self._workers.close()

    async def handle(self, request: web.BaseRequest) -> web.StreamResponse:
        """Authenticates before it processes a request or reads its body."""
        accept = request.headers.get("Accept", "")
        connection = request.protocol
        if isinstance(connection, Connection):
            connection.heard()
        try:
            if self._is_trusted(request) and isinstance(connection, Connection):
                self._admit(connection)
            answer = await self._limited(request, accept)
            return await self._sent(request, answer)
        except StatusError as error:
            return answers.failure(error, accept)
        except StoreFailed as error:
            return answers.failure(internal(str(error)), accept)
        except NotEncodable as error:
            return answers.failure(internal(str(error)), accept)
        except ConnectionError:
            raise
        except Exception as error:
            self._log.exception("request failed", error, method=request.method, path=request.path)
            return answers.failure(internal(_PANIC), accept)

    async def _sent(self, request: web.BaseRequest, answer: web.StreamResponse) -> web.StreamResponse:
        """Sends a large response in pieces, so that other requests are served in between."""
        if not isinstance(answer, web.Response) or not isinstance(answer.body, bytes):
            return answer
        if len(answer.body) <= CHUNK_BYTES or request.method == "HEAD" or request.transport is None:
            return answer
        body = memoryview(answer.body)
        stream = web.StreamResponse(status=answer.status, headers=answer.headers)
        stream.content_length = len(body)
        with self._responses.sending(answer.body, request.transport.abort) as sending:
            await stream.prepare(request)
            for at in range(0, len(body), CHUNK_BYTES):
                await self._turns.take()
                with sending.piece(CHUNK_BYTES):
                    await stream.write(body[at : at + CHUNK_BYTES])
            await stream.write_eof()
        return stream

    def _is_trusted(self, request: web.BaseRequest) -> bool:
        """False for a path that is open to everyone. Raises StatusError 401 for any other without the
        token."""
        if self._token is None:
            return True
        given = request.headers.get("Authorization")
        if given is None:
            if is_open(request.path, self._open):
                return False
            raise unauthorized()
        scheme, _, token = given.partition(" ")
        if scheme.lower() != "bearer" or not hmac.compare_digest(
            token.strip().encode(errors="surrogateescape"), self._token
        ):
            raise unauthorized()
        return True

    def _admit(self, connection: Connection) -> None:
        if not connection.authenticated():
            connection.close()
            raise unavailable(_FULL)

    async def _limited(self, request: web.BaseRequest, accept: str) -> web.StreamResponse:
        if self._in_flight - len(self._hub) >= IN_FLIGHT:
            raise too_many_requests(_BUSY, 1)
        self._in_flight += 1
        try:
            return await self._answered(request, accept)
        finally:
            self._in_flight -= 1

    async def _answered(self, request: web.BaseRequest, accept: str) -> web.StreamResponse:
        path = request.path
        if (answer := await self._health.answer(request)) is not None:
            return answer
        target = paths.parse(request.rel_url.raw_path)
        if target is not None and target.plural:
            return await self._objects.handle(request, target, accept)
        found = await self._discovered(request, path.rstrip("/") or "/", accept)
        if found is None:
            return answers.page_not_found() if target is None else self._unknown(target)
        if request.method not in ("GET", "HEAD"):
            raise method_not_allowed()
        return found

    def _unknown(self, target: paths.RequestTarget) -> web.StreamResponse:
        known = any(each.group == target.group for each in self._cluster.catalogue)
        if known:
            raise unknown_resource()
        return answers.page_not_found()

    async def _discovered(
        self, request: web.BaseRequest, path: str, accept: str
    ) -> web.StreamResponse | None:
        catalogue = self._cluster.catalogue
        if path in ("/api", "/apis"):
            core = path == "/api"
            if wants_aggregated_discovery(accept):
                response = answers.document(discovery.aggregated(catalogue, core))
                response.headers["Content-Type"] = _AGGREGATED
                return response
            found = discovery.core_versions(request.host) if core else discovery.group_list(catalogue)
            return answers.document(found, media=media_type(accept))
        match path.split("/")[1:]:
            case ["version"]:
                return answers.document(discovery.VERSION, media=media_type(accept))
            case ["api", version]:
                resources = discovery.resource_list(catalogue, "", version)
                return _if_any(resources, accept)
            case ["apis", group]:
                return _if_any(discovery.group(catalogue, group), accept)
            case ["apis", group, version]:
                resources = discovery.resource_list(catalogue, group, version)
                return _if_any(resources, accept)
            case ["openapi", *rest]:
                return await self._documents.answer(rest, request, accept)
            case [""]:
                return answers.document({"paths": discovery.all_paths(catalogue)})
            case _:
                return None


def _if_any(found: Raw | None, accept: str) -> web.StreamResponse | None:
    return answers.document(found, media=media_type(accept)) if found is not None else None
