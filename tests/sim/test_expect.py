"""Expect documents: what holds passes in silence, what does not is named."""

import pytest

from harness.scenarios import NODE, joined, pod_text, simulate
from holdfast.snapshot.manifests import InvalidInput

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
        joined(NODE, pod_text("p", runs_for="5s"), pod_text("big", "8"), EXPECT % expected)
    ).unmet
    if complaint is None:
        assert unmet == []
    else:
        assert len(unmet) == 1
        assert unmet[0].startswith("s.yaml: document 4, line 7: Expect: ")
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
    ],
)
def test_invalid_expectations_are_refused(expected: str, complaint: str) -> None:
    with pytest.raises(InvalidInput) as refused:
        simulate(joined(NODE, EXPECT % expected))
    assert complaint in str(refused.value)


def test_all_statements_that_are_false_are_named() -> None:
    wrong = "bound: {p: n2, q: n1}, pending: {p: ''}, phases: {p: Failed}"
    unmet = simulate(joined(NODE, pod_text("p"), EXPECT % wrong)).unmet
    assert [each.split(": ")[3] for each in unmet] == ["bound.p", "bound.q", "pending.p", "phases.p"]
