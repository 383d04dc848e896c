"""Documents: the files and headings that links lead to exist, and so do paths in code spans."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from house.markdown import PAGES
from house.source import REPOSITORY, SOURCE, defines
from house.test_names import BANNED

DOCUMENTS = [
    *sorted((REPOSITORY / "docs").rglob("*.md")),
    REPOSITORY / "CODE_OF_CONDUCT.md",
    REPOSITORY / "CONTRIBUTING.md",
    REPOSITORY / "README.md",
    REPOSITORY / "SECURITY.md",
    REPOSITORY / "examples" / "README.md",
]

_FENCED = re.compile(r"^```.*?^```", re.MULTILINE | re.DOTALL)
_LINK = re.compile(r"\]\((?!https?:|#)([^)#\s]+)")
_ANCHOR = re.compile(r"\]\((?!https?:)([^)#\s]*)#([^)\s]+)\)")
_HEADING = re.compile(r"^#+ (.+)$", re.MULTILINE)
_CODE = re.compile(r"`([\w./-]+(?:::[\w.]+)?)`")
_FOLDERS = {"deploy", "docs", "examples", "src", "tests", "tools"}
_FORMER = {"actions", "backends", "controllers", "core", "framework", "plugins", "server", "store"}
"""Packages that moved: a path that starts with one of them is an old one."""

_ORDINARY = frozenset(
    """
    accounts ahead alone care clearing giving hands nobody offer offered passing said say says taking
    tell tells turn
    """.split()
)
"""Words of `BANNED` that documents may use in their everyday sense."""
_CODE_SPAN = re.compile(r"`[^`]*`|\]\([^)]*\)")
_METRIC = re.compile(r"\b(?:holdfast|scheduler)_[a-z_]+[a-z]")


@pytest.fixture(params=DOCUMENTS, ids=lambda path: str(path.relative_to(REPOSITORY)))
def document(request: pytest.FixtureRequest) -> Path:
    path = request.param
    assert isinstance(path, Path)
    return path


def test_links_lead_to_files(document: Path) -> None:
    gone = [link for link in _LINK.findall(_text(document)) if not (document.parent / link).exists()]
    assert not gone, f"{document.name} links to what is not there: {gone}"


def test_anchors_of_links_are_headings(document: Path) -> None:
    gone = [
        f"{file}#{anchor}"
        for file, anchor in _ANCHOR.findall(_text(document))
        if anchor not in _anchors(document.parent / file if file else document)
    ]
    assert not gone, f"{document.name} links to headings that are not there: {gone}"


def test_paths_and_names_of_the_source_exist(document: Path) -> None:
    gone = [span for span in _CODE.findall(_text(document)) if _is_path(span) and not _exists(span)]
    assert not gone, f"{document.name} names what is not there: {gone}"


def test_prose_is_in_the_words_of_the_field(document: Path) -> None:
    if document in PAGES:
        prose = _CODE_SPAN.sub("", _text(document)).lower()
        private = sorted((BANNED - _ORDINARY) & set(re.findall("[a-z]+", prose)))
        assert not private, (
            f"words of our own in {document.name}; docs/glossary.md has the field's: {private}"
        )


def test_metrics_that_documents_name_exist() -> None:
    source = "".join(path.read_text() for path in SOURCE.rglob("*.py"))
    named = {name for page in PAGES for name in _METRIC.findall(page.read_text())}
    gone = [name for name in named if not any(each in source for each in _in_source(name))]
    assert not gone, f"no such metrics: {sorted(gone)}"


def _in_source(metric: str) -> tuple[str, ...]:
    """How the source can name a metric: whole, without the suffix that the library appends, or with
    its last word but one filled in."""
    prefix, _, _ = metric.removesuffix("_total").rpartition("_")
    return metric, metric.removesuffix("_total"), metric.removesuffix("_info"), prefix + "_{"


def _anchors(document: Path) -> set[str]:
    """The anchors that a Markdown renderer gives to headings."""
    headings = _HEADING.findall(_text(document))
    return {re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in headings}


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
