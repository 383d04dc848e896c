"""What is set aside for a pod that brings a template, and what it uses instead."""

from typing import Any

import pytest

from harness.objects import (
    ERROR,
    REQUIREMENT,
    node,
    pod,
    requesting,
    required,
    reservation,
    reservation_template,
)
from harness.world import World


class TestSizes:
    @pytest.mark.parametrize(
        ("nodes", "sizes", "expected"),
        [
            pytest.param("16", {}, {"cpu": "1500m"}, id="nothing said"),
            pytest.param("16", {"recommendedSize": {"cpu": "4"}}, {"cpu": "4"}, id="recommended"),
            pytest.param(
                "16", {"recommendedSize": {"cpu": "1"}}, {"cpu": "1500m"}, id="less than asked"
            ),
            pytest.param("16", {"roundup": {"cpu": "1"}}, {"cpu": "2"}, id="rounded up"),
            pytest.param(
                "16",
                {"recommendedSize": {"cpu": "3"}, "roundup": {"cpu": "2"}},
                {"cpu": "4"},
                id="recommended and rounded up",
            ),
            pytest.param(
                "16",
                {"recommendedSize": {"cpu": "4", "memory": "3Gi"}, "roundup": {"memory": "2Gi"}},
                {"cpu": "4", "memory": "4Gi"},
                id="more resources than asked for",
            ),
            pytest.param("16", {"roundup": {"cpu": "0"}}, {"cpu": "1500m"}, id="rounded up to nothing"),
            pytest.param("16", {"roundup": {"cpu": "700m"}}, {"cpu": "2100m"}, id="odd steps"),
            pytest.param(
                "3",
                {"recommendedSize": {"cpu": "4"}, "roundup": {"cpu": "1"}},
                {"cpu": "2"},
                id="no room for what is recommended",
            ),
            pytest.param(
                "1800m",
                {"recommendedSize": {"cpu": "4"}, "roundup": {"cpu": "1"}},
                {"cpu": "1500m"},
                id="no room for what is rounded up",
            ),
        ],
    )
    def test_capacity_asked_for(
        self, nodes: str, sizes: dict[str, Any], expected: dict[str, str]
    ) -> None:
        world = World(node("n1", cpu=nodes), requesting("p", cpu="1500m", **sizes))
        assert world.requirement("p") == expected
        [made] = world.reservations()
        [container] = made["spec"]["template"]["spec"]["containers"]
        assert container["resources"]["requests"] == expected
        assert (made["spec"]["allocateOnce"], made["spec"]["allocatePolicy"]) == (False, "Aligned")
        assert made["status"]["allocatable"] == expected
        assert made["status"]["allocated"]["cpu"] == "1500m"
        assert (world.node_of("p"), world.reservation_of("p")) == ("n1", made["metadata"]["name"])

    def test_a_node_with_capacity_for_all_that_is_recommended_comes_first(self) -> None:
        world = World(
            node("n1", cpu="2"), node("n2", cpu="8"), requesting("p", recommendedSize={"cpu": "8"})
        )
        assert (world.node_of("p"), world.requirement("p")) == ("n2", {"cpu": "8"})

    def test_no_capacity_at_all(self) -> None:
        world = World(node("n1", cpu="1"), requesting("p", cpu="2", recommendedSize={"cpu": "4"}))
        assert world.message("p").startswith("0/1 nodes are available: 1 Insufficient cpu.")
        assert (world.requirement("p"), world.reservations(), world.reserved("n1")) == ({}, [], 0)
        world.put(node("n2", cpu="2"))
        assert (world.node_of("p"), world.requirement("p")) == ("n2", {"cpu": "2"})

    def test_a_pod_that_asks_for_nothing_gets_what_is_recommended(self) -> None:
        world = World(node("n1"), requesting("p", requests={}, recommendedSize={"cpu": "2"}))
        assert world.requirement("p") == {"cpu": "2"}
        assert world.reservation_of("p") == world.reservations()[0]["metadata"]["name"]

    def test_a_pod_that_asks_for_nothing_reserves_nothing(self) -> None:
        world = World(node("n1"), requesting("p", requests={}))
        assert (world.node_of("p"), world.reservations()) == ("n1", [])

    def test_what_the_pod_needs_of_a_node_is_needed_of_its_reservation_too(self) -> None:
        world = World(
            node("n1", cpu="32"),
            node("n2", cpu="8", labels={"disk": "fast"}),
            requesting("p", recommendedSize={"cpu": "16"}, nodeSelector={"disk": "fast"}),
        )
        assert (world.node_of("p"), world.requirement("p")) == ("n2", {"cpu": "1"})


