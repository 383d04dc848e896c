"""What becomes of decisions, whatever the server does."""

from __future__ import annotations

import asyncio
import math
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from builders import make_pod
from holdfast.api.decode import decode
from holdfast.api.reservation import ReservationStatus
from holdfast.backends.kubernetes.fence import Fence
from holdfast.backends.kubernetes.http.rate import RateLimit
from holdfast.backends.kubernetes.writing.queue import Lane, Outcome, WriteQueue
from holdfast.backends.kubernetes.writing.writer import Writer
from holdfast.core.decisions import (
    Bind,
    BindVolume,
    Decision,
    DeleteReservation,
    Emit,
    Nominate,
    ObjectRef,
    Preempt,
    SelectNode,
    SetPodScheduled,
    SetReservationStatus,
)
from holdfast.core.events import BindConfirmed, BindRefused, Deleted, Event, Updated, WriteRefused
from kube.fake_api import FakeApi, Fault, Raw
from kube.fake_client import FakeClient
from kube.virtual_time import LoopClock, run, until

PODS = "/api/v1/pods"
CLAIMS = "/api/v1/persistentvolumeclaims"
FOREVER = float("inf")


class Desk:
    """A writer with its server, and what it reported."""

    def __init__(self, api: FakeApi, fence: Fence, limit: RateLimit | None) -> None:
        self.api = api
        self.fence = fence
        self.fed: list[Event] = []
        self.failed: list[str] = []
        self.claims: dict[tuple[str, str], Any] = {}
        self.writer = Writer(
            FakeClient(api),
            fence,
            self.fed.append,
            self.claims,
            lambda _: "holdfast-scheduler",
            LoopClock().wall,
            lambda error: self.failed.append(str(error)),
            limit,
        )

    async def do(self, *decisions: Decision) -> None:
        self.writer.carry_out(decisions)
        assert await self.writer.queue.drain(3600), "writes hang"

    def said(self) -> list[str]:
        return [_told(event) for event in self.fed]

    def claim_changed(self, raw: Raw) -> None:
        obj = decode(raw)
        self.claims[obj.metadata.namespace, obj.metadata.name] = obj
        self.writer.saw(Updated(obj))


def _told(event: Event) -> str:
    name = type(event).__name__
    if isinstance(event, BindConfirmed):
        return name
    if isinstance(event, BindRefused | WriteRefused):
        return f"{name}: {event.message}"
    obj: Any = event.object  # type: ignore[union-attr]
    return (
        f"{name} on {obj.spec.node_name}" if isinstance(event, Updated) and obj.spec.node_name else name
    )


@asynccontextmanager
async def desk(api: FakeApi | None = None, limit: RateLimit | None = None) -> AsyncIterator[Desk]:
    fence = Fence(LoopClock().elapsed)
    fence.open_until(math.inf)
    made = Desk(api or FakeApi(), fence, limit)
    try:
        yield made
    finally:
        await made.writer.queue.close()


def ref(raw: Raw) -> ObjectRef:
    meta = raw["metadata"]
    return ObjectRef(raw["kind"], meta.get("namespace", ""), meta["name"], meta["uid"])


BIND = "/binding"


@pytest.mark.parametrize(
    ("faults", "told", "bound"),
    [
        ([], ["BindConfirmed"], "n"),
        ([Fault("POST", BIND, status=429, retry_after=7)], ["BindConfirmed"], "n"),
        ([Fault("POST", BIND, status=503, times=2)], ["BindConfirmed"], "n"),
        ([Fault("POST", BIND, cut="before", times=9)], ["BindConfirmed"], "n"),
        # It arrived, and nobody said so: a second attempt is refused, the pod itself tells.
        ([Fault("POST", BIND, cut="after")], ["Updated on n"], "n"),
        ([Fault("POST", BIND, cut="after", delay=60)], ["Updated on n"], "n"),
        (
            [Fault("POST", BIND, cut="after"), Fault("GET", cut="before", times=3)],
            ["Updated on n"],
            "n",
        ),
        ([Fault("POST", BIND, delay=60)], ["BindConfirmed"], "n"),
        # The server cannot, and says so for long enough.
        ([Fault("POST", BIND, status=500, times=FOREVER)], ["Updated", "BindRefused: scripted"], ""),
        ([Fault("POST", BIND, status=403)], ["Updated", "BindRefused: scripted"], ""),
    ],
)
def test_a_bind_is_known_to_be_done_or_not(faults: list[Fault], told: list[str], bound: str) -> None:
    async def story() -> None:
        async with desk() as d:
            pod = d.api.create(make_pod("p").raw())
            d.api.faults += faults
            await d.do(Bind(ref(pod), "n"))
            assert d.said() == told
            assert d.api.pods() == {"p": bound}
            assert d.api.binds.count(("p", "n")) <= 1

    run(story())


