"""The nomination in a pod's object: changes by others are adopted, late writes of our own are not."""

from __future__ import annotations

import pytest

from harness.builders import make_node, make_pod
from harness.driver import Driver, default_driver
from holdfast.scheduler.cluster.decisions import Nominate


def nominations(driver: Driver) -> list[str]:
    return [each.node for each in driver.decisions if isinstance(each, Nominate)]


def test_a_nomination_that_is_written_after_it_was_cleared_keeps_nobody_off_the_node() -> None:
    low = make_pod("low").cpu("4").on("n1")
    high = make_pod("high").cpu("4").priority(10)
    driver = default_driver(make_node("n1").allocatable(cpu="4").obj(), low.obj(), high.obj())
    driver.round()
    top = make_pod("top").cpu("3").priority(100).on("n1")  # bound by another scheduler
    driver.delete(low.obj()).add(top.obj())
    driver.later()
    assert nominations(driver) == ["n1", ""]

    driver.update(high.nominated("n1").obj())
    assert driver.schedule(make_pod("small").cpu("1").obj()) == {"small": "n1"}


def test_a_nomination_that_others_clear_keeps_nobody_off_the_node() -> None:
    high = make_pod("high").cpu("4").priority(10).gate("wait")
    driver = default_driver(make_node("n1").allocatable(cpu="4").obj(), high.nominated("n1").obj())
    small = make_pod("small").cpu("1").obj()
    assert driver.schedule(small) == {}
    driver.update(high.nominated("").obj())
    assert driver.later() and driver.story(small)[-1].startswith("decided")


@pytest.mark.parametrize(
    ("decided", "seen", "nominated"),
    [
        (["n1"], [""], "n1"),
        (["n1"], ["n1"], "n1"),
        (["n1", ""], ["n1"], ""),
        (["n1", ""], ["n1", ""], ""),
        (["n1", "n2"], ["n1"], "n2"),
        (["n1", "", "n2"], ["n1", ""], "n2"),
        (["n1", "", "n1"], ["n1", ""], "n1"),
        (["n1", "", "n2"], ["n2"], "n2"),
        (["n1"], ["n1", ""], ""),
        (["n1"], ["n1", "n3"], "n3"),
        (["n1", ""], ["n1", "", "n1"], "n1"),
        (["n1"], ["n3"], "n3"),
        (["n1"], ["n3", "n1"], "n1"),
        (["n1", ""] * 100, ["n1", ""], ""),
    ],
)
def test_what_was_decided_holds_until_others_change_it(
    decided: list[str], seen: list[str], nominated: str
) -> None:
    pod = make_pod("p").cpu("1").gate("wait")
    driver = default_driver(*(make_node(n).allocatable(cpu="4").obj() for n in ("n1", "n2", "n3")))
    record = driver.add(pod.obj()).record(pod.obj())
    for node in decided:
        driver.scheduler.preemption.nominate(record, node)
        driver.round()
    for node in seen:
        driver.update(pod.nominated(node).obj())
    assert record.nominated == nominated
