"""The formats of `-o`: tables, JSON, YAML, names, and templates over the objects.

table, wide         columns of the type; wide has more of them
json, yaml, name    the objects; a List where none or several were named
jsonpath=TEMPLATE   text with JSONPath expressions in braces, `range` and `end` included
custom-columns=...  HEADER:PATH, separated by commas
jsonpath-file=F, custom-columns-file=F     the same, read from a file
"""

import re
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from holdfast.api.similar_names import did_you_mean
from holdfast.cli.options import Failure

Raw = dict[str, Any]

TABLE, WIDE, JSON, YAML, NAME = "table", "wide", "json", "yaml", "name"
JSONPATH, COLUMNS = "jsonpath", "custom-columns"
PLAIN = (TABLE, WIDE, JSON, YAML, NAME)
TEMPLATED = (JSONPATH, "jsonpath-file", COLUMNS, "custom-columns-file")
DATA = (JSON, YAML, JSONPATH)
"""Formats in which nothing is an empty List."""
FORMATS = (*PLAIN, *TEMPLATED)
_NONE = "<none>"


class OutputFormat(NamedTuple):
    name: str = TABLE
    text: str = ""
    """The template or the columns, of formats that have one."""

    @property
    def is_table(self) -> bool:
        return self.name in (TABLE, WIDE)


def read_format(text: str) -> OutputFormat:
    """Raises Failure."""
    name, equals, rest = text.partition("=")
    if name not in FORMATS:
        hint = did_you_mean(name, FORMATS, f"known: {', '.join(FORMATS)}")
        raise Failure(1, [f"--output: unknown format {name!r}{hint}"])
    if name in PLAIN:
        if equals:
            raise Failure(1, [f"--output: {name} takes no value"])
        return OutputFormat(name)
    if not rest:
        example = "'{.items[*].metadata.name}'" if name == JSONPATH else "NAME:.metadata.name"
        raise Failure(1, [f"--output: {name} needs a value, such as {name}={example}"])
    if name.endswith("-file"):
        name = name.removesuffix("-file")
        rest = _read(rest)
        if name == COLUMNS:
            rest = _columns_in_file(rest)
    format = OutputFormat(name, rest)
    if name == JSONPATH:
        template(rest)
    else:
        columns(rest)
    return format


def _read(file: str) -> str:
    try:
        return Path(file).read_text().rstrip("\n")
    except OSError as error:
        raise Failure(1, [f"--output: {file}: {error.strerror or error}"]) from None


def _columns_in_file(text: str) -> str:
    """Two lines: the headers, and the paths below them."""
    lines = [line.split() for line in text.splitlines() if line.strip()]
    if len(lines) != 2 or len(lines[0]) != len(lines[1]):
        raise Failure(1, ["--output: expected a line of headers and a line with as many paths"])
    return ",".join(f"{header}:{path}" for header, path in zip(*lines, strict=True))


# Paths


Values = Callable[[Any], list[Any]]


def path(text: str) -> Values:
    """The values at a JSONPath, with or without braces and leading dot. Raises Failure."""
    from holdfast.local.apiserver.tables.render import Budget, compile_path

    inner = text.strip()
    if inner.startswith("{") and inner.endswith("}"):
        inner = inner[1:-1].strip()
    inner = inner.removeprefix("$")
    inner = inner if inner.startswith((".", "[", "@")) or not inner else f".{inner}"
    try:
        find = compile_path(inner.removeprefix("@"))
    except ValueError as error:
        raise Failure(1, [str(error)]) from None
    return lambda root: find(root, Budget(10_000_000))


SortKey = tuple[bool, bool, float, str]


def is_absent(key: SortKey) -> bool:
    """Whether an object lacks the field that it is sorted by."""
    return key[0]


def sort_key(text: str) -> Callable[[Raw], SortKey]:
    """The order of `--sort-by`: numbers and quantities by value, the rest as text; none comes last."""
    find = path(text)

    def key(raw: Raw) -> SortKey:
        found = find(raw)
        if not found or found[0] is None:
            return True, False, 0.0, ""
        value = found[0]
        number = _number(value)
        return False, number is None, number or 0.0, "" if number is not None else as_text(value)

    return key


def _number(value: Any) -> float | None:
    from holdfast.api.quantity import QuantityError, parse

    if isinstance(value, int | float):
        return float(value)
    try:
        return float(parse(value)) if isinstance(value, str) else None
    except QuantityError:
        return None


def as_text(value: Any) -> str:
    return value if isinstance(value, str) else msgspec.json.encode(value).decode()


# Custom columns


class CustomColumn(NamedTuple):
    header: str
    values: Values

    def cell(self, raw: Raw) -> str:
        found = [as_text(each) for each in self.values(raw) if each is not None]
        return ",".join(found) or _NONE


def columns(text: str) -> list[CustomColumn]:
    """Raises Failure."""
    found = []
    for part in re.split(r",(?=[^,:\[\]()]+:)", text):
        header, colon, where = part.partition(":")
        if not (header and colon and where):
            raise Failure(1, [f"--output: expected HEADER:PATH, got {part!r}"])
        found.append(CustomColumn(header, path(where)))
    return found


# JSONPath templates


_PIECE = re.compile(r"\{((?:[^{}'\"]|'[^']*'|\"[^\"]*\")*)\}|([^{]+)|(\{)")
_ESCAPES = {"\\n": "\n", "\\t": "\t", "\\r": "\r", '\\"': '"', "\\\\": "\\"}
Writer = Callable[[Any, Any], Iterator[str]]
"""Yields text for the root and the current object."""


def template(text: str) -> Callable[[Any], str]:
    """A function that fills the template in. Raises Failure."""
    pieces = []
    for match in _PIECE.finditer(text):
        if match[3]:
            raise Failure(1, [f"--output: unclosed action in the template: {text!r}"])
        pieces.append((match[1], match[2] or ""))
    writers, rest = _block(pieces, inner=False)
    assert not rest
    return lambda root: "".join(part for write in writers for part in write(root, root))


Piece = tuple[str | None, str]


def _block(pieces: Sequence[Piece], inner: bool) -> tuple[list[Writer], Sequence[Piece]]:
    writers: list[Writer] = []
    while pieces:
        (action, literal), pieces = pieces[0], pieces[1:]
        if action is None:
            writers.append(_literal(literal))
            continue
        action = action.strip()
        if action == "end":
            if not inner:
                raise Failure(1, ["--output: {end} without {range}"])
            return writers, pieces
        if action.startswith("range "):
            body, pieces = _block(pieces, inner=True)
            writers.append(_range(action.removeprefix("range "), body))
        elif action[:1] in ("'", '"'):
            writers.append(_literal(_unescaped(action[1:-1])))
        else:
            writers.append(_expression(action))
    if inner:
        raise Failure(1, ["--output: {range} without {end}"])
    return writers, pieces


def _unescaped(text: str) -> str:
    return re.sub(r'\\[ntr"\\]', lambda match: _ESCAPES[match[0]], text)


def _literal(text: str) -> Writer:
    return lambda root, here: iter((text,))


def _expression(text: str) -> Writer:
    find, from_root = path(text), text.startswith("$")

    def write(root: Any, here: Any) -> Iterator[str]:
        yield " ".join(as_text(each) for each in find(root if from_root else here))

    return write


def _range(text: str, body: list[Writer]) -> Writer:
    find, from_root = path(text), text.strip().startswith("$")

    def write(root: Any, here: Any) -> Iterator[str]:
        for each in find(root if from_root else here):
            for inner in body:
                yield from inner(root, each)

    return write
