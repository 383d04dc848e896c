"""Tables for a terminal or a file, of any number of rows.

Text is plain: no markup, and control characters are not passed on. Columns that are too wide for the
line are wrapped.
"""

import os
import shutil
import sys
import textwrap
import unicodedata
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

PIPED_WIDTH = 120
"""The width of a line where there is no terminal."""
_GAP = "   "
_MARGIN = "  "
_NARROWEST = 12
"""A column is not made narrower than this to fit the line."""
_COLOURS = {
    "bold": "1",
    "dim": "2",
    "red": "31",
    "green": "32",
    "yellow": "33",
    "magenta": "35",
    "cyan": "36",
}
_LINES_AT_ONCE = 2_000


@dataclass(frozen=True, slots=True)
class Column:
    header: str
    right: bool = False
    wraps: bool = True


@dataclass(slots=True)
class TextTable:
    title: str
    columns: Sequence[Column]
    rows: list[Sequence[str]] = field(default_factory=list)
    styles: list[tuple[int, str]] = field(default_factory=list)
    """For each row a column and the name of a colour, or -1 for the whole row; "" for none."""

    def add(self, *cells: str, styled: int = -1, style: str = "") -> None:
        self.rows.append(cells)
        self.styles.append((styled, style))


class Screen:
    """Where tables are printed: as wide as the terminal, with colours if there is one."""

    def __init__(self) -> None:
        terminal = sys.stdout.isatty() and os.environ.get("TERM") != "dumb"
        self._coloured = "NO_COLOR" not in os.environ and (terminal or "FORCE_COLOR" in os.environ)
        self._width = shutil.get_terminal_size().columns if terminal else PIPED_WIDTH
        encoding = sys.stdout.encoding or "utf-8"
        self._encoding = "" if encoding.lower().startswith("utf") else encoding

    def heading(self, text: str) -> None:
        side = max(3, (self._width - _width(text) - 2) // 2) * "─"
        self._write([self._styled(f"{side} {_clean(text)} {side}", "dim")])

    def note(self, text: str) -> None:
        self._write([_clean(text), ""])

    def show(self, table: TextTable) -> None:
        cells = [[_clean(cell) for cell in row] for row in table.rows]
        headers = [column.header for column in table.columns]
        widths = self._widths(table.columns, [headers, *cells])
        rule = " " + "─" * (sum(widths) + len(_GAP) * (len(widths) - 1) + 2)
        lines = [
            self._styled(table.title, "bold"),
            "",
            *self._lines(table.columns, widths, headers, -1, "bold"),
            rule,
        ]
        for row, (styled, style) in zip(cells, table.styles, strict=True):
            lines += self._lines(table.columns, widths, row, styled, style)
            if len(lines) > _LINES_AT_ONCE:
                self._write(lines)
                lines = []
        self._write([*lines, ""])

    def _widths(self, columns: Sequence[Column], rows: Iterable[Sequence[str]]) -> list[int]:
        widths = [0] * len(columns)
        for row in rows:
            for i, cell in enumerate(row):
                if len(cell) > widths[i] or not cell.isascii():
                    widths[i] = max(widths[i], *map(_width, cell.splitlines() or [""]))
        space = self._width - len(_MARGIN) - 1 - len(_GAP) * (len(widths) - 1)
        most = min(max(widths), max(space, _NARROWEST))
        while sum(fitted := _limited(columns, widths, most)) > space and most > _NARROWEST:
            most -= 1
        return fitted

    def _lines(
        self,
        columns: Sequence[Column],
        widths: Sequence[int],
        row: Sequence[str],
        styled: int,
        style: str,
    ) -> list[str]:
        if all(
            len(cell) <= width and "\n" not in cell for cell, width in zip(row, widths, strict=True)
        ):
            parts: Sequence[Sequence[str]] = [row]
        else:
            wrapped = [_wrapped(cell, width) for cell, width in zip(row, widths, strict=True)]
            height = max(map(len, wrapped))
            parts = [[each[i] if i < len(each) else "" for each in wrapped] for i in range(height)]
        lines = []
        for part in parts:
            padded = []
            for i, (cell, width) in enumerate(zip(part, widths, strict=True)):
                blank = " " * (width - (len(cell) if cell.isascii() else _width(cell)))
                text = self._styled(cell, style) if style and styled in (i, -1) else cell
                padded.append(blank + text if columns[i].right else text + blank)
            lines.append((_MARGIN + _GAP.join(padded)).rstrip())
        return lines

    def _styled(self, text: str, style: str) -> str:
        if not self._coloured or not text or style not in _COLOURS:
            return text
        return f"\x1b[{_COLOURS[style]}m{text}\x1b[0m"

    def _write(self, lines: Iterable[str]) -> None:
        text = "".join(f"{line}\n" for line in lines)
        if self._encoding:
            text = text.replace("─", "-").encode(self._encoding, "replace").decode(self._encoding)
        sys.stdout.write(text)


def _limited(columns: Sequence[Column], widths: Sequence[int], most: int) -> list[int]:
    return [min(w, most) if column.wraps else w for column, w in zip(columns, widths, strict=True)]


def _clean(text: str) -> str:
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() or c == "\n" else " " for c in text)


def _width(text: str) -> int:
    """In cells of a terminal."""
    if text.isascii():
        return len(text)
    return sum(
        0 if unicodedata.combining(c) else 2 if unicodedata.east_asian_width(c) in "FW" else 1
        for c in text
    )


def _wrapped(text: str, width: int) -> list[str]:
    lines = []
    for line in text.splitlines() or [""]:
        lines += textwrap.wrap(line, max(1, width), break_on_hyphens=False) or [""]
    return lines
