"""What `explain` says of nodes and queues, and that the changes of a node which it advises help."""

from __future__ import annotations

from typing import Any

import pytest

from explanation.test_holds_and_hardware import starvation_hold
from explanation.test_situations import (
    ESTIMATE,
    LIMIT,
    QUEUE,
    Row,
    as_they_are,
    changed,
    explained,
    full,
    in_default,
    on_n1,
    planned,
    world_of,
)
from harness.followed_advice import Situation
from harness.objects import Raw, gang, node, pod, pod_group, queue, reservation

CORDON = {"key": "node.kubernetes.io/unschedulable", "effect": "NoSchedule"}
TEAM = {"key": "team", "value": "a", "effect": "NoSchedule"}
SMALL = {QUEUE: "small"}


def cordoned(name: str, *taints: Raw, **more: Any) -> Raw:
    raw = node(name, taints=[CORDON, *taints], **more)
    raw["spec"]["unschedulable"] = True
    return raw


def with_condition(raw: Raw, type: str, status: str, **more: Any) -> Raw:
    raw["status"]["conditions"] = [{"type": type, "status": status, **more}]
    return raw


def on_node(raw: Raw, *objects: Raw) -> Any:
    return as_they_are("Node", raw["metadata"]["name"], raw, *objects)


# Nodes


def test_what_is_on_a_node_and_what_is_left() -> None:
    objects = [
        full("a", "5", "n1", annotations={ESTIMATE: "1h"}),
        on_n1(reservation("peak", "2", app="web")),
    ]
    report = on_node(
        with_condition(node("n1", cpu="8"), "Ready", "True"), *objects, planned("night", "4")
    )
    assert report.phase == "Ready"
    assert report.summary == (
        "It takes pods. 1 of 8 cpu, 30517Mi of 30517Mi memory are free. 2 cpu are held by "
        "reservations. No pod is pending."
    )
    cpu = report.node_capacity[0]
    assert (cpu.resource, cpu.allocatable, cpu.requested, cpu.held, cpu.free) == (
        ("cpu", "8", "5", "2", "1")
    )
    (placed,) = report.placed
    assert (placed.name, placed.amounts["cpu"], placed.expected_end) == (
        ("default/a", "5", "2026-01-01T01:00:00Z")
    )
    (held,) = report.held
    assert (held.kind, held.name, held.phase, held.held_for, held.left) == (
        ("Reservation", "peak", "Available", "pods with app=web", {"cpu": "2"})
    )


def test_a_reservation_that_starts_on_the_node_later() -> None:
    world = world_of([node("n1", cpu="8"), planned("night", "4")])
    report = as_they_are("Node", "n1", *world.objects.values())
    (held,) = report.held
    assert (held.name, held.phase, held.amounts) == ("night", "Planned", {"cpu": "4"})
    assert held.start > "2026-01-01"


@pytest.mark.parametrize(
    ("raw", "phase", "says"),
    [
        (cordoned("n1"), "Unknown,SchedulingDisabled", "It takes no new pods: it is cordoned."),
        (node("n1", taints=[TEAM]), "Unknown", "It takes only pods that tolerate team=a:NoSchedule."),
        (
            with_condition(node("n1"), "Ready", "Unknown", lastHeartbeatTime="2025-12-31T00:00:00Z"),
            "NotReady",
            "Its kubelet has not reported since 2025-12-31T00:00:00Z.",
        ),
        (
            with_condition(node("n1"), "MemoryPressure", "True", message="low"),
            "Unknown",
            "condition MemoryPressure is True: low",
        ),
        (node("n1", allocatable={"pods": "0"}), "Unknown", "it has 0 allocatable pods"),
        (
            node("n1", annotations={LIMIT: '{"cpu": "0"}'}),
            "Unknown",
            "It takes only pods of DaemonSets: its annotation limit-to-allocatable is invalid.",
        ),
    ],
)
def test_whether_a_node_takes_pods(raw: Raw, phase: str, says: str) -> None:
    report = on_node(raw)
    assert report.phase == phase
    assert says in "\n".join([report.summary, *report.details])


def test_a_node_that_is_held_for_a_starving_pod() -> None:
    objects = [full("a", "6", "n1"), pod("p", "6", uid="pod-p"), on_n1(starvation_hold("h", "n1"))]
    assert on_node(node("n1", cpu="8"), *objects).summary.startswith(
        "It is held for Pod/default/p (starvation hold): until it has started, it takes no other pods "
        "but those that request nothing."
    )


