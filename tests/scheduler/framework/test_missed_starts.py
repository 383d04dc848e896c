"""Reservations that may miss their start: what they leave to others, whom they evict, what is said."""

from typing import Any

import pytest

from harness.device_objects import device, gpu
from harness.objects import Raw, node, pod
from harness.scenarios import Played, actions, condition, play, step
from holdfast.api.times import format_time
from scheduler.framework.test_calendar_planner import (
    BEGIN,
    HOUR,
    LIMITED,
    ending,
    node_of,
    plan,
    starts,
    window,
    with_limit,
)

PREEMPT = {"holdfast.io/before-start": "Preempt"}


def said(played: Played, name: str, reason: str) -> list[str]:
    """The messages of events about a reservation."""
    return [
        raw["message"]
        for raw in played.all("Event")
        if raw["reason"] == reason and raw["involvedObject"]["name"] == name
    ]


def lead(minutes: int, **more: str) -> dict[str, str]:
    return {"holdfast.io/lead": f"{minutes}m", **more}


# What plans leave to each other


@pytest.mark.parametrize("before", ["Backfill", "Drain", "Preempt"])
def test_a_start_leaves_a_certain_plan_of_higher_priority_its_capacity(before: str) -> None:
    terms = lead(90, **{"holdfast.io/before-start": before})
    given = [
        node("n0", 8),
        pod("p", 2, nodeName="n0", priority=5000),
        window("hi", 120, 4, annotations=terms, pod={"priority": 1000}, at="1m"),
        window("lo", 60, 4, 240, pod={"priority": 10}, at="2m"),
    ]
    played = play(given, until=150 * 60)
    assert starts(played, "hi") == [(2 * HOUR, "Available")]
    assert (HOUR, "Available") not in starts(played, "lo")
    assert said(played, "lo", "StartMissed")


@pytest.mark.parametrize("restarts", [False, True])
@pytest.mark.parametrize("start", [55, 60])
def test_a_certain_plan_that_drains_its_node_is_kept_from_a_later_one(
    start: int, restarts: bool
) -> None:
    """The later one has a higher priority, and was told that it does not fit."""
    given = [
        node("n0", 8),
        window("planned", 60, 8, annotations=lead(30), pod={"priority": 1}),
        window("late", start, 2, at="45m"),
    ]
    restart = [step("50m", restart="scheduler")] if restarts else []
    assert plan(play(given, restart, until=52 * 60), "late")[1] == "False"
    played = play(given, restart, until=90 * 60)
    assert starts(played, "planned") == [(HOUR, "Available")]
    assert starts(played, "late") == []


def test_a_start_of_higher_priority_does_not_wait_for_plans_of_lower_priority() -> None:
    given = [
        node("n0", 8),
        pod("p", 6, nodeName="n0", runs_for="90m"),
        window("lo", 120, 4, pod={"priority": 10}, at="1m"),
        window("hi", 60, 8, 240, pod={"priority": 1000}, at="2m"),
    ]
    played = play(given, until=150 * 60)
    assert starts(played, "hi") == [(HOUR, "Waiting"), (90 * 60, "Available")]


def test_pods_that_request_nothing_leave_planned_slots_free() -> None:
    small = node("n0", 8, allocatable={"pods": "1"})
    idle = pod("p", at="5m")
    del idle["spec"]["containers"][0]["resources"]
    given = [small, window("w", 60), idle]
    played = play(given, until=70 * 60)
    assert starts(played, "w") == [(HOUR, "Available")]
    assert played.times("p") == [None]


@pytest.mark.parametrize("late", ["late", "two", "without a volume"])
@pytest.mark.parametrize("priority", [None, 5000])
def test_a_late_start_with_a_volume_leaves_a_certain_plan_its_capacity(
    late: str, priority: int | None
) -> None:
    """That of the plan, which has none."""
    disk = {"volumes": [{"name": "v", "gcePersistentDisk": {"pdName": "disk"}}]}
    spec: Raw = {} if late == "without a volume" else disk
    if priority is not None:
        spec = {**spec, "priority": priority}
    names = ["late", "other"] if late == "two" else ["late"]
    given = [
        node("n0", 4),
        window("certain", 35, 2, annotations=lead(10)),
        *(window(name, 34, 4, 600, at="26m", pod=spec) for name in names),
    ]
    played = play(given, until=150 * 60)
    assert starts(played, "certain")[0] == (35 * 60, "Available")
    assert all(at >= 95 * 60 for name in names for at, _ in starts(played, name))