def test_a_pod_bound_by_someone_else_is_seen_where_it_is() -> None:
    async def story() -> None:
        async with desk() as d:
            pod = d.api.create(make_pod("p").on("theirs").raw())
            await d.do(Bind(ref(pod), "ours"))
            assert d.said() == ["Updated on theirs"]

    run(story())


def test_a_pod_deleted_in_flight_is_taken_back() -> None:
    async def story() -> None:
        async with desk() as d:
            pod = d.api.create(make_pod("p").raw())
            d.api.delete(pod)
            await d.do(Bind(ref(pod), "n"))
            assert d.said() == ["Deleted"]
            assert isinstance(d.fed[0], Deleted)
            assert d.fed[0].object.metadata.uid == pod["metadata"]["uid"]

    run(story())


def test_a_namesake_is_not_bound() -> None:
    async def story() -> None:
        async with desk() as d:
            pod = d.api.create(make_pod("p").raw())
            d.api.delete(pod)
            d.api.create(make_pod("p").raw())
            await d.do(Bind(ref(pod), "n"))
            assert d.said() == ["Deleted"]
            assert d.api.pods() == {"p": ""}

    run(story())


def test_a_pod_on_its_way_out_is_given_back() -> None:
    async def story() -> None:
        async with desk() as d:
            pod = d.api.create(make_pod("p").deleted().raw())
            await d.do(Bind(ref(pod), "n"))
            assert d.said()[0] == "Updated"
            assert "is being deleted" in d.said()[1]

    run(story())


def test_binds_stay_assumed_while_the_server_is_away_and_all_arrive_after() -> None:
    async def story() -> None:
        async with desk() as d:
            pods = [d.api.create(make_pod(f"p{i}").raw()) for i in range(200)]
            away = Fault(cut="before", times=FOREVER)
            d.api.faults.append(away)
            d.writer.carry_out([Bind(ref(pod), "n") for pod in pods])
            await asyncio.sleep(600)
            assert d.fed == [] and len(d.writer.queue) == 200
            away.times = 0
            await until(lambda: len(d.writer.queue) == 0)
            assert d.said() == ["BindConfirmed"] * 200
            assert len(d.api.binds) == 200

    run(story())


def test_a_bind_that_waits_holds_up_no_other() -> None:
    async def story() -> None:
        async with desk() as d:
            slow = [d.api.create(make_pod(f"slow{i}").raw()) for i in range(100)]
            fast = [d.api.create(make_pod(f"fast{i}").raw()) for i in range(100)]
            d.api.faults.append(Fault("POST", "/slow", status=429, retry_after=300, times=100))
            d.writer.carry_out([Bind(ref(pod), "n") for pod in slow + fast])
            await until(lambda: sum(name.startswith("fast") for name, _ in d.api.binds) == 100)
            assert asyncio.get_running_loop().time() < 10
            await until(lambda: len(d.api.binds) == 200)

    run(story())


def test_binds_go_before_status_and_status_before_events() -> None:
    async def story() -> None:
        async with desk() as d:
            pods = [d.api.create(make_pod(f"p{i}").raw()) for i in range(120)]
            events = [Emit(ref(p), "Normal", "Scheduled", "yes", "Binding") for p in pods[:40]]
            statuses = [SetPodScheduled(ref(p), "Unschedulable", "no") for p in pods[40:80]]
            binds = [Bind(ref(p), "n") for p in pods[80:]]
            await d.do(*events, *statuses, *binds)
            order = [
                {"events": "e", "status": "s", "binding": "b"}[path.rpartition("/")[2]]
                for _, path in d.api.requests
            ]
            assert len(order) == 120
            # Those that had a free slot when they came are on their way; of the rest, binds go first.
            last = {what: len(order) - 1 - order[::-1].index(what) for what in "ebs"}
            assert last["b"] < last["s"] < last["e"]

    run(story())


