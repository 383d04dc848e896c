"""Situations of gangs: another member keeps the pod from starting, or its group's minResources do."""

from __future__ import annotations

import copy
import json
from typing import Any

import pytest

from explanation.test_pod_groups import report_on
from explanation.test_situations import (
    ESTIMATE,
    FACTORY,
    N1,
    Row,
    as_they_are,
    changed,
    check,
    check_applied,
    explained,
    full,
    in_default,
    using,
    world_of,
)
from harness.followed_advice import Situation
from harness.objects import Raw, core_group, gang, node, pod, pod_group, queue, reservation
from harness.scenarios import actions
from harness.world import START
from holdfast.api.kinds import KINDS
from holdfast.explanation.explainer import explain
from holdfast.explanation.report import Report
from holdfast.explanation.subjects.no_node import NOTHING_HELPS
from holdfast.kube.decoding import WATCHED
from holdfast.snapshot.cluster_snapshot import ClusterSnapshot

GATED = [{"name": "example.com/quota"}]
TASK = "volcano.sh/task-spec"
GANG_NAME = "gang.scheduling.koordinator.sh/name"
GANG_GROUPS = "gang.scheduling.koordinator.sh/groups"
MIN_AVAILABLE = "gang.scheduling.koordinator.sh/min-available"
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
        ["CorrectSelector"],
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


THREE = in_default(pod_group("g", 3, queue="q"))
SITUATIONS |= {
    "one of three different members is too large for its queue": Row(
        [
            N1,
            node("n2", cpu="8"),
            queue("q", capability={"cpu": "6"}),
            THREE,
            pod("p", "2", group="g"),
            other("3"),
            pod("r", "4", group="g"),
        ],
        ["queue q uses 0 of the 6 cpu of its capability, and the request is 9 cpu"],
        ["RaiseCapability", "Resize"],
    ),
}


def test_the_largest_member_becomes_smaller_for_its_queue() -> None:
    members = [pod("p", "2", group="g"), other("3"), pod("r", "3", "web", group="g")]
    row = Row([N1, queue("q", capability={"cpu": "7"}), THREE, *members], [], [])
    _, smaller = check_applied(row).advice
    assert smaller.text == "default/r: request at most 2 cpu instead of 3; then it fits n1"


TAINTED = node("n1", cpu="8", taints=[{"key": "a", "effect": "NoSchedule"}])


def test_no_pod_is_ended_where_changes_of_several_members_are_enough() -> None:
    labelled = node("n2", cpu="8", labels={"disk": "nvme"})
    members = [pod("p", "3", group="g"), other("3", nodeSelector={"disk": "nvme"})]
    report = check_applied(Row([TAINTED, labelled, full("x", "8", "n2"), TWO, *members], [], []))
    (advice,) = report.advice
    assert advice.text == (
        "tolerate a:NoSchedule and default/q: tolerate a:NoSchedule and label n1 "
        "(kubectl label node n1 disk=nvme); then it fits n1"
    )


