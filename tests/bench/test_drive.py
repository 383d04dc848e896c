"""Small runs of every workload: what comes out, and that it comes out the same again."""

import pytest

from holdfast.api.pod import Pod
from holdfast.bench.drive import Drive, PlanCluster
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
from holdfast.scheduler.cluster.decisions import (
    AnnotatePod,
    Bind,
    Decision,
    Nominate,
    ObjectRef,
    Preempt,
    SetPodScheduled,
)
from holdfast.scheduler.cluster.events import BindConfirmed, Deleted, Updated


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
def test_every_measured_pod_is_bound_and_in_a_second_run_to_the_same_node(name: str) -> None:
    plan = plan_of(rows()[name], nodes=20)
    first, second = driven(plan), driven(plan)
    assert len(first.placed) == plan.pods(measured=True) == first.meter.pods
    assert first.decisions["Bind"] >= plan.pods(measured=True)
    assert first.placed == second.placed
    assert first.checksum() == second.checksum()


def test_the_checksum_distinguishes_placements() -> None:
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


def test_a_pod_is_shown_once_with_all_that_was_written_in_a_round() -> None:
    cluster, ref = known_pod()
    why = SetPodScheduled(ref, "Unschedulable", 'because "no"')
    (event,) = cluster.carry_out([why, Nominate(ref, "n1")], measured=True)
    assert isinstance(event, Updated) and isinstance(event.object, Pod)
    assert event.object.status.conditions[0].message == 'because "no"'
    assert event.object.status.nominated_node_name == "n1"


def test_a_bind_is_confirmed_before_the_pod_is_shown_on_its_node() -> None:
    cluster, ref = known_pod()
    annotated = AnnotatePod(ref, {"example.com/a": "1"})
    decisions: list[Decision] = [annotated, Bind(ref, "n1", {"example.com/b": "2"})]
    updated, confirmed = cluster.carry_out(decisions, measured=True)
    assert isinstance(confirmed, BindConfirmed)
    assert isinstance(updated, Updated) and isinstance(updated.object, Pod)
    assert updated.object.spec.node_name == "n1"
    assert updated.object.metadata.annotations == {"example.com/a": "1", "example.com/b": "2"}
    assert cluster.placed == {"p-00000": "n1"}


def test_a_victim_is_shown_with_its_condition_then_deleted() -> None:
    cluster, ref = known_pod()
    cluster.carry_out([Bind(ref, "n1")], measured=True)
    preempt = Preempt(ref, ObjectRef("Pod", "default", "q", "q"), "n1", "preempt")
    deleted, updated = cluster.carry_out([preempt], measured=True)
    assert isinstance(deleted, Deleted)
    assert isinstance(updated, Updated) and isinstance(updated.object, Pod)
    assert updated.object.spec.node_name == "n1"
    assert [c.type for c in updated.object.status.conditions] == ["PodScheduled", "DisruptionTarget"]
    assert updated.object.status.conditions[1].reason == "PreemptionByScheduler"
    assert not cluster.placed


def known_pod() -> tuple[PlanCluster, ObjectRef]:
    maker = PodMaker("p", [templates()["pod"]])
    pod = maker.pending(0)
    cluster = PlanCluster()
    cluster.know_maker(maker, measured=True)
    cluster.know(pod)
    return cluster, ObjectRef("Pod", "default", pod.metadata.name, pod.metadata.uid)
