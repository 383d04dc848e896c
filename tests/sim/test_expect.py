"""Expect documents: what holds passes in silence, what does not is named."""

from pathlib import Path

import pytest

from harness.scenarios import NODE, joined, pod_text, simulate
from holdfast.local.timeline import EVENTS
from holdfast.snapshot.manifests import InvalidInput

EXAMPLES = Path(__file__).parents[2] / "examples"
N2 = "{apiVersion: v1, kind: Node, metadata: {name: n2, annotations: {sim.holdfast.io/delete-at: 0s}}}"
"""A node that is gone before the scheduler runs."""
EXPECT = "{apiVersion: sim.holdfast.io/v1alpha1, kind: Expect, %s}"


@pytest.mark.parametrize(
    ("expected", "complaint"),
    [
        ("bound: {p: n1}", None),
        ("bound: {default/p: [n2, n1]}", None),
        ("bound: {p: n2}", "bound.p: expected on n2, is on n1"),
        ("bound: {big: n1}", "bound.big: expected on n1, has no node: 0/1 nodes are available"),
        ("bound: {q: n1}", "bound.q: there is no such pod"),
        ("pending: {big: ''}", None),
        (
            "pending: {big: '0/1 nodes are available: 1 Insufficient cpu. preemption: 0/1 nodes are "
            "available: 1 Preemption is not helpful for scheduling.'}",
            None,
        ),
        ("pending: {big: 'no capacity'}", "pending.big: expected 'no capacity', got '0/1 nodes are"),
        ("pending: {p: ''}", "pending.p: is on n1"),
        ("phases: {p: Succeeded, big: Pending}", None),
        ("phases: {p: Running}", "phases.p: expected Running, got Succeeded"),
        ("at: 1s, phases: {p: Running}", None),
        ("phases: {'1': Running}", "phases.1: there is no such pod"),
        ("absent: [Pod/default/q]", None),
        ("absent: [Pod/default/p]", "absent: Pod/default/p exists"),
        ("timeline: [{event: Bound}, {t: 5s, event: Succeeded}]", None),
        (
            "timeline: [{event: Succeeded}, {object: Pod/default/p, event: Bound}]",
            "timeline[1]: object Pod/default/p, event Bound did not happen in this order",
        ),
        ("timeline: [{event: Evicted}]", "timeline[0]: event Evicted did not happen"),
        ("never: [{object: Pod/default/big, event: Bound}]", None),
        ("never: [{event: Bound}]", "never[0]: event Bound happened at 0s"),
    ],
)
def test_expectations(expected: str, complaint: str | None) -> None:
    unmet = simulate(
        joined(NODE, N2, pod_text("p", runs_for="5s"), pod_text("big", "8"), EXPECT % expected)
    ).unmet
    if complaint is None:
        assert unmet == []
    else:
        assert len(unmet) == 1
        assert unmet[0].startswith("s.yaml: document 5, line 9: Expect: ")
        assert complaint in unmet[0]


@pytest.mark.parametrize(
    ("expected", "complaint"),
    [
        (
            "absent: [{kind: Pod}]",
            "absent[0]: expected an object such as Pod/default/web",
        ),
        ("bound: {p: 5}", "bound.p: expected a node's name, got 5"),
        ("bound: [p]", "bound: expected a mapping of pods, got a list"),
        ("pending: {p: 5}", "pending.p: expected the message of its condition, got 5"),
        ("phases: {p: Runing}", "got 'Runing'; did you mean Running?"),
        ("absent: [web]", "absent[0]: expected an object such as Pod/default/web, got 'web'"),
        ("timeline: [{t: soon}]", "timeline[0].t: not a duration: 'soon'"),
        ("never: [{event: bound}]", "never[0].event: no event 'bound'; did you mean Bound?"),
        ("never: [{event: 5}]", "never[0].event: expected a string, got 5"),
        (
            "timeline: [{object: Pods/default/p}]",
            "timeline[0].object: no kind 'Pods'; did you mean Pod?",
        ),
        (
            "never: [{object: Pod/p}]",
            "never[0].object: expected Pod/NAMESPACE/NAME, got 'Pod/p'; did you mean Pod/default/p?",
        ),
        (
            "absent: [Reservation/default/r]",
            "absent[0]: expected Reservation/NAME, got 'Reservation/default/r'; did you mean "
            "Reservation/r?",
        ),
        ("never: [{node: n-1}]", "never[0].node: no node 'n-1'; did you mean n1?"),
        ("at: 1s, bound: {p: [n1, m]}", "document 2, line 3: Expect: bound.p: no node 'm'"),
    ],
)
def test_invalid_expectations_are_refused(expected: str, complaint: str) -> None:
    with pytest.raises(InvalidInput) as refused:
        simulate(joined(NODE, EXPECT % expected))
    assert complaint in str(refused.value)


def test_a_node_that_a_step_creates_can_be_expected() -> None:
    step = (
        "{apiVersion: sim.holdfast.io/v1alpha1, kind: Step, at: 1s, apply: "
        "{apiVersion: v1, kind: Node, metadata: {name: late}}}"
    )
    assert not simulate(joined(NODE, step, EXPECT % "never: [{event: Bound, node: late}]")).unmet


def test_the_documented_events_are_those_of_the_timeline() -> None:
    table = (EXAMPLES / "README.md").read_text().partition("| events in the timeline |")[2]
    rows = [line for line in table.partition("\n\n")[0].splitlines()[2:] if line]
    documented = {event for row in rows for event in row.split("|")[2].strip().split(", ")}
    assert documented == set(EVENTS)


def test_all_statements_that_are_false_are_named() -> None:
    wrong = "bound: {p: n2, q: n1}, pending: {p: ''}, phases: {p: Failed}"
    unmet = simulate(joined(NODE, N2, pod_text("p"), EXPECT % wrong)).unmet
    assert [each.split(": ")[3] for each in unmet] == ["bound.p", "bound.q", "pending.p", "phases.p"]
