"""What a plugin sees is read-only: to change it is an error of the plugin, and changes nothing."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from holdfast.plugin import (
    FINE,
    Filter,
    Nomination,
    Outcome,
    Plugin,
    PodClass,
    PodRecord,
    Preempt,
    Trial,
)
from holdfast.plugin.testing import Cluster, node, pod, reservation

Raw = dict[str, Any]


def a_pod() -> Raw:
    return pod(
        "p",
        labels={"app": "web"},
        annotations={"example.com/a": "1"},
        tolerations=[{"key": "k", "operator": "Exists"}],
        nodeSelector={"zone": "a"},
    )


def a_node() -> Raw:
    made = node("n", labels={"zone": "a"}, annotations={"example.com/a": "1"}, taints=["k:NoSchedule"])
    made["status"]["images"] = [{"names": ["app:1"], "sizeBytes": 1}]
    return made


class Writer(Plugin):
    """Writes to something when it is asked at a point."""

    name = "Writer"
    reads_annotations = frozenset({"example.com/"})
    reads_fields = ("spec.tolerations",)
    write: Callable[[Any], Any]
    point = ""

    def at(self, point: str, thing: Any) -> None:
        if self.point == point:
            self.write(thing)

    def pre_enqueue(self, pod: PodRecord) -> str:
        self.at("pre_enqueue", pod)
        return ""

    def filter(self, cls: PodClass) -> Filter | None:
        self.at("filter", cls)
        for row in self.handle.nodes.rows():
            self.at("node", self.handle.nodes.node(row))
            for each in self.handle.pods(row):
                self.at("pods", each)
        return None

    def reserve(self, pod: PodRecord, row: int) -> Outcome:
        self.at("reserve", pod)
        return FINE

    def permit(self, pod: PodRecord, row: int) -> Outcome:
        self.at("permit", pod)
        return FINE


def set_attribute(name: str, value: Any = None) -> Callable[[Any], Any]:
    return lambda thing: setattr(thing, name, value)


OF_NODES: dict[str, Callable[[Any], Any]] = {
    "name": set_attribute("name"),
    "labels": lambda node: node.labels.update(zone="b"),
    "annotations": lambda node: node.annotations.clear(),
    "taints": lambda node: node.taints.pop(),
    "taint": lambda node: setattr(node.taints[0], "effect", ""),
    "allocatable": lambda node: node.allocatable.pop("cpu"),
    "images": lambda node: node.images.setdefault("more", 1),
}
OF_CLASSES: dict[str, Callable[[Any], Any]] = {
    "priority": set_attribute("priority", 7),
    "labels": lambda cls: cls.labels.update(app="db"),
    "annotations": lambda cls: cls.annotations.update({"example.com/a": "2"}),
    "one annotation": lambda cls: cls.annotations.__setitem__("example.com/a", "2"),
    "fields": lambda cls: cls.fields["spec.tolerations"][0].clear(),
    "tolerations": lambda cls: cls.tolerations.append(None),
    "toleration": lambda cls: setattr(cls.tolerations[0], "effect", ""),
    "node_selector": lambda cls: cls.node_selector.pop("zone"),
    "images": lambda cls: cls.images.clear(),
    "requests": lambda cls: cls.requests.clear(),
    "placed": lambda cls: cls.placed.update({0: 1}),
}
OF_PODS: dict[str, Callable[[Any], Any]] = {
    "name": set_attribute("name"),
    "row": set_attribute("row", 5),
    "deleted": lambda pod: delattr(pod, "name"),
    "class": set_attribute("cls"),
    "of its class": lambda pod: setattr(pod.cls, "priority", 7),
    "labels": lambda pod: pod.cls.labels.clear(),
}


def cases() -> list[Any]:
    tables = {
        "node": OF_NODES,
        "filter": OF_CLASSES,
        **dict.fromkeys(("pre_enqueue", "reserve", "permit", "pods"), OF_PODS),
    }
    return [
        pytest.param(point, write, id=f"{point}-{what}")
        for point, table in tables.items()
        for what, write in table.items()
    ]


@pytest.mark.parametrize(("point", "write"), cases())
def test_to_write_is_an_error_that_names_the_plugin(point: str, write: Callable[[Any], Any]) -> None:
    cluster = Cluster(Writer, keep_errors=True).add(a_node(), pod("there", on="n"))
    cluster.schedule()
    cluster.plugin().point, cluster.plugin().write = point, write
    cluster.add(a_pod()).schedule()
    assert any("Writer" in error for error in cluster.errors()), cluster.messages()
    cluster.plugin().point = ""
    assert cluster.advance(60) == {"p": "n"}


class Taker(Plugin):
    """Proposes every pod of a node as a victim, in an order of its own."""

    name = "Taker"

    def post_filter(self, pod: PodRecord, trial: Trial) -> Nomination:
        (row,) = self.handle.nodes.rows()
        there = self.handle.pods(row)
        assert all(each == again for each, again in zip(there, self.handle.pods(row), strict=True))
        assert len({*there, *self.handle.pods(row)}) == len(there)

        def by_name(pods: list[PodRecord]) -> list[PodRecord]:
            with pytest.raises(TypeError, match="read-only"):
                pods[0].row = 7
            return sorted(pods, key=lambda each: each.name)

        victims = trial.victims(row, there, spared_first=by_name)
        assert isinstance(victims, list)
        gone = tuple(Preempt(each.ref, pod.ref, "n", "gone") for each in victims)
        return Nomination("n", decisions=gone)


def test_pods_that_a_plugin_was_given_can_be_tried_as_victims() -> None:
    cluster = Cluster(Taker).add(node("n", cpu=2), *(pod(f"v{i}", cpu=1, on="n") for i in range(2)))
    cluster.add(pod("p", cpu=1)).advance(60)
    assert cluster.placed() == {"p": "n", "v0": "n"}


def test_the_scheduler_knows_the_reservation_of_a_victim_that_a_plugin_proposes() -> None:
    class TakesOwners(Plugin):
        name = "TakesOwners"

        def post_filter(self, pod: PodRecord, trial: Trial) -> Nomination:
            there = [each for each in self.handle.pods(0) if not each.cls.is_reserve_pod]
            gone = tuple(Preempt(each.ref, pod.ref, "n", "gone") for each in there)
            return Nomination("n", decisions=gone)

    cluster = Cluster(TakesOwners).add(node("n", cpu=2))
    cluster.add(reservation("held", owners={"app": "web"}, cpu=2, allocateOnce=False)).schedule()
    cluster.add(pod("web", cpu=2, labels={"app": "web"})).schedule()
    decided = cluster.add(pod("p", cpu=2)).scheduler.round(cluster.now)
    (victim,) = (each for each in decided if isinstance(each, Preempt))
    (held,) = (raw for raw in cluster.objects() if raw["kind"] == "Reservation")
    assert (victim.pod.name, victim.reservation) == ("web", held["metadata"]["uid"])
