from __future__ import annotations

from typing import Any

import pytest

from harness.builders import PodBuilder, make_node, make_pod
from harness.builders.storage import make_claim, make_volume
from harness.driver import Driver, cluster_of, only, scores, why_not
from harness.objects import GROUP, Raw, node, pod_group, reservation
from harness.scenarios import condition, play, step
from holdfast.api.names import STARTS_AT
from reference.setup import Setup, document

SETUP = Setup()

MISMATCH = "node(s) didn't match Pod's node affinity/selector"
Term = dict[str, Any]


def named(*names: str, operator: str = "In") -> Term:
    return {"key": "metadata.name", "operator": operator, "values": list(names)}


def has(key: str, operator: str, *values: str) -> Term:
    return {"key": key, "operator": operator, "values": list(values)}


def wanting(*terms: tuple[list[Term], list[Term]]) -> PodBuilder:
    """A pod with required terms of (expressions, fields)."""
    pod = make_pod("p")
    pod.spec(
        affinity={
            "nodeAffinity": {
                "requiredDuringSchedulingIgnoredDuringExecution": {
                    "nodeSelectorTerms": [
                        {"matchExpressions": expressions, "matchFields": fields}
                        for expressions, fields in terms
                    ]
                }
            }
        }
    )
    return pod


def where(pod: PodBuilder, setup: Setup | None = None) -> set[str]:
    """The nodes that will do, out of three."""
    nodes = [
        make_node("n1").label("disk", "ssd").label("cores", "8").obj(),
        make_node("n2").label("disk", "hdd").label("cores", "16").obj(),
        make_node("n3").label("cores", "many").obj(),
    ]
    return set(scores(pod.obj(), *nodes, setup=setup or only("NodeAffinity")))


@pytest.mark.parametrize(
    ("pod", "nodes"),
    [
        (make_pod("p"), {"n1", "n2", "n3"}),
        (make_pod("p").node_selector({"disk": "ssd"}), {"n1"}),
        (make_pod("p").node_selector({"disk": "ssd", "cores": "16"}), set()),
        (make_pod("p").node_selector({"disk": ""}), set()),
        (make_pod("p").node_selector({"unheard": "of"}), set()),
        (wanting(([has("disk", "In", "ssd", "hdd")], [])), {"n1", "n2"}),
        (wanting(([has("disk", "NotIn", "ssd")], [])), {"n2", "n3"}),
        (wanting(([has("disk", "Exists")], [])), {"n1", "n2"}),
        (wanting(([has("disk", "DoesNotExist")], [])), {"n3"}),
        (wanting(([has("cores", "Gt", "8")], [])), {"n2"}),
        (wanting(([has("cores", "Lt", "16")], [])), {"n1"}),
        (wanting(([has("cores", "Gt", "few")], [])), set()),
        (wanting(([has("disk", "In")], [])), set()),
        (wanting(([has("disk", "Exists", "x")], [])), set()),
        (wanting(([has("disk", "Unheard", "x")], [])), set()),
        (wanting(([has("not a key!", "DoesNotExist")], [])), set()),
        (wanting(([has("disk", "Exists"), has("cores", "Gt", "10")], [])), {"n2"}),
        (wanting(([has("disk", "In", "ssd")], []), ([has("disk", "DoesNotExist")], [])), {"n1", "n3"}),
        (wanting(([], [])), set()),
        (wanting(), set()),
        (wanting(([], []), ([has("disk", "In", "ssd")], [])), {"n1"}),
        (wanting(([has("disk", "Unheard")], []), ([has("disk", "In", "ssd")], [])), {"n1"}),
        (wanting(([], [named("n1", operator="NotIn")])), {"n2", "n3"}),
        (wanting(([has("disk", "Exists")], [named("n1", operator="NotIn")])), {"n2"}),
        (wanting(([], [named("n1")]), ([], [named("n3")])), {"n1", "n3"}),
        (wanting(([], [named("n1")]), ([has("disk", "DoesNotExist")], [])), {"n1", "n3"}),
        (wanting(([has("disk", "In", "hdd")], [named("n1")]), ([], [named("n3")])), {"n3"}),
        (wanting(([], [named("n1", "n2")])), set()),
        (wanting(([], [named("n1"), named("n1", operator="NotIn")]), ([], [named("n2")])), {"n2"}),
        (
            wanting(([has("disk", "In", "ssd", "hdd")], [])).node_selector({"disk": "hdd"}),
            {"n2"},
        ),
    ],
)
def test_required_terms_select_nodes(pod: PodBuilder, nodes: set[str]) -> None:
    assert where(pod) == nodes


