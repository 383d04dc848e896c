"""Windows for reservations: on small clusters by hand, and on random ones by creating the advised
reservations in a simulation, where they must start in time."""

import math
import random
from typing import Any

import pytest

from holdfast.api.documents import Document
from holdfast.api.times import format_time, parse_time
from holdfast.local.setup import SchedulerFactory
from holdfast.sim.scenario import read_scenario
from holdfast.sim.simulation import Simulation
from holdfast.sim.what_if.question import WhatIfQuestion
from holdfast.sim.windows.window_answers import Confidence, ReservationWindow, WindowReport
from holdfast.sim.windows.window_search import WindowQuestion, WindowSearch
from holdfast.snapshot.cluster_objects import ClusterObjects

Raw = dict[str, Any]
BEGIN = parse_time("2026-01-01T00:00:00Z")
HOUR, MINUTE = 3600.0, 60.0
CPU = 8
LEAD = 10 * MINUTE
SETUP = SchedulerFactory.of()


def node(name: str, cpu: int = CPU) -> Raw:
    sizes = {"cpu": str(cpu), "pods": "30"}
    metadata = {"name": name, "labels": {"kubernetes.io/hostname": name}}
    return {"apiVersion": "v1", "kind": "Node", "metadata": metadata, "status": {"allocatable": sizes}}


def large_memory(raw: Raw, memory: str) -> Raw:
    raw["status"]["allocatable"]["memory"] = memory
    return raw


def pod(name: str, cpu: int, on: str = "", minutes: int | None = None, **more: Any) -> Raw:
    """On a node from the beginning, or pending; it runs for as long as it says, if it says so."""
    annotations = dict(more.pop("annotations", {}))
    if minutes is not None:
        runs = f"{minutes}m"
        annotations |= {"sim.holdfast.io/runs-for": runs, "holdfast.io/run-estimate": runs}
    spec = {"containers": [{"name": "c", "resources": {"requests": {"cpu": str(cpu)}}}], **more}
    metadata = {"name": name, "namespace": "default", "annotations": annotations}
    metadata["labels"] = {"app": name}
    made: Raw = {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}
    return {**made, "spec": {**spec, "nodeName": on}} if on else made


def reservation(name: str, cpu: int, hours: float = 1, **annotations: str) -> Raw:
    spec = {"containers": [{"name": "c", "resources": {"requests": {"cpu": str(cpu)}}}]}
    return {
        "apiVersion": "scheduling.koordinator.sh/v1alpha1",
        "kind": "Reservation",
        "metadata": {
            "name": name,
            "annotations": {f"holdfast.io/{k.replace('_', '-')}": v for k, v in annotations.items()},
        },
        "spec": {
            "ttl": f"{int(hours * 60)}m",
            "owners": [{"labelSelector": {"matchLabels": {"app": name}}}],
            "template": {"spec": spec},
        },
    }


def cluster_of(objects: list[Raw]) -> ClusterObjects:
    """They state no time: it is the beginning."""
    return ClusterObjects(tuple(documents(objects)), BEGIN, None)


def at(minutes: float) -> str:
    return format_time(BEGIN + minutes * MINUTE)


def documents(objects: list[Raw]) -> list[Document]:
    return [Document("cluster", i, i, raw) for i, raw in enumerate(objects, 1)]


def advise(
    objects: list[Raw], cpu: int, hours: float = 1, count: int = 1, **options: Any
) -> WindowReport:
    wanted = [reservation(f"w{i}", cpu, hours) for i in range(count)]
    if (requests := options.pop("requests", None)) is not None:
        for each in wanted:
            each["spec"]["template"]["spec"]["containers"][0]["resources"]["requests"] = requests
    if (priority := options.pop("priority", None)) is not None:
        for each in wanted:
            each["metadata"]["labels"] = {"koordinator.sh/priority": str(priority)}
    within = options.pop("within", 24 * HOUR)
    question = WindowQuestion(wanted, hours * HOUR, within, LEAD, **options)
    at_rest = WhatIfQuestion.about(SETUP, cluster_of(objects))
    cluster = at_rest.cluster
    return WindowSearch(cluster.scheduler, cluster.clock.epoch(), question).report()


