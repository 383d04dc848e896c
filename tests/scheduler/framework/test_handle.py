"""What a plugin reads of the cluster by its handle."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from harness.builders import make_node, make_pod
from holdfast.api.affinity import NodeSelectorRequirement, NodeSelectorTerm
from holdfast.scheduler.cluster.decisions import Emit
from holdfast.scheduler.cluster.events import Added, Deleted, Updated
from holdfast.scheduler.cluster.node_table import NodeInfo
from holdfast.scheduler.cluster.view import All, One, Some
from holdfast.scheduler.framework.handle import UNREADABLE, Handle
from holdfast.scheduler.state.cluster import Cluster

CARBON = "example.com/carbon"


class Stage:
    def __init__(self, *nodes: str) -> None:
        self.cluster = Cluster()
        self.handle = Handle(self.cluster, "Mine", "default-scheduler")
        for name in nodes:
            self.add(node(name))

    def add(self, *made: Any) -> Stage:
        for each in made:
            self.cluster.feed(Added(each.obj()), 0.0)
        return self

    def update(self, made: Any) -> Stage:
        self.cluster.feed(Updated(made.obj()), 0.0)
        return self

    def delete(self, made: Any) -> Stage:
        self.cluster.feed(Deleted(made.obj()), 0.0)
        return self

    def events(self) -> list[str]:
        return [each.message for each in self.cluster.take_reports() if isinstance(each, Emit)]


def node(name: str, carbon: str | None = None) -> Any:
    made = make_node(name).allocatable(cpu="4", memory="8Gi", pods=10)
    return made if carbon is None else made.annotation(CARBON, carbon)


def test_an_annotation_of_nodes_is_a_column_that_follows_them() -> None:
    stage = Stage("before")
    column = stage.handle.nodes.annotation(CARBON, int, missing=-1)
    stage.add(node("a", "100"), node("b"), make_pod("early").on("later"))
    assert column.cells[:4].tolist() == [-1, 100, -1, -1]
    stage.update(node("a", "250")).add(node("later", "7"))
    assert column.cells[:4].tolist() == [-1, 250, -1, 7]
    stage.delete(node("a", "250"))
    assert column[1] == -1
    table = stage.cluster.nodes
    some = Some(table, np.array([3, 0]))
    assert All(table).take(column).tolist() == [-1, -1, -1, 7]
    assert some.take(column).tolist() == [7, -1]
    assert One(table, 3).take(column) == 7


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("lots", "invalid literal for int() with base 10: 'lots'"),
        ("99999999999999999999", "is not a value of the type int64"),
    ],
)
def test_an_annotation_that_cannot_be_read_counts_as_missing_and_is_said_once(
    text: str, problem: str
) -> None:
    stage = Stage()
    column = stage.handle.nodes.annotation(CARBON, int, missing=-1)
    stage.add(node("a", text))
    (message,) = stage.events()
    assert message.startswith(f"plugin Mine: metadata.annotations[{CARBON}]: ") and problem in message
    assert column[0] == -1
    stage.update(node("a", text).label("more", "1"))
    assert stage.events() == []
    stage.update(node("a", "5"))
    assert (stage.events(), column[0]) == ([], 5)
    stage.update(node("a", text))
    assert len(stage.events()) == 1


def test_a_value_that_would_lose_something_in_its_column_is_refused() -> None:
    stage = Stage("a")
    assert stage.handle.nodes.column(lambda info: 2.0, missing=0)[0] == 2
    kept = [stage.handle.nodes.column(lambda info: 2.5, missing=0)]
    assert kept[0][0] == 0
    kept.append(stage.handle.nodes.column(lambda info: None, missing=False, dtype=np.bool_))
    assert "2.5 is not a value of the type int64" in stage.events()[-1]


def test_two_plugins_complain_of_a_node_each_for_itself() -> None:
    stage = Stage()
    other = Handle(stage.cluster, "Other", "default-scheduler")
    columns = [h.nodes.annotation(CARBON, int, missing=0) for h in (stage.handle, other)]
    stage.add(node("a", "x"))
    assert [message.split(":")[0] for message in stage.events()] == ["plugin Mine", "plugin Other"]
    assert len(columns) == 2
    assert UNREADABLE in {line.what for line in stage.cluster.story("Node/a")}


def test_a_column_nobody_keeps_is_followed_no_more() -> None:
    stage = Stage("a")
    asked: list[str] = []

    def noted(info: NodeInfo) -> int:
        asked.append(info.name)
        return 1

    stage.handle.nodes.column(noted, missing=0)
    stage.add(node("b"))
    assert asked == ["a"]


def test_own_values_are_kept_by_row_and_start_over_with_another_node() -> None:
    stage = Stage("a", "b")
    column = stage.handle.nodes.new_column(fill=3)
    seen = stage.cluster.epoch.usage.end
    column[0] += 4
    assert column.cells[:2].tolist() == [7, 3]
    changed = stage.cluster.epoch.usage.since(seen)
    assert changed is not None and changed.tolist() == [0]
    stage.delete(node("a")).add(node("c"))
    assert (stage.cluster.nodes.row("c"), column[0]) == (0, 3)
    for number in range(200):
        stage.add(node(f"n{number}"))
    assert len(column.cells) == stage.cluster.nodes.capacity


def test_pods_are_counted_per_row_while_the_count_is_kept() -> None:
    stage = Stage("a", "b")
    pods = [make_pod(f"p{number}").label("carbon", "yes").on("a") for number in range(2)]
    stage.add(pods[0])
    counts = stage.handle.count_pods(lambda cls: "carbon" in cls.labels)
    assert counts.cells[:2].tolist() == [1, 0]
    stage.add(pods[1], make_pod("other").on("a"))
    assert (counts[0], counts.total) == (2, 2)
    assert All(stage.cluster.nodes).take(counts).tolist() == [2, 0]
    stage.delete(pods[0])
    assert counts[0] == 1
    assert [pod.name for pod in stage.handle.pods(0)] == ["p1", "other"]


def test_labels_are_compared_by_codes() -> None:
    stage = Stage()
    stage.add(node("a").label("rack", "r1"), node("b").label("rack", "r2"), node("c"))
    label = stage.handle.nodes.label("rack")
    view = All(stage.cluster.nodes)
    assert (view.take(label) == label.code("r2")).tolist() == [False, True, False]
    assert (view.take(label) == label.code("never")).tolist() == [False, False, False]


def test_the_code_of_a_value_that_was_asked_for_stays() -> None:
    """Also one asked for before any node has it, and one that no node has for a while."""
    stage = Stage().add(node("a").label("rack", "r1"))
    label = stage.handle.nodes.label("rack")
    early, there = label.code("r9"), label.code("r1")
    stage.delete(node("a")).add(node("b").label("rack", "r2"), node("c").label("rack", "r9"))
    stage.add(node("d").label("rack", "r1"))
    assert (stage.handle.nodes.label("rack").codes[:3] == early).tolist() == [False, True, False]
    assert (All(stage.cluster.nodes).take(label) == there).tolist() == [False, False, True]


def test_taints_are_judged_once_for_each_set_of_them() -> None:
    stage, asked = Stage("plain"), []

    def count(taints: Any) -> int:
        asked.append([taint.key for taint in taints])
        return len(taints)

    column = stage.handle.nodes.by_taints(count)
    assert stage.handle.nodes.taint_effects == frozenset()
    stage.add(*(node(name).taint("a", effect="NoSchedule") for name in ("n1", "n2")))
    view = All(stage.cluster.nodes)
    assert view.take(column).tolist() == [0, 1, 1] and column.cells[:3].tolist() == [0, 1, 1]
    assert One(stage.cluster.nodes, 1).take(column) == 1
    assert asked == [[], ["a"]]
    assert stage.handle.nodes.taint_effects == {"NoSchedule"}
    stage.update(node("n1")).update(node("n2"))
    assert view.take(column).tolist() == [0, 0, 0]
    assert stage.handle.nodes.taint_effects == frozenset()
    stage.add(node("n3").taint("b").taint("c"))
    assert column.item(3) == 2, "the code of a set that is gone is used again"


def test_images_follow_nodes() -> None:
    stage = Stage("plain")
    nodes = stage.handle.nodes
    assert nodes.image("a:1") is None and nodes.images_version == 0
    stage.add(node("n1").image("a:1", 100), node("n2").image("a:1", 200))
    image, version = nodes.image("a:1"), nodes.images_version
    assert image is not None and (image.size, image.nodes, version) == (100, 2, 2)
    assert image.cells[:3].tolist() == [False, True, True]
    assert Some(stage.cluster.nodes, np.array([2, 0])).take(image).tolist() == [True, False]
    with pytest.raises(ValueError, match="read-only"):
        image.cells[0] = True
    stage.update(node("n1"))
    assert (image.nodes, nodes.images_version) == (1, 3)


def test_selectors_are_formulas() -> None:
    stage = Stage("plain").add(node("n1").label("disk", "ssd"), node("n2").label("disk", "hdd"))
    nodes, view = stage.handle.nodes, All(stage.cluster.nodes)
    assert nodes.matching_labels({"disk": "ssd"})(view).tolist() == [False, True, False]
    assert nodes.matching_labels({})(view).tolist() == [True, True, True]
    has_disk = NodeSelectorRequirement(key="disk", operator="Exists")
    terms = [NodeSelectorTerm(match_expressions=[has_disk])]
    assert nodes.matching_terms(terms)(view).tolist() == [False, True, True]
    assert nodes.matching_terms([])(view).tolist() == [False, False, False]


def test_nodes_by_row_and_by_name() -> None:
    stage = Stage("a", "b").add(make_pod("early").on("later"))
    nodes = stage.handle.nodes
    assert (len(nodes), nodes.rows()) == (2, [0, 1])
    assert (nodes.row("later"), nodes.node(2), nodes.name(2)) == (2, None, "later")
    found = nodes.node(1)
    assert found is not None and (found.name, found.allocatable["cpu"]) == ("b", 4000)
    assert All(stage.cluster.nodes).free(stage.handle.slot("cpu")).tolist() == [4000, 4000, 0]


def test_what_a_view_gives_cannot_be_written_to() -> None:
    """On one row `x += 1` makes another number; on many it would change the table."""
    stage = Stage("a", "b")
    column = stage.handle.nodes.new_column()
    table = stage.cluster.nodes
    every, some = All(table), Some(table, np.array([0, 1]))
    given = [view.claimed(0) for view in (every, some)] + [
        view.allocatable(0) for view in (every, some)
    ]
    for cells in (*given, every.take(column), some.free(0), some.rows):
        with pytest.raises(ValueError, match="read-only"):
            cells += 1
    assert not table.claimed.any()
