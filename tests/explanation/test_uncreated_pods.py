"""Pods that do not exist yet: of suspended Jobs, of CronJobs, and of workloads whose controller cannot
create them. What is advised helps all of them, or says how many."""

from __future__ import annotations

import pytest

from harness.claim_objects import claim_template, device_class, request, resource_slice
from harness.followed_advice import Situation
from harness.objects import Raw, node, pod
from holdfast.explanation.report import Advice

HIGH: Raw = {
    "apiVersion": "scheduling.k8s.io/v1",
    "kind": "PriorityClass",
    "metadata": {"name": "high"},
    "value": 1000,
}
TAINT = {"key": "x", "value": "y", "effect": "NoSchedule"}


def template(cpu: str, **more: object) -> Raw:
    return {"metadata": {"labels": {"app": "w"}}, "spec": {**pod("w", cpu)["spec"], **more}}


def job(count: int, cpu: str, **spec: object) -> Raw:
    made = {"parallelism": count, "completions": count, "suspend": True, **spec}
    made["template"] = template(cpu, restartPolicy="Never")
    return {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "w"}, "spec": made}


def deployment(replicas: int, cpu: str = "1") -> Raw:
    spec: Raw = {"replicas": replicas, "selector": {"matchLabels": {"app": "w"}}}
    spec["template"] = template(cpu, priorityClassName="hig")
    return {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "w"}, "spec": spec}


def cron_job(parallelism: int, cpu: str) -> Raw:
    jobs = job(parallelism, cpu)["spec"]
    del jobs["suspend"]
    spec = {"schedule": "*/5 * * * *", "jobTemplate": {"spec": jobs}}
    return {"apiVersion": "batch/v1", "kind": "CronJob", "metadata": {"name": "w"}, "spec": spec}


def started(situation: Situation, advice: Advice, later: float = 120.0) -> tuple[int, int]:
    """How many pods have a node, and how many there are."""
    nodes = situation.followed(advice, later).values()
    return len([each for each in nodes if each]), len(nodes)


def test_resuming_is_advised_if_all_pods_start() -> None:
    situation = Situation(node("n1", 2), job(2, "1"))
    (only,) = situation.report("Job", "w").advice
    assert only.text.endswith("""-p '{"spec":{"suspend":false}}'); then both pods fit: n1""")
    assert started(situation, only) == (2, 2)


@pytest.mark.parametrize(("cpu", "some"), [("1", True), ("2", False)])
def test_a_suspended_job_of_which_not_all_pods_fit(cpu: str, some: bool) -> None:
    situation = Situation(node("n1", 1), job(2, cpu))
    report = situation.report("Job", "w")
    smaller = report.advice[0]
    assert smaller.text == (
        f"resume it and request at most 500m cpu instead of {cpu}, in the template of Job w (delete "
        "the Job and create it again); then both pods fit: n1"
    )
    assert started(situation, smaller) == (2, 2)
    assert [each.text.rpartition("; ")[2] for each in report.advice[1:]] == (
        ["then 1 of 2 pods fits: n1"] if some else []
    )
    which = "1 of its 2 pods" if some else "its pods"
    assert any(f"if it were resumed, {which} would be pending" in each for each in report.details)


@pytest.mark.parametrize(("devices", "fit"), [(2, "both pods fit"), (1, "1 of 2 pods fits")])
def test_each_pod_gets_claims_of_its_own(devices: int, fit: str) -> None:
    made = job(2, "1")
    entries = [{"name": "gpu", "resourceClaimTemplateName": "t"}]
    made["spec"]["template"]["spec"]["resourceClaims"] = entries
    there = [node("n1", 8), device_class(), resource_slice("n1", devices)]
    situation = Situation(*there, claim_template("t", request()), made)
    report = situation.report("Job", "w")
    assert [each.text.rpartition("; then ")[2] for each in report.advice] == [f"{fit}: n1"]
    assert started(situation, report.advice[-1]) == (devices, 2)


@pytest.mark.parametrize("spec", [{"parallelism": 0}, {"parallelism": 1, "completions": 5}])
def test_only_as_many_pods_count_as_run_at_once(spec: Raw) -> None:
    report = Situation(node("n1", 1), job(2, "1", **spec)).report("Job", "w")
    texts = [each.text.rpartition("; ")[2] for each in report.advice]
    assert texts == (["then it fits n1"] if spec["parallelism"] else [])
    assert any("it would create no pods" in each for each in report.details) != bool(texts)


def test_a_misspelt_priority_class_of_more_pods_than_fit() -> None:
    situation = Situation(node("n1", 2), HIGH, deployment(5))
    report = situation.report("Deployment", "w")
    assert [each.text for each in report.advice] == [
        "name the PriorityClass high instead of hig and request at most 400m cpu instead of 1, in the "
        "template of Deployment w; then all 5 pods fit: n1",
        "name the PriorityClass high instead of hig, in the template of Deployment w; then 2 of 5 pods "
        "fit: n1",
        "create the PriorityClass hig (tried with value 0); then 2 of 5 pods fit: n1",
    ]
    assert [started(situation, each) for each in report.advice] == [(5, 5), (2, 5), (2, 5)]


def test_the_replica_set_of_a_deployment_is_not_changed() -> None:
    situation = Situation(node("n1", 2), HIGH, deployment(5))
    (name,) = situation.names("ReplicaSet")
    report = situation.report("ReplicaSet", name)
    assert [each.text.rpartition("; ")[2] for each in report.advice] == [
        "then 2 of 5 pods fit: n1",
        "then 2 of 5 pods fit: n1",
    ]
    assert {each["kind"] for advice in report.advice for each in advice.change["objects"]} == (
        {"Deployment", "PriorityClass"}
    )
    assert [started(situation, each) for each in report.advice] == [(2, 5), (2, 5)]
    assert not any(each.startswith("nothing that was tried") for each in report.details)


def test_a_misspelt_priority_class_and_a_taint() -> None:
    situation = Situation(node("n1", 8, taints=[TAINT]), HIGH, deployment(5))
    first, *_ = situation.report("Deployment", "w").advice
    assert first.text == (
        "name the PriorityClass high instead of hig and tolerate x=y:NoSchedule, in the template of "
        "Deployment w; then all 5 pods fit: n1"
    )
    assert len(first.change["objects"]) == 1, "one edit, so that there is one rollout"
    assert started(situation, first) == (5, 5)


def test_the_priority_of_a_class_is_that_of_the_new_pods() -> None:
    situation = Situation(node("n1", 2), HIGH, pod("x", 2), deployment(1, "2"))
    first, *_ = situation.report("Deployment", "w").advice
    assert first.text == (
        "name the PriorityClass high instead of hig, in the template of Deployment w; then it preempts "
        "default/x on n1"
    )


def test_the_next_run_of_a_cron_job() -> None:
    situation = Situation(node("n1", 4), cron_job(3, "3"))
    report = situation.report("CronJob", "w")
    assert report.details[0].startswith("if it ran now, 2 of its 3 pods would be pending: No suitable")
    (only,) = report.advice
    assert only.text == (
        "request at most 1333m cpu instead of 3, in the template of CronJob w; then all 3 pods fit: n1"
    )
    assert started(situation, only, later=300.0) == (3, 3)
    assert not Situation(node("n1", 4), cron_job(3, "1333m")).report("CronJob", "w").details
