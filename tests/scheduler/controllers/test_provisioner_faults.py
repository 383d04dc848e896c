"""What becomes of pods and room when a provisioner is slow, wrong, or not there."""

from typing import Any

import pytest

from harness.objects import ERROR, ID, Raw, node, pod, requesting, required, reservation
from harness.world import World
from holdfast.metrics import SchedulingMetrics

MINUTE = 60.0


def made_for(world: World, name: str, cpu: str = "4", **more: Any) -> Raw:
    """A reservation as another provisioner would make it for a pod."""
    return reservation(
        "r", cpu=cpu, labels={ID: world.requirement_id(name)}, allocateOnce=False, **more
    )


def external(*objects: Raw, **settings: Any) -> World:
    return World(*objects, provisioner="external", **settings)


def four(name: str, **more: Any) -> Raw:
    return requesting(name, recommendedSize={"cpu": "4"}, **more)


class TestWaiting:
    def test_capacity_is_set_aside_and_the_pod_waits(self) -> None:
        world = external(node("n1", cpu="5"), four("p"), pod("stranger", cpu="2"))
        assert (world.node_of("p"), world.requirement("p")) == ("", {"cpu": "4"})
        assert world.node_of("stranger") == ""
        assert world.provisioning_events("p") == ["ReservationCreationAttempt"]
        world.wait(9 * MINUTE).put(made_for(world, "p"))
        assert (world.reservation_of("p"), world.phase("r")) == ("r", "Available")
        assert world.status("r")["nodeName"] == "n1"
        assert world.status("r")["allocated"] == {"cpu": "1"}
        assert world.provisioning_events("p")[1:] == ["ReservationCreationSuccess"]
        assert world.node_of("stranger") == ""

    def test_siblings_share_the_capacity_and_are_bound_together(self) -> None:
        world = external(node("n1", cpu="5"), four("p", cpu="2"))
        world.put(four("q", cpu="2")).put(pod("full", app="a", cpu="1")).put(pod("stranger"))
        assert [world.node_of(name) for name in ("p", "q", "full")] == ["", "", "n1"]
        assert (world.reservation_of("full"), world.requirement("q"), world.node_of("stranger")) == (
            "",
            {},
            "",
        )
        world.put(made_for(world, "p"))
        assert [world.reservation_of(name) for name in ("p", "q")] == ["r", "r"]
        assert world.status("r")["allocated"] == {"cpu": "4"}

    def test_a_sibling_without_a_template_waits_too(self) -> None:
        world = external(node("n1"), four("p"), pod("q", app="a"))
        assert world.node_of("q") == ""
        world.put(made_for(world, "p"))
        assert world.reservation_of("q") == "r"

    def test_the_id_may_be_an_annotation(self) -> None:
        world = external(node("n1"), four("p"))
        world.put(reservation("r", annotations={ID: world.requirement_id("p")}, allocateOnce=False))
        assert world.reservation_of("p") == "r"

    def test_one_that_comes_with_its_node_is_used_where_it_is(self) -> None:
        for where in ("n1", "n2"):
            world = external(node("n1"), four("p"))
            world.put(node("n2"))
            raw = made_for(world, "p")
            raw["status"] = {"phase": "Available", "nodeName": where, "allocatable": {"cpu": "4"}}
            world.put(raw).wait(MINUTE)
            assert (world.reservation_of("p"), world.node_of("p")) == ("r", where)
            assert world.reserved("n1") + world.reserved("n2") == 3000


class TestTooLate:
    def test_the_pod_is_tried_again_and_its_capacity_kept(self) -> None:
        world = external(node("n1", cpu="5"), four("p"))
        world.put(pod("stranger", cpu="2")).wait(10 * MINUTE)
        assert "was not created within 600s" in world.message("p")
        assert world.provisioning_events("p") == ["ReservationCreationAttempt", "ReservationTimeout"]
        id = world.requirement_id("p")
        world.wait(9 * MINUTE)
        assert (world.node_of("stranger"), world.requirement_id("p")) == ("", id)
        world.put(made_for(world, "p"))
        assert world.reservation_of("p") == "r"

    def test_the_capacity_is_given_up_in_the_end(self) -> None:
        world = external(node("n1", cpu="4"), four("p"), provisionTimeout="1m", virtualRetention="30s")
        world.put(pod("stranger", cpu="4")).wait(89)
        assert world.node_of("stranger") == ""
        world.wait(1)
        assert world.node_of("stranger") == "n1"

    def test_one_that_comes_after_that_is_an_ordinary_one(self) -> None:
        world = external(node("n1", cpu="4"), four("p"), provisionTimeout="1m", virtualRetention="30s")
        world.put(pod("stranger", cpu="4")).wait(100)
        assert world.message("p").startswith("0/1 nodes are available")
        world.put(made_for(world, "p"))
        assert world.phase("r") == "Pending"
        world.put(node("n2", cpu="8")).wait(MINUTE)
        assert (world.reservation_of("p"), world.phase("r")) == ("r", "Available")

    def test_bind_anyway(self) -> None:
        world = external(node("n1", cpu="5"), four("p"), onFailure="Bind", provisionTimeout="1m")
        world.put(pod("q", app="a")).wait(59)
        assert (world.node_of("p"), world.node_of("q")) == ("", "")
        world.wait(1)
        assert (world.node_of("p"), world.node_of("q")) == ("n1", "n1")
        assert (world.reservation_of("p"), world.reserved("n1")) == ("", 0)
        late = reservation("late", cpu="2", labels={ID: world.requirement_id("p")}, allocateOnce=False)
        world.put(late)
        assert (world.phase("late"), world.owners("late")) == ("Available", [])


