"""Reservations that make others go: who may, whom, in which order, and what becomes of the room."""

import json

import msgspec
import pytest

from harness.objects import HOLDFAST, SIM, Raw, node, pod, reservation
from harness.scenarios import play
from harness.world import World
from holdfast.scheduler.framework.config import API_VERSION, KIND
from scheduler.reservations.preempting_reservations import (
    CAN_PREEMPT,
    GANG,
    PRIORITY,
    SOFT,
    SOFT_EVICTOR,
    SOFT_MODE,
    TRIO,
    budget,
    high,
    low,
    member,
    names,
    rsv,
)

SPARED = {"scheduling.koordinator.sh/disable-preemptible": "true"}


def in_gang(name: str, *groups: str) -> dict[str, str]:
    """The annotations of the one member of a gang that starts together with these."""
    listed = json.dumps([f"default/{each}" for each in groups])
    return {f"{GANG}name": name, f"{GANG}min-available": "1"} | (
        {f"{GANG}groups": listed} if groups else {}
    )


def partner(name: str, cpu: int) -> Raw:
    """A reservation that is a gang by itself."""
    return rsv(name, 0, cpu=str(cpu), annotations=in_gang(name))


# Who, and whom


@pytest.mark.parametrize(
    ("victim", "preemptor", "preempts"),
    [
        (low(), high(), True),
        (low(), high(can=""), False),
        (low(), high(can="false"), False),
        (low(), high(can="yes"), False),
        (low(), high(can="True"), False),
        (low(priority=10), high(), False),
        (low(priority=11), high(), False),
        (low(priority=9), high(), True),
        (low(priority=-5), high(priority=-4), True),
        (low(priority=None), high(), False),  # nobody's victim
        (low(priority=None), high(priority=None), False),
        (low(), high(priority=None), True),  # comes before everything
        (low(priority="many"), high(), False),
        (low(priority="2147483648"), high(), False),
        (low(priority="-2147483648"), high(), True),
        (low(priority="1.5"), high(priority=2147483646), False),
        (low(), high(priority="lots"), False),  # a mistake gives nobody the highest priority
        (low(priority=2147483646), high(priority="9999999999"), False),
        (low(), high(preAllocation=True), True),
        (low(allocateOnce=True), high(), True),
        (low(preAllocation=True), high(), True),
        (low(labels=SPARED), high(), False),
    ],
)
def test_only_who_says_so_preempts_and_only_the_less_important(
    victim: Raw, preemptor: Raw, preempts: bool
) -> None:
    world = World(node("n0", cpu="6"), victim).put(preemptor)
    assert names(world) == (["high"] if preempts else ["high", "low"])
    assert world.phase("high") == ("Available" if preempts else "Pending")


@pytest.mark.parametrize(
    ("groups", "others", "preempts"),
    [
        (["a"], [], True),
        (["a", "b"], [], False),
        (["a", "b"], [partner("b", 60)], False),
        (["a", "b"], [partner("b", 2)], True),
    ],
)
def test_a_gang_does_not_preempt_before_its_partners_are_ready(
    groups: list[str], others: list[Raw], preempts: bool
) -> None:
    world = World(node("n0", cpu="6"), low(), *others).put(high(annotations=in_gang("a", *groups)))
    assert world.phase("high") == ("Available" if preempts else "Pending")
    assert ("low" in names(world)) != preempts


def test_priority_of_the_template_comes_before_the_label() -> None:
    victim = low(priority=1, pod={"priority": 100})
    world = World(node("n0", cpu="6"), victim, high())
    assert (names(world), world.phase("high")) == (["high", "low"], "Pending")


def test_pods_are_nobodys_victims_but_their_reservations() -> None:
    world = World(node("n0", cpu="6"), pod("plain", cpu="4", priority=-100)).put(high())
    assert (names(world, "Pod"), world.phase("high")) == (["plain"], "Pending")
    assert world.condition("high", "Scheduled")["message"] == (
        "0/1 nodes are available: 1 Insufficient cpu. preemption: 0/1 nodes are available: "
        "1 No preemption victims found for incoming pod."
    )


