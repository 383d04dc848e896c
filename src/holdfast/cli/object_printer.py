"""Prints what `holdfast get` found, and the changes that it watches, in any output format."""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import typer

from holdfast.cli.client import Raw
from holdfast.cli.kinds.kind import Found, OutputColumn, OutputKind, OutputRow
from holdfast.cli.output_format import (
    COLUMNS,
    JSON,
    JSONPATH,
    WIDE,
    YAML,
    OutputFormat,
    columns,
    template,
)
from holdfast.cli.printing import as_json, as_list, as_yaml, object_title, padded, table, widths


class PrintOptions(NamedTuple):
    format: OutputFormat
    heading: bool = True
    everywhere: bool = False
    """Whether objects of all namespaces are shown, so that tables name the namespace."""
    events: bool = False
    """Whether changes are shown with their event."""


class ObjectPrinter:
    def __init__(self, options: PrintOptions) -> None:
        self._options = options
        self._format = options.format
        self._filled: set[str] = set()
        """The optional columns in which an object had a value."""

    def print(self, kinds: Sequence[OutputKind], found: Sequence[Found], single: bool) -> None:
        """All that was found: a table per type, or a List. `single` prints one object by itself."""
        if not self._format.is_table:
            objects = [row.object for each in found for row in each.rows]
            if objects or not single:
                self._print_objects(objects, single)
            return
        several = len(found) > 1
        texts = []
        for kind, each in zip(kinds, found, strict=True):
            headers, rows = self._shown(kind, each.columns, each.rows, several)
            if rows:
                texts.append(
                    "".join(f"{line}\n" for line in table(headers, rows, self._options.heading))
                )
        typer.echo("\n".join(texts), nl=False)

    def _print_objects(self, objects: Sequence[Raw], single: bool) -> None:
        whole = objects[0] if single else as_list(objects)
        name, text = self._format
        if name == JSON:
            typer.echo(as_json(whole), nl=False)
        elif name == YAML:
            typer.echo(as_yaml(whole), nl=False)
        elif name == JSONPATH:
            typer.echo(template(text)(whole), nl=False)
        elif name == COLUMNS:
            wanted = columns(text)
            cells = [[column.cell(raw) for column in wanted] for raw in objects]
            _echo(table([column.header for column in wanted], cells, self._options.heading))
        else:
            _echo(object_title(raw) for raw in objects)

    def _shown(
        self,
        kind: OutputKind,
        all_columns: Sequence[OutputColumn],
        rows: Sequence[OutputRow],
        several: bool = False,
    ) -> tuple[list[str], list[list[str]]]:
        """The headers and the cells that the format shows; with several types, names include it."""
        wide = self._format.name == WIDE
        self._filled.update(
            column.name
            for i, column in enumerate(all_columns)
            if column.optional and any(row.cells[i] for row in rows)
        )
        at = [
            i
            for i, column in enumerate(all_columns)
            if not (column.narrow if wide else column.wide)
            and (not column.optional or column.name in self._filled)
        ]
        headers = [all_columns[i].name for i in at]
        lines = [[row.cells[i] for i in at] for row in rows]
        names_namespace = self._options.everywhere and kind.names_namespace
        for row, line in zip(rows, lines, strict=True):
            if several:
                line[0] = object_title(row.object)
            if names_namespace:
                line.insert(0, row.object["metadata"].get("namespace") or "")
        return ["NAMESPACE", *headers] if names_namespace else headers, lines

    def watching(self, kind: OutputKind, found: Found) -> "WatchPrinter":
        """Prints what there is now, and returns what prints the changes."""
        printer = WatchPrinter(self, kind)
        printer.begin(found)
        return printer


_LEAST_WIDTHS = {"NAME": 20, "SCHEDULER": 17}
_OTHER_WIDTH = 10
"""The least widths of columns while there is no row to take them from."""
_AGE = "AGE"


