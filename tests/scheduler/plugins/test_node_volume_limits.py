"""How many volumes of a driver a node can have."""

from __future__ import annotations

from typing import Any

import pytest

from harness.builders import make_pod
from harness.builders.storage import (
    make_attachment,
    make_claim,
    make_class,
    make_csi_driver,
    make_csi_node,
    make_volume,
)
from harness.driver import big_node, default_driver, without
from holdfast.api.meta import Object
from holdfast.scheduler.cluster.decisions import Preempt

FULL = "0/1 nodes are available: 1 node(s) exceed max volume count."


def csi(name: str, *, driver: str = "d", handle: str = "") -> list[Object]:
    """A claim and the volume it is bound to."""
    return [
        make_claim(name).bound_to(f"v-{name}").obj(),
        make_volume(f"v-{name}").csi(driver, handle or f"h-{name}").claimed_by(name).obj(),
    ]


def pod(name: str, *claims: str) -> Any:
    builder = make_pod(name).namespace("default")
    for claim in claims:
        builder.claim(claim)
    return builder


def node(limit: int | None, driver: str = "d") -> list[Object]:
    return [big_node("n").obj(), make_csi_node("n").driver(driver, limit).obj()]


@pytest.mark.parametrize(
    ("limit", "there", "new", "fits"),
    [
        (2, ["a"], ["b"], True),
        (2, ["a", "b"], ["c"], False),
        (2, ["a"], ["b", "c"], False),
        (1, ["a"], ["a"], True),
        (0, [], ["a"], False),
        (None, ["a", "b"], ["c"], True),
        (2**70, ["a", "b"], ["c"], True),
        (-(2**70), [], ["a"], False),
        (1, ["a"], [], True),
    ],
)
def test_a_node_has_no_more_volumes_than_its_driver_can_attach(
    limit: int | None, there: list[str], new: list[str], fits: bool
) -> None:
    driver = default_driver(*node(limit), *csi("a"), *csi("b"), *csi("c"))
    for claim in there:
        driver.add(pod(f"on-{claim}", claim).node("n").obj())
    if fits:
        assert driver.schedule(pod("p", *new).obj()) == {"p": "n"}
    else:
        assert driver.why_not(pod("p", *new).obj()) == FULL


def test_drivers_do_not_share_a_limit() -> None:
    driver = default_driver(*node(1), *csi("a"), *csi("b", driver="e"))
    driver.add(pod("old", "a").node("n").obj())
    assert driver.schedule(pod("p", "b").obj()) == {"p": "n"}


def test_two_claims_of_one_handle_are_one_volume() -> None:
    driver = default_driver(*node(1), *csi("a", handle="h"), *csi("b", handle="h"))
    driver.add(pod("old", "a").node("n").obj())
    assert driver.schedule(pod("p", "b").obj()) == {"p": "n"}


def test_a_volume_two_pods_share_is_detached_with_the_last() -> None:
    first, second = pod("x", "a").node("n").obj(), pod("y", "a").node("n").obj()
    driver = default_driver(*node(1), *csi("a"), *csi("b"), first, second)
    assert driver.why_not(pod("p", "b").obj()) == FULL
    assert driver.delete(first).schedule() == {}
    assert driver.delete(second).schedule() == {"p": "n"}


def test_pods_of_one_round_are_counted_as_they_are_placed() -> None:
    driver = default_driver(*node(2), *csi("a"), *csi("b"), *csi("c"))
    placed = driver.schedule(pod("p1", "a").obj(), pod("p2", "b").obj(), pod("p3", "c").obj())
    assert placed.keys() == {"p1", "p2"}
    assert driver.message("p3") == FULL


def test_a_pod_of_higher_priority_takes_the_place_of_a_volume() -> None:
    driver = default_driver(*node(1), *csi("a"), *csi("b"), pod("old", "a").node("n").obj())
    decisions = driver.add(pod("new", "b").priority(10).obj()).later()
    assert [d.pod.name for d in decisions if isinstance(d, Preempt)] == ["old"]
    assert driver.delete(pod("old", "a").obj()).schedule() == {"new": "n"}


def test_a_higher_limit_wakes_the_pod() -> None:
    driver = default_driver(*node(0), *csi("a"))
    assert driver.why_not(pod("p", "a").obj()) == FULL
    driver.update(make_csi_node("n").driver("d", 1).obj())
    assert driver.schedule() == {"p": "n"}


def test_a_limit_known_before_its_node() -> None:
    driver = default_driver(make_csi_node("n").driver("d", 0).obj(), *csi("a"), big_node("n").obj())
    assert driver.why_not(pod("p", "a").obj()) == FULL


def test_attachments_count_though_no_pod_is_there() -> None:
    attachment = make_attachment("x").of("d", "v-a", "n").obj()
    driver = default_driver(*node(1), *csi("a"), *csi("b"), attachment)
    assert driver.why_not(pod("p", "b").obj()) == FULL
    assert driver.delete(attachment).schedule() == {"p": "n"}


def test_an_attachment_of_a_volume_a_pod_uses_counts_once() -> None:
    driver = default_driver(
        *node(2), *csi("a"), *csi("b"), make_attachment("x").of("d", "v-a", "n").obj()
    )
    driver.add(pod("old", "a").node("n").obj())
    assert driver.schedule(pod("p", "b").obj()) == {"p": "n"}


