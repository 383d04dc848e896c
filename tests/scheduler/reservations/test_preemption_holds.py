"""What a pod preempted is held for it, and for no one else, by a reservation it owns."""

from typing import Any

import pytest

from harness.objects import Raw, node, pod, pod_group, queue, reservation
from harness.scenarios import play
from harness.world import World
from holdfast.sim.scenario_objects import ScenarioObject

UID = "holdfast.io/preemptor-uid"


def world(*objects: Raw, graceful: bool = True) -> World:
    made = World(*objects)
    made.graceful = graceful
    return made


def full_node(graceful: bool = True) -> World:
    """One node of 4 cores, taken by two pods of no importance."""
    made = world(node("n1", cpu="4"), graceful=graceful)
    return made.put(pod("low-1", cpu="2", priority=0), pod("low-2", cpu="2", priority=0))


def rooms(made: World) -> dict[str, Raw]:
    """The reservations made for preemptors, by the name of the pod."""
    return {
        raw["spec"]["owners"][0]["object"]["name"]: raw
        for (kind, _), raw in made.objects.items()
        if kind == "Reservation" and UID in raw["metadata"].get("labels", {})
    }


def phase_of_room(made: World, name: str) -> str:
    return str(rooms(made)[name].get("status", {}).get("phase"))


def gone(made: World, *names: str) -> World:
    for name in names:
        made.delete("Pod", name)
    return made


def test_it_is_a_reservation_that_says_for_whom_and_why() -> None:
    made = full_node().put(pod("high", cpu="4", priority=10, uid="u-high"))
    (room,) = rooms(made).values()
    assert ScenarioObject(room).errors == []
    meta, spec = room["metadata"], room["spec"]
    assert meta["name"].startswith("preempted-for-high-")
    assert meta["labels"] == {UID: "u-high"}
    assert meta["annotations"]["holdfast.io/held-for"] == "default/high"
    assert meta["annotations"]["holdfast.io/held-because"] == (
        "2 pods on n1 preempted for default/high"
    )
    (owner,) = spec["owners"]
    assert owner == {
        "object": {
            "apiVersion": "v1",
            "kind": "Pod",
            "namespace": "default",
            "name": "high",
            "uid": "u-high",
        }
    }
    assert spec["allocateOnce"] and spec["preAllocation"]
    assert spec["template"]["spec"]["nodeName"] == "n1"
    assert room["status"]["phase"] == "Waiting"
    assert room["status"]["allocatable"] == {"cpu": "4"}


def test_the_preemptor_gets_it_once_all_victims_have_left() -> None:
    made = full_node().put(pod("high", cpu="4", priority=10))
    assert made.node_of("high") == ""
    gone(made, "low-1").wait(15)
    assert (phase_of_room(made, "high"), made.node_of("high")) == ("Waiting", "")
    gone(made, "low-2").wait(15)
    assert made.node_of("high") == "n1"
    assert made.reservation_of("high").startswith("preempted-for-high-")
    assert phase_of_room(made, "high") == "Succeeded"


def test_victims_that_leave_at_once_make_no_difference() -> None:
    made = full_node(graceful=False).put(pod("high", cpu="4", priority=10))
    assert made.node_of("high") == "n1"
    assert made.reservation_of("high").startswith("preempted-for-high-")
    status = rooms(made)["high"]["status"]
    assert (status["phase"], status["nodeName"]) == ("Succeeded", "n1")
    assert [owner["name"] for owner in status["currentOwners"]] == ["high"]
    assert (status["allocatable"], status["allocated"]) == ({"cpu": "4"}, {"cpu": "4"})


def test_capacity_that_was_there_before_it_could_be_held_is_held_after_a_bind_that_failed() -> None:
    made = full_node(graceful=False)
    made.refuse.add("pod-high")
    made.put(pod("high", cpu="4", priority=10))
    assert (made.node_of("high"), phase_of_room(made, "high")) == ("", "Available")
    made.put(pod("higher", cpu="2", priority=1000, preemptionPolicy="Never"))
    made.wait(15)
    assert (made.node_of("high"), made.node_of("higher")) == ("n1", "")
    assert phase_of_room(made, "high") == "Succeeded"