def test_writes_of_one_object_keep_their_order() -> None:
    async def story() -> None:
        order: list[str] = []
        queue = WriteQueue(lambda error: None, slots=4)

        def job(name: str, waits: int) -> Any:
            async def go() -> Outcome:
                nonlocal waits
                waits -= 1
                await asyncio.sleep(0.1)
                if waits >= 0:
                    return 5.0
                order.append(name)
                return None

            return go

        for step in range(5):
            for key in "abc":
                queue.submit(Lane(step % 3), key, job(f"{key}{step}", waits=4 - step))
        assert await queue.drain(1000)
        assert [name for name in order if name[0] == "a"] == ["a0", "a1", "a2", "a3", "a4"]
        assert len(order) == 15

    run(story())


def test_a_failing_write_is_reported_and_the_queue_goes_on() -> None:
    async def story() -> None:
        async with desk() as d:
            pods = [d.api.create(make_pod(f"p{i}").raw()) for i in range(3)]
            d.api.faults.append(Fault("PATCH", "p1/status", status=403))
            await d.do(*(SetPodScheduled(ref(pod), "Unschedulable", "no") for pod in pods))
            assert d.failed == ["403: scripted"]
            said = [p["status"]["conditions"][0]["message"] for p in d.api.all(PODS) if "status" in p]
            assert said == ["no", "no"]

    run(story())


def test_no_more_requests_a_second_than_allowed() -> None:
    async def story() -> None:
        async with desk(limit=RateLimit(10, 5)) as d:
            pods = [d.api.create(make_pod(f"p{i}").raw()) for i in range(105)]
            await d.do(*(Bind(ref(pod), "n") for pod in pods))
            assert 9.9 < asyncio.get_running_loop().time() < 10.5

    run(story())


# Status


def test_nomination_and_condition_go_in_one_patch() -> None:
    async def story() -> None:
        async with desk() as d:
            pod = d.api.create(make_pod("p").raw())
            await d.do(Nominate(ref(pod), "n"), SetPodScheduled(ref(pod), "Unschedulable", "no room"))
            assert d.api.count("PATCH") == 1
            status = d.api.get(PODS, "p")["status"]
            assert status["nominatedNodeName"] == "n"
            (condition,) = status["conditions"]
            assert condition == {
                "type": "PodScheduled",
                "status": "False",
                "reason": "Unschedulable",
                "message": "no room",
                "lastTransitionTime": "2026-01-01T00:00:00Z",
            }
            await d.do(Nominate(ref(pod), ""))
            assert "nominatedNodeName" not in d.api.get(PODS, "p")["status"]

    run(story())


def test_what_a_pod_says_already_is_not_said_again() -> None:
    async def story() -> None:
        async with desk() as d:
            made = make_pod("p").condition("PodScheduled", "False", "Unschedulable", "no").raw()
            pod = d.api.create(made)
            d.writer.saw(Updated(decode(pod)))  # as after a restart
            await d.do(SetPodScheduled(ref(pod), "Unschedulable", "no"))
            assert d.api.count("PATCH") == 0
            await d.do(SetPodScheduled(ref(pod), "Unschedulable", "still no"))
            (condition,) = d.api.get(PODS, "p")["status"]["conditions"]
            assert condition["message"] == "still no"
            assert "lastTransitionTime" not in condition, "only the reason changed, not the status"
            # News from before our write does not make us forget it.
            d.writer.saw(Updated(decode(pod)))
            await d.do(SetPodScheduled(ref(pod), "Unschedulable", "no"))
            (condition,) = d.api.get(PODS, "p")["status"]["conditions"]
            assert condition["message"] == "no"

    run(story())


