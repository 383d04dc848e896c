"""What the proposal says of the API and its use, statement by statement, in the order it says it.

Motivations, stories, the fields of spec and status, and the use cases. How reservations are scheduled
and allocated is in `test_proposal_scheduling`; preemption in `test_preempted_room`; descheduling in
`test_migration`; the end-to-end cases are the files of `examples/reservations`.
"""

from typing import Any

import pytest

from harness.objects import Raw, node, pod, reservation
from harness.world import World
from holdfast.api.kinds import kind_info
from holdfast.api.names import RESERVATION_API
from holdfast.sim.scenario_objects import ScenarioObject

HOUR = 3600.0
DAY = 24 * HOUR


def test_summary_capacity_is_reserved_for_pods_that_do_not_exist_yet() -> None:
    world = World(node("n1", cpu="4"), reservation("r", cpu="4"))
    assert world.phase("r") == "Available"
    world.wait(HOUR).put(pod("late", app="a", cpu="4"))
    assert world.reservation_of("late") == "r"


class TestMotivation:
    @pytest.mark.parametrize("priority", [0, 1_000_000])
    def test_1_reserved_capacity_is_locked_against_pods_of_the_same_or_a_higher_priority(
        self, priority: int
    ) -> None:
        """Unlike a fake pod, which anyone of a higher priority pushes out."""
        world = World(node("n1", cpu="4"), reservation("r", cpu="4"))
        world.put(pod("other", cpu="1", priority=priority))
        assert (world.node_of("other"), world.phase("r")) == ("", "Available")

    def test_3_replicas_are_scaled_up_once_their_capacity_is_available(self) -> None:
        """Story 3: for certain, even when others want the room in between. See scale-up.yaml."""
        rooms = [reservation(f"r{i}", cpu="4") for i in (1, 2)]
        world = World(node("n1", cpu="8"), *rooms)
        assert [world.phase(name) for name in ("r1", "r2")] == ["Available", "Available"]
        world.put(pod("other", cpu="4"), pod("web-1", app="a", cpu="4"), pod("web-2", app="a", cpu="4"))
        assert {world.reservation_of(name) for name in ("web-1", "web-2")} == {"r1", "r2"}
        assert world.node_of("other") == ""

    def test_4_capacity_that_is_not_free_yet_is_reserved_at_no_cost(self) -> None:
        """Story 4: it waits, disturbs nobody, and is available when there is enough space."""
        world = World(node("n1", cpu="4"), pod("busy", cpu="4"))
        world.put(reservation("r", cpu="4", preAllocation=True)).wait(HOUR)
        assert (world.phase("r"), world.node_of("busy")) == ("Waiting", "n1")
        world.delete("Pod", "busy")
        assert world.phase("r") == "Available"

    def test_story_3_capacity_is_kept_after_a_scale_down(self) -> None:
        world = World(node("n1", cpu="4"), pod("web-1", app="a", cpu="4"))
        world.delete("Pod", "web-1").put(reservation("r", cpu="4"))
        world.put(pod("other", cpu="1"))
        assert world.node_of("other") == ""
        world.put(pod("web-2", app="a", cpu="4"))
        assert world.reservation_of("web-2") == "r"


