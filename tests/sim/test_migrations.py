"""Moves in a simulation: budgets know how many pods there should be, and Deployments replace pods."""

import json
from typing import Any

import pytest

from harness.scenarios import events, find, joined, simulate, step_text
from holdfast.sim.simulation import Result

Raw = dict[str, Any]
OWNER = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web", "controller": True}


def _node(name: str) -> str:
    return json.dumps(
        {
            "apiVersion": "v1",
            "kind": "Node",
            "metadata": {"name": name},
            "status": {"allocatable": {"cpu": "4"}},
        }
    )


def _pod(name: str, node: str = "", at: str = "0s") -> str:
    container = {"name": "c", "resources": {"requests": {"cpu": "2"}}}
    metadata = {
        "name": name,
        "labels": {"app": "web"},
        "ownerReferences": [OWNER],
        "annotations": {"sim.holdfast.io/at": at},
    }
    spec: Raw = {"containers": [container]}
    if node:
        spec["nodeName"] = node
    return json.dumps({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec})


def _job(name: str, pod: str, at: str, **spec: Any) -> str:
    return json.dumps(
        {
            "apiVersion": "scheduling.koordinator.sh/v1alpha1",
            "kind": "PodMigrationJob",
            "metadata": {"name": name, "annotations": {"sim.holdfast.io/at": at}},
            "spec": {"podRef": {"namespace": "default", "name": pod}, **spec},
        }
    )


def _budget(**spec: Any) -> str:
    return json.dumps(
        {
            "apiVersion": "policy/v1",
            "kind": "PodDisruptionBudget",
            "metadata": {"name": "web"},
            "spec": {"selector": {"matchLabels": {"app": "web"}}, **spec},
        }
    )


SET = json.dumps(
    {
        "apiVersion": "apps/v1",
        "kind": "ReplicaSet",
        "metadata": {"name": "web"},
        "spec": {"replicas": 2, "selector": {"matchLabels": {"app": "web"}}},
    }
)


def _evictions(result: Result) -> list[tuple[float, str]]:
    return [(e.t, e.object) for e in result.timeline if e.event == "Evicted"]


@pytest.mark.parametrize(
    "budget", [{"maxUnavailable": 1}, {"minAvailable": "50%"}, {"minAvailable": 1}]
)
def test_pods_are_migrated_one_by_one_under_a_budget(budget: Raw) -> None:
    result = simulate(
        joined(
            *(_node(f"n{i}") for i in (1, 2, 3)),
            SET,
            _budget(**budget),
            _pod("a", "n1"),
            _pod("b", "n1"),
            _job("move-a", "a", "10s"),
            _job("move-b", "b", "10s"),
            _pod("c", at="20s"),
            _pod("d", at="30s"),
        )
    )
    assert _evictions(result) == [(10.0, "Pod/default/a"), (20.0, "Pod/default/b")]
    assert events(result, "PodMigrationJob/move-a")[-1] == (20.0, "Succeeded")
    assert events(result, "PodMigrationJob/move-b")[-1] == (30.0, "Succeeded")


def test_a_budget_that_was_given_is_used_up() -> None:
    given = json.loads(_budget(minAvailable=1))
    given["status"] = {"disruptionsAllowed": 1}
    result = simulate(
        joined(
            _node("n1"),
            _node("n2"),
            json.dumps(given),
            _pod("a", "n1"),
            _pod("b", "n1"),
            _job("move-a", "a", "10s", mode="EvictDirectly"),
            _job("move-b", "b", "20s", mode="EvictDirectly"),
        ),
        until=60.0,
    )
    assert _evictions(result) == [(10.0, "Pod/default/a")]
    text = 'Failed evict Pod "default/b" caused by Cannot evict pod as it would violate the pod\'s '
    assert find(result, "PodMigrationJob", "move-b")["status"]["message"] == f"{text}disruption budget."


def test_a_pod_that_takes_its_time_holds_the_job_up_no_longer_than_it_may() -> None:
    slow = json.loads(_pod("a", "n1"))
    slow["metadata"]["annotations"]["sim.holdfast.io/stops-in"] = "20s"
    options = {"gracePeriodSeconds": 5}
    result = simulate(
        joined(
            _node("n1"),
            _node("n2"),
            json.dumps(slow),
            _job("move-a", "a", "10s", deleteOptions=options),
            _pod("c", at="40s"),
        )
    )
    assert events(result, "Pod/default/a")[-2:] == [(10.0, "Evicted"), (15.0, "Deleted")]
    assert events(result, "PodMigrationJob/move-a")[-1] == (40.0, "Succeeded")


def test_a_restart_in_the_middle_changes_nothing() -> None:
    documents = [
        _node("n1"),
        _node("n2"),
        _pod("a", "n1"),
        _job("move-a", "a", "10s"),
        _pod("c", at="40s"),
    ]
    restarts = [step_text(at, "restart: scheduler") for at in ("10s", "20s", "40s")]
    whole, broken = simulate(joined(*documents)), simulate(joined(*documents, *restarts))
    assert [e.event for e in whole.timeline] == [e.event for e in broken.timeline]
    status = find(whole, "PodMigrationJob", "move-a")["status"]
    assert find(broken, "PodMigrationJob", "move-a")["status"]["conditions"] == status["conditions"]
