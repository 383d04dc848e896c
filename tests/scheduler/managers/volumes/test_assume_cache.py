"""What becomes of volumes that are promised to claims, until it is written down."""

from __future__ import annotations

import pytest

from harness.builders.storage import (
    make_attachment,
    make_capacity,
    make_claim,
    make_class,
    make_csi_driver,
    make_csi_node,
    make_volume,
)
from harness.claims import (
    NO_VOLUME,
    claim,
    nodes_say,
    pod,
    volume,
    zones,
)
from harness.storage_driver import Driver, big_node, binds, promised
from holdfast.api.meta import Object


def test_two_pods_race_for_one_volume() -> None:
    driver = Driver(*zones("a"), make_class("wait").obj(), volume().obj())
    driver.add(claim("c1").obj(), claim("c2").obj())
    driver.add(pod("c1", name="p1").obj(), pod("c2", name="p2").obj())
    decisions = driver.round()
    assert (binds(decisions), promised(decisions)) == ({"p1": "n1"}, {"c1": "v"})
    assert driver.message("p2") == nodes_say(1, f"1 {NO_VOLUME}")
    driver.carry_out(decisions).confirm("uid-p1")
    assert driver.place() == {}
    assert driver.place(volume("another").obj()) == {"p2": "n1"}


def test_volumes_are_decided_before_the_pod() -> None:
    driver = Driver(*zones("a"), make_class("wait", "d").obj(), volume().obj())
    driver.add(claim("c1").obj(), claim("c2").size("9Gi").obj(), pod("c1", "c2").obj())
    kinds = [type(decision).__name__ for decision in driver.round()]
    assert kinds == ["BindVolume", "SelectNode", "Bind"]


def test_a_refused_bind_gives_the_volume_back() -> None:
    driver = Driver(*zones("a"), make_class("wait").obj(), volume().obj())
    driver.add(claim("c1").obj(), claim("c2").obj())
    driver.add(pod("c1", name="p1").obj(), pod("c2", name="p2").obj())
    driver.round()
    driver.refuse("uid-p1").delete(pod("c1", name="p1").obj())
    decisions = driver.round()
    assert (binds(decisions), promised(decisions)) == ({"p2": "n1"}, {"c2": "v"})


def test_a_refused_bind_forgets_the_node_of_a_volume_to_be_made() -> None:
    driver = Driver(*zones("a", "b"), make_class("wait", "d").obj(), claim().obj())
    (node,) = driver.place(pod("c").obj()).values()
    driver.refuse("uid-p").delete(big_node(node).obj())
    (other,) = driver.place().values()
    assert other != node


def test_a_pod_deleted_before_it_is_bound_gives_the_volume_back() -> None:
    driver = Driver(*zones("a"), make_class("wait").obj(), volume().obj(), claim("c1").obj())
    assert driver.place(pod("c1", name="p1").obj()) == {"p1": "n1"}
    driver.delete(pod("c1", name="p1").obj()).add(claim("c2").obj())
    assert driver.place(pod("c2", name="p2").obj()) == {"p2": "n1"}
    assert driver.cluster.volumes.assumed.pods() == {"uid-p2"}


def test_what_the_objects_say_outlives_the_pod() -> None:
    driver = Driver(*zones("a"), make_class("wait").obj(), volume().obj(), claim("c1").obj())
    driver.add(pod("c1", name="p1").obj())
    driver.carry_out(driver.round()).confirm("uid-p1").delete(pod("c1", name="p1").obj())
    assert driver.cluster.volumes.assumed.pods() == set()
    driver.add(claim("c2").obj())
    assert driver.why(pod("c2", name="p2").obj()) == nodes_say(1, f"1 {NO_VOLUME}")


def test_pods_that_share_a_claim_go_to_the_node_its_volume_is_made_for() -> None:
    driver = Driver(*zones("a", "b", "c"), make_class("wait", "d").obj(), claim().obj())
    placed = driver.place(*(pod("c", name=name).obj() for name in ("p1", "p2", "p3")))
    assert len(placed) == 3 and len(set(placed.values())) == 1
    driver.refuse("uid-p1")
    assert driver.cluster.volumes.assumed.pods() == {"uid-p2", "uid-p3"}


