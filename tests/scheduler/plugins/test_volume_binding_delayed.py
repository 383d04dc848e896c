"""Which volumes claims get that wait for a pod: those there are, and those to be made."""

from __future__ import annotations

from typing import Any

import pytest

from harness.builders.storage import (
    ClaimBuilder,
    VolumeBuilder,
    make_capacity,
    make_claim,
    make_class,
    make_csi_driver,
    make_volume,
)
from harness.claims import (
    AFFINITY,
    HOST,
    NO_SPACE,
    NO_VOLUME,
    claim,
    fit_error,
    pod_with,
    volume,
    zones,
)
from harness.driver import assumed_volumes, binds, default_driver

# Claims that wait: volumes there are


@pytest.mark.parametrize(
    ("wish", "offer", "found"),
    [
        (claim(), volume(), True),
        (claim().size("6Gi"), volume(), False),
        (claim().size("5368709120"), volume(), True),
        (claim(), volume().storage_class("other"), False),
        (claim(), volume().annotation("volume.beta.kubernetes.io/storage-class", "x"), False),
        (claim().modes("ReadWriteMany"), volume(), False),
        (claim().modes("ReadOnlyMany"), volume().modes("ReadWriteOnce", "ReadOnlyMany"), True),
        (claim().modes("ReadWriteOnce", "ReadOnlyMany"), volume(), False),
        (claim().spec(volumeMode="Block"), volume(), False),
        (claim().spec(volumeMode="Block"), volume().spec(volumeMode="Block"), True),
        (claim(), volume().spec(volumeMode="Filesystem"), True),
        (claim().spec(selector={"matchLabels": {"k": "v"}}), volume(), False),
        (claim().spec(selector={"matchLabels": {"k": "v"}}), volume().label("k", "v"), True),
        (claim().spec(selector={}), volume(), True),
        (claim().spec(volumeAttributesClassName="gold"), volume(), False),
        (
            claim().spec(volumeAttributesClassName="gold"),
            volume().spec(volumeAttributesClassName="gold"),
            True,
        ),
        (claim(), volume().status(phase="Released"), False),
        (claim(), volume().status(phase="Pending"), False),
        (claim(), volume().deleted(), False),
        (claim(), volume().claimed_by("c"), True),
        (claim(), volume().claimed_by("c", uid="uid-c"), True),
        (claim(), volume().claimed_by("c", uid="uid-of-another"), False),
        (claim(), volume().claimed_by("other"), False),
        (claim().size("6Gi"), volume().claimed_by("c"), False),
        (claim().modes("ReadWriteMany"), volume().claimed_by("c"), True),
        (claim(), volume().claimed_by("c").storage_class("other"), False),
        (claim(), volume().on_nodes("zone", "a"), True),
        (claim(), volume().on_nodes("zone", "b"), False),
        (claim(), volume().claimed_by("c").on_nodes("zone", "b"), False),
    ],
)
def test_which_volume_will_do(wish: ClaimBuilder, offer: VolumeBuilder, found: bool) -> None:
    driver = default_driver(*zones("a"), make_class("wait").obj(), wish.obj(), offer.obj())
    if found:
        driver.add(pod_with("c").obj())
        decisions = driver.later()
        assert binds(decisions) == {"p": "n1"}
        bound = offer.obj().spec.claim_ref
        assert assumed_volumes(decisions) == ({} if bound and bound.uid else {"c": "v"})
    else:
        assert driver.why_not(pod_with("c").obj()) == fit_error(1, f"1 {NO_VOLUME}")


def test_the_smallest_volume_that_will_do_is_taken() -> None:
    offers = [volume("big").size("50Gi"), volume("small").size("1Gi"), volume("right").size("6Gi")]
    driver = default_driver(*zones("a"), make_class("wait").obj(), claim().obj())
    driver.add(*(offer.obj() for offer in offers), pod_with("c").obj())
    assert assumed_volumes(driver.later()) == {"c": "right"}