def shown(report: WindowReport) -> list[tuple[Any, ...]]:
    return [
        (each.start, each.latest_start, each.confidence, [e.object for e in each.evicts])
        for each in report.windows
    ]


# By hand


def test_free_capacity_is_a_window_from_the_next_minute_on() -> None:
    report = advise([node("n1")], 8, within=2 * HOUR)
    assert shown(report) == [(at(1), at(120), Confidence.KNOWN, [])]
    assert report.windows[0].nodes == ["n1"] and report.windows[0].end == at(61)


def test_a_window_begins_when_a_pod_ends_and_pauses_for_another_reservation() -> None:
    objects = [
        node("n1"),
        pod("a", 4, "n1", 30),
        reservation("other", 8, 1, starts_at=at(300)),
    ]
    report = advise(objects, 8, 2, most_evictions=0)
    assert shown(report) == [
        (at(30), at(180), Confidence.KNOWN, []),
        (at(360), at(24 * 60), Confidence.KNOWN, []),
    ]


def test_fewer_evictions_come_first_and_earlier_starts_with_more_after_them() -> None:
    objects = [
        node("n1"),
        pod("a", 2, "n1", 60),
        pod("b", 2, "n1", 120),
        pod("c", 4, "n1", 180),
    ]
    assert [(each.start, each.evictions) for each in advise(objects, 8).windows] == [
        (at(180), 0),
        (at(120), 1),
        (at(60), 2),
        (at(10), 3),
    ]
    assert [each.evictions for each in advise(objects, 8, most_evictions=1).windows] == [0, 1]


def _two_busy_nodes(*others: Raw) -> list[Raw]:
    """A plan for 12 cpu may be on n2 only, where it leaves too little from two hours before it on."""
    return [
        node("n1", 16),
        node("n2", 16),
        pod("a", 10, "n1", 360),
        pod("b", 9, "n2", 180),
        reservation("evening", 12, 9, starts_at=at(180)),
        *others,
    ]


def test_windows_that_evict_as_many_but_other_pods_are_listed() -> None:
    assert shown(advise(_two_busy_nodes(), 8, 2)) == [
        (at(360), at(24 * 60), Confidence.KNOWN, []),
        (at(10), at(60), Confidence.KNOWN, ["Pod/default/b"]),
        (at(61), at(359), Confidence.KNOWN, ["Pod/default/a"]),
    ]
    assert len(advise(_two_busy_nodes(), 8, 2, limit=2).windows) == 2


def test_windows_that_evict_the_same_pods_one_after_the_other_are_one() -> None:
    objects = [
        node("n1"),
        node("n2"),
        pod("a", 8, "n1", 300),
        reservation("r1", 8, 2, starts_at=at(2)),
        reservation("r2", 8, 9, starts_at=at(150)),
    ]
    assert shown(advise(objects, 8, 1)) == [
        (at(300), at(24 * 60), Confidence.KNOWN, []),
        (at(10), at(299), Confidence.KNOWN, ["Pod/default/a"]),
    ]


def test_a_later_window_that_needs_more_evictions_is_not_listed() -> None:
    objects = [
        *(node("n1"), node("n2")),
        *(pod("a", 4, "n1", 360), pod("b", 4, "n1", 360)),
        pod("c", 8, "n2", 180),
        reservation("evening", 8, 9, starts_at=at(180)),
    ]
    assert [(each.start, each.latest_start) for each in advise(objects, 8, 2).windows] == [
        (at(360), at(24 * 60)),
        (at(10), at(60)),
    ]