def test_which_pending_pods_fit() -> None:
    gated = pod("gated", schedulingGates=[{"name": "quota"}])
    report = on_node(node("n1", cpu="4"), pod("p"), pod("q"), pod("big", "6"), gated)
    assert [(each.count, each.state, each.reason) for each in report.pods] == [
        (2, "Fits", ""),
        (1, "Kept out", "has scheduling gates"),
        (1, "Kept out", "too little cpu"),
    ]
    assert "2 of the 4 pending pods would fit here" in report.summary


@pytest.mark.parametrize(
    ("pods", "text"),
    [
        (
            [pod("a", "3"), pod("b", "3")],
            "; then default/a fits (default/b would too, but not beside it)",
        ),
        ([pod("a", "1"), pod("b", "3")], "; then default/a, default/b fit"),
        (
            [pod("a", "2"), pod("b", "2"), pod("c", "3")],
            "; then default/a, default/b fit (default/c would too, but not beside them)",
        ),
        (
            [pod_group("g", 2), *gang("g", 2, "2"), pod("x", "1")],
            "; then default/g-0, default/g-1 fit (default/x would too, but not beside them)",
        ),
        (
            [queue("small", capability={"cpu": "1"})]
            + [pod(name, "1", annotations=SMALL) for name in "ab"],
            "; then default/a fits (default/b would too, but not beside it)",
        ),
        ([pod_group("g", 2), *gang("g", 2, "3")], ""),
    ],
)
def test_an_uncordon_names_the_pods_that_fit_together(pods: list[Raw], text: str) -> None:
    report = on_node(cordoned("n1", cpu="4"), *map(in_default, pods))
    expected = [f"uncordon n1 (kubectl uncordon n1){text}"] if text else []
    assert [each.text for each in report.advice] == expected


def test_how_many_pending_pods_fit_at_once() -> None:
    report = on_node(node("n1", cpu="4"), pod("a", "3"), pod("b", "3"), pod("c", "9"))
    assert "2 of the 3 pending pods would fit here, 1 of them at once; the others do not" in (
        report.summary
    )


def test_a_nominated_pod() -> None:
    preemptor = pod("v", "2", priority=100)
    preemptor["status"] = {"phase": "Pending", "nominatedNodeName": "n1"}
    report = on_node(node("n1", cpu="4"), preemptor)
    assert report.details == ["pod default/v (priority 100) is nominated to it: 2 cpu are kept for it"]


@pytest.mark.parametrize(
    ("raw", "actions", "text"),
    [
        (cordoned("n1"), ["Uncordon"], "uncordon n1 (kubectl uncordon n1); then default/p fits"),
        (
            node("n1", taints=[TEAM]),
            ["RemoveTaint"],
            "remove the taint team=a:NoSchedule (kubectl taint node n1 team:NoSchedule-); "
            "then default/p fits",
        ),
        (
            cordoned("n1", TEAM),
            ["Uncordon"],
            "uncordon n1 (kubectl uncordon n1) and remove the taint team=a:NoSchedule "
            "(kubectl taint node n1 team:NoSchedule-); then default/p fits",
        ),
    ],
)
def test_changes_of_the_node_that_help(raw: Raw, actions: list[str], text: str) -> None:
    objects = [raw, pod("p")]
    (advice,) = on_node(*objects).advice
    assert (advice.text, advice.change["actions"]) == (text, actions)
    assert world_of(changed(objects, advice.change)).node_of("p") == "n1"


def test_no_change_is_advised_that_helps_no_pod() -> None:
    assert on_node(cordoned("n1", cpu="4"), pod("p", "6")).advice == []


# Queues


def test_limits_of_a_queue_and_what_waits_in_it() -> None:
    objects = [
        node("n1", cpu="8"),
        queue("small", weight=2, capability={"cpu": "4"}, guarantee={"resource": {"cpu": "1"}}),
        full("a", "3", "n1", annotations=SMALL),
        pod("p", "2", annotations=SMALL),
        pod("q", "2", annotations=SMALL),
        pod("elsewhere", "2"),
    ]
    report = as_they_are("Queue", "small", *objects)
    assert report.summary == (
        "It admits pods. 1 pod of it has a node, 2 wait. default/p: Its queue does not admit it: "
        "queue small would have more cpu than its capability."
    )
    (cpu,) = report.queue_capacity
    assert (cpu.allocated, cpu.requested, cpu.deserved, cpu.guarantee, cpu.capability) == (
        ("3", "4", "4", "1", "4")
    )
    assert "its weight is 2" in report.details
    assert [(each.count, each.pods) for each in report.pods] == [(2, ["default/p", "default/q"])]
    assert [each.text for each in report.advice] == [
        "raise the capability of queue small to 5 cpu; then 1 of 2 pods fits: n1",
        "default/p: request at most 1 cpu instead of 2; then it fits n1",
    ]


