"""The pages of a report in a real browser: no errors, no requests, and nothing that axe-core finds."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import pytest

from harness.scenarios import joined, pod_text, reservation_text, simulate
from holdfast.sim.report import write_report
from web.browser import browser, chromium, violations

if TYPE_CHECKING:
    from playwright.sync_api import Browser

SCENARIO = joined(
    """{apiVersion: v1, kind: Node, metadata: {name: n1},
        status: {allocatable: {cpu: "4", memory: 8Gi}}}""",
    pod_text("web", "2", runs_for="30s", metadata={"labels": {"app": "r"}}, at="10s"),
    pod_text("next", "3", at="15s"),
    pod_text("big", "9"),
    reservation_text("r", "2"),
    reservation_text("idle", "1", ttl="20s"),
)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    chromium()
    folder = tmp_path_factory.mktemp("report")
    result = simulate(SCENARIO, 60, history=True)
    write_report(folder, [("one.yaml", result), ("two.yaml", result)], ["scenario.yaml"])
    return folder


@pytest.fixture(scope="module")
def chrome() -> Iterator["Browser"]:
    with browser() as opened:
        yield opened


@pytest.mark.parametrize("width", [1280, 400])
@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("name", ["report.html", "one/report.html"])
def test_axe_finds_no_violation(
    chrome: "Browser", folder: Path, name: str, scheme: Literal["dark", "light"], width: int
) -> None:
    context = chrome.new_context(
        viewport={"width": width, "height": 800},
        color_scheme=scheme,
        bypass_csp=True,
    )
    page = context.new_page()
    problems: list[str] = []
    page.on("console", lambda message: problems.append(message.text))
    page.on("pageerror", lambda error: problems.append(str(error)))
    page.on("request", lambda each: None if each.url.startswith("file:") else problems.append(each.url))
    page.goto((folder / name).as_uri())
    for summary in page.locator("summary").all():
        summary.click()
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth"), (
        "it runs out of the page"
    )
    assert violations(page) == []
    assert problems == []
    context.close()


def test_the_slider_shows_a_moment(chrome: "Browser", folder: Path) -> None:
    page = chrome.new_page()
    page.goto((folder / "one/report.html").as_uri())
    page.locator("#time").focus()
    page.keyboard.press("Home")
    page.locator("#now", has_text=re.compile("^0s$")).wait_for()
    page.get_by_text("No reservations at this moment.").or_(
        page.get_by_text("that have not ended")
    ).wait_for()
    page.keyboard.press("End")
    page.locator("#now", has_text=re.compile("^1m$")).wait_for()
    assert "1 pod" in page.locator("#nodes").inner_text()
    totals = page.locator("#totals").inner_text()
    assert "cpu" in totals
    assert "memory" not in totals, "no pod requests it"
    page.close()
