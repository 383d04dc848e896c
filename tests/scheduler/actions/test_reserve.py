"""The reserve action: who starves, where room is held, what that does to others, how it ends."""

import json
from typing import Any

import pytest

from harness.objects import (
    SIGS,
    VOLCANO,
    Raw,
    gang,
    in_queue,
    node,
    pod,
    pod_group,
    queue,
    reservation,
)
from harness.scenarios import Played, actions, play, step

CLOSED, OPEN = {"status": {"state": "Closed"}}, {"status": {"state": "Open"}}
AFTER = {"starvingJobTimeThreshold": 10}
HELD = "0/1 nodes are available: 1 node(s) resource was(were) reserved."


def full(name: str, cpu: int, *ends: int) -> list[Raw]:
    """A node of that many cores on each of which a pod runs until then."""
    assert len(ends) == cpu
    small = [pod(f"{name}-{i}", 1, nodeName=name, runs_for=f"{t}s") for i, t in enumerate(ends)]
    return [node(name, cpu), *small]


def holds(played: Played) -> dict[str, tuple[str, str]]:
    """Phase and node of what is held, by the pod it is for."""
    return {
        raw["spec"]["owners"][0]["object"]["name"]: (
            raw["status"]["phase"],
            raw["status"].get("nodeName", ""),
        )
        for raw in played.all("Reservation")
        if "object" in raw["spec"]["owners"][0]
    }


def test_capacity_that_comes_free_falls_to_the_starving_pod() -> None:
    smalls = [pod(f"small-{i}", 1, at="1s", runs_for="30s") for i in range(3)]
    played = play(full("n1", 3, 20, 30, 40), pod("big", 3), smalls, config=actions(**AFTER))
    assert played.times("big") == [40]
    assert played.events("Pod/default/big", "Starving", "Reserved", "Ready", "Bound") == [
        (10, "Starving"),
        (10, "Reserved"),
        (40, "Ready"),
        (40, "Bound"),
    ]


def test_nothing_is_held_where_a_reusable_reservation_has_the_capacity_again() -> None:
    """On n1 two cores at most are free one day: on n2, which is worse now, all are."""
    reusable = {
        "apiVersion": "scheduling.koordinator.sh/v1alpha1",
        "kind": "Reservation",
        "metadata": {"name": "r"},
        "spec": {
            "allocateOnce": False,
            "owners": [{"labelSelector": {"matchLabels": {"app": "r"}}}],
            "template": {
                "spec": {
                    "nodeName": "n1",
                    "containers": [{"name": "c", "resources": {"requests": {"cpu": "2"}}}],
                }
            },
        },
    }
    owners = [pod(f"owner-{i}", 1, at="1s", labels={"app": "r"}, runs_for="19s") for i in range(2)]
    on_n1 = [node("n1", 4), pod("early", 1, nodeName="n1", runs_for="60s")]
    played = play(
        [*on_n1, reusable, *owners, *full("n2", 3, 50, 50, 50)],
        pod("big", 3, at="2s"),
        config=actions(**AFTER),
        until=40,
    )
    assert holds(played)["big"] == ("Waiting", "n2")
    assert [t for t, _ in played.events("Pod/default/big", "Reserved")] == [12]


def test_what_waits_for_a_starving_pod_is_not_in_its_way_when_it_preempts() -> None:
    """A user puts a less important pod on the node that is held: 3 of 8 cores would be left with both
    the hold and the pod, 5 with one of them."""
    theirs = [pod("low", 6, at="19s", nodeName="n1")]
    played = play(
        [node("n1", 8), pod("high", 8, priority=100, nodeName="n1", delete_at="20s")],
        [pod("starving", 5, priority=10), *theirs],
        config=actions("allocate", "backfill", "preempt", **AFTER),
        until=100,
    )
    assert played.events("Pod/default/starving", "Reserved", "Bound") == [
        (10, "Reserved"),
        (20, "Bound"),
    ]
    assert played.reasons("low").count("Preempted") == 1
    assert played.all("Reservation")[0]["status"]["phase"] == "Succeeded"


