"""A reservation with finalizers stays, with its capacity, until the last of them is taken away."""

import pytest

from harness.scenarios import (
    NODE,
    events,
    find,
    joined,
    pod_text,
    reservation_text,
    simulate,
    step_text,
)

LET_GO = "patch: {kind: Reservation, name: low, merge: {metadata: {finalizers: null}}}"
KEPT = {"finalizers": ["example.com/keep"]}


LOW = reservation_text("low", labels={"koordinator.sh/priority": "1"}, metadata=KEPT)
HIGH = reservation_text(
    "high",
    "3",
    at="5s",
    labels={"koordinator.sh/priority": "10", "scheduling.koordinator.sh/can-preempt": "true"},
)


@pytest.mark.parametrize("restart", [(), (step_text("8s", "restart: scheduler"),)])
def test_a_preempted_reservation_keeps_its_capacity_until_then(restart: tuple[str, ...]) -> None:
    stranger = pod_text("stranger", "1", at="7s")
    result = simulate(joined(NODE, LOW, HIGH, stranger, *restart, step_text("20s", LET_GO)), until=19)
    low = find(result, "Reservation", "low")["metadata"]
    assert low["deletionTimestamp"] == "2026-01-01T00:00:05Z"
    assert low["finalizers"] == ["example.com/keep"]
    assert find(result, "Reservation", "high")["status"]["phase"] != "Available"
    assert find(result, "Pod", "stranger")["status"]["phase"] == "Pending"
    result = simulate(joined(NODE, LOW, HIGH, stranger, *restart, step_text("20s", LET_GO)), until=30)
    assert (20.0, "Deleted") in events(result, "Reservation/low")
    assert (20.0, "Available") in events(result, "Reservation/high")
    assert (20.0, "Bound") in events(result, "Pod/default/stranger")


def test_a_collected_reservation_stays_until_then() -> None:
    finished = reservation_text("low", ttl="10s", metadata=KEPT)
    hours = simulate(joined(NODE, finished), until=25 * 3600)
    metadata = find(hours, "Reservation", "low")["metadata"]
    assert metadata["deletionTimestamp"] == "2026-01-02T00:00:10Z"
    let_go = step_text("90000s", LET_GO)
    result = simulate(joined(NODE, finished, pod_text("p", "4", at="20s"), let_go), until=90001)
    assert events(result, "Reservation/low")[-1] == (90000.0, "Collected")
    assert (20.0, "Bound") in events(result, "Pod/default/p")


def test_one_that_is_being_deleted_takes_no_owners_and_releases_nothing() -> None:
    delete = step_text("5s", "delete: {kind: Reservation, name: low}")
    owner = """
        apiVersion: v1
        kind: Pod
        metadata: {name: o, labels: {app: low}, annotations: {sim.holdfast.io/at: 7s}}
        spec: {containers: [{name: c, resources: {requests: {cpu: "1"}}}]}
    """
    text = joined(NODE, LOW, delete, owner, step_text("20s", LET_GO))
    assert find(simulate(text, until=19), "Pod", "o")["status"]["phase"] == "Pending"
    result = simulate(text, until=30)
    assert (20.0, "Deleted") in events(result, "Reservation/low")
    assert (20.0, "Bound") in events(result, "Pod/default/o")
