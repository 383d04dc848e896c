"""Who makes room for whom: inside a queue by importance, across queues by what is deserved."""

from typing import Any

import pytest

from harness.builders import make_node, make_pod, make_pod_group, make_queue
from harness.driver import Driver
from harness.objects import Raw, gang, in_queue, node, pod, pod_group, queue
from harness.scenarios import Played, actions, play, step
from holdfast.api.names import QUEUE_NAME_ANNOTATION
from holdfast.scheduler.cluster.decisions import Bind, Nominate
from reference.setup import Setup

PREEMPT = actions("allocate", "preempt")
RECLAIM = actions("allocate", "reclaim")
SPARED = {"volcano.sh/preemptable": "false"}
APP = {"app": "a"}
SPREAD = {
    "maxSkew": 5,
    "topologyKey": "zone",
    "whenUnsatisfiable": "DoNotSchedule",
    "labelSelector": {"matchLabels": APP},
}


def victims(played: Played, event: str = "Preempted") -> list[str]:
    return [entry.object.rpartition("/")[2] for entry in played.result.timeline if entry.event == event]


def low(name: str, cpu: int = 1, queue: str = "", **more: Any) -> Raw:
    given = {**(in_queue(queue) if queue else {}), **more.pop("annotations", {})}
    return pod(name, cpu, annotations=given, **more)


# Preempt


def test_a_gang_preempts_if_all_of_it_becomes_ready() -> None:
    lows = [low(f"low-{i}") for i in range(4)]
    high = [pod_group("g", 3), *gang("g", 3, at="10s", priority=10)]
    played = play(node("n1", 2), node("n2", 2), lows, high, config=PREEMPT)
    assert len(victims(played)) == 3
    assert played.times("g-0", "g-1", "g-2") == [10, 10, 10]


@pytest.mark.parametrize(
    ("members", "cpu", "why"),
    [(5, 1, "too many"), (2, 3, "too large"), (3, 2, "one would have no place")],
)
def test_otherwise_nobody_has_to_go(members: int, cpu: int, why: str) -> None:
    lows = [low(f"low-{i}") for i in range(4)]
    high = [pod_group("g", members), *gang("g", members, cpu, at="10s", priority=10)]
    played = play(node("n1", 2), node("n2", 2), lows, high, config=PREEMPT)
    assert victims(played) == [], why


def test_without_the_action_nobody_has_to_go() -> None:
    high = [pod_group("g", 1), *gang("g", 1, at="10s", priority=10), low("one", at="10s", priority=10)]
    played = play(node("n1", 1), low("low"), high, config=actions("allocate", "reclaim"))
    assert victims(played) == []


def test_the_capacity_is_kept_while_victims_stop() -> None:
    lows = [low(f"low-{i}", stops_in="20s") for i in range(2)]
    high = [pod_group("g", 2), *gang("g", 2, at="10s", priority=10)]
    other = low("other", at="15s", priority=5)
    played = play(node("n1", 2), lows, high, other, config=PREEMPT)
    assert played.times("g-0", "g-1", "other") == [30, 30, None]


def test_the_capacity_is_given_to_others_when_the_job_has_too_few_members_left() -> None:
    lows = [low(f"low-{i}", stops_in="20s") for i in range(2)]
    high = [pod_group("g", 2), *gang("g", 1, at="10s", priority=10)]
    lost = pod("lost", 1, group="g", at="10s", delete_at="15s", priority=10)
    other = low("other", 2, at="16s", priority=5)
    played = play(node("n1", 2), lows, high, lost, other, config=PREEMPT, until=60)
    assert played.times("g-0", "other") == [None, 30]
    assert not played.find("Pod", "g-0")["status"].get("nominatedNodeName")


def test_nominations_an_earlier_scheduler_left_behind_end_if_the_job_cannot_start() -> None:
    driver = Driver((Setup(preempts=True, extra=("Coscheduling",)),))
    nodes = [make_node(name).allocatable(cpu="2", memory="8Gi").obj() for name in ("n1", "n2")]
    there = make_pod("there").cpu("1").on("n1").priority(10).obj()
    jobs = [make_pod_group("g").min_member(2).obj()]
    members = [make_pod(f"g-{i}").cpu("2").priority(10).group("g") for i in (1, 2)]
    waiting = [each.nominated(f"n{i}").obj() for i, each in enumerate(members, 1)]
    small = make_pod("small").cpu("1").obj()
    driver.add(*nodes, there, *jobs, *waiting, small)
    decisions = driver.round()
    ended = [(d.pod.name, d.node) for d in decisions if isinstance(d, Nominate)]
    assert ended == [("g-1", ""), ("g-2", "")]
    assert [d.pod.name for d in decisions if isinstance(d, Bind)] == ["small"]


