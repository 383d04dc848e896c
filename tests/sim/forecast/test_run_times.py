"""Run-time estimates: their sources and precedence, and what is learned from earlier runs."""

import random
from typing import Any

import pytest

from holdfast.sim.forecast.run_times import (
    DurationHistory,
    LearnedTimes,
    RunTimeEstimator,
    finished_run,
    name_pattern,
)

Raw = dict[str, Any]


def pod(
    name: str = "p",
    owner: tuple[str, str] | None = None,
    annotations: dict[str, str] | None = None,
) -> Raw:
    metadata: Raw = {
        "name": name,
        "namespace": "default",
        "uid": name,
        "annotations": annotations or {},
    }
    if owner is not None:
        kind, owner_name = owner
        metadata["ownerReferences"] = [{"kind": kind, "name": owner_name, "controller": True}]
    return {"metadata": metadata, "spec": {}}


def history(owner: tuple[str, str], *seconds: float) -> DurationHistory:
    found = DurationHistory()
    for i, each in enumerate(seconds):
        found.add(pod(f"earlier-{i}", owner), each)
    return found


def source(estimator: RunTimeEstimator, given: Raw, ran: float = 0.0) -> str:
    estimate = estimator.of(given, ran)
    return estimate.source if estimate is not None else ""


def test_what_a_pod_states_comes_before_its_history_and_that_before_its_deadline() -> None:
    estimator = RunTimeEstimator(history(("Job", "etl"), 60, 70, 80))
    given = pod(owner=("Job", "etl"))
    given["spec"]["activeDeadlineSeconds"] = 3600
    assert source(estimator, given) == "history"
    given["metadata"]["annotations"]["holdfast.io/run-estimate"] = "5m"
    assert source(estimator, given) == "holdfast.io/run-estimate"
    given["metadata"]["annotations"]["sim.holdfast.io/runs-for"] = "7m"
    assert source(estimator, given) == "sim.holdfast.io/runs-for"
    alone = pod()
    alone["spec"]["activeDeadlineSeconds"] = 3600
    assert source(estimator, alone) == "activeDeadlineSeconds"


def test_the_estimate_of_a_volcano_job_is_that_of_its_pods() -> None:
    job = {"metadata": {"name": "mpi", "namespace": "default"}, "spec": {"runningEstimate": "90m"}}
    estimator = RunTimeEstimator(jobs=[job])
    estimate = estimator.of(pod(annotations={"volcano.sh/job-name": "mpi"}))
    assert estimate is not None and estimate.spread.quantile(0.5, 0) == 5400
    assert estimator.of(pod(annotations={"volcano.sh/job-name": "other"})) is None


def test_nothing_is_known_of_a_pod_that_states_nothing() -> None:
    estimator = RunTimeEstimator(history(("Job", "etl"), 60, 70))
    assert estimator.of(pod()) is None
    assert estimator.of(pod(owner=("Job", "etl"))) is None, "two runs are too few"
    assert "2 known" in estimator.remedy(pod(owner=("Job", "etl")))
    assert "not a duration" in estimator.remedy(pod(annotations={"holdfast.io/run-estimate": "soon"}))


@pytest.mark.parametrize("kind", ["ReplicaSet", "StatefulSet", "DaemonSet"])
def test_pods_of_services_never_end_by_themselves(kind: str) -> None:
    estimator = RunTimeEstimator(history((kind, "web"), 60, 70, 80))
    assert estimator.of(pod(owner=(kind, "web"))) is None


def test_a_pod_that_outlives_its_statement_falls_back_to_its_history() -> None:
    estimator = RunTimeEstimator(history(("Job", "etl"), 600, 700, 800))
    given = pod(owner=("Job", "etl"), annotations={"holdfast.io/run-estimate": "1m"})
    assert source(estimator, given, ran=30) == "holdfast.io/run-estimate"
    assert source(estimator, given, ran=61) == "history"
    alone = pod(annotations={"holdfast.io/run-estimate": "1m"})
    assert estimator.of(alone, ran=61) is None
    assert "run longer" in estimator.remedy(alone, ran=61)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("etl-29384950", "etl-29384955"),
        ("train-x7k2p", "train-bcdfg"),
        ("sweep-12-lr", "sweep-3-lr"),
    ],
)
def test_names_of_a_series_have_one_pattern(one: str, other: str) -> None:
    assert name_pattern(one) == name_pattern(other)


def test_runs_of_earlier_jobs_of_a_cron_job_count() -> None:
    found = DurationHistory()
    for i in range(3):
        found.add(pod(f"p{i}", ("Job", f"etl-2938495{i}")), 60 + i)
    known = found.of(pod(owner=("Job", "etl-29384999")))
    assert known is not None and known[0] == ("default", "Job", "etl-*")
    assert found.of(pod(owner=("Job", "other-29384999"))) is None


def test_a_run_counts_once_however_often_it_is_seen() -> None:
    found = DurationHistory()
    for _ in range(5):
        found.add(pod("same", ("Job", "etl")), 60)
    assert found.of(pod(owner=("Job", "etl"))) is None


@pytest.mark.parametrize("count", [3, 12, 200])
def test_quantiles_increase_and_follow_how_long_a_pod_has_run(count: int) -> None:
    rng = random.Random(count)
    times = LearnedTimes(rng.lognormvariate(6, 0.7) for _ in range(count))
    low, middle, high = (times.quantile(q, 0.0) for q in (0.1, 0.5, 0.9))
    assert low is not None and middle is not None and high is not None
    assert 0 < low < middle < high
    later = times.quantile(0.1, high)
    assert later is not None and later > high


def test_equal_runs_are_exact_and_say_nothing_beyond() -> None:
    times = LearnedTimes([300.0, 300.0, 300.0])
    assert times.quantile(0.1, 0) == times.quantile(0.9, 0) == 300
    assert times.quantile(0.5, 301) is None


def test_few_runs_give_wider_ranges_than_many() -> None:
    rng = random.Random(3)
    runs = [rng.lognormvariate(6, 0.5) for _ in range(20)]

    def spread(count: int) -> float:
        times = LearnedTimes(runs[:count])
        drawn = sorted(times.quantile(0.5, 0.0, times.fit(random.Random(i))) or 0.0 for i in range(200))
        return drawn[190] / drawn[10]

    assert spread(4) > 1.1 * spread(20)


def test_the_run_of_an_ended_pod_is_from_its_start_to_its_last_container() -> None:
    ended = pod()
    ended["status"] = {
        "phase": "Succeeded",
        "startTime": "2026-01-01T00:00:00Z",
        "containerStatuses": [
            {"state": {"terminated": {"finishedAt": "2026-01-01T00:05:00Z"}}},
            {"state": {"terminated": {"finishedAt": "2026-01-01T00:35:00Z"}}},
        ],
    }
    assert finished_run(ended) == 35 * 60
    ended["status"]["phase"] = "Running"
    assert finished_run(ended) is None
    assert finished_run(pod()) is None
