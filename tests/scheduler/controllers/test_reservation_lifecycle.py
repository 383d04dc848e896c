"""What becomes of a reservation: expiry, waiting for room, resizing, collection, nodes that go."""

from typing import Any
from unittest.mock import patch

import msgspec
import pytest

from harness.builders import make_node, make_pod, make_reservation
from harness.driver import Driver
from harness.objects import Raw, node, pod, reservation
from harness.scenarios import play, step
from harness.world import World
from holdfast.api.reservation import ReservationStatus
from holdfast.scheduler.cluster.decisions import Decision, SetReservationStatus
from holdfast.scheduler.controllers.reservation_lifecycle import ReservationLifecycle
from reference.setup import Setup

HOUR = 3600.0
DAY = 24 * HOUR


class TestExpiry:
    @pytest.mark.parametrize(
        ("lifetime", "after"),
        [
            pytest.param({}, DAY, id="default"),
            pytest.param({"ttl": "2h"}, 2 * HOUR, id="ttl"),
            pytest.param({"expires": "2026-01-01T00:30:00Z"}, HOUR / 2, id="expires"),
            pytest.param({"expires": "2026-01-05T00:00:00Z"}, 4 * DAY, id="later than the default ttl"),
        ],
    )
    @pytest.mark.parametrize("phase", ["Available", "Pending"])
    def test_when(self, lifetime: dict[str, Any], after: float, phase: str) -> None:
        cpu = "4" if phase == "Available" else "400"
        world = World(node("n1"), reservation("r", cpu=cpu, **lifetime))
        world.wait(after - 1)
        assert world.phase("r") == phase
        world.wait(1)
        assert world.phase("r") == "Failed"
        ready = world.condition("r", "Ready")
        assert (ready["status"], ready["reason"]) == ("False", "Expired")

    def test_never(self) -> None:
        world = World(node("n1"), reservation("r", ttl="0"))
        world.wait(1000 * DAY)
        assert world.phase("r") == "Available"

    def test_capacity_is_free_again_and_owners_go_on_running(self) -> None:
        world = World(node("n1", cpu="8"), reservation("r", cpu="8", allocateOnce=False, ttl="1h"))
        world.put(pod("owner", app="a", cpu="2"), pod("stranger", cpu="6"))
        assert (world.reservation_of("owner"), world.node_of("stranger")) == ("r", "")
        world.wait(HOUR)
        assert world.phase("r") == "Failed"
        assert (world.node_of("owner"), world.node_of("stranger")) == ("n1", "n1")
        assert world.owners("r") == ["owner"]

    def test_longer_ttl_in_time_keeps_it(self) -> None:
        world = World(node("n1"), reservation("r", ttl="1h"))
        world.wait(HOUR / 2).edit("Reservation", "r", spec__ttl="3h").wait(HOUR)
        assert world.phase("r") == "Available"


def test_node_deleted() -> None:
    world = World(node("n1"), reservation("r"))
    world.delete("Node", "n1")
    assert world.phase("r") == "Failed"
    assert world.condition("r", "Ready")["reason"] == "Expired"
    world.put(node("n1"), pod("p", app="a", cpu="16"))
    assert world.node_of("p") == "n1"


def replacement(name: str) -> Raw:
    raw = node(name)
    raw["metadata"]["uid"] = "another"
    return raw


def test_node_replaced_by_one_of_its_name() -> None:
    world = World(node("n1"), reservation("r"))
    world.put(replacement("n1"))
    assert (world.phase("r"), world.condition("r", "Ready")["reason"]) == ("Failed", "Expired")


def test_node_deleted_while_no_scheduler_runs() -> None:
    world = World(node("n1"), reservation("r"))
    del world.objects["Node", "n1"]
    world.restart()
    world.settle()
    assert (world.phase("r"), world.condition("r", "Ready")["reason"]) == ("Failed", "Expired")


def test_node_replaced_while_no_scheduler_runs_keeps_what_is_reserved_by_its_name() -> None:
    """A reservation says the name of its node and nothing else of it."""
    world = World(node("n1"), reservation("r", cpu="16"))
    world.objects["Node", "n1"] = replacement("n1")
    world.restart()
    world.settle()
    assert world.phase("r") == "Available"
    world.put(pod("stranger", app="b", cpu="1"))
    assert world.node_of("stranger") == ""
    world.put(pod("owner", app="a", cpu="1"))
    assert world.reservation_of("owner") == "r"