def test_only_pods_of_lower_priority_make_way() -> None:
    objects = [node("n1"), pod("a", 8, "n1", priority=100)]
    assert advise(objects, 8, priority=100).windows[0].confidence is Confidence.UNKNOWN
    window = advise(objects, 8, priority=101).windows[0]
    assert [(each.object, each.node, each.priority) for each in window.evicts] == [
        ("Pod/default/a", "n1", 100)
    ]


def test_a_pod_without_a_known_end_makes_a_window_unknown() -> None:
    report = advise([node("n1"), pod("a", 8, "n1")], 8, most_evictions=0)
    assert shown(report) == [(at(1), at(24 * 60), Confidence.UNKNOWN, [])]
    assert report.windows[0].waits_for == ["Pod/default/a"]
    assert "unless default/a ends by then" in report.message


@pytest.mark.parametrize("minutes", [None, 60])
def test_a_pod_that_ends_leaves_its_capacity_to_the_reservation_it_uses(minutes: int | None) -> None:
    used = reservation("r", 8, 10)
    used["metadata"] |= {"uid": "r-1", "creationTimestamp": at(0)}
    used["spec"]["allocateOnce"] = False
    used["status"] = {
        "phase": "Available",
        "nodeName": "n1",
        "allocatable": {"cpu": "8"},
        "conditions": [{"type": "Ready", "status": "True", "reason": "Available"}],
    }
    allocated = {"scheduling.koordinator.sh/reservation-allocated": '{"name": "r", "uid": "r-1"}'}
    objects = [node("n1"), used, pod("r", 8, "n1", minutes, annotations=allocated)]
    report = advise(objects, 8, within=5 * HOUR)
    short = f"n1: 8 cpu short at {at(300)}; reservation r lasts until {at(600)}"
    assert (report.windows, report.message) == ([], short)
    later = advise(objects, 8).windows[0]
    assert later.start == at(600)
    assert later.waits_for == (["Pod/default/r"] if minutes is None else [])


def test_of_several_pods_without_a_known_end_the_fewest_that_are_enough_are_named() -> None:
    objects = [node("n1"), pod("a", 2, "n1"), pod("b", 3, "n1"), pod("c", 2, "n1")]
    report = advise(objects, 4, most_evictions=0)
    window = report.windows[0]
    assert sorted(window.waits_for) == ["Pod/default/a", "Pod/default/b", "Pod/default/c"]
    assert window.enough == ["Pod/default/b"]
    text = "unless enough of default/a, default/b, default/c end by then, such as default/b"
    assert text in report.message
    both = advise(objects, 5, most_evictions=0).windows[0]
    assert both.enough == ["Pod/default/b", "Pod/default/a"]


@pytest.mark.parametrize(
    ("nodes", "asked", "message"),
    [
        (
            [node("n1"), node("n2", 4)],
            {"cpu": "9"},
            "no node is large enough: 9 cpu are requested, and the most a node has is 8",
        ),
        ([node("n1")], {"nvidia.com/gpu": "1"}, "no node has the resource nvidia.com/gpu"),
        (
            [large_memory(node("n1", 4), "64Gi"), large_memory(node("n2", 8), "16Gi")],
            {"cpu": "6", "memory": "32Gi"},
            "no node is large enough: none has 6 cpu and 32Gi memory",
        ),
    ],
)
def test_there_is_no_window_for_more_than_a_node_has(
    nodes: list[Raw], asked: Raw, message: str
) -> None:
    report = advise(nodes, 0, requests=asked)
    assert (report.windows, report.message) == ([], message)


def test_there_is_no_window_for_more_than_all_nodes_have() -> None:
    report = advise([node("n1"), node("n2")], 5, count=3)
    assert report.windows == []
    assert report.message == "the nodes are too small: 2 of 3 with 5 cpu fit, even if all are empty"


def test_nodes_that_are_only_full_are_not_too_small() -> None:
    report = advise([node("n1"), pod("a", 8, "n1", minutes=10_000)], 8, most_evictions=0)
    assert report.windows == [] and "short" in report.message


