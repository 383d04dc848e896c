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
    fit_error,
    pod_with,
    volume,
    zones,
)
from harness.driver import assumed_volumes, big_node, binds, default_driver
from holdfast.api.meta import Object

P1 = pod_with("c1", name="p1").obj()


def test_two_pods_race_for_one_volume() -> None:
    driver = default_driver(*zones("a"), make_class("wait").obj(), volume().obj())
    driver.add(claim("c1").obj(), claim("c2").obj())
    driver.add(P1, pod_with("c2", name="p2").obj())
    decisions = driver.later()
    assert (binds(decisions), assumed_volumes(decisions)) == ({"p1": "n1"}, {"c1": "v"})
    assert driver.message("p2") == fit_error(1, f"1 {NO_VOLUME}")
    driver.write_volumes(decisions).confirm(P1)
    assert driver.schedule() == {}
    assert driver.schedule(volume("another").obj()) == {"p2": "n1"}


def test_volumes_are_decided_before_the_pod() -> None:
    driver = default_driver(*zones("a"), make_class("wait", "d").obj(), volume().obj())
    driver.add(claim("c1").obj(), claim("c2").size("9Gi").obj(), pod_with("c1", "c2").obj())
    kinds = [type(decision).__name__ for decision in driver.later()]
    assert kinds == ["BindVolume", "SelectNode", "Bind"]


def test_a_refused_bind_gives_the_volume_back() -> None:
    driver = default_driver(*zones("a"), make_class("wait").obj(), volume().obj())
    driver.add(claim("c1").obj(), claim("c2").obj())
    driver.add(P1, pod_with("c2", name="p2").obj())
    driver.later()
    driver.refuse(P1).delete(P1)
    decisions = driver.later()
    assert (binds(decisions), assumed_volumes(decisions)) == ({"p2": "n1"}, {"c2": "v"})


def test_a_refused_bind_forgets_the_node_of_a_volume_to_be_made() -> None:
    driver = default_driver(*zones("a", "b"), make_class("wait", "d").obj(), claim().obj())
    (node,) = driver.schedule(pod_with("c").obj()).values()
    driver.refuse(pod_with("c").obj()).delete(big_node(node).obj())
    (other,) = driver.schedule().values()
    assert other != node


def test_a_pod_deleted_before_it_is_bound_gives_the_volume_back() -> None:
    driver = default_driver(*zones("a"), make_class("wait").obj(), volume().obj(), claim("c1").obj())
    assert driver.schedule(P1) == {"p1": "n1"}
    driver.delete(P1).add(claim("c2").obj())
    assert driver.schedule(pod_with("c2", name="p2").obj()) == {"p2": "n1"}
    assert driver.cluster.volumes.assumed.pods() == {"uid-p2"}


def test_what_the_objects_say_outlives_the_pod() -> None:
    driver = default_driver(*zones("a"), make_class("wait").obj(), volume().obj(), claim("c1").obj())
    driver.add(P1)
    driver.write_volumes(driver.later()).confirm(P1).delete(P1)
    assert driver.cluster.volumes.assumed.pods() == set()
    driver.add(claim("c2").obj())
    assert driver.why_not(pod_with("c2", name="p2").obj()) == fit_error(1, f"1 {NO_VOLUME}")


def test_pods_that_share_a_claim_go_to_the_node_its_volume_is_made_for() -> None:
    driver = default_driver(*zones("a", "b", "c"), make_class("wait", "d").obj(), claim().obj())
    placed = driver.schedule(*(pod_with("c", name=name).obj() for name in ("p1", "p2", "p3")))
    assert len(placed) == 3 and len(set(placed.values())) == 1
    driver.refuse(P1)
    assert driver.cluster.volumes.assumed.pods() == {"uid-p2", "uid-p3"}


def test_a_released_volume_is_free_only_without_its_old_claim() -> None:
    old = volume().claimed_by("old", uid="x", phase="Released")
    driver = default_driver(*zones("a"), make_class("wait").obj(), old.obj(), claim().obj())
    assert driver.why_not(pod_with("c").obj()) == fit_error(1, f"1 {NO_VOLUME}")
    driver.update(volume().obj())
    assert driver.schedule() == {"p": "n1"}


def test_a_claim_made_anew_does_not_get_the_old_ones_volume() -> None:
    driver = default_driver(*zones("a"), make_class("wait").obj(), claim().uid("new").obj())
    driver.add(volume().claimed_by("c", uid="old").obj())
    assert driver.why_not(pod_with("c").obj()) == fit_error(1, f"1 {NO_VOLUME}")


@pytest.mark.parametrize("offers", [[], [volume().on_nodes("zone", "b").obj()]])
def test_a_new_scheduler_goes_on_where_the_old_one_stopped(offers: list[Object]) -> None:
    """The promise was written down, the pod was not bound."""
    objects = [*zones("a", "b"), make_class("wait", "" if offers else "d").obj()]
    first = default_driver(*objects, *offers, claim().obj())
    first.add(pod_with("c").node_selector({"zone": "b"}).obj())
    first.write_volumes(first.later())
    kept = first.cluster.objects
    second = default_driver(*objects, *kept["PersistentVolumeClaim"].values())
    second.add(*kept.get("PersistentVolume", {}).values(), claim("c2").size("1Gi").obj())
    second.add(pod_with("c2", name="p2").node_selector({"zone": "b"}).obj(), pod_with("c").obj())
    decisions = second.later()
    assert binds(decisions)["p"] == "n2"
    assert assumed_volumes(decisions) == ({} if offers else {"c2": "node/n2"})


def test_nothing_is_left_of_storage_that_is_gone() -> None:
    driver = default_driver(*zones("a", "b"), make_csi_node("n1").driver("d", 9).obj())
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
    pods = [P1, pod_with("c2", "c3", name="p2").obj(), pod_with("no", name="p3").obj()]
    driver.add(*objects)
    assert driver.schedule(*pods).keys() == {"p1", "p2"}
    driver.delete(*pods, *objects, make_csi_node("n1").obj())
    driver.later()
    for part in (driver.cluster.volumes, driver.cluster.volumes.attached):
        part = vars(part)
        left = {name: kept for name, kept in part.items() if isinstance(kept, dict) and kept}
        by_class_or_driver = (
            "_put",
            "_wanted",
            "_counts",
            "_left",
            "_limits",
            "_migrated",
            "_installed",
        )
        for name in by_class_or_driver:
            left.pop(name, None)
        assert left == {}
    assert driver.cluster.volumes.assumed.pods() == set()
    assert driver.cluster.volumes.claim_uses.counts() == {}


def test_nodes_that_change_zone_and_nodes_that_come() -> None:
    driver = default_driver(*zones("a"), make_class("wait").obj(), claim().obj())
    driver.add(volume().on_nodes("zone", "b").obj())
    assert driver.why_not(pod_with("c").obj()) == fit_error(1, f"1 {NO_VOLUME}")
    driver.update(big_node("n1").label("zone", "b").obj())
    assert driver.schedule() == {"p": "n1"}
    driver.add(claim("c2").obj(), volume("v2").on_nodes("zone", "z").obj())
    driver.why_not(pod_with("c2", name="q").obj())
    assert driver.schedule(big_node("n9").label("zone", "z").obj()) == {"q": "n9"}