def test_a_pod_to_be_bound_is_not_told_it_cannot_be() -> None:
    async def story() -> None:
        async with desk() as d:
            pods = [d.api.create(make_pod(f"p{i}").raw()) for i in range(100)]
            refs = [ref(pod) for pod in pods]
            d.writer.carry_out([Bind(r, "n") for r in refs[:50]])  # fills the slots
            d.writer.carry_out([SetPodScheduled(r, "Unschedulable", "no") for r in refs[50:]])
            d.writer.carry_out([Bind(r, "n") for r in refs[50:]])
            await until(lambda: len(d.writer.queue) == 0)
            assert d.api.count("PATCH") == 0
            assert len(d.api.binds) == 100

    run(story())


def test_the_last_word_wins_where_the_server_was_slow() -> None:
    async def story() -> None:
        async with desk() as d:
            pod = d.api.create(make_pod("p").raw())
            d.api.faults.append(Fault("PATCH", status=503, times=2))
            d.writer.carry_out([SetPodScheduled(ref(pod), "Unschedulable", "one")])
            await asyncio.sleep(0.1)
            await d.do(SetPodScheduled(ref(pod), "Unschedulable", "two"), Nominate(ref(pod), "n"))
            status = d.api.get(PODS, "p")["status"]
            assert status["conditions"][0]["message"] == "two"
            assert status["nominatedNodeName"] == "n"

    run(story())


def test_a_victim_is_told_before_it_is_deleted() -> None:
    async def story() -> None:
        async with desk() as d:
            victim, namesake = (d.api.create(make_pod(n).raw()) for n in ("v", "w"))
            preemptor = ObjectRef("Pod", "default", "p", "uid-p")
            d.api.faults.append(Fault("DELETE", status=503))
            await d.do(Preempt(ref(victim), preemptor, "n", "making room"))
            assert "v" not in d.api.pods()
            assert [m for m, _ in d.api.requests] == ["PATCH", "DELETE", "DELETE"]
            condition = d.api.bodies[0][2]["status"]["conditions"][0]
            assert (condition["type"], condition["reason"]) == (
                "DisruptionTarget",
                "PreemptionByScheduler",
            )
            d.api.delete(namesake)
            other = d.api.create(make_pod("w").raw())
            await d.do(Preempt(ref(namesake), preemptor, "n", "making room"))
            assert d.api.get(PODS, "w")["metadata"]["uid"] == other["metadata"]["uid"]
            assert d.failed == []

    run(story())


# The fence


def test_a_deposed_leader_writes_nothing() -> None:
    async def story() -> None:
        async with desk() as d:
            pods = [d.api.create(make_pod(f"p{i}").raw()) for i in range(64)]
            d.fence.open_until(5.0)
            d.api.faults.append(Fault("POST", BIND, status=503, times=FOREVER, retry_after=4))
            d.writer.carry_out([Bind(ref(pod), "n") for pod in pods])
            d.writer.carry_out([Preempt(ref(pods[0]), ref(pods[1]), "n", "")])
            d.writer.carry_out([Emit(ref(pods[0]), "Normal", "Scheduled", "x", "Binding")])
            await asyncio.sleep(5.0)
            sent = len(d.api.requests)
            d.api.faults.clear()
            assert await d.writer.queue.drain(1000)
            assert len(d.api.requests) == sent
            assert d.api.binds == []

    run(story())


# Volumes


def claim(name: str = "c") -> Raw:
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {},
    }


def volume(name: str = "v", **spec: Any) -> Raw:
    meta: Raw = {"name": name}
    return {"apiVersion": "v1", "kind": "PersistentVolume", "metadata": meta, "spec": spec}


def bound(raw: Raw, to: str) -> Raw:
    annotations = {**raw["metadata"].get("annotations", {}), "pv.kubernetes.io/bind-completed": "yes"}
    return {
        **raw,
        "metadata": {**raw["metadata"], "annotations": annotations},
        "spec": {**raw["spec"], "volumeName": to},
    }


