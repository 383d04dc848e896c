from __future__ import annotations

import pytest

from harness.builders import NodeBuilder, PodBuilder, make_node, make_pod
from harness.driver import Driver, only, scores, why_not
from holdfast.api.pod import Pod
from holdfast.api.quantity import Quantity
from holdfast.api.resources import NON_ZERO, pod_limits
from holdfast.scheduler.cluster.decisions import Bind, Emit, Preempt
from reference.setup import Setup

LIMITS = "node.koordinator.sh/limit-to-allocatable"
GPU = "nvidia.com/gpu"
LIMIT_AWARE = only("LimitAware")
MALFORMED = "node(s) had a malformed limit-to-allocatable annotation"


def node(name: str = "n", ratio: str | None = '{"cpu": "125%"}', cpu: str = "8") -> NodeBuilder:
    made = make_node(name).allocatable({"cpu": cpu, "memory": "16Gi", "pods": 110})
    return made.annotation(LIMITS, ratio) if ratio is not None else made


def pod(name: str = "p", request: str = "1", limit: str = "", **more: str) -> PodBuilder:
    made = make_pod(name).requests({"cpu": request, **more})
    return made.limits({"cpu": limit}) if limit else made


def used(limit: str, on: str = "n", request: str = "1", name: str = "") -> Pod:
    return pod(name or f"on-{on}-{limit}", request, limit).on(on).obj()


# The pod's limit, container by container


@pytest.mark.parametrize(
    ("made", "limits", "scored"),
    [
        (make_pod("p"), {}, (100, 200 * 2**20)),
        (make_pod("p").cpu("1"), {"cpu": 1000}, (1000, 200 * 2**20)),
        (make_pod("p").cpu("1").limits({"cpu": "4"}), {"cpu": 4000}, (4000, 200 * 2**20)),
        (make_pod("p").cpu("0"), {"cpu": 0}, (0, 200 * 2**20)),
        (
            make_pod("p").limits({"cpu": "4"}).container({"cpu": "1", "memory": "1Gi"}),
            {"cpu": 5000, "memory": 2**30},
            (5000, 2**30 + 200 * 2**20),
        ),
        (make_pod("p").cpu("1").container({}), {"cpu": 1000}, (1100, 400 * 2**20)),
        # An init container counts where it needs more than all the others together.
        (make_pod("p").cpu("2").init_container({"cpu": "3"}), {"cpu": 3000}, (3000, 200 * 2**20)),
        (make_pod("p").cpu("2").init_container({"cpu": "1"}), {"cpu": 2000}, (2000, 200 * 2**20)),
        (
            make_pod("p").cpu("2").init_container({"cpu": "3"}).init_container({"memory": "1Gi"}),
            {"cpu": 3000, "memory": 2**30},
            (3000, 2**30),
        ),
        # A sidecar runs beside the others.
        (make_pod("p").cpu("2").init_container({"cpu": "3"}, sidecar=True), {"cpu": 5000}, None),
        (
            make_pod("p").cpu("1").limits({"cpu": "2"}).overhead(cpu="500m", memory="64Mi"),
            {"cpu": 2500, "memory": 64 * 2**20},
            (2500, 264 * 2**20),
        ),
        (make_pod("p").requests({GPU: 2}).limits({GPU: 2}), {GPU: 2}, None),
        (make_pod("p").cpu("1").pod_resources({"cpu": "3"}, {"cpu": "6"}), {"cpu": 6000}, None),
    ],
)
def test_limit_of_a_pod(
    made: PodBuilder, limits: dict[str, int], scored: tuple[int, int] | None
) -> None:
    assert pod_limits(made.obj()) == limits
    if scored is not None:
        found = pod_limits(made.obj(), non_missing=NON_ZERO)
        assert (found["cpu"], found["memory"]) == scored


# Which nodes will do


