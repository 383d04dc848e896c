"""What a view offers means the same on one row as on many."""

from collections.abc import Callable

import numpy as np
import pytest

from harness.builders import make_node, make_pod
from holdfast.scheduler.cluster.events import Added
from holdfast.scheduler.cluster.slots import CPU, MEMORY
from holdfast.scheduler.cluster.view import All, Cells, One, OneOfMany, Some, View
from holdfast.scheduler.state.cluster import Cluster

Formula = Callable[[View], Cells]

FORMULAS: dict[str, Formula] = {
    "negate": lambda view: view.negate(view.claimed(CPU) > 0),
    "where": lambda view: view.where(view.claimed(CPU) > 0, view.free(CPU), -1),
    "divide": lambda view: view.divide(view.free(CPU), view.claimed(CPU), otherwise=7),
    "divide below 0": lambda view: view.divide(-view.free(CPU), view.claimed(CPU) + 3),
    "minimum": lambda view: view.minimum(view.claimed(CPU), view.free(CPU)),
    "maximum": lambda view: view.maximum(view.claimed(CPU), 700),
    "clip": lambda view: view.clip(view.free(CPU) - view.claimed(CPU), 0, 1500),
    "clip by cells": lambda view: view.clip(2000, view.claimed(CPU), view.free(CPU)),
    "whole": lambda view: view.whole(view.claimed(CPU) / 3),
    "full": lambda view: view.full(3),
    "rows": lambda view: view.rows + 0,
    "allocatable": lambda view: view.allocatable(MEMORY) // 1024,
    "of a column": lambda view: view.take(np.arange(100) * 2),
}


def made() -> Cluster:
    cluster = Cluster()
    for at, cpu in enumerate(("1", "2", "3", "0")):
        cluster.feed(Added(make_node(f"n{at}").allocatable(cpu=cpu, memory="1Gi", pods=9).obj()), 0.0)
    for at, cpu in enumerate(("1", "500m", "2")):
        cluster.feed(Added(make_pod(f"p{at}").cpu(cpu).on(f"n{at}").obj()), 0.0)
    return cluster


@pytest.mark.parametrize("name", FORMULAS)
def test_a_formula_gives_the_same_on_every_view(name: str) -> None:
    table, formula = made().nodes, FORMULAS[name]
    singly = [formula(One(table, row)) for row in range(table.size)]
    assert formula(All(table)).tolist() == singly
    assert formula(Some(table, np.array([2, 0]))).tolist() == [singly[2], singly[0]]
    assert [formula(OneOfMany(One(table, row))).tolist() for row in range(4)] == [[x] for x in singly]


def test_a_view_knows_how_many_rows_it_has() -> None:
    table = made().nodes
    views = All(table), Some(table, np.array([1, 3])), One(table, 0), OneOfMany(One(table, 0))
    assert [len(view) for view in views] == [4, 2, 1, 1]
    several = OneOfMany(One(table, 1))
    assert several.free(slice(0, 2)).tolist() == All(table).free(slice(0, 2))[:, 1:2].tolist()
