"""Scores never make up for a node that will not do."""

from __future__ import annotations

from harness.builders import make_pod
from harness.driver import big_node, default_driver


def test_domain_scores_do_not_lift_a_node_without_capacity() -> None:
    driver = default_driver(big_node("n1").zone("a").obj(), big_node("n2").zone("b").obj())
    for i in range(3):
        driver.add(make_pod(f"old{i}").namespace("default").label("app", "a").node("n1").obj())
    pod = make_pod("p").namespace("default").label("app", "a").cpu("100")
    pod.spread("topology.kubernetes.io/zone", 1, {"app": "a"}, when="ScheduleAnyway")
    assert driver.why_not(pod.obj()) == "0/2 nodes are available: 2 Insufficient cpu."