@pytest.mark.parametrize(
    ("attacher", "volume"), [("", "v-a"), ("d", "gone"), ("other", "v-a"), ("d", "in-tree")]
)
def test_attachments_that_say_nothing_of_the_driver(attacher: str, volume: str) -> None:
    driver = default_driver(
        *node(1), *csi("a"), *csi("b"), make_attachment("x").of(attacher, volume, "n").obj()
    )
    driver.add(make_volume("in-tree").obj())
    assert driver.schedule(pod("p", "b").obj()) == {"p": "n"}


def test_a_claim_without_a_volume_counts_for_its_provisioner() -> None:
    objects = [
        make_class("fast", "d").obj(),
        make_claim("w1").storage_class("fast").size("1Gi").obj(),
        make_claim("w2").storage_class("fast").size("1Gi").obj(),
    ]
    driver = default_driver(*node(1), *objects, *csi("a"))
    assert driver.schedule(pod("p1", "w1").obj()) == {"p1": "n"}
    assert driver.why_not(pod("p2", "w2").obj()) == FULL


def test_a_claim_that_gets_its_volume_still_counts_once() -> None:
    claim = make_claim("w").storage_class("fast").size("1Gi")
    driver = default_driver(*node(2), make_class("fast", "d").obj(), claim.obj(), *csi("a"), *csi("b"))
    driver.add(pod("old", "w").node("n").obj())
    volume = make_volume("v").csi("d", "h").storage_class("fast").claimed_by("w").obj()
    driver.update(volume, claim.bound_to("v").obj())
    assert driver.schedule(pod("p1", "a").obj()) == {"p1": "n"}
    assert driver.why_not(pod("p2", "b").obj()) == FULL


@pytest.mark.parametrize(
    ("source", "driver_name"),
    [
        ({"awsElasticBlockStore": {"volumeID": "vol-1"}}, "ebs.csi.aws.com"),
        ({"gcePersistentDisk": {"pdName": "disk"}}, "pd.csi.storage.gke.io"),
        ({"azureDisk": {"diskURI": "/subscriptions/x"}}, "disk.csi.azure.com"),
    ],
)
def test_in_tree_disks_count_for_the_driver_that_replaced_them(
    source: dict[str, Any], driver_name: str
) -> None:
    volume = make_volume("v").spec(**source).claimed_by("c").obj()
    claim = make_claim("c").bound_to("v").obj()
    driver = default_driver(*node(0, driver_name), volume, claim)
    assert driver.why_not(pod("p", "c").obj()) == FULL
    assert driver.why_not(make_pod("inline").volume("v", **source).obj()) == FULL


def test_one_disk_by_two_of_its_names() -> None:
    volume = make_volume("v").spec(awsElasticBlockStore={"volumeID": "aws://zone/vol-1"})
    driver = default_driver(*node(1, "ebs.csi.aws.com"), volume.claimed_by("c").obj())
    driver.add(make_claim("c").bound_to("v").obj(), pod("old", "c").node("n").obj())
    inline = make_pod("p").volume("v", awsElasticBlockStore={"volumeID": "vol-1"}).obj()
    assert driver.schedule(inline) == {"p": "n"}


def test_an_ephemeral_volume_counts() -> None:
    builder = make_pod("p").namespace("default").volume("scratch", ephemeral={})
    claim = make_claim("p-scratch").owned_by("Pod", "p", api_version="v1").storage_class("fast")
    driver = default_driver(*node(0), make_class("fast", "d").obj(), claim.size("1Gi").obj())
    assert driver.why_not(builder.obj()) == FULL


def test_a_missing_claim_where_no_other_plugin_says_so() -> None:
    config = without("VolumeRestrictions", "VolumeBinding", "VolumeZone")
    driver = default_driver(big_node("n").obj(), config=config)
    assert driver.why_not(pod("p", "c").obj()) == (
        '0/1 nodes are available: 1 looking up PVC default/c: persistentvolumeclaim "c" not found.'
    )


CONFIG = without("DefaultPreemption")
MISSING = "0/1 nodes are available: 1 d CSI driver is not installed on the node."


@pytest.mark.parametrize(
    ("driver", "csi_node", "message"),
    [
        (make_csi_driver("d"), make_csi_node("n"), ""),
        (make_csi_driver("d").demanded(False), make_csi_node("n"), ""),
        (make_csi_driver("other").demanded(), make_csi_node("n"), ""),
        (make_csi_driver("d").demanded(), make_csi_node("n").driver("d"), ""),
        (make_csi_driver("d").demanded(), make_csi_node("n").driver("d", 0), FULL),
        (make_csi_driver("d").demanded(), make_csi_node("n").driver("other", 5), MISSING),
        (make_csi_driver("d").demanded(), make_csi_node("elsewhere").driver("d"), MISSING),
    ],
)
def test_nodes_without_a_demanded_driver_are_infeasible(
    driver: Any, csi_node: Any, message: str
) -> None:
    there = default_driver(big_node("n").obj(), csi_node.obj(), driver.obj(), *csi("a"), config=CONFIG)
    there.add(pod("p", "a").obj())
    assert there.messages().get("p", "") == message


def test_installing_a_demanded_driver_or_lifting_the_demand_wakes_the_pod() -> None:
    for fix in (make_csi_node("n").driver("d").obj(), make_csi_driver("d").obj()):
        objects = (big_node("n").obj(), make_csi_node("n").obj(), make_csi_driver("d").demanded().obj())
        there = default_driver(*objects, *csi("a"), config=CONFIG).add(pod("p", "a").obj())
        assert there.binds() == {}
        assert there.update(fix).binds() == {"p": "n"}
