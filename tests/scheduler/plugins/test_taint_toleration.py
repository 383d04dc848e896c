from __future__ import annotations

import pytest

from harness.builders import NodeBuilder, PodBuilder, make_node, make_pod
from harness.driver import only, scores, why_not

REASON = "0/1 nodes are available: 1 node(s) had untolerated taint(s)."
PREFER = "PreferNoSchedule"


def tainted(value: str = "v", effect: str = "NoSchedule") -> NodeBuilder:
    return make_node("n").taint("k", value, effect)


def tolerating(key: str = "k", value: str = "", effect: str = "", operator: str = "") -> PodBuilder:
    return make_pod("p").toleration(key, value, effect, operator)


@pytest.mark.parametrize(
    ("pod", "node", "fits"),
    [
        (make_pod("p"), make_node("n"), True),
        (make_pod("p"), tainted(), False),
        (make_pod("p"), tainted(effect="NoExecute"), False),
        (make_pod("p"), tainted(effect=PREFER), True),
        (tolerating(value="v"), tainted(), True),
        (tolerating(value="v", operator="Equal"), tainted(), True),
        (tolerating(value="w"), tainted(), False),
        (tolerating("other", "v"), tainted(), False),
        (tolerating(), tainted(), False),
        (tolerating(), tainted(""), True),
        (tolerating(operator="Exists"), tainted(), True),
        (tolerating("", operator="Exists"), tainted(), True),
        (tolerating("", "v", operator="Equal"), tainted(), True),
        (tolerating(value="v", effect="NoSchedule"), tainted(), True),
        (tolerating(value="v", effect="NoExecute"), tainted(), False),
        (tolerating(value="v", effect="NoSchedule"), tainted(effect="NoExecute"), False),
        (tolerating(value="5", operator="Gt"), tainted("6"), True),
        (tolerating(value="5", operator="Gt"), tainted("5"), False),
        (tolerating(value="5", operator="Gt"), tainted("4"), False),
        (tolerating(value="5", operator="Lt"), tainted("4"), True),
        (tolerating(value="5", operator="Lt"), tainted("5"), False),
        (tolerating(value="-1", operator="Gt"), tainted("0"), True),
        (tolerating(value="5", operator="Gt"), tainted("many"), False),
        (tolerating(value="many", operator="Lt"), tainted("4"), False),
        (tolerating(value="v", operator="Unheard"), tainted(), False),
        (tolerating(value="v"), tainted().taint("k2", "v"), False),
        (tolerating(value="v").toleration("k2", "v"), tainted().taint("k2", "v"), True),
        (tolerating(value="v"), tainted().taint("k2", "v", PREFER), True),
    ],
)
def test_taints_keep_out_pods_that_do_not_tolerate_them(
    pod: PodBuilder, node: NodeBuilder, fits: bool
) -> None:
    message = "" if fits else REASON
    assert why_not(pod.obj(), node.obj(), setup=only("TaintToleration")) == message


@pytest.mark.parametrize(
    ("pod", "nodes", "expected"),
    [
        (make_pod("p"), [make_node("a"), make_node("b")], {"a": 100, "b": 100}),
        (
            make_pod("p"),
            [make_node("a").taint("k", "v", PREFER), make_node("b")],
            {"a": 0, "b": 100},
        ),
        (
            make_pod("p"),
            [
                make_node("a").taint("k", "v", PREFER),
                make_node("b").taint("k", "v", PREFER).taint("l", "v", PREFER),
                make_node("c").taint("k").taint("l", "v", PREFER),
                make_node("d"),
            ],
            {"a": 50, "b": 0, "d": 100},
        ),
        (
            make_pod("p"),
            [
                make_node("a").taint("k", "", PREFER),
                make_node("b").taint("k", "", PREFER).taint("l", "", PREFER).taint("m", "", PREFER),
            ],
            {"a": 67, "b": 0},
        ),
        (
            tolerating("k", operator="Exists"),
            [make_node("a").taint("k", "v", PREFER), make_node("b").taint("l", "v", PREFER)],
            {"a": 100, "b": 0},
        ),
        (
            tolerating("k", effect="NoSchedule", operator="Exists"),
            [make_node("a").taint("k", "v", PREFER), make_node("b")],
            {"a": 0, "b": 100},
        ),
        (
            tolerating("k", effect=PREFER, operator="Exists"),
            [make_node("a").taint("k", "v", PREFER), make_node("b")],
            {"a": 100, "b": 100},
        ),
    ],
)
def test_nodes_with_fewer_disliked_taints_score_higher(
    pod: PodBuilder, nodes: list[NodeBuilder], expected: dict[str, int]
) -> None:
    made = [node.obj() for node in nodes]
    assert scores(pod.obj(), *made, setup=only("TaintToleration")) == expected


def test_the_first_preference_ever_seen_changes_all_scores() -> None:
    from harness.driver import cluster_of

    pod = make_pod("p").obj()
    driver = cluster_of(make_node("a").obj(), setup=only("TaintToleration")).add(pod)
    assert driver.answer(pod).totals == {"a": 100}
    driver.update(make_node("a").taint("k", "v", PREFER).obj()).add(make_node("b").obj())
    assert driver.answer(pod).totals == {"a": 0, "b": 100}
    driver.update(make_node("a").obj())
    assert driver.answer(pod).totals == {"a": 100, "b": 100}