# Late reservations


def restart_at(minutes: int | None) -> list[Raw]:
    return [] if minutes is None else [step(f"{minutes}m", restart="scheduler")]


def cordoned(name: str, first: int, last: int) -> list[Raw]:
    """Keeps a node cordoned between two minutes."""
    return [
        step(
            f"{at}m", patch={"kind": "Node", "name": name, "merge": {"spec": {"unschedulable": is_set}}}
        )
        for at, is_set in ((first, True), (last, False))
    ]


@pytest.mark.parametrize("restart", [None, 61])
@pytest.mark.parametrize("before", ["Backfill", "Drain", "Preempt"])
@pytest.mark.parametrize(("length", "phase"), [(44, "Available"), (80, None)])
def test_a_late_reservation_may_end_before_another_one_starts(
    length: int, phase: str | None, before: str, restart: int | None
) -> None:
    given = [
        node("n0", 4),
        window("late", 35, 4, length, at="8m"),
        window("next", 95, 2, annotations={"holdfast.io/before-start": before}, at="43m"),
    ]
    played = play(given, cordoned("n0", 9, 50), restart_at(restart), until=62 * 60)
    assert starts(played, "late") == ([] if phase is None else [(50 * 60, phase)])
    assert node_of(played, "next") == "n0"


@pytest.mark.parametrize("restart", [None, 61])
def test_late_reservations_of_one_class_start_if_they_end_in_time(restart: int | None) -> None:
    long, short = window("long", 35, 4, 90, at="8m"), window("short", 35, 4, 40, at="8m")
    short["spec"] = {**long["spec"], "ttl": "40m"}
    given = [
        node("n0", 8),
        *(long, short),
        *(in_gang(window(name, 35, 2, 40, at="8m")) for name in ("g1", "g2")),
        window("next", 95, 5, annotations=PREEMPT, at="43m"),
    ]
    played = play(given, cordoned("n0", 9, 50), restart_at(restart), until=62 * 60)
    assert {name: starts(played, name) for name in ("long", "short", "g1", "g2")} == {
        "long": [],
        "short": [(50 * 60, "Available")],
        "g1": [(50 * 60, "Available")],
        "g2": [(50 * 60, "Available")],
    }


# Plans that can no longer be met


def test_a_plan_that_drains_its_node_moves_if_the_node_becomes_too_small() -> None:
    shrunk = {"status": {"allocatable": {"cpu": "4"}}}
    given: list[Raw] = [
        node("n0", 8),
        node("n1", 8),
        window("w", 120, 8, annotations=lead(30)),
        step("100m", patch={"kind": "Node", "name": "n0", "merge": shrunk}),
        pod("p", 4, at="105m"),
    ]
    played = play(given, until=130 * 60)
    assert starts(played, "w") == [(2 * HOUR, "Available")]
    assert node_of(played, "w") == "n1"


@pytest.mark.parametrize("restarts", [False, True])
def test_a_start_that_is_moved_to_later_ends_draining(restarts: bool) -> None:
    later = {"metadata": {"annotations": {"holdfast.io/starts-at": format_time(BEGIN + 10 * HOUR)}}}
    terms = lead(30, **{"holdfast.io/before-start": "Drain"})
    given: list[Raw] = [
        node("n0", 8),
        window("w", 60, 8, annotations=terms),
        step("40m", patch={"kind": "Reservation", "name": "w", "merge": later}),
        pod("p", 8, at="45m", runs_for="1h"),
    ]
    if restarts:
        given.append(step("42m", restart="scheduler"))
    assert play(given, until=2 * HOUR).times("p") == [45 * 60]


# Preempt from the start on


def in_the_way(**more: Any) -> list[Raw]:
    return [node("n0", 8), pod("svc", 6, nodeName="n0", **more)]


