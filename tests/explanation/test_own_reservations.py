"""What `explain` says of pods whose own reservations do not help them, of reservations and schedules
that no scheduler has seen, and of pods that run longer than their estimates."""

from __future__ import annotations

import json

import pytest

from explanation.test_situations import (
    AFFINITY,
    ESTIMATE,
    N1,
    Row,
    annotated,
    as_they_are,
    check,
    explained,
    full,
    merged,
    on_n1,
    planned,
    schedule,
    world_of,
)
from harness.objects import Raw, node, pod, pod_spec, reservation

OVERRUN = full("a", "6", "n1", metadata=annotated(**{ESTIMATE: "1h"}))


def own(name: str, cpu: str, **more: object) -> Raw:
    raw = reservation(name, cpu, app="web", ttl="0s", allocateOnce=False, **more)
    raw["metadata"]["uid"] = name
    return on_n1(raw)


WEB = pod("p", "2", app="web")

SITUATIONS: dict[str, Row] = {
    "closed reservation": Row(
        [N1, own("peak", "8", unschedulable=True), WEB],
        ["reservation peak on n1 cannot be used: it takes no new pods (spec.unschedulable is true)"],
        ["OpenReservation"],
    ),
    "tainted reservation": Row(
        [N1, own("peak", "8", taints=[{"key": "k", "value": "v", "effect": "NoSchedule"}]), WEB],
        ["reservation peak on n1 cannot be used: the pod does not tolerate k=v:NoSchedule"],
        ["Tolerate"],
    ),
    "two small reservations": Row(
        [
            N1,
            full("x", "4", "n1"),
            own("peak", "2", allocatePolicy="Aligned"),
            own("peak2", "2", allocatePolicy="Aligned"),
            pod("p", "4", app="web"),
        ],
        [
            "too little cpu beside its reservation (1)",
            "peak on n1 cannot be used: the pod requests 4 cpu, the reservation has 2 left and n1 has "
            "0 free",
        ],
        ["Resize"],
    ),
    "restricted reservation": Row(
        [
            N1,
            own("peak", "2", allocatePolicy="Restricted"),
            pod(
                "p",
                "4",
                app="web",
                metadata=annotated(**{AFFINITY: json.dumps({"name": "peak"})}),
            ),
        ],
        [
            "its reservation has too little cpu (1)",
            "the pod requests 4 cpu, the reservation has 2 left, and its policy is Restricted",
        ],
        ["Resize", "EnlargeReservation"],
    ),
}


@pytest.mark.parametrize("name", SITUATIONS)
def test_situation(name: str) -> None:
    report = check(SITUATIONS[name])
    assert not any("requested: " in each.why for each in report.reservations)


def test_no_smaller_request_is_advised_than_is_needed() -> None:
    """Two cpu would come from its reservation alone, but four fit beside it."""
    row = Row(
        [
            N1,
            full("x", "4", "n1"),
            own("peak", "2", allocatePolicy="Aligned"),
            pod("p", "5", app="web"),
        ],
        ["closest: n1, short of 1 cpu"],
        ["Resize"],
    )
    (advice,) = check(row).advice
    assert advice.text == "request at most 4 cpu instead of 5; then it fits n1"


def test_a_waiting_reservation_does_not_make_the_shortage_larger_than_the_request() -> None:
    waiting = reservation("pre", "8", app="web", preAllocation=True, ttl="0s")
    world = world_of([N1, full("x", "6", "n1"), waiting, pod("p", "2")])
    report = explained(world, Row([], [], []))
    assert "closest: n1, short of 2 cpu" in report.details


def test_a_reservation_that_starts_later_has_a_node() -> None:
    night = planned("night", "8", app="web")
    asks = pod("p", "4", app="web", metadata=annotated(**{AFFINITY: json.dumps({"name": "night"})}))
    report = explained(world_of([N1, night, asks]), Row([], [], []))
    assert not any("has no node yet" in each for each in report.details), report.details
    (listed,) = report.reservations
    assert listed.why == "starts at 2026-01-01T02:00:00Z on n1"


# No scheduler has seen it


@pytest.mark.parametrize(
    ("cpu", "detail"),
    [
        ("4", "a scheduler would plan it on n1"),
        ("16", "no node would certainly have its capacity by then; closest: n1, short of 8 cpu"),
    ],
)
def test_a_reservation_without_a_plan(cpu: str, detail: str) -> None:
    night = planned("night", cpu)
    night["metadata"]["uid"] = "night"
    report = as_they_are("Reservation", "night", N1, night)
    assert report.summary.endswith("No scheduler has seen it yet: its status has no plan.")
    assert detail in report.details
    assert bool(report.advice) == (cpu == "16")