@pytest.mark.parametrize("spared", [False, True])
def test_who_is_nobodys_victim_keeps_its_reservation(spared: bool) -> None:
    owner = pod("owner", cpu="1", metadata={"labels": {"app": "low"} | (SPARED if spared else {})})
    world = World(node("n0", cpu="6"), low()).put(owner).put(high())
    assert names(world) == (["high", "low"] if spared else ["high"])


def test_pods_preempt_no_reservation() -> None:
    world = World(node("n0", cpu="6"), low()).put(pod("big", cpu="4", priority=1000))
    assert (names(world), world.node_of("big")) == (["low"], "")


def test_capacity_preempted_for_a_pod_is_not_taken_by_a_reservation() -> None:
    world = World(node("n0", cpu="4"), pod("weak", cpu="4", priority=1))
    world.graceful = True
    world.put(pod("strong", cpu="4", priority=5))
    room = next(name for name in names(world) if name.startswith("preempted-for"))
    world.put(high())
    assert room in names(world) and world.phase("high") == "Pending"


def test_who_says_nothing_is_told_nothing_of_preemption() -> None:
    world = World(node("n0", cpu="6"), low()).put(high(can=""))
    assert world.condition("high", "Scheduled")["message"] == (
        "0/1 nodes are available: 1 Insufficient cpu."
    )


# Which of them


def test_as_many_as_possible_are_spared_the_most_important_first() -> None:
    lows = [low(f"low{i}", priority=i, cpu="2") for i in (1, 2, 3)]
    world = World(node("n0", cpu="6"), *lows).put(high(cpu="2"))
    assert names(world) == ["high", "low2", "low3"]
    world.put(high("higher", priority=11, cpu="3"))
    assert names(world) == ["high", "higher"]


@pytest.mark.parametrize(
    ("there", "gone"),
    [
        # The lowest of the most important victims,
        ({"n0": [5], "n1": [3]}, ["n1-0"]),
        # then the smallest sum of priorities,
        ({"n0": [3, 3], "n1": [3, 2]}, ["n1-0", "n1-1"]),
        # then the fewest.
        ({"n0": [-(2**31), -(2**31)], "n1": [-(2**31)]}, ["n1-0"]),
    ],
)
def test_the_node_is_chosen_where_victims_are_missed_least(
    there: dict[str, list[int]], gone: list[str]
) -> None:
    world = World(*(node(name, cpu="4") for name in there))
    for name, priorities in there.items():
        for i, priority in enumerate(priorities):
            cpu = "2" if len(priorities) > 1 else "4"
            world.put(low(f"{name}-{i}", priority, cpu=cpu, pod={"nodeName": name}))
    before = names(world)
    world.put(high(cpu="4"))
    assert sorted(set(before) - set(names(world))) == gone


def test_of_equals_the_youngest_go() -> None:
    world = World(node("n0", cpu="4"), node("n1", cpu="4"))
    for age, name in ((100, "n0"), (10, "n1")):
        made = low(name, pod={"nodeName": name})
        made["metadata"]["creationTimestamp"] = f"2025-12-31T23:{59 - age // 60:02}:00Z"
        world.put(made)
    world.put(high())
    assert names(world) == ["high", "n0"]


@pytest.mark.parametrize("nodes", [3, 1], ids=["of several nodes", "of one node"])
def test_of_equals_those_that_fewest_pods_use_go(nodes: int) -> None:
    world = World(*(node(f"n{i}", cpu="4" if nodes > 1 else "12") for i in range(nodes)))
    for i in range(3):
        world.put(low(f"low{i}", pod={"nodeName": f"n{i}"} if nodes > 1 else {}))
    for name, app in (("a", "low0"), ("b", "low0"), ("c", "low1"), ("d", "low2"), ("e", "low2")):
        world.put(pod(name, app=app, cpu="1"))
    world.put(high())
    assert names(world) == ["high", "low0", "low2"]
    assert names(world, "Pod") == ["a", "b", "d", "e"]