class TestErrors:
    def test_an_error_is_a_failure_at_once(self) -> None:
        world = external(node("n1", cpu="4"), four("p"))
        world.edit(
            "Pod",
            "p",
            metadata__annotations={
                **world.objects["Pod", "p"]["metadata"]["annotations"],
                ERROR: "quota exceeded",
            },
        )
        assert "quota exceeded" in world.message("p")
        assert world.provisioning_events("p") == [
            "ReservationCreationAttempt",
            "ReservationCreationFailure",
        ]
        world.wait(5)
        assert world.annotation("p", ERROR) == ""
        world.put(made_for(world, "p"))
        assert world.reservation_of("p") == "r"

    @pytest.mark.parametrize("who", ["builtin", "apart"])
    def test_a_provisioner_says_what_went_wrong_and_tries_again(self, who: str) -> None:
        world = World(node("n1"), provisioner=who)
        world.creation_refusal = "quota exceeded"
        world.put(four("p"))
        assert "quota exceeded" in world.message("p")
        world.creation_refusal = ""
        world.wait(MINUTE)
        assert world.reservation_of("p") != ""
        assert len(world.reservations()) == 1

    def test_it_is_tried_again_though_no_capacity_is_kept(self) -> None:
        world = World(node("n1"), virtualRetention="0s")
        world.creation_refusal = "quota exceeded"
        world.put(four("p"))
        assert world.reserved("n1") == 0
        world.creation_refusal = ""
        world.wait(MINUTE)
        assert world.reservation_of("p") != ""

    def test_bind_anyway(self) -> None:
        world = World(node("n1"), onFailure="Bind")
        world.creation_refusal = "quota exceeded"
        world.put(four("p"))
        assert (world.node_of("p"), world.reservation_of("p"), world.reserved("n1")) == ("n1", "", 0)
        assert world.reservations() == []

    def test_a_pod_that_cannot_be_told(self) -> None:
        world = external(node("n1", cpu="4"))
        world.refuse.add("pod-p")
        world.put(four("p"))
        assert "cannot request reservation" in world.message("p")
        world.wait(5)
        assert world.requirement("p") == {"cpu": "4"}
        world.put(made_for(world, "p"))
        assert world.reservation_of("p") == "r"


class TestWhatWillNotDo:
    def test_too_small(self) -> None:
        world = external(node("n1"), four("p"))
        world.put(made_for(world, "p", cpu="3"))
        assert (world.node_of("p"), world.phase("r")) == ("", "Pending")
        message = world.condition("r", "Scheduled")["message"]
        assert message == f"it reserves 3 of cpu, {world.requirement_id('p')} requires 4"
        assert world.provisioning_events("r") == ["ReservationCreationFailure"]
        world.edit("Reservation", "r", spec__template={"spec": world_spec("4")})
        assert (world.reservation_of("p"), world.phase("r")) == ("r", "Available")

    def test_larger_is_fine_where_it_fits(self) -> None:
        world = external(node("n1", cpu="8"), four("p"))
        world.put(made_for(world, "p", cpu="8"))
        assert (world.reservation_of("p"), world.reserved("n1")) == ("r", 7000)

    def test_larger_than_fits(self) -> None:
        world = external(node("n1", cpu="8"), four("p"), pod("other", cpu="2"))
        world.put(made_for(world, "p", cpu="8"))
        assert world.node_of("p") == ""
        assert "does not fit n1: Insufficient cpu" in world.condition("r", "Scheduled")["message"]
        world.delete("Pod", "other")
        assert (world.reservation_of("p"), world.reserved("n1")) == ("r", 7000)

    def test_for_another_node(self) -> None:
        world = external(node("n1"), four("p"))
        world.put(node("n2"), made_for(world, "p", pod={"nodeName": "n2"}))
        assert world.node_of("p") == ""
        assert "requests node n2" in world.condition("r", "Scheduled")["message"]

    def test_a_second_one_for_the_same_id_is_an_ordinary_one(self) -> None:
        world = external(node("n1"), four("p"))
        second = {**made_for(world, "p"), "metadata": {"name": "s", "uid": "s"}}
        second["metadata"]["labels"] = {ID: world.requirement_id("p")}
        world.put(made_for(world, "p"), second).put(node("n2"))
        assert (world.reservation_of("p"), world.phase("s"), world.reserved("n2")) == (
            "r",
            "Available",
            4000,
        )


