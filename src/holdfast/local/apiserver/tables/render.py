"""Objects to Table documents."""

from collections.abc import Callable, Sequence
from typing import Any
from weakref import WeakKeyDictionary

from holdfast.local.apiserver.tables.columns import Printer
from holdfast.local.apiserver.tables.custom import custom_printer
from holdfast.local.apiserver.tables.others import DEFAULT, NODES, PLAIN, STORAGE
from holdfast.local.apiserver.tables.workloads import PODS, WORKLOADS, row_conditions
from holdfast.local.store import Raw
from holdfast.machinery.schema.field_errors import shown as quoted
from holdfast.machinery.schema.types import ResourceType
from holdfast.machinery.status import StatusError, bad_request

_PRINTERS: dict[tuple[str, str], Printer] = {
    ("", "Pod"): PODS,
    ("", "Node"): NODES,
    **WORKLOADS,
    **STORAGE,
    **PLAIN,
}
_INCLUDE = ("", "Metadata", "Object", "None")
_custom: WeakKeyDictionary[ResourceType, Printer] = WeakKeyDictionary()


def printer_of(type: ResourceType) -> Printer:
    if type.builtin:
        return _PRINTERS.get((type.group, type.kind), DEFAULT)
    known = _custom.get(type)
    if known is None:
        known = _custom[type] = custom_printer(type.columns)
    return known


def check_include(include: str) -> None:
    """`includeObject` of a query: what of the object comes with its row. Raises StatusError 400."""
    if include not in _INCLUDE:
        raise bad_request(
            "Unable to convert to Table as requested: includeObject: Invalid value: "
            f"{quoted(include)}: "
            "must be 'Metadata', 'Object', 'None', or empty"
        )


def table(
    type: ResourceType,
    objects: Sequence[Raw],
    metadata: Raw,
    now: float,
    api_version: str,
    include: str = "",
    headers: bool = True,
) -> Raw:
    printer = printer_of(type)
    with_object = _object(include, api_version)
    return {
        "kind": "Table",
        "apiVersion": api_version,
        "metadata": metadata,
        "columnDefinitions": [each.definition() for each in printer.columns] if headers else None,
        "rows": [_row(type, printer, each, now, with_object) for each in objects],
    }


def _row(
    type: ResourceType, printer: Printer, raw: Raw, now: float, with_object: Callable[[Raw], Any]
) -> Raw:
    row: Raw = {"cells": printer.cells(raw, now)}
    if (type.group, type.kind) == ("", "Pod"):
        conditions = row_conditions(raw)
        if conditions:
            row["conditions"] = conditions
    row["object"] = with_object(raw)
    return row


def _object(include: str, api_version: str) -> Callable[[Raw], Any]:
    match include:
        case "None":
            return lambda raw: None
        case "Object":
            return lambda raw: raw
        case _:
            return lambda raw: partial_metadata(raw, api_version)


def partial_metadata(raw: Raw, api_version: str) -> Raw:
    return {
        "kind": "PartialObjectMetadata",
        "apiVersion": api_version,
        "metadata": raw["metadata"],
    }


def not_a_list(kind: str, list_kind: str) -> StatusError:
    return StatusError(
        406,
        "NotAcceptable",
        f"you requested {kind}, but the requested object is a list (*{list_kind})",
    )
