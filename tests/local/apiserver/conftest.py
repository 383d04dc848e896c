"""One server for the tests of a file; each test uses names of its own."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from harness.apiserver import LiveServer


@pytest.fixture(scope="module")
def server() -> Iterator[LiveServer]:
    with LiveServer() as live:
        yield live