NO_CLAIM = pod("p", "1", group="g", volumes=using("nope"))
SITUATIONS |= {
    "it has no claim, and another member has a selector": Row(
        [N1, TWO, NO_CLAIM, other(nodeSelector={"disk": "nvme"})],
        ["PersistentVolumeClaim default/nope does not exist"],
        ["CreateClaim"],
    ),
    "it has a selector, and another member no claim": Row(
        [
            N1,
            TWO,
            pod("p", group="g", nodeSelector={"disk": "nvme"}),
            other("1", volumes=using("nope")),
        ],
        ["nodeSelector disk=nvme is not met"],
        ["LabelNode"],
    ),
    "it has no claim, and another member is too large": Row(
        [N1, TWO, NO_CLAIM, other("12")],
        ["PersistentVolumeClaim default/nope does not exist"],
        ["CreateClaim"],
    ),
    "members with three obstacles, too large together": Row(
        [
            N1,
            in_default(pod_group("g", 3)),
            NO_CLAIM,
            other("6", nodeSelector={"disk": "nvme"}),
            pod("r", "4", group="g", tolerations=[], volumes=using("none")),
        ],
        ["PersistentVolumeClaim default/nope does not exist"],
        ["CreateClaim"],
    ),
    "another member is another scheduler's": Row(
        [N1, TWO, P, other(schedulerName="other")],
        ["Of another scheduler (other), and so not counted: default/q."],
        ["SetScheduler"],
    ),
    "another member is gated and another scheduler's": Row(
        [N1, TWO, P, other(schedulerName="other", schedulingGates=GATED)],
        ["not counted: default/q.", "Blocked by scheduling gates: default/q."],
        ["SetScheduler"],
    ),
    "a task has no pods": Row(
        [
            N1,
            in_default(pod_group("g", 2, minTaskMember={"ps": 1, "worker": 1})),
            pod("p", group="g", annotations={TASK: "worker"}),
            pod("q", group="g", annotations={TASK: "worker"}),
        ],
        ["PodGroup default/g has 0 of the 1 pods it needs of task ps"],
        ["CreatePods", "LowerMinMember"],
    ),
    "no PodGroup": Row(
        [N1, P],
        ["PodGroup default/g does not exist", "there is no PodGroup default/g"],
        ["CreateGroup"],
    ),
    "an annotated gang that lacks pods": Row(
        [N1, pod("p", annotations={GANG_NAME: "g", MIN_AVAILABLE: "2"})],
        ["gang default/g needs 2 pods; 1 more must be created"],
        ["CreatePods", "LowerMinMember"],
    ),
    "a gang that fits no rack": Row(
        [
            node("n1", cpu="8", labels={"rack": "a"}),
            node("n2", cpu="8", labels={"rack": "b"}),
            in_default(core_group("g", 3, topology="rack")),
            *(pod(name, "4", schedulingGroup={"podGroupName": "g"}) for name in "pqr"),
        ],
        [
            "Beside the others, default/r: No suitable node",
            "all members must be on nodes with the same rack",
        ],
        ["Resize"],
    ),
    "a topology key that no node has": Row(
        [
            node("n1", cpu="8", labels={"rack": "a"}),
            in_default(core_group("g", 2, topology="rak")),
            *(pod(name, "4", schedulingGroup={"podGroupName": "g"}) for name in "pq"),
        ],
        ["No node has the label rak, which all members need; did you mean rack?"],
        ["CorrectTopology"],
    ),
    "a topology key that no node has, and none is like it": Row(
        [
            N1,
            in_default(core_group("g", 2, topology="rack")),
            *(pod(name, "4", schedulingGroup={"podGroupName": "g"}) for name in "pq"),
        ],
        ["No node has the label rack, which all members need."],
        ["LabelNode", "RemoveTopology"],
    ),
    "two racks are needed": Row(
        [
            node("n1", cpu="4", labels={"rack": "a"}),
            node("n2", cpu="4", labels={"rack": "b"}),
            in_default(core_group("g", 2, topology="rack")),
            *(
                pod(name, "1", schedulingGroup={"podGroupName": "g"}, ports=[80], app="a")
                for name in "pq"
            ),
        ],
        [
            "Beside the others, default/q: No suitable node",
            "all members must be on nodes with the same rack",
        ],
        ["LowerMinMember", "RemoveTopology"],
    ),
    "two members have different problems": Row(
        [N1, TWO, pod("p", "12", group="g"), other(nodeSelector={"disk": "nvme"})],
        ["No suitable node among 1 node: too little cpu (1)."],
        ["LabelNode"],
    ),
    "a surplus member that is larger than what is left": Row(
        [N1, TWO, other("2"), pod("a", "1", group="g"), pod("p", "12", group="g")],
        ["too little cpu (1)"],
        ["Resize"],
    ),
}


@pytest.mark.parametrize("name", SITUATIONS)
def test_situation(name: str) -> None:
    check(SITUATIONS[name])


def before_it_is_tried(*objects: Raw) -> Report:
    """What is said of the group before the scheduler saw it."""
    snapshot = ClusterSnapshot(FACTORY.scheduler(), START)
    for raw in copy.deepcopy(objects):
        raw["metadata"].setdefault("uid", raw["metadata"]["name"])
        if raw["kind"] == "Pod":
            raw["metadata"].setdefault("namespace", "default")
        info = KINDS[raw["apiVersion"], raw["kind"]]
        (watched,) = [each for each in WATCHED if each.info is info and not each.ended]
        snapshot.add(watched, [raw])
    (group,) = [raw for raw in objects if raw["kind"] == "PodGroup"]
    return explain(snapshot, group)


@pytest.mark.parametrize(
    "surplus",
    [
        pod("r", "4", group="g", schedulingGates=GATED),
        pod("r", "12", group="g"),
        pod("a", "12", group="g"),
        pod("r", "4", group="g", nodeSelector={"disk": "nvme"}),
        pod("r", "4", group="g", schedulerName="other"),
    ],
    ids=["gated", "too large", "too large and first", "selector", "of another scheduler"],
)
def test_members_that_the_gang_does_not_need_are_not_blamed(surplus: Raw) -> None:
    report = before_it_is_tried(N1, TWO, surplus, P, other())
    assert report.summary == ("0 of 3 members have a node, 2 are needed. 2 more fit now; it is queued.")
    assert not report.advice
    assert not report.details