@pytest.mark.parametrize("how", ["used", "expired"])
def test_finished_reservations_are_collected_a_day_later(how: str) -> None:
    world = World(node("n1"), reservation("r", ttl="1h"))
    if how == "used":
        world.put(pod("owner", app="a"))
    else:
        world.wait(HOUR)
    world.wait(DAY - 1)
    assert ("Reservation", "r") in world.objects
    world.wait(1)
    assert ("Reservation", "r") not in world.objects


def test_conditions_and_events() -> None:
    world = World(reservation("r"))
    assert world.phase("r") == "Pending"
    scheduled = world.condition("r", "Scheduled")
    assert (scheduled["status"], scheduled["reason"]) == ("False", "Unschedulable")
    assert scheduled["message"] == "no nodes available to schedule pods"
    world.put(node("n1", cpu="1")).wait(11)
    assert (
        world.condition("r", "Scheduled")["message"] == "0/1 nodes are available: 1 Insufficient cpu."
    )
    world.put(node("n2")).wait(11)
    assert world.condition("r", "Scheduled")["status"] == "True"
    assert world.condition("r", "Ready")["reason"] == "Available"
    told = [(e.reason, e.message) for e in world.events if e.about.name == "r"]
    assert told == [
        ("FailedScheduling", "no nodes available to schedule pods"),
        ("FailedScheduling", "0/1 nodes are available: 1 Insufficient cpu."),
        ("Scheduled", "Successfully assigned r to n2"),
    ]


def test_reservation_that_makes_no_sense_says_so_and_the_rest_goes_on() -> None:
    world = World(node("n1"))
    world.put(reservation("bad", requests={"cpu": "four"}), reservation("good"))
    assert world.phase("good") == "Available"
    scheduled = world.condition("bad", "Scheduled")
    assert scheduled["reason"] == "Invalid"
    assert "four" in scheduled["message"]
    told = [(e.type, e.reason, e.message) for e in world.events if e.about.name == "bad"]
    assert told == [("Warning", "InvalidReservation", scheduled["message"])]
    world.restart()
    world.settle()
    assert len([e for e in world.events if e.about.name == "bad"]) == 1, "it is not said again"
    world.edit("Reservation", "bad", spec__template=reservation("x")["spec"]["template"])
    assert world.phase("bad") == "Available"


class TestWaiting:
    def test_capacity_that_comes_free_is_for_the_one_that_waits(self) -> None:
        world = World(node("n1", cpu="8"), pod("old", cpu="6"))
        world.put(reservation("r", cpu="7", preAllocation=True))
        assert (world.phase("r"), world.status("r")["nodeName"]) == ("Waiting", "n1")
        assert world.condition("r", "Ready")["reason"] == "Waiting"
        world.put(pod("stranger", cpu="1"), pod("owner", app="a", cpu="7"))
        assert (world.node_of("stranger"), world.node_of("owner")) == ("", "")
        world.delete("Pod", "old").wait(11)
        assert world.reservation_of("owner") == "r"
        assert world.phase("r") == "Succeeded"
        assert world.node_of("stranger") == "n1"

    def test_at_once_if_there_is_capacity(self) -> None:
        world = World(node("n1", cpu="8"), reservation("r", cpu="7", preAllocation=True))
        assert world.phase("r") == "Available"

    def test_running_pods_are_never_disturbed(self) -> None:
        world = World(node("n1", cpu="8"), pod("old", cpu="8"))
        world.put(reservation("r", cpu="8", preAllocation=True)).wait(HOUR)
        assert (world.node_of("old"), world.phase("r")) == ("n1", "Waiting")

    def test_oldest_first(self) -> None:
        world = World(node("n1", cpu="8"), pod("a1", cpu="4"), pod("a2", cpu="4"))
        world.put(reservation("first", cpu="4", preAllocation=True)).wait(1)
        world.put(reservation("second", cpu="4", preAllocation=True))
        assert (world.phase("first"), world.phase("second")) == ("Waiting", "Waiting")
        world.delete("Pod", "a1")
        assert (world.phase("first"), world.phase("second")) == ("Available", "Waiting")
        world.delete("Pod", "a2")
        assert world.phase("second") == "Available"

    def test_other_reservations_and_pods_that_never_end_are_not_counted_on(self) -> None:
        daemon = [
            {"apiVersion": "apps/v1", "kind": "DaemonSet", "name": "d", "uid": "d", "controller": True}
        ]
        world = World(node("n1", cpu="8"), pod("agent", cpu="2", metadata={"ownerReferences": daemon}))
        world.put(reservation("other", app="b", cpu="2"))
        world.put(reservation("r", cpu="5", preAllocation=True))
        assert (
            world.condition("r", "Scheduled")["message"]
            == "0/1 nodes are available: 1 Insufficient cpu."
        )
        world.put(reservation("fits", cpu="4", preAllocation=True))
        assert world.phase("fits") == "Available"

    def test_node_with_capacity_soonest(self) -> None:
        world = World(node("n1", cpu="8"), node("n2", cpu="8"))
        world.put(pod("long", cpu="8", nodeName="n1"), pod("short", cpu="5", nodeName="n2"))
        world.put(reservation("r", cpu="4", preAllocation=True))
        assert world.status("r")["nodeName"] == "n2"

    def test_why_it_had_no_node_before_is_not_why_it_waits(self) -> None:
        opens = step(
            "5s", patch={"kind": "Node", "name": "n1", "merge": {"spec": {"unschedulable": None}}}
        )
        played = play(
            node("n1", cpu="8", unschedulable=True),
            pod("p", cpu="8", nodeName="n1"),
            reservation("r", cpu="4", preAllocation=True),
            opens,
            until=20,
        )
        told = {e.event: e.message for e in played.result.timeline if e.object == "Reservation/r"}
        assert "unschedulable" in told["Unschedulable"]
        assert told["Waiting"] == ""


