"""Transactions nest, and undoing one leaves no trace."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.builders import make_node, make_pod
from harness.choices import Chooser, choosing, seeded
from harness.strategies import examples
from holdfast.api.meta import ObjectMeta, ObjectReference
from holdfast.api.reservation import Reservation, ReservationOwner, ReservationSpec
from holdfast.scheduler.cluster.events import Added
from holdfast.scheduler.cluster.records import Phase, PodRecord
from holdfast.scheduler.cluster.slots import CPU, MEMORY, PODS
from holdfast.scheduler.state.cluster import Cluster
from holdfast.scheduler.state.recount import validate_state

_ZONE = "topology.kubernetes.io/zone"


def make_cluster() -> Cluster:
    cluster = Cluster()
    for i in range(3):
        node = make_node(f"n{i}").allocatable(cpu="8", memory="16Gi").zone(f"z{i % 2}").obj()
        cluster.feed(Added(node), 0.0)
    zones = cluster.nodes.labels.column(_ZONE)
    cluster.topology.counter("all", lambda cls: True).domains(zones)
    cluster.topology.counter("web", lambda cls: cls.labels.get("app") == "web").domains(zones)
    for i in range(6):
        pod = make_pod(f"p{i}").cpu(f"{i}00m").label("app", "web" if i % 2 else "db")
        if i in (1, 4):
            pod.host_port(80, host_ip="10.0.0.1" if i == 1 else "")
        if i < 2:
            pod.on("n0")
        cluster.feed(Added(pod.obj()), 0.0)
    for uid in ("kept", "h1", "h2"):
        cluster.feed(Added(reservation(uid)), 0.0)
    set_aside(cluster, "kept", 1)
    return cluster


def reservation(uid: str) -> Reservation:
    resources = {"requests": {"cpu": "500m", "memory": "1Gi"}}
    template = {"spec": {"containers": [{"name": "c", "resources": resources}]}}
    owner = ReservationOwner(object=ObjectReference(name="nobody"))
    return Reservation(
        kind="Reservation",
        metadata=ObjectMeta(name=uid, uid=uid),
        spec=ReservationSpec(template=template, owners=[owner]),
    )


def reserve_pod(cluster: Cluster, uid: str) -> PodRecord:
    pod = cluster.reservations.known[uid].pod
    assert pod is not None
    return pod


def set_aside(cluster: Cluster, uid: str, row: int) -> None:
    cluster.ledger.reserve(reserve_pod(cluster, uid), row, cluster.reservations.known[uid].amounts)


def problems(cluster: Cluster) -> list[str]:
    """Phases are not the ledger's business."""
    for reservation in cluster.reservations.known.values():
        assert reservation.pod is not None
        reservation.pod.phase = Phase.PENDING if reservation.pod.row < 0 else Phase.ASSIGNED
    for pod in cluster.pods.values():
        pod.phase = Phase.PENDING if pod.row < 0 else Phase.ASSIGNED
    return validate_state(cluster)


def snapshot(cluster: Cluster) -> dict[str, Any]:
    """Every number the ledger is answerable for, copied."""
    table, ledger = cluster.nodes, cluster.ledger
    return {
        "claimed": table.claimed.tolist(),
        "held": table.held.tolist(),
        "allocatable": table.allocatable.tolist(),
        "ports": [table.ports.in_use(row) for row in range(table.size)],
        "pods": {row: set(pods) for row, pods in ledger.pods.items()},
        "rows": {uid: pod.row for uid, pod in cluster.pods.items()},
        "holds": {
            entry.pod.uid: (entry.row, dict(entry.amounts), {s: n for s, n in entry.taken.items() if n})
            for entry in ledger.reservations
        },
        "drawn": {uid: pod.reservation_uid for uid, pod in cluster.pods.items()},
        "placed": {cls.id: dict(cls.placed) for cls in cluster.classes},
        "counters": {
            key: (counter.rows.tolist(), counter.domains(table.labels.column(_ZONE)).tolist())
            for key, counter in cluster.topology.counters().items()
        },
    }


def move_something(cluster: Cluster, choose: Chooser) -> None:
    ledger = cluster.ledger
    if choose((True, True, False)):
        pod = cluster.pods[choose(sorted(cluster.pods))]
        if choose((True, False, False)):
            ledger.allocate_from(
                pod, choose(("", "kept", "h1")) if pod.row >= 0 else pod.reservation_uid
            )
        elif pod.row < 0:
            ledger.place(pod, choose((0, 1, 2)))
        else:
            ledger.remove(pod)
        return
    uid = choose(("kept", "h1", "h2"))
    if ledger.reservations.get(uid) is not None:
        if choose((True, False)):
            sizes = {"less": {CPU: 300}, "more": {CPU: 900, PODS: 1}, "other": {MEMORY: 2048, PODS: 2}}
            ledger.resize(reserve_pod(cluster, uid), sizes[choose(sorted(sizes))])
        else:
            ledger.release(reserve_pod(cluster, uid))
    else:
        set_aside(cluster, uid, choose((0, 1, 2)))


class InterruptedPlayError(Exception):
    pass


def play(cluster: Cluster, choose: Chooser, depth: int = 0) -> None:
    """Moves inside nested transactions; each that is not committed leaves no trace."""
    for _ in range(choose((1, 2, 4))):
        move_something(cluster, choose)
        if depth < 3 and choose((True, False)):
            before = snapshot(cluster)
            end = choose(("commit", "undo", "raise"))
            try:
                with cluster.ledger.transaction() as transaction:
                    play(cluster, choose, depth + 1)
                    if end == "commit":
                        transaction.commit()
                    elif end == "raise":
                        raise InterruptedPlayError
            except InterruptedPlayError:
                pass
            if end != "commit":
                assert snapshot(cluster) == before