@pytest.mark.parametrize("restarts", [False, True])
def test_preempt_without_a_lead_evicts_at_the_start(restarts: bool) -> None:
    given = [*in_the_way(stops_in="20s"), window("w", 60, 8, annotations=PREEMPT, at="1m")]
    if restarts:
        given.append(step("3610s", restart="scheduler"))
    played = play(given, until=70 * 60)
    assert starts(played, "w") == [(HOUR, "Waiting"), (HOUR + 20, "Available")]


def test_a_refused_eviction_is_tried_again_after_the_start_and_said_once() -> None:
    budget = {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": {"name": "b", "namespace": "default"},
        "spec": {"minAvailable": 1, "selector": {"matchLabels": {"app": "svc"}}},
    }
    given: list[Raw] = [
        *in_the_way(labels={"app": "svc"}),
        budget,
        window("w", 60, 8, annotations=lead(5, **PREEMPT), at="1m"),
        step("65m", delete={"kind": "PodDisruptionBudget", "name": "b"}),
    ]
    played = play(given, until=70 * 60)
    phases = starts(played, "w")
    assert phases[0] == (HOUR, "Waiting")
    assert phases[1][1] == "Available" and 65 * 60 <= phases[1][0] <= 65 * 60 + 5
    assert len(said(played, "svc", "Preempted")) == 1


def test_a_reservation_created_after_its_start_evicts_too() -> None:
    played = play(*in_the_way(), window("w", 10, 8, annotations=PREEMPT, at="20m"), until=30 * 60)
    assert starts(played, "w")[-1] == (20 * 60, "Available")


@pytest.mark.parametrize(("priority", "evicts"), [(None, False), (2**31 - 2, True)])
def test_critical_pods_go_only_for_a_stated_higher_priority(priority: int | None, evicts: bool) -> None:
    more: dict[str, Any] = {} if priority is None else {"pod": {"priority": priority}}
    given = [*in_the_way(priority=2000001000), window("w", 60, 8, annotations=PREEMPT, at="1m", **more)]
    played = play(given, until=70 * 60)
    assert (starts(played, "w")[-1] == (HOUR, "Available")) is evicts


# What is said


def test_a_start_that_is_missed_is_said() -> None:
    late = {"holdfast.io/run-estimate": "30m"}
    given = [node("n0", 8), pod("p", 8, nodeName="n0", annotations=late), window("w", 60, 8, at="1m")]
    played = play(given, until=70 * 60)
    text = "n0: 8 cpu short at 2026-01-01T01:00:00Z"
    assert said(played, "w", "StartMissed") == [text]
    assert said(played, "w", "NotCertain") == [f"{text}, unless default/p ends by then"]
    assert plan(play(given, until=600), "w") == ("n0", "True")


def test_a_start_is_missed_once_however_often_the_scheduler_restarts() -> None:
    given = [node("n0", 8), window("w", 60, 16, at="1m")]
    restarts = [step("70m", restart="scheduler"), step("80m", restart="scheduler")]
    larger = step("85m", apply=node("n0", 16))
    played = play(given, [*restarts, larger], until=90 * 60)
    assert said(played, "w", "StartMissed") == [
        "no node has its capacity at its start: n0: 8 cpu short at 2026-01-01T01:00:00Z"
    ]
    assert starts(played, "w") == [(85 * 60, "Available")]


# Starvation holds beside plans


@pytest.mark.parametrize("backfill", [False, "conservative", "easy"])
def test_a_starving_pod_runs_before_a_plan_if_it_ends_in_time(backfill: str | bool) -> None:
    """Its own hold, which waits because of the plan, is not in its way; nor in that of a pod that ends
    before the starving one starts."""
    reserve: dict[str, Any] = {
        "starvingJobTimeThreshold": "10m",
        "reservedNodePercent": 100,
        "hold": "amount",
    }
    estimates = {minutes: {"holdfast.io/run-estimate": f"{minutes}m"} for minutes in (20, 30, 60)}
    given = [
        node("n0", 8),
        pod("run", 6, nodeName="n0", runs_for="1h", annotations=estimates[60]),
        pod("big", 8, at="1m", runs_for="30m", annotations=estimates[30]),
        window("w", 120, 8, at="30m"),
        pod("small", 2, at="32m", runs_for="20m", annotations=estimates[20]),
    ]
    config = actions("allocate", "backfill", **reserve, backfill=backfill)
    played = play(given, until=4 * HOUR, config=config)
    assert played.times("big") == [HOUR]
    assert played.times("small") == [32 * 60 if backfill else 90 * 60]
    assert starts(played, "w")[0] == (2 * HOUR, "Available")