class TestSpec:
    def test_a_reservation_has_no_namespace_and_serves_pods_of_any(self) -> None:
        assert not kind_info(RESERVATION_API, "Reservation").namespaced
        world = World(node("n1"), reservation("r", cpu="8", allocateOnce=False))
        for namespace in ("one", "two"):
            world.put(
                pod(
                    f"p-{namespace}", app="a", metadata={"namespace": namespace, "labels": {"app": "a"}}
                )
            )
        assert [world.reservation_of(f"p-{namespace}") for namespace in ("one", "two")] == ["r", "r"]

    def test_affinity_is_given_in_the_template(self) -> None:
        rule = {
            "labelSelector": {"matchLabels": {"app": "base"}},
            "topologyKey": "kubernetes.io/hostname",
        }
        near = {"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [rule]}}
        world = World(node("n1"), node("n2"), pod("base", app="base", nodeName="n2"))
        world.put(reservation("r", pod={"affinity": near}))
        assert world.status("r")["nodeName"] == "n2"

    def test_with_a_node_name_no_other_node_is_chosen(self) -> None:
        world = World(node("n1", cpu="2"), node("n2"), reservation("r", pod={"nodeName": "n1"}))
        assert world.phase("r") == "Pending"
        world.put(reservation("fits", cpu="2", pod={"nodeName": "n1"}))
        assert world.status("fits")["nodeName"] == "n1"

    def test_owners_are_alternatives(self) -> None:
        owners = [{"object": {"name": "p1"}}, {"labelSelector": {"matchLabels": {"app": "b"}}}]
        world = World(node("n1"), reservation("r", owners=owners, cpu="8", allocateOnce=False))
        world.put(pod("p1"), pod("p2", app="b"), pod("p3", app="c"))
        assert [world.reservation_of(name) for name in ("p1", "p2", "p3")] == ["r", "r", ""]

    def test_what_one_owner_says_must_all_hold(self) -> None:
        owner = {"object": {"name": "p1"}, "labelSelector": {"matchLabels": {"app": "a"}}}
        world = World(node("n1"), reservation("r", owners=[owner]))
        world.put(pod("p1", app="b"), pod("p2", app="a"))
        assert [world.reservation_of(name) for name in ("p1", "p2")] == ["", ""]

    def test_a_controller_can_be_of_another_namespace(self) -> None:
        parent = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "w", "uid": "w"}
        meta = {"ownerReferences": [{**parent, "controller": True}], "namespace": "shop"}
        for namespace, drawn in (("shop", "r"), ("office", "")):
            owner = {"controller": {**parent, "namespace": namespace}}
            world = World(node("n1"), reservation("r", owners=[owner]), pod("p", metadata=meta))
            assert world.reservation_of("p") == drawn

    def test_an_owner_or_more_is_required_and_each_says_something(self) -> None:
        none: list[Raw] = []
        for owners, field in ((none, "spec.owners"), ([Raw()], "spec.owners[0]")):
            raw = reservation("r", owners=owners)
            assert [error.field for error in ScenarioObject(raw).errors] == [field]

    def test_a_template_is_required(self) -> None:
        raw = reservation("r")
        del raw["spec"]["template"]
        assert [error.field for error in ScenarioObject(raw).errors] == ["spec.template"]

    @pytest.mark.parametrize(
        ("lifetime", "ends_after"),
        [
            pytest.param({}, DAY, id="a day by default"),
            pytest.param({"ttl": "30m"}, HOUR / 2, id="ttl"),
            pytest.param({"ttl": "0"}, None, id="ttl 0 switches it off"),
            pytest.param({"expires": "2026-01-01T00:30:00Z"}, HOUR / 2, id="expires"),
            pytest.param({"expires": "2026-01-03T00:00:00Z"}, 2 * DAY, id="expires past the default"),
            pytest.param(
                {"ttl": "48h", "expires": "2026-01-01T00:30:00Z"},
                HOUR / 2,
                id="expires comes first where both got in",
            ),
        ],
    )
    def test_how_long_it_lives(self, lifetime: Raw, ends_after: float | None) -> None:
        world = World(node("n1"), reservation("r", **lifetime))
        if ends_after is None:
            assert world.wait(1000 * DAY).scheduler.next_timer() is None
            assert world.phase("r") == "Available"
            return
        assert (world.wait(ends_after - 1), world.phase("r"))[1] == "Available"
        assert (world.wait(1), world.phase("r"))[1] == "Failed"

    def test_expires_and_ttl_exclude_each_other(self) -> None:
        raw = reservation("r", ttl="1h", expires="2026-01-01T00:30:00Z")
        assert [error.field for error in ScenarioObject(raw).errors] == ["spec.expires"]

    def test_without_pre_allocation_there_must_be_capacity_now(self) -> None:
        world = World(node("n1", cpu="4"), pod("busy", cpu="2"))
        world.put(reservation("now", cpu="4"), reservation("later", cpu="4", preAllocation=True))
        assert (world.phase("now"), world.phase("later")) == ("Pending", "Waiting")

    def test_it_is_for_the_first_owner_alone_unless_that_is_switched_off(self) -> None:
        for once, drawn in ((None, ["r", ""]), (True, ["r", ""]), (False, ["r", "r"])):
            given: Raw = {} if once is None else {"allocateOnce": once}
            world = World(node("n1"), reservation("r", cpu="4", **given))
            world.put(pod("p1", app="a", cpu="2")).put(pod("p2", app="a", cpu="2"))
            assert [world.reservation_of(name) for name in ("p1", "p2")] == drawn


