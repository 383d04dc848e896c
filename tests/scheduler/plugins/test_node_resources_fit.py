from __future__ import annotations

import pytest

from harness.builders import NodeBuilder, PodBuilder, make_node, make_pod
from harness.driver import Driver, only, profile_of, scores, why_not
from holdfast.api.pod import Pod
from holdfast.api.quantity import Quantity
from reference.resource_scores import Strategy
from reference.setup import Setup

FIT = "NodeResourcesFit"
GPU = "nvidia.com/gpu"
FOO = "example.com/foo"


def node(**amounts: Quantity) -> NodeBuilder:
    return make_node("n").allocatable({"cpu": "4", "memory": "8Gi", "pods": 10, **amounts})


def used(cpu: str = "", memory: str = "", name: str = "used", on: str = "n") -> Pod:
    pod = make_pod(name).on(on)
    if cpu:
        pod.cpu(cpu)
    if memory:
        pod.memory(memory)
    return pod.obj()


def whole(asked: dict[str, Quantity]) -> Pod:
    return make_pod("whole").pod_resources(asked).on("n").obj()


@pytest.mark.parametrize(
    ("pod", "node", "pods", "reasons"),
    [
        (make_pod("p"), node(), [], ""),
        (make_pod("p").cpu("4").memory("8Gi"), node(), [], ""),
        (make_pod("p").cpu("4001m"), node(), [], "1 Insufficient cpu"),
        (make_pod("p").cpu("3"), node(), [used("1")], ""),
        (make_pod("p").cpu("3"), node(), [used("1001m")], "1 Insufficient cpu"),
        (make_pod("p").memory("8Gi"), node(), [used("", "1")], "1 Insufficient memory"),
        (
            make_pod("p").cpu("8").memory("10Gi"),
            node(),
            [],
            "1 Insufficient cpu, 1 Insufficient memory",
        ),
        (make_pod("p"), node(pods=0), [], "1 Too many pods"),
        (make_pod("p"), node(pods=1), [used()], "1 Too many pods"),
        (
            make_pod("p").cpu("5").requests({GPU: "1"}),
            node(pods=0),
            [],
            "1 Insufficient cpu, 1 Insufficient nvidia.com/gpu, 1 Too many pods",
        ),
        (make_pod("p").cpu("0"), node(), [used("5")], ""),
        (make_pod("p"), node(), [used("5", "10Gi")], ""),
        (make_pod("p").cpu("1"), node(), [used("5", "10Gi")], "1 Insufficient cpu"),
        (make_pod("p").requests({GPU: 1}), node(), [], "1 Insufficient nvidia.com/gpu"),
        (make_pod("p").requests({GPU: 0}), node(), [], ""),
        (
            make_pod("p").requests({"ephemeral-storage": "2Gi"}),
            node(**{"ephemeral-storage": "1Gi"}),
            [],
            "1 Insufficient ephemeral-storage",
        ),
        (
            make_pod("p").requests({"hugepages-2Mi": "4Mi"}),
            node(**{"hugepages-2Mi": "2Mi"}),
            [],
            "1 Insufficient hugepages-2Mi",
        ),
        (make_pod("p").limits({"cpu": "5"}), node(), [], "1 Insufficient cpu"),
        (make_pod("p").cpu("1").limits({"cpu": "5"}), node(), [], ""),
        # Containers run together, init containers one after the other.
        (make_pod("p").cpu("2").container({"cpu": "2"}), node(), [], ""),
        (make_pod("p").cpu("2").container({"cpu": "2001m"}), node(), [], "1 Insufficient cpu"),
        (
            make_pod("p").cpu("1").init_container({"cpu": "4"}).init_container({"cpu": "4"}),
            node(),
            [],
            "",
        ),
        (make_pod("p").cpu("1").init_container({"cpu": "5"}), node(), [], "1 Insufficient cpu"),
        # A sidecar runs beside all that comes after it.
        (
            make_pod("p").cpu("3").init_container({"cpu": "2"}, sidecar=True),
            node(),
            [],
            "1 Insufficient cpu",
        ),
        (
            make_pod("p").init_container({"cpu": "2"}, sidecar=True).init_container({"cpu": "3"}),
            node(),
            [],
            "1 Insufficient cpu",
        ),
        (
            make_pod("p").init_container({"cpu": "3"}).init_container({"cpu": "2"}, sidecar=True),
            node(),
            [],
            "",
        ),
        (make_pod("p").cpu("4").overhead(cpu="1m"), node(), [], "1 Insufficient cpu"),
        # What is asked for the pod as a whole stands for the sum.
        (make_pod("p").cpu("5").pod_resources({"cpu": "4"}), node(), [], ""),
        (make_pod("p").cpu("1").pod_resources({"cpu": "5"}), node(), [], "1 Insufficient cpu"),
        (make_pod("p").pod_resources({}, {"cpu": "5"}), node(), [], "1 Insufficient cpu"),
        (make_pod("p").cpu("1").pod_resources({}, {"cpu": "5"}), node(), [], ""),
    ],
)
def test_what_fits_and_what_is_said_if_not(
    pod: PodBuilder, node: NodeBuilder, pods: list[Pod], reasons: str
) -> None:
    message = f"0/1 nodes are available: {reasons}." if reasons else ""
    assert why_not(pod.obj(), node.obj(), pods=pods, setup=only(FIT)) == message


