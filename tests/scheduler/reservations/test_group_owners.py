"""Owners of reservations that are PodGroups and Workloads."""

from typing import Any

import pytest

from harness.objects import Raw, core_group, core_pods, gang, node, pod, pod_group, reservation
from harness.scenarios import Played, play, step

CORE = "scheduling.k8s.io/v1beta1"
GROUP = {"kind": "PodGroup", "name": "g"}


def reserved(object: dict[str, str], at: str = "0s") -> Raw:
    """Two CPUs for the pods of a PodGroup or Workload."""
    return reservation("r", 2, owners=[{"object": object}], allocateOnce=False, at=at)


def used(played: Played) -> dict[str, str]:
    """By pod, the reservation that it was bound through."""
    entries = (entry for entry in played.result.timeline if entry.event == "Bound")
    return {entry.object.rpartition("/")[2]: entry.reservation for entry in entries}


@pytest.mark.parametrize(
    ("object", "is_owner"),
    [
        ({"kind": "PodGroup", "name": "g"}, True),
        ({"kind": "PodGroup", "name": "g", "namespace": "default", "apiVersion": CORE}, True),
        ({"kind": "PodGroup", "namespace": "default"}, True),
        ({"kind": "PodGroup", "name": "h"}, False),
        ({"kind": "PodGroup", "name": "g", "namespace": "other"}, False),
        ({"kind": "PodGroup", "name": "g", "apiVersion": "scheduling.volcano.sh/v1beta1"}, False),
        ({"kind": "PodGroup", "name": "g", "uid": "another"}, False),
        ({"kind": "Workload", "name": "w"}, True),
        ({"kind": "Workload", "name": "g"}, False),
        ({"kind": "Pod", "name": "g"}, False),
    ],
)
def test_pods_of_a_group_are_owners(object: dict[str, str], is_owner: bool) -> None:
    group = core_group("g", 2, workloadRef={"workloadName": "w", "templateName": "t"}, at="5s")
    pods = core_pods("g", 2, at="10s")
    played = play(node("n1", 4), reserved(object), group, pods)
    assert used(played) == {"g-0": "r" if is_owner else "", "g-1": "r" if is_owner else ""}


@pytest.mark.parametrize("late", [False, True])
def test_pods_of_another_group_are_not(late: bool) -> None:
    """Though they are equal to those of the first in all else."""
    first, second = core_group("g", 2), core_group("h", 2)
    pods = [core_pods("h", 2, at="10s"), core_pods("g", 2, at="20s")]
    created = reserved(GROUP, at="15s" if late else "0s")
    played = play(node("n1", 4), first, second, created, *pods)
    assert used(played) == {"h-0": "", "h-1": "", "g-0": "r", "g-1": "r"}


def test_what_is_reserved_is_kept_for_the_group() -> None:
    other = pod("other", 1, at="10s")
    group, pods = core_group("g", 2), core_pods("g", 2, at="20s")
    played = play(node("n1", 2), reserved(GROUP), other, group, pods)
    assert played.times("other", "g-0", "g-1") == [None, 20, 20]


def test_pending_pods_become_owners_of_a_new_reservation() -> None:
    blocker = pod("blocker", 2, runs_for="20s")
    pods = core_pods("g", 2, at="5s")
    wanted = reserved(GROUP, at="10s")
    wanted["spec"]["preAllocation"] = True
    played = play(node("n1", 2), blocker, core_group("g", 2), pods, wanted)
    assert used(played) == {"blocker": "", "g-0": "r", "g-1": "r"}


def test_the_owner_may_be_a_group_of_volcano() -> None:
    """Its pods name it in an annotation, which no label selector matches."""
    object = {"kind": "PodGroup", "name": "g", "apiVersion": "scheduling.volcano.sh/v1beta1"}
    played = play(node("n1", 4), reserved(object), pod_group("g", 2), gang("g", 2, at="10s"))
    assert used(played) == {"g-0": "r", "g-1": "r"}


def test_a_group_of_the_same_name_is_another_one() -> None:
    """By its uid. The first goes once its pod has ended: a PodGroup with running pods is protected."""
    group: Any = core_group("g", 1)
    group["metadata"]["uid"] = "first"
    again = core_group("g", 1)
    again["metadata"] |= {"uid": "second", "annotations": {}}
    recreate = [
        step("20s", delete={"apiVersion": CORE, "kind": "PodGroup", "name": "g"}),
        step("30s", apply=again),
    ]
    pods = core_pods("g", 1, at="10s") + core_pods("g", 2, at="40s")[1:]
    pods[0]["metadata"]["annotations"]["sim.holdfast.io/runs-for"] = "5s"
    played = play(node("n1", 8), reserved({"kind": "PodGroup", "uid": "first"}), group, recreate, pods)
    assert used(played) == {"g-0": "r", "g-1": ""}


def test_a_deleted_reservation_is_forgotten() -> None:
    gone = step("10s", delete={"kind": "Reservation", "name": "r"})
    played = play(
        node("n1", 4),
        reserved(GROUP),
        core_group("g", 1),
        gone,
        core_pods("g", 2, at="20s"),
    )
    assert used(played) == {"g-0": "", "g-1": ""}
