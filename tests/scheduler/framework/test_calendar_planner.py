"""Plans of reservations with a start: limits, starts on other nodes than planned, gangs."""

import re
from typing import Any

import pytest

from harness.objects import Raw, gang, node, pod, pod_group, reservation
from harness.scenarios import Played, actions, condition, play, step
from holdfast.api.times import format_time, parse_time

BEGIN = parse_time("2026-01-01T00:00:00Z")
HOUR = 3600
LIMITED = {"node.koordinator.sh/limit-to-allocatable": '{"cpu": 100}'}


def window(name: str, start: int, cpu: int = 4, length: int = 60, **more: Any) -> Raw:
    annotations = {"holdfast.io/starts-at": format_time(BEGIN + start * 60)}
    annotations |= more.pop("annotations", {})
    return reservation(name, cpu, name, annotations=annotations, ttl=f"{length}m", **more)


def with_limit(raw: Raw, cpu: int) -> Raw:
    spec = raw["spec"]["template"]["spec"] if raw["kind"] == "Reservation" else raw["spec"]
    spec["containers"][0]["resources"]["limits"] = {"cpu": str(cpu)}
    return raw


def node_of(played: Played, name: str) -> str:
    return played.find("Reservation", name)["status"].get("nodeName") or ""


def plan(played: Played, name: str) -> tuple[str, str]:
    found = played.find("Reservation", name)
    return node_of(played, name), condition(found, "Feasible")["status"]


def starts(played: Played, name: str) -> list[tuple[float, str]]:
    return played.events(f"Reservation/{name}", "Available", "Waiting", "Failed")


# Limits


def burst(name: str = "burst", minutes: int | None = None, **more: Any) -> Raw:
    """A pod with little requested and a limit of 8."""
    if minutes is not None:
        more |= {"annotations": {"holdfast.io/run-estimate": f"{minutes}m"}, "runs_for": f"{minutes}m"}
    return with_limit(pod(name, 1, **more), 8)


def test_a_node_without_enough_limit_at_the_start_is_not_planned() -> None:
    nodes = [node("n0", 8, annotations=LIMITED), node("n1", 16, annotations=LIMITED)]
    planned = with_limit(window("w", 60, at="1m"), 4)
    played = play(nodes, burst(nodeName="n0"), planned, until=70 * 60)
    assert starts(played, "w") == [(HOUR, "Available")]
    assert played.find("Reservation", "w")["status"]["nodeName"] == "n1"


def test_a_limit_that_may_not_be_free_is_named() -> None:
    planned = with_limit(window("w", 60, at="1m"), 4)
    played = play(node("n0", 8, annotations=LIMITED), burst(nodeName="n0"), planned, until=600)
    assert plan(played, "w") == ("n0", "Unknown")
    message = condition(played.find("Reservation", "w"), "Feasible")["message"]
    assert message == (
        "n0: 4 cpu limit short at 2026-01-01T01:00:00Z, unless default/burst ends by then"
    )


def test_a_limit_that_is_released_by_the_start_counts() -> None:
    planned = with_limit(window("w", 60, at="1m"), 4)
    given = [node("n0", 8, annotations=LIMITED), burst(minutes=40, nodeName="n0"), planned]
    assert starts(play(given, until=70 * 60), "w") == [(HOUR, "Available")]


def test_two_plans_share_a_limit_only_one_after_the_other() -> None:
    given = [
        node("n0", 8, annotations=LIMITED),
        with_limit(window("w0", 60, 2), 6),
        with_limit(window("w1", 90, 2, at="1m"), 6),
        with_limit(window("w2", 120, 2, at="2m"), 6),
    ]
    played = play(given, until=600)
    assert [plan(played, name)[1] for name in ("w0", "w1", "w2")] == ["True", "False", "True"]


@pytest.mark.parametrize(("minutes", "bound"), [(None, None), (90, None), (40, 300)])
def test_the_planned_limit_is_closed_to_what_does_not_end_by_the_start(
    minutes: int | None, bound: float | None
) -> None:
    given = [node("n0", 8, annotations=LIMITED), with_limit(window("w", 60, 2), 4)]
    played = play(given, burst(minutes=minutes, at="5m"), until=70 * 60)
    assert played.times("burst") == [bound]
    assert starts(played, "w") == [(HOUR, "Available")]


