"""Smaller requests for pods with starvation holds: others start with what was held before the new pods
exist, and a rolling update keeps the old pods with their holds."""

from __future__ import annotations

import pytest

from harness.followed_advice import Situation
from harness.objects import Raw, gang, node, pod, pod_group, reservation

STARVING = 51 * 3600.0 + 60
"""Two days are the threshold, and there are holds for three hours then."""
FULL = [node("n1", 4), pod("x1", 2, runs_for="60h"), pod("x2", 2, runs_for="50h")]
"""2 of 4 cpu are free since an hour."""
SMALL = pod("small", 2, at="51h")
LOST = "the starvation hold of a pod ends if another one takes its place: default/small takes n1 first"
END_X1 = "end pod default/x1 (priority 0) on n1; then it fits n1"


def made_of(kind: str, cpu: str, count: int = 1) -> Raw:
    template: Raw = {"metadata": {"labels": {"app": "big"}}, "spec": pod("big", cpu)["spec"]}
    spec: Raw = {"template": template}
    if kind == "Job":
        template["spec"]["restartPolicy"] = "Never"
        spec |= {"parallelism": count, "completions": count}
    else:
        spec |= {"replicas": count, "selector": {"matchLabels": {"app": "big"}}}
    metadata = {"name": "big", "annotations": {"sim.holdfast.io/at": "1s"}}
    version = "batch/v1" if kind == "Job" else "apps/v1"
    return {"apiVersion": version, "kind": kind, "metadata": metadata, "spec": spec}


BIG = pod("big", 4, at="1s")
GANG = [pod_group("big", 2, at="1s"), *gang("big", 2, 2, at="1s")]
HELD = {
    "pod": ("Pod", [BIG]),
    "Job": ("Job", [made_of("Job", "4")]),
    "Deployment": ("Deployment", [made_of("Deployment", "4")]),
    "gang": ("PodGroup", GANG),
}


@pytest.mark.parametrize("name", HELD)
def test_a_smaller_pod_loses_what_is_held_to_others(name: str) -> None:
    kind, objects = HELD[name]
    situation = Situation(*FULL, *objects, SMALL, at=STARVING)
    report = situation.report(kind, "big")
    assert LOST in report.details
    (only,) = report.advice
    assert only.text == END_X1
    nodes = situation.followed(only)
    assert all(nodes[each] == "n1" for each in nodes if each.startswith("big")), nodes


def test_higher_priority_does_not_help_while_the_new_pod_does_not_exist() -> None:
    urgent = pod("big", 4, at="1s", priority=10, preemptionPolicy="Never")
    situation = Situation(*FULL, urgent, SMALL, at=STARVING)
    report = situation.report("Pod", "big")
    assert LOST in report.details
    assert not any(each.text.startswith("request ") for each in report.advice)
    for each in report.advice:
        assert situation.followed(each)["big"] == "n1", each.text


@pytest.mark.parametrize("name", ["pod", "Job", "gang"])
def test_without_others_the_new_pod_has_what_was_held(name: str) -> None:
    kind, objects = HELD[name]
    situation = Situation(*FULL, *objects, at=STARVING)
    first = situation.report(kind, "big").advice[0]
    assert first.text.startswith("request at most ")
    nodes = situation.followed(first)
    assert all(nodes[each] == "n1" for each in nodes if each.startswith("big")), nodes


def test_a_rolling_update_keeps_the_hold_of_the_old_pod() -> None:
    situation = Situation(*FULL, made_of("Deployment", "4"), at=STARVING)
    (only,) = situation.report("Deployment", "big").advice
    assert only.text == (
        "request at most 2 cpu instead of 4, in the template of Deployment big, and set maxUnavailable "
        "of its rolling update to 1, so that old pods may end first; then it fits n1"
    )
    assert sorted(situation.followed(only).values()) == ["n1", "n1"]