def test_several_reservations_need_capacity_at_the_same_time() -> None:
    objects = [node("n1"), node("n2"), pod("a", 8, "n1", 60)]
    assert advise(objects, 8, count=2).windows[0].start == at(60)
    assert sorted(advise(objects, 8, count=2).windows[0].nodes) == ["n1", "n2"]
    assert advise(objects, 4, count=2).windows[0].start == at(1)


def test_occurrences_of_a_schedule_that_do_not_exist_yet_are_left_alone() -> None:
    spec = {key: value for key, value in reservation("nightly", 8)["spec"].items() if key != "ttl"}
    schedule = {
        "apiVersion": "scheduling.holdfast.io/v1alpha1",
        "kind": "ReservationSchedule",
        "metadata": {"name": "nightly"},
        "spec": {"schedule": "0 6,12,18 * * *", "duration": "1h", "template": {"spec": spec}},
    }
    report = advise([node("n1"), schedule], 8, 2)
    assert [(each.start, each.latest_start) for each in report.windows] == [
        (at(1), at(4 * 60)),
        (at(7 * 60), at(10 * 60)),
        (at(13 * 60), at(16 * 60)),
        (at(19 * 60), at(24 * 60)),
    ]


def test_a_plan_of_lower_priority_that_would_be_displaced_is_named() -> None:
    other = reservation("other", 8, 12, starts_at=at(120))
    other["metadata"]["labels"] = {"koordinator.sh/priority": "5"}
    report = advise([node("n1"), other], 8, 12, within=10 * HOUR)
    assert [(each.start, each.displaces) for each in report.windows] == [
        (at(10), ["Reservation/other"])
    ]
    assert advise([node("n1"), other], 8, 12, within=10 * HOUR, priority=5).windows == []


def test_the_search_leaves_the_plans_as_they_were() -> None:
    objects = [node("n1"), node("n2"), reservation("other", 8, 1, starts_at=at(120))]
    at_rest = WhatIfQuestion.about(SETUP, cluster_of(objects)).cluster
    calendar = at_rest.scheduler.cluster.reservations.calendar

    def plans() -> list[tuple[str, str, str, str]]:
        return [(e.reservation.name, e.node, e.feasible, e.message) for e in calendar]

    before = plans()
    question = WindowQuestion([reservation("w", 8)], HOUR, 12 * HOUR, LEAD)
    WindowSearch(at_rest.scheduler, at_rest.clock.epoch(), question).report()
    assert plans() == before and before[0][1]


# Random clusters


def _cluster(draw: random.Random, grain: int = 1) -> tuple[list[Raw], list[Raw]]:
    """The objects of a cluster, and pods that arrive later. Times are multiples of `grain` minutes."""
    made = [node(f"n{i}") for i in range(draw.randint(1, 4))]
    for i, each in enumerate(list(made)):
        free = CPU
        for j in range(draw.randint(0, 4)):
            cpu = draw.randint(1, 4)
            if cpu <= free:
                free -= cpu
                minutes = draw.randrange(5, 600) // grain * grain if draw.random() < 0.8 else None
                made.append(pod(f"p{i}-{j}", cpu, each["metadata"]["name"], minutes))
    for i in range(draw.randint(0, 3)):
        lead = {"lead": draw.choice(("10m", "1h"))} if draw.random() < 0.5 else {}
        start = draw.randint(30, 900) // grain * grain
        made.append(
            reservation(f"r{i}", draw.randint(1, 8), draw.randint(1, 5), starts_at=at(start), **lead)
        )
    arriving = [
        pod(
            f"later-{i}",
            draw.randint(1, 8),
            minutes=draw.randint(5, 300) if draw.random() < 0.7 else None,
            annotations={"sim.holdfast.io/at": f"{draw.randint(1, 600)}m"},
        )
        for i in range(draw.randint(0, 6))
    ]
    return made, arriving