def three() -> Driver:
    return cluster_of(
        make_node("n1").allocatable(cpu="1").obj(),
        make_node("n2").allocatable(cpu="4").taint("k").obj(),
        make_node("n3").allocatable(cpu="4").obj(),
        setup=Setup(),
    )


@pytest.mark.parametrize(
    ("pod", "message"),
    [
        (
            make_pod("p").node_selector({"a": "b"}),
            f"0/3 nodes are available: 1 node(s) had untolerated taint(s), 2 {MISMATCH}.",
        ),
        (
            wanting(([], [named("n1")])).cpu("2"),
            "0/3 nodes are available: 1 Insufficient cpu, "
            "2 node(s) didn't satisfy plugin(s) [NodeAffinity].",
        ),
        (
            wanting(([], [named("n2")])),
            "0/3 nodes are available: 1 node(s) had untolerated taint(s), "
            "2 node(s) didn't satisfy plugin(s) [NodeAffinity].",
        ),
        (
            wanting(([has("a", "Exists")], [named("n3")])),
            f"0/3 nodes are available: 1 {MISMATCH}, "
            "2 node(s) didn't satisfy plugin(s) [NodeAffinity].",
        ),
        (
            wanting(([], [named("elsewhere")])),
            "0/3 nodes are available: 3 node(s) didn't satisfy plugin(s) [NodeAffinity].",
        ),
        (
            wanting(([], [named("n1")]), ([], [named("n2")])).cpu("2"),
            "0/3 nodes are available: 1 Insufficient cpu, "
            "1 node(s) didn't satisfy plugin(s) [NodeAffinity], "
            "1 node(s) had untolerated taint(s).",
        ),
        (
            wanting(([], [named("n1"), named("n2")])),
            "0/3 nodes are available: pod affinity terms conflict.",
        ),
        (
            wanting(([], [named("n1"), named("n2")]), ([], [named("n1"), named("n3")])),
            "0/3 nodes are available: pod affinity terms conflict.",
        ),
    ],
)
def test_messages(pod: PodBuilder, message: str) -> None:
    assert three().add(pod.obj()).messages() == {"p": message}


def test_pods_pinned_to_different_nodes_share_a_class_and_go_their_own_ways() -> None:
    driver = three()
    for i, name in enumerate(("n3", "n1", "n2", "n9")):
        field = named(name)
        driver.add(make_pod(f"p{i}").toleration("k").node_affinity_term(fields=[field]).obj())
    assert driver.binds() == {"p0": "n3", "p1": "n1", "p2": "n2"}
    assert len({record.cls for record in driver.scheduler.cluster.pods.values()}) == 1
    assert driver.add(make_node("n9").obj()).binds(1.0) == {"p3": "n9"}


NAMED = {"nodeSelectorTerms": [{"matchFields": [named("n3")]}]}
NAMED_AND_LABELLED = {
    "nodeSelectorTerms": [{"matchFields": [named("n3")], "matchExpressions": [has("a", "Exists")]}]
}


@pytest.mark.parametrize("required", [NAMED, NAMED_AND_LABELLED])
@pytest.mark.parametrize(
    "more",
    [
        pytest.param({}, id="now"),
        pytest.param({"preAllocation": True}, id="pre-allocation"),
        pytest.param({"annotations": {STARTS_AT: "2026-01-01T01:00:00Z"}}, id="planned"),
        pytest.param({"annotations": {GROUP: "g"}}, id="in a gang"),
    ],
)
def test_a_reservation_goes_to_the_node_that_its_template_names(more: Raw, required: Term) -> None:
    affinity = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": required}}
    nodes = [node(name, labels={"a": "b"}) for name in ("n1", "n2", "n3")]
    made = reservation("r", 2, pod={"affinity": affinity}, **more)
    group: list[Raw] = [pod_group("g", 1)] if GROUP in more.get("annotations", {}) else []
    played = play(nodes, group, made, until=2 * 3600)
    assert played.find("Reservation", "r")["status"]["nodeName"] == "n3"
    assert condition(played.find("Reservation", "r"), "Scheduled")["status"] == "True"


