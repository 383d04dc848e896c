"""What `explain` says of reservations that start later and whose capacity may not be free by then.

Each advised change is applied to the objects; a scheduler that knows nothing of explanations must then
plan the reservation for certain.
"""

from typing import Any, NamedTuple

import pytest

from explanation.test_situations import (
    DB,
    ESTIMATE,
    N1,
    QUEUE,
    Row,
    annotated,
    changed,
    check_applied,
    explained,
    full,
    in_default,
    planned,
    snapshot_of,
    snapshot_with,
    world_of,
)
from harness.objects import Raw, node, pod, pod_group, queue
from harness.scenarios import actions as configured
from harness.world import World
from holdfast.api.times import format_time
from holdfast.explanation.explainer import explain
from holdfast.explanation.subjects.pods import explain_pod
from holdfast.local.setup import SchedulerFactory

GROUP = "scheduling.k8s.io/group-name"


class Plan(NamedTuple):
    objects: list[Raw]
    says: list[str]
    advises: list[str]
    feasible: str = "False"


def member(name: str, cpu: str = "6") -> Raw:
    raw = planned(name, cpu)
    raw["metadata"]["annotations"][GROUP] = "g"
    return raw


LATE = full("late", "4", "n1", metadata=annotated(**{ESTIMATE: "3h"}))

PLANS: dict[str, Plan] = {
    "pod without an estimate": Plan(
        [N1, full("x", "4", "n1"), planned("r", "6")],
        ["is unknown", "n1: 2 cpu short at 2026-01-01T02:00:00Z"],
        ["EstimateRunTime", "Resize", "Preempt"],
        feasible="Unknown",
    ),
    "pod that ends later": Plan(
        [N1, LATE, planned("r", "6")],
        ["late runs until 2026-01-01T03:00:00Z"],
        ["Resize", "StartLater", "Preempt"],
    ),
    "pod that ends later, while draining": Plan(
        [N1, LATE, planned("r", "6", lead="3h")],
        ["late runs until 2026-01-01T03:00:00Z"],
        ["Resize", "StartLater", "Preempt"],
    ),
    "larger than every node": Plan(
        [N1, planned("r", "16")],
        ["no node is large enough: it requests 16 cpu, the most a node has is 8"],
        ["Resize"],
    ),
    "another plan": Plan(
        [N1, planned("a", "6", app="other"), planned("r", "6")],
        ["4 cpu short at 2026-01-01T02:00:00Z"],
        ["Resize", "StartLater", "DeleteReservation"],
    ),
    "another plan with the same owners": Plan(
        [N1, planned("a", "2"), planned("r", "2")],
        ["reservation a, planned on n1 then, has the same owners"],
        ["DeleteReservation"],
    ),
    "taint": Plan(
        [node("n1", taints=[DB]), planned("r", "6")],
        ["taint dedicated=db:NoSchedule is not tolerated: n1"],
        ["Tolerate"],
    ),
    "gang": Plan(
        [
            in_default(pod_group("g", 2)),
            N1,
            node("n2", cpu="8"),
            full("x", "4", "n2", metadata=annotated(**{ESTIMATE: "3h"})),
            member("r"),
            member("s"),
        ],
        ["only together with the rest of PodGroup/default/g, and reservation s has no certain node"],
        ["Resize", "Preempt"],
    ),
}


def feasible(world: World) -> str:
    conditions = world.objects["Reservation", "r"]["status"].get("conditions") or []
    return next((each["status"] for each in conditions if each["type"] == "Feasible"), "")


@pytest.mark.parametrize("name", PLANS)
def test_plan(name: str) -> None:
    row = PLANS[name]
    world = world_of(row.objects)
    assert feasible(world) == row.feasible
    report = explained(world, Row([], [], [], name="r", kind="Reservation"))
    said = "\n".join([report.summary, *report.details])
    for text in row.says:
        assert text in said
    told = [(each.change["actions"][0], each.text) for each in report.advice]
    assert [action for action, _ in told] == row.advises, told
    for advice in report.advice:
        after = world_of(changed(list(world.objects.values()), advice.change))
        assert feasible(after) == "True", advice.text