@pytest.mark.parametrize("unfinished", [{}, {"phase": "Pending"}])
def test_a_restart_before_it_is_written_that_the_preemptor_has_it(unfinished: Raw) -> None:
    made = full_node(graceful=False).put(pod("high", cpu="2", priority=10))
    (room,) = [name for kind, name in made.objects if kind == "Reservation"]
    made.objects["Reservation", room]["status"] = unfinished
    made.restart()
    made.settle()
    assert phase_of_room(made, "high") == "Succeeded"
    (survivor,) = [name for kind, name in made.objects if kind == "Pod" and name != "high"]
    gone(made, survivor).put(pod("other", cpu="2", priority=0))
    assert made.node_of("other") == "n1"  # the room is not taken twice


@pytest.mark.parametrize("priority", [0, 10, 1000])
def test_nobody_else_gets_what_victims_leave(priority: int) -> None:
    made = full_node().put(pod("high", cpu="4", priority=10))
    made.put(pod("other", cpu="1", priority=priority, preemptionPolicy="Never"))
    gone(made, "low-1").wait(30)
    assert made.node_of("other") == ""
    gone(made, "low-2").wait(30)
    assert (made.node_of("high"), made.node_of("other")) == ("n1", "")


def test_it_is_counted_once_though_the_node_is_also_nominated() -> None:
    """Room for the preemptor, whose bind was refused, and for another pod besides."""
    made = world(node("n1", cpu="5")).put(pod("low", cpu="4", priority=0))
    made.refuse.add("pod-high")
    made.put(pod("high", cpu="4", priority=10))
    gone(made, "low").put(pod("small", cpu="1", priority=0))
    assert (made.node_of("high"), made.node_of("small")) == ("", "n1")
    assert made.wait(15).node_of("high") == "n1"


@pytest.mark.parametrize("when", ["waiting", "free"])
def test_it_goes_with_the_preemptor(when: str) -> None:
    made = full_node().put(pod("high", cpu="4", priority=10))
    made.put(pod("other", cpu="2", priority=0))
    if when == "free":
        made.delete("Pod", "low-1")
    made.delete("Pod", "high")
    assert rooms(made) == {}
    if when == "waiting":
        made.delete("Pod", "low-1")
    made.wait(15)
    assert made.node_of("other") == "n1"


def test_it_goes_when_the_preemptor_is_bound_elsewhere() -> None:
    made = full_node().put(pod("high", cpu="4", priority=10))
    made.put(node("n2", cpu="4")).wait(15)
    assert made.node_of("high") == "n2"
    assert rooms(made) == {}


def test_it_goes_when_the_node_does() -> None:
    made = full_node().put(pod("high", cpu="4", priority=10))
    gone(made, "low-1", "low-2")
    made.delete("Node", "n1").wait(15)
    assert rooms(made) == {} or phase_of_room(made, "high") in ("Failed", "Succeeded")


def test_it_goes_when_the_node_will_not_do_any_more() -> None:
    made = full_node().put(pod("high", cpu="4", priority=10))
    gone(made, "low-1")
    made.edit("Node", "n1", spec__unschedulable=True)
    gone(made, "low-2").wait(15)
    assert made.node_of("high") == ""
    assert rooms(made) == {}


@pytest.mark.parametrize("left", [(), ("low-1",), ("low-1", "low-2")])
def test_a_restart_finds_it_again(left: tuple[str, ...]) -> None:
    made = full_node().put(pod("high", cpu="4", priority=10))
    for name in left:
        raw = made.objects.pop(("Pod", name))
        assert raw
    made.restart()
    made.settle()
    made.put(pod("higher", cpu="2", priority=1000, preemptionPolicy="Never"))
    for name in {"low-1", "low-2"} - set(left):
        made.delete("Pod", name)
    made.wait(30)
    assert made.node_of("high") == "n1"
    assert len(rooms(made)) == 1
    assert made.node_of("higher") == ""


def test_a_restart_before_it_has_its_node() -> None:
    made = full_node().put(pod("high", cpu="4", priority=10))
    (name,) = [name for kind, name in made.objects if kind == "Reservation"]
    made.objects["Reservation", name]["status"] = {}
    made.restart()
    made.settle()
    assert phase_of_room(made, "high") == "Waiting"


def test_a_restart_after_which_the_preemptor_is_gone() -> None:
    made = full_node().put(pod("high", cpu="4", priority=10))
    del made.objects["Pod", "high"]
    made.restart()
    made.settle()
    assert rooms(made) == {}


