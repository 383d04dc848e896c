"""Requests about objects: from HTTP to a verb, and from its result to a response."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache

from aiohttp import web

from holdfast.local.apiserver import protobuf
from holdfast.local.apiserver import responses as answers
from holdfast.local.apiserver.api_state import ApiRequest, ApiState
from holdfast.local.apiserver.request_bodies import Body, media_of, read_body, read_object
from holdfast.local.apiserver.request_info import (
    DeleteOptions,
    ListOptions,
    RequestTarget,
    delete_options,
    list_options,
    write_options,
)
from holdfast.local.apiserver.responses import (
    JSON,
    Form,
    as_media,
    in_form,
    list_in_form,
    object_form,
    to_bytes,
)
from holdfast.local.apiserver.tables.render import check_include, not_a_list
from holdfast.local.apiserver.verbs import get, patch, subresources, writes
from holdfast.local.apiserver.verbs.writes import read_known
from holdfast.local.apiserver.watch import WatchStreams
from holdfast.local.apiserver.workers import LARGE, MANY, Workers, Written
from holdfast.local.store import Raw, memory_of
from holdfast.machinery.object_request import WriteOptions
from holdfast.machinery.schema import ResourceType
from holdfast.machinery.schema.types import key_of
from holdfast.machinery.status import (
    StatusError,
    bad_request,
    method_not_allowed,
    not_found,
    too_large,
    too_many_requests,
    unknown_resource,
)
from holdfast.serving.limits import CHUNK_BYTES, Turns
from holdfast.serving.unsent import ResponseBudget

_DELETE_OPTIONS = "io.k8s.apimachinery.pkg.apis.meta.v1.DeleteOptions"
_WRITES = {"POST": "CreateOptions", "PUT": "UpdateOptions", "PATCH": "PatchOptions"}
_NO_DEFAULT_MANAGER = "application/apply-patch+yaml"
_NEED_CONTAINERS = ("log", "exec", "attach", "portforward")
_BUSY = "Too many requests, please try again later."
_NO_TOKENS = (
    "ServiceAccounts have no tokens here: this cluster has one user; its token is in the kubeconfig "
    "and allows everything"
)
_VERBS = {
    "GET": "get",
    "POST": "create",
    "PUT": "update",
    "PATCH": "patch",
    "DELETE": "delete",
}


@lru_cache(maxsize=64)
def _usual_options(agent: str) -> WriteOptions:
    """The options of a creation without query parameters."""
    return write_options({}, "CreateOptions", agent)


class ObjectHandler:
    def __init__(
        self,
        cluster: ApiState,
        streams: WatchStreams,
        turns: Turns,
        workers: Workers,
        responses: ResponseBudget,
    ) -> None:
        self._cluster = cluster
        self._streams = streams
        self._turns = turns
        self._workers = workers
        self._responses = responses

    async def handle(
        self, request: web.BaseRequest, target: RequestTarget, accept: str
    ) -> web.StreamResponse:
        type = self._cluster.catalogue.resource(target.group, target.version, target.plural)
        if type is None:
            if not any(each.group == target.group for each in self._cluster.catalogue):
                return answers.page_not_found()
            raise unknown_resource()
        if target.namespace and not type.namespaced:
            raise unknown_resource()
        if target.name and not target.namespace and type.namespaced:
            raise unknown_resource()
        call = ApiRequest(self._cluster, type, target.namespace, target.name, target.subresource)
        if request.method in _WRITES:
            call.options = self._write_options(request)
        response: web.StreamResponse
        try:
            response = await self._dispatched(request, target, call, accept)
        except StatusError as error:
            response = answers.failure(error, accept)
        if call.warnings and not response.prepared:  # a watch has sent its own
            answers.add_warnings(response, call.warnings)
        return response

    def _write_options(self, request: web.BaseRequest) -> WriteOptions:
        agent = request.headers.get("User-Agent", "")
        if not request.query_string and request.method == "POST":
            return _usual_options(agent)
        if request.headers.get("Content-Type", "").startswith(_NO_DEFAULT_MANAGER):
            options = write_options(request.query, _WRITES[request.method], "/")
            return options if request.query.get("fieldManager") else options._replace(manager="")
        return write_options(request.query, _WRITES[request.method], agent)

    async def _dispatched(
        self, request: web.BaseRequest, target: RequestTarget, call: ApiRequest, accept: str
    ) -> web.StreamResponse:
        method, type = request.method, call.type
        if type.deprecation:
            call.warn(type.deprecation)
        if not type.stored:
            return await self._posted(request, call, accept)
        if target.subresource:
            return await self._subresource(request, call, accept)
        form = object_form(accept)
        if method == "GET":
            if target.name and not target.watch:
                revision = request.query.get("resourceVersion", "")
                return await self._one(request, call, form, get.get(call, revision))
            return await self._many(request, target, call, form)
        if type.namespaced and not target.namespace and method != "DELETE":
            raise method_not_allowed()
        if method == "POST" and not target.name:
            self._needs(type, "create")
            data, media = await read_body(request), request.headers.get("Content-Type", "")
            raw, _ = await self._workers.write(
                call,
                len(data),
                lambda call: (writes.create(call, read_object(data, media, type.kind)), True),
            )
            return await self._one(request, call, form, raw, 201)
        if method == "DELETE" and not target.name:
            return await self._collection(request, call, form)
        if method == "DELETE":
            raw, gone = writes.delete(call, await self._delete_options(request))
            if gone:
                await self._settled()
                body = await self._encoded(request, lambda: to_bytes(raw, form.media))
                return answers.answer(body, media=form.media)
            return await self._one(request, call, form, raw)
        if target.name and method in ("PUT", "PATCH"):
            return await self._change(request, call, form)
        raise method_not_allowed()

    async def _change(
        self, request: web.BaseRequest, call: ApiRequest, form: Form
    ) -> web.StreamResponse:
        data, media = await read_body(request), request.headers.get("Content-Type", "")

        def change(call: ApiRequest) -> Written:
            if request.method == "PUT":
                return writes.update(call, read_object(data, media, call.type.kind))
            return patch.patch(call, data, media)

        raw, new = await self._workers.write(call, len(data), change)
        return await self._one(request, call, form, raw, 201 if new else 200)

    async def _many(
        self, request: web.BaseRequest, target: RequestTarget, call: ApiRequest, form: Form
    ) -> web.StreamResponse:
        options = list_options(request.query)
        include = request.query.get("includeObject", "")
        check_include(include)
        if target.name:
            wanted = f"metadata.name={target.name}"
            chosen = f"{options.field_selector},{wanted}" if options.field_selector else wanted
            options = options._replace(field_selector=chosen)
        if options.watch or target.watch:
            self._needs(call.type, "watch")
            return await self._streams.watch(request, call, options, form, include)
        listed = await self._page(call, options)
        await self._settled()
        return await self._listed(request, call, form, include, listed)

    async def _page(self, call: ApiRequest, options: ListOptions) -> get.Listed:
        page = get.page(call, options)
        return await self._workers.compute(page.listed) if page.size > MANY else page.listed()

    async def _listed(
        self,
        request: web.BaseRequest,
        call: ApiRequest,
        form: Form,
        include: str,
        listed: get.Listed,
    ) -> web.StreamResponse:
        type = call.type
        if form.kind == "PartialObjectMetadata":
            raise not_a_list(form.kind, type.list_kind)
        now = self._cluster.clock.epoch()

        def encode() -> bytes:
            if form.kind:
                document = list_in_form(type, listed.objects, listed.metadata, form, now, include)
                return to_bytes(document, form.media)
            return self._cluster.encoder.list(type, listed.objects, listed.metadata, form.media)

        keys = [
            key_of(type, each["metadata"].get("namespace", ""), each["metadata"]["name"])
            for each in listed.objects[: MANY + 1]
        ]
        heavy = self._workers.is_heavy(keys, type)
        return answers.answer(await self._encoded(request, encode, heavy), 200, form.media)

    async def _encoded(
        self, request: web.BaseRequest, encode: Callable[[], bytes], heavy: bool = False
    ) -> bytes:
        """The body of a response, once it may be sent. It is counted when it is, so nothing else may be
        awaited in between."""
        if heavy:
            await self._admit_response(request)
            # As many at a time as there are threads: no more may be encoded and not counted yet.
            async with self._workers.encoding:
                await self._admit_response(request)
                return await self._workers.compute(encode)
        body = encode()
        if len(body) > CHUNK_BYTES and self._responses.crowded:
            del body  # so that nothing is kept for those who wait
            await self._admit_response(request)
            body = encode()
        return body

    async def _admit_response(self, request: web.BaseRequest) -> None:
        """Raises StatusError 429, but not for a write: it is made already, and has to be answered."""
        if request.method != "GET":
            self._responses.make_space()
        elif not await self._responses.space():
            raise too_many_requests(_BUSY, 1)

    async def _one(
        self, request: web.BaseRequest, call: ApiRequest, form: Form, raw: Raw, code: int = 200
    ) -> web.StreamResponse:
        await self._settled()
        type = call.type
        if form.kind == "PartialObjectMetadataList":
            raise StatusError(
                406,
                "NotAcceptable",
                f"you requested {form.kind}, but the requested object is not a list",
            )
        include = request.query.get("includeObject", "") if form.kind else ""
        check_include(include)
        encoder = self._cluster.encoder
        encoded = await self._encoded(request, lambda: encoder.object(type, raw))
        if not form.kind and form.media == JSON:
            return answers.answer(encoded, code, form.media)
        now = self._cluster.clock.epoch()

        def encode() -> bytes:
            if form.kind:
                return to_bytes(in_form(type, raw, form, now, include), form.media)
            return as_media(encoded, form.media)

        heavy = memory_of(encoded) > LARGE
        return answers.answer(await self._encoded(request, encode, heavy), code, form.media)

    async def _collection(
        self, request: web.BaseRequest, call: ApiRequest, form: Form
    ) -> web.StreamResponse:
        self._needs(call.type, "deletecollection")
        if call.type.namespaced and not call.namespace:
            raise method_not_allowed()
        chosen = list_options({**request.query, "watch": "false"}) if request.query else ListOptions()
        options = await self._delete_options(request)
        listed = await self._page(call, chosen)
        for _ in writes.delete_listed(call, listed, options):
            await self._turns.take()
        await self._settled()
        return await self._listed(request, call, form, "", listed)

    async def _subresource(
        self, request: web.BaseRequest, call: ApiRequest, accept: str
    ) -> web.StreamResponse:
        sub = call.type.subresource(call.subresource)
        if sub is None:
            if call.type.resource == "pods" and call.subresource in _NEED_CONTAINERS:
                if call.subresource == "log" and request.method != "GET":
                    raise method_not_allowed()
                return _from_containers(call, get.get(call))
            if (call.type.resource, call.subresource) == ("serviceaccounts", "token"):
                get.get(call)
                raise bad_request(_NO_TOKENS)
            raise unknown_resource() if call.type.builtin else not_found(call.resource, call.name)
        if _VERBS.get(request.method) not in sub.verbs:
            raise method_not_allowed()
        form = object_form(accept)
        match call.subresource:
            case "binding":
                kind = self._cluster.catalogue.resource("", "v1", "bindings")
                assert kind is not None
                return await self._created(
                    subresources.bind(call, await self._body(request, "Binding"), kind)
                )
            case "eviction":
                return await self._created(
                    subresources.evict(call, await self._body(request, "Eviction"))
                )
            case "scale":
                return await self._scale(request, call, form)
            case _ if request.method == "GET":
                return await self._one(request, call, form, get.get(call))
            case _:
                return await self._change(request, call, form)

    async def _scale(
        self, request: web.BaseRequest, call: ApiRequest, form: Form
    ) -> web.StreamResponse:
        if request.method == "GET":
            found = subresources.get_scale(call)
            await self._settled()
            return answers.document(found, media=form.media)
        data, media = await read_body(request), request.headers.get("Content-Type", "")
        if request.method == "PATCH" and len(data) > LARGE:
            raise too_large(LARGE)

        def scale(call: ApiRequest) -> Written:
            if request.method == "PUT":
                return subresources.put_scale(call, read_object(data, media, "Scale")), False
            return subresources.patch_scale(call, data, media), False

        raw, _ = await self._workers.write(call, len(data), scale)
        await self._settled()
        return answers.document(subresources.scale_of(call, raw), media=form.media)

    async def _posted(
        self, request: web.BaseRequest, call: ApiRequest, accept: str
    ) -> web.StreamResponse:
        """Handles POST of kinds that are not stored, such as reviews."""
        if request.method != "POST" or call.name:
            raise method_not_allowed()
        form = object_form(accept)
        body = await self._body(request, call.type.kind)
        if call.type.kind == "Binding":
            return await self._created(subresources.bind(call, body, call.type))
        return answers.document(subresources.review(call, body), 201, form.media)

    async def _created(self, status: Raw) -> web.StreamResponse:
        await self._settled()
        return answers.document(status, 201)

    async def _body(self, request: web.BaseRequest, kind: str) -> Body:
        data, media = await read_body(request), request.headers.get("Content-Type", "")
        return await self._read(data, media, kind)

    async def _read(self, data: bytes, media: str, kind: str) -> Body:
        if len(data) <= LARGE:
            return read_object(data, media, kind)
        return await self._workers.compute(lambda: read_object(data, media, kind))

    async def _delete_options(self, request: web.BaseRequest) -> DeleteOptions:
        data = await read_body(request)
        if not data:
            return delete_options(request.query, None)
        content_type = request.headers.get("Content-Type", "")
        if media_of(content_type) not in ("application/yaml", protobuf.MEDIA_TYPE):
            content_type = "application/json"  # clients do not always send a content type for these
        value = (await self._read(data, content_type, "DeleteOptions")).value
        return delete_options(request.query, read_known(_DELETE_OPTIONS, value))

    async def _settled(self) -> None:
        """Waits until what the response reports is durable."""
        store = self._cluster.store
        if store.revision > store.durable:
            await store.settled(store.revision)

    def _needs(self, type: ResourceType, verb: str) -> None:
        if verb not in type.verbs:
            raise method_not_allowed()


def _from_containers(call: ApiRequest, pod: Raw) -> web.Response:
    """A pod without a node has no logs yet, as on a real server; its containers cannot be reached."""
    if pod["spec"].get("nodeName"):
        why = f"pod {call.name} is on a simulated node, where containers do not really run"
        raise bad_request(f"no {call.subresource}: {why}")
    if call.subresource == "log":
        return web.Response(status=204)
    raise bad_request(f"pod {call.name} does not have a host assigned")
