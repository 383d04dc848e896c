"""Queues: who may have how much, and whose turn it is."""

from typing import Any

import pytest

from harness.objects import (
    GROUP,
    VOLCANO,
    WORKLOAD,
    Raw,
    core_group,
    gang,
    in_queue,
    node,
    pod,
    pod_group,
    queue,
    reservation,
)
from harness.scenarios import Played, actions, play, step
from holdfast.scheduler.framework.config import API_VERSION, KIND


def pods(of: str, count: int, cpu: int = 1, **more: Any) -> list[Raw]:
    return [pod(f"{of}-{i:02}", cpu, annotations=in_queue(of), **more) for i in range(count)]


def counts(played: Played) -> dict[str, int]:
    """How many pods of each queue have a place."""
    found: dict[str, int] = {}
    for name in played.bound():
        found[name.rpartition("-")[0]] = found.get(name.rpartition("-")[0], 0) + 1
    return found


@pytest.mark.parametrize(
    ("weights", "wanted", "shares"),
    [
        ((1, 1), (8, 8), {"a": 4, "b": 4}),
        ((1, 3), (8, 8), {"a": 2, "b": 6}),
        ((1, 3), (8, 2), {"a": 6, "b": 2}),  # what one leaves idle is lent
        ((1, 3), (8, 0), {"a": 8}),
        ((7, 1), (2, 9), {"a": 2, "b": 6}),
    ],
)
def test_capacity_is_shared_by_weight(
    weights: tuple[int, int], wanted: tuple[int, int], shares: dict[str, int]
) -> None:
    queues = [queue("a", weights[0]), queue("b", weights[1])]
    played = play(node("n1", 8), queues, pods("a", wanted[0]), pods("b", wanted[1]))
    assert counts(played) == shares


def test_shares_hold_over_time() -> None:
    queues = [queue("a", 1), queue("b", 3)]
    played = play(
        node("n1", 4), queues, pods("a", 40, runs_for="10s"), pods("b", 40, runs_for="10s"), until=45
    )
    assert counts(played) == {"a": 5, "b": 15}


@pytest.mark.parametrize(
    ("capability", "placed"),
    [({"cpu": "3"}, 3), ({"cpu": "2500m"}, 2), ({"pods": "1"}, 1), ({"cpu": "0"}, 0), ({}, 8)],
)
def test_a_capability_is_never_exceeded(capability: dict[str, str], placed: int) -> None:
    played = play(node("n1", 8), queue("a", capability=capability), pods("a", 9))
    assert counts(played).get("a", 0) == placed


def test_a_queue_that_is_full_keeps_no_one_else_waiting() -> None:
    queues = [queue("a", capability={"cpu": "1"}), queue("b")]
    played = play(node("n1", 4), queues, pods("a", 5, priority=100), pods("b", 5))
    assert counts(played) == {"a": 1, "b": 3}
    assert played.message("a-01") == "queue a would have more cpu than its capability"


def test_capacity_in_a_capability_is_used_when_it_comes() -> None:
    played = play(node("n1", 4), queue("a", capability={"cpu": "1"}), pods("a", 3, runs_for="10s"))
    assert played.times("a-00", "a-01", "a-02") == [0, 10, 20]


def test_what_is_guaranteed_to_others_stays_free() -> None:
    queues = [queue("a"), queue("b", guarantee={"resource": {"cpu": "3"}})]
    plain = [pod(f"plain-{i}", 1) for i in range(3)]
    played = play(node("n1", 8), queues, pods("a", 9), plain, pods("b", 2, at="10s"))
    assert counts(played)["b"] == 2
    assert counts(played)["a"] + counts(played).get("plain", 0) == 5


@pytest.mark.parametrize(
    ("given", "why"),
    [
        ([], "queue a does not exist"),
        ([queue("a", state="Closed")], "queue a is closed"),
        ([queue("a", state="Closing")], "queue a is closed"),
        ([queue("a", parent="top"), queue("top", state="Closed")], "queue top is closed"),
    ],
)
def test_a_queue_that_takes_nothing_says_so(given: list[Raw], why: str) -> None:
    other = [queue("b"), *pods("b", 1)]
    played = play(node("n1", 4), given, pods("a", 1), other, pod_group("g", 1, queue="a"), gang("g", 1))
    assert counts(played) == {"b": 1}
    assert played.message("a-00") == why
    assert played.message("g-0") == why