def test_what_is_held_is_a_reservation_of_the_pods() -> None:
    config = actions(**AFTER)
    played = play(
        full("n1", 3, 20, 30, 40), pod("big", 3, labels={"app": "x"}), config=config, until=15
    )
    [hold] = played.all("Reservation")
    uid = played.find("Pod", "big")["metadata"]["uid"]
    assert hold["metadata"]["labels"] == {
        "holdfast.io/hold": "starvation",
        "holdfast.io/hold-job": "big",
    }
    assert hold["metadata"]["annotations"]["holdfast.io/hold-job"] == "Pod/default/big"
    assert hold["spec"]["preAllocation"] is True
    assert hold["spec"]["allocateOnce"] is True
    assert hold["spec"]["ttl"] == "0s"
    assert hold["spec"]["owners"] == [
        {
            "object": {
                "apiVersion": "v1",
                "kind": "Pod",
                "namespace": "default",
                "name": "big",
                "uid": uid,
            }
        }
    ]
    assert hold["spec"]["template"]["spec"]["nodeName"] == "n1"
    assert hold["status"]["phase"] == "Waiting"


@pytest.mark.parametrize(
    ("threshold", "at", "starves"),
    [(10, "0s", 10), (10, "5s", 15), ("1m", "0s", 60), (0, "3s", 3)],
)
def test_a_pod_starves_once_it_has_waited_so_long(threshold: int | str, at: str, starves: int) -> None:
    config = actions(starvingJobTimeThreshold=threshold)
    played = play(node("n1", 1), pod("a", 1), pod("b", 1, at=at), config=config, until=100)
    assert played.events("Pod/default/b", "Starving") == [(starves, "Starving")]


def test_time_counts_from_creation_whatever_the_scheduler_saw() -> None:
    old = pod("old", 1, metadata={"creationTimestamp": "2025-12-31T23:59:55Z"})
    played = play(node("n1", 1), pod("a", 1, nodeName="n1"), old, config=actions(**AFTER), until=20)
    assert played.events("Pod/default/old", "Starving") == [(5, "Starving")]


def test_without_the_action_nothing_is_held() -> None:
    played = play(full("n1", 2, 50, 60), pod("big", 2), config=actions("allocate"), until=1000)
    assert played.all("Reservation") == []
    assert played.events("Pod/default/big", "Starving") == []


def test_a_job_that_waits_for_its_own_pods_does_not_starve() -> None:
    given = [node("n1", 4), pod_group("g", 3), *gang("g", 2)]
    played = play(given, config=actions(**AFTER), until=100)
    assert played.events("PodGroup/default/g", "Starving", "Reserved") == []


def partner_gang(name: str, api: str, *names: str) -> list[Raw]:
    """A gang of two pods that starts together with the gangs of these names."""
    group = pod_group(name, 2, api)
    listed = json.dumps([f"default/{each}" for each in names])
    group["metadata"]["annotations"]["gang.scheduling.koordinator.sh/groups"] = listed
    return [group, *gang(name, 2)]


@pytest.mark.parametrize("api", [VOLCANO, SIGS])
@pytest.mark.parametrize("restart", [None, "20s"])
def test_a_gang_does_not_starve_for_a_partner_that_does_not_exist(
    api: str, restart: str | None
) -> None:
    given = [node("n1", 4), *partner_gang("t", api, "t", "u")]
    restarts = [step(restart, restart="scheduler")] if restart else []
    played = play(given, *restarts, config=actions(**AFTER), until=100)
    assert played.bound() == {}
    assert played.events("PodGroup/default/t", "Starving", "Reserved", "Ready") == []


@pytest.mark.parametrize(("cpu", "held"), [(3, 0), (4, 4)])
def test_nothing_is_held_for_partners_that_do_not_fit_together(cpu: int, held: int) -> None:
    """Three pods would have a node at once; of four cores one is taken until 50s."""
    given = [each for name in "tu" for each in partner_gang(name, SIGS, "t", "u")]
    taken = [pod("o", 1, nodeName="n1", runs_for="50s")] if held else []
    config = actions(**AFTER, reservedNodePercent=100)
    played = play(node("n1", cpu), taken, given, config=config, until=40)
    assert len(holds(played)) == held
    assert play(node("n1", cpu), taken, given, config=config, until=60).times("t-0", "u-1") == (
        [50, 50] if held else [None, None]
    )


def test_a_gang_does_not_starve_for_the_missing_partner_of_its_partner() -> None:
    given = [*partner_gang("t", VOLCANO, "t", "u"), *partner_gang("u", VOLCANO, "u", "v")]
    played = play(node("n1", 4), given, config=actions(**AFTER), until=100)
    assert played.bound() == {}
    assert played.all("Reservation") == []


