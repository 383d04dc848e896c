"""What `explain` advises where a pod would start by itself by preempting or reclaiming: only what has
to be changed before, and no ends of pods that the scheduler evicts anyway.

Each advised change is applied to the objects, and a scheduler that knows nothing of explanations must
then evict pods and bind the pod.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import pytest

from explanation.test_in_the_way import priority_class
from explanation.test_situations import (
    AFFINITY,
    DB,
    IGNORED,
    QUEUE,
    Row,
    affinity_to,
    annotated,
    anti_affinity,
    as_they_are,
    budget,
    check_applied,
    full,
    in_default,
    on_n1,
)
from harness.followed_advice import Situation
from harness.objects import Raw, node, pod, pod_group, queue, reservation
from harness.scenarios import step
from holdfast.api.names import DISABLE_PREEMPTIBLE, PREEMPTABLE
from holdfast.local.setup import SchedulerFactory
from holdfast.scheduler.framework.config import API_VERSION, KIND

N1 = node("n1", cpu="8", labels={"disk": "ssd"})
HIGH: dict[str, Any] = {"priority": 100}
LOW = [full("low0", "4", "n1", priority=0), full("low1", "4", "n1", priority=0)]


POLITE = pod("p", "4", priorityClassName="batch", preemptionPolicy="Never", **HIGH)


class Case(NamedTuple):
    objects: list[Raw]
    advice: list[str]
    """The texts of all advice."""
    says: tuple[str, ...] = ()
    kind: str = "Pod"
    name: str = "p"


def in_queue(name: str) -> Raw:
    return annotated(**{QUEUE: name})


def of_a(count: int) -> list[Raw]:
    return [full(f"a{i}", "2", "n1", metadata=in_queue("a")) for i in range(count)]


WITH_QUEUES = [N1, queue("a", weight=1), queue("research", weight=1), *of_a(4)]
CASES = {
    "misspelt selector": Case(
        [N1, *LOW, pod("p", "4", nodeSelector={"disk": "sdd"}, **HIGH)],
        ["set nodeSelector disk: ssd instead of disk: sdd; then it preempts default/low1 on n1"],
    ),
    "taint": Case(
        [node("n1", cpu="8", taints=[DB]), *LOW, pod("p", "4", **HIGH)],
        ["tolerate dedicated=db:NoSchedule; then it preempts default/low1 on n1"],
    ),
    "cordoned": Case(
        [node("n1", cpu="8", unschedulable=True), *LOW, pod("p", "4", **HIGH)],
        ["uncordon n1 (kubectl uncordon n1); then it preempts default/low1 on n1"],
    ),
    "gate": Case(
        [N1, *LOW, pod("p", "4", schedulingGates=[{"name": "x.io/wait"}], **HIGH)],
        [
            "remove the scheduling gate x.io/wait of default/p; then it preempts default/low1 on n1",
        ],
    ),
    "reservation that does not exist": Case(
        [N1, *LOW, pod("p", "4", metadata={"annotations": affinity_to({"name": "gone"})}, **HIGH)],
        [
            f"remove the annotation {AFFINITY}, so that it may use free capacity; then it preempts "
            "default/low1 on n1"
        ],
    ),
    "larger than the node": Case(
        [N1, *LOW, pod("p", "12", **HIGH)],
        [
            "request at most 8 cpu instead of 12; then it preempts default/low0, default/low1 on n1",
        ],
    ),
    "beside a reservation": Case(
        [
            N1,
            on_n1(reservation("r1", "4", app="web")),
            full("low", "4", "n1", priority=0),
            pod("p", "8", **HIGH),
        ],
        [
            "request at most 4 cpu instead of 8; then it preempts default/low on n1",
            "delete the reservation r1 on n1; then it preempts default/low on n1",
        ],
    ),
    "one of two pods has a higher priority": Case(
        [
            N1,
            full("a", "1", "n1", app="x", priority=0),
            full("b", "1", "n1", app="x", priority=1000),
            pod("p", "1", affinity=anti_affinity("x"), **HIGH),
        ],
        ["end pod default/b (priority 1000) on n1; then it preempts default/a on n1"],
    ),
    "it never preempts, and another pod could end": Case(
        [
            N1,
            node("n2", cpu="8"),
            full("low", "8", "n1", app="low", priority=50),
            budget("low"),
            full("high", "8", "n2", priority=200),
            pod("p", "4", preemptionPolicy="Never", **HIGH),
        ],
        [
            "set preemptionPolicy: PreemptLowerPriority instead of Never; then it preempts default/low "
            "on n1"
        ],
        ("PodDisruptionBudget default/low allows 0 more evictions, and protects default/low",),
    ),
    "its PriorityClass never preempts": Case(
        [N1, priority_class("batch", 100, preemptionPolicy="Never"), *LOW, POLITE],
        [
            "create the PriorityClass batch-preempting (100), with which pods preempt, and set "
            "priorityClassName: batch-preempting instead of batch; then it preempts default/low1 on n1"
        ],
    ),
    "its PriorityClass never preempts, and others do": Case(
        [
            N1,
            priority_class("batch", 100, preemptionPolicy="Never"),
            priority_class("lower", 90),
            priority_class("lowest", 10),
            priority_class("higher", 900),
            *LOW,
            POLITE,
        ],
        [
            "set priorityClassName: lower (90), with which pods preempt, instead of batch; then it "
            "preempts default/low1 on n1"
        ],
    ),
    "misspelt queue": Case(
        [*WITH_QUEUES, pod("p", "2", metadata=in_queue("reserch"))],
        [
            "name the queue research instead of reserch; then it reclaims 2 cpu from queue a "
            "(default/a3) on n1",
            "create the queue reserch; then it reclaims 2 cpu from queue a (default/a3) on n1",
        ],
    ),
    "closed queue": Case(
        [
            *WITH_QUEUES,
            queue("b", weight=1) | {"status": {"state": "Closed"}},
            pod("p", "2", metadata=in_queue("b")),
        ],
        [
            "open the queue b (kubectl patch queue b --subresource=status --type=merge -p "
            '\'{"status":{"state":"Open"}}\'); then it reclaims 2 cpu from queue a (default/a3) on n1'
        ],
    ),
    "more than its queue deserves": Case(
        [*WITH_QUEUES, pod("p", "6", metadata=in_queue("research"))],
        [
            "request at most 4 cpu instead of 6; then it reclaims 4 cpu from queue a (default/a3, "
            "default/a2) on n1"
        ],
    ),
    "queue that is not reclaimable": Case(
        [
            N1,
            queue("a", weight=1, reclaimable=False),
            queue("b", weight=1),
            *of_a(4),
            pod("p", "4", metadata=in_queue("b")),
        ],
        [
            "set reclaimable: true in queue a; then it reclaims 4 cpu from queue a (default/a3, "
            "default/a2) on n1"
        ],
        ("nothing is reclaimed from queue a, of which reclaimable is false",),
    ),
    "gang that lacks a member": Case(
        [N1, *LOW, in_default(pod_group("g", 2)), pod("p", "4", group="g", **HIGH)],
        [
            "create 1 more pod of PodGroup default/g; then it preempts default/low1, default/low0 on "
            "n1",
            "lower minMember of PodGroup default/g to 1; then it preempts default/low1 on n1",
        ],
    ),
    "misspelt priority class of a gang": Case(
        [
            N1,
            *LOW,
            {
                "apiVersion": "scheduling.k8s.io/v1",
                "kind": "PriorityClass",
                "metadata": {"name": "urgent", "uid": "urgent"},
                "value": 1000,
            },
            in_default(pod_group("g", 1, priorityClassName="urgnt")),
            pod("p", "2", group="g"),
        ],
        [
            "set priorityClassName: urgent instead of urgnt in PodGroup default/g; then it preempts "
            "default/low1 on n1"
        ],
        ("names the PriorityClass urgnt, which does not exist; did you mean urgent?",),
    ),
    "pods that must not be preempted": Case(
        [
            N1,
            full("low", "8", "n1", priority=0, metadata=annotated(**{PREEMPTABLE: "false"})),
            pod("p", "4", **HIGH),
        ],
        ["end pod default/low (priority 0) on n1; then it fits n1"],
        ("default/low on n1 is not preempted: volcano.sh/preemptable is false",),
    ),
    "behind another one that does not take its victims": Case(
        [
            N1,
            *LOW,
            pod("older", "1", priority=200, nodeSelector={"disk": "none"}),
            pod("p", "4", nodeSelector={"disk": "sdd"}, **HIGH),
        ],
        ["set nodeSelector disk: ssd instead of disk: sdd; then it preempts default/low1 on n1"],
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_no_pod_is_ended_that_the_scheduler_evicts(name: str) -> None:
    case = CASES[name]
    report = check_applied(Row(case.objects, list(case.says), [], case.name, case.kind))
    assert [each.text for each in report.advice] == case.advice


def test_nothing_is_advised_if_it_preempts_anyway() -> None:
    ignored = {"labels": {IGNORED: "true"}}
    report = as_they_are("Pod", "p", N1, *LOW, pod("p", "4", metadata=ignored, **HIGH))
    assert "it can preempt default/low1 of lower priority on n1, and will if it is tried" in (
        report.details
    )
    assert not report.advice


def test_it_says_that_preemption_is_not_configured() -> None:
    document = {"apiVersion": API_VERSION, "kind": KIND, "actions": [{"name": "allocate"}]}
    factory = SchedulerFactory.of(document)
    report = as_they_are("Pod", "p", N1, *LOW, pod("p", "8", **HIGH), factory=factory)
    said = "the action preempt is not configured: pods of lower priority are not preempted, as "
    assert f"{said}default/low0, default/low1 on n1" in report.details


def test_it_says_why_pods_are_not_preempted() -> None:
    group = in_default(pod_group("v", 1))
    group["metadata"]["annotations"] = {PREEMPTABLE: "false"}
    kept = [
        full("a", "2", "n1", metadata=annotated(**{PREEMPTABLE: "false"})),
        full("b", "2", "n1", metadata={"labels": {DISABLE_PREEMPTIBLE: "true"}}),
        full("c", "2", "n1", metadata={"labels": {PREEMPTABLE: "false"}}),
        full("d", "2", "n1", group="v"),
    ]
    report = as_they_are("Pod", "p", N1, group, *kept, pod("p", "8", **HIGH))
    assert [each for each in report.details if "not preempted" in each] == [
        "default/a, default/c on n1 are not preempted: volcano.sh/preemptable is false",
        "default/b on n1 is not preempted: scheduling.koordinator.sh/disable-preemptible is true",
        "default/d on n1 is not preempted: volcano.sh/preemptable of PodGroup default/v is false",
    ]


def test_it_says_that_pods_preempt_no_reservations() -> None:
    kept = on_n1(reservation("r1", "6", app="web"))
    report = as_they_are("Pod", "p", N1, kept, pod("p", "4", **HIGH))
    assert "a pod preempts no reservations, whatever its priority" in report.details


# Workloads of which pods preempt

ROLLED_OUT: dict[str, Raw] = {
    "Deployment": {
        "apiVersion": "apps/v1",
        "strategy": {"rollingUpdate": {"maxSurge": 0, "maxUnavailable": 1}},
    },
    "StatefulSet": {"apiVersion": "apps/v1", "serviceName": "w"},
}
CREATED: dict[str, Raw] = {
    "ReplicaSet": {"apiVersion": "apps/v1"},
    "Job": {"apiVersion": "batch/v1", "parallelism": 2, "completions": 2},
}


def important(kind: str, cpu: str, more: Raw) -> Raw:
    spec = {key: value for key, value in more.items() if key != "apiVersion"}
    inner = pod("w", cpu, priorityClassName="high")["spec"]
    if kind == "Job":
        inner["restartPolicy"] = "Never"
    else:
        spec |= {"replicas": 2, "selector": {"matchLabels": {"app": "w"}}}
    template = {"metadata": {"labels": {"app": "w"}}, "spec": inner}
    metadata = {"name": "w"}
    return {"apiVersion": more["apiVersion"], "kind": kind, "metadata": metadata} | {
        "spec": {**spec, "template": template}
    }


def beside(other: str, *more: Raw, kept: str = "") -> Situation:
    """A node of 8 cpu with a pod of lower priority, and one of the same."""
    first = pod("kept", kept or "1m", priorityClassName="high"), pod("low", other)
    return Situation(node("n1", cpu="8"), priority_class("high", 1000), *first, *more)


def stuck_rollout(kind: str, other: str, kept: str = "") -> Situation:
    """One of two pods of 2 cpu was replaced by one of 9 cpu, which has no node."""
    made = important(kind, "2", ROLLED_OUT[kind])
    then = important(kind, "9", ROLLED_OUT[kind])["spec"]["template"]
    change = {"apiVersion": "apps/v1", "kind": kind, "name": "w", "merge": {"spec": {"template": then}}}
    return beside(other, made, step("20s", patch=change), kept=kept)


def own_pods(nodes: dict[str, str]) -> list[str]:
    return [at for name, at in nodes.items() if name.startswith("w-")]


def resized(situation: Situation, kind: str, name: str = "w") -> list[str]:
    """The texts of advice for smaller requests, all of which come true."""
    advice = [
        each for each in situation.report(kind, name).advice if "Resize" in each.change["actions"]
    ]
    for each in advice:
        assert own_pods(situation.followed(each)) == ["n1", "n1"], each.text
    return [each.text for each in advice]


@pytest.mark.parametrize("kind", ROLLED_OUT)
def test_all_pods_of_a_rollout_fit_beside_those_of_lower_priority(kind: str) -> None:
    (only,) = resized(stuck_rollout(kind, "2999m"), kind)
    assert only.startswith("request at most 2500m cpu instead of 9, in the template of ")
    assert only.endswith("; then both pods fit: n1")


@pytest.mark.parametrize("kind", ROLLED_OUT)
def test_all_pods_of_a_rollout_start_after_they_preempted(kind: str) -> None:
    (only,) = resized(stuck_rollout(kind, "3999m"), kind)
    assert only.startswith("request at most 3999m cpu instead of 9, in the template of ")
    assert only.endswith("; then both pods start and preempt default/low on n1")


@pytest.mark.parametrize("kind", ROLLED_OUT)
def test_no_pod_is_preempted_for_a_rollout_after_which_no_more_pods_run(kind: str) -> None:
    """One new pod would preempt, and the last old one would end for a second one that has no node."""
    assert resized(stuck_rollout(kind, "1", kept="4"), kind) == []


@pytest.mark.parametrize("kind", CREATED)
@pytest.mark.parametrize(
    ("other", "size", "result"),
    [
        ("2999m", "2500m", "both pods fit: n1"),
        ("3999m", "3999m", "both pods start and preempt default/low on n1"),
    ],
)
def test_all_pods_that_were_never_smaller(kind: str, other: str, size: str, result: str) -> None:
    (only,) = resized(beside(other, important(kind, "9", CREATED[kind])), kind)
    assert only.startswith(f"request at most {size} cpu instead of 9, in the template of {kind} w")
    assert only.endswith(f"; then {result}")


def test_some_pods_of_a_workload_start_after_they_preempted() -> None:
    made = important("ReplicaSet", "5", CREATED["ReplicaSet"])
    made["spec"]["replicas"] = 7
    made["spec"]["template"]["spec"]["nodeSelector"] = {"disk": "sdd"}
    other = pod("other", "4", nodeSelector={"disk": "ssd"})
    situation = beside("4", node("n2", cpu="8", labels={"disk": "ssd"}), other, made)
    (only,) = situation.report("ReplicaSet", "w").advice
    assert only.text.startswith("set nodeSelector disk: ssd instead of disk: sdd, in the template")
    assert only.text.endswith("; then 1 of 7 pods starts and preempts default/low, default/other on n2")
    assert sorted(own_pods(situation.followed(only))) == [*6 * [""], "n2"]
