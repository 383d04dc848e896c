"""What `explain` says of CronJobs: runs, Jobs, and the pods of the newest Job."""

from __future__ import annotations

from typing import Any

import pytest

from explanation.test_situations import DB, N1, full, snapshot_with
from harness.objects import Raw, node, pod
from harness.world import START
from holdfast.api.times import format_time
from holdfast.explanation.explainer import explain
from holdfast.explanation.report import Report

HOUR = 3600.0
NOW = START + 12 * HOUR + 600
"""Ten past noon."""
TAINTED = node("n1", cpu="8", taints=[DB])


def cron_job(last: float | None = NOW - 600, cpu: str = "1", **spec: Any) -> Raw:
    """Every hour; by default the run of this hour was started."""
    template = {"metadata": {}, "spec": pod("x", cpu)["spec"]}
    return {
        "apiVersion": "batch/v1",
        "kind": "CronJob",
        "metadata": {
            "name": "report",
            "namespace": "default",
            "uid": "report",
            "creationTimestamp": format_time(START),
        },
        "spec": {"schedule": "0 * * * *", "jobTemplate": {"spec": {"template": template}}, **spec},
        "status": {"lastScheduleTime": format_time(last)} if last is not None else {},
    }


def job(name: str, cpu: str = "1", condition: Raw | None = None, owner: str = "report") -> Raw:
    by = {"apiVersion": "batch/v1", "kind": "CronJob", "name": owner, "uid": owner, "controller": True}
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {
            "name": name,
            "namespace": "default",
            "uid": name,
            "creationTimestamp": format_time(NOW - 600),
            "ownerReferences": [by],
        },
        "spec": {"template": {"metadata": {}, "spec": pod("x", cpu)["spec"]}},
        "status": {"conditions": [{"status": "True", **condition}] if condition else []},
    }


def member(name: str, of: str, cpu: str = "1", on: str = "") -> Raw:
    by = {"apiVersion": "batch/v1", "kind": "Job", "name": of, "uid": of, "controller": True}
    raw = full(name, cpu, on) if on else pod(name, cpu)
    raw["metadata"] |= {"namespace": "default", "uid": name, "ownerReferences": [by]}
    return raw


def explained(cron: Raw, *objects: Raw) -> Report:
    snapshot = snapshot_with(list(objects), NOW)
    known = [each for each in objects if each["kind"] == "Job"]
    snapshot.objects["batch/v1", "Job"] = {("default", j["metadata"]["name"]): j for j in known}
    found = explain(snapshot, cron)
    assert found.data() == explain(snapshot, cron).data(), "asking changed the snapshot"
    return found


