"""Virtual reservations are for pods of profiles that have them wait for the real ones."""

import pytest

from harness.objects import ID, Raw, node, pod, requesting, required, reservation
from harness.scenarios import play, step
from harness.world import World
from holdfast.scheduler.cluster.decisions import Bind
from holdfast.scheduler.framework.config import API_VERSION, KIND

ALLOCATED = "scheduling.koordinator.sh/reservation-allocated"
NOWHERE = {"multiPoint": {"disabled": [{"name": "DynamicReservation"}]}}


def profiles(other: Raw) -> Raw:
    """A configuration with a second profile, `other`, with these plugins."""
    return {
        "apiVersion": API_VERSION,
        "kind": KIND,
        "dynamicReservation": {"provisioner": "external"},
        "profiles": [
            {"schedulerName": "holdfast-scheduler"},
            {"schedulerName": "other", "plugins": other},
        ],
    }


def asking() -> Raw:
    """A pod that waits for a reservation of 3 cpu."""
    return requesting("p", 1, requirement=required("one", cpu="3"), recommendedSize={"cpu": "3"})


@pytest.mark.parametrize(
    "other",
    [
        pytest.param(NOWHERE, id="the plugin is disabled"),
        pytest.param({"permit": {"disabled": [{"name": "DynamicReservation"}]}}, id="at Permit"),
        pytest.param({"reserve": {"disabled": [{"name": "DynamicReservation"}]}}, id="at Reserve"),
    ],
)
@pytest.mark.parametrize(
    ("cpu", "bound"),
    [pytest.param(1, (5, ""), id="fits beside it"), pytest.param(2, (10, "real"), id="does not")],
)
@pytest.mark.parametrize("brings_template", [False, True], ids=["sibling", "with a template"])
def test_a_pod_of_another_profile_uses_free_capacity_or_the_real_one(
    other: Raw, cpu: int, bound: tuple[float, str], brings_template: bool
) -> None:
    made = requesting if brings_template else pod
    sibling = made("s", cpu, app="a", at="5s", schedulerName="other")
    real = reservation("real", 3, allocateOnce=False, at="10s", labels={ID: "one"})
    restart = step("20s", restart="scheduler")
    played = play(node("n1", 4), asking(), sibling, real, restart, config=profiles(other), until=60)
    written = played.find("Pod", "s")["metadata"].get("annotations", {}).get(ALLOCATED, "")
    assert (played.times("p", "s"), bound[1] in written, bool(written)) == (
        [10, bound[0]],
        True,
        bool(bound[1]),
    )


def test_a_nominated_pod_of_another_profile_has_no_part_of_a_virtual_reservation() -> None:
    gated = pod("q", 1, app="a", schedulerName="other", schedulingGates=[{"name": "later"}])
    gated["status"] = {"nominatedNodeName": "n1"}
    stranger = pod("x", 1, at="5s")
    played = play(node("n1", 4), asking(), gated, stranger, config=profiles(NOWHERE), until=60)
    assert played.times("x") == [None], "the cpu beside the virtual reservation is for the other"


def test_a_virtual_reservation_is_not_among_those_counted_for_another_profile() -> None:
    sibling = pod("s", 2, app="a", at="5s", schedulerName="other")
    played = play(node("n1", 4), asking(), sibling, config=profiles(NOWHERE), until=60)
    assert "Reservation(s)" not in played.message("s")


def test_no_bind_names_a_virtual_reservation() -> None:
    world = World(node("n1", 4), provisioner="external")
    [profile] = world.scheduler.profiles
    profile.permit = []
    decided: list[Bind] = []
    world.scheduler.decision_listeners.append(
        lambda decisions, now: decided.extend(d for d in decisions if isinstance(d, Bind))
    )
    world.put(asking()).wait(30)
    assert decided == []
    assert "is not created yet" in world.message("p")
