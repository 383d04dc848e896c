"""Who makes the pods of a job may wait for its PodGroup to say that it may."""

from typing import Any

import pytest

from harness.objects import SIGS, Raw, gang, node, pod, pod_group, queue
from harness.scenarios import Played, play, step


def phases(played: Played) -> dict[str, str]:
    return {raw["metadata"]["name"]: raw["status"]["phase"] for raw in played.all("PodGroup")}


def patched(at: str, kind: str, name: str, **merge: Any) -> Raw:
    return step(at, patch={"kind": kind, "name": name, "merge": merge})


CAPPED = queue("q", capability={"cpu": "4"})
FOUR: Raw = {"minResources": {"cpu": "4"}, "queue": "q"}


@pytest.mark.parametrize(
    ("given", "phase"),
    [
        ([pod_group("g", 3)], "Inqueue"),
        ([pod_group("g", 3, minResources={"cpu": "8"})], "Inqueue"),
        ([pod_group("g", 3, minResources={"cpu": "9"})], "Pending"),  # more than there is
        ([pod_group("g", 3, minResources={"example.com/gpu": "1"})], "Pending"),
        ([pod_group("g", 3, minResources={"cpu": "8"}), pod("busy", 8, at="0s")], "Inqueue"),
        ([pod_group("g", 3, queue="nowhere")], "Pending"),
        ([pod_group("g", 3, queue="q"), queue("q", state="Closed")], "Pending"),
        ([pod_group("g", 3, **FOUR), CAPPED], "Inqueue"),
        ([pod_group("g", 3, queue="q", minResources={"cpu": "5"}), CAPPED], "Pending"),
        (
            [pod_group("g", 3, queue="b", minResources={"cpu": "5"}), CAPPED, queue("b", parent="q")],
            "Pending",
        ),
    ],
)
def test_a_job_without_pods_may_have_them_made(given: list[Raw], phase: str) -> None:
    assert phases(play(node("n1", 8), given)) == {"g": phase}


def test_not_more_are_let_in_than_a_queue_may_have() -> None:
    played = play(node("n1", 8), CAPPED, pod_group("a", 1, **FOUR), pod_group("b", 1, **FOUR))
    assert phases(played) == {"a": "Inqueue", "b": "Pending"}
    pods = gang("a", 1, 4, at="5s", runs_for="10s")
    played = play(node("n1", 8), CAPPED, pod_group("a", 1, **FOUR), pod_group("b", 1, **FOUR), pods)
    assert phases(played) == {"a": "Completed", "b": "Inqueue"}


@pytest.mark.parametrize(
    "later",
    [
        patched("10s", "Queue", "q", spec={"capability": {"cpu": "8"}}),
        patched("10s", "PodGroup", "g", spec={"minResources": {"cpu": "3"}}),
    ],
)
def test_one_that_had_to_wait_is_let_in_when_it_may(later: Raw) -> None:
    spec: Raw = {"queue": "q", "minResources": {"cpu": "5"}}
    assert phases(play(node("n1", 8), CAPPED, pod_group("g", 1, **spec), later)) == {"g": "Inqueue"}


def test_a_node_that_comes_lets_it_in() -> None:
    more = step("10s", apply=node("n2", 8))
    given = pod_group("g", 1, minResources={"cpu": "12"})
    assert phases(play(node("n1", 8), given, more)) == {"g": "Inqueue"}


def test_it_stays_let_in_while_its_pods_are_made() -> None:
    restart = step("6s", restart="scheduler")
    played = play(node("n1", 8), pod_group("g", 3), gang("g", 2, at="5s"), restart)
    assert phases(played) == {"g": "Inqueue"}
    assert played.bound() == {}


def test_those_of_the_other_api_group_wait_for_nothing() -> None:
    assert phases(play(node("n1", 8), pod_group("g", 3, SIGS))) == {"g": "Pending"}


def test_tasks_that_lack_pods_have_a_reason_of_their_own() -> None:
    members = [pod(f"g-{i}", 1, group="g", labels={"volcano.sh/task-spec": "worker"}) for i in range(3)]
    played = play(node("n1", 8), pod_group("g", 3, minTaskMember={"ps": 1, "worker": 2}), members)
    [said] = played.find("PodGroup", "g")["status"]["conditions"]
    assert (said["type"], said["reason"]) == ("Unschedulable", "NotEnoughPodsOfTask")
    assert said["message"] == "PodGroup/default/g has 0 of the 1 pods it needs of task ps"


@pytest.mark.parametrize(
    ("least", "ended", "more", "phase"),
    [
        (2, ["Succeeded", "Succeeded"], 0, "Completed"),
        (2, ["Succeeded", "Failed"], 0, "Completed"),
        (2, ["Failed", "Failed"], 0, "Completed"),
        (3, ["Succeeded"], 0, "Inqueue"),  # the others are yet to come
        (2, ["Succeeded"], 1, "Running"),
        (2, ["Failed"], 1, "Pending"),
    ],
)
def test_a_job_is_done_when_as_many_as_it_needs_have_ended(
    least: int, ended: list[str], more: int, phase: str
) -> None:
    done = [
        pod(f"g-{i}", 1, group="g", nodeName="n1") | {"status": {"phase": phase}}
        for i, phase in enumerate(ended)
    ]
    late = [pod(f"late-{i}", 1, group="g") for i in range(more)]
    assert phases(play(node("n1", 8), pod_group("g", least), done, late)) == {"g": phase}


def test_a_job_that_lost_a_member_says_what_it_lacks() -> None:
    """Nobody made another."""
    played = play(
        node("n1", 8),
        pod_group("g", 2),
        pod("g-0", 1, group="g"),
        pod("g-1", 1, group="g", delete_at="10s"),
    )
    status = played.find("PodGroup", "g")["status"]
    said = {c["type"]: (c["status"], c["reason"]) for c in status["conditions"]}
    assert status["phase"] == "Unknown"
    assert said == {"Scheduled": ("False", "NotReady"), "Unschedulable": ("True", "NotEnoughTasks")}
    late = pod("late", 1, group="g", at="20s")
    again = play(
        node("n1", 8),
        pod_group("g", 2),
        pod("g-0", 1, group="g"),
        pod("g-1", 1, group="g", delete_at="10s"),
        late,
    )
    status = again.find("PodGroup", "g")["status"]
    said = {
        c["type"]: (c["status"], c["reason"]) for c in status["conditions"] if c["status"] == "True"
    }
    assert (status["phase"], said) == ("Running", {"Scheduled": ("True", "Ready")})
