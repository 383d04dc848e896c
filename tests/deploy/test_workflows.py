"""The files of .github: workflows that parse, with pinned actions and few permissions; issue forms."""

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from deploy.chart import ROOT

Raw = dict[str, Any]

GITHUB = ROOT / ".github"
WORKFLOWS = sorted((GITHUB / "workflows").glob("*.yml"))
_MAKEFILE = (ROOT / "Makefile").read_text()


def _load(path: Path) -> Raw:
    # YAML 1.1 reads the key `on` as true.
    loaded = yaml.safe_load(path.read_text())
    return {("on" if key is True else key): value for key, value in loaded.items()}


def test_there_is_a_workflow_for_each_purpose() -> None:
    assert {path.stem for path in WORKFLOWS} == {"test", "docs", "release"}


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.stem)
def test_workflow(path: Path) -> None:
    workflow = _load(path)
    assert workflow.keys() >= {"name", "on", "permissions", "jobs"}
    assert workflow["permissions"] == {"contents": "read"}, "jobs ask for more where they need it"
    for name, job in workflow["jobs"].items():
        assert job.keys() >= {"runs-on", "timeout-minutes", "steps"}, name
        assert job.get("needs", name) in workflow["jobs"]
        for step in job["steps"]:
            assert ("uses" in step) != ("run" in step)
            if "uses" in step:
                assert re.fullmatch(r"[\w-]+/[\w-]+@v\d+", step["uses"]), step["uses"]
            for target in re.findall(r"\bmake ([a-z-]+)", step.get("run", "")):
                assert re.search(rf"^{target}:", _MAKEFILE, re.MULTILINE), target


def test_the_tests_of_the_dashboard_are_not_skipped() -> None:
    steps = _load(GITHUB / "workflows" / "test.yml")["jobs"]["test"]["steps"]
    (at,) = [at for at, step in enumerate(steps) if step.get("run") == "make test"]
    environment = steps[at]["env"]
    assert environment["HOLDFAST_NEEDS_BROWSER"] == "1", "a test without a browser fails"
    installs = "\n".join(step.get("run", "") for step in steps[:at])
    assert 'npm install --prefix "$RUNNER_TEMP/axe" axe-core' in installs
    assert environment["HOLDFAST_AXE"] == "${{ runner.temp }}/axe/node_modules/axe-core/axe.min.js"
    assert "chromium" in installs


@pytest.mark.parametrize("path", sorted(GITHUB.rglob("*.*")), ids=lambda path: path.name)
def test_no_host_is_named(path: Path) -> None:
    """Registries are variables of the repository."""
    assert not re.search(r"https?://|\b[\w-]+\.(?:io|com|org|dev)\b", path.read_text())


@pytest.mark.parametrize("name", ["bug", "feature"])
def test_issue_form(name: str) -> None:
    form = _load(GITHUB / "ISSUE_TEMPLATE" / f"{name}.yml")
    assert form.keys() >= {"name", "description", "body"}
    fields = [field for field in form["body"] if field["type"] != "markdown"]
    assert len({field["id"] for field in fields}) == len(fields)
    assert any(field.get("validations", {}).get("required") for field in fields)
    assert all(field["attributes"]["label"] for field in fields)


def test_a_bug_report_asks_for_version_and_explanation() -> None:
    text = (GITHUB / "ISSUE_TEMPLATE" / "bug.yml").read_text()
    assert "holdfast version" in text
    assert "holdfast explain" in text
