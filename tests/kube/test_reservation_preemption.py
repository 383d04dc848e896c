"""Reservations that preempt reservations, through the API of a server."""

from __future__ import annotations

import pytest

from harness.fake_api import FakeApi, Fault, Raw
from harness.objects import node, own_pod, reservation
from harness.runner_cluster import running
from harness.virtual_time import run, until

RESERVATIONS = "/apis/scheduling.koordinator.sh/v1alpha1/reservations"


def preempting(name: str, priority: str) -> Raw:
    labels = {
        "koordinator.sh/priority": priority,
        "scheduling.koordinator.sh/can-preempt": "true",
    }
    return reservation(name, "2", name, labels=labels, allocateOnce=False)


def phases(api: FakeApi) -> dict[str, str]:
    return {
        raw["metadata"]["name"]: raw.get("status", {}).get("phase", "") for raw in api.all(RESERVATIONS)
    }


@pytest.mark.parametrize("used", [False, True])
@pytest.mark.parametrize(
    "faults",
    [[], [Fault("DELETE", status=503, times=2)], [Fault("PATCH", RESERVATIONS, status=503, times=3)]],
    ids=["", "slow to delete", "slow to write"],
)
def test_a_reservation_takes_the_place_of_another(used: bool, faults: list[Fault]) -> None:
    async def story() -> None:
        api = FakeApi()
        api.create(node("n", cpu="2"))
        async with running(api) as cluster:
            api.create(preempting("low", "1"))
            await until(lambda: phases(api) == {"low": "Available"})
            if used:
                owner = own_pod("owner", cpu="1")
                owner["metadata"]["labels"] = {"app": "low"}
                api.create(owner)
                await until(lambda: api.pods() == {"owner": "n"})
            await cluster.quiet()
            api.faults += faults
            api.create(preempting("high", "9"))
            await until(lambda: phases(api) == {"high": "Available"})
            await cluster.quiet()
            assert api.pods() == {}
            reasons = {e["reason"] for e in api.all("/apis/events.k8s.io/v1/events")}
            assert {"Preempted", "Preempting", "Scheduled"} <= reasons
            assert (await cluster.difference()).is_empty

    run(story())
