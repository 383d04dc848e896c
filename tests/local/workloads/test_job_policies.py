"""What a Job does about failed pods, failed indexes, and enough successes."""

from typing import Any

import pytest

from holdfast.local.workloads.job_indexes import Indexes
from holdfast.local.workloads.job_policies import matching_success_rule
from local.workloads.controlled_store import Cluster, condition, workload

Raw = dict[str, Any]
_FAILURES = "batch.kubernetes.io/job-index-failure-count"
_IGNORED = "batch.kubernetes.io/job-index-ignored-failure-count"


def _job(**spec: Any) -> Cluster:
    cluster = Cluster()
    raw = workload("Job", "work", **spec)
    del raw["spec"]["selector"]
    cluster.create(raw)
    cluster.settle()
    return cluster


def _indexed(completions: int, **spec: Any) -> Cluster:
    return _job(
        **{"completions": completions, "parallelism": completions, "completionMode": "Indexed", **spec}
    )


def _status(cluster: Cluster) -> Raw:
    status: Raw = cluster.get("Job", "work")["status"]
    return status


def _active(cluster: Cluster) -> list[str]:
    """Pods that have not ended, and are not terminating."""
    return [
        pod["metadata"]["name"]
        for pod in cluster.pods()
        if pod["status"]["phase"] in ("Pending", "Running")
        and "deletionTimestamp" not in pod["metadata"]
    ]


def _pod(cluster: Cluster, index: int) -> str:
    """The active pod of an index."""
    [name] = [name for name in _active(cluster) if name.startswith(f"work-{index}-")]
    return name


def _verdict(cluster: Cluster) -> str:
    for each in _status(cluster).get("conditions", ()):
        if each["type"] in ("Complete", "Failed") and each["status"] == "True":
            return f"{each['type']} {each['reason']}"
    return ""


def _on_codes(action: str, operator: str, *values: int, **more: str) -> Raw:
    return {"action": action, "onExitCodes": {"operator": operator, "values": [*values], **more}}


_DISRUPTED = {"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget", "status": "True"}]}

RULES: dict[str, tuple[list[Raw], int, str, int, bool]] = {
    # rules, exit code, further condition: failures that count, whether the Job has failed
    "none": ([], 42, "", 1, False),
    "of another code": ([_on_codes("FailJob", "In", 1, 2)], 42, "", 1, False),
    "of this code": ([_on_codes("FailJob", "In", 1, 42)], 42, "", 1, True),
    "of all but others": ([_on_codes("FailJob", "NotIn", 1, 2)], 42, "", 1, True),
    "of all but this": ([_on_codes("FailJob", "NotIn", 42)], 42, "", 1, False),
    "of this container": ([_on_codes("FailJob", "In", 42, containerName="c")], 42, "", 1, True),
    "of another container": ([_on_codes("FailJob", "In", 42, containerName="d")], 42, "", 1, False),
    "ignored": ([_on_codes("Ignore", "In", 42)], 42, "", 0, False),
    "counted": ([_on_codes("Count", "In", 42), _on_codes("FailJob", "In", 42)], 42, "", 1, False),
    "a disruption": ([_DISRUPTED], 137, "DisruptionTarget", 0, False),
    "no disruption": ([_DISRUPTED], 137, "", 1, False),
    "the first that matches": ([_DISRUPTED, _on_codes("FailJob", "In", 42)], 42, "", 1, True),
}


@pytest.mark.parametrize("case", RULES)
def test_a_failed_pod_is_judged_by_the_first_rule_it_matches(case: str) -> None:
    rules, code, target, counted, fails = RULES[case]
    cluster = _job(podFailurePolicy={"rules": rules})
    cluster.run()
    cluster.end(_active(cluster)[0], "Failed", code, target)
    assert _status(cluster).get("failed", 0) == counted
    assert _verdict(cluster) == ("Failed PodFailurePolicy" if fails else "")
    assert len(_active(cluster)) == (0 if fails or counted else 1)  # counted failures have a back-off


def test_the_condition_says_which_pod_and_which_rule_failed_the_job() -> None:
    cluster = _job(podFailurePolicy={"rules": [_on_codes("FailJob", "In", 42)]}, parallelism=2)
    cluster.run()
    first, other = _active(cluster)
    cluster.end(first, "Failed", 42)
    message = (
        f"Container c for pod default/{first} failed with exit code 42 matching FailJob rule at index 0"
    )
    for type in ("FailureTarget", "Failed"):
        found = condition(cluster.get("Job", "work"), type)
        assert (found["reason"], found["message"]) == ("PodFailurePolicy", message)
    assert f"Job/work PodFailurePolicy {message}" in cluster.emitted
    assert "deletionTimestamp" in cluster.get("Pod", other)["metadata"]


def test_a_pod_condition_can_fail_the_job() -> None:
    rule = {"action": "FailJob", "onPodConditions": [{"type": "ConfigIssue"}]}
    cluster = _job(podFailurePolicy={"rules": [rule]})
    name = _active(cluster)[0]
    cluster.end(name, "Failed", 0, "ConfigIssue")
    found = condition(cluster.get("Job", "work"), "Failed")
    assert (
        found["message"]
        == f"Pod default/{name} has condition ConfigIssue matching FailJob rule at index 0"
    )