QUEUED = {QUEUE: "q"}
IN_QUEUES: dict[str, list[Raw]] = {
    "larger than the capability": [pod("p", "6", annotations=QUEUED)],
    "full": [full("a", "2", "n1", annotations=QUEUED), pod("p", "5", annotations=QUEUED)],
    "a gang": [
        in_default(pod_group("g", 2, queue="q")),
        *(pod(name, "3", group="g") for name in ("p", "p2")),
    ],
}


@pytest.mark.parametrize("name", IN_QUEUES)
def test_an_estimate_beside_a_higher_capability(name: str) -> None:
    """Before the reservation that keeps the capacity of the node is advised to be deleted."""
    limited = queue("q", capability={"cpu": "5"})
    row = Row([N1, limited, planned("r", "7"), *IN_QUEUES[name]], ["counts as never ending"], [])
    estimate, _ = check_applied(row).advice
    assert estimate.change["actions"] == ["RaiseCapability", "EstimateRunTime"]


def test_a_draining_plan_is_explained_by_its_own_node() -> None:
    world = world_of([N1, planned("r", "6", lead="1h")])
    world.put(full("x", "4", "n1")).wait(3700)
    report = explained(world, Row([], [], [], name="r", kind="Reservation"))
    assert "its node is drained until then" in report.details
    assert "is unknown" in report.summary
    assert any("default/x" in each.text for each in report.advice), report.advice


def test_a_pod_that_would_be_backfilled_is_not_told_that_it_has_no_node() -> None:
    world = world_of([N1, planned("nightly", "6")])
    short = pod("p", "4", metadata=annotated(**{ESTIMATE: "1h"}))
    world.objects["Pod", "p"] = short  # no round of the scheduler follows
    report = explain_pod(snapshot_of(world), world.objects["Pod", "p"])
    assert report.summary.startswith("It fits now: n1, as it ends before others need the capacity.")


def test_the_node_of_a_backfilled_pod_is_not_rejected() -> None:
    world = world_of([N1, planned("nightly", "6")])
    world.put(pod("p", "4", metadata=annotated(**{ESTIMATE: "1h"})))
    assert world.node_of("p") == "n1"
    for waited in (0, 3000):  # a pod like it that started now would run for too long
        world.wait(waited)
        report = explain_pod(snapshot_of(world), world.objects["Pod", "p"])
        assert report.nodes == []
        backfilled = "it was backfilled on n1: it should end before others need what is kept for them"
        assert backfilled in report.details, report.details


def test_a_later_start_is_the_first_at_which_it_fits() -> None:
    """The other plan ends before the pod on the other node does."""
    day = full("x", "6", "n2", metadata=annotated(**{ESTIMATE: "20h"}))
    objects = [
        N1,
        node("n2", cpu="8"),
        day,
        planned("a", "6", app="other", ttl="1h"),
        planned("r", "6"),
    ]
    report = explained(world_of(objects), Row([], [], [], name="r", kind="Reservation"))
    (later,) = [each for each in report.advice if each.change["actions"] == ["StartLater"]]
    assert later.text.startswith("start it at 2026-01-01T03:00:00Z")


def test_a_reservation_that_is_yet_to_be_planned_keeps_its_capacity() -> None:
    """The scheduler plans it before it places the pod."""
    world = world_of([N1])
    nightly = planned("nightly", "6")
    nightly["metadata"]["uid"] = "nightly"
    world.objects["Reservation", "nightly"] = nightly
    world.objects["Pod", "p"] = in_default(pod("p", "4"))  # no round of the scheduler follows
    snapshot = snapshot_of(world)
    report = explain(snapshot, world.objects["Pod", "p"])
    assert "planned for reservations that start later" in report.summary
    assert explain(snapshot, world.objects["Pod", "p"]).data() == report.data()
    assert [each.change["actions"] for each in report.advice] == [
        ["EstimateRunTime"],
        ["Resize"],
        ["DeleteReservation"],
    ]


def test_the_group_of_a_gang_names_planned_reservations() -> None:
    group = in_default(pod_group("g", 2))
    pods = [pod(name, "4", group="g") for name in ("p", "q")]
    world = world_of([N1, planned("a", "6"), group, *pods])
    report = explain(snapshot_of(world), world.objects["PodGroup", "g"])
    assert [each.name for each in report.holders] == ["a"]
    assert any("reservation a takes 6 cpu on n1" in each for each in report.details)


