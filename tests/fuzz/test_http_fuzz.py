"""Whatever is sent to `holdfast up`: it answers, does not say it failed, logs nothing, and goes on.

CI takes the same examples each time; `HYPOTHESIS_PROFILE=thorough` looks ten times longer, and
`FUZZ_TIMES` says how many hundreds of examples (thousands, if thorough).
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, event, given, settings
from hypothesis import strategies as st

from fuzz.requests import BASES, NAMES, Request, raw_bytes, requests
from fuzz.serving import LiveUp

_TIMES = int(os.environ.get("FUZZ_TIMES", "2"))
_DELIBERATE = (503, 504)
many = settings(
    max_examples=_TIMES * settings().max_examples,
    suppress_health_check=list(HealthCheck),
)


@pytest.fixture(scope="module")
def up(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveUp]:
    with LiveUp(tmp_path_factory.mktemp("fuzz")) as running:
        for path, base in BASES:
            for name in NAMES[:2]:
                named = {**base, "metadata": {"name": name, **base.get("metadata", {})}}
                running.ask("POST", f"/{path}", json.dumps(named).encode())
        before = running.tasks()
        yield running
        assert running.leftover(before) == set()


def still_well(up: LiveUp) -> None:
    assert up.ended is None, f"the cluster went down: {up.ended!r}"
    assert up.logged.lines == []
    assert up.ask("GET", "/readyz") == (200, b"ok")


@many
@given(request=requests())
def test_structured_requests(up: LiveUp, request: Request) -> None:
    method, path, headers, body = request
    lines = [f"{method} {path} HTTP/1.1", "Host: h", f"Authorization: Bearer {up.token}", *headers]
    head = "\r\n".join([*lines, f"Content-Length: {len(body)}", "", ""])
    watches = "watch" in path
    code, answer = up.answered(head.encode() + body, method, read=not watches)
    event(f"{method} {code}")
    if code >= 500 and code not in _DELIBERATE:
        # Errors that the real API server has no reason for are 500 there too, in the same words.
        assert json.loads(answer).get("reason") is None, answer
    assert b"Traceback" not in answer and b"Error(" not in answer
    still_well(up)


@many
@given(data=st.data(), tls=st.sampled_from((True, True, True, False)))
def test_raw_bytes(up: LiveUp, data: st.DataObject, tls: bool) -> None:
    sent = data.draw(raw_bytes(up.token))
    answer = up.exchanged(sent, tls)
    if answer:
        assert answer.startswith(b"HTTP/1."), answer
        assert int(answer.split(b" ", 2)[1]) < 500, answer
        assert b"Traceback" not in answer
    still_well(up)


def test_and_then_all_works(up: LiveUp) -> None:
    """After whatever was sent before, an object is created, watched, listed and deleted."""
    path = "/api/v1/namespaces/default/configmaps"
    with up.connect() as stream:
        stream.sendall(
            f"GET {path}?watch=1&fieldSelector=metadata.name=after HTTP/1.1\r\nHost: h\r\n"
            f"Authorization: Bearer {up.token}\r\n\r\n".encode()
        )
        made = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "after"}}
        assert up.ask("POST", path, json.dumps(made).encode())[0] == 201
        received = b""
        while b'"name":"after"' not in received:
            received += stream.recv(65536)
        assert b'"type":"ADDED"' in received
    assert up.ask("GET", path)[0] == 200
    assert up.ask("DELETE", f"{path}/after")[0] == 200
    still_well(up)
