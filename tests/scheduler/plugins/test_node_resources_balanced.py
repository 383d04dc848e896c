from __future__ import annotations

import pytest

from harness.builders import NodeBuilder, PodBuilder, make_node, make_pod
from harness.driver import cluster_of, only, scores
from holdfast.api.pod import Pod
from holdfast.api.quantity import Quantity

BALANCED = "NodeResourcesBalancedAllocation"
GPU = "nvidia.com/gpu"
FOO = "example.com/foo"
THREE = ("cpu", "memory", GPU)


def node(**amounts: Quantity) -> NodeBuilder:
    return make_node("n").allocatable({"cpu": "4", "memory": "8Gi", **amounts})


def used(cpu: str, memory: str) -> Pod:
    return make_pod("used").cpu(cpu).memory(memory).on("n").obj()


@pytest.mark.parametrize(
    ("resources", "pod", "node", "pods", "score"),
    [
        (("cpu", "memory"), make_pod("p").cpu("1").memory("2Gi"), node(), [], 75),
        (("cpu", "memory"), make_pod("p").cpu("4").memory("0"), node(), [], 50),
        (("cpu", "memory"), make_pod("p").cpu("1").memory("4Gi"), node(), [], 68),
        (("cpu", "memory"), make_pod("p").cpu("1"), node(), [used("1", "4Gi")], 81),
        # What was asked counts, without the defaults other scores add.
        (("cpu", "memory"), make_pod("p").cpu("1"), node(), [], 68),
        # More than all of it is all of it.
        (("cpu", "memory"), make_pod("p").memory("8Gi"), node(), [used("9", "0")], 100),
        # Pods that ask for nothing are not drawn anywhere.
        (("cpu", "memory"), make_pod("p"), node(), [used("4", "0")], 0),
        (("cpu", "memory"), make_pod("p").requests({FOO: 1}), node(**{FOO: 1}), [], 0),
        # A resource the node does not have is left out.
        (("cpu", "memory"), make_pod("p").memory("1Gi"), node(cpu="0"), [], 75),
        (("cpu", "memory"), make_pod("p").cpu("1").memory("1Gi"), node(cpu="0", memory="0"), [], 75),
        # Extended resources count only where asked for; three shares deviate from their mean.
        (THREE, make_pod("p").cpu("1").memory("4Gi"), node(**{GPU: 4}), [], 68),
        (THREE, make_pod("p").cpu("1").memory("4Gi").requests({GPU: 3}), node(**{GPU: 4}), [], 64),
        (THREE, make_pod("p").cpu("2").memory("4Gi").requests({GPU: 2}), node(**{GPU: 4}), [], 75),
    ],
)
def test_pods_that_balance_the_use_of_resources_score_high(
    resources: tuple[str, ...], pod: PodBuilder, node: NodeBuilder, pods: list[Pod], score: int
) -> None:
    setup = only(BALANCED, balanced=resources)
    assert scores(pod.obj(), node.obj(), pods=pods, setup=setup) == {"n": score}


def test_two_of_three_resources_are_told_apart_as_two() -> None:
    """With two shares the deviation is half their difference, to the last bit, whatever else is
    configured; a general formula rounds differently and loses a point here and there."""
    there = make_node("n").allocatable(cpu="1", memory="1000Mi").obj()
    wide = ("cpu", "memory", "ephemeral-storage", FOO)
    for cpu in range(1, 100):
        pod = make_pod("p").cpu(f"{cpu * 10}m").memory(f"{37 * cpu % 100 * 10}Mi").obj()
        plain = scores(pod, there, setup=only(BALANCED))
        assert scores(pod, there, setup=only(BALANCED, balanced=wide)) == plain, cpu


def test_a_lopsided_node_is_taken_by_the_pod_that_evens_it() -> None:
    """It counts how a pod changes the balance, not how even the node is in the end."""
    even = make_node("even").allocatable(cpu="4", memory="4Gi").obj()
    lopsided = make_node("lopsided").allocatable(cpu="4", memory="4Gi").obj()
    big = make_pod("big").cpu("3").memory("0").on("lopsided").obj()
    driver = cluster_of(even, lopsided, pods=[big], setup=only(BALANCED))
    assert driver.add(make_pod("p").cpu("500m").memory("2Gi").obj()).binds() == {"p": "lopsided"}


def test_the_more_even_node_is_taken() -> None:
    even = make_node("even").allocatable(cpu="4", memory="4Gi").obj()
    lopsided = make_node("lopsided").allocatable(cpu="4", memory="16Gi").obj()
    pod = make_pod("p").cpu("1").memory("1Gi").obj()
    driver = cluster_of(lopsided, even, setup=only(BALANCED))
    assert driver.add(pod).binds() == {"p": "even"}
