"""The plugin in a cluster: filter, score, limit, and everything that can be written wrongly."""

from random import Random
from typing import Any

import pytest
from holdfast_carbon import (
    CARBON,
    MAX_CARBON,
    TOO_MANY_PODS,
    TOO_MUCH_CARBON,
    UNKNOWN_CARBON,
    CarbonAware,
)

from holdfast.plugin.testing import Cluster, check_plugin, node, pod, reservation


def powered(name: str, carbon: str, **more: Any) -> dict[str, Any]:
    return node(name, annotations={CARBON: carbon}, **more)


def picky(name: str, accepted: str = "300", **more: Any) -> dict[str, Any]:
    return pod(name, annotations={MAX_CARBON: accepted}, **more)


def mixed(**args: Any) -> Cluster:
    cluster = Cluster(CarbonAware, args=args)
    return cluster.add(
        powered("wind", "20"), powered("gas", "280"), powered("coal", "900"), node("quiet")
    )


def test_only_nodes_that_are_clean_enough() -> None:
    cluster = mixed()
    assert cluster.why_not(picky("p")) == {"coal": [TOO_MUCH_CARBON], "quiet": [UNKNOWN_CARBON]}
    assert cluster.where(picky("p")) == "wind"
    assert cluster.where(picky("p", "10")) is None


def test_the_annotation_of_each_pod_counts() -> None:
    cluster = mixed()
    cluster.add(picky("a", "20"), picky("b", "300"), picky("c", "900"), pod("d"))
    cluster.schedule()
    assert cluster.placed()["a"] == "wind" and "d" in cluster.placed()
    assert "coal" not in cluster.why_not(picky("e", "900"))


def test_cleaner_nodes_score_higher_among_those_that_are_feasible() -> None:
    cluster = mixed()
    assert cluster.raw_scores(picky("p")) == {"wind": -20, "gas": -280}
    assert cluster.scores(picky("p")) == {"wind": 100, "gas": 0}
    assert cluster.scores(picky("p", "900")) == {"wind": 100, "gas": 70, "coal": 0}
    assert set(cluster.scores(pod("p")).values()) == {0}


def test_a_limit_per_node() -> None:
    cluster = mixed(podsPerNode=2)
    cluster.add(*(picky(f"p{i}") for i in range(6)))
    bound = cluster.schedule()
    assert sorted(bound.values()) == ["gas", "gas", "wind", "wind"]
    waits, *_ = cluster.pending()
    assert f"2 {TOO_MANY_PODS}" in cluster.messages()[waits]
    gone = next(name for name, where in bound.items() if where == "gas")
    assert list(cluster.delete(f"Pod/{gone}").advance(30).values()) == ["gas"]


def test_pods_that_are_there_already_count_and_others_do_not() -> None:
    cluster = mixed(podsPerNode=1)
    cluster.add(picky("old", on="wind"), pod("plain", on="gas")).restart()
    assert cluster.where(picky("p")) == "gas"


def test_a_more_important_pod_may_take_the_place_of_another() -> None:
    cluster = mixed(podsPerNode=1).delete("Node/gas")
    cluster.add(picky("low", priority=1))
    assert cluster.schedule() == {"low": "wind"}
    cluster.add(picky("high", priority=100))
    cluster.advance(60)
    assert cluster.placed() == {"high": "wind"}


def test_a_node_that_becomes_clean_is_used() -> None:
    cluster = Cluster(CarbonAware).add(powered("n", "900"), picky("p"))
    assert cluster.schedule() == {}
    cluster.update(powered("n", "100"))
    assert cluster.advance(30) == {"p": "n"}


def test_an_owner_of_a_reservation_keeps_to_the_rules_too() -> None:
    cluster = mixed()
    template = {MAX_CARBON: "300"}
    cluster.add(reservation("held", owners={"app": "web"}, cpu=7, annotations=template))
    cluster.schedule()
    assert cluster.where(picky("web", cpu=7, labels={"app": "web"})) == "wind"
    assert cluster.where(picky("stranger", cpu=7)) == "gas"


@pytest.mark.parametrize("accepted", ["", "clean", "-1", "3.5"])
def test_a_pod_that_says_nonsense_is_told_so(accepted: str) -> None:
    cluster = mixed().add(picky("p", accepted))
    cluster.schedule()
    assert MAX_CARBON in cluster.messages()["p"]


def test_a_node_that_says_nonsense_counts_as_unknown() -> None:
    cluster = Cluster(CarbonAware).add(powered("n", "much"))
    assert cluster.why_not(picky("p")) == {"n": [UNKNOWN_CARBON]}
    cluster.schedule()
    (event,) = cluster.events()
    assert event.object == "Node/n" and CARBON in event.message


@pytest.mark.parametrize("args", [{"podsPerNode": 0}, {"podsPerNode": "2"}, {"podPerNode": 2}])
def test_arguments_that_are_wrong_are_refused(args: dict[str, Any]) -> None:
    with pytest.raises(Exception, match=r"CarbonAware.*PerNode"):
        Cluster(CarbonAware, args=args)


def test_the_contract() -> None:
    def any_node(random: Random, name: str) -> dict[str, Any]:
        says = random.choice(({}, {CARBON: "odd"}, {CARBON: str(random.randrange(500))}))
        return node(name, cpu=2, annotations=says)

    def any_pod(random: Random, name: str) -> dict[str, Any]:
        says = random.choice(({}, {MAX_CARBON: str(random.randrange(500))}))
        return pod(name, cpu="300m", annotations=says, priority=random.choice((0, 10)))

    check_plugin(CarbonAware, seeds=range(8), node=any_node, pod=any_pod, args={"podsPerNode": 2})