def test_a_pod_of_a_job_can_have_its_estimate_from_the_template() -> None:
    owner = {"apiVersion": "batch/v1", "kind": "Job", "name": "report", "uid": "j", "controller": True}
    raw = pod("p", "4", metadata={"ownerReferences": [owner]})
    report = explained(world_of([N1, planned("nightly", "6"), raw]), Row([], [], []))
    text = "or the annotation in the template of Job report)"
    assert any(text in each.text for each in report.advice), report.advice


# Pods that end by the start

OWNER = {"labels": {"app": "night"}}


def short(name: str = "p", hours: str = "1h", **metadata: Any) -> Raw:
    return pod(name, "4", metadata=metadata | annotated(**{ESTIMATE: hours}))


@pytest.mark.parametrize("metadata", [{}, OWNER], ids=["stranger", "owner"])
def test_no_node_is_rejected_on_which_a_pod_would_be_backfilled(metadata: Raw) -> None:
    world = world_of([N1, node("n2", cpu="2"), planned("nightly", "6")])
    world.objects["Pod", "p"] = short(**metadata)  # no round of the scheduler follows
    report = explain_pod(snapshot_of(world), world.objects["Pod", "p"])
    assert report.summary.startswith("It fits now: n1, as it ends before others need the capacity.")
    assert [each.nodes for each in report.nodes] == [["n2"]]
    assert report.would_say == ""


TOO_LATE = "by its run-time estimate it would end at 2026-01-01T03:00:00Z, after the capacity is needed"
NO_BACKFILL = "the configuration has no backfill action: its run-time estimate is not used"
OVERRAN = "a pod of its job exceeded its run-time estimate: the job is not backfilled again"


@pytest.mark.parametrize(
    ("hours", "actions", "overran", "says"),
    [
        ("3h", ["allocate", "backfill"], False, TOO_LATE),
        ("1h", ["allocate"], False, NO_BACKFILL),
        ("1h", ["allocate", "backfill"], True, OVERRAN),
    ],
)
def test_the_reason_why_a_pod_is_not_backfilled(
    hours: str, actions: list[str], overran: bool, says: str
) -> None:
    world = world_of([N1, planned("nightly", "6")])
    owner = {"kind": "Job", "apiVersion": "batch/v1", "name": "j", "uid": "j", "controller": True}
    world.objects["Pod", "p"] = in_default(short(hours=hours, ownerReferences=[owner]))
    if overran:
        noted = {ESTIMATE: "1m", "holdfast.io/overran": "2026-01-01T00:02:00Z"}
        earlier = {"ownerReferences": [owner], **annotated(**noted)}
        world.objects["Pod", "earlier"] = in_default(full("earlier", "1", "n1", metadata=earlier))
    factory = SchedulerFactory.of(configured(*actions))
    snapshot = snapshot_with(list(world.objects.values()), world.now, factory)
    report = explain_pod(snapshot, world.objects["Pod", "p"])
    found = [each for each in report.details if each in (TOO_LATE, NO_BACKFILL, OVERRAN)]
    assert found == [says], report.details


# Estimates that are advised


def starting_in(seconds: float, cpu: str = "8") -> Raw:
    raw = planned("r", cpu)
    raw["metadata"]["annotations"]["holdfast.io/starts-at"] = format_time(World().now + seconds)
    return raw


@pytest.mark.parametrize(
    ("seconds", "estimate"),
    [(5, "4s"), (10, "9s"), (60, "54s"), (600, "9m"), (3600, "50m"), (86400, "23h30m")],
)
def test_an_estimate_is_little_shorter_than_needed(seconds: float, estimate: str) -> None:
    world = world_of([N1, starting_in(seconds), pod("p", "4")])
    advice = explained(world, Row([], [], [])).advice[0]
    assert advice.text.startswith(f"give it a run-time estimate if it ends within {estimate} ")
    assert world_of(changed(list(world.objects.values()), advice.change)).node_of("p") == "n1"