@pytest.mark.parametrize("restarts", [False, True])
def test_a_planned_reservation_waits_for_the_node_that_its_template_names(restarts: bool) -> None:
    affinity = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": NAMED}}
    annotations = {STARTS_AT: "2026-01-01T01:00:00Z"}
    made = reservation("r", 2, pod={"affinity": affinity}, annotations=annotations)
    restart = [step("10m", restart="scheduler")] if restarts else []
    nodes = [step("20m", apply=node("n1")), step("40m", apply=node("n3"))]
    played = play(made, restart, nodes, until=2 * 3600)
    assert played.find("Reservation", "r")["status"]["nodeName"] == "n3"
    planned = [each for each in played.result.timeline if each.event == "Planned" and each.node]
    assert [(each.t, each.node) for each in planned] == [(2400, "n3")]


def test_reservations_whose_templates_name_nodes_go_their_own_ways() -> None:
    made = []
    for i, name in enumerate(("n3", "n1", "n9", "n2")):
        required = {"nodeSelectorTerms": [{"matchFields": [named(name)]}]}
        affinity = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": required}}
        made.append(reservation(f"r{i}", 2, pod={"affinity": affinity}))
    played = play([node(name) for name in ("n1", "n2", "n3")], made, until=60)
    placed = [played.find("Reservation", f"r{i}").get("status", {}).get("nodeName") for i in range(4)]
    assert placed == ["n3", "n1", None, "n2"]
    message = condition(played.find("Reservation", "r2"), "Scheduled")["message"]
    assert message == "0/3 nodes are available: 3 node(s) didn't satisfy plugin(s) [NodeAffinity]."


def test_a_profile_without_the_plugin_pins_nothing() -> None:
    setup = Setup(without=("NodeAffinity",))
    driver = cluster_of(make_node("n1").obj(), setup=setup)
    assert driver.add(wanting(([], [named("n2")])).obj()).binds() == {"p": "n1"}


def test_a_profile_that_only_scores_by_it_pins_nothing() -> None:
    config = document([Setup(without=("NodeAffinity",))])
    config["profiles"][0]["plugins"]["score"] = {"enabled": [{"name": "NodeAffinity"}]}
    driver = Driver(config=config).add(make_node("n1").obj())
    assert driver.add(wanting(([], [named("n2")])).obj()).binds() == {"p": "n1"}


@pytest.mark.parametrize(
    ("wishes", "expected"),
    [
        ([], {"n1": 0, "n2": 0, "n3": 0}),
        ([(5, has("disk", "In", "ssd"))], {"n1": 100, "n2": 0, "n3": 0}),
        ([(5, has("disk", "In", "gold"))], {"n1": 0, "n2": 0, "n3": 0}),
        (
            [(10, has("disk", "Exists")), (20, has("cores", "Gt", "10"))],
            {"n1": 33, "n2": 100, "n3": 0},
        ),
        ([(0, has("disk", "Exists")), (1, has("disk", "DoesNotExist"))], {"n1": 0, "n2": 0, "n3": 100}),
    ],
)
def test_preferences_add_up_and_the_best_gets_100(
    wishes: list[tuple[int, Term]], expected: dict[str, int]
) -> None:
    nodes = [
        make_node("n1").label("disk", "ssd").label("cores", "8").obj(),
        make_node("n2").label("disk", "hdd").label("cores", "16").obj(),
        make_node("n3").obj(),
    ]
    pod = make_pod("p")
    for weight, wish in wishes:
        pod.prefers_node(weight, wish["key"], wish["operator"], wish["values"])
    assert scores(pod.obj(), *nodes, setup=only("NodeAffinity")) == expected


NO_NUMBER = "for 'Gt', 'Lt' operators, the value must be an integer"
NO_LABEL = (
    "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and "
    "must start and end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or '12345', "
    "regex used for validation is '(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')"
)
OPERATORS = 'supported values: "DoesNotExist", "Exists", "Gt", "In", "Lt", "NotIn"'


