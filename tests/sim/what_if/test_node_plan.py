"""`--plan` finds the smallest number of nodes: compared with asking for every number, one by one."""

from itertools import product
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from harness.objects import reservation
from holdfast.sim.what_if.node_plan import (
    AttemptResult,
    NodePlan,
    NodePlanner,
    PendingCount,
    PendingReason,
)
from holdfast.sim.what_if.node_shapes import ShapeError, read_shapes
from sim.what_if.clusters import ask, budget, cluster, node, pod, workload

SMALL, LARGE = "cpu=2,memory=4Gi", "cpu=5,memory=4Gi"
GPU = "cpu=4,memory=8Gi,nvidia.com/gpu=2"
MOST = 5

APART: dict[str, Any] = {
    "affinity": {
        "podAntiAffinity": {
            "requiredDuringSchedulingIgnoredDuringExecution": [
                {
                    "topologyKey": "kubernetes.io/hostname",
                    "labelSelector": {"matchLabels": {"app": "apart"}},
                }
            ]
        }
    }
}


def _plan(
    objects: list[dict[str, Any]], manifests: list[dict[str, Any]], shapes: list[str]
) -> NodePlan:
    plan = ask(cluster(*objects), manifests=manifests, plan=shapes).plan
    assert plan is not None
    return plan


def _by_trying(
    objects: list[dict[str, Any]], manifests: list[dict[str, Any]], shapes: list[str]
) -> int | None:
    """The smallest total with which nothing is pending, up to MOST of each shape."""
    every = sorted(product(range(MOST + 1), repeat=len(shapes)), key=sum)
    for counts in every:
        nodes = [f"+{count}x{shape}" for shape, count in zip(shapes, counts, strict=True) if count]
        if not ask(cluster(*objects), manifests=manifests, nodes=nodes).pending:
            return sum(counts)
    return None


CASES: dict[str, tuple[list[dict[str, Any]], list[str], list[int] | None]] = {
    "nothing is needed": ([pod("p", "1")], [SMALL], [0]),
    "by cpu": ([workload("w", 8, "1")], [SMALL], [2]),
    "rounded up by what fits on one node": ([workload("w", 4, "1500m")], [SMALL], [2]),
    "one per node": ([workload("apart", 4, "100m", **APART)], [SMALL], [3]),
    "only the large ones": ([workload("w", 2, "4500m")], [SMALL, LARGE], [0, 2]),
    "of each": (
        [workload("w", 6, "1"), workload("g", 2, "1", requests={"nvidia.com/gpu": "2"})],
        [SMALL, GPU],
        [0, 2],
    ),
    "fewer large ones": ([workload("w", 13, "1")], [SMALL, LARGE], [0, 2]),
    "one after another": ([workload("s", 5, "3500m", "StatefulSet")], [LARGE], [4]),
    "not helped": ([pod("p", "64")], [SMALL], None),
}


@pytest.mark.parametrize("case", CASES)
def test_the_smallest_number(case: str) -> None:
    manifests, shapes, wanted = CASES[case]
    plan = _plan([node("n1", "4")], manifests, shapes)
    if wanted is None:
        assert (plan.fits, plan.total, plan.unplaceable) == (False, 0, (1, 0))
        assert plan.unplaceable_reasons
        return
    assert plan.fits and plan.exact
    assert [*plan.nodes.values()] == wanted
    assert plan.total == _by_trying([node("n1", "4")], manifests, shapes)


def test_binding_constraints_are_those_with_one_node_less() -> None:
    plan = _plan([node("n1", "4")], [workload("w", 8, "1")], [SMALL])
    assert plan.binding == {"Insufficient cpu": PendingCount(pods=2)}
    apart = _plan([node("n1", "4")], [workload("apart", 3, "100m", **APART)], [SMALL])
    assert apart.binding == {"node(s) didn't match pod anti-affinity rules": PendingCount(1)}


KINDS: dict[str, tuple[int, int, str]] = {
    "pods": (2, 0, "2 pods"),
    "reservations": (0, 2, "2 reservations"),
    "both": (1, 1, "1 pod and 1 reservation"),
}


@pytest.mark.parametrize("case", KINDS)
def test_pods_and_reservations_are_counted_apart(case: str) -> None:
    """Each needs a node of its own; one node less is one too few for one of them."""
    pods, reservations, text = KINDS[case]
    manifests = [
        *(pod(f"p{i}", "2") for i in range(pods)),
        *(reservation(f"r{i}", "2", "x") for i in range(reservations)),
    ]
    none = _plan([node("n1", "1")], manifests, ["cpu=1,memory=4Gi"])
    assert none.unplaceable == (pods, reservations)
    assert str(none.unplaceable) == text
    assert none.unplaceable_reasons == {"Insufficient cpu": none.unplaceable}
    plan = _plan([node("n1", "1")], manifests, [SMALL])
    one = PendingCount(pods=1) if pods else PendingCount(reservations=1)
    assert (plan.total, plan.binding) == (2, {"Insufficient cpu": one})


def test_a_drain_that_a_budget_slows_down() -> None:
    """Each eviction waits for the replacement of the one before."""
    objects = [node("n1", "16"), workload("web", 4, "3"), budget("web", maxUnavailable=1)]
    plan = ask(cluster(*objects), drains=["n1"], plan=[LARGE]).plan
    assert plan is not None
    assert (plan.total, plan.fits, plan.exact) == (4, True, True)


