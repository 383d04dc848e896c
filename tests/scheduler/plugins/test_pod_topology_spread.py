from __future__ import annotations

from typing import Any

import pytest

from harness.builders import NodeBuilder, PodBuilder, make_controller, make_node, make_pod, make_service
from harness.driver import Driver, only, scores, why_not
from holdfast.api.meta import Object
from holdfast.api.node import Node
from holdfast.api.pod import Pod

ZONE = "topology.kubernetes.io/zone"
HOST = "kubernetes.io/hostname"
SKEWED = "node(s) didn't match pod topology spread constraints"
LACKING = f"{SKEWED} (missing required label)"
WEB = {"matchLabels": {"app": "web"}}
SPREAD = only("PodTopologySpread")


def web(name: str = "p") -> PodBuilder:
    return make_pod(name).label("app", "web")


def zoned(**zones: str) -> list[Node]:
    """Nodes in zones; an underscore for one in none."""
    return [_zoned(name, zone).obj() for name, zone in zones.items()]


def _zoned(name: str, zone: str) -> NodeBuilder:
    return make_node(name) if zone == "_" else make_node(name).zone(zone)


def there(**counts: int) -> list[Pod]:
    """Pods of the set on nodes."""
    return [web(f"{node}-{i}").on(node).obj() for node, count in counts.items() for i in range(count)]


def fitting(pod: PodBuilder, nodes: list[Node], pods: list[Pod], *others: Object) -> str:
    driver = Driver((SPREAD,)).add(*others, *nodes, *pods, pod.obj())
    return " ".join(driver.answer(pod.obj()).totals)


@pytest.mark.parametrize(
    ("max_skew", "counts", "expected"),
    [
        (1, {}, "a1 b1 c1"),
        (1, {"a1": 1}, "b1 c1"),
        (1, {"a1": 1, "b1": 1}, "c1"),
        (1, {"a1": 1, "b1": 1, "c1": 1}, "a1 b1 c1"),
        (2, {"a1": 1}, "a1 b1 c1"),
        (2, {"a1": 2, "b1": 1}, "b1 c1"),
        (1, {"a1": 9, "b1": 3, "c1": 5}, "b1"),
    ],
)
def test_no_domain_has_more_than_max_skew_pods_above_the_emptiest(
    max_skew: int, counts: dict[str, int], expected: str
) -> None:
    pod = web().spread(ZONE, max_skew, {"app": "web"})
    assert fitting(pod, zoned(a1="a", b1="b", c1="c"), there(**counts)) == expected


def test_what_is_said() -> None:
    nodes = zoned(a1="a", a2="a", b1="b", nowhere="_")
    pod = web().spread(ZONE, 1, {"app": "web"}).node_selector({ZONE: "a"})
    pod = pod.spread(ZONE, 1, {"app": "web"}, nodeAffinityPolicy="Ignore")
    assert why_not(pod.obj(), *nodes, pods=there(a1=1), setup=SPREAD) == ""
    pod = web().spread(ZONE, 1, {"app": "web"}, minDomains=3)
    assert why_not(pod.obj(), *nodes, pods=there(a1=1, b1=1), setup=SPREAD) == (
        f"0/4 nodes are available: 1 {LACKING}, 3 {SKEWED}."
    )


def test_a_topology_key_no_node_has() -> None:
    pod = web().spread("rack", 1, {"app": "web"})
    assert why_not(pod.obj(), *zoned(a1="a", b1="b"), setup=SPREAD) == (
        f"0/2 nodes are available: 2 {LACKING}."
    )
    assert scores(web().spread("rack", when="ScheduleAnyway").obj(), *zoned(a1="a"), setup=SPREAD) == {
        "a1": 0
    }


@pytest.mark.parametrize(
    ("pod", "expected"),
    [
        # A pod its own selector does not select adds nothing, so it may join the fullest but one.
        (make_pod("p").spread(ZONE, 1, {"app": "web"}), "a1 b1"),
        (web().spread(ZONE, 1, {"app": "web"}), "b1"),
        (web().spread(ZONE, 1, {"app": "none"}), "a1 b1"),
        # Selecting everything counts no pod at all, and the pod itself.
        (web().spread(ZONE, 1, {}), "a1 b1"),
        (web().spread(ZONE, 1, labelSelector=None), "a1 b1"),
        (web().namespace("other").spread(ZONE, 1, {"app": "web"}), "a1 b1"),
    ],
)
def test_which_pods_count(pod: PodBuilder, expected: str) -> None:
    assert fitting(pod, zoned(a1="a", b1="b"), there(a1=1)) == expected


