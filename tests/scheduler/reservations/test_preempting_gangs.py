"""Gangs of reservations that make others go: for all of them, or for none."""

import pytest

from harness.objects import node
from harness.world import World
from scheduler.reservations.preempting_reservations import TRIO, high, low, member, names


@pytest.mark.parametrize(
    ("lows", "members", "preempts"),
    [(3, 3, True), (2, 3, False), (3, 2, False), (4, 3, True), (3, 1, False)],
)
def test_a_gang_frees_capacity_for_all_or_none(lows: int, members: int, preempts: bool) -> None:
    world = World(*(node(f"n{i}", cpu="4") for i in range(lows)))
    world.put(*(low(f"low{i}") for i in range(lows)))
    world.put(*(member(f"m{i}", TRIO) for i in range(members)))
    left = [name for name in names(world) if name.startswith("low")]
    assert len(left) == (lows - 3 if preempts else lows)
    phases = {world.phase(f"m{i}") for i in range(members)}
    assert phases == ({"Available"} if preempts else {"Pending"})


def test_a_gang_by_pod_group() -> None:
    group = {
        "apiVersion": "scheduling.sigs.k8s.io/v1alpha1",
        "kind": "PodGroup",
        "metadata": {"name": "pair", "namespace": "default", "uid": "group-pair"},
        "spec": {"minMember": 2},
    }
    label = {"pod-group.scheduling.sigs.k8s.io": "pair"}
    world = World(node("n0", cpu="4"), node("n1", cpu="4"), group, low("low0"), low("low1"))
    world.put(high("m0", labels=label))
    assert world.phase("m0") == "Pending"
    world.put(high("m1", labels=label))
    assert (names(world), world.phase("m0")) == (["m0", "m1"], "Available")


def test_a_gang_uses_what_is_free_first() -> None:
    world = World(*(node(f"n{i}", cpu="4") for i in range(3)), low("low0"), low("low1"))
    world.put(*(member(f"m{i}", TRIO) for i in range(3)))
    assert names(world) == ["m0", "m1", "m2"]


def test_members_that_may_not_preempt_need_capacity_of_their_own() -> None:
    world = World(node("n0", cpu="4"), node("n1", cpu="4"), low("low0"), low("low1"))
    pair = {"name": "pair", "min-available": 2}
    world.put(member("m0", pair), member("m1", pair, can=""))
    assert world.phase("m0") == "Pending" and len(names(world)) == 4
