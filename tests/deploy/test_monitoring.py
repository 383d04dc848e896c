"""Dashboards and alerts: every metric and label in them is one that the program exposes."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from reference_pages.metrics import all_metrics

from deploy.chart import ROOT, rendered

Raw = dict[str, Any]

MONITORING = ROOT / "deploy" / "monitoring"
DASHBOARDS = sorted((MONITORING / "grafana").glob("*.json"))
RULES: Raw = yaml.safe_load((MONITORING / "prometheusrules.yaml").read_text())
ALERTS: list[Raw] = [rule for group in RULES["spec"]["groups"] for rule in group["rules"]]
RUNBOOK = ROOT / "docs" / "production" / "runbook.md"

LABELS = {series: set(metric.labels) for metric in all_metrics() for series in metric.series}
LABELS |= {name: LABELS[name] | {"le"} for name in LABELS if name.endswith("_bucket")}
PROCESS = {"process_cpu_seconds_total", "process_resident_memory_bytes", "process_open_fds"}
TARGET = {"job", "instance", "namespace", "pod"}
"""Labels that Prometheus adds."""

_METRIC = re.compile(r"\b((?:holdfast|scheduler|leader_election|rest_client|process)_\w+)(\{[^}]*\})?")
_MATCHER = re.compile(r"(\w+)\s*(?:=~|!~|!=|=)")
_GROUPING = re.compile(r"\bby \(([^)]*)\)")
_STRING = re.compile(r'"[^"]*"')


def wrong(expression: str) -> Iterator[str]:
    """Metrics and labels of a PromQL expression that do not exist."""
    known: set[str] = set(TARGET)
    for name, matchers in _METRIC.findall(_GROUPING.sub("", expression)):
        if name not in LABELS and name not in PROCESS:
            yield f"no metric {name}"
            continue
        labels = LABELS.get(name, set()) | TARGET
        known |= labels
        used = set(_MATCHER.findall(_STRING.sub("", matchers)))
        yield from (f"{name} has no label {label}" for label in sorted(used - labels))
    grouped = {label.strip() for found in _GROUPING.findall(expression) for label in found.split(",")}
    yield from (f"no label {label} to group by" for label in sorted(grouped - known))


@pytest.mark.parametrize("path", DASHBOARDS, ids=lambda path: path.stem)
def test_a_dashboard_shows_what_there_is(path: Path) -> None:
    board: Raw = json.loads(path.read_text())
    assert board["title"].startswith("Holdfast: ")
    assert board["description"]
    assert "://" not in path.read_text()
    panels = [panel for panel in board["panels"] if panel["type"] != "row"]
    assert len({panel["id"] for panel in board["panels"]}) == len(board["panels"])
    for panel in panels:
        assert panel["title"]
        assert panel["fieldConfig"]["defaults"]["unit"]
        assert panel["gridPos"]["x"] + panel["gridPos"]["w"] <= 24
        for target in panel["targets"]:
            assert not list(wrong(target["expr"])), f"{panel['title']}: {target['expr']}"
            legend = set(re.findall(r"\{\{(\w+)\}\}", target["legendFormat"]))
            assert legend <= set(re.findall(r"\w+", target["expr"])) | TARGET, panel["title"]


def test_dashboards_have_names_of_their_own() -> None:
    boards = [json.loads(path.read_text()) for path in DASHBOARDS]
    assert len(boards) == 4
    assert len({board["uid"] for board in boards}) == 4


@pytest.mark.parametrize("alert", ALERTS, ids=lambda alert: alert["alert"])
def test_an_alert_speaks_of_what_there_is_and_says_what_to_do(alert: Raw) -> None:
    assert not list(wrong(alert["expr"])), alert["expr"]
    assert alert["labels"]["severity"] in ("critical", "warning", "info")
    annotations = alert["annotations"]
    assert annotations.keys() == {"summary", "description", "runbook"}
    page, _, anchor = annotations["runbook"].partition("#")
    headings = re.findall(r"^#+ (.+)$", RUNBOOK.read_text(), re.MULTILINE)
    anchors = {re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in headings}
    assert page == "production/runbook.md"
    assert anchor in anchors


def test_alerts_have_names_of_their_own() -> None:
    assert len({alert["alert"] for alert in ALERTS}) == len(ALERTS)


@pytest.mark.parametrize(
    ("expression", "problem"),
    [
        ("rate(holdfast_nothing_total[5m])", "no metric holdfast_nothing_total"),
        ('holdfast_holds{phase="x"}', "holdfast_holds has no label phase"),
        ("sum by (phase) (holdfast_holds)", "no label phase to group by"),
    ],
)
def test_a_mistake_is_found(expression: str, problem: str) -> None:
    assert list(wrong(expression)) == [problem]


def test_the_chart_renders_the_same_rules_and_dashboards() -> None:
    assert not [each for each in rendered({}) if each["kind"] == "PrometheusRule"]
    values: Raw = {"prometheusRule": {"enabled": True}, "dashboards": {"enabled": True}}
    documents = rendered(values)
    [rule] = [each for each in documents if each["kind"] == "PrometheusRule"]
    assert rule["spec"] == RULES["spec"]
    [boards] = [each for each in documents if "grafana_dashboard" in each["metadata"]["labels"]]
    assert boards["data"].keys() == {path.name for path in DASHBOARDS}
    for path in DASHBOARDS:
        assert json.loads(boards["data"][path.name]) == json.loads(path.read_text())
