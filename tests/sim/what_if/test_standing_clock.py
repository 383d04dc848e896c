"""A question is about the cluster at one moment: what would only happen later does not happen."""

from typing import Any

import pytest

from holdfast.api.times import format_time
from holdfast.sim.clock import START
from holdfast.sim.what_if.changes import WhatIfChanges
from holdfast.sim.what_if.question import WhatIfQuestion
from holdfast.snapshot.cluster_objects import ClusterObjects
from sim.what_if.clusters import (
    SETUP,
    ask,
    cluster,
    documents,
    node,
    pod,
    snapshot_of,
    template,
    workload,
)

Raw = dict[str, Any]
ONE = node("n1", "8")


def _slow(name: str = "slow", replicas: int = 1, **more: Any) -> Raw:
    """A Deployment that is not at rest before five minutes have passed."""
    raw = workload(name, replicas, **more)
    return {**raw, "spec": {**raw["spec"], "minReadySeconds": 300}}


def _cron_job(cpu: str, schedule: str = "*/5 * * * *", **metadata: Any) -> Raw:
    of_pod = template("cj", cpu, restartPolicy="Never")
    return {
        "apiVersion": "batch/v1",
        "kind": "CronJob",
        "metadata": {"name": "cj", "namespace": "default", **metadata},
        "spec": {"schedule": schedule, "jobTemplate": {"spec": {"template": of_pod}}},
    }


def _reservation(name: str, cpu: str, **spec: Any) -> Raw:
    of_pod = {"template": {"spec": pod("x", cpu)["spec"]}, "owners": [{"object": {"name": "x"}}]}
    return {
        "apiVersion": "scheduling.koordinator.sh/v1alpha1",
        "kind": "Reservation",
        "metadata": {"name": name},
        "spec": {**of_pod, **spec},
    }


def _schedule() -> Raw:
    """An occurrence every minute."""
    return {
        "apiVersion": "scheduling.holdfast.io/v1alpha1",
        "kind": "ReservationSchedule",
        "metadata": {"name": "each-minute"},
        "spec": {
            "schedule": "* * * * *",
            "duration": "30s",
            "template": {"spec": _reservation("x", "1")["spec"]},
        },
    }


def _with(raw: Raw, **spec: Any) -> Raw:
    return {**raw, "spec": {**raw["spec"], **spec}}


LATER = {
    "a CronJob starts a Job": (_cron_job("1"),),
    "a CronJob starts a Job that preempts": (
        _cron_job("8"),
        _with(pod("low", nodeName="n1"), priority=-5),
    ),
    "a reservation expires": (_reservation("short", "4", ttl="60s"), pod("waits", "6")),
    "a Job reaches its deadline": (_with(workload("j", 1, "4", "Job"), activeDeadlineSeconds=60),),
    "a pod reaches its deadline": (pod("p", "4", nodeName="n1", activeDeadlineSeconds=60),),
    "a pod comes to its end": (
        {
            **(stated := pod("p", "4", nodeName="n1")),
            "metadata": {**stated["metadata"], "annotations": {"sim.holdfast.io/runs-for": "60s"}},
        },
        pod("waits", "6"),
    ),
    "an occurrence starts": (_schedule(),),
    "a job begins to starve": (
        pod("p", "4", nodeName="n1", activeDeadlineSeconds=7200),
        {
            **(old := pod("old", "8")),
            "metadata": {**old["metadata"], "creationTimestamp": format_time(START - 48 * 3600 + 60)},
        },
    ),
}


def _as_it_is(question: WhatIfQuestion, name: str) -> list[tuple[str, str, str]]:
    """Pods and reservations but those of a workload: their nodes and phases."""
    found = []
    for raw in question.cluster.objects.all():
        if raw["kind"] in ("Pod", "Reservation") and name not in raw["metadata"]["name"]:
            status = raw.get("status") or {}
            where = (raw.get("spec") or {}).get("nodeName") or status.get("nodeName") or ""
            found.append((raw["metadata"]["name"], where, status.get("phase", "")))
    return sorted(found)


@pytest.mark.parametrize("case", LATER)
def test_what_is_due_later_does_not_happen(case: str) -> None:
    question = WhatIfQuestion.about(SETUP, cluster(ONE, *LATER[case]))
    begun, before = question.cluster.clock.epoch(), _as_it_is(question, "slow")
    answer = question.ask(WhatIfChanges(manifests=documents([_slow()])))
    assert question.cluster.clock.epoch() == pytest.approx(begun, abs=0.01)  # a tick later
    assert _as_it_is(question, "slow") == before
    assert [each.workload for each in answer.placed] == ["Deployment/default/slow"]
    assert answer.displaced == []


