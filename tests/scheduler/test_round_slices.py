"""A round in parts: none does more than its share, and together they decide what one would."""

from __future__ import annotations

import pytest

from harness.builders import make_node, make_pod, make_queue
from harness.driver import Driver
from holdfast.api.names import QUEUE_NAME_ANNOTATION
from holdfast.api.pod import Pod
from holdfast.scheduler.cluster.decisions import Bind, Decision, Preempt, SetPodScheduled
from reference.setup import Setup


class Budget:
    """So many questions whether it is enough are answered with no."""

    def __init__(self, steps: int) -> None:
        self.steps = self.left = steps

    def enough(self) -> bool:
        self.left -= 1
        return self.left <= 0


def parts(driver: Driver, steps: int) -> list[list[Decision]]:
    found = []
    while True:
        found.append(driver.scheduler.round(driver.now, enough=Budget(steps).enough))
        if not driver.scheduler.unfinished:
            return found


def joined(found: list[list[Decision]]) -> list[Decision]:
    return [decision for part in found for decision in part]


def outcome(decisions: list[Decision]) -> dict[str, str]:
    bound = {d.pod.name: d.node for d in decisions if isinstance(d, Bind)}
    return bound | {d.pod.name: d.message for d in decisions if isinstance(d, SetPodScheduled)}


def cluster(pods: list[Pod]) -> Driver:
    nodes = [make_node(f"n{i}").allocatable(cpu=str(2 + i), pods="20").obj() for i in range(4)]
    return Driver().add(*nodes, *pods)


def waiting() -> list[Pod]:
    """Of several classes; some find no node."""
    return [
        make_pod(f"p{i}").cpu(f"{500 * (i % 5)}m").priority(i % 3).label("app", f"a{i % 2}").obj()
        for i in range(40)
    ]


@pytest.mark.parametrize("steps", [1, 2, 7, 1000])
def test_parts_decide_what_a_whole_round_would(steps: int) -> None:
    whole, cut = cluster(waiting()), cluster(waiting())
    expected = outcome(whole.round(0.0))
    found = parts(cut, steps)
    assert outcome(joined(found)) == expected
    assert all(len(outcome(each)) <= steps for each in found)
    assert len(found) >= 40 // steps


def test_groups_are_woken_a_few_at_a_time_and_tried_when_all_are() -> None:
    """Who is woken last is the most important, and must not find the room taken."""
    pods = [make_pod(f"p{i}").cpu(str(10 + i)).priority(i).obj() for i in range(30)]
    driver = Driver().add(make_node("small").allocatable(cpu="1").obj(), *pods)
    driver.round(0.0)
    driver.at(20.0).add(make_node("large").allocatable(cpu="39").obj())
    found = parts(driver, 1)
    assert len(found) >= 30
    assert outcome(joined(found))["p29"] == "large"


def test_changes_while_groups_are_woken_keep_nobody_from_being_tried() -> None:
    pods = [make_pod(f"p{i}").cpu(str(10 + i)).obj() for i in range(5)]
    driver = Driver().add(make_node("small").allocatable(cpu="1").obj(), *pods)
    driver.round(0.0)
    bound: dict[str, str] = {}
    driver.at(20.0).add(make_node("large").allocatable(cpu="10").obj())
    for number in range(12):
        driver.add(make_node(f"more-{number}").allocatable(cpu="1").obj())
        decisions = driver.scheduler.round(20.0, enough=Budget(1).enough)
        bound |= {d.pod.name: d.node for d in decisions if isinstance(d, Bind)}
    assert bound == {"p0": "large"}


def test_a_group_that_is_gone_before_it_is_woken_is_left_out() -> None:
    pods = [make_pod(f"p{i}").cpu(str(10 + i)).obj() for i in range(5)]
    driver = Driver().add(make_node("small").allocatable(cpu="1").obj(), *pods)
    driver.round(0.0)
    driver.at(20.0).add(make_node("large").allocatable(cpu="100").obj())
    driver.scheduler.round(20.0, enough=Budget(1).enough)
    assert driver.scheduler.unfinished
    driver.delete(*pods[1:])
    assert outcome(joined(parts(driver, 1))) == {"p0": "large"}


@pytest.mark.parametrize("steps", [1, 1000])
def test_who_a_queue_turns_away_in_one_part_may_preempt_in_the_last(steps: int) -> None:
    driver = Driver((Setup(preempts=True),))
    driver.add(
        make_node("n").allocatable(cpu="8").obj(),
        make_queue("full").capability(cpu="1").obj(),
        make_queue("other").obj(),
        make_pod("low").cpu("1").annotation(QUEUE_NAME_ANNOTATION, "full").on("n").obj(),
        make_pod("high").cpu("1").priority(10).annotation(QUEUE_NAME_ANNOTATION, "full").obj(),
        *(make_pod(f"p{i}").cpu("1").obj() for i in range(3)),
    )
    decisions = joined(parts(driver, steps))
    assert [d.pod.name for d in decisions if isinstance(d, Preempt)] == ["low"]