class WatchPrinter:
    """A row or an object for each change; no row if it would differ in its age only. Columns get wider
    where they must, and never narrower. If the first row does not fit below a heading that was printed
    without any, the heading is printed again."""

    def __init__(self, printer: ObjectPrinter, kind: OutputKind) -> None:
        self._printer = printer
        self._options = printer._options
        self._format = printer._format
        self._kind = kind
        self._headers: list[str] = []
        self._widths: list[int] = []
        self._is_empty = True
        """Whether no row was printed yet."""
        self._shown: dict[str, list[str]] = {}
        """The cells of objects as last printed, without the age, by UID."""

    def begin(self, found: Found) -> None:
        """The heading is printed though there may be nothing below it."""
        if self._format.is_table:
            headers, lines = self._printer._shown(self._kind, found.columns, found.rows)
            self._widths = self._first_widths(headers, lines)
            self._head(headers)
        elif self._format.name == COLUMNS:
            wanted = columns(self._format.text)
            lines = [[column.cell(row.object) for column in wanted] for row in found.rows]
            headers = [column.header for column in wanted]
            self._widths = self._first_widths(headers, lines)
            self._head(headers)
        for row in found.rows:
            self.show("ADDED", row, found.columns)

    def show(self, event: str, row: OutputRow, all_columns: Sequence[OutputColumn]) -> None:
        """Prints one change."""
        raw, (name, text) = row.object, self._format
        if self._format.is_table:
            headers, (cells,) = self._printer._shown(self._kind, all_columns, [row])
            if self._is_repeated(event, row, headers, cells):
                return
            if headers != self._headers:
                self._head(headers)
            self._line(event, cells)
        elif name == COLUMNS:
            self._line(event, [column.cell(raw) for column in columns(text)])
        elif name in (JSON, YAML):
            shown = {"type": event, "object": raw} if self._options.events else raw
            typer.echo(as_json(shown) if name == JSON else f"---\n{as_yaml(shown)}", nl=False)
        elif name == JSONPATH:
            typer.echo(template(text)(raw), nl=False)
        else:
            prefix = f"{event} " if self._options.events else ""
            typer.echo(f"{prefix}{object_title(raw)}")

    def _is_repeated(self, event: str, row: OutputRow, headers: list[str], cells: list[str]) -> bool:
        """Whether the row is as it was printed last, but for the age. Events are all printed."""
        uid = str(row.object["metadata"].get("uid") or "")
        steady = [cell for header, cell in zip(headers, cells, strict=True) if header != _AGE]
        before, self._shown[uid] = self._shown.get(uid), steady
        return event == "MODIFIED" and steady == before and not self._options.events

    def _first_widths(self, headers: list[str], lines: list[list[str]]) -> list[int]:
        found = widths(self._with_event("ADDED", headers), self._lines(lines))
        if lines:
            return found
        named = self._with_event("", headers)[:-1]
        least = [_LEAST_WIDTHS.get(header, _OTHER_WIDTH) for header in named]
        return [*map(max, found, least), found[-1]]

    def _head(self, headers: list[str]) -> None:
        if self._headers and len(headers) + self._options.events != len(self._widths):
            self._widths = [len(header) for header in self._with_event("ADDED", headers)]
        self._headers = headers
        if self._options.heading:
            self._write(["EVENT", *headers] if self._options.events else headers)

    def _line(self, event: str, cells: list[str]) -> None:
        line = self._with_event(event, cells)
        fits = all(len(cell) <= wide for cell, wide in zip(line[:-1], self._widths, strict=False))
        if self._is_empty and not fits:
            self._widths = widths(line, [["x" * width for width in self._widths]])
            self._head(self._headers)
        self._is_empty = False
        self._write(line)

    def _with_event(self, event: str, cells: list[str]) -> list[str]:
        return [event, *cells] if self._options.events else cells

    def _lines(self, lines: list[list[str]]) -> list[list[str]]:
        return [self._with_event("MODIFIED", line) for line in lines]

    def _write(self, cells: list[str]) -> None:
        self._widths = widths(cells, [["x" * width for width in self._widths]])
        typer.echo(padded(cells, self._widths))


def _echo(lines: Iterable[str]) -> None:
    for line in lines:
        typer.echo(line)
