"""Jobs: how often, how many at once, when to give up."""

from typing import Any

import pytest

from holdfast.local.workloads.job_indexes import INDEX, Indexes
from local.workloads.controlled_store import Cluster, condition, workload

Raw = dict[str, Any]


def _job(**spec: Any) -> Cluster:
    cluster = Cluster()
    raw = workload("Job", "work", **spec)
    del raw["spec"]["selector"]
    cluster.create(raw)
    cluster.settle()
    return cluster


def _status(cluster: Cluster) -> Raw:
    status: Raw = cluster.get("Job", "work")["status"]
    return status


def _active(cluster: Cluster) -> list[str]:
    pods = cluster.pods()
    return [pod["metadata"]["name"] for pod in pods if pod["status"]["phase"] in ("Pending", "Running")]


def _verdict(cluster: Cluster) -> str:
    for each in _status(cluster).get("conditions", ()):
        if each["type"] in ("Complete", "Failed") and each["status"] == "True":
            return f"{each['type']} {each['reason']}"
    return ""


COUNTS = {
    "one": ({}, 1, 1),
    "several in turn": ({"completions": 3}, 1, 3),
    "several at once": ({"completions": 4, "parallelism": 2}, 2, 4),
    "no more than are wanted": ({"completions": 2, "parallelism": 5}, 2, 2),
    "none": ({"completions": 0}, 0, 0),
}


@pytest.mark.parametrize("case", COUNTS)
def test_pods_until_enough_have_succeeded(case: str) -> None:
    spec, at_once, in_all = COUNTS[case]
    cluster = _job(**spec)
    done = 0
    while _active(cluster):
        assert len(_active(cluster)) <= at_once
        assert _status(cluster)["active"] == len(_active(cluster))
        cluster.end(_active(cluster)[0])
        done += 1
    assert done == in_all
    assert _status(cluster).get("succeeded", 0) == in_all
    assert _verdict(cluster) == "Complete CompletionsReached"
    assert "completionTime" in _status(cluster)


def test_a_work_queue_runs_out_once_one_has_succeeded() -> None:
    cluster = _job(parallelism=3)
    cluster.run()
    first, second, third = _active(cluster)
    cluster.end(first)
    assert _active(cluster) == [second, third]
    cluster.end(second, "Failed")
    assert not _verdict(cluster)
    cluster.end(third)
    assert _verdict(cluster) == "Complete CompletionsReached"


def test_after_a_failure_the_next_waits_longer_each_time() -> None:
    cluster = _job(backoffLimit=3)
    for wait in (10, 20, 40):
        cluster.end(_active(cluster)[0], "Failed")
        assert _active(cluster) == []
        cluster.advance(wait - 1)
        assert _active(cluster) == []
        cluster.advance(1)
        assert len(_active(cluster)) == 1
    cluster.end(_active(cluster)[0], "Failed")
    assert _verdict(cluster) == "Failed BackoffLimitExceeded"
    assert _status(cluster)["failed"] == 4
    cluster.advance(1000)
    assert _active(cluster) == []


def test_a_job_that_fails_stops_its_other_pods() -> None:
    cluster = _job(completions=3, parallelism=3, backoffLimit=0)
    cluster.run()
    cluster.end(_active(cluster)[0], "Failed")
    for pod in cluster.pods():
        if "deletionTimestamp" in pod["metadata"] and pod["status"]["phase"] == "Running":
            cluster.stop(pod["metadata"]["name"])
    assert _active(cluster) == []
    assert _verdict(cluster) == "Failed BackoffLimitExceeded"
    assert _status(cluster)["failed"] == 3


def test_a_deadline_ends_it() -> None:
    cluster = _job(activeDeadlineSeconds=60)
    cluster.advance(59)
    assert not _verdict(cluster)
    cluster.advance(1)
    assert _verdict(cluster) == "Failed DeadlineExceeded"
    cluster.advance(1)
    assert not [pod for pod in cluster.pods() if "deletionTimestamp" not in pod["metadata"]]


def test_a_pod_is_counted_once_however_it_goes() -> None:
    cluster = _job(completions=2)
    first = _active(cluster)[0]
    cluster.end(first)
    assert cluster.get("Pod", first)["metadata"]["finalizers"] == []
    cluster.delete("Pod", first)
    cluster.settle()
    assert _status(cluster)["succeeded"] == 1
    cluster.end(_active(cluster)[0])
    assert _status(cluster)["succeeded"] == 2


def test_a_pod_deleted_before_its_end_has_failed_and_is_replaced() -> None:
    cluster = _job()
    cluster.run()
    [first] = _active(cluster)
    cluster.delete("Pod", first)
    cluster.settle()
    assert len(_active(cluster)) == 2  # the other is still stopping
    cluster.stop(first)
    assert first not in cluster.names()
    assert _status(cluster)["failed"] == 1
    assert len(_active(cluster)) == 1


