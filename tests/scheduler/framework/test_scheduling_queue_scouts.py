"""Of a woken group one pod goes ahead, and the next follows only if that helped."""

from harness.builders import make_pod
from holdfast.scheduler.cluster.decisions import ObjectRef
from holdfast.scheduler.cluster.events import Change
from holdfast.scheduler.cluster.pod_classes import PodClasses
from holdfast.scheduler.cluster.records import PodRecord
from holdfast.scheduler.cluster.slots import Slots
from holdfast.scheduler.framework.scheduling_queue import Group, SchedulingQueue

KEY = (0, 0)


def waiting(*names: str) -> tuple[SchedulingQueue, dict[str, PodRecord], Group]:
    """Pods of one class that found no node a while ago."""
    queue = SchedulingQueue(lambda pod: (pod.name,))
    classes = PodClasses(Slots().of)
    pods = {}
    for name in names:
        cls = classes.acquire(make_pod("any").obj())
        pods[name] = PodRecord(ObjectRef("Pod", "d", name, name), cls, "s", 0.0)
        queue.reject(pods[name], KEY, Change.ANY, 0.0)
    (group,) = queue.groups()
    return queue, pods, group


def tried(queue: SchedulingQueue, lucky: int) -> list[str]:
    """The pods tried in a round in which the first `lucky` find a node."""
    names: list[str] = []
    while (pod := queue.pop(100.0)) is not None:
        names.append(pod.name)
        if len(names) <= lucky:
            queue.placed(pod, 100.0)
        else:
            queue.reject(pod, KEY, Change.ANY, 100.0)
    return names


def test_the_first_without_luck_ends_it() -> None:
    for lucky, expected in ((0, ["a"]), (1, ["a", "b"]), (3, ["a", "b", "c"])):
        queue, _, group = waiting("c", "a", "b")
        queue.wake(group, 100.0)
        assert tried(queue, lucky) == expected


def test_a_scout_that_is_deleted_is_replaced() -> None:
    queue, pods, group = waiting("a", "b")
    queue.wake(group, 100.0)
    queue.forget(pods["a"])
    assert tried(queue, 0) == ["b"]


def test_a_scout_that_changes_is_replaced() -> None:
    queue, pods, group = waiting("a", "b")
    queue.wake(group, 100.0)
    queue.changed(pods["a"], 100.0)
    assert tried(queue, 2) == ["a", "b"]


def test_a_refusal_of_its_own_lets_the_others_try_once_each() -> None:
    queue, _, group = waiting("a", "b", "c")
    queue.wake(group, 100.0)
    names = []
    while (pod := queue.pop(100.0)) is not None:
        names.append(pod.name)
        queue.reject(pod, KEY, Change.ANY, 100.0, next_scout=True)
    assert names == ["a", "b", "c"]


def test_waking_twice_sends_one_scout() -> None:
    queue, _, group = waiting("a", "b")
    queue.wake(group, 100.0)
    queue.wake(group, 100.0)
    assert tried(queue, 0) == ["a"]


def test_those_behind_an_unlucky_scout_are_named() -> None:
    queue, _, group = waiting("a", "b")
    queue.wake(group, 100.0)
    scout = queue.pop(100.0)
    assert scout is not None
    behind = queue.reject(scout, KEY, Change.ANY, 100.0)
    assert sorted(pod.name for pod in behind) == ["a", "b"]


def test_a_pod_with_a_nominated_node_goes_first() -> None:
    """The others of its class have to leave that node to it, and so find none themselves."""
    queue, pods, group = waiting("a", "b", "c")
    queue.forget(pods["c"])
    pods["c"].nominated = "n"
    queue.reject(pods["c"], KEY, Change.ANY, 0.0)
    queue.wake(group, 100.0)
    assert tried(queue, 1) == ["c", "a"]
