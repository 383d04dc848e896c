from __future__ import annotations

from typing import Any

import pytest

from harness.builders import PodBuilder, make_budget, make_node, make_pod
from harness.driver import Driver
from holdfast.api.meta import Object
from holdfast.api.node import Node
from holdfast.scheduler.cluster.decisions import Bind, Decision, Emit, Nominate, Preempt
from reference.setup import Setup, document

SETUP = Setup(preempts=True)
NO_VICTIMS = "No preemption victims found for incoming pod"
CONDITION = "default-scheduler: preempting to accommodate a higher priority pod"
USELESS = "Preemption is not helpful for scheduling"


def node(name: str = "n1", **offered: Any) -> Node:
    return make_node(name).allocatable(cpu="4", memory="8Gi", **offered).obj()


def there(name: str, priority: int = 0, cpu: str = "2", on: str = "n1", start: int = 1) -> PodBuilder:
    pod = make_pod(name).cpu(cpu).priority(priority).on(on).label("app", name)
    return pod.status(startTime=f"2026-01-0{start}T00:00:00Z")


def urgent(cpu: str = "2") -> PodBuilder:
    return make_pod("urgent").cpu(cpu).priority(100)


def after(pod: PodBuilder, *objects: Object | PodBuilder) -> Driver:
    made = [o.obj() if isinstance(o, PodBuilder) else o for o in objects]
    driver = Driver((SETUP,)).add(*made, pod.obj())
    driver.round()
    return driver


def victims(decisions: list[Decision]) -> str:
    return " ".join(d.pod.name for d in decisions if isinstance(d, Preempt))


def message(driver: Driver) -> str:
    return driver.record(urgent().obj()).condition_message


def test_what_is_decided() -> None:
    driver = after(urgent(), node(), there("a"), there("b", 5))
    a, b = driver.record(there("a").obj()), driver.record(urgent().obj())
    assert driver.decisions[:3] == [
        Preempt(a.ref, b.ref, "n1", CONDITION),
        Emit(a.ref, "Normal", "Preempted", "Preempted by pod uid-urgent on node n1", "Preempting"),
        Nominate(b.ref, "n1"),
    ]
    assert message(driver) == (
        "0/1 nodes are available: 1 Insufficient cpu. "
        "preemption: found a potential placement for pod on node n1, preempting 1 victims"
    )


@pytest.mark.parametrize(
    ("pod", "pods", "expected"),
    [
        (urgent(), [there("a"), there("b")], "b"),  # the earlier of the name is spared
        (urgent(), [there("a", start=2), there("b", start=1)], "a"),  # the older is spared
        (urgent(), [there("a", 5), there("b")], "b"),
        (urgent("4"), [there("a", 5), there("b")], "a b"),
        (urgent("3"), [there("a", 5, "1"), there("b", 1, "3")], "b"),
        # The small ones are spared first as they matter more, then the big one cannot be.
        (urgent("1"), [there("a", 5, "1"), there("b", 4, "1"), there("c", 3, "2")], "c"),
        (urgent(), [there("a", 100), there("b", 99)], "b"),
        (urgent(), [there("a").deleted(), there("b", 5)], ""),
    ],
)
def test_as_many_as_possible_are_spared_the_most_important_first(
    pod: PodBuilder, pods: list[PodBuilder], expected: str
) -> None:
    driver = after(pod, node(), *pods)
    assert victims(driver.decisions) == expected
    assert driver.record(urgent().obj()).nominated == "n1"


@pytest.mark.parametrize(
    ("pods", "expected"),
    [
        # The highest priority of the victims is lowest.
        ([there("a", 5, "4"), there("b", 4, "4", "n2")], "b"),
        # The sum of priorities is lowest, even of negative ones.
        ([there("a", 5), there("a2", 5), there("b", 5, "2", "n2"), there("b2", 4, "2", "n2")], "b b2"),
        ([there("a", -5), there("a2", -5), there("b", -5, "4", "n2")], "b"),
        # The most important victim started last.
        ([there("a", 5, "4", start=1), there("b", 5, "4", "n2", start=2)], "b"),
        # The first node.
        ([there("a", 5, "4"), there("b", 5, "4", "n2")], "a"),
    ],
)
def test_the_node_whose_victims_are_missed_least(pods: list[PodBuilder], expected: str) -> None:
    driver = after(urgent("4"), node(), node("n2"), *pods)
    assert victims(driver.decisions) == expected