@pytest.mark.parametrize(
    ("pod", "pods", "resolvable"),
    [
        (make_pod("p").cpu("4"), [used("1")], True),
        (make_pod("p").cpu("5"), [used("1")], False),
        (make_pod("p").cpu("4").memory("9Gi"), [used("1")], False),
        (make_pod("p").requests({GPU: 1}), [], False),
    ],
)
def test_more_than_a_node_has_is_beyond_help(
    pod: PodBuilder, pods: list[Pod], resolvable: bool
) -> None:
    wants = pod.obj()
    driver = Driver((only(FIT),)).add(node().obj(), *pods, wants)
    scheduler = driver.scheduler
    profile = profile_of(scheduler, "default-scheduler")
    column = scheduler.columns.column(profile, driver.record(wants).cls)
    assert column.best() == -1
    assert column.diagnosis.resolvable().tolist() == [resolvable]


@pytest.mark.parametrize(
    ("setup", "asked", "message"),
    [
        (only(FIT), {GPU: 1}, "0/1 nodes are available: 1 Insufficient nvidia.com/gpu."),
        (only(FIT, ignored=(GPU,)), {GPU: 1}, ""),
        (only(FIT, ignored_groups=("nvidia.com",)), {GPU: 1}, ""),
        (
            only(FIT, ignored=(GPU,)),
            {GPU: 1, FOO: 1},
            "0/1 nodes are available: 1 Insufficient example.com/foo.",
        ),
        (only(FIT, ignored_groups=("nvidia.com", "example.com")), {GPU: 1, FOO: 1}, ""),
        (only(FIT, ignored=("cpu",)), {"cpu": 9}, "0/1 nodes are available: 1 Insufficient cpu."),
        (
            only(FIT, ignored_groups=("kubernetes.io",)),
            {"kubernetes.io/batch": 1},
            "0/1 nodes are available: 1 Insufficient kubernetes.io/batch.",
        ),
    ],
)
def test_ignored_extended_resources_are_not_checked(
    setup: Setup, asked: dict[str, str | int | float], message: str
) -> None:
    assert why_not(make_pod("p").requests(asked).obj(), node().obj(), setup=setup) == message


LEAST = Strategy("LeastAllocated")
MOST = Strategy("MostAllocated")


