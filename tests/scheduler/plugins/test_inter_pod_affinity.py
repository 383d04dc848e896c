from __future__ import annotations

from typing import Any

import pytest

from harness.builders import PodBuilder, make_namespace, make_node, make_pod
from harness.driver import Driver, only, why_not
from holdfast.api.meta import Object
from holdfast.api.node import Node
from holdfast.scheduler.cluster.events import Added, Deleted, Updated
from reference.setup import Setup

ZONE = "topology.kubernetes.io/zone"
HOST = "kubernetes.io/hostname"
FAR = "node(s) didn't match pod affinity rules"
NEAR = "node(s) didn't match pod anti-affinity rules"
UNWELCOME = "node(s) didn't satisfy existing pods anti-affinity rules"
AFFINITY = only("InterPodAffinity")
WEB = {"app": "web"}
NODES = (
    make_node("a1").zone("a").obj(),
    make_node("a2").zone("a").obj(),
    make_node("b1").zone("b").obj(),
    make_node("nowhere").obj(),
)


def web(name: str = "web") -> PodBuilder:
    return make_pod(name).label("app", "web")


def db(name: str = "db") -> PodBuilder:
    return make_pod(name).label("app", "db")


def fitting(pod: PodBuilder, *others: Object, nodes: tuple[Node, ...] = NODES) -> str:
    driver = Driver((AFFINITY,)).add(*nodes, *others, pod.obj())
    return " ".join(driver.answer(pod.obj()).totals)


def totals(pod: PodBuilder, *others: Object, setup: Setup = AFFINITY) -> list[int]:
    driver = Driver((setup,)).add(*NODES, *others, pod.obj())
    return list(driver.answer(pod.obj()).totals.values())


@pytest.mark.parametrize(
    ("pod", "others", "expected"),
    [
        (db().pod_affinity(ZONE, WEB), [web().on("a1")], "a1 a2"),
        (db().pod_affinity(HOST, WEB), [web().on("a1")], "a1"),
        (db().pod_affinity(ZONE, WEB), [web().on("nowhere")], ""),
        (db().pod_affinity(ZONE, WEB), [web().on("unknown")], ""),
        (db().pod_affinity("rack", WEB), [web().on("a1")], ""),
        (db().pod_affinity(ZONE, WEB), [], ""),
        (db().pod_affinity(ZONE, {}), [web().on("b1")], "b1"),
        (db().pod_affinity(ZONE), [web().on("b1")], ""),
        # One pod must satisfy all terms, each in the domain of its own key.
        (
            db().pod_affinity(ZONE, WEB).pod_affinity(HOST, {"tier": "x"}),
            [web("w").on("a1"), make_pod("x").label("tier", "x").on("a1")],
            "",
        ),
        (
            db().pod_affinity(ZONE, WEB).pod_affinity(HOST, {"tier": "x"}),
            [web().label("tier", "x").on("a1")],
            "a1",
        ),
        (db().pod_anti_affinity(ZONE, WEB), [web().on("a1")], "b1 nowhere"),
        (db().pod_anti_affinity(HOST, WEB), [web().on("a1")], "a2 b1 nowhere"),
        (db().pod_anti_affinity("rack", WEB), [web().on("a1")], "a1 a2 b1 nowhere"),
        (db().pod_anti_affinity(ZONE, WEB), [web().on("a1").deleted()], "b1 nowhere"),
        # From the other side.
        (web(), [db().pod_anti_affinity(ZONE, WEB).on("a1")], "b1 nowhere"),
        (web(), [db().pod_anti_affinity(ZONE, WEB).on("nowhere")], "a1 a2 b1 nowhere"),
        (db("d"), [db().pod_anti_affinity(ZONE, WEB).on("a1")], "a1 a2 b1 nowhere"),
        (web(), [db().pod_affinity(ZONE, WEB).on("a1")], "a1 a2 b1 nowhere"),
    ],
)
def test_required_terms(pod: PodBuilder, others: list[PodBuilder], expected: str) -> None:
    assert fitting(pod, *(other.obj() for other in others)) == expected


def test_what_is_said_of_each_node_in_turn() -> None:
    pod = web().pod_affinity(ZONE, {"app": "db"}).pod_anti_affinity(HOST, {"app": "cache"})
    others = (
        db().on("a1").pod_anti_affinity(HOST, WEB).obj(),
        make_pod("cache").label("app", "cache").on("a2").obj(),
    )
    assert why_not(pod.obj(), *NODES, pods=others, setup=AFFINITY) == (
        f"0/4 nodes are available: 1 {NEAR}, 1 {UNWELCOME}, 2 {FAR}."
    )