def assert_all_undone(choose: Chooser) -> None:
    cluster = make_cluster()
    before = snapshot(cluster)
    with cluster.ledger.transaction():
        play(cluster, choose)
    assert snapshot(cluster) == before
    assert not problems(cluster)


@examples(50)
@given(st.data())
def test_what_is_not_committed_leaves_no_trace(data: st.DataObject) -> None:
    assert_all_undone(choosing(data.draw))


def test_what_is_not_committed_leaves_no_trace_in_many_plays() -> None:
    for seed in range(examples(200).max_examples):
        assert_all_undone(seeded(seed))


def outer_and_inner(cluster: Cluster, commit_outer: bool, commit_inner: bool) -> None:
    ledger = cluster.ledger
    for uid in ("outer", "inner", "after"):
        cluster.feed(Added(reservation(uid)), 0.0)
    with ledger.transaction() as outer:
        set_aside(cluster, "outer", 0)
        with ledger.transaction() as inner:
            set_aside(cluster, "inner", 0)
            if commit_inner:
                inner.commit()
        set_aside(cluster, "after", 0)
        if commit_outer:
            outer.commit()


@pytest.mark.parametrize(
    ("commit_outer", "commit_inner", "left"),
    [
        (True, True, {"kept", "outer", "inner", "after"}),
        (True, False, {"kept", "outer", "after"}),
        (False, True, {"kept"}),
        (False, False, {"kept"}),
    ],
)
def test_an_inner_commit_stands_only_with_the_outer(
    commit_outer: bool, commit_inner: bool, left: set[str]
) -> None:
    cluster = make_cluster()
    outer_and_inner(cluster, commit_outer, commit_inner)
    assert {entry.pod.uid for entry in cluster.ledger.reservations} == left
    assert not problems(cluster)


def test_rows_touched_by_what_was_undone_are_in_the_log() -> None:
    """A cache may have read them in between."""
    cluster = make_cluster()
    position = cluster.epoch.usage.end
    with cluster.ledger.transaction():
        set_aside(cluster, "h1", 2)
    changed = cluster.epoch.usage.since(position)
    assert changed is not None and set(changed.tolist()) == {2}


def test_a_row_without_a_node_is_not_closed_while_its_pod_is_being_put_back() -> None:
    """Its node is deleted. The pod is removed for another one elsewhere, and that is undone."""
    cluster = make_cluster()
    late = make_pod("late").cpu("1").on("gone").obj()
    other = cluster.pods["uid-p5"]
    cluster.feed(Added(late), 0.0)
    row = cluster.nodes.row("gone")
    for _ in range(2):
        with cluster.ledger.transaction():
            cluster.ledger.remove(cluster.pods["uid-late"])
            cluster.ledger.place(other, 2)
        assert cluster.nodes.row("gone") == row
    assert not problems(cluster)


def test_changes_outside_a_transaction_stand_at_once() -> None:
    cluster = make_cluster()
    set_aside(cluster, "h1", 0)
    with cluster.ledger.transaction():
        cluster.ledger.release(reserve_pod(cluster, "h1"))
    assert cluster.nodes.held[0, 0] == 500


@pytest.mark.parametrize(
    ("what", "message"),
    [
        (lambda cluster: set_aside(cluster, "kept", 0), "already holds capacity"),
        (
            lambda cluster: cluster.ledger.place(cluster.ledger.pods[0]["uid-p0"], 0),
            "<Pod/default/p0 assigned> is already on row 0",
        ),
    ],
)
def test_claiming_twice_is_a_mistake(what: Callable[[Cluster], None], message: str) -> None:
    with pytest.raises(AssertionError, match=message):
        what(make_cluster())


def test_free_is_what_is_left_and_may_be_negative() -> None:
    cluster = make_cluster()
    cluster.ledger.reserve(reserve_pod(cluster, "h1"), 0, {CPU: 8000})
    free = cluster.ledger.free(0)
    assert (free[CPU], free[PODS]) == (-100, 108)


def test_a_resource_that_a_resized_reservation_no_longer_reserves_is_free() -> None:
    cluster = make_cluster()
    before = cluster.ledger.free(1)[MEMORY]
    cluster.ledger.resize(reserve_pod(cluster, "kept"), {CPU: 300})
    assert cluster.ledger.free(1)[MEMORY] == before + 1024**3
    assert not [problem for problem in problems(cluster) if "claimed" in problem]


def test_what_a_pod_draws_is_not_claimed_twice() -> None:
    cluster = make_cluster()
    pod = cluster.pods["uid-p4"]
    cluster.ledger.allocate_from(pod, "kept")
    before = int(cluster.nodes.claimed[CPU, 1])
    cluster.ledger.place(pod, 1)
    assert (cluster.nodes.claimed[CPU, 1], cluster.nodes.held[CPU, 1]) == (before, 100)
    cluster.ledger.resize(reserve_pod(cluster, "kept"), {CPU: 300})
    assert (cluster.nodes.claimed[CPU, 1], cluster.nodes.held[CPU, 1]) == (400, 0)
    cluster.ledger.release(reserve_pod(cluster, "kept"))
    assert (cluster.nodes.claimed[CPU, 1], cluster.nodes.held[CPU, 1]) == (400, 0)