def test_a_gang_waits_though_its_partner_is_deleted_while_capacity_is_held() -> None:
    """Capacity comes free for t alone after u is gone."""
    t, u = (partner_gang(name, VOLCANO, "t", "u") for name in "tu")
    gone = [
        step("20s", delete={"kind": raw["kind"], "name": raw["metadata"]["name"]} | api)
        for raw, api in zip(u, [{"apiVersion": VOLCANO}, {}, {}], strict=True)
    ]
    config = actions(**AFTER, reservedNodePercent=100)
    played = play(full("n1", 4, 30, 30, 30, 30), t, u, *gone, config=config, until=100)
    assert played.times("t-0", "t-1") == [None, None]


@pytest.mark.parametrize("at", ["5s", "15s"])
def test_a_job_goes_on_starving_when_its_pods_are_made_anew(at: str) -> None:
    """There is no node it could have before 30s."""
    later: Raw = {"metadata": {"annotations": {"sim.holdfast.io/at": "30s"}}}
    given = [*full("n1", 3, 20, 30, 40), node("n2", 4, **later), pod("o", 4, at="30s", nodeName="n2")]
    job = [
        pod_group("g", 2),
        pod("g-0", 2, group="g", delete_at=at),
        pod("g-1", 2, group="g"),
        pod("g-2", 2, group="g", at=at),
    ]
    config = actions(**AFTER, reservedNodePercent=100)
    played = play(given, job, config=config, until=35)
    assert played.events("PodGroup/default/g", "Starving", "Reserved") == [
        (10, "Starving"),
        (30, "Reserved"),
    ]


# What it does to others


@pytest.mark.parametrize(
    ("hold", "small", "why"),
    [
        ("node", None, "0/2 nodes are available: 2 node(s) resource was(were) reserved."),
        ("amount", 12, ""),
    ],
)
def test_a_held_node_is_closed_or_only_the_amount_is_kept(
    hold: str, small: float | None, why: str
) -> None:
    """Of the five cores of n1 four are held, until n2 is free too."""
    config = actions(**AFTER, hold=hold, reservedNodePercent=100)
    given = [node("n1", 5), *full("n2", 4, 50, 50, 50, 50), pod_group("g", 2), *gang("g", 2, 4)]
    played = play(given, pod("small", 1, at="12s"), config=config, until=20)
    assert played.times("small") == [small]
    assert played.message("small").startswith(why)


def test_pods_that_ask_for_nothing_pass() -> None:
    given = [*full("n1", 2, 20, 50), pod("big", 2), pod("idle", 0, at="12s")]
    assert play(given, config=actions(**AFTER), until=15).times("idle") == [12]


def test_no_one_preempts_on_a_held_node() -> None:
    given = [*full("n1", 2, 20, 50), pod("big", 2, priority=0), pod("vip", 1, at="12s", priority=100)]
    config = actions("allocate", "preempt", **AFTER)
    played = play(given, config=config, until=15)
    assert played.times("vip") == [None]
    assert played.message("vip").startswith(HELD)


def test_a_hold_ends_with_its_pod_being_placed() -> None:
    given = [*full("n1", 2, 20, 30), pod("big", 2, runs_for="10s"), pod("small", 1, at="35s")]
    played = play(given, config=actions(**AFTER))
    assert played.times("big", "small") == [30, 40]
    assert holds(played) == {"big": ("Succeeded", "n1")}


# Order


def test_a_job_ahead_that_could_be_scheduled_comes_first() -> None:
    """Reserve comes before allocate here: what could be placed ends it for the round."""
    config = actions("reserve", "allocate")
    config["actions"][0]["arguments"] = AFTER
    given = [*full("n1", 2, 30, 30), node("n2", 1), pod("big", 2, priority=1)]
    played = play(given, pod("vip", 1, at="10s", priority=5), config=config, until=20)
    assert played.times("vip") == [10]
    assert played.events("Pod/default/big", "Reserved") == [(10, "Reserved")]


def test_the_more_important_of_two_is_served_first() -> None:
    given = [*full("n1", 2, 30, 40), pod("low", 2), pod("high", 2, priority=5, runs_for="10s")]
    played = play(given, config=actions(**AFTER))
    assert played.times("high", "low") == [40, 50]


# Which node


def test_capacity_is_held_where_least_is_missing() -> None:
    given = [*full("n1", 3, 90, 90, 90), *full("n2", 3, 5, 90, 90), *full("n3", 3, 90, 90, 90)]
    played = play(given, pod("big", 3), config=actions(**AFTER), until=20)
    assert holds(played) == {"big": ("Waiting", "n2")}


