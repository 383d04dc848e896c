"""Reads YAML documents, with limits on size and nesting."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import yaml

from holdfast.api.errors import HoldfastError

MAX_BYTES = 256 * 1024**2
MAX_DEPTH = 64
MAX_ALIASES = 100
MAX_ALIASED_NODES = 100_000
MAX_DIRECTIVES = 100
"""Lines such as `%TAG`: the parser compares each with all that came before."""


@dataclass(frozen=True, slots=True)
class Document:
    """One object of a file. `number` counts the file's documents from 1."""

    file: str
    number: int
    line: int
    data: Any
    item: int | None = None
    """Its place in a `kind: List`, if it stood in one."""

    def __str__(self) -> str:
        place = f"{self.file}: document {self.number}, line {self.line}"
        return place if self.item is None else f"{place}, items[{self.item}]"


class BadFileError(HoldfastError):
    def __init__(self, number: int, line: int, message: str) -> None:
        super().__init__(message)
        self.number = number
        self.line = line


# YAML to documents, event by event.
#
# Nothing here recurses, and everything has a limit, so that no file can exhaust the machine: on
# nesting, on aliases (which are how a small file becomes a huge one), and on directives. A key given
# twice is an error, since one of the two would be lost. So is a key that is not a string
# (`true:`, `null:`, `1:`): no object can hold it. Times stay text, and numbers are those of YAML 1.2
# (`1:30` is text, not ninety).


_Parser: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_INT = re.compile(r"[-+]?(?:0|[1-9][0-9]*)|0x[0-9a-fA-F]{1,16}|0o[0-7]{1,21}")
_FLOAT = re.compile(r"[-+]?(?:[0-9]+\.[0-9]*|\.[0-9]+|[0-9]+(?=[eE]))(?:[eE][-+]?[0-9]+)?")
_DIRECTIVE = re.compile(r"^%", re.MULTILINE)
_LEAST_INT, _MOST_INT = -(2**63), 2**64 - 1
_LONGEST_INT = 66
"""Signs and prefixes included, in any base."""
_WORDS: dict[str, Any] = {
    **dict.fromkeys(("", "~", "null", "Null", "NULL")),
    **dict.fromkeys(("true", "True", "TRUE", "yes", "Yes", "YES", "on", "On", "ON"), True),
    **dict.fromkeys(("false", "False", "FALSE", "no", "No", "NO", "off", "Off", "OFF"), False),
}
_TAG = "tag:yaml.org,2002:"


class _Open:
    """A mapping or list whose end has not come yet."""

    __slots__ = ("anchor", "key", "line", "merged", "size", "value", "waits_for_value")

    def __init__(self, value: Any, anchor: str | None, line: int) -> None:
        self.value = value
        self.anchor = anchor
        self.line = line
        self.key: Any = None
        self.waits_for_value = False
        self.size = 1
        self.merged = False


_NOTHING = object()
_MERGE = object()


def read_first(text: str) -> Any:
    """The first document alone, as the API server reads a body; None if there is nothing in it."""
    for document in _documents(text, ""):
        return document.data
    return None


def read_yaml(text: str, name: str) -> Iterator[Document]:
    """The documents that are not empty."""
    return (document for document in _documents(text, name) if document.data is not None)


def _documents(text: str, name: str) -> Iterator[Document]:
    number, line = 1, 1
    _check_directives(text)
    reader: _Reader | None = None
    parser = None
    try:
        parser = _Parser(text)
        while True:
            event = parser.get_event()
            if isinstance(event, yaml.StreamEndEvent):
                return
            line = event.start_mark.line + 1
            if isinstance(event, yaml.DocumentStartEvent):
                reader = _Reader(number)
            elif isinstance(event, yaml.DocumentEndEvent):
                assert reader is not None
                yield Document(name, number, reader.line, reader.root)
                number += 1
            elif reader is not None:
                reader.take(event, line)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        where = mark.line + 1 if mark else line
        message = ", ".join(part for part in (error.context, error.problem) if part)
        raise BadFileError(number, where, f"not YAML: {message}") from None
    except yaml.YAMLError as error:
        raise BadFileError(number, line, f"not YAML: {' '.join(str(error).split())}") from None
    finally:
        if parser is not None:
            parser.dispose()


def _check_directives(text: str) -> None:
    lines = _DIRECTIVE.finditer(text)
    for count, match in enumerate(lines, 1):
        if count > MAX_DIRECTIVES:
            line = text.count("\n", 0, match.start()) + 1
            raise BadFileError(1, line, f"not YAML: more than {MAX_DIRECTIVES} directives")


