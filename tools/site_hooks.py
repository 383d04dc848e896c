"""Hooks of mkdocs: files of the repository that pages link to become pages of the site.

A page of docs/ links to `../examples/tour.yaml` or `../SECURITY.md`, so that the link works where the
repository is browsed. On the site, a Markdown file is rendered, any other file is shown as code, and a
folder as a list of its files.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File, Files

ROOT = Path(__file__).resolve().parent.parent
FOLDER = "repository"
"""The folder of the site with these pages."""

LISTING = "files.md"
"""The page of a folder."""

_FENCED = re.compile(r"(^```.*?^```)", re.MULTILINE | re.DOTALL)
_LINK = re.compile(r"(?<=\]\()(?!\w+:|#)([^)#\s]+)(?=[)#])")
_LANGUAGES = {".yaml": "yaml", ".py": "python", ".json": "json", ".toml": "toml", ".tpl": "yaml"}
_UNLISTED = "---\nsearch:\n  exclude: true\n---\n\n"


def on_files(files: Files, config: Any) -> Files:
    docs = Path(config.docs_dir)
    pending = sorted(target for page in docs.rglob("*.md") for target in linked(page, docs))
    seen: set[Path] = set()
    while pending:
        target = pending.pop()
        if target in seen:
            continue
        seen.add(target)
        pending += linked(target, docs)
        if target.is_dir():
            pending += listed(target)
        files.append(File.generated(config, page_of(target), content=content(target)))
    return files


def on_page_markdown(markdown: str, page: Any, config: Any, files: Files) -> str:
    source = origin(page.file.src_uri, Path(config.docs_dir))
    parts = _FENCED.split(markdown)
    for i, part in enumerate(parts):
        if i % 2:
            parts[i] = part.replace("```yaml values", "```yaml", 1)
        else:
            parts[i] = _LINK.sub(lambda link: rewritten(link[1], source, page.file.src_uri), part)
    return "".join(parts)


def linked(page: Path, docs: Path) -> Iterator[Path]:
    """The files of the repository outside docs/ that a page links to."""
    if page.suffix != ".md":
        return
    for link in _LINK.findall(_FENCED.sub("", page.read_text(encoding="utf-8"))):
        target = (page.parent / link).resolve()
        if target.exists() and target.is_relative_to(ROOT) and not target.is_relative_to(docs):
            yield target


def listed(folder: Path) -> list[Path]:
    return sorted(each for each in folder.iterdir() if each.is_file())


def page_of(target: Path) -> str:
    """The path of the page in docs/ that shows a file of the repository."""
    path = target.relative_to(ROOT).as_posix()
    if target.is_dir():
        return f"{FOLDER}/{path}/{LISTING}"
    return f"{FOLDER}/{path}" if target.suffix == ".md" else f"{FOLDER}/{path}.md"


def origin(uri: str, docs: Path) -> Path:
    """The file of the repository that a page of the site comes from."""
    if not uri.startswith(f"{FOLDER}/"):
        return docs / uri
    path = ROOT / uri.removeprefix(f"{FOLDER}/")
    return path if path.exists() or path.name == LISTING else path.with_suffix("")


def content(target: Path) -> str:
    if target.suffix == ".md":
        return target.read_text(encoding="utf-8")
    name = target.relative_to(ROOT).as_posix()
    if target.is_dir():
        files = "".join(f"* [{each.name}]({each.name})\n" for each in listed(target))
        return f"{_UNLISTED}# {name}\n\n{files}"
    language = _LANGUAGES.get(target.suffix, "text")
    text = target.read_text(encoding="utf-8").rstrip("\n")
    return f"{_UNLISTED}# {name}\n\n````{language}\n{text}\n````\n"


def rewritten(link: str, source: Path, uri: str) -> str:
    """The link for a page of the site at `uri` that comes from the file `source`."""
    docs = ROOT / "docs"
    target = (source.parent / link).resolve()
    if not target.exists() or not target.is_relative_to(ROOT):
        return link
    shown = target.relative_to(docs).as_posix() if target.is_relative_to(docs) else page_of(target)
    return posixpath.relpath(shown, posixpath.dirname(uri) or ".")