class TestReservationsThatAreThere:
    @pytest.mark.parametrize(
        ("size", "used"),
        [
            pytest.param("4", True, id="larger"),
            pytest.param("2", True, id="just enough"),
            pytest.param("1", False, id="not enough left"),
        ],
    )
    def test_a_fitting_one_is_used(self, size: str, used: bool) -> None:
        world = World(node("n1"), reservation("r", cpu=size, allocateOnce=False))
        world.put(requesting("p", cpu="2"))
        assert (world.reservation_of("p") == "r") is used
        assert len(world.reservations()) == (1 if used else 2)

    def test_the_rest_of_one_is_used_where_there_is_no_capacity_for_another(self) -> None:
        world = World(node("n1", cpu="2"), reservation("r", cpu="1", allocateOnce=False))
        world.put(requesting("p", cpu="2"))
        assert (world.reservation_of("p"), len(world.reservations())) == ("r", 1)

    def test_siblings_use_the_first_ones_until_it_is_full(self) -> None:
        size: dict[str, Any] = {"recommendedSize": {"cpu": "4"}}
        world = World(node("n1"), *(requesting(f"p{i}", cpu="2", **size) for i in range(5)))
        drawn = [world.reservation_of(f"p{i}") for i in range(5)]
        assert len(world.reservations()) == 3
        assert sorted(drawn.count(name) for name in set(drawn)) == [1, 2, 2]

    def test_a_pod_that_ignores_reservations_gets_none(self) -> None:
        ignoring = {"app": "a", "scheduling.koordinator.sh/reservation-ignored": "true"}
        world = World(node("n1"), requesting("p", labels=ignoring))
        assert (world.node_of("p"), world.reservation_of("p"), world.reservations()) == ("n1", "", [])

    @pytest.mark.parametrize(
        ("affinity", "bound"), [("{}", True), ('{"name": "other"}', False)], ids=["any", "by name"]
    )
    def test_a_pod_that_must_use_a_reservation(self, affinity: str, bound: bool) -> None:
        raw = requesting("p")
        raw["metadata"]["annotations"]["scheduling.koordinator.sh/reservation-affinity"] = affinity
        world = World(node("n1"), raw)
        assert bool(world.node_of("p")) is bound
        assert len(world.reservations()) == bound


