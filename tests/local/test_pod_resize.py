"""Resizing running pods in place."""

from typing import Any

from harness.embedded_cluster import SteppedCluster
from holdfast.local.store import Key, Raw, StoreChange


def _cluster(cpu: str = "4") -> SteppedCluster:
    it = SteppedCluster()
    it.create_node("n", cpu)
    return it


def _resize(it: SteppedCluster, pod: Key, cpu: str, **more: Any) -> None:
    [container] = it.get(pod)["spec"]["containers"]
    resources = {
        **container["resources"],
        "requests": {**container["resources"]["requests"], "cpu": cpu},
    }
    it.update(pod, spec={"containers": [{**container, "resources": resources, **more}]})


def _container(it: SteppedCluster, pod: Key) -> Raw:
    [found] = it.get(pod)["status"]["containerStatuses"]
    return dict(found)


def _cpu(it: SteppedCluster, pod: Key) -> tuple[str, str]:
    """Allocated and actual."""
    found = _container(it, pod)
    return found["allocatedResources"]["cpu"], found["resources"]["requests"]["cpu"]


def _resize_conditions(raw: Raw) -> list[str]:
    return [each["type"] for each in raw["status"]["conditions"] if "Resize" in each["type"]]


def _messages(it: SteppedCluster) -> list[str]:
    return [each["message"] for each in it.store.scan("", "Event") if "esize" in each["reason"]]


def test_a_pod_that_starts_reports_its_resources() -> None:
    it = _cluster()
    pod = it.create_pod("p", "1")
    assert _container(it, pod)["resources"] == it.get(pod)["spec"]["containers"][0]["resources"]
    assert _cpu(it, pod) == ("1", "1")


def test_a_resize_is_allocated_and_made() -> None:
    it = _cluster()
    pod = it.create_pod("p", "1")
    seen: list[tuple[list[str], str, str]] = []

    def watch(change: StoreChange) -> None:
        if change.key == pod and change.after is not None:
            seen.append((_resize_conditions(change.after), *_cpu(it, pod)))

    it.store.observe(watch)
    _resize(it, pod, "3")
    assert seen == [([], "1", "1"), (["PodResizeInProgress"], "3", "1"), ([], "3", "3")]
    assert _container(it, pod)["restartCount"] == 0
    started, completed = _messages(it)
    summary = '{"containers":[{"name":"main","resources":{"requests":{"cpu":"3"}}}],"generation":2}'
    assert (started, completed) == (
        f"Pod resize started: {summary}",
        f"Pod resize completed: {summary}",
    )


def test_a_resize_that_does_not_fit_is_deferred_until_another_pod_ends() -> None:
    it = _cluster("4")
    pod, other = it.create_pod("p", "1"), it.create_pod("other", "2")
    _resize(it, pod, "3")
    found = it.condition(pod, "PodResizePending")
    message = "Node didn't have enough resource: cpu, requested: 3000, used: 2000, capacity: 4000"
    assert (found["status"], found["reason"], found["message"]) == ("True", "Deferred", message)
    assert _cpu(it, pod) == ("1", "1")
    assert it.reasons().count("ResizeDeferred") == 1
    it.after(3)
    assert it.reasons().count("ResizeDeferred") == 1
    it.delete(other)
    assert (_cpu(it, pod), _resize_conditions(it.get(pod))) == (("3", "3"), [])


def test_another_pod_that_shrinks_makes_room() -> None:
    it = _cluster("4")
    pod, other = it.create_pod("p", "1"), it.create_pod("other", "3")
    _resize(it, pod, "2")
    assert _resize_conditions(it.get(pod)) == ["PodResizePending"]
    _resize(it, other, "2")
    assert (_cpu(it, pod), _cpu(it, other)) == (("2", "2"), ("2", "2"))


def test_a_deferred_resize_that_is_taken_back_leaves_no_condition() -> None:
    it = _cluster("2")
    pod = it.create_pod("p", "1")
    it.create_pod("other", "1")
    _resize(it, pod, "2")
    assert _resize_conditions(it.get(pod)) == ["PodResizePending"]
    _resize(it, pod, "1000m")
    assert (_cpu(it, pod), _resize_conditions(it.get(pod))) == (("1", "1"), [])


def test_the_highest_priority_is_resized_first() -> None:
    it = _cluster("4")
    low, high = it.create_pod("low", "1", priority=1), it.create_pod("high", "1", priority=9)
    other = it.create_pod("other", "2")
    for pod in (low, high):
        _resize(it, pod, "3")
    it.delete(other)
    assert (_cpu(it, low), _cpu(it, high)) == (("1", "1"), ("3", "3"))


def test_a_container_is_restarted_if_its_policy_says_so() -> None:
    it = _cluster()
    pod = it.create_pod("p", "1")
    policy = [{"resourceName": "cpu", "restartPolicy": "RestartContainer"}]
    _resize(it, pod, "2", resizePolicy=policy)
    found = _container(it, pod)
    assert (found["restartCount"], found["lastState"]["terminated"]["exitCode"]) == (1, 137)
    assert "Container main resize requires restart" in [
        each["message"] for each in it.store.scan("", "Event")
    ]


def test_the_scheduler_counts_the_larger_amount_while_a_resize_is_deferred() -> None:
    it = _cluster("4")
    pod, other = it.create_pod("p", "1"), it.create_pod("other", "2")
    _resize(it, pod, "3")
    late = it.create_pod("late", "1")
    assert it.placed(late) == ""
    it.delete(other)
    assert (_cpu(it, pod), it.placed(late)) == (("3", "3"), "n")
    _resize(it, pod, "1")
    last = it.create_pod("last", "2")
    assert it.placed(last) == "n"
