"""Conditions and events of unschedulable pods: only of those without a node when the round is over."""

from __future__ import annotations

from harness.driver import Driver, default_driver
from harness.objects import Raw, node, pod, reservation
from harness.scenarios import actions
from holdfast.api.decode import decode
from holdfast.api.meta import Object
from holdfast.api.pod import Pod
from holdfast.api.times import format_time, parse_time
from holdfast.scheduler.cluster.decisions import Bind, Decision, Emit, SetPodScheduled

NOW = parse_time("2026-01-01T00:00:00Z")
ESTIMATE = "holdfast.io/run-estimate"


def made(raw: Raw) -> Object:
    raw["metadata"].setdefault("uid", raw["metadata"]["name"])
    if raw["kind"] == "Pod":
        raw["metadata"]["namespace"] = "default"
    return decode(raw)


def planned_node() -> Driver:
    """A node whose capacity is planned for a reservation that starts in an hour."""
    starts = {"holdfast.io/starts-at": format_time(NOW + 3600)}
    night = reservation("night", 8, "night", annotations=starts, ttl="1h")
    driver = default_driver(config=actions("allocate", "backfill")).at(NOW)
    driver.add(made(node("n1", 8)), made(night))
    driver.round(NOW)
    return driver


def short(name: str, cpu: int = 4, minutes: int = 30) -> Pod:
    found = made(pod(name, cpu, annotations={ESTIMATE: f"{minutes}m"}))
    assert isinstance(found, Pod)
    return found


def reported(decisions: list[Decision]) -> dict[str, list[str]]:
    """By pod: its binds, conditions and events of failure, in order."""
    found: dict[str, list[str]] = {}
    for each in decisions:
        if isinstance(each, Bind):
            found.setdefault(each.pod.name, []).append("bind")
        elif isinstance(each, SetPodScheduled):
            found.setdefault(each.pod.name, []).append("condition")
        elif isinstance(each, Emit) and each.reason == "FailedScheduling":
            found.setdefault(each.about.name, []).append("event")
    return found


def test_only_pods_without_a_node_are_reported() -> None:
    driver = planned_node().add(short("in-time", 4), short("late", 4, 61))
    found = reported(driver.round(NOW))
    assert found == {"in-time": ["bind"], "late": ["condition", "event"]}


def test_nobody_is_reported_in_a_part_before_the_one_that_backfills() -> None:
    pods = [short(f"p{i}", cpu) for i, cpu in enumerate((3, 3, 9))]
    driver = planned_node().add(*pods, made(pod("without-end", 2)))
    parts: list[dict[str, list[str]]] = []
    while not parts or driver.scheduler.unfinished:
        parts.append(reported(driver.scheduler.round(NOW, limit=1)))
    assert len(parts) > 4
    assert parts[3] == {"without-end": ["condition", "event"]}
    assert not any(parts[:3]), parts
    together = {name: each for part in parts for name, each in part.items()}
    assert together == {
        "p0": ["bind"],
        "p1": ["bind"],
        "p2": ["condition", "event"],
        "without-end": ["condition", "event"],
    }


def test_no_report_is_held_back_for_longer_than_a_round() -> None:
    driver = planned_node().add(*(short(f"p{i}", 9) for i in range(3)))
    assert reported(driver.scheduler.round(NOW, limit=1)) == {}
    assert "p0" in reported(driver.scheduler.round(NOW + 2, limit=1))
    assert driver.scheduler.unfinished


def test_a_pod_deleted_meanwhile_is_not_reported() -> None:
    gone = short("p0", 9)
    driver = planned_node().add(gone, short("p1", 9))
    assert reported(driver.scheduler.round(NOW, limit=1)) == {}
    driver.delete(gone)
    assert reported(driver.round(NOW)) == {"p1": ["condition", "event"]}


def test_a_report_that_was_dropped_is_made_if_the_bind_is_refused() -> None:
    driver = planned_node()
    driver.add(short("p", 4))
    assert reported(driver.round(NOW)) == {"p": ["bind"]}
    assert driver.record(short("p")).condition_message == ""
    driver.refuse(short("p", 4)).add(made(pod("endless", 8, nodeName="n1")))
    assert reported(driver.round(NOW)) == {"p": ["condition", "event"]}
    found = reported(driver.later(30))
    assert found == {"p": ["condition", "event"]}
    assert driver.message("p").startswith("0/1 nodes are available")