def test_a_node_with_an_invalid_ratio_is_not_planned() -> None:
    invalid = {"node.koordinator.sh/limit-to-allocatable": "half"}
    given = [node("n0", 8, annotations=invalid), window("w", 60)]
    assert plan(play(given, until=600), "w") == ("", "False")


# Plans that overlap


def ending(name: str, cpu: int, minutes: int, **more: Any) -> Raw:
    run = f"{minutes}m"
    return pod(name, cpu, annotations={"holdfast.io/run-estimate": run}, runs_for=run, **more)


def test_a_plan_counts_on_what_ends_before_the_next_plan_begins() -> None:
    """The pod leaves enough for the first plan, and ends before both plans last together."""
    given = [
        node("n0", 8),
        ending("p", 4, 60, nodeName="n0"),
        window("second", 90, 4, at="1m"),
        window("first", 30, 4, 90, at="2m"),
    ]
    assert plan(play(given, until=600), "first") == ("n0", "True")
    played = play(given, until=100 * 60)
    assert starts(played, "first") == [(1800, "Available")]
    assert starts(played, "second") == [(5400, "Available")]


def test_a_pod_backfilled_between_two_starts_does_not_cost_a_plan_its_node() -> None:
    given = [
        node("n0", 8),
        window("second", 90, 4),
        window("first", 30, 4, 90, at="1m"),
        ending("p", 4, 75, at="5m"),
        window("third", 300, 4, at="10m"),
    ]
    early = play(given, until=15 * 60)
    assert early.times("p") == [300]
    assert [plan(early, name) for name in ("first", "second")] == [("n0", "True")] * 2
    played = play(given, until=100 * 60)
    assert [starts(played, name)[0][1] for name in ("first", "second")] == ["Available"] * 2


def test_a_pod_that_ends_after_the_next_plan_begins_is_not_counted_on() -> None:
    given = [
        node("n0", 8),
        ending("p", 4, 100, nodeName="n0"),
        window("second", 90, 4, at="1m"),
        window("first", 30, 4, 90, at="2m"),
    ]
    played = play(given, until=600)
    assert [plan(played, name)[1] for name in ("first", "second")] == ["False", "True"]


def test_a_pod_that_would_end_in_between_is_evicted_once() -> None:
    """What the evicted pod would have released later does not count a second time."""
    preempting = {"holdfast.io/before-start": "Preempt", "holdfast.io/lead": "10m"}
    given = [
        node("n0", 8),
        ending("p", 8, 60, nodeName="n0"),
        window("second", 90, 8, at="1m"),
        window("first", 30, 4, 90, at="2m", annotations=preempting, pod={"priority": 100}),
    ]
    played = play(given, until=10 * 60)
    assert [plan(played, name)[1] for name in ("first", "second")] == ["False", "True"]


@pytest.mark.parametrize("restarts", [False, True])
def test_a_start_added_to_a_reservation_on_a_node_changes_nothing(restarts: bool) -> None:
    later = {"metadata": {"annotations": {"holdfast.io/starts-at": format_time(BEGIN + 36000)}}}
    given: list[Raw] = [
        node("n0", 8),
        reservation("r", 4, "r", ttl="1h"),
        step("1m", patch={"kind": "Reservation", "name": "r", "merge": later}),
        pod("p", 4, "r", at="10m"),
    ]
    if restarts:
        given.append(step("5m", restart="scheduler"))
    played = play(given, until=2 * HOUR)
    assert played.times("p") == [600]
    assert starts(played, "r")[0] == (0, "Available")


def test_a_start_added_to_a_reservation_on_a_node_does_not_extend_it() -> None:
    later = {"metadata": {"annotations": {"holdfast.io/starts-at": format_time(BEGIN + 36000)}}}
    given = [
        node("n0", 8),
        reservation("r", 4, "r", ttl="1h"),
        step("1m", patch={"kind": "Reservation", "name": "r", "merge": later}),
    ]
    assert starts(play(given, until=2 * HOUR), "r") == [(0, "Available"), (HOUR, "Failed")]


@pytest.mark.parametrize("restart", [None, "40m", "55m"], ids=["no restart", "before it", "after it"])
def test_a_start_moved_once_the_reservation_is_on_a_node_does_not_extend_it(
    restart: str | None,
) -> None:
    later = {"metadata": {"annotations": {"holdfast.io/starts-at": format_time(BEGIN + 50 * 60)}}}
    given: list[Raw] = [
        node("n0", 8),
        window("r", 30, 4, 60),
        step("35m", patch={"kind": "Reservation", "name": "r", "merge": later}),
    ]
    if restart:
        given.append(step(restart, restart="scheduler"))
    ends = [time for time, phase in starts(play(given, until=3 * HOUR), "r") if phase == "Failed"]
    assert ends == [90 * 60]