def test_of_equal_nodes_the_first_by_name_is_held() -> None:
    given = [*full("b", 2, 90, 90), *full("a", 2, 90, 90)]
    played = play(given, pod("big", 2), config=actions(**AFTER), until=20)
    assert holds(played) == {"big": ("Waiting", "a")}


@pytest.mark.parametrize(("percent", "held"), [(0, 0), (1, 1), (50, 2), (51, 3), (75, 3), (100, 4)])
def test_no_more_nodes_are_held_than_the_percentage(percent: int, held: int) -> None:
    nodes = [each for i in range(4) for each in full(f"n{i}", 2, 90, 90)]
    bigs = [pod(f"big-{i}", 2) for i in range(4)]
    config = actions(**AFTER, reservedNodePercent=percent)
    assert len(holds(play(nodes, bigs, config=config, until=20))) == held


def test_what_suits_the_pod_is_minded() -> None:
    given = [*full("n1", 2, 90, 90), *full("n2", 2, 90, 90)]
    given[3]["metadata"]["labels"] = {"disk": "ssd"}
    big = pod("big", 2, nodeSelector={"disk": "ssd"})
    played = play(given, big, config=actions(**AFTER), until=20)
    assert holds(played) == {"big": ("Waiting", "n2")}


def test_what_never_ends_is_not_waited_for() -> None:
    daemon = {
        "ownerReferences": [
            {"apiVersion": "apps/v1", "kind": "DaemonSet", "name": "d", "uid": "d", "controller": True}
        ]
    }
    given = [
        node("n1", 2),
        pod("d-1", 1, nodeName="n1", metadata=daemon),
        pod("s-1", 1, nodeName="n1"),
        *full("n2", 2, 90, 90),
    ]
    played = play(given, pod("big", 2), config=actions(**AFTER), until=20)
    assert holds(played) == {"big": ("Waiting", "n2")}


def test_a_pod_that_can_never_fit_holds_nothing_and_says_so() -> None:
    played = play(full("n1", 2, 30, 30), pod("big", 3), config=actions(**AFTER), until=100)
    assert holds(played) == {}
    assert "CannotReserve" in played.reasons("big")


# Gangs


def test_a_gang_is_held_capacity_for_as_a_whole() -> None:
    given = [*full("n1", 2, 30, 30), *full("n2", 2, 50, 60), pod_group("g", 2), *gang("g", 2, 2)]
    config = actions(**AFTER, reservedNodePercent=100)
    played = play(given, config=config)
    assert played.times("g-0", "g-1") == [60, 60]
    assert played.events("PodGroup/default/g", "Starving", "Reserved", "Ready") == [
        (10, "Starving"),
        (10, "Reserved"),
        (60, "Ready"),
    ]


def test_a_gang_is_not_started_while_its_min_resources_are_not_free() -> None:
    """Its two pods fit at once, but the job is not admitted."""
    given = [node("n1", 8), pod_group("g", 2, minResources={"cpu": "9"}), *gang("g", 2)]
    played = play(given, config=actions(**AFTER), until=100)
    assert not holds(played) and played.times("g-0") == [None]


def test_nothing_is_held_for_a_gang_that_is_not_admitted_with_it() -> None:
    given = [*full("n1", 2, 30, 30), pod_group("g", 2, minResources={"cpu": "9"}), *gang("g", 2)]
    played = play(given, config=actions(**AFTER), until=20)
    assert not holds(played)


def test_capacity_is_held_for_a_gang_whose_min_resources_it_makes_free() -> None:
    given = [*full("n1", 2, 30, 30), pod_group("g", 2, minResources={"cpu": "2"}), *gang("g", 2)]
    smalls = [pod(f"small-{i}", 1, at="1s", runs_for="30s") for i in range(3)]
    played = play(given, smalls, config=actions(**AFTER))
    assert played.times("g-0") == played.times("g-1") == [30]


def test_of_a_gang_nothing_is_held_unless_all_of_it_can_be() -> None:
    given = [*full("n1", 2, 30, 30), *full("n2", 2, 50, 60), pod_group("g", 3), *gang("g", 3, 2)]
    config = actions(**AFTER, reservedNodePercent=100)
    assert holds(play(given, config=config, until=20)) == {}


