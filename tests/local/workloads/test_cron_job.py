"""CronJobs on virtual time: when a Job starts, what runs beside it, what is kept."""

from typing import Any

import pytest

from holdfast.api.times import format_time, parse_time
from holdfast.local.workloads.cron_job import SCHEDULED_AT
from local.workloads.controlled_store import START, Cluster

Raw = dict[str, Any]


def cron_job(schedule: str = "*/5 * * * *", **spec: Any) -> Raw:
    pod = {"restartPolicy": "Never", "containers": [{"name": "c", "image": "a"}]}
    template = {
        "metadata": {"labels": {"app": "tick"}, "annotations": {"team": "a"}},
        "spec": {"template": {"spec": pod}},
    }
    whole = {"schedule": schedule, "concurrencyPolicy": "Allow", "jobTemplate": template, **spec}
    return {"apiVersion": "batch/v1", "kind": "CronJob", "metadata": {"name": "tick"}, "spec": whole}


def _cluster(raw: Raw) -> Cluster:
    cluster = Cluster()
    cluster.create(raw)
    cluster.settle()
    return cluster


def _jobs(cluster: Cluster) -> list[Raw]:
    return cluster.store.list("batch", "Job")


def _at(cluster: Cluster) -> list[str]:
    """When Jobs were created, as minutes and seconds since the start."""
    found = []
    for job in _jobs(cluster):
        seconds = int(parse_time(job["metadata"]["creationTimestamp"]) - START)
        found.append(f"{seconds // 60}:{seconds % 60:02}")
    return found


def _status(cluster: Cluster) -> Raw:
    status: Raw = cluster.get("CronJob", "tick").get("status") or {}
    return status


def _active(cluster: Cluster) -> list[str]:
    return [each["name"] for each in _status(cluster).get("active", ())]


def _reasons(cluster: Cluster) -> list[str]:
    return [each.split(" ", 2)[1] for each in cluster.emitted if each.startswith("CronJob/")]


def _finish(cluster: Cluster, phase: str = "Succeeded") -> None:
    for name in [pod["metadata"]["name"] for pod in cluster.pods()]:
        if (cluster.store.get(cluster.key("Pod", name)) or {})["status"]["phase"] == "Pending":
            cluster.end(name, phase)


def test_a_job_at_each_scheduled_time() -> None:
    cluster = _cluster(cron_job())
    cluster.advance(299)
    assert not _jobs(cluster)
    cluster.advance(1)
    (job,) = _jobs(cluster)
    minute = int(START) // 60 + 5
    assert job["metadata"]["name"] == f"tick-{minute}"
    assert job["metadata"]["labels"]["app"] == "tick"
    assert job["metadata"]["annotations"] == {"team": "a", SCHEDULED_AT: "2026-01-01T00:05:00Z"}
    (owner,) = job["metadata"]["ownerReferences"]
    assert (owner["kind"], owner["name"], owner["controller"]) == ("CronJob", "tick", True)
    assert _active(cluster) == [f"tick-{minute}"]
    assert _status(cluster)["lastScheduleTime"] == "2026-01-01T00:05:00Z"
    assert f"CronJob/tick SuccessfulCreate Created job tick-{minute}" in cluster.emitted
    _finish(cluster)
    assert _active(cluster) == []
    assert _status(cluster)["lastSuccessfulTime"] == "2026-01-01T00:05:00Z"
    message = f"CronJob/tick SawCompletedJob Saw completed job: tick-{minute}, condition: Complete"
    assert message in cluster.emitted
    cluster.advance(600)
    assert _at(cluster) == ["5:00", "10:00", "15:00"]


def test_the_zone_is_in_the_annotation() -> None:
    cluster = _cluster(cron_job("30 7 * * *", timeZone="Asia/Kolkata"))
    cluster.advance(3 * 3600)
    (job,) = _jobs(cluster)
    assert job["metadata"]["creationTimestamp"] == "2026-01-01T02:00:00Z"
    assert job["metadata"]["annotations"][SCHEDULED_AT] == "2026-01-01T07:30:00+05:30"
    assert _status(cluster)["lastScheduleTime"] == "2026-01-01T02:00:00Z"


def test_allow_runs_them_side_by_side() -> None:
    cluster = _cluster(cron_job())
    cluster.advance(900)
    assert len(_active(cluster)) == 3


def test_forbid_waits_for_the_one_before() -> None:
    cluster = _cluster(cron_job(concurrencyPolicy="Forbid"))
    cluster.advance(700)
    assert _at(cluster) == ["5:00"]
    message = "Not starting job because prior execution is running and concurrency policy is Forbid"
    assert f"CronJob/tick JobAlreadyActive {message}" in cluster.emitted
    _finish(cluster)  # the one that was missed starts at once
    assert _at(cluster) == ["5:00", "11:40"]
    assert _status(cluster)["lastScheduleTime"] == "2026-01-01T00:10:00Z"


def test_replace_deletes_the_one_before() -> None:
    cluster = _cluster(cron_job(concurrencyPolicy="Replace"))
    cluster.advance(600)
    assert _at(cluster) == ["10:00"]
    assert len(_active(cluster)) == 1
    assert len(cluster.pods()) == 1
    assert "SuccessfulDelete" in _reasons(cluster)
    assert "MissingJob" not in _reasons(cluster)


def test_a_suspended_one_starts_nothing_and_then_the_latest() -> None:
    cluster = _cluster(cron_job(suspend=True))
    cluster.advance(3600 + 60)
    assert not _jobs(cluster)
    cluster.patch("CronJob", "tick", suspend=False)
    cluster.settle()
    (job,) = _jobs(cluster)
    assert job["metadata"]["annotations"][SCHEDULED_AT] == "2026-01-01T01:00:00Z"
    assert "TooManyMissedTimes" not in _reasons(cluster)