# Pods that use reservations


def in_use(length: int, *owners: int, cpu: int = 8, at_end: str = "Keep", **more: Any) -> list[Raw]:
    """A node whose reservation lasts for minutes, or for ever, with owners of these sizes."""
    terms = {"holdfast.io/at-end": at_end}
    more = {"allocateOnce": False, **more}
    return [
        node("n0", 8),
        reservation("res", cpu, "r", ttl=f"{length}m", annotations=terms, **more),
        *(pod(f"r{i}", size, "r", at="1m") for i, size in enumerate(owners, 1)),
    ]


@pytest.mark.parametrize(
    ("given", "wanted", "found"),
    [
        pytest.param(in_use(120, 8), 8, "False; reservation res lasts until 02:00", id="one owner"),
        pytest.param(in_use(120, 3, 5), 8, "False; reservation res lasts until 02:00", id="two owners"),
        pytest.param(in_use(0, 8), 8, "False; reservation res does not expire", id="for ever"),
        pytest.param(
            in_use(120, 8, at_end="Evict"),
            8,
            "False; reservation res lasts until 02:00",
            id="evicts later",
        ),
        pytest.param(in_use(50, 8, at_end="Evict"), 8, "True", id="evicts before"),
        pytest.param(in_use(50, 8), 8, "Unknown, unless default/r1 ends by then", id="expires before"),
        pytest.param(
            in_use(60, 3, 5),
            8,
            "Unknown, unless default/r1, default/r2 end by then",
            id="expires at the start",
        ),
        pytest.param(
            in_use(120, 8, allocateOnce=True),
            8,
            "Unknown, unless default/r1 ends by then",
            id="allocate once",
        ),
        pytest.param(
            in_use(120, 7, cpu=4),
            4,
            "Unknown, unless default/r1 ends by then",
            id="an owner with more than is reserved",
        ),
        pytest.param(
            in_use(120, 7, cpu=4),
            5,
            "False; reservation res lasts until 02:00",
            id="and too little of it",
        ),
        pytest.param(
            [*in_use(120, 4, cpu=4), pod("x", 4, nodeName="n0")],
            4,
            "Unknown, unless default/x ends by then",
            id="beside another pod",
        ),
        pytest.param(
            [*in_use(120, 4, cpu=4), ending("x", 4, 90, nodeName="n0")],
            4,
            "False; x runs until 01:30; reservation res lasts until 02:00",
            id="beside one that ends later",
        ),
    ],
)
def test_what_a_pod_has_from_a_reservation_that_stays_does_not_become_free(
    given: list[Raw], wanted: int, found: str
) -> None:
    played = play(given, window("w", 60, wanted, at="2m"), until=180)
    feasible = condition(played.find("Reservation", "w"), "Feasible")
    says = re.sub(
        r"^n0: .* short at 2026-01-01T01:00:00Z|2026-01-01T|:00Z", "", feasible.get("message", "")
    )
    assert feasible["status"] + says == found


@pytest.mark.parametrize(("minutes", "starts_at"), [(30, "Available"), (120, "Waiting")])
def test_the_end_of_an_owner_is_not_taken_for_that_of_its_reservation(
    minutes: int, starts_at: str
) -> None:
    owner = ending("r1", 8, 20, app="r", at="1m")
    given = [*in_use(minutes), owner, window("w", 60, 8, at="2m")]
    played = play(given, until=180)
    says = condition(played.find("Reservation", "w"), "Feasible").get("message", "")
    late = "n0: 8 cpu short at 2026-01-01T01:00:00Z; reservation res lasts until 2026-01-01T02:00:00Z"
    assert says == (late if starts_at == "Waiting" else "")


def owner(name: str, cpu: int, minutes: int | None = None) -> Raw:
    """A pod that uses the reservation from the first minute on, and ends after so many."""
    if minutes is None:
        return pod(name, cpu, app="r", at="1m")
    return ending(name, cpu, minutes - 1, app="r", at="1m")


LASTS = "reservation res lasts until 02:00"