def test_a_queue_made_later_is_found() -> None:
    played = play(node("n1", 4), pods("a", 1), queue("a", at="10s"))
    assert played.times("a-00") == [10]


def test_a_queue_that_is_deleted_takes_nothing_more() -> None:
    gone = step("5s", delete={"kind": "Queue", "name": "a"})
    played = play(node("n1", 4), queue("a"), pods("a", 1), gone)
    late = play(node("n1", 4), queue("a"), gone, pod("p", 1, at="10s", annotations=in_queue("a")))
    assert counts(played) == {"a": 1}
    assert late.message("p") == "queue a does not exist"


def test_the_default_queue_need_not_be_there() -> None:
    played = play(node("n1", 4), pod_group("g", 1, queue="default"), gang("g", 1))
    assert played.times("g-0") == [0]


def test_jobs_of_several_pods_are_in_the_queue_of_their_group() -> None:
    given = [
        queue("a", capability={"cpu": "3"}),
        pod_group("g", 2, queue="a"),
        pod_group("h", 2, queue="a"),
    ]
    played = play(node("n1", 8), given, gang("g", 2), gang("h", 2))
    assert sorted(played.bound()) == ["g-0", "g-1"]  # all of it or nothing


WITHOUT_GANGS: Raw = {
    "apiVersion": API_VERSION,
    "kind": KIND,
    "profiles": [
        {"schedulerName": "default-scheduler"},
        {
            "schedulerName": "alone",
            "plugins": {"multiPoint": {"disabled": [{"name": "Coscheduling"}]}},
        },
    ],
}


def in_group(api: str) -> Raw:
    """The part of a pod that names the group `g`, in a profile without Coscheduling."""
    if api == WORKLOAD:
        return {"schedulerName": "alone", "schedulingGroup": {"podGroupName": "g"}}
    return {"schedulerName": "alone", "group": "g"}


@pytest.mark.parametrize("restarts", [False, True])
@pytest.mark.parametrize("api", [VOLCANO, WORKLOAD])
def test_pods_of_a_group_are_in_its_queue_in_profiles_without_gangs(api: str, restarts: bool) -> None:
    group = pod_group("g", 1, queue="q")
    if api == WORKLOAD:
        group = core_group("g")
        group["metadata"]["annotations"] |= in_queue("q")
    given = [queue("q", capability={"cpu": "6"}), group, pod("member", 4, **in_group(api))]
    restart = [step("5s", restart="scheduler")] if restarts else []
    single = pod("single", 6, annotations=in_queue("q"), at="10s")
    more = pod("more", 3, at="20s", **in_group(api))
    played = play(node("n1", 16), given, single, more, restart, config=WITHOUT_GANGS, until=60)
    assert played.times("member", "single", "more") == [0, None, None]


def test_pods_in_profiles_without_gangs_follow_the_queue_of_their_group() -> None:
    queues = [queue("full", capability={"cpu": "1"}), queue("q", capability={"cpu": "6"})]
    moved = {"kind": "PodGroup", "name": "g", "apiVersion": VOLCANO, "merge": {"spec": {"queue": "q"}}}
    given = [pod_group("g", 1, queue="full"), pod("member", 4, **in_group(VOLCANO))]
    later = [pod("single", 6, annotations=in_queue("q"), at="20s"), step("10s", patch=moved)]
    gone = step("30s", delete={"kind": "PodGroup", "name": "g", "apiVersion": VOLCANO})
    played = play(node("n1", 16), queues, given, later, gone, config=WITHOUT_GANGS, until=60)
    assert played.times("member", "single") == [10, 30]


def test_pods_in_profiles_without_gangs_leave_the_queue_of_a_group_they_no_longer_name() -> None:
    edit = {"metadata": {"annotations": {GROUP: None}}}
    left = step("10s", patch={"kind": "Pod", "name": "member", "namespace": "default", "merge": edit})
    given = [queue("q", capability={"cpu": "6"}), pod_group("g", 1, queue="q")]
    pods = [pod("member", 4, **in_group(VOLCANO)), pod("single", 6, annotations=in_queue("q"), at="1s")]
    played = play(node("n1", 16), given, pods, left, config=WITHOUT_GANGS, until=60)
    assert played.times("member", "single") == [0, 10]


