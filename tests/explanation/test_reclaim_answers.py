"""Random queues: `explain` says that a pod or a gang reclaims capacity if and only if the next round
evicts pods for it, and names these pods.
"""

from __future__ import annotations

import copy
import re
from typing import Any, NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from explanation.test_situations import (
    QUEUE,
    as_they_are,
    budget,
    changed,
    full,
    in_default,
    snapshot_with,
    world_of,
)
from harness.objects import Raw, node, pod, pod_group, queue
from harness.world import START, World
from holdfast.explanation.explainer import explain
from holdfast.local.setup import SchedulerFactory
from holdfast.scheduler.cluster.decisions import Evict, Preempt
from holdfast.scheduler.framework.config import API_VERSION, KIND

_CPUS = st.sampled_from(["1", "2", "3"])
_RECLAIMS = re.compile(r"[Ii]t can reclaim (.+) on [^)]+, and will in the next round")
_NAMES = re.compile(r"default/([a-z0-9-]+)")


@st.composite
def queues(draw: st.DrawFn) -> list[Raw]:
    found = []
    for name in "abc"[: draw(st.integers(2, 3))]:
        spec: Raw = {"weight": draw(st.integers(1, 3))}
        if draw(st.integers(0, 4)) == 0:
            spec["reclaimable"] = False
        if draw(st.integers(0, 4)) == 0:
            spec["guarantee"] = {"resource": {"cpu": draw(_CPUS)}}
        if draw(st.integers(0, 4)) == 0:
            spec["capability"] = {"cpu": draw(st.sampled_from(["2", "4", "6"]))}
        if draw(st.integers(0, 4)) == 0:
            spec["deserved"] = {"cpu": draw(st.sampled_from(["2", "4", "6"]))}
        if name != "a" and draw(st.integers(0, 3)) == 0:
            spec["parent"] = "a"
        if draw(st.integers(0, 4)) == 0:
            spec["priority"] = draw(st.integers(1, 5))
        found.append(queue(name, **spec))
    return found


@st.composite
def clusters(draw: st.DrawFn) -> list[Raw]:
    cluster = [node(f"n{i}", draw(st.sampled_from([3, 4, 6])), uid=f"n{i}") for i in range(2)]
    known = draw(queues())
    names = [each["metadata"]["name"] for each in known]
    left = {each["metadata"]["name"]: int(each["status"]["allocatable"]["cpu"]) for each in cluster}
    objects = [*cluster, *known]

    def spec() -> Raw:
        found: Raw = {"annotations": {QUEUE: draw(st.sampled_from(names))}}
        if draw(st.integers(0, 3)) == 0:
            found["priority"] = draw(st.integers(1, 3)) * 10
        if draw(st.integers(0, 7)) == 0:
            found["preemptionPolicy"] = "Never"
        return found

    running = pod_group("r", 2)
    running["spec"]["queue"] = draw(st.sampled_from(names))
    objects.append(in_default(running))
    for number in range(draw(st.integers(1, 6))):
        on, cpu = draw(st.sampled_from(["n0", "n1"])), draw(_CPUS)
        if int(cpu) <= left[on]:
            left[on] -= int(cpu)
            member: Raw = {"group": "r"} if draw(st.integers(0, 2)) == 0 else spec()
            objects.append(full(f"x{number}", cpu, on, uid=f"x{number}", **member))
    for on, rest in left.items():
        if rest:
            objects.append(full(f"rest-{on}", str(rest), on, **spec()))
    pending = pod_group("g", draw(st.integers(1, 2)))
    pending["spec"]["queue"] = draw(st.sampled_from(names))
    objects.append(in_default(pending))
    for name in draw(st.permutations(["p", "q", "g-0", "g-1"])):
        own = {"group": "g"} if name.startswith("g") else spec()
        objects.append(pod(name, draw(_CPUS), uid=name, **own))
    for each in objects:
        if each["kind"] == "Pod":
            each["metadata"] |= {"namespace": "default", "uid": each["metadata"]["name"]}
    return objects


def next_round(objects: list[Raw]) -> tuple[dict[str, set[str]], set[str]]:
    """Which pods are evicted for which pod or group, and which are preempted."""
    evicted: dict[str, set[str]] = {}
    preempted: set[str] = set()
    for decision in snapshot_with(objects, START).scheduler.round(START):
        if isinstance(decision, Evict):
            reclaimer = decision.message.rpartition("/")[2]
            evicted.setdefault(reclaimer, set()).add(decision.pod.name)
        elif isinstance(decision, Preempt):
            preempted.add(decision.pod.name)
    return evicted, preempted