@pytest.mark.parametrize(
    ("budgets", "expected"),
    [
        ([], "a"),
        ([make_budget("x", {"app": "a"}, 0)], "b"),
        ([make_budget("x", {"app": "a"}, 1)], "a"),
        ([make_budget("x", {"app": "a"}, 0, namespace="other")], "a"),
        ([make_budget("x", {"app": "a"}, 0, disrupted=["a"])], "a"),
        ([make_budget("x", {}, 0)], "a"),
        ([make_budget("x", {"app": "a"}, 0), make_budget("y", {"app": "b"}, 0)], "a"),
        # Both fields make no valid budget; what its status allows counts all the same.
        ([make_budget("x", {"app": "a"}, 0, minAvailable=1, maxUnavailable=1)], "b"),
        (
            [
                make_budget(
                    "x", {}, 0, selector={"matchExpressions": [{"key": "app", "operator": "Like"}]}
                )
            ],
            "a",
        ),
    ],
)
def test_a_node_where_no_budget_breaks_is_preferred(budgets: list[Object], expected: str) -> None:
    pods = (there("a", 1, "4"), there("b", 50, "4", "n2"))
    assert victims(after(urgent("4"), node(), node("n2"), *pods, *budgets).decisions) == expected


@pytest.mark.parametrize(
    ("guarded", "expected"),
    [
        ("", "p0"),
        ("0", "p1"),
        # The search for candidates goes on until there is one where no budget breaks,
        ("01", "p2"),
        ("0123", "p4"),
        # or no node is left.
        ("01234", "p0"),
    ],
)
def test_enough_candidates_are_enough_only_if_one_breaks_no_budget(guarded: str, expected: str) -> None:
    config = document([SETUP])
    few = {"minCandidateNodesAbsolute": 2, "minCandidateNodesPercentage": 0}
    config["profiles"][0]["pluginConfig"].append({"name": "DefaultPreemption", "args": few})
    driver = Driver(config=config).add(make_budget("x", {"guarded": "yes"}, 0))
    for i in range(5):
        pod = there(f"p{i}", cpu="4", on=f"n{i}")
        driver.add(node(f"n{i}"), pod.label("guarded", "yes" if str(i) in guarded else "no").obj())
    for name in ("urgent", "urgent2"):
        driver.add(make_pod(name).cpu("4").priority(100).obj())
    assert victims(driver.round()).split()[0] == expected


@pytest.mark.parametrize(
    ("pod", "objects", "setup"),
    [
        (urgent(), (), SETUP),
        # A plugin cannot make sense of the pod.
        (urgent().spread("zone", labelSelector={"matchLabels": {"a": "b c"}}), (node(),), SETUP),
        # Nobody would clear a node for it.
        (urgent("8"), (node(),), Setup()),
    ],
)
def test_a_pod_that_fails_before_nodes_are_looked_at_for_victims_is_nominated_no_more(
    pod: PodBuilder, objects: tuple[Object, ...], setup: Setup
) -> None:
    driver = Driver((setup,)).add(*objects, made := pod.nominated("n1").obj())
    assert [d.node for d in driver.round() if isinstance(d, Nominate)] == [""]
    assert driver.record(made).nominated == ""


def test_pods_whose_budget_would_break_are_spared_first() -> None:
    pods = (there("a", 1), there("b", 50))
    assert victims(after(urgent(), node(), *pods).decisions) == "a"
    budget = make_budget("x", {"app": "a"}, 0)
    assert victims(after(urgent(), node(), *pods, budget).decisions) == "b"


@pytest.mark.parametrize(
    ("pod", "objects", "expected"),
    [
        (urgent("9"), [node(), there("a")], f"1 {USELESS}."),
        (urgent(), [node(), there("a", 100, "4")], f"1 {NO_VICTIMS}."),
        (urgent("4"), [node(), there("a", 100), there("b")], "1 Insufficient cpu."),
        (
            urgent("4"),
            [
                node(),
                node("n2"),
                node("n3"),
                there("a", 100),
                there("b", 200, "1", "n2"),
                there("x", 3, "1", "n3"),
                there("y", 100, "1", "n3"),
            ],
            f"1 Insufficient cpu, 2 {NO_VICTIMS}.",
        ),
        (
            urgent().node_selector({"no": "such"}),
            [node(), node("n2"), there("a")],
            f"2 {USELESS}.",
        ),
        (
            urgent().pod_affinity("kubernetes.io/hostname", {"app": "none"}),
            [node(), there("a")],
            f"1 {USELESS}.",
        ),
    ],
)
def test_why_it_does_not_help(
    pod: PodBuilder, objects: list[Object | PodBuilder], expected: str
) -> None:
    driver = after(pod, *objects)
    nodes = driver.scheduler.cluster.nodes.count
    _, words, told = message(driver).partition("preemption: ")
    assert words and told == f"0/{nodes} nodes are available: {expected}"
    assert victims(driver.decisions) == ""