SPREAD = {
    "maxSkew": 1,
    "topologyKey": "zone",
    "whenUnsatisfiable": "DoNotSchedule",
    "labelSelector": {"matchLabels": {"app": "w"}},
}
REJECTED: dict[str, tuple[dict[str, Any], str, str]] = {
    "a taint": ({}, "cpu=8,memory=8Gi,taint:a=b:NoSchedule", "node(s) had untolerated taint(s)"),
    "a label": (
        {"topologySpreadConstraints": [SPREAD]},
        "cpu=8,memory=8Gi",
        "node(s) didn't match pod topology spread constraints (missing required label)",
    ),
}


@pytest.mark.parametrize("case", REJECTED)
def test_reasons_are_those_of_the_new_nodes(case: str) -> None:
    spec, shape, reason = REJECTED[case]
    full = [node("n1", "1", labels={"zone": "a"})]
    plan = _plan(full, [workload("w", 3, "1", **spec)], [shape])
    assert (plan.total, plan.fits) == (0, False)
    assert plan.unplaceable_reasons == {reason: PendingCount(pods=2)}


def test_numbers_of_equal_pods_are_bisected() -> None:
    plan = _plan([node("n1", "4")], [workload("w", 40, "1500m")], [SMALL])
    assert (plan.total, plan.exact) == (38, True)
    assert plan.attempts < 12
    two = _plan([node("n1", "4")], [workload("w", 8, "1500m"), workload("v", 6, "1")], [LARGE])
    assert two.exact


def test_daemon_pods_take_part_of_new_nodes() -> None:
    objects = [node("n1", "4"), workload("agent", kind="DaemonSet", cpu="1")]
    assert _plan(objects, [workload("w", 5, "1")], [SMALL]).total == 2


def test_pods_that_fit_already_may_take_new_nodes() -> None:
    """The small one is drawn to the emptier new node, and the other one needs a second."""
    plan = _plan([node("n1", "1")], [workload("v", 1, "500m"), workload("w", 1, "2")], [SMALL])
    assert (plan.total, plan.fits) == (2, True)


def test_what_cannot_be_helped_does_not_count() -> None:
    plan = _plan([node("n1", "4")], [workload("w", 6, "1"), pod("huge", "64")], [SMALL])
    assert (plan.total, plan.fits, plan.unplaceable) == (1, False, (1, 0))


pods = st.lists(
    st.tuples(st.integers(1, 3), st.sampled_from(["500m", "1", "1500m", "2", "3"]), st.booleans()),
    min_size=1,
    max_size=3,
)


@settings(max_examples=12, deadline=None)
@given(pods, st.sampled_from([[SMALL], [LARGE], [SMALL, LARGE]]), st.sampled_from(["1", "4"]))
def test_no_smaller_number_suffices(
    kinds: list[tuple[int, str, bool]], shapes: list[str], size: str
) -> None:
    manifests = [
        workload(f"w{i}" if not apart else "apart", count, cpu, **(APART if apart else {}))
        for i, (count, cpu, apart) in enumerate(kinds)
    ]
    manifests = [
        each
        for i, each in enumerate(manifests)
        if each["metadata"]["name"] not in {other["metadata"]["name"] for other in manifests[:i]}
    ]
    plan = _plan([node("n1", size)], manifests, shapes)
    tried = _by_trying([node("n1", size)], manifests, shapes)
    if tried is None:
        assert not plan.fits or plan.total > MOST
    else:
        assert (plan.fits, plan.exact, plan.total) == (True, True, tried)


def test_few_attempts_for_many_nodes() -> None:
    """A model: every node takes ten of a thousand pods."""
    asked = []

    def attempt(counts: tuple[int, ...]) -> AttemptResult:
        asked.append(counts)
        left = max(0, 1000 - 10 * counts[0])
        return AttemptResult(
            PendingCount(left),
            {PendingReason("Insufficient cpu"): left} if left else {},
            {"cpu": left},
            {"cpu": 0},
        )

    plan = NodePlanner(["x"], [{"cpu": 10}], attempt).plan()
    assert (plan.total, plan.exact, plan.fits) == (100, True, True)
    assert len(asked) <= 4, asked


SHAPES = {
    "n1": ["n1"],
    "n1,n2": ["n1", "n2"],
    "cpu=8,memory=32Gi": ["cpu=8,memory=32Gi"],
    "n1,cpu=8,memory=1Gi": ["n1", "cpu=8,memory=1Gi"],
    "cpu=8,memory=1Gi;cpu=2": ["cpu=8,memory=1Gi", "cpu=2"],
    "cpu=8,n1": ["cpu=8", "n1"],
    "cpu=4,memory=8Gi,cpu=16,memory=64Gi": ["cpu=4,memory=8Gi", "cpu=16,memory=64Gi"],
    "cpu=4,taint:a=b:NoSchedule,taint:a=b:NoExecute,cpu=8": [
        "cpu=4,taint:a=b:NoSchedule,taint:a=b:NoExecute",
        "cpu=8",
    ],
}


@pytest.mark.parametrize("text", SHAPES)
def test_shapes_of_one_text(text: str) -> None:
    assert read_shapes(text) == SHAPES[text]


def test_no_shape_is_an_error() -> None:
    with pytest.raises(ShapeError):
        read_shapes(" ; ,")