@pytest.mark.parametrize(
    ("made", "ratio", "on_node", "reasons"),
    [
        # The seed's second story: 6 + 4 + 4 is more than 125 % of 8.
        (pod(limit="4"), '{"cpu": "125%"}', ["6", "4"], "1 Insufficient cpu limit"),
        (pod(limit="4"), '{"cpu": "175%"}', ["6", "4"], ""),
        (pod(limit="4"), '{"cpu": 174}', ["6", "4"], "1 Insufficient cpu limit"),
        (pod(limit="10"), '{"cpu": "125%"}', [], ""),
        (pod(limit="10001m"), '{"cpu": 125}', [], "1 Insufficient cpu limit"),
        # What is asked for is the least a limit can be.
        (pod(request="3"), '{"cpu": 100}', ["6"], "1 Insufficient cpu limit"),
        (pod(request="2"), '{"cpu": 100}', ["6"], ""),
        # Below what the node has, and down to nothing.
        (pod(request="4"), '{"cpu": "50%"}', [], ""),
        (pod(request="4001m"), '{"cpu": "50%"}', [], "1 Insufficient cpu limit"),
        (pod(request="1m"), '{"cpu": 0}', [], "1 Insufficient cpu limit"),
        (pod(request="0"), '{"cpu": 0}', ["9"], ""),
        (make_pod("p").memory("1Gi"), '{"cpu": 0}', ["9"], ""),
        # Rounded down.
        (pod(request="80m"), '{"cpu": "1%"}', [], ""),
        (pod(request="81m"), '{"cpu": "1%"}', [], "1 Insufficient cpu limit"),
        # As much as one likes, within reason.
        (pod(limit="1000000"), '{"cpu": 2147483647}', ["6"], ""),
        (pod(limit="1E"), '{"cpu": 2147483647}', [], "1 Insufficient cpu limit"),
        (pod(), '{"cpu": 2147483648}', [], f"1 {MALFORMED}"),
        # Only what is named is limited; `{}` names nothing.
        (pod(limit="999"), '{"memory": 100}', ["999"], ""),
        (pod(limit="999"), "{}", ["999"], ""),
        (
            make_pod("p").limits({"memory": "17Gi"}),
            '{"memory": 100}',
            [],
            "1 Insufficient memory limit",
        ),
        # Of what the node does not have there is no limit to share out either.
        (pod(limit="1"), '{"nvidia.com/gpu": "200%"}', [], ""),
        (make_pod("p").limits({GPU: 1}), '{"nvidia.com/gpu": 200}', [], f"1 Insufficient {GPU} limit"),
        # What makes no sense.
        (pod(), '{"cpu": -1}', [], f"1 {MALFORMED}"),
        (pod(), '{"cpu": "125"}', [], f"1 {MALFORMED}"),
        (pod(), '{"cpu": "1.5%"}', [], f"1 {MALFORMED}"),
        (pod(), '{"cpu": 1.5}', [], f"1 {MALFORMED}"),
        (pod(), '{"cpu": true}', [], f"1 {MALFORMED}"),
        (pod(), '{"cpu": null}', [], f"1 {MALFORMED}"),
        (pod(), '{"cpu": "-5%"}', [], f"1 {MALFORMED}"),
        (pod(), "[]", [], f"1 {MALFORMED}"),
        (pod(), "null", [], f"1 {MALFORMED}"),
        (pod(), "", [], f"1 {MALFORMED}"),
        (pod(), "125%", [], f"1 {MALFORMED}"),
        (make_pod("p"), '{"cpu": "lots"}', [], f"1 {MALFORMED}"),
        (pod().owned_by("DaemonSet", "d"), '{"cpu": "lots"}', [], ""),
        (pod(limit="99").owned_by("DaemonSet", "d"), '{"cpu": 100}', ["6"], ""),
        (
            pod(limit="99").owned_by("ReplicaSet", "r"),
            '{"cpu": 100}',
            ["6"],
            "1 Insufficient cpu limit",
        ),
    ],
)
def test_limits_add_up_to_what_the_node_allows(
    made: PodBuilder, ratio: str, on_node: list[str], reasons: str
) -> None:
    there = [used(limit, name=f"u{i}") for i, limit in enumerate(on_node)]
    message = why_not(made.obj(), node(ratio=ratio).obj(), pods=there, setup=LIMIT_AWARE)
    assert message == (f"0/1 nodes are available: {reasons}." if reasons else "")