def test_a_pod_is_bound_once_its_claim_is() -> None:
    async def story() -> None:
        async with desk() as d:
            pod, v, c = d.api.create(make_pod("p").raw()), d.api.create(volume()), d.api.create(claim())
            d.claim_changed(c)
            d.writer.carry_out([BindVolume(ref(v), ref(c)), Bind(ref(pod), "n")])
            await asyncio.sleep(100)
            written = d.api.get("/api/v1/persistentvolumes", "v", "")
            assert written["spec"]["claimRef"]["uid"] == c["metadata"]["uid"]
            assert written["metadata"]["annotations"] == {"pv.kubernetes.io/bound-by-controller": "yes"}
            assert d.api.binds == []
            d.claim_changed(d.api.change(bound(c, "v")))
            await until(lambda: d.api.binds)
            assert d.said() == ["BindConfirmed"]

    run(story())


def test_a_volume_that_named_its_claim_is_not_marked() -> None:
    async def story() -> None:
        async with desk() as d:
            c = d.api.create(claim())
            v = d.api.create(volume(claimRef={"namespace": "default", "name": "c"}))
            pod = d.api.create(make_pod("p").raw())
            d.claim_changed(d.api.change(bound(c, "v")))
            await d.do(BindVolume(ref(v), ref(c)), Bind(ref(pod), "n"))
            written = d.api.get("/api/v1/persistentvolumes", "v", "")
            assert written["spec"]["claimRef"]["uid"] == c["metadata"]["uid"]
            assert "annotations" not in written["metadata"]

    run(story())


def test_a_volume_taken_by_another_claim_fails_the_bind() -> None:
    async def story() -> None:
        async with desk() as d:
            c, pod = d.api.create(claim()), d.api.create(make_pod("p").raw())
            theirs = {"namespace": "default", "name": "other", "uid": "x"}
            v = d.api.create(volume(claimRef=theirs))
            await d.do(BindVolume(ref(v), ref(c)), Bind(ref(pod), "n"))
            assert d.said() == ["Updated", 'BindRefused: volume "v" is bound to another claim']
            assert d.api.binds == []

    run(story())


def test_a_claim_whose_volume_cannot_be_made_fails_the_bind() -> None:
    async def story() -> None:
        async with desk() as d:
            c, pod = d.api.create(claim()), d.api.create(make_pod("p").raw())
            d.claim_changed(c)
            d.writer.carry_out([SelectNode(ref(c), "n"), Bind(ref(pod), "n")])
            await asyncio.sleep(1)
            selected = d.api.get(CLAIMS, "c")
            assert selected["metadata"]["annotations"] == {"volume.kubernetes.io/selected-node": "n"}
            d.claim_changed(c)  # old news: says nothing about our write
            await asyncio.sleep(1)
            assert d.fed == []
            d.claim_changed(selected)
            await asyncio.sleep(1)
            given_up = {**selected, "metadata": {**selected["metadata"], "annotations": {}}}
            d.claim_changed(d.api.change(given_up))
            await until(lambda: len(d.writer.queue) == 0)
            assert d.said() == ["Updated", 'BindRefused: provisioning failed for PVC "c"']

    run(story())


def test_claims_are_not_waited_for_for_ever() -> None:
    async def story() -> None:
        async with desk() as d:
            c, pod = d.api.create(claim()), d.api.create(make_pod("p").raw())
            d.claim_changed(c)
            await d.do(SelectNode(ref(c), "n"), Bind(ref(pod), "n"))
            assert d.said() == ["Updated", "BindRefused: timed out waiting for the condition"]
            assert 600 <= asyncio.get_running_loop().time() < 610
            assert len(d.writer.claims) == 0

    run(story())


def test_a_conflict_on_a_volume_is_looked_at_again() -> None:
    async def story() -> None:
        async with desk() as d:
            c, v = d.api.create(claim()), d.api.create(volume())
            pod = d.api.create(make_pod("p").raw())
            d.claim_changed(d.api.change(bound(c, "v")))
            d.api.faults.append(Fault("PATCH", "persistentvolumes", status=409, reason="Conflict"))
            await d.do(BindVolume(ref(v), ref(c)), Bind(ref(pod), "n"))
            assert d.said() == ["BindConfirmed"]

    run(story())


# Events


