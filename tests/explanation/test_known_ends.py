"""What `explain` says of pods and reservations whose end is known, or certain not to come."""

from __future__ import annotations

import json

import pytest

from explanation.test_situations import (
    ESTIMATE,
    FACTORY,
    N1,
    affinity_to,
    annotated,
    as_they_are,
    full,
    in_default,
    on_n1,
    planned,
    schedule,
    snapshot_with,
)
from harness.objects import Raw, pod, pod_group, reservation
from harness.world import World
from holdfast.api.times import format_time, parse_time
from holdfast.explanation.explainer import explain
from holdfast.explanation.report import Report
from holdfast.sim.forecast.snapshots import SnapshotForecast

NOW = World().now


def waits(report: Report) -> list[float]:
    """The seconds that are advised to wait."""
    found = [each.change["until"] for each in report.advice if each.change.get("until")]
    return [parse_time(until) - NOW for until in found]


def preemption() -> list[Raw]:
    """A reservation that waits until the one that it preempts is gone, whose pod is being deleted."""
    user = full("user", "8", "n1", app="low")
    allocated = json.dumps({"name": "low", "uid": "low"})
    user["metadata"] |= {
        "annotations": {"scheduling.koordinator.sh/reservation-allocated": allocated},
        "deletionTimestamp": format_time(NOW + 30),
        "deletionGracePeriodSeconds": 30,
    }
    low = on_n1(reservation("low", "8", app="low", allocateOnce=False, ttl="24h"))
    low["metadata"] |= {
        "creationTimestamp": format_time(NOW - 60),
        "annotations": {"holdfast.io/preempted-by": "Reservation/high"},
        "labels": {"koordinator.sh/priority": "10"},
    }
    low["status"]["allocated"] = {"cpu": "8"}
    low["status"]["currentOwners"] = [{"namespace": "default", "name": "user", "uid": "user"}]
    high = on_n1(reservation("high", "8", app="high", ttl="0s"))
    high["metadata"] |= {
        "annotations": {"holdfast.io/preempts": '{"reservations":["low"]}'},
        "labels": {
            "koordinator.sh/priority": "100",
            "scheduling.koordinator.sh/can-preempt": "true",
        },
    }
    high["status"]["phase"] = "Waiting"
    return [N1, user, low, high, pod("p", "8", app="high")]


def test_a_preempted_reservation_ends_with_the_pod_that_is_being_deleted() -> None:
    report = as_they_are("Reservation", "high", *preemption())
    assert waits(report) == [30]
    assert report.details == [
        "pod default/user has 8 cpu: it is being deleted, and expected to end in 30s"
    ]
    assert waits(as_they_are("Pod", "p", *preemption())) == [30]


def test_a_pod_of_a_replica_set_does_not_end_by_its_estimate() -> None:
    """Another one would be created in its place."""
    owner = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "r", "uid": "r", "controller": True}
    service = full("a", "8", "n1", metadata={**annotated(**{ESTIMATE: "30m"})})
    assert waits(as_they_are("Pod", "p", N1, service, pod("p", "8"))) == [1800]
    service["metadata"]["ownerReferences"] = [owner]
    assert waits(as_they_are("Pod", "p", N1, service, pod("p", "8"))) == []


def test_a_schedule_without_a_start_is_never_due() -> None:
    raw = schedule("nightly")
    raw["spec"]["schedule"] = "0 18 31 2 *"
    report = as_they_are("ReservationSchedule", "nightly", N1, raw)
    assert report.phase == "NeverDue"
    assert "It makes no reservations: '0 18 31 2 *' has no start within 5 years." in report.summary


# The forecast


def forecast(name: str, *objects: Raw) -> Report:
    """The report on a pod, with a forecast."""
    known = [
        {**raw, "metadata": {"uid": raw["metadata"]["name"], **raw["metadata"]}} for raw in objects
    ]
    for raw in known:
        if raw["kind"] == "Pod":
            raw["metadata"].setdefault("namespace", "default")
    snapshot = snapshot_with(known, NOW, FACTORY)
    jobs = [raw for raw in known if raw["kind"] == "CronJob"]
    snapshot.forecast = SnapshotForecast(snapshot, FACTORY, jobs)
    (wanted,) = [r for r in known if (r["kind"], r["metadata"]["name"]) == ("Pod", name)]
    return explain(snapshot, wanted)


def lasting(name: str, cpu: str, estimate: str, on: str = "") -> Raw:
    metadata = annotated(**{ESTIMATE: estimate})
    if not on:
        return pod(name, cpu, metadata=metadata)
    raw = full(name, cpu, on, metadata=metadata)
    raw["status"]["startTime"] = format_time(NOW)
    return raw