def test_reasons_are_told_node_by_node_and_resource_by_resource() -> None:
    both = '{"cpu": 100, "memory": "100%"}'
    greedy = make_pod("p").limits({"cpu": "11", "memory": "17Gi"}).obj()
    nodes = (node("a", both).obj(), node("b").obj(), node("c", "bad").obj())
    assert why_not(greedy, *nodes, setup=LIMIT_AWARE) == (
        f"0/3 nodes are available: 1 Insufficient memory limit, 1 {MALFORMED}, "
        "2 Insufficient cpu limit."
    )


@pytest.mark.parametrize(
    ("ratio", "fits"), [(None, False), ("{}", True), ('{"memory": 100}', True), ('{"cpu": 400}', True)]
)
def test_annotation_stands_in_the_place_of_the_default(ratio: str | None, fits: bool) -> None:
    setup = only("LimitAware", limit_ratio={"cpu": "150%"})
    message = why_not(pod(limit="13").obj(), node(ratio=ratio).obj(), setup=setup)
    assert message == ("" if fits else "0/1 nodes are available: 1 Insufficient cpu limit.")


# Which of them is best


def amounts(cpu: int, memory: int) -> dict[str, Quantity]:
    return {"cpu": f"{cpu}m", "memory": memory}


def sized(name: str, cpu: int, memory: int) -> NodeBuilder:
    made = make_node(name).allocatable({**amounts(cpu, memory), "pods": 110})
    return made.annotation(LIMITS, '{"cpu": 100, "memory": 100}')


def wanting(name: str, cpu: int, memory: int) -> PodBuilder:
    return make_pod(name).requests(amounts(cpu, memory))


def raw_scores(made: Pod, *nodes: NodeBuilder, pods: list[Pod]) -> dict[str, int]:
    """As they are before they are brought to 0..100."""
    driver = Driver((LIMIT_AWARE,)).add(*(each.obj() for each in nodes), *pods, made)
    scheduler = driver.scheduler
    profile = scheduler.profiles[0]
    column = scheduler.columns.column(profile, driver.record(made).cls)
    (normalized,) = column._normalized
    return {name: int(normalized.raw[row]) for name, row in scheduler.cluster.nodes.names()}


def ds(made: PodBuilder, on: str) -> Pod:
    return made.on(on).obj()


@pytest.mark.parametrize(
    ("made", "nodes", "there", "expected"),
    [
        (
            wanting("p", 1000, 2000),
            [sized("a", 4000, 10000), sized("b", 6000, 10000)],
            [ds(wanting("x", 2000, 4000), "a"), ds(wanting("y", 1000, 2000), "b")],
            {"a": 32, "b": 63},
        ),
        # (4000 - 7000) * 100 / 4000 = -75 and 40: -35 / 2 is -17, not -18.
        (
            wanting("p", 1000, 2000),
            [sized("a", 4000, 10000), sized("b", 6000, 10000)],
            [ds(wanting("x", 6000, 4000), "a"), ds(wanting("y", 2000, 2000), "b")],
            {"a": -17, "b": 55},
        ),
        # -1 * 100 / 3 is -33, and of that with 0 the half is -16.
        (
            wanting("p", 4, 1000),
            [sized("a", 3, 1000)],
            [],
            {"a": -16},
        ),
        # Who says nothing counts a little.
        (make_pod("p"), [sized("a", 1000, 400 * 2**20)], [], {"a": 70}),
        (make_pod("p"), [sized("a", 1000, 400 * 2**20)], [ds(make_pod("x"), "a")], {"a": 40}),
        (make_pod("p").requests(amounts(0, 0)), [sized("a", 1000, 1000)], [], {"a": 100}),
    ],
)
def test_raw_scores(
    made: PodBuilder, nodes: list[NodeBuilder], there: list[Pod], expected: dict[str, int]
) -> None:
    daemon = made.owned_by("DaemonSet", "d").obj()  # so that no node is left out
    assert raw_scores(daemon, *nodes, pods=there) == expected


