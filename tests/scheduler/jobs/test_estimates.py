"""A run-time estimate that is malformed, or whose name is misspelt, is reported on the pod."""

from typing import Any

import pytest

from harness.builders import make_node, make_pod
from harness.driver import Driver
from holdfast.api.pod import Pod
from holdfast.api.times import parse_time
from holdfast.scheduler.cluster.decisions import Emit
from holdfast.scheduler.jobs.estimates import estimate_problem

ESTIMATE = "holdfast.io/run-estimate"
BEGIN = parse_time("2026-01-01T00:00:00Z")
LATER = BEGIN + 60
BOUND = {"type": "PodScheduled", "status": "True", "lastTransitionTime": "2026-01-01T00:00:00Z"}


@pytest.mark.parametrize(
    ("annotations", "problem"),
    [
        ({}, ""),
        ({ESTIMATE: "5m"}, ""),
        ({ESTIMATE: "5 minutes"}, f"metadata.annotations[{ESTIMATE}]: not a duration: '5 minutes'"),
        ({ESTIMATE: ""}, f"metadata.annotations[{ESTIMATE}]: "),
        (
            {"holdfast.io/run-estimat": "5m"},
            "metadata.annotations[holdfast.io/run-estimat]: unknown annotation; did you mean "
            f"{ESTIMATE}?",
        ),
        ({"holdfast.io/run_estimate": "5m"}, "metadata.annotations[holdfast.io/run_estimate]: unknown"),
        ({"holdfast.io/run-estimat": "x", ESTIMATE: "5m"}, ""),
        ({"holdfast.io/preempted-by": "x", "holdfast.io/overran": "1"}, ""),
        ({"example.com/run-estimat": "5m"}, ""),
    ],
)
def test_what_is_wrong_with_an_estimate(annotations: dict[str, str], problem: str) -> None:
    found = estimate_problem(annotations)
    assert found.startswith(problem) and bool(found) == bool(problem)


def _pod(**annotations: str) -> Pod:
    pod = make_pod("p").obj()
    pod.metadata.annotations = {
        f"holdfast.io/{key.replace('_', '-')}": v for key, v in annotations.items()
    }
    return pod


@pytest.mark.parametrize(
    ("status", "end"),
    [
        ({}, LATER + 300),
        ({"conditions": [BOUND]}, BEGIN + 300),
        ({"conditions": [BOUND], "startTime": "2026-01-01T00:00:05Z"}, BEGIN + 305),
        ({"conditions": [{**BOUND, "lastTransitionTime": "2025-12-31T23:00:00Z"}]}, None),
    ],
)
def test_a_pod_that_has_not_started_is_expected_to_run_from_when_it_was_bound(
    status: dict[str, Any], end: float | None
) -> None:
    """Its end would be later with every moment otherwise, for ever if its kubelet is gone."""
    pod = make_pod("p").on("n").annotation(ESTIMATE, "5m").status(**status).obj()
    driver = Driver(()).at(LATER).add(make_node("n").obj(), pod)
    [record] = driver.scheduler.cluster.pods.values()
    jobs = driver.scheduler.cluster.jobs
    assert jobs.estimates.expected_end(record) == end
    is_fixed = jobs.planner.next_end(record.row) > LATER
    assert is_fixed == bool(status)


def _events(driver: Driver) -> list[tuple[str, str]]:
    decisions = [each for each in driver.round() if isinstance(each, Emit)]
    return [
        (str(each.about), each.message) for each in decisions if each.reason == "InvalidRunEstimate"
    ]


def test_it_is_reported_on_the_pod_once_and_the_pod_is_scheduled() -> None:
    bad = _pod(run_estimate="5 minutes")
    driver = Driver(()).add(make_node("n").obj(), bad)
    [(about, message)] = _events(driver)
    assert about == "Pod/default/p"
    assert message.startswith("the run-time estimate is ignored: metadata.annotations[")
    driver.update(bad)
    assert _events(driver) == []
    driver.update(_pod(run_estimate="5m"))
    assert _events(driver) == []
    driver.update(bad)
    assert len(_events(driver)) == 1, "it was valid in between"


def test_nothing_is_kept_of_a_deleted_pod() -> None:
    bad = _pod(run_estimat="5m")
    driver = Driver(()).add(make_node("n").obj(), bad)
    assert len(_events(driver)) == 1
    driver.delete(bad)
    driver.round()
    assert not driver.scheduler.cluster.jobs.estimates.ignored