@pytest.mark.parametrize(
    ("wishes", "problem"),
    [
        (
            [(1, has("disk", "Exists")), (1, has("cores", "Gt", "many"))],
            f'[1].matchExpressions[0].values[0]: Invalid value: "many": {NO_NUMBER}',
        ),
        (
            [(1, has("cores", "Lt", "a b")), (2, has("disk", "Like"))],
            f'[[0].matchExpressions[0].values[0]: Invalid value: "a b": {NO_NUMBER}, '
            f'[0].matchExpressions[0].values[0][cores]: Invalid value: "a b": {NO_LABEL}, '
            f'[1].matchExpressions[0].operator: Unsupported value: "Like": {OPERATORS}]',
        ),
    ],
)
def test_a_preference_that_makes_no_sense(wishes: list[tuple[int, Term]], problem: str) -> None:
    pod = make_pod("p")
    for weight, wish in wishes:
        pod.prefers_node(weight, wish["key"], wish["operator"], wish["values"])
    nodes = [make_node("n1").obj(), make_node("n2").obj()]
    assert why_not(pod.obj(), *nodes, setup=only("NodeAffinity")) == (
        f'running PreScore plugin "NodeAffinity": {problem}'
    )


@pytest.mark.parametrize("claim", [False, True])
def test_a_preference_matters_only_where_there_is_a_choice(claim: bool) -> None:
    """Without one it may make no sense: nobody asks for it."""
    pod = make_pod("p").cpu("2").prefers_node(1, "cores", "Gt", ["many"])
    big, small = make_node("big").allocatable(cpu="4"), make_node("small").allocatable(cpu="1")
    driver = Driver((SETUP,)).add(small.obj())
    if claim:
        made = make_claim("c").bound_to("v")
        driver.add(made.obj(), make_volume("v").claimed_by("c").csi("d", "h").obj())
        pod.claim("c")
    assert driver.add(pod.obj()).messages() == {"p": "0/1 nodes are available: 1 Insufficient cpu."}
    assert driver.add(big.obj()).binds(60.0) == {"p": "big"}
    driver.add(make_node("other").allocatable(cpu="4").obj(), make_node("more").obj())
    wants_too = make_pod("q").prefers_node(1, "cores", "Gt", ["many"]).obj()
    problem = f'[0].matchExpressions[0].values[0]: Invalid value: "many": {NO_NUMBER}'
    assert driver.add(wants_too).messages(120.0) == {
        "q": f'running PreScore plugin "NodeAffinity": {problem}'
    }


def test_a_preference_without_weight_need_not_make_sense() -> None:
    pod = make_pod("p").prefers_node(0, "cores", "Gt", ["many"]).obj()
    assert scores(pod, make_node("n1").obj(), setup=only("NodeAffinity")) == {"n1": 0}


def test_only_nodes_that_fit_count_in_the_normalisation() -> None:
    nodes = [make_node("n1").label("a", "1").taint("k").obj(), make_node("n2").label("b", "1").obj()]
    pod = make_pod("p").prefers_node(50, "a", "Exists").prefers_node(10, "b", "Exists").obj()
    without = tuple(n for n in ("NodeResourcesFit", "NodeResourcesBalancedAllocation"))
    setup = Setup(without=without, weights={"TaintToleration": 1, "NodeAffinity": 1})
    assert scores(pod, *nodes, setup=setup) == {"n2": 200}


ENFORCED = "node(s) didn't match scheduler-enforced node affinity"


def test_the_affinity_a_profile_adds() -> None:
    required = {"nodeSelectorTerms": [{"matchExpressions": [has("disk", "In", "ssd")]}]}
    preferred = [{"weight": 3, "preference": {"matchExpressions": [has("new", "Exists")]}}]
    added = {
        "requiredDuringSchedulingIgnoredDuringExecution": required,
        "preferredDuringSchedulingIgnoredDuringExecution": preferred,
    }
    setup = only("NodeAffinity", added_affinity=added)
    ssd, new = make_node("n1").label("disk", "ssd"), make_node("n2").label("disk", "ssd").label("new")
    hdd = make_node("n3").label("disk", "hdd")
    assert scores(make_pod("p").obj(), ssd.obj(), new.obj(), hdd.obj(), setup=setup) == {
        "n1": 0,
        "n2": 100,
    }
    mine = make_pod("p").prefers_node(1, "disk", "Exists").obj()
    assert scores(mine, ssd.obj(), new.obj(), setup=setup) == {"n1": 25, "n2": 100}
    # What the profile asks comes first; a node that fails both is told off for that alone.
    picky = make_pod("p").node_selector({"disk": "gold"}).obj()
    assert why_not(picky, ssd.obj(), hdd.obj(), setup=setup) == (
        f"0/2 nodes are available: 1 {MISMATCH}, 1 {ENFORCED}."
    )
