"""Reservations whose owners begin or cease to name a pod while it waits for another reservation."""

import json
from typing import Any

import pytest

from harness.builders import make_node, make_pod
from harness.driver import Driver
from harness.numa_objects import STATUS, topology
from harness.objects import ID, Raw, node, pod, requesting, required, reservation
from harness.scenarios import play
from harness.world import World
from holdfast.api.decode import decode
from holdfast.scheduler.cluster.records import Phase
from holdfast.scheduler.framework.config import API_VERSION, KIND


def naming(*names: str) -> list[Raw]:
    """Owners that name these pods."""
    return [{"object": {"name": name, "namespace": "default"}} for name in names]


@pytest.mark.parametrize("by", ["name", "uid"])
@pytest.mark.parametrize("at", [0.5, 1, 1.5, 2, 2.5, 3, 5, 5.5, 6, 10.5])
def test_the_pod_uses_it_when_its_own_is_not_created(at: float, by: str) -> None:
    world = World(node("n1", 8), provisioner="external", provisionTimeout="1s", virtualRetention="5s")
    world.put(requesting("p", 1)).wait(at)
    uid = world.objects["Pod", "p"]["metadata"]["uid"]
    owners = naming("p") if by == "name" else [{"object": {"uid": uid}}]
    world.put(reservation("mine", 2, owners=owners)).wait(60)
    assert world.reservation_of("p") == "mine"


def test_a_created_reservation_may_name_the_pods_that_wait_for_it() -> None:
    world = World(node("n1", 8), provisioner="external")
    size: Any = {"recommendedSize": {"cpu": "4"}, "requirement": required("one", cpu="4")}
    world.put(requesting("p", 1, **size), pod("s", 1, app="a")).wait(5)
    assert (world.node_of("p"), world.node_of("s")) == ("", "")
    made = reservation("made", 4, owners=naming("p", "s"), allocateOnce=False, labels={ID: "one"})
    world.put(made).wait(5)
    assert (world.reservation_of("p"), world.reservation_of("s")) == ("made", "made")


def test_a_pod_that_is_no_longer_named_shares_the_class_of_its_like() -> None:
    world = World(node("n1", 8), provisioner="external")
    world.put(requesting("p", 1), requesting("q", 1), reservation("mine", 100, owners=naming("p")))
    world.wait(5)
    pods = {each.name: each for each in world.scheduler.cluster.pods.values()}
    assert {each.phase for each in pods.values()} == {Phase.ASSUMED}
    assert pods["p"].cls.private
    world.delete("Reservation", "mine").wait(1)
    assert pods["p"].cls is pods["q"].cls


def test_it_is_named_while_its_bind_is_written_which_is_refused() -> None:
    there = make_pod("p").requests({"cpu": "1"}).obj()
    driver = Driver().add(make_node("n1").allocatable(cpu="4").obj(), there)
    assert driver.binds() == {"p": "n1"}
    driver.add(decode(reservation("mine", 2, owners=naming("p"), uid="mine"))).refuse(there)
    record = driver.record(there)
    assert (record.phase, record.cls.private) == (Phase.PENDING, True)


def test_its_exclusive_cpus_stay_its_own() -> None:
    dynamic = {"provisioner": "external", "provisionTimeout": "30s", "onFailure": "Bind"}
    config = {"apiVersion": API_VERSION, "kind": KIND, "dynamicReservation": dynamic}
    labels = {"koordinator.sh/qosClass": "LSR", "app": "a"}
    pods = [requesting(name, 2, labels=labels) for name in ("p", "q")]
    too_large = reservation("mine", 100, owners=naming("p"), at="10s")
    played = play(node("n1", 4), topology(cpus=4, numa=1), pods, too_large, config=config, until=300)
    cpus = [
        json.loads(played.find("Pod", name)["metadata"]["annotations"][STATUS])["cpuset"]
        for name in ("p", "q")
    ]
    assert (played.times("p", "q"), sorted(cpus)) == ([30, 30], ["0-1", "2-3"])
