"""The dashboard over HTTP: token, headers, limits, streams, objects, explanations."""

from __future__ import annotations

import asyncio
import re
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, NamedTuple

import aiohttp
import aiohttp.test_utils
import msgspec
import pytest

from harness.objects import node
from holdfast.explanation.explained_kinds import EXPLAINED
from holdfast.web import explainer, live_view
from holdfast.web.dashboard import Dashboard, assets, serve_dashboard
from holdfast.web.explainer import Explainer, Question, lacking_memory
from web.viewed_cluster import ViewedCluster, reservation

Json = dict[str, Any]


class Page(NamedTuple):
    session: aiohttp.ClientSession
    origin: str
    token: str
    cluster: ViewedCluster

    async def get(self, path: str, **headers: str) -> tuple[int, Any]:
        async with self.session.get(self.origin + path, headers=headers) as response:
            body = await response.read()
            is_json = response.content_type == "application/json"
            return response.status, msgspec.json.decode(body) if is_json else body.decode()


def with_page(
    use: Callable[[Page], Awaitable[None]],
    cluster: ViewedCluster | None = None,
    ask: Explainer | None = None,
    signed_in: bool = True,
) -> None:
    cluster = cluster or ViewedCluster()

    async def run() -> None:
        served = await serve_dashboard(cluster.watched, ask, 0)
        origin, _, token = served.address.partition("/?token=")
        try:
            jar = aiohttp.CookieJar(unsafe=True)
            async with aiohttp.ClientSession(cookie_jar=jar) as session:
                if signed_in:
                    async with session.get(served.address) as response:
                        assert response.status == 200
                await use(Page(session, origin, token, cluster))
        finally:
            await served.close()

    asyncio.run(run())


# Access


def test_the_address_is_exchanged_for_a_cookie_and_loses_the_token() -> None:
    async def use(page: Page) -> None:
        address = f"{page.origin}/?token={page.token}"
        async with page.session.get(address, allow_redirects=False) as response:
            assert response.status == 302
            assert response.headers["Location"] == "/"
            cookie = response.headers["Set-Cookie"]
            assert "HttpOnly" in cookie
            assert "SameSite=Strict" in cookie
            assert page.origin.rpartition(":")[2] in cookie.partition("=")[0]
        assert (await page.get("/api/snapshot"))[0] == 200

    with_page(use, signed_in=False)


def test_nothing_is_served_without_the_token_but_the_page_that_takes_it() -> None:
    async def use(page: Page) -> None:
        status, text = await page.get("/")
        assert status == 403
        assert "Token required" in text
        assert "wrong" not in text
        for path in ("/assets/login.css", "/assets/icon.svg"):
            assert (await page.get(path))[0] == 200
        for path in ("/api/snapshot", "/assets/app.js", "/api/stream?stream=a&after=0", "/api/explain"):
            assert (await page.get(path))[0] == 401, path
        status, text = await page.get("/?token=wrong")
        assert status == 403
        assert "The token is wrong" in text
        assert (await page.get("/api/snapshot", Cookie="holdfast-dashboard-1=x"))[0] == 401

    with_page(use, signed_in=False)


def test_scripts_send_the_token_in_a_header() -> None:
    async def use(page: Page) -> None:
        status, found = await page.get("/api/snapshot", Authorization=f"Bearer {page.token}")
        assert status == 200
        assert found["cluster"] == "test"
        assert (await page.get("/api/snapshot", Authorization="Bearer wrong"))[0] == 401

    with_page(use, signed_in=False)


@pytest.mark.parametrize("host", ["evil.example", "127.0.0.1.evil.example:80", "", "10.0.0.1"])
def test_other_host_names_are_refused(host: str) -> None:
    async def use(page: Page) -> None:
        assert (await page.get("/api/snapshot", Host=host))[0] == 403

    with_page(use)


@pytest.mark.parametrize("host", ["localhost:9", "127.0.0.1", "[::1]:9", "LOCALHOST"])
def test_names_of_this_machine_are_not(host: str) -> None:
    async def use(page: Page) -> None:
        headers = {"Host": host, "Authorization": f"Bearer {page.token}"}
        assert (await page.get("/api/snapshot", **headers))[0] == 200

    with_page(use)