def in_gang(raw: Raw) -> Raw:
    raw["metadata"]["annotations"] |= {
        "gang.scheduling.koordinator.sh/name": "w",
        "gang.scheduling.koordinator.sh/min-available": "2",
    }
    return raw


@pytest.mark.parametrize("restarts", [False, True])
@pytest.mark.parametrize("hold", ["node", "amount"])
@pytest.mark.parametrize("cpu", [6, 12])  # what the starving pod requests: part of the node, or all
def test_a_gang_with_several_starts_comes_before_a_starvation_hold(
    cpu: int, hold: str, restarts: bool
) -> None:
    given = [
        node("n0", 12),
        pod("run", 8),
        pod("starving", cpu),
        in_gang(window("w1", 20, 1)),
        in_gang(window("w2", 40, 1)),
    ]
    reserve = {"starvingJobTimeThreshold": "5m", "reservedNodePercent": 100, "hold": hold}
    restart = [step("30m", restart="scheduler")] if restarts else []
    played = play(given, restart, config=actions("allocate", "backfill", **reserve), until=HOUR)
    assert [starts(played, name)[0] for name in ("w1", "w2")] == [(40 * 60, "Available")] * 2


def test_a_member_without_a_node_does_not_keep_enough_others_from_starting() -> None:
    first, second = in_gang(window("w1", 20, 13)), in_gang(window("w2", 40, 1))
    for each in (first, second):
        each["metadata"]["annotations"]["gang.scheduling.koordinator.sh/min-available"] = "1"
    played = play(node("n0", 12), first, second, until=HOUR)
    assert starts(played, "w1") == []
    assert starts(played, "w2")[0] == (40 * 60, "Available")


@pytest.mark.parametrize("restarts", [False, True])
@pytest.mark.parametrize("hold", ["node", "amount"])
@pytest.mark.parametrize("is_limited", [False, True])
@pytest.mark.parametrize("cpu", [6, 12])  # what the starving pod requests: part of the node, or all
@pytest.mark.parametrize(("wanted", "phase"), [(1, "Available"), (12, "Waiting")])
def test_a_reservation_that_is_late_comes_before_a_starvation_hold(
    wanted: int, phase: str, cpu: int, is_limited: bool, hold: str, restarts: bool
) -> None:
    """At its start no node passes its node selector; later the node with the hold does. `run` ends
    after that."""
    given = [
        node("n0", 12, annotations=LIMITED if is_limited else {}),
        pod("run", 8, runs_for="50m"),
        pod("starving", cpu),
        window("w", 20, wanted, pod={"nodeSelector": {"disk": "ssd"}}),
    ]
    if is_limited:
        with_limit(given[2], cpu)
        with_limit(given[3], wanted)
    reserve = {"starvingJobTimeThreshold": "5m", "reservedNodePercent": 100, "hold": hold}
    labelled = {"kind": "Node", "name": "n0", "merge": {"metadata": {"labels": {"disk": "ssd"}}}}
    restart = [step("31m", restart="scheduler")] if restarts else []
    later = [step("30m", patch=labelled), *restart]
    played = play(given, later, config=actions("allocate", "backfill", **reserve), until=HOUR)
    assert starts(played, "w")[0] == (30 * 60, phase)


STARVES = {"starvingJobTimeThreshold": "5m", "reservedNodePercent": 100}


