"""Values per row: whatever opens a row, every column is as long as the table."""

import gc

import numpy as np

from harness.builders import make_node, make_pod
from holdfast.scheduler.cluster.events import Added
from holdfast.scheduler.cluster.node_table import NodeTable
from holdfast.scheduler.state.cluster import Cluster


def filled(count: int) -> NodeTable:
    table = NodeTable()
    for number in range(count):
        table.open_row(f"n{number}")
    return table


def test_a_column_is_as_long_as_the_table_from_the_start_and_after_it_grew() -> None:
    table = filled(70)
    assert table.capacity == 128
    column = table.columns.new(np.int64, fill=7)
    column.cells[3] = 1
    for number in range(70, 200):
        table.open_row(f"n{number}")
    assert len(column.cells) == table.capacity == 256
    assert (column.cells[3], column.cells[2], column.cells[199]) == (1, 7, 7)


def test_a_column_may_have_several_values_for_each_row() -> None:
    table = filled(1)
    column = table.columns.new(np.bool_, lead=(2,), trail=(3,))
    column.cells[1, 0, 2] = True
    for number in range(1, 65):
        table.open_row(f"n{number}")
    assert column.cells.shape == (2, 128, 3)
    assert column.cells.sum() == 1 and column.cells[1, 0, 2]


def test_a_column_nobody_keeps_is_forgotten() -> None:
    table = filled(1)
    column = table.columns.new(np.int64)
    assert len(table.columns) > 0
    before = len(table.columns)
    del column
    gc.collect()
    assert len(table.columns) == before - 1


def test_columns_are_long_enough_for_the_row_of_a_pod_whose_node_is_not_there() -> None:
    cluster = Cluster()
    for number in range(64):
        cluster.feed(Added(make_node(f"n{number}").allocatable(cpu="4").obj()), 0.0)
    column = cluster.nodes.columns.new(np.int64, fill=-1)
    cluster.feed(Added(make_pod("early").cpu("1").node("later").obj()), 0.0)
    row = cluster.nodes.row("later")
    assert row == 64 and column.cells[row] == -1