def test_scores_are_spread_over_the_whole_range() -> None:
    made = wanting("p", 1000, 2000).owned_by("DaemonSet", "d").obj()
    nodes = [
        sized("a", 4000, 10000).obj(),
        sized("b", 6000, 10000).obj(),
        sized("c", 6000, 10000).obj(),
    ]
    there = [
        ds(wanting("x", 6000, 4000), "a"),
        ds(wanting("y", 1000, 2000), "b"),
        ds(wanting("z", 2000, 2000), "c"),
    ]
    assert scores(made, *nodes, pods=there, setup=LIMIT_AWARE) == {"a": 0, "b": 100, "c": 90}
    alike = [sized("a", 4000, 10000).obj(), sized("b", 4000, 10000).obj()]
    assert scores(made, *alike, setup=LIMIT_AWARE) == {"a": 0, "b": 0}


@pytest.mark.parametrize(
    ("ratio", "weights", "expected"),
    [
        ('{"cpu": 100}', (("cpu", 1), ("memory", 1)), {"n": 50}),  # memory is not limited
        ('{"cpu": 100, "memory": 100}', (("cpu", 1), ("memory", 1)), {"n": 62}),
        ('{"cpu": 100, "memory": 100}', (("cpu", 3), ("memory", 1)), {"n": 56}),
        ('{"cpu": 100, "memory": 100}', (("memory", 1),), {"n": 75}),
        ('{"cpu": 200}', (("cpu", 1), ("memory", 1)), {"n": 75}),
        ('{"cpu": 0}', (("cpu", 1), ("memory", 1)), {"n": 0}),
        ("{}", (("cpu", 1), ("memory", 1)), {"n": 0}),
    ],
)
def test_only_limited_resources_are_scored(
    ratio: str, weights: tuple[tuple[str, int], ...], expected: dict[str, int]
) -> None:
    setup = only("LimitAware", limit_weights=weights)
    driver = Driver((setup,)).add(node(ratio=ratio).obj(), node("other", '{"cpu": 1}').obj())
    made = make_pod("p").requests({"cpu": "4", "memory": "4Gi"}).owned_by("DaemonSet", "d").obj()
    driver.add(made)
    scheduler = driver.scheduler
    column = scheduler.columns.column(scheduler.profiles[0], driver.record(made).cls)
    (normalized,) = column._normalized
    row = scheduler.cluster.nodes.row("n")
    assert row is not None
    assert {"n": int(normalized.raw[row])} == expected


def test_pod_goes_where_limits_add_up_to_less() -> None:
    """The seed's first story: node1 has less asked of it, and more allowed to its pods."""
    ratio = '{"cpu": "200%"}'
    driver = Driver().add(node("node1", ratio).obj(), node("node2", ratio).obj())
    driver.add(used("6", "node1", "2"), used("4", "node1", "2"))
    driver.add(used("3", "node2", "3"), used("2", "node2", "2"))
    assert driver.add(pod("pod5", "1", "4").obj()).binds() == {"pod5": "node2"}


# What changes


def test_annotation_that_comes_later_counts_pods_that_are_there() -> None:
    driver = Driver((LIMIT_AWARE,)).add(node(ratio=None).obj(), used("6"), used("4"))
    assert driver.add(pod("first", limit="4").obj()).binds() == {"first": "n"}
    driver.update(node().obj())
    assert driver.add(pod("second", limit="4").obj()).messages() == {
        "second": "0/1 nodes are available: 1 Insufficient cpu limit."
    }