def test_the_same_thing_said_again_is_one_event_that_counts() -> None:
    async def story() -> None:
        async with desk() as d:
            pod = d.api.create(make_pod("p").raw())
            again = Emit(ref(pod), "Warning", "FailedScheduling", "no room", "Scheduling")
            for _ in range(5):
                await d.do(again)
                await asyncio.sleep(60)
            await d.do(Emit(ref(pod), "Warning", "FailedScheduling", "no ports", "Scheduling"))
            events = d.api.all("/apis/events.k8s.io/v1/events")
            assert [(e["note"], e.get("series", {}).get("count")) for e in events] == [
                ("no room", 2),
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


# Reservations

RESERVATIONS = "/apis/scheduling.koordinator.sh/v1alpha1/reservations"


def reservation(name: str = "r") -> Raw:
    return {
        "apiVersion": "scheduling.koordinator.sh/v1alpha1",
        "kind": "Reservation",
        "metadata": {"name": name},
    }


def status(raw: Raw, phase: str, node: str = "", binds: bool = False) -> SetReservationStatus:
    return SetReservationStatus(ref(raw), ReservationStatus(phase=phase, node_name=node), binds)


@pytest.mark.parametrize(
    ("faults", "told"),
    [
        ([], ["BindConfirmed"]),
        ([Fault("PATCH", status=503, times=20)], ["BindConfirmed"]),
        ([Fault("PATCH", cut="after")], ["BindConfirmed"]),
        ([Fault("PATCH", status=403)], ["BindRefused: 403: scripted"]),
    ],
)
def test_a_reservation_gets_its_node_or_not(faults: list[Fault], told: list[str]) -> None:
    async def story() -> None:
        async with desk() as d:
            r = d.api.create(reservation())
            d.api.faults += faults
            await d.do(status(r, "Available", "n", binds=True))
            assert d.said() == told
            written = d.api.get(RESERVATIONS, "r", "").get("status")
            assert written == (
                {"phase": "Available", "nodeName": "n"} if "Confirmed" in told[0] else None
            )

    run(story())


def test_the_last_status_of_a_reservation_is_written_and_its_bind_still_answered() -> None:
    async def story() -> None:
        async with desk() as d:
            r = d.api.create(reservation())
            d.api.faults.append(Fault("PATCH", status=503, times=2))
            d.writer.carry_out([status(r, "Available", "n", binds=True)])
            await asyncio.sleep(0.05)
            await d.do(status(r, "Succeeded", "n"))
            assert d.said() == ["BindConfirmed"]
            assert d.api.get(RESERVATIONS, "r", "")["status"]["phase"] == "Succeeded"

    run(story())


def test_a_reservation_that_is_gone_or_another_is_left_alone() -> None:
    async def story() -> None:
        async with desk() as d:
            r = d.api.create(reservation())
            d.api.delete(r)
            await d.do(status(r, "Available", "n", binds=True))
            assert d.said()[0] == "Deleted"
            other = d.api.create(reservation())
            d.fed.clear()
            await d.do(status(r, "Available", "n"), DeleteReservation(ref(r), "over"))
            assert [type(event).__name__ for event in d.fed] == ["WriteRefused"] or d.fed == []
            assert d.api.get(RESERVATIONS, "r", "") == other
            await d.do(DeleteReservation(ref(other), "over"))
            assert d.api.all(RESERVATIONS) == []

    run(story())


def test_a_bind_brings_its_annotations() -> None:
    async def story() -> None:
        async with desk() as d:
            pod = d.api.create(make_pod("p").raw())
            await d.do(Bind(ref(pod), "n", {"a": "b"}))
            (body,) = [body for method, path, body in d.api.bodies if path.endswith(BIND)]
            assert body["metadata"]["annotations"] == {"a": "b"}

    run(story())


def test_a_victim_that_cannot_be_deleted_is_seen_to_stay() -> None:
    async def story() -> None:
        async with desk() as d:
            victim = d.api.create(make_pod("v").on("n").raw())
            d.api.faults.append(Fault("DELETE", status=403))
            await d.do(Preempt(ref(victim), ObjectRef("Pod", "default", "p", "x"), "n", "room"))
            assert d.said() == ["Updated on n"]
            assert d.failed == ["403: scripted"]

    run(story())
