"""Small runs of every workload: what comes out, and that it comes out the same again."""

import pytest

from holdfast.bench.drive import Drive
from holdfast.bench.measure import measure
from holdfast.bench.plan import (
    BenchPlan,
    Churning,
    PlannedObjects,
    PodMaker,
    Pods,
    Wait,
    make_object,
    plan_of,
)
from holdfast.bench.workload import rows, templates


def driven(plan: BenchPlan, batch: int = 10) -> Drive:
    drive = Drive(plan, batch)
    drive.run()
    return drive


def small(*extra: Churning, pods: int = 40) -> BenchPlan:
    nodes = PlannedObjects([make_object(templates()["node"], "n", number) for number in range(4)])
    return BenchPlan(
        "small", [nodes, *extra, Pods(PodMaker("p", [templates()["pod"]]), pods, True), Wait()], 10.0
    )


@pytest.mark.parametrize("name", list(rows()))
def test_every_measured_pod_is_bound(name: str) -> None:
    plan = plan_of(rows()[name], nodes=20)
    drive = driven(plan)
    assert len(drive.placed) == plan.pods(measured=True) == drive.meter.pods
    assert drive.decisions["Bind"] >= plan.pods(measured=True)


@pytest.mark.parametrize("name", list(rows()))
def test_two_runs_place_every_pod_alike(name: str) -> None:
    plan = plan_of(rows()[name], nodes=20)
    assert driven(plan).placed == driven(plan).placed
    assert driven(plan).checksum() == driven(plan).checksum()


def test_the_checksum_tells_placements_apart() -> None:
    first, second = driven(small()), driven(small())
    second.placed["p-00000"] = "elsewhere"
    assert first.checksum() != second.checksum()


@pytest.mark.parametrize("batch", [1, 7, 100])
def test_plain_pods_go_to_the_same_nodes_however_they_are_batched(batch: int) -> None:
    assert driven(small(), batch).checksum() == driven(small()).checksum()


def test_the_scheduler_ends_up_knowing_what_was_bound() -> None:
    drive = driven(small())
    cluster = drive.scheduler.cluster
    assert {pod.name: cluster.nodes.name(pod.row) for pod in cluster.pods.values()} == drive.placed
    assert len(drive.scheduler.queue) == 0


@pytest.mark.parametrize(("seconds", "pods"), [(1.0, 0), (0.0, 10)], ids=["by time", "by pods"])
def test_churn_creates_pods_that_stay_without_a_node(seconds: float, pods: int) -> None:
    drive = driven(small(Churning("c", [templates()["oversized-pod"]], False, seconds, pods)))
    assert len(drive.placed) == 40
    assert len(drive.scheduler.queue) == 4
    assert drive.decisions["SetPodScheduled"] >= 4


def test_recreating_leaves_one_object_at_a_time() -> None:
    churn = Churning("c", [templates()["full-node"], templates()["service"]], True, 1.0, 0)
    three = driven(small(churn, pods=30)).scheduler.cluster
    four = driven(small(churn, pods=40)).scheduler.cluster
    assert (three.nodes.count, len(three.objects["Service"])) == (5, 1)
    assert (four.nodes.count, len(four.objects["Service"])) == (4, 0)


def test_pods_that_fit_nowhere_are_left_out_of_the_bound() -> None:
    drive = driven(small(pods=200))
    assert len(drive.placed) == 160
    assert drive.decisions["SetPodScheduled"] >= 40


def test_a_limit_cuts_measured_pods_only() -> None:
    drive = Drive(plan_of(rows()["SchedulingBasic"], nodes=20), 1, limit=3)
    drive.run()
    assert len(drive.placed) == 3
    assert len(drive.scheduler.cluster.pods) == 3 + 4


def test_a_row_has_its_figures() -> None:
    result = measure(small(), batch=10, repeat=2)
    assert (result.workload, result.nodes, result.init_pods, result.measured_pods) == (
        "small",
        4,
        0,
        40,
    )
    assert (result.bound, result.batch) == (40, 10)
    assert len(result.pods_per_second.runs) == 2
    assert result.pods_per_second.best >= result.pods_per_second.mean > 0
    assert result.latency.p99 >= result.latency.p50 > 0
    assert result.peak_memory_mb > 1
    assert result.cpu_seconds_per_1000_pods > 0
