"""Pods behind others that have preempted and wait for their victims to terminate: what they wait for,
and what they do after. The preemptions are a scheduler's, and what is said comes true in that world."""

from __future__ import annotations

import copy
from typing import NamedTuple

import pytest

from explanation.test_situations import N1, QUEUE, full, in_default, merged, snapshot_of
from harness.objects import Raw, node, pod, pod_group, queue, reservation
from harness.world import World
from holdfast.explanation.explainer import explain

LOW = full("low", "8", "n1")
KEPT = "n1: default/low is terminating (grace period ends in 30s), and what it frees is kept for "
WAIT = "wait 30s, until 2026-01-01T00:00:30Z: pod default/low should end"
IN_QUEUE = {QUEUE: "q"}


class Row(NamedTuple):
    objects: list[Raw]
    """In the order of their creation; one of them preempts the pod `low`."""
    says: list[str]
    advises: list[str]
    kind: str = "Pod"


ROWS = {
    "what is left is enough": Row(
        [N1, LOW, pod("high", "4", priority=100), pod("p", "4")],
        [KEPT + "default/high (priority 100)"],
        [f"{WAIT} on n1"],
    ),
    "nothing is left": Row(
        [N1, LOW, pod("high", "8", priority=100), pod("p", "4")],
        [KEPT + "default/high (priority 100); then it is short of 4 cpu"],
        [f"end pod default/high (priority 100), nominated to n1 and {WAIT} on n1"],
    ),
    "too little is left": Row(
        [N1, LOW, pod("high", "4", priority=100), pod("p", "6")],
        [KEPT + "default/high (priority 100); then it is short of 2 cpu"],
        [f"request at most 4 cpu instead of 6 and {WAIT} on n1"],
    ),
    "what is left is enough for a gang": Row(
        [
            N1,
            LOW,
            pod("high", "4", priority=100),
            in_default(pod_group("g", 2)),
            pod("p", "2", group="g"),
            pod("q", "2", group="g"),
        ],
        [KEPT + "default/high (priority 100)"],
        [WAIT],
    ),
    "what is left is enough for a reservation": Row(
        [N1, LOW, pod("high", "4", priority=100), reservation("p", "4", app="x")],
        [KEPT + "default/high (priority 100)"],
        [f"{WAIT} on n1"],
        kind="Reservation",
    ),
    "in a queue, what is left is enough": Row(
        [
            node("n1", cpu="64"),
            queue("q", capability={"cpu": "12"}),
            full("low", "8", "n1", annotations=IN_QUEUE),
            pod("high", "8", priority=100, annotations=IN_QUEUE),
            pod("p", "4", annotations=IN_QUEUE),
        ],
        [
            "queue q uses 8 of the 12 cpu of its capability, 8 more are kept for default/high, and the "
            "request is 4 cpu",
            "pod default/low of it is terminating (grace period ends in 30s)",
        ],
        [WAIT, "raise the capability of queue q to 20 cpu; then it fits n1"],
    ),
    "in a queue, nothing is left": Row(
        [
            node("n1", cpu="64"),
            queue("q", capability={"cpu": "8"}),
            full("low", "8", "n1", annotations=IN_QUEUE),
            pod("high", "8", priority=100, annotations=IN_QUEUE),
            pod("p", "4", annotations=IN_QUEUE),
        ],
        ["queue q uses 8 of the 8 cpu of its capability, 8 more are kept for default/high"],
        [f"raise the capability of queue q to 12 cpu and {WAIT}"],
    ),
}


def preempting(objects: list[Raw]) -> World:
    world = World()
    world.graceful = True
    for raw in copy.deepcopy(objects):
        world.put(raw)
    return world


def follow(world: World, change: Raw) -> None:
    """Makes the change as a user does, and waits until the grace period of the victim is over."""
    for each in change["objects"]:
        if each["operation"] == "patch":
            at = each["kind"], each["name"]
            world.put(merged(world.objects[at], each["patch"]))
        elif each["name"] != "low":
            world.delete(each["kind"], each["name"])
    if "until" in change:
        world.delete("Pod", "low")
    world.wait(30)


@pytest.mark.parametrize("name", ROWS)
def test_waits_for_a_pod_that_terminates_for_another(name: str) -> None:
    row = ROWS[name]
    world = preempting(row.objects)
    report = explain(snapshot_of(world), world.objects[row.kind, "p"])
    said = "\n".join([report.summary, *report.details])
    for text in row.says:
        assert text in said
    assert [each.text for each in report.advice] == row.advises
    for advice in report.advice:
        after = preempting(row.objects)
        follow(after, advice.change)
        found = after.objects[row.kind, "p"]
        assert found["spec"].get("nodeName") or found["status"].get("nodeName") == "n1", advice.text


@pytest.mark.parametrize("cpu", ["4", "8"])
def test_preempts_the_other_one_after_that(cpu: str) -> None:
    """The hold keeps the capacity for the pod that preempted first, also from pods of higher
    priority."""
    world = preempting([N1, LOW, pod("high", cpu, priority=100), pod("p", "8", priority=500)])
    report = explain(snapshot_of(world), world.objects["Pod", "p"])
    assert report.summary.endswith(
        "Once default/low has ended (in 30s) and default/high has started, it preempts default/high on "
        "n1."
    )
    assert not report.advice
    world.delete("Pod", "low").wait(30)
    assert "deletionTimestamp" in world.objects["Pod", "high"]["metadata"]
    assert world.objects["Pod", "p"]["status"]["nominatedNodeName"] == "n1"


def test_is_nominated_where_a_pod_terminates_already() -> None:
    """Nothing more has to be preempted."""
    world = preempting([N1, LOW, pod("p", "8", priority=100)])
    del world.objects["Pod", "p"]["status"]["nominatedNodeName"]
    holds = [key for key in world.objects if key[0] == "Reservation"]
    for key in holds:
        del world.objects[key]
    report = explain(snapshot_of(world), world.objects["Pod", "p"])
    text = (
        "n1 is nominated for it if it is tried, where default/low of lower priority terminates already"
    )
    assert text in report.details
