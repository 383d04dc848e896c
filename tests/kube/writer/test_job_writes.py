"""What is written on PodGroups and queues, and on the reservations made for jobs."""

from __future__ import annotations

from copy import copy
from typing import Any

import pytest

from harness.fake_api import Fault, Raw
from harness.virtual_time import run
from holdfast.api.jobs import PodGroupStatus, QueueStatus
from holdfast.scheduler.cluster.decisions import (
    AnnotateReservation,
    Decision,
    SetPodGroupStatus,
    SetQueueStatus,
)
from kube.writer.writer_fixture import desk, ref

VOLCANO = "scheduling.volcano.sh/v1beta1"
GROUPS = f"/apis/{VOLCANO}/podgroups"
QUEUES = f"/apis/{VOLCANO}/queues"
RESERVATIONS = "/apis/scheduling.koordinator.sh/v1alpha1/reservations"


def made(kind: str, api: str = VOLCANO, namespace: str = "default") -> Raw:
    metadata: dict[str, Any] = {"name": "x", "annotations": {"old": "1"}}
    if namespace:
        metadata["namespace"] = namespace
    return {"apiVersion": api, "kind": kind, "metadata": metadata}


def decided(kind: str, raw: Raw) -> Decision:
    if kind == "PodGroup":
        return SetPodGroupStatus(ref(raw), VOLCANO, PodGroupStatus(phase="Running", running=2))
    return SetQueueStatus(ref(raw), QueueStatus(state="Open", running=2))


@pytest.mark.parametrize(
    ("kind", "path", "namespace"), [("PodGroup", GROUPS, "default"), ("Queue", QUEUES, "")]
)
@pytest.mark.parametrize(
    ("faults", "fed", "written"),
    [
        ([], [], True),
        ([Fault("PATCH", status=503, times=2)], [], True),
        ([Fault("PATCH", status=403)], ["refused: 403: scripted"], False),
        ([Fault("PATCH", status=404)], [], False),
    ],
)
def test_a_status_is_written_as_a_whole(
    kind: str, path: str, namespace: str, faults: list[Fault], fed: list[str], written: bool
) -> None:
    async def story() -> None:
        async with desk() as d:
            raw = d.api.create(made(kind, namespace=namespace))
            d.api.faults += map(copy, faults)
            await d.do(decided(kind, raw))
            refusal = "GroupStatusRefused" if kind == "PodGroup" else "WriteRefused"
            assert d.fed_events() == [each.replace("refused", refusal) for each in fed]
            found = d.api.get(path, "x", namespace).get("status") or {}
            assert (found.get("running") == 2) is written

    run(story())


def test_annotations_come_and_go() -> None:
    async def story() -> None:
        async with desk() as d:
            api = "scheduling.koordinator.sh/v1alpha1"
            raw = d.api.create(made("Reservation", api, ""))
            await d.do(AnnotateReservation(ref(raw), {"new": "2", "old": ""}))
            found = d.api.get(RESERVATIONS, "x", "")
            assert found["metadata"]["annotations"] == {"new": "2"}

    run(story())