def test_the_nomination_a_restart_did_not_find_is_made_up_for() -> None:
    made = full_node().put(pod("high", cpu="4", priority=10))
    del made.objects["Pod", "high"]["status"]["nominatedNodeName"]
    made.restart()
    made.settle()
    assert made.objects["Pod", "high"]["status"]["nominatedNodeName"] == "n1"
    gone(made, "low-1", "low-2").wait(15)
    assert made.node_of("high") == "n1"


def test_a_pod_of_the_same_name_is_another_pod() -> None:
    made = full_node().put(pod("high", cpu="4", priority=10))
    made.delete("Pod", "high")
    made.put(pod("high", cpu="4", priority=10, uid="another"))
    gone(made, "low-1", "low-2").wait(15)
    assert made.node_of("high") == "n1"
    assert {room["metadata"]["labels"][UID] for room in rooms(made).values()} <= {"another"}


def test_a_bind_that_is_refused_loses_nothing() -> None:
    made = full_node()
    made.refuse.add("pod-high")
    made.put(pod("high", cpu="4", priority=10))
    made.put(pod("higher", cpu="2", priority=1000, preemptionPolicy="Never"))
    gone(made, "low-1", "low-2").wait(30)
    assert (made.node_of("high"), made.node_of("higher")) == ("n1", "")


def test_without_reservations_the_nomination_is_all_there_is() -> None:
    made = full_node()
    made.creation_refusal = "no such kind"
    made.put(pod("high", cpu="4", priority=10), pod("low-3", cpu="1", priority=0))
    gone(made, "low-1", "low-2").wait(30)
    assert (made.node_of("high"), made.reservation_of("high")) == ("n1", "")
    assert made.node_of("low-3") == ""


def test_pods_never_preempt_reservations() -> None:
    """Not even those that hold what a less important pod preempted."""
    made = full_node().put(pod("high", cpu="4", priority=10))
    made.put(pod("higher", cpu="4", priority=1000)).wait(30)
    assert len(rooms(made)) == 1
    assert "Preempt" not in made.message("higher")


def test_an_edited_one_is_like_any_other_reservation() -> None:
    made = full_node().put(pod("high", cpu="4", priority=10))
    (name,) = [name for kind, name in made.objects if kind == "Reservation"]
    owners: list[Any] = [{"labelSelector": {"matchLabels": {"app": "a"}}}]
    made.edit("Reservation", name, spec__owners=owners)
    gone(made, "low-1", "low-2").wait(30)
    made.put(pod("owner", app="a", cpu="4"))
    assert made.reservation_of("owner") == name


# Victims inside a reservation


def inside(graceful: bool = True) -> World:
    """Four of eight cores are reserved, and in use by an unimportant owner; so are the others."""
    made = world(node("n1", cpu="8"), graceful=graceful)
    made.put(reservation("r", cpu="4", allocateOnce=False))
    made.put(pod("low-owner", app="a", cpu="4", priority=0))
    return made.put(pod("fill", cpu="4", priority=50))


def test_a_victim_inside_a_reservation_frees_capacity_inside_it() -> None:
    made = inside().put(pod("high", app="a", cpu="4", priority=10))
    assert rooms(made) == {}
    assert made.objects["Pod", "high"]["status"]["nominatedNodeName"] == "n1"
    gone(made, "low-owner").wait(15)
    assert (made.node_of("high"), made.reservation_of("high")) == ("n1", "r")


def test_a_victim_inside_a_reservation_is_of_no_use_to_others() -> None:
    made = inside().put(pod("stranger", cpu="4", priority=10)).wait(15)
    assert made.objects["Pod", "stranger"]["status"].get("nominatedNodeName", "") == ""
    assert made.node_of("low-owner") == "n1"


@pytest.mark.parametrize("priority", [0, 10])
def test_owners_no_more_important_wait_for_the_preemptor(priority: int) -> None:
    made = inside().put(pod("high", app="a", cpu="4", priority=10))
    made.put(pod("late", app="a", cpu="4", priority=priority))
    gone(made, "low-owner").wait(30)
    assert (made.node_of("high"), made.node_of("late")) == ("n1", "")


def test_a_more_important_owner_does_not_wait() -> None:
    made = inside().put(pod("high", app="a", cpu="4", priority=10))
    made.put(pod("urgent", app="a", cpu="4", priority=40))
    gone(made, "low-owner").wait(30)
    assert (made.node_of("high"), made.node_of("urgent")) == ("", "n1")


