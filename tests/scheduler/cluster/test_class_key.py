"""Which pods are of one class."""

from __future__ import annotations

import pytest

from harness.builders import PodBuilder, make_pod
from holdfast.scheduler.cluster.node_table import NodeTable
from holdfast.scheduler.cluster.pod_classes import PodClass, PodClasses, Traits
from holdfast.scheduler.state.cluster import Cluster


def classes(keep: int = 1024) -> PodClasses:
    return PodClasses(NodeTable().slot, keep)


def pod(name: str = "p") -> PodBuilder:
    return make_pod(name).cpu("1").label("app", "web")


def pinned(node: str, name: str = "p") -> PodBuilder:
    field = {"key": "metadata.name", "operator": "In", "values": [node]}
    return pod(name).node_affinity_term(fields=[field])


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (pod("a"), pod("b").uid("other")),
        (pod().label("x", "1").label("y", "2"), pod().label("y", "2").label("x", "1")),
        (pod(), pod().annotation("example.com/note", "hello")),
        (pod(), pod().annotation("scheduling.koordinator.sh/reservation-allocated", "{}")),
        (pod(), pod().annotation("sim.holdfast.io/runs-for", "1s")),
        (pod(), pod().volume("token", projected={})),
        (pod(), pod().created("2027-01-01T00:00:00Z")),
        (pod(), pod().phase("Pending")),
        (pinned("n1"), pinned("n2")),
    ],
)
def test_what_does_not_matter_to_placement_makes_no_class(one: PodBuilder, other: PodBuilder) -> None:
    known = classes()
    assert known.acquire(one.obj()) is known.acquire(other.obj())


@pytest.mark.parametrize(
    "other",
    [
        pod().namespace("other"),
        pod().label("app", "db"),
        pod().cpu("2"),
        pod().limits({"memory": "1Gi"}),
        pod().image("other"),
        pod().container(),
        pod().init_container({"cpu": "2"}),
        pod().init_container({"cpu": "2"}, sidecar=True),
        pod().overhead(cpu="1m"),
        pod().pod_resources({"cpu": "2"}),
        pod().host_port(80),
        pod().port(80),
        pod().spec(hostNetwork=True),
        pod().priority(5),
        pod().preemption_policy("Never"),
        pod().node_selector({"a": "b"}),
        pod().node_affinity_in("a", ["b"]),
        pod().prefers_node(1, "a", "Exists"),
        pod().pod_affinity("zone", {"a": "b"}),
        pod().pod_anti_affinity("zone", {"a": "b"}),
        pod().toleration("a"),
        pod().spread("zone"),
        pod().claim("data"),
        pod().daemon(),
        pod().annotation("scheduling.koordinator.sh/reservation-affinity", "{}"),
        pinned("n1"),
    ],
)
def test_what_matters_to_placement_makes_a_class(other: PodBuilder) -> None:
    known = classes()
    assert known.acquire(pod().obj()) is not known.acquire(other.obj())


def test_the_node_asked_for_makes_a_class() -> None:
    known = classes()
    assert known.acquire(pod().obj(), Traits(wants_node="n1")) is not known.acquire(
        pod().obj(), Traits(wants_node="n2")
    )


def test_a_pinned_class_leaves_the_node_open_and_keeps_the_rest() -> None:
    field = {"key": "metadata.name", "operator": "In", "values": ["n1"]}
    expression = {"key": "a", "operator": "Exists"}
    cls = classes().acquire(pod().node_affinity_term([expression], [field]).obj())
    assert cls.pinned and cls.affinity is not None and cls.affinity.node_affinity is not None
    required = cls.affinity.node_affinity.required_during_scheduling_ignored_during_execution
    assert required is not None
    (term,) = required.node_selector_terms
    assert [e.key for e in term.match_expressions] == ["a"] and not term.match_fields


def test_the_node_that_a_template_names_makes_a_class() -> None:
    known, of_reserve_pod = classes(), Traits(owner_spec_id=0)
    one, other = (known.acquire(pinned(node).obj(), of_reserve_pod) for node in ("n1", "n2"))
    assert one is not other
    assert not one.pinned and one.affinity == pinned("n1").obj().spec.affinity


def test_idle_classes_are_dropped_oldest_first() -> None:
    known = classes(keep=2)
    dropped: list[PodClass] = []
    known.on_dropped.append(dropped.append)
    made = [known.acquire(pod().cpu(f"{i}").obj()) for i in range(1, 5)]
    for cls in made[:3]:
        known.release(cls)
    assert dropped == [made[0]] and len(known) == 3
    assert known.acquire(pod().cpu("2").obj()) is made[1], "an idle class is taken up again"
    known.release(made[3])
    assert dropped == [made[0]]
    assert known.acquire(pod().cpu("1").obj()) is not made[0]


def test_a_counter_made_later_counts_pods_already_placed() -> None:
    from holdfast.scheduler.cluster.events import Added

    cluster = Cluster()
    for i in range(3):
        cluster.feed(Added(pod(f"p{i}").on("n1").obj()), 0.0)
    counter = cluster.topology.counter("web", lambda cls: cls.labels.get("app") == "web")
    none = cluster.topology.counter("db", lambda cls: cls.labels.get("app") == "db")
    assert (counter.rows.sum(), none.rows.sum()) == (3, 0)
    assert cluster.topology.counter("web", lambda cls: False) is counter