def test_pages_of_other_sites_can_only_link_to_it() -> None:
    async def use(page: Page) -> None:
        for site in ("cross-site", "same-site"):
            headers = {"Sec-Fetch-Site": site, "Sec-Fetch-Mode": "no-cors"}
            assert (await page.get("/api/explain?kind=pod&name=x", **headers))[0] == 403
            assert (await page.get("/", **headers))[0] == 403
            assert (await page.get("/", **{**headers, "Sec-Fetch-Mode": "navigate"}))[0] == 200
        headers = {"Sec-Fetch-Site": "same-origin", "Sec-Fetch-Mode": "cors"}
        assert (await page.get("/api/snapshot", **headers))[0] == 200

    with_page(use)


def test_it_is_read_only() -> None:
    async def use(page: Page) -> None:
        for method in ("POST", "PUT", "PATCH", "DELETE", "OPTIONS"):
            async with page.session.request(method, f"{page.origin}/api/snapshot") as response:
                assert response.status == 405
                assert response.headers["Allow"] == "GET, HEAD"
        async with page.session.head(f"{page.origin}/") as response:
            assert response.status == 200

    with_page(use)


@pytest.mark.parametrize("path", ["/", "/assets/app.js", "/api/snapshot", "/nonsense", "/?token=x"])
def test_every_answer_forbids_what_is_from_elsewhere(path: str) -> None:
    async def use(page: Page) -> None:
        async with page.session.get(page.origin + path) as response:
            policy = response.headers["Content-Security-Policy"]
            assert "default-src 'none'" in policy
            assert "script-src 'self'" in policy
            assert "unsafe" not in policy
            assert "frame-ancestors 'none'" in policy
            assert response.headers["X-Content-Type-Options"] == "nosniff"
            assert response.headers["Referrer-Policy"] == "no-referrer"
            assert response.headers["X-Frame-Options"] == "DENY"

    with_page(use)


@pytest.mark.parametrize(
    "path",
    ["/assets/../dashboard.py", "/assets/%2e%2e/access.py", "/assets/", "/assets//etc/passwd", "/x"],
)
def test_only_the_files_of_the_page_are_served(path: str) -> None:
    async def use(page: Page) -> None:
        assert (await page.get(path))[0] == 404

    with_page(use)


def test_files_are_revalidated_by_their_tag() -> None:
    async def use(page: Page) -> None:
        tag = assets()["app.js"].tag
        assert (await page.get("/assets/app.js", **{"If-None-Match": tag}))[0] == 304

    with_page(use)


def test_the_page_has_no_inline_script_or_style() -> None:
    for name, asset in assets().items():
        text = asset.body.decode()
        if name.endswith(".html"):
            assert "<style" not in text
            assert " style=" not in text
            assert "onclick" not in text
            assert "<script>" not in text
        if name.endswith(".js"):
            assert "innerHTML" not in text
            assert "http://" not in text.replace("http://www.w3.org", "")
            assert "https://" not in text


def test_what_is_shipped_stays_small() -> None:
    assert sum(len(asset.body) for asset in assets().values()) < 150_000
    assert sum(len(asset.packed) for asset in assets().values()) < 45_000


# Data