def test_an_older_pod_is_tried_before_a_new_one() -> None:
    """Both need what ends; the one that is made smaller is no longer the first."""
    objects = [node("n1", 4), pod("x", 4), pod("p", 5, at="10s"), pod("q", 3, at="20s")]
    situation = Situation(*objects)
    report = situation.report("Pod", "p")
    for each in report.advice:
        assert situation.followed(each)["p"], each.text


def test_a_gang_that_is_short_of_a_pod_loses_the_holds_of_all() -> None:
    """While one of two does not exist, nothing is held for the other one either."""
    there = [
        node("n1", 6),
        node("n2", 8),
        pod("x1", 3, runs_for="100h", nodeSelector={"kubernetes.io/hostname": "n1"}),
        pod("x2", 3, runs_for="100h", nodeSelector={"kubernetes.io/hostname": "n2"}),
        pod("x3", 2, runs_for="50h", nodeSelector={"kubernetes.io/hostname": "n2"}),
        pod("x4", 2, runs_for="100h", nodeSelector={"kubernetes.io/hostname": "n1"}),
    ]
    members = [pod_group("big", 2, at="1s"), *gang("big", 2, 4, at="1s")]
    situation = Situation(*there, *members, SMALL, at=STARVING)
    report = situation.report("PodGroup", "big")
    assert any(each.startswith("the starvation hold of a pod ends") for each in report.details)
    for each in report.advice:
        nodes = situation.followed(each)
        assert nodes["big-0"] and nodes["big-1"], each.text


def test_pods_end_once_the_smaller_ones_exist() -> None:
    """Another pod would take what they free before."""
    there = [node("n1", 4), pod("x1", 1), pod("x2", 3)]
    members = [pod_group("big", 3, at="1s"), *gang("big", 3, 4, at="1s")]
    situation = Situation(*there, *members, pod("q", 4, at="2s"))
    (only,) = situation.report("PodGroup", "big").advice
    assert only.text.startswith("request at most 1333m cpu instead of 4, in each of 3 pods")
    assert "and end 2 pods default/x1, default/x2" in only.text
    nodes = situation.followed(only)
    assert all(nodes[f"big-{at}"] == "n1" for at in range(3)), nodes


@pytest.mark.parametrize("kind", ["Deployment", "ReplicaSet", "StatefulSet", "Job"])
@pytest.mark.parametrize("more", [[], [pod_group("g", 1), *gang("g", 1, 20)]], ids=["", "and a gang"])
def test_a_pod_that_waits_longer_takes_what_a_reservation_for_one_pod_releases(
    kind: str, more: list[Raw]
) -> None:
    """Of two pods of 2 cpu, the first one would use the reservation of 3 cpu."""
    once = reservation("r", 3, app="big", allocateOnce=True)
    there = [node("n1", 8), pod("x", 4), once]
    situation = Situation(*there, made_of(kind, "5", 2), pod("other", 2, at="20s"), *more)
    (only,) = situation.report(kind, "big").advice
    assert only.text.startswith("request at most 4 cpu instead of 5, in the template of ")
    assert only.text.endswith("; then 1 of 2 pods fits: n1")
    nodes = situation.followed(only)
    assert [nodes[each] for each in nodes if each.startswith("big") and nodes[each]] == ["n1"]


def test_pods_of_a_workload_share_a_reservation_that_a_pod_waits_beside() -> None:
    shared = reservation("r", 3, app="big", allocateOnce=False)
    there = [node("n1", 8), pod("x", 4), shared]
    situation = Situation(*there, made_of("Deployment", "5", 2), pod("other", 2, at="20s"))
    (only,) = situation.report("Deployment", "big").advice
    assert only.text.startswith("request at most 2 cpu instead of 5, in the template of ")
    assert only.text.endswith("; then both pods fit: n1")
    nodes = situation.followed(only)
    assert [nodes[each] for each in nodes if each.startswith("big")] == ["n1", "n1"]
