"""Pods in an embedded cluster: bound, run, ended, stopped."""

import pytest

from harness.embedded_cluster import SteppedCluster
from holdfast.api.times import parse_time
from holdfast.local.store import pod_key


@pytest.mark.parametrize("scheduler", ["default-scheduler", "holdfast-scheduler", "koord-scheduler"])
def test_pods_of_its_schedulers_are_bound_and_run(scheduler: str) -> None:
    it = SteppedCluster()
    it.create_node("n")
    pod = it.create_pod("p", schedulerName=scheduler)
    assert (it.placed(pod), it.phase(pod)) == ("n", "Running")
    assert it.condition(pod, "Ready")["status"] == "True"
    (container,) = it.get(pod)["status"]["containerStatuses"]
    assert (container["name"], container["ready"], container["image"]) == ("main", True, "app")
    assert it.reasons() == ["Scheduled"]


def test_pods_of_another_scheduler_are_left_to_it_and_run_once_it_has_bound_them() -> None:
    it = SteppedCluster()
    it.create_node("n")
    pod = it.create_pod("p", schedulerName="mine")
    assert (it.placed(pod), it.phase(pod)) == ("", "Pending")
    it.update(pod, spec={"nodeName": "n"})
    assert it.phase(pod) == "Running"


def test_an_unschedulable_pod_has_a_message_and_is_bound_when_capacity_comes() -> None:
    it = SteppedCluster()
    it.create_node("small", "1")
    pod = it.create_pod("p", "2")
    assert "Insufficient cpu" in it.condition(pod, "PodScheduled")["message"]
    assert it.reasons() == ["FailedScheduling"]
    it.create_node("big")
    it.after(2)
    assert it.placed(pod) == "big"


def test_a_pod_ends_when_its_time_is_over() -> None:
    it = SteppedCluster()
    it.create_node("n")
    pod = it.create_pod("p", annotations={"sim.holdfast.io/runs-for": "5s"})
    late = it.create_pod("late", activeDeadlineSeconds=3)
    it.after(4)
    assert (it.phase(pod), it.phase(late)) == ("Running", "Failed")
    assert it.get(late)["status"]["reason"] == "DeadlineExceeded"
    it.after(1)
    assert it.phase(pod) == "Succeeded"
    state = it.get(pod)["status"]["containerStatuses"][0]["state"]
    assert state["terminated"]["reason"] == "Completed"


def test_a_pod_ends_by_the_start_time_it_reports() -> None:
    """Whoever adds its run time to its startTime, which has whole seconds, must not find it late."""
    it = SteppedCluster()
    it.create_node("n")
    it.clock.t += 0.75
    pod = it.create_pod("p", annotations={"sim.holdfast.io/runs-for": "5s"})
    start = parse_time(it.get(pod)["status"]["startTime"])
    assert start == it.clock.t - 0.75
    it.clock.t = start + 4.9
    it.settle()
    assert it.phase(pod) == "Running"
    it.clock.t = start + 5
    it.settle()
    assert it.phase(pod) == "Succeeded"


def test_a_plan_that_counts_on_the_end_of_a_pod_stays_certain() -> None:
    it = SteppedCluster()
    it.create_node("n")
    it.clock.t += 0.75
    run_time = {"sim.holdfast.io/runs-for": "60s", "holdfast.io/run-estimate": "60s"}
    it.create_pod("p", "3", annotations=run_time)
    start = it.clock.stamp(120)
    template = {"spec": {"containers": [{"name": "c", "resources": {"requests": {"cpu": "4"}}}]}}
    it.create(
        {
            "apiVersion": "scheduling.koordinator.sh/v1alpha1",
            "kind": "Reservation",
            "metadata": {"name": "r", "annotations": {"holdfast.io/starts-at": start}},
            "spec": {
                "template": template,
                "owners": [{"labelSelector": {"matchLabels": {"app": "a"}}}],
                "ttl": "1h",
            },
        }
    )
    for _ in range(250):
        it.clock.t += 0.25
        it.settle()
    assert "Planned" in it.reasons()
    assert "NotCertain" not in it.reasons()


def _ask_to_stop(it: SteppedCluster, name: str, grace: int = 30) -> None:
    stopping = {"deletionTimestamp": it.clock.stamp(grace), "deletionGracePeriodSeconds": grace}
    it.update(pod_key("default", name), metadata=stopping)


@pytest.mark.parametrize(
    ("stops_in", "grace", "gone_after"), [("0s", 30, 0), ("4s", 30, 4), ("9s", 5, 5)]
)
def test_a_terminating_pod_is_gone_when_it_has_stopped(
    stops_in: str, grace: int, gone_after: int
) -> None:
    it = SteppedCluster()
    it.create_node("n")
    pod = it.create_pod("p", annotations={"sim.holdfast.io/stops-in": stops_in})
    _ask_to_stop(it, "p", grace)
    if gone_after:
        it.after(gone_after - 1)
        assert pod in it.store
        it.after(1)
    assert pod not in it.store


def test_what_a_pod_held_is_free_when_it_is_gone() -> None:
    it = SteppedCluster()
    it.create_node("n", "1")
    it.create_pod("first", annotations={"sim.holdfast.io/stops-in": "5s"})
    second = it.create_pod("second")
    _ask_to_stop(it, "first")
    assert it.placed(second) == ""
    it.after(6)
    assert it.placed(second) == "n"


def test_finalizers_keep_a_pod_that_has_stopped() -> None:
    it = SteppedCluster()
    it.create_node("n", "1")
    pod = it.create_pod("p", finalizers=["example.com/wait"])
    _ask_to_stop(it, "p")
    assert (it.phase(pod), it.get(pod)["metadata"]["deletionGracePeriodSeconds"]) == ("Failed", 0)
    other = it.create_pod("other")
    it.after(2)
    assert it.placed(other) == "n"
    it.update(pod, metadata={"finalizers": []})
    assert pod not in it.store


def test_a_more_important_pod_takes_the_place_of_another() -> None:
    it = SteppedCluster()
    it.create_node("n", "1")
    low = it.create_pod("low", priority=0)
    high = it.create_pod("high", priority=10)
    it.after(2)
    assert (low in it.store, it.placed(high)) == (False, "n")
    assert "Preempted" in it.reasons()


def test_the_same_name_again_is_another_pod() -> None:
    it = SteppedCluster()
    it.create_node("n")
    first = it.get(it.create_pod("p"))["metadata"]["uid"]
    it.delete(pod_key("default", "p"))
    again = it.create_pod("p", annotations={"sim.holdfast.io/runs-for": "5s"})
    assert it.get(again)["metadata"]["uid"] != first
    it.after(5)
    assert it.phase(again) == "Succeeded"