def world_spec(cpu: str) -> Raw:
    return {"containers": [{"name": "main", "resources": {"requests": {"cpu": cpu}}}]}


class TestThingsThatGo:
    def test_the_pod(self) -> None:
        world = external(node("n1", cpu="4"), four("p"), pod("stranger", cpu="4"))
        late = made_for(world, "p")
        world.delete("Pod", "p")
        assert (world.node_of("stranger"), world.reserved("n1")) == ("n1", 0)
        world.put(late, node("n2"))
        assert world.phase("r") == "Available"

    def test_the_pod_while_it_is_being_deleted(self) -> None:
        world = external(node("n1", cpu="4"), four("p"), pod("stranger", cpu="4"))
        world.edit("Pod", "p", metadata__deletionTimestamp="2026-01-01T00:00:00Z")
        assert (world.node_of("stranger"), world.reserved("n1")) == ("n1", 0)

    def test_the_pod_that_asked_but_not_its_sibling(self) -> None:
        world = external(node("n1", cpu="4"), four("p", cpu="2"), four("q", cpu="2"))
        id = world.requirement_id("p")
        assert world.requirement("q") == {}
        world.delete("Pod", "p")
        assert (world.requirement_id("q"), world.requirement("q")) == (id, {"cpu": "4"})
        world.put(made_for(world, "q"))
        assert world.reservation_of("q") == "r"

    def test_the_pod_that_asked_but_not_a_sibling_without_a_template(self) -> None:
        world = external(node("n1", cpu="4"), four("p"), pod("q", app="a"))
        world.delete("Pod", "p").wait(MINUTE)
        assert (world.node_of("q"), world.reserved("n1")) == ("n1", 0)

    def test_the_pod_after_a_failure(self) -> None:
        world = external(node("n1", cpu="4"), four("p"), provisionTimeout="1m")
        world.wait(60.5).delete("Pod", "p")
        assert world.reserved("n1") == 0

    def test_the_node(self) -> None:
        world = external(node("n1", cpu="4"), four("p"))
        id = world.requirement_id("p")
        world.delete("Node", "n1")
        assert world.node_of("p") == ""
        world.put(node("n2", cpu="8")).wait(MINUTE)
        assert world.requirement_id("p") == id
        world.put(made_for(world, "p"))
        assert (world.reservation_of("p"), world.node_of("p")) == ("r", "n2")

    def test_the_reservation_once_it_was_there(self) -> None:
        world = external(node("n1", cpu="4"), four("p"))
        world.refuse.add("rsv-r")
        world.put(made_for(world, "p")).wait(MINUTE)
        assert world.reservation_of("p") == "r"

    def test_the_bind_of_the_pod(self) -> None:
        world = World(node("n1", cpu="4"))
        world.put(requesting("p", requirement=required("abc", cpu="2")))
        assert world.reservation_of("p")
        world = external(node("n1", cpu="4"), four("p"))
        world.refuse.add("pod-p")
        world.put(made_for(world, "p")).wait(MINUTE)
        assert (world.reservation_of("p"), world.reserved("n1")) == ("r", 3000)


def test_what_is_set_aside_is_no_reservation_yet() -> None:
    world = external(node("n1"), four("p"))
    text = SchedulingMetrics(world.scheduler).text().decode()
    assert 'holdfast_reservations{phase="Pending"} 0.0' in text
    assert "virtual/" not in text


def test_figures() -> None:
    world = external(node("n1"), four("p"), provisionTimeout="1m")
    world.wait(70).put(made_for(world, "p"))
    figures = world.scheduler.cluster.virtuals.figures
    assert (figures.requests, figures.created, figures.failures) == (1, 1, 1)
    [latency] = figures.latencies
    assert 5 < latency < 70
    text = SchedulingMetrics(world.scheduler).text().decode()
    shown = [line for line in text.splitlines() if line.startswith("scheduler_reservation_")]
    for line in (
        "scheduler_reservation_requests_total 1.0",
        "scheduler_reservation_created_total 1.0",
        "scheduler_reservation_creation_failures_total 1.0",
        f"scheduler_reservation_creation_duration_seconds_sum {latency}",
        "scheduler_reservation_creation_duration_seconds_count 1.0",
        "scheduler_reservation_pending_duration_seconds_count 1.0",
        "scheduler_reservation_pending_duration_seconds_sum 0.0",
    ):
        assert line in shown