@pytest.mark.parametrize("restarts", [False, True])
@pytest.mark.parametrize("hold", ["node", "amount"])
@pytest.mark.parametrize("is_limited", [False, True])
@pytest.mark.parametrize(
    ("nodes", "at"),
    [
        pytest.param(4, ["n1", "n2", "n3"], id="nodes without a hold for all"),
        pytest.param(3, ["n1", "n2", "n0"], id="for the last one only the node with the hold"),
    ],
)
def test_late_reservations_leave_a_starvation_hold_its_node_while_others_are_as_good(
    nodes: int, at: list[str], is_limited: bool, hold: str, restarts: bool
) -> None:
    annotations = LIMITED if is_limited else {}
    late = [window(f"w{i}", 20 + 5 * i, 12, at="1m") for i in range(3)]
    starving = pod("starving", 9, at="1m")
    if is_limited:
        for raw in [*late, starving]:
            with_limit(raw, 9 if raw is starving else 12)
    given = [node(f"n{i}", 12, annotations=annotations) for i in range(nodes)]
    given += [ending(f"run{i}", 9, 50, nodeName=f"n{i}") for i in range(nodes)]
    restart = [step("22m", restart="scheduler")] if restarts else []
    config = actions("allocate", "backfill", **STARVES, hold=hold)
    played = play([*given, starving, *late], restart, config=config, until=HOUR)
    assert [node_of(played, f"w{i}") for i in range(3)] == at
    if "n0" not in at:
        assert played.bound()["starving"] == (50 * 60, "n0")


def template_of(raw: Raw) -> Raw:
    """The pod spec of a pod or a reservation."""
    spec: Raw = raw["spec"]["template"]["spec"] if raw["kind"] == "Reservation" else raw["spec"]
    return spec


def wants_gpus(raw: Raw, count: int) -> None:
    template_of(raw)["containers"][0]["resources"]["requests"]["nvidia.com/gpu"] = str(count)


def wants_port(raw: Raw) -> None:
    template_of(raw)["containers"][0]["ports"] = [{"containerPort": 80, "hostPort": 80}]


def wants_disk(raw: Raw) -> None:
    template_of(raw)["volumes"] = [{"name": "v", "gcePersistentDisk": {"pdName": "disk"}}]


@pytest.mark.parametrize("restart", [None, 25, 31])
@pytest.mark.parametrize("hold", ["node", "amount"])
@pytest.mark.parametrize("wanted", ["GPUs", "port", "disk"])
def test_a_late_reservation_gets_what_a_starvation_hold_waits_for(
    wanted: str, hold: str, restart: int | None
) -> None:
    """Of two GPUs `run` has one, and `starving` needs both. At the start of `w` no node passes its node
    selector; the restart comes before one does, or after."""
    given = [node("n0", 12), pod("run", 8, runs_for="50m"), pod("starving", 6)]
    late = window("w", 20, 1, pod={"nodeSelector": {"disk": "ssd"}})
    if wanted == "GPUs":
        for raw, count in ((given[1], 1), (given[2], 2), (late, 1)):
            wants_gpus(raw, count)
        given.append(device("n0", gpu(0), gpu(1)))
    else:
        for raw in (given[2], late):
            wants_port(raw) if wanted == "port" else wants_disk(raw)
    labelled = {"kind": "Node", "name": "n0", "merge": {"metadata": {"labels": {"disk": "ssd"}}}}
    config = actions("allocate", "backfill", **STARVES, hold=hold)
    later = [step("30m", patch=labelled), *restart_at(restart)]
    played = play(given, late, later, config=config, until=HOUR)
    assert starts(played, "w")[-1] == (30 * 60, "Available")


@pytest.mark.parametrize(("free", "at"), [(3, "n0"), (8, "n1")])
def test_a_late_reservation_starts_at_once_rather_than_wait_beside_a_hold(free: int, at: str) -> None:
    """It fits on n0 now if it displaces the hold; on n1 now, or once `other` has ended."""
    ssd = {"metadata": {"labels": {"disk": "ssd"}}}
    given = [
        node("n0", 12),
        node("n1", 12),
        pod("run", 4, nodeName="n0", runs_for="50m"),
        pod("other", 12 - free, nodeName="n1", runs_for="2h"),
        pod("starving", 12, at="1m"),
        window("w", 20, 8, pod={"nodeSelector": {"disk": "ssd"}}),
    ]
    labelled = [
        step("30m", patch={"kind": "Node", "name": name, "merge": ssd}) for name in ("n0", "n1")
    ]
    config = actions("allocate", "backfill", **STARVES, hold="node")
    played = play(given, labelled, config=config, until=HOUR)
    assert node_of(played, "w") == at
    assert starts(played, "w")[0] == (30 * 60, "Available")


