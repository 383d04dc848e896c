"""How important members are: what they say themselves, else what their PodGroup says."""

from typing import Any

import pytest

from harness.objects import Raw, gang, node, pod, pod_group, queue
from harness.scenarios import actions, play, step

PREEMPT = actions("allocate", "preempt")


def priority_class(name: str, value: int, at: str = "0s") -> Raw:
    return {
        "apiVersion": "scheduling.k8s.io/v1",
        "kind": "PriorityClass",
        "metadata": {"name": name, "annotations": {"sim.holdfast.io/at": at}},
        "value": value,
    }


CLASSES = [priority_class("low", 10), priority_class("high", 1000)]


def victims(*given: Raw | list[Raw]) -> list[str]:
    timeline = play(*given, config=PREEMPT).result.timeline
    return [entry.object.rpartition("/")[2] for entry in timeline if entry.event == "Preempted"]


@pytest.mark.parametrize(
    ("low", "high", "own", "evicted"),
    [
        ("low", "high", {}, ["low-0", "low-1"]),
        ("", "high", {}, ["low-0", "low-1"]),
        ("high", "high", {}, []),
        ("high", "low", {}, []),
        ("low", "", {"priority": 20}, ["low-0", "low-1"]),
        ("high", "", {"priority": 20}, []),
        ("low", "high", {"priority": 5}, []),  # what a pod says itself counts for the pod
    ],
)
def test_members_are_as_important_as_their_group(
    low: str, high: str, own: dict[str, Any], evicted: list[str]
) -> None:
    groups = [
        pod_group("low", 1, **({"priorityClassName": low} if low else {})),
        pod_group("high", 2, at="10s", **({"priorityClassName": high} if high else {})),
    ]
    pods = [*gang("low", 2), *gang("high", 2, at="10s", **own)]
    assert sorted(victims(CLASSES, node("n1", 2), groups, pods)) == evicted


def test_of_a_group_the_less_important_member_goes() -> None:
    lows = [pod("low-0", 1, group="low", priority=500), pod("low-1", 1, group="low")]
    groups = [
        pod_group("low", 1, priorityClassName="low"),
        pod_group("high", 1, priorityClassName="high"),
    ]
    assert victims(CLASSES, node("n1", 2), groups, lows, gang("high", 1, at="10s")) == ["low-1"]


def test_a_group_or_class_that_comes_later_counts_from_then_on() -> None:
    late = [
        priority_class("late", 1000, at="30s"),
        pod_group("high", 1, at="20s", priorityClassName="late"),
        *gang("high", 1, at="10s"),
    ]
    played = play(node("n1", 1), pod_group("low", 1), gang("low", 1), late, config=PREEMPT)
    assert played.times("high-0") == [30]


def test_a_group_that_loses_its_class_protects_its_pods_no_more() -> None:
    lose = step(
        "10s",
        patch={
            "kind": "PodGroup",
            "name": "g",
            "namespace": "default",
            "merge": {"spec": {"priorityClassName": ""}},
        },
    )
    high = [pod("first", 1, at="5s", priority=50), pod("second", 1, at="20s", priority=50)]
    given = [pod_group("g", 1, priorityClassName="high"), *gang("g", 1), *high, lose]
    played = play(CLASSES, node("n1", 1), given, config=PREEMPT)
    assert played.times("first", "second") == [10, None]


def test_of_what_queues_have_too_much_the_less_important_group_gives_back() -> None:
    groups = [
        pod_group("mid", 1, queue="a", priorityClassName="high"),
        pod_group("low", 1, queue="b", priorityClassName="low"),
        pod_group("new", 1, queue="c", at="10s"),
    ]
    queues = [queue("a"), queue("b"), queue("c")]
    pods = [*gang("mid", 2), *gang("low", 2), *gang("new", 1, at="10s")]
    played = play(CLASSES, node("n1", 4), queues, groups, pods, config=actions("allocate", "reclaim"))
    gone = [e.object for e in played.result.timeline if e.event == "Evicted"]
    assert len(gone) == 1
    assert gone[0].startswith("Pod/default/low-")


@pytest.mark.parametrize(
    ("least", "tasks", "placed"),
    [
        (3, {"ps": 2, "worker": 1}, 0),  # one ps is missing
        (2, {"ps": 2, "worker": 1}, 3),  # tasks need more than the job: only the job counts
        (3, {"ps": 1, "worker": 2}, 3),
    ],
)
def test_tasks_that_need_more_than_the_job_do_not_count(
    least: int, tasks: dict[str, int], placed: int
) -> None:
    members = [
        pod(f"g-{i}", 1, group="g", annotations={"volcano.sh/task-spec": task})
        for i, task in enumerate(("ps", "worker", "worker"))
    ]
    played = play(node("n1", 4), pod_group("g", least, minTaskMember=tasks), members)
    assert len(played.bound()) == placed


@pytest.mark.parametrize(
    ("on_group", "on_pod", "spared"),
    [("false", "", True), ("true", "", False), ("false", "true", False), ("true", "false", True)],
)
def test_a_group_may_say_that_its_pods_are_nobodys_victims(
    on_group: str, on_pod: str, spared: bool
) -> None:
    said = pod_group("g", 1)
    said["metadata"]["annotations"]["volcano.sh/preemptable"] = on_group
    pods = gang("g", 1, labels={"volcano.sh/preemptable": on_pod} if on_pod else {})
    high = [pod("high", 1, at="10s", priority=10)]
    assert victims(node("n1", 1), said, pods, high) == ([] if spared else ["g-0"])


def test_when_it_says_so_no_more_they_may_go() -> None:
    said = pod_group("g", 1)
    said["metadata"]["annotations"]["volcano.sh/preemptable"] = "false"
    merge = {"metadata": {"annotations": {"volcano.sh/preemptable": None}}}
    no_more = step("20s", patch={"kind": "PodGroup", "name": "g", "merge": merge})
    high = pod("high", 1, at="10s", priority=10)
    played = play(node("n1", 1), said, gang("g", 1), high, no_more, config=PREEMPT)
    assert played.times("high") == [20]