@pytest.mark.parametrize(
    ("pod", "others", "expected"),
    [
        (web().pod_affinity(ZONE, WEB), [], "a1 a2 b1"),
        (web().pod_affinity("rack", WEB), [], ""),
        (web().pod_affinity(ZONE, WEB), [web("first").on("b1")], "b1"),
        # The only other one is in no zone, so nobody is in any.
        (web().pod_affinity(ZONE, WEB), [web("first").on("nowhere")], "a1 a2 b1"),
        (web().pod_affinity(ZONE, WEB), [web("other").namespace("other").on("b1")], "a1 a2 b1"),
        (web().pod_affinity(ZONE, WEB).pod_affinity(HOST, {"app": "db"}), [], ""),
        (db().pod_affinity(ZONE, WEB), [], ""),
    ],
)
def test_the_first_pod_of_a_series_may_go_anywhere(
    pod: PodBuilder, others: list[PodBuilder], expected: str
) -> None:
    assert fitting(pod, *(other.obj() for other in others)) == expected


@pytest.mark.parametrize(
    ("term", "expected"),
    [
        ({}, ""),
        ({"namespaces": ["other"]}, "a1 a2"),
        ({"namespaces": ["default"]}, ""),
        ({"namespaceSelector": {}}, "a1 a2"),
        ({"namespaceSelector": {"matchLabels": {"team": "a"}}}, "a1 a2"),
        ({"namespaceSelector": {"matchLabels": {"team": "b"}}}, ""),
        # kube-scheduler asks the selector a second time, of no labels at all.
        (
            {"namespaceSelector": {"matchExpressions": [{"key": "team", "operator": "DoesNotExist"}]}},
            "a1 a2",
        ),
        ({"namespaceSelector": {"matchLabels": {"team": "b"}}, "namespaces": ["other"]}, "a1 a2"),
        ({"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "other"}}}, "a1 a2"),
    ],
)
def test_terms_select_pods_of_namespaces(term: dict[str, Any], expected: str) -> None:
    namespace = make_namespace("other", {"team": "a"})
    other = web().namespace("other").on("a1").obj()
    assert fitting(db().pod_affinity(ZONE, WEB, **term), namespace, other) == expected


def test_namespaces_that_change_labels_or_go_away() -> None:
    term: dict[str, Any] = {"namespaceSelector": {"matchLabels": {"team": "a"}}}
    shy = db().namespace("other").pod_anti_affinity(ZONE, WEB, **term).on("a1").obj()
    own = web().obj()
    driver = Driver((AFFINITY,)).add(*NODES, shy, own)
    for namespace, expected in (
        (make_namespace("default", {"team": "a"}), "b1 nowhere"),
        (make_namespace("default", {"team": "b"}), "a1 a2 b1 nowhere"),
        (make_namespace("default", {"team": "a"}), "b1 nowhere"),
    ):
        driver.update(namespace)
        assert " ".join(driver.answer(own).totals) == expected
    driver.delete(namespace)
    assert " ".join(driver.answer(own).totals) == "a1 a2 b1 nowhere"


@pytest.mark.parametrize(
    ("keys", "rev", "expected"),
    [
        ({"matchLabelKeys": ["rev"]}, "1", "b1 nowhere"),
        ({"matchLabelKeys": ["rev"]}, "2", "a1 a2 b1 nowhere"),
        ({"mismatchLabelKeys": ["rev"]}, "1", "a1 a2 b1 nowhere"),
        ({"mismatchLabelKeys": ["rev"]}, "2", "b1 nowhere"),
        ({"matchLabelKeys": ["unknown"]}, "2", "b1 nowhere"),
    ],
)
def test_label_keys(keys: dict[str, Any], rev: str, expected: str) -> None:
    pod = db().label("rev", rev).pod_anti_affinity(ZONE, WEB, **keys)
    assert fitting(pod, web().label("rev", "1").on("a1").obj()) == expected


@pytest.mark.parametrize(
    ("pod", "others", "expected"),
    [
        (db(), [web().on("a1")], [0, 0, 0, 0]),
        (db().pod_affinity(ZONE, WEB, weight=5), [web().on("a1")], [100, 100, 0, 0]),
        (db().pod_anti_affinity(ZONE, WEB, weight=5), [web().on("a1")], [0, 0, 100, 100]),
        (
            db().pod_affinity(ZONE, WEB, weight=2).pod_affinity(HOST, WEB, weight=1),
            [web("w1").on("a1"), web("w2").on("b1"), web("w3").on("b1")],
            [50, 33, 100, 0],
        ),
        # Required and preferred terms of pods already there count for those they select.
        (web(), [db().pod_affinity(ZONE, WEB).on("a1")], [100, 100, 0, 0]),
        (web(), [db().pod_affinity(ZONE, WEB, weight=9).on("a1")], [100, 100, 0, 0]),
        (web(), [db().pod_anti_affinity(ZONE, WEB, weight=9).on("a1")], [0, 0, 100, 100]),
        (db("d"), [db().pod_anti_affinity(ZONE, WEB, weight=9).on("a1")], [0, 0, 0, 0]),
    ],
)
def test_scores(pod: PodBuilder, others: list[PodBuilder], expected: list[int]) -> None:
    assert totals(pod, *(other.obj() for other in others)) == expected


def test_arguments_of_the_plugin() -> None:
    wants = db("wants").pod_affinity(ZONE, WEB).on("a1").obj()
    likes = db("likes").pod_affinity(ZONE, WEB, weight=10).on("b1").obj()
    assert totals(web(), wants, likes) == [10, 10, 100, 0]
    heavy = only("InterPodAffinity", hard_affinity_weight=100)
    assert totals(web(), wants, likes, setup=heavy) == [100, 100, 10, 0]
    light = only("InterPodAffinity", hard_affinity_weight=0)
    assert totals(web(), wants, likes, setup=light) == [0, 0, 100, 0]
    aloof = only("InterPodAffinity", ignores_others=True)
    assert totals(web(), wants, likes, setup=aloof) == [0, 0, 0, 0]
    # A pod with wishes of its own has those of others counted all the same.
    pod = web().pod_affinity(HOST, {"app": "db"}, weight=1)
    assert totals(pod, wants, likes, setup=aloof) == [18, 9, 100, 0]


BAD = {"matchExpressions": [{"key": "app", "operator": "Like", "values": ["x"]}]}


@pytest.mark.parametrize(
    ("pod", "expected"),
    [
        (web().pod_affinity(ZONE, labelSelector=BAD), "requiredAffinityTerms: {}"),
        (web().pod_anti_affinity(ZONE, WEB, namespaceSelector=BAD), "requiredAntiAffinityTerms: {}"),
        (web().pod_affinity(ZONE, labelSelector=BAD, weight=1), "preferredAffinityTerms: {}"),
        (
            web()
            .pod_anti_affinity(ZONE, labelSelector=BAD, weight=1)
            .pod_affinity(ZONE, labelSelector=BAD),
            "[requiredAffinityTerms: {0}, preferredAntiAffinityTerms: {0}]",
        ),
    ],
)
def test_selectors_that_make_no_sense(pod: PodBuilder, expected: str) -> None:
    problem = expected.format('"Like" is not a valid label selector operator')
    assert why_not(pod.obj(), *NODES, setup=AFFINITY) == (
        f"0/4 nodes are available: parsing pod: {problem}."
    )


@pytest.mark.parametrize(
    ("selector", "problem"),
    [
        (
            {"matchLabels": {"app": "{{.x.}}"}},
            'values[0][app]: Invalid value: "{{.x.}}": a valid label must be an empty string or '
            "consist of alphanumeric characters, '-', '_' or '.', and must start and end with an "
            "alphanumeric character (e.g. 'MyValue',  or 'my_value',  or '12345', regex used for "
            "validation is '(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')",
        ),
        (
            {"matchExpressions": [{"key": "app", "operator": "In"}]},
            "values: Invalid value: null: for 'in', 'notin' operators, values set can't be empty",
        ),
        (
            {"matchExpressions": [{"key": "app", "operator": "Exists", "values": ["a", "b"]}]},
            'values: Invalid value: ["a","b"]: values set must be empty for exists and does not exist',
        ),
        (
            {"matchExpressions": [{"key": "a/", "operator": "NotIn", "values": []}]},
            '[key: Invalid value: "a/": name part must be non-empty; name part must consist of '
            "alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric "
            "character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is "
            "'([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]'), "
            "values: Invalid value: null: for 'in', 'notin' operators, values set can't be empty]",
        ),
    ],
)
def test_what_is_wrong_with_a_selector_is_said_in_kubernetes_words(
    selector: dict[str, Any], problem: str
) -> None:
    pod = web().pod_affinity(ZONE, labelSelector=selector)
    assert why_not(pod.obj(), *NODES, setup=AFFINITY) == (
        f"0/4 nodes are available: parsing pod: requiredAffinityTerms: {problem}."
    )


def test_a_pod_there_with_terms_that_make_no_sense_bothers_nobody() -> None:
    odd = db().pod_anti_affinity(ZONE, labelSelector=BAD).on("a1").obj()
    assert fitting(web(), odd) == "a1 a2 b1 nowhere"


def test_pods_come_go_and_change_labels() -> None:
    pod = db().pod_anti_affinity(ZONE, WEB).obj()
    driver = Driver((AFFINITY,)).add(*NODES, pod)
    there = web().on("a1")
    for event, expected in (
        (Added(there.obj()), "b1 nowhere"),
        (Updated(there.label("app", "db").obj()), "a1 a2 b1 nowhere"),
        (Updated(there.label("app", "web").obj()), "b1 nowhere"),
        (Updated(make_node("a1").zone("b").obj()), "a2 nowhere"),
        (Deleted(there.obj()), "a1 a2 b1 nowhere"),
    ):
        driver.feed(event)
        assert " ".join(driver.answer(pod).totals) == expected