def test_a_plan_is_made_beside_a_starvation_hold_where_it_can_be() -> None:
    """The node of the hold has less to spare."""
    given = [
        node("n0", 8),
        node("n1", 12),
        pod("run", 4, nodeName="n0", runs_for="2h"),
        pod("other", 8, nodeName="n1", runs_for="50m"),
        pod("starving", 8, at="1m", nodeSelector={"kubernetes.io/hostname": "n0"}),
        window("w", 60, 4, at="10m"),
    ]
    config = actions("allocate", "backfill", **STARVES, hold="amount")
    played = play(given, config=config, until=30 * 60)
    assert plan(played, "w") == ("n1", "True")


@pytest.mark.parametrize("restarts", [False, True])
@pytest.mark.parametrize("edits", [False, True], ids=["labelled", "edited"])
def test_a_late_reservation_whose_template_is_edited_leaves_a_certain_plan_its_capacity(
    edits: bool, restarts: bool
) -> None:
    """Until then no node passes its node selector."""
    late = window("late", 20, 4, pod={"nodeSelector": {"disk": "ssd"}})
    given = [node("n0", 12), late, window("certain", 60, 12)]
    template = {"template": {"spec": {"nodeSelector": {"disk": None}}}}
    edited = {"kind": "Reservation", "name": "late", "merge": {"spec": template}}
    labelled = {"kind": "Node", "name": "n0", "merge": {"metadata": {"labels": {"disk": "ssd"}}}}
    restart = [step("25m", restart="scheduler")] if restarts else []
    change = step("30m", patch=edited if edits else labelled)
    played = play(given, restart, change, until=70 * 60)
    assert starts(played, "late") == []
    assert starts(played, "certain") == [(HOUR, "Available")]


# Owners that are evicted at the end of an earlier reservation


def budget(name: str, allowed: int, app: str = "") -> Raw:
    """For the pods of an app, or for all."""
    selector = {"matchLabels": {"app": app}} if app else {}
    return {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {"selector": selector, "maxUnavailable": allowed},
    }


def shared_with_late() -> list[Raw]:
    terms = {"holdfast.io/at-end": "Evict"}
    return [
        node("n0", 8),
        window("early", 10, 8, 50, annotations=terms, allocateOnce=False),
        pod("one", 4, app="early", at="11m"),
        pod("two", 4, app="early", at="11m"),
        window("late", 60, 8, at="12m"),
    ]


@pytest.mark.parametrize(
    ("budgets", "message"),
    [
        ([], ""),
        ([budget("b", 2, "early")], ""),
        ([budget("b", 0, "other")], ""),
        ([budget("b", 1, "early")], "8 cpu short at {}, unless default/one, default/two end by then"),
        ([budget("b", 0)], "8 cpu short at {}, unless default/one, default/two end by then"),
        (
            [budget("b", 2, "early"), budget("c", 2, "early")],
            "8 cpu short at {}, unless default/one, default/two end by then",
        ),
    ],
)
def test_a_plan_does_not_count_on_an_eviction_that_a_budget_refuses(
    budgets: list[Raw], message: str
) -> None:
    played = play(shared_with_late(), budgets, until=30 * 60)
    found = condition(played.find("Reservation", "late"), "Feasible")
    assert found["status"] == ("Unknown" if message else "True")
    text = message.format("2026-01-01T01:00:00Z")
    assert found.get("message", "") == (f"n0: {text}" if message else "")


@pytest.mark.parametrize("allowed", [0, 2])
def test_a_plan_is_certain_once_the_budget_allows_the_evictions(allowed: int) -> None:
    merge = {"spec": {"maxUnavailable": allowed}}
    change = step("40m", patch={"kind": "PodDisruptionBudget", "name": "b", "merge": merge})
    given = [*shared_with_late(), budget("b", 1, "early"), change]
    assert plan(play(given, until=45 * 60), "late") == ("n0", "True" if allowed else "Unknown")
    found = starts(play(given, until=70 * 60), "late")
    assert found == [(HOUR, "Waiting"), *([(HOUR, "Available")] if allowed else [])]