def test_disruption_budgets_are_minded_where_that_is_possible_and_else_told() -> None:
    world = World(node("n0", cpu="4"), node("n1", cpu="4"), budget(0, "n0"))
    for name in ("n0", "n1"):
        world.put(low(name, 1 if name == "n0" else 2, pod={"nodeName": name}))
        world.put(pod(f"in-{name}", app=name, cpu="2"))
    world.put(high())
    assert (names(world), names(world, "Pod")) == (["high", "n0"], ["in-n0"])
    world.put(high("too"))
    assert names(world) == ["high", "too"]
    told = [e.message for e in world.events if e.reason == "Preempting"]
    assert "violating PodDisruptionBudgets" in told[1] and "violating" not in told[0]


# What becomes of it


def test_pods_go_first_then_the_reservation_and_the_capacity_is_kept() -> None:
    world = World(node("n0", cpu="4"), low(cpu="3"), pod("owner", app="low", cpu="2"))
    world.graceful = True
    world.put(high(cpu="4"))
    assert names(world) == ["high", "low"]
    assert (world.phase("high"), world.status("high")["nodeName"]) == ("Waiting", "n0")
    assert (
        world.condition("high", "Ready")["message"]
        == "waiting for preempted reservations to be gone: low"
    )
    assert "deletionTimestamp" in world.objects["Pod", "owner"]["metadata"]
    world.put(pod("owner2", app="low", cpu="1"), pod("other", cpu="1", priority=10**9))
    assert (world.node_of("owner2"), world.node_of("other")) == ("", "")
    world.delete("Pod", "owner")
    assert (names(world), world.phase("high")) == (["high"], "Available")
    assert (world.node_of("owner2"), world.node_of("other")) == ("", "")


@pytest.mark.parametrize("mode", [None, SOFT_MODE])
def test_a_restart_in_the_middle_changes_nothing(mode: Raw | None) -> None:
    world = World(node("n0", cpu="4"), low(cpu="3"), pod("owner", app="low", cpu="2"), preemption=mode)
    world.graceful = True
    world.put(high(cpu="4"))
    world.restart()
    world.settle()
    assert world.phase("high") == "Waiting"
    world.put(pod("owner2", app="low", cpu="1"))
    assert world.node_of("owner2") == ""
    world.delete("Pod", "owner")
    if mode is not None:
        world.delete("Reservation", "low")
    assert (names(world), world.phase("high")) == (["high"], "Available")


@pytest.mark.parametrize("mode", [None, SOFT_MODE])
@pytest.mark.parametrize("kind", ["Pod", "Reservation"])
def test_a_preemptor_that_fits_beside_its_victims_waits_for_them_no_more(
    mode: Raw | None, kind: str
) -> None:
    """The victim lives; softly evicted, it is still said on it that it has to go."""
    other = pod("other", cpu="4") if kind == "Pod" else reservation("other", cpu="4")
    world = World(node("n0", cpu="8"), low(), pod("owner", app="low", cpu="2"), preemption=mode)
    world.graceful = True
    world.put(other).put(high(cpu="4"))
    assert world.phase("high") == "Waiting"
    world.delete(kind, "other")
    assert (world.phase("high"), world.phase("low")) == ("Available", "Available")
    if mode is None:
        world.delete("Pod", "owner")
        world.put(pod("owner2", app="low", cpu="4"))
        assert world.reservation_of("owner2") == "low"


def test_both_sides_are_told() -> None:
    world = World(node("n0", cpu="4"), low(), pod("owner", app="low", cpu="1")).put(high())
    told = {(str(e.about), e.reason): e.message for e in world.events}
    assert told["Reservation/high", "Preempting"] == "Preempting low on node n0"
    why = "Preempted by reservation high on node n0"
    assert told["Reservation/low", "Preempted"] == why
    assert told["Pod/default/owner", "Preempted"] == why


def test_a_preemptor_that_is_deleted_lets_its_victims_live() -> None:
    world = World(node("n0", cpu="4"), low(cpu="3"), pod("owner", app="low", cpu="2"))
    world.graceful = True
    world.put(high(cpu="4")).delete("Reservation", "high").delete("Pod", "owner")
    assert names(world) == ["low"]
    world.put(pod("owner2", app="low", cpu="3"))
    assert world.reservation_of("owner2") == "low"