def test_members_that_a_running_gang_does_not_need_are_explained() -> None:
    there = [in_default(full(name, "3", "n1", group="g")) for name in "ab"]
    report = before_it_is_tried(N1, TWO, *there, pod("c", "1", group="g"), pod("d", "3", group="g"))
    assert report.summary == (
        "2 of 4 members have a node, 2 are needed. It is running. 2 further members are pending. "
        "default/d: No suitable node among 1 node: too little cpu (1)."
    )
    assert report.details[:2] == ["what follows is about default/d", "closest: n1, short of 1 cpu"]
    assert [each.text for each in report.advice] == [
        "request at most 1 cpu instead of 3; then it fits n1"
    ]


@pytest.mark.parametrize("small_first", [True, False])
def test_members_are_tried_in_the_order_of_the_scheduler(small_first: bool) -> None:
    nodes = [node("n1", cpu="8"), full("x", "4", "n1"), node("n2", cpu="8"), full("y", "3", "n2")]
    names = ("a", "z") if small_first else ("z", "a")
    pods = [pod(names[0], "4", group="g"), pod(names[1], "5", group="g")]
    assert bool(world_of([*nodes, TWO, *pods]).node_of("a")) is not small_first
    report = before_it_is_tried(*nodes, TWO, *pods)
    assert ("it is queued" in report.summary) is not small_first
    if small_first:
        assert (
            "members are placed in order of priority and age: default/a before default/z; in another "
            "order they fit"
        ) in report.details
        assert report.advice


@pytest.mark.parametrize("last_created", ["a", "z"])
def test_pods_of_one_second_are_tried_in_the_order_of_their_creation(last_created: str) -> None:
    """The small one is created first if it is z: then the large one finds no node."""
    nodes = [node("n1", cpu="8"), full("x", "4", "n1"), node("n2", cpu="8"), full("y", "3", "n2")]
    pods = [pod("a", "5", group="g"), pod("z", "4", group="g")]
    for each in pods:
        is_last = each["metadata"]["name"] == last_created
        each["metadata"]["resourceVersion"] = "1001" if is_last else "998"
    report = before_it_is_tried(*nodes, TWO, *pods)
    assert ("it is queued" in report.summary) is (last_created == "z")
    if last_created == "a":
        assert "Beside the others, default/a: No suitable node" in report.summary
        assert any("default/z before default/a; in another order" in each for each in report.details)


def test_the_same_change_is_tried_for_each_kind_of_members() -> None:
    """Only smaller ones of the first task are wanted, but those of the other are tried first."""
    tainted = node("n1", cpu="8", taints=[{"key": "team", "effect": "NoSchedule"}])
    tasks = dict(zip("abpq", "xxyy", strict=True))
    pods = [pod(name, "2", group="g", annotations={TASK: tasks[name]}) for name in tasks]
    report = of_group(tainted, in_default(pod_group("g", 1, minTaskMember={"y": 1})), *pods)
    texts = [each.text for each in report.advice]
    assert any("tolerate team:NoSchedule, in each of 2 pods (p, q)" in each for each in texts), texts


def test_a_member_beyond_those_needed_that_has_no_room() -> None:
    one = in_default(pod_group("g", 1))
    pods = [pod("a", "8", group="g"), pod("p", "7", group="g")]
    report = explained(world_of([N1, one, *pods]), Row([], [], []))
    assert "too little cpu" in report.summary
    assert [each.change["actions"] for each in report.advice] == []
    assert not any("in another order" in each for each in report.details)


def test_changes_of_several_kinds_of_members_name_them() -> None:
    pods = [pod("p", "12", group="g"), *(pod(name, "6", group="g") for name in "qr")]
    report = of_group(N1, in_default(pod_group("g", 3)), *pods)
    texts = [each.text for each in report.advice]
    assert any("default/q, default/r: request at most" in each for each in texts), texts