@pytest.mark.parametrize(
    ("change", "woken"),
    [
        (lambda d: d.delete(used("6")), True),
        (lambda d: d.update(node(ratio='{"cpu": "200%"}').obj()), True),
        (lambda d: d.update(node(ratio=None).obj()), True),
        (lambda d: d.update(node(cpu="16").obj()), True),
        (lambda d: d.add(node("m").obj()), True),
        (lambda d: d.update(node().label("a", "b").obj()), False),
        (lambda d: d.add(used("1")), False),
    ],
)
def test_waiting_pod_is_woken_by_what_can_help(change: object, woken: bool) -> None:
    driver = Driver((LIMIT_AWARE,)).add(node().obj(), used("6"), used("4"))
    waiting = pod(limit="4").obj()
    assert driver.add(waiting).binds() == {}
    assert callable(change)
    change(driver)
    driver.round(1.0)
    assert (driver.binds(30.0) == {"p": "n"} or driver.record(waiting).row >= 0) == woken


def test_malformed_annotation_is_told_on_the_node_once() -> None:
    driver = Driver((LIMIT_AWARE,)).add(node(ratio="bad").obj())
    told = [d for d in driver.round() if isinstance(d, Emit)]
    assert [(str(d.about), d.type, d.reason) for d in told] == [
        ("Node/n", "Warning", "InvalidLimitToAllocatable")
    ]
    assert told[0].message.startswith(f"metadata.annotations[{LIMITS}]: not JSON")
    driver.update(node(ratio="bad").label("a", "b").obj())
    assert driver.round() == []
    driver.update(node().obj())
    assert driver.round() == []
    driver.update(node(ratio='{"cpu": "x"}').obj())
    (again,) = [d for d in driver.round() if isinstance(d, Emit)]
    assert again.message == (
        f'metadata.annotations[{LIMITS}]: cpu: expected a percentage such as "125%" or 125, got "x"'
    )
    driver.delete(node().obj())
    driver.add(node(ratio='{"cpu": "x"}').obj())
    assert len([d for d in driver.round() if isinstance(d, Emit)]) == 1


def test_preemption_frees_capacity_for_limits() -> None:
    driver = Driver((Setup(preempts=True),)).add(node(cpu="20", ratio='{"cpu": 50}').obj())
    low = pod("low", "1", "6").priority(1).on("n").obj()
    small = pod("small", "1", "3").priority(0).on("n").obj()
    driver.add(low, small, pod("high", "1", "5").priority(10).obj())
    assert [d.pod.name for d in driver.round() if isinstance(d, Preempt)] == ["low"]


def test_preemption_does_not_help_where_limits_stay_too_high() -> None:
    driver = Driver((Setup(preempts=True),)).add(node(cpu="20", ratio='{"cpu": 50}').obj())
    kept = pod("kept", "1", "6").priority(100).on("n").obj()
    low = pod("low", "1", "1").priority(1).on("n").obj()
    driver.add(kept, low, pod("high", "1", "5").priority(10).obj())
    decisions = driver.round()
    assert not [d for d in decisions if isinstance(d, Preempt | Bind)]
    assert driver.scheduler.cluster.story("Pod/default/high")[-1].detail == (
        "0/1 nodes are available: 1 Insufficient cpu limit. preemption: 0/1 nodes are available: "
        "1 Insufficient cpu limit."
    )


@pytest.mark.parametrize("count", [64, 128])
def test_a_pod_may_be_seen_before_its_node_where_the_table_is_full(count: int) -> None:
    driver = Driver((LIMIT_AWARE,)).add(*(node(f"n{at}", cpu="1").obj() for at in range(count)))
    driver.add(pod("early").on("later").obj(), pod("big", limit="2").obj())
    message = f"0/{count} nodes are available: {count} Insufficient cpu limit."
    assert driver.messages()["big"].startswith(message)