def test_ports_are_free_only_once_the_victim_is_gone() -> None:
    world = World(node("n0"), low(cpu="1", pod={"ports": [80]}), pod("owner", app="low", cpu="1"))
    world.graceful = True
    world.put(high(cpu="1", pod={"ports": [80]}))
    assert (world.phase("high"), names(world)) == ("Waiting", ["high", "low"])
    world.delete("Pod", "owner")
    assert (world.phase("high"), names(world)) == ("Available", ["high"])


@pytest.mark.parametrize("eviction", ["Delete", "Soft"])
def test_a_reservation_that_was_used_up_in_the_same_round_is_no_victim(eviction: str) -> None:
    args = {"name": "ReservationPreemption", "args": {"eviction": eviction}}
    config = {"apiVersion": API_VERSION, "kind": KIND, "profiles": [{"pluginConfig": [args]}]}
    everyone: list[Raw] = [{"labelSelector": {}}]
    frees_enough = {
        "apiVersion": HOLDFAST,
        "kind": "PodMigrationJob",
        "metadata": {"name": "evicts", "annotations": {f"{SIM}at": "2s"}},
        "spec": {"podRef": {"namespace": "default", "name": "gone"}, "mode": "EvictDirectly"},
    }
    played = play(
        node("n1", 4),
        pod("gone", 1),
        pod("stays", 1),
        high(cpu="3", at="1s", owners=everyone, preAllocation=False),
        low(cpu="3", at="2s", owners=everyone, preAllocation=True, allocateOnce=True),
        pod("owner", 2, at="2s"),
        frees_enough,
        config=config,
        until=60,
    )
    assert played.times("owner") == [2]
    assert played.find("Pod", "owner")["status"]["phase"] == "Running"
    assert played.find("Reservation", "low")["status"]["phase"] == "Succeeded"


def _away_from(app: str) -> Raw:
    term = {"labelSelector": {"matchLabels": {"app": app}}, "topologyKey": "kubernetes.io/hostname"}
    rule = {"requiredDuringSchedulingIgnoredDuringExecution": [term]}
    return {"affinity": {"podAntiAffinity": rule}}


@pytest.mark.parametrize("has_owner", [True, False])
@pytest.mark.parametrize("whose", ["the preemptor's", "the victim's"])
def test_anti_affinity_is_met_only_once_the_victim_is_gone(whose: str, has_owner: bool) -> None:
    """However much is free beside it."""
    apart = [{}, _away_from("low")] if whose == "the preemptor's" else [_away_from("high"), {}]
    world = World(node("n0", cpu="8"), low(cpu="1", pod=apart[0]))
    if has_owner:
        world.put(pod("owner", app="low", cpu="1"))
    world.graceful = True
    world.put(high(cpu="1", pod=apart[1]))
    if has_owner:
        assert (world.phase("high"), names(world)) == ("Waiting", ["high", "low"])
        world.delete("Pod", "owner")
    assert (world.phase("high"), names(world)) == ("Available", ["high"])


def test_more_important_ones_come_before_those_that_wait() -> None:
    world = World(node("n0", cpu="4"), low(cpu="3"), pod("owner", app="low", cpu="2"))
    world.graceful = True
    world.put(high(cpu="4")).put(high("highest", priority=99, cpu="4"))
    assert world.phase("highest") == "Waiting" and "high" not in names(world)
    world.delete("Pod", "owner")
    assert (names(world), world.phase("highest")) == (["highest"], "Available")


def test_two_that_could_preempt_do_not_take_turns() -> None:
    world = World(node("n0", cpu="4"), high("a", priority=9990)).put(high("b", priority=9999))
    for _ in range(3):
        world.put(high("a", priority=9990)).wait(60)
        assert (world.phase("a"), world.phase("b")) == ("Pending", "Available")
    assert len([e for e in world.events if e.reason == "Preempted"]) == 1


def test_several_preemptors_take_several_victims() -> None:
    world = World(*(node(f"n{i}", cpu="4") for i in range(4)))
    world.put(*(low(f"low{i}") for i in range(4))).put(*(high(f"high{i}") for i in range(3)))
    assert [n for n in names(world) if n.startswith("high")] == ["high0", "high1", "high2"]
    assert all(world.phase(f"high{i}") == "Available" for i in range(3))
    assert len(names(world)) == 4


# Softly


