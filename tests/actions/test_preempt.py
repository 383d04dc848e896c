"""Pods preempt others only where `preempt` is among the actions."""

from typing import Any

import pytest

from builders import make_node, make_pod
from holdfast.core.decisions import Nominate, Preempt
from reference.driving import Driver
from reference.setup import Setup

CROWDED = "0/1 nodes are available: 1 Insufficient cpu."


def full_cluster(**config: Any) -> Driver:
    driver = Driver((Setup(preempts=True),), **config)
    node = make_node("n1").allocatable(cpu="4", memory="8Gi").obj()
    there = make_pod("there").cpu("4").on("n1").obj()
    return driver.add(node, there, make_pod("urgent").cpu("4").priority(100).obj())


@pytest.mark.parametrize(
    "config",
    [{}, {"actions": "allocate, preempt"}, {"actions": [{"name": "preempt"}, {"name": "allocate"}]}],
)
def test_with_preempt_among_the_actions_pods_make_room(config: dict[str, Any]) -> None:
    decisions = full_cluster(**config).round()
    assert [d.pod.name for d in decisions if isinstance(d, Preempt)] == ["there"]
    assert [d.node for d in decisions if isinstance(d, Nominate)] == ["n1"]


@pytest.mark.parametrize("actions", ["allocate", "allocate, backfill, reserve", "reclaim, allocate"])
def test_without_it_they_stay_where_they_are(actions: str) -> None:
    driver = full_cluster(actions=actions)
    decisions = driver.round()
    assert not [d for d in decisions if isinstance(d, Preempt | Nominate)]
    assert driver.record(make_pod("urgent").obj()).told == CROWDED