def test_a_volume_meant_for_the_claim_comes_before_a_smaller_one() -> None:
    driver = default_driver(*zones("a"), make_class("wait").obj(), claim().obj(), volume("small").obj())
    driver.add(volume("meant").size("50Gi").claimed_by("c").obj(), pod_with("c").obj())
    assert assumed_volumes(driver.later()) == {"c": "meant"}


def test_the_smallest_on_the_node_not_in_the_cluster() -> None:
    driver = default_driver(*zones("a", "b"), make_class("wait").obj(), claim().obj())
    driver.add(volume("v1").on_nodes("zone", "b").obj())
    driver.add(volume("v2").size("9Gi").on_nodes("zone", "a").obj())
    driver.add(pod_with("c").node_selector({"zone": "a"}).obj())
    assert assumed_volumes(driver.later()) == {"c": "v2"}


def test_two_claims_of_a_pod_get_two_volumes_smallest_first() -> None:
    driver = default_driver(*zones("a"), make_class("wait").obj())
    driver.add(claim("large").size("8Gi").obj(), claim("little").size("1Gi").obj())
    driver.add(volume("v1").size("2Gi").obj(), volume("v2").size("9Gi").obj())
    driver.add(pod_with("large", "little").obj())
    assert assumed_volumes(driver.later()) == {"large": "v2", "little": "v1"}


def test_a_node_with_one_volume_is_not_enough_for_two_claims() -> None:
    driver = default_driver(
        *zones("a", "b"), make_class("wait").obj(), claim("c1").obj(), claim("c2").obj()
    )
    driver.add(volume("v1").on_nodes("zone", "a").obj(), volume("v2").on_nodes("zone", "b").obj())
    assert driver.why_not(pod_with("c1", "c2").obj()) == fit_error(2, f"2 {NO_VOLUME}")
    driver.add(volume("v3").on_nodes("zone", "b").obj())
    assert driver.schedule() == {"p": "n2"}


def test_volumes_with_longer_affinities() -> None:
    both: list[dict[str, Any]] = [
        {"key": "zone", "operator": "In", "values": ["b"]},
        {"key": HOST, "operator": "Exists"},
    ]
    driver = default_driver(*zones("a", "b"), make_class("wait").obj(), claim().obj())
    driver.add(volume().affinity(both).obj())
    assert driver.schedule(pod_with("c").obj()) == {"p": "n2"}


# Claims that wait: volumes to be made


@pytest.mark.parametrize(
    ("provisioner", "allowed", "reason"),
    [
        ("d", [], ""),
        ("d", [("zone", "a")], ""),
        ("d", [("zone", "x"), ("zone", "a")], ""),
        ("d", [("zone", "x")], NO_VOLUME),
        ("kubernetes.io/no-provisioner", [], NO_VOLUME),
        ("", [], NO_VOLUME),
    ],
)
def test_a_volume_is_made_where_the_class_allows(
    provisioner: str, allowed: list[tuple[str, str]], reason: str
) -> None:
    storage_class = make_class("wait", provisioner)
    for key, value in allowed:
        storage_class.allowed(key, value)
    driver = default_driver(*zones("a"), storage_class.obj(), claim().obj())
    if reason:
        assert driver.why_not(pod_with("c").obj()) == fit_error(1, f"1 {reason}")
    else:
        driver.add(pod_with("c").obj())
        assert assumed_volumes(driver.later()) == {"c": "node/n1"}


def test_a_volume_there_is_comes_before_one_to_be_made() -> None:
    driver = default_driver(*zones("a", "b"), make_class("wait", "d").obj(), claim().obj())
    driver.add(volume().on_nodes("zone", "b").obj())
    driver.add(pod_with("c").node_selector({"zone": "b"}).obj())
    assert assumed_volumes(driver.later()) == {"c": "v"}


