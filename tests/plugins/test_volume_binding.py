"""Where volumes can be used, and which volumes claims get that wait for a pod."""

from __future__ import annotations

from typing import Any

import pytest

from builders import PodBuilder, make_pod
from holdfast.api.meta import Object
from holdfast.api.names import ZONE_LABEL
from storage_builders import (
    ClaimBuilder,
    VolumeBuilder,
    make_attachment,
    make_capacity,
    make_claim,
    make_class,
    make_csi_driver,
    make_csi_node,
    make_volume,
)
from storage_driving import Driver, big_node, binds, promised, without

AFFINITY = "node(s) didn't match PersistentVolume's node affinity"
NO_VOLUME = "node(s) didn't find available persistent volumes to bind"
NO_SPACE = "node(s) did not have enough free storage"
GONE = "node(s) unavailable due to one or more pvc(s) bound to non-existent pv(s)"
HOST = "kubernetes.io/hostname"


def pod(*claims: str, name: str = "p") -> PodBuilder:
    builder = make_pod(name).namespace("default")
    for claim in claims:
        builder.claim(claim)
    return builder


def claim(name: str = "c") -> ClaimBuilder:
    return make_claim(name).size("5Gi").storage_class("wait")


def volume(name: str = "v") -> VolumeBuilder:
    return make_volume(name).size("5Gi").storage_class("wait")


def zones(*names: str) -> list[Object]:
    """A node n1, n2, … in each zone."""
    return [big_node(f"n{i}").label("zone", zone).obj() for i, zone in enumerate(names, 1)]


def nodes_say(count: int, *reasons: str) -> str:
    return f"0/{count} nodes are available: {', '.join(reasons)}."


# Bound claims


@pytest.mark.parametrize(
    ("terms", "placed"),
    [
        (None, "n1"),
        ([[("zone", "In", ["b"])]], "n2"),
        ([[("zone", "In", ["b", "c"])]], "n2"),
        ([[("zone", "NotIn", ["a", "c"])]], "n2"),
        ([[("zone", "In", ["x"])], [("zone", "In", ["c"])]], "n3"),
        ([[("zone", "Exists", []), (HOST, "In", ["n3"])]], "n3"),
        ([[("zone", "In", ["x"])]], ""),
        ([[("zone", "Wrong", ["a"])]], ""),
        ([[]], ""),
        ([], ""),
    ],
)
def test_a_pod_goes_where_its_bound_volume_can_be_used(
    terms: list[list[tuple[str, str, list[str]]]] | None, placed: str
) -> None:
    builder = make_volume("v").claimed_by("c")
    if terms is not None:
        keys = ("key", "operator", "values")
        builder.affinity(*[[dict(zip(keys, e, strict=True)) for e in term] for term in terms])
    driver = Driver(*zones("a", "b", "c"), builder.obj(), make_claim("c").bound_to("v").obj())
    if placed:
        assert driver.place(pod("c").obj()) == {"p": placed}
    else:
        assert driver.why(pod("c").obj()) == nodes_say(3, f"3 {AFFINITY}")


def test_all_volumes_must_be_usable() -> None:
    driver = Driver(
        *zones("a", "b"),
        make_volume("v1").on_nodes("zone", "a").obj(),
        make_volume("v2").on_nodes("zone", "b").obj(),
        make_claim("c1").bound_to("v1").obj(),
        make_claim("c2").bound_to("v2").obj(),
    )
    assert driver.why(pod("c1", "c2").obj()) == nodes_say(2, f"2 {AFFINITY}")


def test_a_volume_that_is_gone() -> None:
    driver = Driver(
        *zones("a", "b"),
        make_volume("v1").on_nodes("zone", "a").obj(),
        make_claim("c1").bound_to("v1").obj(),
        make_claim("c2").bound_to("gone").obj(),
        config=without("VolumeZone"),
    )
    assert driver.why(pod("c1", "c2").obj()) == nodes_say(2, f"1 {AFFINITY}", f"1 {GONE}")
    driver.add(make_volume("gone").obj())
    assert driver.place() == {"p": "n1"}


def test_a_replaced_plugin_goes_by_its_drivers_zone_label() -> None:
    ebs = make_volume("v").spec(awsElasticBlockStore={"volumeID": "vol-1"}).claimed_by("c")
    driver = Driver(
        big_node("n1").label("zone", "a").label(ZONE_LABEL, "a").obj(),
        big_node("n2").label("topology.ebs.csi.aws.com/zone", "a").obj(),
        make_csi_node("n2").migrated("kubernetes.io/aws-ebs").obj(),
        big_node("n3").label(ZONE_LABEL, "a").obj(),
        make_csi_node("n3").migrated("kubernetes.io/aws-ebs").obj(),
        ebs.on_nodes(ZONE_LABEL, "a").obj(),
        make_claim("c").bound_to("v").obj(),
    )
    driver.delete(big_node("n1").obj())
    assert driver.place(pod("c").obj()) == {"p": "n2"}
    driver.update(make_csi_node("n2").obj())
    assert driver.why(pod("c", name="q").obj()) == nodes_say(2, f"2 {AFFINITY}")


