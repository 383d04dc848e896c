"""Events, as they are written."""

from __future__ import annotations

import asyncio

import pytest

from harness.builders import make_pod
from harness.fake_api import Fault
from harness.virtual_time import run, until
from holdfast.scheduler.cluster.decisions import Emit, ObjectRef
from kube.writer.writer_fixture import FOREVER, desk, ref


def test_a_repeated_event_is_one_event_with_a_count() -> None:
    async def story() -> None:
        async with desk() as d:
            pod = d.api.create(make_pod("p").raw())
            again = Emit(ref(pod), "Warning", "FailedScheduling", "no capacity", "Scheduling")
            for _ in range(5):
                await d.do(again)
                await asyncio.sleep(60)
            await d.do(Emit(ref(pod), "Warning", "FailedScheduling", "no ports", "Scheduling"))
            events = d.api.all("/apis/events.k8s.io/v1/events")
            assert [(e["note"], e.get("series", {}).get("count")) for e in events] == [
                ("no capacity", 2),
                ("no ports", None),
            ]
            await asyncio.sleep(400)
            d.writer.sweep()
            await until(lambda: len(d.writer.queue) == 0)
            assert events[0]["metadata"]["name"].startswith("p.")
            counts = [
                e.get("series", {}).get("count") for e in d.api.all("/apis/events.k8s.io/v1/events")
            ]
            assert counts == [5, None]
            await d.do(again)
            assert len(d.api.all("/apis/events.k8s.io/v1/events")) == 3

    run(story())


def test_an_event_is_as_kube_scheduler_writes_it() -> None:
    async def story() -> None:
        async with desk() as d:
            pod = d.api.create(make_pod("p").namespace("team").raw())
            text = "Successfully assigned team/p to n"
            await d.do(Emit(ref(pod), "Normal", "Scheduled", text, "Binding"))
            (event,) = d.api.all("/apis/events.k8s.io/v1/events")
            assert event["metadata"]["namespace"] == "team"
            assert event["regarding"] == {
                "apiVersion": "v1",
                "kind": "Pod",
                "namespace": "team",
                "name": "p",
                "uid": pod["metadata"]["uid"],
            }
            kept = {k: event[k] for k in ("type", "reason", "note", "action", "reportingController")}
            assert kept == {
                "type": "Normal",
                "reason": "Scheduled",
                "note": text,
                "action": "Binding",
                "reportingController": "holdfast-scheduler",
            }
            assert event["reportingInstance"].startswith("holdfast-scheduler-")
            assert event["eventTime"] == "2026-01-01T00:00:00.000000Z"

    run(story())


@pytest.mark.parametrize(
    ("kind", "given", "api_version"),
    [
        ("Node", "", "v1"),
        ("PersistentVolume", "", "v1"),
        ("Reservation", "", "scheduling.koordinator.sh/v1alpha1"),
        ("PodMigrationJob", "", "scheduling.koordinator.sh/v1alpha1"),
        ("Queue", "", "scheduling.volcano.sh/v1beta1"),
        ("PodGroup", "scheduling.volcano.sh/v1beta1", "scheduling.volcano.sh/v1beta1"),
        ("PodGroup", "scheduling.sigs.k8s.io/v1alpha1", "scheduling.sigs.k8s.io/v1alpha1"),
    ],
)
def test_an_event_has_the_api_version_of_its_object(kind: str, given: str, api_version: str) -> None:
    async def story() -> None:
        async with desk() as d:
            about = ObjectRef(kind, "", "x", "u-1", given)
            await d.do(Emit(about, "Normal", "Said", "text", "Scheduling"))
            (event,) = d.api.all("/apis/events.k8s.io/v1/events")
            assert event["regarding"] == {
                "apiVersion": api_version,
                "kind": kind,
                "name": "x",
                "uid": "u-1",
            }

    run(story())


def test_names_of_events_differ_and_are_short_enough() -> None:
    async def story() -> None:
        async with desk() as d:
            pod = d.api.create(make_pod("p" * 253).raw())
            await d.do(*(Emit(ref(pod), "Normal", "Scheduled", str(i), "Binding") for i in range(50)))
            names = {e["metadata"]["name"] for e in d.api.all("/apis/events.k8s.io/v1/events")}
            assert len(names) == 50
            assert max(map(len, names)) <= 253

    run(story())


def test_a_flood_of_events_is_cut_off_and_counted() -> None:
    async def story() -> None:
        async with desk() as d:
            pod = d.api.create(make_pod("p").raw())
            d.api.faults.append(Fault("POST", delay=3600, times=FOREVER))
            flood = [Emit(ref(pod), "Normal", "Scheduled", str(i), "Binding") for i in range(50_100)]
            d.writer.carry_out(flood)
            assert 0 < d.writer.events_lost < 100

    run(story())