def test_pods_being_deleted_do_not_count() -> None:
    leaving = web("leaving").on("a1").deleted().obj()
    pod = web().spread(ZONE, 1, {"app": "web"})
    assert fitting(pod, zoned(a1="a", b1="b"), [leaving]) == "a1 b1"


@pytest.mark.parametrize(
    ("least", "counts", "expected"),
    [
        (1, {"a1": 1, "b1": 1}, "a1 b1"),
        (2, {"a1": 1, "b1": 1}, "a1 b1"),
        (3, {"a1": 1, "b1": 1}, ""),
        (3, {"a1": 1}, "b1"),
    ],
)
def test_with_fewer_than_min_domains_the_emptiest_counts_as_empty(
    least: int, counts: dict[str, int], expected: str
) -> None:
    pod = web().spread(ZONE, 1, {"app": "web"}, minDomains=least)
    assert fitting(pod, zoned(a1="a", b1="b"), there(**counts)) == expected


@pytest.mark.parametrize(
    ("policies", "expected"),
    [
        ({}, "a1"),
        ({"nodeAffinityPolicy": "Honor"}, "a1"),
        ({"nodeAffinityPolicy": "Ignore"}, ""),
    ],
)
def test_nodes_the_pod_cannot_go_to_count_by_policy(policies: dict[str, Any], expected: str) -> None:
    """With the empty zone b counted, a is too full."""
    pod = web().spread(ZONE, 1, {"app": "web"}, **policies).node_selector({ZONE: "a"})
    setup = only("PodTopologySpread")
    nodes, pods = zoned(a1="a", b1="b"), there(a1=1)
    driver = Driver((setup,)).add(*nodes, *pods, pod.obj())
    fits = "a1" if "a1" in driver.answer(pod.obj()).totals else ""
    assert fits == expected


@pytest.mark.parametrize(
    ("policies", "expected"),
    [({}, "b1"), ({"nodeTaintsPolicy": "Ignore"}, "b1"), ({"nodeTaintsPolicy": "Honor"}, "a1 b1")],
)
def test_tainted_nodes_count_by_policy(policies: dict[str, Any], expected: str) -> None:
    nodes = [make_node("a1").zone("a").obj(), make_node("b1").zone("b").taint("x").obj()]
    pod = web().spread(ZONE, 1, {"app": "web"}, **policies)
    assert fitting(pod, nodes, there(a1=1)) == expected


def test_match_label_keys_tell_revisions_apart() -> None:
    old = web("old").label("rev", "1").on("a1").obj()
    nodes = zoned(a1="a", b1="b")
    for rev, expected in (("1", "b1"), ("2", "a1 b1")):
        pod = web().label("rev", rev).spread(ZONE, 1, {"app": "web"}, matchLabelKeys=["rev", "no"])
        assert fitting(pod, nodes, [old]) == expected


def test_nodes_must_have_the_keys_of_all_constraints_to_count() -> None:
    """The pods on a node without a zone do not count for its hostname either."""
    nodes = zoned(a1="a", b1="b", nowhere="_")
    pod = web().spread(HOST, 1, {"app": "web"}).spread(ZONE, 5, {"app": "web"})
    assert fitting(pod, nodes, there(a1=1, b1=1)) == "a1 b1"


@pytest.mark.parametrize(
    ("pod", "counts", "expected"),
    [
        (web().spread(ZONE, 1, {"app": "web"}, when="ScheduleAnyway"), {}, {"a1": 100, "b1": 100}),
        (
            web().spread(ZONE, 1, {"app": "web"}, when="ScheduleAnyway"),
            {"a1": 1},
            {"a1": 0, "b1": 100},
        ),
        # log(2 + 2) * 4 = 5.5 and log(2 + 2) * 2 = 2.8
        (
            web().spread(ZONE, 1, {"app": "web"}, when="ScheduleAnyway"),
            {"a1": 4, "b1": 2},
            {"a1": 50, "b1": 100},
        ),
        # A greater skew is borne more easily: 5.5 + 4 and 2.8 + 4.
        (
            web().spread(ZONE, 5, {"app": "web"}, when="ScheduleAnyway"),
            {"a1": 4, "b1": 2},
            {"a1": 70, "b1": 100},
        ),
        (
            web().spread(HOST, 1, {"app": "web"}, when="ScheduleAnyway"),
            {"a1": 1},
            {"a1": 0, "b1": 100},
        ),
    ],
)
def test_emptier_domains_score_higher(
    pod: PodBuilder, counts: dict[str, int], expected: dict[str, int]
) -> None:
    found = scores(pod.obj(), *zoned(a1="a", b1="b"), pods=there(**counts), setup=SPREAD)
    assert found == expected


