"""Which change of storage wakes which pod: one about something its plugins watch, that could help."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from harness.builders import make_namespace, make_pod
from harness.builders.storage import (
    CapacityBuilder,
    ClaimBuilder,
    CSINodeBuilder,
    VolumeBuilder,
    make_attachment,
    make_capacity,
    make_claim,
    make_class,
    make_csi_driver,
    make_csi_node,
    make_volume,
)
from harness.driver import Driver, big_node, default_driver
from holdfast.api.meta import Object

ZONE = "topology.kubernetes.io/zone"
OWN, OTHER, MAKER = "own.example.com", "other.example.com", "maker.example.com"


def claim(name: str, storage_class: str = "wait") -> ClaimBuilder:
    return make_claim(name).size("5Gi").storage_class(storage_class)


def volume(name: str, storage_class: str = "wait") -> VolumeBuilder:
    return make_volume(name).size("9Gi").storage_class(storage_class)


def far() -> VolumeBuilder:
    return volume("far").claimed_by("far").label(ZONE, "b")


def counted() -> VolumeBuilder:
    return volume("counted").claimed_by("counted").csi(OWN, "h")


def limits(own: int | None, other: int | None = 0) -> CSINodeBuilder:
    return make_csi_node("n").driver(OWN, own).driver(OTHER, other)


def space(name: str, storage_class: str, size: str) -> CapacityBuilder:
    return make_capacity(name, storage_class).topology().capacity(size)


def cluster() -> Driver:
    """One node, and a pod for every reason why volumes may keep it waiting."""
    user = make_pod("user").claim("alone").node("n")
    pods = ("missing", "alone", "counted", "unmatched", "unbound", "no-space", "far", "plain")
    claims = {name: name for name in pods[:-1]}
    return default_driver(
        big_node("n").label(ZONE, "a").allocatable(cpu="1").obj(),
        make_class("wait").obj(),
        make_class("make", MAKER).obj(),
        make_class("now", OTHER).immediate().obj(),
        make_csi_driver(MAKER).tracks_capacity().obj(),
        make_csi_driver(OTHER).tracks_capacity().obj(),
        limits(0).obj(),
        space("own", "make", "1Gi").obj(),
        make_attachment("own").of(OWN, "counted", "elsewhere").obj(),
        make_attachment("other").of(OTHER, "far", "n").obj(),
        make_claim("alone").modes("ReadWriteOncePod").bound_to("single").obj(),
        volume("single").claimed_by("alone").obj(),
        claim("counted").bound_to("counted").obj(),
        counted().obj(),
        claim("unmatched").obj(),
        claim("unbound", "now").obj(),
        claim("no-space", "make").obj(),
        claim("far").bound_to("far").obj(),
        far().obj(),
        claim("unrelated").obj(),
        volume("unrelated", "other").obj(),
        user.obj(),
        *(make_pod(name).claim(claims[name]).obj() for name in pods if name in claims),
        make_pod("plain").cpu("2").obj(),
    )


def comes(obj: Object) -> Callable[[Driver], Driver]:
    return lambda driver: driver.update(obj)


def goes(obj: Object) -> Callable[[Driver], Driver]:
    return lambda driver: driver.delete(obj)


def woken(driver: Driver, happen: Callable[[Driver], Driver], patch: pytest.MonkeyPatch) -> set[str]:
    """The pods that are looked at again."""
    driver.later()
    names: set[str] = set()
    hints = driver.scheduler._hints
    patch.setattr(
        hints, "_wake_group", lambda group, now: names.update(p.name for p in group.pods.values())
    )
    happen(driver)
    driver.later()
    return names


@pytest.mark.parametrize(
    ("happen", "expected"),
    [
        pytest.param(comes(claim("nobody's").obj()), "", id="a claim nobody uses"),
        pytest.param(comes(claim("missing").obj()), "missing", id="the claim a pod names"),
        pytest.param(comes(claim("missing").namespace("other").obj()), "", id="another namespace's"),
        pytest.param(
            comes(claim("unbound", "now").bound_to("v").obj()), "unbound", id="a claim that is bound"
        ),
        pytest.param(comes(claim("unbound", "now").obj()), "", id="a claim that says the same"),
        pytest.param(goes(claim("unbound").obj()), "", id="a claim that is gone"),
        pytest.param(
            comes(make_claim("alone").modes("ReadWriteOnce").bound_to("single").obj()),
            "alone",
            id="a claim that may be shared now",
        ),
        pytest.param(comes(volume("new").obj()), "unmatched", id="a free volume of the class"),
        pytest.param(comes(volume("new", "other").obj()), "", id="a free volume of another class"),
        pytest.param(
            comes(volume("new", "now").claimed_by("unbound").obj()),
            "unbound",
            id="a volume meant for the claim",
        ),
        pytest.param(comes(far().label(ZONE, "a").obj()), "far", id="a volume's zone"),
        pytest.param(comes(far().resource_version(2).obj()), "", id="a volume that says the same"),
        pytest.param(goes(volume("unrelated", "other").obj()), "", id="a volume that is gone"),
        pytest.param(
            comes(make_class("make", MAKER).allowed(ZONE, "a").obj()), "no-space", id="where it makes"
        ),
        pytest.param(comes(make_class("another", OWN).obj()), "", id="a class nobody asks for"),
        pytest.param(comes(make_class("make", MAKER).label("a").obj()), "", id="a label of a class"),
        pytest.param(comes(limits(1).obj()), "counted", id="a limit that is raised"),
        pytest.param(comes(limits(None).obj()), "counted", id="a limit that is lifted"),
        pytest.param(comes(limits(0, 5).obj()), "", id="the limit of another driver"),
        pytest.param(comes(limits(0, 0).annotation("a", "b").obj()), "", id="a limit that stays"),
        pytest.param(goes(limits(0).obj()), "counted", id="no limits any more"),
        pytest.param(
            comes(make_csi_driver(MAKER).tracks_capacity(False).obj()),
            "no-space",
            id="space that does not matter any more",
        ),
        pytest.param(
            comes(make_csi_driver(OTHER).tracks_capacity(False).obj()), "", id="another driver's"
        ),
        pytest.param(goes(make_csi_driver(MAKER).obj()), "no-space", id="a driver that is gone"),
        pytest.param(comes(space("own", "make", "9Gi").obj()), "no-space", id="more space"),
        pytest.param(comes(space("own", "make", "500Mi").obj()), "", id="less space"),
        pytest.param(comes(space("new", "make", "1Gi").obj()), "no-space", id="space elsewhere"),
        pytest.param(comes(space("new", "wait", "9Gi").obj()), "unmatched", id="space of a class"),
        pytest.param(comes(space("new", "another", "9Gi").obj()), "", id="space nobody asks for"),
        pytest.param(goes(space("own", "make", "1Gi").obj()), "", id="no space"),
        pytest.param(
            goes(make_attachment("own").of(OWN, "counted", "elsewhere").obj()),
            "counted",
            id="a volume that is detached",
        ),
        pytest.param(goes(make_attachment("other").of(OTHER, "far", "n").obj()), "", id="another's"),
        pytest.param(
            comes(make_attachment("new").of(OWN, "counted", "n").obj()), "", id="one attached"
        ),
        pytest.param(comes(make_namespace("other")), "", id="no storage at all"),
    ],
)
def test_what_storage_wakes(
    happen: Callable[[Driver], Driver], expected: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert woken(cluster(), happen, monkeypatch) == set(expected.split())


def test_every_pod_of_the_cluster_waits_for_its_own_reason() -> None:
    driver = cluster()
    assert driver.schedule() == {}
    reasons = {
        "missing": 'persistentvolumeclaim "missing" not found',
        "alone": "1 node(s) unavailable due to PersistentVolumeClaim with ReadWriteOncePod access "
        "mode already in-use by another pod",
        "counted": "1 node(s) exceed max volume count",
        "unmatched": "1 node(s) didn't find available persistent volumes to bind",
        "unbound": "pod has unbound immediate PersistentVolumeClaims",
        "no-space": "1 node(s) did not have enough free storage",
        "far": "1 node(s) had no available volume zone",
        "plain": "1 Insufficient cpu",
    }
    for name, reason in reasons.items():
        assert driver.message(name) == f"0/1 nodes are available: {reason}."
