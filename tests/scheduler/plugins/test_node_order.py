"""Which nodes hold room: the formulas, with numbers."""

from typing import Any

import numpy as np
import pytest

from harness.builders import make_pod
from holdfast.api.quantity import amount
from holdfast.scheduler.cluster.pod_classes import ORDINARY, PodClass
from holdfast.scheduler.framework.handle import Handle
from holdfast.scheduler.framework.hold_planner import node_score, resource_score
from holdfast.scheduler.framework.interface import Offer
from holdfast.scheduler.plugins.node_order import NodeOrder
from holdfast.scheduler.state.cluster import Cluster

GPU = "nvidia.com/gpu"


@pytest.mark.parametrize(
    ("required", "idle", "score"),
    [
        (1, 1, 0),  # an exact fit
        (1, 2, 50),
        (1, 4, 75),
        (3, 2, -33.3333),
        (4, 1, -75),
        (1, 0, -100),
        (1, -5, -100),  # less than nothing is nothing
        (0, 7, 0),  # not asked for
        (0, 0, 0),
    ],
)
def test_one_resource(required: int, idle: int, score: float) -> None:
    found = resource_score(required, np.array([idle], dtype=np.int64))
    assert found[0] == pytest.approx(score, abs=1e-3)


def _class(cluster: Cluster, requests: dict[str, str]) -> PodClass:
    given: dict[str, Any] = dict(requests)
    return cluster.classes.acquire(make_pod("task").requests(given).obj(), ORDINARY)


def _idle(cluster: Cluster, nodes: list[dict[str, str]]) -> Any:
    def idle(slot: int) -> Any:
        name = cluster.nodes.slots.name(slot)
        return np.array([amount(name, node.get(name, "0")) for node in nodes], dtype=np.int64)

    return idle


@pytest.mark.parametrize(
    ("requests", "idle", "score"),
    [
        ({"cpu": "3", "memory": "3G"}, {"cpu": "2", "memory": "2G"}, -11.1111),
        ({"cpu": "3", "memory": "1G"}, {"cpu": "2", "memory": "2500M"}, 4.4444),
        ({"cpu": "3", "memory": "1G"}, {"cpu": "1500m", "memory": "2500M"}, 1.6667),
        ({"cpu": "3", "memory": "1G"}, {"cpu": "1", "memory": "2500M"}, -1.1111),
        ({"cpu": "8", "memory": "32G", GPU: "8"}, {"cpu": "16", "memory": "64G", GPU: "4"}, -16.6667),
        ({"cpu": "8", "memory": "32G", GPU: "8"}, {"cpu": "8", "memory": "32G", GPU: "8"}, 0),
        ({"cpu": "8", "memory": "32G", GPU: "8"}, {"cpu": "32", "memory": "128G"}, -41.6667),
        ({"cpu": "1"}, {"cpu": "2", "memory": "1G"}, 8.3333),  # memory not asked for is 0
        ({"cpu": "1", GPU: "1", "a/b": "1"}, {"cpu": "1", GPU: "2", "a/b": "1"}, 16.6667),
        ({}, {"cpu": "1"}, 0),
    ],
)
def test_a_node(requests: dict[str, str], idle: dict[str, str], score: float) -> None:
    cluster = Cluster()
    cls = _class(cluster, requests)
    assert node_score(cls, _idle(cluster, [idle]), 1)[0] == pytest.approx(score, abs=1e-3)


@pytest.mark.parametrize(
    ("held", "more", "points"),
    [
        ("....", 2, [0, 10, 0, 10]),  # the best two, by score and then by name
        ("....", 3, [10, 10, 0, 10]),
        ("....", 0, [0, 0, 0, 0]),
        ("..#.", 1, [0, 10, 10, 0]),  # one that holds something is in
        ("####", 0, [10, 10, 10, 10]),
    ],
)
def test_the_best_get_ten_and_the_others_nothing(held: str, more: int, points: list[int]) -> None:
    cluster = Cluster()
    cls = _class(cluster, {"cpu": "4", "memory": "4G"})
    nodes = [{"cpu": cpu, "memory": "4G"} for cpu in ("2", "3", "1", "3")]
    offer = Offer(
        np.arange(4),
        ["a", "b", "c", "d"],
        _idle(cluster, nodes),
        np.array([mark == "#" for mark in held]),
        more,
    )
    assert (
        NodeOrder(Handle(cluster, "nodeorder", ""), {}).node_order_on_resource(cls, offer).tolist()
        == points
    )