class TestResize:
    def test_up_and_down(self) -> None:
        world = World(node("n1", cpu="8"), reservation("r", cpu="4"))
        for cpu in ("6", "2"):
            template = reservation("r", cpu=cpu)["spec"]["template"]
            world.edit("Reservation", "r", spec__template=template)
            assert world.status("r")["allocatable"] == {"cpu": cpu}
            assert world.condition("r", "Resized")["status"] == "True"
            assert world.events[-1].reason == "Resized"
        world.put(pod("stranger", cpu="6"))
        assert world.node_of("stranger") == "n1"

    def test_no_capacity(self) -> None:
        world = World(node("n1", cpu="8"), reservation("r", cpu="4"))
        world.edit("Reservation", "r", spec__template=reservation("r", cpu="9")["spec"]["template"])
        assert world.status("r")["allocatable"] == {"cpu": "4"}
        resized = world.condition("r", "Resized")
        assert (resized["status"], resized["reason"]) == ("False", "Unschedulable")
        assert resized["message"] == "Insufficient cpu"
        world.wait(60)
        told = [(e.type, e.message) for e in world.events if e.reason == "ResizeFailed"]
        assert told == [("Warning", "Insufficient cpu")]


class TestRestart:
    """A new scheduler knows nothing but the objects there are."""

    def test_everything_is_as_before(self) -> None:
        world = World(node("n1", cpu="8"), reservation("r", cpu="6", allocateOnce=False))
        world.put(pod("p1", app="a", cpu="4"))
        before = world.status("r")
        world.restart()
        world.settle()
        assert world.status("r") == before
        world.put(pod("stranger", cpu="4"))
        assert world.node_of("stranger") == ""
        world.put(pod("p2", app="a", cpu="3"))
        assert world.reservation_of("p2") == "r"

    @pytest.mark.parametrize("before", ["", "1"])
    def test_after_a_resize_that_was_refused(self, before: str) -> None:
        """One that reserves a port only has an empty allocatable, and holds nothing."""
        ports: Any = {"pod": {"ports": [80]}}
        world = World(node("n1", cpu="2"), reservation("r", cpu=before, **ports))
        larger = reservation("r", cpu="5", **ports)["spec"]["template"]
        world.edit("Reservation", "r", spec__template=larger)
        assert world.condition("r", "Resized")["status"] == "False"
        world.restart()
        world.settle()
        assert world.status("r").get("allocatable", {}) == ({"cpu": before} if before else {})
        world.put(pod("stranger", cpu="1"))
        assert world.node_of("stranger") == "n1"

    def test_between_bind_and_status(self) -> None:
        world = World(node("n1", cpu="8"), reservation("r", cpu="6"))
        before = world.objects["Reservation", "r"]
        world.put(pod("owner", app="a", cpu="6"))
        world.objects["Reservation", "r"] = before
        world.restart()
        world.settle()
        assert (world.phase("r"), world.owners("r")) == ("Succeeded", ["owner"])

    def test_waiting(self) -> None:
        world = World(node("n1", cpu="8"), pod("old", cpu="6"))
        world.put(reservation("r", cpu="7", preAllocation=True))
        world.restart()
        world.settle()
        assert world.phase("r") == "Waiting"
        world.delete("Pod", "old")
        assert world.phase("r") == "Available"