def test_a_stream_continues_after_a_snapshot(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(live_view, "_PAUSE", 0.001)

    async def use(page: Page) -> None:
        _, first = await page.get("/api/snapshot")
        path = f"/api/stream?stream={first['stream']}&after={first['sequence']}"
        async with page.session.get(page.origin + path) as response:
            assert response.content_type == "text/event-stream"
            assert await response.content.readuntil(b"\n\n") == b": alive\n\n"
            page.cluster.cluster.world.objects.create(node("n2", "4", "8Gi"))
            async with asyncio.timeout(10):
                event = await response.content.readuntil(b"\n\n")
        number, _, data = event.decode().partition("\ndata: ")
        assert number == f"id: {first['sequence'] + 1}"
        assert msgspec.json.decode(data)["nodes"]["name"] == ["n2"]

    with_page(use)


def test_a_stream_that_ended_says_so() -> None:
    async def use(page: Page) -> None:
        async with page.session.get(f"{page.origin}/api/stream?stream=old&after=3") as response:
            assert "event: resync" in (await response.read()).decode()
        assert (await page.get("/api/stream?stream=x&after=-1"))[0] == 400
        assert (await page.get("/api/stream?stream=x"))[0] == 400

    with_page(use)


def test_too_many_browsers_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(live_view, "MAX_VIEWERS", 1)

    async def use(page: Page) -> None:
        _, first = await page.get("/api/snapshot")
        path = f"/api/stream?stream={first['stream']}&after={first['sequence']}"
        async with page.session.get(page.origin + path) as response:
            await response.content.readuntil(b"\n\n")
            assert (await page.get(path))[0] == 503

    with_page(use)


def test_open_streams_end_when_it_closes() -> None:
    cluster = ViewedCluster()

    async def use() -> None:
        served = await serve_dashboard(cluster.watched, None, 0)
        origin, _, token = served.address.partition("/?token=")
        headers = {"Authorization": f"Bearer {token}"}
        async with aiohttp.ClientSession(headers=headers) as session:
            async with session.get(f"{origin}/api/snapshot") as response:
                first = await response.json()
            path = f"/api/stream?stream={first['stream']}&after={first['sequence']}"
            async with session.get(origin + path) as response, asyncio.timeout(10):
                await response.content.readuntil(b"\n\n")
                await served.close()
                assert "event: resync" in (await response.read()).decode()

    asyncio.run(use())


def test_objects_in_full() -> None:
    cluster = ViewedCluster()
    cluster.create_node("n1", "8")
    cluster.create(reservation("peak", "2"))
    cluster.create_pod("p", "1")
    cluster.create_pod("huge", "40")

    async def use(page: Page) -> None:
        _, found = await page.get("/api/node?name=n1")
        assert [pod["name"] for pod in found["pods"]] == ["p"]
        assert found["reservations"] == ["peak"]
        _, found = await page.get("/api/pod?namespace=default&name=p")
        assert found["node"] == "n1"
        assert found["requests"] == {"cpu": 1000}
        _, found = await page.get("/api/pod?namespace=default&name=huge")
        assert found["rejectedBy"] == ["NodeResourcesFit"]
        assert "Insufficient cpu" in found["message"]
        _, found = await page.get("/api/reservation?name=peak")
        assert found["phase"] == "Available"
        assert {each["type"] for each in found["conditions"]} == {"Scheduled", "Ready"}
        for path in ("node?name=x", "pod?namespace=default&name=x", "reservation?name=x", "pod"):
            status, found = await page.get(f"/api/{path}")
            assert status == 404
            assert "error" in found

    with_page(use, cluster)


def test_without_a_scheduler_it_asks_to_come_back() -> None:
    async def use(page: Page) -> None:
        page.cluster.watched.attach(None)
        assert (await page.get("/api/snapshot"))[0] == 503
        assert (await page.get("/api/node?name=n1"))[0] == 503

    with_page(use)


def test_below_a_base_path_without_a_token() -> None:
    """As `holdfast run` serves it."""

    async def use(page: Page) -> None:
        dashboard = Dashboard(page.cluster.watched, None, "/dashboard/")
        runner = aiohttp.test_utils.TestServer(aiohttp.web.Application())
        runner.app.router.add_route("*", "/{path:.*}", dashboard.handle)
        async with aiohttp.test_utils.TestClient(runner) as client:
            async with client.get("/dashboard", allow_redirects=False) as response:
                assert response.headers["Location"] == "/dashboard/"
            async with client.get("/dashboard/") as response:
                assert "assets/app.js" in await response.text()
            async with client.get("/dashboard/api/snapshot") as response:
                assert response.status == 200
            async with client.get("/api/snapshot") as response:
                assert response.status == 404
        await dashboard.close()

    with_page(use)


# Explanations

REFUSED = "import sys; sys.exit('Error from server (%s): pods x')"
FAKE = "import json, sys; print(json.dumps({'summary': ' '.join(sys.argv[1:])}))"


def fake(code: str) -> Explainer:
    return Explainer(["--kubeconfig", "k"], (sys.executable, "-c", code))


def test_explanations_are_those_of_the_command() -> None:
    async def use(page: Page) -> None:
        path = "/api/explain?kind=pod&namespace=team&name=web-0"
        status, found = await page.get(path)
        assert status == 200
        expected = "explain -o json --kubeconfig k -n team -- pod web-0"
        assert found["explanation"] == {"summary": expected}
        assert found["command"] == "holdfast explain pod web-0 -n team"
        for again in await asyncio.gather(page.get(path), page.get(path)):
            assert again == (200, found)

    with_page(use, ask=fake(FAKE))


def test_the_page_knows_the_kinds_that_can_be_explained() -> None:
    text = assets()["kinds.js"].body.decode()
    listed = re.findall(r'^  (\w+): \["(\w+)", (true|false)\],$', text, re.MULTILINE)
    assert {kind.lower(): (plural, kind, scoped == "true") for plural, kind, scoped in listed} == {
        name: (each.infos[0].plural, each.infos[0].kind, each.infos[0].namespaced)
        for name, each in EXPLAINED.items()
    }


@pytest.mark.parametrize(
    "query",
    [
        "",
        "kind=secret&name=x",
        "kind=pod&name=--help",
        "kind=pod&name=a%20b&namespace=d",
        "kind=pod&name=",
    ],
)
def test_other_questions_are_refused(query: str) -> None:
    async def use(page: Page) -> None:
        assert (await page.get(f"/api/explain?{query}"))[0] == 400

    with_page(use, ask=fake(FAKE))


@pytest.mark.parametrize(
    ("code", "status", "error"),
    [
        (REFUSED % "NotFound", 404, "Error from server (NotFound): pods x"),
        (REFUSED % "Forbidden", 403, "Error from server (Forbidden)"),
        (REFUSED % "InternalError", 502, "Error from server (InternalError)"),
        ("import sys; sys.exit('Unable to connect to the server')", 502, "Unable to connect"),
        ("print('not json')", 502, "printed something other than JSON"),
        ("import sys; sys.exit(3)", 502, "`holdfast explain pod x` failed"),
    ],
)
def test_a_failed_explanation_says_why(code: str, status: int, error: str) -> None:
    async def use(page: Page) -> None:
        answer, found = await page.get("/api/explain?kind=pod&name=x")
        assert (answer, error in found["error"]) == (status, True)

    with_page(use, ask=fake(code))


def test_a_slow_explanation_is_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(explainer, "_PATIENCE", 0.2)

    async def use(page: Page) -> None:
        status, found = await page.get("/api/explain?kind=pod&name=x")
        assert status == 504
        assert "took longer than 0.2 s" in found["error"]

    with_page(use, ask=fake("import time; time.sleep(60)"))


def test_only_some_questions_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(explainer, "_MAX_WAITING", 1)

    async def ask() -> None:
        slow = fake("import time; time.sleep(60)")
        first = asyncio.create_task(slow.explain(Question("pod", "", "a")))
        await asyncio.sleep(0)
        status, body = await slow.explain(Question("pod", "", "b"))
        assert (status, "too many" in body["error"]) == (503, True)
        await slow.close()
        await asyncio.gather(first, return_exceptions=True)

    asyncio.run(ask())


def test_nothing_is_started_where_memory_is_short(tmp_path: Path) -> None:
    (tmp_path / "memory.max").write_text("300000000\n")
    (tmp_path / "memory.current").write_text("299000000\n")
    assert "below the memory limit of this container" in lacking_memory(tmp_path)
    (tmp_path / "memory.max").write_text("max\n")
    assert lacking_memory(tmp_path) == ""
    assert lacking_memory(tmp_path / "none") == ""
