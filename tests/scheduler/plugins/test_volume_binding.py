"""Where volumes can be used, and claims that keep a pod from being tried at all."""

from __future__ import annotations

import pytest

from harness.builders import PodBuilder, make_pod
from harness.builders.storage import (
    ClaimBuilder,
    make_claim,
    make_class,
    make_csi_node,
    make_volume,
)
from harness.claims import (
    AFFINITY,
    GONE,
    HOST,
    claim,
    fit_error,
    pod_with,
    zones,
)
from harness.driver import assumed_volumes, big_node, binds, default_driver, without
from holdfast.api.names import ZONE_LABEL

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
    driver = default_driver(*zones("a", "b", "c"), builder.obj(), make_claim("c").bound_to("v").obj())
    if placed:
        assert driver.schedule(pod_with("c").obj()) == {"p": placed}
    else:
        assert driver.why_not(pod_with("c").obj()) == fit_error(3, f"3 {AFFINITY}")


def test_all_volumes_must_be_usable() -> None:
    driver = default_driver(
        *zones("a", "b"),
        make_volume("v1").on_nodes("zone", "a").obj(),
        make_volume("v2").on_nodes("zone", "b").obj(),
        make_claim("c1").bound_to("v1").obj(),
        make_claim("c2").bound_to("v2").obj(),
    )
    assert driver.why_not(pod_with("c1", "c2").obj()) == fit_error(2, f"2 {AFFINITY}")


def test_a_volume_that_is_gone() -> None:
    driver = default_driver(
        *zones("a", "b"),
        make_volume("v1").on_nodes("zone", "a").obj(),
        make_claim("c1").bound_to("v1").obj(),
        make_claim("c2").bound_to("gone").obj(),
        config=without("VolumeZone"),
    )
    assert driver.why_not(pod_with("c1", "c2").obj()) == fit_error(2, f"1 {AFFINITY}", f"1 {GONE}")
    driver.add(make_volume("gone").obj())
    assert driver.schedule() == {"p": "n1"}


def test_a_replaced_plugin_goes_by_its_drivers_zone_label() -> None:
    ebs = make_volume("v").spec(awsElasticBlockStore={"volumeID": "vol-1"}).claimed_by("c")
    driver = default_driver(
        big_node("n1").label("zone", "a").label(ZONE_LABEL, "a").obj(),
        big_node("n2").label("topology.ebs.csi.aws.com/zone", "a").obj(),
        make_csi_node("n2").migrated("kubernetes.io/aws-ebs").obj(),
        big_node("n3").label(ZONE_LABEL, "a").obj(),
        make_csi_node("n3").migrated("kubernetes.io/aws-ebs").obj(),
        ebs.on_nodes(ZONE_LABEL, "a").obj(),
        make_claim("c").bound_to("v").obj(),
    )
    driver.delete(big_node("n1").obj())
    assert driver.schedule(pod_with("c").obj()) == {"p": "n2"}
    driver.update(make_csi_node("n2").obj())
    assert driver.why_not(pod_with("c", name="q").obj()) == fit_error(2, f"2 {AFFINITY}")


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
    driver = default_driver(
        *zones("a"),
        make_volume("v").obj(),
        make_class("wait").obj(),
        make_class("now").immediate().obj(),
        builder.obj(),
    )
    assert driver.why_not(pod_with("c").obj()) == f"0/1 nodes are available: {text}."


def test_an_immediate_claim_that_is_bound_at_last() -> None:
    driver = default_driver(*zones("a"), make_class("now").immediate().obj(), make_volume("v").obj())
    builder = make_claim("c").storage_class("now")
    driver.add(builder.obj())
    driver.why_not(pod_with("c").obj())
    driver.update(builder.bound_to("v").obj())
    assert driver.schedule() == {"p": "n1"}


def test_a_selector_that_makes_no_sense() -> None:
    wrong = {"matchExpressions": [{"key": "k", "operator": "Wrong"}]}
    driver = default_driver(*zones("a"), make_class("wait").obj(), claim().spec(selector=wrong).obj())
    assert driver.why_not(pod_with("c").obj()).startswith(
        'running "VolumeBinding" filter plugin: '
        "error creating internal label selector for claim: default/c: "
    )


# Ephemeral volumes


def ephemeral(name: str = "p") -> PodBuilder:
    return make_pod(name).namespace("default").volume("scratch", ephemeral={})


def test_the_claim_of_an_ephemeral_volume_is_waited_for() -> None:
    driver = default_driver(*zones("a"), make_class("wait", "d").obj())
    assert driver.why_not(ephemeral().obj()) == (
        "0/1 nodes are available: waiting for ephemeral volume controller to create the "
        'persistentvolumeclaim "p-scratch".'
    )
    driver.add(claim("p-scratch").owned_by("Pod", "p", api_version="v1").obj())
    decisions = driver.later()
    assert binds(decisions) == {"p": "n1"}
    assert assumed_volumes(decisions) == {"p-scratch": "node/n1"}


def test_the_claim_of_an_ephemeral_volume_must_be_the_pods_own() -> None:
    driver = default_driver(*zones("a"), make_class("wait", "d").obj(), claim("p-scratch").obj())
    assert driver.why_not(ephemeral().obj()) == (
        "0/1 nodes are available: PVC default/p-scratch was not created for pod default/p "
        "(pod is not owner)."
    )


def test_pods_with_ephemeral_volumes_have_claims_of_their_own() -> None:
    driver = default_driver(*zones("a"), make_class("wait", "d").obj())
    driver.add(claim("q-scratch").owned_by("Pod", "q", api_version="v1").obj())
    assert driver.schedule(ephemeral("p").obj(), ephemeral("q").obj()) == {"q": "n1"}