def test_too_late_is_missed() -> None:
    cluster = _cluster(cron_job("0 * * * *", suspend=True, startingDeadlineSeconds=60))
    cluster.advance(3600 + 90)
    cluster.patch("CronJob", "tick", suspend=False)
    cluster.settle()
    assert not _jobs(cluster)
    cluster.advance(3600)
    assert _at(cluster) == ["120:00"]


def test_more_than_a_hundred_missed_times() -> None:
    cluster = _cluster(cron_job("* * * * *", suspend=True))
    cluster.advance(102 * 60)
    cluster.patch("CronJob", "tick", suspend=False)
    cluster.settle()
    (job,) = _jobs(cluster)
    assert job["metadata"]["annotations"][SCHEDULED_AT] == format_time(START + 102 * 60)
    why = (
        "too many missed start times. Set or decrease .spec.startingDeadlineSeconds or check clock skew"
    )
    assert f"CronJob/tick TooManyMissedTimes {why}" in cluster.emitted


def test_a_deadline_counts_only_the_times_in_it() -> None:
    cluster = _cluster(cron_job("* * * * *", suspend=True, startingDeadlineSeconds=200))
    cluster.advance(1000 * 60)
    cluster.patch("CronJob", "tick", suspend=False)
    cluster.settle()
    assert len(_jobs(cluster)) == 1
    assert "TooManyMissedTimes" not in _reasons(cluster)


def test_history_limits() -> None:
    cluster = _cluster(cron_job(successfulJobsHistoryLimit=2, failedJobsHistoryLimit=1))
    cluster.patch("CronJob", "tick")
    for _ in range(4):
        cluster.advance(300)
        _finish(cluster)
    assert _at(cluster) == ["15:00", "20:00"]
    assert len(cluster.pods()) == 2
    cluster = _cluster(cron_job(successfulJobsHistoryLimit=0))
    cluster.advance(300)
    _finish(cluster)
    assert not _jobs(cluster)
    assert _status(cluster)["lastSuccessfulTime"]


def test_failed_jobs_have_a_limit_of_their_own() -> None:
    raw = cron_job(successfulJobsHistoryLimit=5, failedJobsHistoryLimit=1)
    raw["spec"]["jobTemplate"]["spec"]["backoffLimit"] = 0
    cluster = _cluster(raw)
    for phase in ("Failed", "Succeeded", "Failed"):
        cluster.advance(300)
        _finish(cluster, phase)
    assert _at(cluster) == ["10:00", "15:00"]


def test_one_created_by_hand_is_noted_and_left_alone() -> None:
    cluster = _cluster(cron_job("0 0 * * *", concurrencyPolicy="Replace"))
    owner = cluster.get("CronJob", "tick")
    job = {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {
            "name": "by-hand",
            "annotations": {"cronjob.kubernetes.io/instantiate": "manual"},
            "ownerReferences": [
                {
                    "apiVersion": "batch/v1",
                    "kind": "CronJob",
                    "name": "tick",
                    "uid": owner["metadata"]["uid"],
                    "controller": True,
                }
            ],
        },
        "spec": owner["spec"]["jobTemplate"]["spec"],
    }
    cluster.create(job)
    cluster.settle()
    assert _active(cluster) == []
    message = "Saw a job that the controller did not create or forgot: by-hand"
    assert f"CronJob/tick UnexpectedJob {message}" in cluster.emitted
    assert len(cluster.pods()) == 1
    _finish(cluster)
    assert _status(cluster)["lastSuccessfulTime"]


def test_an_active_job_that_goes_missing() -> None:
    cluster = _cluster(cron_job())
    cluster.advance(300)
    cluster.delete("Job", _jobs(cluster)[0]["metadata"]["name"])
    cluster.settle()
    assert _active(cluster) == []
    assert "MissingJob" in _reasons(cluster)
    assert not _jobs(cluster)
    assert not cluster.pods()


def test_deleted_with_all_it_has() -> None:
    cluster = _cluster(cron_job())
    cluster.advance(600)
    cluster.delete("CronJob", "tick")
    cluster.settle()
    assert not _jobs(cluster)
    assert not cluster.pods()
    cluster.advance(600)
    assert not _jobs(cluster)


@pytest.mark.parametrize(
    ("spec", "reason"),
    [({"schedule": "often"}, "UnparseableSchedule"), ({"timeZone": "Mars"}, "UnknownTimeZone")],
)
def test_stored_before_it_was_checked(spec: Raw, reason: str) -> None:
    cluster = _cluster(cron_job(**{"schedule": "* * * * *", **spec}))
    cluster.advance(600)
    assert not _jobs(cluster)
    assert reason in _reasons(cluster)


def test_another_schedule() -> None:
    cluster = _cluster(cron_job("0 0 1 1 *"))
    cluster.advance(100)
    cluster.patch("CronJob", "tick", schedule="*/2 * * * *")
    cluster.settle()
    cluster.advance(140)
    assert _at(cluster) == ["2:00", "4:00"]


def test_its_jobs_name_is_taken_by_another() -> None:
    cluster = _cluster(cron_job())
    name = f"tick-{int(START) // 60 + 5}"
    raw = {"template": cron_job()["spec"]["jobTemplate"]["spec"]["template"], "parallelism": 0}
    cluster.create({"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": name}, "spec": raw})
    cluster.advance(300)
    assert any(
        each.startswith("CronJob/tick FailedCreate Error creating job: ") for each in cluster.emitted
    )
    assert _active(cluster) == []
    cluster.delete("Job", name)
    cluster.advance(10)  # it is tried again
    assert _active(cluster) == [name]
