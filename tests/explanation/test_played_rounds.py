"""The rounds that are played on a copy of a snapshot, and what is kept of them."""

from typing import Any

from explanation.test_situations import full, in_default, snapshot_with
from harness.objects import node, pod, pod_group, queue
from harness.world import START
from holdfast.explanation.facts.played_rounds import (
    PREEMPTED,
    RECLAIMED,
    is_played,
    played,
    was_played,
)
from holdfast.explanation.verdicts import GangGoal, Subject
from holdfast.scheduler.jobs import JobName
from holdfast.snapshot.cluster_changes import applied, delete
from holdfast.snapshot.cluster_snapshot import POD, ClusterSnapshot

Raw = dict[str, Any]
QUEUE = "scheduling.volcano.sh/queue-name"
GROUP = "scheduling.k8s.io/group-name"
P = Subject(POD, "p", "default")


def _pod(name: str, cpu: str, on: str = "", priority: int = 0, queue: str = "", gang: str = "") -> Raw:
    named = {QUEUE: queue, GROUP: gang}
    annotations = {key: value for key, value in named.items() if value}
    metadata = {"namespace": "default", "uid": name, "annotations": annotations}
    if on:
        return full(name, cpu, on, priority=priority, metadata=metadata)
    return {**pod(name, cpu, priority=priority, metadata=metadata), "status": {"phase": "Pending"}}


def _snapshot(*objects: Raw) -> ClusterSnapshot:
    return snapshot_with([node("n1", cpu="4", uid="n1"), *objects], START)


def _goal(snapshot: ClusterSnapshot, name: str) -> GangGoal:
    job = snapshot.cluster.jobs.get("default", name)
    assert job is not None and isinstance(job.name, JobName)
    return GangGoal(job.name)


def test_rounds_are_played_beside_gangs_and_queues_only() -> None:
    assert not is_played(_snapshot(_pod("p", "1"), _pod("q", "1")))
    assert is_played(_snapshot(_pod("p", "1"), queue("a")))
    assert is_played(_snapshot(in_default(pod_group("g", 1)), _pod("p", "1", gang="g")))


def test_a_pod_that_preempts_beside_a_gang() -> None:
    gang = [in_default(pod_group("g", 1)), _pod("g-0", "4", gang="g")]
    snapshot = _snapshot(*gang, _pod("low", "3", "n1"), _pod("p", "2", priority=5))
    play = played(snapshot, P)
    assert play.nodes == ["n1"]
    assert [pod.name for pod in play.victims(PREEMPTED)] == ["low"]
    assert not played(snapshot, _goal(snapshot, "g")).nodes


def test_a_pod_that_reclaims() -> None:
    running = [_pod(f"a{at}", "1", "n1", queue="a") for at in range(4)]
    snapshot = _snapshot(queue("a"), queue("b"), *running, _pod("p", "1", queue="b"))
    play = played(snapshot, P)
    assert play.nodes == ["n1"]
    assert len(play.victims(RECLAIMED)) == 1
    assert play.own_round == 1


def test_the_snapshot_stays_as_it_is() -> None:
    snapshot = _snapshot(queue("a"), _pod("p", "2", queue="a"))
    assert played(snapshot, P).nodes == ["n1"]
    record = P.record(snapshot)
    assert record is not None and record.row < 0
    assert snapshot.scheduler.queue.place(record.uid) == "active"


def test_an_answer_holds_until_objects_are_changed_and_again_when_they_are_changed_back() -> None:
    snapshot = _snapshot(queue("a"), _pod("full", "4", "n1", queue="a"), _pod("p", "2"))
    assert not played(snapshot, P).nodes
    with applied(snapshot, [delete(POD, "full", "default")]):
        assert not was_played(snapshot, P)
        assert played(snapshot, P).nodes == ["n1"]
    assert was_played(snapshot, P)
    assert not played(snapshot, P).nodes
