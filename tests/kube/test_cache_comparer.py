"""Cache against server: what differs is found and named."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from harness.fake_api import FakeApi, Raw
from harness.objects import node, own_pod, reservation
from harness.runner_cluster import running
from harness.virtual_time import run

RESERVATIONS = "/apis/scheduling.koordinator.sh/v1alpha1/reservations"


def reusable(name: str) -> Raw:
    return reservation(name, "1", name, allocateOnce=False)


def set_status(api: FakeApi, name: str, **status: object) -> None:
    """Another status than the scheduler wrote, which no watch has shown."""
    held = api.get(RESERVATIONS, name, "")
    api.change({**held, "status": {**held["status"], **status}}, silently=True)


def nominate(api: FakeApi, name: str, node: str) -> None:
    """A nomination that no watch has shown."""
    pod = api.get("/api/v1/pods", name)
    api.change({**pod, "status": {**pod["status"], "nominatedNodeName": node}}, silently=True)


def nothing(api: FakeApi) -> None:
    pass


def others(api: FakeApi) -> None:
    api.silent = True
    api.delete(api.get(RESERVATIONS, "kept", ""), silently=True)
    api.delete(api.get("/api/v1/pods", "owner"), silently=True)
    api.delete(api.get("/api/v1/nodes", "n", ""), silently=True)
    for raw in (reusable("new"), own_pod("new"), node("new")):
        api.create(raw)


@pytest.mark.parametrize(
    ("happens", "found"),
    [
        (nothing, {}),
        (
            others,
            {
                "missing_nodes": ["new"],
                "missing_pods": ["Pod/default/new"],
                "missing_reservations": ["Reservation/new"],
                "redundant_nodes": ["n"],
                "redundant_pods": ["Pod/default/owner"],
                "redundant_reservations": ["Reservation/kept"],
            },
        ),
        (
            lambda api: set_status(api, "kept", phase="Failed", nodeName="m"),
            {
                "misjudged_reservations": [
                    "Reservation/kept: node n in the cache, m on the server",
                    "Reservation/kept: phase Available in the cache, Failed on the server",
                ]
            },
        ),
        (
            lambda api: set_status(api, "kept", allocated={}, currentOwners=[]),
            {
                "misjudged_reservations": [
                    "Reservation/kept: allocated cpu=500m in the cache, none on the server",
                    "Reservation/kept: owners UID in the cache, none on the server",
                ]
            },
        ),
        (
            lambda api: nominate(api, "big", "n"),
            {"misnominated_pods": ["Pod/default/big: none in the cache, n on the server"]},
        ),
    ],
)
def test_what_differs_is_named(happens: Callable[[FakeApi], None], found: dict[str, list[str]]) -> None:
    async def story() -> None:
        api = FakeApi()
        api.create(node("n"))
        api.create(reusable("kept"))
        api.create(own_pod("big", cpu="100"))
        async with running(api) as cluster:
            await cluster.quiet()
            owner = own_pod("owner", cpu="500m")
            owner["metadata"]["labels"] = {"app": "kept"}
            uid = api.create(owner)["metadata"]["uid"]
            await cluster.quiet()
            happens(api)
            difference = await cluster.difference()
            lists = {name: getattr(difference, name) for name in difference.__struct_fields__}
            differences = {
                name: [line.replace(uid, "UID") for line in each] for name, each in lists.items()
            }
            assert {name: each for name, each in differences.items() if each} == found

    run(story())


def test_a_server_without_reservations_can_be_compared() -> None:
    async def story() -> None:
        api = FakeApi()
        api.create(node("n"))
        async with running(api) as cluster:
            api.served = {"/api/v1/pods", "/api/v1/nodes"}
            assert (await cluster.difference()).missing_reservations == []

    run(story())
