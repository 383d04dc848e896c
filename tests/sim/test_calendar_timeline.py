"""The timeline shows when a reservation with a start is planned, planned again, and draining."""

from typing import Any

from harness.objects import node, pod, reservation
from harness.scenarios import play, step

Raw = dict[str, Any]


def _starting(name: str, minutes: int, **annotations: str) -> Raw:
    terms = {"starts-at": f"2026-01-01T{minutes // 60:02}:{minutes % 60:02}:00Z", **annotations}
    return reservation(
        name, cpu="4", metadata={"annotations": {f"holdfast.io/{k}": v for k, v in terms.items()}}
    )


def test_plans_are_in_the_timeline_with_their_nodes() -> None:
    played = play(
        node("n1", 4),
        _starting("window", 60, lead="20m"),
        step("10m", apply=node("n2", 4)),
        step("20m", delete={"kind": "Node", "name": "n1"}),
        until=3700,
    )
    found = [
        (entry.t / 60, entry.event, entry.node)
        for entry in played.result.timeline
        if entry.object == "Reservation/window" and entry.event != "Created"
    ]
    assert found == [
        (0, "Planned", "n1"),
        (20, "Planned", "n2"),
        (40, "Draining", "n2"),
        (60, "Available", "n2"),
    ]


def test_a_plan_that_may_not_be_met_says_why() -> None:
    played = play(node("n1", 4), pod("p", 2, nodeName="n1"), _starting("window", 60), until=60)
    [entry] = [entry for entry in played.result.timeline if entry.event == "Planned"]
    assert "2 cpu short" in entry.message and "default/p" in entry.message


def test_a_reservation_that_has_ended_keeps_the_node_that_it_had() -> None:
    started, released = _starting("started", 10), _starting("released", 10)
    started["spec"]["ttl"] = "10m"
    released["metadata"]["annotations"]["holdfast.io/release-if-unused-after"] = "5m"
    never = reservation("never", cpu="64", metadata=dict(_starting("never", 10)["metadata"]), ttl="10m")
    used = _starting("used", 10)
    used["spec"]["owners"] = [{"labelSelector": {"matchLabels": {"app": "owner"}}}]
    owner = pod("owner", 4, app="owner", at="12m")
    played = play(node("n1", 32), started, released, never, used, owner, until=3600)
    found = {
        raw["metadata"]["name"]: (raw["status"]["phase"], raw["status"].get("nodeName", ""))
        for raw in played.result.objects
        if raw["kind"] == "Reservation"
    }
    assert found == {
        "started": ("Failed", "n1"),
        "released": ("Failed", "n1"),
        "never": ("Failed", ""),
        "used": ("Succeeded", "n1"),
    }
    ends = [entry for entry in played.result.timeline if entry.event in ("Failed", "Succeeded")]
    nodes = {entry.object.removeprefix("Reservation/"): entry.node for entry in ends}
    assert nodes == {name: node for name, (_, node) in found.items()}
    lives = played.result.node_usage.reservations.lives
    assert {life.name: life.end for life in lives} == {
        "started": "Expired",
        "released": "Released",
        "never": "Expired",
        "used": "Succeeded",
    }