def test_a_released_volume_is_free_only_without_its_old_claim() -> None:
    old = volume().claimed_by("old", uid="x", phase="Released")
    driver = Driver(*zones("a"), make_class("wait").obj(), old.obj(), claim().obj())
    assert driver.why(pod("c").obj()) == nodes_say(1, f"1 {NO_VOLUME}")
    driver.update(volume().obj())
    assert driver.place() == {"p": "n1"}


def test_a_claim_made_anew_does_not_get_the_old_ones_volume() -> None:
    driver = Driver(*zones("a"), make_class("wait").obj(), claim().uid("new").obj())
    driver.add(volume().claimed_by("c", uid="old").obj())
    assert driver.why(pod("c").obj()) == nodes_say(1, f"1 {NO_VOLUME}")


@pytest.mark.parametrize("offers", [[], [volume().on_nodes("zone", "b").obj()]])
def test_a_new_scheduler_goes_on_where_the_old_one_stopped(offers: list[Object]) -> None:
    """The promise was written down, the pod was not bound."""
    objects = [*zones("a", "b"), make_class("wait", "" if offers else "d").obj()]
    first = Driver(*objects, *offers, claim().obj())
    first.add(pod("c").node_selector({"zone": "b"}).obj())
    first.carry_out(first.round())
    kept = first.cluster.objects
    second = Driver(*objects, *kept["PersistentVolumeClaim"].values())
    second.add(*kept.get("PersistentVolume", {}).values(), claim("c2").size("1Gi").obj())
    second.add(pod("c2", name="p2").node_selector({"zone": "b"}).obj(), pod("c").obj())
    decisions = second.round()
    assert binds(decisions)["p"] == "n2"
    assert promised(decisions) == ({} if offers else {"c2": "node/n2"})


def test_nothing_is_left_of_storage_that_is_gone() -> None:
    driver = Driver(*zones("a", "b"), make_csi_node("n1").driver("d", 9).obj())
    objects = [
        make_class("wait", "d").obj(),
        make_csi_driver("d").tracks_capacity().obj(),
        make_capacity("s", "wait").capacity("90Gi").topology(matchLabels={"zone": "a"}).obj(),
        make_attachment("x").of("d", "bound", "n1").obj(),
        volume("v1").on_nodes("zone", "a").obj(),
        volume("v2").claimed_by("meant").obj(),
        make_volume("bound").csi("d", "h").claimed_by("c3").obj(),
        claim("c1").obj(),
        claim("c2").size("20Gi").obj(),
        make_claim("c3").bound_to("bound").obj(),
    ]
    pods = [pod("c1", name="p1").obj(), pod("c2", "c3", name="p2").obj(), pod("no", name="p3").obj()]
    driver.add(*objects)
    assert driver.place(*pods).keys() == {"p1", "p2"}
    driver.delete(*pods, *objects, make_csi_node("n1").obj())
    driver.round()
    for part in (driver.cluster.volumes, driver.cluster.volumes.attached):
        part = vars(part)
        left = {name: kept for name, kept in part.items() if isinstance(kept, dict) and kept}
        by_class_or_driver = ("_put", "_wanted", "_counts", "_left", "_limits", "_migrated")
        for name in by_class_or_driver:
            left.pop(name, None)
        assert left == {}
    assert driver.cluster.volumes.assumed.pods() == set()
    assert driver.cluster.volumes.claim_uses.counts() == {}


def test_nodes_that_change_zone_and_nodes_that_come() -> None:
    driver = Driver(*zones("a"), make_class("wait").obj(), claim().obj())
    driver.add(volume().on_nodes("zone", "b").obj())
    assert driver.why(pod("c").obj()) == nodes_say(1, f"1 {NO_VOLUME}")
    driver.update(big_node("n1").label("zone", "b").obj())
    assert driver.place() == {"p": "n1"}
    driver.add(claim("c2").obj(), volume("v2").on_nodes("zone", "z").obj())
    driver.why(pod("c2", name="q").obj())
    assert driver.place(big_node("n9").label("zone", "z").obj()) == {"q": "n9"}