# Claims that keep a pod from being tried at all


@pytest.mark.parametrize(
    ("builder", "text"),
    [
        (make_claim("other"), 'persistentvolumeclaim "c" not found'),
        (
            make_claim("c").bound_to("v").lost(),
            'persistentvolumeclaim "c" bound to non-existent persistentvolume "v"',
        ),
        (make_claim("c").bound_to("v").deleted(), 'persistentvolumeclaim "c" is being deleted'),
        (claim().deleted(), 'persistentvolumeclaim "c" is being deleted'),
        (
            make_claim("c").storage_class("now"),
            "pod has unbound immediate PersistentVolumeClaims",
        ),
        (make_claim("c"), "pod has unbound immediate PersistentVolumeClaims"),
        (
            make_claim("c").storage_class("unknown"),
            "pod has unbound immediate PersistentVolumeClaims",
        ),
        (claim().spec(volumeName="v"), "pod has unbound immediate PersistentVolumeClaims"),
        (
            # The phase alone says nothing.
            claim().spec(volumeName="v").status(phase="Bound"),
            "pod has unbound immediate PersistentVolumeClaims",
        ),
    ],
)
def test_claims_no_node_helps(builder: ClaimBuilder, text: str) -> None:
    driver = Driver(
        *zones("a"),
        make_volume("v").obj(),
        make_class("wait").obj(),
        make_class("now").immediate().obj(),
        builder.obj(),
    )
    assert driver.why(pod("c").obj()) == f"0/1 nodes are available: {text}."


def test_an_immediate_claim_that_is_bound_at_last() -> None:
    driver = Driver(*zones("a"), make_class("now").immediate().obj(), make_volume("v").obj())
    builder = make_claim("c").storage_class("now")
    driver.add(builder.obj())
    driver.why(pod("c").obj())
    driver.update(builder.bound_to("v").obj())
    assert driver.place() == {"p": "n1"}


def test_a_selector_that_makes_no_sense() -> None:
    wrong = {"matchExpressions": [{"key": "k", "operator": "Wrong"}]}
    driver = Driver(*zones("a"), make_class("wait").obj(), claim().spec(selector=wrong).obj())
    assert driver.why(pod("c").obj()).startswith(
        'running "VolumeBinding" filter plugin: '
        "error creating internal label selector for claim: default/c: "
    )


# Ephemeral volumes


def ephemeral(name: str = "p") -> PodBuilder:
    return make_pod(name).namespace("default").volume("scratch", ephemeral={})


def test_the_claim_of_an_ephemeral_volume_is_waited_for() -> None:
    driver = Driver(*zones("a"), make_class("wait", "d").obj())
    assert driver.why(ephemeral().obj()) == (
        "0/1 nodes are available: waiting for ephemeral volume controller to create the "
        'persistentvolumeclaim "p-scratch".'
    )
    driver.add(claim("p-scratch").owned_by("Pod", "p", api_version="v1").obj())
    decisions = driver.round()
    assert binds(decisions) == {"p": "n1"}
    assert promised(decisions) == {"p-scratch": "node/n1"}


def test_the_claim_of_an_ephemeral_volume_must_be_the_pods_own() -> None:
    driver = Driver(*zones("a"), make_class("wait", "d").obj(), claim("p-scratch").obj())
    assert driver.why(ephemeral().obj()) == (
        "0/1 nodes are available: PVC default/p-scratch was not created for pod default/p "
        "(pod is not owner)."
    )


def test_pods_with_ephemeral_volumes_have_claims_of_their_own() -> None:
    driver = Driver(*zones("a"), make_class("wait", "d").obj())
    driver.add(claim("q-scratch").owned_by("Pod", "q", api_version="v1").obj())
    assert driver.place(ephemeral("p").obj(), ephemeral("q").obj()) == {"q": "n1"}


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
    driver = Driver(*zones("a"), make_class("wait").obj(), wish.obj(), offer.obj())
    if found:
        driver.add(pod("c").obj())
        decisions = driver.round()
        assert binds(decisions) == {"p": "n1"}
        bound = offer.obj().spec.claim_ref
        assert promised(decisions) == ({} if bound and bound.uid else {"c": "v"})
    else:
        assert driver.why(pod("c").obj()) == nodes_say(1, f"1 {NO_VOLUME}")


def test_the_smallest_volume_that_will_do_is_taken() -> None:
    offers = [volume("big").size("50Gi"), volume("small").size("1Gi"), volume("right").size("6Gi")]
    driver = Driver(*zones("a"), make_class("wait").obj(), claim().obj())
    driver.add(*(offer.obj() for offer in offers), pod("c").obj())
    assert promised(driver.round()) == {"c": "right"}


def test_a_volume_meant_for_the_claim_comes_before_a_smaller_one() -> None:
    driver = Driver(*zones("a"), make_class("wait").obj(), claim().obj(), volume("small").obj())
    driver.add(volume("meant").size("50Gi").claimed_by("c").obj(), pod("c").obj())
    assert promised(driver.round()) == {"c": "meant"}


