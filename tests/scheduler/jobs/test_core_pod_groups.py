"""PodGroups of `scheduling.k8s.io`: gangs, messages, topology, disruption, conditions."""

from typing import Any

import pytest

from harness.objects import Raw, core_group, core_pods, in_queue, node, pod, pod_group, queue
from harness.scenarios import Played, actions, play, step

GROUP = {"apiVersion": "scheduling.k8s.io/v1beta1", "kind": "PodGroup"}
RACK = "rack"
UNMET = "minCount ({}) cannot be satisfied: {} scheduled, {} remaining"
CLASS = {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass"}
HIGH: Raw = {**CLASS, "metadata": {"name": "high"}, "value": 1000}


def racks(*sizes: int, nodes: int = 2) -> list[Raw]:
    """Racks a, b, … of `nodes` nodes with this many CPUs each."""
    return [
        node(f"{rack}{i}", cpu, labels={RACK: rack})
        for rack, cpu in zip("abcdefgh", sizes, strict=False)
        for i in range(nodes)
    ]


def conditions(played: Played, group: str) -> dict[str, tuple[str, str, str]]:
    found = (played.find("PodGroup", group).get("status") or {}).get("conditions", [])
    return {each["type"]: (each["status"], each["reason"], each.get("message", "")) for each in found}


def initially_scheduled(played: Played, group: str) -> tuple[str, str, str] | None:
    return conditions(played, group).get("PodGroupInitiallyScheduled")


@pytest.mark.parametrize(
    ("cpu", "least", "members", "placed"),
    [
        (4, 3, 3, 3),
        (4, 5, 5, 0),  # four would fit
        (4, 3, 6, 4),  # as many as fit
        (4, 3, 2, 0),  # one is missing
        (4, None, 6, 4),  # the policy basic
        (0, None, 1, 0),
    ],
)
def test_a_gang_starts_whole_or_not_at_all(
    cpu: int, least: int | None, members: int, placed: int
) -> None:
    played = play(node("n1", cpu), core_group("g", least), core_pods("g", members))
    assert len(played.bound()) == placed
    condition = initially_scheduled(played, "g")
    if placed:
        assert condition == ("True", "Scheduled", "")
    elif least == 3:
        assert condition is None  # it is not in the queue
    else:
        assert condition is not None and condition[:2] == ("False", "Unschedulable")


def test_messages_are_those_of_kube_scheduler() -> None:
    played = play(node("n1", 2), core_group("g", 4), core_pods("g", 5))
    # Two fit. The third does not, and after the fourth the gang cannot be complete.
    insufficient = "0/1 nodes are available: 1 Insufficient cpu."
    text = UNMET.format(4, 2, 1)
    assert [played.message(f"g-{i}") for i in range(5)] == [
        f"pod group is unschedulable, {text}",
        f"pod group is unschedulable, {text}",
        insufficient,
        insufficient,
        text,
    ]
    no_victims = "pod group preemption: No preemption victims found for incoming preemptor"
    assert initially_scheduled(played, "g") == ("False", "Unschedulable", f"{text}, {no_victims}")


def test_a_group_that_is_missing_is_waited_for() -> None:
    played = play(node("n1", 4), core_pods("g", 1), core_group("g", 1, at="10s"))
    (first,) = (e for e in played.result.timeline if e.event == "Unschedulable")
    assert first.message == 'waiting for pods\'s pod group "g" to appear in scheduling queue'
    assert played.times("g-0") == [10]


def test_a_lower_min_count_starts_the_gang() -> None:
    fewer = {"spec": {"schedulingPolicy": {"gang": {"minCount": 2}}}}
    lowered = step("10s", patch={**GROUP, "name": "g", "merge": fewer})
    played = play(node("n1", 2), core_group("g", 3), core_pods("g", 3), lowered)
    assert played.times("g-0", "g-1", "g-2") == [10, 10, None]


def test_pods_that_have_ended_do_not_count() -> None:
    late = core_pods("g", 2, at="20s")[1]
    first = core_pods("g", 1, runs_for="5s") + core_pods("h", 1)
    played = play(node("n1", 4), core_group("g", 1), core_group("h", 1), first, late)
    assert played.times("g-0", "g-1") == [0, 20]
    more = {"spec": {"schedulingPolicy": {"gang": {"minCount": 2}}}}
    raised = step("10s", patch={**GROUP, "name": "g", "merge": more})
    played = play(node("n1", 4), core_group("g", 1), core_pods("g", 1, runs_for="5s"), raised, late)
    assert played.times("g-0", "g-1") == [0, None]
    assert initially_scheduled(played, "g") == ("True", "Scheduled", "")


@pytest.mark.parametrize(
    ("other", "message"),
    [
        (
            {"schedulerName": "holdfast-scheduler"},
            "all pods in a single pod group should have the same .spec.schedulerName set, got: "
            '"holdfast-scheduler" and "default-scheduler"',
        ),
        (
            {"priorityClassName": "high"},
            "all pods in a single pod group should have the same priority as the pod group's "
            "priority, got 1000 and 0",
        ),
    ],
)
def test_members_that_differ_are_an_error(other: Raw, message: str) -> None:
    pods = core_pods("g", 2)
    pods[1]["spec"] |= other
    played = play(HIGH, node("n1", 4), core_group("g", 2), pods)
    assert played.bound() == {}
    assert played.message("g-0") == message
    assert initially_scheduled(played, "g") == ("False", "SchedulerError", message)


def test_members_have_the_priority_of_their_group() -> None:
    played = play(
        HIGH,
        node("n1", 2),
        core_group("g", 2, priorityClassName="high"),
        [pod("other", 1), *core_pods("g", 2, priorityClassName="high")],
    )
    assert played.times("g-0", "g-1", "other") == [0, 0, None]


def test_a_group_of_one_api_does_not_serve_pods_of_another() -> None:
    labelled = pod("p", labels={"pod-group.scheduling.sigs.k8s.io": "g"})
    played = play(node("n1", 4), core_group("g", 1), labelled, pod_group("h", 1), core_pods("h", 1))
    assert played.bound() == {}
    assert "does not exist" in played.message("p")


# Topology


def domain(played: Played, *pods: str) -> set[str]:
    bound = played.bound()
    return {bound[name][1][0] for name in pods}


@pytest.mark.parametrize(
    ("sizes", "members", "chosen"),
    [
        ((1, 2), 3, "b"),
        ((2, 2), 4, "a"),
        ((4, 2), 4, "b"),  # the one with the least left over
        ((1, 1), 3, ""),
    ],
)
def test_all_members_are_in_one_domain(sizes: tuple[int, ...], members: int, chosen: str) -> None:
    group = core_group("g", members, topology=RACK)
    played = play(racks(*sizes), node("elsewhere", 64), group, core_pods("g", members))
    names = [f"g-{i}" for i in range(members)]
    if chosen:
        assert domain(played, *names) == {chosen}
        return
    assert played.bound() == {}
    text = (
        "pod group is unschedulable, 0/2 placements are available, first placement status: "
        f"{UNMET.format(3, 2, 0)}"
    )
    assert played.message("g-0") == text
    condition = initially_scheduled(played, "g")
    assert condition is not None and condition[2].startswith(text)


def test_further_members_join_the_domain_of_the_first() -> None:
    group = core_group("g", 2, topology=RACK)
    late = core_pods("g", 4, at="10s")[2:]
    more = node("a2", 2, labels={RACK: "a"}, annotations={"sim.holdfast.io/at": "20s"})
    played = play(racks(1, 64, nodes=1), group, core_pods("g", 2), late, more, node("n", 64))
    assert domain(played, "g-0", "g-1") == {"b"}
    assert domain(played, "g-2", "g-3") == {"b"}
    played = play(racks(1), group, core_pods("g", 2), late, more, node("n", 64))
    assert played.times("g-0", "g-1", "g-2", "g-3") == [0, 0, 20, 20]
    assert domain(played, "g-0", "g-1", "g-2", "g-3") == {"a"}


def test_a_group_takes_the_domain_with_most_of_its_pods() -> None:
    group = core_group("g", 2, topology=RACK)
    played = play(racks(1, 2, 1), group, core_pods("g", 4))
    assert len(played.bound()) == 4
    assert domain(played, *(f"g-{i}" for i in range(4))) == {"b"}


def test_without_the_label_there_are_no_placements() -> None:
    played = play(node("n1", 4), core_group("g", 1, topology=RACK), core_pods("g", 1))
    assert played.message("g-0") == "no feasible placements found"
    labelled = {"kind": "Node", "name": "n1", "merge": {"metadata": {"labels": {RACK: "a"}}}}
    played = play(
        node("n1", 4),
        core_group("g", 1, topology=RACK),
        core_pods("g", 1),
        step("10s", patch=labelled),
    )
    assert played.times("g-0") == [10]


def test_members_in_two_domains_are_an_error() -> None:
    pods = core_pods("g", 3)
    pods[0]["spec"]["nodeName"], pods[1]["spec"]["nodeName"] = "a0", "b0"
    played = play(racks(4, 4), core_group("g", 3, topology=RACK), pods)
    text = "cannot determine domain for already scheduled pods: more than 1 domain found for pod group"
    assert played.message("g-2") == f"{text}: a, b"


def test_preemption_clears_one_domain() -> None:
    group = core_group("g", 2, topology=RACK, priorityClassName="high", at="10s")
    pods = core_pods("g", 2, 2, priorityClassName="high", at="10s")
    users = [pod(f"{n}{i}", 1, nodeName=f"{n}{i}", uid=f"{n}{i}") for n in "ab" for i in range(2)]
    users.append(pod("more", 1, nodeName="a0", uid="more"))
    played = play(HIGH, racks(2, 2), users, group, pods)
    assert domain(played, "g-0", "g-1") == {"b"}
    preempted = {e.object: e.message for e in played.result.timeline if e.event == "Preempted"}
    assert preempted.keys() == {"Pod/default/b0", "Pod/default/b1"}
    uid = played.find("PodGroup", "g")["metadata"]["uid"]
    events = [raw for raw in played.all("Event") if raw["reason"] == "Preempted"]
    assert {raw["message"] for raw in events} == {f"Preempted by podgroup {uid} on node cluster"}


# Disruption


@pytest.mark.parametrize(("whole", "gone"), [(False, 1), (True, 3)])
def test_a_group_is_preempted_as_its_mode_says(whole: bool, gone: int) -> None:
    nodes = [node(f"n{i}", 1) for i in range(3)]
    urgent = pod("urgent", 1, priorityClassName="high", at="10s")
    played = play(HIGH, nodes, core_group("g", 3, whole=whole), core_pods("g", 3), urgent)
    preempted = [e for e in played.result.timeline if e.event == "Preempted"]
    assert len(preempted) == gone
    assert played.times("urgent") == [10]
    target = conditions(played, "g").get("DisruptionTarget")
    if not whole:
        assert target is None
        return
    text = "default-scheduler: preempting to accommodate a higher priority pod"
    assert target == ("True", "PreemptionByScheduler", text)


def test_members_of_a_whole_group_are_not_preempted_one_by_one() -> None:
    """One member may not be preempted, so none is."""
    nodes = [node(f"n{i}", 1) for i in range(2)]
    pods = core_pods("g", 2)
    pods[0]["metadata"]["labels"] = {"scheduling.koordinator.sh/preemptible": "false"}
    pods[0]["metadata"]["annotations"] = {"volcano.sh/preemptable": "false"}
    urgent = pod("urgent", 1, priorityClassName="high", at="10s")
    played = play(HIGH, nodes, core_group("g", 2, whole=True), pods, urgent)
    assert played.times("urgent") == [None]


def test_further_members_of_a_running_group_may_preempt() -> None:
    group = core_group("g", None, priorityClassName="high")
    pods = core_pods("g", 1, priorityClassName="high")
    late = core_pods("g", 2, priorityClassName="high", at="10s")[1:]
    played = play(HIGH, node("n1", 2), group, pods, pod("low", 1), late)
    assert played.times("g-0", "low", "g-1") == [0, 0, 10]


def test_a_restart_changes_nothing() -> None:
    restart = step("5s", restart="scheduler")
    given: list[Any] = [racks(2, 2), core_group("g", 3, topology=RACK), core_pods("g", 3)]
    late = core_pods("g", 4, at="10s")[3:]
    played = play(*given, late, restart)
    assert len(domain(played, *(f"g-{i}" for i in range(4)))) == 1
    assert initially_scheduled(played, "g") == ("True", "Scheduled", "")


# What Holdfast adds


def test_a_starving_group_gets_holds_in_one_domain() -> None:
    users = [
        pod(f"u{i}", 1, nodeName=name, uid=f"u{i}", runs_for=f"{60 + 60 * i}s")
        for i, name in enumerate(("a0", "a1", "b0", "b1"))
    ]
    small = [pod(f"small-{i}", 2, at=f"{20 + i}s", runs_for="30s") for i in range(30)]
    group = core_group("g", 2, topology=RACK, at="10s")
    reserve = actions("allocate", starvingJobTimeThreshold=5, reservedNodePercent=100)
    played = play(racks(2, 2), users, small, group, core_pods("g", 2, 2, at="10s"), config=reserve)
    reserved = [e for e in played.result.timeline if e.event == "Reserved"]
    assert reserved[0].object == "PodGroup/default/g"
    assert len(domain(played, "g-0", "g-1")) == 1
    assert played.times("g-0") == played.times("g-1") == [120]


def test_a_group_is_in_the_queue_of_its_annotation() -> None:
    full = queue("small", capability={"cpu": "1"})
    group = core_group("g", 2, annotations=in_queue("small"))
    played = play(node("n1", 4), full, group, core_pods("g", 2))
    assert played.bound() == {}
    roomy = queue("small", capability={"cpu": "2"})
    played = play(node("n1", 4), roomy, group, core_pods("g", 2))
    assert len(played.bound()) == 2


def test_groups_of_another_scheduler_are_left_alone() -> None:
    group, pods = core_group("g", 1), core_pods("g", 1, schedulerName="another")
    played = play(node("n1", 4), group, pods)
    assert conditions(played, "g") == {}