def test_what_fits_already_is_held_too_and_starts_with_the_rest() -> None:
    given = [node("n1", 2), *full("n2", 2, 50, 60), pod_group("g", 2), *gang("g", 2, 2)]
    other = pod("other", 2, at="15s")
    config = actions(**AFTER, reservedNodePercent=100)
    played = play(given, other, config=config)
    assert played.times("g-0", "g-1") == [60, 60]
    assert played.times("other") == [None]


def test_several_tasks_may_be_held_capacity_for_on_one_node() -> None:
    given = [*full("n1", 4, 30, 30, 40, 40), pod_group("g", 2), *gang("g", 2, 2)]
    played = play(given, config=actions(**AFTER))
    assert played.times("g-0", "g-1") == [40, 40]


def test_a_job_started_anew_waits_from_then_on() -> None:
    given = [node("n1", 2), pod_group("g", 2), *gang("g", 2, delete_at="30s")]
    again = [*gang("h", 2, at="100s"), pod("block", 1, at="31s", runs_for="200s")]
    for raw in again[:2]:
        raw["metadata"]["annotations"]["scheduling.k8s.io/group-name"] = "g"
    played = play(given, again, config=actions(**AFTER), until=200)
    assert played.events("PodGroup/default/g", "Starving") == [(110, "Starving")]


# How holds end


def test_a_pod_that_finds_capacity_elsewhere_gives_up_what_is_held() -> None:
    new = step("20s", apply=node("n2", 4))
    played = play(full("n1", 2, 90, 90), pod("big", 2), new, config=actions(**AFTER), until=30)
    assert played.bound()["big"] == (20, "n2")
    assert holds(played) == {}
    assert "Released" in played.reasons("big")


@pytest.mark.parametrize(
    ("what", "change"),
    [
        ("deleted", step("20s", delete={"kind": "Node", "name": "n1"})),
        (
            "cordoned",
            step(
                "20s", patch={"kind": "Node", "name": "n1", "merge": {"spec": {"unschedulable": True}}}
            ),
        ),
        (
            "shrunk",
            step(
                "20s",
                patch={
                    "kind": "Node",
                    "name": "n1",
                    "merge": {"status": {"allocatable": {"cpu": "1"}}},
                },
            ),
        ),
    ],
)
def test_a_node_that_will_not_do_any_more_is_given_up(what: str, change: Raw) -> None:
    given = [*full("n1", 2, 50, 60), *full("n2", 2, 50, 60), pod("big", 2), change]
    played = play(given, config=actions(**AFTER), until=100)
    assert played.bound()["big"] == (60, "n2"), what


def test_a_pod_that_is_deleted_leaves_nothing_held() -> None:
    given = [*full("n1", 2, 50, 60), pod("big", 2, delete_at="20s"), pod("small", 1, at="45s")]
    played = play(given, config=actions(**AFTER), until=100)
    assert holds(played) == {}
    assert played.times("small") == [50]


def test_a_gang_that_lost_a_member_holds_nothing() -> None:
    given = [*full("n1", 2, 50, 60), *full("n2", 2, 50, 60), pod_group("g", 2), *gang("g", 2, 2)]
    given[-1]["metadata"]["annotations"]["sim.holdfast.io/delete-at"] = "20s"
    played = play(given, config=actions(**AFTER, reservedNodePercent=100), until=30)
    assert holds(played) == {}


def test_a_group_that_is_deleted_holds_nothing() -> None:
    given = [*full("n1", 2, 50, 60), pod_group("g", 1), *gang("g", 1, 2)]
    gone = step("20s", delete={"kind": "PodGroup", "name": "g", "apiVersion": VOLCANO})
    assert holds(play(given, gone, config=actions(**AFTER), until=30)) == {}


@pytest.mark.parametrize("when", ["5s", "10s", "15s", "30s", "40s"])
def test_a_restart_forgets_nothing(when: str) -> None:
    given = [*full("n1", 3, 20, 30, 40), pod("big", 3), pod("small", 1, at="15s")]
    played = play(given, step(when, restart="scheduler"), config=actions(**AFTER))
    assert played.times("big") == [40]
    assert sorted(holds(played)) == ["big", "small"]
    assert len(played.all("Reservation")) == 2


def test_the_choice_is_stable() -> None:
    """Other nodes come to look better; the hold stays where it is."""
    given = [*full("n1", 2, 90, 95), *full("n2", 2, 20, 100), pod("big", 2)]
    config = actions(**AFTER, reservedNodePercent=100)
    played = play(given, config=config)
    assert played.times("big") == [95]


