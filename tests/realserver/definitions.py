"""Our CustomResourceDefinitions on a real server, for as long as a test needs them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial

from holdfast.api.crds import definitions
from realserver.client import Client, Json
from realserver.server import RealServer

CRDS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"


@contextmanager
def installed_definitions(server: RealServer) -> Iterator[None]:
    """Served, and ready to be watched, inside this context."""
    remove_definitions(server)
    client = server.client
    made = [client.request("POST", CRDS, definition) for definition in definitions()]
    try:
        for each in made:
            server.wait_until(partial(_is_served, client, each))
        yield
    finally:
        remove_definitions(server)


def remove_definitions(server: RealServer) -> None:
    """Returns when they are gone, with all objects of their kinds."""
    client = server.client
    for each in client.request("GET", CRDS)["items"]:
        client.request("DELETE", f"{CRDS}/{each['metadata']['name']}")
    server.wait_until(lambda: not client.request("GET", CRDS)["items"])


def _is_served(client: Client, definition: Json) -> bool:
    spec = definition["spec"]
    return all(
        client.can_watch(f"{spec['group']}/{version['name']}", spec["names"]["plural"])
        for version in spec["versions"]
    )
