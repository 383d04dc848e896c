"""Loads YAML and JSON documents from files, folders and standard input; each may be gzip-compressed."""

import codecs
import gc
import json
import re
import sys
import zlib
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any

import msgspec

from holdfast.api.documents import MAX_BYTES, MAX_DEPTH, BadFileError, Document, read_yaml, whole_number
from holdfast.api.errors import HoldfastError
from holdfast.snapshot.snapshot_header import SNAPSHOT_STARTS

SUFFIXES = (".yaml", ".yml", ".json", ".jsonl")
_COMPRESSED = tuple(f"{each}.gz" for each in SUFFIXES)
_GZIP = b"\x1f\x8b"
"""What a gzip file begins with."""
_GZIP_MEMBER = 31
"""For zlib: the format of a member of a gzip file, with the largest window."""
_UTF_16 = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)
"""What a text file begins with into which Windows PowerShell redirects output."""
_SNAPSHOT_STARTS = SNAPSHOT_STARTS.encode()
_HALF_A_CHARACTER = re.compile(r"\\u[dD][89a-fA-F]")
"""An escape that makes sense beside another one only."""


class InvalidInput(HoldfastError):
    """One line per error, each naming the file, the document and the field."""

    def __init__(self, problems: Iterable[str]) -> None:
        self.problems = list(problems)
        super().__init__("\n".join(self.problems))


def load_files(paths: Sequence[str]) -> list[Document]:
    """All documents of all files, in order. A folder stands for its files, `-` for stdin."""
    problems: list[str] = []
    documents: list[Document] = []
    with _uncollected():
        for name, content in _contents(paths, problems):
            try:
                documents.extend(_loaded(content, name))
            except BadFileError as error:
                place = f"{name}: document {error.number}, line {error.line}"
                problems.append(f"{place}: {error}")
            except UnicodeDecodeError as error:
                problems.append(f"{name}: not UTF-8 text, at byte {error.start}")
    if problems:
        raise InvalidInput(problems)
    return documents


@contextmanager
def _uncollected() -> Iterator[None]:
    """Documents have no reference cycles, and looking for them takes as long as the rest."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            # They count as old: the next object would have all of them looked at as young ones.
            gc.freeze()
            gc.unfreeze()
            gc.enable()


def _loaded(content: bytes, name: str) -> list[Document]:
    if content.startswith(_SNAPSHOT_STARTS):
        return list(_expanded([Document(name, 1, 1, _written_by_us(content))]))
    encoding = "utf-16" if content.startswith(_UTF_16) else "utf-8-sig"
    return load_text(content.decode(encoding), name)


def load_text(text: str, name: str) -> list[Document]:
    """The documents of a text; empty ones are left out but counted. A List stands for its items."""
    return list(_expanded(_documents(text, name)))


def _documents(text: str, name: str) -> list[Document]:
    is_json = name.removesuffix(".gz").endswith((".json", ".jsonl"))
    if is_json or text.lstrip()[:1] == "{":
        try:
            return _json(text, name)
        except json.JSONDecodeError as error:
            if is_json:
                raise BadFileError(1, error.lineno, f"not JSON: {error.msg}") from None
    return list(read_yaml(text, name))


def load_one(path: str) -> Any:
    """The only document of a file, for configuration files."""
    documents = load_files([path])
    if len(documents) != 1:
        found = str(len(documents))
        if (
            documents
            and documents[0].item is not None
            and len({each.number for each in documents}) == 1
        ):
            found = f"a List of {len(documents)} objects"
        raise InvalidInput([f"{path}: expected one document, found {found}"])
    return documents[0].data


def _contents(paths: Sequence[str], problems: list[str]) -> Iterator[tuple[str, bytes]]:
    for given in paths:
        path = Path(given)
        names = [given]
        if given != "-" and path.is_dir():
            names = sorted(
                str(each) for each in path.iterdir() if each.name.endswith((*SUFFIXES, *_COMPRESSED))
            )
            if not names:
                problems.append(f"{given}: no {', '.join(SUFFIXES)} file in this directory")
        for name in names:
            try:
                content = _content(name)
                if len(content) > MAX_BYTES:
                    problems.append(f"{name}: larger than {MAX_BYTES // 1024**2} MiB")
                    continue
                yield name, content
            except (EOFError, zlib.error) as error:
                problems.append(f"{name}: damaged gzip file: {error}")
            except OSError as error:
                problems.append(f"{name}: {error.strerror or error}")


def _content(name: str) -> bytes:
    """The first MAX_BYTES of the file and one more, decompressed."""
    with nullcontext(sys.stdin.buffer) if name == "-" else Path(name).open("rb") as file:
        content = file.read(MAX_BYTES + 1)
    if not content.startswith(_GZIP):
        return content
    return _decompressed(content)


def _decompressed(content: bytes) -> bytes:
    """All members of a gzip file, as one. Raises EOFError, zlib.error."""
    parts: list[bytes] = []
    left = MAX_BYTES + 1
    while content.startswith(_GZIP) and left:
        member = zlib.decompressobj(wbits=_GZIP_MEMBER)
        parts.append(member.decompress(content, left))
        left -= len(parts[-1])
        if left and not member.eof:
            raise EOFError("it ends before its end-of-stream marker")
        content = member.unused_data.lstrip(b"\0")
    if content and left:
        raise zlib.error("something follows that is not compressed")
    return b"".join(parts)


def _expanded(documents: Iterable[Document]) -> Iterator[Document]:
    for document in documents:
        item_kind = _item_kind(document.data)
        if item_kind is None:
            yield document
            continue
        items = document.data["items"] or []
        if not isinstance(items, list):
            raise BadFileError(document.number, document.line, "items: expected a list")
        yield from _expanded(
            Document(document.file, document.number, document.line, {**item_kind, **item}, i)
            if item_kind and isinstance(item, dict)
            else Document(document.file, document.number, document.line, item, i)
            for i, item in enumerate(items)
        )


def _item_kind(data: Any) -> dict[str, Any] | None:
    """The kind of a list's items, which they may omit: a PodList has Pods. None if it is not a list."""
    if not isinstance(data, dict) or "items" not in data:
        return None
    kind = data.get("kind")
    if kind == "List":
        return {}
    if isinstance(kind, str) and kind.endswith("List") and "apiVersion" in data and "spec" not in data:
        return {"apiVersion": data["apiVersion"], "kind": kind.removesuffix("List")}
    return None


