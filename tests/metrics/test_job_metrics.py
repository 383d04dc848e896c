"""What is counted about jobs, queues and holds."""

from harness.objects import Raw, gang, in_queue, node, pod, pod_group, queue
from harness.scenarios import actions
from holdfast.local.executor import DecisionExecutor
from holdfast.local.setup import SchedulerFactory
from holdfast.metrics import SchedulingMetrics
from holdfast.sim.simulated_cluster import SimulatedCluster


def test_figures_of_jobs_queues_and_holds() -> None:
    config = actions(starvingJobTimeThreshold=0, reservedNodePercent=100)
    world = SimulatedCluster(SchedulerFactory.of(config), 0)
    metrics = SchedulingMetrics(world.scheduler)
    executor = DecisionExecutor(world)
    blocker = pod("blocker", 1, nodeName="n2", schedulerName="default-scheduler")
    small = [pod("p", 1, schedulerName="default-scheduler", priority=0)]
    given: list[Raw] = [node("n1", 2), node("n2", 2), queue("a"), blocker, *small]
    given += [pod_group("g", 2, queue="a"), *gang("g", 2, 2, schedulerName="default-scheduler")]
    given += [pod_group("h", 1), *gang("h", 1, 0, schedulerName="default-scheduler")]
    for raw in given:
        raw["metadata"]["namespace"] = "default" if raw["kind"] in ("Pod", "PodGroup") else ""
        raw.setdefault("status", {"phase": "Pending"} if raw["kind"] == "Pod" else {})
        world.objects.create(raw)
    for _ in range(6):
        world.settle()
        decisions = world.scheduler.round(world.clock.epoch())
        metrics.round_done(0.001, decisions)
        for decision in decisions:
            executor.carry_out(decision)
    text = metrics.text().decode()
    assert 'holdfast_job_events_total{event="Ready"} 1.0' in text
    assert "holdfast_job_wait_seconds_count 1.0" in text
    assert 'holdfast_job_events_total{event="Starving"} 1.0' in text
    assert 'holdfast_jobs{state="waiting"} 1.0' in text
    assert 'holdfast_held_capacity{resource="cpu"} 4.0' in text
    assert 'holdfast_holds{state="waiting"} 2.0' in text
    assert "holdfast_backfilled_pods 0.0" in text


def test_the_share_of_a_queue_is_counted_of_the_resource_it_has_most_of() -> None:
    world = SimulatedCluster(SchedulerFactory.of(actions()), 0)
    metrics = SchedulingMetrics(world.scheduler)
    world.objects.create(node("n1", 4))
    for name, priority in (("a", 7), ("b", 0)):
        raw = queue(name, priority=priority, deserved={"cpu": "2"})
        raw["metadata"]["namespace"] = ""
        world.objects.create(raw)
        for i in range(3):
            one = pod(f"{name}-{i}", 1, annotations=in_queue(name), schedulerName="default-scheduler")
            one["metadata"]["namespace"] = "default"
            world.objects.create(one | {"status": {"phase": "Pending"}})
    world.settle()
    world.scheduler.round(world.clock.epoch())
    text = metrics.text().decode()
    assert 'holdfast_queue_share{queue="a"} 1.0' in text
    assert 'holdfast_queue_share{queue="b"} 1.0' in text
