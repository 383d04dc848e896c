"""OpenAPI documents: where they are built, and when they are rebuilt."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from aiohttp import web
from aiohttp.test_utils import make_mocked_request

from harness.apiserver import LiveServer
from harness.widgets import widget_crd
from holdfast.local.apiserver.discovery import Documents
from holdfast.machinery.schema.catalogue import Catalogue


class Beside:
    """Counts what is computed beside the loop, and may have something happen meanwhile."""

    def __init__(self) -> None:
        self.times = 0
        self.meanwhile: Callable[[], object] = int

    async def compute(self, function: Callable[[], Any]) -> Any:
        self.times += 1
        await asyncio.sleep(0)
        found = function()
        self.meanwhile()
        return found


async def ask(documents: Documents, *path: str, accept: str = "application/json") -> bytes:
    request = make_mocked_request("GET", "/openapi/" + "/".join(path))
    answer = await documents.answer(list(path), request, accept)
    assert isinstance(answer, web.Response) and isinstance(answer.body, bytes)
    return answer.body


def test_documents_are_made_beside_the_loop_and_once() -> None:
    async def story() -> None:
        beside = Beside()
        documents = Documents(Catalogue(), beside.compute)
        await asyncio.gather(*(ask(documents, "v2") for _ in range(5)))
        assert beside.times == 1
        protobuf = "application/com.github.proto-openapi.spec.v2@v1.0+protobuf"
        await ask(documents, "v2", accept=protobuf)
        assert beside.times == 2
        await ask(documents, "v3", "api", "v1")
        assert beside.times == 3
        await ask(documents, "v3")
        made = beside.times
        assert made > 3
        await ask(documents, "v3")
        await ask(documents, "v3", "apis", "apps", "v1")
        assert beside.times == made

    asyncio.run(story())


def test_a_document_is_not_kept_if_types_came_while_it_was_made() -> None:
    async def story() -> None:
        beside, catalogue = Beside(), Catalogue()
        documents = Documents(catalogue, beside.compute)
        beside.meanwhile = lambda: catalogue.add_crd(widget_crd())
        without = await ask(documents, "v2")
        beside.meanwhile = int
        assert await ask(documents, "v2") != without

    asyncio.run(story())


def test_documents_are_served(server: LiveServer) -> None:
    assert "apis/apps/v1" in server.get("/openapi/v3").body["paths"]
    assert server.get("/openapi/v3/nothing/v1").code == 404
    assert server.get("/openapi/v2").body["swagger"] == "2.0"