def test_small_pods_that_take_what_is_freed_are_counted() -> None:
    running = [lasting(f"r{hour}", "4", f"{hour}h", "n1") for hour in (1, 2)]
    small = [lasting(f"z{i}", "4", "10h") for i in range(2)]
    objects = [N1, *running, *small, pod("p", "8")]
    assert waits(as_they_are("Pod", "p", *objects)) == [2 * 3600]
    report = forecast("p", *objects)
    assert waits(report) == [12 * 3600]
    assert "2 other pending pods start before" in report.advice[0].text
    endless = [pod(f"z{i}", "4") for i in range(2)]
    report = forecast("p", N1, *running, *endless, pod("p", "8"))
    assert waits(report) == []
    assert "once capacity is free, other pods take it: see `holdfast when`" in report.details


HIGH: Raw = {
    "apiVersion": "scheduling.k8s.io/v1",
    "kind": "PriorityClass",
    "metadata": {"name": "high"},
    "value": 1000,
    "preemptionPolicy": "Never",
}


def every_five_minutes(cpu: str) -> Raw:
    """A CronJob whose pods have no run-time estimate."""
    spec = {**pod("x", cpu)["spec"], "restartPolicy": "Never", "priorityClassName": "high"}
    jobs = {"spec": {"template": {"metadata": {}, "spec": spec}}}
    return {
        "apiVersion": "batch/v1",
        "kind": "CronJob",
        "metadata": {"name": "n", "namespace": "default", "creationTimestamp": format_time(NOW)},
        "spec": {"schedule": "*/5 * * * *", "concurrencyPolicy": "Forbid", "jobTemplate": jobs},
    }


@pytest.mark.parametrize(("cpu", "expected"), [("8", []), ("1", [600])])
def test_later_pods_of_a_cron_job_are_not_waited_for(cpu: str, expected: list[int]) -> None:
    """Nobody knows that they end: what starts beside them if they do not is waited for."""
    running = lasting("a", "8", "10m", "n1")
    report = forecast("p", N1, HIGH, running, every_five_minutes(cpu), pod("p", "6"))
    assert waits(report) == expected
    taken = "once capacity is free, other pods take it: see `holdfast when`" in report.details
    assert taken == (not expected)


def test_none_take_what_is_freed_for_a_gang_that_is_too_large() -> None:
    members = [pod(f"t-{i}", "6", group="t") for i in range(2)]
    objects = [N1, in_default(pod_group("t", 2)), lasting("y", "4", "30m", "n1"), *members]
    for others in ([], [pod("small", "8")]):
        report = forecast("t-0", *objects, *others)
        assert waits(report) == []
        assert not [each for each in report.details if "once capacity is free" in each]


def test_a_forecast_that_agrees_changes_nothing() -> None:
    objects = [N1, lasting("a", "8", "30m", "n1"), pod("p", "8")]
    assert forecast("p", *objects).advice == as_they_are("Pod", "p", *objects).advice


def test_a_forecast_of_the_start_of_its_own_reservation_is_no_other_wait() -> None:
    report = forecast("p", N1, planned("nightly", "6"), pod("p", "4", app="night"))
    assert [each.text for each in report.advice if each.change.get("until")] == [
        "wait 2h, until 2026-01-01T02:00:00Z: reservation nightly starts"
    ]


@pytest.mark.parametrize(
    "spec",
    [
        {"unschedulable": True},
        {"taints": [{"key": "k", "value": "v", "effect": "NoSchedule"}]},
        {"allocatePolicy": "Restricted"},
    ],
)
def test_the_expiry_of_a_reservation_that_cannot_be_used_is_waited_for(spec: Raw) -> None:
    peak = on_n1(reservation("peak", "6", app="web", allocateOnce=False, ttl="2h", **spec))
    peak["metadata"]["creationTimestamp"] = format_time(NOW)
    assert waits(forecast("p", N1, peak, pod("p", "7", app="web"))) == [7200]


def test_the_end_of_a_planned_reservation_is_waited_for() -> None:
    raw = planned("night", "8")
    raw["metadata"]["annotations"]["holdfast.io/starts-at"] = format_time(NOW + 600)
    raw["spec"]["ttl"] = "20m"
    report = forecast("p", N1, raw, pod("p", "4"))
    assert waits(report) == [1800]
    assert "reservation night should end on n1" in report.advice[0].text


def test_what_ends_long_before_a_starvation_hold_is_no_reason_to_wait() -> None:
    """The pod is no owner of the reservation, which ends a day before the pod starves."""
    needy = pod("needy", "1", annotations=affinity_to({}))
    report = forecast("needy", N1, on_n1(reservation("r", "2", app="other", ttl="24h")), needy)
    (wait,) = (each.text for each in report.advice if each.text.startswith("wait "))
    assert wait.endswith(": it is starving by then, and gets a starvation hold on n1"), wait