class TestStatus:
    """What each phase means, and what else the status says."""

    def test_pending_with_the_reason_why(self) -> None:
        world = World(node("n1", cpu="1"), reservation("r", cpu="4"))
        assert world.phase("r") == "Pending"
        scheduled = world.condition("r", "Scheduled")
        assert (scheduled["status"], scheduled["reason"]) == ("False", "Unschedulable")
        assert scheduled["message"] == "0/1 nodes are available: 1 Insufficient cpu."

    def test_available_with_node_and_resources(self) -> None:
        world = World(node("n1"), reservation("r", requests={"cpu": "4", "memory": "4Gi"}))
        status = world.status("r")
        assert (status["phase"], status["nodeName"]) == ("Available", "n1")
        assert status["allocatable"] == {"cpu": "4", "memory": "4Gi"}
        assert _ready(world) == ("True", "Available")

    def test_waiting_while_the_capacity_is_not_ready(self) -> None:
        world = World(node("n1", cpu="4"), pod("busy", cpu="4"))
        world.put(reservation("r", cpu="4", preAllocation=True))
        assert (world.phase("r"), *_ready(world)) == ("Waiting", "False", "Waiting")
        assert world.condition("r", "Scheduled")["status"] == "True"

    def test_succeeded_once_allocated_and_not_allocatable_any_more(self) -> None:
        world = World(node("n1"), reservation("r"), pod("p", app="a", cpu="4"))
        assert (world.phase("r"), *_ready(world)) == ("Succeeded", "False", "Succeeded")

    def test_failed_when_expired_and_cleaned_up_later(self) -> None:
        world = World(node("n1"), reservation("r", ttl="1h")).wait(HOUR)
        assert (world.phase("r"), *_ready(world)) == ("Failed", "False", "Expired")
        world.wait(DAY)
        assert ("Reservation", "r") not in world.objects

    def test_current_owners_and_what_they_have_allocated(self) -> None:
        world = World(
            node("n1"), reservation("r", requests={"cpu": "8", "memory": "8Gi"}, allocateOnce=False)
        )
        world.put(
            pod("p1", app="a", requests={"cpu": "2", "memory": "1Gi"}), pod("p2", app="a", cpu="1")
        )
        status = world.status("r")
        assert status["currentOwners"] == [
            {"namespace": "default", "name": name, "uid": f"pod-{name}"} for name in ("p1", "p2")
        ]
        assert status["allocated"] == {"cpu": "3", "memory": "1Gi"}


def _ready(world: World) -> tuple[Any, Any]:
    ready = world.condition("r", "Ready")
    return ready["status"], ready["reason"]


class TestUsage:
    def test_in_general(self) -> None:
        """Submitted with a template, it is updated with where it is, and the resources are reserved:
        only the pods it says can allocate them."""
        world = World(node("n1", cpu="4"), reservation("r", cpu="4"))
        assert (world.phase("r"), world.status("r")["nodeName"]) == ("Available", "n1")
        world.put(pod("other", cpu="1"), pod("owner", app="a", cpu="4"))
        assert (world.node_of("other"), world.reservation_of("owner")) == ("", "r")

    def test_in_preemption(self) -> None:
        """Story 1: the reservation is the preemptor's, waits for the victims to go, and is then there
        for the preemptor and no one else. More in `test_preempted_room`."""
        world = World(node("n1", cpu="4"), pod("low", cpu="4", priority=0))
        world.graceful = True
        world.put(pod("high", cpu="4", priority=10))
        [name] = [name for kind, name in world.objects if kind == "Reservation"]
        [owner] = world.objects["Reservation", name]["spec"]["owners"]
        assert (owner["object"]["uid"], world.phase(name)) == ("pod-high", "Waiting")
        world.put(pod("thief", cpu="1", priority=10)).delete("Pod", "low").wait(11)
        assert (world.reservation_of("high"), world.node_of("thief")) == (name, "")

    def test_in_pre_allocation(self) -> None:
        """Waiting until the pods that run there have ended; then Available for its owners."""
        world = World(node("n1", cpu="4"), pod("one", cpu="2"), pod("two", cpu="2"))
        world.put(reservation("r", cpu="4", preAllocation=True))
        world.delete("Pod", "one")
        assert world.phase("r") == "Waiting"
        world.delete("Pod", "two")
        assert world.phase("r") == "Available"
        world.put(pod("owner", app="a", cpu="4"))
        assert world.reservation_of("owner") == "r"

    def test_risks_pods_go_to_nodes_with_less_reserved(self) -> None:
        world = World(node("n1"), node("n2"), reservation("r", cpu="8", pod={"nodeName": "n1"}))
        world.put(*(pod(f"p{i}", cpu="2") for i in range(4)))
        assert {world.node_of(f"p{i}") for i in range(4)} == {"n2"}