@settings(max_examples=100)
@given(clusters())
def test_explain_agrees_with_the_next_round(objects: list[Raw]) -> None:
    evicted, preempted = next_round(objects)
    if preempted:
        return  # then capacity is reclaimed in the round after that
    snapshot = snapshot_with(objects, START)
    for raw in objects:
        name = raw["metadata"]["name"]
        if (raw["kind"], name) not in (("Pod", "p"), ("Pod", "q"), ("PodGroup", "g")):
            continue
        report = explain(snapshot, raw)
        found = _RECLAIMS.search(report.summary)
        told = set(_NAMES.findall(found[1])) if found is not None else set()
        gone = evicted.get(name, set())
        if found is not None and (more := re.search(r"and (\d+) more\)", found[1])) is not None:
            assert told < gone
            assert len(told) + int(more[1]) == len(gone)
        else:
            assert told == gone, (name, report.summary, report.details)
        assert found is None or not report.advice


# Situations


def test_what_it_reclaims_once_others_have_is_not_told_of_the_next_round() -> None:
    """First the gang reclaims, since its queue comes first; the pod does when those have gone."""
    owned: Raw = {"guarantee": {"resource": {"cpu": "1"}}, "deserved": {"cpu": "2"}}
    fixed: Raw = {"reclaimable": False, "deserved": {"cpu": "2"}}
    objects = [
        *(node(name, cpu="4") for name in ("n0", "n1")),
        queue("a", priority=1, **fixed),
        queue("b", **owned),
        queue("c", **fixed),
        gang("r", 2, "b"),
        *(full(name, cpu, "n0", group="r") for name, cpu in (("x0", "1"), ("x1", "3"))),
        full("x3", "1", "n1", annotations=of("a")),
        full("rest", "3", "n1", annotations=of("b")),
        gang("g", 1, "a"),
        *(pod(name, cpu, group="g") for name, cpu in (("g-1", "2"), ("g-0", "3"))),
        (q := pod("q", "1", annotations=of("c"))),
        pod("p", "1", annotations=of("a"), preemptionPolicy="Never"),
    ]
    for each in objects:
        if each["kind"] == "Pod":
            each["metadata"] |= {"namespace": "default", "uid": each["metadata"]["name"]}
    assert next_round(objects)[0] == {"g": {"rest"}}
    assert "can reclaim" not in explain(snapshot_with(objects, START), q).summary


class Row(NamedTuple):
    objects: list[Raw]
    says: list[str]
    """Texts that must be in the summary or the details."""
    evicted: list[str]
    """The pods that the scheduler evicts."""
    kind: str = "Pod"
    name: str = "p"
    protected: frozenset[str] = frozenset()
    """The pods that a disruption budget protects."""


def of(name: str) -> Raw:
    return {QUEUE: name}


def x(name: str, cpu: str, queue_name: str = "a", **more: Any) -> Raw:
    return full(name, cpu, "n1", annotations=of(queue_name), **more)


def p(cpu: str = "4", **more: Any) -> Raw:
    return pod("p", cpu, annotations=of("b"), **more)


def gang(name: str, min_member: int, queue_name: str) -> Raw:
    return in_default(pod_group(name, min_member, queue=queue_name))


N1 = node("n1", cpu="8")
A, B = queue("a"), queue("b")

