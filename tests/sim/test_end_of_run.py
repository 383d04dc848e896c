"""When a run ends, and what a restart in the middle of it changes: nothing."""

import pytest

from harness.scenarios import NODE, events, find, joined, pod_text, simulate, step_text

WAITING = pod_text("big", "8")


@pytest.mark.parametrize(
    ("parts", "end"),
    [
        ([NODE], 0.0),
        ([NODE, pod_text("p", at="7s")], 7.0),
        ([NODE, pod_text("p", runs_for="5s")], 5.0),
        ([NODE, pod_text("p", delete_at="8s", stops_in="4s")], 12.0),
        ([NODE, WAITING], 0.0),
        ([NODE, WAITING, step_text("50s", "restart: scheduler")], 50.0),
        ([NODE, pod_text("p", spec="activeDeadlineSeconds: 6")], 6.0),
        ([NODE, "{apiVersion: sim.holdfast.io/v1alpha1, kind: Expect, at: 9s}"], 9.0),
    ],
    ids=["nothing", "at", "runs-for", "stops-in", "waiting", "step", "deadline", "expect"],
)
def test_a_run_ends_when_all_that_is_stated_has_happened(parts: list[str], end: float) -> None:
    assert simulate(joined(*parts)).end == end


def test_until_is_the_end_whatever_happens() -> None:
    text = joined(NODE, pod_text("a", runs_for="5s"), pod_text("b", at="20s"))
    assert simulate(text, until=60).end == 60.0
    early = simulate(text, until=5)
    assert (early.end, events(early, "Pod/default/b")) == (5.0, [])
    assert (5.0, "Succeeded") in events(early, "Pod/default/a")


def test_what_follows_at_once_still_happens() -> None:
    text = joined(NODE, pod_text("a", "4", runs_for="5s"), pod_text("b", "4"))
    assert events(simulate(text), "Pod/default/b")[-1] == (5.0, "Running")


def test_a_pod_that_takes_no_time_frees_capacity_at_the_same_moment() -> None:
    text = joined(NODE, pod_text("a", "4", runs_for="0s"), pod_text("b", "4"))
    result = simulate(text)
    assert events(result, "Pod/default/b")[-1] == (0.0, "Running")
    assert result.end == 0.0


@pytest.mark.parametrize("at", ["0s", "4s", "5s", "6s", "9s"])
def test_a_restart_changes_nothing_that_matters(at: str) -> None:
    parts = [
        NODE,
        pod_text("a", "4", runs_for="5s"),
        pod_text("b", "3", at="1s"),
        pod_text("c", "3", at="2s"),
    ]
    plain = simulate(joined(*parts, step_text("9s", "restart: scheduler")))
    restarted = simulate(
        joined(*parts, step_text("9s", "restart: scheduler"), step_text(at, "restart: scheduler"))
    )
    assert restarted.timeline == plain.timeline
    assert find(restarted, "Pod", "c")["status"] == find(plain, "Pod", "c")["status"]


def test_the_same_seed_gives_the_same_uids_and_another_gives_others() -> None:
    def uid(seed: int) -> str:
        return str(find(simulate(NODE, seed=seed), "Node", "n1")["metadata"]["uid"])

    assert uid(1) == uid(1) != uid(2)
