"""Advice where other pods want the same capacity: those of the same workload, and those tried first."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from explanation.test_situations import (
    DB,
    ESTIMATE,
    N1,
    QUEUE,
    annotated,
    as_they_are,
    full,
    in_default,
    snapshot_of,
    snapshot_with,
    world_of,
)
from explanation.test_workloads import owned, selected, workload
from harness.objects import Raw, node, pod, pod_group, queue, reservation
from holdfast.explanation.explainer import explain
from holdfast.explanation.report import Report

OF_WEB: Raw = {"metadata": owned("ReplicaSet", "web-1")}


def replicas(cpu: str, pending: int, **more: Any) -> list[Raw]:
    """A Deployment with one pod on n1, and others that are pending."""
    waiting = [pod(f"web-1-{at}", cpu, **OF_WEB, **more) for at in range(1, pending + 1)]
    placed = full("web-1-0", cpu, "n1", **OF_WEB)
    made_by = selected(workload("ReplicaSet", "web-1", pending + 1, cpu=cpu))
    return [made_by, placed, *waiting]


def explained(objects: list[Raw], pending: int) -> Report:
    cpu = objects[-1]["spec"]["containers"][0]["resources"]["requests"]["cpu"]
    deployment = selected(workload("Deployment", "web", pending + 1, cpu=cpu))
    return explain(snapshot_of(world_of(objects)), deployment)


def fits(nodes: list[Raw], count: int, cpu: str) -> int:
    """How many pods of that size a scheduler binds there."""
    world = world_of([*nodes, *(pod(f"x-{at}", cpu) for at in range(count))])
    world.settle()
    return sum(bool(world.node_of(f"x-{at}")) for at in range(count))


def test_requests_are_advised_with_which_all_replicas_fit() -> None:
    report = explained([N1, *replicas("5", 2)], 2)
    (only,) = report.advice
    assert only.text == (
        "request at most 2666m cpu instead of 5, in the template of Deployment web, and set "
        "maxUnavailable of its rolling update to 2, so that old pods may end first; then all 3 pods "
        "fit: n1"
    )
    assert (fits([N1], 3, "2666m"), fits([N1], 3, "3")) == (3, 2)


def test_requests_for_all_replicas_count_what_smaller_pods_free() -> None:
    objects = [node("n1", cpu="4"), node("n2", cpu="4"), *replicas("3", 4)]
    (resized,) = explained(objects, 4).advice
    assert "request at most 1333m cpu instead of 3," in resized.text
    assert resized.text.endswith("then all 5 pods fit: n1, n2")


def test_requests_that_fit_several_nodes() -> None:
    report = explained([N1, node("n2", cpu="4"), *replicas("5", 2)], 2)
    assert [each.text.partition("; then ")[2] for each in report.advice] == ["all 3 pods fit: n1, n2"]


@pytest.mark.parametrize(
    ("other", "text"),
    [
        (node("n2", cpu="8", unschedulable=True), "uncordon n2 (kubectl uncordon n2)"),
        (
            node("n2", cpu="8", taints=[DB]),
            "tolerate dedicated=db:NoSchedule, in the template of Deployment web",
        ),
    ],
    ids=["cordoned", "tainted"],
)
def test_a_node_that_is_enough_for_some_of_the_replicas(other: Raw, text: str) -> None:
    report = explained([N1, other, *replicas("5", 3)], 3)
    texts = [each.text for each in report.advice]
    total = 3 if "uncordon" in text else 4
    assert texts[0].endswith("then all 4 pods fit: n1")
    assert texts[1:] == [f"{text}; then 1 of {total} pods fits: n2"]


def test_as_many_nodes_are_uncordoned_as_all_replicas_need() -> None:
    cordoned = [node(f"n{at}", cpu="8", unschedulable=True) for at in range(2, 6)]
    report = explained([N1, *cordoned, *replicas("5", 3)], 3)
    assert report.advice[0].text == (
        "uncordon n2, n3, n4 (kubectl uncordon n2 n3 n4); then all 3 pods fit: n2, n3, n4"
    )


def test_waiting_is_for_all_replicas() -> None:
    ends = [full(f"j{hours}", "1", "n1", annotations={ESTIMATE: f"{hours}h"}) for hours in (1, 2, 3)]
    objects = [node("n1", cpu="4"), *ends, *replicas("1", 2)]
    texts = [each.text for each in explained(objects, 2).advice if each.text.startswith("wait")]
    assert [each.partition("; then ")[2] for each in texts] == ["both pods fit: n1"]
    assert "pod default/j1, pod default/j2 should end" in texts[0]


def test_a_pod_says_how_many_nodes_the_anti_affinity_of_its_workload_needs() -> None:
    term = {"labelSelector": {"matchLabels": {"app": "web"}}, "topologyKey": "kubernetes.io/hostname"}
    apart = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}
    objects = replicas("1", 2, affinity=apart)
    for raw in objects:
        spec = raw["spec"]["template"]["spec"] if raw["kind"] == "ReplicaSet" else raw["spec"]
        spec["affinity"] = apart
    world = world_of([N1, *objects])
    details = explain(snapshot_of(world), world.objects["Pod", "web-1-1"]).details
    assert "allows one pod per node: 3 pods need 3, and there is 1, so 2 more are needed" in details[0]


def test_the_advice_for_one_pod_counts_the_others_of_its_workload() -> None:
    world = world_of([N1, *replicas("5", 2)])
    report = explain(snapshot_of(world), world.objects["Pod", "web-1-1"])
    assert [each.text.partition("; then ")[2] for each in report.advice] == ["all 3 pods fit: n1"]


@pytest.mark.parametrize(
    ("strategy", "more"),
    [
        ({}, ", and set maxUnavailable of its rolling update to 2, so that 1 old pod may end first"),
        ({"rollingUpdate": {"maxUnavailable": 2}}, ""),
        ({"type": "Recreate"}, ""),
    ],
    ids=["a quarter", "two", "recreate"],
)
def test_replicas_on_nodes_make_room_for_smaller_ones(strategy: Raw, more: str) -> None:
    """By default none of three pods ends before a new one is ready, which does not fit beside them."""
    placed = full("web-1-9", "5", "n1", **OF_WEB)
    objects = [node("n1", cpu="10"), placed, *replicas("5", 1)]
    deployment = selected(workload("Deployment", "web", 3, cpu="5"))
    deployment["spec"]["strategy"] = strategy
    (advice,) = explain(snapshot_of(world_of(objects)), deployment).advice
    assert advice.text == (
        f"request at most 3333m cpu instead of 5, in the template of Deployment web{more}; "
        "then all 3 pods fit: n1"
    )
    patches = [each["patch"]["spec"] for each in advice.change["objects"]]
    assert [each["strategy"] for each in patches if "strategy" in each] == (
        [{"rollingUpdate": {"maxUnavailable": 2}}] if more else []
    )


# Pods that are tried first

PRIORITY = "koordinator.sh/priority"
CAN_PREEMPT = "scheduling.koordinator.sh/can-preempt"
HIGH: Raw = {"priority": 1000, "preemptionPolicy": "Never"}


def explained_pod(*objects: Raw) -> Report:
    """What is said of the pod p before any pod was tried."""
    found = [in_default(copy.deepcopy(each)) for each in objects]
    snapshot = snapshot_with([N1, *found], world_of([N1]).now)
    return explain(snapshot, found[-1])


def test_a_pod_of_higher_priority_takes_the_node_first() -> None:
    report = explained_pod(pod("first", "6", **HIGH), pod("p", "4"))
    assert report.summary == (
        "It would fit now: n1, but default/first is tried before it and takes n1."
    )


def test_it_is_said_that_nothing_helps_where_others_take_what_becomes_free() -> None:
    report = explained_pod(full("a", "8", "n1"), pod("first", "2", **HIGH), pod("p", "8"))
    first, *_, last = [each for each in report.details if "closest" not in each]
    assert first == "once capacity is free, default/first is tried before it and takes n1"
    assert (last, report.advice) == ("nothing that was tried would help", [])


def test_a_new_node_that_another_pod_takes_is_not_named() -> None:
    """It was only tried."""
    zone: Raw = {"nodeSelector": {"topology.kubernetes.io/zone": "x"}}
    report = explained_pod(pod("first", "8", **HIGH, **zone), pod("p", "8", **zone))
    assert not any("new-node" in each for each in report.details)
    (only,) = report.advice
    assert only.text.startswith("add 2 nodes with topology.kubernetes.io/zone=x (")
    assert "), since default/first is tried before it; then it fits " in only.text


@pytest.mark.parametrize("cpu", ["4", "9"], ids=["beside", "fits nowhere"])
def test_a_pod_that_is_tried_first_and_leaves_enough(cpu: str) -> None:
    report = explained_pod(pod("first", cpu, **HIGH), pod("p", "4"))
    assert report.summary.startswith("It fits now: n1.")


def test_waiting_is_not_advised_if_another_pod_takes_what_becomes_free() -> None:
    running = full("a", "8", "n1", metadata=annotated(**{ESTIMATE: "30m"}))
    report = explained_pod(running, pod("first", "6", **HIGH), pod("p", "6"))
    assert "once capacity is free, default/first is tried before it and takes n1" in report.details
    assert report.advice == []
    alone = explained_pod(running, pod("p", "6"))
    assert [each.change["actions"] for each in alone.advice] == [["Wait"]]


def starving() -> list[Raw]:
    """A pod with a starvation hold on n1."""
    held = reservation(
        "held",
        "8",
        owners=[{"object": {"kind": "Pod", "namespace": "default", "name": "big", "uid": "big"}}],
        labels={"holdfast.io/hold": "starvation"},
        preAllocation=True,
        ttl="0",
    )
    held["status"] = {"phase": "Waiting", "nodeName": "n1"}
    return [held, pod("big", "8", metadata={"creationTimestamp": "2025-12-30T00:00:00Z"})]


@pytest.mark.parametrize(
    ("filled", "ends"),
    [("7", "1h"), ("4", "1h"), ("4", "6h")],
    ids=["it starts earlier", "it starts earlier beside idle capacity", "it starts on the other node"],
)
def test_a_pod_with_a_starvation_hold_elsewhere_takes_nothing(filled: str, ends: str) -> None:
    report = as_they_are(
        "Pod",
        "p",
        N1,
        node("n2", cpu="8"),
        full("a", filled, "n1", metadata=annotated(**{ESTIMATE: ends})),
        full("b", "6", "n2", metadata=annotated(**{ESTIMATE: "2h"})),
        *starving(),
        pod("p", "3"),
    )
    assert not any("is tried before it" in each for each in report.details)
    waits = [each.text for each in report.advice if each.change["actions"] == ["Wait"]]
    assert waits == ["wait 2h, until 2026-01-01T02:00:00Z: pod default/b should end on n2"]


@pytest.mark.parametrize(
    ("owner", "cordoned", "fits"),
    [
        ("", ["8"], "it fits n1"),
        ("Job", ["8"], "1 of 2 pods fits: n1"),
        ("ReplicaSet", ["8"], "1 of 2 pods fits: n1"),
        ("Job", ["8", "4"], "both pods fit: n1, n3"),
        ("ReplicaSet", ["8", "4"], "both pods fit: n1, n3"),
    ],
)
def test_what_was_held_for_a_pod_is_free_once_it_has_started(
    owner: str, cordoned: list[str], fits: str
) -> None:
    """It takes all of n2, before the others are tried."""
    more: Raw = {"metadata": owned(owner, "web")} if owner else {}
    pods = [pod(f"p{at}" if at else "p", "4", **more) for at in range(2 if owner else 1)]
    made_by = [selected(workload(owner, "web", 2, cpu="4"))] if owner else []
    for raw in pods:
        raw["metadata"] = {**raw["metadata"], "creationTimestamp": "2025-12-31T00:00:00Z"}
    nodes = [node(f"n{at}", cpu=cpu, unschedulable=True) for at, cpu in enumerate(cordoned, 2)]
    advice = as_they_are(
        "Pod", "p", N1, full("x", "4", "n1"), *nodes, *starving(), *made_by, *pods
    ).advice
    names = " ".join(each["metadata"]["name"] for each in nodes)
    uncordon = f"uncordon {', '.join(names.split())} (kubectl uncordon {names})"
    assert f"{uncordon}; then {fits}" in [each.text for each in advice]


def test_a_reservation_that_preempts_another_one_says_so() -> None:
    low = reservation("low", "6", app="web", labels={PRIORITY: "100"})
    low["status"] = {"phase": "Available", "nodeName": "n1", "allocatable": {"cpu": "6"}}
    vip = reservation("vip", "6", app="web", labels={PRIORITY: "9000", CAN_PREEMPT: "true"})
    for each in (low, vip):
        each["metadata"]["uid"] = each["metadata"]["name"]
    report = explain(snapshot_with([N1, low, vip], world_of([N1]).now), vip)
    assert "it can preempt reservation low on n1, and will if it is tried" in report.details


# Gangs


def gang(name: str, cpu: str, created: str, **more: Any) -> list[Raw]:
    """A gang of two that were created at that second."""
    metadata = {"creationTimestamp": f"2025-12-31T23:59:{created}Z"}
    pods = [pod(f"{name}{at}", cpu, metadata=dict(metadata), group=name, **more) for at in range(2)]
    return [pod_group(name, 2), *pods]


RUNNING = full("fill", "8", "n1", metadata=annotated(**{ESTIMATE: "30m"}))
FIRST_GANG = gang("first", "4", "01")


@pytest.mark.parametrize(
    ("ahead", "taker"),
    [
        (FIRST_GANG, "PodGroup default/first"),
        ([pod("single", "8", **HIGH)], "default/single"),
    ],
    ids=["gang", "pod"],
)
@pytest.mark.parametrize("kind", ["Pod", "PodGroup"])
def test_a_gang_is_not_told_to_wait_for_what_others_take(
    ahead: list[Raw], taker: str, kind: str
) -> None:
    later = gang("g", "4", "02")
    subject = later[-1] if kind == "Pod" else later[0]
    others = later[:-1] if kind == "Pod" else later[1:]
    report = explained_pod(RUNNING, *ahead, *others, subject)
    assert f"once capacity is free, {taker} is tried before it and takes n1" in report.details
    assert report.advice == []
    alone = explained_pod(RUNNING, *others, subject)
    assert ["Wait"] in [each.change["actions"] for each in alone.advice]


@pytest.mark.parametrize("name", ["Pod", "PodGroup"])
def test_a_gang_waits_for_the_end_of_those_that_start_before_it(name: str) -> None:
    """As `holdfast when` has it: first starts in 30m and ends one hour later."""
    ahead = copy.deepcopy(FIRST_GANG)
    for raw in ahead[1:]:
        raw["metadata"]["annotations"][ESTIMATE] = "1h"
    soon = full("soon", "8", "n1", metadata=annotated(**{ESTIMATE: "30m"}))
    later = gang("g", "4", "02")
    last = later.pop(-1 if name == "Pod" else 0)
    (advice,) = explained_pod(soon, *ahead, *later, last).advice
    assert advice.text.startswith("wait 1h30m, until ")
    assert advice.text.endswith("should end; PodGroup default/first should start before")


def test_a_single_pod_waits_for_the_end_of_what_starts_before_it() -> None:
    soon = full("soon", "8", "n1", metadata=annotated(**{ESTIMATE: "30m"}))
    first = pod("first", "6", metadata=annotated(**{ESTIMATE: "20m"}), **HIGH)
    (advice,) = explained_pod(soon, first, pod("p", "6")).advice
    assert advice.text.startswith("wait 50m, until ")
    assert "pod default/soon, pod default/first should end; default/first" in advice.text


def in_queue(raw: Raw, name: str, created: str) -> Raw:
    raw["metadata"] |= annotated(**{QUEUE: name}) | {"creationTimestamp": created}
    return raw


def test_the_queue_with_the_smallest_part_of_its_share_is_served_first() -> None:
    """The older pod is of a queue that has some of its share already."""
    has = in_queue(full("has", "2", "n1"), "a", "2025-12-31T20:00:00Z")
    old = in_queue(pod("old", "4"), "a", "2025-12-31T21:00:00Z")
    new = in_queue(pod("new", "4"), "b", "2025-12-31T22:00:00Z")
    queues, objects = [queue("a"), queue("b")], [has, old, new]
    world = world_of([N1, *queues, *objects])
    assert world.node_of("new") == "n1" and not world.node_of("old")
    first = explained_pod(*queues, has, old, new)
    assert first.summary.startswith("It fits now: n1.")
    second = explained_pod(*queues, has, new, old)
    assert second.summary == "It would fit now: n1, but default/new is tried before it and takes n1."


def test_a_single_pod_counts_the_gangs_ahead_of_it() -> None:
    late = {"creationTimestamp": "2025-12-31T23:59:09Z"}
    report = explained_pod(RUNNING, *FIRST_GANG, pod("p", "4", metadata=late))
    taker = "PodGroup default/first is tried before it and takes n1"
    assert f"once capacity is free, {taker}" in report.details
    free = explained_pod(*FIRST_GANG, pod("p", "4", metadata=late))
    assert free.summary == f"It would fit now: n1, but {taker}."


@pytest.mark.parametrize("kind", ["Pod", "PodGroup"])
def test_a_gang_that_fits_unless_others_come_first(kind: str) -> None:
    later = gang("g", "3", "02")
    if kind == "PodGroup":
        later = [*later[1:], later[0]]
    taker = "PodGroup default/first is tried before it and takes n1"
    assert f", but {taker}." in explained_pod(*FIRST_GANG, *later).summary
    earlier = gang("g", "3", "00")
    if kind == "PodGroup":
        earlier = [*earlier[1:], earlier[0]]
    assert "it is queued" in explained_pod(*FIRST_GANG, *earlier).summary.lower()