SITUATIONS = {
    "only what its queue deserves": Row(
        [N1, A, queue("b", weight=3), x("xa", "4"), x("xb", "4", "b"), p("2")],
        ["It can reclaim 4 cpu from queue a (default/xa) on n1, and will in the next round."],
        ["xa"],
    ),
    "the youngest of the over-allocated queue": Row(
        [N1, A, B, x("x", "4"), x("y", "4"), p()],
        ["It can reclaim 4 cpu from queue a (default/y) on n1, and will in the next round."],
        ["y"],
    ),
    "a gang reclaims": Row(
        [N1, A, B, gang("g", 2, "b"), x("x", "4"), x("y", "4")]
        + [pod(f"g-{i}", "2", group="g") for i in range(2)],
        ["None fits now; it can reclaim 4 cpu from queue a (default/y) on n1, and will in the next"],
        ["y"],
        "PodGroup",
        "g",
    ),
    "a member of a gang that reclaims": Row(
        [N1, A, B, gang("g", 2, "b"), x("x", "4"), x("y", "4")]
        + [pod(f"g-{i}", "2", group="g") for i in range(2)],
        ["PodGroup default/g: it can reclaim 4 cpu from queue a (default/y) on n1, and will in the"],
        ["y"],
        "Pod",
        "g-0",
    ),
    "a member that its gang does not need": Row(
        [
            *(N1, A, queue("b", weight=3), gang("g", 1, "b"), x("x", "4"), x("y", "2")),
            *(full("g-0", "2", "n1", group="g"), pod("p", "2", group="g")),
        ],
        [
            "nothing is reclaimed for it from queue a, which has more cpu than deserved: PodGroup "
            "default/g has the members that it needs (1), and for further ones nothing is reclaimed"
        ],
        [],
    ),
    "a gang that would be too small is evicted as a whole": Row(
        [N1, A, B, gang("v", 2, "a")]
        + [full(f"v-{i}", "4", "n1", group="v") for i in range(2)]
        + [p("2")],
        ["It can reclaim 8 cpu from queue a (default/v-1, default/v-0) on n1, and will in the next"],
        ["v-1", "v-0"],
    ),
    "a queue below another one": Row(
        [N1, queue("dept"), queue("a", parent="dept"), B, x("x", "8"), p()],
        ["It can reclaim 8 cpu from queue a (default/x) on n1, and will in the next round."],
        ["x"],
    ),
    "two reclaimers": Row(
        [
            *(N1, A, B, queue("c"), *(x(f"x{i}", "2") for i in range(4))),
            *(p("2"), pod("q", "2", annotations=of("c"))),
        ],
        ["It can reclaim 2 cpu from queue a (default/x3) on n1, and will in the next round."],
        ["x3", "x2"],
    ),
    "the deserved amount of the spec": Row(
        [N1, A, queue("b", deserved={"cpu": "6"}), x("x", "4"), x("y", "4"), p("6")],
        ["It can reclaim 8 cpu from queue a (default/y, default/x) on n1, and will in the next round."],
        ["y", "x"],
    ),
    "the next pod if a budget protects the first": Row(
        [N1, A, B, x("x", "4"), x("y", "4", app="db"), p(), budget("db")],
        ["It can reclaim 4 cpu from queue a (default/x) on n1, and will in the next round."],
        ["x"],
        protected=frozenset({"y"}),
    ),
    "all are protected by a budget": Row(
        [N1, A, B, x("x", "8", app="db"), p(), budget("db")],
        [
            "it would reclaim 8 cpu from queue a (default/x) on n1",
            "protects default/x: it reclaims nothing or all it needs",
        ],
        [],
        protected=frozenset({"x"}),
    ),
    "all of several are protected by a budget, each of which is enough": Row(
        [N1, A, B, *(x(f"x{i}", "2", app="db") for i in range(4)), p("2"), budget("db")],
        [
            "it would reclaim 2 cpu from queue a (default/x3) on n1",
            "protects default/x3: it reclaims nothing or all it needs",
        ],
        [],
        protected=frozenset({"x0", "x1", "x2", "x3"}),
    ),
    "several at once are protected by a budget": Row(
        [N1, A, B, *(x(f"x{i}", "2", app="db") for i in range(4)), p(), budget("db")],
        ["it would reclaim 4 cpu from queue a (default/x3, default/x2) on n1"],
        [],
        protected=frozenset({"x0", "x1", "x2", "x3"}),
    ),
    "a queue that is not reclaimable": Row(
        [N1, queue("a", reclaimable=False), B, x("x", "4"), x("y", "4"), p()],
        [
            "nothing is reclaimed from queue a, of which reclaimable is false: otherwise it could "
            "reclaim 4 cpu from queue a (default/y) on n1"
        ],
        [],
    ),
    "its preemptionPolicy": Row(
        [N1, A, B, x("x", "8"), p(preemptionPolicy="Never")],
        ["its preemptionPolicy is Never: otherwise it could reclaim 8 cpu from queue a (default/x)"],
        [],
    ),
    "its queue has what it deserves": Row(
        [N1, queue("a", weight=3), B, x("x", "7"), x("xb", "1", "b"), p("2")],
        ["queue b deserves 2 cpu and uses 1: it reclaims nothing for a request of 2"],
        [],
    ),
    "another pod of its queue reclaims first": Row(
        [
            N1,
            A,
            B,
            x("x", "4"),
            x("y", "4"),
            p("3"),
            pod("first", "3", annotations=of("b"), priority=5),
        ],
        ["default/first of its queue is tried before it and reclaims what can be reclaimed"],
        ["y"],
    ),
    "its own queue has a pod of lower priority": Row(
        [N1, A, B, x("x", "4"), x("xb", "4", "b"), p("4", priority=10)],
        ["it can preempt default/xb of lower priority on n1, and will if it is tried"],
        [],
    ),
    "its full queue has a pod of lower priority": Row(
        [N1, queue("b", capability={"cpu": "4"}), x("xb", "4", "b"), p("2", priority=10)],
        ["It can preempt default/xb of lower priority in its queue, and will if it is tried."],
        [],
    ),
}