def test_nominations_end_too_where_it_is_plain_that_there_is_too_little_capacity() -> None:
    driver = Driver((Setup(preempts=True, extra=("Coscheduling",)),))
    driver.add(make_node("n1").allocatable(cpu="2", memory="8Gi").obj())
    driver.add(make_pod_group("g").min_member(3).obj())
    members = [make_pod(f"g-{i}").cpu("2").priority(10).group("g") for i in range(3)]
    driver.add(*(each.obj() for each in members))
    assert not driver.binds(0.0)
    driver.update(*(each.nominated("n1").obj() for each in members[1:]))
    driver.add(make_pod("small").cpu("1").obj())
    driver.add(make_node("n2").allocatable(cpu="1", memory="8Gi").taint("closed").obj())
    decisions = driver.round(20.0)
    ended = [(d.pod.name, d.node) for d in decisions if isinstance(d, Nominate)]
    assert ended == [("g-1", ""), ("g-2", "")]
    assert [d.pod.name for d in decisions if isinstance(d, Bind)] == ["small"]


def test_a_nomination_ends_if_the_queue_of_the_pod_is_closed() -> None:
    driver = Driver((Setup(preempts=True),))
    nodes = [make_node("n1").allocatable(cpu="2", memory="8Gi").obj()]
    closed = make_queue("closed").weight(1).status(state="Closed").obj()
    big = make_pod("big").cpu("2").priority(10).annotation(QUEUE_NAME_ANNOTATION, "closed")
    driver.add(*nodes, closed, big.nominated("n1").obj(), make_pod("small").cpu("1").obj())
    decisions = driver.round()
    assert [(d.pod.name, d.node) for d in decisions if isinstance(d, Nominate)] == [("big", "")]
    assert [d.pod.name for d in decisions if isinstance(d, Bind)] == ["small"]


@pytest.mark.parametrize(
    "mark",
    [{"annotations": SPARED}, {"labels": {"scheduling.koordinator.sh/disable-preemptible": "true"}}],
)
def test_who_must_not_be_preempted_is_not(mark: dict[str, Any]) -> None:
    given = [low("spared", **mark), low("plain")]
    high = [pod("high", 1, at="10s", priority=10), pod("higher", 1, at="11s", priority=20)]
    played = play(node("n1", 2), given, high, config=PREEMPT)
    assert victims(played) == ["plain", "high"]


def test_in_a_queue_only_those_of_the_queue_free_capacity() -> None:
    given = [queue("a"), queue("b"), low("in-b", queue="b"), low("in-a", queue="a")]
    high = low("high", queue="a", at="10s", priority=10)
    more = low("more", queue="a", at="20s", priority=10)
    played = play(node("n1", 2), given, high, more, config=PREEMPT)
    assert victims(played) == ["in-a"]
    assert played.times("high", "more") == [10, None]


def test_a_job_is_never_left_with_fewer_than_it_needs() -> None:
    """One member has to go, so all go; of a job with one to spare only that one goes."""
    nodes, high = [node("n1", 1), node("n2", 1)], low("high", at="10s", priority=9)
    tight = play(nodes, pod_group("g", 2), gang("g", 2), high, config=PREEMPT)
    assert sorted(victims(tight)) == ["g-0", "g-1"]
    loose = play(nodes, pod_group("g", 1), gang("g", 2), high, config=PREEMPT)
    assert len(victims(loose)) == 1


@pytest.mark.parametrize(
    ("policy", "least", "gone"),
    [
        ("", 2, ["g-2"]),
        ("", 3, ["g-1", "g-2"]),
        ("once-satisfied", 3, ["g-2"]),
        ("waiting-and-running", 2, ["g-1", "g-2"]),
    ],
)
def test_who_counts_when_a_job_loses_one(policy: str, least: int, gone: list[str]) -> None:
    """One of its three has done its work."""
    koord = "gang.scheduling.koordinator.sh/"
    own = {koord + "name": "g", koord + "min-available": str(least), koord + "match-policy": policy}
    job = [
        low("g-0", annotations=own, runs_for="5s"),
        *(low(f"g-{i}", annotations=own) for i in (1, 2)),
    ]
    high = low("high", cpu=2, at="10s", priority=9)
    assert sorted(victims(play(node("n1", 3), job, high, config=PREEMPT))) == gone


