"""Who is in the way, with figures: reservations with host ports, disruption budgets, starvation holds,
and the pods that a Waiting reservation waits for."""

from __future__ import annotations

import pytest

from explanation.test_holds_and_hardware import MINE, starvation_hold
from explanation.test_situations import (
    ESTIMATE,
    N1,
    Row,
    annotated,
    budget,
    changed,
    check,
    explained,
    full,
    in_default,
    snapshot_of,
    world_of,
)
from harness.objects import Raw, pod, pod_group, pod_spec, reservation
from harness.scenarios import actions
from harness.world import World
from holdfast.explanation.explainer import explain
from holdfast.explanation.report import Report
from holdfast.kube.decoding import WATCHED
from holdfast.local.setup import SchedulerFactory
from holdfast.snapshot.cluster_snapshot import ClusterSnapshot

PORT = {"spec": pod_spec({"cpu": "1"}, ports=[80])}
STARVING = [
    N1,
    full("a", "6", "n1", metadata=annotated(**{ESTIMATE: "1h"})),
    in_default(pod_group("g", 1)),
    pod("big", "6", group="g"),
    starvation_hold("h", "n1", "big"),
]

SITUATIONS: dict[str, Row] = {
    "host port of a reservation": Row(
        [N1, reservation("r", ttl="1h", template=PORT), pod("p", ports=[80])],
        ["host port 80/TCP on n1 is reserved by reservation r"],
        ["Wait", "ChangePort", "DeleteReservation"],
    ),
    "host port of a reservation that does not expire": Row(
        [N1, reservation("r", ttl="0s", template=PORT), pod("p", ports=[80])],
        ["host port 80/TCP on n1 is reserved by reservation r"],
        ["ChangePort", "DeleteReservation"],
    ),
    "host port of a reservation, and another reservation on the node": Row(
        [
            N1,
            reservation("a", "2", app="x", ttl="0s"),
            reservation("r", ttl="0s", template=PORT),
            pod("p", ports=[80]),
        ],
        ["host port 80/TCP on n1 is reserved by reservation r"],
        ["ChangePort", "DeleteReservation"],
    ),
    "two pods that a budget protects": Row(
        [
            N1,
            full("a", "4", "n1", app="safe"),
            full("b", "4", "n1", app="safe"),
            budget("safe"),
            pod("p", "7"),
        ],
        ["default/safe allows 0 more evictions: ending default/a, default/b on n1 is not advised"],
        [],
    ),
}


@pytest.mark.parametrize("name", SITUATIONS)
def test_situation(name: str) -> None:
    check(SITUATIONS[name])


def test_the_next_free_port_is_advised() -> None:
    taken = full("a", "1", "n1", ports=[81])
    row = Row([N1, taken, reservation("r", ttl="0s", template=PORT), pod("p", ports=[80])], [], [])
    texts = [each.text for each in explained(world_of(row.objects), row).advice]
    assert texts[0] == "use the host port 82 instead of 80; then it fits n1"
    assert texts[1] == "delete the reservation r on n1; then it fits n1"


# Disruption budgets


def not_tried(objects: list[Raw], raw: Raw) -> Report:
    """Of a pod for which no round of the scheduler followed."""
    world = world_of(objects)
    raw["metadata"] |= {"namespace": "default", "uid": "pod-p"}
    world.objects["Pod", "p"] = raw
    return explain(snapshot_of(world), raw)


def test_victims_that_a_budget_protects_are_named() -> None:
    objects = [N1, full("a", "8", "n1", app="safe"), budget("safe")]
    report = not_tried(objects, pod("p", "7", priority=100))
    assert "it can preempt default/a of lower priority on n1, and will if it is tried" in report.details
    assert (
        "PodDisruptionBudget default/safe allows 0 more evictions, and protects default/a: preemption "
        "prefers other pods, but may violate it"
    ) in report.details
    assert not any("nothing that was tried" in each for each in report.details)


def test_victims_without_a_budget() -> None:
    report = not_tried([N1, full("a", "8", "n1", app="x")], pod("p", "7", priority=100))
    assert "it can preempt default/a of lower priority on n1, and will if it is tried" in report.details
    assert not any("PodDisruptionBudget" in each for each in report.details)


def priority_class(name: str, value: int, **more: str) -> Raw:
    api = "scheduling.k8s.io/v1"
    return {
        "apiVersion": api,
        "kind": "PriorityClass",
        "metadata": {"name": name, "uid": name},
        "value": value,
        **more,
    }