def _created(window: ReservationWindow, cpu: int, hours: float, count: int) -> list[Raw]:
    """As the advised command creates them, after everything else."""
    terms = {"before_start": "Preempt", "lead": "10m"} if window.evicts else {}
    made = [
        reservation(f"advised-{i}", cpu, hours, starts_at=window.start, **terms) for i in range(count)
    ]
    for each in made:
        each["metadata"]["annotations"]["sim.holdfast.io/at"] = "1s"
    return made


@pytest.mark.parametrize("seed", [*range(40), 72, 111, 221])
def test_the_advised_reservations_start_in_time(seed: int) -> None:
    draw = random.Random(seed)
    objects, arriving = _cluster(draw)
    cpu, hours, count = draw.randint(1, 8), draw.randint(1, 6), draw.randint(1, 3)
    report = advise(objects, cpu, hours, count)
    if report.notes:  # a reservation that starts late may take the capacity
        return
    for window in report.windows:
        if window.confidence is not Confidence.KNOWN or window.displaces:
            continue
        made = _created(window, cpu, hours, count)
        # Later pods may take what a plan with Preempt leaves open until its lead.
        others = [] if window.evicts else arriving
        scenario = read_scenario(documents([*objects, *made, *others]))
        result = Simulation(scenario, SETUP).run(parse_time(window.start) - BEGIN + 60)
        events = [each for each in result.timeline if each.event in ("Available", "Evicted")]
        started = {each.object: each.t for each in events if each.event == "Available"}
        for i in range(count):
            got = started.get(f"Reservation/advised-{i}")
            assert got == parse_time(window.start) - BEGIN, f"{window}: {got}"
        evicted = sorted(each.object for each in events if each.event == "Evicted")
        assert evicted == sorted(each.object for each in window.evicts)


@pytest.mark.parametrize("seed", range(40, 60))
def test_no_earlier_start_is_free(seed: int) -> None:
    """What bisection finds is the first start that is free, by trying every one of them."""
    draw = random.Random(seed)
    objects, _ = _cluster(draw, grain=20)
    cpu, hours = draw.randint(1, 8), draw.randint(1, 6)
    question = WindowQuestion(
        [reservation("w", cpu, hours)], hours * HOUR, 16 * HOUR, LEAD, most_evictions=0
    )
    at_rest = WhatIfQuestion.about(SETUP, cluster_of(objects)).cluster
    search = WindowSearch(at_rest.scheduler, at_rest.clock.epoch(), question)
    found = [each.start for each in search.report().windows if each.confidence is Confidence.KNOWN]
    firsts, before = [], False
    for minute in (1, *range(20, 16 * 60 + 1, 20)):
        is_free = search.is_free(parse_time(at(minute)))
        if is_free and not before:
            firsts.append(at(minute))
        before = is_free
    assert found == firsts[:5]


@pytest.mark.parametrize("seed", range(60, 90))
def test_every_start_is_in_a_window_unless_an_earlier_one_needs_fewer_evictions(seed: int) -> None:
    draw = random.Random(seed)
    objects, _ = _cluster(draw, grain=20)
    cpu, hours = draw.randint(1, 8), draw.randint(1, 6)
    question = WindowQuestion([reservation("w", cpu, hours)], hours * HOUR, 16 * HOUR, LEAD, limit=100)
    at_rest = WhatIfQuestion.about(SETUP, cluster_of(objects)).cluster
    search = WindowSearch(at_rest.scheduler, at_rest.clock.epoch(), question)
    windows = [e for e in search.report().windows if e.confidence is Confidence.KNOWN]
    fewest = math.inf
    for minute in range(20, 16 * 60 + 1, 20):
        cost = search.cost(parse_time(at(minute)))
        fewest = min(cost, fewest)
        listed = {
            each.evictions + len(each.displaces)
            for each in windows
            if each.start <= at(minute) <= each.latest_start
        }
        assert listed == ({cost} if cost == fewest < math.inf else set()), at(minute)