def test_further_members_of_a_gang_in_the_answer_about_their_queue() -> None:
    row = SITUATIONS["a member that its gang does not need"]
    report = as_they_are("Queue", "b", *row.objects)
    assert f"default/p: {row.says[0]}" in report.details


FURTHER: dict[str, tuple[list[Raw], Raw]] = {
    "its queue has what it deserves": (
        [queue("a", deserved={"cpu": "5"}), queue("b", deserved={"cpu": "3"})],
        {},
    ),
    "nothing is reclaimed from the other queue": ([queue("a", reclaimable=False), B], {}),
    "no queue has more than it deserves": ([queue("a", deserved={"cpu": "6"}), B], {}),
    "it never reclaims": ([A, queue("b", weight=3)], {"preemptionPolicy": "Never"}),
}


@pytest.mark.parametrize("name", FURTHER)
def test_reclaim_is_not_told_of_further_members_for_which_there_is_nothing(name: str) -> None:
    queues, more = FURTHER[name]
    running = [x("x", "4"), x("y", "2"), full("g-0", "2", "n1", group="g")]
    member = pod("g-1", "2", group="g", **more)
    objects = [N1, *queues, gang("g", 1, "b"), *running, member]
    for each in objects:
        if each["kind"] == "Pod":
            each["metadata"] |= {"namespace": "default", "uid": each["metadata"]["name"]}
    report = explain(snapshot_with(objects, START), member)
    assert report.summary.startswith("No suitable node")
    assert not any("further ones" in each for each in report.details)


@pytest.mark.parametrize("name", SITUATIONS)
def test_situation(name: str) -> None:
    row = SITUATIONS[name]
    report = as_they_are(row.kind, row.name, *row.objects)
    said = "\n".join([report.summary, *report.details])
    for text in row.says:
        assert text in said
    world = World()
    world.protected = set(row.protected)
    world.put(*copy.deepcopy(row.objects)).wait(60)
    assert world.evicted == row.evicted
    starts = re.search(r"can (reclaim|preempt)", said) is not None
    assert bool(world.node_of(row.name if row.kind == "Pod" else "g-0")) == starts
    assert not (starts and report.advice), report.advice
    for advice in report.advice:
        assert world_of(changed(row.objects, advice.change)).node_of("p"), advice.text


def test_reclaim_is_not_configured() -> None:
    actions = [{"name": name} for name in ("allocate", "preempt")]
    factory = SchedulerFactory.of({"apiVersion": API_VERSION, "kind": KIND, "actions": actions})
    report = as_they_are("Pod", "p", N1, A, B, x("x", "8"), p(), factory=factory)
    said = "the action reclaim is not configured: with it, it could reclaim 8 cpu from queue a"
    assert f"{said} (default/x) on n1" in report.details
    assert [each.change["actions"] for each in report.advice] == [["EndPods"]]


def held_budget(healthy: int = 2) -> Raw:
    """A budget as its controller writes it: as many pods must be healthy as are."""
    raw = budget("db")
    raw["spec"]["minAvailable"] = healthy
    raw["status"] = {"disruptionsAllowed": 0, "currentHealthy": healthy, "desiredHealthy": healthy}
    raw["status"] |= {"expectedPods": healthy, "observedGeneration": 1}
    return raw


@pytest.mark.parametrize("nominated", [{}, {"nominatedNodeName": "n1"}], ids=["before", "nominated"])
def test_a_budget_that_protects_the_pods_of_the_nominated_node(nominated: Raw) -> None:
    reclaimer = p()
    reclaimer["status"] = {"phase": "Pending", **nominated}
    victims = [x("x", "4", app="db"), x("y", "4", app="db")]
    for each in victims:
        each["status"]["conditions"] = [{"type": "Ready", "status": "True"}]
    objects = [N1, A, B, *victims, held_budget(), reclaimer]
    report = as_they_are("Pod", "p", *objects)
    assert "it waits until pods there have terminated" not in report.summary
    assert report.details[:2] == [
        "it would reclaim 4 cpu from queue a (default/y) on n1",
        "PodDisruptionBudget default/db allows 0 more evictions, and protects default/y: "
        "it reclaims nothing or all it needs",
    ]
    (advice,) = report.advice
    assert advice.text == (
        "lower minAvailable of PodDisruptionBudget default/db from 2 to 1; then it reclaims 4 cpu from "
        "queue a (default/y) on n1"
    )
    world = world_of(changed(objects, advice.change))
    assert world.node_of("p") == "n1"
