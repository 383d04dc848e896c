"""Answers that depend on what the round does with other pods: with those that preempt, with those that
are tried later but start before a gang preempts, and with the further members of gangs."""

from typing import Any

from explanation.test_situations import as_they_are, full, in_default
from harness.objects import node, pod, pod_group, queue

Raw = dict[str, Any]
QUEUE = "scheduling.volcano.sh/queue-name"
GROUP = "scheduling.k8s.io/group-name"


def _pending(
    name: str, cpu: str, minute: int, priority: int = 0, queue: str = "", gang: str = ""
) -> Raw:
    metadata = {
        "namespace": "default",
        "uid": name,
        "annotations": {key: value for key, value in ((QUEUE, queue), (GROUP, gang)) if value},
        "creationTimestamp": f"2025-12-31T23:{minute:02d}:00Z",
    }
    return pod(name, cpu, priority=priority, metadata=metadata)


def _gang(
    name: str, needed: int, sizes: str, minute: int, priority: int = 0, queue: str = ""
) -> list[Raw]:
    group = in_default(pod_group(name, needed, **({"queue": queue} if queue else {})))
    group["metadata"]["creationTimestamp"] = f"2025-12-31T23:{minute:02d}:00Z"
    return [
        group,
        *(
            _pending(f"{name}-{at}", cpu, minute, priority, queue, name)
            for at, cpu in enumerate(sizes.split())
        ),
    ]


def test_a_pod_before_it_takes_the_node_where_it_preempts() -> None:
    objects = [
        node("n0", cpu="6"),
        full("low", "1", "n0", priority=0),
        full("high", "2", "n0", priority=5),
        _pending("first", "4", 30, 10),
        *_gang("g", 1, "2 2", 5),
    ]
    report = as_they_are("PodGroup", "g", *objects)
    assert "but default/first is tried before it and takes n0" in report.summary


def test_what_a_pod_before_it_preempts_is_not_advised_to_be_ended_for_it() -> None:
    annotations = {QUEUE: "b"}
    objects = [
        node("n0", cpu="6"),
        queue("a", weight=1),
        queue("b", weight=1, reclaimable=False),
        full("own", "2", "n0", metadata={"namespace": "default", "annotations": {QUEUE: "a"}}),
        full(
            "large",
            "3",
            "n0",
            priority=5,
            metadata={"namespace": "default", "annotations": annotations},
        ),
        full("small", "1", "n0", metadata={"namespace": "default", "annotations": annotations}),
        _pending("first", "4", 30, 10, "b"),
        _pending("z", "3", 26, queue="a"),
    ]
    report = as_they_are("Pod", "z", *objects)
    assert [each.text for each in report.advice if "end pod default/large" in each.text] == []


def test_a_gang_preempts_beside_a_pod_that_is_tried_after_it_and_fits() -> None:
    objects = [
        node("n0", cpu="4"),
        node("n1", cpu="4"),
        full("small", "1", "n1"),
        full("large", "3", "n1"),
        *_gang("g", 2, "3 3", 12, 10),
        *_gang("later", 1, "2", 39, 10),
    ]
    assert "preempt" not in as_they_are("PodGroup", "g", *objects).summary
    assert "will if it is tried" in as_they_are("PodGroup", "g", *objects[:-2]).summary


def test_a_gang_preempts_beside_one_that_preempts_before_it() -> None:
    objects = [
        node("n0", cpu="8"),
        full("a", "3", "n0"),
        full("b", "3", "n0"),
        full("c", "2", "n0"),
        *_gang("g", 3, "2 3 2", 45, 10),
        *_gang("first", 1, "2", 37, 10),
    ]
    assert "preempt" not in as_they_are("PodGroup", "g", *objects).summary
    assert "will if it is tried" in as_they_are("PodGroup", "g", *objects[:-2]).summary


def test_members_that_a_gang_does_not_need_are_tried_after_other_queues() -> None:
    objects = [
        node("n0", cpu="6"),
        queue("a", weight=2),
        queue("b", weight=1),
        full("own", "1", "n0", metadata={"namespace": "default", "annotations": {QUEUE: "a"}}),
        *_gang("g", 1, "2 2", 38, queue="b"),
        *_gang("other", 1, "3", 8, queue="a"),
    ]
    report = as_they_are("Pod", "g-1", *objects)
    assert "but PodGroup default/other is tried before it and takes n0" in report.summary
    assert as_they_are("Pod", "g-0", *objects).summary.startswith("It fits now: n0")


def test_which_members_a_gang_needs_depends_on_those_before_it() -> None:
    objects = [node("n0", cpu="5"), _pending("first", "3", 5), *_gang("g", 1, "3 2", 26)]
    assert as_they_are("Pod", "g-1", *objects).summary.startswith("It fits now: n0")


def test_a_gang_takes_back_its_place_by_preempting_those_that_stay() -> None:
    objects = [
        node("n0", cpu="8"),
        full("low", "3", "n0"),
        _pending("first", "4", 34, 5),
        *_gang("g", 1, "3 3", 43, 5),
    ]
    summary = as_they_are("PodGroup", "g", *objects).summary
    taken = "but default/first is tried before it and takes n0"
    assert f"{taken}; then it preempts default/low on n0." in summary