def test_a_claim_that_waits_for_a_node_binds_the_pod_to_it() -> None:
    driver = default_driver(*zones("a", "b"), make_class("wait", "d").obj())
    driver.add(claim().selected_node("n2").obj())
    assert driver.schedule(pod_with("c").obj()) == {"p": "n2"}
    driver.add(claim("elsewhere").selected_node("gone").obj())
    assert driver.why_not(pod_with("elsewhere", name="q").obj()) == fit_error(2, f"2 {NO_VOLUME}")


@pytest.mark.parametrize(
    ("capacity", "reason"),
    [
        (make_capacity("s", "wait").capacity("5Gi").topology(matchLabels={"zone": "a"}), ""),
        (make_capacity("s", "wait").capacity("4Gi").topology(matchLabels={"zone": "a"}), NO_SPACE),
        (make_capacity("s", "wait").capacity("5Gi").topology(matchLabels={"zone": "b"}), NO_SPACE),
        (make_capacity("s", "other").capacity("5Gi").topology(), NO_SPACE),
        (make_capacity("s", "wait").capacity("5Gi").topology(), ""),
        (make_capacity("s", "wait").capacity("5Gi"), NO_SPACE),
        (make_capacity("s", "wait").topology(), NO_SPACE),
        (make_capacity("s", "wait").capacity("9Gi").largest("1Gi").topology(), NO_SPACE),
        (make_capacity("s", "wait").capacity("1Gi").largest("9Gi").topology(), ""),
        (
            make_capacity("s", "wait")
            .capacity("5Gi")
            .topology(
                matchLabels={"zone": "a"},
                matchExpressions=[{"key": HOST, "operator": "Exists"}],
            ),
            "",
        ),
        (
            make_capacity("s", "wait")
            .capacity("5Gi")
            .topology(matchExpressions=[{"key": "zone", "operator": "NotIn", "values": ["a"]}]),
            NO_SPACE,
        ),
    ],
)
def test_a_driver_that_tells_its_capacity_must_have_enough(capacity: Any, reason: str) -> None:
    driver = default_driver(*zones("a"), make_class("wait", "d").obj(), claim().obj())
    driver.add(make_csi_driver("d").tracks_capacity().obj(), capacity.obj())
    if reason:
        assert driver.why_not(pod_with("c").obj()) == fit_error(1, f"1 {reason}")
        driver.update(make_csi_driver("d").tracks_capacity(False).obj())
    else:
        driver.add(pod_with("c").obj())
    assert assumed_volumes(driver.later()) == {"c": "node/n1"}


def test_capacity_that_is_freed_wakes_the_pod() -> None:
    driver = default_driver(*zones("a", "b"), make_class("wait", "d").obj(), claim().obj())
    driver.add(make_csi_driver("d").tracks_capacity().obj())
    place = make_capacity("s", "wait").topology(matchLabels={"zone": "b"})
    driver.add(place.capacity("1Gi").obj())
    assert driver.why_not(pod_with("c").obj()) == fit_error(2, f"2 {NO_SPACE}")
    driver.update(place.capacity("10Gi").obj())
    assert driver.schedule() == {"p": "n2"}
    driver.delete(place.obj())
    assert driver.why_not(pod_with("c2", name="q").obj()).endswith('"c2" not found.')


def test_every_node_is_told_what_it_lacks() -> None:
    driver = default_driver(
        *zones("a", "b", "c"), make_class("wait", "d").allowed("zone", "b", "c").obj()
    )
    driver.add(make_csi_driver("d").tracks_capacity().obj(), claim().obj())
    driver.add(make_volume("v").on_nodes("zone", "a", "b").obj())
    driver.add(make_claim("bound").bound_to("v").obj())
    assert driver.why_not(pod_with("bound", "c").obj()) == fit_error(
        3, f"1 {NO_VOLUME}", f"1 {AFFINITY}", f"2 {NO_SPACE}"
    )