def test_a_plan_moves_from_a_node_where_an_eviction_is_refused() -> None:
    more = [budget("b", 0, "early"), step("20m", apply=node("n1", 8))]
    assert plan(play(shared_with_late(), more, until=30 * 60), "late") == ("n1", "True")


@pytest.mark.parametrize("large", ["one", "two"])
def test_a_plan_does_not_depend_on_which_owner_is_evicted_first(large: str) -> None:
    given = shared_with_late()
    given[2:5] = [
        pod("one", 6 if large == "one" else 2, app="early", at="11m"),
        pod("two", 6 if large == "two" else 2, app="early", at="12m"),
        window("late", 60, 6, at="13m"),
    ]
    played = play(given, budget("b", 1, "early"), until=50 * 60)
    assert plan(played, "late") == ("n0", "Unknown")


@pytest.mark.parametrize("restarts", [False, True])
@pytest.mark.parametrize(
    ("other_end", "certain"),
    [(60, (False, False)), (70, (True, False)), (50, (False, True))],
    ids=["at the same time", "later", "earlier"],
)
def test_an_eviction_that_a_budget_allows_is_counted_once(
    other_end: int, certain: tuple[bool, bool], restarts: bool
) -> None:
    """Owners of two reservations on two nodes share a budget."""
    terms = {"holdfast.io/at-end": "Evict"}
    given = [
        node("n0", 8),
        node("n1", 8),
        window("e0", 10, 8, 50, annotations=terms, allocateOnce=False, pod={"nodeName": "n0"}),
        window("e1", 10, 8, other_end - 10, annotations=terms, allocateOnce=False),
        pod("one", 8, app="e0", at="11m"),
        pod("two", 8, app="e1", at="11m"),
        window("p0", 60, 8, at="12m"),
        window("p1", 70, 8, at="13m"),
    ]
    shared = budget("b", 1)
    shared["spec"]["selector"] = {"matchExpressions": [{"key": "app", "operator": "Exists"}]}
    restart = [step("20m", restart="scheduler")] if restarts else []
    played = play(given, shared, restart, until=30 * 60)
    states = [plan(played, name) for name in ("p0", "p1")]
    by_node = {node: state == "True" for node, state in states}
    assert (by_node["n0"], by_node["n1"]) == certain


# Budgets of pods that are to be evicted before the start


def protected(*pods: tuple[str, int], nodes: int = 1) -> list[Raw]:
    """Nodes, and pods without a known end that end as soon as they are evicted; those of a budget have
    its name as app."""
    given = [node(f"n{i}", 8) for i in range(nodes)]
    for i, (app, cpu) in enumerate(pods):
        given.append(pod(f"{app}-{i}", cpu, app=app, nodeName=f"n{i % nodes}", priority=-1))
    return given


@pytest.mark.parametrize("restarts", [False, True])
@pytest.mark.parametrize(
    ("pods", "budgets", "message"),
    [
        ([("svc", 6)], [], ""),
        ([("svc", 6)], [budget("b", 1, "svc")], ""),
        ([("svc", 6)], [budget("b", 0, "other")], ""),
        ([("svc", 6)], [budget("b", 0, "svc")], "default/svc-0 is evicted"),
        ([("svc", 3), ("svc", 3)], [budget("b", 1, "svc")], "default/svc-1 is evicted"),
        ([("svc", 6)], [budget("b", 2, "svc"), budget("c", 2, "svc")], "default/svc-0 is evicted"),
        ([("svc", 3), ("web", 3)], [budget("b", 0, "svc")], "default/svc-0 is evicted"),
    ],
)
def test_a_plan_that_evicts_is_not_certain_if_a_budget_refuses_that(
    pods: list[tuple[str, int]], budgets: list[Raw], message: str, restarts: bool
) -> None:
    restart = [step("5m", restart="scheduler")] if restarts else []
    wanted = window("w", 60, 8, annotations=PREEMPT, at="1m")
    played = play(protected(*pods), budgets, wanted, restart, until=600)
    found = condition(played.find("Reservation", "w"), "Feasible")
    assert (plan(played, "w")[0], found["status"]) == ("n0", "Unknown" if message else "True")
    assert f"unless {message}, which a PodDisruptionBudget" in found["message"] or not message