def test_pods_whose_group_is_gone_are_in_no_queue() -> None:
    gone = step("10s", delete={"kind": "PodGroup", "name": "g", "apiVersion": VOLCANO})
    given = [queue("a", capability={"cpu": "1"}), pod_group("g", 1, queue="a"), *gang("g", 1)]
    played = play(node("n1", 4), given, pods("a", 1, at="1s"), gone)
    assert played.times("g-0", "a-00") == [0, 10]


def test_queues_below_a_queue_share_what_it_has() -> None:
    queues = [
        queue("top", 1),
        queue("other", 1),
        queue("a", 1, parent="top"),
        queue("b", 3, parent="top"),
    ]
    played = play(node("n1", 16), queues, pods("a", 20), pods("b", 20), pods("other", 20))
    assert counts(played) == {"a": 2, "b": 6, "other": 8}


def test_a_capability_holds_for_all_below() -> None:
    queues = [queue("top", capability={"cpu": "4"}), queue("a", parent="top"), queue("b", parent="top")]
    played = play(node("n1", 16), queues, pods("a", 9), pods("b", 9))
    assert counts(played) == {"a": 2, "b": 2}


@pytest.mark.parametrize("parents", [("b", "a"), ("nowhere", "")])
def test_parents_that_make_no_sense_do_no_harm(parents: tuple[str, str]) -> None:
    queues = [queue("a", parent=parents[0]), queue("b", parent=parents[1])]
    played = play(node("n1", 4), queues, pods("a", 2), pods("b", 2))
    assert sum(counts(played).values()) == 4


def test_inside_a_queue_the_more_important_is_first() -> None:
    given = [*pods("a", 2), pod("vip", 1, annotations=in_queue("a"), priority=10)]
    assert "vip" in play(node("n1", 1), queue("a"), given).bound()


def test_queues_say_what_they_have() -> None:
    given = [queue("a"), pod_group("g", 2, queue="a"), *gang("g", 2), pod_group("h", 9, queue="a")]
    played = play(node("n1", 8), given, pods("a", 1))
    assert played.find("Queue", "a")["status"] == {
        "state": "Open",
        "allocated": {"cpu": "3", "pods": "3"},
        "running": 1,
        "inqueue": 1,
    }


def test_a_restart_counts_anew() -> None:
    restart = step("5s", restart="scheduler")
    late = pod("late", 1, at="10s", annotations=in_queue("a"))
    played = play(node("n1", 8), queue("a", capability={"cpu": "2"}), pods("a", 2), restart, late)
    assert played.times("late") == [None]


def test_starving_jobs_mind_their_queues_limits() -> None:
    """A queue at its capability holds no room besides."""
    config = actions(starvingJobTimeThreshold=10)
    given = [queue("a", capability={"cpu": "2"}), *pods("a", 1, 2), *pods("b", 0)]
    waits = pod("waits", 2, annotations=in_queue("a"))
    played = play(node("n1", 4), given, waits, config=config, until=50)
    assert played.all("Reservation") == []
    assert played.times("waits") == [None]


def test_what_is_held_for_a_starving_job_counts_against_its_queues_capability() -> None:
    """Else small jobs of the queue would use its capability up for ever, on other nodes."""
    given = [queue("a", capability={"cpu": "3"}), queue("b")]
    busy = pod("busy", 2, nodeName="n1", runs_for="60s", annotations=in_queue("b"))
    big = pod("big", 3, annotations=in_queue("a"))
    small = pod("small", 1, at="30s", annotations=in_queue("a"))
    config = actions(starvingJobTimeThreshold=10, hold="amount")
    played = play(node("n1", 3), node("n2", 2), given, busy, big, small, config=config, until=100)
    assert played.times("big") == [60]
    assert played.times("small") == [None]
    assert "capability" in played.message("small")


# Guarantees


def test_a_guarantee_is_there_for_the_queues_below_too() -> None:
    """What is guaranteed to a queue and to one below it is not kept free twice."""
    top = queue("top", guarantee={"resource": {"cpu": "4"}})
    below = queue("below", parent="top", guarantee={"resource": {"cpu": "3"}})
    given = [top, below, queue("other"), pod("fits", 6, annotations=in_queue("other"))]
    assert play(node("n1", 10), given, until=5).times("fits") == [0]