def test_deleted_while_its_owners_run() -> None:
    world = World(node("n1", cpu="8"), reservation("r", cpu="6", allocateOnce=False))
    world.put(pod("owner", app="a", cpu="2"))
    world.delete("Reservation", "r")
    assert world.node_of("owner") == "n1"
    world.put(pod("stranger", cpu="6"))
    assert world.node_of("stranger") == "n1"


def test_again_under_the_same_name() -> None:
    world = World(node("n1", cpu="8"), reservation("r", cpu="6"))
    again = reservation("r", cpu="8")
    again["metadata"]["uid"] = "another"
    world.delete("Reservation", "r").put(again)
    assert world.status("r")["allocatable"] == {"cpu": "8"}


def test_node_that_shrinks_keeps_the_reservation_and_accepts_nothing_else() -> None:
    world = World(node("n1", cpu="8"), reservation("r", cpu="6", allocateOnce=False))
    row = world.objects["Node", "n1"]
    small = {**row, "status": {"allocatable": {"cpu": "4", "memory": "32G", "pods": "110"}}}
    with patch.object(world, "check"):  # the node is oversold by its own doing, and the check says so
        world.put(small, pod("stranger", cpu="1"), pod("owner", app="a", cpu="5"))
        assert world.phase("r") == "Available"
        assert (world.node_of("stranger"), world.node_of("owner")) == ("", "")
        world.put(pod("small", app="a", cpu="4"))
        assert world.reservation_of("small") == "r"


def released_if_unused(name: str) -> Raw:
    """For half an hour without an owner."""
    raw = reservation(name, cpu="4", allocateOnce=False)
    raw["metadata"]["annotations"] = {"holdfast.io/release-if-unused-after": "30m"}
    return raw


def test_restarts_do_not_prolong_the_time_without_owners() -> None:
    world = World(node("n1", cpu="8"), released_if_unused("r"))
    for _ in range(2):
        world.wait(HOUR / 6)
        world.restart()
    assert world.phase("r") == "Available"
    world.wait(HOUR / 6)
    assert world.condition("r", "Ready")["message"] == "reservation had no owner for 30m0s"


def test_the_time_without_owners_counts_from_the_last_one_also_after_a_restart() -> None:
    world = World(node("n1", cpu="8"), released_if_unused("r"))
    world.wait(HOUR / 3).put(pod("owner", app="a", cpu="2"))
    assert world.condition("r", "Used")["status"] == "True"
    world.wait(HOUR).delete("Pod", "owner")
    world.wait(HOUR / 3)
    world.restart()
    assert world.phase("r") == "Available"
    world.wait(HOUR / 6)
    assert world.phase("r") == "Failed"


@pytest.mark.parametrize("once", [True, False])
def test_evict_at_the_end_warns_if_the_first_owner_is_the_end(once: bool) -> None:
    raw = reservation("r", cpu="4", allocateOnce=once)
    raw["metadata"]["annotations"] = {"holdfast.io/at-end": "Evict"}
    world = World(node("n1", cpu="8"), raw)
    world.restart()
    world.settle()
    assert [event.reason for event in world.events].count("AtEndIgnored") == once


def test_an_owner_that_a_budget_keeps_is_reported_once_and_evicted_later() -> None:
    raw = reservation("r", cpu="4", allocateOnce=False, ttl="1h")
    raw["metadata"]["annotations"] = {"holdfast.io/at-end": "Evict"}
    world = World(node("n1", cpu="8"), raw).put(pod("owner", app="a", cpu="2"))
    world.protected.add("owner")
    world.wait(2 * HOUR)
    text = "Reservation/r has ended: Cannot evict pod as it would violate the pod's disruption budget."
    assert about(world, "owner") == [("EvictionRefused", text)]
    world.protected.clear()
    world.wait(HOUR)
    assert about(world, "owner") == [("EvictionRefused", text), ("Evicted", "Reservation/r has ended")]


