"""What `explain` says of PodMigrationJobs, and that its advice is true."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any, NamedTuple

import pytest

from explanation.test_situations import ESTIMATE, budget, changed, full, snapshot_of
from harness.objects import Raw, migration, node, pod, replica, reservation, running
from harness.world import World
from holdfast.explanation.explainer import explain
from holdfast.explanation.report import Report

N1, N2 = node("n1", cpu="4"), node("n2", cpu="4")
RESERVATION = "job-move"


def web(name: str = "web", cpu: str = "3", **spec: Any) -> Raw:
    return running(replica(name, cpu=cpu, **spec), "n1")


def explained(world: World, name: str = "move") -> Report:
    snapshot = snapshot_of(world)
    found = explain(snapshot, world.migration(name))
    assert found.data() == explain(snapshot, world.migration(name)).data(), (
        "asking changed the snapshot"
    )
    return found


def protected(minimum: int | str = 1, healthy: int = 1, bound: str = "minAvailable") -> Raw:
    raw = budget("web")
    raw["spec"] = {"selector": raw["spec"]["selector"], bound: minimum}
    desired = minimum if bound == "minAvailable" and isinstance(minimum, int) else healthy
    raw["status"] = {
        "currentHealthy": healthy,
        "desiredHealthy": desired,
        "expectedPods": healthy,
        "disruptionsAllowed": 0,
    }
    return raw


def named(raw: Raw, name: str) -> Raw:
    return {**raw, "metadata": {**raw["metadata"], "name": name, "uid": name}}


class Case(NamedTuple):
    objects: list[Raw]
    says: list[str]
    advises: tuple[str, ...] | list[str] = ()
    job: Raw = migration()
    prepare: Callable[[World], object] = lambda world: None
    after: Callable[[World], object] = lambda world: None


def refuse_eviction(world: World) -> None:
    world.protected = {"web"}


def graceful(world: World) -> None:
    world.graceful = True


def not_ready(world: World) -> None:
    world.pods_become_ready = False


CASES: dict[str, Case] = {
    "no other node has the capacity": Case(
        [N1, N2, web(), full("a", "2", "n2")],
        [
            f"It evicts pod default/web on n1 once its reservation {RESERVATION} has capacity. "
            "Of the reservation: No suitable node",
            "it fails in 5m (the default ttl is 5m)",
        ],
        ["EndPods"],
    ),
    "the other node is cordoned": Case(
        [N1, node("n2", cpu="4", unschedulable=True), web()], ["cordoned"], ["Uncordon"]
    ),
    "there is no other node": Case(
        [N1, web()], ["No suitable node", "nothing that was tried would help"]
    ),
    "capacity is free within the ttl": Case(
        [N1, N2, web(), full("a", "2", "n2", annotations={ESTIMATE: "4m"})],
        ["No suitable node"],
        ["Wait"],
    ),
    "the other node is cordoned, and a budget forbids the eviction": Case(
        [N1, node("n2", cpu="4", unschedulable=True), web(), protected()],
        [
            f"once its reservation {RESERVATION} has capacity, and PodDisruptionBudget default/web "
            "allows it. Of the reservation: ",
            "PodDisruptionBudget default/web allows 0 more evictions",
        ],
        ["ChangeBudget"],
        prepare=refuse_eviction,
        after=lambda world: world.protected.clear(),
    ),
    "capacity is free within the ttl, and two budgets forbid the eviction": Case(
        [
            *(N1, N2, web(), protected(), named(protected(), "second")),
            full("a", "2", "n2", annotations={ESTIMATE: "4m"}),
        ],
        ["a pod with several PodDisruptionBudgets is never evicted"],
        prepare=refuse_eviction,
    ),
    "capacity is free after the ttl": Case(
        [N1, N2, web(), full("a", "2", "n2", annotations={ESTIMATE: "30m"})],
        ["No suitable node"],
        ["SetTTL"],
    ),
    "a reservation of others": Case(
        [N1, N2, web(), reservation("peak", "3", app="x", ttl="1h", nodeName="n2")],
        ["reservation peak keeps 3 cpu on n2"],
        ["SetTTL", "DeleteReservation"],
    ),
    "a budget forbids the eviction": Case(
        [N1, N2, web(), protected()],
        [
            "Pod default/web on n1 cannot be evicted: PodDisruptionBudget default/web forbids it.",
            "PodDisruptionBudget default/web allows 0 more evictions: 1 pod is healthy, and 1 must be "
            "(minAvailable: 1)",
            f"its reservation {RESERVATION} has capacity on n2",
        ],
        ["ChangeBudget"],
        prepare=refuse_eviction,
    ),
    "a budget with maxUnavailable": Case(
        [N1, N2, web(), protected(0, bound="maxUnavailable")],
        ["(maxUnavailable: 0)"],
        ["ChangeBudget"],
        prepare=refuse_eviction,
    ),
    "a budget, and a pod of it is pending": Case(
        [N1, N2, web(), protected(), replica("web-9", cpu="90")],
        ["pods of the budget that are pending, and would count once they run: default/web-9"],
        ["ChangeBudget"],
        prepare=refuse_eviction,
    ),
    "an eviction that is refused without a budget": Case(
        [N1, N2, web()],
        ["cannot be evicted: the API server refuses it", "caused by webhook says no"],
        prepare=lambda world: setattr(world, "eviction_refusal", "webhook says no"),
    ),
    "no reservation, and a budget": Case(
        [N1, web(), protected()],
        ["it evicts without a reservation (spec.mode is EvictDirectly)", "default/web forbids it"],
        ["ChangeBudget"],
        job=migration(mode="EvictDirectly"),
        prepare=refuse_eviction,
    ),
    "the pod terminates": Case(
        [N1, N2, web()],
        ["It waits until pod default/web on n1, which is being deleted, has ended."],
        prepare=graceful,
    ),
    "no replacement is created": Case(
        [N1, N2, web()],
        [
            f"Pod default/web was evicted, and no pending pod could use its reservation {RESERVATION} "
            "on n2.",
            "ReplicaSet default/web has not created a replacement",
        ],
    ),
    "its replacement requests nothing, so that it does not use the reservation": Case(
        [N1, N2, web(cpu="0")],
        [
            "no pending pod could use its reservation",
            "pod default/web-2 replaces it, on n1, without the reservation: it requests no resources",
        ],
        after=lambda world: world.put(web("web-2", cpu="0")),
    ),
    "nobody creates the pod again": Case(
        [N1, N2, running(pod("web", "3"), "n1")],
        ["the pod has no controller that creates it again: create it under the same name"],
    ),
    "the replacement is gated": Case(
        [N1, N2, web(), replica("web-2", cpu="3", schedulingGates=[{"name": "x"}])],
        [
            "Its replacement default/web-2 is to be bound through its reservation job-move on n2. "
            "Of the replacement: It is blocked by scheduling gates."
        ],
        ["RemoveGates"],
    ),
    "the replacement is not ready": Case(
        [N1, N2, web()],
        ["it waits until its replacement default/web-2 is ready. Of the replacement: It is on n2"],
        prepare=not_ready,
        after=lambda world: world.put(replica("web-2", cpu="3")),
    ),
    "done": Case(
        [N1, N2, web()],
        ["It has succeeded: pod default/web was evicted, and default/web-2 on n2 replaces it."],
        after=lambda world: world.put(replica("web-2", cpu="3")),
    ),
    "paused": Case(
        [N1, N2, web()],
        ["It is paused", "once it is resumed, a reservation for its replacement fits n2"],
        ["Resume"],
        job=migration(paused=True),
    ),
    "paused, and no node has the capacity": Case(
        [N1, N2, web(), full("a", "2", "n2")],
        [
            "once it is resumed, a reservation for its replacement waits: No suitable node",
            """to resume it: kubectl patch pmj move --type merge -p '{"spec":{"paused":false}}'""",
        ],
        ["EndPods"],
        job=migration(paused=True),
    ),
    "paused, and its ttl is over": Case(
        [N1, N2, web()],
        ["if it were resumed it would fail at once: the default ttl is 5m, over 55m ago"],
        ["Resume"],
        job=migration(paused=True),
        after=lambda world: world.wait(3600),
    ),
    "paused, and a budget forbids the eviction": Case(
        [N1, N2, web(), protected()],
        ["once it is resumed, the eviction of the pod is refused:", "allows 0 more evictions"],
        ["ChangeBudget"],
        job=migration(paused=True),
    ),
    "its ttl is over": Case(
        [N1, N2, web(), full("a", "2", "n2")],
        [
            "It failed: it was not done when its ttl was over (the default ttl is 5m); its reservation "
            "had no node: 0/2 nodes are available",
            "if it were created again, a reservation for its replacement waits: No suitable node",
        ],
        ["EndPods"],
        after=lambda world: world.wait(600),
    ),
    "its ttl is over, and capacity is free now": Case(
        [N1, N2, web(), full("a", "2", "n2")],
        [
            "if it were created again, a reservation for its replacement fits n2",
            "a job is not tried again: delete it and create it again",
        ],
        after=lambda world: (world.wait(600), world.delete("Pod", "a")),
    ),
    "a pod that does not exist": Case(
        [N1, N2, web()],
        [
            'It failed: Abort job caused by missing Pod "default/wbe". Nothing more is done.',
            "there is no pod default/wbe; did you mean web?",
        ],
        job=migration(pod="wbe"),
    ),
    "a pod of another scheduler": Case(
        [N1, N2, web(schedulerName="other")],
        ["can not be migrated by ReservationFirst mode because pod.schedulerName=other"],
    ),
    "a reservation that does not exist": Case(
        [N1, N2, web()],
        ['missing Reservation "/nope"'],
        job=migration(reservationOptions={"reservationRef": {"name": "nope"}}),
    ),
}


def world_for(case: Case) -> World:
    world = World(*copy.deepcopy(case.objects))
    case.prepare(world)
    world.put(copy.deepcopy(case.job))
    case.after(world)
    return world


@pytest.mark.parametrize("name", CASES)
def test_situation(name: str) -> None:
    case = CASES[name]
    report = explained(world_for(case))
    said = "\n".join([report.summary, *report.details])
    for text in case.says:
        assert text in said
    told = [(each.change["actions"][0], each.text) for each in report.advice]
    assert [action for action, _ in told] == list(case.advises), told


RESERVED = [
    "no other node has the capacity",
    "the other node is cordoned",
    "the other node is cordoned, and a budget forbids the eviction",
    "a reservation of others",
]


@pytest.mark.parametrize("name", RESERVED)
def test_with_each_advice_the_pod_is_moved(name: str) -> None:
    world = world_for(CASES[name])
    for advice in explained(world).advice:
        after = changed(list(world.objects.values()), advice.change)
        again = World(*sorted(after, key=lambda each: each["kind"] != "PodMigrationJob"))
        assert again.evicted == ["web"], advice.text


def test_a_job_that_no_scheduler_has_seen() -> None:
    world = World(N1, N2, web())
    job = {**migration(), "metadata": {"name": "move", "uid": "job-move"}}
    report = explain(snapshot_of(world), job)
    assert report.summary == "No scheduler has seen it yet: it has no status."
    assert report.details == ["when one does, a reservation for its replacement fits n2"]


def test_a_pod_that_another_job_moves() -> None:
    world = World(N1, N2, web(), full("a", "2", "n2"))
    world.put(migration())
    world.put(migration("second"))
    report = explained(world, "second")
    assert 'is already being migrated by PodMigrationJob "move"' in report.summary


@pytest.mark.parametrize("mode", ["EvictDirectly", "ReservationFirst"])
def test_one_more_replica_lets_a_budget_allow_the_eviction(mode: str) -> None:
    """But it would use the reservation for the replacement, and the job would fail."""
    workload = {
        "apiVersion": "apps/v1",
        "kind": "ReplicaSet",
        "metadata": {"name": "web", "namespace": "default", "uid": "web"},
        "spec": {"replicas": 1, "selector": {"matchLabels": {"app": "web"}}},
    }
    world = World(N1, N2, node("n3", cpu="4"), web(), protected(), workload)
    refuse_eviction(world)
    world.put(migration(mode=mode))
    *scaled, wider = [each.text for each in explained(world).advice]
    assert wider == (
        "lower minAvailable of PodDisruptionBudget default/web from 1 to 0; then the pod can be evicted"
    )
    text = "scale ReplicaSet web to 2 replicas, so that the budget allows an eviction once the new pod"
    assert [each.startswith(text) for each in scaled] == ([True] if mode == "EvictDirectly" else [])