def test_soft_eviction_is_written_on_the_reservation_and_the_rest_left_to_others() -> None:
    world = World(
        node("n0", cpu="4"), low(), pod("owner", app="low", cpu="1"), preemption=SOFT_MODE
    ).put(high())
    metadata = world.objects["Reservation", "low"]["metadata"]
    assert metadata["labels"][SOFT] == "true"
    assert msgspec.json.decode(metadata["annotations"][SOFT]) == {
        "timestamp": "2026-01-01T00:00:00Z",
        "initiator": "Reservation/high",
        "reason": "Preempted by reservation high on node n0",
    }
    assert (names(world, "Pod"), world.phase("high")) == (["owner"], "Waiting")
    world.put(pod("owner2", app="low", cpu="1")).wait(600)
    assert (world.node_of("owner2"), world.eviction_requests) == ("", [])
    world.delete("Pod", "owner").wait(60)
    assert world.phase("high") == "Waiting"
    world.delete("Reservation", "low")
    assert world.phase("high") == "Available"


def test_what_one_evicted_softly_leaves_goes_to_the_next_where_the_first_is_gone() -> None:
    world = World(
        node("n0", cpu="4"), low(), pod("owner", app="low", cpu="1"), preemption=SOFT_MODE
    ).put(high())
    world.delete("Reservation", "high").put(high("next"))
    assert world.phase("next") == "Waiting"
    world.delete("Pod", "owner").delete("Reservation", "low")
    assert world.phase("next") == "Available"


def test_soft_evictor_evicts_pods_and_then_deletes() -> None:
    world = World(node("n0", cpu="4"), low(), pod("owner", app="low", cpu="1"), preemption=SOFT_EVICTOR)
    world.graceful = True
    world.put(high())
    assert (world.eviction_requests, names(world)) == (["owner"], ["high", "low"])
    world.delete("Pod", "owner")
    assert (names(world), world.phase("high")) == (["high"], "Available")


def test_soft_evictor_asks_again_while_a_budget_forbids() -> None:
    world = World(node("n0", cpu="4"), low(), pod("owner", app="low", cpu="1"), preemption=SOFT_EVICTOR)
    world.protected.add("owner")
    world.put(high()).wait(12)
    assert (world.eviction_requests, names(world)) == (["owner"] * 3, ["high", "low"])
    world.protected.clear()
    world.wait(5)
    assert (names(world), world.phase("high")) == (["high"], "Available")


def test_soft_evictor_minds_whoever_set_the_label() -> None:
    made = low(labels={SOFT: "true"})
    assert names(World(node("n0"), made, preemption=SOFT_EVICTOR)) == []
    world = World(node("n0"), made).put(pod("owner", app="low"))
    assert (names(world), world.reservation_of("owner")) == (["low"], "")


# What makes no sense is told


@pytest.mark.parametrize(
    ("made", "reason", "message"),
    [
        (
            rsv("r", "high"),
            "InvalidPriority",
            f'metadata.labels[{PRIORITY}]: expected an integer of 32 bits, got "high"; '
            "it counts as not set, and the reservation does not preempt",
        ),
        (
            rsv("r", "99999999999"),
            "InvalidPriority",
            f'metadata.labels[{PRIORITY}]: expected an integer of 32 bits, got "99999999999"; '
            "it counts as not set, and the reservation does not preempt",
        ),
        (
            rsv("r", 1, can="maybe"),
            "InvalidCanPreempt",
            f'metadata.labels[{CAN_PREEMPT}]: expected "true" or "false", got "maybe"; '
            "it counts as not set",
        ),
        (
            member("r", TRIO, cpu="64"),
            "IncompleteGang",
            "gang trio has 1 of 3 reservations",
        ),
        (
            member("r", {"name": "trio"}, cpu="64"),
            "IncompleteGang",
            "the number of reservations of gang trio is not known",
        ),
    ],
)
def test_what_makes_no_sense_is_told_on_the_object_once(made: Raw, reason: str, message: str) -> None:
    world = World(node("n0"), made)
    world.edit("Reservation", "r", metadata__annotations__x="y")
    world.wait(30)
    told = [(e.type, e.message) for e in world.events if e.reason == reason]
    assert told == [("Warning", message)]
