"""Nodes score by how much of a volume, or of storage capacity, the pod's claims leave."""

from __future__ import annotations

import pytest

from harness.builders.storage import (
    CapacityBuilder,
    make_capacity,
    make_class,
    make_csi_driver,
    make_volume,
)
from harness.claims import HOST, claim, pod_with, volume, zones
from harness.driver import Driver, only
from holdfast.api.meta import Object

MAKER = "maker.example.com"
SETUP = only("VolumeBinding")


def scored(*objects: Object, claims: tuple[str, ...] = ("c",)) -> dict[str, int]:
    pod = pod_with(*claims).obj()
    return Driver((SETUP,)).add(*objects, pod).answer(pod).totals


def capacity(node: str, amount: str) -> CapacityBuilder:
    made = make_capacity(f"of-{node}", "wait").capacity(amount)
    return made.topology(matchLabels={HOST: node})


MADE = (make_class("wait", MAKER).obj(), make_csi_driver(MAKER).tracks_capacity().obj())


@pytest.mark.parametrize(
    ("sizes", "expected"),
    [
        (("5Gi", "10Gi"), {"n1": 0, "n2": 50}),
        (("20Gi", "10Gi"), {"n1": 75, "n2": 50}),
        (("6Gi", "15Gi"), {"n1": 17, "n2": 67}),
    ],
)
def test_free_volumes_score_by_what_the_claim_leaves(
    sizes: tuple[str, str], expected: dict[str, int]
) -> None:
    volumes = [
        volume(f"v{i}").size(size).on_nodes(HOST, f"n{i}").obj() for i, size in enumerate(sizes, 1)
    ]
    objects = (*zones("a", "b"), make_class("wait").obj(), *volumes, claim().obj())
    assert scored(*objects) == expected


def test_a_volume_meant_for_the_claim_scores_too() -> None:
    meant = volume().size("20Gi").claimed_by("c", phase="Available").obj()
    assert scored(*zones("a"), make_class("wait").obj(), meant, claim().obj()) == {"n1": 75}


def test_classes_count_alike_and_volumes_of_a_class_together() -> None:
    objects = [
        *zones("a"),
        make_class("wait").obj(),
        make_class("fast").obj(),
        volume("v1").size("10Gi").obj(),
        volume("v2").size("30Gi").obj(),
        make_volume("v3").size("10Gi").storage_class("fast").obj(),
        claim("c1").obj(),
        claim("c2").size("15Gi").obj(),
        claim("c3").size("9Gi").storage_class("fast").obj(),
    ]
    # 20 of 40 in one class, 9 of 10 in the other
    assert scored(*objects, claims=("c1", "c2", "c3")) == {"n1": 30}


def test_provisioned_volumes_score_by_storage_capacity() -> None:
    amounts = [capacity("n1", "50Gi").obj(), capacity("n2", "10Gi").obj()]
    assert scored(*zones("a", "b", "c"), *MADE, *amounts, claim().obj()) == {"n1": 90, "n2": 50}


def test_claims_of_a_class_share_the_capacity() -> None:
    objects = (*zones("a"), *MADE, capacity("n1", "50Gi").obj(), claim("c1").obj(), claim("c2").obj())
    assert scored(*objects, claims=("c1", "c2")) == {"n1": 80}


def test_capacity_counts_only_where_no_free_volume_is_used() -> None:
    free = volume().size("6Gi").on_nodes(HOST, "n1").obj()
    amounts = [capacity("n1", "50Gi").obj(), capacity("n2", "50Gi").obj()]
    assert scored(*zones("a", "b"), *MADE, *amounts, free, claim().obj()) == {"n1": 17, "n2": 90}


def test_the_capacity_counts_not_the_largest_volume() -> None:
    limited = capacity("n1", "50Gi").largest("10Gi").obj()
    assert scored(*zones("a"), *MADE, limited, claim().obj()) == {"n1": 90}
    unknown = make_capacity("x", "wait").largest("10Gi").topology().obj()
    assert scored(*zones("a"), *MADE, unknown, claim().obj()) == {"n1": 0}


def test_several_capacities_of_a_node_do_not_add_up() -> None:
    everywhere = make_capacity("everywhere", "wait").capacity("25Gi").topology().obj()
    by_terms = make_capacity("b", "wait").capacity("100Gi")
    by_terms.topology(
        matchExpressions=[
            {"key": "zone", "operator": "Exists"},
            {"key": "zone", "operator": "NotIn", "values": ["a"]},
        ]
    )
    objects = (*zones("a", "b"), *MADE, everywhere, by_terms.obj(), claim().obj())
    assert scored(*objects) == {"n1": 80, "n2": 95}


def test_claims_that_are_bound_or_unknown_to_capacity_score_nothing() -> None:
    objects = (*zones("a"), make_class("wait", MAKER).obj(), claim().obj())
    assert scored(*objects) == {"n1": 0}
    bound = (volume().claimed_by("c").obj(), claim().bound_to("v").obj())
    assert scored(*zones("a"), *MADE, *bound) == {"n1": 0}


def test_the_shape_is_configurable() -> None:
    shape = [{"utilization": 0, "score": 0}, {"utilization": 100, "score": 10}]
    profile = SETUP.profile()
    profile["pluginConfig"].append({"name": "VolumeBinding", "args": {"shape": shape}})
    config = {
        "apiVersion": "kubescheduler.config.k8s.io/v1",
        "kind": "KubeSchedulerConfiguration",
        "profiles": [profile],
    }
    pod = pod_with("c").obj()
    driver = Driver(config=config).add(
        *zones("a"), make_class("wait").obj(), volume().size("20Gi").obj(), claim().obj(), pod
    )
    assert driver.answer(pod).totals == {"n1": 25}


def test_the_node_with_the_tightest_fit_is_not_preferred() -> None:
    """kube-scheduler spreads by default: the larger volume wins, whatever its node's name."""
    objects = [
        *zones("a", "b"),
        make_class("wait").obj(),
        volume("v1").on_nodes(HOST, "n1").obj(),
        volume("v2").size("50Gi").on_nodes(HOST, "n2").obj(),
        claim().obj(),
    ]
    driver = Driver((SETUP,)).add(*objects)
    assert driver.schedule(pod_with("c").obj()) == {"p": "n2"}