def _json(text: str, name: str) -> list[Document]:
    """The values of a JSON text, one after the other: one, or one per line, or as `jq` prints them."""
    number = line = 1

    def pairs(found: list[tuple[str, Any]]) -> dict[str, Any]:
        mapping = dict(found)
        if len(mapping) != len(found):
            [(twice, _)] = Counter(key for key, _ in found).most_common(1)
            raise BadFileError(number, line, f"key {twice!r} is given twice")
        return mapping

    def no_number(constant: str) -> None:
        raise BadFileError(number, line, f"not JSON: {constant} is not a number")

    decode = json.JSONDecoder(
        object_pairs_hook=pairs, parse_constant=no_number, parse_int=whole_number
    ).raw_decode
    found: list[Document] = []
    seen, at = 0, _next_value(text, 0)
    while at < len(text):
        line += text.count("\n", seen, at)
        seen = at
        try:
            data, end = decode(text, at)
            if _HALF_A_CHARACTER.search(text, at, end):
                json.dumps(data, ensure_ascii=False).encode()
        except RecursionError:
            raise BadFileError(number, line, f"nested deeper than {MAX_DEPTH} levels") from None
        except UnicodeEncodeError:
            raise BadFileError(number, line, "not Unicode text: half of a surrogate pair") from None
        if _depth(data) > MAX_DEPTH:
            raise BadFileError(number, line, f"nested deeper than {MAX_DEPTH} levels")
        if data is not None:
            found.append(Document(name, number, line, data))
        number += 1
        at = _next_value(text, end)
    return found


_SPACE = re.compile(r"[ \t\r\n]*")


def _next_value(text: str, at: int) -> int:
    match = _SPACE.match(text, at)
    return match.end() if match is not None else at


def _written_by_us(text: bytes) -> Any:
    """A snapshot file, which may be of 100 MB: keys are not looked at twice, as nobody wrote them."""
    try:
        return msgspec.json.decode(text)
    except msgspec.DecodeError as error:
        raise BadFileError(1, 1, f"not JSON: {error}") from None


def _depth(data: Any) -> int:
    depth, level = 0, [data]
    while level := [v for v in level if isinstance(v, dict | list)]:
        depth += 1
        level = [inner for v in level for inner in (v.values() if isinstance(v, dict) else v)]
    return depth