@pytest.mark.parametrize("restarts", [False, True])
@pytest.mark.parametrize(
    ("given", "wanted", "found"),
    [
        pytest.param([owner("r1", 6, 20)], 4, "True", id="ends before"),
        pytest.param([owner("r1", 6, 20)], 5, f"False; {LASTS}", id="leaves too little"),
        pytest.param([owner("r1", 6, 90)], 4, f"False; r1 runs until 01:30; {LASTS}", id="ends later"),
        pytest.param([owner("r1", 3, 20), owner("r2", 3)], 4, "True", id="one of two ends"),
        pytest.param(
            [owner("r1", 3, 20), owner("r2", 5)],
            4,
            "Unknown, unless default/r2 ends by then",
            id="the other one has more than is reserved",
        ),
        pytest.param(
            [owner("r1", 3, 20), owner("r2", 5)], 5, f"False; {LASTS}", id="and both leave too little"
        ),
        pytest.param([owner("r1", 3, 20), owner("r2", 5, 30)], 4, "True", id="both end"),
        pytest.param(
            [owner("r1", 3, 20), owner("r2", 5, 90)],
            4,
            f"False; r2 runs until 01:30; {LASTS}",
            id="one ends later",
        ),
    ],
)
def test_what_an_owner_has_beyond_its_reservation_becomes_free_as_it_ends(
    given: list[Raw], wanted: int, found: str, restarts: bool
) -> None:
    restart = [step("90s", restart="scheduler")] if restarts else []
    played = play(in_use(120, cpu=4), given, window("w", 60, wanted, at="2m"), restart, until=180)
    feasible = condition(played.find("Reservation", "w"), "Feasible")
    says = re.sub(
        r"^n0: .* short at 2026-01-01T01:00:00Z|2026-01-01T|:00Z", "", feasible.get("message", "")
    )
    assert feasible["status"] + says == found


@pytest.mark.parametrize("length", [0, 30, 120])
def test_a_plan_that_counts_on_the_end_of_an_owner_is_protected(length: int) -> None:
    given = [*in_use(length, cpu=4), owner("r1", 6, 20), window("w", 60, 4, at="2m")]
    played = play(given, pod("x", 2, at="10m"), until=61 * 60)
    assert starts(played, "w") == [(HOUR, "Available")]
    assert played.times("x") == [600 if length == 30 else None]


def test_an_owner_that_ends_leaves_its_reservation_what_that_reserves() -> None:
    """Whatever of it is used later by another owner."""
    given = [*in_use(120, cpu=4), owner("r1", 6, 20), pod("r2", 4, app="r", at="30m")]
    played = play(given, window("w", 60, 4, at="2m"), until=61 * 60)
    assert starts(played, "w") == [(HOUR, "Available")]
    assert played.times("r2") == [30 * 60]


def test_a_plan_waits_for_a_pod_rather_than_beside_a_reservation_that_stays() -> None:
    """Nothing would become free on n0, which has the lower row."""
    given = [*in_use(120, 8), node("n1", 8), pod("x", 8, nodeName="n1")]
    assert plan(play(given, window("w", 60, 8, at="2m"), until=180), "w") == ("n1", "Unknown")


# Starts on other nodes


def test_a_start_on_another_node_leaves_other_plans_their_capacity() -> None:
    """The planned node is cordoned while it drains; n1 has capacity only until another plan starts."""
    first = window("first", 60, 8, 120, annotations={"holdfast.io/lead": "30m"}, at="1m")
    second = window("second", 90, 8, 120, pod={"nodeSelector": {"kubernetes.io/hostname": "n1"}})
    cordon = {"kind": "Node", "name": "n0", "merge": {"spec": {"unschedulable": True}}}
    played = play(
        [node("n0", 8), node("n1", 8), first, second, step("3599s", patch=cordon)], until=100 * 60
    )
    assert starts(played, "second") == [(90 * 60, "Available")]
    assert starts(played, "first") == []


def test_a_start_on_another_node_may_end_before_other_plans_start() -> None:
    first = window("first", 60, 8, 30, annotations={"holdfast.io/lead": "30m"})
    second = window("second", 90, 8, 120, pod={"nodeSelector": {"kubernetes.io/hostname": "n1"}})
    cordon = {"kind": "Node", "name": "n0", "merge": {"spec": {"unschedulable": True}}}
    played = play(
        [node("n0", 8), node("n1", 8), first, second, step("3599s", patch=cordon)], until=100 * 60
    )
    assert starts(played, "first")[0] == (HOUR, "Available")
    assert starts(played, "second") == [(90 * 60, "Available")]