def test_an_index_fails_by_its_own_limit_and_the_others_go_on() -> None:
    cluster = _indexed(3, backoffLimitPerIndex=1)
    assert _status(cluster)["failedIndexes"] == ""
    first = _pod(cluster, 0)
    cluster.end(first, "Failed", 1)
    assert cluster.get("Pod", first)["metadata"]["finalizers"], "it has the count of failures"
    assert "failed" not in _status(cluster)
    cluster.advance(9)
    assert len(_active(cluster)) == 2
    cluster.advance(1)
    second = _pod(cluster, 0)
    assert cluster.get("Pod", second)["metadata"]["annotations"][_FAILURES] == "1"
    assert not cluster.get("Pod", first)["metadata"]["finalizers"]
    assert _status(cluster)["failed"] == 1
    cluster.end(second, "Failed", 1)
    assert (_status(cluster)["failedIndexes"], _status(cluster)["failed"]) == ("0", 2)
    cluster.advance(1000)
    assert len(_active(cluster)) == 2 and not _verdict(cluster)
    cluster.end(_pod(cluster, 1))
    cluster.end(_pod(cluster, 2))
    assert _verdict(cluster) == "Failed FailedIndexes"
    assert _status(cluster)["completedIndexes"] == "1-2"
    assert "Job/work FailedIndexes Job has failed indexes" in cluster.emitted


def test_the_back_off_of_an_index_is_its_own() -> None:
    cluster = _indexed(2, backoffLimitPerIndex=5)
    for wait in (10, 20, 40):
        cluster.end(_pod(cluster, 0), "Failed", 1)
        cluster.advance(wait - 1)
        assert len(_active(cluster)) == 1
        cluster.advance(1)
        assert len(_active(cluster)) == 2
    cluster.end(_pod(cluster, 1), "Failed", 1)
    cluster.advance(10)
    assert len(_active(cluster)) == 2


@pytest.mark.parametrize(("most", "fails"), [(0, True), (1, False), (None, False)])
def test_too_many_failed_indexes_fail_the_job(most: int | None, fails: bool) -> None:
    limit = {} if most is None else {"maxFailedIndexes": most}
    cluster = _indexed(3, backoffLimitPerIndex=0, **limit)
    cluster.end(_pod(cluster, 1), "Failed", 1)
    assert _status(cluster)["failedIndexes"] == "1"
    assert _verdict(cluster) == ("Failed MaxFailedIndexesExceeded" if fails else "")
    assert len(_active(cluster)) == (0 if fails else 2)


def test_a_rule_fails_an_index_before_its_limit() -> None:
    rules = [_on_codes("FailIndex", "In", 42), _on_codes("Ignore", "In", 7)]
    cluster = _indexed(2, backoffLimitPerIndex=9, podFailurePolicy={"rules": rules})
    cluster.end(_pod(cluster, 0), "Failed", 42)
    assert _status(cluster)["failedIndexes"] == "0"
    cluster.end(_pod(cluster, 1), "Failed", 7)
    cluster.advance(10)
    annotations = cluster.get("Pod", _pod(cluster, 1))["metadata"]["annotations"]
    assert (annotations[_FAILURES], annotations[_IGNORED]) == ("0", "1")
    assert _status(cluster)["failed"] == 1


def test_a_job_that_ends_lets_go_of_every_pod() -> None:
    cluster = _indexed(2, backoffLimitPerIndex=5, maxFailedIndexes=0, activeDeadlineSeconds=5)
    failed = _pod(cluster, 0)
    cluster.end(failed, "Failed", 1)
    cluster.advance(5)
    assert _verdict(cluster) == "Failed DeadlineExceeded"
    assert not cluster.get("Pod", failed)["metadata"]["finalizers"]
    assert _status(cluster)["failed"] == 2


SUCCESS: dict[str, tuple[list[Raw], str, int | None]] = {
    "none is done": ([{"succeededCount": 1}], "", None),
    "a count": ([{"succeededCount": 2}], "1,3", 0),
    "too few": ([{"succeededCount": 3}], "1,3", None),
    "all of these": ([{"succeededIndexes": "1,3"}], "1-3", 0),
    "not all of these": ([{"succeededIndexes": "0-1"}], "1-3", None),
    "some of these": ([{"succeededIndexes": "0-2", "succeededCount": 2}], "1-3", 0),
    "not enough of these": ([{"succeededIndexes": "0-2", "succeededCount": 3}], "1-3", None),
    "the second": ([{"succeededIndexes": "0"}, {"succeededIndexes": "3"}], "3", 1),
}


@pytest.mark.parametrize("case", SUCCESS)
def test_a_rule_of_success_matches(case: str) -> None:
    rules, done, expected = SUCCESS[case]
    job = {"spec": {"successPolicy": {"rules": rules}}}
    assert matching_success_rule(job, Indexes.read(done, 5), 5) == expected


def test_a_job_succeeds_by_its_policy_and_stops_the_rest() -> None:
    cluster = _indexed(4, successPolicy={"rules": [{"succeededIndexes": "0"}, {"succeededCount": 3}]})
    cluster.run()
    cluster.end(_pod(cluster, 2))
    assert not _verdict(cluster)
    cluster.end(_pod(cluster, 0))
    assert _verdict(cluster) == "Complete SuccessPolicy"
    found = condition(cluster.get("Job", "work"), "SuccessCriteriaMet")
    assert (found["reason"], found["message"]) == ("SuccessPolicy", "Matched rules at index 0")
    assert (_status(cluster)["completedIndexes"], _status(cluster)["succeeded"]) == ("0,2", 2)
    assert _active(cluster) == []
    assert "Job/work Completed Job completed" in cluster.emitted
