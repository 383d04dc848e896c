"""Objects come, change and go in every order; the state follows."""

from __future__ import annotations

import pytest

from harness.builders import NodeBuilder, PodBuilder, make_node, make_pod
from holdfast.api.errors import InvalidObject
from holdfast.api.meta import Object
from holdfast.scheduler.cluster.base import Chronicle
from holdfast.scheduler.cluster.decisions import Emit, SetPodScheduled
from holdfast.scheduler.cluster.events import (
    Added,
    BindConfirmed,
    BindRefused,
    Change,
    Deleted,
    Malformed,
    Updated,
)
from holdfast.scheduler.cluster.records import Phase
from holdfast.scheduler.cluster.slots import CPU, PODS
from holdfast.scheduler.state.cluster import Cluster
from holdfast.scheduler.state.recount import oversold, validate_state


def node(name: str = "n1") -> NodeBuilder:
    return make_node(name).allocatable(cpu="4", memory="8Gi")


def pod(name: str = "p1") -> PodBuilder:
    return make_pod(name).cpu("1")


class Told(Cluster):
    """A cluster that checks itself after all it is told."""

    def add(self, *objects: Object) -> Told:
        for obj in objects:
            self.feed(Added(obj), 0.0)
        return self._checked()

    def update(self, obj: Object) -> Told:
        self.feed(Updated(obj), 1.0)
        return self._checked()

    def delete(self, obj: Object) -> Told:
        self.feed(Deleted(obj), 2.0)
        return self._checked()

    def claimed(self, name: str, slot: int = CPU) -> int:
        row = self.nodes.row(name)
        return -1 if row is None else int(self.nodes.claimed[slot, row])

    def _checked(self) -> Told:
        assert validate_state(self) == []
        return self


def test_pods_claim_their_requests_and_a_place() -> None:
    cluster = Told().add(node().obj(), pod("a").on("n1").obj(), pod("b").on("n1").obj())
    assert (cluster.claimed("n1"), cluster.claimed("n1", PODS)) == (2000, 2)


def test_a_pod_takes_one_place_whatever_it_says() -> None:
    cluster = Told().add(node().obj(), pod().requests({"pods": 5}).on("n1").obj())
    assert cluster.claimed("n1", PODS) == 1


def test_a_pod_may_be_seen_before_its_node() -> None:
    cluster = Told().add(pod().on("n1").obj())
    assert (cluster.nodes.count, cluster.claimed("n1")) == (0, 1000)
    cluster.add(node().obj())
    assert (cluster.nodes.count, cluster.claimed("n1")) == (1, 1000)


def test_a_node_may_go_before_its_pods() -> None:
    cluster = Told().add(node().obj(), pod().on("n1").obj())
    cluster.delete(node().obj())
    assert (cluster.nodes.count, cluster.claimed("n1")) == (0, 1000)
    cluster.delete(pod().obj())
    assert cluster.nodes.row("n1") is None


def test_a_row_is_given_to_the_next_node() -> None:
    cluster = Told().add(node("n1").obj(), node("n2").obj())
    cluster.delete(node("n1").obj())
    cluster.add(node("n3").obj())
    assert dict(cluster.nodes.names()) == {"n2": 1, "n3": 0}


def test_a_node_of_the_same_name_takes_over_pods_and_counts_as_new() -> None:
    cluster = Told().add(node().uid("one").obj(), pod().on("n1").obj())
    cluster.take_changes()
    cluster.update(node().uid("two").obj())
    assert cluster.claimed("n1") == 1000
    assert cluster.take_changes() & Change.NODE_ADDED


def test_allocatable_may_shrink_below_what_is_used() -> None:
    cluster = Told().add(node().obj(), pod("a").on("n1").obj(), pod("b").on("n1").obj())
    assert oversold(cluster) == []
    cluster.update(make_node("n1").allocatable(cpu="1500m").obj())
    assert oversold(cluster) == ["Node/n1: cpu: 2000 claimed of 1500"]


def test_a_label_moves_a_node_between_domains() -> None:
    cluster = Told().add(node().zone("a").obj(), node("n2").zone("b").obj())
    cluster.add(pod("x").on("n1").obj(), pod("y").on("n2").obj(), pod("z").on("n1").obj())
    zones = cluster.nodes.labels.column("topology.kubernetes.io/zone")
    counter = cluster.topology.counter("all", lambda cls: True)
    assert dict(zip(zones.values, counter.domains(zones), strict=True)) == {"a": 2, "b": 1}
    cluster.update(node().zone("c").obj())
    assert dict(zip(zones.values, counter.domains(zones), strict=True)) == {"": 0, "b": 1, "c": 2}
    cluster.delete(node("n2").obj())
    assert dict(zip(zones.values, counter.domains(zones), strict=True)) == {"": 0, "c": 2}