@pytest.mark.parametrize(
    ("classes", "says"),
    [
        (
            [priority_class("top", 900), priority_class("higher", 500), priority_class("equal", 100)],
            "its priority 0 is too low to preempt other pods: with PriorityClass higher (500), it "
            "preempts default/a on n1",
        ),
        ([priority_class("equal", 100)], ""),
        ([priority_class("polite", 500, preemptionPolicy="Never")], ""),
        ([priority_class("system-node-critical", 2_000_001_000)], ""),
    ],
    ids=["higher", "equal", "never", "of the system"],
)
def test_a_priority_class_with_which_it_would_preempt(classes: list[Raw], says: str) -> None:
    objects = [N1, *classes, full("a", "8", "n1", priority=100)]
    report = not_tried(objects, pod("p", "7"))
    assert [each for each in report.details if "priority" in each] == ([says] if says else [])


def test_pods_of_one_workload_preempt_none_of_each_other() -> None:
    """A PriorityClass is set in the template, which they share."""
    owner = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "r", "uid": "r", "controller": True}

    def of_workload(raw: Raw) -> Raw:
        return in_default({**raw, "metadata": {**raw["metadata"], "ownerReferences": [owner]}})

    sibling, own = of_workload(full("a", "4", "n1")), of_workload(pod("p", "4"))
    classes = [priority_class("higher", 500)]
    other = full("b", "4", "n1")
    assert "it preempts default/b on n1" in "".join(
        not_tried([N1, *classes, sibling, other], own).details
    )
    high = full("b", "4", "n1", priority=500)
    report = not_tried([N1, *classes, sibling, high], own)
    assert not [each for each in report.details if "priority" in each]


# Starvation holds


def held(raw: Raw) -> tuple[World, Report]:
    """A pod that comes when the node is held."""
    world = world_of(STARVING)
    world.put(raw)
    return world, explained(world, Row([], [], []))


@pytest.mark.parametrize(
    ("requests", "keeps"),
    [
        ({"cpu": "2"}, "keeps 2 cpu idle on n1 for PodGroup/default/g"),
        ({"memory": "1Gi"}, "keeps other pods off n1, for PodGroup/default/g"),
    ],
    ids=["of what it keeps", "of other resources"],
)
def test_a_starvation_hold_is_named(requests: Raw, keeps: str) -> None:
    _, report = held(pod("p", requests=requests))
    assert (
        f"starvation hold h {keeps} until it starts (Waiting since 2026-01-01T00:00:00Z, expected to "
        "start in 1h)"
    ) in report.details
    (holder,) = report.holders
    assert (holder.kind, holder.held_for) == ("StarvationHold", "PodGroup/default/g")
    assert (holder.since, holder.expected_start) == ("2026-01-01T00:00:00Z", "2026-01-01T01:00:00Z")


def test_a_starvation_hold_is_not_advised_to_be_deleted() -> None:
    """The scheduler would make it again."""
    endless = world_of([N1, full("a", "6", "n1"), *STARVING[2:]])
    endless.put(pod("p", "2"))
    report = explained(endless, Row([], [], []))
    assert report.advice == []
    assert report.details[-1] == (
        "nothing that was tried would help; the starvation hold of PodGroup/default/g ends when it "
        "starts, and deleting it is not advised: the scheduler makes it again"
    )


def test_an_estimate_is_advised_where_short_pods_are_backfilled() -> None:
    world, _ = held(pod("p", "2"))
    config = actions("allocate", "backfill", backfill=True)
    snapshot = ClusterSnapshot(SchedulerFactory.of(config).scheduler(), world.now)
    for watched in WATCHED:
        kinds = (watched.info.api_version, watched.info.kind)
        found = [r for r in world.objects.values() if (r["apiVersion"], r["kind"]) == kinds]
        snapshot.add(watched, [] if watched.ended else found)
    (advice,) = explain(snapshot, world.objects["Pod", "p"]).advice
    assert advice.text.startswith("give it a run-time estimate if it ends within 50m ")


# Waiting reservations


def waiting(*pods: Raw) -> tuple[World, Report]:
    world = world_of([N1, *pods, MINE])
    return world, explained(world, Row([], [], [], name="mine", kind="Reservation"))


def test_what_a_reservation_waits_for() -> None:
    long = full("a", "6", "n1", metadata=annotated(**{ESTIMATE: "10m"}))
    world, report = waiting(long, full("b", "1", "n1"))
    assert report.summary == "It waits until 6 cpu are free on n1, which is short of 5 cpu."
    assert report.details == [
        "pod default/a has 6 cpu: expected to end in 10m",
        "pod default/b has 1 cpu: end unknown",
        "its capacity is expected to be free at 2026-01-01T00:10:00Z (in 10m)",
    ]
    assert [each.change["actions"] for each in report.advice] == [["Wait"], ["EndPods"]]
    for advice in report.advice:
        after = world_of(changed(list(world.objects.values()), advice.change))
        assert after.phase("mine") == "Available"


def test_a_reservation_that_waits_for_an_unknown_time() -> None:
    _, report = waiting(full("a", "3", "n1"), full("b", "3", "n1"))
    assert "when its capacity becomes free is unknown: pods lack run-time estimates" in report.details
    (advice,) = report.advice
    assert advice.text == "end 2 pods default/a, default/b; then it is Available"
