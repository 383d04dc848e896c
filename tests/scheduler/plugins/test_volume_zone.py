"""Zone and region labels of volumes."""

from __future__ import annotations

import pytest

from harness.builders import Builder, make_pod
from harness.builders.storage import make_claim, make_class, make_volume
from harness.driver import big_node, default_driver, without
from holdfast.api.names import OLD_REGION_LABEL, OLD_ZONE_LABEL, REGION_LABEL, ZONE_LABEL
from holdfast.api.storage import PersistentVolumeClaim

CONFLICT = "0/1 nodes are available: 1 node(s) had no available volume zone."


@pytest.mark.parametrize(
    ("volume", "node", "fits"),
    [
        ({}, {ZONE_LABEL: "a"}, True),
        ({ZONE_LABEL: "a"}, {}, True),
        ({ZONE_LABEL: "a"}, {"other": "x"}, True),
        ({ZONE_LABEL: "a"}, {ZONE_LABEL: "a"}, True),
        ({ZONE_LABEL: "a"}, {ZONE_LABEL: "b"}, False),
        ({ZONE_LABEL: "a"}, {REGION_LABEL: "r"}, False),
        ({ZONE_LABEL: "a__b"}, {ZONE_LABEL: "b"}, True),
        ({ZONE_LABEL: "a__ b "}, {ZONE_LABEL: "b"}, True),
        ({ZONE_LABEL: "a__b"}, {ZONE_LABEL: "c"}, False),
        ({ZONE_LABEL: "a__"}, {ZONE_LABEL: "c"}, True),
        ({REGION_LABEL: "r"}, {REGION_LABEL: "s"}, False),
        ({ZONE_LABEL: "a", REGION_LABEL: "r"}, {ZONE_LABEL: "a", REGION_LABEL: "r"}, True),
        ({ZONE_LABEL: "a", REGION_LABEL: "r"}, {ZONE_LABEL: "a"}, False),
        ({OLD_ZONE_LABEL: "a"}, {OLD_ZONE_LABEL: "a"}, True),
        ({OLD_ZONE_LABEL: "a"}, {ZONE_LABEL: "a"}, True),
        ({OLD_ZONE_LABEL: "a"}, {ZONE_LABEL: "b"}, False),
        ({OLD_ZONE_LABEL: "a"}, {OLD_ZONE_LABEL: "b", ZONE_LABEL: "a"}, False),
        ({OLD_REGION_LABEL: "r"}, {REGION_LABEL: "r"}, True),
        ({ZONE_LABEL: "a"}, {OLD_ZONE_LABEL: "a"}, False),
    ],
)
def test_a_pod_goes_to_the_zones_of_its_volume(
    volume: dict[str, str], node: dict[str, str], fits: bool
) -> None:
    driver = default_driver(
        big_node("n").labels(node).obj(),
        make_volume("v").labels(volume).claimed_by("c").obj(),
        make_claim("c").bound_to("v").obj(),
    )
    pod = make_pod("p").namespace("default").claim("c").obj()
    if fits:
        assert driver.schedule(pod) == {"p": "n"}
    else:
        assert driver.why_not(pod) == CONFLICT


def test_a_node_that_comes_into_the_zone_wakes_the_pod() -> None:
    driver = default_driver(
        big_node("n").label(ZONE_LABEL, "b").obj(),
        make_volume("v").label(ZONE_LABEL, "a").claimed_by("c").obj(),
        make_claim("c").bound_to("v").obj(),
    )
    assert driver.why_not(make_pod("p").namespace("default").claim("c").obj()) == CONFLICT
    driver.update(big_node("n").label(ZONE_LABEL, "a").obj())
    assert driver.schedule() == {"p": "n"}


@pytest.mark.parametrize(
    ("claim", "text"),
    [
        (make_claim("c"), "PersistentVolumeClaim had no pv name and storageClass name"),
        (make_claim("c").storage_class("x"), 'storageclass.storage.k8s.io "x" not found'),
        (make_claim("c").storage_class("now"), "PersistentVolume had no name"),
        (make_claim("c").bound_to("gone"), 'persistentvolume "gone" not found'),
        (make_claim("other"), 'persistentvolumeclaim "c" not found'),
        (make_claim("c").storage_class("wait"), ""),
    ],
)
def test_claims_that_lead_to_no_volume(claim: Builder[PersistentVolumeClaim], text: str) -> None:
    driver = default_driver(
        big_node("n").label(ZONE_LABEL, "a").obj(),
        make_class("now").immediate().obj(),
        make_class("wait").obj(),
        claim.obj(),
        config=without("VolumeRestrictions", "VolumeBinding", "NodeVolumeLimits"),
    )
    pod = make_pod("p").namespace("default").claim("c").obj()
    if text:
        assert driver.why_not(pod) == f"0/1 nodes are available: {text}."
    else:
        assert driver.schedule(pod) == {"p": "n"}