def about(world: World, name: str) -> list[tuple[str, str]]:
    """The events of a pod, except those of its start."""
    found = [event for event in world.events if event.about.name == name]
    return [(event.reason, event.message) for event in found if event.reason != "Scheduled"]


def test_a_reservation_whose_start_was_removed_has_no_state_of_a_plan() -> None:
    raw = reservation("r", cpu="8")
    raw["metadata"]["annotations"] = {"holdfast.io/starts-at": "2099-01-01T00:00:00Z"}
    world = World(node("n1", cpu="8"), pod("p", cpu="8")).put(raw)
    assert world.condition("r", "Planned")
    world.edit("Reservation", "r", metadata__annotations={})
    found = {each["type"] for each in world.status("r")["conditions"]}
    assert (world.phase("r"), world.status("r").get("nodeName", "")) == ("Pending", "")
    assert found == {"Scheduled"}


@pytest.mark.parametrize("gang", [False, True])
def test_a_reservation_that_becomes_invalid_before_its_start_is_not_planned(gang: bool) -> None:
    later = {"holdfast.io/starts-at": "2026-01-01T01:00:00Z"}
    if gang:
        later |= {
            "gang.scheduling.koordinator.sh/name": "g",
            "gang.scheduling.koordinator.sh/min-available": "2",
        }
    world = World(
        node("n1", cpu="8"),
        reservation("r", cpu="2", annotations=later),
        reservation("other", cpu="2", annotations=later),
    )
    assert [world.status(name)["nodeName"] for name in ("r", "other")] == ["n1", "n1"]
    template = world.objects["Reservation", "r"]["spec"]["template"]
    invalid = reservation("x", requests={"cpu": "four"})["spec"]["template"]
    world.edit("Reservation", "r", spec__template=invalid)
    assert {each["type"] for each in world.status("r")["conditions"]} == {"Scheduled"}
    assert world.status("r").get("nodeName", "") == ""
    assert world.status("other").get("nodeName", "") == ("" if gang else "n1")
    found = [world.status(name) for name in ("r", "other")]
    world.restart()
    world.settle()
    assert [world.status(name) for name in ("r", "other")] == found
    world.edit("Reservation", "r", spec__template=template)
    assert [world.status(name)["nodeName"] for name in ("r", "other")] == ["n1", "n1"]
    world.wait(HOUR)
    assert [world.phase(name) for name in ("r", "other")] == ["Available", "Available"]


def statuses(decisions: list[Decision]) -> list[ReservationStatus]:
    return [each.status for each in decisions if isinstance(each, SetReservationStatus)]


def test_a_status_is_taken_back_that_was_decided_and_is_not_written_yet() -> None:
    """Otherwise it would be written after all, and the capacity would be reserved that is in use."""
    driver = Driver((Setup(extra=("Reservation",)),))
    cluster = driver.scheduler.cluster
    driver.scheduler._controllers.append(ReservationLifecycle(cluster))
    there = make_pod("there").cpu("2").on("n1").obj()
    driver.add(make_node("n1").allocatable(cpu="4", memory="8Gi").obj(), there)
    builder = make_reservation("w").requests({"cpu": "4"}).owner_labels({"app": "w"})
    made = builder.pre_allocation().obj()
    made.status = ReservationStatus(phase="Waiting", node_name="n1")

    def see(status: ReservationStatus) -> list[ReservationStatus]:
        driver.update(msgspec.structs.replace(made, status=status))
        return statuses(driver.later())

    (waiting,) = statuses(driver.add(made).round())
    assert see(waiting) == []
    (available,) = statuses(driver.delete(there).later())
    assert (waiting.phase, available.phase) == ("Waiting", "Available")
    driver.add(there)
    cluster.reservations.make_waiting(cluster.reservations.known[made.metadata.uid])
    unwritten = statuses(driver.later())
    assert [each.phase for each in unwritten] == ["Waiting"]
    assert statuses(driver.later()) == []

    written = [available, *unwritten]
    for status in written:
        written += see(status)
        assert len(written) < 10
    assert written[-1].phase == "Waiting"