def test_the_whole_sentence() -> None:
    objects = (
        node(),
        make_node("n2").allocatable(cpu="4").taint("x").obj(),
        make_node("n3").allocatable(cpu="1").obj(),
        there("a", 100, "4"),
    )
    assert message(after(urgent(), *objects)) == (
        "0/3 nodes are available: 1 node(s) had untolerated taint(s), 2 Insufficient cpu. preemption: "
        f"0/3 nodes are available: 1 {NO_VICTIMS}, 2 {USELESS}."
    )


def test_a_pod_that_never_preempts() -> None:
    driver = after(urgent().preemption_policy("Never"), node(), there("a", 0, "4"))
    assert message(driver) == (
        "0/1 nodes are available: 1 Insufficient cpu. "
        "preemption: not eligible due to preemptionPolicy=Never."
    )
    assert victims(driver.decisions) == ""


@pytest.mark.parametrize(
    ("pod", "pods", "expected"),
    [
        (urgent().pod_anti_affinity("kubernetes.io/hostname", {"app": "a"}), [there("a")], "a"),
        (
            urgent().label("app", "u"),
            [there("a").pod_anti_affinity("kubernetes.io/hostname", {"app": "u"}), there("b", cpu="1")],
            "a",
        ),
        (urgent().host_port(80), [there("a").host_port(80), there("b", cpu="1")], "a"),
        (
            urgent().label("app", "a").spread("kubernetes.io/hostname", 1, {"app": "a"}, minDomains=2),
            [there("a", cpu="1"), there("b", cpu="1")],
            "a",
        ),
        # Affinity to a pod that would have to go is of no use.
        (urgent("4").pod_affinity("kubernetes.io/hostname", {"app": "a"}), [there("a")], ""),
    ],
)
def test_capacity_is_not_all_that_can_be_made(
    pod: PodBuilder, pods: list[PodBuilder], expected: str
) -> None:
    assert victims(after(pod, node(), *pods).decisions) == expected


def leaving(pod: PodBuilder) -> PodBuilder:
    return pod.deleted().condition("DisruptionTarget", "True", "PreemptionByScheduler")


def test_it_waits_for_its_victims_and_then_goes_where_they_were() -> None:
    driver = after(urgent(), node(), node("n2"), there("a", 0, "4"), there("b", 50, "4", "n2"))
    assert victims(driver.decisions) == "a"
    driver.update(leaving(there("a", 0, "4")).obj(), urgent().nominated("n1").label("x", "y").obj())
    waiting = driver.round(10.0)
    assert victims(waiting) == ""
    assert not any(isinstance(d, Nominate) for d in waiting)
    assert message(driver) == (
        "0/2 nodes are available: 2 Insufficient cpu. "
        "preemption: not eligible due to a terminating pod on the nominated node."
    )
    driver.delete(there("a", 0, "4").obj(), there("b", 50, "4", "n2").obj())
    assert [d.node for d in driver.round(20.0) if isinstance(d, Bind)] == ["n1"]


def test_a_pod_deleted_for_another_reason_is_not_waited_for() -> None:
    gone = there("a", 0, "4").deleted()
    driver = after(urgent("4").nominated("n1"), node(), node("n2"), gone, there("b", 0, "4", "n2"))
    assert "not eligible" not in message(driver)


def test_a_nomination_that_cannot_work_out_is_cleared() -> None:
    driver = after(urgent("4").nominated("n1"), node(), there("a", 100, "4"))
    assert [d.node for d in driver.decisions if isinstance(d, Nominate)] == [""]
    assert driver.record(urgent().obj()).nominated == ""


def test_a_less_important_pod_loses_its_nomination() -> None:
    rival = make_pod("rival").cpu("2").priority(50)
    driver = after(rival, node(), there("a"), there("b"))
    assert driver.record(rival.obj()).nominated == "n1"
    driver.add(urgent("4").obj())
    decisions = driver.round(1.0)
    nominated = [(d.pod.name, d.node) for d in decisions if isinstance(d, Nominate)]
    assert nominated[:2] == [("rival", ""), ("urgent", "n1")]


def test_a_less_important_pod_may_hope_on_where_nobody_else_has_to_go() -> None:
    rival = make_pod("rival").cpu("4").priority(50)
    driver = after(rival, node(), there("a", cpu="4"))
    driver.update(leaving(there("a", cpu="4")).obj()).add(urgent().obj())
    decisions = driver.round(1.0)
    assert [(d.pod.name, d.node) for d in decisions if isinstance(d, Nominate)] == [("urgent", "n1")]
    assert victims(decisions) == ""
    assert driver.record(rival.obj()).nominated == "n1"


def test_capacity_being_made_is_not_taken_by_less_or_equally_important_pods() -> None:
    driver = after(urgent("4"), node(), there("a", 0, "2"), there("b", 0, "2"))
    driver.delete(there("a").obj())
    for name, priority in (("less", 5), ("equal", 100)):
        driver.add(make_pod(name).cpu("2").priority(priority).preemption_policy("Never").obj())
    assert driver.binds(1.0) == {}
    driver.add(make_pod("more").cpu("2").priority(101).obj())
    assert driver.binds(2.0) == {"more": "n1"}