def test_who_is_to_go_inside_takes_nothing_of_what_is_free() -> None:
    """The preemptor, whose bind was refused, will use what is reserved: the rest is open to anyone."""
    made = world(node("n1", cpu="8"))
    made.put(reservation("r", cpu="4", allocateOnce=False))
    made.put(pod("low-owner", app="a", cpu="4", priority=0), pod("fill", cpu="3", priority=50))
    made.refuse.add("pod-high")
    made.put(pod("high", app="a", cpu="4", priority=10))
    gone(made, "low-owner").put(pod("small", cpu="1", priority=0))
    assert (made.node_of("high"), made.node_of("small")) == ("", "n1")
    assert made.wait(15).reservation_of("high") == "r"


@pytest.mark.parametrize("restarts", [False, True])
@pytest.mark.parametrize(
    "first",
    [{"cpu": "4", "allocatePolicy": "Aligned"}, {"cpu": "1", "allocatePolicy": "Restricted"}],
    ids=["in use", "too small"],
)
def test_of_several_reservations_owners_leave_alone_what_the_preemptor_waits_for(
    first: Raw, restarts: bool
) -> None:
    """On the node there is an older one, which is no use to the preemptor."""
    made = world(node("n1", cpu="8"))
    made.put(reservation("first", allocateOnce=False, **first))
    if first["cpu"] == "4":
        made.put(pod("kept", app="a", cpu="4", priority=50))
    made.put(reservation("second", cpu="4", allocateOnce=False, allocatePolicy="Aligned"))
    made.put(pod("low-owner", app="a", cpu="4", priority=0))
    assert made.reservation_of("low-owner") == "second"
    made.put(pod("high", app="a", cpu="4", priority=10))
    if restarts:
        made.restart()
        made.settle()
    made.put(pod("late", app="a", cpu="2", priority=0))
    gone(made, "low-owner").wait(15)
    assert (made.reservation_of("high"), made.node_of("late")) == ("second", "")


def test_a_hold_that_is_being_deleted_is_closed_to_its_preemptor() -> None:
    made = full_node().put(pod("high", cpu="4", priority=10))
    cache = made.scheduler.cluster.reservations
    (hold,) = [each for each in cache.known.values() if each.preemptor]
    assert cache.delete(hold, "its preemptor no longer needs it")  # not carried out yet
    gone(made, "low-1", "low-2").wait(15)
    assert made.node_of("high") == ""
    made.delete("Reservation", hold.name)
    made.wait(15)
    assert (made.node_of("high"), made.reservation_of("high")) == ("n1", "")


def test_a_preemptor_uses_its_hold_whatever_is_guaranteed_to_queues() -> None:
    """After a restart, before which its hold became Available."""
    made = full_node().put(pod("high", cpu="4", priority=10))
    high, (hold,) = made.objects["Pod", "high"], rooms(made).values()
    hold["status"] = {"phase": "Available", "nodeName": "n1"}
    guarantee = queue("g", guarantee={"resource": {"cpu": "5"}})
    nodes = [node("n1", cpu="4"), node("n2", cpu="4", unschedulable=True)]
    made = world(*nodes, guarantee, high)
    assert not made.node_of("high")
    made.put(hold)
    assert made.node_of("high") == "n1"


@pytest.mark.parametrize("others", [[], [queue("q")]], ids=["", "queues"])
@pytest.mark.parametrize("count", [1, 2], ids=["pod", "gang"])
def test_what_victims_leave_at_once_is_not_for_a_pending_reservation(
    count: int, others: list[Raw]
) -> None:
    """A reservation without a priority comes before all pods, and the hold exists only when the victims
    are gone."""
    group = {"group": "g"} if count > 1 else {}
    high = [pod(f"high-{i}", 4 // count, priority=1000, at="10s", **group) for i in range(count)]
    given = [
        *(node("n1", 4), pod("low-0", 2), pod("low-1", 2)),
        *([pod_group("g", count)] if group else []),
        reservation("r", 2, "other", at="3s"),
    ]
    played = play(given, others, high, until=60)
    assert played.times(*(f"high-{i}" for i in range(count))) == [10] * count
    assert played.find("Reservation", "r")["status"]["phase"] == "Pending"