def test_members_that_wait_are_given_one_size() -> None:
    """What fits one of them beside the holds of another gang is too large for both."""

    def running(name: str, node_name: str, hours: int) -> Raw:
        where = {"kubernetes.io/hostname": node_name}
        estimate = {"holdfast.io/run-estimate": f"{hours}h"}
        return pod(name, 5, nodeSelector=where, annotations=estimate, runs_for=f"{hours}h")

    config = actions(
        starvingJobTimeThreshold="5m", reservedNodePercent=100, hold="amount", backfill="conservative"
    )
    there = [node("n1", 8), node("n2", 8), running("x1", "n1", 2), running("x2", "n2", 3)]
    holding = [pod_group("t", 2, at="1s"), *gang("t", 2, 6, at="1s")]
    waiting = [pod_group("u", 2, at="330s"), *gang("u", 2, 3, at="330s")]
    situation = Situation(*there, *holding, *waiting, at=360, config=config)
    (only,) = situation.report("PodGroup", "u").advice
    assert only.text.startswith(
        "request at most 1 cpu instead of 3, in each of 2 pods (u-0, u-1) and wait"
    )
    assert only.text.count("request") == 1
    nodes = situation.followed(only, later=2 * 3600.0)
    assert (nodes["u-0"], nodes["u-1"]) == ("n1", "n1")


def test_there_is_advice_or_nothing_helps_but_not_both() -> None:
    three = in_default(pod_group("g", 3))
    report = before_it_is_tried(N1, three, P, other(), pod("r", "20", group="g"))
    assert [each.change["actions"] for each in report.advice] == [["Resize"]]
    assert NOTHING_HELPS not in report.details


def test_a_gang_that_can_preempt() -> None:
    pods = [pod(name, "5", group="g", priority=10) for name in "pq"]
    report = before_it_is_tried(
        N1, full("a", "1", "n1"), node("n2", cpu="8"), full("b", "4", "n2"), TWO, *pods
    )
    assert report.summary == (
        "0 of 2 members have a node, 2 are needed. 1 more fits now; it can preempt default/b of lower "
        "priority, and will if it is tried."
    )
    assert not report.advice


LOW = [full(name, "2", "n1", priority=0) for name in ("low0", "low1")]


def test_nothing_is_preempted_for_members_that_a_running_gang_does_not_need() -> None:
    members = [full(name, "2", "n1", group="g", priority=9) for name in "ab"]
    objects = [N1, TWO, *LOW, *members, pod("p", "2", group="g", priority=9)]
    world = world_of(objects)
    assert world.node_of("low1") == "n1" and not world.node_of("p")
    report = as_they_are("Pod", "p", *objects)
    assert "it preempts nothing for more of them" in report.details[0]
    assert [each.text for each in report.advice] == [
        "end pod default/low1 (priority 0) on n1; then it fits n1"
    ]
    assert report.would_say == "0/1 nodes are available: 1 Insufficient cpu."


def test_a_running_gang_of_the_workload_api_preempts_for_further_members() -> None:
    more: Raw = {"schedulingGroup": {"podGroupName": "g"}, "priority": 9}
    group = in_default(core_group("g", 2, priority=9))
    members = [full(name, "2", "n1", **more) for name in "ab"]
    objects = [N1, group, *LOW, *members, *(pod(name, "2", **more) for name in "pq")]
    world = world_of(objects)
    world.settle()
    assert world.node_of("p") and world.node_of("q")
    first, second = (as_they_are("Pod", name, *objects) for name in "pq")
    assert "It can preempt default/low1 of lower priority, and will if it is tried." in first.summary
    assert "default/low1 of lower priority for another one first" in second.summary
    assert first.advice == second.advice == []


def test_further_members_of_a_gang_that_is_not_tried() -> None:
    more: Raw = {"schedulingGroup": {"podGroupName": "g"}, "priority": 9}
    group, running = in_default(core_group("g", 1)), full("a", "2", "n1", **more)
    report = as_they_are("Pod", "p", N1, group, running, pod("p", "2", **more))
    assert "its further members are not tried: all pods in a single pod group" in report.summary


def test_a_reservation_of_a_gang_that_lacks_members() -> None:
    annotations = {"scheduling.k8s.io/group-name": "g"}
    world = world_of([N1, TWO, reservation("r", "4", annotations=annotations)])
    report = explained(world, Row([], [], [], name="r", kind="Reservation"))
    assert report.summary == (
        "It starts only together with the rest of its job: PodGroup default/g has 1 of the 2 pods it "
        "needs."
    )
    (advice,) = report.advice
    assert advice.text == "lower minMember of PodGroup default/g to 1; then it fits n1"


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
    assert advice.text.startswith("remove the scheduling gate example.com/quota of default/q")


def test_a_group_names_the_member_with_a_selector() -> None:
    report = of_group(N1, TWO, P, other(nodeSelector={"disk": "nvme"}))
    assert "Only 1 more fits now. default/q: No suitable node" in report.summary
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
        "request at most 2666m cpu instead of 5, in each of 3 pods (p, q, r); then it fits n1"
    )
    assert [each["name"] for each in advice.change["objects"]] == list(names)