@pytest.mark.parametrize("case", LATER)
def test_nor_before_the_changes(case: str) -> None:
    """Also if the cluster is not at rest when it is asked about."""
    alone = WhatIfQuestion.about(SETUP, cluster(ONE, *LATER[case]))
    beside = WhatIfQuestion.about(SETUP, cluster(ONE, *LATER[case], _slow()))
    assert _as_it_is(alone, "slow") == _as_it_is(beside, "slow")


def _living(*objects: Raw) -> ClusterObjects:
    return snapshot_of(ONE, node("n2", "8"), *objects)


@pytest.mark.parametrize(
    "changes",
    [{"scales": ["job/long=3"]}, {"removals": ["n2"]}, {"drains": ["n2"]}, {"nodes": ["+1xn1"]}],
    ids=lambda changes: next(iter(changes)),
)
def test_no_change_starts_jobs_of_cron_jobs(changes: dict[str, Any]) -> None:
    long = _with(workload("long", 1, "1", "Job"), completions=9)
    answer = ask(_living(_cron_job("1", "* * * * *"), long), **changes)
    assert {each.workload for each in answer.placed} <= {"Job/default/long"}
    assert answer.before.resources["cpu"].requested == 1000


def _needed(objects: ClusterObjects, manifest: Raw) -> int:
    """How many more nodes the manifest needs."""
    plan = ask(objects, manifests=[manifest], plan=["cpu=8,memory=32Gi"]).plan
    assert plan is not None
    return plan.total


def test_a_cron_job_that_is_overdue_starts_nothing() -> None:
    """Its status is not always there to say that it has been served."""
    overdue = _cron_job("8", creationTimestamp=format_time(cluster(ONE).now - 86400))
    assert _needed(cluster(ONE, overdue), pod("one")) == 0


def test_jobs_of_cron_jobs_do_not_count_in_a_plan() -> None:
    objects = cluster(ONE, pod("a", nodeName="n1"), _cron_job("8"))
    assert _needed(objects, pod("one")) == 0
    assert _needed(objects, pod("large", "8")) == 1


def test_a_new_cron_job_starts_nothing_and_a_note_says_so() -> None:
    answer = ask(cluster(ONE), manifests=[_cron_job("1")])
    assert not answer.placed and not answer.pending
    assert any("no Job of a CronJob is started" in note for note in answer.notes)


def test_pods_of_a_running_job_of_a_cron_job_are_replaced() -> None:
    job = workload("cj-1", 1, "1", "Job")
    owner = {
        "apiVersion": "batch/v1",
        "kind": "CronJob",
        "name": "cj",
        "uid": "u-cj",
        "controller": True,
    }
    job["metadata"]["ownerReferences"] = [owner]
    cron = _cron_job("1", uid="u-cj", creationTimestamp="2026-01-01T00:00:00Z")
    answer = ask(_living(cron, job), removals=["n1"])
    assert [(each.workload, each.node, each.was) for each in answer.placed] == [
        ("CronJob/default/cj", "n2", "displaced")
    ]


def test_a_slow_rollout_is_played_to_its_end() -> None:
    """`minReadySeconds` delays it, and no more."""
    slow = _slow("web", 3)
    changed = _with(slow, template=template("web", "2"))
    answer = ask(cluster(ONE, slow), manifests=[changed])
    assert [each.workload for each in answer.placed] == ["Deployment/default/web"] * 3
    assert [each.reason for each in answer.displaced] == ["Deleted"] * 3


def test_a_failed_pod_of_a_job_is_replaced_without_back_off() -> None:
    question = WhatIfQuestion.about(SETUP, cluster(ONE, workload("j", 1, "1", "Job")))
    stored = [*question.cluster.objects.all()]
    [failed] = [raw for raw in stored if raw["kind"] == "Pod"]
    failed["status"] = {**failed["status"], "phase": "Failed"}
    later = WhatIfQuestion(SETUP, question.time, stored, seed=1)
    pods = [*later.cluster.objects.scan("", "Pod")]
    assert sorted(raw["status"]["phase"] for raw in pods) == ["Failed", "Running"]


def test_what_was_refused_is_created_once_the_changes_allow_it() -> None:
    missing = workload("web", 2, priorityClassName="urgent")
    urgent = {
        "apiVersion": "scheduling.k8s.io/v1",
        "kind": "PriorityClass",
        "metadata": {"name": "urgent"},
        "value": 10,
    }
    answer = ask(cluster(ONE, missing), manifests=[urgent])
    assert [each.was for each in answer.placed] == ["new", "new"]