def test_what_a_guarantee_keeps_free_is_kept_while_capacity_is_held() -> None:
    """A starving job is helped all the same, and starts when the guarantee is free besides."""
    given = [queue("g", guarantee={"resource": {"cpu": "2"}}), queue("o")]
    small = [
        pod(f"s-{i}", 1, annotations=in_queue("o"), at=f"{2 * i}s", runs_for="10s") for i in range(60)
    ]
    big = pod("big", 5, annotations=in_queue("o"), at="8s")
    config = actions(starvingJobTimeThreshold=20, reservedNodePercent=100)
    played = play(node("n1", 8), given, small, big, config=config, until=100)
    assert played.times("big") == [36]
    assert played.events("Pod/default/big", "Unschedulable") == [(8, "Unschedulable")]


def test_who_owns_a_reservation_takes_nothing_that_is_guaranteed_to_others() -> None:
    held = reservation("r", cpu="2", app="web")
    late = queue("g", at="5s", guarantee={"resource": {"cpu": "2"}})
    owner = pod("owner", 2, labels={"app": "web"}, annotations=in_queue("o"), at="10s")
    other = pod("other", 2, annotations=in_queue("o"), at="10s")
    played = play(node("n1", 4), queue("o"), late, held, owner, other, until=20)
    assert played.times("owner", "other") == [10, None]


@pytest.mark.parametrize(("cpu", "bound"), [(3, 10), (4, None)])
def test_an_owner_takes_what_its_reservation_lacks_from_what_is_not_guaranteed(
    cpu: int, bound: float | None
) -> None:
    held = reservation("r", cpu="2", app="web")
    owner = pod("owner", cpu, memory="1Gi", labels={"app": "web"}, at="10s")
    guarantee = queue("g", guarantee={"resource": {"cpu": "2"}})
    played = play(node("n1", 5), guarantee, held, owner, until=20)
    assert played.times("owner") == [bound]


def test_a_queue_is_closed_once_its_jobs_are_gone() -> None:
    given = [
        queue("a", state="Closing"),
        pod_group("g", 1, queue="a"),
        pod("g-0", 1, group="g", nodeName="n1"),
    ]
    played = play(node("n1", 4), given)
    assert played.find("Queue", "a")["status"]["state"] == "Closing"
    done = step("10s", delete={"kind": "PodGroup", "name": "g", "namespace": "default"})
    assert play(node("n1", 4), given, done).find("Queue", "a")["status"]["state"] == "Closed"


@pytest.mark.parametrize("order", [("large", "small"), ("small", "large")])
def test_members_for_which_the_queue_has_capacity_do_not_wait_for_others(
    order: tuple[str, str],
) -> None:
    """Whoever is tried first: a job that needs one pod has one that its queue takes."""
    sizes = {"large": 6, "small": 2}
    members = [pod(f"{i}-{name}", sizes[name], group="g") for i, name in enumerate(order)]
    limited = queue("q", capability={"cpu": "4"})
    played = play(node("n1", 8), limited, pod_group("g", 1, queue="q"), members)
    assert sorted(name.split("-")[1] for name in played.bound()) == ["small"]
    refused = f"{order.index('large')}-large"
    assert played.message(refused) == "queue q would have more cpu than its capability"


def test_members_the_queue_takes_have_capacity_held() -> None:
    """The first member is more than its queue may ever have; the job needs only one."""
    members = [pod("0-large", 6, group="g", at="1s"), pod("1-small", 2, group="g", at="1s")]
    others = [pod("running", 7, runs_for="60s"), pod("later", 1, at="20s", runs_for="100s")]
    limited = [queue("q", capability={"cpu": "4"}), pod_group("g", 1, at="1s", queue="q")]
    config = actions("allocate", starvingJobTimeThreshold=10, reservedNodePercent=100, hold="amount")
    played = play(node("n1", 8), limited, others, members, config=config, until=100)
    assert played.events("PodGroup/default/g", "Reserved") == [(11, "Reserved")]
    assert played.times("1-small", "0-large") == [60, None]