def test_both_pods_of_a_job_get_an_estimate() -> None:
    owner = {"apiVersion": "batch/v1", "kind": "Job", "name": "j", "uid": "j", "controller": True}
    pods = [pod(name, "4", metadata={"ownerReferences": [owner]}) for name in ("p", "q")]
    world = world_of([N1, starting_in(3600), *pods])
    advice = explained(world, Row([], [], [])).advice[0]
    assert advice.text.startswith("give it a run-time estimate if it ends within 50m ")
    assert advice.text.endswith("then both pods fit: n1")
    after = world_of(changed(list(world.objects.values()), advice.change))
    assert [after.node_of(name) for name in ("p", "q")] == ["n1", "n1"]


def test_an_estimate_beside_a_smaller_request() -> None:
    world = world_of([N1, starting_in(3600), full("x", "6", "n1"), pod("p", "4")])
    (advice,) = explained(world, Row([], [], [])).advice
    assert advice.change["actions"] == ["EstimateRunTime", "Resize"]
    assert "request at most 2 cpu instead of 4" in advice.text
    assert world_of(changed(list(world.objects.values()), advice.change)).node_of("p") == "n1"


def test_the_longest_estimate_with_which_some_node_is_eligible() -> None:
    """Most of the nodes have too little capacity beside what ends later."""
    taint = [{"key": "dedicated", "value": "db", "effect": "NoSchedule"}]
    nodes = [N1, *(node(f"n{i}", cpu="8", taints=taint) for i in range(2, 10))]
    plans = [starting_in(600)]
    for i in range(2, 10):
        later = starting_in(3600 + i)
        later["metadata"]["name"] = f"r{i}"
        later["spec"]["template"]["spec"]["tolerations"] = [{"operator": "Exists"}]
        plans.append(later)
    world = world_of([*nodes, *plans, pod("p", "4")])
    advice = explained(world, Row([], [], [])).advice[0]
    assert advice.text.startswith("give it a run-time estimate if it ends within 9m ")


def test_a_plan_without_a_node_takes_what_the_deletion_of_another_one_frees() -> None:
    other = starting_in(700)
    other["metadata"]["name"] = "other"
    world = world_of([N1, starting_in(600), other, pod("p", "4")])
    report = explained(world, Row([], [], []))
    assert [each.change["actions"] for each in report.advice] == [["EstimateRunTime"]]


def test_a_plan_without_a_node_takes_what_the_end_of_a_pod_frees() -> None:
    world = world_of([N1, full("x", "8", "n1"), starting_in(600), pod("p", "4")])
    (advice,) = explained(world, Row([], [], [])).advice
    assert advice.change["actions"] == ["EstimateRunTime", "EndPods"]
    assert world_of(changed(list(world.objects.values()), advice.change)).node_of("p") == "n1"


N2 = node("n2", cpu="8")
LATE_STARTS: dict[str, list[Raw]] = {
    "alone": [N1, N2, planned("r", "10")],
    "a gang": [in_default(pod_group("g", 2)), N1, N2, member("r", "10"), member("s", "10")],
}


@pytest.mark.parametrize("name", LATE_STARTS)
def test_a_start_that_was_missed_is_late_and_has_advice(name: str) -> None:
    world = world_of(LATE_STARTS[name])
    world.wait(3 * 3600)
    report = explained(world, Row([], [], [], name="r", kind="Reservation"))
    assert report.summary == (
        "Its start, 2026-01-01T02:00:00Z, was reached 1h ago. It is late. "
        "No suitable node among 2 nodes: too little cpu (2)."
    )
    assert report.would_say == report.told == "0/2 nodes are available: 2 Insufficient cpu."
    (smaller,) = report.advice
    after = world_of(changed(list(world.objects.values()), smaller.change))
    after.wait(3 * 3600)
    assert after.status("r")["nodeName"] in ("n1", "n2")


def test_a_start_that_no_scheduler_has_reached_is_not_announced() -> None:
    world = world_of([N1, planned("r", "6")])
    report = explained(world, Row([], [], [], name="r", kind="Reservation"))
    assert report.summary.startswith("It starts at 2026-01-01T02:00:00Z; n1 is planned.")
    world.now += 3 * 3600  # no round of the scheduler follows
    report = explained(world, Row([], [], [], name="r", kind="Reservation"))
    assert report.summary.startswith(
        "Its start, 2026-01-01T02:00:00Z, was reached 1h ago. The scheduler has not started it yet, or "
        "is not running; n1 is planned."
    )