def test_reservations_without_plans_are_planned_in_their_order() -> None:
    first, second = planned("first", "6"), planned("second", "6", app="day")
    first["metadata"]["creationTimestamp"] = "2025-12-30T00:00:00Z"
    second["metadata"]["creationTimestamp"] = "2025-12-31T00:00:00Z"
    older = as_they_are("Reservation", "first", N1, first, second)
    assert "a scheduler would plan it on n1" in older.details
    report = as_they_are("Reservation", "second", N1, first, second)
    says = "no node would certainly have its capacity by then; closest: n1, short of 4 cpu"
    assert says in report.details
    told = [each.change["actions"] for each in report.advice]
    assert told == [["Resize"], ["StartLater"], ["DeleteReservation"]]


def test_a_schedule_without_a_status() -> None:
    raw = schedule("nightly")
    raw["spec"]["template"] = {"spec": reservation("x", "16")["spec"]}
    report = as_they_are("ReservationSchedule", "nightly", N1, raw)
    assert "No scheduler has seen it yet: it has no status." in report.summary
    assert "Its first start would be 2026-01-01T02:00:00Z." in report.summary
    assert "no node is large enough: it requests 16 cpu, the most a node has is 8" in report.details


# Overruns


@pytest.mark.parametrize(
    ("kind", "name", "says"),
    [
        ("Pod", "p", "is unknown: default/a has run longer than its run-time estimate of 1h"),
        ("Pod", "a", "it has run longer than its run-time estimate of 1h"),
        ("Reservation", "pre", "pod default/a has 6 cpu: it has run longer than its run-time estimate"),
    ],
)
def test_a_pod_that_runs_longer_than_its_estimate(kind: str, name: str, says: str) -> None:
    waiting = reservation("pre", "8", app="web", preAllocation=True, ttl="0s")
    world = world_of([N1, OVERRUN, waiting, pod("p", "8")]).wait(7200)
    report = explained(world, Row([], [], [], name=name, kind=kind))
    assert any(says in each for each in report.details), report.details


def test_a_node_marks_pods_that_should_have_ended() -> None:
    world = world_of([N1, OVERRUN]).wait(7200)
    (placed,) = explained(world, Row([], [], [], name="n1", kind="Node")).placed
    assert (placed.expected_end, placed.overdue) == ("", True)


def test_a_reservation_that_was_used_once_names_its_owner() -> None:
    world = world_of([N1, reservation("peak", "4", app="web", allocateOnce=True), WEB])
    report = explained(world, Row([], [], [], name="peak", kind="Reservation"))
    assert report.summary == (
        "It was allocated to pod default/p (allocateOnce) and reserves nothing more."
    )
    assert report.told == ""


# Reservations in the way of their own pods, and of each other


def waiting_own(cpu: str, **more: object) -> Raw:
    raw = own("peak", cpu, preAllocation=True, **more)
    raw["status"]["phase"] = "Waiting"
    return raw


def test_the_shortage_of_its_own_reservation_is_that_of_the_reservation() -> None:
    """The pod needs one cpu, but the reservation is of no use before all of its four are free."""
    asks = pod("p", "1", app="web", metadata=annotated(**{AFFINITY: json.dumps({"name": "peak"})}))
    report = as_they_are("Pod", "p", N1, full("x", "8", "n1"), waiting_own("4"), asks)
    assert "own reservation peak on n1, which is short of 4 cpu" in report.summary
    report = as_they_are("Reservation", "peak", N1, full("x", "8", "n1"), waiting_own("4"), asks)
    assert "short of 4 cpu" in report.summary


def test_deleting_an_own_reservation_that_waits_comes_before_ending_pods() -> None:
    objects = [
        N1,
        full("x", "4", "n1"),
        full("y", "3", "n1"),
        waiting_own("4"),
        pod("p", "1", app="web"),
    ]
    report = as_they_are("Pod", "p", *objects)
    assert [each.change["actions"] for each in report.advice] == [["DeleteReservation"]]


def test_a_second_reusable_reservation_on_a_node() -> None:
    first, second = own("a", "1"), reservation("peak", "1", app="web", ttl="0s", allocateOnce=False)
    report = as_they_are("Reservation", "peak", N1, first, second)
    told = [each.text.partition("; then")[0] for each in report.advice]
    assert told == [
        "set allocatePolicy: Aligned, so that a node may have several",
        "set allocateOnce: true, if one pod is to use it",
        "delete the reservation a on n1",
    ]