class _Reader:
    """Builds one document from its events."""

    def __init__(self, number: int) -> None:
        self._number = number
        self._stack: list[_Open] = []
        self._anchors: dict[str, tuple[Any, int]] = {}
        self._aliases = 0
        self._aliased_nodes = 0
        self.root: Any = None
        self.line = 0

    def take(self, event: Any, line: int) -> None:
        self.line = self.line or line
        match event:
            case yaml.ScalarEvent():
                value = self._scalar(event, line)
                if event.anchor:
                    self._anchors[event.anchor] = (value, 1)
                self._put(value, 1, line)
            case yaml.MappingStartEvent() | yaml.SequenceStartEvent():
                if len(self._stack) >= MAX_DEPTH:
                    raise self._bad(line, f"nested deeper than {MAX_DEPTH} levels")
                value = {} if isinstance(event, yaml.MappingStartEvent) else []
                self._stack.append(_Open(value, event.anchor, line))
            case yaml.MappingEndEvent() | yaml.SequenceEndEvent():
                done = self._stack.pop()
                if done.merged:
                    for key, inner in done.value.items():
                        if isinstance(inner, _Merged):
                            done.value[key] = inner.value
                if done.anchor:
                    self._anchors[done.anchor] = (done.value, done.size)
                self._put(done.value, done.size, done.line)
            case yaml.AliasEvent():
                self._alias(event.anchor, line)

    def _alias(self, anchor: str | None, line: int) -> None:
        if anchor is None or anchor not in self._anchors:
            raise self._bad(line, f"*{anchor} refers to nothing before it")
        value, size = self._anchors[anchor]
        self._aliases += 1
        self._aliased_nodes += size
        if self._aliases > MAX_ALIASES:
            raise self._bad(line, f"more than {MAX_ALIASES} aliases")
        if self._aliased_nodes > MAX_ALIASED_NODES:
            raise self._bad(line, "aliases make this document too large")
        self._put(value, size, line)

    def _put(self, value: Any, size: int, line: int) -> None:
        if not self._stack:
            self.root = value
            return
        top = self._stack[-1]
        top.size += size
        if isinstance(top.value, list):
            top.value.append(value)
        elif not top.waits_for_value:
            if isinstance(value, dict | list):
                raise self._bad(line, "a mapping or list cannot be a key")
            top.key, top.waits_for_value = value, True
        else:
            top.waits_for_value = False
            self._pair(top, value, line)

    def _pair(self, top: _Open, value: Any, line: int) -> None:
        if top.key is _MERGE:
            top.merged = True
            sources = value if isinstance(value, list) else [value]
            for source in sources:
                if not isinstance(source, dict):
                    raise self._bad(line, "<< takes a mapping or a list of mappings")
                for key, inner in source.items():
                    top.value.setdefault(key, _Merged(inner))
        elif not isinstance(top.key, str):
            raise self._bad(line, _unsupported_key(top.key, value))
        elif top.key in top.value and not isinstance(top.value[top.key], _Merged):
            raise self._bad(line, f"key {top.key!r} is given twice")
        else:
            top.value[top.key] = value

    def _scalar(self, event: Any, line: int) -> Any:
        text: str = event.value
        if event.tag is not None and event.tag != "!":
            return self._tagged(event.tag, text, line)
        if not event.implicit[0]:
            return text
        if text == "<<":
            top = self._stack[-1] if self._stack else None
            if top is not None and isinstance(top.value, dict) and not top.waits_for_value:
                return _MERGE
            return text
        return _plain(text)

    def _tagged(self, tag: str, text: str, line: int) -> Any:
        if tag == f"{_TAG}str":
            return text
        value = _plain(text)
        kinds = {"int": int, "float": int | float, "bool": bool, "null": type(None)}
        kind = kinds.get(tag.removeprefix(_TAG))
        if kind is None:
            raise self._bad(line, f"tag {tag.replace(_TAG, '!!')} is not supported")
        if not isinstance(value, kind):
            raise self._bad(line, f"{text!r} does not match its tag {tag.replace(_TAG, '!!')}")
        return value

    def _bad(self, line: int, message: str) -> BadFileError:
        return BadFileError(self._number, line, message)


class _Merged:
    """A value that came by `<<` and gives way to one written out."""

    __slots__ = ("value",)

    def __init__(self, value: Any) -> None:
        self.value = value


def _unsupported_key(key: Any, value: Any) -> str:
    """The API server's words for a key that is not a string."""
    kind, shown = {
        bool: ("bool", str(key).lower()),
        int: ("int", str(key)),
        float: ("float64", str(key)),
    }.get(type(key), ("%!s(<nil>)", "<nil>"))
    match value:
        case str():
            of = '"' + value.replace("\\", "\\\\").replace('"', '\\"') + '"'
        case bool():
            of = str(value).lower()
        case int() | float():
            of = str(value)
        case None:
            of = "interface {}(nil)"
        case dict():
            of = "map[interface {}]interface {}{...}"
        case _:
            of = "[]interface {}{...}"
    return f"unsupported map key of type: {kind}, key: {shown}, value: {of}"


def whole_number(text: str) -> int | float:
    """An integer of more than 64 bits becomes a float, as for readers of JSON."""
    value = int(text, 0) if len(text) <= _LONGEST_INT else float(text)
    return value if _LEAST_INT <= value <= _MOST_INT else float(value)


def _plain(text: str) -> Any:
    """The value of a plain scalar."""
    value = _WORDS.get(text, _NOTHING)
    if value is not _NOTHING:
        return value
    if text[0] in "+-.0123456789":
        if _INT.fullmatch(text):
            return whole_number(text)
        if _FLOAT.fullmatch(text):
            return float(text)
    return text


# Objects as YAML.


class _Plain(yaml.CSafeDumper):
    """Writes shared parts in full: not every reader of YAML knows anchors."""

    def ignore_aliases(self, data: Any) -> bool:
        return True


def write_yaml(raw: Any, sort_keys: bool = False) -> str:
    """Keys as they were written, or in order of the alphabet; long lines as they are."""
    text: str = yaml.dump(raw, Dumper=_Plain, sort_keys=sort_keys, allow_unicode=True, width=1000)
    return text
