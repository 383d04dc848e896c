"""A real browser for tests: Debian's chromium, driven by playwright; and axe-core, if installed.

`HOLDFAST_AXE` names the file axe.min.js of the npm package axe-core; otherwise node_modules of the
repository is looked at. Tests without what they need are skipped; with `HOLDFAST_NEEDS_BROWSER`, as in
CI, they fail.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import pytest

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

REPOSITORY = Path(__file__).parents[2]
_AXE = "node_modules/axe-core/axe.min.js"
FLAGS = [
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]


def chromium() -> str:
    """The path of the browser."""
    found = shutil.which("chromium") or shutil.which("chromium-browser")
    if found is None:
        _lacking("needs the browser chromium (Debian: apt-get install chromium)")
    return found


@contextmanager
def browser() -> Iterator[Browser]:
    path = chromium()
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        opened = playwright.chromium.launch(executable_path=path, args=FLAGS)
        try:
            yield opened
        finally:
            opened.close()


def axe_source() -> str:
    """The program axe-core."""
    places = [Path(os.environ.get("HOLDFAST_AXE") or "none"), REPOSITORY / _AXE]
    found = next((place for place in places if place.is_file()), None)
    if found is None:
        _lacking("needs the npm package axe-core: npm install axe-core, or HOLDFAST_AXE=…/axe.min.js")
    return found.read_text(encoding="utf-8")


def _lacking(why: str) -> NoReturn:
    if os.environ.get("HOLDFAST_NEEDS_BROWSER"):
        pytest.fail(why)
    pytest.skip(why)


def violations(page: Page) -> list[str]:
    """What axe-core finds on the page, by the rules of WCAG 2.2 AA and good practice."""
    page.evaluate(axe_source())
    result: dict[str, Any] = page.evaluate("axe.run(document, {resultTypes: ['violations']})")
    return [
        f"{each['id']}: {node['html'][:200]} {node.get('failureSummary', '')}"
        for each in result["violations"]
        for node in each["nodes"]
    ]
