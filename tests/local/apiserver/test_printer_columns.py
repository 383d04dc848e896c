"""Printer columns that would take long."""

from __future__ import annotations

from typing import Any

import pytest

from harness.widgets import widget_crd
from holdfast.local.apiserver.tables.render import (
    Budget,
    OutOfBudget,
    compile_path,
    custom_printer,
    printer_of,
)
from holdfast.machinery.schema import PrinterColumn
from holdfast.machinery.schema.catalogue import Catalogue, holdfast_catalogue
from holdfast.machinery.validation.kinds import check_values


def crd_with(*columns: dict[str, Any]) -> dict[str, Any]:
    crd = widget_crd()
    crd["spec"]["versions"][0]["additionalPrinterColumns"] = list(columns)
    return crd


def problems_of(crd: dict[str, Any]) -> list[str]:
    type = Catalogue().resource("apiextensions.k8s.io", "v1", "customresourcedefinitions")
    assert type is not None
    return [problem.text for problem in check_values(type, crd)]


def column(i: int, path: str = ".spec.size") -> dict[str, Any]:
    return {"name": f"C{i}", "type": "string", "jsonPath": path}


def nested(depth: int) -> Any:
    value: Any = {"name": "deepest"}
    for _ in range(depth):
        value = {"a": value, "b": {"name": "other"}}
    return value


def test_a_version_has_a_hundred_columns_at_most() -> None:
    assert problems_of(crd_with(*map(column, range(100)))) == []
    many = crd_with(*map(column, range(2000)))
    assert problems_of(many) == [
        "spec.additionalPrinterColumns: Too many: 2000: must have at most 100 items"
    ]
    (kept,) = Catalogue().add_crd(many)
    assert len(kept.columns) == 100


def test_a_path_has_a_length() -> None:
    assert problems_of(crd_with(column(0, "." + "a" * 4095))) == []
    assert problems_of(crd_with(column(0, "." + "a" * 4096))) == [
        "spec.additionalPrinterColumns[0].JSONPath: Too long: may not be more than 4096 bytes"
    ]


def test_what_nested_searches_reach_counts_once() -> None:
    budget = Budget(100_000)
    found = compile_path("..a" * 8 + "..name")(nested(100), budget)
    assert "deepest" in found
    assert budget.left > 50_000


def test_a_path_beyond_its_budget_finds_nothing() -> None:
    wide = {"metadata": {"name": "w"}, "spec": [[i, [i]] for i in range(40_000)]}
    with pytest.raises(OutOfBudget):
        compile_path(".spec[*][?(@..x==1)]")(wide, Budget())
    deep = PrinterColumn(name="Deep", type="string", json_path=".spec[*][?(@..x==1)]")
    plain = PrinterColumn(name="First", type="integer", json_path=".spec[0][0]")
    assert custom_printer((plain, deep)).cells(wide, 0.0) == ["w", 0, None]


def test_a_reservation_that_nobody_uses_shows_what_it_reserves() -> None:
    type = holdfast_catalogue().resource("scheduling.koordinator.sh", "v1alpha1", "reservations")
    assert type is not None
    printer = printer_of(type)
    idle = {
        "metadata": {"name": "peak", "creationTimestamp": "2026-01-01T00:00:00Z"},
        "status": {"phase": "Available", "nodeName": "n1", "allocatable": {"cpu": "4"}},
    }
    cells = zip(printer.columns, printer.cells(idle, 0.0), strict=True)
    shown = {column.name: cell for column, cell in cells if column.priority == 0}
    assert shown["Reserved"] == '{"cpu":"4"}'
    assert not shown["Allocated"]
