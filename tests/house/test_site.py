"""The documentation site builds strictly, refers to no other host, and its links lead somewhere.

Links to other hosts in the text are the reader's choice; what a page loads by itself (scripts, styles,
images, fonts) must be part of the site.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest
import yaml

from house.source import REPOSITORY

LOADED = {"script": "src", "img": "src", "iframe": "src", "source": "src", "link": "href"}
"""Elements that a browser loads by itself, and the attribute with the address."""
_STYLE_URL = re.compile(r"url\(\s*['\"]?([^'\")]+)|@import\s+['\"]([^'\"]+)")


class PageLinks(HTMLParser):
    """The addresses and anchors of a page."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.loaded: list[str] = []
        self.links: list[str] = []
        self.anchors: set[str] = set()
        self.classes: set[str] = set()
        self.feed(text)

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        values = {name: value or "" for name, value in attributes}
        self.anchors |= {values[name] for name in ("id", "name") if name in values}
        self.classes |= set(values.get("class", "").split())
        if values.get(LOADED.get(tag, "")):
            self.loaded.append(values[LOADED[tag]])
        elif tag == "a" and values.get("href"):
            self.links.append(values["href"])


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> dict[Path, PageLinks]:
    folder = tmp_path_factory.mktemp("site")
    build = ["mkdocs", "build", "--quiet", "--strict", "--site-dir", str(folder)]
    environment = os.environ | {"NO_MKDOCS_2_WARNING": "1"}
    done = subprocess.run(
        [sys.executable, "-m", *build],
        cwd=REPOSITORY,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return {page: PageLinks(page.read_text()) for page in sorted(folder.rglob("*.html"))}


def test_the_site_is_complete_in_itself(site: dict[Path, PageLinks]) -> None:
    """One test, so that the site is built once."""
    wrong = [problem for page in site for problem in (*_loaded(page, site), *_links(page, site))]
    assert not wrong, "\n".join(wrong)
    root = next(iter(site)).parent
    styles = [(path, path.read_text()) for path in root.rglob("*.css")]
    foreign = [
        f"{path.relative_to(root)}: {found[0]}"
        for path, text in styles
        for found in _STYLE_URL.finditer(text)
        if urlsplit(found[1] or found[2]).netloc
    ]
    assert styles
    assert not foreign, "\n".join(foreign)
    assert (root / "search" / "search_index.json").is_file()


def _loaded(page: Path, site: dict[Path, PageLinks]) -> Iterator[str]:
    if "mermaid" in site[page].classes:
        yield f"{page.name}: a mermaid diagram, whose script the theme loads from another host"
    for address in site[page].loaded:
        parts = urlsplit(address)
        if parts.scheme or parts.netloc:
            yield f"{page.name} loads {address}"
        elif page.name != "404.html" and not (page.parent / unquote(parts.path)).exists():
            yield f"{page.name} loads {address}, which is not there"


def _links(page: Path, site: dict[Path, PageLinks]) -> Iterator[str]:
    for address in site[page].links:
        parts = urlsplit(address)
        if parts.scheme or parts.netloc or page.name == "404.html":
            continue
        target = (page.parent / unquote(parts.path)).resolve() if parts.path else page
        if target.is_dir():
            target /= "index.html"
        if not target.exists():
            yield f"{page.name} links to {address}, which is not there"
        elif parts.fragment and target in site and unquote(parts.fragment) not in site[target].anchors:
            yield f"{page.name} links to {address}: no such heading"


def test_the_configuration_needs_no_other_host() -> None:
    configuration = yaml.safe_load((REPOSITORY / "mkdocs.yml").read_text())
    assert configuration["theme"]["font"] is False
    assert not {"repo_url", "site_url"} & configuration.keys()
    assert configuration["plugins"] == ["search"], "others must work without a network"


def test_every_page_is_in_the_navigation_once() -> None:
    configuration = yaml.safe_load((REPOSITORY / "mkdocs.yml").read_text())
    listed = list(_pages(configuration["nav"]))
    docs = REPOSITORY / "docs"
    assert sorted(listed) == sorted(str(each.relative_to(docs)) for each in docs.rglob("*.md"))


def _pages(part: object) -> Iterator[str]:
    if isinstance(part, str):
        yield part
    elif isinstance(part, dict):
        part = list(part.values())
    if isinstance(part, list):
        for each in part:
            yield from _pages(each)