def test_volcanos_form_of_the_configuration_does_the_same() -> None:
    config = actions()
    config["actions"] = "enqueue, allocate, backfill, reserve"
    config["configurations"] = [{"name": "reserve", "arguments": AFTER}]
    played = play(full("n1", 2, 20, 40), pod("big", 2), pod("small", 1, at="15s"), config=config)
    assert played.times("big") == [40]


@pytest.mark.parametrize(
    ("shuts", "opens"),
    [
        (
            {"patch": {"kind": "Queue", "name": "q", "apiVersion": VOLCANO, "merge": CLOSED}},
            {"patch": {"kind": "Queue", "name": "q", "apiVersion": VOLCANO, "merge": OPEN}},
        ),
        (
            {"delete": {"kind": "Queue", "name": "q", "apiVersion": VOLCANO}},
            {"apply": {"kind": "Queue", "apiVersion": VOLCANO, "metadata": {"name": "q"}}},
        ),
    ],
)
def test_nothing_is_held_while_its_queue_takes_nothing(shuts: Raw, opens: Raw) -> None:
    """Others use the room meanwhile; when the queue takes jobs again, room is held anew."""
    first = pod("first", 2, nodeName="n1", runs_for="60s")
    big = pod("big", 2, annotations=in_queue("q"))
    others = [pod("one", 1, at="40s", runs_for="100s"), pod("two", 1, at="150s")]
    steps = [step("30s", **shuts), step("120s", **opens)]
    config = actions(starvingJobTimeThreshold=10, reservedNodePercent=100)
    played = play(node("n1", 2), queue("q"), first, big, others, steps, config=config, until=200)
    assert played.times("one", "big", "two") == [60, 160, None]
    assert "Released" in played.reasons("big")


def test_smaller_jobs_behind_do_not_starve_who_is_ahead() -> None:
    """It lost its place, and everything small starves too: nothing more is held where it waits."""
    small = [pod(f"s-{i}", 1, at=f"{i}s", runs_for="10s") for i in range(60)]
    cordon = step(
        "20s", patch={"kind": "Node", "name": "n1", "merge": {"spec": {"unschedulable": True}}}
    )
    config = actions(starvingJobTimeThreshold=5, reservedNodePercent=100)
    big = pod("big", 4, at="8s")
    played = play(node("n1", 4), node("n2", 4), small, big, cordon, config=config, until=100)
    assert played.times("big") == [31]


def test_a_job_that_may_never_hold_enough_stands_in_nobodys_way() -> None:
    full = [pod(f"full-{i}", 4, nodeName=f"n{i}", runs_for="50s") for i in range(4)]
    many = [pod_group("many", 3), *gang("many", 3, 4, priority=10)]
    config = actions(starvingJobTimeThreshold=5, reservedNodePercent=50)
    played = play(
        [node(f"n{i}", 4) for i in range(4)], full, many, pod("one", 4), config=config, until=20
    )
    assert [
        raw["metadata"]["annotations"]["holdfast.io/hold-job"] for raw in played.all("Reservation")
    ] == ["Pod/default/one"]


def test_what_is_released_is_told_to_the_job_even_if_its_pod_is_gone() -> None:
    full = pod("full", 4, nodeName="n1", runs_for="50s")
    given = [pod_group("g", 1), *gang("g", 1, 4), step("20s", delete=MEMBER)]
    config = actions(starvingJobTimeThreshold=5, reservedNodePercent=100)
    played = play(node("n1", 4), full, given, config=config, until=30)
    assert "Released" in played.reasons("g")


MEMBER = {"kind": "Pod", "name": "g-0", "namespace": "default"}


def test_a_starving_pod_that_preempts_uses_what_is_held_for_it() -> None:
    """A second hold would be in the way of the first, since the pod asks for a port, and the node is
    barred by what is held for others: both came and went without end."""
    config = actions("allocate", "preempt")
    reserve = {"starvingJobTimeThreshold": 5, "reservedNodePercent": 100, "hold": "node"}
    config["actions"].insert(1, {"name": "reserve", "arguments": reserve})
    nodes = [node(name, 8, labels={"host": name}) for name in ("n1", "n2")]
    busy = pod("busy", 5, nodeName="n2", priority=100, runs_for="90s")
    low = pod("low", 2, nodeName="n1", stops_in="10s")
    high = pod("high", at="60s", priority=10, nodeSelector={"host": "n1"})
    high["spec"]["containers"][0]["ports"] = [{"containerPort": 80, "hostPort": 80}]
    jobs = [pod_group("g", 2), *gang("g", 2, 6)]
    played = play(nodes, busy, low, jobs, high, config=config, until=120)
    assert played.times("high", "g-0", "g-1") == [75, 90, 90]
    assert not any("preempted-for" in entry.object for entry in played.result.timeline)


