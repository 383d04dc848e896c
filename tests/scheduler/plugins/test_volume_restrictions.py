"""Disks that are not shared, and claims for one pod only."""

from __future__ import annotations

from typing import Any

import pytest

from harness.builders import make_pod
from harness.builders.storage import make_claim, make_volume
from harness.driver import big_node, default_driver
from holdfast.scheduler.cluster.decisions import Preempt

DISK = "0/1 nodes are available: 1 node(s) had no available disk."
ONE_POD = (
    "0/2 nodes are available: 2 node(s) unavailable due to PersistentVolumeClaim with "
    "ReadWriteOncePod access mode already in-use by another pod."
)


def gce(name: str, read_only: bool = False) -> dict[str, Any]:
    return {"gcePersistentDisk": {"pdName": name, "readOnly": read_only}}


def aws(name: str, read_only: bool = False) -> dict[str, Any]:
    return {"awsElasticBlockStore": {"volumeID": name, "readOnly": read_only}}


def iscsi(iqn: str, read_only: bool = False) -> dict[str, Any]:
    return {"iscsi": {"targetPortal": "1.2.3.4", "iqn": iqn, "readOnly": read_only}}


def rbd(monitors: str, image: str = "i", pool: str = "p", read_only: bool = False) -> dict[str, Any]:
    return {
        "rbd": {"monitors": list(monitors), "image": image, "pool": pool, "readOnly": read_only},
    }


@pytest.mark.parametrize(
    ("there", "new", "conflict"),
    [
        (gce("a"), gce("a"), True),
        (gce("a"), gce("b"), False),
        (gce("a"), gce("a", read_only=True), True),
        (gce("a", read_only=True), gce("a"), True),
        (gce("a", read_only=True), gce("a", read_only=True), False),
        (aws("a"), aws("a"), True),
        (aws("a", read_only=True), aws("a", read_only=True), True),
        (aws("a"), aws("b"), False),
        (aws("a"), gce("a"), False),
        (iscsi("q"), iscsi("q"), True),
        (iscsi("q", read_only=True), iscsi("q", read_only=True), False),
        (iscsi("q"), iscsi("r"), False),
        (rbd("ab"), rbd("bc"), True),
        (rbd("ab"), rbd("cd"), False),
        (rbd("ab"), rbd("ab", image="other"), False),
        (rbd("ab"), rbd("ab", pool="other"), False),
        (rbd("ab", read_only=True), rbd("b", read_only=True), False),
        (rbd("ab", read_only=True), rbd("b"), True),
    ],
)
def test_a_disk_is_given_once_per_node(
    there: dict[str, Any], new: dict[str, Any], conflict: bool
) -> None:
    driver = default_driver(big_node("n").obj(), make_pod("old").volume("v", **there).node("n").obj())
    pod = make_pod("new").volume("v", **new).obj()
    if conflict:
        assert driver.why_not(pod) == DISK
    else:
        assert driver.schedule(pod) == {"new": "n"}


def test_a_disk_is_free_again_when_its_pod_is_gone() -> None:
    old = make_pod("old").volume("v", **aws("a")).node("n").obj()
    driver = default_driver(big_node("n").obj(), old)
    assert driver.why_not(make_pod("new").volume("v", **aws("a")).obj()) == DISK
    assert driver.delete(old).schedule() == {"new": "n"}


def one_pod_claim(name: str) -> list[Any]:
    return [
        make_claim(name).modes("ReadWriteOncePod").bound_to(f"v-{name}").obj(),
        make_volume(f"v-{name}").modes("ReadWriteOncePod").claimed_by(name).obj(),
    ]


def test_a_claim_for_one_pod_is_closed_to_all_others_on_any_node() -> None:
    nodes = [big_node("n1").obj(), big_node("n2").obj()]
    old = make_pod("old").namespace("default").claim("c").node("n1").obj()
    driver = default_driver(*nodes, *one_pod_claim("c"), old)
    assert driver.why_not(make_pod("new").namespace("default").claim("c").obj()) == ONE_POD
    assert driver.delete(old).schedule().keys() == {"new"}


def test_a_claim_for_one_pod_is_open_again_when_the_node_of_its_pod_is_gone() -> None:
    gone = big_node("n1").obj()
    old = make_pod("old").namespace("default").claim("c").node("n1").obj()
    driver = default_driver(gone, big_node("n2").obj(), *one_pod_claim("c"), old)
    assert driver.why_not(make_pod("new").namespace("default").claim("c").obj()) == ONE_POD
    assert driver.delete(gone).schedule() == {"new": "n2"}


def test_of_two_pods_in_one_round_the_second_waits_for_the_claim() -> None:
    driver = default_driver(big_node("n1").obj(), big_node("n2").obj(), *one_pod_claim("c"))
    pods = [make_pod(name).namespace("default").claim("c").obj() for name in ("a", "b")]
    assert driver.schedule(*pods).keys() == {"a"}
    assert driver.message("b") == ONE_POD


def test_a_pod_of_higher_priority_takes_a_claim_for_one_pod() -> None:
    driver = default_driver(big_node("n1").obj(), big_node("n2").obj(), *one_pod_claim("c"))
    old = make_pod("old").namespace("default").claim("c").node("n2").obj()
    new = make_pod("new").namespace("default").claim("c").priority(10).obj()
    decisions = driver.add(old, new).later()
    assert [d.pod.name for d in decisions if isinstance(d, Preempt)] == ["old"]
    assert driver.delete(old).schedule() == {"new": "n2"}


def test_a_claim_of_the_same_name_in_another_namespace_is_another() -> None:
    old = make_pod("old").namespace("other").claim("c").node("n1").obj()
    driver = default_driver(big_node("n1").obj(), *one_pod_claim("c"), old)
    assert driver.schedule(make_pod("new").namespace("default").claim("c").obj()) == {"new": "n1"}


def test_a_claim_that_does_not_exist_and_appears_later() -> None:
    driver = default_driver(big_node("n").obj())
    pod = make_pod("p").namespace("default").claim("c").obj()
    text = '0/1 nodes are available: persistentvolumeclaim "c" not found.'
    assert driver.why_not(pod) == text
    driver.add(make_claim("other").bound_to("v").obj())
    assert driver.schedule() == {}
    driver.add(make_volume("v").claimed_by("c").obj(), make_claim("c").bound_to("v").obj())
    assert driver.schedule() == {"p": "n"}
