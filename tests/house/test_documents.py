"""Documents: the files that links lead to, and the paths and names in code spans, exist."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from house.source import REPOSITORY, SOURCE, defines

DOCUMENTS = [
    *sorted((REPOSITORY / "docs").glob("*.md")),
    REPOSITORY / "CONTRIBUTING.md",
    REPOSITORY / "README.md",
]

_FENCED = re.compile(r"^```.*?^```", re.MULTILINE | re.DOTALL)
_LINK = re.compile(r"\]\((?!https?:|#)([^)#\s]+)")
_CODE = re.compile(r"`([\w./-]+(?:::[\w.]+)?)`")
_FOLDERS = {"deploy", "docs", "examples", "src", "tests", "tools"}
_FORMER = {"actions", "backends", "controllers", "core", "framework", "plugins", "server", "store"}
"""Packages that moved: a path that starts with one of them is an old one."""


@pytest.fixture(params=DOCUMENTS, ids=lambda path: path.name)
def document(request: pytest.FixtureRequest) -> Path:
    path = request.param
    assert isinstance(path, Path)
    return path


def test_links_lead_to_files(document: Path) -> None:
    gone = [link for link in _LINK.findall(_text(document)) if not (document.parent / link).exists()]
    assert not gone, f"{document.name} links to what is not there: {gone}"


def test_paths_and_names_of_the_source_exist(document: Path) -> None:
    gone = [span for span in _CODE.findall(_text(document)) if _is_path(span) and not _exists(span)]
    assert not gone, f"{document.name} names what is not there: {gone}"


def _text(document: Path) -> str:
    return _FENCED.sub("", document.read_text())


def _is_path(span: str) -> bool:
    """Whether a code span is a path of this repository: it starts with one of its folders or
    packages, or is a Python file, with or without `::Name` behind it."""
    path = span.partition("::")[0]
    first, slash, _ = path.partition("/")
    return bool(first and slash) and (
        path.endswith(".py")
        or first in _FORMER
        or (
            first in {"docs", "examples", "src", "tests", "tools", "deploy"}
            and (REPOSITORY / first).is_dir()
        )
        or (SOURCE / first / "__init__.py").is_file()
    )


def _exists(span: str) -> bool:
    path, _, name = span.partition("::")
    found = [root / path for root in (REPOSITORY, SOURCE) if (root / path).exists()]
    return bool(found) and (not name or defines(found[0], name))