def test_the_smallest_on_the_node_not_in_the_cluster() -> None:
    driver = Driver(*zones("a", "b"), make_class("wait").obj(), claim().obj())
    driver.add(volume("v1").on_nodes("zone", "b").obj())
    driver.add(volume("v2").size("9Gi").on_nodes("zone", "a").obj())
    driver.add(pod("c").node_selector({"zone": "a"}).obj())
    assert promised(driver.round()) == {"c": "v2"}


def test_two_claims_of_a_pod_get_two_volumes_smallest_first() -> None:
    driver = Driver(*zones("a"), make_class("wait").obj())
    driver.add(claim("large").size("8Gi").obj(), claim("little").size("1Gi").obj())
    driver.add(volume("v1").size("2Gi").obj(), volume("v2").size("9Gi").obj())
    driver.add(pod("large", "little").obj())
    assert promised(driver.round()) == {"large": "v2", "little": "v1"}


def test_a_node_with_one_volume_is_not_enough_for_two_claims() -> None:
    driver = Driver(*zones("a", "b"), make_class("wait").obj(), claim("c1").obj(), claim("c2").obj())
    driver.add(volume("v1").on_nodes("zone", "a").obj(), volume("v2").on_nodes("zone", "b").obj())
    assert driver.why(pod("c1", "c2").obj()) == nodes_say(2, f"2 {NO_VOLUME}")
    driver.add(volume("v3").on_nodes("zone", "b").obj())
    assert driver.place() == {"p": "n2"}


def test_volumes_with_longer_affinities() -> None:
    both: list[dict[str, Any]] = [
        {"key": "zone", "operator": "In", "values": ["b"]},
        {"key": HOST, "operator": "Exists"},
    ]
    driver = Driver(*zones("a", "b"), make_class("wait").obj(), claim().obj())
    driver.add(volume().affinity(both).obj())
    assert driver.place(pod("c").obj()) == {"p": "n2"}


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
    driver = Driver(*zones("a"), storage_class.obj(), claim().obj())
    if reason:
        assert driver.why(pod("c").obj()) == nodes_say(1, f"1 {reason}")
    else:
        driver.add(pod("c").obj())
        assert promised(driver.round()) == {"c": "node/n1"}


def test_a_volume_there_is_comes_before_one_to_be_made() -> None:
    driver = Driver(*zones("a", "b"), make_class("wait", "d").obj(), claim().obj())
    driver.add(volume().on_nodes("zone", "b").obj())
    driver.add(pod("c").node_selector({"zone": "b"}).obj())
    assert promised(driver.round()) == {"c": "v"}


def test_a_claim_that_waits_for_a_node_binds_the_pod_to_it() -> None:
    driver = Driver(*zones("a", "b"), make_class("wait", "d").obj())
    driver.add(claim().selected_node("n2").obj())
    assert driver.place(pod("c").obj()) == {"p": "n2"}
    driver.add(claim("elsewhere").selected_node("gone").obj())
    assert driver.why(pod("elsewhere", name="q").obj()) == nodes_say(2, f"2 {NO_VOLUME}")


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
    driver = Driver(*zones("a"), make_class("wait", "d").obj(), claim().obj())
    driver.add(make_csi_driver("d").tracks_capacity().obj(), capacity.obj())
    if reason:
        assert driver.why(pod("c").obj()) == nodes_say(1, f"1 {reason}")
        driver.update(make_csi_driver("d").tracks_capacity(False).obj())
    else:
        driver.add(pod("c").obj())
    assert promised(driver.round()) == {"c": "node/n1"}


def test_capacity_that_is_freed_wakes_the_pod() -> None:
    driver = Driver(*zones("a", "b"), make_class("wait", "d").obj(), claim().obj())
    driver.add(make_csi_driver("d").tracks_capacity().obj())
    place = make_capacity("s", "wait").topology(matchLabels={"zone": "b"})
    driver.add(place.capacity("1Gi").obj())
    assert driver.why(pod("c").obj()) == nodes_say(2, f"2 {NO_SPACE}")
    driver.update(place.capacity("10Gi").obj())
    assert driver.place() == {"p": "n2"}
    driver.delete(place.obj())
    assert driver.why(pod("c2", name="q").obj()).endswith('"c2" not found.')


def test_every_node_is_told_what_it_lacks() -> None:
    driver = Driver(*zones("a", "b", "c"), make_class("wait", "d").allowed("zone", "b", "c").obj())
    driver.add(make_csi_driver("d").tracks_capacity().obj(), claim().obj())
    driver.add(make_volume("v").on_nodes("zone", "a", "b").obj())
    driver.add(make_claim("bound").bound_to("v").obj())
    assert driver.why(pod("bound", "c").obj()) == nodes_say(
        3, f"1 {NO_VOLUME}", f"1 {AFFINITY}", f"2 {NO_SPACE}"
    )


# Promises


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