def test_suspending_takes_the_pods_away_and_resuming_brings_new_ones() -> None:
    cluster = _job(suspend=True)
    assert _active(cluster) == []
    assert "startTime" not in _status(cluster)
    cluster.patch("Job", "work", suspend=False)
    cluster.settle()
    assert len(_active(cluster)) == 1
    cluster.patch("Job", "work", suspend=True)
    cluster.settle()
    assert _active(cluster) == []
    assert condition(cluster.get("Job", "work"), "Suspended")["status"] == "True"
    assert "failed" not in _status(cluster)


@pytest.mark.parametrize(("ttl", "gone"), [(0, 0), (30, 30), (None, None)])
def test_a_job_goes_after_its_time(ttl: int | None, gone: int | None) -> None:
    cluster = _job(**({} if ttl is None else {"ttlSecondsAfterFinished": ttl}))
    cluster.end(_active(cluster)[0])
    key = cluster.key("Job", "work")
    if gone is None:
        cluster.advance(10_000)
        assert key in cluster.store
        return
    if gone:
        cluster.advance(gone - 1)
        assert key in cluster.store
        cluster.advance(1)
    assert key not in cluster.store
    assert cluster.pods() == []


def test_indexed_pods_have_their_numbers() -> None:
    cluster = _job(completions=3, parallelism=2, completionMode="Indexed")
    assert [name.rpartition("-")[0] for name in cluster.names()] == ["work-0", "work-1"]
    assert [pod["spec"]["hostname"] for pod in cluster.pods()] == ["work-0", "work-1"]
    env = cluster.pods()[0]["spec"]["containers"][0]["env"]
    assert [each["name"] for each in env] == ["JOB_COMPLETION_INDEX"]
    first, second = cluster.names()
    cluster.end(second)
    assert _status(cluster)["completedIndexes"] == "1"
    third = next(name for name in _active(cluster) if name.startswith("work-2"))
    cluster.end(first, "Failed")
    cluster.end(third)
    assert _status(cluster)["completedIndexes"] == "1-2"
    cluster.advance(10)
    [again] = _active(cluster)
    assert again.startswith("work-0-")
    cluster.end(again)
    assert _status(cluster)["completedIndexes"] == "0-2"
    assert _verdict(cluster) == "Complete CompletionsReached"


@pytest.mark.parametrize("text", ["", "0", "0-2", "0,2-3,7", "1-4,6-7"])
def test_numbers_are_written_short(text: str) -> None:
    assert str(Indexes.read(text, below=8)) == text


@pytest.mark.parametrize(
    ("text", "numbers"),
    [("x-y,1", {1}), ("2-", {2}), ("5,2-9000000000", {2, 3}), ("3-1", set()), ("-1", set())],
)
def test_invalid_numbers_are_skipped(text: str, numbers: set[int]) -> None:
    done = Indexes.read(text, below=4)
    assert set(range(4)) - {*done.others(4)} == numbers
    assert len(done) == len(numbers)


def test_pods_of_a_deleted_job_are_let_go() -> None:
    cluster = _job(completions=2, parallelism=2)
    cluster.delete("Job", "work")
    cluster.settle()
    assert cluster.pods() == []


def test_an_indexed_job_of_two_billion_goes_on_where_it_is() -> None:
    """Its status says in a few words what is done; nothing is as large as that means."""
    cluster = Cluster()
    most = 2**31 - 1
    job = workload("Job", "j", completions=most, parallelism=2, completionMode="Indexed")
    job["status"] = {"completedIndexes": f"0-{most - 5},{most - 3}", "succeeded": most - 3}
    cluster.create(job)
    cluster.settle()
    indexes = sorted(int(pod["metadata"]["labels"][INDEX]) for pod in cluster.pods())
    assert indexes == [most - 4, most - 2]
    for pod in cluster.pods():
        cluster.run(pod["metadata"]["name"])
        cluster.end(pod["metadata"]["name"])
    status = cluster.get("Job", "j")["status"]
    assert status["completedIndexes"] == f"0-{most - 2}"


@pytest.mark.parametrize(
    ("text", "others", "again"),
    [
        ("", [0, 1, 2, 3, 4], ""),
        ("4,0-1", [2, 3], "0-1,4"),
        ("4,0-2,1-3", [], "0-4"),
        ("2-99", [0, 1], "2-4"),
        ("0-9223372036854775807", [], "0-4"),
    ],
)
def test_numbers_are_kept_as_runs(text: str, others: list[int], again: str) -> None:
    done = Indexes.read(text, below=5)
    assert (list(done.others(5)), str(done), len(done)) == (others, again, 5 - len(others))
    assert str(done.and_also(others)) == "0-4"
