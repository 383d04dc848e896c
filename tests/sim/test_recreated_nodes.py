"""A node that is deleted and created again under its name is another node, however soon it comes."""

import pytest

from harness.scenarios import (
    NODE,
    condition,
    events,
    find,
    joined,
    pod_text,
    reservation_text,
    simulate,
    step_text,
)

BACK_AT_ONCE = (step_text("10s", "delete: {kind: Node, name: n1}"), step_text("10s", f"apply: {NODE}"))


def test_its_reservations_expire_and_their_capacity_is_free_again() -> None:
    result = simulate(
        joined(
            NODE,
            pod_text("busy", "3", "nodeName: n1"),
            reservation_text("available", "1"),
            reservation_text("waiting", "3", preAllocation=True),
            *BACK_AT_ONCE,
            pod_text("next", "4", at="10s"),
        ),
        until=20,
    )
    for name in ("available", "waiting"):
        raw = find(result, "Reservation", name)
        ready = condition(raw, "Ready")
        assert (raw["status"]["phase"], ready["reason"]) == ("Failed", "Expired"), name
        assert (10.0, "Failed") in events(result, f"Reservation/{name}")
    assert (10.0, "Deleted") in events(result, "Pod/default/busy")
    assert (10.0, "Bound") in events(result, "Pod/default/next")


def test_a_pod_that_is_bound_to_the_new_node_stays() -> None:
    result = simulate(joined(NODE, *BACK_AT_ONCE, pod_text("next", "4", at="10s")), until=20)
    assert events(result, "Pod/default/next")[-1] == (10.0, "Running")


@pytest.mark.parametrize("when", ["9s", "11s"])
def test_after_a_restart_too(when: str) -> None:
    result = simulate(
        joined(
            NODE,
            reservation_text("available", "4"),
            *BACK_AT_ONCE,
            step_text(when, "restart: scheduler"),
            pod_text("next", "4", at="12s"),
        ),
        until=20,
    )
    assert find(result, "Reservation", "available")["status"]["phase"] == "Failed"
    assert (12.0, "Bound") in events(result, "Pod/default/next")


def test_a_node_that_only_changes_keeps_its_reservations() -> None:
    patch = "patch: {kind: Node, name: n1, merge: {metadata: {labels: {zone: a}}}}"
    result = simulate(
        joined(NODE, reservation_text("available", "4"), step_text("10s", patch)), until=20
    )
    assert find(result, "Reservation", "available")["status"]["phase"] == "Available"