# Reclaim


def fill(of: str, count: int, **more: Any) -> list[Raw]:
    return [low(f"{of}-{i}", queue=of, **more) for i in range(count)]


def test_a_queue_gets_back_what_it_deserves_and_no_more() -> None:
    queues = [queue("a", 1), queue("b", 3)]
    played = play(node("n1", 8), queues, fill("a", 8), fill("b", 8, at="10s"), config=RECLAIM)
    assert len(victims(played, "Evicted")) == 6
    assert sum(name.startswith("b-") for name in played.bound()) == 6


@pytest.mark.parametrize(
    ("a", "b", "evicted"),
    [
        ({"deserved": {"cpu": "2"}}, {"deserved": {"cpu": "6"}}, 6),
        ({"reclaimable": False}, {}, 0),
        ({}, {"capability": {"cpu": "1"}}, 1),
        ({"guarantee": {"resource": {"cpu": "6"}}}, {}, 1),
    ],
)
def test_what_queues_say_is_minded(a: Raw, b: Raw, evicted: int) -> None:
    queues = [queue("a", **a), queue("b", **b)]
    played = play(node("n1", 8), queues, fill("a", 8), fill("b", 8, at="10s"), config=RECLAIM)
    assert len(victims(played, "Evicted")) == evicted


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ({"spec": {"unschedulable": True}}, {"spec": {"unschedulable": None}}),
        (
            {"spec": {"taints": [{"key": "k", "effect": "NoSchedule"}]}},
            {"spec": {"taints": None}},
        ),
        ({}, {"metadata": {"labels": {"disk": "ssd"}}}),
    ],
)
def test_capacity_is_reclaimed_once_a_full_node_becomes_eligible(before: Raw, after: Raw) -> None:
    queues = [queue("a"), queue("b")]
    select = {"nodeSelector": {"disk": "ssd"}} if not before else {}
    late = low("late", 2, queue="b", at="10s", **select)
    changes = [
        step(at, patch={"kind": "Node", "name": "n1", "merge": merge})
        for at, merge in (("5s", before), ("20s", after))
        if merge
    ]
    played = play(node("n1", 4), queues, low("large", 4, queue="a"), late, changes, config=RECLAIM)
    assert played.events("Pod/default/large", "Evicted") == [(20.0, "Evicted")]
    assert played.times("late") == [20]


def test_without_the_action_what_is_lent_stays_lent() -> None:
    queues = [queue("a"), queue("b")]
    played = play(node("n1", 4), queues, fill("a", 4), fill("b", 4, at="10s"), config=PREEMPT)
    assert victims(played, "Evicted") == []


def test_the_least_important_goes_first_and_the_spared_never() -> None:
    queues = [queue("a"), queue("b")]
    given = [
        low("dear", queue="a", priority=5),
        low("cheap", queue="a"),
        low("spared", queue="a", annotations=SPARED),
        low("dear-2", queue="a", priority=5),
    ]
    late = low("late", queue="b", at="10s")
    played = play(node("n1", 4), queues, given, late, config=RECLAIM)
    assert victims(played, "Evicted") == ["cheap"]
    assert played.times("late") == [10]


def test_another_pod_is_evicted_if_a_disruption_budget_protects_the_first() -> None:
    queues = [queue("a"), queue("b")]
    budget = {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": {"name": "a", "namespace": "default"},
        "spec": {"selector": {"matchLabels": APP}, "minAvailable": 1},
    }
    given = [low("x", 2, "a"), low("y", 2, "a", labels=APP)]
    late = low("late", 2, "b", at="10s")
    played = play(node("n1", 4), queues, given, budget, late, config=RECLAIM)
    assert victims(played, "Evicted") == ["x"]
    assert played.times("late") == [10]