def test_nodes_without_the_label_score_nothing() -> None:
    pod = web().spread(ZONE, 1, {"app": "web"}, when="ScheduleAnyway")
    assert scores(pod.obj(), *zoned(a1="a", nowhere="_"), setup=SPREAD) == {"a1": 100, "nowhere": 0}


def owned(kind: str, version: str = "apps/v1") -> PodBuilder:
    return web().owned_by(kind, "owner", api_version=version)


@pytest.mark.parametrize(
    ("pod", "other"),
    [
        (web(), make_service("s", {"app": "web"})),
        (owned("ReplicaSet"), make_controller("ReplicaSet", "owner", WEB)),
        (owned("StatefulSet"), make_controller("StatefulSet", "owner", WEB)),
        (
            owned("ReplicationController", "v1"),
            make_controller("ReplicationController", "owner", {"app": "web"}),
        ),
    ],
)
def test_pods_of_a_service_or_controller_are_spread_by_default(pod: PodBuilder, other: Object) -> None:
    driver = Driver((SPREAD,)).add(*zoned(a1="a", b1="b"), *there(a1=2), pod.obj())
    assert driver.answer(pod.obj()).totals == {"a1": 0, "b1": 0}
    # 2 log(4) + 2 on the host and 2 log(4) + 4 in the zone, against 2 + 4.
    driver.add(other)
    assert driver.answer(pod.obj()).totals == {"a1": 50, "b1": 100}
    driver.delete(other)
    assert driver.answer(pod.obj()).totals == {"a1": 0, "b1": 0}


@pytest.mark.parametrize(
    ("pod", "other"),
    [
        (web(), make_service("s", None)),
        (web(), make_service("s", {})),
        (web(), make_service("s", {"app": "db"})),
        (web(), make_service("s", {"app": "web"}, "other")),
        (owned("ReplicationController", "v1"), make_controller("ReplicationController", "owner", None)),
        (owned("ReplicaSet"), make_controller("ReplicaSet", "owner", None)),
        (owned("ReplicaSet"), make_controller("StatefulSet", "owner", WEB)),
        (owned("ReplicaSet", "x/v1"), make_controller("ReplicaSet", "owner", {"matchLabels": {}})),
        (
            web().spread(ZONE, 9, {"app": "web"}),
            make_service("s", {"app": "web"}),
        ),
    ],
)
def test_what_selects_no_pod_spreads_none(pod: PodBuilder, other: Object) -> None:
    driver = Driver((SPREAD,)).add(*zoned(a1="a", b1="b"), *there(a1=2), other, pod.obj())
    assert driver.answer(pod.obj()).totals == {"a1": 0, "b1": 0}


def test_listed_default_constraints_can_forbid_nodes() -> None:
    constraint = {
        "maxSkew": 1,
        "topologyKey": ZONE,
        "whenUnsatisfiable": "DoNotSchedule",
        "minDomains": 3,
    }
    setup = only("PodTopologySpread", spread=(constraint,))
    driver = Driver((setup,)).add(*zoned(a1="a", b1="b"), *there(a1=1, b1=1), web().obj())
    assert driver.answer(web().obj()).totals == {"a1": 0, "b1": 0}
    driver.add(make_service("s", {"app": "web"}))
    assert driver.answer(web().obj()).message == f"0/2 nodes are available: 2 {SKEWED}."


BAD = {"matchExpressions": [{"key": "app", "operator": "Like", "values": ["x"]}]}


@pytest.mark.parametrize(
    ("when", "expected"),
    [
        (
            "DoNotSchedule",
            'running PreFilter plugin "PodTopologySpread": get constraints from pod: '
            "obtaining pod's hard topology spread constraints: "
            '"Like" is not a valid label selector operator',
        ),
        (
            "ScheduleAnyway",
            'running PreScore plugin "PodTopologySpread": calculating preScoreState: '
            "obtaining pod's soft topology spread constraints: "
            '"Like" is not a valid label selector operator',
        ),
    ],
)
def test_a_selector_that_makes_no_sense(when: str, expected: str) -> None:
    pod = web().spread(ZONE, when=when, labelSelector=BAD).obj()
    assert why_not(pod, *zoned(a1="a", b1="b"), setup=SPREAD) == expected


def test_a_node_that_changes_zone_takes_its_pods_along() -> None:
    pod = web().spread(ZONE, 1, {"app": "web"})
    driver = Driver((SPREAD,)).add(*zoned(a1="a", a2="a", b1="b"), *there(a2=1), pod.obj())
    assert list(driver.answer(pod.obj()).totals) == ["b1"]
    driver.update(make_node("a2").zone("b").obj())
    assert list(driver.answer(pod.obj()).totals) == ["a1"]
