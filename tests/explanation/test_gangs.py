"""Situations of gangs: another member keeps the pod from starting, or its group's minResources do."""

from __future__ import annotations

from typing import Any

import pytest

from explanation.test_situations import (
    ESTIMATE,
    N1,
    Row,
    check,
    explained,
    full,
    in_default,
    using,
    world_of,
)
from harness.objects import Raw, core_group, node, pod, pod_group, queue
from holdfast.explanation.report import Report

GATED = [{"name": "example.com/quota"}]
TWO = in_default(pod_group("g", 2))


def other(cpu: str = "1", **more: Any) -> Raw:
    return pod("q", cpu, group="g", **more)


P = pod("p", "1", group="g")

SITUATIONS: dict[str, Row] = {
    "another member is gated": Row(
        [N1, TWO, P, other(schedulingGates=GATED)],
        [
            "Blocked by scheduling gates: default/q.",
            "scheduling gates of default/q to remove: example.com/quota",
        ],
        ["RemoveGates"],
    ),
    "it and another member are gated": Row(
        [N1, TWO, pod("p", "1", group="g", schedulingGates=GATED), other(schedulingGates=GATED)],
        ["It is blocked by scheduling gates."],
        ["RemoveGates"],
    ),
    "another member has a selector": Row(
        [N1, TWO, P, other(nodeSelector={"disk": "nvme"})],
        ["default/q: No suitable node", "nodeSelector disk=nvme is not met"],
        ["LabelNode"],
    ),
    "another member has a misspelt selector": Row(
        [node("n1", labels={"disk": "nvme"}), TWO, P, other(nodeSelector={"disk": "nmve"})],
        ["default/q: No suitable node", "did you mean nvme?"],
        ["CorrectSelector", "LabelNode"],
    ),
    "another member has no claim": Row(
        [N1, TWO, P, other(volumes=using("nope"))],
        ["default/q: No suitable node", "PersistentVolumeClaim default/nope does not exist"],
        ["CreateClaim"],
    ),
    "another member is gated and has a selector": Row(
        [N1, TWO, P, other(schedulingGates=GATED, nodeSelector={"disk": "nvme"})],
        ["Blocked by scheduling gates: default/q.", "nodeSelector disk=nvme is not met"],
        ["RemoveGates"],
    ),
    "gated, and its node is tainted": Row(
        [
            node("n1", taints=[{"key": "team", "value": "a", "effect": "NoSchedule"}]),
            pod("p", schedulingGates=GATED),
        ],
        ["It is blocked by scheduling gates.", "taint team=a:NoSchedule is not tolerated"],
        ["RemoveGates"],
    ),
    "another member is too large": Row(
        [N1, TWO, P, other("12")],
        ["default/q: No suitable node", "no node is large enough: it requests 12 cpu"],
        ["Resize"],
    ),
    "another member waits for a pod": Row(
        [N1, full("a", "6", "n1", annotations={ESTIMATE: "10m"}), TWO, P, other("7")],
        ["default/q: No suitable node", "closest: n1, short of 5 cpu"],
        ["Wait"],
    ),
    "minResources that the nodes do not have": Row(
        [N1, in_default(pod_group("g", 2, minResources={"cpu": "100"})), P, other()],
        ["minResources: 100 cpu are needed, and 8 of 8 are free on all nodes: it can never start"],
        ["LowerMinResources"],
    ),
    "minResources that are not free": Row(
        [
            N1,
            full("a", "4", "n1"),
            in_default(pod_group("g", 2, minResources={"cpu": "6"})),
            P,
            other(),
        ],
        ["minResources: 6 cpu are needed, and 4 of 8 are free on all nodes"],
        ["LowerMinResources"],
    ),
}


@pytest.mark.parametrize("name", SITUATIONS)
def test_situation(name: str) -> None:
    check(SITUATIONS[name])


def of_group(*objects: Raw) -> Report:
    row = Row([], [], [], name="g", kind="PodGroup")
    return explained(world_of(list(objects)), row)


def test_changes_of_another_member_name_it() -> None:
    row = SITUATIONS["another member is too large"]
    (advice,) = explained(world_of(row.objects), row).advice
    assert advice.text.startswith("default/q: request at most ")


def test_a_group_names_the_member_that_is_gated() -> None:
    report = of_group(N1, TWO, P, other(schedulingGates=GATED))
    assert report.summary == (
        "0 of 2 members have a node, 2 are needed. 2 more would fit. "
        "Blocked by scheduling gates: default/q."
    )
    (advice,) = report.advice
    assert advice.text.startswith("remove the scheduling gates example.com/quota of default/q")


def test_a_group_names_the_member_with_a_selector() -> None:
    report = of_group(N1, TWO, P, other(nodeSelector={"disk": "nvme"}))
    assert "Only 1 more fit now. default/q: No suitable node" in report.summary
    assert [each.change["actions"] for each in report.advice] == [["LabelNode"]]
    assert [each.plugin for each in report.nodes] == ["NodeAffinity"]


def test_a_group_waits_for_its_min_resources() -> None:
    group = in_default(pod_group("g", 2, minResources={"cpu": "100"}))
    report = of_group(N1, group, P, other())
    assert "It waits for its minResources: 100 cpu are needed, and 8 of 8 are free" in report.summary
    assert [each.change["actions"] for each in report.advice] == [["LowerMinResources"]]


@pytest.mark.parametrize(
    ("objects", "group", "says", "advises"),
    [
        (
            [N1],
            {"minResources": {"cpu": "100"}},
            "minResources: 100 cpu are needed, and 8 of 8 are free on all nodes: it can never start",
            ["lower minResources of PodGroup default/g to 8 cpu"],
        ),
        (
            [N1, queue("batch", capability={"cpu": "4"})],
            {"queue": "batch", "minResources": {"cpu": "6"}},
            "minResources: 6 cpu are needed, and 4 of 4 are free in queue batch: it can never start",
            [
                "lower minResources of PodGroup default/g to 4 cpu",
                "raise the capability of queue batch to 6 cpu",
            ],
        ),
    ],
    ids=["nodes", "queue"],
)
def test_a_group_whose_pods_are_not_created(
    objects: list[Raw], group: Raw, says: str, advises: list[str]
) -> None:
    report = of_group(*objects, in_default(pod_group("g", 2, **group)))
    assert report.phase == "Pending"
    assert says in report.details
    then = "; then it becomes Inqueue and its pods can be created"
    assert [each.text for each in report.advice] == [f"{each}{then}" for each in advises]


def test_a_gang_of_the_workload_api_names_the_member_that_is_gated() -> None:
    group = {"podGroupName": "g"}
    gated = pod("q", schedulingGroup=group, schedulingGates=GATED)
    row = Row(
        [N1, in_default(core_group("g", 2)), pod("p", schedulingGroup=group), gated],
        ["default/q"],
        ["RemoveGates"],
    )
    check(row)


def test_all_members_that_do_not_fit_are_named() -> None:
    names = ("p", "q", "r")
    pods = [pod(name, "5", group="g") for name in names]
    report = of_group(N1, in_default(pod_group("g", 3)), *pods)
    assert "Beside the others, default/q, default/r: No suitable node" in report.summary
    (advice,) = report.advice
    assert advice.text == (
        "request at most 2 cpu instead of 5, in each of 3 pods (p, q, r); then it fits n1"
    )
    assert [each["name"] for each in advice.change["objects"]] == list(names)
