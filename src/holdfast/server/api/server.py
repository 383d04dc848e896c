"""The embedded API server: a request comes in, is authenticated, and goes to whoever serves its path.

/api, /apis, /version, /openapi/…        what there is            (discovery)
/api/v1/…, /apis/{group}/{version}/…     objects                  (objects, streams)
"""

from __future__ import annotations

import hmac
from collections.abc import Awaitable, Callable, Iterable

import structlog
from aiohttp import web

from holdfast.server.api import answers, discovery, paths
from holdfast.server.api.bodies import LIMIT
from holdfast.server.api.cluster import Cluster
from holdfast.server.api.definitions import DefinitionKeeper
from holdfast.server.api.documents import Documents
from holdfast.server.api.negotiate import media_type, wants_aggregated_discovery
from holdfast.server.api.objects import Objects
from holdfast.server.api.status import (
    ApiError,
    internal,
    method_not_allowed,
    too_large,
    unauthorized,
    unknown_resource,
)
from holdfast.server.api.streams import Streams
from holdfast.server.api.watching import WatchHub
from holdfast.store import NotEncodable, Raw, StoreFailed

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]

_AGGREGATED = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"
_PUBLIC = frozenset({"/healthz", "/livez", "/readyz", "/version"})
_PANIC = "This request caused apiserver to panic. Look in the logs for details."
_log = structlog.get_logger()


def application(
    cluster: Cluster, *, token: str | None = None, routes: Iterable[web.AbstractRouteDef] = ()
) -> web.Application:
    """The API of a cluster. With None for the token everyone may do everything: for tests, and for
    behind a proxy that asks. An empty token is an error, not the same as None. `routes` are served
    beside it, such as health and metrics."""
    server = _Server(cluster, token)
    app = web.Application(client_max_size=LIMIT)
    app.router.add_routes(routes)
    app.router.add_route("*", "/{path:.*}", server.handle)
    app.on_shutdown.append(server.shutdown)
    return app


class _Server:
    def __init__(self, cluster: Cluster, token: str | None) -> None:
        self._cluster = cluster
        if token is not None and not token.strip():
            raise ValueError("the token is empty")
        self._token = token.encode() if token is not None else None
        self._definitions = DefinitionKeeper(cluster)
        self._hub = WatchHub(cluster)
        self._documents = Documents(cluster.catalogue)
        self._objects = Objects(cluster, Streams(cluster, self._hub))

    async def shutdown(self, app: web.Application) -> None:
        self._hub.close()
        self._definitions.stop()
        self._objects.close()

    async def handle(self, request: web.Request) -> web.StreamResponse:
        accept = request.headers.get("Accept", "")
        try:
            self._authenticate(request)
            return await self._answered(request, accept)
        except ApiError as error:
            return answers.failure(error, accept)
        except web.HTTPRequestEntityTooLarge:
            return answers.failure(too_large(LIMIT), accept)
        except StoreFailed as error:
            return answers.failure(internal(str(error)), accept)
        except NotEncodable as error:
            return answers.failure(internal(str(error)), accept)
        except web.HTTPException:
            raise
        except Exception:
            _log.exception("request failed", method=request.method, path=request.path)
            return answers.failure(internal(_PANIC), accept)

    def _authenticate(self, request: web.Request) -> None:
        if self._token is None:
            return
        given = request.headers.get("Authorization")
        if given is None and request.path in _PUBLIC:
            return
        scheme, _, token = (given or "").partition(" ")
        if scheme.lower() != "bearer" or not hmac.compare_digest(token.strip().encode(), self._token):
            raise unauthorized()

    async def _answered(self, request: web.Request, accept: str) -> web.StreamResponse:
        path = request.path
        target = paths.parse(request.rel_url.raw_path)
        if target is not None and target.plural:
            return await self._objects.handle(request, target, accept)
        answer = self._discovered(request, path.rstrip("/") or "/", accept)
        if answer is None:
            return answers.page_not_found() if target is None else self._unknown(target)
        if request.method not in ("GET", "HEAD"):
            raise method_not_allowed()
        return answer

    def _unknown(self, target: paths.Target) -> web.StreamResponse:
        known = any(each.group == target.group for each in self._cluster.catalogue)
        if known:
            raise unknown_resource()
        return answers.page_not_found()

    def _discovered(self, request: web.Request, path: str, accept: str) -> web.StreamResponse | None:
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
            case ["healthz" | "livez" | "readyz"]:
                return answers.text("ok")
            case ["api", version]:
                resources = discovery.resource_list(catalogue, "", version)
                return _if_any(resources, accept)
            case ["apis", group]:
                return _if_any(discovery.group(catalogue, group), accept)
            case ["apis", group, version]:
                resources = discovery.resource_list(catalogue, group, version)
                return _if_any(resources, accept)
            case ["openapi", *rest]:
                return self._documents.answer(rest, request, accept)
            case [""]:
                return answers.document({"paths": discovery.all_paths(catalogue)})
            case _:
                return None


def _if_any(found: Raw | None, accept: str) -> web.StreamResponse | None:
    return answers.document(found, media=media_type(accept)) if found is not None else None