def test_members_are_placed_where_they_are_nominated() -> None:
    """Of the victim's node, less is left if the smaller members are placed first."""
    objects = [
        node("n0", cpu="6"),
        node("n1", cpu="8"),
        full("a", "2", "n1", priority=5),
        full("b", "2", "n1", priority=5),
        full("c", "1", "n1"),
        full("d", "1", "n0"),
        full("e", "3", "n1"),
        full("f", "2", "n0", priority=5),
        *_gang("g", 3, "1 2 3", 6, 10),
    ]
    assert "it can preempt default/e" in as_they_are("PodGroup", "g", *objects).summary


def test_no_change_is_advised_with_which_the_gang_reclaims_without_the_member() -> None:
    own = {"namespace": "default", "annotations": {QUEUE: "a"}}
    other = {"namespace": "default", "annotations": {QUEUE: "b"}}
    objects = [
        node("n0", cpu="6"),
        node("n1", cpu="4"),
        queue("a", weight=1, capability={"cpu": "4"}),
        queue("b", weight=1),
        queue("c", weight=1),
        full("other-0", "2", "n0", priority=5, metadata=other),
        full("other-1", "1", "n0", priority=5, metadata=other),
        full("other-2", "3", "n0", metadata=other),
        full("own", "2", "n1", metadata=own),
        *_gang("g", 1, "3 1 2 2", 5, queue="a"),
    ]
    advice = as_they_are("Pod", "g-0", *objects).advice
    assert advice
    assert [each.text for each in advice if "reclaims" in each.text] == []


def test_a_gang_starts_with_what_another_one_leaves_of_what_it_preempts() -> None:
    objects = [
        node("n0", cpu="6"),
        full("a", "3", "n0"),
        full("b", "3", "n0"),
        *_gang("g", 1, "1 2", 3),
        *_gang("other", 1, "2", 47, 5),
    ]
    then = "once PodGroup default/other has preempted default/b, it fits n0"
    assert f"None fits now; {then}." in as_they_are("PodGroup", "g", *objects).summary
    assert as_they_are("Pod", "g-0", *objects).summary == f"It does not start now; {then}."
    assert then not in as_they_are("Pod", "g-1", *objects).summary


def test_a_pod_starts_with_what_a_gang_leaves_of_what_it_preempts() -> None:
    objects = [
        node("n0", cpu="6"),
        full("a", "6", "n0"),
        _pending("p", "3", 3),
        *_gang("other", 1, "2", 47, 5),
    ]
    report = as_they_are("Pod", "p", *objects)
    assert report.summary.endswith("Once PodGroup default/other has preempted default/a, it fits n0.")
    assert not report.advice


def test_a_gang_starts_with_what_another_queue_leaves_of_what_it_reclaims() -> None:
    objects = [
        node("n0", cpu="6"),
        queue("a", weight=1),
        queue("b", weight=1),
        queue("c", weight=2),
        full("x", "2", "n0", metadata={"namespace": "default", "annotations": {QUEUE: "a"}}),
        full("y", "4", "n0", metadata={"namespace": "default", "annotations": {QUEUE: "b"}}),
        *_gang("g", 1, "1", 35, queue="b"),
        *_gang("other", 1, "2", 24, 10, queue="c"),
    ]
    then = "once PodGroup default/other has reclaimed default/y, it fits n0"
    assert f"None fits now; {then}." in as_they_are("PodGroup", "g", *objects).summary


def test_the_rest_of_the_gang_that_preempts_comes_first() -> None:
    objects = [
        node("n0", cpu="6"),
        full("a", "6", "n0"),
        _pending("p", "3", 3),
        *_gang("other", 1, "2 2", 47, 5),
    ]
    assert "it fits" not in as_they_are("Pod", "p", *objects).summary


def test_a_pod_preempts_in_its_queue_beside_a_gang_that_preempts_before_it() -> None:
    objects = [
        node("n0", cpu="6"),
        queue("a", weight=2),
        queue("b", weight=1, capability={"cpu": "4"}),
        full("x", "2", "n0", metadata={"namespace": "default", "annotations": {QUEUE: "b"}}),
        *_gang("g", 2, "2 2", 25, 10, queue="b"),
        _pending("p", "4", 31, 10, queue="b"),
    ]
    assert "preempt" not in as_they_are("Pod", "p", *objects).summary
    assert "It can preempt default/x" in as_they_are("Pod", "p", *objects[:4], objects[-1]).summary


def test_a_pod_that_starts_before_and_is_then_reclaimed_is_taken_back() -> None:
    """Once rest-n0 is gone, q starts, and the gang's queue reclaims it."""
    objects = [
        *(node(name, cpu="4") for name in ("n0", "n1")),
        queue("a", weight=2),
        queue("b", weight=1),
        in_default(pod_group("r", 2, queue="b")),
        full("x0", "1", "n1", group="r"),
        *(full(f"rest-{name}", cpu, name) for name, cpu in (("n0", "4"), ("n1", "3"))),
        in_default(pod_group("g", 2, queue="a")),
        pod("g-1", "3", group="g"),
        pod("p", "1"),
        pod("q", "3", preemptionPolicy="Never"),
        pod("g-0", "3", group="g"),
    ]
    queued = {"rest-n0": "a", "rest-n1": "a", "p": "a", "q": "b"}
    for raw in objects:
        if of := queued.get(raw["metadata"]["name"]):
            raw["metadata"]["annotations"] = {QUEUE: of}
    assert as_they_are("PodGroup", "g", *objects).advice == []
