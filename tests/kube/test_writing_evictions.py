"""Victims of preemption."""

from __future__ import annotations

import pytest

from builders import make_pod
from holdfast.core.decisions import ObjectRef, Preempt
from holdfast.core.events import WriteRefused
from kube.fake_api import Fault
from kube.virtual_time import run
from kube.writing_desk import PODS, desk, ref

PREEMPTOR = ObjectRef("Pod", "default", "p", "uid-p")


def test_a_victim_is_told_before_it_is_deleted() -> None:
    async def story() -> None:
        async with desk() as d:
            victim, namesake = (d.api.create(make_pod(n).raw()) for n in ("v", "w"))
            d.api.faults.append(Fault("DELETE", status=503))
            await d.do(Preempt(ref(victim), PREEMPTOR, "n", "making room"))
            assert "v" not in d.api.pods()
            assert [m for m, _ in d.api.requests] == ["PATCH", "DELETE", "DELETE"]
            condition = d.api.bodies[0][2]["status"]["conditions"][0]
            assert (condition["type"], condition["reason"]) == (
                "DisruptionTarget",
                "PreemptionByScheduler",
            )
            d.api.delete(namesake)
            other = d.api.create(make_pod("w").raw())
            await d.do(Preempt(ref(namesake), PREEMPTOR, "n", "making room"))
            assert d.api.get(PODS, "w")["metadata"]["uid"] == other["metadata"]["uid"]
            assert d.failed == []

    run(story())


@pytest.mark.parametrize(
    ("faults", "told", "failed"),
    [
        ([Fault("DELETE", status=403)], ["Updated on n", "WriteRefused: 403: scripted"], True),
        ([Fault("PATCH", status=403)], ["Updated on n", "WriteRefused: 403: scripted"], True),
        # For longer than it is worth to try.
        (
            [Fault("DELETE", status=500, times=8)],
            ["Updated on n", "WriteRefused: 500: scripted"],
            True,
        ),
        # Nor can it be looked at for a while.
        (
            [
                Fault("DELETE", status=403),
                Fault("GET", cut="before", times=3),
                Fault("GET", status=503),
            ],
            ["Updated on n", "WriteRefused: 403: scripted"],
            True,
        ),
        ([Fault("DELETE", status=409)], ["Updated on n", "WriteRefused: 409: scripted"], True),
        ([Fault("DELETE", status=404)], [], False),
        ([Fault("DELETE", status=503, times=3)], [], False),
        ([Fault("DELETE", cut="after")], [], False),
    ],
)
def test_a_victim_that_cannot_be_deleted_stays_and_its_preemptor_is_tried_again(
    faults: list[Fault], told: list[str], failed: bool
) -> None:
    async def story() -> None:
        async with desk() as d:
            victim = d.api.create(make_pod("v").on("n").raw())
            d.api.faults += faults
            await d.do(Preempt(ref(victim), PREEMPTOR, "n", "room"))
            assert d.said() == told
            assert bool(d.failed) is failed
            refused = [event.decision for event in d.fed if isinstance(event, WriteRefused)]
            assert refused == [Preempt(ref(victim), PREEMPTOR, "n", "room")] * failed

    run(story())