def test_smaller_members_are_those_of_the_best_domain() -> None:
    nodes = [
        node("n1", cpu="4", labels={"rack": "r1"}),
        node("n2", cpu="4", labels={"rack": "r1"}),
        node("n3", cpu="8", labels={"rack": "r2"}),
    ]
    members = [pod(f"g-{n}", "3", schedulingGroup={"podGroupName": "g"}) for n in range(3)]
    busy = full("a", "3", "n1")
    report = report_on("podgroup", "g", *nodes, busy, core_group("g", 3, topology="rack"), *members)
    texts = [each.text for each in report.advice]
    assert any(each.startswith("request at most 2666m cpu instead of 3") for each in texts), texts


def test_a_gang_that_waits_for_a_gang_without_pods() -> None:
    declared = {GANG_NAME: "ka", MIN_AVAILABLE: "2", GANG_GROUPS: '["default/ka", "default/kb"]'}
    objects = [N1, *(pod(f"k-{n}", "1", annotations=declared) for n in range(2))]
    report = as_they_are("Pod", "k-0", *objects)
    assert (
        "PodGroup/default/kb does not exist and no pod names it: gang default/ka starts only together "
        f"with it (annotation {GANG_GROUPS})"
    ) in report.details
    (advice,) = report.advice
    assert advice.text.startswith(f"remove default/kb from the annotation {GANG_GROUPS}, in each of 2")
    assert not world_of(objects).node_of("k-0")
    assert world_of(changed(objects, advice.change)).node_of("k-0")


def volcano_partner(name: str, *names: str) -> list[Raw]:
    """A gang of two pods that starts together with the gangs of these names."""
    group = in_default(pod_group(name, 2))
    listed = json.dumps([f"default/{each}" for each in names])
    group["metadata"].setdefault("annotations", {})[GANG_GROUPS] = listed
    return [group, *gang(name, 2)]


@pytest.mark.parametrize(
    ("others", "why"),
    [
        ([], "does not exist and no pod names it"),
        (
            [in_default(core_group("u", 2))],
            "is a PodGroup of scheduling.k8s.io, which cannot be listed",
        ),
    ],
)
@pytest.mark.parametrize("kind", ["PodGroup", "Pod"])
def test_a_gang_whose_partner_cannot_be_found(kind: str, others: list[Raw], why: str) -> None:
    objects = [N1, *volcano_partner("t", "t", "u"), *others]
    report = as_they_are(kind, "t" if kind == "PodGroup" else "t-0", *objects)
    assert "waits for PodGroup/default/u" in report.summary
    assert (
        f"PodGroup/default/u {why}: PodGroup default/t starts only together with it "
        f"(annotation {GANG_GROUPS})"
    ) in report.details
    (advice,) = report.advice
    assert advice.text.startswith(f"remove default/u from the annotation {GANG_GROUPS}")
    assert world_of(changed(objects, advice.change)).node_of("t-0")


def test_a_gang_whose_partner_waits_for_one_that_does_not_exist() -> None:
    objects = [N1, *volcano_partner("t", "t", "u"), *volcano_partner("u", "u", "v")]
    report = as_they_are("PodGroup", "t", *objects)
    assert any("PodGroup/default/v does not exist" in each for each in report.details)
    (advice,) = report.advice
    assert advice.text.startswith(f"remove default/v from the annotation {GANG_GROUPS}")
    assert world_of(changed(objects, advice.change)).node_of("t-0")


def test_a_gang_that_fits_only_without_its_partner_does_not_wait_for_itself() -> None:
    small = node("n1", 3)
    report = as_they_are(
        "PodGroup", "t", small, *volcano_partner("t", "t", "u"), *volcano_partner("u", "t", "u")
    )
    assert "waits for" not in report.summary
    assert "not tried" not in report.summary


def test_two_groups_of_one_name_in_two_api_groups() -> None:
    member = pod("g-0", schedulingGroup={"podGroupName": "g"})
    report = as_they_are(
        "Pod", "g-0", N1, in_default(pod_group("g", 5)), in_default(core_group("g", 2)), member
    )
    assert (
        "there is another PodGroup default/g, of scheduling.volcano.sh/v1beta1, with 0 pods; this is "
        "about that of scheduling.k8s.io/v1beta1, with 1 pod"
    ) in report.details


def test_a_group_in_another_namespace() -> None:
    group = in_default(pod_group("g", 1))
    group["metadata"]["namespace"] = "other"
    report = as_they_are("Pod", "p", N1, group, pod("p", group="g"))
    assert "the PodGroup other/g is in another namespace than its pods" in report.details
    assert "there is no PodGroup default/g" in report.details