def test_advice_for_all_equal_pods_of_a_queue() -> None:
    waiting = [pod(name, 2, annotations=SMALL, at="2s") for name in ("p", "q")]
    small = queue("small", capability={"cpu": "2"})
    situation = Situation(node("n1", 8), small, pod("a", 2, annotations=SMALL), *waiting)
    (only,) = situation.report("Queue", "small").advice
    assert only.text == "raise the capability of queue small to 6 cpu; then both pods fit: n1"
    assert [*situation.followed(only).values()] == ["n1", "n1", "n1"]


@pytest.mark.parametrize(
    ("raw", "says"),
    [
        (queue("small", state="Closed"), "It admits no pods: queue small is closed. 0 pods"),
        (
            queue("small", capability={"cpu": "0"}),
            "It admits no more pods that request cpu: its capability is used up.",
        ),
        (queue("small", reclaimable=False), "its weight is 1, and nothing is reclaimed from it"),
    ],
)
def test_whether_a_queue_admits_pods(raw: Raw, says: str) -> None:
    report = as_they_are("Queue", "small", node("n1"), raw)
    assert says in "\n".join([report.summary, *report.details])


def test_queues_above_and_below() -> None:
    objects = [
        node("n1", cpu="8"),
        queue("dept", capability={"cpu": "4"}),
        queue("small", parent="dept"),
        full("a", "3", "n1", annotations=SMALL),
        pod("p", "2", annotations=SMALL),
    ]
    report = as_they_are("Queue", "small", *objects)
    assert "its parent is dept" in report.details
    assert "queue dept above it uses 3 of 4 cpu of its capability" in report.details
    above = as_they_are("Queue", "dept", *objects)
    assert "queues below it: small; what they use and request is counted here as well" in above.details
    assert above.summary.startswith("It admits pods. 1 pod of it has a node, 1 waits.")


def test_a_queue_below_one_that_does_not_exist() -> None:
    missing = (
        "queue small: its parent dpet does not exist, so that nothing above it limits it; did you mean "
        "dept?"
    )
    objects = [node("n1", cpu="8"), queue("dept"), queue("small", parent="dpet")]
    objects.append(pod("p", "9", annotations=SMALL))
    report = as_they_are("Queue", "small", *objects)
    assert report.details.count(missing) == 1
    assert not any(each.startswith("default/p: queue small") for each in report.details)
    assert missing in as_they_are("Pod", "p", *objects).details


def test_a_pod_that_neither_its_queue_admits_nor_a_node_holds() -> None:
    objects = [node("n1", cpu="8"), queue("small", capability={"cpu": "4"})]
    report = as_they_are("Pod", "p", *objects, pod("p", "12", annotations=SMALL))
    assert report.summary == (
        "Its queue does not admit it: queue small would have more cpu than its capability. Even if it "
        "were admitted: no suitable node among 1 node: too little cpu (1)."
    )
    assert "no node is large enough: it requests 12 cpu, the most a node has is 8" in report.details
    assert [each.change["actions"] for each in report.advice] == [["Resize"]]
    fitting = as_they_are("Pod", "p", *objects, pod("p", "6", annotations=SMALL))
    assert "Even if" not in fitting.summary


def test_a_pod_in_no_queue_leaves_what_is_guaranteed_to_queues() -> None:
    guaranteed = queue("q", guarantee={"resource": {"cpu": "4"}})
    world = world_of([node("n1", cpu="4"), node("n2", cpu="4"), full("a", "3", "n1"), guaranteed])
    world.put(pod("p", "3"))
    refusal = "the free cpu is guaranteed to other queues"
    assert world.message("p") == refusal
    report = explained(world, Row([], [], []))
    assert report.summary == f"It is not admitted: it is in no queue, and {refusal}."
    assert report.told == report.would_say == refusal
    world.put(pod("p", "5"))
    report = explained(world, Row([], [], []))
    assert report.summary == (
        f"It is not admitted: it is in no queue, and {refusal}. Even if it were admitted: no suitable "
        "node among 2 nodes: too little cpu (2)."
    )
    assert report.would_say == refusal