@pytest.mark.parametrize("cpu", [2, 4], ids=["for one pod", "for a gang"])
@pytest.mark.parametrize(("budgets", "evictions"), [([3], 2), ([1], 0), (["100%", "100%"], 0)])
def test_nothing_is_evicted_unless_budgets_allow_all_of_it(
    budgets: list[int | str], evictions: int, cpu: int
) -> None:
    """Else one pod would be evicted again and again, as the one that replaces it takes its place."""
    made = [
        {
            "apiVersion": "policy/v1",
            "kind": "PodDisruptionBudget",
            "metadata": {"name": f"budget-{i}", "namespace": "default"},
            "spec": {"selector": {"matchLabels": APP}, "maxUnavailable": most},
        }
        for i, most in enumerate(budgets)
    ]
    given = [low(f"x{i}", 2, "a", labels=APP) for i in range(4)]
    wants = [pod_group("g", 4 // cpu, queue="b"), *gang("g", 4 // cpu, cpu, at="10s")]
    played = play(node("n1", 8), queue("a"), queue("b"), given, made, wants, config=RECLAIM)
    assert len(victims(played, "Evicted")) == evictions
    assert (played.times("g-0") == [10]) == bool(evictions)


def test_a_job_reclaims_once_the_budget_allows_it() -> None:
    budget = {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": {"name": "a", "namespace": "default"},
        "spec": {"selector": {"matchLabels": APP}, "maxUnavailable": 1},
    }
    given = [low(f"x{i}", 2, "a", labels=APP) for i in range(4)]
    wider = step(
        "60s",
        patch={"kind": "PodDisruptionBudget", "name": "a", "merge": {"spec": {"maxUnavailable": 2}}},
    )
    late = low("late", 4, "b", at="10s")
    played = play(node("n1", 8), queue("a"), queue("b"), given, budget, late, wider, config=RECLAIM)
    assert len(victims(played, "Evicted")) == 2
    assert played.times("late") == [60]


def test_a_job_reclaims_for_all_of_it_or_not_at_all() -> None:
    queues = [queue("a"), queue("b")]
    fits = [pod_group("g", 2, queue="b"), *gang("g", 2, at="10s")]
    played = play(node("n1", 4), queues, fill("a", 4), fits, config=RECLAIM)
    assert played.times("g-0", "g-1") == [10, 10]
    too_much = [pod_group("g", 3, queue="b"), *gang("g", 3, at="10s")]
    played = play(node("n1", 4), queues, fill("a", 4), too_much, config=RECLAIM)
    assert victims(played, "Evicted") == []


def test_of_a_job_all_goes_or_what_it_can_spare() -> None:
    queues = [queue("a"), queue("b")]
    job = [pod_group("g", 4, queue="a"), *gang("g", 4)]
    played = play(node("n1", 4), queues, job, fill("b", 1, at="10s"), config=RECLAIM)
    assert len(victims(played, "Evicted")) == 4


# What goes with a job


TASK = "volcano.sh/task-spec"


def test_a_job_that_loses_the_last_of_a_task_goes_as_a_whole() -> None:
    made = pod_group("g", 2, minTaskMember={"ps": 1, "worker": 1})
    ps = pod("ps", 1, group="g", annotations={TASK: "ps"})
    workers = [pod(f"w-{i}", 1, group="g", annotations={TASK: "worker"}, priority=5) for i in range(3)]
    played = play(node("n1", 4), made, ps, workers, pod("high", 1, at="5s", priority=10))
    assert sorted(victims(played)) == ["ps", "w-0", "w-1", "w-2"]


def test_a_job_that_can_spare_one_of_a_task_loses_no_more() -> None:
    made = pod_group("g", 2, minTaskMember={"worker": 1})
    workers = [pod(f"w-{i}", 1, group="g", annotations={TASK: "worker"}) for i in range(3)]
    played = play(node("n1", 3), made, workers, pod("high", 1, at="5s", priority=10))
    assert len(victims(played)) == 1


@pytest.mark.parametrize(
    ("other", "why"),
    [
        ({"priority": 1000}, "it is more important"),
        ({"annotations": SPARED}, "it must not be preempted"),
    ],
)
def test_nobody_goes_along_who_may_not_be_taken(other: Raw, why: str) -> None:
    members = [pod("a", 1, group="g"), pod("b", 1, group="g", **other)]
    played = play(node("n1", 2), pod_group("g", 2), members, pod("high", 1, at="5s", priority=10))
    assert victims(played) == [], why


def test_nor_is_it_reclaimed() -> None:
    members = [pod("a", 1, group="g"), pod("b", 1, group="g", annotations=SPARED)]
    taking = low("taking", 1, "b", at="5s")
    played = play(
        node("n1", 2),
        queue("a"),
        queue("b"),
        pod_group("g", 2, queue="a"),
        members,
        taking,
        config=RECLAIM,
    )
    assert victims(played, "Evicted") == []


# What is under way


@pytest.mark.parametrize("stops_in", ["0s", "20s"])
def test_a_queue_reclaims_no_more_than_it_deserves(stops_in: str) -> None:
    """Also while those it reclaims from take their time, and its pods come one by one."""
    running = [low(f"a-{i}", 1, "a", stops_in=stops_in) for i in range(6)]
    waiting = [low(f"b-{i}", 1, "b", at=f"{5 + i}s") for i in range(6)]
    played = play(node("n1", 6), queue("a"), queue("b"), running, waiting, config=RECLAIM, until=100)
    assert len(victims(played, "Evicted")) == 3
    assert sorted(time is not None for time in played.times(*(f"b-{i}" for i in range(6)))) == [
        *[False] * 3,
        *[True] * 3,
    ]


def test_one_pod_has_one_victim_however_long_that_takes() -> None:
    running = [low(f"a-{i}", 1, "a", stops_in="25s") for i in range(4)]
    noise = [step(f"{t}s", apply=pod(f"noise-{t}", 9)) for t in range(6, 20, 2)]
    given = [queue("a"), queue("b"), *running, low("b-0", 1, "b", at="5s"), *noise]
    played = play(node("n1", 4), given, config=RECLAIM, until=60)
    assert len(victims(played, "Evicted")) == 1
    assert played.times("b-0") == [30]


def test_a_gang_that_reclaims_counts_for_its_queue_before_it_has_its_places() -> None:
    running = [low(f"a-{i}", 1, "a", stops_in="20s") for i in range(8)]
    gangs = [
        [pod_group(n, 2, queue="b"), *gang(n, 2, at=at)]
        for n, at in zip("xyz", ("5s", "6s", "7s"), strict=True)
    ]
    given = [raw for each in gangs for raw in each]
    played = play(node("n1", 8), queue("a"), queue("b"), running, given, config=RECLAIM, until=60)
    assert len(victims(played, "Evicted")) == 4
    assert played.times("x-0", "y-0", "z-0") == [26, 26, None]


# What is being freed for a pod of another queue


@pytest.mark.parametrize("config", [RECLAIM, actions("allocate", "preempt", "reclaim")])
@pytest.mark.parametrize("spread", [False, True], ids=["local", "spread"])
@pytest.mark.parametrize("restarts", [(), ("22s",), ("31s", "33s")])
def test_a_more_important_pod_leaves_what_another_queue_reclaims(
    config: Raw, spread: bool, restarts: tuple[str, ...]
) -> None:
    """Victims leave one by one, and pods of their queue come that would fit in what they left."""
    given: Raw = {"topologySpreadConstraints": [SPREAD]} if spread else {}
    running = [
        low(f"a-{i}", queue="a", priority=10, stops_in=f"{20 * (i + 1)}s", labels=APP, **given)
        for i in range(2)
    ]
    again = [
        low(f"c-{i}", queue="a", priority=20, at=f"{15 + 10 * i}s", labels=APP, **given)
        for i in range(4)
    ]
    taking = low("b", 2, queue="b", at="10s")
    given_to_b = [queue("a"), queue("b", deserved={"cpu": "2"})]
    one = node("n1", 2, labels={"zone": "z"})
    restarted = [step(at, restart="scheduler") for at in restarts]
    played = play(one, given_to_b, running, again, taking, restarted, config=config, until=100)
    assert sorted(victims(played, "Evicted")) == ["a-0", "a-1"]
    assert played.times("b", "c-0", "c-1", "c-2", "c-3") == [40, None, None, None, None]


def test_a_pod_in_no_queue_takes_what_less_important_ones_reclaim() -> None:
    queues = [queue("a"), queue("b", deserved={"cpu": "1"})]
    running = low("a", queue="a", stops_in="20s")
    given = [low("b", queue="b", at="10s"), low("first", at="15s", priority=5)]
    played = play(node("n1", 1), queues, running, given, config=RECLAIM, until=60)
    assert played.times("b", "first") == [None, 30]


def test_preemption_in_one_queue_does_not_end_a_nomination_in_another() -> None:
    queues = [queue("a"), queue("b", deserved={"cpu": "1"})]
    running = [low(f"a-{i}", queue="a", priority=i, stops_in="30s") for i in range(3)]
    given = [low("b", queue="b", at="10s"), low("a-top", queue="a", at="15s", priority=30)]
    config = actions("allocate", "preempt", "reclaim")
    played = play(node("n1", 3), queues, running, given, config=config, until=60)
    assert (victims(played, "Evicted"), victims(played)) == (["a-0"], ["a-1"])
    assert played.times("b", "a-top") == [45, 45]