def test_nothing_is_held_for_a_pod_that_must_use_another_reservation() -> None:
    affinity = '{"reservationSelector": {"pool": "x"}}'
    picky = pod("picky", 3, annotations={"scheduling.koordinator.sh/reservation-affinity": affinity})
    config = actions(starvingJobTimeThreshold=10, reservedNodePercent=100, hold="node")
    played = play(node("n1", 4), picky, pod("other", 4, at="20s"), config=config, until=60)
    assert played.times("other", "picky") == [20, None]
    assert played.all("Reservation") == []
    said = [raw["message"] for raw in played.all("Event") if raw["reason"] == "CannotReserve"]
    assert said == ["Pod/default/picky must use another reservation; no capacity was reserved"]


@pytest.mark.parametrize("in_gang", [False, True])
@pytest.mark.parametrize(
    ("name", "value", "problem"),
    [
        ("reservation-template", '{"owner": []}', "owner"),
        ("reservation-affinity", '{"nam": "r"}', "nam"),
    ],
)
def test_nothing_is_held_for_a_pod_with_an_invalid_annotation(
    name: str, value: str, problem: str, in_gang: bool
) -> None:
    annotations = {f"scheduling.koordinator.sh/{name}": value}
    wrong = gang("g", 1, 3)[0] if in_gang else pod("g-0", 3)
    wrong["metadata"].setdefault("annotations", {}).update(annotations)
    config = actions(starvingJobTimeThreshold=10, reservedNodePercent=100, hold="node")
    other = pod("other", 4, at="20s")
    groups = [pod_group("g", 1)] if in_gang else []
    played = play(node("n1", 4), groups, wrong, other, config=config, until=60)
    assert played.times("other", "g-0") == [20, None]
    assert played.all("Reservation") == []
    said = [raw["message"] for raw in played.all("Event") if raw["reason"] == "CannotReserve"]
    assert len(said) == 1 and said[0].endswith("; no capacity was reserved")
    assert "Pod/default/g-0 is rejected whatever is free: " in said[0] and problem in said[0]


def test_a_hold_is_deleted_when_its_pod_becomes_invalid() -> None:
    wrong = {"metadata": {"annotations": {"scheduling.koordinator.sh/reservation-affinity": "{"}}}
    config = actions(starvingJobTimeThreshold=10, reservedNodePercent=100, hold="node")
    edit = step("20s", patch={"kind": "Pod", "name": "large", "merge": wrong})
    given = [node("n1", 4), pod("busy", 3, runs_for="60s"), pod("large", 4, at="1s"), edit]
    played = play(given, pod("other", 1, at="30s"), config=config, until=90)
    assert played.times("other", "large") == [30, None]
    assert played.all("Reservation") == []


def test_nothing_is_held_for_a_pod_that_ignores_reservations() -> None:
    """It would never use it, and the node would be barred to all others for ever."""
    ignores = {"scheduling.koordinator.sh/reservation-ignored": "true"}
    config = actions(starvingJobTimeThreshold=10, reservedNodePercent=100, hold="node")
    running = pod("running", 3, runs_for="60s")
    large, other = pod("large", 3, at="1s", labels=ignores), pod("other", 1, at="80s")
    played = play(node("n1", 4), running, large, other, config=config, until=90)
    assert played.times("large", "other") == [60, 80]


@pytest.mark.parametrize(
    "metadata",
    [
        {"labels": {"scheduling.koordinator.sh/reservation-ignored": "true"}},
        {"annotations": {"scheduling.koordinator.sh/reservation-affinity": '{"name": "other"}'}},
    ],
)
def test_a_hold_is_released_when_its_pod_may_no_longer_use_it(metadata: Raw) -> None:
    changed = step("20s", patch={"kind": "Pod", "name": "big", "merge": {"metadata": metadata}})
    running, stranger = pod("running", 1, nodeName="n1"), pod("stranger", 3, at="60s")
    played = play(node("n1", 4), running, pod("big", 4), stranger, changed, config=actions(**AFTER))
    assert played.times("stranger") == [60]
    assert not holds(played)


_REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
_ITS_OWN = {"labelSelector": {"matchLabels": {"app": "b"}}, "topologyKey": "kubernetes.io/hostname"}
_SPREAD = {"maxSkew": 1, "whenUnsatisfiable": "DoNotSchedule", **_ITS_OWN}


@pytest.mark.parametrize(
    "constraint",
    [
        {"affinity": {"podAntiAffinity": {_REQUIRED: [_ITS_OWN]}}},
        {"affinity": {"podAffinity": {_REQUIRED: [_ITS_OWN]}}},
        {"topologySpreadConstraints": [_SPREAD]},
    ],
    ids=["anti-affinity", "affinity", "spread"],
)
@pytest.mark.parametrize("restarts", [False, True])
def test_a_hold_does_not_keep_its_own_pod_off_its_node(
    constraint: dict[str, Any], restarts: bool
) -> None:
    """The reserve pod has the labels of its pod, whose constraints are about pods with these labels."""
    nodes = [node(name, 4) for name in ("n1", "n2")]
    busy = [pod(f"busy-{i}", 3, runs_for=f"{40 + 10 * i}s") for i in range(2)]
    large = pod("large", 4, "b", at="1s", **constraint)
    restart = [step("20s", restart="scheduler")] if restarts else []
    played = play(nodes, busy, large, restart, config=actions(**AFTER), until=30)
    (hold,) = played.all("Reservation")
    assert hold["status"]["phase"] == "Waiting"
    assert "Released" not in played.reasons("large")


# Owners of Restricted reservations


def restricted(name: str = "r", **more: Any) -> Raw:
    return reservation(name, 4, "r", allocateOnce=False, allocatePolicy="Restricted", **more)


def owners_at_limit(*nodes: Raw, ttl: str = "24h") -> list[Raw]:
    """A reservation that its owner uses up, another pod on its node, and an owner that starves."""
    full = [pod("o", 4, "r", at="1s"), pod("x", 4, at="1s", nodeName="n0", runs_for="40s")]
    return [node("n0", 8), restricted(ttl=ttl), *full, *nodes, pod("late", 4, "r", at="2s")]


STARVES = {"starvingJobTimeThreshold": 5, "reservedNodePercent": 100}


@pytest.mark.parametrize("restarts", [False, True])
@pytest.mark.parametrize("hold", ["node", "amount"])
@pytest.mark.parametrize(("ttl", "bound"), [("24h", None), ("60s", (60, "n0"))])
def test_a_hold_is_no_way_into_a_node_beside_a_restricted_reservation(
    ttl: str, bound: tuple[float, str] | None, hold: str, restarts: bool
) -> None:
    """On its node an owner gets the reserved resources only through it, as long as it is there."""
    restart = [step("20s", restart="scheduler")] if restarts else []
    config = actions("allocate", "backfill", **STARVES, hold=hold)
    played = play(owners_at_limit(ttl=ttl), restart, config=config, until=120)
    assert played.bound().get("late") == bound


@pytest.mark.parametrize("restarts", [False, True])
def test_an_owner_of_a_restricted_reservation_has_a_hold_on_another_node(restarts: bool) -> None:
    restart = [step("20s", restart="scheduler")] if restarts else []
    other = [node("n1", 8), pod("y", 8, nodeName="n1", runs_for="80s")]
    given = owners_at_limit(*other)
    played = play(given, restart, config=actions("allocate", "backfill", **STARVES), until=120)
    assert played.bound()["late"] == (80, "n1")


def test_a_hold_is_released_once_its_pod_owns_a_restricted_reservation_on_its_node() -> None:
    owners = [{"labelSelector": {"matchLabels": {"app": app}}} for app in ("r", "late")]
    merge = {"spec": {"owners": owners}}
    given = owners_at_limit()
    given[-1]["metadata"]["labels"]["app"] = "late"
    config = actions("allocate", "backfill", **STARVES)
    assert play(given, config=config, until=120).bound()["late"] == (41, "n0")
    edited = step("20s", patch={"kind": "Reservation", "name": "r", "merge": merge})
    played = play(given, edited, config=config, until=120)
    assert "late" not in played.bound()
    assert [raw["metadata"]["name"] for raw in played.all("Reservation")] == ["r"]