COMPLETE = {"type": "Complete"}
FAILED = {"type": "Failed", "reason": "BackoffLimitExceeded", "message": "it failed 6 times"}
NEXT = "Its next run is 2026-01-01T13:00:00Z, in 50m."
LAST = "Its last run was 2026-01-01T12:00:00Z"
CASES: dict[str, tuple[Raw, list[Raw], str, list[str], list[str]]] = {
    # The CronJob, other objects, the summary, texts of the details, actions of the advice.
    "nothing is wrong": (
        cron_job(),
        [N1, job("report-1", condition=COMPLETE)],
        f"{NEXT} {LAST}: Job report-1 is Complete.",
        [],
        [],
    ),
    "it has never run": (
        cron_job(None, schedule="0 13 * * *"),
        [N1],
        f"{NEXT} It has never run.",
        [],
        [],
    ),
    "in a time zone": (
        cron_job(None, schedule="0 14 * * *", timeZone="Europe/Berlin"),
        [N1],
        "Its next run is 2026-01-01T13:00:00Z, in 50m (Europe/Berlin). It has never run.",
        [],
        [],
    ),
    "the last run failed": (
        cron_job(),
        [N1, job("report-1", condition=FAILED)],
        f"{NEXT} {LAST}: Job report-1 is Failed (BackoffLimitExceeded: it failed 6 times).",
        [],
        [],
    ),
    "suspended": (
        cron_job(NOW - 600, suspend=True),
        [N1],
        f"It is suspended (spec.suspend), and starts no Jobs until it is resumed. {LAST}.",
        [],
        ["Resume"],
    ),
    "suspended, and its pods fit nowhere": (
        cron_job(NOW - 600, suspend=True, cpu="9"),
        [N1],
        f"It is suspended (spec.suspend), and starts no Jobs until it is resumed. {LAST}.",
        ["to resume it: kubectl patch cronjob report", "its pods would be pending: No suitable node"],
        ["Resize"],
    ),
    "suspended and never due": (
        cron_job(None, suspend=True, schedule="0 0 30 2 *"),
        [N1],
        "It is suspended (spec.suspend), and starts no Jobs until it is resumed. It has never run.",
        ["it would not run then either: '0 0 30 2 *' has no start within 5 years"],
        [],
    ),
    "never due": (
        cron_job(None, schedule="0 0 30 2 *"),
        [N1],
        "It never runs: '0 0 30 2 *' has no start within 5 years. It has never run.",
        [],
        [],
    ),
    "an invalid schedule": (
        cron_job(None, schedule="* * *"),
        [N1],
        "Its spec.schedule '* * *' is invalid: expected exactly 5 fields, found 3: [* * *]. "
        "It starts no Jobs. It has never run.",
        [],
        [],
    ),
    "a time zone that does not exist": (
        cron_job(None, timeZone="Europe/Berln"),
        [N1],
        "Its spec.timeZone is invalid: unknown time zone Europe/Berln. It starts no Jobs. "
        "It has never run.",
        ["there is no time zone Europe/Berln; did you mean Europe/Berlin?"],
        [],
    ),
    "Forbid, and its Job runs": (
        cron_job(NOW - 2 * HOUR - 600, concurrencyPolicy="Forbid"),
        [N1, job("report-1"), member("report-1-a", "report-1", on="n1")],
        "2 runs since 2026-01-01T11:00:00Z were not started: Job report-1 has not ended, and "
        f"spec.concurrencyPolicy is Forbid. {NEXT} Its last run was 2026-01-01T10:00:00Z. "
        "Job report-1: 1 of 1 pod has a node.",
        [],
        [],
    ),
    "Forbid, and its Job has just started": (
        cron_job(concurrencyPolicy="Forbid"),
        [N1, job("report-1"), member("report-1-a", "report-1", on="n1")],
        f"{NEXT} {LAST}. Job report-1: 1 of 1 pod has a node.",
        ["if Job report-1 still runs by then, that run is not started"],
        [],
    ),
    "Forbid, and the pod of its Job is pending": (
        cron_job(NOW - HOUR - 600, concurrencyPolicy="Forbid"),
        [TAINTED, job("report-1"), member("report-1-a", "report-1")],
        "1 run since 2026-01-01T12:00:00Z was not started: Job report-1 has not ended, and "
        f"spec.concurrencyPolicy is Forbid. {NEXT} Its last run was 2026-01-01T11:00:00Z. "
        "Job report-1: 0 of 1 pod has a node. 1 pending: No suitable node among 1 node: untolerated "
        "taint (1).",
        ["a Job keeps its template: once that of the CronJob is changed, delete Job report-1"],
        ["Tolerate"],
    ),
    "Replace, and its Job runs": (
        cron_job(concurrencyPolicy="Replace"),
        [N1, job("report-1"), member("report-1-a", "report-1", on="n1")],
        f"{NEXT} {LAST}. Job report-1: 1 of 1 pod has a node.",
        ["if Job report-1 still runs by then, that run replaces it"],
        [],
    ),
    "several Jobs": (
        cron_job(),
        [N1, job("report-1"), job("report-2"), job("other-1", owner="other")],
        f"{NEXT} {LAST}. Job report-2 (also active: report-1): It has no pods: its controller has "
        "created none, or all have ended.",
        [],
        [],
    ),
    "a run is due": (
        cron_job(NOW - HOUR - 600),
        [N1],
        f"The run of 2026-01-01T12:00:00Z is started next. {NEXT} "
        "Its last run was 2026-01-01T11:00:00Z.",
        ["the controller of CronJobs does not run"],
        [],
    ),
    "the starting deadline has passed": (
        cron_job(NOW - HOUR - 600, startingDeadlineSeconds=60),
        [N1],
        "1 run since 2026-01-01T12:00:00Z was missed: not started within "
        f"spec.startingDeadlineSeconds, 60. {NEXT} Its last run was 2026-01-01T11:00:00Z.",
        ["to start one now: kubectl create job report-by-hand --from=cronjob/report"],
        [],
    ),
    "a starting deadline that is too short": (
        cron_job(startingDeadlineSeconds=5),
        [N1],
        f"{NEXT} {LAST}.",
        ["spec.startingDeadlineSeconds is 5: the controller looks every 10 seconds"],
        [],
    ),
    "the pods of its next Job would be pending": (
        cron_job(),
        [TAINTED],
        f"{NEXT} {LAST}.",
        ["if it ran now, its pods would be pending: No suitable node among 1 node: untolerated taint"],
        ["Tolerate"],
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_situation(name: str) -> None:
    cron, objects, summary, details, actions = CASES[name]
    report = explained(cron, *objects)
    assert report.summary == summary
    for text in details:
        assert any(text in each for each in report.details), report.details
    told = [(each.change["actions"][0], each.text) for each in report.advice]
    assert [action for action, _ in told] == actions, told
    assert details or not report.details


@pytest.mark.parametrize(
    "name", ["the pods of its next Job would be pending", "Forbid, and the pod of its Job is pending"]
)
def test_advice_changes_the_template_of_the_cron_job(name: str) -> None:
    cron, objects, *_ = CASES[name]
    (advice,) = explained(cron, *objects).advice
    assert advice.text == (
        "tolerate dedicated=db:NoSchedule, in the template of CronJob report; then it fits n1"
    )
    (change,) = advice.change["objects"]
    assert (change["kind"], change["name"]) == ("CronJob", "report")
    added = change["patch"]["spec"]["jobTemplate"]["spec"]["template"]["spec"]["tolerations"]
    assert [each["key"] for each in added] == ["dedicated"]