def test_a_pending_reservation_that_has_expired_is_not_told_to_shrink() -> None:
    raw = reservation("peak", "20", ttl="1h")
    raw["metadata"]["creationTimestamp"] = "2025-12-31T00:00:00Z"
    report = as_they_are("Reservation", "peak", N1, raw)
    assert report.summary.startswith("It has expired, at 2025-12-31T01:00:00Z") and not report.advice


def test_the_taint_of_the_node_of_a_required_reservation_is_named() -> None:
    tainted = node("n1", cpu="8", taints=[{"key": "dedicated", "value": "db", "effect": "NoSchedule"}])
    asks = pod("p", "1", app="web", metadata=annotated(**{AFFINITY: json.dumps({"name": "peak"})}))
    report = as_they_are("Pod", "p", tainted, own("peak", "2"), asks)
    assert (
        "reservation peak on n1 cannot be used: the pod does not tolerate dedicated=db:NoSchedule, a "
        "taint of its node" in report.details
    )


def test_a_misspelt_field_of_the_reservation_affinity_is_corrected() -> None:
    asks = pod("p", "1", app="web", metadata=annotated(**{AFFINITY: json.dumps({"nam": "peak"})}))
    report = as_they_are("Pod", "p", N1, own("peak", "2"), asks)
    assert report.advice[0].text.startswith(f"write name instead of nam in {AFFINITY}; then it fits n1")


def test_an_enlarged_reservation_is_resized_by_the_scheduler() -> None:
    """With the change that its user makes, without what follows from it."""
    world = world_of(
        [
            N1,
            reservation("peak", "3", app="web", allocatePolicy="Restricted", allocateOnce=False),
            pod("p", "4", app="web"),
        ]
    )
    report = explained(world, Row([], [], []))
    (advice,) = [each for each in report.advice if each.text.startswith("enlarge")]
    assert advice.text == (
        "enlarge reservation peak to 4 cpu instead of 3, in its template; then it fits n1"
    )
    (change,) = advice.change["objects"]
    assert "status" not in change["patch"]
    world.put(merged(world.objects["Reservation", "peak"], change["patch"])).wait(30)
    assert (world.node_of("p"), world.reservation_of("p")) == ("n1", "peak")


@pytest.mark.parametrize(
    ("requested", "owners", "left", "listed"),
    [
        ({}, 0, "1 pod slot", "pods=1"),
        ({"pods": "2"}, 0, "2 pod slots", "pods=2"),
        ({"pods": "2"}, 1, "1 pod slot", "pods=1"),
        ({"pods": "2"}, 2, "nothing", "pods=0"),
        ({"cpu": "4"}, 0, "4 cpu", "cpu=4"),
        ({"cpu": "4", "pods": "3"}, 1, "2 cpu, 2 pod slots", "cpu=2,pods=2"),
    ],
)
def test_what_remains_of_a_reservation_of_pod_slots(
    requested: Raw, owners: int, left: str, listed: str
) -> None:
    slots = reservation("slots", pod=pod_spec(requested), app="web", ttl="0s", allocateOnce=False)
    wanted: Raw = {"cpu": "2"} if "cpu" in requested else {"requests": {}}
    using = [pod(f"o{i}", app="web", **wanted) for i in range(owners)]
    world = world_of([N1]).put(slots)
    for each in using:
        world.put(each)
    report = explained(world, Row([], [], [], name="slots", kind="Reservation"))
    assert report.summary == f"It reserves capacity on n1; remaining: {left}."
    on_node = explained(world, Row([], [], [], name="n1", kind="Node"))
    (held,) = on_node.held
    assert ",".join(f"{name}={amount}" for name, amount in sorted(held.left.items())) == listed
    world.put(pod("p", "9", app="web"))
    (matching,) = explained(world, Row([], [], [])).reservations
    assert matching.left == listed


def test_a_reservation_of_pod_slots_waits_for_them() -> None:
    few = node("n1", cpu="8", allocatable={"pods": "2"})
    slots = reservation("slots", pod=pod_spec({"pods": "2"}), app="web", preAllocation=True)
    world = world_of([few, full("x", "2", "n1"), slots])
    report = explained(world, Row([], [], [], name="slots", kind="Reservation"))
    assert report.summary.startswith("It waits until 2 pod slots are free on n1"), report.summary
