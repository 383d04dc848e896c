"""Fixtures for tests against a real server; tests that use them are skipped where there is none."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from realserver.assets import SERVER, missing
from realserver.definitions import remove_definitions
from realserver.server import RealServer


@pytest.fixture(scope="session")
def real_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RealServer]:
    """One server for all tests of a worker, started by the first that asks for it."""
    if why := missing(*SERVER):
        pytest.skip(why)
    with RealServer(tmp_path_factory.mktemp("realserver")) as server:
        yield server


@pytest.fixture
def real_cluster(real_server: RealServer) -> RealServer:
    """The server without what other tests left in it, and without definitions."""
    real_server.empty()
    remove_definitions(real_server)
    return real_server