def test_a_pod_recreated_under_its_name_replaces_the_one_before() -> None:
    cluster = Told().add(node().obj(), pod().uid("one").on("n1").obj())
    cluster.add(pod().uid("two").obj())
    assert cluster.claimed("n1") == 0
    found = cluster.pod("default", "p1")
    assert found is not None and found.uid == "two"
    cluster.delete(pod().uid("one").obj())
    assert cluster.pod("default", "p1") is found


@pytest.mark.parametrize("phase", ["Succeeded", "Failed"])
def test_a_pod_that_ended_gives_up_its_capacity(phase: str) -> None:
    cluster = Told().add(node().obj(), pod().on("n1").obj())
    cluster.update(pod().on("n1").phase(phase).obj())
    assert cluster.claimed("n1") == 0 and not cluster.pods


def test_a_pod_ended_before_it_was_seen_is_not_known() -> None:
    assert not Told().add(pod().on("n1").phase("Succeeded").obj()).pods


def test_a_resized_pod_claims_what_is_in_effect() -> None:
    statuses = [{"name": "c", "resources": {"requests": {"cpu": "3"}}}]
    cluster = Told().add(node().obj(), pod().on("n1").obj())
    cluster.update(pod().on("n1").status(containerStatuses=statuses).obj())
    assert cluster.claimed("n1") == 3000


def test_pods_resized_alike_may_still_differ() -> None:
    """An infeasible resize does not count what the spec asks for."""
    statuses = [{"name": "c", "resources": {"requests": {"cpu": "1"}}}]
    wants = make_pod("wants").cpu("3").on("n1").status(containerStatuses=statuses)
    cannot = make_pod("cannot").cpu("3").on("n2").status(containerStatuses=statuses)
    cannot.condition("PodResizePending", "True", "Infeasible")
    cluster = Told().add(wants.obj(), cannot.obj())
    assert (cluster.claimed("n1"), cluster.claimed("n2")) == (3000, 1000)


def test_a_node_says_capacity_where_allocatable_is_missing() -> None:
    bare = make_node("n1")
    bare.status(allocatable={}, capacity={"cpu": "2", "pods": 5})
    cluster = Told().add(bare.obj())
    assert cluster.nodes.allocatable[CPU, 0] == 2000


@pytest.mark.parametrize(
    ("change", "kind"),
    [
        (node().allocatable(cpu="5"), Change.NODE_ALLOCATABLE),
        (node().label("a", "b"), Change.NODE_LABELS),
        (node().taint("a"), Change.NODE_TAINTS),
        (node().unschedulable(), Change.NODE_TAINTS),
        (node().image("i"), Change.NODE_OTHER),
        (node().annotation("a", "b"), Change.NODE_OTHER),
        (node().uid("other"), Change.NODE_REMOVED | Change.NODE_ADDED),
        (node().condition("Ready", "True"), Change.NONE),
        (node(), Change.NONE),
    ],
)
def test_only_what_scheduling_sees_of_a_node_is_a_change(change: NodeBuilder, kind: int) -> None:
    cluster = Told().add(node().obj())
    cluster.take_changes()
    cluster.update(change.obj())
    assert cluster.take_changes() == kind


def test_growing_past_the_first_capacity_keeps_everything() -> None:
    cluster = Told()
    zones = cluster.nodes.labels.column("topology.kubernetes.io/zone")
    counter = cluster.topology.counter("all", lambda cls: True)
    counter.domains(zones)
    for i in range(200):
        cluster.feed(Added(make_node(f"n{i}").zone(f"z{i % 7}").image("i", i).obj()), 0.0)
        cluster.feed(Added(pod(f"p{i}").host_port(80).on(f"n{i}").obj()), 0.0)
    assert validate_state(cluster) == []
    assert counter.domains(zones).sum() == 200


def test_more_resources_than_the_matrices_began_with() -> None:
    cluster = Told().add(node().allocatable({f"example.com/r{i}": i for i in range(1, 41)}).obj())
    cluster.add(pod().requests({f"example.com/r{i}": i for i in range(1, 41)}).on("n1").obj())
    row, slot = cluster.nodes.row("n1"), cluster.nodes.slot("example.com/r40")
    assert cluster.nodes.claimed[slot, row] == 40


# Binds


def test_an_assumed_pod_claims_until_its_bind_is_refused() -> None:
    cluster = Told().add(node().obj(), pod().obj())
    record = cluster.pods["uid-p1"]
    cluster.assume(record, 0)
    assert (cluster.claimed("n1"), record.phase.value) == (1000, "assumed")
    cluster.feed(BindRefused("uid-p1", "conflict"), 1.0)
    assert (cluster.claimed("n1"), record.phase.value) == (0, "pending")
    cluster._checked()