def test_reasons_count_the_pods_a_node_is_being_cleared_for() -> None:
    """kube-scheduler gives the reasons that stand against a node with those pods already there."""
    full = there("full", 200, "4")
    rival = make_pod("rival").memory("8Gi").cpu("1").priority(100).nominated("n1")
    driver = Driver((SETUP,)).add(node(), full.obj(), rival.obj(), urgent().memory("1Gi").obj())
    assert driver.answer(urgent().obj()).message == (
        "0/1 nodes are available: 1 Insufficient cpu, 1 Insufficient memory."
    )


def second(cpu: str = "2") -> PodBuilder:
    """Of the same class as the urgent pod."""
    return make_pod("second").cpu(cpu).priority(100)


def test_when_a_pod_began_to_run_counts_for_the_next_of_the_same_class_too() -> None:
    pods = [there("a", on="n1", cpu="4", start=3), there("b", on="n2", cpu="4", start=2)]
    driver = after(urgent("4"), node("n1"), node("n2"), node("n3"), *pods, there("c", 9, "4", "n3"))
    assert victims(driver.decisions) == "a"  # the youngest
    driver.update(there("b", on="n2", cpu="4", start=4).obj(), there("c", 0, "4", "n3", 3).obj())
    driver.decisions.clear()
    driver.add(second("4").obj()).round()
    assert victims(driver.decisions) == "b"


def test_a_pod_tried_again_before_its_victims_are_seen_to_leave_waits_for_them() -> None:
    driver = after(urgent("4"), node(), there("a", cpu="4"))
    assert victims(driver.decisions) == "a"
    driver.add(make_node("n2").allocatable(cpu="1", memory="8Gi").obj()).at(20.0).round()
    assert victims(driver.decisions) == "a"
    assert message(driver).endswith("not eligible due to a terminating pod on the nominated node.")


def test_a_pod_that_takes_the_place_cleared_for_it_wakes_nobody() -> None:
    driver = after(urgent("4"), node(), there("a", cpu="4"))
    driver.add(make_pod("waiting").cpu("3").priority(100).obj()).round()
    tries = driver.record(make_pod("waiting").obj()).attempts
    driver.delete(there("a", cpu="4").obj()).at(20.0).round()
    assert driver.record(urgent().obj()).row >= 0
    woken = driver.record(make_pod("waiting").obj()).attempts - tries
    assert woken == 1  # by the victim's departure


@pytest.mark.parametrize("preemptors", [1, 3, 7])
def test_pods_of_one_class_each_clear_a_node_of_their_own(preemptors: int) -> None:
    nodes = [node(f"n{i}") for i in range(6)]
    pods = [there(f"v{i}{j}", on=f"n{i}", start=1 + i) for i in range(6) for j in range(2)]
    driver = Driver((SETUP,)).add(*nodes, *(p.obj() for p in pods))
    waiting = [make_pod(f"p{i}").cpu("3").priority(100).obj() for i in range(preemptors)]
    driver.add(*waiting).round()
    cleared = [d.node for d in driver.decisions if isinstance(d, Nominate)]
    assert cleared == ["n5", "n4", "n3", "n2", "n1", "n0"][:preemptors]
    last = driver.record(waiting[-1])
    if preemptors > 6:
        assert last.condition_message == (
            "0/6 nodes are available: 6 Insufficient cpu. preemption: 0/6 nodes are available: "
            "6 Insufficient cpu."
        )


def test_asking_what_preemption_would_do_does_nothing() -> None:
    driver = Driver((SETUP,)).add(node(), there("low", cpu="4").obj())
    driver.round()
    driver.add(make_pod("rival").cpu("1").priority(50).status(nominatedNodeName="n1").obj())
    driver.feed()
    pending = urgent("4").obj()
    driver.add(pending)
    scheduler = driver.scheduler
    cluster, profile, pod = scheduler.cluster, scheduler.profiles[0], driver.record(pending)
    rival = next(each for each in cluster.pods.values() if each.name == "rival")
    low = next(each for each in cluster.pods.values() if each.name == "low")
    before = cluster.changes
    proposed = [
        scheduler.preemption.post_filter(profile, pod, scheduler.columns.column(profile, pod.cls))
        for _ in range(2)
    ]
    assert proposed[0] == proposed[1]
    assert victims(list(proposed[0].decisions)) == "low"
    assert (low.being_preempted, rival.nominated, pod.nominated) == (False, "n1", "")
    assert cluster.changes == before and cluster.take_reports() == []
    assert victims(driver.round()) == "low"
    assert (low.being_preempted, rival.nominated, pod.nominated) == (True, "", "n1")
