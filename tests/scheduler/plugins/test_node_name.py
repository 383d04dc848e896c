from __future__ import annotations

import pytest

from harness.builders import make_node, make_pod
from harness.driver import cluster_of, only, profile_of
from harness.objects import node, reservation
from harness.world import World
from holdfast.scheduler.cluster.pod_classes import Traits
from holdfast.scheduler.framework.feasibility.column import ClassColumn


@pytest.mark.parametrize(
    ("wants", "fits", "message"),
    [
        ("", {"n1", "n2"}, ""),
        ("n2", {"n2"}, ""),
        (
            "n3",
            set(),
            "0/2 nodes are available: 2 node(s) didn't match the requested node name.",
        ),
    ],
)
def test_a_pod_that_names_its_node_goes_there_or_nowhere(
    wants: str, fits: set[str], message: str
) -> None:
    """Only what is not a pod yet, a reserve pod, names a node before it is placed."""
    driver = cluster_of(make_node("n1").obj(), make_node("n2").obj(), setup=only("NodeName"))
    scheduler = driver.scheduler
    cls = scheduler.cluster.classes.acquire(make_pod("p").obj(), Traits(wants_node=wants))
    column: ClassColumn = scheduler.columns.column(profile_of(scheduler, "default-scheduler"), cls)
    nodes = scheduler.cluster.nodes
    assert {nodes.name(row) for row in column.fits.nonzero()[0].tolist()} == fits
    if message:
        assert column.verdict().message(nodes.count) == message


def test_a_reservation_that_names_its_node_is_told_so() -> None:
    names_n3 = reservation("r")
    names_n3["spec"]["template"]["spec"]["nodeName"] = "n3"
    world = World(node("n1"), names_n3)
    assert world.condition("r", "Scheduled")["message"].startswith(
        "0/1 nodes are available: 1 node(s) didn't match the nodeName specified by reservation."
    )


def test_a_node_that_comes_later_is_the_one_named() -> None:
    driver = cluster_of(make_node("n1").obj(), setup=only("NodeName"))
    scheduler = driver.scheduler
    cls = scheduler.cluster.classes.acquire(make_pod("p").obj(), Traits(wants_node="n2"))
    profile = profile_of(scheduler, "default-scheduler")
    assert scheduler.columns.column(profile, cls).best() == -1
    driver.add(make_node("n2").obj())
    assert scheduler.columns.column(profile, cls).best() == 1