@pytest.mark.parametrize(
    ("strategy", "pod", "node", "pods", "score"),
    [
        # Without requests a container counts with 100m and 200Mi.
        (LEAST, make_pod("p"), node(cpu="1", memory="2000Mi"), [], (90 + 90) // 2),
        (LEAST, make_pod("p").cpu("0").memory("0"), node(), [], 100),
        (LEAST, make_pod("p").container(), node(cpu="1", memory="2000Mi"), [], 80),
        (LEAST, make_pod("p").cpu("1").memory("2Gi"), node(), [], 75),
        (LEAST, make_pod("p").cpu("1").memory("2Gi"), node(), [used("1", "2Gi")], 50),
        (LEAST, make_pod("p").cpu("3").memory("1Gi"), node(), [], (25 + 87) // 2),
        (LEAST, make_pod("p").memory("2Gi"), node(cpu="0"), [], 75),
        (LEAST, make_pod("p"), node(cpu="0", memory="0"), [], 0),
        # Defaults may exceed what there is, where requests do not: such a part scores 0.
        (LEAST, make_pod("p").memory("4Gi"), node(cpu="50m"), [], (0 + 50) // 2),
        (LEAST, make_pod("p"), node(cpu="1", memory="2000Mi"), [used()], 80),
        (MOST, make_pod("p").cpu("1").memory("2Gi"), node(), [used("1", "2Gi")], 50),
        (MOST, make_pod("p").memory("4Gi"), node(cpu="50m"), [], (100 + 50) // 2),
        (MOST, make_pod("p"), node(cpu="1", memory="2000Mi"), [], 10),
        (MOST, make_pod("p"), node(cpu="0", memory="0"), [], 0),
        (
            Strategy("LeastAllocated", (("cpu", 3), ("memory", 1))),
            make_pod("p").cpu("3").memory("2Gi"),
            node(),
            [],
            (3 * 25 + 75) // 4,
        ),
        # An extended resource counts only for pods that ask for it.
        (
            Strategy("MostAllocated", (("cpu", 1), (GPU, 1))),
            make_pod("p").cpu("2"),
            node(**{GPU: 4}),
            [],
            50,
        ),
        (
            Strategy("MostAllocated", (("cpu", 1), (GPU, 1))),
            make_pod("p").cpu("2").requests({GPU: 4}),
            node(**{GPU: 4}),
            [],
            75,
        ),
        (
            Strategy("LeastAllocated", (("cpu", 1), ("ephemeral-storage", 1))),
            make_pod("p").cpu("2"),
            node(**{"ephemeral-storage": "10Gi"}),
            [],
            (50 + 100) // 2,
        ),
        # Init containers, sidecars and overhead count as they do in requests.
        (LEAST, make_pod("p").cpu("1").memory("0").init_container({"cpu": "2"}), node(), [], 73),
        (
            LEAST,
            make_pod("p")
            .cpu("1")
            .memory("1Gi")
            .init_container({"cpu": "1", "memory": "1Gi"}, sidecar=True),
            node(),
            [],
            (50 + 75) // 2,
        ),
        (LEAST, make_pod("p").cpu("1").memory("1Gi").overhead(cpu="1", memory="1Gi"), node(), [], 62),
        # What a pod asks for as a whole counts once it is on a node, and not before.
        (LEAST, make_pod("p").pod_resources({"cpu": "2", "memory": "4Gi"}), node(), [], 97),
        (LEAST, make_pod("p").cpu("0").memory("0"), node(), [whole({"cpu": "2"})], (50 + 97) // 2),
        (
            Strategy("MostAllocated", (("hugepages-2Mi", 1),)),
            make_pod("p").pod_resources({"hugepages-2Mi": "64Mi"}),
            node().allocatable(**{"hugepages-2Mi": "64Mi"}),
            [],
            0,
        ),
        (
            LEAST,
            make_pod("p").cpu("0").memory("0"),
            node(),
            [whole({"cpu": "2", "memory": "4Gi"})],
            50,
        ),
    ],
)
def test_how_full_a_node_would_be(
    strategy: Strategy, pod: PodBuilder, node: NodeBuilder, pods: list[Pod], score: int
) -> None:
    setup = only(FIT, strategy=strategy)
    assert scores(pod.obj(), node.obj(), pods=pods, setup=setup) == {"n": score}


@pytest.mark.parametrize(
    ("shape", "cpu", "memory", "score"),
    [
        (((0, 0), (100, 10)), "2", "4Gi", 50),
        (((0, 10), (100, 0)), "1", "2Gi", 75),
        (((0, 0), (100, 10)), "4", "8Gi", 100),
        # A part that scores nothing is left out of the mean, which is rounded.
        (((0, 0), (100, 10)), "2", "0", 50),
        (((0, 0), (100, 10)), "1", "4140Mi", 38),
        (((20, 2), (60, 8)), "400m", "8Gi", 50),
        (((20, 8), (50, 3), (80, 9)), "1400m", "5Gi", 55),
    ],
)
def test_scores_by_a_shape(
    shape: tuple[tuple[int, int], ...], cpu: str, memory: str, score: int
) -> None:
    setup = only(FIT, strategy=Strategy("RequestedToCapacityRatio", shape=shape))
    assert scores(make_pod("p").cpu(cpu).memory(memory).obj(), node().obj(), setup=setup) == {
        "n": score
    }
