"""What `explain` says of pods and reservations whose end is known, or certain not to come."""

from __future__ import annotations

import json

from explanation.test_situations import (
    ESTIMATE,
    N1,
    annotated,
    as_they_are,
    full,
    on_n1,
    schedule,
)
from harness.objects import Raw, pod, reservation
from harness.world import World
from holdfast.api.times import format_time, parse_time
from holdfast.explanation.report import Report

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