def test_a_plan_evicts_the_pods_that_no_budget_protects() -> None:
    given = protected(("svc", 4), ("web", 4))
    wanted = window("w", 60, 4, annotations=PREEMPT, at="1m")
    played = play(given, budget("b", 0, "svc"), wanted, until=61 * 60)
    assert plan(play(given, budget("b", 0, "svc"), wanted, until=600), "w") == ("n0", "True")
    assert starts(played, "w") == [(HOUR, "Waiting"), (HOUR, "Available")]
    assert [raw["metadata"]["name"] for raw in played.all("Pod")] == ["svc-0"]


def test_a_plan_prefers_a_node_where_no_budget_refuses_evictions() -> None:
    given = protected(("svc", 6), ("web", 7), nodes=2)
    wanted = window("w", 60, 8, annotations=PREEMPT, at="1m")
    assert plan(play(given, budget("b", 0, "svc"), wanted, until=600), "w") == ("n1", "True")


@pytest.mark.parametrize("restarts", [False, True])
@pytest.mark.parametrize("allowed", [1, 2])
def test_two_plans_do_not_count_on_the_same_eviction(allowed: int, restarts: bool) -> None:
    given = protected(("svc", 6), ("svc", 6), nodes=2)
    both = [window(name, 60, 8, annotations=PREEMPT, at="1m") for name in ("w1", "w2")]
    restart = [step("5m", restart="scheduler")] if restarts else []
    played = play(given, budget("b", allowed, "svc"), both, restart, until=600)
    certain = [plan(played, name)[1] for name in ("w1", "w2")]
    assert certain == ["True", "True" if allowed == 2 else "Unknown"]


def test_a_plan_is_certain_once_a_budget_allows_its_evictions() -> None:
    merge = {"spec": {"maxUnavailable": 1}}
    change = step("5m", patch={"kind": "PodDisruptionBudget", "name": "b", "merge": merge})
    given = [*protected(("svc", 6)), budget("b", 0, "svc"), change]
    wanted = window("w", 60, 8, annotations=lead(10, **PREEMPT), at="1m")
    assert plan(play(given, wanted, until=200), "w") == ("n0", "Unknown")
    assert plan(play(given, wanted, until=600), "w") == ("n0", "True")
    assert starts(play(given, wanted, until=61 * 60), "w") == [(HOUR, "Available")]


def test_evictions_are_tried_though_a_budget_refuses_them_when_the_plan_is_made() -> None:
    gone = step("55m", delete={"kind": "PodDisruptionBudget", "name": "b"})
    wanted = window("w", 60, 8, annotations=lead(10, **PREEMPT), at="1m")
    played = play(protected(("svc", 6)), budget("b", 0, "svc"), wanted, gone, until=61 * 60)
    assert starts(played, "w") == [(HOUR, "Available")]


@pytest.mark.parametrize("restarts", [False, True])
def test_a_start_gets_the_device_that_a_starvation_hold_waits_for(restarts: bool) -> None:
    """`starving` waits for one that the plans leave; the hold is older than the second plan."""
    given: list[Raw] = [
        node("n0", 12),
        device("n0", gpu(0), gpu(1)),
        pod("run"),
        window("w1", 20, 1, 10),
        pod("starving", at="1m"),
        window("w2", 40, 1, 10, at="25m"),
    ]
    for raw, share in ((given[2], 60), (given[3], 60), (given[4], 100), (given[5], 60)):
        template_of(raw)["containers"][0]["resources"]["requests"]["koordinator.sh/gpu"] = str(share)
    restart = [step("30m", restart="scheduler")] if restarts else []
    config = actions("allocate", "backfill", **STARVES, hold="node")
    played = play(given, restart, config=config, until=HOUR)
    for name, start in (("w1", 20), ("w2", 40)):
        assert starts(played, name)[0] == (start * 60, "Available")
        assert said(played, name, "StartMissed") == []
