"""The usage of reservations: alike reservations share one state, and pods lead from one to another."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.builders import make_pod
from harness.strategies import examples
from holdfast.scheduler.cluster import reservation_usage
from holdfast.scheduler.cluster.node_table import NodeTable
from holdfast.scheduler.cluster.pod_classes import PodClass, PodClasses
from holdfast.scheduler.cluster.reservation_usage import UsageStates
from holdfast.scheduler.cluster.slots import CPU, MEMORY, NONZERO_CPU, NONZERO_MEMORY, PODS

Gi = 1024**3
RESERVED = {CPU: 4000, MEMORY: 8 * Gi, PODS: 1, NONZERO_CPU: 4000, NONZERO_MEMORY: 8 * Gi}


CLASSES = PodClasses(NodeTable().slot)


def class_of(cpu: str, memory: str) -> PodClass:
    return CLASSES.acquire(make_pod("p").cpu(cpu).memory(memory).obj())


def made() -> UsageStates:
    return UsageStates(NodeTable().slots.sums)


def test_what_is_left_of_a_hold_never_goes_below_zero_what_is_taken_is_told_in_full() -> None:
    states, owner = made(), class_of("3", "2Gi")
    usage = states.untouched(RESERVED)
    assert (usage.taken, usage.remaining) == ({}, RESERVED)
    for _ in range(2):
        usage = states.step(usage, owner, 1).usage
    assert (usage.taken[CPU], usage.remaining[CPU]) == (6000, 0)
    assert (usage.taken[MEMORY], usage.remaining[MEMORY]) == (4 * Gi, 4 * Gi)
    assert usage.amounts == RESERVED


@pytest.mark.parametrize(
    ("owners", "cpu", "memory", "pods"),
    [(1, 0, 0, 0), (2, 2000, 0, 1), (3, 3000, 0, 1), (6, 3000, 2 * Gi, 1)],
)
def test_an_owner_claims_of_its_node_what_the_hold_has_not(
    owners: int, cpu: int, memory: int, pods: int
) -> None:
    """Of owners one after the other, each of 3 cpu and 2Gi, what the last one adds to the row."""
    states, owner = made(), class_of("3", "2Gi")
    usage = states.untouched(RESERVED)
    for _ in range(owners):
        usage, claims, _ = states.step(usage, owner, 1)
    claimed = dict(claims)
    assert (claimed.get(CPU, 0), claimed.get(MEMORY, 0), claimed.get(PODS, 0)) == (cpu, memory, pods)
    assert 0 not in claimed.values()


def test_reservations_with_equal_amounts_and_usage_share_a_state() -> None:
    states, owner, other = made(), class_of("1", "1Gi"), class_of("2", "1Gi")
    one, two = states.untouched(RESERVED), states.untouched(dict(RESERVED))
    assert one is two
    assert states.step(one, owner, 1).usage is states.step(two, owner, 1).usage
    assert states.step(one, owner, 1).usage is not states.step(one, other, 1).usage
    there_and_back = states.after(states.after(one, owner, 1), owner, -1)
    assert there_and_back is one and one.taken == {}


sizes = st.sampled_from([("1", "1Gi"), ("3", "512Mi"), ("500m", "6Gi")])


@examples(60)
@given(st.lists(sizes, min_size=4, max_size=4), st.permutations(range(4)))
def test_pods_that_came_and_left_in_any_order_leave_no_trace(
    asked: list[tuple[str, str]], order: list[int]
) -> None:
    states = made()
    start = usage = states.untouched(RESERVED)
    claimed = dict.fromkeys(RESERVED, 0)
    pods = [class_of(*each) for each in asked]
    for cls, sign in [(cls, 1) for cls in pods] + [(pods[i], -1) for i in order]:
        before, (usage, claims, _) = usage, states.step(usage, cls, sign)
        expected = {slot: sign * amount for slot, amount in cls.usage}
        for slot, amount in usage.remaining.items():
            expected[slot] = expected.get(slot, 0) + amount - before.remaining[slot]
        assert dict(claims) == {slot: amount for slot, amount in expected.items() if amount}
        for slot, amount in claims:
            claimed[slot] += amount
    assert usage is start
    assert not any(claimed.values())


def test_a_class_that_claims_more_by_now_is_looked_at_again() -> None:
    states, owner = made(), class_of("1", "7Gi")
    limits = 7
    start = states.untouched({**RESERVED, limits: 4000})
    before = states.step(start, owner, 1)
    owner.usage = (*owner.usage, (limits, 1500))
    assert states.step(start, owner, 1) is before, "it is nobody's business to look"
    states.forget_steps()
    assert states.step(start, owner, 1).usage.remaining[limits] == 2500


def test_no_more_is_remembered_than_is_worth_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reservation_usage, "_KEPT", 4)
    states, owner = made(), class_of("100m", "1Mi")
    usage = start = states.untouched(RESERVED)
    for _ in range(20):
        usage = states.step(usage, owner, 1).usage
    assert usage.remaining[CPU] == 2000
    for _ in range(20):
        usage = states.step(usage, owner, -1).usage
    assert (usage.taken, usage.remaining) == (start.taken, start.remaining)
    assert len(states._known) <= 4 and len(states._steps) <= 4
