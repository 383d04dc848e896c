"""`allocatePolicy: Restricted`: what is reserved comes from the reservation alone."""

import pytest

from harness.objects import Raw, node, pod, reservation
from harness.scenarios import play
from harness.world import World
from holdfast.scheduler.framework.config import API_VERSION, KIND

RESERVED = {"cpu": "4", "memory": "4Gi"}
AFFINITY = "scheduling.koordinator.sh/reservation-affinity"
MUST = {"annotations": {AFFINITY: "{}"}}


def test_reserved_resources_come_only_from_the_reservation() -> None:
    world = World(node("n1"), reservation("r", cpu="4", allocatePolicy="Restricted"))
    world.put(pod("owner", app="a", cpu="6"))
    assert world.node_of("owner") == ""
    assert "1 Reservation(s) Insufficient cpu" in world.message("owner")


def test_other_resources_come_from_the_node() -> None:
    world = World(node("n1"), reservation("r", cpu="4", allocatePolicy="Restricted"))
    world.put(pod("owner", app="a", requests={"cpu": "4", "memory": "1Gi"}))
    assert world.reservation_of("owner") == "r"


def test_other_nodes_stay_open() -> None:
    world = World(node("n1"), reservation("r", cpu="4", allocatePolicy="Restricted"), node("n2"))
    world.put(pod("owner", app="a", cpu="6"))
    assert (world.node_of("owner"), world.reservation_of("owner")) == ("n2", "")


def test_when_it_is_used_up_owners_stay_out() -> None:
    world = World(
        node("n1"), reservation("r", cpu="4", allocatePolicy="Restricted", allocateOnce=False)
    )
    world.put(pod("p1", app="a", cpu="4"), pod("p2", app="a", cpu="4"))
    assert [world.node_of("p1"), world.node_of("p2")] == ["n1", ""]
    world.delete("Pod", "p1").wait(11)
    assert world.reservation_of("p2") == "r"


def test_a_reserved_number_of_pods_is_kept_even_if_it_is_one() -> None:
    world = World(node("n1"))
    strict: Raw = {"allocateOnce": False, "allocatePolicy": "Restricted"}
    world.put(reservation("r", requests={"cpu": "4", "pods": "1"}, **strict))
    world.put(pod("p", app="a"), pod("q", app="a", metadata=MUST))
    assert world.reservation_of("p") == "r"
    assert "1 Reservation(s) Too many pods" in world.message("q")
    assert world.status("r")["allocatable"] == {"cpu": "4", "pods": "1"}
    assert world.status("r")["allocated"] == {"cpu": "1"}
    world.restart()
    world.settle().delete("Pod", "p")
    assert world.reservation_of("q") == "r"


@pytest.mark.parametrize(
    ("listed", "drawn"),
    [
        pytest.param('["cpu"]', "r", id="memory may come from the node"),
        pytest.param('["cpu", "memory"]', "", id="neither may"),
        pytest.param('["example.com/other"]', "", id="of nothing it holds, so of all"),
        pytest.param("[]", "", id="of nothing, so of all"),
    ],
)
def test_restricted_may_be_about_some_resources(listed: str, drawn: str) -> None:
    options = {"scheduling.koordinator.sh/reservation-restricted-options": f'{{"resources": {listed}}}'}
    world = World(node("n1"))
    world.put(
        reservation("r", requests=RESERVED, allocatePolicy="Restricted", annotations=options),
        pod("p", app="a", requests={"cpu": "1", "memory": "5Gi"}),
    )
    assert world.reservation_of("p") == drawn


@pytest.mark.parametrize(
    ("arguments", "drawn"),
    [
        pytest.param({}, False, id="all that is reserved"),
        pytest.param({"ignoredResources": ["example.com/card"]}, True, id="but this one"),
        pytest.param({"ignoredResourceGroups": ["example.com"]}, True, id="but such"),
        pytest.param({"ignoredResourceGroups": ["example.org"]}, False, id="but others"),
    ],
)
def test_restricted_leaves_out_what_the_arguments_say(arguments: Raw, drawn: bool) -> None:
    profile = {
        "schedulerName": "holdfast-scheduler",
        "pluginConfig": [{"name": "Reservation", "args": arguments}],
    }
    config = {"apiVersion": API_VERSION, "kind": KIND, "profiles": [profile]}
    card = "example.com/card"
    played = play(
        node("n1", allocatable={card: "10"}),
        reservation("r", requests={"cpu": "4", card: "2"}, allocatePolicy="Restricted"),
        pod("p", app="a", requests={"cpu": "1", card: "3"}),
        config=config,
    )
    assert ("p" in played.bound()) is drawn