def test_a_reservation_that_is_late_is_not_placed_where_others_are_planned() -> None:
    """It found no node at its start, and is pending: a node that comes later is planned for another."""
    late = window("late", 30, 8, 600)
    other = window("other", 120, 8, at="31m", pod={"nodeSelector": {"disk": "ssd"}})
    joins = node("n1", 8, labels={"disk": "ssd"})
    played = play(
        [node("n0", 4), late, other, step("40m", apply=joins), step("90m", apply=node("n2", 8))],
        until=130 * 60,
    )
    assert starts(played, "other") == [(120 * 60, "Available")]
    assert starts(played, "late") == [(90 * 60, "Available")]


# Gangs


RACK = "example.com/rack"


def members(name: str, count: int, start: int = 60, cpu: int = 4, **more: Any) -> list[Raw]:
    """A gang of reservations whose templates require affinity to each other."""
    gang = {
        "gang.scheduling.koordinator.sh/name": name,
        "gang.scheduling.koordinator.sh/min-available": str(count),
    }
    term = {"topologyKey": RACK, "labelSelector": {"matchLabels": {"app": name}}}
    near = {"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}
    made = []
    for i in range(count):
        owners = [{"labelSelector": {"matchLabels": {"app": name}}}]
        each = window(
            f"{name}-{i}", start, cpu, annotations=gang, owners=owners, pod={"affinity": near}, **more
        )
        each["spec"]["template"]["metadata"] = {"labels": {"app": name}}
        made.append(each)
    return made


def racks(**sizes: int) -> list[Raw]:
    return [
        node(f"{rack}{i}", 4, labels={RACK: rack}) for rack, size in sizes.items() for i in range(size)
    ]


def racks_of(played: Played, name: str, count: int) -> set[str]:
    return {node_of(played, f"{name}-{i}")[:1] for i in range(count)}


def test_a_gang_is_planned_in_a_rack_that_has_capacity_for_all() -> None:
    played = play(racks(a=2, b=3, c=2), members("g", 3), until=600)
    assert racks_of(played, "g", 3) == {"b"}
    assert {plan(played, f"g-{i}")[1] for i in range(3)} == {"True"}


def test_a_gang_for_which_no_rack_is_large_enough_is_not_planned() -> None:
    played = play(racks(a=2, b=2), members("g", 3), until=70 * 60)
    assert racks_of(played, "g", 3) == {""}
    assert all(starts(played, f"g-{i}") == [] for i in range(3))


def test_the_rack_is_one_that_other_plans_leave() -> None:
    played = play(racks(a=3, b=3), members("g", 3), members("h", 3, at="1m"), until=70 * 60)
    assert [len(starts(played, f"{gang}-{i}")) for gang in "gh" for i in range(3)] == [1] * 6
    assert racks_of(played, "g", 3) != racks_of(played, "h", 3)


def test_gangs_share_a_rack_one_after_the_other() -> None:
    given = [*racks(a=3), *members("g", 3), *members("h", 3, 120, at="1m")]
    played = play(given, until=130 * 60)
    assert [starts(played, f"h-{i}") for i in range(3)] == [[(2 * HOUR, "Available")]] * 3


def test_a_node_that_is_lost_moves_the_whole_gang() -> None:
    lost = step("10m", delete={"kind": "Node", "name": "a0"})
    played = play(racks(a=3, b=3), members("g", 3), lost, until=70 * 60)
    assert [starts(played, f"g-{i}") for i in range(3)] == [[(HOUR, "Available")]] * 3
    assert racks_of(played, "g", 3) == {"b"}


def test_a_gang_of_which_too_few_start_by_then_is_not_planned() -> None:
    early, *late = members("g", 3)
    early["metadata"]["annotations"]["holdfast.io/starts-at"] = format_time(BEGIN + HOUR / 2)
    played = play(racks(a=3), early, late, until=600)
    assert racks_of(played, "g", 3) == {""}
    message = condition(played.find("Reservation", "g-0"), "Feasible")["message"]
    assert message == "PodGroup/default/g has fewer reservations than it needs that start by then"


def test_a_member_that_starts_later_is_not_scheduled_with_the_others() -> None:
    at_once, *later = members("g", 2)
    del at_once["metadata"]["annotations"]["holdfast.io/starts-at"]
    at_once["spec"]["ttl"] = "3h"
    played = play(racks(a=2), at_once, later, until=70 * 60)
    assert [starts(played, f"g-{i}") for i in range(2)] == [[(HOUR, "Available")]] * 2


def test_no_member_is_more_certain_than_the_others() -> None:
    endless = pod("endless", 4, nodeName="a1")
    played = play(racks(a=2), endless, members("g", 2, at="1m"), until=600)
    assert {plan(played, f"g-{i}")[1] for i in range(2)} == {"Unknown"}


@pytest.mark.parametrize("spread", ["anti-affinity", "constraint"])
def test_plans_keep_apart_as_their_templates_require(spread: str) -> None:
    chosen = {"matchLabels": {"app": "w"}}
    key = "kubernetes.io/hostname"
    term = {"topologyKey": key, "labelSelector": chosen}
    apart: Raw = {
        "affinity": {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}
    }
    if spread == "constraint":
        rule = {"maxSkew": 1, "topologyKey": key, "whenUnsatisfiable": "DoNotSchedule"}
        apart = {"topologySpreadConstraints": [{**rule, "labelSelector": chosen}]}
    windows = [window(f"w{i}", 60, 1, pod=apart) for i in range(2)]
    for each in windows:
        each["spec"]["template"]["metadata"] = {"labels": {"app": "w"}}
    played = play([node("n0", 4), node("n1", 4)], windows, until=70 * 60)
    assert {node_of(played, f"w{i}") for i in range(2)} == {"n0", "n1"}
    assert [starts(played, f"w{i}") for i in range(2)] == [[(HOUR, "Available")]] * 2


def test_anti_affinity_to_a_pod_that_ends_by_the_start_is_no_obstacle() -> None:
    term = {"topologyKey": "kubernetes.io/hostname", "labelSelector": {"matchLabels": {"app": "x"}}}
    apart = {
        "affinity": {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}
    }
    estimate = {"annotations": {"holdfast.io/run-estimate": "40m"}, "runs_for": "40m"}
    given = [node("n0", 4), pod("x", 1, "x", nodeName="n0", **estimate), window("w", 60, pod=apart)]
    assert starts(play(given, until=70 * 60), "w") == [(HOUR, "Available")]


# Starving jobs


def minutely() -> Raw:
    template = reservation("r", 4, "x", allocateOnce=False)["spec"]
    spec = {"schedule": "* * * * *", "duration": "50s", "template": {"spec": template}}
    return {
        "apiVersion": "scheduling.holdfast.io/v1alpha1",
        "kind": "ReservationSchedule",
        "metadata": {"name": "minutely"},
        "spec": spec,
    }


@pytest.mark.parametrize(("nodes", "reason"), [(2, "CannotReserve"), (3, "Reserved")])
def test_a_starving_gang_beside_a_schedule_gets_a_hold_or_the_reason(nodes: int, reason: str) -> None:
    busy = [
        pod(f"busy-{i}", 4, nodeName=f"n{i}", annotations={"holdfast.io/run-estimate": "10m"})
        for i in range(nodes)
    ]
    given = [*(node(f"n{i}", 8) for i in range(nodes)), minutely(), *busy]
    config = actions("allocate", "backfill", starvingJobTimeThreshold=30, reservedNodePercent=100)
    played = play(given, [pod_group("g", 2), *gang("g", 2, 6)], config=config, until=100)
    messages = [
        raw["message"]
        for raw in played.all("Event")
        if raw["involvedObject"]["name"] == "g" and raw["reason"] == reason
    ]
    planned = "its capacity is planned for ReservationSchedule/minutely; no capacity was reserved"
    assert len(messages) == 1
    assert (planned in messages) == (reason == "CannotReserve")


@pytest.mark.parametrize(("cpu", "evicted"), [(3, 1), (4, 1), (5, 2)])  # the last do not fit together
def test_a_node_is_preferred_on_which_another_plan_evicts_the_same_pods(cpu: int, evicted: int) -> None:
    preempts = {"holdfast.io/before-start": "Preempt", "holdfast.io/lead": "5m"}
    full = [pod(f"full-{i}", 8, nodeName=f"n{i}") for i in range(2)]
    plans = [window(f"w{i}", 60, cpu, annotations=dict(preempts)) for i in range(2)]
    played = play(node("n0", 8), node("n1", 8), full, plans, until=HOUR + 1)
    assert [starts(played, f"w{i}") for i in range(2)] == [[(HOUR, "Available")]] * 2
    gone = [each for each in range(2) if played.events(f"Pod/default/full-{each}", "Evicted")]
    assert len(gone) == evicted
