"""The answer as data matches its published schema; the page is one file."""

import json
from importlib.resources import files
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from harness.objects import reservation
from holdfast.cli.what_if_tables import summary_text
from holdfast.sim.what_if.page import answer_page
from sim.what_if.clusters import ask, budget, cluster, node, pod, priority, workload

ROOT = Path(__file__).parents[3]
TWO = (node("n1"), node("n2"))
ANSWERS: dict[str, tuple[tuple[dict[str, Any], ...], dict[str, Any]]] = {
    "placed": (TWO, {"manifests": [workload("w", 2)]}),
    "pending": (TWO, {"manifests": [workload("w", 2, "9")]}),
    "preempted": (
        (node("n1"), priority("high", 9), workload("w", 4)),
        {"manifests": [pod("p", "4", priorityClassName="high")]},
    ),
    "drained": ((*TWO, workload("w", 4), budget("w", minAvailable=4)), {"drains": ["n1"]}),
    "removed": ((*TWO, workload("w", 4)), {"removals": ["n1"], "nodes": ["+1xn2"]}),
    "planned": (TWO, {"manifests": [workload("w", 9)], "plan": ["n1", "cpu=1"]}),
    "no nodes": ((), {"manifests": [pod("p")]}),
}


def schema(name: str) -> Any:
    return json.loads(
        files("holdfast.sim.what_if").joinpath("schemas", f"{name}.schema.json").read_bytes()
    )


@pytest.mark.parametrize("case", ANSWERS)
def test_the_answer_is_as_the_schema_says(case: str) -> None:
    objects, changes = ANSWERS[case]
    data = json.loads(json.dumps(ask(cluster(*objects), **changes).data()))
    jsonschema.validate(data, schema("what_if"), jsonschema.Draft202012Validator)


def test_reservations_on_a_node_that_is_removed_are_named_as_lost() -> None:
    kept, lost = (reservation(name, "1", name) for name in ("kept", "lost"))
    for each, place in ((kept, "n2"), (lost, "n1")):
        each["spec"]["template"]["spec"]["nodeName"] = place
    answer = ask(cluster(*TWO, kept, lost), removals=["n1"])
    data = answer.data()
    assert data["lostReservations"] == [
        {"object": "Reservation/lost", "node": "n1", "reason": "NodeRemoved", "by": ""}
    ]
    jsonschema.validate(data, schema("what_if"), jsonschema.Draft202012Validator)
    assert summary_text(answer).endswith("1 reservation lost, 0 newly pending.")
    assert "<h2>Lost reservations</h2>" in answer_page(answer)


def test_the_schema_is_one() -> None:
    for name in ("what_if", "check"):
        jsonschema.Draft202012Validator.check_schema(schema(name))


def test_a_wrong_answer_is_found() -> None:
    data = ask(cluster(*TWO), manifests=[pod("p")]).data()
    del data["placed"][0]["node"]
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(data, schema("what_if"), jsonschema.Draft202012Validator)


@pytest.mark.parametrize("name", ["what_if", "check"])
def test_the_schema_is_in_the_documentation(name: str) -> None:
    published = ROOT / "docs" / "reference" / f"{name.replace('_', '-')}.schema.json"
    assert json.loads(published.read_text()) == schema(name), "make reference"


@pytest.mark.parametrize("case", ANSWERS)
def test_the_page_is_one_file(case: str) -> None:
    objects, changes = ANSWERS[case]
    answer = ask(cluster(*objects), **changes)
    page = answer_page(answer)
    assert page.startswith("<!doctype html>")
    assert "<script" not in page and 'src="' not in page and "http://" not in page
    assert all(change in page for change in answer.changes)
    assert all(each.was in page for each in answer.pending)


def test_names_are_escaped_in_the_page() -> None:
    answer = ask(cluster(*TWO), manifests=[pod("p")])
    answer.changes.append("<b>")
    assert "<b>" not in answer_page(answer).partition("<ul>")[2].partition("</ul>")[0]