@pytest.mark.parametrize("answer", [BindConfirmed("uid-p1"), Updated(pod().on("n1").obj())])
def test_a_bind_is_confirmed_by_the_answer_or_by_the_pod(answer: BindConfirmed | Updated) -> None:
    cluster = Told().add(node().obj(), pod().obj())
    record = cluster.pods["uid-p1"]
    cluster.assume(record, 0)
    cluster.feed(answer, 1.0)
    assert record.phase is Phase.ASSIGNED
    cluster.feed(BindRefused("uid-p1", "late"), 2.0)
    assert record.phase is Phase.ASSIGNED and cluster.claimed("n1") == 1000


def test_a_pod_bound_elsewhere_is_where_it_is() -> None:
    cluster = Told().add(node().obj(), node("n2").obj(), pod().obj())
    cluster.assume(cluster.pods["uid-p1"], 0)
    cluster.update(pod().on("n2").obj())
    assert (cluster.claimed("n1"), cluster.claimed("n2")) == (0, 1000)


def test_answers_about_unknown_pods_are_of_no_consequence() -> None:
    cluster = Told()
    cluster.feed(BindConfirmed("nobody"), 0.0)
    cluster.feed(BindRefused("nobody", "x"), 0.0)
    assert not cluster.has_changes()


# Objects that make no sense


def reports(cluster: Cluster) -> list[tuple[str, str]]:
    return [
        (report.reason, report.message)
        for report in cluster.take_reports()
        if isinstance(report, SetPodScheduled | Emit)
    ]


def test_a_pod_that_makes_no_sense_is_reported_and_left_out() -> None:
    cluster = Told().add(node().obj(), make_pod("p1").cpu("1K").obj(), pod("fine").on("n1").obj())
    assert list(cluster.pods) == ["uid-fine"]
    (reason, message), (event, same) = reports(cluster)
    assert (reason, event, message) == ("SchedulerError", "FailedScheduling", same)
    assert message.startswith("spec.containers[0].resources.requests[cpu]: ")


def test_a_node_that_makes_no_sense_is_reported_and_takes_no_pods() -> None:
    cluster = Told().add(node().obj(), pod().on("n1").obj())
    cluster.update(make_node("n1").allocatable(cpu="lots").obj())
    assert (cluster.nodes.count, cluster.claimed("n1")) == (0, 1000)
    ((reason, message),) = reports(cluster)
    assert reason == "InvalidNode" and message.startswith("status.allocatable[cpu]: ")
    cluster.update(node().obj())
    assert cluster.nodes.count == 1


def test_what_does_not_decode_is_reported() -> None:
    cluster = Told().add(node().obj(), pod("a").obj(), pod("b").on("n1").obj())
    for name in ("a", "b"):
        error = InvalidObject(f"Pod/default/{name}", "spec", "expected a map")
        cluster.feed(Malformed("Pod", "default", name, f"uid-{name}", error), 1.0)
    assert list(cluster.pods) == ["uid-b"], "a pod on a node keeps its room"
    assert reports(cluster)[0] == ("SchedulerError", "spec: expected a map")
    error = InvalidObject("Node/n1", "", "not an object")
    cluster.feed(Malformed("Node", "", "n1", "uid-n1", error), 1.0)
    assert cluster.nodes.count == 0
    assert reports(cluster) == [("InvalidNode", "not an object")]
    cluster._checked()


def test_a_pod_on_a_node_keeps_its_capacity_when_it_stops_making_sense() -> None:
    cluster = Told().add(node().obj(), pod().on("n1").obj())
    cluster.update(make_pod("p1").cpu("1K").on("n1").obj())
    assert cluster.claimed("n1") == 1000


def test_the_story_of_an_object_is_told_in_order() -> None:
    cluster = Told().add(node().obj(), pod().obj(), pod("other").obj())
    cluster.assume(cluster.pods["uid-p1"], 0)
    cluster.feed(BindRefused("uid-p1", "conflict"), 1.5)
    cluster.update(pod().label("a", "b").obj())
    cluster.delete(pod().obj())
    told = [(line.time, line.what, line.detail) for line in cluster.story("Pod/default/p1")]
    assert told == [
        (0.0, "added", ""),
        (1.5, "bind refused", "conflict"),
        (1.0, "changed", ""),
        (2.0, "deleted", ""),
    ]
    assert [line.what for line in cluster.story("Node/n1")] == ["added"]
    assert str(cluster.story("Pod/default/p1")[1]) == "     1.500  bind refused: conflict"


def test_the_story_is_bounded_in_lines_and_in_what_they_say() -> None:
    chronicle = Chronicle()
    for number in range(100_000):
        chronicle.note(float(number), "Pod/default/p", "told", "x" * (number % 2 * 10_000))
    told = chronicle.story("Pod/default/p")
    assert told[-1].time == 99_999.0
    assert sum(200 + len(line.detail) for line in told) < 8 * 1024**2