class TestOwners:
    def test_a_pod_gets_its_reservation_though_it_is_for_others(self) -> None:
        world = World(node("n1"), requesting("p", labels={}, template=reservation_template("other")))
        assert world.reservation_of("p") == world.reservations()[0]["metadata"]["name"]

    @pytest.mark.parametrize("reference", [{"name": "p"}, {"uid": "pod-p"}])
    def test_for_the_pod_itself(self, reference: dict[str, str]) -> None:
        world = World(
            node("n1"), requesting("p", owners=[{"object": reference}], recommendedSize={"cpu": "4"})
        )
        assert world.reservation_of("p") == world.reservations()[0]["metadata"]["name"]

    def test_for_pods_of_a_controller(self) -> None:
        owners = [{"controller": {"kind": "ReplicaSet", "name": "web"}}]
        one, two = (requesting(name, owners=owners, recommendedSize={"cpu": "2"}) for name in "pq")
        for raw in (one, two):
            raw["metadata"]["ownerReferences"] = [
                {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web", "uid": "u"}
            ]
        world = World(node("n1"), one, two)
        assert world.reservation_of("p") == world.reservation_of("q") != ""


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("{", "not JSON"),
        ('"all"', "expected a map"),
        ("{}", ".owners: Required value: at least one owner"),
        ('{"owners": [{}]}', ".owners[0]: Required value: needs at least one of"),
        (
            '{"owners": [{"labelSelector": {}}], "recommendedSize": {"cpu": "much"}}',
            ".recommendedSize[cpu]:",
        ),
        (
            '{"owners": [{"labelSelector": {}}], "roundup": {"cpu": "-1"}}',
            '.roundup[cpu]: Invalid value: "-1": must be greater than or equal to 0',
        ),
        (
            '{"owners": [{"labelSelector": {}}], "recomendedSize": {}}',
            ".recomendedSize: unknown field; did you mean",
        ),
    ],
)
def test_a_template_that_makes_no_sense(text: str, complaint: str) -> None:
    world = World(node("n1"), requesting("p", template=text))
    assert world.node_of("p") == ""
    assert complaint in world.message("p")
    assert "reservation-template" in world.message("p")
    world.edit("Pod", "p", metadata__annotations={})
    assert world.node_of("p") == "n1"


class TestRequirementThatIsThere:
    def test_it_is_taken_up(self) -> None:
        asked = required("abc", cpu="3")
        world = World(node("n1"), requesting("p", requirement=asked))
        assert (world.requirement_id("p"), world.requirement("p")) == ("abc", {"cpu": "3"})
        [made] = world.reservations()
        assert made["metadata"]["labels"]["scheduling.koordinator.sh/reservation-id"] == "abc"
        assert world.reservation_of("p") == made["metadata"]["name"]

    def test_it_is_never_less_than_the_pod_asks_for(self) -> None:
        world = World(node("n1"), requesting("p", cpu="2", requirement=required("abc", cpu="1")))
        assert (world.requirement_id("p"), world.requirement("p")) == ("abc", {"cpu": "2"})

    def test_its_id_stays_where_there_is_less_capacity_now(self) -> None:
        world = World(node("n1", cpu="2"), requesting("p", requirement=required("abc", cpu="4")))
        assert (world.requirement_id("p"), world.requirement("p")) == ("abc", {"cpu": "1"})
        assert world.reservation_of("p") != ""

    def test_one_that_makes_no_sense_is_replaced(self) -> None:
        raw = requesting("p")
        raw["metadata"]["annotations"][REQUIREMENT] = "{}"
        world = World(node("n1"), raw)
        assert world.requirement_id("p") and world.reservation_of("p")

    def test_it_means_nothing_without_a_template(self) -> None:
        world = World(node("n1"), pod("p", app="a", metadata={"annotations": {REQUIREMENT: "{}"}}))
        assert (world.node_of("p"), world.reservation_of("p")) == ("n1", "")

    def test_an_id_whose_reservation_is_over_is_not_waited_for(self) -> None:
        over = reservation("r", labels={"scheduling.koordinator.sh/reservation-id": "abc"})
        over["status"] = {"phase": "Failed"}
        world = World(node("n1"), over, requesting("p", requirement=required("abc", cpu="1")))
        assert world.requirement_id("p") != "abc"
        assert world.reservation_of("p") not in ("", "r")

    def test_an_error_that_is_there_is_a_failure_and_then_taken_away(self) -> None:
        raw = requesting("p", requirement=required("abc", cpu="1"))
        raw["metadata"]["annotations"][ERROR] = "out of paper"
        world = World(node("n1"), raw)
        assert "out of paper" in world.message("p")
        world.wait(5)
        assert (world.annotation("p", ERROR), bool(world.reservation_of("p"))) == ("", True)
